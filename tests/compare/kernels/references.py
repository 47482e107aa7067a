"""Indexing and transforming references, and writing through them."""

import jax.numpy as jnp
import numpy as np
from jax import ShapeDtypeStruct, lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def run(kernel, out_shape, *arrays, **options):
    return pl.pallas_call(kernel, out_shape=out_shape, interpret=True, **options)(*arrays)


def reads(functions, x, shapes):
    """Each function of the reference to `x`, as an output of its own of the shape that stands beside it."""

    def kernel(x_ref, *out_refs):
        for function, out_ref in zip(functions, out_refs):
            out_ref[...] = function(x_ref)

    return run(kernel, [ShapeDtypeStruct(shape, x.dtype) for shape in shapes], x)


def writes(functions, x):
    """What each function leaves in a reference that held `x` before."""

    def kernel(x_ref, *out_refs):
        for function, out_ref in zip(functions, out_refs):
            out_ref[...] = x_ref[...]
            function(out_ref)

    return run(kernel, [ShapeDtypeStruct(x.shape, x.dtype)] * len(functions), x)


def case_reads_at_static_places(rng):
    functions = [
        lambda ref: ref[...],
        lambda ref: ref[2],
        lambda ref: ref[1:4],
        lambda ref: ref[:, 3:7],
        lambda ref: ref[-1],
        lambda ref: ref[..., -2],
        lambda ref: ref[2, 5],
        lambda ref: ref[-4:-1, :-2],
        lambda ref: ref[:],
        lambda ref: ref[()],
    ]
    shapes = [(8, 12), (12,), (3, 12), (8, 4), (12,), (8,), (), (3, 10), (8, 12), (8, 12)]
    return reads(functions, rng.normal(size=(8, 12)).astype(np.float32), shapes)


def case_reads_of_slices_past_the_ends(rng):
    functions = [
        lambda ref: ref[5:99],
        lambda ref: ref[-99:3, 4:-1],
        lambda ref: ref[:, 2:77:5],
    ]
    shapes = [(3, 12), (3, 7), (8, 2)]
    return reads(functions, rng.normal(size=(8, 12)).astype(np.float32), shapes)


def case_reads_with_steps(rng):
    functions = [
        lambda ref: ref[::2],
        lambda ref: ref[1::3, ::4],
        lambda ref: ref[pl.ds(1, 3, 2)],
        lambda ref: ref[pl.ds(0, 4, stride=2), pl.ds(2, 5, stride=2)],
    ]
    shapes = [(4, 12), (3, 3), (3, 12), (4, 5)]
    return reads(functions, rng.normal(size=(8, 12)).astype(np.float32), shapes)


def case_reads_at_traced_places(rng):
    def kernel(at_ref, x_ref, row_ref, window_ref, tile_ref, cell_ref):
        i, j = at_ref[0], at_ref[1]
        row_ref[...] = x_ref[i]
        window_ref[...] = x_ref[pl.ds(j, 3)]
        tile_ref[...] = x_ref[pl.ds(i, 2), pl.dslice(j, 4)]
        cell_ref[0] = x_ref[j, i + 1]

    x = rng.normal(size=(8, 12)).astype(np.float32)
    out_shape = [ShapeDtypeStruct(shape, x.dtype) for shape in [(12,), (3, 12), (2, 4), (1,)]]
    return run(kernel, out_shape, np.array([5, 2], np.int32), x)


def case_traced_places_counted_from_the_end(rng):
    x = rng.normal(size=(4, 16)).astype(np.float32)

    def kernel(x_ref, row_ref, o_ref):
        o_ref[...] = x_ref[...]

        def step(i, last):
            o_ref[i - 3, 0] = x_ref[i - 3, 1]
            return last + x_ref[i - 4]

        row_ref[...] = lax.fori_loop(1, 4, step, x_ref[pl.program_id(0) - 1])

    out = [ShapeDtypeStruct((16,), np.float32), ShapeDtypeStruct(x.shape, np.float32)]
    return run(kernel, out, x, grid=(1,))


def case_reads_with_steps_from_traced_places(rng):
    def kernel(at_ref, x_ref, o_ref):
        o_ref[...] = x_ref[pl.ds(at_ref[0], 3, stride=2), pl.ds(1, 4)]

    x = rng.normal(size=(8, 12)).astype(np.float32)
    return run(kernel, ShapeDtypeStruct((3, 4), x.dtype), np.array([3], np.int32), x)


def case_reads_by_integer_arrays(rng):
    def kernel(at_ref, x_ref, rows_ref, pairs_ref, mixed_ref, grid_ref):
        at = at_ref[...]
        rows_ref[...] = x_ref[at]
        pairs_ref[...] = x_ref[at, at + 1]
        mixed_ref[...] = x_ref[at, 2]
        grid_ref[...] = x_ref[at[:, None], jnp.arange(3)[None, :]]

    x = rng.normal(size=(8, 12)).astype(np.float32)
    out_shape = [ShapeDtypeStruct(shape, x.dtype) for shape in [(5, 12), (5,), (5,), (5, 3)]]
    return run(kernel, out_shape, rng.integers(0, 8, (5,)).astype(np.int32), x)


def case_integer_array_beside_slices(rng):
    def kernel(at_ref, x_ref, rows_ref, columns_ref, all_ref):
        rows_ref[...] = x_ref[at_ref[...], 2:6]
        columns_ref[...] = x_ref[1:3, at_ref[...]]
        all_ref[...] = x_ref[:, jnp.arange(4)]

    x = rng.normal(size=(8, 12)).astype(np.float32)
    out_shape = [ShapeDtypeStruct(shape, x.dtype) for shape in [(3, 4), (2, 3), (8, 4)]]
    return run(kernel, out_shape, np.array([3, 1, 1], np.int32), x)


def case_writes_at_static_places(rng):
    def set_row(ref):
        ref[2] = jnp.zeros((12,))

    def set_slice(ref):
        ref[1:4, 2:] = jnp.ones((3, 10))

    def set_cell(ref):
        ref[-1, 3] = 7.0

    def set_column(ref):
        ref[:, 5] = jnp.arange(8, dtype=jnp.float32)

    def set_every_second(ref):
        ref[::2] = jnp.full((4, 12), 3.0)

    def set_scalar_broadcast(ref):
        ref[...] = jnp.full(ref.shape, 0.5, ref.dtype)

    functions = [set_row, set_slice, set_cell, set_column, set_every_second, set_scalar_broadcast]
    return writes(functions, rng.normal(size=(8, 12)).astype(np.float32))


def case_writes_at_traced_places(rng):
    def kernel(at_ref, x_ref, o_ref):
        o_ref[...] = jnp.zeros_like(o_ref)
        o_ref[at_ref[0]] = x_ref[0]
        o_ref[pl.ds(at_ref[1], 2), pl.ds(at_ref[2], 4)] = x_ref[1:3, :4]
        o_ref[at_ref[1] - 1, at_ref[2]] = 9.0

    x = rng.normal(size=(8, 12)).astype(np.float32)
    return run(kernel, ShapeDtypeStruct(x.shape, x.dtype), np.array([7, 3, 6], np.int32), x)


def case_writes_by_integer_arrays(rng):
    def kernel(at_ref, x_ref, rows_ref, cells_ref):
        rows_ref[...] = jnp.zeros_like(rows_ref)
        rows_ref[at_ref[...]] = x_ref[:4]
        cells_ref[...] = jnp.zeros_like(cells_ref)
        cells_ref[at_ref[...], at_ref[...]] = x_ref[0, :4]

    x = rng.normal(size=(8, 12)).astype(np.float32)
    return run(kernel, [ShapeDtypeStruct(x.shape, x.dtype)] * 2, rng.permutation(8)[:4].astype(np.int32), x)


def case_accumulating_writes(rng):
    def add(ref):
        ref[...] += 1.0

    def scale_row(ref):
        ref[2] *= 2.0

    def subtract_slice(ref):
        ref[1:3, ::2] -= 0.5

    def divide_column(ref):
        ref[:, -1] /= 3.0

    def add_cell(ref):
        ref[0, 0] += ref[1, 1]

    functions = [add, scale_row, subtract_slice, divide_column, add_cell]
    return writes(functions, rng.normal(size=(8, 12)).astype(np.float32))


def case_views_of_references(rng):
    functions = [
        lambda ref: ref.at[2:6][1:3],
        lambda ref: ref.at[3][4:8],
        lambda ref: ref.at[:, 2:10].at[1:3][0],
        lambda ref: ref.at[pl.ds(2, 4)].at[pl.ds(1, 2), 3][...],
        lambda ref: ref.at[1][...],
    ]
    shapes = [(2, 12), (4,), (8,), (2,), (12,)]
    return reads(functions, rng.normal(size=(8, 12)).astype(np.float32), shapes)


def case_writes_through_views(rng):
    def set_inner(ref):
        ref.at[2:6][1:3] = jnp.zeros((2, 12))

    def add_inner(ref):
        ref.at[:, 4:8][0] += 10.0

    def swap_helper(ref):
        view = ref.at[0]
        view[...] = ref[1]

    functions = [set_inner, add_inner, swap_helper]
    return writes(functions, rng.normal(size=(8, 12)).astype(np.float32))


def case_shape_and_dtype_of_references(rng):
    def kernel(x_ref, o_ref):
        rows, columns = x_ref.shape
        view = x_ref.at[1:3]
        facts = [rows, columns, x_ref.ndim, x_ref.size, len(view.shape), *view.shape, x_ref.dtype == jnp.float16]
        for index, fact in enumerate(facts):
            o_ref[index] = jnp.int32(fact)

    return run(kernel, ShapeDtypeStruct((8,), np.int32), rng.normal(size=(8, 12)).astype(np.float16))


def case_reshaped_references(rng):
    functions = [
        lambda ref: ref.reshape(4, 24)[1:3],
        lambda ref: ref.reshape(96)[...],
        lambda ref: ref.reshape((2, 4, 12))[1, 2],
        lambda ref: ref.at[2:6].reshape(2, 24)[...],
    ]
    shapes = [(2, 24), (96,), (12,), (2, 24)]
    return reads(functions, rng.normal(size=(8, 12)).astype(np.float32), shapes)


def case_bitcast_references(rng):
    def kernel(x_ref, bits_ref, half_ref):
        bits_ref[...] = x_ref.bitcast(jnp.int32)[...]
        half_ref[...] = x_ref.at[2:4].bitcast(jnp.uint32)[...]

    x = rng.normal(size=(8, 12)).astype(np.float32)
    return run(kernel, [ShapeDtypeStruct(x.shape, np.int32), ShapeDtypeStruct((2, 12), np.uint32)], x)


def case_masked_loads(rng):
    def kernel(x_ref, mask_ref, o_ref, part_ref):
        o_ref[...] = jnp.where(mask_ref[...], pltpu.load(x_ref, mask=mask_ref[...]), -1.0)
        part = pltpu.load(x_ref.at[2:4], mask=mask_ref[2:4])
        part_ref[...] = jnp.where(mask_ref[2:4], part, 0.0)

    x = rng.normal(size=(8, 12)).astype(np.float32)
    out_shape = [ShapeDtypeStruct(x.shape, x.dtype), ShapeDtypeStruct((2, 12), x.dtype)]
    return run(kernel, out_shape, x, rng.random(x.shape) < 0.5)


def case_masked_stores(rng):
    def kernel(x_ref, mask_ref, o_ref):
        o_ref[...] = jnp.zeros_like(o_ref)
        pltpu.store(o_ref, x_ref[...], mask=mask_ref[...])
        pltpu.store(o_ref.at[pl.ds(0, 2)], x_ref[2:4] * 10, mask=mask_ref[0:2])

    x = rng.normal(size=(8, 12)).astype(np.float32)
    return run(kernel, ShapeDtypeStruct(x.shape, x.dtype), x, rng.random(x.shape) < 0.5)


def case_swap_two_halves(rng):
    """Read both, then write both: the order of equations is what counts."""

    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...]
        upper, lower = o_ref[:4], o_ref[4:]
        o_ref[:4] = lower
        o_ref[4:] = upper

    x = rng.normal(size=(8, 12)).astype(np.float32)
    return run(kernel, ShapeDtypeStruct(x.shape, x.dtype), x)


def case_reference_methods(rng):
    def kernel(x_ref, o_ref, old_ref):
        o_ref.set(x_ref.get())
        old_ref[...] = o_ref.at[1].swap(jnp.zeros((12,), jnp.float32))
        o_ref.at[2].set(o_ref.at[3].get() * 2)

    x = rng.normal(size=(8, 12)).astype(np.float32)
    return run(kernel, [ShapeDtypeStruct(x.shape, x.dtype), ShapeDtypeStruct((12,), x.dtype)], x)


def case_reference_to_a_scalar(rng):
    def kernel(x_ref, o_ref, zero_ref):
        zero_ref[...] = x_ref[0, 0]
        zero_ref[()] += 1.0
        o_ref[...] = x_ref[...] + zero_ref[...]

    x = rng.normal(size=(4, 8)).astype(np.float32)
    return run(kernel, [ShapeDtypeStruct(x.shape, x.dtype), ShapeDtypeStruct((), x.dtype)], x)


def case_smem_scalars_and_vmem_scratch(rng):
    def kernel(x_ref, o_ref, sum_ref, copy_ref):
        copy_ref[...] = x_ref[...] * 2
        sum_ref[0] = jnp.int32(3)
        sum_ref[1] = sum_ref[0] * 4
        o_ref[...] = copy_ref[...] + sum_ref[1].astype(jnp.float32)

    x = rng.normal(size=(8, 16)).astype(np.float32)
    scratch = [pltpu.SMEM((2,), jnp.int32), pltpu.VMEM((8, 16), jnp.float32)]
    return run(kernel, ShapeDtypeStruct(x.shape, x.dtype), x, scratch_shapes=scratch)


def case_uninitialised_scratch(rng):
    """Unwritten elements are NaN or the least integer."""

    def kernel(f_ref, i_ref, u_ref, p_ref, h_ref, *scratch):
        for out_ref, scratch_ref in zip((f_ref, i_ref, u_ref, p_ref, h_ref), scratch):
            out_ref[...] = scratch_ref[...]

    kinds = [jnp.float32, jnp.int32, jnp.uint8, jnp.bool_, jnp.bfloat16]
    out_shape = [ShapeDtypeStruct((4,), kind) for kind in kinds]
    return run(kernel, out_shape, scratch_shapes=[pltpu.VMEM((4,), kind) for kind in kinds])


def case_loop_over_rows_of_a_reference(rng):
    def kernel(x_ref, o_ref):
        def row(i, largest):
            o_ref[i] = x_ref[i] - largest
            return jnp.maximum(largest, jnp.max(x_ref[i]))

        lax.fori_loop(0, 8, row, jnp.float32(0))

    x = rng.normal(size=(8, 12)).astype(np.float32)
    return run(kernel, ShapeDtypeStruct(x.shape, x.dtype), x)
