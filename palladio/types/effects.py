"""Effects: the consequences of an equation besides its outputs.

A type rule's op names effects by *input position*; forming the equation binds them to variables. An effect without a
position belongs to no reference (`debug_print`). Two equations that have effects on one reference keep their order
unless both only read.
"""

from __future__ import annotations

from enum import Enum

from palladio.base.dataclass import dataclass


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
"""The effect of every operation with a `Sync` record: no pass moves an access across it."""


class AsyncKind(Enum):
    """The kinds of asynchronous operation, by how a thread learns of their completion."""

    COPY = "copy"
    """A copy into shared memory; its bytes arrive at a barrier."""
    STORE = "store"
    """A copy from shared to global memory; it completes with the group that is committed next."""
    DMA = "dma"
    """A copy between the memories of cores; semaphores count its bytes."""
    PREFETCH = "prefetch"
    """A copy into a cache, which nothing waits for."""
    WGMMA = "wgmma"
    """A product on the tensor cores; it completes in the order of issue."""
    LAUNCH = "launch"
    """The threads of a launch, which end with it."""


@dataclass(frozen=True)
class Sync:
    """The part of an operation in what runs beside the program: other threads and asynchronous operations.

    Barriers and semaphores are named by the operand of the operation that refers to them, as in its type rule.

    Fields:
        issues: the kind of asynchronous operation that it starts.
        commits: the kind of those that it closes a group of.
        waits: the operand at which it waits, or the kind of this thread's asynchronous operations that it waits for.
        polls: the operand whose state it reads without waiting.
        arrives: the operands that get an arrival, or are raised, by it or by the asynchronous operation that it issues.
        fences: it orders this thread's accesses before it with asynchronous operations that follow.
        meets: it continues when all threads of the block have come.
        registers: it takes registers from the block's pool, or gives some back.
    """

    issues: AsyncKind | None = None
    commits: AsyncKind | None = None
    waits: str | AsyncKind | None = None
    polls: str | None = None
    arrives: tuple[str, ...] = ()
    fences: bool = False
    meets: bool = False
    registers: bool = False

    @property
    def operands(self) -> tuple[str, ...]:
        """The operands that are barriers or semaphores, each once."""
        waits = (self.waits,) if isinstance(self.waits, str) else ()
        polls = (self.polls,) if self.polls is not None else ()
        return tuple(dict.fromkeys((*waits, *polls, *self.arrives)))

    @property
    def yields(self) -> bool:
        """True if other threads may run before it completes: it waits, polls, or meets them."""
        return isinstance(self.waits, str) or self.polls is not None or self.meets
