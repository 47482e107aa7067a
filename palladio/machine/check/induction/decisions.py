"""Recording of the numbers that control the threads of a run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from palladio.ir.core import Eqn
from palladio.machine.check.induction.control import controlling, deciding, fixed, positions
from palladio.machine.check.induction.state import is_global, line_of
from palladio.machine.check.induction.trace import Decision
from palladio.machine.run.buffers import Buffer, Store
from palladio.machine.run.machine import Machine
from palladio.machine.run.threads import Thread
from palladio.ops.control import loop
from palladio.types.effects import EffectKind
from palladio.types.transforms import Peer

RESULT, FIXED, LOOP, REACH, UNKNOWN = "result", "fixed", "loop", "reach", "unknown"
"""The kinds of decisions: the result of arithmetic; numbers that must stay the same; the bounds of a loop; the part of
a buffer of global memory, low ends, high ends and extents; a value about which nothing is known."""


class Decisions:
    """Records the decisions of one run, as `Machine.watch`.

    Args:
        shared: the buffers of global memory that several accesses share.
    """

    def __init__(self, machine: Machine, shared: Collection[str]) -> None:
        self.machine = machine
        self.shared = shared
        self.found: list[Decision] = []
        self.wanted: set[int] = set()

    def launch(self, launching: Any) -> None:
        """A launch begins."""
        self.wanted |= controlling(launching.programs)

    def __call__(self, thread: Thread, eqn: Eqn, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """An equation is evaluated, or a program that it runs begins."""

        def note(kind: str, numbers: Sequence[Any], results: Sequence[Any] = (), more: Any = ()) -> None:
            self.found.append(Decision(kind, (str(thread), line_of(eqn), *more), eqn, tuple(numbers), tuple(results)))

        if eqn.op.control:
            decide = [values[0] for values in zip(inputs, eqn.inputs, strict=True) if _is_in(values[1], deciding(eqn))]
            note(LOOP if eqn.op is loop else FIXED, decide)
        elif not eqn.effects and not any(isinstance(each, Store) for each in inputs):
            if id(eqn) in self.wanted:
                note(RESULT, inputs, outputs)
        else:
            self._acts(eqn, inputs, outputs, note)

    def _acts(self, eqn: Eqn, inputs: Sequence[Any], outputs: Sequence[Any], note: Callable[..., None]) -> None:
        """An equation reaches memory or other threads."""
        own = [value for value, atom in zip(inputs, eqn.inputs, strict=True) if _is_in(atom, fixed(eqn))]
        if own:
            note(FIXED, own)
        if id(eqn) in self.wanted:
            known = all(isinstance(each, Buffer) and each.shadow is None for each in inputs if isinstance(each, Store))
            note(FIXED if known else UNKNOWN, outputs)
        if not eqn.op.index_start:
            return
        indices = inputs[eqn.op.index_start :]
        skipped = any(np.ndim(each) == 0 and not each for each in own if np.asarray(each).dtype == np.bool_)
        same = set(range(len(indices))) if id(eqn) in self.wanted else set[int]()
        for store, atom, stack in zip(inputs, eqn.inputs, eqn.op.stacks(eqn.transforms), strict=False):
            if not isinstance(store, Buffer) or not is_global(store) or store.name in self.shared:
                same |= positions(stack)
            elif stack and isinstance(stack[0], Peer):  # of another device: which one may depend on the size
                note(UNKNOWN, ())
            elif not skipped:
                writes = any(var is atom and kind is not EffectKind.READ for kind, var in eqn.effects)
                self._reaches(store, stack, indices, writes, note)
        if same:
            note(FIXED, [indices[n] for n in sorted(same)])

    def _reaches(self, store: Buffer, stack: Any, indices: Any, writes: bool, note: Callable[..., None]) -> None:
        region = self.machine.checker.accesses.regions_of(store).resolve(stack, indices)
        bands = region.bands
        if bands is None or region.chosen is not None or any(len(each) != 1 for each in bands):
            note(FIXED, (*store.type.shape, *indices), more=(store.name, bands))
            return
        ends = [np.array([band[0][n] for band in bands], np.int64) for n in (0, 1)]
        note(REACH, (*ends, np.array(store.type.shape, np.int64)), more=(store.name, writes))


def _is_in(atom: Any, atoms: Sequence[Any]) -> bool:
    return any(atom is each for each in atoms)


__all__ = ["FIXED", "LOOP", "REACH", "RESULT", "UNKNOWN", "Decisions"]
