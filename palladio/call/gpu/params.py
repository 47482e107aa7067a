"""Advice of a caller to a GPU's compiler. Results do not depend on it, except for the accuracy of `approx_math`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from enum import Enum
from typing import Any

from palladio.base.arguments import entries
from palladio.base.calls import checked_call
from palladio.base.dataclass import dataclass
from palladio.base.errors import PalladioTypeError, PalladioValueError, at_call


class LoweringSemantics(Enum):
    """The unit that executes one equation of a kernel: a lane, or a warpgroup."""

    Lane = "lane"
    Warpgroup = "warpgroup"


class TraceScope(Enum):
    """The unit that has a line in a profile: a block, a warpgroup or a warp."""

    BLOCK = "block"
    WARPGROUP = "warpgroup"
    WARP = "warp"


SEMANTICS = ("parallel", "sequential")


@checked_call
@dataclass(frozen=True, kw_only=True)
class CompilerParams:
    """Advice to the compiler of `plgpu.kernel`. The evaluator, the simulator and the CPU need none.

    Args:
        approx_math: functions may be approximated. Compiled for Hopper, `exp` and `exp2` of floats of at most 32 bits
            are one instruction: `exp2` within 2 ulp, `exp(x)` within `2 + |x|` ulp, and results below 2^-126 are 0.
        dimension_semantics: "parallel" or "sequential" for each grid axis.
        max_concurrent_steps: how many steps of a pipeline may be in flight, at least 1.
        unsafe_no_auto_barriers: insert no barriers of a warpgroup around its accesses to shared memory.
        reduction_scratch_bytes: shared memory for reductions across warps.
        profile_space, profile_dir, profile_trace_scope, profile_bounds_check: events that a profile has room for, where
            it is written, the unit that has a line, and whether running out of room is an error.
        lowering_semantics: the unit that executes one equation.
        skip_device_barrier, is_multi_process: of kernels that span devices.

    Raises:
        PalladioTypeError: a value of another kind.
        PalladioValueError: a number that is too small; other semantics.
    """

    approx_math: bool = False
    dimension_semantics: Sequence[str] | None = None
    max_concurrent_steps: int = 1
    unsafe_no_auto_barriers: bool = False
    reduction_scratch_bytes: int = 2048
    profile_space: int = 0
    profile_dir: str = ""
    profile_trace_scope: TraceScope = TraceScope.WARPGROUP
    profile_bounds_check: bool = False
    lowering_semantics: LoweringSemantics = LoweringSemantics.Warpgroup
    skip_device_barrier: bool = False
    is_multi_process: bool = False

    def __post_init__(self) -> None:
        with at_call():
            for name, kind in _KINDS.items():
                value = getattr(self, name)
                if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
                    raise PalladioTypeError(
                        "a compiler parameter of another kind",
                        argument=name,
                        expected=kind.__name__,
                        got=repr(value),
                    )
            for name, least in _LEAST.items():
                if getattr(self, name) < least:
                    raise PalladioValueError(
                        f"a compiler parameter of at least {least}", argument=name, got=getattr(self, name)
                    )
            semantics = _semantics(self.dimension_semantics)
            if self.profile_space and not self.profile_dir:
                raise PalladioValueError(
                    "a profile is written somewhere", argument="profile_dir", hint="profile_dir='/tmp/profile'"
                )
        object.__setattr__(self, "dimension_semantics", semantics)

    @property
    def advice(self) -> tuple[tuple[str, Any], ...]:
        """The parameters that differ from their defaults, as a program holds them."""
        values = {each: getattr(self, each.name) for each in fields(self)}
        given = {each.name: value for each, value in values.items() if value != each.default}
        return tuple((name, value.value if isinstance(value, Enum) else value) for name, value in given.items())


_KINDS: dict[str, type] = {
    **dict.fromkeys(("approx_math", "unsafe_no_auto_barriers", "profile_bounds_check"), bool),
    **dict.fromkeys(("skip_device_barrier", "is_multi_process"), bool),
    **dict.fromkeys(("max_concurrent_steps", "reduction_scratch_bytes", "profile_space"), int),
    "profile_dir": str,
    "profile_trace_scope": TraceScope,
    "lowering_semantics": LoweringSemantics,
}
_LEAST = {"max_concurrent_steps": 1, "reduction_scratch_bytes": 0, "profile_space": 0}


def _semantics(given: Any) -> tuple[str, ...] | None:
    if given is None:
        return None
    found = entries(given, "dimension_semantics", "a tuple")
    if isinstance(given, str) or not all(isinstance(each, str) and each in SEMANTICS for each in found):
        raise PalladioValueError(
            "a grid axis is parallel or sequential",
            argument="dimension_semantics",
            expected='a sequence of "parallel" and "sequential"',
            got=repr(given),
        )
    return tuple(given)
