"""Writes the pages generated from the code, docs/knobs.md and docs/ops.md: `python tools/reference.py`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from palladio.base import knobs  # noqa: E402
from palladio.ir.core import Op  # noqa: E402
from palladio.ops import ALL_OPS  # noqa: E402
from palladio.ops.threads.launch import launch  # noqa: E402
from palladio.types.effects import Sync  # noqa: E402

KNOBS = """\
# Environment variables

<!-- Made by `python tools/reference.py`; edit the code, not this page. -->

All of them are declared in `palladio/base/knobs.py`. Each is read whenever it is asked for, so that a change takes
effect at once. A text that cannot be read is a `PalladioValueError` that names the variable. Flags are `1` or `0`.

"""

OPS = """\
# Operations

<!-- Made by `python tools/reference.py`; edit the code, not this page. -->

The operations that programs are made of. Kernels are not written with them but with the functions of `palladio.numpy`
and `palladio.lax` and with references; these become operations when the kernel is traced. Each one is a record in
`palladio/ops`, which also holds its type rule, its definition in NumPy and how it is discharged.

*Takes* lists the operands, with `*` before the name of those that any number may follow, and after a semicolon the
static parameters; `transforms` are the stacks through which an access reaches its part of each reference, and `indices`
their index operands. *Dtypes* are those of its arrays. The last column says what an operation does beside computing its
outputs: what it reads and writes, and its part in what runs beside the program. *Runs programs* means that it has the
effects of the programs inside it.
"""


def knobs_page() -> str:
    """The page of environment variables."""
    rows = [(f"`{knob.name}`", knob.doc, _default(knob.default)) for knob in knobs.ALL]
    return KNOBS + "\n".join(_table(("Variable", "What it does", "Default"), rows)) + "\n"


def _default(value: object) -> str:
    if isinstance(value, bool):
        return f"`{int(value)}`"
    return "not set" if value is None else f"`{value}`"


def ops_page() -> str:
    """The page of operations, a table for each family."""
    lines = [OPS.rstrip()]
    for module, ops in _families().items():
        title, _, rest = (sys.modules[module].__doc__ or "").strip().partition("\n")
        rows = [(f"`{op.name}`", _takes(op), _dtypes(op), op.doc, _effects(op)) for op in ops]
        lines += ["", f"## {module.split('.')[-1].capitalize()}", "", title]
        if rest.strip():
            lines += ["", rest.strip()]
        lines += ["", *_table(("Operation", "Takes", "Dtypes", "What it computes", "Effects"), rows)]
    return "\n".join([*lines, ""])


def _families() -> dict[str, list[Op]]:
    """The operations by the module that defines them."""
    families: dict[str, list[Op]] = {}
    for op in ALL_OPS:
        home = next(
            name
            for name, module in sys.modules.items()
            if name.startswith("palladio.ops.") and any(value is op for value in vars(module).values())
        )
        families.setdefault(home, []).append(op)
    return families


def _effects(op: Op) -> str:
    words = {"read": "reads", "write": "writes", "accumulate": "adds to", "debug": "seen by the user"}
    if op.control or op is launch:
        parts = ["runs programs"]
    elif callable(op.effects):
        parts = ["reads and writes as its operands say"]
    else:
        names = op.signature.operands
        parts = [
            words[effect.kind.value] + ("" if effect.position is None else f" `{names[effect.position]}`")
            for effect in op.effects
        ]
    if op.atomic:
        parts.append("atomic")
    return ", ".join((*parts, *(_part(op.sync) if op.sync is not None else ())))


def _part(sync: Sync) -> Iterator[str]:
    """The synchronisation of an operation, in words."""
    if sync.issues is not None:
        yield f"issues a {sync.issues.value}"
    if sync.commits is not None:
        yield f"commits a group of {sync.commits.value}s"
    if sync.waits is not None:
        yield f"waits for `{sync.waits}`" if isinstance(sync.waits, str) else f"waits for each {sync.waits.value}"
    if sync.polls is not None:
        yield f"polls `{sync.polls}`"
    yield from (f"arrives at `{name}`" for name in sync.arrives)
    if sync.fences:
        yield "fences"
    if sync.meets:
        yield "meets the threads of the block"
    if sync.registers:
        yield "resizes the registers"


def _dtypes(op: Op) -> str:
    """The dtypes of an operation's arrays; empty if it takes and returns no data."""
    takes_data = op.signature.operands or op.signature.rest or "dtype" in op.signature.params
    only_waits = op.sync is not None and op.sync.issues is None and not op.effects
    return op.dtypes if takes_data and not only_waits else ""


def _takes(op: Op) -> str:
    """The operands and static parameters of an operation."""
    rest = (f"*{op.signature.rest}",) if op.signature.rest else ()
    operands, params = ", ".join((*op.signature.operands, *rest)), ", ".join(op.signature.params)
    return f"`{operands}{'; ' if params else ''}{params}`" if operands or params else ""


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(map(_cell, row)) + " |" for row in lines]


def _cell(text: str) -> str:
    """The text escaped for a Markdown table; stars inside backquotes need no escape."""
    parts = text.replace("|", r"\|").split("`")
    return "`".join(part if number % 2 else part.replace("*", r"\*") for number, part in enumerate(parts))


PAGES: dict[str, Callable[[], str]] = {"docs/knobs.md": knobs_page, "docs/ops.md": ops_page}


def main() -> None:
    for path, page in PAGES.items():
        (ROOT / path).write_text(page(), encoding="utf-8")
        print(f"wrote {path}")


if __name__ == "__main__":
    main()
