"""The model of experts on many GPUs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.scaling import Assumptions, compute_s, exchange_s, model, step_s

GIVEN = Assumptions()
COUNTS = (1, 2, 8, 16, 64, 1024)


def test_one_gpu_exchanges_nothing() -> None:
    assert exchange_s(GIVEN, 1) == 0
    assert step_s(GIVEN, 1, 1) == step_s(GIVEN, 1, 2) == compute_s(GIVEN)


def test_an_exchange_takes_longer_among_more_gpus() -> None:
    times = [exchange_s(GIVEN, gpus) for gpus in COUNTS]
    assert times == sorted(times)


def test_half_of_the_rows_stay_on_one_of_two_gpus() -> None:
    rows = replace(GIVEN, latency_s=0.0, skew=1.0, tokens=100, choices=2)
    assert exchange_s(rows, 2) == pytest.approx(100 * GIVEN.hidden * GIVEN.bytes_per_value / GIVEN.nvlink)


def test_parts_hide_no_more_than_the_products_last() -> None:
    slow, fast = replace(GIVEN, nvlink=1e9, network=1e9), replace(GIVEN, flops=1e12)
    assert step_s(slow, 8, 2) == pytest.approx(compute_s(slow) / 2 + 4 * exchange_s(slow, 8))
    assert step_s(fast, 8, 2) == pytest.approx(compute_s(fast) + 2 * exchange_s(fast, 8))


def test_the_table_begins_with_the_assumptions() -> None:
    text = model(GIVEN)
    assert text.startswith("tokens = 8192\n")
    assert "| 1024 |" in text
