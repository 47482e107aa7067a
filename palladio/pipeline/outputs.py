"""Outputs of a warp-specialised pipeline in shared memory that several threads write.

Every compute thread writes its part of a slot, commits it and arrives at the slot's *written* barrier. The first of
them, the leader, waits there and stores the slot. Before a slot is written again, the leader waits until the store has
read it and arrives at the slot's *free* barrier, where all wait. A single thread needs neither.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from palladio.pipeline.gpu import any_of, store
from palladio.pipeline.operands import PipelineOperand
from palladio.pipeline.schedule import Turn, both, counted_in
from palladio.pipeline.sequential import do_if, together
from palladio.trace.control import when
from palladio.trace.gpu.barriers import barrier_arrive, barrier_wait
from palladio.trace.gpu.copies import commit_smem, wait_smem_to_gmem
from palladio.trace.reference import Reference
from palladio.types.scratch import Barrier


class SharedOutputs:
    """The outputs, in groups whose blocks change together, and their barriers."""

    def __init__(self, outputs: Sequence[PipelineOperand], threads: int) -> None:
        self.outputs = list(outputs)
        self.groups = together(self.outputs, lambda each: each.slots)
        self.threads = threads

    def allocations(self) -> dict[str, Any]:
        """The barriers that its threads need."""
        if self.threads == 1 or not self.outputs:
            return {"written": [], "free": [], "stored": []}
        return {
            "written": [Barrier(num_arrivals=self.threads, num_barriers=group[0].slots) for group in self.groups],
            "free": [Barrier(num_barriers=group[0].slots) for group in self.turning],
            "stored": [Barrier()],
        }

    @property
    def turning(self) -> list[list[PipelineOperand]]:
        """The groups whose slots are used more than once."""
        return [group for group in self.groups if group[0].turn is not Turn.NEVER]

    def thread(self, refs: Mapping[str, Any], buffers: Mapping[int, Reference], leads: Any) -> ThreadOutputs:
        """The outputs for one compute thread; `leads` is true for the leader."""
        return ThreadOutputs(self, refs, buffers, True if self.threads == 1 else leads)


class ThreadOutputs:
    """The outputs, as one compute thread handles them."""

    def __init__(
        self, shared: SharedOutputs, refs: Mapping[str, Any], buffers: Mapping[int, Reference], leads: Any
    ) -> None:
        self.shared = shared
        self.buffers = buffers
        self.leads = leads
        alone = shared.threads == 1
        self.written = [None] * len(shared.groups) if alone else refs["written"]
        self.free = [None] * len(shared.turning) if alone else refs["free"]
        self.stored = refs["stored"]

    def begin(self, step: Any, numbers: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Before the body: wait until the slots of blocks that begin can be written.

        Args:
            numbers: the number of blocks of each tracked output so far.

        Returns:
            The numbers with those of this step, and the slot of each output.
        """
        tracked = [each for each in self.shared.outputs if each.tracked]
        begins = {id(each): each.walk.begins(step) for each in self.shared.outputs}
        counts = {id(each): counted_in(number, begins[id(each)]) for each, number in zip(tracked, numbers, strict=True)}
        slots = {
            id(each): each.slot(step, counts[id(each)] - 1 if each.tracked else None) for each in self.shared.outputs
        }
        for group, free in zip(self.shared.turning, self.free, strict=True):
            first = group[0]
            held = counts[id(first)] > first.slots if first.tracked else step >= first.slots
            self._reuse(both(begins[id(first)], held), first.slots, slots[id(first)], free)
        return [counts[id(each)] for each in tracked], [slots[id(each)] for each in self.shared.outputs]

    def _reuse(self, condition: Any, depth: int, slot: Any, free: Reference | None) -> None:
        @when(condition)
        def _() -> None:
            @when(self.leads)
            def _() -> None:
                wait_smem_to_gmem(depth - 1, wait_read_only=True)
                if free is not None:
                    barrier_arrive(free.at[slot])

            if free is not None:
                barrier_wait(free.at[slot])

    def end(self, step: Any, slots: Sequence[Any]) -> None:
        """After the body: store the blocks that end."""
        if not self.shared.outputs:
            return
        ends = {id(each): each.walk.ends(step) for each in self.shared.outputs}
        places = {id(each): slot for each, slot in zip(self.shared.outputs, slots, strict=True)}

        @when(any_of([ends[id(group[0])] for group in self.shared.groups]))
        def _() -> None:
            commit_smem()
            self._each(ends, places, barrier_arrive)

            @when(self.leads)
            def _() -> None:
                self._each(ends, places, barrier_wait)
                store([(each, ends[id(each)], places[id(each)]) for each in self.shared.outputs], self.buffers, step)

    def _each(self, ends: Mapping[int, Any], slots: Mapping[int, Any], act: Callable[[Any], None]) -> None:
        """Arrive or wait at the written barrier of each group that ends."""
        for group, written in zip(self.shared.groups, self.written, strict=True):
            if written is not None:
                barrier = written.at[slots[id(group[0])]]
                do_if(ends[id(group[0])], act, barrier)

    def finish(self) -> None:
        """Wait for all outstanding stores."""
        if not self.shared.outputs:
            return

        @when(self.leads)
        def _() -> None:
            wait_smem_to_gmem(0)
            for barrier in self.stored:
                barrier_arrive(barrier)

        for barrier in self.stored:
            barrier_wait(barrier)
