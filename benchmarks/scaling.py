"""An expert layer on many processes: `python -m benchmarks.scaling` measures it here, `--model` models GPUs.

Weak scaling: every process has the same number of tokens, and the experts are divided among the processes. Each row
is the median time of a forward and a backward pass of the slowest process. All processes share the machine's cores, one
thread each, so more processes than cores take longer for that reason alone; the last column allows for it.

The model is arithmetic on `Assumptions`: nothing of it was measured on a GPU.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

TOKENS, HIDDEN, INNER, EXPERTS, CHOICES = 512, 512, 256, 16, 2
PROCESSES = (1, 2, 4)
ROUNDS = 9


@dataclass(frozen=True)
class Assumptions:
    """The inputs of the model.

    Fields:
        tokens, hidden, inner, choices: of each GPU; its gated experts are of shape hidden×2·inner and inner×hidden.
        bytes_per_value: of the data sent.
        flops: products per second that a GPU reaches in the experts: 600 TFLOP/s, six tenths of the bfloat16 peak of
            an H100 SXM (NVIDIA's data sheet: 989 without sparsity).
        node: GPUs that NVLink joins.
        nvlink, network: bytes per second and GPU and direction that an exchange reaches within a node and between
            nodes: eight tenths of 450 GB/s and of one 400 Gb/s adapter for each GPU.
        latency_s: of one exchange among the GPUs of a node; each further doubling of the GPUs adds as much.
        skew: the rows of the fullest GPU, divided by the mean.
    """

    tokens: int = 8192
    hidden: int = 4096
    inner: int = 1536
    choices: int = 8
    bytes_per_value: int = 2
    flops: float = 600e12
    node: int = 8
    nvlink: float = 0.8 * 450e9
    network: float = 0.8 * 50e9
    latency_s: float = 20e-6
    skew: float = 1.2


def compute_s(given: Assumptions) -> float:
    """Seconds of the products of a forward and a backward pass: three products of 2 · rows · hidden · inner, thrice."""
    return 3 * 6.0 * given.tokens * given.choices * given.hidden * given.inner * given.skew / given.flops


def exchange_s(given: Assumptions, gpus: int) -> float:
    """Seconds of one exchange: rows for other nodes and rows for other GPUs of the node travel at the same time."""
    if gpus == 1:
        return 0.0
    size = given.tokens * given.choices * given.hidden * given.bytes_per_value * given.skew
    inside = min(gpus, given.node)
    within, between = size * (inside - 1) / gpus / given.nvlink, size * (gpus - inside) / gpus / given.network
    doublings = max(0.0, math.log2(gpus / given.node))
    return max(within, between) + given.latency_s * (1 + doublings)


def step_s(given: Assumptions, gpus: int, parts: int) -> float:
    """Seconds of a forward and a backward pass with the tokens in parts.

    Both passes send rows there and back. Of each exchange one part is exposed, at the beginning or at the end; the
    others overlap with the products, as far as these last.
    """
    exchange, products = exchange_s(given, gpus), compute_s(given)
    seen = 4 * exchange / parts
    hidden = 4 * exchange - seen
    return products + seen + max(0.0, hidden - products * (parts - 1) / parts)


def model(given: Assumptions) -> str:
    """The table of the model, in Markdown, beneath its assumptions."""
    lines = [f"{name} = {value:g}" for name, value in asdict(given).items()]
    lines += ["", "| GPUs | products | one exchange | step | efficiency | step in two parts | efficiency |"]
    lines += ["| --- | --- | --- | --- | --- | --- | --- |"]
    alone = step_s(given, 1, 1)
    for gpus in (1, 8, 16, 32, 64, 128, 256, 512, 1024):
        cells = [f"{compute_s(given) * 1e3:.2f} ms", f"{exchange_s(given, gpus) * 1e3:.2f} ms"]
        for parts in (1, 2):
            step = step_s(given, gpus, parts)
            cells += [f"{step * 1e3:.2f} ms", f"{alone / step:.0%}"]
        lines.append(f"| {gpus} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _layer() -> Any:
    import torch

    from palladio.interop.torch import moe_mlp

    class Experts(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            draw = torch.Generator().manual_seed(0)
            self.up = torch.nn.Parameter(torch.randn(EXPERTS, HIDDEN, 2 * INNER, generator=draw) / HIDDEN**0.5)
            self.down = torch.nn.Parameter(torch.randn(EXPERTS, INNER, HIDDEN, generator=draw) / INNER**0.5)

        def forward(self, tokens: Any, ids: Any, weights: Any) -> Any:
            return moe_mlp(tokens, ids, weights, self.up, self.down)

    return Experts()


def _timed(step: Callable[[], Any], meet: Callable[[], Any]) -> list[float]:
    found = []
    for _ in range(ROUNDS + 2):
        meet()
        start = time.perf_counter()
        step()
        found.append(time.perf_counter() - start)
    return found[2:]


def _work(rank: int, ranks: int, folder: str, parts: int) -> None:
    """One process, which writes the seconds of each round to its own file."""
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import parallelize_module

    from palladio.interop.torch import ExpertParallel

    torch.set_num_threads(1)
    store = dist.FileStore(f"{folder}/store", ranks)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks)
    layer = parallelize_module(_layer(), init_device_mesh("cpu", (ranks,)), ExpertParallel(parts=parts))
    draw = torch.Generator().manual_seed(rank)
    tokens = torch.randn(TOKENS, HIDDEN, generator=draw)
    weights, ids = torch.randn(TOKENS, EXPERTS, generator=draw).softmax(dim=1).topk(CHOICES)

    def step() -> None:
        layer.zero_grad()
        layer(tokens, ids, weights).sum().backward()

    times = _timed(step, dist.barrier)
    Path(f"{folder}/rank{rank}").write_text(" ".join(map(str, times)), encoding="utf-8")
    dist.barrier()
    dist.destroy_process_group()


def measured(ranks: int, parts: int) -> float:
    """The median seconds of a step on `ranks` processes; each round counts as its slowest process."""
    import torch.multiprocessing

    os.environ["PALLADIO_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(_work, (ranks, folder, parts), nprocs=ranks)
        rows = [Path(f"{folder}/rank{rank}").read_text(encoding="utf-8").split() for rank in range(ranks)]
    return statistics.median(max(map(float, together)) for together in zip(*rows, strict=True))


def table() -> str:
    """The measured table, in Markdown."""
    cores = len(os.sched_getaffinity(0))
    lines = [f"{TOKENS} tokens a process, hidden {HIDDEN}, inner {INNER}, {EXPERTS} experts, top {CHOICES}, float32"]
    lines += ["", f"| processes (cores: {cores}) | parts | step | of one process | efficiency of a core |"]
    lines += ["| --- | --- | --- | --- | --- |"]
    alone = None
    for ranks in PROCESSES:
        for parts in (1, 2) if ranks > 1 else (1,):
            step = measured(ranks, parts)
            alone = alone or step
            share = max(1.0, ranks / cores) * alone / step
            lines.append(f"| {ranks} | {parts} | {step * 1e3:.1f} ms | {step / alone:.2f}× | {share:.0%} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print one of the two tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaling", description=__doc__)
    parser.add_argument("--model", action="store_true", help="compute for 1 to 1,024 GPUs instead of measuring here")
    print(model(Assumptions()) if parser.parse_args(arguments).model else table())
    return 0


if __name__ == "__main__":
    sys.exit(main())
