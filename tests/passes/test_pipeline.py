"""The runner of passes: it verifies, blames by name, and shows each stage."""

from __future__ import annotations

import pytest

from palladio.base.errors import InternalError
from palladio.base.locations import Location
from palladio.ir.core import Eqn, Program, Var
from palladio.ops import parse
from palladio.passes import ALL_PASSES, ANY, PASSES, VALUES, Pass, discharge, remove_dead_code, run_passes, simplify

PROGRAM = """
program f(x:i32[]) {
  a:i32[] = add x, 0:i32
  b:i32[] = mul a, a
  c:i32[] = mul b, b
  return b
}
"""


def swapped(program: Program) -> Program:
    """The program with its first two equations in the wrong order."""
    first, second, *others = program.eqns
    return Program(program.inputs, (second, first, *others), program.outputs, program.name)


def repaired(program: Program) -> Program:
    return parse(PROGRAM)


break_order = Pass("break_order", ANY, ANY, swapped, "Breaks the order of definition.")
repair = Pass("repair", ANY, ANY, repaired, "Gives a good program.")
do_nothing = Pass("do_nothing", ANY, ANY, lambda program: program, "Nothing.")


def test_the_pass_that_breaks_a_program_is_named_with_the_equations_around() -> None:
    with pytest.raises(InternalError) as raised:
        run_passes(parse(PROGRAM), [simplify, break_order])
    text = str(raised.value)
    assert "ill-formed program 'f' after break_order in an equation of 'mul': input b:i32[] is not defined" in text
    assert "\n  > c:i32[] = mul b:i32[], b:i32[]\n    b:i32[] = mul x:i32[], x:i32[]\n" in text


def test_ten_equations_around_the_bad_one_are_shown() -> None:
    lines = "\n".join(f"a{n}:i32[] = add x, {n}:i32" for n in range(20))
    program = parse(f"program f(x:i32[]) {{\n{lines}\nreturn a0\n}}")

    def break_the_tenth(program: Program) -> Program:
        eqns = list(program.eqns)
        bad = eqns[10]
        eqns[10] = Eqn(bad.op, (Var(bad.inputs[0].type, "lost"), bad.inputs[1]), bad.outputs, bad.params)
        return Program(program.inputs, tuple(eqns), program.outputs, program.name)

    with pytest.raises(InternalError) as raised:
        run_passes(program, [Pass("lose", ANY, ANY, break_the_tenth, "Loses an input.")])
    shown = [line for line in str(raised.value).splitlines() if " = add " in line]
    assert len(shown) == 11
    assert shown[5] == "  > a10:i32[] = add lost:i32[], 10:i32[]"
    assert shown[0].startswith("    a5") and shown[-1].startswith("    a15")


def test_between_passes_verification_is_optional(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PALLADIO_VERIFY", raising=False)
    run_passes(parse(PROGRAM), [break_order, repair])
    with pytest.raises(InternalError, match="after break_order"):
        run_passes(parse(PROGRAM), [break_order, repair], verify_each=True)
    monkeypatch.setenv("PALLADIO_VERIFY", "1")
    with pytest.raises(InternalError, match="after break_order"):
        run_passes(parse(PROGRAM), [break_order, repair])


def test_the_result_is_verified_always() -> None:
    with pytest.raises(InternalError, match="after break_order"):
        run_passes(parse(PROGRAM), [break_order], verify_each=False)


def test_a_pass_that_fails_is_an_internal_error_with_its_name() -> None:
    here = Location("kernel.py", 3, 3, 0, 1, "kernel")
    program = Program((), (), (), "f", here)
    fail = Pass("fail", ANY, ANY, lambda program: program.missing, "Fails.")  # type: ignore[attr-defined]
    with pytest.raises(InternalError, match="AttributeError while running the pass fail") as raised:
        run_passes(program, [fail])
    assert raised.value.location == here


def test_a_promised_form_that_is_not_kept_is_blamed() -> None:
    program = parse("program f(x:ref<any, i32[]>) { return }")
    promise = Pass("promise", ANY, VALUES, lambda program: program, "Promises values.")
    with pytest.raises(
        InternalError, match="'f' is not in the form 'values' after promise: an input is still a reference"
    ):
        run_passes(program, [promise])


def test_a_wanted_form_that_does_not_come_is_blamed() -> None:
    body = "program b(t:ref<any, i32[]>) { return }"
    text = f"program f(n:i32[]) {{ scope {{body={body}, allocations=(ref<any, i32[]>,)}} return }}"
    want = Pass("want", VALUES, ANY, lambda program: program, "Wants values.")
    assert run_passes(parse(text), [discharge, want]).eqns == ()
    with pytest.raises(InternalError, match="not in the form 'values' before want: scope still uses a reference"):
        run_passes(parse(text), [want])


def test_the_dump_shows_each_stage_and_what_did_not_change() -> None:
    shown: list[str] = []
    run_passes(parse(PROGRAM), [simplify, do_nothing, remove_dead_code, remove_dead_code], dump=shown.append)
    assert "\n".join(shown) == (
        "-- f\n"
        "program f(x:i32[]) {\n"
        "  a:i32[] = add x, 0:i32\n"
        "  b:i32[] = mul a, a\n"
        "  c:i32[] = mul b, b\n"
        "  return b\n"
        "}\n"
        "-- after simplify\n"
        "program f(x:i32[]) {\n"
        "  b:i32[] = mul x, x\n"
        "  c:i32[] = mul b, b\n"
        "  return b\n"
        "}\n"
        "-- after do_nothing (unchanged)\n"
        "-- after remove_dead_code\n"
        "program f(x:i32[]) {\n"
        "  b:i32[] = mul x, x\n"
        "  return b\n"
        "}\n"
        "-- after remove_dead_code (unchanged)"
    )


def test_every_pass_has_a_name_and_says_what_it_does() -> None:
    assert [*PASSES] == [each.name for each in ALL_PASSES]
    assert all(each.name.isidentifier() and each.doc for each in ALL_PASSES)
