"""What is refused of launches with several meshes, as a user reads it."""

from __future__ import annotations

from typing import Any

import numpy as np

import palladio as pl
import palladio.gpu as plgpu
import palladio.tpu as pltpu
from tests.errors.shown import shows
from tests.mpmd.calls import BLOCKS, LEFT, OUT, RIGHT, X, copy, nothing

# What is launched.


def test_no_pairs() -> None:
    with shows(
        ValueError,
        """
        meshes_and_fns: at least one mesh with its function is needed
          test_errors.py:N, in test_no_pairs
            pl.mpmd_map([], OUT)
            ^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.mpmd_map([], OUT)


def test_pairs_that_are_none() -> None:
    with shows(
        TypeError,
        """
        meshes_and_fns: mpmd_map takes a sequence of pairs, a mesh and a function each
          got:      [CoreMesh(('left',), (1,))]
          test_errors.py:N, in test_pairs_that_are_none
            pl.mpmd_map([LEFT], OUT)  # type: ignore[list-item]
            ^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.mpmd_map([LEFT], OUT)  # type: ignore[list-item]


def test_bodies_and_meshes_of_different_numbers() -> None:
    with shows(
        ValueError,
        """
        mesh: body and mesh are two sequences of one length, or one of each
          got:      a sequence of 2 and a sequence of 1
          test_errors.py:N, in test_bodies_and_meshes_of_different_numbers
            pl.kernel(body=[copy, copy], mesh=[LEFT], out_type=OUT)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.kernel(body=[copy, copy], mesh=[LEFT], out_type=OUT)


def test_one_body_for_several_meshes() -> None:
    with shows(
        ValueError,
        """
        mesh: body and mesh are two sequences of one length, or one of each
          got:      one and a sequence of 2
          test_errors.py:N, in test_one_body_for_several_meshes
            @pl.kernel(mesh=[LEFT, RIGHT], out_type=OUT)
             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):

        @pl.kernel(mesh=[LEFT, RIGHT], out_type=OUT)
        def body(x_ref: Any, o_ref: Any) -> None: ...


def test_a_mesh_that_is_none() -> None:
    with shows(
        TypeError,
        """
        mesh: this is not a mesh
          got:      (2, 4)
          test_errors.py:N, in test_a_mesh_that_is_none
            pl.mpmd_map([((2, 4), copy)], OUT)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.mpmd_map([((2, 4), copy)], OUT)


def test_a_program_that_is_no_function() -> None:
    with shows(
        TypeError,
        """
        body: a kernel is a function
          got:      None
          test_errors.py:N, in test_a_program_that_is_no_function
            pl.mpmd_map([(LEFT, None)], OUT)  # type: ignore[list-item]
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.mpmd_map([(LEFT, None)], OUT)  # type: ignore[list-item]


def test_a_program_that_returns_a_value() -> None:
    def returns(x_ref: Any, o_ref: Any) -> Any:
        return x_ref[...]

    with shows(
        TypeError,
        """
        the body returns of mpmd_map must return None; it writes to its references
          got:      returns traced f32[2,4]
          test_errors.py:N, in returns
            def returns(x_ref: Any, o_ref: Any) -> Any:
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.mpmd_map([(LEFT, copy), (RIGHT, returns)], OUT)(X)


def test_a_program_that_captures_an_array() -> None:
    weights = np.ones((2, 4), np.float32)

    def weighted(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] * weights

    with shows(
        TypeError,
        """
        the body weighted of mpmd_map captures an array
          got:      f32[2,4]
          hint:     only scalars and references may be closed over; pass arrays as arguments
          test_errors.py:N, in weighted
            o_ref[...] = x_ref[...] * weights
                         ^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.mpmd_map([(LEFT, weighted), (RIGHT, nothing)], OUT)(X)


def test_a_program_with_too_few_parameters() -> None:
    with shows(
        TypeError,
        """
        kernel: the kernel takes other parameters than the call has references
          expected: 3 references (2 inputs, 1 output)
          got:      copy(x_ref, o_ref)
          calls.py:N, in copy
            def copy(x_ref: Any, o_ref: Any) -> None:
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.mpmd_map([(LEFT, copy), (RIGHT, copy)], OUT)(X, X)


def test_one_reference_passed_twice() -> None:
    def twice(refs: Any) -> None:
        pl.mpmd_map([(LEFT, nothing), (RIGHT, nothing)])(refs[0], refs[0])

    with shows(
        ValueError,
        """
        args[1]: one reference is passed twice
          got:      the same as args[0]: reference to f32[2,4] in any
          test_errors.py:N, in twice
            pl.mpmd_map([(LEFT, nothing), (RIGHT, nothing)])(refs[0], refs[0])
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.jit(lambda x: pl.run_state(twice)([x]))(X)


def test_a_reference_passed_and_closed_over() -> None:
    def both(refs: Any) -> None:
        def program(x_ref: Any) -> None:
            x_ref[...] = refs[0][...] + 1

        pl.mpmd_map([(LEFT, program)])(refs[0])

    with shows(
        ValueError,
        """
        the body of mpmd_map closes over a reference that is also passed to it
          got:      reference to f32[2,4] in any
          hint:     use the parameter
          test_errors.py:N, in both
            pl.mpmd_map([(LEFT, program)])(refs[0])
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.jit(lambda x: pl.run_state(both)([x]))(X)


# Whose scratch is whose.


def test_scratch_without_an_owner() -> None:
    with shows(
        ValueError,
        """
        scratch_types[0]: with several meshes, scratch belongs to one of them or lies in memory that all of them reach
          expected: vmem @ mesh, or one of any, cmem, gmem, hbm, host, vmem_shared
          got:      ref<vmem, f32[4]>
          test_errors.py:N, in test_scratch_without_an_owner
            pl.mpmd_map([(LEFT, nothing), (RIGHT, nothing)], OUT, scratch_types=[pltpu.VMEM((4,), np.float32)])(X)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.mpmd_map([(LEFT, nothing), (RIGHT, nothing)], OUT, scratch_types=[pltpu.VMEM((4,), np.float32)])(X)


def test_scratch_of_a_mesh_that_is_not_launched() -> None:
    other = pl.CoreMesh("other", 3)
    with shows(
        ValueError,
        """
        scratch_types[0]: scratch belongs to a mesh that the launch does not have
          got:      CoreMesh(('other',), (3,))
          test_errors.py:N, in test_scratch_of_a_mesh_that_is_not_launched
            pl.mpmd_map([(LEFT, nothing)], OUT, scratch_types=[(pltpu.VMEM @ other)((4,), np.float32)])(X)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.mpmd_map([(LEFT, nothing)], OUT, scratch_types=[(pltpu.VMEM @ other)((4,), np.float32)])(X)


def test_scratch_that_describes_no_memory() -> None:
    with shows(
        TypeError,
        """
        scratch_types[0]: scratch is described by a memory space, a shape and a dtype
          expected: such as plgpu.SMEM(shape, dtype), plgpu.ACC((m, n)) or plgpu.Barrier()
          got:      4
          test_errors.py:N, in test_scratch_that_describes_no_memory
            pl.mpmd_map([(LEFT, nothing)], OUT, scratch_types=[(4,), "vmem"])(X)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.mpmd_map([(LEFT, nothing)], OUT, scratch_types=[(4,), "vmem"])(X)


def test_memory_at_what_is_no_mesh() -> None:
    with shows(
        TypeError,
        """
        mesh: memory belongs to a mesh
          got:      'cores'
          test_errors.py:N, in test_memory_at_what_is_no_mesh
            pltpu.VMEM @ "cores"
            ^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pltpu.VMEM @ "cores"


def test_scratch_of_other_cores_without_saying_of_which() -> None:
    def left(x_ref: Any, o_ref: Any, buffer: Any) -> None:
        buffer[...] = x_ref[0]

    with shows(
        ValueError,
        """
        left uses scratch of the cores of another mesh without saying of which core
          expected: an index along right
          got:      ref<vmem, f32[4], Owner(mesh=1)>
          hint:     pltpu.core_ref(ref, {'right': ...}), or device_id=
          test_errors.py:N, in left
            buffer[...] = x_ref[0]
            ^^^^^^^^^^^
        """,
    ):
        scratch = [(pltpu.VMEM @ RIGHT)((4,), np.float32)]
        pl.mpmd_map([(LEFT, left), (RIGHT, nothing)], OUT, scratch_types=scratch)(X)


def test_a_semaphore_of_other_cores_without_saying_of_which() -> None:
    def left(x_ref: Any, o_ref: Any, ready: Any) -> None:
        @pl.when(x_ref[0, 0] > 0)
        def _() -> None:
            pl.semaphore_signal(ready)

    with shows(
        ValueError,
        """
        left uses scratch of the cores of another mesh without saying of which core
          expected: an index along right
          got:      ref<semaphore, i32[], Owner(mesh=1)>
          hint:     pltpu.core_ref(ref, {'right': ...}), or device_id=
          test_errors.py:N, in _
            pl.semaphore_signal(ready)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        scratch = [pltpu.SemaphoreType.REGULAR @ RIGHT]
        pl.mpmd_map([(LEFT, left), (RIGHT, nothing)], OUT, scratch_types=scratch)(X)


def test_shared_memory_of_other_blocks() -> None:
    other = plgpu.Mesh(grid=(3,), grid_names=("y",))

    def program(x_ref: Any, o_ref: Any, buffer: Any) -> None:
        buffer[...] = x_ref[0]

    with shows(
        ValueError,
        """
        program uses scratch of another mesh, whose threads alone reach it
          got:      ref<smem, f32[4], Owner(mesh=0)>
          test_errors.py:N, in program
            buffer[...] = x_ref[0]
            ^^^^^^^^^^^
        """,
    ):
        scratch = [(plgpu.SMEM @ BLOCKS)((4,), np.float32)]
        pl.mpmd_map([(BLOCKS, program), (other, program)], OUT, scratch_types=scratch)(X)


# Which meshes go together.


def test_axes_of_one_name_and_different_sizes() -> None:
    with shows(
        ValueError,
        """
        mesh: two meshes have an axis 'core' of different sizes
          expected: 2
          got:      3
          test_errors.py:N, in test_axes_of_one_name_and_different_sizes
            pl.mpmd_map([(pl.CoreMesh("core", 2), copy), (pl.CoreMesh("core", 3), copy)], OUT)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.mpmd_map([(pl.CoreMesh("core", 2), copy), (pl.CoreMesh("core", 3), copy)], OUT)


def test_cores_beside_blocks() -> None:
    with shows(
        ValueError,
        """
        a mesh of cores and one of GPU threads do not run in one launch
          got:      a Mesh
          test_errors.py:N, in test_cores_beside_blocks
            pl.mpmd_map([(LEFT, copy), (BLOCKS, copy)], OUT)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.mpmd_map([(LEFT, copy), (BLOCKS, copy)], OUT)


def test_blocks_beside_cores() -> None:
    with shows(
        ValueError,
        """
        a mesh of blocks runs beside meshes of blocks only
          got:      a CoreMesh
          test_errors.py:N, in test_blocks_beside_cores
            pl.mpmd_map([(BLOCKS, copy), (LEFT, copy)], OUT)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.mpmd_map([(BLOCKS, copy), (LEFT, copy)], OUT)


def test_warps_beside_blocks() -> None:
    with shows(
        ValueError,
        """
        a mesh of warps runs beside meshes of warps only
          got:      a Mesh
          test_errors.py:N, in test_warps_beside_blocks
            pl.mpmd_map([(plgpu.WarpMesh("warp"), copy), (BLOCKS, copy)], OUT)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.mpmd_map([(plgpu.WarpMesh("warp"), copy), (BLOCKS, copy)], OUT)


def test_clusters_of_different_shapes() -> None:
    pairs = plgpu.Mesh(grid=(2,), cluster=(2,), cluster_names=("pair",))
    with shows(
        ValueError,
        """
        cluster: the blocks of one launch form clusters of one shape
          expected: [2]
          got:      []
          test_errors.py:N, in test_clusters_of_different_shapes
            pl.mpmd_map([(pairs, copy), (BLOCKS, copy)], OUT)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.mpmd_map([(pairs, copy), (BLOCKS, copy)], OUT)


def test_the_same_cores_twice() -> None:
    with shows(
        ValueError,
        """
        mesh: two meshes take the same cores: a launch has one ScalarSubcoreMesh
          got:      ScalarSubcoreMesh(axis_name='a', num_cores=1) and ScalarSubcoreMesh(axis_name='b', num_cores=1)
          test_errors.py:N, in test_the_same_cores_twice
            pl.mpmd_map([(pltpu.ScalarSubcoreMesh("a"), copy), (pltpu.ScalarSubcoreMesh("b"), copy)], OUT)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.mpmd_map([(pltpu.ScalarSubcoreMesh("a"), copy), (pltpu.ScalarSubcoreMesh("b"), copy)], OUT)


def test_sub_cores_of_different_cores() -> None:
    with shows(
        ValueError,
        """
        mesh: scalar and vector sub-cores are parts of the same cores: one name and size of the core axis
          expected: 'c': 2
          got:      'd': 2
          test_errors.py:N, in test_sub_cores_of_different_cores
            pl.mpmd_map([(pltpu.VectorSubcoreMesh("c", "s", 2, 4), copy), (pltpu.ScalarSubcoreMesh("d", 2), copy)], OUT)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.mpmd_map([(pltpu.VectorSubcoreMesh("c", "s", 2, 4), copy), (pltpu.ScalarSubcoreMesh("d", 2), copy)], OUT)


def test_tensor_cores_with_the_axis_of_sub_cores() -> None:
    with shows(
        ValueError,
        """
        axis_name: the axis of the tensor cores has a name of its own beside the sub-cores
          got:      'c'
          test_errors.py:N, in test_tensor_cores_with_the_axis_of_sub_cores
            pl.mpmd_map([(pltpu.TensorCoreMesh(axis_name="c"), copy), (pltpu.ScalarSubcoreMesh("c"), copy)], OUT)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.mpmd_map([(pltpu.TensorCoreMesh(axis_name="c"), copy), (pltpu.ScalarSubcoreMesh("c"), copy)], OUT)


def test_meshes_on_different_devices() -> None:
    devices = pl.CoreMesh(("device", "left"), (2, 1), device_axes="device")
    with shows(
        ValueError,
        """
        device_axes: the meshes of one launch run on the same devices
          expected: ['device']
          got:      []
          test_errors.py:N, in test_meshes_on_different_devices
            pl.mpmd_map([(devices, copy), (RIGHT, copy)], OUT)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.mpmd_map([(devices, copy), (RIGHT, copy)], OUT)


def test_more_warps_than_a_warpgroup_has() -> None:
    with shows(
        ValueError,
        """
        num_warps: the meshes of warps of one launch share the 4 warps of a warpgroup
          got:      5
          test_errors.py:N, in test_more_warps_than_a_warpgroup_has
            pl.mpmd_map([(plgpu.WarpMesh("a", 2), copy), (plgpu.WarpMesh("b", 3), copy)], OUT)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.mpmd_map([(plgpu.WarpMesh("a", 2), copy), (plgpu.WarpMesh("b", 3), copy)], OUT)


def test_a_mesh_of_more_warps_than_there_are() -> None:
    with shows(
        ValueError,
        """
        num_warps: a warpgroup has 4 warps
          got:      5
          test_errors.py:N, in test_a_mesh_of_more_warps_than_there_are
            plgpu.WarpMesh("warp", 5)
            ^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        plgpu.WarpMesh("warp", 5)


# What a mesh of cores is.


def test_a_core_mesh_without_a_name_for_each_axis() -> None:
    with shows(
        ValueError,
        """
        axis_names: one name for each axis of cores
          expected: 2
          got:      1
          test_errors.py:N, in test_a_core_mesh_without_a_name_for_each_axis
            pl.CoreMesh("core", (2, 2))
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.CoreMesh("core", (2, 2))


def test_a_core_mesh_with_a_name_twice() -> None:
    with shows(
        ValueError,
        """
        axis_names: two axes of cores have one name
          got:      core, core
          test_errors.py:N, in test_a_core_mesh_with_a_name_twice
            pl.CoreMesh(("core", "core"), (2, 2))
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.CoreMesh(("core", "core"), (2, 2))


def test_a_core_mesh_with_a_name_that_is_none() -> None:
    with shows(
        TypeError,
        """
        axis_names: an axis of cores has a name
          got:      1
          test_errors.py:N, in test_a_core_mesh_with_a_name_that_is_none
            pl.CoreMesh((1,), (2,))  # type: ignore[arg-type]
            ^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.CoreMesh((1,), (2,))  # type: ignore[arg-type]


def test_a_core_mesh_with_a_size_that_is_none() -> None:
    with shows(
        TypeError,
        """
        shape: a number of cores is an integer
          got:      1.5
          test_errors.py:N, in test_a_core_mesh_with_a_size_that_is_none
            pl.CoreMesh("core", 1.5)  # type: ignore[arg-type]
            ^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.CoreMesh("core", 1.5)  # type: ignore[arg-type]


def test_a_core_mesh_without_cores() -> None:
    with shows(
        ValueError,
        """
        shape: a mesh has at least one core along each axis
          got:      0
          test_errors.py:N, in test_a_core_mesh_without_cores
            pl.CoreMesh("core", 0)
            ^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.CoreMesh("core", 0)


def test_a_device_axis_that_is_no_axis() -> None:
    with shows(
        ValueError,
        """
        device_axes: a device axis is one of the mesh's axes
          expected: core
          got:      'device'
          test_errors.py:N, in test_a_device_axis_that_is_no_axis
            pl.CoreMesh("core", 2, device_axes="device")
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.CoreMesh("core", 2, device_axes="device")


def test_sub_cores_named_like_their_core() -> None:
    with shows(
        ValueError,
        """
        subcore_axis_name: two axes of cores have one name
          got:      'core'
          test_errors.py:N, in test_sub_cores_named_like_their_core
            pltpu.VectorSubcoreMesh("core", "core")
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pltpu.VectorSubcoreMesh("core", "core")


def test_arrays_that_have_no_part_for_each_device() -> None:
    with shows(
        ValueError,
        """
        args[0]: arrays are split over the devices along their first axis
          expected: a multiple of 2
          got:      f32[3,4]
          test_errors.py:N, in test_arrays_that_have_no_part_for_each_device
            pl.kernel(copy, OUT, mesh=pl.CoreMesh("device", 2, device_axes="device"))(np.ones((3, 4), np.float32))
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.kernel(copy, OUT, mesh=pl.CoreMesh("device", 2, device_axes="device"))(np.ones((3, 4), np.float32))


# While it runs.


def test_a_program_that_waits_for_what_nobody_signals() -> None:
    def waits(x_ref: Any, o_ref: Any, ready: Any) -> None:
        pl.semaphore_wait(ready)

    with shows(
        ValueError,
        """
        deadlock: the last thread waits, and nothing is under way that could wake one
          got:      left 0 waits waits until semaphore ready is 1: it is 0
          test_errors.py:N, in waits
            pl.semaphore_wait(ready)
            ^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.mpmd_map([(LEFT, waits), (RIGHT, nothing)], OUT, scratch_types=[pltpu.SemaphoreType.REGULAR @ LEFT])(X)


def test_another_core_that_there_is_not() -> None:
    def left(x_ref: Any, o_ref: Any, buffer: Any) -> None:
        core = x_ref[1, 3].astype(np.int32)
        pltpu.core_ref(buffer, {"right": core})[...] = x_ref[0]

    with shows(
        IndexError,
        """
        no block or core has this buffer: the index is outside its axis
          expected: at most (1,)
          got:      (7,)
          test_errors.py:N, in left
            pltpu.core_ref(buffer, {"right": core})[...] = x_ref[0]
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        scratch = [(pltpu.VMEM @ RIGHT)((4,), np.float32)]
        pl.mpmd_map([(LEFT, left), (RIGHT, nothing)], OUT, scratch_types=scratch)(X)


def test_the_compiled_executor_runs_launches() -> None:
    with pl.executor("cpu"):
        np.testing.assert_array_equal(pl.mpmd_map([(LEFT, copy), (RIGHT, nothing)], OUT)(X), X)
