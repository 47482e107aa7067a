"""Index arithmetic of generated code: a constant is an `int`, every other number is a C expression."""

from __future__ import annotations

Index = int | str
"""A constant, or a C expression."""


def times(number: Index, factor: int) -> Index:
    """A product."""
    if isinstance(number, int):
        return number * factor
    if factor == 0:
        return 0
    return number if factor == 1 else f"{bracketed(number)} * {factor}"


def added(*terms: Index) -> Index:
    """A sum, with its constant last."""
    constant = sum(term for term in terms if isinstance(term, int))
    rest = [term for term in terms if isinstance(term, str)]
    return " + ".join([*rest, *([str(constant)] if constant else [])]) if rest else constant


def bracketed(number: Index) -> str:
    """An operand of any C operator: in brackets, unless it is a name, a number or in brackets already."""
    text = str(number)
    closed = text.replace("_", "").isalnum() or (text.startswith("(") and closes_last(text))
    return text if closed else f"({text})"


def closes_last(text: str) -> bool:
    """True if the last character of a C expression closes its first bracket."""
    depth = 0
    for n, sign in enumerate(text):
        depth += (sign == "(") - (sign == ")")
        if depth == 0:
            return n == len(text) - 1
    return False
