"""Parts of a run in separate processes, which print one record on each line and are killed at their time limit."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

MARK = "@@ "
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
    """

    def __init__(self, arguments: Sequence[str], limit_s: float) -> None:
        self._end = time.monotonic() + limit_s
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._other: list[str] = []
        self.ended: str | None = None
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        self._process = subprocess.Popen(
            [*PYTHON, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with self._process.stdout as lines:  # type: ignore[union-attr]
            for line in lines:
                self._lines.put(line)
        self._lines.put(None)

    def records(self) -> Iterator[dict[str, Any]]:
        """The records of the part, as they arrive. If it fails, `ended` is the reason afterwards."""
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, self._end - time.monotonic()))
            except queue.Empty:
                self._process.kill()
                self._process.wait()
                self._reader.join()
                self.ended = "ran past its time"
                return
            if line is None:
                break
            if line.startswith(MARK):
                yield json.loads(line.removeprefix(MARK))
            else:
                self._other = [*self._other, line.rstrip()][-LAST_LINES:]
        status = self._process.wait()
        if status:
            self.ended = f"ended with status {status}: " + " | ".join(self._other)
