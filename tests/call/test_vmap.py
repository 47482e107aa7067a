"""A function applied along axes of its arguments."""

from __future__ import annotations

from typing import Any

import numpy as np

import palladio as pl
import palladio.numpy as jnp
import palladio.tpu as pltpu
from tests.errors.shown import shows

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def double(x_ref: Any, o_ref: Any) -> None:
    o_ref[...] = x_ref[...] * 2


def doubled(x: Any) -> Any:
    return pl.pallas_call(double, pl.ShapeDtypeStruct.like(x))(x)


def test_a_kernel_call_is_applied_to_each_element() -> None:
    assert np.array_equal(pl.vmap(doubled)(X), 2 * X)
    assert np.array_equal(pl.vmap(pl.vmap(doubled))(X), 2 * X)


def test_axes_of_arguments_and_results() -> None:
    def function(x: Any, both: Any) -> Any:
        return {"sum": doubled(x) + both["scale"], "rest": jnp.sum(x)}

    found = pl.vmap(function, in_axes=(2, None), out_axes={"sum": 1, "rest": 0})(X, {"scale": np.float32(5)})
    assert np.array_equal(found["sum"], np.moveaxis(2 * X + 5, 2, 1))
    assert np.array_equal(found["rest"], X.sum((0, 1)))


def test_a_launch_on_references_is_applied_to_each_element() -> None:
    def function(x: Any) -> Any:
        ref = pl.new_ref(x)

        @pl.kernel(mesh=pltpu.TensorCoreMesh(axis_name="c"), scratch_types=[pltpu.VMEM((3, 4), np.float32)])
        def increments(scratch: Any) -> None:
            pltpu.sync_copy(ref, scratch)
            scratch[...] = scratch[...] + 1
            pltpu.sync_copy(scratch, ref)

        increments()
        return pl.freeze(ref)

    assert np.array_equal(pl.vmap(function)(X), X + 1)


def test_a_staged_function_maps_inside() -> None:
    assert np.array_equal(pl.jit(lambda x: pl.vmap(doubled)(x) + 1)(X), 2 * X + 1)


def test_a_size_without_arguments() -> None:
    def kernel(out: Any) -> None:
        out[...] = jnp.full((3,), pl.num_programs(0), jnp.int32)

    whole = pl.BlockSpec((3,), lambda i: (0,))
    call = pl.pallas_call(kernel, pl.ShapeDtypeStruct((3,), np.int32), grid=(4,), out_specs=whole)
    assert np.array_equal(pl.vmap(pl.vmap(call, axis_size=2), axis_size=5)(), np.full((5, 2, 3), 4))


def test_no_axis() -> None:
    with shows(
        ValueError,
        """
        in_axes: vmap needs one size, that of the axes that it goes along
          got:      no axis
          test_vmap.py:N, in test_no_axis
            pl.vmap(doubled, in_axes=None)(X)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.vmap(doubled, in_axes=None)(X)


def test_a_scalar_has_no_axis() -> None:
    with shows(
        TypeError,
        """
        argument 0: vmap goes along an axis, which a scalar does not have
          got:      f32[]
          hint:     in_axes=None passes it whole
          test_vmap.py:N, in test_a_scalar_has_no_axis
            pl.vmap(doubled)(np.float32(3))
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.vmap(doubled)(np.float32(3))


def test_axes_of_another_structure() -> None:
    with shows(
        TypeError,
        """
        in_axes: the axes have another structure than what they are axes of
          expected: (*,)
          got:      (0, 1)
          test_vmap.py:N, in test_axes_of_another_structure
            pl.vmap(doubled, in_axes=(0, 1))(X)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.vmap(doubled, in_axes=(0, 1))(X)
