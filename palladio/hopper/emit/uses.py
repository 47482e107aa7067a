"""The uses of a launch's references: who arrives at its barriers, which buffers the hardware reads and fills."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from palladio.base.locations import Location
from palladio.ir.core import Atom, Eqn, Op, Program, Var, subprograms
from palladio.ops.control import cond, loop
from palladio.ops.threads import barrier, copy, wgmma
from palladio.ops.threads.launch import launch
from palladio.types.effects import EffectKind
from palladio.types.transforms import Peer
from palladio.types.types import ArrayType, RefType

COPY = "copy"
ROWS = "rows"
"""Copies of rows by an array of indices, which the threads make: ordinary writes to shared memory."""

THREAD = "thread"
WARPS = 4
"""Warps of a thread of the launch, a warpgroup: each arrives for itself where threads arrive at a barrier."""


@dataclass
class Use:
    """The uses of one reference, wherever it is passed.

    Fields:
        arrivals: whether copies, among them those of rows, or threads arrive at it, if it is a barrier.
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
        for position, say in _said(eqn):
            atom = eqn.inputs[position]
            if isinstance(atom, Var) and isinstance(atom.type, RefType):
                use = found.setdefault(roots.get(atom, atom), Use())
                say(use, eqn.location)
                use.remote |= say is _THREAD and _is_of_a_peer(eqn, position)
                if say is _ARRIVING_COPY and is_of_rows(eqn):
                    use.arrivals.add(ROWS)
        for kind, var in eqn.effects:
            if var is not None and kind is not EffectKind.READ:
                found.setdefault(roots.get(var, var), Use()).written = True
        for inner in subprograms(eqn):
            inside = {own: roots.get(atom, atom) for own, atom in passed(eqn, inner) if isinstance(atom, Var)}
            _visit(inner, inside, found)


def is_of_rows(eqn: Eqn) -> bool:
    """True for a copy with an array of indices: of rows that lie anywhere."""
    return any(atom.type.shape for atom in eqn.inputs[eqn.op.index_start :])


def _is_of_a_peer(eqn: Eqn, position: int) -> bool:
    """True if an equation reaches the reference of another block of the cluster."""
    return any(isinstance(transform, Peer) for transform in eqn.op.stacks(eqn.transforms)[position])


def passed(eqn: Eqn, inner: Program) -> Iterator[tuple[Var, Atom]]:
    """The references among the inputs of a sub-program, with those that are passed in."""
    outer: Sequence[Atom] = eqn.inputs
    own: Sequence[Var] = inner.inputs
    if eqn.op is loop:
        outer, own = eqn.operands, inner.inputs[1:]
    elif eqn.op is cond:
        outer = eqn.operands
    elif eqn.op is launch:
        number = eqn.programs.index(inner)
        outer, own = eqn.inputs[eqn.launch.dynamic :], eqn.launch.split(number, inner.inputs).operands
    for var, atom in zip(own, outer):
        if isinstance(var.type, RefType) and not isinstance(atom.type, ArrayType):
            yield var, atom


Say = Callable[[Use, Location | None], None]
"""Notes one use of a reference."""


def _arrives(kind: str) -> Say:
    def say(use: Use, location: Location | None) -> None:
        use.arrivals.add(kind)

    return say


def _note(name: str) -> Say:
    def say(use: Use, location: Location | None) -> None:
        getattr(use, name).append(location)

    return say


_PRODUCT, _COPY, _ACCESS = _note("products"), _note("copies"), _note("accesses")
_THREAD, _ARRIVING_COPY = _arrives(THREAD), _arrives(COPY)
_SAID: dict[Op, dict[str, Say]] = {
    copy.copy_gmem_to_smem: {"source": _COPY, "target": _COPY, "barrier": _ARRIVING_COPY},
    copy.copy_smem_to_gmem: {"source": _COPY, "target": _COPY},
    copy.async_store_smem: {"target": _ACCESS, "barrier": _THREAD},
    barrier.barrier_arrive: {"barrier": _THREAD},
    wgmma.wgmma: {"a": _PRODUCT, "b": _PRODUCT},
}
"""The uses of operands by name; other operations load from the references that they reach into, or store there."""


def _said(eqn: Eqn) -> Iterator[tuple[int, Say]]:
    """The uses that an equation makes of its operands, by their positions."""
    listed = _SAID.get(eqn.op)
    if listed is None:
        yield from ((position, _ACCESS) for position in range(eqn.op.ref_count if eqn.op.index_start else 0))
        return
    yield from ((eqn.op.signature.operands.index(name), say) for name, say in listed.items())
