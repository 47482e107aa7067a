"""The status that compiled code returns."""


class Status:
    """The status that a kernel returns."""

    DONE = 0
    YIELDED = 1
    DEADLOCKED = 2
    FAILED = 3
    CALLBACK_FAILED = 4  # a callback to Python has failed


class LeftToEvaluator(Exception):
    """A call that only the evaluator runs, or explains."""


class Refetched(LeftToEvaluator):
    """A grid comes back to a block of an input that it has changed through an output."""


class Deadlocked(LeftToEvaluator):
    """All threads wait for each other, or one has an error that only the machine can explain."""
