"""Experts on several processes, and the operators under PyTorch's ways to train on several.

All tests look at one run of `tests/interop/ranks.py`, four processes at first and two of them later.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.architecture.source import ROOT

Found = dict[str, Any]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[Found]:
    """The values that each scenario has returned on each rank; the rank that dies has none."""
    folder = tmp_path_factory.mktemp("ranks")
    command = [sys.executable, "-m", "tests.interop.ranks", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    paths = [folder / f"rank{rank}.json" for rank in range(4)]
    found = [json.loads(path.read_text(encoding="utf-8")) if path.exists() else {} for path in paths]
    failures = [each["failure"] for each in found if "failure" in each]
    assert done.returncode == 0 and not failures, "\n".join([*failures, done.stderr])
    return found


def test_results_and_gradients_on_four_ranks_are_those_of_one_process_bit_by_bit(ranks: list[Found]) -> None:
    assert [found["same_bits"] for found in ranks if found] == [[]] * 3


def test_rows_of_one_part_travel_while_those_of_another_are_computed(ranks: list[Found]) -> None:
    for found in (ranks[0], *ranks[2:]):
        assert found["in_parts"]["worst"] < 1e-12
        forward = ["exchange", "exchange", "exchange", "compute", "exchange", "compute", "exchange"]
        backward = ["exchange", "exchange", "differentiated", "exchange", "differentiated", "exchange"]
        assert found["in_parts"]["happened"] == forward + backward


def test_a_rank_that_has_all_experts_computes_its_tokens_together(ranks: list[Found]) -> None:
    assert [found["with_all_experts"] for found in ranks if found] == [[0, 1]] * 3


def test_each_rank_holds_its_share_of_the_experts(ranks: list[Found]) -> None:
    assert [found["shards"][0] for found in (ranks[0], *ranks[2:])] == [2, 2, 1]


def test_experts_train_with_fsdp_on_the_other_dimension_as_on_one_process(ranks: list[Found]) -> None:
    found = ranks[0]["with_fsdp"]
    assert found["losses"] == pytest.approx(found["expected"], rel=1e-13)
    assert found["worst"] < 1e-13
    assert found["placements"] == "(_StridedShard(dim=0, sf=2), Shard(dim=0))"


def test_operators_train_with_ddp_as_on_one_process(ranks: list[Found]) -> None:
    assert ranks[0]["with_ddp"] < 1e-13


def test_operators_see_the_weights_that_fsdp_gathers(ranks: list[Found]) -> None:
    assert ranks[0]["operators_with_fsdp"] is True


def test_a_checkpoint_of_four_ranks_is_read_on_two(ranks: list[Found]) -> None:
    assert ranks[0]["load"] is True


def test_a_model_of_transformers_has_its_experts_on_two_ranks(ranks: list[Found]) -> None:
    assert ranks[0]["model_of_transformers"] < 1e-5


def test_operators_take_distributed_tensors_and_say_how_results_are_placed(ranks: list[Found]) -> None:
    assert ranks[0]["distributed_tensors"] == {
        "columns": ["S(1)", "P(sum)", "S(2)"],
        "contraction": ["P(sum)", "S(1)", "S(1)"],
        "rows": ["R", "R", "R"],
        "transposed": ["S(2)", "P(sum)", "S(1)"],
        "matmul": ["P(sum)", "S(1)", "S(0)"],
        "softmax": ["S(0)", "S(0)"],
        "softmax of columns": ["R", "R"],
        "attention": ["S(0)", "S(0)"],
    }


def test_a_rank_that_dies_is_an_error_on_the_other(ranks: list[Found]) -> None:
    assert ranks[0]["death"].startswith("RuntimeError: ")


def test_a_rank_that_does_not_come_is_an_error_when_the_time_is_over(ranks: list[Found]) -> None:
    assert "Timed out waiting 1000ms" in ranks[0]["silence"]


def test_what_cannot_be_sharded_is_refused(ranks: list[Found]) -> None:
    square, scaled, nested, few, distributed, parts = ranks[0]["messages"]
    assert square.startswith(
        "PalladioValueError: device_mesh: experts are sharded over one dimension of a mesh\n"
        "  got:      2 dimensions (data, experts)\n"
        '  hint:     mesh["name"] is one dimension of a mesh\n'
    )
    assert scaled.startswith(
        "PalladioValueError: scale: a module of experts has them on the first axis of each of its own parameters\n"
        "  expected: [7, ...]\n"
        "  got:      [12]\n"
    )
    assert nested.startswith(
        "PalladioValueError: 0.up: a module of experts has them on the first axis of each of its own parameters\n"
        "  expected: a parameter of the module itself\n"
        "  got:      [7, 12, 20]\n"
    )
    assert few.startswith(
        "PalladioValueError: module: each rank has an expert\n"
        "  expected: more than 1 experts for 2 ranks of 1\n"
        "  got:      1\n"
    )
    assert distributed.startswith(
        "PalladioTypeError: tokens: each rank calls its experts with its own tokens\n"
        "  expected: a tensor of this rank\n"
        "  got:      a DTensor, (Replicate(),) over DeviceMesh("
    )
    assert "\n  hint:     to_local() is the part of this rank\n" in distributed
    assert parts.startswith(
        "PalladioValueError: parts: tokens are exchanged in one part or more\n  expected: 1, 2, ...\n  got:      0"
    )
