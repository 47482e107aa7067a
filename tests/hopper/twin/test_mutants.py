"""Wrong kernels are caught, with a sentence that names the cause: a hand-written product with one thing wrong in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from palladio.hopper.lowered import Lowered, MapParameter
from palladio.hopper.twin.run import SCHEDULES, TwinError, run
from tests.hopper.twin.kernels import changed
from tests.hopper.twin.matmul import error, matmul, operands

SHAPE = (256, 320, 256)  # five k-blocks through three stages, two tiles a block
WRONG_RESULT = "the result is wrong"


@dataclass(frozen=True)
class Mutant:
    """A change, and a part of the sentence of the first schedule that notices it."""

    name: str
    change: Callable[[Lowered], Lowered]
    says: str


def text(old: str, new: str) -> Callable[[Lowered], Lowered]:
    return lambda kernel: changed(kernel, old, new)


def map_of(number: int, **fields: Any) -> Callable[[Lowered], Lowered]:
    def change(kernel: Lowered) -> Lowered:
        parameters = list(kernel.parameters)
        place = [n for n, each in enumerate(parameters) if isinstance(each, MapParameter)][number]
        parameter = parameters[place]
        assert isinstance(parameter, MapParameter)
        parameters[place] = replace(parameter, spec=replace(parameter.spec, **fields))
        return replace(kernel, parameters=tuple(parameters))

    return change


READS_WRITTEN = "wgmma.mma_async: reads bytes at 0x"
IN_FLIGHT_WRITES = "that an asynchronous operation in flight still writes: wait for it first"
OVERWRITES = "cp.async.bulk.tensor load: writes bytes at 0x"
HALVES = "pal::pack_bf16(acc[8 * j], acc[8 * j + 1]), pal::pack_bf16(acc[8 * j + 2], acc[8 * j + 3])"
EXCHANGED = "pal::pack_bf16(acc[8 * j + 2], acc[8 * j + 3]), pal::pack_bf16(acc[8 * j], acc[8 * j + 1])"
FLIP = "phases ^= 1u << s;\n        const u64 left"

MUTANTS = [
    Mutant("b_leading_offset", text("16384, 8192, 1024, 1)", "16384, 4096, 1024, 1)"), WRONG_RESULT),
    Mutant("b_stride_offset", text("16384, 8192, 1024, 1)", "16384, 8192, 512, 1)"), WRONG_RESULT),
    Mutant("a_stride_offset", text("8192, 16, 1024, 1)", "8192, 16, 128, 1)"), WRONG_RESULT),
    Mutant("a_swizzle_mode", text("8192, 16, 1024, 1)", "8192, 16, 1024, 2)"), WRONG_RESULT),
    Mutant("a_step_along_k", text("left + 2 *", "left + 4 *"), "in the middle of the 1024 bytes"),
    Mutant("transpose_bit", text("<0, 1>(acc", "<0, 0>(acc"), IN_FLIGHT_WRITES),
    Mutant("epilogue_without_swizzle", text("(column ^ row % 8)", "column"), WRONG_RESULT),
    Mutant("fragment_halves_exchanged", text(HALVES, EXCHANGED), WRONG_RESULT),
    Mutant("phase_starts_at_1", text("u32 phases = 0;", "u32 phases = ~0u;"), IN_FLIGHT_WRITES),
    Mutant("phase_not_flipped", text(FLIP, "const u64 left"), IN_FLIGHT_WRITES),
    Mutant("too_few_bytes_expected", text("8 * s, 32768);", "8 * s, 16384);"), READS_WRITTEN),
    Mutant("no_bytes_expected", text("arrive_expect(ready + 8 * s, 32768)", "arrive(ready + 8 * s)"), READS_WRITTEN),
    Mutant("one_arrival_for_two", text("consumed + 8 * s, 2)", "consumed + 8 * s, 1)"), "deadlock"),
    Mutant("three_arrivals_for_two", text("consumed + 8 * s, 2)", "consumed + 8 * s, 3)"), "1 of 3 arrivals"),
    Mutant("box_of_fewer_rows", map_of(0, box=(64, 64)), "0 of 1 arrivals and 8192 bytes are missing"),
    Mutant("map_without_swizzle", map_of(1, swizzle=0), WRONG_RESULT),
    Mutant("coordinates_exchanged", text("8 * s, k, m)", "8 * s, m, k)"), WRONG_RESULT),
    Mutant(
        "no_proxy_fence",
        text("pal::fence_async();", ""),
        "the async proxy reads bytes at 0x18400 that thread 0 stored without a fence.proxy.async after it",
    ),
    Mutant(
        "no_wait_before_the_epilogue",
        text("pal::wgmma_wait<0>();", ""),
        "cvt.rn.bf16x2: takes a register of an accumulator whose product is in flight: wait for it first",
    ),
    Mutant("stage_given_back_early", text("pal::wgmma_wait<1>();", "pal::wgmma_wait<2>();"), OVERWRITES),
    Mutant(
        "memory_does_not_wait",
        text("pal::wait(consumed + 8 * s, phases >> s & 1);", ""),
        "1 arrivals at the mbarrier at 0x20400, whose phase takes 1 and has room for 0",
    ),
    Mutant(
        "staging_overwritten_while_read",
        text("if (leader) pal::bulk_wait_read<0>();", ""),
        "that an asynchronous operation in flight still reads: wait for it first",
    ),
    Mutant(
        "store_not_awaited",
        text("if (warp == 0 && pal::elect()) pal::bulk_wait<0>();", ""),
        "still in flight when its block ends; the thread that issued it has to wait for it",
    ),
    Mutant(
        "no_barrier_after_the_fence",
        text("pal::fence_async();\n      pal::sync_named(1 + warpgroup, 128);", "pal::fence_async();"),
        "the async proxy reads bytes at",
    ),
    Mutant(
        "no_barrier_before_the_staging",
        text("bulk_wait_read<0>();\n      pal::sync_named(1 + warpgroup, 128);", "bulk_wait_read<0>();"),
        "that an asynchronous operation in flight still reads: wait for it first",
    ),
    Mutant(
        "more_registers_than_the_pool",
        text("increase<232>", "increase<240>"),
        "for 240 registers a thread: the warp has 168, the block's pool 8 for all of a warp",
    ),
    Mutant("no_product_fence", text("pal::wgmma_fence();", ""), "no wgmma.fence before its first product"),
    Mutant("no_product_commit", text("pal::wgmma_commit();", ""), OVERWRITES),
    Mutant(
        "barriers_not_published",
        text("pal::fence_barrier_init();", ""),
        "the mbarrier at 0x20400 was initialised without a fence.mbarrier_init after it",
    ),
    Mutant(
        "no_barrier_after_initialisation",
        text("pal::sync_block();", ""),
        "no mbarrier has been initialised at 0x",
    ),
    Mutant(
        "accumulator_written_in_flight",
        text("const u64 left", "if (k == 64) acc[3] = 0.0f;\n        const u64 left"),
        "the thread wrote register 3 of the accumulator while the product was in flight",
    ),
]
"""The leading offset of a swizzled K-major operand is not among them: the hardware does not use it."""


def finding(kernel: Lowered) -> str:
    """The sentence of the first schedule that notices anything."""
    a, b = operands(*SHAPE)
    for schedule in SCHEDULES:
        try:
            (c,) = run(kernel, [a, b], schedule).outputs
        except TwinError as failure:
            return str(failure)
        if not error(c, a, b) < 0.01:
            return WRONG_RESULT
    return "nothing"


def test_the_kernel_itself_is_right() -> None:
    assert finding(matmul(*SHAPE)) == "nothing"


def test_the_kernel_is_right_with_ragged_edges() -> None:
    a, b = operands(200, 136, 328)
    for schedule in SCHEDULES:
        (c,) = run(matmul(200, 136, 328), [a, b], schedule).outputs
        assert error(c, a, b) < 0.01, schedule


def test_the_unused_leading_offset_changes_nothing() -> None:
    assert finding(changed(matmul(*SHAPE), "8192, 16, 1024, 1)", "8192, 0, 1024, 1)")) == "nothing"


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_wrong_kernel_is_caught(mutant: Mutant) -> None:
    assert mutant.says in finding(mutant.change(matmul(*SHAPE)))
