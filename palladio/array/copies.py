"""Warnings of implicit copies of arrays, enabled by `PALLADIO_WARN_COPIES`."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from palladio.base import knobs
from palladio.base.errors import CopyWarning
from palladio.base.locations import caller_location

PAGE = 4096
"""Bytes above which a copy causes a warning."""

_warned: dict[Any, Any] = {}
"""The warnings that were given, as the filters of Python's warnings remember them."""


def row_major(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array in row-major order, itself where it is so."""
    plain = np.ascontiguousarray(array)
    if plain is not array and not np.may_share_memory(plain, array):
        note_copy(
            array, "compiled kernels take arrays in row-major order", "np.ascontiguousarray(array) copies it once"
        )
    return plain


def owned(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A copy for a kernel that writes its input, in row-major order."""
    note_copy(
        array, "the kernel writes this input", "input_output_aliases, or an output of its own, takes what it writes"
    )
    return np.array(array, order="C")


def note_copy(array: Any, why: str, hint: str, *, made: Any = None) -> None:
    """Warn of an implicit copy of an array, if it has more than a page and `PALLADIO_WARN_COPIES` asks for it.

    Args:
        array: of any library.
        why: it is copied, in a few words.
        hint: what to do instead.
        made: what may be the copy: nothing is said if it begins in the same memory.

    Warns:
        CopyWarning: at the line of the user's call.
    """
    if (
        getattr(array, "nbytes", 0) <= PAGE
        or not knobs.copies.get()
        or (made is not None and _address(made) == _address(array))
    ):
        return
    steps = array.strides if isinstance(array, np.ndarray) else getattr(array, "stride", tuple)()
    is_dense = array.flags.c_contiguous if isinstance(array, np.ndarray) else _is_dense(array)
    strides = "" if is_dense else f", strides {tuple(steps)}"
    kind = str(array.dtype).removeprefix("torch.")
    message = f"{array.nbytes:,} bytes are copied: {why}\n  got:      {kind}{list(array.shape)}{strides}\n"
    message += f"  hint:     {hint}"
    here = caller_location()
    if here is None:
        warnings.warn(message, CopyWarning, stacklevel=2)
    else:
        warnings.warn_explicit(message, CopyWarning, here.file, here.line, registry=_warned)


def _address(array: Any) -> Any:
    """The address of an array's first element; the array's identity, if its library does not give it."""
    if isinstance(array, np.ndarray):
        return array.__array_interface__["data"][0]
    return array.data_ptr() if hasattr(array, "data_ptr") else id(array)


def _is_dense(array: Any) -> bool:
    return bool(getattr(array, "is_contiguous", lambda: True)())
