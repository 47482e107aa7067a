"""Work that no signal handler ends halfway."""

from __future__ import annotations

import _thread
import contextvars
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


def start_thread(function: Callable[..., Any], *arguments: Any) -> None:
    """Start a thread, in one step of C: an interrupt in `threading.Thread.start` may leave one that never begins.

    Raises:
        RuntimeError: where the system gives no more, and where the interpreter ends.
    """
    _thread.start_new_thread(function, arguments)


def uninterrupted(work: Callable[[], T]) -> T:
    """The result of a function that no signal handler may end halfway.

    Python runs handlers in the main thread only. So another thread calls the function, and an interrupt of the main
    thread is raised when the function has ended.
    """
    if threading.get_ident() != threading.main_thread().ident:
        return work()
    outcome: list[tuple[Any, BaseException | None]] = []
    begun, ended = threading.Lock(), threading.Lock()
    ended.acquire()

    def run() -> None:
        if not begun.acquire(blocking=False):
            return
        try:
            outcome.append((work(), None))
        except BaseException as error:
            outcome.append((None, error))
        finally:
            ended.release()

    interrupts = []
    try:
        start_thread(contextvars.copy_context().run, run)
    except (RuntimeError, MemoryError):
        return work()
    except BaseException as error:
        if begun.acquire(blocking=False):  # it is not to begin any more
            raise
        interrupts.append(error)
    while not outcome:
        try:
            ended.acquire()
        except BaseException as error:
            interrupts.append(error)
    result, error = outcome[0]
    if error or interrupts:
        raise error or interrupts[0]
    return result  # type: ignore[no-any-return]
