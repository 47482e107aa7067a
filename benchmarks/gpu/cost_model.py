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
from concurrent.futures import Executor, Future, ProcessPoolExecutor, wait
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
REST_S = 10.0
"""Further seconds in which the simulator has to be done; without its results then, the others are reported."""
WORKERS = 14


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
    pool = ProcessPoolExecutor(min(WORKERS, os.cpu_count() or 1), multiprocessing.get_context("spawn"))
    try:
        waiting = [pool.submit(simulated, config) for config in chosen]
        clock = timing.Clock(int(torch._C._cuda_getCurrentRawStream(0)))
        for config in chosen:
            if time.monotonic() > end:
                break
            measured.append(_milliseconds(clock, lambda: hopper.matmul(x, y, config=config)))  # noqa: B023
        clock.close()
        modelled = _done(waiting[: len(measured)], end + REST_S)
    finally:
        _stop(pool)
    known = [n for n, each in enumerate(modelled) if each is not None]
    analytic = [clocks(product, config, min(config.blocks or count, count)) for config in chosen[: len(measured)]]
    correlations = {
        "simulator": rank_correlation([modelled[n] for n in known], [measured[n] for n in known]),  # type: ignore[misc]
        "analytic model": rank_correlation(analytic, measured),
    }
    record = {"configurations": len(measured), "correlations": correlations, "measured": measured, "modelled": modelled}
    if len(known) < len(measured):
        record["missing"] = {"simulator": f"{len(measured) - len(known)} configurations were not simulated in time"}
    say(case=NAME, **record)
    return 0


def _done(waiting: Sequence[Future[float]], end: float) -> list[float | None]:
    """The results of simulations, None for those that have none by a time or that failed."""
    wait(waiting, timeout=max(0.0, end - time.monotonic()))
    return [each.result() if each.done() and each.exception() is None else None for each in waiting]


def _stop(pool: Executor) -> None:
    """End the processes of a pool, whatever they do."""
    workers = [*(getattr(pool, "_processes", None) or {}).values()]
    pool.shutdown(wait=False, cancel_futures=True)
    for each in workers:
        each.kill()


def _milliseconds(clock: timing.Clock, call: Any) -> float:
    """The median time of a call, after two that warm up."""
    for _ in range(2):
        call()
    return statistics.median(clock.milliseconds(call) for _ in range(ROUNDS))
