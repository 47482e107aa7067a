"""The pipeline of a single thread: it starts copies ahead, runs the body on arrived blocks, and stores outputs.

This module is independent of the target; `Transfers` of a target copies blocks and waits for them. A block
is fetched once for as long as its index stays the same, and stored when its index is about to change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from palladio.base.errors import PalladioTypeError
from palladio.pipeline.operands import Arrays, Carry, PipelineOperand
from palladio.pipeline.schedule import GridSteps, Turn, both, counted_in, is_known, least
from palladio.trace.control import cond, fori_loop, when, while_loop
from palladio.trace.functions import call_user, counted

ZERO = np.int32(0)


class Transfers(Protocol):
    """The transfers of a target between an array and its slots."""

    def fetch(self, operand: PipelineOperand, step: Any, slot: Any) -> None:
        """Start copying an input's block of a step into a slot."""

    def arrive(self, group: Sequence[PipelineOperand], slot: Any) -> None:
        """Wait until the blocks of inputs that come together are in a slot."""

    def release(self, operands: Sequence[PipelineOperand], due: Any) -> None:
        """Called before slots of these inputs are fetched into again, where `due` holds."""

    def reuse(self, slots: int, beginning: Sequence[tuple[PipelineOperand, Any, Any, Any]]) -> None:
        """Before the body writes to outputs of this many slots: wait until the slots' previous blocks have been stored.

        Args:
            beginning: outputs, each with whether its block begins, its slot, and whether the slot held another block.
        """

    def store(self, leaving: Sequence[tuple[PipelineOperand, Any, Any]], step: Any) -> None:
        """Start storing the outputs whose condition holds, from their slots."""

    def finish(self, stored: Sequence[tuple[PipelineOperand, Any]]) -> None:
        """Wait for all outstanding stores. `stored` pairs an output with its number of stored blocks."""


def do_if(condition: Any, function: Callable[..., Any], *args: Any) -> None:
    """Call a function where a condition holds, known or traced."""

    @when(condition)
    def _() -> None:
        function(*args)


def together(operands: Sequence[PipelineOperand], key: Callable[[PipelineOperand], Any]) -> list[list[PipelineOperand]]:
    """Groups of operands with the same turn and key; a tracked operand is a group of its own."""
    groups: dict[Any, list[PipelineOperand]] = {}
    for number, operand in enumerate(operands):
        own = number if operand.turn is Turn.BY_INDEX else None
        groups.setdefault((operand.turn, own, key(operand)), []).append(operand)
    return list(groups.values())


def called(
    body: Callable[..., Any], args: Sequence[Any], carry: Carry | None, carried: Sequence[Any], what: str
) -> list[Any]:
    """Run a pipeline's body, with a carry as its last argument if there is one; returns the next carry's arrays."""
    if carry is not None:
        args = [*args, carry.tree(carried)]
    result = call_user(body, args, {}, f"the body of {what}", counted(len(args), "argument"))
    if carry is not None:
        return carry.returned(result, carried, what)
    if result is not None:
        raise PalladioTypeError(
            f"the body of {what} returns nothing where it carries nothing",
            got=f"{result!r:.60}",
            hint="give init_carry=, or write to references",
        )
    return []


class Sequential:
    """A pipeline of one thread.

    Args:
        groups: inputs that arrive together.
        invoke: runs the body on (step, operands with their slots, arrays of the carry); returns the carry's arrays.
    """

    def __init__(
        self,
        steps: GridSteps,
        arrays: Arrays,
        transfers: Transfers,
        groups: Sequence[Sequence[PipelineOperand]],
        invoke: Callable[[Any, list[tuple[PipelineOperand, Any]], Sequence[Any]], Sequence[Any]],
    ) -> None:
        self.steps = steps
        self.inputs = arrays.inputs
        self.outputs = arrays.outputs
        self.operands = [*arrays.inputs, *arrays.outputs]
        self.transfers = transfers
        self.groups = [list(group) for group in groups]
        self.invoke = invoke

    def run(self, carry: Sequence[Any]) -> Sequence[Any]:
        """Run all steps; returns the last carry."""
        fixed = [group for group in self.groups if group[0].turn is Turn.NEVER]
        if fixed:

            @when(self.steps.any)
            def _() -> None:
                for operand in (operand for group in fixed for operand in group if not operand.prefetched):
                    self.transfers.fetch(operand, ZERO, 0)

        fetched = self.prologue()
        if fixed:

            @when(self.steps.any)
            def _() -> None:
                for group in fixed:
                    if not group[0].prefetched:
                        self.transfers.arrive(group, 0)

        begun = [ZERO for each in self.operands if each.tracked]
        begun, _, carry = fori_loop(ZERO, self.steps.count, self.step, (begun, fetched, list(carry)))
        self.transfers.finish([(each, self._blocks(each, begun)) for each in self.outputs])
        return carry

    def _blocks(self, operand: PipelineOperand, begun: Sequence[Any]) -> Any:
        """The number of blocks of an output so far, at most that of its slots."""
        if operand.tracked:
            tracked = [each for each in self.operands if each.tracked]
            return begun[next(n for n, each in enumerate(tracked) if each is operand)]
        return self.steps.count

    # Fetching ahead. The loop carries the number of fetched blocks of each tracked input, and, for one with look-ahead,
    # the step from which to search for the next block.

    def prologue(self) -> list[tuple[Any, Any]]:
        """Fill all slots of the inputs whose blocks change."""
        turning = [each for each in self.inputs if each.turn is not Turn.NEVER]
        start = [(ZERO, ZERO) for each in turning if each.tracked]
        if not turning:
            return start
        depth = max(each.slots for each in turning)

        def fill(step: Any, state: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
            rest, found = iter(state), []
            for operand in turning:
                free = True if operand.slots == depth else step < operand.slots
                if operand.lookahead:
                    found.append(self.fetch_next(operand, free, next(rest)))
                elif operand.tracked:
                    found.append((self.fetch_tracked(operand, step, free, next(rest)[0]), ZERO))
                else:
                    self.fetch_if(operand, step, both(free, operand.walk.begins(step)), operand.slot(step, None))
            return found

        return list(fori_loop(ZERO, least(depth, self.steps.count), fill, start))

    def fetch_if(self, operand: PipelineOperand, step: Any, condition: Any, slot: Any) -> None:
        """Fetch a block where a condition holds, unless it was fetched before the pipeline started."""
        if operand.prefetched:
            condition = both(condition, step >= operand.prefetched)

        @when(condition)
        def _() -> None:
            self.transfers.fetch(operand, step, slot)

    def fetch_tracked(self, operand: PipelineOperand, step: Any, condition: Any, number: Any) -> Any:
        """Fetch the block of a step where a condition holds and it begins there; returns the blocks fetched so far."""
        begins = both(condition, operand.walk.begins(step))
        self.fetch_if(operand, step, begins, operand.slot(step, number))
        return counted_in(number, begins)

    def fetch_next(self, operand: PipelineOperand, condition: Any, state: tuple[Any, Any]) -> tuple[Any, Any]:
        """Fetch the next block, however many steps ahead, where a condition holds."""
        number, cursor = state
        count = self.steps.count

        def search(at: Any) -> Any:
            def still(candidate: Any) -> Any:
                return (candidate < count) & ~operand.walk.begins(least(candidate, count - 1))

            return while_loop(still, lambda candidate: candidate + 1, at)

        found = _where(condition, search, cursor)
        exists = both(condition, found < count)
        self.fetch_if(operand, found, exists, operand.slot(found, number))
        return counted_in(number, exists), _where(exists, lambda at: at + 1, found)

    # One step.

    def step(self, step: Any, state: tuple[list[Any], list[tuple[Any, Any]], list[Any]]) -> Any:
        """Wait for the step's blocks, run the body, store outputs that end, refill free slots."""
        begun, fetched, carry = state
        counts = iter(begun)
        numbers: dict[int, Any] = {}
        begins = {id(each): each.walk.begins(step) for each in self.operands}
        for operand in self.operands:
            if operand.tracked:
                numbers[id(operand)] = counted_in(next(counts), begins[id(operand)])
        slots = {id(each): each.slot(step, numbers[id(each)] - 1 if each.tracked else None) for each in self.operands}
        for group in self.groups:
            if group[0].turn is not Turn.NEVER:
                prefetched = group[0].prefetched
                coming = both(begins[id(group[0])], step >= prefetched) if prefetched else begins[id(group[0])]
                self._arrive(group, coming, slots[id(group[0])])
        self._reuse(step, begins, numbers, slots)
        for operand in self.outputs:
            if operand.fetched_first:
                do_if(begins[id(operand)], self._fetch_now, operand, step, slots[id(operand)])
        carry = list(self.invoke(step, [(each, slots[id(each)]) for each in self.operands], carry))
        leaving = [(each, each.walk.ends(step), slots[id(each)]) for each in self.outputs]
        if leaving:
            self.transfers.store(leaving, step)
        fetched = self._refill(step, fetched)
        return [numbers[id(each)] for each in self.operands if each.tracked], fetched, carry

    def _fetch_now(self, operand: PipelineOperand, step: Any, slot: Any) -> None:
        self.transfers.fetch(operand, step, slot)
        self.transfers.arrive([operand], slot)

    def _arrive(self, group: Sequence[PipelineOperand], begins: Any, slot: Any) -> None:
        @when(begins)
        def _() -> None:
            self.transfers.arrive(group, slot)

    def _reuse(self, step: Any, begins: dict[int, Any], numbers: dict[int, Any], slots: dict[int, Any]) -> None:
        """Before the body writes to slots, wait until the other blocks that they held have been stored."""
        turning = [each for each in self.outputs if each.turn is not Turn.NEVER]
        for depth in sorted({each.slots for each in turning}):
            found = []
            for each in turning:
                if each.slots == depth:
                    used = numbers[id(each)] > depth if each.tracked else step >= depth
                    found.append((each, begins[id(each)], slots[id(each)], used))
            self.transfers.reuse(depth, found)

    def _refill(self, step: Any, fetched: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
        """Fetch into the slots that the step, or one before it, has used for the last time."""
        rest, found = iter(fetched), []
        groups: dict[tuple[int, int], list[PipelineOperand]] = {}
        for operand in self.inputs:
            if operand.turn is not Turn.NEVER:
                groups.setdefault((operand.slots, operand.delay or 0), []).append(operand)
        states = {id(each): next(rest) for each in self.inputs if each.tracked}
        for (depth, delay), operands in groups.items():
            target = step + (depth - delay)
            due = both(True if delay == 0 else step >= delay, target < self.steps.count)
            self._refill_group(operands, step, target, due, states)
        found = [states[id(each)] for each in self.inputs if each.tracked]
        return found

    def _refill_group(
        self, operands: Sequence[PipelineOperand], step: Any, target: Any, due: Any, states: dict[int, tuple[Any, Any]]
    ) -> None:
        self.transfers.release(operands, due)
        steady = [each for each in operands if each.turn is Turn.EVERY_STEP]
        if steady:

            @when(due)
            def _() -> None:
                for operand in steady:
                    self.transfers.fetch(operand, target, operand.slot(target, None))

        clamped = least(target, self.steps.count - 1)
        for operand in operands:
            if operand.turn is Turn.EVERY_STEP:
                continue
            if operand.lookahead:
                released = step - (operand.delay or 0)
                free = operand.walk.ends(np.maximum(released, 0)) & (released >= 0)
                states[id(operand)] = self.fetch_next(operand, free, states[id(operand)])
            else:
                number = self.fetch_tracked(operand, clamped, due, states[id(operand)][0])
                states[id(operand)] = number, ZERO


def _where(condition: Any, function: Callable[[Any], Any], value: Any) -> Any:
    """The function of a value where a condition holds, else the value."""
    if is_known(condition):
        return function(value) if condition else value
    return cond(condition, function, lambda same: same, value)
