"""A mixture-of-experts classifier, forward and backward.

Instead of one large layer that every token passes, a mixture of experts has several smaller ones and a *router* that
sends each token to the few that suit it. The work of one token stays that of a few experts, however many there are:

    pixels ──▶ embed ──▶ tokens ─┬───────────────────────────────────────────────────────────▶ + ──▶ head ──▶ logits
                                 └─▶ route ──▶ dispatch ──▶ run_experts ──▶ combine ───────────┘
                                     top-2     copy each    grouped         unsort, weigh,
                                     gates     token, sort  products        add up
                                               by expert

Sorting is what makes it fast. After it, the rows of one expert lie side by side, and one grouped matmul multiplies all
of them, each with the weights of its own expert, however unevenly the router spread them.

The steps return their result and a *pullback*, which takes the gradient of the loss with respect to that result and
returns the gradients with respect to the step's own inputs. Going backward is calling the pullbacks in reverse order.

Legend: `t` tokens (one for each image), `p` pixels, `d` width of a token, `e` experts, `c` experts chosen for each
token, `r = t * c` rows that the experts see, `f` width inside an expert, `n` classes. `d_x` is the gradient of the loss
with respect to `x`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from palladio.demo.kernels import Array, ExpertProducts

CHOICES = 2
BALANCE_WEIGHT = 0.05

Pullback = Callable[..., Any]


@dataclass
class Parameters:
    """All that is learned; also the shape of its gradients.

    Args:
        embed, embed_bias: `f32[p, d]`, `f32[d]`.
        router: `f32[d, e]`.
        up, down: the experts, `f32[e, d, f]` and `f32[e, f, d]`.
        head, head_bias: `f32[d, n]`, `f32[n]`.
    """

    embed: Array
    embed_bias: Array
    router: Array
    up: Array
    down: Array
    head: Array
    head_bias: Array

    @classmethod
    def random(
        cls, rng: np.random.Generator, *, pixels: int, width: int, experts: int, hidden: int, classes: int
    ) -> Parameters:
        """Draw weights that keep the size of what passes through them (He et al. 2015); biases are zero."""

        def weights(*shape: int) -> Array:
            fan_in = shape[-2]
            return (rng.standard_normal(shape) * np.sqrt(2 / fan_in)).astype(np.float32)

        return cls(
            embed=weights(pixels, width),
            embed_bias=np.zeros(width, np.float32),
            router=weights(width, experts) * np.float32(0.1),  # begin undecided: no expert is ahead by chance
            up=weights(experts, width, hidden),
            down=weights(experts, hidden, width),
            head=weights(width, classes),
            head_bias=np.zeros(classes, np.float32),
        )

    @property
    def count(self) -> int:
        """The number of learned parameters."""
        return sum(getattr(self, each.name).size for each in fields(self))


@dataclass(frozen=True)
class Routing:
    """The assignment of images to experts.

    Args:
        probabilities: `f32[t, e]`, the router's softmax.
        chosen: `int64[t, c]`, each token's experts, the likeliest first.
        gates: `f32[t, c]`, how much each chosen expert counts; they sum to one for each token.
        order: `int64[r]`, sorts the rows by expert. Row `i` before sorting is choice `i % c` of token `i // c`.
        group_sizes: `int32[e]`, how many rows each expert receives.
    """

    probabilities: Array
    chosen: Array
    gates: Array
    order: Array
    group_sizes: Array


@dataclass(frozen=True)
class Losses:
    """The cross entropy, in nats a token, and the unweighted balance loss, which is 1 when all experts share evenly."""

    cross_entropy: float
    balance: float


def dense(x: Array, weights: Array, bias: Array) -> tuple[Array, Pullback]:
    """`x @ weights + bias`; the pullback gives `d_x`, `d_weights`, `d_bias`."""

    def pullback(d_out: Array) -> tuple[Array, Array, Array]:
        return d_out @ weights.T, x.T @ d_out, d_out.sum(axis=0)

    return x @ weights + bias, pullback


def relu(x: Array) -> tuple[Array, Pullback]:
    """Negative values become zero; the pullback gives `d_x`."""
    return np.maximum(x, 0), lambda d_out: d_out * (x > 0)


def softmax(scores: Array) -> Array:
    """Scores of the last axis as probabilities. Taking off the greatest first keeps `exp` from overflowing."""
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def route(tokens: Array, router: Array, choices: int = CHOICES) -> tuple[Routing, Pullback]:
    """Choose `choices` experts for each token.

    The choice itself has no gradient; the router learns through the gates and through the balance loss.

    Returns:
        the routing, and the pullback from `d_gates[t, c]` and `d_probabilities[t, e]` to `d_tokens` and `d_router`.
    """
    probabilities = softmax(tokens @ router)
    chosen = np.argsort(-probabilities, axis=1, kind="stable")[:, :choices]
    likelihood = np.take_along_axis(probabilities, chosen, axis=1)
    total = likelihood.sum(axis=1, keepdims=True)
    gates = likelihood / total
    expert_of_row = chosen.reshape(-1)
    routing = Routing(
        probabilities=probabilities,
        chosen=chosen,
        gates=gates,
        order=np.argsort(expert_of_row, kind="stable"),
        group_sizes=np.bincount(expert_of_row, minlength=router.shape[1]).astype(np.int32),
    )

    def pullback(d_gates: Array, d_probabilities: Array) -> tuple[Array, Array]:
        d_likelihood = (d_gates - (d_gates * gates).sum(axis=1, keepdims=True)) / total
        d_all = d_probabilities.copy()
        rows = np.arange(len(chosen))[:, None]
        d_all[rows, chosen] += d_likelihood  # a token's experts are distinct: no index repeats
        d_scores = probabilities * (d_all - (d_all * probabilities).sum(axis=1, keepdims=True))
        return d_scores @ router.T, tokens.T @ d_scores

    return routing, pullback


def dispatch(tokens: Array, routing: Routing) -> tuple[Array, Pullback]:
    """Copy each token once for each of its experts, sorted by expert: `f32[t, d]` to `f32[r, d]`."""
    count, choices = routing.chosen.shape

    def pullback(d_rows: Array) -> Array:
        return unsort(d_rows, routing).reshape(count, choices, -1).sum(axis=1)

    return tokens[routing.order // choices], pullback


def unsort(rows: Array, routing: Routing) -> Array:
    """Put sorted rows `[r, d]` back where they stood: the inverse of indexing by `routing.order`."""
    out = np.empty_like(rows)
    out[routing.order] = rows
    return out


def run_experts(
    rows: Array, up: Array, down: Array, group_sizes: Array, products: ExpertProducts
) -> tuple[Array, Pullback]:
    """Each row passes the two layers of its own expert: `relu(row @ up[i]) @ down[i]`.

    Returns:
        `f32[r, d]`, and the pullback to `d_rows`, `d_up`, `d_down`.
    """
    raised, pull_up = products(rows, up, group_sizes)
    active, pull_relu = relu(raised)
    out, pull_down = products(active, down, group_sizes)

    def pullback(d_out: Array) -> tuple[Array, Array, Array]:
        d_active, d_down = pull_down(d_out)
        d_rows, d_up = pull_up(pull_relu(d_active))
        return d_rows, d_up, d_down

    return out, pullback


def combine(rows: Array, routing: Routing) -> tuple[Array, Pullback]:
    """Bring the experts' answers home and add them up by their gates: `f32[r, d]` to `f32[t, d]`.

    The pullback gives `d_rows` and `d_gates`.
    """
    answers = unsort(rows, routing).reshape(*routing.chosen.shape, -1)
    weights = routing.gates[:, :, None]

    def pullback(d_out: Array) -> tuple[Array, Array]:
        d_answers = (d_out[:, None, :] * weights).reshape(rows.shape)
        return d_answers[routing.order], (d_out[:, None, :] * answers).sum(axis=2)

    return (answers * weights).sum(axis=1), pullback


def forward(
    parameters: Parameters, pixels: Array, products: ExpertProducts
) -> tuple[Array, Routing, Callable[[Array, Array], Parameters]]:
    """Classify images.

    Args:
        pixels: `f32[t, p]`.

    Returns:
        logits `f32[t, n]`, the routing, and the pullback from `d_logits` and `d_probabilities` (of the router) to the
        gradients of all parameters.
    """
    embedded, pull_embed = dense(pixels, parameters.embed, parameters.embed_bias)
    tokens, pull_relu = relu(embedded)
    routing, pull_route = route(tokens, parameters.router)
    rows, pull_dispatch = dispatch(tokens, routing)
    answers, pull_experts = run_experts(rows, parameters.up, parameters.down, routing.group_sizes, products)
    mixed, pull_combine = combine(answers, routing)
    logits, pull_head = dense(tokens + mixed, parameters.head, parameters.head_bias)

    def pullback(d_logits: Array, d_probabilities: Array) -> Parameters:
        d_sum, d_head, d_head_bias = pull_head(d_logits)
        d_answers, d_gates = pull_combine(d_sum)
        d_rows, d_up, d_down = pull_experts(d_answers)
        d_routed, d_router = pull_route(d_gates, d_probabilities)
        d_tokens = d_sum + pull_dispatch(d_rows) + d_routed  # a token goes three ways, so three gradients come back
        _, d_embed, d_embed_bias = pull_embed(pull_relu(d_tokens))
        return Parameters(d_embed, d_embed_bias, d_router, d_up, d_down, d_head, d_head_bias)

    return logits, routing, pullback


def cross_entropy(logits: Array, labels: Array) -> tuple[float, Array]:
    """The mean over tokens of `-log softmax(logits)[label]`, and its gradient `[t, n]`."""
    tokens = np.arange(len(labels))
    probabilities = softmax(logits)
    likelihood = np.maximum(probabilities[tokens, labels], np.finfo(logits.dtype).tiny)
    d_logits = probabilities
    d_logits[tokens, labels] -= 1
    return float(-np.log(likelihood).mean()), d_logits / len(labels)


def balance_loss(routing: Routing) -> tuple[float, Array]:
    """A loss that falls as the experts share the work more evenly, and its gradient by `probabilities[t, e]`.

    `e * sum_i(share_i * mean_i)`: the share of rows that expert `i` got, times its mean probability. Shares are counts
    and have no gradient, so an expert with more than its part sees its probabilities pushed down. (Fedus, Zoph,
    Shazeer: Switch Transformers, 2022, equation 4.)
    """
    probabilities = routing.probabilities
    tokens, experts = probabilities.shape
    share = (routing.group_sizes / routing.group_sizes.sum()).astype(probabilities.dtype)
    loss = experts * float(share @ probabilities.mean(axis=0))
    return loss, np.broadcast_to(share * (experts / tokens), probabilities.shape).astype(probabilities.dtype)


def loss_and_gradients(
    parameters: Parameters, pixels: Array, labels: Array, products: ExpertProducts
) -> tuple[Losses, Parameters, Array, Routing]:
    """Forward and backward once: the losses, all gradients, the logits and the routing."""
    logits, routing, pullback = forward(parameters, pixels, products)
    task, d_logits = cross_entropy(logits, labels)
    balance, d_probabilities = balance_loss(routing)
    gradients = pullback(d_logits, BALANCE_WEIGHT * d_probabilities)
    return Losses(task, balance), gradients, logits, routing
