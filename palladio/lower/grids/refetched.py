"""Aliased inputs of a grid with blocks that are fetched after a step has stored to them, through the output.

By its definition a grid fetches the blocks of such an input from the output, in the order of its steps, and stores the
blocks of the output when it leaves them. Compilers read the input itself, which keeps its values; that is the same
where no block is fetched after a store.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from palladio.ir.core import Literal, Program
from palladio.ir.evaluate import evaluate
from palladio.ir.text import print_program
from palladio.lower.refused import Refused
from palladio.ops.grid import Blocked, BlockMap, Grid, Squeezed, extents
from palladio.ops.references.memory import load
from palladio.types.transforms import Index, Operand
from palladio.types.types import RefType

_MOST_STEPS = 4096
"""Grids of more steps are not enumerated."""


def require_fetched_first(grid: Grid, kernel: Program, target: str, by_data: bool = True) -> None:
    """Refuse a kernel that fetches blocks of an input after storing to them through the output that aliases it.

    The analysis is conservative where block indices depend on data or the grid has many steps.

    Args:
        target: the target of the compiler, for the message.
        by_data: whether two equal index maps that depend on data are taken to visit each block once. `comes_back` tells
            for the data of a call.

    Raises:
        Refused: if a block may be fetched after a store to it.
    """
    arrays = grid.split(kernel.inputs).arrays
    for source, given, made in _read_aliases(grid, kernel):
        if _depends_on_data(given) or _depends_on_data(made):
            first = by_data and _is_visited_alike(given, made) and not _writes_scalars(grid, kernel)
        else:
            first = _fetched_first(grid, given, made)
        if not first:
            raise _refused(arrays[source].hint or f"input {source}", target)


def _refused(name: str, target: str) -> Refused:
    return Refused(f"blocks of {name} that are fetched after stores to its alias are not compiled for {target}")


def require_left_once(grid: Grid, kernel: Program, values: Sequence[Any], target: str) -> None:
    """Refuse a call whose prefetched scalars name a block of an aliased input again after the grid has left it.

    Args:
        values: the operands of the call. Scalars that are not arrays of the host are not looked at.
        target: the target of the compiler, for the message.

    Raises:
        Refused: if the steps come back to a block.
    """
    first = grid.sizes.count(None)
    scalars = values[first:][: grid.scalars]
    if not scalars or not all(isinstance(each, (np.ndarray, np.generic)) for each in scalars):
        return
    for source, given, _ in _read_aliases(grid, kernel):
        if _depends_on_data(given) and comes_back(given.index_map, extents(grid.sizes, values[:first]), scalars):
            error = _refused(grid.split(kernel.inputs).arrays[source].hint or f"input {source}", target)
            error.hint = "prefetched scalars name each block in steps that follow each other"
            raise error


def maps_by_data(grid: Grid, kernel: Program) -> list[Program]:
    """The index maps of which `comes_back` is to be false in each call of a kernel that is not refused."""
    return [given.index_map for _, given, _ in _read_aliases(grid, kernel) if _depends_on_data(given)]


def comes_back(index_map: Program, sizes: Sequence[int], scalars: Sequence[Any]) -> bool:
    """True if the steps of a grid come back to a block that they have left, with these prefetched scalars."""
    ids = np.indices(sizes, np.int32).reshape(len(sizes), math.prod(sizes))
    found = _loaded(index_map, ids, scalars)
    if found is None:
        found = np.array([evaluate(index_map, [*point, *scalars]) for point in ids.T], np.int64)
    moved = np.append(True, (found[1:] != found[:-1]).any(axis=1))
    return len(np.unique(found[moved], axis=0)) < np.count_nonzero(moved)


def _loaded(index_map: Program, ids: Any, scalars: Sequence[Any]) -> Any:
    """The block indices of all steps, [steps, axes]; None for a map that does more than load elements of scalars."""
    known = dict(zip(index_map.inputs, [*ids, *scalars], strict=True))

    def value(atom: Any) -> Any:
        return atom.value if isinstance(atom, Literal) else known[atom]

    for eqn in index_map.eqns:
        if eqn.op is not load or len(eqn.transforms) != 1 or not isinstance(eqn.transforms[0], Index):
            return None
        array, *operands = map(value, eqn.inputs)
        entries = [operands[each.position] if isinstance(each, Operand) else each for each in eqn.transforms[0].entries]
        for place, extent in zip(entries, array.shape, strict=True):
            if not np.issubdtype(np.asarray(place).dtype, np.integer) or np.min(place) < 0 or np.max(place) >= extent:
                return None
        known[eqn.outputs[0]] = array[tuple(entries)]
    return np.stack([np.broadcast_to(value(atom), ids.shape[1]) for atom in index_map.outputs], 1)


def _read_aliases(grid: Grid, kernel: Program) -> Iterator[tuple[int, BlockMap, BlockMap]]:
    """The aliased inputs that the kernel reads, with their block maps and those of the outputs."""
    for source, output in grid.aliases:
        if source >= grid.scalars and grid.positions.operands[source] in kernel.read:
            yield source, grid.inputs[source - grid.scalars], grid.outputs[output]


def _is_visited_alike(given: BlockMap, made: BlockMap) -> bool:
    """True if each step has the same block of both, and blocks of different indices have no elements in common."""
    apart = all(isinstance(dim, (Blocked, Squeezed)) for dim in given.dims)
    return apart and (given.dims, given.stays) == (made.dims, made.stays) and _text(given) == _text(made)


def _writes_scalars(grid: Grid, kernel: Program) -> bool:
    return not kernel.written.isdisjoint(grid.positions.operands[: grid.scalars])


def _fetched_first(grid: Grid, given: BlockMap, made: BlockMap) -> bool:
    """True if every block of an input is fetched before any step has stored to its elements of the output."""
    if not (given.axes or given.stays):  # one block, fetched at the first step
        return True
    if None not in grid.sizes and np.prod(grid.sizes) <= _MOST_STEPS and given.contiguous and made.contiguous:
        return not _overlaps(grid, given, made)
    return given.dims == made.dims and given.as_given == made.as_given and _visits_once(grid, given)


def _depends_on_data(block: BlockMap) -> bool:
    return any(isinstance(type, RefType) for eqn in block.index_map.eqns for type in eqn.input_types)


def _text(block: BlockMap) -> str:
    return print_program(block.index_map).partition("(")[2]


def _visits_once(grid: Grid, block: BlockMap) -> bool:
    """True if the steps that visit one block follow each other: its index is given by the first axes of the grid."""
    if block.stays or block.as_given is None or not all(isinstance(dim, (Blocked, Squeezed)) for dim in block.dims):
        return False
    used = {axis for axis, _ in block.as_given if axis is not None}
    return all(axis in used for axis in range(max(used, default=-1)) if grid.sizes[axis] != 1)


def _overlaps(grid: Grid, given: BlockMap, made: BlockMap) -> bool:
    """True if a block that a step fetches has elements of blocks of the output that earlier steps have left."""
    fetched, stored = _boxes(grid, given), _boxes(grid, made)
    left = 0  # the steps before this one have left their blocks, which stores them
    for step in range(1, len(fetched)):
        if made.stays or (stored[step] != stored[step - 1]).any():
            left = step
        low, high = fetched[step]
        if (fetched[step] == fetched[step - 1]).all() and not given.stays:
            continue
        before = stored[:left]
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
