"""`palladio timeline`: a picture, a trace or text of a kernel in model time."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from palladio.cli.command import main

KERNEL = """
import numpy as np
import palladio as pl
import palladio.gpu as plgpu

def scale(x_gmem, o_gmem, x_smem, full):
    plgpu.copy_gmem_to_smem(x_gmem, x_smem, full)
    plgpu.barrier_wait(full)
    x_smem[...] = 2 * x_smem[...]
    plgpu.commit_smem()
    plgpu.copy_smem_to_gmem(x_smem, o_gmem)
    plgpu.wait_smem_to_gmem(0)

def run():
    x = np.ones((64, 64), np.float32)
    scratch = [plgpu.SMEM(x.shape, x.dtype), plgpu.Barrier()]
    return plgpu.kernel(scale, pl.ShapeDtypeStruct(x.shape, x.dtype), scratch_types=scratch)(x)

def nothing():
    return 1
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "kernels.py"
    path.write_text(KERNEL, encoding="utf-8")
    return path


def test_a_picture_is_drawn(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = file.with_name("out.svg")
    assert main(["timeline", f"{file}::run", "-o", str(output)]) == 0
    assert ElementTree.parse(output).getroot().tag.endswith("svg")
    assert "modelled time" in capsys.readouterr().out


def test_a_trace_is_written(file: Path) -> None:
    output = file.with_name("out.json")
    assert main(["timeline", f"{file}::run", "-o", str(output)]) == 0
    names = {event.get("name") for event in json.loads(output.read_text())["traceEvents"]}
    assert "x_smem" in names


def test_without_a_file_it_is_text(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["timeline", f"{file}::run"]) == 0
    shown = capsys.readouterr().out
    assert "TMA" in shown
    assert "CC" in shown
    assert "SS" in shown


def test_a_function_without_launches_has_none(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["timeline", f"{file}::nothing"]) == 1
    assert "fn: nothing was launched, so there is no timeline" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-o", "out.png"], "out.png should end in .svg or .html or .json"),
        (["--width", "10"], "--width is at least 40"),
    ],
)
def test_bad_options_are_refused(
    file: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["timeline", f"{file}::run", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_a_file_that_cannot_be_written_is_named(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "missing" / "out.svg"
    assert main(["timeline", f"{file}::run", "-o", str(output)]) == 1
    assert f"cannot write {output}: No such file or directory" in capsys.readouterr().err
