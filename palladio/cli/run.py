"""`palladio run FILE.py`: a script, as Python runs it; with `--as-jax`, one that imports JAX."""

from __future__ import annotations

import argparse
import runpy
import sys
from argparse import Namespace
from typing import Any

from palladio import compat
from palladio.cli.target import declare_as_jax, python_file


def add(subparsers: Any) -> None:
    """Declare the subcommand."""
    parser = subparsers.add_parser(
        "run",
        help="run a script, also one that imports JAX",
        description="Runs a Python file as a script. With --as-jax its imports of JAX are answered by Palladio, so "
        "that the kernels in it run here as they stand.",
    )
    parser.add_argument("file", metavar="FILE.py", help="a Python file")
    declare_as_jax(parser)
    parser.add_argument("arguments", metavar="ARGUMENT", nargs=argparse.REMAINDER, help="what the script gets")
    parser.set_defaults(run=run)


def run(options: Namespace) -> int:
    """Run the script."""
    path = python_file(options.file, "FILE.py")
    if options.as_jax:
        compat.install()
    sys.argv = [options.file, *options.arguments]
    sys.path.insert(0, str(path.resolve().parent))
    runpy.run_path(str(path), run_name="__main__")
    return 0
