"""House rules that a machine can check."""

from __future__ import annotations

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path

from palladio.types.device import H100_SXM
from tests.architecture.source import ROOT, Module, modules, nodes

CODE_STRING_LINES = 20

FORBIDDEN = re.compile(
    r"/(?<![\w.~-]/)(?:work|root|home|opt|users)/"  # paths of one machine
    r"|pyenv\b"
    r"|pythonhosted|pypi\.org|download\.pytorch\.org|pypi\.nvidia|artifactory\b|--(?:extra-)?index-url"
)
"""In lower case. Each choice begins with a letter or sign, not a condition: the search is ten times as fast."""


def test_environment_variables_are_read_in_one_place() -> None:
    readers = [
        module.name
        for module in modules()
        if re.search(r"\b(?:environ|environb|getenv|putenv)\b", module.text) and module.name != "palladio.base.knobs"
    ]
    assert readers == [], "environment variables belong to palladio/base/knobs.py"


def test_no_bare_assert_reaches_a_user() -> None:
    found = [module.at(node) for module in modules() for node in nodes(module.tree) if isinstance(node, ast.Assert)]
    assert found == [], "raise InternalError or call unreachable() instead"


def test_classes_are_quick_to_make() -> None:
    """The library and the demo are written as users write, so with what the standard library has."""
    found = [
        module.at(node)
        for module in modules()
        if module.unit not in ("library", "demo") and module.name != "palladio.base.dataclass"
        for node in nodes(module.tree)
        if (isinstance(node, ast.ImportFrom) and node.module == "dataclasses" and _names(node, "dataclass"))
        or (isinstance(node, ast.Attribute) and ast.unparse(node) == "dataclasses.dataclass")
    ]
    assert found == [], "take `dataclass` from palladio.base.dataclass"


def _names(node: ast.ImportFrom, name: str) -> bool:
    return any(each.name == name for each in node.names)


def test_every_module_says_what_it_is_for() -> None:
    assert [module.name for module in modules() if not ast.get_docstring(module.tree)] == []


def test_code_in_another_language_lives_in_its_own_file() -> None:
    found = [place for module in modules() for place in _long_strings(module)]
    assert found == [], f"strings of more than {CODE_STRING_LINES} lines belong into a file of their own"


def _long_strings(module: Module) -> Iterator[str]:
    """Triple-quoted strings over the budget. Docstrings and `doc=` arguments are prose, and not meant."""
    if not any(_is_long(node) for node in nodes(module.tree)):
        return  # the tokens of all modules take seconds
    prose = {node.value.lineno for node in nodes(module.tree) if isinstance(node, ast.Expr)}
    prose |= {node.value.lineno for node in nodes(module.tree) if isinstance(node, ast.keyword) and node.arg == "doc"}
    f_string_starts: list[int] = []
    for token in tokenize.generate_tokens(io.StringIO(module.text).readline):
        kind = tokenize.tok_name[token.type]
        start = token.start[0]
        if kind == "FSTRING_START":
            f_string_starts.append(start)
            continue
        if kind == "FSTRING_END":
            start = f_string_starts.pop()
        elif kind != "STRING":
            continue
        if token.end[0] - start + 1 > CODE_STRING_LINES and start not in prose:
            yield f"{module.path.relative_to(ROOT)}:{start}"


def _is_long(node: ast.AST) -> bool:
    """True if a string, or adjacent ones together, are over the budget."""
    if not isinstance(node, ast.JoinedStr) and not (isinstance(node, ast.Constant) and isinstance(node.value, str)):
        return False
    return (node.end_lineno or node.lineno) - node.lineno + 1 > CODE_STRING_LINES


def test_every_pass_module_exports_one_pass() -> None:
    counts = {
        module.name: _passes_made(module)
        for module in modules()
        if module.unit == "passes" and module.path.name != "__init__.py" and not _defines(module, "Pass")
    }
    assert {name: count for name, count in counts.items() if count != 1} == {}, "one pass a file"


def _passes_made(module: Module) -> int:
    """How many names the module binds to `Pass(...)` at its top level."""
    values = [node.value for node in module.tree.body if isinstance(node, ast.Assign | ast.AnnAssign)]
    callees = [value.func for value in values if isinstance(value, ast.Call)]
    return sum(isinstance(callee, ast.Name) and callee.id == "Pass" for callee in callees)


def _defines(module: Module, name: str) -> bool:
    return any(isinstance(node, ast.ClassDef) and node.name == name for node in module.tree.body)


def test_no_file_names_a_machine_or_a_registry() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}"
        for path, text in _texts()
        for number, line in enumerate(text.splitlines(), 1)
        if FORBIDDEN.search(line.lower())
    ]
    assert found == []


def _texts() -> Iterator[tuple[Path, str]]:
    """Every text file under version control, or every one there is where the source came without its history."""
    if (ROOT / ".git").exists():
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
        paths = [ROOT / name for name in listed.split("\0") if name]
    else:
        folders = ("palladio", "tests", "docs", "benchmarks", "tools")
        paths = [*ROOT.glob("*"), *(path for folder in folders for path in (ROOT / folder).rglob("*"))]
    for path in paths:
        if path.is_file() and path != Path(__file__).resolve():
            try:
                yield path, path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue  # not a text file


def test_the_numbers_of_a_card_stand_in_one_record() -> None:
    telling = (H100_SXM.multiprocessors, H100_SXM.shared_bytes)
    found = [
        f"{module.at(node)}: {node.value}"
        for module in modules()
        if module.name != "palladio.types.device"
        for node in nodes(module.tree)
        if isinstance(node, ast.Constant) and type(node.value) is int and node.value in telling
    ]
    assert not found, "use the record `palladio.types.device.Device`"
