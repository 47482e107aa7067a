"""Functions on several simulated devices, as those of Pallas' page on distributed kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.numpy as jnp
import palladio.tpu as pltpu
import palladio.tpu.sparse_core as plsc
from palladio import lax

pytestmark = pytest.mark.filterwarnings("ignore::palladio.NotCompiledWarning")

P = pl.PartitionSpec
RING = pl.make_mesh((4,), ("x",))
GRID = pl.make_mesh((2, 2), ("x", "y"))
X = np.arange(64, dtype=np.float32).reshape(8, 8)
DMA, REGULAR = pltpu.SemaphoreType.DMA, pltpu.SemaphoreType.REGULAR
WHOLE = pl.BlockSpec(memory_space=pltpu.ANY)
EXECUTORS = pytest.mark.parametrize("interpret", [None, "reference", pltpu.InterpretParams(detect_races=True)])


def send_right(x_ref: Any, o_ref: Any, sent: Any, received: Any) -> None:
    right = lax.rem(lax.axis_index("x") + 1, np.int32(lax.axis_size("x")))
    copy = pltpu.make_async_remote_copy(x_ref, o_ref, sent, received, device_id=(right,))
    copy.start()
    copy.wait()


def sent_right(x: Any) -> Any:
    return pl.pallas_call(
        send_right, pl.ShapeDtypeStruct.like(x), in_specs=[WHOLE], out_specs=WHOLE, scratch_shapes=[DMA, DMA]
    )(x)


@EXECUTORS
def test_a_ring_permutes_the_parts(interpret: Any) -> None:
    call = pl.shard_map(
        lambda x: sent_right(x * 2) + 1, mesh=RING, in_specs=P("x"), out_specs=P("x"), interpret=interpret
    )
    assert np.array_equal(call(X), np.roll(2 * X, 2, axis=0) + 1)
    assert np.array_equal(pl.jit(call)(X), call(X))


def test_a_ring_along_columns() -> None:
    call = pl.shard_map(sent_right, mesh=RING, in_specs=P(None, "x"), out_specs=P(None, "x"))
    assert np.array_equal(call(X), np.roll(X, 2, axis=1))


@EXECUTORS
def test_a_kernel_gathers_in_three_steps(interpret: Any) -> None:
    def all_gather(x_ref: Any, o_ref: Any, copied: Any, sent: Any, received: Any) -> None:
        step, me = pl.program_id(0), lax.axis_index("x")
        right, slot = (me + 1) % 4, (me - step + 8) % 4

        @pl.when(step == 0)
        def _() -> None:
            barrier = pltpu.get_barrier_semaphore()
            for neighbour in (right, (me + 3) % 4):
                pl.semaphore_signal(barrier, device_id=neighbour)
            pl.semaphore_wait(barrier, 2)
            pltpu.async_copy(x_ref, o_ref.at[me], copied).wait()

        pltpu.async_remote_copy(o_ref.at[slot], o_ref.at[slot], sent, received.at[step], device_id=right).wait()

    def gathered(x: Any) -> Any:
        out = pl.ShapeDtypeStruct((4, *x.shape), x.dtype)
        scratch = [DMA, DMA, DMA((3,))]
        return pl.pallas_call(all_gather, out, grid=(3,), in_specs=[WHOLE], out_specs=WHOLE, scratch_shapes=scratch)(x)

    call = pl.shard_map(gathered, mesh=RING, in_specs=P("x"), out_specs=P(None), interpret=interpret)
    assert np.array_equal(call(X), X.reshape(4, 2, 8))


def test_blocks_of_a_grid_on_each_device() -> None:
    def kernel(s_ref: Any, x_ref: Any, y_ref: Any, o_ref: Any, count: Any) -> None:
        count[0] = jnp.where(pl.program_id(0) == 0, 0, count[0] + 1)
        o_ref[...] = x_ref[...] * s_ref[0] + y_ref[...] + 10 * lax.axis_index(("x", "y")) + count[0]

    def function(x: Any, y: Any) -> Any:
        spec = pltpu.PrefetchScalarGridSpec(
            1,
            grid=(2,),
            in_specs=[pl.BlockSpec((4, 2), lambda i, s: (0, i)), pl.BlockSpec((None, 1), lambda i, s: (i, 0))],
            out_specs=pl.BlockSpec((4, 2), lambda i, s: (0, i)),
            scratch_shapes=[pltpu.SMEM((1,), np.int32)],
        )
        return pl.pallas_call(kernel, pl.ShapeDtypeStruct.like(x), grid_spec=spec)(np.int32([3]), x, y)

    y = np.float32([[100], [200]])
    call = pl.shard_map(function, mesh=GRID, in_specs=(P("x", "y"), P()), out_specs=P("x", "y"))
    expected = 3 * X + 10 * np.kron([[0, 1], [2, 3]], np.ones((4, 4)))
    expected += np.tile([100, 100, 201, 201], 2)
    assert np.array_equal(call(X, y), expected)


def test_a_launch_on_the_core_of_each_device() -> None:
    def body(x_ref: Any, o_ref: Any, ready: Any) -> None:
        pl.semaphore_signal(ready, core_index=0)
        pl.semaphore_wait(ready)
        o_ref[...] = x_ref[...] + lax.axis_index("x") + 10 * lax.axis_index("core")

    def function(x: Any) -> Any:
        mesh = pltpu.TensorCoreMesh(axis_name="core")
        return pl.kernel(body, pl.ShapeDtypeStruct.like(x), mesh=mesh, scratch_types={"ready": REGULAR})(x)

    call = pl.shard_map(function, mesh=RING, in_specs=P("x"), out_specs=P("x"))
    assert np.array_equal(call(X), X + np.repeat(np.arange(4), 2)[:, None])


def test_collectives() -> None:
    def function(x: Any) -> Any:
        return {
            "gather": lax.all_gather(x, "x", tiled=True),
            "sum": lax.psum(x, ("x", "y")),
            "mean": lax.pmean(x, "y"),
            "range": lax.pmax(x, "x") - lax.pmin(x, "x"),
            "scatter": lax.psum_scatter(x, "x", scatter_dimension=1, tiled=True),
            "permuted": lax.ppermute(x, "x", [(0, 1)]),
            "devices": lax.psum(1, ("x", "y")) + x * 0,
        }

    specs = {name: P("x", "y") for name in ("mean", "range", "permuted", "devices")}
    specs |= {"gather": P(None, "y"), "sum": P(), "scatter": P(None, ("y", "x"))}
    found = pl.shard_map(function, mesh=GRID, in_specs=P("x", "y"), out_specs=specs)(X)
    parts = X.reshape(2, 4, 2, 4)
    assert np.array_equal(found["gather"], X)
    assert np.array_equal(found["sum"], parts.sum((0, 2)))
    assert np.array_equal(found["mean"], np.tile(X.reshape(8, 2, 4).mean(1), 2))
    assert np.array_equal(found["range"], np.full((8, 8), 32))
    assert np.array_equal(found["scatter"], X[:4] + X[4:])
    assert np.array_equal(found["permuted"], np.concatenate([np.zeros((4, 8)), X[:4]]))
    assert (found["devices"] == 4).all()


def test_a_race_between_devices_is_found() -> None:
    def kernel(x_ref: Any, o_ref: Any, sent: Any, received: Any) -> None:
        right = (lax.axis_index("x") + 1) % 4
        copy = pltpu.async_remote_copy(x_ref, o_ref, sent, received, device_id=right)
        o_ref[...] = x_ref[...] * 2
        copy.wait()

    def function(x: Any) -> Any:
        return pl.pallas_call(kernel, pl.ShapeDtypeStruct.like(x), scratch_shapes=[DMA, DMA])(x)

    call = pl.shard_map(
        function, mesh=RING, in_specs=P("x"), out_specs=P("x"), interpret=pltpu.InterpretParams(detect_races=True)
    )
    with pytest.raises(pl.PalladioError, match="o_ref"):
        call(X)


@pytest.mark.parametrize("interpret", [None, "reference", "simulator"])
def test_scratch_of_one_of_several_meshes_on_each_device(interpret: Any) -> None:
    scalars, vectors = (
        plsc.ScalarSubcoreMesh(axis_name="core", num_cores=1),
        plsc.VectorSubcoreMesh(core_axis_name="core", subcore_axis_name="subcore", num_cores=1, num_subcores=2),
    )

    def signals(x_ref: Any, o_ref: Any, go: Any) -> None:
        for subcore in range(2):
            pl.semaphore_signal(go, device_id={"core": 0, "subcore": subcore})

    def doubles(x_ref: Any, o_ref: Any, go: Any) -> None:
        pl.semaphore_wait(go)
        row = lax.axis_index("subcore")
        pltpu.sync_copy(x_ref.at[row], o_ref.at[row])

    def on_device(x: Any) -> Any:
        return pl.kernel(
            [signals, doubles],
            pl.ShapeDtypeStruct.like(x),
            mesh=[scalars, vectors],
            scratch_types=[REGULAR @ vectors],
        )(x)

    found = pl.shard_map(on_device, mesh=RING, in_specs=P("x"), out_specs=P("x"), interpret=interpret)(X)
    np.testing.assert_array_equal(found, X)


def sent_twice(x_ref: Any, o_ref: Any, sent: Any, received: Any) -> None:
    """Every device sends right; device 3 also sends to device 2, in no order with device 1."""
    me = lax.axis_index("x")

    def copy(device: Any) -> Any:
        return pltpu.make_async_remote_copy(x_ref, o_ref, sent, received, device_id=(device,))

    right = copy(lax.rem(me + 1, np.int32(4)))
    right.start()
    right.wait_send()

    @pl.when(me == 3)
    def _() -> None:
        again = copy(np.int32(2))
        again.start()
        again.wait_send()

    right.wait_recv()

    @pl.when(me == 2)
    def _() -> None:
        right.wait_recv()


@pytest.mark.parametrize("staged", [False, True])
@pytest.mark.parametrize("inside", [False, True])
def test_a_kernel_under_shard_map_asks_for_race_detection(staged: bool, inside: bool) -> None:
    params = pltpu.InterpretParams(detect_races=True)

    def send(x: Any) -> Any:
        return pl.pallas_call(
            sent_twice,
            pl.ShapeDtypeStruct.like(x),
            in_specs=[WHOLE],
            out_specs=WHOLE,
            scratch_shapes=[DMA, DMA],
            interpret=params if inside else None,
        )(x)

    function = pl.shard_map(send, mesh=RING, in_specs=P("x"), out_specs=P("x"), interpret=None if inside else params)
    with pytest.raises(pl.PalladioError, match=r"race|in-use|in no order"):
        (pl.jit(function) if staged else function)(X)


def shared_by_cores(x: Any, cores: int, rows: int) -> Any:
    """On each of two devices, a grid that cores share. Each sums two rows in its own memory."""

    def kernel(x_ref: Any, o_ref: Any, total: Any) -> None:
        i, j = pl.program_id(0), pl.program_id(1)

        @pl.when(j == 0)
        def _() -> None:
            total[...] = jnp.zeros_like(total)

        total[...] += x_ref[...]
        o_ref[(2 * i + j) % rows] = total[0] + 10 * lax.axis_index("x")

    def function(part: Any) -> Any:
        return pl.pallas_call(
            kernel,
            pl.ShapeDtypeStruct((rows, 8), np.float32),
            grid=(2, 2),
            in_specs=[pl.BlockSpec((1, 8), lambda i, j: (2 * i + j, 0))],
            out_specs=pl.BlockSpec(memory_space=pltpu.HBM),
            scratch_shapes=[pltpu.VMEM((1, 8), np.float32)],
            compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "arbitrary")),
            interpret=pltpu.InterpretParams(num_cores_or_threads=cores, detect_races=True),
        )(part)

    devices = pl.make_mesh((2,), ("x",))
    return pl.shard_map(function, mesh=devices, in_specs=P("x"), out_specs=P("x"))(x)


def sums_of_own_scalar(x: Any, semantics: tuple[str, str]) -> Any:
    """On each of two devices two cores share a grid. Each adds to its own prefetched scalar."""

    def kernel(added_ref: Any, x_ref: Any, o_ref: Any) -> None:
        added_ref[0] += 1
        o_ref[...] = x_ref[...] + added_ref[0]

    def function(part: Any) -> Any:
        row = pl.BlockSpec((1, 1, 8), lambda i, j, _: (i, j, 0))
        call = pl.pallas_call(
            kernel,
            pl.ShapeDtypeStruct(part.shape, np.float32),
            grid_spec=pltpu.PrefetchScalarGridSpec(1, grid=(2, 2), in_specs=[row], out_specs=row),
            compiler_params=pltpu.CompilerParams(dimension_semantics=semantics),
            interpret=pltpu.InterpretParams(num_cores_or_threads=2, detect_races=True),
        )
        return call(np.zeros(1, np.int32), part)

    devices = pl.make_mesh((2,), ("x",))
    return pl.shard_map(function, mesh=devices, in_specs=P("x"), out_specs=P("x"))(x)


def test_each_core_of_a_device_has_prefetched_scalars_of_its_own() -> None:
    found = sums_of_own_scalar(np.zeros((4, 2, 8), np.float32), ("parallel", "arbitrary"))
    assert found[..., 0].tolist() == [[1, 2]] * 4


def test_cores_of_a_device_share_no_axis_after_one_that_is_not_parallel() -> None:
    with pytest.raises(pl.PalladioValueError, match="the parallel axes of a grid are its first ones"):
        sums_of_own_scalar(np.zeros((4, 2, 8), np.float32), ("arbitrary", "parallel"))


PARTS = np.arange(64, dtype=np.float32).reshape(8, 8)
SUMS = PARTS.reshape(4, 2, 8).cumsum(axis=1).reshape(8, 8) + np.repeat([[0], [10]], 4, axis=0)


@pytest.mark.parametrize("cores", [1, 2, 3])  # of three one has no points
def test_cores_of_each_device_share_a_grid(cores: int) -> None:
    assert np.array_equal(shared_by_cores(PARTS, cores, 4), SUMS)


def test_cores_of_one_device_race_for_one_row() -> None:
    assert np.array_equal(shared_by_cores(PARTS, 1, 1), SUMS[[3, 7]])
    with pytest.raises(pl.PalladioError, match="global-race"):
        shared_by_cores(PARTS, 2, 1)
