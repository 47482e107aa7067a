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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import palladio as pl
import palladio.numpy as jnp
from palladio.library.activations import ACTIVATIONS, Activation, require_activation
from palladio.library.checks import ExpertShapes, dtype_of, expert_shapes, fail, require_shape
from palladio.library.hopper.config import MatmulConfig, require_matmul_config
from palladio.library.hopper.experts.products import GatheredProduct, up_product
from palladio.library.hopper.experts.routing import route
from palladio.library.hopper.experts.rows import activate, combine
from palladio.library.hopper.grouped_matmul import GroupedProblem, Selection, gmm
from palladio.library.hopper.kept import RowBucket, called, counting, most_rows
from palladio.library.hopper.limits import FLOATS, require_operand
from palladio.library.hopper.model import Product
from palladio.library.hopper.tuned import Measurement, division
from palladio.library.staging import stored, zeros

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
    given, config = config, _config(shapes, config, ACTIVATIONS[activation], not apart, bool(transposed))
    count = shapes.tokens * shapes.each
    operands = [expert_ids.reshape((count,)), expert_weights.reshape((count,)), tokens, gate_up, down, *kept]
    if ACTIVATIONS[activation].alternate and not apart:
        operands[3] = gate_up.reshape((shapes.experts, shapes.i, 2, shapes.h))
        if gate_up_bias is not None:
            operands[5] = gate_up_bias.reshape((shapes.experts, shapes.i, 2))
    key = "moe_mlp", activation, bool(transposed), given, shapes.biased
    options = activation, bool(transposed), interpret

    def kernel() -> Any:
        return _Written(functools.partial(layer_kernels(shapes, *options, config, apart), None))

    def of_some(rows: int) -> Any:
        most = dataclasses.replace(shapes, tokens=rows)
        chosen = _config(most, given, ACTIVATIONS[activation], not apart, bool(transposed))
        run = layer_kernels(most, *options, chosen, apart)
        return counting(lambda present: functools.partial(run, present))

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


def _product(shapes: ExpertShapes, act: Activation, paired: bool) -> Product:
    """The first product; `paired` as in `_config`."""
    rows, columns = pl.cdiv(shapes.tokens * shapes.each, shapes.experts), (2 if act.gated else 1) * shapes.i
    return Product(rows, columns, shapes.h, shapes.dtype, shapes.dtype, shapes.experts, (), paired=paired and act.gated)


def _config(shapes: ExpertShapes, config: Any, act: Activation, paired: bool, transposed: bool) -> MatmulConfig:
    """The division of the first product.

    Args:
        paired: True if a gated activation has gates and values in the same warpgroup's accumulators.
    """
    paired = paired and act.gated
    if config is None:
        config = division("moe_mlp", _product(shapes, act, paired), transposed)
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
    config = _config(shapes, config, act, False, transposed)
    columns = 2 * shapes.i if act.gated else shapes.i
    count, selection = shapes.tokens * shapes.each, Selection(shapes.experts)
    product = GroupedProblem(count, shapes.h, columns, shapes.experts, config, transposed, selection)
    return up_product(GatheredProduct(product, None, shapes.biased[0]), shapes.dtype, interpret)


def _fused_product(
    shapes: ExpertShapes, activation: str, transposed: bool, interpret: Any, config: MatmulConfig | None
) -> Any:
    """The launch of the first product with the activation; arguments as in `inputs_product`."""
    config = _config(shapes, config, ACTIVATIONS[activation], True, transposed)
    sizes = shapes.tokens * shapes.each, shapes.h, shapes.i, shapes.experts
    product = GroupedProblem(*sizes, config, transposed, Selection(shapes.experts))
    return up_product(GatheredProduct(product, activation, shapes.biased[0]), shapes.dtype, interpret)


def measurement(tokens: Array, gate_up: Array, sizes: Any, activation: str, transposed: bool) -> Measurement:
    """The measurement of the first product of `moe_mlp`.

    Args:
        tokens, gate_up: arrays; only their shapes and dtypes are used.
        sizes: `i32[e]` in host memory, the assignments of each expert, as many of each token.
    """
    (count, h), (experts, *matrix), act = tokens.shape, gate_up.shape, require_activation(activation)
    wide = int(matrix[0 if transposed else 1])
    require_shape(gate_up, (experts, wide, h) if transposed else (experts, h, wide), "gate_up")
    each, rest = divmod(int(np.sum(sizes)), int(count))
    if rest or not each:
        rule, got = "not as many experts of each token", f"{int(np.sum(sizes))} assignments of {count} tokens"
        raise fail(pl.PalladioValueError, rule, argument="group_sizes", expected=f"a multiple of {count}", got=got)
    inner = wide // (2 if act.gated else 1)
    shapes = ExpertShapes(most_rows(int(count)), each, int(h), inner, int(experts), dtype_of(tokens), (False, False))
    apart = act.alternate and not transposed
    rows, dtype = shapes.tokens * each, shapes.dtype
    ends = np.cumsum(np.asarray(sizes, np.int64)) * shapes.tokens // int(count)
    parts = (inner, 2, int(h)) if act.alternate and transposed else map(int, matrix)
    operands = [
        np.diff(ends, prepend=0).astype(np.int32),
        (np.arange(rows) // each).astype(np.int32),
        pl.ShapeDtypeStruct((shapes.tokens, int(h)), dtype),
        pl.ShapeDtypeStruct((int(experts), *parts), dtype),
    ]

    def run(config: MatmulConfig) -> Callable[..., Any]:
        first = inputs_product if apart else _fused_product
        found: Callable[..., Any] = first(shapes, activation, transposed, None, config)
        return found

    product = _product(shapes, act, not apart)
    return Measurement("moe_mlp", (rows, int(h), product.n), operands, run, product, transposed)


@dataclass(frozen=True)
class LayerArrays:
    """The operands of the layer's kernels.

    Fields:
        ids, weights: `[t k]`, of the assignments.
        tokens, up, down: as in `moe_mlp`.
        up_bias, down_bias: the bias, or nothing.
    """

    ids: Array
    weights: Array
    tokens: Array
    up: Array
    down: Array
    up_bias: tuple[Array, ...]
    down_bias: tuple[Array, ...]

    @staticmethod
    def of(shapes: ExpertShapes, arrays: Sequence[Array]) -> LayerArrays:
        """The operands in the order of the fields, without the biases that the layer does not have."""
        split = 6 if shapes.biased[0] else 5
        ids, weights, tokens, up, down = arrays[:5]
        return LayerArrays(ids, weights, tokens, up, down, tuple(arrays[5:split]), tuple(arrays[split:]))


def routed(shapes: ExpertShapes, present: Array | None, interpret: Any) -> Any:
    """The launch of `route` for some of the tokens, None for all."""
    assigned = None if present is None else present * shapes.each
    return route(shapes.tokens * shapes.each, shapes.each, shapes.experts, interpret, assigned)


def layer_kernels(
    shapes: ExpertShapes,
    activation: str,
    transposed: bool,
    interpret: Any,
    config: MatmulConfig | None = None,
    apart: bool = True,
    with_inputs: bool = False,
) -> Callable[..., Any]:
    """The kernels of the layer as one function of the number of tokens, None for all, and of `LayerArrays`.

    Args:
        config: the division of the first product.
        apart: True if the activation is a separate kernel.
        with_inputs: True for a pair of results: the second holds the inputs of the activation, which is `apart`.
    """
    dtype = shapes.dtype
    first = (inputs_product if apart else _fused_product)(shapes, activation, transposed, interpret, config)

    def run(present: Array | None, *arrays: Array) -> Any:
        given = LayerArrays.of(shapes, arrays)
        sizes, token_of, row_of = routed(shapes, present, interpret)(given.ids)
        inputs = hidden = first(sizes, token_of, given.tokens, given.up, *given.up_bias)
        if apart:
            hidden = activate(shapes, activation, interpret, present)(given.ids, row_of, inputs)
        rows = gmm(hidden, given.down, sizes, dtype, transpose_rhs=transposed, interpret=interpret)
        summed = combine(shapes, True, interpret, present)
        result = summed(given.ids, given.weights, row_of, rows, *given.down_bias)
        return (result, inputs) if with_inputs else result

    return run


class _Written:
    """A wrapper of a function that stores its result to the caller's array, if there is one."""

    def __init__(self, run: Any) -> None:
        self.run = run

    def __call__(self, *arrays: Sequence[Array], out: Array | None = None) -> Array:
        return self.run(*arrays) if out is None else stored(self.run(*arrays), out)
