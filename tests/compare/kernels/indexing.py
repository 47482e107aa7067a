"""Slices of values, static and dynamic, and gathers."""

import jax.numpy as jnp
import numpy as np
from jax import ShapeDtypeStruct, lax
from jax.experimental import pallas as pl


def outputs(functions, *arrays, shapes, dtype=np.float32):
    """Each function of the arrays' values, as an output of its own of the shape that stands beside it."""

    def kernel(*refs):
        values = [ref[...] for ref in refs[: len(arrays)]]
        for function, out_ref in zip(functions, refs[len(arrays) :]):
            out_ref[...] = function(*values)

    out_shape = [ShapeDtypeStruct(shape, dtype) for shape in shapes]
    return pl.pallas_call(kernel, out_shape=out_shape, interpret=True)(*arrays)


def case_static_slices_of_values(rng):
    x = rng.normal(size=(8, 12)).astype(np.float32)
    functions = [
        lambda x: x[2:5],
        lambda x: x[-3:, :4],
        lambda x: x[1::3, ::2],
        lambda x: x[::-2],
        lambda x: x[3],
        lambda x: x[-1, 2:],
        lambda x: x[..., 5],
        lambda x: x[None, 2:4, None, 1],
        lambda x: lax.slice(x, (1, 2), (7, 12), (2, 5)),
        lambda x: lax.slice_in_dim(x, 2, 6, axis=1),
        lambda x: lax.index_in_dim(x, 3, axis=1, keepdims=False),
    ]
    shapes = [(3, 12), (3, 4), (3, 6), (4, 12), (12,), (10,), (8,), (1, 2, 1), (3, 2), (8, 4), (8,)]
    return outputs(functions, x, shapes=shapes)


def case_dynamic_slice_clamps(rng):
    def kernel(at_ref, x_ref, o_ref):
        x = x_ref[...]
        for n in range(5):
            o_ref[n] = lax.dynamic_slice(x, (at_ref[n, 0], at_ref[n, 1]), (3, 4))

    at = np.array([[0, 0], [2, 5], [7, 1], [1, 100], [-2, 3]], np.int32)
    x = rng.normal(size=(8, 12)).astype(np.float32)
    return pl.pallas_call(kernel, out_shape=ShapeDtypeStruct((5, 3, 4), x.dtype), interpret=True)(at, x)


def case_dynamic_update_slice_clamps(rng):
    def kernel(at_ref, x_ref, part_ref, o_ref):
        for n in range(4):
            o_ref[n] = lax.dynamic_update_slice(x_ref[...], part_ref[...], (at_ref[n, 0], at_ref[n, 1]))

    at = np.array([[0, 0], [2, 5], [7, 1], [1, 100]], np.int32)
    x, part = rng.normal(size=(8, 12)).astype(np.float32), rng.normal(size=(3, 4)).astype(np.float32)
    return pl.pallas_call(kernel, out_shape=ShapeDtypeStruct((4, 8, 12), x.dtype), interpret=True)(at, x, part)


def case_dynamic_index_in_dim(rng):
    def kernel(at_ref, x_ref, row_ref, column_ref, window_ref, updated_ref):
        x, at = x_ref[...], at_ref[0]
        row_ref[...] = lax.dynamic_index_in_dim(x, at, axis=0, keepdims=False)
        column_ref[...] = lax.dynamic_index_in_dim(x, at, axis=1)
        window_ref[...] = lax.dynamic_slice_in_dim(x, at, 3, axis=1)
        updated_ref[...] = lax.dynamic_update_index_in_dim(x, jnp.zeros((12,)), at, axis=0)

    x = rng.normal(size=(8, 12)).astype(np.float32)
    out_shape = [ShapeDtypeStruct(shape, x.dtype) for shape in [(12,), (8, 1), (8, 3), (8, 12)]]
    return pl.pallas_call(kernel, out_shape=out_shape, interpret=True)(np.array([5], np.int32), x)


def case_value_indexed_by_a_traced_scalar(rng):
    def kernel(at_ref, x_ref, row_ref, cell_ref):
        x = x_ref[...]
        row_ref[...] = x[at_ref[0]]
        cell_ref[0] = x[at_ref[0], at_ref[1]]

    x = rng.normal(size=(8, 12)).astype(np.float32)
    out_shape = [ShapeDtypeStruct((12,), x.dtype), ShapeDtypeStruct((1,), x.dtype)]
    return pl.pallas_call(kernel, out_shape=out_shape, interpret=True)(np.array([6, 2], np.int32), x)


def case_take(rng):
    x = rng.normal(size=(8, 12)).astype(np.float32)
    at = rng.integers(0, 8, (5,)).astype(np.int32)
    functions = [
        lambda x, at: jnp.take(x, at, axis=0),
        lambda x, at: jnp.take(x, at, axis=1),
        lambda x, at: x[at],
        lambda x, at: x[:, at],
        lambda x, at: x[at, at],
        lambda x, at: x[at[:, None], at[None, :]],
    ]
    return outputs(functions, x, at, shapes=[(5, 12), (8, 5), (5, 12), (8, 5), (5,), (5, 5)])


def case_take_along_axis(rng):
    x = rng.normal(size=(8, 12)).astype(np.float32)
    rows = rng.integers(0, 8, (3, 12)).astype(np.int32)
    columns = rng.integers(0, 12, (8, 4)).astype(np.int32)
    functions = [
        lambda x, rows, columns: jnp.take_along_axis(x, rows, axis=0),
        lambda x, rows, columns: jnp.take_along_axis(x, columns, axis=1),
    ]
    return outputs(functions, x, rows, columns, shapes=[(3, 12), (8, 4)])


def case_take_modes_past_the_end(rng):
    x = rng.normal(size=(8, 4)).astype(np.float32)
    at = np.array([0, 7, 8, 100, -1], np.int32)
    functions = [
        lambda x, at: jnp.take(x, at, axis=0, mode="clip"),
        lambda x, at: jnp.take(x, at, axis=0, mode="wrap"),
        lambda x, at: jnp.take_along_axis(
            x, jnp.broadcast_to(at[:, None] % 3, (5, 4)), axis=0, mode="promise_in_bounds"
        ),
        lambda x, at: jnp.take(x, at, axis=0, mode="fill", fill_value=-7.0),
    ]
    return outputs(functions, x, at, shapes=[(5, 4)] * 4)


def case_gather_of_integers(rng):
    table = rng.integers(-100, 100, (16,)).astype(np.int8)
    at = rng.integers(0, 16, (4, 8)).astype(np.int32)
    return outputs([lambda table, at: table[at], jnp.take], table, at, shapes=[(4, 8)] * 2, dtype=np.int8)


def case_general_gathers(rng):
    x = rng.normal(size=(6, 5, 8)).astype(np.float32)
    at = rng.integers(-2, 8, (4, 3, 2)).astype(np.int32)
    numbers = lax.GatherDimensionNumbers
    rows = numbers(offset_dims=(1, 3), collapsed_slice_dims=(1,), start_index_map=(1, 2))
    paired = numbers(
        offset_dims=(0,),
        collapsed_slice_dims=(1,),
        start_index_map=(2, 1),
        operand_batching_dims=(0,),
        start_indices_batching_dims=(0,),
    )
    functions = [
        lambda x, at: lax.gather(x, at, rows, (6, 1, 3), mode="fill"),
        lambda x, at: lax.gather(x, at, rows, (6, 1, 3), mode="clip"),
        lambda x, at: lax.gather(x, at, rows, (2, 1, 3), mode=lax.GatherScatterMode.FILL_OR_DROP, fill_value=-7.0),
        lambda x, at: lax.gather(x[:4], at, paired, (1, 1, 3), mode="fill"),
        lambda x, at: lax.gather(x[:4], abs(at) % 4, paired, (1, 1, 3)),
        lambda x, at: lax.gather(x, at[0, 0], numbers((0,), (1, 2), (1, 2)), (6, 1, 1), mode="clip"),
    ]
    shapes = [(4, 6, 3, 3), (4, 6, 3, 3), (4, 2, 3, 3), (3, 4, 3), (3, 4, 3), (6,)]
    return outputs(functions, x, at, shapes=shapes)


def case_gathers_of_integers_filled(rng):
    table = rng.integers(0, 100, (16,))
    at = rng.integers(-4, 20, (5, 1)).astype(np.int32)
    numbers = lax.GatherDimensionNumbers((), (0,), (0,))
    return [
        outputs(
            [lambda x, at: lax.gather(x, at, numbers, (1,), mode="fill")],
            table.astype(kind),
            at,
            shapes=[(5,)],
            dtype=kind,
        )
        for kind in (np.int8, np.uint8, np.int32, np.uint32)
    ]


def case_functional_updates(rng):
    x = rng.normal(size=(8, 12)).astype(np.float32)
    functions = [
        lambda x: x.at[2].set(0.0),
        lambda x: x.at[1:3, ::2].add(5.0),
        lambda x: x.at[:, 0].multiply(2.0),
        lambda x: x.at[-1, -1].set(x[0, 0]),
    ]
    return outputs(functions, x, shapes=[(8, 12)] * len(functions))


def case_updates_along_one_axis(rng):
    def kernel(n_ref, x_ref, *out_refs):
        x, n = x_ref[...], n_ref[0]
        out_refs[0][...] = lax.dynamic_update_slice_in_dim(x, x[:2] * 10, n, 0)
        out_refs[1][...] = lax.dynamic_update_slice_in_dim(x, x[:, :3] * 10, n + 20, axis=1)
        out_refs[2][...] = lax.dynamic_update_slice_in_dim(x, x[:, :3] * 10, -n, axis=1)
        out_refs[3][...] = lax.stop_gradient(lax.optimization_barrier(lax.dynamic_update_index_in_dim(x, x[0], n, 0)))

    x = rng.normal(size=(6, 8)).astype(np.float32)
    out_shape = [ShapeDtypeStruct(x.shape, x.dtype)] * 4
    return pl.pallas_call(kernel, out_shape=out_shape, interpret=True)(np.array([3], np.int32), x)
