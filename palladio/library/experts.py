"""The expert layer of a mixture of experts: two grouped products with an activation between them.

    hidden[a] = activation(tokens[token of a] @ gate_up[expert of a])     for each assignment a of a token to an expert
    out[t]    = sum of weight of a * (hidden[a] @ down[expert of a])      over the assignments of token t

Assignments are sorted by expert, tokens are not: the first kernel gathers the rows of one expert at a time into a
cache, and applies the activation before any store; the second kernel scatters its weighted rows into the result. The
memory that grows with the assignments is `hidden` and their numbers and weights; for a gradient, the inputs of the
activation too. The kernels are in `kernels.experts`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

import palladio as pl
import palladio.numpy as jnp
from palladio.library.checks import (
    ExpertGradients,
    as_array,
    dtype_of,
    expert_shapes,
    fail,
    require_flag,
    require_gradient,
    require_ids,
    require_interpret,
    wide_dtype,
)
from palladio.library.grouped_matmul import ANY_ROWS
from palladio.library.kernels.experts import (
    SHARE,
    Layer,
    MatrixGradient,
    assignments_call,
    bias_gradient_call,
    down_call,
    hidden_gradient_call,
    matrix_gradient_call,
    up_call,
)
from palladio.library.kernels.grouped import make_group_metadata
from palladio.library.namesakes import on_hopper
from palladio.library.staging import described, in_parts, row_bytes, rows_together, stored, zeros
from palladio.library.tilings import (
    gmm_tiling,
    groups_are_small,
    groups_are_spread,
    tgmm_tiling,
    threads_of,
)

Array = Any

_COUNTED = (np.dtype(np.int32), np.dtype(np.int64))
"""The dtypes of ids for which the layer is staged: those of routers. Others are converted to the second one."""

MOST_ROWS = 1024
"""The most assignments of a tile: the sums of a tile are in memory until the activation."""

SMALL_ROWS = 256
"""As `MOST_ROWS`, for experts of a few assignments each, which may be spread over the threads: several compute one with
more. It does not depend on the number of threads, so that sums do not."""

_KEPT = pl.KeptCalls()

_KNOWN = pl.KeptCalls()
"""The layer and its staged function by the types and shapes of all arguments: a call that was checked once before."""


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
    """The expert layer: each token goes through its experts, and their results are summed by weight.

    Tokens are not permuted in memory: their rows are gathered while they are packed for the first product, and the
    rows of the second product are added to the result of their tokens.

    Args:
        tokens: `dtype[t, h]` of floats. Sums are in float32 (float64 for float64).
        expert_ids: integers `[t, k]`, the experts of each token. An id outside 0 to e - 1 is an expert of another
            device, and adds nothing.
        expert_weights: floats `[t, k]`.
        gate_up: `dtype[e, h, 2 i]` for gated activations, `dtype[e, h, i]` for others. With `transposed` the last two
            axes are exchanged, as in `torch.nn.Linear`.
        down: `dtype[e, i, h]`, or `dtype[e, h, i]` with `transposed`.
        activation: "swiglu" and "geglu", with the gates in the first half of the columns; "gpt_oss", clamped, with
            alternating gate and up; "silu", "gelu" and "relu", without a gate.
        gate_up_bias, down_bias: `dtype[e, 2 i]` (or `[e, i]`) and `dtype[e, h]`.
        interpret: as in `palladio.pallas_call`.
        out: an array for the result, of its shape and dtype, in row-major order; it is returned.

    On Hopper, this is `palladio.library.hopper.moe_mlp`, whose ids and weights may be on the GPU.

    Returns:
        `dtype[t, h]`, of the dtype of `tokens`.

    Raises:
        PalladioValueError, PalladioTypeError: shapes or dtypes that do not match, an unknown activation, or traced
            values.
    """
    biases, arrays = (gate_up_bias, down_bias), (tokens, expert_ids, expert_weights, gate_up, down)
    known = type(activation) is str and type(transposed) is bool
    usual = known and gate_up_bias is None and down_bias is None and interpret is None
    done = layer_again(arrays, activation, transposed, out) if usual else None
    if done is not None:
        return done
    given, transposed = (*arrays, *biases), require_flag(transposed, "transposed")
    key = _known_key(given, activation, transposed)
    if (kept := _KNOWN.find(key, interpret, (tokens, gate_up, down))) is not None:
        layer, staged = kept
        if usual:
            _remember(staged, arrays, (activation, transposed))
        routed = _routed(layer, require_ids(expert_ids), _on_host(expert_weights))
        added = (each for each in biases if each is not None)
        return staged(tokens, *routed, gate_up, down, *added, out=out, rows=tokens.shape[0])
    if (hopper := _hopper(interpret, tokens, gate_up, down)) is not None:
        options = {"gate_up_bias": gate_up_bias, "down_bias": down_bias, "transposed": transposed, "out": out}
        routed = _on_device_of(expert_ids, tokens), _on_device_of(expert_weights, tokens)
        return hopper.moe_mlp(tokens, *routed, gate_up, down, activation=activation, interpret=interpret, **options)
    call = expert_call(*given, activation, transposed, interpret)
    layer = call.layer
    if call.is_empty:
        return stored(zeros((layer.tokens, layer.h), layer.dtype, tokens), out)
    parts, whole = in_parts(layer.tokens, (tokens,), layer.h, layer.dtype, out)
    for rows, count in parts:
        call.run(rows, count, whole[rows])
    if parts:
        return whole if out is None else out
    found = call.run(slice(0, layer.tokens), call.count, out)
    if out is None:  # with `out`, a call that is computed in parts without it may have been one
        _KNOWN.keep(key, call.for_tokens(call.count), interpret, (tokens, gate_up, down))
    return found


@pl.checked_call
def moe_mlp_vjp(
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
) -> tuple[Array, Callable[[Array], ExpertGradients]]:
    """`moe_mlp` with its gradients, for callers without automatic differentiation.

    The inputs of the activation, `[t k, 2 i]`, are saved for the gradients. The kernels of the gradients gather the
    rows of tokens and of `grad_out`, like `moe_mlp`. On Hopper, this is `palladio.library.hopper.moe_mlp_vjp`.

    Args:
        tokens, expert_ids, expert_weights, gate_up, down, activation, gate_up_bias, down_bias, transposed, interpret:
            as in `moe_mlp`.

    Returns:
        `(out, pullback)`: `out: dtype[t, h]` is the result of `moe_mlp`, and `pullback(grad_out: dtype[t, h])` gives
        the gradients of `sum(out * grad_out)` by the names of the arguments: `tokens`, `expert_weights`, `gate_up`,
        `down`, `gate_up_bias` and `down_bias`, None for an absent bias.

    Raises:
        PalladioValueError, PalladioTypeError: as `moe_mlp`; from the pullback, if `grad_out` does not have the shape
            and dtype of `out`.
    """
    biases = gate_up_bias, down_bias
    call = layer_call(tokens, expert_ids, expert_weights, gate_up, down, *biases, activation, transposed, interpret)
    out, before = call.forward()

    def pullback(grad_out: Array) -> ExpertGradients:
        gradients: ExpertGradients = call.gradients(grad_out, before)
        return gradients

    return out, pullback


_INSTEAD = "convert them, or call palladio.library.hopper, which multiplies float32 rounded to tf32"


def _hopper(interpret: Any, tokens: Array, gate_up: Array, down: Array) -> Any:
    """`palladio.library.hopper`, if it computes the layer; else None."""
    return on_hopper(interpret, (tokens, gate_up, down), instead=_INSTEAD, argument="tokens, gate_up, down")


def layer_again(arrays: tuple[Array, ...], activation: str, transposed: bool, out: Array | None = None) -> Array | None:
    """`moe_mlp` of tokens, ids, weights and matrices like earlier ones, without checks; None if none was kept, or if
    `out` cannot be used as it is.
    """
    find = _KNOWN.again if type(arrays[0]) is np.ndarray else _KNOWN.again_in_memory
    return find(arrays, (activation, transposed), out)


def _remember(staged: Any, arrays: Sequence[Array], options: Hashable) -> None:
    """Keep a staged layer for tokens, ids, weights and matrices like these, if it can do without checks."""
    are_arrays = type(arrays[0]) is np.ndarray
    run = staged.prepared(arrays, None) if are_arrays else staged.in_memory(arrays, None)
    if run is None:
        return
    if are_arrays:
        _KNOWN.keep_again(tuple(arrays), options, lambda *arrays, out=None: run(arrays, out))
    else:
        _KNOWN.keep_again_in_memory(tuple(arrays), options, lambda *arrays, out=None: run(arrays[-1], arrays[:-1], out))


def _routed(layer: Layer, ids: Array, weights: Array) -> tuple[Array, Array]:
    """Ids and weights for all tokens of a staged layer; those of padding have experts elsewhere."""
    ids = ids if ids.dtype in _COUNTED else ids.astype(np.int64)
    if len(ids) == layer.tokens:
        return ids, weights
    shape = layer.tokens, ids.shape[1]
    whole = np.full(shape, -1, ids.dtype), np.zeros(shape, weights.dtype)
    for all_rows, given in zip(whole, (ids, weights), strict=True):
        all_rows[: len(given)] = given
    return whole


def _known_key(arrays: Sequence[Any], activation: Any, transposed: bool) -> Hashable | None:
    """The arguments that the checks of a call depend on, as a key; None for values that are not arrays."""
    try:
        kinds = tuple(None if each is None else (type(each), each.shape, each.dtype) for each in arrays)
        key = kinds, activation, transposed
        hash(key)
    except (AttributeError, TypeError):
        return None
    return key


def _on_host(expert_weights: Any) -> Array:
    """The weights of the assignments as a NumPy array."""
    return np.asarray(as_array(expert_weights, "expert_weights", "floats [t, k]"))


def _on_device_of(values: Any, tokens: Array) -> Array:
    """Ids or weights in the memory of the tokens: those of the host are copied to the tokens' GPU."""
    if hasattr(values, "dtype") and (pl.is_on_gpu(values) or not pl.is_on_gpu(tokens)):
        return values
    return pl.to_device_of(np.asarray(jnp.asarray(values)), tokens)


def layer_call(
    tokens: Array,
    expert_ids: Array,
    expert_weights: Array,
    gate_up: Array,
    down: Array,
    gate_up_bias: Array | None,
    down_bias: Array | None,
    activation: str,
    transposed: bool,
    interpret: Any,
) -> Any:
    """The call of the layer for the arguments of `moe_mlp`: an `ExpertCall`, or Hopper's `LayerCall`."""
    rest = gate_up, down, gate_up_bias, down_bias, activation, transposed, interpret
    if (hopper := _hopper(interpret, tokens, gate_up, down)) is not None:
        return hopper.LayerCall(tokens, _on_device_of(expert_ids, tokens), _on_device_of(expert_weights, tokens), *rest)
    return expert_call(tokens, expert_ids, expert_weights, *rest)


class ExpertCall:
    """The layer and its gradients for one set of checked arguments.

    Fields:
        layer: the layer, without the rows of assignments.
        ids, weights: NumPy arrays `[t, k]`.
        arrays: tokens, matrices, and biases, if any.
    """

    def __init__(self, layer: Layer, ids: Array, weights: Array, arrays: Sequence[Array], interpret: Any) -> None:
        self.layer = layer
        self.ids = ids
        self.weights = weights
        self.arrays = tuple(arrays)
        self.interpret = interpret

    @property
    def is_empty(self) -> bool:
        layer = self.layer
        return 0 in (layer.tokens, layer.h, layer.i, self.ids.shape[1])

    @property
    def count(self) -> int:
        """The number of tokens for which a call with all tokens is staged."""
        return rows_together(self.layer.tokens, row_bytes(self.arrays[0]))

    def layer_for(self, count: int) -> Layer:
        """The layer for `count` tokens."""
        return _with_tokens(self.layer, count, self.ids.shape[1], pl.chosen_executor(self.interpret) == "cpu")

    def for_tokens(self, count: int) -> tuple[Layer, Any]:
        """The layer for `count` tokens, and its staged function."""
        layer = self.layer_for(count)
        tokens, *weights = self.arrays
        each = self.ids.shape[1]
        given = described(tokens, count), *map(described, _routed(layer, self.ids[:0], self.weights[:0]))
        return layer, self.staged(forward, layer, *given, *map(described, weights), options=(each,), of_ids=True)

    def run(self, rows: slice, count: int, out: Array | None) -> Array:
        """The results of some tokens, by kernels for `count` tokens."""
        layer, staged = self.for_tokens(count)
        tokens, *weights = self.arrays
        routed = _routed(layer, self.ids[rows], self.weights[rows])
        return staged(tokens[rows], *routed, *weights, out=out, rows=rows.stop - rows.start)

    def forward(self) -> tuple[Array, Array]:
        """The result, and the inputs of the activation in each assignment, `[rows, parts, wide * i]`.

        The rows are those for which it was staged; the first t k are the assignments.
        """
        base, each = self.layer, self.ids.shape[1]
        if self.is_empty:
            out = zeros((base.tokens, base.h), base.dtype, self.arrays[0])
            return out, zeros((base.tokens * each, base.parts, base.wide * base.i), base.dtype, self.arrays[0])
        layer = self.layer_for(self.count)
        tokens, *weights = self.arrays
        staged = self.staged(forward_with_inputs, layer, described(tokens, layer.tokens), *map(described, weights))
        out, before = staged(*_Assigned(layer, self.ids, self.weights).arrays, tokens, *weights)
        return out[: base.tokens], before

    def with_inputs(self) -> tuple[Array, Array]:
        """The result, and the inputs of the activation in each assignment, `[t k, parts, wide * i]`."""
        out, before = self.forward()
        return out, before[: self.ids.size]

    def gradients(self, grad: Array, before: Array, wanted: Sequence[bool] = (True,) * 6) -> ExpertGradients:
        """The requested gradients, of the arguments in the order of `ExpertGradients`."""
        require_gradient(grad, (self.layer.tokens, self.layer.h), self.layer.dtype)
        there = (True,) * 4 + self.layer.biased
        wanted = [one and other for one, other in zip(wanted, there, strict=True)]
        if self.is_empty:
            tokens, *rest = self.arrays
            given = iter((tokens, self.weights, *rest))
            like = [next(given) if each else tokens for each in there]
            return ExpertGradients(
                *(
                    zeros(tuple(array.shape), dtype_of(array), tokens) if each else None
                    for array, each in zip(like, wanted, strict=True)
                )
            )
        return _Gradients(self, grad, before).found(wanted)

    def staged(
        self,
        build: Callable[..., Any],
        layer: Layer,
        *types: Any,
        options: tuple[Any, ...] = (),
        of_ids: bool = False,
    ) -> Any:
        """A function of assignments and other arrays, staged for a number of tokens.

        Args:
            build: makes it from a layer and options. Its first arguments are `_Assigned.arrays`, unless it sorts the
                assignments itself, `of_ids`.
            types: the types of the other arguments.
        """
        key = build, layer, options, tuple((type.shape, type.dtype) for type in types)
        found = _KEPT.find(key, self.interpret)
        if found is None:
            assigned = () if of_ids else (pl.ShapeDtypeStruct((size,), dtype) for size, dtype in layer.assigned)
            function = pl.jit(build(layer, *options), interpret=require_interpret(self.interpret))
            found = function.ahead(*assigned, *types)
            _KEPT.keep(key, found, self.interpret)
        return found


class _Assigned:
    """The assignments sorted by expert, as arrays for kernels; rows after the last assignment are zeros.

    Fields:
        arrays: the number of assignments of each expert, and the token and the weight of each assignment.
        order: the numbers of the assignments, sorted by expert.
    """

    def __init__(self, layer: Layer, ids: Array, weights: Array) -> None:
        flat = ids.reshape(-1)
        if len(flat) and (flat.min() < 0 or flat.max() >= layer.experts):
            elsewhere = (flat < 0) | (flat >= layer.experts)
            flat = np.where(elsewhere, layer.experts, flat.astype(np.int64))  # narrow ids may not hold the number
        self.order = np.argsort(flat, kind="stable")
        sizes = np.bincount(flat, minlength=layer.experts + 1)[: layer.experts].astype(np.int32)
        token_of, weight_of = np.zeros(layer.rows, np.int32), np.zeros(layer.rows, layer.sums)
        token_of[: len(flat)] = self.order // ids.shape[1]
        weight_of[: len(flat)] = weights.reshape(-1)[self.order]
        self.arrays = sizes, token_of, weight_of


class _Gradients:
    """The gradients of one call, each staged separately: only the requested ones are computed.

    Fields:
        of_inputs: the gradient of the inputs of the activation, `dtype[rows, parts * wide * i]`.
        hidden: the results of the activation.
        of_weights: the gradient of the weights of the assignments, in their order.
    """

    def __init__(self, call: ExpertCall, grad: Array, before: Array) -> None:
        self.call = call
        self.grad = grad
        self.each = call.ids.shape[1]
        self.layer = layer = call.layer_for(call.count)
        self.assigned = _Assigned(layer, call.ids, call.weights)
        self.tokens, self.gate_up, down, *biases = call.arrays
        bias = biases[-1:] if layer.biased[1] else []
        numbers = pl.ShapeDtypeStruct((layer.tokens * self.each,), np.int32)
        given = grad, down, *bias
        types = described(grad, layer.tokens), *map(described, given[1:])
        kept = pl.ShapeDtypeStruct((layer.rows, *before.shape[1:]), layer.dtype)
        staged = call.staged(hidden_gradient, layer, numbers, kept, *types, options=(call.weights.dtype,))
        place = np.empty(len(self.assigned.order), np.int32)
        place[self.assigned.order] = np.arange(len(place))
        inputs, self.hidden, self.of_weights = staged(*self.assigned.arrays, place, before, *given)
        self.of_inputs = inputs.reshape(layer.rows, -1)

    def found(self, wanted: Sequence[bool]) -> ExpertGradients:
        layer = self.layer
        wide = layer.parts * layer.wide * layer.i
        makers: list[Callable[[], Array]] = [
            self.of_tokens,
            lambda: self.of_weights[: self.call.layer.tokens * self.each].reshape(self.call.ids.shape),
            lambda: self.of_matrices(self.tokens, self.of_inputs, (layer.h, wide), False),
            lambda: self.of_matrices(self.grad, self.hidden, (layer.h, layer.i), True),
            lambda: self.of_bias(self.of_inputs, wide, False),
            lambda: self.of_bias(self.grad, layer.h, True),
        ]
        return ExpertGradients(*(make() if each else None for make, each in zip(makers, wanted, strict=True)))

    def of_tokens(self) -> Array:
        types = described(self.of_inputs), described(self.gate_up)
        staged = self.call.staged(tokens_gradient, self.layer, *types)
        return staged(*self.assigned.arrays, self.of_inputs, self.gate_up, rows=self.call.layer.tokens)

    def of_matrices(self, tokens: Array, rows: Array, sizes: tuple[int, int], second: bool) -> Array:
        """`tokens.T @ rows` of each expert, with gathered rows of tokens; or the transpose, by the matrices' layout.

        Args:
            second: True for the matrices of the second product, `[i, h]` unless transposed, and weighted rows.
        """
        layer, first = self.layer, 0 if self.layer.transposed == second else 1
        k, n = sizes if first == 0 else sizes[::-1]
        tile = layer.tile, *tgmm_tiling(layer.rows, k, n, layer.experts)[1:]
        problem = MatrixGradient(k, n, first, second, tile)
        operands = [tokens, rows] if first == 0 else [rows, tokens]
        types = [described(each, layer.tokens if each is tokens else layer.rows) for each in operands]
        staged = self.call.staged(matrix_gradient, layer, *types, options=(problem,))
        return staged(*self.assigned.arrays, *operands)

    def of_bias(self, rows: Array, columns: int, gathered: bool) -> Array:
        layer = self.layer
        type = described(rows, layer.tokens if gathered else layer.rows)
        staged = self.call.staged(bias_gradient, layer, type, options=(columns, gathered))
        return staged(*self.assigned.arrays, rows)


def _metadata(layer: Layer, sizes: Array, visit_empty_groups: bool = False) -> tuple[Any, Array]:
    """The steps of a grid, at least one. Assignments to experts of other devices are rows after the last group."""
    found, steps = make_group_metadata(
        group_sizes=sizes, m=layer.rows, tm=layer.tile, visit_empty_groups=visit_empty_groups
    )
    return found, jnp.maximum(steps, 1)


def _biases(layer: Layer, biases: Sequence[Array]) -> tuple[list[Array], list[Array]]:
    """The biases of both products, one or none each."""
    return [*biases[: layer.biased[0]]], [*biases[layer.biased[0] :]]


def forward(layer: Layer, each: int) -> Any:
    """The layer: a function of tokens, their ids and weights, `[tokens, each]`, matrices and biases."""

    def run(tokens: Array, ids: Array, weights: Array, gate_up: Array, down: Array, *biases: Array) -> Array:
        sizes, token_of, weight_of = assignments_call(layer, each)(ids, weights)
        metadata, steps = _metadata(layer, sizes)
        up_bias, down_bias = _biases(layer, biases)
        call = up_call(layer, steps)
        hidden = call(*metadata, token_of, tokens, *[gate_up] * layer.blocks, *up_bias * layer.blocks)
        call = down_call(layer, steps, layer.i, layer.transposed, layer.biased[1])
        return call(*metadata, jnp.reshape(steps, (1,)), token_of, weight_of, hidden, down, *down_bias)

    return run


def forward_with_inputs(layer: Layer) -> Any:
    """The layer, with the inputs of the activation as a second result."""

    def run(
        sizes: Array, token_of: Array, weight_of: Array, tokens: Array, gate_up: Array, down: Array, *biases: Array
    ) -> tuple[Array, Array]:
        metadata, steps = _metadata(layer, sizes)
        up_bias, down_bias = _biases(layer, biases)
        call = up_call(layer, steps, keep=True)
        hidden, before = call(*metadata, token_of, tokens, *[gate_up] * layer.blocks, *up_bias * layer.blocks)
        call = down_call(layer, steps, layer.i, layer.transposed, layer.biased[1])
        out = call(*metadata, jnp.reshape(steps, (1,)), token_of, weight_of, hidden, down, *down_bias)
        return out, before

    return run


def hidden_gradient(layer: Layer, dtype: Any) -> Any:
    """The gradient of the inputs of the activation, `hidden`, and the gradient of the weights, in a dtype."""

    def run(
        sizes: Array, token_of: Array, weight_of: Array, place: Array, before: Array, grad: Array, *weights: Array
    ) -> tuple[Array, Array, Array]:
        metadata, steps = _metadata(layer, sizes)
        call = hidden_gradient_call(layer, steps)
        inputs, hidden, shares = call(*metadata, token_of, weight_of, grad, *weights, before)
        found = jnp.take(jnp.sum(shares, axis=1), place)
        return inputs, hidden, jnp.where(place < jnp.sum(sizes), found, 0).astype(dtype)

    return run


def tokens_gradient(layer: Layer) -> Any:
    """The gradient of the tokens, from that of the inputs of the activation."""

    def run(sizes: Array, token_of: Array, weight_of: Array, inputs: Array, up: Array) -> Array:
        metadata, steps = _metadata(layer, sizes)
        call = down_call(layer, steps, inputs.shape[1], not layer.transposed, False)
        return call(*metadata, jnp.reshape(steps, (1,)), token_of, jnp.ones_like(weight_of), inputs, up)

    return run


def matrix_gradient(layer: Layer, problem: MatrixGradient) -> Any:
    """The gradient of the matrices of one product."""

    def run(sizes: Array, token_of: Array, weight_of: Array, x: Array, y: Array) -> Array:
        metadata, steps = _metadata(layer, sizes, visit_empty_groups=True)
        call = matrix_gradient_call(layer, problem, steps)
        return call(*metadata, jnp.reshape(steps, (1,)), token_of, weight_of, x, y)

    return run


def bias_gradient(layer: Layer, columns: int, gathered: bool) -> Any:
    """The gradient of one bias."""

    def run(sizes: Array, token_of: Array, weight_of: Array, x: Array) -> Array:
        offsets = jnp.concatenate([jnp.zeros((1,), jnp.int32), jnp.cumsum(sizes)])
        return bias_gradient_call(layer, columns, gathered)(offsets, token_of, weight_of, x)

    return run


def _with_tokens(layer: Layer, tokens: int, each: int, apart: bool) -> Layer:
    """The layer for a number of tokens with `each` experts each; tiles are multiples of 16 assignments.

    Args:
        apart: whether the executor may compute several experts concurrently.
    """
    h, i, experts, rows, threads = layer.h, layer.i, layer.experts, tokens * each, pl.processor().threads
    wide = layer.parts * layer.wide * i
    small = groups_are_small(rows, experts)
    tile = min(SMALL_ROWS if small else MOST_ROWS, pl.cdiv(rows, 16) * 16)
    # A token has `each` experts, so that at least as many have rows, but for experts that it names twice.
    apart = apart and small and each >= threads and groups_are_spread(rows, h, wide, experts)
    alone = apart or threads_of(rows, h, wide, experts) == 1
    up, down = _columns(rows, h, i, experts, alone), _columns(rows, i, h, experts, threads_of(rows, i, h, experts) == 1)
    if alone and i % SHARE == 0 and _columns(rows, h, wide, experts, alone) == wide:
        up = i
    sizes = {"tokens": tokens, "rows": pl.cdiv(rows, tile) * tile, "tile": tile}
    return replace(layer, **sizes, up_columns=up, down_columns=down, apart=apart)


def _columns(rows: int, k: int, n: int, experts: int, alone: bool) -> int:
    """The columns of a tile of a product of the layer.

    Args:
        alone: whether one thread computes an expert; otherwise the columns are divided among the threads.
    """
    if not alone:
        rows, experts = ANY_ROWS, 1
    columns = gmm_tiling(rows, k, n, experts)[2]
    return columns if n % columns == 0 else n


def expert_call(
    tokens: Array,
    expert_ids: Array,
    expert_weights: Array,
    gate_up: Array,
    down: Array,
    gate_up_bias: Array | None,
    down_bias: Array | None,
    activation: str,
    transposed: bool,
    interpret: Any,
) -> ExpertCall:
    """The call of the layer for the arguments of `moe_mlp`."""
    if any(map(pl.is_traced, (tokens, expert_ids, expert_weights, gate_up, down))):
        rule = "the assignments are sorted before anything is staged, and must be known"
        raise fail(pl.PalladioTypeError, rule, argument="expert_ids", got="a traced value")
    ids, biases = require_ids(expert_ids), (gate_up_bias, down_bias)
    shapes = expert_shapes(tokens, ids, expert_weights, gate_up, down, activation, biases, transposed)
    there = [bias for bias in biases if bias is not None]
    sizes = (shapes.tokens, 0, shapes.h, shapes.i, shapes.experts, 0, shapes.i, shapes.h)
    sums = wide_dtype(shapes.dtype)
    layer = Layer(*sizes, shapes.dtype, sums, activation, bool(transposed), shapes.biased)
    return ExpertCall(layer, ids, _on_host(expert_weights), (tokens, gate_up, down, *there), interpret)
