"""Attention of views `[..., heads, tokens, depth]` of tensors that have tokens first: taken in place, and kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import palladio as pl
from palladio import library
from palladio.array import on_card
from palladio.interop.torch import functions as operators
from palladio.library import hopper
from palladio.library.hopper.attention import heads_strides
from palladio.library.staging import tokens_first
from tests.hopper.driver.fake import FakeDriver
from tests.hopper.driver.stand_ins import Torch, numpy_of
from tests.hopper.driver.test_exchanged import host_is_card, launches, longer  # noqa: F401
from tests.hopper.driver.test_namesakes import wide
from tests.hopper.driver.test_rows import attended, attention_gradients, compiles_no_more
from tests.hopper.kernels import BF16, error, normal

pytestmark = pytest.mark.usefixtures("known_kernels")
CAPTURABLE = {"cuLaunchKernelEx", "cuTensorMapReplaceAddress", "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2"}
"""The driver's functions that a call may need which copies and allocates nothing by itself."""


def projections(*lead: int, tokens: int = 100, heads: tuple[int, int] = (4, 2)) -> list[np.ndarray]:
    """Queries, keys and values, `[..., tokens, heads, depth]`."""
    own, shared = heads
    return [
        normal(*lead, tokens, own, 64),
        normal(*lead, tokens, shared, 64, seed=1),
        normal(*lead, tokens, shared, 128, seed=2),
    ]


def expected(given: list[np.ndarray], causal: bool = False) -> np.ndarray:
    q, k, v = (each.swapaxes(-3, -2) for each in given)
    return attended(q, *(np.repeat(each, q.shape[-3] // k.shape[-3], axis=-3) for each in (k, v)), causal)


def is_turned(tensor: Any) -> bool:
    return bool(tensor.stride() == heads_strides(tuple(tensor.shape)))


@pytest.mark.parametrize(("lead", "causal"), [((), False), ((1,), True), ((2,), False), ((2, 2), True)], ids=str)
def test_views_are_taken_in_place(card: FakeDriver, cuda: Torch, lead: tuple[int, ...], causal: bool) -> None:
    given = projections(*lead)
    q, k, v = (cuda.tensor(each).transpose(-3, -2) for each in given)
    for _ in range(2):
        hopper.attention(q, k, v, causal=causal)
    card.calls()
    made = cuda.allocated
    result = hopper.attention(q, k, v, causal=causal)
    called = [line.partition(" ")[0] for line in card.calls()]
    assert called.count("cuLaunchKernelEx") == 1 and set(called) <= CAPTURABLE and not card.failures
    assert cuda.allocated == made + 1, "the result alone"
    assert error(numpy_of(result), expected(given, causal)) < 1e-2
    assert is_turned(result) and result.transpose(-3, -2).is_contiguous()


@pytest.mark.parametrize("turned", [(1, 0, 0), (0, 1, 1), (1, 0, 1)], ids=str)
def test_operands_in_both_orders(card: FakeDriver, cuda: Torch, turned: tuple[int, ...]) -> None:
    given = projections(2)
    mixed = [
        cuda.tensor(each).transpose(1, 2) if order else cuda.tensor(each.swapaxes(1, 2).copy())
        for each, order in zip(given, turned, strict=True)
    ]
    for _ in range(2):
        result = library.attention(*mixed, causal=True)
        assert error(numpy_of(result), expected(given, True)) < 1e-2
        assert (is_turned(result), result.is_contiguous()) == (bool(turned[0]), not turned[0])
    assert not card.failures


def test_calls_in_both_orders_in_turns(card: FakeDriver, cuda: Torch, monkeypatch: pytest.MonkeyPatch) -> None:
    given = projections(2)
    turned = [cuda.tensor(each).transpose(1, 2) for each in given]
    dense = [cuda.tensor(each.swapaxes(1, 2).copy()) for each in given]
    for call in (turned, dense):
        library.attention(*call)
    monkeypatch.setattr(hopper, "attention", lambda *_, **__: pytest.fail("not kept"))
    for call in (turned, dense, turned, turned):
        result = library.attention(*call)
        assert error(numpy_of(result), expected(given)) < 1e-2 and is_turned(result) == (call is turned)
    assert not card.failures


def test_numbers_of_tokens_share_a_kernel(card: FakeDriver, cuda: Torch, monkeypatch: pytest.MonkeyPatch) -> None:
    def right(tokens: int, causal: bool) -> None:
        given = projections(2, tokens=tokens)
        result = hopper.attention(*(cuda.tensor(each).transpose(1, 2) for each in given), causal=causal)
        assert error(numpy_of(result), expected(given, causal)) < 1e-2 and is_turned(result)

    for causal in (False, True):
        right(100, causal)
    compiles_no_more(monkeypatch)
    for tokens in (65, 127, 90):
        for causal in (False, True):
            right(tokens, causal)
    assert not card.failures


def test_an_array_for_the_result_is_in_row_major_order(
    card: FakeDriver, cuda: Torch, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = projections(2)
    turned = [cuda.tensor(each).transpose(1, 2) for each in given]
    library.attention(*turned)
    library.attention(*turned, out=cuda.tensor(np.zeros((2, 4, 100, 128), BF16)))
    refused = cuda.tensor(np.zeros((2, 100, 4, 128), BF16)).transpose(1, 2)
    with pytest.raises(pl.PalladioValueError, match="not in row-major order"):
        library.attention(*turned, out=refused)
    monkeypatch.setattr(hopper, "attention", lambda *_, **__: pytest.fail("not kept"))
    out = cuda.tensor(np.zeros((2, 4, 100, 128), BF16))
    assert library.attention(*turned, out=out) is out
    assert is_turned(library.attention(*turned))
    assert error(numpy_of(out), expected(given)) < 1e-2 and not card.failures


@pytest.mark.usefixtures("host_is_card")
def test_a_later_call_of_views_is_one_function(card: FakeDriver, longer: list[Any]) -> None:  # noqa: F811
    given = projections(2)
    plain = [torch.from_numpy(each.astype(np.float32)).bfloat16().transpose(1, 2) for each in given]
    other = [each.transpose(1, 2).clone().transpose(1, 2) for each in plain]
    for _ in range(2):
        library.attention(*plain)
    longer.clear()
    card.calls()
    results = [library.attention(*each) for each in (plain, other, plain)]
    assert launches(card) == 3 and not longer and not card.failures
    assert all(error(numpy_of(each), expected(given)) < 1e-2 and is_turned(each) for each in results)


@pytest.mark.usefixtures("host_is_card")
def test_parts_of_one_projection_are_copied(card: FakeDriver, longer: list[Any]) -> None:  # noqa: F811
    """A call that copies is not kept: its kernel does not read the memory of the arrays."""
    both = normal(2, 100, 8, 64)
    q, k = (torch.from_numpy(both.astype(np.float32)).bfloat16()[:, :, part].transpose(1, 2) for part in PARTS)
    assert tokens_first(q) is None and not q.is_contiguous()
    wanted = expected([both[:, :, PARTS[0]], *[both[:, :, PARTS[1]]] * 2])
    for _ in range(3):
        longer.clear()
        assert error(numpy_of(library.attention(q, k, k)), wanted) < 1e-2 and longer
    facts = on_card.LIBRARIES["torch"].facts
    assert facts is not None and isinstance(facts([q])[0][2], on_card.Strided) and not card.failures


PARTS = slice(0, 4), slice(4, 8)


@pytest.mark.parametrize("shape", [(2, 1, 100, 64), (2, 4, 1, 64)], ids=str)
def test_one_head_or_one_token_is_in_both_orders(card: FakeDriver, cuda: Torch, shape: tuple[int, ...]) -> None:
    q = normal(shape[0], shape[2], shape[1], 64)
    given = cuda.tensor(q).transpose(1, 2)
    assert tokens_first(given) is None
    result = hopper.attention(given, given, given)
    assert result.is_contiguous() and error(numpy_of(result), expected([q, q, q])) < 1e-2 and not card.failures


@pytest.mark.parametrize(("lead", "causal", "fewer"), [((), True, 127), ((1,), False, 65), ((2,), True, 65)], ids=str)
def test_gradients_are_in_the_order_of_their_operands(
    card: FakeDriver, cuda: Torch, monkeypatch: pytest.MonkeyPatch, lead: tuple[int, ...], causal: bool, fewer: int
) -> None:
    def right(tokens: int) -> None:
        given, grad = projections(*lead, tokens=tokens), normal(*lead, tokens, 4, 128, seed=3)
        q, k, v, of_out = (cuda.tensor(each).transpose(-3, -2) for each in (*given, grad))
        out, lse = hopper.attention(q, k, v, causal=causal, save_residuals=True)
        assert is_turned(out) and error(numpy_of(out), expected(given, causal)) < 1e-2
        found = hopper.attention_vjp(q, k, v, out, lse, of_out, causal=causal)
        for got, wanted in zip(found, exact(given, grad, causal), strict=True):
            assert is_turned(got) and error(numpy_of(got), wanted) < 1e-2

    right(100)
    compiles_no_more(monkeypatch)
    right(fewer)
    assert not card.failures


def exact(given: list[np.ndarray], grad: np.ndarray, causal: bool) -> list[np.ndarray]:
    """The gradients of queries, keys and values, `[..., heads, tokens, depth]`."""
    lead, (q, k, v, of_out) = grad.shape[:-3], (wide(each.swapaxes(-3, -2)) for each in (*given, grad))
    heads = [np.repeat(each, 2, axis=-3) for each in (k, v)]
    flat = (each.reshape(-1, *each.shape[-2:]) for each in (q, *heads, of_out))
    of_q, of_k, of_v = attention_gradients(*flat, causal)
    shared = (each.reshape(*lead, 2, 2, *each.shape[1:]).sum(-3) for each in (of_k, of_v))
    return [of_q.reshape(q.shape), *shared]


@pytest.mark.parametrize("turned", [(1, 0, 0, 0, 1), (0, 1, 1, 1, 0), (0, 0, 1, 0, 0)], ids=str)
def test_gradients_of_operands_in_both_orders(card: FakeDriver, cuda: Torch, turned: tuple[int, ...]) -> None:
    given, grad = projections(2), normal(2, 100, 4, 128, seed=3)
    scores = wide(given[0].swapaxes(1, 2)) @ wide(np.repeat(given[1], 2, 2).swapaxes(1, 2)).swapaxes(-1, -2) / 8
    lse = cuda.tensor(np.log(np.exp(scores).sum(-1)).astype(np.float32))
    out = expected(given).swapaxes(1, 2).astype(BF16)
    q, k, v, result, of_out = (
        cuda.tensor(each).transpose(1, 2) if order else cuda.tensor(each.swapaxes(1, 2).copy())
        for each, order in zip((*given, out, grad), turned, strict=True)
    )
    found = hopper.attention_vjp(q, k, v, result, lse, of_out)
    for got, wanted, order in zip(found, exact(given, grad, False), turned[:3], strict=True):
        assert (is_turned(got), got.is_contiguous()) == (bool(order), not order)
        assert error(numpy_of(got), wanted) < 1e-2
    assert not card.failures


@pytest.mark.filterwarnings("ignore:CUDA initialization")  # a PyTorch for CUDA asks the driver that stands in
@pytest.mark.parametrize("interpret", ["hopper-twin", "cpu"])
def test_graphs_are_compiled_for_the_order_of_the_results(interpret: str) -> None:
    given = [torch.from_numpy(each.astype(np.float32)).bfloat16().transpose(1, 2) for each in projections(1, tokens=48)]
    grad = torch.ones_like(given[0][..., :1]).expand(1, 4, 48, 128)
    k, v = (each.contiguous() for each in given[1:]) if interpret == "cpu" else given[1:]
    if interpret == "cpu":
        k, v = (each.repeat_interleave(2, 1) for each in (k, v))
    options = True, None
    torch.library.opcheck(
        torch.ops.palladio.attention.default, (given[0], k, v, *options, None, None, interpret), test_utils=FAKE
    )
    gradients = given[0], k, v, grad, *options, interpret
    torch.library.opcheck(torch.ops.palladio.attention_gradients.default, gradients, test_utils=FAKE)
    result = operators.attention(given[0], k, v, causal=True, interpret=interpret)
    assert is_turned(result) == (interpret == "hopper-twin")


FAKE = "test_faketensor"
