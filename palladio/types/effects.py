"""What an equation does besides computing its outputs.

A type rule's op names effects by *input position*; forming the equation binds them to variables. An effect without a
position belongs to no reference (`debug_print`). Two equations that have effects on one reference keep their order
unless both only read.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class EffectKind(Enum):
    """The kinds of effect, by name as programs print them."""

    READ = "read"
    WRITE = "write"
    ACCUMULATE = "accumulate"
    DEBUG = "debug"
    SYNC = "sync"


@dataclass(frozen=True)
class Effect:
    """An effect of one kind on the input at `position`, or on nothing in particular."""

    kind: EffectKind
    position: int | None = None


def read(position: int) -> Effect:
    """A read of the reference at this input position."""
    return Effect(EffectKind.READ, position)


def write(position: int) -> Effect:
    """A write to the reference at this input position."""
    return Effect(EffectKind.WRITE, position)


def accumulate(position: int) -> Effect:
    """An addition into the reference at this input position."""
    return Effect(EffectKind.ACCUMULATE, position)


DEBUG = Effect(EffectKind.DEBUG)
SYNC = Effect(EffectKind.SYNC)
"""Of what starts or awaits something that runs beside the program: no pass moves an access across it."""
