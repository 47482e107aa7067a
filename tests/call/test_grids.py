"""Grids, scratch, revisited outputs and aliases."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

import palladio as pl
import palladio.numpy as jnp
import palladio.tpu as pltpu
from palladio import lax

F32 = np.dtype(np.float32)
INT32 = np.dtype(np.int32)
LEAST = np.iinfo(np.int32).min


def described(shape: tuple[int, ...], dtype: Any = F32) -> pl.ShapeDtypeStruct:
    return pl.ShapeDtypeStruct(shape, dtype)


def write_id(o_ref: Any) -> None:
    o_ref[...] = jnp.full(o_ref.shape, pl.program_id(0), jnp.int32)


ROW = pl.BlockSpec((1,), lambda i: (i,))


@pytest.mark.parametrize("grid", [3, (3,), [3], (np.int64(3),), (("rows", 3),)], ids=repr)
def test_the_ways_to_write_a_static_grid(grid: Any) -> None:
    assert pl.pallas_call(write_id, described((3,), INT32), grid=grid, out_specs=ROW)().tolist() == [0, 1, 2]


def test_without_a_grid_the_kernel_runs_once() -> None:
    def kernel(o_ref: Any) -> None:
        o_ref[...] = jnp.ones_like(o_ref)

    assert pl.pallas_call(kernel, described((2,)))().tolist() == [1, 1]


def test_the_last_axis_runs_fastest() -> None:
    def kernel(o_ref: Any, count_ref: Any) -> None:
        @pl.when((pl.program_id(0) == 0) & (pl.program_id(1) == 0))
        def _() -> None:
            count_ref[...] = jnp.zeros_like(count_ref)

        o_ref[...] = count_ref[...]
        count_ref[...] += 1

    spec = pl.BlockSpec((1, 1), lambda i, j: (i, j))
    call = pl.pallas_call(
        kernel, described((2, 3), INT32), grid=(2, 3), out_specs=spec, scratch_shapes=[pltpu.VMEM((1, 1), INT32)]
    )
    assert call().tolist() == [[0, 1, 2], [3, 4, 5]]


def test_a_grid_spec_stands_for_its_arguments() -> None:
    spec = pl.GridSpec((3,), out_specs=ROW)
    assert pl.pallas_call(write_id, described((3,), INT32), grid_spec=spec)().tolist() == [0, 1, 2]


def test_named_axes() -> None:
    def kernel(o_ref: Any) -> None:
        where = lax.axis_index("rows") * lax.axis_size("columns") + lax.axis_index("columns")
        o_ref[...] = jnp.full((1, 1), where, jnp.int32)

    spec = pl.BlockSpec((1, 1), lambda i, j: (i, j))
    result = pl.pallas_call(kernel, described((2, 3), INT32), grid=(("rows", 2), ("columns", 3)), out_specs=spec)()
    assert result.tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize("library", ["numpy", "torch", "jax"])
def test_a_dynamic_size_is_a_scalar_array(library: str) -> None:
    if library == "torch":
        torch = pytest.importorskip("torch")
        size = torch.tensor(2)
    elif library == "jax":
        size = pytest.importorskip("jax.numpy").asarray(2)
    else:
        size = np.array(2, np.int64)
    result = pl.pallas_call(write_id, described((3,), INT32), grid=(size,), out_specs=ROW)()
    assert result.tolist() == [0, 1, LEAST]


def test_one_preparation_serves_every_dynamic_size() -> None:
    traced = []

    def kernel(o_ref: Any) -> None:
        traced.append(pl.num_programs(0))
        o_ref[...] = jnp.full((1,), pl.num_programs(0), jnp.int32)

    found = []
    for size in (1, 3):
        call = pl.pallas_call(kernel, described((3,), INT32), grid=(np.array(size),), out_specs=ROW)
        found.append(call.program().input_types)
        assert call()[0] == size
    assert pl.is_traced(traced[0])
    assert found[0] == found[1]


def test_a_dynamic_size_among_static_ones() -> None:
    def kernel(o_ref: Any) -> None:
        o_ref[...] = jnp.full((1, 1), pl.num_programs(0) * 10 + pl.num_programs(1), jnp.int32)

    spec = pl.BlockSpec((1, 1), lambda i, j: (i, j))
    result = pl.pallas_call(kernel, described((2, 2), INT32), grid=(2, np.array(1, np.int32)), out_specs=spec)()
    assert result.tolist() == [[21, LEAST], [21, LEAST]]


@pytest.mark.parametrize("semantics", [("parallel", "arbitrary"), (pltpu.PARALLEL, pltpu.ARBITRARY)])
def test_dimension_semantics_change_no_result(semantics: Any) -> None:
    spec = pl.BlockSpec((1, 1), lambda i, j: (i, j))
    call = pl.pallas_call(
        write_id,
        described((2, 2), INT32),
        grid=(2, 2),
        out_specs=spec,
        compiler_params=pltpu.CompilerParams(dimension_semantics=semantics),
    )
    assert call().tolist() == [[0, 0], [1, 1]]


# Scratch.


def running_sum(x_ref: Any, o_ref: Any, sum_ref: Any) -> None:
    @pl.when(pl.program_id(0) == 0)
    def _() -> None:
        sum_ref[...] = jnp.zeros_like(sum_ref)

    sum_ref[...] += x_ref[...]
    o_ref[...] = sum_ref[...]


def summing(kernel: Any, scratch: Any) -> np.ndarray:
    call = pl.pallas_call(kernel, described((4,)), grid=(4,), in_specs=[ROW], out_specs=ROW, scratch_shapes=scratch)
    return call(np.arange(4, dtype=np.float32))


class Buffers(NamedTuple):
    total: Any
    other: Any


VECTOR = pltpu.VMEM((1,), F32)


def test_scratch_persists_over_steps_and_not_over_calls() -> None:
    for _ in range(2):
        assert summing(running_sum, [VECTOR]).tolist() == [0, 1, 3, 6]


def test_scratch_starts_uninitialised() -> None:
    def kernel(x_ref: Any, o_ref: Any, buffer_ref: Any) -> None:
        o_ref[...] = buffer_ref[...]

    assert np.isnan(summing(kernel, [VECTOR])).all()


def test_one_buffer_needs_no_list() -> None:
    assert summing(running_sum, VECTOR).tolist() == [0, 1, 3, 6]


def test_a_mapping_of_scratch_comes_by_keyword() -> None:
    def kernel(x_ref: Any, o_ref: Any, *, unused_ref: Any, sum_ref: Any) -> None:
        running_sum(x_ref, o_ref, sum_ref)

    scratch = {"sum_ref": VECTOR, "unused_ref": pltpu.SMEM((2,), INT32)}
    assert summing(kernel, scratch).tolist() == [0, 1, 3, 6]


def test_nested_scratch_comes_in_its_structure() -> None:
    def kernel(x_ref: Any, o_ref: Any, first: Any, second: Any) -> None:
        assert first["sum"].shape == (1,)
        assert second[1].total.dtype == INT32
        running_sum(x_ref, o_ref, first["sum"])

    scratch = [{"sum": VECTOR}, (VECTOR, Buffers(pltpu.SMEM((), INT32), VECTOR))]
    assert summing(kernel, scratch).tolist() == [0, 1, 3, 6]


def test_scratch_types_is_another_spelling() -> None:
    call = pl.pallas_call(
        running_sum, out_type=described((4,)), grid=(4,), in_specs=[ROW], out_specs=ROW, scratch_types=[VECTOR]
    )
    assert call(np.ones(4, np.float32)).tolist() == [1, 2, 3, 4]


# Revisited outputs.


def test_a_revisited_output_holds_what_was_written() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        @pl.when(pl.program_id(0) == 0)
        def _() -> None:
            o_ref[...] = jnp.zeros_like(o_ref)

        o_ref[...] += x_ref[...]

    call = pl.pallas_call(kernel, described((1,)), grid=(4,), in_specs=[ROW], out_specs=pl.BlockSpec((1,)))
    assert call(np.arange(4, dtype=np.float32)).tolist() == [6]


def test_an_output_that_is_left_and_come_back_to() -> None:
    def kernel(o_ref: Any) -> None:
        step = pl.program_id(0)
        o_ref[...] = jnp.where(step < 2, step + 1, o_ref[...] * 10)

    spec = pl.BlockSpec((1,), lambda i: (i % 2,))
    assert pl.pallas_call(kernel, described((2,), INT32), grid=(4,), out_specs=spec)().tolist() == [10, 20]


def test_an_output_that_no_step_writes_is_uninitialised() -> None:
    call = pl.pallas_call(lambda o_ref: None, (described((2,)), described((2,), INT32)))
    floats, integers = pl.pallas_call(lambda f_ref, i_ref: None, (described((2,)), described((2,), INT32)))()
    assert np.isnan(floats).all()
    assert (integers == LEAST).all()
    del call


# Aliases.


def test_an_aliased_output_starts_as_its_input_which_stays() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] += 1

    x = np.arange(4, dtype=np.float32)
    second = pl.BlockSpec((2,), lambda i: (1,))
    call = pl.pallas_call(
        kernel, described((4,)), grid=(1,), in_specs=[second], out_specs=second, input_output_aliases={0: 0}
    )
    assert call(x).tolist() == [0, 1, 3, 4]
    assert x.tolist() == [0, 1, 2, 3]


def test_aliases_count_prefetched_scalars_and_flat_inputs() -> None:
    def kernel(at_ref: Any, x: Any, y_ref: Any, o_ref: Any, p_ref: Any) -> None:
        p_ref[at_ref[0]] = y_ref[0]

    spec = pltpu.PrefetchScalarGridSpec(num_scalar_prefetch=1, grid=(1,))
    x = {"a": np.zeros(2, np.float32), "b": np.full(3, 5, np.float32)}
    # 0: the scalars, 1: x["a"], 2: x["b"], 3: y
    call = pl.pallas_call(kernel, (described((2,)), described((3,))), grid_spec=spec, input_output_aliases={1: 0, 2: 1})
    first, second = call(np.array([1], np.int32), x, np.array([9], np.float32))
    assert first.tolist() == [0, 0]
    assert second.tolist() == [5, 9, 5]
    assert x["b"].tolist() == [5, 5, 5]


def test_prefetched_scalars_steer_blocks_and_come_first() -> None:
    def kernel(at_ref: Any, scale_ref: Any, x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] * scale_ref[pl.program_id(0)]

    spec = pl.PrefetchScalarGridSpec(
        num_scalar_prefetch=2,
        grid=(3,),
        in_specs=[pl.BlockSpec((1, 2), lambda i, at, scale: (at[i], 0))],
        out_specs=pl.BlockSpec((1, 2), lambda i, *scalars: (i, 0)),
    )
    x = np.arange(8, dtype=np.float32).reshape(4, 2)
    at, scale = np.array([3, 0, 3], np.int32), np.array([1, 10, 100], np.float32)
    assert pl.pallas_call(kernel, described((3, 2)), grid_spec=spec)(at, scale, x).tolist() == [
        [6, 7],
        [0, 10],
        [600, 700],
    ]


def test_a_kernel_may_write_its_prefetched_scalars() -> None:
    def kernel(at_ref: Any, o_ref: Any) -> None:
        at_ref[0] += 1
        o_ref[pl.program_id(0)] = at_ref[0]

    at = np.array([5], np.int32)
    spec = pl.PrefetchScalarGridSpec(num_scalar_prefetch=1, grid=(2,))
    assert pl.pallas_call(kernel, described((2,), INT32), grid_spec=spec)(at).tolist() == [6, 7]
    assert at.tolist() == [5]


def test_a_dynamic_grid_size_may_be_an_array_of_one_number() -> None:
    def count(out: Any) -> None:
        out[0] = pl.program_id(0)

    @pl.jit
    def last(n: Any) -> Any:
        return pl.pallas_call(count, pl.ShapeDtypeStruct((1,), np.int32), grid=(n,))()

    assert last(np.array([5], np.int32)) == 4
