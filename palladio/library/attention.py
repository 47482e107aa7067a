"""Attention whose scores are never kept: blocks of keys go by, and the sums so far are rescaled ("online softmax").

Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018); Dao et al., "FlashAttention" (2022).
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import palladio as pl
import palladio.numpy as jnp
import palladio.tpu as pltpu
from palladio import lax
from palladio.library.card_calls import kept_call
from palladio.library.checks import dtype_of, fail, require_array, require_count, reshaped, stored, zeros
from palladio.library.namesakes import on_hopper
from palladio.library.tilings import attention_blocks

MOST_WIDTH = 256
"""Of keys and of values on Hopper: accumulators of wider ones do not fit into the registers of a warpgroup."""


@dataclass(frozen=True)
class _Problem:
    """`dtype[heads, m, d]` attends to `dtype[heads, n, d]` and `dtype[heads, n, e]`, by blocks of scores."""

    heads: int
    m: int
    n: int
    d: int
    e: int
    dtype: Any
    rows: int
    columns: int
    scale: float
    causal: bool

    def block(self, i: Any) -> Any:
        """Which block of queries comes as the i-th. Causal ones that see most keys do first: threads end together."""
        return pl.cdiv(self.m, self.rows) - 1 - i if self.causal else i


def _attention_kernel(
    problem: _Problem,
    q_ref: Any,
    k_ref: Any,
    v_ref: Any,
    out_ref: Any,
    scores_ref: Any,
    largest_ref: Any,
    total_ref: Any,
    sum_ref: Any,
) -> None:
    """One block of queries and one of keys. `largest`, `total` and `sum` are what the keys so far come to.

    Powers are of 2, which are cheaper than those of e; the scores are scaled for them.
    """
    rows, columns, keys, causal = problem.rows, problem.columns, problem.n, problem.causal
    first_row, step = problem.block(pl.program_id(1)) * rows, pl.program_id(2)
    first_column = step * columns
    last_row, last_column = first_row + rows - 1, first_column + columns - 1
    ragged = keys % columns != 0

    @pl.when(step == 0)
    def _() -> None:
        largest_ref[...] = jnp.full_like(largest_ref[...], -jnp.inf)
        total_ref[...] = jnp.zeros_like(total_ref[...])
        sum_ref[...] = jnp.zeros_like(sum_ref[...])

    def hide() -> None:
        column = first_column + lax.broadcasted_iota(jnp.int32, (rows, columns), 1)
        seen = column < keys
        if causal:
            row = first_row + lax.broadcasted_iota(jnp.int32, (rows, columns), 0)
            seen = jnp.logical_and(seen, column <= row) if ragged else column <= row
        scores_ref[...] = jnp.where(seen, scores_ref[...], -jnp.inf)

    def attend() -> None:
        q, k, values = q_ref[...], k_ref[...], v_ref[...]
        scale, contracted = problem.scale / math.log(2), (((1,), (1,)), ((), ()))
        if q.dtype == scores_ref.dtype:
            scores_ref[...] = lax.dot_general(q * scale, k, contracted)
        else:
            # There are more scores than elements of q, but a product of these would be rounded.
            scores_ref[...] = scale * lax.dot_general(q, k, contracted, preferred_element_type=scores_ref.dtype)
        if causal:
            pl.when(jnp.logical_or(last_column > first_row, last_column >= keys))(hide)
        elif ragged:
            pl.when(last_column >= keys)(hide)
        if ragged:
            # Rows past the last key are of any value, and no weight of 0 makes a NaN disappear.
            row = first_column + lax.broadcasted_iota(jnp.int32, values.shape, 0)
            values = jnp.where(row < keys, values, jnp.zeros_like(values))
        before, scores = largest_ref[...], scores_ref[...]
        largest = jnp.maximum(before, jnp.max(scores, axis=1))
        weights = jnp.exp2(scores - largest[:, None])
        shrink = jnp.exp2(before - largest)
        largest_ref[...] = largest
        total_ref[...] = total_ref[...] * shrink + jnp.sum(weights, axis=1)
        product = jnp.dot(weights.astype(values.dtype), values, preferred_element_type=sum_ref.dtype)
        sum_ref[...] = sum_ref[...] * shrink[:, None] + product

    if causal:
        pl.when(first_column <= last_row)(attend)
    else:
        attend()

    @pl.when(step == pl.num_programs(2) - 1)
    def _() -> None:
        out_ref[...] = (sum_ref[...] / total_ref[...][:, None]).astype(out_ref.dtype)


@functools.cache
def _attention_call(problem: _Problem, interpret: Any) -> Any:
    rows, columns, d, e = problem.rows, problem.columns, problem.d, problem.e
    wide = jnp.promote_types(jnp.float32, problem.dtype)
    sums = ((rows, columns), (rows,), (rows,), (rows, e))
    return pl.pallas_call(
        functools.partial(_attention_kernel, problem),
        pl.ShapeDtypeStruct((problem.heads, problem.m, e), problem.dtype),
        grid=(problem.heads, pl.cdiv(problem.m, rows), pl.cdiv(problem.n, columns)),
        in_specs=[
            pl.BlockSpec((None, rows, d), lambda head, i, j: (head, problem.block(i), 0)),
            pl.BlockSpec((None, columns, d), lambda head, i, j: (head, j, 0)),
            pl.BlockSpec((None, columns, e), lambda head, i, j: (head, j, 0)),
        ],
        out_specs=pl.BlockSpec((None, rows, e), lambda head, i, j: (head, problem.block(i), 0)),
        scratch_shapes=[pltpu.VMEM(shape, wide) for shape in sums],
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel", "arbitrary")),
        interpret=interpret,
    )


def _require_blocks(block_q: Any, block_k: Any) -> None:
    for name, block in (("block_q", block_q), ("block_k", block_k)):
        if block is not None:
            require_count(block, name)


def _within(q: Any, v: Any, most: int) -> bool:
    """True if no key or value is wider."""
    return all(len(getattr(x, "shape", ())) >= 2 and x.shape[-1] <= most for x in (q, v))


@pl.checked_call
def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    causal: bool = False,
    scale: float | None = None,
    block_q: int | None = None,
    block_k: int | None = None,
    interpret: Any = None,
    out: Any = None,
) -> Any:
    """`softmax(q k^T * scale) v` for each head, in memory that does not grow with the number of scores.

    Args:
        q: `dtype[..., m, d]` of floats: m queries.
        k: `dtype[..., n, d]`: n keys, at least one, with the same leading axes.
        v: `dtype[..., n, e]`: a value for each key.
        causal: whether query i sees the keys 0 to i only.
        scale: what the products are multiplied by; `1/sqrt(d)` if it is not given.
        block_q, block_k: how many queries and keys a grid point works on. They need not divide m and n. Where one is
            not given, `attention_blocks` chooses it. On Hopper `library.hopper.attention` takes floats of 16 bits, in
            blocks of its own.
        interpret: as in `palladio.pallas_call`.
        out: an array for the result, which is returned: of its shape and dtype, in row-major order.

    Returns:
        `dtype[..., m, e]`. Scores and sums are in float32 (float64 for float64); the weights are rounded to the dtype
        of `v` before they multiply it.

    Raises:
        PalladioTypeError: no floats, or several dtypes. PalladioValueError: shapes that do not go together, no keys,
            or a block below 1.
    """
    done = kept_call(("attention", causal, scale, None), interpret, (q, k, v), out)
    if done is not None:
        return done
    hopper = on_hopper(interpret, (q, k, v)) if _within(q, v, MOST_WIDTH) else None
    if hopper is not None:
        _require_blocks(block_q, block_k)
        return hopper.attention(q, k, v, causal=causal, scale=scale, interpret=interpret, out=out)
    queries, keys, values = (require_array(x, name, None, "[..., n, d]") for x, name in ((q, "q"), (k, "k"), (v, "v")))
    if len(queries) < 2:
        raise fail(pl.PalladioValueError, "attention needs at least two axes", argument="q", got=queries)
    lead, m, d = queries[:-2], queries[-2], queries[-1]
    if len(keys) != len(queries) or keys[:-2] != lead or keys[-1] != d or keys[-2] == 0 or d == 0:
        wanted = f"{(*lead, 'n', d)} with n and d at least 1"
        raise fail(
            pl.PalladioValueError, "the keys do not go with the queries", argument="k", expected=wanted, got=keys
        )
    n = keys[-2]
    if len(values) != len(keys) or values[:-1] != keys[:-1]:
        wanted = str((*lead, n, "e"))
        raise fail(pl.PalladioValueError, "not one value for each key", argument="v", expected=wanted, got=values)
    for name, other in (("k", k), ("v", v)):
        if dtype_of(other) != dtype_of(q):
            expected = str(dtype_of(q))
            raise fail(pl.PalladioTypeError, "another dtype than q", argument=name, expected=expected, got=other.dtype)
    _require_blocks(block_q, block_k)
    shape = (*lead, m, values[-1])
    if 0 in shape:
        return stored(zeros(shape, dtype_of(q), q, k, v), out)
    q, k, v = (x.reshape((-1, *x.shape[-2:])) for x in (q, k, v))
    chosen = attention_blocks(q.shape[0], m, max(d, values[-1]))
    block_q, block_k = block_q or chosen[0], block_k or chosen[1]
    problem = _Problem(
        *(q.shape[0], m, n, d, values[-1], dtype_of(q)),
        rows=min(block_q, m),
        columns=min(block_k, n),
        scale=float(d**-0.5 if scale is None else scale),
        causal=bool(causal),
    )
    call = _attention_call(problem, interpret)
    if out is None:
        return call(q, k, v).reshape(shape)
    call(q, k, v, out=reshaped(out, shape, (problem.heads, m, problem.e)))
    return out
