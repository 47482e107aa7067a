"""Induction over the steps of a ring: extends the verdict on a few sizes to every larger one.

The schedule is fixed: threads take turns. For each step of the machine its events (accesses, arrivals, waits, copies,
products) are recorded, and the state after it that determines the rest: phases of barriers relative to their waiting
threads, async ops in flight, and the part of each clock about accesses with which a later one can conflict. Neither
contains step numbers.

Let the steps of size k + p be those of size k with some parts repeated once more, and let the state before and after
each repetition be equal. Then the run of k + 2p reaches those states too, and continues from each of them as the run of
k + p does from the first: it has no findings either, and by induction for every n. The same holds for every other
schedule if each arrival of a phase happens after all those of the previous phase: then no schedule can count an arrival
towards another phase, so all have the same order, which determines races and deadlocks.

That larger sizes continue the pattern follows from the numbers that control threads, e.g. bounds of loops and
indices: they must be linear in the size and the rounds, see `values`. It assumes that the function makes the
corresponding kernel for each size: see docs/checking.md.
"""

from palladio.machine.check.induction.proof import FEWEST, obstacle
from palladio.machine.check.induction.recorder import InTurn, Recorder
from palladio.machine.check.induction.trace import Step, Trace

__all__ = ["FEWEST", "InTurn", "Recorder", "Step", "Trace", "obstacle"]
