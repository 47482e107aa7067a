"""The sizes of the host's data caches, as Linux reports them."""

from __future__ import annotations

import functools
from pathlib import Path

_FOLDER = Path("/sys/devices/system/cpu/cpu0/cache")
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
ASSUMED = (32 << 10, 1 << 20, 8 << 20)
"""Bytes of the first, second and last level if the system does not report them: those of a common server core."""


@functools.cache
def cache_bytes(folder: Path = _FOLDER) -> tuple[int, int, int]:
    """The bytes of the first, the second and the last level of data cache that the first core reaches.

    A last level shared by several cores counts whole. A level that the system does not report is the one of `ASSUMED`.
    """
    found: dict[int, int] = {}
    for index in sorted(folder.glob("index*")):
        try:
            kind, level, size = (_read(index / name) for name in ("type", "level", "size"))
            if kind in ("Data", "Unified"):
                found[int(level)] = int(size.rstrip("KMG")) * _UNITS.get(size[-1:], 1)
        except (OSError, ValueError):
            continue
    first, second = found.get(1, ASSUMED[0]), found.get(2, ASSUMED[1])
    return first, second, found[max(found)] if max(found, default=0) > 2 else max(ASSUMED[2], second)


def _read(path: Path) -> str:
    with open(path, "rb", buffering=0) as file:
        return file.read().decode().strip()
