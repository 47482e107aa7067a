"""Every operation is compiled for Hopper, or refused with a reason."""

from __future__ import annotations

from palladio.hopper.rules import REFUSED, RULES
from palladio.ops import OPS


def test_every_operation_has_a_rule_or_a_reason() -> None:
    missing = [name for name in OPS if name not in RULES and name not in REFUSED]
    assert not missing, f"neither compiled for Hopper nor refused: {', '.join(missing)}"


def test_no_operation_is_both_compiled_and_refused() -> None:
    assert not set(RULES) & set(REFUSED)


def test_rules_and_reasons_are_of_operations() -> None:
    assert set(RULES) | set(REFUSED) <= set(OPS)


def test_a_reason_says_something() -> None:
    assert all(reason.strip() for reason in REFUSED.values())
