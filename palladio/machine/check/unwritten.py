"""Taint tracking of values from uninitialised memory, up to an output, a branch or an address.

A read alone is not a mistake: unstored rows of a product, or masked elements, may be anything. The elements of a result
that depend on such values are found by computing it again with other values in their place and comparing. This may miss
some dependences (where all values give the same result), but never reports a false one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from palladio.ir.core import Eqn
from palladio.machine.check.findings import Participant
from palladio.machine.check.found import Found
from palladio.machine.check.races import participant_of
from palladio.machine.check.report.naming import at_text, describe
from palladio.machine.check.shadow import Access
from palladio.machine.run.buffers import Accumulator, Buffer, Stack
from palladio.machine.run.threads import Thread
from palladio.ops.references import access
from palladio.types import dtypes

MOST_VALUES = 256
"""The most values of a thread that are tracked; older ones count as initialised."""

Array = Any


class Origin(NamedTuple):
    """The read of a value from uninitialised memory."""

    store: Buffer
    access: Access


class UninitialisedValue(NamedTuple):
    """A value, and the mask of its elements that depend on uninitialised memory."""

    value: Any
    mask: Array
    origin: Origin


class Unwritten:
    """Tracks uninitialised values through the equations of each thread."""

    def __init__(self, found: Found) -> None:
        self.found = found

    # Sources and sinks.

    def evaluate(
        self, thread: Thread, eqn: Eqn, function: Callable[..., Any], values: Sequence[Any], reads: Sequence[Origin]
    ) -> Any:
        """Execute an access of memory; `values` has its references as buffers."""
        marks = [_uninitialised(thread, value) for value in values]
        self.decides(thread, eqn, values[eqn.op.index_start :] if eqn.op.index_start else ())
        reached = [value.array if isinstance(value, Buffer) else value for value in values]
        if not reads and not any(marks):
            return function(*reached)
        in_memory = {origin.store: ~origin.store.shadow.initialised() for origin in reads}
        others = []
        for high in (True, False):
            other = [value if mark is None else _other(value, mark.mask, high) for value, mark in zip(values, marks)]
            for n, value in enumerate(values):
                if isinstance(value, Buffer):
                    mask = in_memory.get(value)
                    other[n] = value.array.copy() if mask is None else _other(value.array, mask, high)
            others.append(other)
        found = function(*reached)
        origin = reads[0] if reads else next(mark.origin for mark in marks if mark is not None)
        masks = _differ(found, [function(*other) for other in others])
        for n, value in enumerate(values):
            if isinstance(value, Buffer) and value.shadow is not None and eqn.inputs[n] in eqn.written:
                differs = _unequal(value.array, [other[n] for other in others])
                self.stored(value, differs & value.shadow.initialised(), origin, thread, eqn)
        return self._marked(thread, found, masks, origin)

    def follow(
        self, thread: Thread, function: Callable[..., Any], values: Sequence[Any], found: Sequence[Any]
    ) -> Sequence[Any]:
        """The results of a pure function; elements that depend on marked values are marked."""
        marks = [_uninitialised(thread, value) for value in values]
        origin = next((mark.origin for mark in marks if mark is not None), None)
        if origin is None:
            return found
        others = []
        for high in (True, False):
            other = [v if mark is None else _other(v, mark.mask, high) for v, mark in zip(values, marks)]
            try:
                with np.errstate(all="ignore"):
                    others.append(function(*other))
            except Exception:  # e.g. an index out of bounds: then all of it depends on them
                others.append([None] * len(found))
        return self._marked(thread, found, _differ(found, others), origin)

    @staticmethod
    def _marked(thread: Thread, found: Sequence[Any], masks: Sequence[Any], origin: Origin) -> Sequence[Any]:
        results = list(found)
        for n, mask in enumerate(masks):
            if np.any(mask):
                results[n] = np.array(found[n])  # a distinct object: True and False are singletons
                thread.uninitialised[id(results[n])] = UninitialisedValue(results[n], mask, origin)
                if len(thread.uninitialised) > MOST_VALUES:
                    del thread.uninitialised[next(iter(thread.uninitialised))]
        return results

    def copied(
        self,
        thread: Thread,
        eqn: Eqn,
        source: tuple[Buffer, Stack],
        target: tuple[Buffer, Stack],
        indices: Sequence[Any],
        read: Access,
    ) -> None:
        """A part of a buffer is copied into another one; elements outside the target are dropped."""
        mask = uninitialised_mask(*source, indices)
        if mask is None or target[0].shadow is None:
            return
        place = np.zeros(target[0].array.shape, bool)
        access.write(place, target[1], indices, mask)
        self.stored(target[0], place, Origin(source[0], read), thread, eqn)

    def stored(self, store: Buffer, mask: Array, origin: Origin, thread: Thread, eqn: Eqn) -> None:
        """These elements of a buffer now hold uninitialised values: a mistake if it is an output."""
        if not np.any(mask):
            return
        if store.visible:
            at = at_text(thread.trail)
            self._report(origin, Participant(thread.title, f"writes it to {store.name}", eqn.location, at), eqn)
        else:
            store.shadow.unset(mask)

    def decides(self, thread: Thread, eqn: Eqn, values: Sequence[Any]) -> None:
        """Values control a branch of a thread, or the elements of an access."""
        for value in values:
            mark = _uninitialised(thread, value) if thread.uninitialised else None
            if mark is not None:
                did, at = f"decides by it, in {eqn.op.name}", at_text(thread.trail)
                self._report(mark.origin, Participant(thread.title, did, eqn.location, at), eqn)

    def _report(self, origin: Origin, use: Participant, eqn: Eqn) -> None:
        read = origin.access
        if not self.found.has_raced(read):
            self.found.report(
                "uninitialized-read",
                f"{describe(origin.store, read.region)} is read where nothing has written to it",
                [participant_of(read), *([use] if eqn is not read.site else [])],
                about=f"{describe(origin.store)} {read.site.location}",
            )

    # Products.

    def multiplied(
        self, thread: Thread, acc: Accumulator, stack: Stack, left: Any, right: Any, read: Callable[[Any], Access]
    ) -> None:
        """A product: rows and columns of the accumulator become uninitialised where those of the operands are."""
        mask = np.zeros(access.read(acc.array, stack, ()).shape, bool)
        for operand, axis in ((left, 1), (right, 0)):
            if isinstance(operand, tuple):
                found, origin = uninitialised_mask(*operand), Origin(operand[0], read(operand[0]))
            else:
                mark = _uninitialised(thread, operand)
                found, origin = (None, None) if mark is None else (mark.mask, mark.origin)
            if found is not None:
                mask |= found.any(axis=axis, keepdims=True)
                acc.origin = acc.origin or origin
        if mask.any():
            if acc.uninitialised is None:
                acc.uninitialised = np.zeros(acc.type.shape, bool)
            part = access.read(acc.uninitialised, stack, ())
            part |= mask

    def loaded(self, thread: Thread, acc: Accumulator, stack: Stack, found: Sequence[Any]) -> Sequence[Any]:
        """The value of an accumulator, marked where it is uninitialised."""
        if acc.uninitialised is None:
            return found
        return self._marked(thread, found, [np.array(access.read(acc.uninitialised, stack, ()))], acc.origin)

    def set(self, thread: Thread, acc: Accumulator, value: Any) -> None:
        """An accumulator is set to a value."""
        mark = _uninitialised(thread, value)
        acc.uninitialised, acc.origin = (None, None) if mark is None else (np.array(mark.mask), mark.origin)


def uninitialised_mask(store: Buffer, stack: Stack, indices: Sequence[Any]) -> Array | None:
    """The mask of the uninitialised elements of a part of a buffer; None if there are none."""
    shadow = store.shadow
    if shadow is None or not shadow.uninitialised(shadow.regions.resolve(stack, indices)):
        return None
    return np.array(access.read(~shadow.initialised(), stack, indices, False))


def _uninitialised(thread: Thread, value: Any) -> UninitialisedValue | None:
    mark = thread.uninitialised.get(id(value))
    return mark if mark is not None and mark.value is value else None


def _other(value: Any, mask: Array, high: bool) -> Any:
    """The value with other elements under the mask."""
    array = np.asarray(value)
    kind = array.dtype
    if kind == dtypes.BOOL:
        fill = high
    elif dtypes.is_float(kind):
        fill = ml_dtypes.finfo(kind).max / (4 if high else -4)
    else:
        fill = np.iinfo(kind).max // 2 if high else np.iinfo(kind).min // 2
    return np.where(mask, np.asarray(fill, kind), array)


def _differ(found: Sequence[Any], others: Sequence[Sequence[Any]]) -> list[Array]:
    """For each result, the mask of elements that differ between evaluations."""
    return [_unequal(value, [other[n] for other in others]) for n, value in enumerate(found)]


def _unequal(value: Any, others: Sequence[Any]) -> Array:
    one = _bits(value)
    mask = np.zeros(one.shape, bool)
    for other in others:
        mask |= True if other is None else one != _bits(other)
    return mask


def _bits(value: Any) -> Array:
    array = np.ascontiguousarray(value).reshape(np.shape(value))
    return array.view(f"u{array.dtype.itemsize}") if array.dtype.itemsize in (1, 2, 4, 8) else array
