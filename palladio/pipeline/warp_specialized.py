"""`emit_pipeline_warp_specialized`: one warpgroup of a block copies, the others compute.

They synchronise by barriers: a *ready* barrier completes when blocks of inputs have landed, a *consumed* barrier when
every compute warpgroup has finished with a block. Both count blocks: if an input's block stays for several steps, the
first of them waits for it and the last releases it. Where the body itself waits or arrives, they count steps, so that
it can do so at every step: the memory thread then arrives at the ready barrier of a step without a copy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import Any

import numpy as np

from palladio.base.calls import checked_call
from palladio.base.dataclass import dataclass
from palladio.base.errors import PalladioTypeError, PalladioValueError, at_call
from palladio.pipeline.gpu import check_slots, fetch, prepared, shared_axes
from palladio.pipeline.operands import Arrays, Carry, PipelineOperand
from palladio.pipeline.outputs import SharedOutputs
from palladio.pipeline.schedule import GridSteps, Turn, both, counted_in, is_known
from palladio.pipeline.sequential import ZERO, called, do_if, together
from palladio.pipeline.specs import check_delay
from palladio.trace.control import cond, fori_loop, run_scoped, when
from palladio.trace.functions import call_user, require_function
from palladio.trace.gpu.barriers import barrier_arrive, barrier_arrive_and_wait, barrier_wait
from palladio.trace.gpu.tensor_core import set_max_registers, wgmma_wait
from palladio.trace.grid import axis_index, axis_size
from palladio.types.device import H100_SXM
from palladio.types.scratch import Barrier, ClusterBarrier
from palladio.types.types import SMEM

WHAT = "emit_pipeline_warp_specialized"


class PipelinePipeline(IntEnum):
    """The position of a pipeline in a chain of pipelines that continue each other without waiting."""

    START = 0
    STEADY = 1
    STOP = 2


@dataclass(frozen=True)
class Options:
    """The options of the caller of a warp-specialised pipeline."""

    steps: GridSteps
    in_specs: Any
    out_specs: Any
    slots: int
    delay: int | None
    axis: str
    computing: int
    memory: int
    registers: int
    state: Any
    manual_ready: bool
    manual_consumed: bool
    context: Callable[..., Any] | None

    def __post_init__(self) -> None:
        if self.context is not None:
            require_function(self.context, "a compute context", "compute_context")
        check_slots(self.slots)
        if self.delay is not None:
            check_delay(self.delay, "delay_release")
        if not isinstance(self.computing, int) or self.computing < 1:
            raise PalladioValueError(
                "at least one thread computes", argument="num_compute_wgs", got=repr(self.computing)
            )
        if not isinstance(self.memory, int) or not 0 <= self.memory <= self.computing:
            raise PalladioValueError(
                "the memory thread is one of the threads",
                argument="memory_thread_idx",
                expected=f"0 to {self.computing}",
                got=repr(self.memory),
            )
        if self.state is not None and not _is_state(self.state):
            raise PalladioTypeError(
                "the state of a pipeline is a PipelinePipeline, or a traced i32[]",
                argument="pipeline_state",
                got=repr(self.state),
            )

    @property
    def starts(self) -> Any:
        """True if nothing is in flight when the pipeline begins."""
        return True if self.state is None else self._is(PipelinePipeline.START)

    @property
    def stops(self) -> Any:
        """True if nothing may be in flight when the pipeline ends."""
        return True if self.state is None else self._is(PipelinePipeline.STOP)

    def _is(self, state: PipelinePipeline) -> Any:
        return bool(self.state == state) if isinstance(self.state, int) else self.state == np.int32(state)


@dataclass(frozen=True)
class Consumers:
    """Inputs that share one array of consumed barriers.

    Fields:
        depth: the number of barriers; a step (or block) arrives at the same one as the step `depth` before it.
        delay: by how many steps (or blocks) the arrival is delayed.
        by_block: whether arrivals are for blocks of the only input, when they end at run time; else for steps.
    """

    operands: tuple[PipelineOperand, ...]
    depth: int
    delay: int
    by_block: bool

    @property
    def lead(self) -> int:
        """The number of steps by which its blocks are fetched ahead of the computation."""
        return self.depth - self.delay


class Plan:
    """The operands of a warp-specialised pipeline, and the barriers between its threads."""

    def __init__(self, options: Options, refs: Sequence[Any]) -> None:
        self.options = options
        steps = options.steps
        arrays = prepared(steps, options.in_specs, options.out_specs, refs, options.slots, options.delay)
        self.arrays: Arrays = arrays
        self.inputs, self.outputs = arrays.inputs, arrays.outputs
        if options.state is not None:
            for operand in self.inputs:
                operand.fetch_in_each_call()
        if options.manual_consumed and any(operand.delay for operand in self.inputs):
            raise PalladioValueError(
                "with manual_consumed_barriers the body says when a slot is released; there is no delay_release",
                argument=next(each.name for each in self.inputs if each.delay),
            )
        self.by_step = options.manual_ready or options.manual_consumed
        self.ready = (
            [[each] for each in self.inputs] if options.manual_ready else together(self.inputs, lambda each: each.slots)
        )
        self.consumed = self._consumed()
        self.shared = SharedOutputs(self.outputs, options.computing)
        self.axes = shared_axes(self.inputs)
        depths = [each.depth for each in self.consumed]
        tracked = any(each.tracked for each in self.inputs)
        self.counts = options.state is not None and (
            tracked or steps.known is None or any(steps.known % depth for depth in depths)
        )
        self.round = math.lcm(*depths) if depths else 0

    def depth(self, operand: PipelineOperand) -> int:
        """The number of steps of an input that can be in flight: its slots, or its barriers where each step has one."""
        known = self.options.steps.known
        return operand.slots if operand.turn is not Turn.NEVER else min(operand.declared, known or operand.declared)

    def _consumed(self) -> list[Consumers]:
        groups: dict[Any, list[PipelineOperand]] = {}
        for number, each in enumerate(self.inputs):
            if each.turn is not Turn.NEVER or self.by_step:
                by_block = each.tracked and not self.by_step
                own = number if self.options.manual_consumed or by_block else None
                groups.setdefault((self.depth(each), each.delay or 0, by_block, each.axes, own), []).append(each)
        return [Consumers(tuple(found), *key[:3]) for key, found in groups.items()]

    @property
    def ends_late(self) -> bool:
        """True if slots are in use after the last step that no consumed barrier has released."""
        return any(each.delay for each in self.inputs) or any(
            each.turn is Turn.NEVER and not self.by_step for each in self.inputs
        )

    def allocations(self) -> dict[str, Any]:
        """The shared memory of the pipeline, for all threads together."""
        computing = self.options.computing
        found: dict[str, Any] = {
            "buffers": [{each.label: each.described} for each in (*self.inputs, *self.outputs)],
            "ready": [
                Barrier(num_arrivals=len(group), num_barriers=self._ready_count(group[0])) for group in self.ready
            ],
            "consumed": [
                ClusterBarrier(
                    collective_axes=shared_axes(group.operands), num_arrivals=computing, num_barriers=group.depth
                )
                if shared_axes(group.operands)
                else Barrier(num_arrivals=computing, num_barriers=group.depth)
                for group in self.consumed
            ],
            "met": [ClusterBarrier(collective_axes=axis) for axis in self.axes],
            "over": [Barrier(num_arrivals=computing)] if self.ends_late else [],
            **self.shared.allocations(),
        }
        if self.counts:
            tracked = sum(each.tracked for each in self.inputs)
            found["progress"] = [SMEM((computing + 1, 1 + tracked), np.int32)]
        return found

    def _ready_count(self, operand: PipelineOperand) -> int:
        return self.depth(operand) if self.by_step else operand.slots


class _PipelineThread:
    """The base of the threads of a pipeline.

    Fields:
        base: the number of the first step, counted from where a chain of pipelines started.
        numbers: the number of blocks of each tracked input before it.
    """

    def __init__(self, plan: Plan, refs: Mapping[str, Any], index: Any) -> None:
        self.plan = plan
        self.options = plan.options
        self.steps = plan.options.steps
        self.index = index
        operands = (*plan.inputs, *plan.outputs)
        self.refs = refs
        self.buffers = {id(each): ref[each.label] for each, ref in zip(operands, refs["buffers"], strict=True)}
        self.ready = {id(each): ref for group, ref in zip(plan.ready, refs["ready"], strict=True) for each in group}
        self.consumed = list(zip(plan.consumed, refs["consumed"], strict=True))
        self.tracked = [each for each in plan.inputs if each.tracked]
        self.base, self.numbers = self._begin()

    def _begin(self) -> tuple[Any, list[Any]]:
        zeros = [ZERO for _ in self.tracked]
        starts = self.options.starts
        if is_known(starts) and starts:
            return 0, zeros
        if not self.plan.counts:
            round = self.plan.round
            return (round if is_known(starts) else np.where(starts, ZERO, np.int32(round))), zeros
        progress = self.refs["progress"][0]

        def kept() -> list[Any]:
            return [progress[self.index, n] for n in range(1 + len(self.tracked))]

        base, *numbers = kept() if is_known(starts) else cond(starts, lambda: [ZERO, *zeros], kept)
        return base, numbers

    def keep(self, numbers: Sequence[Any]) -> None:
        """Record the position in the chain for its next pipeline."""
        if not self.plan.counts:
            return
        progress = self.refs["progress"][0]
        for n, value in enumerate((self.base + self.steps.count, *numbers)):
            progress[self.index, n] = convert_index(value)

    def ready_barrier(self, operand: PipelineOperand, number: Any) -> Any:
        """The barrier that a step's block of an input arrives at, where each step has one."""
        return self.ready[id(operand)].at[number % self.plan.depth(operand)]


def convert_index(value: Any) -> Any:
    """A count as an i32."""
    return np.int32(value) if is_known(value) else value


class _MemoryWarp(_PipelineThread):
    """The thread that copies."""

    def run(self) -> None:
        plan, starts = self.plan, self.options.starts
        met = dict(zip(plan.axes, self.refs["met"], strict=True))

        @when(starts)
        def _() -> None:
            for axis in plan.axes:
                barrier_arrive_and_wait(met[axis])

        fixed = [each for each in plan.inputs if each.turn is Turn.NEVER and not plan.by_step]
        if fixed:

            @when(self.steps.any)
            def _() -> None:
                for operand in fixed:
                    fetch(operand, self.buffers[id(operand)], ZERO, 0, self.ready[id(operand)].at[0])

        numbers = self.numbers
        leads = [group.lead for group in plan.consumed]
        if leads:
            spread = max(leads) - min(leads)
            numbers = fori_loop(ZERO, self.steps.count + spread, self._iteration, numbers)
            self.keep(numbers)
        do_if(self.options.stops, self._quiesce, numbers)

    def _iteration(self, iteration: Any, numbers: list[Any]) -> list[Any]:
        """Fetch, for each group, the step that is ahead by its lead; their slots become free at the same time."""
        first = max(group.lead for group, _ in self.consumed)
        mixed = any(group.lead != first for group, _ in self.consumed)
        found = {id(each): number for each, number in zip(self.tracked, numbers, strict=True)}
        for group, barriers in self.consumed:
            late = first - group.lead
            step = iteration - late if late else iteration
            due = both(step >= 0 if late else True, step < self.steps.count) if mixed else True
            if group.by_block:
                (operand,) = group.operands
                found[id(operand)] = self._fetch_block(operand, step, due, group, barriers, found[id(operand)])
            else:
                self._await(due, self.base + step, group, barriers)
                self._fetch_step(group, step, due, found)
        return [found[id(each)] for each in self.tracked]

    @staticmethod
    def _await(due: Any, number: Any, group: Consumers, barriers: Any) -> None:
        """Wait until the last step or block that used a slot has been consumed."""
        when(both(due, number >= group.depth))(lambda: barrier_wait(barriers.at[number % group.depth]))

    def _clamped(self, step: Any, due: Any) -> Any:
        """The step clamped to the existing ones, since index maps must not see others."""
        return step if is_known(due) else np.minimum(np.maximum(step, 0), self.steps.count - 1)

    def _fetch_block(
        self, operand: PipelineOperand, step: Any, due: Any, group: Consumers, barriers: Any, number: Any
    ) -> Any:
        """Fetch the block of a step if it begins there; returns the blocks fetched so far."""
        step = self._clamped(step, due)
        begins = both(due, operand.walk.begins(step))

        @when(begins)
        def _() -> None:
            self._await(True, number, group, barriers)
            slot = operand.slot(step, number)
            fetch(operand, self.buffers[id(operand)], step, slot, self.ready[id(operand)].at[slot])

        return counted_in(number, begins)

    def _fetch_step(self, group: Consumers, step: Any, due: Any, numbers: dict[int, Any]) -> None:
        """Fetch the blocks of a step; where a block is unchanged, arrive at its barrier instead."""
        steady = [each for each in group.operands if each.turn is Turn.EVERY_STEP]
        if steady:

            @when(due)
            def _() -> None:
                for operand in steady:
                    self._fetch(operand, step, self.base + step)

        for operand in group.operands:
            if operand.turn is Turn.EVERY_STEP:
                continue
            inside = self._clamped(step, due)
            begins = both(due, operand.walk.begins(inside))
            self._fetch_or_arrive(operand, inside, due, begins, numbers.get(id(operand), ZERO))
            if operand.tracked:
                numbers[id(operand)] = counted_in(numbers[id(operand)], begins)

    def _fetch_or_arrive(self, operand: PipelineOperand, step: Any, due: Any, begins: Any, number: Any) -> None:
        do_if(begins, self._fetch, operand, step, number)
        barrier = self.ready_barrier(operand, self.base + step)
        when(both(due, ~begins))(lambda: barrier_arrive(barrier))

    def _fetch(self, operand: PipelineOperand, step: Any, number: Any) -> None:
        slot = operand.slot(number, number)
        barrier = self.ready[id(operand)].at[slot]
        if self.plan.by_step:
            barrier = self.ready_barrier(operand, self.base + step)
        fetch(operand, self.buffers[id(operand)], step, slot, barrier)

    def _quiesce(self, numbers: Sequence[Any]) -> None:
        """Wait until everything is consumed, so that barriers and slots may be reused."""
        blocks = {id(each): number for each, number in zip(self.tracked, numbers, strict=True)}
        for group, barriers in self.consumed:
            total = blocks[id(group.operands[0])] if group.by_block else self.base + self.steps.count

            def body(number: Any, _: Any, group: Consumers = group, barriers: Any = barriers) -> None:
                when(number >= 0)(lambda: barrier_wait(barriers.at[number % group.depth]))

            fori_loop(convert_index(total - group.depth), convert_index(total - group.delay), body, None)
        for barrier in self.refs["over"]:
            barrier_wait(barrier)


class _Compute(_PipelineThread):
    """A thread that computes."""

    def __init__(self, plan: Plan, refs: Mapping[str, Any], index: Any, body: Callable[..., Any]) -> None:
        super().__init__(plan, refs, index)
        self.body = body
        self.carry: Carry | None = None
        leader = 1 if plan.options.memory == 0 else 0
        self.stores = plan.shared.thread(refs, self.buffers, index == leader)

    def run(self, init_carry: Any) -> Any:
        """Run all steps; returns the last carry."""
        self.carry = None if init_carry is None else Carry(init_carry)
        fixed = [group for group in self.plan.ready if group[0].turn is Turn.NEVER and not self.plan.by_step]
        if fixed:

            @when(self.steps.any)
            def _() -> None:
                for group in fixed:
                    barrier_wait(self.ready[id(group[0])].at[0])

        outputs = [ZERO for each in self.plan.outputs if each.tracked]
        carried = [] if self.carry is None else self.carry.arrays
        numbers, _, last = fori_loop(ZERO, self.steps.count, self._step, (self.numbers, outputs, carried))
        self.keep(numbers)
        if any(each.delay for each in self.plan.inputs):
            do_if(self.options.stops, wgmma_wait, 0)
        for barrier in self.refs["over"]:
            do_if(self.options.stops, barrier_arrive, barrier)
        self.stores.finish()
        return None if self.carry is None else self.carry.tree(last)

    def _step(self, step: Any, state: tuple[list[Any], list[Any], list[Any]]) -> Any:
        numbers, outputs, carried = state
        number = self.base + step
        counts = {id(each): count for each, count in zip(self.tracked, numbers, strict=True)}
        begins = {id(each): each.walk.begins(step) for each in self.plan.inputs}
        for each in self.tracked:
            counts[id(each)] = counted_in(counts[id(each)], begins[id(each)])
        slots = {
            id(each): each.slot(number, counts[id(each)] - 1 if each.tracked else None) for each in self.plan.inputs
        }
        if not self.options.manual_ready:
            self._arrive(number, begins, slots)
        outputs, places = self.stores.begin(step, outputs)
        blocks = [self.buffers[id(each)].at[slots[id(each)]] for each in self.plan.inputs]
        blocks += [self.buffers[id(each)].at[place] for each, place in zip(self.plan.outputs, places, strict=True)]
        carried = self._call(step, number, blocks, carried)
        if not self.options.manual_consumed:
            self._release(step, number, counts)
        self.stores.end(step, places)
        return [counts[id(each)] for each in self.tracked], outputs, carried

    def _arrive(self, number: Any, begins: Mapping[int, Any], slots: Mapping[int, Any]) -> None:
        """Wait for the blocks of this step."""
        for group in self.plan.ready:
            first = group[0]
            if self.plan.by_step:
                barrier_wait(self.ready_barrier(first, number))
            elif first.turn is not Turn.NEVER:
                barrier = self.ready[id(first)].at[slots[id(first)]]
                do_if(begins[id(first)], barrier_wait, barrier)

    def _call(self, step: Any, number: Any, blocks: Sequence[Any], carried: Sequence[Any]) -> list[Any]:
        args = [self.steps.indices(step), *self.plan.arrays.arguments(blocks)]
        if self.options.manual_ready:
            args += [self.ready_barrier(each, number) for each in self.plan.inputs]
        if self.options.manual_consumed:
            args += [barriers.at[number % group.depth] for group, barriers in self.consumed]
        return called(self.body, args, self.carry, carried, WHAT)

    def _release(self, step: Any, number: Any, counts: Mapping[int, Any]) -> None:
        """Signal to the memory thread that a step or block is finished."""
        for group, barriers in self.consumed:
            over, last = number, True
            if group.by_block:
                operand = group.operands[0]
                over, last = counts[id(operand)] - 1, operand.walk.ends(step)
            released = over - group.delay if group.delay else over
            arrive = barriers.at[released % group.depth]
            do_if(both(last, released >= 0 if group.delay else True), barrier_arrive, arrive)


class WarpSpecialized:
    """A warp-specialised pipeline: called with references to global memory, it runs."""

    def __init__(self, body: Callable[..., Any], options: Options) -> None:
        self.body = body
        self.options = options

    def get_allocations(self, *gmem_refs: Any) -> dict[str, Any]:
        """The allocations of the pipeline for these references, for `run_scoped` with the thread axis as its
        `collective_axes` and passed back as `allocations`. Several calls, one after another, may share it.
        """
        with at_call():
            return Plan(self.options, gmem_refs).allocations()

    def __call__(self, *gmem_refs: Any, allocations: Any = None) -> None:
        """Run on references to global memory.

        Args:
            allocations: the references that `run_scoped` allocated for `get_allocations`; by default its own.
        """
        with at_call():
            options = self.options
            if options.state is not None and allocations is None:
                raise PalladioValueError(
                    "pipelines that go over into each other share their allocations",
                    argument="allocations",
                    hint="allocate get_allocations(*refs) around them with pl.run_scoped",
                )
            threads = axis_size(options.axis)
            if threads != options.computing + 1:
                raise PalladioValueError(
                    f"axis {options.axis!r} has a thread for memory and {options.computing} that compute",
                    argument="num_compute_wgs",
                    expected=f"{options.computing + 1} threads",
                    got=f"{threads} threads",
                )
            plan = Plan(options, gmem_refs)
            if allocations is not None:
                self._run(plan, allocations)
                return
            run_scoped(lambda refs: self._run(plan, refs), plan.allocations(), collective_axes=options.axis)

    def _run(self, plan: Plan, refs: Any) -> None:
        options = self.options
        index = axis_index(options.axis)
        threads = options.computing + 1
        left = (threads * H100_SXM.registers_at_launch(threads) - options.registers) // options.computing
        registers = min(H100_SXM.thread_registers, left // H100_SXM.register_unit * H100_SXM.register_unit)

        @when(index != options.memory)
        def _() -> None:
            set_max_registers(registers, action="increase")
            self._compute(_Compute(plan, refs, index, self.body))

        @when(index == options.memory)
        def _() -> None:
            set_max_registers(options.registers, action="decrease")
            _MemoryWarp(plan, refs, index).run()

    def _compute(self, thread: _Compute) -> None:
        context = self.options.context
        if context is None:
            thread.run(None)
            return
        calls = 0

        def pipeline(init_carry: Any = None) -> Any:
            nonlocal calls
            calls += 1
            if calls > 1:
                raise PalladioValueError("compute_context calls its pipeline once", got="a second call")
            return thread.run(init_carry)

        call_user(context, (pipeline,), {}, "compute_context", "1 argument: the pipeline", "compute_context")
        if calls == 0:
            raise PalladioValueError("compute_context did not call its pipeline", argument="compute_context")


@checked_call
def emit_pipeline_warp_specialized(
    body: Callable[..., Any],
    *,
    grid: Any,
    memory_registers: int = 40,
    in_specs: Any = (),
    out_specs: Any = (),
    max_concurrent_steps: int = 2,
    wg_axis: str,
    num_compute_wgs: int,
    pipeline_state: Any = None,
    manual_produced_barriers: bool = False,
    manual_consumed_barriers: bool = False,
    compute_context: Callable[..., Any] | None = None,
    memory_thread_idx: int | None = None,
    delay_release: int | None = None,
    manual_ready_barriers: bool = False,
) -> WarpSpecialized:
    """A function of references to global memory that runs `body` on their blocks in some warpgroups, while another one
    copies.

    All `num_compute_wgs + 1` threads of the block call it. The compute threads run the body for each point of the grid,
    with references to the same blocks in shared memory; each writes its part of an output's block. Blocks are fetched
    and stored as by `emit_pipeline`: an input when its index changes, an output when its index is about to change and
    all compute threads have written to it.

    Args:
        body: `body(indices, *in_refs, *out_refs, *produced, *consumed, carry)`; each group is optional.
        grid: sizes, integers or traced scalars.
        memory_registers: registers of each lane of the memory thread; the others share the rest.
        in_specs, out_specs: a `BlockSpec` for each reference, or a pytree of them for a pytree of references.
        max_concurrent_steps: slots of each operand in shared memory.
        wg_axis: the name of the thread axis.
        num_compute_wgs: how many threads compute.
        pipeline_state: a `PipelinePipeline`, static or traced: the position in a chain of pipelines, in which the
            memory thread fetches ahead for the next one while the others compute. Their allocations are shared.
        manual_produced_barriers: the body gets a barrier for each input, which completes at each step when its block
            has landed, and waits for it. Also spelled `manual_ready_barriers`.
        manual_consumed_barriers: the body gets a barrier for each input, and arrives at it when it is done with the
            block of the step.
        compute_context: `compute_context(pipeline)` runs in the compute threads; it calls `pipeline(init_carry)`, once,
            which returns the last carry.
        memory_thread_idx: the index of the memory thread, the last one by default.
        delay_release: as in `emit_pipeline`.

    Returns:
        A function of the references that returns nothing; its `get_allocations` describes what it allocates.

    Raises:
        PalladioTypeError: not a function, a spec or a reference; a carry of another structure.
        PalladioValueError: as `emit_pipeline`; another number of threads; a context that does not call the pipeline
            once; a chained pipeline without allocations.
    """
    with at_call():
        require_function(body, "what a pipeline runs", "body")
        return WarpSpecialized(
            body,
            Options(
                steps=GridSteps(grid),
                in_specs=in_specs,
                out_specs=out_specs,
                slots=max_concurrent_steps,
                delay=delay_release,
                axis=wg_axis,
                computing=num_compute_wgs,
                memory=num_compute_wgs if memory_thread_idx is None else memory_thread_idx,
                registers=memory_registers,
                state=pipeline_state,
                manual_ready=bool(manual_produced_barriers or manual_ready_barriers),
                manual_consumed=bool(manual_consumed_barriers),
                context=compute_context,
            ),
        )


def _is_state(state: Any) -> bool:
    if isinstance(state, int):
        return state in tuple(PipelinePipeline)
    return getattr(state, "shape", None) == () and np.issubdtype(state.dtype, np.integer)
