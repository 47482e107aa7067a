"""Keys of code on disk that are known before tracing: everything that decides the code, as a text.

A key covers the parts that its caller names, the types of the operands, the sources of this package, and the
interpreter. No key is made if a source changed after this process imported the package.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from palladio.base import object_store
from palladio.base.version import IMPORTED_NS, VERSION

PACKAGE = Path(__file__).parents[1]

_PLAIN = (type(None), bool, int, float, str, bytes)


class _Undescribed(Exception):
    """A value without a text that is the same in every process."""


def key(parts: Hashable, types: Sequence[Any], left_out: frozenset[str]) -> str | None:
    """The key of a program with these parts and types of operands; None if it cannot be stored.

    Args:
        parts: everything that its code depends on besides the package: plain values, dtypes, classes, tuples and
            dataclasses of them.
        left_out: names of folders of the package whose modules do not affect the code.
    """
    made_by = None if object_store.current() is None else sources(left_out)
    if made_by is None:
        return None
    try:
        described = _described((parts, tuple((type.shape, type.dtype) for type in types)))
    except _Undescribed:
        return None
    return hashlib.sha256("\0".join((made_by, described)).encode()).hexdigest()


def _described(value: object) -> str:
    """A text of a value that is the same in every process."""
    if isinstance(value, _PLAIN):
        return repr(value)
    if isinstance(value, np.dtype) and value.isnative:
        return f"dtype {value.name}"
    if isinstance(value, type):
        return f"class {value.__module__}.{value.__qualname__}"
    if isinstance(value, Enum):
        return f"{_described(type(value))} {value.name}"
    if isinstance(value, (tuple, list)):
        return f"({', '.join(map(_described, value))})"
    if is_dataclass(value):
        inner = ", ".join(f"{each.name}={_described(getattr(value, each.name))}" for each in fields(value))
        return f"{_described(type(value))}({inner})"
    raise _Undescribed


@cache
def sources(left_out: frozenset[str]) -> str | None:
    """A text of the package's version, the times and sizes of its sources, and the versions of the interpreter and of
    the libraries that all of it uses.

    None if a source has changed since this process imported the package, or if the sources are not files.
    """
    try:
        found = sorted((path, *facts(path)) for path in _files(PACKAGE, left_out))
    except OSError:
        return None
    if max((times[0] for _, *times in found if times), default=IMPORTED_NS) >= IMPORTED_NS:
        return None
    return repr((VERSION, found, sys.version, np.__version__, ml_dtypes.__version__))


def are_current(left_out: frozenset[str]) -> bool:
    """True if the sources are still those that keys are made of: modules may have been imported in between."""
    return sources.__wrapped__(left_out) == sources(left_out)


def _files(folder: Path, left_out: frozenset[str]) -> Iterator[str]:
    waiting = [str(folder)]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.name.endswith((".py", ".cuh")):
                    yield entry.path
                elif entry.name not in left_out and entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)


def facts(path: str) -> tuple[int, ...]:
    """The time of the last change of a file and its size; () if there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return ()
    return status.st_mtime_ns, status.st_size
