"""Lowering of a grid of blocks, from `pallas_call`, to the text of a kernel.

Each task of the grid's schedule is a block of one warpgroup; its steps are loops inside the block, in
order. Blocks of arrays are windows of global memory, without a copy: a revisited output accumulates in place.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack

from palladio.hopper.emit import exchange
from palladio.hopper.emit.exchange import through_shared
from palladio.hopper.emit.lower import arrays_of, digit
from palladio.hopper.emit.names import kernel_name
from palladio.hopper.emit.plan import WARPGROUP_THREADS, Plan
from palladio.hopper.emit.scalars import Scalar
from palladio.hopper.emit.scope import Kernel, Scope
from palladio.hopper.emit.text import MeshCode, kernel_text
from palladio.hopper.emit.uses import uses
from palladio.hopper.emit.values import Global, Sites
from palladio.hopper.emit.views import Along, Part, Start, start_of_scalar
from palladio.hopper.layouts.infer import Layouts
from palladio.hopper.layouts.integers import Index
from palladio.hopper.lowered import Lowered
from palladio.hopper.rules import REFUSED, RULES
from palladio.hopper.rules.memory import layout_for
from palladio.ir.core import Literal, Program, Var
from palladio.lower.ranges import grid_ranges
from palladio.lower.roles import Role
from palladio.ops.grid import Blocked, BlockMap, BoundedSlice, Element, Grid, Indirect, Squeezed
from palladio.ops.kernel_inputs import KernelInputs
from palladio.ops.threads.launch import MeshAxis, MeshShape
from palladio.types import dtypes
from palladio.types.types import Type


def lower_grid(grid: Grid, kernel: Program, operands: Sequence[Type]) -> Lowered:
    """The kernel of a grid.

    Args:
        kernel: the program of a grid point, after the passes.
        operands: the types of the call's operands.

    Raises:
        Refused: the grid uses a feature that is not compiled for Hopper.
    """
    tasks = tuple(MeshAxis("", grid.sizes[axis], "grid") for axis in grid.scheduled.tasks)
    mesh = MeshShape("", tasks)
    maps = [block.index_map for block in (*grid.inputs, *grid.outputs)]
    counts = [axis.size for axis in tasks if axis.size is not None]
    blocks = math.prod(counts) if len(counts) == len(tasks) else None
    made = Kernel(mesh, Plan(1, {}), uses([kernel, *maps]), blocks)
    arrays = operands[grid.dynamic :]
    made.arrays = [*arrays_of("operand", arrays, grid.dynamic), *arrays_of("output", grid.output_types)]
    unknown = [axis for axis, size in enumerate(grid.sizes) if size is None]
    sizes = {axis: made.size(operand) for operand, axis in enumerate(unknown)}
    role = Role((0,), kernel)
    inputs = grid.split(kernel.inputs)
    made.name_arrays(inputs.arrays)
    ranges = grid_ranges(grid, kernel.inputs)
    scope = Scope(made, role, Layouts(kernel, others=maps), RULES, through_shared, one_warp=False, ranges=ranges)
    scope.refused = REFUSED
    with ExitStack() as loops:
        known = [Scalar(name, dtypes.INT32) for name in sizes.values()]
        scope.env.update(zip(inputs.indices, _indices(grid, sizes, scope, loops), strict=True))
        scope.env.update(zip(inputs.sizes, known, strict=True))
        _blocks(grid, inputs, made, scope)
        scope.env.update((var, scope.place_of_each(var)) for var in inputs.scratch)
        scope.run(kernel)
    scope.w.flush()
    made.plan.check()
    name = kernel_name(kernel.name)
    return Lowered(
        name=name,
        text=kernel_text(name, [MeshCode(made, [role], [scope])], 1),
        products=tuple(sorted(made.products)),
        parameters=made.parameters(),
        arrays=tuple(made.arrays),
        grid=math.prod(axis.size for axis in mesh.axes if axis.size is not None),
        cluster=1,
        threads=WARPGROUP_THREADS,
        shared_bytes=made.plan.bytes,
        aliases=_pairs(grid, kernel, read=False),
        copied=_pairs(grid, kernel, read=True),
        dynamic=tuple(operand for operand, axis in enumerate(unknown) if axis in grid.scheduled.tasks),
        sizes=grid.sizes,
    )


def _pairs(grid: Grid, kernel: Program, read: bool) -> tuple[tuple[int, int], ...]:
    """The aliases of operands that are read, which keep their values in memory of their own, or of the others."""
    unread = set(range(grid.scalars, grid.scalars + len(grid.inputs)))
    unread -= {n for n in unread if grid.positions.operands[n] in kernel.read | kernel.written}
    return tuple((grid.dynamic + source, target) for source, target in grid.aliases if (source not in unread) == read)


def _indices(grid: Grid, sizes: Mapping[int, str], scope: Scope, loops: ExitStack) -> Iterator[Scalar]:
    """The indices along the axes of the grid: digits of the block's number for tasks, loop variables for steps.

    Args:
        sizes: the parameters with the sizes of axes that are known only at the call.
    """
    found = {}
    tasks, steps = grid.scheduled.tasks, grid.scheduled.steps
    extents = {axis: sizes.get(axis, size or 0) for axis, size in enumerate(grid.sizes)}
    for n, axis in enumerate(tasks):
        if extents[axis] == 1:
            found[axis] = Scalar.index(0)
            continue
        name = scope.w.fresh(f"i{axis}")
        first = all(extents[each] == 1 for each in tasks[:n])
        number = digit("pal::block_index()", [extents[each] for each in tasks[n + 1 :]], extents[axis], first)
        scope.prologue.append((name, f"const int {name} = {number};"))
        found[axis] = Scalar(name, dtypes.INT32)
    for axis in steps:
        if extents[axis] == 1:
            found[axis] = Scalar.index(0)
        else:
            name = scope.w.fresh(f"i{axis}")
            scope.sites = Sites(set(scope.accessed_roots), set(scope.stored_roots))
            scope.w.line("PAL_ROLLED")
            loops.enter_context(scope.w.block(f"for (int {name} = 0; {name} < {extents[axis]}; ++{name})"))
            loops.enter_context(scope.loop())
            found[axis] = Scalar(name, dtypes.INT32)
    return (found[axis] for axis in range(len(grid.sizes)))


def _blocks(grid: Grid, inputs: KernelInputs[Var], made: Kernel, scope: Scope) -> None:
    """Bind the references to scalars and blocks."""
    variables = inputs.arrays
    indices = [scope.env[var] for var in inputs.indices]
    scalars = variables[: grid.scalars]
    for number, var in enumerate(scalars):
        scope.env[var] = made.array(var, number)
    maps = (*grid.inputs, *grid.outputs)
    for number, (var, block) in enumerate(zip(variables[grid.scalars :], maps, strict=True), grid.scalars):
        use = made.use(var)
        array = made.arrays[number]
        window, sizes = _window(block, array.shape, scope, [*indices, *(scope.env[each] for each in scalars)])
        scope.env[var] = Global(number, made.named[number], _whole(block, array), not use.written, var, window, sizes)


def _whole(block: BlockMap, array):  # type: ignore[no-untyped-def]
    """The type of a reference to the whole array of a block."""
    return type(block.ref)(array.shape, array.dtype, block.ref.space, block.ref.attributes)


def _window(
    block: BlockMap, shape: tuple[int, ...], scope: Scope, given: Sequence[object]
) -> tuple[Part, tuple[tuple[int, Index], ...]]:
    """The block of an array at the current grid point, and the sizes of its bounded slices."""
    program = block.index_map
    scope.env.update(zip(program.inputs, given, strict=True))  # type: ignore[arg-type]
    scope.run(program)
    atoms = iter(program.outputs)
    starts, along, sizes, listed = [], [], [], []
    for axis, dim in enumerate(block.dims):
        atom = next(atoms)
        at = Start.of(0) if isinstance(dim, Indirect) else start_of_scalar(scope.scalar(atom))
        match dim:
            case Blocked(size):
                at = at.times(size)
            case Element(_, (before, _)) if before:
                at = Start(f"({at.at} - {before})", 1)
            case BoundedSlice():
                sizes.append((len(along), _count(start_of_scalar(scope.scalar(next(atoms))).at)))
            case Indirect():
                listed.append((axis, _listed(scope, atom)))
        starts.append(at)
        if not isinstance(dim, Squeezed):
            along.append(Along(axis, 1, dim.block_size))
    return Part(shape, tuple(starts), tuple(along), listed=tuple(listed)), tuple(sizes)


def _count(number: Index) -> Index:
    """A number of elements, clamped at 0."""
    return max(number, 0) if isinstance(number, int) else f"({number} > 0 ? {number} : 0)"


def _listed(scope: Scope, atom: Var | Literal) -> str:
    """Write an array of positions to shared memory, for all threads to read; returns its address."""
    layout = layout_for(scope, atom)
    base = f"smem + {scope.kernel.plan.take(atom.type.size * atom.type.dtype.itemsize, exchange.ALIGNMENT)}"
    scope.sync()  # reads of the previous step's positions are complete
    exchange.write(scope, scope.array(atom, layout), layout, base)
    scope.sync()
    return base
