"""What is refused of copies, signals and cores, as a user reads it."""

from __future__ import annotations

from typing import Any

import numpy as np

import palladio as pl
import palladio.tpu as pltpu
from tests.errors.shown import shows

X = np.arange(8, dtype=np.float32).reshape(2, 4)
OUT = pl.ShapeDtypeStruct((2, 4), np.float32)
CORES = pl.CoreMesh("core", 2)
DMA, REGULAR = pltpu.SemaphoreType.DMA, pltpu.SemaphoreType.REGULAR


def run(body: Any, *scratch: Any, mesh: Any = CORES) -> Any:
    """Run `body(x_ref, o_ref, *scratch)` on each core."""
    return pl.kernel(body, OUT, mesh=mesh, scratch_types=list(scratch))(X)


# Copies.


def test_a_copy_between_shapes() -> None:
    def body(x_ref: Any, o_ref: Any, semaphore: Any) -> None:
        pltpu.async_copy(x_ref.at[0], o_ref, semaphore)

    with shows(
        ValueError,
        """
        dst_ref: source and target of a copy have one shape and dtype
          expected: f32[4]
          got:      f32[2,4]
          test_errors.py:N, in body
            pltpu.async_copy(x_ref.at[0], o_ref, semaphore)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        run(body, DMA)


def test_a_copy_to_an_array() -> None:
    def body(x_ref: Any, o_ref: Any, semaphore: Any) -> None:
        pltpu.async_copy(x_ref, o_ref[...], semaphore)

    with shows(
        TypeError,
        """
        dst_ref: this is not a reference
          got:      Value: traced f32[2,4]
          test_errors.py:N, in body
            pltpu.async_copy(x_ref, o_ref[...], semaphore)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        run(body, DMA)


def test_a_copy_that_raises_a_counter() -> None:
    def body(x_ref: Any, o_ref: Any, semaphore: Any) -> None:
        pltpu.async_copy(x_ref, o_ref, semaphore)

    with shows(
        TypeError,
        """
        sem: a copy raises one semaphore of its kind
          expected: a reference to pltpu.SemaphoreType.DMA; of several, sems.at[i]
          got:      reference to i32[] in semaphore
          test_errors.py:N, in body
            pltpu.async_copy(x_ref, o_ref, semaphore)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        run(body, REGULAR)


def test_a_copy_that_raises_several_semaphores() -> None:
    def body(x_ref: Any, o_ref: Any, semaphores: Any) -> None:
        pltpu.async_copy(x_ref, o_ref, semaphores)

    with shows(
        TypeError,
        """
        sem: a copy raises one semaphore of its kind
          expected: a reference to pltpu.SemaphoreType.DMA; of several, sems.at[i]
          got:      reference to i32[2] in dma_semaphore
          test_errors.py:N, in body
            pltpu.async_copy(x_ref, o_ref, semaphores)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        run(body, DMA((2,)))


def test_a_copy_of_what_is_no_reference() -> None:
    with shows(
        TypeError,
        """
        src_ref: this is not a reference
          got:      int: 1
          test_errors.py:N, in test_a_copy_of_what_is_no_reference
            pltpu.sync_copy(1, 2)
            ^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pltpu.sync_copy(1, 2)


# Where something goes.


def signal(**where: Any) -> Any:
    """A program that signals somewhere."""

    def body(x_ref: Any, o_ref: Any, semaphore: Any) -> None:
        pl.semaphore_signal(semaphore, **where)

    return body


def test_a_device_of_a_kernel_without_cores() -> None:
    def kernel(x_ref: Any, o_ref: Any, semaphore: Any) -> None:
        pl.semaphore_signal(semaphore, core_index=1)

    with shows(
        ValueError,
        """
        core_index: only the programs of a mesh of cores reach other cores and devices
          got:      1
          test_errors.py:N, in kernel
            pl.semaphore_signal(semaphore, core_index=1)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT, scratch_shapes=[REGULAR])(X)


def test_an_axis_that_there_is_not() -> None:
    with shows(
        ValueError,
        """
        device_id: the meshes of this launch have no such axis of cores
          expected: core
          got:      'cores'
          test_errors.py:N, in body
            pl.semaphore_signal(semaphore, **where)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        run(signal(device_id={"cores": 1}), REGULAR)


def test_an_index_outside_of_its_axis() -> None:
    with shows(
        ValueError,
        """
        device_id: there is no such index along core
          expected: below 2
          got:      2
          test_errors.py:N, in body
            pl.semaphore_signal(semaphore, **where)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        run(signal(device_id={"core": 2}), REGULAR)


def test_a_device_with_too_few_indices() -> None:
    with shows(
        ValueError,
        """
        device_id: a device is named by one index along each axis of devices
          expected: y, x
          got:      1
          test_errors.py:N, in body
            pl.semaphore_signal(semaphore, **where)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        run(signal(device_id=(0,)), REGULAR, mesh=pl.CoreMesh(("y", "x"), (1, 2), device_axes=("y", "x")))


def test_a_core_that_is_no_integer() -> None:
    with shows(
        TypeError,
        """
        core_index: a core or device is named by scalar integers
          got:      f32[]
          test_errors.py:N, in body
            pl.semaphore_signal(semaphore, **where)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        run(signal(core_index=0.5), REGULAR)


def test_a_core_of_devices_without_cores() -> None:
    with shows(
        ValueError,
        """
        core_index: the meshes of this launch have no axis of cores
          test_errors.py:N, in body
            pl.semaphore_signal(semaphore, **where)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        run(signal(core_index=0), REGULAR, mesh=pl.CoreMesh("device", 2, device_axes="device"))


def test_a_reference_to_a_core_without_its_axis() -> None:
    def body(x_ref: Any, o_ref: Any, buffer: Any) -> None:
        pltpu.core_ref(buffer, 1)

    with shows(
        TypeError,
        """
        place: a core is named by its index along axes
          expected: such as {'core': 1}
          got:      1
          test_errors.py:N, in body
            pltpu.core_ref(buffer, 1)
            ^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        run(body, pltpu.VMEM((4,), np.float32))


def test_a_semaphore_that_the_array_has_not() -> None:
    def body(x_ref: Any, o_ref: Any, semaphores: Any) -> None:
        pl.semaphore_signal(semaphores.at[x_ref[1, 3].astype(np.int32)])

    with shows(
        IndexError,
        """
        the index is outside the array of barriers or semaphores
          expected: an index within (2,)
          test_errors.py:N, in body
            pl.semaphore_signal(semaphores.at[x_ref[1, 3].astype(np.int32)])
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        run(body, REGULAR((2,)))


def test_the_barrier_semaphore_outside_of_cores() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        pltpu.get_barrier_semaphore()

    with shows(
        ValueError,
        """
        only the programs of a mesh of cores have a barrier semaphore
          test_errors.py:N, in kernel
            pltpu.get_barrier_semaphore()
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


# Arrays.


def test_a_roll_by_an_array() -> None:
    with shows(
        TypeError,
        """
        shift: a shift is a scalar integer
          got:      f32[2,4]
          test_errors.py:N, in test_a_roll_by_an_array
            pltpu.roll(X, X, 0)
            ^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pltpu.roll(X, X, 0)


def test_a_stride_without_its_axis() -> None:
    with shows(
        ValueError,
        """
        stride: stride and stride_axis are given together or not at all
          test_errors.py:N, in test_a_stride_without_its_axis
            pltpu.roll(X, 1, 0, stride=2)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pltpu.roll(X, 1, 0, stride=2)


def test_a_stride_along_the_axis_that_is_rolled() -> None:
    with shows(
        ValueError,
        """
        stride_axis: the axis that is rolled is not the one of the strides
          got:      -2
          test_errors.py:N, in test_a_stride_along_the_axis_that_is_rolled
            pltpu.roll(X, 1, 0, stride=2, stride_axis=-2)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pltpu.roll(X, 1, 0, stride=2, stride_axis=-2)


def test_a_bitcast_of_a_vector_to_another_width() -> None:
    with shows(
        ValueError,
        """
        x: a change of width changes the last but one axis, which this array has not
          got:      f32[4]
          test_errors.py:N, in test_a_bitcast_of_a_vector_to_another_width
            pltpu.bitcast(X[0], np.uint16)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pltpu.bitcast(X[0], np.uint16)


# The simulator.


def test_a_choice_of_the_simulator_that_there_is_not() -> None:
    with shows(
        ValueError,
        """
        dma_execution_mode: no such choice
          expected: 'on_wait' or 'eager'
          got:      'later'
          test_errors.py:N, in test_a_choice_of_the_simulator_that_there_is_not
            pltpu.InterpretParams(dma_execution_mode="later")
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pltpu.InterpretParams(dma_execution_mode="later")


def test_parameters_of_the_simulator_that_are_none() -> None:
    with shows(
        TypeError,
        """
        params: the parameters of the simulator
          expected: pltpu.InterpretParams(...)
          got:      'eager'
          test_errors.py:N, in test_parameters_of_the_simulator_that_are_none
            pltpu.set_tpu_interpret_mode("eager")
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pltpu.set_tpu_interpret_mode("eager")
