"""The processor that kernels are compiled for: the one place that knows what it can do.

`PALLADIO_CPU` restricts it. The restricted kinds are those of the x86-64 psABI (v2, v3, v4), whatever the processor is
called, so that a kernel compiled for one of them is the same kernel on every machine.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import llvmlite.binding as llvm

from palladio.base import knobs
from palladio.base.errors import PalladioValueError


@dataclass(frozen=True)
class Processor:
    """A processor.

    Fields:
        triple, cpu, features: as LLVM calls it and what it has.
        vector_bytes: the bytes of a vector register.
        vectors: how many vector registers there are.
        fuses: multiplies and adds in one instruction, rounded once.
        converts_halves: converts between float16 and float32.
        scales: multiplies float32 by powers of two, with VSCALEFPS.
        multiplies_pairs: multiplies pairs of bfloat16 and sums them in float32, with VDPBF16PS.
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
        )

    @property
    def sums(self) -> tuple[int, int]:
        """The rows, and the bytes of each row, of sums that its registers hold beside what is multiplied."""
        if self.vector_bytes == 64:
            return 14, 128  # 28 of 32 registers
        return (6, 64) if self.vectors * self.vector_bytes >= 512 else (3, 64)  # 12 of 16, or 24 of 32


_V2 = frozenset({"sse3", "ssse3", "sse4.1", "sse4.2", "popcnt", "cx16"})
_V3 = _V2 | {"avx", "avx2", "fma", "f16c", "bmi", "bmi2", "lzcnt", "movbe"}
_V4 = _V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}

_X86 = {
    "portable": ("x86-64-v2", "", _V2),
    "avx2": ("x86-64-v3", "", _V3),
    "avx512": ("x86-64-v4", "", _V4),
    "avx512bf16": ("x86-64-v4", "+avx512bf16", _V4 | {"avx512bf16"}),
}
"""Instruction set -> LLVM's processor, features beside its own, and all that it needs."""


@functools.cache
def _found(instructions: str) -> Processor:
    """The host's processor, restricted to an instruction set."""
    triple, features = llvm.get_process_triple(), llvm.get_host_cpu_features()
    has = frozenset(name for name, present in features.items() if present)
    if instructions == "native":
        return Processor.of(triple, llvm.get_host_cpu_name(), features.flatten(), has)
    if triple.startswith("x86_64"):
        cpu, more, needed = _X86[instructions]
        if needed <= has:
            return Processor.of(triple, cpu, more, needed)
    elif instructions == "portable":
        return Processor.of(triple, "generic", "", frozenset())
    raise PalladioValueError(
        "this processor does not have the instructions that are asked for",
        argument=knobs.instructions.name,
        got=repr(instructions),
        expected=f"one of {', '.join(available())}",
    )


def available() -> list[str]:
    """The instruction sets that the host has."""
    triple, features = llvm.get_process_triple(), llvm.get_host_cpu_features()
    if not triple.startswith("x86_64"):
        return ["native", "portable"]
    return ["native", *(name for name, (_, _, needed) in _X86.items() if all(map(features.get, needed)))]


def current() -> Processor:
    """The processor that kernels are compiled for now.

    Raises:
        PalladioValueError: if `PALLADIO_CPU` asks for instructions that the host does not have.
    """
    return _found(knobs.instructions.get())
