"""The measured peak of multiply-adds of this processor's vector units: a loop that accesses no memory.

No product can be faster than this rate, whatever computes it.
"""

from __future__ import annotations

import functools
import threading
import time
from typing import Any

import numpy as np

from palladio.base import knobs
from palladio.cpu.runtime import host
from palladio.cpu.runtime.machine_code import MachineCode

FLOAT32, BFLOAT16 = "float32", "bfloat16"

STEPS = 1 << 21
"""Steps of one measurement: some milliseconds."""

ROUNDS = 12


@functools.cache
def peak(dtype: str) -> float:
    """The most operations a second of products summed in float32, on as many threads as kernels run on.

    A multiplication and an addition are two operations.

    Args:
        dtype: of the operands, "float32" or "bfloat16".
    """
    processor = host.current()
    pairs = dtype == BFLOAT16 and processor.multiplies_pairs
    lanes = processor.vector_bytes // 4
    sums = processor.vectors - 4  # beside them, two operands and a product
    code = MachineCode(_text(lanes, sums, pairs, processor.fuses))
    operations = 2 * (2 if pairs else 1) * lanes * sums * STEPS * knobs.thread_count()
    return operations / min(_seconds(code, knobs.thread_count()) for _ in range(ROUNDS))


def _seconds(code: MachineCode, threads: int) -> float:
    """The time of the loop on several concurrent threads."""
    ready, memory = threading.Barrier(threads + 1), [np.ones((64, 16), np.float32) for _ in range(threads)]

    def work(mine: Any) -> None:
        ready.wait()
        code.call(mine.ctypes.data, None, None, 0, STEPS)

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
    return "\n".join(
        [
            declared,
            "define i32 @kernel(ptr %memory, ptr %sizes, ptr %arena, i64 %first, i64 %last) {",
            "entry:",
            f"  %x = load {operand}, ptr %memory, align 4",
            f"  %beside = getelementptr {vector}, ptr %memory, i64 1",
            f"  %y = load {operand}, ptr %beside, align 4",
            "  br label %steps",
            "steps:",
            "  %step = phi i64 [ %first, %entry ], [ %following, %steps ]",
            *phis,
            *lines,
            "  %following = add i64 %step, 1",
            "  %more = icmp slt i64 %following, %last",
            "  br i1 %more, label %steps, label %done",
            "done:",
            *stores,
            "  ret i32 0",
            "}",
        ]
    )
