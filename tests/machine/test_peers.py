"""Copies into the shared memory of several blocks: who has come to the scope that it belongs to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.gpu as plgpu

X = np.arange(8, dtype=np.float32)


def call(x: Any, *, meet: bool) -> Any:
    """Each block of a cluster gets all of x by copies that both make, in a scope."""

    def body(x_gmem: Any, out: Any, filled: Any, met: Any) -> None:
        def scoped(whole: Any) -> None:
            if meet:
                plgpu.barrier_arrive_and_wait(met)
            plgpu.copy_gmem_to_smem(x_gmem, whole, filled, collective_axes="block")
            plgpu.barrier_wait(filled)
            out[pl.axis_index("block")] = whole[...]
            plgpu.barrier_arrive_and_wait(met)

        pl.run_scoped(scoped, plgpu.SMEM(X.shape, X.dtype), collective_axes="thread")

    return plgpu.kernel(
        body,
        pl.ShapeDtypeStruct((2, *X.shape), X.dtype),
        scratch_types=[plgpu.Barrier(), plgpu.ClusterBarrier(collective_axes="block")],
        cluster=(2,),
        cluster_names=("block",),
        num_threads=1,
        thread_name="thread",
    )(x)


def test_blocks_that_meet_in_a_scope_copy_for_each_other() -> None:
    report = pl.check(lambda: call(X, meet=True), schedules=8)
    assert report.ok, report
    np.testing.assert_array_equal(call(X, meet=True), [X, X])


def test_a_copy_to_a_block_that_has_not_come_to_the_scope_is_found() -> None:
    (finding,) = pl.check(lambda: call(X, meet=False), schedules=1).findings
    assert finding.code == "copy-target-in-use"
    assert finding.message == (
        "whole (f32[8] in smem) is copied to in a block of the cluster that has not come to its scope yet"
    )
    assert "plgpu.ClusterBarrier" in finding.missing


def test_without_the_checker_it_is_an_error_of_its_own() -> None:
    with pl.executor("reference"), pytest.raises(pl.PalladioValueError) as error:
        call(X, meet=False)
    assert str(error.value).startswith(
        "whole: a copy for several blocks of a cluster starts before they have all come to the scope of its buffer\n"
        "  hint:     a barrier of the cluster between the beginning of the scope and the copy: plgpu.ClusterBarrier\n"
    )
