"""What goes wrong in kernels of several threads: meshes, what they allocate, copies, barriers, semaphores, products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import palladio as pl
import palladio.gpu as plgpu
import palladio.numpy as jnp
from tests.errors.shown import OUT, X, shows

Body = Callable[..., None]


def launch(body: Body, *args: Any, out: Any = OUT, scratch: Any = (), **mesh: Any) -> Any:
    """Run a body of one block."""
    return plgpu.kernel(body, out, scratch_types=scratch, **mesh)(*args)


def nothing(*refs: Any) -> None:
    """A body without a fault."""


HALF = plgpu.SMEM((8, 16), jnp.float16)
TILE = plgpu.SMEM((8, 16), jnp.float32)
FULL = plgpu.Barrier()
SEM = plgpu.SemaphoreType.REGULAR


# Meshes.


def test_a_grid_that_is_no_integer() -> None:
    with shows(
        TypeError,
        """
        grid: the size of a mesh axis is an integer
          got:      2.5
          test_dialect.py:N, in test_a_grid_that_is_no_integer
            plgpu.Mesh(grid=(2.5,))
            ^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        plgpu.Mesh(grid=(2.5,))


def test_a_grid_of_nothing() -> None:
    with shows(
        ValueError,
        """
        grid: the size of a mesh axis is at least 1
          got:      0
          test_dialect.py:N, in test_a_grid_of_nothing
            plgpu.kernel(nothing, OUT, grid=(4, 0))
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        plgpu.kernel(nothing, OUT, grid=(4, 0))


def test_fewer_names_than_axes() -> None:
    with shows(
        ValueError,
        """
        grid_names: one name for each axis, or none
          expected: 2
          got:      1
          test_dialect.py:N, in test_fewer_names_than_axes
            plgpu.kernel(nothing, OUT, grid=(4, 2), grid_names=("x",))
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        plgpu.kernel(nothing, OUT, grid=(4, 2), grid_names=("x",))


def test_a_name_for_two_axes() -> None:
    with shows(
        ValueError,
        """
        two axes of the mesh have one name
          got:      x, x
          test_dialect.py:N, in test_a_name_for_two_axes
            plgpu.kernel(nothing, OUT, grid=(4,), grid_names=("x",), num_threads=2, thread_name="x")
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        plgpu.kernel(nothing, OUT, grid=(4,), grid_names=("x",), num_threads=2, thread_name="x")


def test_a_cluster_of_four_axes() -> None:
    with shows(
        ValueError,
        """
        cluster: a cluster has at most 3 axes
          got:      4
          test_dialect.py:N, in test_a_cluster_of_four_axes
            plgpu.kernel(nothing, OUT, cluster=(1, 1, 1, 2))
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        plgpu.kernel(nothing, OUT, cluster=(1, 1, 1, 2))


def test_threads_without_a_name() -> None:
    with shows(
        ValueError,
        """
        thread_name: num_threads and thread_name are given together or not at all
          test_dialect.py:N, in test_threads_without_a_name
            plgpu.kernel(nothing, OUT, num_threads=2)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        plgpu.kernel(nothing, OUT, num_threads=2)


def test_a_name_without_threads() -> None:
    with shows(
        ValueError,
        """
        num_threads: num_threads and thread_name are given together or not at all
          test_dialect.py:N, in test_a_name_without_threads
            plgpu.kernel(nothing, OUT, thread_name="wg")
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        plgpu.kernel(nothing, OUT, thread_name="wg")


def test_more_warpgroups_than_a_block_has() -> None:
    with shows(
        ValueError,
        """
        num_threads: a block has at most 16 warpgroups
          got:      17
          test_dialect.py:N, in test_more_warpgroups_than_a_block_has
            plgpu.kernel(nothing, OUT, num_threads=17, thread_name="wg")
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        plgpu.kernel(nothing, OUT, num_threads=17, thread_name="wg")


def test_what_is_no_mesh() -> None:
    with shows(
        TypeError,
        """
        mesh: this is not a mesh
          got:      4
          test_dialect.py:N, in test_what_is_no_mesh
            pl.kernel(nothing, OUT, mesh=4)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.kernel(nothing, OUT, mesh=4)


def test_two_bodies_on_one_mesh() -> None:
    with shows(
        ValueError,
        """
        mesh: body and mesh are two sequences of one length, or one of each
          got:      a sequence of 2 and one
          test_dialect.py:N, in test_two_bodies_on_one_mesh
            pl.kernel([nothing, nothing], OUT, mesh=plgpu.Mesh())
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.kernel([nothing, nothing], OUT, mesh=plgpu.Mesh())


def test_a_grid_of_nothing_at_the_call() -> None:
    with shows(
        ValueError,
        """
        grid: the size of a mesh axis is at least 1
          got:      0
          test_dialect.py:N, in test_a_grid_of_nothing_at_the_call
            plgpu.kernel(nothing, OUT, grid=(np.zeros((), np.int32),))(X)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        plgpu.kernel(nothing, OUT, grid=(np.zeros((), np.int32),))(X)


# The body.


def test_a_body_that_returns_something() -> None:
    def body(x: Any, o: Any) -> Any:
        return x[...]

    with shows(
        TypeError,
        """
        the body body of kernel must return None; it writes to its references
          got:      returns traced f32[8,16]
          test_dialect.py:N, in body
            def body(x: Any, o: Any) -> Any:
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        launch(body, X)


def test_a_body_that_closes_over_an_array() -> None:
    weights = np.ones((8, 16), np.float32)

    def body(x: Any, o: Any) -> None:
        o[...] = x[...] * weights

    with shows(
        TypeError,
        """
        the body body of kernel captures an array
          got:      f32[8,16]
          hint:     only scalars and references may be closed over; pass arrays as arguments
          test_dialect.py:N, in body
            o[...] = x[...] * weights
                     ^^^^^^^^^^^^^^^^
        """,
    ):
        launch(body, X)


def test_scratch_that_is_not_described() -> None:
    with shows(
        TypeError,
        """
        scratch_types[0]: scratch is described by a memory space, a shape and a dtype
          expected: such as plgpu.SMEM(shape, dtype), plgpu.ACC((m, n)) or plgpu.Barrier()
          got:      8
          test_dialect.py:N, in launch
            return plgpu.kernel(body, out, scratch_types=scratch, **mesh)(*args)
                   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        launch(nothing, X, scratch=[(8, 16)])


def test_an_alias_of_an_input_that_is_not_there() -> None:
    with shows(
        ValueError,
        """
        input_output_aliases: names an input that the call does not have
          expected: an input below 1
          got:      1
          test_dialect.py:N, in test_an_alias_of_an_input_that_is_not_there
            plgpu.kernel(nothing, OUT, input_output_aliases={1: 0})(X)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        plgpu.kernel(nothing, OUT, input_output_aliases={1: 0})(X)


def test_an_alias_of_another_type() -> None:
    with shows(
        ValueError,
        """
        input_output_aliases: input 0 and output 0 are aliased but differ
          expected: f32[8,16]
          got:      f32[4,16]
          test_dialect.py:N, in test_an_alias_of_another_type
            plgpu.kernel(nothing, OUT, input_output_aliases={0: 0})(X[:4])
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        plgpu.kernel(nothing, OUT, input_output_aliases={0: 0})(X[:4])


# What is allocated.


def test_a_tile_that_is_no_sequence() -> None:
    with shows(
        TypeError,
        """
        tiling: a tile is described by integers
          expected: such as (8, 64)
          got:      8
          test_dialect.py:N, in test_a_tile_that_is_no_sequence
            plgpu.TilingTransform(8)
            ^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        plgpu.TilingTransform(8)


def test_a_tile_of_nothing() -> None:
    with shows(
        ValueError,
        """
        tiling: a tile has sizes of at least 1
          got:      (8, 0)
          test_dialect.py:N, in test_a_tile_of_nothing
            plgpu.TilingTransform((8, 0))
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        plgpu.TilingTransform((8, 0))


def test_a_swizzle_that_the_hardware_has_not() -> None:
    with shows(
        ValueError,
        """
        swizzle: the hardware swizzles rows of 32, 64 or 128 bytes
          got:      48
          test_dialect.py:N, in test_a_swizzle_that_the_hardware_has_not
            plgpu.SwizzleTransform(48)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        plgpu.SwizzleTransform(48)


def test_an_accumulator_that_is_no_matrix() -> None:
    with shows(
        ValueError,
        """
        shape: an accumulator is a matrix
          got:      (64,)
          test_dialect.py:N, in test_an_accumulator_that_is_no_matrix
            plgpu.ACC((64,))
            ^^^^^^^^^^^^^^^^
        """,
    ):
        plgpu.ACC((64,))


def test_an_accumulator_of_no_array() -> None:
    with shows(
        TypeError,
        """
        array: an accumulator starts as an array
          got:      3
          test_dialect.py:N, in test_an_accumulator_of_no_array
            plgpu.ACC.init(3)
            ^^^^^^^^^^^^^^^^^
        """,
    ):
        plgpu.ACC.init(3)


def test_an_initial_value_outside_of_run_state() -> None:
    with shows(
        ValueError,
        """
        an accumulator with an initial value can only be made by run_state
          hint:     pl.run_state(f)(plgpu.ACC.init(array))
          test_dialect.py:N, in launch
            return plgpu.kernel(body, out, scratch_types=scratch, **mesh)(*args)
                   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        launch(nothing, X, scratch=[plgpu.ACC.init(np.zeros((64, 8), np.float32))])


def test_arrivals_that_are_no_integer() -> None:
    with shows(
        TypeError,
        """
        num_arrivals: a number of arrivals is an integer
          got:      1.5
          test_dialect.py:N, in test_arrivals_that_are_no_integer
            plgpu.Barrier(num_arrivals=1.5)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        plgpu.Barrier(num_arrivals=1.5)


def test_a_barrier_without_arrivals() -> None:
    with shows(
        ValueError,
        """
        num_arrivals: a barrier needs at least one arrival
          got:      0
          test_dialect.py:N, in test_a_barrier_without_arrivals
            plgpu.Barrier(num_arrivals=0)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        plgpu.Barrier(num_arrivals=0)


def test_no_barriers() -> None:
    with shows(
        ValueError,
        """
        num_barriers: there is at least one barrier
          got:      0
          test_dialect.py:N, in test_no_barriers
            plgpu.Barrier(num_barriers=0)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        plgpu.Barrier(num_barriers=0)


def test_a_size_below_zero() -> None:
    with shows(
        ValueError,
        """
        shape: a size is at least 0
          got:      (-1, 8)
          test_dialect.py:N, in test_a_size_below_zero
            plgpu.SMEM((-1, 8), jnp.float32)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        plgpu.SMEM((-1, 8), jnp.float32)


def test_threads_that_share_along_an_unknown_axis() -> None:
    def body(x: Any, o: Any) -> None:
        pl.run_scoped(nothing, TILE, collective_axes="wg")

    with shows(
        ValueError,
        """
        collective_axes: no axis of threads that share memory has this name here
          expected: thread
          got:      'wg'
          test_dialect.py:N, in body
            pl.run_scoped(nothing, TILE, collective_axes="wg")
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        launch(body, X, num_threads=2, thread_name="thread")


# Copies.


def test_a_copy_of_an_array() -> None:
    def body(x: Any, o: Any, tile: Any, full: Any) -> None:
        plgpu.copy_gmem_to_smem(x[...], tile, full)

    with shows(
        TypeError,
        """
        src: this is not a reference
          got:      Value: traced f32[8,16]
          test_dialect.py:N, in body
            plgpu.copy_gmem_to_smem(x[...], tile, full)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        launch(body, X, scratch=[TILE, FULL])


def test_a_copy_without_a_barrier() -> None:
    def body(x: Any, o: Any, tile: Any) -> None:
        plgpu.copy_gmem_to_smem(x, tile)

    with shows(
        TypeError,
        """
        barrier: a copy to shared memory arrives at a barrier
          hint:     allocate one: plgpu.Barrier()
          test_dialect.py:N, in body
            plgpu.copy_gmem_to_smem(x, tile)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        launch(body, X, scratch=[TILE])


def test_a_copy_in_the_wrong_direction() -> None:
    def body(x: Any, o: Any, tile: Any, full: Any) -> None:
        plgpu.copy_gmem_to_smem(tile, o, full)

    with shows(
        TypeError,
        """
        src: the source of a copy to shared memory must be a reference in gmem or any
          got:      ref<smem, f32[8,16]>
          test_dialect.py:N, in body
            plgpu.copy_gmem_to_smem(tile, o, full)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        launch(body, X, scratch=[TILE, FULL])


def test_a_copy_back_in_the_wrong_direction() -> None:
    def body(x: Any, o: Any, tile: Any) -> None:
        plgpu.copy_smem_to_gmem(x, tile)

    with shows(
        TypeError,
        """
        src: the source of a copy to global memory must be a reference in smem
          got:      ref<gmem, f32[8,16]>
          test_dialect.py:N, in body
            plgpu.copy_smem_to_gmem(x, tile)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        launch(body, X, scratch=[TILE])


def test_a_copy_to_another_shape() -> None:
    def body(x: Any, o: Any, tile: Any, full: Any) -> None:
        plgpu.copy_gmem_to_smem(x.at[:4], tile, full)

    with shows(
        ValueError,
        """
        the source has another shape than what it replaces
          expected: f32[8,16]
          got:      f32[4,16]
          test_dialect.py:N, in body
            plgpu.copy_gmem_to_smem(x.at[:4], tile, full)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        launch(body, X, scratch=[TILE, FULL])


def test_a_copy_to_another_dtype() -> None:
    def body(x: Any, o: Any, tile: Any, full: Any) -> None:
        plgpu.copy_gmem_to_smem(x, tile, full)

    with shows(
        TypeError,
        """
        the source has another dtype than the reference
          expected: f16[8,16]
          got:      f32[8,16]
          test_dialect.py:N, in body
            plgpu.copy_gmem_to_smem(x, tile, full)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        launch(body, X, scratch=[HALF, FULL])


def test_a_copy_that_arrives_at_memory() -> None:
    def body(x: Any, o: Any, tile: Any) -> None:
        plgpu.copy_gmem_to_smem(x, tile, tile)

    with shows(
        TypeError,
        """
        a barrier must be a reference in barrier
          got:      ref<smem, f32[8,16]>
          test_dialect.py:N, in body
            plgpu.copy_gmem_to_smem(x, tile, tile)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        launch(body, X, scratch=[TILE])


def test_a_copy_that_arrives_at_several_barriers() -> None:
    def body(x: Any, o: Any, tile: Any, full: Any) -> None:
        plgpu.copy_gmem_to_smem(x, tile, full)

    with shows(
        TypeError,
        """
        one barrier is needed
          got:      ref<barrier, i32[2], Arrivals(count=1, cluster_axes=())> seen as i32[2]
          hint:     pick one: ref.at[i]
          test_dialect.py:N, in body
            plgpu.copy_gmem_to_smem(x, tile, full)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        launch(body, X, scratch=[TILE, plgpu.Barrier(num_barriers=2)])


def test_a_copy_that_tracks_a_leader() -> None:
    def body(x: Any, o: Any, tile: Any, full: Any) -> None:
        plgpu.copy_gmem_to_smem(x, tile, full, leader_tracked="x")

    with shows(
        ValueError,
        """
        leader_tracked: leader-tracked copies are Blackwell's
          got:      x
          test_dialect.py:N, in body
            plgpu.copy_gmem_to_smem(x, tile, full, leader_tracked="x")
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        launch(body, X, scratch=[TILE, FULL])


def test_a_copy_shared_along_an_unknown_axis() -> None:
    def body(x: Any, o: Any, tile: Any, full: Any) -> None:
        plgpu.copy_gmem_to_smem(x, tile, full, collective_axes="c")

    with shows(
        ValueError,
        """
        collective_axes: no cluster axis has this name here
          expected: a kernel with cluster axes
          got:      'c'
          test_dialect.py:N, in body
            plgpu.copy_gmem_to_smem(x, tile, full, collective_axes="c")
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        launch(body, X, scratch=[TILE, FULL])


def test_an_unknown_fill() -> None:
    def body(x: Any, o: Any, tile: Any, full: Any) -> None:
        plgpu.copy_gmem_to_smem(x, tile, full, oob_mode="zeros")

    with shows(
        TypeError,
        """
        oob_mode: what lies outside the source is described by an OOBFillMode
          expected: such as plgpu.OOBFillMode.ZEROS
          got:      'zeros'
          test_dialect.py:N, in body
            plgpu.copy_gmem_to_smem(x, tile, full, oob_mode="zeros")
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        launch(body, X, scratch=[TILE, FULL])


def test_a_predicate_of_a_number() -> None:
    def body(x: Any, o: Any, tile: Any, full: Any) -> None:
        plgpu.copy_gmem_to_smem(x, tile, full, predicate=pl.axis_index("x"))

    with shows(
        TypeError,
        """
        predicate: a predicate is a scalar bool
          got:      i32[]
          test_dialect.py:N, in body
            plgpu.copy_gmem_to_smem(x, tile, full, predicate=pl.axis_index("x"))
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        launch(body, X, scratch=[TILE, FULL], grid=(1,), grid_names=("x",))


def test_an_unknown_reduction() -> None:
    def body(x: Any, o: Any, tile: Any) -> None:
        plgpu.copy_smem_to_gmem(tile, o, reduction_op="mean")

    with shows(
        ValueError,
        """
        reduction_op: no such reduction
          expected: add, max, min, and, or, xor
          got:      mean
          test_dialect.py:N, in body
            plgpu.copy_smem_to_gmem(tile, o, reduction_op="mean")
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        launch(body, X, scratch=[TILE])


def test_a_reduction_that_the_dtype_has_not() -> None:
    def body(x: Any, o: Any, tile: Any) -> None:
        plgpu.copy_smem_to_gmem(tile, o, reduction_op="and")

    with shows(
        TypeError,
        """
        floats have no and
          got:      f32[8,16]
          test_dialect.py:N, in body
            plgpu.copy_smem_to_gmem(tile, o, reduction_op="and")
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        launch(body, X, scratch=[TILE])


def test_a_wait_for_fewer_than_no_groups() -> None:
    def body(x: Any, o: Any) -> None:
        plgpu.wait_smem_to_gmem(-1)

    with shows(
        ValueError,
        """
        n: wait_smem_to_gmem leaves a static number of groups in flight
          got:      -1
          test_dialect.py:N, in body
            plgpu.wait_smem_to_gmem(-1)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        launch(body, X)


def test_a_fence_outside_of_kernels() -> None:
    with shows(
        ValueError,
        """
        commit_smem has a meaning only inside a kernel
          test_dialect.py:N, in test_a_fence_outside_of_kernels
            plgpu.commit_smem()
            ^^^^^^^^^^^^^^^^^^^
        """,
    ):
        plgpu.commit_smem()


def test_a_fence_of_global_memory_outside_of_kernels() -> None:
    with shows(
        ValueError,
        """
        commit_gmem has a meaning only inside a kernel
          test_dialect.py:N, in test_a_fence_of_global_memory_outside_of_kernels
            plgpu.commit_gmem()
            ^^^^^^^^^^^^^^^^^^^
        """,
    ):
        plgpu.commit_gmem()


def test_a_store_into_global_memory_of_the_cluster() -> None:
    def body(x: Any, o: Any, full: Any) -> None:
        plgpu.async_store_smem(x[...], o, full)

    with shows(
        TypeError,
        """
        ref: the target of a store to a block of the cluster must be a reference in smem
          got:      ref<gmem, f32[8,16]>
          test_dialect.py:N, in body
            plgpu.async_store_smem(x[...], o, full)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        launch(body, X, scratch=[FULL])


def test_a_block_along_an_unknown_axis() -> None:
    def body(x: Any, o: Any, tile: Any) -> None:
        o[...] = plgpu.cluster_ref(tile, {"c": 0})[...]

    with shows(
        ValueError,
        """
        idxs: no cluster axis has this name here
          expected: a kernel with cluster axes
          got:      'c'
          test_dialect.py:N, in body
            o[...] = plgpu.cluster_ref(tile, {"c": 0})[...]
                     ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        launch(body, X, scratch=[TILE])


# Barriers and semaphores.


def test_a_wait_for_memory() -> None:
    def body(x: Any, o: Any, tile: Any) -> None:
        plgpu.barrier_wait(tile)

    with shows(
        TypeError,
        """
        a barrier must be a reference in barrier
          got:      ref<smem, f32[8,16]>
          test_dialect.py:N, in body
            plgpu.barrier_wait(tile)
            ^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        launch(body, X, scratch=[TILE])


def test_a_wait_for_no_reference() -> None:
    def body(x: Any, o: Any) -> None:
        plgpu.barrier_wait(x[0, 0])

    with shows(
        TypeError,
        """
        barrier: this is not a reference
          got:      Value: traced f32[]
          test_dialect.py:N, in body
            plgpu.barrier_wait(x[0, 0])
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        launch(body, X)


def test_a_barrier_that_is_read() -> None:
    def body(x: Any, o: Any, full: Any) -> None:
        o[...] = full[...]

    with shows(
        TypeError,
        """
        barriers and semaphores hold no data
          got:      reference to i32[] in barrier
          hint:     barrier_wait and barrier_arrive, semaphore_wait and semaphore_signal use them
          test_dialect.py:N, in body
            o[...] = full[...]
                     ^^^^^^^^^
        """,
    ):
        launch(body, X, scratch=[FULL])


def test_a_barrier_that_is_written() -> None:
    def body(x: Any, o: Any, full: Any) -> None:
        full[...] = 0

    with shows(
        TypeError,
        """
        barriers and semaphores hold no data
          got:      reference to i32[] in barrier
          hint:     barrier_wait and barrier_arrive, semaphore_wait and semaphore_signal use them
          test_dialect.py:N, in body
            full[...] = 0
            ^^^^^^^^^
        """,
    ):
        launch(body, X, scratch=[FULL])


def test_a_barrier_that_is_added_to() -> None:
    def body(x: Any, o: Any, full: Any) -> None:
        full.add(1)

    with shows(
        TypeError,
        """
        barriers and semaphores hold no data
          got:      ref<barrier, i32[], Arrivals(count=1, cluster_axes=())>
          hint:     barrier_wait and barrier_arrive, semaphore_wait and semaphore_signal use them
          test_dialect.py:N, in body
            full.add(1)
            ^^^^^^^^^^^
        """,
    ):
        launch(body, X, scratch=[FULL])


def test_several_semaphores_at_once() -> None:
    def body(x: Any, o: Any, sems: Any) -> None:
        plgpu.semaphore_signal(sems)

    with shows(
        TypeError,
        """
        one semaphore is needed
          got:      ref<semaphore, i32[2]>
          hint:     pick one: ref.at[i]
          test_dialect.py:N, in body
            plgpu.semaphore_signal(sems)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        launch(body, X, scratch=[SEM((2,))])


def test_a_signal_of_a_fraction() -> None:
    def body(x: Any, o: Any, sem: Any) -> None:
        plgpu.semaphore_signal(sem, 0.5)

    with shows(
        TypeError,
        """
        inc: a semaphore counts in scalar integers
          got:      f32[]
          test_dialect.py:N, in body
            plgpu.semaphore_signal(sem, 0.5)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        launch(body, X, scratch=[SEM])


def test_a_wait_for_less_than_nothing() -> None:
    def body(x: Any, o: Any, sem: Any) -> None:
        plgpu.semaphore_wait(sem, -1)

    with shows(
        ValueError,
        """
        value: a semaphore counts up from 0
          got:      -1
          test_dialect.py:N, in body
            plgpu.semaphore_wait(sem, -1)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        launch(body, X, scratch=[SEM])


def test_a_wait_for_a_barrier_as_a_semaphore() -> None:
    def body(x: Any, o: Any, full: Any) -> None:
        plgpu.semaphore_wait(full)

    with shows(
        TypeError,
        """
        a semaphore must be a reference in semaphore or dma_semaphore
          got:      ref<barrier, i32[], Arrivals(count=1, cluster_axes=())>
          test_dialect.py:N, in body
            plgpu.semaphore_wait(full)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        launch(body, X, scratch=[FULL])


# Products and accumulators.


def test_a_product_into_memory() -> None:
    def body(x: Any, o: Any, a: Any, b: Any) -> None:
        plgpu.wgmma(a, a, b)

    with shows(
        TypeError,
        """
        acc: wgmma adds to an accumulator
          expected: a plgpu.ACC reference
          got:      ref<smem, f16[8,16]>
          test_dialect.py:N, in body
            plgpu.wgmma(a, a, b)
            ^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        launch(body, X, scratch=[HALF, HALF])


def test_a_product_of_shapes_that_do_not_fit() -> None:
    def body(x: Any, o: Any, a: Any, b: Any, acc: Any) -> None:
        plgpu.wgmma(acc, a, b)

    with shows(
        ValueError,
        """
        the shapes are not those of a product
          expected: acc[m, n], a[m, k], b[k, n]
          got:      f32[8,8], f16[8,16], f16[8,16]
          test_dialect.py:N, in body
            plgpu.wgmma(acc, a, b)
            ^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        launch(body, X, scratch=[HALF, HALF, plgpu.ACC((8, 8))])


def test_a_product_of_two_dtypes() -> None:
    def body(x: Any, o: Any, a: Any, b: Any, acc: Any) -> None:
        plgpu.wgmma(acc, a, b.T)

    with shows(
        TypeError,
        """
        the operands of a product have one dtype
          got:      f16[8,16] and f32[16,8]
          test_dialect.py:N, in body
            plgpu.wgmma(acc, a, b.T)
            ^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        launch(body, X, scratch=[HALF, TILE, plgpu.ACC((8, 8))])


def test_a_product_in_an_accumulator_of_another_dtype() -> None:
    def body(x: Any, o: Any, a: Any, b: Any, acc: Any) -> None:
        plgpu.wgmma(acc, a, b.T)

    with shows(
        TypeError,
        """
        acc: products of f32 are accumulated in f32
          got:      f16[8,8]
          test_dialect.py:N, in body
            plgpu.wgmma(acc, a, b.T)
            ^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        launch(body, X, scratch=[TILE, TILE, plgpu.ACC((8, 8), jnp.float16)])


def test_a_product_of_a_dtype_that_the_tensor_cores_have_not() -> None:
    def body(x: Any, o: Any, a: Any, acc: Any) -> None:
        plgpu.wgmma(acc, a, a.T)

    with shows(
        TypeError,
        """
        the tensor cores do not multiply this dtype
          expected: bf16, f16, f32, f8e4m3fn, f8e5m2, i8, u8
          got:      i32[8,16]
          test_dialect.py:N, in body
            plgpu.wgmma(acc, a, a.T)
            ^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        launch(body, X, scratch=[plgpu.SMEM((8, 16), jnp.int32), plgpu.ACC((8, 8), jnp.int32)])


def test_a_product_from_global_memory() -> None:
    def body(x: Any, o: Any, a: Any, acc: Any) -> None:
        plgpu.wgmma(acc, a, x.T)

    with shows(
        TypeError,
        """
        the right operand of wgmma must be a reference in smem
          got:      ref<gmem, f32[8,16]>
          test_dialect.py:N, in body
            plgpu.wgmma(acc, a, x.T)
            ^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        launch(body, X, scratch=[TILE, plgpu.ACC((8, 8))])


def test_a_part_of_an_accumulator_known_only_when_the_kernel_runs() -> None:
    def body(x: Any, o: Any, acc: Any) -> None:
        o[...] = acc[pl.ds(pl.axis_index("x"), 8), :]

    with shows(
        TypeError,
        """
        can only dereference accumulators, not slice them at an index known only when the kernel runs
          hint:     take the whole accumulator, acc[...], or a part with static bounds
          test_dialect.py:N, in body
            o[...] = acc[pl.ds(pl.axis_index("x"), 8), :]
                     ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        launch(body, X, scratch=[plgpu.ACC((16, 16))], grid=(1,), grid_names=("x",))


def test_a_part_of_an_accumulator_that_is_stored() -> None:
    def body(x: Any, o: Any, acc: Any) -> None:
        acc[:8] = x[...]

    with shows(
        TypeError,
        """
        an accumulator can only be stored whole
          got:      reference to f32[8,16] in acc
          hint:     acc[...] = value sets all of it
          test_dialect.py:N, in body
            acc[:8] = x[...]
            ^^^^^^^
        """,
    ):
        launch(body, X, scratch=[plgpu.ACC((16, 16))])


def test_a_reference_stored_to_an_accumulator() -> None:
    def body(x: Any, o: Any, acc: Any) -> None:
        acc[...] = x

    with shows(
        TypeError,
        """
        can only store arrays to an accumulator
          got:      reference to f32[8,16] in gmem
          hint:     read it first: ref[...]
          test_dialect.py:N, in body
            acc[...] = x
            ^^^^^^^^
        """,
    ):
        launch(body, X, scratch=[plgpu.ACC((8, 16))])


def test_another_dtype_stored_to_an_accumulator() -> None:
    def body(x: Any, o: Any, acc: Any) -> None:
        acc[...] = x[...].astype(jnp.float16)

    with shows(
        TypeError,
        """
        the value has another dtype than the reference
          expected: f32[8,16]
          got:      f16[8,16]
          hint:     convert it: value.astype(ref.dtype)
          test_dialect.py:N, in body
            acc[...] = x[...].astype(jnp.float16)
            ^^^^^^^^
        """,
    ):
        launch(body, X, scratch=[plgpu.ACC((8, 16))])


def test_another_shape_stored_to_an_accumulator() -> None:
    def body(x: Any, o: Any, acc: Any) -> None:
        acc[...] = x[...].T

    with shows(
        ValueError,
        """
        the value does not broadcast to the shape that the reference has here
          expected: f32[8,16]
          got:      f32[16,8]
          test_dialect.py:N, in body
            acc[...] = x[...].T
            ^^^^^^^^
        """,
    ):
        launch(body, X, scratch=[plgpu.ACC((8, 16))])


def test_an_accumulator_that_is_added_to() -> None:
    def body(x: Any, o: Any, acc: Any) -> None:
        acc.add(x[...])

    with shows(
        TypeError,
        """
        an accumulator is read whole or in static parts, written whole, and added to by wgmma; nothing else
          got:      ref<acc, f32[8,16]>
          hint:     value = acc[...], acc[...] = value, plgpu.wgmma(acc, a, b)
          test_dialect.py:N, in body
            acc.add(x[...])
            ^^^^^^^^^^^^^^^
        """,
    ):
        launch(body, X, scratch=[plgpu.ACC((8, 16))])


def test_an_accumulator_that_is_swapped() -> None:
    def body(x: Any, o: Any, acc: Any) -> None:
        o[...] = acc.swap(x[...])

    with shows(
        TypeError,
        """
        an accumulator is read whole or in static parts, written whole, and added to by wgmma; nothing else
          got:      ref<acc, f32[8,16]>
          hint:     value = acc[...], acc[...] = value, plgpu.wgmma(acc, a, b)
          test_dialect.py:N, in body
            o[...] = acc.swap(x[...])
                     ^^^^^^^^^^^^^^^^
        """,
    ):
        launch(body, X, scratch=[plgpu.ACC((8, 16))])


def test_an_accumulator_that_escapes_its_scope() -> None:
    def body(x: Any, o: Any) -> None:
        pl.run_scoped(lambda acc: acc, plgpu.ACC((8, 16)))

    with shows(
        TypeError,
        """
        no references are allowed to escape a scope
          got:      ref<acc, f32[8,16]>
          hint:     return what it holds: ref[...]
          test_dialect.py:N, in body
            pl.run_scoped(lambda acc: acc, plgpu.ACC((8, 16)))
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        launch(body, X)


def test_what_is_loaded_is_no_accumulator() -> None:
    def body(x: Any, o: Any) -> None:
        o[...] = plgpu.wgmma_accumulator_load(x)

    with shows(
        TypeError,
        """
        acc: this is not an accumulator
          got:      reference to f32[8,16] in gmem
          test_dialect.py:N, in body
            o[...] = plgpu.wgmma_accumulator_load(x)
                     ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        launch(body, X)


def test_a_wait_for_a_number_of_products_that_is_none() -> None:
    def body(x: Any, o: Any) -> None:
        plgpu.wgmma_wait(0.5)

    with shows(
        ValueError,
        """
        n: wgmma_wait leaves a static number of groups in flight
          got:      0.5
          test_dialect.py:N, in body
            plgpu.wgmma_wait(0.5)
            ^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        launch(body, X)


def test_a_wait_for_products_outside_of_kernels() -> None:
    with shows(
        ValueError,
        """
        wgmma_wait has a meaning only inside a kernel
          test_dialect.py:N, in test_a_wait_for_products_outside_of_kernels
            plgpu.wgmma_wait(0)
            ^^^^^^^^^^^^^^^^^^^
        """,
    ):
        plgpu.wgmma_wait(0)


def test_registers_that_cannot_be_set() -> None:
    def body(x: Any, o: Any) -> None:
        plgpu.set_max_registers(100, action="increase")

    with shows(
        ValueError,
        """
        n: registers are set to a multiple of 8 from 24 to 256 for each thread
          got:      100
          test_dialect.py:N, in body
            plgpu.set_max_registers(100, action="increase")
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        launch(body, X)


def test_a_change_of_registers_that_is_none() -> None:
    def body(x: Any, o: Any) -> None:
        plgpu.set_max_registers(104, action="double")

    with shows(
        ValueError,
        """
        action: no such action
          expected: "increase" or "decrease"
          got:      'double'
          test_dialect.py:N, in body
            plgpu.set_max_registers(104, action="double")
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        launch(body, X)


def test_a_barrier_that_is_not_there() -> None:
    def body(x: Any, o: Any, full: Any) -> None:
        plgpu.barrier_wait(full.at[pl.axis_index("x") + 2])

    with shows(
        IndexError,
        """
        the index is outside the array of barriers or semaphores
          expected: an index within (2,)
          test_dialect.py:N, in body
            plgpu.barrier_wait(full.at[pl.axis_index("x") + 2])
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        launch(body, X, scratch=[plgpu.Barrier(num_barriers=2)], grid=(1,), grid_names=("x",))
