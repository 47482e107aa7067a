"""References of a function under `shard_map`, which launches on several cores of each device close over."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.numpy as jnp
import palladio.tpu as pltpu
from palladio import lax

P = pl.PartitionSpec
RING = pl.make_mesh((4,), ("x",))
CORES = pltpu.TensorCoreMesh(axis_name="core", num_cores=2)
X = np.arange(128, dtype=np.int32).reshape(16, 8)
PART = (2, 8)
EXECUTORS = pytest.mark.parametrize("executor", ["reference", "simulator", "cpu"])
pytestmark = pytest.mark.filterwarnings("ignore::palladio.NotCompiledWarning")


def on_devices(function: Any, staged: bool = False) -> Any:
    call = pl.shard_map(function, mesh=RING, in_specs=P("x"), out_specs=P("x"))
    return (pl.jit(call) if staged else call)(X)


def rows() -> Any:
    return pl.ds(2 * lax.axis_index("core"), 2)


def doubled(source: Any, target: Any, more: int = 0) -> None:
    """Each core doubles its rows, and adds ten times the number of the device, and its own."""

    @pl.core_map(CORES)
    def _() -> None:
        def body(held: Any) -> None:
            pltpu.sync_copy(source.at[rows()], held)
            held[...] = held[...] * 2 + 10 * lax.axis_index("x") + lax.axis_index("core") + more
            pltpu.sync_copy(held, target.at[rows()])

        pl.run_scoped(body, pltpu.VMEM(PART, np.int32))


ADDED = np.repeat([10 * device + core for device in range(4) for core in range(2)], 2)[:, None]


@pytest.mark.one_executor
@EXECUTORS
@pytest.mark.parametrize("staged", [False, True])
def test_cores_close_over_references_of_run_state(executor: str, staged: bool) -> None:
    def function(x: Any) -> Any:
        return pl.run_state(lambda refs: doubled(*refs))((x, jnp.zeros_like(x)))[1]

    with pl.executor(executor):
        assert np.array_equal(on_devices(function, staged), 2 * X + ADDED)


@pytest.mark.one_executor
@EXECUTORS
def test_a_second_launch_sees_what_the_first_one_wrote(executor: str) -> None:
    def function(x: Any) -> Any:
        source, target = pl.new_ref(x), pl.empty_ref(pl.ShapeDtypeStruct.like(x))
        doubled(source, target)
        target[0] = target[0] + 1
        doubled(target, source, more=3)
        return pl.freeze(source)

    first = 2 * X + ADDED
    first[::4] += 1
    with pl.executor(executor):
        assert np.array_equal(on_devices(function), 2 * first + ADDED + 3)


@pytest.mark.one_executor
@EXECUTORS
def test_cores_copy_to_references_of_other_devices(executor: str) -> None:
    def function(x: Any) -> Any:
        source, target = pl.new_ref(x), pl.new_ref(jnp.zeros_like(x))

        @pl.core_map(CORES)
        def _() -> None:
            def body(sent: Any, received: Any) -> None:
                right = {"x": (lax.axis_index("x") + 1) % lax.axis_size("x")}
                parts = source.at[rows()], target.at[rows()]
                pltpu.async_remote_copy(*parts, sent, received, device_id=right).wait()

            pl.run_scoped(body, pltpu.SemaphoreType.DMA, pltpu.SemaphoreType.DMA)

        return target[...]

    with pl.executor(executor):
        assert np.array_equal(on_devices(function), np.roll(X, 4, axis=0))


def test_a_reference_is_passed_beside_arrays() -> None:
    def add(x: Any, total: Any, out: Any) -> None:
        out[rows()] = x[rows()] + total[rows()]
        total[rows()] = out[rows()] * 2

    def function(x: Any) -> Any:
        total = pl.new_ref(x + 1)
        call = pl.kernel(add, pl.ShapeDtypeStruct.like(x), mesh=CORES)
        return call(x, total) + 0 * call(x, total) + total[...]

    first = 2 * X + 1
    assert np.array_equal(on_devices(function), first + 2 * (X + 2 * first))


def test_a_race_of_cores_for_such_a_reference_is_found() -> None:
    def function(x: Any) -> Any:
        target = pl.new_ref(x)

        @pl.core_map(CORES)
        def _() -> None:
            target[0] = target[0] + 1

        return target[...]

    with pl.executor("simulator"), pytest.raises(pl.PalladioError, match="global-race"):
        on_devices(function)


def test_a_part_of_it_is_taken_in_the_kernel() -> None:
    def function(x: Any) -> Any:
        target = pl.new_ref(x)
        half = target.at[pl.ds(0, 2)]

        @pl.core_map(CORES)
        def _() -> None:
            half[...] = half[...] + 1

        return target[...]

    with pytest.raises(NotImplementedError, match=r"(?s)take parts of it in the kernel.*half\[\.\.\.\] = half"):
        on_devices(function)


@pytest.mark.one_executor
@EXECUTORS
def test_a_staged_function_of_a_device_launches_on_its_cores(executor: str) -> None:
    def added(x_ref: Any, o_ref: Any) -> None:
        o_ref[rows()] = x_ref[rows()] + lax.axis_index("core")

    @pl.jit
    def function(x: Any) -> Any:
        turned = jnp.flip(x, 0)
        launch = pl.kernel(added, pl.ShapeDtypeStruct((4, 8), np.int32), mesh=CORES)
        return launch(turned) + lax.psum(turned, "x")

    with pl.executor(executor):
        found = on_devices(function)
    turned = X.reshape(4, 4, 8)[:, ::-1]
    assert np.array_equal(found, (turned + np.array([0, 0, 1, 1])[:, None] + turned.sum(axis=0)).reshape(16, 8))
