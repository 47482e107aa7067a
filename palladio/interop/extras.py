"""The error for a missing library, and arguments in a form that operators of other libraries can hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from palladio.base.errors import PalladioError, PalladioValueError


class MissingExtraError(PalladioError, ImportError):
    """A module needs a library that is not installed."""


def missing(module: str, library: str, extra: str) -> MissingExtraError:
    """The error for a module whose library is missing; it names the extra to install."""
    return MissingExtraError(
        f"{module} needs {library}, which is not installed", hint=f"pip install 'palladio[{extra}]'"
    )


def each_tiling(tiling: Any) -> tuple[Any, Any, Any]:
    """The tilings of the forward product, the left and the right gradient, from any tiling that `gmm` takes."""
    if (
        isinstance(tiling, (tuple, list))
        and len(tiling) == 3
        and not any(hasattr(each, "__index__") for each in tiling)
    ):
        return tiling[0], tiling[1], tiling[2]
    return tiling, tiling, tiling


def tiles(tiling: Any, *sizes: Sequence[int]) -> list[int]:
    """Three tiles, nine integers, from any tiling that the library takes; zeros for the library's choice.

    Args:
        sizes: (m, k, n) of the forward product, the left and the right gradient, for tilings that depend on them.
    """
    if tiling is None:
        return [0] * 9
    found: list[int] = []
    for each, (m, k, n) in zip(each_tiling(tiling), sizes, strict=True):
        tile = each(m, k, n) if callable(each) else each
        if tile is None and each is not None:
            raise PalladioValueError(f"no tuned tiling found for (m, k, n) = ({m}, {k}, {n})", argument="tiling")
        entries = [0, 0, 0] if tile is None else list(tile) if isinstance(tile, (tuple, list)) else [tile]
        if tile is not None and (len(entries) != 3 or not all(isinstance(n, int) and n > 0 for n in entries)):
            raise PalladioValueError(
                "a tiling is three positive integers, (tm, tk, tn)", argument="tiling", got=repr(tile)
            )
        found += entries
    return found


_executors: list[Any] = []
"""Executors given as parameter records, written `#0`, `#1`, … in an operator's arguments."""


def executor_name(interpret: Any) -> str:
    """An `interpret` argument as a string; empty for the default."""
    if interpret is None or interpret is False:
        return ""
    if interpret is True:
        return "reference"
    if isinstance(interpret, str):
        return interpret
    if interpret not in _executors:
        _executors.append(interpret)
    return f"#{_executors.index(interpret)}"


def executor_named(name: str) -> Any:
    """The `interpret` argument from its string."""
    return _executors[int(name[1:])] if name.startswith("#") else name or None
