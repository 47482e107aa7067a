"""Semaphores as Pallas' GPU namespace spells them, on the one device that there is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.gpu as plgpu
from tests.dialect.kernels import found, kernel


def signalled(signal: Callable[[Any], None]) -> Any:
    """Block 1 writes and signals 2; block 0 waits for them and reads."""

    def body(o_ref: Any, sems: Any) -> None:
        me = pl.axis_index("b")

        @pl.when(me == 1)
        def _() -> None:
            o_ref[0] = me + 4
            signal(sems.at[1])

        @pl.when(me == 0)
        def _() -> None:
            plgpu.semaphore_wait(sems.at[1], 2, memory_scope="gpu")
            o_ref[1] = o_ref[0]

    return kernel(body, (2,), grid=(2,), grid_names="b", scratch_types=[plgpu.alloc_semaphore((3,))])


SIGNALS = {
    "one": lambda sem: plgpu.semaphore_signal(sem, 2),
    "this device": lambda sem: plgpu.semaphore_signal(sem, 2, device_id=0, memory_scope="gpu"),
    "devices by name": lambda sem: plgpu.semaphore_signal(sem, 2, device_id={"x": 0}),
    "several": lambda sem: plgpu.semaphore_signal_parallel(
        plgpu.SemaphoreSignal(sem), plgpu.SemaphoreSignal(sem, device_id=0, inc=1)
    ),
    "no axes": lambda sem: plgpu.semaphore_signal_multicast(sem, 2),
}


@pytest.mark.parametrize("signal", SIGNALS.values(), ids=SIGNALS)
def test_a_signal_orders_what_was_written_before_it(signal: Callable[[Any], None]) -> None:
    run = signalled(signal)
    assert run().tolist() == [5, 5]
    assert found(run) == set()


def test_too_small_a_signal_is_a_deadlock() -> None:
    assert "deadlock" in found(signalled(lambda sem: plgpu.semaphore_signal(sem, 1)))


def test_semaphores_are_described_by_shape_and_kind() -> None:
    assert plgpu.alloc_semaphore().shape == ()
    assert plgpu.alloc_semaphore((2,), plgpu.SemaphoreType.DMA) == plgpu.SemaphoreType.DMA((2,))
    assert plgpu.alloc_semaphore(3).dtype == np.int32
