"""Programs in forks of one process that has imported what is slow to import: PyTorch alone takes seconds."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from subprocess import CompletedProcess, Popen

SERVER = """
import gc, json, os, sys
exec(sys.argv[1])
gc.collect()
gc.freeze()
while line := sys.stdin.readline():
    child = os.fork()
    if not child:
        break
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
else:
    sys.exit()
program, environment, *paths = json.loads(line)
for number, path in enumerate((os.devnull, *paths)):
    os.dup2(os.open(path, os.O_RDWR | os.O_CREAT), number)
os.environ.clear()
os.environ.update(environment)
exec(compile(program, "<string>", "exec"))
"""
"""The forks leave the loop, so that they end as any process does, but for the garbage collector: it does not go through
what the process has imported, which takes seconds after PyTorch."""


class Forks:
    """Runs programs, each in a fork of the process; its output goes to files in the folder."""

    def __init__(self, process: Popen[str], folder: Path) -> None:
        self.process = process
        self.paths = [folder / "stdout", folder / "stderr"]

    def run(self, program: str, environment: Mapping[str, str], timeout: float = 300) -> CompletedProcess[str]:
        """As `subprocess.run` of `python -c`, with its output captured as text."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        for path in self.paths:
            path.unlink(missing_ok=True)
        request = json.dumps([program, dict(environment), *map(str, self.paths)])
        print(request, file=self.process.stdin, flush=True)
        if not select.select([self.process.stdout], [], [], timeout)[0]:
            os.killpg(self.process.pid, signal.SIGKILL)
            raise subprocess.TimeoutExpired(program, timeout)
        status = int(self.process.stdout.readline())
        stdout, stderr = (path.read_text(encoding="utf-8") for path in self.paths)
        return CompletedProcess(program, status, stdout, stderr)


@contextmanager
def forks(imports: str, folder: Path) -> Iterator[Forks]:
    """A process that has run these imports, in a session of its own."""
    # Python warns where a process with threads forks, as those of a BLAS library are.
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", SERVER, imports]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with Popen(command, start_new_session=True, **pipes) as process:
        yield Forks(process, folder)
        process.stdin.close()
