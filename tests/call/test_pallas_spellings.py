"""Forms of arguments that kernels written for Pallas use."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy
import numpy as np
import pytest
import torch

import palladio as pl
import palladio.gpu as plgpu
import palladio.numpy as jnp

X = np.arange(64, dtype=np.float32).reshape(8, 8)
OUT = pl.ShapeDtypeStruct((8, 8), np.float32)


@pytest.mark.parametrize("array", [X, torch.zeros(8, 8), jax.numpy.zeros((8, 8)), OUT])
def test_a_description_like_an_array(array: Any) -> None:
    assert pl.ShapeDtypeStruct.like(array) == OUT


def test_a_description_like_a_bfloat16_tensor_and_a_reference() -> None:
    seen = []

    def kernel(x_ref: Any, o_ref: Any) -> None:
        seen.append(pl.ShapeDtypeStruct.like(x_ref))
        o_ref[...] = x_ref[...]

    pl.pallas_call(kernel, pl.ShapeDtypeStruct.like(torch.zeros(3, dtype=torch.bfloat16)))(
        torch.zeros(3, dtype=torch.bfloat16)
    )
    assert seen[0] == pl.ShapeDtypeStruct((3,), jnp.bfloat16)


def test_specs_are_dataclasses_that_can_be_changed() -> None:
    spec = pl.BlockSpec((2, None), lambda i: (i, 0))
    changed = dataclasses.replace(spec, memory_space=pl.ANY, block_shape=(4, 8))
    assert (changed.block_shape, changed.index_map, changed.memory_space) == ((4, 8), spec.index_map, pl.ANY)
    changed = dataclasses.replace(plgpu.BlockSpec((2, 8), delay_release=1, collective_axes="x"), delay_release=2)
    assert (changed.delay_release, changed.collective_axes) == (2, ("x",))


@pytest.mark.parametrize("interpret", [True, False])
def test_an_array_of_one_barrier_is_that_barrier(interpret: bool) -> None:
    def kernel(x_ref: Any, o_ref: Any, buffer: Any, one: Any, four: Any) -> None:
        plgpu.copy_gmem_to_smem(x_ref, buffer, one)
        plgpu.barrier_wait(one)
        plgpu.barrier_arrive(four.at[2:4].at[1:2])
        plgpu.barrier_wait(four.at[3])
        o_ref[...] = buffer[...]

    scratch = [plgpu.SMEM((8, 8), np.float32), plgpu.Barrier(num_barriers=1), plgpu.Barrier(num_barriers=4)]
    assert np.array_equal(plgpu.kernel(kernel, OUT, scratch_types=scratch, interpret=interpret)(X), X)


def test_the_index_and_size_along_several_axes() -> None:
    def kernel(o_ref: Any) -> None:
        o_ref[pl.axis_index(("a", "b"))] = pl.axis_index(["b", "a"]) + 10 * pl.axis_size(("a", "b"))

    out = plgpu.kernel(kernel, pl.ShapeDtypeStruct((6,), np.int32), grid=(2, 3), grid_names=("a", "b"))()
    assert out.tolist() == [60 + b * 2 + a for a in range(2) for b in range(3)]


def test_a_call_without_outputs() -> None:
    seen = []
    assert pl.pallas_call(lambda x_ref: seen.append(x_ref.shape), out_shape=None)(X) is None
    assert seen == [(8, 8)]


def test_a_kernel_may_capture_an_array_of_one_element() -> None:
    factor = np.array([[3]], np.float32)

    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] * factor

    call = pl.pallas_call(kernel, OUT)
    assert np.array_equal(call(X), 3 * X)
    factor[0, 0] = 4
    assert np.array_equal(call(X), 4 * X)
