"""Advice of a caller to a compiler about a call. Results never depend on it."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any

from palladio.base.arguments import entries
from palladio.base.calls import checked_call, did_you_mean
from palladio.base.errors import PalladioTypeError, at_call


class GridDimensionSemantics(Enum):
    """True if the steps of a grid axis may run in any order or at once."""

    PARALLEL = "parallel"
    ARBITRARY = "arbitrary"
    CORE_PARALLEL = "core_parallel"
    SUBCORE_PARALLEL = "subcore_parallel"


@checked_call
class CompilerParams:
    """Advice to a compiler.

    Args:
        dimension_semantics: "parallel" or "arbitrary" for each grid axis; steps of a parallel one may run in any order.
        options: whatever else a compiler of another system takes; kept, and of no effect here.
    """

    def __init__(
        self, dimension_semantics: Sequence[str | GridDimensionSemantics] | None = None, **options: Any
    ) -> None:
        with at_call():
            self.dimension_semantics = (
                None
                if dimension_semantics is None
                else entries(dimension_semantics, "dimension_semantics", "a tuple with an entry for each grid axis")
            )
            for name in options:
                hint = did_you_mean(name, ["dimension_semantics"])
                if hint:
                    raise PalladioTypeError(
                        "this is not a parameter, and one with an effect is called nearly so", argument=name, hint=hint
                    )
        self.options = options

    @property
    def advice(self) -> tuple[tuple[str, Any], ...]:
        """The advice to a compiler here, as a program holds it."""
        semantics = self.dimension_semantics
        if semantics is None:
            return ()
        return (("dimension_semantics", tuple(each.value if isinstance(each, Enum) else each for each in semantics)),)

    def __repr__(self) -> str:
        return f"CompilerParams({self.dimension_semantics})"
