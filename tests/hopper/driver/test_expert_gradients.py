"""Gradients of the expert layer on arrays of a card, beside those of the same layer in float64, token by token."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from palladio import library
from palladio.interop import torch as operators
from palladio.interop.torch import expert_operators
from tests.hopper.driver.fake import FakeDriver
from tests.hopper.driver.stand_ins import Computed, Torch, by_address, numpy_of
from tests.hopper.kernels import BF16, F32, error, normal
from tests.library.test_experts import gradients, reference

pytestmark = pytest.mark.usefixtures("known_kernels")

T, H, INNER, E, K = 90, 72, 40, 3, 2
IDS = np.random.default_rng(0).integers(-1, E + 1, (T, K))
NAMES = "tokens", "expert_weights", "gate_up", "down", "gate_up_bias", "down_bias"
KERNELS = [
    *("moe_route_kernel", "moe_up_kernel", "moe_activate_kernel", "gmm_kernel", "moe_combine_kernel"),
    *(
        "moe_hidden_gradient_kernel",
        "moe_activation_gradient_kernel",
        "tgmm_gathered_kernel",
        "moe_bias_gradient_kernel",
    ),
]
TOLERANCE = 1e-2


def arguments(wide: int, transposed: bool) -> list[np.ndarray]:
    """Those with a gradient, in the order of NAMES."""
    # Small enough that few inputs of a clamped activation are so close to its bound that rounding decides the side.
    up, down = (normal(E, H, wide, seed=2, dtype=F32) / 4).astype(BF16), normal(E, INNER, H, seed=3)
    if transposed:
        up, down = (np.ascontiguousarray(each.swapaxes(1, 2)) for each in (up, down))
    return [normal(T, H), normal(T, K, dtype=F32, seed=1), up, down, normal(E, wide, seed=4), normal(E, H, seed=5)]


def exact(given: list[np.ndarray], grad: np.ndarray, activation: str, transposed: bool) -> list[np.ndarray]:
    """The result and its gradients in float64."""
    tokens, weights, *rest = given
    if transposed:
        rest[:2] = (each.swapaxes(1, 2) for each in rest[:2])
    layer = tokens, IDS, weights, *rest[:2], activation, *rest[2:]
    found = gradients(grad, *layer)
    if transposed:
        found |= {name: found[name].swapaxes(1, 2) for name in ("gate_up", "down")}
    return [reference(*layer), *(found[name] for name in NAMES)]


def options(activation: str, transposed: bool) -> dict[str, Any]:
    return {"activation": activation, "transposed": transposed}


@pytest.mark.parametrize(
    ("activation", "transposed", "ids"),
    [("swiglu", True, np.int32), ("gpt_oss", False, np.int64)],
    ids=["swiglu", "gpt_oss"],
)
def test_those_of_the_library(card: FakeDriver, cuda: Torch, activation: str, transposed: bool, ids: Any) -> None:
    given, grad = arguments(2 * INNER, transposed), normal(T, H, seed=6)
    tokens, weights, up, down, *biases = map(cuda.tensor, given)
    named = {"gate_up_bias": biases[0], "down_bias": biases[1], **options(activation, transposed)}
    out, pullback = library.moe_mlp_vjp(tokens, cuda.tensor(IDS.astype(ids)), weights, up, down, **named)
    found = pullback(cuda.tensor(grad))
    assert {each.lowered.name for each in card.kernels} >= set(KERNELS) and not card.failures
    wanted = exact(given, grad, activation, transposed)
    close(out, [*found], wanted)


def trained(cuda: Torch, given: list[np.ndarray], grad: np.ndarray, **more: Any) -> tuple[Any, list[Any]]:
    """The result of PyTorch's operator on tensors of the card, and what all arguments have for gradients."""
    tensors = [cuda.tensor(each).requires_grad_() for each in given]
    tokens, weights, up, down, *biases = tensors
    named = {"up_bias": biases[0], "down_bias": biases[1], **more}
    out = operators.moe_mlp(tokens, cuda.tensor(IDS), weights, up, down, **named)
    out.backward(cuda.tensor(grad))
    return out.detach(), [each.grad for each in tensors]


def close(out: Any, found: list[Any], wanted: list[np.ndarray]) -> None:
    for name, array, value in zip(("out", *NAMES), (out, *found), wanted, strict=True):
        assert array.is_cuda and tuple(array.shape) == value.shape, name
        assert error(numpy_of(array), value) < TOLERANCE, name


@pytest.mark.filterwarnings("ignore:CUDA initialization")  # a PyTorch for CUDA asks the driver that stands in
def test_those_of_pytorch_are_those_of_the_library(
    card: FakeDriver, cuda: Torch, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_address(card, monkeypatch)
    given, grad = arguments(2 * INNER, True), normal(T, H, seed=6)
    out, found = trained(cuda, given, grad, **options("swiglu", True))
    assert {each.lowered.name for each in card.kernels} >= set(KERNELS) and not card.failures
    close(out, found, exact(given, grad, "swiglu", True))


@pytest.mark.parametrize("activation", ["swiglu", "gpt_oss"])
def test_compiled_graphs_expect_the_shapes_of_the_layer(card: FakeDriver, cuda: Torch, activation: str) -> None:
    card.begin()  # launches run nothing
    tokens, weights, up, down, *biases = map(cuda.tensor, arguments(2 * INNER, True))
    layer = tokens, cuda.tensor(IDS), weights, up, down, *biases, activation, True, ""
    found = expert_operators.moe_mlp_with_inputs.run(*layer)
    with FakeTensorMode(allow_non_fake_inputs=True):
        plain = [
            torch.empty(each.shape, dtype=each.dtype) if isinstance(each, torch.Tensor) else each for each in layer
        ]
        expected = expert_operators.moe_mlp_with_inputs(*plain)
    for each, other in zip(found, expected, strict=True):
        assert (each.shape, each.dtype) == (other.shape, other.dtype)


@pytest.mark.parametrize("activation", ["gpt_oss", torch.nn.functional.gelu])
def test_those_of_other_activations_are_grouped_products(
    card: FakeDriver, cuda: Torch, monkeypatch: pytest.MonkeyPatch, activation: Any
) -> None:
    """Where PyTorch's own functions compute what is between the products: functions, autocast, second derivatives."""
    by_address(card, monkeypatch)
    name = activation if isinstance(activation, str) else "gelu"
    given, grad = arguments(INNER if name == "gelu" else 2 * INNER, False), normal(T, H, seed=6)
    before = len(card.kernels)
    with Computed(card):
        out, found = trained(cuda, given, grad, **options(activation, False))
    assert {each.lowered.name for each in card.kernels[before:]} == {"gmm_kernel", "tgmm_kernel"} and not card.failures
    close(out, found, exact(given, grad, name, False))
