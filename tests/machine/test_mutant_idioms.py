"""The small kernels that `tools.mutants` breaks beside the library's, and what its newer classes change in them.

`make schedules` runs 1,000 schedules of each kernel; a test run has a few.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

import palladio as pl
import tools.mutants as tool
from palladio.ir.verify import verify
from tools.mutant_idioms import IDIOMS
from tools.mutant_kernels import Kernel
from tools.mutation import Mutant, mutants


@pytest.fixture(autouse=True)
def programs_read_back() -> None:
    """The text of hundreds of mutants need not read back."""


@cache
def prepared(name: str) -> tuple[Kernel, tool.Recording]:
    make, expected = IDIOMS[name]
    kernel = Kernel(name, make(), np.asarray(expected))
    return kernel, tool.record(kernel.run)


def of_class(name: str, mutation: str) -> list[Mutant]:
    return [mutant for mutant in mutants(prepared(name)[1].program) if mutant.mutation == mutation]


def judged(name: str, mutation: str) -> list[tool.Verdict]:
    return [tool.judge(*prepared(name), mutant, 4) for mutant in of_class(name, mutation)]


@pytest.mark.parametrize("name", IDIOMS)
def test_a_kernel_is_right_and_has_no_finding(name: str, request: pytest.FixtureRequest) -> None:
    run = prepared(name)[0].run
    np.testing.assert_allclose(np.asarray(run(), np.float64), prepared(name)[0].expected)
    count = int(request.config.getoption("--schedules"))
    assert pl.check(run, schedules=count if count > 100 else 4, strict=True).ok


@pytest.mark.parametrize("name", IDIOMS)
def test_its_mutants_are_programs_and_its_lines_run(name: str) -> None:
    _, recording = prepared(name)
    for mutant in mutants(recording.program):
        verify(mutant.program)
    assert not list(tool.unreached(recording))


CAUGHT: list[tuple[str, str, set[Any]]] = [
    ("atomics: tickets", "an atomic left out", {"unwritten-output"}),
    ("atomics: flags", "an atomic made of ordinary accesses", {"global-race"}),
    ("semaphores: a chain of blocks", "a fence of global memory left out", {"missing-commit-gmem"}),
    ("semaphores: a chain of blocks", "a signal of another semaphore", {"uninitialized-read"}),
    ("semaphores: a chain of blocks", "a wait for another semaphore", {"uninitialized-read"}),
    ("a lock", "a signal left out", {"deadlock"}),
    ("a lock", "a wait for one signal fewer", {"deadlock"}),
    ("DSMEM: rows passed round", "slots that share memory", {"copy-target-in-use"}),
    ("DSMEM: rows passed round", "another block of the cluster", {"cluster-mismatch"}),
    ("DSMEM: rows passed round", "a store into a peer left out", {"deadlock"}),
    ("set_max_registers", "more registers asked for", {"registers-exceeded"}),
    ("reductions", "a reduction that overwrites", {"global-race"}),
    ("mpmd_map", "a wait for a copy of cores left out", {"copy-not-awaited"}),
    ("mpmd_map", "a copy of cores left out", {"deadlock"}),
]


@pytest.mark.parametrize(("name", "mutation", "codes"), CAUGHT)
def test_a_mutant_is_caught(name: str, mutation: str, codes: set[str]) -> None:
    assert {verdict.code for verdict in judged(name, mutation)} == codes


def test_an_index_that_all_get_wrong_alike_is_another_kernel() -> None:
    verdicts = judged("DSMEM: two peers", "another block of the cluster")
    assert [(each.code, each.wrong, each.otherwise) for each in verdicts] == [(None, False, True)] * 2
    matrix = tool.Matrix(verdicts)
    assert not matrix.missed
    assert not matrix.harmless
    assert "| another block of the cluster | 2 | 0 | 0 | 2 | 0 |" in tool.table(matrix)
