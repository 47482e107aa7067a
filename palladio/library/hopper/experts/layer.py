"""The expert layer for Hopper: kernels that read the assignments on the GPU.

    moe_route    the number of assignments of each expert, and the row of each assignment, sorted by expert
    moe_up       hidden[row] = activation(tokens[token of row] @ gate_up[expert of row])
    gmm          found[row] = hidden[row] @ down[expert of row]
    moe_combine  out[t] = sum of weight of a * found[row of a] over the assignments of token t

The memory warpgroup of `moe_up` gathers the rows of the tokens, so that none are permuted in memory, and the activation
is applied to the accumulators. If gates alternate with the values along the columns and are not rows of the matrix, or
if the inputs of the activation are saved for a gradient, `moe_up` stores these inputs, and `moe_activate` follows.

The second product does not scatter its rows: threads would have to make the stores that TMA makes during the next
product, and several experts would add to one token in any order. So its rows are gathered for their sum, in float32 and
always in the same order (as in Guo et al., "SonicMoE", 2025).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import palladio as pl
import palladio.numpy as jnp
from palladio.library.activations import ACTIVATIONS, Activation
from palladio.library.checks import ExpertShapes, dtype_of, expert_shapes, fail, stored, zeros
from palladio.library.hopper.config import MatmulConfig, require_matmul_config
from palladio.library.hopper.experts.products import GatheredProduct, up_product
from palladio.library.hopper.experts.routing import route
from palladio.library.hopper.experts.rows import activate, combine
from palladio.library.hopper.grouped_matmul import GroupedProblem, Selection, gmm
from palladio.library.hopper.kept import RowBucket, called
from palladio.library.hopper.limits import FLOATS, require_operand
from palladio.library.hopper.model import Product, choose

Array = Any

IDS = tuple(map(jnp.dtype, ("int32", "int64")))


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
        expert_ids: `i32[t, k]` or `i64[t, k]`, the experts of each token. An id outside 0 to e - 1 is an expert of
            another device, and adds nothing. The values of ids on a GPU are not read by the host.
        expert_weights: floats `[t, k]`.
        gate_up: `dtype[e, h, 2 i]` for gated activations, `dtype[e, h, i]` for others. With `transposed` the last two
            axes are exchanged, as in `torch.nn.Linear`.
        down: `dtype[e, i, h]`, or `dtype[e, h, i]` with `transposed`.
        activation: as in `palladio.library.moe_mlp`. "gpt_oss", whose gates alternate with the values, is faster with
            `transposed`: then the gates are separate rows, and the activation is fused into the first product.
        gate_up_bias, down_bias: `dtype[e, 2 i]` (or `[e, i]`) and `dtype[e, h]`.
        config: the division of the first product. For a gated activation, half of `tile_n` is gates, a multiple of 128
            bytes, and the warpgroups divide the rows of a tile.
        interpret: as in `palladio.gpu.kernel`.
        out: an array for the result, of its shape and dtype, in row-major order; it is returned.

    Returns:
        `dtype[t, h]`. Products and sums are in float32; `hidden` and the rows of the second product are rounded to
        `dtype`.

    Raises:
        PalladioValueError, PalladioTypeError: shapes or dtypes that do not match, an unknown activation, a
            configuration that is invalid or does not fit into a block.
    """
    biases = gate_up_bias, down_bias
    shapes = checked(tokens, expert_ids, expert_weights, gate_up, down, activation, biases, transposed, FLOATS)
    if shapes.is_empty:
        return stored(zeros((shapes.tokens, shapes.h), shapes.dtype, tokens), out)
    kept = [bias for bias in biases if bias is not None]
    apart = ACTIVATIONS[activation].alternate and not transposed
    given, config = config, _config(shapes, config, ACTIVATIONS[activation], paired=not apart)
    count = shapes.tokens * shapes.each
    operands = [expert_ids.reshape((count,)), expert_weights.reshape((count,)), tokens, gate_up, down, *kept]
    if ACTIVATIONS[activation].alternate and not apart:
        operands[3] = gate_up.reshape((shapes.experts, shapes.i, 2, shapes.h))
        if gate_up_bias is not None:
            operands[5] = gate_up_bias.reshape((shapes.experts, shapes.i, 2))
    key = "moe_mlp", activation, bool(transposed), given, shapes.biased
    options = activation, bool(transposed), apart, interpret
    kernel = functools.partial(_layer, shapes, config, *options)

    def of_some(rows: int) -> Any:
        most = dataclasses.replace(shapes, tokens=rows)
        division = _config(most, given, ACTIVATIONS[activation], paired=not apart)
        return _layer(most, division, *options, counted=True)

    bucket = RowBucket.with_count(shapes.tokens, {0: shapes.each, 1: shapes.each, 2: 1}, {0: 1}, of_some)
    arrays = tokens, expert_ids, expert_weights, gate_up, down, *kept
    return called(key, kernel, interpret, arrays, (shapes.tokens, shapes.h), out, operands=operands, bucket=bucket)


def checked(
    tokens: Array,
    expert_ids: Array,
    expert_weights: Array,
    gate_up: Array,
    down: Array,
    activation: str,
    biases: tuple[Array | None, Array | None],
    transposed: bool,
    dtypes: Sequence[Any],
) -> ExpertShapes:
    """The sizes of a layer, after checks of its operands.

    Raises:
        PalladioValueError, PalladioTypeError: shapes or dtypes that do not match, or an unknown activation.
    """
    shapes = expert_shapes(tokens, expert_ids, expert_weights, gate_up, down, activation, biases, transposed)
    for name, value in (("tokens", tokens), ("gate_up", gate_up), ("down", down)):
        require_operand(value, name, like=None if value is tokens else tokens, dtypes=dtypes)
    ids_dtype = dtype_of(expert_ids)
    if ids_dtype not in IDS:
        rule, expected = "ids on Hopper are of 32 or 64 bits", "int32 or int64"
        raise fail(pl.PalladioTypeError, rule, argument="expert_ids", expected=expected, got=str(ids_dtype))
    return shapes


def _config(shapes: ExpertShapes, config: Any, act: Activation, paired: bool) -> MatmulConfig:
    """The division of the first product.

    Args:
        paired: True if a gated activation has gates and values in the same warpgroup's accumulators.
    """
    paired = paired and act.gated
    rows, columns = pl.cdiv(shapes.tokens * shapes.each, shapes.experts), (2 if act.gated else 1) * shapes.i
    if config is None:
        config = choose(Product(rows, columns, shapes.h, shapes.dtype, shapes.dtype, shapes.experts, (), paired=paired))
    found = require_matmul_config(config, shapes.dtype, shapes.dtype, ())
    if paired and (found.split != "m" or found.tile_n % 2):
        raise fail(
            pl.PalladioValueError,
            "each warpgroup has the gates and the others of its rows",
            argument="config",
            expected='split="m" and an even tile_n',
            got=f'split="{found.split}" and tile_n={found.tile_n}',
        )
    return found


def inputs_product(
    shapes: ExpertShapes, activation: str, transposed: bool, interpret: Any, config: MatmulConfig | None = None
) -> Any:
    """The launch of the first product alone: the inputs of the activation, in the matrix's order of columns.

    It is a function of the sizes, the token of each row, the tokens, the matrices and the biases.
    """
    act = ACTIVATIONS[activation]
    config = _config(shapes, config, act, paired=False)
    columns = 2 * shapes.i if act.gated else shapes.i
    count, selection = shapes.tokens * shapes.each, Selection(shapes.experts)
    product = GroupedProblem(count, shapes.h, columns, shapes.experts, config, transposed, selection)
    return up_product(GatheredProduct(product, None, shapes.biased[0]), shapes.dtype, interpret)


def _layer(
    shapes: ExpertShapes,
    config: MatmulConfig,
    activation: str,
    transposed: bool,
    apart: bool,
    interpret: Any,
    counted: bool = False,
) -> Any:
    """The kernels of the layer as one function of ids, weights, tokens, matrices and biases.

    Args:
        apart: True if the activation is a separate kernel.
        counted: True if the first operand is the number of tokens that there are, i32[], at most `shapes.tokens`.
    """
    count, dtype = shapes.tokens * shapes.each, shapes.dtype
    if apart:
        first = inputs_product(shapes, activation, transposed, interpret, config)
    else:
        selection = Selection(shapes.experts)
        product = GroupedProblem(count, shapes.h, shapes.i, shapes.experts, config, transposed, selection)
        first = up_product(GatheredProduct(product, activation, shapes.biased[0]), dtype, interpret)

    def run(
        present: Array | None,
        ids: Array,
        weights: Array,
        tokens: Array,
        up: Array,
        down: Array,
        *biases: Array,
    ) -> Array:
        split = 1 if shapes.biased[0] else 0
        assigned = None if present is None else present * shapes.each
        sizes, token_of, row_of = route(count, shapes.each, shapes.experts, interpret, assigned)(ids)
        hidden = first(sizes, token_of, tokens, up, *biases[:split])
        if apart:
            hidden = activate(shapes, activation, interpret, present)(ids, row_of, hidden)
        rows = gmm(hidden, down, sizes, dtype, transpose_rhs=transposed, interpret=interpret)
        return combine(shapes, True, interpret, present)(ids, weights, row_of, rows, *biases[split:])

    return run if counted else _Written(functools.partial(run, None))


class _Written:
    """A wrapper of a function that stores its result to the caller's array, if there is one."""

    def __init__(self, run: Any) -> None:
        self.run = run

    def __call__(self, *arrays: Sequence[Array], out: Array | None = None) -> Array:
        return self.run(*arrays) if out is None else stored(self.run(*arrays), out)
