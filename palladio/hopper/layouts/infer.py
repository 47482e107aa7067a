"""Layout inference: the register layout of each array of a program.

The tensor cores demand layouts, and so may the kernel (`layout_cast`). Layouts propagate from there through elementwise
operations, reductions and broadcasts, into loops and out of them. Arrays without a demand get a plain layout. The rules
convert operands that have another layout than an operation needs.
Every conversion is possible; but if a kernel requests two layouts for values that must have one, it is ambiguous: that
is an error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from palladio.base.dataclass import dataclass
from palladio.base.errors import PalladioValueError
from palladio.base.locations import Location
from palladio.hopper.layouts import registers
from palladio.hopper.layouts.casts import requested
from palladio.hopper.layouts.registers import Digit, Layout
from palladio.ir.core import Atom, Eqn, Program, Var
from palladio.ops.control import cond, loop, repeat, scope
from palladio.ops.threads.launch import collective_scope
from palladio.types.types import ArrayType

SMALL = 256
"""The most elements of a vector that every warp holds redundantly."""

VECTOR_BYTES = 16


@dataclass(frozen=True)
class Demand:
    """A demanded layout, its origin and location; `requested` if the kernel requests it, rather than the hardware."""

    layout: Layout
    origin: str
    location: Location | None
    requested: bool = False


@dataclass(frozen=True)
class _Link:
    """Two arrays with different layouts that determine each other.

    Fields:
        outer: the array with more or larger axes; `inner` is the array with these axes reduced or removed.
        down, up: the layout of `inner` from that of `outer`, and the reverse; None if it is not determined.
    """

    outer: Var
    inner: Var
    down: Callable[[Layout], Layout | None]
    up: Callable[[Layout], Layout | None]


class Layouts:
    """The layouts of the arrays of a program, and of other programs that compute its indices."""

    def __init__(self, program: Program, one_warp: bool = False, others: Sequence[Program] = ()) -> None:
        self.one_warp = one_warp
        self.same: dict[Var, Var] = {}
        self.demands: dict[Var, Demand] = {}
        self.links: list[_Link] = []
        self.arrays: list[Var] = []
        self.packed: set[Var] = set()
        """Arrays that are left operands of products in registers."""
        for each in (program, *others):
            self.visit(each)
        self.spread()

    def of(self, var: Var) -> Layout:
        """The layout of an array."""
        return self.demands[self.find(var)].layout

    def known(self, atom: Atom) -> Layout | None:
        """The layout of an array; None for a number or a constant."""
        return self.of(atom) if _is_array(atom) else None

    # Constraints of the equations.

    def visit(self, program: Program) -> None:
        """Collect the constraints of the equations of a program and its sub-programs."""
        for var in program.inputs:
            self.note(var)
        for eqn in program.eqns:
            for var in eqn.outputs:
                self.note(var)
            for inner in _inner(eqn):
                self.visit(inner)
            for one, other in joined(eqn):
                self.join(one, other)
            constrain = _CONSTRAINTS.get(eqn.op.name)
            if constrain is not None:
                constrain(self, eqn)
            elif not eqn.op.control and not eqn.op.index_start:
                self.alike(eqn)

    def note(self, var: Var) -> None:
        """Register a variable, if it is an array."""
        if _is_array(var):
            self.arrays.append(var)

    def alike(self, eqn: Eqn) -> None:
        """Join the outputs and inputs of an operation whose threads compute the same elements of each."""
        outputs = [var for var in eqn.outputs if _is_array(var)]
        for first in outputs[:1]:
            for other in (*outputs[1:], *eqn.inputs):
                self.join(first, other)

    def join(self, one: Atom, other: Atom) -> None:
        """Require one layout for two arrays."""
        if not (_is_array(one) and _is_array(other)) or one.type.shape != other.type.shape:
            return
        a, b = self.find(one), self.find(other)
        if a is b:
            return
        first, second = self.demands.pop(a, None), self.demands.pop(b, None)
        if first and second:
            _require_same(first, second)
        self.same[b] = a
        if kept := first or second:
            self.demands[a] = kept

    def find(self, var: Var) -> Var:
        """The representative of the arrays that share a layout."""
        while var in self.same:
            var = self.same[var]
        return var

    def demand(
        self, var: Atom, layout: Layout, origin: str, location: Location | None, requested: bool = False
    ) -> bool:
        """Give an array a layout, unless it has one; returns True if it is new."""
        if not _is_array(var):
            return False
        root, demand = self.find(var), Demand(layout, origin, location, requested)
        if root in self.demands:
            _require_same(self.demands[root], demand)
            return False
        self.demands[root] = demand
        return True

    # Propagation.

    def spread(self) -> None:
        """Propagate until every array has a layout."""
        self.follow()
        for var in self.arrays:
            if self.demand(var, plain(var.type, self.one_warp), "a plain layout", None):
                self.follow()

    def follow(self) -> None:
        """Propagate along the links to a fixed point."""
        changed = True
        while changed:
            changed = False
            for link in self.links:
                outer, inner = (self.demands.get(self.find(var)) for var in (link.outer, link.inner))
                if outer is not None and inner is None:
                    changed |= self.pass_on(link.inner, link.down(outer.layout), outer)
                elif inner is not None and outer is None:
                    changed |= self.pass_on(link.outer, link.up(inner.layout), inner)

    def pass_on(self, var: Var, layout: Layout | None, cause: Demand) -> bool:
        """Demand a layout that follows from another one; returns True if it is new."""
        return layout is not None and self.demand(var, layout, cause.origin, cause.location)


def _require_same(one: Demand, other: Demand) -> None:
    """Refuse two layouts that the kernel requests for values that must have one.

    Raises:
        PalladioValueError: with both locations.
    """
    if one.requested and other.requested and not one.layout.same(other.layout):
        raise PalladioValueError(
            "values that are combined element by element, or carried by a loop, have one layout",
            argument="layout_cast",
            expected=one.origin,
            got=other.origin,
            hint="cast one of them to the layout of the other; without a cast, Palladio converts by itself",
            location=other.location,
            other=one.location,
            other_label="the other one is cast here",
        )


def plain(type: ArrayType, one_warp: bool = False) -> Layout:
    """The default layout of an array, without a demand."""
    if one_warp or (type.ndim <= 1 and type.size <= SMALL):
        return registers.warp(type.shape)
    vector = math.gcd(max(1, VECTOR_BYTES // type.dtype.itemsize), type.shape[-1] or 1)
    while vector > 1 and type.size < vector * registers.THREADS:
        vector //= 2
    return registers.strided(type.shape, vector)


def _is_array(atom: Atom) -> bool:
    return isinstance(atom, Var) and isinstance(atom.type, ArrayType) and atom.type.ndim > 0


def _inner(eqn: Eqn) -> Iterator[Program]:
    for value in eqn.params.values():
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, Program):
                yield item


def joined(eqn: Eqn) -> Iterator[tuple[Atom, Atom]]:
    """The pairs of values that an equation passes into its programs and out of them."""
    if eqn.op is cond:
        for branch in eqn.branches:
            yield from zip(eqn.operands, branch.inputs)
            yield from zip(eqn.outputs, branch.outputs)
    elif eqn.op is loop:
        yield from zip(eqn.operands, eqn.body.inputs[1:])
        yield from zip(eqn.body.inputs[1 + eqn.constants :], eqn.body.outputs)
        yield from zip(eqn.outputs, eqn.body.outputs)
    elif eqn.op is repeat:
        for program in (eqn.body, eqn.condition):
            yield from zip(eqn.operands, program.inputs)
        yield from zip(eqn.body.inputs[eqn.constants :], eqn.body.outputs)
        yield from zip(eqn.outputs, eqn.body.outputs)
    elif eqn.op in (scope, collective_scope):
        yield from zip(eqn.operands, eqn.body.inputs)
        yield from zip(eqn.outputs, eqn.body.outputs)


# Constraints of families of operations.


def _accumulator(layouts: Layouts, eqn: Eqn) -> None:
    (out,) = eqn.outputs
    layouts.demand(out, registers.wgmma(*out.type.shape), "an accumulator of the tensor cores", eqn.location)


def _accumulator_store(layouts: Layouts, eqn: Eqn) -> None:
    value = eqn.value
    if _is_array(value):
        layouts.demand(value, registers.wgmma(*value.type.shape), "an accumulator of the tensor cores", eqn.location)


def left_layout(type: ArrayType) -> Layout:
    """The layout of a product's left operand in registers."""
    make = {1: registers.wgmma_left_8bit, 2: registers.wgmma, 4: registers.wgmma_left_32bit}
    return make[type.dtype.itemsize](*type.shape)


def _wgmma(layouts: Layouts, eqn: Eqn) -> None:
    left = eqn.a
    if _is_array(left):
        layouts.demand(left, left_layout(left.type), "the left operand of wgmma", eqn.location)
        layouts.packed.add(left)


def _reduce(layouts: Layouts, eqn: Eqn) -> None:
    (x,), (out,) = eqn.inputs, eqn.outputs
    if _is_array(x) and _is_array(out):
        axes = eqn.axes
        layouts.links.append(_Link(x, out, lambda layout: layout.reduced(axes), _parent(x.type.shape, axes)))


def _broadcast(layouts: Layouts, eqn: Eqn) -> None:
    (x,), (out,) = eqn.inputs, eqn.outputs
    if not _is_array(x):
        return
    axes = eqn.axes
    new = [axis for axis in range(out.type.ndim) if axis not in axes]
    spread = [n for n, axis in enumerate(axes) if x.type.shape[n] != out.type.shape[axis]]

    def down(layout: Layout) -> Layout:
        return layout.reduced(new).reduced(spread, keep=True) if spread else layout.reduced(new)

    def up(layout: Layout) -> Layout | None:
        if spread and new:
            return None
        return _parent(out.type.shape, spread or new, bool(spread))(layout)

    layouts.links.append(_Link(out, x, down, up))


def _parent(shape: tuple[int, ...], axes: Sequence[int], keep: bool = False) -> Callable[[Layout], Layout | None]:
    """The inverse of a reduction of layouts, defined if the result is a wgmma fragment."""

    def up(layout: Layout) -> Layout | None:
        for whole in _fragments(shape):
            if whole.reduced(axes, keep).same(layout):
                return whole
        return None

    return up


def _fragments(shape: tuple[int, ...]) -> Iterator[Layout]:
    if len(shape) == 2 and shape[0] % 64 == 0 and shape[1] % 8 == 0:
        yield registers.wgmma(*shape)


def _reshape(layouts: Layouts, eqn: Eqn) -> None:
    (x,), (out,) = eqn.inputs, eqn.outputs
    if _is_array(x) and _is_array(out) and _same_but_ones(x.type.shape, out.type.shape):
        layouts.links.append(
            _Link(
                out,
                x,
                lambda layout: reshaped(layout, x.type.shape),
                lambda layout: reshaped(layout, out.type.shape),
            )
        )


def _same_but_ones(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    return [extent for extent in one if extent != 1] == [extent for extent in other if extent != 1]


def reshaped(layout: Layout, shape: tuple[int, ...]) -> Layout | None:
    """The layout of an array in a shape that differs in axes of size 1 only; None for other shapes."""
    if not _same_but_ones(layout.shape, shape):
        return None
    old = [axis for axis, extent in enumerate(layout.shape) if extent != 1]
    new = [axis for axis, extent in enumerate(shape) if extent != 1]
    place = dict(zip(old, new, strict=True))

    def moved(digits: Sequence[Digit]) -> tuple[Digit, ...]:
        return tuple(Digit(d.size, place[d.axis], d.stride) if d.axis in place else Digit(d.size) for d in digits)

    return Layout(shape, moved(layout.threads), moved(layout.registers), layout.name)


def _cast(layouts: Layouts, eqn: Eqn) -> None:
    (x,), (out,) = eqn.inputs, eqn.outputs
    if _is_array(out):
        wanted = requested(eqn.layout, out.type)
        if wanted is not None:
            layouts.demand(out, wanted, str(eqn.layout), eqn.location, requested=True)
        layouts.demand(
            x, layouts.demands[layouts.find(out)].layout if wanted else plain(x.type), "its cast", eqn.location
        )


def _nothing(layouts: Layouts, eqn: Eqn) -> None:
    """An operation without constraints between the layouts of its arrays."""


_CONSTRAINTS: dict[str, Callable[[Layouts, Eqn], None]] = {
    "accumulator_load": _accumulator,
    "accumulator_store": _accumulator_store,
    "wgmma": _wgmma,
    "broadcast": _broadcast,
    "reshape": _reshape,
    "layout_cast": _cast,
    **{f"reduce_{kind}": _reduce for kind in ("sum", "prod", "max", "min", "and", "or", "xor")},
    **dict.fromkeys(
        (
            *("transpose", "concatenate", "pad", "reverse", "dot_general", "argmax", "argmin"),
            *("iota", "extract", "insert"),
        ),
        _nothing,
    ),
}


def _masked(layouts: Layouts, eqn: Eqn) -> None:
    """Join the values, masks and results of one access."""
    given = eqn.inputs[1 : eqn.op.index_start or None]
    arrays = [*eqn.outputs, *(atom for atom in given if _is_array(atom))]
    for other in arrays[1:]:
        layouts.join(arrays[0], other)


def _accumulated(layouts: Layouts, eqn: Eqn) -> None:
    """Join a product with its initial accumulator."""
    layouts.join(eqn.outputs[0], eqn.acc)


_CONSTRAINTS["dot_accumulate"] = _accumulated
_CONSTRAINTS |= dict.fromkeys(("load_masked", "store_masked", "store_rows", "swap", "accumulate", "atomic"), _masked)
