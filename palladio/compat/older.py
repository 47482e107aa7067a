"""Functions that earlier releases of Pallas had in its main namespace, with the arguments of that time."""

from __future__ import annotations

from typing import Any

from palladio.trace import access


def store(x_ref_or_view: Any, idx: Any, val: Any, *, mask: Any = None, eviction_policy: str | None = None) -> None:
    """`ref[idx] = val` where the mask is true. Eviction policies have no effect here."""
    access.store(x_ref_or_view, val, idx=idx, mask=mask)


def swap(x_ref_or_view: Any, idx: Any, val: Any, *, mask: Any = None, eviction_policy: str | None = None) -> Any:
    """`store` that returns the old value, and `val` where the mask is false."""
    if mask is None:
        return access.swap(x_ref_or_view, idx, val)
    old = access.load(x_ref_or_view, idx, mask=mask, other=val)
    access.store(x_ref_or_view, val, idx=idx, mask=mask)
    return old
