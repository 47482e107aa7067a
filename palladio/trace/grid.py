"""The position of a kernel in its grid. The program ids are inputs of the kernel's program.

These functions give them to the kernel's author.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field
from typing import Any

import numpy as np

from palladio.array import convert
from palladio.base.dataclass import dataclass
from palladio.base.errors import PalladioIndexError, PalladioTypeError, PalladioValueError


@dataclass(frozen=True)
class GridAxes:
    """The traced program id, the size and the name of each grid axis; of a mesh axis also its kind.

    A size that must be read first is given as a function that reads it. `beside` are the sizes of the axes of the
    launch's other meshes, on which this program has no index.
    """

    ids: tuple[Any, ...]
    sizes: tuple[Any, ...]
    names: tuple[str | None, ...]
    kinds: tuple[str, ...] = ()
    beside: Mapping[str, int] = field(default_factory=dict)


_axes: ContextVar[GridAxes | None] = ContextVar("palladio_grid", default=None)


@contextmanager
def grid_axes(axes: GridAxes) -> Iterator[None]:
    """Set the axes of a kernel's grid while the kernel is traced."""
    convert.mark_nonnegative(*axes.ids, *(size for size in axes.sizes if not callable(size)))
    token = _axes.set(axes)
    try:
        yield
    finally:
        _axes.reset(token)


def enclosing_axes() -> GridAxes:
    """The axes of the kernel being traced; none outside of kernels."""
    return _axes.get() or GridAxes((), (), ())


def is_inside_kernel() -> bool:
    """True while a kernel is traced."""
    return _axes.get() is not None


def _axis(name: str, axis: int) -> tuple[GridAxes, int]:
    axes = _axes.get()
    if axes is None:
        raise PalladioValueError(f"{name} has a meaning only inside a kernel")
    if not isinstance(axis, int):
        hint = "axis_index and axis_size take the name of an axis" if isinstance(axis, str) else None
        raise PalladioTypeError(f"{name} takes a static axis", argument="axis", got=repr(axis), hint=hint)
    if not 0 <= axis < len(axes.ids):
        raise PalladioIndexError(
            f"the grid has no such axis for {name}", argument="axis", expected=f"0 <= axis < {len(axes.ids)}", got=axis
        )
    return axes, axis


def program_id(axis: int) -> Any:
    """The index of this block along a grid axis: a traced i32[]."""
    axes, axis = _axis("program_id", axis)
    return axes.ids[axis]


def num_programs(axis: int) -> Any:
    """The size of a grid axis: an int, or a traced i32[] if the grid is dynamic there."""
    axes, axis = _axis("num_programs", axis)
    return _known(axes.sizes[axis])


def _known(size: Any) -> Any:
    return size() if callable(size) else size


def _named(name: str) -> tuple[GridAxes, int]:
    axes = _axes.get()
    if axes is None or not isinstance(name, str) or name not in axes.names:
        known = [known for known in axes.names if known] if axes else []
        raise PalladioValueError(
            "no axis has this name here", got=repr(name), expected=", ".join(known) or "a named grid"
        )
    return axes, axes.names.index(name)


def axis_index(axis_name: str | Sequence[str]) -> Any:
    """The index along an axis of the mesh, i32[]: of this block, its place in a cluster, its thread, core or device.

    Along several axes together it is the row-major one, the last axis fastest.

    Raises:
        PalladioValueError: no axis has this name here, or there is no kernel around.
    """
    if isinstance(axis_name, (tuple, list)):
        index: Any = np.int32(0)
        for name in axis_name:
            index = index * axis_size(name) + axis_index(name)
        return index
    axes, axis = _named(axis_name)
    return axes.ids[axis]


def axis_size(axis_name: str | Sequence[str]) -> Any:
    """The size of an axis of the mesh, or of several together: an int, or i32[] of a dynamic grid. Axes of other meshes
    of the launch are allowed.

    Raises: as `axis_index`.
    """
    if isinstance(axis_name, (tuple, list)):
        return functools.reduce(operator.mul, map(axis_size, axis_name), 1)
    around = _axes.get()
    if around is not None and axis_name in around.beside:
        return around.beside[axis_name]
    axes, axis = _named(axis_name)
    return _known(axes.sizes[axis])


def require_cluster_axes(names: Iterable[str], argument: str) -> None:
    """Refuse names that are not those of cluster axes of the kernel being traced."""
    axes = enclosing_axes()
    known = [name for name, kind in zip(axes.names, axes.kinds, strict=False) if kind == "cluster"]
    for name in names:
        if name not in known:
            raise PalladioValueError(
                "no cluster axis has this name here",
                argument=argument,
                expected=", ".join(str(each) for each in known) or "a kernel with cluster axes",
                got=repr(name),
            )


def require_shared_axes(names: Iterable[str], argument: str) -> None:
    """Refuse names along which the threads of a mesh share no memory: those of grid axes, and unknown ones."""
    axes = enclosing_axes()
    kinds = dict(zip(axes.names, axes.kinds, strict=False))
    known = [name for name, kind in kinds.items() if name and kind not in ("grid", "cluster")]
    for name in names:
        if kinds.get(name) == "cluster":
            raise PalladioValueError(
                "buffers are shared by the threads of one block, not by those of a cluster",
                argument=argument,
                expected=", ".join(map(str, known)) or "a kernel with a thread axis",
                got=repr(name),
                jax="Collective allocations along cluster axes are not supported."
                if known
                else "Requesting collective allocations, but no explicit thread axis specified.",
            )
        if name not in known:
            raise PalladioValueError(
                "no axis of threads that share memory has this name here",
                argument=argument,
                expected=", ".join(map(str, known)) or "a kernel with a thread axis",
                got=repr(name),
                jax=f"Collective axis `{name}` not found among axes `{[each for each in axes.names if each]}`",
            )
