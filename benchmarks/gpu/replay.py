"""A launch of the library's matmul in a CUDA graph, without any array library."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.gpu.accuracy import BF16, ROUNDED, close, normal, product
from palladio.array.on_card import CardArray
from palladio.driver.executors import HOPPER
from palladio.driver.loading import load
from palladio.hopper.launch.calls import HostMemory, KernelCall
from palladio.hopper.launch.executor import OnCard
from palladio.library import hopper
from palladio.trace.trace import stage
from palladio.trace.values import wrap
from palladio.types.types import ArrayType


def matmul_call(m: int, k: int, n: int) -> KernelCall:
    """The kernel of a product of bfloat16."""
    types = [ArrayType((m, k), BF16), ArrayType((k, n), BF16)]
    program = stage(lambda x, y: [hopper.matmul(x, y)], types, wrap, name="product").program
    run = load(program, HOPPER)
    assert isinstance(run, OnCard)
    call = run.only_call
    assert call is not None, "the library's matmul is one kernel"
    return call


def replayed(m: int = 256, k: int = 128, n: int = 512) -> str:
    """Capture, replay, change the operands' contents, replay: each result is right."""
    call = matmul_call(m, k, n)
    said = []
    with HostMemory(0) as memory:
        known, device = memory.driver, memory.device
        with known.current(device):
            stream = int(known.call("cuStreamCreate", 1))  # CU_STREAM_NON_BLOCKING
            x, y = memory.empty((m, k), BF16, 0), memory.empty((k, n), BF16, 0)
            out = memory.empty((m, n), BF16, 0)
            kernel = call.on(0)
            addresses = (x.address, y.address, out.address)
            put(known, x, normal(m, k))
            put(known, y, normal(k, n))
            kernel.launch(stream, addresses)
            known.call("cuStreamSynchronize", stream)
            mode = known.api.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL
            known.call("cuStreamBeginCapture", stream, mode)
            kernel.launch(stream, addresses)
            graph = known.call("cuStreamEndCapture", stream)
            ready = known.call("cuGraphInstantiate", graph, 0)
            for seed in (3, 4):
                left, right = normal(m, k, seed=seed), normal(k, n, seed=seed + 1)
                put(known, x, left)
                put(known, y, right)
                known.call("cuGraphLaunch", ready, stream)
                known.call("cuStreamSynchronize", stream)
                said.append(close(memory.download(out), product(left, right), ROUNDED))
            known.call("cuGraphExecDestroy", ready)
            known.call("cuGraphDestroy", graph)
            known.call("cuStreamDestroy", stream)
    return "; ".join(said)


def put(known: Any, array: CardArray, values: np.ndarray) -> None:
    """Copy values into an array of the card, and wait."""
    dense = np.ascontiguousarray(values)
    known.call("cuMemcpyHtoDAsync", array.address, dense.ctypes.data, array.nbytes, 0)
    known.call("cuStreamSynchronize", 0)
