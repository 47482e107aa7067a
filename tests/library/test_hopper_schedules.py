"""The Hopper kernels on the simulator: no hazard in any schedule, and the same result in each.

`pytest --schedules=1000` runs that many of each kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import palladio as pl
from palladio.library import hopper
from palladio.library.hopper import AttentionConfig, MatmulConfig
from tests.library.references import gmm_reference, normal, tgmm_reference
from tests.library.test_attention import inputs, reference

pytestmark = pytest.mark.one_executor  # the simulator
SIZES = [3, 0, 6, 2]

Kernel = tuple[Callable[..., Any], list[np.ndarray], np.ndarray]


def attention(causal: bool, stages: int) -> Kernel:
    arrays = inputs(12, 20, 8, 4, lead=(1,))
    config = AttentionConfig(block_q=4, block_kv=8, stages=stages)
    run = lambda *args: hopper.attention(*args, causal=causal, config=config)
    return run, arrays, reference(*arrays, causal)


def grouped(config: MatmulConfig, transposed: bool) -> Kernel:
    if transposed:
        arrays = [normal(0, 6, 13), normal(1, 13, 12)]
        return lambda *args: hopper.tgmm(*args, SIZES, config=config), arrays, tgmm_reference(*arrays, SIZES)
    arrays = [normal(0, 13, 6), normal(1, 4, 6, 12)]
    return lambda *args: hopper.gmm(*args, SIZES, config=config), arrays, gmm_reference(*arrays, SIZES)


def matmul(cluster: str | None) -> Kernel:
    arrays = [normal(0, 10, 9), normal(1, 9, 12)]
    config = MatmulConfig(4, 8, 2, stages=3, epilogue_n=4, blocks=4, cluster=cluster)
    return lambda *args: hopper.matmul(*args, config=config), arrays, arrays[0].astype(np.float64) @ arrays[1]


ROWS = MatmulConfig(4, 12, 2, stages=3, epilogue_n=4, blocks=2)
COLUMNS = MatmulConfig(4, 8, 4, stages=2, epilogue_n=2, blocks=3, split="n")

KERNELS = {
    "attention": lambda: attention(False, 2),
    "attention, causal": lambda: attention(True, 2),
    "attention, one stage": lambda: attention(False, 1),
    "gmm, rows split": lambda: grouped(ROWS, False),
    "gmm, columns split": lambda: grouped(COLUMNS, False),
    "tgmm, rows split": lambda: grouped(ROWS, True),
    "tgmm, columns split": lambda: grouped(COLUMNS, True),
    "matmul": lambda: matmul(None),
    "matmul, clusters along the rows": lambda: matmul("m"),
    "matmul, clusters along the columns": lambda: matmul("n"),
}


@pytest.mark.parametrize("name", KERNELS)
def test_no_schedule_has_a_finding_and_all_give_the_result(name, request):
    kernel, arrays, expected = KERNELS[name]()

    def run(*args: Any) -> None:
        np.testing.assert_allclose(np.asarray(kernel(*args)), expected, rtol=1e-4, atol=1e-5)

    report = pl.check(run, *arrays, schedules=request.config.getoption("--schedules"))
    assert report.ok, report.render()


def ones(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    return [np.ones(shape, np.float32) for shape in shapes]


ONE = AttentionConfig(block_q=1, block_kv=1, stages=2)
TINY = MatmulConfig(tile_m=2, tile_n=1, tile_k=1, stages=2, blocks=2)
IN_CLUSTERS = MatmulConfig(tile_m=2, tile_n=1, tile_k=1, stages=2, blocks=2, cluster="m")

SMALLEST = {
    "attention": (lambda *args: hopper.attention(*args, config=ONE), ones((1, 2, 1), (1, 3, 1), (1, 3, 1))),
    "gmm": (lambda *args: hopper.gmm(*args, [1, 0, 2], config=TINY), ones((4, 3), (3, 3, 1))),
    "tgmm": (lambda *args: hopper.tgmm(*args, [1, 0, 2], config=TINY), ones((2, 4), (4, 1))),
    "matmul": (lambda *args: hopper.matmul(*args, config=TINY), ones((4, 3), (3, 2))),
    "matmul in clusters": (lambda *args: hopper.matmul(*args, config=IN_CLUSTERS), ones((4, 3), (3, 1))),
}


@pytest.mark.parametrize("name", SMALLEST)
def test_no_schedule_of_the_smallest_kernel_that_can_differ_has_a_finding(name):
    kernel, arrays = SMALLEST[name]
    report = pl.check(kernel, *arrays, exhaustive=True, schedules=100_000)
    assert report.ok, report.render()
    assert report.complete
