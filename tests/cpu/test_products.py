"""Products of tiles: what is kept packed between steps, the dtypes of sums, the layouts of operands."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import palladio as pl
import palladio.numpy as jnp
import palladio.tpu as pltpu
from palladio.call.staged import CALLS
from palladio.cpu.lower import lower_grid
from palladio.cpu.lowered import LoweredGrid
from palladio.cpu.products import dot
from palladio.cpu.products.blocking import Blocking
from palladio.cpu.runtime import host
from palladio.driver.capture import prepared_programs
from palladio.driver.compile import PIPELINES
from palladio.driver.executors import CPU
from palladio.library import gmm, matmul, tgmm
from palladio.library.staging import forget_calls
from palladio.passes import run_passes
from tests.pairs import every_pair

Array = Any


def normal(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def assert_product(found: Array, x: Array, y: Array, tolerance: float = 1e-5) -> None:
    expected = x.astype(np.float64) @ y.astype(np.float64)
    assert np.abs(found.astype(np.float64) - expected).max() <= tolerance * np.abs(expected).max()


@pytest.mark.parametrize("threads", ["1", "3"])
def test_blocks_that_come_again_are_the_same_blocks(threads: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALLADIO_NUM_THREADS", threads)
    x, y = normal(0, 96, 80), normal(1, 80, 64)
    with pl.executor("cpu"):
        for tiling in ((16, 80, 32), (16, 16, 32), (96, 40, 16)):
            assert_product(matmul(x, y, tiling=tiling), x, y)


def test_an_array_that_changes_between_calls_is_packed_again() -> None:
    x, y = normal(0, 32, 32), normal(1, 32, 32)
    with pl.executor("cpu"):
        for _ in range(3):
            assert_product(matmul(x, y, tiling=(16, 32, 32)), x, y)
            y *= -2


def test_edge_blocks_are_copies_that_are_never_taken_for_one_another() -> None:
    x, y = normal(0, 40, 21), normal(1, 21, 50)
    with pl.executor("cpu"):
        assert_product(matmul(x, y, tiling=(16, 8, 32)), x, y)
        assert_product(matmul(x, y, tiling=(64, 21, 64)), x, y)


def test_a_right_operand_that_the_kernel_writes_is_read_anew() -> None:
    def kernel(x: Any, y: Any, out: Any) -> None:
        out[...] = jnp.dot(x[...], y[...])
        y[...] = y[...] * 2.0

    x, y = normal(0, 48, 16), normal(1, 16, 16)
    call = pl.pallas_call(
        kernel,
        pl.ShapeDtypeStruct((48, 16), np.float32),
        grid=(3,),
        in_specs=[pl.BlockSpec((16, 16), lambda i: (i, 0)), pl.BlockSpec((16, 16), lambda i: (0, 0))],
        out_specs=pl.BlockSpec((16, 16), lambda i: (i, 0)),
        interpret="cpu",
    )
    scales = np.repeat([1.0, 2.0, 4.0], 16)[:, None]
    np.testing.assert_allclose(call(x, y), scales * (x @ y), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("depth", "columns", "orders", "dtype"),
    every_pair(
        [1, 34, 801],
        [3, 96],
        [("x", "y"), ("x", "y.T"), ("x.T", "y"), ("x.T", "y.T")],
        [np.float32, ml_dtypes.bfloat16],
    ),
)
def test_operands_of_any_size_either_way_round(depth: int, columns: int, orders: tuple[str, str], dtype: Any) -> None:
    left, right = orders

    def kernel(x_ref: Any, y_ref: Any, out: Any) -> None:
        x = x_ref[...] if left == "x" else x_ref[...].T
        y = y_ref[...] if right == "y" else y_ref[...].T
        out[...] = jnp.dot(x, y, preferred_element_type=jnp.float32)

    x, y = normal(0, 19, depth).astype(dtype), normal(1, depth, columns).astype(dtype)
    call = pl.pallas_call(kernel, pl.ShapeDtypeStruct((19, columns), np.float32), interpret="cpu")
    given = x if left == "x" else x.T.copy(), y if right == "y" else y.T.copy()
    assert_product(call(*given), x, y)


@pytest.mark.parametrize("dtype", [np.float64, np.int32, np.int8])
def test_sums_of_other_dtypes(dtype: Any) -> None:
    x, y = (10 * normal(0, 20, 33)).astype(dtype), (10 * normal(1, 33, 24)).astype(dtype)
    sums = np.int32 if dtype == np.int8 else dtype

    def kernel(x_ref: Any, y_ref: Any, out: Any) -> None:
        out[...] = jnp.dot(x_ref[...], y_ref[...], preferred_element_type=sums)

    found = pl.pallas_call(kernel, pl.ShapeDtypeStruct((20, 24), sums), interpret="cpu")(x, y)
    np.testing.assert_allclose(found, x.astype(sums) @ y.astype(sums), rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("size", [1, 3, 20])
def test_steps_that_choose_their_block_by_a_table(size: int, dtype: Any) -> None:
    """The blocks of later steps are prefetched, which may be the same one, another, or there may be none."""

    def kernel(which: Any, x_ref: Any, y_ref: Any, out: Any) -> None:
        out[...] = jnp.dot(x_ref[...], y_ref[...], preferred_element_type=jnp.float32)

    x, y = normal(0, 16 * size, 32).astype(dtype), normal(1, 4, 32, 64).astype(dtype)
    which = np.random.default_rng(2).integers(0, 4, size).astype(np.int32)
    which[: size // 2].sort()
    spec = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1,
        grid=(2, size),
        in_specs=[
            pl.BlockSpec((16, 32), lambda j, i, which: (i, 0)),
            pl.BlockSpec((None, 32, 32), lambda j, i, which: (which[i], 0, j)),
        ],
        out_specs=pl.BlockSpec((16, 32), lambda j, i, which: (i, j)),
    )
    call = pl.pallas_call(kernel, pl.ShapeDtypeStruct((16 * size, 64), np.float32), grid_spec=spec, interpret="cpu")
    found = call(which, x, y)
    for row, number in enumerate(which):
        part = slice(16 * row, 16 * row + 16)
        assert_product(found[part], x[part], y[number], 1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.int8, ml_dtypes.bfloat16])
def test_a_sum_of_nothing_is_zero(dtype: Any) -> None:
    def kernel(x: Any, y: Any, out: Any) -> None:
        nothing = jnp.dot(x[:, 0:0], y[0:0], preferred_element_type=out.dtype)
        out[0] = nothing
        out[1] = nothing + out[1]
        out[2] = jnp.where(x[0, 0] == 1, nothing, out[1])

    shape = pl.ShapeDtypeStruct((3, 4, 6), np.int32 if dtype == np.int8 else np.float32)
    x, y, start = np.ones((4, 2), dtype), np.ones((2, 6), dtype), np.ones(shape.shape, shape.dtype)
    call = pl.pallas_call(lambda x, y, _, out: kernel(x, y, out), shape, input_output_aliases={2: 0})
    with pl.executor("cpu"):
        found = call(x, y, start)
    np.testing.assert_array_equal(found, [np.zeros((4, 6)), np.ones((4, 6)), np.zeros((4, 6))])


VIEWS = {
    "every_other": lambda x: x[:, ::2],
    "reversed": lambda x: jnp.flip(x, 1),
    "reversed_rows": lambda x: jnp.flip(x, 0),
    "repeated": lambda x: jnp.broadcast_to(x[:, 3:4], x.shape),
}


@pytest.mark.parametrize(
    ("dtype", "view", "turned"),
    every_pair([np.float32, np.float64, np.int32, ml_dtypes.bfloat16], list(VIEWS), ["v @ v.T", "v.T @ v"]),
)
def test_a_view_without_neighbouring_elements_times_its_own_transpose(dtype: Any, view: str, turned: str) -> None:
    """Such a view has no axis of stride 1; its panels once came from memory as if the last one were."""

    def product(x: Any) -> Any:
        v = VIEWS[view](x)
        v, w = (v, v.T) if turned == "v @ v.T" else (v.T, v)
        return jnp.dot(v, w, preferred_element_type=sums)

    sums = np.float32 if dtype == ml_dtypes.bfloat16 else dtype
    x = np.random.default_rng(0).integers(-5, 6, (64, 64)).astype(dtype)
    v = np.asarray(VIEWS[view](x)).astype(np.float64)
    expected = v @ v.T if turned == "v @ v.T" else v.T @ v

    def kernel(x_ref: Any, out: Any) -> None:
        out[...] = product(x_ref[...])

    call = pl.pallas_call(kernel, pl.ShapeDtypeStruct(expected.shape, sums), interpret="cpu")
    np.testing.assert_array_equal(call(x), expected)


def test_a_share_of_the_groups_has_the_bits_that_all_groups_have():
    """Experts on several processes give what one process gives: no sum depends on where its group lies.

    Of at most four rows in all, which take another path, this is not so.
    """
    sizes = np.array([7, 0, 19, 1, 33, 6], np.int32)
    m, shares = int(sizes.sum()), (slice(0, 2), slice(2, 5), slice(5, 6))
    draw = np.random.default_rng(0).standard_normal
    x, w, g = draw((m, 24)), draw((6, 24, 18)), draw((m, 18))
    ends = np.cumsum(sizes)
    with pl.executor("cpu"):
        out, grad_x, grad_w = gmm(x, w, sizes), gmm(g, w, sizes, transpose_rhs=True), tgmm(x.T, g, sizes)
        for each in shares:
            rows = slice(ends[each.start] - sizes[each.start], ends[each.stop - 1])
            np.testing.assert_array_equal(gmm(x[rows], w[each], sizes[each]), out[rows])
            np.testing.assert_array_equal(gmm(g[rows], w[each], sizes[each], transpose_rhs=True), grad_x[rows])
            np.testing.assert_array_equal(tgmm(x[rows].T, g[rows], sizes[each]), grad_w[each])


@pytest.mark.parametrize(
    ("signed", "left", "right"), [(True, "x", "y"), (True, "x.T", "y"), (True, "x", "y.T"), (False, "x", "y")]
)
def test_quads_of_8_bit_integers_are_exact(signed: bool, left: str, right: str) -> None:
    """Four products at a time, of bytes without a sign on the left: 128 is added to those with one, and taken back."""

    def product(x_ref: Any, y_ref: Any) -> Any:
        x = x_ref[...] if left == "x" else x_ref[...].T
        y = y_ref[...] if right == "y" else y_ref[...].T
        return jnp.dot(x, y, preferred_element_type=jnp.int32)

    rng, extremes = np.random.default_rng(0), np.iinfo(np.int8 if signed else np.uint8)
    x = rng.integers(extremes.min, extremes.max + 1, (19, 8196)).astype(extremes.dtype)
    y = rng.integers(-128, 128, (8196, 48)).astype(np.int8)
    x[:2], y[:, :2] = [[extremes.min], [extremes.max]], [[-128, 127]]
    begin = rng.integers(-(2**31), 2**31, (19, 48), np.int32)
    given = x if left == "x" else x.T.copy(), y if right == "y" else y.T.copy()

    def kernel(x_ref: Any, y_ref: Any, begin_ref: Any, added: Any, alone: Any) -> None:
        added[...] = begin_ref[...]
        added[...] += product(x_ref, y_ref)
        alone[...] = product(x_ref, y_ref).astype(jnp.float32)

    shapes = tuple(pl.ShapeDtypeStruct((19, 48), dtype) for dtype in (np.int32, np.float32))
    added, alone = pl.pallas_call(kernel, shapes, interpret="cpu")(*given, begin)
    expected = x.astype(np.int64) @ y
    np.testing.assert_array_equal(added, (begin + expected).astype(np.int32))
    np.testing.assert_array_equal(alone, expected.astype(np.float32))


def test_quads_in_tiles_and_without_the_instruction_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def kernel(x_ref: Any, y_ref: Any, out: Any) -> None:
        out[...] = jnp.dot(x_ref[...], y_ref[...], preferred_element_type=jnp.int32)

    rng = np.random.default_rng(0)
    x, y = rng.integers(-128, 128, (40, 64)).astype(np.int8), rng.integers(-128, 128, (64, 96)).astype(np.int8)
    for instructions in ("native", "portable"):
        monkeypatch.setenv("PALLADIO_CPU", instructions)
        call = pl.pallas_call(
            kernel,
            pl.ShapeDtypeStruct((40, 96), np.int32),
            grid=(2, 3),
            in_specs=[pl.BlockSpec((32, 64), lambda i, j: (i, 0)), pl.BlockSpec((64, 32), lambda i, j: (0, j))],
            out_specs=pl.BlockSpec((32, 32), lambda i, j: (i, j)),
            interpret="cpu",
        )
        for _ in range(2):
            np.testing.assert_array_equal(call(x, y), x.astype(np.int32) @ y)


FEW = [1, 0, 2, 3, 5, 7, 16, 17, 8, 9, 24, 25, 28, 29, 32, 33]
"""Rows of groups: up to 32, 28, 24, 16 or 8 do not pack the matrix."""


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(
    ("dtype", "k", "n"),
    [
        (np.float32, 50, 37),
        (np.float32, 16, 130),
        (np.float32, 40, 12),
        (np.float64, 21, 35),
        (np.float16, 24, 80),
        (ml_dtypes.bfloat16, 64, 96),
        (ml_dtypes.bfloat16, 48, 32),
    ],
)
def test_groups_of_a_few_rows_give_the_sums_of_many(dtype: Any, k: int, n: int, transposed: bool) -> None:
    draw = np.random.default_rng(0)
    x = draw.standard_normal((sum(FEW) + 3, k)).astype(dtype)
    matrices = draw.standard_normal((len(FEW), k, n)).astype(dtype)
    given = np.ascontiguousarray(matrices.swapaxes(1, 2)) if transposed else matrices
    out = np.full((len(x), n), np.nan, np.promote_types(dtype, np.float32))
    gmm(x, given, FEW, out.dtype, transpose_rhs=transposed, out=out)
    ends = np.cumsum(FEW)
    for matrix, size, end in zip(matrices, FEW, ends, strict=True):
        expected = x[end - size : end].astype(np.float64) @ matrix.astype(np.float64)
        assert np.linalg.norm(out[end - size : end] - expected) <= 1e-6 * np.linalg.norm(expected)
    assert not out[ends[-1] :].any()


@pytest.mark.parametrize(
    ("instructions", "dtype"), [*((each, np.float32) for each in host.available()), ("portable", np.float64)]
)
def test_a_few_rows_have_the_bits_of_many(instructions: str, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows by columns in memory: one kernel, two passes of it, and packed; or line by line, without such a kernel.

    In float32 without vectors of 64 bytes, those of packed rows differ.
    """
    monkeypatch.setenv("PALLADIO_CPU", instructions)
    x, matrices = normal(0, 64, 37).astype(dtype), normal(1, 2, 37, 53).astype(dtype)
    others = dtype == np.float32 and not host.current().prefetches
    most = dot.FEW_OF_PARTS if others else 64
    many = gmm(x, matrices, [most, 64 - most])
    for rows in (1, 3, 6, 11, 15, 20, 24, 28, 31):
        found = gmm(x, matrices, [rows, 64 - rows])[:rows]
        if rows <= most:
            np.testing.assert_array_equal(found, many[:rows])
        assert_product(found, x[:rows], matrices[0])


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
@pytest.mark.parametrize("k", [1, 5, 8, 17, 61, 128, 135, 200])
def test_every_row_of_every_part_is_added_once(
    k: int, dtype: Any, transposed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several parts of a matrix are read side by side; the last ones may be shorter, or empty."""
    monkeypatch.setenv("PALLADIO_CPU", "portable")
    for m, n in ((1, 3), (2, 19), (4, 33), (5, 40), (24, 50)):
        x, y = normal(0, m, k).astype(dtype), normal(1, k, n).astype(dtype)
        given = np.ascontiguousarray(y.T).T if transposed else y
        out = np.full((m, n), np.nan, np.float32)
        matmul(x, given, preferred_element_type=out.dtype, out=out)
        assert_product(out, x, y)
        groups = np.ascontiguousarray(y.T)[None] if transposed else y[None]
        assert_product(gmm(x, groups, [m], out.dtype, transpose_rhs=transposed), x, y)


def test_a_row_of_a_few_has_its_bits_whatever_rows_there_are_besides() -> None:
    """With matrices in rows of the summed axis: up to four at a time, the last three of four with a row of padding."""
    x, matrices = normal(0, 11, 45), normal(1, 11, 26, 45)
    matrices[:] = matrices[0]
    each = gmm(x, matrices, [1] * 11, transpose_rhs=True)
    for sizes in ([11], [3, 8], [5, 6], [7, 4], [2, 9], [10, 1]):
        rest = [0] * (11 - len(sizes))
        np.testing.assert_array_equal(gmm(x, matrices, [*sizes, *rest], transpose_rhs=True), each)
    x[3] = np.inf  # after the rows of a group
    np.testing.assert_array_equal(gmm(x, matrices, [3, 8, *[0] * 9], transpose_rhs=True)[:3], each[:3])


def test_a_matrix_that_a_few_rows_have_not_packed_is_packed_for_the_next_tile() -> None:
    x, matrices = normal(0, 96, 48), normal(1, 3, 48, 40)
    out = gmm(x, matrices, [29, 40, 27], tiling=(32, 48, 40))  # the second one has 3 rows of the first tile
    for matrix, rows in zip(matrices, (slice(29), slice(29, 69), slice(69, 96)), strict=True):
        assert_product(out[rows], x[rows], matrix)


def convolved(x: Array, weights: Array, rows: int, start: float = 0.0) -> tuple[Any, Array]:
    """The call of a convolution as products of shifted parts of an image, and what it gives in float64."""
    across, channels = weights.shape[0], x.shape[2]
    height, width = x.shape[0] - across + 1, x.shape[1] - across + 1

    def kernel(x_ref: Any, weights_ref: Any, out_ref: Any) -> None:
        total = jnp.full((rows * width, weights.shape[3]), start, out_ref.dtype)
        for i in range(across):
            for j in range(across):
                part = x_ref[pl.ds(pl.program_id(0) * rows + i, rows), pl.ds(j, width)]
                part = part.reshape(rows * width, channels)
                total += jnp.dot(part, weights_ref[i, j], preferred_element_type=out_ref.dtype)
        out_ref[...] = total.reshape(rows, width, weights.shape[3])

    shape = (height, width, weights.shape[3])
    call = pl.pallas_call(
        kernel,
        pl.ShapeDtypeStruct(shape, np.int32 if x.dtype == np.int8 else np.promote_types(x.dtype, np.float32)),
        grid=(height // rows,),
        in_specs=[pl.BlockSpec(x.shape, lambda i: (0, 0, 0)), pl.BlockSpec(weights.shape, lambda i: (0, 0, 0, 0))],
        out_specs=pl.BlockSpec((rows, *shape[1:]), lambda i: (i, 0, 0)),
        interpret="cpu",
    )
    x, weights = x.astype(np.float64), weights.astype(np.float64)
    parts = ((i, j, x[i : i + height, j : j + width]) for i in range(across) for j in range(across))
    return call, start + sum(part @ weights[i, j] for i, j, part in parts)


@pytest.mark.parametrize("width", [4, 14, 17, 28, 33])
@pytest.mark.parametrize(("channels", "outputs"), [(3, 5), (20, 32), (64, 40), (1100, 16)])
def test_products_of_shifted_rows_are_one_sum(width: int, channels: int, outputs: int) -> None:
    """The rows are multiplied where they are, if each row of the image has enough of them and they are close."""
    x, weights = normal(0, 6, width + 1, channels), normal(1, 2, 2, channels, outputs)
    call, expected = convolved(x, weights, 5, start=0.5)
    found = call(x, weights)
    assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()
    np.testing.assert_array_equal(call(x, weights), found)
    weights *= -1
    assert np.abs(call(x, weights) + expected - 1).max() <= 1e-5 * np.abs(expected).max()


@pytest.mark.parametrize("dtype", [np.float64, ml_dtypes.bfloat16, np.int8])
def test_products_of_shifted_rows_of_other_dtypes(dtype: Any) -> None:
    x, weights = ((8 * normal(n, *shape)).astype(dtype) for n, shape in enumerate([(8, 20, 32), (3, 3, 32, 16)]))
    call, expected = convolved(x, weights, 2)
    np.testing.assert_allclose(call(x, weights), expected, rtol=0, atol=1e-6 * np.abs(expected).max())


def test_a_sum_of_products_whose_operands_lie_in_other_ways() -> None:
    def kernel(x_ref: Any, y_ref: Any, out: Any) -> None:
        x, y = x_ref[...], y_ref[...]
        out[...] = jnp.zeros_like(out) - 0.0 + x @ y + x.T @ y + jnp.exp(x) @ y + x @ y.T + jnp.flip(x, 0) @ y

    x, y = normal(0, 24, 24), normal(1, 24, 24)
    wide_x, wide_y = x.astype(np.float64), y.astype(np.float64)
    expected = (wide_x + wide_x.T + np.exp(wide_x) + wide_x[::-1]) @ wide_y + wide_x @ wide_y.T
    found = pl.pallas_call(kernel, pl.ShapeDtypeStruct((24, 24), np.float32), interpret="cpu")(x, y)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


def test_what_a_sum_of_products_is_added_to_may_be_minus_zero() -> None:
    def kernel(x_ref: Any, y_ref: Any, out: Any) -> None:
        out[...] = -jnp.zeros_like(out) + jnp.dot(x_ref[...], y_ref[...])

    x, y = -np.zeros((16, 16), np.float32), np.ones((16, 16), np.float32)
    found = pl.pallas_call(kernel, pl.ShapeDtypeStruct((16, 16), np.float32), interpret="cpu")(x, y)
    assert np.signbit(found).all()


def lowered(call: Any, *arrays: Array) -> LoweredGrid:
    """A call of one kernel, lowered."""
    CALLS.clear()
    with prepared_programs() as programs:
        pl.jit(call)(*arrays)
    (eqn,) = run_passes(programs[-1], PIPELINES[CPU.name]).eqns
    return lower_grid(eqn.grid, eqn.kernel, eqn.input_types)


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.int8])
def test_a_matrix_in_memory_is_packed_before_it_is_multiplied_with_the_same_sums(dtype: Any) -> None:
    def kernel(x_ref: Any, y_ref: Any, out: Any) -> None:
        out[...] = jnp.dot(x_ref[...], y_ref[...], preferred_element_type=out.dtype)

    x, y = (10 * normal(0, 40, 44)).astype(dtype), (10 * normal(1, 44, 64)).astype(dtype)
    sums = np.int32 if dtype == np.int8 else np.float32
    call = pl.pallas_call(kernel, pl.ShapeDtypeStruct((40, 64), sums), interpret="cpu")
    found = []
    for large, near in ((1 << 30, 1 << 20), (0, 1 << 20), (1 << 30, 1 << 13)):
        with host.compiling_for(replace(host.current(), streamed_bytes=large, near_bytes=near)):
            text = lowered(call, x, y).text
            found.append(np.asarray(call(x, y)))
        if dtype == np.float32:
            assert ("_packs" in text) == (len(found) == 1)
    for other in found[1:]:
        np.testing.assert_array_equal(found[0], other)
    assert_product(found[0].astype(np.float64), x.astype(np.float64), y.astype(np.float64), 1e-6)


def test_rows_that_share_panels_of_columns_have_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups of no whole panel, of one with and without a rest, of some that fill a group of panels, and of more."""
    height, _ = host.current().sums
    sizes = [height - 1, 0, height, height + 5, 4 * height, 5 * height - 1, 9 * height + 3]
    x, y = normal(0, sum(sizes), 64), normal(1, len(sizes), 64, 320)
    made, together, found = Blocking.__init__, [], []

    def noted(self: Any, *args: Any) -> None:
        made(self, *args)
        together[-1].add(self.together)

    monkeypatch.setattr(Blocking, "__init__", noted)
    monkeypatch.setattr(dot, "LEAST_DEPTH_SPLIT", 1 << 20)  # tests/cpu/test_split.py has products of pieces
    for near in (1 << 30, 1 << 16):
        forget_calls()
        together.append(set())
        with host.compiling_for(replace(host.current(), near_bytes=near)), pl.executor("cpu"):
            found.append(gmm(x, y, sizes, tiling=(sum(sizes), 64, 320)))
    forget_calls()
    assert together[0] == {1} and max(together[1]) > 1
    np.testing.assert_array_equal(*found)
    expected = np.concatenate([part @ y[n] for n, part in enumerate(np.split(x, np.cumsum(sizes)[:-1]))])
    np.testing.assert_allclose(found[0], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("looked_up", [True, False])
def test_tasks_after_one_another_have_columns_of_the_same_group(looked_up: bool) -> None:
    """Groups of rows come from a table. Blocks that are neighbours in both directions follow one another in order."""

    def kernel(groups: Any, x_ref: Any, y_ref: Any, out: Any) -> None:
        out[...] = jnp.dot(x_ref[...], y_ref[...])

    groups, x, y = np.array([2, 0, 1], np.int32), normal(0, 32, 16), normal(1, 3, 16, 64)
    spec = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1,
        grid=(2, 3),
        in_specs=[
            pl.BlockSpec((32, 16), lambda j, g, groups: (0, 0)),
            pl.BlockSpec((None, 16, 32), lambda j, g, groups: (groups[g] if looked_up else g, 0, j)),
        ],
        out_specs=pl.BlockSpec((None, 32, 32), lambda j, g, groups: (g, 0, j)),
    )
    call = pl.pallas_call(
        kernel,
        pl.ShapeDtypeStruct((3, 32, 64), x.dtype),
        grid_spec=spec,
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel")),
        interpret="cpu",
    )
    assert lowered(call, groups, x, y).order == ((0, 1) if looked_up else (1, 0))
    np.testing.assert_allclose(call(groups, x, y), x @ y[groups if looked_up else np.arange(3)], rtol=1e-5, atol=1e-5)
