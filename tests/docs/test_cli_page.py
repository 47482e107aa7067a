"""The commands of the page on the command line print what it shows."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import llvmlite.binding  # noqa: F401  # it cannot be imported first under a copy of sys.modules
import pytest

import palladio.library.tuning  # noqa: F401  # nor does a module stay whose names others keep
from palladio.cli import main
from tests.architecture.source import ROOT
from tests.docs.test_snippets import check_output

PAGE = (ROOT / "docs/cli.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"^```python\n# (\w+\.py)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
COMMANDS = re.findall(
    r"^```console\n\$ palladio (.*?)\n(.*?)\n(?:\$ echo \$\?\n(\d)\n)?```$", PAGE, re.MULTILINE | re.DOTALL
)


def test_the_page_has_commands() -> None:
    assert len(COMMANDS) == PAGE.count("```console") > 3


@pytest.mark.parametrize(("command", "shown", "status"), COMMANDS, ids=[command for command, *_ in COMMANDS])
def test_the_command_prints_what_the_page_shows(
    command: str,
    shown: str,
    status: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "modules", {**sys.modules})
    for name, text in FILES.items():
        Path(name).write_text(f"# {name}\n{text}", encoding="utf-8")
    assert main(shlex.split(command)) == int(status or 0)
    check_output(shown, capsys.readouterr().out, command)
