"""The two cost models against a card: how well they order configurations of a product by time.

The simulator's model gives each operation a time and runs the schedule; the analytic model of the library counts the
clocks of a tile. Both are for comparisons, so that the correlation of ranks with measured times is their measure.
"""

from __future__ import annotations

import dataclasses
import importlib
import itertools
import multiprocessing
import os
import random
import statistics
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np

import palladio.gpu as plgpu
from benchmarks.gpu import timing
from benchmarks.gpu.accuracy import BF16, normal
from benchmarks.gpu.children import say
from palladio.driver.checks.pictures import timeline
from palladio.library import hopper
from palladio.library.hopper.model import Product, candidates, clocks

NAME = "cost models"
M, N, K = 512, 1024, 512
"""The product: small enough for the simulator, which runs each configuration whole."""
STAGES, BLOCKS = (2, 3, 4), (2, 4, 8, 16, 32)
CONFIGURATIONS = 100
ROUNDS = 7
SECONDS = 50.0
"""Time limit, after which no further configuration is measured."""
WORKERS = 8


def configurations(count: int = CONFIGURATIONS) -> list[hopper.MatmulConfig]:
    """Configurations of the product: tiles, clusters, stages and numbers of blocks, drawn in the same way each time."""
    product = Product(M, N, K, BF16, BF16)
    every = [
        dataclasses.replace(each, stages=stages, blocks=blocks)
        for each, stages, blocks in itertools.product(candidates(product), STAGES, BLOCKS)
        if stages <= each.stages
    ]
    return random.Random(0).sample(every, min(count, len(every)))


def simulated(config: hopper.MatmulConfig) -> float:
    """The modelled time of the product on the simulator."""
    x, y = normal(M, K), normal(K, N, seed=1)
    return float(timeline(lambda: hopper.matmul(x, y, config=config)).duration)


def rank_correlation(x: Sequence[float], y: Sequence[float]) -> float | None:
    """Spearman's coefficient, with mean ranks for ties; None if one side has no order."""
    ranks = [_ranks(np.asarray(each)) for each in (x, y)]
    if len(x) < 2 or any(np.ptp(each) == 0 for each in ranks):
        return None
    return float(np.corrcoef(*ranks)[0, 1])


def _ranks(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.asarray([(np.sum(values < each) + np.sum(values <= each) - 1) / 2 for each in values])


def run(scale: float = 1.0) -> int:
    """Measure the configurations and report the correlations; returns the exit status."""
    end = time.monotonic() + SECONDS
    try:
        torch = importlib.import_module("torch")
    except ImportError as error:
        say(case=NAME, skipped=str(error))
        return 0
    chosen = configurations(max(3, int(CONFIGURATIONS * scale)))
    x, y = (torch.randn(*shape, dtype=torch.bfloat16, device="cuda:0") for shape in ((M, K), (K, N)))
    product, count = Product(M, N, K, BF16, BF16), plgpu.multiprocessors()
    measured: list[float] = []
    modelled: list[float] = []
    with ProcessPoolExecutor(min(WORKERS, os.cpu_count() or 1), multiprocessing.get_context("spawn")) as pool:
        waiting = [pool.submit(simulated, config) for config in chosen]
        clock = timing.Clock(int(torch._C._cuda_getCurrentRawStream(0)))
        for config in chosen:
            if time.monotonic() > end:
                break
            measured.append(_milliseconds(clock, lambda: hopper.matmul(x, y, config=config)))  # noqa: B023
        clock.close()
        for each in waiting[: len(measured)]:
            if time.monotonic() > end + 10:
                break
            modelled.append(each.result())
        pool.shutdown(wait=True, cancel_futures=True)
    known = len(modelled)
    analytic = [clocks(product, config, min(config.blocks or count, count)) for config in chosen[:known]]
    correlations = {
        "simulator": rank_correlation(modelled, measured[:known]),
        "analytic model": rank_correlation(analytic, measured[:known]),
    }
    say(case=NAME, configurations=known, correlations=correlations, measured=measured[:known], modelled=modelled)
    return 0


def _milliseconds(clock: timing.Clock, call: Any) -> float:
    """The median time of a call, after two that warm up."""
    for _ in range(2):
        call()
    return statistics.median(clock.milliseconds(call) for _ in range(ROUNDS))
