"""Induction over the steps of a ring: what a check of a few sizes says of all larger ones, and where nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import palladio as pl
import palladio.gpu as plgpu
import palladio.numpy as jnp
from palladio.library import hopper
from palladio.library.hopper import MatmulConfig, matmul
from palladio.machine.check.induction import Step, Trace, obstacle
from tests.library.test_attention import inputs
from tools.mutant_kernels import several_threads

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


def synced(k: int) -> Any:
    """Two threads hand over to each other by a named barrier."""

    def body(x: Any, out: Any, buffer: Any, both: Any) -> None:
        wg = pl.axis_index("wg")

        @pl.loop(0, k)
        def _(step: Any) -> None:
            @pl.when(wg == 0)
            def _() -> None:
                buffer[...] = x[step]

            plgpu.barrier_arrive_and_wait(both)

            @pl.when(wg == 1)
            def _() -> None:
                out[0] = buffer[...]

            plgpu.barrier_arrive_and_wait(both)

    return launched(body, k, plgpu.SMEM((ROW,), F32), plgpu.Barrier(num_arrivals=2))


def scoped(k: int) -> Any:
    """In each step the threads of a block share a scope."""

    def body(x: Any, out: Any, done: Any) -> None:
        wg = pl.axis_index("wg")

        @pl.loop(0, k)
        def _(step: Any) -> None:
            def shared(buffer: Any, full: Any) -> None:
                @pl.when(wg == 0)
                def _() -> None:
                    plgpu.copy_gmem_to_smem(x.at[step], buffer, full)

                plgpu.barrier_wait(full)

                @pl.when(wg == 1)
                def _() -> None:
                    out[0] = buffer[...]

                plgpu.barrier_arrive_and_wait(done)

            pl.run_scoped(shared, plgpu.SMEM((ROW,), F32), plgpu.Barrier(), collective_axes="wg")

    return launched(body, k, plgpu.Barrier(num_arrivals=2))


def warped(k: int) -> Any:
    """In each step one warp copies, and the warpgroup waits."""

    def body(x: Any, out: Any, buffer: Any, full: Any) -> None:
        @pl.loop(0, k)
        def _(step: Any) -> None:
            @plgpu.warp_map
            def _(warp: Any) -> None:
                pl.when(warp == 0)(lambda: plgpu.copy_gmem_to_smem(x.at[step], buffer, full))

            plgpu.barrier_wait(full)
            out[0] = buffer[...]

    return launched(body, k, plgpu.SMEM((ROW,), F32), plgpu.Barrier(), threads=1)


def multicast(k: int, stages: int = 2, everyone: bool = True) -> Any:
    """Two blocks fill each other's rings; a slot is free when the consumers of both are done with it."""

    def body(x: Any, out: Any, buffer: Any, full: Any, empty: Any) -> None:
        wg, block = pl.axis_index("wg"), pl.axis_index("block")

        @pl.when(wg == 0)
        def _() -> None:
            @pl.loop(0, k)
            def _(step: Any) -> None:
                slot = step % stages
                pl.when(step >= stages)(lambda: plgpu.barrier_wait(empty.at[slot]))
                plgpu.copy_gmem_to_smem(x.at[step], buffer.at[slot], full.at[slot], collective_axes="block")

            @pl.loop(max(k - stages, 0), k)
            def _(step: Any) -> None:
                plgpu.barrier_wait(empty.at[step % stages])

        @pl.when(wg == 1)
        def _() -> None:
            @pl.loop(0, k)
            def _(step: Any) -> None:
                slot = step % stages
                plgpu.barrier_wait(full.at[slot])
                out[block] = buffer[slot]
                plgpu.barrier_arrive(empty.at[slot])

    empty = (
        plgpu.ClusterBarrier(collective_axes=("block",), num_barriers=stages)
        if everyone
        else plgpu.Barrier(num_barriers=stages)
    )
    return plgpu.kernel(
        body,
        pl.ShapeDtypeStruct((2, ROW), F32),
        scratch_types=[plgpu.SMEM((stages, ROW), F32), plgpu.Barrier(num_barriers=stages), empty],
        cluster=(2,),
        cluster_names=("block",),
        num_threads=2,
        thread_name="wg",
    )(np.ones((k, ROW), F32))


@pytest.mark.parametrize(
    "kernel", [synced, scoped, warped, multicast], ids=["a named barrier", "shared scopes", "warps", "a cluster"]
)
def test_it_holds_of_all_that_has_one_order(kernel: Kernel) -> None:
    assert checked(kernel, 11).beyond == "k ≥ 1"


def test_blocks_that_wait_only_for_their_own_consumers_are_found() -> None:
    report = checked(lambda k: multicast(k, everyone=False), 9)
    assert not report.ok and report.beyond == ""


@pytest.mark.parametrize(
    ("shape", "config"),
    [
        ((128, 128), MatmulConfig(tile_n=64, stages=2, cluster="n")),
        ((256, 64), MatmulConfig(tile_n=64, stages=2, blocks=1)),
        ((256, 64), MatmulConfig(tile_n=64, stages=2)),
        ((128, 64), MatmulConfig(tile_n=64, stages=2, promote=True)),
        ((128, 64), MatmulConfig(tile_n=64, stages=5)),
    ],
    ids=["a cluster", "several tiles", "several blocks", "sums in registers", "many stages"],
)
def test_the_verdict_on_a_product_holds_for_every_depth(shape: tuple[int, int], config: MatmulConfig) -> None:
    m, n = shape

    def product(k: int) -> Any:
        return matmul(np.ones((m, k), F16), np.ones((k, n), F16), config=config)

    first, last = (64, 11 * 64) if config.stages == 2 else (18 * 64, 28 * 64)
    report = pl.check(product, schedules=1, sizes={"k": range(first, last, 64)})
    assert report.beyond == f"k = {first}, {first + 64}, {first + 128}, …"


def signalled(k: int, signallers: int = 1, waiters: int = 1, amount: int = 1) -> Any:
    """Semaphores in place of barriers: `signallers` threads fill a buffer's rows, and others read it."""

    def body(x: Any, out: Any, buffer: Any, ready: Any, free: Any) -> None:
        wg = pl.axis_index("wg")

        @pl.loop(0, k)
        def _(step: Any) -> None:
            @pl.when(wg < signallers)
            def _() -> None:
                buffer[wg] = x[step]
                plgpu.semaphore_signal(ready)
                plgpu.semaphore_wait(free.at[wg])

            @pl.when(wg == signallers + (step % waiters))
            def _() -> None:
                for _ in range(signallers // amount):
                    plgpu.semaphore_wait(ready, amount)
                out[0] = buffer[0]
                for each in range(signallers):
                    plgpu.semaphore_signal(free.at[each])

    counter = plgpu.SemaphoreType.REGULAR
    scratch = plgpu.SMEM((signallers, ROW), F32), counter, counter((signallers,))
    return launched(body, k, *scratch, threads=signallers + waiters)


def polled(k: int) -> Any:
    """A thread looks at a semaphore, again and again."""

    def body(x: Any, out: Any, ready: Any) -> None:
        @pl.loop(0, k)
        def _(step: Any) -> None:
            plgpu.semaphore_signal(ready)
            out[0] = x[step] + plgpu.semaphore_read(ready)
            plgpu.semaphore_wait(ready)

    return launched(body, k, plgpu.SemaphoreType.REGULAR, threads=1)


def test_semaphores_that_work_as_barriers_are_covered() -> None:
    assert checked(signalled, 9).beyond == "k ≥ 1"
    assert checked(lambda k: signalled(k, signallers=2, amount=2), 9).beyond == "k ≥ 1"


@pytest.mark.parametrize(
    "kernel",
    [lambda k: signalled(k, signallers=2), lambda k: signalled(k, waiters=2), polled],
    ids=["one signal of two at a time", "several threads that wait", "a look"],
)
def test_semaphores_whose_order_depends_on_the_schedule_are_not_covered(kernel: Kernel) -> None:
    assert checked(kernel, 9).beyond == ""


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
        (fixed, range(1, 9)),
        (grown, range(1, 9)),
        (late, range(4, 10)),
    ],
    ids=[
        "too few",
        "a gap",
        "no integers",
        "a finding",
        "no difference",
        "growing memory",
        "a late turn",
    ],
)
def test_where_it_does_not_follow_nothing_is_said(kernel: Kernel, sizes: Any) -> None:
    report = pl.check(lambda k: kernel(int(k)), schedules=1, sizes={"k": sizes})
    assert report.beyond == ""
    assert "induction" not in report.summary


def late_arrival(happens: Callable[[Any, Any], Any], rows: int = 0) -> Kernel:
    """A ring whose consumer forgets an arrival in a step that few sizes come to: from there on all wait."""

    def kernel(k: int) -> Any:
        def body(x: Any, out: Any, buffer: Any, full: Any, empty: Any) -> None:
            wg = pl.axis_index("wg")

            @pl.loop(0, k, init_carry=jnp.int32(1))
            def _(step: Any, carry: Any) -> Any:
                @pl.when(wg == 0)
                def _() -> None:
                    pl.when(step > 0)(lambda: plgpu.barrier_wait(empty))
                    plgpu.copy_gmem_to_smem(x.at[step], buffer, full)

                @pl.when(wg == 1)
                def _() -> None:
                    plgpu.barrier_wait(full)
                    out[0] = buffer[...]
                    plgpu.barrier_arrive(empty, predicate=(step < k - 1) & ~happens(step, Seen(x, carry)))

                return happens.carried(carry) if isinstance(happens, Carried) else carry + 1

        scratch = plgpu.SMEM((ROW,), F32), plgpu.Barrier(), plgpu.Barrier()
        return launched(body, max(k, rows), *scratch)

    return kernel


class Seen(NamedTuple):
    """What a condition may look at beside the step: the input, and what the loop carries."""

    x: Any
    carry: Any


class Carried:
    """A condition on what a loop carries that is not linear."""

    def __call__(self, step: Any, seen: Seen) -> Any:
        return seen.carry > 2**20

    def carried(self, carry: Any) -> Any:
        return 2 * carry


FAR = 60
ENOUGH = 9
"""The largest of the sizes after which a ring of one stage is covered."""

LATE = {
    "a step": lambda step, _: step == FAR,
    "from a step on": lambda step, _: step >= FAR,
    "a multiple": lambda step, _: 3 * step - 7 > 200,
    "a power": lambda step, _: step * step > 3_000,
    "a quotient": lambda step, _: step // 64 == 1,
    "a remainder": lambda step, _: step % 64 == 63,
    "bits": lambda step, _: (step & 63) == 63,
    "shifted bits": lambda step, _: (step >> 6) == 1,
    "a narrow number": lambda step, _: step.astype(jnp.int8) + jnp.int8(50) < 0,
    "a wide number": lambda step, _: step * jnp.int32(2**26) < 0,
    "a rounded float32": lambda step, _: (step + jnp.int32(2**28)).astype(jnp.float32) > F32(2**28),
    "a rounded bfloat16": lambda step, _: (step + jnp.int32(2**13)).astype(jnp.bfloat16) > 2**13,
    "a rounded float8": lambda step, _: (step + jnp.int32(128)).astype(jnp.float8_e5m2).astype(F32) > F32(128),
    "the lesser": lambda step, _: jnp.minimum(step, FAR) == FAR,
    "a count": lambda _, seen: seen.carry == FAR,
    "a power that is carried": Carried(),
    "the input": lambda step, seen: seen.x[step, 0] == FAR * ROW,
    "a float": lambda step, _: step.astype(jnp.float32) > 59.5,
}


@pytest.mark.parametrize("name", LATE)
def test_a_kernel_that_fails_at_a_larger_size_is_not_covered(name: str) -> None:
    report = checked(late_arrival(LATE[name]), ENOUGH)
    assert report.ok and report.beyond == ""


def test_it_does_fail_at_that_size() -> None:
    assert not checked(late_arrival(LATE["a step"]), FAR + 2, FAR + 1).ok


@pytest.mark.parametrize("threshold", [lambda k: k * k, lambda k: 5 * (k // 2)], ids=["squared", "every other size"])
def test_a_number_of_the_program_that_is_not_linear_in_the_size_is_not_covered(threshold: Any) -> None:
    assert checked(lambda k: late_arrival(lambda step, _: step < -threshold(k))(k), 13).beyond == ""


def test_a_kernel_that_is_made_in_another_way_from_a_size_on_is_not_covered() -> None:
    assert checked(lambda k: late_arrival(EARLY["a count" if k < 12 else "no step"])(k), 13).beyond == ""


EARLY = {
    "no step": lambda step, _: step < 0,
    "the last step": lambda step, _: step >= FAR + 100 - FAR - 100 + 10_000 * (step + 1),
    "a count": lambda step, seen: seen.carry != step + 1,
    "a remainder": lambda step, _: (step % 4) // 2 > 1,
}


@pytest.mark.parametrize("name", EARLY)
def test_the_same_with_a_condition_that_stays_as_it_is_is_covered(name: str) -> None:
    last = 17 if name == "a remainder" else ENOUGH  # which is the same in every fourth step
    assert checked(late_arrival(EARLY[name]), last).beyond == "k ≥ 1"


def rows_of_two(first: Callable[[Any, int], Any], second: Callable[[Any, int], Any]) -> Kernel:
    """Two threads write rows of one output, each its own ones."""

    def kernel(k: int) -> Any:
        def body(x: Any, out: Any, turn: Any) -> None:
            wg = pl.axis_index("wg")

            @pl.loop(0, k)
            def _(step: Any) -> None:
                @pl.when(wg == 0)
                def _() -> None:
                    out[first(step, k)] = x[0]

                @pl.when(wg == 1)
                def _() -> None:
                    out[second(step, k)] = x[0]

                plgpu.barrier_arrive_and_wait(turn)

        made = plgpu.kernel(
            body,
            pl.ShapeDtypeStruct((2 * k, ROW), F32),
            scratch_types=[plgpu.Barrier(num_arrivals=2)],
            num_threads=2,
            thread_name="wg",
        )
        return made(np.ones((1, ROW), F32))

    return kernel


def of_rows(kernel: Kernel) -> Any:
    return pl.check(kernel, schedules=1, sizes={"k": range(1, 13)}, ignore=("unwritten-output",))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (lambda step, k: step, lambda step, k: k + step),
        (lambda step, k: step, lambda step, k: 2 * k - 1 - step),
        (lambda step, k: 2 * step, lambda step, k: 2 * step + 1),
    ],
    ids=["halves", "from both ends", "in turn"],
)
def test_rows_that_never_meet_are_covered(first: Any, second: Any) -> None:
    assert of_rows(rows_of_two(first, second)).beyond == "k ≥ 1"


def test_rows_that_are_outside_at_a_larger_size_are_not_covered() -> None:
    assert checked(late_arrival(EARLY["no step"], rows=FAR), ENOUGH).beyond == ""


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


def trace(k: int, states: str = "as", why: str = "") -> Trace:
    """A run of k steps after a beginning; its states by their letters."""
    events = ["begin", *["step"] * k, "end"]
    steps = [Step(((each,),), letter.encode()) for each, letter in zip(events, states.ljust(k + 2, "s"), strict=False)]
    return Trace(steps, obstacle=why, launches=1)


def proved(**change: Any) -> bool:
    return not obstacle(lambda number, *_: trace(number + 1, **change), 5)


def test_equal_states_with_a_step_between_them_prove_it() -> None:
    assert proved()


@pytest.mark.parametrize(
    "change", [{"states": "abcdefghij"}, {"why": "another order"}], ids=["no state comes again", "another order"]
)
def test_without_them_nothing_is_proved(change: dict[str, Any]) -> None:
    assert not proved(**change)


def grouped(k: int) -> Any:
    sizes = np.array([4, 2], np.int32)
    config = MatmulConfig(4, 8, 4, stages=2, blocks=1)
    return hopper.gmm(np.ones((6, 4 * k), F16), np.ones((2, 4 * k, 8), F16), sizes, config=config)


def attended(k: int) -> Any:
    config = hopper.AttentionConfig(block_q=4, block_kv=8, stages=2)
    return hopper.attention(*inputs(4, 8 * k, 8, 4, lead=(1,)), causal=False, config=config)


def pipelined(k: int) -> Any:
    """A product by `emit_pipeline_warp_specialized`, on two blocks, with three stages."""
    return several_threads((1, 1))(np.ones((16, 16 * k), F16), np.ones((16 * k, 32), F16))


@pytest.mark.parametrize(
    ("kernel", "last"),
    [(grouped, 12), (attended, 12), (pipelined, 15)],
    ids=["gmm", "attention", "emit_pipeline_warp_specialized"],
)
def test_the_verdict_on_other_kernels_of_the_library_holds_for_every_length(kernel: Kernel, last: int) -> None:
    assert checked(kernel, last).beyond == "k ≥ 1"


def test_too_few_sizes_prove_nothing() -> None:
    assert obstacle(lambda number, *_: trace(number + 1), 3)


def test_a_step_that_is_new_proves_nothing() -> None:
    traces = {k: trace(k + 1) for k in range(5)}
    traces[4].steps[3] = Step((("another",),), b"s")
    assert obstacle(lambda number, *_: traces[number], 5)


def test_sizes_that_change_nothing_prove_nothing() -> None:
    assert obstacle(lambda *_: trace(3), 5)


def test_memory_that_grows_proves_nothing() -> None:
    traces = {k: trace(k + 1) for k in range(5)}
    for k, each in traces.items():
        each.allocated.add(("buffer", f"f32[{k}]"))
    assert obstacle(lambda number, *_: traces[number], 5)
