"""Making and rearranging arrays: as NumPy does, with the dtypes of JAX."""

from __future__ import annotations

from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import palladio.numpy as jnp
from palladio import lax
from palladio.base.errors import PalladioError
from palladio.ir.evaluate import evaluate
from palladio.ops.arrays import shape as ops
from palladio.trace.trace import stage
from palladio.trace.values import wrap
from palladio.types.types import ArrayType

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
M = np.arange(12, dtype=np.int8).reshape(3, 4)
ONES = np.arange(6, dtype=np.float32).reshape(1, 2, 1, 3)


def same(found: Any, expected: Any) -> None:
    if isinstance(expected, (tuple, list)):
        assert len(found) == len(expected)
        for pair in zip(found, expected, strict=True):
            same(*pair)
        return
    found, expected = np.asarray(found), np.asarray(expected)
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_array_equal(found, expected)


AS_NUMPY = {
    "reshape": lambda np: np.reshape(X, (4, 6)),
    "reshape to a vector": lambda np: np.reshape(X, -1),
    "reshape with an open size": lambda np: np.reshape(X, (3, -1, 2)),
    "reshape of nothing": lambda np: np.reshape(X[:0], (0, 5)),
    "ravel": lambda np: np.ravel(X),
    "ravel of nothing": lambda np: np.ravel(X[:0]),
    "transpose": lambda np: np.transpose(X),
    "transpose by axes": lambda np: np.transpose(X, (1, -1, 0)),
    "permute_dims": lambda np: np.permute_dims(X, (2, 0, 1)),
    "swapaxes": lambda np: np.swapaxes(X, 0, -1),
    "moveaxis": lambda np: np.moveaxis(X, 0, -1),
    "moveaxis of several": lambda np: np.moveaxis(X, (0, 1), (-1, 0)),
    "expand_dims": lambda np: np.expand_dims(X, 1),
    "expand_dims at several": lambda np: np.expand_dims(X, (0, -1)),
    "squeeze": lambda np: np.squeeze(ONES),
    "squeeze of one": lambda np: np.squeeze(ONES, -2),
    "squeeze of several": lambda np: np.squeeze(ONES, (0, 2)),
    "broadcast_to": lambda np: np.broadcast_to(X[:, :1], (5, 2, 3, 4)),
    "broadcast_arrays": lambda np: list(np.broadcast_arrays(X, M[0], M[:, :1])),
    "atleast_1d": lambda np: np.atleast_1d(X[0, 0, 0]),
    "atleast_2d": lambda np: np.atleast_2d(X[0, 0]),
    "concatenate": lambda np: np.concatenate([X, X[:, :2]], 1),
    "concatenate from the end": lambda np: np.concatenate([X, X[..., :1]], axis=-1),
    "concatenate flattened": lambda np: np.concatenate([X, M.astype(np.float32)], axis=None),
    "stack": lambda np: np.stack([M, M + M], 1),
    "stack after": lambda np: np.stack([M, M, M], axis=-1),
    "hstack": lambda np: np.hstack([M, M[:, :1]]),
    "hstack of vectors": lambda np: np.hstack([M[0], M[1, :2]]),
    "vstack": lambda np: np.vstack([M, M[:1]]),
    "vstack of vectors": lambda np: np.vstack([M[0], M[1]]),
    "split": lambda np: np.split(X, 2, -1),
    "split at places": lambda np: np.split(M, [1, -1, 7], 1),
    "split at places that go back": lambda np: np.split(M, [3, 1], 1),
    "array_split": lambda np: np.array_split(M, 3, 1),
    "tile": lambda np: np.tile(M, (2, 1, 3)),
    "tile once": lambda np: np.tile(X, 2),
    "repeat": lambda np: np.repeat(X, 3, 1),
    "repeat flattened": lambda np: np.repeat(M, 2),
    "flip": lambda np: np.flip(X),
    "flip an axis": lambda np: np.flip(X, -1),
    "fliplr": lambda np: np.fliplr(X),
    "flipud": lambda np: np.flipud(X),
    "roll": lambda np: np.roll(M, 5),
    "roll an axis": lambda np: np.roll(M, -1, 1),
    "roll axes": lambda np: np.roll(X, (1, 2), (0, -1)),
    "roll axes alike": lambda np: np.roll(X, 1, (0, 1)),
    "rot90": lambda np: np.rot90(M),
    "rot90 thrice": lambda np: np.rot90(X, 3, (0, 2)),
    "rot90 twice": lambda np: np.rot90(X, 2),
    "pad": lambda np: np.pad(M, 1),
    "pad by a value": lambda np: np.pad(M, ((0, 1), (2, 0)), constant_values=7),
    "pad all alike": lambda np: np.pad(X, (1, 2)),
    "pad by the edge": lambda np: np.pad(M, ((2, 1), (0, 3)), mode="edge"),
    "pad by reflection": lambda np: np.pad(M, ((2, 1), (5, 3)), mode="reflect"),
    "pad by wrapping": lambda np: np.pad(M, ((2, 1), (5, 3)), mode="wrap"),
    "tril": lambda np: np.tril(M),
    "tril moved": lambda np: np.tril(X, -1),
    "triu": lambda np: np.triu(X, 1),
    "diag": lambda np: np.diag(M),
    "diag above": lambda np: np.diag(M, 2),
    "diag below": lambda np: np.diag(M, -1),
    "diag beside": lambda np: np.diag(M, 7),
    "diag of a vector": lambda np: np.diag(M[1]),
    "diag of a vector above": lambda np: np.diag(M[1], 1),
    "diag of a vector below": lambda np: np.diag(M[1], -2),
    "meshgrid": lambda np: list(np.meshgrid(M[0], X[0, 0, :2], M[:, 1])),
    "meshgrid in order": lambda np: list(np.meshgrid(M[0], M[:2, 1], indexing="ij")),
    "full of a vector": lambda np: np.full((2, 4), M[0]),
    "full_like": lambda np: np.full_like(M, 3),
    "zeros_like": lambda np: np.zeros_like(M),
    "ones_like": lambda np: np.ones_like(M, dtype=np.float16),
    "empty shape": lambda np: np.zeros_like(X[:0]),
}


@pytest.mark.parametrize("name", AS_NUMPY)
def test_the_result_is_that_of_numpy(name: str) -> None:
    act: Any = AS_NUMPY[name]
    same(act(jnp), act(np))


AS_JAX = {
    "zeros": lambda np: np.zeros((2, 3)),
    "zeros of a size": lambda np: np.zeros(3),
    "ones": lambda np: np.ones((2,), np.int8),
    "full": lambda np: np.full((2, 2), 7),
    "full of floats": lambda np: np.full((), 2.5),
    "full of bool": lambda np: np.full((2,), True),
    "full converted": lambda np: np.full((2,), 2.7, np.int32),
    "eye": lambda np: np.eye(3),
    "eye moved": lambda np: np.eye(2, 4, 1, np.int32),
    "identity": lambda np: np.identity(2),
    "indices": lambda np: np.indices((2, 3)),
    "tri": lambda np: np.tri(3, 4, -1),
    "arange": lambda np: np.arange(5),
    "arange between": lambda np: np.arange(2, 9, 3),
    "arange down": lambda np: np.arange(5, -2, -2),
    "arange of nothing": lambda np: np.arange(3, 3),
    "arange of floats": lambda np: np.arange(0.0, 1.0, 0.25),
    "arange as": lambda np: np.arange(4, dtype=np.int8),
    "linspace": lambda np: np.linspace(0, 4, 5),
    "linspace without its end": lambda np: np.linspace(1.0, 2.0, 4, endpoint=False),
    "linspace of one": lambda np: np.linspace(3, 9, 1),
    "concatenate promotes": lambda np: np.concatenate([X[0], M]),
    "stack promotes": lambda np: np.stack([M[0], X[0, 0].astype(ml_dtypes.bfloat16)]),
    "hstack of scalars": lambda np: np.hstack([np.float32(1), np.float32(2)]),
}


@pytest.mark.parametrize("name", AS_JAX)
def test_defaults_and_promotion_are_those_of_jax(name: str) -> None:
    act: Any = AS_JAX[name]
    same(act(jnp), act(jax.numpy))


AS_LAX = {
    "reshape": lambda lax: lax.reshape(X, (6, 4)),
    "reshape transposed": lambda lax: lax.reshape(X, (12, 2), (2, 1, 0)),
    "transpose": lambda lax: lax.transpose(X, (2, 0, 1)),
    "broadcast": lambda lax: lax.broadcast(M, (2, 1)),
    "broadcast_in_dim": lambda lax: lax.broadcast_in_dim(M[:, :1], (3, 5, 4), (0, 2)),
    "broadcast_in_dim of a scalar": lambda lax: lax.broadcast_in_dim(M[0, 1], (2, 3), ()),
    "iota": lambda lax: lax.iota(np.int8, 5),
    "broadcasted_iota": lambda lax: lax.broadcasted_iota(np.float32, (2, 3, 2), 1),
    "concatenate": lambda lax: lax.concatenate([X, X[:1]], 0),
    "pad": lambda lax: lax.pad(M, np.int8(7), ((1, 2, 0), (0, 0, 1))),
    "pad that cuts": lambda lax: lax.pad(X, 0.0, ((0, 0, 0), (-1, 2, 0), (1, -2, 0))),
    "pad between, then cut": lambda lax: lax.pad(M, np.int8(7), ((-2, 1, 2), (-3, -3, 1))),
    "pad of nothing": lambda lax: lax.pad(M[:0], np.int8(7), ((1, 1, 3), (0, 0, 0))),
    "rev": lambda lax: lax.rev(X, (0, 2)),
    "squeeze": lambda lax: lax.squeeze(ONES, (0, -2)),
    "expand_dims": lambda lax: lax.expand_dims(M, (0, 3)),
    "full": lambda lax: lax.full((2, 2), 1.5),
    "full_like": lambda lax: lax.full_like(M, 2),
    "full_like of another shape": lambda lax: lax.full_like(M, 2.0, np.float16, (3,)),
    "split": lambda lax: list(lax.split(M, (1, 0, 3), 1)),
    "slice": lambda lax: lax.slice(X, (0, 1, 0), (2, 3, 4), (1, 2, 3)),
    "slice of nothing": lambda lax: lax.slice(M, (1, 4), (1, 4)),
    "slice_in_dim": lambda lax: lax.slice_in_dim(X, 1, -1, 2, -1),
    "index_in_dim": lambda lax: lax.index_in_dim(X, -1, 1),
    "index_in_dim without it": lambda lax: lax.index_in_dim(X, 2, 1, keepdims=False),
    "dynamic_slice": lambda lax: lax.dynamic_slice(X, (np.int32(1), np.int32(1), np.int32(2)), (1, 2, 2)),
    "dynamic_slice is clamped": lambda lax: lax.dynamic_slice(X, np.array([5, -1, -9], np.int32), (1, 2, 2)),
    "dynamic_slice by small integers": lambda lax: lax.dynamic_slice(M, (np.int8(-3), np.int8(120)), (2, 2)),
    "dynamic_slice at static starts": lambda lax: lax.dynamic_slice(M, (7, -3), (2, 2)),
    "dynamic_slice_in_dim": lambda lax: lax.dynamic_slice_in_dim(X, np.int32(9), 2, 1),
    "dynamic_index_in_dim": lambda lax: lax.dynamic_index_in_dim(X, np.int32(-1), 2),
    "dynamic_index_in_dim without it": lambda lax: lax.dynamic_index_in_dim(X, np.int32(1), -1, keepdims=False),
    "dynamic_update_slice": lambda lax: lax.dynamic_update_slice(M, M[:2, :2], (np.int32(7), np.int32(1))),
    "dynamic_update_slice_in_dim": lambda lax: lax.dynamic_update_slice_in_dim(M, M[:, :2], np.int32(-1), 1),
    "dynamic_update_index_in_dim": lambda lax: lax.dynamic_update_index_in_dim(M, M[0], np.int32(1), 0),
    "dynamic_update_index_in_dim with it": lambda lax: lax.dynamic_update_index_in_dim(M, M[:, :1], np.int32(8), 1),
}


@pytest.mark.parametrize("name", AS_LAX)
def test_the_functions_of_lax_are_those_of_jax(name: str) -> None:
    act: Any = AS_LAX[name]
    same(act(lax), act(_ArraysIn(jax.lax)))


def staged(act: Any, library: Any) -> Any:
    """What a case computes with the arrays of this file traced."""
    known = {name: globals()[name] for name in ("X", "M", "ONES")}
    several = []

    def traced(*arrays: Any) -> Any:
        globals().update(zip(known, arrays, strict=True))
        try:
            result = act(library)
        finally:
            globals().update(known)
        several.append(isinstance(result, list))
        return result if several[0] else [result]

    found = stage(traced, [ArrayType(array.shape, array.dtype) for array in known.values()], wrap, name="case")
    results = evaluate(found.program, [*known.values(), *found.captured])
    return results if several[0] else results[0]


@pytest.mark.parametrize("name", AS_NUMPY)
def test_staged_the_result_is_the_same(name: str) -> None:
    act: Any = AS_NUMPY[name]
    same(staged(act, jnp), act(np))


@pytest.mark.parametrize("name", [name for name in AS_NUMPY if not name.startswith("full of")])
def test_the_functions_of_numpy_work_on_traced_values(name: str) -> None:
    act: Any = AS_NUMPY[name]
    same(staged(act, np), act(np))


@pytest.mark.parametrize("name", AS_LAX)
def test_staged_the_functions_of_lax_give_the_same(name: str) -> None:
    act: Any = AS_LAX[name]
    same(staged(act, lax), act(lax))


class _ArraysIn:
    """A library whose functions get JAX arrays for NumPy ones."""

    def __init__(self, library: Any) -> None:
        self.library = library

    def __getattr__(self, name: str) -> Any:
        function = getattr(self.library, name)
        return lambda *args, **kwargs: function(*map(_jax_array, args), **kwargs)


def _jax_array(value: Any) -> Any:
    if isinstance(value, list):
        return [_jax_array(each) for each in value]
    return jax.numpy.asarray(value) if isinstance(value, (np.ndarray, np.generic)) else value


@given(st.lists(st.tuples(*[st.integers(0, 4), *[st.integers(-3, 4)] * 2, st.integers(0, 2)]), max_size=3))
def test_padding_agrees_with_its_type_rule_and_its_meaning(axes: Any) -> None:
    shape = tuple(extent for extent, *_ in axes)
    padding = tuple(each for _, *each in axes)
    array = np.arange(1, 1 + np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)
    spread = [extent + max(0, extent - 1) * between for extent, _, _, between in axes]
    sizes = [n + before + after for n, (before, after, _) in zip(spread, padding, strict=True)]
    params = {"padding": tuple(map(tuple, padding))}
    scalar = ArrayType((), array.dtype)
    if any(size < 0 for size in sizes):
        with pytest.raises(PalladioError):
            ops.pad.type(ArrayType(shape, array.dtype), scalar, **params)
        return
    found = ops.pad.eval(array, np.float32(-1), **params)[0]
    assert ArrayType(found.shape, found.dtype) == ops.pad.type(ArrayType(shape, array.dtype), scalar, **params)[0]
    expected = np.full(sizes, -1, np.float32)
    for index in np.ndindex(shape):
        place = tuple(n * (between + 1) + before for n, (before, _, between) in zip(index, padding, strict=True))
        if all(0 <= n < size for n, size in zip(place, sizes, strict=True)):
            expected[place] = array[index]
    np.testing.assert_array_equal(found, expected)


ERRORS = {
    "a reshape of another size": (
        lambda: jnp.reshape(X, (5, 5)),
        "a reshape keeps the number of elements\n  expected: 24 elements, as f32[2,3,4]\n  got:      (5, 5)",
    ),
    "an open size that does not come out": (
        lambda: jnp.reshape(X, (-1, 5)),
        "shape: the elements do not fill the shape\n  expected: 24 elements\n  got:      (-1, 5)",
    ),
    "two open sizes": (
        lambda: jnp.reshape(X, (-1, -1)),
        "shape: at most one size is -1, the others are at least 0\n  got:      (-1, -1)",
    ),
    "a traced size": (
        lambda: jnp.zeros((2, np.float32(3))),
        "shape: a shape is static integers\n  got:      (2, np.float32(3.0))",
    ),
    "a negative size": (lambda: jnp.zeros((2, -3)), "shape: a size is at least 0\n  got:      (2, -3)"),
    "an axis out of range": (
        lambda: jnp.flip(X, 3),
        "axis: the array has no such axis, its rank is 3\n  expected: -3 <= axis < 3\n  got:      3",
    ),
    "a transpose of too few axes": (
        lambda: jnp.transpose(X, (0, 1)),
        "a transpose names every axis once\n  expected: a permutation of the axes of f32[2,3,4]\n  got:      (0, 1)",
    ),
    "a squeeze of more than one": (
        lambda: jnp.squeeze(X, 1),
        "axis: only axes of size 1 can be left out\n  got:      1 of (2, 3, 4)",
    ),
    "a broadcast to what does not fit": (
        lambda: jnp.broadcast_to(M, (3, 5)),
        "the shapes do not broadcast together\n  got:      (3, 4), (3, 5)",
    ),
    "a broadcast to less": (
        lambda: jnp.broadcast_to(M, (4,)),
        "the array does not broadcast to the shape\n  expected: (4,)\n  got:      (3, 4)",
    ),
    "arrays that do not concatenate": (
        lambda: jnp.concatenate([X, X[:, :2]], 0),
        "concatenate takes arrays of one dtype that differ along its axis only\n  got:      f32[2,3,4], f32[2,2,4]",
    ),
    "nothing to concatenate": (lambda: jnp.concatenate([]), "arrays: at least one array is needed"),
    "scalars to concatenate": (
        lambda: jnp.concatenate([1, 2]),
        "arrays: scalars cannot be concatenated\n  hint:     use stack",
    ),
    "a stack of two shapes": (
        lambda: jnp.stack([X, M]),
        "stack takes arrays of one shape\n  expected: (2, 3, 4)\n  got:      (3, 4)",
    ),
    "parts that do not come out": (
        lambda: jnp.split(X, 2, 1),
        "indices_or_sections: the parts are not equal\n  expected: a divisor of 3\n  got:      2",
    ),
    "repeats that are not static": (
        lambda: jnp.repeat(X, X),
        f"repeats: the number of repeats is one static integer\n  got:      {X!r}\n"
        "  hint:     total_repeat_length= gives the size of the result",
    ),
    "a pad of another kind": (
        lambda: jnp.pad(X, 1, mode="mean"),
        "mode: no such way to pad\n  expected: constant, edge, empty, reflect, wrap\n  got:      'mean'",
    ),
    "a negative pad": (lambda: jnp.pad(X, -1), "pad_width: a width is at least 0\n  got:      -1"),
    "pads for other axes": (
        lambda: jnp.pad(X, ((1, 1), (2, 2))),
        "pad_width: a number, (before, after), or one such pair for each axis\n  expected: 3 pairs\n"
        "  got:      ((1, 1), (2, 2))",
    ),
    "a step of zero": (lambda: jnp.arange(0, 3, 0), "step: the step of arange is not zero\n  got:      0"),
    "a diagonal of more": (lambda: jnp.diag(X), "diag takes a vector or a matrix\n  got:      f32[2,3,4]"),
    "an iota of bool": (lambda: lax.iota(bool, 3), "iota counts in a number dtype\n  got:      bool"),
    "a slice outside": (
        lambda: lax.slice(M, (0, 2), (3, 5)),
        "the slice of axis 1 lies inside it and steps forwards\n  expected: 0 <= start <= limit <= 4, stride >= 1\n"
        "  got:      start 2, limit 5, stride 1",
    ),
    "a part that is too large": (
        lambda: lax.dynamic_slice(M, (0, 0), (4, 1)),
        "slice_sizes: the part fits into the array\n  expected: at most (3, 4)\n  got:      (4, 1)",
    ),
    "too few starts": (
        lambda: lax.dynamic_slice(M, (0,), (1, 1)),
        "start_indices: a start for each axis\n  expected: 2\n  got:      1",
    ),
    "a start that is not an integer": (
        lambda: lax.dynamic_slice(M, (0, 1.5), (1, 1)),
        "a start is an integer or an integer array\n  got:      f32[]",
    ),
    "an update of another dtype": (
        lambda: lax.dynamic_update_slice(M, X[0], (0, 0)),
        "the value has another dtype than the reference\n  expected: i8[3,4]\n  got:      f32[3,4]",
    ),
    "a padding value of another dtype": (
        lambda: lax.pad(M, np.float32(0), ((0, 0, 0), (0, 0, 0))),
        "the padding value is a scalar of the array's dtype\n  expected: i8[]\n  got:      f32[]",
    ),
    "a pad that removes too much": (
        lambda: lax.pad(M[0], np.int8(0), ((-3, -2, 0),)),
        "the padding removes more than there is\n  got:      ((-3, -2, 0),) of i8[4]",
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_says_what_is_wrong(name: str) -> None:
    act, text = ERRORS[name]
    with pytest.raises(PalladioError) as caught:
        act()
    caught.value.location = caught.value.__traceback__ = None
    assert str(caught.value) == text
