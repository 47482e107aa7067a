"""Parts of a run in separate processes, which print one record on each line and are killed at their time limit."""

from __future__ import annotations

import json
import math
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

MARK = "@@ "
LOST = 3
"""The exit status of a process that has lost its CUDA context, and is replaced by another one."""
PAST = "ran past its time"
START_S = 90.0
"""Further seconds until the first line of a process: it imports PyTorch, from a disk that may be slow."""
KILL_S = 5.0
"""Seconds to wait for a killed process; the driver may hold one up for as long as its kernel runs."""
PYTHON: list[str] = [sys.executable, "-m", "benchmarks.gpu"]
"""The command that starts a part."""
LAST_LINES = 12


def say(**record: Any) -> None:
    """Send a record to the parent process."""
    print(MARK + json.dumps(record), flush=True)


class Part:
    """A part of a run, in a child process.

    Args:
        arguments: of `python -m benchmarks.gpu`.
        limit_s: seconds after which it is killed.
        record_s: seconds without a record after which it is killed; the first line may take `START_S` more.

    Raises:
        Interrupted: all parts have been killed.
    """

    def __init__(self, arguments: Sequence[str], limit_s: float, record_s: float = math.inf) -> None:
        self._end = time.monotonic() + limit_s
        self._record_s = record_s
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._other: list[str] = []
        self.ended: str | None = None
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        with _STARTING:
            if _STOPPED.is_set():
                raise Interrupted
            self._process = subprocess.Popen(
                [*PYTHON, *arguments],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                env=environment,
                start_new_session=True,
            )
            _RUNNING.add(self)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with self._process.stdout as lines:  # type: ignore[union-attr]
            for line in lines:
                self._lines.put(line)
        self._lines.put(None)

    def records(self) -> Iterator[dict[str, Any]]:
        """The records of the part, as they arrive. If it fails, `ended` is the reason afterwards."""
        end, first = min(self._end, time.monotonic() + START_S + self._record_s), True
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                self.kill()
                self.ended = ": ".join([PAST, *self._other[-1:]])
                return
            if line is None:
                break
            if line.startswith(MARK):
                yield json.loads(line.removeprefix(MARK))
            if first or line.startswith(MARK):
                end, first = min(self._end, time.monotonic() + self._record_s), False
            if not line.startswith(MARK):
                self._other = [*self._other, line.rstrip()][-LAST_LINES:]
        try:
            status = self._process.wait(max(0.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.kill()
            self.ended = PAST
            return
        _RUNNING.discard(self)
        if status:
            self.ended = f"ended with status {status}: " + " | ".join(self._other)

    def kill(self) -> None:
        """Kill the process and those that it has started. One that does not end soon is left to the system."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        try:
            self._process.wait(KILL_S)
        except subprocess.TimeoutExpired:
            print(f"process {self._process.pid} does not end", flush=True)
        _RUNNING.discard(self)


class Interrupted(Exception):
    """The run has been interrupted: no part is started any more."""


_RUNNING: set[Part] = set()
_STARTING = threading.Lock()
_STOPPED = threading.Event()


def all_killed() -> bool:
    """True if the run has ended: what its parts said last is of no interest."""
    return _STOPPED.is_set()


@contextmanager
def killed_at_end() -> Iterator[None]:
    """A block whose parts are killed when it ends, and that starts none from then on, in any thread."""
    _STOPPED.clear()
    try:
        yield
    finally:
        kill_all()


def kill_all() -> None:
    """Kill all parts, and start none from now on."""
    with _STARTING:
        _STOPPED.set()
    for part in [*_RUNNING]:
        part.kill()
