"""Per-thread count of the held resources that other threads may wait for.

Between any two instructions Python may run the handler of a signal or a destructor, whatever the thread is at, and both
may call kernels. Two threads could so wait for each other. They never do, because a thread that holds something does
not wait for what another one prepares: it prepares the same itself.
"""

from __future__ import annotations

import threading


class Holding(threading.local):
    """The number of resources that this thread holds.

    Count with `HOLDING.count += 1`, `try`, `finally`, `HOLDING.count -= 1`, in place: there is no call in that, and so
    no moment at which an interrupt could come between the number and the block.
    """

    def __init__(self) -> None:
        self.count = 0


HOLDING = Holding()
