"""The library's functions on JAX arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from palladio import library
from palladio.base.errors import PalladioNotImplementedError, at_call
from palladio.call.jit import eval_shape
from palladio.interop.extras import executor_name, tiles
from palladio.interop.jax import foreign
from palladio.interop.jax.primitives import Product, product
from palladio.interop.jax.rows import rows
from palladio.library.checks import Tile, Tiling, group_sizes_of
from palladio.types.types import ShapeDtypeStruct

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
        rhs: `dtype[g, k, n]`, or `dtype[g, n, k]` with `transpose_rhs`. Under `jax.jit` it may be sharded along n, and
            then so is the result.
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

    def run(lhs: Any, rhs: Any, sizes: Any, offset: Any, existing: Any) -> Any:
        return library.gmm(lhs, rhs, sizes, preferred_element_type, tiling, offset, existing, transpose_rhs, interpret)

    sizes = _array(group_sizes)
    out = _checked(run, lhs, rhs, sizes, group_offset, existing_out)
    _check_sizes(sizes, lhs.shape[0])
    (m, k), n = lhs.shape, rhs.shape[1 if transpose_rhs else 2]
    static = Product(
        "gmm",
        np.dtype(out.dtype).name,
        tuple(tiles(tiling, (m, k, n), (m, n, k), (m, k, n))),
        bool(transpose_rhs),
        0,
        executor_name(interpret),
        foreign.here(),
    )
    found = product(static, lhs, rhs, sizes, *_indices(group_offset))
    if existing_out is None:
        return found
    return jnp.where(_in_groups(sizes, group_offset, rhs.shape[0], m), found, existing_out)


def _in_groups(sizes: Array, offset: Any, groups: int, m: int) -> Array:
    """True for the rows of `groups` groups from `offset` on, `bool[m, 1]`."""
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
        rhs: `dtype[m, n]`, rows sorted by group. Under `jax.jit` it may be sharded along n, and then so is the result.
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

    def run(lhs: Any, rhs: Any, sizes: Any, offset: Any, existing: Any) -> Any:
        return library.tgmm(
            lhs, rhs, sizes, preferred_element_type, tiling, offset, num_actual_groups, existing, interpret
        )

    sizes = _array(group_sizes)
    out = _checked(run, lhs, rhs, sizes, group_offset, existing_out)
    _check_sizes(sizes, rhs.shape[0])
    (k, m), n = lhs.shape, rhs.shape[1]
    found = tiles(tiling, (m, k, n), (m, n, k), (m, k, n))
    wide = out.dtype if existing_out is None else jnp.promote_types(out.dtype, jnp.float32)
    static = Product(
        "tgmm",
        np.dtype(wide).name,
        (*found[6:], *found[3:6], *found[:3]),
        False,
        out.shape[0],
        executor_name(interpret),
        foreign.here(),
    )
    result = product(static, lhs, rhs, sizes, *_indices(group_offset)).reshape(out.shape)
    return result if existing_out is None else (result + existing_out).astype(out.dtype)


def matmul(
    x: Array,
    y: Array,
    *,
    preferred_element_type: Any = None,
    tiling: Tile | Callable[[int, int, int], Tile | None] | None = None,
    interpret: Any = None,
) -> Array:
    """`palladio.library.matmul`, differentiable: `dtype[m, k]` times `dtype[k, n]`.

    Under `jax.jit` the rows of `x` and the columns of `y` may be sharded, and then so is the result.

    Raises:
        PalladioError: as `palladio.library.matmul`.
    """

    def run(x: Any, y: Any) -> Any:
        return library.matmul(x, y, preferred_element_type=preferred_element_type, tiling=tiling, interpret=interpret)

    out = _checked(run, x, y)
    (m, k), n = x.shape, y.shape[1]
    found = tuple(tiles(tiling, (m, k, n), (m, n, k), (k, m, n)))
    name = np.dtype(out.dtype).name
    return product(Product("matmul", name, found, False, 0, executor_name(interpret), foreign.here()), x, y)


def softmax(x: Array, *, block_rows: int | None = None, interpret: Any = None) -> Array:
    """`palladio.library.softmax` along the last axis of `dtype[..., n]`, differentiable.

    Raises:
        PalladioError: as `palladio.library.softmax`.
    """

    def run(x: Any) -> Any:
        return library.softmax(x, block_rows=block_rows, interpret=interpret)

    _checked(run, x)
    options = {"block_rows": block_rows, "interpret": executor_name(interpret), "place": foreign.here()}

    @jax.custom_jvp
    def shares(x: Array) -> Array:
        return rows("softmax", options, x)

    @shares.defjvp
    def _(primals: Any, tangents: Any) -> tuple[Array, Array]:
        found = shares(*primals)
        return found, _softmax_tangent(found, *tangents)

    return shares(x)


def _softmax_tangent(shares: Array, tangent: Array) -> Array:
    return shares * (tangent - (tangent * shares).sum(axis=-1, keepdims=True))


def attention(
    q: Array,
    k: Array,
    v: Array,
    *,
    causal: bool = False,
    scale: float | None = None,
    block_q: int | None = None,
    block_k: int | None = None,
    interpret: Any = None,
) -> Array:
    """`palladio.library.attention`, differentiable: `softmax(q k^T * scale) v` for each head.

    Args:
        q, k, v: `dtype[..., m, d]`, `dtype[..., n, d]`, `dtype[..., n, e]`. The memory of the result's computation does
            not grow with m n; that of derivatives does. Under `jax.jit` the leading axes may be sharded, and then so
            are those of the result. Keys and values of fewer heads are repeated for all heads of queries.
        causal, scale, block_q, block_k, interpret: as in `palladio.library.attention`.

    Returns:
        `dtype[..., m, e]`.

    Raises:
        PalladioError: as `palladio.library.attention`.
    """
    given = {"causal": causal, "scale": scale, "block_q": block_q, "block_k": block_k}

    def run(q: Any, k: Any, v: Any) -> Any:
        return library.attention(q, k, v, **given, interpret=interpret)  # type: ignore[arg-type]

    _checked(run, q, k, v)
    if k.shape[:-2] != q.shape[:-2]:
        k, v = (jnp.repeat(each, q.shape[-3] // k.shape[-3], axis=-3) for each in (k, v))
    factor = float(q.shape[-1] ** -0.5 if scale is None else scale)
    own = {"causal": bool(causal), "scale": factor, "interpret": executor_name(interpret), "place": foreign.here()}

    @jax.custom_jvp
    def attend(q: Array, k: Array, v: Array) -> Array:
        return rows("attention", given | own, q, k, v)

    @attend.defjvp
    def _(primals: Any, tangents: Any) -> tuple[Array, Array]:
        return attend(*primals), _attention_tangent(primals, tangents, bool(causal), factor)

    return attend(q, k, v)


def _attention_tangent(primals: Any, tangents: Any, causal: bool, scale: float) -> Array:
    """The textbook derivative, which holds the weights `[..., m, n]` in memory."""
    dtype = jnp.promote_types(primals[0].dtype, jnp.float32)
    q, k, v = (each.astype(dtype) for each in primals)
    dq, dk, dv = (each.astype(dtype) for each in tangents)
    scores = q @ k.mT * scale
    if causal:
        scores = jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, -jnp.inf)
    weights = jax.nn.softmax(scores, axis=-1)
    tangent = _softmax_tangent(weights, (dq @ k.mT + q @ dk.mT) * scale)
    return (tangent @ v + weights @ dv).astype(primals[2].dtype)


def _indices(offset: Any) -> tuple[Array, ...]:
    return () if offset is None else (jnp.asarray(offset, jnp.int32),)


def _array(indices: Any) -> Any:
    """Group sizes as an array; the library refuses anything else."""
    return jnp.asarray(indices) if isinstance(indices, (list, tuple, np.ndarray)) else indices


def _check_sizes(sizes: Any, m: int) -> None:
    """Check known group sizes immediately, not when the product runs."""
    if not isinstance(sizes, jax.core.Tracer):
        group_sizes_of(np.asarray(sizes), m)


def _checked(run: Callable[..., Any], *arguments: Any) -> Any:
    """The shape and dtype of the result of a function of the library; arguments may be None.

    Raises:
        PalladioNotImplementedError: a size is a symbol of `jax.export`.
        PalladioError: for shapes and dtypes that the library refuses.
    """
    for each in arguments:
        if not all(isinstance(size, int) for size in np.shape(each)):
            rule, hint = "kernels are compiled for sizes that are numbers", "export the function once for each size"
            with at_call():
                raise PalladioNotImplementedError(rule, got=f"an array of shape {np.shape(each)}", hint=hint)
    present = {
        str(n): ShapeDtypeStruct(np.shape(each), each.dtype)
        for n, each in enumerate(arguments)
        if hasattr(each, "dtype")
    }

    def flat(present: Any) -> Any:
        return run(*(present.get(str(n), each) for n, each in enumerate(arguments)))

    return eval_shape(flat, present)
