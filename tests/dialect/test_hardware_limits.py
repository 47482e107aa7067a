"""The tensor cores' limits: not part of the language; checked where that is requested."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.gpu as plgpu
import palladio.numpy as jnp
from tests.dialect.kernels import kernel


def product(m: int, n: int, k: int, dtype: Any = np.float16, a: Any = (), b: Any = ()) -> Any:
    """A kernel with one product of ones; `a` and `b` are the transforms of its operands."""

    def body(o_ref: Any, a_ref: Any, b_ref: Any, acc: Any) -> None:
        a_ref[...] = jnp.ones((m, k), dtype)
        b_ref[...] = jnp.ones((k, n), dtype)
        plgpu.commit_smem()
        plgpu.wgmma(acc, a_ref, b_ref)
        o_ref[...] = acc[...]

    operands = [plgpu.SMEM((m, k), dtype, transforms=a), plgpu.SMEM((k, n), dtype, transforms=b)]
    return kernel(body, (m, n), np.float32, scratch_types=[*operands, plgpu.ACC((m, n))])


TILED = (plgpu.TilingTransform((8, 64)), plgpu.SwizzleTransform(128))
NARROW = (plgpu.TilingTransform((8, 32)), plgpu.SwizzleTransform(64))


@pytest.mark.parametrize("shape", [(3, 5, 7), (64, 264, 16), (8, 8, 1)])
def test_small_and_odd_products_are_part_of_the_language(shape: Any) -> None:
    assert (product(*shape)() == shape[2]).all()


@pytest.mark.parametrize("shape", [(64, 8, 16), (128, 256, 64)])
def test_what_the_hardware_multiplies_passes(shape: Any) -> None:
    with plgpu.enable_hardware_limits():
        assert (
            product(*shape, a=TILED if shape[2] == 64 else (), b=TILED if shape[2] == 64 else ())() == shape[2]
        ).all()


@pytest.mark.parametrize("shape", [(32, 8, 16), (64, 12, 16), (64, 264, 16), (64, 8, 8)])
def test_what_it_cannot_multiply_is_refused_where_limits_are_on(shape: Any) -> None:
    with plgpu.enable_hardware_limits(), pytest.raises(pl.PalladioValueError, match="Hopper's tensor cores"):
        product(*shape)()


def test_limits_hold_also_for_a_kernel_that_ran_without_them() -> None:
    run = product(8, 8, 8)
    run()
    with plgpu.enable_hardware_limits(), pytest.raises(pl.PalladioValueError):
        run()
    with plgpu.enable_hardware_limits(), plgpu.enable_hardware_limits(False):
        run()


def test_operands_have_one_swizzle_where_limits_are_on() -> None:
    run = product(64, 64, 64, a=TILED, b=NARROW)
    run()
    with plgpu.enable_hardware_limits(), pytest.raises(pl.PalladioValueError, match="have one swizzle"):
        run()
