"""Inputs that another thread changes while kernels read them: indices, including out-of-bounds ones."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

import palladio as pl
import palladio.tpu as pltpu
from tools.soak.frame import Soak

SIZE, MARGIN = 4096, 1024
BLOCK = 64
FILL = 7.0
WILD = (2**31 - 1, -(2**31), 10**6, -1, SIZE)


def gather(i: Any, x: Any, o: Any) -> None:
    """Read at indices."""
    o[...] = x[i[...]]


def scatter(i: Any, x: Any, o: Any) -> None:
    """Write at indices, one by one."""
    o[...] = x[...]

    @pl.loop(0, SIZE)
    def _(n: Any) -> None:
        o[i[n]] = x[n]


def copy(i: Any, x: Any, o: Any) -> None:
    """Copy a block to another one, by index maps that read the indices."""
    o[...] = x[...]


def calls() -> dict[str, Any]:
    """Kernels whose indices come from memory."""
    out = pl.ShapeDtypeStruct((SIZE,), np.float32)
    moved = pl.BlockSpec((BLOCK,), lambda g, i: (i[g],))
    grid_spec = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1, grid=(SIZE // BLOCK,), in_specs=[moved], out_specs=moved
    )
    return {
        "gather": pl.pallas_call(gather, out, interpret="cpu"),
        "scatter": pl.pallas_call(scatter, out, interpret="cpu"),
        "index maps": pl.pallas_call(copy, out, grid_spec=grid_spec, interpret="cpu"),
    }


def changes(soak: Soak) -> None:
    """The results are undefined, but nothing is written outside the output, and nothing crashes."""
    indices, x = np.zeros(SIZE, np.int32), np.arange(SIZE, dtype=np.float32)
    seed, ended = int(soak.rng.integers(1 << 31)), threading.Event()

    def change() -> None:
        rng = np.random.default_rng(seed)
        while not ended.is_set():
            indices[...] = rng.integers(0, SIZE, SIZE)
            for n, wild in enumerate(WILD):
                indices[n :: len(WILD) + 2] = wild

    thread = threading.Thread(target=change)
    thread.start()
    margin = np.full(MARGIN, FILL, np.float32)
    try:
        for _ in soak.rounds():
            for name, call in calls().items():
                memory = np.full(SIZE + 2 * MARGIN, FILL, np.float32)
                with soak.faults(name):
                    call(indices, x, out=memory[MARGIN:-MARGIN])
                    soak.check(f"before {name}", memory[:MARGIN], margin)
                    soak.check(f"after {name}", memory[-MARGIN:], margin)
    finally:
        ended.set()
        thread.join()
