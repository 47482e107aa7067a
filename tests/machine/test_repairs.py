"""Repairs: the change that removes a finding is found, is checked, and keeps the results."""

from __future__ import annotations

import linecache
import re
from functools import cache
from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.gpu as plgpu
import palladio.numpy as jnp
from palladio import lax
from palladio.driver.repairs import search
from palladio.driver.repairs.calls import agree, recorded
from palladio.driver.repairs.search import Budget, Repair, Search, keys, repaired
from palladio.ir.core import Program, Var, walk
from palladio.ir.verify import verify
from palladio.machine.check.findings import Finding, Participant
from palladio.machine.repair.candidates import Candidate, Candidates
from palladio.machine.repair.copies import copied_like_sibling
from palladio.machine.repair.edit import part_at, parts, passed_in, replaced, spots
from palladio.machine.repair.other_accesses import other_peers
from palladio.machine.repair.survey import Survey
from tests.errors.shown import shows
from tests.machine import test_mutants
from tests.machine.test_mutants import of_class, recording
from tools import mutant_repairs
from tools import mutants as tool
from tools.mutant_idioms import IDIOMS
from tools.mutant_repairs import broken, restores
from tools.mutation import mutants

NAMES = ("round_robin", "latest")


@pytest.fixture(autouse=True)
def programs_read_back() -> None:
    """The text of candidates need not read back; each repair is verified."""


@cache
def repair_of(mutation: str, number: int = 0) -> Repair | None:
    """The repair of the mutated ring for the first error that a check of it finds."""
    report, call = broken(of_class(mutation)[number].program, recording().values, 2)
    known = keys(report.findings)
    return repaired([call], report.of_level("error")[0], NAMES, known, Budget(60))


def shown(text: str) -> str:
    """A repair with the text of each line in place of its number."""
    file = str(test_mutants.__file__)
    return re.sub(r"line (\d+) of test_mutants.py", lambda m: linecache.getline(file, int(m[1])).strip(), text)


@pytest.mark.parametrize(
    ("mutation", "number", "text"),
    [
        (
            "a barrier wait left out",
            2,
            "add `plgpu.barrier_wait(filled.at[slot])` before plgpu.wgmma(acc, blocks.at[slot], blocks.at[slot])",
        ),
        (
            "a wgmma wait left out",
            0,
            "add `plgpu.wgmma_wait(0)` after plgpu.wgmma(acc, blocks.at[slot], blocks.at[slot])",
        ),
        ("a fence left out", 0, "add `plgpu.commit_smem()` after staging[...] = acc[...]"),
        ("an arrival left out", 0, "add `plgpu.barrier_arrive(drained.at[slot])` after plgpu.wgmma_wait(0)"),
        (
            "a group never committed",
            0,
            "add `plgpu.commit_smem_to_gmem_group()` after plgpu.copy_smem_to_gmem(staging, out)",
        ),
        (
            "an arrival too many",
            0,
            "remove `plgpu.barrier_arrive(drained.at[slot])`, plgpu.barrier_arrive(drained.at[slot])",
        ),
        (
            "a wait too many: the wrong phase",
            2,
            "remove `plgpu.barrier_wait(filled.at[slot])`, plgpu.barrier_wait(filled.at[slot])",
        ),
        ("an arrival at another barrier", 0, "use `drained.at[slot]` in plgpu.barrier_arrive(drained.at[slot])"),
        ("one stage too few: buffers", 0, "index `blocks` as `filled` is indexed beside it"),
    ],
)
def test_a_mutant_is_repaired(mutation: str, number: int, text: str) -> None:
    repair = repair_of(mutation, number)
    assert repair is not None
    assert (shown(repair.text), repair.left) == (text, frozenset())
    assert restores(repair.program, recording().values, recording().result, 2)


def test_the_cheapest_change_is_chosen() -> None:
    """A wait for the sources alone takes less time than one for the whole copies."""
    repair = repair_of("a wait for stores left out")
    assert repair is not None
    assert "`plgpu.wait_smem_to_gmem(0, wait_read_only=True)`" in repair.text


def test_what_no_single_change_removes_has_no_repair() -> None:
    assert repair_of("a copy left out") is None


# Results.


X = np.arange(8, dtype=np.float32)


def staged(fence: bool = False, factor: int = 2) -> Any:
    def body(x: Any, out: Any, tile: Any, full: Any) -> None:
        plgpu.copy_gmem_to_smem(x, tile, full)
        plgpu.barrier_wait(full)
        tile[...] = factor * tile[...]
        if fence:
            plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(tile, out)
        plgpu.wait_smem_to_gmem(0)

    scratch = [plgpu.SMEM((8,), np.float32), plgpu.Barrier()]
    return plgpu.kernel(body, pl.ShapeDtypeStruct((8,), np.float32), scratch_types=scratch)(X)


def test_a_report_has_the_repair_of_each_error() -> None:
    (finding,) = pl.check(staged, schedules=2, repairs=True).findings
    assert re.sub(r"line \d+|[\d.]+ [nµ]s", "…", finding.repair) == (
        "add `plgpu.commit_smem()` after … of test_repairs.py (clean in 2 schedules; same results; … of modelled time)"
    )
    assert f"  repair:  {finding.repair}" in finding.render().splitlines()


def ordinary() -> Any:
    """Blocks count themselves, by a load and a store."""

    def body(counts: Any, out: Any) -> None:
        out[0] = out[0] + 1

    count = pl.ShapeDtypeStruct((1,), np.int32)
    call = plgpu.kernel(body, count, grid=(3,), grid_names=("block",), input_output_aliases={0: 0})
    return call(np.zeros(1, np.int32))


def test_an_update_is_made_atomic() -> None:
    (finding, *_) = pl.check(ordinary, schedules=2, repairs=True).findings
    assert finding.code == "global-race"
    assert re.sub(r"line \d+", "…", finding.repair).startswith(
        "make the update in … of test_repairs.py one `plgpu.atomic_add` (clean in 2 schedules;"
    )


def chained(raised: bool, count: int | None = 2) -> Any:
    """The last of three blocks adds up what the others have stored; a semaphore counts them."""

    def body(x: Any, out: Any, rows: Any, done: Any) -> None:
        block = pl.axis_index("block")

        @pl.when(block < 2)
        def _() -> None:
            rows[block] = x[block]
            if raised:
                plgpu.semaphore_signal(done.at[block])

        @pl.when(block == 2)
        def _() -> None:
            for other in range(2):
                plgpu.semaphore_wait(done.at[other])
            out[...] = rows[0] + rows[1]

    row = pl.ShapeDtypeStruct((4,), np.float32)
    outs = [row, pl.ShapeDtypeStruct((2, 4), np.float32)]
    scratch = [plgpu.SemaphoreType.REGULAR((2,))]
    call = plgpu.kernel(body, outs, scratch_types=scratch, grid=(3,), grid_names=("block",))
    return call(np.ones((2, 4), np.float32))[0]


def test_a_signal_has_the_index_of_its_block() -> None:
    (finding,) = pl.check(chained, False, schedules=2, repairs=True).findings
    assert finding.code == "deadlock"
    assert finding.repair.startswith("add `pl.semaphore_signal(done.at[block])` after line ")


def sent(slots: int) -> Any:
    """Rows go out through slots in turn, one copy in flight while the next row is stored."""

    def body(x: Any, out: Any, staging: Any) -> None:
        for part in range(4):
            plgpu.wait_smem_to_gmem(1, wait_read_only=True)
            staging[part % slots] = 2 * x[part]
            plgpu.commit_smem()
            plgpu.copy_smem_to_gmem(staging.at[part % slots], out.at[part])
        plgpu.wait_smem_to_gmem(0)

    x = np.ones((4, 8), np.float32)
    scratch = [plgpu.SMEM((2, 8), np.float32)]
    return plgpu.kernel(body, pl.ShapeDtypeStruct(x.shape, x.dtype), scratch_types=scratch)(x)


def test_slots_of_which_one_is_used_are_used_in_turn() -> None:
    assert pl.check(sent, 2, schedules=2).ok
    (finding, *_) = pl.check(sent, 1, schedules=2, repairs=True).findings
    assert finding.code == "store-source-overwritten"
    assert finding.repair.startswith("use the 2 slots of `staging` in turn (clean in 2 schedules;")


def fetched(rows: int) -> Any:
    """Two rows are copied, each with a barrier of its own; the copy of a row may be missing."""

    def body(x: Any, out: Any, tiles: Any, full: Any) -> None:
        for row in range(rows):
            plgpu.copy_gmem_to_smem(x.at[row], tiles.at[row], full.at[row])
        for row in range(2):
            plgpu.barrier_wait(full.at[row])
            out[row] = 2 * tiles[row]

    scratch = [plgpu.SMEM((2, 4), np.float32), plgpu.Barrier(num_barriers=2)]
    call = plgpu.kernel(body, pl.ShapeDtypeStruct((2, 4), np.float32), scratch_types=scratch)
    return call(X.reshape(2, 4))


def test_a_copy_that_is_missing_is_like_its_sibling() -> None:
    (finding,) = pl.check(fetched, 1, schedules=2, repairs=True).findings
    assert finding.code == "deadlock"
    assert re.sub(r"line \d+", "…", finding.repair).startswith(
        "start a copy like that of … of test_repairs.py, +1 in each slot, after … of test_repairs.py (clean in"
    )


def test_the_copy_of_a_sibling_is_in_other_slots_that_there_are() -> None:
    """Both copies stand there: of two slots neither copy has another one on both sides."""
    (call,) = recorded(lambda: fetched(2))
    survey = Survey(call.program)
    found = copied_like_sibling(call.program, survey, survey.gaps)
    assert {re.sub(r"line \d+|(after|before) .*", "…", each.text) for each in found} == {
        "start a copy like that of … of test_repairs.py, +1 in each slot, …",
        "start a copy like that of … of test_repairs.py, -1 in each slot, …",
    }


def added(reduction: str | None) -> Any:
    """Blocks add their rows to one, by copies."""

    def body(x: Any, zero: Any, out: Any, tile: Any) -> None:
        tile[...] = x[pl.axis_index("block")]
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(tile, out, reduction_op=reduction)
        plgpu.wait_smem_to_gmem(0)

    row = pl.ShapeDtypeStruct((4,), np.float32)
    scratch, aliases = [plgpu.SMEM((4,), np.float32)], {1: 0}
    call = plgpu.kernel(
        body, row, scratch_types=scratch, grid=(2,), grid_names=("block",), input_output_aliases=aliases
    )
    return call(X.reshape(2, 4), np.zeros(4, np.float32))


def test_a_copy_is_made_a_reduction() -> None:
    assert pl.check(added, "add", schedules=2).ok
    (finding, *_) = pl.check(added, None, schedules=2, repairs=True).findings
    assert finding.code == "global-race"
    assert re.sub(r"line \d+", "…", finding.repair).startswith(
        'give the copy in … of test_repairs.py `reduction_op="add"` (clean in 2 schedules;'
    )


@cache
def idiom(name: str) -> tool.Recording:
    return tool.record(IDIOMS[name][0]())


def repair_of_idiom(name: str, mutation: str, number: int = 0) -> str:
    """The repair of a mutant of a small kernel, which becomes that kernel again."""
    found = [mutant for mutant in mutants(idiom(name).program) if mutant.mutation == mutation][number]
    values, wanted = idiom(name).values, idiom(name).result
    outcome = mutant_repairs.outcome(name, mutation, "", found.program, values, wanted, 2)
    assert outcome is not None
    assert outcome.found == "equal"
    return re.sub(r"line \d+ of mutant_idioms.py", "…", outcome.text)


@pytest.mark.parametrize(
    ("name", "mutation", "text"),
    [
        ("mpmd_map", "a wait for a copy of cores left out", "wait for the copy of … after …"),
        ("DSMEM: rows passed round", "slots that share memory", "use the 2 slots of `rows` in turn"),
        (
            "DSMEM: rows passed round",
            "a store into a peer left out",
            "start a copy like that of …, -1 in each slot, after …",
        ),
        ("set_max_registers", "a copy into another stage", "use `rows.at[0]` in …"),
        ("semaphores: a chain of blocks", "a store to another place", "use `sums.at[0]` in …"),
    ],
)
def test_a_small_kernel_is_found_again(name: str, mutation: str, text: str) -> None:
    """Not by an arrival where only copies arrive, nor by a second wait for a barrier."""
    assert repair_of_idiom(name, mutation) == text


def test_a_wait_may_be_missing_in_a_deadlock() -> None:
    """Without a wait for the others, a block takes the lock for good before they have had it."""
    text = repair_of_idiom("a lock", "a wait for a semaphore left out", 1)
    assert text == "add `pl.semaphore_wait(done, 3)` before …"


def test_the_index_of_a_flag_is_changed_before_another_flag_is_raised() -> None:
    """Nothing counts flags: with one more of them, every kernel that waits for flags goes on."""
    program = idiom("atomics: flags").program
    places = [spot.eqn.location for spot in spots(program) if spot.eqn.op.name == "atomic"]
    polls = [Participant("block", "polls repeatedly", place) for place in places[1:]]
    tiers = next(Candidates(program, Finding("deadlock", "threads look again", tuple(polls))).rounds())
    texts = [candidate.text for tier in tiers for candidate in tier]
    changed = [number for number, text in enumerate(texts) if text.startswith("move the index of `raised`")]
    raised = [number for number, text in enumerate(texts) if text.startswith("add `plgpu.atomic_or(raised, block, 1)`")]
    assert max(changed) < min(raised)


def exchanged() -> Any:
    """Two blocks store into each other's memory."""

    def body(x: Any, out: Any, row: Any, full: Any, met: Any) -> None:
        me = pl.axis_index("c")
        plgpu.barrier_arrive_and_wait(met)
        plgpu.async_store_smem(x[me], row, full, cluster_idx=1 - me, cluster_dim="c")
        plgpu.barrier_wait(full)
        out[me] = row[...]
        plgpu.barrier_arrive_and_wait(met)

    scratch = [plgpu.SMEM((4,), np.float32), plgpu.Barrier(), plgpu.ClusterBarrier(collective_axes="c")]
    out = pl.ShapeDtypeStruct((2, 4), np.float32)
    call = plgpu.kernel(body, out, scratch_types=scratch, cluster=(2,), cluster_names=("c",))
    return call(X.reshape(2, 4))


def test_an_operand_reaches_another_block_of_the_cluster() -> None:
    def changes(program: Program) -> dict[str, Program]:
        (spot,) = (each for each in spots(program) if each.eqn.op.name == "async_store_smem")
        found = other_peers(program, Survey(program), spot)
        return {re.sub(r"line \d+ of test_repairs.py", "…", each.text): each.program for each in found}

    (call,) = recorded(exchanged)
    mutant = changes(call.program)["move the block in which `row` is reached in … by -1, modulo 2"]
    report, _ = broken(mutant, call.values, 1)
    assert report.findings[0].code == "cluster-mismatch"
    assert call.definition is not None
    for text in (
        "reach `row` in … in the block that the other operand is in",
        "move the block in which `row` is reached in … by -1, modulo 2",
    ):
        assert restores(changes(mutant)[text], call.values, call.definition, 2)


def test_repairs_are_searched_only_on_request() -> None:
    (finding,) = pl.check(staged, schedules=1).findings
    assert finding.repair == ""
    assert "repair:" not in finding.render()


def test_a_report_says_that_there_is_none() -> None:
    def half(x: Any, out: Any, unset: Any) -> None:
        out[...] = x[...] + unset[...]

    call = plgpu.kernel(half, pl.ShapeDtypeStruct((8,), np.float32), scratch_types=[plgpu.SMEM((8,), np.float32)])
    (finding,) = pl.check(call, X, schedules=1, repairs=5).findings
    assert finding.code == "uninitialized-read"
    assert finding.repair.startswith("none found among ")


def factor(number: int) -> Program:
    """The program of the kernel above, with its fence and another factor."""
    (call,) = recorded(lambda: staged(fence=True, factor=number))
    return call.program


def test_a_change_that_computes_something_else_is_refused() -> None:
    (finding,) = pl.check(staged, schedules=1).findings
    (call,) = recorded(staged)
    looked = Search(call, finding, NAMES, frozenset(), Budget(60))
    assert looked.best([iter([Candidate("three times", factor(3))])]) is None
    repair = looked.best([iter([Candidate("three times", factor(3)), Candidate("a fence", factor(2))])])
    assert repair is not None
    assert (repair.text, repair.results) == ("a fence", "same")


def test_a_change_of_an_index_may_have_other_results_where_no_other_helps() -> None:
    (finding,) = pl.check(staged, schedules=1).findings
    (call,) = recorded(staged)
    looked = Search(call, finding, NAMES, frozenset(), Budget(60))
    moved = Candidate("three times", factor(3), elsewhere=True)
    repair = looked.best([iter([moved])])
    assert repair is not None
    assert repair.results == "other"
    assert (
        "(clean in 2 schedules; the same results in all, but not those of the kernel as it stands;" in repair.sentence
    )
    repair = looked.best([iter([moved]), iter([Candidate("a fence", factor(2))])])
    assert repair is not None
    assert repair.results == "same"


def test_a_change_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop that stores may wait for nothing: polls are counted apart."""

    def endless(x: Any, out: Any) -> None:
        def step(number: Any) -> Any:
            out[...] = x[...]
            return number

        lax.while_loop(lambda number: number == 0, step, jnp.int32(0))

    monkeypatch.setattr(search, "STEPS", 100)
    (finding,) = pl.check(staged, schedules=1).findings
    (call,) = recorded(staged)
    never = plgpu.kernel(endless, pl.ShapeDtypeStruct((8,), np.float32)).program(X)
    found = Search(call, finding, NAMES, frozenset(), Budget(60)).best([iter([Candidate("never", never)])])
    assert found is None


def test_sub_programs_get_the_operands_that_their_operation_says() -> None:
    checked = set()
    for eqn in walk(recording().program):
        for _, _, part in parts(eqn) if eqn.op.own_operands is not None else ():
            given = [atom.type for atom in eqn.inputs[eqn.op.own_operands :]]
            assert [var.type for var in part.inputs[: len(given)]] == given
            checked.add(eqn.op.name)
    assert checked == {"cond", "loop", "scope"}


def test_a_change_is_tried_once_for_all_findings() -> None:
    """One whose run ends at a finding that a repair may not have need not run for another finding."""
    (finding,) = pl.check(staged, schedules=1).findings
    (call,) = recorded(staged)
    budget = Budget(60)
    same = Candidate("nothing", call.program, key="nothing")
    for _ in range(2):
        assert Search(call, finding, NAMES, frozenset(), budget).best([iter([same])]) is None
        assert budget.tried == 1
    allowed = Search(call, finding, NAMES, keys([finding]), budget)
    assert allowed.best([iter([same])]) is not None
    assert budget.tried == 2


def test_a_round_that_leaves_no_finding_is_the_last() -> None:
    (finding,) = pl.check(staged, schedules=1).findings
    (call,) = recorded(staged)
    fence, same = Candidate("a fence", factor(2)), Candidate("nothing", call.program)

    def first(*rounds: list[Candidate], known: frozenset[Any] = frozenset()) -> tuple[Repair | None, int]:
        budget = Budget(60)
        found = Search(call, finding, NAMES, known, budget).first([[iter(each)] for each in rounds])
        return found, budget.tried

    repair, tried = first([fence], [same])
    assert repair is not None
    assert (repair.text, tried) == ("a fence", 1)
    repair, tried = first([same], [fence], known=keys([finding]))
    assert repair is not None
    assert (repair.text, tried) == ("a fence", 2)


def test_a_place_that_no_thread_reaches_before_the_finding_is_hopeless() -> None:
    (finding,) = pl.check(staged, schedules=1).findings
    (call,) = recorded(staged)
    looked = Search(call, finding, NAMES, frozenset(), Budget(60))
    reached = {
        spot.eqn.op.name: not looked.hopeless(spot.path, spot.index) for spot in spots(call.program) if spot.path
    }
    assert reached.pop("wait_smem_to_gmem") is False  # the copy before it meets the finding
    assert reached.pop("commit_smem_to_gmem_group") is False
    assert set(reached.values()) == {True}


def test_a_wait_for_a_barrier_that_completes_no_more_often_is_hopeless() -> None:
    """The consumer waits for each filling once; with its wait left out, one more is what is missing."""

    def looked(program: Program) -> Search:
        report, call = broken(program, recording().values, 1)
        return Search(call, report.findings[0], ("round_robin",), frozenset(), Budget(60))

    def hopeless(program: Program) -> set[bool]:
        survey, search = Survey(program), looked(program)
        (filled,) = {root for root in survey.all_roots if root.hint == "filled"}
        places = [spot for spot in spots(program) if spot.eqn.op.name == "wgmma"]
        return {search.hopeless(spot.path, spot.index, filled) for spot in places}

    assert hopeless(of_class("a barrier wait left out")[2].program) == {False}
    assert hopeless(of_class("a fence left out")[0].program) == {True}


def test_the_time_of_a_search_is_bounded() -> None:
    (finding,) = pl.check(staged, schedules=1, repairs=1e-9).findings
    assert finding.repair == "none found among 0 single changes in 1e-09 seconds"


def test_the_time_is_a_number() -> None:
    with shows(
        ValueError,
        """
        repairs: a search takes a number of seconds
          got:      'all'
          test_repairs.py:N, in test_the_time_is_a_number
            pl.check(staged, repairs="all")
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.check(staged, repairs="all")


# Edits.


def test_an_atom_is_passed_into_a_sub_program() -> None:
    """An index of the launch is known in the innermost loop after it was passed in, once."""
    program = recording().program
    inner = next(spot for spot in spots(program) if spot.eqn.op.name == "wgmma_wait" and len(spot.path) == 4)
    outer = inner.path[:1]
    thread = part_at(program, outer).inputs[0]
    found = passed_in(part_at(program, outer), inner.path[1:], thread)
    assert found is not None
    part, name = found
    assert name in part_at(part, inner.path[1:]).inputs
    verify(part)
    again = passed_in(part, inner.path[1:], thread)
    assert again is not None
    assert again[1] is name


def test_an_equation_is_replaced_where_it_stands() -> None:
    program = recording().program
    for spot in spots(program):
        if spot.eqn.op.name == "barrier_arrive":
            changed: Program = replaced(program, spot.path, spot.index, 1, ())
            assert len(part_at(changed, spot.path).eqns) == len(spot.program.eqns) - 1
            verify(changed)
            assert isinstance(spot.eqn.inputs[0], Var)


def test_results_agree_up_to_rounding_and_where_one_is_infinite_or_nan() -> None:
    wanted = np.float32([1, -np.inf, np.nan])
    assert agree([np.float32([1 + 1e-6, -np.inf, np.nan])], [wanted])
    for other in (
        [2, -np.inf, np.nan],
        [1, np.inf, np.nan],
        [1, 0, np.nan],
        [1, -np.inf, 0],
        [np.nan] * 3,
        [np.inf] * 3,
    ):
        assert not agree([np.float32(other)], [wanted])
