"""Grouped products of rows of tokens, which the memory warpgroup gathers.

    out[row] = activation(tokens[token of row] @ matrix[expert of row] + bias[expert of row])

They differ from `gmm` in two ways: no tokens are permuted in memory, and the activation is applied to the
accumulators.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from dataclasses import dataclass
from typing import Any

import palladio as pl
import palladio.gpu as plgpu
import palladio.numpy as jnp
from palladio.library.activations import ACTIVATIONS
from palladio.library.hopper.epilogue import BUFFERS, store_pieces
from palladio.library.hopper.grouped_matmul import REGISTERS, GroupedProblem, gmm_tile
from palladio.library.hopper.limits import COMPUTE_GROUPS
from palladio.library.hopper.persistent import OutputTile, PersistentProduct
from palladio.library.hopper.ring import Ring, ring_scratch

Ref = Any
Value = Any


@dataclass(frozen=True)
class GatheredProduct:
    """A grouped product of rows of tokens, with its epilogue.

    Fields:
        product: its sizes; the columns are those of the result.
        activation: the name of the activation of the result; None for the product itself.
        biased: True if a bias is added before the activation.
    """

    product: GroupedProblem
    activation: str | None
    biased: bool

    @property
    def paired(self) -> bool:
        """True if a column of gates and a column of values make one of the result."""
        return self.activation is not None and ACTIVATIONS[self.activation].gated

    @property
    def alternate(self) -> bool:
        """True if those two are adjacent."""
        return self.activation is not None and ACTIVATIONS[self.activation].alternate

    @property
    def columns(self) -> int:
        """The columns of the result in a tile."""
        return self.product.config.tile_n // 2 if self.paired else self.product.config.tile_n

    @property
    def plane(self) -> tuple[int, int]:
        """The result in tiles."""
        return self.product.config.plane(self.product.visits, pl.cdiv(self.product.columns, self.columns))

    def halves(self, matrix: Ref, group: Value, depth: Any, column: Value) -> list[Ref]:
        """The right operands of a tile, of `[e, h, columns]` or its transposes; gates and values separately.

        If these alternate, the matrices are `[e, i, 2, h]`.
        """
        columns, transposed = pl.ds(column, self.columns), self.product.transpose_rhs
        if not self.paired:
            return [matrix.at[group, columns, depth] if transposed else matrix.at[group, depth, columns]]
        if self.alternate:
            return [matrix.at[group, columns, half, depth] for half in range(2)]
        starts = [pl.ds(half * self.product.columns + column, self.columns) for half in range(2)]
        return [matrix.at[group, each, depth] if transposed else matrix.at[group, depth, each] for each in starts]

    def parts(self, buffer: Ref) -> list[Ref]:
        """The parts of the right operand's stages that `halves` fill."""
        starts = [pl.ds(half * self.columns, self.columns) for half in range(2)]
        return [buffer.at[:, each] if self.product.transpose_rhs else buffer.at[:, :, each] for each in starts]

    def staging(self, dtype: Any) -> Any:
        """The buffers through which the result is stored: two for each compute warpgroup."""
        config = self.product.config
        piece = math.gcd(config.piece(dtype), self.columns)
        return plgpu.SMEM((COMPUTE_GROUPS, BUFFERS, config.own_shape[0], piece), dtype)

    def bias(self, bias: Ref, group: Value, half: int, column: Value, count: int) -> Value:
        """f32[1, count]: the bias of some columns; 0 past the last."""
        inside = column + jnp.arange(count) < self.product.columns
        if self.alternate:
            part = bias.at[group, pl.ds(column, count), half]
        else:
            part = bias.at[group, pl.ds(half * self.product.columns + column, count)]
        return plgpu.load(part, mask=inside, other=0.0).astype(jnp.float32)[None, :]


def _gathered(
    sizes: Ref, token_of: Ref, tokens: Ref, matrix: Ref, *refs: Ref, problem: GatheredProduct, **scratch: Any
) -> None:
    """One persistent block."""
    *biases, out = refs
    product, config, half = problem.product, problem.product.config, problem.columns
    act = None if problem.activation is None else ACTIVATIONS[problem.activation]
    buffers = scratch["operands"]
    ring = Ring.of(scratch, "operands")
    if problem.paired:
        ring = dataclasses.replace(ring, parts={1: problem.parts(buffers[1])})
    known_sizes = sizes[...]
    group = pl.axis_index("warpgroup")
    own_row, own_column = config.own_corner(group)
    own_rows = config.own_shape[0]

    def tile_at(info: plgpu.NDLoopInfo) -> OutputTile:
        found = gmm_tile(product, known_sizes, 0, info.index[0], problem.plane, half)
        return dataclasses.replace(found, active=found.active & (found.steps > 0))

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
            return found[0] if act is None else act.function(*found)

        columns = half if problem.paired else config.own_shape[1]
        rows = jnp.clip(tile.rows - own_row, 0, own_rows)
        store_pieces(value, columns, scratch["staging"].at[group], out, tile.row + own_row, column, rows)

    grid = (math.prod(problem.plane),)
    PersistentProduct(config, ring, grid, tile_at, sources, multiply, store, REGISTERS, known=tokens_of).run(group)


def _moe_up_kernel(
    sizes: Ref, token_of: Ref, tokens: Ref, gate_up: Ref, *refs: Ref, problem: GatheredProduct, **scratch: Any
) -> None:
    _gathered(sizes, token_of, tokens, gate_up, *refs, problem=problem, **scratch)


def _moe_hidden_gradient_kernel(
    sizes: Ref, token_of: Ref, grad: Ref, down: Ref, *refs: Ref, problem: GatheredProduct, **scratch: Any
) -> None:
    _gathered(sizes, token_of, grad, down, *refs, problem=problem, **scratch)


def up_product(problem: GatheredProduct, dtype: Any, interpret: Any) -> Any:
    """The launch, a function of the sizes, the token of each row, the tokens, the matrices and the biases."""
    return _launch(_moe_up_kernel, problem, dtype, interpret)


def hidden_gradient_product(problem: GatheredProduct, dtype: Any, interpret: Any) -> Any:
    """The launch, a function of the sizes, the token of each row, the gradient of the result, and the matrices."""
    return _launch(_moe_hidden_gradient_kernel, problem, dtype, interpret)


def _launch(body: Any, problem: GatheredProduct, dtype: Any, interpret: Any) -> Any:
    product, config = problem.product, problem.product.config
    copies = 3 if problem.paired else 2
    return plgpu.kernel(
        functools.partial(body, problem=problem),
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
        name=body.__name__.strip("_").removesuffix("_kernel"),
    )
