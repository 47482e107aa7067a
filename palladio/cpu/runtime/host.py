"""The processor that kernels are compiled for: the only module that knows its features.

`PALLADIO_CPU` restricts it. The restricted kinds are those of the x86-64 psABI (v2, v3, v4), whatever the processor is
called, so that a kernel compiled for one of them is the same kernel on every machine.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from palladio.base import knobs
from palladio.base.dataclass import dataclass
from palladio.base.errors import PalladioValueError
from palladio.cpu.runtime.caches import cache_bytes
from palladio.cpu.runtime.cpuid import request_tiles
from palladio.cpu.runtime.detected import detected

_TILES = frozenset({"amx-tile", "amx-bf16", "amx-int8"})


@dataclass(frozen=True)
class Processor:
    """A processor.

    Fields:
        triple, cpu, features: its names and features, as LLVM writes them.
        vector_bytes: the bytes of a vector register.
        vectors: the number of vector registers.
        fuses: multiplies and adds in one instruction, rounded once.
        converts_halves: converts between float16 and float32.
        scales: multiplies float32 by powers of two, with VSCALEFPS.
        multiplies_pairs: multiplies pairs of bfloat16 and sums them in float32, with VDPBF16PS.
        multiplies_quads: multiplies four uint8 by four int8 and sums them in int32, with VPDPBUSD.
        multiplies_elements: multiplies a vector by an element in memory and adds the product in one instruction.
        multiplies_tiles: multiplies tiles of these pairs and quads, with TDPBF16PS, TDPBUSD and TDPBSSD.
        streamed_bytes: the total size of a call's arrays from which it writes past the caches: little of the first ones
            would still be cached at the end.
        fetched_bytes: the size of the largest blocks that are prefetched during the work on those before them: a
            second-level cache holds two.
        near_bytes: the size of a second-level cache.
    """

    triple: str
    cpu: str
    features: str
    vector_bytes: int
    vectors: int
    fuses: bool
    converts_halves: bool
    scales: bool
    multiplies_pairs: bool
    multiplies_quads: bool
    multiplies_elements: bool = False
    multiplies_tiles: bool = False
    streamed_bytes: int = 1 << 25
    fetched_bytes: int = 1 << 18
    near_bytes: int = 1 << 19

    @staticmethod
    def of(triple: str, cpu: str, features: str, has: frozenset[str]) -> Processor:
        """The processor of a triple that has some features."""
        arm = triple.startswith(("aarch64", "arm64"))
        wide = "avx512f" in has
        return Processor(
            triple,
            cpu,
            features,
            vector_bytes=64 if wide else 32 if "avx" in has else 16,
            vectors=32 if wide or arm else 16,
            fuses=arm or "fma" in has,
            converts_halves=arm or "f16c" in has,
            scales=wide,
            multiplies_pairs="avx512bf16" in has,
            multiplies_quads=wide and "avx512vnni" in has,
            multiplies_elements=wide,
            multiplies_tiles=has >= _TILES and {"avx512bf16", "avx512vnni"} <= has,
        )

    @property
    def prefetches(self) -> bool:
        """True if micro-kernels have time to prefetch.

        A step of narrow vectors is too short: it multiplies 12 vectors in 6 cycles, with 8 of the 12 possible loads.
        """
        return self.vector_bytes == 64

    @property
    def sums(self) -> tuple[int, int]:
        """The rows, and the bytes of each row, of sums that its registers hold beside the factors."""
        if self.vector_bytes == 64:
            return 14, 128  # 28 of 32 registers
        if self.vectors * self.vector_bytes >= 512:
            return 6, 64  # 12 of 16, or 24 of 32
        return 2, 64  # 8 of 16: the products take registers too, as another instruction adds them


_V2 = frozenset({"sse3", "ssse3", "sse4.1", "sse4.2", "popcnt", "cx16"})
_V3 = _V2 | {"avx", "avx2", "fma", "f16c", "bmi", "bmi2", "lzcnt", "movbe"}
_V4 = _V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}

_X86 = {
    "portable": ("x86-64-v2", "", _V2),
    "avx2": ("x86-64-v3", "", _V3),
    "avx512": ("x86-64-v4", "", _V4),
    "avx512bf16": ("x86-64-v4", "+avx512bf16", _V4 | {"avx512bf16"}),
    "amx": (
        "x86-64-v4",
        "+avx512bf16,+avx512vnni,+amx-tile,+amx-bf16,+amx-int8",
        _V4 | _TILES | {"avx512bf16", "avx512vnni"},
    ),
}
"""Instruction set -> LLVM's processor, features in addition to the processor's, and all required features."""


def restricted(native: Processor, has: frozenset[str], instructions: str) -> Processor:
    """A processor that has some features, restricted to an instruction set.

    Raises:
        PalladioValueError: if it does not have those instructions.
    """
    if instructions == "native":
        return native
    if native.triple.startswith("x86_64"):
        cpu, more, needed = _X86[instructions]
        if needed <= has:
            return Processor.of(native.triple, cpu, more, needed)
    elif instructions == "portable":
        return Processor.of(native.triple, "generic", "", frozenset())
    raise PalladioValueError(
        "this processor does not have these instructions",
        argument=knobs.instructions.name,
        got=repr(instructions),
        expected=", ".join(_sets(native, has)),
    )


def _sets(native: Processor, has: frozenset[str]) -> list[str]:
    if not native.triple.startswith("x86_64"):
        return ["native", "portable"]
    return ["native", *(name for name, (_, _, needed) in _X86.items() if needed <= has)]


@functools.cache
def _native() -> tuple[Processor, frozenset[str]]:
    found = detected()
    has = found.has if found.has >= _TILES and request_tiles() else found.has - _TILES
    native = Processor.of(found.triple, found.cpu, found.features, has)
    return replace(native, near_bytes=cache_bytes()[1]), has


def available() -> list[str]:
    """The instruction sets that the host has, as `PALLADIO_CPU` names them."""
    return _sets(*_native())


@functools.cache
def _current(instructions: str) -> Processor:
    return restricted(*_native(), instructions)


def current() -> Processor:
    """The processor that kernels are compiled for now.

    Raises:
        PalladioValueError: if `PALLADIO_CPU` requires instructions that the host does not have.
    """
    return _instead or _current(knobs.instructions.get())


_instead: Processor | None = None


@contextmanager
def compiling_for(processor: Processor) -> Iterator[None]:
    """Compile kernels that are lowered in the `with` block for this processor; the host must be able to run them."""
    global _instead
    before, _instead = _instead, processor
    try:
        yield
    finally:
        _instead = before
