"""The host's processor and its instructions, as CPUID reports them, and the permission to use tile registers.

Sources: Intel's Software Developer's Manual, volume 2, CPUID and XGETBV; AMD's, volume 3, appendix E; the documentation
of the Linux kernel, "Using XSTATE features in user space applications".
"""

from __future__ import annotations

import ctypes
import sys

from palladio.cpu.runtime.executable import Executable

_CODE = bytes.fromhex(
    "53"  # push rbx
    "89 f0"  # mov eax, esi
    "89 d1"  # mov ecx, edx
    "0f a2"  # cpuid
    "89 07"  # mov [rdi], eax
    "89 5f 04"  # mov [rdi + 4], ebx
    "89 4f 08"  # mov [rdi + 8], ecx
    "89 57 0c"  # mov [rdi + 12], edx
    "5b"  # pop rbx
    "c3"  # ret
)
_STATE = bytes.fromhex(
    "31 c9"  # xor ecx, ecx
    "0f 01 d0"  # xgetbv
    "89 07"  # mov [rdi], eax
    "89 57 04"  # mov [rdi + 4], edx
    "c3"  # ret
)
_STATE_PLACE = 64

_SAVES = 1 << 27
"""OSXSAVE in ECX of leaf 1: XGETBV exists, and tells which registers the system saves."""

_LEAVES = ((0, 0), (7, 0), (7, 1), (7, 2), (0xD, 1), (0x14, 0), (0x19, 0), (0x1E, 1), (0x24, 0), (0x24, 1), (0x29, 0))
_MORE_LEAVES = tuple((0x80000000 + number, 0) for number in (0, 1, 7, 8, 0x21))
"""Leaves, with their subleaves, about the kind and the instructions of a processor, and that are equal on all cores."""


def described() -> tuple[int, ...]:
    """The processor's kind and instructions, and the registers that the system saves, as numbers.

    Raises:
        OSError: if the system provides no executable memory.
    """
    memory = Executable(_STATE_PLACE + len(_STATE))
    memory.bytes[: len(_CODE)] = _CODE
    memory.bytes[_STATE_PLACE:] = _STATE
    memory.seal()
    found = (ctypes.c_uint32 * 4)()
    pointer, number = ctypes.c_void_p, ctypes.c_uint32
    ask = ctypes.CFUNCTYPE(None, pointer, number, number)(memory.address)
    state = ctypes.CFUNCTYPE(None, pointer)(memory.address + _STATE_PLACE)

    def leaf(number: int, subleaf: int = 0) -> tuple[int, ...]:
        ask(ctypes.addressof(found), number, subleaf)
        return tuple(found)

    kind, _, features, more = leaf(1)  # EBX has the number of the core
    numbers = [kind, features, more]
    for leaves in (_LEAVES, _MORE_LEAVES):
        last = leaf(leaves[0][0])[0]
        for number, subleaf in leaves:
            numbers += leaf(number, subleaf) if number <= last else (0, 0, 0, 0)
    if features & _SAVES:
        state(ctypes.addressof(found))
        numbers += found[:2]
    return tuple(numbers)


_ARCH_PRCTL, _REQUEST, _TILE_DATA = 158, 0x1023, 18
"""The number of the system call on x86-64, ARCH_REQ_XCOMP_PERM, and the number of the state."""


def request_tiles() -> bool:
    """Ask the system for the tile registers, for all threads of this process; returns whether they may be used."""
    if not sys.platform.startswith("linux") or sys.maxsize < 1 << 32:
        return False
    return bool(ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST, _TILE_DATA) == 0)
