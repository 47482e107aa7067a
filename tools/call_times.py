"""`python -m tools.call_times`: microseconds from a call in Python to the driver, without a GPU.

The driver is the stand-in of the tests, tensors are PyTorch's in host memory that claim to be on a card, and nothing
runs. The time is that of Palladio, of PyTorch's allocation of the result (of host memory, not by its allocator for
CUDA), and of the stand-in, which is also printed separately. Calls are interleaved in rounds so short that other work
on the machine does not disturb some of them; the shortest round counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import palladio as pl
import palladio.gpu as plgpu
from palladio.call.jit import jit
from palladio.hopper.launch.driver import driver
from palladio.library import gmm, hopper, matmul
from tests.hopper.driver.fake import fake
from tests.hopper.driver.stand_ins import own_all_memory

ROUNDS, CALLS = 500, 30


def imitated(patch: pytest.MonkeyPatch) -> Any:
    """Imitate a card that owns all memory of the process; returns the stand-in's driver."""
    card = fake()
    card.begin()
    own_all_memory(card, patch, stream=2)
    found = driver()
    found.call("cuCtxPushCurrent", found.hopper(0).context)
    return found


def _scaled(x: Any, number: Any) -> Any:
    def body(x: Any, out: Any) -> None:
        out[...] = (x[...] * number).astype(out.dtype)

    return plgpu.kernel(body, pl.ShapeDtypeStruct(x.shape, x.dtype))(x)


def calls(found: Any) -> dict[str, Callable[[], Any]]:
    """The timed calls, by name; the driver's call alone comes first."""
    x, y = torch.randn(64, 64).bfloat16(), torch.randn(64, 64).bfloat16()
    sizes, matrices = torch.tensor([64], dtype=torch.int32), y[None].contiguous()
    number = np.float32(2)
    scaled = jit(_scaled).ahead(x, number)
    kept = jit(hopper.matmul).ahead(x, y)
    out = kept(x, y)
    kernel = kept._short.last._kernel
    addresses = x.data_ptr(), y.data_ptr(), out.data_ptr()
    kernel.launch(2, addresses)
    older = jit(hopper.matmul).ahead(x, y)
    older(x, y)
    older._short.last.exchanged = older._short.exchanged = None
    return {
        "the stand-in, and the machine code before it": lambda: kernel._direct.launch(2, addresses),
        "a kept call": lambda: kept(x, y),
        "a kept call without functions of C": lambda: older(x, y),
        "a kept call with out=": lambda: kept(x, y, out=out),
        "a kept call with a number": lambda: scaled(x, number),
        "library.matmul": lambda: matmul(x, y),
        "library.gmm": lambda: gmm(x, matrices, sizes),
    }


def main() -> None:
    """Print the table."""
    patch = pytest.MonkeyPatch()
    try:
        timed = calls(imitated(patch))
        for call in timed.values():
            call()
        least = dict.fromkeys(timed, 1.0)
        for _ in range(ROUNDS):
            for name, call in timed.items():
                start = time.perf_counter()
                for _ in range(CALLS):
                    call()
                least[name] = min(least[name], (time.perf_counter() - start) / CALLS)
        for name, seconds in least.items():
            print(f"{name:48}{1e6 * seconds:6.2f}")
    finally:
        patch.undo()


if __name__ == "__main__":
    main()
