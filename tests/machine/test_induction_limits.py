"""Kernels to which the induction does not apply: the report gives the reason. And the limits of what it covers."""

from __future__ import annotations

import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.gpu as plgpu
import palladio.numpy as jnp
import palladio.tpu as pltpu
from palladio import lax
from palladio.driver.checks.runs import run_once
from palladio.machine.check.induction.state import Watched
from palladio.machine.run.buffers import Accumulator
from palladio.machine.run.policies import RoundRobin
from palladio.types.types import ACC, RefType
from tests.machine import test_induction as rings
from tests.machine.test_induction import F16, F32, ROW, checked, launched

REGULAR = plgpu.SemaphoreType.REGULAR
DMA = pltpu.SemaphoreType.DMA


@pytest.fixture(autouse=True)
def programs_read_back() -> None:
    """Rings of every size are one text; it need not read back for each."""


def counted(k: int, looks: str = "") -> Any:
    """Threads of two blocks count their steps: in one element, in one of their own, and in one of each step."""

    def body(x: Any, _: Any, __: Any, steps: Any, total: Any, rows: Any) -> None:
        thread = pl.axis_index("wg") + 2 * pl.axis_index("x")

        @pl.loop(0, k)
        def _(step: Any) -> None:
            old = plgpu.atomic_add(total, 0, 1)
            plgpu.atomic_add(total, 1 + thread, step)
            plgpu.atomic_max(steps, 4 * step + thread, step)
            if looks == "ticket":
                rows[old] = x[0]

        if looks != "ticket":
            rows[thread] = x[0]

    shapes = [(4 * k,), (5,), (4 * k if looks else 4, ROW)]
    types = [pl.ShapeDtypeStruct(shape, dtype) for shape, dtype in zip(shapes, (np.int32, np.int32, F32), strict=True)]
    call = plgpu.kernel(
        body,
        types,
        grid=(2,),
        grid_names=("x",),
        num_threads=2,
        thread_name="wg",
        input_output_aliases={1: 0, 2: 1},
    )
    return call(np.ones((1, ROW), F32), np.zeros(4 * k, np.int32), np.zeros(5, np.int32))


def streamed(k: int, cores: int = 1, slots: int = 2) -> Any:
    """Each core copies rows into slots, one step ahead."""

    def body(x: Any, out: Any, buffer: Any, last: Any, arrived: Any) -> None:
        def fetch(step: Any) -> Any:
            return pltpu.make_async_copy(x.at[step], buffer.at[step % slots], arrived.at[step % slots])

        fetch(0).start()

        @pl.loop(0, k)
        def _(step: Any) -> None:
            pl.when(step + 1 < k)(lambda: fetch(step + 1).start())
            fetch(step).wait()
            last[...] = buffer[step % slots]

        pltpu.sync_copy(last, out.at[pl.axis_index("core")])

    scratch = [pltpu.VMEM((slots, ROW), F32), pltpu.VMEM((ROW,), F32), DMA((slots,))]
    mesh = pltpu.TensorCoreMesh(axis_name="core", num_cores=cores)
    result = pl.ShapeDtypeStruct((cores, ROW), F32)
    return pl.kernel(body, result, mesh=mesh, scratch_types=scratch)(np.ones((k, ROW), F32))


def passed_on(k: int) -> Any:
    """Two cores: in each step the first copies a row into the second's memory, which then lets it go on."""

    def body(x: Any, out: Any, buffer: Any, sent: Any, arrived: Any, free: Any) -> None:
        core = pl.axis_index("core")

        @pl.loop(0, k)
        def _(step: Any) -> None:
            @pl.when(core == 0)
            def _() -> None:
                copy = pltpu.make_async_remote_copy(x.at[step], buffer, sent, arrived, device_id={"core": 1})
                copy.start()
                copy.wait_send()
                pl.semaphore_wait(free, 1)

            @pl.when(core == 1)
            def _() -> None:
                pltpu.make_async_copy(x.at[step], buffer, arrived).wait()
                pl.semaphore_signal(free, 1, device_id={"core": 0})

        pltpu.sync_copy(x.at[0], out.at[core])

    scratch = [pltpu.VMEM((ROW,), F32), DMA, DMA, REGULAR]
    mesh = pltpu.TensorCoreMesh(axis_name="core", num_cores=2)
    result = pl.ShapeDtypeStruct((2, ROW), F32)
    return pl.kernel(body, result, mesh=mesh, scratch_types=scratch)(np.ones((k, ROW), F32))


@pytest.mark.parametrize(
    ("kernel", "last"),
    [(counted, 12), (streamed, 12), (lambda k: streamed(k, cores=2, slots=3), 18), (passed_on, 12)],
    ids=["atomics whose results are unused", "copies of a core", "copies of two cores", "copies to another core"],
)
def test_what_has_one_order_is_covered(kernel: Callable[[int], Any], last: int) -> None:
    report = checked(kernel, last)
    assert (report.beyond, report.limit) == ("k ≥ 1", "")
    assert report.render() == report.summary


def tickets(k: int) -> Any:
    return counted(k, looks="ticket")


def flagged(k: int) -> Any:
    """A thread polls a flag in shared memory, by atomics."""

    def body(x: Any, out: Any, flag: Any, ready: Any) -> None:
        wg = pl.axis_index("wg")
        pl.when(wg == 0)(lambda: flag.__setitem__(0, jnp.int32(0)))
        plgpu.barrier_arrive_and_wait(ready)

        @pl.loop(0, k)
        def _(step: Any) -> None:
            @pl.when(wg == 0)
            def _() -> None:
                plgpu.atomic_add(flag, 0, 1)

            @pl.when(wg == 1)
            def _() -> None:
                lax.while_loop(lambda seen: seen <= step, lambda _: plgpu.atomic_add(flag, 0, 0), jnp.int32(0))
                out[0] = x[step]

    return launched(body, k, plgpu.SMEM((1,), np.int32), plgpu.Barrier(num_arrivals=2))


def looked_at(k: int) -> Any:
    """A thread looks at its barrier until its copy has come."""

    def body(x: Any, out: Any, buffer: Any, full: Any) -> None:
        @pl.loop(0, k)
        def _(step: Any) -> None:
            plgpu.copy_gmem_to_smem(x.at[step], buffer, full)
            lax.while_loop(lambda done: ~done, lambda _: plgpu.barrier_test(full), jnp.bool_(False))
            out[0] = buffer[...]

    return launched(body, k, plgpu.SMEM((ROW,), F32), plgpu.Barrier(), threads=1)


def locked(k: int) -> Any:
    """Two threads change a row in turn, with a semaphore of one token as the lock."""

    def body(x: Any, out: Any, row: Any, lock: Any, done: Any) -> None:
        wg = pl.axis_index("wg")

        @pl.when(wg == 0)
        def _() -> None:
            row[...] = x[0]
            plgpu.semaphore_signal(lock)

        @pl.loop(0, k)
        def _(step: Any) -> None:
            plgpu.semaphore_wait(lock)
            row[...] = row[...] + x[step]
            plgpu.semaphore_signal(lock)

        plgpu.barrier_arrive_and_wait(done)

        @pl.when(wg == 0)
        def _() -> None:
            plgpu.semaphore_wait(lock)
            out[0] = row[...]

    return launched(body, k, plgpu.SMEM((ROW,), F32), REGULAR, plgpu.Barrier(num_arrivals=2))


def watched(k: int) -> Any:
    """A wait that takes nothing, before one that does."""

    def body(x: Any, out: Any, ready: Any) -> None:
        @pl.loop(0, k)
        def _(step: Any) -> None:
            plgpu.semaphore_signal(ready)
            plgpu.semaphore_wait(ready, decrement=False)
            plgpu.semaphore_wait(ready)
            out[0] = x[step]

    return launched(body, k, REGULAR, threads=1)


def hasty_signals(k: int) -> Any:
    """A thread that signals without regard to the wait for its last signal."""

    def body(x: Any, out: Any, ready: Any) -> None:
        wg = pl.axis_index("wg")

        @pl.loop(0, k)
        def _(_: Any) -> None:
            pl.when(wg == 0)(lambda: plgpu.semaphore_signal(ready))
            pl.when(wg == 1)(lambda: plgpu.semaphore_wait(ready))

        pl.when(wg == 1)(lambda: out.__setitem__(0, x[0]))

    return launched(body, k, REGULAR)


def paired(k: int) -> Any:
    """A core copies two rows at a time and waits for both, with one semaphore."""

    def body(x: Any, out: Any, buffer: Any, arrived: Any) -> None:
        @pl.loop(0, k)
        def _(step: Any) -> None:
            copies = [pltpu.make_async_copy(x.at[step], buffer.at[row], arrived) for row in range(2)]
            for copy in copies:
                copy.start()
            for copy in copies:
                copy.wait()

        pltpu.sync_copy(buffer.at[0], out)

    scratch = [pltpu.VMEM((2, ROW), F32), DMA]
    mesh = pltpu.TensorCoreMesh(axis_name="core")
    return pl.kernel(body, pl.ShapeDtypeStruct((ROW,), F32), mesh=mesh, scratch_types=scratch)(np.ones((k, ROW), F32))


def unpaced(k: int) -> Any:
    """Threads 0 and 1 arrive at a barrier of two, and only thread 0 waits for its reader; thread 3 paces thread 1."""

    def body(x: Any, out: Any, pair: Any, done: Any, tick: Any, tock: Any) -> None:
        wg = pl.axis_index("wg")

        @pl.loop(0, k)
        def _(_: Any) -> None:
            @pl.when(wg == 0)
            def _() -> None:
                plgpu.barrier_arrive(pair)
                plgpu.barrier_wait(done)

            @pl.when(wg == 1)
            def _() -> None:
                plgpu.barrier_wait(tick)
                plgpu.barrier_arrive(pair)
                plgpu.barrier_arrive(tock)

            @pl.when(wg == 2)
            def _() -> None:
                plgpu.barrier_wait(pair)
                plgpu.barrier_arrive(done)

            @pl.when(wg == 3)
            def _() -> None:
                plgpu.barrier_arrive(tick)
                plgpu.barrier_wait(tock)

        @pl.when(wg == 0)
        def _() -> None:
            out[0] = x[0]

    others = [plgpu.Barrier() for _ in range(3)]
    return launched(body, k, plgpu.Barrier(num_arrivals=2), *others, threads=4)


def patient(k: int) -> Any:
    """More products in flight than the induction follows."""

    def body(a: Any, out: Any, tile: Any) -> None:
        tile[...] = a[...]
        plgpu.commit_smem()

        def scoped(acc: Any) -> Any:
            @pl.loop(0, k)
            def _(_: Any) -> None:
                plgpu.wgmma(acc, tile, tile)
                plgpu.wgmma_wait(65)

            plgpu.wgmma_wait(0)
            return acc[...]

        out[...] = pl.run_scoped(scoped, plgpu.ACC((16, 16), F32))

    call = plgpu.kernel(body, pl.ShapeDtypeStruct((16, 16), F32), scratch_types=[plgpu.SMEM((16, 16), F16)])
    return call(np.ones((16, 16), F16))


def gridded(k: int) -> Any:
    """A kernel call inside a kernel."""

    def double(x: Any, out: Any) -> None:
        out[...] = 2 * x[...]

    rows = pl.BlockSpec((1, ROW), lambda i: (i, 0))
    result = pl.ShapeDtypeStruct((k, ROW), F32)
    inner = pl.pallas_call(double, result, grid=(k,), in_specs=[rows], out_specs=rows)

    def body(x: Any, out: Any) -> None:
        out[...] = inner(x[...])

    return launched(body, k, threads=1, out=k)


SHIFTED = 20


def shifted(k: int) -> Any:
    """A shift register begins with a value from unwritten memory, which leaves it after SHIFTED - 1 steps."""

    def body(x: Any, out: Any, buffer: Any, own: Any) -> None:
        row = x[0]

        def step(_: Any, carried: Any) -> Any:
            out[0] = carried[-1]
            plgpu.barrier_arrive(own)
            plgpu.barrier_wait(own)
            return row, *carried[:-1]

        lax.fori_loop(0, k, step, (buffer[...], *[row] * (SHIFTED - 1)))

    return launched(body, k, plgpu.SMEM((ROW,), F32), plgpu.Barrier(), threads=1)


def test_a_value_from_unwritten_memory_does_leave_a_shift_register() -> None:
    assert [each.code for each in checked(shifted, SHIFTED, SHIFTED).findings] == ["uninitialized-read"]


def doubled(k: int) -> Any:
    return rings.ring(k), rings.ring(k)


def unlaunched(k: int) -> Any:
    def double(x: Any, out: Any) -> None:
        out[...] = 2 * x[...]

    return pl.pallas_call(double, pl.ShapeDtypeStruct((k,), F32))(np.ones(k, F32))


@pytest.mark.parametrize(
    ("kernel", "reason"),
    [
        (tickets, r"the result of `atomic` \(test_induction_limits.py:\d+\) depends on the schedule"),
        (flagged, r"the result of `atomic` \(test_induction_limits.py:\d+\) depends on the schedule"),
        (
            looked_at,
            r"what `barrier_test` \(test_induction_limits.py:\d+\) sees without waiting depends on the schedule",
        ),
        (rings.polled, r"what `semaphore_read` \(test_induction.py:\d+\) sees without waiting depends on the schedule"),
        (locked, "lock"),
        (watched, "a wait for ready leaves its count as it is"),
        (hasty_signals, "ready may be raised before the last wait for it in another schedule"),
        (lambda k: rings.signalled(k, signallers=2), "a wait for ready takes a part of its count"),
        (lambda k: rings.signalled(k, waiters=2), "which of the threads that wait for ready is first"),
        (paired, "a wait for arrived takes a part of its count"),
        (unpaced, "an arrival at pair may count towards another of its phases in another schedule"),
        (patient, r"`wgmma_wait` \(test_induction_limits.py:\d+\) leaves more than 64 groups in flight"),
        (gridded, r"the steps of the grid inside the launch, `grid_call` \(test_induction_limits.py:\d+\), are not"),
        (shifted, "which values of block 0 wg 0 depend on uninitialised memory is not recorded"),
        (doubled, "it is for one launch of several threads, and the function makes 2"),
        (unlaunched, "it is for one launch of several threads, and the function makes 0"),
        (rings.grown, "the size of buffer, memory of a block, grows"),
        (rings.fixed, "the runs do not repeat steps of smaller sizes, or there are too few sizes"),
    ],
    ids=[
        "tickets",
        "a flag",
        "a test of a barrier",
        "a look at a semaphore",
        "a lock",
        "a wait that takes nothing",
        "signals that do not wait",
        "two signals in any order",
        "two threads that wait",
        "two copies in any order",
        "arrivals of any phase",
        "many products in flight",
        "a grid in a thread",
        "a shift register",
        "two launches",
        "no threads",
        "memory that grows",
        "no difference",
    ],
)
def test_the_report_says_why_it_does_not_follow(kernel: Callable[[int], Any], reason: str) -> None:
    report = checked(kernel, 12)
    assert report.ok and report.beyond == ""
    assert report.limit.startswith("no induction for larger k: ")
    assert report.render().endswith(f"\n{report.limit}")
    _matches(reason, report.limit)


def test_the_state_has_the_uninitialised_elements_of_an_accumulator() -> None:
    acc = Accumulator(RefType((2, 2), np.dtype(F32), ACC), "acc", None)
    acc.owner = SimpleNamespace(product_component=0, generic=SimpleNamespace(epoch=lambda _: 0))
    checker = SimpleNamespace(accesses=SimpleNamespace(fences=SimpleNamespace(any=False)))
    watched = Watched(SimpleNamespace(runnable=[], checker=checker), ())  # type: ignore[arg-type]
    watched.stores.append(acc)
    states = [watched.digest()]
    for row in range(2):
        acc.uninitialised = np.zeros((2, 2), bool)
        acc.uninitialised[row] = True
        states.append(watched.digest())
    assert len({*states}) == 3 and watched.digest() == states[-1]


def test_a_run_with_a_watch_follows_uninitialised_values_through_arithmetic() -> None:
    def body(_: Any, out: Any, buffer: Any) -> None:
        out[0] = 2 * buffer[...] + 1

    def watch(machine: Any) -> None:
        machine.watch = lambda *_: None

    found = run_once(lambda: launched(body, 1, plgpu.SMEM((ROW,), F32), threads=1), (), RoundRobin, watch)
    assert [each.code for each in found.findings] == ["uninitialized-read"]


def _matches(pattern: str, text: str) -> None:
    assert re.search(pattern, text), text


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("a step", r"`eq` \(test_induction.py:\d+\) may do something else at a larger size"),
        ("the input", r"`load` \(test_induction.py:\d+\) may do something else at a larger size"),
    ],
)
def test_the_reason_names_the_number_that_may_change(name: str, reason: str) -> None:
    _matches(reason, checked(rings.late_arrival(rings.LATE[name]), 13).limit)


def meeting(k: int) -> Any:
    """A thread writes to every other row, another to those from 60 on: with 31 steps the first catches up."""

    def body(_: Any, out: Any, own: Any) -> None:
        wg = pl.axis_index("wg")

        @pl.loop(0, k)
        def _(step: Any) -> None:
            pl.when(wg == 0)(lambda: out.__setitem__(2 * step, jnp.float32(1)))
            pl.when(wg == 1)(lambda: out.__setitem__(60 + step, jnp.float32(1)))
            plgpu.barrier_arrive(own.at[wg])
            plgpu.barrier_wait(own.at[wg])

    result = pl.ShapeDtypeStruct((60 + 2 * k,), F32)
    call = plgpu.kernel(
        body,
        result,
        scratch_types=[plgpu.Barrier(num_barriers=2)],
        num_threads=2,
        thread_name="wg",
        input_output_aliases={0: 0},
    )
    return call(np.zeros(60 + 2 * k, F32))


def test_the_reason_names_the_array_whose_accesses_may_meet() -> None:
    report = checked(meeting, 12)
    assert report.ok and not checked(meeting, 31, 31).ok
    _matches("accesses of out may meet, or leave a part of it unwritten, at a larger size", report.limit)
    outside = checked(rings.late_arrival(rings.EARLY["no step"], rows=rings.FAR), 13)
    _matches(r"`copy_gmem_to_smem` .* may reach outside its array at a larger size", outside.limit)


@pytest.mark.parametrize(
    ("sizes", "limit"),
    [
        ({"k": range(1, 4)}, "no induction for larger k: it takes at least 4 sizes"),
        ({"k": [1, 2, 3, 4, 6]}, "no induction for larger k: the sizes are not integers that grow by the same amount"),
        ({"k": [1.0, 2.0, 3.0, 4.0]}, "no induction for larger k: the sizes are not integers that grow by the same"),
        ({"k": [4, 3, 2, 1]}, "no induction for larger k: the sizes are not integers that grow by the same amount"),
        ({"k": range(1, 5), "stages": [1]}, "no induction for larger k and stages: it is over one size"),
        ({"told": [True, False]}, ""),
        (None, ""),
    ],
    ids=["three", "a gap", "floats", "falling", "two sizes", "no numbers", "none"],
)
def test_sizes_without_an_induction(sizes: Any, limit: str) -> None:
    def ring(k: float = 2, stages: int = 1, told: bool = True) -> Any:
        return rings.ring(int(k), stages)

    report = pl.check(ring, schedules=1, sizes=sizes)
    assert report.ok and report.beyond == ""
    assert report.limit.startswith(limit) and bool(report.limit) == bool(limit)


def test_where_something_was_found_the_findings_are_the_reason() -> None:
    report = checked(lambda k: rings.ring(k, told=False), 6)
    assert not report.ok and (report.beyond, report.limit) == ("", "")
