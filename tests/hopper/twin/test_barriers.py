"""Barriers, from the PTX ISA: "mbarrier", "barrier{.cta}", "barrier.cluster", "setmaxnreg"; and deadlocks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from palladio.hopper.twin.run import SCHEDULES, Schedule, run
from tests.hopper.twin.kernels import EARLY, LATE, array, changed, failure, kernel, number, output, outputs

EVERY = pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda each: f"{each.completion}{each.seed}")

# ---- Mbarriers -----------------------------------------------------------------------------------------------------

# "Phase of the mbarrier object": thread 0 is told of each phase by the 3 arrivals that the other warps make.
PHASES = kernel(
    """
  const u32 thread = pal::thread_index(), barrier = pal::shared_base();
  if (thread == 0) {
    pal::barrier_init(barrier, 3);
    pal::barrier_init(barrier + 8, 1);
    pal::fence_barrier_init();
  }
  pal::sync_block();
  for (int phase = 0; phase < 5; ++phase) {
    if (thread < 32) {
      pal::wait(barrier, phase % 2);
      if (thread == 0) {
        int sum = 0;
        for (int k = 0; k < 3; ++k) sum += pal::load_shared<int>(barrier + 16 + 4 * k);
        y[phase] = sum;
        pal::arrive(barrier + 8);
      }
    } else {
      if (thread % 32 == 7) {
        pal::store_shared<int>(barrier + 16 + 4 * (thread / 32 - 1), 100 * phase + thread / 32);
        pal::arrive(barrier);
      }
      pal::wait(barrier + 8, phase % 2);
    }
  }
    """,
    [output("y", np.int32, 5)],
)


@EVERY
def test_a_phase_ends_with_its_last_arrival_and_the_next_begins(schedule: Schedule) -> None:
    np.testing.assert_array_equal(outputs(PHASES, schedule=schedule), [300 * phase + 6 for phase in range(5)])


def test_waiting_for_the_phase_before_returns_at_once() -> None:
    # ".parity": the wait is for the current phase or the one before it, by its parity.
    once = kernel(
        """
  const u32 barrier = pal::shared_base();
  if (pal::thread_index() == 0) pal::barrier_init(barrier, 1);
  pal::sync_block();
  pal::wait(barrier, 1);
  pal::wait_cluster(barrier, 1);
  bool before = pal::test(barrier, 1), now = pal::test(barrier, 0);
  pal::sync_block();
  if (pal::thread_index() == 0) {
    pal::arrive(barrier);
    y[0] = before, y[1] = now, y[2] = pal::try_wait(barrier, 0), y[3] = pal::try_wait_cluster(barrier, 1);
  }
        """,
        [output("y", np.int32, 4)],
        threads=32,
    )
    np.testing.assert_array_equal(outputs(once), [1, 0, 1, 0])


def test_a_loop_of_tests_waits_too() -> None:
    spinning = changed(PHASES, "pal::wait(barrier, phase % 2);", "while (!pal::test(barrier, phase % 2)) {}")
    np.testing.assert_array_equal(outputs(spinning), [300 * phase + 6 for phase in range(5)])
    forever = changed(spinning, "pal::arrive(barrier);", "")
    says = failure(forever)
    assert says.startswith("deadlock: ")
    assert "mbarrier.test_wait, for a value in memory that stays the same" in says


def test_expected_bytes_hold_a_phase_open() -> None:
    # "expect-tx operation": the transaction count of the phase grows, and the phase lasts until it is zero.
    says = failure(
        changed(PHASES, "pal::arrive(barrier + 8);", "pal::expect(barrier + 8, 64); pal::arrive(barrier + 8);")
    )
    assert "in phase 0, 0 of 1 arrivals and 64 bytes are missing" in says


def test_one_arrival_may_count_for_several() -> None:
    body = "if (thread == 32) pal::arrive_many(barrier, 3); if (0) {"
    many = changed(PHASES, "if (thread % 32 == 7) {", body)
    outputs(many)
    says = failure(changed(PHASES, "if (thread % 32 == 7) {", body.replace("3)", "4)")))
    assert "4 arrivals at the mbarrier at 0x400, whose phase takes 3 and has room for 3" in says


@pytest.mark.parametrize(
    "old, new, says",
    [
        ("pal::barrier_init(barrier, 3);", "", "no mbarrier has been initialised at 0x400 of block 0"),
        ("pal::barrier_init(barrier, 3);", "pal::barrier_init(barrier, 0);", "expects 1 to 1048575 arrivals, not 0"),
        ("pal::barrier_init(barrier, 3);", "pal::barrier_init(barrier + 4, 3);", "0x404 must be a multiple of 8"),
        (
            "pal::barrier_init(barrier, 3);",
            "pal::barrier_init(barrier, 3); pal::barrier_init(barrier, 3);",
            "the mbarrier at 0x400 is initialised a second time",
        ),
        ("pal::wait(barrier, phase % 2);", "pal::wait(barrier, phase);", "the parity of a phase is 0 or 1, not 2"),
        (
            "pal::arrive(barrier + 8);",
            "pal::store_shared<u32>(barrier + 8, 0);",
            "bytes at 0x408 belong to an mbarrier",
        ),
        ("pal::arrive(barrier + 8);", "pal::arrive_many(barrier + 8, 0);", "an arrival counts at least 1"),
    ],
)
def test_misuse_of_an_mbarrier_is_told(old: str, new: str, says: str) -> None:
    assert says in failure(changed(PHASES, old, new))


def test_a_deadlock_shows_who_waits_where_for_what() -> None:
    says = failure(changed(PHASES, "if (thread % 32 == 7) {", "if (thread % 32 == 7 && thread < 96) {"))
    assert says.splitlines() == [
        "deadlock: no thread can go on, and nothing is in flight",
        "  32 threads of warps 0 of block 0 at kernel.cu:10, mbarrier.try_wait, for the end of a phase of parity 0 "
        "of the mbarrier at 0x400: in phase 0, 1 of 3 arrivals and 0 bytes are missing",
        "  96 threads of warps 1-3 of block 0 at kernel.cu:22, mbarrier.try_wait, for the end of a phase of parity 0 "
        "of the mbarrier at 0x408: in phase 0, 1 of 1 arrivals and 0 bytes are missing",
    ]


# ---- Named barriers ------------------------------------------------------------------------------------------------

# "barrier.arrive": the producer does not wait; the consumer's barrier.sync completes with both.
NAMED = kernel(
    """
  const u32 thread = pal::thread_index(), base = pal::shared_base();
  for (int turn = 0; turn < 3; ++turn) {
    if (thread < 64) {
      if (turn) pal::sync_named(2, 128);
      pal::store_shared<int>(base + 4 * thread, 1000 * turn + thread);
      pal::arrive_named(1, 128);
    } else {
      pal::sync_named(1, 128);
      y[64 * turn + thread - 64] = pal::load_shared<int>(base + 4 * (127 - thread));
      if (turn < 2) pal::arrive_named(2, 128);
    }
  }
    """,
    [output("y", np.int32, 3, 64)],
)


@EVERY
def test_a_named_barrier_joins_those_that_wait_and_those_that_only_arrive(schedule: Schedule) -> None:
    want = [[1000 * turn + 63 - k for k in range(64)] for turn in range(3)]
    np.testing.assert_array_equal(outputs(NAMED, schedule=schedule), want)


@pytest.mark.parametrize(
    "old, new, says",
    [
        ("sync_named(1, 128)", "sync_named(16, 128)", "a block has 16 named barriers; 16 is not one of them"),
        ("sync_named(1, 128)", "sync_named(1, 100)", "barrier 1 is for 100 threads; it takes whole warps"),
        ("sync_named(1, 128)", "sync_named(1, 160)", "at most the 128 threads of the block"),
        ("sync_named(1, 128)", "sync_named(1, 64)", "barrier 1 is for 64 threads here, but others wait at it for 128"),
        ("arrive_named(1, 128)", "arrive_named(3, 128)", "for barrier 1: 64 of 128 threads have come"),
        ("sync_named(1, 128)", "sync_named(1 + thread % 2, 128)", "the lanes of a warp name different barriers"),
    ],
)
def test_misuse_of_a_named_barrier_is_told(old: str, new: str, says: str) -> None:
    assert says in failure(changed(NAMED, old, new))


AGREED = kernel(
    """
  const u32 thread = pal::thread_index();
  for (int turn = 0; turn < 3; ++turn)
    y[64 * turn + thread] = pal::all_named(1, 64, x[64 * turn + thread] != 0) + 10 * pal::all_lanes(x[thread]);
    """,
    [array("x", np.int32, 3, 64), output("y", np.int32, 3, 64)],
    threads=64,
)


@EVERY
def test_threads_that_meet_learn_if_a_value_is_true_in_all_of_them(schedule: Schedule) -> None:
    x = np.ones((3, 64), np.int32)
    x[1, 5] = 0
    x[0, 63] = 0
    lanes = [10] * 32 + [0] * 32
    want = [lanes, lanes, np.add(lanes, 1)]
    np.testing.assert_array_equal(outputs(AGREED, x, schedule=schedule), want)


def test_a_barrier_that_reduces_is_not_one_that_waits() -> None:
    mixed = changed(
        AGREED, "pal::all_named(1, 64,", "thread < 32 ? (pal::sync_named(1, 64), 0) : pal::all_named(1, 64,"
    )
    says = failure(mixed, np.ones((3, 64), np.int32))
    assert "barrier 1 is used by bar.red and by bar.sync or bar.arrive at the same time" in says


# ---- Clusters ------------------------------------------------------------------------------------------------------

# Each block tells the next one of its cluster through that block's mbarrier.
RING = kernel(
    """
  const u32 thread = pal::thread_index(), barrier = pal::shared_base();
  if (thread == 0) {
    pal::barrier_init(barrier, 1);
    pal::fence_barrier_init();
  }
  pal::sync_cluster();
  if (thread == 0) {
    for (int phase = 0; phase < 3; ++phase) {
      if (pal::cluster_rank() == 0 || phase < 0) pal::arrive_cluster(barrier, 1);
      pal::wait_cluster(barrier, phase % 2);
      if (pal::cluster_rank() != 0) pal::arrive_peer(barrier, (pal::cluster_rank() + 1) % 4);
    }
    y[pal::block_index()] = 10 * pal::cluster_index() + pal::cluster_rank();
  }
  pal::sync_cluster();
    """,
    [output("y", np.int32, 8)],
    threads=64,
    grid=8,
    cluster=4,
)


@EVERY
def test_blocks_of_a_cluster_tell_each_other(schedule: Schedule) -> None:
    np.testing.assert_array_equal(outputs(RING, schedule=schedule), [0, 1, 2, 3, 10, 11, 12, 13])


EXIT = kernel(
    """
  const u32 barrier = pal::shared_base();
  if (pal::thread_index() == 0) {
    pal::barrier_init(barrier, 1);
    pal::fence_barrier_init();
  }
  pal::sync_cluster();
  if (pal::cluster_rank() == 0) {
    if (pal::thread_index() == 0) {
      pal::wait_cluster(barrier, 0);
      pal::arrive_cluster(barrier, 1);
    }
  } else if (pal::thread_index() == 0) {
    pal::arrive_cluster(barrier, 0);
  }
  pal::sync_cluster();
    """,
    [output("y", np.int32, 1)],
    threads=32,
    grid=2,
    cluster=2,
)


def test_a_block_stays_until_the_others_have_done_with_its_memory() -> None:
    for schedule in SCHEDULES:
        outputs(EXIT, schedule=schedule)
    leaving = changed(EXIT, "}\n  pal::sync_cluster();\n    ", "}\n")
    says = [failure(leaving, schedule=schedule) for schedule in (LATE, EARLY)]
    assert all("mbarrier.arrive.shared::cluster: block 1 of the cluster has ended" in each for each in says)


@pytest.mark.parametrize(
    "old, new, says",
    [
        ("arrive_cluster(barrier, 1)", "arrive_cluster(barrier, 2)", "block 2 of a cluster of 2 blocks"),
        (
            "pal::fence_barrier_init();",
            "",
            "the mbarrier at 0x400 was initialised without a fence.mbarrier_init after it",
        ),
        (
            "  pal::sync_cluster();\n  if",
            "  if (pal::cluster_rank()) pal::sync_cluster();\n  if",
            "for 32 of the cluster's 64 threads",
        ),
    ],
)
def test_misuse_of_a_cluster_is_told(old: str, new: str, says: str) -> None:
    assert says in failure(changed(EXIT, old, new))


# ---- Registers -----------------------------------------------------------------------------------------------------

REGISTERS = kernel(
    """
  if (pal::thread_index() < 256) {
    pal::registers_increase<240>();
    if (pal::thread_index() == 0) y[0] = 1;
  } else {
    pal::registers_decrease<24>();
  }
    """,
    [output("y", np.int32, 1)],
    threads=384,
)


@EVERY
def test_registers_given_back_are_taken_by_others(schedule: Schedule) -> None:
    # 384 threads have 168 registers each: 240 + 240 + 24 = 3 * 168.
    assert outputs(REGISTERS, schedule=schedule)[0] == 1


@pytest.mark.parametrize(
    "old, new, says",
    [
        ("<24>", "<32>", "for 240 registers a thread: the warp has 168, the block's pool"),
        ("<240>", "<236>", "236 registers: a multiple of 8 from 24 to 256 is wanted"),
        ("<240>", "<160>", "the warp has 168 registers a thread, which cannot increase to 160"),
        ("<24>", "<200>", "the warp has 168 registers a thread, which cannot decrease to 200"),
    ],
)
def test_misuse_of_registers_is_told(old: str, new: str, says: str) -> None:
    assert says in failure(changed(REGISTERS, old, new))


# ---- Launches ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields, says",
    [
        ({"threads": 33}, "a block has whole warps, at most 1024 threads, not 33"),
        ({"threads": 1056}, "a block has whole warps, at most 1024 threads, not 1056"),
        ({"cluster": 9, "grid": 9}, "a cluster has 1 to 8 blocks, not 9"),
        ({"cluster": 2, "grid": 3}, "3 blocks cannot be put in clusters of 2"),
        ({"shared_bytes": 232449}, "232449 bytes of shared memory are more than the 232448 that a block may have"),
    ],
)
def test_a_launch_that_the_hardware_refuses_is_told(fields: dict[str, Any], says: str) -> None:
    assert failure(replace(REGISTERS, **fields)) == says


def test_a_run_counts_what_it_did_and_repeats_to_the_switch() -> None:
    counts = [run(PHASES, [], Schedule("random", 3)).counts for _ in range(2)]
    assert counts[0] == counts[1]
    assert counts[0].waits > 0 and counts[0].switches > 0 and counts[0].copies == 0


def test_numbers_are_passed_by_value() -> None:
    echo = kernel(
        "if (pal::thread_index() == 0) y[0] = (double)a + b + c;",
        [number("a"), number("b", np.float32), number("c", np.int64), output("y", np.float64, 1)],
        threads=32,
    )
    assert outputs(echo, np.int32(-3), np.float32(0.5), np.int64(1 << 40))[0] == (1 << 40) - 2.5
