"""Attention whose scores are never kept: blocks of keys go by, and the sums so far are rescaled ("online softmax").

Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018); Dao et al., "FlashAttention" (2022).
"""

from __future__ import annotations

import functools
from typing import Any

import palladio as pl
import palladio.numpy as jnp
import palladio.tpu as pltpu
from palladio import lax
from palladio.library.checks import dtype_of, fail, require_array, require_count, zeros


def _attention_kernel(
    q_ref: Any, k_ref: Any, v_ref: Any, out_ref: Any, largest_ref: Any, total_ref: Any, sum_ref: Any, **options: Any
) -> None:
    """One block of queries and one of keys. `largest`, `total` and `sum` are what the keys so far come to."""
    rows, columns = q_ref.shape[0], k_ref.shape[0]
    first_row, step = pl.program_id(1) * rows, pl.program_id(2)
    first_column = step * columns

    @pl.when(step == 0)
    def _() -> None:
        largest_ref[...] = jnp.full_like(largest_ref[...], -jnp.inf)
        total_ref[...] = jnp.zeros_like(total_ref[...])
        sum_ref[...] = jnp.zeros_like(sum_ref[...])

    def attend(masked: bool) -> None:
        values = v_ref[...]
        contracted = (((1,), (1,)), ((), ()))
        scores = lax.dot_general(q_ref[...], k_ref[...], contracted, preferred_element_type=sum_ref.dtype)
        scores = scores * options["scale"]
        if masked:
            row = first_row + lax.broadcasted_iota(jnp.int32, (rows, columns), 0)
            column = first_column + lax.broadcasted_iota(jnp.int32, (rows, columns), 1)
            seen = column < options["keys"]
            if options["causal"]:
                seen = jnp.logical_and(seen, column <= row)
            scores = jnp.where(seen, scores, -jnp.inf)
            # Rows behind the last key are of any value, and no weight of 0 makes a NaN disappear.
            behind = first_column + lax.broadcasted_iota(jnp.int32, values.shape, 0)
            values = jnp.where(behind < options["keys"], values, jnp.zeros_like(values))
        before = largest_ref[...]
        largest = jnp.maximum(before, jnp.max(scores, axis=1, keepdims=True))
        weights = jnp.exp(scores - largest)
        shrink = jnp.exp(before - largest)
        largest_ref[...] = largest
        total_ref[...] = total_ref[...] * shrink + jnp.sum(weights, axis=1, keepdims=True)
        product = jnp.dot(weights.astype(values.dtype), values, preferred_element_type=sum_ref.dtype)
        sum_ref[...] = sum_ref[...] * shrink + product

    last_column = first_column + columns - 1
    ragged = options["keys"] % columns != 0
    crossed = last_column >= options["keys"] if ragged else step < 0
    if options["causal"]:
        crossed = jnp.logical_or(crossed, last_column > first_row)
    needed = first_column <= first_row + rows - 1 if options["causal"] else step >= 0
    if ragged or options["causal"]:
        pl.when(jnp.logical_and(needed, crossed))(lambda: attend(True))
        pl.when(jnp.logical_and(needed, jnp.logical_not(crossed)))(lambda: attend(False))
    else:
        attend(False)

    @pl.when(step == pl.num_programs(2) - 1)
    def _() -> None:
        out_ref[...] = (sum_ref[...] / total_ref[...]).astype(out_ref.dtype)


def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    causal: bool = False,
    scale: float | None = None,
    block_q: int = 128,
    block_k: int = 128,
    interpret: Any = None,
) -> Any:
    """`softmax(q k^T * scale) v` for each head, in memory that does not grow with the number of scores.

    Args:
        q: `dtype[..., m, d]` of floats: m queries.
        k: `dtype[..., n, d]`: n keys, at least one, with the same leading axes.
        v: `dtype[..., n, e]`: a value for each key.
        causal: whether query i sees the keys 0 to i only.
        scale: what the products are multiplied by; `1/sqrt(d)` if it is not given.
        block_q, block_k: how many queries and keys a grid point works on. They need not divide m and n.
        interpret: as in `palladio.pallas_call`.

    Returns:
        `dtype[..., m, e]`. Scores and sums are in float32 (float64 for float64); the weights are rounded to the dtype
        of `v` before they multiply it.

    Raises:
        PalladioTypeError: no floats, or several dtypes. PalladioValueError: shapes that do not go together, no keys,
            or a block below 1.
    """
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
    require_count(block_q, "block_q")
    require_count(block_k, "block_k")
    shape = (*lead, m, values[-1])
    if 0 in shape:
        return zeros(shape, dtype_of(q), q, k, v)
    q, k, v = (x.reshape((-1, *x.shape[-2:])) for x in (q, k, v))
    rows, columns, width = min(block_q, m), min(block_k, n), values[-1]
    wide = jnp.promote_types(jnp.float32, dtype_of(q))
    result = pl.pallas_call(
        functools.partial(
            _attention_kernel, scale=float(d**-0.5 if scale is None else scale), causal=bool(causal), keys=n
        ),
        pl.ShapeDtypeStruct((q.shape[0], m, width), dtype_of(q)),
        grid=(q.shape[0], pl.cdiv(m, rows), pl.cdiv(n, columns)),
        in_specs=[
            pl.BlockSpec((None, rows, d), lambda head, i, j: (head, i, 0)),
            pl.BlockSpec((None, columns, d), lambda head, i, j: (head, j, 0)),
            pl.BlockSpec((None, columns, width), lambda head, i, j: (head, j, 0)),
        ],
        out_specs=pl.BlockSpec((None, rows, width), lambda head, i, j: (head, i, 0)),
        scratch_shapes=[pltpu.VMEM((rows, 1), wide), pltpu.VMEM((rows, 1), wide), pltpu.VMEM((rows, width), wide)],
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel", "arbitrary")),
        interpret=interpret,
    )(q, k, v)
    return result.reshape(shape)
