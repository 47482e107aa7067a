"""Unused values go, and observable effects stay."""

from __future__ import annotations

from palladio.passes import remove_dead_code
from tests.passes.ir import check, check_unchanged


def test_a_chain_that_feeds_nothing_goes() -> None:
    check(
        remove_dead_code,
        """
        program f(x:i32[]) {
          a:i32[] = add x, x
          b:i32[] = mul a, a
          c:i32[] = sub x, 1:i32
          return c
        }
        """,
        """
        program f(x:i32[]) {
          c:i32[] = sub x, 1:i32
          return c
        }
        """,
    )


def test_an_unused_load_goes_and_stores_to_inputs_stay() -> None:
    check(
        remove_dead_code,
        """
        program f(x:ref<any, i32[]>) {
          a:i32[] = load x
          store x, 1:i32
          b:i32[] = swap x, 2:i32
          accumulate x, 3:i32
          return
        }
        """,
        """
        program f(x:ref<any, i32[]>) {
          store x, 1:i32
          b:i32[] = swap x, 2:i32
          accumulate x, 3:i32
          return
        }
        """,
    )


def test_printing_and_checking_stay() -> None:
    check_unchanged(
        remove_dead_code,
        """
        program f(x:i32[], c:bool[]) {
          a:i32[] = add x, x
          debug_print a {format='{}'}
          debug_check c {message='no'}
          return
        }
        """,
    )


def test_branches_lose_unused_outputs_and_inputs() -> None:
    check(
        remove_dead_code,
        """
        program f(i:i32[], x:i32[], y:i32[]) {
          z:i32[] = mul y, y
          a:i32[], b:i32[] = cond i, x, z {branches=(program p(x:i32[], z:i32[]) {
            c:i32[] = add x, z
            return x, c
          }, program q(x:i32[], z:i32[]) {
            return 1:i32, z
          })}
          return a
        }
        """,
        """
        program f(i:i32[], x:i32[], y:i32[]) {
          a:i32[] = cond i, x {branches=(program p(x:i32[]) {
            return x
          }, program q(x:i32[]) {
            return 1:i32
          })}
          return a
        }
        """,
    )


def test_a_carry_that_feeds_only_itself_goes_with_its_constants() -> None:
    check(
        remove_dead_code,
        """
        program f(n:i32[], k:i32[]) {
          a:i32[], b:i32[] = loop 0:i32, n, k, 0:i32, 1:i32 {body=program body(i:i32[], k:i32[], a:i32[], b:i32[]) {
            c:i32[] = add a, i
            d:i32[] = mul b, k
            return c, d
          }, constants=1, step=1, unroll=1}
          return a
        }
        """,
        """
        program f(n:i32[], k:i32[]) {
          a:i32[] = loop 0:i32, n, 0:i32 {body=program body(i:i32[], a:i32[]) {
            c:i32[] = add a, i
            return c
          }, constants=0, step=1, unroll=1}
          return a
        }
        """,
    )


def test_a_carry_stays_that_another_carry_needs() -> None:
    check_unchanged(
        remove_dead_code,
        """
        program f(n:i32[]) {
          a:i32[], b:i32[] = loop 0:i32, n, 0:i32, 1:i32 {body=program body(i:i32[], a:i32[], b:i32[]) {
            c:i32[] = add a, b
            d:i32[] = add b, i
            return c, d
          }, constants=0, step=1, unroll=1}
          return a
        }
        """,
    )


def test_a_carry_stays_that_the_condition_needs() -> None:
    check_unchanged(
        remove_dead_code,
        """
        program f(n:i32[]) {
          a:i32[], b:i32[] = repeat n, 0:i32 {condition=program more(a:i32[], b:i32[]) {
            c:bool[] = gt a, 0:i32
            return c
          }, body=program less(a:i32[], b:i32[]) {
            c:i32[] = sub a, 1:i32
            d:i32[] = add b, 2:i32
            return c, d
          }, constants=0}
          return b
        }
        """,
    )


def test_a_loop_without_use_or_effect_goes() -> None:
    check(
        remove_dead_code,
        """
        program f(n:i32[]) {
          a:i32[] = loop 0:i32, n, 0:i32 {body=program body(i:i32[], a:i32[]) {
            c:i32[] = add a, i
            return c
          }, constants=0, step=1, unroll=1}
          return
        }
        """,
        """
        program f(n:i32[]) {
          return
        }
        """,
    )


def test_an_effect_in_a_body_keeps_the_loop() -> None:
    check(
        remove_dead_code,
        """
        program f(n:i32[], o:ref<any, i32[]>) {
          loop 0:i32, n, o {body=program body(i:i32[], o:ref<any, i32[]>) {
            c:i32[] = add i, i
            accumulate o, i
            return
          }, constants=1, step=1, unroll=1}
          return
        }
        """,
        """
        program f(n:i32[], o:ref<any, i32[]>) {
          loop 0:i32, n, o {body=program body(i:i32[], o:ref<any, i32[]>) {
            accumulate o, i
            return
          }, constants=1, step=1, unroll=1}
          return
        }
        """,
    )


def test_an_allocation_that_is_only_written_goes_with_its_writes() -> None:
    check(
        remove_dead_code,
        """
        program f(x:i32[]) {
          r:i32[] = scope x {body=program body(x:i32[], t:ref<smem, i32[]>, u:ref<smem, i32[]>) {
            store t, x
            a:i32[] = load t
            store u, a
            accumulate u, x
            store t, x
            return a
          }, allocations=(ref<smem, i32[]>, ref<smem, i32[]>)}
          return r
        }
        """,
        """
        program f(x:i32[]) {
          r:i32[] = scope x {body=program body(x:i32[], t:ref<smem, i32[]>) {
            store t, x
            a:i32[] = load t
            return a
          }, allocations=(ref<smem, i32[]>,)}
          return r
        }
        """,
    )
