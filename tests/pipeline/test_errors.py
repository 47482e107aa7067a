"""Messages when a pipeline is requested in a wrong way, family by family, as golden files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.gpu as plgpu
import palladio.tpu as pltpu
from tests.errors.shown import shown

Calls = dict[str, Callable[[], Any]]
X = np.zeros((8, 16), np.float32)
SPEC = plgpu.BlockSpec((4, 4), lambda k: (k, 0))


def message(call: Callable[[], Any]) -> str:
    """The text of the error of a call, which must be a user's error at a line of these tests."""
    with pytest.raises(pl.PalladioError) as caught:
        call()
    assert "test_errors.py" in str(caught.value)
    return shown(caught.value)


def texts(calls: Calls) -> str:
    """The messages of a family of calls, each under its name."""
    return "\n".join(f"== {name}\n{message(call)}\n" for name, call in calls.items())


def in_kernel(statement: Callable[..., Any], **mesh: Any) -> Callable[[], Any]:
    """A call of a kernel that runs a statement on its input and output."""

    def body(x: Any, o: Any) -> None:
        statement(x, o)

    call = plgpu.kernel(body, pl.ShapeDtypeStruct(X.shape, X.dtype), **mesh)
    return lambda: call(X)


def nothing(*_: Any) -> None:
    """A body that does nothing."""


def gpu(body: Any = nothing, refs: Any = None, **options: Any) -> Callable[[], Any]:
    """A pipeline of one thread with these arguments."""
    given = {"grid": (2,), "in_specs": [SPEC], "max_concurrent_steps": 2, **options}
    return in_kernel(lambda x, o: plgpu.emit_pipeline(body, **given)(*(refs(x, o) if refs else (x,))))


def special(body: Any = nothing, refs: Any = None, allocations: Any = None, **options: Any) -> Callable[[], Any]:
    """A warp-specialised pipeline with these arguments."""
    given = {"grid": (2,), "in_specs": [SPEC], "wg_axis": "wg", "num_compute_wgs": 1, **options}
    mesh = {"num_threads": 2, "thread_name": "wg"}

    def statement(x: Any, o: Any) -> None:
        plgpu.emit_pipeline_warp_specialized(body, **given)(*(refs(x, o) if refs else (x,)), allocations=allocations)

    return in_kernel(statement, **mesh)


def tpu(body: Any = nothing, **options: Any) -> Callable[[], Any]:
    """A pipeline of a core with these arguments."""
    given = {"grid": (2,), "in_specs": [pl.BlockSpec((4, 4), lambda k: (k, 0))], **options}

    def kernel(x: Any, o: Any) -> None:
        pltpu.emit_pipeline(body, **given)(x)

    call = pl.kernel(
        kernel, pl.ShapeDtypeStruct(X.shape, X.dtype), mesh=pltpu.TensorCoreMesh(axis_name="core", num_cores=2)
    )
    return lambda: call(X)


def both_blocks(x: Any, o: Any) -> tuple[Any, Any]:
    return x, o


SPECS: Calls = {
    "a fill mode": lambda: plgpu.BlockSpec((4,), oob_fill_mode="zeros"),
    "transforms": lambda: plgpu.BlockSpec((4,), transforms=(8, 64)),
    "a delay": lambda: plgpu.BlockSpec((4,), delay_release=-1),
    "a delay that is not a number": lambda: plgpu.BlockSpec((4,), delay_release=1.0),
}


def writes(x: Any, o: Any) -> None:
    """A pipeline whose index map writes to a reference."""

    def index_map(k: Any) -> Any:
        o[0, 0] = 1.0
        return k, 0

    plgpu.emit_pipeline(nothing, grid=(2,), in_specs=[plgpu.BlockSpec((4, 4), index_map)])(x)


def carried(result: Any) -> Callable[..., Any]:
    """A body that returns this of its carry."""
    return lambda indices, x, carry: result(carry)


def carries_a_reference(x: Any, o: Any) -> None:
    def scoped(acc: Any, other: Any) -> None:
        plgpu.emit_pipeline(carried(lambda carry: other), grid=(2,), in_specs=[SPEC], init_carry=acc)(x)

    pl.run_scoped(scoped, plgpu.ACC((4, 4)), plgpu.ACC((4, 4)))


GPU: Calls = {
    "no function": gpu(body=3),
    "no slots": gpu(max_concurrent_steps=0),
    "a grid size": gpu(grid=(2, 0)),
    "no grid size": gpu(grid=(2.5,)),
    "a delay of the pipeline": gpu(delay_release=-1),
    "a delay of as many steps as slots": gpu(delay_release=2),
    "a delay of one input": gpu(
        in_specs=[plgpu.BlockSpec((4, 4), lambda k: (k, 0), delay_release=3)], max_concurrent_steps=3
    ),
    "too few references": gpu(in_specs=[SPEC, SPEC]),
    "too many references": gpu(refs=both_blocks),
    "an array": gpu(refs=lambda x, o: (x[...],)),
    "another structure": gpu(in_specs=[{"x": SPEC}]),
    "specs that are none": gpu(in_specs=[(4, 4)]),
    "specs that are not a tuple": gpu(in_specs=3),
    "another rank": gpu(in_specs=[plgpu.BlockSpec((4,), lambda k: (k,))]),
    "an index map of another grid": gpu(in_specs=[plgpu.BlockSpec((4, 4), lambda i, j: (i, j))]),
    "an index map of another rank": gpu(in_specs=[plgpu.BlockSpec((4, 4), lambda k: k)]),
    "an index map that writes": in_kernel(writes),
    "memory that it cannot fill": gpu(in_specs=[plgpu.BlockSpec((4, 4), lambda k: (k, 0), memory_space=plgpu.REGS)]),
    "two axes of the cluster": gpu(in_specs=[plgpu.BlockSpec((4, 4), lambda k: (k, 0), collective_axes=("a", "b"))]),
    "an output that is shared": gpu(
        in_specs=[], out_specs=[plgpu.BlockSpec((4, 4), lambda k: (k, 0), collective_axes="a")]
    ),
    "an output with a delay": gpu(in_specs=[], out_specs=[plgpu.BlockSpec((4, 4), lambda k: (k, 0), delay_release=1)]),
    "a body of other parameters": gpu(body=lambda x: print()),
    "a body that returns": gpu(body=lambda indices, x: indices[0]),
    "a carry of another structure": gpu(body=carried(lambda carry: (carry, carry)), init_carry=np.float32(0)),
    "a carry of another dtype": gpu(body=carried(lambda carry: np.int32(1)), init_carry=np.float32(0)),
    "another reference": in_kernel(carries_a_reference),
}


def twice(pipeline: Any) -> None:
    """A context that calls its pipeline twice."""
    pipeline()
    pipeline()


SPECIAL: Calls = {
    "no thread computes": special(num_compute_wgs=0),
    "a memory thread that there is not": special(memory_thread_idx=2),
    "another number of threads": special(num_compute_wgs=2),
    "no such axis": special(wg_axis="warpgroup"),
    "registers": special(memory_registers=41),
    "a context that is not a function": special(compute_context=3),
    "a context that calls it twice": special(compute_context=twice),
    "a context that does not call it": special(compute_context=nothing),
    "a context of other parameters": special(compute_context=lambda: print(1)),
    "a state without allocations": special(pipeline_state=plgpu.PipelinePipeline.START),
    "a state that is none": special(pipeline_state="start"),
    "a state that there is not": special(pipeline_state=3),
    "a delay with manual barriers": special(manual_consumed_barriers=True, delay_release=1),
    "a body of other parameters": special(body=lambda indices, x: print(), manual_consumed_barriers=True),
    "a delay of as many steps as slots": special(delay_release=2),
}

CORES: dict[str, Any] = {"core_axis_name": "core", "dimension_semantics": ("parallel",)}
TPU: Calls = {
    "no function": tpu(body=None),
    "a grid size": tpu(grid=(0,)),
    "memory that it cannot fill": tpu(in_specs=[pl.BlockSpec((4, 4), lambda k: (k, 0), memory_space=plgpu.SMEM)]),
    "a body that returns": tpu(body=lambda x: 1),
    "semantics of another rank": tpu(dimension_semantics=("parallel", "parallel")),
    "semantics that there are not": tpu(dimension_semantics=("sequential",)),
    "cores without a parallel axis": tpu(core_axis_name="core"),
    "cores named twice": tpu(core_axis=0, **CORES),
    "cores named by a number": tpu(**{**CORES, "core_axis_name": 0}),
    "cores of the grid named by a name": tpu(core_axis="core", dimension_semantics=("parallel",)),
}

FAMILIES = {"specs": SPECS, "gpu": GPU, "special": SPECIAL, "tpu": TPU}


@pytest.mark.parametrize("family", FAMILIES)
def test_messages(family: str, golden: Callable[..., None]) -> None:
    golden(texts(FAMILIES[family]), f"golden/{family}.txt")
