"""Kernel calls inside a kernel: loops around the inner kernel, on private arrays of the thread."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from palladio.cpu.access.block_views import first_step, window_of
from palladio.cpu.access.gather import copied
from palladio.cpu.access.views import as_index
from palladio.cpu.analysis.work import work_estimate
from palladio.cpu.emit.emitter import Int, V, i64
from palladio.cpu.emit.lazy_array import Allocation, LazyArray, array_in, fill, number_array, write
from palladio.cpu.emit.scope import RefBinding, Rule, Scope
from palladio.cpu.launches.control_flow import own_site
from palladio.cpu.launches.coroutines import ThreadFunction
from palladio.cpu.rules import control
from palladio.ir.core import Program
from palladio.lower.grids.refetched import require_fetched_first
from palladio.ops.grid import Grid
from palladio.types import dtypes
from palladio.types.types import RefType


def _grid_call(scope: Scope, *operands: LazyArray, grid: Grid, kernel: Program) -> Sequence[LazyArray]:
    require_fetched_first(grid, kernel, "the CPU", by_data=False)
    e, function = scope.e, scope.function
    given = iter(operands[: grid.dynamic])
    sizes: list[Int] = [_size(scope, next(given)) if size is None else size for size in grid.sizes]
    buffers = [copied(scope, array) for array in operands[grid.dynamic :]]
    sources = {output: source for source, output in grid.aliases}
    for number, (type, start) in enumerate(zip(grid.output_types, grid.scheduled.starts, strict=True)):
        target = scope.arena.buffer(e, type.shape, type.dtype)
        if start.kind == "alias":
            write(e, array_in(e, buffers[sources[number]]), target)
        elif start.kind != "stored":  # without marks, outputs that may stay unwritten are filled in advance
            fill(e, target, dtypes.uninitialized(type.dtype))
        buffers.append(target)
    places = [RefBinding(Allocation("inner array"), buffer) for buffer in buffers]
    scalars, arrays = places[: grid.scalars], places[grid.scalars :]
    scratch = [_scratch(scope, ref) for ref in grid.scratch]
    extra = [number_array(e, size) for size, known in zip(sizes, grid.sizes, strict=True) if known is None]
    outer, function.innermost = function.innermost, (0, 1)
    with ExitStack() as stack:
        stack.enter_context(function.repeated())
        ids = [stack.enter_context(e.loop(0, size)) for size in sizes]
        numbers = [number_array(e, index) for index in ids]
        first = first_step(e, grid, sizes, ids, range(len(ids)))
        function.poll(work_estimate(kernel))
        seen = []
        blocks = zip((*grid.inputs, *grid.outputs), grid.scheduled.blocks, arrays, strict=True)
        for block, view, place in blocks:
            indices = function.run(block.index_map, [*numbers, *scalars])
            seen.append(window_of(scope, block, view, place.buffer, indices, first=first))
        refs = [RefBinding(place.memory, window.buffer) for place, window in zip(arrays, seen, strict=True)]
        function.run(kernel, [*numbers, *extra, *scalars, *refs, *scratch])
        for view, window in zip(grid.scheduled.blocks, seen, strict=True):
            if view.write_back:
                window.write_back()
    function.innermost = outer
    outputs = [array_in(e, place.buffer) for place in arrays[len(grid.inputs) :]]
    return [array if array.shape else scope.keep(array) for array in outputs]


def _size(scope: Scope, array: LazyArray) -> V:
    """A size that is known only now; the evaluator reports one below 1."""
    size = as_index(scope, array)
    scope.function.require(scope.e.compare("icmp sge", size, i64(1)))
    return size


def _scratch(scope: Scope, ref: RefType) -> RefBinding:
    if isinstance(scope.function, ThreadFunction):
        return own_site(scope.function, ref)
    return control.allocated(scope, ref)


RULES: dict[str, Rule] = {"grid_call": _grid_call}
