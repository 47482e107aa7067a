"""The source of the package as the architecture tests read it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "palladio"


@dataclass(frozen=True)
class Module:
    """One module of the package: `palladio.ir.text`, its file, text and syntax tree."""

    name: str
    path: Path
    text: str
    tree: ast.Module

    @property
    def unit(self) -> str:
        """The name under `palladio` that the module belongs to: `ir` for `palladio.ir.text`, empty for the facade."""
        return (self.name + ".").split(".")[1]

    def at(self, node: ast.AST) -> str:
        """`palladio/ir/text.py:12`, for a failure that can be clicked."""
        return f"{self.path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}"


@cache
def nodes(tree: ast.AST) -> tuple[ast.AST, ...]:
    """`ast.walk` of a tree, walked once for all the tests that look through it."""
    return tuple(ast.walk(tree))


@cache
def modules() -> tuple[Module, ...]:
    """Every module of the package that is on disk."""
    return tuple(_read(path) for path in sorted(PACKAGE.rglob("*.py")))


@cache
def _names() -> frozenset[str]:
    return frozenset(module.name for module in modules())


def _read(path: Path) -> Module:
    parts = path.relative_to(ROOT).with_suffix("").parts
    name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    text = path.read_text(encoding="utf-8")
    return Module(name, path, text, ast.parse(text, str(path)))


def imports(module: Module) -> Iterator[tuple[ast.AST, str]]:
    """Every module of the package that `module` names in an import, wherever that import stands.

    Imports inside functions and under `if TYPE_CHECKING:` count, and so does `import_module` with a literal name.
    """
    for node in nodes(module.tree):
        for target in _targets(node, module):
            if target.split(".")[0] == "palladio":
                yield node, target


def _targets(node: ast.AST, module: Module) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = _absolute(node, module)
        for alias in node.names:
            inner = f"{base}.{alias.name}"
            yield inner if inner in _names() else base
    elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
        callee = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if callee in ("import_module", "__import__") and isinstance(node.args[0].value, str):
            yield node.args[0].value


def _absolute(node: ast.ImportFrom, module: Module) -> str:
    if not node.level:
        return node.module or ""
    package = module.name.split(".")
    if module.path.name != "__init__.py":
        package = package[:-1]
    package = package[: len(package) - (node.level - 1)]
    return ".".join([*package, *([node.module] if node.module else [])])


def functions(module: Module) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Every function with its qualified name, `Class.method` or `outer.inner`."""
    yield from _functions(module.tree, "")


def _functions(node: ast.AST, prefix: str) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            continue  # no function stands inside an expression
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield prefix + child.name, child
        inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        yield from _functions(child, f"{prefix}{child.name}." if inside else prefix)
