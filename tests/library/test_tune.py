"""Tiles by measurement: what is tried, what is kept, and who uses it. Times are given, not measured."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import palladio as pl
from palladio.cpu.runtime import host
from palladio.library import gmm, matmul, matmul_tiling, tgmm, tilings, tune
from palladio.library.tilings import TUNED
from tests.library.references import normal

MATMUL = sys.modules["palladio.library.matmul"]
X, Y = pl.ShapeDtypeStruct((640, 64), np.float32), pl.ShapeDtypeStruct((64, 320), np.float32)


@pytest.fixture(autouse=True)
def nothing_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALLADIO_CACHE", str(tmp_path))
    monkeypatch.setattr(TUNED, "_found", {})


@pytest.fixture
def last_is_fastest(monkeypatch: pytest.MonkeyPatch) -> None:
    takes(monkeypatch, lambda count: [2.0] * (count - 1) + [1.0])


def takes(monkeypatch: pytest.MonkeyPatch, times: Callable[[int], list[float]]) -> None:
    def given(calls: Sequence[Callable[[], object]], **options: Any) -> list[float]:
        return times(len(calls))

    monkeypatch.setattr(pl, "time_in_turns", given)


def tiles_used(monkeypatch: pytest.MonkeyPatch, x: Any, y: Any) -> tuple[int, int, int]:
    """The tiles of a product without a `tiling`."""
    used: list[Any] = []
    original = MATMUL._call

    def call(m: int, k: int, n: int, tile: Any, *more: Any) -> Any:
        used.append(tile)
        return original(m, k, n, tile, *more)

    monkeypatch.setattr(MATMUL, "_call", call)
    matmul(x, y)
    return used[-1]


def test_later_calls_use_what_was_fastest_and_other_sizes_the_model(
    monkeypatch: pytest.MonkeyPatch, last_is_fastest: None
) -> None:
    x, y = normal(0, 640, 64), normal(1, 64, 320)
    matmul(x, y)  # is kept with the tiles of the model, and made anew
    (found,) = tune(matmul, X, Y)
    assert found.sizes == (640, 64, 320)
    assert found.tiling == [*found.seconds][-1] != found.model == matmul_tiling(640, 64, 320)
    assert found.speed_up == 2
    assert tiles_used(monkeypatch, x, y) == found.tiling
    monkeypatch.setattr(TUNED, "_found", {})  # as another process
    assert tilings.tuned(matmul_tiling, "matmul", X, Y)(640, 64, 320) == found.tiling
    assert tiles_used(monkeypatch, x[:64], y) == matmul_tiling(64, 64, 320)


def test_a_gain_within_the_noise_keeps_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    takes(monkeypatch, lambda count: [1.02] + [1.0] * (count - 1))
    (found,) = tune(matmul, X, Y)
    assert found.tiling == found.model


def test_arrays_of_the_caller_are_neither_read_nor_written() -> None:
    x, y = (np.full(array.shape, np.nan, np.float32) for array in (X, Y))
    x.flags.writeable = y.flags.writeable = False
    (found,) = tune(matmul, x[:20], y[:, :64], seconds=0)
    assert found.sizes == (32, 64, 64)
    assert np.isnan(x).all() and np.isnan(y).all()


def test_each_part_of_a_large_product_is_tuned(last_is_fastest: None) -> None:
    x, y = pl.ShapeDtypeStruct((5000, 1024), np.float32), pl.ShapeDtypeStruct((1024, 32), np.float32)
    assert [each.sizes for each in tune(matmul, x, y)] == [(4096, 1024, 32), (1024, 1024, 32)]


def test_a_large_product_of_groups_is_one_part_and_uses_what_was_measured(
    monkeypatch: pytest.MonkeyPatch, last_is_fastest: None
) -> None:
    lhs, rhs = normal(0, 1100, 1024), normal(1, 2, 1024, 64)
    (found,) = tune(gmm, lhs, rhs, [1100, 0])
    assert found.sizes == (1280, 1024, 64) and found.tiling != found.model
    used: list[Any] = []
    kernels = sys.modules["palladio.library.kernels.grouped"]
    original = kernels._gmm_call
    monkeypatch.setattr(kernels, "_gmm_call", lambda problem, *more: used.append(problem) or original(problem, *more))
    with pl.executor("cpu"):
        gmm(lhs[:1090], rhs, [1000, 90])
    assert [problem.tile[2] for problem in used] in ([], [found.tiling[2]])
    assert tilings.tuned(tilings.gmm_tiling, "gmm", lhs, rhs, 2, False)(1280, 1024, 64) == found.tiling


@pytest.mark.one_executor
@pytest.mark.parametrize(
    ("columns", "dtype", "transposed"), [(320, ml_dtypes.bfloat16, False), (200, np.float32, True)]
)
def test_tiles_that_are_tried_give_the_same_bits(
    last_is_fastest: None, columns: int, dtype: Any, transposed: bool
) -> None:
    lhs, rhs = normal(0, 600, 64).astype(dtype), normal(1, 3, 64, columns).astype(dtype)
    rhs = np.ascontiguousarray(rhs.swapaxes(1, 2)) if transposed else rhs
    sizes = [7, 252, 300]  # tiles of 256 rows would have three of the second group in one
    (found,) = tune(gmm, lhs, rhs, sizes, transpose_rhs=transposed)
    assert len(found.seconds) > 1

    def product(tiling: Any) -> Any:
        return gmm(lhs, rhs, sizes, tiling=tiling, transpose_rhs=transposed, interpret="cpu")

    for tiling in found.seconds:
        np.testing.assert_array_equal(product(tiling), product(found.model))


@pytest.mark.parametrize(("m", "rows"), [(9, 16), (20, 32), (600, 640)])
def test_a_dense_product_of_fewer_rows_is_tuned_as_the_group_that_it_is_computed_as(
    last_is_fastest: None, m: int, rows: int
) -> None:
    x, y = normal(0, m, 64), normal(1, 64, 320)
    (found,) = tune(matmul, x, y)
    stored = TUNED.find((*tilings.tuning_key("gmm", x, y[None], 1, False), rows, 64, 320))
    assert stored == found.tiling != found.model


def test_the_gradient_of_the_matrices_is_tuned_too(last_is_fastest: None) -> None:
    lhs, rhs = normal(0, 48, 40), normal(1, 40, 64)
    (found,) = tune(tgmm, lhs, rhs, [7, 30])
    assert TUNED.find((*tilings.tuning_key("tgmm", lhs, rhs, 2), *found.sizes)) == found.tiling
    expected = tgmm(lhs, rhs, [7, 30], tiling=found.model)
    if host.current().multiplies_tiles:  # a tile of few rows is multiplied by vectors
        np.testing.assert_allclose(tgmm(lhs, rhs, [7, 30]), expected, rtol=1e-5, atol=1e-5)
    else:
        np.testing.assert_array_equal(tgmm(lhs, rhs, [7, 30]), expected)
