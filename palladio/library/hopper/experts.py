"""The expert layer for Hopper: four kernels, which look at the assignments on the GPU.

    moe_route    the number of assignments of each expert, and the row of each assignment, sorted by expert
    moe_up       hidden[row] = activation(tokens[token of row] @ gate_up[expert of row])
    gmm          found[row] = hidden[row] @ down[expert of row]
    moe_combine  out[t] = sum of weight of a * found[row of a] over the assignments of token t

`moe_up` is the grouped product of `gmm` with two differences: the memory warpgroup copies the rows of the tokens to
where they are needed, so that none are permuted in memory, and the activation is applied to the accumulators. The
second product is not scattered as it is written: threads would have to store what the copy engine stores beside the
next product, and additions to one token by several experts would come in any order. So its rows are gathered when they
are summed up, in float32 and always in the same order (as in Guo et al., "SonicMoE", 2025).
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import palladio as pl
import palladio.gpu as plgpu
import palladio.numpy as jnp
from palladio import lax
from palladio.library.activations import ACTIVATIONS, Activation
from palladio.library.checks import ExpertShapes, dtype_of, expert_shapes, fail, stored, zeros
from palladio.library.hopper.config import MatmulConfig, require_matmul_config
from palladio.library.hopper.epilogue import BUFFERS, store_pieces
from palladio.library.hopper.grouped_matmul import REGISTERS, GroupedProblem, Selection, gmm, gmm_tile
from palladio.library.hopper.kept import called
from palladio.library.hopper.limits import COMPUTE_GROUPS, FLOATS, require_operand
from palladio.library.hopper.model import Product, choose
from palladio.library.hopper.persistent import OutputTile, PersistentProduct
from palladio.library.hopper.ring import Ring, ring_scratch

Array = Any
Ref = Any
Value = Any

IDS = tuple(map(jnp.dtype, ("int32", "int64")))

# Routing.

COUNTED = 1024
"""Assignments that a warpgroup counts at a time."""

RANKED = 256
"""Assignments whose ranks a warp finds at a time, from lane to lane."""

TOGETHER = 2
"""Of those, how many are loaded before the first one is looked at."""

MOST_GROUPS = 4
"""Warpgroups of a block."""


def _moe_route_kernel(
    ids: Ref, sizes: Ref, token_of: Ref, row_of: Ref, *, each: int, groups: int, **scratch: Ref
) -> None:
    """One block: the assignments to one expert, whose rows follow those of the experts before it.

    Warpgroups share the assignments. Each counts those of its part, and when all counts are known it gives out rows.
    """
    expert, group = pl.axis_index("expert"), pl.axis_index("warpgroup")
    below, own, counted = scratch["below"], scratch["own"], scratch["counted"]
    count = ids.shape[0]
    step = RANKED * TOGETHER
    part = pl.cdiv(pl.cdiv(count, groups), step) * step
    first = group * part
    end = jnp.minimum(first + part, count)

    def load(start: Value, size: int) -> tuple[Value, Value]:
        number = start + jnp.arange(size)
        return number, plgpu.load(ids.at[pl.ds(start, size)], mask=number < end, other=-1)

    def add(number: Value, carry: tuple[Value, Value]) -> tuple[Value, Value]:
        _, found = load(first + number * COUNTED, COUNTED)
        before, mine = (found >= 0) & (found < expert), found == expert
        return carry[0] + jnp.sum(before.astype(jnp.int32)), carry[1] + jnp.sum(mine.astype(jnp.int32))

    before, mine = lax.fori_loop(0, pl.cdiv(part, COUNTED), add, (jnp.int32(0), jnp.int32(0)))
    below[group], own[group] = before, mine
    plgpu.barrier_arrive_and_wait(counted)
    earlier = jnp.arange(groups) < group
    start = jnp.sum(below[...]) + jnp.sum(jnp.where(earlier, own[...], 0))

    @pl.when(group == 0)
    def _() -> None:
        sizes[expert] = jnp.sum(own[...])

    def rank(number: Value, row: Value) -> Value:
        loaded = [load(first + number * step + n * RANKED, RANKED) for n in range(TOGETHER)]
        for numbers, found in loaded:
            mine = found == expert
            rows = row + jnp.cumsum(mine.astype(jnp.int32)) - 1
            plgpu.store(row_of.at[pl.ds(numbers[0], RANKED)], rows, mask=mine)
            plgpu.store(token_of.at[rows], numbers // each, mask=mine)
            row = row + jnp.sum(mine.astype(jnp.int32))
        return row

    lax.fori_loop(0, part // step, rank, start)


def route(count: int, each: int, experts: int, interpret: Any) -> Any:
    """The launch, a function of `ids[assignments]`: sizes `i32[e]`, and for each row its token, `i32[assignments]`,
    and for each assignment its row. What belongs to no expert of these has no row."""
    groups = min(MOST_GROUPS, pl.cdiv(count, RANKED * TOGETHER))
    numbers = pl.ShapeDtypeStruct((count,), jnp.int32)
    return plgpu.kernel(
        functools.partial(_moe_route_kernel, each=each, groups=groups),
        (pl.ShapeDtypeStruct((experts,), jnp.int32), numbers, numbers),
        scratch_types={
            "below": plgpu.SMEM((groups,), jnp.int32),
            "own": plgpu.SMEM((groups,), jnp.int32),
            "counted": plgpu.Barrier(num_arrivals=groups),
        },
        grid=(experts,),
        grid_names=("expert",),
        num_threads=groups,
        thread_name="warpgroup",
        interpret=interpret,
        name="moe_route",
    )


# The first product.


@dataclass(frozen=True)
class _Up:
    """The problem that the first product is made for.

    Fields:
        product: its sizes; the columns are those of `hidden`.
        activation: what comes after it.
        biased: whether a bias is added before that.
    """

    product: GroupedProblem
    activation: str
    biased: bool

    @property
    def act(self) -> Activation:
        return ACTIVATIONS[self.activation]

    @property
    def paired(self) -> bool:
        """True if a column of the gates and another one make one of `hidden`."""
        return self.act.gated

    @property
    def columns(self) -> int:
        """The columns of `hidden` in a tile."""
        return self.product.config.tile_n // 2 if self.paired else self.product.config.tile_n

    @property
    def plane(self) -> tuple[int, int]:
        """The result in tiles."""
        return self.product.config.plane(self.product.visits, pl.cdiv(self.product.columns, self.columns))

    def halves(self, matrix: Ref, group: Value, depth: Any, column: Value) -> list[Ref]:
        """The right operands of a tile, of `[e, h, columns]` or its transposes; gates and the other columns separately.

        Where these alternate, the matrices are `[e, i, 2, h]`.
        """
        columns, transposed = pl.ds(column, self.columns), self.product.transpose_rhs
        if not self.paired:
            return [matrix.at[group, columns, depth] if transposed else matrix.at[group, depth, columns]]
        if self.act.alternate:
            return [matrix.at[group, columns, half, depth] for half in range(2)]
        starts = [pl.ds(half * self.product.columns + column, self.columns) for half in range(2)]
        return [matrix.at[group, each, depth] if transposed else matrix.at[group, depth, each] for each in starts]

    def parts(self, buffer: Ref) -> list[Ref]:
        """The halves of the stages of the right operand that `halves` go to."""
        starts = [pl.ds(half * self.columns, self.columns) for half in range(2)]
        return [buffer.at[:, each] if self.product.transpose_rhs else buffer.at[:, :, each] for each in starts]

    def staging(self, dtype: Any) -> Any:
        """The buffers through which the result is written: two for each computing warpgroup."""
        config = self.product.config
        piece = math.gcd(config.piece(dtype), self.columns)
        return plgpu.SMEM((COMPUTE_GROUPS, BUFFERS, config.own_shape[0], piece), dtype)

    def bias(self, bias: Ref, group: Value, half: int, column: Value, count: int) -> Value:
        """f32[1, count]: the bias of some columns; 0 past the last."""
        inside = column + jnp.arange(count) < self.product.columns
        if self.act.alternate:
            part = bias.at[group, pl.ds(column, count), half]
        else:
            part = bias.at[group, pl.ds(half * self.product.columns + column, count)]
        return plgpu.load(part, mask=inside, other=0.0).astype(jnp.float32)[None, :]


def _moe_up_kernel(
    sizes: Ref, token_of: Ref, tokens: Ref, matrix: Ref, *refs: Ref, problem: _Up, **scratch: Any
) -> None:
    """One persistent block of the first product."""
    *biases, hidden = refs
    product, config, half = problem.product, problem.product.config, problem.columns
    buffers = scratch["operands"]
    ring = Ring.of(scratch, "operands")
    if problem.paired:
        ring = dataclasses.replace(ring, parts={1: problem.parts(buffers[1])})
    known_sizes = sizes[...]
    group = pl.axis_index("warpgroup")
    own_row, own_column = config.own_corner(group)
    own_rows = config.own_shape[0]

    def tile_at(info: plgpu.NDLoopInfo) -> OutputTile:
        visit, column = config.raster(info.index[0], *problem.plane)
        found = gmm_tile(product, known_sizes, 0, visit, column)
        return dataclasses.replace(found, column=column * half, active=found.active & (found.steps > 0))

    def tokens_of(tile: OutputTile) -> Value:
        inside = jnp.arange(config.tile_m) < tile.rows
        return plgpu.load(token_of.at[pl.ds(tile.first_row, config.tile_m)], mask=inside, other=0)

    def sources(tile: OutputTile, step: Value, rows: Value) -> tuple[Ref, ...]:
        depth = pl.ds(step * config.tile_k, config.tile_k)
        return tokens.at[rows, depth], *problem.halves(matrix, tile.group, depth, tile.column)

    def multiply(acc: Ref, tile: OutputTile, step: Value, rows: Ref, right: Ref) -> None:
        plgpu.wgmma(acc, *config.own_operands(group, rows, right.T if product.transpose_rhs else right))

    def store(acc: Ref, tile: OutputTile) -> None:
        column = tile.column + own_column

        def value(first: int, count: int) -> Value:
            starts = [first + number * half for number in range(2 if problem.paired else 1)]
            found = [acc[:, start : start + count] for start in starts]
            if biases:
                added = [problem.bias(biases[0], tile.group, n, column + first, count) for n in range(len(found))]
                found = [part + bias for part, bias in zip(found, added, strict=True)]
            return problem.act.function(*found)

        columns = half if problem.paired else config.own_shape[1]
        rows = jnp.clip(tile.rows - own_row, 0, own_rows)
        store_pieces(value, columns, scratch["staging"].at[group], hidden, tile.row + own_row, column, rows)

    grid = (math.prod(problem.plane),)
    PersistentProduct(config, ring, grid, tile_at, sources, multiply, store, REGISTERS, known=tokens_of).run(group)


def _up(problem: _Up, dtype: Any, interpret: Any) -> Any:
    """The launch, a function of the sizes, the token of each row, the tokens, the matrices and the biases."""
    product, config = problem.product, problem.product.config
    copies = 3 if problem.paired else 2
    return plgpu.kernel(
        functools.partial(_moe_up_kernel, problem=problem),
        pl.ShapeDtypeStruct((product.rows, product.columns), dtype),
        scratch_types={
            **ring_scratch("operands", product.gmm_blocks(dtype, dtype), config.stages, copies=copies),
            "staging": problem.staging(dtype),
        },
        grid=(config.clusters(math.prod(problem.plane)),),
        grid_names=("block",),
        num_threads=COMPUTE_GROUPS + 1,
        thread_name="warpgroup",
        interpret=interpret,
        name="moe_up",
    )


# The sum.

HELD = 8192
"""Columns that a warpgroup sums up at a time, 64 in each thread."""


def _moe_combine_kernel(
    ids: Ref, weights: Ref, row_of: Ref, rows: Ref, *refs: Ref, each: int, experts: int, width: int
) -> None:
    """One block: one token."""
    *bias, out = refs
    token = pl.axis_index("token")

    def sum_of(columns: Any) -> None:
        total: Value = jnp.zeros((width,), jnp.float32)
        for number in range(each):
            assignment = token * each + number
            expert = ids[assignment]
            there = (expert >= 0) & (expert < experts)
            # What stands at an assignment without an expert is nothing that a row could be.
            row = jnp.clip(jnp.where(there, row_of[assignment], 0), 0, rows.shape[0] - 1)
            found = rows[row, columns].astype(jnp.float32)
            if bias:
                found = found + bias[0][jnp.where(there, expert, 0).astype(jnp.int32), columns].astype(jnp.float32)
            total = total + jnp.where(there, found * weights[assignment].astype(jnp.float32), 0.0)
        out[token, columns] = total.astype(out.dtype)

    @pl.loop(0, out.shape[1] // width)
    def _(number: Value) -> None:
        sum_of(pl.ds(pl.multiple_of(number * width, width), width))


def _combine(shapes: ExpertShapes, interpret: Any) -> Any:
    """The launch, a function of ids and weights, the row of each assignment, the rows, and the bias."""
    width = shapes.h if shapes.h <= HELD else math.gcd(shapes.h, HELD)
    return plgpu.kernel(
        functools.partial(_moe_combine_kernel, each=shapes.each, experts=shapes.experts, width=width),
        pl.ShapeDtypeStruct((shapes.tokens, shapes.h), shapes.dtype),
        grid=(shapes.tokens,),
        grid_names=("token",),
        interpret=interpret,
        name="moe_combine",
    )


# The layer.


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
    config: MatmulConfig | None = None,
    interpret: Any = None,
    out: Array | None = None,
) -> Array:
    """The expert layer: each token goes through its experts, and their results are summed by weight.

    Args:
        tokens: `dtype[t, h]`, float16, bfloat16 or float32.
        expert_ids: `i32[t, k]` or `i64[t, k]`, the experts of each token. An id outside of 0 to e - 1 is an expert
            elsewhere, and adds nothing. Ids on a GPU are not looked at.
        expert_weights: floats `[t, k]`.
        gate_up: `dtype[e, h, 2 i]` for gated activations, `dtype[e, h, i]` for others. With `transposed` the last two
            axes are exchanged, as in `torch.nn.Linear`.
        down: `dtype[e, i, h]`, or `dtype[e, h, i]` with `transposed`.
        activation: as in `palladio.library.moe_mlp`; "gpt_oss", whose gates alternate with the other columns, only with
            `transposed`: the copy engine takes elements that lie side by side.
        gate_up_bias, down_bias: `dtype[e, 2 i]` (or `[e, i]`) and `dtype[e, h]`.
        config: how the first product is divided. Of a gated activation, half of `tile_n` are gates, a multiple of 128
            bytes, and the warpgroups divide the rows of a tile.
        interpret: as in `palladio.gpu.kernel`.
        out: an array for the result, which is returned: of its shape and dtype, in row-major order.

    Returns:
        `dtype[t, h]`. Products and sums are in float32; `hidden` and the rows of the second product are rounded to
        `dtype`.

    Raises:
        PalladioValueError, PalladioTypeError: shapes or dtypes that do not fit, an activation that is not known, a
            configuration that makes no sense or does not fit into a block.
    """
    shapes = expert_shapes(
        tokens, expert_ids, expert_weights, gate_up, down, activation, (gate_up_bias, down_bias), transposed
    )
    for name, value in (("tokens", tokens), ("gate_up", gate_up), ("down", down)):
        require_operand(value, name, like=None if value is tokens else tokens, dtypes=FLOATS)
    ids_dtype = dtype_of(expert_ids)
    if ids_dtype not in IDS:
        rule, expected = "ids on Hopper are of 32 or 64 bits", "int32 or int64"
        raise fail(pl.PalladioTypeError, rule, argument="expert_ids", expected=expected, got=str(ids_dtype))
    act = ACTIVATIONS[activation]
    if act.alternate and not transposed:
        raise fail(
            pl.PalladioValueError,
            "gates that alternate with the other columns do not lie side by side",
            argument="gate_up",
            expected="[e, 2 i, h] and transposed=True",
            got="transposed=False",
            hint="give gate_up.swapaxes(1, 2) and down.swapaxes(1, 2), made contiguous once",
        )
    if shapes.is_empty:
        return stored(zeros((shapes.tokens, shapes.h), shapes.dtype, tokens), out)
    config = _config(shapes, config, act)
    biases = [bias for bias in (gate_up_bias, down_bias) if bias is not None]
    count = shapes.tokens * shapes.each
    operands = [expert_ids.reshape((count,)), expert_weights.reshape((count,)), tokens, gate_up, down, *biases]
    if act.alternate:
        operands[3] = gate_up.reshape((shapes.experts, shapes.i, 2, shapes.h))
        if gate_up_bias is not None:
            operands[5] = gate_up_bias.reshape((shapes.experts, shapes.i, 2))
    key = "moe_mlp", activation, bool(transposed), config, shapes.biased
    kernel = functools.partial(_layer, shapes, config, activation, bool(transposed), interpret)
    arrays = tokens, expert_ids, expert_weights, gate_up, down, *biases
    return called(key, kernel, interpret, arrays, (shapes.tokens, shapes.h), out, operands=operands)


def _config(shapes: ExpertShapes, config: Any, act: Activation) -> MatmulConfig:
    """The division of the first product."""
    rows, columns = pl.cdiv(shapes.tokens * shapes.each, shapes.experts), (2 if act.gated else 1) * shapes.i
    if config is None:
        config = choose(
            Product(rows, columns, shapes.h, shapes.dtype, shapes.dtype, shapes.experts, (), paired=act.gated)
        )
    found = require_matmul_config(config, shapes.dtype, shapes.dtype, ())
    if act.gated and (found.split != "m" or found.tile_n % 2):
        raise fail(
            pl.PalladioValueError,
            "each warpgroup has the gates and the others of its rows",
            argument="config",
            expected='split="m" and an even tile_n',
            got=f'split="{found.split}" and tile_n={found.tile_n}',
        )
    return found


def _layer(shapes: ExpertShapes, config: MatmulConfig, activation: str, transposed: bool, interpret: Any) -> Any:
    """The kernels of the layer as one function of ids, weights, tokens, matrices and biases."""
    count = shapes.tokens * shapes.each
    selection = Selection(shapes.experts)
    product = GroupedProblem(count, shapes.h, shapes.i, shapes.experts, config, transposed, selection)
    routed = route(count, shapes.each, shapes.experts, interpret)
    up_product = _up(_Up(product, activation, shapes.biased[0]), shapes.dtype, interpret)
    combine = _combine(shapes, interpret)

    def run(ids: Array, weights: Array, tokens: Array, up: Array, down: Array, *biases: Array) -> Array:
        split = 1 if shapes.biased[0] else 0
        sizes, token_of, row_of = routed(ids)
        hidden = up_product(sizes, token_of, tokens, up, *biases[:split])
        rows = gmm(hidden, down, sizes, shapes.dtype, transpose_rhs=transposed, interpret=interpret)
        return combine(ids, weights, row_of, rows, *biases[split:])

    return _Written(run)


class _Written:
    """A function whose result may be written to the caller's array."""

    def __init__(self, run: Any) -> None:
        self.run = run

    def __call__(self, *arrays: Sequence[Array], out: Array | None = None) -> Array:
        return self.run(*arrays) if out is None else stored(self.run(*arrays), out)
