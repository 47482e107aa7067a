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
        note(array, "compiled kernels take arrays in row-major order", "np.ascontiguousarray(array) copies it once")
    return plain


def owned(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A copy for a kernel that writes its input, in row-major order."""
    note(array, "the kernel writes this input", "input_output_aliases, or an output of its own, takes what it writes")
    return np.array(array, order="C")


def note(array: np.ndarray[Any, Any], why: str, hint: str) -> None:
    """Warn, at the user's line, that an array of more than a page is copied, if `PALLADIO_WARN_COPIES` is set."""
    if array.nbytes <= PAGE or not knobs.copies.get():
        return
    strides = f", strides {array.strides}" if not array.flags.c_contiguous else ""
    message = f"{array.nbytes:,} bytes are copied: {why}\n  got:      {array.dtype}{list(array.shape)}{strides}\n"
    message += f"  hint:     {hint}"
    here = caller_location()
    if here is None:
        warnings.warn(message, CopyWarning, stacklevel=2)
    else:
        warnings.warn_explicit(message, CopyWarning, here.file, here.line, registry=_warned)
