"""Which block each step sees, where the evaluator could have kept the one of the step before."""

import numpy as np

import palladio as pl
import palladio.tpu as pltpu

ROWS = np.arange(12, dtype=np.float32).reshape(4, 3)


def seen_by_steps(grid, index_map, block=(1, 3), x=ROWS):
    """The block of `x` that each step of a grid sees, in order."""
    steps = int(np.prod(grid))

    def kernel(x_ref, out_ref, count_ref):
        first = pl.program_id(0) == 0
        for axis in range(1, len(grid)):
            first &= pl.program_id(axis) == 0

        @pl.when(first)
        def start():
            count_ref[0] = 0

        out_ref[count_ref[0]] = x_ref[...]
        count_ref[0] += 1

    return pl.pallas_call(
        kernel,
        pl.ShapeDtypeStruct((steps, *block), x.dtype),
        grid=grid,
        in_specs=[pl.BlockSpec(block, index_map)],
        scratch_shapes=[pltpu.SMEM((1,), np.int32)],
        interpret=True,
    )(x)


def test_an_index_map_of_an_outer_axis_moves_with_it():
    np.testing.assert_array_equal(seen_by_steps((2, 3), lambda i, j: (i, 0))[:, 0], ROWS[[0, 0, 0, 1, 1, 1]])


def test_an_index_map_of_an_inner_axis_moves_with_it_and_starts_again():
    np.testing.assert_array_equal(seen_by_steps((2, 3), lambda i, j: (j, 0))[:, 0], ROWS[[0, 1, 2, 0, 1, 2]])


def test_an_index_map_of_a_middle_axis_of_three():
    found = seen_by_steps((2, 2, 2), lambda i, j, k: (2 * i + j, 0))[:, 0]
    np.testing.assert_array_equal(found, ROWS[[0, 0, 1, 1, 2, 2, 3, 3]])


def test_a_constant_index_map_shows_one_block():
    np.testing.assert_array_equal(seen_by_steps((3,), lambda i: (2, 0))[:, 0], ROWS[[2, 2, 2]])


def test_a_ragged_block_is_whole_again_inside():
    found = seen_by_steps((2, 2), lambda i, j: (1 - i, 0), block=(3, 3))
    np.testing.assert_array_equal(found[0], [ROWS[3], [np.nan] * 3, [np.nan] * 3])
    np.testing.assert_array_equal(found[1], found[0])
    np.testing.assert_array_equal(found[3], ROWS[:3])


def test_an_output_block_that_is_visited_again_later_keeps_what_was_written():
    def kernel(x_ref, out_ref):
        @pl.when(pl.program_id(0) == 0)
        def start():
            out_ref[...] = x_ref[...] * 0

        out_ref[...] += x_ref[...]

    found = pl.pallas_call(
        kernel,
        pl.ShapeDtypeStruct((5,), np.float32),
        grid=(3, 2),
        in_specs=[pl.BlockSpec((3,), lambda i, j: (j,))],
        out_specs=pl.BlockSpec((3,), lambda i, j: (j,)),
        interpret=True,
    )(np.arange(5, dtype=np.float32))
    np.testing.assert_array_equal(found, 3 * np.arange(5))


def test_an_index_map_sees_the_scalars_that_the_kernel_changed():
    def kernel(row_ref, x_ref, out_ref):
        out_ref[pl.program_id(0)] = x_ref[0]
        row_ref[0] = row_ref[0] + 1

    rows = np.zeros(1, np.int32)
    found = pl.pallas_call(
        kernel,
        pl.ShapeDtypeStruct((3, 3), np.float32),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1,
            grid=(3,),
            in_specs=[pl.BlockSpec((1, 3), lambda i, row_ref: (row_ref[0], 0))],
            out_specs=pl.BlockSpec((3, 3), lambda i, row_ref: (0, 0)),
        ),
        interpret=True,
    )(rows, ROWS)
    np.testing.assert_array_equal(found, ROWS[:3])
    np.testing.assert_array_equal(rows, [0])
