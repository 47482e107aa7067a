"""The library's kernels as `torch.library` operators, with the rules that PyTorch needs: the shape and dtype of the
result, the derivative, and batching.

Arguments are of the types of an operator's schema: tensors, numbers, strings and lists of integers. A list of tiles has
nine entries, three for each of the forward product, the left and the right gradient; three zeros let the library
choose. `functions` translates users' arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from palladio import library
from palladio.interop.extras import executor_named
from palladio.interop.torch.derivatives import alike, is_transformed, keep, total, widened
from palladio.interop.torch.registration import apply, operator
from palladio.library.checks import Tile
from palladio.library.namesakes import EXECUTORS, on_hopper
from palladio.library.staging import tokens_first

Tensor = torch.Tensor
Tiles = list[int]

FORWARD, LEFT, RIGHT = range(3)
_HALVES = (torch.float16, torch.bfloat16)
GRADIENT_WIDTH = 256
"""The most columns of keys, and of values, that `library.hopper.attention_vjp` takes."""


def _tile(tiling: Tiles, product: int) -> Tile | None:
    """The tile of one of three products, None for the library's choice."""
    tm, tk, tn = tiling[3 * product : 3 * product + 3]
    return (tm, tk, tn) if tm else None


def _ordered(tiling: Tiles, *products: int) -> Tiles:
    """The same tiles in another order, for the operators that compute a gradient."""
    return [size for product in products for size in tiling[3 * product : 3 * product + 3]]


def _dtype(dtype: torch.dtype | None, *operands: Tensor | None) -> torch.dtype:
    """The dtype of a product: as given, that of an existing result, which comes last, or that of both operands."""
    *factors, existing = operands
    if dtype is not None or existing is not None:
        return dtype if dtype is not None else existing.dtype  # type: ignore[union-attr]
    return torch.promote_types(factors[0].dtype, factors[1].dtype)  # type: ignore[union-attr]


# Grouped products: `gmm` and `tgmm` are each other's gradients.


@operator("palladio::gmm")
def gmm(
    lhs: Tensor,
    rhs: Tensor,
    group_sizes: Tensor,
    group_offset: Tensor | None,
    existing_out: Tensor | None,
    dtype: torch.dtype | None,
    tiling: list[int],
    transpose_rhs: bool,
    interpret: str,
) -> Tensor:
    """`palladio.library.gmm`."""
    out: Tensor = library.gmm(
        lhs,
        rhs,
        group_sizes,
        dtype,
        _tile(tiling, FORWARD),
        group_offset,
        existing_out,
        transpose_rhs,
        executor_named(interpret),
    )
    return out


@gmm.register_fake
def _(lhs: Tensor, rhs: Tensor, *others: Any) -> Tensor:
    _, _, existing_out, dtype, _, transpose_rhs, _ = others
    columns = rhs.shape[1 if transpose_rhs else 2]
    return lhs.new_empty((lhs.shape[0], columns), dtype=_dtype(dtype, lhs, rhs, existing_out))


def _gmm_context(ctx: Any, inputs: Any, output: Tensor) -> None:
    lhs, rhs, sizes, offset, _, _, ctx.tiling, ctx.transpose_rhs, ctx.interpret = inputs
    ctx.dtype = output.dtype
    # A copy: the caller may change the sizes between forward and backward.
    keep(ctx, lhs, rhs, sizes.clone(), None if offset is None else offset.clone())


def _gmm_backward(ctx: Any, grad: Tensor) -> Any:
    lhs, rhs, sizes, offset = ctx.saved_tensors
    grad_lhs = grad_rhs = grad_existing = None
    if ctx.needs_input_grad[0]:
        tiles = _ordered(ctx.tiling, LEFT, FORWARD, RIGHT)
        back = not ctx.transpose_rhs
        grad_lhs = apply(gmm, *alike(grad, rhs), sizes, offset, None, lhs.dtype, tiles, back, ctx.interpret)
    if ctx.needs_input_grad[1]:
        x, y = alike(lhs, grad)
        tiles = ctx.tiling
        if ctx.transpose_rhs:
            x, y, tiles = (y, x, _ordered(ctx.tiling, LEFT, FORWARD, RIGHT))
        grad_rhs = apply(tgmm, x.T, y, sizes, offset, None, rhs.dtype, tiles, rhs.shape[0], ctx.interpret)
    if ctx.needs_input_grad[4]:
        grad_existing = torch.where(_in_groups(sizes, offset, rhs.shape[0], lhs.shape[0]), 0, grad)
    return grad_lhs, grad_rhs, None, None, grad_existing, None, None, None, None


def _gmm_forward(ctx: Any, saved: Any, lhs: Tensor | None, rhs: Tensor | None, *others: Any) -> Tensor | None:
    x, y, sizes, offset = saved
    existing = others[2]
    options = (ctx.dtype, ctx.tiling, ctx.transpose_rhs, ctx.interpret)
    outside = None
    if existing is not None:
        outside = torch.where(_in_groups(sizes, offset, y.shape[0], x.shape[0]), 0, existing)
    return total(
        None if lhs is None else apply(gmm, lhs, y, sizes, offset, None, *options),
        None if rhs is None else apply(gmm, x, rhs, sizes, offset, None, *options),
        outside,
    )


def _in_groups(sizes: Tensor, offset: Tensor | None, groups: int, m: int) -> Tensor:
    """True for the rows of `groups` groups from `offset` on, `bool[m, 1]`."""
    bounds = torch.nn.functional.pad(torch.cumsum(sizes.to(torch.int64), 0), (1, 0))
    device = sizes.device
    first = torch.zeros(1, dtype=torch.int64, device=device) if offset is None else offset.reshape(1).to(torch.int64)
    row = torch.arange(m, device=device)
    return ((row >= bounds[first]) & (row < bounds[first + groups]))[:, None]


gmm.register_derivatives(_gmm_context, _gmm_backward, _gmm_forward)


@operator("palladio::tgmm")
def tgmm(
    lhs: Tensor,
    rhs: Tensor,
    group_sizes: Tensor,
    group_offset: Tensor | None,
    existing_out: Tensor | None,
    dtype: torch.dtype | None,
    tiling: list[int],
    groups: int,
    interpret: str,
) -> Tensor:
    """`palladio.library.tgmm` for this number of groups."""
    out: Tensor = library.tgmm(
        lhs,
        rhs,
        group_sizes,
        dtype,
        _tile(tiling, RIGHT),
        group_offset,
        groups,
        existing_out,
        executor_named(interpret),
    )
    return out


@tgmm.register_fake
def _(lhs: Tensor, rhs: Tensor, *others: Any) -> Tensor:
    _, _, existing_out, dtype, _, groups, _ = others
    return lhs.new_empty((groups, lhs.shape[0], rhs.shape[1]), dtype=_dtype(dtype, lhs, rhs, existing_out))


def _tgmm_context(ctx: Any, inputs: Any, output: Tensor) -> None:
    lhs, rhs, sizes, offset, _, _, ctx.tiling, ctx.groups, ctx.interpret = inputs
    ctx.dtype = output.dtype
    first = None if offset is None else offset.clone()
    if first is None and ctx.groups != sizes.shape[0]:
        first = torch.zeros((), dtype=torch.int32, device=sizes.device)
    keep(ctx, lhs, rhs, sizes.clone(), first)


def _tgmm_backward(ctx: Any, grad: Tensor) -> Any:
    lhs, rhs, sizes, offset = ctx.saved_tensors
    grad_lhs = grad_rhs = None
    if ctx.needs_input_grad[0]:
        tiles = _ordered(ctx.tiling, LEFT, FORWARD, RIGHT)
        grad_lhs = apply(gmm, *alike(rhs, grad), sizes, offset, None, lhs.dtype, tiles, True, ctx.interpret).T
    if ctx.needs_input_grad[1]:
        x, y = alike(lhs, grad)
        grad_rhs = apply(gmm, x.T, y, sizes, offset, None, rhs.dtype, ctx.tiling, False, ctx.interpret)
    grad_existing = grad if ctx.needs_input_grad[4] else None
    return grad_lhs, grad_rhs, None, None, grad_existing, None, None, None, None


def _tgmm_forward(ctx: Any, saved: Any, lhs: Tensor | None, rhs: Tensor | None, *others: Any) -> Tensor | None:
    x, y, sizes, offset = saved
    options = (ctx.dtype, ctx.tiling, ctx.groups, ctx.interpret)
    return total(
        None if lhs is None else apply(tgmm, lhs, y, sizes, offset, None, *options),
        None if rhs is None else apply(tgmm, x, rhs, sizes, offset, None, *options),
        others[2],
    )


tgmm.register_derivatives(_tgmm_context, _tgmm_backward, _tgmm_forward)


# Dense products.


@operator("palladio::matmul")
def matmul(x: Tensor, y: Tensor, dtype: torch.dtype | None, tiling: list[int], interpret: str) -> Tensor:
    """`palladio.library.matmul`."""
    tile = _tile(tiling, FORWARD)
    out: Tensor = library.matmul(x, y, preferred_element_type=dtype, tiling=tile, interpret=executor_named(interpret))
    return out


@matmul.register_fake
def _(x: Tensor, y: Tensor, dtype: torch.dtype | None, tiling: list[int], interpret: str) -> Tensor:
    return x.new_empty((x.shape[0], y.shape[1]), dtype=_dtype(dtype, x, y, None))


def _matmul_context(ctx: Any, inputs: Any, output: Tensor) -> None:
    x, y, _, ctx.tiling, ctx.interpret = inputs
    ctx.dtype = output.dtype
    keep(ctx, x, y)


def _matmul_backward(ctx: Any, grad: Tensor) -> Any:
    x, y = ctx.saved_tensors
    grad_x = grad_y = None
    if ctx.needs_input_grad[0]:
        left, right = alike(grad, y)
        grad_x = apply(matmul, left, right.T, x.dtype, _ordered(ctx.tiling, LEFT, FORWARD, RIGHT), ctx.interpret)
    if ctx.needs_input_grad[1]:
        left, right = alike(x, grad)
        grad_y = apply(matmul, left.T, right, y.dtype, _ordered(ctx.tiling, RIGHT, LEFT, FORWARD), ctx.interpret)
    return grad_x, grad_y, None, None, None


def _matmul_forward(ctx: Any, saved: Any, x: Tensor | None, y: Tensor | None, *others: Any) -> Tensor | None:
    left, right = saved
    options = (ctx.dtype, ctx.tiling, ctx.interpret)
    return total(
        None if x is None else apply(matmul, x, right, *options),
        None if y is None else apply(matmul, left, y, *options),
    )


matmul.register_derivatives(_matmul_context, _matmul_backward, _matmul_forward)


# Along the last axis.


@operator("palladio::softmax")
def softmax(x: Tensor, block_rows: int | None, interpret: str) -> Tensor:
    """`palladio.library.softmax`."""
    out: Tensor = library.softmax(x, block_rows=block_rows, interpret=executor_named(interpret))
    return out


@softmax.register_fake
def _(x: Tensor, block_rows: int | None, interpret: str) -> Tensor:
    return x.new_empty(x.shape)


def _softmax_derivative(shares: Tensor, x: Tensor) -> Tensor:
    """The derivative for a gradient or a tangent `x`, in the dtype of `shares`: it is symmetric."""
    wide, wide_x = widened(shares), widened(x)
    return (wide * (wide_x - (wide_x * wide).sum(dim=-1, keepdim=True))).to(shares.dtype)


def _softmax_backward(ctx: Any, grad: Tensor) -> Any:
    (shares,) = ctx.saved_tensors
    return _softmax_derivative(shares, grad), None, None


def _softmax_forward(ctx: Any, saved: Any, x: Tensor | None, *others: Any) -> Tensor | None:
    return None if x is None else _softmax_derivative(saved[0], x)


softmax.register_derivatives(lambda ctx, inputs, output: keep(ctx, output), _softmax_backward, _softmax_forward)


@operator("palladio::attention")
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    causal: bool,
    scale: float | None,
    block_q: int | None,
    block_k: int | None,
    interpret: str,
) -> Tensor:
    """`palladio.library.attention`."""
    run: Callable[..., Tensor] = library.attention
    options = {"causal": causal, "scale": scale, "block_q": block_q, "block_k": block_k}
    out = run(q, k, v, **options, interpret=executor_named(interpret))
    return out if q.is_contiguous() else _ordered_like(q, _is_for_hopper((q, k, v), interpret), out)


@attention.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, *others: Any) -> Tensor:
    return _empty_like(q, _is_for_hopper((q, k, v), others[-1]), v.shape[-1])


def _empty_like(x: Tensor, in_place: bool, width: int | torch.SymInt) -> Tensor:
    """A result with the rows of x, and tokens before heads in memory where kernels take and return x so."""
    turned = tokens_first(x) if in_place else None
    if turned is None:
        return x.new_empty((*x.shape[:-1], width))
    made: Tensor = turned.new_empty((*turned.shape[:-1], width)).transpose(-3, -2)
    return made


def _ordered_like(x: Tensor, in_place: bool, result: Tensor) -> Tensor:
    """A result in the order in memory that `_empty_like` states, which graphs are compiled for."""
    if in_place and tokens_first(x) is not None:
        return result.transpose(-3, -2).contiguous().transpose(-3, -2)
    return result.contiguous()


def _attention_context(ctx: Any, inputs: Any, output: Tensor) -> None:
    q, k, v, ctx.causal, ctx.scale, _, _, ctx.interpret = inputs
    keep(ctx, q, k, v)


@operator("palladio::attention_gradients")
def attention_gradients(
    q: Tensor, k: Tensor, v: Tensor, grad: Tensor, causal: bool, scale: float | None, interpret: str
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of q, k and v: on Hopper by kernels that store no weights, else by the textbook derivative."""
    executor = executor_named(interpret)
    hopper = on_hopper(executor, (q, k, v))
    if hopper is None:
        found = _textbook_gradients(q, k, v, grad, causal, scale)
    else:
        options = {"causal": causal, "scale": scale, "interpret": executor}
        residuals = hopper.attention(q, k, v, save_residuals=True, **options)
        found = hopper.attention_vjp(q, k, v, *residuals, grad, **options)
    in_place = _is_for_hopper((q, k, v), interpret)
    of_q, of_k, of_v = (_ordered_like(x, in_place, each) for x, each in zip((q, k, v), found, strict=True))
    return of_q, of_k, of_v


@attention_gradients.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, *others: Any) -> tuple[Tensor, Tensor, Tensor]:
    in_place = _is_for_hopper((q, k, v), others[-1])
    of_q, of_k, of_v = (_empty_like(each, in_place, each.shape[-1]) for each in (q, k, v))
    return of_q, of_k, of_v


def _attention_backward(ctx: Any, grad: Tensor) -> Any:
    """The kernels for Hopper, as one operator in a compiled graph, unless the derivative is to be differentiated."""
    q, k, v = ctx.saved_tensors
    given = q, k, v, grad, ctx.causal, ctx.scale
    if not torch.is_grad_enabled() and _has_gradient_kernels(q, k, v, ctx.interpret):
        grads = apply(attention_gradients, *given, ctx.interpret)
    else:
        grads = _textbook_gradients(*given)
    return *grads, None, None, None, None, None


def _has_gradient_kernels(q: Tensor, k: Tensor, v: Tensor, interpret: str) -> bool:
    """True if kernels for Hopper may compute the gradients."""
    tensors, executor = (q, k, v), executor_named(interpret)
    if max(q.shape[-1], v.shape[-1]) > GRADIENT_WIDTH or is_transformed():
        return False
    if not torch._C._len_torch_dispatch_stack():
        return on_hopper(executor, tensors) is not None
    # A mode sees operators, as while PyTorch compiles.
    if any(hasattr(each, "placements") for each in tensors):
        return False  # distributed: PyTorch distributes the textbook derivative
    return _is_for_hopper(tensors, interpret) and 0 not in (*q.shape, *k.shape, *v.shape)


def _is_for_hopper(tensors: tuple[Tensor, Tensor, Tensor], interpret: str) -> bool:
    """True if kernels for Hopper compute attention of these, as `on_hopper` decides, by properties alone.

    Sizes are not tested for zero, since a graph may have sizes that are unknown while it is traced. Empty tensors have
    the same order in memory either way.
    """
    q, k, v = tensors
    there = interpret in EXECUTORS or (not interpret and all(each.is_cuda for each in tensors))
    narrow = max(q.shape[-1], v.shape[-1]) <= GRADIENT_WIDTH
    alike = q.dtype in _HALVES and q.dtype == k.dtype == v.dtype
    return there and narrow and alike


def _textbook_gradients(
    q: Tensor, k: Tensor, v: Tensor, grad: Tensor, causal: bool, scale: float | None
) -> tuple[Tensor, Tensor, Tensor]:
    """The derivative that computes the weights `[..., m, n]` again and holds them in memory."""
    wq, wk, wv, factor, weights = _attention_weights(q, k, v, causal, scale)
    wgrad = grad.to(wq.dtype)
    grad_weights = wgrad @ wv.mT
    grad_scores = _softmax_derivative(weights, grad_weights) * factor
    of_q = grad_scores @ wk
    of_k, of_v = _of_shared(grad_scores.mT @ wq, k), _of_shared(weights.mT @ wgrad, v)
    return of_q.to(q.dtype), of_k.to(k.dtype), of_v.to(v.dtype)


def _for_each_head(x: Tensor, q: Tensor) -> Tensor:
    """Keys or values, repeated for the heads of queries that share them."""
    shared = x.dim() > 2 and x.shape[-3] != q.shape[-3]
    return x.repeat_interleave(q.shape[-3] // x.shape[-3], -3) if shared else x


def _of_shared(grad: Tensor, x: Tensor) -> Tensor:
    """The gradient of keys or values, summed over the heads of queries that share them."""
    shared = x.dim() > 2 and x.shape[-3] != grad.shape[-3]
    if not shared:
        return grad
    group = grad.shape[-3] // x.shape[-3]
    return grad.reshape((*x.shape[:-2], group, *grad.shape[-2:])).sum(-3)


def _attention_weights(
    q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float | None
) -> tuple[Tensor, Tensor, Tensor, float, Tensor]:
    """Queries, keys and values of each head in float32 or wider, the scale, and the weights `[..., m, n]`."""
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    wq, wk, wv = widened(q), _for_each_head(widened(k), q), _for_each_head(widened(v), q)
    scores = wq @ wk.mT * scale
    if causal:
        scores = scores + torch.full_like(scores, -torch.inf).triu(1)
    return wq, wk, wv, scale, torch.softmax(scores, dim=-1)


def _attention_forward(
    ctx: Any, saved: Any, q: Tensor | None, k: Tensor | None, v: Tensor | None, *others: Any
) -> Tensor | None:
    """The textbook derivative, which holds the weights `[..., m, n]` in memory."""
    wq, wk, wv, scale, weights = _attention_weights(saved[0], saved[1], saved[2], ctx.causal, ctx.scale)
    scores = total(
        None if q is None else q.to(wq.dtype) @ wk.mT * scale,
        None if k is None else wq @ _for_each_head(k.to(wk.dtype), wq).mT * scale,
    )
    found = total(
        None if scores is None else _softmax_derivative(weights, scores) @ wv,
        None if v is None else weights @ _for_each_head(v.to(wv.dtype), wq),
    )
    return None if found is None else found.to(saved[2].dtype)


attention.register_derivatives(_attention_context, _attention_backward, _attention_forward)
