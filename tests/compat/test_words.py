"""Errors that ported tests match: the words of JAX stand in the message, beside Palladio's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.gpu as plgpu
import palladio.numpy as jnp
import palladio.tpu as pltpu
from palladio import lax

WORD = pl.ShapeDtypeStruct((), np.int32)
HALF = pl.ShapeDtypeStruct((128,), np.float16)


def raises(words: str, body: Callable[..., None], out: Any = WORD, **options: Any) -> None:
    options = {"interpret": plgpu.InterpretGPUParams(), **options}
    with pytest.raises((ValueError, pl.PalladioError), match=words):
        plgpu.kernel(body, out_type=out, **options)()


def test_completions_that_no_thread_observes() -> None:
    def kernel(o_ref: Any, barrier: Any) -> None:
        plgpu.barrier_arrive(barrier)
        plgpu.barrier_arrive(barrier)

    raises(r"Barrier completed phase 1, but no threads observed phase 0\.", kernel, scratch_types=[plgpu.Barrier()])


def test_more_completions_than_waits() -> None:
    def kernel(o_ref: Any, barrier: Any) -> None:
        plgpu.barrier_arrive(barrier)
        plgpu.barrier_wait(barrier)
        plgpu.barrier_arrive(barrier)
        o_ref[...] = 42

    words = (
        r"When barrier \d+ was deallocated, thread Warpgroup\(.+\) had only observed barrier up to phase 0, "
        r"but barrier completed up to phase 1\."
    )
    raises(words, kernel, scratch_types=[plgpu.Barrier()])


def test_a_barrier_that_is_only_arrived_at_is_not_an_error() -> None:
    def kernel(o_ref: Any, barrier: Any) -> None:
        plgpu.barrier_arrive(barrier.at[lax.axis_index("t")])
        o_ref[...] = 42

    params = plgpu.InterpretGPUParams()
    call = plgpu.kernel(kernel, WORD, scratch_types=[plgpu.Barrier()], num_threads=1, thread_name="t", interpret=params)
    assert call() == 42


@pytest.mark.parametrize(
    ("waits", "again", "words"),
    [
        (
            3,
            False,
            "Warpgroup-thread Warpgroup\\(.+\\) is waiting at barrier \\d+, but only 3 of its constituent warps",
        ),
        (4, True, "but its constituent warps have previously observed different phases"),
    ],
)
def test_warps_of_a_warpgroup_that_have_seen_different_phases(waits: int, again: bool, words: str) -> None:
    def kernel(o_ref: Any, barrier: Any) -> None:
        plgpu.barrier_arrive(barrier)

        @plgpu.warp_map
        def _(warp: Any) -> None:
            @pl.when(warp < waits)
            def _() -> None:
                plgpu.barrier_wait(barrier)

        if again:
            plgpu.barrier_arrive(barrier)

            @plgpu.warp_map
            def _(warp: Any) -> None:
                @pl.when(warp < 3)
                def _() -> None:
                    plgpu.barrier_wait(barrier)

        plgpu.barrier_wait(barrier)

    raises(words, kernel, scratch_types=[plgpu.Barrier()])


def test_warps_have_no_warps() -> None:
    def kernel(o_ref: Any) -> None:
        @pl.core_map(plgpu.WarpMesh(axis_name="outer"))
        def _() -> None:
            @pl.core_map(plgpu.WarpMesh(axis_name="inner"))
            def _() -> None:
                o_ref[...] = 42

    raises("Cannot core_map over WarpMesh while already core_mapped", kernel)


@pytest.mark.parametrize(
    ("options", "axes", "words"),
    [
        ({"num_threads": 2, "thread_name": "t"}, ("c", "t"), r"Collective allocations along cluster axes are not"),
        ({}, "c", "Requesting collective allocations, but no explicit thread axis specified"),
        ({}, "t", "Collective axis `t` not found among axes"),
    ],
)
def test_scopes_are_shared_by_the_threads_of_a_block(options: Any, axes: Any, words: str) -> None:
    def kernel(o_ref: Any) -> None:
        pl.run_scoped(lambda barrier: None, plgpu.Barrier(), collective_axes=axes)

    raises(words, kernel, cluster=(2,), cluster_names=("c",), **options)


def test_copies_between_buffers_that_differ() -> None:
    def load(o_ref: Any, smem: Any, barrier: Any) -> None:
        plgpu.copy_gmem_to_smem(o_ref, smem, barrier)

    def store(o_ref: Any, smem: Any, barrier: Any) -> None:
        plgpu.copy_smem_to_gmem(smem, o_ref)

    longer = [plgpu.SMEM((256,), np.float16), plgpu.Barrier()]
    wider = [plgpu.SMEM((128,), np.float32), plgpu.Barrier()]
    raises(r"Expected source shape to be \(256,\), but got \(128,\)\.", load, HALF, scratch_types=longer)
    words = r"Expected shapes to match, but src has shape \(256,\) and dst has shape \(128,\)"
    raises(words, store, HALF, scratch_types=longer)
    raises("Expected dtypes to match.*src.*float16.*dst.*float32", load, HALF, scratch_types=wider)
    raises("Expected dtypes to match.*src.*float32.*dst.*float16", store, HALF, scratch_types=wider)


def test_several_barriers_without_an_index() -> None:
    words = "Attempting to operate on barrier without indexing, but `num_barriers = 2`"
    raises(words, lambda o_ref, barrier: plgpu.barrier_arrive(barrier), scratch_types=[plgpu.Barrier(num_barriers=2)])


def test_unions_cannot_be_assigned_to() -> None:
    def kernel(o_ref: Any, union: Any) -> None:
        union[...] = jnp.zeros((8,), np.float32)

    raises("can't be assigned to", kernel, scratch_types=[plgpu.RefUnion(plgpu.SMEM((8,), np.float32))])


def test_pipelines_without_steps() -> None:
    def kernel(o_ref: Any) -> None:
        plgpu.emit_pipeline(lambda _: None, grid=(0,))()

    raises("All elements in the grid must be strictly positive", kernel)


def test_masks_that_do_not_broadcast() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = plgpu.load(x_ref, mask=jnp.arange(16) < 4)

    x = np.zeros((16, 32), np.float32)
    with pytest.raises(ValueError, match="Cannot broadcast"):
        pl.pallas_call(kernel, pl.ShapeDtypeStruct.like(x))(x)


def test_arrays_that_a_kernel_of_a_mesh_captures() -> None:
    constant = jnp.arange(8)

    @pl.jit
    def run(y: Any) -> Any:
        def body(o_ref: Any) -> None:
            o_ref[...] = constant + y

        return pl.kernel(
            body, pl.ShapeDtypeStruct((8,), np.int32), mesh=pltpu.TensorCoreMesh(axis_name="core", num_cores=1)
        )()

    with pytest.raises(TypeError, match="You can only close over scalars and Refs"):
        run(np.arange(8, dtype=np.int32))


def test_sub_cores_of_differently_named_cores() -> None:
    meshes = [
        pltpu.ScalarSubcoreMesh(axis_name="one", num_cores=1),
        pltpu.VectorSubcoreMesh(core_axis_name="other", subcore_axis_name="s", num_cores=1, num_subcores=2),
    ]
    with pytest.raises(ValueError, match=r"VectorSubcoreMesh.*should have the same core axis name"):
        pl.kernel([lambda o_ref: None] * 2, WORD, mesh=meshes)
