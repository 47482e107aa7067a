"""What the tests of the concurrent dialect share: small kernels that write int32 arrays, run and checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import palladio as pl
import palladio.gpu as plgpu


def kernel(body: Callable[..., None], shape: tuple[int, ...] = (), dtype: Any = np.int32, **mesh: Any) -> Any:
    """The kernel of a body whose last array is one output `dtype[shape]`."""
    return plgpu.kernel(body, pl.ShapeDtypeStruct(shape, dtype), **mesh)


def found(fn: Callable[..., Any], *args: Any) -> set[str]:
    """The codes of what the simulator finds in a few schedules."""
    return {finding.code for finding in pl.check(fn, *args, schedules=8).findings}


def traced(body: Callable[[], Any], **mesh: Any) -> None:
    """Trace a body that reaches nothing, in a kernel."""

    def whole(o_ref: Any) -> None:
        body()

    kernel(whole, **mesh)()
