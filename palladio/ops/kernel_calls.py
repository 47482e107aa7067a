"""Kernel calls in a program: equations of `grid_call`, a kernel on a grid, and of `launch`, programs on threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from palladio.ir.core import Eqn, Op, Program, Var, subprograms
from palladio.ir.evaluate import Evaluator
from palladio.ops import grid
from palladio.ops.threads import launch

KERNEL_CALLS: tuple[Op, ...] = (grid.grid_call, launch.launch)


def is_kernel_call(eqn: Eqn) -> bool:
    """True if an equation calls a kernel."""
    return eqn.op in KERNEL_CALLS


def kernel_calls(program: Program) -> Iterator[Eqn]:
    """The outermost kernel calls of a program: not those that kernels make."""
    for eqn in program.eqns:
        if is_kernel_call(eqn):
            yield eqn
        else:
            yield from (call for inner in subprograms(eqn) for call in kernel_calls(inner))


def kernels_of(call: Eqn) -> tuple[Program, ...]:
    """The kernel of a grid, or the programs of a launch."""
    return call.programs if call.op is launch.launch else (call.kernel,)  # type: ignore[no-any-return]


def kernel_name(call: Eqn) -> str:
    """The name of the kernel of a call; that of the first program, if a launch has several."""
    return kernels_of(call)[0].name


def alone(call: Eqn) -> Program:
    """A kernel call as a separate program."""
    inputs = tuple(Var(type) for type in call.input_types)
    return Program(inputs, (replace(call, inputs=inputs, effects=()),), call.outputs, "call")


def on_kernels(calls: Mapping[Eqn, Callable[..., Sequence[Any]]]) -> Evaluator:
    """An evaluator that runs each kernel call by one of these functions of its operands."""
    return Evaluator(dict.fromkeys(KERNEL_CALLS, calls.get))
