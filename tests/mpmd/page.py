"""The functions that docs/mpmd.md shows, for the tests that run them on more than the page does."""

from __future__ import annotations

import contextlib
import io
import tempfile
import types
from functools import cache
from pathlib import Path

from tests.architecture.source import ROOT
from tests.docs.test_snippets import blocks

PAGE = ROOT / "docs" / "mpmd.md"


@cache
def page() -> types.ModuleType:
    """The page as a module."""
    module = types.ModuleType("mpmd_page")
    with (
        contextlib.redirect_stdout(io.StringIO()),
        tempfile.TemporaryDirectory() as folder,
        contextlib.chdir(folder),
    ):
        Path("images").mkdir()
        for block in blocks(PAGE):
            if block.info == "python":
                text = "\n" * block.line + block.text
                exec(compile(text, str(PAGE), "exec", dont_inherit=True), vars(module))
    return module
