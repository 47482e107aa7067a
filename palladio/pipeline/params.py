"""A caller's advice to a compiler about a call. Results never depend on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

from palladio.base.arguments import entries
from palladio.base.calls import checked_call, did_you_mean
from palladio.base.errors import PalladioTypeError, at_call


class GridDimensionSemantics(Enum):
    """The order of the steps of a grid axis: any, concurrently too, or sequential."""

    PARALLEL = "parallel"
    ARBITRARY = "arbitrary"
    CORE_PARALLEL = "core_parallel"
    SUBCORE_PARALLEL = "subcore_parallel"


class MemoryTiling(Enum):
    """The arrangement of an array in the memory of a TPU: advice, as memory is laid out in rows here."""

    COMPACT = "compact"
    SPARSE_CORE = "sparse_core"


class SideEffectType(Enum):
    """The effects of a call outside its outputs: advice, as they follow from the kernel here."""

    PURE = "pure"
    DATAFLOW_SIDE_EFFECTING = "dataflow_side_effecting"
    SIDE_EFFECTING = "side_effecting"


@checked_call
class CompilerParams:
    """Advice to a compiler.

    Args:
        dimension_semantics: "parallel" or "arbitrary" for each grid axis; steps of a parallel one may run in any order.
        options: any other advice for the compiler of another system. The program of a call keeps it; results never
            depend on it.

    Raises:
        PalladioTypeError: an option that a program cannot hold, or whose name is close to that of a parameter.
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
                        "this is not a parameter; one with a similar name has an effect", argument=name, hint=hint
                    )
            self._kept = tuple((name, _plain(name, value)) for name, value in options.items())
        self.options = options

    def replace(self, **changes: Any) -> CompilerParams:
        """The parameters with some of them changed."""
        return CompilerParams(**{"dimension_semantics": self.dimension_semantics, **self.options, **changes})

    @property
    def advice(self) -> tuple[tuple[str, Any], ...]:
        """The advice to a compiler, as a program holds it."""
        semantics = self.dimension_semantics
        if semantics is None:
            return self._kept
        return (("dimension_semantics", _plain("dimension_semantics", semantics)), *self._kept)

    def __repr__(self) -> str:
        return f"CompilerParams({self.dimension_semantics})"


def _plain(name: str, value: Any) -> Any:
    """A value of a compiler parameter as program text can hold it."""
    if isinstance(value, Enum):
        return _plain(name, value.value)
    if isinstance(value, Mapping):
        return tuple((str(key), _plain(name, item)) for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return tuple(_plain(name, item) for item in value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise PalladioTypeError(
        "a program cannot hold this compiler parameter",
        argument=name,
        expected="a number, a text, a bool, or a sequence or mapping of them",
        got=repr(value),
    )


def advice_of(params: Any, mappings: bool = False) -> tuple[tuple[str, Any], ...]:
    """The compiler parameters of a caller, as a program holds them.

    Args:
        mappings: whether a mapping from names to values is allowed.

    Raises:
        PalladioTypeError: not compiler parameters, or a value that a program cannot hold.
    """
    if params is None:
        return ()
    if mappings and isinstance(params, Mapping):
        return tuple((str(name), _plain(str(name), value)) for name, value in params.items())
    found = getattr(params, "advice", None)
    if found is None:
        raise PalladioTypeError(
            "these are not compiler parameters",
            argument="compiler_params",
            expected=f"plgpu.CompilerParams(...), pl.CompilerParams(...){', a mapping' if mappings else ''} or None",
            got=repr(params),
        )
    return found  # type: ignore[no-any-return]
