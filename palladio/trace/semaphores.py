"""Semaphores in a kernel.

Signals that name a device are refused unless it is device 0, except in kernels on several GPUs under `shard_map`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from palladio.array import convert
from palladio.base.arguments import axis_names
from palladio.base.dataclass import dataclass
from palladio.base.errors import PalladioNotImplementedError, PalladioTypeError, PalladioValueError
from palladio.ir.bind import bind
from palladio.ops.threads import semaphore as ops
from palladio.trace import control
from palladio.trace.gpu.peers import enclosing_gpus, on_all, remote_ref
from palladio.trace.reference import Reference, reached, require_reference
from palladio.trace.select_ref import SelectedRef
from palladio.types import dtypes

SCOPES = ("sys", "gpu")


def _amount(value: Any, argument: str) -> Any:
    found = convert.array_type(value)
    if found.shape != () or not dtypes.is_integer(found.dtype):
        raise PalladioTypeError("a semaphore counts in scalar integers", argument=argument, got=str(found))
    if isinstance(value, int) and value < 0:
        raise PalladioValueError("a semaphore counts up from 0", argument=argument, got=value)
    return convert.cast(value, dtypes.INT32)


def _semaphore(value: Any) -> Reference:
    found = require_reference(value, "sem")
    return found.at[(0,) * found.ndim] if found.shape and found.size == 1 else found


def _of_each(sem: Any, function: Callable[[Any], Any]) -> Any:
    """The result of a function of one semaphore, which may be one selected by `select_ref`."""
    if not isinstance(sem, SelectedRef):
        return function(_semaphore(sem))
    return control.switch(sem.index, [functools.partial(function, _semaphore(ref)) for ref in sem.refs])


def _require_scope(scope: str) -> None:
    if not isinstance(scope, str) or scope not in SCOPES:
        raise PalladioValueError(
            "a signal is for this device's threads or for those of all",
            argument="memory_scope",
            expected='"gpu" or "sys"',
            got=repr(scope),
        )


def require_this_device(device_id: Any) -> None:
    """Refuse every device but the only one.

    Raises:
        PalladioNotImplementedError: for another device.
    """
    ids = list(device_id.values()) if isinstance(device_id, Mapping) else [device_id]
    if isinstance(device_id, (tuple, list)):
        ids = list(device_id)
    if any(each is not None and not (isinstance(each, int) and each == 0) for each in ids):
        raise PalladioNotImplementedError(
            "kernels run on one device, and none reaches another",
            argument="device_id",
            expected="None, or 0 for this device",
            got=repr(device_id),
        )


def semaphore_signal(sem: Any, inc: Any = 1, *, device_id: Any = None, memory_scope: str = "sys") -> None:
    """Add to a semaphore.

    Args:
        sem: one semaphore; of several, `sems.at[i]`.
        inc: a scalar integer.
        device_id: None, or 0: the device that the kernel runs on.
        memory_scope: "sys" or "gpu"; on one device they are the same.

    Raises:
        PalladioNotImplementedError: another device.
        PalladioTypeError: not one semaphore; an amount that is not a scalar integer.
        PalladioValueError: another scope.
    """
    if device_id is not None and enclosing_gpus() is not None:
        semaphore_signal(remote_ref(_semaphore(sem), device_id), inc, memory_scope=memory_scope)
        return
    require_this_device(device_id)
    _require_scope(memory_scope)
    amount = _amount(inc, "inc")

    def signal(semaphore: Reference) -> None:
        (root,), (stack,), operands = reached(semaphore)
        bind(ops.semaphore_signal, root, amount, *operands, transforms=stack)

    _of_each(sem, signal)


@dataclass(frozen=True)
class SemaphoreSignal:
    """One signal of `semaphore_signal_parallel`: the semaphore, the device that has it, and the increment."""

    ref: Any
    device_id: Any = None
    inc: Any = 1


def semaphore_signal_parallel(*signals: SemaphoreSignal) -> None:
    """Add to several semaphores, in no particular order.

    Args:
        signals: such as `SemaphoreSignal(sem, inc=2)`.

    Raises:
        PalladioTypeError: not a `SemaphoreSignal`.
        PalladioNotImplementedError: a signal for another device, if there is only one.
    """
    for number, signal in enumerate(signals):
        if not isinstance(signal, SemaphoreSignal):
            raise PalladioTypeError(
                "this is not a signal", argument=f"signals[{number}]", expected="a SemaphoreSignal", got=repr(signal)
            )
        if enclosing_gpus() is None:
            require_this_device(signal.device_id)
    for signal in signals:
        semaphore_signal(signal.ref, signal.inc, device_id=signal.device_id)


def semaphore_signal_multicast(sem: Any, value: Any = 1, *, collective_axes: str | Sequence[str] = ()) -> None:
    """Add to the semaphore on every device along axes of the devices' mesh.

    Raises:
        PalladioNotImplementedError: for any axis, if there is only one device.
    """
    if enclosing_gpus() is not None:
        for each in on_all(sem, collective_axes):
            semaphore_signal(each, value)
        return
    if axis_names(collective_axes, "collective_axes"):
        raise PalladioNotImplementedError(
            "kernels run on one device; there are no axes of devices",
            argument="collective_axes",
            got=repr(collective_axes),
            hint="blocks of a cluster are signalled through a ClusterBarrier",
        )
    semaphore_signal(sem, value)


def semaphore_wait(sem: Any, value: Any = 1, *, decrement: bool = True, memory_scope: str = "sys") -> None:
    """Wait until a semaphore is at least `value`.

    Args:
        value: i32[].
        decrement: subtract `value` afterwards.
        memory_scope: as in `semaphore_signal`.

    Raises:
        PalladioTypeError: not a semaphore; a value that is not a scalar integer.
        PalladioValueError: no such scope.
    """
    _require_scope(memory_scope)
    amount = _amount(value, "value")

    def wait(semaphore: Reference) -> None:
        (root,), (stack,), operands = reached(semaphore)
        bind(ops.semaphore_wait, root, amount, *operands, transforms=stack, decrement=bool(decrement))

    _of_each(sem, wait)


def semaphore_read(sem: Any) -> Any:
    """The count of a semaphore, i32[]; it may change immediately afterwards.

    Raises:
        PalladioTypeError: not a semaphore.
    """

    def read(semaphore: Reference) -> Any:
        (root,), (stack,), operands = reached(semaphore)
        return bind(ops.semaphore_read, root, *operands, transforms=stack)[0]

    return _of_each(sem, read)
