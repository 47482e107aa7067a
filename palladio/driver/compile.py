"""The compilation pipeline of a program for each executor.

A traced program runs through the passes of its executor. The text of each kernel that it calls is then emitted from
the last form, compiled or found on disk by its content, and run where the program calls it:

    reference     traced ▶ evaluator
    simulator     traced ▶ machines that check every access
    cpu           traced ▶ clean ▶ folded ▶ placed ▶ inside ▶ scheduled ▶ viewed ▶ fused
                  ▶ bounded ▶ joined ▶ kept ▶ initialised ▶ LLVM text ▶ machine code ▶ workers
    hopper        traced ▶ clean ▶ folded ▶ placed ▶ inside ▶ scheduled ▶ split by role ▶ viewed ▶ fused
                  ▶ CUDA C++ ▶ NVRTC ▶ cubin ▶ a card
    hopper-twin   the same CUDA C++ ▶ the host's compiler ▶ a model of the card's instructions

The evaluator computes the code around kernels; the compiler for CPUs makes kernels of sequences of small array
functions. A kernel that the compiler refuses runs on the evaluator, or is an error on a card. For why the simulator
uses no lowered form, and Hopper not the last four, see `palladio/architecture.py`, stage 4.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from palladio.driver.executors import CPU, HOPPER, HOPPER_TWIN, Executor
from palladio.ir.core import Eqn
from palladio.lower import (
    bound_zeros,
    fold_ranges,
    fuse,
    initialize,
    join_products,
    keep_arrays,
    place,
    prove_inside,
    schedule,
    slice_indices,
    split_roles,
    view,
)
from palladio.passes.common_subexpressions import merge_common_subexpressions
from palladio.passes.dead_code import remove_dead_code
from palladio.passes.pipeline import Pass
from palladio.passes.simplify import simplify


class Emitted(Protocol):
    """A kernel as text, with the data for its launch."""

    @property
    def text(self) -> str:
        """The text to compile."""


CLEAN = (simplify, merge_common_subexpressions, remove_dead_code)
_FOLDED = (*CLEAN, fold_ranges, *CLEAN)
_SCHEDULED = (place, prove_inside, schedule)
_LOWERED = (*_FOLDED, *_SCHEDULED)

PIPELINES: dict[str, tuple[Pass, ...]] = {
    CPU.name: (
        *_FOLDED,
        slice_indices,
        *CLEAN,
        *_SCHEDULED,
        view,
        fuse,
        bound_zeros,
        join_products,
        keep_arrays,
        initialize,
    ),
    HOPPER_TWIN.name: (*_LOWERED, split_roles, view, fuse),
    HOPPER.name: (*_LOWERED, split_roles, view, fuse),
}


def llvm(call: Eqn) -> Emitted:
    """The LLVM text of a kernel call in the initialised form."""
    from palladio.cpu.kernels import lowered  # imported on first use: evaluated kernels need no compiler

    return lowered(call)


def cuda(call: Eqn) -> Emitted:
    """The CUDA C++ of a kernel call in the fused form, its launch split by role."""
    from palladio.hopper.kernels import lowered  # imported on first use: few processes need it

    return lowered(call)


EMISSION: dict[str, Callable[[Eqn], Emitted]] = {CPU.name: llvm, HOPPER_TWIN.name: cuda, HOPPER.name: cuda}
"""The text of a kernel call, by the executor that compiles and runs it. It raises `Refused`, with the reason."""


def passes_to(executor: Executor, last: Pass) -> tuple[Pass, ...]:
    """An executor's passes up to the first occurrence of one, with the clean-up that follows it."""
    pipeline = PIPELINES[executor.name]
    end = pipeline.index(last) + 1
    while end < len(pipeline) and pipeline[end] in CLEAN:
        end += 1
    return pipeline[:end]
