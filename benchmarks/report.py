"""The tables: for a terminal, and as a page of Markdown for each kind of processor."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_info

import palladio as pl
from benchmarks.cold import GOALS_S, LIMITS_S, Cold
from benchmarks.inputs import GROUP_SIZES, SEED
from benchmarks.markdown import table
from benchmarks.measure import OURS, Outcome, Timing
from benchmarks.peak import BFLOAT16, FLOAT32, peak

HEADER = ("computed", "by", "time", "GFLOP/s", "of the peak", "speed-up", "floor", "error")
COLD_HEADER = ("a fresh process", "measured", "limit")
PACKAGES = ("numpy", "jax", "triton", "torch")
NEAR_PEAK = 0.5
"""The share of the registers' peak from which on a missed goal is set beside what the peak would allow."""

COLD_ROWS = {
    "import_s": "import palladio, NumPy included",
    "library_s": "import palladio, palladio.library",
    "prepare_s": "gmm: checking, tracing, preparing",
    "prepared_first": "programs prepared by the first gmm call",
    "prepared_second": "programs prepared by the second gmm call",
    "first_s": "first gmm call, run included",
    "second_s": "second gmm call",
    "compiled_first_s": "compiled gmm: what the first call takes longer",
    "compiled_again_s": "compiled gmm: the same in a second process",
    "small_first_s": "compiled x + 1, f32[8, 128]: the first call, importing LLVM included",
    "small_again_s": "compiled x + 1: the same in a second process",
    "compiled_call_s": "compiled x + 1, f32[8, 128]: one prepared call",
    "two_rows_s": "gmm of 2 rows, 8 groups of 64×64, NumPy arrays: one call",
    "two_tensor_rows_s": "gmm of 2 rows: the same, tensors",
    "torch_two_rows_s": "gmm of 2 rows: the same, PyTorch's nn.functional.grouped_mm",
    "new_rows_s": "gmm, a new number of rows: what the first call takes longer",
}

Rows = list[tuple[str, ...]]


def duration(seconds: float) -> str:
    """Three digits with a unit."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{_digits(seconds / size)} {unit}"
    return f"{_digits(seconds / 1e-6)} µs"


def _digits(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def rows(outcomes: Sequence[Outcome]) -> Rows:
    """One row for each contender of each comparison."""
    return [_row(outcome, timing) for outcome in outcomes for timing in outcome.timings]


def _row(outcome: Outcome, timing: Timing) -> tuple[str, ...]:
    comparison, contender, median = outcome.comparison, timing.contender, timing.median
    ours = contender.name == OURS
    what = comparison.name if ours else ""
    if median is None:
        reason = f"wrong, error {timing.error:.1e}" if timing.wrong else f"missing: {contender.missing}"
        return what, contender.name, reason, "", "", "", "", ""
    speed = f"{_digits(comparison.operations / median / 1e9)}" if comparison.operations else ""
    of_peak = ""
    if comparison.multiplied:
        of_peak = f"{comparison.operations / median / peak(comparison.multiplied):.0%}"
    ratio, floor = outcome.ratio(timing), comparison.floor
    faster = "" if ours or ratio is None else f"{_digits(ratio)}×"
    least = ""
    if floor is not None and timing is outcome.judge:
        least = f"≥ {floor.ratio:g}×" if floor.held else f"goal {floor.ratio:g}×"
    return what, contender.name, duration(median), speed, of_peak, faster, least, f"{timing.error:.1e}"


def shortfalls(outcomes: Sequence[Outcome]) -> list[str]:
    """The goals that were not reached, in words; of products near it, with the ratio at the peak of the registers."""
    return [f"{each.shortfall}{_at_the_peak(each)}" for each in outcomes if each.shortfall]


def _at_the_peak(outcome: Outcome) -> str:
    """The ratio of a product to its judge if it ran at the peak of the registers; empty for one that is far from it."""
    comparison, judge = outcome.comparison, outcome.judge
    if not comparison.multiplied or judge is None or judge.median is None:
        return ""
    at_best = judge.median * peak(comparison.multiplied) / comparison.operations
    ratio = outcome.ratio(judge) or 0.0
    return f"; at the peak of the registers it would be {at_best:.2f}" if ratio >= NEAR_PEAK * at_best else ""


def cold_rows(cold: Cold) -> Rows:
    """The cost of a first and a second call."""
    return [(words, _cold(name, getattr(cold, name)), _least(name)) for name, words in COLD_ROWS.items()]


def cold_shortfalls(cold: Cold) -> list[str]:
    """The goals for fresh processes and single calls that were not reached, in words."""
    return [
        f"{COLD_ROWS[name]}: {duration(took)}, the goal is {duration(goal)}"
        for name, goal in GOALS_S.items()
        if (took := getattr(cold, name)) > goal
    ]


def _cold(name: str, value: float) -> str:
    return duration(value) if name.endswith("_s") else str(int(value))


def _least(name: str) -> str:
    if name in LIMITS_S:
        return f"< {duration(LIMITS_S[name])}"
    return f"goal {duration(GOALS_S[name])}" if name in GOALS_S else "0" if name == "prepared_second" else ""


def facts() -> list[str]:
    """The conditions of the measurements: machine, versions, threads, inputs."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    blas = [f"{each['internal_api']} {each['version']}" for each in threadpool_info() if each["user_api"] == "blas"]
    threads = max((each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"), default=1)
    packages = ", ".join(f"{name} {_version(name)}" for name in PACKAGES)
    host = pl.processor()
    caches = " / ".join(f"{size >> 10} KiB" for size in host.cache_bytes)
    peaks = [_digits(peak(dtype) / 1e9) for dtype in (FLOAT32, BFLOAT16)]
    return [
        f"{_processor()} ({host.name}), {_counted(cores, 'core')}, {platform.system()}, "
        f"Python {platform.python_version()}",
        f"vectors of {8 * host.vector_bytes} bits, caches of {caches}; the peak of the registers on "
        f"{_counted(host.threads, 'thread')}: {peaks[0]} GFLOP/s in float32 and {peaks[1]} in bfloat16, measured in "
        "this run by a loop that touches no memory (the best of measurements before each row)",
        f"{packages}, BLAS {', '.join(sorted(set(blas))) or 'unknown'} with up to {_counted(threads, 'thread')} "
        "(one for the products of tiles)",
        f"inputs: standard normal (seed {SEED}); rows of the groups {', '.join(map(str, GROUP_SIZES))}",
        "times: medians of rounds in which the contenders take turns, in a process for each row; errors: norm of the "
        "difference to the float64 result, relative to its norm",
    ]


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" + ("s" if count != 1 else "")


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "missing"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def show(console: Console, outcomes: Sequence[Outcome], cold: Cold | None) -> None:
    """Print the tables and the facts."""
    tables = [(HEADER, rows(outcomes))] if outcomes else []
    if cold is not None:
        tables.append((COLD_HEADER, cold_rows(cold)))
    for header, body in tables:
        shown = Table(*header)
        for row in body:
            shown.add_row(*row)
        console.print(shown)
    for fact in facts():
        console.print(fact, style="dim", highlight=False)


def page(outcomes: Sequence[Outcome], cold: Cold | None, missed: Sequence[str], command: str) -> str:
    """The page of this kind of processor: what one run measured on it, the goals that it missed, the conditions."""
    goals = "\n".join(f"- {line}" for line in missed) or "Every goal was reached."
    parts = [
        f"# Measured on {_processor()} ({pl.processor().name})",
        f"[Benchmarks](../benchmarks.md) describes the rows. This page is written by `{command}`.",
        "\n".join(f"- {fact}" for fact in facts()),
        "## Side by side",
        table(HEADER, rows(outcomes)),
        *(["## In a fresh process", table(COLD_HEADER, cold_rows(cold))] if cold is not None else []),
        "## Goals that were missed",
        goals,
    ]
    return "\n\n".join(parts) + "\n"
