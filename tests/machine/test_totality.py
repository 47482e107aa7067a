"""Every operation that reaches memory or other threads has a rule on the machine."""

from __future__ import annotations

import pytest

from palladio.ir.core import Op
from palladio.machine import rules
from palladio.machine.run.coroutines import RULES
from palladio.ops import ALL_OPS, OPS, parse
from palladio.types.effects import SYNC

SCOPES = """
program f(b:ref<barrier, i32[], Arrivals(count=1)>) {
  barrier_wait b
  return
}
"""


def synchronising() -> list[Op]:
    """The operations whose effects say that something runs beside them."""
    found = [op for op in ALL_OPS if not callable(op.effects) and SYNC in op.effects]
    return [*found, *(OPS[name] for name in ("launch", "collective_scope", "copy_smem_to_gmem", "wgmma"))]


def test_the_machine_knows_its_own_operations_only() -> None:
    assert {*RULES.now, *RULES.steps} <= {*OPS}
    assert not {*RULES.now} & {*RULES.steps}
    assert rules.__all__ == sorted(rules.__all__)


@pytest.mark.parametrize("op", synchronising(), ids=repr)
def test_what_synchronises_has_a_rule(op: Op) -> None:
    assert op.name in RULES.now or op.name in RULES.steps


def test_an_operation_that_waits_says_so_in_the_effects_of_its_program() -> None:
    assert parse(SCOPES).effects == {SYNC}


@pytest.mark.parametrize("op", [op for op in ALL_OPS if op.index_start and op.effects], ids=repr)
def test_what_reaches_memory_has_a_rule_or_is_an_ordinary_access(op: Op) -> None:
    known = op.name in RULES.now or op.name in RULES.steps
    assert known or (op.ref_count == 1 and op.discharge is not None)
