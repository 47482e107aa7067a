"""Atomic operations of every width, and accesses of the shared memory of another block of the cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import palladio as pl
import palladio.gpu as plgpu
import palladio.tpu as pltpu
from palladio.base.errors import PalladioNotImplementedError
from tests.hopper.kernels import BF16, F32, kernel, on_twin
from tests.hopper.test_messages import said

F16, I32 = np.dtype(np.float16), np.dtype(np.int32)
NARROW = (F16, BF16, np.dtype(np.int16), np.dtype(np.uint16))
KINDS: dict[str, Callable[..., Any]] = {
    "add": plgpu.atomic_add,
    "max": plgpu.atomic_max,
    "min": plgpu.atomic_min,
    "exchange": plgpu.atomic_xchg,
    "and": plgpu.atomic_and,
    "or": plgpu.atomic_or,
    "xor": plgpu.atomic_xor,
}


def same_as_evaluated(body: Callable[..., None], shape: tuple[int, ...], dtype: Any, *operands: Any) -> None:
    """The kernel has scratch memory of the shape of a row."""

    def call(executor: str) -> Any:
        kind = pl.ShapeDtypeStruct(shape, dtype)
        scratch = [pltpu.VMEM(shape[1:], dtype)]
        return pl.pallas_call(body, kind, interpret=executor, scratch_shapes=scratch)(*operands)

    found, expected = (call(executor).astype(np.float64) for executor in ("hopper-twin", "reference"))
    np.testing.assert_array_equal(found, expected)


BITS = ("and", "or", "xor")
EACH = [(dtype, kind) for dtype in NARROW for kind in KINDS if dtype.kind in "iu" or kind not in BITS]


@pytest.mark.parametrize(("dtype", "kind"), EACH, ids=str)
def test_16_bits_are_combined_in_both_memories(dtype: np.dtype, kind: str) -> None:
    combine = KINDS[kind]

    def body(x: Any, rows: Any, out: Any, tile: Any) -> None:
        out[0] = x[...]
        tile[...] = x[...]
        out[1] = combine(out.at[0], rows[...], x[...] + x[...])
        out[2] = combine(tile, rows[...], x[...])
        out[3] = tile[...]

    x = np.random.default_rng(0).integers(0, 50, 40).astype(dtype)
    rows = np.random.default_rng(1).permutation(40).astype(np.int32)
    same_as_evaluated(body, (4, 40), dtype, x, rows)


def test_every_addition_to_one_element_of_16_bits_counts() -> None:
    """Each thread of each block tries again until no other has changed the element meanwhile."""

    def body(start: Any, out: Any) -> None:
        plgpu.atomic_add(out.at[0], np.int16(3))

    def call(executor: str) -> Any:
        kind = pl.ShapeDtypeStruct((1,), np.int16)
        given = pl.pallas_call(body, kind, grid=(50,), interpret=executor, input_output_aliases={0: 0})
        return given(np.zeros(1, np.int16))

    assert call("hopper-twin")[0] == 150


@pytest.mark.parametrize("dtype", [F32, np.dtype(np.float64), F16, BF16], ids=str)
def test_floats_are_compared_as_numbers(dtype: np.dtype) -> None:
    """A zero equals the one of the other sign, and NaN is not equal to itself."""
    nan = np.nan
    x = np.array([0.0, -0.0, nan, 1.5, 2.0, np.inf], dtype)
    expected = np.array([-0.0, 0.0, nan, 1.5, 3.0, np.inf], dtype)

    def body(x: Any, expected: Any, out: Any, tile: Any) -> None:
        out[0] = x[...]
        tile[...] = x[...]
        out[1] = plgpu.atomic_cas(out.at[0], expected[...], expected[...] * 0 + 7)
        out[2] = plgpu.atomic_cas(tile, expected[...], expected[...] * 0 + 7)
        out[3] = tile[...]

    same_as_evaluated(body, (4, 6), dtype, x, expected)


def test_8_bits_are_refused() -> None:
    def body(x: Any, out: Any) -> None:
        plgpu.atomic_add(out, x[...])

    lines = said(kernel(body, (64,), np.dtype(np.int8)), np.ones(64, np.int8), kind=PalladioNotImplementedError)
    assert lines[:2] == ["atomic of elements of fewer than 16 bits is not compiled for Hopper", "got:      i8"]


CLUSTER = {"cluster": (2,), "cluster_names": ("c",)}
MET = plgpu.ClusterBarrier(collective_axes=("c",))


def meet(everybody: Any) -> None:
    plgpu.barrier_arrive(everybody)
    plgpu.barrier_wait(everybody)


@pytest.mark.parametrize("dtype", [np.dtype(np.int8), np.dtype(np.bool_), BF16, F32, np.dtype(np.float64)], ids=str)
def test_blocks_of_a_cluster_read_and_write_elements_of_every_width(dtype: np.dtype) -> None:
    def body(x: Any, out: Any, tile: Any, full: Any, everybody: Any) -> None:
        block = pl.axis_index("c")
        tile[0] = x[block]
        meet(everybody)
        out[block, 0] = plgpu.cluster_ref(tile, {"c": 1 - block})[0]
        plgpu.async_store_smem(x[block], tile.at[1], full, cluster_idx=1 - block, cluster_dim="c")
        plgpu.barrier_wait(full)
        out[block, 1] = tile[1]
        meet(everybody)

    x = np.random.default_rng(0).integers(0, 2 if dtype == np.bool_ else 100, (2, 37)).astype(dtype)
    scratch = [plgpu.SMEM((2, 37), dtype), plgpu.Barrier(), MET]
    call = kernel(body, (2, 2, 37), dtype, scratch, **CLUSTER)
    for found in on_twin(call, x):
        np.testing.assert_array_equal(found, np.stack([x[::-1], x[::-1]], 1))


@pytest.mark.parametrize(
    ("dtype", "kind"),
    [(F32, "add"), (F32, "max"), (I32, "add"), (I32, "xor"), (np.dtype(np.float64), "min")],
    ids=str,
)
def test_a_store_into_another_block_may_combine(dtype: np.dtype, kind: str) -> None:
    def body(x: Any, out: Any, tile: Any, full: Any, everybody: Any) -> None:
        block = pl.axis_index("c")
        tile[...] = x[block]
        meet(everybody)
        twice = x[1 - block] + x[1 - block]
        plgpu.async_store_smem(twice, tile, full, cluster_idx=1 - block, cluster_dim="c", atomic=kind)
        plgpu.barrier_wait(full)
        out[block] = tile[...]
        meet(everybody)

    x = np.random.default_rng(0).integers(-50, 50, (2, 37)).astype(dtype)
    call = kernel(body, x.shape, dtype, [plgpu.SMEM((37,), dtype), plgpu.Barrier(), MET], **CLUSTER)
    combine = {"add": np.add, "min": np.minimum, "max": np.maximum, "xor": np.bitwise_xor}[kind]
    for found in on_twin(call, x):
        np.testing.assert_array_equal(found, combine(x, 2 * x))


def test_one_of_16_bits_may_not() -> None:
    def body(x: Any, out: Any, tile: Any, full: Any) -> None:
        plgpu.async_store_smem(x[...], tile, full, cluster_idx=0, cluster_dim="c", atomic="add")

    scratch = [plgpu.SMEM((64,), BF16), plgpu.Barrier()]
    x = np.ones(64, ml_dtypes.bfloat16)
    lines = said(kernel(body, (64,), BF16, scratch, **CLUSTER), x, kind=PalladioNotImplementedError)
    assert lines[0] == "a combining async_store_smem of elements of fewer than 32 bits is not compiled for Hopper"
