"""The dtype in which two dtypes meet is the one in JAX, for all pairs; scalars and 64-bit host scalars are weak."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy
import numpy as np
import pytest

import palladio.numpy as jnp
from palladio.base.errors import PalladioTypeError
from palladio.types import dtypes

FLOAT8 = (dtypes.FLOAT8_E4M3FN, dtypes.FLOAT8_E5M2)
ARITHMETIC = ("add", "multiply", "maximum", "where")
ZEROS = {dtype: np.zeros(2, dtype) for dtype in dtypes.ALL}


def apply(module: Any, name: str, x: Any, y: Any) -> Any:
    return module.where(np.array([True, False]), x, y) if name == "where" else getattr(module, name)(x, y)


def in_jax(name: str, x: Any, y: Any) -> Any:
    """The dtype that JAX gives with 64 bits on, or None where it refuses."""

    def call() -> Any:
        return apply(jax.numpy, name, *(jax.numpy.asarray(v) if isinstance(v, np.ndarray) else v for v in (x, y)))

    with jax.enable_x64(True):
        try:
            return jax.eval_shape(call).dtype
        except (TypeError, jax.dtypes.TypePromotionError):
            return None


def here(name: str, x: Any, y: Any) -> Any:
    try:
        return apply(jnp, name, x, y).dtype
    except PalladioTypeError:
        return None


def mismatches(cases: Any, name: str, expected: Callable[..., Any]) -> list[str]:
    found = []
    for case, x, y in cases:
        wanted, got = expected(case, in_jax(name, x, y)), here(name, x, y)
        if wanted != got:
            found.append(f"{name} of {case}: {got}, not {wanted}")
    return found


@pytest.mark.parametrize("name", ARITHMETIC)
def test_every_pair_of_dtypes_meets_where_it_does_in_jax(name: str) -> None:
    def expected(pair: Any, of_jax: Any) -> Any:
        # uint64 and a signed integer meet in a float of the default width, which is float32 here.
        integers = all(dtypes.is_integer(dtype) for dtype in pair)
        return dtypes.FLOAT32 if of_jax is not None and integers and dtypes.is_float(of_jax) else of_jax

    pairs = [((a, b), ZEROS[a], ZEROS[b]) for a, b in itertools.product(dtypes.ALL, repeat=2)]
    assert mismatches(pairs, name, expected) == []


@pytest.mark.parametrize("scalar", [True, 1, 1.5], ids=repr)
@pytest.mark.parametrize("name", ARITHMETIC)
def test_a_python_scalar_takes_the_dtype_of_the_array(name: str, scalar: Any) -> None:
    narrowed = {dtypes.INT64: dtypes.INT32, dtypes.FLOAT64: dtypes.FLOAT32}

    def expected(dtype: Any, of_jax: Any) -> Any:
        return of_jax if of_jax == dtype else narrowed.get(of_jax, of_jax)  # the default is 32 bits wide

    assert mismatches([(dtype, ZEROS[dtype], scalar) for dtype in dtypes.ALL], name, expected) == []
    assert mismatches([(dtype, scalar, ZEROS[dtype]) for dtype in dtypes.ALL], name, expected) == []


def test_host_scalars_of_64_bits_are_weak_and_arrays_of_rank_0_are_not() -> None:
    x = np.zeros(2, np.float16)
    assert jnp.add(x, np.float64(2)).dtype == np.float16
    assert jnp.add(x, np.float32(2)).dtype == np.float32
    assert jnp.add(x, np.array(2.0)).dtype == np.float64
    assert jnp.add(np.zeros(2, np.int8), np.int64(3)).dtype == np.int8


def test_a_result_of_64_bits_is_not_weak() -> None:
    total = jnp.sum(np.ones(2))
    assert total.dtype == np.float64
    assert jnp.add(np.ones(2, np.float32), total).dtype == np.float64


@pytest.mark.parametrize("name", ["exp", "sqrt", "true_divide", "mean", "arctan2", "logaddexp"])
def test_integers_become_float32_in_mathematics(name: str) -> None:
    for dtype in dtypes.ALL:
        arguments = [ZEROS[dtype]] * (2 if name in ("true_divide", "arctan2", "logaddexp") else 1)
        assert getattr(jnp, name)(*arguments).dtype == (dtype if dtypes.is_float(dtype) else np.float32), dtype


@pytest.mark.parametrize("name", ["sum", "prod", "cumsum", "cumprod", "max", "var"])
def test_reductions_keep_the_dtypes_of_jax(name: str) -> None:
    for dtype in (dtype for dtype in dtypes.ALL if dtype.itemsize < 8):
        assert getattr(jnp, name)(ZEROS[dtype]).dtype == getattr(jax.numpy, name)(ZEROS[dtype]).dtype, dtype


@pytest.mark.parametrize("name", ["sum", "prod", "max", "cumsum"])
@pytest.mark.parametrize("dtype", [np.int64, np.uint64, np.float64])
def test_reductions_keep_64_bits(name: str, dtype: Any) -> None:
    assert getattr(jnp, name)(np.ones(2, dtype)).dtype == dtype


def test_float8_kinds_meet_only_themselves_and_scalars() -> None:
    for one, other in itertools.product(FLOAT8, dtypes.ALL):
        if dtypes.is_float(other) and other != one:
            with pytest.raises(PalladioTypeError, match="do not promote"):
                jnp.add(ZEROS[one], ZEROS[other])
    assert jnp.add(ZEROS[FLOAT8[0]], 1.5).dtype == FLOAT8[0]
