"""Loading machine code from an object file (ELF, x86-64) without LLVM, whose import takes longer than a small kernel.

LLVM compiles for the large code model: addresses are 64-bit constants in the code, so that an object can be loaded
anywhere. An object that has anything else, and those of other systems, are left to LLVM.

Sources: System V ABI, chapters 4 and 5; its AMD64 supplement, 4.2 and 4.4.
"""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Sequence
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
_GLOBAL = 1  # STB_GLOBAL
_ABSOLUTE, _RELATIVE = 1, 24  # R_X86_64_64, R_X86_64_PC64

_SEVERAL, _LENGTH = b"objects\0", struct.Struct("<Q")
"""The beginning of several object files in one entry of a store, and the bytes before each of them."""

_LINE_BYTES = 64


class Unknown(Exception):
    """The object has something that only LLVM can load."""


class _Object:
    """One object file, which is loaded to an offset of some memory.

    Args:
        first: the bytes of the memory before it.

    Fields:
        size: the bytes of the memory up to its end.
    """

    def __init__(self, code: bytes, first: int) -> None:
        self._code = code
        self._sections = _sections(code)
        self._starts, self.size = _placed(self._sections, first)
        tables = [section for section in self._sections if section.type == _SYMTAB]
        if len(tables) != 1:
            raise Unknown("symbols")
        (table,) = tables
        self._symbols = [Symbol(*each) for each in _SYMBOL.iter_unpack(_content(code, table))]
        self._names = _content(code, self._sections[table.link])

    def copy(self, memory: Executable) -> None:
        """Write the sections into the memory."""
        for number, start in self._starts.items():
            section = self._sections[number]
            memory.bytes[start : start + section.size] = _content(self._code, section)

    def functions(self) -> dict[str, int]:
        """The offsets of the functions that other code can call, by name."""
        found = {}
        for symbol in self._symbols:
            if symbol.section != _UNDEFINED and symbol.info >> 4 == _GLOBAL:
                found[self._name(symbol)] = self._offset(symbol)
        return found

    def _name(self, symbol: Symbol) -> str:
        return self._names[symbol.name : self._names.index(b"\0", symbol.name)].decode()

    def _offset(self, symbol: Symbol) -> int:
        if symbol.section not in self._starts:  # also those of the reserved sections: common and absolute symbols
            raise Unknown(self._name(symbol))
        return self._starts[symbol.section] + symbol.value

    def relocate(self, memory: Executable, functions: dict[str, int]) -> None:
        """Write the addresses that the sections need into them.

        Args:
            functions: the offsets of those of all objects.
        """
        for section in self._sections:
            if section.type == _RELA and section.info in self._starts:
                self._relocate(section, memory, functions)

    def _relocate(self, section: Section, memory: Executable, functions: dict[str, int]) -> None:
        for offset, kind, number, addend in _RELOCATION.iter_unpack(_content(self._code, section)):
            if kind not in (_ABSOLUTE, _RELATIVE):
                raise Unknown(f"relocation {kind}")
            start = self._starts[section.info] + offset
            symbol = self._symbols[number]
            if symbol.section != _UNDEFINED:
                value = memory.address + self._offset(symbol)
            elif (name := self._name(symbol)) in functions:
                value = memory.address + functions[name]
            else:
                value = external(name)
            value += addend
            if kind == _RELATIVE:
                value -= memory.address + start
            memory.bytes[start : start + 8] = (value % (1 << 64)).to_bytes(8, "little")


class Loaded:
    """The code of object files, which can be run as long as this object lives.

    Raises:
        Unknown: if it has something that only LLVM can load.
        OSError: if the system provides no executable memory.
    """

    def __init__(self, code: bytes) -> None:
        objects: list[_Object] = []
        for part in parts(code):
            objects.append(_Object(part, objects[-1].size if objects else 0))
        self._memory = Executable(objects[-1].size)
        self._functions: dict[str, int] = {}
        for each in objects:
            each.copy(self._memory)
            self._functions |= each.functions()
        for each in objects:
            each.relocate(self._memory, self._functions)
        self._memory.seal()

    def address(self, name: str) -> int:
        """The address of a function that an object defines."""
        if name not in self._functions:
            raise Unknown(name)
        return self._memory.address + self._functions[name]


def joined(objects: Sequence[bytes]) -> bytes:
    """Object files that refer to each other's functions, as one entry of a store; a single one is unchanged."""
    if len(objects) == 1:
        return objects[0]
    return _SEVERAL + b"".join(_LENGTH.pack(len(each)) + each for each in objects)


def parts(code: bytes) -> list[bytes]:
    """The object files that `joined` has joined."""
    if not code.startswith(_SEVERAL):
        return [code]
    found, place = [], len(_SEVERAL)
    while place < len(code):
        (length,) = _LENGTH.unpack_from(code, place)
        place += _LENGTH.size
        found.append(code[place : place + length])
        place += length
    return found


def _sections(code: bytes) -> list[Section]:
    *kind, type, machine, _, _, _, first, _, _, _, _, size, count, _ = _HEADER.unpack_from(code)
    if (*kind, type, machine) != _KIND or size != _SECTION.size:
        raise Unknown("file")
    return [Section(*_SECTION.unpack_from(code, first + number * size)) for number in range(count)]


def _placed(sections: list[Section], size: int) -> tuple[dict[int, int], int]:
    """The offset in memory of each section that is loaded, by its number, and the bytes with all.

    Args:
        size: the bytes before them.
    """
    found = {}
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
    """The code of object files, ready to run; None if LLVM has to load it."""
    if not SUPPORTED:
        return None
    try:
        return Loaded(code)
    except (Unknown, OSError):
        return None
