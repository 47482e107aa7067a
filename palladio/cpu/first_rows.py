"""Calls of a compiled kernel on fewer rows, if its tasks go through the rows block by block.

A function that is staged for many rows and called with fewer gives the first rows of its result for arrays padded with
zeros. A kernel that reads and writes the i-th block of rows only in the tasks of index i needs no padded copies: it
runs fewer tasks, on the arrays as they are. Only the rows of an incomplete last block are copied. Inputs are not copied
either if each of their blocks is checked to be inside before it is read.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from palladio.array.copies import row_major
from palladio.base.dataclass import dataclass
from palladio.cpu.engine import GridCall, fill_unmarked, run
from palladio.cpu.lower import axes_of, rows_are_checked
from palladio.cpu.runtime.memory import address_of, output
from palladio.ops.grid import Blocked, BlockMap, Grid, InitMarks, Squeezed
from palladio.types.types import ArrayType

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class FirstRows:
    """A compiled kernel as a function of fewer rows.

    Fields:
        size: the rows of a block.
        tasks: the tasks of each block of rows.
        types: of the arrays in its table of addresses, outputs last.
        moving: for each of them, whether it is divided into blocks of rows. All outputs are.
        checked: the inputs whose blocks are checked to be inside; they may have any number of rows up to their type's.
    """

    call: GridCall
    size: int
    tasks: int
    types: Sequence[ArrayType]
    moving: Sequence[bool]
    checked: frozenset[int]

    def __call__(self, values: Sequence[Any], rows: int, out: Sequence[Any] | None = None) -> Sequence[Any] | None:
        """The first rows of the results; None for arrays of other types, for fewer rows than a block has, and for more
        than it was compiled for.

        Args:
            rows: of the results.
            out: arrays for the results.
        """
        if not self.size <= rows <= self.types[-1].shape[0]:
            return None
        types = [self.fewer(n, rows) for n in range(len(self.types))]
        for number in self.checked:
            if values[number].ndim and len(values[number]) <= types[number].shape[0]:
                types[number] = ArrayType((len(values[number]), *types[number].shape[1:]), types[number].dtype)
        if any((value.shape, value.dtype) != (type.shape, type.dtype) for value, type in zip(values, types)):
            return None
        if out is not None and not all(array.flags.aligned for array in out):
            return None
        inputs = [row_major(value) for value in values]
        results = [output(type) for type in types[len(inputs) :]] if out is None else out
        arrays = [*inputs, *results]
        sizes, _ = self.call.extents((), [type.shape[0] if type.shape else 1 for type in types])
        blocks, rest = divmod(rows, self.size)
        if blocks:
            marks = np.zeros(self.call.marked, np.int8)
            table = self.call.table(*map(address_of, [*arrays, marks]))
            run(self.call.compiled, table, sizes, blocks * self.tasks, [*arrays, marks])
            self.fill_unmarked(marks, [result[: rows - rest] for result in results], 0, blocks)
        if rest:
            self.run_rest(arrays, results, rows - rest, sizes)
        return results

    def fewer(self, number: int, rows: int) -> ArrayType:
        """The type of an array in a call for `rows` rows: fewer than its own, if it is divided into blocks of rows."""
        type = self.types[number]
        return ArrayType((rows, *type.shape[1:]), type.dtype) if self.moving[number] else type

    def run_rest(self, arrays: Sequence[Array], results: Sequence[Array], first: int, sizes: Any) -> None:
        """Run the tasks of the incomplete last block, on a zero-padded copy of the rows from `first` on."""
        copies = list(arrays)
        addresses = []
        for number, array in enumerate(arrays):
            before = 0
            if self.moving[number]:
                copies[number] = whole = np.zeros((self.size, *array.shape[1:]), array.dtype)
                if number < len(arrays) - len(results):
                    whole[: len(array) - first] = array[first:]
                before = first * array.strides[0]
            addresses.append(address_of(copies[number]) - before)
        marks, block = np.zeros(self.call.marked, np.int8), first // self.size
        table = self.call.table(*addresses, address_of(marks))
        run(self.call.compiled, table, sizes, self.tasks, [*copies, marks], block * self.tasks)
        self.fill_unmarked(marks, copies[-len(results) :], block, 1)
        for result, copy in zip(results, copies[-len(results) :], strict=True):
            result[first:] = copy[: len(result) - first]

    def fill_unmarked(self, marks: Array, results: Sequence[Array], first: int, blocks: int) -> None:
        """Fill the parts of some blocks of rows that no task has initialised with uninitialised values.

        Args:
            results: the rows of these blocks.
        """
        noted: dict[int, InitMarks] = {}
        parts, offset = [], 0
        for target, each in self.call.compiled.noted.items():
            size = each.size // each.counts[0]
            parts.append(marks[offset + first * size : offset + (first + blocks) * size])
            noted[target] = replace(each, counts=(blocks, *each.counts[1:]))
            offset += each.size
        if not all(part.all() for part in parts):
            fill_unmarked(noted, np.concatenate(parts), results)


def first_rows(call: GridCall, types: Sequence[ArrayType]) -> FirstRows | None:
    """A compiled kernel as a function of fewer rows; None if its tasks do not go through rows block by block.

    Args:
        types: of its operands.
    """
    grid, compiled = call.grid, call.compiled
    if grid.dynamic or not call.plain or call.unset or not compiled.order or not grid.outputs:
        return None
    every, slowest = [*types, *grid.output_types], compiled.order[-1]
    moving, checked, sizes = [False] * len(every), set(), set()
    for number, (block, view) in enumerate(zip((*grid.inputs, *grid.outputs), grid.scheduled.blocks), grid.scalars):
        is_input = number < len(types)
        if is_input and rows_are_checked(block, view):
            checked.add(number)
        elif slowest in axes_of(block):
            moving[number] = True
            sizes.add(_rows(grid, slowest, block, every[number]) if view.access == "view" else None)
        elif not is_input:
            return None
    size = sizes.pop()
    if size is None or sizes:
        return None
    tasks = math.prod(grid.sizes[axis] or 1 for axis in compiled.order[:-1])
    return FirstRows(call, size, tasks, every, moving, frozenset(checked))


def _rows(grid: Grid, axis: int, block: BlockMap, type: ArrayType) -> int | None:
    """The rows of a block, if index i of a grid axis selects the i-th block of rows; else None."""
    first, *others = block.index_map.outputs
    index = block.index_map.inputs[axis]
    used = {atom for eqn in block.index_map.eqns for atom in eqn.inputs}
    dim = block.dims[0]
    size = dim.block_size if isinstance(dim, Blocked) else 1 if isinstance(dim, Squeezed) else 0
    whole = size > 0 and block.contiguous and size * (grid.sizes[axis] or 0) == type.shape[0]
    return size if first is index and index not in {*others, *used} and whole else None
