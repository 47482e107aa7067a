"""Arguments of `pallas_call`: grids, specifications, aliases, outputs, executors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.numpy as jnp
import palladio.tpu as pltpu
from palladio.base import knobs
from palladio.driver.executors import EXECUTORS
from tests.errors.shown import OUT, N, X, copy, shows

NAMES = ", ".join(EXECUTORS)


def three(x_ref: Any, y_ref: Any, o_ref: Any) -> None:
    """A kernel of two inputs."""


# Grids.


def test_a_grid_size_of_zero() -> None:
    with shows(
        ValueError,
        """
        grid[1]: a grid size is at least 1
          got:      0
          test_calls.py:N, in test_a_grid_size_of_zero
            pl.pallas_call(copy, OUT, grid=(2, 0))(X)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(copy, OUT, grid=(2, 0))(X)


def test_a_grid_size_beyond_the_indices() -> None:
    with shows(
        ValueError,
        """
        grid[0]: a grid index is an int32
          got:      2147483648
          test_calls.py:N, in test_a_grid_size_beyond_the_indices
            pl.pallas_call(copy, OUT, grid=2**31)(X)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(copy, OUT, grid=2**31)(X)
    with pytest.raises(pl.PalladioValueError, match="a grid index is an int32"):
        pl.pallas_call(copy, OUT, grid=(np.asarray(2**32 + 5),))(X)


@pytest.mark.parametrize("padding", [(1, 2, 3), (1,), (1.5, 2), "ab"])
def test_a_padding_that_is_not_two_sizes(padding: Any) -> None:
    with pytest.raises(pl.PalladioValueError, match="the padding of an Element is two sizes"):
        pl.BlockSpec((pl.Element(2, padding),))


def test_a_negative_grid_size() -> None:
    with shows(
        ValueError,
        """
        grid[0]: a grid size is at least 1
          got:      -1
          test_calls.py:N, in test_a_negative_grid_size
            pl.pallas_call(copy, OUT, grid=-1)(X)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(copy, OUT, grid=-1)(X)


def test_a_grid_size_that_is_no_integer() -> None:
    with shows(
        TypeError,
        """
        grid[0]: a grid size is an integer, or a 0-d integer array
          got:      2.0
          test_calls.py:N, in test_a_grid_size_that_is_no_integer
            pl.pallas_call(copy, OUT, grid=(2.0,))(X)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(copy, OUT, grid=(2.0,))(X)


def test_a_grid_size_that_is_a_bool() -> None:
    with shows(
        TypeError,
        """
        grid[0]: a grid size is an integer, or a 0-d integer array
          got:      True
          test_calls.py:N, in test_a_grid_size_that_is_a_bool
            pl.pallas_call(copy, OUT, grid=(True,))(X)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(copy, OUT, grid=(True,))(X)


def test_a_grid_that_is_no_tuple() -> None:
    with shows(
        TypeError,
        """
        grid: a grid is a tuple of sizes
          got:      '2'
          test_calls.py:N, in test_a_grid_that_is_no_tuple
            pl.pallas_call(copy, OUT, grid="2")(X)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(copy, OUT, grid="2")(X)


def test_two_grid_axes_of_one_name() -> None:
    with shows(
        ValueError,
        """
        grid: the names of a grid's axes are different
          got:      ['i', 'i']
          test_calls.py:N, in test_two_grid_axes_of_one_name
            pl.pallas_call(copy, OUT, grid=(("i", 1), ("i", 2)))(X)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(copy, OUT, grid=(("i", 1), ("i", 2)))(X)


def test_a_dynamic_grid_size_of_zero() -> None:
    with shows(
        ValueError,
        """
        grid: a grid size is at least 1
          got:      0
          test_calls.py:N, in test_a_dynamic_grid_size_of_zero
            pl.pallas_call(copy, OUT, grid=(np.asarray(0),))(X)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(copy, OUT, grid=(np.asarray(0),))(X)


def test_a_negative_dynamic_grid_size() -> None:
    with shows(
        ValueError,
        """
        grid: a grid size is at least 1
          got:      -3
          test_calls.py:N, in test_a_negative_dynamic_grid_size
            pl.pallas_call(copy, OUT, grid=(np.asarray(-3),))(X)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(copy, OUT, grid=(np.asarray(-3),))(X)


def test_a_traced_grid_size_of_zero() -> None:
    @pl.jit
    def call(n: Any, x: Any) -> Any:
        return pl.pallas_call(copy, OUT, grid=(n,))(x)

    with shows(
        ValueError,
        """
        a grid size is at least 1
          got:      [0]
          test_calls.py:N, in call
            return pl.pallas_call(copy, OUT, grid=(n,))(x)
                   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        call(np.int32(0), X)


def test_a_dynamic_grid_size_of_floats() -> None:
    with shows(
        TypeError,
        """
        grid[0]: a grid size is an integer, or a 0-d integer array
          got:      array(1.)
          test_calls.py:N, in test_a_dynamic_grid_size_of_floats
            pl.pallas_call(copy, OUT, grid=(np.asarray(1.0),))(X)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(copy, OUT, grid=(np.asarray(1.0),))(X)


def test_a_dynamic_grid_size_that_is_no_scalar() -> None:
    with shows(
        TypeError,
        """
        grid[0]: a grid size is an integer, or a 0-d integer array
          got:      array([1])
          test_calls.py:N, in test_a_dynamic_grid_size_that_is_no_scalar
            pl.pallas_call(copy, OUT, grid=(np.asarray([1]),))(X)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(copy, OUT, grid=(np.asarray([1]),))(X)


def test_a_grid_beside_a_grid_spec() -> None:
    with shows(
        ValueError,
        """
        grid: stands in the grid_spec already; give one of the two
          test_calls.py:N, in test_a_grid_beside_a_grid_spec
            pl.pallas_call(copy, OUT, grid=(1,), grid_spec=pl.GridSpec(grid=(1,)))(X)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(copy, OUT, grid=(1,), grid_spec=pl.GridSpec(grid=(1,)))(X)


def test_in_specs_beside_a_grid_spec() -> None:
    with shows(
        ValueError,
        """
        in_specs: stands in the grid_spec already; give one of the two
          test_calls.py:N, in test_in_specs_beside_a_grid_spec
            pl.pallas_call(copy, OUT, in_specs=[pl.BlockSpec()], grid_spec=pl.GridSpec(grid=(1,)))(X)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(copy, OUT, in_specs=[pl.BlockSpec()], grid_spec=pl.GridSpec(grid=(1,)))(X)


def test_out_specs_beside_a_grid_spec() -> None:
    with shows(
        ValueError,
        """
        out_specs: stands in the grid_spec already; give one of the two
          test_calls.py:N, in test_out_specs_beside_a_grid_spec
            pl.pallas_call(copy, OUT, out_specs=pl.BlockSpec(), grid_spec=pl.GridSpec(grid=(1,)))(X)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(copy, OUT, out_specs=pl.BlockSpec(), grid_spec=pl.GridSpec(grid=(1,)))(X)


def test_scratch_beside_a_grid_spec() -> None:
    with shows(
        ValueError,
        """
        scratch_shapes: stands in the grid_spec already; give one of the two
          test_calls.py:N, in test_scratch_beside_a_grid_spec
            pl.pallas_call(copy, OUT, scratch_shapes=[pltpu.VMEM((8,), "f32")], grid_spec=pl.GridSpec(grid=(1,)))(X)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(copy, OUT, scratch_shapes=[pltpu.VMEM((8,), "f32")], grid_spec=pl.GridSpec(grid=(1,)))(X)


def test_a_grid_spec_that_is_none() -> None:
    with shows(
        TypeError,
        """
        grid_spec: a grid_spec is a GridSpec or a PrefetchScalarGridSpec
          got:      (1,)
          test_calls.py:N, in test_a_grid_spec_that_is_none
            pl.pallas_call(copy, OUT, grid_spec=(1,))(X)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(copy, OUT, grid_spec=(1,))(X)


def test_a_negative_number_of_prefetched_scalars() -> None:
    with shows(
        ValueError,
        """
        num_scalar_prefetch: the number of prefetched scalars is at least 0
          got:      -1
          test_calls.py:N, in test_a_negative_number_of_prefetched_scalars
            pltpu.PrefetchScalarGridSpec(-1, grid=(1,))
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pltpu.PrefetchScalarGridSpec(-1, grid=(1,))


def test_fewer_arguments_than_prefetched_scalars() -> None:
    spec = pltpu.PrefetchScalarGridSpec(2, grid=(1,))
    with shows(
        ValueError,
        """
        args: fewer arguments than prefetched scalars
          expected: at least 2
          got:      1
          test_calls.py:N, in test_fewer_arguments_than_prefetched_scalars
            pl.pallas_call(copy, OUT, grid_spec=spec)(X)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(copy, OUT, grid_spec=spec)(X)


def test_dimension_semantics_of_another_rank() -> None:
    params = pl.CompilerParams(dimension_semantics=("parallel", "arbitrary"))
    with shows(
        ValueError,
        """
        compiler_params.dimension_semantics: one of "parallel" and "arbitrary" for each grid axis
          expected: 1 entry
          got:      ['parallel', 'arbitrary']
          test_calls.py:N, in test_dimension_semantics_of_another_rank
            pl.pallas_call(copy, OUT, grid=(2,), compiler_params=params)(X)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(copy, OUT, grid=(2,), compiler_params=params)(X)


def test_dimension_semantics_of_another_name() -> None:
    params = pl.CompilerParams(dimension_semantics=("paralel",))
    with shows(
        ValueError,
        """
        compiler_params.dimension_semantics: one of "parallel" and "arbitrary" for each grid axis
          expected: "parallel" or "arbitrary"
          got:      'paralel'
          test_calls.py:N, in test_dimension_semantics_of_another_name
            pl.pallas_call(copy, OUT, grid=(2,), compiler_params=params)(X)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(copy, OUT, grid=(2,), compiler_params=params)(X)


# Specifications.


def test_a_block_shape_of_another_rank() -> None:
    with shows(
        ValueError,
        """
        in_specs[0] (x_ref): the block shape has another rank than the array
          expected: 2 entries for an array f32[8,16]
          got:      1 entry: (8,)
          test_calls.py:N, in test_a_block_shape_of_another_rank
            pl.pallas_call(copy, OUT, in_specs=[pl.BlockSpec((8,))])(X)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(copy, OUT, in_specs=[pl.BlockSpec((8,))])(X)


def test_a_block_shape_of_another_rank_for_an_output() -> None:
    with shows(
        ValueError,
        """
        out_specs[0] (o_ref): the block shape has another rank than the array
          expected: 2 entries for an array f32[8,16]
          got:      3 entries: (1, 8, 16)
          test_calls.py:N, in test_a_block_shape_of_another_rank_for_an_output
            pl.pallas_call(copy, OUT, out_specs=pl.BlockSpec((1, 8, 16)))(X)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(copy, OUT, out_specs=pl.BlockSpec((1, 8, 16)))(X)


def test_a_block_of_size_zero() -> None:
    with shows(
        ValueError,
        """
        block_shape: a block has at least one element along each axis
          got:      Blocked(block_size=0)
          test_calls.py:N, in test_a_block_of_size_zero
            pl.BlockSpec((8, 0))
            ^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.BlockSpec((8, 0))


def test_a_negative_padding() -> None:
    with shows(
        ValueError,
        """
        block_shape: the padding of an Element is two sizes of at least 0
          got:      Element(block_size=8, padding=(-1, 0))
          test_calls.py:N, in test_a_negative_padding
            pl.BlockSpec((pl.Element(8, (-1, 0)), 16))
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.BlockSpec((pl.Element(8, (-1, 0)), 16))


def test_a_block_shape_of_a_string() -> None:
    with shows(
        TypeError,
        """
        block_shape: a block shape holds integers, None and block dimensions
          got:      '8'
          test_calls.py:N, in test_a_block_shape_of_a_string
            pl.BlockSpec(("8", 16))
            ^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.BlockSpec(("8", 16))


def test_a_block_shape_that_is_an_integer() -> None:
    with shows(
        TypeError,
        """
        block_shape: a block shape is a tuple
          got:      8
          hint:     write (8,)
          test_calls.py:N, in test_a_block_shape_that_is_an_integer
            pl.BlockSpec(8)  # type: ignore[arg-type]
            ^^^^^^^^^^^^^^^
        """,
    ):
        pl.BlockSpec(8)  # type: ignore[arg-type]


def test_a_block_shape_behind_the_index_map() -> None:
    with shows(
        TypeError,
        """
        block_shape: the block shape comes first, the index map second
          got:      a function, <lambda>
          test_calls.py:N, in test_a_block_shape_behind_the_index_map
            pl.BlockSpec(lambda i: (i, 0), (8, 16))  # type: ignore[arg-type]
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.BlockSpec(lambda i: (i, 0), (8, 16))  # type: ignore[arg-type]


def test_an_index_map_that_is_no_function() -> None:
    with shows(
        TypeError,
        """
        index_map: an index map is a function
          got:      (0, 0)
          test_calls.py:N, in test_an_index_map_that_is_no_function
            pl.BlockSpec((8, 16), (0, 0))  # type: ignore[arg-type]
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.BlockSpec((8, 16), (0, 0))  # type: ignore[arg-type]


def test_no_buffers() -> None:
    with shows(
        ValueError,
        """
        buffer_count: at least one buffer is needed
          got:      0
          test_calls.py:N, in test_no_buffers
            pl.Buffered(0)
            ^^^^^^^^^^^^^^
        """,
    ):
        pl.Buffered(0)


def test_more_specs_than_arrays() -> None:
    specs = [pl.BlockSpec((8, 16))] * 2
    with shows(
        ValueError,
        """
        in_specs: one spec per array is needed
          expected: 1 spec
          got:      2 specs
          test_calls.py:N, in test_more_specs_than_arrays
            pl.pallas_call(copy, OUT, in_specs=specs)(X)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(copy, OUT, in_specs=specs)(X)


def test_more_specs_than_outputs() -> None:
    specs = [pl.BlockSpec((8, 16))] * 2
    with shows(
        ValueError,
        """
        out_specs: one spec per array is needed
          expected: 1 spec
          got:      2 specs
          test_calls.py:N, in test_more_specs_than_outputs
            pl.pallas_call(copy, OUT, out_specs=specs)(X)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(copy, OUT, out_specs=specs)(X)


def test_specs_that_are_no_tuple() -> None:
    with shows(
        TypeError,
        """
        in_specs: specs are a tuple with one entry per array
          got:      BlockSpec((8, 16), None)
          test_calls.py:N, in test_specs_that_are_no_tuple
            pl.pallas_call(copy, OUT, in_specs=pl.BlockSpec((8, 16)))(X)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(copy, OUT, in_specs=pl.BlockSpec((8, 16)))(X)


def test_a_spec_that_is_none() -> None:
    with shows(
        TypeError,
        """
        in_specs[0][0]: a spec is a BlockSpec
          got:      8
          hint:     BlockSpec() takes the whole array
          test_calls.py:N, in test_a_spec_that_is_none
            pl.pallas_call(copy, OUT, in_specs=[(8, 16)])(X)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(copy, OUT, in_specs=[(8, 16)])(X)


def test_specs_of_another_structure() -> None:
    with shows(
        ValueError,
        """
        in_specs[0]: the structure of the specs is not that of the arrays
          expected: {'weights': *}
          got:      {'bias': *}
          test_calls.py:N, in test_specs_of_another_structure
            pl.pallas_call(copy, OUT, in_specs=[{"bias": pl.BlockSpec((8, 16))}])({"weights": X})
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(copy, OUT, in_specs=[{"bias": pl.BlockSpec((8, 16))}])({"weights": X})


# Index maps.


def test_an_index_map_with_too_few_results() -> None:
    spec = pl.BlockSpec((4, 16), lambda i: i)
    with shows(
        ValueError,
        """
        in_specs[0] (x_ref): the index map gives another number of indices than the block shape has entries
          expected: 2 indices
          got:      1 index
          test_calls.py:N, in <lambda>
            spec = pl.BlockSpec((4, 16), lambda i: i)
                                                   ^
        """,
    ):
        pl.pallas_call(copy, OUT, grid=(2,), in_specs=[spec])(X)


def test_an_index_map_with_a_result_that_is_no_integer() -> None:
    def half(i: Any) -> Any:
        return i / 2, 0

    with shows(
        TypeError,
        """
        in_specs[0] (x_ref): index 0 of the index map is of the wrong kind
          expected: an integer scalar
          got:      f32[]
          test_calls.py:N, in half
            def half(i: Any) -> Any:
            ^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(copy, OUT, grid=(2,), in_specs=[pl.BlockSpec((4, 16), half)])(X)


def test_an_index_map_that_returns_nothing() -> None:
    def nothing(i: Any) -> None: ...

    with shows(
        ValueError,
        """
        out_specs[0] (o_ref): the index map gives another number of indices than the block shape has entries
          expected: 2 indices
          got:      1 index
          test_calls.py:N, in nothing
            def nothing(i: Any) -> None: ...
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(copy, OUT, grid=(2,), out_specs=pl.BlockSpec((4, 16), nothing))(X)


def test_an_index_map_with_an_array_as_a_result() -> None:
    spec = pl.BlockSpec((4, 16), lambda i: (jnp.arange(2), 0))
    with shows(
        TypeError,
        """
        in_specs[0] (x_ref): index 0 of the index map is of the wrong kind
          expected: an integer scalar
          got:      i32[2]
          test_calls.py:N, in <lambda>
            spec = pl.BlockSpec((4, 16), lambda i: (jnp.arange(2), 0))
                                                   ^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(copy, OUT, grid=(2,), in_specs=[spec])(X)


def test_an_index_map_with_another_number_of_parameters() -> None:
    spec = pl.BlockSpec((4, 16), lambda i, j: (i, j))
    with shows(
        TypeError,
        """
        in_specs[0] (x_ref): the index map takes other parameters than it is called with
          expected: 1 grid index
          got:      <lambda>(i, j)
          test_calls.py:N, in <lambda>
            spec = pl.BlockSpec((4, 16), lambda i, j: (i, j))
                                                      ^^^^^^
        """,
    ):
        pl.pallas_call(copy, OUT, grid=(2,), in_specs=[spec])(X)


def test_an_index_map_without_parameters_for_the_scalars() -> None:
    def block(i: Any) -> Any:
        return i, 0

    spec = pltpu.PrefetchScalarGridSpec(1, grid=(2,), in_specs=[pl.BlockSpec((4, 16), block)])
    with shows(
        TypeError,
        """
        in_specs[0] (y_ref): the index map takes other parameters than it is called with
          expected: 1 grid index and 1 reference to prefetched scalars
          got:      block(i)
          test_calls.py:N, in block
            def block(i: Any) -> Any:
            ^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(three, OUT, grid_spec=spec)(N, X)


def test_an_index_map_that_captures_an_array() -> None:
    table = np.arange(2)
    spec = pl.BlockSpec((4, 16), lambda i: (jnp.take(table, i), 0))
    with shows(
        TypeError,
        """
        in_specs[0] (x_ref): an index map must not capture arrays
          got:      captures i64[2]
          hint:     pass integer arrays through PrefetchScalarGridSpec
          test_calls.py:N, in <lambda>
            spec = pl.BlockSpec((4, 16), lambda i: (jnp.take(table, i), 0))
                                                    ^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(copy, OUT, grid=(2,), in_specs=[spec])(X)


def test_an_index_map_that_indexes_a_numpy_array() -> None:
    table = np.arange(2)
    spec = pl.BlockSpec((4, 16), lambda i: (table[i], 0))
    with shows(
        TypeError,
        """
        a traced value has no NumPy array while the kernel is being traced
          got:      traced i32[]
          hint:     use NumPy's functions directly on the value; jnp.take(table, i) looks it up in a table
          test_calls.py:N, in <lambda>
            spec = pl.BlockSpec((4, 16), lambda i: (table[i], 0))
                                                    ^^^^^^^^
        """,
    ):
        pl.pallas_call(copy, OUT, grid=(2,), in_specs=[spec])(X)


def test_an_index_map_that_writes() -> None:
    def block(i: Any, n_ref: Any) -> Any:
        n_ref[0] = 0
        return i, 0

    spec = pltpu.PrefetchScalarGridSpec(1, grid=(2,), in_specs=[pl.BlockSpec((4, 16), block)])
    with shows(
        ValueError,
        """
        in_specs[0] (y_ref): an index map may read its scalars, not write them
          test_calls.py:N, in block
            def block(i: Any, n_ref: Any) -> Any:
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(three, OUT, grid_spec=spec)(N, X)


def test_an_integer_for_a_bounded_slice() -> None:
    spec = pl.BlockSpec((pl.BoundedSlice(4), 16), lambda i: (i, 0))
    with shows(
        TypeError,
        """
        in_specs[0] (x_ref): index 0 belongs to a BoundedSlice
          expected: ds(start, size)
          got:      traced i32[]
          test_calls.py:N, in <lambda>
            spec = pl.BlockSpec((pl.BoundedSlice(4), 16), lambda i: (i, 0))
                                                                    ^^^^^^
        """,
    ):
        pl.pallas_call(copy, OUT, grid=(2,), in_specs=[spec])(X)


# Aliases.


def test_an_alias_of_another_shape() -> None:
    with shows(
        ValueError,
        """
        input_output_aliases: input 0 and output 0 are aliased but differ
          expected: f32[8,16]
          got:      f32[4,16]
          test_calls.py:N, in test_an_alias_of_another_shape
            pl.pallas_call(copy, OUT, input_output_aliases={0: 0})(X[:4])
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(copy, OUT, input_output_aliases={0: 0})(X[:4])


def test_a_write_to_an_aliased_input() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        x_ref[...] = x_ref[...] + 1

    with shows(
        TypeError,
        """
        input_output_aliases={0: 0}: the kernel writes to an input that an output aliases
          got:      a write to x_ref
          hint:     write to o_ref: it starts with the values of the input
          test_calls.py:N, in kernel
            x_ref[...] = x_ref[...] + 1
            ^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT, input_output_aliases={0: 0})(X)


def test_calls_of_a_staged_function_that_ask_for_different_executors() -> None:
    @pl.jit
    def function(x: Any) -> Any:
        y = pl.pallas_call(copy, OUT, interpret="simulator")(x)
        return pl.pallas_call(copy, OUT, interpret=True)(y)

    with shows(
        ValueError,
        """
        interpret: the calls of one staged function ask for different executors
          expected: simulator, as an earlier call asks
          got:      reference: True
          hint:     stage them apart, or pass one interpret= to pl.jit
          test_calls.py:N, in function
            return pl.pallas_call(copy, OUT, interpret=True)(y)
                   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        function(X)


def test_an_alias_of_another_dtype() -> None:
    with shows(
        ValueError,
        """
        input_output_aliases: input 0 and output 0 are aliased but differ
          expected: f32[8,16]
          got:      f16[8,16]
          test_calls.py:N, in test_an_alias_of_another_dtype
            pl.pallas_call(copy, OUT, input_output_aliases={0: 0})(X.astype(np.float16))
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(copy, OUT, input_output_aliases={0: 0})(X.astype(np.float16))


def test_an_alias_of_an_input_that_there_is_not() -> None:
    with shows(
        ValueError,
        """
        input_output_aliases: names an input that the call does not have
          expected: an input below 1
          got:      1
          test_calls.py:N, in test_an_alias_of_an_input_that_there_is_not
            pl.pallas_call(copy, OUT, input_output_aliases={1: 0})(X)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(copy, OUT, input_output_aliases={1: 0})(X)


def test_an_alias_of_an_output_that_there_is_not() -> None:
    with shows(
        ValueError,
        """
        input_output_aliases: maps the number of an input to the number of an output
          expected: an output below 1
          got:      0: 1
          test_calls.py:N, in test_an_alias_of_an_output_that_there_is_not
            pl.pallas_call(copy, OUT, input_output_aliases={0: 1})(X)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(copy, OUT, input_output_aliases={0: 1})(X)


def test_two_aliases_of_one_output() -> None:
    with shows(
        ValueError,
        """
        input_output_aliases: two inputs alias one output
          got:      {0: 0, 1: 0}
          test_calls.py:N, in test_two_aliases_of_one_output
            pl.pallas_call(three, OUT, input_output_aliases={0: 0, 1: 0})(X, X)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(three, OUT, input_output_aliases={0: 0, 1: 0})(X, X)


def test_aliases_that_are_no_dictionary() -> None:
    with shows(
        TypeError,
        """
        input_output_aliases: a dictionary from the number of an input to the number of an output
          expected: such as {0: 0}
          got:      [(0, 0)]
          test_calls.py:N, in test_aliases_that_are_no_dictionary
            pl.pallas_call(copy, OUT, input_output_aliases=[(0, 0)])(X)  # type: ignore[arg-type]
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(copy, OUT, input_output_aliases=[(0, 0)])(X)  # type: ignore[arg-type]


# Outputs and scratch.


def test_no_outputs() -> None:
    with shows(
        TypeError,
        """
        out_shape: a kernel call needs the shapes of its outputs
          hint:     ShapeDtypeStruct(shape, dtype); None for a kernel without outputs
          test_calls.py:N, in test_no_outputs
            pl.pallas_call(copy)(X)
            ^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(copy)(X)


def test_a_description_like_something_without_a_shape() -> None:
    with shows(
        TypeError,
        """
        array: only what has a shape and a dtype can be described
          got:      3.5
          test_calls.py:N, in test_a_description_like_something_without_a_shape
            pl.ShapeDtypeStruct.like(3.5)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.ShapeDtypeStruct.like(3.5)


def test_an_output_without_a_dtype() -> None:
    with shows(
        TypeError,
        """
        out_shape[0]: an output is described by a shape and a dtype
          got:      8
          test_calls.py:N, in test_an_output_without_a_dtype
            pl.pallas_call(copy, (8, 16))(X)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(copy, (8, 16))(X)


def test_an_output_of_a_dtype_that_there_is_not() -> None:
    with shows(
        TypeError,
        """
        out_shape: not a dtype that Palladio has
          expected: bool, int8-64, uint8-64, float16, bfloat16, float32, float64, float8_e4m3fn, float8_e5m2
          got:      complex64
          test_calls.py:N, in test_an_output_of_a_dtype_that_there_is_not
            pl.pallas_call(copy, np.ones(3, np.complex64))(X)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(copy, np.ones(3, np.complex64))(X)


def test_a_description_of_a_dtype_that_there_is_not() -> None:
    with shows(
        TypeError,
        """
        not a dtype that Palladio has
          expected: bool, int8-64, uint8-64, float16, bfloat16, float32, float64, float8_e4m3fn, float8_e5m2
          got:      complex64
          test_calls.py:N, in test_a_description_of_a_dtype_that_there_is_not
            pl.ShapeDtypeStruct((8, 16), np.complex64)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.ShapeDtypeStruct((8, 16), np.complex64)


def test_a_description_of_a_negative_size() -> None:
    with shows(
        ValueError,
        """
        shape: a size is at least 0
          got:      (8, -16)
          test_calls.py:N, in test_a_description_of_a_negative_size
            pl.ShapeDtypeStruct((8, -16), np.float32)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.ShapeDtypeStruct((8, -16), np.float32)


def test_a_buffer_of_half_an_element() -> None:
    with shows(
        TypeError,
        """
        shape: a shape is integers
          got:      (8.5,)
          test_calls.py:N, in test_a_buffer_of_half_an_element
            pltpu.VMEM((8.5,), np.float32)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pltpu.VMEM((8.5,), np.float32)


def test_scratch_without_a_memory_space() -> None:
    with shows(
        TypeError,
        """
        scratch_shapes[0]: scratch is described by a memory space, a shape and a dtype
          expected: such as pltpu.VMEM(shape, dtype)
          got:      ShapeDtypeStruct(shape=(8,), dtype=dtype('float32'))
          test_calls.py:N, in test_scratch_without_a_memory_space
            pl.pallas_call(three, OUT, scratch_shapes=[pl.ShapeDtypeStruct((8,), np.float32)])(X)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(three, OUT, scratch_shapes=[pl.ShapeDtypeStruct((8,), np.float32)])(X)


# The kernel.


def test_a_kernel_that_is_no_function() -> None:
    with shows(
        TypeError,
        """
        kernel: a kernel is a function of references
          got:      'copy'
          test_calls.py:N, in test_a_kernel_that_is_no_function
            pl.pallas_call("copy", OUT)(X)  # type: ignore[call-overload]
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call("copy", OUT)(X)  # type: ignore[call-overload]


def test_a_kernel_with_too_few_parameters() -> None:
    def kernel(o_ref: Any) -> None: ...

    with shows(
        TypeError,
        """
        kernel: the kernel takes other parameters than the call has references
          expected: 2 references (1 input, 1 output)
          got:      kernel(o_ref)
          test_calls.py:N, in kernel
            def kernel(o_ref: Any) -> None: ...
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_a_kernel_with_too_many_parameters() -> None:
    spec = pltpu.PrefetchScalarGridSpec(1, grid=(1,), scratch_shapes=[pltpu.VMEM((8,), "f32")])

    def kernel(n_ref: Any, x_ref: Any, y_ref: Any, o_ref: Any, total_ref: Any) -> None: ...

    with shows(
        TypeError,
        """
        kernel: the kernel takes other parameters than the call has references
          expected: 4 references (1 prefetched scalar, 1 input, 1 output, 1 scratch buffer)
          got:      kernel(n_ref, x_ref, y_ref, o_ref, total_ref)
          test_calls.py:N, in kernel
            def kernel(n_ref: Any, x_ref: Any, y_ref: Any, o_ref: Any, total_ref: Any) -> None: ...
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT, grid_spec=spec)(N, X)


def test_a_kernel_without_a_parameter_for_named_scratch() -> None:
    def kernel(x_ref: Any, o_ref: Any, *, total: Any) -> None: ...

    with shows(
        TypeError,
        """
        kernel: the kernel takes other parameters than the call has references
          expected: 2 references (1 input, 1 output), and by keyword sums
          got:      kernel(x_ref, o_ref, *, total)
          test_calls.py:N, in kernel
            def kernel(x_ref: Any, o_ref: Any, *, total: Any) -> None: ...
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT, scratch_shapes={"sums": pltpu.VMEM((8,), "f32")})(X)


# Executors.


def test_an_executor_that_there_is_not() -> None:
    with shows(
        ValueError,
        f"""
        interpret: no executor has this name
          expected: {NAMES}
          got:      'abacus'
          test_calls.py:N, in test_an_executor_that_there_is_not
            pl.pallas_call(copy, OUT, interpret="abacus")(X)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(copy, OUT, interpret="abacus")(X)


def test_an_executor_that_is_no_name() -> None:
    with shows(
        TypeError,
        """
        interpret: True, False or the name of an executor
          got:      3
          test_calls.py:N, in test_an_executor_that_is_no_name
            pl.pallas_call(copy, OUT, interpret=3)(X)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(copy, OUT, interpret=3)(X)


def test_a_context_of_an_executor_that_there_is_not() -> None:
    with shows(
        ValueError,
        f"""
        name: no executor has this name
          expected: {NAMES}
          got:      'abacus'
          test_calls.py:N, in test_a_context_of_an_executor_that_there_is_not
            with pl.executor("abacus"):
                 ^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        with pl.executor("abacus"):
            pass


def test_an_environment_that_names_no_executor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALLADIO_EXECUTOR", "abacus")
    with shows(
        ValueError,
        f"""
        PALLADIO_EXECUTOR: no executor has this name
          expected: {NAMES}
          got:      'abacus'
          test_calls.py:N, in test_an_environment_that_names_no_executor
            pl.pallas_call(copy, OUT)(X)
            ^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(copy, OUT)(X)


def test_an_environment_variable_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALLADIO_DEBUG_CHECKS", "perhaps")
    with shows(
        ValueError,
        """
        PALLADIO_DEBUG_CHECKS: the environment variable cannot be read
          expected: 1 or 0
          got:      'perhaps'
          test_calls.py:N, in test_an_environment_variable_that_cannot_be_read
            pl.pallas_call(copy, OUT)(X)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(copy, OUT)(X)


@pytest.mark.parametrize("text", ["two", "-1", "1.5"])
def test_a_number_of_threads_that_is_none(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALLADIO_NUM_THREADS", text)
    with shows(
        ValueError,
        f"""
        PALLADIO_NUM_THREADS: the environment variable cannot be read
          expected: a number of threads, or 0 for all cores
          got:      '{text}'
          test_calls.py:N, in test_a_number_of_threads_that_is_none
            knobs.thread_count()
            ^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        knobs.thread_count()


# Sizes.


def test_a_division_of_sizes_by_nothing() -> None:
    with shows(
        ValueError,
        """
        b: the divisor of cdiv is at least 1
          got:      0
          test_calls.py:N, in test_a_division_of_sizes_by_nothing
            pl.cdiv(8, 0)
            ^^^^^^^^^^^^^
        """,
    ):
        pl.cdiv(8, 0)


def test_the_power_of_two_above_a_negative_number() -> None:
    with shows(
        ValueError,
        """
        x: next_power_of_2 takes no negative number
          got:      -1
          test_calls.py:N, in test_the_power_of_two_above_a_negative_number
            pl.next_power_of_2(-1)
            ^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.next_power_of_2(-1)


def test_a_staged_function_that_is_none() -> None:
    with shows(
        TypeError,
        """
        fun: what jit stages is a function
          got:      3
          test_calls.py:N, in test_a_staged_function_that_is_none
            pl.jit(3)  # type: ignore[arg-type]
            ^^^^^^^^^
        """,
    ):
        pl.jit(3)  # type: ignore[arg-type]


def test_a_memory_space_by_its_name() -> None:
    with shows(
        TypeError,
        """
        memory_space: a memory space is such as pltpu.VMEM
          got:      'vmem'
          test_calls.py:N, in test_a_memory_space_by_its_name
            pl.BlockSpec((8, 16), memory_space="vmem")  # type: ignore[arg-type]
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.BlockSpec((8, 16), memory_space="vmem")  # type: ignore[arg-type]


def test_a_padding_of_one_number() -> None:
    with shows(
        ValueError,
        """
        block_shape: the padding of an Element is two sizes of at least 0
          got:      Element(block_size=8, padding=3)
          test_calls.py:N, in test_a_padding_of_one_number
            pl.BlockSpec((pl.Element(8, 3), 16))  # type: ignore[arg-type]
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.BlockSpec((pl.Element(8, 3), 16))  # type: ignore[arg-type]
