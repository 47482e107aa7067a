"""Gathers the pages of the site in build/site-source: `python -m tools.site`; `make docs` then builds and tries it.

The pages are those of docs, the README as the first one, and a page for each public module with every public name. A
name defined by `def` or `class` is documented by mkdocstrings; any other by its run-time value: its signature and its
documentation.
"""

from __future__ import annotations

import ast
import enum
import importlib
import inspect
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "build/site-source"

MODULES = (
    "palladio",
    "palladio.numpy",
    "palladio.lax",
    "palladio.library",
    "palladio.gpu",
    "palladio.tpu",
    "palladio.tpu.sparse_core",
    "palladio.interop.torch",
    "palladio.interop.jax",
    "palladio.interop.transformers",
)
PAGES = {"README.md": "index.md", "CHANGELOG.md": "changelog.md", "ADDING.md": "adding.md"}
"""Pages outside docs, with their names on the site."""

LINK = re.compile(r"\]\((?!https?:|#)(?P<target>[^)#\s]+)(?P<part>#[^)\s]*)?\)")


def gather(source: Path = SOURCE) -> list[Path]:
    """Write all pages, and return them."""
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(ROOT / "docs", source)
    for name, page in PAGES.items():
        shutil.copy(ROOT / name, source / page)
    for page in sorted(source.rglob("*.md")):
        origin = next((ROOT / name for name, other in PAGES.items() if source / other == page), None)
        _relink(page, origin or ROOT / "docs" / page.relative_to(source), source)
    (source / "api").mkdir()
    for module in MODULES:
        (source / f"api/{module}.md").write_text(api_page(module), encoding="utf-8")
    return sorted(source.rglob("*.md"))


def _relink(page: Path, origin: Path, source: Path) -> None:
    """Rewrite links to pages of the site; a link to a file that is not on it becomes the file's name."""

    def moved(match: re.Match[str]) -> str:
        target = (origin.parent / match["target"]).resolve()
        if target.is_dir() and (target / "README.md").exists():
            target = target / "README.md"
        name = os.path.relpath(target, ROOT)
        if name in PAGES:
            there = source / PAGES[name]
        elif name.startswith(f"docs{os.sep}"):
            there = source / os.path.relpath(target, ROOT / "docs")
        else:
            return f"] (`{name}`)"
        return f"]({os.path.relpath(there, page.parent)}{match['part'] or ''})"

    text = LINK.sub(moved, page.read_text(encoding="utf-8"))
    text = re.sub(r"!?\[([^\]]*)\] \((`[^`]*`)\)", r"\1 (\2)", text)
    page.write_text(text, encoding="utf-8")


def api_page(name: str) -> str:
    """The page of a public module: its docstring, then its names."""
    module = importlib.import_module(name)
    lines = [f"# {name}", "", inspect.cleandoc(module.__doc__ or ""), ""]
    refused = []
    for each in sorted(module.__all__, key=str.lower):
        value = getattr(module, each)
        if type(value).__name__ == "Refused":
            refused.append(each)
        else:
            lines += [*_entry(name, each, value), ""]
    if refused:
        text = "Names of the original that Palladio does not have; each says why when it is used."
        lines += ["## Refused", "", text, "", ", ".join(f"`{each}`" for each in refused), ""]
    return "\n".join(lines)


def _entry(module: str, name: str, value: Any) -> list[str]:
    """One name: by mkdocstrings if it finds a definition, else by the value's own documentation."""
    heading = f'## `{module}.{name}` {{: #{module}.{name} data-toc-label="{name}" }}'
    if inspect.ismodule(value):
        return [heading, "", *_prose(value.__doc__)]
    found = _definition(value)
    if found is not None:
        options = ["    options:", f"      heading: {module}.{name}", f"      toc_label: {name}"]
        anchor = [] if found == f"{module}.{name}" else [f'<a id="{module}.{name}"></a>', ""]
        return [*anchor, f"::: {found}", *options]
    if callable(value) and not isinstance(value, type) and not isinstance(value, enum.Enum):
        return [heading, "", "```python", f"{name}{_signature(value)}", "```", "", *_prose(value.__doc__)]
    own = value.__doc__ if isinstance(value, type) or type(value).__module__.startswith("palladio") else None
    return [heading, "", f"`{value!r}`" if not isinstance(value, type) else "", "", *_prose(own)]


def _definition(value: Any) -> str | None:
    """The dotted name of the `def` or `class` statement in Palladio that defines a value."""
    module, qualname = getattr(value, "__module__", None) or "", getattr(value, "__qualname__", None) or ""
    if not module.startswith("palladio") or not qualname.isidentifier():
        return None
    file = Path(sys.modules[module].__file__ or "")
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == qualname and node.col_offset == 0:
            # A decorator may have replaced it.
            return f"{module}.{qualname}" if getattr(sys.modules[module], qualname, None) is value else None
    return None


def _signature(value: Any) -> str:
    try:
        return re.sub(r" at 0x[0-9a-f]+", "", str(inspect.signature(value)))
    except (TypeError, ValueError):
        return "(...)"


def _prose(text: str | None) -> list[str]:
    """A docstring as Markdown: its sections become lists."""
    lines = []
    for line in inspect.cleandoc(text or "").splitlines():
        section = re.fullmatch(r"(Args|Returns|Raises|Fields|Yields):", line)
        item = re.fullmatch(r"    (\S.*)", line)
        more = re.fullmatch(r" {8,}(\S.*)", line)
        if section:
            lines += ["", f"**{section[1]}**", ""]
        elif item:
            lines.append(f"- {item[1]}")
        elif more:
            lines.append(f"  {more[1]}")
        else:
            lines.append(line)
    return lines


if __name__ == "__main__":
    print(f"{len(gather())} pages in {SOURCE.relative_to(ROOT)}")
