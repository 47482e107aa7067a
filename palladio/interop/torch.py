"""Palladio's library as PyTorch functions: gradients flow through them, second ones too.

    from palladio.interop.torch import gmm

Tensors are in host memory. The gradient of a grouped product is a grouped product, so `gmm` and `tgmm` are each other's
derivatives, and nothing else is needed however often one differentiates.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from palladio import library
from palladio.base.errors import PalladioError
from palladio.base.locations import caller_location
from palladio.interop.extras import each_tiling, missing
from palladio.library.checks import Tile, Tiling

try:
    import torch
except ImportError as error:
    raise missing("palladio.interop.torch", "PyTorch", "torch") from error

__all__ = ["gmm", "matmul", "softmax", "tgmm"]

Tensor = torch.Tensor


def gmm(
    lhs: Tensor,
    rhs: Tensor,
    group_sizes: Any,
    preferred_element_type: Any = None,
    tiling: Tiling | None = None,
    group_offset: Any = None,
    existing_out: Tensor | None = None,
    transpose_rhs: bool = False,
    interpret: Any = None,
) -> Tensor:
    """`palladio.library.gmm`, differentiable in `lhs`, `rhs` and `existing_out`.

    Args:
        lhs: `dtype[m, k]`, rows sorted by group.
        rhs: `dtype[g, k, n]`, or `dtype[g, n, k]` with `transpose_rhs`.
        group_sizes: `i32[groups]`: a tensor, an array or a list.
        preferred_element_type: the dtype of the result, that of the inputs if it is not given. Gradients have the
            dtypes of their tensors.
        tiling: of three entries, the first serves this product, the others the gradients of `lhs` and `rhs`.
        group_offset, existing_out, transpose_rhs, interpret: as in `palladio.library.gmm`.

    Returns:
        `preferred_element_type[m, n]`.

    Raises:
        PalladioError: as `palladio.library.gmm`.
    """
    options = (preferred_element_type, each_tiling(tiling), group_offset, transpose_rhs, interpret)
    return _apply(_Gmm, lhs, rhs, existing_out, group_sizes, options)


def tgmm(
    lhs: Tensor,
    rhs: Tensor,
    group_sizes: Any,
    preferred_element_type: Any = None,
    tiling: Tiling | None = None,
    group_offset: Any = None,
    num_actual_groups: int | None = None,
    existing_out: Tensor | None = None,
    interpret: Any = None,
) -> Tensor:
    """`palladio.library.tgmm`, differentiable in `lhs`, `rhs` and `existing_out`.

    Args:
        lhs: `dtype[k, m]`, columns sorted by group.
        rhs: `dtype[m, n]`, rows sorted by group.
        group_sizes: `i32[groups]`: a tensor, an array or a list.
        preferred_element_type: the dtype of the result, that of the inputs if it is not given. Gradients have the
            dtypes of their tensors.
        tiling: of three entries, the third serves this product, the first the gradient of `rhs`, the second that of
            `lhs`.
        group_offset, num_actual_groups, existing_out, interpret: as in `palladio.library.tgmm`.

    Returns:
        `preferred_element_type[num_actual_groups, k, n]`.

    Raises:
        PalladioError: as `palladio.library.tgmm`.
    """
    options = (preferred_element_type, each_tiling(tiling), group_offset, num_actual_groups, interpret)
    return _apply(_Tgmm, lhs, rhs, existing_out, group_sizes, options)


def matmul(
    x: Tensor,
    y: Tensor,
    *,
    preferred_element_type: Any = None,
    tiling: Tile | Callable[[int, int, int], Tile | None] | None = None,
    interpret: Any = None,
) -> Tensor:
    """`palladio.library.matmul`, differentiable: `dtype[m, k]` times `dtype[k, n]`.

    Raises:
        PalladioError: as `palladio.library.matmul`.
    """
    return _apply(_Matmul, x, y, (preferred_element_type, tiling, interpret))


def softmax(x: Tensor, *, block_rows: int | None = None, interpret: Any = None) -> Tensor:
    """`palladio.library.softmax` along the last axis of `dtype[..., n]`, differentiable.

    Raises:
        PalladioError: as `palladio.library.softmax`.
    """
    return _apply(_Softmax, x, block_rows, interpret)


def _apply(function: Any, *arguments: Any) -> Tensor:
    tensors = [each for each in arguments if isinstance(each, Tensor)]
    # What autograd does of its own takes longer than a small product.
    recorded = torch.is_grad_enabled() and any(each.requires_grad for each in tensors)
    try:
        result: Tensor = function.apply(*arguments) if recorded or _is_transformed() else function.forward(*arguments)
    except PalladioError as error:
        error.location = caller_location()  # the library takes the line of PyTorch that calls it for the user's
        raise
    return result


def _is_transformed() -> bool:
    """True if a transform of `torch.func` is at work, which has to see the function to refuse it."""
    level: int | None = torch._C._functorch.maybe_current_level()
    return level is not None


def _kept(indices: Any) -> Any:
    """Sizes or an offset as they are now: whoever changes them between forward and backward changes nothing here."""
    return indices.clone() if isinstance(indices, Tensor) else indices.copy() if hasattr(indices, "copy") else indices


class _Gmm(torch.autograd.Function):
    @staticmethod
    def forward(lhs: Tensor, rhs: Tensor, existing_out: Tensor | None, sizes: Any, options: Any) -> Tensor:
        dtype, tilings, offset, transpose_rhs, interpret = options
        out: Tensor = library.gmm(lhs, rhs, sizes, dtype, tilings, offset, existing_out, transpose_rhs, interpret)
        return out

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        lhs, rhs, _, sizes, (dtype, tilings, offset, *rest) = inputs
        ctx.sizes, ctx.options = _kept(sizes), (dtype, tilings, _kept(offset), *rest)
        ctx.save_for_backward(lhs, rhs)

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> Any:
        lhs, rhs = ctx.saved_tensors
        _, (forward, left, right), offset, transpose_rhs, interpret = ctx.options
        grad_lhs = grad_rhs = grad_existing = None
        if ctx.needs_input_grad[0]:
            tilings = (left, forward, right)
            grad_lhs = gmm(grad_out, rhs, ctx.sizes, lhs.dtype, tilings, offset, None, not transpose_rhs, interpret)
        if ctx.needs_input_grad[1]:
            x, y, tilings = (lhs, grad_out, (forward, left, right))
            if transpose_rhs:
                x, y, tilings = (grad_out, lhs, (left, forward, right))
            grad_rhs = tgmm(x.T, y, ctx.sizes, rhs.dtype, tilings, offset, rhs.shape[0], None, interpret)
        if ctx.needs_input_grad[2]:
            grad_existing = torch.where(_in_groups(ctx.sizes, offset, rhs.shape[0], lhs.shape[0]), 0, grad_out)
        return grad_lhs, grad_rhs, grad_existing, None, None


def _in_groups(sizes: Any, offset: Any, groups: int, m: int) -> Tensor:
    """Which rows belong to `groups` groups from `offset` on, `bool[m, 1]`."""
    ends = torch.cumsum(torch.as_tensor(sizes, dtype=torch.int64), 0)
    first = 0 if offset is None else int(offset)
    start = int(ends[first - 1]) if first else 0
    row = torch.arange(m)
    return ((row >= start) & (row < ends[first + groups - 1]))[:, None]


class _Tgmm(torch.autograd.Function):
    @staticmethod
    def forward(lhs: Tensor, rhs: Tensor, existing_out: Tensor | None, sizes: Any, options: Any) -> Tensor:
        dtype, tilings, offset, groups, interpret = options
        out: Tensor = library.tgmm(lhs, rhs, sizes, dtype, tilings, offset, groups, existing_out, interpret)
        return out

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        lhs, rhs, _, sizes, (dtype, tilings, offset, *rest) = inputs
        ctx.sizes, ctx.options = _kept(sizes), (dtype, tilings, _kept(offset), *rest)
        ctx.save_for_backward(lhs, rhs)

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> Any:
        lhs, rhs = ctx.saved_tensors
        _, (forward, left, right), offset, _, interpret = ctx.options
        first = 0 if offset is None else offset
        grad_lhs = grad_rhs = None
        if ctx.needs_input_grad[0]:
            tilings = (left, forward, right)
            grad_lhs = gmm(rhs, grad_out, ctx.sizes, lhs.dtype, tilings, first, None, True, interpret).T
        if ctx.needs_input_grad[1]:
            tilings = (forward, left, right)
            grad_rhs = gmm(lhs.T, grad_out, ctx.sizes, rhs.dtype, tilings, first, None, False, interpret)
        return grad_lhs, grad_rhs, grad_out if ctx.needs_input_grad[2] else None, None, None


class _Matmul(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor, y: Tensor, options: Any) -> Tensor:
        dtype, tiling, interpret = options
        out: Tensor = library.matmul(x, y, preferred_element_type=dtype, tiling=tiling, interpret=interpret)
        return out

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        x, y, ctx.options = inputs
        ctx.save_for_backward(x, y)

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> Any:
        x, y = ctx.saved_tensors
        _, tiling, interpret = ctx.options
        grad_x = grad_y = None
        if ctx.needs_input_grad[0]:
            grad_x = matmul(grad_out, y.T, preferred_element_type=x.dtype, tiling=tiling, interpret=interpret)
        if ctx.needs_input_grad[1]:
            grad_y = matmul(x.T, grad_out, preferred_element_type=y.dtype, tiling=tiling, interpret=interpret)
        return grad_x, grad_y, None


class _Softmax(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor, block_rows: int, interpret: Any) -> Tensor:
        out: Tensor = library.softmax(x, block_rows=block_rows, interpret=interpret)
        return out

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> Any:
        (shares,) = ctx.saved_tensors
        return shares * (grad_out - (grad_out * shares).sum(dim=-1, keepdim=True)), None, None
