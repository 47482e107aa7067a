"""Ordinary loads and stores: bounds, alignment, and uninitialised memory."""

from __future__ import annotations

import numpy as np
import pytest

from palladio.base.errors import PalladioValueError
from palladio.hopper.twin.run import SCHEDULES, Schedule, run
from tests.hopper.twin.kernels import array, changed, failure, kernel, output, outputs

WIDTHS = kernel(
    """
  const u32 base = pal::shared_base();
  if (pal::thread_index() == 0) {
    pal::store_shared<u8>(base, pal::load_global(x));
    pal::store_shared<u16>(base + 2, pal::load_global((const u16*)(x + 2)));
    pal::store_shared<float>(base + 4, pal::load_constant((const float*)(x + 4)));
    pal::store_shared<double>(base + 8, pal::load_global((const double*)(x + 8)));
    pal::store_shared(base + 16, pal::load_global((const u32x4*)(x + 16)));
    pal::store_shared(base + 32, pal::load_global((const u32x2*)(x + 32)));
    pal::store_global(y, pal::load_shared<u8>(base));
    pal::store_global((u16*)(y + 2), pal::load_shared<u16>(base + 2));
    pal::store_global((int*)(y + 4), pal::load_shared<int>(base + 4));
    pal::store_global((u64*)(y + 8), pal::load_shared<u64>(base + 8));
    pal::store_global((u32x4*)(y + 16), pal::load_shared<u32x4>(base + 16));
    pal::store_global((u32x2*)(y + 32), pal::load_shared<u32x2>(base + 32));
  }
    """,
    [array("x", np.uint8, 48), output("y", np.uint8, 48)],
    threads=32,
    shared=64,
)


def test_loads_and_stores_of_every_width() -> None:
    x = np.arange(1, 49, dtype=np.uint8)
    want = x.copy()
    want[1] = 0  # uninitialised
    want[40:] = 0
    np.testing.assert_array_equal(outputs(WIDTHS, x), want)


@pytest.mark.parametrize(
    "old, new, says",
    [
        ("store_shared(base + 16,", "store_shared(base + 24,", "st.shared: address 0x418 must be a multiple of 16"),
        (
            "load_shared<int>(base + 4)",
            "load_shared<int>(base + 6)",
            "ld.shared: address 0x406 must be a multiple of 4",
        ),
        (
            "load_shared<int>(base + 4)",
            "load_shared<int>(base + 64)",
            "bytes 0x440 to 0x444 reach outside of shared memory",
        ),
        ("load_shared<int>(base + 4)", "load_shared<int>(4)", "which is 0x400 to 0x440"),
        ("load_shared<int>(base + 4)", "load_shared<int>(1 << 24)", "the instruction takes .shared::cta"),
        ("(const u32x4*)(x + 16)", "(const u32x4*)(x + 20)", "must be a multiple of 16"),
        (
            "(const u32x4*)(x + 16)",
            "(const u32x4*)(x + 48)",
            "ld.global: 16 bytes at byte 48 of array 0, which has 48 bytes",
        ),
        ("(const u32x4*)(x + 16)", "(const u32x4*)(x - 16)", "16 bytes at byte -16 of array 0, which has 48 bytes"),
        ("(const u32x4*)(x + 16)", "(const u32x4*)4096", "lies in none of the kernel's arrays"),
        ("(int*)(y + 4)", "(int*)(x + 4)", "st.global: writes to array 0, which the kernel may only read"),
    ],
)
def test_an_access_outside_or_misaligned_is_told(old: str, new: str, says: str) -> None:
    assert says in failure(changed(WIDTHS, old, new), np.zeros(48, np.uint8))


def test_the_line_of_a_directive_is_shown() -> None:
    moved = changed(
        WIDTHS, "pal::store_global((int*)(y + 4)", '\n#line 77 "user.py"\n pal::store_global((int*)(y + 48)'
    )
    says = failure(moved, np.zeros(48, np.uint8))
    assert says == "user.py:77: block 0, warp 0, lane 0, st.global: 4 bytes at byte 48 of array 1, which has 48 bytes"


def test_outputs_begin_as_nan() -> None:
    nothing = kernel("", [output("a", np.float32, 3), output("b", np.float16, 3), output("c", np.int32, 3)], threads=32)
    a, b, c = outputs(nothing)
    assert np.isnan(a).all() and np.isnan(b).all() and (c == np.iinfo(c.dtype).min).all()


@pytest.mark.parametrize("given", [np.zeros(47, np.uint8), np.zeros(48, np.int8)])
def test_operands_of_another_kernel_are_refused(given: np.ndarray) -> None:
    with pytest.raises(PalladioValueError) as caught:
        run(WIDTHS, [given])
    assert str(caught.value).splitlines()[:3] == [
        "operands[0]: the kernel was compiled for another operand",
        "  expected: uint8[48]",
        f"  got:      {given.dtype}[{given.size}]",
    ]


def test_there_are_three_kinds_of_schedules() -> None:
    with pytest.raises(PalladioValueError, match="schedule: a schedule completes late, early or at random"):
        run(WIDTHS, [np.zeros(48, np.uint8)], Schedule("never"))
    assert [each.completion for each in SCHEDULES] == ["late", "early", "random", "random"]
