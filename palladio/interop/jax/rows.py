"""Functions of the last axes of their arrays as a primitive of JAX: `softmax` of rows, `attention` of heads.

The leading axes are independent: a batch is one more of them, and each device computes its own part of the sharded
ones. The derivatives are in `functions`.
"""

from __future__ import annotations

import functools
import json
import string
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.experimental.custom_partitioning
import jax.extend.core
import jax.interpreters.batching
import jax.numpy as jnp

from palladio import library
from palladio.base.dataclass import dataclass
from palladio.interop.extras import executor_named
from palladio.interop.jax import foreign
from palladio.interop.jax.primitives import lower, register_lowering, together

Array = Any
# These parts of JAX have no type annotations.
batching: Any = jax.interpreters.batching
sharding: Any = jax.sharding


@dataclass(frozen=True)
class Rows:
    """The static arguments of a call.

    Fields:
        kind: "softmax" or "attention".
        options: of the library's function, as JSON.
    """

    kind: str
    options: str

    @property
    def letters(self) -> tuple[Sequence[str], str]:
        """The last axes of the operands and of the result; axes with the same letter have the same size."""
        return {"softmax": (("n",), "n"), "attention": (("md", "nd", "ne"), "me")}[self.kind]

    def shape(self, operands: Sequence[Any]) -> tuple[int, ...]:
        """The shape of the result."""
        given, out = self.letters
        sizes = {
            letter: size
            for letters, operand in zip(given, operands, strict=True)
            for letter, size in zip(letters, operand.shape[-len(letters) :], strict=True)
        }
        return (*operands[0].shape[: -len(given[0])], *(sizes[letter] for letter in out))


rows_p: Any = jax.extend.core.Primitive("palladio_rows")


def rows(kind: str, options: dict[str, Any], *operands: Array) -> Array:
    """A call of a function of the library; its options are plain values."""
    return rows_p.bind(*together(*operands), static=Rows(kind, json.dumps(options)))


def _called(*operands: Array, static: Rows) -> Array:
    out = jax.ShapeDtypeStruct(static.shape(operands), operands[0].dtype)  # type: ignore[no-untyped-call]
    return foreign.call(static.kind, json.loads(static.options), out, operands)


rows_p.def_impl(lambda *operands, static: _called(*operands, static=static))
rows_p.def_abstract_eval(lambda *operands, static: operands[0].update(shape=static.shape(operands), weak_type=False))


def _batched(operands: Sequence[Array], axes: Sequence[Any], *, static: Rows) -> tuple[Array, int]:
    size = next(each.shape[axis] for each, axis in zip(operands, axes, strict=True) if axis is not None)
    mapped = [
        jnp.broadcast_to(each, (size, *each.shape)) if axis is None else jnp.moveaxis(each, axis, 0)
        for each, axis in zip(operands, axes, strict=True)
    ]
    return rows_p.bind(*mapped, static=static), 0


batching.primitive_batchers[rows_p] = _batched


@functools.lru_cache(1024)
def _partitioned(static: Rows, leading: int) -> Any:
    """The call, with its rule for XLA's partitioner: the leading axes may be sharded."""

    def run(*operands: Array) -> Array:
        return _called(*operands, static=static)

    function: Any = jax.experimental.custom_partitioning.custom_partitioning(run)  # type: ignore[no-untyped-call]
    given, out = static.letters
    first = string.ascii_uppercase[:leading]
    terms = [" ".join(first + letters) for letters in (*given, out)]

    def partition(mesh: Any, arguments: Any, found: Any) -> Any:
        cut = (list(found.sharding.spec) + [None] * leading)[:leading]
        placed = [
            sharding.NamedSharding(mesh, sharding.PartitionSpec(*cut, *[None] * len(letters)))
            for letters in (*given, out)
        ]
        return mesh, run, placed[-1], tuple(placed[:-1])

    fixed = tuple(dict.fromkeys("".join((*given, out))))
    rule = f"{', '.join(terms[:-1])} -> {terms[-1]}"
    function.def_partition(partition, sharding_rule=rule, need_replication_factors=fixed)
    return function


def _lower(context: Any, *operands: Any, static: Rows) -> Any:
    leading = len(context.avals_in[0].shape) - len(static.letters[0][0])
    return lower(context, operands, functools.partial(_called, static=static), lambda: _partitioned(static, leading))


register_lowering(rows_p, _lower)


def _run_softmax(x: Any, *, out: Any, block_rows: int | None, interpret: str) -> None:
    library.softmax(x, block_rows=block_rows, interpret=executor_named(interpret), out=out)


def _run_attention(q: Any, k: Any, v: Any, *, out: Any, interpret: str, **options: Any) -> None:
    library.attention(q, k, v, interpret=executor_named(interpret), out=out, **options)


_RUN: dict[str, Callable[..., None]] = {"softmax": _run_softmax, "attention": _run_attention}
foreign.FUNCTIONS.update(_RUN)
