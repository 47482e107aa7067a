"""The error for a missing library, and what both modules of this package need."""

from __future__ import annotations

from typing import Any

from palladio.base.errors import PalladioError


class MissingExtraError(PalladioError, ImportError):
    """A module needs a library that is not installed."""


def missing(module: str, library: str, extra: str) -> MissingExtraError:
    """The error for a module whose library is missing, with the extra that brings it."""
    return MissingExtraError(
        f"{module} needs {library}, which is not installed", hint=f"pip install 'palladio[{extra}]'"
    )


def each_tiling(tiling: Any) -> tuple[Any, Any, Any]:
    """The tilings of the forward product, the left and the right gradient, from whatever `gmm` takes."""
    if (
        isinstance(tiling, (tuple, list))
        and len(tiling) == 3
        and not any(hasattr(each, "__index__") for each in tiling)
    ):
        return tiling[0], tiling[1], tiling[2]
    return tiling, tiling, tiling
