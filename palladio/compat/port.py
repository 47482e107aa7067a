"""Port a file that imports JAX: its import lines for Palladio, and the names in it that Palladio lacks."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator

from palladio.base.dataclass import dataclass
from palladio.call.refused import Refused
from palladio.compat.missing import instead
from palladio.compat.modules import ELSEWHERE, OWN, PACKAGES, SOURCES

HOMES = {jax: ours for jax, ours in SOURCES.items() if not ours.startswith("palladio.compat")} | {"jax": "palladio"}
"""Module of JAX -> the public module of Palladio that takes its place in an import line."""

MOVED = {path: place for path, place in ELSEWHERE.items() if not place[0].startswith("palladio.compat")}
"""Name of JAX -> the public module of Palladio that has it, and the name there."""

AS_IT_STANDS = (
    "`palladio run --as-jax FILE.py` runs the file without an edit, with more of JAX: random numbers, trees, gradients"
)


@dataclass(frozen=True)
class Ported:
    """The changes that a file needs.

    Fields:
        imports: for each import of JAX its first line, its text, and the replacement lines, if any.
        missing: the line of a name, the name, and the reason why it would not work.
    """

    imports: tuple[tuple[int, str, tuple[str, ...]], ...]
    missing: tuple[tuple[int, str, str], ...]

    def text(self) -> str:
        """The changes as lines of text."""
        if not self.imports:
            return "the file does not import JAX"
        width = len(str(max(line for line, *_ in (*self.imports, *self.missing))))
        lines = []
        for line, old, new in self.imports:
            lines.append(f"{line:{width}} - {old}")
            lines += [f"{'':{width}} + {each}" for each in new]
        if self.missing:
            lines += ["", "would not work:"]
            lines += [f"{line:{width}} {name}: {reason}" for line, name, reason in self.missing]
            lines += ["", AS_IT_STANDS]
        return "\n".join(lines)


def port(text: str) -> Ported:
    """The changes that a file needs to run without JAX, from its text.

    Raises:
        SyntaxError: the text is not Python.
    """
    tree = ast.parse(text)
    imports = [node for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom)) and _of_jax(node)]
    known: dict[str, str] = {}
    for node in imports:
        known.update(_bound(node))
    uses = sorted({(line, _home(path), root) for line, path, root in _uses(tree, known)})
    reached = sorted({(line, path) for line, path, root in uses if path != root or path not in MOVED})
    missing = [(line, path, why) for line, path in reached if (why := _refusal(path)) is not None]
    modules = {path.rpartition(".")[0] for _, path, root in uses if root == "jax"}
    return Ported(
        tuple((node.lineno, ast.unparse(node), tuple(_replaced(node, modules))) for node in imports), tuple(missing)
    )


def _of_jax(node: ast.Import | ast.ImportFrom) -> bool:
    names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
    return any(name.partition(".")[0] in PACKAGES for name in names)


def _bound(node: ast.Import | ast.ImportFrom) -> dict[str, str]:
    """The names that an import binds, each with its path in JAX."""
    if isinstance(node, ast.ImportFrom):
        return {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return {
        alias.asname or alias.name.partition(".")[0]: alias.name if alias.asname else alias.name.partition(".")[0]
        for alias in node.names
        if alias.name.partition(".")[0] in PACKAGES
    }


def _uses(tree: ast.AST, known: dict[str, str]) -> Iterator[tuple[int, str, str]]:
    """Each use of JAX in the file: its line, its whole dotted path, and the path of the import that it begins with."""
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if id(node) in inner or not isinstance(node, (ast.Attribute, ast.Name)):
            continue
        parts: list[str] = []
        root: ast.expr = node
        while isinstance(root, ast.Attribute):
            parts.insert(0, root.attr)
            root = root.value
        if isinstance(root, ast.Name) and root.id in known:
            yield node.lineno, ".".join([known[root.id], *parts]), known[root.id]


def _home(path: str) -> str:
    """The shortest part of a path that is a name of a module: of `jax.numpy.float32.dtype` all but the last."""
    parts = path.split(".")
    count = 1
    modules = (*SOURCES, *OWN, *(path.rpartition(".")[0] for path in MOVED))
    while count < len(parts) and any(f"{module}.".startswith(".".join(parts[:count]) + ".") for module in modules):
        count += 1
    return ".".join(parts[:count])


def _refusal(path: str) -> str | None:
    """The reason why a name would not work in a file of Palladio; None if it does, or is a module that it has."""
    module, _, name = path.rpartition(".")
    if path in HOMES or path in ("jax", "jax.experimental"):
        return None
    home = importlib.import_module(HOMES[module]) if module in HOMES else None
    if home is None or name not in home.__all__:
        return ".".join(MOVED[path]) if path in MOVED else instead(path)
    found = getattr(home, name)
    return repr(found).strip("<>").partition(": ")[2] if isinstance(found, Refused) else None


def _replaced(node: ast.Import | ast.ImportFrom, modules: set[str]) -> Iterator[str]:
    """The lines that replace an import of JAX."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield from _replaced_module(alias, modules)
        return
    names: dict[str, list[str]] = {}
    for alias in node.names:
        path = f"{node.module}.{alias.name}"
        if path in HOMES:
            yield f"import {HOMES[path]} as {alias.asname or alias.name}"
        elif path in MOVED:
            home, name = MOVED[path]
            names.setdefault(home, []).append(ast.unparse(ast.alias(name, alias.asname or alias.name)))
        elif _refusal(path) is None:
            names.setdefault(HOMES[node.module or ""], []).append(ast.unparse(alias))
    for home, each in names.items():
        yield f"from {home} import {', '.join(each)}"


def _replaced_module(alias: ast.alias, modules: set[str]) -> Iterator[str]:
    home = HOMES.get(alias.name)
    if alias.asname is None and alias.name.partition(".")[0] in PACKAGES:
        yield "import palladio as jax"
        inside = {alias.name, *(module for module in modules if module.startswith("jax."))}
        yield from (f"import {HOMES[module]}" for module in sorted(inside & {"jax.numpy", "jax.lax"}))
    elif alias.name.partition(".")[0] not in PACKAGES:
        yield f"import {ast.unparse(alias)}"
    elif home is not None:
        yield f"import {home} as {alias.asname}"
