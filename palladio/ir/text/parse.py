"""Text to programs."""

from __future__ import annotations

import ast
import functools
import inspect
import math
import re
import string
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from palladio.base.errors import InternalError, PalladioError, ParseError
from palladio.ir.bind import form
from palladio.ir.core import Atom, Eqn, Literal, Op, Program, Var
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
from palladio.types.types import MEMORY_SPACES, ArrayType, RefType, Type
from palladio.types.views import Coordinate, Guard, View

_TOKEN = re.compile(
    r"""\s+ | \#[^\n]*
      | \d+(?:\.\d+)?(?:[eE][+-]?\d+)?
      | '(?:\\.|[^'\\])*' | "(?:\\.|[^"\\])*"
      | [A-Za-z_]\w*
      | [][(){}<>,:;=.+*$!-]""",
    re.VERBOSE,
)
_KINDS = {
    **dict.fromkeys(f"{string.whitespace}#", "space"),
    **dict.fromkeys("'\"", "string"),
    **dict.fromkeys(f"{string.ascii_letters}_", "name"),
    **dict.fromkeys("][(){}<>,:;=.+*$!-", "mark"),
}
"""The kind of a token by its first character, unless that is a digit or a rarer kind of space."""


class _Token(NamedTuple):
    kind: str
    text: str
    line: int


def parse_program(text: str, ops: Mapping[str, Op], records: Mapping[str, type] | None = None) -> Program:
    """The program that a text describes.

    Args:
        ops: the operations by name.
        records: the dataclasses that may stand in parameters, by name.

    Raises:
        ParseError: naming the line and what was expected there.
        PalladioError: if an equation breaks its operation's type rule.
    """
    parser = _Parser(_tokens(text), ops, records or {})
    try:
        program = parser.program()
    except RecursionError:
        raise ParseError(f"line {parser.token.line}: programs or parentheses are nested too deep to be read") from None
    parser.expect("end")
    return program


def _tokens(text: str) -> list[_Token]:
    texts = _TOKEN.findall(text)
    if sum(map(len, texts)) < len(text):
        raise _unreadable(text)
    tokens, line = [], 1
    for found in texts:
        kind = _KINDS.get(found[0]) or ("space" if found.isspace() else "number")
        if kind != "space":
            tokens.append(_Token(kind, found, line))
        if kind in ("space", "string"):
            line += found.count("\n")
    return [*tokens, _Token("end", "end of text", line)]


def _unreadable(text: str) -> ParseError:
    """The error of a text with a character that no token begins with."""
    position = 0
    for match in _TOKEN.finditer(text):
        if match.start() != position:
            break
        position = match.end()
    line = text.count("\n", 0, position) + 1
    return ParseError(f"line {line}: a character that no token begins with", got=repr(text[position]))


@functools.lru_cache(maxsize=10_000)
def _misfit(rule: Callable[..., Any], inputs: int, names: tuple[str, ...]) -> str:
    """The reason why a type rule does not take that many inputs and parameters of these names; empty if it does."""
    try:
        inspect.signature(rule).bind(*range(inputs), **dict.fromkeys(names))
    except TypeError as error:
        return str(error)
    return ""


_SMALL = re.compile("0|[1-9][0-9]{0,18}")


def _value(token: _Token) -> Any:
    """The number or the text that a token writes."""
    if _SMALL.fullmatch(token.text):
        return int(token.text)
    try:
        value = ast.literal_eval(token.text)
    except (SyntaxError, ValueError):
        raise ParseError(f"line {token.line}: this {token.kind} does not parse", got=_short(token.text)) from None
    if value == math.inf:
        raise ParseError(f"line {token.line}: this number is beyond float64; infinity is written inf", got=token.text)
    return value


def _reason(error: Exception) -> str:
    """The text of an internal error, without the plea for a report."""
    return str(error.__cause__ or error.args[0])


def _holds(dtype: dtypes.DType, value: Any) -> bool:
    """True if a literal of a dtype can be written so: an integer in its range, a float that does not overflow."""
    if dtypes.is_float(dtype):
        largest = float(dtypes.finfo(dtype).max)
        return isinstance(value, (int, float)) and (not math.isfinite(value) or abs(value) <= largest)
    if dtype == dtypes.BOOL:
        return value in (0, 1)
    return isinstance(value, int) and dtypes.iinfo(dtype).min <= value <= dtypes.iinfo(dtype).max


def _short(text: str) -> str:
    return text if len(text) <= 40 else text[:40] + "..."


class _Parser:
    """A recursive-descent parser over one token list."""

    def __init__(self, tokens: list[_Token], ops: Mapping[str, Op], records: Mapping[str, type]) -> None:
        self.tokens = tokens
        self.position = 0
        self.ops = ops
        self.records = records
        self.scope: dict[str, Var] = {}

    @property
    def token(self) -> _Token:
        return self.tokens[self.position]

    @property
    def following(self) -> _Token:
        """The token after this one; the last one is its own successor."""
        return self.tokens[min(self.position + 1, len(self.tokens) - 1)]

    def at(self, *texts: str) -> bool:
        return self.token.text in texts and self.token.kind != "string"

    def take(self, text: str) -> bool:
        """Step over a token of this text if it stands here."""
        token = self.tokens[self.position]
        if token.text != text or token.kind == "string":
            return False
        self.position += 1
        return True

    def expect(self, what: str) -> str:
        """Step over a token of this text or kind, or fail."""
        token = self.tokens[self.position]
        if what not in (token.text, token.kind):
            raise ParseError(f"line {token.line}: program text does not parse", expected=what, got=token.text)
        self.position += 1
        return token.text

    def named(self, what: str, table: Mapping[str, Any]) -> Any:
        """Consume a name and return its entry in a table."""
        line, name = self.token.line, self.expect("name")
        if name not in table:
            raise ParseError(f"line {line}: no {what} has this name", got=name)
        return table[name]

    def items(self, close: str, item: Any) -> list[Any]:
        """Items separated by commas up to the closing mark, which is stepped over."""
        found = []
        while not self.take(close):
            found.append(item())
            if not self.take(","):
                self.expect(close)
                break
        return found

    # Programs and equations.

    def program(self) -> Program:
        self.expect("program")
        outer, self.scope = self.scope, {}
        name = self.expect("name")
        self.expect("(")
        inputs = self.items(")", self.declaration)
        self.expect("{")
        eqns = []
        while not self.take("return"):
            eqns.append(self.equation())
        outputs = [] if self.at("}") else self.some(self.atom)
        self.expect("}")
        self.scope = outer
        return Program(tuple(inputs), tuple(eqns), tuple(outputs), name)

    def some(self, item: Any) -> list[Any]:
        """One or more items separated by commas."""
        found = [item()]
        while self.take(","):
            found.append(item())
        return found

    def declaration(self) -> Var:
        line, name = self.token.line, self.expect("name")
        self.expect(":")
        if name in self.scope:
            raise ParseError(f"line {line}: the name is defined twice", got=name)
        var = Var(self.type(), name)
        self.scope[name] = var
        return var

    def equation(self) -> Eqn:
        line = self.token.line
        outputs = []
        if self.following.text == ":":
            outputs = self.some(self.declaration)
            self.expect("=")
        name = self.expect("name")
        if name not in self.ops:
            raise ParseError(f"line {line}: no operation has this name", got=name)
        op = self.ops[name]
        inputs, params = self.operands(op, line)
        if self.take("{"):
            params.update(self.items("}", self.keyword))
        if misfit := _misfit(op.type, len(inputs), tuple(params)):
            raise ParseError(f"line {line}: {name} takes other inputs or parameters", got=misfit)
        try:
            eqn = form(op, inputs, params, None)
            types = [var.type for var in eqn.outputs]
            if types != [var.type for var in outputs]:
                raise ParseError(
                    f"line {line}: the declared output types are not those of {name}",
                    expected=", ".join(map(str, types)),
                    got=", ".join(str(var.type) for var in outputs),
                )
        except PalladioError:
            raise
        except (InternalError, KeyError, TypeError) as error:  # a rule got an argument of the wrong kind
            raise ParseError(f"line {line}: {name} takes other inputs or parameters", got=_reason(error)) from None
        return Eqn(op, eqn.inputs, tuple(outputs), eqn.params, eqn.effects, None)

    def operands(self, op: Op, line: int) -> tuple[list[Atom], dict[str, Any]]:
        """The inputs of an equation; those of an access with its transforms, and its index operands after the fixed
        inputs.
        """
        if self.token.line != line or self.at("{", "}"):
            return [], {}
        if not op.index_start:
            return self.some(self.atom), {}
        indices: list[Atom] = []
        fixed, stacks = [self.atom()], []
        stacks.append(self.transforms(fixed[0].type, indices))
        while len(stacks) < op.ref_count:
            self.expect(",")
            fixed.append(self.atom())
            stacks.append(self.transforms(fixed[-1].type, indices))
        fixed += self.some(self.atom) if self.take(",") else []
        return [*fixed, *indices], {"transforms": tuple(stacks) if op.ref_count > 1 else stacks[0]}

    def keyword(self) -> tuple[str, Any]:
        name = self.expect("name")
        self.expect("=")
        return name, self.param()

    def atom(self) -> Atom:
        if self.token.kind == "name" and self.following.text != ":":
            line, name = self.token.line, self.expect("name")
            if name not in self.scope:
                raise ParseError(f"line {line}: the name is not defined", got=name)
            return self.scope[name]
        start = self.position
        value = self.literal()
        text = "".join(token.text for token in self.tokens[start : self.position])
        self.expect(":")
        line = self.token.line
        dtype = self.named("dtype", dtypes.SHORT_NAMES)
        if not _holds(dtype, value):
            raise ParseError(f"line {line}: {dtypes.short_name(dtype)} does not hold this number", got=_short(text))
        return Literal(value, dtype)

    # Transforms.

    def transforms(self, root: Type, indices: list[Atom]) -> tuple[Transform, ...]:
        """The transforms after an input; their index operands join `indices`."""
        array = root.array if isinstance(root, RefType) else root
        found: list[Transform] = []
        while self.at("[", "."):
            transform = self.index(array, indices) if self.take("[") else self.named_transform(array, indices)
            found.append(transform)
            array = transformed(array, [transform], [atom.type for atom in indices if isinstance(atom.type, ArrayType)])
        return tuple(found)

    def named_transform(self, array: ArrayType, indices: list[Atom]) -> Transform:
        self.expect(".")
        line, name = self.token.line, self.expect("name")
        self.expect("(")
        if name == "bitcast":
            dtype = self.named("dtype", dtypes.SHORT_NAMES)
            self.expect(")")
            return Bitcast(dtype)
        if name == "view":
            return self.view(array, indices)
        if name == "peer":
            return Peer(tuple(self.items(")", lambda: self.block(indices))))
        numbers = tuple(self.items(")", lambda: self.integer("a size" if name == "reshape" else "an axis")))
        if name == "reshape":
            return Reshape(numbers)
        if name == "transpose":
            return Transpose(numbers)
        raise ParseError(f"line {line}: no transform has this name", got=name)

    def view(self, array: ArrayType, indices: list[Atom]) -> View:
        """`.view(base: sizes)[coordinate, coordinate < extent; coordinate < extent]`."""
        base = array
        if self.token.kind == "name":
            base = self.array_type()
            if not self.at(")"):
                self.expect(":")
        sizes = tuple(self.items(")", lambda: self.integer("a size")))
        self.expect("[")
        reading = _Coordinates(self, len(sizes), indices)
        coordinates: list[Coordinate] = []
        guards: list[Guard] = []
        while not self.at(";", "]"):
            coordinates.append(reading.coordinate())
            if self.take("<"):
                guards.append(Guard(coordinates[-1], self.integer("an extent")))
            if not self.take(","):
                break
        more = self.some(reading.guard) if self.take(";") else []
        self.expect("]")
        return View(base, sizes, tuple(coordinates), (*guards, *more), reading.gathered)

    def block(self, indices: list[Atom]) -> tuple[str, int | Operand]:
        axis = self.expect("name")
        self.expect("=")
        return axis, self.position_in_axis(indices)

    def index(self, array: ArrayType, indices: list[Atom]) -> Index:
        entries: list[IndexEntry] = []
        while not self.take("]"):
            if len(entries) == array.ndim:
                raise ParseError(f"line {self.token.line}: an index has more entries than {array} has axes")
            entries.append(self.entry(array.shape[len(entries)], indices))
            if not self.take(","):
                self.expect("]")
                break
        return Index(tuple(entries))

    def entry(self, extent: int, indices: list[Atom]) -> IndexEntry:
        if self.take(":"):
            return SliceEntry(0, extent)
        start = self.position_in_axis(indices)
        if not self.take(":"):
            return start
        relative = self.take("+")
        size = self.integer("the end of a slice")
        if not relative:
            if not isinstance(start, int):
                raise ParseError(f"line {self.token.line}: a slice of dynamic start is written start:+size")
            size -= start
        return SliceEntry(start, size, self.integer("the step of a slice") if self.take(":") else 1)

    def position_in_axis(self, indices: list[Atom]) -> int | Operand:
        typed = [token.text for token in self.tokens[self.position + 1 : self.position + 3]]
        if self.token.kind == "number" and not (typed[0] == ":" and typed[1] in dtypes.SHORT_NAMES):
            return self.integer("an index")
        indices.append(self.index_atom())
        return Operand(len(indices) - 1, self.take("!"))

    def index_atom(self) -> Atom:
        if self.token.kind == "name" and self.token.text in self.scope:
            return self.scope[self.expect("name")]
        return self.atom()

    # Types and parameters.

    def type(self) -> Type:
        if self.take("ref"):
            self.expect("<")
            space = self.named("memory space", MEMORY_SPACES)
            self.expect(",")
            array = self.array_type()
            attributes = [self.record() for _ in iter(lambda: self.take(","), False)]
            self.expect(">")
            return RefType(array.shape, array.dtype, space, tuple(attributes))
        return self.array_type()

    def array_type(self) -> ArrayType:
        dtype = self.named("dtype", dtypes.SHORT_NAMES)
        self.expect("[")
        return ArrayType(tuple(self.items("]", lambda: self.integer("a size"))), dtype)

    def literal(self) -> Any:
        """A number, inf, nan, True, False or None."""
        if self.take("-"):
            return -self.unsigned()
        words = {"True": True, "False": False, "None": None}
        return words[self.expect("name")] if self.token.text in words else self.unsigned()

    def unsigned(self) -> int | float:
        """A number, inf or nan."""
        if self.at("inf", "nan"):
            return float(self.expect("name"))
        token = self.token
        self.expect("number")
        return _value(token)  # type: ignore[no-any-return]

    def integer(self, what: str) -> int:
        """An integer of at least 0 that an index can be."""
        sign = self.expect("-") if self.at("-") else ""
        token = self.token
        if token.kind not in ("number", "name"):
            self.expect("number")
        self.position += 1
        if sign or not token.text.isdecimal() or not (value := _value(token)) < 1 << 63:
            raise ParseError(
                f"line {token.line}: {what} is an integer from 0 to 2**63 - 1", got=_short(sign + token.text)
            )
        return value  # type: ignore[no-any-return]

    def param(self) -> Any:
        token = self.token
        following = self.following.text
        if token.kind == "string":
            self.position += 1
            return _value(token)
        if self.take("("):
            return tuple(self.items(")", self.param))
        if self.at("program"):
            return self.program()
        if self.at("ref") or (token.text in dtypes.SHORT_NAMES and following == "["):
            return self.type()
        if token.text in dtypes.SHORT_NAMES:
            return dtypes.SHORT_NAMES[self.expect("name")]
        if token.kind == "name" and following == "(":
            return self.record()
        return self.literal()

    def record(self) -> Any:
        line, name = self.token.line, self.expect("name")
        self.expect("(")
        if name == "space":
            space = self.named("memory space", MEMORY_SPACES)
            self.expect(")")
            return space
        if name not in self.records:
            raise ParseError(f"line {line}: no record has this name", got=name)
        fields = dict(self.items(")", self.keyword))
        try:
            return self.records[name](**fields)
        except PalladioError:
            raise
        except (TypeError, ValueError, AttributeError) as error:
            raise ParseError(f"line {line}: {name} takes other fields", got=str(error)) from None


class _Coordinates:
    """Reads the coordinates of one view. An operand that occurs in several of them is one index operand."""

    def __init__(self, parser: _Parser, rank: int, indices: list[Atom]) -> None:
        self.parser = parser
        self.rank = rank
        self.indices = indices
        self.first = len(indices)
        self.gathered: tuple[int, ...] = ()

    def guard(self) -> Guard:
        row = self.coordinate()
        self.parser.expect("<")
        return Guard(row, self.parser.integer("an extent"))

    def coordinate(self) -> Coordinate:
        """A sum of operands and positions, each with its factor, and of the start."""
        parser = self.parser
        start, operands, strides = 0, [], [0] * self.rank
        while True:
            factor = 1
            number = parser.token.kind == "number" and parser.following.text != ":"
            if number:
                factor = parser.integer("a number")
            if number and not parser.take("*"):
                start += factor
            elif parser.take("$"):
                strides[self.axis()] += factor
            else:
                operands.append((self.operand(), factor))
            if not parser.take("+"):
                return Coordinate(start, tuple(operands), tuple(strides))

    def axis(self) -> int:
        line, axis = self.parser.token.line, self.parser.integer("an axis")
        if axis >= self.rank:
            raise ParseError(
                f"line {line}: the selection has no such axis", expected=f"axes below {self.rank}", got=axis
            )
        return axis

    def operand(self) -> int:
        atom = self.parser.index_atom()
        if self.parser.take("["):
            axes = tuple(self.parser.items("]", self.position))
            self.gathered = max(self.gathered, axes, key=len)
        for number, known in enumerate(self.indices[self.first :], self.first):
            if known is atom:
                return number
        self.indices.append(atom)
        return len(self.indices) - 1

    def position(self) -> int:
        self.parser.expect("$")
        return self.axis()
