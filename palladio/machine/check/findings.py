"""Findings of the checker: a record for each violation, and the meaning and fix of each code."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field, replace
from typing import Any, Protocol

from palladio.base.calls import did_you_mean
from palladio.base.dataclass import dataclass
from palladio.base.errors import PalladioError, PalladioTypeError, PalladioValueError
from palladio.base.locations import Location

LEVELS = ("error", "warning", "hint")
"""The severity of a finding: wrong on the hardware; probably unintended; harmless there in the present kernel."""


@dataclass(frozen=True)
class Code:
    """A kind of finding: its title, the fix to try first, and its severity unless a rule gives another."""

    name: str
    title: str
    fix: str
    level: str = "error"


CODES: dict[str, Code] = {
    code.name: code
    for code in (
        Code(
            "data-race",
            "two accesses of one buffer, at least one of them a write, are not ordered",
            "order them: arrive at a barrier after the first, wait for it before the second",
        ),
        Code(
            "global-race",
            "two blocks or cores reach the same global memory, at least one writes, and nothing orders them",
            "give each block its own part, use an atomic, or order them with a semaphore",
        ),
        Code(
            "missing-commit-smem",
            "an asynchronous operation reaches shared memory that ordinary stores wrote, with no fence between them",
            "call plgpu.commit_smem() in the storing thread, after the stores and before it starts or signals the "
            "operation",
        ),
        Code(
            "missing-commit-gmem",
            "an asynchronous copy takes from global memory what ordinary stores wrote, with no fence between them",
            "call plgpu.commit_gmem() in the storing thread, after the stores and before it signals them, or in the "
            "copying thread, after its wait",
        ),
        Code(
            "launch-not-awaited",
            "a launch uses memory that the launch before it may still be writing, or overwrites what it may still read",
            "call plgpu.griddepcontrol_wait() in the thread first, or in one that it waits for; or leave out "
            "plgpu.griddepcontrol_launch_dependents() in the launch before",
        ),
        Code(
            "wgmma-operand-overwritten",
            "the operand of a wgmma that may still be in flight is overwritten",
            "wait for the product before the memory is released: plgpu.wgmma_wait(0), or wgmma_wait(n) with a release "
            "n steps later (delay_release=n)",
        ),
        Code(
            "accumulator-in-flight",
            "an accumulator is used while a wgmma that changes it may be in flight",
            "wait first: plgpu.wgmma_wait(0), or read it with acc[...], which waits",
        ),
        Code(
            "store-source-overwritten",
            "the source of a copy to global memory that may still be in flight is overwritten",
            "call plgpu.wait_smem_to_gmem(0, wait_read_only=True) in the copying thread before the memory is written "
            "again",
        ),
        Code(
            "copy-not-awaited",
            "memory is used that an asynchronous copy may still be writing",
            "wait for the copy first: plgpu.barrier_wait on its barrier, or plgpu.wait_smem_to_gmem(0) for a store",
        ),
        Code(
            "copy-target-in-use",
            "an asynchronous copy may overwrite memory that is still being used",
            "let its users arrive at a barrier when they are done, and wait for that barrier before starting the copy",
        ),
        Code(
            "deadlock",
            "every thread waits, and nothing is in flight that could wake one",
            "see who waits for whom: an arrival is missing, one barrier too many is waited for, or a copy was not "
            "started",
        ),
        Code("out-of-bounds", "an access reaches outside its buffer", "bound the index, or mask the access"),
        Code(
            "uninitialized-read",
            "memory is read that nothing has written",
            "write or copy to it first, and wait for the copy",
        ),
        Code(
            "barrier-overrun",
            "a barrier completes again, and nothing makes sure that its last completion was seen",
            "wait for every completion before the next one can come, or use more barriers; check num_arrivals",
        ),
        Code(
            "missed-phase",
            "a thread may come too late for a completion that it waits for",
            "let every thread that waits arrive after its wait, and count it before the barrier completes again",
        ),
        Code(
            "unobserved-completion",
            "a barrier ends with a completion that no thread has waited for",
            "wait for it before the end, or leave out the arrival",
            "hint",
        ),
        Code(
            "unwritten-output",
            "a launch ends and has not written all of an output",
            "write the rest, zeros perhaps, or leave out what is not to be used",
            "warning",
        ),
        Code(
            "barrier-pending-arrivals",
            "a barrier ends in the middle of a phase: some arrivals came, others did not",
            "let every thread that takes part arrive, or lower num_arrivals",
        ),
        Code(
            "unawaited-copy",
            "a thread ends while its copies to global memory may still be reading shared memory",
            "call plgpu.wait_smem_to_gmem(0) at the end",
        ),
        Code(
            "unawaited-wgmma",
            "a thread ends while its products may still be in flight",
            "call plgpu.wgmma_wait(0), or read the accumulator, before the end",
        ),
        Code(
            "semaphore-not-drained",
            "a semaphore does not end at zero",
            "wait for every signal, or leave out the signals that no thread waits for",
        ),
        Code(
            "peer-exited",
            "a block reaches the memory or a barrier of a block of the cluster that may have ended",
            "let the blocks of the cluster meet at a ClusterBarrier before they end",
        ),
        Code(
            "cluster-mismatch",
            "blocks of a cluster name different things in one copy, or a store signals a block it does not write to",
            "let all blocks along the collective axes name one source, target and barrier; let a store to another "
            "block signal a barrier of that block",
        ),
        Code(
            "scope-in-use",
            "memory is given back at the end of its scope while an asynchronous operation may still reach it",
            "wait for the operation inside the scope",
        ),
        Code(
            "shared-memory-exceeded",
            "a block uses more shared memory than a multiprocessor has",
            "use fewer stages, smaller tiles, or let buffers that do not live at once share memory (plgpu.RefUnion)",
        ),
        Code(
            "registers-exceeded",
            "the warpgroups of a block claim more registers than a multiprocessor has",
            "lower the counts: 128 threads of every warpgroup share 65,536 registers",
        ),
        Code("barriers-exceeded", "a block has more barriers than fit", "use fewer barriers, or fewer stages"),
    )
}
"""Every code that a finding can have. `docs/findings/` has a page for each, which `palladio explain` prints."""


def checked_codes(codes: Any, argument: str) -> frozenset[str]:
    """Codes of findings, one or several.

    Raises:
        PalladioTypeError: not a code or a sequence of codes.
        PalladioValueError: an unknown code.
    """
    given = (codes,) if isinstance(codes, str) else codes
    if not isinstance(given, (tuple, list, set, frozenset)) or not all(isinstance(code, str) for code in given):
        raise PalladioTypeError(
            "the codes of findings are strings",
            argument=argument,
            expected='such as ("unobserved-completion",)',
            got=repr(codes),
        )
    for code in given:
        if code not in CODES:
            hint = did_you_mean(code, CODES) or "`palladio explain` lists the codes"
            raise PalladioValueError("no finding has this code", argument=argument, got=repr(code), hint=hint)
    return frozenset(given)


@dataclass(frozen=True)
class Participant:
    """One side of a finding: the participant, its action, its line, and the iteration of its loops, e.g. `k = 7`."""

    thread: str
    did: str
    location: Location | None = None
    at: str = field(default="", compare=False)


@dataclass(frozen=True)
class RacedOperand:
    """One race of a mistake: its key, the buffer, and the message."""

    key: Any
    name: str
    message: str


@dataclass(frozen=True)
class Finding:
    """A violation of the model in the schedule that ran.

    Fields:
        code: stable, in kebab-case; one of `CODES`.
        message: what happened, to which buffer or barrier.
        participants: the threads and async ops involved: first the one at which it was detected, then the others.
        missing: the missing order, or the event that was needed.
        fix: the change to try.
        details: more lines, e.g. the waits of a deadlock.
        schedule: the policy and seed that replay it.
        about: its subject, e.g. a barrier, where the lines do not distinguish mistakes.
        level: one of `LEVELS`.
        order: the chain of synchronisation between both sides, up to the missing edge.
        operand: the buffer of a race.
        mistake: the key of the missing edge: races that share it have one cause.
        also: further operands of the same mistake.
        repair: a change that was tried and removes it, if the check searched for repairs.
        jax: the corresponding message of JAX's interpreter, which tests of a ported kernel may match.
    """

    code: str
    message: str
    participants: tuple[Participant, ...]
    missing: str = ""
    fix: str = ""
    details: tuple[str, ...] = field(default=(), compare=False)
    schedule: str = field(default="", compare=False)
    about: str = field(default="", compare=False)
    level: str = field(default="error", compare=False)
    order: str = field(default="", compare=False)
    operand: str = field(default="", compare=False)
    mistake: Any = field(default=None, compare=False)
    also: tuple[RacedOperand, ...] = field(default=(), compare=False)
    repair: str = field(default="", compare=False)
    jax: str = field(default="", compare=False)

    @property
    def locations(self) -> tuple[Location, ...]:
        """The source lines of the participants that have one."""
        return tuple(participant.location for participant in self.participants if participant.location is not None)

    @property
    def threads(self) -> tuple[str, ...]:
        """The participants' threads."""
        return tuple(participant.thread for participant in self.participants)

    @property
    def key(self) -> Any:
        """The key of the mistake: the code and the source lines, independent of the threads."""
        if self.about:
            return self.code, self.about
        return self.code, tuple(sorted(map(_place, self.locations))) or self.message

    @property
    def operands(self) -> tuple[RacedOperand, ...]:
        """The operands involved: that of this pair of accesses and those that share its mistake."""
        return RacedOperand(self.key, self.operand, self.message), *self.also

    def covers(self, other: Finding) -> bool:
        """True if another finding is this mistake, of the same operand or another one."""
        if other.code != self.code:
            return False
        shared = self.mistake is not None and self.mistake == other.mistake
        return shared or not {each.key for each in self.operands}.isdisjoint(each.key for each in other.operands)

    def joined(self, other: Finding) -> Finding:
        """This finding with the operands of another one of the same mistake; itself if it has them all."""
        known = {(each.key, each.name) for each in self.operands}
        more = [each for each in other.operands if (each.key, each.name) not in known]
        return replace(self, also=(*self.also, *more)) if more else self

    def lines(self, replay: str = "") -> Iterator[tuple[str, str]]:
        """Lines of the report, each with its kind: code, participant, place, source, caret, detail, order, missing,
        try, repair, see, replay.

        Args:
            replay: the command that replays the schedule; by default, the corresponding call of `check`.
        """
        level = f" ({self.level})" if self.level != "error" else ""
        yield "code", f"{self.code}{level}: {self.message}"
        for participant in self.participants:
            at = f", {participant.at}" if participant.at else ""
            yield "participant", f"  {participant.thread}{at}: {participant.did}"
            if participant.location is not None:
                for kind, line in zip(_OF_A_PLACE, participant.location.render().split("\n"), strict=False):
                    yield kind, "  " + line
        for each in self.also:
            yield "detail", f"  also:    {each.message}"
        for line in self.details:
            yield "detail", f"  {line}"
        if self.order:
            yield "order", f"  order:   {self.order}"
        if self.missing:
            yield "missing", f"  missing: {self.missing}"
        yield "try", f"  try:     {self.fix or CODES[self.code].fix}"
        if self.repair:
            yield "repair", f"  repair:  {self.repair}"
        yield "see", f"  see:     palladio explain {self.code}"
        if self.schedule:
            call = f'palladio.check(..., schedule="{self.schedule}")'
            yield "replay", f"  replay:  {replay or call}"

    def __str__(self) -> str:
        return self.render()

    def render(self, replay: str = "") -> str:
        """The report as text: message, both sides with their source lines, the missing order, the fix."""
        return "\n".join(line for _, line in self.lines(replay))


_OF_A_PLACE = ("place", "source", "caret")


def _place(location: Location) -> tuple[str, int, int]:
    return location.file, location.line, location.column


class Sink(Protocol):
    """The receiver of findings: the interface through which modules report races and exceeded limits."""

    def report(
        self,
        code: str,
        message: str,
        participants: Iterable[Participant],
        missing: str = "",
        *,
        about: str = "",
        level: str = "",
        operand: str = "",
        order: Callable[[], tuple[str, Any]] | None = None,
    ) -> None:
        """Raise a finding, or keep it if this mistake is new."""

    def raced(self, read: Any) -> None:
        """Record a read that races with a write."""


class CheckError(PalladioError):
    """A finding as an exception: it ends a run on the simulator when the kernel breaks a rule.

    `finding` is the record.
    """

    def __init__(self, finding: Finding) -> None:
        places: Sequence[Location] = finding.locations
        super().__init__(finding.message, location=places[0] if places else None)
        self.finding = finding

    def __str__(self) -> str:
        jax = f"\n  in JAX:   {self.finding.jax}" if self.finding.jax else ""
        return self.finding.render() + jax
