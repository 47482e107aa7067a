"""Passes and forms of the kernels that a program calls. The array functions around them are left alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from palladio.ir.core import Eqn, Program, subprograms, walk
from palladio.ir.rewrite import map_subprograms, with_body, with_parts
from palladio.ops.kernel_calls import is_kernel_call
from palladio.passes.pipeline import Form


def in_calls(change: Callable[[Eqn], Eqn]) -> Callable[[Program], Program]:
    """A change of programs from a change of the kernel calls in them."""

    def changed(eqn: Eqn) -> Eqn:
        return change(eqn) if is_kernel_call(eqn) else with_parts(eqn, eqn.inputs, map_subprograms(eqn.params, run))

    def run(program: Program) -> Program:
        return with_body(program, map(changed, program.eqns), program.outputs)

    return run


def form_of_calls(name: str, found: Callable[[Eqn], Iterator[tuple[Eqn, str]]]) -> Form:
    """The form in which no kernel call has a violation; `found` yields violations, as an equation and the reason."""

    def broken(program: Program) -> tuple[Eqn | None, str] | None:
        for eqn in program.eqns:
            inner = found(eqn) if is_kernel_call(eqn) else map(broken, subprograms(eqn))
            first = next((each for each in inner if each is not None), None)
            if first is not None:
                return first
        return None

    return Form(name, broken)


def programs_of(call: Eqn) -> Iterator[Program]:
    """The programs that a kernel call runs, and their sub-programs."""
    for program in subprograms(call):
        yield from (program, *(inner for eqn in walk(program) for inner in subprograms(eqn)))
