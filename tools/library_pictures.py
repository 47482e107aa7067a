"""Draws the computation of each function of the library, for docs/library.md: `python -m tools.library_pictures`.

A picture is a row of matrices. Each has its name, its two sizes and rectangles; rows of one group have one colour.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "docs/images"
COLOURS = ("#4c78a8", "#f58518", "#54a24b", "#b279a2")
PALE = "#d0d7de"
INK = "#57606a"


@dataclass(frozen=True)
class Matrix:
    """A matrix of a picture.

    Fields:
        name, height, width: its labels; the last two are the names of its sizes.
        size: its height and width in points.
        parts: rectangles in it, as (top, left, height, width, colour) in fractions of it.
        after: the sign that follows it.
    """

    name: str
    height: str
    width: str
    size: tuple[int, int]
    parts: tuple[tuple[float, float, float, float, str], ...] = ()
    after: str = ""


def rows(*shares: float) -> tuple[tuple[float, float, float, float, str], ...]:
    """Bands of rows, in successive colours."""
    tops = [sum(shares[:n]) for n in range(len(shares))]
    return tuple((top, 0, share, 1, colour) for top, share, colour in zip(tops, shares, COLOURS))


def columns(*shares: float) -> tuple[tuple[float, float, float, float, str], ...]:
    """Bands of columns, in successive colours."""
    return tuple((left, top, width, height, colour) for top, left, height, width, colour in rows(*shares))


def halves(*pairs: tuple[int, int]) -> tuple[tuple[float, float, float, float, str], ...]:
    """Rows of two colours each, given as pairs of colour numbers."""
    height = 1 / len(pairs)
    return tuple(
        (number * height, 0.5 * side, height, 0.5, COLOURS[colour])
        for number, pair in enumerate(pairs)
        for side, colour in enumerate(pair)
    )


GROUPS = (0.45, 0.2, 0.35)
CHOICES = ((0, 2), (1, 0), (2, 0), (0, 1), (2, 0))
"""The two experts of each token."""
SORTED = (0.5, 0.2, 0.3)
"""The shares of the experts in all choices."""

PICTURES: dict[str, tuple[Matrix, ...]] = {
    "matmul": (
        Matrix("x", "m", "k", (110, 70), ((0.25, 0, 0.25, 1, COLOURS[0]),), "@"),
        Matrix("y", "k", "n", (70, 90), ((0, 0.5, 1, 0.3, COLOURS[0]),), "="),
        Matrix("out", "m", "n", (110, 90), ((0.25, 0.5, 0.25, 0.3, COLOURS[0]),)),
    ),
    "gmm": (
        Matrix("lhs", "m", "k", (120, 70), rows(*GROUPS), "@"),
        Matrix("rhs[0]", "k", "n", (70, 60), rows(1)),
        Matrix("rhs[1]", "k", "n", (70, 60), ((0, 0, 1, 1, COLOURS[1]),)),
        Matrix("rhs[2]", "k", "n", (70, 60), ((0, 0, 1, 1, COLOURS[2]),), "="),
        Matrix("out", "m", "n", (120, 60), rows(*GROUPS)),
    ),
    "tgmm": (
        Matrix("lhs", "k", "m", (70, 120), columns(*GROUPS), "@"),
        Matrix("rhs", "m", "n", (120, 60), rows(*GROUPS), "="),
        Matrix("out[0]", "k", "n", (70, 60), rows(1)),
        Matrix("out[1]", "k", "n", (70, 60), ((0, 0, 1, 1, COLOURS[1]),)),
        Matrix("out[2]", "k", "n", (70, 60), ((0, 0, 1, 1, COLOURS[2]),)),
    ),
    "moe_mlp": (
        Matrix("tokens", "t", "h", (100, 70), halves(*CHOICES), "→"),
        Matrix("rows by expert", "t k", "h", (150, 70), rows(*SORTED), "@"),
        Matrix("gate_up", "e h", "2 i", (150, 80), rows(1 / 3, 1 / 3, 1 / 3), "→"),
        Matrix("hidden", "t k", "i", (150, 40), rows(*SORTED), "@"),
        Matrix("down", "e i", "h", (90, 70), rows(1 / 3, 1 / 3, 1 / 3), "→"),
        Matrix("sums by weight", "t", "h", (100, 70), halves(*CHOICES)),
    ),
    "softmax": (
        Matrix("x", "m", "n", (100, 120), ((0.4, 0, 0.2, 1, COLOURS[0]),), "→"),
        Matrix("each row sums to 1", "m", "n", (100, 120), ((0.4, 0, 0.2, 1, COLOURS[0]),)),
    ),
    "rms_norm": (
        Matrix("x", "m", "n", (100, 120), ((0.4, 0, 0.2, 1, COLOURS[0]),), "→"),
        Matrix("squares of mean 1", "m", "n", (100, 120), ((0.4, 0, 0.2, 1, COLOURS[0]),), "×"),
        Matrix("weight, for each row", "", "n", (20, 120), rows(1)),
    ),
    "attention": (
        Matrix("q", "m", "d", (110, 50), ((0.25, 0, 0.25, 1, COLOURS[0]),), "@"),
        Matrix("k, transposed", "d", "n", (50, 110), ((0, 0, 1, 0.5, COLOURS[1]),), "→"),
        Matrix("a block of scores", "m", "n", (110, 110), ((0.25, 0, 0.25, 0.5, COLOURS[3]),), "@"),
        Matrix("v", "n", "e", (110, 50), ((0, 0, 0.5, 1, COLOURS[2]),), "="),
        Matrix("out", "m", "e", (110, 50), ((0.25, 0, 0.25, 1, COLOURS[0]),)),
    ),
}


def drawn(matrices: tuple[Matrix, ...]) -> str:
    """The picture of a row of matrices, as SVG."""
    tall, x, lines = max(each.size[0] for each in matrices) + 60, 30, []
    for each in matrices:
        height, width = each.size
        y = (tall - height) // 2
        lines.append(_box(x, y, width, height, PALE, stroke=True))
        for top, left, part, across, colour in each.parts:
            lines.append(_box(x + left * width, y + top * height, across * width, part * height, colour))
        lines.append(_text(x + width / 2, y - 8, each.name))
        lines.append(_text(x - 10, y + height / 2 + 4, each.height))
        lines.append(_text(x + width / 2, y + height + 16, each.width))
        if each.after:
            lines.append(_text(x + width + 22, tall / 2 + 6, each.after, 18))
        x += width + (48 if each.after else 34)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{x}" height="{tall}" viewBox="0 0 {x} {tall}">'
    return "\n".join([head, f'<rect width="{x}" height="{tall}" fill="#ffffff"/>', *lines, "</svg>"]) + "\n"


def _box(x: float, y: float, width: float, height: float, fill: str, stroke: bool = False) -> str:
    line = f' stroke="{INK}"' if stroke else ""
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" fill="{fill}"{line}/>'


def _text(x: float, y: float, text: str, size: int = 12) -> str:
    place = f'x="{x:g}" y="{y:g}" text-anchor="middle"'
    return f'<text {place} font-family="sans-serif" font-size="{size}" fill="{INK}">{text}</text>'


if __name__ == "__main__":
    for name, matrices in PICTURES.items():
        (FOLDER / f"library-{name}.svg").write_text(drawn(matrices), encoding="utf-8")
