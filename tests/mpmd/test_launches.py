"""Several programs on several meshes of cores: what they share, what each has, and how they wait for each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.gpu as plgpu
import palladio.numpy as jnp
import palladio.tpu as pltpu
from tests.mpmd.calls import LEFT, OUT, RIGHT, X, nothing

REGULAR = pltpu.SemaphoreType.REGULAR
ROW = pl.ShapeDtypeStruct((4,), np.float32)


def first_row(x_ref: Any, o_ref: Any) -> None:
    o_ref[0] = x_ref[0] + 1


def second_row(x_ref: Any, o_ref: Any) -> None:
    @pl.when(pl.axis_index("right") == 0)
    def _() -> None:
        o_ref[1] = x_ref[1] * 2


BOTH_ROWS = np.stack([X[0] + 1, X[1] * 2])

# What programs share.


def test_programs_write_to_one_output() -> None:
    assert np.array_equal(pl.mpmd_map([(LEFT, first_row), (RIGHT, second_row)], OUT)(X), BOTH_ROWS)


def test_kernel_with_sequences_is_the_same() -> None:
    call = pl.kernel(body=[first_row, second_row], mesh=[LEFT, RIGHT], out_type=OUT)
    assert np.array_equal(call(X), BOTH_ROWS)


def test_kernel_with_sequences_is_a_decorator_of_none() -> None:
    call = pl.kernel([first_row, second_row], OUT, mesh=(LEFT, RIGHT), name="rows")
    assert call.__name__ == "rows"
    assert np.array_equal(call(X), BOTH_ROWS)


def test_the_callers_arrays_stay_as_they_are() -> None:
    def overwrites(x_ref: Any, o_ref: Any) -> None:
        x_ref[...] = jnp.zeros((2, 4), jnp.float32)
        o_ref[...] = x_ref[...]

    mine = X.copy()
    assert not pl.mpmd_map([(LEFT, overwrites)], OUT)(mine).any()
    assert np.array_equal(mine, X)


def test_without_outputs_nothing_is_returned() -> None:
    assert pl.mpmd_map([(LEFT, nothing), (RIGHT, nothing)])(X) is None


def test_inputs_and_outputs_are_pytrees() -> None:
    def left(pair: Any, outs: Any) -> None:
        outs["sum"][...] = pair[0][...] + pair[1]["y"][...]

    def right(pair: Any, outs: Any) -> None:
        @pl.when(pl.axis_index("right") == 1)
        def _() -> None:
            outs["difference"][...] = pair[0][...] - pair[1]["y"][...]

    found = pl.mpmd_map([(LEFT, left), (RIGHT, right)], ({"sum": OUT, "difference": OUT},))((X, {"y": 3 * X}))
    assert np.array_equal(found[0]["sum"], 4 * X)
    assert np.array_equal(found[0]["difference"], -2 * X)


def test_an_output_starts_as_the_input_that_it_aliases() -> None:
    def adds(x_ref: Any, o_ref: Any) -> None:
        o_ref[0] = o_ref[0] + 1

    call = pl.mpmd_map([(LEFT, adds), (RIGHT, nothing)], OUT, input_output_aliases={0: 0})
    assert np.array_equal(call(X), np.stack([X[0] + 1, X[1]]))


@pytest.mark.parametrize("interpret", [True, False, plgpu.InterpretGPUParams(detect_races=True)])
def test_a_write_to_the_aliased_input_is_one_to_the_output(interpret: Any) -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        x_ref[pl.ds(0, 2)] = np.float32(7)
        o_ref[pl.ds(2, 2)] = o_ref[pl.ds(2, 2)] + x_ref[pl.ds(0, 2)]

    call = plgpu.kernel(kernel, ROW, input_output_aliases={0: 0}, interpret=interpret)
    x = np.arange(4, dtype=np.float32)
    assert call(x).tolist() == [7, 7, 9, 10]
    assert x.tolist() == [0, 1, 2, 3]


def test_what_is_written_to_an_alias_is_seen_through_the_input() -> None:
    def writes(x_ref: Any, o_ref: Any) -> None:
        o_ref[0] = x_ref[1]
        o_ref[1] = x_ref[0] + 1

    call = pl.mpmd_map([(LEFT, writes), (RIGHT, nothing)], OUT, input_output_aliases={0: 0})
    assert np.array_equal(call(X), np.stack([X[1], X[1] + 1]))


def test_references_may_be_passed() -> None:
    def doubles(refs: Any) -> None:
        def program(x_ref: Any) -> None:
            x_ref[pl.axis_index("right")] = x_ref[pl.axis_index("right")] * 2

        pl.mpmd_map([(LEFT, nothing), (RIGHT, program)])(refs[0])

    assert np.array_equal(pl.jit(lambda x: pl.run_state(doubles)([x])[0])(X), 2 * X)


def test_references_may_be_closed_over() -> None:
    def doubles(refs: Any) -> None:
        def left() -> None:
            refs[1][0] = refs[0][0] + 1

        def right() -> None:
            @pl.when(pl.axis_index("right") == 0)
            def _() -> None:
                refs[1][1] = refs[0][1] * 2

        pl.mpmd_map([(LEFT, left), (RIGHT, right)])()

    assert np.array_equal(pl.jit(lambda x: pl.run_state(doubles)([x, x])[1])(X), BOTH_ROWS)


def test_under_jit_it_takes_traced_arrays() -> None:
    call = pl.mpmd_map([(LEFT, first_row), (RIGHT, second_row)], OUT)
    assert np.array_equal(pl.jit(lambda x: call(x + 0) * 3)(X), 3 * BOTH_ROWS)


# What each core has.


def test_a_program_knows_its_own_axes_only() -> None:
    def right(o_ref: Any) -> None:
        o_ref[pl.axis_index("right")] = jnp.full((4,), pl.axis_size("right"), jnp.float32)

    assert np.array_equal(pl.mpmd_map([(LEFT, nothing), (RIGHT, right)], OUT)(), np.full((2, 4), 2))
    with pytest.raises(ValueError, match="no axis has this name here"):
        pl.mpmd_map([(LEFT, right)], OUT)()


def test_every_core_has_memory_of_its_own() -> None:
    mesh = pl.CoreMesh("core", 4)

    def program(x_ref: Any, o_ref: Any, mine: Any) -> None:
        core = pl.axis_index("core")
        mine[...] = x_ref[...] * core
        o_ref[core] = mine[...]

    call = pl.kernel(
        program,
        pl.ShapeDtypeStruct((4, 2, 4), np.float32),
        mesh=mesh,
        scratch_types=[pltpu.VMEM((2, 4), np.float32)],
    )
    assert np.array_equal(call(X), np.arange(4, dtype=np.float32)[:, None, None] * X)


def test_scratch_may_be_a_mapping() -> None:
    def left(x_ref: Any, o_ref: Any, *, rows: Any, ready: Any) -> None:
        rows[...] = x_ref[...] + 1
        pl.semaphore_signal(ready, device_id={"right": 0})

    def right(x_ref: Any, o_ref: Any, *, rows: Any, ready: Any) -> None:
        @pl.when(pl.axis_index("right") == 0)
        def _() -> None:
            pl.semaphore_wait(ready)
            o_ref[...] = rows[...]

    scratch = {"rows": pltpu.HBM((2, 4), np.float32), "ready": REGULAR @ RIGHT}
    assert np.array_equal(pl.mpmd_map([(LEFT, left), (RIGHT, right)], OUT, scratch_types=scratch)(X), X + 1)


def test_scratch_of_one_mesh_may_have_an_owner() -> None:
    def program(x_ref: Any, o_ref: Any, buffer: Any) -> None:
        buffer[...] = x_ref[...]
        o_ref[...] = buffer[...]

    call = pl.mpmd_map([(LEFT, program)], OUT, scratch_types=[(pltpu.VMEM @ LEFT)((2, 4), np.float32)])
    assert np.array_equal(call(X), X)


def to_neighbour(x_ref: Any, o_ref: Any, buffer: Any, ready: Any) -> None:
    """Each core writes into the memory of the other one."""
    me = pl.axis_index("right")
    pltpu.core_ref(buffer, {"right": 1 - me})[...] = x_ref[me]
    pl.semaphore_signal(ready, device_id={"right": 1 - me})
    pl.semaphore_wait(ready)
    o_ref[me] = buffer[...]


def test_a_core_reaches_the_memory_of_another() -> None:
    scratch = [pltpu.VMEM((4,), np.float32), REGULAR]
    call = pl.kernel(to_neighbour, OUT, mesh=RIGHT, scratch_types=scratch)
    assert np.array_equal(call(X), X[::-1])
    assert pl.check(call, X).ok


def test_cores_of_one_index_along_a_common_axis_need_no_name() -> None:
    first, second = pl.CoreMesh("core", 2), pl.CoreMesh("core", 2)

    def gives(x_ref: Any, o_ref: Any, buffer: Any, ready: Any) -> None:
        buffer[...] = x_ref[pl.axis_index("core")]
        pl.semaphore_signal(ready)

    def takes(x_ref: Any, o_ref: Any, buffer: Any, ready: Any) -> None:
        pl.semaphore_wait(ready)
        o_ref[pl.axis_index("core")] = buffer[...]

    scratch = [(pltpu.VMEM @ second)((4,), np.float32), REGULAR @ second]
    call = pl.mpmd_map([(first, gives), (second, takes)], OUT, scratch_types=scratch)
    assert np.array_equal(call(X), X)
    assert pl.check(call, X).ok


def test_whose_scratch_it_is_matters_where_meshes_are_equal() -> None:
    first, second = pl.CoreMesh("core", 1), pl.CoreMesh("core", 1)

    def signals(ready: Any) -> None:
        pl.semaphore_signal(ready)

    def waits(ready: Any) -> None:
        pl.semaphore_wait(ready)

    for owner in (0, 1):
        scratch = [REGULAR @ (first, second)[owner]]
        call = pl.mpmd_map([(first, signals), (second, waits)], scratch_types=scratch)
        call()
        assert f"Owner(mesh={owner})" in str(call.program().inputs[-1].type)


def test_sub_cores_of_a_core_share_memory() -> None:
    vector = pltpu.VectorSubcoreMesh("core", "subcore", 2, 2)
    scalar = pltpu.ScalarSubcoreMesh("core", 2)

    def work(x_ref: Any, o_ref: Any, shared: Any, done: Any) -> None:
        lane = pl.axis_index("subcore")
        shared[lane] = x_ref[lane] * (pl.axis_index("core") + 1)
        pl.semaphore_signal(done)

    def add(x_ref: Any, o_ref: Any, shared: Any, done: Any) -> None:
        pl.semaphore_wait(done, 2)
        o_ref[pl.axis_index("core")] = shared[0] + shared[1]

    scratch = [pltpu.VMEM_SHARED((2, 4), np.float32), REGULAR @ scalar]
    call = pl.mpmd_map([(scalar, add), (vector, work)], OUT, scratch_types=scratch)
    assert np.array_equal(call(X), np.stack([X.sum(0), 2 * X.sum(0)]))
    assert pl.check(call, X).ok


def test_barriers_synchronise_cores() -> None:
    def left(x_ref: Any, o_ref: Any, rows: Any, full: Any) -> None:
        rows[...] = x_ref[...] * 2
        for core in range(2):
            plgpu.barrier_arrive(pltpu.core_ref(full, {"right": core}))

    def right(x_ref: Any, o_ref: Any, rows: Any, full: Any) -> None:
        plgpu.barrier_wait(full)
        o_ref[pl.axis_index("right")] = rows[pl.axis_index("right")]

    scratch = [pltpu.HBM((2, 4), np.float32), plgpu.Barrier() @ RIGHT]
    call = pl.mpmd_map([(LEFT, left), (RIGHT, right)], OUT, scratch_types=scratch)
    assert np.array_equal(call(X), 2 * X)
    assert pl.check(call, X).ok


# How they run.


def test_all_programs_make_progress_while_one_polls() -> None:
    def polls(x_ref: Any, o_ref: Any, ready: Any) -> None:
        def unset(count: Any) -> Any:
            return count < 1

        pl.while_loop(unset, lambda _: pl.semaphore_read(ready), jnp.int32(0))
        pl.semaphore_wait(ready)
        o_ref[...] = x_ref[...]

    def signals(x_ref: Any, o_ref: Any, ready: Any) -> None:
        @pl.when(pl.axis_index("right") == 1)
        def _() -> None:
            pl.semaphore_signal(ready)

    call = pl.mpmd_map([(LEFT, polls), (RIGHT, signals)], OUT, scratch_types=[REGULAR @ LEFT])
    assert np.array_equal(call(X), X)


def test_tensor_cores_and_sub_cores_go_together_in_both_orders() -> None:
    tensor, vector = pltpu.TensorCoreMesh(axis_name="tensor"), pltpu.VectorSubcoreMesh("core", "subcore", 1, 2)

    def one(x_ref: Any, o_ref: Any) -> None:
        o_ref[0] = x_ref[0]

    def other(x_ref: Any, o_ref: Any) -> None:
        @pl.when(pl.axis_index("subcore") == 1)
        def _() -> None:
            o_ref[1] = x_ref[1]

    for pairs in ([(tensor, one), (vector, other)], [(vector, other), (tensor, one)]):
        assert np.array_equal(pl.mpmd_map(pairs, OUT)(X), X)


@pytest.mark.parametrize("seed", range(4))
def test_a_ring_of_cores_passes_rows_on(seed: int) -> None:
    count = 5
    mesh = pl.CoreMesh("core", count)

    def program(x_ref: Any, o_ref: Any, here: Any, come: Any, sent: Any) -> None:
        me = pl.axis_index("core")
        right = (me + 1) % count
        o_ref[me, 0] = x_ref[me]
        for step in range(1, count):
            source = x_ref.at[me] if step == 1 else here.at[step - 1]
            copy = pltpu.async_remote_copy(source, here.at[step], sent, come.at[step], {"core": right})
            copy.wait()
            o_ref[me, step] = here[step]

    rows = np.random.default_rng(seed).standard_normal((count, 3)).astype(np.float32)
    scratch = [pltpu.VMEM((count, 3), np.float32), pltpu.SemaphoreType.DMA((count,)), pltpu.SemaphoreType.DMA]
    call = pl.kernel(program, pl.ShapeDtypeStruct((count, count, 3), np.float32), mesh=mesh, scratch_types=scratch)
    expected = np.stack([[rows[(me - step) % count] for step in range(count)] for me in range(count)])
    assert np.array_equal(call(rows), expected)
    assert pl.check(call, rows, schedules=8, seed=seed).ok
