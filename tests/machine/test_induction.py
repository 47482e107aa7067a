"""Induction over the steps of a ring: what a check of a few sizes says of all larger ones, and where nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.gpu as plgpu
from palladio.machine.check.induction import Trace, holds

F16, F32 = np.float16, np.float32
ROW = 8
Kernel = Callable[..., Any]


@pytest.fixture(autouse=True)
def programs_read_back() -> None:
    """Rings of every size are one text; it need not read back for each."""


def launched(body: Any, k: int, *scratch: Any, threads: int = 2, out: int = 1) -> Any:
    x = np.arange(k * ROW, dtype=F32).reshape(k, ROW)
    made = plgpu.kernel(
        body,
        pl.ShapeDtypeStruct((out, ROW), F32),
        scratch_types=list(scratch),
        num_threads=threads,
        thread_name="wg",
    )
    return made(x)


def ring(k: int, stages: int = 1, *, told: bool = True, rows: bool = False, use: Any = None) -> Any:
    """A producer copies rows into a ring, a consumer adds them up, or writes each to its place with `rows`."""

    def body(x: Any, out: Any, buffer: Any, full: Any, empty: Any) -> None:
        @pl.when(pl.axis_index("wg") == 0)
        def _() -> None:
            @pl.loop(0, k)
            def _(step: Any) -> None:
                @pl.when(step >= stages)
                def _() -> None:
                    plgpu.barrier_wait(empty.at[step % stages])

                plgpu.copy_gmem_to_smem(x.at[step], buffer.at[step % stages], full.at[step % stages])

        @pl.when(pl.axis_index("wg") == 1)
        def _() -> None:
            if not rows:
                out[0] = 0 * x[0]

            @pl.loop(0, k)
            def _(step: Any) -> None:
                plgpu.barrier_wait(full.at[step % stages])
                if rows:
                    out[step] = buffer[step % stages]
                else:
                    out[0] = out[0] + buffer[step % stages]
                if use is not None:
                    use(step)
                plgpu.barrier_arrive(empty.at[step % stages], predicate=(step < k - stages) & told)

    scratch = plgpu.SMEM((stages, ROW), F32), *(plgpu.Barrier(num_barriers=stages) for _ in range(2))
    return launched(body, k, *scratch, out=k if rows else 1)


def product(k: int, delay: int = 1) -> Any:
    """A pipeline in which a product stays in flight for a step."""
    a, b = np.ones((16, 16 * k), F16), np.ones((16 * k, 16), F16)

    def multiply(_: Any, left: Any, right: Any, acc: Any) -> Any:
        plgpu.wgmma(acc, left, right)
        plgpu.wgmma_wait(1)
        return acc

    def body(a_ref: Any, b_ref: Any, out: Any) -> None:
        def scoped(acc: Any) -> Any:
            specs = [
                plgpu.BlockSpec((16, 16), lambda step: (0, step), delay_release=delay),
                plgpu.BlockSpec((16, 16), lambda step: (step, 0), delay_release=delay),
            ]
            plgpu.emit_pipeline(multiply, grid=(k,), in_specs=specs, max_concurrent_steps=2, init_carry=acc)(
                a_ref, b_ref
            )
            return acc[...]

        out[...] = pl.run_scoped(scoped, plgpu.ACC((16, 16), F32))

    return plgpu.kernel(body, pl.ShapeDtypeStruct((16, 16), F32))(a, b)


def checked(kernel: Kernel, last: int, first: int = 1) -> Any:
    return pl.check(kernel, schedules=1, sizes={"k": range(first, last + 1)})


@pytest.mark.parametrize(
    ("kernel", "first", "last"),
    [
        (ring, 1, 4),
        (ring, 3, 6),
        (lambda k: ring(k, rows=True), 1, 4),
        (lambda k: ring(k, 2), 1, 9),
        (product, 2, 9),
    ],
    ids=["one stage", "from three steps on", "a row of global memory each", "two stages", "products in flight"],
)
def test_the_verdict_on_a_ring_holds_for_all_larger_sizes(kernel: Kernel, first: int, last: int) -> None:
    report = checked(kernel, last, first)
    assert report.beyond == f"k ≥ {first}"
    count = last - first + 1
    assert report.summary == f"no finding in {count} schedules of {count} sizes, by induction for all k ≥ {first}"


def signalled(k: int) -> Any:
    """Semaphores in place of barriers: their order may depend on the schedule."""

    def body(x: Any, out: Any, buffer: Any, ready: Any, free: Any) -> None:
        @pl.loop(0, k)
        def _(step: Any) -> None:
            @pl.when(pl.axis_index("wg") == 0)
            def _() -> None:
                buffer[...] = x[step]
                plgpu.semaphore_signal(ready)
                plgpu.semaphore_wait(free)

            @pl.when(pl.axis_index("wg") == 1)
            def _() -> None:
                plgpu.semaphore_wait(ready)
                out[0] = buffer[...]
                plgpu.semaphore_signal(free)

    counter = plgpu.SemaphoreType.REGULAR
    return launched(body, k, plgpu.SMEM((ROW,), F32), counter, counter)


def fixed(k: int) -> Any:
    """A kernel to which the size makes no difference."""
    return ring(3)


def exchanged(k: int) -> Any:
    """A barrier of two arrivals for each thread that arrives: in another schedule both may be of one thread."""

    def body(x: Any, out: Any, pair: Any, done: Any) -> None:
        wg = pl.axis_index("wg")

        @pl.loop(0, k)
        def _(_: Any) -> None:
            @pl.when(wg < 2)
            def _() -> None:
                plgpu.barrier_arrive(pair)
                plgpu.barrier_wait(done.at[wg])

            @pl.when(wg == 2)
            def _() -> None:
                plgpu.barrier_wait(pair)
                plgpu.barrier_arrive(done.at[0])
                plgpu.barrier_arrive(done.at[1])

        @pl.when(wg == 0)
        def _() -> None:
            out[0] = x[0]

    return launched(body, k, plgpu.Barrier(num_arrivals=2), plgpu.Barrier(num_barriers=2), threads=3)


def grown(k: int) -> Any:
    """Shared memory that grows with the size, and some time is too large."""
    x = np.ones((k, ROW), F32)

    def body(x: Any, out: Any, buffer: Any, full: Any) -> None:
        @pl.loop(0, k)
        def _(step: Any) -> None:
            plgpu.copy_gmem_to_smem(x.at[step], buffer.at[0], full)
            plgpu.barrier_wait(full)
            out[step] = buffer[0]

    scratch = [plgpu.SMEM((k, ROW), F32), plgpu.Barrier()]
    return plgpu.kernel(body, pl.ShapeDtypeStruct((k, ROW), F32), scratch_types=scratch)(x)


def late(k: int) -> Any:
    """Something new at the ninth step."""
    return ring(k, rows=True, use=lambda step: pl.when(step == 8)(plgpu.commit_smem))


@pytest.mark.parametrize(
    ("kernel", "sizes"),
    [
        (ring, range(1, 4)),
        (ring, [1, 2, 3, 4, 6, 7, 8]),
        (ring, [1.0, 2.0, 3.0, 4.0, 5.0]),
        (lambda k: ring(int(k), told=False), range(1, 7)),
        (signalled, range(1, 9)),
        (fixed, range(1, 9)),
        (grown, range(1, 9)),
        (late, range(4, 10)),
    ],
    ids=[
        "too few",
        "a gap",
        "no integers",
        "a finding",
        "semaphores",
        "no difference",
        "growing memory",
        "a late turn",
    ],
)
def test_where_it_does_not_follow_nothing_is_said(kernel: Kernel, sizes: Any) -> None:
    report = pl.check(lambda k: kernel(int(k)), schedules=1, sizes={"k": sizes})
    assert report.beyond == ""
    assert "induction" not in report.summary


def test_with_two_sizes_at_once_nothing_is_said() -> None:
    assert pl.check(ring, schedules=1, sizes={"k": range(1, 6), "stages": [1]}).beyond == ""


def test_threads_that_know_of_each_others_arrivals_are_settled() -> None:
    assert checked(exchanged, 6).beyond == "k ≥ 1"


def hasty(k: int) -> Any:
    """Two threads arrive at a barrier of two; only one of them waits, and the other may be a round ahead."""

    def body(x: Any, out: Any, pair: Any) -> None:
        wg = pl.axis_index("wg")

        @pl.loop(0, k)
        def _(_: Any) -> None:
            plgpu.barrier_arrive(pair)

            @pl.when(wg == 0)
            def _() -> None:
                plgpu.barrier_wait(pair)

        @pl.when(wg == 0)
        def _() -> None:
            out[0] = x[0]

    return launched(body, k, plgpu.Barrier(num_arrivals=2))


def test_arrivals_that_may_be_of_another_phase_are_not_settled() -> None:
    assert pl.check(hasty, schedules=1, sizes={"k": range(1, 9)}).beyond == ""


# The proof itself, on sequences by hand.


def trace(k: int, states: str = "asssss", settled: bool = True) -> Trace:
    """A run of k steps after a beginning; its states by their letters."""
    events = [("begin",), *[("step",)] * k, ("end",)]
    seen = [({"t": n}, letter) for n, letter in enumerate(states)]
    return Trace({"t": events}, {"t": 0}, seen, settled=settled, launches=1)


def test_equal_states_with_a_step_between_them_prove_it() -> None:
    assert holds({k: trace(k) for k in range(1, 6)})


@pytest.mark.parametrize(
    ("change", "sizes"),
    [
        ({"states": "abcdef"}, range(1, 6)),
        ({"states": "as"}, range(1, 6)),
        ({"settled": False}, range(1, 6)),
        ({}, [1, 2, 3, 5]),
        ({}, range(1, 4)),
    ],
    ids=["no state comes again", "no step between", "another order", "a gap", "too few"],
)
def test_without_them_nothing_is_proved(change: dict[str, Any], sizes: Any) -> None:
    assert not holds({k: trace(k, **change) for k in sizes})


def test_a_step_that_is_new_proves_nothing() -> None:
    traces = {k: trace(k) for k in range(1, 6)}
    traces[5].events["t"][3] = ("another",)
    assert not holds(traces)


def test_sizes_that_change_nothing_prove_nothing() -> None:
    assert not holds({k: trace(3) for k in range(1, 6)})


def test_memory_that_grows_proves_nothing() -> None:
    traces = {k: trace(k) for k in range(1, 6)}
    for k, each in traces.items():
        each.allocated.add(("buffer", f"f32[{k}]"))
    assert not holds(traces)
