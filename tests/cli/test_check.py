"""`palladio check`: what it prints of findings, its exit status, and what it says of arguments that will not do."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from palladio.cli import main
from tests.architecture.source import ROOT

SOURCE = """
    import numpy as np
    import palladio as pl
    import palladio.gpu as plgpu

    X = np.ones((2, 8), np.float32)
    OUT = pl.ShapeDtypeStruct((2, 8), np.float32)
    SCRATCH = [plgpu.SMEM((8,), np.float32), plgpu.Barrier()]

    def rows(awaited):
        def body(x, out, shared, full):
            @pl.loop(0, 2)
            def _(step):
                plgpu.copy_gmem_to_smem(x.at[step], shared, full)
                plgpu.barrier_wait(full)
                plgpu.copy_smem_to_gmem(shared, out.at[step])
                if awaited:
                    plgpu.wait_smem_to_gmem(0)

            plgpu.wait_smem_to_gmem(0)

        return plgpu.kernel(body, OUT, scratch_types=SCRATCH)

    call = rows(True)

    def right():
        call(X)

    def wrong():
        rows(False)(X)

    def plain():
        pl.pallas_call(lambda x, out: None, OUT)(X)

    import palladio.tpu as pltpu

    def copies(x, out, row, full):
        copy = pltpu.make_async_copy(x, row, full)
        copy.start()
        out[...] = row[...]
        copy.wait()

    def grid():
        place = pl.BlockSpec(memory_space=pl.ANY)
        scratch = [pltpu.VMEM((2, 8), np.float32), pltpu.SemaphoreType.DMA]
        pl.pallas_call(copies, OUT, in_specs=[place], scratch_shapes=scratch)(X)

    def broken():
        raise ValueError("broken on purpose")
"""

WRONG = """
store-source-overwritten: shared (f32[8] in smem) is written by the copy_gmem_to_smem on line 14 while it may still be \
read by the copy_smem_to_gmem on line 16
  block 0 thread, step = 1: starts copy_gmem_to_smem, which writes it
    {file}:14, in _
      plgpu.copy_gmem_to_smem(x.at[step], shared, full)
      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  block 0 thread, step = 0: starts copy_smem_to_gmem, which reads it
    {file}:16, in _
      plgpu.copy_smem_to_gmem(shared, out.at[step])
      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  missing: a wait_smem_to_gmem for the copy_smem_to_gmem on line 16 in block 0 thread, before the copy_gmem_to_smem on \
line 14
  try:     call plgpu.wait_smem_to_gmem(0, wait_read_only=True) in the copying thread before the memory is written again
  see:     palladio explain store-source-overwritten
  replay:  palladio check {file}::wrong --schedule round_robin

1 finding in 4 schedules
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The source above."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "modules", {**sys.modules})
    path = tmp_path / "rows.py"
    path.write_text(textwrap.dedent(SOURCE), encoding="utf-8")
    return path


def shown(capsys: pytest.CaptureFixture[str], *arguments: Any) -> tuple[int, str, str]:
    """The exit status, what was printed, and what was said of errors."""
    status = main(list(map(str, arguments)))
    printed = capsys.readouterr()
    return status, printed.out, printed.err


def test_a_kernel_without_a_finding(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, "check", f"{file}::right") == (0, "no finding in 32 schedules\n", "")


def test_a_finding_shows_both_sides_the_missing_edge_the_fix_and_the_replay(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = shown(capsys, "check", f"{file}::wrong", "--schedules", 4)
    assert (status, err) == (1, "")
    assert out == WRONG.lstrip("\n").format(file=file)


def test_a_repair_is_a_line_to_paste(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = shown(capsys, "check", f"{file}::wrong", "--schedules", 2, "--repair")
    (repair,) = (line for line in out.splitlines() if line.startswith("  repair:"))
    assert status == 1
    assert repair.startswith(
        "  repair:  add `plgpu.wait_smem_to_gmem(0, wait_read_only=True)` before line 14 of rows.py ("
    )


def test_an_ignored_finding_does_not_count(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ignored = "store-source-overwritten"
    status, out, _ = shown(capsys, "check", f"{file}::wrong", "--schedules", 4, "--ignore", ignored)
    assert (status, out) == (0, "no finding in 4 schedules; ignored: store-source-overwritten (1)\n")


def test_a_code_that_there_is_not(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["check", f"{file}::wrong", "--ignore", "datarace"])
    assert "no finding has the code 'datarace'; did you mean data-race?" in capsys.readouterr().err


def test_hints_count_where_the_check_is_strict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "released.py"
    file.write_text(
        textwrap.dedent("""
            import numpy as np
            import palladio as pl
            import palladio.gpu as plgpu

            def body(x, out, done):
                out[...] = x[...]
                plgpu.barrier_arrive(done)

            def main():
                out = pl.ShapeDtypeStruct((8,), np.float32)
                plgpu.kernel(body, out, scratch_types=[plgpu.Barrier()])(np.ones(8, np.float32))
        """)
    )
    status, out, _ = shown(capsys, "check", f"{file}::main", "--schedules", 2)
    assert status == 0
    assert out.startswith("unobserved-completion (hint): done of block 0 has completed phase 1")
    assert out.endswith("no error, 1 hint in 2 schedules\n")
    assert shown(capsys, "check", f"{file}::main", "--schedules", 2, "--strict")[0] == 1


def test_jobs_share_the_schedules(file: Path) -> None:
    command = [sys.executable, "-m", "palladio", "check", f"{file}::wrong", "--schedules", "6", "--jobs", "2"]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert (ran.returncode, ran.stderr) == (1, "")
    assert ran.stdout == WRONG.lstrip("\n").format(file=file).replace("in 4 schedules", "in 6 schedules")


def test_the_replay_finds_it_again(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = shown(capsys, "check", f"{file}::wrong", "--schedule", "random:latest:7")
    assert status == 1
    assert out.endswith("--schedule random:latest:7\n\n1 finding in 1 schedule\n")


def test_a_check_again_in_the_same_process_says_the_same(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = shown(capsys, "check", f"{file}::wrong")
    assert shown(capsys, "check", f"{file}::wrong") == first


def test_exhaustive(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = shown(capsys, "check", f"{file}::right", "--exhaustive")
    assert status == 0
    assert out.startswith(("no finding in all ", "no finding in the only schedule there is"))
    assert out.endswith(", in this model, with these sizes and inputs\n")


def test_a_seed_begins_elsewhere(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, "check", f"{file}::right", "--seed", 5, "--schedules", 7)[1] == "no finding in 7 schedules\n"


def test_a_terminal_gets_colours_and_a_bar(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    _, out, err = shown(capsys, "check", f"{file}::wrong", "--schedules", 3)
    assert "\x1b[1;31mstore-source-overwritten: " in out
    assert "3/3" in err


def test_lines_are_never_broken_where_no_terminal_is(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    out = shown(capsys, "check", f"{file}::wrong", "--schedules", 4)[1]
    assert out == WRONG.lstrip("\n").format(file=file)


def test_a_grid_kernel_that_starts_copies_is_checked(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = shown(capsys, "check", f"{file}::grid", "--schedules", 1)
    assert (status, err) == (1, "")
    assert out.startswith("copy-not-awaited: row (f32[2,8] in vmem) is read by the load on line 40 while it may")


@pytest.mark.parametrize(
    ("target", "status", "message"),
    [
        ("nowhere.py::main", 2, "palladio: there is no file nowhere.py\n"),
        ("{file}::gone", 2, "palladio: {file} has no function gone\n  it has: right,"),
        ("{file}::call", 2, "palladio: call is a kernel call, kernel(body), which takes arrays; expected a function"),
        ("{file}::rows", 2, "palladio: rows(awaited) needs the arguments awaited; expected a function"),
        ("{file}::plain", 1, "palladio: plain ran, but its kernels launch no threads and start no copies;"),
        ("{file}::broken", 1, "Traceback (most recent call last):\n"),
    ],
)
def test_a_target_that_will_not_do(
    target: str, status: int, message: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found, out, err = shown(capsys, "check", target.format(file=file))
    assert (found, out) == (status, "")
    assert err.startswith(message.format(file=file))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--schedules", "0"], "argument --schedules: expected a number of at least 1, got '0'"),
        (["--schedules", "many"], "argument --schedules: expected a number of at least 1, got 'many'"),
        (
            ["--schedule", "slow"],
            "argument --schedule: no schedule is called 'slow'; a finding names them: round_robin",
        ),
        (["--schedule", "latest", "--exhaustive"], "argument --exhaustive: not allowed with argument --schedule"),
    ],
)
def test_arguments_that_will_not_do(
    arguments: list[str], message: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main(["check", f"{file}::right", *arguments])
    assert left.value.code == 2
    assert message in capsys.readouterr().err


def test_the_status_of_the_process_is_1_on_a_finding(file: Path) -> None:
    command = [sys.executable, "-m", "palladio", "check", f"{file}::wrong", "--schedules", "4"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout == WRONG.lstrip("\n").format(file=file)
