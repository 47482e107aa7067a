"""Specifications of blocks and grids, with the names and meanings of Pallas."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

import numpy as np

from palladio.base.arguments import axis_names, entries
from palladio.base.calls import checked_call
from palladio.base.dataclass import dataclass
from palladio.base.errors import PalladioTypeError, PalladioValueError, at_call
from palladio.ops.grid import BlockDim, Blocked, BoundedSlice, Element, Indirect, Squeezed
from palladio.trace.functions import function_name
from palladio.trace.gpu.copies import OOBFillMode
from palladio.types.attributes import SwizzleTransform, TilingTransform
from palladio.types.types import MemorySpace

squeezed = Squeezed()
LARGEST_GRID_SIZE = 2**31 - 1


class RevisitMode(Enum):
    """The cases in which a pipeline may reuse a block without fetching it."""

    IMMEDIATE = "immediate"
    ANY = "any"


@checked_call
@dataclass(frozen=True)
class Buffered:
    """The number of buffers that a pipeline gives to a block. Advice: it never changes results."""

    buffer_count: int
    use_lookahead: bool = False
    revisit: RevisitMode | None = None
    prefetched_count: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.buffer_count, int) or self.buffer_count < 1:
            with at_call():
                raise PalladioValueError(
                    "at least one buffer is needed", argument="buffer_count", got=self.buffer_count
                )


class _NoBlockSpec:
    """The whole array at every grid point."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "no_block_spec"

    def __reduce__(self) -> str:
        return "no_block_spec"  # a singleton: copies are compared by identity


no_block_spec = _NoBlockSpec()


@checked_call
@dataclass(init=False, repr=False, eq=False)
class BlockSpec:
    """The cut of an array into blocks, and the block that a grid point works on.

    Args:
        block_shape: one entry per axis of the array: an int (or `Blocked(n)`), None (or `Squeezed()`) for one element
            whose axis the kernel does not see, `Element(n, padding)`, `BoundedSlice(n)`, `Indirect(n)`. None for the
            whole array.
        index_map: from the grid indices (then the references to prefetched scalars) to one index per axis. By default
            all zeros.
        pipeline_mode: advice on buffering.
        memory_space: where the block should be.

    Raises:
        PalladioTypeError, PalladioValueError: an entry that is not a block dimension, or a size below 1.
    """

    # The fields make `dataclasses.replace` work, which calls the constructor below.
    block_shape: tuple[Any, ...] | None
    index_map: Callable[..., Any] | None
    pipeline_mode: Buffered | None
    memory_space: MemorySpace | None

    def __init__(
        self,
        block_shape: Sequence[Any] | None = None,
        index_map: Callable[..., Any] | None = None,
        pipeline_mode: Buffered | None = None,
        *,
        memory_space: MemorySpace | None = None,
    ) -> None:
        with at_call():
            if callable(block_shape):
                raise PalladioTypeError(
                    "the block shape comes first, the index map second",
                    argument="block_shape",
                    got=f"a function, {function_name(block_shape)}",
                )
            if index_map is not None and not callable(index_map):
                raise PalladioTypeError("an index map is a function", argument="index_map", got=repr(index_map))
            if memory_space is not None and not isinstance(memory_space, MemorySpace):
                raise PalladioTypeError(
                    "a memory space is expected, e.g. pltpu.VMEM", argument="memory_space", got=repr(memory_space)
                )
            if isinstance(block_shape, (int, np.integer)):
                raise PalladioTypeError(
                    "a block shape is a tuple", argument="block_shape", got=block_shape, hint=f"write ({block_shape},)"
                )
            self.block_shape = None if block_shape is None else entries(block_shape, "block_shape", "a tuple")
            self.dims = None if self.block_shape is None else tuple(map(_dimension, self.block_shape))
        self.index_map = index_map
        self.pipeline_mode = pipeline_mode
        self.memory_space = memory_space

    def __repr__(self) -> str:
        return f"BlockSpec({self.block_shape}, {getattr(self.index_map, '__name__', None)})"


@checked_call
@dataclass(init=False, repr=False, eq=False)
class GPUBlockSpec(BlockSpec):
    """A `BlockSpec` with further options for the pipelines of a GPU kernel.

    Args:
        block_shape, index_map, pipeline_mode: as for `BlockSpec`; `Buffered(n)` gives the block n slots instead of
            `max_concurrent_steps`.
        memory_space: `plgpu.SMEM`, the default, for a block that the pipeline copies; `plgpu.GMEM` for an array that
            the body gets whole, uncopied.
        transforms: the layout of a slot in shared memory.
        delay_release: how many steps after its last use the slot of an input may be written again, for products that
            still read it. By default that of the pipeline, or 0.
        collective_axes: the axis of the cluster whose blocks all read this block of the input: each loads a part, and
            all get the whole. All threads of the block take part in that pipeline: a single one in `emit_pipeline`.
        oob_fill_mode: the value of elements outside the array, zeros by default.

    Raises:
        PalladioTypeError, PalladioValueError: as for `BlockSpec`; a delay that is not a count.
    """

    transforms: tuple[Any, ...]
    delay_release: int | None
    collective_axes: tuple[str, ...]
    oob_fill_mode: OOBFillMode | None

    def __init__(
        self,
        block_shape: Sequence[Any] | None = None,
        index_map: Callable[..., Any] | None = None,
        pipeline_mode: Buffered | None = None,
        *,
        memory_space: MemorySpace | None = None,
        transforms: Sequence[Any] = (),
        delay_release: int | None = None,
        collective_axes: str | Sequence[str] = (),
        oob_fill_mode: OOBFillMode | None = None,
    ) -> None:
        super().__init__(block_shape, index_map, pipeline_mode, memory_space=memory_space)
        with at_call():
            if delay_release is not None:
                check_delay(delay_release, "delay_release")
            if oob_fill_mode is not None and not isinstance(oob_fill_mode, OOBFillMode):
                raise PalladioTypeError(
                    "a fill mode is expected, e.g. plgpu.OOBFillMode.ZEROS",
                    argument="oob_fill_mode",
                    got=repr(oob_fill_mode),
                )
            layout = entries(transforms, "transforms", "a tuple of transforms")
            if any(not isinstance(each, (TilingTransform, SwizzleTransform)) for each in layout):
                raise PalladioTypeError(
                    "shared memory is laid out by TilingTransform and SwizzleTransform",
                    argument="transforms",
                    got=repr(transforms),
                )
        self.transforms = layout
        self.delay_release = delay_release
        self.collective_axes = axis_names(collective_axes, "collective_axes")
        self.oob_fill_mode = oob_fill_mode


def check_delay(delay: Any, argument: str) -> None:
    """Refuse a delay that is not a number of steps."""
    if not isinstance(delay, int) or isinstance(delay, bool) or delay < 0:
        raise PalladioValueError("a delay is a number of steps, at least 0", argument=argument, got=repr(delay))


def _dimension(entry: Any) -> BlockDim:
    if entry is None or entry is Squeezed:
        return squeezed
    if isinstance(entry, (int, np.integer)) and not isinstance(entry, bool):
        entry = Blocked(int(entry))
    if isinstance(entry, Squeezed):
        return entry
    if not isinstance(entry, (Blocked, Element, BoundedSlice, Indirect)):
        raise PalladioTypeError(
            "a block shape holds integers, None and block dimensions", argument="block_shape", got=repr(entry)
        )
    if not isinstance(entry.block_size, (int, np.integer)) or entry.block_size < 1:
        raise PalladioValueError(
            "a block has at least one element along each axis", argument="block_shape", got=repr(entry)
        )
    if isinstance(entry, Element) and not _is_padding(entry.padding):
        raise PalladioValueError(
            "the padding of an Element is two sizes of at least 0", argument="block_shape", got=repr(entry)
        )
    return entry


def _is_padding(padding: Any) -> bool:
    if not isinstance(padding, tuple) or len(padding) != 2:
        return False
    return all(isinstance(size, (int, np.integer)) and size >= 0 for size in padding)


@checked_call
class GridSpec:
    """A grid with the specifications that go with it.

    Args:
        grid: the size of each axis, or (name, size) pairs. A size may be a 0-d integer array or a traced scalar.
        in_specs, out_specs: pytrees of `BlockSpec` in the structure of the inputs and outputs; whole arrays by default.
        scratch_shapes: buffers that persist over the grid's steps; a mapping is passed to the kernel by keyword.

    Raises:
        PalladioTypeError: `in_specs` that are not a tuple or list.
    """

    num_scalar_prefetch = 0

    def __init__(
        self,
        grid: Any = (),
        in_specs: Any = no_block_spec,
        out_specs: Any = no_block_spec,
        scratch_shapes: Any = (),
    ) -> None:
        if in_specs is not no_block_spec and not isinstance(in_specs, (tuple, list)):
            raise PalladioTypeError(
                "specs are a tuple with one entry per array",
                argument="in_specs",
                got=repr(in_specs),
                jax="`in_specs` must be a tuple or a list",
            )
        self.grid = grid
        self.in_specs = in_specs
        self.out_specs = out_specs
        self.scratch_shapes = scratch_shapes


@checked_call
class PrefetchScalarGridSpec(GridSpec):
    """A grid whose index maps may read the call's first arguments.

    Args:
        num_scalar_prefetch: how many arguments are scalars (integer arrays, whole): the kernel gets references to
            them first, index maps get them after the grid indices.
        grid, in_specs, out_specs, scratch_shapes: as in `GridSpec`, for the other arguments.
    """

    def __init__(
        self,
        num_scalar_prefetch: int,
        grid: Any = (),
        in_specs: Any = no_block_spec,
        out_specs: Any = no_block_spec,
        scratch_shapes: Any = (),
    ) -> None:
        super().__init__(grid, in_specs, out_specs, scratch_shapes)
        if not isinstance(num_scalar_prefetch, int) or num_scalar_prefetch < 0:
            with at_call():
                raise PalladioValueError(
                    "the number of prefetched scalars is at least 0",
                    argument="num_scalar_prefetch",
                    got=num_scalar_prefetch,
                )
        self.num_scalar_prefetch = num_scalar_prefetch


@dataclass(frozen=True)
class ParsedGrid:
    """A grid's sizes (an int, or the dynamic value) and names."""

    sizes: tuple[Any, ...]
    names: tuple[str | None, ...]


def parse_grid(grid: Any) -> ParsedGrid:
    """The sizes and names of a grid argument.

    Raises:
        PalladioTypeError: an entry that is not an integer.
        PalladioValueError: a static entry below 1.
    """
    if isinstance(grid, (int, np.integer)):
        grid = (grid,)
    if not isinstance(grid, (tuple, list)):
        raise PalladioTypeError("a grid is a tuple of sizes", argument="grid", got=repr(grid))
    sizes, names = [], []
    for position, entry in enumerate(grid):
        name = None
        if isinstance(entry, tuple) and len(entry) == 2 and isinstance(entry[0], str):
            name, entry = entry
        names.append(name)
        sizes.append(_grid_size(entry, f"grid[{position}]"))
    if len({name for name in names if name}) != len([name for name in names if name]):
        raise PalladioValueError("the names of a grid's axes are different", argument="grid", got=names)
    return ParsedGrid(tuple(sizes), tuple(names))


def _grid_size(entry: Any, argument: str) -> Any:
    if isinstance(entry, (int, np.integer)) and not isinstance(entry, bool):
        if entry < 1:
            raise PalladioValueError("a grid size is at least 1", argument=argument, got=int(entry))
        if entry > LARGEST_GRID_SIZE:
            raise PalladioValueError("a grid index is an int32", argument=argument, got=int(entry))
        return int(entry)
    dtype, shape = getattr(entry, "dtype", None), getattr(entry, "shape", None)
    name = str(dtype).removeprefix("torch.")
    if shape is not None and tuple(shape) == (1,):
        entry, shape = entry[0], ()
    if shape is None or tuple(shape) != () or not name.startswith(("int", "uint")):
        raise PalladioTypeError("a grid size is an integer, or a 0-d integer array", argument=argument, got=repr(entry))
    return entry
