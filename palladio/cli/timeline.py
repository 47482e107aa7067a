"""`palladio timeline FILE.py::FUNCTION -o out.svg`: draw the activity of each thread and unit, in modelled time."""

from __future__ import annotations

import sys
from argparse import ArgumentTypeError, Namespace
from pathlib import Path
from typing import Any

from palladio.cli.target import declare, function
from palladio.driver.checks.pictures import timeline
from palladio.machine.timeline.records import MODELLED, duration_text
from palladio.machine.timeline.timeline import Timeline

WRITERS = {".svg": Timeline.svg, ".html": Timeline.html, ".json": Timeline.perfetto}
"""The function that writes a timeline, by the kind of its file."""


def picture_path(text: str) -> Path:
    """The path of a picture, of a kind that can be written."""
    if Path(text).suffix not in WRITERS:
        raise ArgumentTypeError(f"{text} should end in {' or '.join(WRITERS)}")
    return Path(text)


def add(subparsers: Any) -> None:
    """Declare the subcommand."""
    parser = subparsers.add_parser(
        "timeline",
        help="draw when each thread of a kernel computes, copies and waits",
        description="Runs a function on the simulator and draws its first launch in model time: when each thread "
        "computes and waits, and when its copies and products are in flight. It is a cost model of an H100, "
        f"{MODELLED}.",
    )
    declare(parser)
    parser.add_argument(
        "-o",
        "--output",
        metavar="PATH",
        help="a file to write: .svg for a picture, .html for a page to pan, zoom and search, .json for a trace that "
        "ui.perfetto.dev opens; "
        "without it the timeline is printed as text",
    )
    parser.add_argument("--width", type=int, default=100, help="columns of the text (default: %(default)s)")
    parser.set_defaults(run=run)


def run(options: Namespace) -> int:
    """Draw the timeline."""
    output = None if options.output is None else Path(options.output)
    if output is not None and output.suffix not in WRITERS:
        print(f"palladio: {output} should end in {' or '.join(WRITERS)}", file=sys.stderr)
        return 2
    if options.width < 40:
        print("palladio: --width is at least 40", file=sys.stderr)
        return 2
    found = timeline(function(options.target, options.as_jax))
    if output is None:
        print(found.text(width=options.width))
        return 0
    try:
        WRITERS[output.suffix](found, output)
    except OSError as error:
        print(f"palladio: cannot write {output}: {error.strerror}", file=sys.stderr)
        return 1
    print(f"{output}: {duration_text(found.duration)} of {MODELLED.split(',')[0]}, {len(found.spans)} steps")
    return 0
