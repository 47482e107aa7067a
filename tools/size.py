"""Prints the number of lines of each floor and package of Palladio: `python tools/size.py`.

A line counts when it holds code: empty lines, comments and docstrings are shown beside it, as prose.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.architecture.source import Module, modules
from tests.architecture.test_floors import FLOORS


def code_lines(module: Module) -> int:
    """The number of lines with a statement or a part of one, without docstrings."""
    lines: set[int] = set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.expr | ast.stmt | ast.arg | ast.keyword | ast.alias):
            inner = isinstance(node, ast.stmt) and hasattr(node, "body")
            lines.update({node.lineno} if inner else range(node.lineno, (node.end_lineno or node.lineno) + 1))
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def main() -> None:
    files: Counter[str] = Counter()
    code: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for module in modules():
        unit = module.unit if module.path.parent.name != "palladio" else module.path.stem
        files[unit] += 1
        code[unit] += code_lines(module)
        total[unit] += len(module.text.splitlines())
    print(f"{'floor':>5}  {'package':<14}{'files':>6}{'code':>8}{'prose':>8}{'lines':>8}")
    floors = [(str(floor), unit) for floor, units in enumerate(FLOORS) for unit in units]
    placed = {unit for _, unit in floors}
    for floor, unit in floors + [("", unit) for unit in sorted(total) if unit not in placed]:
        if unit in total:
            row = f"{files[unit]:>6}{code[unit]:>8}{total[unit] - code[unit]:>8}{total[unit]:>8}"
            print(f"{floor:>5}  {unit:<14}{row}")
    lines, held = total.total(), code.total()
    print(f"{'':>5}  {'all':<14}{files.total():>6}{held:>8}{lines - held:>8}{lines:>8}")


if __name__ == "__main__":
    main()
