"""Palladio's library as JAX functions: under `jax.jit`, `jax.grad` and `jax.vmap`, on the CPU.

    from palladio.interop.jax import gmm

The kernels run through `jax.pure_callback`. Reverse-mode derivatives are given, second ones too; the gradient of a
grouped product is a grouped product, so `gmm` and `tgmm` are each other's derivatives. Shapes and dtypes are checked
when a function is traced; the values of traced group sizes, when it runs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from palladio import library
from palladio.call.jit import eval_shape
from palladio.interop.extras import each_tiling, missing
from palladio.library.checks import Tile, Tiling, group_sizes_of
from palladio.types.types import ShapeDtypeStruct

try:
    import jax
    import jax.numpy as jnp
except ImportError as error:
    raise missing("palladio.interop.jax", "JAX", "jax") from error

__all__ = ["gmm", "matmul", "softmax", "tgmm"]

Array = Any


def gmm(
    lhs: Array,
    rhs: Array,
    group_sizes: Array,
    preferred_element_type: Any = None,
    tiling: Tiling | None = None,
    group_offset: Array | None = None,
    existing_out: Array | None = None,
    transpose_rhs: bool = False,
    interpret: Any = None,
) -> Array:
    """`palladio.library.gmm`, differentiable in `lhs`, `rhs` and `existing_out`.

    Args:
        lhs: `dtype[m, k]`, rows sorted by group.
        rhs: `dtype[g, k, n]`, or `dtype[g, n, k]` with `transpose_rhs`.
        group_sizes: `i32[groups]`, traced or not.
        preferred_element_type: the dtype of the result, that of the inputs if it is not given. Gradients have the
            dtypes of their arrays.
        tiling: of three entries, the first serves this product, the others the gradients of `lhs` and `rhs`.
        group_offset, existing_out, transpose_rhs, interpret: as in `palladio.library.gmm`.

    Returns:
        `preferred_element_type[m, n]`.

    Raises:
        PalladioError: as `palladio.library.gmm`. Where group sizes are traced, JAX raises an error with this one's
            message when it runs.
    """
    forward, left, right = each_tiling(tiling)

    def run(lhs: Any, rhs: Any, sizes: Any, offset: Any, existing: Any) -> Any:
        dtype, tilings = preferred_element_type, (forward, left, right)
        return library.gmm(lhs, rhs, sizes, dtype, tilings, offset, existing, transpose_rhs, interpret)

    inputs = (lhs, rhs, _array(group_sizes), group_offset, existing_out)
    out_shape = _checked(run, *inputs)
    _check_sizes(inputs[2], lhs.shape[0])

    @jax.custom_vjp
    def product(*inputs: Any) -> Array:
        return _call(run, out_shape, *inputs)

    def save(*inputs: Any) -> tuple[Array, Any]:
        return product(*inputs), inputs

    def pullback(inputs: Any, grad_out: Array) -> Any:
        lhs, rhs, sizes, offset, existing = inputs
        tilings = (left, forward, right)
        grad_lhs = gmm(grad_out, rhs, sizes, lhs.dtype, tilings, offset, None, not transpose_rhs, interpret)
        x, y = (grad_out, lhs) if transpose_rhs else (lhs, grad_out)
        tilings = (left, forward, right) if transpose_rhs else (forward, left, right)
        grad_rhs = tgmm(x.T, y, sizes, rhs.dtype, tilings, offset, rhs.shape[0], None, interpret)
        own = None if existing is None else _in_groups(sizes, offset, rhs.shape[0], lhs.shape[0])
        return grad_lhs, grad_rhs, None, None, None if own is None else jnp.where(own, 0, grad_out)

    product.defvjp(save, pullback)
    return product(*inputs)


def _in_groups(sizes: Array, offset: Any, groups: int, m: int) -> Array:
    """Which rows belong to `groups` groups from `offset` on, `bool[m, 1]`."""
    first = 0 if offset is None else offset
    ends = jnp.concatenate([jnp.zeros(1, jnp.int32), jnp.cumsum(sizes, dtype=jnp.int32)])
    row = jnp.arange(m)
    return ((row >= ends[first]) & (row < ends[first + groups]))[:, None]


def tgmm(
    lhs: Array,
    rhs: Array,
    group_sizes: Array,
    preferred_element_type: Any = None,
    tiling: Tiling | None = None,
    group_offset: Array | None = None,
    num_actual_groups: int | None = None,
    existing_out: Array | None = None,
    interpret: Any = None,
) -> Array:
    """`palladio.library.tgmm`, differentiable in `lhs`, `rhs` and `existing_out`.

    Args:
        lhs: `dtype[k, m]`, columns sorted by group.
        rhs: `dtype[m, n]`, rows sorted by group.
        group_sizes: `i32[groups]`, traced or not.
        preferred_element_type: the dtype of the result, that of the inputs if it is not given. Gradients have the
            dtypes of their arrays.
        tiling: of three entries, the third serves this product, the first the gradient of `rhs`, the second that of
            `lhs`.
        group_offset, num_actual_groups, existing_out, interpret: as in `palladio.library.tgmm`.

    Returns:
        `preferred_element_type[num_actual_groups, k, n]`.

    Raises:
        PalladioError: as `palladio.library.tgmm`. Where group sizes are traced, JAX raises an error with this one's
            message when it runs.
    """
    forward, left, right = each_tiling(tiling)

    def run(lhs: Any, rhs: Any, sizes: Any, offset: Any, existing: Any) -> Any:
        dtype, tilings = preferred_element_type, (forward, left, right)
        return library.tgmm(lhs, rhs, sizes, dtype, tilings, offset, num_actual_groups, existing, interpret)

    inputs = (lhs, rhs, _array(group_sizes), group_offset, existing_out)
    out_shape = _checked(run, *inputs)
    _check_sizes(inputs[2], rhs.shape[0])

    @jax.custom_vjp
    def product(*inputs: Any) -> Array:
        return _call(run, out_shape, *inputs)

    def save(*inputs: Any) -> tuple[Array, Any]:
        return product(*inputs), inputs

    def pullback(inputs: Any, grad_out: Array) -> Any:
        lhs, rhs, sizes, offset, existing = inputs
        first = 0 if offset is None else offset
        grad_lhs = gmm(rhs, grad_out, sizes, lhs.dtype, (left, forward, right), first, None, True, interpret).T
        grad_rhs = gmm(lhs.T, grad_out, sizes, rhs.dtype, (forward, left, right), first, None, False, interpret)
        return grad_lhs, grad_rhs, None, None, None if existing is None else grad_out

    product.defvjp(save, pullback)
    return product(*inputs)


def matmul(
    x: Array,
    y: Array,
    *,
    preferred_element_type: Any = None,
    tiling: Tile | Callable[[int, int, int], Tile | None] | None = None,
    interpret: Any = None,
) -> Array:
    """`palladio.library.matmul`, differentiable: `dtype[m, k]` times `dtype[k, n]`.

    Raises:
        PalladioError: as `palladio.library.matmul`.
    """
    options = {"tiling": tiling, "interpret": interpret}
    run = partial(library.matmul, preferred_element_type=preferred_element_type, **options)
    out_shape = _checked(run, x, y)

    @jax.custom_vjp
    def product(x: Array, y: Array) -> Array:
        return _call(run, out_shape, x, y)

    def pullback(inputs: Any, grad_out: Array) -> Any:
        x, y = inputs
        grad_x = matmul(grad_out, y.T, preferred_element_type=x.dtype, **options)
        return grad_x, matmul(x.T, grad_out, preferred_element_type=y.dtype, **options)

    product.defvjp(lambda x, y: (product(x, y), (x, y)), pullback)
    return product(x, y)


def softmax(x: Array, *, block_rows: int | None = None, interpret: Any = None) -> Array:
    """`palladio.library.softmax` along the last axis of `dtype[..., n]`, differentiable.

    Raises:
        PalladioError: as `palladio.library.softmax`.
    """
    run = partial(library.softmax, block_rows=block_rows, interpret=interpret)
    out_shape = _checked(run, x)

    @jax.custom_vjp
    def shares(x: Array) -> Array:
        return _call(run, out_shape, x)

    def save(x: Array) -> tuple[Array, Array]:
        found = shares(x)
        return found, found

    def pullback(found: Array, grad_out: Array) -> tuple[Array]:
        return (found * (grad_out - (grad_out * found).sum(axis=-1, keepdims=True)),)

    shares.defvjp(save, pullback)
    return shares(x)


def _array(indices: Any) -> Any:
    """Group sizes as an array; what is none is left to the library to refuse."""
    return jnp.asarray(indices) if isinstance(indices, (list, tuple, np.ndarray)) else indices


def _check_sizes(sizes: Any, m: int) -> None:
    """Group sizes that are known are checked at once, not when the callback runs."""
    if not isinstance(sizes, jax.core.Tracer):
        group_sizes_of(np.asarray(sizes), m)


def _checked(run: Callable[..., Any], *arguments: Any) -> Any:
    """The shape and dtype of what a function of the library would return, some of whose arguments may be None.

    Raises:
        PalladioError: for what the library refuses of these shapes and dtypes.
    """
    present = {
        str(n): ShapeDtypeStruct(np.shape(each), each.dtype)
        for n, each in enumerate(arguments)
        if hasattr(each, "dtype")
    }

    def flat(present: Any) -> Any:
        return run(*(present.get(str(n), each) for n, each in enumerate(arguments)))

    result = eval_shape(flat, present)
    return jax.ShapeDtypeStruct(result.shape, result.dtype)  # type: ignore[no-untyped-call]


def _call(run: Callable[..., Any], out_shape: Any, *arguments: Any) -> Array:
    """A function of the library on JAX arrays, traced or not, some of which may be None."""
    present = [argument for argument in arguments if argument is not None]

    def call(*arrays: Any) -> Any:
        given = (np.asarray(array) for array in arrays)
        return np.asarray(run(*(None if argument is None else next(given) for argument in arguments)))

    return jax.pure_callback(call, out_shape, *present, vmap_method="sequential")
