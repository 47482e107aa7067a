"""How many blocks a multiprocessor holds at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.gpu as plgpu
from palladio.driver.checks.runs import run_once
from palladio.machine.run.policies import RoundRobin


def clusters(body: Any, *scratch: Any, threads: int = 1, cluster: int = 1) -> int:
    """How many clusters of a kernel an H100 holds at once."""
    found: list[int] = []
    call = plgpu.kernel(
        body,
        pl.ShapeDtypeStruct((1,), np.float32),
        scratch_types=list(scratch),
        num_threads=threads,
        thread_name="wg",
        cluster=(cluster,),
        cluster_names=("c",),
    )

    def prepare(machine: Any) -> None:
        start = machine.start

        def started(thread: Any, *rest: Any) -> None:
            found.append(thread.group.capacity)
            start(thread, *rest)

        machine.start = started

    run_once(call, (), RoundRobin, prepare)
    return found[0]


def nothing(out: Any, *scratch: Any) -> None:
    """A body that takes what it is given."""


def test_small_blocks_are_held_up_to_2048_threads_and_32_blocks() -> None:
    assert clusters(nothing) == 132 * 16
    assert clusters(nothing, threads=3) == 132 * 5


def test_shared_memory_bounds_the_blocks() -> None:
    assert clusters(nothing, plgpu.SMEM((60_000,), np.int8)) == 132 * 3


def test_a_scope_inside_another_counts_with_it_and_one_after_it_does_not() -> None:
    large = plgpu.SMEM((50_000,), np.int8)

    def nested(out: Any) -> None:
        pl.run_scoped(lambda first: pl.run_scoped(lambda second: None, large), large)

    def in_turn(out: Any) -> None:
        pl.run_scoped(lambda first: None, large)
        pl.run_scoped(lambda first: None, large)

    assert (clusters(nested), clusters(in_turn)) == (132 * 2, 132 * 4)


def test_accumulators_are_registers() -> None:
    assert clusters(nothing, plgpu.ACC((64, 256), np.float32)) == 132 * 4


@pytest.mark.parametrize("threads, blocks", [(1, 2), (2, 1), (3, 1)])
def test_a_kernel_that_sets_its_registers_takes_all(threads: int, blocks: int) -> None:
    def body(out: Any) -> None:
        plgpu.set_max_registers(24, action="decrease")

    assert clusters(body, threads=threads) == 132 * blocks


def test_the_blocks_of_a_cluster_are_held_together() -> None:
    assert clusters(nothing, plgpu.SMEM((200_000,), np.int8), cluster=4) == 33
