"""The command `palladio`: its subcommands and its exit status.

0: done. 1: the file or function failed, called no kernel, a kernel cannot be brought to the stage asked for, or a check
found something. 2: the command was not understood, or names what is not there. 130: it was interrupted.
"""

from __future__ import annotations

import argparse
import io
import sys
import traceback
from collections.abc import Sequence

from palladio.base.version import VERSION
from palladio.cli import check, doctor, explain, port, run, show, timeline, tune, twin
from palladio.cli.target import MissingTarget

COMMANDS = (run, show, check, timeline, twin, tune, explain, port, doctor)
"""Each has `add(subparsers)`, which declares its arguments and sets `run`, a function of them to an exit status."""


def make_parser() -> argparse.ArgumentParser:
    """The command's arguments."""
    parser = argparse.ArgumentParser("palladio", description="Tools for kernels written with Palladio.")
    parser.add_argument("--version", action="version", version=f"palladio {VERSION}")
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in COMMANDS:
        command.add(subparsers)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Args:
        arguments: what follows the command's name, by default that of this process.

    Returns:
        The exit status.
    """
    for stream in (sys.stdout, sys.stderr):  # a terminal of few characters gets "?" for those that it lacks
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    options = make_parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except MissingTarget as missing:
        print(f"palladio: {missing}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\npalladio: stopped before the end", file=sys.stderr)
        return 130
    except BrokenPipeError:
        return 0  # the reader of the output has closed it
    except Exception:
        traceback.print_exc()
        return 1
