"""Runs of programs on machines, and the session of a check, in which one kernel runs under many schedules."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field
from functools import partial

from palladio.base.dataclass import dataclass
from palladio.driver.simulator_options import SimulatorOptions
from palladio.ir.evaluate import Evaluator
from palladio.machine import executor
from palladio.machine.check.accesses import Places
from palladio.machine.check.checker import Checker
from palladio.machine.check.findings import Finding
from palladio.machine.check.order.launches import EarlierLaunches
from palladio.machine.run.machine import Machine
from palladio.machine.run.policies import Policy, named


class SimulatorWarning(UserWarning):
    """A finding, other than a hint, of a run with `on_race="warn"`."""


@dataclass
class Session:
    """One run of a check: every launch in it runs under the same policy, and findings are collected.

    Fields:
        policy: makes the policy of a launch.
        findings: the findings so far.
        machines: the machines of the run, for later inspection.
        prepare: called with each machine before it runs.
        places: the caches that runs of the same check share.
        launches: the launches of the run so far.
    """

    policy: Callable[[], Policy]
    findings: list[Finding] = field(default_factory=list)
    machines: list[Machine] = field(default_factory=list)
    prepare: Callable[[Machine], None] | None = None
    places: Places = field(default_factory=Places)
    launches: EarlierLaunches = field(default_factory=EarlierLaunches)


_session: ContextVar[Session | None] = ContextVar("palladio_session", default=None)


@contextmanager
def session(current: Session) -> Iterator[Session]:
    """Launches on the simulator inside the block belong to this run of a check."""
    token = _session.set(current)
    try:
        yield current
    finally:
        _session.reset(token)


def on_machines(options: SimulatorOptions | None) -> Evaluator:
    """The evaluator that runs launches on machines.

    Args:
        options: those of the simulator; None for machines that check nothing.
    """
    if options is None:
        return executor.on_machines()
    return executor.on_machines(partial(make_machine, options), warn_of, options.cores > 0)


def make_machine(options: SimulatorOptions) -> Machine:
    """The machine of one launch: that of the current session, or one with these options."""
    current = _session.get()
    if current is None:
        policy = named(options.schedule)
        machine = Machine(policy, _checker(options, policy, stop=not options.races or options.on_race == "raise"))
        machine.zeros, machine.skip_floats = options.zeros, options.skip_floats
        return _on_cores(machine, options)
    policy = current.policy()
    checker = _checker(options, policy, stop=False, places=current.places, launches=current.launches)
    checker.found.findings = current.findings
    machine = Machine(policy, checker)
    machine.products = current.places.products
    current.machines.append(machine)
    if current.prepare is not None:
        current.prepare(machine)
    return _on_cores(machine, options)


def _on_cores(machine: Machine, options: SimulatorOptions) -> Machine:
    """Configure the machine's sharing of grids among cores."""
    machine.cores, machine.grid_seed, machine.grid_recorder = options.cores, options.grid_seed, options.grid_recorder
    return machine


def _checker(
    options: SimulatorOptions,
    policy: Policy,
    stop: bool,
    places: Places | None = None,
    launches: EarlierLaunches | None = None,
) -> Checker:
    return Checker(
        stop=stop,
        schedule=policy.name,
        strict_reads=options.uninitialized_reads,
        bounds=options.out_of_bounds == "raise",
        places=places,
        ignore=options.ignore,
        memory=options.races,
        launches=launches,
        strict=options.strict,
    )


def warn_of(machine: Machine) -> None:
    """Warn of a run's findings that do not raise."""
    if machine.checker is not None and not machine.checker.found.stop and _session.get() is None:
        for finding in machine.checker.found.findings:
            if finding.level != "hint":
                warnings.warn(finding.render(), SimulatorWarning, stacklevel=2)
