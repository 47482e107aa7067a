"""Addresses of the buffers of a block, and accesses still in flight in memory that was given back."""

from __future__ import annotations

import linecache
from typing import Any

import numpy as np

import palladio as pl
import palladio.gpu as plgpu
import palladio.numpy as jnp
from palladio.machine.run.addresses import Addresses
from palladio.machine.run.buffers import Buffer
from palladio.types.attributes import SwizzleTransform
from palladio.types.types import SMEM, RefType

X = np.arange(64, dtype=np.float32)


def buffer(elements: int, swizzled: bool = False) -> Buffer:
    """Shared memory of a number of float32."""
    attributes = (SwizzleTransform(128),) if swizzled else ()
    array = np.zeros(elements, np.float32)
    return Buffer(RefType(array.shape, array.dtype, SMEM, attributes), "buffer", None, array)


def test_buffers_lie_one_after_the_other_at_multiples_of_128_bytes() -> None:
    memory, buffers = Addresses(), [buffer(8), buffer(33), buffer(8)]
    for each in buffers:
        memory.place(each)
    assert [each.address for each in buffers] == [0, 128, 384]


def test_swizzled_buffers_lie_at_multiples_of_1024_bytes() -> None:
    memory, buffers = Addresses(), [buffer(8), buffer(8, swizzled=True), buffer(8)]
    for each in buffers:
        memory.place(each)
    assert [each.address for each in buffers] == [0, 1024, 128]


def test_a_buffer_gets_the_first_room_that_is_large_enough() -> None:
    memory, buffers = Addresses(), [buffer(32), buffer(64), buffer(32)]
    for each in buffers:
        memory.place(each)
    memory.free(buffers[0])
    memory.free(buffers[1])
    large, small = buffer(65), buffer(32)
    memory.place(large)
    memory.place(small)
    assert (large.address, small.address) == (0, 512)


def stored_then(size: int, part: slice) -> Any:
    """A copy out of a scope's 64 elements, and a scope of this size that writes to a part of its memory meanwhile."""

    def body(x: Any, out: Any) -> None:
        def first(tile: Any) -> None:
            tile[...] = x[...]
            plgpu.commit_smem()
            plgpu.copy_smem_to_gmem(tile, out)

        def second(tile: Any) -> None:
            tile[part] = jnp.zeros(part.stop - part.start, np.float32)

        pl.run_scoped(first, plgpu.SMEM((64,), np.float32))
        pl.run_scoped(second, plgpu.SMEM((size,), np.float32))
        plgpu.wait_smem_to_gmem(0)

    return plgpu.kernel(body, pl.ShapeDtypeStruct(X.shape, X.dtype))


def levels(call: Any) -> list[tuple[str, str, int]]:
    """Codes, levels and numbers of participants of a check's findings."""
    found = pl.check(call, X, schedules=4).findings
    return [(each.code, each.level, len(each.participants)) for each in found]


def test_the_next_owner_of_the_bytes_must_not_use_them() -> None:
    assert levels(stored_then(128, slice(0, 128))) == [("scope-in-use", "error", 3)]
    assert levels(stored_then(128, slice(63, 64))) == [("scope-in-use", "error", 3)]


def test_the_next_owner_may_use_other_bytes() -> None:
    assert levels(stored_then(128, slice(64, 128))) == [("scope-in-use", "hint", 2)]


def parties(call: Any) -> list[tuple[str, str, str]]:
    """Thread, action and source line of each participant of a check's only finding, an error."""
    (found,) = pl.check(call, X, schedules=8).findings
    assert (found.code, found.level) == ("scope-in-use", "error")
    lines = [(each, linecache.getline(each.location.file, each.location.line)) for each in found.participants]
    return [(each.thread, each.did, line.strip()) for each, line in lines]


def test_the_report_names_the_next_owner_the_operation_and_the_end_of_its_scope() -> None:
    assert parties(stored_then(128, slice(0, 128))) == [
        ("block 0 thread", "writes it, by store", "tile[part] = jnp.zeros(part.stop - part.start, np.float32)"),
        ("block 0 thread", "starts copy_smem_to_gmem, which reads it", "plgpu.copy_smem_to_gmem(tile, out)"),
        ("block 0 thread", "leaves the scope", "pl.run_scoped(first, plgpu.SMEM((64,), np.float32))"),
    ]


def test_the_three_parties_may_be_three_threads() -> None:
    """Thread 0 copies out of a scope that thread 2 leaves last; thread 1 is the first to use the next one."""

    def body(x: Any, out: Any, left: Any) -> None:
        wg = pl.axis_index("wg")

        def first(tile: Any) -> None:
            @pl.when(wg == 0)
            def _() -> None:
                tile[...] = x[...]
                plgpu.commit_smem()
                plgpu.copy_smem_to_gmem(tile, out)

            pl.when(wg == 2)(lambda: plgpu.barrier_wait(left))

        def second(tile: Any) -> None:
            pl.when(wg == 1)(lambda: tile.__setitem__(..., x[...]))

        pl.run_scoped(first, plgpu.SMEM((64,), np.float32), collective_axes="wg")
        pl.when(wg < 2)(lambda: plgpu.barrier_arrive(left))
        pl.run_scoped(second, plgpu.SMEM((64,), np.float32), collective_axes="wg")
        plgpu.wait_smem_to_gmem(0)

    call = plgpu.kernel(
        body,
        pl.ShapeDtypeStruct(X.shape, X.dtype),
        scratch_types=[plgpu.Barrier(num_arrivals=2)],
        num_threads=3,
        thread_name="wg",
    )
    assert [(thread, did.partition(",")[0]) for thread, did, _ in parties(call)] == [
        ("block 0 wg 1", "writes it"),
        ("block 0 wg 0", "starts copy_smem_to_gmem"),
        ("block 0 wg 2", "leaves the scope"),
    ]
