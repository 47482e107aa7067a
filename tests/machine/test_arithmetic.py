"""Index arithmetic in groups: each equation as early as its operands are there, computed once for the same values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.gpu as plgpu
from palladio.ir.core import Program
from palladio.machine.run import arithmetic
from palladio.machine.run.arithmetic import grouped, remembering
from palladio.machine.run.coroutines import RULES
from palladio.ops import parse
from palladio.types.types import ArrayType

INT32 = ArrayType((), np.dtype(np.int32))


def names(text: str) -> list[str]:
    """The operations of a program once its arithmetic is grouped, groups with those inside."""
    return list(_names(grouped(parse(text), RULES)))


def _names(program: Program) -> Any:
    for eqn in program.eqns:
        yield f"group({', '.join(_names(eqn.body))})" if eqn.op is arithmetic.group else eqn.op.name


def test_equations_join_the_first_group_that_knows_their_operands() -> None:
    assert names("""
        program one(x:i32[], ring:ref<smem, i32[4]>) {
          a:i32[] = add x, 1:i32
          b:i32[] = rem a, 4:i32
          store ring[b], a
          c:i32[] = add b, 1:i32
          d:i32[] = rem c, 4:i32
          e:i32[] = load ring[d]
          f:i32[] = mul e, e
          g:i32[] = add f, e
          h:i32[] = sub g, f
          i:i32[] = add h, a
          return i
        }
    """) == ["group(add, rem, add, rem)", "store", "load", "group(mul, add, sub, add)"]


def test_programs_that_differ_elsewhere_share_their_groups() -> None:
    """What a candidate for a repair does not change is neither prepared nor computed again."""
    program = parse("""
        program one(x:i32[], ring:ref<smem, i32[4]>) {
          a:i32[] = add x, 1:i32
          b:i32[] = rem a, 4:i32
          c:i32[] = add b, 1:i32
          d:i32[] = rem c, 4:i32
          store ring[d], d
          e:i32[] = load ring[0]
          return
        }
    """)
    other = replace(program, eqns=program.eqns[:-1])
    assert grouped(program, RULES).eqns[0] is grouped(other, RULES).eqns[0]
    changed = replace(program, outputs=program.eqns[0].outputs)
    assert grouped(program, RULES).eqns[0] is not grouped(changed, RULES).eqns[0]


@pytest.mark.parametrize(
    "equations",
    [
        "a:i32[] = add x, 1:i32  b:i32[] = rem a, 4:i32  c:i32[] = add b, a",  # too few
        "a:f32[] = convert x {dtype=f32}  b:f32[] = add a, a  c:f32[] = mul b, a  d:f32[] = sub c, a",  # floats
        "a:i32[999] = broadcast x {shape=(999,), axes=()}  b:i32[999] = add a, a  c:i32[999] = mul b, a"
        "  d:i32[999] = add a, c",  # large
    ],
)
def test_what_is_not_worth_it_stays_as_it_is(equations: str) -> None:
    lines = equations.replace("  ", "\n")
    program = parse(f"program one(x:i32[]) {{\n{lines}\nreturn {lines.splitlines()[-1][0]}\n}}")
    assert grouped(program, RULES) is program


@pytest.mark.parametrize("shape", [(), (3,)])
def test_a_result_is_computed_once_for_the_same_values(shape: tuple[int, ...]) -> None:
    calls = []

    def run(x: Any, y: Any) -> Any:
        calls.append((x, y))
        return (x + y,)

    kept = remembering(run, [ArrayType(shape, np.dtype(np.int32)), INT32])
    x, y = np.full(shape, 3, np.int32)[()], np.int32(4)
    assert np.all(kept(x, y)[0] == 7)
    assert np.all(kept(np.array(x), np.array(y))[0] == 7)
    assert len(calls) == 1
    assert np.all(kept(x, x)[0] == 6)
    assert len(calls) == 2


def test_the_results_that_are_kept_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arithmetic, "MOST_KEPT", 2)
    calls = []
    kept = remembering(lambda x: calls.append(x) or (x,), [INT32])  # type: ignore[func-returns-value]
    for number in (1, 2, 2, 1, 3, 1):
        kept(np.int32(number))
    assert calls == [1, 2, 3, 1]


def test_a_value_that_was_never_written_is_followed_through_a_group() -> None:
    def body(out: Any, slots: Any) -> None:
        slot = ((slots[0] + 1) * 2 - 1) % 4 + 0 * pl.axis_index("wg")
        out[slot] = slot

    out = pl.ShapeDtypeStruct((8,), np.int32)
    scratch = [plgpu.SMEM((4,), np.int32)]
    report = pl.check(plgpu.kernel(body, out, scratch_types=scratch, num_threads=1, thread_name="wg"), schedules=2)
    (finding,) = report.of_level("error")
    assert finding.code == "uninitialized-read"
    assert "out[slot] = slot" in finding.render()


def test_results_that_are_kept_are_scalars() -> None:
    """NumPy takes many times as long for an array without axes, and so does whoever looks up a barrier by it."""
    run = remembering(lambda x: [np.asarray(x) + 1, np.arange(3)], [INT32])
    for _ in range(2):
        one, three = run(np.int32(1))
        assert type(one) in (np.int32, np.int64)
        assert three.tolist() == [0, 1, 2]
