"""Reads and writes of buffers, and the barriers of an array: what is kept says the same as what is computed."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from palladio.base.errors import PalladioIndexError
from palladio.machine.run.buffers import Barrier, Buffer
from palladio.ops.references import access
from palladio.types.transforms import Index, Operand, Reshape, SliceEntry
from palladio.types.types import BARRIER, SMEM, RefType

ROW = Index((Operand(0), SliceEntry(Operand(1), 3)))
STACKS = {
    "a part": (ROW,),
    "a row": (Index((Operand(1), SliceEntry(0, 5))),),
    "an element": (Index((Operand(0), Operand(1))),),
    "all": (),
    "more than an index": (ROW, Reshape((3, 1))),
}


def buffer(rows: int) -> Buffer:
    array = np.arange(5.0 * rows, dtype=np.float32).reshape(rows, 5)
    return Buffer(RefType(array.shape, array.dtype, SMEM, ()), "buffer", None, array)


@pytest.mark.parametrize("name", STACKS)
def test_a_buffer_reads_and_writes_what_the_definition_does(name: str) -> None:
    stack, twice = STACKS[name], 2
    buffers = [buffer(4), buffer(4), buffer(2)]
    for _, each, *at in itertools.product(range(twice), buffers, range(-1, 5), range(-1, 5)):
        indices = [np.int32(index) for index in at]
        right = each.array.copy()
        found = each.read(stack, indices, np.float32(7))
        assert np.array_equal(found, access.read(right, stack, indices, np.float32(7)))
        value = np.array(found) + 100
        each.write(stack, indices, value)
        access.write(right, stack, indices, value)
        assert np.array_equal(each.array, right)


def test_an_array_of_indices_gathers() -> None:
    each, rows = buffer(4), np.array([3, 0, 9])
    for start in (0, 1, 0):
        indices = [rows, np.int32(start)]
        assert np.array_equal(each.read((ROW,), indices, 7), access.read(each.array, (ROW,), indices, 7))


def test_a_barrier_of_an_array_is_found_by_its_index() -> None:
    barriers = Barrier(RefType((3,), np.dtype(np.int32), BARRIER, ()), "full", None, 1)
    stack: Any = (Index((Operand(1),)),)
    for number in (0, 2, 1, 2, 0):
        assert barriers.slot(stack, [np.int32(9), np.int32(number)]) is barriers.slots[number]
        assert barriers.slot(stack, [np.arange(4), np.int32(number)]) is barriers.slots[number]
    for _ in range(2):
        with pytest.raises(PalladioIndexError, match="the index is outside the array of barriers"):
            barriers.slot(stack, [np.int32(9), np.int32(3)])
