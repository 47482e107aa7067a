"""Collectives of a warp, from the PTX ISA: "shfl.sync", "vote.sync", "redux.sync", "elect.sync", "stmatrix"."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from palladio.hopper.twin.run import SCHEDULES, Schedule, run
from tests.hopper.twin.kernels import array, changed, failure, kernel, output, outputs

EVERY = pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda each: f"{each.completion}{each.seed}")

EXCHANGES = kernel(
    """
  const u32 thread = pal::thread_index();
  const int v = x[thread];
  int* to = y + 12 * thread;
  to[0] = pal::shuffle(v, 5);
  to[1] = pal::shuffle(v, (int)(thread + 3));
  to[2] = pal::shuffle_xor(v, 9);
  to[3] = pal::shuffle_up(v, 4);
  to[4] = (int)pal::ballot(v % 3 == 0);
  to[5] = pal::warp_sum(v);
  to[6] = (int)pal::warp_sum((u32)v);
  to[7] = pal::uniform(v);
  to[8] = pal::elect();
  to[9] = (int)(pal::shuffle((u64)v << 32 | 7, 6) >> 32);
  to[10] = (int)pal::shuffle_xor((float)v, 1);
  pal::sync_warp();
  to[11] = pal::elect();
    """,
    [array("x", np.int32, 64), output("y", np.int32, 64, 12)],
    threads=64,
)


@EVERY
def test_every_lane_gets_the_value_of_the_right_one(schedule: Schedule) -> None:
    x = np.random.default_rng(0).integers(-1000, 1000, 64).astype(np.int32)
    y = outputs(EXCHANGES, x, schedule=schedule).reshape(2, 32, 12)
    lane = np.arange(32)
    for warp in range(2):
        v, got = x[32 * warp :][:32], y[warp]
        np.testing.assert_array_equal(got[:, 0], v[5])
        np.testing.assert_array_equal(got[:, 1], v[(lane + 3) % 32])
        np.testing.assert_array_equal(got[:, 2], v[lane ^ 9])
        np.testing.assert_array_equal(got[:, 3], np.where(lane < 4, v, v[(lane - 4) % 32]))
        np.testing.assert_array_equal(got[:, 4].view(np.uint32), sum(1 << k for k in range(32) if v[k] % 3 == 0))
        np.testing.assert_array_equal(got[:, 5], v.sum())
        np.testing.assert_array_equal(got[:, 6], v.sum())
        np.testing.assert_array_equal(got[:, 7], v[0])
        np.testing.assert_array_equal(got[:, 9], v[6])
        np.testing.assert_array_equal(got[:, 10], v[lane ^ 1])
        assert got[:, 8].sum() == 1
        np.testing.assert_array_equal(got[:, 8], got[:, 11])


def test_the_elected_lane_differs_between_schedules() -> None:
    x = np.zeros(64, np.int32)
    lanes = {int(outputs(EXCHANGES, x, schedule=each).reshape(2, 32, 12)[0, :, 8].argmax()) for each in SCHEDULES}
    assert {0, 31} <= lanes


@pytest.mark.parametrize(
    "collective",
    [
        "pal::sync_warp()",
        "pal::sync_block()",
        "pal::sync_named(1, 64)",
        "pal::sync_cluster()",
        "pal::elect()",
        "pal::shuffle(v, 1)",
        "pal::warp_sum(v)",
        "pal::ballot(v)",
        "pal::registers_decrease<24>()",
        "pal::stmatrix2(pal::shared_base() + 16 * (thread % 16), 0, 0)",
    ],
)
def test_lanes_that_diverge_at_a_collective_are_told(collective: str) -> None:
    diverging = kernel(
        f"""
  const u32 thread = pal::thread_index();
  const int v = x[thread];
  if (v) {collective};
  else {collective};
        """,
        [array("x", np.int32, 64), output("y", np.int32, 1)],
        threads=64,
    )
    outputs(diverging, np.ones(64, np.int32))
    mixed = np.ones(64, np.int32)
    mixed[40] = 0
    says = failure(diverging, mixed)
    assert says.startswith("kernel.cu:4: block 0, warp 1, lane 8, ")
    assert "the lanes of a warp must execute this instruction together, but lane 0 is at " in says
    assert says.endswith("(kernel.cu:3)")


def test_a_lane_that_ends_before_a_collective_is_told() -> None:
    ending = kernel("if (pal::thread_index() != 3) pal::sync_warp();", [output("y", np.int32, 1)], threads=32)
    assert "the thread ends while lane 0 of its warp waits at bar.warp.sync (kernel.cu:1)" in failure(ending)


def test_a_lane_that_waits_elsewhere_while_others_meet_is_a_deadlock() -> None:
    waiting = kernel(
        """
  const u32 barrier = pal::shared_base();
  if (pal::thread_index() == 3) {
    pal::barrier_init(barrier, 1);
    pal::wait(barrier, 0);
  }
  if (pal::elect()) pal::arrive(barrier);
        """,
        [output("y", np.int32, 1)],
        threads=32,
    )
    says = failure(waiting)
    assert (
        "31 threads of warps 0 of block 0 at kernel.cu:6, elect.sync, for elect.sync, met by 31 of the warp's" in says
    )


# ---- stmatrix ------------------------------------------------------------------------------------------------------

MATRICES = kernel(
    """
  const u32 lane = pal::thread_index(), base = pal::shared_base();
  u32 v[4];
  for (int i = 0; i < 4; ++i) v[i] = values[4 * lane + i];
  pal::stmatrix4(base + rows[lane], v[0], v[1], v[2], v[3]);
  pal::stmatrix2(base + 1024 + rows[lane % 16], v[0], v[1]);
  pal::sync_warp();
  for (u32 k = 4 * lane; k < 2048; k += 128) pal::store_global((u32*)(y + k), pal::load_shared<u32>(base + k));
    """,
    [array("values", np.uint32, 32, 4), array("rows", np.uint32, 32), output("y", np.uint8, 2048)],
    threads=32,
    shared=2048,
)


@EVERY
def test_stmatrix_stores_the_rows_that_the_lanes_name(schedule: Schedule) -> None:
    # "stmatrix": lane 4r + c holds elements 2c and 2c + 1 of row r of each matrix; lane 8i + r names row r of matrix i.
    matrices = np.random.default_rng(1).integers(0, 1 << 16, (4, 8, 8)).astype(np.uint16)
    values = np.empty((32, 4), np.uint32)
    for lane in range(32):
        for i in range(4):
            low, high = matrices[i, lane // 4, 2 * (lane % 4) :][:2]
            values[lane, i] = int(low) | (int(high) << 16)
    rows = 16 * np.random.default_rng(2).permutation(32).astype(np.uint32)
    y = outputs(MATRICES, values, rows, schedule=schedule)
    want = np.full(2048, 0xFF, np.uint8)
    for n, start in enumerate(rows):
        want[start : start + 16] = matrices[n // 8, n % 8].view(np.uint8)
        if n < 16:
            want[1024 + start :][:16] = matrices[n // 8, n % 8].view(np.uint8)
    np.testing.assert_array_equal(y, want)


LOADS = kernel(
    """
  const u32 lane = pal::thread_index(), base = pal::shared_base();
  for (u32 k = 4 * lane; k < 512; k += 128) pal::store_shared(base + k, pal::load_global((const u32*)(x + k)));
  pal::sync_warp();
  u32 v[4], t[4];
  pal::ldmatrix4(base + rows[lane], v[0], v[1], v[2], v[3]);
  pal::ldmatrix4_transposed(base + rows[lane], t[0], t[1], t[2], t[3]);
  pal::stmatrix4_transposed(base + 512 + 16 * lane, t[0], t[1], t[2], t[3]);
  pal::sync_warp();
  for (int i = 0; i < 4; ++i) values[4 * lane + i] = v[i], transposed[4 * lane + i] = t[i];
  for (u32 k = 4 * lane; k < 512; k += 128) pal::store_global((u32*)(y + k), pal::load_shared<u32>(base + 512 + k));
    """,
    [
        array("x", np.uint8, 512),
        array("rows", np.uint32, 32),
        *(output(name, np.uint32, 32, 4) for name in ("values", "transposed")),
        output("y", np.uint8, 512),
    ],
    threads=32,
    shared=1024,
)


@EVERY
def test_ldmatrix_gives_each_lane_its_elements(schedule: Schedule) -> None:
    # "ldmatrix": lane 4r + c gets elements 2c and 2c + 1 of row r; with .trans, of column r.
    matrices = np.random.default_rng(1).integers(0, 1 << 16, (4, 8, 8)).astype(np.uint16)
    rows = 16 * np.random.default_rng(2).permutation(32).astype(np.uint32)
    x = np.zeros(512, np.uint8)
    for n, start in enumerate(rows):
        x[start : start + 16] = matrices[n // 8, n % 8].view(np.uint8)
    values, transposed, y = outputs(LOADS, x, rows, schedule=schedule)
    for lane in range(32):
        pair = slice(2 * (lane % 4), 2 * (lane % 4) + 2)
        np.testing.assert_array_equal(values[lane].view(np.uint16).reshape(4, 2), matrices[:, lane // 4, pair])
        np.testing.assert_array_equal(transposed[lane].view(np.uint16).reshape(4, 2), matrices[:, pair, lane // 4])
    np.testing.assert_array_equal(y, matrices.view(np.uint8).ravel())  # stored as it was loaded, it is as before


def test_rows_of_a_matrix_begin_at_multiples_of_16_bytes() -> None:
    rows = 16 * np.arange(32, dtype=np.uint32)
    rows[9] += 8
    assert "stmatrix.x4: address 0x498 must be a multiple of 16" in failure(
        MATRICES, np.zeros((32, 4), np.uint32), rows
    )


# ---- Numbers -------------------------------------------------------------------------------------------------------

BF16, F16 = np.dtype(ml_dtypes.bfloat16), np.dtype(np.float16)
NUMBERS = kernel(
    """
  for (u32 k = pal::thread_index(); k < 65536; k += 1024) {
    bf16[k] = pal::bits_of(pal::float_bf16((u16)k));
    f16[k] = pal::bits_of(pal::float_f16((u16)k));
    to_bf16[k] = pal::bits_bf16(x[k]);
    to_f16[k] = pal::bits_f16(x[k]);
    pairs[2 * k] = pal::pack_bf16(x[k], 1.0f);
    pairs[2 * k + 1] = pal::pack_f16(1.0f, pal::float_of(pal::bits_of(x[k])));
  }
    """,
    [
        array("x", np.float32, 65536),
        output("bf16", np.uint32, 65536),
        output("f16", np.uint32, 65536),
        output("to_bf16", BF16, 65536),
        output("to_f16", F16, 65536),
        output("pairs", np.uint32, 131072),
    ],
    threads=1024,
)


COUNTED = kernel(
    """
  const u32 k = pal::thread_index();
  y[k] = pal::ones((u32)x[k]) + 100 * pal::leading_zeros((u32)x[k]);
  z[k] = pal::ones(x[k]) + 100 * pal::leading_zeros(x[k]);
  inverse[k] = erfinv(p[k]);
    """,
    [
        array("x", np.uint64, 64),
        array("p", np.float64, 64),
        output("y", np.int32, 64),
        output("z", np.int32, 64),
        output("inverse", np.float64, 64),
    ],
    threads=64,
)


def test_bits_are_counted_and_erf_is_inverted() -> None:
    x = np.random.default_rng(0).integers(0, 1 << 63, 64, dtype=np.uint64) >> np.arange(64, dtype=np.uint64)
    p = np.concatenate([np.linspace(-0.999, 0.999, 60), [1 - 1e-15, 1, -1, 2]])
    low, high, inverse = run(COUNTED, [x, p]).outputs
    for bits, found in ((32, low), (64, high)):
        numbers = [int(each) % (1 << bits) for each in x]
        np.testing.assert_array_equal(found, [n.bit_count() + 100 * (bits - n.bit_length()) for n in numbers])
    np.testing.assert_allclose([math.erf(each) for each in inverse[:61]], p[:61], rtol=1e-14)
    np.testing.assert_array_equal(inverse[61:], [np.inf, -np.inf, np.nan])


def hard_numbers() -> np.ndarray:
    """Every float16 and its neighbours half-way, infinities and NaN, and random bits."""
    every = np.arange(1 << 15, dtype=np.uint16).view(F16).astype(np.float32)
    halves = (every.view(np.uint32) + np.uint32(1 << 12)).view(np.float32)
    random = np.random.default_rng(3).integers(0, 1 << 32, 16384, dtype=np.uint64).astype(np.uint32).view(np.float32)
    return np.concatenate([halves, every[::2], random])


def same(got: np.ndarray, want: np.ndarray) -> None:
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_array_equal(got[~np.isnan(want)], want[~np.isnan(want)])


@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
@pytest.mark.filterwarnings("ignore:invalid value encountered in cast")
def test_conversions_round_to_nearest_even() -> None:
    x = hard_numbers()
    bf16, f16, to_bf16, to_f16, pairs = outputs(NUMBERS, x)
    every = np.arange(65536, dtype=np.uint16)
    same(bf16.view(np.float32), every.view(BF16).astype(np.float32))
    same(f16.view(np.float32), every.view(F16).astype(np.float32))
    same(to_bf16.astype(np.float32), x.astype(BF16).astype(np.float32))
    same(to_f16.astype(np.float32), x.astype(F16).astype(np.float32))
    one = {BF16: 0x3F80, F16: 0x3C00}
    np.testing.assert_array_equal(pairs[::2], to_bf16.view(np.uint16) | np.uint32(one[BF16] << 16))
    np.testing.assert_array_equal(pairs[1::2], to_f16.view(np.uint16).astype(np.uint32) << 16 | one[F16])


ODD = kernel(
    "y[pal::thread_index()] = pal::bits_f16(pal::odd_float(x[pal::thread_index()]));",
    [array("x", np.float64, 128), output("y", F16, 128)],
)


@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
def test_a_float64_is_rounded_to_float16_once() -> None:
    """Half-way between two numbers but for bits that float32 does not have."""
    half_way = np.array([1 + 2**-11, 2049, 65520, 3 * 2**-25, 2**-24, 1e300, np.inf, np.nan])
    x = np.concatenate([sign * half_way * (1 + step) for sign in (1, -1) for step in (0, 2**-40, -(2**-40), 2**-52)])
    same(outputs(ODD, np.tile(x, 2)).astype(np.float32), np.tile(x, 2).astype(F16).astype(np.float32))


F8 = [np.dtype(ml_dtypes.float8_e4m3fn), np.dtype(ml_dtypes.float8_e5m2)]
BYTES = kernel(
    """
  for (u32 k = pal::thread_index(); k < 65536; k += 1024) {
    to_e4m3[k] = pal::bits_e4m3(x[k]), to_e5m2[k] = pal::bits_e5m2(x[k]);
    if (k < 256) e4m3[k] = pal::float_e4m3(k), e5m2[k] = pal::float_e5m2(k);
    wide[k] = pal::double_of(pal::bits_of((double)x[k]) ^ 1ull << 63);
  }
    """,
    [
        array("x", np.float32, 65536),
        output("to_e4m3", F8[0], 65536),
        output("to_e5m2", F8[1], 65536),
        output("e4m3", np.float32, 256),
        output("e5m2", np.float32, 256),
        output("wide", np.float64, 65536),
    ],
    threads=1024,
)


@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
@pytest.mark.filterwarnings("ignore:invalid value encountered in cast")
def test_bytes_are_floats_too() -> None:
    every = np.arange(256, dtype=np.uint8)
    x = hard_numbers()
    for n, kind in enumerate(F8):  # all numbers, the halves between them, and what lies just beyond these
        numbers = every.view(kind).astype(np.float32)
        finite = np.sort(numbers[np.isfinite(numbers)])
        halves = np.concatenate([(finite[1:] + finite[:-1]) / 2, [464, 480, 61440, 65536, -464, -61440]])
        near = [np.nextafter(halves, np.inf), np.nextafter(halves, -np.inf)]
        some = np.concatenate([numbers, halves, *near]).astype(np.float32)
        x[n * 2048 : n * 2048 + some.size] = some
    to_e4m3, to_e5m2, e4m3, e5m2, wide = outputs(BYTES, x)
    for got, back, kind in ((to_e4m3, e4m3, F8[0]), (to_e5m2, e5m2, F8[1])):
        same(back, every.view(kind).astype(np.float32))
        same(got.astype(np.float32), x.astype(kind).astype(np.float32))
    same(wide, -x.astype(np.float64))


def test_maximum_and_minimum_keep_nan() -> None:
    extremes = kernel(
        """
  const u32 k = pal::thread_index();
  y[2 * k] = pal::maximum(a[k], b[k]), y[2 * k + 1] = pal::minimum(a[k], b[k]);
  z[2 * k] = pal::maximum((double)a[k], (double)b[k]), z[2 * k + 1] = pal::minimum((double)a[k], (double)b[k]);
        """,
        [
            *(array(name, np.float32, 32) for name in "ab"),
            output("y", np.float32, 32, 2),
            output("z", np.float64, 32, 2),
        ],
        threads=32,
    )
    some = np.array([0.0, -0.0, 1.5, -2.0, np.inf, -np.inf, np.nan, 3.0], np.float32)
    a, b = np.repeat(some, 4), np.tile(some, 4)
    for got in outputs(extremes, a, b):
        np.testing.assert_array_equal(got[:, 0], np.maximum(a, b))
        np.testing.assert_array_equal(got[:, 1], np.minimum(a, b))


def test_an_inverse_is_that_of_numbers_from_one_on() -> None:
    inverse = kernel(
        "y[pal::thread_index()] = pal::inverse(x[pal::thread_index()]);",
        [array("x", np.float32, 32), output("y", np.float32, 32)],
        threads=32,
    )
    x = np.exp(np.linspace(0, 87, 32)).astype(np.float32)
    x[-1] = np.inf
    np.testing.assert_allclose(outputs(inverse, x), 1 / x, rtol=3e-7)


def test_an_approximate_power_of_two_is_flushed_to_zero() -> None:
    power = kernel(
        "y[pal::thread_index()] = pal::approximate_exp2(x[pal::thread_index()]);",
        [array("x", np.float32, 32), output("y", np.float32, 32)],
        threads=32,
    )
    x = np.array([-np.inf, -127, -126, -1.5, 0, 0.5, 127, np.inf, np.nan, *range(23)], np.float32)
    expected = np.exp2(x, where=x != -127, out=np.zeros(32, np.float32))
    np.testing.assert_allclose(outputs(power, x), expected, rtol=3e-7)


POWERS = kernel(
    """
  const u32 k = pal::thread_index();
  y[2 * k] = pal::power<int>(a[k], b[k]), y[2 * k + 1] = pal::power<signed char>(a[k], b[k]);
  z[k] = pal::power<u64>((u32)a[k], b[k] & 31);
    """,
    [*(array(name, np.int32, 32) for name in "ab"), output("y", np.int32, 32, 2), output("z", np.uint64, 32)],
    threads=32,
)


def test_powers_wrap_around_and_negative_ones_are_of_one() -> None:
    a = np.tile(np.array([1, -1, 0, 2, -3, 7, -128, 100], np.int32), 4)
    b = np.repeat(np.array([0, 3, -2, 31], np.int32), 8)
    y, z = outputs(POWERS, a, b)

    def power(x: int, y: int, bits: int, signed: bool = True) -> int:
        exact = x**y if y >= 0 else {1: 1, -1: 1 if y % 2 == 0 else -1}.get(x, 0)
        exact %= 1 << bits
        return exact - (1 << bits) if signed and exact >> (bits - 1) else exact

    pairs = list(zip(a.tolist(), b.tolist(), strict=True))
    np.testing.assert_array_equal(y, [[power(x, n, 32), power(x, n, 8)] for x, n in pairs])
    wanted = [power(x % (1 << 32), n % 32, 64, False) for x, n in pairs]
    np.testing.assert_array_equal(z, np.array(wanted, np.uint64))


def test_a_shuffle_is_not_a_shuffle_of_another_line() -> None:
    # Two collectives on one line are two places.
    same_line = changed(EXCHANGES, "pal::sync_warp();", "if (v) pal::elect(); else pal::elect();")
    x = np.ones(64, np.int32)
    outputs(same_line, x)
    x[3] = 0
    assert "must execute this instruction together" in failure(same_line, x)
