"""Buffers that share memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.gpu as plgpu
import palladio.numpy as jnp
from palladio.call.launch import launch_call
from tests.dialect.kernels import found, kernel

UNION = plgpu.RefUnion(plgpu.SMEM((2, 3), np.float32), (plgpu.SMEM((6,), np.int32), plgpu.SMEM((3,), np.float16)))


def reinterpret(o_ref: Any, union: Any) -> None:
    """Write through one group, read through the other."""
    floats, (integers, _) = union
    floats[...] = jnp.arange(6, dtype=np.float32).reshape(2, 3)
    o_ref[...] = integers[...]


def test_groups_lie_in_one_place() -> None:
    result = kernel(reinterpret, (6,), scratch_types=[UNION])()
    assert result.view(np.float32).tolist() == [0, 1, 2, 3, 4, 5]


def test_run_scoped_allocates_unions_too() -> None:
    def body(o_ref: Any) -> None:
        pl.run_scoped(lambda union: reinterpret(o_ref, union), UNION)

    assert kernel(body, (6,))().view(np.float32).tolist() == [0, 1, 2, 3, 4, 5]


def test_the_buffers_of_a_group_lie_apart() -> None:
    def body(o_ref: Any, union: Any) -> None:
        first, second = union[1]
        first[...] = jnp.arange(6, dtype=np.int32)
        second[...] = jnp.zeros((3,), np.float16)
        o_ref[...] = first[...]

    assert kernel(body, (6,), scratch_types=[UNION])().tolist() == [0, 1, 2, 3, 4, 5]


def test_a_union_takes_the_bytes_of_its_largest_group_each_buffer_aligned() -> None:
    assert UNION.size_bytes == 1024 + 6
    assert str(UNION.ref_type) == "ref<smem, u8[1030]>"


def test_members_are_sources_and_targets_of_copies_and_operands_of_products() -> None:
    def body(a_ref: Any, b_ref: Any, o_ref: Any, union: Any, acc: Any, full: Any) -> None:
        (a, b), result = union
        plgpu.copy_gmem_to_smem(a_ref, a, full)
        plgpu.copy_gmem_to_smem(b_ref, b, full)
        plgpu.barrier_wait(full)
        plgpu.wgmma(acc, a, b)
        result[...] = acc[...]
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(result, o_ref)
        plgpu.wait_smem_to_gmem(0)

    half = plgpu.SMEM((8, 8), np.float16)
    scratch = [plgpu.RefUnion((half, half), plgpu.SMEM((8, 8), np.float32)), plgpu.ACC((8, 8))]
    run = kernel(body, (8, 8), np.float32, scratch_types=[*scratch, plgpu.Barrier(num_arrivals=2)])
    a, b = np.eye(8, dtype=np.float16), np.arange(64, dtype=np.float16).reshape(8, 8)
    assert np.array_equal(run(a, b), b)
    assert found(run, a, b) == set()


def test_threads_that_use_different_groups_at_once_race() -> None:
    def body(o_ref: Any, union: Any) -> None:
        first, second = union
        pl.when(pl.axis_index("wg") == 0)(lambda: first.set(jnp.ones((2,), np.int32)))
        pl.when(pl.axis_index("wg") == 1)(lambda: second.set(jnp.ones((4,), np.int16)))

    scratch = [plgpu.RefUnion(plgpu.SMEM((2,), np.int32), plgpu.SMEM((4,), np.int16))]
    assert found(kernel(body, num_threads=2, thread_name="wg", scratch_types=scratch)) == {"data-race"}


def test_a_call_with_a_union_is_prepared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    run = kernel(reinterpret, (6,), scratch_types=[UNION])
    run()
    monkeypatch.setattr(launch_call, "stage", None)
    run()
    kernel(reinterpret, (6,), scratch_types=[UNION])()
