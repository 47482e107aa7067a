"""Arrays of a file that imports JAX: JAX's promotion, 32 bits, methods and immutability, on NumPy's memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import palladio as pl
from palladio import compat


@pytest.fixture
def jax() -> Iterator[Any]:
    with compat.jax():
        import jax
    yield jax
    jax.config.update("jax_enable_x64", False)


def test_sixty_four_bits_become_thirty_two_until_they_are_turned_on(jax: Any) -> None:
    jnp = jax.numpy
    floats = [jnp.asarray(np.ones(2)), jnp.zeros(2, float), jnp.mean(np.ones(2))]
    integers = [jnp.arange(3).astype(int), jnp.asarray([1, 2])]
    assert {str(each.dtype) for each in floats} == {"float32"}
    assert {str(each.dtype) for each in integers} == {"int32"}
    assert jax.ShapeDtypeStruct((2,), np.float64).dtype == np.float32
    jax.config.update("jax_enable_x64", True)
    assert jnp.asarray(np.ones(2)).dtype == np.float64
    assert jax.ShapeDtypeStruct((2,), np.float64).dtype == np.float64
    assert jax.config.jax_enable_x64


def test_operators_promote_as_jaxs_do(jax: Any) -> None:
    jnp = jax.numpy
    half, integers = jnp.ones(2, jnp.bfloat16), jnp.arange(2)
    found = {
        "bfloat16": [half * 2.0, half + integers, -half],
        "float32": [integers / 2, integers * np.float32(1), integers.mean()],
        "int32": [integers.sum(), integers + 1],
    }
    for dtype, results in found.items():
        assert {str(each.dtype) for each in results} == {dtype}
        assert all(isinstance(each, jax.Array) for each in results)


def test_a_name_is_bound_anew_and_the_array_stays(jax: Any) -> None:
    x = y = jax.numpy.zeros(2)
    x += 1
    assert (x.tolist(), y.tolist()) == ([1, 1], [0, 0])
    assert y.at[0].set(5).tolist() == [5, 0]
    assert y.at[jax.numpy.array([0, 0])].add(1).tolist() == [2, 0]
    with pytest.raises(TypeError) as caught:
        y[0] = 1
    assert str(caught.value).splitlines()[:2] == [
        "an array of JAX cannot be changed in place",
        "  hint:     x = x.at[index].set(value)",
    ]


def test_kernels_take_and_return_them(jax: Any) -> None:
    with compat.jax():
        from jax.experimental import pallas

    def kernel(x_ref: Any, table: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] + start + table[0]

    start = jax.numpy.float32(1) * jax.numpy.ones(())
    x = np.arange(4.0)
    found = pallas.pallas_call(kernel, out_shape=jax.ShapeDtypeStruct((4,), x.dtype))(x, jax.numpy.arange(3) * 1.0)
    assert isinstance(found, jax.Array)
    assert found.block_until_ready().tolist() == [1, 2, 3, 4]


def test_they_meet_traced_values_on_either_side(jax: Any) -> None:
    zero = jax.numpy.array(0, dtype=jax.numpy.int32)

    @jax.jit
    def both(x: Any) -> Any:
        assert isinstance(x, jax.Array)
        return (zero + x, x - zero, zero < x)

    assert [each.tolist() for each in both(jax.numpy.arange(2))] == [[0, 1], [0, 1], [False, True]]


def test_numpy_and_palladio_take_them_as_arrays(jax: Any) -> None:
    x = jax.numpy.linspace(0, 1, 3)
    np.testing.assert_allclose(x, np.linspace(0, 1, 3), rtol=1e-6)
    assert np.add.reduce(x) == np.float32(1.5)
    call = pl.pallas_call(lambda x, o: o.__setitem__(..., x[...]), pl.ShapeDtypeStruct((3,), np.float32))
    assert type(call(x)) is np.ndarray


def test_positions_of_a_known_condition_are_arrays_of_32_bits(jax: Any) -> None:
    rows, columns = jax.numpy.where(jax.numpy.eye(3)[::-1] > 0)
    assert (rows.tolist(), columns.tolist(), rows.dtype) == ([0, 1, 2], [2, 1, 0], np.int32)
    assert jax.numpy.where(rows > 1, rows, 7).tolist() == [7, 7, 2]
    with pytest.raises(NotImplementedError, match="where takes a condition and two cases"):
        jax.jit(jax.numpy.where)(rows)


def test_floats_that_an_integer_cannot_hold_become_its_largest_and_least(jax: Any) -> None:
    x = jax.numpy.asarray([300, -300, 7.9, np.nan, np.inf], "float32")
    assert x.astype("int8").tolist() == [127, -128, 7, 0, 127]
    assert x.astype(np.uint8).tolist() == [255, 0, 7, 0, 255]
    assert x.astype(int).tolist() == [300, -300, 7, 0, 2**31 - 1]
    assert x.astype(jax.numpy.int4).astype(int).tolist() == [7, -8, 7, 0, 7]
    assert jax.numpy.asarray([300, -1]).astype("int8").tolist() == [44, -1]
    assert x.astype(object).dtype == object


def test_unique_values_of_a_known_array(jax: Any) -> None:
    unique, x = jax.numpy.unique, jax.numpy.array([3, 1, 3, 2])
    values, counts = unique(x, return_counts=True)
    assert (values.tolist(), counts.tolist(), counts.dtype) == ([1, 2, 3], [1, 1, 2], np.int32)
    assert unique(jax.numpy.ones((2, 3)), axis=0).tolist() == [[1, 1, 1]]
    assert isinstance(unique(x), jax.Array)
    with pytest.raises(NotImplementedError) as caught:
        unique(x, size=4)
    assert str(caught.value).splitlines()[:3] == [
        "size: unique values are not padded",
        "  expected: None",
        "  got:      4",
    ]
    with pytest.raises(NotImplementedError) as caught:
        jax.jit(unique)(x)
    assert str(caught.value).splitlines()[:2] == [
        "ar: the number of unique values is known outside of traces only",
        "  got:      a traced value",
    ]


def test_indices_outside_are_dropped_when_writing_and_moved_inside_when_reading(jax: Any) -> None:
    x = jax.numpy.arange(8).reshape(2, 4)
    for update in (
        x.at[2, 0].set(9),
        x.at[0, -5].set(9),
        x.at[2].add(9),
        x.at[..., 4].multiply(9),
        x.at[0, 7].power(2),
    ):
        assert update.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert x.at[jax.numpy.array([0, 5]), 1].set(7).tolist() == [[0, 7, 2, 3], [4, 5, 6, 7]]
    assert x.at[2, 0].set(9, mode="clip").tolist() == [[0, 1, 2, 3], [9, 5, 6, 7]]
    assert (x[2, 0], x[0, -9], x.at[5, 5].get(), x[..., 9].tolist(), x[None, 7].tolist()) == (
        4,
        0,
        7,
        [3, 7],
        [[4, 5, 6, 7]],
    )
    assert (x.at[9, 0].get(mode="fill", fill_value=3), x.at[9].get(mode="drop", fill_value=3).tolist()) == (3, [3] * 4)
    assert np.isnan(jax.numpy.ones(2).at[-3].get(mode="fill"))
    assert x[np.array([-1], np.int8), 200].tolist() == [7]
    assert jax.numpy.zeros((300, 1))[np.array([255], np.uint8), 1].tolist() == [0]
    narrow = jax.numpy.array([3, 1], "int4")
    assert (x[0, narrow[0]], x[narrow, narrow].tolist()) == (3, [7, 5])
    assert [row.tolist() for row in x] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    first, second = x[0, :2]
    assert (first, second) == (0, 1)
    with pytest.raises(TypeError, match="an array without axes has no elements to go through"):
        iter(jax.numpy.zeros(()))


def test_numpy_may_name_a_result_as_its_output(jax: Any) -> None:
    error = jax.numpy.asarray(np.array([1, 4, 2], np.float32))
    assert np.minimum(error, np.float32(2), out=error).tolist() == [1, 2, 2]
