"""Pallas' GPU namespace: for now masked access and the atomic operations.

    import palladio.gpu as plgpu

The concurrent dialect (threads, barriers, asynchronous copies, the tensor cores) comes later; a name of it that is not
here yet is an AttributeError that says so.
"""

from __future__ import annotations

from typing import Any

from palladio.call.masked import (
    atomic_add,
    atomic_and,
    atomic_cas,
    atomic_max,
    atomic_min,
    atomic_or,
    atomic_xchg,
    atomic_xor,
    load,
    store,
)

__all__ = [
    "atomic_add",
    "atomic_and",
    "atomic_cas",
    "atomic_max",
    "atomic_min",
    "atomic_or",
    "atomic_xchg",
    "atomic_xor",
    "load",
    "store",
]


def __getattr__(name: str) -> Any:
    raise AttributeError(
        f"palladio.gpu has no {name!r} yet: it holds masked access and the atomic operations; "
        "the concurrent dialect comes later"
    )
