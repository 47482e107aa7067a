"""Semaphores in a kernel."""

from __future__ import annotations

from typing import Any

from palladio.array import convert
from palladio.base.errors import PalladioTypeError
from palladio.ir.bind import bind
from palladio.ops import semaphore as ops
from palladio.trace.reference import Reference, reached, require_reference
from palladio.types import dtypes


def _amount(value: Any, argument: str) -> Any:
    found = convert.array_type(value)
    if found.shape != () or not dtypes.is_integer(found.dtype):
        raise PalladioTypeError("a semaphore counts in scalar integers", argument=argument, got=str(found))
    return convert.cast(value, dtypes.INT32)


def _semaphore(value: Any) -> Reference:
    return require_reference(value, "sem")


def semaphore_signal(sem: Any, inc: Any = 1) -> None:
    """Add to a semaphore.

    Args:
        sem: one semaphore; of several, `sems.at[i]`.
        inc: a scalar integer.
    """
    (root,), (stack,), operands = reached(_semaphore(sem))
    bind(ops.semaphore_signal, root, _amount(inc, "inc"), *operands, transforms=stack)


def semaphore_wait(sem: Any, value: Any = 1, *, decrement: bool = True) -> None:
    """Wait until a semaphore is at least `value`.

    Args:
        decrement: take `value` off it then.
    """
    (root,), (stack,), operands = reached(_semaphore(sem))
    amount = _amount(value, "value")
    bind(ops.semaphore_wait, root, amount, *operands, transforms=stack, decrement=bool(decrement))


def semaphore_read(sem: Any) -> Any:
    """The count of a semaphore, i32[]; it may change at once."""
    (root,), (stack,), operands = reached(_semaphore(sem))
    return bind(ops.semaphore_read, root, *operands, transforms=stack)[0]
