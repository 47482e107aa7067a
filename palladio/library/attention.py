"""Attention without storing scores: the kernel iterates over blocks of keys and rescales its sums ("online softmax").

Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018); Dao et al., "FlashAttention" (2022).
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

import palladio as pl
import palladio.numpy as jnp
import palladio.tpu as pltpu
from palladio import lax
from palladio.library.card_calls import attention_key, kept_call
from palladio.library.checks import (
    dtype_of,
    fail,
    heads_together,
    require_array,
    require_count,
    require_flag,
    require_interpret,
    require_number,
    wide_dtype,
)
from palladio.library.namesakes import on_hopper
from palladio.library.staging import in_shape, kept_calls, reshaped, rows_together, stored, zeros
from palladio.library.tilings import attention_blocks

_KEPT = kept_calls()

MOST_WIDTH = 256
"""The widest keys and values on Hopper: wider accumulators do not fit into the registers of a warpgroup."""


@dataclass(frozen=True)
class _Problem:
    """`dtype[heads, m, d]` attends to the keys and values of each head, by blocks of scores.

    Keys and values of all heads are `dtype[keys, d]` and `dtype[keys, e]`, one head after the other. The number of keys
    of each head, and the number of the m queries that are not padding, are known when the kernel runs.

    Fields:
        group: the number of consecutive heads of queries that share a head of keys and values.
        steps: the most blocks of keys of a head.
        rows, columns: the queries and keys of a block.
        ragged: True if the last block of a head has fewer keys. It extends into the next head; at the end of the
            array it starts earlier instead, and overlaps the block before.
    """

    heads: int
    group: int
    m: int
    keys: int
    d: int
    e: int
    dtype: Any
    steps: int
    rows: int
    columns: int
    ragged: bool
    scale: float
    causal: bool

    def counts(self, heads: int, queries: int, keys: int) -> Any:
        """The keys of each head, the last row at which a block of keys may start, and the queries of each head."""
        return np.array([keys, heads // self.group * keys - self.columns, queries], np.int32)

    def head_of_keys(self, head: Any) -> Any:
        """The head of keys that a head of queries attends to."""
        return head if self.group == 1 else head // self.group

    def first_key(self, head: Any, step: Any, counts: Any) -> Any:
        """The first row of a head's block, among all keys."""
        return jnp.minimum(self.head_of_keys(head) * counts[0] + step * self.columns, counts[1])

    def block(self, i: Any) -> Any:
        """The i-th block of queries. Causal blocks with most keys come first, which balances the threads' load."""
        return pl.cdiv(self.m, self.rows) - 1 - i if self.causal else i


def _attention_kernel(
    problem: _Problem,
    counts: Any,
    q_ref: Any,
    k_ref: Any,
    v_ref: Any,
    out_ref: Any,
    scores_ref: Any,
    largest_ref: Any,
    total_ref: Any,
    sum_ref: Any,
) -> None:
    """One block of queries and one of keys. `largest`, `total` and `sum` are the state over the keys so far.

    Exponentials are powers of 2, cheaper than those of e; the scores are scaled accordingly.
    """
    rows, columns, causal, ragged = problem.rows, problem.columns, problem.causal, problem.ragged
    head, first_row, step = pl.program_id(0), problem.block(pl.program_id(1)) * rows, pl.program_id(2)
    keys, first_own = counts[0], step * columns
    # The block of keys may start before this step's keys.
    first_of_head = problem.head_of_keys(head) * keys
    first_column = problem.first_key(head, step, counts) - first_of_head if ragged else first_own
    last_row, last_column = first_row + rows - 1, first_own + columns - 1

    @pl.when(step == 0)
    def _() -> None:
        largest_ref[...] = jnp.full_like(largest_ref[...], -jnp.inf)
        total_ref[...] = jnp.zeros_like(total_ref[...])
        sum_ref[...] = jnp.zeros_like(sum_ref[...])

    def hide() -> None:
        column = first_column + lax.broadcasted_iota(jnp.int32, (rows, columns), 1)
        conditions = [column >= first_own, column < keys] if ragged else []
        if causal:
            conditions.append(column <= first_row + lax.broadcasted_iota(jnp.int32, (rows, columns), 0))
        seen = functools.reduce(jnp.logical_and, conditions)
        scores_ref[...] = jnp.where(seen, scores_ref[...], -jnp.inf)

    def attend() -> None:
        q, k, values = q_ref[...], k_ref[...], v_ref[...]
        scale, contracted = problem.scale / math.log(2), (((1,), (1,)), ((), ()))
        if q.dtype == scores_ref.dtype:
            scores_ref[...] = lax.dot_general(q * scale, k, contracted)
        else:
            # Scaling q would be cheaper, since it has fewer elements, but would round its products.
            scores_ref[...] = scale * lax.dot_general(q, k, contracted, preferred_element_type=scores_ref.dtype)
        if causal:
            pl.when(
                jnp.logical_or(last_column > first_row, last_column >= keys) if ragged else last_column > first_row
            )(hide)
        elif ragged:
            pl.when(last_column >= keys)(hide)
        if ragged:
            # Values of other heads are arbitrary, and a NaN times a weight of 0 is a NaN.
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

    needed = jnp.logical_and(first_own < keys, first_row < counts[2])
    pl.when(jnp.logical_and(needed, first_own <= last_row) if causal else needed)(attend)

    @pl.when(step == pl.num_programs(2) - 1)
    def _() -> None:
        out_ref[...] = (sum_ref[...] / total_ref[...][:, None]).astype(out_ref.dtype)


@functools.cache
def _attention_call(problem: _Problem, interpret: Any) -> Any:
    rows, columns, d, e = problem.rows, problem.columns, problem.d, problem.e
    wide = wide_dtype(problem.dtype)
    sums = ((rows, columns), (rows,), (rows,), (rows, e))

    def queries(width: int) -> pl.BlockSpec:
        return pl.BlockSpec((None, rows, width), lambda head, i, j, counts: (head, problem.block(i), 0))

    def keys(width: int) -> pl.BlockSpec:
        return pl.BlockSpec(
            (pl.Element(columns), width), lambda head, i, j, counts: (problem.first_key(head, j, counts), 0)
        )

    return pl.pallas_call(
        functools.partial(_attention_kernel, problem),
        pl.ShapeDtypeStruct((problem.heads, problem.m, e), problem.dtype),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1,
            grid=(problem.heads, pl.cdiv(problem.m, rows), problem.steps),
            in_specs=[queries(d), keys(d), keys(e)],
            out_specs=queries(e),
            scratch_shapes=[pltpu.VMEM(shape, wide) for shape in sums],
        ),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel", "arbitrary")),
        interpret=interpret,
    )


def _kept(problem: _Problem, interpret: Any) -> Any:
    """The kernel, staged ahead for at most these numbers of heads and keys."""
    found = _KEPT.find(problem, interpret)
    if found is None:
        call = _attention_call(problem, require_interpret(interpret))

        def attention(counts: Any, q: Any, k: Any, v: Any) -> Any:
            return call(counts, q, k, v)

        shapes = (problem.heads, problem.m, problem.d), (problem.keys, problem.d), (problem.keys, problem.e)
        types = [pl.ShapeDtypeStruct(shape, problem.dtype) for shape in shapes]
        found = pl.jit(attention, interpret=interpret).ahead(pl.ShapeDtypeStruct((3,), np.int32), *types)
        _KEPT.keep(problem, found, interpret)
    return found


def _power(n: int) -> int:
    """The next power of two."""
    return 1 << (n - 1).bit_length()


def _any_sizes(
    q: Any, k: Any, v: Any, blocks: tuple[int | None, int | None], scale: float, causal: bool, interpret: Any, out: Any
) -> Any:
    """`attention` by a kernel that serves other numbers of heads, queries and keys too.

    Numbers of heads and keys share a kernel up to the next power of two; queries are padded to one of a few numbers,
    so that few kernels suffice.

    Args:
        q, k, v: `dtype[heads, m, d]`, `dtype[heads of keys, n, d]` and `dtype[heads of keys, n, e]`, of NumPy or
            PyTorch.
        blocks: the queries and the keys of a block, if the caller chose them.
        out: `dtype[heads, m, e]`, or None.
    """
    (heads, m, d), (own, n), e = q.shape, map(int, k.shape[:2]), int(v.shape[2])
    most = rows_together(m, d * q.dtype.itemsize)
    chosen = attention_blocks(_power(heads), most, max(d, e), n, causal)
    rows, columns = min(blocks[0] or chosen[0], most), min(blocks[1] or chosen[1], _fewest_keys(n))
    most = pl.cdiv(most, rows) * rows
    sizes = _power(heads), heads // own, most, _power(own) * _power(n), d, e, dtype_of(q)
    ragged = n % columns != 0
    problem = _Problem(*sizes, pl.cdiv(_power(n), columns), rows, columns, ragged, scale, causal)
    keys, values = in_shape(k, (-1, d)), in_shape(v, (-1, e))
    if most == m:
        return _kept(problem, interpret)(problem.counts(heads, m, n), q, keys, values, out=out, rows=heads)
    pl.note_copy(
        q, f"{m} queries become {most}, for which a kernel is kept", "block_q=... compiles one for this number"
    )
    whole = np.zeros((heads, most, d), q.dtype) if isinstance(q, np.ndarray) else q.new_zeros((heads, most, d))
    whole[:, :m] = q
    found = _kept(problem, interpret)(problem.counts(heads, m, n), whole, keys, values, rows=heads)[:, :m]
    if out is not None:
        return stored(found, out)
    return found.copy() if isinstance(found, np.ndarray) else found.contiguous()


def _fewest_keys(n: int) -> int:
    """A power of two: a lower bound of the numbers of keys that share a kernel with n keys."""
    return _power(n + 1) // 2


def _require_blocks(block_q: Any, block_k: Any) -> list[int | None]:
    given = {"block_q": block_q, "block_k": block_k}
    return [None if block is None else require_count(block, name) for name, block in given.items()]


def _within(q: Any, v: Any, most: int) -> bool:
    """True if keys and values are at most this wide."""
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
        k: `dtype[..., n, d]`: n keys, at least one, with the same leading axes. The last of these, the heads, may
            divide those of q: then consecutive heads of queries share a head of keys and values.
        v: `dtype[..., n, e]`: a value for each key. Hopper reads views of `[..., tokens, heads, d]` in place.
        causal: True if query i attends to keys 0 to i only.
        scale: the factor of the products; `1/sqrt(d)` by default.
        block_q, block_k: the numbers of queries and keys of a grid point. They need not divide m and n. By default,
            `attention_blocks` chooses them. On Hopper, `library.hopper.attention` computes 16-bit floats, in its own
            blocks.
        interpret: as in `palladio.pallas_call`.
        out: an array for the result, of its shape and dtype, in row-major order; it is returned.

    Returns:
        `dtype[..., m, e]`, on Hopper such a view if q is. Scores and sums are in float32 (float64 for float64); the
        weights are rounded to the dtype of `v` before the product.

    Raises:
        PalladioTypeError: dtypes that are not floats, or differ. PalladioValueError: shapes that do not match, no
            keys, or a block below 1.
    """
    causal = require_flag(causal, "causal")
    if (done := kept_call(attention_key(causal, scale, None, out), interpret, (q, k, v), out)) is not None:
        return done
    hopper = on_hopper(interpret, (q, k, v)) if _within(q, v, MOST_WIDTH) else None
    if hopper is not None:
        _require_blocks(block_q, block_k)
        return hopper.attention(q, k, v, causal=causal, scale=scale, interpret=interpret, out=out)
    queries, keys, values = (require_array(x, name, None, "[..., n, d]") for x, name in ((q, "q"), (k, "k"), (v, "v")))
    if len(queries) < 2:
        raise fail(pl.PalladioValueError, "attention needs at least two axes", argument="q", got=queries)
    lead, m, d = queries[:-2], queries[-2], queries[-1]
    if len(keys) < 2:
        raise fail(pl.PalladioValueError, "attention needs at least two axes", argument="k", got=keys)
    group, n = heads_together(queries, keys), keys[-2]
    if len(values) != len(keys) or values[:-1] != keys[:-1]:
        wanted = str((*keys[:-1], "e"))
        raise fail(pl.PalladioValueError, "not one value for each key", argument="v", expected=wanted, got=values)
    for name, other in (("k", k), ("v", v)):
        if dtype_of(other) != dtype_of(q):
            expected = str(dtype_of(q))
            raise fail(pl.PalladioTypeError, "another dtype than q", argument=name, expected=expected, got=other.dtype)
    block_q, block_k = _require_blocks(block_q, block_k)
    shape = (*lead, m, values[-1])
    if 0 in shape:
        return stored(zeros(shape, dtype_of(q), q, k, v), out)
    q, k, v = (in_shape(x, (-1, *x.shape[-2:])) for x in (q, k, v))
    heads, e = int(q.shape[0]), values[-1]
    flat = None if out is None else reshaped(out, shape, (heads, m, e))
    scale = d**-0.5 if scale is None else require_number(scale, "scale")
    several = _KEPT.usable and not pl.is_on_gpu(q) and (block_k is None or block_k <= _fewest_keys(n))
    if several and all(isinstance(x, np.ndarray) or hasattr(x, "new_zeros") for x in (q, k, v)):
        found = _any_sizes(q, k, v, (block_q, block_k), scale, causal, interpret, flat)
        return found.reshape(shape) if out is None else out
    chosen = attention_blocks(heads, m, max(d, e), n, causal)
    rows, columns = min(block_q or chosen[0], m), min(block_k or chosen[1], n)
    sizes = heads, group, m, heads // group * n, d, e, dtype_of(q)
    problem = _Problem(*sizes, pl.cdiv(n, columns), rows, columns, n % columns != 0, scale, causal)
    call, counts = _attention_call(problem, interpret), problem.counts(heads, m, n)
    keys, values = in_shape(k, (-1, d)), in_shape(v, (-1, e))
    if out is None:
        return call(counts, q, keys, values).reshape(shape)
    call(counts, q, keys, values, out=flat)
    return out
