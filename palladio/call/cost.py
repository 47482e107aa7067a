"""Work estimates of kernels: a record that users may give, and an estimate from a traced function."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from palladio.array import convert
from palladio.array.foreign import described
from palladio.base import trees
from palladio.base.calls import checked_call
from palladio.base.dataclass import dataclass
from palladio.base.errors import at_call
from palladio.ir.core import Eqn, Literal, Program, Work, subprograms
from palladio.ops.control import cond, loop
from palladio.ops.grid import Grid
from palladio.trace.trace import stage
from palladio.trace.values import wrap
from palladio.types.types import Type


@checked_call
@dataclass(frozen=True)
class CostEstimate:
    """The work of a call.

    Fields:
        flops: floating-point operations, a multiply-add counting as two.
        transcendentals: evaluations of exp, log, tanh etc.
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
        """The work of `count` repetitions."""
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
        args: pytrees of arrays, scalars or `ShapeDtypeStruct`; a function of references is not estimated.
        kwargs: the same; numbers and other values that are not arrays are passed as they are.
    """
    with at_call():
        traced_kwargs = {name: value for name, value in kwargs.items() if _has_arrays(value)}
        fixed = {name: value for name, value in kwargs.items() if name not in traced_kwargs}
        leaves, structure = trees.flatten((args, traced_kwargs))
        names = trees.leaf_names((args, traced_kwargs), "arguments")
        types = [described(leaf, name) for leaf, name in zip(leaves, names, strict=True)]

        weak = [convert.is_weak(leaf) for leaf in leaves]

        def flat(*traced: Any) -> list[Any]:
            for value, is_weak in zip(traced, weak, strict=True):
                convert.mark_weak(value, is_weak)
            positional, keywords = trees.unflatten(structure, traced)
            return trees.flatten(fun(*positional, **keywords, **fixed))[0]

        program = stage(flat, types, wrap, name=getattr(fun, "__name__", "estimated")).program
    moved = _bytes(program.input_types) + _bytes(program.output_types)
    work = _program_cost(program)
    return CostEstimate(work.flops, work.transcendentals, moved)


def _has_arrays(value: Any) -> bool:
    return any(hasattr(leaf, "shape") for leaf in trees.flatten(value)[0])


def _bytes(types: Sequence[Type]) -> int:
    return sum(type.size * type.dtype.itemsize for type in types)


def _program_cost(program: Program) -> CostEstimate:
    total = _NOTHING
    for eqn in program.eqns:
        total += _equation_cost(eqn)
    return total


def _equation_cost(eqn: Eqn) -> CostEstimate:
    size = max((var.type.size for var in eqn.outputs), default=0)
    if eqn.op.control:
        return _control_cost(eqn)
    match eqn.op.work:
        case Work.PRODUCT:
            contracted = [eqn.lhs.type.shape[axis] for axis in eqn.contracting[0]]
            return CostEstimate(2 * size * math.prod(contracted), 0, 0)
        case Work.TRANSCENDENTAL:
            return CostEstimate(0, size, 0)
        case Work.REDUCTION:
            return CostEstimate(eqn.array.type.size, 0, 0)
        case Work.ELEMENT:
            return CostEstimate(size, 0, 0)
    return _NOTHING


def _control_cost(eqn: Eqn) -> CostEstimate:
    inner = [_program_cost(program) for program in subprograms(eqn)]
    grid = eqn.params.get("grid")
    if isinstance(grid, Grid):
        return _program_cost(eqn.kernel).times(math.prod(size or 1 for size in grid.sizes))
    if eqn.op is cond:
        return max(inner, key=lambda cost: (cost.flops, cost.transcendentals), default=_NOTHING)
    bounds = [int(atom.value) for atom in eqn.inputs[:2] if isinstance(atom, Literal)]
    if eqn.op is loop and len(bounds) == 2:
        return inner[0].times(max(0, -(-(bounds[1] - bounds[0]) // eqn.step)))
    return sum(inner, _NOTHING)
