"""A survey of a program for repairs: the reference that each equation accesses, and the gaps for insertions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

from palladio.base.dataclass import dataclass
from palladio.base.locations import Location
from palladio.ir.core import Atom, Eqn, Literal, Program, Var
from palladio.machine.repair.edit import Path, Spot, part_at, parts, shape_at
from palladio.ops import OPS
from palladio.ops.threads.launch import launch
from palladio.types.transforms import Index, Operand, SliceEntry
from palladio.types.types import RefType, Type

Roots = Mapping[Atom, Var]
"""The original reference of each variable of a sub-program, as allocated by its launch or scope."""


@dataclass(frozen=True, eq=False)
class Gap:
    """A gap between two equations of a sub-program, before its equation number `index`.

    Fields:
        before: the last equation before it in the sub-program that synchronises or accesses memory, if there is one.
        after: the next such equation.
        around: the equation that has the sub-program.
        order: its position among all such equations of the program.
    """

    path: Path
    index: int
    before: Eqn | None
    after: Eqn | None
    around: Eqn | None
    order: float


@dataclass(frozen=True, eq=False)
class Use:
    """An index of an access: the atom or number that selects one of `extent` slots along an axis of a reference.

    An atom is the author's index, before the extent is added to negative values.
    """

    spot: Spot
    position: int
    level: int
    axis: int
    extent: int
    index: Atom | int


class Survey:
    """The equations of a program that synchronise or access memory, in order, with their references."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.spots: list[Spot] = []
        self.gaps: list[Gap] = []
        self.roots: dict[Path, Roots] = {}
        self.orders: dict[tuple[Path, int], int] = {}
        self._uses: dict[tuple[Path, int], list[Use]] = {}
        self._visit(program, (), {}, None)

    def _visit(self, program: Program, path: Path, roots: Roots, around: Eqn | None) -> None:
        self.roots[path] = roots
        last: Eqn | None = None
        inside = any(each[1] == "programs" for each in path)
        for index, eqn in enumerate(program.eqns):
            if not _matters(eqn):
                continue
            self.orders[path, index] = order = len(self.spots)
            self.spots.append(Spot(path, index, program))
            if inside:
                self.gaps.append(Gap(path, index, last, eqn, around, order - 0.5))
            for key, place, part in parts(eqn):
                inner = (*path, (index, key, place))
                self._visit(part, inner, self._inner(eqn, part, roots), eqn)
            last = eqn
        if inside and (last is not None or program.location is not None or program.name != "nothing"):
            self.gaps.append(Gap(path, len(program.eqns), last, None, around, len(self.spots) - 0.5))

    def _inner(self, eqn: Eqn, part: Program, roots: Roots) -> Roots:
        if eqn.op is launch:
            made, first = eqn.launch, eqn.programs[0]
            shared = len(first.inputs) - made.indices(0)
            pairs = zip(part.inputs[len(part.inputs) - shared :], first.inputs[made.indices(0) :], strict=True)
            return {var: root for var, root in pairs if isinstance(var.type, RefType)}
        start = eqn.op.own_operands
        if start is None:
            return {}
        inner = {
            var: roots[atom]
            for var, atom in zip(part.inputs, eqn.inputs[start:], strict=False)
            if atom in roots and isinstance(var.type, RefType)
        }
        made = part.inputs[len(eqn.inputs) - start :] if "allocations" in eqn.params else ()
        return {**inner, **{var: var for var in made}}

    def root(self, spot: Spot, position: int) -> Var | None:
        """The original reference of an equation's input."""
        atom = spot.eqn.inputs[position]
        return self.roots[spot.path].get(atom) if isinstance(atom, Var) else None

    def roots_at(self, spot: Spot) -> list[Var]:
        """The references that an equation accesses, except control flow."""
        reached = (self.root(spot, position) for position in range(len(spot.eqn.inputs)))
        return [] if spot.eqn.op.control else [root for root in reached if root is not None]

    @cached_property
    def all_roots(self) -> list[Var]:
        """Every reference that a launch or a scope of the program allocates or passes on."""
        found = (root for roots in self.roots.values() for root in roots.values() if isinstance(root.type, RefType))
        return list(dict.fromkeys(found))

    def at(self, locations: Iterable[Location]) -> list[Spot]:
        """The equations of these lines."""
        places = {(each.file, each.line, each.column, each.end_column) for each in locations}
        found = []
        for spot in self.spots:
            place = spot.eqn.location
            if place is None or spot.eqn.op.control or spot.eqn.op is launch:
                continue
            if (place.file, place.line, place.column, place.end_column) in places:
                found.append(spot)
        return found

    def order(self, spot: Spot) -> int:
        """The position of an equation among all surveyed ones."""
        return self.orders[spot.path, spot.index]

    def uses(self, spot: Spot) -> list[Use]:
        """The indices of an access that select one of several slots of a reference, its own block's or a peer's."""
        at = spot.path, spot.index
        if at not in self._uses:
            self._uses[at] = list(self._indices(spot))
        return self._uses[at]

    def _indices(self, spot: Spot) -> Iterator[Use]:
        eqn = spot.eqn
        if not eqn.op.index_start:
            return
        for position, stack in enumerate(eqn.op.stacks(eqn.transforms)):
            if not isinstance(eqn.inputs[position].type, RefType):
                continue
            for level, transform in enumerate(stack):
                if not isinstance(transform, Index):
                    continue
                shape = shape_at(eqn, position, level)
                for axis, (entry, extent) in enumerate(zip(transform.entries, shape, strict=True)):
                    if isinstance(entry, SliceEntry) or extent < 2:
                        continue
                    index: Any = eqn.indices[entry.position] if isinstance(entry, Operand) else entry
                    if isinstance(index, Literal):
                        index = int(index.value)
                    elif not isinstance(index, int):
                        index = unwrapped(spot.program, index)
                    yield Use(spot, position, level, axis, extent, index)

    def visible(self, path: Path, index: int) -> list[tuple[Path, Atom]]:
        """The variables that an inserted equation may use, of its program and of the enclosing ones, by path."""
        found: list[tuple[Path, Atom]] = []
        for depth in range(len(path), -1, -1):
            if not any(each[1] == "programs" for each in path[:depth]):
                break
            program = part_at(self.program, path[:depth])
            before = index if depth == len(path) else path[depth][0]
            found += [(path[:depth], atom) for atom in program.inputs]
            found += [(path[:depth], atom) for eqn in program.eqns[:before] for atom in eqn.outputs]
        return found

    def known_as(self, root: Var, path: Path, index: int) -> tuple[Path, Atom] | None:
        """The variable for a reference in the innermost enclosing program that has it."""
        for where, atom in self.visible(path, index):
            if isinstance(atom, Var) and self.roots[where].get(atom) is root:
                return where, atom
        return None


def unwrapped(program: Program, atom: Atom) -> Atom:
    """The author's index, before the extent was added to negative values."""
    chosen = maker(program, atom)
    if chosen is None or chosen.op is not OPS["select"]:
        return atom
    negative, inner = maker(program, chosen.predicate), chosen.on_false
    return inner if negative is not None and negative.op is OPS["lt"] and negative.x is inner else atom


def maker(program: Program, atom: Atom) -> Eqn | None:
    """The equation of a program that computes an atom."""
    return next((eqn for eqn in program.eqns if atom in eqn.outputs), None)


def remainder(program: Program, atom: Atom) -> Eqn | None:
    """The remainder by a constant that computes an index, looking through conversions."""
    eqn = maker(program, atom)
    while eqn is not None and eqn.op is OPS["convert"]:
        eqn = maker(program, eqn.array)
    return eqn if eqn is not None and eqn.op is OPS["rem"] and isinstance(eqn.y, Literal) else None


def _matters(eqn: Eqn) -> bool:
    if eqn.op.control or eqn.op is launch:
        return True
    return eqn.op.sync is not None or any(isinstance(atom.type, RefType) for atom in eqn.inputs)


def barriers(type: Type) -> bool:
    """True for a reference to barriers."""
    return isinstance(type, RefType) and type.space.name == "barrier"
