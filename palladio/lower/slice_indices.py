"""Indices by arrays that count along an axis become slices, whose elements are neighbours in memory.

`x[start + arange(64)]` selects what `x[ds(start, 64)]` does, outside of x too, where neither reads or writes anything.
Kernels in the style of Triton index so everywhere: `x[rows[:, None], columns[None, :]]`. They store under a mask that
only excludes what is outside, `rows < extent`, which is not needed then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any, NamedTuple

import numpy as np

from palladio.base.dataclass import dataclass
from palladio.ir.core import Atom, Eqn, Literal, Program, Var
from palladio.ir.rewrite import Builder, map_subprograms, substituted, with_body, with_parts
from palladio.ops.arrays import arithmetic, bits, casts, compare, shape
from palladio.ops.control import cond, loop, scope
from palladio.ops.references.masked import store_masked
from palladio.ops.references.memory import store
from palladio.passes.pipeline import ANY, Pass
from palladio.types import dtypes
from palladio.types.dtypes import DType
from palladio.types.transforms import (
    Index,
    IndexEntry,
    Operand,
    Reshape,
    SliceEntry,
    Transform,
    Transpose,
    gathered_axis,
    index_shape,
    transformed,
)
from palladio.types.types import ArrayType, RefType, Shape

_WIDE = (dtypes.INT32, dtypes.INT64)
"""Narrower integers may overflow inside an array, where counting would begin again at its other end."""

_MOST = np.iinfo(np.int32).max

_MOVING = (shape.broadcast, shape.reshape, shape.transpose)
"""The operations that move axes."""


@dataclass(frozen=True)
class _Count:
    """An array of integers that counts along one axis.

    Fields:
        terms: scalars, each with its factor, whose sum with `constant` is the first element.
        axis, stride: the axis, and the distance of neighbours along it.
    """

    terms: tuple[tuple[Atom, int], ...]
    constant: int
    axis: int
    stride: int

    def plus(self, value: Atom, factor: int) -> _Count:
        """This array plus a multiple of a scalar."""
        if isinstance(value, Literal):
            return replace(self, constant=self.constant + factor * int(value.value))
        return replace(self, terms=(*self.terms, (value, factor)))

    def times(self, factor: int) -> _Count:
        """This array times a positive number."""
        terms = tuple((atom, each * factor) for atom, each in self.terms)
        return _Count(terms, self.constant * factor, self.axis, self.stride * factor)


Counts = dict[Atom, _Count]
Limits = tuple[tuple[_Count, int], ...]
"""Arrays of one shape, each with a number that all of its elements are below."""


@dataclass
class _Known:
    """The facts at an equation.

    Fields:
        counts: the arrays that count.
        masks: arrays of bool that are true where some arrays are below their limits.
        negative: arrays of bool that are true where an array that counts is below 0.
        raised: arrays that are one that counts plus a number.
        wrapped: arrays whose elements are those of one that counts, but plus a number where those are below 0.
    """

    counts: Counts
    masks: dict[Atom, Limits] = field(default_factory=dict)
    negative: dict[Atom, Atom] = field(default_factory=dict)
    raised: dict[Atom, tuple[Atom, Literal]] = field(default_factory=dict)
    wrapped: dict[Atom, tuple[Atom, Literal]] = field(default_factory=dict)

    def note(self, eqn: Eqn) -> None:
        """Note what is known of the result of an equation."""
        if len(eqn.outputs) == 1:
            (var,) = eqn.outputs
            count = _count_of(eqn, self.counts)
            limits = _limits_of(eqn, self)
            if count is not None:
                self.counts[var] = count
            if limits is not None:
                self.masks[var] = limits
            if eqn.op is compare.lt and eqn.inputs[0] in self.counts and _is_zero(eqn.inputs[1]):
                self.negative[var] = eqn.inputs[0]
            if eqn.op is arithmetic.add and eqn.inputs[0] in self.counts and isinstance(eqn.inputs[1], Literal):
                self.raised[var] = eqn.inputs  # type: ignore[assignment]
            if eqn.op is compare.select:
                below, more, given = eqn.inputs
                if self.negative.get(below) is given and self.raised.get(more, (var,))[0] is given:
                    self.wrapped[var] = self.raised[more]


class _Sliced(NamedTuple):
    """An index with slices in place of arrays.

    Fields:
        stack: the transforms.
        axes: the axis of the selection that each array counts along, by its position among the operands.
        extents: the extent of the axis that it indexes.
    """

    stack: list[Transform]
    axes: dict[int, int]
    extents: dict[int, int]


def slice_in(program: Program, given: Mapping[Atom, _Count] | None = None) -> Program:
    """The program with slices, given the arrays among its inputs that count."""
    known = _Known(dict(given or {}))
    builder = Builder()
    for eqn in program.eqns:
        builder.location = eqn.location
        params = map_subprograms(eqn.params, lambda inner: slice_in(inner, _inside(eqn, inner, known.counts)))  # noqa: B023
        eqn = with_parts(eqn, eqn.inputs, params)
        builder.eqns.append(_sliced_if_positive(eqn, known, builder) or _sliced(eqn, known, builder) or eqn)
        known.note(eqn)
    return with_body(program, builder.eqns, program.outputs)


def _inside(eqn: Eqn, inner: Program, known: Counts) -> Counts:
    """The arrays that count among the inputs of a program that an equation runs.

    Those with terms are left out: the program has no scalars of the one around it.
    """
    fixed = {
        loop: range(1, 1 + eqn.params.get("constants", 0)),
        cond: range(len(inner.inputs)),
        scope: range(len(inner.inputs)),
    }
    first, found = eqn.op.own_operands or 0, {}
    for n in fixed.get(eqn.op, ()):
        count = known.get(eqn.inputs[n + first]) if n + first < len(eqn.inputs) else None
        if count is not None and not count.terms:
            found[inner.inputs[n]] = count
    return found


def _count_of(eqn: Eqn, known: Counts) -> _Count | None:
    """The result of an equation, if it counts along an axis."""
    type = eqn.outputs[0].type
    if not isinstance(type, ArrayType) or type.dtype not in _WIDE or not type.shape:
        return None
    if eqn.op is shape.iota:
        return _Count((), 0, eqn.params["axis"], 1)
    if eqn.op in _MOVING:
        given = known.get(eqn.inputs[0])
        return None if given is None else _moved(eqn, given, eqn.inputs[0].type.shape, type.shape)
    if eqn.op in (arithmetic.add, arithmetic.sub, arithmetic.mul):
        return _combined(eqn, known)
    return None


def _limits_of(eqn: Eqn, known: _Known) -> Limits | None:
    """The limits below which some arrays are where the result of an equation is true, if that is what it says."""
    if eqn.op is bits.bitwise_and:
        sides = [known.masks.get(atom) for atom in eqn.inputs]
        return None if None in sides else (*sides[0], *sides[1])  # type: ignore[misc]
    if eqn.op in _MOVING:
        old, new = eqn.inputs[0].type.shape, eqn.outputs[0].type.shape
        moved = [(_moved(eqn, count, old, new), limit) for count, limit in known.masks.get(eqn.inputs[0], ())]
        return None if not moved or any(count is None for count, _ in moved) else tuple(moved)  # type: ignore[arg-type]
    if eqn.op is compare.lt and eqn.inputs[0] in known.counts and isinstance(eqn.inputs[1], Literal):
        return ((known.counts[eqn.inputs[0]], int(eqn.inputs[1].value)),)
    return None


def _moved(eqn: Eqn, given: _Count, old: Shape, new: Shape) -> _Count | None:
    """An array that counts after its axes have moved."""
    if eqn.op is shape.broadcast:
        axis = eqn.params["axes"][given.axis]
    elif eqn.op is shape.transpose:
        axis = eqn.params["permutation"].index(given.axis)
    else:
        longer = [[n for n, extent in enumerate(each) if extent > 1] for each in (old, new)]
        same = [old[n] for n in longer[0]] == [new[n] for n in longer[1]]
        if not same or given.axis not in longer[0]:
            return None
        axis = longer[1][longer[0].index(given.axis)]
    return replace(given, axis=axis) if new[axis] == old[given.axis] else None


def _combined(eqn: Eqn, known: Counts) -> _Count | None:
    """A sum, difference or product of an array that counts and a scalar."""
    x, y = eqn.inputs
    if eqn.op is not arithmetic.sub and y in known:
        x, y = y, x
    given = known.get(x)
    if given is None or y.type.shape != ():
        return None
    if eqn.op is not arithmetic.mul:
        return given.plus(y, -1 if eqn.op is arithmetic.sub else 1)
    return given.times(int(y.value)) if isinstance(y, Literal) and y.value > 0 else None


def _sliced_if_positive(eqn: Eqn, known: _Known, builder: Builder) -> Eqn | None:
    """An access with slices if the arrays that count begin at 0 or above, and as it is if not."""
    wrapped = {atom: known.wrapped[atom] for atom in eqn.inputs if atom in known.wrapped}
    if not wrapped or not isinstance(eqn.inputs[0].type, RefType):
        return None
    sliced = _sliced(substituted(eqn, {atom: given for atom, (given, _) in wrapped.items()}), known, builder)
    if sliced is None:
        return None
    starts: dict[Atom, Atom] = {}
    positive: Atom | None = None
    for given, _ in dict.fromkeys(wrapped.values()):
        dtype = given.type.dtype  # type: ignore[union-attr]
        starts[given] = _start(builder, known.counts[given], dtype)
        (here,) = builder.emit(compare.ge, starts[given], Literal(0, dtype))
        positive = here if positive is None else builder.emit(bits.bitwise_and, positive, here)[0]
    (number,) = builder.emit(casts.convert, positive, dtype=dtypes.INT32)  # type: ignore[arg-type]
    again = Builder()  # the arrays are made where they are needed
    made = {
        atom: _wrapped_array(again, atom.type, known.counts[given], starts[given], extent)  # type: ignore[arg-type]
        for atom, (given, extent) in wrapped.items()
    }
    elements = (*again.eqns, substituted(eqn, made))
    defined = {var for each in again.eqns for var in each.outputs}
    used = dict.fromkeys(atom for each in (*elements, sliced) for atom in each.inputs if isinstance(atom, Var))
    inputs = [var for var in used if var not in defined]
    branches = tuple(_alone(eqns, inputs) for eqns in (elements, (sliced,)))
    builder.emit(cond, number, *inputs, branches=branches)
    chosen = builder.eqns.pop()
    return Eqn(chosen.op, chosen.inputs, eqn.outputs, chosen.params, chosen.effects, eqn.location)


def _wrapped_array(builder: Builder, type: ArrayType, count: _Count, start: Atom, extent: Literal) -> Atom:
    """An array that counts from `start`, plus an extent where it is below 0."""
    dtype = type.dtype
    (found,) = builder.emit(shape.iota, shape=type.shape, dtype=dtype, axis=count.axis)
    if count.stride != 1:
        (found,) = builder.emit(arithmetic.mul, found, Literal(count.stride, dtype))
    (found,) = builder.emit(arithmetic.add, found, start)
    (below,) = builder.emit(compare.lt, found, Literal(0, dtype))
    (more,) = builder.emit(arithmetic.add, found, extent)
    return builder.emit(compare.select, below, more, found)[0]


def _alone(eqns: Sequence[Eqn], inputs: Sequence[Var]) -> Program:
    """A program of some equations; its results are those of the last one."""
    builder = Builder()
    mine = {atom: Var(atom.type, atom.hint) for atom in inputs}
    *_, last = eqns
    whole = Program(tuple(inputs), tuple(eqns), last.outputs, last.op.name, last.location)
    outputs = builder.inline(whole, [*mine.values()])
    return Program(tuple(mine.values()), tuple(builder.eqns), outputs, last.op.name, last.location)


def _sliced(eqn: Eqn, known: _Known, builder: Builder) -> Eqn | None:
    """An access with slices in place of the arrays that count; None if it has none that can be."""
    if not eqn.op.index_start or eqn.op.ref_count > 1 or known.counts.keys().isdisjoint(eqn.indices):
        return None
    root = eqn.inputs[0].type
    array = root.array if isinstance(root, RefType) else root
    types: list[ArrayType] = [atom.type for atom in eqn.indices]
    positions = [position for transform in eqn.transforms for position in _operands(transform)]
    once = {n: atom for n, atom in enumerate(eqn.indices) if positions.count(n) == 1}
    counts = {n: known.counts[atom] for n, atom in once.items() if atom in known.counts}
    stack: list[Transform] = []
    chosen: list[_Sliced] = []
    for transform in eqn.transforms:
        found = _slices(transform, array, types, counts) if isinstance(transform, Index) else None
        chosen += [] if found is None else [found]
        stack += [transform] if found is None else found.stack
        array = transformed(array, [transform], types)
    if not chosen:
        return None
    starts = {n: _start(builder, counts[n], eqn.indices[n].type.dtype) for each in chosen for n in each.axes}
    indices = [starts.get(n, atom) for n, atom in enumerate(eqn.indices)]
    params = {**eqn.params, "transforms": tuple(stack)}
    if (
        eqn.op is store_masked
        and len(eqn.transforms) == 1
        and _excludes_nothing(eqn.inputs[2], known, chosen[0], counts)
    ):
        builder.emit(store, *eqn.inputs[:2], *indices, **params)
        return builder.eqns.pop()
    return with_parts(eqn, [*eqn.inputs[: eqn.op.index_start], *indices], params)


def _excludes_nothing(mask: Atom, known: _Known, sliced: _Sliced, counts: Mapping[int, _Count]) -> bool:
    """True if a mask of a selection is true wherever that is inside its array."""
    limits = known.masks.get(mask, ())
    inside = [(replace(counts[n], axis=axis), sliced.extents[n]) for n, axis in sliced.axes.items()]
    return bool(limits) and all(
        any(mine == count and limit >= extent for mine, extent in inside) for count, limit in limits
    )


def _is_zero(atom: Atom) -> bool:
    return isinstance(atom, Literal) and atom.value == 0


def _operands(transform: Transform) -> list[int]:
    """The positions of the index operands of a transform."""
    entries: Sequence[Any] = transform.entries if isinstance(transform, Index) else ()
    starts = (entry.start if isinstance(entry, SliceEntry) else entry for entry in entries)
    return [start.position for start in starts if isinstance(start, Operand)]


def _slices(index: Index, array: ArrayType, types: Sequence[ArrayType], counts: Mapping[int, _Count]) -> _Sliced | None:
    """An index with slices in place of all of its arrays, and the order of the axes; None if one does not count."""
    arrays = [entry.position for entry in index.entries if isinstance(entry, Operand) and types[entry.position].shape]
    if not arrays or any(n not in counts for n in arrays):
        return None
    gathered = np.broadcast_shapes(*(types[n].shape for n in arrays))
    axes = {n: counts[n].axis + len(gathered) - len(types[n].shape) for n in arrays}
    extents = {n: types[n].shape[counts[n].axis] for n in arrays}
    reached = {entry.position: n for n, entry in enumerate(index.entries) if isinstance(entry, Operand)}
    indexed = {n: array.shape[reached[n]] for n in arrays}
    if len(set(axes.values())) < len(axes) or any(gathered[axes[n]] != extents[n] for n in arrays):
        return None
    # An array may overflow, and count on from the least number: that, from the end, must not be inside.
    if any(counts[n].stride * extents[n] + indexed[n] > _MOST for n in arrays):
        return None
    if any(extent > 1 and axis not in axes.values() for axis, extent in enumerate(gathered)):
        return None
    entries: list[IndexEntry] = []
    order: list[tuple[int, int]] = []  # of the axes: those of slices, or of the arrays, where these stand
    before, seen = gathered_axis(index), 0
    for n, entry in enumerate(index.entries):
        if isinstance(entry, SliceEntry):
            order.append((0 if seen < before else 2, n))
            seen += 1
        elif isinstance(entry, Operand) and entry.position in axes:
            order.append((1, axes[entry.position]))
            position = entry.position
            entry = SliceEntry(Operand(position), extents[position], counts[position].stride)
        entries.append(entry)
    found: list[Transform] = [Index(tuple(entries))]
    permutation = tuple(sorted(range(len(order)), key=order.__getitem__))
    if permutation != tuple(range(len(order))):
        found.append(Transpose(permutation))
    shape = index_shape(index, array.shape, types)
    if transformed(array, found, _types_of(types, arrays)).shape != shape:
        found.append(Reshape(shape))
    return _Sliced(found, {n: before + axes[n] for n in arrays}, indexed)


def _types_of(types: Sequence[ArrayType], arrays: Sequence[int]) -> list[ArrayType]:
    """The types of the index operands after some of them have become scalars."""
    return [replace(type, shape=()) if n in arrays else type for n, type in enumerate(types)]


def _start(builder: Builder, count: _Count, dtype: DType) -> Atom:
    """The first element of an array of a dtype that counts."""
    found: Atom | None = None
    for atom, factor in count.terms:
        term = atom if factor == 1 else builder.emit(arithmetic.mul, atom, _wrapped(factor, dtype))[0]
        found = term if found is None else builder.emit(arithmetic.add, found, term)[0]
    constant = _wrapped(count.constant, dtype)
    if found is None:
        return constant
    return builder.emit(arithmetic.add, found, constant)[0] if count.constant else found


def _wrapped(value: int, dtype: DType) -> Literal:
    """The number that a value is after arithmetic in a dtype, which wraps around."""
    least, count = int(np.iinfo(dtype).min), 1 << dtypes.bits_of(dtype)
    return Literal((value - least) % count + least, dtype)


slice_indices = Pass(
    name="slice_indices",
    consumes=ANY,
    produces=ANY,
    run=slice_in,
    doc="Writes indices by arrays that count along an axis as slices. Where their first element may be negative, it is "
    "tested, and the access stays as it is beside that with slices. Comes before `prove_inside`, which marks slices "
    "that cannot leave their array. Wants `remove_dead_code` after it, for the arrays.",
)
