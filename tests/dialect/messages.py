"""What the tests of messages share: statements in kernels that break a rule, and the text that their authors read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.gpu as plgpu
from tests.dialect.kernels import kernel
from tests.errors.shown import shown

Calls = dict[str, Callable[[], Any]]
BLOCKS: dict[str, Any] = {"grid": (2,), "grid_names": "b"}
CLUSTER: dict[str, Any] = {"grid": (1,), "grid_names": "b", "cluster": (2,), "cluster_names": "c"}
SCRATCH = {
    "s": plgpu.SMEM((4, 6), np.float32),
    "acc": plgpu.ACC((4, 6)),
    "bar": plgpu.Barrier(),
    "named": plgpu.NamedBarrier(num_arrivals=1),
    "sem": plgpu.alloc_semaphore(),
    "union": plgpu.RefUnion(plgpu.SMEM((4,), np.float32), plgpu.SMEM((2,), np.int32)),
}


def inside(statement: Callable[..., Any], **mesh: Any) -> Callable[[], Any]:
    """A call of a kernel that runs a statement on its scratch buffers."""

    def body(o_ref: Any, **scratch: Any) -> None:
        statement(**{name: scratch[name] for name in statement.__code__.co_varnames[: statement.__code__.co_argcount]})

    return kernel(body, scratch_types=SCRATCH, **(mesh or BLOCKS))


def message(call: Callable[[], Any]) -> str:
    """The text of the error of a call, which must be a user's error at a line of the tests."""
    with pytest.raises(pl.PalladioError) as caught:
        call()
    assert "messages.py" in str(caught.value)
    return shown(caught.value)


def texts(calls: Calls) -> str:
    """The messages of a family of calls, each under its name."""
    return "\n".join(f"== {name}\n{message(call)}\n" for name, call in calls.items())
