"""References outside of kernels, and memory that a kernel makes where it needs it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.gpu as plgpu
import palladio.tpu as pltpu
from tests.errors.shown import shows

X = np.arange(32, dtype=np.int32).reshape(8, 4)
MESH = pltpu.TensorCoreMesh(axis_name="c", num_cores=2)
EXECUTORS = pytest.mark.parametrize("interpret", [None, "reference", "simulator"])


def doubles_rows(x_ref: Any, o_ref: Any) -> None:
    """Each of two cores copies its half by way of memory of its own."""
    rows = pl.ds(4 * pl.axis_index("c"), 4)
    half = pl.empty_ref(pltpu.VMEM((4, 4), np.int32))
    pltpu.sync_copy(x_ref.at[rows], half)
    half[...] = half[...] * 2
    pltpu.sync_copy(half, o_ref.at[rows])


@EXECUTORS
def test_a_launch_takes_references(interpret: Any) -> None:
    x_ref, o_ref = pl.new_ref(X), pl.empty_ref(pl.ShapeDtypeStruct.like(X))
    assert pl.kernel(doubles_rows, mesh=MESH, interpret=interpret)(x_ref, o_ref) is None
    assert np.array_equal(pl.freeze(o_ref), 2 * X)
    assert np.array_equal(x_ref[...], X)


@EXECUTORS
def test_a_launch_writes_to_references_that_it_closes_over(interpret: Any) -> None:
    o_ref = pl.new_ref(np.zeros_like(X))

    for factor in (2, 3):

        @pl.core_map(MESH, interpret=interpret)
        def _(factor: int = factor) -> None:
            rows = pl.ds(4 * pl.axis_index("c"), 4)
            o_ref[rows] = o_ref[rows] + factor

    assert o_ref[...].tolist() == np.full_like(X, 5).tolist()


@EXECUTORS
def test_references_of_a_staged_function_go_through_several_launches(interpret: Any) -> None:
    @pl.jit
    def function(x: Any) -> Any:
        x_ref, o_ref = pl.new_ref(x), pl.empty_ref(x)
        pl.kernel(doubles_rows, mesh=MESH, interpret=interpret)(x_ref, o_ref)
        x_ref[...] = o_ref[...] + 1
        pl.kernel(doubles_rows, mesh=MESH, interpret=interpret)(x_ref, o_ref)
        return pl.freeze(o_ref)

    assert np.array_equal(function(X), 4 * X + 2)


@EXECUTORS
def test_a_part_of_a_reference_is_passed_to_a_launch(interpret: Any) -> None:
    @pl.kernel(mesh=pltpu.TensorCoreMesh(axis_name="c"), interpret=interpret)
    def increments(ref: Any) -> None:
        ref[...] = ref[...] + 1

    @pl.jit
    def function(x: Any) -> Any:
        ref = pl.new_ref(x)
        pl.fori_loop(0, 8, lambda i, _: increments(ref.at[i]), None)
        increments(ref.reshape((-1,)))
        return pl.freeze(ref)

    assert np.array_equal(function(X), X + 2)


@EXECUTORS
def test_run_state_launches_on_its_references(interpret: Any) -> None:
    @pl.run_state
    def function(refs: Any) -> None:
        @pl.core_map(MESH, interpret=interpret)
        def _() -> None:
            doubles_rows(*refs)

    assert np.array_equal(function((X, np.zeros_like(X)))[1], 2 * X)


@EXECUTORS
def test_memory_made_in_a_loop_body_ends_with_the_iteration(interpret: Any) -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        @pl.loop(0, 8)
        def _(i: Any) -> None:
            row = pl.new_ref(x_ref[i], memory_space=pltpu.VMEM)
            row[0] = row[1] + row[2]
            o_ref[i] = pl.freeze(row)

    expected = X.copy()
    expected[:, 0] = X[:, 1] + X[:, 2]
    assert np.array_equal(pl.pallas_call(kernel, pl.ShapeDtypeStruct.like(X), interpret=interpret)(X), expected)


def test_a_gpu_kernel_copies_from_a_reference() -> None:
    x_ref = pl.new_ref(X, memory_space=plgpu.GMEM)
    o_ref = pl.empty_ref(X, plgpu.GMEM)

    def kernel(x: Any, o: Any, tile: Any, barrier: Any) -> None:
        plgpu.copy_gmem_to_smem(x, tile, barrier)
        plgpu.barrier_wait(barrier)
        o[...] = tile[...]

    plgpu.kernel(kernel, scratch_types=[plgpu.SMEM(X.shape, X.dtype), plgpu.Barrier()])(x_ref, o_ref)
    assert np.array_equal(o_ref[...], X)


def test_outside_of_kernels_a_reference_is_read_and_written_at_once() -> None:
    ref = pl.new_ref(X)
    ref[0] = ref[1] + 1
    ref.at[2:4].set(np.int32(7))
    assert np.array_equal(pl.freeze(ref), [X[1] + 1, X[1], [7] * 4, [7] * 4, *X[4:]])
    assert X[0, 0] == 0


def test_what_nothing_has_written_is_uninitialised() -> None:
    assert np.isnan(pl.empty_ref(pl.ShapeDtypeStruct((2,), np.float32))[...]).all()
    assert (pl.empty_ref_like(pltpu.HBM((2,), np.int32))[...] == np.iinfo(np.int32).min).all()


def test_a_reference_passed_twice_to_a_staged_function() -> None:
    ref = pl.new_ref(X)
    with shows(
        ValueError,
        """
        one reference is passed twice to a staged function
          hint:     pass it once, or let the function close over it
          test_array_refs.py:N, in test_a_reference_passed_twice_to_a_staged_function
            pl.jit(lambda a, b: a[0])(ref, ref)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.jit(lambda a, b: a[0])(ref, ref)


def test_memory_that_is_not_a_memory_space() -> None:
    with shows(
        TypeError,
        """
        memory_space: this is not a memory space
          got:      'vmem'
          test_array_refs.py:N, in test_memory_that_is_not_a_memory_space
            pl.new_ref(X, memory_space="vmem")
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.new_ref(X, memory_space="vmem")


def test_a_description_without_a_shape() -> None:
    with shows(
        TypeError,
        """
        ty: this has no shape and dtype
          got:      3
          test_array_refs.py:N, in test_a_description_without_a_shape
            pl.empty_ref(3)
            ^^^^^^^^^^^^^^^
        """,
    ):
        pl.empty_ref(3)
