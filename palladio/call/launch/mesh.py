"""Meshes: the threads on which a launch runs a program."""

from __future__ import annotations

import operator
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import field
from typing import Any

from palladio.base.arguments import axis_names
from palladio.base.calls import checked_call
from palladio.base.dataclass import dataclass
from palladio.base.errors import PalladioTypeError, PalladioValueError, at_call
from palladio.ops.threads.launch import MeshAxis, MeshShape
from palladio.types.types import GMEM, MemorySpace

MOST_THREADS = 16
"""Warpgroups of a block: 2048 threads of a multiprocessor, 128 to each."""

Sizes = Sequence[Any] | int


def _sizes(sizes: Sizes, argument: str) -> tuple[Any, ...]:
    entries = tuple(sizes) if isinstance(sizes, (tuple, list)) else (sizes,)
    found = []
    for entry in entries:
        if getattr(entry, "shape", None) == () and not isinstance(entry, int):
            found.append(entry)  # known only at the call
            continue
        try:
            size = operator.index(entry)
        except TypeError:
            raise PalladioTypeError(
                "the size of a mesh axis is an integer", argument=argument, got=repr(entry)
            ) from None
        if size < 1:
            raise PalladioValueError("the size of a mesh axis is at least 1", argument=argument, got=size)
        found.append(size)
    return tuple(found)


def _names(names: Sequence[str] | str, count: int, argument: str) -> tuple[str, ...]:
    found = axis_names(names, argument)
    if found and len(found) != count:
        raise PalladioValueError("one name for each axis, or none", argument=argument, expected=count, got=len(found))
    return found or ("",) * count


@checked_call
@dataclass(frozen=True)
class Mesh:
    """Blocks of warpgroups on one GPU.

    Args:
        grid, grid_names: clusters along each axis, the last axis fastest; blocks, without a cluster.
        cluster, cluster_names: blocks of a cluster along each axis, at most 3.
        num_threads, thread_name: warpgroups of a block, and the name of their axis. Both or none.
        kernel_name: the name in reports of the program that runs on it.

    Raises:
        PalladioTypeError: sizes that are not integers.
        PalladioValueError: sizes below 1, another number of names than axes, a name used twice, only one of
            `num_threads` and `thread_name`, more warpgroups than a block has.
    """

    grid: Sizes = ()
    grid_names: Sequence[str] | str = ()
    cluster: Sizes = ()
    cluster_names: Sequence[str] | str = ()
    num_threads: int | None = None
    thread_name: str | None = None
    kernel_name: str | None = None
    axes: tuple[tuple[str, Any, str], ...] = field(init=False, repr=False)

    default_memory_space: MemorySpace = field(default=GMEM, init=False, repr=False)
    core_type: str = field(default="gpu", init=False, repr=False)

    def __post_init__(self) -> None:
        with at_call():
            grid, cluster = _sizes(self.grid, "grid"), _sizes(self.cluster, "cluster")
            if len(cluster) > 3:
                raise PalladioValueError("a cluster has at most 3 axes", argument="cluster", got=len(cluster))
            if (self.num_threads is None) != (self.thread_name is None):
                raise PalladioValueError(
                    "num_threads and thread_name are given together or not at all",
                    argument="num_threads" if self.num_threads is None else "thread_name",
                )
            threads = () if self.num_threads is None else _sizes(self.num_threads, "num_threads")
            if threads and (not isinstance(threads[0], int) or threads[0] > MOST_THREADS):
                raise PalladioValueError(
                    f"a block has at most {MOST_THREADS} warpgroups", argument="num_threads", got=threads[0]
                )
            named = [
                *zip(_names(self.grid_names, len(grid), "grid_names"), grid, ("grid",) * len(grid)),
                *zip(_names(self.cluster_names, len(cluster), "cluster_names"), cluster, ("cluster",) * len(cluster)),
                *((self.thread_name or "", size, "thread") for size in threads),
            ]
            names = [name for name, _, _ in named if name]
            if len(set(names)) != len(names):
                raise PalladioValueError("two axes of the mesh have one name", got=", ".join(names))
        object.__setattr__(self, "axes", tuple(named))

    @property
    def shape(self) -> OrderedDict[str, Any]:
        """The size of each named axis."""
        return OrderedDict((name, size) for name, size, _ in self.axes if name)

    @property
    def dimension_semantics(self) -> tuple[str, ...]:
        """The semantics of each axis: all of them are parallel."""
        return ("parallel",) * len(self.axes)

    def check_is_compatible_with(self, other: Any) -> None:
        """Refuse a mesh that cannot be part of one launch with this one.

        Raises:
            PalladioValueError: it is not a mesh of blocks, or its clusters have another shape.
        """
        if not isinstance(other, Mesh):
            raise PalladioValueError(
                "a mesh of blocks runs beside meshes of blocks only", got=f"a {type(other).__name__}"
            )
        clusters = [[size for _, size, kind in each.axes if kind == "cluster"] for each in (self, other)]
        if clusters[0] != clusters[1]:
            raise PalladioValueError(
                "the blocks of one launch form clusters of one shape",
                argument="cluster",
                expected=clusters[0],
                got=clusters[1],
            )


WARPS = 4
"""Warps of a warpgroup."""


@checked_call
@dataclass(frozen=True)
class WarpMesh:
    """Warps of the warpgroup that launches it, all four by default. Only inside a kernel.

    Args:
        axis_name: the name of the warp's number for `axis_index`.
        num_warps: how many; several meshes share the four.

    Raises:
        PalladioTypeError: a name that is not a string.
        PalladioValueError: no warps, or more than a warpgroup has.
    """

    axis_name: str
    num_warps: int = WARPS

    default_memory_space: MemorySpace = field(default=GMEM, init=False, repr=False)
    core_type: str = field(default="gpu", init=False, repr=False)

    def __post_init__(self) -> None:
        with at_call():
            if not isinstance(self.axis_name, str) or not self.axis_name:
                raise PalladioTypeError("an axis has a name", argument="axis_name", got=repr(self.axis_name))
            if not isinstance(self.num_warps, int) or not 1 <= self.num_warps <= WARPS:
                raise PalladioValueError(
                    f"a warpgroup has {WARPS} warps", argument="num_warps", got=repr(self.num_warps)
                )

    @property
    def axes(self) -> tuple[tuple[str, Any, str], ...]:
        """The one axis."""
        return ((self.axis_name, self.num_warps, "warp"),)

    @property
    def shape(self) -> OrderedDict[str, Any]:
        """The size of each named axis."""
        return OrderedDict({self.axis_name: self.num_warps})

    @property
    def dimension_semantics(self) -> tuple[str, ...]:
        """The semantics of the axis: parallel."""
        return ("parallel",)

    def check_is_compatible_with(self, other: Any) -> None:
        """Refuse a mesh that cannot be part of one launch with this one.

        Raises:
            PalladioValueError: it is not a mesh of warps.
        """
        if not isinstance(other, WarpMesh):
            raise PalladioValueError(
                "a mesh of warps runs beside meshes of warps only", got=f"a {type(other).__name__}"
            )


def check_meshes(meshes: Sequence[Any]) -> None:
    """Refuse meshes that cannot run in one launch.

    Raises:
        PalladioTypeError: not a mesh.
        PalladioValueError: two that do not go together; axes of one name and different sizes; more warps than there
            are.
    """
    for number, mesh in enumerate(meshes):
        if not hasattr(mesh, "axes"):
            raise PalladioTypeError("this is not a mesh", argument="mesh", got=repr(mesh))
        for other in meshes[:number]:
            other.check_is_compatible_with(mesh)
            _check_sizes(other, mesh)
    warps = sum(mesh.num_warps for mesh in meshes if isinstance(mesh, WarpMesh))
    if warps > WARPS:
        raise PalladioValueError(
            f"the meshes of warps of one launch share the {WARPS} warps of a warpgroup", argument="num_warps", got=warps
        )


def _check_sizes(mesh: Any, other: Any) -> None:
    for name, size in mesh.shape.items():
        if name in other.shape and other.shape[name] is not size and other.shape[name] != size:
            raise PalladioValueError(
                f"two meshes have an axis {name!r} of different sizes",
                argument="mesh",
                expected=size,
                got=other.shape[name],
            )
    devices = [[(name, size) for name, size, kind in each.axes if kind == "device"] for each in (mesh, other)]
    if devices[0] != devices[1]:
        raise PalladioValueError(
            "the meshes of one launch run on the same devices",
            argument="device_axes",
            expected=[name for name, _ in devices[0]],
            got=[name for name, _ in devices[1]],
        )


def mesh_shape(mesh: Any) -> MeshShape:
    """The mesh as programs have it."""
    axes = (MeshAxis(name, size if isinstance(size, int) else None, kind) for name, size, kind in mesh.axes)
    return MeshShape(getattr(mesh, "kernel_name", None) or "thread", tuple(axes))


def dynamic_sizes(mesh: Any) -> list[Any]:
    """The sizes of a mesh's axes that are known only at the call."""
    return [size for _, size, _ in mesh.axes if not isinstance(size, int)]
