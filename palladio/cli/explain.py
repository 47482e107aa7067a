"""`palladio explain CODE`: print the page of a finding: its meaning and its fix."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markdown import Markdown

from palladio.base.calls import did_you_mean
from palladio.machine.check.findings import CODES

_PACKAGE = Path(__file__).resolve().parent.parent
_FOLDERS = (_PACKAGE / "findings", _PACKAGE.parent / "docs/findings")
"""The pages as they are installed, and in a checkout."""


def add(subparsers: Any) -> None:
    """Declare the subcommand."""
    parser = subparsers.add_parser(
        "explain",
        help="print the page of a finding",
        description="Prints what a finding of the simulator means, a kernel that shows it, and how it is mended.",
    )
    parser.add_argument("code", metavar="CODE", nargs="?", help="the finding's code; left out, all codes are listed")
    parser.set_defaults(run=run)


def run(options: Namespace) -> int:
    """Print the page."""
    if options.code is None:
        width = max(map(len, CODES))
        print("\n".join(f"{code:{width}}  {CODES[code].title}" for code in sorted(CODES)))
        return 0
    if options.code not in CODES:
        hint = did_you_mean(options.code, CODES) or "`palladio explain` lists the codes"
        print(f"palladio: no finding has the code {options.code!r}; {hint}", file=sys.stderr)
        return 2
    text = page(options.code)
    console = Console()
    if console.is_terminal:
        console.print(Markdown(text))
    else:
        print(text.rstrip("\n"))
    return 0


def page(code: str) -> str:
    """The text of a finding's page."""
    folder = next(folder for folder in _FOLDERS if (folder / f"{code}.md").exists())
    return (folder / f"{code}.md").read_text(encoding="utf-8")
