"""The cache of calls of the library on arrays of a GPU.

Preparing a kernel from the arguments takes some hundred microseconds, more than many products. For the same shapes,
dtypes and options, a later call goes from the arrays to the launch.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import palladio as pl
import palladio.gpu as plgpu
from palladio.library import card_calls
from palladio.library.card_calls import KEPT as _KEPT
from palladio.library.checks import reshaped

__all__ = ["called", "kept_call"]


def kept_call(key: Hashable, interpret: Any, arrays: Sequence[Any], out: Any = None) -> Any:
    """The result of a cached call, of this function or its namesake; arguments as in `card_calls`."""
    found = card_calls.kept_call(key, interpret, arrays, out)
    return found if found is not None else card_calls.kept_call(card_calls.own(key), interpret, arrays, out)


def called(
    key: Hashable,
    kernel: Callable[[], Callable[..., Any]],
    interpret: Any,
    arrays: Sequence[Any],
    shape: tuple[int, ...],
    out: Any = None,
    *,
    operands: Sequence[Any] | None = None,
    flat: tuple[int, ...] | None = None,
) -> Any:
    """The result of a kernel, which is cached for later calls if the arrays are on a GPU.

    Args:
        key, interpret, arrays, out: as in `card_calls.kept_call`.
        kernel: makes the kernel, a function of the arrays.
        shape: the shape of the result.
        operands, flat: the arrays, and the shape of the result, as seen by the kernel, if it has the same memory in
            other shapes.
    """
    given = arrays if operands is None else operands
    call = _staged(key, kernel, interpret, arrays, shape, given) if _keeps(arrays) else kernel()
    if flat is None or flat == shape:
        return call(*given) if out is None else call(*given, out=out)
    if out is None:
        return call(*given).reshape(shape)
    call(*given, out=reshaped(out, shape, flat))
    return out


def _keeps(arrays: Sequence[Any]) -> bool:
    return _KEPT.usable and pl.is_on_gpu(arrays[0])


def _staged(
    key: Hashable,
    kernel: Callable[[], Callable[..., Any]],
    interpret: Any,
    arrays: Sequence[Any],
    shape: tuple[int, ...],
    operands: Sequence[Any],
) -> Any:
    """The kernel, staged for these operands."""
    known = key, *((type(each), str(each.dtype), tuple(each.shape)) for each in operands)
    found = _KEPT.find(known, interpret, operands)
    if found is None:
        call = kernel()

        def run(*values: Any) -> Any:
            return call(*values)

        found = pl.jit(run, interpret=interpret).ahead(*operands, made_of=(key, plgpu.multiprocessors()))
        _KEPT.keep(known, found, interpret, operands)
    if interpret is None:
        _KEPT.keep_on_card(card_calls.key_of(key, arrays), arrays, found, shape)
    return found
