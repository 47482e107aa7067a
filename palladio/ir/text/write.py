"""Programs to text."""

from __future__ import annotations

import dataclasses
import functools
import keyword
import math
import re
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from palladio.base.errors import InternalError
from palladio.ir.core import Atom, Eqn, Literal, Program, Var
from palladio.types import dtypes
from palladio.types.transforms import (
    Bitcast,
    Index,
    IndexEntry,
    Operand,
    Peer,
    Reshape,
    SliceEntry,
    Transform,
    Transpose,
    transformed,
)
from palladio.types.types import ArrayType, MemorySpace, RefType
from palladio.types.views import Coordinate, View

_NEXT_LINE = "\n  "
"""Before a line that is indented once more than the one around it."""


def print_program(program: Program) -> str:
    """The text of a program. `parse_program` reads it back."""
    return _Writer(program).text()


def number_text(value: Any, dtype: np.dtype[Any]) -> str:
    """A scalar of a dtype as text that reads back to the same bits."""
    if dtypes.is_float(dtype):
        number = float(value)
        return (
            "nan" if math.isnan(number) else ("inf" if number > 0 else "-inf") if math.isinf(number) else repr(number)
        )
    return str(bool(value)) if dtypes.is_bool(dtype) else str(int(value))


def _view_text(view: View, array: ArrayType, operands: list[str], ranks: list[int]) -> str:
    """`.view(base: sizes)[coordinate, coordinate < extent; coordinate < extent]`; `$n` is the position along axis n."""

    def text(row: Coordinate) -> str:
        terms = []
        for position, factor in row.operands:
            own = view.gathered[len(view.gathered) - ranks[position] :]
            terms.append((factor, operands[position] + (f"[{', '.join(f'${axis}' for axis in own)}]" if own else "")))
        terms += [(stride, f"${axis}") for axis, stride in enumerate(row.strides) if stride]
        texts = [each if factor == 1 else f"{factor}*{each}" for factor, each in terms]
        return " + ".join([*texts, *([str(row.start)] if row.start or not texts else [])])

    rows = [text(guard.coordinate) + (f" < {guard.extent}" if guard in view.guards else "") for guard in view.limits]
    more = [f"{text(guard.coordinate)} < {guard.extent}" for guard in view.guards if guard not in view.limits]
    sizes = ", ".join(map(str, view.sizes))
    if view.base != array:
        sizes = f"{view.base}: {sizes}" if sizes else str(view.base)
    guards = f"; {', '.join(more)}" if more else ""
    return f".view({sizes})[{', '.join(rows)}{guards}]"


class _Writer:
    """Writes one program; names are unique within it."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.names: dict[Var, str] = {}
        self.taken: set[str] = set()
        self.fresh = 0

    def text(self) -> str:
        """The program, one line per equation, sub-programs indented below their equation."""
        inputs = ", ".join(map(self.declare, self.program.inputs))
        lines = [f"program {_identifier(self.program.name) or 'main'}({inputs}) {{"]
        lines += [self.equation(eqn).replace("\n", _NEXT_LINE) for eqn in self.program.eqns]
        lines.append(("return " + ", ".join(map(self.atom, self.program.outputs))).rstrip())
        return _NEXT_LINE.join(lines) + "\n}"

    def declare(self, var: Var) -> str:
        """A new variable with its type."""
        self.names[var] = name = self.new_name(var.hint)
        return f"{name}:{var.type}"

    def new_name(self, hint: str) -> str:
        wanted = name = _identifier(hint) if hint else ""
        while not wanted or wanted in self.taken:
            # Some letters are a keyword, and none of them is a name.
            wanted = f"{name}_{self.fresh}" if name else _letters(self.fresh)
            self.fresh += 1
        self.taken.add(wanted)
        return wanted

    def atom(self, atom: Atom) -> str:
        if isinstance(atom, Literal):
            return f"{number_text(atom.value, atom.type.dtype)}:{dtypes.short_name(atom.type.dtype)}"
        return self.names[atom]

    def equation(self, eqn: Eqn) -> str:
        params = dict(eqn.params)
        inputs = [self.atom(atom) for atom in eqn.inputs]
        if eqn.op.index_start:
            inputs = self.accessing(eqn, inputs, params.pop("transforms"))
        left = ", ".join(self.declare(var) for var in eqn.outputs)
        text = f"{left}{' = ' if left else ''}{eqn.op.name} {', '.join(inputs)}".rstrip()
        if params:
            text += " {" + ", ".join(f"{key}={self.param(value)}" for key, value in params.items()) + "}"
        return text

    def accessing(self, eqn: Eqn, inputs: list[str], transforms: Any) -> list[str]:
        """The inputs as text: each reference followed by its transforms, with the index operands inside them."""
        fixed, operands = inputs[: eqn.op.index_start], inputs[eqn.op.index_start :]
        operand_types = [atom.type for atom in eqn.indices if isinstance(atom.type, ArrayType)]
        for position, stack in enumerate(eqn.op.stacks(transforms)):
            root = eqn.inputs[position].type
            array = root.array if isinstance(root, RefType) else root
            for transform in stack:
                fixed[position] += self.transform(transform, array, operands, [type.ndim for type in operand_types])
                array = transformed(array, [transform], operand_types)
        return fixed

    def transform(self, transform: Transform, array: ArrayType, operands: list[str], ranks: list[int]) -> str:
        match transform:
            case Index(entries):
                parts = (self.entry(e, extent, operands) for e, extent in zip(entries, array.shape, strict=True))
                return f"[{', '.join(parts)}]"
            case Reshape(shape):
                return f".reshape({', '.join(map(str, shape))})"
            case Bitcast(dtype):
                return f".bitcast({dtypes.short_name(dtype)})"
            case Transpose(permutation):
                return f".transpose({', '.join(map(str, permutation))})"
            case View():
                return _view_text(transform, array, operands, ranks)
            case Peer(blocks):
                parts = (f"{axis}={self.entry(block, 0, operands)}" for axis, block in blocks)
                return f".peer({', '.join(parts)})"

    def entry(self, entry: IndexEntry, extent: int, operands: list[str]) -> str:
        if isinstance(entry, Operand):
            return operands[entry.position] + ("!" if entry.inside else "")
        if isinstance(entry, int):
            return str(entry)
        if entry.is_whole(extent):
            return ":"
        start = self.entry(entry.start, extent, operands)
        if entry.stride == 1 and isinstance(entry.start, int):
            return f"{start}:{entry.start + entry.size}"
        return f"{start}:+{entry.size}" + (f":{entry.stride}" if entry.stride != 1 else "")

    def param(self, value: Any) -> str:
        if type(value) in _AS_PYTHON:
            return repr(value)
        match value:
            case Program():
                text = _TEXTS.get(value)
                if text is None:
                    text = _TEXTS[value] = _Writer(value).text()
                return text
            case SliceEntry() | Index() | Operand():
                raise InternalError("an index belongs into the transforms of an access")
            case str():
                return repr(value)
            case int() | float() | np.integer() | np.floating():
                return number_text(value, dtypes.FLOAT64 if isinstance(value, (float, np.floating)) else dtypes.INT64)
            case tuple():
                return "(" + ", ".join(map(self.param, value)) + ("," if len(value) == 1 else "") + ")"
            case np.dtype():
                return dtypes.short_name(value)
            case ArrayType() | RefType():
                return str(value)
            case MemorySpace():
                return f"space({value})"
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            parts = [(each, getattr(value, each.name)) for each in _fields(type(value))]
            shown = [f"{each.name}={self.param(part)}" for each, part in parts if _is_shown(each, part)]
            return f"{type(value).__name__}({', '.join(shown)})"
        raise InternalError(f"a parameter of type {type(value).__name__} has no text form: {value!r}")


_TEXTS: WeakKeyDictionary[Program, str] = WeakKeyDictionary()
"""The texts of sub-programs, which say nothing of what is around them: most of them come through a pass as they are."""

_AS_PYTHON = {bool, int, str, type(None)}
"""The types of parameters whose text is Python's. An instance of a class derived from one is looked at more closely."""

_fields = functools.cache(dataclasses.fields)
"""The fields of a class of records."""


def _is_shown(field: dataclasses.Field[Any], value: Any) -> bool:
    """True if a field of a record is printed: those that a pass fills in, only once it has."""
    return field.metadata.get("printed") != "if set" or value != field.default


@functools.lru_cache(maxsize=10_000)
def _identifier(text: str) -> str:
    found = re.sub(r"\W", "_", text)
    reserved = keyword.iskeyword(found) or found in ("program", "inf", "nan") or found in dtypes.SHORT_NAMES
    return "" if not found or not re.match(r"[A-Za-z_]\w*$", found, re.ASCII) or reserved else found


@functools.lru_cache(maxsize=10_000)
def _letters(number: int) -> str:
    """A name of letters for each number: the empty text for those that are reserved."""
    text = ""
    number += 1
    while number:
        number, digit = divmod(number - 1, 26)
        text = chr(ord("a") + digit) + text
    return _identifier(text)
