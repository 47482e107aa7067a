"""The library's kernels as CUDA: right on the host twin, under every schedule, in memory that was full of NaN."""

from __future__ import annotations

import numpy as np
import pytest

from palladio.hopper.twin.run import SCHEDULES
from palladio.library import hopper
from tests.hopper.kernels import BF16, error, normal, on_twin

EARLY_AND_LATE = SCHEDULES[:2]
ROUNDED = 4e-3
"""Relative error of results that were rounded to bfloat16 once."""


def product(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return x.astype(np.float64) @ y.astype(np.float64)


def test_matmul() -> None:
    x, y = normal(128, 256), normal(256, 256)
    for out in on_twin(hopper.matmul, x, y):
        assert error(out, product(x, y)) < ROUNDED


def test_matmul_of_ragged_sizes_and_few_blocks() -> None:
    config = hopper.MatmulConfig(tile_n=192, blocks=2)
    x, y = normal(200, 136), normal(136, 264)
    for out in on_twin(lambda x, y: hopper.matmul(x, y, config=config), x, y, schedules=EARLY_AND_LATE):
        assert error(out, product(x, y)) < ROUNDED


@pytest.mark.parametrize("axis", ["m", "n"])
def test_matmul_of_clusters_whose_blocks_share_loads(axis: str) -> None:
    config = hopper.MatmulConfig(cluster=axis, blocks=2)
    x, y = normal(256, 128), normal(128, 512)
    for out in on_twin(lambda x, y: hopper.matmul(x, y, config=config), x, y):
        assert error(out, product(x, y)) < ROUNDED


def grouped(lhs: np.ndarray, rhs: np.ndarray, sizes: list[int]) -> np.ndarray:
    out, row = np.zeros((lhs.shape[0], rhs.shape[2])), 0
    for group, size in enumerate(sizes):
        out[row : row + size] = product(lhs[row : row + size], rhs[group])
        row += size
    return out


@pytest.mark.parametrize("sizes", [[100, 0, 77], [0, 0, 0], [1, 2, 253]], ids=str)
def test_gmm(sizes: list[int]) -> None:
    lhs, rhs = normal(256, 64), normal(3, 64, 256)
    for out in on_twin(hopper.gmm, lhs, rhs, np.int32(sizes), order=(2, 0, 1), schedules=EARLY_AND_LATE):
        assert error(out, grouped(lhs, rhs, sizes)) < 1e-6


def test_gmm_of_transposed_matrices_and_bfloat16_results() -> None:
    lhs, rhs, sizes = normal(256, 64), normal(3, 256, 64), [100, 0, 156]
    outs = on_twin(
        lambda lhs, rhs, sizes: hopper.gmm(lhs, rhs, sizes, BF16, transpose_rhs=True),
        *(lhs, rhs, np.int32(sizes)),
        order=(2, 0, 1),
        schedules=SCHEDULES[2:],
    )
    for out in outs:
        assert error(out, grouped(lhs, rhs.transpose(0, 2, 1), sizes)) < ROUNDED


def test_tgmm() -> None:
    lhs, rhs, sizes = normal(128, 136), normal(136, 256), [50, 0, 83]
    out = np.zeros((3, 128, 256))
    for group, size in enumerate(sizes):
        row = sum(sizes[:group])
        out[group] = product(lhs[:, row : row + size], rhs[row : row + size])
    for got in on_twin(hopper.tgmm, lhs, rhs, np.int32(sizes), order=(2, 0, 1), schedules=EARLY_AND_LATE):
        assert error(got, out) < 1e-6


@pytest.mark.parametrize("causal", [False, True])
def test_attention(causal: bool) -> None:
    q, k, v = (normal(1, 200, 64, seed=seed) for seed in range(3))
    scores = product(q[0], k[0].T) / 8
    if causal:
        scores = np.where(np.tril(np.ones(scores.shape, bool)), scores, -np.inf)
    weights = np.exp(scores - scores.max(1, keepdims=True))
    expected = (weights / weights.sum(1, keepdims=True)) @ v[0].astype(np.float64)
    for out in on_twin(lambda *inputs: hopper.attention(*inputs, causal=causal), q, k, v, schedules=SCHEDULES[1:3]):
        assert error(out[0], expected) < 2 * ROUNDED
