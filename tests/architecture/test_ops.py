"""Every operation is whole: listed, named, documented, with the rules that its effects require, and tested."""

from __future__ import annotations

import importlib
import pkgutil
import re
from dataclasses import fields
from pathlib import Path

import pytest

import palladio.ops
from palladio.base.errors import InternalError, PalladioError
from palladio.ir.core import Eqn, Op, walk
from palladio.ops import ALL_OPS, OPS, parse
from palladio.types.effects import SYNC, Sync
from tests.fuzz.generator import NOT_DRAWN, computing

FILETESTS = Path(__file__).resolve().parents[1] / "filetests"


def in_modules() -> list[Op]:
    """Every operation that a module of `palladio.ops` defines, once for each module that does."""
    found = []
    for module in pkgutil.walk_packages(palladio.ops.__path__, "palladio.ops."):
        members = vars(importlib.import_module(module.name)).values()
        found += [value for value in members if isinstance(value, Op)]
    return found


def in_file_tests() -> set[str]:
    names = set()
    for path in FILETESTS.rglob("*.pal"):
        try:
            names |= {eqn.op.name for eqn in walk(parse(path.read_text(encoding="utf-8")))}
        except PalladioError:
            continue  # A file about a program that is refused.
    return names


def test_every_operation_is_listed_once() -> None:
    assert sorted(op.name for op in {*in_modules()}) == sorted(op.name for op in ALL_OPS)
    assert len(OPS) == len(ALL_OPS)


def test_a_module_takes_no_operation_from_another_by_name() -> None:
    # `ALL_OPS` is collected from the modules' names, so a name for another module's operation would list it twice.
    assert len(in_modules()) == len({*in_modules()})


@pytest.mark.parametrize("op", ALL_OPS, ids=repr)
def test_a_name_is_lower_case_words(op: Op) -> None:
    assert re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", op.name)


@pytest.mark.parametrize("op", ALL_OPS, ids=repr)
def test_the_documentation_says_something(op: Op) -> None:
    assert len(op.doc.strip()) > 2


@pytest.mark.parametrize("op", ALL_OPS, ids=repr)
def test_a_stateful_operation_says_how_it_is_discharged(op: Op) -> None:
    stateful = callable(op.effects) or any(effect.position is not None for effect in op.effects)
    assert op.discharge is not None or not stateful


@pytest.mark.parametrize("op", ALL_OPS, ids=repr)
def test_names_of_operands_and_parameters_are_not_those_of_an_equation(op: Op) -> None:
    names = [*op.signature.operands, *op.signature.params, *filter(None, [op.signature.rest])]
    assert len({*names}) == len(names)
    assert not {*names} & {*dir(Eqn), *(field.name for field in fields(Eqn))}


def test_an_equation_has_its_operands_and_parameters_by_name() -> None:
    (eqn,) = parse("program f(i:i32[], x:ref<gmem, f32[8]>, v:f32[4]) {\n  store x[i:+4], v\n  return\n}").eqns
    assert (eqn.ref, eqn.value, eqn.indices) == (eqn.inputs[0], eqn.inputs[1], eqn.inputs[2:])
    assert eqn.transforms is eqn.params["transforms"]


def test_a_name_that_an_operation_does_not_have_says_what_it_has() -> None:
    (eqn,) = parse("program f(x:f32[4]) {\n  a:f32[4] = neg x\n  return a\n}").eqns
    with pytest.raises(AttributeError, match="an equation of neg has no 'source', but x"):
        _ = eqn.source


def test_an_operation_that_synchronises_through_what_it_does_not_take_is_refused() -> None:
    with pytest.raises(InternalError, match="synchronises through operands that it does not have: \\['barrier'\\]"):
        Op("arrive", "An arrival.", lambda semaphore: (), lambda semaphore: (), sync=Sync(arrives=("barrier",)))


def test_the_effect_sync_follows_from_the_record() -> None:
    for op in ALL_OPS:
        if not callable(op.effects):
            assert (SYNC in op.effects_of((), {})) == (op.sync is not None)


def test_every_operation_has_a_file_test() -> None:
    missing = {op.name for op in ALL_OPS} - in_file_tests()
    assert not missing, "write a file in tests/filetests for each"


def test_every_operation_is_drawn_by_the_fuzzer_or_says_why_not() -> None:
    drawn = {op.name for op in (*computing(), *ALL_OPS) if op in computing() or op.index_start or op.control}
    assert {op.name for op in ALL_OPS} - drawn <= {*NOT_DRAWN}, "teach tests/fuzz/generator.py their parameters"


def test_what_the_fuzzer_leaves_out_exists_and_has_a_reason() -> None:
    assert {*NOT_DRAWN} <= {*OPS}
    assert all(reason.strip() for reason in NOT_DRAWN.values())
