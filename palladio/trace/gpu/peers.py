"""Access to the memory of other GPUs in a launch on several: `remote_ref`, and loads and stores on all of them.

Each array, and each semaphore in global memory, exists once for every device: a stack, with the devices along its
first axis. A program sees its own device's part of it; a remote reference is the same part on another device.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field
from typing import Any

from palladio.array import convert
from palladio.array.functions import arithmetic, bits
from palladio.base.arguments import axis_names
from palladio.base.dataclass import dataclass
from palladio.base.errors import PalladioTypeError, PalladioValueError
from palladio.trace.grid import axis_index
from palladio.trace.reference import Reference, TransformedReference, require_reference
from palladio.types import dtypes
from palladio.types.transforms import Index, Operand

_REDUCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "add": arithmetic.add,
    "min": arithmetic.minimum,
    "max": arithmetic.maximum,
    "and": bits.bitwise_and,
    "or": bits.bitwise_or,
    "xor": bits.bitwise_xor,
}


@dataclass(frozen=True)
class Devices:
    """The GPUs of a launch.

    Fields:
        axes: the name and the size of each axis that numbers them, the last one fastest.
        stacks: references to the stacked memory of all devices.
    """

    axes: tuple[tuple[str, int], ...]
    stacks: list[Any] = field(default_factory=list)

    @property
    def count(self) -> int:
        """The number of devices."""
        return math.prod(size for _, size in self.axes)

    def number(self, place: Mapping[str, Any]) -> Any:
        """The number of the device at a place; its index along axes not named is that of this program."""
        found: Any = 0
        for name, size in self.axes:
            found = found * size + (place[name] if name in place else axis_index(name))
        return found


_devices: ContextVar[Devices | None] = ContextVar("palladio_gpus", default=None)


@contextmanager
def among_gpus(devices: Devices) -> Iterator[None]:
    """Set the GPUs while a program of a launch on several of them is traced."""
    token = _devices.set(devices)
    try:
        yield
    finally:
        _devices.reset(token)


def enclosing_gpus() -> Devices | None:
    """The GPUs of the launch being traced; None for a launch on one GPU."""
    return _devices.get()


def own_part(stack: Reference) -> Reference:
    """A program's own part of a stack over the devices."""
    devices = _require_devices()
    devices.stacks.append(stack)
    return stack.at[convert.cast(devices.number({}), dtypes.INT32)]


def is_on_devices() -> bool:
    """True in a launch on several devices."""
    return _devices.get() is not None


def _require_devices() -> Devices:
    devices = _devices.get()
    if devices is None:
        raise PalladioValueError(
            "a kernel reaches other GPUs only where it runs on several",
            hint="call it under pl.shard_map on a mesh of pl.make_mesh",
        )
    return devices


def _scalar(value: Any) -> Any:
    found = convert.array_type(value)
    if found.shape != () or not dtypes.is_integer(found.dtype):
        raise PalladioTypeError("a device is named by scalar integers", argument="device_id", got=str(found))
    return convert.cast(value, dtypes.INT32)


def _place(devices: Devices, device_id: Any) -> dict[str, Any]:
    names = [name for name, _ in devices.axes]
    if isinstance(device_id, Mapping):
        place = {name: _scalar(index) for name, index in device_id.items()}
        if not set(place) <= set(names):
            raise PalladioValueError(
                "the devices have no such axis", argument="device_id", expected=", ".join(names), got=", ".join(place)
            )
        return place
    given = tuple(device_id) if isinstance(device_id, (tuple, list)) else (device_id,)
    if len(given) != len(names):
        raise PalladioValueError(
            "a device is named by one index along each axis of devices",
            argument="device_id",
            expected=", ".join(names),
            got=len(given),
        )
    return dict(zip(names, map(_scalar, given), strict=True))


def remote_ref(ref: Any, device_id: Any, device_id_type: Any = None) -> TransformedReference:
    """The same part of an array, or the same semaphore, of another GPU.

    Args:
        ref: a reference to global memory of this device: an input or output of the kernel, a semaphore.
        device_id: the device: its index along the axis of devices, one along each of several, or a mapping from
            some of their names. With `DeviceIdType.LOGICAL`, its number, the last axis fastest.

    Raises:
        PalladioTypeError: not a reference, or is memory of a block; an index that is not a scalar integer.
        PalladioValueError: outside of a launch on several devices; an axis that does not exist.
    """
    devices = _require_devices()
    reference = require_reference(ref, "ref")
    if getattr(device_id_type, "value", None) == "logical":
        return _on(devices, reference, _scalar(device_id))
    return _on(devices, reference, devices.number(_place(devices, device_id)))


def _on(devices: Devices, ref: Reference, number: Any) -> TransformedReference:
    first = ref.transforms[0] if ref.transforms else None
    if not any(ref.root is stack for stack in devices.stacks) or not isinstance(first, Index):
        raise PalladioTypeError(
            "other devices have inputs, outputs and global semaphores of the kernel, not the memory of blocks",
            argument="ref",
            got=repr(ref),
        )
    number = convert.cast(number, dtypes.INT32)
    if isinstance(first.entries[0], Operand):
        at = first.entries[0].position
        operands = (*ref.operands[:at], number, *ref.operands[at + 1 :])
        return TransformedReference(ref.root, ref.transforms, operands)
    entries = (Operand(len(ref.operands)), *first.entries[1:])  # of the single device
    return TransformedReference(ref.root, (Index(entries), *ref.transforms[1:]), (*ref.operands, number))


def on_all(ref: Any, collective_axes: str | Sequence[str]) -> list[TransformedReference]:
    """References to the same memory on every device along some axes.

    Raises:
        PalladioTypeError: as `remote_ref`.
        PalladioValueError: outside of a launch on several devices; an axis that does not exist.
    """
    devices = _require_devices()
    reference = require_reference(ref, "ref")
    names = axis_names(collective_axes, "collective_axes")
    sizes = dict(devices.axes)
    if not names or not set(names) <= set(sizes):
        raise PalladioValueError(
            "these are not axes of the devices",
            argument="collective_axes",
            expected=", ".join(sizes),
            got=repr(collective_axes),
        )
    places: list[dict[str, Any]] = [{}]
    for name in names:
        places = [{**place, name: index} for place in places for index in range(sizes[name])]
    return [_on(devices, reference, devices.number(place)) for place in places]


def multimem_store(source: Any, ref: Any, collective_axes: str | Sequence[str]) -> None:
    """Store a value on every device along axes of devices.

    Args:
        source: `dtype[shape]`, as `ref` takes it.
        ref: a reference to global memory of this device.

    Raises: as `remote_ref`.
    """
    for each in on_all(ref, collective_axes):
        each[...] = source


def multimem_load_reduce(ref: Any, *, collective_axes: str | Sequence[str], reduction_op: str) -> Any:
    """The values of all devices along axes of devices, reduced to one.

    Args:
        ref: a reference to global memory of this device.
        reduction_op: "add", "min", "max", and for integers "and", "or", "xor".

    Returns:
        `dtype[shape]` of `ref`.

    Raises: as `remote_ref`; PalladioValueError for another reduction.
    """
    if reduction_op not in _REDUCTIONS:
        raise PalladioValueError(
            "no such reduction", argument="reduction_op", expected=", ".join(_REDUCTIONS), got=repr(reduction_op)
        )
    values = [each[...] for each in on_all(ref, collective_axes)]
    return functools.reduce(_REDUCTIONS[reduction_op], values)
