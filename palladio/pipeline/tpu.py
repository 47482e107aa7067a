"""`emit_pipeline` of the TPU: one core copies by DMA, computes and stores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from palladio.array import convert
from palladio.base.calls import checked_call
from palladio.base.errors import PalladioTypeError, PalladioValueError, at_call
from palladio.ir.bind import bind
from palladio.ops.threads import copy as ops
from palladio.pipeline.buffered_refs import (
    PASSED,
    allocations_of,
    bind_slots,
    flat_allocations,
    inputs_among,
    specs_of,
)
from palladio.pipeline.operands import Arrays, PipelineOperand
from palladio.pipeline.params import GridDimensionSemantics, MemoryTiling
from palladio.pipeline.schedule import GridSteps, both, is_known
from palladio.pipeline.sequential import Sequential, called, do_if
from palladio.pipeline.specs import BlockSpec
from palladio.trace.control import run_scoped, when
from palladio.trace.functions import require_function
from palladio.trace.grid import GridAxes, axis_index, axis_size, enclosing_axes, grid_axes, num_programs, program_id
from palladio.trace.reference import Reference, reached
from palladio.types import dtypes
from palladio.types.scratch import SemaphoreType
from palladio.types.types import CMEM, SCALAR, VMEM, VMEM_SHARED

BUFFERS = (VMEM, SCALAR, CMEM, VMEM_SHARED)
SLOTS = 2
_PARALLEL = ("parallel", "core_parallel", "subcore_parallel")


class _Copies:
    """Transfers by DMA; a semaphore for each slot counts the bytes."""

    def __init__(self, arrays: Arrays, refs: Mapping[str, Any]) -> None:
        operands = (*arrays.inputs, *arrays.outputs)
        self.buffers = {id(each): ref[each.label] for each, ref in zip(operands, refs["buffers"], strict=True)}
        self.semaphores = {id(each): ref for each, ref in zip(operands, refs["semaphores"], strict=True)}

    def _start(self, operand: PipelineOperand, source: Reference, target: Reference, slot: Any) -> None:
        roots, stacks, operands = reached(source, target, self.semaphores[id(operand)].at[slot])
        bind(ops.dma_start, *roots, *operands, transforms=stacks, clip=True)

    def _wait(self, operand: PipelineOperand, slot: Any) -> None:
        (root,), (stack,), operands = reached(self.semaphores[id(operand)].at[slot])
        amount = int(np.prod(operand.block_shape)) * operand.ref.dtype.itemsize
        bind(ops.dma_wait, root, *operands, transforms=stack, amount=amount)

    def fetch(self, operand: PipelineOperand, step: Any, slot: Any) -> None:
        self._start(operand, operand.window(step), self.buffers[id(operand)].at[slot], slot)

    def arrive(self, group: Sequence[PipelineOperand], slot: Any) -> None:
        for operand in group:
            self._wait(operand, slot)

    def release(self, operands: Sequence[PipelineOperand], due: Any) -> None:
        """Nothing to signal: only the core reads its slots."""

    def reuse(self, slots: int, beginning: Sequence[tuple[PipelineOperand, Any, Any, Any]]) -> None:
        for operand, begins, slot, held in beginning:
            do_if(both(begins, held), self._wait, operand, slot)

    def store(self, leaving: Sequence[tuple[PipelineOperand, Any, Any]], step: Any) -> None:
        for operand, condition, slot in leaving:

            @when(condition)
            def _(operand: PipelineOperand = operand, slot: Any = slot) -> None:
                self._start(operand, self.buffers[id(operand)].at[slot], operand.window(step), slot)

    def finish(self, stored: Sequence[tuple[PipelineOperand, Any]]) -> None:
        for operand, blocks in stored:
            for slot in range(operand.slots):
                used = bool(blocks > slot) if is_known(blocks) else blocks > slot
                do_if(used, self._wait, operand, slot)


@checked_call
def emit_pipeline(
    body: Callable[..., None],
    *,
    grid: Any,
    in_specs: Any = (),
    out_specs: Any = (),
    core_axis: int | Sequence[int] | None = None,
    core_axis_name: str | Sequence[str] | None = None,
    dimension_semantics: Sequence[Any] | None = None,
    tiling: MemoryTiling | None = None,
    no_pipelining: bool = False,
    trace_scopes: bool = True,
    _explicit_indices: bool = False,
) -> Callable[..., None]:
    """A function of references that runs `body` on their blocks: copies run ahead, stores follow.

    For each point of the grid, the last axis fastest, the body gets a reference in `pltpu.VMEM` to a block of each
    input and each output. A block of an input is copied once for as long as its index stays the same. A block of an
    output stays where it is for as long as its index stays the same, so that the body can accumulate in it, and is
    stored when its index is about to change. Its initial contents are uninitialised. In the body, `program_id` and
    `num_programs` are those of this grid.

    Args:
        body: `body(*in_refs, *out_refs, *scratches)`, which returns nothing.
        grid: sizes, integers or traced scalars.
        in_specs, out_specs: a `BlockSpec` for each reference, or a pytree of them for a pytree of references. Two slots
            for each; `pipeline_mode=pl.Buffered(n)` gives n of them, with `use_lookahead` filled with the next blocks
            however many steps ahead they begin. With `memory_space=pl.ANY` or `pltpu.HBM` nothing is copied: the body
            gets the block where it is, the whole array if the spec has no block shape.
        core_axis, core_axis_name: axes of the enclosing grid, by number, or of the mesh, by name: each core along them
            runs a part of the grid, cut along an axis that `dimension_semantics` calls parallel.
        dimension_semantics: "parallel" or "arbitrary" for each axis of the grid.
        no_pipelining: one slot for each operand.
        tiling, trace_scopes: accepted; without effect.
        _explicit_indices: the body gets a `PipelineStep`, the point as a tuple of i32[], before the references.

    Returns:
        A function of the references. By keyword: `scratches`, references that the body gets after the others;
        `allocations`, a `BufferedRef` for each reference, or for each input, with slots that the pipeline uses instead
        of its own, and with specs in place of those that are not given.

    Raises:
        PalladioTypeError: not a function, a spec or a reference.
        PalladioValueError: grid sizes below 1, other structures of specs than of references, cores without a parallel
            axis.
    """
    with at_call():
        require_function(body, "what a pipeline runs", "body")
        whole = GridSteps(grid)
        semantics = _semantics(dimension_semantics, len(whole.sizes))

    def pipeline(*refs: Any, scratches: Sequence[Any] | None = None, allocations: Any = None) -> None:
        with at_call():
            steps = _part(whole, semantics, core_axis, core_axis_name)
            specs = in_specs, out_specs
            if allocations is not None:
                allocations = tuple(allocations)
                specs = _specs_with(specs, allocations, len(refs))
            arrays = _arrays(steps, *specs, refs, no_pipelining)
            if allocations is None:
                _run(body, steps, whole, arrays, tuple(scratches or ()), _explicit_indices)
                return

            def bound(outputs: Sequence[Any]) -> None:
                given = bind_slots(arrays, flat_allocations((*allocations, *outputs)))
                for operand in arrays.outputs:
                    # A block that is revisited must have been stored before it is fetched.
                    operand.slots = 1 if operand.fetched_first else operand.slots
                _run(body, steps, whole, arrays, tuple(scratches or ()), _explicit_indices, given)

            if len(allocations) == len(refs):
                bound(())
            else:
                run_scoped(bound, allocations_of(arrays)[len(allocations) :])

    return pipeline


def emit_pipeline_with_allocations(
    body: Callable[..., None], *, grid: Any, in_specs: Any = (), out_specs: Any = (), **options: Any
) -> tuple[Callable[..., None], Callable[..., tuple[Any, ...]]]:
    """A pipeline, and a function that describes the slots that it needs.

    Args:
        body, grid, in_specs, out_specs, options: as for `emit_pipeline`.

    Returns:
        The pipeline of `emit_pipeline`; and a function of the same references that returns a `BufferedRef` for each, to
        be allocated by `run_scoped`, or as scratch, and passed to the pipeline as `allocations=`. Several runs of the
        pipeline, one after another, may share them.
    """
    with at_call():
        pipeline = emit_pipeline(body, grid=grid, in_specs=in_specs, out_specs=out_specs, **options)

    def make_allocations(*refs: Any) -> tuple[Any, ...]:
        with at_call():
            return make_pipeline_allocations(*refs, in_specs=in_specs, out_specs=out_specs, grid=grid)

    return pipeline, make_allocations


def make_pipeline_allocations(*refs: Any, in_specs: Any = (), out_specs: Any = (), grid: Any = ()) -> tuple[Any, ...]:
    """The slots that an `emit_pipeline` of this grid and these specs needs for references: a `BufferedRef` for each."""
    with at_call():
        return allocations_of(_arrays(GridSteps(grid), in_specs, out_specs, refs, False))


def _arrays(steps: GridSteps, in_specs: Any, out_specs: Any, refs: Sequence[Any], no_pipelining: bool) -> Arrays:
    """The operands of a pipeline."""
    arrays = Arrays(steps, in_specs, out_specs, refs, 1 if no_pipelining else SLOTS, VMEM, PASSED)
    for operand in (*arrays.inputs, *arrays.outputs):
        if operand.space not in BUFFERS:
            raise PalladioValueError(
                "a pipeline of the TPU copies to the memory of a core",
                argument=operand.name,
                expected="pltpu.VMEM or pltpu.SMEM, or pl.ANY for an array that the body gets whole",
                got=f"memory space {operand.space}",
            )
        if no_pipelining:
            operand.slots = 1
    return arrays


def _specs_with(specs: tuple[Any, Any], allocations: Sequence[Any], refs: int) -> tuple[Any, Any]:
    """The specs of inputs and outputs, those that are not given being the ones of the slots."""
    given = sum(1 if isinstance(each, BlockSpec) else len(each) for each in specs)
    if given or len(allocations) != refs:
        return specs
    count = inputs_among(allocations)
    return specs_of(allocations[:count]), specs_of(allocations[count:])


class PipelineStep(tuple[Any, ...]):
    """The point of the grid that a body runs at, a tuple of i32[]; `index` is the same.

    Fields:
        local_index: the number of the step on this core, i32[].
    """

    local_index: Any

    def __new__(cls, point: Sequence[Any], local_index: Any) -> PipelineStep:
        made = super().__new__(cls, point)
        made.local_index = local_index
        return made

    @property
    def index(self) -> tuple[Any, ...]:  # type: ignore[override]
        """The point of the grid."""
        return tuple(self)


def _run(
    body: Callable[..., None],
    steps: GridSteps,
    whole: GridSteps,
    arrays: Arrays,
    scratches: tuple[Any, ...],
    explicit: bool,
    given: Mapping[str, Any] | None = None,
) -> None:
    """Run a pipeline in its own slots, or in given ones."""
    operands = (*arrays.inputs, *arrays.outputs)
    described = {
        "buffers": [{each.label: each.described} for each in operands],
        "semaphores": [SemaphoreType.DMA((each.slots,)) for each in operands],
    }

    def scoped(refs: Any) -> None:
        copies = _Copies(arrays, refs)

        def invoke(step: Any, slots: Sequence[tuple[PipelineOperand, Any]], carried: Sequence[Any]) -> Sequence[Any]:
            blocks = [copies.buffers[id(each)].at[slot] for each, slot in slots]
            indices = steps.indices(step)
            args = [*arrays.arguments(blocks, step), *scratches]
            outer = enclosing_axes()
            inner = GridAxes(
                (*indices, *outer.ids), (*whole.sizes, *outer.sizes), (*[None] * len(indices), *outer.names)
            )
            given = [PipelineStep(indices, step), *args] if explicit else args
            with grid_axes(inner):
                return called(body, given, None, (), "emit_pipeline")

        Sequential(steps, arrays, copies, [[each] for each in arrays.inputs], invoke).run([])

    if given is not None:
        scoped(given)
    else:
        run_scoped(scoped, described)


# Distribution of the grid over cores.


def _semantics(given: Sequence[Any] | None, rank: int) -> list[str]:
    if given is None:
        return ["arbitrary"] * rank
    if len(given) != rank:
        raise PalladioValueError(
            "one entry for each axis of the grid", argument="dimension_semantics", expected=rank, got=len(given)
        )
    found = [each.value if isinstance(each, GridDimensionSemantics) else each for each in given]
    for each in found:
        if each not in (*_PARALLEL, "arbitrary"):
            raise PalladioValueError("an axis is parallel or arbitrary", argument="dimension_semantics", got=repr(each))
    return found


def _cores(core_axis: Any, core_axis_name: Any) -> tuple[Any, Any] | None:
    """The number of this core among those that share the grid, and their number."""
    if core_axis is not None and core_axis_name is not None:
        raise PalladioValueError("cores are named by core_axis or by core_axis_name", argument="core_axis")
    given = core_axis if core_axis_name is None else core_axis_name
    if given is None:
        return None
    index: Any = 0
    count: Any = 1
    named = core_axis is None
    for axis in given if isinstance(given, (tuple, list)) else (given,):
        if not isinstance(axis, str if named else int):
            raise PalladioTypeError(
                "core_axis is the number of a grid's axis, core_axis_name the name of a mesh's",
                argument="core_axis_name" if named else "core_axis",
                got=repr(axis),
            )
        size, here = _along(axis)
        index = index * size + here
        count = count * size
    return index, count


def _along(axis: str | int) -> tuple[Any, Any]:
    """The size of an axis, and the index of this core along it."""
    if isinstance(axis, str):
        return axis_size(axis), axis_index(axis)
    return num_programs(axis), program_id(axis)


def _part(whole: GridSteps, semantics: Sequence[str], core_axis: Any, core_axis_name: Any) -> GridSteps:
    """The steps of this core."""
    cores = _cores(core_axis, core_axis_name)
    if cores is None or (is_known(cores[1]) and cores[1] == 1):
        return whole
    index, count = cores
    parallel = [axis for axis, each in enumerate(semantics) if each in _PARALLEL]
    if not parallel:
        raise PalladioValueError(
            "cores share a grid along an axis that is parallel",
            argument="dimension_semantics",
            expected='"parallel" for one axis at least',
            got=", ".join(semantics),
        )
    even = [
        axis for axis in parallel if is_known(whole.sizes[axis]) and is_known(count) and whole.sizes[axis] % count == 0
    ]
    axis = even[0] if even else max(parallel, key=lambda each: _known_size(whole.sizes[each]))
    size = whole.sizes[axis]
    if even:
        own, first = size // count, index * (size // count)
    else:
        share, rest = size // count, size % count
        own = share + convert.cast(index < rest, dtypes.INT32)
        first = index * share + np.minimum(index, rest)
    sizes = (*whole.sizes[:axis], own, *whole.sizes[axis + 1 :])
    return GridSteps(sizes, {axis: first})


def _known_size(size: Any) -> int:
    return size if is_known(size) else 0
