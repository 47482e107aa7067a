"""Copies of boxes, from the PTX ISA ("Tensors", "Swizzling modes", "cp.async.bulk.tensor", "cp.async.bulk.wait_group")
and the rules of the driver's `cuTensorMapEncodeTiled`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from palladio.base.errors import PalladioValueError
from palladio.hopper.lowered import Lowered, MapParameter
from palladio.hopper.twin import maps
from palladio.hopper.twin.run import SCHEDULES
from tests.hopper.twin.kernels import (
    EARLY,
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

BF16 = np.dtype(ml_dtypes.bfloat16)
SHARED = 8192
BASE = 1024  # where the shared memory of a block begins

COORDINATES = [number(f"c{n}") for n in range(5)]
CALLS = "\n".join(
    f"    if (rank == {rank}) pal::COPY({', '.join(f'c{n}' for n in range(rank))});" for rank in range(1, 6)
)
LOAD = """
  const u32 thread = pal::thread_index(), base = pal::shared_base(), barrier = base + 8192;
  if (thread == 0) {
    pal::barrier_init(barrier, 1);
    pal::fence_barrier_init();
    pal::arrive_expect(barrier, bytes);
  }
  pal::sync_block();
  if (thread == 0) {
CALLS
  }
  pal::wait(barrier, 0);
  for (u32 k = 16 * thread; k < 8192; k += 2048)
    pal::store_global((u32x4*)(image + k), pal::load_shared<u32x4>(base + k));
""".replace("CALLS", CALLS.replace("COPY(", "tma_load(&map, base + at, barrier, "))
STORE = """
  const u32 thread = pal::thread_index(), base = pal::shared_base();
  for (u32 k = 16 * thread; k < 8192; k += 2048)
    pal::store_shared(base + k, pal::load_global((const u32x4*)(image + k)));
  pal::fence_async();
  pal::sync_block();
  if (thread == 0) {
CALLS
    pal::bulk_commit();
    pal::bulk_wait<0>();
  }
""".replace("CALLS", CALLS.replace("COPY(", "tma_store(&map, base + at, "))


def load_kernel(dtype: Any, shape: Sequence[int], box: Sequence[int], **more: Any) -> Lowered:
    """From array x to the bytes of shared memory, at coordinates, an offset and a number of expected bytes."""
    return kernel(
        LOAD,
        [
            number("rank"),
            *COORDINATES,
            number("at", np.uint32),
            number("bytes", np.uint32),
            output("image", np.uint8, SHARED),
            tensor_map("map", 1, dtype, shape, box, **more),
            array("x", np.uint8, int(np.prod(shape)) * np.dtype(dtype).itemsize),
        ],
        shared=SHARED + 256,
    )


def store_kernel(dtype: Any, shape: Sequence[int], box: Sequence[int], **more: Any) -> Lowered:
    """From the bytes of shared memory to array y."""
    return kernel(
        STORE,
        [
            array("image", np.uint8, SHARED),
            number("rank"),
            *COORDINATES,
            number("at", np.uint32),
            tensor_map("map", 1, dtype, shape, box, **more),
            output("y", np.uint8, int(np.prod(shape)) * np.dtype(dtype).itemsize),
        ],
        shared=SHARED,
    )


def scalars(start: Sequence[int]) -> list[np.int32]:
    """The rank and the coordinates, the innermost first."""
    given = [*reversed(start), *[0] * (5 - len(start))]
    return [np.int32(value) for value in (len(start), *given)]


def box_of(x: np.ndarray, start: Sequence[int], box: Sequence[int], fill: Any = 0) -> np.ndarray:
    """PTX ISA, "Tensors": the elements of a box, with the fill outside of the array."""
    result = np.full(box, fill, x.dtype)
    for place in np.ndindex(*box):
        at = tuple(np.add(start, place))
        if all(0 <= a < size for a, size in zip(at, x.shape)):
            result[place] = x[at]
    return result


def in_shared(box: np.ndarray, swizzle: int, at: int = 0) -> np.ndarray:
    """PTX ISA, "Swizzling modes": the bytes of shared memory from `at` on. A line has 128 bytes, 8 pieces of 16.

    The number of the line in memory, modulo the lines of a pattern, is exchanged with that of the piece.
    """
    flat = np.ascontiguousarray(box).view(np.uint8).ravel()
    pattern = {0: 1, 32: 2, 64: 4, 128: 8}[swizzle]
    result = np.empty_like(flat)
    for piece in range(flat.size // 16):
        line, column = divmod(BASE // 16 + at // 16 + piece, 8)
        to = (line * 8 + (column ^ line % pattern)) - (BASE + at) // 16
        result[16 * to : 16 * to + 16] = flat[16 * piece : 16 * piece + 16]
    return result


def example(dtype: Any, shape: Sequence[int]) -> np.ndarray:
    generator = np.random.default_rng(5)
    return generator.integers(1, 100, shape).astype(dtype)


CASES = [
    (np.uint8, (70,), (32,), (16,), 0),
    (np.float32, (9, 12), (4, 8), (2, 4), 32),
    (BF16, (40, 40), (16, 64), (8, 0), 128),
    (BF16, (40, 40), (16, 64), (30, 8), 128),
    (BF16, (40, 40), (16, 32), (-3, -8), 64),
    (np.int32, (5, 20, 8), (2, 8, 8), (4, 15, -4), 32),
    (np.float64, (3, 4, 6), (1, 4, 4), (2, -1, 4), 0),
    (BF16, (2, 3, 5, 16), (2, 2, 3, 16), (1, 2, 3, 0), 32),
    (np.uint8, (2, 2, 3, 5, 64), (2, 1, 2, 3, 64), (0, 1, 2, 3, 0), 64),
]


@pytest.mark.parametrize("dtype, shape, box, start, swizzle", CASES)
def test_a_load_brings_a_box_with_zeros_outside(
    dtype: Any, shape: tuple[int, ...], box: tuple[int, ...], start: tuple[int, ...], swizzle: int
) -> None:
    x = example(dtype, shape)
    if x.shape[-1] * x.itemsize % 16:  # strides are multiples of 16 bytes, a single axis has none
        assert len(shape) == 1
    want = in_shared(box_of(x, start, box), swizzle)
    load = load_kernel(dtype, shape, box, swizzle=swizzle)
    for schedule in SCHEDULES[:3]:
        operands = [*scalars(start), np.uint32(0), np.uint32(want.size), x.view(np.uint8).ravel()]
        image = outputs(load, *operands, schedule=schedule)
        np.testing.assert_array_equal(image[: want.size], want)
        assert (image[want.size :] == 0xFF).all()


@pytest.mark.parametrize("dtype, shape, box, start, swizzle", CASES)
def test_a_store_writes_a_box_and_drops_what_lies_outside(
    dtype: Any, shape: tuple[int, ...], box: tuple[int, ...], start: tuple[int, ...], swizzle: int
) -> None:
    data = example(dtype, box)
    y = np.zeros(int(np.prod(shape)) * data.itemsize, np.uint8).view(data.dtype).reshape(shape)
    for place in np.ndindex(*box):
        at = tuple(np.add(start, place))
        if all(0 <= a < size for a, size in zip(at, shape)):
            y[at] = data[place]
    image = np.zeros(SHARED, np.uint8)
    image[: data.nbytes] = in_shared(data, swizzle)
    store = store_kernel(dtype, shape, box, swizzle=swizzle)
    for schedule in SCHEDULES[:3]:
        found = outputs(store, image, *scalars(start), np.uint32(0), schedule=schedule)
        np.testing.assert_array_equal(found, y.view(np.uint8).ravel())


@pytest.mark.parametrize("swizzle", [32, 64, 128])
def test_a_swizzle_follows_the_address_and_not_the_box(swizzle: int) -> None:
    x = example(BF16, (8, swizzle // 2))
    for at in (128, 256, 640):
        load = load_kernel(BF16, x.shape, x.shape, swizzle=swizzle)
        image = outputs(load, *scalars((0, 0)), np.uint32(at), np.uint32(x.nbytes), x.view(np.uint8).ravel())
        # Lines of a pattern may wrap to places before the box: compare whole memory.
        whole = np.full(SHARED, 0xFF, np.uint8)
        whole[at : at + x.nbytes] = in_shared(x, swizzle, at)
        np.testing.assert_array_equal(image, whole)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, BF16, np.float64])
def test_a_map_may_fill_with_nan(dtype: Any) -> None:
    x = example(dtype, (4, 16))
    load = load_kernel(dtype, x.shape, (2, 16), fill="nan")
    bytes = 2 * 16 * x.itemsize
    image = outputs(load, *scalars((3, 0)), np.uint32(0), np.uint32(bytes), x.view(np.uint8).ravel())
    found = image[:bytes].view(x.dtype).reshape(2, 16)
    np.testing.assert_array_equal(found[0], x[3])
    assert np.isnan(found[1].astype(np.float64)).all()


def test_a_map_with_strides_sees_a_part_of_an_array() -> None:
    x = example(np.float32, (6, 24))
    load = load_kernel(np.float32, (6, 24), (3, 4))
    half = with_map(load, dims=(3, 6), strides=(192,))  # every second row, the first 6 columns
    image = outputs(half, *scalars((1, 4)), np.uint32(0), np.uint32(48), x.view(np.uint8).ravel())
    np.testing.assert_array_equal(image[:48].view(np.float32).reshape(3, 4), box_of(x[::2, :6], (1, 4), (3, 4)))


def with_map(lowered: Lowered, **fields: Any) -> Lowered:
    parameters = tuple(
        replace(each, spec=replace(each.spec, **fields)) if isinstance(each, MapParameter) else each
        for each in lowered.parameters
    )
    return replace(lowered, parameters=parameters)


# ---- Multicast -----------------------------------------------------------------------------------------------------

MULTICAST = kernel(
    """
  const u32 thread = pal::thread_index(), base = pal::shared_base(), barrier = base + 1024;
  if (thread == 0) {
    pal::barrier_init(barrier, 1);
    pal::fence_barrier_init();
    pal::arrive_expect(barrier, 512);
  }
  pal::sync_cluster();
  // Each block brings its half to both.
  if (thread == 0)
    pal::tma_load_multicast(&map, base + 256 * pal::cluster_rank(), barrier, mask, 0, 2 * pal::block_index());
  pal::wait(barrier, 0);
  for (u32 k = 16 * thread; k < 512; k += 2048)
    pal::store_global((u32x4*)(y + 512 * pal::block_index() + k), pal::load_shared<u32x4>(base + k));
  pal::sync_cluster();
    """,
    [
        array("x", np.float32, 8, 32),
        number("mask", np.uint32),
        output("y", np.uint8, 4 * 512),
        tensor_map("map", 0, np.float32, (8, 32), (2, 32)),
    ],
    shared=1024 + 8,
    grid=4,
    cluster=2,
)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_multicast_load_goes_to_every_block_of_the_mask(schedule: Any) -> None:
    x = example(np.float32, (8, 32))
    y = outputs(MULTICAST, x, np.uint32(3), schedule=schedule).view(np.float32).reshape(2, 2, 4, 32)
    for cluster in range(2):
        for rank in range(2):
            np.testing.assert_array_equal(y[cluster, rank], x[4 * cluster : 4 * cluster + 4])


def test_a_mask_names_blocks_of_the_cluster() -> None:
    x = example(np.float32, (8, 32))
    assert "mask 0x6 does not name blocks of a cluster of 2" in failure(MULTICAST, x, np.uint32(6))


def test_a_multicast_load_to_a_block_that_has_ended_is_told() -> None:
    # Without the barriers of the cluster the first block may bring its half after the second has gone.
    gone = changed(MULTICAST, "pal::wait(barrier, 0);", "if (pal::cluster_rank() == 1) return; pal::wait(barrier, 0);")
    says = failure(gone, example(np.float32, (8, 32)), np.uint32(3), schedule=LATE)
    assert "reaches block 1 of the cluster, which has ended" in says


@pytest.mark.parametrize("dtype, shape, box, start, swizzle", CASES[:-1])
def test_a_multicast_load_of_every_rank_that_has_one(
    dtype: Any, shape: tuple[int, ...], box: tuple[int, ...], start: tuple[int, ...], swizzle: int
) -> None:
    x = example(dtype, shape)
    want = in_shared(box_of(x, start, box), swizzle)
    load = load_kernel(dtype, shape, box, swizzle=swizzle)
    five = "if (rank == 5) pal::tma_load(&map, base + at, barrier, c0, c1, c2, c3, c4);"
    multicast = changed(
        changed(load, five, ""), "tma_load(&map, base + at, barrier,", "tma_load_multicast(&map, base + at, barrier, 1,"
    )
    image = outputs(multicast, *scalars(start), np.uint32(0), np.uint32(want.size), x.view(np.uint8).ravel())
    np.testing.assert_array_equal(image[: want.size], want)


# ---- Transaction bytes ---------------------------------------------------------------------------------------------


def load_of(expected: int, schedule: Any = LATE, load: Lowered | None = None, at: int = 0) -> str:
    x = example(np.float32, (8, 8))
    kernel = load or load_kernel(np.float32, (8, 8), (8, 8))
    return failure(
        kernel, *scalars((0, 0)), np.uint32(at), np.uint32(expected), x.view(np.uint8).ravel(), schedule=schedule
    )


def test_bytes_that_are_missing_are_a_deadlock() -> None:
    assert "in phase 0, 0 of 1 arrivals and 16 bytes are missing" in load_of(272)


def test_bytes_that_are_not_expected_are_told() -> None:
    assert "brings the mbarrier at 0x2400 16 bytes more than its phase expects" in load_of(240)


def test_filled_bytes_count_too() -> None:
    x = example(np.float32, (8, 8))
    load = load_kernel(np.float32, (8, 8), (8, 8))
    outputs(load, *scalars((6, 4)), np.uint32(0), np.uint32(256), x.view(np.uint8).ravel())


def test_a_phase_counts_at_most_2_20_bytes() -> None:
    assert "would expect 1048576 bytes; it counts at most 1048575" in load_of(1 << 20)


# ---- Rules ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "old, new, at, says",
    [
        ("", "", 64, "a box begins at shared address 0x440, which must be a multiple of 128"),
        ("", "", 8064, "belong to an mbarrier"),
        ("", "", 8192 + 128, "reach outside of shared memory"),
        ("if (rank == 2) pal::tma_load(&map, base + at, barrier, c0, c1)",
         "if (rank == 2) pal::tma_load(&map, base + at, barrier, c0)", 0, "has 2 axes, the copy gives 1 coordinates"),
        ("base + at, barrier, c0, c1)", "base + at, barrier + 4, c0, c1)", 0, "must be a multiple of 8"),
        ("base + at, barrier, c0, c1)", "base + at, base + 512, c0, c1)", 0, "no mbarrier has been initialised at"),
        ("pal::sync_block();", "pal::sync_block(); pal::prefetch_map((const TensorMap*)x);", 0, "was not encoded"),
        ("pal::sync_block();", "pal::sync_block(); pal::prefetch_map(&map);", 0, ""),
        ("pal::fence_barrier_init();", "", 0, "was initialised without a fence.mbarrier_init after it"),
        ("&map, base + at, barrier, c0, c1)", "(TensorMap*)((char*)&map + 8), base + at, barrier, c0, c1)", 0,
         "lies at an address that is not a multiple of 64"),
        ("pal::wait(barrier, 0);", "", 0, "reads bytes at 0x400 that an asynchronous operation in flight still writes"),
        ("pal::wait(barrier, 0);", "if (thread == 0) pal::store_shared<u32>(base, 0);", 0,
         "writes bytes at 0x400 that an asynchronous operation in flight still writes"),
        ("pal::barrier_init(barrier, 1);", "pal::store_shared<u32>(base, 0); pal::barrier_init(barrier, 1);", 0, ""),
        ("pal::fence_barrier_init();", "pal::fence_barrier_init(); pal::store_shared<u32>(base, 0);", 0,
         "the async proxy overwrites bytes at 0x400 that thread 0 stored without a fence.proxy.async after it"),
    ],
)  # fmt: skip
def test_a_broken_rule_is_told(old: str, new: str, at: int, says: str) -> None:
    load = load_kernel(np.float32, (8, 8), (8, 8))
    load = changed(load, old, new) if old else load
    if says:
        assert says in load_of(256, load=load, at=at)
    else:
        x = example(np.float32, (8, 8)).view(np.uint8).ravel()
        outputs(load, *scalars((0, 0)), np.uint32(0), np.uint32(256), x)


@pytest.mark.parametrize("column", [-1, 3])
def test_a_box_begins_at_a_multiple_of_16_bytes_of_a_row(column: int) -> None:
    wanted = f"a box begins at element {column} of a row, which is not at a multiple of 16 bytes"
    x = example(np.float32, (8, 8)).view(np.uint8).ravel()
    load, store = load_kernel(np.float32, (8, 8), (4, 4)), store_kernel(np.float32, (8, 8), (4, 4))
    assert wanted in failure(load, *scalars((0, column)), np.uint32(0), np.uint32(64), x)
    assert wanted in failure(store, np.zeros(SHARED, np.uint8), *scalars((0, column)), np.uint32(0))


@pytest.mark.parametrize(
    "fields, says",
    [
        ({"dims": (8, 8, 8, 8, 8, 8)}, "a map has 1 to 5 axes"),
        ({"strides": ()}, "a map has a box size for each axis, and a stride for each but the last"),
        ({"dims": (0, 8)}, "each axis of a map has 1 to 2^32 elements"),
        ({"strides": (24,)}, "strides are multiples of 16 bytes, below 2^40"),
        ({"strides": (1 << 40,)}, "strides are multiples of 16 bytes, below 2^40"),
        ({"box": (257, 4)}, "a box has 1 to 256 elements along each axis"),
        ({"box": (0, 4)}, "a box has 1 to 256 elements along each axis"),
        ({"box": (8, 2)}, "the last axis of a box is a multiple of 16 bytes"),
        ({"swizzle": 16}, "a swizzle has 0, 32, 64 or 128 bytes"),
        ({"box": (8, 16), "swizzle": 32}, "the last axis of a box is at most as wide as the swizzle"),
        ({"box": (8, 4), "swizzle": 32}, "the twin has boxes exactly as wide as their swizzle"),
        (
            {"dtype": np.dtype(np.int32), "fill": "nan"},
            "outside of the array there are zeros, or NaN for floating-point",
        ),
        ({"fill": "ones"}, "outside of the array there are zeros, or NaN for floating-point"),
        ({"dims": (9, 8)}, "the map reaches byte 284 of an array of 256 bytes"),
    ],
)
def test_a_map_that_the_driver_refuses_is_told(fields: dict[str, Any], says: str) -> None:
    spec = load_kernel(np.float32, (8, 8), (8, 8)).maps[0]
    with pytest.raises(PalladioValueError) as caught:
        maps.check(replace(spec, **fields), aligned(256))
    assert str(caught.value).startswith(f"tensor map: {says}")


def test_a_map_begins_at_a_multiple_of_16_bytes() -> None:
    spec = load_kernel(np.float32, (8, 8), (8, 8)).maps[0]
    with pytest.raises(PalladioValueError, match="the array must begin at a multiple of 16 bytes"):
        maps.check(spec, aligned(272)[4:])


def aligned(size: int) -> np.ndarray:
    raw = np.zeros(size + 16, np.uint8)
    start = -raw.ctypes.data % 16
    return raw[start : start + size]


# ---- Reductions ----------------------------------------------------------------------------------------------------

COMBINE = {"ADD": np.add, "MIN": np.minimum, "MAX": np.maximum}
BITS = {"AND": np.bitwise_and, "OR": np.bitwise_or, "XOR": np.bitwise_xor}
REDUCE = """
  const u32 thread = pal::thread_index(), base = pal::shared_base();
  for (u32 k = thread; k < count; k += 32) y[k] = old[k];
  pal::fence_async_global();
  for (u32 k = 16 * thread; k < 512; k += 512)
    pal::store_shared(base + k, pal::load_global((const u32x4*)(image + k)));
  pal::fence_async();
  pal::sync_block();
  if (thread == 0) {
    pal::tma_reduce<pal::KIND>(&map, base, 0, 3);
    pal::bulk_commit();
    pal::bulk_wait<0>();
  }
"""


def reduction(kind: str, dtype: Any) -> Lowered:
    """Combines the bytes of an image, 4 rows of 16, with array `old`, 6 rows, from row 3 on."""
    count = 6 * 16 * np.dtype(dtype).itemsize
    return kernel(
        REDUCE.replace("KIND", kind),
        [
            array("image", np.uint8, 512),
            array("old", np.uint8, count),
            number("count", np.uint32),
            output("y", np.uint8, count),
            tensor_map("map", 2, dtype, (6, 16), (4, 16)),
        ],
        threads=32,
    )


REDUCTIONS = [
    *((kind, dtype) for kind in (*COMBINE, *BITS) for dtype in (np.int32, np.uint32, np.uint64)),
    *((kind, np.int64) for kind in ("MIN", "MAX")),
    *((kind, dtype) for kind in COMBINE for dtype in (np.float16, BF16)),
    ("ADD", np.float32),
]


@pytest.mark.parametrize(
    "kind, dtype", REDUCTIONS, ids=lambda each: each if isinstance(each, str) else str(np.dtype(each))
)
def test_a_reduction_combines_a_box_with_the_array(kind: str, dtype: Any) -> None:
    # "cp.reduce.async.bulk.tensor"; the last row of the box lies outside.
    generator = np.random.default_rng(6)
    low = 0 if np.dtype(dtype).kind == "u" else -100
    box, old = (generator.integers(low, 100, (rows, 16)).astype(dtype) for rows in (4, 6))
    want = old.copy()
    want[3:] = {**COMBINE, **BITS}[kind](old[3:], box[:3])
    image = np.zeros(512, np.uint8)
    image[: box.nbytes] = box.view(np.uint8).ravel()
    operands = image, old.view(np.uint8).ravel(), np.uint32(old.nbytes)
    for schedule in SCHEDULES[:3]:
        found = outputs(reduction(kind, dtype), *operands, schedule=schedule)
        np.testing.assert_array_equal(found.view(want.dtype).reshape(6, 16), want)


REDUCED_BOXES = [
    ((8,), (8,), (4,)),
    ((9, 12), (4, 8), (2, 4)),
    ((5, 20, 8), (2, 8, 8), (4, 15, -4)),
    ((2, 3, 5, 4), (2, 2, 3, 4), (1, 2, 3, 0)),
    ((2, 2, 3, 5, 4), (2, 1, 2, 3, 4), (0, 1, 2, 3, 0)),
]


@pytest.mark.parametrize("shape, box, start", REDUCED_BOXES)
def test_a_reduction_of_every_rank(shape: tuple[int, ...], box: tuple[int, ...], start: tuple[int, ...]) -> None:
    adding = changed(store_kernel(np.int32, shape, box), "pal::tma_store(", "pal::tma_reduce<pal::ADD>(")
    adding = replace(adding, arrays=tuple(replace(each, zeroed=True) for each in adding.arrays))
    data = example(np.int32, box)
    image = np.zeros(SHARED, np.uint8)
    image[: data.nbytes] = data.view(np.uint8).ravel()
    found = outputs(adding, image, *scalars(start), np.uint32(0)).view(np.int32).reshape(shape)
    want = np.zeros(shape, np.int32)
    for place in np.ndindex(*box):
        at = tuple(np.add(start, place))
        if all(0 <= a < size for a, size in zip(at, shape)):
            want[at] = data[place]
    np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize(
    "kind, dtype",
    [
        ("MIN", np.float32),
        ("AND", np.float16),
        ("ADD", np.float64),
        ("ADD", np.int64),
        ("OR", np.int64),
        ("ADD", np.uint8),
    ],
)
def test_a_reduction_that_the_copy_engine_does_not_have_is_told(kind: str, dtype: Any) -> None:
    count = 6 * 16 * np.dtype(dtype).itemsize
    operands = np.zeros(512, np.uint8), np.zeros(count, np.uint8), np.uint32(count)
    assert "the reduction does not take elements of this type" in failure(reduction(kind, dtype), *operands)


# ---- Groups --------------------------------------------------------------------------------------------------------

UNWRITTEN = np.iinfo(np.int32).min

GROUPS = kernel(
    """
  const u32 thread = pal::thread_index(), base = pal::shared_base();
  if (thread == 0) {
    for (int k = 0; k < 64; ++k) pal::store_shared<u32>(base + 4 * k, k);
    pal::fence_async();
    for (int k = 0; k < 4; ++k) {
      pal::tma_store(&map, base, 0, k);
      pal::bulk_commit();
    }
    // wait
    for (int k = 0; k < 4; ++k) seen[k] = pal::load_global(y + 32 * k);
    // after
    pal::bulk_wait<0>();
  }
    """,
    [output("y", np.int32, 4, 32), output("seen", np.int32, 4), tensor_map("map", 0, np.int32, (4, 32), (1, 32))],
    threads=32,
    shared=256,
)


@pytest.mark.parametrize("left", range(5))
def test_a_wait_leaves_at_most_that_many_groups_in_flight(left: int) -> None:
    waiting = changed(GROUPS, "// wait", f"pal::bulk_wait<{left}>();")
    y, seen = outputs(waiting, schedule=LATE)
    np.testing.assert_array_equal(seen, [0] * (4 - left) + [UNWRITTEN] * left)  # none completes before it must
    np.testing.assert_array_equal(y, [np.arange(32)] * 4)
    np.testing.assert_array_equal(outputs(waiting, schedule=EARLY)[1], [0] * 4)


def test_a_wait_for_reading_lets_the_source_be_written_and_tells_nothing_of_the_result() -> None:
    y, seen = outputs(changed(GROUPS, "// wait", "pal::bulk_wait_read<0>(); pal::store_shared<u32>(base, 99);"))
    np.testing.assert_array_equal(seen, [UNWRITTEN] * 4)
    np.testing.assert_array_equal(y, [np.arange(32)] * 4)
    written = changed(GROUPS, "// wait", "pal::bulk_wait_read<1>(); pal::store_shared<u32>(base, 99);")
    assert "writes bytes at 0x400 that an asynchronous operation in flight still reads" in failure(written)


def test_copies_outside_of_a_group_are_not_waited_for() -> None:
    open_group = changed(GROUPS, "pal::bulk_commit();", "")
    assert "still in flight when its block ends; the thread that issued it has to wait for it" in failure(open_group)


def test_a_block_may_end_before_its_results_are_written_but_not_before_they_are_read() -> None:
    only_read = changed(GROUPS, "pal::bulk_wait<0>();", "pal::bulk_wait_read<0>();")
    np.testing.assert_array_equal(outputs(only_read)[0], [np.arange(32)] * 4)
    assert "still in flight when its block ends" in failure(changed(GROUPS, "pal::bulk_wait<0>();", ""))
