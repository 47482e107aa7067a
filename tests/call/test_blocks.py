"""Block shapes and index maps: which part of an array a step sees."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.numpy as jnp
import palladio.tpu as pltpu

NAN = np.float32(np.nan)


def copy(x_ref: Any, o_ref: Any) -> None:
    o_ref[...] = x_ref[...]


def like(array: np.ndarray) -> pl.ShapeDtypeStruct:
    return pl.ShapeDtypeStruct(array.shape, array.dtype)


def numbers(*shape: int) -> np.ndarray:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def blocks_of(x: np.ndarray, spec: pl.BlockSpec, grid: tuple[int, ...], block: tuple[int, ...]) -> np.ndarray:
    """The block that each step of a grid sees, stacked along the first axis; integers keep a step apart from NaN."""
    rank = len(block)
    steps = int(np.prod(grid))

    def number(*ids: Any) -> Any:
        found = ids[0]
        for size, index in zip(grid[1:], ids[1:]):
            found = found * size + index
        return (found, *[0] * rank)

    out = pl.BlockSpec((None, *block), number)
    return pl.pallas_call(
        copy, pl.ShapeDtypeStruct((steps, *block), x.dtype), grid=grid, in_specs=[spec], out_specs=out
    )(x)


@pytest.mark.parametrize("entry", [2, np.int64(2), pl.Blocked(2)])
def test_an_integer_counts_in_blocks(entry: Any) -> None:
    seen = blocks_of(numbers(6), pl.BlockSpec((entry,), lambda i: (i,)), (3,), (2,))
    assert seen.tolist() == [[0, 1], [2, 3], [4, 5]]


@pytest.mark.parametrize("entry", [None, pl.Squeezed(), pl.Squeezed, pl.squeezed])
def test_a_squeezed_axis_is_not_there(entry: Any) -> None:
    seen = blocks_of(numbers(3, 2), pl.BlockSpec((entry, 2), lambda i: (2 - i, 0)), (3,), (2,))
    assert seen.tolist() == [[4, 5], [2, 3], [0, 1]]


def test_a_block_with_every_axis_squeezed_is_a_scalar() -> None:
    seen = blocks_of(numbers(2, 2), pl.BlockSpec((None, None), lambda i, j: (j, i)), (2, 2), ())
    assert seen.tolist() == [0, 2, 1, 3]


def test_element_counts_in_elements_so_blocks_may_overlap() -> None:
    seen = blocks_of(numbers(6), pl.BlockSpec((pl.Element(3),), lambda i: (i,)), (4,), (3,))
    assert seen.tolist() == [[0, 1, 2], [1, 2, 3], [2, 3, 4], [3, 4, 5]]


def test_the_padding_of_element_shifts_the_array_and_is_uninitialised() -> None:
    seen = blocks_of(numbers(4), pl.BlockSpec((pl.Element(3, (1, 2)),), lambda i: (2 * i,)), (3,), (3,))
    np.testing.assert_array_equal(seen, [[NAN, 0, 1], [1, 2, 3], [3, NAN, NAN]])


def test_element_in_an_output_drops_what_falls_into_the_padding() -> None:
    spec = pl.BlockSpec((pl.Element(2, (1, 1)),), lambda i: (2 * i,))
    result = pl.pallas_call(
        copy,
        pl.ShapeDtypeStruct((4,), np.float32),
        grid=(3,),
        in_specs=[pl.BlockSpec((2,), lambda i: (i,))],
        out_specs=spec,
    )(numbers(6))
    assert result.tolist() == [1, 2, 3, 4]


def test_a_bounded_slice_is_uninitialised_past_its_size() -> None:
    seen = blocks_of(numbers(5), pl.BlockSpec((pl.BoundedSlice(3),), lambda i: (pl.ds(i, 3 - i),)), (3,), (3,))
    np.testing.assert_array_equal(seen, [[0, 1, 2], [1, 2, NAN], [2, NAN, NAN]])


def test_a_bounded_slice_of_an_output_writes_its_size_only() -> None:
    def ones(o_ref: Any) -> None:
        o_ref[...] = jnp.full((3,), pl.program_id(0) + 1, jnp.int32)

    spec = pl.BlockSpec((pl.BoundedSlice(3),), lambda i: (pl.ds(2 * i, 2),))
    result = pl.pallas_call(ones, pl.ShapeDtypeStruct((5,), np.int32), grid=(2,), out_specs=spec)()
    assert result.tolist() == [1, 1, 2, 2, np.iinfo(np.int32).min]


def test_indirect_gathers_rows_and_scatters_them() -> None:
    order = np.array([3, 0, 2, 1], np.int32)
    spec = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1,
        grid=(2,),
        in_specs=[pl.BlockSpec((pl.Indirect(2), 3), lambda i, at: (at[pl.ds(2 * i, 2)], 0))],
        out_specs=pl.BlockSpec((pl.Indirect(2), 3), lambda i, at: (3 - at[pl.ds(2 * i, 2)], 0)),
    )

    def kernel(at_ref: Any, x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...]

    x = numbers(4, 3)
    result = pl.pallas_call(kernel, like(x), grid_spec=spec)(order, x)
    assert result.tolist() == x[::-1].tolist()


def test_the_default_index_map_stays_at_the_first_block() -> None:
    assert blocks_of(numbers(4), pl.BlockSpec((2,)), (3,), (2,)).tolist() == [[0, 1]] * 3


def test_a_spec_without_a_block_shape_is_the_whole_array() -> None:
    assert blocks_of(numbers(3), pl.BlockSpec(), (2,), (3,)).tolist() == [[0, 1, 2]] * 2


def test_a_whole_array_may_have_an_index_map() -> None:
    assert blocks_of(numbers(3), pl.BlockSpec(None, lambda i: (0,)), (2,), (3,)).tolist() == [[0, 1, 2]] * 2


def test_without_specs_every_step_sees_whole_arrays() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[pl.program_id(0)] = jnp.sum(x_ref[...])

    assert pl.pallas_call(kernel, pl.ShapeDtypeStruct((2,), np.float32), grid=(2,))(numbers(4)).tolist() == [6, 6]


@pytest.mark.parametrize("space", [None, pl.ANY, pltpu.VMEM, pltpu.SMEM, pltpu.HBM], ids=str)
def test_memory_spaces_reach_the_kernel_and_change_no_result(space: Any) -> None:
    seen = []

    def kernel(x_ref: Any, o_ref: Any) -> None:
        seen.append(x_ref.memory_space)
        o_ref[...] = x_ref[...]

    spec = pl.BlockSpec((2,), lambda i: (i,), memory_space=space)
    result = pl.pallas_call(kernel, like(numbers(4)), grid=(2,), in_specs=[spec], out_specs=spec)(numbers(4))
    assert result.tolist() == [0, 1, 2, 3]
    assert seen == [space or pl.ANY]


@pytest.mark.parametrize("mode", [pl.Buffered(1), pl.Buffered(3, use_lookahead=True)])
def test_buffering_is_advice(mode: pl.Buffered) -> None:
    assert blocks_of(numbers(4), pl.BlockSpec((2,), lambda i: (i,), mode), (2,), (2,)).tolist() == [[0, 1], [2, 3]]


def test_an_index_map_of_one_axis_may_give_a_bare_index() -> None:
    assert blocks_of(numbers(4), pl.BlockSpec((2,), lambda i: i), (2,), (2,)).tolist() == [[0, 1], [2, 3]]


def test_index_maps_compute() -> None:
    seen = blocks_of(numbers(8), pl.BlockSpec((2,), lambda i: (jnp.where(i > 1, i - 2, 3),)), (4,), (2,))
    assert seen.tolist() == [[6, 7], [6, 7], [0, 1], [2, 3]]


def test_a_block_outside_of_its_array_is_uninitialised() -> None:
    seen = blocks_of(numbers(4), pl.BlockSpec((2,), lambda i: (i * 5 - 1,)), (2,), (2,))
    assert np.isnan(seen).all()


# Ragged edges.


@pytest.mark.parametrize(
    ("shape", "block"),
    [((7,), (3,)), ((5, 9), (2, 4)), ((3, 5, 7), (2, 2, 3)), ((1,), (4,)), ((4, 1), (8, 8)), ((6, 6), (6, 4))],
)
def test_ragged_edges_of_a_copy(shape: tuple[int, ...], block: tuple[int, ...]) -> None:
    x = numbers(*shape)
    spec = pl.BlockSpec(block, lambda *ids: ids)
    grid = tuple(pl.cdiv(extent, size) for extent, size in zip(shape, block))
    result = pl.pallas_call(copy, like(x), grid=grid, in_specs=[spec], out_specs=spec)(x)
    np.testing.assert_array_equal(result, x)


def test_a_ragged_block_reads_uninitialised_values() -> None:
    seen = blocks_of(numbers(3, 3), pl.BlockSpec((2, 2), lambda i, j: (i, j)), (2, 2), (2, 2))
    np.testing.assert_array_equal(seen[3], [[8, NAN], [NAN, NAN]])


def test_a_ragged_block_of_integers_reads_the_least_one() -> None:
    seen = blocks_of(np.arange(3, dtype=np.int8), pl.BlockSpec((2,), lambda i: (i,)), (2,), (2,))
    assert seen.tolist() == [[0, 1], [2, -128]]


def test_a_revisited_ragged_output_accumulates() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        @pl.when(pl.program_id(1) == 0)
        def _() -> None:
            o_ref[...] = jnp.zeros_like(o_ref)

        o_ref[...] += x_ref[...]

    x = numbers(4, 5)
    result = pl.pallas_call(
        kernel,
        pl.ShapeDtypeStruct((5,), np.float32),
        grid=(2, 4),
        in_specs=[pl.BlockSpec((None, 3), lambda i, k: (k, i))],
        out_specs=pl.BlockSpec((3,), lambda i, k: (i,)),
    )(x)
    np.testing.assert_array_equal(result, x.sum(0))


@pytest.mark.parametrize("shape", [(0,), (0, 4), (4, 0), (2, 0, 3)])
def test_arrays_without_elements(shape: tuple[int, ...]) -> None:
    x = np.zeros(shape, np.float32)
    assert pl.pallas_call(copy, like(x))(x).shape == shape


def test_blocks_of_an_array_without_elements_are_all_edge() -> None:
    seen = blocks_of(np.zeros((0,), np.float32), pl.BlockSpec((2,), lambda i: (i,)), (1,), (2,))
    assert np.isnan(seen).all()
