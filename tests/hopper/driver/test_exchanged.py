"""Kept calls of tensors by the functions of C that PyTorch exports: tensors of the host take the place of a card's."""

from __future__ import annotations

import ctypes
import dataclasses
import threading
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

import palladio as pl
import palladio.gpu as plgpu
from palladio.array import on_card
from palladio.base.errors import PalladioError
from palladio.call.jit import jit
from palladio.driver.executors import EXECUTORS, force
from palladio.hopper.launch.calls import KeptCall, KernelCall
from palladio.hopper.launch.driver import CardError, driver
from palladio.library import gmm, hopper, matmul
from palladio.library.card_calls import KEPT
from palladio.library.staging import forget_calls
from tests.hopper.driver.fake import FakeDriver
from tests.hopper.driver.stand_ins import numpy_of, own_all_memory
from tests.hopper.kernels import error, normal

pytestmark = pytest.mark.usefixtures("known_kernels", "host_is_card")
M, K, N = 96, 64, 128


@pytest.fixture
def host_is_card(card: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """All memory of the process is the card's, for PyTorch, for its functions of C, and for the driver."""
    own_all_memory(card, monkeypatch, stream=0)
    known = driver()
    with known.current(known.hopper(0)):
        yield
    card.library.fake_abandon(1 << 12)
    on_card._torch_exchange.cache_clear()
    forget_calls()


def tensor(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(array.astype(np.float32)).to(torch.bfloat16)


def operands() -> tuple[torch.Tensor, torch.Tensor]:
    return tensor(normal(M, K)), tensor(normal(K, N))


def launches(card: FakeDriver) -> int:
    return sum(line.startswith("cuLaunchKernelEx") for line in card.calls())


@pytest.fixture
def longer(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The arrays that Python has looked at."""
    found: list[Any] = []
    library = on_card.LIBRARIES["torch"]
    read = library.facts

    def noted(tensors: Any) -> Any:
        found.append(tensors)
        return read(tensors)  # type: ignore[misc]

    monkeypatch.setitem(vars(library), "facts", noted)
    return found


def product(x: torch.Tensor, y: torch.Tensor) -> np.ndarray:
    return x.double().detach().numpy() @ y.double().detach().numpy()


def right(found: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> bool:
    assert found.dtype == x.dtype and found.shape == (x.shape[0], y.shape[1])
    return error(numpy_of(found), product(x, y)) < 5e-3


@pytest.mark.parametrize("call", [hopper.matmul, matmul])
def test_a_later_call_is_one_function_that_launches(
    call: Callable[..., Any], card: FakeDriver, longer: list[Any]
) -> None:
    x, y = operands()
    assert right(call(x, y), x, y)
    assert right(call(x, y), x, y)
    longer.clear()
    card.calls()
    other = tensor(normal(M, K, seed=1))
    results = [call(each, y) for each in (x, other, x)]
    assert launches(card) == 3 and not longer and not card.failures
    assert all(right(*each, y) for each in zip(results, (x, other, x), strict=True))
    assert len({each.data_ptr() for each in results}) == 3


def test_a_staged_function_and_its_result_of_pytorchs_allocator(card: FakeDriver, longer: list[Any]) -> None:
    x, y = operands()
    kept = jit(hopper.matmul).ahead(x, y)
    first = kept(x, y)
    longer.clear()
    found = kept(x, y)
    assert type(found) is torch.Tensor and not found.requires_grad and found.is_contiguous() and not longer
    assert torch.equal(found, first)
    del first
    found += 1  # its memory is its own
    # Foreign memory has no size that PyTorch may change, and no streams that PyTorch waits for before it is used again.
    assert found.untyped_storage().resizable() and not card.failures


def changed(name: str, x: torch.Tensor) -> torch.Tensor:
    """A tensor with the values of another, of which a call that was kept for that one cannot be made."""
    if name == "strides":
        return x.T.contiguous().T
    if name == "alignment":
        return torch.cat([x.new_zeros(1), x.flatten()])[1:].view(x.shape)
    if name == "class":
        return x.as_subclass(type("Named", (torch.Tensor,), {}))
    return {"rows": x[: M - 2], "dtype": x.half()}[name]


@pytest.mark.parametrize("name", ["strides", "alignment", "class", "rows", "dtype"])
def test_other_tensors_take_the_longer_way(name: str, card: FakeDriver, longer: list[Any]) -> None:
    x, y = operands()
    for _ in range(2):
        hopper.matmul(x, y)
    longer.clear()
    given = changed(name, x)
    other = y.half() if name == "dtype" else y
    found = hopper.matmul(given, other)
    assert longer and right(found, given, other)
    longer.clear()
    assert right(hopper.matmul(x, y), x, y) and not card.failures


def test_a_tensor_whose_memory_was_freed_is_not_launched_with(card: FakeDriver) -> None:
    x, y = operands()
    for _ in range(2):
        hopper.matmul(x, y)
    card.calls()
    for argument, given in ("x", (x.clone(), y)), ("y", (x, y.clone())):
        given["xy".index(argument)].untyped_storage().resize_(0)
        assert on_card.LIBRARIES["torch"].facts(given) is None  # type: ignore[misc]
        with pytest.raises(pl.PalladioValueError, match="the memory of the tensor was freed") as caught:
            hopper.matmul(*given)
        assert caught.value.argument == argument
    assert launches(card) == 0 and not card.failures


def test_a_gradient_that_is_wanted_is_not_lost_in_a_later_call(longer: list[Any]) -> None:
    x, y = operands()
    y = torch.nn.Parameter(y)
    with torch.no_grad():
        for _ in range(2):
            hopper.matmul(x, y)
        longer.clear()
        assert right(hopper.matmul(x, y), x, y) and not longer
    with pytest.raises(PalladioError, match="the gradient of the tensor would be lost"):
        hopper.matmul(x, y)


@pytest.mark.parametrize("call", [hopper.matmul, matmul])
def test_a_tangent_is_not_lost_in_a_later_call(call: Callable[..., Any], longer: list[Any]) -> None:
    x, y = operands()
    for _ in range(2):
        call(x, y)
    with torch.autograd.forward_ad.dual_level():
        with pytest.raises(PalladioError, match="the gradient of the tensor would be lost"):
            call(torch.autograd.forward_ad.make_dual(x, x), y)
        assert right(call(x, y), x, y)
    longer.clear()
    assert right(call(x, y), x, y) and not longer


def test_one_group_is_not_a_part_of_a_complex_number(longer: list[Any]) -> None:
    x, y = operands()
    sizes = torch.tensor([M], dtype=torch.int32)
    results = [gmm(x, y[None].contiguous(), sizes) for _ in range(3)]
    assert all(right(each, x, y) for each in results)


def doubled(x: Any) -> Any:
    def body(x: Any, out: Any) -> None:
        out[...] = x[...] + x[...]

    return plgpu.kernel(body, pl.ShapeDtypeStruct(x.shape, x.dtype))(x)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64], ids=str)
def test_a_part_of_a_complex_number_may_be_lazily_negated(longer: list[Any], dtype: torch.dtype) -> None:
    plain = torch.tensor([3], dtype=dtype)
    negated = torch._neg_view(plain)
    kept = jit(doubled).ahead(plain)
    for given, wanted in ((plain, 6), (plain, 6), (negated, -6)):
        longer.clear()
        assert kept(given).tolist() == [wanted] and longer


def test_a_lazily_negated_array_for_the_result_is_refused(longer: list[Any]) -> None:
    def total(x: Any) -> Any:
        def body(x: Any, out: Any) -> None:
            out[0] = x[0] + x[1]

        return plgpu.kernel(body, pl.ShapeDtypeStruct((1,), x.dtype))(x)

    x = torch.tensor([1.0, 2.0])
    kept = jit(total).ahead(x)
    for _ in range(2):
        assert kept(x, out=torch.zeros(1)).tolist() == [3]
    with pytest.raises(PalladioError, match="not in row-major order without gaps"):
        kept(x, out=torch._neg_view(torch.zeros(1)))


def test_another_thread_and_another_context(card: FakeDriver, longer: list[Any]) -> None:
    x, y = operands()
    kept = jit(hopper.matmul).ahead(x, y)
    kept(x, y)
    found: list[Any] = []
    worker = threading.Thread(target=lambda: found.append(kept(x, y)))  # no context is current to it
    worker.start()
    worker.join()
    assert right(found[0], x, y) and longer and not card.failures


def test_two_cards_in_turns_keep_their_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    on, made_for, made, place = KernelCall.on, KeptCall._made_for, [], [0]

    def noted(call: KeptCall, library: on_card.Library, device: int) -> Any:
        made.append(device)
        return made_for(call, library, device)

    monkeypatch.setattr(KernelCall, "on", lambda call, device: on(call, 0))
    monkeypatch.setattr(KeptCall, "_made_for", noted)
    monkeypatch.setitem(vars(on_card.LIBRARIES["torch"]), "exchange", lambda: None)
    monkeypatch.setattr(torch.Tensor, "get_device", lambda tensor: place[0], raising=False)
    x, y = operands()
    kept = jit(hopper.matmul).ahead(x, y)
    for place[0] in (0, 1, 0, 1):
        assert right(kept(x, y), x, y)
    assert made == [0, 1]


def test_a_launch_that_fails_is_reported_by_the_longer_way(card: FakeDriver) -> None:
    x, y = operands()
    kept = jit(hopper.matmul).ahead(x, y)
    kept(x, y)
    card.fail("cuLaunchKernelEx", 700, sticky=True)
    with pytest.raises(CardError, match="a kernel failed on the card"):
        kept(x, y)


@pytest.mark.parametrize("by_python", [False, True])
def test_memory_that_there_is_not_is_asked_for_the_longer_way(
    by_python: bool, card: FakeDriver, longer: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = on_card._torch_exchange()
    assert found is not None and found.allocator is not None
    refused: list[bool] = []

    def refuse() -> torch.Tensor:
        refused.append(True)
        raise MemoryError

    def empty(*_: Any) -> int:
        refused.append(True)
        return 1

    given = *[ctypes.c_int64] + [ctypes.c_void_p] * 2, *[ctypes.c_int32] * 3, ctypes.c_void_p
    function = ctypes.CFUNCTYPE(ctypes.c_int32, *given)(empty)
    address = ctypes.cast(function, ctypes.c_void_p).value or 0
    allocator = None if by_python else dataclasses.replace(found.allocator, empty=address)
    without = dataclasses.replace(found, new=lambda *_: refuse, allocator=allocator)
    monkeypatch.setitem(vars(on_card.LIBRARIES["torch"]), "exchange", lambda: without)
    x, y = operands()
    kept = jit(hopper.matmul).ahead(x, y)
    kept(x, y)
    longer.clear()
    card.calls()
    assert right(kept(x, y), x, y) and longer and refused and launches(card) == 1


def test_numbers_of_rows_are_passed_by_value(card: FakeDriver, longer: list[Any]) -> None:
    narrow = np.dtype(ml_dtypes.float8_e4m3fn)
    x, y = (torch.from_numpy(normal(n, 128, dtype=narrow).view(np.uint8)).view(torch.float8_e4m3fn) for n in (90, 64))
    factors = {"x_scale": torch.rand(90) + 0.5, "y_scale": torch.rand(64) + 0.5}
    scaled = (x.float() * factors["x_scale"][:, None]), (y.float() * factors["y_scale"][:, None]).T
    for _ in range(3):
        longer.clear()
        found = hopper.matmul(x, y, transpose_rhs=True, **factors)
        assert error(numpy_of(found), product(*scaled)) < 5e-3
    assert not longer and not card.failures


def test_a_synchronous_call_waits(card: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = operands()
    kept = jit(hopper.matmul).ahead(x, y)
    kept(x, y)
    monkeypatch.setenv("PALLADIO_SYNCHRONOUS", "1")
    card.calls()
    kept(x, y)
    made = [line.partition(" ")[0] for line in card.calls()]
    assert made.index("cuLaunchKernelEx") < made.index("cuStreamSynchronize")


def test_a_pytorch_without_its_allocator_in_c(monkeypatch: pytest.MonkeyPatch, longer: list[Any]) -> None:
    monkeypatch.setattr(on_card, "_WRAP", "a_name_that_no_library_has")
    on_card._torch_exchange.cache_clear()
    x, y = operands()
    kept = jit(hopper.matmul).ahead(x, y)
    kept(x, y)
    longer.clear()
    found = kept(x, y)
    assert found.untyped_storage().resizable() and right(found, x, y) and not longer


def test_an_array_for_the_result(card: FakeDriver, longer: list[Any]) -> None:
    x, y = operands()
    out = torch.empty(M, N, dtype=x.dtype)
    for call in (hopper.matmul, matmul, jit(hopper.matmul).ahead(x, y)):
        for _ in range(2):
            call(x, y)
        longer.clear()
        assert call(x, y, out=out.zero_()) is out and right(out, x, y) and not longer
    assert not card.failures


@pytest.mark.parametrize("name", ["shape", "operand", "gradient", "class"])
def test_an_array_that_the_result_does_not_fit_is_looked_at(name: str, longer: list[Any]) -> None:
    x = y = tensor(normal(M, M))
    kept = jit(hopper.matmul).ahead(x, y)
    kept(x, y)
    longer.clear()
    others = {"shape": x.new_empty(M, M + 8), "operand": x, "gradient": torch.nn.Parameter(torch.empty_like(x))}
    if name == "class":
        out = torch.empty_like(x).as_subclass(type("Named", (torch.Tensor,), {}))
        assert kept(x, y, out=out) is out and right(out.as_subclass(torch.Tensor), x, y) and longer
        return
    with pytest.raises(PalladioError):
        kept(x, y, out=others[name])
    assert longer


def scaled(x: Any, number: Any) -> Any:
    def body(x: Any, out: Any) -> None:
        out[...] = (x[...] * number).astype(out.dtype)

    return plgpu.kernel(body, pl.ShapeDtypeStruct(x.shape, x.dtype))(x)


@pytest.mark.parametrize("number", [np.float32(2.5), np.int32(-3), np.uint8(200), np.int8(-2)], ids=repr)
def test_each_call_passes_its_number(number: Any, card: FakeDriver, longer: list[Any]) -> None:
    x = torch.arange(256, dtype=torch.float32)
    kept = jit(scaled).ahead(x, number)
    kept(x, number)
    longer.clear()
    for given in (number, type(number)(3), type(number)(0)):
        assert np.array_equal(kept(x, given).numpy(), (x.numpy() * given).astype(np.float32))
    assert not longer and not card.failures
    assert np.array_equal(kept(x, np.array(number)).numpy(), (x.numpy() * number).astype(np.float32)) and longer


@pytest.mark.parametrize("number", [ml_dtypes.bfloat16(2), np.float16(2)], ids=["bfloat16", "float16"])
def test_numbers_that_are_converted_and_of_other_dtypes(number: Any, longer: list[Any]) -> None:
    x = torch.arange(256, dtype=torch.float32)
    kept = jit(scaled).ahead(x, number)
    for _ in range(2):  # the kernel takes it as float32
        longer.clear()
        assert np.array_equal(kept(x, number).numpy(), x.numpy() * 2) and longer
    with pytest.raises(PalladioError, match="not an array that the function was staged for"):
        kept(x, np.float32(3))


STATES: dict[str, Callable[[], Any]] = {
    "executor": lambda: pl.executor("hopper-twin"),
    "checks": pl.enable_debug_checks,
    "limits": plgpu.enable_hardware_limits,
}


@pytest.mark.parametrize("state", STATES)
def test_a_later_call_of_the_library_sees_the_state_of_the_process(state: str, longer: list[Any]) -> None:
    x, y = operands()
    for _ in range(2):
        matmul(x, y)
    card_calls = card_calls_of(x, y)
    assert card_calls() is not None
    with STATES[state]():
        assert card_calls() is None
    assert card_calls() is not None


@pytest.mark.parametrize("name", ["PALLADIO_EXECUTOR", "PALLADIO_DEBUG_CHECKS", "PALLADIO_SYNCHRONOUS"])
def test_a_later_call_of_the_library_sees_the_environment(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = operands()
    for _ in range(2):
        matmul(x, y)
    call = card_calls_of(x, y)
    assert call() is not None
    monkeypatch.setenv(name, {"PALLADIO_EXECUTOR": "cpu"}.get(name, "1"))
    assert call() is None
    monkeypatch.delenv(name)
    force(EXECUTORS["cpu"])
    assert call() is None
    force(None)
    assert call() is not None


def test_no_later_call_is_made_while_a_function_is_traced() -> None:
    x, y = operands()
    for _ in range(2):
        matmul(x, y)
    call, found = card_calls_of(x, y), []

    def function(z: Any) -> Any:
        found.append(call())
        return z

    jit(function).ahead(np.zeros(4, np.float32))
    assert found == [None] and call() is not None


def card_calls_of(x: torch.Tensor, y: torch.Tensor) -> Callable[[], Any]:
    """The function of machine code that `matmul` of two tensors calls."""
    last = KEPT._last_on_card["matmul", None, None, False, True]
    return lambda: last.exchanged((x, y), None)


def test_a_pytorch_without_these_functions(monkeypatch: pytest.MonkeyPatch, longer: list[Any]) -> None:
    monkeypatch.setattr(on_card, "_EXCHANGE_MAJOR", 0)
    on_card._torch_exchange.cache_clear()
    x, y = operands()
    assert right([hopper.matmul(x, y) for _ in range(3)][-1], x, y) and len(longer) >= 3
