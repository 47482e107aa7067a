"""The happens-before edges of semaphores, and the check that they end at zero."""

from __future__ import annotations

from palladio.ir.core import Eqn
from palladio.machine.check.found import Found
from palladio.machine.check.order.barriers import arrival_of
from palladio.machine.check.order.history import History
from palladio.machine.check.order.signals import Signals
from palladio.machine.check.order.threads import acquire, epoch, released
from palladio.machine.run.buffers import Counter, Semaphores
from palladio.machine.run.clocks import ComponentTable
from palladio.machine.run.threads import Thread
from palladio.types.attributes import Global


class SemaphoreOrder:
    """Signals release to the waits that could not have returned without them."""

    def __init__(self, found: Found, history: History) -> None:
        self.found = found
        self.history = history
        self._components = ComponentTable(-1)

    def order_of(self, counter: Counter) -> Signals:
        """The signals of a semaphore."""
        if counter.order is None:
            counter.order = Signals()
            counter.component = self._components.new(f"copies to {counter.name}")
        return counter.order  # type: ignore[no-any-return]

    def signals(self, thread: Thread, eqn: Eqn, counter: Counter, amount: int) -> None:
        """A signal releases the thread's clocks."""
        clocks = thread.generic.copy(), thread.asynchronous.copy()
        self.history.releases(thread, eqn, counter.token)
        self.order_of(counter).add(amount, clocks, thread.component, epoch(thread))
        released(thread)

    def acquires(self, thread: Thread, counter: Counter, amount: int, taken: bool) -> None:
        """A wait for a semaphore returns, and may have decremented it by the amount."""
        if counter.order is None:
            return
        self.history.acquires(thread, counter.token)
        acquire(thread, counter.order.acquired(amount, thread.generic))
        if taken:
            counter.kept = max(counter.kept - amount, 0)
            counter.order.taken(amount, thread.component, epoch(thread))
            released(thread)
        else:
            counter.kept = max(counter.kept, amount)

    def ends(self, semaphores: Semaphores, cleared: bool) -> None:
        """The semaphores are given back. A copy that is still in flight counts as landed: it may land at any time.

        Args:
            cleared: their memory is cleared before it is used again. Then a count that waits have waited for, and have
                left there, is harmless.
        """
        if semaphores.type.attribute(Global) is not None:
            return
        for counter in semaphores.counters:
            left = counter.count + sum(counter.copies.values())
            if left:
                raised = [*counter.signals, *((copy, copy.eqn) for copy in counter.copies)]
                self.found.report(
                    "semaphore-not-drained",
                    f"{counter.name} ends at {left}",
                    [arrival_of(each) for each in raised[-1:]],
                    level="hint" if cleared and left <= counter.kept else "error",
                )
