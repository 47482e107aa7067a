"""`palladio.jit`: functions of several kernel calls and array functions, staged once."""

from __future__ import annotations

import functools
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

import palladio as pl
import palladio.gpu as plgpu
import palladio.numpy as jnp
from palladio import tpu as pltpu
from palladio.call.staged import CALLS
from palladio.driver import executors
from palladio.driver.capture import prepared_programs
from palladio.library import gmm, matmul
from palladio.trace.debug import collected_checks
from palladio.types import dtypes

X = np.arange(4, dtype=np.float32)
OUT = pl.ShapeDtypeStruct((4,), np.float32)


def double(x_ref: Any, o_ref: Any) -> None:
    o_ref[...] = x_ref[...] * 2


def doubled(x: Any) -> Any:
    return pl.pallas_call(double, pl.ShapeDtypeStruct(x.shape, x.dtype))(x)


class Pair(NamedTuple):
    first: Any
    second: Any


@pytest.fixture(autouse=True)
def empty() -> None:
    CALLS.clear()


def staged_by(*calls: Callable[[], Any]) -> list[int]:
    counts = []
    for call in calls:
        with prepared_programs() as found:
            call()
        counts.append(len(found))
    return counts


def test_kernel_calls_and_array_functions_in_one() -> None:
    @pl.jit
    def function(x: Any, y: Any) -> Any:
        return jnp.maximum(doubled(x) + doubled(y * y), 3).sum()

    assert function(X, X) == np.maximum(2 * X + 2 * X * X, 3).sum()


def test_a_function_is_staged_once_for_its_shapes_and_dtypes() -> None:
    function = pl.jit(doubled)
    before = CALLS.prepared
    assert staged_by(lambda: function(X), lambda: function(X + 1)) == [1, 0]
    assert CALLS.prepared - before == 2  # the function, and the call inside it
    assert staged_by(lambda: function(X[:2]), lambda: function(X.astype(np.float16))) == [1, 1]
    assert function(X[:2]).tolist() == [0, 2]
    assert function(X.astype(np.float16)).dtype == np.float16


def test_a_closure_made_anew_is_not_staged_again() -> None:
    def scale(factor: float) -> Any:
        return pl.jit(lambda x: doubled(x) * factor)(X)

    assert staged_by(lambda: scale(2), lambda: scale(2), lambda: scale(3)) == [1, 0, 1]
    assert scale(3).tolist() == (X * 6).tolist()


FACTOR = 2.0


def test_a_changed_global_stages_again(monkeypatch: pytest.MonkeyPatch) -> None:
    staged = pl.jit(lambda x: x * FACTOR)
    for factor in (2.0, 2.0, 3.0, 2.0):
        monkeypatch.setitem(globals(), "FACTOR", factor)
        assert staged(X).tolist() == (X * factor).tolist()


def test_static_arguments_by_number_and_by_name() -> None:
    def function(x: Any, times: int, power: int = 1) -> Any:
        for _ in range(times):
            x = doubled(x)
        return x**power

    by_number = pl.jit(function, static_argnums=(1, 2))
    by_name = pl.jit(function, static_argnames=("times", "power"))
    from_the_end = pl.jit(lambda x, y, times: function(x + y, times), static_argnums=-1)
    assert by_number(X, 2, 1).tolist() == by_name(X, times=2).tolist() == (X * 4).tolist()
    assert by_name(X, 1, 2).tolist() == (X * X * 4).tolist()
    assert from_the_end(X, X, 3).tolist() == (X * 16).tolist()
    assert staged_by(lambda: by_number(X, 3, 1), lambda: by_number(X, 3, 1), lambda: by_number(X, 1, 1)) == [1, 0, 1]


def test_static_arguments_by_number_are_no_others_by_name() -> None:
    def shown(*args: Any, **kwargs: Any) -> Any:
        return jnp.full((), len(args)) + 0 * X[0]

    staged = pl.jit(shown, static_argnums=(0, 1), static_argnames=("a",))
    assert staged(1, a="b") == 1
    assert staged("a", "b") == 2


def test_as_a_decorator_with_arguments() -> None:
    @pl.jit(static_argnames="n", interpret=True)
    def function(x: Any, *, n: int) -> Any:
        """Multiplies."""
        return x * n

    assert function(X, n=3).tolist() == (X * 3).tolist()
    assert function.__name__ == "function"
    assert function.__doc__ == (None if sys.flags.optimize > 1 else "Multiplies.")


def test_arguments_and_results_are_pytrees() -> None:
    @pl.jit
    def function(x: Any, *, more: Any) -> Any:
        return {"sum": x["a"] + more[0].first, "rest": [doubled(more[0].second), None, (x["a"],)]}

    result = function({"a": X}, more=[Pair(X + 1, X + 2)])
    assert result["sum"].tolist() == (2 * X + 1).tolist()
    assert result["rest"][0].tolist() == (2 * X + 4).tolist()
    assert result["rest"][1] is None
    assert result["rest"][2][0].tolist() == X.tolist()


def test_scalar_arguments_are_weak() -> None:
    function = pl.jit(lambda x, y: x * y)
    assert function(X.astype(np.float16), 2.0).dtype == np.float16
    assert function(np.arange(3, dtype=np.int8), 2).dtype == np.int8
    assert function(X, np.float32(2)).dtype == np.float32
    assert staged_by(lambda: function(X, 2.0), lambda: function(X, 3.0)) == [1, 0]


@pytest.mark.parametrize("size", [4, 1 << 15], ids=["small", "large"])
def test_captured_arrays_are_taken_as_they_are_at_the_call(size: int) -> None:
    table = np.ones(size, np.float32)
    function = pl.jit(lambda x: x + table[:4])
    assert function(X).tolist() == (X + 1).tolist()
    table[:] = 5
    assert function(X).tolist() == (X + 5).tolist()


def test_a_captured_array_that_changes_does_not_change_one_of_the_same_content() -> None:
    first, second = np.ones(4, np.float32), np.ones(4, np.float32)

    def adding(table: np.ndarray) -> Any:
        return pl.jit(lambda x: x + table)(X)

    adding(first)
    first[:] = 7
    assert adding(second).tolist() == (X + 1).tolist()
    assert adding(first).tolist() == (X + 7).tolist()


def test_a_captured_array_of_no_axes_that_changes() -> None:
    factor = np.array(2, np.float32)
    function = pl.jit(lambda x: x * factor)
    for value in (2, 5, 2):
        factor[...] = value
        assert function(X).tolist() == (X * value).tolist()


def test_results_are_the_callers_own() -> None:
    table = np.ones(4, np.float32)
    scalar = np.array(3, np.float32)

    @pl.jit
    def function(x: Any) -> Any:
        y = x + 1
        return x, y, y, y.reshape(2, 2), table, scalar, 1.5

    results = function(X)
    for number, result in enumerate(results):
        assert result.flags.writeable
        assert result.flags.owndata
        for other in (X, table, scalar, *results[:number]):
            assert not np.shares_memory(result, other)
    for result in results:
        result[...] = 0
    assert function(X)[5:] == (3, 1.5)
    assert X.tolist() == [0, 1, 2, 3]


def test_staged_functions_call_each_other() -> None:
    inner = pl.jit(lambda x, n: doubled(x) * n, static_argnums=1)
    outer = pl.jit(lambda x: inner(x, 3) + inner(x, 1))
    assert staged_by(lambda: outer(X), lambda: outer(X)) == [1, 0]
    assert outer(X).tolist() == (X * 8).tolist()


def test_a_grid_from_a_traced_value() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] * pl.num_programs(0)

    @pl.jit
    def function(x: Any, count: Any) -> Any:
        spec = pl.BlockSpec((1,), lambda i: (i,))
        return pl.pallas_call(kernel, OUT, grid=(count.sum(),), in_specs=[spec], out_specs=spec)(x)

    def call(*count: int) -> list[float]:
        return np.nan_to_num(function(X, np.array(count, np.int64)), nan=-1).tolist()

    assert staged_by(lambda: call(1, 1), lambda: call(2, 1)) == [1, 0]
    assert call(1, 1) == [0, 2, -1, -1]
    assert call(2, 1) == [0, 3, 6, -1]


def test_a_kernel_call_of_constants_only() -> None:
    def kernel(o_ref: Any) -> None:
        o_ref[...] = jnp.arange(4, dtype=jnp.float32)

    assert pl.jit(lambda x: pl.pallas_call(kernel, OUT)() + x)(X).tolist() == (X + X).tolist()


def test_a_mixture_of_constants_and_traced_values() -> None:
    table = X * 10

    def kernel(x_ref: Any, y_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] + y_ref[...]

    assert pl.jit(lambda x: pl.pallas_call(kernel, OUT)(x, table))(X).tolist() == (X * 11).tolist()


def test_aliases_and_inputs_that_the_kernel_writes() -> None:
    def kernel(x_ref: Any, y_ref: Any, o_ref: Any) -> None:
        y_ref[...] = y_ref[...] * 2
        o_ref[...] += y_ref[...]

    @pl.jit
    def function(x: Any, y: Any) -> Any:
        return pl.pallas_call(kernel, OUT, input_output_aliases={0: 0})(x, y) + y

    y = X + 1
    assert function(X, y).tolist() == (X + 3 * (X + 1)).tolist()
    assert y.tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize("staged", [pl.jit, lambda function: pl.jit(function, interpret=True)])
def test_a_kernel_inside_may_request_the_checker(staged: Any) -> None:
    def racy(x_ref: Any, o_ref: Any) -> None:
        o_ref[0] = x_ref[pl.axis_index("thread")]

    @staged
    def function(x: Any) -> Any:
        params = plgpu.InterpretGPUParams(detect_races=True)
        return plgpu.kernel(racy, OUT, num_threads=2, thread_name="thread", interpret=params)(x) + 1

    with pytest.raises(pl.PalladioError, match="data-race"):
        function(X)


def test_grouped_and_plain_products_inside() -> None:
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(12, 8)).astype(np.float32), rng.normal(size=(3, 8, 6)).astype(np.float32)
    v, sizes = rng.normal(size=(6, 5)).astype(np.float32), np.array([5, 0, 7], np.int32)

    @pl.jit
    def function(x: Any, w: Any, v: Any, sizes: Any) -> Any:
        return matmul(gmm(x, w, sizes, tiling=(4, 8, 6)), v)

    expected = np.concatenate([x[:5] @ w[0], x[5:] @ w[2]]) @ v
    np.testing.assert_allclose(function(x, w, v, sizes), expected, rtol=1e-4, atol=1e-5)
    assert staged_by(lambda: function(x, w, v, sizes), lambda: function(x, w, v, sizes[::-1].copy())) == [0, 0]


def test_tensors_in_and_out() -> None:
    function = pl.jit(lambda x, y: (doubled(x), y.astype(jnp.float32)))
    first, second = function(torch.arange(4.0, dtype=torch.bfloat16), X.astype(np.float16))
    assert isinstance(first, torch.Tensor)
    assert first.dtype == torch.bfloat16
    assert first.tolist() == [0, 2, 4, 6]
    assert isinstance(second, torch.Tensor)


def test_a_tensor_may_be_captured_by_a_kernel_call() -> None:
    table = torch.arange(4.0)

    def kernel(x_ref: Any, y_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] + y_ref[...]

    function = pl.jit(lambda x: pl.pallas_call(kernel, OUT)(x, table))
    assert function(X).tolist() == (X + X).tolist()
    table += 1
    assert function(X).tolist() == (X + X + 1).tolist()


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=dtypes.short_name)
def test_every_dtype_goes_through(dtype: np.dtype) -> None:
    x = X.astype(dtype)
    first, second = pl.jit(lambda x: (x, x[::-1]))(x)
    assert (first.dtype, second.dtype) == (dtype, dtype)
    assert second.tolist() == x[::-1].tolist()


def test_methods_and_partial_results() -> None:
    class Model:
        def __init__(self, factor: float) -> None:
            self.factor = factor

        @pl.jit
        def scaled(x: Any) -> Any:  # type: ignore[misc]
            return x * 2

        def __call__(self, x: Any) -> Any:
            return doubled(x) * self.factor

    model = Model(2)
    function = pl.jit(model)
    assert function(X).tolist() == (X * 4).tolist()
    model.factor = 3
    assert function(X).tolist() == (X * 6).tolist()


def test_values_of_a_format_without_braces_are_printed_after_it(capsys: pytest.CaptureFixture[str]) -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        pl.debug_print("values", x_ref, x_ref[0])
        o_ref[...] = x_ref[...]

    pl.pallas_call(kernel, pl.ShapeDtypeStruct((2,), np.float32))(np.array([1, 2], np.float32))
    assert capsys.readouterr().out == "values [1. 2.] 1.0\n"


def test_debug_printing_happens_on_every_call(capsys: pytest.CaptureFixture[str]) -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        pl.debug_print("first {}", x_ref[0])
        o_ref[...] = x_ref[...]

    function = pl.jit(pl.pallas_call(kernel, OUT))
    function(X)
    function(X + 1)
    assert capsys.readouterr().out == "first 0.0\nfirst 1.0\n"


def test_a_long_function_holds_only_the_values_that_it_still_needs() -> None:
    @pl.jit
    def chain(x: Any) -> Any:
        for _ in range(50):
            x = x * 1.5 + 0.5
        return x

    x = np.ones(1 << 16, np.float32)
    chain(x)
    tracemalloc.start()
    try:
        chain(x)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 6 * x.nbytes


def test_a_call_object_that_is_used_meanwhile_is_the_same() -> None:
    call = pl.pallas_call(double, OUT)
    staged = pl.jit(lambda x: call(x) + 1)
    staged(X)
    call(X)
    assert staged_by(lambda: staged(X)) == [0]


def large(executor: str) -> tuple[Any, np.ndarray]:
    """A kernel call with a large result, and its argument."""
    x = np.ones((1024, 1024), np.float32)
    call = pl.pallas_call(double, pl.ShapeDtypeStruct(x.shape, x.dtype), interpret=executor)
    return call, x


def test_a_large_result_of_a_compiled_kernel_is_not_copied() -> None:
    call, x = large("cpu")
    staged = pl.jit(call, interpret="cpu")
    held = staged(x)  # it keeps its memory
    tracemalloc.start()
    result = staged(x)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.5 * x.nbytes
    assert result[0, 0] == held[0, 0] == 2


@pytest.mark.parametrize("executor", ["reference", "cpu"])
def test_results_in_one_memory_are_taken_apart(executor: str) -> None:
    call, x = large(executor)
    first, second, third = pl.jit(lambda x: (y := call(x), jnp.reshape(y, (-1,)), y), interpret=executor)(x)
    first[...] = 7
    second[0] = 8
    assert third[0, 0] == second[1] == 2


def test_a_function_staged_ahead_has_a_result_of_its_own() -> None:
    same = pl.jit(lambda x: x).ahead(pl.ShapeDtypeStruct((4,), np.float32))
    found = same(X)
    found[0] = 7
    assert X[0] == 0


def test_a_function_staged_ahead_takes_fewer_rows_and_gives_as_many() -> None:
    doubled_rows = pl.jit(lambda x: x * 2).ahead(pl.ShapeDtypeStruct((8, 2), np.float32))
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    assert doubled_rows(x, rows=3).tolist() == (x * 2).tolist()
    assert not doubled_rows(x)[3:].any()  # filled up with zeros
    assert doubled_rows(torch.from_numpy(x)).shape == (8, 2)
    out = np.empty((3, 2), np.float32)
    assert doubled_rows(x, rows=3, out=out) is out
    assert out.tolist() == (x * 2).tolist()


@pytest.mark.parametrize("x", [np.ones((9, 2), np.float32), np.ones((3, 3), np.float32), np.ones((3, 2))], ids=str)
def test_a_function_staged_ahead_takes_no_other_arrays(x: Any) -> None:
    doubled_rows = pl.jit(lambda x: x * 2).ahead(pl.ShapeDtypeStruct((8, 2), np.float32))
    with pytest.raises(pl.PalladioValueError, match="x: not an array that the function was staged for"):
        doubled_rows(x)
    with pytest.raises(pl.PalladioTypeError, match="another number of arrays than the function was staged for"):
        doubled_rows(x, x)


def test_a_function_staged_ahead_returns_several_arrays_in_its_own_structure() -> None:
    both = pl.jit(lambda x: {"twice": x * 2, "same": (x,)}).ahead(X)
    found = both(torch.from_numpy(X))
    assert found["twice"].tolist() == (X * 2).tolist() and found["same"][0].tolist() == X.tolist()
    for options, argument in (({"rows": 1}, "rows"), ({"out": X}, "out")):
        with pytest.raises(pl.PalladioTypeError) as raised:
            both(X, **options)
        rule = "a function staged ahead of several results takes neither out nor rows"
        assert str(raised.value).startswith(f"{argument}: {rule}")


def test_kept_calls_are_apart_for_each_executor_and_bounded() -> None:
    calls = pl.KeptCalls(capacity=2)
    with pl.executor("reference"):
        calls.keep("key", "evaluated")
        assert calls.find("key") == "evaluated"
    assert calls.find("key", interpret="cpu") is None
    calls.keep("key", "compiled", "cpu")
    calls.keep("another", "compiled", "cpu")
    assert calls.find("key", "reference") is None  # it made room
    assert calls.find(None) is None


def test_kept_calls_are_apart_for_each_described_tpu() -> None:
    calls = pl.KeptCalls()
    calls.keep("key", "undescribed")
    calls.keep_again((np.ones(2),), None, lambda x: "undescribed")
    with pltpu.described_tpu(pltpu.TpuInfo()):
        assert calls.find("key") is None
        assert calls.again((np.ones(2),)) is None
    assert calls.find("key") == calls.again((np.ones(2),)) == "undescribed"


@pytest.mark.parametrize(
    "change",
    [
        lambda patch: patch.setenv("PALLADIO_EXECUTOR", "reference"),
        lambda patch: patch.setenv("PALLADIO_DEBUG_CHECKS", "1"),
        lambda patch: patch.setenv("PALLADIO_NUM_THREADS", "3"),
        lambda patch: patch.setenv("PALLADIO_CPU", "portable"),
        lambda patch: patch.setitem(executors._forced, executors._FORCED, executors.REFERENCE),
        lambda patch: pl.executor("reference"),
        lambda patch: pl.enable_debug_checks(),
        lambda patch: plgpu.enable_hardware_limits(),
        lambda patch: changed(collected_checks, False),
    ],
)
def test_a_call_is_not_repeated_under_another_setting(change: Callable[[pytest.MonkeyPatch], Any]) -> None:
    calls = pl.KeptCalls()
    calls.keep_again((X,), None, lambda x: "kept")
    with pytest.MonkeyPatch.context() as patch:
        with change(patch) or nullcontext():
            assert calls.again((X,)) is None
            calls.keep_again((X,), None, lambda x: "kept here")
            assert calls.again((X,)) == "kept here"
    assert calls.again((X,)) is None


@contextmanager
def changed(variable: ContextVar[Any], value: Any) -> Iterator[None]:
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def test_no_call_is_kept_for_an_option_without_a_hash() -> None:
    calls = pl.KeptCalls()
    calls.keep_again((np.ones(2),), ([],), lambda x: x)
    assert calls.again((np.ones(2),), ([],)) is None


def test_a_kept_call_gets_only_an_array_for_its_result_that_it_can_write_to() -> None:
    calls, got = pl.KeptCalls(), list[Any]()
    x = np.ones(2, np.float32)
    calls.keep_again((x,), None, lambda x, out=None: got.append(out) or ("made" if out is None else out))
    out = np.zeros(2, np.float32)
    assert calls.again((x,)) == "made" and calls.again((x,), out=out) is out and got == [None, out]
    got.clear()
    fixed, unaligned = np.zeros(2, np.float32), np.zeros(9, np.int8)[1:].view(np.float32)
    fixed.flags.writeable = False
    for other in (x, x[1:], np.zeros(4, np.float32)[::2], fixed, unaligned, out.view(np.ma.MaskedArray), [0.0, 0.0]):
        assert calls.again((x,), out=other) is None
    assert not got and not out.any() and not unaligned.any()


def test_a_static_argument_by_number_may_be_passed_by_keyword() -> None:
    @functools.partial(pl.jit, static_argnums=1)
    def zeros(x: Any, shape: tuple[int, ...]) -> Any:
        return jnp.zeros(shape, x.dtype)

    assert zeros(np.float32(1), shape=(2, 3)).shape == zeros(np.float32(1), (2, 3)).shape == (2, 3)
