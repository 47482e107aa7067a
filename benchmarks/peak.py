"""The measured peak of multiply-adds of this processor, on vectors or tile registers: a loop without memory accesses.

No product can be faster than this rate, whatever computes it. It is measured at several moments of a run, as other
processes of the machine can disturb any of them; the best one counts.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from palladio.base import knobs
from palladio.cpu.emit.emitter import Emitter, V, i64
from palladio.cpu.emit.llvm_types import PTR
from palladio.cpu.products.tiles.kernel import ROW_BYTES, configure, release, tile
from palladio.cpu.runtime import host
from palladio.cpu.runtime.host import Processor
from palladio.cpu.runtime.machine_code import MachineCode

FLOAT32, BFLOAT16 = "float32", "bfloat16"

STEPS = 1 << 21
"""Steps of one measurement on vectors: some milliseconds. A step on tiles takes about four times as long."""

ROUNDS = 12

_best: dict[str, float] = {}


def measure() -> None:
    """Measure the peaks of both dtypes once more."""
    for dtype in (FLOAT32, BFLOAT16):
        _best[dtype] = max(_best.get(dtype, 0.0), _rate(dtype))


def peak(dtype: str) -> float:
    """The most operations a second of products summed in float32, on as many threads as kernels run on.

    A multiplication and an addition are two operations. It is the best of all measurements of this process.

    Args:
        dtype: of the operands, "float32" or "bfloat16".
    """
    if dtype not in _best:
        _best[dtype] = _rate(dtype)
    return _best[dtype]


@dataclass(frozen=True)
class Loop:
    """A kernel that runs a number of steps, and the operations of each."""

    text: str
    steps: int
    operations: int


def loop(processor: Processor, dtype: str) -> Loop:
    """The loop that multiplies operands of a dtype with the fastest instructions of a processor."""
    if dtype == BFLOAT16 and processor.multiplies_tiles:
        return Loop(_tile_text(), STEPS // 4, 2 * 32 * 16 * 16 * len(_TILE_PRODUCTS))
    pairs = dtype == BFLOAT16 and processor.multiplies_pairs
    lanes = processor.vector_bytes // 4
    sums = processor.vectors - 4  # beside them, two operands and a product
    return Loop(_text(lanes, sums, pairs, processor.fuses), STEPS, 2 * (2 if pairs else 1) * lanes * sums)


def _rate(dtype: str) -> float:
    """The rate of the fastest of some rounds."""
    mine, threads = loop(host.current(), dtype), knobs.thread_count()
    code = MachineCode(mine.text)
    return mine.operations * mine.steps * threads / min(_seconds(code, threads, mine.steps) for _ in range(ROUNDS))


def _seconds(code: MachineCode, threads: int, steps: int) -> float:
    """The time of the loop on several concurrent threads."""
    ready, memory = threading.Barrier(threads + 1), [np.ones((64, 16), np.float32) for _ in range(threads)]

    def work(mine: Any) -> None:
        ready.wait()
        code.call(mine.ctypes.data, None, None, 0, steps)

    every = [threading.Thread(target=work, args=(mine,)) for mine in memory]
    for each in every:
        each.start()
    ready.wait()
    start = time.perf_counter()
    for each in every:
        each.join()
    return time.perf_counter() - start


def _text(lanes: int, sums: int, pairs: bool, fuses: bool) -> str:
    """A kernel that adds the product of two vectors to each of some sums in every step."""
    vector, lines = f"<{lanes} x float>", []
    in_pairs = f"{vector} @llvm.x86.avx512bf16.dpbf16ps.512({vector}"
    declared = f"declare {vector} @llvm.fma.v{lanes}f32({vector}, {vector}, {vector})"
    if pairs:
        declared = f"declare {in_pairs}, <32 x bfloat>, <32 x bfloat>)"
    for n in range(sums):
        if pairs:
            lines.append(f"  %t{n} = call {in_pairs} %s{n}, <32 x bfloat> %x, <32 x bfloat> %y)")
        elif fuses:
            lines.append(f"  %t{n} = call {vector} @llvm.fma.v{lanes}f32({vector} %x, {vector} %y, {vector} %s{n})")
        else:
            lines += [f"  %p{n} = fmul {vector} %x, %s{n}", f"  %t{n} = fadd {vector} %p{n}, %y"]
    operand = "<32 x bfloat>" if pairs else vector
    phis = [f"  %s{n} = phi {vector} [ zeroinitializer, %entry ], [ %t{n}, %steps ]" for n in range(sums)]
    stores = [
        f"  %a{n} = getelementptr {vector}, ptr %memory, i64 {n}\n  store {vector} %t{n}, ptr %a{n}, align 4"
        for n in range(sums)
    ]
    operands = [
        f"  %x = load {operand}, ptr %memory, align 4",
        f"  %beside = getelementptr {vector}, ptr %memory, i64 1",
        f"  %y = load {operand}, ptr %beside, align 4",
    ]
    return _kernel([declared], operands, [*phis, *lines], stores)


_TILE_PRODUCTS = [(0, 4, 6), (1, 4, 7), (2, 5, 6), (3, 5, 7)]
"""The tile registers of the sums and of both operands of each product in a step."""


def _tile_text() -> str:
    """A kernel that adds the product of two tiles to each of four tiles of sums in every step."""
    before, step, after = Emitter(), Emitter(), Emitter()
    memory = V("%memory", PTR), i64(ROW_BYTES)
    configure(before)
    for n in {n for n, _, _ in _TILE_PRODUCTS}:
        tile(before, "tilezero", n)
        tile(after, "tilestored64", n, *memory)
    for n in {n for _, *operands in _TILE_PRODUCTS for n in operands}:
        tile(before, "tileloadd64", n, *memory)
    for product in _TILE_PRODUCTS:
        tile(step, "tdpbf16ps", *product)
    release(after)
    declared = before.declared | step.declared | after.declared
    return _kernel(declared.values(), before.lines, step.lines, after.lines)


def _kernel(declared: Iterable[str], before: Iterable[str], step: Iterable[str], after: Iterable[str]) -> str:
    """A kernel that runs a number of steps, with code before and after them; a step begins with its phis."""
    return "\n".join(
        [
            *declared,
            "define i32 @kernel(ptr %memory, ptr %sizes, ptr %arena, i64 %first, i64 %last) {",
            "entry:",
            *before,
            "  br label %steps",
            "steps:",
            "  %step = phi i64 [ %first, %entry ], [ %following, %steps ]",
            *step,
            "  %following = add i64 %step, 1",
            "  %more = icmp slt i64 %following, %last",
            "  br i1 %more, label %steps, label %done",
            "done:",
            *after,
            "  ret i32 0",
            "}",
        ]
    )
