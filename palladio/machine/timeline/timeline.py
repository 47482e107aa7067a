"""The user's timeline: its data, and its output files."""

from __future__ import annotations

import os

from palladio.base.dataclass import dataclass
from palladio.machine.timeline.data import TimelineData
from palladio.machine.timeline.draw import picture
from palladio.machine.timeline.page import page_text
from palladio.machine.timeline.perfetto import trace_text


@dataclass(frozen=True)
class Timeline(TimelineData):
    """The spans and edges of one run, in modelled nanoseconds, as `palladio.timeline` returns them."""

    def svg(self, path: str | os.PathLike[str]) -> None:
        """Write the picture: one self-contained SVG file. Equal timelines give equal bytes.

        Raises:
            OSError: the file cannot be written.
        """
        _write(path, picture(self))

    def html(self, path: str | os.PathLike[str]) -> None:
        """Write a page for a browser, one self-contained file: to pan, zoom and search.

        Raises:
            OSError: the file cannot be written.
        """
        _write(path, page_text(self))

    def perfetto(self, path: str | os.PathLike[str]) -> None:
        """Write a trace for ui.perfetto.dev and chrome://tracing: blocks are processes, lanes are threads.

        Raises:
            OSError: the file cannot be written.
        """
        _write(path, trace_text(self))


def _write(path: str | os.PathLike[str], text: str) -> None:
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        file.write(text)
