"""Copies of cores: each raises a semaphore by its bytes, and waits take them off."""

from __future__ import annotations

from typing import Any

import numpy as np

import palladio as pl
import palladio.numpy as jnp
import palladio.tpu as pltpu
from tests.litmus.pairs import F32, Case, X, pair

ROWS = np.stack([X, X + 8])
DMA = pltpu.SemaphoreType.DMA


def _case(body: Any, *args: Any, out: Any, scratch: Any) -> Case:
    result = pl.ShapeDtypeStruct(out.shape, out.dtype)
    call = pl.kernel(body, result, mesh=pltpu.TensorCoreMesh(axis_name="core"), scratch_types=scratch)
    return Case(call, args, (out,))


@pair("copy-not-awaited")
def a_core_waits_for_its_copy(broken: bool) -> Case:
    def body(x: Any, out: Any, buffer: Any, back: Any, arrived: Any) -> None:
        copy = pltpu.async_copy(x, buffer, arrived)
        if not broken:
            copy.wait()
        back[...] = buffer[...]
        if broken:
            copy.wait()
        pltpu.sync_copy(back, out)

    memory = pltpu.VMEM((8,), F32)
    return _case(body, X, out=X, scratch=[memory, memory, DMA])


@pair("copy-not-awaited")
def two_copies_at_one_semaphore_are_both_awaited(broken: bool) -> Case:
    def body(x: Any, out: Any, buffers: Any, back: Any, arrived: Any) -> None:
        copies = [pltpu.async_copy(x.at[n], buffers.at[n], arrived) for n in range(2)]
        copies[0].wait()
        if not broken:
            copies[1].wait()
        back[...] = buffers[0]
        if broken:
            copies[1].wait()
        pltpu.sync_copy(back, out)

    return _case(body, ROWS, out=X, scratch=[pltpu.VMEM((2, 8), F32), pltpu.VMEM((8,), F32), DMA])


@pair("copy-not-awaited")
def a_core_keeps_what_is_copied_out(broken: bool) -> Case:
    def body(x: Any, out: Any, buffer: Any, arrived: Any) -> None:
        pltpu.sync_copy(x, buffer)
        copy = pltpu.async_copy(buffer, out, arrived)
        if not broken:
            copy.wait()
        buffer[...] = buffer[...] + 1
        if broken:
            copy.wait()

    return _case(body, X, out=X, scratch=[pltpu.VMEM((8,), F32), DMA])


@pair("copy-target-in-use")
def a_core_copies_once_at_a_time_to_one_place(broken: bool) -> Case:
    def body(x: Any, out: Any, buffer: Any, arrived: Any) -> None:
        copies = []
        for n in range(2):
            copies.append(pltpu.async_copy(x.at[n], buffer, arrived))
            if not broken:
                copies[n].wait()
        if broken:
            for copy in copies:
                copy.wait()
        pltpu.sync_copy(buffer, out)

    return _case(body, ROWS, out=ROWS[1], scratch=[pltpu.VMEM((8,), F32), DMA])


@pair("copy-not-awaited")
def a_core_waits_for_a_copy_that_adds(broken: bool) -> Case:
    def body(x: Any, out: Any, buffer: Any, back: Any, arrived: Any) -> None:
        pltpu.sync_copy(x, buffer)
        copy = pltpu.async_copy(x, buffer, arrived, add=True)
        if not broken:
            copy.wait()
        back[...] = buffer[...]
        if broken:
            copy.wait()
        pltpu.sync_copy(back, out)

    memory = pltpu.VMEM((8,), F32)
    return _case(body, X, out=2 * X, scratch=[memory, memory, DMA])


@pair("copy-target-in-use")
def copies_to_one_place_at_once_all_add(broken: bool) -> Case:
    def body(x: Any, out: Any, buffer: Any, arrived: Any) -> None:
        buffer[...] = jnp.zeros((8,), F32)
        copies = [pltpu.async_copy(x.at[n], buffer, arrived, add=n == 0 or not broken) for n in range(2)]
        for copy in copies:
            copy.wait()
        pltpu.sync_copy(buffer, out)

    return _case(body, ROWS, out=ROWS[0] + ROWS[1], scratch=[pltpu.VMEM((8,), F32), DMA])


@pair("semaphore-not-drained")
def a_core_waits_for_every_copy(broken: bool) -> Case:
    def body(x: Any, out: Any, buffers: Any, arrived: Any) -> None:
        first = pltpu.async_copy(x.at[0], buffers.at[0], arrived.at[0])
        second = pltpu.async_copy(x.at[1], buffers.at[1], arrived.at[1])
        first.wait()
        if not broken:
            second.wait()
        pltpu.sync_copy(buffers.at[0], out)

    return _case(body, ROWS, out=X, scratch=[pltpu.VMEM((2, 8), F32), DMA((2,))])


def _grid(body: Any, *args: Any, out: Any, blocks: tuple[Any, Any], aliases: dict[int, int] | None = None) -> Case:
    """A kernel on a grid of two steps, which two cores share."""
    call = pl.pallas_call(
        body,
        pl.ShapeDtypeStruct(out.shape, out.dtype),
        grid=(2,),
        in_specs=[blocks[0]],
        out_specs=blocks[1],
        input_output_aliases=aliases or {},
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel",)),
        interpret=pltpu.InterpretParams(num_cores_or_threads=2, detect_races=True),
    )
    return Case(call, args, (out,))


ROW = pl.BlockSpec((1, 8), lambda i: (i, 0))


@pair("global-race")
def cores_that_share_a_grid_store_blocks_of_their_own(broken: bool) -> Case:
    def body(x: Any, out: Any) -> None:
        out[pl.program_id(0) if broken else 0] = x[0]

    return _grid(body, ROWS, out=ROWS, blocks=(ROW, pl.BlockSpec((2, 8), lambda i: (0, 0)) if broken else ROW))


@pair("global-race")
def a_core_fetches_blocks_that_no_other_core_stores(broken: bool) -> Case:
    def body(x: Any, out: Any) -> None:
        out[...] = x[...] + 1

    other = pl.BlockSpec((1, 8), lambda i: (1 - i, 0))
    return _grid(body, ROWS, out=ROWS + 1, blocks=(other if broken else ROW, ROW), aliases={0: 0})


@pair("global-race")
def cores_that_share_a_grid_write_parts_of_their_own_in_main_memory(broken: bool) -> Case:
    def body(x: Any, out: Any) -> None:
        pltpu.sync_copy(x, out.at[pl.ds(0 if broken else pl.program_id(0), 1)])

    return _grid(body, ROWS, out=ROWS, blocks=(ROW, pl.BlockSpec(memory_space=pl.ANY)))
