"""Kernel calls inside kernels, compiled for the CPU: with the results of the evaluator."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.gpu as plgpu
import palladio.numpy as jnp
import palladio.tpu as pltpu
from palladio.cpu.executor import NotCompiledWarning

FLOAT = np.float32
ROWS, COLUMNS = 7, 6


@pytest.fixture(autouse=True)
def compiled() -> Iterator[None]:
    """Whatever is called must be compiled."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", NotCompiledWarning)
        yield


def add_up(at: Any, x: Any, out: Any, total: Any) -> None:
    """The sum of the rows so far, in scratch, and the rows as some scalars order them."""

    @pl.when(pl.program_id(0) == 0)
    def _() -> None:
        total[...] = jnp.zeros_like(total[...])

    total[...] += x[...]
    out[...] = total[...] * (1 + at[0])


def inner(at: Any, x: Any, steps: Any = 4) -> Any:
    """A call with scalars, ragged edges, scratch and sequential steps."""
    spec = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1,
        grid=(steps, 2),
        in_specs=[pl.BlockSpec((2, 4), lambda i, j, at: (at[i], j))],
        out_specs=pl.BlockSpec((2, 4), lambda i, j, at: (i, j)),
        scratch_shapes=[pltpu.VMEM((2, 4), FLOAT)],
    )
    return pl.pallas_call(add_up, pl.ShapeDtypeStruct((ROWS, COLUMNS), FLOAT), grid_spec=spec)(at, x)


def whole(at: Any, x: Any, out: Any) -> None:
    out[...] = inner(at[...], x[...] + 1) * 2 + inner(at[...], x[...])


def in_a_loop(at: Any, x: Any, out: Any) -> None:
    out[...] = pl.fori_loop(0, 3, lambda n, value: inner(at[...], value) + n, x[...])


def of_dynamic_size(at: Any, x: Any, out: Any) -> None:
    out[...] = inner(at[...], x[...], at[0] + 1)


DATA = np.random.default_rng(0).standard_normal((2, ROWS, COLUMNS)).astype(FLOAT)


@pytest.mark.parametrize("kernel", [whole, in_a_loop, of_dynamic_size])
@pytest.mark.parametrize("at", [[0, 1, 2, 3], [3, 0, 0, 1]], ids=str)
def test_inside_the_kernel_of_a_grid(kernel: Any, at: list[int]) -> None:
    found = []
    for executor in ("cpu", "reference"):
        call = pl.pallas_call(
            kernel,
            pl.ShapeDtypeStruct(DATA.shape, FLOAT),
            grid=(2,),
            in_specs=[pl.BlockSpec((4,), lambda i: (0,)), pl.BlockSpec((None, ROWS, COLUMNS), lambda i: (i, 0, 0))],
            out_specs=pl.BlockSpec((None, ROWS, COLUMNS), lambda i: (i, 0, 0)),
            interpret=executor,
        )
        found.append(np.asarray(call(np.array(at, np.int32), DATA)))
    np.testing.assert_allclose(*found, rtol=1e-6)


def test_inside_the_threads_of_a_launch_with_an_alias() -> None:
    def changes(x: Any, out: Any) -> None:
        @pl.when(pl.program_id(0) == 1)
        def _() -> None:
            out[...] = out[...] * 3

    def body(x: Any, out: Any, tile: Any, met: Any) -> None:
        me = pl.axis_index("wg")
        tile[me] = x[me]
        plgpu.barrier_arrive_and_wait(met)
        spec = pl.BlockSpec((4, COLUMNS), lambda i: (i, 0))
        call = pl.pallas_call(
            changes,
            pl.ShapeDtypeStruct((ROWS, COLUMNS), FLOAT),
            grid=(2,),
            in_specs=[spec],
            out_specs=spec,
            input_output_aliases={0: 0},
        )
        out[me] = call(tile[1 - me])

    found = []
    scratch = [plgpu.SMEM(DATA.shape, FLOAT), plgpu.Barrier(num_arrivals=2)]
    for executor in ("cpu", "reference"):
        out = pl.ShapeDtypeStruct(DATA.shape, FLOAT)
        options: dict[str, Any] = {"num_threads": 2, "thread_name": "wg", "scratch_types": scratch}
        found.append(plgpu.kernel(body, out, interpret=executor, **options)(DATA))
    np.testing.assert_array_equal(*found)


def test_a_copy_of_an_inner_kernel_is_awaited_there() -> None:
    def copies(x: Any, out: Any, done: Any) -> None:
        copy = pltpu.make_async_copy(x, out, done)
        copy.start()
        copy.wait()

    def kernel(x: Any, out: Any) -> None:
        shape = pl.ShapeDtypeStruct((ROWS, COLUMNS), FLOAT)
        out[...] = pl.pallas_call(copies, shape, scratch_shapes=[pltpu.SemaphoreType.DMA])(x[...]) + 1

    out = pl.ShapeDtypeStruct((ROWS, COLUMNS), FLOAT)
    np.testing.assert_array_equal(pl.pallas_call(kernel, out, interpret="cpu")(DATA[0]), DATA[0] + 1)
