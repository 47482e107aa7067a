"""The tile registers of the host's processor, which a process must ask the system for before it uses them.

Source: the documentation of the Linux kernel, "Using XSTATE features in user space applications".
"""

from __future__ import annotations

import ctypes
import sys

_ARCH_PRCTL, _REQUEST, _TILE_DATA = 158, 0x1023, 18
"""The number of the system call on x86-64, ARCH_REQ_XCOMP_PERM, and the number of the state."""


def tiles_are_granted() -> bool:
    """Ask for the tile registers, for all threads; returns whether they may be used."""
    if not sys.platform.startswith("linux") or sys.maxsize < 1 << 32:
        return False
    return bool(ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST, _TILE_DATA) == 0)
