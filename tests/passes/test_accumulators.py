"""Accumulators as values: what a compiler makes of products, loops and scopes by discharging accumulators alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.gpu as plgpu
import palladio.numpy as jnp
from palladio.base.errors import PalladioTypeError
from palladio.ir.core import Program, walk
from palladio.ir.evaluate import evaluate
from palladio.ir.verify import verify
from palladio.ops import OPS, parse
from palladio.passes import discharge_program
from palladio.trace.trace import stage
from palladio.trace.values import wrap
from palladio.types.types import ACC, SMEM, ArrayType, RefType

M, N, K = 8, 8, 16
TYPES = [
    RefType((M, K), np.dtype(np.float16), SMEM),
    RefType((K, N), np.dtype(np.float16), SMEM),
    ArrayType((), np.dtype(np.int32)),
]


def is_accumulator(ref: RefType) -> bool:
    return ref.space is ACC


def traced(body: Callable[..., Any]) -> Program:
    """The program of a body of (a, b, i)."""
    return stage(lambda *values: (body(*values),), TYPES, wrap, name="body").program


def names(program: Program) -> set[str]:
    return {eqn.op.name for eqn in walk(program)}


def in_a_loop(a: Any, b: Any, i: Any) -> Any:
    def body(acc: Any) -> Any:
        @pl.loop(0, i)
        def _(step: Any) -> None:
            plgpu.wgmma(acc, a, b)
            plgpu.wgmma_wait(0)

        return acc[...]

    return pl.run_scoped(body, plgpu.ACC((M, N)))


def in_a_branch_of_a_loop(a: Any, b: Any, i: Any) -> Any:
    def body(acc: Any) -> Any:
        @pl.loop(0, 3)
        def _(step: Any) -> None:
            @pl.when(step < i)
            def _() -> None:
                plgpu.wgmma(acc, a, b)

        return acc[...]

    return pl.run_scoped(body, plgpu.ACC((M, N)))


def in_a_while_loop(a: Any, b: Any, i: Any) -> Any:
    def body(acc: Any) -> Any:
        def step(n: Any) -> Any:
            plgpu.wgmma(acc, a, b)
            return n + 1

        pl.while_loop(lambda n: n < i, step, np.int32(0))
        return acc[...]

    return pl.run_scoped(body, plgpu.ACC((M, N)))


def in_run_state(a: Any, b: Any, i: Any) -> Any:
    def body(acc: Any) -> None:
        plgpu.wgmma(acc, a, b)

    return pl.run_state(body)(plgpu.ACC.init(jnp.full((M, N), i, jnp.float32)))


def in_parts(a: Any, b: Any, i: Any) -> Any:
    def body(acc: Any) -> Any:
        plgpu.wgmma(acc.at[:, :4], a, b.at[:, :4])
        plgpu.wgmma(acc.at[:, 4:], a, b.at[:, 4:])
        return acc[:, 2:6]

    return pl.run_scoped(body, plgpu.ACC((M, N)))


def beside_memory_that_stays(a: Any, b: Any, i: Any) -> Any:
    def body(tile: Any, acc: Any) -> Any:
        tile[...] = a[...] + 1
        plgpu.wgmma(acc, tile, b)
        return acc[...]

    return pl.run_scoped(body, plgpu.SMEM((M, K), jnp.float16), plgpu.ACC((M, N)))


@pytest.mark.parametrize(
    "body", [in_a_loop, in_a_branch_of_a_loop, in_a_while_loop, in_run_state, in_parts, beside_memory_that_stays]
)
def test_an_accumulator_becomes_a_value_with_the_same_results(body: Callable[..., Any]) -> None:
    program = traced(body)
    discharged = discharge_program(program, is_accumulator)
    verify(discharged, "discharge")
    assert "wgmma" in names(program)
    assert not names(discharged) & {"wgmma", "accumulator_load", "accumulator_store"}
    assert discharged.input_types == program.input_types, "other references stay"
    rng = np.random.default_rng(7)
    a, b = (rng.standard_normal(type.shape).astype(type.dtype) for type in TYPES[:2])
    for i in (0, 1, 3):
        before, after = (evaluate(each, [a.copy(), b.copy(), np.int32(i)]) for each in (program, discharged))
        np.testing.assert_array_equal(before[0], after[0])


def test_a_loop_carries_what_was_an_accumulator() -> None:
    loop = next(eqn for eqn in walk(discharge_program(traced(in_a_loop), is_accumulator)) if eqn.op is OPS["loop"])
    assert [var.type for var in loop.outputs] == [ArrayType((M, N), np.dtype(np.float32))]


def test_what_waits_for_products_stays() -> None:
    assert "wgmma_wait" in names(discharge_program(traced(in_a_loop), is_accumulator))


WAITING = """
program f(b:ref<barrier, i32[], Arrivals(count=1)>) {
  barrier_wait b
  return
}
"""

LAUNCHING = """
program f(x:ref<gmem, i32[2]>) {
  launch x {launch=Launch(
    meshes=(MeshShape(label='t', axes=()),), output_types=(), output_refs=(), scratch=(), aliases=()),
  programs=(program p(x:ref<gmem, i32[2]>) {
    return
  },)}
  return
}
"""


@pytest.mark.parametrize("text", [WAITING, LAUNCHING])
def test_what_other_threads_reach_has_no_value(text: str) -> None:
    with pytest.raises(
        PalladioTypeError,
        match="a reference that other threads reach has no value of its own; it cannot be discharged",
    ):
        discharge_program(parse(text))


def test_barriers_stay_where_accumulators_go() -> None:
    program = parse(WAITING)
    assert discharge_program(program, is_accumulator) is program


def test_launches_of_arrays_stay_as_they_are() -> None:
    program = parse(LAUNCHING.replace("f(x:ref<gmem, i32[2]>)", "f(x:i32[2])"))
    assert [eqn.op.name for eqn in discharge_program(program).eqns] == ["launch"]
