"""What the ranges of integers decide."""

from __future__ import annotations

from textwrap import dedent

import pytest

from palladio.lower import fold_ranges
from palladio.ops import parse
from palladio.passes import merge_common_subexpressions, remove_dead_code, simplify
from tests.passes.ir import after, check_unchanged

CLEAN = (fold_ranges, simplify, merge_common_subexpressions, remove_dead_code)

REMAINDER = """
    a:i32[] = rem {x}, 4:i32
    b:i32[] = sign a
    c:bool[] = ne b, 1:i32
    d:bool[] = ne a, 0:i32
    e:bool[] = bitwise_and c, d
    f:i32[] = add a, 4:i32
    g:i32[] = select e, f, a
"""


def in_loop(lower: str, body: str) -> str:
    return (
        f"program f(out:ref<any, i32[8]>) {{\n  loop {lower}:i32, 8:i32, out {{body=program b(x:i32[], "
        f"out:ref<any, i32[8]>) {{{body}    store out[x], g\n    return\n  }}, constants=1, step=1, unroll=1}}\n"
        "  return\n}"
    )


def test_the_remainder_of_what_is_not_negative_needs_no_correction() -> None:
    text = after(in_loop("0", REMAINDER.format(x="x")), *CLEAN)
    assert "rem" in text
    assert not any(word in text for word in ("sign", "select", "bitwise_and"))


def test_the_remainder_of_what_may_be_negative_keeps_it() -> None:
    text = after(in_loop("-2", REMAINDER.format(x="x")), *CLEAN)
    assert "sign" in text and "select" in text


def test_a_test_whose_outcome_is_known_is_a_constant() -> None:
    text = after(in_loop("0", "\n    a:bool[] = lt x, 8:i32\n    g:i32[] = select a, x, 7:i32\n"), *CLEAN)
    assert "select" not in text


def test_the_indices_of_a_grid_are_below_its_sizes() -> None:
    program = parse(
        dedent(
            """
            program f(x:f32[8]) {
              a:f32[8] = grid_call x {grid=Grid(sizes=(4,), scalars=0,
                inputs=(BlockMap(dims=(Blocked(block_size=2),), ref=ref<any, f32[2]>, index_map=program m(i:i32[]) {
                return i
              }),),
                outputs=(BlockMap(dims=(Blocked(block_size=2),), ref=ref<any, f32[2]>, index_map=program m(i:i32[]) {
                return i
              }),), output_types=(f32[8],), scratch=(), aliases=(), parallel=(False,)),
                kernel=program k(i:i32[], x:ref<any, f32[2]>, out:ref<any, f32[2]>) {
                a:bool[] = ge i, 4:i32
                b:f32[] = convert a {dtype=f32}
                c:f32[2] = broadcast b {shape=(2,), axes=()}
                store out, c
                return
              }}
              return a
            }
            """
        )
    )
    folded = fold_ranges.run(program)
    (kernel,) = (eqn.params["kernel"] for eqn in folded.eqns)
    assert kernel.eqns[1].inputs[0].value == False  # noqa: E712


@pytest.mark.parametrize("operation", ["add", "mul"])
def test_what_may_wrap_around_has_no_range(operation: str) -> None:
    body = f"\n    a:i32[] = {operation} x, -2147483647:i32\n    b:i32[] = {operation} a, a\n"
    body += "    c:bool[] = lt b, 0:i32\n    g:i32[] = select c, 1:i32, 2:i32\n"
    assert "select" in after(in_loop("0", body), *CLEAN)


def test_nothing_to_fold_is_left_alone() -> None:
    check_unchanged(
        fold_ranges,
        """
        program f(x:i32[]) {
          a:bool[] = lt x, 8:i32
          return a
        }
        """,
    )
