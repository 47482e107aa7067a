"""What is computed twice is computed once, unless a write stands between."""

from __future__ import annotations

from palladio.passes import merge_common_subexpressions
from tests.passes.ir import check, check_unchanged


def test_equal_equations_become_one_and_so_do_those_above_them() -> None:
    check(
        merge_common_subexpressions,
        """
        program f(x:i32[], y:i32[]) {
          a:i32[] = add x, y
          b:i32[] = add y, x
          c:i32[] = mul a, 2:i32
          d:i32[] = mul b, 2:i32
          return c, d
        }
        """,
        """
        program f(x:i32[], y:i32[]) {
          a:i32[] = add x, y
          c:i32[] = mul a, 2:i32
          return c, c
        }
        """,
    )


def test_order_matters_where_an_operation_does_not_commute() -> None:
    check_unchanged(
        merge_common_subexpressions,
        """
        program f(x:i32[], y:i32[]) {
          a:i32[] = sub x, y
          b:i32[] = sub y, x
          return a, b
        }
        """,
    )


def test_constants_are_told_apart_by_dtype_and_by_the_sign_of_zero() -> None:
    check_unchanged(
        merge_common_subexpressions,
        """
        program f(x:f32[]) {
          a:f32[] = mul x, 0.0:f32
          b:f32[] = mul x, -0.0:f32
          c:f32[2] = broadcast x {shape=(2,), axes=()}
          d:f32[3] = broadcast x {shape=(3,), axes=()}
          return a, b, c, d
        }
        """,
    )


def test_loads_are_one_until_their_reference_is_written() -> None:
    check(
        merge_common_subexpressions,
        """
        program f(x:ref<any, i32[2]>, y:ref<any, i32[2]>) {
          a:i32[] = load x[0]
          b:i32[] = load x[0]
          store y[0], a
          c:i32[] = load x[0]
          accumulate x[1], c
          d:i32[] = load x[0]
          return a, b, c, d
        }
        """,
        """
        program f(x:ref<any, i32[2]>, y:ref<any, i32[2]>) {
          a:i32[] = load x[0]
          store y[0], a
          accumulate x[1], a
          d:i32[] = load x[0]
          return a, a, a, d
        }
        """,
    )


def test_a_write_inside_control_flow_is_a_write() -> None:
    check_unchanged(
        merge_common_subexpressions,
        """
        program f(i:i32[], x:ref<any, i32[]>) {
          a:i32[] = load x
          cond i, x {branches=(program p(x:ref<any, i32[]>) {
            return
          }, program q(x:ref<any, i32[]>) {
            store x, 1:i32
            return
          })}
          b:i32[] = load x
          return a, b
        }
        """,
    )


def test_swaps_and_prints_are_never_one() -> None:
    check_unchanged(
        merge_common_subexpressions,
        """
        program f(x:ref<any, i32[]>) {
          a:i32[] = swap x, 1:i32
          b:i32[] = swap x, 1:i32
          debug_print a {format='{}'}
          debug_print a {format='{}'}
          return b
        }
        """,
    )


def test_sub_programs_are_looked_at_by_themselves() -> None:
    check(
        merge_common_subexpressions,
        """
        program f(n:i32[], x:i32[]) {
          r:i32[] = loop 0:i32, n, x, 0:i32 {body=program body(i:i32[], x:i32[], s:i32[]) {
            a:i32[] = mul x, i
            b:i32[] = mul i, x
            c:i32[] = add a, b
            return c
          }, constants=1, step=1, unroll=1}
          return r
        }
        """,
        """
        program f(n:i32[], x:i32[]) {
          r:i32[] = loop 0:i32, n, x, 0:i32 {body=program body(i:i32[], x:i32[], s:i32[]) {
            a:i32[] = mul x, i
            c:i32[] = add a, a
            return c
          }, constants=1, step=1, unroll=1}
          return r
        }
        """,
    )
