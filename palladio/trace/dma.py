"""Copies and signals between cores and devices: descriptors of local and remote copies, remote semaphores, barriers of
cores.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from enum import Enum
from typing import Any

import numpy as np

from palladio.array import convert
from palladio.base import trees
from palladio.base.dataclass import dataclass
from palladio.base.errors import PalladioNotImplementedError, PalladioTypeError, PalladioValueError
from palladio.ir.bind import bind
from palladio.ops.threads import copy as ops
from palladio.ops.threads.launch import MeshAxis
from palladio.trace import control, semaphores
from palladio.trace.grid import axis_index, axis_size
from palladio.trace.reference import DynamicPart, FilteredPart, Reference, reached, require_reference
from palladio.trace.select_ref import SelectedRef
from palladio.types import dtypes
from palladio.types.effects import EffectKind
from palladio.types.scratch import SemaphoreType
from palladio.types.types import DMA_SEMAPHORE, SEMAPHORE


@dataclass(frozen=True)
class Cores:
    """The cores and devices that a program on cores can access.

    Fields:
        axes: of all meshes of the launch, each name once.
        barrier: the semaphore that every core has for `get_barrier_semaphore`.
        elsewhere: axes of one core, which does not run, whose memory the launch leaves as outputs.
    """

    axes: tuple[MeshAxis, ...]
    barrier: Any
    elsewhere: tuple[MeshAxis, ...] = ()


_cores: ContextVar[Cores | None] = ContextVar("palladio_cores", default=None)


@contextmanager
def among_cores(cores: Cores | None) -> Iterator[None]:
    """Set the existing cores while the program of a mesh is traced."""
    token = _cores.set(cores)
    try:
        yield
    finally:
        _cores.reset(token)


def enclosing_cores() -> Cores | None:
    """The cores that the program being traced can access; None outside of a mesh of cores."""
    return _cores.get()


_landing: ContextVar[tuple[Reference, ...]] = ContextVar("palladio_landing_at_once", default=())


@contextmanager
def landing_at_once(semaphores: Sequence[Reference]) -> Iterator[None]:
    """Inside the block, copies that signal one of these semaphores complete when they start."""
    token = _landing.set((*_landing.get(), *semaphores))
    try:
        yield
    finally:
        _landing.reset(token)


def _lands_at_once(semaphore: Any) -> bool:
    return any(semaphore is each.root for each in _landing.get())


class DeviceIdType(Enum):
    """The naming of a device: by its index along each axis, or by one number."""

    MESH = "mesh"
    LOGICAL = "logical"


# Locations.


def _require_cores(argument: str, got: Any) -> Cores:
    cores = _cores.get()
    if cores is None:
        raise PalladioValueError(
            "only the programs of a mesh of cores reach other cores and devices", argument=argument, got=repr(got)
        )
    return cores


def _scalar(value: Any, argument: str) -> Any:
    if isinstance(value, bool) or not isinstance(value, int):
        found = convert.array_type(value)
        if found.shape != () or not dtypes.is_integer(found.dtype):
            raise PalladioTypeError("a core or device is named by scalar integers", argument=argument, got=str(found))
        return convert.cast(value, dtypes.INT32)
    return value


def _along(axes: Sequence[MeshAxis], number: Any) -> dict[str, Any]:
    """The index along each axis of the device with a number, the last axis fastest.

    A number outside is an index outside along the first axis.
    """
    found = {}
    for axis in reversed(axes[1:]):
        size = axis.size or 1
        found[axis.name] = number % size
        number = number // size
    return found | {axes[0].name: number}


def _by_axis(axes: Sequence[MeshAxis], device_id: Mapping[Any, Any]) -> dict[str, Any]:
    """The index along each axis, of a mapping whose keys may be tuples of axes that one number counts."""
    named = {axis.name: axis for axis in axes}
    found: dict[str, Any] = {}
    for name, index in device_id.items():
        number = _scalar(index, "device_id")
        together = name if isinstance(name, tuple) else (name,)
        if not together:
            raise PalladioValueError(
                "a tuple of axes in a mapping that names a device has one axis or more",
                argument="device_id",
                got=repr(name),
            )
        if len(set(together)) < len(together) or not found.keys().isdisjoint(together):
            raise PalladioValueError(
                "a mapping that names a device names each axis once", argument="device_id", got=repr(device_id)
            )
        if not isinstance(name, tuple):
            found[name] = number
        elif set(name) <= set(named):
            found |= _along([named[each] for each in name], number)
        else:
            found |= dict.fromkeys(name, 0)
    return found


def place_of(device_id: Any, core_index: Any = None) -> dict[str, Any]:
    """For some axes of cores, the index that names a core or device.

    Raises:
        PalladioTypeError: an index that is not a scalar integer.
        PalladioValueError: outside of a mesh of cores; an axis that does not exist or is named twice, an index outside
            of it; an empty tuple of axes.
    """
    found: dict[str, Any] = {}
    if device_id is not None:
        cores = _require_cores("device_id", device_id)
        devices = [axis for axis in cores.axes if axis.kind == "device"] or list(cores.axes)
        if isinstance(device_id, Mapping):
            elsewhere = {axis.name for axis in cores.elsewhere}
            found = _by_axis(cores.axes, {name: i for name, i in device_id.items() if name not in elsewhere})
            _check_place(cores.elsewhere, {name: device_id[name] for name in elsewhere & device_id.keys()}, "device_id")
        elif isinstance(device_id, (tuple, list)):
            if len(device_id) != len(devices):
                raise PalladioValueError(
                    "a device is named by one index along each axis of devices",
                    argument="device_id",
                    expected=", ".join(axis.name for axis in devices),
                    got=len(device_id),
                )
            found = {axis.name: _scalar(i, "device_id") for axis, i in zip(devices, device_id, strict=True)}
        else:
            number = _scalar(device_id, "device_id")
            found = _along(devices, number) if len(devices) != 1 else {devices[0].name: number}
        _check_place(cores.axes, found, "device_id")
    if core_index is not None:
        cores = _require_cores("core_index", core_index)
        axis = next((each for each in cores.axes if each.kind == "core"), None)
        if axis is None:
            raise PalladioValueError("the meshes of this launch have no axis of cores", argument="core_index")
        own = {axis.name: _scalar(core_index, "core_index")}
        _check_place(cores.axes, own, "core_index")
        found |= own
    return found


def _check_place(axes: Sequence[MeshAxis], place: Mapping[str, Any], argument: str) -> None:
    sizes = {axis.name: axis.size for axis in axes}
    for name, index in place.items():
        if name not in sizes:
            raise PalladioValueError(
                "the meshes of this launch have no such axis of cores",
                argument=argument,
                expected=", ".join(sizes),
                got=repr(name),
            )
        if isinstance(index, int) and not 0 <= index < (sizes[name] or 1):
            raise PalladioValueError(
                f"there is no such index along {name}", argument=argument, expected=f"below {sizes[name]}", got=index
            )


def core_ref(ref: Any, place: Mapping[str, Any]) -> Reference:
    """The same buffer or semaphore of another core.

    Args:
        ref: a reference to memory that each core of some mesh of the launch has.
        place: for some axes of that mesh, the core's index; along the others it is that of the caller.

    Raises:
        PalladioTypeError: not a reference; an index that is not a scalar integer.
        PalladioValueError: outside of a mesh of cores; an axis that does not exist, an index outside of it.
    """
    reference = require_reference(ref, "ref")
    if not isinstance(place, Mapping):
        raise PalladioTypeError(
            "a core is named by its index along axes", argument="place", expected="such as {'core': 1}", got=repr(place)
        )
    return reference.in_peer(place_of(place))


# Copies.


Copied = Reference | SelectedRef | DynamicPart | FilteredPart
"""The data that a copy reads or writes."""


class AsyncCopyDescriptor:
    """A copy `dst = src` that can be started and waited for; `make_async_copy` etc. make it.

    Waiting for it needs only its shape and its semaphores, so a copy that was started elsewhere can be waited for
    through another descriptor of the same copy.
    """

    def __init__(self, src: Copied, dst: Copied, here: Copied, there: Copied, remote: dict[str, Any]):
        self.src_ref = src
        self.dst_ref = dst
        self.send_sem = here
        self.recv_sem = there
        self.remote = remote
        self.is_remote = here is not there or bool(remote)

    def __repr__(self) -> str:
        return f"copy of {self.src_ref!r} to {self.dst_ref!r}"

    def start(self, priority: int = 0, *, add: bool = False) -> None:
        """Start copying and return immediately.

        Args:
            priority: advice to the hardware, 0 or 1.
            add: add to the target, each element atomically.

        Raises:
            PalladioValueError: source and target have two shapes or dtypes.
            PalladioNotImplementedError: a copy to another core or device that adds.
        """
        if add and self.is_remote:
            raise PalladioNotImplementedError(
                "a copy to another core or device does not add",
                argument="add",
                got=repr(self),
                hint="copy to memory there, wait, and add there",
            )
        for place, selected in enumerate((self.src_ref, self.dst_ref, self.send_sem, self.recv_sem)):
            if isinstance(selected, SelectedRef):
                chosen = [self._with(place, ref) for ref in selected.refs]
                control.switch(selected.index, [functools.partial(each.start, priority, add=add) for each in chosen])
                return
        _require_alike(self.src_ref, self.dst_ref)
        if isinstance(self.dst_ref, DynamicPart):
            self._start_elements(self.src_ref, self.dst_ref, add)  # type: ignore[arg-type]
            return
        if isinstance(self.src_ref, FilteredPart) or isinstance(self.dst_ref, FilteredPart):
            self._start_filtered(add)
            return
        if not self.is_remote:
            roots, stacks, operands = reached(self.src_ref, self.dst_ref, self.recv_sem)
            reduction = {"reduction": "add"} if add else {}
            bind(ops.dma_start, *roots, *operands, transforms=stacks, **reduction)
            if _lands_at_once(roots[2]):
                self._wait(self.recv_sem)
                semaphores.semaphore_signal(self.recv_sem, self._bytes)
            return
        dst, there = (ref.in_peer(self.remote) if self.remote else ref for ref in (self.dst_ref, self.recv_sem))
        roots, stacks, operands = reached(self.src_ref, dst, there, self.send_sem)
        at_once = [each for each, root in zip((self.recv_sem, self.send_sem), roots[2:]) if _lands_at_once(root)]
        if at_once and self.remote:
            raise PalladioNotImplementedError(
                "the semaphores of a copy to another core or device stay within one call",
                argument="send_sem or recv_sem",
                got=repr(self),
                hint="start it and wait for it in one kernel",
            )
        bind(ops.dma_start_remote, *roots, *operands, transforms=stacks)
        for semaphore in at_once:
            self._wait(semaphore)
            semaphores.semaphore_signal(semaphore, self._bytes)

    def _start_elements(self, source: DynamicPart, target: DynamicPart, add: bool) -> None:
        """Start a copy for each position along the axes of dynamic size."""

        def along(axes: Sequence[int], numbers: Mapping[int, Any]) -> None:
            if not axes:
                parts = source.element(numbers), target.element(numbers)
                AsyncCopyDescriptor(*parts, self.send_sem, self.recv_sem, self.remote).start(add=add)
                return

            @control.loop(0, target.slices[axes[0]].size)
            def _(element: Any) -> None:
                along(axes[1:], {**numbers, axes[0]: element})

        along(sorted(target.slices), {})

    def _start_filtered(self, add: bool) -> None:
        """Start a copy for each index that is not ignored; the others count as having arrived."""
        if self.is_remote or (isinstance(self.dst_ref, FilteredPart) and isinstance(self.src_ref, FilteredPart)):
            raise PalladioNotImplementedError(
                "indices with ignored ones are on one side of a copy within a core", got=repr(self)
            )
        part = self.src_ref if isinstance(self.src_ref, FilteredPart) else self.dst_ref
        count = part.shape[0]

        @control.loop(0, count)
        def _(number: Any) -> None:
            index = part.indices[number]

            def copy() -> None:
                source, target = (
                    each.reference.at[index] if isinstance(each, FilteredPart) else each.at[number]
                    for each in (self.src_ref, self.dst_ref)
                )
                AsyncCopyDescriptor(source, target, self.send_sem, self.recv_sem, self.remote).start(add=add)

            def skip() -> None:
                semaphores.semaphore_signal(self.recv_sem, self._bytes // count)

            control.cond(index != part.ignored, copy, skip)

    def _with(self, place: int, ref: Reference) -> AsyncCopyDescriptor:
        """The copy of one choice: another source (0) or target (1), or another semaphore for one (2, 3)."""
        parts = [self.src_ref, self.dst_ref, self.send_sem, self.recv_sem]
        chosen = parts[place]
        return AsyncCopyDescriptor(*(ref if part is chosen else part for part in parts), self.remote)

    def wait(self) -> None:
        """Wait until the source has been read and the incoming data has landed."""
        if self.is_remote:
            self.wait_send()
        self.wait_recv()

    def wait_send(self) -> None:
        """Wait until the source has been read and may be written again; for a local copy, until it is complete."""
        self._wait(self.send_sem)

    def wait_recv(self) -> None:
        """Wait until the data that another core sends here, by its side of the same copy, has landed in `dst`."""
        self._wait(self.recv_sem)

    def _wait(self, semaphore: Copied) -> None:
        if isinstance(semaphore, SelectedRef):
            waits = [functools.partial(self._wait, ref) for ref in semaphore.refs]
            control.switch(semaphore.index, waits)
            return
        if isinstance(self.dst_ref, (DynamicPart, FilteredPart)) or isinstance(self.src_ref, FilteredPart):
            semaphores.semaphore_wait(semaphore, self._bytes)
            return
        (root,), (stack,), operands = reached(semaphore)
        bind(ops.dma_wait, root, *operands, transforms=stack, amount=self._bytes)

    @property
    def _bytes(self) -> Any:
        count: Any = 1
        for extent in self.dst_ref.shape:
            count = count * (extent if isinstance(extent, int) else np.maximum(convert.cast(extent, dtypes.INT32), 0))
        return count * self.dst_ref.dtype.itemsize


def _semaphore(value: Any, argument: str) -> Copied:
    if isinstance(value, SelectedRef):
        return SelectedRef(value.index, [_semaphore(ref, argument) for ref in value.refs])  # type: ignore[misc]
    found = require_reference(value, argument)
    if found.size == 1 and found.shape:
        found = found.at[(0,) * found.ndim]
    if found.memory_space not in (DMA_SEMAPHORE, SEMAPHORE) or found.shape != ():
        raise PalladioTypeError(
            "a copy raises one semaphore",
            argument=argument,
            expected="a reference to pltpu.SemaphoreType.DMA or REGULAR; of several, sems.at[i]",
            got=repr(found),
        )
    return found


def _pair(src: Any, dst: Any, names: tuple[str, str]) -> tuple[Copied, Copied]:
    source, target = (
        each if isinstance(each, (SelectedRef, DynamicPart, FilteredPart)) else require_reference(each, name)
        for each, name in zip((src, dst), names, strict=True)
    )
    return source, target


def _require_alike(source: Copied, target: Copied) -> None:
    """Refuse to copy between parts of different shapes. A copy that is only waited for may name any source."""
    if source.dtype != target.dtype or not _same_shape(source.shape, target.shape):
        expected, got = _described(source), _described(target)
        raise PalladioValueError(
            "source and target of a copy have one shape and dtype",
            argument="dst_ref",
            expected=expected,
            got=got,
            hint="read a dynamic size once, and use this value for both" if expected == got else None,
        )


def _same_shape(one: Sequence[Any], other: Sequence[Any]) -> bool:
    """True if two shapes are equal; a dynamic size is equal to itself, and to another read of the same element."""
    return len(one) == len(other) and all(
        mine == theirs if isinstance(mine, int) and isinstance(theirs, int) else _same_size(mine, theirs)
        for mine, theirs in zip(one, other, strict=True)
    )


def _same_size(one: Any, other: Any) -> bool:
    """True for one traced value, and for two reads of one element with no write between them."""
    if one is other:
        return True
    trace = getattr(one, "palladio_trace", None)
    if trace is None or getattr(other, "palladio_trace", None) is not trace:
        return False
    wanted = one.palladio_var, other.palladio_var
    found = [n for n, eqn in enumerate(trace.eqns) if any(var in eqn.outputs for var in wanted)]
    if len(found) != 2:
        return False
    first, *between, second = trace.eqns[found[0] : found[1] + 1]
    reads = {var for kind, var in first.effects if kind is EffectKind.READ}
    return (
        (first.op, first.inputs, first.params) == (second.op, second.inputs, second.params)
        and len(reads) == len(first.effects) > 0
        and not any(eqn.synchronises or eqn.written & reads for eqn in between)
    )


def _described(copied: Copied) -> str:
    if not isinstance(copied, DynamicPart):
        return str(copied.array)
    sizes = ",".join(str(extent) if isinstance(extent, int) else "dynamic" for extent in copied.shape)
    return f"{dtypes.short_name(copied.dtype)}[{sizes}]"


def make_async_copy(src_ref: Any, dst_ref: Any, sem: Any) -> AsyncCopyDescriptor:
    """Describe a copy between memories that this core can access, without starting it.

    Args:
        src_ref, dst_ref: references `dtype[shape]` of one shape and dtype; waiting uses only `dst_ref`. Sizes may
            be dynamic, `ref.at[pl.ds(start, size)]`, where source and target have the same value for a size; such a
            copy is one for each element along the axis, and an element outside of an array is out of bounds.
        sem: one semaphore, or an array of one, of `SemaphoreType.DMA` or `REGULAR`; it counts the bytes that have
            landed.

    Raises:
        PalladioTypeError: not a reference, or no such semaphore.
        PalladioValueError: another shape or dtype, when it is started.
    """
    source, target = _pair(src_ref, dst_ref, ("src_ref", "dst_ref"))
    semaphore = _semaphore(sem, "sem")
    return AsyncCopyDescriptor(source, target, semaphore, semaphore, {})


def async_copy(src_ref: Any, dst_ref: Any, sem: Any, *, priority: int = 0, add: bool = False) -> AsyncCopyDescriptor:
    """Start a copy between memories that this core can access; `.wait()` of the result waits for it.

    Args and errors as in `make_async_copy`; `priority` is advice to the hardware. With `add` the source is added
    to the target, each element atomically.
    """
    copy = make_async_copy(src_ref, dst_ref, sem)
    copy.start(priority, add=add)
    return copy


def make_async_remote_copy(
    src_ref: Any,
    dst_ref: Any,
    send_sem: Any,
    recv_sem: Any,
    device_id: Any,
    device_id_type: DeviceIdType = DeviceIdType.MESH,
    core_index: Any = None,
) -> AsyncCopyDescriptor:
    """Describe a copy to another core or device, without starting it.

    Args:
        src_ref: a reference here, `dtype[shape]`.
        dst_ref: a reference of that shape and dtype; the buffer of that name *there* is written.
        send_sem: counts, here, the bytes that have been read.
        recv_sem: counts, there, the bytes that have landed. Waiting on it here waits for data that others send here.
        device_id: which device: its number, its index along each device axis, or a mapping from axes of the launch's
            meshes, or tuples of them, to indices; cores too. A mesh without device axes counts its cores.
        device_id_type: accepted; the form of `device_id` determines it.
        core_index: the index along the axis of cores.

    Raises:
        PalladioTypeError, PalladioValueError: as in `make_async_copy` and for a place that does not exist.
    """
    source, target = _pair(src_ref, dst_ref, ("src_ref", "dst_ref"))
    here, there = _semaphore(send_sem, "send_sem"), _semaphore(recv_sem, "recv_sem")
    return AsyncCopyDescriptor(source, target, here, there, place_of(device_id, core_index))


def async_remote_copy(
    src_ref: Any,
    dst_ref: Any,
    send_sem: Any,
    recv_sem: Any,
    device_id: Any,
    device_id_type: DeviceIdType = DeviceIdType.MESH,
    core_index: Any = None,
    *,
    priority: int = 0,
) -> AsyncCopyDescriptor:
    """Start a copy to another core or device. Args and errors as in `make_async_remote_copy`.

    `priority` is advice to the hardware.
    """
    copy = make_async_remote_copy(src_ref, dst_ref, send_sem, recv_sem, device_id, device_id_type, core_index)
    copy.start(priority)
    return copy


def sync_copy(src_ref: Any, dst_ref: Any, *, add: bool = False) -> None:
    """Copy between memories that this core can access, and wait for it.

    Args:
        src_ref, dst_ref: references `dtype[shape]` of one shape and dtype, or pytrees of them in one structure: all
            copies are in flight concurrently.
        add: add to the target instead, each element atomically.

    Raises:
        PalladioTypeError: not a reference, or pytrees of two structures.
        PalladioValueError: references of two shapes or dtypes.
    """
    sources, structure = trees.flatten(src_ref)
    targets, other = trees.flatten(dst_ref)
    if structure != other:
        raise PalladioTypeError(
            "source and target of a copy have one structure",
            argument="dst_ref",
            expected=trees.shown(structure),
            got=trees.shown(other),
        )
    for source, target in zip(sources, targets, strict=True):
        _require_alike(*_pair(source, target, ("src_ref", "dst_ref")))

    def copy(semaphore: Any) -> None:
        started = [async_copy(*pair, semaphore, add=add) for pair in zip(sources, targets, strict=True)]
        for each in started:
            each.wait()

    if sources:
        control.run_scoped(copy, SemaphoreType.DMA)


# Semaphores.


def semaphore_signal(
    sem: Any,
    inc: Any = 1,
    *,
    device_id: Any = None,
    device_id_type: DeviceIdType = DeviceIdType.MESH,
    core_index: Any = None,
    memory_scope: str = "sys",
) -> None:
    """Add to a semaphore, here or on another core or device.

    Args:
        sem: one semaphore; of several, `sems.at[i]`.
        inc: a scalar integer.
        device_id, device_id_type, core_index: its owner, as in `make_async_remote_copy`; this core by default.
        memory_scope: "sys" or "gpu", in a GPU kernel.

    Raises:
        PalladioTypeError: not a semaphore; an amount or an index that is not a scalar integer.
        PalladioValueError: a place that does not exist.
    """
    if _cores.get() is None and core_index is None:
        semaphores.semaphore_signal(sem, inc, device_id=device_id, memory_scope=memory_scope)
        return
    place = place_of(device_id, core_index)
    target = sem if isinstance(sem, SelectedRef) else require_reference(sem, "sem")
    semaphores.semaphore_signal(target.in_peer(place) if place else target, inc, memory_scope=memory_scope)


def get_barrier_semaphore() -> Reference:
    """The semaphore that every core of a mesh has for synchronising with the others.

    Raises:
        PalladioValueError: outside of a mesh of cores.
    """
    cores = _cores.get()
    if cores is None:
        raise PalladioValueError("only the programs of a mesh of cores have a barrier semaphore")
    return cores.barrier  # type: ignore[no-any-return]


def core_barrier(sem: Any, *, core_axis_name: str) -> None:
    """Wait until all cores along an axis have arrived.

    Args:
        sem: a semaphore that each of them has; it is zero before and after.
        core_axis_name: the axis.

    Raises:
        PalladioValueError: an axis that the mesh does not have.
    """
    target = require_reference(sem, "sem")
    me, count = axis_index(core_axis_name), axis_size(core_axis_name)

    for other in range(count):

        @control.when(me != other)
        def _(other: int = other) -> None:
            semaphore_signal(target, device_id={core_axis_name: other})

    if count > 1:
        semaphores.semaphore_wait(target, count - 1)


def run_on_first_core(core_axis_name: str) -> Callable[[Callable[[], None]], None]:
    """A decorator: run the function immediately, on the first core along an axis only."""
    me = axis_index(core_axis_name)

    def run(function: Callable[[], None]) -> None:
        control.when(me == 0)(function)

    return run


__all__ = [
    "AsyncCopyDescriptor",
    "Cores",
    "DeviceIdType",
    "among_cores",
    "async_copy",
    "async_remote_copy",
    "core_barrier",
    "core_ref",
    "enclosing_cores",
    "get_barrier_semaphore",
    "make_async_copy",
    "make_async_remote_copy",
    "place_of",
    "run_on_first_core",
    "semaphore_signal",
    "sync_copy",
]
