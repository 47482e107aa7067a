"""Processes that test `ExpertParallel` together: what each rank does, and how they are started.

`python -m tests.interop.ranks FOLDER` imports PyTorch once and forks. Each scenario is a function of a rank, which
returns plain values; `FOLDER/rank0.json` and its kin have them by the scenario's name.
"""

from __future__ import annotations

import datetime
import functools
import json
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import parallelize_module
from torch.nn.parallel import DistributedDataParallel
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

import palladio.cpu.executor  # once, not in each rank
import palladio.interop.transformers  # noqa: F401  registers the implementation
from palladio.interop.torch import ExpertParallel, attention, gmm, matmul, moe_mlp, softmax, tgmm

HIDDEN, INNER, EXPERTS, CHOICES = 12, 10, 7, 3
SHARES = (5, 0, 9, 4)
"""Tokens of each rank; one has none."""


class Experts(torch.nn.Module):
    """Experts as a user writes them."""

    def __init__(self, experts: int = EXPERTS) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(0)
        size = {"generator": draw, "dtype": torch.float64}
        self.up = torch.nn.Parameter(torch.randn(experts, HIDDEN, 2 * INNER, **size))
        self.down = torch.nn.Parameter(torch.randn(experts, INNER, HIDDEN, **size))
        self.bias = torch.nn.Parameter(torch.randn(experts, HIDDEN, **size))

    def forward(self, tokens: Any, ids: Any, weights: Any) -> Any:
        return moe_mlp(tokens, ids, weights, self.up, self.down, down_bias=self.bias)


def batch(experts: int = EXPERTS) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The tokens of all ranks; some choices are of no expert, and some experts are crowded."""
    draw = torch.Generator().manual_seed(1)
    tokens = torch.randn(sum(SHARES), HIDDEN, generator=draw, dtype=torch.float64)
    ids = torch.randint(0, experts + 1, (sum(SHARES), CHOICES), generator=draw)
    ids[::4] = 1
    weights = torch.rand(sum(SHARES), CHOICES, generator=draw, dtype=torch.float64)
    return tokens, ids, weights


def results(module: Any, tokens: Any, ids: Any, weights: Any, *, cotangent: Any) -> tuple[Any, Any, Any]:
    """The results, and the gradients of tokens and weights; those of the parameters are left on them."""
    tokens, weights = tokens.clone().requires_grad_(), weights.clone().requires_grad_()
    out = module(tokens, ids, weights)
    (out * cotangent).sum().backward()
    return out.detach(), tokens.grad, weights.grad


def cotangent() -> torch.Tensor:
    return torch.randn(sum(SHARES), HIDDEN, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


def share(tensor: torch.Tensor, rank: int) -> torch.Tensor:
    return tensor.split(SHARES)[rank]


@functools.cache
def of_one_process() -> tuple[Experts, tuple[Any, Any, Any]]:
    """The experts with the gradients of their parameters, and the results for all tokens."""
    alone = Experts()
    return alone, results(alone, *batch(), cotangent=cotangent())


def same_bits(rank: int, folder: Path) -> list[str]:
    """The results and gradients of four ranks that are not those of one process, bit by bit."""
    alone, expected = of_one_process()
    module = parallelize_module(Experts(), init_device_mesh("cpu", (4,)), ExpertParallel())
    found = results(module, *(share(each, rank) for each in batch()), cotangent=share(cotangent(), rank))
    names = ("out", "tokens", "weights")
    wrong = [n for n, a, b in zip(names, found, expected, strict=True) if not torch.equal(a, share(b, rank))]
    for (name, parameter), other in zip(module.named_parameters(), alone.parameters(), strict=True):
        if not isinstance(parameter, DTensor) or not torch.equal(parameter.grad.full_tensor(), other.grad):
            wrong.append(name)
    return wrong


def in_parts(rank: int, folder: Path) -> dict[str, Any]:
    """How far results and gradients are from those of one process if tokens travel in two parts; what happens when."""
    alone, expected = of_one_process()
    happened: list[str] = []

    class Noting(Experts):
        def forward(self, tokens: Any, ids: Any, weights: Any) -> Any:
            happened.append("compute")
            tokens.register_hook(lambda _: happened.append("differentiated"))
            return super().forward(tokens, ids, weights)

    module = parallelize_module(Noting(), init_device_mesh("cpu", (4,)), ExpertParallel(parts=2))
    exchange = dist.all_to_all_single

    def noted(*args: Any, **options: Any) -> Any:
        happened.append("exchange")
        return exchange(*args, **options)

    dist.all_to_all_single = noted
    found = results(module, *(share(each, rank) for each in batch()), cotangent=share(cotangent(), rank))
    dist.all_to_all_single = exchange
    pairs = [(a, share(b, rank)) for a, b in zip(found, expected, strict=True)]
    pairs += [(a.grad.full_tensor(), b.grad) for a, b in zip(module.parameters(), alone.parameters(), strict=True)]
    return {"worst": max(float((a - b).abs().max()) if len(a) else 0.0 for a, b in pairs), "happened": happened}


def with_all_experts(rank: int, folder: Path) -> list[int]:
    """The tokens of each pass through experts that are all on their rank."""
    passes: list[int] = []

    class Noting(Experts):
        def forward(self, tokens: Any, ids: Any, weights: Any) -> Any:
            passes.append(len(tokens))
            return super().forward(tokens, ids, weights)

    mesh = init_device_mesh("cpu", (4, 1), mesh_dim_names=("data", "experts"))
    module = parallelize_module(Noting(), mesh["experts"], ExpertParallel(parts=2))
    tokens, ids, weights = batch()
    module(tokens, ids, weights)
    return [sum(passes) - int(((ids >= 0) & (ids < len(module.up))).sum()), len(passes)]


def shards(rank: int, folder: Path) -> list[int]:
    """The number of experts on this rank."""
    module = parallelize_module(Experts(), init_device_mesh("cpu", (4,)), ExpertParallel())
    return list(module.up.to_local().shape)


class Layer(torch.nn.Module):
    """A router and its experts."""

    def __init__(self) -> None:
        super().__init__()
        self.router = torch.nn.Linear(HIDDEN, 8, dtype=torch.float64)
        torch.nn.init.normal_(self.router.weight, generator=torch.Generator().manual_seed(3))
        torch.nn.init.zeros_(self.router.bias)
        self.experts = Experts(8)

    def forward(self, tokens: Any) -> Any:
        weights, ids = softmax(self.router(tokens)).topk(2)
        return tokens + self.experts(tokens, ids, weights)


def train(layer: Any, tokens: Any, target: Any, steps: int = 3) -> list[float]:
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.05)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = ((layer(tokens) - target) ** 2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def equal_shares() -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(4)
    tokens = torch.randn(4 * 6, HIDDEN, generator=draw, dtype=torch.float64)
    return tokens, torch.randn(4 * 6, HIDDEN, generator=draw, dtype=torch.float64)


@functools.cache
def trained_by_one_process() -> tuple[Layer, list[float]]:
    """The layer after three steps, and the loss of each."""
    alone = Layer()
    return alone, train(alone, *equal_shares())


def with_fsdp(rank: int, folder: Path) -> dict[str, Any]:
    """Experts over one dimension of a mesh, FSDP2 over the other: the loss of each step beside that of one process."""
    tokens, target = equal_shares()
    alone, expected = trained_by_one_process()
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "experts"))
    layer = parallelize_module(Layer(), mesh["experts"], {"experts": ExpertParallel()})
    fully_shard(layer.experts, mesh=mesh["data"])
    layer.experts.set_gradient_divide_factor(4.0)  # as many as there are shares of the tokens
    fully_shard(layer, mesh=mesh["data", "experts"]._flatten("all"))
    losses = torch.tensor(train(layer, tokens.chunk(4)[rank], target.chunk(4)[rank]), dtype=torch.float64)
    dist.all_reduce(losses)
    found = {name: parameter.full_tensor() for name, parameter in layer.named_parameters()}
    wanted = dict(alone.named_parameters())
    return {
        "losses": (losses / 4).tolist(),
        "expected": expected,
        "worst": max(((found[name] - wanted[name]).norm() / wanted[name].norm()).item() for name in wanted),
        "placements": str(layer.experts.up.placements),
    }


def with_ddp(rank: int, folder: Path) -> float:
    """The distance of gradients that DDP has averaged from those of one process, for operators and a kernel layer."""
    tokens, target = equal_shares()
    alone, layer = trained_by_one_process()[0], DistributedDataParallel(Layer())
    train(layer, tokens.chunk(4)[rank], target.chunk(4)[rank])
    pairs = zip(layer.module.parameters(), alone.parameters(), strict=True)
    return max(((a - b).norm() / b.norm()).item() for a, b in pairs)


class Grouped(torch.nn.Module):
    """A layer that is one operator."""

    def __init__(self) -> None:
        super().__init__()
        self.matrices = torch.nn.Parameter(Experts(4).up.detach().clone())

    def forward(self, tokens: Any) -> Any:
        return gmm(tokens, self.matrices, [2, 0, 3, len(tokens) - 5])


def operators_with_fsdp(rank: int, folder: Path) -> bool:
    """True if FSDP2 shards an operator's weights and gathers them for it."""
    layer = Grouped()
    tokens = equal_shares()[0]
    expected = layer(tokens)
    expected.sum().backward()
    gradient = layer.matrices.grad
    layer.zero_grad()
    fully_shard(layer, mesh=init_device_mesh("cpu", (4,)))
    found = layer(tokens)
    found.sum().backward()
    return torch.equal(found, expected) and torch.equal(layer.matrices.grad.full_tensor(), gradient)


def distributed_tensors(rank: int, folder: Path) -> dict[str, Any]:
    """The placements of results and gradients of operators on distributed tensors, those that are right in value."""
    mesh = init_device_mesh("cpu", (2,))
    draw = torch.Generator().manual_seed(5)
    x, w, y, q = (torch.randn(*s, generator=draw, dtype=torch.float64) for s in ((9, 6), (3, 6, 4), (6, 4), (2, 4, 6)))
    sizes = [3, 2, 4]
    cases: list[tuple[str, Any, tuple[Any, ...], tuple[Any, ...]]] = [
        ("columns", lambda x, w: gmm(x, w, sizes), (x, w), (Replicate(), Shard(2))),
        ("contraction", lambda x, w: gmm(x, w, sizes), (x, w), (Shard(1), Shard(1))),
        ("rows", lambda x, w: gmm(x, w, sizes), (x, w), (Shard(0), Replicate())),
        ("transposed", lambda x, y: tgmm(x.T, y, sizes), (x, x), (Replicate(), Shard(1))),
        ("matmul", matmul, (x, y), (Shard(1), Shard(0))),
        ("softmax", softmax, (x,), (Shard(0),)),
        ("softmax of columns", softmax, (x,), (Shard(1),)),
        ("attention", lambda q: attention(q, q, q, causal=True), (q,), (Shard(0),)),
    ]
    found = {}
    for name, function, operands, placements in cases:
        whole = [each.clone().requires_grad_() for each in operands]
        parts = [distribute_tensor(e, mesh, [p]).requires_grad_() for e, p in zip(operands, placements, strict=True)]
        expected, out = function(*whole), function(*parts)
        (expected**2).sum().backward()
        (out**2).sum().backward()
        pairs = [(out, expected), *((a.grad, b.grad) for a, b in zip(parts, whole, strict=True))]
        right = all(torch.allclose(a.full_tensor(), b, rtol=1e-12) for a, b in pairs)
        found[name] = [str(each.placements[0]) for each, _ in pairs] if right else "wrong"
    return found


def save(rank: int, folder: Path) -> None:
    """Write a checkpoint on four ranks."""
    module = parallelize_module(Experts(), init_device_mesh("cpu", (4,)), ExpertParallel())
    dcp.save({"model": module.state_dict()}, checkpoint_id=folder / "checkpoint")


def load(rank: int, folder: Path) -> bool:
    """True if two ranks read what four have written."""
    module = Experts()
    torch.nn.init.zeros_(module.up)
    module = parallelize_module(module, init_device_mesh("cpu", (2,)), ExpertParallel())
    state = {"model": module.state_dict()}
    dcp.load(state, checkpoint_id=folder / "checkpoint")
    module.load_state_dict(state["model"])
    return all(torch.equal(a.full_tensor(), b) for a, b in zip(module.parameters(), Experts().parameters()))


def model_of_transformers(rank: int, folder: Path) -> float:
    """The distance of the logits of a model with its experts on two ranks from those of one process."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 8}
    counts = {"num_hidden_layers": 2, "num_experts": 4, "num_experts_per_tok": 2, "vocab_size": 32}
    more = {"intermediate_size": 24, "moe_intermediate_size": 8, "bos_token_id": 1, "eos_token_id": 2}
    model = Qwen3MoeForCausalLM(Qwen3MoeConfig(**sizes, **counts, **more)).eval()
    model.set_experts_implementation("palladio")
    ids = torch.arange(1, 13).view(2, 6)
    with torch.no_grad():
        expected = model(ids).logits[rank]
        parallelize_module(model, init_device_mesh("cpu", (2,)), {"model.layers.*.mlp.experts": ExpertParallel()})
        found = model(ids[rank : rank + 1]).logits[0]
    return ((found - expected).norm() / expected.norm()).item()


def messages(rank: int, folder: Path) -> list[str]:
    """The texts of refusals."""
    mesh = init_device_mesh("cpu", (2,))
    square = init_device_mesh("cpu", (2, 1), mesh_dim_names=("data", "experts"))
    scaled = Experts()
    scaled.scale = torch.nn.Parameter(torch.ones(HIDDEN))
    nested = torch.nn.Sequential(Experts())
    parallel = parallelize_module(Experts(), mesh, ExpertParallel())
    tokens = DTensor.from_local(torch.zeros(2, HIDDEN, dtype=torch.float64), mesh)
    few = ids = torch.zeros(2, 1, dtype=torch.int64)
    calls: list[Callable[[], Any]] = [
        lambda: ExpertParallel()._apply(Experts(), square),
        lambda: ExpertParallel()._apply(scaled, mesh),
        lambda: ExpertParallel()._apply(nested, mesh),
        lambda: ExpertParallel()._apply(Experts(1), mesh),
        lambda: parallel(tokens, ids, few),
        lambda: ExpertParallel(parts=0),
    ]
    return list(map(_message, calls))


def _message(call: Callable[[], Any]) -> str:
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def death(rank: int, folder: Path) -> str:
    """The error of a rank whose peer dies before an exchange."""
    module = parallelize_module(Experts(), init_device_mesh("cpu", (2,)), ExpertParallel())
    if rank == 1:
        os._exit(0)
    return _message(lambda: module(*(share(each, 0) for each in batch())))


def silence(rank: int, folder: Path) -> str:
    """The error of a rank whose peer does not come to an exchange, when the time limit of their group has passed."""
    group = dist.new_group(timeout=datetime.timedelta(seconds=1))
    module = parallelize_module(Experts(), DeviceMesh.from_group(group, "cpu"), ExpertParallel(), src_data_rank=None)
    dist.barrier()
    found = _message(lambda: module(*(share(each, 0) for each in batch()))) if rank == 0 else ""
    dist.barrier()
    return found


COMPILED = (operators_with_fsdp,)
"""The scenarios that run compiled kernels; the others take the evaluator, which has nothing to compile."""

ON_FOUR = (same_bits, in_parts, with_all_experts, shards, with_fsdp, with_ddp, operators_with_fsdp, save)
ON_TWO = (load, distributed_tensors, model_of_transformers, messages, silence, death)


def _work(rank: int, folder: Path) -> dict[str, Any]:
    """The results of a rank's scenarios, by their names."""
    found: dict[str, Any] = {}
    try:
        for ranks, scenarios in ((4, ON_FOUR), (2, ON_TWO)):
            if rank < ranks:
                store = dist.FileStore(str(folder / f"store{ranks}"), ranks)
                limit = datetime.timedelta(seconds=60)
                dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks, timeout=limit)
                for scenario in scenarios:
                    os.environ["PALLADIO_EXECUTOR"] = "cpu" if scenario in COMPILED else "reference"
                    found[scenario.__name__] = scenario(rank, folder)
                if ranks == 4:
                    dist.destroy_process_group()
    except BaseException:
        found["failure"] = traceback.format_exc()
    return found


def main(folder: Path) -> None:
    """Fork the ranks, before any thread exists; each writes its results, except those that are meant to die.

    They share what one process computes, which starts no thread on the evaluator.
    """
    torch.set_num_threads(1)
    os.environ["PALLADIO_EXECUTOR"] = "reference"
    of_one_process()
    trained_by_one_process()
    ranks = []
    for rank in range(4):
        ranks.append(os.fork())
        if not ranks[-1]:
            found = _work(rank, folder)
            (folder / f"rank{rank}.json").write_text(json.dumps(found), encoding="utf-8")
            os._exit(0)
    for process in ranks:
        os.waitpid(process, 0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
