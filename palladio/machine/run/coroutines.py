"""A program as a generator that a scheduler drives: it yields at scheduling points.

Each equation is one line, as in `palladio.ir.evaluate`. Pure ones are evaluated; those that access memory or other
threads use the machine's rules, which get the thread that runs them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any

import numpy as np

from palladio.ir.core import Eqn, Program, Run, walk
from palladio.ir.evaluate import PLAIN, as_function, evaluate, locate
from palladio.machine.run.arithmetic import group, grouped, remembering
from palladio.machine.run.points import Point
from palladio.machine.run.scalars import quick
from palladio.ops.control import cond, loop, repeat
from palladio.ops.threads.launch import launch
from palladio.types.types import RefType

NOW = "{0}(thread, {1})"
STEPS = "yield from {0}(thread, {1})"
ENTERS = "found if type(found := {0}(thread, {1})) is list else (yield from found)"
"""A line that runs a program: its outputs immediately if it never yields, or in steps."""

Coroutine = Generator[Any, None, Sequence[Any]]
Rule = Callable[[Eqn], Callable[..., Any]]
"""Makes the function of (thread, *inputs) that executes one equation."""

_KEPT = "_steps"
_KEPT_TIMED = "_timed_steps"
_KEPT_CHECKED = "_checked_steps"
_KEPT_WATCHED = "_watched_steps"
_LOADS = "_loads"
_GROUPED = "_grouped"


class Rules:
    """The rules of the machine for operations; rules with scheduling points are generators."""

    def __init__(self) -> None:
        self.now: dict[str, Rule] = {}
        self.steps: dict[str, Rule] = {}
        self.unused: dict[str, Rule] = {}

    def __contains__(self, name: object) -> bool:
        return name in self.now or name in self.steps or name in self.unused

    def at_once(self, *names: str) -> Callable[[Rule], Rule]:
        """Register a rule for operations that never wait."""

        def register(rule: Rule) -> Rule:
            self.now.update(dict.fromkeys(names, rule))
            return rule

        return register

    def in_steps(self, *names: str) -> Callable[[Rule], Rule]:
        """Register a rule that makes a generator function."""

        def register(rule: Rule) -> Rule:
            self.steps.update(dict.fromkeys(names, rule))
            return rule

        return register

    def in_steps_unused(self, *names: str) -> Callable[[Rule], Rule]:
        """Register a rule that makes a generator function, for operations whose results are unused."""

        def register(rule: Rule) -> Rule:
            self.unused.update(dict.fromkeys(names, rule))
            return rule

        return register


RULES = Rules()


def is_pure(program: Program) -> bool:
    """True if a program accesses neither memory nor other threads, so that plain evaluation suffices."""
    return not program.has_refs and not any(
        eqn.synchronises or any(isinstance(type, RefType) for type in eqn.input_types) for eqn in walk(program)
    )


def run_program(thread: Any, program: Program, values: Sequence[Any]) -> Coroutine:
    """Run a program in steps and return its outputs; an error gets the location of its equation."""
    try:
        found = enter(thread, program, values)
        return found if isinstance(found, list) else (yield from found)
    except Exception as error:
        locate(program, error)
        raise


def enter(thread: Any, program: Program, values: Sequence[Any]) -> list[Any] | Coroutine:
    """Begin the execution of a program.

    Returns:
        Its outputs, in a list; or, if the program has scheduling points, the steps that return them.
    """
    if thread.machine.timer is not None:
        kept, line = _KEPT_TIMED, _timed_line
    elif thread.machine.watch is not None:
        kept, line = _KEPT_WATCHED, _watched_line
    elif thread.checker is not None and (thread.uninitialised or _loads(program)):
        kept, line = _KEPT_CHECKED, _checked_line
    else:
        kept, line = _KEPT, _line
    run = program.__dict__.get(kept)
    if run is None:
        plain = (
            line not in (_timed_line, _watched_line)
            and is_pure(program)
            and any(eqn.op.control for eqn in program.eqns)
        )
        run = program.__dict__[kept] = evaluate if plain else _prepared(program, line)
    if run is not evaluate:
        return run(thread, *values)  # type: ignore[no-any-return]
    found = evaluate(program, values)
    if thread.uninitialised:
        found = thread.checker.accesses.unwritten.follow(thread, partial(_evaluated, program), values, found)
    return list(found)


def _prepared(program: Program, line: Callable[[Eqn, bool], Line]) -> Callable[..., list[Any] | Coroutine]:
    """The function of (thread, *inputs) that runs a program."""
    if line not in (_timed_line, _watched_line):  # those lines are for each single equation
        if _GROUPED not in program.__dict__:
            program.__dict__[_GROUPED] = grouped(program, RULES)  # kept, to locate errors in its function
        program = program.__dict__[_GROUPED]
    return as_function(program, _lines(program, line), "thread")  # type: ignore[no-any-return]


def _loads(program: Program) -> bool:
    """True if an equation of a program loads a value from memory, which may be uninitialised."""
    found = program.__dict__.get(_LOADS)
    if found is None:
        found = any(eqn.outputs and any(isinstance(t, RefType) for t in eqn.input_types) for eqn in program.eqns)
        program.__dict__[_LOADS] = found
    return bool(found)


def drive(thread: Any, steps: Generator[Run, Sequence[Any], Sequence[Any]]) -> Coroutine:
    """Run a control-flow operation's generator, stepping through each program that it requests."""
    try:
        request = next(steps)
        while True:
            request = steps.send((yield from run_program(thread, request.program, request.values)))
    except StopIteration as stop:
        return stop.value


Line = tuple[str, Callable[..., Any]]


def _lines(program: Program, line: Callable[[Eqn, bool], Line]) -> Callable[[Eqn], Line]:
    """The lines of a program's equations, selected by whether their results are used."""
    used = {id(atom) for eqn in program.eqns for atom in eqn.inputs} | {id(atom) for atom in program.outputs}
    return lambda eqn: line(eqn, not any(id(var) in used for var in eqn.outputs))


def _line(eqn: Eqn, unused: bool) -> Line:
    name = eqn.op.name
    if eqn.op is group:
        return NOW, _group(eqn)
    if unused and name in RULES.unused:
        return STEPS, RULES.unused[name](eqn)
    if name in RULES.steps:
        return STEPS, RULES.steps[name](eqn)
    if name in RULES.now:
        return NOW, RULES.now[name](eqn)
    if eqn.op.control:
        return ENTERS, _control(eqn)
    if any(isinstance(type, RefType) for type in eqn.input_types):
        return NOW, RULES.now["load"](eqn)
    return PLAIN, quick(eqn) or (partial(eqn.op.eval, **eqn.params) if eqn.params else eqn.op.eval)


def _group(eqn: Eqn) -> Callable[..., Any]:
    """Index arithmetic: memoised, except while the thread tracks uninitialised values."""
    kept: Callable[..., Any] | None = eqn.__dict__.get(_KEPT)
    if kept is not None:
        return kept
    body = eqn.body
    run = remembering(as_function(body, _lines(body, _line)), eqn.input_types)
    followed: list[Callable[..., Any]] = []

    def found(thread: Any, *values: Any) -> Any:
        if not thread.uninitialised:
            return run(*values)
        if not followed:
            followed.append(as_function(body, _lines(body, _checked_line), "thread"))
        return followed[0](thread, *values)

    eqn.__dict__[_KEPT] = found
    return found


def _evaluated(program: Program, *values: Any) -> Sequence[Any]:
    return evaluate(program, values)


def _checked_line(eqn: Eqn, unused: bool) -> Line:
    """The line of an equation that tracks uninitialised values."""
    form, function = _line(eqn, unused)
    if form != PLAIN or not eqn.inputs:
        return form, function

    def run(thread: Any, *values: Any) -> Any:
        found = function(*values)
        if thread.uninitialised:
            return thread.checker.accesses.unwritten.follow(thread, function, values, found)
        return found

    return NOW, run


def _timed_line(eqn: Eqn, unused: bool) -> Line:
    """The line of an equation in a timed run. Control flow itself takes no time."""
    form, function = _line(eqn, unused)
    if eqn.op.control or eqn.op is launch:
        return form, function
    if form == STEPS:

        def steps(thread: Any, *values: Any) -> Coroutine:
            found = yield from function(thread, *values)
            thread.machine.timer.charge(thread, eqn)
            return found

        return STEPS, steps

    def run(thread: Any, *values: Any) -> Any:
        found = function(*values) if form == PLAIN else function(thread, *values)
        thread.machine.timer.charge(thread, eqn)
        return found

    return NOW, run


def _watched_line(eqn: Eqn, unused: bool) -> Line:
    """The line of an equation in a watched run, reported before evaluation if it runs a program or has steps."""
    form, function = _checked_line(eqn, unused)

    def begun(thread: Any, *values: Any) -> Any:
        thread.machine.watch(thread, eqn, values, ())
        return function(thread, *values)

    def done(thread: Any, *values: Any) -> Any:
        found = function(*values) if form == PLAIN else function(thread, *values)
        thread.machine.watch(thread, eqn, values, found)
        return found

    return (form, begun) if form in (STEPS, ENTERS) else (NOW, done)


def _control(eqn: Eqn) -> Callable[..., Any]:
    """Control flow. Each level of generators costs more than most equations, so branches and bodies are entered
    directly; other operations run by their definitions.
    """
    op, params = eqn.op, eqn.params
    if op is cond:
        return _cond(eqn)
    if op is loop:
        return _loop(eqn)
    if op is repeat and not (is_pure(params["condition"]) and is_pure(params["body"])):
        return _repeat(eqn)
    return lambda thread, *values: drive(thread, op.eval(*values, **params))


def _cond(eqn: Eqn) -> Callable[..., Any]:
    branches = eqn.branches
    last = len(branches) - 1

    def run(thread: Any, index: Any, *operands: Any) -> list[Any] | Coroutine:
        if thread.uninitialised:
            thread.checker.accesses.unwritten.decides(thread, eqn, (index,))
        return enter(thread, branches[min(max(int(index), 0), last)], operands)

    return run


def _loop(eqn: Eqn) -> Callable[..., Coroutine]:
    body, constants, step = eqn.body, eqn.constants, eqn.step

    def steps(thread: Any, lower: Any, upper: Any, *operands: Any) -> Coroutine:
        if thread.uninitialised:
            thread.checker.accesses.unwritten.decides(thread, eqn, (lower, upper))
        fixed, carry = operands[:constants], operands[constants:]
        integer = np.asarray(lower).dtype.type
        outer = thread.trail
        for index in range(int(lower), int(upper), step):
            thread.trail = outer, eqn, index
            found = enter(thread, body, (integer(index), *fixed, *carry))
            carry = found if type(found) is list else (yield from found)
        thread.trail = outer
        return carry

    return steps


def _repeat(eqn: Eqn) -> Callable[..., Coroutine]:
    """A while loop: it may poll memory that another thread writes, so every iteration has a scheduling point."""
    condition, body, constants = eqn.condition, eqn.body, eqn.constants
    writes = any(not inner.op.atomic and inner.written for inner in walk(body))

    def steps(thread: Any, *values: Any) -> Coroutine:
        fixed, carry = values[:constants], values[constants:]
        turn = Point("work" if writes else "turn", thread)
        outer = thread.trail
        for number in itertools.count():
            thread.trail = outer, eqn, number
            (proceeds,) = yield from run_program(thread, condition, (*fixed, *carry))
            if thread.uninitialised:
                thread.checker.accesses.unwritten.decides(thread, eqn, (proceeds,))
            if not proceeds:
                break
            carry = yield from run_program(thread, body, (*fixed, *carry))
            yield turn
        thread.trail = outer
        return carry

    return steps
