"""The intermediate representation on one page: variables, equations, programs, and operations.

A variable is an object; its name is made when printing. A program is closed: it uses only its inputs, and the
sub-programs of control flow receive captured values as operands. Nodes are immutable; passes make new ones.

An operation is one frozen record, holding every fact about it that is true on every target; what a target does with it
stands in that target's own rules. Semantics lives here: `Op.eval` is the definition.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import field, fields, is_dataclass
from enum import Enum
from functools import cached_property
from typing import Any, ClassVar, Protocol

import numpy as np

from palladio.base.dataclass import dataclass
from palladio.base.errors import InternalError
from palladio.base.locations import Location
from palladio.types.effects import SYNC, Effect, EffectKind, Sync
from palladio.types.types import ArrayType, RefType, Type


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
        return tuple([atom.type for atom in self.inputs])

    @property
    def written(self) -> frozenset[Var]:
        """The references that it writes or adds to."""
        return frozenset(var for kind, var in self.effects if var is not None and kind is not EffectKind.READ)

    @property
    def synchronises(self) -> bool:
        """True if it takes part in what runs beside the program, itself or in a program that it runs."""
        return (EffectKind.SYNC, None) in self.effects

    @cached_property
    def subprograms(self) -> tuple[Program, ...]:
        """The programs among its parameters, inside tuples and records too."""
        return tuple(program for value in self.params.values() for program in _programs_in(value))

    @property
    def synchronised(self) -> tuple[Atom, ...]:
        """The barriers and semaphores that it waits for, polls or arrives at itself, each operand once."""
        return () if self.op.sync is None else tuple(getattr(self, name) for name in self.op.sync.operands)

    @property
    def awaited(self) -> tuple[Atom, ...]:
        """The barriers and semaphores whose state it waits for or polls."""
        sync = self.op.sync
        if sync is None:
            return ()
        return tuple(getattr(self, name) for name in (sync.waits, sync.polls) if isinstance(name, str))

    @property
    def arrivals(self) -> tuple[Atom, ...]:
        """The barriers and semaphores that get an arrival by it, or by the asynchronous operation that it issues."""
        return () if self.op.sync is None else tuple(getattr(self, name) for name in self.op.sync.arrives)

    def __getattr__(self, name: str) -> Any:
        """An operand or static parameter by the name that the operation's type rule gives it: `eqn.predicate`.

        Operands that any number may follow are a tuple: `eqn.indices`.
        """
        if name.startswith("_"):  # the fields are not set yet while a copy is made
            raise AttributeError(name)
        signature = self.op.signature
        if name in signature.operands:
            return self.inputs[signature.operands.index(name)]
        if name in self.params:
            return self.params[name]
        if name == signature.rest:
            return self.inputs[len(signature.operands) :]
        known = ", ".join((*signature.operands, *([f"*{signature.rest}"] if signature.rest else []), *signature.params))
        raise AttributeError(f"an equation of {self.op.name} has no {name!r}, but {known or 'nothing'}")


@dataclass(frozen=True, eq=False, repr=False)
class Program:
    """A function from `inputs` to `outputs` by way of `eqns`. `name` is the user's function's.

    It shows as its text; `palladio.ir.text` sets `text` when it is loaded.
    """

    text: ClassVar[Callable[[Program], str]] = object.__repr__

    inputs: tuple[Var, ...]
    eqns: tuple[Eqn, ...]
    outputs: tuple[Atom, ...]
    name: str = "main"
    location: Location | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        return Program.text(self)

    def __getstate__(self) -> dict[str, Any]:
        """Its fields; the functions that executors keep with a program stay behind."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

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

    @cached_property
    def written(self) -> frozenset[int]:
        """The positions of the inputs that are references which it writes or adds to."""
        changing = (effect for effect in self.effects if effect.kind is not EffectKind.READ)
        return frozenset(effect.position for effect in changing if effect.position is not None)

    @cached_property
    def read(self) -> frozenset[int]:
        """The positions of the inputs that are references which it reads."""
        reading = (effect for effect in self.effects if effect.kind is EffectKind.READ)
        return frozenset(effect.position for effect in reading if effect.position is not None)

    @property
    def synchronises(self) -> bool:
        """True if an equation takes part in what runs beside the program."""
        return Effect(EffectKind.SYNC) in self.effects

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
        """True if an input is a reference."""
        return any(isinstance(var.type, RefType) for var in self.inputs)


def subprograms(eqn: Eqn) -> Iterator[Program]:
    """The programs among an equation's parameters, inside tuples and records too."""
    yield from eqn.subprograms


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
        for inner in eqn.subprograms:
            yield from walk(inner)


TypeRule = Callable[..., Sequence[Type]]
EffectRule = Callable[..., Iterable[Effect]]


@dataclass(slots=True)
class Run:
    """A request of the `eval` of a control-flow operation: run this program on these values, send back its outputs."""

    program: Program
    values: Sequence[Any]


ControlEval = Generator[Run, Sequence[Any], Sequence[Any]]


class DischargeContext(Protocol):
    """The interface of a discharge rule to the pass.

    References at the input positions in `discharged` arrive as the values they hold; those of them that the equation
    may change, rather than only read, are in `changed`.
    """

    discharged: frozenset[int]
    changed: frozenset[int]

    def emit(self, op: Op, *inputs: Atom, **params: Any) -> tuple[Atom, ...]:
        """Form an equation of the discharged program, at the location of the one it replaces."""
        ...

    def inline(self, program: Program, values: Sequence[Atom]) -> tuple[Atom, ...]:
        """Form the equations of an already discharged program here, and return its outputs."""
        ...

    def wants(self, ref: RefType) -> bool:
        """True if references of this type are turned into values."""
        ...

    def uninitialized(self, ref: RefType) -> Atom:
        """An array of what unwritten memory of this type reads as."""
        ...

    def discharge(self, program: Program, positions: Iterable[int], changed: Iterable[int]) -> Program:
        """The sub-program with references at these inputs turned to values.

        The final values of those in `changed`, in that order, are appended to its outputs.
        """
        ...


@dataclass(frozen=True)
class Discharged:
    """The result of a discharge rule.

    The outputs, and the new value of each discharged reference that may have changed.
    """

    outputs: Sequence[Atom]
    refs: dict[int, Atom] = field(default_factory=dict)


DischargeRule = Callable[..., Discharged]


class Work(Enum):
    """The arithmetic of an operation, for estimates of its cost."""

    NONE = "none"
    """It moves or chooses elements, and computes none."""
    ELEMENT = "element"
    """One operation for each element of the result."""
    TRANSCENDENTAL = "transcendental"
    """One evaluation of exp, log, tanh and their like for each element of the result."""
    REDUCTION = "reduction"
    """One operation for each element of the first operand."""
    PRODUCT = "product"
    """A multiply-add for each element of the result and of the contracted axes."""


@dataclass(frozen=True)
class Signature:
    """The names of an operation's operands and parameters, from its type rule.

    Fields:
        operands: the mandatory operands, in order.
        rest: the name of those that follow, any number; None if there are none. An access calls them `indices`.
        params: the static parameters, with their types as the type rule writes them.
    """

    operands: tuple[str, ...]
    rest: str | None
    params: dict[str, str]

    @staticmethod
    def of(rule: TypeRule) -> Signature:
        """The signature of a type rule: positional parameters are operands, keyword-only ones static parameters."""
        given = inspect.signature(rule).parameters.values()
        operands = tuple(each.name for each in given if each.kind in _POSITIONAL)
        rest = next((each.name for each in given if each.kind is inspect.Parameter.VAR_POSITIONAL), None)
        params = {each.name: str(each.annotation) for each in given if each.kind is inspect.Parameter.KEYWORD_ONLY}
        return Signature(operands, rest, params)


_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@dataclass(frozen=True, eq=False)
class Op:
    """One operation.

    Fields:
        name: a verb in lower case.
        doc: what it computes, with shapes, in the notation `f32[m, k]`.
        type: `(*input_types, **params) -> output types`; raises a `PalladioError` without a location.
        eval: `(*values, **params) -> sequence of outputs` on NumPy arrays. This is the definition. References arrive
            as writable NumPy arrays. With `control=True` it is a generator that yields `Run(program, values)`.
        effects: the effects by input position, or a rule `(*input_types, **params) -> effects`.
        discharge: `(context, *inputs, **params) -> Discharged`, how the operation looks when its references have become
            values. Required of every operation with effects on references.
        control: whether it runs sub-programs.
        own_operands: the number of first operands that sub-programs do not get: input n of each is operand n +
            `own_operands`, as far as there is one (a loop's index stands for its upper bound). None for an operation
            that gives its sub-programs something else.
        ref_count: for an access, how many of its first inputs it reaches into. With more than one,
            `params["transforms"]` holds a stack for each of them, and the index operands of all stand together at the
            end.
        sync: its part in what runs beside the program; None for an operation that only this thread notices. It gives
            the operation the effect `SYNC`.
        work: the arithmetic that it is.
        dtypes: the dtypes of its arrays, in words.
        elementwise: whether each element of the result depends on the elements of the operands at its index alone.
        commutative: whether its two inputs may be exchanged.
        nonnegative_if: `all` if integer outputs are at least 0 where all inputs are, `any` if one suffices.
        injective: whether different values of one operand give different results where the others stay the same.
        atomic: whether each element that it reads and writes is changed in one step as other threads see it.
        joins: of a reduction or a scan, the operation that joins two elements.
    """

    name: str
    doc: str
    type: TypeRule
    eval: Callable[..., Any]
    effects: tuple[Effect, ...] | EffectRule = ()
    discharge: DischargeRule | None = None
    control: bool = False
    own_operands: int | None = None
    ref_count: int = 1
    sync: Sync | None = None
    work: Work = Work.ELEMENT
    dtypes: str = "any"
    elementwise: bool = False
    commutative: bool = False
    nonnegative_if: Callable[[Iterable[bool]], bool] | None = None
    injective: bool = False
    atomic: bool = False
    joins: Op | None = None

    def __post_init__(self) -> None:
        if not self.doc:
            raise InternalError(f"op {self.name!r} has no documentation")
        positional = callable(self.effects) or any(effect.position is not None for effect in self.effects)
        if positional and self.discharge is None:
            raise InternalError(f"op {self.name!r} is stateful and must declare 'discharge'")
        unknown = [name for name in (self.sync.operands if self.sync else ()) if name not in self.signature.operands]
        if unknown:
            raise InternalError(f"op {self.name!r} synchronises through operands that it does not have: {unknown}")

    @cached_property
    def signature(self) -> Signature:
        """The names of its operands and static parameters."""
        return Signature.of(self.type)

    @cached_property
    def index_start(self) -> int:
        """The position of the first index operand of an access; 0 for an operation that is not one.

        An access reaches into arrays or references through `params["transforms"]`; its type rule ends in `*indices`.
        """
        return len(self.signature.operands) if self.signature.rest == "indices" else 0

    def __repr__(self) -> str:
        return self.name

    def stacks(self, transforms: Any) -> tuple[Any, ...]:
        """The transforms of an access, a stack for each input that it reaches into."""
        return transforms if self.ref_count > 1 else (transforms,)

    def effects_of(self, input_types: Sequence[Type], params: dict[str, Any]) -> tuple[Effect, ...]:
        """The effects of one use of the operation, in a fixed order."""
        found = set(self.effects(*input_types, **params) if callable(self.effects) else self.effects)
        if self.sync is not None:
            found.add(SYNC)
        if not found:
            return ()
        return tuple(sorted(found, key=lambda e: (e.kind.value, -1 if e.position is None else e.position)))
