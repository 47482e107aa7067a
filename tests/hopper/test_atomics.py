"""Atomic operations of every width, and accesses of the shared memory of another block of the cluster."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import palladio as pl
import palladio.gpu as plgpu
import palladio.hopper
import palladio.numpy as jnp
import palladio.tpu as pltpu
from tests.hopper.kernels import BF16, F32, kernel, lowered, on_twin

F16, I32 = np.dtype(np.float16), np.dtype(np.int32)
E4M3 = np.dtype(ml_dtypes.float8_e4m3fn)
NARROW = (F16, BF16, np.dtype(np.int16), np.dtype(np.uint16), np.dtype(np.int8), np.dtype(np.uint8), E4M3)
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


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_narrow_elements_are_combined_in_both_memories(dtype: np.dtype) -> None:
    """One kernel has all kinds: compiling it takes most of the time."""
    kinds = [combine for kind, combine in KINDS.items() if dtype.kind in "iu" or kind not in BITS]

    def body(x: Any, rows: Any, out: Any, tile: Any) -> None:
        for number, combine in enumerate(kinds):
            first = 4 * number
            out[first] = x[...]
            tile[...] = x[...]
            out[first + 1] = combine(out.at[first], rows[...], x[...] + x[...])
            out[first + 2] = combine(tile, rows[...], x[...])
            out[first + 3] = tile[...]

    x = np.random.default_rng(0).integers(0, 50, 40).astype(dtype)
    rows = np.random.default_rng(1).permutation(40).astype(np.int32)
    same_as_evaluated(body, (4 * len(kinds), 40), dtype, x, rows)


@pytest.mark.parametrize("dtype", [np.int16, np.uint8], ids=["i16", "u8"])
def test_every_addition_to_one_narrow_element_counts(dtype: Any) -> None:
    """Each thread of each block tries again until no other has changed the element meanwhile."""

    def body(start: Any, out: Any) -> None:
        plgpu.atomic_add(out.at[1], np.asarray(3, dtype)[()])

    kind = pl.ShapeDtypeStruct((3,), dtype)
    call = pl.pallas_call(body, kind, grid=(50,), interpret="hopper-twin", input_output_aliases={0: 0})
    np.testing.assert_array_equal(call(np.arange(3).astype(dtype)), [0, 151, 2])


def test_truth_values_are_combined() -> None:
    def body(x: Any, y: Any, out: Any, tile: Any) -> None:
        for row, kind in enumerate(("and", "or", "xor", "exchange")):
            out[row] = x[...]
            out[4 + row] = KINDS[kind](out.at[row], y[...])

    x, y = np.random.default_rng(0).integers(0, 2, (2, 37)).astype(bool)
    same_as_evaluated(body, (8, 37), np.dtype(np.bool_), x, y)


@pytest.mark.parametrize("size", [127, 128, 512])
def test_every_thread_combines_its_elements(size: int) -> None:
    """Of a whole number of elements for each thread, no two threads hold one."""

    def body(x: Any, out: Any, tile: Any) -> None:
        tile[...] = x[...]
        out[0] = plgpu.atomic_add(tile, x[...])
        out[1] = tile[...]
        out[2] = plgpu.atomic_cas(out.at[1], x[...] + x[...], x[...])

    same_as_evaluated(body, (3, size), I32, np.arange(size, dtype=np.int32))


def test_a_single_warp_combines_all_elements() -> None:
    def body(x: Any, out: Any) -> None:
        out[...] = x[...]

        @plgpu.warp_map
        def _(warp: Any) -> None:
            plgpu.atomic_add(out, x[...])

            @pl.when(warp == 2)
            def _() -> None:
                plgpu.atomic_add(out.at[7], np.int32(5))

    x = np.arange(128, dtype=np.int32)
    for found in on_twin(kernel(body, x.shape, I32), x):
        np.testing.assert_array_equal(found, 5 * x + 5 * (x == 7))


SHIM = """
typedef unsigned char u8; typedef unsigned short u16; typedef unsigned int u32; typedef unsigned long long u64;
#define PAL_DEVICE static
static int interferences;
template <typename W> W atomicCAS(W* word, W compare, W value) {
  if (interferences-- > 0) *word ^= 0x01000000;
  const W old = *word;
  if (old == compare) *word = value;
  return old;
}
FUNCTION
extern "C" u8 swap(u8* address, u8 compare, u8 value, int others) {
  interferences = others;
  return atomic_compare(address, compare, value);
}
"""


def test_bytes_are_compared_in_their_word_on_the_device(tmp_path: Path) -> None:
    """The hardware swaps words: their other bytes stay as other threads leave them, and do not decide."""
    text = (Path(palladio.hopper.__file__).parent / "device.cuh").read_text(encoding="utf-8")
    start = text.index("template <typename T> PAL_DEVICE T atomic_compare(")
    function = text[start : text.index("\n}", start) + 2]
    library = tmp_path / "swap.so"
    command = ["g++", "-O2", "-std=c++17", "-w", "-shared", "-fPIC", "-x", "c++", "-", "-o", str(library)]
    subprocess.run(command, input=SHIM.replace("FUNCTION", function), text=True, check=True)
    swap = ctypes.CDLL(str(library)).swap
    swap.argtypes = [ctypes.c_void_p, ctypes.c_uint8, ctypes.c_uint8, ctypes.c_int]
    swap.restype = ctypes.c_uint8
    memory = np.zeros(64, np.uint8)
    base = memory.ctypes.data + -memory.ctypes.data % 4
    word = np.ctypeslib.as_array((ctypes.c_uint8 * 4).from_address(base))
    for place, others in [(0, 0), (1, 2), (2, 1)]:
        word[:] = [10, 20, 30, 40]
        assert swap(base + place, word[place] + 1, 99, others) == word[place]
        assert word.tolist() == [10, 20, 30, 40]
        before = word.tolist()
        assert swap(base + place, word[place], 99, others) == before[place]
        before[place], before[3] = 99, before[3] ^ others % 2
        assert word.tolist() == before


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
    [
        *((F32, "add"), (F32, "max"), (I32, "add"), (I32, "xor"), (np.dtype(np.float64), "min")),
        *((BF16, "add"), (F16, "max"), (E4M3, "min"), (np.dtype(np.int8), "add"), (np.dtype(np.uint16), "xor")),
    ],
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


@pytest.mark.parametrize(
    "dtype", [np.dtype(np.int16), np.dtype(np.uint8), F16, E4M3, np.dtype(np.float64), F32], ids=str
)
@pytest.mark.parametrize("kind", ["add", "min", "max"])
def test_threads_combine_what_the_copy_engine_cannot(dtype: np.dtype, kind: str) -> None:
    """It has no reductions of these dtypes but `add` of f32 and f16, and none of rows of 12 elements."""

    def body(x: Any, y: Any, out: Any, tile: Any, row: Any) -> None:
        out[...] = x[...]
        tile[...], row[...] = y[...], y[0, :12]
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(tile, out, reduction_op=kind)
        plgpu.copy_smem_to_gmem(row, out.at[1, 3:15], reduction_op=kind)
        plgpu.wait_smem_to_gmem(0)

    x, y = np.random.default_rng(0).integers(0, 8, (2, 4, 16)).astype(dtype)
    call = kernel(body, x.shape, dtype, [plgpu.SMEM(x.shape, dtype), plgpu.SMEM((12,), dtype)])
    combine = {"add": np.add, "min": np.minimum, "max": np.maximum}[kind]
    expected = combine(x.astype(np.float64), y.astype(np.float64))
    expected[1, 3:15] = combine(expected[1, 3:15], y[0, :12].astype(np.float64))
    for found in on_twin(call, x, y):
        np.testing.assert_array_equal(found.astype(np.float64), expected)


@pytest.mark.parametrize("kind", ["add", "min", "max", "and", "or", "xor"])
def test_the_copy_engine_combines_integers_of_64_bits(kind: str) -> None:
    """It takes those with a sign for extrema only."""

    def body(x: Any, y: Any, out: Any, tile: Any) -> None:
        out[...] = x[...]
        tile[...] = y[...]
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(tile, out, reduction_op=kind)
        plgpu.wait_smem_to_gmem(0)

    x, y = np.random.default_rng(0).integers(-(2**62), 2**62, (2, 4, 16))
    call = kernel(body, x.shape, x.dtype, [plgpu.SMEM(x.shape, x.dtype)])
    bits = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
    combine = {"add": np.add, "min": np.minimum, "max": np.maximum, **bits}[kind]
    assert "pal::tma_reduce" in lowered(call, x, y).text
    for found in on_twin(call, x, y):
        np.testing.assert_array_equal(found, combine(x, y))


@pytest.mark.parametrize("dtype", [np.dtype(np.int8), np.dtype(np.uint16), BF16, F32, np.dtype(np.int64)], ids=str)
def test_every_addition_in_another_block_counts(dtype: np.dtype) -> None:
    """Two blocks add to the same elements of the first one, whose neighbours in a word others replace."""

    def body(out: Any, tile: Any, everybody: Any) -> None:
        block = pl.axis_index("c")
        tile[...] = jnp.zeros((10,), dtype)
        meet(everybody)
        first = plgpu.cluster_ref(tile, {"c": 0})
        for n in range(5):
            plgpu.atomic_add(first.at[n], jnp.asarray(n + 1, dtype))
            plgpu.atomic_cas(first.at[5 + n], jnp.asarray(0, dtype), (block + 1).astype(dtype))
        meet(everybody)
        out[block] = tile[...]

    call = kernel(body, (2, 10), dtype, [plgpu.SMEM((10,), dtype), MET], **CLUSTER)
    for found in on_twin(call):
        assert found[0, :5].tolist() == [2, 4, 6, 8, 10] and found[1].tolist() == [0] * 10
        assert all(each in (1, 2) for each in found[0, 5:].tolist())
