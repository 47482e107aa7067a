"""Launches on the CPU executor: threads that wait for each other, whose results are those of the machine."""

from __future__ import annotations

import _thread
import itertools
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.gpu as plgpu
import palladio.numpy as jnp
import palladio.tpu as pltpu
from palladio.base.errors import NotCompiledWarning
from palladio.cpu.rule_table import LAUNCHED, REFUSED_IN_LAUNCHES
from palladio.library import hopper
from palladio.ops import OPS
from palladio.types import dtypes

INT = np.int32
FULL = plgpu.Barrier()


@pytest.fixture(autouse=True)
def compiled() -> Iterator[None]:
    """Whatever is called must be compiled."""
    with pl.executor("cpu"), warnings.catch_warnings():
        warnings.simplefilter("error", NotCompiledWarning)
        yield


def kernel(body: Callable[..., None], shape: tuple[int, ...], dtype: Any = INT, **options: Any) -> Any:
    return plgpu.kernel(body, pl.ShapeDtypeStruct(shape, dtype), **options)


def threads(count: int, *scratch: Any) -> dict[str, Any]:
    return {"num_threads": count, "thread_name": "wg", "scratch_types": scratch}


def only(thread: int) -> Any:
    """Run the body in one thread of a block."""
    return pl.when(pl.axis_index("wg") == thread)


def test_every_operation_has_a_rule_or_a_reason_in_launches() -> None:
    assert set(LAUNCHED) | set(REFUSED_IN_LAUNCHES) == set(OPS)
    assert not set(LAUNCHED) & set(REFUSED_IN_LAUNCHES)


# What threads see of each other's memory.


def test_a_value_that_was_read_stays_what_it_was_while_its_thread_waits() -> None:
    def body(o: Any, tile: Any, read: Any, changed: Any) -> None:
        @only(0)
        def _() -> None:
            tile[...] = jnp.arange(8)
            value = tile[...] * 2
            row = tile[...]
            plgpu.barrier_arrive(read)
            plgpu.barrier_wait(changed)
            o[0], o[1], o[2] = value, row, tile[...]

        @only(1)
        def _() -> None:
            plgpu.barrier_wait(read)
            tile[...] = jnp.full((8,), 100)
            plgpu.barrier_arrive(changed)

    out = kernel(body, (3, 8), **threads(2, plgpu.SMEM((8,), INT), FULL, FULL))()
    np.testing.assert_array_equal(out, [np.arange(8) * 2, np.arange(8), np.full(8, 100)])


def test_a_value_that_a_loop_uses_stays_what_it_was_while_the_loop_waits() -> None:
    def body(o: Any, tile: Any, turn: Any, back: Any) -> None:
        @only(0)
        def _() -> None:
            tile[...] = jnp.arange(8)
            row = tile[...]

            @pl.loop(0, 3)
            def _(step: Any) -> None:
                plgpu.barrier_arrive(turn)
                plgpu.barrier_wait(back)
                o[step] = row + tile[...]

        @only(1)
        def _() -> None:
            @pl.loop(0, 3)
            def _(step: Any) -> None:
                plgpu.barrier_wait(turn)
                tile[...] = jnp.full((8,), 10 * (step + 1))
                plgpu.barrier_arrive(back)

    out = kernel(body, (3, 8), **threads(2, plgpu.SMEM((8,), INT), FULL, FULL))()
    np.testing.assert_array_equal(out, np.arange(8) + np.array([[10], [20], [30]]))


def test_carried_values_survive_waits() -> None:
    def body(o: Any, met: Any) -> None:
        me = pl.axis_index("wg")

        def step(n: Any, total: Any) -> Any:
            plgpu.barrier_arrive_and_wait(met)
            return total + n + me

        o[me] = pl.fori_loop(0, 5, step, jnp.zeros((8,), INT))

    out = kernel(body, (3, 8), **threads(3, plgpu.Barrier(num_arrivals=3)))()
    np.testing.assert_array_equal(out[:, 0], [10, 15, 20])


def test_a_thread_may_look_at_memory_until_another_has_written() -> None:
    def body(o: Any, flag: Any) -> None:
        @only(0)
        def _() -> None:
            o[...] = pl.while_loop(lambda n: flag[0] == 0, lambda n: n + 1, jnp.asarray(0, INT)) * 0 + flag[0]

        @only(1)
        def _() -> None:
            flag[...] = jnp.full((1,), 7)

    scratch = plgpu.SMEM((1,), INT)

    def whole(o: Any, flag: Any, met: Any) -> None:
        @only(0)
        def _() -> None:
            flag[...] = jnp.zeros((1,), INT)

        plgpu.barrier_arrive_and_wait(met)
        body(o, flag)

    assert kernel(whole, (), **threads(2, scratch, plgpu.Barrier(num_arrivals=2)))() == 7


# Copies.


@pytest.mark.parametrize("dtype", [np.int8, np.float16, dtypes.BFLOAT16, np.float32, np.int64], ids=str)
@pytest.mark.parametrize("start", [(-3, 2), (0, 0), (5, -1), (30, 30), (4, 9)])
def test_copies_at_edges_fill_what_is_outside(dtype: Any, start: tuple[int, int]) -> None:
    x = np.arange(10 * 12).reshape(10, 12).astype(dtype)

    def body(x_ref: Any, at: Any, o: Any, tile: Any, full: Any) -> None:
        plgpu.copy_gmem_to_smem(x_ref.at[pl.ds(at[0], 6), pl.ds(at[1], 7)], tile, full)
        plgpu.barrier_wait(full)
        o[...] = tile[...]

    out = kernel(body, (6, 7), dtype, scratch_types=[plgpu.SMEM((6, 7), dtype), FULL])(x, np.array(start, INT))
    wanted = np.zeros((40, 40), dtype)
    wanted[10:20, 10:22] = x
    row, column = (10 + first for first in start)
    expected = np.zeros((6, 7), dtype)
    seen = wanted[row : row + 6, column : column + 7]
    expected[: seen.shape[0], : seen.shape[1]] = seen
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("start", [(-3, 2), (5, -1), (9, 11), (40, 0)])
def test_stores_at_edges_leave_what_is_outside(start: tuple[int, int]) -> None:
    def body(at: Any, o: Any, tile: Any) -> None:
        o[...] = jnp.zeros((10, 12), INT)
        tile[...] = jnp.arange(42).reshape(6, 7)
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(tile, o.at[pl.ds(at[0], 6), pl.ds(at[1], 7)])
        plgpu.wait_smem_to_gmem(0)

    out = kernel(body, (10, 12), scratch_types=[plgpu.SMEM((6, 7), INT)])(np.array(start, INT))
    expected = np.zeros((10, 12), INT)
    for row, column in np.ndindex(6, 7):
        there = row + start[0], column + start[1]
        if 0 <= there[0] < 10 and 0 <= there[1] < 12:
            expected[there] = row * 7 + column
    np.testing.assert_array_equal(out, expected)


# Products.


@pytest.mark.parametrize("workers", ["1", "2", "3"])
def test_the_number_of_threads_of_the_system_makes_no_difference(workers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALLADIO_NUM_THREADS", workers)
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((70, 50), np.float32), rng.standard_normal((50, 90), np.float32)
    config = hopper.MatmulConfig(tile_m=16, tile_n=32, tile_k=8, stages=3, blocks=7)
    results = [hopper.matmul(x, y, config=config) for _ in range(5)]
    np.testing.assert_allclose(results[0], x.astype(np.float64) @ y, rtol=0, atol=1e-4)
    assert all(result.tobytes() == results[0].tobytes() for result in results)


@pytest.mark.parametrize("dtype", [np.float32, dtypes.BFLOAT16, np.float16], ids=str)
def test_matmuls_of_random_sizes(dtype: Any) -> None:
    rng = np.random.default_rng(1)
    config = hopper.MatmulConfig(tile_m=16, tile_n=16, tile_k=16, stages=2, blocks=5)
    for _ in range(3):
        m, k, n = (int(size) for size in rng.integers(1, 70, 3))
        x, y = (rng.standard_normal(shape).astype(dtype) for shape in ((m, k), (k, n)))
        wide = [np.asarray(each, np.float64) for each in (x, y)]
        out = np.asarray(hopper.matmul(x, y, preferred_element_type=np.float32, config=config))
        np.testing.assert_allclose(out, wide[0] @ wide[1], rtol=1e-4, atol=1e-4)


SMALL = hopper.MatmulConfig(tile_m=16, tile_n=16, tile_k=8, stages=2, blocks=3)


def test_grouped_products_and_attention() -> None:
    rng = np.random.default_rng(2)
    sizes = [13, 0, 21, 6]
    lhs, rhs, grad = (rng.standard_normal(shape, np.float32) for shape in ((44, 19), (4, 19, 23), (44, 23)))
    ends = np.cumsum([0, *sizes])
    parts = [slice(*bounds) for bounds in itertools.pairwise(ends)]
    product, gradient = hopper.gmm(lhs, rhs, sizes, config=SMALL), hopper.tgmm(lhs.T, grad, sizes, config=SMALL)
    for group, part in enumerate(parts):
        wide = lhs[part].astype(np.float64)
        np.testing.assert_allclose(product[part], wide @ rhs[group], atol=1e-4)
        np.testing.assert_allclose(gradient[group], wide.T @ grad[part], atol=1e-4)
    np.testing.assert_array_equal(product[ends[-1] :], 0)
    q, k, v = (rng.standard_normal((2, length, 16)).astype(np.float16) for length in (30, 45, 45))
    scores = q.astype(np.float64) @ k.astype(np.float64).transpose(0, 2, 1) / 4
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    expected = weights / weights.sum(-1, keepdims=True) @ v.astype(np.float64)
    np.testing.assert_allclose(np.asarray(hopper.attention(q, k, v), np.float64), expected, atol=4e-3)


# Blocks that wait for each other.


def test_more_blocks_than_run_at_once_run_one_after_the_other() -> None:
    def body(o: Any, turn: Any) -> None:
        block = pl.axis_index("x")
        plgpu.semaphore_wait(turn, block, decrement=False)
        o[block] = plgpu.semaphore_read(turn)
        plgpu.semaphore_signal(turn)

        @pl.when(block == 199)
        def _() -> None:
            plgpu.semaphore_wait(turn, 200)

    options = {"grid": (200,), "grid_names": ("x",), "scratch_types": [plgpu.SemaphoreType.REGULAR]}
    np.testing.assert_array_equal(kernel(body, (200,), **options)(), np.arange(200))


def test_atomic_counts_are_taken_in_the_order_of_the_blocks() -> None:
    def body(n: Any, o: Any) -> None:
        o[pl.axis_index("x")] = plgpu.atomic_add(n, 0, 1)

    out = kernel(body, (50,), grid=(50,), grid_names=("x",))(np.zeros(1, INT))
    np.testing.assert_array_equal(out, np.arange(50))


# What goes wrong.


def deadlock(o: Any, first: Any, second: Any) -> None:
    @only(0)
    def _() -> None:
        plgpu.barrier_wait(first)
        plgpu.barrier_arrive(second)

    @only(1)
    def _() -> None:
        plgpu.barrier_wait(second)
        plgpu.barrier_arrive(first)


def test_threads_that_all_wait_end_in_an_error_that_names_what_they_wait_for() -> None:
    with pytest.raises(pl.PalladioError) as raised:
        kernel(deadlock, (2,), **threads(2, FULL, FULL))()
    assert "all 2 threads that have not ended wait" in str(raised.value)
    assert "first" in str(raised.value) and "second" in str(raised.value)


def test_threads_that_look_for_ever_end_in_an_error() -> None:
    def body(o: Any, full: Any) -> None:
        pl.while_loop(lambda come: ~come, lambda _: plgpu.barrier_test(full), np.bool_(False))

    with pytest.raises(pl.PalladioError):
        kernel(body, (2,), **threads(2, FULL))()


def test_a_barrier_outside_of_its_array_is_an_error() -> None:
    def body(at: Any, o: Any, full: Any) -> None:
        plgpu.barrier_arrive(full.at[at[0]])

    call = kernel(body, (2,), scratch_types=[plgpu.Barrier(num_barriers=2)])
    call(np.array([1], INT))
    with pytest.raises(pl.PalladioIndexError, match="outside the array of barriers"):
        call(np.array([2], INT))


def test_a_check_that_fails_in_one_thread_ends_the_launch() -> None:
    def body(x: Any, o: Any, met: Any) -> None:
        @only(1)
        def _() -> None:
            pl.debug_check(x[0] > 0, "not positive")

        plgpu.barrier_arrive_and_wait(met)
        o[pl.axis_index("wg")] = x[0]

    call = kernel(body, (2,), **threads(2, plgpu.Barrier(num_arrivals=2)))
    with pl.enable_debug_checks():
        with pytest.raises(pl.DebugCheckError, match="not positive"):
            call(np.array([-1], INT))
        np.testing.assert_array_equal(call(np.array([3], INT)), [3, 3])


@pytest.fixture
def interruptible() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_an_interrupt_ends_a_long_launch(workers: str, interruptible: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole, this call takes hours; the test ends because the interrupt does end it."""
    monkeypatch.setenv("PALLADIO_NUM_THREADS", workers)

    def body(n: Any, o: Any, there: Any, back: Any) -> None:
        me = pl.axis_index("wg")

        @pl.loop(0, n[0])
        def _(_: Any) -> None:
            @only(0)
            def _() -> None:
                plgpu.barrier_arrive(there)
                plgpu.barrier_wait(back)

            @only(1)
            def _() -> None:
                plgpu.barrier_wait(there)
                plgpu.barrier_arrive(back)

        o[pl.axis_index("x"), me] = me

    call = kernel(body, (4, 2), grid=(4,), grid_names=("x",), **threads(2, FULL, FULL))
    np.testing.assert_array_equal(call(np.array([3], INT)), [[0, 1]] * 4)
    timer = threading.Timer(0.2, _thread.interrupt_main)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        call(np.array([2**31 - 1], INT))
    timer.join()
    np.testing.assert_array_equal(call(np.array([3], INT)), [[0, 1]] * 4)


@pytest.mark.parametrize("warps", [False, True], ids=["a thread", "a warp"])
def test_an_interrupt_ends_a_long_loop_without_waits(warps: bool, interruptible: None) -> None:
    """Whole, this call takes hours."""

    def body(n: Any, x: Any, o: Any, met: Any) -> None:
        def work() -> None:
            o[...] = pl.fori_loop(0, n[0], lambda _, value: value * 0.5 + 1.0, x[...])

        if not warps:
            work()
            return

        @plgpu.warp_map
        def _(warp: Any) -> None:
            pl.when(warp == 2)(work)
            plgpu.barrier_arrive_and_wait(met)

    call = kernel(body, (4096,), np.float32, scratch_types=[plgpu.Barrier(num_arrivals=4)])
    x = np.zeros(4096, np.float32)
    assert call(np.array([1], INT), x).tolist() == [1] * 4096
    timer = threading.Timer(0.2, _thread.interrupt_main)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        call(np.array([2**31 - 1], INT), x)
    timer.join()
    assert call(np.array([1], INT), x).tolist() == [1] * 4096


# Around launches.


def test_operands_keep_their_values_and_results_go_where_they_are_wanted() -> None:
    def body(x: Any, o: Any) -> None:
        x[...] = x[...] + 1
        o[...] = x[...]

    x = np.arange(4, dtype=INT)
    np.testing.assert_array_equal(kernel(body, (4,))(x), [1, 2, 3, 4])
    np.testing.assert_array_equal(x, [0, 1, 2, 3])


def test_launches_inside_of_a_staged_loop() -> None:
    def body(x: Any, o: Any, met: Any) -> None:
        me = pl.axis_index("wg")
        plgpu.barrier_arrive_and_wait(met)
        o[me] = x[1 - me] + 1

    step = kernel(body, (2,), **threads(2, plgpu.Barrier(num_arrivals=2)))

    @pl.jit
    def several(x: Any) -> Any:
        return pl.fori_loop(0, 3, lambda _, value: step(value), x)

    np.testing.assert_array_equal(several(np.array([0, 10], INT)), [13, 3])


# What is left to the machine.


# What only some launches have.

PAIR = {"cluster": (2,), "cluster_names": ("c",)}


def agrees(body: Callable[..., None], shape: tuple[int, ...], *inputs: Any, **options: Any) -> Any:
    """What a kernel gives, which is what the machine gives."""
    found = [np.asarray(kernel(body, shape, interpret=each, **options)(*inputs)) for each in ("cpu", "reference")]
    np.testing.assert_array_equal(*found)
    return found[0]


@pytest.mark.parametrize("count", [1, 2])
def test_barriers_that_the_blocks_of_a_cluster_allocate_again_and_again(count: int) -> None:
    def body(o: Any) -> None:
        me, wg = pl.axis_index("c"), pl.axis_index("wg")

        @pl.loop(0, 7)
        def _(step: Any) -> None:
            def meet(met: Any, tile: Any) -> None:
                tile[wg] = step * 10 + me + wg * 100
                plgpu.barrier_arrive_and_wait(met)
                o[me, wg, step] = plgpu.cluster_ref(tile, {"c": 1 - me})[count - 1 - wg]
                plgpu.barrier_arrive_and_wait(met)

            met = plgpu.ClusterBarrier(collective_axes="c", num_arrivals=count)
            pl.run_scoped(meet, met, plgpu.SMEM((count,), INT), collective_axes="wg")

    agrees(body, (2, count, 7), **threads(count), **PAIR)


def test_a_block_that_runs_ahead_arrives_at_barriers_of_others_that_have_not_come() -> None:
    def body(o: Any, back: Any) -> None:
        me = pl.axis_index("c")

        @pl.loop(0, 6)
        def _(step: Any) -> None:
            def meet(full: Any, tile: Any) -> None:
                @pl.when(me == 0)
                def _() -> None:
                    plgpu.barrier_arrive(plgpu.cluster_ref(full, {"c": 1}))

                @pl.when(me == 1)
                def _() -> None:
                    plgpu.barrier_wait(full)
                    tile[...] = jnp.full((4,), step, INT)
                    o[step] = tile[...]

            pl.run_scoped(meet, plgpu.Barrier(), plgpu.SMEM((4,), INT), collective_axes="wg")

    agrees(body, (6, 4), **threads(1, FULL), **PAIR)


def test_waits_at_a_barrier_of_another_block() -> None:
    def body(x: Any, o: Any, tile: Any, full: Any) -> None:
        me = pl.axis_index("c")
        there = plgpu.cluster_ref(full, {"c": 1 - me})

        @pl.loop(0, 3)
        def _(step: Any) -> None:
            tile[step] = x[me, step] + 1
            plgpu.barrier_arrive(full.at[step % 2])
            plgpu.barrier_wait(there.at[step % 2])
            o[me, step] = plgpu.cluster_ref(tile, {"c": 1 - me})[step]
            plgpu.barrier_wait(full.at[step % 2])

    x = np.random.default_rng(0).integers(0, 99, (2, 3, 4)).astype(INT)
    found = agrees(body, x.shape, x, **PAIR, scratch_types=[plgpu.SMEM((3, 4), INT), plgpu.Barrier(num_barriers=2)])
    np.testing.assert_array_equal(found, x[::-1] + 1)


def test_an_arrival_at_the_cluster_barrier_of_one_block() -> None:
    def body(o: Any, met: Any) -> None:
        me = pl.axis_index("c")

        @pl.when(me == 0)
        def _() -> None:  # at its own, and at that of the same block as the other one sees it
            plgpu.barrier_arrive(plgpu.cluster_ref(met, {"c": 1}))

        @pl.when(me == 1)
        def _() -> None:
            plgpu.barrier_wait(met)

        o[me] = me + 1

    agrees(body, (2,), **PAIR, scratch_types=[plgpu.ClusterBarrier(collective_axes="c")])


@pytest.mark.parametrize("size", [2, 3])
def test_clusters_of_a_size_known_only_at_the_call(size: int) -> None:
    def body(o: Any, tile: Any, met: Any) -> None:
        me, place = pl.axis_index("c"), pl.axis_index("x")
        tile[...] = me * 10 + place
        plgpu.barrier_arrive_and_wait(met)
        o[place, me] = plgpu.cluster_ref(tile, {"c": 0})[...] + tile[...] * pl.axis_size("c")
        plgpu.barrier_arrive_and_wait(met)

    scratch = [plgpu.SMEM((), INT), plgpu.ClusterBarrier(collective_axes="c")]
    grid = {"grid": (np.int32(2),), "grid_names": ("x",), "cluster": (np.int32(size),), "cluster_names": ("c",)}
    agrees(body, (2, 4), scratch_types=scratch, **grid)


@pytest.mark.parametrize("rows", [4, 5, 1], ids=["rows that divide", "rows that do not", "one row"])
@pytest.mark.parametrize("at", [0, 2], ids=["inside", "at the edge"])
def test_copies_that_blocks_share_after_dynamic_slices(rows: int, at: int) -> None:
    def body(x: Any, start: Any, o: Any, tile: Any, full: Any) -> None:
        me = pl.axis_index("c")
        part = x.at[pl.ds(start[0], 6)].at[pl.ds(1, rows), pl.ds(start[0], 5)]
        plgpu.copy_gmem_to_smem(part, tile, full, collective_axes="c")
        plgpu.barrier_wait(full)
        o[me] = tile[...]

    x = np.random.default_rng(0).integers(0, 99, (7, 6)).astype(INT)
    scratch = [plgpu.SMEM((rows, 5), INT), FULL]
    agrees(body, (2, rows, 5), x, np.array([at], INT), **PAIR, scratch_types=scratch)


def test_a_scope_that_cores_enter_together() -> None:
    def body(x: Any, o: Any, come: Any) -> None:
        me = pl.axis_index("core")

        @pl.loop(0, 3)
        def _(step: Any) -> None:
            def run(tile: Any, given: Any) -> None:
                pl.semaphore_signal(come, 1, device_id={"core": 1 - me})
                pl.semaphore_wait(come, 1)
                pltpu.sync_copy(x.at[step, me], pltpu.core_ref(tile, {"core": 1 - me}))
                pl.semaphore_signal(given, 1, device_id={"core": 1 - me})
                pl.semaphore_wait(given, 1)
                pltpu.sync_copy(tile, o.at[step, me])
                pl.semaphore_signal(come, 1, device_id={"core": 1 - me})
                pl.semaphore_wait(come, 1)

            pl.run_scoped(run, pltpu.VMEM((4,), INT), pltpu.SemaphoreType.REGULAR, collective_axes="core")

    x = np.random.default_rng(0).integers(0, 99, (3, 2, 4)).astype(INT)
    mesh = pltpu.TensorCoreMesh(axis_name="core", num_cores=2)
    out, scratch = pl.ShapeDtypeStruct(x.shape, INT), [pltpu.SemaphoreType.REGULAR]
    for executor in ("cpu", "reference"):
        found = pl.kernel(body, out, mesh=mesh, scratch_types=scratch, interpret=executor)(x)
        np.testing.assert_array_equal(found, x[:, ::-1])


def on_two_cores(body: Callable[..., None], x: Any, shape: tuple[int, ...]) -> Any:
    """The result of a kernel on two cores, which is the same on the evaluator."""
    mesh = pltpu.TensorCoreMesh(axis_name="core", num_cores=2)
    out, scratch = pl.ShapeDtypeStruct(shape, INT), [pltpu.SemaphoreType.REGULAR]
    found = [
        np.asarray(pl.kernel(body, out, mesh=mesh, scratch_types=scratch, interpret=executor)(x))
        for executor in ("cpu", "reference")
    ]
    np.testing.assert_array_equal(*found)
    return found[0]


def test_memory_of_a_scope_of_a_core_is_reached_from_another() -> None:
    def body(x: Any, o: Any, _: Any) -> None:
        me = pl.axis_index("core")

        def run(here: Any, own: Any, sent: Any, come: Any) -> None:
            own[...] = x[me] + 1
            pltpu.async_remote_copy(own, here, sent, come, device_id={"core": 1 - me}).wait()
            o[me] = here[...]

        pl.run_scoped(run, pltpu.VMEM((4,), INT), pltpu.VMEM((4,), INT), *[pltpu.SemaphoreType.DMA] * 2)

    x = np.arange(8, dtype=INT).reshape(2, 4)
    np.testing.assert_array_equal(on_two_cores(body, x, x.shape), x[::-1] + 1)


def test_a_core_that_runs_ahead_copies_to_scopes_that_its_peer_has_not_entered() -> None:
    """The first core sends in five visits of the scope; the second one enters each when it has received."""

    def body(x: Any, o: Any, _: Any) -> None:
        me = pl.axis_index("core")

        @pl.loop(0, 5)
        def _(step: Any) -> None:
            def run(here: Any, sent: Any, come: Any) -> None:
                @pl.when(me == 0)
                def _() -> None:
                    copy = pltpu.async_remote_copy(x.at[step], here, sent, come, device_id={"core": 1})
                    copy.start()
                    copy.wait_send()

                @pl.when(me == 1)
                def _() -> None:
                    pltpu.make_async_copy(x.at[step], here, come).wait()
                    o[step] = here[...]

            pl.run_scoped(run, pltpu.VMEM((4,), INT), *[pltpu.SemaphoreType.DMA] * 2)

    x = np.arange(20, dtype=INT).reshape(5, 4)
    np.testing.assert_array_equal(on_two_cores(body, x, x.shape), x)


def test_a_value_read_before_a_peer_writes_to_the_scope_of_a_core() -> None:
    def body(x: Any, o: Any, turn: Any) -> None:
        me = pl.axis_index("core")

        def run(here: Any) -> None:
            there = pltpu.core_ref(here, {"core": 1 - me})
            here[...] = x[me]
            before = here[...] * 10
            pl.semaphore_signal(turn, 1, device_id={"core": 1 - me})
            pl.semaphore_wait(turn, 1)
            there[...] = jnp.full((4,), 7, INT)
            pl.semaphore_signal(turn, 1, device_id={"core": 1 - me})
            pl.semaphore_wait(turn, 1)
            o[me] = before + here[...]

        pl.run_scoped(run, pltpu.VMEM((4,), INT))

    x = np.arange(8, dtype=INT).reshape(2, 4)
    np.testing.assert_array_equal(on_two_cores(body, x, x.shape), x * 10 + 7)


def test_cores_that_enter_a_scope_more_often_than_their_peer() -> None:
    """The evaluator gives each visit its own memory; the CPU has memory of two visits, and leaves the rest to it."""

    def body(x: Any, o: Any, done: Any) -> None:
        me = pl.axis_index("core")

        def visit(step: Any) -> None:
            def run(here: Any) -> None:
                pltpu.core_ref(here, {"core": 1 - me})[...] = x[step]
                here[...] = x[step] + 1
                o[me, step] = here[...]

            pl.run_scoped(run, pltpu.VMEM((4,), INT))

        @pl.when(me == 0)
        def _() -> None:
            pl.loop(0, 5)(visit)
            pl.semaphore_signal(done, 1, device_id={"core": 1})

        @pl.when(me == 1)
        def _() -> None:
            pl.semaphore_wait(done, 1)
            pl.loop(0, 5)(visit)

    x = np.arange(20, dtype=INT).reshape(5, 4)
    np.testing.assert_array_equal(on_two_cores(body, x, (2, 5, 4)), np.stack([x + 1] * 2))


def test_the_own_memory_of_a_block_is_not_reached_from_another() -> None:
    def body(o: Any) -> None:
        def run(tile: Any) -> None:
            tile[...] = jnp.zeros((4,), INT)
            o[...] = plgpu.cluster_ref(tile, {"c": 1})[...]

        pl.run_scoped(run, plgpu.SMEM((4,), INT))

    not_own = pytest.raises(IndexError, match="no other block or core has this tile: it is private to a thread")
    with pytest.warns(pl.NotCompiledWarning, match="what a peer has allocated"), not_own:
        kernel(body, (4,), **PAIR)()
