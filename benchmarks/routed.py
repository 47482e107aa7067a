"""The grouped product of mixture-of-experts models: experts chosen by skewed popularity, from one token to thousands.

Shapes are those of models, scaled. Tiles are the library's own. The matrices of a few tokens' experts would stay in a
cache if the same experts were chosen again, so that several choices are computed in turns, and timed together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

import palladio as pl
from benchmarks import inputs, torch_peers
from benchmarks.measure import BEST, OURS, Comparison, Contender, Outcome, goal
from palladio.library import gmm

Array = np.ndarray[Any, Any]
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
TOLERANCES = {np.dtype(np.float32): 1e-5, BFLOAT16: 4e-3}

TOKENS = (1, 16, 64, 512, 4096)
FEW_TOKENS, CHOICES = 64, 8
"""For at most `FEW_TOKENS` tokens, `CHOICES` choices of experts are computed in turns."""

MEANS = {np.dtype(np.float32): 1.3, BFLOAT16: 1.15}
"""The goals for the geometric means of all cells."""


@dataclass(frozen=True)
class Experts:
    """The matrices of a layer, `[experts, k, n]`; each token is multiplied with `top` of them."""

    name: str
    experts: int
    k: int
    n: int
    top: int


MODELS = {
    "mixtral": Experts("Mixtral's experts", 8, 1024, 3584, 2),
    "qwen3": Experts("Qwen3-MoE's experts", 128, 1024, 384, 8),
    "deepseek": Experts("DeepSeek's experts", 256, 896, 256, 8),
}


def counts(model: Experts, tokens: int, seed: int) -> Array:
    """The number of rows of each expert: popularity drawn from Dirichlet(2), `top` different ones for each token."""
    draw = np.random.default_rng(seed)
    scores = draw.gumbel(size=(tokens, model.experts)) + np.log(draw.dirichlet(np.full(model.experts, 2.0)))
    chosen = np.argpartition(-scores, model.top - 1, axis=1)[:, : model.top]
    return np.bincount(chosen.ravel(), minlength=model.experts).astype(np.int32)


def routed(model: Experts, tokens: int, dtype: Any) -> Comparison:
    """`gmm` beside a loop of `mm(out=)` over the experts that have rows, and PyTorch's own grouped product."""
    dtype = np.dtype(dtype)
    rows = tokens * model.top
    lhs, rhs = inputs.normal((rows, model.k), (model.experts, model.k, model.n))
    lhs, rhs = lhs.astype(dtype), rhs.astype(dtype)
    every = [counts(model, tokens, seed) for seed in range(CHOICES if tokens <= FEW_TOKENS else 1)]
    contenders = [Contender(OURS, _ours(lhs, rhs, every), 9)]
    by_name: dict[str, list[Contender]] = {}
    for sizes in every:
        present = np.flatnonzero(sizes)
        ends = np.cumsum(sizes)
        slices = [slice(ends[expert] - sizes[expert], ends[expert]) for expert in present]
        for each in (
            torch_peers.loop_of_mm(lhs, rhs, slices, present),
            *torch_peers.grouped_mm(lhs, rhs, sizes),
        ):
            by_name.setdefault(each.name, []).append(each)
    contenders += [_in_turns(name, parts) for name, parts in by_name.items()]
    name = f"gmm {dtype}, {model.name}, {model.experts}×{model.k}×{model.n}, top {model.top}, "
    name += "1 token" if tokens == 1 else f"{tokens} tokens"
    expected = np.zeros((rows, model.n))
    ends = np.cumsum(every[-1])
    for expert in np.flatnonzero(every[-1]):
        part = slice(ends[expert] - every[-1][expert], ends[expert])
        expected[part] = lhs[part].astype(np.float64) @ rhs[expert].astype(np.float64)
    operations = 2 * rows * model.k * model.n * len(every)
    return Comparison(name, contenders, expected, TOLERANCES[dtype], operations, goal(BEST, 1), str(dtype))


def _ours(lhs: Array, rhs: Array, every: Sequence[Array]) -> Callable[[], Any]:
    def run() -> Any:
        with pl.executor("cpu"):
            for sizes in every:
                out = gmm(lhs, rhs, sizes)
        return out

    return run


def _in_turns(name: str, parts: Sequence[Contender]) -> Contender:
    """A contender that computes all choices, and gives the result of the last."""
    missing = next((part.missing for part in parts if part.run is None), None)
    if missing is not None:
        return Contender(name, None, missing=missing)
    runs = [part.run for part in parts if part.run is not None]

    def run() -> Any:
        for each in runs:
            out = each()
        return out

    return Contender(name, run, parts[0].rounds)


def short_means(outcomes: Sequence[Outcome]) -> list[str]:
    """The geometric means of the speed-ups over the best peer that are below their goals, in words."""
    found = []
    for dtype, least in MEANS.items():
        ratios = speed_ups(outcomes, dtype)
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else least
        if mean < least:
            found.append(f"experts in {dtype}: {mean:.2f} times as fast in the geometric mean, the goal is {least:g}")
    return found


def speed_ups(outcomes: Sequence[Outcome], dtype: Any) -> list[float]:
    """The speed-up over the best peer, for each measured cell of a dtype."""
    names = tuple(f"gmm {np.dtype(dtype)}, {model.name}," for model in MODELS.values())
    cells = [each for each in outcomes if each.comparison.name.startswith(names) and each.judge is not None]
    return [ratio for each in cells if each.judge is not None and (ratio := each.ratio(each.judge)) is not None]


CASES: dict[str, Callable[[], Comparison]] = {
    f"routed-{name}-{tokens}{suffix}": (
        lambda model=model, tokens=tokens, dtype=dtype: routed(model, tokens, dtype)  # type: ignore[misc]
    )
    for name, model in MODELS.items()
    for tokens in TOKENS
    for dtype, suffix in ((np.float32, ""), (BFLOAT16, "-bf16"))
}
