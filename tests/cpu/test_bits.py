"""References and values seen as elements of another width: parts of elements, and several of them together."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.gpu as plgpu
import palladio.numpy as jnp
import palladio.tpu as pltpu
from palladio.cpu.executor import NotCompiledWarning
from palladio.types.dtypes import DType

WIDTHS = [np.uint8, np.uint16, np.uint32, np.uint64]
SHAPE = (8, 6)


def bits_like(shape: tuple[int, ...], dtype: Any) -> Any:
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.frombuffer(np.random.default_rng(0).bytes(size), dtype).reshape(shape)


def agrees(kernel: Callable[..., None], *inputs: Any, parallel: bool = False) -> None:
    """A kernel that changes a copy of its first input is compiled, and does what the definition says."""
    found = []
    semantics = pltpu.CompilerParams(dimension_semantics=("parallel",)) if parallel else None
    for executor in ("cpu", "reference"):
        call = pl.pallas_call(
            kernel,
            pl.ShapeDtypeStruct(inputs[0].shape, inputs[0].dtype),
            grid=(1,),
            input_output_aliases={0: 0},
            compiler_params=semantics,
            interpret=executor,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("error", NotCompiledWarning)
            found.append(np.asarray(call(*inputs)))
    np.testing.assert_array_equal(found[0].view(np.uint8), found[1].view(np.uint8))


def changed(view: Callable[..., Any]) -> Callable[..., None]:
    """A kernel that adds to each element of a view of its output what stands at the other end of it."""

    def kernel(x: Any, *rest: Any) -> None:
        *given, out = rest
        part = view(out, *given)
        old = part[...]
        part[...] = old + old[::-1]

    return kernel


@pytest.mark.parametrize("there", WIDTHS)
@pytest.mark.parametrize("here", WIDTHS)
def test_a_whole_array(here: Any, there: Any) -> None:
    agrees(changed(lambda out: pltpu.bitcast(out, there)), bits_like(SHAPE, here))


@pytest.mark.parametrize("there", WIDTHS)
@pytest.mark.parametrize("at", [1, -2, 6], ids=["inside", "before the first", "after the last"])
def test_after_a_dynamic_slice(there: Any, at: int) -> None:
    view = changed(lambda out, start: pltpu.bitcast(out.at[pl.ds(start[0], 4)], there))
    agrees(view, bits_like(SHAPE, np.uint16), np.array([at], np.int32))


def test_in_front_of_a_dynamic_slice() -> None:
    view = changed(lambda out, start: pltpu.bitcast(out, np.uint8).at[pl.ds(start[0], 5)])
    agrees(view, bits_like(SHAPE, np.uint16), np.array([13], np.int32))


def test_there_and_back_again_through_a_transpose() -> None:
    def view(out: Any) -> Any:
        return pltpu.bitcast(pltpu.bitcast(out, np.uint8).transpose(1, 0), np.uint16)

    agrees(changed(view), bits_like(SHAPE, np.uint32))


@pytest.mark.parametrize("there", [np.uint8, np.uint32])
def test_rows_of_an_index_array(there: Any) -> None:
    def kernel(x: Any, rows: Any, out: Any) -> None:
        part = pltpu.bitcast(out.at[rows[...]], there)
        part[...] = part[...] ^ jnp.full(part.shape, 0x5A, there)

    agrees(kernel, bits_like(SHAPE, np.uint16), np.array([3, 0, 9, 6], np.int32))


def test_floats_that_are_outside_are_seen_as_the_bits_of_uninitialised_ones() -> None:
    def kernel(x: Any, start: Any, out: Any) -> None:
        out[...] = pltpu.bitcast(pltpu.bitcast(x.at[pl.ds(start[0], 8)], np.uint16)[...], np.float32)

    agrees(kernel, bits_like(SHAPE, np.float32), np.array([5], np.int32))


@pytest.mark.parametrize("there", [np.uint8, np.uint32])
def test_under_a_mask(there: Any) -> None:
    def kernel(x: Any, out: Any) -> None:
        part = pltpu.bitcast(out, there)
        plgpu.store(part, jnp.full(part.shape, 7, there), mask=jnp.arange(part.shape[1])[None, :] % 2 == 0)

    agrees(kernel, bits_like(SHAPE, np.uint16))


@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("there", [np.uint16, np.uint64])
def test_atomic_operations(there: Any, parallel: bool) -> None:
    def kernel(x: Any, out: Any) -> None:
        part = pltpu.bitcast(out, there)
        old = plgpu.atomic_add(part, (pl.ds(0, 2), pl.ds(1, 2)), jnp.full((2, 2), 65000, there))
        part[2:4, 3:5] = old
        equal = part[0, 0] + 0
        plgpu.atomic_cas(part.at[0, 0], equal, equal + 1)

    agrees(kernel, bits_like(SHAPE, np.uint32), parallel=parallel)


def test_a_scalar_value_in_another_shape() -> None:
    def kernel(x: Any, out: Any) -> None:
        @pl.run_state
        def run(ref: Any) -> None:
            ref.reshape(1, 1)[...] = ref.reshape(1, 1)[...] + 1

        out[...] = x[...] + run(x[0, 0])

    agrees(kernel, bits_like(SHAPE, np.uint32))


def test_a_scalar_value_of_another_dtype() -> None:
    dtype: DType = np.dtype(np.int32)

    def kernel(x: Any, out: Any) -> None:
        @pl.run_state
        def run(ref: Any) -> None:
            out[...] = x[...] + ref.bitcast(dtype)[...].astype(np.uint32)

        run(x[0, 0])

    agrees(kernel, bits_like(SHAPE, np.uint32))


@pytest.mark.parametrize("start", [0, 3, 5, -7])
def test_what_is_outside_has_the_bits_of_the_dtype_before(start: int) -> None:
    """A guard before a bitcast: of one element, of a row, of narrower elements."""

    def kernel(x: Any, n: Any, one: Any, row: Any, bytes: Any) -> None:
        one[0] = x.at[n[0], 0].bitcast(np.float32)[...]
        row[...] = x.at[pl.ds(n[0], 2)].bitcast(np.float32)[...]
        bytes[...] = x.at[pl.ds(n[0], 2)].bitcast(np.int8)[...]

    x = np.arange(20, dtype=np.int32).reshape(5, 4) + 2**20
    shapes = [((1,), np.float32), ((2, 4), np.float32), ((8, 4), np.int8)]
    results = []
    for executor in ("cpu", "reference"):
        probe = pl.pallas_call(kernel, [pl.ShapeDtypeStruct(*each) for each in shapes], interpret=executor)
        results.append([np.asarray(each).tobytes() for each in probe(x, np.array([start], np.int32))])
    assert results[0] == results[1]
