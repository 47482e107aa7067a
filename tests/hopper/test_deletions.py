"""A generated kernel needs each kind of its statements: without one of them the host twin notices."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from palladio.hopper.lowered import Lowered
from palladio.hopper.twin.run import SCHEDULES, TwinError, run
from palladio.library import hopper
from tests.hopper.kernels import error, lowered, normal

STATEMENT = re.compile(r"(?:^ *|\) )(pal::(\w+?)(?:_m64\w+)?(?:<[^>]*>)?\(.*?\);)", re.MULTILINE)
"""A call of a primitive for what it does, not for its result."""

ALONE = ["barrier_init", "fence_barrier_init", "sync_block", "registers_decrease", "wait", "arrive_expect", "tma_load"]
ALONE += ["wgmma_fence", "wgmma", "wgmma_commit", "wgmma_wait", "arrive", "bulk_wait_read", "sync_named", "stmatrix4"]
ALONE += ["fence_async", "tma_store", "bulk_commit", "bulk_wait"]
CLUSTERED = ["arrive_peer", "tma_load_multicast", "sync_cluster"]
UNNOTICED = {
    "keep": "only the compiler for the device could move accesses to registers",
    "registers_increase": "registers change speed, not results",
    "sync_warp": "lanes that arrive for their warp follow a wait that all its lanes have met",
}


@cache
def operands() -> tuple[np.ndarray, np.ndarray]:
    return normal(256, 448), normal(448, 512)


@cache
def matmul(clustered: bool) -> Lowered:
    config = hopper.MatmulConfig(cluster="m" if clustered else None, blocks=2)
    return lowered(lambda x, y: hopper.matmul(x, y, config=config), *operands())


def statements(kernel: Lowered) -> dict[str, str]:
    """The first statement of each kind."""
    first: dict[str, str] = {}
    for found in STATEMENT.finditer(kernel.text):
        first.setdefault(found[2], found[1])
    return first


def noticed(kernel: Lowered) -> bool:
    x, y = operands()
    want = x.astype(np.float64) @ y.astype(np.float64)
    for schedule in SCHEDULES:
        try:
            (out,) = run(kernel, [x, y], schedule).outputs
        except TwinError:
            return True
        if not error(out, want) < 1e-2:
            return True
    return False


def test_every_kind_of_statement_is_deleted_once() -> None:
    kinds = {*statements(matmul(False)), *statements(matmul(True))}
    assert kinds == {*ALONE, *CLUSTERED, *UNNOTICED}


@pytest.mark.parametrize("kind", [*ALONE, *CLUSTERED])
def test_a_deletion_is_noticed(kind: str) -> None:
    kernel = matmul(kind in CLUSTERED)
    statement = statements(kernel)[kind]
    assert noticed(replace(kernel, text=kernel.text.replace(statement, ";", 1))), statement
