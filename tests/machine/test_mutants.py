"""The mutation matrix: what each class does to a kernel, what the checker says, and what the page must say."""

from __future__ import annotations

import re
import time
from collections import Counter
from fnmatch import fnmatchcase
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import palladio as pl
import palladio.gpu as plgpu
from palladio import lax
from palladio.ir.core import Eqn, Program, walk
from palladio.ir.verify import verify
from palladio.library import hopper
from palladio.ops.threads.launch import launch
from palladio.types.attributes import Arrivals
from palladio.types.types import BARRIER
from tools import mutants as tool
from tools.mutant_kernels import Kernel, kernels
from tools.mutant_repairs import Log, key
from tools.mutation import CLASSES, NO_DELAY, WRONG_INDEX, Mutant, mutants

STEPS, STAGES, SIDE = 5, 3, 8
X = np.random.default_rng(0).standard_normal((STEPS, SIDE, SIDE)).astype(np.float16)


def ring(x: Any, out: Any, blocks: Any, staging: Any, filled: Any, drained: Any, unused: Any) -> None:
    """The sum of the squares of matrices: one thread copies them through a ring, the other multiplies."""
    thread = pl.axis_index("thread")

    @pl.when(thread == 0)
    def _() -> None:
        @pl.loop(0, STEPS)
        def _(step: Any) -> None:
            slot = lax.rem(step, STAGES)
            pl.when(step >= STAGES)(lambda: plgpu.barrier_wait(drained.at[slot]))
            plgpu.copy_gmem_to_smem(x.at[step], blocks.at[slot], filled.at[slot])

        @pl.loop(STEPS - STAGES, STEPS)
        def _(step: Any) -> None:
            plgpu.barrier_wait(drained.at[lax.rem(step, STAGES)])

    @pl.when(thread == 1)
    def _() -> None:
        def scoped(acc: Any) -> None:
            @pl.loop(0, STEPS)
            def _(step: Any) -> None:
                slot = lax.rem(step, STAGES)
                plgpu.barrier_wait(filled.at[slot])
                plgpu.wgmma(acc, blocks.at[slot], blocks.at[slot])
                plgpu.wgmma_wait(0)
                plgpu.barrier_arrive(drained.at[slot])

            plgpu.wgmma_wait(0)
            staging[...] = acc[...]
            plgpu.commit_smem()
            plgpu.copy_smem_to_gmem(staging, out)
            plgpu.wait_smem_to_gmem(0)

        pl.run_scoped(scoped, plgpu.ACC((SIDE, SIDE)))

        @pl.when(thread == 2)
        def _() -> None:
            plgpu.barrier_arrive(unused)


def call() -> Any:
    out = pl.ShapeDtypeStruct((SIDE, SIDE), np.float32)
    scratch = [
        plgpu.SMEM((STAGES, SIDE, SIDE), np.float16),
        plgpu.SMEM((SIDE, SIDE), np.float32),
        plgpu.Barrier(num_barriers=STAGES),
        plgpu.Barrier(num_barriers=STAGES),
        plgpu.Barrier(num_arrivals=2),
    ]
    return plgpu.kernel(ring, out, scratch_types=scratch, num_threads=2, thread_name="thread")(X)


KERNEL = Kernel("ring", call, (X.astype(np.float64) @ X.astype(np.float64)).sum(0))


@pytest.fixture(autouse=True)
def programs_read_back() -> None:
    """The text of a thousand mutants need not read back; the verifier takes those of the small kernel."""


@cache
def recording() -> tool.Recording:
    return tool.record(KERNEL.run)


def of_class(name: str) -> list[Mutant]:
    return [mutant for mutant in mutants(recording().program) if mutant.mutation == name]


def described(eqn: Eqn) -> str:
    shown = [f"{key}={eqn.params[key]}" for key in ("n", "wait_n", "read_only") if eqn.params.get(key) is not None]
    return " ".join([eqn.op.name, *shown])


def difference(mutant: Program) -> str:
    """Which equations a mutant has more or fewer of than the kernel."""
    count = Counter(map(described, walk(mutant)))
    count.subtract(Counter(map(described, walk(recording().program))))
    return ", ".join(f"{name} {number:+}" for name, number in sorted(count.items()) if number)


@pytest.mark.parametrize(
    ("name", "number", "change"),
    [
        ("a barrier wait left out", 3, "barrier_wait -1"),
        ("a wgmma wait left out", 2, "wgmma_wait n=0 -1"),
        ("a wait for stores left out", 1, "wait_smem_to_gmem n=0 read_only=False -1"),
        ("a fence left out", 1, "commit_smem -1"),
        ("an arrival left out", 2, "barrier_arrive -1"),
        ("a copy left out", 1, "copy_gmem_to_smem -1"),
        ("a group never committed", 1, "commit_smem_to_gmem_group -1"),
        ("an arrival too many", 2, "barrier_arrive +1"),
        ("a wait too many: the wrong phase", 3, "barrier_wait +1"),
        ("a copy too many: the wrong bytes", 1, "copy_gmem_to_smem +1"),
        ("a wait for another barrier", 3, "add +1, rem +1"),
        ("an arrival at another barrier", 1, "add +1, rem +1"),
        ("a copy into another stage", 1, "add +1, rem +1"),
        ("a copy that arrives elsewhere", 1, "add +1, rem +1"),
        ("slots that share memory", 1, "rem +3"),
        ("one stage too few: buffers", 1, "rem +3"),
        ("one stage too few: barriers", 2, "rem +2; rem +3"),
        ("one stage too few: buffers and barriers", 1, "rem +8"),
    ],
)
def test_a_class_changes_what_it_says(name: str, number: int, change: str) -> None:
    found = of_class(name)
    assert len(found) == number
    assert {difference(mutant.program) for mutant in found} == set(change.split("; "))


def test_mutants_are_programs() -> None:
    found = list(mutants(recording().program))
    assert len(found) > 30
    for mutant in found:
        verify(mutant.program)


def test_one_group_more_in_flight_changes_the_number() -> None:
    assert {difference(mutant.program) for mutant in of_class("one group more in flight")} == {
        "accumulator_load wait_n=0 -1, accumulator_load wait_n=1 +1",
        "wait_smem_to_gmem n=0 read_only=False -1, wait_smem_to_gmem n=1 read_only=False +1",
        "wgmma_wait n=0 -1, wgmma_wait n=1 +1",
    }


def test_only_the_sources_of_stores_are_awaited() -> None:
    (mutant,) = of_class("only the sources of stores awaited")
    assert difference(mutant.program) == (
        "wait_smem_to_gmem n=0 read_only=False -1, wait_smem_to_gmem n=0 read_only=True +1"
    )


def test_a_release_comes_before_its_wait() -> None:
    order = [
        [eqn.op.name for eqn in walk(mutant.program) if eqn.op.name in ("wgmma_wait", "barrier_arrive")]
        for mutant in of_class("a release before its wait")
    ]
    assert ["barrier_arrive", "wgmma_wait", "wgmma_wait", "barrier_arrive"] in order


def counts(program: Program) -> list[int]:
    (eqn,) = (eqn for eqn in program.eqns if eqn.op is launch)
    scratch = [type for type in eqn.params["launch"].scratch if type.space is BARRIER]
    inner = eqn.params["programs"][0].inputs[-len(scratch) :]
    assert [var.type for var in inner] == scratch
    return [type.attribute(Arrivals).count for type in scratch]


def test_barriers_count_one_more_or_fewer() -> None:
    assert counts(recording().program) == [1, 1, 2]
    assert [counts(mutant.program) for mutant in of_class("a barrier that counts one more")] == [
        [2, 1, 2],
        [1, 2, 2],
        [1, 1, 3],
    ]
    assert [counts(mutant.program) for mutant in of_class("a barrier that counts one fewer")] == [[1, 1, 1]]


# What the checker says.


def test_the_kernel_itself_has_no_finding() -> None:
    verdict = tool.judge(KERNEL, recording(), Mutant("", "", "", recording().program, ()), 8)
    assert (verdict.code, verdict.wrong) == (None, False)


@pytest.mark.parametrize(
    ("name", "codes"),
    [
        ("a barrier wait left out", {"copy-not-awaited", "copy-target-in-use", "unobserved-completion"}),
        ("a fence left out", {"missing-commit-smem"}),
        ("a copy left out", {"deadlock"}),
        ("a barrier that counts one more", {"deadlock", None}),
        ("slots that share memory", {"copy-target-in-use"}),
        ("one stage too few: buffers", {"copy-target-in-use"}),
        ("a release before its wait", {"wgmma-operand-overwritten", "copy-not-awaited", None}),
    ],
)
def test_mutants_are_caught(name: str, codes: set[str | None]) -> None:
    found = {tool.judge(KERNEL, recording(), mutant, 8).code for mutant in of_class(name)}
    assert found <= codes
    assert found != {None}


@pytest.mark.parametrize(
    ("name", "operands"), [("emit_pipeline", ["a", "b"]), ("emit_pipeline_warp_specialized", ["a", "b"])]
)
def test_a_pipeline_without_its_delay_is_caught(name: str, operands: list[str]) -> None:
    (number,) = (number for number, kernel in enumerate(kernels()) if kernel.name == name)
    kernel, recorded, found = tool._prepared(number)
    hasty = [mutant for mutant in found if mutant.mutation == NO_DELAY]
    assert [mutant.what for mutant in hasty] == operands
    for mutant in hasty:
        assert tool.judge(kernel, recorded, mutant, 4).code == "wgmma-operand-overwritten"


# Survivors.


def test_a_wait_for_what_has_been_awaited_is_redundant() -> None:
    first, second = of_class("a wgmma wait left out")
    assert tool.judge(KERNEL, recording(), first, 8).code is not None
    verdict = tool.judge(KERNEL, recording(), second, 8)
    assert (verdict.code, verdict.reason) == (None, tool.REDUNDANT)
    assert verdict.explored > 0


def test_equations_that_do_not_run_are_known() -> None:
    assert [eqn.op.name for eqn in tool.unreached(recording())] == ["barrier_arrive"]


def test_a_barrier_that_no_thread_uses_may_count_what_it_likes() -> None:
    mutant = Mutant("a barrier that counts one more", "", "", recording().program, ())
    assert tool.judge(KERNEL, recording(), mutant, 2).reason == tool.UNUSED


def test_an_explanation_fits_by_kernel_class_and_line(monkeypatch: pytest.MonkeyPatch) -> None:
    reason = tool.Reason("rin*", "a group never committed", "*(staging, out)", "since")
    monkeypatch.setattr(tool, "REASONS", (reason,))
    mutant = Mutant("a group never committed", "", "op: copy(staging, out)", recording().program, (walk,))  # type: ignore[arg-type]
    assert tool._reason(KERNEL, recording(), mutant) == ("since", 1)
    other = Mutant("a fence left out", "", "op: copy(staging, out)", recording().program, (walk,))  # type: ignore[arg-type]
    assert tool._reason(KERNEL, recording(), other) == ("", 0)


@pytest.mark.parametrize("reason", tool.REASONS, ids=lambda reason: f"{reason.kernel}: {reason.mutation}")
def test_a_reason_is_about_a_line_that_there_is(reason: tool.Reason) -> None:
    folders = Path(hopper.__file__).parent, Path(tool.__file__).parent
    lines = [line.strip() for each in folders for file in each.glob("*.py") for line in file.read_text().splitlines()]
    op = reason.what.partition(": ")[0]
    assert any(fnmatchcase(f"{op}: {line}", reason.what) for line in lines if "Reason(" not in line)


def verdict(**options: Any) -> tool.Verdict:
    return tool.Verdict("matmul", "a fence left out", "matmul.py:1 commit_smem", "", **options)


def test_a_wrong_result_without_a_finding_and_a_finding_that_is_late_are_misses() -> None:
    found = tool.Matrix([verdict(wrong=True), verdict(code="deadlock", late=True), verdict(code="deadlock", tried=1)])
    assert len(found.missed) == 2
    assert "| a fence left out | 3 | 1 | 0 | 0 | 2 | deadlock 2 |" in tool.table(found)


def test_a_survivor_without_a_reason_is_told_apart() -> None:
    found = tool.Matrix([verdict(reason="since", tried=64, explored=9, complete=True), verdict(tried=64)])
    assert len(found.unexplained) == 1
    table = tool.table(found)
    assert "| a fence left out | `matmul.py:1 commit_smem` | matmul (1) | since | all 9 |" in table
    assert "| matmul (1) | **not known** | 64 |" in table


def test_a_reason_is_not_for_more_survivors_than_it_says() -> None:
    two = [verdict(reason="since", most=2, tried=64) for _ in range(2)]
    assert tool.Matrix(two).unexplained == []
    assert len(tool.Matrix([*two, two[0]]).unexplained) == 3


def test_survivors_of_one_kind_are_one_line() -> None:
    found = [verdict(reason="since", explored=1, complete=True) for _ in range(2)]
    other = tool.Verdict("gmm", found[0].mutation, found[0].place, "", reason="since", explored=1, complete=True)
    assert tool.table(tool.Matrix([*found, other])).splitlines()[-1] == (
        "| a fence left out | `matmul.py:1 commit_smem` | matmul (2); gmm (1) | since | all 1 |"
    )


def test_a_finding_in_a_kernel_as_it_stands_is_a_false_alarm() -> None:
    found = tool.Matrix([], [tool.Verdict("matmul", "", "", "", code="deadlock", tried=3)])
    assert "False alarms on them as they stand: 1, in 3 runs." in tool.table(found)


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
@pytest.mark.filterwarnings(r"ignore:os\.fork\(\) was called:RuntimeWarning")  # of JAX, where another test imported it
def test_a_search_for_repairs_that_was_cut_goes_on_where_it_stopped(tmp_path: Path) -> None:
    log, console = tmp_path / "repairs.jsonl", Console(file=StringIO())
    (locked,) = [number for number, kernel in enumerate(kernels()) if kernel.name == "a lock"]
    first = tool.run_repairs([locked], console, 12, 1, 1, log)
    assert first and {each.kernel for each in first} == {"a lock"}
    lines = log.read_text("utf-8").splitlines()
    log.write_text("\n".join([lines[0].replace('"equal"', '"other"'), *lines[2:]]) + "\n", "utf-8")
    again = tool.run_repairs([locked], console, 12, 1, 1, log)
    assert len(log.read_text("utf-8").splitlines()) == len(lines)
    assert [each.found for each in again].count("other") == 1 + [each.found for each in first].count("other")
    assert [(each.mutation, each.place, each.text) for each in again] == [
        (each.mutation, each.place, each.text) for each in first
    ]


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
@pytest.mark.filterwarnings(r"ignore:os\.fork\(\) was called:RuntimeWarning")  # of JAX, where another test imported it
def test_what_has_not_begun_is_cancelled_where_a_search_is_interrupted() -> None:
    with pytest.raises(KeyboardInterrupt), tool.workers(1) as pool:
        first, *_, last = [pool.submit(time.sleep, seconds) for seconds in (0.5, *[0] * 10)]
        raise KeyboardInterrupt
    assert last.cancelled() and not first.cancelled()


def test_a_log_is_for_the_same_programs_and_number_of_schedules(tmp_path: Path) -> None:
    first, other = (each.program for each in (recording(), tool._prepared(0)[1]))
    keys = [key("a", 1, first, 2), key("a", 1, first, 3), key("a", 1, other, 2), key("b", 1, first, 2)]
    keys.append(key("a", 2, first, 2))
    assert len({*keys}) == len(keys) and keys[0] == key("a", 1, first, 2)
    path = tmp_path / "repairs.jsonl"
    path.write_text('{"kernel": "a", "mutant": 1, "outcome": null}\n', "utf-8")
    Log(path).add(keys[0], None)
    assert Log(path).known == {keys[0]: None}


# The page.


def rows(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_page_has_the_table_that_the_tool_writes() -> None:
    page = tool.PAGE.read_text(encoding="utf-8")
    text = page.partition(tool.BEGIN)[2].partition(tool.END)[0]
    assert tool.written(page, text.strip()) == page
    found, made = rows(text), rows(tool.table(tool.Matrix()))
    matrix = found[: len(made)]
    assert [row[0] for row in matrix] == ["mutation", "---", *CLASSES, "**all**"]
    assert matrix[0] == made[0]
    for row in matrix[2:]:
        many, caught, harmless, others, missed = map(int, row[1:6])
        assert (caught + harmless + others, missed) == (many, 0), row[0]
        assert not others or row[0] in (*WRONG_INDEX, "**all**")
    assert all(kernel.name in text for kernel in kernels())
    survivors = [row[2] for row in found[len(made) + 2 :]]
    assert sum(int(number) for kernels in survivors for number in re.findall(r"\((\d+)\)", kernels)) == int(
        matrix[-1][3]
    )
    assert "not known" not in text
