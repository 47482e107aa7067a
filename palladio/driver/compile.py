"""The spine: which passes a program goes through on its way to each executor."""

from __future__ import annotations

from palladio.driver.capture import note
from palladio.driver.executors import CPU, HOPPER, HOPPER_TWIN, REFERENCE, SIMULATOR, Executor, Runner
from palladio.ir.core import Program
from palladio.ir.verify import verify
from palladio.lower import fold_ranges, fuse, place, prove_inside, schedule, split_roles, view
from palladio.passes.common_subexpressions import merge_common_subexpressions
from palladio.passes.dead_code import remove_dead_code
from palladio.passes.pipeline import Dump, Pass, run_passes
from palladio.passes.simplify import simplify

CLEAN = (simplify, merge_common_subexpressions, remove_dead_code)
_LOWERED = (*CLEAN, fold_ranges, *CLEAN, place, prove_inside, schedule)

# The evaluator runs what was traced: the definition is not to depend on any pass.
PIPELINES: dict[str, tuple[Pass, ...]] = {
    REFERENCE.name: (),
    SIMULATOR.name: (),
    CPU.name: (*_LOWERED, view, fuse),
    HOPPER_TWIN.name: (*_LOWERED, split_roles, view),
    HOPPER.name: (*_LOWERED, split_roles, view),
}


def passes_to(executor: Executor, last: Pass) -> tuple[Pass, ...]:
    """An executor's passes up to the first place of one, with the clean-up that follows it there."""
    pipeline = PIPELINES[executor.name]
    end = pipeline.index(last) + 1
    while end < len(pipeline) and pipeline[end] in CLEAN:
        end += 1
    return pipeline[:end]


def load(program: Program, executor: Executor, dump: Dump | None = None) -> Runner:
    """Take a traced program through an executor's passes and make it runnable.

    Args:
        dump: called with the program's text after each stage.
    """
    verify(program)
    note(program)
    return executor.load(run_passes(program, PIPELINES[executor.name], dump=dump))
