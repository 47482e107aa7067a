"""The library's functions on tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from palladio import library
from palladio.base.errors import PalladioError, PalladioValueError
from palladio.base.locations import caller_location
from palladio.interop.extras import executor_name, tiles
from palladio.interop.torch import operators
from palladio.interop.torch.arguments import (
    dtype_of,
    index_like,
    require_tensors,
    under_autocast,
)
from palladio.interop.torch.derivatives import is_direct
from palladio.interop.torch.registration import apply
from palladio.library.checks import Tile, Tiling, fail, require_flag

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

    def call() -> Any:
        turned = require_flag(transpose_rhs, "transpose_rhs")
        others = tiling is not None or group_offset is not None or existing_out is not None
        if not others and is_direct((lhs, rhs, group_sizes)):
            dtype = dtype_of(preferred_element_type)
            return library.gmm(lhs, rhs, group_sizes, dtype, transpose_rhs=turned, interpret=interpret)
        require_tensors(lhs=lhs, rhs=rhs)
        x, w = under_autocast(lhs, rhs)
        return apply(
            operators.gmm,
            x,
            w,
            index_like(group_sizes, "group_sizes", lhs),
            None if group_offset is None else index_like(group_offset, "group_offset", lhs),
            existing_out,
            dtype_of(preferred_element_type),
            _grouped_tiles(tiling, lhs, rhs, turned),
            turned,
            executor_name(interpret),
        )

    return _located(call)


def _grouped_tiles(tiling: Any, lhs: Tensor, rhs: Tensor, transpose_rhs: bool) -> list[int]:
    if tiling is None or lhs.dim() != 2 or rhs.dim() != 3:  # the library reports wrong shapes
        return [0] * 9
    m, k = lhs.shape
    n = rhs.shape[1 if transpose_rhs else 2]
    return tiles(tiling, (m, k, n), (m, n, k), (m, k, n))


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
        group_offset, num_actual_groups, existing_out, interpret: as in `palladio.library.tgmm`. Without
            `num_actual_groups`, an offset has to be a number, since the shape of the result depends on it.

    Returns:
        `preferred_element_type[num_actual_groups, k, n]`.

    Raises:
        PalladioError: as `palladio.library.tgmm`.
    """

    def call() -> Any:
        require_tensors(lhs=lhs, rhs=rhs)
        x, y = under_autocast(lhs, rhs)
        sizes = index_like(group_sizes, "group_sizes", lhs)
        offset = None if group_offset is None else index_like(group_offset, "group_offset", lhs)
        groups = num_actual_groups
        if groups is None:
            _require_known(offset)
            groups = sizes.shape[0] - (0 if offset is None else int(offset))
        return apply(
            operators.tgmm,
            x,
            y,
            sizes,
            offset,
            existing_out,
            dtype_of(preferred_element_type),
            _transposed_tiles(tiling, lhs, rhs),
            groups,
            executor_name(interpret),
        )

    return _located(call)


def _require_known(offset: Tensor | None) -> None:
    """Refuse an offset that `vmap` batches where the shape of a result depends on it.

    Raises:
        PalladioValueError: for such an offset.
    """
    if offset is not None and torch._C._functorch.is_batchedtensor(offset):
        raise fail(
            PalladioValueError,
            "the shape of the result depends on a batch of group_offset",
            argument="num_actual_groups",
            expected="the number of groups to compute",
            got=None,
        )


def _transposed_tiles(tiling: Any, lhs: Tensor, rhs: Tensor) -> list[int]:
    if tiling is None or lhs.dim() != 2 or rhs.dim() != 2:
        return [0] * 9
    (k, m), n = lhs.shape, rhs.shape[1]
    return tiles(tiling, (m, k, n), (m, n, k), (m, k, n))


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

    def call() -> Any:
        require_tensors(x=x, y=y)
        a, b = under_autocast(x, y)
        found = [0] * 9
        if tiling is not None and x.dim() == y.dim() == 2:
            (m, k), n = x.shape, y.shape[1]
            found = tiles(tiling, (m, k, n), (m, n, k), (k, m, n))
        return apply(operators.matmul, a, b, dtype_of(preferred_element_type), found, executor_name(interpret))

    return _located(call)


def softmax(x: Tensor, *, block_rows: int | None = None, interpret: Any = None) -> Tensor:
    """`palladio.library.softmax` along the last axis of `dtype[..., n]`, differentiable.

    Raises:
        PalladioError: as `palladio.library.softmax`.
    """

    def call() -> Any:
        require_tensors(x=x)
        return apply(operators.softmax, x, block_rows, executor_name(interpret))

    return _located(call)


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    scale: float | None = None,
    block_q: int | None = None,
    block_k: int | None = None,
    interpret: Any = None,
) -> Tensor:
    """`palladio.library.attention`, differentiable: `softmax(q k^T * scale) v` for each head.

    Args:
        q, k, v: `dtype[..., m, d]`, `dtype[..., n, d]`, `dtype[..., n, e]`. The forward product's memory does not grow
            with m n; that of the gradient does, but for floats of 16 bits on Hopper. Keys and values may have fewer
            heads, as in `palladio.library.attention`.
        causal, scale, block_q, block_k, interpret: as in `palladio.library.attention`.

    Returns:
        `dtype[..., m, e]`.

    Raises:
        PalladioError: as `palladio.library.attention`.
    """

    def call() -> Any:
        require_tensors(q=q, k=k, v=v)
        queries, keys, values = under_autocast(q, k, v)
        number = None if scale is None else float(scale)
        options = (require_flag(causal, "causal"), number, block_q, block_k, executor_name(interpret))
        return apply(operators.attention, queries, keys, values, *options)

    return _located(call)


def _located(call: Callable[[], Any]) -> Tensor:
    """The result of a call; an error shows the user's line, not one of PyTorch's."""
    result: Tensor
    if torch.compiler.is_compiling():
        result = call()
        return result
    try:
        result = call()
        return result
    except PalladioError as error:
        error.location = caller_location()
        raise
