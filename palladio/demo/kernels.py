"""The experts' matrix products, forward and backward, and their cost.

Rows that are sorted by expert form `e` groups, one after the other. Three products are all that a mixture of experts
needs:

    out      = gmm(rows, weights)            r,k · e,k,n -> r,n    each row with the weights of its own expert
    d_rows   = gmm(d_out, weights^T)         r,n · e,n,k -> r,k    the same, weights transposed
    d_weights = tgmm(rows^T, d_out)          k,r · r,n -> e,k,n    one product for each expert, over its own rows

`palladio.library.gmm_vjp` offers the three as one pair; they are written out here so that each is timed by itself.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from palladio.library import gmm, tgmm

Array: TypeAlias = npt.NDArray[Any]

FORWARD, ROW_GRADIENT, WEIGHT_GRADIENT = "gmm forward", "gmm gradient of rows", "tgmm gradient of weights"


@dataclass
class Cost:
    """The totals of one kernel so far: calls, wall-clock seconds, floating-point operations that the result needs."""

    calls: int = 0
    seconds: float = 0.0
    operations: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.calls + other.calls, self.seconds + other.seconds, self.operations + other.operations)

    @property
    def gflops(self) -> float:
        """Billions of operations a second; zero before anything ran."""
        return self.operations / self.seconds / 1e9 if self.seconds else 0.0


@dataclass
class ExpertProducts:
    """Multiplies sorted rows with the weights of their experts, and keeps account of the kernels that do it.

    Args:
        tiling: the kernels' tile, `(rows, contracted, columns)`; they choose their own if it is None.
        costs: one `Cost` for each of the three uses of the kernels.
        first_seconds: how much of it the first call of each use took, which compiles.
    """

    tiling: tuple[int, int, int] | None = None
    costs: dict[str, Cost] = field(
        default_factory=lambda: {FORWARD: Cost(), ROW_GRADIENT: Cost(), WEIGHT_GRADIENT: Cost()}
    )

    first_seconds: float = 0.0
    _last: dict[str, tuple[Callable[[], Array], Callable[[], Array]]] = field(default_factory=dict, repr=False)

    def beside_numpy(self, rounds: int = 15) -> dict[str, tuple[float, float]]:
        """For each use, the median seconds of its last product by the kernel and by NumPy, timed in turns.

        NumPy runs on one thread, which is faster here; a second one would spin on a core that the kernel uses.
        """
        with threadpool_limits(1):
            return self._timed_in_turns(rounds)

    def _timed_in_turns(self, rounds: int) -> dict[str, tuple[float, float]]:
        found = {}
        for use, pair in self._last.items():
            times: tuple[list[float], list[float]] = ([], [])
            for _ in range(rounds):
                for product, seconds in zip(pair, times):
                    start = time.perf_counter()
                    product()
                    seconds.append(time.perf_counter() - start)
            found[use] = statistics.median(times[0]), statistics.median(times[1])
        return found

    @property
    def total(self) -> Cost:
        """The three uses together."""
        return sum(self.costs.values(), start=Cost())

    def __call__(
        self, rows: Array, weights: Array, group_sizes: Array
    ) -> tuple[Array, Callable[[Array], tuple[Array, Array]]]:
        """Multiply each row with its expert's weights.

        Args:
            rows: `f32[r, k]`, sorted by expert.
            weights: `f32[e, k, n]`.
            group_sizes: `int32[e]`, how many rows belong to each expert; they sum to `r`.

        Returns:
            `f32[r, n]`, and the pullback from its gradient `f32[r, n]` to those of `rows` and `weights`.
        """
        operations = 2 * rows.shape[0] * weights.shape[1] * weights.shape[2]

        def pullback(d_out: Array) -> tuple[Array, Array]:
            d_rows = self._timed(
                ROW_GRADIENT,
                operations,
                lambda: gmm(d_out, weights, group_sizes, tiling=self.tiling, transpose_rhs=True),
                lambda: _by_groups(d_out, weights.transpose(0, 2, 1), group_sizes),
            )
            d_weights = self._timed(
                WEIGHT_GRADIENT,
                operations,
                lambda: tgmm(rows.T, d_out, group_sizes, tiling=self.tiling),
                lambda: _of_groups(rows, d_out, group_sizes),
            )
            return d_rows, d_weights

        out = self._timed(
            FORWARD,
            operations,
            lambda: gmm(rows, weights, group_sizes, tiling=self.tiling),
            lambda: _by_groups(rows, weights, group_sizes),
        )
        return out, pullback

    def _timed(self, use: str, operations: int, kernel: Callable[[], Array], reference: Callable[[], Array]) -> Array:
        start = time.perf_counter()
        result = np.asarray(kernel())
        seconds = time.perf_counter() - start
        if use not in self._last:
            self.first_seconds += seconds
        self._last[use] = kernel, reference
        self.costs[use] += Cost(1, seconds, operations)
        return result


def _by_groups(rows: Array, weights: Array, group_sizes: Array) -> Array:
    """The result of `gmm`, by NumPy."""
    parts = np.split(rows, np.cumsum(group_sizes)[:-1])
    return np.concatenate([part @ matrix for part, matrix in zip(parts, weights, strict=True)])


def _of_groups(rows: Array, d_out: Array, group_sizes: Array) -> Array:
    """The result of `tgmm`, by NumPy."""
    ends = np.cumsum(group_sizes)[:-1]
    return np.stack([x.T @ y for x, y in zip(np.split(rows, ends), np.split(d_out, ends), strict=True)])
