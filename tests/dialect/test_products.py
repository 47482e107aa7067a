"""Products on the tensor cores: each kind of operand with each of its accumulators, where the operands are, parts."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import palladio as pl
import palladio.gpu as plgpu
import palladio.numpy as jnp

M, N, K = 64, 16, 32
F32, F16, I32 = np.float32, np.float16, np.int32
E4M3, E5M2 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2

KINDS = {
    "f16": (F16, F16, F32),
    "f16 in f16": (F16, F16, F16),
    "bf16": (ml_dtypes.bfloat16, ml_dtypes.bfloat16, F32),
    "tf32": (F32, F32, F32),
    "e4m3": (E4M3, E4M3, F32),
    "e5m2 in f16": (E5M2, E5M2, F16),
    "e4m3 by e5m2": (E4M3, E5M2, F32),
    "i8": (np.int8, np.int8, I32),
    "u8": (np.uint8, np.uint8, I32),
}


def operands(left: Any, right: Any) -> tuple[Any, Any]:
    """Small whole numbers, which every kind multiplies and adds exactly."""
    rng = np.random.default_rng(5)
    return rng.integers(0, 4, (M, K)).astype(left), rng.integers(0, 4, (K, N)).astype(right)


def product(a: Any, b: Any) -> Any:
    return a.astype(np.float64) @ b.astype(np.float64)


def call(multiply: Any, a: Any, b: Any, acc: Any) -> Any:
    """A kernel that brings both operands to shared memory, in order or transposed as they come, and multiplies."""

    def body(a_ref: Any, b_ref: Any, out: Any, a_smem: Any, b_smem: Any, acc_ref: Any, full: Any) -> None:
        plgpu.copy_gmem_to_smem(a_ref, a_smem, full)
        plgpu.copy_gmem_to_smem(b_ref, b_smem, full)
        plgpu.barrier_wait(full)
        multiply(acc_ref, a_smem, b_smem)
        out[...] = acc_ref[...]

    scratch = [
        plgpu.SMEM(a.shape, a.dtype),
        plgpu.SMEM(b.shape, b.dtype),
        plgpu.ACC((M, N), acc),
        plgpu.Barrier(num_arrivals=2),
    ]
    return plgpu.kernel(body, pl.ShapeDtypeStruct((M, N), acc), scratch_types=scratch)(a, b)


@pytest.mark.parametrize("executor", ["reference", "simulator"])
@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_is_accumulated_as_it_may_be(kind: str, executor: str) -> None:
    left, right, acc = KINDS[kind]
    a, b = operands(left, right)
    with pl.executor(executor):
        found = call(plgpu.wgmma, a, b, acc)
    assert found.dtype == acc
    np.testing.assert_array_equal(found.astype(np.float64), product(a, b))


@pytest.mark.parametrize("kind", KINDS)
def test_the_left_operand_may_be_in_registers(kind: str) -> None:
    left, right, acc = KINDS[kind]
    a, b = operands(left, right)
    with pl.executor("simulator"):
        found = call(lambda acc, a, b: plgpu.wgmma(acc, a[...], b), a, b, acc)
    np.testing.assert_array_equal(found.astype(np.float64), product(a, b))


@pytest.mark.parametrize("kind", KINDS)
def test_operands_may_be_transposed(kind: str) -> None:
    left, right, acc = KINDS[kind]
    a, b = operands(left, right)

    def multiply(acc: Any, a: Any, b: Any) -> None:
        plgpu.wgmma(acc, plgpu.transpose_ref(a, (1, 0)), plgpu.transpose_ref(b, (1, 0)))

    with pl.executor("simulator"):
        found = call(multiply, np.ascontiguousarray(a.T), np.ascontiguousarray(b.T), acc)
    np.testing.assert_array_equal(found.astype(np.float64), product(a, b))


def test_a_product_may_go_to_a_static_part_of_the_accumulator() -> None:
    a, b = operands(F16, F16)

    def multiply(acc: Any, a: Any, b: Any) -> None:
        for half in range(2):
            columns = pl.ds(half * N // 2, N // 2)
            plgpu.wgmma(acc.at[:, columns], a, b.at[:, columns])

    with pl.executor("simulator"):
        found = call(multiply, a, b, F32)
    np.testing.assert_array_equal(found, product(a, b))


@pytest.mark.parametrize("kind", KINDS)
def test_mma_multiplies_arrays(kind: str) -> None:
    left, right, acc = KINDS[kind]
    a, b = operands(left, right)

    def body(a_ref: Any, b_ref: Any, out: Any) -> None:
        out[...] = plgpu.mma(jnp.ones((M, N), acc), a_ref[...], b_ref[...])

    found = plgpu.kernel(body, pl.ShapeDtypeStruct((M, N), acc))(a, b)
    np.testing.assert_array_equal(found.astype(np.float64), 1 + product(a, b))
