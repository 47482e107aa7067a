"""From the PTX ISA: "atom", "red", "ld.acquire", memory of the cluster, "cp.async", "mbarrier.inval"."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from palladio.hopper.lowered import Lowered
from palladio.hopper.twin.run import SCHEDULES, Schedule
from palladio.types import dtypes
from tests.hopper.twin.kernels import (
    C_TYPES,
    LATE,
    array,
    changed,
    failure,
    kernel,
    number,
    output,
    outputs,
    tensor_map,
)

EVERY = pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda each: f"{each.completion}{each.seed}")

# ---- Atomics -------------------------------------------------------------------------------------------------------


def zeroed(lowered: Lowered) -> Lowered:
    """The kernel with memory that is zero when it begins."""
    return replace(lowered, arrays=tuple(replace(each, zeroed=True) for each in lowered.arrays))


KINDS = ("ADD", "MIN", "MAX", "AND", "OR", "XOR", "EXCHANGE")
TYPES = (np.int32, np.uint32, np.int64, np.uint64, np.float32, np.float64)


def kinds_of(dtype: Any) -> tuple[str, ...]:
    return KINDS if np.dtype(dtype).kind in "iu" else ("ADD", "MIN", "MAX", "EXCHANGE")


def atomics(dtype: Any) -> Any:
    """Thread 0 combines element k of x with k + 1 in global and in shared memory, for each kind."""
    c_type = C_TYPES[dtypes.short_name(np.dtype(dtype))]
    size = np.dtype(dtype).itemsize
    lines = [
        f"pal::store_shared<{c_type}>(base, x[{n}]);"
        f" y[3 * {n}] = pal::atomic<pal::{kind}>(memory + {n}, ({c_type})given[{n}]);"
        f" y[3 * {n} + 1] = pal::atomic_shared<pal::{kind}>(base, ({c_type})given[{n}]);"
        f" y[3 * {n} + 2] = pal::load_shared<{c_type}>(base);"
        for n, kind in enumerate(kinds_of(dtype))
    ]
    count = len(lines)
    body = f"const u32 base = pal::shared_base() + {size};\nif (pal::thread_index() == 0) {{\n"
    body += f"for (int k = 0; k < {count}; ++k) memory[k] = x[k];\n" + "\n".join(lines) + "\n}"
    parameters = [array("x", dtype, count), array("given", dtype, count)]
    return kernel(body, [*parameters, output("memory", dtype, count), output("y", dtype, count, 3)], threads=32)


@pytest.mark.parametrize("dtype", TYPES, ids=lambda dtype: np.dtype(dtype).name)
def test_an_atomic_combines_and_gives_the_number_before(dtype: Any) -> None:
    kinds = kinds_of(dtype)
    generator = np.random.default_rng(4)
    x, given = generator.integers(1, 100, (2, len(kinds))).astype(dtype)
    if np.dtype(dtype).kind in "if":
        x[1], given[2] = -5, -7  # signs matter to MIN and MAX
    combine = {
        "ADD": np.add,
        "MIN": np.minimum,
        "MAX": np.maximum,
        "AND": np.bitwise_and,
        "OR": np.bitwise_or,
        "XOR": np.bitwise_xor,
        "EXCHANGE": lambda old, new: new,
    }
    memory, y = outputs(atomics(dtype), x, given)
    want = [combine[kind](old, new) for kind, old, new in zip(kinds, x, given, strict=True)]
    np.testing.assert_array_equal(memory, np.array(want, dtype))
    np.testing.assert_array_equal(y[:, :2], np.stack([x, x], axis=1))
    np.testing.assert_array_equal(y[:, 2], memory)


@EVERY
def test_every_thread_of_every_block_counts_once(schedule: Schedule) -> None:
    count = kernel(
        """
  const u32 base = pal::shared_base();
  if (pal::thread_index() == 0) pal::store_shared<int>(base, 0);
  pal::sync_block();
  pal::atomic_shared<pal::ADD>(base, 1);
  pal::sync_block();
  if (pal::thread_index() == 0) pal::atomic<pal::ADD>(y, pal::load_shared<int>(base));
        """,
        [output("y", np.int32, 1)],
        grid=5,
    )
    assert outputs(zeroed(count), schedule=schedule)[0] == 5 * 128


@EVERY
def test_compare_and_exchange_makes_any_combination(schedule: Schedule) -> None:
    product = kernel(
        """
  const u32 base = pal::shared_base();
  if (pal::thread_index() == 0) { pal::store_shared<u16>(base, 1); y[0] = 1.0f; }
  pal::sync_block();
  float old = 1.0f, seen;
  do {
    seen = old;
    old = pal::atomic_compare(y, seen, 2.0f * seen);
  } while (old != seen);
  u16 half = 1, before;
  do {
    before = half;
    half = pal::atomic_compare_shared<u16>(base, before, (u16)(before + 3));
  } while (half != before);
  pal::sync_block();
  if (pal::thread_index() == 0) y[1] = pal::load_shared<u16>(base);
        """,
        [output("y", np.float32, 2)],
        threads=32,
    )
    np.testing.assert_array_equal(outputs(product, schedule=schedule), [2.0**32, 97])


@pytest.mark.parametrize(
    "old, new, says",
    [
        ("memory + 0", "memory + 7", "atom.global: 4 bytes at byte 28 of array 2, which has 28 bytes"),
        ("memory + 0", "(int*)x", "atom.global: writes to array 0, which the kernel may only read"),
        ("pal::atomic_shared<pal::ADD>(base", "pal::atomic_shared<pal::ADD>(base + 2", "0x406 must be a multiple of 4"),
    ],
)
def test_an_atomic_outside_or_misaligned_is_told(old: str, new: str, says: str) -> None:
    given = np.zeros(7, np.int32)
    assert says in failure(changed(atomics(np.int32), old, new), given, given)


# ---- Counters between blocks ---------------------------------------------------------------------------------------

# Block b waits until all later blocks have counted: none of them may wait for the first to end.
QUEUE = kernel(
    """
  const int block = pal::block_index();
  if (pal::thread_index() == 0) {
    while (pal::load_acquire(count) < 3 - block) {}
    y[block] = pal::load_global(count);
    pal::add_release(count, 1);
  }
    """,
    [output("y", np.int32, 4), output("count", np.int32, 1)],
    threads=32,
    grid=4,
)


@EVERY
def test_a_block_may_wait_for_one_that_has_not_begun(schedule: Schedule) -> None:
    y, count = outputs(zeroed(QUEUE), schedule=schedule)
    np.testing.assert_array_equal(y, [3, 2, 1, 0])
    assert count[0] == 4


def test_blocks_run_in_any_order_in_a_random_schedule() -> None:
    order = kernel(
        "if (pal::thread_index() == 0) y[pal::atomic<pal::ADD>(count, 1)] = pal::block_index();",
        [output("y", np.int32, 8), output("count", np.int32, 1)],
        threads=32,
        grid=8,
    )
    orders = [tuple(outputs(zeroed(order), schedule=schedule)[0]) for schedule in SCHEDULES]
    assert orders[0] == orders[1] == tuple(range(8))
    assert all(sorted(each) == list(range(8)) and each != orders[0] for each in orders[2:])


def test_a_counter_that_is_never_raised_is_a_deadlock() -> None:
    says = failure(changed(QUEUE, "pal::add_release(count, 1);", ""))
    assert says.startswith("deadlock: no thread can go on, and nothing is in flight")
    assert "1 threads of warps 0 of block 0 at kernel.cu:3, ld.acquire.gpu, for a value in memory" in says


# ---- Memory of the cluster -----------------------------------------------------------------------------------------

SWAP = kernel(
    """
  const u32 thread = pal::thread_index(), base = pal::shared_base(), other = 1 - pal::cluster_rank();
  pal::store_shared<float>(base + 4 * thread, 100 * pal::cluster_rank() + thread);
  pal::sync_cluster();
  const float got = pal::load_cluster<float>(base + 4 * thread, other);
  pal::store_cluster<double>(base + 256 + 8 * thread, other, got + 1000.0);
  pal::sync_cluster();
  y[32 * pal::block_index() + thread] = got + pal::load_shared<double>(base + 256 + 8 * thread);
  pal::sync_cluster();
    """,
    [output("y", np.float64, 64)],
    threads=32,
    grid=2,
    cluster=2,
)


@EVERY
def test_blocks_of_a_cluster_read_and_write_each_other(schedule: Schedule) -> None:
    thread = np.arange(32)
    y = outputs(SWAP, schedule=schedule)
    np.testing.assert_array_equal(y[:32], 100 + thread + thread + 1000)
    np.testing.assert_array_equal(y[32:], 100 + thread + thread + 1000)


def widths(c_type: str, dtype: Any) -> Lowered:
    """Blocks that read and write an element of each other."""
    size = np.dtype(dtype).itemsize
    return kernel(
        f"""
  const u32 thread = pal::thread_index(), base = pal::shared_base(), other = 1 - pal::cluster_rank();
  pal::store_shared<{c_type}>(base + {size} * thread, x[32 * pal::cluster_rank() + thread]);
  pal::store_shared<{c_type}>(base + 1024 + {size} * thread, 0);
  pal::sync_cluster();
  const {c_type} got = pal::load_cluster<{c_type}>(base + {size} * thread, other);
  if (thread % 2 == 0) pal::store_cluster<{c_type}>(base + 1024 + {size} * thread, other, got);
  pal::sync_cluster();
  y[64 * pal::block_index() + thread] = got;
  y[64 * pal::block_index() + 32 + thread] = pal::load_shared<{c_type}>(base + 1024 + {size} * thread);
        """,
        [array("x", dtype, 64), output("y", dtype, 128)],
        threads=32,
        grid=2,
        cluster=2,
    )


WIDTHS = {name: widths(C_TYPES[name], dtypes.SHORT_NAMES[name]) for name in ("u8", "i16", "i32", "f64")}


@pytest.mark.parametrize("name", WIDTHS)
def test_elements_of_every_width_go_to_another_block_alone(name: str) -> None:
    """Between the stored elements are others, which stay as they are."""
    dtype = dtypes.SHORT_NAMES[name]
    x = np.random.default_rng(0).integers(1, 100, 64).astype(dtype)
    y = outputs(WIDTHS[name], x).reshape(2, 2, 32)
    np.testing.assert_array_equal(y[:, 0], x.reshape(2, 32)[::-1])
    np.testing.assert_array_equal(y[:, 1], np.where(np.arange(32) % 2, 0, x.reshape(2, 32)))


def far_compared(c_type: str) -> Lowered:
    """Every thread of two blocks adds to an element of each block by compare-and-swap."""
    return kernel(
        f"""
  const u32 thread = pal::thread_index(), base = pal::shared_base();
  if (thread == 0) {{ pal::store_shared<u32>(base, 0); pal::store_shared<u32>(base + 4, 0); }}
  pal::sync_cluster();
  for (u32 rank = 0; rank < 2; ++rank) {{
    {c_type} seen = pal::load_cluster<{c_type}>(base, rank), before;
    do {{
      before = seen;
      seen = pal::atomic_compare_cluster<{c_type}>(base, rank, before, ({c_type})(before + 1 + rank));
    }} while (seen != before);
  }}
  pal::sync_cluster();
  if (thread == 0) {{
    y[2 * pal::block_index()] = pal::load_shared<{c_type}>(base);
    y[2 * pal::block_index() + 1] = pal::load_shared<u32>(base + 4);
  }}
        """,
        [output("y", np.float32, 4)],
        threads=32,
        grid=2,
        cluster=2,
    )


@EVERY
@pytest.mark.parametrize("c_type", ["u8", "u16", "u32", "u64"])
def test_elements_of_another_block_are_compared_and_replaced(c_type: str, schedule: Schedule) -> None:
    assert outputs(far_compared(c_type), schedule=schedule).tolist() == [64, 0, 128, 0]


FAR = kernel(
    """
  const u32 thread = pal::thread_index(), base = pal::shared_base(), other = 1 - pal::cluster_rank();
  if (thread == 0) { pal::store_shared<int>(base, 5); pal::store_shared<float>(base + 4, 2.0f); }
  pal::sync_cluster();
  pal::atomic_cluster<pal::ADD>(base, other, (int)(1 + pal::cluster_rank()));
  pal::atomic_cluster<pal::MAX>(base + 4, other, (float)thread);
  pal::sync_cluster();
  if (thread == 0) {
    y[2 * pal::block_index()] = pal::load_shared<int>(base);
    y[2 * pal::block_index() + 1] = pal::load_shared<float>(base + 4);
  }
    """,
    [output("y", np.float32, 4)],
    threads=32,
    grid=2,
    cluster=2,
)


@EVERY
def test_atomics_of_threads_of_another_block_all_count(schedule: Schedule) -> None:
    np.testing.assert_array_equal(outputs(FAR, schedule=schedule), [5 + 64, 31, 5 + 32, 31])


def test_an_atomic_names_a_block_of_the_cluster() -> None:
    says = "atom.shared::cluster: block 3 of a cluster of 2 blocks"
    assert says in failure(changed(FAR, "pal::ADD>(base, other", "pal::ADD>(base, 3"))


@pytest.mark.parametrize(
    "old, new, says",
    [
        ("base + 4 * thread, other", "base + 4 * thread, 2", "ld.shared::cluster: block 2 of a cluster of 2 blocks"),
        ("base + 4 * thread, other", "base + 4096 + 4 * thread, other", "reach outside of shared memory"),
        (
            "  const float got",
            "  if (other == 0) return;\n  const float got",
            "ld.shared::cluster: block 1 of the cluster has ended, its shared memory is gone",
        ),
    ],
)
def test_misuse_of_the_memory_of_the_cluster_is_told(old: str, new: str, says: str) -> None:
    # In the last case block 0 finds the other one gone, whose threads run first in one of the schedules.
    found = []
    for schedule in (Schedule("random", seed) for seed in range(4)):
        try:
            outputs(changed(SWAP, old, new), schedule=schedule)
        except Exception as error:
            found.append(str(error))
    assert any(says in each for each in found)


# ---- cp.async ------------------------------------------------------------------------------------------------------

SMALL = kernel(
    """
  const u32 thread = pal::thread_index(), base = pal::shared_base(), barrier = base + 2048;
  if (thread == 0) pal::barrier_init(barrier, 32);
  pal::sync_block();
  pal::copy_async<16>(base + 16 * thread, x + 4 * thread, given);
  pal::copy_async_commit();
  pal::copy_async<8>(base + 512 + 8 * thread, x + 2 * thread, 8);
  pal::copy_async<4>(base + 1024 + 4 * thread, x + thread, 4);
  // wait
  for (u32 k = thread; k < 288; k += 32) y[k] = pal::load_shared<int>(base + 4 * k);
    """,
    [array("x", np.int32, 128), number("given"), output("y", np.int32, 288)],
    threads=32,
    shared=2056,
)
WAITS = ["pal::copy_async_commit(); pal::copy_async_wait<0>(); pal::sync_block();"]
WAITS += ["pal::copy_async_arrive(barrier); pal::wait(barrier, 0);"]
WAITS += ["pal::copy_async_hold(barrier); pal::arrive(barrier); pal::wait(barrier, 0);"]


@pytest.mark.parametrize("wait", WAITS, ids=["groups", "mbarrier", "a phase that is held open"])
@pytest.mark.parametrize("given", [16, 8, 0])
@EVERY
def test_small_copies_arrive_and_are_filled_with_zeros(schedule: Schedule, given: int, wait: str) -> None:
    x = np.arange(1, 129, dtype=np.int32)
    y = outputs(changed(SMALL, "// wait", wait), x, np.int32(given), schedule=schedule)
    whole = x.reshape(32, 4).copy()
    whole[:, given // 4 :] = 0
    np.testing.assert_array_equal(y, np.concatenate([whole.ravel(), x[:64], np.full(64, -1, np.int32), x[:32]]))


@pytest.mark.parametrize(
    "old, new, says",
    [
        ("// wait", "", "ld.shared: reads bytes at 0x"),
        (
            "// wait",
            "pal::copy_async_commit(); pal::copy_async_wait<1>(); pal::sync_block();",
            "ld.shared: reads bytes at 0x6",
        ),
        ("x + 4 * thread, given", "x + 4 * thread + 1, given", "must be a multiple of 16"),
        ("base + 16 * thread, x", "base + 16 * thread + 8, x", "must be a multiple of 16"),
        ("x + 4 * thread, given", "x + 4 * thread + 128, given", "of array 0, which has 512 bytes"),
        ("4 * thread, given", "4 * thread, 20", "20 bytes of 16"),
    ],
)
def test_misuse_of_small_copies_is_told(old: str, new: str, says: str) -> None:
    assert says in failure(changed(SMALL, old, new), np.zeros(128, np.int32), np.int32(16), schedule=LATE)


def test_small_copies_are_of_the_generic_proxy() -> None:
    # The async proxy may read what cp.async has brought after a fence.proxy.async that follows the wait.
    passing_on = kernel(
        """
  const u32 thread = pal::thread_index(), base = pal::shared_base();
  pal::copy_async<4>(base + 4 * thread, x + thread, 4);
  pal::copy_async_commit();
  pal::copy_async_wait<0>();
  pal::fence_async();
  pal::sync_warp();
  if (thread == 0) {
    pal::tma_store(&map, base, 0);
    pal::bulk_commit();
    pal::bulk_wait<0>();
  }
        """,
        [array("x", np.int32, 32), output("y", np.int32, 32), tensor_map("map", 1, np.int32, (32,), (32,))],
        threads=32,
    )
    x = np.arange(32, dtype=np.int32)
    np.testing.assert_array_equal(outputs(passing_on, x), x)
    waits_late = "pal::copy_async_wait<0>();\n  pal::fence_async();", "pal::fence_async(); pal::copy_async_wait<0>();"
    assert "stored without a fence.proxy.async after it" in failure(changed(passing_on, *waits_late), x)


def test_who_has_waited_orders_small_copies_before_the_async_proxy() -> None:
    passing_on = kernel(
        """
  const u32 thread = pal::thread_index(), base = pal::shared_base(), barrier = base + 256;
  if (thread == 0) pal::barrier_init(barrier, 32);
  pal::sync_block();
  if (thread < 32) {
    pal::copy_async<4>(base + 4 * thread, x + thread, 4);
    pal::copy_async_hold(barrier);
    pal::arrive(barrier);
  } else {
    pal::wait(barrier, 0);
    pal::fence_async();
    if (thread == 32) {
      pal::tma_store(&map, base, 0);
      pal::bulk_commit();
      pal::bulk_wait<0>();
    }
  }
        """,
        [array("x", np.int32, 32), output("y", np.int32, 32), tensor_map("map", 1, np.int32, (32,), (32,))],
        threads=64,
        shared=264,
    )
    x = np.arange(32, dtype=np.int32)
    np.testing.assert_array_equal(outputs(passing_on, x), x)
    assert "stored without a fence.proxy.async after it" in failure(changed(passing_on, "pal::fence_async();", ""), x)


# ---- mbarrier.inval ------------------------------------------------------------------------------------------------


def test_the_bytes_of_a_barrier_may_hold_something_else_once_it_is_invalid() -> None:
    reuse = kernel(
        """
  const u32 base = pal::shared_base();
  if (pal::thread_index() == 0) {
    pal::barrier_init(base, 1);
    pal::barrier_invalidate(base);
    pal::store_shared<int>(base, 5);
    y[0] = pal::load_shared<int>(base);
    pal::barrier_init(base, 2);
  }
        """,
        [output("y", np.int32, 1)],
        threads=32,
    )
    assert outputs(reuse)[0] == 5
    assert "belong to an mbarrier" in failure(changed(reuse, "pal::barrier_invalidate(base);", ""))
    twice = changed(
        reuse, "pal::barrier_invalidate(base);", "pal::barrier_invalidate(base); pal::barrier_invalidate(base);"
    )
    assert "no mbarrier has been initialised at 0x400" in failure(twice)
