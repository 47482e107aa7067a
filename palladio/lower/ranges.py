"""Range analysis: the least and the greatest value of each integer or bool of a program.

The analysis is conservative: a range may be too wide, never too narrow. The ranges of indices come from grids, loops
and launches. Arithmetic that may overflow has the whole range of its dtype.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from palladio.ir.core import Atom, Eqn, Literal, Op, Program, Var
from palladio.ir.rewrite import map_subprograms, substituted, with_body, with_parts
from palladio.ops.arrays import arithmetic, bits, casts, compare, shape
from palladio.ops.control import cond, loop, repeat, scope
from palladio.ops.grid import BlockMap, Grid, grid_call
from palladio.ops.threads.launch import collective_scope, launch
from palladio.types import dtypes
from palladio.types.dtypes import DType
from palladio.types.types import ArrayType, Type


class Range(NamedTuple):
    """The values from `low` to `high`, both included."""

    low: int
    high: int

    @property
    def value(self) -> int | None:
        """The one value in it, if it is one."""
        return self.low if self.low == self.high else None

    def within(self, other: Range) -> bool:
        """True if another range contains all of it."""
        return other.low <= self.low and self.high <= other.high


MOST_INDEX = 2**31 - 2
"""The last index of an axis whose size is known only at the call, an int32."""

Ranges = dict[Var, Range]
Rule = Callable[[Eqn, Sequence[Range]], Range | None]


def whole(type: Type) -> Range | None:
    """The range of a dtype; None unless it is integer or bool."""
    return _whole(type.dtype) if isinstance(type, ArrayType) else None


@functools.cache
def _whole(dtype: DType) -> Range | None:
    if dtypes.is_bool(dtype):
        return Range(0, 1)
    if not dtypes.is_integer(dtype):
        return None
    return Range(int(dtypes.iinfo(dtype).min), int(dtypes.iinfo(dtype).max))


def range_of(atom: Atom, known: Mapping[Var, Range]) -> Range | None:
    """The range of a variable or literal; None unless it is an integer or a bool."""
    if isinstance(atom, Literal):
        return Range(int(atom.value), int(atom.value)) if whole(atom.type) is not None else None
    return known.get(atom) or whole(atom.type)


# Rules: from the ranges of the operands to that of the result, which is clamped to the dtype.


def _corners(function: Callable[[int, int], int]) -> Rule:
    """The rule of a function that is monotonic in each operand."""

    def rule(eqn: Eqn, given: Sequence[Range]) -> Range:
        found = [function(x, y) for x, y in itertools.product(*given)]
        return Range(min(found), max(found))

    return rule


def _div(eqn: Eqn, given: Sequence[Range]) -> Range | None:
    x, y = given
    if y.low <= 0:
        return None
    found = [abs(a) // b * (1 if a >= 0 else -1) for a, b in itertools.product(x, y)]
    return Range(min(found), max(found))


def _rem(eqn: Eqn, given: Sequence[Range]) -> Range | None:
    x, y = given
    if y.low <= 0:
        return None
    if x.low >= 0 and x.high < y.low:
        return x
    most = y.high - 1
    return Range(max(min(x.low, 0), -most), min(max(x.high, 0), most))


def _sign(eqn: Eqn, given: Sequence[Range]) -> Range:
    (x,) = given
    return Range((x.low > 0) - (x.low < 0), (x.high > 0) - (x.high < 0))


def _order(less: Callable[[int, int], bool]) -> Rule:
    """The rule of `x < y` or `x <= y`."""

    def rule(eqn: Eqn, given: Sequence[Range]) -> Range:
        x, y = given
        return Range(int(less(x.high, y.low)), int(less(x.low, y.high)))

    return rule


def _mirrored(rule: Rule) -> Rule:
    return lambda eqn, given: rule(eqn, given[::-1])


def _eq(eqn: Eqn, given: Sequence[Range]) -> Range:
    x, y = given
    return Range(int(x.value is not None and x.value == y.value), int(x.low <= y.high and y.low <= x.high))


def _ne(eqn: Eqn, given: Sequence[Range]) -> Range:
    equal = _eq(eqn, given)
    return Range(1 - equal.high, 1 - equal.low)


def _and(eqn: Eqn, given: Sequence[Range]) -> Range | None:
    x, y = given
    if dtypes.is_bool(eqn.outputs[0].type.dtype):
        return Range(x.low & y.low, x.high & y.high)
    masks = [each.high for each in given if each.low >= 0]
    return Range(0, min(masks)) if masks else None


def _or(eqn: Eqn, given: Sequence[Range]) -> Range | None:
    x, y = given
    if min(x.low, y.low) < 0:
        return None
    return Range(max(x.low, y.low), (1 << max(x.high, y.high).bit_length()) - 1)


def _not(eqn: Eqn, given: Sequence[Range]) -> Range | None:
    (x,) = given
    return Range(1 - x.high, 1 - x.low) if dtypes.is_bool(eqn.outputs[0].type.dtype) else Range(~x.high, ~x.low)


def _select(eqn: Eqn, given: Sequence[Range]) -> Range:
    predicate, on_true, on_false = given
    if predicate.value is not None:
        return on_true if predicate.value else on_false
    return Range(min(on_true.low, on_false.low), max(on_true.high, on_false.high))


def _clamp(eqn: Eqn, given: Sequence[Range]) -> Range:
    low, x, high = given
    return Range(min(max(x.low, low.low), high.low), min(max(x.high, low.high), high.high))


def _convert(eqn: Eqn, given: Sequence[Range]) -> Range | None:
    (x,) = given
    return Range(int(x.low > 0 or x.high < 0), int(x != (0, 0))) if dtypes.is_bool(eqn.dtype) else x


def _same(eqn: Eqn, given: Sequence[Range]) -> Range:
    return given[0]


def _any_of(eqn: Eqn, given: Sequence[Range]) -> Range:
    return Range(min(each.low for each in given), max(each.high for each in given))


def _iota(eqn: Eqn, given: Sequence[Range]) -> Range:
    return Range(0, max(eqn.shape[eqn.axis] - 1, 0))


RULES: dict[Op, Rule] = {
    arithmetic.add: lambda eqn, given: Range(given[0].low + given[1].low, given[0].high + given[1].high),
    arithmetic.sub: lambda eqn, given: Range(given[0].low - given[1].high, given[0].high - given[1].low),
    arithmetic.mul: _corners(lambda x, y: x * y),
    arithmetic.max: _corners(max),
    arithmetic.min: _corners(min),
    arithmetic.neg: lambda eqn, given: Range(-given[0].high, -given[0].low),
    arithmetic.div: _div,
    arithmetic.rem: _rem,
    arithmetic.sign: _sign,
    arithmetic.clamp: _clamp,
    compare.lt: _order(lambda x, y: x < y),
    compare.le: _order(lambda x, y: x <= y),
    compare.gt: _mirrored(_order(lambda x, y: x < y)),
    compare.ge: _mirrored(_order(lambda x, y: x <= y)),
    compare.eq: _eq,
    compare.ne: _ne,
    compare.select: _select,
    bits.bitwise_and: _and,
    bits.bitwise_or: _or,
    bits.bitwise_not: _not,
    casts.convert: _convert,
    shape.iota: _iota,
    shape.broadcast: _same,
    shape.reshape: _same,
    shape.transpose: _same,
    shape.reverse: _same,
    shape.concatenate: _any_of,
}


def result_range(eqn: Eqn, known: Mapping[Var, Range]) -> Range | None:
    """The range of the one result of an equation."""
    everything = whole(eqn.outputs[0].type)
    rule = RULES.get(eqn.op)
    if everything is None or rule is None:
        return everything
    given = [range_of(atom, known) for atom in eqn.inputs]
    found = None if any(each is None for each in given) else rule(eqn, given)  # type: ignore[arg-type]
    return found if found is not None and found.within(everything) else everything


# The inputs of the programs of control flow, grids and launches.


def grid_ranges(grid: Grid, inputs: Sequence[Var]) -> Ranges:
    """The ranges of grid indices, the first inputs of a kernel or an index map."""
    sizes = zip(inputs, grid.sizes, strict=False)
    return {var: Range(0, MOST_INDEX if size is None else max(size - 1, 0)) for var, size in sizes}


def _inner_ranges(eqn: Eqn, program: Program, known: Ranges) -> Ranges:
    """The ranges of a sub-program's inputs."""
    found: Ranges = {}
    if eqn.op is loop:
        lower, upper = (range_of(atom, known) for atom in (eqn.lower, eqn.upper))
        if lower is not None and upper is not None and lower.low < upper.high:
            found[program.inputs[0]] = Range(lower.low, upper.high - 1)
    elif eqn.op is grid_call:
        found = grid_ranges(eqn.grid, program.inputs)
    elif eqn.op is launch:
        mesh = eqn.launch.meshes[eqn.programs.index(program)]
        for var, axis in zip(program.inputs, mesh.axes, strict=False):
            found[var] = Range(0, MOST_INDEX if axis.size is None else max(axis.size - 1, 0))
    for var, atom in constants(eqn, program):
        given = range_of(atom, known)
        if given is not None:
            found[var] = given
    return found


def constants(eqn: Eqn, program: Program) -> Iterator[tuple[Var, Atom]]:
    """The inputs of a sub-program that are operands, the same in every run of it, with these."""
    if eqn.op is loop:
        yield from zip(program.inputs[1 : 1 + eqn.constants], eqn.operands, strict=False)
    elif eqn.op is repeat:
        yield from zip(program.inputs[: eqn.constants], eqn.operands, strict=False)
    elif eqn.op in (cond, scope, collective_scope):
        yield from zip(program.inputs, eqn.operands, strict=False)


class RangeRewriting:
    """A rewriting with integer ranges: `changed` gets each equation with the ranges that hold there."""

    def program(self, program: Program, given: Ranges | None = None) -> Program:
        """The program, given the ranges of some of its inputs."""
        known: Ranges = dict(given or {})
        constants: dict[Atom, Atom] = {}
        made: dict[Var, Eqn] = {}
        eqns: list[Eqn] = []
        for old in program.eqns:
            eqn = substituted(old, constants)
            params = map_subprograms(eqn.params, lambda inner: self.program(inner, _inner_ranges(eqn, inner, known)))  # noqa: B023
            eqn = self.changed(with_parts(eqn, eqn.inputs, self.parameters(eqn, params)), known)
            for var in eqn.outputs:
                found = result_range(eqn, known) if len(eqn.outputs) == 1 else whole(var.type)
                if found is not None:
                    known[var] = Range(0, 0) if _contradicts(eqn, known, made) else found
                    constant = self.constant(var, known[var])
                    if constant is not None:
                        constants[var] = constant
                made[var] = eqn
            eqns.append(eqn)
        return with_body(program, eqns, (constants.get(atom, atom) for atom in program.outputs))

    def parameters(self, eqn: Eqn, params: dict[str, Any]) -> dict[str, Any]:
        """The parameters of an equation, with its sub-programs rewritten."""
        if eqn.op is not grid_call:
            return params
        grid: Grid = params["grid"]
        inputs = tuple(self.block(grid, block) for block in grid.inputs)
        outputs = tuple(self.block(grid, block) for block in grid.outputs)
        same = all(new is old for new, old in zip((*inputs, *outputs), (*grid.inputs, *grid.outputs), strict=True))
        return params if same else {**params, "grid": replace(grid, inputs=inputs, outputs=outputs)}

    def block(self, grid: Grid, block: BlockMap) -> BlockMap:
        """A block map of a grid."""
        index_map = self.program(block.index_map, grid_ranges(grid, block.index_map.inputs))
        return block if index_map is block.index_map else replace(block, index_map=index_map)

    def changed(self, eqn: Eqn, known: Ranges) -> Eqn:
        """The replacement of an equation."""
        return eqn

    def constant(self, var: Var, found: Range) -> Literal | None:
        """The constant that replaces a variable of this range, if any."""
        return None


def _contradicts(eqn: Eqn, known: Ranges, made: Mapping[Var, Eqn]) -> bool:
    """True if it is `sign(x) != 1 and x != 0` of an x that is not negative, as in the remainder of a floor division."""
    if eqn.op is not bits.bitwise_and or not dtypes.is_bool(eqn.outputs[0].type.dtype):
        return False
    sides = [made.get(atom) for atom in eqn.inputs]  # type: ignore[arg-type]
    for first, second in (sides, sides[::-1]):
        if first is None or second is None or first.op is not compare.ne or second.op is not compare.ne:
            continue
        sign = made.get(first.x)
        if sign is None or sign.op is not arithmetic.sign or range_of(first.y, known) != (1, 1):
            continue
        given = range_of(sign.x, known)
        if second.x is sign.x and range_of(second.y, known) == (0, 0) and given is not None and given.low >= 0:
            return True
    return False


class _InRange(RangeRewriting):
    """Collects the results of arithmetic that cannot overflow, and the ranges of the operands."""

    def __init__(self) -> None:
        self.found: set[Var] = set()
        self.ranges: Ranges = {}

    def changed(self, eqn: Eqn, known: Ranges) -> Eqn:
        self.ranges.update((atom, known[atom]) for atom in eqn.inputs if isinstance(atom, Var) and atom in known)
        rule, everything = RULES.get(eqn.op), whole(eqn.outputs[0].type) if len(eqn.outputs) == 1 else None
        if rule is not None and everything is not None:
            given = [range_of(atom, known) for atom in eqn.inputs]
            result = None if any(each is None for each in given) else rule(eqn, given)  # type: ignore[arg-type]
            if result is not None and result.within(everything):
                self.found.update(eqn.outputs)
        return eqn


def in_range(program: Program, given: Ranges) -> tuple[set[Var], Ranges]:
    """The results of arithmetic of a program that cannot overflow, and so do not wrap around.

    With them the ranges of the integers that its equations take.

    Args:
        given: the ranges of some of the program's inputs.
    """
    analysis = _InRange()
    analysis.program(program, given)
    return analysis.found, analysis.ranges
