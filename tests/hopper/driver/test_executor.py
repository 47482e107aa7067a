"""Kernels called with arrays of a card run there, by the same call as anywhere."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
import torch

import palladio as pl
import palladio.gpu as plgpu
import palladio.tpu as pltpu
from palladio.base.errors import PalladioError, PalladioNotImplementedError
from palladio.call.staged import CALLS
from palladio.hopper.launch.driver import CardError
from palladio.library import hopper
from tests.hopper.driver.fake import ILLEGAL_ADDRESS, FakeDriver
from tests.hopper.driver.stand_ins import (
    Exchanged,
    Interfaced,
    OnSecond,
    Torch,
    imitated_cupy,
    imitated_jax,
    numpy_of,
)
from tests.hopper.kernels import BF16, F32, error, normal

pytestmark = pytest.mark.usefixtures("known_kernels")


def double(x: Any, out: Any) -> None:
    out[...] = x[...] + x[...]


def doubled(**options: Any) -> Any:
    return pl.pallas_call(double, pl.ShapeDtypeStruct((4, 32), F32), **options)


X = np.arange(128, dtype=F32).reshape(4, 32)


def lines(call: Any) -> list[str]:
    with pytest.raises(PalladioError) as caught:
        call()
    return [line.strip() for line in str(caught.value).splitlines()]


def test_a_kernel_runs_where_its_arrays_live(card: FakeDriver, cuda: Torch) -> None:
    result = doubled()(cuda.tensor(X))
    assert result.is_cuda and not card.failures
    assert np.array_equal(numpy_of(result), 2 * X)
    assert isinstance(doubled()(X), np.ndarray)
    assert not isinstance(doubled()(torch.from_numpy(X)), type(result))


def test_a_library_function_runs_where_its_arrays_live(card: FakeDriver, cuda: Torch) -> None:
    x, y = normal(128, 64), normal(64, 256)
    result = hopper.matmul(cuda.tensor(x), cuda.tensor(y))
    assert result.dtype is torch.bfloat16
    assert error(numpy_of(result), x.astype(np.float64) @ y.astype(np.float64)) < 4e-3


def test_the_callers_stream_is_used(card: FakeDriver, cuda: Torch) -> None:
    call, x = doubled(), cuda.tensor(X)
    call(x)
    cuda.stream = 1
    card.calls()
    call(x)
    assert [line.rpartition(" ")[2] for line in card.calls() if "Launch" in line] == ["stream=0x1"]


def test_a_call_waits_for_nothing(card: FakeDriver, cuda: Torch) -> None:
    call, x = doubled(), cuda.tensor(X)
    call(x)
    card.calls()
    call(x)
    names = {line.partition(" ")[0] for line in card.calls()}
    assert names <= {"cuLaunchKernelEx", "cuTensorMapReplaceAddress", "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2"}


def test_arrays_of_cupy(card: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    array = imitated_cupy(card, monkeypatch)
    result = doubled()(array(X))
    assert type(result).__module__ == "cupy"
    assert np.array_equal(result.held, 2 * X)


def test_arrays_with_the_interface_get_results_of_torch(card: FakeDriver, cuda: Torch) -> None:
    result = doubled()(Interfaced(card.on_card(X)))
    assert result.is_cuda and np.array_equal(numpy_of(result), 2 * X)


def test_arrays_of_jax_are_complete_before_and_after(card: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    array = imitated_jax(card, monkeypatch)
    call, x = doubled(), array(X)
    assert np.array_equal(call(x).held, 2 * X)
    card.calls()
    call(x)
    made = [line.partition(" ")[0] for line in card.calls()]
    assert made.index("cuLaunchKernelEx") < made.index("cuStreamSynchronize")


def test_arrays_of_the_host_are_copied_there_and_back_by_name(card: FakeDriver) -> None:
    result = doubled(interpret="hopper")(X)
    assert isinstance(result, np.ndarray) and np.array_equal(result, 2 * X)
    made = [line.partition(" ")[0] for line in card.calls()]
    assert made.count("cuMemAlloc_v2") == made.count("cuMemFree_v2") == 2


def test_views_are_made_dense_and_aligned(card: FakeDriver, cuda: Torch) -> None:
    wide = cuda.tensor(np.arange(257, dtype=F32))
    shifted = wide[1:129].view(4, 32)
    assert np.array_equal(numpy_of(doubled()(shifted)), 2 * (X + 1))


def test_results_go_where_the_caller_wants_them(card: FakeDriver, cuda: Torch) -> None:
    out = cuda.tensor(np.zeros((4, 32), F32))
    assert doubled()(cuda.tensor(X), out=out) is out
    assert np.array_equal(numpy_of(out), 2 * X)


def test_a_concurrent_kernel_writes_to_the_callers_array(card: FakeDriver, cuda: Torch) -> None:
    call = plgpu.kernel(double, pl.ShapeDtypeStruct((4, 32), F32))
    out = cuda.tensor(np.zeros((4, 32), F32))
    assert call(cuda.tensor(X), out=out) is out
    assert np.array_equal(numpy_of(out), 2 * X)


def test_an_output_that_starts_as_an_input_leaves_it_alone(card: FakeDriver, cuda: Torch) -> None:
    def add_one(x: Any, out: Any) -> None:
        out[...] = out[...] + 1

    x = cuda.tensor(X)
    call = pl.pallas_call(add_one, pl.ShapeDtypeStruct((4, 32), F32), input_output_aliases={0: 0})
    assert np.array_equal(numpy_of(call(x)), X + 1)
    assert np.array_equal(numpy_of(x), X)
    assert call(x, out=x) is x
    assert np.array_equal(numpy_of(x), X + 1)


def test_an_input_that_is_the_output_too_keeps_its_values(card: FakeDriver, cuda: Torch) -> None:
    def reversed_rows(x: Any, out: Any) -> None:
        for row in range(4):
            out[row] = x[3 - row] + 1

    x = cuda.tensor(X)
    call = pl.pallas_call(reversed_rows, pl.ShapeDtypeStruct((4, 32), F32), input_output_aliases={0: 0})
    for _ in range(2):
        before = numpy_of(x).copy()
        assert np.array_equal(numpy_of(call(x)), before[::-1] + 1)
        assert np.array_equal(numpy_of(x), before)
        assert call(x, out=x) is x
        assert np.array_equal(numpy_of(x), before[::-1] + 1)
    assert not card.failures


@pytest.mark.parametrize("where", ["constant order", "all on the host"])
def test_blocks_of_an_aliased_input_are_named_in_steps_that_follow_each_other(
    card: FakeDriver, cuda: Torch, where: str
) -> None:
    def ten_times(order: Any, x: Any, out: Any) -> None:
        out[...] = x[...] * 10

    row = pl.BlockSpec((1, 32), lambda i, order: (order[i], 0))
    spec = pltpu.PrefetchScalarGridSpec(1, (4,), [row], row)
    call = pl.pallas_call(
        ten_times,
        pl.ShapeDtypeStruct((4, 32), F32),
        grid_spec=spec,
        input_output_aliases={1: 0},
        interpret="hopper",
    )

    def in_order(*order: int) -> np.ndarray:
        if where == "all on the host":
            return call(np.int32(order), X)
        return numpy_of(pl.jit(lambda x: call(np.int32(order), x))(cuda.tensor(X)))

    expected = X.copy()
    expected[[0, 1, 3]] *= 10
    assert np.array_equal(in_order(3, 3, 0, 1), expected)
    with pytest.raises(PalladioNotImplementedError, match="blocks of x that are fetched after stores to its alias"):
        in_order(2, 2, 0, 2)
    assert not card.failures


@pytest.mark.parametrize("where", ["on the host", "on the card"])
def test_a_grid_known_at_the_call(card: FakeDriver, cuda: Torch, where: str) -> None:
    size = np.array(2, np.int32) if where == "on the host" else cuda.tensor(np.array(2, np.int32))
    block = pl.BlockSpec((2, 32), lambda i: (i, 0))
    shape = pl.ShapeDtypeStruct((6, 32), F32)
    call = pl.pallas_call(double, shape, grid=(size,), in_specs=[block], out_specs=block)
    result = numpy_of(call(cuda.tensor(np.concatenate([X, X[:2]]))))
    assert np.array_equal(result[:4], 2 * X) and not card.failures


def plus_captured(amount: Any, x: Any) -> Any:
    def body(x: Any, out: Any) -> None:
        out[...] = x[...] + amount.astype(F32)

    return plgpu.kernel(body, pl.ShapeDtypeStruct(x.shape, F32))(x)


def test_a_captured_number_of_the_host_takes_no_copy(card: FakeDriver, cuda: Torch) -> None:
    call, x = pl.jit(plus_captured), cuda.tensor(X)
    for amount in (3, 4):
        card.calls()
        assert np.array_equal(numpy_of(call(np.int32(amount), x)), X + amount)
        made = [line.partition(" ")[0] for line in card.calls()]
        assert "cuLaunchKernelEx" in made and not [each for each in made if "Memcpy" in each or "Synchronize" in each]
    assert not card.failures


def test_zeros_of_both_signs_are_two_numbers(card: FakeDriver, cuda: Torch) -> None:
    def times_captured(amount: Any, x: Any) -> Any:
        def body(x: Any, out: Any) -> None:
            out[...] = x[...] * amount

        return plgpu.kernel(body, pl.ShapeDtypeStruct(x.shape, F32))(x)

    x, out = cuda.tensor(X), cuda.tensor(np.zeros((4, 32), F32))
    call = pl.jit(times_captured).ahead(np.float32(1), x)
    for amount in (0.0, -0.0):
        found = numpy_of(call(np.float32(amount), x, out=out))
        assert np.array_equal(np.signbit(found), np.full(X.shape, np.signbit(amount)))


def test_a_kept_call_with_a_number_is_prepared_once(
    card: FakeDriver, cuda: Torch, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = cuda.tensor(X)
    call = pl.jit(lambda x, amount: plus_captured(amount, x)).ahead(x, np.float32(1))
    call(x, np.float32(1))
    run = call._run
    monkeypatch.setattr(type(run), "__call__", lambda *_: pytest.fail("the slow path"))
    card.calls()
    out = cuda.tensor(np.zeros_like(X))
    for amount in (np.float32(2), np.array(-3, F32)):
        assert np.array_equal(numpy_of(call(x, amount)), X + amount)
        assert call(x, amount, out=out) is out and np.array_equal(numpy_of(out), X + amount)
    made = [line.partition(" ")[0] for line in card.calls()]
    assert made.count("cuLaunchKernelEx") == 4 and not any("Memcpy" in name for name in made)


def test_numbers_of_other_types_are_checked_as_before(card: FakeDriver, cuda: Torch) -> None:
    x = cuda.tensor(X)
    call = pl.jit(lambda x, amount: plus_captured(amount, x)).ahead(x, np.float32(1))
    for amount in (2.5, np.float64(2.5), cuda.tensor(np.array(2.5, F32))):
        assert np.array_equal(numpy_of(call(x, amount)), X + 2.5)
    assert lines(lambda: call(x, 3))[0] == "amount: not an array that the function was staged for"


def test_a_captured_number_of_the_card_is_copied_back(card: FakeDriver, cuda: Torch) -> None:
    amount = cuda.tensor(np.array(3, np.int32))
    assert np.array_equal(numpy_of(pl.jit(plus_captured)(amount, cuda.tensor(X))), X + 3)
    assert any("cuMemcpyDtoH" in line for line in card.calls())


# Calls kept by their callers.


def kept(cuda: Torch, x: np.ndarray) -> Any:
    return pl.jit(doubled()).ahead(cuda.tensor(x))


def test_a_kept_call_is_one_allocation_and_one_launch(card: FakeDriver, cuda: Torch) -> None:
    call, x, out = kept(cuda, X), cuda.tensor(X), cuda.tensor(np.zeros((4, 32), F32))
    call(x, out=out)
    card.calls()
    cuda.allocated = 0
    assert call(x, out=out) is out
    assert [line.partition(" ")[0] for line in card.calls()] == ["cuLaunchKernelEx"]
    assert cuda.allocated == 0
    result = call(x)
    assert cuda.allocated == 1 and np.array_equal(numpy_of(result), 2 * X)


def test_a_kept_call_takes_the_longer_way_for_a_view(card: FakeDriver, cuda: Torch) -> None:
    call, wide = kept(cuda, X), cuda.tensor(np.arange(257, dtype=F32))
    assert np.array_equal(numpy_of(call(wide[1:129].view(4, 32))), 2 * (X + 1))


def test_a_kept_call_refuses_what_it_was_not_staged_for(card: FakeDriver, cuda: Torch) -> None:
    call = kept(cuda, X)
    assert lines(lambda: call(cuda.tensor(X[:2])))[:3] == [
        "args[0]: not an array that the function was staged for",
        "expected: f32[4,32]",
        "got:      f32[2,32]",
    ]
    x = cuda.tensor(X)
    assert lines(lambda: call(x, out=x))[0] == "out: overlaps an input"


def test_calls_are_kept_apart_for_host_and_card(card: FakeDriver, cuda: Torch) -> None:
    calls, x = pl.KeptCalls(), cuda.tensor(X)
    calls.keep("key", "on the card", None, [x])
    assert calls.find("key", None, [x]) == "on the card"
    assert calls.find("key", None, [X]) is None


# Refusals.


def test_arrays_in_two_memories(card: FakeDriver, cuda: Torch) -> None:
    def add(x: Any, y: Any, out: Any) -> None:
        out[...] = x[...] + y[...]

    call = pl.pallas_call(add, pl.ShapeDtypeStruct((4, 32), F32))
    assert lines(lambda: call(cuda.tensor(X), X))[:3] == [
        "args[1] (y): the array is in host memory, others of the call on a GPU",
        "got:      ndarray",
        "hint:     move it to cuda:0",
    ]
    assert lines(lambda: call(cuda.tensor(X), cuda.tensor(X, OnSecond)))[:3] == [
        "args[1] (y): the arrays of a call are on one GPU",
        "expected: cuda:0",
        "got:      cuda:1",
    ]


def test_an_executor_of_the_host_refuses_arrays_of_a_card(card: FakeDriver, cuda: Torch) -> None:
    assert lines(lambda: doubled(interpret="cpu")(cuda.tensor(X)))[:3] == [
        "args[0] (x): the tensor is not in host memory",
        "got:      cuda:0",
        "hint:     tensor.cpu()",
    ]


def test_a_gradient_would_be_lost(card: FakeDriver, cuda: Torch) -> None:
    x = cuda.tensor(X).requires_grad_()
    assert lines(lambda: doubled()(x))[0] == "args[0] (x): the gradient of the tensor would be lost"


def test_a_tangent_would_be_lost(card: FakeDriver, cuda: Torch) -> None:
    call = doubled()
    x = cuda.tensor(X)
    call(x)
    with torch.autograd.forward_ad.dual_level():
        call(x)  # without a tangent
        dual = torch.autograd.forward_ad.make_dual(x, cuda.tensor(X))
        assert lines(lambda: call(dual))[:2] == [
            "args[0] (x): the gradient of the tensor would be lost",
            "got:      a tensor with a tangent",
        ]


def test_arrays_with_gaps_of_another_library(card: FakeDriver, cuda: Torch) -> None:
    gaps = Interfaced(card.on_card(X), strides=(256, 4))
    assert lines(lambda: doubled()(gaps))[:2] == [
        "args[0] (x): the array is not in row-major order without gaps",
        "got:      strides of (256, 4) bytes",
    ]
    held = card.on_card(np.zeros(132, F32))
    shifted = Interfaced(held[1:129].reshape(4, 32))
    assert lines(lambda: doubled()(shifted))[0] == "args[0] (x): the array is not aligned to 16 bytes"


def test_an_output_that_is_not_dense(card: FakeDriver, cuda: Torch) -> None:
    out = cuda.tensor(np.zeros((4, 64), F32))[:, :32]
    assert lines(lambda: doubled()(cuda.tensor(X), out=out))[0] == (
        "out: the array is not in row-major order without gaps, from a multiple of 16 bytes on"
    )


def test_arrays_of_jax_are_not_written_to(card: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    array = imitated_jax(card, monkeypatch)
    assert lines(lambda: doubled()(array(X), out=array(X)))[:2] == [
        "out: arrays of JAX cannot be written to",
        "got:      a JAX array",
    ]


def test_libraries_that_do_not_allocate_need_one_that_does(card: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    held = card.on_card(X)
    monkeypatch.delitem(sys.modules, "torch")
    assert lines(lambda: doubled()(Interfaced(held)))[:3] == [
        "results of arrays that only have __cuda_array_interface__ are allocated by PyTorch or CuPy",
        "got:      neither is imported",
        "hint:     import torch",
    ]
    assert lines(lambda: doubled()(Exchanged(None)))[:3] == [
        "args[0] (x): an array on a GPU that has only DLPack is read through PyTorch or CuPy",
        "got:      Exchanged",
        "hint:     import torch, or give the array __cuda_array_interface__",
    ]


def test_functions_between_kernels_are_not_computed_on_a_card(card: FakeDriver, cuda: Torch) -> None:
    call = doubled()

    @pl.jit
    def twice(x: Any) -> Any:
        return call(call(x) * 2)

    assert lines(lambda: twice(cuda.tensor(X)))[:2] == [
        "mul between the kernels of a program is not computed on a GPU",
        "hint:     call each kernel by itself, and do the rest with the library of the arrays",
    ]

    @pl.jit
    def chain(x: Any) -> Any:
        return call(call(x))

    assert np.array_equal(numpy_of(chain(cuda.tensor(X))), 4 * X)


def test_an_error_of_the_driver_has_the_line_of_the_call(card: FakeDriver, cuda: Torch) -> None:
    card.fail("cuLaunchKernelEx", ILLEGAL_ADDRESS)
    with pytest.raises(CardError) as caught:
        doubled()(cuda.tensor(X))
    assert "doubled()(cuda.tensor(X))" in str(caught.value)


def test_results_without_elements(card: FakeDriver, cuda: Torch) -> None:
    result = hopper.matmul(cuda.tensor(np.zeros((0, 64), BF16)), cuda.tensor(np.zeros((64, 64), BF16)))
    assert tuple(result.shape) == (0, 64)


# The library, whose calls are kept.


def matmul_calls(cuda: Torch) -> tuple[Any, tuple[Any, ...], np.ndarray]:
    x, y = normal(128, 64), normal(64, 256)
    return hopper.matmul, (cuda.tensor(x), cuda.tensor(y)), x.astype(np.float64) @ y.astype(np.float64)


def gmm_calls(cuda: Torch) -> tuple[Any, tuple[Any, ...], np.ndarray]:
    lhs, rhs, sizes = normal(128, 64), normal(2, 64, 128), np.int32([50, 78])
    wanted = np.concatenate([lhs[:50].astype(np.float64) @ rhs[0], lhs[50:].astype(np.float64) @ rhs[1]])
    return hopper.gmm, (cuda.tensor(lhs), cuda.tensor(rhs), cuda.tensor(sizes)), wanted


@pytest.mark.parametrize("calls", [matmul_calls, gmm_calls])
def test_a_second_call_of_the_library_is_one_launch(card: FakeDriver, cuda: Torch, calls: Any) -> None:
    function, arguments, wanted = calls(cuda)
    function(*arguments)
    function(*arguments)
    card.calls()
    prepared = CALLS.prepared
    result = function(*arguments)
    made = {line.partition(" ")[0] for line in card.calls()}
    assert "cuLaunchKernelEx" in made and made <= {
        *("cuLaunchKernelEx", "cuTensorMapReplaceAddress", "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2")
    }
    assert CALLS.prepared == prepared
    assert error(numpy_of(result), wanted) < 4e-3


def test_attention_of_several_heads_is_kept(card: FakeDriver, cuda: Torch) -> None:
    q, k, v = (cuda.tensor(normal(1, 2, 64, 64, seed=seed)) for seed in range(3))
    first, second = hopper.attention(q, k, v), hopper.attention(q, k, v)
    assert tuple(second.shape) == (1, 2, 64, 64)
    assert np.array_equal(numpy_of(first), numpy_of(second)) and not card.failures


def test_group_sizes_on_a_gpu_are_not_looked_at(card: FakeDriver, cuda: Torch) -> None:
    lhs, rhs = cuda.tensor(normal(128, 64)), cuda.tensor(normal(2, 64, 128))
    assert lines(lambda: hopper.gmm(lhs, rhs, cuda.tensor(np.int64([50, 78]))))[:3] == [
        "group_sizes: group sizes on a GPU are int32",
        "got:      int64",
        "hint:     group_sizes.int() in PyTorch, group_sizes.astype('int32') elsewhere",
    ]
    assert pl.is_on_gpu(lhs) and not pl.is_on_gpu(X)
