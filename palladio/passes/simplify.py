"""Simplification: equations become simpler ones with the same results, bit for bit.

One walk from the first equation to the last: inputs are replaced by the results of simplified equations, an operation
on constants is computed by its own definition (`Op.eval`), and a table of rules by operation name does the rest. The
equations that a rule forms are simplified again, and so are those of an inlined sub-program.

Signs of zero are preserved: x + 0.0 is not x (for x = -0.0), x + (-0.0) is. A constant that would be NaN is not
folded, since text does not preserve its bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from palladio.base.errors import PalladioError
from palladio.ir.bind import form
from palladio.ir.core import Atom, Eqn, Literal, Op, Program, Var
from palladio.ir.paths import concatenated, is_static, shortened
from palladio.ir.rewrite import map_subprograms, substituted, with_body, with_parts, with_signature
from palladio.ops import control
from palladio.ops.arrays import arithmetic, bits, shape
from palladio.ops.references import memory
from palladio.passes.pipeline import ANY, Pass
from palladio.types import dtypes
from palladio.types.types import ArrayType, RefType

Atoms = Sequence[Atom]


def simplify_program(program: Program) -> Program:
    """The program with its equations, and those of its sub-programs, in a simpler form."""
    rewriting = _Rewriting()
    for eqn in program.eqns:
        rewriting.rewrite(eqn)
    return with_body(program, rewriting.eqns, map(rewriting.value, program.outputs))


class _Rewriting:
    """The state of rewriting one program: its new equations, and the new value of each old variable."""

    def __init__(self) -> None:
        self.eqns: list[Eqn] = []
        self.values: dict[Atom, Atom] = {}
        self.made_by: dict[Atom, Eqn] = {}
        self.location: Any = None

    def value(self, atom: Atom) -> Atom:
        return self.values.get(atom, atom)

    def rewrite(self, eqn: Eqn) -> None:
        """Write the equation or its replacement."""
        eqn = substituted(eqn, self.values)
        eqn = with_parts(eqn, eqn.inputs, map_subprograms(eqn.params, simplify_program))
        self.location = eqn.location
        found = _folded(eqn)
        if found is None and eqn.op.index_start and eqn.op.ref_count == 1:
            found = _shorter_path(self, eqn)
        for rule in _RULES.get(eqn.op.name, ()):
            found = rule(self, eqn) if found is None else found
        if found is not None:
            self.values.update(zip(eqn.outputs, found, strict=True))
            return
        self.eqns.append(eqn)
        self.made_by.update((var, eqn) for var in eqn.outputs)

    def emit(self, op: Op, *inputs: Atom, **params: Any) -> Atoms:
        """Form an equation in place of the one being rewritten, simplify it as well, and return its outputs."""
        eqn = form(op, inputs, params, self.location)
        self.rewrite(eqn)
        return tuple(map(self.value, eqn.outputs))

    def inline(self, program: Program, values: Atoms) -> Atoms:
        """Inline a sub-program here, with fresh variables, and return its outputs."""
        known: dict[Atom, Atom] = dict(zip(program.inputs, values, strict=True))
        for eqn in program.eqns:
            fresh = tuple(Var(var.type, var.hint) for var in eqn.outputs)
            moved = substituted(eqn, known)
            self.rewrite(Eqn(moved.op, moved.inputs, fresh, moved.params, moved.effects, moved.location))
            known.update(zip(eqn.outputs, map(self.value, fresh), strict=True))
        return tuple(known.get(atom, atom) for atom in program.outputs)

    def made_as(self, atom: Atom, op: Op) -> Eqn | None:
        """The equation that defines a value, if it is of this operation."""
        eqn = self.made_by.get(atom)
        return eqn if eqn is not None and eqn.op is op else None

    def filled(self, value: Any, type: ArrayType) -> Atoms:
        """An array of one constant."""
        scalar = Literal(value, type.dtype)
        return self.emit(shape.broadcast, scalar, shape=type.shape, axes=()) if type.shape else (scalar,)


Rule = Callable[[_Rewriting, Eqn], Atoms | None]


def _folded(eqn: Eqn) -> Atoms | None:
    """Constant folding: the outputs of an operation on constants, by its definition."""
    if eqn.effects or eqn.op.control or not eqn.inputs or any(var.type.shape for var in eqn.outputs):
        return None
    values = [atom.value for atom in eqn.inputs if isinstance(atom, Literal)]
    if len(values) != len(eqn.inputs):
        return None
    try:
        with np.errstate(all="ignore"):
            outputs = [np.asarray(value)[()] for value in eqn.op.eval(*values, **eqn.params)]
    except PalladioError:
        return None  # It fails at its own position when the program runs.
    if any(dtypes.is_float(value.dtype) and np.isnan(value) for value in outputs):
        return None
    return tuple(Literal(value, value.dtype) for value in outputs)


# Arithmetic: neutral elements, and self-inverse operations.


def _is(atom: Atom, number: float) -> bool:
    """True if an atom is this constant, the sign of a float zero included."""
    if not isinstance(atom, Literal):
        return False
    same_sign = not dtypes.is_float(atom.type.dtype) or bool(np.signbit(atom.value)) == bool(np.signbit(number))
    return bool(atom.value == number) and same_sign


def _is_zero_of_sum(atom: Atom) -> bool:
    return isinstance(atom, Literal) and _is(atom, -0.0 if dtypes.is_float(atom.type.dtype) else 0)


def _is_one(atom: Atom) -> bool:
    return _is(atom, 1)


def _is_positive_zero(atom: Atom) -> bool:
    return _is(atom, 0)


def _has_all_bits(atom: Atom) -> bool:
    return isinstance(atom, Literal) and bool(~atom.value == 0)


def _neutral(test: Callable[[Atom], bool], left: bool = False) -> Rule:
    """`x op neutral` is x, and with `left` so is `neutral op x`."""

    def rule(rewriting: _Rewriting, eqn: Eqn) -> Atoms | None:
        x, y = eqn.inputs
        if test(y) and x.type == eqn.outputs[0].type:
            return (x,)
        return (y,) if left and test(x) and y.type == eqn.outputs[0].type else None

    return rule


def _absorbing(test: Callable[[Atom], bool], value: int) -> Rule:
    """`x op absorbing`, or the reverse, is a constant, for integers and bool."""

    def rule(rewriting: _Rewriting, eqn: Eqn) -> Atoms | None:
        type = eqn.outputs[0].type
        if not isinstance(type, ArrayType) or dtypes.is_float(type.dtype) or not any(map(test, eqn.inputs)):
            return None
        return rewriting.filled(value, type)

    return rule


def _of_itself(value: int | None) -> Rule:
    """`x op x` is x, or for integers and bool the constant `value`."""

    def rule(rewriting: _Rewriting, eqn: Eqn) -> Atoms | None:
        x, y = eqn.inputs
        if x is not y or not isinstance(x.type, ArrayType):
            return None
        if value is None:
            return (x,)
        return None if dtypes.is_float(x.type.dtype) else rewriting.filled(value, x.type)

    return rule


def _undoes_itself(rewriting: _Rewriting, eqn: Eqn) -> Atoms | None:
    (x,) = eqn.inputs
    inner = rewriting.made_as(x, eqn.op)
    return None if inner is None else inner.inputs


def _same_type(rewriting: _Rewriting, eqn: Eqn) -> Atoms | None:
    """A conversion of one input to the type that it has is the input."""
    (x,) = eqn.inputs
    return eqn.inputs if x.type == eqn.outputs[0].type else None


def _select(rewriting: _Rewriting, eqn: Eqn) -> Atoms | None:
    predicate, on_true, on_false = eqn.inputs
    if on_true is on_false:
        chosen = on_true
    elif isinstance(predicate, Literal):
        chosen = on_true if predicate.value else on_false
    else:
        return None
    type = eqn.outputs[0].type
    if chosen.type == type:
        return (chosen,)
    return rewriting.emit(shape.broadcast, chosen, shape=type.shape, axes=())


# Shapes.


def _broadcast(rewriting: _Rewriting, eqn: Eqn) -> Atoms | None:
    inner = rewriting.made_as(eqn.array, eqn.op)
    if inner is None:
        return _same_type(rewriting, eqn)
    axes = tuple(eqn.axes[axis] for axis in inner.axes)
    return rewriting.emit(eqn.op, inner.array, shape=eqn.shape, axes=axes)


def _reshape(rewriting: _Rewriting, eqn: Eqn) -> Atoms | None:
    inner = rewriting.made_as(eqn.array, eqn.op)
    if inner is None:
        return _same_type(rewriting, eqn)
    return rewriting.emit(eqn.op, inner.array, **eqn.params)


def _transpose(rewriting: _Rewriting, eqn: Eqn) -> Atoms | None:
    permutation = eqn.permutation
    if permutation == tuple(range(len(permutation))):
        return eqn.inputs
    inner = rewriting.made_as(eqn.array, eqn.op)
    if inner is None:
        return None
    first = inner.permutation
    return rewriting.emit(eqn.op, inner.array, permutation=tuple(first[axis] for axis in permutation))


def _only_one(rewriting: _Rewriting, eqn: Eqn) -> Atoms | None:
    return eqn.inputs if len(eqn.inputs) == 1 else None


def _pads_nothing(rewriting: _Rewriting, eqn: Eqn) -> Atoms | None:
    return None if any(map(any, eqn.padding)) else eqn.inputs[:1]


def _reverses_nothing(rewriting: _Rewriting, eqn: Eqn) -> Atoms | None:
    return None if eqn.axes else eqn.inputs


# Access paths.


def _shorter_path(rewriting: _Rewriting, eqn: Eqn) -> Atoms | None:
    """The same access without the identity transforms of its path."""
    fixed, indices = eqn.inputs[: eqn.op.index_start], eqn.indices
    transforms = eqn.transforms
    (root, *_) = fixed
    array = root.type.array if isinstance(root.type, RefType) else root.type
    shorter, operands = shortened(array, transforms, indices)
    if shorter == transforms:
        return None
    return rewriting.emit(eqn.op, *fixed, *operands, **{**eqn.params, "transforms": shorter})


def _extract(rewriting: _Rewriting, eqn: Eqn) -> Atoms | None:
    array, indices, transforms = eqn.array, eqn.indices, eqn.transforms
    if not transforms:
        return (array,)
    inner = rewriting.made_as(array, eqn.op)
    if inner is not None:
        path = concatenated((inner.transforms, inner.indices), (transforms, indices))
        return rewriting.emit(eqn.op, inner.array, *path[1], transforms=path[0])
    inner = rewriting.made_as(array, memory.insert)
    replaced = inner is not None and inner.params == {"transforms": transforms, "kind": "set"}
    return (inner.value,) if inner is not None and replaced and is_static(transforms) else None


def _insert(rewriting: _Rewriting, eqn: Eqn) -> Atoms | None:
    """Replacing or combining the whole array needs no transforms."""
    if eqn.transforms:
        return None
    if eqn.kind == "set":
        return (eqn.value,)
    op = memory.JOINED_BY[eqn.kind]
    try:
        return rewriting.emit(op, eqn.array, eqn.value)
    except PalladioError:
        return None  # The operation is not defined for this dtype: a sum of bools.


# Control flow.


def _cond(rewriting: _Rewriting, eqn: Eqn) -> Atoms | None:
    index, operands, branches = eqn.index, eqn.operands, eqn.branches
    if isinstance(index, Literal):
        return rewriting.inline(branches[min(max(int(index.value), 0), len(branches) - 1)], operands)
    return rewriting.inline(branches[0], operands) if len(branches) == 1 else None


def _short_loop(rewriting: _Rewriting, eqn: Eqn) -> Atoms | None:
    """A loop of no trips, or of one."""
    lower, upper, operands = eqn.lower, eqn.upper, eqn.operands
    if not isinstance(lower, Literal) or not isinstance(upper, Literal):
        return None
    trips = range(int(lower.value), int(upper.value), eqn.step)
    if len(trips) == 1:
        return rewriting.inline(eqn.body, (lower, *operands))
    return None if trips else operands[eqn.constants :]


def _invariant_carry(names: Sequence[str], bounds: int, leading: int) -> Rule:
    """A carry that the body returns unchanged is a constant.

    Args:
        names: the loop's sub-programs among its parameters, the body last.
        bounds, leading: how many inputs of the loop, and of its body, precede the constants.
    """

    def rule(rewriting: _Rewriting, eqn: Eqn) -> Atoms | None:
        constants, body = eqn.constants, eqn.params[names[-1]]
        carried = list(zip(body.outputs, body.inputs[leading + constants :], strict=True))
        fixed = [n for n, (after, before) in enumerate(carried) if after is before]
        if not fixed:
            return None
        moving = [n for n in range(len(carried)) if n not in fixed]
        order = [*range(constants), *(constants + n for n in (*fixed, *moving))]

        def reordered(program: Program, outputs: Atoms) -> Program:
            inputs = (*program.inputs[:leading], *(program.inputs[leading + n] for n in order))
            return with_signature(program, inputs, outputs)

        params = {**eqn.params, "constants": constants + len(fixed)}
        params.update((name, reordered(eqn.params[name], eqn.params[name].outputs)) for name in names[:-1])
        params[names[-1]] = reordered(body, [body.outputs[n] for n in moving])
        operands = eqn.inputs[bounds:]
        results = rewriting.emit(eqn.op, *eqn.inputs[:bounds], *(operands[n] for n in order), **params)
        found = dict(zip(moving, results, strict=True))
        return [found.get(n, operands[constants + n]) for n in range(len(carried))]

    return rule


def _never_repeated(rewriting: _Rewriting, eqn: Eqn) -> Atoms | None:
    (answer,) = eqn.condition.outputs
    stops = isinstance(answer, Literal) and not answer.value and not eqn.condition.eqns
    return eqn.inputs[eqn.constants :] if stops else None


def _empty_scope(rewriting: _Rewriting, eqn: Eqn) -> Atoms | None:
    return None if eqn.allocations else rewriting.inline(eqn.body, eqn.inputs)


_RULES: dict[str, tuple[Rule, ...]] = {
    arithmetic.add.name: (_neutral(_is_zero_of_sum, left=True),),
    arithmetic.sub.name: (_neutral(_is_positive_zero), _of_itself(0)),
    arithmetic.mul.name: (_neutral(_is_one, left=True), _absorbing(_is_positive_zero, 0)),
    arithmetic.div.name: (_neutral(_is_one),),
    arithmetic.max.name: (_of_itself(None),),
    arithmetic.min.name: (_of_itself(None),),
    arithmetic.neg.name: (_undoes_itself,),
    bits.bitwise_not.name: (_undoes_itself,),
    bits.bitwise_and.name: (_neutral(_has_all_bits, left=True), _absorbing(_is_positive_zero, 0), _of_itself(None)),
    bits.bitwise_or.name: (_neutral(_is_positive_zero, left=True), _of_itself(None)),
    bits.bitwise_xor.name: (_neutral(_is_positive_zero, left=True), _of_itself(0)),
    "select": (_select,),
    "convert": (_same_type,),
    "bitcast_convert": (_same_type,),
    "broadcast": (_broadcast,),
    "reshape": (_reshape,),
    "transpose": (_transpose,),
    "concatenate": (_only_one,),
    "pad": (_pads_nothing,),
    "reverse": (_reverses_nothing,),
    memory.extract.name: (_extract,),
    memory.insert.name: (_insert,),
    control.cond.name: (_cond,),
    control.loop.name: (_short_loop, _invariant_carry(("body",), 2, 1)),
    control.repeat.name: (_never_repeated, _invariant_carry(("condition", "body"), 0, 0)),
    control.scope.name: (_empty_scope,),
}


simplify = Pass(
    name="simplify",
    consumes=ANY,
    produces=ANY,
    run=simplify_program,
    doc="Computes what is constant, drops what changes nothing, writes out conditionals with a known branch and loops "
    "of one trip. Only redirects uses: remove_dead_code takes what is left over.",
)
