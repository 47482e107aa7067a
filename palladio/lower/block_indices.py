"""Block indices as sums of multiples of grid indices, which may determine these, as a number determines its digits."""

from __future__ import annotations

from typing import NamedTuple

from palladio.ir.core import Atom, Literal, Program
from palladio.ops.arrays.arithmetic import add, mul
from palladio.ops.grid import Blocked, BlockMap, Grid, Squeezed
from palladio.types.types import ArrayType

OFFSET = -1
"""The key of the constant of a sum, in place of an axis."""

LARGEST = 2**31
"""The bound from which on indices would have wrapped around."""

Terms = dict[int, int]


class Digits(NamedTuple):
    """A block index that determines some grid indices.

    Fields:
        factors: by grid axis, in ascending order: each is larger than the greatest sum of the axes before it.
        count: the number of blocks that the index visits, each once, from 0 on; 0 if it skips some.
    """

    factors: dict[int, int]
    count: int


def digits(grid: Grid, index_map: Program, atom: Atom) -> Digits | None:
    """A block index as digits; None if it is anything else."""
    terms = _terms(index_map, atom)
    if terms is None:
        return None
    start, factors = terms.pop(OFFSET, 0), dict(sorted(terms.items(), key=lambda term: term[1]))
    reach, dense = 0, start == 0
    for axis, factor in factors.items():
        size = grid.sizes[axis]
        if not reach < factor < LARGEST:
            return None
        dense = dense and factor == reach + 1 and size is not None
        reach = LARGEST if size is None else reach + factor * (size - 1)
    return Digits(factors, reach + 1 if dense else 0)


def determined_axes(grid: Grid, block: BlockMap) -> set[int]:
    """The grid axes whose index is determined by the block of a step."""
    if not block.contiguous:  # an axis may have two indices
        return set()
    found: set[int] = set()
    for dim, atom in zip(block.dims, block.index_map.outputs, strict=True):
        index = digits(grid, block.index_map, atom) if isinstance(dim, (Blocked, Squeezed)) else None
        found.update(index.factors if index is not None else ())
    return found


def _terms(index_map: Program, atom: Atom) -> Terms | None:
    """The factor of each grid index in a sum, and its constant; None if it is not such a sum."""
    if isinstance(atom, Literal):
        return {OFFSET: int(atom.value)}
    if atom in index_map.inputs:
        return {index_map.inputs.index(atom): 1} if isinstance(atom.type, ArrayType) else None
    eqn = next((eqn for eqn in index_map.eqns if atom in eqn.outputs), None)
    if eqn is None or eqn.op not in (add, mul):
        return None
    x, y = (_terms(index_map, each) for each in eqn.inputs)
    if x is None or y is None:
        return None
    if eqn.op is add:
        return {axis: x.get(axis, 0) + y.get(axis, 0) for axis in {*x, *y}}
    constant, others = (x, y) if x.keys() <= {OFFSET} else (y, x)
    if not constant.keys() <= {OFFSET}:
        return None
    factor = constant.get(OFFSET, 0)
    return {axis: factor * each for axis, each in others.items() if factor * each}
