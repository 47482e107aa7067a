"""`grid_call`: a kernel run once for each point of a grid, on blocks of its arrays. What `pallas_call` forms."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from palladio.base.errors import PalladioTypeError, PalladioValueError
from palladio.ir.op import ControlEval, DischargeContext, Discharged, Op, Run
from palladio.ir.program import Atom, Literal, Program
from palladio.types import dtypes
from palladio.types.effects import Effect, EffectKind
from palladio.types.types import ArrayType, RefType, Shape, Type

Array = Any
INDEX = ArrayType((), dtypes.INT32)


@dataclass(frozen=True)
class Blocked:
    """A block of `block_size` elements; the index map gives the number of the block."""

    block_size: int


@dataclass(frozen=True)
class Squeezed:
    """A block of one element whose axis the kernel does not see; the index map gives the element."""


@dataclass(frozen=True)
class Element:
    """A block of `block_size` elements.

    The index map gives its first element, in the array with `padding` (before, behind).
    """

    block_size: int
    padding: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class BoundedSlice:
    """A block of at most `block_size` elements; the index map gives `ds(start, size)`.

    Elements past `size` are uninitialised.
    """

    block_size: int


@dataclass(frozen=True)
class Indirect:
    """A block of `block_size` elements anywhere; the index map gives an i32[block_size] of their indices."""

    block_size: int


BlockDim = Blocked | Squeezed | Element | BoundedSlice | Indirect


@dataclass(frozen=True)
class BlockMap:
    """How an array is cut into blocks.

    Fields:
        dims: one block dimension per axis of the array.
        ref: the type of the reference that the kernel gets.
        index_map: (*grid indices: i32[], *references to the scalars) -> one index per axis; two (start, size) for a
            `BoundedSlice`.
    """

    dims: tuple[BlockDim, ...]
    ref: RefType
    index_map: Program

    @cached_property
    def constant(self) -> tuple[Any, ...] | None:
        """What the index map gives, if it is the same everywhere."""
        if all(isinstance(atom, Literal) for atom in self.index_map.outputs):
            return tuple(atom.value for atom in self.index_map.outputs if isinstance(atom, Literal))
        return None

    @cached_property
    def contiguous(self) -> bool:
        """Whether a block is a box of neighbouring elements, all of them wanted."""
        return all(isinstance(dim, (Blocked, Squeezed, Element)) for dim in self.dims)

    @property
    def block_shape(self) -> Shape:
        """The shape of the block, squeezed axes left out."""
        return tuple(dim.block_size for dim in self.dims if not isinstance(dim, Squeezed))

    def box(self, indices: Sequence[Any]) -> tuple[tuple[int, int], ...]:
        """The first element and the size along each axis of a contiguous block."""
        found = []
        for dim, index in zip(self.dims, indices, strict=True):
            match dim:
                case Blocked(size):
                    found.append((int(index) * size, size))
                case Element(size, (before, _)):
                    found.append((int(index) - before, size))
                case _:
                    found.append((int(index), 1))
        return tuple(found)

    def points(self, indices: Sequence[Any]) -> list[Array]:
        """The element indices along each axis; -1 where there is none."""
        values = iter(indices)
        found = []
        for dim in self.dims:
            first = next(values)
            match dim:
                case Blocked(size):
                    found.append(int(first) * size + np.arange(size))
                case Element(size, (before, _)):
                    found.append(int(first) - before + np.arange(size))
                case BoundedSlice(size):
                    steps = np.arange(size)
                    found.append(np.where(steps < int(next(values)), int(first) + steps, -1))
                case Indirect():
                    found.append(np.asarray(first))
                case Squeezed():
                    found.append(np.asarray([int(first)]))
        return found


@dataclass(frozen=True, eq=False)
class Window:
    """One block in NumPy's hands: `view` is what the kernel sees; `keep` writes it back if it is a copy."""

    view: Array
    array: Array
    inside: tuple[Any, ...] | None = None
    block: tuple[Any, ...] | None = None

    def keep(self) -> None:
        """Write the part of a copied block that lies inside its array back to it."""
        if self.inside is not None:
            spread = self.view.reshape([len(part) for part in self.block or ()])
            chosen = tuple(np.flatnonzero(part) for part in self.block or ())
            self.array[np.ix_(*self.inside)] = spread[np.ix_(*chosen)]


def window(array: Array, block: BlockMap, indices: Sequence[Any]) -> Window:
    """The block at these indices: a view where it lies inside the array, else a copy with the outside uninitialised."""
    if block.contiguous:
        box = block.box(indices)
        if all(start >= 0 and start + size <= extent for (start, size), extent in zip(box, array.shape, strict=True)):
            cut = tuple(
                start if isinstance(dim, Squeezed) else slice(start, start + size)
                for dim, (start, size) in zip(block.dims, box, strict=True)
            )
            return Window(array[(*cut, ...)], array)
    points = block.points(indices)
    valid = [(part >= 0) & (part < extent) for part, extent in zip(points, array.shape, strict=True)]
    inside = tuple(part[good] for part, good in zip(points, valid, strict=True))
    copy = np.full([len(part) for part in points], dtypes.uninitialized(array.dtype), array.dtype)
    copy[np.ix_(*(np.flatnonzero(good) for good in valid))] = array[np.ix_(*inside)]
    return Window(copy.reshape(block.block_shape), array, inside, tuple(valid))


@dataclass(frozen=True, eq=False)
class Grid:
    """The parameters of a `grid_call`.

    Its operands are the sizes of dynamic grid axes, then the scalars, then the inputs. The kernel's inputs are the grid
    indices, the sizes of dynamic axes, then references to the scalars, inputs, outputs and scratch.
    """

    sizes: tuple[int | None, ...]
    scalars: int
    inputs: tuple[BlockMap, ...]
    outputs: tuple[BlockMap, ...]
    output_types: tuple[ArrayType, ...]
    scratch: tuple[RefType, ...]
    aliases: tuple[tuple[int, int], ...]
    parallel: tuple[bool, ...]

    @property
    def dynamic(self) -> int:
        """How many grid axes have a size known only at the call."""
        return self.sizes.count(None)


def _grid_type(*operands: Type, grid: Grid, kernel: Program) -> Sequence[Type]:
    count = grid.dynamic
    if any(type != INDEX for type in operands[:count]):
        raise PalladioTypeError("a dynamic grid size is a scalar int32", got=", ".join(map(str, operands[:count])))
    arrays = operands[count + grid.scalars :]
    if len(arrays) != len(grid.inputs) or len(grid.output_types) != len(grid.outputs):
        raise PalladioValueError("a grid call has one block map per array", expected=len(grid.inputs), got=len(arrays))
    refs = [block.ref for block in (*grid.inputs, *grid.outputs)] + list(grid.scratch)
    given = kernel.input_types[len(grid.sizes) + count + grid.scalars :]
    if tuple(refs) != given:
        raise PalladioTypeError(
            "the kernel takes other references than its blocks",
            expected=", ".join(map(str, refs)),
            got=", ".join(map(str, given)),
        )
    for source, target in grid.aliases:
        if operands[count + source] != grid.output_types[target]:
            raise PalladioValueError(
                "an aliased input and output have one type",
                expected=str(grid.output_types[target]),
                got=str(operands[count + source]),
            )
    return grid.output_types


def _written(kernel: Program) -> set[int]:
    return {e.position for e in kernel.effects if e.position is not None and e.kind != EffectKind.READ}


def _grid_eval(*operands: Any, grid: Grid, kernel: Program) -> ControlEval:
    count = grid.dynamic
    given = iter(operands[:count])
    sizes = [int(next(given)) if size is None else size for size in grid.sizes]
    if min(sizes, default=0) < 0:
        raise PalladioValueError("a dynamic grid size is negative", got=sizes)
    values = [np.asarray(value) for value in operands[count:]]
    outputs = [np.full(type.shape, dtypes.uninitialized(type.dtype), type.dtype) for type in grid.output_types]
    for source, target in grid.aliases:
        outputs[target] = np.array(values[source])
    scratch = [np.full(ref.shape, dtypes.uninitialized(ref.dtype), ref.dtype) for ref in grid.scratch]
    first = len(grid.sizes) + count
    written = _written(kernel)
    values = [np.array(value) if first + n in written else _read_only(value) for n, value in enumerate(values)]
    scalars, arrays = values[: grid.scalars], [*values[grid.scalars :], *outputs]
    blocks = (*grid.inputs, *grid.outputs)
    extra = tuple(np.int32(size) for size, known in zip(sizes, grid.sizes, strict=True) if known is None)
    kept = [n for n in range(len(blocks)) if first + grid.scalars + n in written]
    last: list[tuple[Any, Window] | None] = [None] * len(blocks)
    for point in itertools.product(*(range(size) for size in sizes)):
        ids = tuple(map(np.int32, point))
        windows = []
        for n, (block, array) in enumerate(zip(blocks, arrays, strict=True)):
            indices = block.constant
            if indices is None:
                indices = yield Run(block.index_map, (*ids, *scalars))
            windows.append(_window_again(last, n, block, array, indices))
        yield Run(kernel, (*ids, *extra, *scalars, *(each.view for each in windows), *scratch))
        for n in kept:
            windows[n].keep()
    return outputs


def _read_only(value: Array) -> Array:
    view = value.view()
    view.flags.writeable = False
    return view


def _window_again(last: list[Any], n: int, block: BlockMap, array: Array, indices: Sequence[Any]) -> Window:
    """The window at these indices: the last step's if it is the same view."""
    if not block.contiguous:
        return window(array, block, indices)
    key = tuple(map(int, indices))
    before = last[n]
    if before is not None and before[0] == key and before[1].inside is None:
        return before[1]
    found = window(array, block, indices)
    last[n] = (key, found)
    return found


def _grid_effects(*operands: Type, grid: Grid, kernel: Program) -> Iterator[Effect]:
    return (effect for effect in kernel.effects if effect.position is None)


def _grid_discharge(context: DischargeContext, *operands: Atom, grid: Grid, kernel: Program) -> Discharged:
    """It takes arrays only; the references inside are its own."""
    return Discharged(context.emit(grid_call, *operands, grid=grid, kernel=kernel))


grid_call = Op(
    "grid_call",
    "Runs `kernel` for every point of the grid, the last axis fastest, on references to blocks of the arrays. "
    "Returns the outputs, which "
    "start uninitialised or as a copy of the input that they alias. Axes marked parallel may run in any order.",
    _grid_type,
    _grid_eval,
    effects=_grid_effects,
    discharge=_grid_discharge,
    control=True,
)

RECORDS: dict[str, type] = {
    record.__name__: record for record in (Blocked, Squeezed, Element, BoundedSlice, Indirect, BlockMap, Grid)
}
