"""The numbers that control threads, over sizes and rounds: linear in both, or the proof fails.

A number has a value at a small size. With every period by which the size grows, and with every round of a repeated
part, it grows by a fixed difference, which may be 0. The runs show these differences; a rule for each operation says
whether its result then continues linearly for all larger operands. So the outcome of a comparison must not change
later, and the dividend of a remainder must grow by multiples of the divisor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from palladio.ir.core import Eqn, Work
from palladio.types import dtypes

ROUNDS = 1 << 16
"""Rounds for which numbers must fit into their dtype. Those of later ones are assumed to."""


class RunsDiffer(Exception):
    """Two runs differ in something that is not a number, or a number does not continue linearly."""


class Number(NamedTuple):
    """A number or array, and its growth.

    Fields:
        value: at the smallest size, in the first round.
        directions: its growth with the size alone, and with the size and the rounds. Every later value is `value` plus
            multiples of the directions.
    """

    value: Any
    directions: tuple[Any, ...]

    @property
    def fixed(self) -> bool:
        """True if it is the same at all sizes and in all rounds."""
        return not any(np.any(each) for each in self.directions)

    @property
    def grows(self) -> bool:
        """True if it is never negative and never decreases."""
        return bool(np.all(_wide(self.value) >= 0)) and all(bool(np.all(each >= 0)) for each in self.directions)

    @property
    def wraps_soon(self) -> bool:
        """True if the next rounds take it past what its dtype holds."""
        room = np.iinfo(np.asarray(self.value).dtype).max - np.abs(np.asarray(self.value, np.float64))
        return any(bool(np.any(ROUNDS * np.abs(np.asarray(each, np.float64)) > room)) for each in self.directions)

    def minus(self, other: Number) -> Number:
        """The difference of two numbers."""
        directions = zip(self.directions, other.directions, strict=True)
        return Number(_wide(self.value) - _wide(other.value), tuple(one - two for one, two in directions))

    def plus(self, amount: int) -> Number:
        """The number plus a constant."""
        return self._replace(value=_wide(self.value) + amount)

    @property
    def keeps_sign(self) -> bool:
        """True if it keeps its sign, and stays 0 where it is."""
        sign = np.sign(_wide(self.value))
        return all(
            bool(np.all(np.where(sign == 0, each == 0, np.asarray(each) * sign >= 0))) for each in self.directions
        )

    @property
    def keeps_negativity(self) -> bool:
        """True if negative elements stay negative and the others never become negative."""
        below = _wide(self.value) < 0
        return all(bool(np.all(np.where(below, each <= 0, each >= 0))) for each in self.directions)


def _wide(value: Any) -> Any:
    return np.asarray(value).astype(np.int64)


def difference(after: Any, before: Any) -> Any:
    """The growth of a number. Other values must be equal."""
    after, before = np.asarray(after), np.asarray(before)
    if after.shape != before.shape or after.dtype != before.dtype:
        raise RunsDiffer
    if dtypes.is_integer(after.dtype):
        return after.astype(np.int64) - before.astype(np.int64)
    if not np.array_equal(after, before):
        raise RunsDiffer
    return np.zeros(after.shape, np.int64)


Rule = Callable[[Eqn, Sequence[Number]], bool]


def continues_linearly(eqn: Eqn, inputs: Sequence[Number], outputs: Sequence[Number]) -> bool:
    """True if the results of an equation continue linearly if its operands do."""
    if all(each.fixed for each in inputs):
        return True
    for each in (*inputs, *outputs):
        dtype = np.asarray(each.value).dtype
        if not each.fixed and (dtype not in WIDE or (dtype.kind == "u" and not each.grows) or each.wraps_soon):
            return False  # it may wrap around
    rule = RULES.get(eqn.op.name)
    if rule is not None:
        return rule(eqn, inputs)
    return eqn.op.work is Work.NONE and all(each.fixed for each in inputs[1:])


WIDE = tuple(map(np.dtype, (np.int32, np.uint32, np.int64, np.uint64)))


def _always(_: Eqn, __: Sequence[Number]) -> bool:
    return True


def _product(_: Eqn, inputs: Sequence[Number]) -> bool:
    return any(each.fixed for each in inputs)


def _divided(_: Eqn, inputs: Sequence[Number]) -> bool:
    x, y = inputs
    divisor = _wide(y.value)
    whole = all(bool(np.all(np.asarray(each) % np.maximum(divisor, 1) == 0)) for each in x.directions)
    return y.fixed and bool(np.all(divisor > 0)) and x.grows and whole


def _masked(eqn: Eqn, inputs: Sequence[Number]) -> bool:
    """The low bits of a number: a remainder by a power of two."""
    x, y = inputs if inputs[1].fixed else reversed(inputs)
    last = _wide(y.value)
    return bool(np.all(last & (last + 1) == 0)) and _divided(eqn, (x, y._replace(value=last + 1)))


def _ordered(_: Eqn, inputs: Sequence[Number]) -> bool:
    return inputs[0].minus(inputs[1]).keeps_negativity


def _ordered_back(_: Eqn, inputs: Sequence[Number]) -> bool:
    return inputs[1].minus(inputs[0]).keeps_negativity


def _apart(_: Eqn, inputs: Sequence[Number]) -> bool:
    return inputs[0].minus(inputs[1]).keeps_sign


def _signed(_: Eqn, inputs: Sequence[Number]) -> bool:
    return inputs[0].keeps_sign


def _chosen(_: Eqn, inputs: Sequence[Number]) -> bool:
    return inputs[0].fixed


def _converted(eqn: Eqn, inputs: Sequence[Number]) -> bool:
    """Conversion to a wide integer requires that the number grows; to a bool, that it stays zero or nonzero.

    A float rounds: equal results of a few numbers say nothing about larger ones.
    """
    if dtypes.is_integer(eqn.dtype):
        return eqn.dtype in WIDE and inputs[0].grows
    return eqn.dtype == dtypes.BOOL and inputs[0].keeps_sign


RULES: dict[str, Rule] = {
    "add": _always,
    "sub": _always,
    "neg": _always,
    "concatenate": _always,
    "mul": _product,
    "div": _divided,
    "rem": _divided,
    "bitwise_and": _masked,
    "lt": _ordered,
    "ge": _ordered,
    "gt": _ordered_back,
    "le": _ordered_back,
    "eq": _apart,
    "ne": _apart,
    "min": _ordered,
    "max": _ordered,
    "sign": _signed,
    "abs": _signed,
    "select": _chosen,
    "convert": _converted,
}
"""Tests of operations on numbers that differ between sizes or rounds: is the result linear if the operands are?"""

__all__ = ["Number", "RunsDiffer", "continues_linearly", "difference"]
