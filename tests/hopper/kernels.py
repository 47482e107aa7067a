"""How the tests of the Hopper back end lower kernels and run them on the host twin."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

import palladio.gpu as plgpu
from palladio.base import trees
from palladio.driver.compile import PIPELINES
from palladio.hopper.emit.lower import lower_launch
from palladio.hopper.lowered import Lowered
from palladio.hopper.twin.run import SCHEDULES, Schedule, run
from palladio.ir.core import Eqn, Program
from palladio.ops.kernel_calls import kernel_calls
from palladio.ops.threads.launch import launch
from palladio.passes import run_passes
from palladio.trace.trace import stage
from palladio.trace.values import wrap
from palladio.types.types import ArrayType

BF16 = np.dtype(ml_dtypes.bfloat16)
F32 = np.dtype(np.float32)


def normal(*shape: int, dtype: Any = BF16, seed: int = 0) -> np.ndarray:
    """Random normal numbers."""
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape).astype(dtype)


def traced(function: Callable[..., Any], *inputs: Any) -> Program:
    """The program of a function of arrays, after the passes of a compiler; nothing runs."""
    types = [ArrayType(tuple(x.shape), np.dtype(x.dtype)) for x in inputs]
    program = stage(lambda *given: trees.flatten(function(*given))[0], types, wrap, name="traced").program
    return run_passes(program, PIPELINES["hopper-twin"])


def launches(function: Callable[..., Any], *inputs: Any) -> list[Eqn]:
    """The launches in it."""
    return [eqn for eqn in kernel_calls(traced(function, *inputs)) if eqn.op is launch]


def lowered_all(function: Callable[..., Any], *inputs: Any) -> list[Lowered]:
    """The kernels of the launches of a function, in order."""
    return [
        lower_launch(eqn.params["launch"], eqn.params["programs"], eqn.input_types)
        for eqn in launches(function, *inputs)
    ]


def lowered(function: Callable[..., Any], *inputs: Any) -> Lowered:
    """The kernel of the only launch of a function."""
    (found,) = lowered_all(function, *inputs)
    return found


def kernel(body: Callable[..., Any], shape: Sequence[int], dtype: Any = F32, scratch: Any = (), **options: Any) -> Any:
    """A kernel of one block, by default of one warpgroup."""
    import palladio as pl

    return plgpu.kernel(body, pl.ShapeDtypeStruct(tuple(shape), dtype), scratch_types=scratch, **options)


def error(got: Any, expected: Any) -> float:
    """The norm of the difference by that of what is expected."""
    got, expected = np.asarray(got, np.float64), np.asarray(expected, np.float64)
    return float(np.linalg.norm(got - expected) / max(np.linalg.norm(expected), 1e-30))


def on_twin(
    function: Callable[..., Any],
    *inputs: Any,
    order: Sequence[int] | None = None,
    schedules: Sequence[Schedule] = SCHEDULES,
) -> list[np.ndarray]:
    """The first output of the only launch of a function, on the twin, under each schedule.

    Args:
        order: which of the inputs the operands of the launch are.
    """
    compiled = lowered(function, *inputs)
    operands = shaped(compiled, [inputs[n] for n in (range(len(inputs)) if order is None else order)])
    return [run(compiled, operands, schedule).outputs[0] for schedule in schedules]


def shaped(lowered: Lowered, operands: Sequence[Any]) -> list[Any]:
    """Arrays in the shapes of a launch's operands, as the program of the launch reshapes them before it."""
    shapes = {array.position: array.shape for array in lowered.arrays if array.role == "operand"}
    return [np.reshape(each, shapes.get(n, np.shape(each))) for n, each in enumerate(operands)]
