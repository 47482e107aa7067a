"""`palladio port FILE.py`: the import lines that make a kernel file of JAX one of Palladio, and what would not work."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from palladio.cli.target import MissingTarget, python_file
from palladio.compat.port import port


def add(subparsers: Any) -> None:
    """Declare the subcommand."""
    parser = subparsers.add_parser(
        "port",
        help="print the import lines of a JAX kernel file as Palladio's",
        description="Prints each import line of JAX with the one to put in its place, then the names that the file "
        "uses and Palladio does not have. The file is read, not run or changed. The exit status is 1 if there are any.",
    )
    parser.add_argument("file", metavar="FILE.py", help="a Python file")
    parser.set_defaults(run=run)


def run(options: Namespace) -> int:
    """Print the lines."""
    path = python_file(options.file, "FILE.py")
    try:
        found = port(path.read_text(encoding="utf-8"))
    except SyntaxError as error:
        raise MissingTarget(f"{path} is not Python: line {error.lineno}: {error.msg}") from None
    print(found.text())
    return 1 if found.missing else 0
