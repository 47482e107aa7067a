"""The library's kernels as CUDA: right on the host twin, under every schedule, in memory that was full of NaN."""

from __future__ import annotations

import dataclasses
import re

import ml_dtypes
import numpy as np
import pytest

from palladio.hopper.twin.run import SCHEDULES, run
from palladio.library import hopper
from tests.hopper.kernels import BF16, error, lowered, lowered_all, normal, on_twin, shaped
from tests.library.references import attention_reference
from tests.library.test_hopper_rows import rms_norm, softmax

EARLY_AND_LATE = SCHEDULES[:2]
ROUNDED = 4e-3
"""Relative error of results that were rounded to bfloat16 once."""


def product(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return x.astype(np.float64) @ y.astype(np.float64)


def test_matmul() -> None:
    x, y = normal(128, 256), normal(256, 256)
    for out in on_twin(hopper.matmul, x, y):
        assert error(out, product(x, y)) < ROUNDED


def test_the_memory_warpgroup_waits_for_free_buffers_alone() -> None:
    x, y = normal(256, 256), normal(256, 512)
    text = lowered(hopper.matmul, x, y).text
    moves = text[text.index("registers_decrease") :]
    waits = set(re.findall(r"pal::wait\w*\((smem \+ \d+)", moves))
    drained = {f"smem + {offset}" for offset in re.findall(r"(\d+)  operands_drained:", text)}
    assert waits == drained, "whatever else it waits for keeps it from running ahead over the bounds of tiles"


def test_matmul_of_ragged_sizes_and_few_blocks() -> None:
    config = hopper.MatmulConfig(tile_n=192, blocks=2)
    x, y = normal(200, 136), normal(136, 264)
    for out in on_twin(lambda x, y: hopper.matmul(x, y, config=config), x, y, schedules=EARLY_AND_LATE):
        assert error(out, product(x, y)) < ROUNDED


@pytest.mark.parametrize("axis", ["m", "n"])
def test_matmul_of_clusters_whose_blocks_share_loads(axis: str) -> None:
    config = hopper.MatmulConfig(cluster=axis, blocks=2)
    x, y = normal(256, 128), normal(128, 512)
    for out in on_twin(lambda x, y: hopper.matmul(x, y, config=config), x, y):
        assert error(out, product(x, y)) < ROUNDED


@pytest.mark.parametrize("cluster", [None, "n"])
def test_matmul_of_few_rows_whose_steps_are_split(cluster: str | None) -> None:
    config = hopper.MatmulConfig(64, 64, 128, 2, split="k", cluster=cluster, blocks=2)
    x, y = normal(70, 264), normal(264, 200)
    outs = on_twin(lambda x, y: hopper.matmul(x, y, config=config), x, y)
    for out in outs:
        assert error(out, product(x, y)) < ROUNDED
        np.testing.assert_array_equal(out, outs[0])


E4M3, E5M2 = np.dtype(ml_dtypes.float8_e4m3fn), np.dtype(ml_dtypes.float8_e5m2)


def factors(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).uniform(0.5, 2, shape).astype(np.float32)


@pytest.mark.parametrize("kind", ["tensors", "rows", "blocks"])
def test_matmul_of_floats_of_8_bits_with_factors(kind: str) -> None:
    m, n, k = 136, 264, 272
    x, y = normal(m, k, dtype=E4M3), normal(n, k, dtype=E5M2, seed=1)
    shapes = {"tensors": ((), ()), "rows": ((m,), (n,)), "blocks": ((3, m), (3, 3))}
    x_scale, y_scale = (factors(*shape) for shape in shapes[kind])
    own = x_scale.T if kind == "blocks" else x_scale.reshape(-1, 1)
    own_x = np.repeat(own, 128, 1)[:, :k] if kind == "blocks" else own
    own_y = np.repeat(np.repeat(y_scale, 128, 0)[:n], 128, 1)[:, :k] if kind == "blocks" else y_scale.reshape(-1, 1)
    scaled = lambda x, y, x_scale, y_scale: hopper.matmul(x, y, transpose_rhs=True, x_scale=x_scale, y_scale=y_scale)
    for out in on_twin(scaled, x, y, x_scale, y_scale, schedules=EARLY_AND_LATE):
        assert error(out, (x.astype(np.float64) * own_x) @ (y.astype(np.float64) * own_y).T) < ROUNDED


@pytest.mark.parametrize("promote", [False, True, 2])
def test_matmul_of_floats_of_8_bits_that_leaves_the_tensor_cores_after_some_steps(promote: int) -> None:
    x, y = normal(64, 400, dtype=E4M3), normal(128, 400, dtype=E4M3, seed=1)  # four steps, the last one ragged
    config = hopper.MatmulConfig(128, 128, 128, 3, promote=promote, blocks=1)
    for stated in (config, dataclasses.replace(config, tile_k=256)):
        wide = lambda x, y, config=stated: hopper.matmul(
            x, y, transpose_rhs=True, preferred_element_type=np.float32, config=config
        )
        for out in on_twin(wide, x, y, schedules=EARLY_AND_LATE):
            assert error(out, x.astype(np.float64) @ y.astype(np.float64).T) < 1e-6


def test_matmul_of_integers_is_exact() -> None:
    rng = np.random.default_rng(0)
    x, y = (rng.integers(-128, 128, shape).astype(np.int8) for shape in ((130, 144), (200, 144)))
    for out in on_twin(lambda x, y: hopper.matmul(x, y, transpose_rhs=True), x, y, schedules=EARLY_AND_LATE):
        np.testing.assert_array_equal(out, x.astype(np.int64) @ y.astype(np.int64).T)


def grouped(lhs: np.ndarray, rhs: np.ndarray, sizes: list[int]) -> np.ndarray:
    out, row = np.zeros((lhs.shape[0], rhs.shape[2])), 0
    for group, size in enumerate(sizes):
        out[row : row + size] = product(lhs[row : row + size], rhs[group])
        row += size
    return out


@pytest.mark.parametrize("sizes", [[100, 0, 77], [0, 0, 0], [1, 2, 253]], ids=str)
def test_gmm(sizes: list[int]) -> None:
    lhs, rhs = normal(256, 64), normal(3, 64, 256)
    wide = lambda *args: hopper.gmm(*args, preferred_element_type=np.float32)
    for out in on_twin(wide, lhs, rhs, np.int32(sizes), order=(2, 0, 1), schedules=EARLY_AND_LATE):
        assert error(out, grouped(lhs, rhs, sizes)) < 1e-6


def test_gmm_of_clusters_whose_blocks_share_rows() -> None:
    config = hopper.MatmulConfig(tile_n=128, cluster="n", blocks=4)
    lhs, rhs, sizes = normal(256, 136), normal(3, 136, 384), [70, 0, 150]
    clustered = lambda *args: hopper.gmm(*args, config=config)
    for out in on_twin(clustered, lhs, rhs, np.int32(sizes), order=(2, 0, 1)):
        assert error(out, grouped(lhs, rhs, sizes)) < ROUNDED


def test_gmm_of_transposed_matrices_and_bfloat16_results() -> None:
    lhs, rhs, sizes = normal(256, 64), normal(3, 256, 64), [100, 0, 156]
    outs = on_twin(
        lambda lhs, rhs, sizes: hopper.gmm(lhs, rhs, sizes, BF16, transpose_rhs=True),
        *(lhs, rhs, np.int32(sizes)),
        order=(2, 0, 1),
        schedules=SCHEDULES[2:],
    )
    for out in outs:
        assert error(out, grouped(lhs, rhs.transpose(0, 2, 1), sizes)) < ROUNDED


GROUPED = {
    "tensors": ((), ()),
    "matrices": ((), (3,)),
    "rows": ((256,), (3, 264)),
    "blocks": ((3, 256), (3, 3, 3)),
}


@pytest.mark.parametrize("kind", GROUPED)
def test_gmm_of_floats_of_8_bits_with_factors(kind: str) -> None:
    k, n, sizes = 272, 264, [100, 0, 77]
    lhs, rhs = normal(256, k, dtype=E4M3), normal(3, n, k, dtype=E5M2, seed=1)
    lhs_scale, rhs_scale = (factors(*shape) for shape in GROUPED[kind])
    if kind == "blocks":
        own_lhs = np.repeat(lhs_scale.T, 128, 1)[:, :k]
        own_rhs = np.repeat(np.repeat(rhs_scale, 128, 1)[:, :n], 128, 2)[:, :, :k]
    else:
        own_lhs, own_rhs = lhs_scale.reshape(-1, 1), rhs_scale.reshape(*rhs_scale.shape, *[1] * (3 - rhs_scale.ndim))
    scaled = lambda lhs, rhs, sizes, lhs_scale, rhs_scale: hopper.gmm(
        lhs, rhs, sizes, transpose_rhs=True, lhs_scale=lhs_scale, rhs_scale=rhs_scale
    )
    given = lhs, rhs, np.int32(sizes), lhs_scale, rhs_scale
    wanted = grouped(lhs * own_lhs, (rhs * own_rhs).transpose(0, 2, 1), sizes)
    for out in on_twin(scaled, *given, order=(2, 0, 1, 3, 4), schedules=EARLY_AND_LATE):
        assert error(out, wanted) < ROUNDED


def transposed(lhs: np.ndarray, rhs: np.ndarray, sizes: list[int]) -> np.ndarray:
    ends = np.cumsum(sizes)
    rows = [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]
    return np.stack([product(lhs[:, part], rhs[part]) for part in rows])


def test_tgmm() -> None:
    lhs, rhs, sizes = normal(128, 136), normal(136, 256), [50, 0, 83]
    wide = lambda *args: hopper.tgmm(*args, preferred_element_type=np.float32)
    for got in on_twin(wide, lhs, rhs, np.int32(sizes), order=(2, 0, 1), schedules=EARLY_AND_LATE):
        assert error(got, transposed(lhs, rhs, sizes)) < 1e-6


def test_tgmm_of_groups_from_any_row_on_is_copied_by_the_copy_engine() -> None:
    lhs, rhs, sizes = normal(128, 136), normal(136, 256), [3, 70, 0, 5, 50]
    lhs[:, 3:73], rhs[78:] = np.inf, np.inf  # in a product of another group they would make a NaN
    wide = lambda *args: hopper.tgmm(*args, preferred_element_type=np.float32)
    assert "lhs +" not in lowered(wide, lhs, rhs, np.int32(sizes)).text
    (got,) = on_twin(wide, lhs, rhs, np.int32(sizes), order=(2, 0, 1), schedules=EARLY_AND_LATE[:1])
    for group, (start, end) in {0: (0, 3), 3: (73, 78)}.items():
        assert error(got[group], product(lhs[:, start:end], rhs[start:end])) < 1e-6
    assert not got[2].any()


@pytest.mark.parametrize("axis", ["m", "n"])
def test_tgmm_of_clusters_whose_blocks_share_loads(axis: str) -> None:
    config = hopper.MatmulConfig(tile_n=128, cluster=axis, blocks=2)
    lhs, rhs, sizes = normal(256, 136), normal(136, 256), [50, 0, 83]
    clustered = lambda *args: hopper.tgmm(*args, config=config)
    for got in on_twin(clustered, lhs, rhs, np.int32(sizes), order=(2, 0, 1), schedules=EARLY_AND_LATE):
        assert error(got, transposed(lhs, rhs, sizes)) < ROUNDED


@pytest.mark.parametrize("widths", [(64, 32), (32, 64), (16, 128)])
def test_attention_of_values_of_another_width(widths: tuple[int, int]) -> None:
    """Buffers of queries and results are as wide as the wider one: rows of the other are a part of a swizzled row."""
    d, e = widths
    q, k, v = normal(1, 100, d), normal(1, 100, d, seed=1), normal(1, 100, e, seed=2)
    expected, *_ = attention_reference(q, k, v, normal(1, 100, e), False)
    for out in on_twin(hopper.attention, q, k, v, schedules=SCHEDULES[1:3]):
        assert error(out, expected) < 1e-2


@pytest.mark.parametrize(("width", "causal"), [(64, False), (64, True), (128, True), (256, False)])
def test_attention_of_shared_heads(width: int, causal: bool) -> None:
    q, k, v = (normal(heads, 200, width, seed=100 * heads + n) for n, heads in enumerate((2, 1, 1)))
    expected, *_ = attention_reference(q, k, v, q, causal)
    for out in on_twin(lambda *inputs: hopper.attention(*inputs, causal=causal), q, k, v, schedules=SCHEDULES[1:3]):
        assert error(out, expected) < 2 * ROUNDED


@pytest.mark.parametrize(("width", "causal"), [(256, False), (128, True)])
def test_gradients_of_attention(width: int, causal: bool) -> None:
    q, grad = normal(2, 200, width, seed=10), normal(2, 200, width, seed=20)
    k, v = normal(1, 136, width, seed=30), normal(1, 136, width, seed=40)
    out, lse, *expected = attention_reference(q, k, v, grad, causal)
    out, lse = out.astype(BF16), lse.astype(np.float32)
    gradients = lambda *given: hopper.attention_vjp(*given, causal=causal)
    sums, queries, keys = lowered_all(gradients, q, k, v, out, lse, grad)
    for schedule in EARLY_AND_LATE:
        given = [q, k, v, grad, *run(sums, shaped(sums, [out, grad, lse]), schedule).outputs]
        found = [*run(queries, given, schedule).outputs, *run(keys, given, schedule).outputs]
        assert all(error(got, want) < 2 * ROUNDED for got, want in zip(found, expected, strict=True))


@pytest.mark.parametrize("columns", [1000, 12288])
def test_softmax_and_rms_norm(columns: int) -> None:
    x, weight = normal(5, columns), normal(columns)
    (out,) = on_twin(hopper.softmax, x, schedules=SCHEDULES[:1])
    assert error(out, softmax(x)) < ROUNDED
    (out,) = on_twin(hopper.rms_norm, x, weight, schedules=SCHEDULES[2:3])
    assert error(out, rms_norm(x, weight)) < ROUNDED
