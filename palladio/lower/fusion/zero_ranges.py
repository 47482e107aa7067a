"""Zero ranges: bounds along an axis outside of which all elements are zero, derived from masks of comparisons.

Masks like `arange(n) + start >= first` leave zeros outside of a range of positions. A product of two such arrays
need not multiply them, and a store under the mask need not visit the other rows. The analysis is conservative: a
range may be too wide, never too narrow.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from palladio.base.dataclass import dataclass
from palladio.ir.core import Atom, Eqn, Literal, Op, Program, Var
from palladio.ir.rewrite import Builder, map_subprograms, with_body, with_parts, with_signature
from palladio.ops.arrays import arithmetic
from palladio.ops.arrays.arithmetic import add, sub
from palladio.ops.arrays.bits import bitwise_and
from palladio.ops.arrays.casts import convert
from palladio.ops.arrays.compare import eq, ge, gt, le, lt, select
from palladio.ops.arrays.dot import dot_accumulate, dot_general
from palladio.ops.arrays.shape import broadcast, iota, reshape, transpose
from palladio.ops.arrays.zeros import zero_outside
from palladio.ops.control import cond, loop
from palladio.ops.references.initialization import store_rows
from palladio.ops.references.masked import store_masked
from palladio.types import dtypes
from palladio.types.types import Shape

INT32 = np.iinfo(np.int32)


@dataclass(frozen=True)
class Ramp:
    """An int32 array that counts up along an axis.

    Fields:
        terms: scalars that are added to the index along the axis, or subtracted.
    """

    axis: int
    terms: tuple[tuple[Op, Atom], ...] = ()


@dataclass(frozen=True)
class Bound:
    """A comparison of a ramp with a scalar.

    Fields:
        low, high: the first position at which it may be true, and that after the last, counted from the position at
            which the ramp has the value of the scalar; None for the end of the axis.
    """

    ramp: Ramp
    extent: int
    scalar: Atom
    low: int | None
    high: int | None


Bounds = Mapping[int, tuple[Bound, ...]]
"""Comparisons, by axis: where one of them is false all elements are zero."""


@dataclass
class Zeros:
    """The facts about the arrays of one program."""

    ramps: dict[Atom, Ramp] = field(default_factory=dict)
    bounds: dict[Atom, Bounds] = field(default_factory=dict)

    @staticmethod
    def of(program: Program, given: Zeros | None = None) -> Zeros:
        """The ranges that follow from a program's equations and from those of its inputs."""
        found = given or Zeros()
        for eqn in program.eqns:
            rule = _RULES.get(eqn.op)
            if rule is not None and eqn.outputs[0].type.shape:
                rule(found, eqn)
        return found

    def along(self, atom: Atom, axis: int) -> tuple[Bound, ...]:
        """The comparisons that bound an array along an axis."""
        return self.bounds.get(atom, {}).get(axis, ())

    def passed(self, inputs: Sequence[Var], operands: Sequence[Atom]) -> Zeros:
        """The ranges of the inputs of a sub-program that runs on these operands."""
        found = Zeros()
        for var, operand in zip(inputs, operands, strict=True):
            if operand in self.ramps:
                found.ramps[var] = self.ramps[operand]
            if operand in self.bounds:
                found.bounds[var] = self.bounds[operand]
        return found


def unbounded(program: Program, zeros: Zeros | None = None) -> Iterator[tuple[Eqn, dict[str, int]]]:
    """The products and masked stores that could skip zeros, with the axis of each operand that has them."""
    zeros = zeros or Zeros.of(program)
    for eqn in program.eqns:
        axes = _summed(eqn) if eqn.op in (dot_general, dot_accumulate) else _rows(eqn)
        if axes and all(zeros.along(getattr(eqn, name), axis) for name, axis in axes.items()):
            yield eqn, axes


def _summed(eqn: Eqn) -> dict[str, int]:
    """The summed axis of each side of a product. Zeros of one side are not enough: 0 * inf is NaN."""
    left, right = eqn.contracting
    return {"lhs": left[0], "rhs": right[0]} if len(left) == 1 else {}


def _rows(eqn: Eqn) -> dict[str, int]:
    whole = eqn.op is store_masked and not eqn.transforms and len(eqn.mask.type.shape) == 2
    return {"mask": 0} if whole or eqn.op is store_rows else {}


def bound_in(program: Program) -> Program:
    """The program with the zero ranges of masked operands, which products and stores skip."""
    return _bounded(program, Zeros())[0]


def _bounded(program: Program, given: Zeros) -> tuple[Program, dict[Atom, Var]]:
    """The program with its ranges, given those of its inputs; and its captured scalars, with their variables in it."""
    zeros = Zeros.of(program, given)
    found = dict(unbounded(program, zeros))
    writer = _Writer({*program.inputs, *(var for eqn in program.eqns for var in eqn.outputs)})
    for eqn in program.eqns:
        writer.builder.location = eqn.location
        inputs, params = _with_bodies(eqn, zeros, writer)
        for name, axis in found.get(eqn, {}).items():
            array = getattr(eqn, name)
            bounded = writer.bounded(array, axis, zeros.along(array, axis))
            inputs[eqn.op.signature.operands.index(name)] = bounded
        writer.builder.eqns.append(with_parts(eqn, inputs, params))
    return with_body(program, writer.builder.eqns, program.outputs), writer.taken


def _with_bodies(eqn: Eqn, zeros: Zeros, writer: _Writer) -> tuple[list[Atom], dict[str, Any]]:
    """The inputs and parameters of an equation with ranges in its sub-programs, and the scalars of these ranges."""
    operand, parameter, count = _handed_on(eqn)
    operands = eqn.inputs[operand : operand + count]
    bodies: dict[Program, tuple[Program, dict[Atom, Var]]] = {}

    def bounded(body: Program) -> Program:
        bodies[body] = _bounded(body, zeros.passed(body.inputs[parameter : parameter + count], operands))
        return bodies[body][0]

    params = map_subprograms(eqn.params, bounded)
    taken = list(dict.fromkeys(atom for _, names in bodies.values() for atom in names))
    inputs = [*eqn.inputs[: operand + count], *map(writer.own, taken), *eqn.inputs[operand + count :]]
    if not taken:
        return inputs, params

    def extended(body: Program) -> Program:
        new, names = bodies[body]
        added = (names.get(atom) or Var(atom.type) for atom in taken)
        end = parameter + count
        return with_signature(new, (*new.inputs[:end], *added, *new.inputs[end:]), new.outputs)

    params = map_subprograms(eqn.params, extended)
    return inputs, {**params, "constants": count + len(taken)} if eqn.op is loop else params


def _handed_on(eqn: Eqn) -> tuple[int, int, int]:
    """The operands passed unchanged to a sub-program: the first one, the input that it becomes, and their number."""
    if eqn.op is cond:
        return 1, 0, len(eqn.inputs) - 1
    return (2, 1, eqn.constants) if eqn.op is loop else (0, 0, 0)


class _Writer:
    """Writes the equations of ranges into a program, each once.

    Attributes:
        taken: scalars of the programs around this one that its ranges depend on, and their variables here.
    """

    def __init__(self, defined: set[Var]) -> None:
        self.builder = Builder()
        self.defined = defined
        self.taken: dict[Atom, Var] = {}
        self.known: dict[tuple[Bound, ...], tuple[Atom, Atom]] = {}
        self.starts: dict[Ramp, tuple[Atom, Atom]] = {}

    def emit(self, op: Op, *inputs: Atom) -> Atom:
        """The one output of an equation."""
        return self.builder.emit(op, *inputs)[0]

    def bounded(self, array: Atom, axis: int, bounds: tuple[Bound, ...]) -> Atom:
        """An array with its range."""
        if bounds not in self.known:
            self.known[bounds] = self.ends(bounds)
        return self.builder.emit(zero_outside, array, *self.known[bounds], axis=axis)[0]

    def ends(self, bounds: Sequence[Bound]) -> tuple[Atom, Atom]:
        """The first position at which all comparisons may be true, and that after the last."""
        extent = bounds[0].extent
        firsts, lasts = [], []
        for bound in bounds:
            first, last = self.positions(bound)
            firsts += [] if first is None else [first]
            lasts += [] if last is None else [last]
        return self.joined(arithmetic.max, firsts, 0, extent), self.joined(arithmetic.min, lasts, extent, extent)

    def joined(self, op: Op, found: Sequence[Atom], default: int, extent: int) -> Atom:
        """The maximum or minimum of some positions, clamped to the extent of the axis."""
        if not found:
            return _number(default)
        position = functools.reduce(functools.partial(self.emit, op), found)
        return self.emit(arithmetic.min, self.emit(arithmetic.max, position, _number(0)), _number(extent))

    def positions(self, bound: Bound) -> tuple[Atom | None, Atom | None]:
        """The ends of one comparison, inside or outside of the axis; None for the end of the axis.

        Where the ramp wraps around, anything may be true.
        """
        equal, straight = self.wide(bound.scalar), None
        if bound.ramp.terms:
            if bound.ramp not in self.starts:
                self.starts[bound.ramp] = self.start(bound.ramp, bound.extent)
            start, straight = self.starts[bound.ramp]
            equal = self.emit(sub, equal, start)

        def end(offset: int | None, whole: int) -> Atom | None:
            if offset is None:
                return None
            position = self.emit(add, equal, _number(offset)) if offset else equal
            return position if straight is None else self.emit(select, straight, position, _number(whole))

        return end(bound.low, 0), end(bound.high, bound.extent)

    def start(self, ramp: Ramp, extent: int) -> tuple[Atom, Atom]:
        """The first element of a ramp, without overflow; true if all of its elements fit in an int32."""
        (op, term), *others = ramp.terms
        found = self.wide(term) if op is add else self.emit(op, _number(0), self.wide(term))
        for op, term in others:
            found = self.emit(op, found, self.wide(term))
        below, above = self.emit(le, found, _number(INT32.max + 1 - extent)), self.emit(ge, found, _number(INT32.min))
        return found, self.emit(bitwise_and, below, above)

    def wide(self, atom: Atom) -> Atom:
        """A scalar as an int64."""
        if isinstance(atom, Literal):
            return _number(int(atom.value))
        return self.builder.emit(convert, self.own(atom), dtype=dtypes.INT64)[0]

    def own(self, atom: Atom) -> Atom:
        """The variable of a scalar in this program."""
        if isinstance(atom, Literal) or atom in self.defined:
            return atom
        return self.taken.setdefault(atom, Var(atom.type, atom.hint))


def _number(value: int) -> Literal:
    return Literal(np.int64(value), dtypes.INT64)


# The facts that each operation gives.


def _count(zeros: Zeros, eqn: Eqn) -> None:
    if eqn.dtype == dtypes.INT32:
        zeros.ramps[eqn.outputs[0]] = Ramp(eqn.axis)


def _shift(zeros: Zeros, eqn: Eqn) -> None:
    """The ramp of `x + y` or `x - y`, one of them a ramp and the other a scalar."""
    x, y = eqn.inputs
    if eqn.op is add and y in zeros.ramps:
        x, y = y, x
    ramp = zeros.ramps.get(x)
    if ramp is not None and not y.type.shape:
        zeros.ramps[eqn.outputs[0]] = Ramp(ramp.axis, (*ramp.terms, (eqn.op, y)))


def _compare(zeros: Zeros, eqn: Eqn) -> None:
    """The range in which a comparison of a ramp with a scalar may be true."""
    (x, y), (low, high) = eqn.inputs, _BOUNDS[eqn.op]
    if x not in zeros.ramps:
        x, y, (low, high) = y, x, _BOUNDS[_MIRRORED[eqn.op]]
    if x in zeros.ramps and not y.type.shape:
        ramp = zeros.ramps[x]
        bound = Bound(ramp, x.type.shape[ramp.axis], y, low, high)
        zeros.bounds[eqn.outputs[0]] = {ramp.axis: (bound,)}


def _both(x: Bounds, y: Bounds) -> Bounds:
    """The bounds of an array that is zero wherever one of two arrays is."""
    return {axis: (*x.get(axis, ()), *y.get(axis, ())) for axis in {**x, **y}}


def _conjunction(zeros: Zeros, eqn: Eqn) -> None:
    x, y = (zeros.bounds.get(atom, {}) for atom in eqn.inputs)
    if dtypes.is_bool(eqn.outputs[0].type.dtype):
        zeros.bounds[eqn.outputs[0]] = _both(x, y)


def _choice(zeros: Zeros, eqn: Eqn) -> None:
    mask, other = eqn.predicate, eqn.on_false
    if isinstance(other, Literal) and other.value == 0 and mask.type.shape == eqn.outputs[0].type.shape:
        known = zeros.bounds.get(eqn.on_true, {}) if eqn.on_true.type == eqn.outputs[0].type else {}
        zeros.bounds[eqn.outputs[0]] = _both(zeros.bounds.get(mask, {}), known)


def _conversion(zeros: Zeros, eqn: Eqn) -> None:
    zeros.bounds[eqn.outputs[0]] = zeros.bounds.get(eqn.array, {})


def _rearranged(zeros: Zeros, eqn: Eqn) -> None:
    (out,) = eqn.outputs
    axes = _AXES[eqn.op](eqn.array.type.shape, eqn)
    known = zeros.bounds.get(eqn.array, {})
    zeros.bounds[out] = {axes[axis]: bounds for axis, bounds in known.items() if axis in axes}
    ramp = zeros.ramps.get(eqn.array)
    if ramp is not None and ramp.axis in axes:
        zeros.ramps[out] = Ramp(axes[ramp.axis], ramp.terms)


def _reshaped(before: Shape, eqn: Eqn) -> dict[int, int]:
    """The new position of each axis of size above 1, if only axes of size 1 are added or removed."""
    kept = [axis for axis, extent in enumerate(before) if extent != 1]
    places = [axis for axis, extent in enumerate(eqn.shape) if extent != 1]
    same = [before[axis] for axis in kept] == [eqn.shape[axis] for axis in places]
    return dict(zip(kept, places, strict=True)) if same else {}


def _broadcast(before: Shape, eqn: Eqn) -> dict[int, int]:
    return {n: axis for n, axis in enumerate(eqn.axes) if before[n] == eqn.shape[axis]}


def _transposed(before: Shape, eqn: Eqn) -> dict[int, int]:
    return {axis: place for place, axis in enumerate(eqn.permutation)}


_AXES: dict[Op, Callable[[Shape, Eqn], dict[int, int]]] = {
    reshape: _reshaped,
    broadcast: _broadcast,
    transpose: _transposed,
}

_BOUNDS: dict[Op, tuple[int | None, int | None]] = {
    lt: (None, 0),
    le: (None, 1),
    gt: (1, None),
    ge: (0, None),
    eq: (0, 1),
}
"""The range in which `ramp op scalar` may be true: the first position and that after the last."""

_MIRRORED: dict[Op, Op] = {lt: gt, le: ge, gt: lt, ge: le, eq: eq}

_RULES: dict[Op, Callable[[Zeros, Eqn], None]] = {
    iota: _count,
    add: _shift,
    sub: _shift,
    **dict.fromkeys(_BOUNDS, _compare),
    bitwise_and: _conjunction,
    select: _choice,
    convert: _conversion,
    reshape: _rearranged,
    transpose: _rearranged,
    broadcast: _rearranged,
}
