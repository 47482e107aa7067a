"""Running a program with its kernel calls compiled.

Each `grid_call` becomes machine code, and so do the array functions around it in a staged function if their arrays are
small; on large ones NumPy's functions run. A kernel that is not compiled runs on the evaluator too, after a warning
with the reason.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from palladio.base.dataclass import dataclass
from palladio.base.errors import NotCompiledWarning, attach, warn_at
from palladio.cpu.array_runs import with_runs
from palladio.cpu.chain import chained
from palladio.cpu.engine import GridCall
from palladio.cpu.first_rows import first_rows
from palladio.cpu.launches.engine import LaunchCall
from palladio.cpu.lower import lower_grid
from palladio.cpu.rule_table import OF_RARE_DTYPES
from palladio.cpu.runtime.status import LeftToEvaluator
from palladio.ir.core import Eqn, Program, subprograms, walk
from palladio.ir.evaluate import Evaluator, Runner
from palladio.lower.refused import Refused
from palladio.ops.kernel_calls import KERNEL_CALLS, alone, kernel_calls, kernel_name
from palladio.ops.threads.launch import launch
from palladio.types import dtypes
from palladio.types.types import ArrayType, RefType

Compiled = Callable[..., Sequence[Any]]


def load_compiled(program: Program, evaluator: Evaluator) -> Runner:
    """The program as a function of values, and of arrays for its results.

    Args:
        evaluator: runs the equations that are not compiled.
    """
    natives: dict[Eqn, _Native] = {}
    given = program
    program, runs = with_runs(program)
    calls = {eqn: functools.cache(functools.partial(GridCall, eqn, lowered)) for eqn, lowered in runs.items()}
    _compile_calls(given, natives, evaluator, [*calls.values()])
    natives |= {eqn: _Native(call(), eqn, evaluator) for eqn, call in calls.items()}
    if len(program.eqns) == 1:
        (eqn,) = program.eqns
        if eqn in natives and eqn.inputs == program.inputs and eqn.outputs == program.outputs:
            return _Alone(natives[eqn], kernel_name(eqn), program)
    chain = chained(program, {eqn: native.run for eqn, native in natives.items()}, evaluator.runner(given))
    if chain is not None:
        return chain

    overrides = dict.fromkeys(KERNEL_CALLS, _CompiledCalls(natives, evaluator))
    return Evaluator(evaluator.overrides | overrides).runner(program)


@dataclass(frozen=True)
class _CompiledCalls:
    """The kernel calls of a program as machine code; those that are refused are carried out as by an evaluator."""

    natives: dict[Eqn, _Native]
    evaluator: Evaluator

    def __call__(self, eqn: Eqn) -> Compiled | None:
        if eqn in self.natives:
            return self.natives[eqn]
        other = self.evaluator.overrides.get(eqn.op)
        return other(eqn) if other is not None else None


@dataclass(frozen=True)
class _Native:
    """One kernel call as machine code. The evaluator runs a call that deadlocks, and explains why, or one that fetches
    blocks after stores to them.
    """

    run: Compiled
    eqn: Eqn
    evaluator: Evaluator

    def __call__(self, *values: Any) -> Sequence[Any]:
        return self.run_or_explain(values)

    def run_or_explain(self, values: Sequence[Any], out: Sequence[Any] | None = None) -> Sequence[Any]:
        changed = [n for n, type in enumerate(self.eqn.input_types) if isinstance(type, RefType)]
        before = [np.array(values[n]) for n in changed]
        try:
            return self.run(values, out)
        except LeftToEvaluator:
            for n, value in zip(changed, before, strict=True):
                np.copyto(values[n], value)
            return self.evaluator.runner(alone(self.eqn))(values, out)


class _Alone:
    """One kernel call as the whole program, without overhead that would delay a small kernel.

    Fields:
        first_rows: the call as a function of fewer rows, `palladio.cpu.first_rows.FirstRows`; None if it is not one.
        prepared: as `Chain.prepared`, for all rows; None for a call that writes to its operands.
    """

    def __init__(self, native: _Native, name: str, program: Program) -> None:
        self.native = native
        self.name = name
        types = [type for type in native.eqn.input_types if isinstance(type, ArrayType)]
        arrays = len(types) == len(native.eqn.input_types)
        self.direct = native.run if arrays else native.run_or_explain
        self.chain = chained(program, {native.eqn: native.run}) if isinstance(native.run, GridCall) else None
        self.direct = self.chain or self.direct
        self.first_rows = first_rows(native.run, types) if isinstance(native.run, GridCall) and arrays else None
        makes_results = isinstance(native.run, GridCall) and native.run.plain and arrays
        self.prepared = self._prepared if makes_results else None

    def _prepared(self, rows: int | None, weight: int) -> Callable[..., Any] | None:
        if rows is None and self.chain is not None:
            return self.chain.prepared(None, weight, self)
        return None if rows is not None else lambda values, out=None: self(values)[0] if out is None else None

    def __call__(self, values: Sequence[Any], out: Sequence[Any] | None = None) -> Sequence[Any]:
        try:
            return self.direct(values, out)
        except Exception as error:
            with attach(self.native.eqn.location, f"running {self.name}"):
                if isinstance(error, LeftToEvaluator):
                    return self.native.run_or_explain(values, out)
                raise error


def _compile_calls(
    program: Program, natives: dict[Eqn, _Native], evaluator: Evaluator, meanwhile: Sequence[Callable[[], object]]
) -> None:
    """Compile the kernel calls of a program, wherever they are; those that are refused stay with the evaluator.

    Args:
        meanwhile: as in `MachineCode`.
    """
    for eqn in kernel_calls(program):
        try:
            _require_compiled_dtypes(eqn)
            if eqn.op is launch:
                run: Any = LaunchCall(eqn.launch, eqn.programs, eqn.input_types)
            else:
                run = GridCall(eqn, lower_grid(eqn.grid, eqn.kernel, eqn.input_types), meanwhile)
        except Refused as reason:
            message = f"the kernel {kernel_name(eqn)} runs on the evaluator: {reason}"
            warn_at(message, NotCompiledWarning, reason.location or eqn.location)
        else:
            natives[eqn] = _Native(run, eqn, evaluator)


def _require_compiled_dtypes(call: Eqn) -> None:
    """Refuse a kernel call with an operation that is not compiled for the rarer dtypes of its operands or results."""
    for eqn in (call, *(inner for program in subprograms(call) for inner in walk(program))):
        found = [each.dtype for each in (*eqn.input_types, *(var.type for var in eqn.outputs))]
        rare = [dtype for dtype in found if dtypes.is_narrow(dtype)]
        reason = ""
        if _NEVER_COMPILED in rare:
            reason = f"no {_NEVER_COMPILED} is compiled for the CPU"
        elif rare and eqn.op.name not in OF_RARE_DTYPES:
            reason = f"{eqn.op.name} of {rare[0]} is not compiled for the CPU"
        if reason:
            refusal = Refused(reason)
            refusal.location = eqn.location
            raise refusal


_NEVER_COMPILED = dtypes.SHORT_NAMES["f8e8m0fnu"]
