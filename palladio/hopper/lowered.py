"""A compiled kernel: its text, and all that a launch has to know. Whoever runs the text takes this record."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from palladio.hopper.wgmma import Wgmma
from palladio.ops.grid import extents
from palladio.types.dtypes import DType

HEADER = "palladio.cuh"
"""The headers of a kernel's text: `device.cuh` and the products that it uses, or the same for another machine."""


@dataclass(frozen=True)
class MapSpec:
    """A tensor map: how boxes of an array are copied (CUDA driver API, `cuTensorMapEncodeTiled`).

    Axes are in the order of the array, the innermost last; the driver's are the other way round.

    Fields:
        array: which array, by its number among `Lowered.arrays`.
        dtype: of an element.
        dims: elements along each axis, at most 5 axes.
        strides: bytes from one element to the next along each axis but the last, multiples of 16. The last axis is
            dense.
        box: elements of a box along each axis, at most 256.
        swizzle: bytes of a row whose 16-byte pieces are permuted by the address: 0, 32, 64 or 128. The box's last axis
            has no more bytes than that, if it is not 0.
        fill: what lies outside of the array reads as: "zeros" or "nan".
        promotion: bytes that a fetch brings into the second-level cache at least: 0, 64, 128 or 256.
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
        array: which array, by its number among `Lowered.arrays`.
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


@dataclass(frozen=True)
class Array:
    """An array in global memory that a launch has to do with.

    Fields:
        role: "operand", "output", or "workspace": memory of the launch alone, such as scratch buffers and semaphores.
        position: its number among the operands or outputs of the launch, or among the workspaces.
        shape, dtype: of the array, row-major and dense.
        zeroed: whether it has to be zero when the kernel begins.
    """

    role: str
    position: int
    shape: tuple[int, ...]
    dtype: DType
    zeroed: bool = False


@dataclass(frozen=True)
class Registers:
    """The registers of each thread of some warpgroups, as `setmaxnreg` sets them."""

    warpgroups: tuple[int, ...]
    count: int


@dataclass(frozen=True)
class Lowered:
    """A kernel as CUDA C++.

    Fields:
        name: of the kernel, an `extern "C"` function.
        text: of the translation unit. It includes `palladio.cuh`.
        products: the instructions of the tensor cores whose functions the header has to have.
        parameters: of the kernel, in order.
        arrays: the arrays that the parameters refer to.
        grid: the number of blocks, all along x; a multiple of `cluster`. For a dynamic grid, that of the axes
            whose size is known.
        cluster: the number of blocks in a cluster, all along x; 1 for none. The text says it too.
        threads: of a block.
        shared_bytes: dynamic shared memory of a block, from a multiple of 1024 on.
        aliases: pairs (operand, output) that are one memory.
        registers: the numbers that the warpgroups request, if they do.
        dynamic: the operands, numbers of the host, that are the sizes of the grid's other axes.
        sizes: of the axes of a `grid_call`, None for those that its first operands give; each is at least 1.
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
    registers: tuple[Registers, ...] = field(default=())
    dynamic: tuple[int, ...] = ()
    sizes: tuple[int | None, ...] = ()

    @property
    def maps(self) -> tuple[MapSpec, ...]:
        """The tensor maps among the parameters, in order."""
        return tuple(each.spec for each in self.parameters if isinstance(each, MapParameter))

    def blocks(self, operands: Sequence[Any]) -> int:
        """The number of blocks of a launch.

        Raises:
            PalladioValueError: a size of a grid below 1.
        """
        extents(self.sizes, operands)
        return math.prod((self.grid, *(int(operands[number]) for number in self.dynamic)))
