"""Outputs of a kernel call that need no initial values.

Some are written whole, whatever the kernel reads. That is proved from the structure alone: the blocks of the grid's
points are those of the array, each grid axis moving along one axis of it, and the kernel's first access to a block
stores all of it. In others, each block belongs to one task, which can mark the parts that it has initialised. The
same structure shows which outputs are written once and never read.
"""

from __future__ import annotations

from palladio.ir.core import Atom, Eqn, Literal, Program, Var, walk
from palladio.lower.block_indices import determined_axes, digits
from palladio.ops.arrays.arithmetic import sub
from palladio.ops.arrays.compare import select
from palladio.ops.arrays.keep import tee
from palladio.ops.grid import Blocked, BlockMap, Grid, InitMarks, Squeezed
from palladio.ops.references.memory import store
from palladio.types.types import ArrayType


def written_whole(grid: Grid, kernel: Program) -> set[int]:
    """The outputs whose elements are all proved to be written before they are read."""
    refs = grid.split(kernel.inputs).outputs
    outputs = enumerate(zip(grid.outputs, grid.output_types, refs))
    return {n for n, (block, type, ref) in outputs if _tiles_all(grid, block, type) and _stored_first(kernel, ref)}


def marks_of(grid: Grid, kernel: Program, block: BlockMap, type: ArrayType) -> InitMarks | None:
    """The marks of an output: one for each block, or one for each row of a matrix block if the kernel has a select."""
    counts = block_counts(grid, block, type)
    if counts is None:
        return None
    axes = [axis for axis, dim in enumerate(block.dims) if not isinstance(dim, Squeezed)]
    if len(axes) != 2 or all(eqn.op is not select for eqn in walk(kernel)):
        return InitMarks(counts)
    return InitMarks(counts, axes[0], block.block_shape[0])


def block_counts(grid: Grid, block: BlockMap, type: ArrayType) -> tuple[int, ...] | None:
    """The number of blocks of an array along each axis; None if some are partial, or may be shared by two tasks.

    None for an array without elements too.
    """
    if not type.size or not all(isinstance(dim, (Blocked, Squeezed)) for dim in block.dims):
        return None
    sizes = [size for size, _, _, _ in block.steps]
    if any(extent % size for size, extent in zip(sizes, type.shape, strict=True)):
        return None
    mine = [var for var, spread in zip(block.index_map.inputs, grid.parallel) if spread]
    known = [block.index_map.inputs[axis] for axis in determined_axes(grid, block)]
    if not all(
        var in known or any(_reflects(block.index_map, atom, var) for atom in block.index_map.outputs) for var in mine
    ):
        return None
    return tuple(extent // size for size, extent in zip(sizes, type.shape, strict=True))


def _reflects(index_map: Program, atom: Atom, var: Var) -> bool:
    """True if an index is a number minus a variable."""
    reflected = [eqn for eqn in index_map.eqns if atom in eqn.outputs and eqn.op is sub]
    return any(isinstance(eqn.x, Literal) and eqn.y is var for eqn in reflected)


def written_once(grid: Grid, kernel: Program) -> set[int]:
    """The outputs that the kernel only stores to, each whole block in one store and no block twice."""
    refs = grid.split(kernel.inputs).outputs
    aliases = {target for _, target in grid.aliases}
    found = set()
    for n, (block, ref) in enumerate(zip(grid.outputs, refs)):
        touching = [eqn for eqn in kernel.eqns if any(atom is ref for atom in eqn.inputs)]
        apart = determined_axes(grid, block)
        moves = all(size == 1 or axis in apart for axis, size in enumerate(grid.sizes))
        if n not in aliases and moves and len(touching) == 1 and _stored_first(kernel, ref):
            found.add(n)
    return found


def _tiles_all(grid: Grid, block: BlockMap, type: ArrayType) -> bool:
    """True if the blocks of all grid points together are the whole array."""
    if any(size is None or size < 1 for size in grid.sizes):
        return False
    moves: set[int] = set()
    for dim, atom, extent in zip(block.dims, block.index_map.outputs, type.shape, strict=True):
        if not isinstance(dim, (Blocked, Squeezed)):
            return False
        size = dim.block_size if isinstance(dim, Blocked) else 1
        steps = _steps(grid, block.index_map, atom, moves)
        if steps * size < extent:
            return False
    return True


def _steps(grid: Grid, index_map: Program, atom: Atom, moves: set[int]) -> int:
    """The number of blocks that an index visits from 0 on, along its own axes; 0 if that is not known."""
    index = digits(grid, index_map, atom)
    if index is None or not moves.isdisjoint(index.factors):
        return 0
    moves.update(index.factors)
    return index.count


def _stored_first(kernel: Program, ref: Var) -> bool:
    """True if the first equation that touches a reference stores to all of it, in every run of the kernel."""
    for eqn in kernel.eqns:
        if any(atom is ref for atom in eqn.inputs):
            return stores_all(eqn, ref)
    return False


def stores_all(eqn: Eqn, ref: Atom) -> bool:
    """True if an equation stores to all of a reference, and does not read it."""
    if eqn.op is tee:
        return True
    return eqn.op is store and eqn.ref is ref and not eqn.transforms
