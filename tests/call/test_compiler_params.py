"""Compiler parameters: the program of a call keeps what it is given, or the call refuses it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.gpu as plgpu
import palladio.tpu as pltpu
from palladio.call.staged import CALLS
from palladio.driver.capture import prepared_programs
from palladio.ops.grid import Grid
from tests.errors.shown import shows
from tests.round_trip import check_round_trip

X = np.ones(4, np.float32)
OUT = pl.ShapeDtypeStruct(X.shape, X.dtype)


def copy(x: Any, out: Any) -> None:
    out[...] = x[...]


def grid_of(params: Any) -> Grid:
    """The grid of a call with these compiler parameters."""
    CALLS.clear()
    with prepared_programs() as found:
        pl.pallas_call(copy, OUT, grid=(1,), compiler_params=params)(X)
    (eqn,) = check_round_trip(found[0]).eqns
    return eqn.grid


@pytest.mark.parametrize(
    ("params", "advice"),
    [
        (None, ()),
        (pltpu.CompilerParams(vmem_limit_bytes=1 << 20), (("vmem_limit_bytes", 1 << 20),)),
        ({"mosaic": {"stages": [3, 4]}}, (("mosaic", (("stages", (3, 4)),)),)),
        (plgpu.CompilerParams(approx_math=True), (("approx_math", True),)),
        (
            pltpu.CompilerParams(has_side_effects=pltpu.SideEffectType.SIDE_EFFECTING),
            (("has_side_effects", "side_effecting"),),
        ),
    ],
    ids=["none", "option", "mapping", "gpu", "enum"],
)
def test_a_grid_keeps_what_no_executor_here_wants(params: Any, advice: Any) -> None:
    assert grid_of(params).advice == advice


@pytest.mark.parametrize("params", [pltpu.CompilerParams(("parallel",)), {"dimension_semantics": ["parallel"]}])
def test_the_semantics_of_axes_are_those_of_the_grid(params: Any) -> None:
    grid = grid_of(params)
    assert (grid.parallel, grid.advice) == ((True,), ())


def test_a_launch_keeps_options_too() -> None:
    run = plgpu.kernel(lambda out: out.set(out[...]), OUT, compiler_params=pl.CompilerParams(stages=2))
    CALLS.clear()
    with prepared_programs() as found:
        run()
    assert found[0].eqns[0].launch.advice == (("stages", 2),)


def test_calls_with_other_parameters_are_other_programs() -> None:
    assert grid_of({"stages": 2}).advice != grid_of({"stages": 3}).advice


def test_what_is_not_compiler_parameters_is_refused() -> None:
    with shows(
        TypeError,
        """
        compiler_params: these are not compiler parameters
          expected: plgpu.CompilerParams(...), pl.CompilerParams(...), a mapping or None
          got:      3
          test_compiler_params.py:N, in test_what_is_not_compiler_parameters_is_refused
            pl.pallas_call(copy, OUT, compiler_params=3)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(copy, OUT, compiler_params=3)


def test_a_parameter_that_a_program_cannot_hold_is_refused() -> None:
    with shows(
        TypeError,
        """
        stages: a program cannot hold this compiler parameter
          expected: a number, a text, a bool, or a sequence or mapping of them
          got:      <class 'int'>
          test_compiler_params.py:N, in test_a_parameter_that_a_program_cannot_hold_is_refused
            pltpu.CompilerParams(stages=int)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pltpu.CompilerParams(stages=int)


@pytest.mark.parametrize("name", ["sum", "max", "min", "prod"])
def test_a_reduction_keeps_its_number_of_chains(name: str) -> None:
    def body(out: Any) -> None:
        out[...] = getattr(plgpu, name)(out[...] * 0 + 1, 0, accumulator_ilp=2) * out[...]

    eqns = plgpu.kernel(body, OUT).program().eqns
    assert [eqn.accumulator_ilp for eqn in eqns if "accumulator_ilp" in eqn.params] == [2]
