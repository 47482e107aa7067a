"""What a kernel may be, how calls are written, and pytrees of inputs and outputs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import palladio as pl
import palladio.numpy as jnp

X = np.arange(4, dtype=np.float32)
OUT = pl.ShapeDtypeStruct((4,), np.float32)


def scaled(x_ref: Any, o_ref: Any, *, factor: float = 2) -> None:
    o_ref[...] = x_ref[...] * factor


class Scale:
    def __init__(self, factor: float) -> None:
        self.factor = factor

    def __call__(self, x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] * self.factor

    def method(self, x_ref: Any, o_ref: Any) -> None:
        self(x_ref, o_ref)

    @classmethod
    def of_class(cls, x_ref: Any, o_ref: Any) -> None:
        cls(2)(x_ref, o_ref)

    @staticmethod
    def static(x_ref: Any, o_ref: Any) -> None:
        scaled(x_ref, o_ref)


@functools.wraps(scaled)
def wrapping(*args: Any, **kwargs: Any) -> None:
    scaled(*args, **kwargs)


KERNELS: dict[str, Callable[..., None]] = {
    "function": scaled,
    "partial": functools.partial(scaled, factor=2),
    "partial of a partial": functools.partial(functools.partial(scaled), factor=2),
    "object": Scale(2),
    "method": Scale(2).method,
    "class method": Scale.of_class,
    "static method": Scale.static,
    "wrapped": wrapping,
    "lambda": lambda x_ref, o_ref: o_ref.set(x_ref[...] * 2),
}


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_what_a_kernel_may_be(kernel: Callable[..., None]) -> None:
    assert pl.pallas_call(kernel, OUT)(X).tolist() == [0, 2, 4, 6]


def test_as_a_decorator() -> None:
    @pl.pallas_call(out_shape=OUT)
    def double(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] * 2

    assert double(X).tolist() == [0, 2, 4, 6]
    assert double.__name__ == "double"


def test_as_a_decorator_by_partial() -> None:
    @functools.partial(pl.pallas_call, out_shape=OUT, grid=(2,))
    def double(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] * 2

    assert double(X).tolist() == [0, 2, 4, 6]


def test_what_tools_are_told_changes_no_result() -> None:
    call = pl.pallas_call(
        scaled,
        OUT,
        name="doubling",
        metadata={"author": "a test"},
        cost_estimate=pl.CostEstimate(flops=4, transcendentals=0, bytes_accessed=32),
        compiler_params=pl.CompilerParams(),
    )
    assert call(X).tolist() == [0, 2, 4, 6]
    assert call.__name__ == "doubling"
    assert repr(call) == "pallas_call(doubling)"
    assert call.program(X).name == "doubling"


@pytest.mark.parametrize("interpret", [None, True, False, "reference"])
def test_the_ways_to_request_the_evaluator(interpret: Any) -> None:
    assert pl.pallas_call(scaled, OUT, interpret=interpret)(X).tolist() == [0, 2, 4, 6]


def test_debug_prints_the_program_after_each_stage(
    capsys: pytest.CaptureFixture[str], golden: Callable[..., None]
) -> None:
    spec = pl.BlockSpec((2,), lambda i: (i,))
    pl.pallas_call(scaled, OUT, grid=(2,), in_specs=[spec], out_specs=spec, debug=True)(X)
    golden(capsys.readouterr().out)


# Pytrees.


class Pair(NamedTuple):
    first: Any
    second: Any


def test_inputs_are_pytrees() -> None:
    def kernel(x: Any, y: Any, o_ref: Any) -> None:
        assert isinstance(y, Pair)
        o_ref[...] = x["a"][...] + x["b"][1][...] * y.first[...] - y.second[...]

    inputs = {"a": X, "b": [X, X + 1]}, Pair(X, X * 2)
    assert pl.pallas_call(kernel, OUT)(*inputs).tolist() == (X + (X + 1) * X - X * 2).tolist()


def test_outputs_are_pytrees() -> None:
    def kernel(x_ref: Any, out: Any) -> None:
        out["double"][...] = x_ref[...] * 2
        out["more"][0][...] = x_ref[...] * 3
        out["more"][1].second[...] = x_ref[...].astype(jnp.int32)
        out["more"][1].first[...] = x_ref[...] * 4

    shape = {"double": OUT, "more": [OUT, Pair(OUT, pl.ShapeDtypeStruct((4,), np.int32))]}
    result = pl.pallas_call(kernel, shape)(X)
    assert list(result) == ["double", "more"]
    assert isinstance(result["more"][1], Pair)
    assert result["more"][1].second.dtype == np.int32
    assert [part.tolist() for part in (result["double"], result["more"][0], result["more"][1].first)] == [
        (X * n).tolist() for n in (2, 3, 4)
    ]


def test_several_outputs_are_several_references() -> None:
    def kernel(x_ref: Any, a_ref: Any, b_ref: Any) -> None:
        a_ref[...], b_ref[...] = x_ref[...] + 1, x_ref[...] + 2

    for shape in ((OUT, OUT), [OUT, OUT]):
        a, b = pl.pallas_call(kernel, shape)(X)
        assert (a.tolist(), b.tolist()) == ([1, 2, 3, 4], [2, 3, 4, 5])


def test_no_outputs() -> None:
    assert pl.pallas_call(lambda x_ref: None, ())(X) == ()


def test_specs_have_the_structure_of_the_arrays() -> None:
    def kernel(x: Any, out: Any) -> None:
        out["o"][...] = x[0][...] + x[1][...]

    half, whole = pl.BlockSpec((2,), lambda i: (i,)), pl.BlockSpec((2,), lambda i: (0,))
    call = pl.pallas_call(kernel, {"o": OUT}, grid=(2,), in_specs=[(half, whole)], out_specs={"o": half})
    assert call((X, X))["o"].tolist() == [0, 2, 2, 4]


def test_one_spec_serves_a_whole_pytree() -> None:
    def kernel(x: Any, o_ref: Any) -> None:
        o_ref[...] = x["a"][...] + x["b"][...]

    half = pl.BlockSpec((2,), lambda i: (i,))
    call = pl.pallas_call(kernel, OUT, grid=(2,), in_specs=[half], out_specs=half)
    assert call({"a": X, "b": X}).tolist() == [0, 2, 4, 6]


def test_anything_with_a_shape_and_a_dtype_describes_an_output() -> None:
    assert pl.pallas_call(scaled, np.zeros(4, np.float32))(X).tolist() == [0, 2, 4, 6]
    assert pl.pallas_call(scaled, pl.MemorySpace("vmem")((4,), np.float32))(X).tolist() == [0, 2, 4, 6]


# Shapes and costs without running.


def test_eval_shape_runs_nothing() -> None:
    def function(x: Any, y: Any, *, scale: Any) -> Any:
        return {"product": pl.pallas_call(scaled, OUT)(x) * scale, "sum": y.sum()}

    shapes = pl.eval_shape(function, OUT, np.zeros((3, 2), np.float16), scale=2.0)
    assert shapes == {"product": OUT, "sum": pl.ShapeDtypeStruct((), np.float16)}


def test_a_scalar_stays_weak_in_eval_shape() -> None:
    assert pl.eval_shape(lambda x, y: x * y, 2.0, np.zeros(3, np.float16)) == pl.ShapeDtypeStruct((3,), np.float16)


def test_the_cost_of_a_product() -> None:
    a, b = pl.ShapeDtypeStruct((4, 8), np.float32), pl.ShapeDtypeStruct((8, 2), np.float32)
    scaled = pl.estimate_cost(lambda a, scale: a * scale if scale != 1 else a, a, scale=1)
    assert scaled.flops == 0, "a number by keyword is known while the function is traced"
    assert pl.estimate_cost(lambda a, b: jnp.exp(a @ b), a, b) == pl.CostEstimate(128, 8, 4 * (32 + 16 + 8))


def test_the_cost_of_a_kernel_counts_its_steps_and_loops() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = pl.fori_loop(0, 5, lambda i, value: value * 2, x_ref[...])

    half = pl.BlockSpec((2,), lambda i: (i,))
    call = pl.pallas_call(kernel, OUT, grid=(2,), in_specs=[half], out_specs=half)
    assert pl.estimate_cost(call, X) == pl.CostEstimate(20, 0, 32)


def test_costs_add_up() -> None:
    assert pl.CostEstimate(1, 2, 3, 4) + pl.CostEstimate(1, 1, 1, 1) == pl.CostEstimate(2, 3, 4, 5)
