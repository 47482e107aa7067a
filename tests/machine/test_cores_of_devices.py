"""Launches on several cores of each device, under `shard_map`: cores of one device meet, and devices stay apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.gpu as plgpu
import palladio.tpu as pltpu
from palladio import lax

P = pl.PartitionSpec
PAIR = pl.make_mesh((2,), ("x",))
CORES = pltpu.TensorCoreMesh(axis_name="core", num_cores=2)
X = np.arange(32, dtype=np.float32).reshape(4, 8)
EXECUTORS = pytest.mark.parametrize("executor", ["reference", "simulator", "cpu"])


def swap(x: Any, out: Any, mine: Any, theirs: Any, sent: Any, received: Any) -> None:
    """Each core doubles the columns of the other core of its device, and adds the number of the device."""
    core = lax.axis_index("core")
    columns = pl.ds(core * 4, 4)
    pltpu.sync_copy(x.at[:, columns], mine)
    barrier = pltpu.get_barrier_semaphore()
    pl.semaphore_signal(barrier, 1, device_id={"core": 1 - core})
    pl.semaphore_wait(barrier, 1)
    pltpu.make_async_remote_copy(mine, theirs, sent, received, device_id={"core": 1 - core}).start()
    pltpu.make_async_remote_copy(mine, theirs, sent, received, device_id={"core": 1 - core}).wait()
    theirs[...] = 2 * theirs[...] + lax.axis_index("x")
    pltpu.sync_copy(theirs, out.at[:, columns])


def swapped(x: Any) -> Any:
    scratch = [pltpu.VMEM((2, 4), np.float32)] * 2 + [pltpu.SemaphoreType.DMA] * 2
    return pl.kernel(swap, pl.ShapeDtypeStruct.like(x), mesh=CORES, scratch_types=scratch)(x)


EXPECTED = 2 * np.roll(X, 4, axis=1) + np.repeat([0, 1], 2)[:, None]


@EXECUTORS
@pytest.mark.parametrize("staged", [True, False])
def test_the_cores_of_a_device_exchange_their_parts(executor: str, staged: bool) -> None:
    function = pl.shard_map(swapped, mesh=PAIR, in_specs=P("x"), out_specs=P("x"))
    with pl.executor(executor):
        assert np.array_equal((pl.jit(function) if staged else function)(X), EXPECTED)


def test_sub_cores_beside_scalars_and_two_launches() -> None:
    mesh = pltpu.VectorSubcoreMesh("core", "sub", num_cores=2, num_subcores=2)

    def add(x: Any, by: Any, out: Any) -> None:
        at = lax.axis_index("core") * 2 + lax.axis_index("sub")
        columns = pl.ds(2 * at, 2)
        out[:, columns] = x[:, columns] + by[...] * at

    def run(x: Any) -> Any:
        y = pl.kernel(add, pl.ShapeDtypeStruct.like(x), mesh=mesh)(x, np.float32(10))
        return pl.kernel(add, pl.ShapeDtypeStruct.like(x), mesh=mesh)(y, np.float32(1))

    found = pl.shard_map(run, mesh=PAIR, in_specs=P("x"), out_specs=P("x"))(X)
    assert np.array_equal(found, X + 11 * np.repeat(range(4), 2))


def test_a_kernel_of_trees_and_named_scratch() -> None:
    def kernel(inputs: Any, out: Any, *, held: Any) -> None:
        at = pl.ds(4 * lax.axis_index("core"), 4)
        held[...] = inputs["x"][:, at]
        out[:, at] = held[...] + inputs["y"][:, at]

    def run(x: Any) -> Any:
        scratch = {"held": pltpu.VMEM((2, 4), np.float32)}
        call = pl.kernel(kernel, pl.ShapeDtypeStruct.like(x), mesh=CORES, scratch_types=scratch)
        return call({"x": x, "y": x + 1})

    assert np.array_equal(pl.shard_map(run, mesh=PAIR, in_specs=P("x"), out_specs=P("x"))(X), 2 * X + 1)


@EXECUTORS
def test_collectives_stand_between_launches(executor: str) -> None:
    square = pl.make_mesh((2, 2), ("x", "y"))

    def run(x: Any) -> Any:
        y = plgpu.kernel(lambda x, out: out.__setitem__(..., 2 * x[...]), pl.ShapeDtypeStruct.like(x))(x)
        turned = lax.ppermute(y, "y", [(0, 1), (1, 0)])
        return lax.psum(y, ("x", "y")), turned, lax.all_gather(y, "x", tiled=True)

    whole = (P(), P("x", "y"), P(None, "y"))
    function = pl.shard_map(run, mesh=square, in_specs=P("x", "y"), out_specs=whole)
    with pl.executor(executor):
        total, turned, gathered = function(X)
    parts = 2 * X.reshape(2, 2, 2, 4).transpose(0, 2, 1, 3)
    assert np.array_equal(total, parts.sum((0, 1)))
    assert np.array_equal(turned, 2 * np.roll(X, 4, axis=1))
    assert np.array_equal(gathered, 2 * X)


def test_a_race_between_the_cores_of_a_device_is_found() -> None:
    def both(x: Any, out: Any) -> None:
        out[...] = x[...] + lax.axis_index("core")

    call = pl.shard_map(
        lambda x: pl.kernel(both, pl.ShapeDtypeStruct.like(x), mesh=CORES)(x),
        mesh=PAIR,
        in_specs=P("x"),
        out_specs=P("x"),
    )
    with pl.executor("simulator"), pytest.raises(pl.PalladioError, match="global-race"):
        call(X)


def test_devices_that_come_to_different_steps_are_refused() -> None:
    def one_gathers(x: Any) -> Any:
        y = swapped(x)
        return lax.psum(y, "x") if lax.axis_index("x") == 0 else swapped(y)

    def bodies(x: Any) -> Any:
        here = lax.axis_index("x")
        left = pl.CoreMesh("a", 1)
        return pl.kernel(
            body=[lambda x, out: None, lambda x, out: out.__setitem__(0, x[0] + here)],
            mesh=[left, pl.CoreMesh("b", 1)],
            out_type=pl.ShapeDtypeStruct.like(x),
        )(x)

    for function, got in ((one_gathers, "2 steps"), (bodies, "2 programs of")):
        with pytest.raises(ValueError, match=f"the devices launch different programs(.|\n)*{got}"):
            pl.shard_map(function, mesh=PAIR, in_specs=P("x"), out_specs=P("x"))(X)
