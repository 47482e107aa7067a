"""The cost model: each number has a unit and a basis, and the arithmetic on them is right."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields, replace

import ml_dtypes
import numpy as np
import pytest

import palladio as pl
from palladio.machine.timeline.cost import H100, CostModel


def test_every_constant_says_its_unit_and_where_it_comes_from() -> None:
    constants = H100.constants()
    assert [c.name for c in constants] == [f.name for f in fields(CostModel)]
    for constant in constants:
        assert constant.value > 0
        assert constant.unit
        assert constant.source
        assert constant.basis in ("published", "derived", "estimate")


def test_names_of_times_and_rates_carry_their_unit() -> None:
    for constant in H100.constants():
        assert constant.name.endswith("_ns") == (constant.unit == "ns" or constant.unit.endswith("/ns")), constant.name
        assert constant.name.endswith("_per_ns") == constant.unit.endswith("/ns"), constant.name


def test_the_tensor_cores_of_the_card_reach_its_published_peak() -> None:
    assert H100.wgmma_flops_per_ns * H100.sms / 1000 == pytest.approx(989.4, rel=1e-3)
    assert 4096 * H100.clock_ghz == pytest.approx(H100.wgmma_flops_per_ns, rel=1e-3)


def test_a_product_takes_its_flops_over_the_rate_of_an_sm() -> None:
    assert H100.wgmma_time(64, 256, 64, ml_dtypes.bfloat16) == pytest.approx(2 * 64 * 256 * 64 / 7495)


@pytest.mark.parametrize(
    ("dtype", "ratio"),
    [
        (np.float16, 1),
        (np.float32, 2),
        (ml_dtypes.float8_e4m3fn, 0.5),
        (ml_dtypes.float8_e5m2, 0.5),
        (np.int8, 0.5),
        (np.uint8, 0.5),
    ],
)
def test_narrow_operands_are_faster_and_tf32_is_slower(dtype: type, ratio: float) -> None:
    bf16 = H100.wgmma_time(64, 256, 64, ml_dtypes.bfloat16)
    assert H100.wgmma_time(64, 256, 64, dtype) == pytest.approx(ratio * bf16)


def test_the_smallest_product_takes_the_latency() -> None:
    assert H100.wgmma_time(64, 8, 16, np.float16) == H100.wgmma_latency_ns


def test_a_dtype_without_products_is_refused() -> None:
    with pytest.raises(pl.PalladioTypeError) as error:
        H100.wgmma_time(64, 8, 16, np.int32)
    assert str(error.value).startswith(
        "dtype: the tensor cores have no products of this dtype\n"
        "  expected: bf16, f16, f32, f8e4m3fn, f8e5m2, i8, u8\n"
        "  got:      i32"
    )


def test_a_copy_takes_its_latency_and_its_bytes() -> None:
    assert H100.copy_time(0) == H100.tma_latency_ns
    assert H100.copy_time(11700) == pytest.approx(H100.tma_latency_ns + 100)


def test_sms_that_copy_at_once_share_the_card() -> None:
    alone, shared = H100.transfer_time(48 << 10), H100.transfer_time(48 << 10, copying_sms=132)
    assert shared == pytest.approx((48 << 10) * 132 / H100.l2_bytes_per_ns)
    assert shared > alone
    assert H100.transfer_time(48 << 10, copying_sms=10_000) == shared


def test_what_no_cache_holds_comes_at_the_rate_of_the_memory() -> None:
    time = H100.transfer_time(1000, copying_sms=132, cached=False)
    assert 1000 * 132 / time == pytest.approx(H100.dram_bytes_per_ns)


def test_a_store_frees_its_source_before_others_see_it() -> None:
    assert H100.store_read_time(1 << 14) < H100.store_time(1 << 14)


def test_shared_memory_answers_before_global_memory() -> None:
    assert H100.smem_time(1 << 14) < H100.gmem_time(1 << 14)


def test_elementwise_work_grows_with_its_elements_and_exponentials_cost_more() -> None:
    few, many = H100.elementwise_time(1 << 10), H100.elementwise_time(1 << 14)
    assert few < many < H100.elementwise_time(1 << 14, transcendental=True)


def test_another_card_is_another_value() -> None:
    faster = replace(H100, dram_bytes_per_ns=4800.0)
    assert faster.transfer_time(1000, copying_sms=132, cached=False) < H100.transfer_time(
        1000, copying_sms=132, cached=False
    )


def test_the_model_is_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        H100.clock_ghz = 2.0  # type: ignore[misc]
