"""The uses of a launch's references: who arrives at its barriers, which buffers the hardware reads and fills."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from palladio.base.locations import Location
from palladio.ir.core import Atom, Eqn, Program, Var, subprograms
from palladio.types.effects import EffectKind
from palladio.types.transforms import Peer
from palladio.types.types import ArrayType, RefType

COPY = "copy"
THREAD = "thread"
WARPS = 4
"""Warps of a thread of the launch, a warpgroup: each arrives for itself where threads arrive at a barrier."""


@dataclass
class Use:
    """The uses of one reference, wherever it is passed.

    Fields:
        arrivals: whether copies or threads arrive at it, if it is a barrier.
        products: where the tensor cores read it.
        copies: where boxes are copied into it or out of it.
        accesses: where threads load from it or store to it.
        written: whether anything writes to it.
        remote: whether threads of other blocks arrive at it by themselves, if it is a barrier.
    """

    arrivals: set[str] = field(default_factory=set)
    products: list[Location | None] = field(default_factory=list)
    copies: list[Location | None] = field(default_factory=list)
    accesses: list[Location | None] = field(default_factory=list)
    written: bool = False
    remote: bool = False

    @property
    def unit(self) -> int:
        """The number of times that a barrier counts one arrival: one where only copies arrive, else one a warp.

        A copy arrives from one thread, which counts as often there.
        """
        return WARPS if THREAD in self.arrivals else 1


Roots = Mapping[Var, Var]
"""The allocation of a reference inside of a program."""


def uses(programs: Iterable[Program]) -> dict[Var, Use]:
    """The uses of each reference by some programs that share their inputs and allocations, by its allocation."""
    found: dict[Var, Use] = {}
    for program in programs:
        _visit(program, {}, found)
    return found


def _visit(program: Program, roots: Roots, found: dict[Var, Use]) -> None:
    for eqn in program.eqns:
        for atom, say in _said(eqn):
            if isinstance(atom, Var) and isinstance(atom.type, RefType):
                say(found.setdefault(roots.get(atom, atom), Use()), eqn.location)
        if eqn.op.name in ("barrier_arrive", "async_store_smem"):
            _note_peers(eqn, roots, found)
        for kind, var in eqn.effects:
            if var is not None and kind is not EffectKind.READ:
                found.setdefault(roots.get(var, var), Use()).written = True
        for inner in subprograms(eqn):
            inside = {own: roots.get(atom, atom) for own, atom in passed(eqn, inner) if isinstance(atom, Var)}
            _visit(inner, inside, found)


def _note_peers(eqn: Eqn, roots: Roots, found: dict[Var, Use]) -> None:
    """An arrival at the barrier of another block of the cluster."""
    position = 0 if eqn.op.name == "barrier_arrive" else 1
    stack = eqn.op.stacks(eqn.params["transforms"])[position]
    atom = eqn.inputs[position]
    if any(isinstance(transform, Peer) for transform in stack) and isinstance(atom, Var):
        found.setdefault(roots.get(atom, atom), Use()).remote = True


def passed(eqn: Eqn, inner: Program) -> Iterator[tuple[Var, Atom]]:
    """The references among the inputs of a sub-program, with those that are passed in."""
    name = eqn.op.name
    outer: Sequence[Atom] = eqn.inputs
    own: Sequence[Var] = inner.inputs
    if name == "loop":
        outer, own = eqn.inputs[2:], inner.inputs[1:]
    elif name == "cond":
        outer = eqn.inputs[1:]
    elif name == "launch":
        launch = eqn.params["launch"]
        number = eqn.params["programs"].index(inner)
        outer, own = eqn.inputs[launch.dynamic :], launch.split(number, inner.inputs).operands
    for var, atom in zip(own, outer):
        if isinstance(var.type, RefType) and not isinstance(atom.type, ArrayType):
            yield var, atom


def _arrives(kind: str):  # type: ignore[no-untyped-def]
    def say(use: Use, location: Location | None) -> None:
        use.arrivals.add(kind)

    return say


def _note(name: str):  # type: ignore[no-untyped-def]
    def say(use: Use, location: Location | None) -> None:
        getattr(use, name).append(location)

    return say


_PRODUCT, _COPY, _ACCESS = _note("products"), _note("copies"), _note("accesses")
_SAID = {
    "copy_gmem_to_smem": ((0, _COPY), (1, _COPY), (2, _arrives(COPY))),
    "copy_smem_to_gmem": ((0, _COPY), (1, _COPY)),
    "async_store_smem": ((0, _ACCESS), (1, _arrives(THREAD))),
    "barrier_arrive": ((0, _arrives(THREAD)),),
    "wgmma": ((1, _PRODUCT), (2, _PRODUCT)),
}


def _said(eqn: Eqn):  # type: ignore[no-untyped-def]
    listed = _SAID.get(eqn.op.name)
    if listed is None:
        reaches = eqn.op.ref_count if eqn.op.index_start else 0
        listed = tuple((position, _ACCESS) for position in range(reaches))
    return [(eqn.inputs[position], say) for position, say in listed]
