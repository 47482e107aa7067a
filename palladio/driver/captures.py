"""The outside values that a function's code reads, from its bytecode: global names, attributes, captured variables.

`co_names` mixes names of globals and of attributes, so the instructions distinguish them: `x.mean()` does not read the
global `mean`. If the code only reads attributes of a captured variable, `x.shape[-1]`, no other part of the object can
change what the code does.
"""

from __future__ import annotations

import dis
import functools
import types
from collections.abc import Iterator, Mapping

from palladio.base.dataclass import dataclass

_GLOBALS = frozenset(("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"))
_ATTRIBUTES = frozenset(("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR", "IMPORT_FROM"))
_CAPTURED = frozenset(("LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"))
_LOCALS = frozenset(("LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_AND_CLEAR", "LOAD_FAST_BORROW"))
_NOT_READ = frozenset(
    ("STORE_GLOBAL", "DELETE_GLOBAL", "STORE_NAME", "DELETE_NAME", "STORE_ATTR", "DELETE_ATTR", "IMPORT_NAME")
)
_BY_TEXT = frozenset(("globals", "vars", "eval", "exec"))
"""Functions through which code may read a global by a string."""

Attributes = frozenset[str] | None
"""The attributes of a variable that are read; None if it may be read in other ways too."""


@dataclass(frozen=True)
class Reads:
    """The names that some code, and the code of functions defined in it, may read.

    Attributes:
        globals: names of global variables and built-ins.
        attributes: names of attributes, and strings that may be names: `getattr(module, "name")`.
        variables: for each global and captured variable that is read, its attributes that are read.
        first: the attributes of the first parameter that are read.
        stored: names of globals that the code sets, e.g. a counter.
    """

    globals: tuple[str, ...]
    attributes: tuple[str, ...]
    variables: Mapping[str, Attributes]
    first: Attributes
    stored: frozenset[str]


@functools.cache
def reads(code: types.CodeType) -> Reads:
    """The names that a function's code may read."""
    names: dict[str, set[str]] = {"globals": set(), "attributes": set()}
    variables: dict[str, Attributes] = {}
    texts: set[str] = set()
    stored: set[str] = set()
    own = _instructions(code)
    for each in _with_inner(code):
        texts.update(constant for constant in each.co_consts if isinstance(constant, str) and constant.isidentifier())
        instructions = own if each is code else _instructions(each)
        for instruction, after in zip(instructions, [*instructions[1:], None]):
            name, operation = instruction.argval, instruction.opname
            if operation in _ATTRIBUTES:
                names["attributes"].add(name)
            elif operation in _GLOBALS or operation in _CAPTURED:
                variables[name] = _joined(variables.get(name, frozenset()), after)
                if operation in _GLOBALS:
                    names["globals"].add(name)
            elif operation == "STORE_GLOBAL":
                stored.add(name)
            elif instruction.opcode in dis.hasname and operation not in _NOT_READ:
                names["globals"].add(name)  # an instruction of a later Python: it may read either
                names["attributes"].add(name)
                variables[name] = None
    if names["globals"] & _BY_TEXT:
        names["globals"] |= texts
        variables.update(dict.fromkeys(texts))
    names["attributes"] |= texts
    return Reads(
        tuple(sorted(names["globals"])),
        tuple(sorted(names["attributes"])),
        variables,
        _of_first(code, own, variables),
        frozenset(stored),
    )


def _with_inner(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _with_inner(constant)


def _instructions(code: types.CodeType) -> list[dis.Instruction]:
    return [each for each in dis.get_instructions(code) if each.opname not in ("EXTENDED_ARG", "CACHE")]


def _joined(found: Attributes, after: dis.Instruction | None) -> Attributes:
    """The attributes read so far, and the one read by the instruction after a load of the variable."""
    if found is None or after is None or after.opname not in ("LOAD_ATTR", "LOAD_METHOD"):
        return None
    return found | {after.argval}


def _of_first(
    code: types.CodeType, instructions: list[dis.Instruction], variables: Mapping[str, Attributes]
) -> Attributes:
    """The attributes of the first parameter, `self` in a method, that are read."""
    if not code.co_argcount:
        return None
    name = code.co_varnames[0]
    found = variables.get(name, frozenset())  # as far as functions defined inside capture it
    if name in code.co_cellvars:
        return found  # read as captured variables are; Python 3.13 passes its cell on by LOAD_FAST
    for instruction, after in zip(instructions, [*instructions[1:], None]):
        if instruction.argval == name and instruction.opname in _LOCALS:
            found = _joined(found, after)
        elif isinstance(instruction.argval, tuple) and name in instruction.argval:
            found = None  # an instruction that loads several variables
    return found
