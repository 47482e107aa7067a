"""Calls of the library on arrays of a GPU, kept from one to the next.

To make a kernel of the arguments takes some hundred microseconds, more than many products. On the same shapes, dtypes
and options a later call goes from the arrays to the launch.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import palladio as pl

_KEPT = pl.KeptCalls()


def call_key(name: str, arrays: tuple[Any, ...], *options: Any) -> Hashable | None:
    """The arguments that a kernel is made for; None for arrays of the host, and for options that cannot be compared.

    Args:
        name: of the function.
        arrays: what it is called with, the first of them an array.
        options: the other arguments.
    """
    if not pl.is_on_gpu(arrays[0]):
        return None
    try:
        key = (name, *((type(each), each.dtype, each.shape) for each in arrays), options)
        hash(key)
    except (AttributeError, TypeError):
        return None
    return key


def kept_call(key: Hashable | None, interpret: Any, arrays: tuple[Any, ...]) -> Any:
    """The call that was kept under a key; None if there is none."""
    return None if key is None else _KEPT.find(key, interpret, arrays)


def called(key: Hashable | None, call: Callable[..., Any], interpret: Any, arrays: tuple[Any, ...]) -> Any:
    """The result of a kernel call, which is kept under a key if there is one."""
    if key is None or not _KEPT.usable:
        return call(*arrays)

    def run(*operands: Any) -> Any:
        return call(*operands)

    kept = pl.jit(run, interpret=interpret).ahead(*arrays)
    _KEPT.keep(key, kept, interpret, arrays)
    return kept(*arrays)
