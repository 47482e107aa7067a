"""Meshes of cores: plain ones, and those named after the cores of a TPU.

Cores of a mesh run concurrently, each with private memory and semaphores. Along an axis of devices, the memory that a
device's cores share is separate too: its global memory, with its part of every input and output.
"""

from __future__ import annotations

import operator
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import field
from enum import Enum
from typing import Any

import numpy as np

from palladio.base.calls import checked_call
from palladio.base.dataclass import dataclass
from palladio.base.errors import PalladioTypeError, PalladioValueError, at_call
from palladio.call.tpu.info import described_cores, described_sparse_cores
from palladio.pipeline.params import GridDimensionSemantics
from palladio.types.types import HBM, MemorySpace


class CoreType(Enum):
    """The kinds of core."""

    TC = "tensor_core"
    SC_SCALAR_SUBCORE = "scalar_subcore"
    SC_VECTOR_SUBCORE = "vector_subcore"


_SEMANTICS = {
    "core": GridDimensionSemantics.CORE_PARALLEL,
    "subcore": GridDimensionSemantics.SUBCORE_PARALLEL,
    "device": GridDimensionSemantics.PARALLEL,
}


class MeshOfCores:
    """The base of the meshes of cores. `axes` are (name, size, kind), the last one fastest."""

    axes: tuple[tuple[str, int, str], ...]

    @property
    def shape(self) -> OrderedDict[str, int]:
        """The size of each axis."""
        return OrderedDict((name, size) for name, size, _ in self.axes)

    @property
    def default_memory_space(self) -> MemorySpace:
        """The memory space of the inputs and outputs of its programs."""
        return HBM

    @property
    def dimension_semantics(self) -> list[GridDimensionSemantics]:
        """The semantics of each axis: its cores run concurrently."""
        return [_SEMANTICS[kind] for _, _, kind in self.axes]

    def check_is_compatible_with(self, other: Any) -> None:
        """Refuse a mesh that cannot run beside this one.

        Raises:
            PalladioValueError: it takes the same cores, has GPU threads, or other sizes along an axis of one name.
        """
        if not isinstance(other, MeshOfCores):
            raise PalladioValueError(
                "a mesh of cores and one of GPU threads do not run in one launch", got=_kind(other)
            )
        _require_other_cores(self, other)
        if isinstance(self, ScalarSubcoreMesh) and isinstance(other, VectorSubcoreMesh):
            _require_same_cores(self, other)
        elif isinstance(other, ScalarSubcoreMesh) and isinstance(self, VectorSubcoreMesh):
            _require_same_cores(other, self)


def _require_other_cores(mesh: Any, other: Any) -> None:
    if type(mesh) is type(other) and not isinstance(mesh, CoreMesh):
        raise PalladioValueError(
            f"two meshes take the same cores: a launch has one {type(mesh).__name__}",
            argument="mesh",
            got=f"{mesh!r} and {other!r}",
        )
    pair = [each for each in (mesh, other) if isinstance(each, TensorCoreMesh)]
    if len(pair) == 1 and not isinstance(mesh, CoreMesh) and not isinstance(other, CoreMesh):
        shared = [name for name in mesh.shape if name in other.shape]
        if shared:
            raise PalladioValueError(
                "the axis of the tensor cores has a name of its own beside the sub-cores",
                argument="axis_name",
                got=repr(shared[0]),
            )


def _require_same_cores(scalar: ScalarSubcoreMesh, vector: VectorSubcoreMesh) -> None:
    if (scalar.axis_name, scalar.num_cores) != (vector.core_axis_name, vector.num_cores):
        raise PalladioValueError(
            "scalar and vector sub-cores are parts of the same cores: one name and size of the core axis",
            argument="mesh",
            expected=f"{vector.core_axis_name!r}: {vector.num_cores}",
            got=f"{scalar.axis_name!r}: {scalar.num_cores}",
            jax="a VectorSubcoreMesh and a ScalarSubcoreMesh should have the same core axis name and size",
        )


def _kind(mesh: Any) -> str:
    return f"a {type(mesh).__name__}"


def _axis_name(name: Any, argument: str) -> str:
    if not isinstance(name, str) or not name:
        raise PalladioTypeError("an axis of cores has a name", argument=argument, got=repr(name))
    return name


def _size(size: Any, argument: str) -> int:
    try:
        found = operator.index(size)
    except TypeError:
        raise PalladioTypeError("a number of cores is an integer", argument=argument, got=repr(size)) from None
    if found < 1:
        raise PalladioValueError("a mesh has at least one core along each axis", argument=argument, got=found)
    return found


@checked_call
@dataclass(frozen=True)
class CoreMesh(MeshOfCores):
    """Plain cores, one program on each.

    Args:
        axis_names: the name of each axis, for `axis_index` and for addressing a core.
        shape: the number of cores along each axis; the last axis runs fastest.
        device_axes: those axes along which the cores are on different devices. Arrays are split over the devices
            along their first axis; each program sees its device's part `f32[n / devices, ...]`, and scalars whole.

    Raises:
        PalladioTypeError: a name that is not a string, a size that is not an integer.
        PalladioValueError: another number of names than sizes, a name used twice, a size below 1, a device axis that is
            not one of the axes.
    """

    axis_names: Sequence[str]
    sizes: Sequence[int]
    device_axes: Sequence[str]
    axes: tuple[tuple[str, int, str], ...] = field(init=False, repr=False)
    core_type: CoreType | None = field(default=None, init=False, repr=False)

    def __init__(
        self, axis_names: str | Sequence[str], shape: int | Sequence[int], *, device_axes: str | Sequence[str] = ()
    ) -> None:
        with at_call():
            names = (axis_names,) if isinstance(axis_names, str) else tuple(axis_names)
            names = tuple(_axis_name(name, "axis_names") for name in names)
            sizes = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
            sizes = tuple(_size(size, "shape") for size in sizes)
            devices = (device_axes,) if isinstance(device_axes, str) else tuple(device_axes)
            if len(names) != len(sizes):
                raise PalladioValueError(
                    "one name for each axis of cores", argument="axis_names", expected=len(sizes), got=len(names)
                )
            if len(set(names)) != len(names):
                raise PalladioValueError("two axes of cores have one name", argument="axis_names", got=", ".join(names))
            for name in devices:
                if name not in names:
                    raise PalladioValueError(
                        "a device axis is one of the mesh's axes",
                        argument="device_axes",
                        expected=", ".join(names),
                        got=repr(name),
                    )
        axes = ((name, size, "device" if name in devices else "core") for name, size in zip(names, sizes, strict=True))
        object.__setattr__(self, "axis_names", names)
        object.__setattr__(self, "sizes", sizes)
        object.__setattr__(self, "device_axes", devices)
        object.__setattr__(self, "axes", tuple(axes))

    def __repr__(self) -> str:
        devices = f", device_axes={self.device_axes}" if self.device_axes else ""
        return f"CoreMesh({self.axis_names}, {self.sizes}{devices})"


class _OneAxis(MeshOfCores):
    """The base of meshes of one axis of cores."""

    axis_name: str
    num_cores: int

    def __post_init__(self) -> None:
        with at_call():
            _axis_name(self.axis_name, "axis_name")
            _size(self.num_cores, "num_cores")

    @property
    def devices(self) -> np.ndarray[Any, Any]:
        """The numbers of its cores, as i64[cores]."""
        return np.arange(self.num_cores)

    @property
    def axes(self) -> tuple[tuple[str, int, str], ...]:  # type: ignore[override]
        """The one axis."""
        return ((self.axis_name, self.num_cores, "core"),)


@checked_call
@dataclass(frozen=True, kw_only=True)
class TensorCoreMesh(_OneAxis):
    """The tensor cores of a chip: programs over whole tiles.

    Args:
        axis_name: the name of their axis.
        num_cores: how many; by default those of the TPU of `pltpu.described_tpu`, one without it.
    """

    axis_name: str
    num_cores: int = field(default_factory=described_cores)
    core_type: CoreType = field(default=CoreType.TC, init=False, repr=False)


def create_tensorcore_mesh(axis_name: str, devices: Any = None, num_cores: int | None = None) -> TensorCoreMesh:
    """The mesh of a chip's tensor cores.

    Args:
        axis_name: the name of their axis.
        devices: the owners of the cores; only the first one is used.
        num_cores: how many; by default those of the TPU of `pltpu.described_tpu`, one without it.

    Raises:
        PalladioValueError: both devices and a number.
    """
    with at_call():
        if devices is not None and num_cores is not None:
            raise PalladioValueError(
                "the cores are those of a device, or a number is given", argument="num_cores", got=num_cores
            )
        if devices is not None:
            num_cores = devices[0].num_cores
        return TensorCoreMesh(axis_name=axis_name, num_cores=described_cores() if num_cores is None else num_cores)


@checked_call
@dataclass(frozen=True)
class ScalarSubcoreMesh(_OneAxis):
    """The scalar sub-core of each sparse core: control, addresses, copies.

    Args:
        axis_name: the name of the axis of cores.
        num_cores: how many; by default those of the TPU of `pltpu.described_tpu`, one without it.
    """

    axis_name: str
    num_cores: int = field(default_factory=lambda: described_sparse_cores()[0])
    core_type: CoreType = field(default=CoreType.SC_SCALAR_SUBCORE, init=False, repr=False)


@checked_call
@dataclass(frozen=True)
class VectorSubcoreMesh(MeshOfCores):
    """The vector sub-cores of each sparse core.

    Args:
        core_axis_name, num_cores: the axis of cores.
        subcore_axis_name, num_subcores: the axis of the sub-cores of each.

    The numbers are those of the TPU of `pltpu.described_tpu` by default; without it one core of 16.
    """

    core_axis_name: str
    subcore_axis_name: str
    num_cores: int = field(default_factory=lambda: described_sparse_cores()[0])
    num_subcores: int = field(default_factory=lambda: described_sparse_cores()[1])
    core_type: CoreType = field(default=CoreType.SC_VECTOR_SUBCORE, init=False, repr=False)

    def __post_init__(self) -> None:
        with at_call():
            _axis_name(self.core_axis_name, "core_axis_name")
            _axis_name(self.subcore_axis_name, "subcore_axis_name")
            _size(self.num_cores, "num_cores")
            _size(self.num_subcores, "num_subcores")
            if self.core_axis_name == self.subcore_axis_name:
                raise PalladioValueError(
                    "two axes of cores have one name", argument="subcore_axis_name", got=repr(self.subcore_axis_name)
                )

    @property
    def axes(self) -> tuple[tuple[str, int, str], ...]:  # type: ignore[override]
        """Cores, and the sub-cores of each."""
        cores = (self.core_axis_name, self.num_cores, "core")
        return (cores, (self.subcore_axis_name, self.num_subcores, "subcore"))
