"""Loading: a traced program as a function of values, which an executor runs."""

from __future__ import annotations

import functools

from palladio.base.signals import uninterrupted
from palladio.driver.capture import note
from palladio.driver.executors import Executor
from palladio.ir.core import Program
from palladio.ir.evaluate import Runner
from palladio.ir.verify import verify
from palladio.passes.pipeline import Dump, Pass, run_passes


def load(program: Program, executor: Executor, dump: Dump | None = None) -> Runner:
    """Run an executor's passes on a traced program and make it runnable.

    Args:
        dump: called with the program's text after each stage.
    """
    verify(program)
    note(program)
    return executor.load(run_passes(program, _passes(executor), dump=dump))


def _passes(executor: Executor) -> tuple[Pass, ...]:
    # The evaluator runs the traced program: the definition must not depend on any pass.
    return _pipelines()[executor.name] if executor.lowers else ()


@functools.cache
def _pipelines() -> dict[str, tuple[Pass, ...]]:
    """They are imported on another thread: a signal handler that calls a kernel meanwhile waits for them."""
    return uninterrupted(_import_pipelines)


def _import_pipelines() -> dict[str, tuple[Pass, ...]]:
    from palladio.driver.compile import PIPELINES  # what is evaluated, or found on disk, needs no pass

    return PIPELINES
