"""`emit_pipeline` of the GPU: one thread copies by TMA, computes and stores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from palladio.base.calls import checked_call
from palladio.base.errors import PalladioValueError, at_call
from palladio.pipeline.operands import Arrays, Carry, PipelineOperand
from palladio.pipeline.schedule import GridSteps, both, either
from palladio.pipeline.sequential import Sequential, called, do_if, together
from palladio.pipeline.specs import check_delay
from palladio.trace.control import in_scope, when
from palladio.trace.functions import require_function
from palladio.trace.gpu.barriers import barrier_arrive_and_wait, barrier_wait
from palladio.trace.gpu.copies import (
    commit_smem,
    commit_smem_to_gmem_group,
    copy_gmem_to_smem,
    copy_smem_to_gmem,
    wait_smem_to_gmem,
)
from palladio.trace.gpu.tensor_core import wgmma_wait
from palladio.trace.reference import Reference
from palladio.types.scratch import Barrier, ClusterBarrier
from palladio.types.types import ANY, GMEM, SMEM

PASSED = (GMEM, ANY)


def check_slots(slots: Any) -> None:
    """Refuse an invalid number of slots."""
    if not isinstance(slots, int) or isinstance(slots, bool) or slots < 1:
        raise PalladioValueError("at least one step is in flight", argument="max_concurrent_steps", got=repr(slots))


def prepared(
    steps: GridSteps, in_specs: Any, out_specs: Any, refs: Sequence[Any], slots: int, delay: int | None
) -> Arrays:
    """The operands of a GPU's pipeline, checked."""
    arrays = Arrays(steps, in_specs, out_specs, refs, slots, SMEM, PASSED)
    for operand in (*arrays.inputs, *arrays.outputs):
        if operand.space is not SMEM:
            raise PalladioValueError(
                "a pipeline of the GPU copies to shared memory",
                argument=operand.name,
                expected="plgpu.SMEM, or plgpu.GMEM for an array that the body gets whole",
                got=f"memory space {operand.space}",
            )
    for operand in arrays.inputs:
        if operand.delay is None:
            operand.delay = delay or 0
        if operand.delay >= operand.declared:
            raise PalladioValueError(
                "delay_release leaves no slot to fetch into: it is below max_concurrent_steps",
                argument=operand.name,
                expected=f"delay_release < {operand.declared}",
                got=operand.delay,
            )
        if len(operand.axes) > 1:
            raise PalladioValueError(
                "an input is shared along one axis of the cluster", argument=operand.name, got=operand.axes
            )
    for operand in arrays.outputs:
        if operand.axes:
            raise PalladioValueError(
                "only inputs are shared by the blocks of a cluster: collective_axes",
                argument=operand.name,
                got=operand.axes,
            )
        if operand.delay:
            raise PalladioValueError("only inputs have a delay_release", argument=operand.name, got=operand.delay)
    return arrays


def shared_axes(operands: Sequence[PipelineOperand]) -> tuple[str, ...]:
    """The axes of the cluster along which these inputs are shared."""
    return tuple(dict.fromkeys(axis for each in operands for axis in each.axes))


def fetch(operand: PipelineOperand, buffer: Reference, step: Any, slot: Any, barrier: Reference) -> None:
    """Start copying an input's block of a step into a slot; a barrier gets one arrival when it has landed."""
    copy_gmem_to_smem(
        operand.window(step),
        buffer.at[slot],
        barrier,
        collective_axes=operand.axes or None,
        oob_mode=operand.fill,
    )


def store(leaving: Sequence[tuple[PipelineOperand, Any, Any]], buffers: Mapping[int, Reference], step: Any) -> None:
    """Start storing the outputs whose condition holds, as one group."""
    several = len(leaving) > 1
    for operand, condition, slot in leaving:

        @when(condition if several else True)
        def _(operand: PipelineOperand = operand, slot: Any = slot) -> None:
            copy_smem_to_gmem(buffers[id(operand)].at[slot], operand.window(step), commit_group=False)

    commit_smem_to_gmem_group()


def any_of(conditions: Sequence[Any]) -> Any:
    """True if one of some conditions holds."""
    found: Any = False
    for condition in conditions:
        found = either(found, condition)
    return found


class _Copies:
    """Transfers by TMA: barriers signal that inputs have landed, store groups that outputs have been stored."""

    def __init__(self, arrays: Arrays, groups: Sequence[Sequence[PipelineOperand]], refs: Mapping[str, Any]) -> None:
        operands = (*arrays.inputs, *arrays.outputs)
        self.arrays = arrays
        self.buffers = {id(each): ref[each.label] for each, ref in zip(operands, refs["buffers"], strict=True)}
        self.ready = {id(each): ref for group, ref in zip(groups, refs["ready"], strict=True) for each in group}
        self.met = dict(zip(shared_axes(arrays.inputs), refs["met"], strict=True))
        self.meet(shared_axes(arrays.inputs))

    def meet(self, axes: Sequence[str]) -> None:
        """Wait until the blocks of the cluster that share copies have arrived."""
        for axis in axes:
            barrier_arrive_and_wait(self.met[axis])

    def fetch(self, operand: PipelineOperand, step: Any, slot: Any) -> None:
        fetch(operand, self.buffers[id(operand)], step, slot, self.ready[id(operand)].at[slot])

    def arrive(self, group: Sequence[PipelineOperand], slot: Any) -> None:
        barrier_wait(self.ready[id(group[0])].at[slot])

    def release(self, operands: Sequence[PipelineOperand], due: Any) -> None:
        axes = shared_axes(operands)
        if axes:
            do_if(due, self.meet, axes)

    def reuse(self, slots: int, beginning: Sequence[tuple[PipelineOperand, Any, Any, Any]]) -> None:
        used = any_of([both(begins, held) for _, begins, _, held in beginning])
        when(used)(lambda: wait_smem_to_gmem(slots - 1, wait_read_only=True))

    def store(self, leaving: Sequence[tuple[PipelineOperand, Any, Any]], step: Any) -> None:
        @when(any_of([condition for _, condition, _ in leaving]))
        def _() -> None:
            commit_smem()
            store(leaving, self.buffers, step)

    def finish(self, stored: Sequence[tuple[PipelineOperand, Any]]) -> None:
        if any(each.delay for each in self.arrays.inputs):
            wgmma_wait(0)
        if stored:
            wait_smem_to_gmem(0)


@checked_call
def emit_pipeline(
    body: Callable[..., Any],
    *,
    grid: Any,
    in_specs: Any = (),
    out_specs: Any = (),
    max_concurrent_steps: int = 1,
    init_carry: Any = None,
    delay_release: int | None = None,
) -> Callable[..., Any]:
    """A function of references to global memory that runs `body` on their blocks: copies run ahead, stores follow.

    Called by one thread, for each point of the grid, the last axis fastest: the body gets the point, a tuple of i32[],
    then a reference in shared memory to a block of each input and each output, then the carry. A block of an input is
    copied once for as long as its index stays the same, up to `max_concurrent_steps` of them ahead. A block of an
    output stays where it is for as long as its index stays the same, so that the body can accumulate in it, and is
    stored when its index is about to change. Its initial contents are uninitialised.

    Args:
        body: `body(indices, *in_refs, *out_refs)`; with `init_carry` it gets the carry as its last argument and
            returns the next one.
        grid: sizes, integers or traced scalars.
        in_specs, out_specs: a `BlockSpec` for each reference, or a pytree of them for a pytree of references.
        max_concurrent_steps: slots of each operand in shared memory.
        init_carry: a pytree of arrays and references; references come back as they are.
        delay_release: for inputs whose `plgpu.BlockSpec` does not set it: the number of steps after a step until its
            slot is refilled. A body that leaves n products in flight needs n, or their operands are overwritten.

    Returns:
        A function of the references that returns the last carry, None without `init_carry`.

    Raises:
        PalladioTypeError: not a function, a spec or a reference; a carry of another structure.
        PalladioValueError: grid sizes below 1, other structures of specs than of references, a delay that is not
            below the number of slots.
    """
    with at_call():
        require_function(body, "what a pipeline runs", "body")
        check_slots(max_concurrent_steps)
        if delay_release is not None:
            check_delay(delay_release, "delay_release")
        steps = GridSteps(grid)

    def pipeline(*gmem_refs: Any) -> Any:
        with at_call():
            arrays = prepared(steps, in_specs, out_specs, gmem_refs, max_concurrent_steps, delay_release)
            carry = None if init_carry is None else Carry(init_carry)
            return _run(body, steps, arrays, carry)

    return pipeline


def _run(body: Callable[..., Any], steps: GridSteps, arrays: Arrays, carry: Carry | None) -> Any:
    groups = together(arrays.inputs, lambda each: each.slots)
    axes = shared_axes(arrays.inputs)
    described = {
        "buffers": [{each.label: each.described} for each in (*arrays.inputs, *arrays.outputs)],
        "ready": [Barrier(num_arrivals=len(group), num_barriers=group[0].slots) for group in groups],
        "met": [ClusterBarrier(collective_axes=axis) for axis in axes],
    }

    def scoped(refs: Any) -> Any:
        copies = _Copies(arrays, groups, refs)

        def invoke(step: Any, slots: Sequence[tuple[PipelineOperand, Any]], carried: Sequence[Any]) -> Sequence[Any]:
            blocks = [copies.buffers[id(each)].at[slot] for each, slot in slots]
            args = [steps.indices(step), *arrays.arguments(blocks)]
            return called(body, args, carry, carried, "emit_pipeline")

        return list(Sequential(steps, arrays, copies, groups, invoke).run([] if carry is None else carry.arrays))

    last = in_scope(scoped, described, shared=bool(axes))
    return None if carry is None else carry.tree(last)
