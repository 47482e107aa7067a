"""Several simulated devices: each has its part of every array, and copies go between them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.numpy as jnp
import palladio.tpu as pltpu

DMA, REGULAR = pltpu.SemaphoreType.DMA, pltpu.SemaphoreType.REGULAR
RING = pl.CoreMesh("device", 4, device_axes="device")
X = np.arange(32, dtype=np.float32).reshape(8, 4)
OUT = pl.ShapeDtypeStruct((8, 4), np.float32)


def test_each_device_sees_its_part_of_every_array() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        assert x_ref.shape == (2, 4)
        o_ref[...] = x_ref[...] + 100 * pl.axis_index("device")

    expected = X + 100 * np.repeat(np.arange(4), 2)[:, None]
    assert np.array_equal(pl.kernel(kernel, OUT, mesh=RING)(X), expected)


def send_right(x_ref: Any, o_ref: Any, send: Any, receive: Any, *, device_id: Any = None) -> None:
    right = (pl.axis_index("device") + 1) % 4
    where = {"number": right, "tuple": (right,), "mapping": {"device": right}, "axes": {("device",): right}}[
        device_id or "number"
    ]
    pltpu.async_remote_copy(x_ref, o_ref, send, receive, where).wait()


@pytest.mark.parametrize("form", ["number", "tuple", "mapping", "axes"])
def test_every_device_sends_its_part_to_the_next(form: str) -> None:
    def kernel(*refs: Any) -> None:
        send_right(*refs, device_id=form)

    call = pl.kernel(kernel, OUT, mesh=RING, scratch_types=[DMA, DMA])
    assert np.array_equal(call(X), np.roll(X, 2, axis=0))
    assert pl.check(call, X).ok


def all_gather(x_ref: Any, o_ref: Any, send: Any, receive: Any, ready: Any) -> None:
    """Every device sends to the right what came from the left, in three steps."""
    me = pl.axis_index("device")
    left, right = (me + 3) % 4, (me + 1) % 4
    o_ref[0, pl.ds(2 * me, 2)] = x_ref[...]
    pl.semaphore_signal(ready, device_id=left)
    pl.semaphore_wait(ready)
    for step in range(3):
        rows = pl.ds(2 * ((me + 4 - step) % 4), 2)
        here = o_ref.at[0, rows]
        pltpu.async_remote_copy(here, here, send.at[step], receive.at[step], right).wait()


def test_a_ring_gathers_the_parts_of_all_devices() -> None:
    out = pl.ShapeDtypeStruct((4, 8, 4), np.float32)
    call = pl.kernel(all_gather, out, mesh=RING, scratch_types=[DMA((3,)), DMA((3,)), REGULAR])
    assert np.array_equal(call(X), np.broadcast_to(X, (4, 8, 4)))
    assert pl.check(call, X).ok


def test_a_ring_that_does_not_wait_for_what_it_passes_on_is_found() -> None:
    def hasty(x_ref: Any, o_ref: Any, send: Any, receive: Any, ready: Any) -> None:
        me = pl.axis_index("device")
        o_ref[0, pl.ds(2 * me, 2)] = x_ref[...]
        copies = []
        for step in range(3):
            here = o_ref.at[0, pl.ds(2 * ((me + 4 - step) % 4), 2)]
            copies.append(pltpu.async_remote_copy(here, here, send.at[step], receive.at[step], (me + 1) % 4))
        for copy in copies:
            copy.wait()

    out = pl.ShapeDtypeStruct((4, 8, 4), np.float32)
    call = pl.kernel(hasty, out, mesh=RING, scratch_types=[DMA((3,)), DMA((3,)), REGULAR])
    assert not pl.check(call, X).ok


def test_devices_have_several_cores() -> None:
    mesh = pl.CoreMesh(("device", "core"), (2, 2), device_axes="device")

    def kernel(x_ref: Any, o_ref: Any, part: Any, shared: Any, ready: Any) -> None:
        device, core = pl.axis_index("device"), pl.axis_index("core")
        shared[core] = x_ref[core] * (device + 1)
        pl.semaphore_signal(ready, core_index=1 - core)
        pl.semaphore_wait(ready)
        part[...] = shared[0] + shared[1]
        o_ref[core] = part[...]

    x = X[:4]
    scratch = [pltpu.VMEM((4,), np.float32), pltpu.HBM((2, 4), np.float32), REGULAR]
    call = pl.kernel(kernel, pl.ShapeDtypeStruct((4, 4), np.float32), mesh=mesh, scratch_types=scratch)
    first, second = x[:2].sum(0), 2 * x[2:].sum(0)
    assert np.array_equal(call(x), [first, first, second, second])
    assert pl.check(call, x).ok


def test_devices_along_two_axes_are_numbered_row_by_row() -> None:
    mesh = pl.CoreMesh(("y", "x"), (2, 2), device_axes=("y", "x"))

    def kernel(x_ref: Any, o_ref: Any, send: Any, receive: Any) -> None:
        number = 2 * pl.axis_index("y") + pl.axis_index("x")
        pltpu.async_remote_copy(x_ref, o_ref, send, receive, 3 - number).wait()

    call = pl.kernel(kernel, OUT, mesh=mesh, scratch_types=[DMA, DMA])
    assert np.array_equal(call(X), X.reshape(4, 2, 4)[::-1].reshape(8, 4))


@pytest.mark.one_executor
@pytest.mark.parametrize("executor", ["reference", "cpu", "simulator"])
@pytest.mark.parametrize("tupled", [False, True])
@pytest.mark.parametrize("shift", [4, -4])
def test_a_number_outside_of_the_devices_is_found(shift: int, tupled: bool, executor: str) -> None:
    mesh = pl.CoreMesh(("y", "x"), (2, 2), device_axes=("y", "x"))

    def kernel(x_ref: Any, o_ref: Any, send: Any, receive: Any) -> None:
        number = 3 - 2 * pl.axis_index("y") - pl.axis_index("x") + shift
        device_id = {("y", "x"): number} if tupled else number
        pltpu.async_remote_copy(x_ref, o_ref, send, receive, device_id).wait()

    with pl.executor(executor), pytest.raises(IndexError, match="the index is outside its axis"):
        pl.kernel(kernel, OUT, mesh=mesh, scratch_types=[DMA, DMA])(X)


def test_scalars_are_seen_whole_by_every_device() -> None:
    def kernel(s_ref: Any, x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] * s_ref[...]

    assert np.array_equal(pl.kernel(kernel, OUT, mesh=RING)(np.float32(3), X), 3 * X)


def test_an_aliased_output_is_split_as_its_input_is() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[0] = o_ref[0] + 1

    call = pl.kernel(kernel, OUT, mesh=RING, input_output_aliases={0: 0})
    expected = X.copy()
    expected[::2] += 1
    assert np.array_equal(call(X), expected)


# What cores have for meeting each other.


def test_cores_meet_at_a_barrier() -> None:
    mesh = pl.CoreMesh("core", 3)

    def kernel(x_ref: Any, o_ref: Any, rows: Any) -> None:
        me = pl.axis_index("core")
        rows[me] = x_ref[me]
        pltpu.core_barrier(pltpu.get_barrier_semaphore(), core_axis_name="core")
        o_ref[me] = jnp.sum(rows[...], axis=0)

    out = pl.ShapeDtypeStruct((3, 4), np.float32)
    call = pl.kernel(kernel, out, mesh=mesh, scratch_types=[pltpu.HBM((3, 4), np.float32)])
    assert np.array_equal(call(X), np.broadcast_to(X[:3].sum(0), (3, 4)))
    assert pl.check(call, X).ok


def test_without_the_barrier_the_same_cores_race() -> None:
    def kernel(x_ref: Any, o_ref: Any, rows: Any) -> None:
        me = pl.axis_index("core")
        rows[me] = x_ref[me]
        o_ref[me] = jnp.sum(rows[...], axis=0)

    out, mesh = pl.ShapeDtypeStruct((3, 4), np.float32), pl.CoreMesh("core", 3)
    call = pl.kernel(kernel, out, mesh=mesh, scratch_types=[pltpu.HBM((3, 4), np.float32)])
    assert not pl.check(call, X).ok


def test_one_core_is_no_barrier() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        pltpu.core_barrier(pltpu.get_barrier_semaphore(), core_axis_name="core")
        o_ref[...] = x_ref[...]

    assert np.array_equal(pl.kernel(kernel, OUT, mesh=pltpu.TensorCoreMesh(axis_name="core"))(X), X)


def test_only_the_first_core_runs_what_is_for_it() -> None:
    mesh = pl.CoreMesh("core", 3)

    def kernel(o_ref: Any) -> None:
        me = pl.axis_index("core")
        o_ref[me] = jnp.zeros((), jnp.int32)

        @pltpu.run_on_first_core("core")
        def _() -> None:
            o_ref[me] = jnp.ones((), jnp.int32)

    call = pl.kernel(kernel, pl.ShapeDtypeStruct((3,), np.int32), mesh=mesh)
    assert call().tolist() == [1, 0, 0]


def test_a_copy_to_another_core_is_awaited_on_both_sides() -> None:
    mesh = pl.CoreMesh("core", 2)

    def kernel(x_ref: Any, o_ref: Any, mine: Any, come: Any, send: Any, receive: Any) -> None:
        me = pl.axis_index("core")
        mine[...] = x_ref[me]
        copy = pltpu.make_async_remote_copy(mine, come, send, receive, None, core_index=1 - me)
        copy.start()
        copy.wait_send()
        mine[...] = x_ref[me] * 0  # the source has been read
        copy.wait_recv()
        o_ref[me] = come[...]

    buffers = [pltpu.VMEM((4,), np.float32), pltpu.VMEM((4,), np.float32)]
    call = pl.kernel(kernel, pl.ShapeDtypeStruct((2, 4), np.float32), mesh=mesh, scratch_types=[*buffers, DMA, DMA])
    assert np.array_equal(call(X), X[[1, 0]])
    assert pl.check(call, X).ok


def test_a_source_that_is_changed_before_it_was_sent_is_found() -> None:
    mesh = pl.CoreMesh("core", 2)

    def kernel(x_ref: Any, o_ref: Any, mine: Any, come: Any, send: Any, receive: Any) -> None:
        me = pl.axis_index("core")
        mine[...] = x_ref[me]
        copy = pltpu.async_remote_copy(mine, come, send, receive, None, core_index=1 - me)
        copy.wait_recv()
        mine[...] = x_ref[me] * 0
        copy.wait_send()
        o_ref[me] = come[...]

    buffers = [pltpu.VMEM((4,), np.float32), pltpu.VMEM((4,), np.float32)]
    call = pl.kernel(kernel, pl.ShapeDtypeStruct((2, 4), np.float32), mesh=mesh, scratch_types=[*buffers, DMA, DMA])
    assert not pl.check(call, X).ok
