"""Continuous integration runs the tests in the environment of a newcomer, and a selection under unusual settings."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.architecture.source import ROOT

KEPT = {"PATH": "", "HOME": "/home", "LANG": "C.UTF-8", "PIP_INDEX_URL": "https://packages.example/a b"}
DROPPED = {"PYTHONUNBUFFERED": "1", "PALLADIO_EXECUTOR": "reference", "LC_ALL": "C", "OMP_NUM_THREADS": "1"}


def test_the_run_passes_on_only_what_the_installer_needs(tmp_path: Path) -> None:
    record = tmp_path / "record"
    make = tmp_path / "make"
    make.write_text(f'#!/bin/sh\n(echo "make $*"; env) >> {record}\n', encoding="utf-8")
    make.chmod(0o755)
    kept = {**KEPT, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    subprocess.run([ROOT / ".ci/run"], env={**kept, **DROPPED}, check=True, timeout=60)
    found = record.read_text(encoding="utf-8").splitlines()
    commands = [line for line in found if line.startswith("make ")]
    passed = {line for line in found if not line.startswith(("make ", "PWD=", "OLDPWD=", "SHLVL=", "_="))}
    assert commands == ["make test", "make odd"]
    assert passed == {f"{name}={value}" for name, value in kept.items()}
