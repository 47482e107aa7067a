"""The record of a lowered kernel: its text, and everything that a launch needs, on a card or on the twin."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from palladio.base.dataclass import dataclass
from palladio.hopper.wgmma import Wgmma
from palladio.ops.grid import extents
from palladio.types.dtypes import DType

HEADER = "palladio.cuh"
"""The header of a kernel's text: `device.cuh` and the products that it uses, or equivalents for another machine."""

MAP_ALIGNMENT = 16
"""The strides of a tensor map are multiples of as many bytes (CUDA driver API, `cuTensorMapEncodeTiled`)."""


@dataclass(frozen=True)
class MapSpec:
    """A tensor map, which describes copies of boxes of an array (CUDA driver API, `cuTensorMapEncodeTiled`).

    Axes are in the order of the array, the innermost last; the driver's order is the reverse.

    Fields:
        array: the number of its array among `Lowered.arrays`.
        dtype: the dtype of an element.
        dims: elements along each axis, at most 5 axes.
        strides: byte strides along each axis except the last, multiples of 16. The last axis is dense.
        box: elements of a box along each axis, at most 256.
        swizzle: 0, 32, 64 or 128 bytes. If it is not 0, the box's last axis has at most as many bytes.
        fill: the values of elements outside the array: "zeros" or "nan".
        promotion: the least number of bytes of a fetch into the L2 cache: 0, 64, 128 or 256.
    """

    array: int
    dtype: DType
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int = 0
    fill: str = "zeros"
    promotion: int = 128

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.dims)


@dataclass(frozen=True)
class MapParameter:
    """A parameter of the kernel: a tensor map, passed by value, aligned to 64 bytes."""

    name: str
    spec: MapSpec


@dataclass(frozen=True)
class ArrayParameter:
    """A parameter of the kernel: the address of an array's first element.

    Fields:
        array: the number of its array among `Lowered.arrays`.
    """

    name: str
    array: int


@dataclass(frozen=True)
class ScalarParameter:
    """A parameter of the kernel: a number, the operand of the launch at this position, passed by value."""

    name: str
    operand: int
    dtype: DType


Parameter = MapParameter | ArrayParameter | ScalarParameter

AxisSize = tuple[int, int]
"""An axis of an array, and another size of it."""


@dataclass(frozen=True)
class FewerRows:
    """The operands and results of a kernel, or of a program of kernels, that have fewer rows than it was compiled for.

    Fields:
        operands, results: by position, the axis of the rows, and how many there are.
        guarded: True if the kernels themselves access no further rows. They compute addresses with the sizes that they
            were compiled for, so that these arrays have their rows along the first axis.
        blocks: the number of blocks to launch, the first ones, of a program that is one kernel; None for all.
    """

    operands: Mapping[int, AxisSize]
    results: Mapping[int, AxisSize]
    guarded: bool = False
    blocks: int | None = None

    def of(self, array: Array) -> AxisSize | None:
        """The size of an array of a kernel; None for one that has no fewer rows."""
        return {"operand": self.operands, "output": self.results}.get(array.role, {}).get(array.position)

    def for_kernel(self, operands: Mapping[int, AxisSize], results: Mapping[int, AxisSize]) -> FewerRows:
        """The same for one kernel of a program, of all blocks."""
        return FewerRows(operands, results, self.guarded)


@dataclass(frozen=True)
class Array:
    """An array in global memory that a launch uses.

    Fields:
        role: "operand", "output", or "workspace": private memory of the launch, e.g. scratch buffers and semaphores.
        position: its number among the operands or outputs of the launch, or among the workspaces.
        shape, dtype: those of the array, which is row-major and dense.
        zeroed: True if it must be zero at the start of the kernel.
    """

    role: str
    position: int
    shape: tuple[int, ...]
    dtype: DType
    zeroed: bool = False

    @property
    def strides(self) -> tuple[int, ...]:
        """The bytes between neighbours along each axis."""
        return tuple(math.prod(self.shape[n + 1 :]) * self.dtype.itemsize for n in range(len(self.shape)))

    def resized(self, axis: int, size: int) -> Array:
        """The array with another size of an axis."""
        return replace(self, shape=(*self.shape[:axis], size, *self.shape[axis + 1 :]))


def _of_other_size(spec: MapSpec, array: Array, other: Array, axis: int) -> MapSpec | None:
    """The tensor map of an array for another one, of another size along an axis; None if the map has other axes."""
    if (spec.dims, spec.strides) == (array.shape, array.strides[:-1]):
        aligned = all(stride % MAP_ALIGNMENT == 0 for stride in other.strides[:-1])
        return replace(spec, dims=other.shape, strides=other.strides[:-1]) if aligned else None
    if axis == 0 and (*spec.dims[:1], *spec.strides[:1]) == (array.shape[0], array.strides[0]):
        return replace(spec, dims=(other.shape[0], *spec.dims[1:]))
    return None


@dataclass(frozen=True)
class Registers:
    """The `setmaxnreg` register count of the threads of some warpgroups."""

    warpgroups: tuple[int, ...]
    count: int


@dataclass(frozen=True)
class Lowered:
    """A kernel as CUDA C++.

    Fields:
        name: the name of the kernel, an `extern "C"` function.
        text: the translation unit. It includes `palladio.cuh`.
        products: the wgmma instructions that the header must define.
        parameters: the parameters of the kernel, in order.
        arrays: the arrays that the parameters refer to.
        grid: the number of blocks, all along x; a multiple of `cluster`. For a dynamic grid, the product of the known
            sizes.
        cluster: the number of blocks in a cluster, all along x; 1 for none. The text has it too.
        threads: the number of threads of a block.
        shared_bytes: dynamic shared memory of a block, aligned to 1024 bytes.
        aliases: pairs (operand, output) that share memory.
        copied: pairs (operand, output): the output starts with the values of the operand, in memory of its own.
        registers: the register counts that warpgroups request, if any.
        dynamic: the operands, numbers of the host, with the sizes of the grid's other axes.
        sizes: the sizes of the axes of a `grid_call`, None for those that its first operands give; each is at least 1.
    """

    name: str
    text: str
    products: tuple[Wgmma, ...]
    parameters: tuple[Parameter, ...]
    arrays: tuple[Array, ...]
    grid: int
    cluster: int
    threads: int
    shared_bytes: int
    aliases: tuple[tuple[int, int], ...] = ()
    copied: tuple[tuple[int, int], ...] = ()
    registers: tuple[Registers, ...] = field(default=())
    dynamic: tuple[int, ...] = ()
    sizes: tuple[int | None, ...] = ()

    @property
    def maps(self) -> tuple[MapSpec, ...]:
        """The tensor maps among the parameters, in order."""
        return tuple(each.spec for each in self.parameters if isinstance(each, MapParameter))

    def of_fewer_rows(self, fewer: FewerRows) -> Lowered | None:
        """The kernel for arrays with fewer rows, in the same text; None if the text accesses them other than by maps.

        The copy engine clips at the rows of a map. The blocks of other rows run, and store nothing, unless they are
        left out.
        """
        sizes = {n: size for n, each in enumerate(self.arrays) if (size := fewer.of(each)) is not None}
        arrays = tuple(each.resized(*sizes[n]) if n in sizes else each for n, each in enumerate(self.arrays))
        changed: list[Parameter] = []
        for each in self.parameters:
            if isinstance(each, MapParameter) and each.spec.array in sizes:
                number = each.spec.array
                spec = _of_other_size(each.spec, self.arrays[number], arrays[number], sizes[number][0])
                if spec is None:
                    return None
                changed.append(replace(each, spec=spec))
            elif isinstance(each, ArrayParameter) and each.array in sizes:
                if not fewer.guarded or sizes[each.array][0] != 0:
                    return None
                changed.append(each)
            else:
                changed.append(each)
        blocks = self.grid if fewer.blocks is None else fewer.blocks
        return replace(self, parameters=tuple(changed), arrays=arrays, grid=blocks)

    def blocks(self, operands: Sequence[Any]) -> int:
        """The number of blocks of a launch.

        Raises:
            PalladioValueError: a size of the grid is below 1.
        """
        extents(self.sizes, operands)
        return math.prod((self.grid, *(int(operands[number]) for number in self.dynamic)))
