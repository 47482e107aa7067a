"""The GPU namespace: atomic operations under a mask, compare and swap, and names that are not there yet."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.gpu as plgpu

OLD = np.array([5, 3, 12, 7], np.int32)
NEW = np.array([9, 9, 6, 9], np.int32)
MASK = np.array([True, False, True, False])
COMBINED = {
    "add": OLD + NEW,
    "max": np.maximum(OLD, NEW),
    "min": np.minimum(OLD, NEW),
    "and": OLD & NEW,
    "or": OLD | NEW,
    "xor": OLD ^ NEW,
}


def combine(name: str, old: Any, new: Any, mask: Any) -> Any:
    def kernel(old_ref: Any, new_ref: Any, mask_ref: Any, o_ref: Any, before_ref: Any) -> None:
        o_ref[...] = old_ref[...]
        operation = getattr(plgpu, f"atomic_{name}")
        before_ref[...] = operation(o_ref, pl.ds(0, 4), new_ref[...], mask=mask_ref[...])

    return pl.pallas_call(kernel, [pl.ShapeDtypeStruct((4,), old.dtype)] * 2)(old, new, mask)


@pytest.mark.parametrize("name", COMBINED)
@pytest.mark.parametrize("dtype", [np.int32, np.uint8, np.float32])
def test_elements_under_a_false_mask_stay(name: str, dtype: Any) -> None:
    if dtype == np.float32 and name in ("and", "or", "xor"):
        with pytest.raises(pl.PalladioTypeError, match="takes integers or bool"):
            combine(name, OLD.astype(dtype), NEW.astype(dtype), MASK)
        return
    found, before = combine(name, OLD.astype(dtype), NEW.astype(dtype), MASK)
    np.testing.assert_array_equal(found, np.where(MASK, COMBINED[name], OLD).astype(dtype))
    np.testing.assert_array_equal(before[MASK], OLD[MASK].astype(dtype))


def test_a_masked_sum_keeps_the_sign_of_zero() -> None:
    found, _ = combine("add", np.full(4, -0.0, np.float32), np.ones(4, np.float32), MASK)
    np.testing.assert_array_equal(np.signbit(found), ~MASK)


def test_an_exchange_has_no_mask() -> None:
    with pytest.raises(pl.PalladioNotImplementedError, match="an atomic exchange has no mask"):
        combine("xchg", OLD, NEW, MASK)


def test_compare_and_swap_of_a_part() -> None:
    def kernel(o_ref: Any, before_ref: Any) -> None:
        o_ref[...] = np.int32(1)
        before_ref[0] = plgpu.atomic_cas(o_ref.at[2], np.int32(1), np.int32(8))
        before_ref[1] = plgpu.atomic_cas(o_ref.at[2], np.int32(1), np.int32(9))

    found, before = pl.pallas_call(kernel, [pl.ShapeDtypeStruct((4,), np.int32), pl.ShapeDtypeStruct((2,), np.int32)])()
    np.testing.assert_array_equal(found, [1, 1, 8, 1])
    np.testing.assert_array_equal(before, [1, 8])
