"""The residence of each value in a fusing compiler: in memory, or computed where it is used.

A chain of element-by-element operations is then one loop. The facts hold for every compiler that reads the fused form;
`keep_arrays` decides by them which values to keep.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from enum import Enum

from palladio.base.dataclass import dataclass
from palladio.ir.core import Atom, Eqn, Work
from palladio.lower.fusion.products import is_matrix_product, is_summed_by_rows
from palladio.lower.views import views
from palladio.ops.arrays.arithmetic import add, mul, neg, sub
from palladio.ops.arrays.casts import bitcast_convert, convert
from palladio.ops.arrays.dot import dot_accumulate, dot_general
from palladio.ops.arrays.keep import keep, tee
from palladio.ops.arrays.reduce import argmax, argmin
from palladio.ops.arrays.shape import broadcast, concatenate, iota, pad, reshape, reverse, transpose
from palladio.ops.arrays.sort import sort
from palladio.ops.arrays.zeros import zero_outside
from palladio.ops.references.masked import load_masked
from palladio.ops.references.memory import extract, load
from palladio.ops.threads.wgmma import accumulator_load, layout_cast
from palladio.types import dtypes
from palladio.types.transforms import Peer
from palladio.types.types import RefType


class Residence(Enum):
    """The ways to have the elements of a value."""

    SCALAR = "a scalar, in a register"
    MEMORY = "in memory"
    FREE = "computed at each use, for no more than reading them costs"
    CHEAP = "computed at each use, by a few additions and multiplications, from one array of the size that is in memory"
    EACH = "computed at each use"
    ROWS = "computed a few rows at a time, all rows in their order"
    WHOLE = "written to memory as a whole, and there only"


@dataclass(eq=False)
class Storage:
    """The memory of a reference.

    Fields:
        shared: other threads may change it where a thread yields to them.
        has_rows: its last axis is contiguous in memory.
    """

    shared: bool = False
    has_rows: bool = True


@dataclass(frozen=True)
class Availability:
    """A value of a program.

    Fields:
        reads: the memory that computing an element reads; true where element [i] reads only [i] of all of that memory.
        depth: the operations between an element and memory.
        source: of a cheap value, the one array of its size that it is computed from.
        steps: of a cheap value, the operations between that and an element.
        is_spread: it repeats the elements of a much smaller array in memory.
    """

    residence: Residence
    reads: Mapping[Storage, bool] = field(default_factory=dict)
    depth: int = 0
    source: Atom | None = None
    steps: int = 0
    is_spread: bool = False

    @property
    def is_kept(self) -> bool:
        """True if the value is in memory already: keeping it saves no computation."""
        return self.residence in (Residence.SCALAR, Residence.MEMORY, Residence.FREE)


FREE_RATIO = 16
"""The ratio of sizes from which on reading the repeated elements of a smaller array is free."""

SCALAR, KEPT = Availability(Residence.SCALAR), Availability(Residence.MEMORY)
Known = Availability | Storage


def merged(values: Sequence[Availability], aligned: bool = True) -> dict[Storage, bool]:
    """The memory that several values read together; not element by element, unless `aligned`."""
    reads: dict[Storage, bool] = {}
    for value in values:
        for memory, same in value.reads.items():
            reads[memory] = reads.get(memory, True) and same and aligned
    return reads


def results(eqn: Eqn, inputs: Sequence[Known]) -> list[Availability]:
    """The outputs of an equation that runs no programs."""
    rule = _RULES.get(eqn.op, _element_by_element if eqn.op.elementwise else _in_memory)
    arrays = [each for each in inputs if isinstance(each, Availability)]
    deepest = 1 + max((each.depth for each in arrays), default=0)
    found = rule(eqn, inputs) if eqn.outputs else KEPT
    if found.residence is not Residence.MEMORY:
        found = replace(found, depth=max(deepest, found.depth))
    return [found if var.type.shape else SCALAR for var in eqn.outputs]


def takes_rows(eqn: Eqn, inputs: Sequence[Known]) -> bool:
    """True if an equation is applied to a product while the product is computed."""
    rows = sum(isinstance(each, Availability) and each.residence is Residence.ROWS for each in inputs)
    return rows == 1 and eqn.op.elementwise and eqn.op.work is Work.NONE


def _values(inputs: Sequence[Known]) -> list[Availability]:
    return [each for each in inputs if isinstance(each, Availability)]


def _in_memory(eqn: Eqn, inputs: Sequence[Known]) -> Availability:
    if eqn.op.work is Work.REDUCTION and eqn.params.get("axes") == ():
        return _values(inputs)[0]
    return KEPT


CHEAP = (add, sub, mul, neg)
FEW = 3
"""The most of these operations in a cheap value: they cost less than writing the value and reading it once more."""


def _element_by_element(eqn: Eqn, inputs: Sequence[Known]) -> Availability:
    values = _values(inputs)
    reads = merged(values)
    if takes_rows(eqn, inputs):
        return Availability(Residence.ROWS, reads)
    return _cheap(eqn, values, reads) or Availability(Residence.EACH, reads)


def _cheap(eqn: Eqn, values: Sequence[Availability], reads: Mapping[Storage, bool]) -> Availability | None:
    """A result as a cheap value, if it is computed from one array of its size, and from much smaller ones."""
    (out,) = eqn.outputs
    wide = dtypes.is_float(out.type.dtype) and not dtypes.is_narrow_float(out.type.dtype)
    steps = 1 + max(value.steps for value in values)
    if eqn.op not in CHEAP or not wide or steps > FEW:
        return None
    sources: set[Atom] = set()
    for atom, value in zip(eqn.inputs, values, strict=True):
        if value.source is not None:
            sources.add(value.source)
        elif value.residence is Residence.MEMORY and atom.type.shape == out.type.shape and all(value.reads.values()):
            sources.add(atom)
        elif value.residence is not Residence.SCALAR and not value.is_spread:
            return None
    return Availability(Residence.CHEAP, reads, source=sources.pop(), steps=steps) if len(sources) == 1 else None


def _converted(eqn: Eqn, inputs: Sequence[Known]) -> Availability:
    found = _element_by_element(eqn, inputs)
    return replace(found, residence=Residence.FREE) if _values(inputs)[0].is_kept else found


def _rearranged(eqn: Eqn, inputs: Sequence[Known]) -> Availability:
    """A view of an array in memory, or a lazy array with the same elements at other indices."""
    (x,) = _values(inputs)
    return Availability(x.residence, merged([x], aligned=False))


def _spread(eqn: Eqn, inputs: Sequence[Known]) -> Availability:
    (x,) = _values(inputs)
    small = x.is_kept and FREE_RATIO * eqn.array.type.size <= eqn.outputs[0].type.size
    return Availability(
        Residence.FREE if x.is_kept else Residence.EACH, merged([x], aligned=False), is_spread=small or x.is_spread
    )


def _reshaped(eqn: Eqn, inputs: Sequence[Known]) -> Availability:
    """Axes of size 1 come and go; other reshapes are views of memory, also of the destination of a product."""
    if regroups_rows(eqn) and _values(inputs)[0].residence is Residence.ROWS:
        return Availability(Residence.WHOLE, merged(_values(inputs), aligned=False))
    before, after = eqn.array.type.shape, eqn.shape
    if [n for n in before if n != 1] == [n for n in after if n != 1]:
        return _spread(eqn, inputs)
    return _viewed(inputs)


def regroups_rows(eqn: Eqn) -> bool:
    """True if an equation renumbers the rows of an array and preserves each row."""
    return eqn.op is reshape and len(eqn.shape) > 1 and eqn.array.type.shape[-1:] == eqn.shape[-1:]


def _viewed(inputs: Sequence[Known]) -> Availability:
    """A view of an array in memory; lazy arrays are copied there first."""
    (x,) = _values(inputs)
    return Availability(Residence.MEMORY, merged([x], aligned=False) if x.residence is Residence.MEMORY else {})


def _recast(eqn: Eqn, inputs: Sequence[Known]) -> Availability:
    if eqn.dtype.itemsize == eqn.array.type.dtype.itemsize:
        return _element_by_element(eqn, inputs)
    return _viewed(inputs)


def _counted(eqn: Eqn, inputs: Sequence[Known]) -> Availability:
    return Availability(Residence.FREE)


def _product(eqn: Eqn, inputs: Sequence[Known]) -> Availability:
    values = _values(inputs)
    shapes = [each.type.shape for each in eqn.inputs]
    if is_matrix_product(shapes, eqn.contracting, eqn.batch):
        return Availability(Residence.ROWS, merged(values, aligned=False))
    several = any(len(shape) > 2 or len(axes) > 1 for shape, axes in zip(shapes, eqn.contracting, strict=True))
    return KEPT if eqn.batch[0] or several else Availability(Residence.FREE)


def _sorted(eqn: Eqn, inputs: Sequence[Known]) -> Availability:
    """An array that is sorted by itself, where it is stored."""
    return _put_together(eqn, inputs) if len(eqn.inputs) == 1 and eqn.params.get("last") is None else KEPT


def _put_together(eqn: Eqn, inputs: Sequence[Known]) -> Availability:
    """An array that is written part by part, where it is stored."""
    return Availability(Residence.WHOLE, merged(_values(inputs), aligned=False))


def _accumulated(eqn: Eqn, inputs: Sequence[Known]) -> Availability:
    acc, *sides = _values(inputs)
    if not is_summed_by_rows(eqn):
        return Availability(Residence.EACH, dict(acc.reads))
    return Availability(Residence.ROWS, merged([acc, Availability(Residence.MEMORY, merged(sides, aligned=False))]))


def _loaded(eqn: Eqn, inputs: Sequence[Known]) -> Availability:
    memory = inputs[0]
    if not isinstance(memory, Storage):
        return KEPT
    part = Availability(Residence.MEMORY, {memory: not eqn.transforms})
    return _put_together(eqn, [part, *inputs[1:]]) if gathers(eqn) else part


def gathers(eqn: Eqn) -> bool:
    """True if an access reads its elements one by one."""
    of = eqn.inputs[0].type
    stack = [each for each in eqn.transforms if not isinstance(each, Peer)]
    shapes = [atom.type.shape for atom in eqn.indices]
    array = of.array if isinstance(of, RefType) else of
    return any(each.gathered for each in views(array, stack, shapes))


def _part(eqn: Eqn, inputs: Sequence[Known]) -> Availability:
    return _put_together(eqn, inputs) if gathers(eqn) else _viewed(inputs[:1])


def _loaded_where(eqn: Eqn, inputs: Sequence[Known]) -> Availability:
    now = KEPT if gathers(eqn) else _loaded(eqn, inputs)
    return Availability(Residence.EACH, merged([now, *_values(inputs)]))


def _same(eqn: Eqn, inputs: Sequence[Known]) -> Availability:
    return _values(inputs)[0]


def _once(eqn: Eqn, inputs: Sequence[Known]) -> Availability:
    return KEPT


_RULES: dict[object, Callable[[Eqn, Sequence[Known]], Availability]] = {
    convert: _converted,
    bitcast_convert: _recast,
    broadcast: _spread,
    reshape: _reshaped,
    transpose: _rearranged,
    reverse: _rearranged,
    iota: _counted,
    argmax: _counted,
    argmin: _counted,
    dot_general: _product,
    dot_accumulate: _accumulated,
    sort: _sorted,
    concatenate: _put_together,
    pad: _put_together,
    load: _loaded,
    accumulator_load: _loaded,
    load_masked: _loaded_where,
    extract: _part,
    layout_cast: _same,
    zero_outside: _same,
    keep: _once,
    tee: _once,
}


def known(atom: Atom, values: Mapping[Atom, Known]) -> Known:
    """The facts about a variable; a literal is a scalar."""
    return values.get(atom, SCALAR)
