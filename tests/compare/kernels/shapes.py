"""Functions that make, reshape, join and cut arrays."""

import jax.numpy as jnp
import ml_dtypes
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


def case_reshape(rng):
    x = rng.normal(size=(4, 6, 8)).astype(np.float32)
    functions = [
        lambda x: x.reshape(24, 8),
        lambda x: jnp.reshape(x, (4, 48)),
        lambda x: x.reshape(-1),
        lambda x: x.reshape((2, -1, 3)),
        lambda x: lax.reshape(x, (8, 24)),
        jnp.ravel,
        lambda x: x.flatten(),
    ]
    return outputs(functions, x, shapes=[(24, 8), (4, 48), (192,), (2, 32, 3), (8, 24), (192,), (192,)])


def case_broadcast(rng):
    x = rng.normal(size=(6, 1)).astype(np.float32)
    functions = [
        lambda x: jnp.broadcast_to(x, (6, 8)),
        lambda x: jnp.broadcast_to(x, (4, 6, 8)),
        lambda x: lax.broadcast(x, (3, 2)),
        lambda x: lax.broadcast_in_dim(x, (6, 5, 1), (0, 2)),
        lambda x: lax.broadcast_in_dim(x, (5, 6, 7), (1, 2)),
        lambda x: x + jnp.zeros((3, 1, 4)),
        lambda x: jnp.broadcast_to(2.0, (4, 4)),
    ]
    return outputs(functions, x, shapes=[(6, 8), (4, 6, 8), (3, 2, 6, 1), (6, 5, 1), (5, 6, 7), (3, 6, 4), (4, 4)])


def case_transpose(rng):
    x = rng.normal(size=(2, 3, 5)).astype(np.float32)
    functions = [
        lambda x: x.T,
        jnp.transpose,
        lambda x: x.transpose(1, 2, 0),
        lambda x: jnp.transpose(x, (0, 2, 1)),
        lambda x: lax.transpose(x, (2, 0, 1)),
        lambda x: jnp.swapaxes(x, 0, 2),
        lambda x: jnp.moveaxis(x, 0, -1),
        lambda x: x.mT,
    ]
    shapes = [(5, 3, 2), (5, 3, 2), (3, 5, 2), (2, 5, 3), (5, 2, 3), (5, 3, 2), (3, 5, 2), (2, 5, 3)]
    return outputs(functions, x, shapes=shapes)


def case_join(rng):
    x, y = rng.normal(size=(2, 4, 6)).astype(np.float32)
    functions = [
        lambda x, y: jnp.concatenate([x, y]),
        lambda x, y: jnp.concatenate([x, y, x[:, :2]], axis=1),
        lambda x, y: lax.concatenate([x, y], 1),
        lambda x, y: jnp.stack([x, y]),
        lambda x, y: jnp.stack([x, y], axis=-1),
        lambda x, y: jnp.hstack([x, y]),
        lambda x, y: jnp.vstack([x, y]),
    ]
    return outputs(functions, x, y, shapes=[(8, 6), (4, 14), (4, 12), (2, 4, 6), (4, 6, 2), (4, 12), (8, 6)])


def case_pad(rng):
    x = rng.normal(size=(4, 6)).astype(np.float32)
    functions = [
        lambda x: jnp.pad(x, 1),
        lambda x: jnp.pad(x, ((0, 2), (3, 1)), constant_values=-1.0),
        lambda x: lax.pad(x, 0.5, ((1, 2, 0), (0, 1, 0))),
        lambda x: lax.pad(x, 0.0, ((0, 0, 1), (1, 1, 2))),
        lambda x: lax.pad(x, 0.0, ((-1, 0, 0), (-1, -2, 0))),
    ]
    return outputs(functions, x, shapes=[(6, 8), (6, 10), (7, 7), (7, 18), (3, 3)])


def case_flip_and_roll(rng):
    x = rng.normal(size=(4, 6)).astype(np.float32)
    functions = [
        jnp.flip,
        lambda x: jnp.flip(x, axis=1),
        lambda x: lax.rev(x, (0,)),
        lambda x: x[::-1],
        lambda x: jnp.roll(x, 2, axis=1),
        lambda x: jnp.roll(x, -1, axis=0),
    ]
    return outputs(functions, x, shapes=[(4, 6)] * 6)


def case_unit_axes(rng):
    x = rng.normal(size=(1, 4, 1, 6)).astype(np.float32)
    functions = [
        jnp.squeeze,
        lambda x: jnp.squeeze(x, axis=0),
        lambda x: lax.squeeze(x, (2,)),
        lambda x: jnp.expand_dims(x, 0),
        lambda x: lax.expand_dims(x[0, :, 0], (0, 2)),
        lambda x: x[0, :, 0, :][:, None, :],
        lambda x: x.squeeze()[None, ..., None],
        lambda x: jnp.atleast_2d(x[0, 0, 0]),
    ]
    shapes = [(4, 6), (4, 1, 6), (1, 4, 6), (1, 1, 4, 1, 6), (1, 4, 1, 6), (4, 1, 6), (1, 4, 6, 1), (1, 6)]
    return outputs(functions, x, shapes=shapes)


def case_repeat_and_tile(rng):
    x = rng.normal(size=(2, 3)).astype(np.float32)
    functions = [
        lambda x: jnp.repeat(x, 3, axis=0),
        lambda x: jnp.repeat(x, 2, axis=1),
        lambda x: jnp.tile(x, (2, 2)),
        lambda x: jnp.tile(x, 3),
    ]
    return outputs(functions, x, shapes=[(6, 3), (2, 6), (4, 6), (2, 9)])


def case_split(rng):
    x = rng.normal(size=(6, 8)).astype(np.float32)
    functions = [
        lambda x: jnp.split(x, 2, axis=1)[1],
        lambda x: jnp.split(x, [1, 4])[1],
        lambda x: jnp.split(x, 3)[0] * 2,
    ]
    return outputs(functions, x, shapes=[(6, 4), (3, 8), (2, 8)])


def case_constant_arrays(rng):
    x = rng.normal(size=(4, 8)).astype(np.float32)
    functions = [
        lambda x: jnp.zeros((4, 8), jnp.float32),
        lambda x: jnp.ones((4, 8)),
        lambda x: jnp.full((4, 8), 2.5, jnp.float32),
        lambda x: jnp.full((4, 8), x[0, 0]),
        jnp.zeros_like,
        jnp.ones_like,
        lambda x: jnp.full_like(x, -1),
        lambda x: lax.full((4, 8), 3.0, jnp.float32),
        lambda x: lax.full_like(x, 7.0),
        lambda x: jnp.eye(4, 8, dtype=jnp.float32),
    ]
    return outputs(functions, x, shapes=[(4, 8)] * len(functions))


def case_counting_arrays(rng):
    x = np.zeros((4, 8), np.int32)
    functions = [
        lambda x: lax.broadcasted_iota(jnp.int32, (4, 8), 0),
        lambda x: lax.broadcasted_iota(jnp.int32, (4, 8), 1),
        lambda x: lax.iota(jnp.int32, 8)[None, :] + x,
        lambda x: jnp.arange(8) + x,
        lambda x: jnp.arange(2, 10) + x,
        lambda x: jnp.arange(16, 0, -2) + x,
        lambda x: jnp.arange(4, dtype=jnp.int32)[:, None] * jnp.arange(8, dtype=jnp.int32)[None, :],
    ]
    return outputs(functions, x, shapes=[(4, 8)] * len(functions), dtype=np.int32)


def case_counting_in_other_dtypes(rng):
    def kernel(f_ref, b_ref, u_ref, lin_ref):
        f_ref[...] = jnp.arange(0.0, 2.0, 0.25)
        b_ref[...] = lax.broadcasted_iota(jnp.bfloat16, (4, 8), 1)
        u_ref[...] = lax.broadcasted_iota(jnp.uint8, (4, 8), 0)
        lin_ref[...] = jnp.linspace(0.0, 1.0, 5)

    kinds = [((8,), np.float32), ((4, 8), ml_dtypes.bfloat16), ((4, 8), np.uint8), ((5,), np.float32)]
    return pl.pallas_call(kernel, out_shape=[ShapeDtypeStruct(*kind) for kind in kinds], interpret=True)()


def case_triangles(rng):
    x = rng.normal(size=(6, 6)).astype(np.float32)
    functions = [
        jnp.tril,
        jnp.triu,
        lambda x: jnp.tril(x, -1),
        lambda x: jnp.triu(x, 2),
        lambda x: jnp.where(jnp.tri(6, dtype=jnp.bool_), x, -jnp.inf),
    ]
    return outputs(functions, x, shapes=[(6, 6)] * len(functions))


def case_turned_and_cut(rng):
    x = rng.normal(size=(4, 6)).astype(np.float32)
    functions = [
        jnp.flipud,
        jnp.fliplr,
        jnp.rot90,
        lambda x: jnp.rot90(x, 2),
        lambda x: jnp.array_split(x, 4, axis=1)[1],
        lambda x: jnp.permute_dims(x, (1, 0)),
        lambda x: jnp.broadcast_arrays(x, jnp.zeros((2, 4, 6)))[0],
        lambda x: x + jnp.identity(6)[:4],
        lambda x: jnp.atleast_1d(x[0, 0]),
    ]
    return outputs(functions, x, shapes=[(4, 6), (4, 6), (6, 4), (4, 6), (4, 2), (6, 4), (2, 4, 6), (4, 6), (1,)])


def case_several_conditions(rng):
    x = rng.integers(-9, 10, (4, 8)).astype(np.int32)
    functions = [
        lambda x: jnp.select([x < -3, x < 3], [x - 100, x * 0], 7),
        lambda x: jnp.bitwise_count(x).astype(jnp.int32),
        lambda x: jnp.bitwise_left_shift(x, 2) + jnp.bitwise_right_shift(x, 1) + jnp.bitwise_invert(x),
    ]
    return outputs(functions, x, shapes=[(4, 8)] * 3, dtype=np.int32)


def case_collapse(rng):
    x = rng.normal(size=(2, 3, 4, 5)).astype(np.float32)
    functions = [lambda x: lax.collapse(x, 1, 3), lambda x: lax.collapse(x, 2), lambda x: lax.collapse(x, 0, -1)]
    return outputs(functions, x, shapes=[(2, 12, 5), (2, 3, 20), (24, 5)])


def case_diagonals(rng):
    x = rng.normal(size=(4, 6)).astype(np.float32)
    functions = [
        jnp.diagonal,
        lambda x: jnp.diagonal(x, 2),
        lambda x: jnp.diagonal(x, -1, 1, 0),
        lambda x: x.diagonal(-2),
        jnp.trace,
        lambda x: x.trace(offset=1),
        lambda x: jnp.diag(x[0]),
        lambda x: jnp.diag(x[:, 0], -2),
        lambda x: jnp.diag(x[:, 0], 1),
        lambda x: jnp.diag(x, 3),
    ]
    shapes = [(4,), (4,), (4,), (2,), (), (), (6, 6), (6, 6), (5, 5), (3,)]
    return outputs(functions, x, shapes=shapes)


def case_grids_and_columns(rng):
    x, y = rng.normal(size=(2, 4)).astype(np.float32)
    functions = [
        lambda x, y: jnp.meshgrid(x, y[:3])[0],
        lambda x, y: jnp.meshgrid(x, y[:3])[1],
        lambda x, y: jnp.meshgrid(x, y[:3], indexing="ij")[1],
        lambda x, y: jnp.meshgrid(x, y[:3], sparse=True)[0],
        lambda x, y: jnp.column_stack((x, y, jnp.zeros((4, 2)))),
        lambda x, y: jnp.dstack((x, y)),
        lambda x, y: jnp.concat([x, y]),
        lambda x, y: jnp.unstack(jnp.stack([x, y], 1), axis=1)[1],
        lambda x, y: jnp.hsplit(jnp.stack([x, y]), 2)[1],
        lambda x, y: jnp.vsplit(jnp.stack([x, y]), 2)[1],
        lambda x, y: jnp.dsplit(jnp.dstack((x, y)), 2)[1],
        lambda x, y: jnp.matrix_transpose(jnp.stack([x, y])),
        lambda x, y: jnp.copy(x) + x.copy(),
    ]
    shapes = [(3, 4), (3, 4), (4, 3), (1, 4), (4, 4), (1, 4, 2), (8,), (4,), (2, 2), (1, 4), (1, 4, 1), (4, 2), (4,)]
    return outputs(functions, x, y, shapes=shapes)
