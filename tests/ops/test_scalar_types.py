"""`jnp.int32` and its kin: dtypes wherever NumPy takes one, and functions of values, traced or not."""

from __future__ import annotations

import operator
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import palladio as pl
import palladio.numpy as jnp
from palladio.array import NAMESPACE, SCALAR_TYPES
from palladio.array.scalar_types import ScalarType
from palladio.types import dtypes

TYPES = list(SCALAR_TYPES.values())
X = np.array([0.0, 1.0, -1.5, 200.7, np.nan], np.float32)


def test_there_is_one_for_each_dtype() -> None:
    assert {kind.dtype for kind in TYPES} == {*dtypes.ALL, *dtypes.NARROW}
    assert all(getattr(jnp, name) is kind is getattr(NAMESPACE, name) for name, kind in SCALAR_TYPES.items())
    assert jnp.bool is jnp.bool_


@pytest.mark.parametrize("kind", TYPES)
def test_it_stands_where_a_dtype_does(kind: ScalarType) -> None:
    dtype = kind.dtype
    assert (
        np.dtype(kind) == dtype == np.zeros(1, kind).dtype == np.zeros(1).astype(kind).dtype == dtypes.canonical(kind)
    )
    assert jnp.zeros((1,), kind).dtype == dtype == jnp.result_type(kind) == jnp.promote_types(kind, kind)
    assert jnp.issubdtype(kind, kind) and jnp.issubdtype(dtype, kind)
    assert pl.ShapeDtypeStruct((1,), kind).dtype == dtype


@pytest.mark.parametrize("kind", TYPES)
def test_it_equals_the_scalar_type_and_the_dtype_of_numpy_and_nothing_else(kind: ScalarType) -> None:
    scalar = kind.dtype.type
    assert kind == scalar and scalar == kind and hash(kind) == hash(scalar)
    assert kind == kind.dtype and kind.dtype == kind
    assert [other for other in TYPES if other == kind] == [kind]
    assert isinstance(scalar(1), kind) and not isinstance("1", kind)
    assert pickle.loads(pickle.dumps(kind)) is kind


@pytest.mark.parametrize("kind", TYPES)
def test_called_it_converts_as_astype_does(kind: ScalarType) -> None:
    eager = kind(X)
    traced = pl.jit(kind)(X)
    assert eager.dtype == traced.dtype == kind.dtype
    assert eager.tobytes() == traced.tobytes() == jnp.astype(X, kind).tobytes()


@given(
    st.sampled_from([kind for kind in TYPES if kind.dtype in dtypes.ALL]),
    st.one_of(st.booleans(), st.integers(0, 100), st.floats(0, 100, width=16)),
)
def test_a_python_scalar_becomes_a_strong_value(kind: ScalarType, value: Any) -> None:
    found = kind(value)
    assert (found.shape, found.dtype) == ((), kind.dtype)
    if kind.dtype not in (dtypes.FLOAT8_E4M3FN, dtypes.FLOAT8_E5M2):
        assert jnp.add(found, jnp.int8(1)).dtype == jnp.promote_types(kind, jnp.int8)


def test_an_integer_indexes() -> None:
    assert operator.index(jnp.int32(3)) == 3


def test_the_greatest_unsigned_integer_is_held() -> None:
    assert int(jnp.uint32(2**32 - 1)) == 2**32 - 1


def test_an_integer_that_does_not_fit_is_refused() -> None:
    with pytest.raises(pl.PalladioValueError, match="does not fit into uint8"):
        jnp.uint8(300)


def test_a_reference_is_refused() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = jnp.int32(x_ref)

    with pytest.raises(pl.PalladioTypeError, match="a reference is not a value"):
        pl.pallas_call(kernel, pl.ShapeDtypeStruct((5,), np.int32))(X)


@pytest.mark.parametrize("kind", [int, float, bool])
def test_the_number_types_of_python_are_the_dtypes_that_numpy_makes_of_them(kind):
    assert pl.ShapeDtypeStruct((2,), kind).dtype == np.dtype(kind)
    assert jnp.zeros(2, kind).dtype == np.dtype(kind)


@pytest.mark.parametrize(
    ("values", "dtype", "found"),
    [
        ([0.1], "float64", 0.1),
        ([2**40], "int64", 2**40),
        ([2**53 + 1], "int64", 2**53 + 1),
        ([2**64 - 1], "uint64", 2**64 - 1),
    ],
)
def test_a_list_becomes_an_array_of_a_dtype_without_another_one_between(values, dtype, found):
    array = jnp.asarray(values, dtype)
    assert array.dtype == dtype and array.tolist() == [found]


def test_floats_of_a_list_are_converted_as_those_of_an_array():
    assert jnp.asarray([1.5, 1e9, float("nan")], np.int8).tolist() == [1, 127, 0]
    assert jnp.asarray([1e300]).tolist() == [float("inf")]
