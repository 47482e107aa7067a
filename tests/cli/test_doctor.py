"""`palladio doctor`: the report, line by line, on machines that lack things."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import runpy
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import palladio as pl
from palladio.cli import doctor, main
from palladio.driver.executors import EXECUTORS, Executor
from palladio.driver.processor import Processor
from palladio.hopper.compile import MissingCompilerError
from tests.architecture.source import ROOT

Report = Callable[..., dict[str, list[str]]]


@pytest.fixture
def report(capsys: pytest.CaptureFixture[str]) -> Report:
    """The sections of a report, by their titles; the heading is under an empty one."""

    def sections(status: int = 0) -> dict[str, list[str]]:
        assert main(["doctor"]) == status
        heading, *parts = capsys.readouterr().out.rstrip("\n").split("\n\n")
        return {"": [heading]} | {part.splitlines()[0]: part.splitlines()[1:] for part in parts}

    return sections


def test_the_heading_and_the_sections(report: Report) -> None:
    found = report()
    system = f"{platform.system()} {platform.machine()}"
    assert found[""] == [f"palladio {pl.__version__}, Python {platform.python_version()}, {system}"]
    assert list(found) == ["", "Executors", "Processor", "GPU", "Cache", "Extras"]


def test_each_executor_runs_a_kernel(report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.shutil, "which", lambda name: f"/usr/bin/{name}")
    assert report()["Executors"][:4] == [
        "  reference    works",
        "  simulator    works",
        "  cpu          works, the default",
        "  hopper-twin  has g++, its compiler",
    ]


def test_an_executor_that_fails_is_the_exit_status_if_it_is_the_default(
    report: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(program: Any) -> Any:
        raise OSError("no LLVM here")

    broken = Executor("cpu", "", refuse)
    monkeypatch.setitem(EXECUTORS, "cpu", broken)
    monkeypatch.setattr(doctor, "DEFAULT", broken)
    monkeypatch.setattr(doctor.shutil, "which", lambda name: None)
    assert report(status=1)["Executors"][2:4] == [
        "  cpu          does not work: no LLVM here",
        "  hopper-twin  needs g++, which is not installed",
    ]


def test_the_processor_is_the_one_that_kernels_are_compiled_for(
    report: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = (48 << 10, 2 << 20, 33 << 20)
    monkeypatch.setattr(doctor, "processor", lambda: Processor("znver5", 64, sizes, 16))
    monkeypatch.setattr("palladio.cpu.runtime.host.available", lambda: ["native", "portable"])
    assert report()["Processor"] == [
        "  kind          znver5, vectors of 64 bytes",
        "  instructions  native, portable",
        "  caches        48 KiB, 2 MiB, 33 MiB",
        "  threads       16",
    ]


def test_a_restriction_that_the_processor_cannot_meet_is_named(report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> Processor:
        raise pl.PalladioValueError("this processor does not have these instructions")

    monkeypatch.setattr(doctor, "processor", refuse)
    assert report()["Processor"] == ["  cpu  this processor does not have these instructions"]


def test_without_a_driver_and_nvrtc(report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> Any:
        raise MissingCompilerError("kernels for Hopper are compiled by NVRTC, which is not installed")

    monkeypatch.setattr(doctor, "_driver", lambda: None)
    monkeypatch.setattr(doctor.nvrtc, "version", missing)
    assert report()["GPU"] == [
        "  driver  none that starts; kernels for GPUs are compiled and tested without one",
        "  NVRTC   not installed; pip install 'palladio[hopper]'",
    ]


class _Driver:
    """NVIDIA's driver as two cards have it, in its own calling convention."""

    NAMES = (b"NVIDIA H200", b"NVIDIA A100-SXM4-40GB")
    CAPABILITIES = ({75: 9, 76: 0}, {75: 8, 76: 0})

    @staticmethod
    def _put(place: Any, value: int) -> None:
        ctypes.cast(place, ctypes.POINTER(ctypes.c_int))[0] = value

    def cuDriverGetVersion(self, place: Any) -> None:
        self._put(place, 12080)

    def cuDeviceGetCount(self, place: Any) -> None:
        self._put(place, 2)

    def cuDeviceGetName(self, name: Any, size: int, card: int) -> None:
        name.value = self.NAMES[card][: size - 1]

    def cuDeviceGetAttribute(self, place: Any, attribute: int, card: int) -> None:
        self._put(place, self.CAPABILITIES[card][attribute])


def test_cards_are_named_and_those_of_another_kind_too(report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_driver", _Driver)
    monkeypatch.setattr(doctor.nvrtc, "version", lambda: (13, 5))
    assert report()["GPU"] == [
        "  driver  of CUDA 12.8",
        "  card 0  NVIDIA H200, Hopper",
        "  card 1  NVIDIA A100-SXM4-40GB, not a Hopper GPU",
        "  NVRTC   13.5",
    ]


def test_the_cache_counts_what_it_holds(report: Report, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    monkeypatch.setenv("PALLADIO_CACHE", str(folder))
    monkeypatch.setenv("PALLADIO_EXECUTOR", "reference")
    monkeypatch.setattr(doctor, "_executors", lambda: iter([doctor.Row("cpu", "works")]))
    assert report()["Cache"] == [f"  folder  {folder}, 0 kernels, 0 bytes of 256 MiB"]
    folder.mkdir(mode=0o700)
    (folder / "one.palladio").write_bytes(bytes(1024))
    (folder / "not ours").write_bytes(bytes(1024))
    assert report()["Cache"] == [f"  folder  {folder}, 1 kernel, 1 KiB of 256 MiB"]


def test_a_cache_that_others_can_write_to_is_not_used(
    report: Report, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PALLADIO_CACHE", str(tmp_path))
    monkeypatch.setattr(doctor, "_executors", lambda: iter([doctor.Row("cpu", "works")]))
    os.chmod(tmp_path, 0o777)
    (line,) = report()["Cache"]
    assert line == (
        f"  folder  {tmp_path}, not used: other users can write to it (mode 0777); PALLADIO_CACHE names another one"
    )


def test_a_cache_that_is_switched_off(report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALLADIO_CACHE", "0")
    assert report()["Cache"] == ["  folder  none: compiled kernels are not kept; PALLADIO_CACHE names a folder"]


def test_extras_have_versions_or_the_command_that_installs_them(
    report: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "_version", {"torch": "2.13.0", "matplotlib": "3.11.2"}.get)
    assert report()["Extras"] == [
        "  torch         torch 2.13.0",
        "  transformers  transformers not installed; pip install 'palladio[transformers]'",
        "  distributed   distributed not installed; pip install 'palladio[distributed]'",
        "  jax           jax not installed; pip install 'palladio[jax]'",
        "  hopper        cuda-bindings, nvidia-cuda-nvrtc not installed; pip install 'palladio[hopper]'",
        "  plot          matplotlib 3.11.2",
        "  demo          scikit-learn not installed; pip install 'palladio[demo]'",
    ]


def test_the_extras_are_those_of_the_package() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = settings["optional-dependencies"]
    assert set(doctor.EXTRAS) == set(extras) - {"test", "bench", "docs", "package"}

    def distributions(extra: str) -> set[str]:
        found = set()
        for need in extras[extra]:
            inner = re.fullmatch(r"palladio\[(\w+)\]", need)
            found |= distributions(inner[1]) if inner else {re.split(r"[<>=;\s\[]", need)[0]}
        return found

    assert {extra: set(names) for extra, names in doctor.EXTRAS.items()} == {
        extra: distributions(extra) for extra in doctor.EXTRAS
    }


def test_no_extra_is_imported_to_find_its_version() -> None:
    code = "import sys, palladio.cli as c; c.main(['doctor']); print({'torch', 'jax', 'matplotlib'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("\nset()\n")


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    source = ROOT / settings["tool"]["hatch"]["version"]["path"]
    assert capsys.readouterr().out == f"palladio {runpy.run_path(str(source))['VERSION']}\n"


def test_python_runs_the_package_as_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "palladio", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"palladio {pl.__version__}\n"
