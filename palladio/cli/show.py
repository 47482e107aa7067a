"""`palladio show FILE.py::FUNCTION --stage STAGE`: what the kernels that a function calls become."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.syntax import Syntax
from rich.text import Text

from palladio.call.jit import STAGED
from palladio.call.pallas_call import PREPARED
from palladio.cli.target import HELP, SYNTAX, function
from palladio.cpu.engine import Compiled
from palladio.cpu.lower import lower_grid
from palladio.cpu.scope import Refused
from palladio.driver.compile import PIPELINES
from palladio.driver.executors import CPU
from palladio.driver.observe import prepared_programs
from palladio.ir.program import Eqn, Program, walk
from palladio.ir.text import print_program
from palladio.ops.grid import Grid, grid_call
from palladio.passes import PASSES, run_passes


def _kernel(eqn: Eqn) -> Program:
    return eqn.params["kernel"]


def _discharged(eqn: Eqn) -> str:
    return print_program(run_passes(_kernel(eqn), [PASSES["discharge"]]))


def _llvm(eqn: Eqn) -> str:
    return lower_grid(eqn.params["grid"], _kernel(eqn), eqn.input_types).text


def _assembly(eqn: Eqn) -> str:
    return Compiled(lower_grid(eqn.params["grid"], _kernel(eqn), eqn.input_types)).assembly()


@dataclass(frozen=True)
class Stage:
    """A stage on the way of a kernel.

    Fields:
        doc: what the user reads about it.
        text: the kernel of a `grid_call` at this stage.
        optimised: whether the program has been through the CPU executor's passes before.
        language: what a highlighter calls the text.
    """

    doc: str
    text: Callable[[Eqn], str]
    optimised: bool
    language: str | None = None


STAGES: dict[str, Stage] = {
    "traced": Stage("as Python wrote it down", lambda eqn: print_program(_kernel(eqn)), optimised=False),
    "discharged": Stage("with values in the place of references", _discharged, optimised=False),
    "optimised": Stage(
        "behind the passes of the CPU executor", lambda eqn: print_program(_kernel(eqn)), optimised=True
    ),
    "llvm": Stage("the LLVM text that is compiled", _llvm, optimised=True, language="llvm"),
    "asm": Stage("the machine code for this processor", _assembly, optimised=True, language="gas"),
}


def add(subparsers: Any) -> None:
    """Declare the subcommand."""
    parser = subparsers.add_parser(
        "show",
        help="print what the kernels that a function calls become",
        description="Runs a function and prints every kernel that it calls, at one stage of the way to machine code.",
    )
    parser.add_argument("target", metavar=SYNTAX, help=HELP)
    stages = "; ".join(f"{name}: {stage.doc}" for name, stage in STAGES.items())
    parser.add_argument("--stage", choices=STAGES, default="optimised", help=f"{stages} (default: %(default)s)")
    parser.set_defaults(run=run)


def run(options: Namespace) -> int:
    """Print the kernels; returns the exit status."""
    stage = STAGES[options.stage]
    target = function(options.target)
    PREPARED.clear()
    STAGED.clear()
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
            print(f"palladio: {heading}\n  is not compiled for the CPU: {reason}", file=sys.stderr)
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
        passed = run_passes(program, PIPELINES[CPU.name]) if stage.optimised else program
        yield from (eqn for eqn in walk(passed) if eqn.op is grid_call)


def _heading(eqn: Eqn) -> str:
    grid: Grid = eqn.params["grid"]
    sizes = ", ".join("dynamic" if size is None else str(size) for size in grid.sizes)
    types = ", ".join(map(str, eqn.input_types[grid.dynamic :]))
    outputs = ", ".join(map(str, grid.output_types))
    return f"{_kernel(eqn).name}({types}) -> {outputs}, grid ({sizes})"


def _print(console: Console, heading: str, text: str, language: str | None) -> None:
    """A comment with the heading, then the text: highlighted on a terminal, as it is otherwise."""
    mark = {"llvm": ";", "gas": "#"}.get(language or "", "--")
    console.print(Text(f"{mark} {heading}", style="bold"))
    if console.is_terminal and language is not None:
        console.print(Syntax(text, language, background_color="default", word_wrap=False))
    else:
        console.print(Text(text.rstrip("\n")))
    console.print()
