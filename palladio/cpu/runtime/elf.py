"""Loading machine code from an object file (ELF, x86-64) without LLVM, whose import takes longer than a small kernel.

LLVM compiles for the large code model: addresses are 64-bit constants in the code, so that an object can be loaded
anywhere. An object that has anything else, and those of other systems, are left to LLVM.

Sources: System V ABI, chapters 4 and 5; its AMD64 supplement, 4.2 and 4.4.
"""

from __future__ import annotations

import ctypes
import functools
import struct
from typing import NamedTuple

from palladio.cpu.runtime.executable import SUPPORTED, Executable


class Section(NamedTuple):
    """`Elf64_Shdr`."""

    name: int
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry_size: int


class Symbol(NamedTuple):
    """`Elf64_Sym`."""

    name: int
    info: int
    other: int
    section: int
    value: int
    size: int


_HEADER = struct.Struct("<4sBBB9xHHIQQQIHHHHHH")
_SECTION, _SYMBOL, _RELOCATION = struct.Struct("<IIQQQQIIQQ"), struct.Struct("<IBBHQQ"), struct.Struct("<QIIq")
_KIND = b"\x7fELF", 2, 1, 1, 1, 62  # 64 bits, little-endian, version 1, relocatable, AMD64
_SYMTAB, _RELA, _UNWIND = 2, 4, 0x70000001  # SHT_…
_WRITE, _ALLOC, _EXECUTE = 1, 2, 4  # SHF_…
_UNDEFINED = 0  # SHN_UNDEF
_ABSOLUTE, _RELATIVE = 1, 24  # R_X86_64_64, R_X86_64_PC64

_LINE_BYTES = 64


class Unknown(Exception):
    """The object has something that only LLVM can load."""


class Loaded:
    """The code of an object file, which can be run as long as this object lives.

    Raises:
        Unknown: if it has something that only LLVM can load.
        OSError: if the system provides no executable memory.
    """

    def __init__(self, code: bytes) -> None:
        self._code = code
        self._sections = _sections(code)
        self._starts, size = _placed(self._sections)
        self._memory = Executable(size)
        for number, start in self._starts.items():
            section = self._sections[number]
            self._memory.bytes[start : start + section.size] = _content(code, section)
        self._read_symbols()
        for section in self._sections:
            if section.type == _RELA and section.info in self._starts:
                self._relocate(section)
        self._memory.seal()

    def address(self, name: str) -> int:
        """The address of a function that the object defines."""
        for symbol in self._symbols:
            if symbol.section != _UNDEFINED and self._name(symbol) == name:
                return self._address(symbol)
        raise Unknown(name)

    def _read_symbols(self) -> None:
        tables = [section for section in self._sections if section.type == _SYMTAB]
        if len(tables) != 1:
            raise Unknown("symbols")
        (table,) = tables
        self._symbols = [Symbol(*each) for each in _SYMBOL.iter_unpack(_content(self._code, table))]
        self._names = _content(self._code, self._sections[table.link])

    def _name(self, symbol: Symbol) -> str:
        return self._names[symbol.name : self._names.index(b"\0", symbol.name)].decode()

    def _address(self, symbol: Symbol) -> int:
        if symbol.section == _UNDEFINED:
            return external(self._name(symbol))
        if symbol.section not in self._starts:  # also those of the reserved sections: common and absolute symbols
            raise Unknown(self._name(symbol))
        return self._memory.address + self._starts[symbol.section] + symbol.value

    def _relocate(self, section: Section) -> None:
        """Write the addresses that a section needs into it."""
        for offset, kind, number, addend in _RELOCATION.iter_unpack(_content(self._code, section)):
            if kind not in (_ABSOLUTE, _RELATIVE):
                raise Unknown(f"relocation {kind}")
            start = self._starts[section.info] + offset
            value = self._address(self._symbols[number]) + addend
            if kind == _RELATIVE:
                value -= self._memory.address + start
            self._memory.bytes[start : start + 8] = (value % (1 << 64)).to_bytes(8, "little")


def _sections(code: bytes) -> list[Section]:
    *kind, type, machine, _, _, _, first, _, _, _, _, size, count, _ = _HEADER.unpack_from(code)
    if (*kind, type, machine) != _KIND or size != _SECTION.size:
        raise Unknown("file")
    return [Section(*_SECTION.unpack_from(code, first + number * size)) for number in range(count)]


def _placed(sections: list[Section]) -> tuple[dict[int, int], int]:
    """The offset in memory of each section that is loaded, by its number, and the bytes of all."""
    found, size = {}, 0
    for number, section in enumerate(sections):
        # No exception passes through a kernel, so its frames are never unwound.
        if section.flags & _ALLOC and section.type != _UNWIND:
            if section.flags & _WRITE and section.size:
                raise Unknown("variables")
            # The alignment of loops is relative to cache lines, as if the code began with a page.
            size += -size % max(_LINE_BYTES if section.flags & _EXECUTE else 1, section.alignment)
            found[number] = size
            size += section.size
    return found, size


def _content(code: bytes, section: Section) -> bytes:
    return code[section.offset : section.offset + section.size]


@functools.cache
def external(name: str) -> int:
    """The address of a function of this process, e.g. of the C library.

    Raises:
        Unknown: if there is none.
    """
    try:
        return ctypes.cast(getattr(ctypes.PyDLL(None), name), ctypes.c_void_p).value or 0
    except AttributeError:
        raise Unknown(name) from None


def loaded(code: bytes) -> Loaded | None:
    """The code of an object file, ready to run; None if LLVM has to load it."""
    if not SUPPORTED:
        return None
    try:
        return Loaded(code)
    except (Unknown, OSError):
        return None
