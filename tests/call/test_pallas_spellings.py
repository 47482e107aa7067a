"""Forms of arguments that kernels written for Pallas use."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy
import numpy as np
import pytest
import torch

import palladio as pl
import palladio.gpu as plgpu
import palladio.numpy as jnp
import palladio.tpu as pltpu
from tests.errors.shown import shows

X = np.arange(64, dtype=np.float32).reshape(8, 8)
OUT = pl.ShapeDtypeStruct((8, 8), np.float32)


@pytest.mark.parametrize("array", [X, torch.zeros(8, 8), jax.numpy.zeros((8, 8)), OUT])
def test_a_description_like_an_array(array: Any) -> None:
    assert pl.ShapeDtypeStruct.like(array) == OUT


def test_a_description_like_a_bfloat16_tensor_and_a_reference() -> None:
    seen = []

    def kernel(x_ref: Any, o_ref: Any) -> None:
        seen.append(pl.ShapeDtypeStruct.like(x_ref))
        o_ref[...] = x_ref[...]

    pl.pallas_call(kernel, pl.ShapeDtypeStruct.like(torch.zeros(3, dtype=torch.bfloat16)))(
        torch.zeros(3, dtype=torch.bfloat16)
    )
    assert seen[0] == pl.ShapeDtypeStruct((3,), jnp.bfloat16)


def test_specs_are_dataclasses_that_can_be_changed() -> None:
    spec = pl.BlockSpec((2, None), lambda i: (i, 0))
    changed = dataclasses.replace(spec, memory_space=pl.ANY, block_shape=(4, 8))
    assert (changed.block_shape, changed.index_map, changed.memory_space) == ((4, 8), spec.index_map, pl.ANY)
    changed = dataclasses.replace(plgpu.BlockSpec((2, 8), delay_release=1, collective_axes="x"), delay_release=2)
    assert (changed.delay_release, changed.collective_axes) == (2, ("x",))


@pytest.mark.parametrize("interpret", [True, False])
def test_an_array_of_one_barrier_is_that_barrier(interpret: bool) -> None:
    def kernel(x_ref: Any, o_ref: Any, buffer: Any, one: Any, four: Any) -> None:
        plgpu.copy_gmem_to_smem(x_ref, buffer, one)
        plgpu.barrier_wait(one)
        plgpu.barrier_arrive(four.at[2:4].at[1:2])
        plgpu.barrier_wait(four.at[3])
        o_ref[...] = buffer[...]

    scratch = [plgpu.SMEM((8, 8), np.float32), plgpu.Barrier(num_barriers=1), plgpu.Barrier(num_barriers=4)]
    assert np.array_equal(plgpu.kernel(kernel, OUT, scratch_types=scratch, interpret=interpret)(X), X)


def test_the_index_and_size_along_several_axes() -> None:
    def kernel(o_ref: Any) -> None:
        o_ref[pl.axis_index(("a", "b"))] = pl.axis_index(["b", "a"]) + 10 * pl.axis_size(("a", "b"))

    out = plgpu.kernel(kernel, pl.ShapeDtypeStruct((6,), np.int32), grid=(2, 3), grid_names=("a", "b"))()
    assert out.tolist() == [60 + b * 2 + a for a in range(2) for b in range(3)]


def test_a_call_without_outputs() -> None:
    seen = []
    assert pl.pallas_call(lambda x_ref: seen.append(x_ref.shape), out_shape=None)(X) is None
    assert seen == [(8, 8)]


def test_a_kernel_may_capture_an_array_of_one_element() -> None:
    factor = np.array([[3]], np.float32)

    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] * factor

    call = pl.pallas_call(kernel, OUT)
    assert np.array_equal(call(X), 3 * X)
    factor[0, 0] = 4
    assert np.array_equal(call(X), 4 * X)


def test_an_in_place_operator_gives_a_name_a_traced_value() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        total = count = np.zeros((), np.float32)
        total += x_ref[0, 1]
        total *= 2
        o_ref[...] = x_ref[...] + total + count

    assert np.array_equal(pl.pallas_call(kernel, OUT)(X), X + 2)


def test_out_of_a_numpy_function_is_refused_still() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        total = np.zeros((), np.float32)
        np.add(total, x_ref[0, 0], out=total)

    with pytest.raises(TypeError, match="add has no parameter 'out'"):
        pl.pallas_call(kernel, OUT)(X)


@pytest.mark.parametrize("semaphore", [pltpu.SemaphoreType.REGULAR, pltpu.SemaphoreType.DMA((1,))])
@pytest.mark.parametrize("interpret", [None, True, "simulator"])
def test_copies_with_other_semaphores(semaphore: Any, interpret: Any) -> None:
    def kernel(x_ref: Any, o_ref: Any, sem: Any) -> None:
        pltpu.async_copy(x_ref, o_ref, sem, priority=1).wait()

    call = pl.pallas_call(kernel, OUT, scratch_shapes=[semaphore], interpret=interpret)
    assert np.array_equal(call(X), X)


@pytest.mark.parametrize("interpret", [None, "simulator"])
def test_select_ref_chooses_semaphores(interpret: Any) -> None:
    def kernel(x_ref: Any, o_ref: Any, first: Any, second: Any, counters: Any) -> None:
        step = pl.program_id(0)
        copy = pltpu.make_async_copy(x_ref, o_ref, pl.select_ref(step, first, second))
        copy.start(priority=0)
        counter = pl.select_ref(step, counters.at[0], counters.at[1])
        pl.semaphore_signal(counter, 3)
        copy.wait()
        pl.semaphore_wait(counter, pl.semaphore_read(counter))

    dma, regular = pltpu.SemaphoreType.DMA, pltpu.SemaphoreType.REGULAR((2,))
    call = pl.pallas_call(kernel, OUT, grid=(2,), scratch_shapes=[dma, dma, regular], interpret=interpret)
    assert np.array_equal(call(X), X)


@pytest.mark.filterwarnings("ignore::palladio.NotCompiledWarning")
@pytest.mark.parametrize("size", [4, np.int32(4)])
@pytest.mark.parametrize("interpret", [None, True])
def test_index_maps_read_the_size_of_the_grid(size: Any, interpret: Any) -> None:
    def kernel(shift: Any, x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] + shift["by"][0]

    spec = pltpu.PrefetchScalarGridSpec(
        1,
        grid=(size,),
        in_specs=[pl.BlockSpec((2, 8), lambda i, s: (pl.num_programs(0) - 1 - i - s["zero"][0], 0))],
        out_specs=pl.BlockSpec((2, 8), lambda i, s: (pl.program_id(0), 0)),
    )
    scalars = {"by": np.int32([5]), "zero": np.int32([0])}
    call = pl.pallas_call(kernel, OUT, grid_spec=spec, input_output_aliases={2: 0}, interpret=interpret)
    expected = X.reshape(4, 2, 8).copy()
    for step in range(4):  # the input is the output
        expected[step] = expected[3 - step] + 5
    assert np.array_equal(call(scalars, X), expected.reshape(8, 8))
    assert np.array_equal(pl.jit(call)(scalars, X), expected.reshape(8, 8))


def test_arguments_of_a_scoped_function_by_keyword() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        @pl.with_scoped(pltpu.VMEM((8, 8), np.float32))
        def scaled(x: Any, scratch: Any, *, by: Any) -> Any:
            scratch[...] = x * by
            return scratch[...]

        o_ref[...] = scaled(x_ref[...], by=3.0)

    assert np.array_equal(pl.pallas_call(kernel, OUT)(X), 3 * X)


def test_atomics_on_all_of_a_reference() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...]
        plgpu.atomic_add(o_ref, x_ref[...])
        plgpu.atomic_max(o_ref.at[0], x_ref[7])

    expected = 2 * X
    expected[0] = X[7]
    assert np.array_equal(pl.pallas_call(kernel, OUT)(X), expected)


def test_a_reference_is_printed_by_what_it_holds(capsys: Any) -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        pl.debug_print("{} and {}", x_ref.at[0, 0:2], x_ref.at[1, 1])
        o_ref[...] = x_ref[...]

    pl.pallas_call(kernel, OUT, interpret=True)(X)
    assert capsys.readouterr().out == "[0. 1.] and 9.0\n"


def test_a_layout_of_matrices_fits_stacks_of_them() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = plgpu.layout_cast(x_ref[...], plgpu.Layout.WGMMA)

    x = np.zeros((2, 2, 64, 8), np.float32)
    assert np.array_equal(plgpu.kernel(kernel, pl.ShapeDtypeStruct.like(x))(x), x)


def test_layouts_of_blackwell_are_refused_where_a_kernel_uses_them() -> None:
    def kernel(o_ref: Any) -> None:
        o_ref[...] = plgpu.layout_cast(jnp.zeros((64, 8)), plgpu.Layout.TCGEN05_TMEM_NATIVE(2).reduce(1))

    with shows(
        NotImplementedError,
        """
        Layout.TCGEN05_TMEM_NATIVE needs a Blackwell GPU (sm_100), which no executor of Palladio has
          hint:     on Hopper an accumulator has plgpu.Layout.WGMMA
          test_pallas_spellings.py:N, in kernel
            o_ref[...] = plgpu.layout_cast(jnp.zeros((64, 8)), plgpu.Layout.TCGEN05_TMEM_NATIVE(2).reduce(1))
                         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        plgpu.kernel(kernel, pl.ShapeDtypeStruct((64, 8), np.float32))()


def test_a_kernel_without_outputs_may_have_a_parameter_for_them() -> None:
    seen: list[Any] = []

    def kernel(x_ref: Any, nothing: Any) -> None:
        seen.append(nothing)

    pl.pallas_call(kernel, None, grid=(2,))(np.ones(4, np.float32))
    pl.pallas_call(lambda x_ref: None, None, grid=(2,))(np.ones(4, np.float32))
    assert seen == [None]


@pytest.mark.parametrize("out_shape", [None, ()])
def test_a_default_of_a_kernel_without_outputs_stands(out_shape: Any) -> None:
    seen: list[Any] = []

    def kernel(x_ref: Any, scale: Any = 3) -> None:
        seen.append(scale)

    pl.pallas_call(kernel, out_shape, grid=(1,))(np.ones(2, np.float32))
    assert seen == [3]


def test_only_none_in_place_of_outputs_is_passed_to_the_kernel() -> None:
    seen: list[Any] = []

    def kernel(x_ref: Any, nothing: Any, scale: Any = 3) -> None:
        seen.append((nothing, scale))

    pl.pallas_call(kernel, None, grid=(1,))(np.ones(2, np.float32))
    assert seen == [(None, 3)]
    with pytest.raises(pl.PalladioTypeError, match="the kernel takes other parameters than the call has references"):
        pl.pallas_call(kernel, (), grid=(1,))(np.ones(2, np.float32))
