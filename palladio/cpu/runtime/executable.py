"""Memory for machine code, without LLVM: on Linux and x86-64."""

from __future__ import annotations

import ctypes
import mmap
import platform
import sys

SUPPORTED = sys.platform == "linux" and platform.machine() == "x86_64" and sys.maxsize > 1 << 32
"""True if this process can make such memory, and run 64-bit x86 code in it."""

_READ_EXECUTE = 1 | 4  # PROT_READ | PROT_EXEC


class Executable:
    """Memory that is written first and run afterwards. It is unmapped with this object.

    Fields:
        bytes: the memory, zeros at first.
        address: where it begins, at the beginning of a page.
    """

    def __init__(self, size: int) -> None:
        flags, access = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.PROT_READ | mmap.PROT_WRITE
        self.bytes = mmap.mmap(-1, max(size, 1), flags, access)
        self._first = ctypes.c_char.from_buffer(self.bytes)
        self.address = ctypes.addressof(self._first)

    def seal(self) -> None:
        """Make the memory executable, and no longer writable.

        Raises:
            OSError: if the system refuses.
        """
        protect = ctypes.PyDLL(None).mprotect
        if protect(ctypes.c_void_p(self.address), ctypes.c_size_t(len(self.bytes)), _READ_EXECUTE):
            raise OSError("the system refuses to make memory executable")
