"""What a litmus pair is: a kernel, and the same kernel broken by one change, with what the checker must say of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import palladio as pl
import palladio.gpu as plgpu

F32 = np.float32
F16 = np.float16
ROW = 8
X = np.arange(1, 1 + ROW, dtype=F32)
"""f32[8]: what most pairs copy."""


@dataclass(frozen=True)
class Case:
    """A call, its arguments, and the outputs that it has if it is right."""

    call: Callable[..., Any]
    args: tuple[Any, ...]
    expected: tuple[Any, ...]

    def __call__(self) -> tuple[np.ndarray[Any, Any], ...]:
        results = self.call(*self.args)
        return tuple(map(np.asarray, results if isinstance(results, (list, tuple)) else [results]))


@dataclass(frozen=True)
class Pair:
    """`make(broken)` makes the case; `codes` are those of the broken one, all of them, in every schedule.

    The first is what the change breaks; others follow from it. `level` is the worst of them.
    """

    name: str
    codes: tuple[str, ...]
    make: Callable[[bool], Case]
    level: str = "error"


PAIRS: dict[str, Pair] = {}


def pair(*codes: str, level: str = "error") -> Callable[[Callable[[bool], Case]], Callable[[bool], Case]]:
    """Register a pair under its function's name."""

    def register(make: Callable[[bool], Case]) -> Callable[[bool], Case]:
        name = make.__name__.strip("_")
        assert name not in PAIRS, f"two pairs are called {name}"
        PAIRS[name] = Pair(name, codes, make, level)
        return make

    return register


def case(
    body: Callable[..., None],
    *args: Any,
    out: Any,
    scratch: Sequence[Any] = (),
    threads: int = 0,
    grid: int = 1,
    cluster: int = 0,
    aliases: dict[int, int] | None = None,
) -> Case:
    """A kernel on blocks `x`, blocks of a cluster `c` and warpgroups `wg`, and its outputs."""
    expected = tuple(out) if isinstance(out, (list, tuple)) else (out,)
    types = [pl.ShapeDtypeStruct(each.shape, each.dtype) for each in expected]
    call = plgpu.kernel(
        body,
        types if isinstance(out, (list, tuple)) else types[0],
        scratch_types=list(scratch),
        grid=(grid,),
        grid_names=("x",),
        cluster=(cluster,) if cluster else (),
        cluster_names=("c",) if cluster else (),
        num_threads=threads or None,
        thread_name="wg" if threads else None,
        input_output_aliases=aliases or {},
    )
    return Case(call, args, expected)


def row(stages: int = 0) -> Any:
    """Shared memory f32[8], or several rows of it."""
    return plgpu.SMEM((stages, ROW) if stages else (ROW,), F32)


def only(thread: int) -> Callable[[Callable[[], None]], None]:
    """The decorated function runs in one warpgroup."""
    return pl.when(pl.axis_index("wg") == thread)
