"""What a kernel reads of the arrays, tensors and objects around it is in its key; the rest of them is not."""

from __future__ import annotations

import types
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import palladio as pl
from palladio.call.staged import CALLS
from palladio.driver.captures import reads

X = np.arange(6, dtype=np.float32).reshape(2, 3)
OUT = pl.ShapeDtypeStruct(X.shape, X.dtype)
LARGE = np.zeros(1 << 16, np.float32)

mean = torch.ones(1 << 16)
"""A global with the name of a method that the kernels below call."""


def traced(call: Callable[[], Any], times: int = 3) -> int:
    before = CALLS.prepared
    for _ in range(times):
        call()
    return CALLS.prepared - before


@pytest.fixture(autouse=True)
def empty() -> None:
    CALLS.clear()


def less_mean(x_ref: Any, o_ref: Any) -> None:
    o_ref[...] = x_ref[...] - x_ref[...].mean(-1, keepdims=True)


def test_a_global_with_the_name_of_an_attribute_is_not_read() -> None:
    call = pl.pallas_call(less_mean, OUT)
    assert traced(lambda: call(X)) == 1
    np.testing.assert_allclose(call(X), X - X.mean(-1, keepdims=True), rtol=1e-6)


def divided(captured: Any) -> Any:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] / captured.shape[-1]

    return pl.pallas_call(kernel, OUT)(X)


@pytest.mark.parametrize("make", [np.ones, torch.ones], ids=["numpy", "torch"])
def test_an_array_captured_for_its_shape_is_keyed_by_it(make: Any) -> None:
    large = make((512, 512))
    assert traced(lambda: divided(large)) == 1
    assert traced(lambda: divided(make((512, 512)))) == 0
    assert traced(lambda: divided(make((512, 256)))) == 1
    assert divided(make((512, 256)))[0, 1] == np.float32(1 / 256)


def test_a_tensor_that_grows_in_place_is_seen() -> None:
    tensor = torch.ones(1 << 16)

    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] * tensor.ndim

    call = pl.pallas_call(kernel, OUT)
    assert call(X)[0, 1] == 1
    tensor.resize_(256, 256)
    assert call(X)[0, 1] == 2


@pytest.mark.parametrize("values", [np.array([2.0, 3.0]), torch.tensor([2.0, 3.0])], ids=["numpy", "torch"])
def test_a_small_array_is_keyed_by_its_elements(values: Any) -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] * float(values[1])

    call = pl.pallas_call(kernel, OUT)
    assert traced(lambda: call(X)) == 1
    values[1] = 5
    assert call(X)[0, 1] == 5


def test_of_a_module_only_the_fields_that_are_read_are_compared() -> None:
    layer = torch.nn.LayerNorm(512 * 512)

    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] + layer.eps

    call = pl.pallas_call(kernel, OUT)
    assert traced(lambda: call(X)) == 1
    layer.eps = 2.0
    assert call(X)[0, 1] == 3


def test_a_method_is_keyed_by_the_fields_that_it_reads() -> None:
    class Layer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(1 << 16))
            self.scale = 2.0

        def kernel(self, x_ref: Any, o_ref: Any) -> None:
            o_ref[...] = x_ref[...] * self.scale

    layer = Layer()
    call = pl.pallas_call(layer.kernel, OUT)
    assert traced(lambda: call(X)) == 1
    layer.scale = 3.0
    assert call(X)[0, 1] == 3


def test_a_field_behind_a_property_is_read_through_it() -> None:
    class Settings:
        def __init__(self) -> None:
            self.kept = 2

        @property
        def factor(self) -> int:
            return self.kept

    settings = Settings()
    settings.__dict__["factor"] = 7  # the property stands before it

    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] * settings.factor

    call = pl.pallas_call(kernel, OUT)
    assert call(X)[0, 1] == 2
    settings.kept = 3
    assert call(X)[0, 1] == 3


def test_a_global_that_is_read_by_its_name_as_text_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "factor", 2)

    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] * globals()["factor"]

    call = pl.pallas_call(kernel, OUT)
    assert call(X)[0, 1] == 2
    monkeypatch.setitem(globals(), "factor", 3)
    assert call(X)[0, 1] == 3


def test_a_capture_that_cannot_be_compared_is_named_once_on_the_third_trace() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] + float(LARGE[0])

    call = pl.pallas_call(kernel, OUT)
    call(X)
    call(X)
    with pytest.warns(pl.RetracedWarning) as warned:
        call(X)
    assert [str(each.message) for each in warned] == [
        "kernel is traced again on every call, because it captures LARGE, an array of shape (65536,), whose content "
        "is not compared between calls; pass it as an argument, or compute what is needed of it outside of the kernel"
    ]
    assert warned[0].filename == __file__
    assert warned[0].lineno == kernel.__code__.co_firstlineno
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        call(X)


def largest() -> float:
    return float(LARGE.max())


def test_the_helper_that_reads_the_capture_is_named() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] + largest()

    function = pl.jit(pl.pallas_call(kernel, OUT))
    function(X)
    function(X)
    with pytest.warns(pl.RetracedWarning, match=r"captures LARGE, an array of shape \(65536,\) \(read by largest\)"):
        function(X)


def test_a_launch_that_is_traced_again_says_so() -> None:
    import palladio.gpu as plgpu

    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] + float(LARGE[0])

    call = plgpu.kernel(body, OUT)
    call(X)
    call(X)
    with pytest.warns(pl.RetracedWarning, match="body is traced again on every call, because it captures LARGE"):
        call(X)


def read_in_many_ways(x: Any, y: Any) -> Any:
    def inner() -> Any:
        return x.shape, y

    return inner, x.dtype, [x.ndim for _ in y], mean.numel()


def test_the_attributes_that_code_reads_of_its_variables() -> None:
    found = reads(read_in_many_ways.__code__)
    assert found.globals == ("mean",)
    assert {"shape", "dtype", "ndim", "numel"} <= set(found.attributes)
    assert found.variables["mean"] == {"numel"}
    assert found.variables["x"] == {"shape", "dtype", "ndim"}
    assert found.variables["y"] is None
    assert found.first == {"shape", "dtype", "ndim"}


def test_a_variable_that_is_returned_is_read_whole() -> None:
    module = types.ModuleType("module")
    exec("def function(self, n):\n    self.count\n    return self if n else module.count", module.__dict__)
    found = reads(module.function.__code__)
    assert found.first is None
    assert found.variables == {"module": {"count"}}


def test_an_assertion_that_pytest_rewrote_captures_nothing() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        assert x_ref.shape == o_ref.shape  # pytest's comparison, whose globals hold the test that runs
        o_ref[...] = x_ref[...]

    assert traced(lambda: pl.pallas_call(kernel, pl.ShapeDtypeStruct.like(X))(X)) == 1
