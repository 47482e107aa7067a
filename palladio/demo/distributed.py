"""The demo's model in PyTorch, with its experts on several processes; each has some of the experts and its own images.

    torchrun --nproc-per-node 2 -m palladio.demo.distributed

Every process has the same embedding, router and head, and takes its part of each batch. The experts are spread by
`ExpertParallel`: tokens travel to their experts and back. Gradients of replicated parameters are summed over the
processes; those of an expert are such sums already, since all images came to it. Without `torchrun` one process runs.

The exit status is 0 when the held-out accuracy reaches the goal, 1 when it does not, 2 when the demo could not run.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import parallelize_module

from palladio.demo.__main__ import whole
from palladio.demo.data import Digits, MissingExtraError, load_digits
from palladio.demo.model import BALANCE_WEIGHT, CHOICES, Parameters
from palladio.demo.train import GOAL, Config, first_parameters
from palladio.interop import torch as kernels

Tensor = torch.Tensor


class Experts(torch.nn.Module):
    """The experts, two layers each: `up: f32[e, d, f]`, `down: f32[e, f, d]`."""

    def __init__(self, parameters: Parameters) -> None:
        super().__init__()
        self.up = torch.nn.Parameter(torch.from_numpy(parameters.up))
        self.down = torch.nn.Parameter(torch.from_numpy(parameters.down))

    def forward(self, tokens: Tensor, chosen: Tensor, gates: Tensor) -> Tensor:
        """Each token through its experts."""
        return kernels.moe_mlp(tokens, chosen, gates, self.up, self.down, activation="relu")


class Classifier(torch.nn.Module):
    """The model of `palladio.demo.model`, with the same first parameters."""

    def __init__(self, parameters: Parameters) -> None:
        super().__init__()
        for name in ("embed", "embed_bias", "router", "head", "head_bias"):
            self.register_parameter(name, torch.nn.Parameter(torch.from_numpy(getattr(parameters, name))))
        self.experts = Experts(parameters)

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """Classify images `f32[t, p]`: logits `f32[t, n]`, and the balance loss of these images."""
        tokens = torch.relu(pixels @ self.embed + self.embed_bias)
        probabilities = torch.softmax(tokens @ self.router, dim=-1)
        likelihood, chosen = probabilities.topk(CHOICES)
        mixed = self.experts(tokens, chosen, likelihood / likelihood.sum(dim=-1, keepdim=True))
        experts = probabilities.shape[-1]
        share = torch.bincount(chosen.reshape(-1), minlength=experts) / chosen.numel()
        balance = experts * (share * probabilities.mean(dim=0)).sum()
        return (tokens + mixed) @ self.head + self.head_bias, balance


def prepare(config: Config, digits: Digits) -> Classifier:
    """The model, its experts spread over all processes."""
    model = Classifier(first_parameters(config, digits))
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    parallelize_module(model, mesh, {"experts": kernels.ExpertParallel()})
    return model


def train(config: Config, digits: Digits, model: Classifier) -> list[float]:
    """Train, and return the mean loss of each epoch over all processes."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    rng = np.random.default_rng([config.seed, 1])
    steps = len(digits.train_labels) // config.batch
    everywhere = [parameter for parameter in model.parameters() if not isinstance(parameter, DTensor)]
    optimizer = torch.optim.Adam(model.parameters(), config.learning_rate, betas=(0.9, 0.99), foreach=False)
    rates = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, config.epochs * steps)
    history = []
    for _ in range(config.epochs):
        shuffled = rng.permutation(len(digits.train_labels))
        total = torch.zeros(())
        for batch in shuffled[: steps * config.batch].reshape(steps, config.batch):
            noise = config.noise * rng.standard_normal((config.batch, digits.train_pixels.shape[1]), np.float32)
            own = np.array_split(np.arange(config.batch), ranks)[rank]
            pixels = torch.from_numpy(digits.train_pixels[batch] + noise)[own]
            logits, balance = model(pixels)
            labels = torch.from_numpy(digits.train_labels[batch])[own]
            loss = torch.nn.functional.cross_entropy(logits, labels) + BALANCE_WEIGHT * balance
            optimizer.zero_grad()
            (loss * (len(own) / config.batch)).backward()  # so that sums over processes are means over the batch
            for parameter in everywhere:
                dist.all_reduce(parameter.grad)
            optimizer.step()
            rates.step()
            total += loss.detach() * (len(own) / config.batch) / steps
        dist.all_reduce(total)
        history.append(float(total))
    return history


def accuracy(model: Classifier, pixels: Any, labels: Any) -> float:
    """The fraction of images classified right; each process takes its part of them."""
    own = np.array_split(np.arange(len(labels)), dist.get_world_size())[dist.get_rank()]
    with torch.no_grad():
        logits, _ = model(torch.from_numpy(pixels[own]))
    right = (logits.argmax(dim=1) == torch.from_numpy(labels[own])).sum()
    dist.all_reduce(right)
    return int(right) / len(labels)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo on this process and return its exit status."""
    default = Config()
    parser = argparse.ArgumentParser(
        prog="torchrun --nproc-per-node N -m palladio.demo.distributed",
        description="Train the demo's mixture of experts in PyTorch, its experts spread over N processes.",
    )
    parser.add_argument("--epochs", type=whole(1), default=default.epochs, help="passes over the images (%(default)s)")
    parser.add_argument("--seed", type=whole(0), default=default.seed, help="first weights and order (%(default)s)")
    options = parser.parse_args(arguments)
    try:
        digits = load_digits()
    except MissingExtraError as error:
        print(error, file=sys.stderr)
        return 2
    if dist.is_torchelastic_launched():
        dist.init_process_group("gloo")
    else:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        config = Config(epochs=options.epochs, seed=options.seed)
        model = prepare(config, digits)
        losses = train(config, digits, model)
        found = accuracy(model, digits.test_pixels, digits.test_labels)
        if dist.get_rank() == 0:
            each = ", ".join(f"{loss:.3f}" for loss in losses[:: max(1, len(losses) // 6)])
            count = dist.get_world_size()
            print(f"{count} process{'es' * (count > 1)}, {config.experts} experts; loss from epoch to epoch: {each}")
            print(f"held-out accuracy {found:.1%}, the goal is {GOAL:.0%}")
    finally:
        dist.destroy_process_group()
    return 0 if found >= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
