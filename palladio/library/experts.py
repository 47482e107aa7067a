"""The expert layer of a mixture of experts: two grouped products with an activation between them.

    hidden[a] = activation(tokens[token of a] @ gate_up[expert of a])     for each assignment a of a token to an expert
    out[t]    = sum of weight of a * (hidden[a] @ down[expert of a])      over the assignments of token t

Assignments are sorted by expert, tokens are not: the first kernel copies the rows of one expert at a time
into a cache, and applies the activation before anything is stored; the second one scatters its rows, weighted, into the
result. In memory is `hidden`, and nothing else that grows with the assignments but their numbers and weights.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import palladio as pl
import palladio.numpy as jnp
import palladio.tpu as pltpu
from palladio import lax
from palladio.library.checks import (
    described,
    dtype_of,
    fail,
    in_parts,
    require_array,
    require_ids,
    require_interpret,
    row_bytes,
    rows_for,
    stored,
    zeros,
)
from palladio.library.grouped_matmul import make_group_metadata
from palladio.library.tilings import gmm_tiling

Array = Any

MOST_ROWS = 1024
"""Assignments of a tile, at most: sums of a tile wait in memory for the activation."""

_KEPT = pl.KeptCalls()


@dataclass(frozen=True)
class Activation:
    """A function between the two products.

    Fields:
        gated: it takes a gate and what the gate multiplies, two results of the first product for each column.
        alternate: gate and the other one alternate along the columns; otherwise the gates are the first half.
    """

    function: Callable[..., Array]
    gated: bool = True
    alternate: bool = False


def _silu(x: Array) -> Array:
    return x / (1 + jnp.exp(-x))


def _gelu(x: Array) -> Array:
    return 0.5 * x * (1 + lax.erf(x * np.float32(0.5**0.5)))


def _gpt_oss(gate: Array, up: Array) -> Array:
    """Agarwal et al., "gpt-oss-120b & gpt-oss-20b Model Card" (2025): both bounded by 7."""
    return (jnp.clip(up, -7, 7) + 1) * jnp.minimum(gate, 7) / (1 + jnp.exp(-1.702 * jnp.minimum(gate, 7)))


ACTIVATIONS = {
    "swiglu": Activation(lambda gate, up: _silu(gate) * up),
    "geglu": Activation(lambda gate, up: _gelu(gate) * up),
    "gpt_oss": Activation(_gpt_oss, alternate=True),
    "silu": Activation(_silu, gated=False),
    "gelu": Activation(_gelu, gated=False),
    "relu": Activation(lambda x: jnp.maximum(x, 0), gated=False),
}


@dataclass(frozen=True)
class _Problem:
    """`dtype[tokens, h]` through `experts` of inner size i, in `rows` assignments.

    Fields:
        up_columns, down_columns: of a tile of each product.
        biased: whether a bias is added to each product.
    """

    tokens: int
    rows: int
    h: int
    i: int
    experts: int
    tile: int
    up_columns: int
    down_columns: int
    dtype: Any
    sums: Any
    activation: str
    transposed: bool
    biased: tuple[bool, bool]

    def chosen(self, step: Any, offsets: Any, group_ids: Any, m_tile_ids: Any) -> Array:
        """Which rows of a tile are of the expert of a step, `bool[tile, 1]`."""
        row, expert = m_tile_ids[step] * self.tile + jnp.arange(self.tile), group_ids[step]
        return ((row >= offsets[expert]) & (row < offsets[expert + 1]))[:, None]

    def rows_of(self, step: Any, offsets: Any, group_ids: Any, m_tile_ids: Any) -> tuple[Any, Any]:
        """The first of these rows, and the end (exclusive)."""
        first, expert = m_tile_ids[step] * self.tile, group_ids[step]
        return jnp.maximum(offsets[expert] - first, 0), jnp.minimum(offsets[expert + 1] - first, self.tile)

    def product(self, x: Array, matrix: Array) -> Array:
        return jnp.dot(x, matrix.T if self.transposed else matrix, preferred_element_type=self.sums)


def _rows_by_tile(step: Any, offsets: Any, group_ids: Any, m_tile_ids: Any) -> Any:
    return m_tile_ids[step]


def _matrices(problem: _Problem, depth: int, columns: int, part: Callable[[Any], Any]) -> pl.BlockSpec:
    """The columns of the matrix of the expert of a step; `part` gives their number from that of the task."""

    def block(i: Any, step: Any, offsets: Any, group_ids: Any, m_tile_ids: Any) -> Any:
        return (group_ids[step], part(i), 0) if problem.transposed else (group_ids[step], 0, part(i))

    return pl.BlockSpec((None, columns, depth) if problem.transposed else (None, depth, columns), block)


def _bias(columns: int, part: Callable[[Any], Any]) -> pl.BlockSpec:
    return pl.BlockSpec((None, columns), lambda i, step, offsets, group_ids, m_tile_ids: (group_ids[step], part(i)))


def _up_call(problem: _Problem, steps: Array) -> Any:
    """From tokens to `hidden`: a task has some columns of it for all experts."""
    tile, columns, act = problem.tile, problem.up_columns, ACTIVATIONS[problem.activation]
    tiles = problem.i // columns
    wide = 2 * columns if act.alternate else columns
    parts: list[Callable[[Any], Any]] = [lambda i: i]
    if act.gated and not act.alternate:
        parts.append(lambda i: i + tiles)
    biases = parts if problem.biased[0] else []

    def kernel(offsets: Any, group_ids: Any, m_tile_ids: Any, token_of: Any, tokens: Any, *rest: Any) -> None:
        matrices, added = rest[: len(parts)], rest[len(parts) : len(parts) + len(biases)]
        out, rows, *sums = rest[len(parts) + len(biases) :]
        low, high = problem.rows_of(pl.program_id(1), offsets, group_ids, m_tile_ids)

        def gather(row: Any, carry: None) -> None:
            rows[pl.ds(row, 1), :] = tokens[pl.ds(token_of[low + row], 1), :]

        def activate(row: Any, carry: None) -> None:
            found = [total[pl.ds(row, 1), :] for total in sums]
            if added:
                found = [
                    each + bias[...].astype(problem.sums)[None, :] for each, bias in zip(found, added, strict=True)
                ]
            if act.alternate:
                found = [found[0][:, ::2], found[0][:, 1::2]]
            out[pl.ds(low + row, 1), :] = act.function(*found).astype(out.dtype)

        # Rows of this expert alone, which stay in a cache from the first loop to the last.
        lax.fori_loop(0, high - low, gather, None)
        chosen = (jnp.arange(tile) < high - low)[:, None]
        for matrix, total in zip(matrices, sums, strict=True):
            total[...] = jnp.where(chosen, problem.product(rows[...], matrix[...]), total[...])
        lax.fori_loop(0, high - low, activate, None)

    return pl.pallas_call(
        kernel,
        pl.ShapeDtypeStruct((problem.rows, problem.i), problem.dtype),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=3,
            grid=(tiles, steps),
            in_specs=[
                pl.BlockSpec((tile,), lambda i, step, *scalars: (_rows_by_tile(step, *scalars),)),
                pl.BlockSpec((problem.tokens, problem.h), lambda i, step, *scalars: (0, 0)),
                *(_matrices(problem, problem.h, wide, part) for part in parts),
                *(_bias(wide, part) for part in biases),
            ],
            out_specs=pl.BlockSpec((tile, columns), lambda i, step, *scalars: (_rows_by_tile(step, *scalars), i)),
            scratch_shapes=[
                pltpu.VMEM((tile, problem.h), problem.dtype),
                *(pltpu.VMEM((tile, wide), problem.sums) for _ in parts),
            ],
        ),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "arbitrary")),
        name="moe_up",
    )


def _down_call(problem: _Problem, steps: Array) -> Any:
    """From `hidden` to the result: a task has some columns of it for all tokens, and adds up in float32."""
    tile, columns = problem.tile, problem.down_columns

    def kernel(
        offsets: Any, group_ids: Any, m_tile_ids: Any, last: Any, token_of: Any, weight_of: Any, hidden: Any, *rest: Any
    ) -> None:
        matrix, *bias, out, found, total = rest
        step = pl.program_id(1)

        @pl.when(step == 0)
        def start() -> None:
            total[...] = jnp.zeros_like(total)

        chosen = problem.chosen(step, offsets, group_ids, m_tile_ids)
        found[...] = jnp.where(chosen, problem.product(hidden[...], matrix[...]), found[...])

        def scatter(row: Any, carry: None) -> None:
            token, weight = token_of[row], weight_of[row]
            value = found[pl.ds(row, 1), :]
            if bias:
                value = value + bias[0][...].astype(value.dtype)[None, :]
            total[pl.ds(token, 1), :] = total[pl.ds(token, 1), :] + weight * value

        lax.fori_loop(*problem.rows_of(step, offsets, group_ids, m_tile_ids), scatter, None)

        @pl.when(step == last[0] - 1)
        def finish() -> None:
            out[...] = total[...].astype(out.dtype)

    def rows(i: Any, step: Any, offsets: Any, group_ids: Any, m_tile_ids: Any, last: Any) -> Any:
        return (m_tile_ids[step],)

    def matrices(spec: pl.BlockSpec) -> pl.BlockSpec:
        index_map: Any = spec.index_map
        return pl.BlockSpec(spec.block_shape, lambda i, step, *scalars: index_map(i, step, *scalars[:3]))

    return pl.pallas_call(
        kernel,
        pl.ShapeDtypeStruct((problem.tokens, problem.h), problem.dtype),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=4,
            grid=(problem.h // columns, steps),
            in_specs=[
                pl.BlockSpec((tile,), rows),
                pl.BlockSpec((tile,), rows),
                pl.BlockSpec((tile, problem.i), lambda *indices: (*rows(*indices), 0)),
                matrices(_matrices(problem, problem.i, columns, lambda i: i)),
                *([matrices(_bias(columns, lambda i: i))] if problem.biased[1] else []),
            ],
            out_specs=pl.BlockSpec((problem.tokens, columns), lambda i, step, *scalars: (0, i)),
            scratch_shapes=[
                pltpu.VMEM((tile, columns), problem.sums),
                pltpu.VMEM((problem.tokens, columns), problem.sums),
            ],
        ),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "arbitrary")),
        name="moe_down",
    )


@functools.cache
def _layer(problem: _Problem, interpret: Any) -> Any:
    """The layer as one program: of group sizes, the token and the weight of each row, tokens, matrices and biases."""

    def layer(sizes: Array, token_of: Array, weight_of: Array, tokens: Array, *weights: Array) -> Array:
        # Tokens without a local expert are rows after the last group.
        metadata, steps = make_group_metadata(
            group_sizes=sizes, m=problem.rows, tm=problem.tile, visit_empty_groups=False
        )
        up, down, *biases = weights
        act = ACTIVATIONS[problem.activation]
        behind_up, behind_down = biases[: problem.biased[0]], biases[problem.biased[0] :]
        steps = jnp.maximum(steps, 1)
        twice = [up] * (2 if act.gated and not act.alternate else 1)
        behind_up *= len(twice)
        hidden = _up_call(problem, steps)(*metadata, token_of, tokens, *twice, *behind_up)
        last = jnp.reshape(steps, (1,))
        return _down_call(problem, steps)(*metadata, last, token_of, weight_of, hidden, down, *behind_down)

    return pl.jit(layer, interpret=interpret)


@pl.checked_call
def moe_mlp(
    tokens: Array,
    expert_ids: Array,
    expert_weights: Array,
    gate_up: Array,
    down: Array,
    *,
    activation: str = "swiglu",
    gate_up_bias: Array | None = None,
    down_bias: Array | None = None,
    transposed: bool = False,
    interpret: Any = None,
    out: Array | None = None,
) -> Array:
    """The expert layer: each token goes through its experts, whose results are added up by weight.

    Tokens are not permuted in memory: their rows are gathered while they are laid out for the first product, and those
    of the second one are added to the result where they belong.

    Args:
        tokens: `dtype[t, h]` of floats. Sums are in float32 (float64 for float64).
        expert_ids: integers `[t, k]`, the experts of each token. An id from e on is an expert elsewhere, and adds
            nothing.
        expert_weights: floats `[t, k]`.
        gate_up: `dtype[e, h, 2 i]` for gated activations, `dtype[e, h, i]` for others. With `transposed` the last two
            axes are exchanged, as in `torch.nn.Linear`.
        down: `dtype[e, i, h]`, or `dtype[e, h, i]` with `transposed`.
        activation: "swiglu" and "geglu", of whose columns the first half are the gates; "gpt_oss", clamped, where gate
            and up alternate; "silu", "gelu" and "relu", which have no gate.
        gate_up_bias, down_bias: `dtype[e, 2 i]` (or `[e, i]`) and `dtype[e, h]`.
        interpret: as in `palladio.pallas_call`.
        out: an array for the result, which is returned: of its shape and dtype, in row-major order.

    Returns:
        `dtype[t, h]`, of the dtype of `tokens`.

    Raises:
        PalladioValueError, PalladioTypeError: shapes or dtypes that do not fit, an activation that is not known, a
            negative expert, or traced values.
    """
    layer = _checked(tokens, expert_ids, expert_weights, gate_up, down, activation, gate_up_bias, down_bias, transposed)
    ids, weights = np.asarray(jnp.asarray(expert_ids)), jnp.asarray(expert_weights)
    biases = [bias for bias in (gate_up_bias, down_bias) if bias is not None]
    if 0 in (layer.tokens, layer.h, layer.i, ids.shape[1]):
        return stored(zeros((layer.tokens, layer.h), layer.dtype, tokens), out)

    def run(rows: slice, count: int, out: Array | None) -> Array:
        kept = _kept(layer, count, ids.shape[1], (tokens, gate_up, down, *biases), interpret)
        given = _assigned(ids[rows], weights[rows], layer.experts, kept[1], layer.sums)
        return kept[0](*given, tokens[rows], gate_up, down, *biases, out=out, rows=rows.stop - rows.start)

    parts, whole = in_parts(layer.tokens, (tokens,), layer.h, layer.dtype, out)
    for rows, count in parts:
        run(rows, count, whole[rows])
    if parts:
        return whole if out is None else out
    return run(slice(0, layer.tokens), rows_for(layer.tokens, row_bytes(tokens), None), out)


def _assigned(ids: Array, weights: Array, experts: int, rows: int, dtype: Any) -> tuple[Array, Array, Array]:
    """The assignments sorted by expert: how many each expert has, and the token and the weight of each, then zeros."""
    flat = ids.reshape(-1)
    order = np.argsort(flat, kind="stable")
    sizes = np.bincount(np.minimum(flat, experts), minlength=experts + 1)[:experts].astype(np.int32)
    token_of, weight_of = np.zeros(rows, np.int32), np.zeros(rows, dtype)
    token_of[: len(order)] = order // ids.shape[1]
    weight_of[: len(order)] = weights.reshape(-1)[order].astype(dtype)
    return sizes, token_of, weight_of


def _kept(layer: _Problem, tokens: int, each: int, arrays: Any, interpret: Any) -> tuple[Any, int]:
    """The staged layer for a number of tokens, and the number of rows of its assignments."""
    tile = min(MOST_ROWS, max(16, tokens * each))
    rows = pl.cdiv(tokens * each, tile) * tile
    problem = replace(layer, tokens=tokens, rows=rows, tile=tile)
    key = problem, tuple((type(array), array.dtype, *array.shape[1:]) for array in arrays)
    found = _KEPT.find(key, interpret)
    if found is None:
        integers, floats = pl.ShapeDtypeStruct((rows,), np.int32), pl.ShapeDtypeStruct((rows,), layer.sums)
        sizes = pl.ShapeDtypeStruct((layer.experts,), np.int32)
        types = [described(arrays[0], tokens), *map(described, arrays[1:])]
        found = _layer(problem, require_interpret(interpret)).ahead(sizes, integers, floats, *types)
        _KEPT.keep(key, found, interpret)
    return found, rows


def _require_shape(value: Array, shape: tuple[int, ...], argument: str) -> None:
    """An array of floats of a shape."""
    found = require_array(value, argument, len(shape), str(shape))
    if found != shape:
        rule = "does not go with the other arrays"
        raise fail(pl.PalladioValueError, rule, argument=argument, expected=shape, got=found)


def _checked(
    tokens: Array,
    expert_ids: Array,
    expert_weights: Array,
    gate_up: Array,
    down: Array,
    activation: str,
    gate_up_bias: Array | None,
    down_bias: Array | None,
    transposed: bool,
) -> _Problem:
    """The layer that the arguments describe, without the rows of assignments."""
    if activation not in ACTIVATIONS:
        rule, known = "no such activation", ", ".join(ACTIVATIONS)
        raise fail(pl.PalladioValueError, rule, argument="activation", expected=known, got=repr(activation))
    if any(map(pl.is_traced, (tokens, expert_ids, expert_weights, gate_up, down))):
        rule = "the assignments are sorted before anything is staged, and must be known"
        raise fail(pl.PalladioTypeError, rule, argument="expert_ids", got="a traced value")
    act = ACTIVATIONS[activation]
    t, h = require_array(tokens, "tokens", 2, "[t, h]")
    experts, *matrix = require_array(gate_up, "gate_up", 3, "[e, 2 i, h]" if transposed else "[e, h, 2 i]")
    wide = matrix[0 if transposed else 1]
    if act.gated and wide % 2:
        rule = "a gated activation takes two columns for each of the results"
        raise fail(pl.PalladioValueError, rule, argument="gate_up", expected="an even number of columns", got=wide)
    if experts == 0:
        raise fail(pl.PalladioValueError, "at least one expert is needed", argument="gate_up", got=tuple(gate_up.shape))
    i = wide // 2 if act.gated else wide
    _require_shape(gate_up, (experts, wide, h) if transposed else (experts, h, wide), "gate_up")
    _require_shape(down, (experts, h, i) if transposed else (experts, i, h), "down")
    for bias, columns, name in ((gate_up_bias, wide, "gate_up_bias"), (down_bias, h, "down_bias")):
        if bias is not None:
            _require_shape(bias, (experts, columns), name)
    ids = require_ids(expert_ids, t)
    _require_shape(expert_weights, (t, ids), "expert_weights")
    sums = jnp.promote_types(jnp.float32, dtype_of(tokens))
    up_columns, down_columns = (
        tn if n % (tn := gmm_tiling(max(t, 1), max(k, 1), max(n, 1))[2]) == 0 else n for k, n in ((h, i), (i, h))
    )
    biased = gate_up_bias is not None, down_bias is not None
    sizes = (t, 0, h, i, experts, 0, up_columns, down_columns)
    return _Problem(*sizes, dtype_of(tokens), sums, activation, bool(transposed), biased)
