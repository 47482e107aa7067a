"""`palladio twin` and `palladio show --stage layouts`: what they print, and the exit status."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from palladio.cli import main
from palladio.hopper.layouts import pictures, registers, shared

SOURCE = """
    import numpy as np
    import palladio as pl
    import palladio.gpu as plgpu

    X = np.arange(128, dtype=np.float32).reshape(1, 128)

    def double(x, out):
        out[...] = x[...] * 2

    def main():
        plgpu.kernel(double, pl.ShapeDtypeStruct(X.shape, X.dtype))(X)

    def forgets_to_wait(x, out, tile, full):
        plgpu.copy_gmem_to_smem(x, tile, full)
        out[...] = tile[...]

    def wrong():
        scratch = [plgpu.SMEM(X.shape, X.dtype), plgpu.Barrier()]
        plgpu.kernel(forgets_to_wait, pl.ShapeDtypeStruct(X.shape, X.dtype), scratch_types=scratch)(X)

    def nothing():
        pass
"""


@pytest.fixture
def run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "modules", {**sys.modules})
    path = tmp_path / "kernels.py"
    path.write_text(textwrap.dedent(SOURCE), encoding="utf-8")

    def command(name: str, function: str, *options: str) -> tuple[int, str, str]:
        status = main([name, f"{path}::{function}", *options])
        return status, *capsys.readouterr()

    return command


def test_each_launch_is_run_under_every_schedule(run: Callable[..., tuple[int, str, str]]) -> None:
    status, out, _ = run("twin", "main")
    assert status == 0
    assert out.splitlines() == [
        "double_, 1 block of 128 threads, 0 bytes of shared memory",
        *(
            f"  {name:9} 0 products, 0 copies, 0 waits: no rule broken"
            for name in ("late", "early", "random 1", "random 2")
        ),
    ]


def test_a_broken_rule_is_told_with_its_line(run: Callable[..., tuple[int, str, str]]) -> None:
    status, _, error = run("twin", "wrong")
    assert status == 1
    assert "kernels.py:" in error and "still writes" in error


def test_a_function_without_kernels(run: Callable[..., tuple[int, str, str]]) -> None:
    assert run("twin", "nothing") == (1, "", "palladio: nothing ran, but called no kernel\n")


def test_layouts_are_drawn_with_the_names_of_the_arrays(run: Callable[..., tuple[int, str, str]]) -> None:
    status, out, _ = run("show", "wrong", "--stage", "layouts")
    assert status == 0
    assert "tile:ref<smem, f32[1,128]>\n1x128 of 4 bytes, 512 bytes, row-major" in out
    assert "thread:register" in out


def test_the_picture_of_an_accumulator() -> None:
    lines = pictures.of_registers(registers.wgmma(64, 16)).splitlines()
    assert lines[0] == "WGMMA: 8 registers of each thread, thread:register"
    assert lines[2].split()[:6] == ["0", "0:0", "0:1", "1:0", "1:1", "2:0"]
    assert lines[10].split()[:3] == ["8", "0:2", "0:3"]  # eight rows further down, the next two registers


def test_the_picture_of_a_swizzle() -> None:
    lines = pictures.of_shared(shared.SharedLayout((64, 64), 2, 128)).splitlines()
    assert lines[0] == "64x64 of 2 bytes, 8192 bytes, swizzled in rows of 128 bytes; pieces of 16 bytes"
    assert lines[2].split() == ["1", "byte", "128", "1", "0", "3", "2", "5", "4", "7", "6"]
