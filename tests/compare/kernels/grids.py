"""Grid kernels: blocks of every kind, order of steps, scratch, aliases, and the ways to say a grid."""

import dataclasses
import functools

import jax.numpy as jnp
import numpy as np
from jax import ShapeDtypeStruct, lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def double(x_ref, o_ref):
    o_ref[...] = x_ref[...] * 2


def case_blocks_in_two_axes(rng):
    spec = pl.BlockSpec((4, 8), lambda i, j: (i, j))
    x = rng.normal(size=(12, 16)).astype(np.float32)
    call = pl.pallas_call(
        double,
        out_shape=ShapeDtypeStruct(x.shape, x.dtype),
        grid=(3, 2),
        in_specs=[spec],
        out_specs=spec,
        interpret=True,
    )
    return call(x)


def case_integer_grid_and_default_index_map(rng):
    """A block without an index map stays where it is; so does an array without a block."""

    def kernel(x_ref, bias_ref, whole_ref, o_ref):
        o_ref[...] = x_ref[...] + bias_ref[...] + jnp.sum(whole_ref[...])

    x = rng.normal(size=(12, 8)).astype(np.float32)
    bias, whole = rng.normal(size=(4, 8)).astype(np.float32), rng.normal(size=(3, 5)).astype(np.float32)
    return pl.pallas_call(
        kernel,
        out_shape=ShapeDtypeStruct(x.shape, x.dtype),
        grid=3,
        in_specs=[pl.BlockSpec((4, 8), lambda i: (i, 0)), pl.BlockSpec((4, 8)), pl.BlockSpec()],
        out_specs=pl.BlockSpec((4, 8), lambda i: (i, 0)),
        interpret=True,
    )(x, bias, whole)


def case_squeezed_axes(rng):
    def kernel(x_ref, y_ref, o_ref):
        o_ref[...] = x_ref[...] + y_ref[...]

    x, y = rng.normal(size=(2, 3, 4, 8)).astype(np.float32)
    return pl.pallas_call(
        kernel,
        out_shape=ShapeDtypeStruct(x.shape, x.dtype),
        grid=(3, 4),
        in_specs=[
            pl.BlockSpec((None, 1, 8), lambda i, j: (i, j, 0)),
            pl.BlockSpec((pl.Squeezed(), pl.Blocked(1), 8), lambda i, j: (i, j, 0)),
        ],
        out_specs=pl.BlockSpec((None, 1, 8), lambda i, j: (i, j, 0)),
        interpret=True,
    )(x, y)


def case_rows_squeezed_to_vectors(rng):
    def kernel(x_ref, o_ref, s_ref):
        o_ref[...] = x_ref[...] - jnp.mean(x_ref[...])
        s_ref[...] = jnp.sum(x_ref[...])

    x = rng.normal(size=(6, 16)).astype(np.float32)
    return pl.pallas_call(
        kernel,
        out_shape=[ShapeDtypeStruct(x.shape, x.dtype), ShapeDtypeStruct((6,), x.dtype)],
        grid=(6,),
        in_specs=[pl.BlockSpec((None, 16), lambda i: (i, 0))],
        out_specs=[pl.BlockSpec((None, 16), lambda i: (i, 0)), pl.BlockSpec((None,), lambda i: (i,))],
        interpret=True,
    )(x)


def case_permuting_index_map(rng):
    """Blocks are transposed, mirrored and picked by arithmetic on the grid's indices."""

    def kernel(x_ref, y_ref, o_ref):
        o_ref[...] = x_ref[...].T + y_ref[...]

    x, y = rng.normal(size=(16, 12)).astype(np.float32), rng.normal(size=(12, 16)).astype(np.float32)
    return pl.pallas_call(
        kernel,
        out_shape=ShapeDtypeStruct((12, 16), x.dtype),
        grid=(3, 4),
        in_specs=[
            pl.BlockSpec((4, 4), lambda i, j: (j, i)),
            pl.BlockSpec((4, 4), lambda i, j: (2 - i, (j * 3 + 1) % 4)),
        ],
        out_specs=pl.BlockSpec((4, 4), lambda i, j: (i, j)),
        interpret=True,
    )(x, y)


def case_program_ids(rng):
    def kernel(o_ref):
        i, j = pl.program_id(0), pl.program_id(1)
        o_ref[...] = jnp.full((2, 4), i * 100 + j * 10 + pl.num_programs(0) + pl.num_programs(1), jnp.int32)

    return pl.pallas_call(
        kernel,
        out_shape=ShapeDtypeStruct((6, 16), np.int32),
        grid=(3, 4),
        out_specs=pl.BlockSpec((2, 4), lambda i, j: (i, j)),
        interpret=True,
    )()


def case_element_offsets(rng):
    """Overlapping windows: the index map gives an offset in elements."""

    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[:4] + x_ref[2:6]

    x = rng.normal(size=(18, 8)).astype(np.float32)
    return pl.pallas_call(
        kernel,
        out_shape=ShapeDtypeStruct((16, 8), x.dtype),
        grid=(4,),
        in_specs=[pl.BlockSpec((pl.Element(6), pl.Element(8)), lambda i: (i * 4, 0))],
        out_specs=pl.BlockSpec((4, 8), lambda i: (i, 0)),
        interpret=True,
    )(x)


def case_element_offsets_with_padding(rng):
    """A stencil of three rows; the padding above and below is uninitialised and masked away."""

    def kernel(x_ref, o_ref):
        i = pl.program_id(0)
        rows = i * 4 + lax.broadcasted_iota(jnp.int32, (6, 8), 0) - 1
        x = jnp.where((rows >= 0) & (rows < 16), x_ref[...], 0.0)
        o_ref[...] = x[:4] - 2 * x[1:5] + x[2:6]

    x = rng.normal(size=(16, 8)).astype(np.float32)
    return pl.pallas_call(
        kernel,
        out_shape=ShapeDtypeStruct(x.shape, x.dtype),
        grid=(4,),
        in_specs=[pl.BlockSpec((pl.Element(6, (1, 1)), pl.Element(8)), lambda i: (i * 4, 0))],
        out_specs=pl.BlockSpec((4, 8), lambda i: (i, 0)),
        interpret=True,
    )(x)


def case_element_padding_is_uninitialised(rng):
    x = rng.normal(size=(8, 8)).astype(np.float32)
    call = functools.partial(
        pl.pallas_call,
        grid=(2,),
        in_specs=[pl.BlockSpec((pl.Element(6, (1, 1)), pl.Element(8)), lambda i: (i * 4, 0))],
        out_specs=pl.BlockSpec((6, 8), lambda i: (i, 0)),
        interpret=True,
    )
    i = rng.integers(-9, 9, (8, 8)).astype(np.int32)
    return call(double, ShapeDtypeStruct((12, 8), x.dtype))(x), call(copy, ShapeDtypeStruct((12, 8), i.dtype))(i)


def copy(x_ref, o_ref):
    o_ref[...] = x_ref[...]


def case_element_offsets_of_outputs(rng):
    """Blocks are written from the last to the first, and one row of a block is picked by its element."""

    def kernel(x_ref, row_ref, o_ref):
        o_ref[...] = x_ref[...] + row_ref[...]

    x = rng.normal(size=(8, 16)).astype(np.float32)
    return pl.pallas_call(
        kernel,
        out_shape=ShapeDtypeStruct(x.shape, x.dtype),
        grid=(4,),
        in_specs=[
            pl.BlockSpec((2, 16), lambda i: (i, 0), pipeline_mode=pl.Buffered(3)),
            pl.BlockSpec((None, pl.Element(16)), lambda i: (i * 2, 0)),
        ],
        out_specs=pl.BlockSpec((pl.Element(2), pl.Element(16)), lambda i: (6 - 2 * i, 0)),
        interpret=True,
    )(x, x)


def case_ragged_edges_are_dropped(rng):
    x = rng.normal(size=(10, 13)).astype(np.float32)
    spec = pl.BlockSpec((4, 8), lambda i, j: (i, j))
    return pl.pallas_call(
        double,
        out_shape=ShapeDtypeStruct(x.shape, x.dtype),
        grid=(3, 2),
        in_specs=[spec],
        out_specs=spec,
        interpret=True,
    )(x)


def case_ragged_edges_are_uninitialised(rng):
    """Each block's whole contents, written side by side where there is room for them."""
    results = []
    for dtype in (np.float32, np.int32, np.uint8, np.int8, np.bool_):
        x = rng.integers(0, 2, (6, 5)).astype(dtype)
        results.append(
            pl.pallas_call(
                copy,
                out_shape=ShapeDtypeStruct((8, 8), dtype),
                grid=(2, 2),
                in_specs=[pl.BlockSpec((4, 4), lambda i, j: (i, j))],
                out_specs=pl.BlockSpec((4, 4), lambda i, j: (i, j)),
                interpret=True,
            )(x)
        )
    return results


def case_ragged_reduction_with_a_mask(rng):
    def kernel(x_ref, o_ref):
        j = pl.program_id(0)

        @pl.when(j == 0)
        def _():
            o_ref[...] = jnp.zeros_like(o_ref)

        columns = j * 8 + lax.broadcasted_iota(jnp.int32, x_ref.shape, 1)
        o_ref[...] += jnp.sum(jnp.where(columns < 21, x_ref[...], 0), axis=1)

    x = rng.normal(size=(6, 21)).astype(np.float32)
    return pl.pallas_call(
        kernel,
        out_shape=ShapeDtypeStruct((6,), x.dtype),
        grid=(pl.cdiv(21, 8),),
        in_specs=[pl.BlockSpec((6, 8), lambda j: (0, j))],
        out_specs=pl.BlockSpec((6,), lambda j: (0,)),
        interpret=True,
    )(x)


def case_unvisited_output_blocks(rng):
    """What no step writes stays uninitialised."""
    results = []
    for dtype in (np.float32, np.int32):
        x = rng.integers(-9, 9, (8, 8)).astype(dtype)
        results.append(
            pl.pallas_call(
                copy,
                out_shape=ShapeDtypeStruct((16, 8), dtype),
                grid=(2,),
                in_specs=[pl.BlockSpec((4, 8), lambda i: (i, 0))],
                out_specs=pl.BlockSpec((4, 8), lambda i: (2 * i, 0)),
                interpret=True,
            )(x)
        )
    return results


def case_revisited_output_accumulates(rng):
    def kernel(x_ref, o_ref):
        @pl.when(pl.program_id(1) == 0)
        def _():
            o_ref[...] = jnp.zeros_like(o_ref)

        o_ref[...] += x_ref[...]

    x = rng.normal(size=(8, 24)).astype(np.float32)
    return pl.pallas_call(
        kernel,
        out_shape=ShapeDtypeStruct((8, 8), x.dtype),
        grid=(2, 3),
        in_specs=[pl.BlockSpec((4, 8), lambda i, j: (i, j))],
        out_specs=pl.BlockSpec((4, 8), lambda i, j: (i, 0)),
        interpret=True,
    )(x)


def case_later_step_overwrites_an_earlier_one(rng):
    x = rng.normal(size=(16, 8)).astype(np.float32)
    return pl.pallas_call(
        double,
        out_shape=ShapeDtypeStruct((8, 8), x.dtype),
        grid=(4,),
        in_specs=[pl.BlockSpec((4, 8), lambda i: (i, 0))],
        out_specs=pl.BlockSpec((4, 8), lambda i: (i % 2, 0)),
        interpret=True,
    )(x)


def case_scratch_persists_over_steps(rng):
    """A running maximum and a counter that no output holds."""

    def kernel(x_ref, o_ref, n_ref, largest_ref, count_ref):
        @pl.when(pl.program_id(0) == 0)
        def _():
            largest_ref[...] = jnp.full_like(largest_ref, -jnp.inf)
            count_ref[0] = 0

        largest_ref[...] = jnp.maximum(largest_ref[...], x_ref[...])
        count_ref[0] += 1
        o_ref[...] = largest_ref[...]
        n_ref[...] = jnp.full((1, 8), count_ref[0])

    x = rng.normal(size=(6, 8)).astype(np.float32)
    spec = pl.BlockSpec((1, 8), lambda i: (i, 0))
    return pl.pallas_call(
        kernel,
        out_shape=(ShapeDtypeStruct(x.shape, x.dtype), ShapeDtypeStruct(x.shape, np.int32)),
        grid=(6,),
        in_specs=[spec],
        out_specs=(spec, spec),
        scratch_shapes=[pltpu.VMEM((1, 8), jnp.float32), pltpu.SMEM((1,), jnp.int32)],
        interpret=True,
    )(x)


def case_scratch_as_a_dictionary(rng):
    def kernel(x_ref, o_ref, *, carry, counts):
        @pl.when(pl.program_id(0) == 0)
        def _():
            carry[...] = jnp.zeros_like(carry)
            counts[0] = 0

        carry[...] = carry[...] * 0.5 + x_ref[...]
        counts[0] += 1
        o_ref[...] = carry[...] * counts[0].astype(jnp.float32)

    x = rng.normal(size=(6, 8)).astype(np.float32)
    spec = pl.BlockSpec((1, 8), lambda i: (i, 0))
    return pl.pallas_call(
        kernel,
        out_shape=ShapeDtypeStruct(x.shape, x.dtype),
        grid=(6,),
        in_specs=[spec],
        out_specs=spec,
        scratch_shapes={"carry": pltpu.VMEM((1, 8), jnp.float32), "counts": pltpu.SMEM((1,), jnp.int32)},
        interpret=True,
    )(x)


def case_grid_spec(rng):
    def kernel(x_ref, y_ref, o_ref, total_ref):
        total_ref[...] = x_ref[...] + y_ref[...]
        o_ref[...] = total_ref[...] * 2

    x, y = rng.normal(size=(2, 8, 16)).astype(np.float32)
    block = pl.BlockSpec((4, 16), lambda i: (i, 0))
    grid_spec = pl.GridSpec(
        grid=(2,), in_specs=[block, block], out_specs=block, scratch_shapes=[pltpu.VMEM((4, 16), jnp.float32)]
    )
    return pl.pallas_call(kernel, ShapeDtypeStruct(x.shape, x.dtype), grid_spec=grid_spec, interpret=True)(x, y)


def case_dynamic_grid(rng):
    """A grid whose length is an array; blocks past it stay as the alias left them."""
    results = []
    for steps in (3, 1):
        x = rng.normal(size=(16, 8)).astype(np.float32)
        spec = pl.BlockSpec((4, 8), lambda i, j: (i, j))
        call = pl.pallas_call(
            double,
            out_shape=ShapeDtypeStruct(x.shape, x.dtype),
            grid=(jnp.int32(steps), 1),
            in_specs=[spec],
            out_specs=spec,
            input_output_aliases={0: 0},
            interpret=True,
        )
        results.append(call(x))
    return results


def case_number_of_programs_of_a_dynamic_grid(rng):
    def kernel(o_ref):
        o_ref[...] = jnp.full((1, 8), pl.num_programs(0) * 10 + pl.program_id(0))

    return pl.pallas_call(
        kernel,
        out_shape=ShapeDtypeStruct((3, 8), np.int32),
        grid=(jnp.int32(3),),
        out_specs=pl.BlockSpec((1, 8), lambda i: (i, 0)),
        interpret=True,
    )()


def case_named_grid(rng):
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...] * pl.program_id(0) + pl.num_programs(1)

    x = rng.normal(size=(8, 16)).astype(np.float32)
    spec = pl.BlockSpec((4, 8), lambda i, j: (i, j))
    return pl.pallas_call(
        kernel,
        out_shape=ShapeDtypeStruct(x.shape, x.dtype),
        grid=(("rows", 2), ("columns", 2)),
        in_specs=[spec],
        out_specs=spec,
        interpret=True,
    )(x)


def case_input_output_aliases(rng):
    """The output starts as the input; only some blocks are changed. The caller's array is not."""

    def kernel(x_ref, y_ref, o_ref):
        o_ref[...] = x_ref[...] + y_ref[...]

    x, y = rng.normal(size=(8, 8)).astype(np.float32), rng.normal(size=(16, 8)).astype(np.float32)
    kept = y.copy()
    out = pl.pallas_call(
        kernel,
        out_shape=ShapeDtypeStruct(y.shape, y.dtype),
        grid=(2,),
        in_specs=[pl.BlockSpec((4, 8), lambda i: (i, 0)), pl.BlockSpec((4, 8), lambda i: (2 * i + 1, 0))],
        out_specs=pl.BlockSpec((4, 8), lambda i: (2 * i + 1, 0)),
        input_output_aliases={1: 0},
        interpret=True,
    )(x, y)
    return out, np.array_equal(y, kept)


def case_alias_without_a_grid(rng):
    def kernel(x_ref, o_ref):
        o_ref[2:4] = x_ref[0:2] * 0 + 5

    x = rng.integers(0, 9, (6, 4)).astype(np.int32)
    return pl.pallas_call(
        kernel, out_shape=ShapeDtypeStruct(x.shape, x.dtype), input_output_aliases={0: 0}, interpret=True
    )(x)


def case_pytrees_of_inputs_and_outputs(rng):
    def kernel(weights, x_ref, outs):
        outs["product"][...] = jnp.dot(x_ref[...], weights["w"][...]) + weights["b"][...]
        outs["sums"][0][...] = jnp.sum(x_ref[...], axis=1)

    weights = {"w": rng.normal(size=(8, 4)).astype(np.float32), "b": rng.normal(size=(1, 4)).astype(np.float32)}
    x = rng.normal(size=(6, 8)).astype(np.float32)
    out_shape = {"product": ShapeDtypeStruct((6, 4), x.dtype), "sums": [ShapeDtypeStruct((6,), x.dtype)]}
    return pl.pallas_call(kernel, out_shape=out_shape, interpret=True)(weights, x)


def case_pytrees_of_specs(rng):
    def kernel(pair, o_ref):
        first_ref, rest = pair
        o_ref[...] = first_ref[...] * rest["scale"][...]

    x, scale = rng.normal(size=(8, 16)).astype(np.float32), rng.normal(size=(8, 1)).astype(np.float32)
    block, column = pl.BlockSpec((2, 16), lambda i: (i, 0)), pl.BlockSpec((2, 1), lambda i: (i, 0))
    return pl.pallas_call(
        kernel,
        out_shape=ShapeDtypeStruct(x.shape, x.dtype),
        grid=(4,),
        in_specs=[(block, {"scale": column})],
        out_specs=block,
        interpret=True,
    )((x, {"scale": scale}))


def case_partial_kernel(rng):
    def kernel(x_ref, o_ref, *, scale, shift):
        o_ref[...] = x_ref[...] * scale + shift

    x = rng.normal(size=(8, 16)).astype(np.float32)
    call = functools.partial(pl.pallas_call, out_shape=ShapeDtypeStruct(x.shape, x.dtype), interpret=True)
    return call(functools.partial(kernel, scale=2.0, shift=1))(x), call(functools.partial(kernel, scale=3, shift=-1.5))(
        x
    )


@dataclasses.dataclass(frozen=True)
class Scale:
    """A kernel that is an object."""

    factor: float

    def __call__(self, x_ref, o_ref):
        o_ref[...] = x_ref[...] * self.factor

    def method(self, x_ref, o_ref):
        o_ref[...] = x_ref[...] + self.factor


def case_callable_object_kernel(rng):
    x = rng.normal(size=(8, 16)).astype(np.float32)
    out_shape = ShapeDtypeStruct(x.shape, x.dtype)
    by_call = pl.pallas_call(Scale(2.5), out_shape, interpret=True)(x)
    by_method = pl.pallas_call(Scale(0.5).method, out_shape, interpret=True)(x)
    return by_call, by_method


def case_kernel_as_a_decorated_function(rng):
    x = rng.normal(size=(8, 16)).astype(np.float32)

    @functools.partial(pl.pallas_call, out_shape=ShapeDtypeStruct(x.shape, x.dtype), interpret=True, name="negate")
    def negate(x_ref, o_ref):
        o_ref[...] = -x_ref[...]

    return negate(negate(x) + 1)


def case_kernel_that_closes_over_numbers(rng):
    x = rng.normal(size=(8, 16)).astype(np.float32)
    results = []
    for power in (1, 2, 3):

        def kernel(x_ref, o_ref, power=power):
            o_ref[...] = x_ref[...] ** power + len(results)

        results.append(pl.pallas_call(kernel, out_shape=ShapeDtypeStruct(x.shape, x.dtype), interpret=True)(x))
    return results


def case_memory_spaces_of_blocks(rng):
    """A scalar in SMEM, a whole array that stays where it is, and an output in VMEM."""

    def kernel(scale_ref, table_ref, x_ref, o_ref):
        i = pl.program_id(0)
        o_ref[...] = x_ref[...] * scale_ref[0] + table_ref[pl.ds(i * 4, 4), :]

    x, table = rng.normal(size=(8, 16)).astype(np.float32), rng.normal(size=(8, 16)).astype(np.float32)
    block = pl.BlockSpec((4, 16), lambda i: (i, 0), memory_space=pltpu.VMEM)
    return pl.pallas_call(
        kernel,
        out_shape=ShapeDtypeStruct(x.shape, x.dtype),
        grid=(2,),
        in_specs=[pl.BlockSpec(memory_space=pltpu.SMEM), pl.BlockSpec(memory_space=pl.ANY), block],
        out_specs=block,
        interpret=True,
    )(np.array([3.0], np.float32), table, x)


def case_cost_estimate_and_dimension_semantics(rng):
    x = rng.normal(size=(8, 16)).astype(np.float32)
    spec = pl.BlockSpec((4, 8), lambda i, j: (i, j))
    return pl.pallas_call(
        double,
        out_shape=ShapeDtypeStruct(x.shape, x.dtype),
        grid=(2, 2),
        in_specs=[spec],
        out_specs=spec,
        cost_estimate=pl.CostEstimate(flops=x.size, transcendentals=0, bytes_accessed=2 * x.nbytes),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "arbitrary")),
        name="double",
        metadata={"purpose": "an example"},
        interpret=True,
    )(x)


def case_estimated_cost(rng):
    x, y = rng.normal(size=(16, 32)).astype(np.float32), rng.normal(size=(32, 8)).astype(np.float32)
    costs = [pl.estimate_cost(jnp.dot, x, y), pl.estimate_cost(jnp.exp, x)]
    return np.array([[cost.flops, cost.transcendentals, cost.bytes_accessed] for cost in costs], np.int64)


def case_three_axes_run_in_row_major_order(rng):
    """Each step writes its number into a log kept in a revisited output."""

    def kernel(o_ref, count_ref):
        i, j, k = pl.program_id(0), pl.program_id(1), pl.program_id(2)

        @pl.when((i == 0) & (j == 0) & (k == 0))
        def _():
            count_ref[0] = 0
            o_ref[...] = jnp.zeros_like(o_ref)

        o_ref[count_ref[0]] = i * 100 + j * 10 + k
        count_ref[0] += 1

    return pl.pallas_call(
        kernel,
        out_shape=ShapeDtypeStruct((12,), np.int32),
        grid=(2, 3, 2),
        scratch_shapes=[pltpu.SMEM((1,), jnp.int32)],
        interpret=True,
    )()


def case_an_output_block_wider_than_its_array_keeps_its_columns(rng):
    """The sums past the edge last for the steps of a row; the last step brings one of them inside."""

    def kernel(x_ref, o_ref):
        @pl.when(pl.program_id(1) == 0)
        def _():
            o_ref[...] = jnp.zeros_like(o_ref)

        o_ref[...] += x_ref[...]

        @pl.when(pl.program_id(1) == 1)
        def _():
            o_ref[:, 0:1] = o_ref[:, 5:6]

    x = rng.normal(size=(3, 256)).astype(np.float32)
    return pl.pallas_call(
        kernel,
        out_shape=ShapeDtypeStruct((3, 1), x.dtype),
        grid=(3, 2),
        in_specs=[pl.BlockSpec((1, 128), lambda i, j: (i, j))],
        out_specs=pl.BlockSpec((1, 128), lambda i, j: (i, 0)),
        interpret=True,
    )(x)


def case_no_grid_and_several_outputs(rng):
    def kernel(x_ref, y_ref, sum_ref, product_ref, equal_ref):
        sum_ref[...] = x_ref[...] + y_ref[...]
        product_ref[...] = x_ref[...] * y_ref[...]
        equal_ref[...] = x_ref[...] == y_ref[...]

    x, y = rng.integers(0, 4, (2, 4, 8)).astype(np.int16)
    out_shape = (
        ShapeDtypeStruct(x.shape, x.dtype),
        ShapeDtypeStruct(x.shape, x.dtype),
        ShapeDtypeStruct(x.shape, np.bool_),
    )
    return pl.pallas_call(kernel, out_shape=out_shape, interpret=True)(x, y)


def case_arrays_of_no_axes(rng):
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...] + 1

    scalar = pl.pallas_call(kernel, out_shape=ShapeDtypeStruct((), np.float32), interpret=True)
    return scalar(np.float32(2.5)), scalar(np.array(3.5, np.float32))
