"""Runs the file tests: program text with directives in its comments.

A file holds one program. Each of its directives is one test; a directive goes on over following comment lines that are
indented by four spaces or more.

    # run: name(1.0, [[1, 2], [3, 4]]) == [2, 3]

The program on these inputs gives this output, bit for bit (NaN equals NaN). Inputs take the dtypes of the program's
inputs; `...` is an array of uninitialised memory. Several outputs stand in parentheses, and `()` is none. What
references hold in the end follows an arrow, for those that are meant:

    # run: name([1, 2], [0, 0]) == () -> o == [2, 4] and x == [1, 2]

`about:` is the same with the precision of the dtype in place of bits. `fails:` is a call that raises a user error whose
text contains what follows the arrow:

    # fails: name(-1) -> multiple_of is broken

    # raises: a reshape keeps the number of elements

Reading the program raises an error whose text contains this; such a file has no other directives.

    # structure(discharge, simplify): load 0, insert 2

After these passes (none: the program as it stands) these operations have that many equations, sub-programs counted.

    # shows(place): arrivals=2

After these passes its text contains this, line breaks and indentation aside.

Every directive that runs does so on every executor in `EXECUTORS`, and the text of every program reads back as itself.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from palladio.base.errors import NotCompiledWarning, PalladioError
from palladio.driver.compile import PIPELINES
from palladio.driver.executors import SIMULATOR
from palladio.ir.core import Program, walk
from palladio.ir.text import print_program
from palladio.lower import LOWERINGS
from palladio.machine.executor import on_machines
from palladio.ops import OPS, parse
from palladio.passes import ALL_PASSES, run_passes
from palladio.types import dtypes
from palladio.types.types import RefType, Type
from tests.one_point import run_on_cpu
from tests.round_trip import check_round_trip

Executor = Callable[[Program, Sequence[Any]], Sequence[Any]]

HERE = Path(__file__).parent
PASSES = {each.name: each for each in (*ALL_PASSES, *LOWERINGS)}
FILES = sorted(HERE.rglob("*.pal"))
KINDS = ("run", "about", "fails", "raises", "structure", "shows")
_DIRECTIVE = re.compile(rf"# ({'|'.join(KINDS)})(?:\(([^)]*)\))?: (.*)")


def reference(program: Program, values: Sequence[Any]) -> Sequence[Any]:
    """The definition; of launches, by the machine."""
    return on_machines().evaluate(program, values)


def through_all_passes(program: Program, values: Sequence[Any]) -> Sequence[Any]:
    """The definition of what the passes make of the program, its final values written back to the references."""
    passed = run_passes(program, [*PASSES.values()], verify_each=True)
    outputs = on_machines().evaluate(passed, [np.array(value) for value in values])
    count = len(program.outputs)
    refs = [value for value, var in zip(values, program.inputs, strict=True) if isinstance(var.type, RefType)]
    for ref, final in zip(refs, outputs[count:], strict=True):
        ref[...] = final
    return outputs[:count]


def lowered(program: Program, values: Sequence[Any]) -> Sequence[Any]:
    """The definition of every lowered form that executors share, each checked."""
    for passes in PIPELINES.values():
        program = run_passes(program, passes, verify_each=True)
    return on_machines().evaluate(program, values)


def simulated(program: Program, values: Sequence[Any]) -> Sequence[Any]:
    """The definition; of launches, by the machine that checks every access."""
    return SIMULATOR.load(program)(values)


EXECUTORS: dict[str, Executor] = {
    "reference": reference,
    "through_all_passes": through_all_passes,
    "lowered": lowered,
    "cpu": run_on_cpu,
    "simulator": simulated,
}
"""Who runs the files: outputs from a program and values, references written in place. One line joins an executor."""


LEFT_OUT = {
    "launch/inside_a_thread_only_warps": "a launch inside a thread, other than of its warps",
}
"""File -> why the CPU does not compile it: it warns so, and gives the right results by the evaluator."""


def name_of(path: Path) -> str:
    return str(path.relative_to(HERE).with_suffix(""))


def run_by(executor: str, directive: Directive, program: Program, values: Sequence[Any]) -> Sequence[Any]:
    """Run a program, which must say so if it is not compiled, and may be so only if the table says that."""
    reason = LEFT_OUT.get(name_of(directive.path))
    if executor != "cpu" or reason is None:
        return EXECUTORS[executor](program, values)
    with pytest.warns(NotCompiledWarning, match=re.escape(reason)):
        return EXECUTORS[executor](program, values)


@dataclass(frozen=True)
class Directive:
    """One line of a file's comments that is a test."""

    path: Path
    line: int
    kind: str
    argument: str
    text: str

    def __str__(self) -> str:
        return f"{self.path.relative_to(HERE).with_suffix('')}:{self.line}"


def directives(path: Path) -> list[Directive]:
    """The directives of a file."""
    found: list[Directive] = []
    open_line = False
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        match = _DIRECTIVE.match(line)
        if match:
            found.append(Directive(path, number, match[1], match[2] or "", match[3]))
        elif open_line and line.startswith("#    "):
            last = found.pop()
            found.append(Directive(path, last.line, last.kind, last.argument, f"{last.text} {line[1:].strip()}"))
        open_line = line.startswith("#") and (bool(match) or (open_line and line.startswith("#    ")))
    return found


ALL = [directive for path in FILES for directive in directives(path)]


def of_kind(*kinds: str) -> Any:
    chosen = [directive for directive in ALL if directive.kind in kinds]
    return pytest.mark.parametrize("directive", chosen, ids=str)


def read(path: Path) -> Program:
    return parse(path.read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Call:
    """The inputs of a `run` line, and its results, after `==` and the arrow."""

    inputs: list[Any]
    outputs: list[Any]
    refs: dict[str, Any]


def constant(node: ast.expr) -> Any:
    """A number, a list, a tuple or `...`."""
    return eval(  # the text of a test file, with nothing to call in reach
        compile(ast.Expression(node), "<directive>", "eval"),
        {"__builtins__": {}, "nan": float("nan"), "inf": float("inf")},
    )


def call(directive: Directive, program: Program) -> Call:
    """The call that a directive describes."""
    left, _, right = directive.text.partition(" -> ")
    tree = ast.parse(left.strip(), mode="eval").body
    expected: list[Any] = []
    if isinstance(tree, ast.Compare):
        result = constant(tree.comparators[0])
        expected = list(result) if isinstance(result, tuple) else [result]
        tree = tree.left
    assert isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name), "a call is written name(inputs)"
    assert tree.func.id == program.name, "a call names its program"
    refs: dict[str, Any] = {}
    if right and directive.kind != "fails":
        parsed = ast.parse(right.strip(), mode="eval").body
        for part in parsed.values if isinstance(parsed, ast.BoolOp) else [parsed]:
            assert isinstance(part, ast.Compare) and isinstance(part.left, ast.Name), "a reference is compared by name"
            refs[part.left.id] = constant(part.comparators[0])
    return Call([constant(argument) for argument in tree.args], expected, refs)


def array(value: Any, type: Type) -> Any:
    """A value of a file as an array of a type."""
    if value is ...:
        return np.full(type.shape, dtypes.uninitialized(type.dtype), type.dtype)
    with np.errstate(all="ignore"):
        found = np.asarray(value).astype(type.dtype) if np.size(value) else np.zeros(type.shape, type.dtype)
    assert found.shape == type.shape, f"{value} is no {type}"
    if dtypes.is_integer(type.dtype):
        assert np.array_equal(found.astype(object), np.asarray(value, object).reshape(type.shape)), f"no {type}"
    return found


def check(got: Any, expected: Any, type: Type, exact: bool) -> None:
    wanted = array(expected, type)
    got = np.asarray(got)
    assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype)
    if not exact:
        precision = 4 * float(dtypes.finfo(type.dtype).eps)
        wide = (got.astype(np.float64), wanted.astype(np.float64))
        np.testing.assert_allclose(*wide, rtol=precision, atol=precision)
        return
    if dtypes.is_float(type.dtype):
        nan = type.dtype.type(np.nan)
        got, wanted = np.where(np.isnan(got), nan, got), np.where(np.isnan(wanted), nan, wanted)
    assert got.tobytes() == wanted.tobytes(), f"got {got.tolist()}, expected {wanted.tolist()}"


@pytest.mark.parametrize("executor", EXECUTORS)
@of_kind("run", "about")
def test_run(directive: Directive, executor: str) -> None:
    program = read(directive.path)
    wanted = call(directive, program)
    assert len(wanted.inputs) == len(program.inputs), "one input for each of the program's"
    assert len(wanted.outputs) == len(program.outputs), "one result for each of the program's outputs"
    values = [array(value, var.type) for value, var in zip(wanted.inputs, program.inputs, strict=True)]
    with np.errstate(all="ignore"):
        outputs = run_by(executor, directive, program, values)
    exact = directive.kind == "run"
    for got, expected, type in zip(outputs, wanted.outputs, program.output_types, strict=True):
        check(got, expected, type, exact)
    held = {var.hint: (value, var.type) for value, var in zip(values, program.inputs, strict=True)}
    for name, expected in wanted.refs.items():
        check(held[name][0], expected, held[name][1], exact)


@pytest.mark.parametrize("executor", EXECUTORS)
@of_kind("fails")
def test_fails(directive: Directive, executor: str) -> None:
    program = read(directive.path)
    wanted = call(directive, program)
    values = [array(value, var.type) for value, var in zip(wanted.inputs, program.inputs, strict=True)]
    with pytest.raises(PalladioError) as raised:
        run_by(executor, directive, program, values)
    assert directive.text.partition(" -> ")[2].strip() in str(raised.value)


@of_kind("raises")
def test_raises(directive: Directive) -> None:
    with pytest.raises(PalladioError) as raised:
        read(directive.path)
    assert directive.text.strip() in str(raised.value)


@of_kind("structure")
def test_structure(directive: Directive) -> None:
    names = [name.strip() for name in directive.argument.split(",") if name.strip()]
    program = run_passes(read(directive.path), [PASSES[name] for name in names])
    counts = Counter(eqn.op.name for eqn in walk(program))
    wanted = dict(part.split() for part in directive.text.split(","))
    assert {*wanted} <= {*OPS}, "an operation that does not exist"
    assert {name: counts[name] for name in wanted} == {name: int(count) for name, count in wanted.items()}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(HERE).with_suffix("")))
def test_every_file_tests_something_and_reads_back(path: Path) -> None:
    kinds = {directive.kind for directive in directives(path)}
    assert kinds, "a file without a directive"
    if "raises" not in kinds:
        check_round_trip(read(path))


@of_kind("shows")
def test_shows(directive: Directive) -> None:
    names = [name.strip() for name in directive.argument.split(",") if name.strip()]
    lowered = run_passes(read(directive.path), [PASSES[name] for name in names])
    check_round_trip(lowered)
    assert directive.text.strip() in " ".join(print_program(lowered).split())
