"""Placement: where each buffer of a launch lives, and what completes a barrier."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.gpu as plgpu
from palladio.base.errors import InternalError
from palladio.ir.core import Program
from palladio.lower import place
from palladio.lower.forms import PLACED
from palladio.lower.place import arrivals_of, placements
from palladio.ops.threads.launch import Launch, Placement
from palladio.passes.pipeline import ANY, Pass, run_passes
from palladio.trace.trace import stage
from palladio.trace.values import wrap

OUT = plgpu.SMEM((1,), np.int32)


def program(body: Any, scratch: list[Any], **mesh: Any) -> Program:
    """The program of a launch, as it was traced."""
    run = plgpu.kernel(body, pl.ShapeDtypeStruct((1,), np.int32), scratch_types=scratch, **mesh)
    return stage(lambda: (run(),), [], wrap, name="call").program


def placed(body: Any, scratch: list[Any], **mesh: Any) -> tuple[Placement, ...]:
    (eqn,) = run_passes(program(body, scratch, **mesh), [place]).eqns
    params: Launch = eqn.launch
    return params.placements


def nothing(out: Any, *scratch: Any) -> None:
    out[0] = np.int32(0)


def test_buffers_of_shared_memory_follow_each_other_aligned() -> None:
    scratch = [plgpu.SMEM((100,), np.float16), plgpu.Barrier(num_barriers=3), plgpu.SMEM((8, 64), np.float16)]
    found = placed(nothing, scratch)
    assert [(each.scope, each.bytes, each.offset) for each in found] == [
        ("block", 200, 0),
        ("block", 24, 256),
        ("block", 1024, 384),
    ]


def test_accumulators_belong_to_threads_and_semaphores_to_the_launch() -> None:
    found = placed(nothing, [plgpu.ACC((64, 8)), plgpu.SemaphoreType.REGULAR])
    assert [(each.scope, each.offset) for each in found] == [("thread", None), ("launch", None)]


def test_named_barriers_take_no_shared_memory() -> None:
    (found,) = placed(nothing, [plgpu.NamedBarrier(num_arrivals=2)])
    assert (found.offset, found.arrivals) == (None, 2)


def test_a_buffer_of_a_cluster_has_siblings_along_its_axes() -> None:
    found = placed(nothing, [plgpu.SMEM((4,), np.int32)], cluster=(2, 3), cluster_names=("x", "y"))
    assert [(axis.name, axis.size) for axis in found[0].axes] == [("x", 2), ("y", 3)]


def test_a_cluster_barrier_counts_its_block_and_those_along_each_axis() -> None:
    barrier = plgpu.ClusterBarrier(collective_axes=("x", "y"), num_arrivals=2)
    assert arrivals_of(barrier.ref_type, {"x": 2, "y": 3}) == 2 * (1 + 1 + 2)
    grouped = plgpu.ClusterBarrier(collective_axes=(("x", "z"), "y", ("w",)))
    assert grouped.collective_axes == (("x", "z"), "y", "w")
    assert arrivals_of(grouped.ref_type, {"x": 2, "y": 3, "z": 4, "w": 1}) == 1 + 7 + 2


def test_a_placed_program_is_left_alone() -> None:
    once = run_passes(program(nothing, [OUT]), [place])
    assert place.run(once) is once


def test_a_program_that_is_not_placed_is_refused_with_the_reason() -> None:
    claims = Pass("claim", ANY, PLACED, lambda given: given, "Claims what it does not do.")
    with pytest.raises(InternalError, match="it has scratch buffers without a placement"):
        run_passes(program(nothing, [OUT]), [claims])


def test_sizes_of_a_call_complete_the_arrivals() -> None:
    (eqn,) = program(nothing, [plgpu.ClusterBarrier(collective_axes=("x",))], cluster=(2,), cluster_names=("x",)).eqns
    params: Launch = eqn.launch
    open_mesh = replace(params.meshes[0], axes=tuple(replace(axis, size=None) for axis in params.meshes[0].axes))
    assert placements(params, [open_mesh])[0].arrivals is None
    assert placements(replace(params, meshes=(open_mesh,)), params.meshes)[0].arrivals == 2
