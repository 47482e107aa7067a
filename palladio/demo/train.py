"""Training: minibatches, Adam, and a record of everything worth showing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, fields

import numpy as np

from palladio.demo.data import Digits
from palladio.demo.kernels import Array, ExpertProducts
from palladio.demo.model import Losses, Parameters, forward, loss_and_gradients

CLASSES = 10
GOAL = 0.96


@dataclass(frozen=True)
class Config:
    """The model and the length of its training. The same configuration gives the same numbers on the same machine.

    The defaults were chosen by the accuracy on the validation images alone, over several seeds.
    """

    epochs: int = 60
    seed: int = 0
    batch: int = 200
    width: int = 128
    hidden: int = 128
    experts: int = 8
    learning_rate: float = 5e-3
    noise: float = 0.5


@dataclass(frozen=True)
class Step:
    """One optimizer step: its losses, the accuracy on its own batch, and each expert's share of the rows, `[e]`."""

    losses: Losses
    accuracy: float
    load: Array


@dataclass(frozen=True)
class Evaluation:
    """The model on images: the fraction right, the predicted digits `[t]`, the experts chosen `[t, c]`."""

    accuracy: float
    predicted: Array
    chosen: Array


@dataclass
class Run:
    """A training in progress, or done: parameters, history, and cost.

    Args:
        validations: one evaluation on the validation images for each epoch.
        result: the evaluation on the held-out images, made once, after the last step.
    """

    config: Config
    steps_per_epoch: int
    parameters: Parameters
    products: ExpertProducts = field(default_factory=ExpertProducts)
    steps: list[Step] = field(default_factory=list)
    validations: list[Evaluation] = field(default_factory=list)
    result: Evaluation | None = None
    started: float = field(default_factory=time.perf_counter)
    seconds: float = 0.0

    @property
    def total_steps(self) -> int:
        """The number of optimizer steps of the whole training."""
        return self.config.epochs * self.steps_per_epoch

    @property
    def epoch(self) -> int:
        """The number of complete epochs."""
        return len(self.validations)

    @property
    def held_out(self) -> Evaluation:
        """The result, once there is one.

        Raises:
            RuntimeError: the training is not done.
        """
        if self.result is None:
            raise RuntimeError("the held-out images are looked at when the training is done")
        return self.result

    def last_epoch(self) -> list[Step]:
        """The steps of the epoch that was completed last."""
        return self.steps[-self.steps_per_epoch :]


class Adam:
    """Adam (Kingma and Ba, 2015): each parameter moves by its mean gradient over the root of its mean square."""

    def __init__(self, parameters: Parameters, decay: float = 0.9, square_decay: float = 0.99) -> None:
        self.decay, self.square_decay, self.count = decay, square_decay, 0
        self.names = [each.name for each in fields(parameters)]
        self.mean = {name: np.zeros_like(getattr(parameters, name)) for name in self.names}
        self.square = {name: np.zeros_like(getattr(parameters, name)) for name in self.names}

    def step(self, parameters: Parameters, gradients: Parameters, rate: float) -> None:
        """Move `parameters` in place. The divisors mend that both means begin at zero."""
        self.count += 1
        unbias, unbias_square = 1 - self.decay**self.count, 1 - self.square_decay**self.count
        for name in self.names:
            gradient, mean, square = getattr(gradients, name), self.mean[name], self.square[name]
            mean += (1 - self.decay) * (gradient - mean)
            square += (1 - self.square_decay) * (gradient * gradient - square)
            value = getattr(parameters, name)
            value -= np.float32(rate) * (mean / unbias) / (np.sqrt(square / unbias_square) + np.float32(1e-8))


def first_parameters(config: Config, digits: Digits) -> Parameters:
    """The parameters that training begins with, drawn by the seed."""
    return Parameters.random(
        np.random.default_rng(config.seed),
        pixels=digits.train_pixels.shape[1],
        width=config.width,
        experts=config.experts,
        hidden=config.hidden,
        classes=CLASSES,
    )


def prepare(config: Config, digits: Digits) -> Run:
    """A new run, before the first training step."""
    return Run(config, len(digits.train_labels) // config.batch, first_parameters(config, digits))


def train(run: Run, digits: Digits) -> Iterator[Step]:
    """Train `run` in place, and yield after each step. An epoch's validation is there when its last step comes out.

    Batches are full, so every step of a run has the same shapes. The noise on the pixels keeps the images from being
    learned by heart. The rate falls along half a cosine.
    """
    config = run.config
    rng = np.random.default_rng([config.seed, 1])
    adam = Adam(run.parameters)
    for _ in range(config.epochs):
        shuffled = rng.permutation(len(digits.train_labels))
        for batch in shuffled[: run.steps_per_epoch * config.batch].reshape(run.steps_per_epoch, config.batch):
            rate = config.learning_rate * 0.5 * (1 + np.cos(np.pi * len(run.steps) / run.total_steps))
            noise = config.noise * rng.standard_normal((len(batch), digits.train_pixels.shape[1]), np.float32)
            pixels, labels = digits.train_pixels[batch] + noise, digits.train_labels[batch]
            losses, gradients, logits, routing = loss_and_gradients(run.parameters, pixels, labels, run.products)
            adam.step(run.parameters, gradients, rate)
            accuracy = float((logits.argmax(axis=1) == labels).mean())
            run.steps.append(Step(losses, accuracy, routing.group_sizes / routing.group_sizes.sum()))
            if len(run.steps) % run.steps_per_epoch == 0:
                run.validations.append(evaluate(run, digits.validation_pixels, digits.validation_labels))
            if len(run.steps) == run.total_steps:
                run.result = evaluate(run, digits.test_pixels, digits.test_labels)
            run.seconds = time.perf_counter() - run.started
            yield run.steps[-1]


def evaluate(run: Run, pixels: Array, labels: Array) -> Evaluation:
    """Classify images `f32[t, 64]` and compare with their labels `int64[t]`."""
    logits, routing, _ = forward(run.parameters, pixels, run.products)
    predicted = logits.argmax(axis=1)
    return Evaluation(float((predicted == labels).mean()), predicted, routing.chosen)
