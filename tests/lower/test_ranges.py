"""Ranges of integers: what grids, loops and arithmetic say of them, and the constants that come of it."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from palladio.ir.core import Eqn, Op, Var
from palladio.lower import fold_ranges
from palladio.lower.ranges import Range, result_range
from palladio.ops.arrays import arithmetic, bits, compare
from palladio.types.types import ArrayType
from tests.passes.ir import check, check_unchanged

I8 = ArrayType((), np.dtype(np.int8))


def equation(op: Op, count: int) -> Eqn:
    """An equation on scalars of int8, so that every value can be tried."""
    inputs = tuple(Var(I8) for _ in range(count))
    (out,) = op.type(*(var.type for var in inputs))
    return Eqn(op, inputs, (Var(out),), {})


@pytest.mark.parametrize(
    "op",
    [
        *(
            arithmetic.add,
            arithmetic.sub,
            arithmetic.mul,
            arithmetic.div,
            arithmetic.rem,
            arithmetic.min,
            arithmetic.max,
        ),
        *(compare.lt, compare.le, compare.gt, compare.ge, compare.eq, compare.ne, bits.bitwise_and, bits.bitwise_or),
    ],
    ids=repr,
)
def test_a_range_holds_every_value(op: Op) -> None:
    ends = (-128, -7, -1, 0, 1, 3, 127)
    eqn = equation(op, 2)
    for a, b, c, d in itertools.product(ends, repeat=4):
        if a > b or c > d:
            continue
        found = result_range(eqn, {eqn.inputs[0]: Range(a, b), eqn.inputs[1]: Range(c, d)})  # type: ignore[dict-item]
        x, y = np.meshgrid(np.unique([a, b, (a + b) // 2]), np.unique([c, d, (c + d) // 2]))
        with np.errstate(all="ignore"):
            values = np.asarray(op.eval(x.astype(np.int8), y.astype(np.int8))[0]).astype(int)
        assert found is not None and found.low <= values.min() and values.max() <= found.high


@pytest.mark.parametrize("op", [arithmetic.neg, arithmetic.sign, bits.bitwise_not], ids=repr)
def test_a_range_of_one_operand_holds_every_value(op: Op) -> None:
    eqn = equation(op, 1)
    for a, b in itertools.combinations_with_replacement((-128, -5, -1, 0, 1, 127), 2):
        found = result_range(eqn, {eqn.inputs[0]: Range(a, b)})  # type: ignore[dict-item]
        values = np.asarray(op.eval(np.arange(a, b + 1).astype(np.int8))[0]).astype(int)
        assert found is not None and found.low <= values.min() and values.max() <= found.high


def test_what_may_leave_its_dtype_can_be_anything() -> None:
    eqn = equation(arithmetic.add, 2)
    known = {eqn.inputs[0]: Range(100, 120), eqn.inputs[1]: Range(0, 20)}
    assert result_range(eqn, known) == Range(-128, 127)  # type: ignore[arg-type]


def test_a_decided_comparison_of_a_loop_index_is_a_constant() -> None:
    check(
        fold_ranges,
        """
        program f(x:i32[]) {
          r:i32[] = loop 0:i32, 4:i32, x {body=program step(i:i32[], s:i32[]) {
            small:bool[] = lt i, 4:i32
            t:i32[] = select small, i, s
            return t
          }, constants=0, step=1, unroll=1}
          return r
        }
        """,
        """
        program f(x:i32[]) {
          r:i32[] = loop 0:i32, 4:i32, x {body=program step(i:i32[], s:i32[]) {
            small:bool[] = lt i, 4:i32
            t:i32[] = select True:bool, i, s
            return t
          }, constants=0, step=1, unroll=1}
          return r
        }
        """,
    )


def test_the_correction_of_a_floor_division_falls_away_where_nothing_is_negative() -> None:
    check(
        fold_ranges,
        """
        program f(n:i32[]) {
          x:i32[] = max n, 0:i32
          r:i32[] = rem x, 3:i32
          s:i32[] = sign r
          other:bool[] = ne s, 1:i32
          rest:bool[] = ne r, 0:i32
          low:bool[] = bitwise_and other, rest
          q:i32[] = select low, 0:i32, x
          return q
        }
        """,
        """
        program f(n:i32[]) {
          x:i32[] = max n, 0:i32
          r:i32[] = rem x, 3:i32
          s:i32[] = sign r
          other:bool[] = ne s, 1:i32
          rest:bool[] = ne r, 0:i32
          low:bool[] = bitwise_and other, rest
          q:i32[] = select False:bool, 0:i32, x
          return q
        }
        """,
    )


def test_it_stays_where_something_may_be_negative() -> None:
    check_unchanged(
        fold_ranges,
        """
        program f(x:i32[]) {
          r:i32[] = rem x, 3:i32
          s:i32[] = sign r
          other:bool[] = ne s, 1:i32
          rest:bool[] = ne r, 0:i32
          low:bool[] = bitwise_and other, rest
          q:i32[] = select low, 0:i32, x
          return q
        }
        """,
    )


def test_a_mask_bounds_whatever_it_is_applied_to() -> None:
    eqn = equation(bits.bitwise_and, 2)
    assert result_range(eqn, {eqn.inputs[1]: Range(48, 48)}) == Range(0, 48)  # type: ignore[dict-item]
