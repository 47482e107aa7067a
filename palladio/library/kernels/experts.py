"""The kernels of the expert layer and of its gradient.

    moe_up               hidden[a] = activation(tokens[token of a] @ gate_up[expert of a])
    moe_down             out[t] = sum of weight of a * (hidden[a] @ down[expert of a]) over the assignments of token t
    moe_hidden_gradient  from the gradient of `out` that of the activation's inputs, and of the weights
    moe_matrix_gradient  out[e] = x[rows of e].T @ y[rows of e], rows of x or y gathered from tokens
    moe_bias_gradient    out[e] = sum of x[rows of e]

Assignments are sorted by expert, tokens are not. Kernels that need the tokens of an expert gather their rows into a
cache, a tile at a time; `moe_down` scatters its rows to their tokens, and also computes the gradient of the tokens. A
step of a grid is a tile of assignments of one expert, see `make_group_metadata`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import palladio as pl
import palladio.numpy as jnp
import palladio.tpu as pltpu
from palladio import lax
from palladio.library.activations import ACTIVATIONS, Activation

Array = Any

SHARE = 16
"""A divisor of the columns of every tile of `gmm_tiling`, if it divides the number of all columns."""


@dataclass(frozen=True)
class Layer:
    """`dtype[tokens, h]` through `experts` of inner size i, in `rows` assignments.

    Fields:
        tile: assignments of a step.
        up_columns, down_columns: the columns of a tile of each product.
        apart: whether the experts of a tile of columns of `hidden` may run concurrently, on an executor that stores
            only the rows that a kernel names.
        sums: the dtype of sums.
        biased: for each product, True if a bias is added.
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
    apart: bool = False

    @property
    def share(self) -> int:
        """Columns of `hidden` that are summed together for the gradient of a weight.

        They divide a tile for any number of workers, so that this number does not affect the order of the sum.
        """
        return SHARE if self.i % SHARE == 0 else 1

    @property
    def assigned(self) -> tuple[tuple[int, Any], ...]:
        """The sizes and dtypes of the arrays of assignments: rows of each expert, token and weight of each row."""
        return (self.experts, np.int32), (self.rows, np.int32), (self.rows, self.sums)

    @property
    def act(self) -> Activation:
        return ACTIVATIONS[self.activation]

    @property
    def parts(self) -> int:
        """The parts of the columns of the first product: gates and values, unless they alternate."""
        return 2 if self.act.gated and not self.act.alternate else 1

    @property
    def blocks(self) -> int:
        """The blocks of columns of the first product that a task multiplies: one if its tile has all of them.

        It stays two blocks where a part is not a multiple of `SHARE` columns: a single block of both might be, and be
        summed in a different order.
        """
        return 1 if self.up_columns == self.i and self.share > 1 else self.parts

    @property
    def wide(self) -> int:
        """The columns of the first product, within a part, for a column of `hidden`."""
        return 2 if self.act.alternate else 1

    def chosen(self, step: Any, offsets: Any, group_ids: Any, m_tile_ids: Any) -> Array:
        """A mask of the rows of a tile that belong to the expert of a step, `bool[tile, 1]`."""
        row, expert = m_tile_ids[step] * self.tile + jnp.arange(self.tile), group_ids[step]
        return ((row >= offsets[expert]) & (row < offsets[expert + 1]))[:, None]

    def rows_of(self, step: Any, offsets: Any, group_ids: Any, m_tile_ids: Any) -> tuple[Any, Any]:
        """The first of these rows, and the end (exclusive)."""
        first, expert = m_tile_ids[step] * self.tile, group_ids[step]
        return jnp.maximum(offsets[expert] - first, 0), jnp.minimum(offsets[expert + 1] - first, self.tile)

    def by_parts(self, blocks: Sequence[Array]) -> list[Array]:
        """The columns of each part, from those of each block."""
        return [*blocks] if len(blocks) == self.parts else [blocks[0][:, : self.i], blocks[0][:, self.i :]]

    def separate(self, values: Sequence[Array]) -> list[Array]:
        """The inputs of the activation, from columns of each part."""
        return [values[0][:, ::2], values[0][:, 1::2]] if self.act.alternate else [*values]

    def together(self, values: Sequence[Array]) -> list[Array]:
        """The reverse of `separate`."""
        if not self.act.alternate:
            return [*values]
        return [jnp.reshape(jnp.stack(values, axis=-1), (1, -1))]


def _rows_by_tile(step: Any, offsets: Any, group_ids: Any, m_tile_ids: Any, *more: Any) -> Any:
    return m_tile_ids[step]


def _of_each_row(tile: int) -> pl.BlockSpec:
    """The tokens, or weights, of a tile of assignments."""
    return pl.BlockSpec((tile,), lambda i, step, *scalars: (_rows_by_tile(step, *scalars),))


def _matrices(transposed: bool, depth: int, columns: int, part: Callable[[Any], Any]) -> pl.BlockSpec:
    """A block of columns of the matrix of a step's expert; `part` maps a task's number to the block's."""

    def block(i: Any, step: Any, offsets: Any, group_ids: Any, *more: Any) -> Any:
        return (group_ids[step], part(i), 0) if transposed else (group_ids[step], 0, part(i))

    return pl.BlockSpec((None, columns, depth) if transposed else (None, depth, columns), block)


def _bias(columns: int, part: Callable[[Any], Any]) -> pl.BlockSpec:
    return pl.BlockSpec((None, columns), lambda i, step, offsets, group_ids, *more: (group_ids[step], part(i)))


def _product(x: Array, matrix: Array, transposed: bool, dtype: Any) -> Array:
    return jnp.dot(x, matrix.T if transposed else matrix, preferred_element_type=dtype)


def assignments_call(layer: Layer, each: int) -> Any:
    """The kernel that sorts assignments by expert: from ids and weights, `[tokens, each]`, to `Layer.assigned`.

    Assignments to experts of other devices are rows after those of all experts, then come zeros.
    """
    experts, count = layer.experts, layer.tokens * each

    def kernel(
        ids: Any, weights: Any, sizes: Any, token_of: Any, weight_of: Any, expert_of: Any, following: Any
    ) -> None:
        def add(number: Any, carry: None) -> None:
            found = ids[number // each, number % each]
            expert = jnp.where((found >= 0) & (found < experts), found, experts).astype(jnp.int32)
            expert_of[number] = expert  # read once: another thread of the caller may change the ids
            following[expert + 1] = following[expert + 1] + 1

        def accumulate(expert: Any, carry: None) -> None:
            following[expert + 1] = following[expert + 1] + following[expert]

        def place(number: Any, carry: None) -> None:
            expert = expert_of[number]
            row = following[expert]
            following[expert] = row + 1
            token_of[row] = number // each
            weight_of[row] = weights[number // each, number % each].astype(layer.sums)

        following[...] = jnp.zeros_like(following)
        token_of[...] = jnp.zeros_like(token_of)
        weight_of[...] = jnp.zeros_like(weight_of)
        lax.fori_loop(0, count, add, None)
        sizes[...] = following[1 : experts + 1]
        lax.fori_loop(0, experts, accumulate, None)
        lax.fori_loop(0, count, place, None)

    return pl.pallas_call(
        kernel,
        [pl.ShapeDtypeStruct((size,), dtype) for size, dtype in layer.assigned],
        scratch_shapes=[pltpu.VMEM((count,), jnp.int32), pltpu.VMEM((experts + 2,), jnp.int32)],
        name="moe_assignments",
    )


_IN_ORDER = pltpu.CompilerParams(dimension_semantics=("parallel", "arbitrary"))
_CONCURRENT = pltpu.CompilerParams(dimension_semantics=("parallel", "parallel"))


def _order_of_experts(layer: Layer) -> pltpu.CompilerParams:
    """The semantics of the grid of a kernel that computes columns of `hidden`, or of its gradient."""
    return _CONCURRENT if layer.apart else _IN_ORDER


def up_call(layer: Layer, steps: Array, keep: bool = False) -> Any:
    """The kernel from tokens to `hidden`: a task computes a block of its columns for all experts, or for one (`apart`).

    Args:
        keep: True for a second result, the inputs of the activation, `[rows, parts, wide * i]`.
    """
    tile, columns, act = layer.tile, layer.up_columns, layer.act
    tiles, wide = layer.i // columns, layer.wide * columns * layer.parts // layer.blocks
    blocks: list[Callable[[Any], Any]] = [lambda i: i, lambda i: i + tiles][: layer.blocks]
    biases = blocks if layer.biased[0] else []

    def kernel(offsets: Any, group_ids: Any, m_tile_ids: Any, token_of: Any, tokens: Any, *rest: Any) -> None:
        matrices, added = rest[: len(blocks)], rest[len(blocks) : len(blocks) + len(biases)]
        out, *others = rest[len(blocks) + len(biases) :]
        before, (rows, *sums) = others[:keep], others[keep:]
        low, high = layer.rows_of(pl.program_id(1), offsets, group_ids, m_tile_ids)

        def gather(row: Any, carry: None) -> None:
            rows[pl.ds(row, 1), :] = tokens[pl.ds(token_of[low + row], 1), :]

        def activate(row: Any, carry: None) -> None:
            found = [total[pl.ds(row, 1), :] for total in sums]
            if added:
                found = [each + bias[...].astype(layer.sums)[None, :] for each, bias in zip(found, added, strict=True)]
            found = layer.by_parts(found)
            for part, value in enumerate(found if before else ()):
                before[0][pl.ds(low + row, 1), part, :] = value.astype(layer.dtype)
            out[pl.ds(low + row, 1), :] = act.function(*layer.separate(found)).astype(out.dtype)

        # Only rows of this expert, which stay in a cache from the first loop to the last.
        lax.fori_loop(0, high - low, gather, None)
        chosen = (jnp.arange(tile) < high - low)[:, None]
        for matrix, total in zip(matrices, sums, strict=True):
            found = _product(rows[...], matrix[...], layer.transposed, layer.sums)
            total[...] = jnp.where(chosen, found, total[...])
        lax.fori_loop(0, high - low, activate, None)

    hidden = pl.ShapeDtypeStruct((layer.rows, layer.i), layer.dtype)
    hidden_spec = pl.BlockSpec((tile, columns), lambda i, step, *scalars: (_rows_by_tile(step, *scalars), i))
    before = pl.ShapeDtypeStruct((layer.rows, layer.parts, layer.wide * layer.i), layer.dtype)
    return pl.pallas_call(
        kernel,
        (hidden, before) if keep else hidden,
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=3,
            grid=(tiles, steps),
            in_specs=[
                _of_each_row(tile),
                pl.BlockSpec((layer.tokens, layer.h), lambda i, step, *scalars: (0, 0)),
                *(_matrices(layer.transposed, layer.h, wide, block) for block in blocks),
                *(_bias(wide, block) for block in biases),
            ],
            out_specs=(hidden_spec, _before_spec(layer)) if keep else hidden_spec,
            scratch_shapes=[
                pltpu.VMEM((tile, layer.h), layer.dtype),
                *(pltpu.VMEM((tile, wide), layer.sums) for _ in blocks),
            ],
        ),
        compiler_params=_order_of_experts(layer),
        name="moe_up",
    )


def _before_spec(layer: Layer) -> pl.BlockSpec:
    """A block of columns of each part of the inputs of the activation."""
    shape = layer.tile, layer.parts, layer.wide * layer.up_columns
    return pl.BlockSpec(shape, lambda i, step, *scalars: (_rows_by_tile(step, *scalars), 0, i))


def down_call(layer: Layer, steps: Array, depth: int, transposed: bool, biased: bool) -> Any:
    """The kernel from `x: dtype[rows, depth]` to the tokens: a task sums a block of columns of all tokens."""
    tile, columns = layer.tile, layer.down_columns

    def kernel(
        offsets: Any, group_ids: Any, m_tile_ids: Any, last: Any, token_of: Any, weight_of: Any, x: Any, *rest: Any
    ) -> None:
        matrix, *bias, out, found, total = rest
        step = pl.program_id(1)

        @pl.when(step == 0)
        def start() -> None:
            total[...] = jnp.zeros_like(total)

        chosen = layer.chosen(step, offsets, group_ids, m_tile_ids)
        found[...] = jnp.where(chosen, _product(x[...], matrix[...], transposed, layer.sums), found[...])

        def scatter(row: Any, carry: None) -> None:
            token, weight = token_of[row], weight_of[row]
            value = found[pl.ds(row, 1), :]
            if bias:
                value = value + bias[0][...].astype(value.dtype)[None, :]
            total[pl.ds(token, 1), :] = total[pl.ds(token, 1), :] + weight * value

        lax.fori_loop(*layer.rows_of(step, offsets, group_ids, m_tile_ids), scatter, None)

        @pl.when(step == last[0] - 1)
        def finish() -> None:
            out[...] = total[...].astype(out.dtype)

    return pl.pallas_call(
        kernel,
        pl.ShapeDtypeStruct((layer.tokens, layer.h), layer.dtype),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=4,
            grid=(layer.h // columns, steps),
            in_specs=[
                _of_each_row(tile),
                _of_each_row(tile),
                pl.BlockSpec((tile, depth), lambda i, step, *scalars: (_rows_by_tile(step, *scalars), 0)),
                _matrices(transposed, depth, columns, lambda i: i),
                *([_bias(columns, lambda i: i)] if biased else []),
            ],
            out_specs=pl.BlockSpec((layer.tokens, columns), lambda i, step, *scalars: (0, i)),
            scratch_shapes=[
                pltpu.VMEM((tile, columns), layer.sums),
                pltpu.VMEM((layer.tokens, columns), layer.sums),
            ],
        ),
        compiler_params=_IN_ORDER,
        name="moe_down",
    )


def hidden_gradient_call(layer: Layer, steps: Array) -> Any:
    """The kernel from the result's gradient, `dtype[tokens, h]`, to those of the activation's inputs and the weights.

    Its results are the gradient of the inputs of the activation, `[rows, parts, wide * i]`, `hidden`, and the parts of
    the gradient of the weights, `sums[rows, i / share]`.
    """
    tile, columns, act = layer.tile, layer.up_columns, layer.act
    tiles = layer.i // columns

    def kernel(
        offsets: Any, group_ids: Any, m_tile_ids: Any, token_of: Any, weight_of: Any, grad: Any, *rest: Any
    ) -> None:
        matrix, *bias, before, out, hidden, shares, rows, total = rest
        task, (low, high) = pl.program_id(0), layer.rows_of(pl.program_id(1), offsets, group_ids, m_tile_ids)

        def gather(row: Any, carry: None) -> None:
            rows[pl.ds(row, 1), :] = grad[pl.ds(token_of[low + row], 1), :]

        def derive(row: Any, carry: None) -> None:
            place, found = low + row, total[pl.ds(row, 1), :]
            given = [before[pl.ds(place, 1), part, :].astype(layer.sums) for part in range(layer.parts)]
            result = act.function(*layer.separate(given))
            hidden[pl.ds(place, 1), :] = result.astype(layer.dtype)
            shares[pl.ds(place, 1), :] = jnp.sum(jnp.reshape(result * found, (1, -1, layer.share)), axis=2)
            gradients = act.derivative(*layer.separate(given), weight_of[place] * found)
            for part, value in enumerate(layer.together(gradients)):
                out[pl.ds(place, 1), part, :] = value.astype(layer.dtype)

        lax.fori_loop(0, high - low, gather, None)
        chosen = (jnp.arange(tile) < high - low)[:, None]
        found = _product(rows[...], matrix[...], not layer.transposed, layer.sums)
        total[...] = jnp.where(chosen, found, total[...])
        lax.fori_loop(0, high - low, derive, None)
        if bias:

            @pl.when(task == 0)
            def of_bias() -> None:
                def add(row: Any, carry: None) -> None:
                    products = rows[pl.ds(row, 1), :].astype(layer.sums) * bias[0][...].astype(layer.sums)[None, :]
                    shares[low + row, 0] = shares[low + row, 0] + jnp.sum(products)

                lax.fori_loop(0, high - low, add, None)

    def by_tile(*block: Any) -> pl.BlockSpec:
        return pl.BlockSpec(block, lambda i, step, *scalars: (_rows_by_tile(step, *scalars), i))

    before = pl.ShapeDtypeStruct((layer.rows, layer.parts, layer.wide * layer.i), layer.dtype)
    return pl.pallas_call(
        kernel,
        (
            before,
            pl.ShapeDtypeStruct((layer.rows, layer.i), layer.dtype),
            pl.ShapeDtypeStruct((layer.rows, layer.i // layer.share), layer.sums),
        ),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=3,
            grid=(tiles, steps),
            in_specs=[
                _of_each_row(tile),
                _of_each_row(tile),
                pl.BlockSpec((layer.tokens, layer.h), lambda i, step, *scalars: (0, 0)),
                _matrices(not layer.transposed, layer.h, columns, lambda i: i),
                *([_bias(layer.h, lambda i: 0)] if layer.biased[1] else []),
                _before_spec(layer),
            ],
            out_specs=(
                _before_spec(layer),
                by_tile(tile, columns),
                by_tile(tile, columns // layer.share),
            ),
            scratch_shapes=[pltpu.VMEM((tile, layer.h), layer.dtype), pltpu.VMEM((tile, columns), layer.sums)],
        ),
        compiler_params=_order_of_experts(layer),
        name="moe_hidden_gradient",
    )


@dataclass(frozen=True)
class MatrixGradient:
    """`out[e] = x[rows of e].T @ y[rows of e]`, of `x: dtype[rows, k]` and `y: dtype[rows, n]`.

    Fields:
        gathered: 0 or 1, the operand with rows gathered from tokens, `dtype[tokens, k or n]`.
        weighted: True if those rows are multiplied by the weights of the assignments.
        tile: (rows of a step, rows and columns of a tile of the result).
    """

    k: int
    n: int
    gathered: int
    weighted: bool
    tile: tuple[int, int, int]


def _matrix_gradient_operands(layer: Layer, problem: MatrixGradient) -> list[pl.BlockSpec]:
    """The tokens and weights of a tile of assignments, then the columns of both operands."""

    def of_rows(i: Any, j: Any, step: Any, *scalars: Any) -> Any:
        return (_rows_by_tile(step, *scalars),)

    def operand(axis: int) -> pl.BlockSpec:
        gathered = axis == problem.gathered

        def block(i: Any, j: Any, step: Any, *scalars: Any) -> Any:
            return 0 if gathered else _rows_by_tile(step, *scalars), (j, i)[axis]

        return pl.BlockSpec((layer.tokens if gathered else layer.tile, problem.tile[1 + axis]), block)

    return [*[pl.BlockSpec((layer.tile,), of_rows)] * 2, operand(0), operand(1)]


def matrix_gradient_call(layer: Layer, problem: MatrixGradient, steps: Array) -> Any:
    """The kernel of sums over the assignments of each expert: a task computes one tile of all experts' results."""
    rows_here, tk, tn = problem.tile
    sizes, several = (tk, tn), layer.rows > layer.tile

    def kernel(
        offsets: Any,
        group_ids: Any,
        m_tile_ids: Any,
        last: Any,
        token_of: Any,
        weight_of: Any,
        x: Any,
        y: Any,
        out: Any,
        rows: Any,
        *sums: Any,
    ) -> None:
        step, group = pl.program_id(2), group_ids[pl.program_id(2)]
        tokens, other = (x, y) if problem.gathered == 0 else (y, x)
        chosen = layer.chosen(step, offsets, group_ids, m_tile_ids)

        def gather(row: Any, carry: None) -> None:
            found = tokens[pl.ds(token_of[row], 1), :]
            if problem.weighted:
                found = (weight_of[row] * found.astype(layer.sums)).astype(layer.dtype)
            rows[pl.ds(row, 1), :] = found

        def product() -> Array:
            # Mask both sides: rows of other experts may hold NaN, and zero times NaN is NaN.
            mine, given = jnp.where(chosen, rows[...], 0), jnp.where(chosen, other[...], 0)
            left, right = (mine, given) if problem.gathered == 0 else (given, mine)
            return jnp.dot(left.T, right, preferred_element_type=layer.sums)

        lax.fori_loop(*layer.rows_of(step, offsets, group_ids, m_tile_ids), gather, None)
        if not several:
            out[...] = product().astype(out.dtype)
            return
        starts = (step == 0) | (group != group_ids[jnp.maximum(step - 1, 0)])
        ends = (step == last[0] - 1) | (group != group_ids[jnp.minimum(step + 1, last[0] - 1)])
        (total,) = sums

        @pl.when(starts & ends)
        def whole() -> None:
            out[...] = product().astype(out.dtype)

        @pl.when(starts & ~ends)
        def start() -> None:
            total[...] = jnp.zeros_like(total)

        @pl.when(~(starts & ends))
        def add() -> None:
            total[...] += product()

        @pl.when(ends & ~starts)
        def finish() -> None:
            out[...] = total[...].astype(out.dtype)

    return pl.pallas_call(
        kernel,
        pl.ShapeDtypeStruct((layer.experts, problem.k, problem.n), layer.dtype),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=4,
            grid=(pl.cdiv(problem.n, tn), pl.cdiv(problem.k, tk), steps),
            in_specs=_matrix_gradient_operands(layer, problem),
            out_specs=pl.BlockSpec(
                (None, tk, tn), lambda i, j, step, offsets, group_ids, *more: (group_ids[step], j, i)
            ),
            scratch_shapes=[
                pltpu.VMEM((rows_here, sizes[problem.gathered]), layer.dtype),
                *([pltpu.VMEM((tk, tn), layer.sums)] if several else []),
            ],
        ),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel", "arbitrary")),
        name="moe_matrix_gradient",
    )


def bias_gradient_call(layer: Layer, columns: int, gathered: bool) -> Any:
    """The kernel of sums of the rows of each expert, `dtype[experts, columns]`: a task has one expert.

    Args:
        gathered: True if the rows are gathered from tokens and multiplied by the weights of the assignments.
    """

    def kernel(offsets: Any, token_of: Any, weight_of: Any, x: Any, out: Any, total: Any) -> None:
        expert = pl.program_id(0)

        def add(row: Any, carry: None) -> None:
            value = x[pl.ds(token_of[row] if gathered else row, 1), :].astype(layer.sums)
            total[...] += weight_of[row] * value if gathered else value

        total[...] = jnp.zeros_like(total)
        lax.fori_loop(offsets[expert], offsets[expert + 1], add, None)
        out[...] = total[...].astype(out.dtype)

    def whole(*shape: int) -> pl.BlockSpec:
        return pl.BlockSpec(shape, lambda expert, offsets: (0,) * len(shape))

    return pl.pallas_call(
        kernel,
        pl.ShapeDtypeStruct((layer.experts, columns), layer.dtype),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1,
            grid=(layer.experts,),
            in_specs=[whole(layer.rows), whole(layer.rows), whole(layer.tokens if gathered else layer.rows, columns)],
            out_specs=pl.BlockSpec((1, columns), lambda expert, offsets: (expert, 0)),
            scratch_shapes=[pltpu.VMEM((1, columns), layer.sums)],
        ),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel",)),
        name="moe_bias_gradient",
    )
