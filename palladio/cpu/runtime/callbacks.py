"""Callbacks from a compiled kernel to Python: printing, checking, and polling for interrupts.

A kernel calls one function, which no other running kernel shares, with the address of a table: the number of the
callback, or `POLL`, then the addresses of the values. An exception is kept, and the kernel returns immediately.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Generator, Sequence
from typing import Any

import numpy as np

from palladio.base.dataclass import dataclass
from palladio.base.errors import Location, attach
from palladio.ir.core import Op
from palladio.types.types import ArrayType

POLL = -1
"""Sent by long-running kernels. On entry Python runs pending signal handlers, if this is the main thread."""

SIGNATURE = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)
WORD = ctypes.sizeof(ctypes.c_int64)


class Stopped(BaseException):
    """This thread stops because another one has failed."""


@dataclass(frozen=True)
class Callback:
    """An operation that Python performs on values of the kernel."""

    op: Op
    types: Sequence[ArrayType]
    params: dict[str, Any]
    location: Location | None

    def run(self, table: int) -> None:
        """Perform it on the values at the addresses in a table."""
        addresses = (ctypes.c_int64 * len(self.types)).from_address(table)
        values = [_value(address, type) for address, type in zip(addresses, self.types, strict=True)]
        with attach(self.location, f"running {self.op.name}"):
            self.op.eval(*values, **self.params)


def _value(address: int, type: ArrayType) -> Any:
    size = math.prod(type.shape) * type.dtype.itemsize
    memory = (ctypes.c_char * size).from_address(address)
    return np.frombuffer(bytearray(memory), type.dtype).reshape(type.shape)[()]


class Responder:
    """A function that one kernel at a time calls: a callback may itself call another kernel.

    Fields:
        address: the address of the function.
        callbacks: the callbacks of the running kernel.
        failed: not empty when another thread of the call has failed.
        error: the exception of the first call that did not return 0. A caller whose kernel has failed may poll again.
    """

    def __init__(self) -> None:
        self.callbacks: Sequence[Callback] = ()
        self.failed: Sequence[BaseException] = ()
        self.error: BaseException | None = None
        # A generator resumes inside its `try`, which catches the exceptions of signal handlers; a function begins
        # outside of it.
        answering = self._answer()
        next(answering)
        self._function = SIGNATURE(answering.send)
        self.address = ctypes.cast(self._function, ctypes.c_void_p).value or 0

    @staticmethod
    def take(callbacks: Sequence[Callback], failed: Sequence[BaseException]) -> Responder:
        """A responder that no other kernel uses."""
        try:
            taken = _IDLE.pop()
        except IndexError:
            taken = Responder()
        taken.callbacks, taken.failed, taken.error = callbacks, failed, None
        return taken

    def give(self) -> None:
        """Make the responder available to other kernels."""
        self.callbacks, self.failed, self.error = (), (), None
        _IDLE.append(self)

    def _answer(self) -> Generator[int, int, None]:
        answer = 0
        while True:
            try:
                while True:  # signals are handled at the end of an iteration too: in the outer `try`
                    try:
                        table = yield answer
                        answer = 0
                        if self.failed:
                            raise Stopped
                        number = ctypes.c_int64.from_address(table).value
                        if number != POLL:
                            self.callbacks[number].run(table + WORD)
                    except GeneratorExit:
                        return
                    except BaseException as error:
                        self.error, answer = self.error or error, 1
            except BaseException as error:
                self.error, answer = self.error or error, 1


_IDLE: list[Responder] = []
