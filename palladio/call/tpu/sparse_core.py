"""The functions of Pallas' namespace for sparse cores: gathers, scatters and scans of vectors, and a barrier.

A vector sub-core of a TPU computes with vectors of a fixed length; here any length is allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

import numpy as np

from palladio.array import convert
from palladio.array.convert import Array, ArrayLike
from palladio.array.functions import bits, compare, creation, indexing, order, shape
from palladio.array.functions import reduce as reduction
from palladio.base import trees
from palladio.base.errors import PalladioTypeError, PalladioValueError
from palladio.trace import access, control, semaphores
from palladio.trace.dma import core_ref, enclosing_cores, semaphore_signal
from palladio.trace.grid import axis_index, axis_size
from palladio.trace.reference import Reference
from palladio.types import dtypes


class PackFormat(Enum):
    """How `pack` puts two vectors together.

    COMPRESSED: `[a0, a1], [b0, b1]` are `[[a0, b0], [a1, b1]]`.
    INTERLEAVED: they are `[a0, b0, a1, b1]`.
    """

    COMPRESSED = "compressed"
    INTERLEAVED = "interleaved"


_NARROWER = {dtypes.FLOAT32: dtypes.BFLOAT16, dtypes.INT32: dtypes.canonical("int16")}
_WIDER = {narrow: wide for wide, narrow in _NARROWER.items()}


def _vector(x: ArrayLike, argument: str) -> int:
    """The number of elements of a vector."""
    kind = convert.array_type(x)
    if kind.ndim != 1:
        raise PalladioValueError("a vector is needed", argument=argument, expected="one axis", got=str(kind))
    return kind.shape[0]


def _eligible(mask: Any, count: int) -> Array:
    """A mask of a vector; all of it where none is given."""
    if mask is None:
        return creation.full((count,), True)
    kind = convert.array_type(mask)
    if kind.dtype != dtypes.BOOL:
        raise PalladioTypeError(
            "a mask is a bool array", argument="mask", got=str(kind), jax="Mask must be a boolean array"
        )
    if kind.shape != (count,):
        raise PalladioValueError(
            "a mask has the shape of the vector", argument="mask", expected=(count,), got=kind.shape
        )
    checked: Array = mask
    return checked


def _whole(ref: Any) -> Reference:
    if not isinstance(ref, Reference):
        raise PalladioTypeError("a reference is needed", argument="ref", got=repr(ref))
    return ref


def _places(ref: Any, positions: Any) -> tuple[Array, ...]:
    """Index vectors of one length, one for each axis of a reference."""
    target = _whole(ref)
    if not isinstance(positions, (list, tuple)) or len(positions) != len(target.shape):
        raise PalladioValueError(
            "one index vector for each axis of the reference",
            argument="indices",
            expected=len(target.shape),
            got=len(positions) if isinstance(positions, (list, tuple)) else repr(positions),
        )
    counts = {_vector(each, "indices") for each in positions}
    if len(counts) > 1:
        raise PalladioValueError("index vectors have one length", argument="indices", got=sorted(counts))
    return tuple(positions)


def load_gather(ref: Any, indices: Sequence[Array], *, mask: Array | None = None) -> Array:
    """The elements of a reference at vectors of indices, one for each axis.

    Args:
        mask: `bool[n]`; where it is false nothing is read and the element is uninitialised.

    Raises:
        PalladioTypeError: not a reference, a mask that is not of bools.
        PalladioValueError: another number of vectors than axes, vectors or masks of different lengths.
    """
    places = _places(ref, indices)
    if mask is not None:
        mask = _eligible(mask, _vector(places[0], "indices"))
    loaded: Array = access.load(ref, places, mask=mask)
    return loaded


def store_scatter(ref: Any, indices: Sequence[Array], x: ArrayLike, *, mask: Array | None = None) -> None:
    """Write the elements of a vector to a reference at vectors of indices, one for each axis.

    Args:
        x: `dtype[n]`, of the dtype of the reference.
        mask: `bool[n]`; where it is false nothing is written.

    Raises:
        PalladioTypeError, PalladioValueError: as of `load_gather`, and a value of another dtype or length.
    """
    places = _places(ref, indices)
    if mask is not None:
        mask = _eligible(mask, _vector(places[0], "indices"))
    access.store(ref, x, idx=places, mask=mask)


def addupdate_scatter(ref: Any, indices: Sequence[Array], x: ArrayLike, *, mask: Array | None = None) -> None:
    """Add the elements of a vector to a reference at vectors of indices, atomically: a position may occur twice.

    Raises:
        PalladioTypeError, PalladioValueError: as of `store_scatter`.
    """
    places = _places(ref, indices)
    if mask is not None:
        mask = _eligible(mask, _vector(places[0], "indices"))
    access.atomic_add(ref, places, x, mask=mask)


def addupdate(ref: Any, x: ArrayLike) -> None:
    """Add an array to a reference of its shape, atomically.

    Raises:
        PalladioTypeError: not a reference, another dtype.
        PalladioValueError: another shape.
    """
    access.atomic_add(ref, x)


def _compressed(mask: Array) -> Array:
    """For each true element of a mask, how many are before it; 0 for the others."""
    before = order.cumsum(compare.astype(mask, dtypes.INT32)) - 1
    return compare.where(mask, before, 0)


def load_expanded(ref: Any, *, mask: Array) -> Array:
    """Elements of a reference in order, each placed where the mask is true: the first at the first such place.

    Args:
        ref: `dtype[m]`.
        mask: `bool[n]` with at most m true elements. Where it is false the result is uninitialised.

    Raises:
        PalladioTypeError, PalladioValueError: as of `load_gather`.
    """
    return load_gather(ref, [_compressed(_eligible(mask, _vector(mask, "mask")))], mask=mask)


def store_compressed(ref: Any, x: ArrayLike, *, mask: Array) -> None:
    """Write those elements of a vector for which the mask is true to the first places of a reference, in order.

    Args:
        x: `dtype[n]`, of the dtype of the reference.
        mask: `bool[n]`.

    Raises:
        PalladioTypeError, PalladioValueError: as of `store_scatter`.
    """
    store_scatter(ref, [_compressed(_eligible(mask, _vector(x, "x")))], x, mask=mask)


def addupdate_compressed(ref: Any, x: ArrayLike, *, mask: Array) -> None:
    """Add those elements of a vector for which the mask is true to the first places of a reference, atomically.

    Raises:
        PalladioTypeError, PalladioValueError: as of `store_scatter`.
    """
    addupdate_scatter(ref, [_compressed(_eligible(mask, _vector(x, "x")))], x, mask=mask)


def bitcast(x: ArrayLike, dtype: Any) -> Array:
    """The same bits as another dtype; where its width differs, the last axis grows or shrinks.

    Raises:
        PalladioTypeError: to or from bool.
        PalladioValueError: if the elements of that axis do not make whole ones of the other dtype.
    """
    return bits.view(x, dtypes.canonical(dtype))


def cumsum(x: ArrayLike, *, mask: Array | None = None) -> Array:
    """The running sum of the elements of a vector for which the mask is true.

    Raises:
        PalladioTypeError, PalladioValueError: not a vector, a mask of another shape or not of bools.
    """
    eligible = _eligible(mask, _vector(x, "x"))
    return order.cumsum(compare.where(eligible, x, 0), dtype=convert.array_type(x).dtype)


def _running(op: Callable[..., Array], x: ArrayLike, mask: Any, neutral: Any) -> Array:
    count, kind = _vector(x, "x"), convert.array_type(x)
    eligible = _eligible(mask, count)
    rows = indexing.getitem(compare.where(eligible, x, neutral), (None, slice(None)))
    positions = creation.arange(count)
    reached = indexing.getitem(positions, (None, slice(None))) <= indexing.getitem(positions, (slice(None), None))
    found = op(compare.where(reached, rows, neutral), axis=1)
    begun = order.cumsum(compare.astype(eligible, dtypes.INT32)) > 0
    return compare.where(begun, compare.astype(found, kind.dtype), x)


def cummax(x: ArrayLike, *, mask: Array | None = None) -> Array:
    """The running maximum of the elements of a vector for which the mask is true; before the first of them, `x`.

    Raises:
        PalladioTypeError, PalladioValueError: as of `cumsum`.
    """
    return _running(reduction.max, x, mask, dtypes.least(convert.array_type(x).dtype))


def cummin(x: ArrayLike, *, mask: Array | None = None) -> Array:
    """The running minimum of the elements of a vector for which the mask is true; before the first of them, `x`.

    Raises:
        PalladioTypeError, PalladioValueError: as of `cumsum`.
    """
    return _running(reduction.min, x, mask, dtypes.greatest(convert.array_type(x).dtype))


def scan_count(x: ArrayLike, mask: Array | None = None) -> tuple[Array, Array]:
    """How often each element of a vector has occurred up to its place, and whether this is its last occurrence.

    Args:
        x: `dtype[n]`.
        mask: `bool[n]`, the elements that count; all by default.

    Raises:
        PalladioTypeError, PalladioValueError: as of `cumsum`.
    """
    count = _vector(x, "x")
    eligible = _eligible(mask, count)
    row, column = (None, slice(None)), (slice(None), None)
    same = compare.logical_and(indexing.getitem(x, row) == indexing.getitem(x, column), indexing.getitem(eligible, row))
    positions = creation.arange(count)
    later = indexing.getitem(positions, row) > indexing.getitem(positions, column)
    counts = reduction.sum(compare.astype(compare.logical_and(same, ~later), dtypes.INT32), axis=1, dtype=dtypes.INT32)
    again = reduction.any(compare.logical_and(same, later), axis=1)
    return counts, compare.logical_and(eligible, ~again)


def sort_key_val(
    keys: ArrayLike, values: ArrayLike, *, mask: Array | None = None, descending: bool = False
) -> tuple[Array, ...]:
    """Keys in order, and values in the order of their keys; those without the mask keep their order and come last.

    Args:
        keys, values: vectors of one length.
        mask: `bool[n]`; if it is given, it is the third result, in the new order.

    Raises:
        PalladioTypeError, PalladioValueError: as of `cumsum`.
    """
    eligible = _eligible(mask, _vector(keys, "keys"))
    if _vector(values, "values") != convert.array_type(keys).shape[0]:
        raise PalladioValueError(
            "as many values as keys",
            argument="values",
            expected=convert.array_type(keys).shape,
            got=convert.array_type(values).shape,
        )
    equal = keys if mask is None else compare.where(eligible, keys, creation.zeros_like(keys))
    _, places = order.sorted_with_positions(equal, 0, stable=True, descending=descending)
    if mask is not None:
        _, partition = order.sorted_with_positions(
            compare.astype(~indexing.take(eligible, places), dtypes.INT32), 0, stable=True, descending=False
        )
        places = indexing.take(places, partition)
    found = tuple(indexing.take(each, places) for each in (keys, values))
    return found if mask is None else (*found, indexing.take(eligible, places))


def _packed(dtype: Any, table: dict[Any, Any], wanted: Any, what: str) -> Any:
    if wanted is not None:
        return dtypes.canonical(wanted)
    if dtype not in table:
        raise PalladioTypeError(
            f"{what} of this dtype has no default dtype for its result",
            argument="preferred_element_type",
            got=str(dtype),
        )
    return table[dtype]


def pack(a: ArrayLike, b: ArrayLike, /, *, format: PackFormat, preferred_element_type: Any = None) -> Array:
    """Two vectors as one array of elements of half their width.

    Args:
        a, b: `dtype[n]`.
        format: the result is of shape (2 * n,) if interleaved, (n, 2) if compressed.
        preferred_element_type: its dtype; that of half the width for float32 and int32.

    Raises:
        PalladioTypeError: vectors of two dtypes, or none of the result where one is needed.
        PalladioValueError: vectors of two lengths.
    """
    first, second = convert.array_type(a), convert.array_type(b)
    count = _vector(a, "a")
    if first.dtype != second.dtype:
        raise PalladioTypeError("both vectors have one dtype", argument="b", expected=str(first), got=str(second))
    if _vector(b, "b") != count:
        raise PalladioValueError("both vectors have one length", argument="b", expected=str(first), got=str(second))
    kind = _packed(first.dtype, _NARROWER, preferred_element_type, "packing")
    pairs = creation.stack([compare.astype(a, kind), compare.astype(b, kind)], axis=1)
    return pairs if PackFormat(format) is PackFormat.COMPRESSED else shape.reshape(pairs, (2 * count,))


def unpack(ab: ArrayLike, /, *, format: PackFormat, preferred_element_type: Any = None) -> tuple[Array, Array]:
    """The two vectors that `pack` has put together, in elements of twice the width.

    Raises:
        PalladioTypeError: no dtype is given and there is no default.
        PalladioValueError: an array of another shape than `pack` makes in this format.
    """
    kind = convert.array_type(ab)
    compressed = PackFormat(format) is PackFormat.COMPRESSED
    fits = kind.ndim == 2 and kind.shape[1] == 2 if compressed else kind.ndim == 1 and kind.shape[0] % 2 == 0
    if not fits:
        raise PalladioValueError(
            "another shape than that of this format",
            argument="ab",
            expected="(n, 2)" if compressed else "(2 * n,)",
            got=kind.shape,
        )
    wide = _packed(kind.dtype, _WIDER, preferred_element_type, "unpacking")
    pairs = shape.reshape(ab, (kind.size // 2, 2))
    return tuple(compare.astype(indexing.getitem(pairs, (slice(None), side)), wide) for side in (0, 1))  # type: ignore[return-value]


def _groups(x: ArrayLike, reduce: Any) -> int:
    count = _vector(x, "x")
    if convert.array_type(x).dtype != dtypes.BOOL:
        raise PalladioTypeError(
            "a vector of bools is needed",
            argument="x",
            got=str(convert.array_type(x)),
            jax=f"Mask all-reduce only supports bool arrays, got {convert.array_type(x).dtype}",
        )
    if reduce < 1:
        raise PalladioValueError(
            "a factor is at least 1", argument="reduce", got=reduce, jax=f"reduce must be >=1, got {reduce}"
        )
    if count % reduce:
        raise PalladioValueError(
            "the factor divides the length of the vector",
            argument="reduce",
            expected=f"a divisor of {count}",
            got=reduce,
            jax=f"{reduce=} must divide the dimension size {count}",
        )
    return int(count // reduce)


def all_reduce_population_count(x: Array, *, reduce: int = 1) -> Array:
    """The number of true elements of a vector, as each of the n / `reduce` elements of an int32 vector.

    Raises:
        PalladioTypeError: not of bools.
        PalladioValueError: not a vector; a factor below 1 or that does not divide its length.
    """
    count = reduction.sum(compare.astype(x, dtypes.INT32), dtype=dtypes.INT32)
    return convert.broadcast_to(count, (_groups(x, reduce),))


def all_reduce_ffs(x: Array, *, reduce: int = 1) -> Array:
    """The index of the first true element of a vector, or its length, as each of the n / `reduce` elements of one.

    Raises:
        PalladioTypeError, PalladioValueError: as of `all_reduce_population_count`.
    """
    groups, count = _groups(x, reduce), _vector(x, "x")
    first = reduction.min(compare.where(x, creation.arange(count, dtype=dtypes.INT32), np.int32(count)))
    return convert.broadcast_to(first, (groups,))


def parallel_loop(
    lower: Any, upper: Any, step: Any = 1, *, unroll: int = 1, carry: Any = None
) -> Callable[[Callable[..., Any]], Any]:
    """A decorator that runs its function for i from `lower` below `upper` in steps of `step`, as `pl.loop` does.

    Iterations must not depend on writes of other iterations to references, only on the carry.

    Args:
        carry: a pytree of arrays; the function is then called as `f(i, carry)` and returns the next one, and the
            decorated name becomes the last one.
        unroll: advice to compilers.

    Raises:
        PalladioTypeError, PalladioValueError: as of `pl.loop`; references in the carry.
    """
    for leaf in trees.flatten(carry)[0]:
        if isinstance(leaf, Reference):
            kind = leaf.array
            raise PalladioTypeError(
                "a reference is not carried: the function uses it where it is",
                argument="carry",
                got=repr(leaf),
                jax=f"Carried values may not be refs, but got: Ref<{leaf.memory_space}>"
                f"{{{kind.dtype}[{','.join(map(str, kind.shape))}]}}",
            )
    return control.loop(lower, upper, init_carry=carry, step=step, unroll=unroll)


def _subcores() -> tuple[str, Reference]:
    """The axis of the sub-cores, and the semaphore that each has for synchronising with the others."""
    cores = enclosing_cores()
    names = [axis.name for axis in cores.axes if axis.kind == "subcore"] if cores is not None else []
    if cores is None or not names:
        raise PalladioValueError("only the programs of a VectorSubcoreMesh have sub-cores")
    return names[0], cores.barrier


def subcore_barrier() -> None:
    """Wait until all sub-cores of this core have arrived.

    Raises:
        PalladioValueError: outside of a program of vector sub-cores.
    """
    name, barrier = _subcores()
    me, count = axis_index(name), axis_size(name)
    if count == 1:
        return
    # The first one collects the others and releases them: no signal of the next barrier can arrive before that.

    def collect() -> None:
        semaphores.semaphore_wait(barrier, count - 1)
        for other in range(1, count):
            semaphore_signal(barrier, device_id={name: other})

    def arrive() -> None:
        semaphore_signal(barrier, device_id={name: 0})
        semaphores.semaphore_wait(barrier, 1)

    control.cond(me == 0, collect, arrive)


def fetch_and_add(x_ref: Any, value: ArrayLike, *, subcore_id: ArrayLike) -> Array:
    """Add to a scalar of another sub-core, atomically; returns the old value.

    Args:
        x_ref: a reference to one int32 in `pltpu.SMEM`.
        value: the number to add.
        subcore_id: the index of the sub-core.

    Raises:
        PalladioTypeError: not a reference.
        PalladioValueError: one of more than one element; outside of a program of vector sub-cores.
    """
    target = _whole(x_ref)
    if int(np.prod(target.shape)) != 1:
        raise PalladioValueError(
            "one element is needed",
            argument="x_ref",
            got=target.shape,
            jax=f"Expected a scalar ref, but got x_ref.shape={target.shape}",
        )
    peer = core_ref(target, {_subcores()[0]: subcore_id})
    before: Array = access.atomic_add(peer, tuple([0] * len(target.shape)), value)
    return before
