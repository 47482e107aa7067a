"""Compilation of a kernel's text to a cubin for sm_90a, by NVRTC, with a cache on disk.

NVRTC comes as a wheel (`pip install 'palladio[hopper]'`); neither a toolkit nor a GPU is needed. The cache holds cubins
rather than PTX, since a driver that is older than the wheel loads them as well.
"""

from __future__ import annotations

import ctypes
import hashlib
import re
from collections.abc import Sequence
from functools import cache
from importlib import util
from pathlib import Path

from palladio.base import object_store
from palladio.base.dataclass import dataclass
from palladio.base.errors import InternalError, PalladioError
from palladio.hopper.lowered import HEADER, Lowered
from palladio.hopper.wgmma import Wgmma, device_text

ARCHITECTURE = "sm_90a"
OPTIONS = (f"--gpu-architecture={ARCHITECTURE}", "-std=c++17", "--generate-line-info", "--ptxas-options=-v")
"""Options of NVRTC. Profilers need the table of lines, which leaves the code as it is; the statistics of ptxas show
register spills."""

_NAMES = ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so")


class MissingCompilerError(PalladioError, ImportError):
    """NVRTC is not installed."""


@dataclass(frozen=True)
class Cubin:
    """Machine code for sm_90a.

    Fields:
        code: the cubin, an ELF file.
        log: the output of NVRTC and ptxas.
    """

    code: bytes
    log: str

    def packed(self) -> bytes:
        """The cubin as one entry of the cache."""
        return self.log.encode() + b"\0" + self.code

    @property
    def registers(self) -> int:
        """Registers of each thread at the start of the kernel."""
        return int(_number(r"Used (\d+) registers", self.log))

    @property
    def spills(self) -> int:
        """Bytes of spill stores and loads."""
        return sum(map(int, re.findall(r"(\d+) bytes spill (?:stores|loads)", self.log)))

    @property
    def stack(self) -> int:
        """Bytes of the stack frame of each thread."""
        return sum(map(int, re.findall(r"(\d+) bytes stack frame", self.log)))

    @property
    def warnings(self) -> tuple[str, ...]:
        """The warnings of ptxas, e.g. of serialised wgmma (C7512 and its neighbours)."""
        return tuple(line.strip() for line in self.log.splitlines() if re.search(r"\(C\d+\)|warning", line))


def _number(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    return found[1] if found else "0"


@cache
def device_header() -> str:
    """The device primitives for sm_90a."""
    return (Path(__file__).parent / "device.cuh").read_text(encoding="utf-8")


def header(products: Sequence[Wgmma]) -> str:
    """The header of a kernel's text: the primitives, and the products that it uses."""
    return device_header() + device_text(products)


def located(text: str) -> str:
    """The text with `#line` before each line: the compiler counts on from one, but a line of Python is many lines."""
    lines: list[str] = []
    place: list[str] = []
    for line in text.splitlines():
        if line.startswith("#line"):
            place = [line]
        else:
            lines += [*place, line]
    return "\n".join(lines) + "\n"


def key(lowered: Lowered) -> str:
    """The cache key of a cubin: a hash of everything that determines it."""
    parts = (lowered.text, header(lowered.products), *OPTIONS, ".".join(map(str, version())))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def compiled(lowered: Lowered) -> Cubin:
    """The machine code of a kernel, from the cache of `PALLADIO_CACHE` if present.

    Raises:
        MissingCompilerError: if NVRTC is not installed.
        InternalError: if it refuses the text.
    """
    kept, _ = object_store.compiled_once(key(lowered), lambda: _compiled(lowered).packed())
    log, _, code = kept.partition(b"\0")
    return Cubin(code, log.decode())


def _compiled(lowered: Lowered) -> Cubin:
    library = _library()
    program = ctypes.c_void_p()
    included = (ctypes.c_char_p * 1)(header(lowered.products).encode())
    names = (ctypes.c_char_p * 1)(HEADER.encode())
    made = (ctypes.byref(program), located(lowered.text).encode(), f"{lowered.name}.cu".encode(), 1, included, names)
    _check(library, library.nvrtcCreateProgram(*made))
    try:
        options = (ctypes.c_char_p * len(OPTIONS))(*(option.encode() for option in OPTIONS))
        status = library.nvrtcCompileProgram(program, len(OPTIONS), options)
        log = _taken(library, "ProgramLog", program).rstrip(b"\0").decode(errors="replace")
        if status:
            raise InternalError(f"NVRTC refuses the text of {lowered.name}:\n{log}")
        return Cubin(_taken(library, "CUBIN", program), log)
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def _taken(library: ctypes.CDLL, what: str, program: ctypes.c_void_p) -> bytes:
    size = ctypes.c_size_t()
    _check(library, getattr(library, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
    room = ctypes.create_string_buffer(size.value)
    _check(library, getattr(library, f"nvrtcGet{what}")(program, room))
    return room.raw


def _check(library: ctypes.CDLL, status: int) -> None:
    if status:
        library.nvrtcGetErrorString.restype = ctypes.c_char_p
        raise InternalError(f"NVRTC failed: {library.nvrtcGetErrorString(status).decode()}")


@cache
def version() -> tuple[int, int]:
    """The version of NVRTC."""
    library = _library()
    major, minor = ctypes.c_int(), ctypes.c_int()
    _check(library, library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
    return major.value, minor.value


@cache
def _library() -> ctypes.CDLL:
    """NVRTC: from its wheel, else from the path of the system's loader."""
    for folder in _folders():
        for name in _NAMES:
            if (folder / name).exists():
                for builtins in folder.glob("libnvrtc-builtins.so*"):
                    ctypes.CDLL(str(builtins))  # NVRTC loads it by name, which some releases do not find beside them
                return ctypes.CDLL(str(folder / name))
    for name in _NAMES:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise MissingCompilerError(
        "kernels for Hopper are compiled by NVRTC, which is not installed",
        expected=f"one of {', '.join(_NAMES)}",
        hint="pip install 'palladio[hopper]'",
    )


def _folders() -> list[Path]:
    """The library folders of NVIDIA's wheels."""
    found = util.find_spec("nvidia")
    places = list(found.submodule_search_locations or ()) if found else []
    return [folder for place in places for folder in sorted(Path(place).glob("*/lib"), reverse=True)]
