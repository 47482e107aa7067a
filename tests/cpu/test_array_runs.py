"""Array functions around kernel calls: on small arrays they become machine code too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.numpy as jnp
from palladio.call.staged import CALLS
from palladio.cpu.array_runs import FEW, MANY, SMALL, with_runs
from palladio.cpu.executor import load_compiled
from palladio.driver.capture import prepared_programs
from palladio.ir.core import Program
from palladio.ir.evaluate import DEFINITION, evaluate
from palladio.library import make_group_metadata

SOME = np.arange(12, dtype=np.float32).reshape(3, 4) - 5


def program(function: Callable[..., Any], *arguments: Any) -> Program:
    CALLS.clear()
    with prepared_programs() as found:
        pl.jit(function)(*arguments)
    return found[-1]


def names(program: Program) -> list[str]:
    return [eqn.op.name for eqn in with_runs(program)[0].eqns]


def chain(x: Any) -> Any:
    for _ in range(FEW):
        x = x * 2 - 1
    return x


def test_a_run_of_array_functions_becomes_one_call() -> None:
    assert names(program(chain, SOME)) == ["grid_call"]


def test_a_program_with_calls_of_runs_still_means_the_same() -> None:
    given = program(chain, SOME)
    np.testing.assert_array_equal(evaluate(with_runs(given)[0], [SOME])[0], evaluate(given, [SOME])[0])


def test_it_computes_what_the_evaluator_does() -> None:
    def function(x: Any, n: Any) -> Any:
        rows = jnp.sum(x, axis=1)
        order = jnp.argsort(rows)
        return jnp.cumsum(rows) + n, jnp.take(x, order, axis=0).astype(jnp.int32) // 2, jnp.where(x > 0, x, -x), n * 2

    given = program(function, SOME, np.int32(3))
    for found, expected in zip(
        load_compiled(given, DEFINITION)([SOME, np.int32(3)]), evaluate(given, [SOME, np.int32(3)]), strict=True
    ):
        assert np.asarray(found).dtype == np.asarray(expected).dtype
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("size", [SMALL + 1, 0])
def test_what_is_large_or_nothing_gives_the_same(size: int) -> None:
    x = np.ones(size, np.float32)
    given = program(chain, x)
    np.testing.assert_array_equal(load_compiled(given, DEFINITION)([x])[0], evaluate(given, [x])[0])


def test_large_arrays_stay_with_numpy() -> None:
    given = program(chain, np.ones(SMALL + 1, np.float32))
    assert names(given) == [eqn.op.name for eqn in given.eqns]


def test_a_few_functions_stay_with_numpy() -> None:
    given = program(lambda x: x + 1, SOME)
    assert names(given) == ["add"]


def test_what_takes_longer_to_compile_than_to_run_stays_with_numpy() -> None:
    def sorted_between(x: Any) -> Any:
        return chain(jnp.sort(chain(x)))

    def long(x: Any) -> Any:
        for _ in range(MANY):
            x = x * 2 - 1
        return x

    assert names(program(sorted_between, SOME)) == ["grid_call", "sort", "grid_call"]
    assert "grid_call" not in names(program(long, SOME))


def test_the_steps_of_very_many_groups_are_one_call() -> None:
    sizes = np.random.default_rng(0).integers(0, 9, 5000).astype(np.int32)
    m = int(sizes.sum())
    given = program(lambda sizes: make_group_metadata(group_sizes=sizes, m=m, tm=m, visit_empty_groups=False), sizes)
    assert names(given) == ["grid_call"]


def test_a_kernel_call_between_them_stays_what_it_is() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] + 1

    call = pl.pallas_call(kernel, pl.ShapeDtypeStruct(SOME.shape, SOME.dtype))
    given = program(lambda x: chain(call(chain(x))), SOME)
    assert names(given) == ["grid_call"] * 3
    with pl.executor("cpu"):
        np.testing.assert_array_equal(pl.jit(lambda x: chain(call(chain(x))))(SOME), chain(chain(SOME) + 1))


def test_a_check_of_a_value_is_not_lost() -> None:
    def function(x: Any) -> Any:
        pl.debug_check(jnp.all(x > 0), "positive")
        return chain(x)

    with pl.enable_debug_checks(True), pl.executor("cpu"), pytest.raises(pl.PalladioError, match="positive"):
        pl.jit(function)(SOME)
