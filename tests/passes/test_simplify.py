"""Equations become simpler ones with the same results, bit for bit."""

from __future__ import annotations

import pytest

from palladio.passes import remove_dead_code, simplify
from tests.passes.ir import after, check, check_unchanged


def simplified(lines: str, returned: str, inputs: str = "x:i32[2], y:f32[2], p:bool[2], i:i32[], u:u8[2]") -> list[str]:
    """The equations and the outputs of a program of these lines, simplified."""
    body = "\n".join(lines.split(";"))
    text = after(f"program f({inputs}) {{\n{body}\nreturn {returned}\n}}", simplify, remove_dead_code)
    return [line.strip() for line in text.splitlines()[1:-1]]


@pytest.mark.parametrize(
    ("lines", "outputs"),
    [
        ("a:i32[2] = add x, 0:i32", "x"),
        ("a:i32[2] = add 0:i32, x", "x"),
        ("a:f32[2] = add y, -0.0:f32", "y"),
        ("a:i32[2] = sub x, 0:i32", "x"),
        ("a:f32[2] = sub y, 0.0:f32", "y"),
        ("a:f32[2] = mul y, 1.0:f32", "y"),
        ("a:i32[2] = div x, 1:i32", "x"),
        ("a:i32[2] = max x, x", "x"),
        ("a:u8[2] = bitwise_and u, 255:u8", "u"),
        ("a:u8[2] = bitwise_or u, 0:u8", "u"),
        ("a:bool[2] = bitwise_and p, True:bool", "p"),
        ("b:f32[2] = neg y;a:f32[2] = neg b", "y"),
        ("b:bool[2] = bitwise_not p;a:bool[2] = bitwise_not b", "p"),
        ("a:f32[2] = convert y {dtype=f32}", "y"),
        ("a:i32[2] = select True:bool, x, 1:i32", "x"),
        ("a:i32[2] = select p, x, x", "x"),
        ("a:i32[2] = broadcast x {shape=(2,), axes=(0,)}", "x"),
        ("a:i32[2] = extract x[:]", "x"),
        ("a:i32[2] = extract x.reshape(2).bitcast(i32).transpose(0)", "x"),
        ("a:i32[] = add 2:i32, 3:i32", "5:i32"),
        ("b:i32[] = mul 2:i32, 3:i32;a:i32[] = sub b, 7:i32", "-1:i32"),
        ("a:bool[] = lt 2:i32, 3:i32", "True:bool"),
        ("a:u8[] = convert 300.5:f32 {dtype=u8}", "255:u8"),
    ],
)
def test_becomes_an_input_or_a_constant(lines: str, outputs: str) -> None:
    assert simplified(lines, "a") == [f"return {outputs}"]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("a:f32[2] = add y, 0.0:f32", "-0.0 + 0.0 is 0.0"),
        ("a:f32[2] = sub y, -0.0:f32", "-0.0 - -0.0 is 0.0"),
        ("a:f32[2] = sub y, y", "inf - inf is NaN"),
        ("a:f32[2] = mul y, 0.0:f32", "inf * 0 is NaN"),
        ("a:i32[2] = sub 0:i32, x", "that is -x"),
        ("a:f32[] = div 0.0:f32, 0.0:f32", "text does not carry the bits of NaN"),
        ("a:i32[] = multiple_of 3:i32 {values=(2,)}", "it fails when it runs"),
        ("a:i32[] = extract x[7:i32]", "it lies outside"),
    ],
)
def test_stays(line: str, why: str) -> None:
    assert simplified(line, "a") == [line, "return a"], why


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("a:i32[2] = sub x, x", "a:i32[2] = broadcast 0:i32 {shape=(2,), axes=()}"),
        ("a:i32[2] = mul x, 0:i32", "a:i32[2] = broadcast 0:i32 {shape=(2,), axes=()}"),
        ("a:i32[2] = select False:bool, x, i", "a:i32[2] = broadcast i {shape=(2,), axes=()}"),
        ("a:i32[] = extract x[1:i32]", "a:i32[] = extract x[1]"),
        ("a:i32[1] = extract x[1:i32:+1]", "a:i32[1] = extract x[1:2]"),
        ("a:i32[2] = insert x[:], x {kind='add'}", "a:i32[2] = add x, x"),
        ("a:i32[2] = insert x, x {kind='xor'}", "a:i32[2] = broadcast 0:i32 {shape=(2,), axes=()}"),
    ],
)
def test_becomes_a_simpler_equation(lines: str, expected: str) -> None:
    assert simplified(lines, "a") == [expected, "return a"]


def test_paths_in_a_row_become_one_and_keep_their_operands() -> None:
    check(
        simplify,
        """
        program f(x:i32[4,4], i:i32[], k:i32[]) {
          a:i32[2,4] = extract x[i:+2, :]
          b:i32[] = extract a[k, 1:i32]
          return b
        }
        """,
        """
        program f(x:i32[4,4], i:i32[], k:i32[]) {
          a:i32[2,4] = extract x[i:+2, :]
          b:i32[] = extract x[i:+2, :][k, 1]
          return b
        }
        """,
    )


def test_references_get_shorter_paths_too() -> None:
    check(
        simplify,
        """
        program f(x:ref<any, i32[4]>, v:i32[2]) {
          a:i32[2] = load x.reshape(4)[0:i32:+2]
          store x[1:+2][:], v
          return a
        }
        """,
        """
        program f(x:ref<any, i32[4]>, v:i32[2]) {
          a:i32[2] = load x[0:2]
          store x[1:3], v
          return a
        }
        """,
    )


def test_a_carry_that_never_changes_is_a_constant() -> None:
    check(
        simplify,
        """
        program f(n:i32[], x:i32[]) {
          a:i32[], b:i32[] = loop 0:i32, n, x, 0:i32 {body=program body(i:i32[], a:i32[], b:i32[]) {
            c:i32[] = add b, a
            return a, c
          }, constants=0, step=1, unroll=1}
          return a, b
        }
        """,
        """
        program f(n:i32[], x:i32[]) {
          a:i32[] = loop 0:i32, n, x, 0:i32 {body=program body(i:i32[], a:i32[], b:i32[]) {
            c:i32[] = add b, a
            return c
          }, constants=1, step=1, unroll=1}
          return x, a
        }
        """,
    )


def test_a_branch_that_is_known_is_written_out_and_simplified_on() -> None:
    check(
        simplify,
        """
        program f(x:i32[]) {
          i:i32[] = sub 3:i32, 2:i32
          r:i32[] = cond i, x {branches=(program p(x:i32[]) {
            return x
          }, program q(x:i32[]) {
            y:i32[] = add x, 0:i32
            z:i32[] = mul y, y
            return z
          })}
          s:i32[] = add r, 0:i32
          return s
        }
        """,
        """
        program f(x:i32[]) {
          z:i32[] = mul x, x
          return z
        }
        """,
    )


def test_a_while_loop_that_never_runs_is_its_start() -> None:
    check(
        simplify,
        """
        program f(x:i32[]) {
          r:i32[] = repeat x {condition=program c(x:i32[]) {
            a:bool[] = lt 3:i32, 2:i32
            return a
          }, body=program b(x:i32[]) {
            y:i32[] = add x, x
            return y
          }, constants=0}
          return r
        }
        """,
        """
        program f(x:i32[]) {
          return x
        }
        """,
    )


def test_a_scope_that_allocates_nothing_is_its_body() -> None:
    check(
        simplify,
        """
        program f(o:ref<any, i32[]>) {
          scope o {body=program b(o:ref<any, i32[]>) {
            accumulate o, 1:i32
            return
          }, allocations=()}
          return
        }
        """,
        """
        program f(o:ref<any, i32[]>) {
          accumulate o, 1:i32
          return
        }
        """,
    )


def test_what_is_simple_stays_the_same_object() -> None:
    check_unchanged(
        simplify,
        """
        program f(x:i32[2], n:i32[], o:ref<any, i32[2]>) {
          a:i32[2] = add x, 1:i32
          loop 0:i32, n, o {body=program body(i:i32[], o:ref<any, i32[2]>) {
            store o[i], i
            return
          }, constants=1, step=1, unroll=1}
          return a
        }
        """,
    )
