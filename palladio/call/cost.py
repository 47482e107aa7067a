"""How much work a kernel is: a record that users may give, and an estimate from a traced function."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from palladio import ops
from palladio.array import convert
from palladio.array.foreign import described
from palladio.base import trees
from palladio.base.calls import checked_call
from palladio.base.errors import at_call
from palladio.ir.core import Eqn, Literal, Op, Program, subprograms
from palladio.ops.grid import Grid
from palladio.trace.trace import stage
from palladio.trace.values import wrap
from palladio.types.types import Type


def _names(*families: ModuleType) -> frozenset[str]:
    return frozenset(op.name for family in families for op in vars(family).values() if isinstance(op, Op))


_TRANSCENDENTAL = (_names(ops.math) | {"pow"}) - {"floor", "ceil", "round", "is_finite"}
_FREE = _names(ops.shape, ops.memory, ops.masked, ops.casts, ops.debug)


@checked_call
@dataclass(frozen=True)
class CostEstimate:
    """The work of a call.

    Fields:
        flops: floating-point operations, a multiply-add counting as two.
        transcendentals: evaluations of exp, log, tanh and the like.
        bytes_accessed: bytes read from and written to memory.
        remote_bytes_transferred: bytes sent to other devices.
    """

    flops: int
    transcendentals: int
    bytes_accessed: int
    remote_bytes_transferred: int = 0

    def __add__(self, other: CostEstimate) -> CostEstimate:
        return CostEstimate(
            self.flops + other.flops,
            self.transcendentals + other.transcendentals,
            self.bytes_accessed + other.bytes_accessed,
            self.remote_bytes_transferred + other.remote_bytes_transferred,
        )

    def times(self, count: int) -> CostEstimate:
        """The work of doing it `count` times."""
        return CostEstimate(
            self.flops * count,
            self.transcendentals * count,
            self.bytes_accessed * count,
            self.remote_bytes_transferred * count,
        )


_NOTHING = CostEstimate(0, 0, 0)


def estimate_cost(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> CostEstimate:
    """The work of `fun(*args, **kwargs)`, from its traced program.

    The bytes are those of its arrays in and out. Loops of dynamic length count once, branches as their most expensive
    one, kernel calls with a static grid once per grid point.

    Args:
        args, kwargs: pytrees of arrays, scalars or `ShapeDtypeStruct`; a function of references is not estimated.
    """
    with at_call():
        leaves, structure = trees.flatten((args, kwargs))
        names = trees.leaf_names((args, kwargs), "arguments")
        types = [described(leaf, name) for leaf, name in zip(leaves, names, strict=True)]

        weak = [convert.is_weak(leaf) for leaf in leaves]

        def flat(*traced: Any) -> list[Any]:
            for value, is_weak in zip(traced, weak, strict=True):
                convert.mark_weak(value, is_weak)
            positional, keywords = trees.unflatten(structure, traced)
            return trees.flatten(fun(*positional, **keywords))[0]

        program = stage(flat, types, wrap, name=getattr(fun, "__name__", "estimated")).program
    moved = _bytes(program.input_types) + _bytes(program.output_types)
    work = _program_cost(program)
    return CostEstimate(work.flops, work.transcendentals, moved)


def _bytes(types: Sequence[Type]) -> int:
    return sum(type.size * type.dtype.itemsize for type in types)


def _program_cost(program: Program) -> CostEstimate:
    total = _NOTHING
    for eqn in program.eqns:
        total += _equation_cost(eqn)
    return total


def _equation_cost(eqn: Eqn) -> CostEstimate:
    size = max((var.type.size for var in eqn.outputs), default=0)
    name = eqn.op.name
    if eqn.op.control:
        return _control_cost(eqn)
    if name == "dot_general":
        contracted = [eqn.inputs[0].type.shape[axis] for axis in eqn.params["contracting"][0]]
        return CostEstimate(2 * size * math.prod(contracted), 0, 0)
    if name in _TRANSCENDENTAL:
        return CostEstimate(0, size, 0)
    if name in _FREE:
        return _NOTHING
    if name.startswith(("reduce_", "arg")):
        return CostEstimate(eqn.inputs[0].type.size, 0, 0)
    return CostEstimate(size, 0, 0)


def _control_cost(eqn: Eqn) -> CostEstimate:
    inner = [_program_cost(program) for program in subprograms(eqn)]
    grid = eqn.params.get("grid")
    if isinstance(grid, Grid):
        return _program_cost(eqn.params["kernel"]).times(math.prod(size or 1 for size in grid.sizes))
    if eqn.op.name == "cond":
        return max(inner, key=lambda cost: (cost.flops, cost.transcendentals), default=_NOTHING)
    bounds = [int(atom.value) for atom in eqn.inputs[:2] if isinstance(atom, Literal)]
    if eqn.op.name == "loop" and len(bounds) == 2:
        return inner[0].times(max(0, -(-(bounds[1] - bounds[0]) // eqn.params["step"])))
    return sum(inner, _NOTHING)
