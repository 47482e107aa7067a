"""The hand-written backward pass agrees with automatic differentiation."""

from dataclasses import fields

import numpy as np
import pytest
import torch

from palladio.demo.kernels import ExpertProducts
from palladio.demo.model import (
    BALANCE_WEIGHT,
    Parameters,
    balance_loss,
    cross_entropy,
    forward,
    loss_and_gradients,
    route,
)

NAMES = [each.name for each in fields(Parameters)]
TOKENS, PIXELS, WIDTH, EXPERTS, HIDDEN, CLASSES = 13, 6, 8, 4, 5, 3


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(7)
    parameters = Parameters.random(rng, pixels=PIXELS, width=WIDTH, experts=EXPERTS, hidden=HIDDEN, classes=CLASSES)
    parameters.router *= 20  # decided enough that no rounding changes the choice
    pixels = rng.standard_normal((TOKENS, PIXELS)).astype(np.float32)
    return parameters, pixels, rng.integers(0, CLASSES, TOKENS)


def torch_losses(parameters, pixels, labels, chosen):
    """The same model without sorting and without kernels, in float64: every token runs its experts one by one."""
    learned = {name: torch.tensor(getattr(parameters, name), dtype=torch.float64, requires_grad=True) for name in NAMES}
    tokens = torch.relu(torch.tensor(pixels, dtype=torch.float64) @ learned["embed"] + learned["embed_bias"])
    probabilities = torch.softmax(tokens @ learned["router"], dim=1)
    likelihood = probabilities.gather(1, torch.tensor(chosen))
    gates = likelihood / likelihood.sum(dim=1, keepdim=True)
    answers = [
        sum(
            gates[token, place] * (torch.relu(tokens[token] @ learned["up"][expert]) @ learned["down"][expert])
            for place, expert in enumerate(chosen[token])
        )
        for token in range(len(pixels))
    ]
    logits = (tokens + torch.stack(answers)) @ learned["head"] + learned["head_bias"]
    share = torch.bincount(torch.tensor(chosen).reshape(-1), minlength=EXPERTS) / chosen.size
    balance = EXPERTS * (share * probabilities.mean(dim=0)).sum()
    task = torch.nn.functional.cross_entropy(logits, torch.tensor(labels))
    return task, balance, learned


def test_losses_agree_with_a_model_that_does_not_sort(problem):
    parameters, pixels, labels = problem
    losses, _, _, routing = loss_and_gradients(parameters, pixels, labels, ExpertProducts())
    task, balance, _ = torch_losses(parameters, pixels, labels, routing.chosen)
    assert losses.cross_entropy == pytest.approx(task.item(), rel=1e-5)
    assert losses.balance == pytest.approx(balance.item(), rel=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_gradient_agrees_with_automatic_differentiation(problem, name):
    parameters, pixels, labels = problem
    _, gradients, _, routing = loss_and_gradients(parameters, pixels, labels, ExpertProducts())
    task, balance, learned = torch_losses(parameters, pixels, labels, routing.chosen)
    (task + BALANCE_WEIGHT * balance).backward()
    expected = learned[name].grad.numpy()
    assert np.abs(expected).max() > 1e-4
    np.testing.assert_allclose(getattr(gradients, name), expected, rtol=1e-4, atol=1e-6)


def test_the_balance_loss_reaches_the_router(problem):
    parameters, pixels, labels = problem
    logits, routing, pullback = forward(parameters, pixels, ExpertProducts())
    _, d_probabilities = balance_loss(routing)
    gradients = pullback(np.zeros_like(logits), d_probabilities)
    _, balance, learned = torch_losses(parameters, pixels, labels, routing.chosen)
    balance.backward()
    np.testing.assert_allclose(gradients.router, learned["router"].grad.numpy(), rtol=1e-4, atol=1e-7)
    assert not gradients.up.any() and not gradients.head.any()


def test_an_expert_without_tokens_has_no_gradient(problem):
    parameters, pixels, labels = problem
    shunned = Parameters(**{name: getattr(parameters, name).copy() for name in NAMES})
    shunned.embed_bias += 3  # tokens are positive, so a router column of one sign decides
    shunned.router[:, 2] = -10
    _, gradients, _, routing = loss_and_gradients(shunned, pixels, labels, ExpertProducts())
    assert routing.group_sizes[2] == 0
    assert not gradients.up[2].any() and not gradients.down[2].any()
    assert gradients.up[0].any()


def test_everything_stays_float32(problem):
    parameters, pixels, labels = problem
    _, gradients, logits, routing = loss_and_gradients(parameters, pixels, labels, ExpertProducts())
    assert {getattr(gradients, name).dtype for name in NAMES} == {np.dtype(np.float32)}
    assert logits.dtype == routing.gates.dtype == np.float32


def test_cross_entropy_of_equal_logits_is_the_logarithm_of_the_classes():
    loss, gradient = cross_entropy(np.zeros((4, 10), np.float32), np.array([0, 3, 3, 9]))
    assert loss == pytest.approx(np.log(10), rel=1e-6)
    np.testing.assert_allclose(gradient.sum(axis=1), 0, atol=1e-7)


def test_cross_entropy_of_extreme_logits_is_finite():
    loss, gradient = cross_entropy(np.array([[0, 1e4]], np.float32), np.array([0]))
    assert np.isfinite(loss) and np.isfinite(gradient).all()


def test_the_balance_loss_is_one_when_experts_share_evenly():
    routing, _ = route(np.eye(4, dtype=np.float32), 5 * np.eye(4, dtype=np.float32), choices=1)
    assert routing.group_sizes.tolist() == [1, 1, 1, 1]
    assert balance_loss(routing)[0] == pytest.approx(1, rel=1e-6)
