"""What moves or updates elements gives, for every dtype, the shapes and dtypes that its type rule names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from palladio.base.errors import PalladioError
from palladio.ir.core import Op
from palladio.ops.arrays import shape
from palladio.ops.references import access, atomics, masked, memory
from palladio.types import dtypes
from palladio.types.transforms import Bitcast, Index, Operand, Reshape, SliceEntry, Transpose, transformed
from palladio.types.types import ArrayType, RefType

ROWS = np.array([2, 0, 2, 9], np.int32)  # one twice, one outside
GATHER = {"transforms": (Index((Operand(0), SliceEntry(1, 2))),)}
BLOCK = {"transforms": (Index((SliceEntry(0, 2, 2), SliceEntry(1, 2))),)}
KINDS = ("set", *memory.COMBINERS)


def array(extents: tuple[int, ...], dtype: Any, start: int = 0) -> Any:
    return (np.arange(start, start + np.prod(extents, dtype=int)).reshape(extents) % 7).astype(dtype)


def check(op: Op, inputs: list[Any], params: dict[str, Any], refs: bool = False) -> list[Any]:
    """Evaluate an operation with NumPy's warnings as errors; compare with its type rule."""
    types: list[Any] = [ArrayType(np.shape(value), value.dtype) for value in inputs]
    if refs:
        types[0] = RefType(types[0].shape, types[0].dtype)
    wanted = op.type(*types, **params)
    found = op.eval(*inputs, **params)
    assert [ArrayType(np.shape(value), value.dtype) for value in found] == list(wanted)
    return list(found)


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_elements_of_every_dtype_are_moved(dtype: Any) -> None:
    x = array((3, 4), dtype)
    check(shape.broadcast, [x], {"shape": (3, 2, 4), "axes": (0, 2)})
    check(shape.reshape, [x], {"shape": (2, 6)})
    check(shape.transpose, [x], {"permutation": (1, 0)})
    check(shape.concatenate, [x, x[:, :1]], {"axis": 1})
    check(shape.pad, [x, x[0, 1]], {"padding": ((1, -1, 2), (-2, 3, 0))})
    check(shape.reverse, [x], {"axes": (0,)})
    if dtype != dtypes.BOOL:
        check(shape.iota, [], {"shape": (2, 5), "dtype": dtype, "axis": 1})
    check(memory.extract, [x], BLOCK)
    (found,) = check(memory.extract, [x, ROWS], GATHER)
    assert found[3, 0].tobytes() == dtypes.uninitialized(dtype).tobytes()


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_elements_of_every_dtype_are_combined_or_refused_by_type(dtype: Any, kind: str) -> None:
    x, rows, block = array((3, 4), dtype), array((4, 2), dtype, 3), array((2, 2), dtype, 5)
    refused = {"add": dtypes.is_bool, "mul": dtypes.is_bool}
    refused |= dict.fromkeys(("and", "or", "xor"), dtypes.is_float)
    if refused.get(kind, lambda dtype: False)(dtype):
        with pytest.raises(PalladioError):
            check(memory.insert, [x, block], {**BLOCK, "kind": kind})
        return
    check(memory.insert, [x, block], {**BLOCK, "kind": kind})
    (found,) = check(memory.insert, [x, rows, ROWS], {**GATHER, "kind": kind})
    combine = memory.COMBINERS.get(kind, lambda old, new: new)
    expected = x.copy()
    for n, row in enumerate(ROWS[:3]):
        expected[row, 1:3] = combine(expected[row, 1:3], rows[n])
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_references_of_every_dtype_are_read_and_written(dtype: Any) -> None:
    rows, mask = array((4, 2), dtype, 3), np.arange(8).reshape(4, 2) % 3 == 0

    def ref() -> Any:
        return array((3, 4), dtype)

    check(memory.load, [ref(), ROWS], GATHER, refs=True)
    check(memory.store, [ref(), rows, ROWS], GATHER, refs=True)
    check(memory.swap, [ref(), rows, ROWS], GATHER, refs=True)
    check(masked.load_masked, [ref(), mask, rows, ROWS], GATHER, refs=True)
    check(masked.store_masked, [ref(), rows, mask, ROWS], GATHER, refs=True)
    check(masked.insert_masked, [ref(), rows, mask, ROWS], GATHER)
    check(atomics.atomic_cas, [ref(), rows, rows, ROWS], GATHER, refs=True)
    check(atomics.exchange_each, [ref(), rows, rows, ROWS], GATHER)
    if dtype != dtypes.BOOL:
        check(memory.accumulate, [ref(), rows, ROWS], GATHER, refs=True)
        check(atomics.atomic, [ref(), rows, ROWS], {**GATHER, "kind": "add"}, refs=True)
        check(atomics.combine_each, [ref(), rows, ROWS], {**GATHER, "kind": "max"})


WIDTHS = [
    (np.float32, np.int8),
    (np.int8, np.float32),
    (np.float64, np.uint16),
    (np.uint16, np.int64),
    (np.int32, np.float32),
]


@pytest.mark.parametrize(("old", "new"), WIDTHS)
def test_a_bitcast_of_another_width_is_read_and_written_back(old: Any, new: Any) -> None:
    extents = (8, 3) if np.dtype(old).itemsize < np.dtype(new).itemsize else (2, 3)
    x = np.arange(np.prod(extents)).reshape(extents).astype(old)
    transforms = (Transpose((1, 0)), Reshape((1, 3, extents[0])), Transpose((0, 2, 1)), Bitcast(np.dtype(new)))
    transforms = (*transforms, Index((0, SliceEntry(0, 1), SliceEntry(1, 2))))
    part = np.array(access.read(x, transforms, ()))
    wanted = transformed(ArrayType(extents, x.dtype), transforms)
    assert (part.shape, part.dtype) == (wanted.shape, wanted.dtype)
    whole = x.T.reshape(3, -1).copy().view(new)
    np.testing.assert_array_equal(part[0], whole[1:, 0])
    changed = x.copy()
    access.write(changed, transforms, (), np.zeros_like(part))
    whole[1:, 0] = 0
    np.testing.assert_array_equal(changed, whole.view(old).reshape(3, -1).T)


def test_a_bitcast_of_another_width_after_a_gather_is_written_back() -> None:
    x = np.arange(6, dtype=np.int32).reshape(3, 2)
    transforms = (
        Index((Operand(0), SliceEntry(0, 2))),
        Bitcast(np.dtype(np.int8)),
        Index((SliceEntry(0, 4), SliceEntry(1, 1))),
    )
    access.write(x, transforms, (np.array([1, 7], np.int32),), np.zeros((4, 1), np.int8))
    np.testing.assert_array_equal(x, [[0, 1], [2, 0], [4, 5]])
