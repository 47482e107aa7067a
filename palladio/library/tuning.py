"""Tuning of tiles by measurement: candidates are interleaved with the model's choice, and the fastest is stored."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import palladio as pl
from palladio.library.attention import attention
from palladio.library.card_calls import HALVES
from palladio.library.checks import Array, Tile, dtype_of, fail, group_sizes_of, require_array, result_dtype
from palladio.library.experts import moe_mlp
from palladio.library.grouped_matmul import gmm, tgmm
from palladio.library.matmul import is_group, matmul, staged
from palladio.library.staging import forget_calls, row_bytes, row_parts, rows_for, rows_of_tiles, rows_summed
from palladio.library.tilings import (
    LEAST_TILE_ROWS,
    PAIR_COLUMNS,
    TUNED,
    gmm_tiling,
    matmul_tiling,
    tgmm_tiling,
    tuning_key,
)

_FORMS: dict[str, tuple[tuple[int | None, str], tuple[int | None, str]]] = {
    "matmul": ((2, "[m, k]"), (2, "[m, n]")),
    "gmm": ((2, "[m, k]"), (3, "[groups, k, n]")),
    "tgmm": ((2, "[k, m]"), (2, "[m, n]")),
    "attention": ((None, "[..., m, d]"), (None, "[..., n, d]")),
    "attention_vjp": ((None, "[..., m, d]"), (None, "[..., n, d]")),
    "moe_mlp": ((2, "[t, h]"), (3, "[e, h, 2 i]")),
}
"""The axes of the operands, by function."""

_UNGROUPED = ("matmul", "attention", "attention_vjp")

SIZES = (128, 256, 512, 1024)
"""Candidate sizes of tiles along an axis, besides those of the model and the whole axis."""

GAIN = 1.03
"""The least speed-up over the model's choice; a smaller one is noise, and the model's choice is kept."""


@dataclass(frozen=True)
class Tuned:
    """The measurements for one size.

    A tiling is `(tm, tk, tn)`; on a GPU it is a `palladio.library.hopper.MatmulConfig`, an `AttentionConfig`, or an
    `AttentionGradientConfig`.

    Fields:
        sizes: `(m, k, n)` of the product that is compiled; of `attention` and its gradient the queries, the keys and
            their width.
        tiling: the fastest tiling, which later calls use.
        model: the model's choice.
        seconds: the time of each candidate.
    """

    sizes: Tile
    tiling: Any
    model: Any
    seconds: Mapping[Any, float]

    @staticmethod
    def of(sizes: Tile, model: Any, seconds: Mapping[Any, float]) -> Tuned:
        """The fastest of some tilings, or the model's choice if no other is faster by more than the noise."""
        best = min(seconds, key=lambda tiling: seconds[tiling])
        return Tuned(sizes, best if seconds[best] * GAIN <= seconds[model] else model, model, seconds)

    @property
    def speed_up(self) -> float:
        """The time with the model's choice over that with the fastest tiles."""
        return self.seconds[self.model] / self.seconds[self.tiling]


@pl.checked_call
def tune(
    function: Callable[..., Any],
    lhs: Array,
    rhs: Array,
    group_sizes: Any = None,
    *,
    transpose_rhs: bool = False,
    preferred_element_type: Any = None,
    lhs_scale: Any = None,
    rhs_scale: Any = None,
    causal: bool = False,
    activation: str = "swiglu",
    seconds: float = 1.0,
    progress: Callable[[float], object] | None = None,
    interpret: Any = None,
) -> tuple[Tuned, ...]:
    """Measure tiles of a product, and store the fastest for later calls of its sizes without a `tiling`.

    They are stored in the cache folder, for this processor and this number of threads, or for this kind of GPU.
    Results stay bitwise identical: tiles that would sum in another order are not candidates. Only those of `attention`
    and of its gradient are: their results then have other last bits.

    Args:
        function: `gmm`, `tgmm` or `matmul`; on a GPU also `attention`, `palladio.library.hopper.attention_vjp`, and
            `moe_mlp`, whose first product is tuned. On a GPU those of `palladio.library.hopper` too, also for 8-bit
            floats and float32.
        lhs, rhs: the operands, or `pl.ShapeDtypeStruct`s: only shapes and dtypes are used. The measured products are
            of normal random numbers. Of `attention` and its gradient the queries and the keys, with values as wide as
            these; of `moe_mlp` the tokens and `gate_up`.
        group_sizes: `i32[groups]`, for `gmm` and `tgmm`: typical sizes, e.g. uneven ones. For `moe_mlp` the number of
            assignments of each expert.
        transpose_rhs: as in `gmm`; on a GPU as in `palladio.library.hopper.matmul` too. `transposed` of `moe_mlp`.
        preferred_element_type, lhs_scale, rhs_scale: on a GPU, as in `palladio.library.hopper.gmm`, `tgmm` and
            `matmul`; only shapes and dtypes of factors are used.
        causal, activation: as in `attention`, its gradient and `moe_mlp`.
        seconds: the time to measure each compiled size, without compilation.
        progress: called with the completed fraction, from 0 to 1.
        interpret: "hopper" for the first GPU; with None, arrays on a GPU decide for that.

    Returns:
        The measurements, for each number of rows for which the product is compiled: a large product is computed in
        parts.

    Raises:
        PalladioValueError, PalladioTypeError: another function, or shapes and dtypes that it does not take.
    """
    on_card = pl.chosen_executor(interpret, (lhs, rhs)) == "hopper"
    name = _name(function, on_card)
    left = require_array(lhs, "lhs", *_FORMS[name][0], floats=not on_card)
    require_array(rhs, "rhs", *_FORMS[name][1], floats=not on_card)
    if name not in _UNGROUPED and group_sizes is None:
        raise fail(pl.PalladioTypeError, "a product of groups has sizes", argument="group_sizes", got="None")
    given = group_sizes.tolist() if pl.is_on_gpu(group_sizes) else group_sizes
    most = None if name == "moe_mlp" else left[1] if name == "tgmm" else left[0]
    sizes = None if name in _UNGROUPED else np.asarray(given, np.int32) if most is None else group_sizes_of(given, most)
    if on_card:
        factors = lhs_scale, rhs_scale
        options = transpose_rhs, preferred_element_type, factors, causal, activation
        problem = _on_card(function, name, (lhs, rhs, sizes), *options)
        model, times = problem.times(seconds, progress)
        found = [Tuned.of(problem.sizes, model, times)]
        problem.keep(found[0].tiling)
    else:
        kinds: dict[str, Callable[..., Iterator[_Problem]]] = {"gmm": _gmm, "tgmm": _tgmm, "matmul": _matmul}
        problems = [*kinds[name](lhs, rhs, sizes, transpose_rhs)]
        shares = (_share(progress, number, len(problems)) for number in range(len(problems)))
        found = [problem.measured(seconds, share) for problem, share in zip(problems, shares, strict=True)]
    forget_calls()
    return tuple(found)


def _name(function: Callable[..., Any], on_card: bool) -> str:
    """The name of a function that has tiles."""
    found: str = getattr(function, "__name__", repr(function))
    known: list[Any] = [gmm, tgmm, matmul]
    if on_card:
        from palladio.library import hopper

        known += [hopper.gmm, hopper.tgmm, hopper.matmul, hopper.attention, hopper.attention_vjp, hopper.moe_mlp]
        known += [attention, moe_mlp]
    if function not in known:
        rule = "tiles are tuned of gmm, tgmm and matmul only, on a GPU of attention, its gradient and moe_mlp too"
        raise fail(pl.PalladioValueError, rule, argument="function", got=found)
    return found


def _on_card(
    function: Callable[..., Any],
    name: str,
    given: tuple[Array, Array, Any],
    transpose: bool,
    preferred: Any,
    factors: tuple[Any, Any],
    causal: bool,
    activation: str,
) -> Any:
    """The measurement of a function on a GPU, `palladio.library.hopper.tuned.Timed`."""
    from palladio.library import hopper
    from palladio.library.hopper.attention import measurement as of_attention
    from palladio.library.hopper.attention_backward import measurement as of_gradient
    from palladio.library.hopper.experts.layer import measurement as of_layer
    from palladio.library.hopper.tuned import measurement as of_product

    own, (lhs, rhs, sizes) = getattr(hopper, name), given
    if function is not own and not {dtype_of(lhs), dtype_of(rhs)} <= HALVES:
        raise fail(
            pl.PalladioTypeError,
            "the library multiplies floats of 16 bits on the tensor cores, and has no tiles for others",
            argument="lhs, rhs",
            expected="float16 or bfloat16",
            got=f"{dtype_of(lhs)} and {dtype_of(rhs)}",
            hint=f"tune palladio.library.hopper.{name}, which multiplies them there",
        )
    if name == "attention":
        return of_attention(lhs, rhs, causal)
    if name == "attention_vjp":
        return of_gradient(lhs, rhs, causal)
    if name == "moe_mlp":
        return of_layer(lhs, rhs, sizes, activation, transpose)
    return of_product(own, name, lhs, rhs, sizes, transpose, preferred, factors)


def _share(progress: Callable[[float], object] | None, number: int, count: int) -> Callable[[float], object] | None:
    return None if progress is None else lambda done: progress((number + done) / count)


@dataclass(frozen=True)
class _Problem:
    """A product of one size.

    Fields:
        key: the key of its choice.
        tilings: the candidates, the model's first.
        run: computes the product with a tiling.
    """

    key: tuple[Any, ...]
    sizes: Tile
    tilings: Sequence[Tile]
    run: Callable[[Tile], object]

    def measured(self, seconds: float, progress: Callable[[float], object] | None) -> Tuned:
        """Measure the tilings and store the fastest."""
        calls = [functools.partial(self.run, tiling) for tiling in self.tilings]
        with pl.executor("cpu"):
            times = pl.time_in_turns(calls, seconds=seconds, progress=progress)
        found = Tuned.of(self.sizes, self.tilings[0], dict(zip(self.tilings, times, strict=True)))
        TUNED.keep((*self.key, *self.sizes), found.tiling)
        return found


def _columns(n: int, model: int) -> list[int]:
    """Candidate columns that multiply in pairs if and only if the model's do: pairs sum in another order."""
    pairs = model % PAIR_COLUMNS == 0
    sizes = dict.fromkeys(min(n, size) for size in (model, *SIZES, n if n <= SIZES[-1] else model))
    if not pairs:
        sizes = dict.fromkeys([model, *(n // parts for parts in range(1, 9) if n % parts == 0)])
    return [size for size in sizes if (size % PAIR_COLUMNS == 0) == pairs and size >= min(n, PAIR_COLUMNS)]


def _candidates(model: Tile, rows: Sequence[int], columns: Sequence[int]) -> list[Tile]:
    """Candidate tiles with the model's extent along the contracted axis, the model's tile first."""
    _, tk, _ = model
    return [*dict.fromkeys([model, *((tm, tk, tn) for tm in rows for tn in columns)])]


def _rows(m: int, model: int) -> list[int]:
    """Rows of tiles of a dense product that are as many as the model's, or as many as a product of matrices needs."""
    return [model, *(size for size in SIZES[1:] if LEAST_TILE_ROWS <= size < m)]


def _normal(array: Array, *shape: int) -> Any:
    """Normal random numbers of an array's dtype."""
    return np.random.default_rng(0).standard_normal(shape, np.float32).astype(dtype_of(array))


def _parts(m: int, lhs: Array) -> list[int]:
    """The numbers of rows for which a product of m rows is compiled."""
    parts = row_parts(m, row_bytes(lhs))
    return [*dict.fromkeys(rows for _, rows in parts)] if len(parts) > 1 else [rows_for(m, row_bytes(lhs), None)]


def _matmul(lhs: Array, rhs: Array, sizes: None, transpose: bool) -> Iterator[_Problem]:
    (m, k), n = lhs.shape, int(rhs.shape[1])
    counts = [part.stop - part.start for part, _ in row_parts(m, row_bytes(lhs))]
    for count in dict.fromkeys(counts if len(counts) > 1 else [m]):
        rows = rows_for(count, row_bytes(lhs), None)
        model = matmul_tiling(rows, k, n)
        if is_group(count, rows, model):  # `matmul` computes them by `gmm`
            some = pl.ShapeDtypeStruct((count, k), dtype_of(lhs))
            yield from _gmm(some, pl.ShapeDtypeStruct((1, k, n), dtype_of(rhs)), [count], False)
            continue
        x, y = _normal(lhs, rows, k), _normal(rhs, k, n)
        tilings = _candidates(model, _rows(rows, model[0]), _columns(n, model[2]))

        product = functools.cache(functools.partial(_staged_matmul, x, y))

        def run(tiling: Tile, x: Any = x, y: Any = y, product: Any = product) -> object:
            return product(tiling)(x, y)

        yield _Problem(tuning_key("matmul", lhs, rhs), (rows, k, n), tilings, run)


def _staged_matmul(x: Array, y: Array, tiling: Tile) -> Any:
    """The kernel that `matmul` runs for its own choice of a tiling."""
    return staged(x, y, tiling, result_dtype(None, x, y))


def _gmm(lhs: Array, rhs: Array, sizes: Any, transpose: bool) -> Iterator[_Problem]:
    (m, k), (groups, n) = lhs.shape, (rhs.shape[0], int(rhs.shape[1 if transpose else 2]))
    matrices = _normal(rhs, *rhs.shape)
    for rows in [rows_of_tiles(m, n, row_bytes(lhs))] if min(m, n) > 4 else _parts(m, lhs):
        model = gmm_tiling(rows, k, n, groups)
        x, mine = _normal(lhs, rows, k), _scaled(sizes, m, rows)
        # The model's rows alone: the few rows of a group in one of two tiles would be summed in another order.
        tilings = _candidates(model, [model[0]], _columns(n, model[2]))

        def run(tiling: Tile, x: Any = x, mine: Any = mine) -> object:
            return gmm(x, matrices, mine, tiling=tiling, transpose_rhs=transpose)

        yield _Problem(tuning_key("gmm", lhs, rhs, groups, transpose), (rows, k, n), tilings, run)


def _tgmm(lhs: Array, rhs: Array, sizes: Any, transpose: bool) -> Iterator[_Problem]:
    (k, m), n, groups = lhs.shape, int(rhs.shape[1]), len(sizes)
    rows = rows_summed(lhs, rhs, None)
    model = tgmm_tiling(rows, k, n, groups)
    x, y, mine = _normal(lhs, k, rows), _normal(rhs, rows, n), _scaled(sizes, m, rows)
    heights = [model[1], *(size for size in SIZES if size < k), k]
    tilings = [(rows, tk, tn) for tk in heights for tn in _columns(n, model[2])]

    def run(tiling: Tile) -> object:
        return tgmm(x, y, mine, tiling=tiling)

    yield _Problem(tuning_key("tgmm", lhs, rhs, groups), (rows, k, n), [*dict.fromkeys([model, *tilings])], run)


def _scaled(sizes: Any, m: int, rows: int) -> Any:
    """Sizes of groups for another number of rows, in about the same proportion."""
    ends = np.cumsum(np.asarray(sizes, np.int64)) * rows // max(m, 1)
    return np.diff(ends, prepend=0).astype(np.int32)
