"""The schedule of a pipeline's blocks: the steps of its grid, and the steps at which each operand's block changes.

Steps are numbered from 0 in row-major order of the grid, the last axis fastest. A block is the same as at the step
before if its index is. The turn of an operand is: never, if its index map depends on no axis of the grid with two
points; every step, if that can be proved; or by its index, when the kernel runs.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any

import numpy as np

from palladio.array import convert
from palladio.base.errors import PalladioError, PalladioTypeError, PalladioValueError
from palladio.ir.core import Literal, Program
from palladio.ops.arrays.arithmetic import mul
from palladio.ops.grid import BlockDim
from palladio.pipeline.block_maps import BlockMapper
from palladio.trace.functions import call_user, counted, function_location, function_name
from palladio.trace.trace import stage
from palladio.trace.values import wrap
from palladio.types import dtypes
from palladio.types.types import ArrayType

INDEX = ArrayType((), dtypes.INT32)


def is_known(value: Any) -> bool:
    """True if a scalar is known while tracing."""
    return isinstance(value, (int, np.integer, np.bool_))


def both(first: Any, second: Any) -> Any:
    """`first and second` of conditions, known or traced."""
    if is_known(first):
        return second if first else False
    return first if is_known(second) and second else second if is_known(second) else first & second


def either(first: Any, second: Any) -> Any:
    """`first or second` of conditions, known or traced."""
    if is_known(first):
        return True if first else second
    return first if is_known(second) and not second else True if is_known(second) else first | second


def least(first: Any, second: Any) -> Any:
    """The smaller of two integers, known or traced."""
    return min(first, second) if is_known(first) and is_known(second) else np.minimum(first, second)


def counted_in(number: Any, condition: Any) -> Any:
    """`number + 1` where the condition holds, else `number`."""
    if is_known(condition):
        return number + np.int32(1) if condition else number
    return number + convert.cast(condition, dtypes.INT32)


class GridSteps:
    """The steps of a pipeline.

    Args:
        offsets: for some axes, the first index along them.

    Fields:
        sizes: the size of each axis of the grid, an int or a traced i32[].
        count: how many steps there are.
    """

    def __init__(self, grid: Any, offsets: Mapping[int, Any] | None = None) -> None:
        self.offsets = dict(offsets or {})
        entries = tuple(grid) if isinstance(grid, (tuple, list)) else (grid,)
        self.sizes = tuple(_size(entry, f"grid[{axis}]") for axis, entry in enumerate(entries))
        self.count: Any = functools.reduce(operator.mul, self.sizes, 1)

    @property
    def known(self) -> int | None:
        """The number of steps, if it is known while tracing."""
        return int(self.count) if is_known(self.count) else None

    @property
    def any(self) -> Any:
        """True if there is a step at all."""
        return True if self.known else self.count > 0

    def last(self, step: Any) -> Any:
        """True if a step is the last one."""
        return step == self.count - 1

    def indices(self, step: Any) -> tuple[Any, ...]:
        """The point of the grid of a step: an i32[] for each axis."""
        found: list[Any] = []
        rest, outer = step, list(self.sizes)
        while outer:
            size = outer.pop()
            if is_known(size) and size == 1:
                found.append(np.int32(0))
            elif all(is_known(each) and each == 1 for each in outer):
                found.append(rest)
            else:
                found.append(rest % size)
                rest = rest // size
        return tuple(
            each + self.offsets[axis] if axis in self.offsets else each for axis, each in enumerate(found[::-1])
        )

    @property
    def moving(self) -> set[int]:
        """The axes that have more than one point, or may have."""
        return {axis for axis, size in enumerate(self.sizes) if not (is_known(size) and size == 1)}

    @property
    def fastest(self) -> int | None:
        """The axis along which every step advances, if it is known."""
        moving = self.moving
        axis = max(moving, default=None)
        return axis if axis is not None and (len(moving) == 1 or is_known(self.sizes[axis])) else None


def _size(entry: Any, argument: str) -> Any:
    try:
        kind = convert.array_type(entry)
    except PalladioTypeError:
        kind = None
    if kind is None or kind.shape != () or not dtypes.is_integer(kind.dtype):
        raise PalladioTypeError("the size of a pipeline's axis is a scalar integer", argument=argument, got=repr(entry))
    if is_known(entry):
        if entry < 1:
            raise PalladioValueError(
                "a grid size is at least 1",
                argument=argument,
                got=int(entry),
                jax="All elements in the grid must be strictly positive",
            )
        return int(entry)
    return convert.cast(entry, dtypes.INT32)


class Turn(Enum):
    """The steps at which the block of an operand changes."""

    NEVER = "never"
    EVERY_STEP = "every step"
    BY_INDEX = "by index"


class BlockWalk:
    """The block index of one operand along the steps.

    Args:
        index_map: the user's function, None for all zeros.
        origin: the name of the spec in errors.
    """

    def __init__(
        self, steps: GridSteps, index_map: Callable[..., Any] | None, dims: Sequence[BlockDim], origin: str
    ) -> None:
        self.steps = steps
        self.index_map = index_map
        self.dims = dims
        self.origin = origin
        self.mapper = BlockMapper(len(steps.sizes), ())
        self.turn = Turn.NEVER
        self.moving: list[int] = []
        if index_map is not None:
            self._study(index_map)

    def _study(self, index_map: Callable[..., Any]) -> None:
        rank = len(self.steps.sizes)
        name = function_name(index_map).strip("<>") or "index_map"
        location = function_location(index_map)
        program = stage(self._flat, [INDEX] * rank, wrap, name=name, location=location).program
        if any(effect.kind.value != "read" for effect in program.effects):
            raise PalladioValueError(
                "an index map may read references, not write them", argument=self.origin, location=location
            )
        axes = _dependences(program, rank)
        moving = self.steps.moving
        self.moving = [n for n, found in enumerate(axes) if found & moving]
        if self.moving:
            fastest = self.steps.fastest
            certain = any(axes[n] & moving == {fastest} and _injective(program, n, fastest) for n in self.moving)
            self.turn = Turn.EVERY_STEP if certain else Turn.BY_INDEX

    def _flat(self, *indices: Any) -> list[Any]:
        index_map = self.index_map
        if index_map is None:
            return [0] * self.mapper.results(self.dims)
        expected = counted(len(indices), "grid index")
        result = call_user(index_map, indices, {}, "the index map", expected, self.origin)
        try:
            return self.mapper.checked(result, self.dims, self.origin)
        except PalladioError as error:
            error.location = error.location or function_location(index_map)
            raise

    def block(self, step: Any) -> list[Any]:
        """The index of the block of a step: one value per axis, two for a `BoundedSlice`."""
        return self._flat(*self.steps.indices(step))

    def begins(self, step: Any) -> Any:
        """True if the block of a step differs from that of the step before."""
        if self.turn is Turn.EVERY_STEP:
            return True
        if self.turn is Turn.NEVER:
            return step == 0
        return either(step == 0, self._differ(step, np.maximum(step - 1, 0)))

    def ends(self, step: Any) -> Any:
        """True if the block of a step differs from that of the step after it."""
        if self.turn is Turn.EVERY_STEP:
            return True
        last = self.steps.last(step)
        if self.turn is Turn.NEVER:
            return last
        return either(last, self._differ(step, least(step + 1, self.steps.count - 1)))

    def _differ(self, first: Any, second: Any) -> Any:
        found: Any = False
        one, other = self.block(first), self.block(second)
        for n in self.moving:
            unlike = one[n] != other[n]
            found = either(found, unlike if np.shape(one[n]) == () else unlike.any())
        return found


def _dependences(program: Program, rank: int) -> list[set[int]]:
    """The axes that each output depends on."""
    axes: dict[Any, set[int]] = {var: {axis} for axis, var in enumerate(program.inputs[:rank])}
    for eqn in program.eqns:
        found = set[int]().union(*(axes.get(atom, set()) for atom in eqn.inputs if not isinstance(atom, Literal)))
        axes.update((var, found) for var in eqn.outputs)
    return [set() if isinstance(atom, Literal) else axes.get(atom, set()) for atom in program.outputs]


def _injective(program: Program, output: int, axis: int | None) -> bool:
    """True if an output that depends on one moving axis only is proved to differ between neighbours on it."""
    made: dict[Any, Any] = {var: eqn for eqn in program.eqns for var in eqn.outputs}
    index = None if axis is None else program.inputs[axis]
    atom: Any = program.outputs[output]
    while atom is not index:
        eqn = made.get(atom)
        rest = [each for each in eqn.inputs if _reaches(each, made, index)] if eqn else []
        if eqn is None or not eqn.op.injective or len(rest) != 1:
            return False
        factors = [each for each in eqn.inputs if each is not rest[0]]
        if eqn.op is mul and not all(isinstance(each, Literal) and each.value != 0 for each in factors):
            return False
        atom = rest[0]
    return True


def _reaches(atom: Any, made: dict[Any, Any], index: Any) -> bool:
    return atom is index or (atom in made and any(_reaches(each, made, index) for each in made[atom].inputs))
