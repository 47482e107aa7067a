"""Aliased inputs of a grid with blocks that are fetched after a step has stored to them, through the output.

By its definition a grid fetches the blocks of such an input from the output, in the order of its steps. Compilers read
the input itself, which keeps its values; that is the same where no block is fetched after a store.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from palladio.ir.core import Program
from palladio.ir.evaluate import evaluate
from palladio.ir.text import print_program
from palladio.lower.refused import Refused
from palladio.ops.grid import Blocked, BlockMap, Grid, Squeezed
from palladio.types.types import RefType

_MOST_STEPS = 4096
"""Grids of more steps are not enumerated."""


def require_fetched_first(grid: Grid, kernel: Program, target: str) -> None:
    """Refuse a kernel that fetches blocks of an input after storing to them through the output that aliases it.

    The analysis is conservative where block indices depend on data or the grid has many steps. Two equal index maps
    that depend on data count as visiting each block once.

    Args:
        target: the target of the compiler, for the message.

    Raises:
        Refused: if a block may be fetched after a store to it.
    """
    arrays = grid.split(kernel.inputs).arrays
    for source, output in grid.aliases:
        if source < grid.scalars or grid.positions.operands[source] not in kernel.read:
            continue
        if not _fetched_first(grid, grid.inputs[source - grid.scalars], grid.outputs[output]):
            name = arrays[source].hint or f"input {source}"
            raise Refused(f"blocks of {name} that are fetched after stores to its alias are not compiled for {target}")


def _fetched_first(grid: Grid, given: BlockMap, made: BlockMap) -> bool:
    """True if every block of an input is fetched before any step has stored to its elements of the output."""
    if _reads_data(given.index_map) or _reads_data(made.index_map):
        return (given.dims, given.stays) == (made.dims, made.stays) and _text(given) == _text(made)
    if not (given.axes or given.stays):  # one block, fetched at the first step
        return True
    if None not in grid.sizes and np.prod(grid.sizes) <= _MOST_STEPS and given.contiguous and made.contiguous:
        return not _overlaps(grid, given, made)
    return given.dims == made.dims and given.as_given == made.as_given and _visits_once(grid, given)


def _reads_data(index_map: Program) -> bool:
    return any(isinstance(type, RefType) for eqn in index_map.eqns for type in eqn.input_types)


def _text(block: BlockMap) -> str:
    return print_program(block.index_map).partition("(")[2]


def _visits_once(grid: Grid, block: BlockMap) -> bool:
    """True if the steps that visit one block follow each other: its index is given by the first axes of the grid."""
    if block.stays or block.as_given is None or not all(isinstance(dim, (Blocked, Squeezed)) for dim in block.dims):
        return False
    used = {axis for axis, _ in block.as_given if axis is not None}
    return all(axis in used for axis in range(max(used, default=-1)) if grid.sizes[axis] != 1)


def _overlaps(grid: Grid, given: BlockMap, made: BlockMap) -> bool:
    """True if a block that a step fetches has elements of the blocks of earlier steps of the output."""
    fetched, stored = _boxes(grid, given), _boxes(grid, made)
    for step in range(1, len(fetched)):
        low, high = fetched[step]
        if (fetched[step] == fetched[step - 1]).all() and not given.stays:
            continue
        before = stored[:step]
        if ((before[:, 0] < high) & (low < before[:, 1])).all(axis=1).any():
            return True
    return False


def _boxes(grid: Grid, block: BlockMap) -> npt.NDArray[np.int64]:
    """The first elements of the block of each step along the axes of the array, and the ones after the last."""
    return np.array(list(_box_of_steps(grid, block)), np.int64).reshape(-1, 2, len(block.dims))


def _box_of_steps(grid: Grid, block: BlockMap) -> Iterator[tuple[list[int], list[int]]]:
    refs = [None] * (len(block.index_map.inputs) - len(grid.sizes))  # no index is computed from them
    for point in itertools.product(*(range(size or 0) for size in grid.sizes)):
        indices = evaluate(block.index_map, [*map(np.int32, point), *refs])
        starts = [int(index) * step - before for index, (step, before, _, _) in zip(indices, block.steps, strict=True)]
        yield starts, [start + size for start, (_, _, size, _) in zip(starts, block.steps, strict=True)]
