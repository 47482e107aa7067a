"""The last call of a kernel, which the next one repeats if nothing that it depends on has changed.

A prepared call is found by a key of all that it depends on. Making the key and hashing it takes as long as many a small
kernel; comparing its parts with those of the last call takes a fraction.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

from palladio.call.ahead import SETTINGS
from palladio.call.staged import CALLS
from palladio.driver.executors import EXECUTORS, Executor
from palladio.driver.fingerprint import Remembered
from palladio.ir.evaluate import Runner

State = tuple[int, list[Any], Executor]
"""The number of times that prepared calls were forgotten, the settings that calls depend on, and the executor."""


class _Call(NamedTuple):
    """A call: the key of its captured values, all else that it depends on, and the function of its operands.

    Fields:
        single: the function of operands in row-major order that returns the only result, if there is one.
    """

    key: Hashable
    cleared: int
    settings: list[Any]
    types: list[Any]
    executor: Executor
    run: Runner
    single: Callable[[Sequence[Any]], Any] | None

    def results(self, arrays: Sequence[Any]) -> Sequence[Any]:
        """The results of the call."""
        if self.single is not None:
            for array in arrays:
                if not array.flags.c_contiguous:
                    break
            else:
                return (self.single(arrays),)
        return self.run(arrays)


class LastCall(Remembered):
    """The fingerprint of a function, and the last call of it on NumPy arrays. Safe for use from many threads."""

    def __init__(self) -> None:
        super().__init__()
        self._call: _Call | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return LastCall, ()

    def find(self, interpret: Any, arrays: Sequence[Any], parts: Sequence[Any]) -> _Call | None:
        """The last call, if this one would be the same.

        Args:
            interpret: of the call.
            arrays: its arguments, NumPy arrays.
            parts: those of the fingerprint.
        """
        call = self._call
        if call is None or [(array.shape, array.dtype) for array in arrays] != call.types:
            return None
        if interpret is not None and EXECUTORS.get(interpret) is not call.executor:
            return None
        if call.cleared != CALLS.cleared or [read() for read in SETTINGS] != call.settings:
            return None
        return call if self.holds(call.key, parts) else None

    @staticmethod
    def state(interpret: Any, executor: Executor) -> State | None:
        """The present state, to be read before a call is looked up; None for a call that `find` does not find."""
        named = interpret is None or (type(interpret) is str and EXECUTORS.get(interpret) is executor)
        return None if not named or executor.on_card else (CALLS.cleared, [read() for read in SETTINGS], executor)

    def note(self, state: State, types: Sequence[Any], key: Hashable, run: Runner, is_single: bool) -> None:
        """Note a call on NumPy arrays; `key` is its fingerprint, and `is_single` is true if it has one result."""
        cleared, settings, executor = state
        prepared = getattr(run, "prepared", None) if is_single else None
        single = prepared and prepared(None, 1)
        self._call = _Call(key, cleared, settings, [*types], executor, run, single)
