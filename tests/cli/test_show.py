"""`palladio show`: what it prints, what it says of a target that will not do, its exit status."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from palladio.cli import main
from palladio.cli.show import FORMS, STAGES
from palladio.driver.compile import EMISSION, llvm
from palladio.ir.core import Eqn
from palladio.lower.refused import Refused
from tests.architecture.source import ROOT

SOURCE = """
    import numpy as np
    import palladio as pl
    import palladio.gpu as plgpu
    from helper import FACTOR

    X = np.arange(8, dtype=np.float32)
    OUT = pl.ShapeDtypeStruct((8,), np.float32)

    def double(x, out):
        out[...] = x[...] * FACTOR

    def odd(x, out):
        out[...] = x[...] - 1

    call = pl.pallas_call(double, OUT)

    def main():
        call(X)
        call(X)

    def two():
        call(X)
        pl.pallas_call(double, pl.ShapeDtypeStruct((4,), np.float32), name="half")(X[:4])

    def staged():
        pl.jit(lambda x: call(x) + 1)(X)

    def refused():
        pl.pallas_call(odd, OUT)(X)
        call(X)

    def pair(x, out):
        me = pl.axis_index("wg")
        out[pl.ds(me * 4, 4)] = x[pl.ds(me * 4, 4)] * 2

    def launched():
        plgpu.kernel(pair, OUT, num_threads=2, thread_name="wg")(X)

    def nothing():
        pass

    def broken():
        raise ValueError("broken on purpose")

    class Cases:
        @staticmethod
        def inner():
            call(X)

    NUMBER = 3
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The source above, beside a module that it imports."""
    import_module("llvmlite.binding")  # its modules find each other in `sys.modules` as it is when they are loaded
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "modules", {**sys.modules})
    (tmp_path / "helper.py").write_text("FACTOR = 2\n", encoding="utf-8")
    path = tmp_path / "kernels.py"
    path.write_text(textwrap.dedent(SOURCE), encoding="utf-8")
    return path


def shown(capsys: pytest.CaptureFixture[str], *arguments: Any) -> tuple[int, str, str]:
    """The exit status, what was printed, and what was said of errors."""
    status = main(list(map(str, arguments)))
    printed = capsys.readouterr()
    return status, printed.out, printed.err


BEGINNING = {
    "traced": "-- double(f32[8]) -> f32[8], grid ()\nprogram double(x:ref<any, f32[8]>, out:ref<any, f32[8]>) {",
    "discharged": "-- double(f32[8]) -> f32[8], grid ()\nprogram double(x:f32[8], out:f32[8]) {",
    "optimised": "-- double(f32[8]) -> f32[8], grid ()\nprogram double(x:ref<any, f32[8]>, out:ref<any, f32[8]>) {",
    **dict.fromkeys(
        FORMS, "-- double(f32[8]) -> f32[8], grid ()\nprogram call(a:f32[8]) {\n  b:f32[8] = grid_call a {"
    ),
    "llvm": "; double(f32[8]) -> f32[8], grid ()\n",
    "asm": "# double(f32[8]) -> f32[8], grid ()\n",
    "layouts": "-- double(f32[8]) -> f32[8], grid ()\na value:f32[8]",
    "cuda": '// double(f32[8]) -> f32[8], grid ()\n#include "palladio.cuh"',
    "sass": "# double(f32[8]) -> f32[8], grid ()\n",
}
INSIDE = {
    "traced": "store out",
    "discharged": "return x,",
    "optimised": "store out",
    "layouts": "thread:register",
    **dict.fromkeys(FORMS, "store out"),
    "llvm": "define i32 @kernel(",
}
INSIDE |= {"cuda": "PAL_KERNEL void PAL_BOUNDS(128) double_(", "sass": "EXIT"}


@pytest.mark.parametrize("stage", STAGES)
def test_a_kernel_at_a_stage(stage: str, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = shown(capsys, "show", f"{file}::main", "--stage", stage)
    assert (status, err) == (0, "")
    assert out.startswith(BEGINNING[stage])
    assert INSIDE.get(stage, "kernel:") in out


def test_a_kernel_called_twice_is_shown_once(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, "show", f"{file}::main")[1].count("program double") == 1


def test_every_kernel_is_shown_in_the_order_of_the_calls(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = shown(capsys, "show", f"{file}::two")[1]
    assert [line for line in out.splitlines() if line.startswith("--")] == [
        "-- double(f32[8]) -> f32[8], grid ()",
        "-- half(f32[4]) -> f32[4], grid ()",
    ]


def test_a_kernel_inside_a_staged_function_is_shown(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "program double(" in shown(capsys, "show", f"{file}::staged")[1]


@pytest.mark.parametrize("stage", STAGES)
def test_a_launch_at_every_stage(stage: str, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", f"{file}::launched", "--stage", stage]) == 0
    out = capsys.readouterr().out
    assert "pair(f32[8]) -> f32[8], thread wg=2" in out
    inside = {"llvm": "presplitcoroutine", "asm": "kernel", "cuda": "PAL_BOUNDS(256) pair(", "sass": ".text.pair"}
    inside["layouts"] = "a value:f32[4]"
    assert inside.get(stage, "program pair(wg:i32[]") in out


def test_what_was_prepared_before_is_shown_again(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = shown(capsys, "show", f"{file}::main")
    assert shown(capsys, "show", f"{file}::main") == first


def test_a_function_of_a_class_is_found(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, "show", f"{file}::Cases.inner")[0] == 0


def test_lines_are_never_broken_where_no_terminal_is(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    lines = shown(capsys, "show", f"{file}::main", "--stage", "llvm")[1].splitlines()
    assert any(len(line) > 100 for line in lines)


def test_a_terminal_gets_colours(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[" in shown(capsys, "show", f"{file}::main", "--stage", "llvm")[1]


def test_a_kernel_that_is_not_compiled_is_named_with_the_reason(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refusing(call: Eqn) -> Any:
        if call.kernel.name == "odd":
            raise Refused("odd kernels are not compiled")
        return llvm(call)

    monkeypatch.setitem(EMISSION, "cpu", refusing)
    status, out, err = shown(capsys, "show", f"{file}::refused", "--stage", "llvm")
    assert status == 1
    assert err.startswith(
        "palladio: odd(f32[8]) -> f32[8], grid ()\n  is not compiled for the CPU: odd kernels are not"
    )
    assert out.startswith("; double(")


@pytest.mark.parametrize(
    ("target", "status", "message"),
    [
        ("nowhere.py::main", 2, "palladio: there is no file nowhere.py\n"),
        ("{folder}/README::main", 2, "palladio: {folder}/README is not a Python file; expected FILE.py::FUNCTION\n"),
        ("{file}::gone", 2, "palladio: {file} has no function gone\n  it has: main, two, staged,"),
        ("{file}", 2, "palladio: which function of {file}? Expected FILE.py::FUNCTION\n  it has: main, two,"),
        ("{file}::NUMBER", 2, "palladio: NUMBER is not a function but int\n"),
        ("{file}::double", 2, "palladio: double(x, out) needs the arguments x, out; expected a function that can be"),
        ("{file}::call", 2, "palladio: call is a kernel call, pallas_call(double), which takes arrays; expected"),
        ("{file}::nothing", 1, "palladio: nothing ran, but called no kernel\n"),
        ("{file}::broken", 1, "Traceback (most recent call last):\n"),
    ],
)
def test_a_target_that_will_not_do(
    target: str, status: int, message: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (file.parent / "README").touch()
    places = {"file": file, "folder": file.parent}
    found, out, err = shown(capsys, "show", target.format(**places))
    assert (found, out) == (status, "")
    assert err.startswith(message.format(**places))


def test_the_users_own_error_is_shown(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, "show", f"{file}::broken")[2].endswith("ValueError: broken on purpose\n")


def test_an_unknown_stage_is_refused(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["show", f"{file}::main", "--stage", "cubin"])
    assert left.value.code == 2
    assert "invalid choice: 'cubin'" in capsys.readouterr().err


def test_the_module_runs_as_a_command(file: Path) -> None:
    command = [sys.executable, "-m", "palladio", "show", f"{file}::main", "--stage", "traced"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.startswith(BEGINNING["traced"])


KERNELS = """
    import ml_dtypes
    import numpy as np
    import palladio as pl
    import palladio.tpu as pltpu
    from palladio.library import gmm, hopper

    def lengths(x, out, total):
        total[...] = np.zeros_like(total[...])

        @pl.loop(0, 3)
        def add(column):
            total[...] += x[:, column] * x[:, column]

        out[...] = np.sqrt(total[...])

    def page():
        pl.pallas_call(
            lengths,
            pl.ShapeDtypeStruct((8,), np.float32),
            grid=(2,),
            in_specs=[pl.BlockSpec((4, 3), lambda i: (i, 0))],
            out_specs=pl.BlockSpec((4,), lambda i: (i,)),
            scratch_shapes=[pltpu.VMEM((4,), np.float32)],
        )(np.ones((8, 3), np.float32))

    def grouped():
        sizes = np.array([10, 54], np.int32)
        gmm(np.ones((64, 128), np.float32), np.ones((2, 128, 128), np.float32), sizes, tiling=(32, 128, 128))

    def product():
        x = np.ones((128, 128), ml_dtypes.bfloat16)
        hopper.matmul(x, x)
"""
MARKS = {
    "page": {"inside": "column!]", "scheduled": "Schedule(", "viewed": ".view("},
    "grouped": {"inside": "inside=", "scheduled": "Schedule(", "viewed": ".view(", "fused": "store_rows "},
    "product": {"placed": "Placement(", "inside": "!", "viewed": ".view(", "roles": "roles="},
}
"""What a form adds to the text of a kernel."""


@pytest.mark.parametrize("name", MARKS)
def test_the_kernel_of_the_tour_and_of_the_library_in_every_form(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "kernels.py"
    path.write_text(textwrap.dedent(KERNELS))
    printed = {stage: shown(capsys, "show", f"{path}::{name}", "--stage", stage) for stage in ("optimised", *FORMS)}
    assert {status for status, _, _ in printed.values()} == {0}
    for stage, mark in MARKS[name].items():
        assert mark in printed[stage][1]
        assert mark not in printed["optimised"][1]
