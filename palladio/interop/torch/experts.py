"""The expert layer of a mixture of experts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from palladio.base.errors import PalladioError, PalladioTypeError, PalladioValueError, at_call
from palladio.interop.extras import executor_name
from palladio.interop.torch import expert_operators
from palladio.interop.torch.arguments import require_tensors
from palladio.interop.torch.composed_experts import ACTIVATIONS, Activation, composed
from palladio.interop.torch.derivatives import is_plain, is_recording, is_transformed, is_unwatched
from palladio.library.activations import require_activation
from palladio.library.checks import fail, require_array, require_flag, require_shape
from palladio.library.experts import layer_again
from palladio.library.namesakes import EXECUTORS, on_hopper

Tensor = torch.Tensor

_HALVES = torch.float16, torch.bfloat16

_NAMES_HERE = {"gate_up": "up", "gate_up_bias": "up_bias"}
"""Names of the library's arguments, and of those of the function here."""


def _is_in_kernels(arrays: Sequence[Tensor | None]) -> bool:
    """True if the library's own layer computes this, and its gradient if one is recorded."""
    tensors = [each for each in arrays if each is not None]
    dtypes = tensors[0].dtype, tensors[2].dtype
    for each in tensors:
        if not each.is_cpu or (each.dtype not in dtypes and each.is_floating_point()):
            return False
    if torch.is_autocast_enabled("cpu") or is_transformed():
        return False
    if tensors[0].dtype == torch.float64 and is_recording(tensors):
        return False
    return torch.compiler.is_compiling() or is_plain(tensors)


def _is_on_hopper(arrays: Sequence[Tensor | None], interpret: Any) -> bool:
    """True if the library's layer for Hopper computes this, and its gradient if one is recorded."""
    tensors = [each for each in arrays if each is not None]
    if is_transformed() or not all(each.is_cuda for each in tensors) or torch.is_autocast_enabled("cuda"):
        return False
    tokens, _, _, up, down, *_ = tensors
    if torch.compiler.is_compiling():
        # PyTorch traces this: it decides as `on_hopper` does, by properties of tensors alone.
        of_halves = tokens.dtype in _HALVES and tokens.dtype == up.dtype == down.dtype
        empty = any(size == 0 for each in (tokens, up, down) for size in each.shape)
        return of_halves and not empty and executor_name(interpret) in ("", *EXECUTORS)
    return not torch._C._len_torch_dispatch_stack() and on_hopper(interpret, (tokens, up, down)) is not None


def _in_kernels(*args: Any) -> Tensor:
    """The operator, or directly its implementation, which has less overhead."""
    try:
        if is_recording(args):
            found: Tensor = expert_operators.moe_mlp_with_inputs(*args)[0]
            return found
        run: Any = expert_operators.moe_mlp if torch.compiler.is_compiling() else expert_operators.moe_mlp.run
        out: Tensor = run(*args)
    except PalladioError as error:
        error.argument = _NAMES_HERE.get(error.argument or "", error.argument)
        raise
    return out


def _require_shapes(arrays: Sequence[Any], transposed: bool) -> None:
    """The checks of the layer that do not depend on its activation, which may be any function."""
    tokens, expert_ids, expert_weights, up, down, *_ = arrays
    t, h = require_array(tokens, "tokens", 2, "[t, h]")
    experts, *matrix = require_array(up, "up", 3, "[e, columns, h]" if transposed else "[e, h, columns]")
    columns = matrix[0 if transposed else 1]
    require_shape(up, (experts, columns, h) if transposed else (experts, h, columns), "up")
    require_array(down, "down", 3, "[e, h, i]" if transposed else "[e, i, h]")
    rows, each = require_array(expert_ids, "expert_ids", 2, "integers [t, k]", floats=False)
    if expert_ids.is_floating_point() or expert_ids.dtype == torch.bool:
        rule, dtype = "integers are needed", str(expert_ids.dtype)
        raise fail(PalladioTypeError, rule, argument="expert_ids", expected="integers [t, k]", got=dtype)
    if rows != t:
        rule, expected = "not the experts of each token", f"[{t}, k]"
        raise fail(PalladioValueError, rule, argument="expert_ids", expected=expected, got=(rows, each))
    require_shape(expert_weights, (t, each), "expert_weights")


def moe_mlp(
    tokens: Tensor,
    expert_ids: Tensor,
    expert_weights: Tensor,
    up: Tensor,
    down: Tensor,
    *,
    activation: str | Activation = "swiglu",
    up_bias: Tensor | None = None,
    down_bias: Tensor | None = None,
    transposed: bool = False,
    after: Activation | None = None,
    interpret: Any = None,
) -> Tensor:
    """The expert layer, differentiable: the weighted sum of the results of each token's experts.

    Where the activation has a name, it is `palladio.library.moe_mlp` with the gradients of `moe_mlp_vjp`, which permute
    no tokens in memory. It is `gmm` with PyTorch's own functions around it for an activation or `after` that are
    functions, inside `torch.func` and autocast, for gradients in float64, which are the same bits on any number of
    processes, and for gradients of gradients.

    Args:
        tokens: `dtype[t, h]`.
        expert_ids: `i64[t, k]`, the experts of each token. An id outside of 0 to e - 1 is an expert elsewhere
            and adds nothing.
        expert_weights: `dtype[t, k]`.
        up: `dtype[e, h, 2 i]` for gated activations, whose halves are the gate and its factor; `dtype[e, h, i]`
            for others. With `transposed` the last two axes are exchanged, as in `torch.nn.Linear`.
        down: `dtype[e, i, h]`, or `dtype[e, h, i]` with `transposed`.
        activation: "swiglu", "geglu", "gpt_oss" (clamped; gate and up alternate), "relu", "silu", "gelu", or a function
            from the result of `up` to the input of `down`.
        up_bias, down_bias: `dtype[e, 2 i]` (or `[e, i]`) and `dtype[e, h]`.
        after: applied to the rows that leave an expert, before they are weighted.
        interpret: as in `palladio.pallas_call`.

    Returns:
        `dtype[t, h]`.

    Raises:
        PalladioValueError: for an unknown activation.
        PalladioError: as `gmm`.
    """
    plain = up_bias is None and down_bias is None and after is None and interpret is None
    if plain and type(activation) is str and type(transposed) is bool and is_unwatched():
        done: Tensor | None = layer_again((tokens, expert_ids, expert_weights, up, down), activation, transposed)
        if done is not None:
            return done
    if not (activation in ACTIVATIONS if isinstance(activation, str) else callable(activation)):
        with at_call():
            require_activation(activation)
    if not torch.compiler.is_compiling():
        with at_call():
            require_tensors(tokens=tokens, expert_ids=expert_ids, expert_weights=expert_weights, up=up, down=down)
    transposed = require_flag(transposed, "transposed")
    arrays = (tokens, expert_ids, expert_weights, up, down, up_bias, down_bias)
    named = isinstance(activation, str) and after is None
    if named and (_is_in_kernels(arrays) or _is_on_hopper(arrays, interpret)):
        return _in_kernels(*arrays, activation, transposed, executor_name(interpret))
    if not torch.compiler.is_compiling():
        _require_shapes(arrays, transposed)
    return composed(*arrays, activation, transposed, interpret, after)
