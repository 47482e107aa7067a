"""The products of the library as primitives of JAX: `gmm`, `tgmm` and `matmul`, each linear in two operands.

A primitive has the rules that JAX needs: the type of its result, lowering, tangent, transpose, batching and sharding.
The tangent and the transpose of a product are again products of these kinds.

    gmm(lhs, rhs)          tangents: gmm(dlhs, rhs), gmm(lhs, drhs)       transposes: gmm(ct, rhs^T), tgmm(lhs^T, ct)
    tgmm(lhs, rhs)         tangents: tgmm(dlhs, rhs), tgmm(lhs, drhs)     transposes: gmm(rhs, ct^T)^T, gmm(lhs^T, ct)
    matmul(x, y)           tangents: matmul(dx, y), matmul(x, dy)         transposes: matmul(ct, y^T), matmul(x^T, ct)
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.experimental.custom_partitioning
import jax.extend.core
import jax.interpreters.ad
import jax.interpreters.batching
import jax.interpreters.mlir
import jax.numpy as jnp
import numpy as np

from palladio import library
from palladio.base.dataclass import dataclass
from palladio.interop.extras import executor_named
from palladio.interop.jax import foreign
from palladio.types.dtypes import canonical

Array = Any
Tiles = tuple[int, ...]

# These parts of JAX have no type annotations.
ad: Any = jax.interpreters.ad
batching: Any = jax.interpreters.batching
mlir: Any = jax.interpreters.mlir
sharding: Any = jax.sharding

FORWARD, LEFT, RIGHT = range(3)


@dataclass(frozen=True)
class Product:
    """The static arguments of a product.

    Fields:
        kind: "gmm", "tgmm" or "matmul".
        dtype: of the result, by name.
        tiling: nine entries, (tm, tk, tn) of the forward product, the left and the right gradient; zeros let the
            library choose.
        transposed: of `gmm`, whether the matrices of `rhs` are.
        groups: of `tgmm`, the number of groups.
        interpret: the executor, by name.
        place: the line of the user's call.
    """

    kind: str
    dtype: str
    tiling: Tiles
    transposed: bool
    groups: int
    interpret: str
    place: str

    def shape(self, lhs: Sequence[int], rhs: Sequence[int]) -> tuple[int, ...]:
        """The shape of the result. Groups of `tgmm` are rows: `[groups * k, n]`, so that all results are matrices."""
        if self.kind == "gmm":
            return (lhs[0], rhs[1 if self.transposed else 2])
        return (lhs[0] * (self.groups if self.kind == "tgmm" else 1), rhs[1])

    def like(self, kind: str, dtype: Any, order: Sequence[int], **fields: Any) -> Product:
        """Another product, computed for a derivative of this one, with the tilings in another order."""
        tiling = tuple(size for each in order for size in self.tiling[3 * each : 3 * each + 3])
        return replace(self, kind=kind, dtype=np.dtype(dtype).name, tiling=tiling, **fields)

    @property
    def options(self) -> dict[str, Any]:
        """The static arguments as plain values."""
        found = {"dtype": self.dtype, "tile": self.tiling[:3], "interpret": self.interpret, "place": self.place}
        return found | ({"transposed": self.transposed} if self.kind == "gmm" else {})


def _run_gmm(
    lhs: Array,
    rhs: Array,
    sizes: Array,
    offset: Array,
    *,
    out: Array,
    dtype: str,
    tile: Sequence[int],
    interpret: str,
    transposed: bool,
) -> None:
    tiling: Any = tuple(tile) if tile[0] else None
    chosen = executor_named(interpret)
    library.gmm(lhs, rhs, sizes, canonical(dtype), tiling, offset, None, transposed, chosen, out=out)


def _run_tgmm(
    lhs: Array,
    rhs: Array,
    sizes: Array,
    offset: Array,
    *,
    out: Array,
    dtype: str,
    tile: Sequence[int],
    interpret: str,
) -> None:
    tiling: Any = tuple(tile) if tile[0] else None
    groups = out.shape[0] // lhs.shape[0] if lhs.shape[0] else 0
    target = out.reshape(groups, lhs.shape[0], out.shape[1])
    library.tgmm(
        lhs, rhs, sizes, canonical(dtype), (tiling,) * 3, offset, groups, None, executor_named(interpret), out=target
    )


def _run_matmul(x: Array, y: Array, *, out: Array, dtype: str, tile: Sequence[int], interpret: str) -> None:
    tiling: Any = tuple(tile) if tile[0] else None
    chosen = executor_named(interpret)
    library.matmul(x, y, preferred_element_type=canonical(dtype), tiling=tiling, interpret=chosen, out=out)


foreign.FUNCTIONS.update(gmm=_run_gmm, tgmm=_run_tgmm, matmul=_run_matmul)

product_p: Any = jax.extend.core.Primitive("palladio_product")


def product(static: Product, lhs: Array, rhs: Array, *indices: Array | None) -> Array:
    """A product; the group sizes and an offset, where there is one, are the indices."""
    operands = together(lhs, rhs, *(each for each in indices if each is not None))
    return product_p.bind(*operands, static=static)


def together(*arrays: Array) -> Sequence[Array]:
    """Arrays that vary over the same axes of `jax.shard_map`: replicated ones are treated as varying."""
    axes = [_varying(jax.typeof(each)) for each in arrays]
    union = frozenset().union(*axes)
    return [
        jax.lax.pcast(each, tuple(union - own), to="varying") if union - own else each
        for each, own in zip(arrays, axes, strict=True)
    ]


def _varying(type: Any) -> frozenset[str]:
    """The manual axes that an array varies over, which JAX 0.10 names differently from older versions."""
    own = getattr(getattr(type, "manual_axis_type", None), "varying", None)
    return own if own is not None else getattr(type, "vma", frozenset())


def _called(*operands: Array, static: Product) -> Array:
    lhs, rhs, *indices = operands
    out = jax.ShapeDtypeStruct(static.shape(lhs.shape, rhs.shape), canonical(static.dtype))  # type: ignore[no-untyped-call]
    given = [lhs, rhs] if static.kind == "matmul" else [lhs, rhs, indices[0], indices[1] if len(indices) > 1 else None]
    return foreign.call(static.kind, static.options, out, given)


def _abstract(*operands: Any, static: Product) -> Any:
    lhs, rhs = operands[:2]
    return lhs.update(shape=static.shape(lhs.shape, rhs.shape), dtype=canonical(static.dtype), weak_type=False)


product_p.def_impl(lambda *operands, static: _called(*operands, static=static))
product_p.def_abstract_eval(_abstract)


# Derivatives.


def _jvp(primals: Sequence[Array], tangents: Sequence[Any], *, static: Product) -> tuple[Array, Any]:
    lhs, rhs, *indices = primals
    dlhs, drhs = tangents[:2]
    found = product_p.bind(*primals, static=static)
    parts = []
    if type(dlhs) is not ad.Zero:
        parts.append(product(static, dlhs, rhs, *indices))
    if type(drhs) is not ad.Zero:
        parts.append(product(static, lhs, drhs, *indices))
    if not parts:
        return found, ad.Zero(jax.typeof(found).to_tangent_aval())
    return found, functools.reduce(ad.add_tangents, parts)


def _transpose(ct: Any, lhs: Any, rhs: Any, *indices: Array, static: Product) -> Sequence[Any]:
    nothing = [None] * len(indices)
    if type(ct) is ad.Zero:
        return [None, None, *nothing]
    rule = _TRANSPOSES[static.kind]
    if ad.is_undefined_primal(lhs):
        return [rule[0](static, ct, lhs.aval, rhs, *indices), None, *nothing]
    return [None, rule[1](static, ct, lhs, rhs.aval, *indices), *nothing]


def _gmm_left(static: Product, ct: Array, lhs: Any, rhs: Array, *indices: Array) -> Array:
    other = static.like("gmm", lhs.dtype, (LEFT, FORWARD, RIGHT), transposed=not static.transposed)
    return product(other, ct, rhs, *indices)


def _gmm_right(static: Product, ct: Array, lhs: Array, rhs: Any, *indices: Array) -> Array:
    x, y, order = (ct, lhs, (RIGHT, FORWARD, LEFT)) if static.transposed else (lhs, ct, (RIGHT, LEFT, FORWARD))
    other = static.like("tgmm", rhs.dtype, order, groups=rhs.shape[0])
    return product(other, x.T, y, *indices).reshape(rhs.shape)


def _tgmm_left(static: Product, ct: Array, lhs: Any, rhs: Array, *indices: Array) -> Array:
    other = static.like("gmm", lhs.dtype, (LEFT, RIGHT, FORWARD), transposed=True)
    return product(other, rhs, ct.reshape(static.groups, lhs.shape[0], rhs.shape[1]), *indices).T


def _tgmm_right(static: Product, ct: Array, lhs: Array, rhs: Any, *indices: Array) -> Array:
    other = static.like("gmm", rhs.dtype, (RIGHT, LEFT, FORWARD), transposed=False)
    return product(other, lhs.T, ct.reshape(static.groups, lhs.shape[0], rhs.shape[1]), *indices)


def _matmul_left(static: Product, ct: Array, x: Any, y: Array) -> Array:
    return product(static.like("matmul", x.dtype, (LEFT, FORWARD, RIGHT)), ct, y.T)


def _matmul_right(static: Product, ct: Array, x: Array, y: Any) -> Array:
    return product(static.like("matmul", y.dtype, (RIGHT, LEFT, FORWARD)), x.T, ct)


_TRANSPOSES: dict[str, tuple[Callable[..., Array], Callable[..., Array]]] = {
    "gmm": (_gmm_left, _gmm_right),
    "tgmm": (_tgmm_left, _tgmm_right),
    "matmul": (_matmul_left, _matmul_right),
}

ad.primitive_jvps[product_p] = _jvp
ad.primitive_transposes[product_p] = _transpose


# Batches: one product after another.


def _batched(operands: Sequence[Array], axes: Sequence[Any], *, static: Product) -> tuple[Array, int]:
    mapped = [jnp.moveaxis(each, axis, 0) for each, axis in zip(operands, axes, strict=True) if axis is not None]

    def one(elements: Sequence[Array]) -> Array:
        left = iter(elements)
        return product_p.bind(
            *(each if axis is None else next(left) for each, axis in zip(operands, axes, strict=True)), static=static
        )

    return jax.lax.map(one, mapped), 0


batching.primitive_batchers[product_p] = _batched


# Shards: columns of the right operand, and rows of the left one of a dense product.

_RULES = {"gmm": "m k, g k n", "gmm transposed": "m k, g n k", "tgmm": "k m, m n", "matmul": "m k, k n"}
_SHARDED = {"gmm": "n", "tgmm": "n", "matmul": "mn"}


@functools.lru_cache(1024)
def _partitioned(static: Product, indices: int) -> Any:
    """The call of a product, with its rule for XLA's partitioner."""

    def run(*operands: Array) -> Array:
        return _called(*operands, static=static)

    function: Any = jax.experimental.custom_partitioning.custom_partitioning(run)  # type: ignore[no-untyped-call]
    operands = _RULES["gmm transposed" if static.kind == "gmm" and static.transposed else static.kind]
    operands += "".join([", s", ", "][:indices])
    result = {"gmm": "m n", "tgmm": "r n", "matmul": "m n"}[static.kind]
    factors = dict.fromkeys((operands + result).replace(",", "").replace(" ", ""))  # in order of appearance
    fixed = tuple(each for each in factors if each not in _SHARDED[static.kind])

    def partition(mesh: Any, arguments: Any, found: Any) -> Any:
        spec = list(found.sharding.spec) + [None] * (2 - len(found.sharding.spec))
        left, right = (spec[0] if static.kind == "matmul" else None), spec[1]
        columns = 1 if static.kind == "gmm" and static.transposed else len(arguments[1].shape) - 1
        placed = [None] * len(arguments[1].shape)
        placed[columns] = right
        specs = [(left, None), placed, *([None] * len(each.shape) for each in arguments[2:])]
        return (
            mesh,
            run,
            sharding.NamedSharding(mesh, sharding.PartitionSpec(left, right)),
            tuple(sharding.NamedSharding(mesh, sharding.PartitionSpec(*each)) for each in specs),
        )

    function.def_partition(partition, sharding_rule=f"{operands} -> {result}", need_replication_factors=fixed)
    return function


def lower(context: Any, operands: Sequence[Any], run: Callable[..., Array], partitioned: Callable[[], Any]) -> Any:
    """Lower a call of a primitive: `run`, or `partitioned()` where several devices share a program."""
    where = context.module_context.axis_context
    shared = len(getattr(where, "device_assignment", None) or ()) > 1
    return mlir.lower_fun(partitioned() if shared else run, multiple_results=False)(context, *operands)


def register_lowering(primitive: Any, rule: Callable[..., Any]) -> None:
    """Register a primitive's rule for lowering, which needs the devices."""
    mlir.register_lowering(primitive, rule)
    try:  # JAX passes the devices to a lowering only on request, and has no public API for the request
        from jax._src.dispatch import prim_requires_devices_during_lowering
    except ImportError:
        return  # sharded operands are gathered then
    prim_requires_devices_during_lowering.add(primitive)


def _lower(context: Any, *operands: Any, static: Product) -> Any:
    run = functools.partial(_called, static=static)
    return lower(context, operands, run, lambda: _partitioned(static, len(operands) - 2))


register_lowering(product_p, _lower)
