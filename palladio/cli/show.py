"""`palladio show FILE.py::FUNCTION --stage STAGE`: print a function's kernels at a stage of compilation."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.syntax import Syntax
from rich.text import Text

from palladio.base.dataclass import dataclass
from palladio.call.ahead import forget_calls
from palladio.cli.target import declare, function
from palladio.cpu.runtime.machine_code import MachineCode
from palladio.driver.capture import prepared_programs
from palladio.driver.compile import EMISSION, PIPELINES, passes_to
from palladio.driver.executors import CPU, HOPPER_TWIN, Executor
from palladio.hopper import compile as nvrtc
from palladio.hopper.emit.plan import layout_of
from palladio.hopper.emit.uses import uses
from palladio.hopper.inspect import disassembled
from palladio.hopper.kernels import lowered
from palladio.hopper.layouts.infer import Layouts
from palladio.hopper.layouts.pictures import of_registers, of_shared
from palladio.ir.core import Eqn, Program, walk
from palladio.ir.text import print_program
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
    split_roles,
    view,
)
from palladio.lower.refused import Refused
from palladio.lower.roles import roles_of
from palladio.ops.grid import Grid
from palladio.ops.kernel_calls import alone, is_kernel_call, kernels_of
from palladio.ops.threads.launch import Launch, launch
from palladio.passes import PASSES, Pass, remove_dead_code, run_passes
from palladio.types.types import SMEM, RefType


def _printed(eqn: Eqn) -> str:
    return "\n".join(map(print_program, kernels_of(eqn)))


def _discharged(eqn: Eqn) -> str:
    """The programs of a launch stay as they are: other threads reach what their references refer to."""
    passes = [] if eqn.op is launch else [PASSES["discharge"]]
    return "\n".join(print_program(run_passes(program, passes)) for program in kernels_of(eqn))


def _call(eqn: Eqn) -> str:
    """The whole call as a separate program: a lowered form records its facts in the grid or launch."""
    return print_program(alone(eqn))


def _llvm(eqn: Eqn) -> str:
    return EMISSION[CPU.name](eqn).text


def _assembly(eqn: Eqn) -> str:
    return MachineCode(_llvm(eqn)).assembly()


def _cuda(eqn: Eqn) -> str:
    return EMISSION[HOPPER_TWIN.name](eqn).text


def _sass(eqn: Eqn) -> str:
    return disassembled(nvrtc.compiled(lowered(eqn)).code)


def _layouts(eqn: Eqn) -> str:
    """Pictures of the layouts that a kernel's arrays and buffers get on Hopper; each is shown once, with its names."""
    programs = list(_role_programs(eqn))
    pictures: dict[str, list[str]] = {}
    for program in programs:
        found = Layouts(program)
        for var in found.arrays:
            if var.type.shape and found.of(var).count:
                pictures.setdefault(of_registers(found.of(var)), []).append(f"{var.hint or 'a value'}:{var.type}")
    for var, use in uses(programs).items():
        if isinstance(var.type, RefType) and var.type.space is SMEM and var.type.ndim:
            pictures.setdefault(of_shared(layout_of(var.type, use)), []).append(f"{var.hint or 'a buffer'}:{var.type}")
    parts = (f"{', '.join(dict.fromkeys(names))}\n{picture}" for picture, names in pictures.items())
    return "\n\n".join(parts) or "no arrays: every value is a number"


def _role_programs(eqn: Eqn) -> Iterator[Program]:
    if eqn.op is not launch:
        yield from kernels_of(eqn)
        return
    for number, program in enumerate(eqn.programs):
        yield from (role.program for role in roles_of(eqn.launch, number, program))


@dataclass(frozen=True)
class Stage:
    """A stage on the way of a kernel.

    Fields:
        doc: its description for the user.
        text: the kernel of a call, or the programs of a launch, at this stage.
        language: the text's language for a highlighter.
        target: the target that the kernel is compiled for.
        executor: whose passes the program goes through.
        last: the last of them; None for all.
        traced: whether no pass runs.
    """

    doc: str
    text: Callable[[Eqn], str]
    language: str | None = None
    target: str = "the CPU"
    executor: Executor = CPU
    last: Pass | None = None
    traced: bool = False

    @property
    def passes(self) -> tuple[Pass, ...]:
        """The passes before the stage."""
        if self.traced:
            return ()
        return PIPELINES[self.executor.name] if self.last is None else passes_to(self.executor, self.last)


FORMS: dict[str, Stage] = {
    "ranges": Stage("with integers of one possible value as constants", _call, last=fold_ranges),
    "placed": Stage("with the placement of each buffer of a launch", _call, last=place),
    "inside": Stage("with marks where an access cannot leave its array", _call, last=prove_inside),
    "scheduled": Stage("with each grid as parallel and sequential loops over views of blocks", _call, last=schedule),
    "viewed": Stage("with accesses as starts, strides and guards along each axis", _call, last=view),
    "fused": Stage("with what is computed together as one operation", _call, last=fuse),
    "bounded": Stage("with the positions outside of which operands are zero", _call, last=bound_zeros),
    "joined": Stage("with products that add to one another as one", _call, last=join_products),
    "kept": Stage("with what is kept in memory", _call, last=keep_arrays),
    "initialised": Stage("with where blocks that begin without values get them", _call, last=initialize),
    "roles": Stage("with a program for each role of a launch's threads", _call, executor=HOPPER_TWIN, last=split_roles),
}
"""The lowered forms: each prints the whole call, which reads back."""

STAGES: dict[str, Stage] = {
    "traced": Stage("as Python wrote it down", _printed, traced=True),
    "discharged": Stage("with values in the place of references", _discharged, traced=True),
    "optimised": Stage("after the clean-up passes", _printed, last=remove_dead_code),
    **FORMS,
    "llvm": Stage("the LLVM text that is compiled", _llvm, language="llvm"),
    "asm": Stage("the machine code for this processor", _assembly, language="gas"),
    "layouts": Stage("the layouts of arrays and buffers on Hopper", _layouts, target="Hopper", executor=HOPPER_TWIN),
    "cuda": Stage("the CUDA C++ for Hopper GPUs", _cuda, language="cuda", target="Hopper", executor=HOPPER_TWIN),
    "sass": Stage("the machine code for Hopper GPUs", _sass, language="gas", target="Hopper", executor=HOPPER_TWIN),
}


def add(subparsers: Any) -> None:
    """Declare the subcommand."""
    parser = subparsers.add_parser(
        "show",
        help="print what the kernels that a function calls become",
        description="Runs a function and prints every kernel that it calls, at one stage of the way to machine code.",
    )
    declare(parser)
    stages = "; ".join(f"{name}: {stage.doc}" for name, stage in STAGES.items())
    parser.add_argument("--stage", choices=STAGES, default="optimised", help=f"{stages} (default: %(default)s)")
    parser.set_defaults(run=run)


def run(options: Namespace) -> int:
    """Print the kernels; returns the exit status."""
    stage = STAGES[options.stage]
    target = function(options.target, options.as_jax)
    forget_calls()
    with prepared_programs() as programs:
        target()
    console = Console(soft_wrap=True, highlight=False)
    status = 0
    shown: set[tuple[str, str]] = set()
    for eqn in _calls(programs, stage):
        heading = _heading(eqn)
        try:
            text = stage.text(eqn)
        except Refused as reason:
            print(f"palladio: {heading}\n  is not compiled for {stage.target}: {reason}", file=sys.stderr)
            status = 1
            continue
        if (heading, text) not in shown:
            shown.add((heading, text))
            _print(console, heading, text, stage.language)
    if not shown and status == 0:
        print(f"palladio: {options.target.partition('::')[2]} ran, but called no kernel", file=sys.stderr)
        return 1
    return status


def _calls(programs: list[Program], stage: Stage) -> Iterator[Eqn]:
    for program in programs:
        yield from (eqn for eqn in walk(run_passes(program, stage.passes)) if is_kernel_call(eqn))


def _heading(eqn: Eqn) -> str:
    call: Grid | Launch = eqn.params["launch" if eqn.op is launch else "grid"]
    if isinstance(call, Grid):
        where = f"grid ({_sizes(call.sizes)})"
    else:
        where = ", ".join(
            " ".join(f"{axis.kind} {axis.name}={_sizes([axis.size])}" for axis in mesh.axes) or "one thread"
            for mesh in call.meshes
        )
    types = ", ".join(map(str, eqn.input_types[call.dynamic :]))
    outputs = ", ".join(map(str, call.output_types))
    return f"{', '.join(program.name for program in kernels_of(eqn))}({types}) -> {outputs}, {where}"


def _sizes(sizes: Sequence[int | None]) -> str:
    return ", ".join("dynamic" if size is None else str(size) for size in sizes)


def _print(console: Console, heading: str, text: str, language: str | None) -> None:
    """A comment with the heading, then the text: highlighted on a terminal, as it is otherwise."""
    mark = {"llvm": ";", "gas": "#", "cuda": "//"}.get(language or "", "--")
    console.print(Text(f"{mark} {heading}", style="bold"))
    if console.is_terminal and language is not None:
        console.print(Syntax(text, language, background_color="default", word_wrap=False))
    else:
        console.print(Text(text.rstrip("\n")))
    console.print()
