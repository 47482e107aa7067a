"""The uses of a launch's references: arrivals at its barriers, and the buffers of products and copies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field

from palladio.base.dataclass import dataclass
from palladio.base.locations import Location
from palladio.ir.core import Atom, Eqn, Op, Program, Var, subprograms
from palladio.ops.control import cond, loop
from palladio.ops.threads import barrier, copy, wgmma
from palladio.ops.threads.launch import launch
from palladio.types.attributes import Arrivals
from palladio.types.effects import EffectKind
from palladio.types.transforms import Peer
from palladio.types.types import ANY, GMEM, ArrayType, RefType

COPY = "copy"
ROWS = "rows"
"""Row gathers by an array of indices, which threads copy: ordinary writes to shared memory."""

THREAD = "thread"
WARPS = 4
"""Warps of a warpgroup: where threads arrive at a barrier, each warp arrives separately."""


@dataclass
class Use:
    """The uses of one reference, in all programs to which it is passed.

    Fields:
        arrivals: of a barrier: COPY, ROWS and THREAD, if copies, row gathers or threads arrive.
        products: the locations of products that read it.
        copies: the locations of TMA copies into it or out of it.
        accesses: the locations of loads and stores by threads.
        read, written: True if anything reads it, or writes to it.
        shared: True if threads of other blocks of the cluster access it.
        remote: of a barrier: True if threads of other blocks arrive.
        waits: of a barrier: False if whole threads wait, True if single warps of them do; both if both do.
    """

    arrivals: set[str] = field(default_factory=set)
    products: list[Location | None] = field(default_factory=list)
    copies: list[Location | None] = field(default_factory=list)
    accesses: list[Location | None] = field(default_factory=list)
    read: bool = False
    written: bool = False
    shared: bool = False
    remote: bool = False
    waits: set[bool] = field(default_factory=set)

    @property
    def unit(self) -> int:
        """The hardware arrivals of one arrival: 1 if only copies arrive, else one for each warp.

        One thread arrives for a copy, as many times.
        """
        return WARPS if THREAD in self.arrivals else 1


def is_clustered(type: RefType, use: Use) -> bool:
    """True if threads of other blocks arrive at a barrier."""
    arrivals = type.attribute(Arrivals)
    return use.remote or (arrivals is not None and bool(arrivals.cluster_axes))


def publishes(used: Mapping[Var, Use], aliases: Iterable[tuple[Var, Var]]) -> bool:
    """True if blocks of a cluster may read what others of them have written, so that barriers have to order that.

    They read it in global memory or in each other's shared memory. Products and copies of buffers of a block's own are
    ordered without that: they are complete before the block arrives.

    Args:
        used: the uses of each allocation.
        aliases: operands and outputs in one memory.
    """
    pairs = [(var, var) for var in used if var.type.space in (GMEM, ANY)]
    return any(use.shared for use in used.values()) or any(
        source in used and target in used and used[source].read and used[target].written
        for source, target in (*pairs, *aliases)
    )


Roots = Mapping[Var, Var]
"""The allocation of each reference in a program."""


def uses(programs: Iterable[Program]) -> dict[Var, Use]:
    """The uses of each allocation by programs that share their inputs and allocations."""
    found: dict[Var, Use] = {}
    for program in programs:
        _visit(program, {}, found)
    return found


def _visit(program: Program, roots: Roots, found: dict[Var, Use], warps: bool = False) -> None:
    for eqn in program.eqns:
        if eqn.op in (barrier.barrier_wait, barrier.barrier_test):
            root = eqn.inputs[0]
            found.setdefault(roots.get(root, root), Use()).waits.add(warps)
        for position, record in _uses_of(eqn):
            atom = eqn.inputs[position]
            if isinstance(atom, Var) and isinstance(atom.type, RefType):
                use = found.setdefault(roots.get(atom, atom), Use())
                record(use, eqn.location)
                of_a_peer = _is_of_a_peer(eqn, position)
                use.remote |= record is _THREAD and of_a_peer
                use.shared |= record is _ACCESS and of_a_peer
                if record is _ARRIVING_COPY and is_of_rows(eqn):
                    use.arrivals.add(ROWS)
        for kind, var in eqn.effects:
            if var is not None:
                use = found.setdefault(roots.get(var, var), Use())
                use.read |= kind is EffectKind.READ
                use.written |= kind is not EffectKind.READ
        for inner in subprograms(eqn):
            inside = {own: roots.get(atom, atom) for own, atom in passed(eqn, inner) if isinstance(atom, Var)}
            _visit(inner, inside, found, warps or eqn.op is launch)


def is_of_rows(eqn: Eqn) -> bool:
    """True for a copy with an array of indices: a gather of rows."""
    return any(atom.type.shape for atom in eqn.inputs[eqn.op.index_start :])


def _is_of_a_peer(eqn: Eqn, position: int) -> bool:
    """True if an equation accesses the reference of another block of the cluster."""
    return any(isinstance(transform, Peer) for transform in eqn.op.stacks(eqn.transforms)[position])


def passed(eqn: Eqn, inner: Program) -> Iterator[tuple[Var, Atom]]:
    """The references among the inputs of a sub-program, each with its argument."""
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


RecordUse = Callable[[Use, Location | None], None]
"""Records one use of a reference."""


def _arrives(kind: str) -> RecordUse:
    def record(use: Use, location: Location | None) -> None:
        use.arrivals.add(kind)

    return record


def _note(name: str) -> RecordUse:
    def record(use: Use, location: Location | None) -> None:
        getattr(use, name).append(location)

    return record


_PRODUCT, _COPY, _ACCESS = _note("products"), _note("copies"), _note("accesses")
_THREAD, _ARRIVING_COPY = _arrives(THREAD), _arrives(COPY)
_USES: dict[Op, dict[str, RecordUse]] = {
    copy.copy_gmem_to_smem: {"source": _COPY, "target": _COPY, "barrier": _ARRIVING_COPY},
    copy.copy_smem_to_gmem: {"source": _COPY, "target": _COPY},
    copy.async_store_smem: {"target": _ACCESS, "barrier": _THREAD},
    barrier.barrier_arrive: {"barrier": _THREAD},
    wgmma.wgmma: {"a": _PRODUCT, "b": _PRODUCT},
}
"""The uses of operands by name; other operations load from the references that they index, or store to them."""


def _uses_of(eqn: Eqn) -> Iterator[tuple[int, RecordUse]]:
    """An equation's uses of its operands, by position."""
    listed = _USES.get(eqn.op)
    if listed is None:
        yield from ((position, _ACCESS) for position in range(eqn.op.ref_count if eqn.op.index_start else 0))
        return
    yield from ((eqn.op.signature.operands.index(name), record) for name, record in listed.items())
