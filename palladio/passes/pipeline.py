"""Passes, and the runner that applies several of them to a program.

A pass is data, so that an executor's pipeline is a list on one page. A pass names the form of program that it consumes
and the form that it produces; the runner checks both wherever it verifies, and names the failing pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from palladio.base import knobs
from palladio.base.dataclass import dataclass
from palladio.base.errors import InternalError, attach
from palladio.ir.core import Eqn, Program, subprograms, walk
from palladio.ir.text import print_program
from palladio.ir.verify import IllFormed, verify
from palladio.types.types import RefType

_AROUND = 5
"""The lines that a failure shows before and after the failing one."""


@dataclass(frozen=True)
class Form:
    """A form of program: its name, and a rule that finds the first equation which breaks it, with the reason."""

    name: str
    broken: Callable[[Program], tuple[Eqn | None, str] | None]


def _first_reference(program: Program) -> tuple[Eqn | None, str] | None:
    if program.has_refs:
        return None, "an input is still a reference"
    for eqn in program.eqns:
        allocates = any(isinstance(part, RefType) for value in eqn.params.values() for part in _parts(value))
        if allocates or any(isinstance(type, RefType) for type in eqn.input_types):
            return eqn, f"{eqn.op.name} still uses a reference"
        # References in a sub-program of an equation without any are private memory: the kernel of a grid call.
        found = (_first_reference(inner) for inner in subprograms(eqn) if not inner.has_refs)
        for each in found:
            if each is not None:
                return each
    return None


def _parts(value: object) -> tuple[object, ...]:
    return value if isinstance(value, tuple) else (value,)


ANY = Form("any", lambda program: None)
VALUES = Form("values", _first_reference)


@dataclass(frozen=True)
class Pass:
    """A program transformation.

    Fields:
        name: its action, in the imperative; used in pipelines and failures.
        consumes: the form of program it needs.
        produces: the form it guarantees; `ANY` for one that preserves the form.
        run: the transformation. It returns the same object if it changes nothing.
        doc: its requirements, its guarantees, and the passes to run before and after it.
    """

    name: str
    consumes: Form
    produces: Form
    run: Callable[[Program], Program]
    doc: str


Dump = Callable[[str], None]


def run_passes(
    program: Program, passes: Sequence[Pass], verify_each: bool | None = None, dump: Dump | None = None
) -> Program:
    """Apply passes to a program in order.

    Args:
        verify_each: verify after every pass, and check its forms; default is the knob `PALLADIO_VERIFY`. The given
            program's form and the last result are always checked.
        dump: called with a heading and the program's text before the first and after every pass.

    Raises:
        InternalError: naming the pass that left an ill-formed program, with the equations around the bad one.
    """
    verify_each = knobs.verify.get() if verify_each is None else verify_each
    if dump is not None:
        dump(f"-- {program.name}\n{print_program(program)}")
    for number, each in enumerate(passes):
        if verify_each or number == 0:
            _check_form(program, each.consumes, f"before {each.name}")
        with attach(program.location, f"running the pass {each.name}"):
            result = each.run(program)
        if verify_each or number == len(passes) - 1:
            _verify(result, each)
        if dump is not None:
            unchanged = result is program or print_program(result) == print_program(program)
            dump(f"-- after {each.name}" + (" (unchanged)" if unchanged else f"\n{print_program(result)}"))
        program = result
    return program


def _check_form(program: Program, form: Form, when: str) -> None:
    found = form.broken(program)
    if found is not None:
        eqn, reason = found
        raise _blamed(f"{program.name!r} is not in the form {form.name!r} {when}: {reason}", program, eqn)


def _verify(program: Program, each: Pass) -> None:
    try:
        verify(program, each.name)
    except IllFormed as error:
        raise _blamed(error.rule, program, error.equation) from error
    _check_form(program, each.produces, f"after {each.name}")


def _blamed(message: str, program: Program, eqn: Eqn | None) -> InternalError:
    error = InternalError("\n".join([message, *_around(program, eqn)]))
    error.location = None if eqn is None else eqn.location
    return error


def _around(program: Program, eqn: Eqn | None) -> list[str]:
    """The lines of the (sub-)program around an equation, which is marked; the first lines if there is none."""
    home = next((inner for inner in _programs(program) if eqn in inner.eqns), program)
    lines = [_line(each) for each in home.eqns]
    if eqn is None or eqn not in home.eqns:
        return [f"    {line}" for line in lines[: 2 * _AROUND]]
    bad = home.eqns.index(eqn)
    first = max(0, bad - _AROUND)
    shown = enumerate(lines[first : bad + _AROUND + 1], first)
    return [f"{'  > ' if number == bad else '    '}{line}" for number, line in shown]


def _programs(program: Program) -> list[Program]:
    found = [program]
    for eqn in walk(program):
        for value in eqn.params.values():
            found += [part for part in _parts(value) if isinstance(part, Program)]
    return found


def _line(eqn: Eqn) -> str:
    """The text of an equation that may be ill-formed, without using the printer."""
    left = ", ".join(map(repr, eqn.outputs))
    return f"{left}{' = ' if left else ''}{eqn.op.name} {', '.join(map(repr, eqn.inputs))}".rstrip()
