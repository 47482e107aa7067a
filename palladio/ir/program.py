"""Programs: immutable lists of equations over arrays and references.

A variable is an object; its name is made when printing. A program is closed: what it uses is among its inputs, and the
sub-programs of control flow receive what they capture as operands. Nodes are never changed, passes make new ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from palladio.base.locations import Location
from palladio.types.effects import Effect, EffectKind
from palladio.types.types import ArrayType, RefType, Type

if TYPE_CHECKING:
    from palladio.ir.op import Op


class Var:
    """A variable: an identity and a type. `hint` is the name it would like to have when printed."""

    __slots__ = ("hint", "type")

    def __init__(self, type: Type, hint: str = "") -> None:
        self.type = type
        self.hint = hint

    def __repr__(self) -> str:
        return f"{self.hint or 'var'}:{self.type}"


class Literal:
    """A scalar constant of one dtype."""

    __slots__ = ("type", "value")

    def __init__(self, value: Any, dtype: Any) -> None:
        self.value = np.asarray(value).astype(dtype)[()]
        self.type = ArrayType((), np.dtype(dtype))

    def __repr__(self) -> str:
        return f"{self.value}:{self.type}"


Atom = Var | Literal


@dataclass(frozen=True, eq=False)
class Eqn:
    """`outputs = op(inputs, params)`, with its effects bound to variables and the user's line."""

    op: Op
    inputs: tuple[Atom, ...]
    outputs: tuple[Var, ...]
    params: dict[str, Any]
    effects: tuple[tuple[EffectKind, Var | None], ...] = ()
    location: Location | None = None

    @property
    def input_types(self) -> tuple[Type, ...]:
        """The types of the inputs."""
        return tuple(atom.type for atom in self.inputs)


@dataclass(frozen=True, eq=False)
class Program:
    """A function from `inputs` to `outputs` by way of `eqns`. `name` is the user's function's."""

    inputs: tuple[Var, ...]
    eqns: tuple[Eqn, ...]
    outputs: tuple[Atom, ...]
    name: str = "main"
    location: Location | None = field(default=None, repr=False)

    @cached_property
    def effects(self) -> frozenset[Effect]:
        """The effects on this program's inputs, by position, and those on nothing in particular."""
        position = {var: index for index, var in enumerate(self.inputs)}
        found = set()
        for eqn in self.eqns:
            for kind, var in eqn.effects:
                if var is None:
                    found.add(Effect(kind))
                elif var in position:
                    found.add(Effect(kind, position[var]))
        return frozenset(found)

    @property
    def input_types(self) -> tuple[Type, ...]:
        """The types of the inputs."""
        return tuple(var.type for var in self.inputs)

    @property
    def output_types(self) -> tuple[Type, ...]:
        """The types of the outputs."""
        return tuple(atom.type for atom in self.outputs)

    @property
    def has_refs(self) -> bool:
        """Whether an input is a reference."""
        return any(isinstance(var.type, RefType) for var in self.inputs)


def subprograms(eqn: Eqn) -> Iterator[Program]:
    """The programs among an equation's parameters, inside tuples and records too."""
    for value in eqn.params.values():
        yield from _programs_in(value)


def _programs_in(value: Any) -> Iterator[Program]:
    if isinstance(value, Program):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _programs_in(item)
    elif is_dataclass(value) and not isinstance(value, type):
        for item in fields(value):
            yield from _programs_in(getattr(value, item.name))


def walk(program: Program) -> Iterator[Eqn]:
    """Every equation of a program and of its sub-programs, outermost first."""
    for eqn in program.eqns:
        yield eqn
        for inner in subprograms(eqn):
            yield from walk(inner)
