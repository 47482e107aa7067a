"""Launches on several GPUs, under `shard_map`: remote references, signals between devices, global semaphores."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.gpu as plgpu
from palladio import lax

P = pl.PartitionSpec
ROWS = P("x")
PAIR = pl.make_mesh((2,), ("x",))
SQUARE = pl.make_mesh((2, 3), ("x", "y"))
X = np.arange(12, dtype=np.float32).reshape(2, 6)
EXECUTORS = pytest.mark.parametrize("executor", ["reference", "simulator", "cpu"])


def spread(
    body: Callable[..., None], x: Any, mesh: Any = PAIR, spec: Any = ROWS, outputs: int = 1, **launch: Any
) -> Any:
    """The results of a kernel of one input on the devices of a mesh."""

    def run(part: Any) -> Any:
        outs = (pl.ShapeDtypeStruct.like(part),) * outputs
        return plgpu.kernel(body, outs, **launch)(part)

    found = pl.shard_map(run, mesh=mesh, in_specs=spec, out_specs=spec)(x)
    return found[0] if outputs == 1 else found


def exchanged(x_ref: Any, there: Any, here: Any) -> None:
    come = pl.get_global(plgpu.SemaphoreType.REGULAR)
    other = 1 - lax.axis_index("x")
    plgpu.remote_ref(there, other)[...] = x_ref[...] * 10
    pl.semaphore_signal(come, device_id=other)
    pl.semaphore_wait(come)
    here[...] = there[...] + lax.axis_index("x")


@EXECUTORS
@pytest.mark.parametrize("staged", [True, False])
def test_a_device_writes_to_another_one(executor: str, staged: bool) -> None:
    def run(part: Any) -> Any:
        outs = (pl.ShapeDtypeStruct.like(part),) * 2
        return plgpu.kernel(exchanged, outs)(part + 1)

    function = pl.shard_map(run, mesh=PAIR, in_specs=P("x"), out_specs=P("x"))
    with pl.executor(executor):
        there, here = (pl.jit(function) if staged else function)(X)
    expected = 10 * (X[::-1] + 1)
    assert np.array_equal(there, expected)
    assert np.array_equal(here, expected + np.array([[0], [1]]))


def test_two_devices_do_not_write_to_one_place_in_no_order() -> None:
    def hasty(x_ref: Any, o_ref: Any) -> None:
        plgpu.remote_ref(o_ref, 1 - lax.axis_index("x"))[...] = x_ref[...]
        o_ref[...] = x_ref[...]

    with pl.executor("simulator"), pytest.raises(pl.PalladioError, match=r"global-race: o_ref\[0\]"):
        spread(hasty, X)


@EXECUTORS
def test_one_launch_takes_what_the_one_before_gave(executor: str) -> None:
    def doubled(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = 2 * x_ref[...]

    def run(part: Any) -> Any:
        out = pl.ShapeDtypeStruct.like(part)
        _, here = plgpu.kernel(exchanged, (out, out))(part)
        return plgpu.kernel(doubled, out)(here + lax.axis_index("x"))

    with pl.executor(executor):
        found = pl.shard_map(run, mesh=PAIR, in_specs=P("x"), out_specs=P("x"))(X)
    assert np.array_equal(found, 2 * (10 * X[::-1] + np.array([[0], [2]])))


@EXECUTORS
@pytest.mark.parametrize("place", [lambda y: {"y": y}, lambda y: (lax.axis_index("x"), y)])
def test_a_device_of_a_plane_is_named_by_its_axes(executor: str, place: Any) -> None:
    def shifted(x_ref: Any, o_ref: Any) -> None:
        row = plgpu.remote_ref(x_ref, place(lax.rem(lax.axis_index("y") + 1, 3)))
        o_ref[...] = row[...]

    with pl.executor(executor):
        found = spread(shifted, X, SQUARE, P("x", "y"))
    assert np.array_equal(found, np.roll(X.reshape(2, 3, 2), -1, axis=1).reshape(2, 6))


@EXECUTORS
def test_loads_and_stores_on_all_devices(executor: str) -> None:
    def reduced(x_ref: Any, o_ref: Any, most_ref: Any) -> None:
        most_ref[...] = plgpu.multimem_load_reduce(x_ref, collective_axes="x", reduction_op="max")
        total = plgpu.multimem_load_reduce(x_ref, collective_axes=("x", "y"), reduction_op="add")
        place = (0, pl.ds(lax.axis_index("y"), 1))
        plgpu.multimem_store(total[0, :1], o_ref.at[place], "x")
        o_ref[0, pl.ds(1 - lax.axis_index("y"), 1)] = total[0, 1:]

    mesh = pl.make_mesh((3, 2), ("x", "y"))
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    with pl.executor("reference" if executor == "simulator" else executor):  # it stores the same value three times
        found, most = spread(reduced, x, mesh, P("x", "y"), outputs=2)
    total = x.sum(axis=0).reshape(2, 2).sum(axis=0)
    assert np.array_equal(most, np.tile(x.max(axis=0), (3, 1)))
    assert np.array_equal(found, np.tile([*total, *total[::-1]], (3, 1)))


@EXECUTORS
def test_copies_from_shared_memory_to_all_devices(executor: str) -> None:
    def broadcast(x_ref: Any, o_ref: Any, tile: Any, go: Any) -> None:
        @pl.when(lax.axis_index("x") == 1)
        def _() -> None:
            tile[...] = x_ref[0]
            plgpu.commit_smem()
            plgpu.copy_smem_to_gmem(tile, plgpu.multicast_ref(o_ref, "x").at[0])
            plgpu.wait_smem_to_gmem(0)
            for device in range(2):
                pl.semaphore_signal(go, device_id=device)

        pl.semaphore_wait(go)

    def run(part: Any) -> Any:
        scratch = [plgpu.SMEM(part.shape[1:], part.dtype), plgpu.SemaphoreType.REGULAR]
        return plgpu.kernel(broadcast, pl.ShapeDtypeStruct.like(part), scratch_types=scratch)(part)

    with pl.executor(executor):
        found = pl.shard_map(run, mesh=PAIR, in_specs=P("x"), out_specs=P("x"))(X)
    assert np.array_equal(found, np.tile(X[1:], (2, 1)))


@EXECUTORS
def test_several_signals_go_to_other_devices(executor: str) -> None:
    def signalled(x_ref: Any, o_ref: Any, one: Any, two: Any) -> None:
        other = 1 - lax.axis_index("x")
        signals = plgpu.SemaphoreSignal(one, device_id=other), plgpu.SemaphoreSignal(two, device_id=other, inc=3)
        plgpu.semaphore_signal_parallel(*signals)
        pl.semaphore_wait(one)
        pl.semaphore_wait(two, 3)
        o_ref[...] = x_ref[...]

    with pl.executor(executor):
        found = spread(signalled, X, scratch_types=[plgpu.SemaphoreType.REGULAR] * 2)
    assert np.array_equal(found, X)


@EXECUTORS
def test_every_block_of_every_device_signals(executor: str) -> None:
    def counted(x_ref: Any, o_ref: Any, come: Any) -> None:
        plgpu.semaphore_signal_multicast(come, collective_axes="x")
        pl.semaphore_wait(come, 8, decrement=False)
        o_ref[0, pl.ds(lax.axis_index("i"), 1)] = x_ref[0, pl.ds(lax.axis_index("i"), 1)]

    scratch = {"come": plgpu.SemaphoreType.REGULAR}
    kernel: dict[str, Any] = {"grid": 4, "grid_names": "i", "scratch_types": scratch}
    with pl.executor(executor):
        assert np.array_equal(spread(counted, X[:, :4], **kernel), X[:, :4])


def passed_on(x_ref: Any, o_ref: Any, ring: Any, *, separate: bool) -> None:
    """Rows go round three devices. Block 0 of each sends; the others have nothing to send and only signal.

    JAX's collective matmul counts the signals of all rounds by one semaphore: a device gets as many as it waits for
    when the other blocks of its neighbour are a round ahead of the one that sends.
    """
    come = pl.get_global(plgpu.SemaphoreType.REGULAR((2,)))
    block, me = lax.axis_index("i"), lax.axis_index("x")
    there = lax.rem(me + 2, 3)
    for step in range(3):
        source = x_ref if step == 0 else ring.at[0, pl.ds(step - 1, 1)]

        @pl.when(block == 0)
        def _(source: Any = source, step: int = step) -> None:
            o_ref[0, pl.ds(step, 1)] = source[...]
            if step < 2:
                plgpu.remote_ref(ring, there)[0, pl.ds(step, 1)] = source[...]

        if step < 2:
            semaphore = come.at[step if separate else 0]
            pl.semaphore_signal(semaphore, device_id=there)
            pl.semaphore_wait(semaphore, 2 if separate else 2 * (step + 1), decrement=False)


@pytest.mark.parametrize("separate", [True, False])
def test_a_semaphore_does_not_order_what_it_counts_in_several_rounds(separate: bool) -> None:
    x = np.arange(18, dtype=np.float32).reshape(3, 6)

    def run(part: Any) -> Any:
        outs = (pl.ShapeDtypeStruct((1, 3, 6), np.float32), pl.ShapeDtypeStruct((1, 2, 6), np.float32))
        body = functools.partial(passed_on, separate=separate)
        return plgpu.kernel(body, outs, grid=(2,), grid_names=("i",))(part)[0]

    function = pl.shard_map(run, mesh=pl.make_mesh((3,), ("x",)), in_specs=ROWS, out_specs=ROWS)
    report = pl.check(function, x, schedules=8, ignore="semaphore-not-drained")
    assert {finding.code for finding in report.findings} == (
        set() if separate else {"global-race", "uninitialized-read"}
    )


def test_every_device_has_multiprocessors_of_its_own() -> None:
    def met(x_ref: Any, o_ref: Any, held: Any) -> None:
        come = pl.get_global(plgpu.SemaphoreType.REGULAR)
        plgpu.semaphore_signal_multicast(come, collective_axes="x")
        pl.semaphore_wait(come, 2 * 132, decrement=False)

        @pl.when(lax.axis_index("i") == 0)
        def _() -> None:
            o_ref[...] = x_ref[...]

    shared = plgpu.SMEM((120 * 256,), np.float32)  # so much that there is no room for two on one
    with pl.executor("simulator"):
        found = spread(met, X, grid=(132,), grid_names=("i",), scratch_types=[shared])
    assert np.array_equal(found, X)


@EXECUTORS
def test_global_semaphores_are_one_for_all_blocks_and_each_its_own(executor: str) -> None:
    def counted(o_ref: Any) -> None:
        first = pl.get_global(plgpu.SemaphoreType.REGULAR)
        pl.semaphore_signal(first)

        @pl.when(lax.axis_index("i") == 0)
        def _() -> None:
            second = pl.get_global(plgpu.SemaphoreType.REGULAR((2,)))
            pl.semaphore_wait(first, 3)
            pl.semaphore_signal(second.at[1], 5)
            o_ref[0] = pl.semaphore_read(first)
            o_ref[1] = pl.semaphore_read(second.at[0])
            o_ref[2] = pl.semaphore_read(second.at[1])

    with pl.executor(executor):
        call = plgpu.kernel(counted, pl.ShapeDtypeStruct((3,), np.int32), grid=(3,), grid_names=("i",))
        assert call().tolist() == [0, 0, 5]
        assert call().tolist() == [0, 0, 5]


def test_a_card_does_not_stand_for_several() -> None:
    with pl.executor("hopper-twin"), pytest.raises(pl.PalladioError, match="a launch on several GPUs is not compiled"):
        spread(exchanged, X, outputs=2)


def test_all_devices_launch_or_none_does() -> None:
    calls = itertools.count()

    def doubled(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = 2 * x_ref[...]

    def run(part: Any) -> Any:
        return part if next(calls) > 1 else plgpu.kernel(doubled, pl.ShapeDtypeStruct.like(part))(part)

    with pytest.raises(pl.PalladioValueError, match="f: some devices launch a kernel that others do not"):
        pl.shard_map(run, mesh=PAIR, in_specs=ROWS, out_specs=ROWS)(X)
