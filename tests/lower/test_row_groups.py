"""Equations that go through the rows of a block together: which do, and which run after them."""

from __future__ import annotations

from textwrap import dedent, indent

from palladio.ir.core import Eqn
from palladio.lower.fusion.row_groups import RowGroup, row_group
from palladio.ops import parse

HEAD = "x:ref<any, f32[4,32]>, w:f32[32], o:ref<any, f32[4,32]>, p:ref<any, f32[4,32]>, t:ref<any, f32[32]>"
START = "a:f32[4,32] = load x\n"
MEANS = """
    q:f32[4] = reduce_sum a {axes=(1,)}
    b:f32[4,32] = broadcast q {shape=(4, 32), axes=(0,)}
    c:f32[4,32] = sub a, b
    r:f32[4] = reduce_max c {axes=(1,)}
    """


def group_of(body: str, first: int = 1) -> RowGroup | None:
    """The group that begins with an equation of a kernel with these equations."""
    program = parse(f"program f({HEAD}) {{\n{indent(START + dedent(body).strip(), '  ')}\n  return\n}}")
    return row_group(program.eqns, first)


def names(eqns: list[Eqn]) -> list[str]:
    return [eqn.op.name for eqn in eqns]


def test_reductions_stores_and_sums_of_rows_go_together() -> None:
    group = group_of(MEANS + "store o, c\ns:f32[32] = reduce_sum a {axes=(0,)}\nstore t, s")
    assert names(group.passes) == ["reduce_sum", "reduce_max", "store", "reduce_sum"]
    assert names(group.rest) == ["store"]


def test_two_passes_are_too_few() -> None:
    assert group_of(MEANS) is None


def test_a_sum_of_rows_moves_up_past_what_does_not_concern_it() -> None:
    body = """
        store o, c
        s:f32[32] = reduce_sum a {axes=(0,)}
        d:f32[32] = load t
        u:f32[32] = add d, s
        v:f32[32] = keep u
        store t, v
        z:f32[32] = reduce_sum c {axes=(0,)}
        """
    group = group_of(MEANS + dedent(body))
    assert len(group.passes) == 5
    assert names(group.rest) == ["add", "keep", "store"]


def test_what_needs_a_sum_of_rows_runs_after_the_group() -> None:
    body = """
        store o, c
        s:f32[32] = reduce_sum a {axes=(0,)}
        d:f32[4,32] = broadcast s {shape=(4, 32), axes=(1,)}
        e:f32[4,32] = mul d, a
        store p, e
        """
    group = group_of(MEANS + dedent(body))
    assert names(group.passes) == ["reduce_sum", "reduce_max", "store", "reduce_sum"]
    assert names(group.rest) == ["broadcast", "mul", "store"]


def test_a_store_does_not_move() -> None:
    body = """
        store o, c
        s:f32[32] = reduce_sum a {axes=(0,)}
        store t, s
        store p, c
        """
    group = group_of(MEANS + dedent(body))
    assert names(group.rest) == ["store", "store"]


def test_what_is_read_after_a_store_is_read_after_the_group() -> None:
    body = """
        store o, c
        d:f32[4,32] = load o
        s:f32[32] = reduce_sum d {axes=(0,)}
        """
    group = group_of(MEANS + dedent(body))
    assert names(group.rest) == ["load"] or group.rest[-1].op.name == "reduce_sum"
    assert all(eqn.op.name != "load" for eqn in group.eqns)


def test_results_of_rows_that_become_columns_run_after_the_group() -> None:
    head = "x:ref<any, f32[4,4]>, o:ref<any, f32[4,4]>"
    body = """
        a:f32[4,4] = load x
        q:f32[4] = reduce_sum a {axes=(1,)}
        r:f32[4] = reduce_max a {axes=(1,)}
        s:f32[4] = reduce_sum a {axes=(0,)}
        b:f32[4,4] = broadcast q {shape=(4, 4), axes=(1,)}
        c:f32[4,4] = mul a, b
        store o, c
        """
    program = parse(f"program f({head}) {{\n{indent(dedent(body).strip(), '  ')}\n  return\n}}")
    group = row_group(program.eqns, 1)
    assert names(group.passes) == ["reduce_sum", "reduce_max", "reduce_sum"]
    assert names(group.rest) == ["broadcast", "mul", "store"]


def test_a_loop_ends_a_group() -> None:
    body = """
        store o, c
        loop 0:i32, 2:i32, t {body=program b(i:i32[], t:ref<any, f32[32]>) {
          return
        }, constants=1, step=1, unroll=1}
        s:f32[32] = reduce_sum a {axes=(0,)}
        """
    group = group_of(MEANS + dedent(body))
    assert names(group.rest) == ["loop", "reduce_sum"]
