"""Simulator runs that skip the arithmetic of floats: what a kernel does, without its values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.gpu as plgpu
import palladio.numpy as jnp
import palladio.tpu as pltpu
from palladio import lax

X = np.float32([[1, 2], [3, 4]])


def matmul(x_ref: Any, y_ref: Any, o_ref: Any) -> None:
    o_ref[...] = x_ref[...] @ y_ref[...]


@pytest.mark.parametrize("params", [plgpu.InterpretGPUParams, pltpu.InterpretParams])
def test_arithmetic_of_floats_gives_infinities(params: Any) -> None:
    call = pl.pallas_call(matmul, pl.ShapeDtypeStruct.like(X), interpret=params(skip_floating_point_ops=True))
    assert np.isposinf(pl.jit(call)(X, X)).all()
    assert np.isposinf(call(X + 1, X)).all()


def test_integers_and_moves_of_elements_stay() -> None:
    def kernel(x_ref: Any, o_ref: Any, count_ref: Any) -> None:
        def step(n: Any, carry: Any) -> Any:
            total, number = carry
            return total + x_ref[n], number + n

        total, count_ref[...] = lax.fori_loop(0, 2, step, (jnp.zeros(2), jnp.int32(0)))
        o_ref[0] = total
        o_ref[1] = jnp.flip(x_ref[1])

    out = (pl.ShapeDtypeStruct.like(X), pl.ShapeDtypeStruct((), np.int32))
    call = pl.pallas_call(kernel, out, interpret=pltpu.InterpretParams(skip_floating_point_ops=True))
    values, count = call(X)
    assert (values.tolist(), int(count)) == ([[np.inf, np.inf], [4, 3]], 1)


def test_arithmetic_outside_of_kernels_stays() -> None:
    def copy(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...]

    params = pltpu.InterpretParams(skip_floating_point_ops=True)
    staged = pl.jit(lambda x: pl.pallas_call(copy, pl.ShapeDtypeStruct.like(X), interpret=params)(x + 1) * 2)
    assert staged(X).tolist() == [[4, 6], [8, 10]]


def test_products_of_the_tensor_cores_are_skipped_too() -> None:
    def kernel(a_ref: Any, o_ref: Any, a_smem: Any, acc: Any, barrier: Any) -> None:
        plgpu.copy_gmem_to_smem(a_ref, a_smem, barrier)
        plgpu.barrier_wait(barrier)
        plgpu.wgmma(acc, a_smem, a_smem)
        plgpu.wgmma_wait(0)
        o_ref[...] = acc[...].astype(np.float16)

    a = np.ones((64, 64), np.float16)
    call = plgpu.kernel(
        kernel,
        out_type=pl.ShapeDtypeStruct.like(a),
        scratch_types=(plgpu.SMEM(a.shape, a.dtype), plgpu.ACC((64, 64)), plgpu.Barrier()),
        interpret=plgpu.InterpretGPUParams(skip_floating_point_ops=True, detect_races=True),
    )
    assert np.isposinf(call(a)).all()
