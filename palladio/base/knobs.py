"""Every environment variable that Palladio reads, in one table.

A knob is read on every use, so that tests and long-lived processes can change it.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

from palladio.base.dataclass import dataclass
from palladio.base.errors import PalladioValueError

T = TypeVar("T")

_TEXTS: Mapping[Any, Any] = getattr(os.environ, "_data", os.environb if os.name == "posix" else os.environ)
"""The names that are set, by the dictionary behind `os.environ`: that one takes ten times as long to look for a name,
and every call of a kernel looks for three."""


@dataclass(frozen=True)
class Knob(Generic[T]):
    """One environment variable: its name, effect, default and parser."""

    name: str
    doc: str
    default: T
    read: Callable[[str], T]

    @functools.cached_property
    def _key(self) -> Any:
        return os.fsencode(self.name) if os.name == "posix" else self.name

    @property
    def place(self) -> tuple[Mapping[Any, Any], Any]:
        """A container and a key, which is in it if the variable is set."""
        return _TEXTS, self._key

    def get(self) -> T:
        """The value now. A text that cannot be read is a `PalladioValueError` that names the variable."""
        if self._key not in _TEXTS:
            return self.default
        text = os.environ.get(self.name, "")
        if text == "":
            return self.default
        try:
            return self.read(text)
        except ValueError as error:
            raise PalladioValueError(
                "the environment variable cannot be read", argument=self.name, got=repr(text), expected=str(error)
            ) from None


def _flag(text: str) -> bool:
    if text.lower() in ("1", "true", "yes", "on"):
        return True
    if text.lower() in ("0", "false", "no", "off"):
        return False
    raise ValueError("1 or 0")


executor: Knob[str | None] = Knob(
    "PALLADIO_EXECUTOR", "Which executor runs kernels when neither argument nor context says.", None, str
)
verify: Knob[bool] = Knob(
    "PALLADIO_VERIFY", "Verify the program after every pass, not only at stage borders.", False, _flag
)
debug_checks: Knob[bool] = Knob("PALLADIO_DEBUG_CHECKS", "Evaluate `debug_check` conditions in kernels.", False, _flag)


def _count(meaning: str) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not text.strip().isdecimal():
            raise ValueError(meaning)
        return int(text)

    return read


threads: Knob[int] = Knob(
    "PALLADIO_NUM_THREADS",
    "How many threads a compiled kernel runs on; 0 for all cores that the process may use.",
    0,
    _count("a number of threads, or 0 for all cores"),
)


def allowed_cores() -> frozenset[int]:
    """The cores that this process may use, fewer than there are in a container or under `taskset`.

    Empty where the system does not report them.
    """
    return frozenset(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else frozenset()


@functools.cache  # a slow system call
def _cores() -> int:
    return len(allowed_cores()) or os.cpu_count() or 1


def thread_count() -> int:
    """The number of threads that a compiled kernel runs on."""
    return threads.get() or _cores()


def host_devices() -> int:
    """The devices that `XLA_FLAGS` asks for, as files that import JAX set it before the import; one by default."""
    found = re.findall(r"--xla_force_host_platform_device_count=(\d+)", os.environ.get("XLA_FLAGS", ""))
    return max(1, int(found[-1])) if found else 1


CACHE_BYTES = 256 << 20
"""Bytes that are kept on disk."""

cache: Knob[str] = Knob(
    "PALLADIO_CACHE",
    f"The folder in which compiled kernels are kept, {CACHE_BYTES >> 20} MiB of them at most, those used last; it may "
    "be removed at any time. What lies there is run: a folder that belongs to another user than root, or that others "
    "can write to, is not used, with a warning. `0` keeps nothing. By default `palladio` in the user's cache folder.",
    "",
    str,
)


def cache_folder() -> Path | None:
    """The folder in which compiled kernels are kept, or None if they are not to be."""
    chosen = cache.get()
    try:
        if chosen:
            return None if chosen == "0" else Path(chosen).expanduser()
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "palladio"
    except RuntimeError:  # the user, or the one that is named, has no home
        return None


INSTRUCTIONS = ("native", "amx", "avx512bf16", "avx512", "avx2", "portable")


def _instructions(text: str) -> str:
    if text not in INSTRUCTIONS:
        raise ValueError(", ".join(INSTRUCTIONS))
    return text


instructions: Knob[str] = Knob(
    "PALLADIO_CPU",
    "The vector instructions that kernels are compiled for: `native`, all that the processor has; `amx` (AVX-512 with "
    "tile registers), `avx512bf16`, `avx512` or `avx2`; `portable`, those of every processor of its kind (x86-64-v2 "
    "with SSE4.2, or any aarch64).",
    "native",
    _instructions,
)

traceback: Knob[bool] = Knob(
    "PALLADIO_TRACEBACK",
    "Show the frames of Palladio itself in the tracebacks of user errors; they are hidden otherwise.",
    False,
    _flag,
)

synchronous: Knob[bool] = Knob(
    "PALLADIO_SYNCHRONOUS",
    "Wait for each kernel on a GPU, so that an error names the kernel that failed; slow, and not while a CUDA graph is "
    "captured.",
    False,
    _flag,
)

kept_memory: Knob[int | None] = Knob(
    "PALLADIO_KEPT_MEMORY",
    "MiB of memory that a process keeps of results that are gone, for the results of later calls; fresh memory takes "
    "longer, since the system clears it. By default a sixteenth of the memory of the machine, or of the container as "
    "far as the system tells, and at least 256. `0` keeps nothing.",
    None,
    _count("a number of MiB"),
)

copies: Knob[bool] = Knob(
    "PALLADIO_WARN_COPIES",
    "Warn (`CopyWarning`) wherever an array of more than 4096 bytes is copied on its way into a kernel or out of it: "
    "one that is not in row-major order, whose bytes are in the other order, that the kernel writes, or that goes to "
    "JAX.",
    False,
    _flag,
)

ALL: tuple[Knob[Any], ...] = (
    executor,
    verify,
    debug_checks,
    threads,
    cache,
    instructions,
    traceback,
    synchronous,
    kept_memory,
    copies,
)
