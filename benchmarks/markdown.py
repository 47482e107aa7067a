"""Tables of Markdown, for the pages in docs/measured."""

from __future__ import annotations

from collections.abc import Sequence


def table(header: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """A table of Markdown; bars in cells are escaped."""
    lines = [header, ["---"] * len(header), *body]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
