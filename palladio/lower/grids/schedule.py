"""Grids as loop nests: parallel and sequential axes, block views, initialisation of outputs, write-back."""

from __future__ import annotations

from dataclasses import replace

from palladio.ir.core import Eqn, Program
from palladio.ir.rewrite import map_subprograms, with_body, with_parts
from palladio.lower.bounds import axes_inside, blocks_of
from palladio.lower.forms import SCHEDULED
from palladio.lower.grids.parallelize import parallel_axes
from palladio.lower.initialization import marks_of, written_once, written_whole
from palladio.ops.grid import BlockView, Grid, OutputStart, Schedule, grid_call
from palladio.passes.pipeline import ANY, Pass


def schedule_of(eqn: Eqn) -> Schedule:
    """The schedule of a `grid_call`."""
    grid, kernel = eqn.grid, eqn.kernel
    parallel = parallel_axes(grid, kernel)
    axes = range(len(grid.sizes))
    return Schedule(
        tuple(axis for axis in axes if parallel[axis]),
        tuple(axis for axis in axes if not parallel[axis]),
        _blocks(eqn, grid, kernel),
        _starts(replace(grid, parallel=parallel), kernel),
    )


def _blocks(eqn: Eqn, grid: Grid, kernel: Program) -> tuple[BlockView, ...]:
    positions = grid.positions.arrays[grid.scalars :]
    found = []
    for number, (block, array) in zip(positions, blocks_of(eqn, grid), strict=True):
        boxed = "view" if all(axes_inside(grid, block, array)) else "guarded"
        found.append(BlockView(boxed if block.contiguous else "copy", number in kernel.written))
    return tuple(found)


def _starts(grid: Grid, kernel: Program) -> tuple[OutputStart, ...]:
    """The starts of outputs; in `grid`, the axes scheduled as parallel are declared parallel."""
    aliases = {target for _, target in grid.aliases}
    whole, once = written_whole(grid, kernel), written_once(grid, kernel)
    found = []
    for number, (block, type) in enumerate(zip(grid.outputs, grid.output_types, strict=True)):
        if number in aliases or number in whole:
            found.append(OutputStart("alias" if number in aliases else "stored", number in once))
            continue
        marks = marks_of(grid, kernel, block, type)
        found.append(OutputStart("fill" if marks is None else "marks", number in once, marks))
    return tuple(found)


def scheduled(eqn: Eqn) -> Eqn:
    """An equation with the grids in it scheduled."""
    params = map_subprograms(eqn.params, schedule_in)
    if eqn.op is grid_call and eqn.grid.schedule is None:
        params = {**params, "grid": replace(eqn.grid, schedule=schedule_of(eqn))}
    return with_parts(eqn, eqn.inputs, params)


def schedule_in(program: Program) -> Program:
    """The program with a schedule for each grid."""
    return with_body(program, map(scheduled, program.eqns), program.outputs)


schedule = Pass(
    name="schedule",
    consumes=ANY,
    produces=SCHEDULED,
    run=schedule_in,
    doc="Gives each grid its schedule: parallel and sequential loops, views of blocks, starts of outputs, write-back. "
    "Wants `prove_inside` before it; passes that rewrite the kernel or the block maps drop what it says.",
)
