"""The dataclass decorator of this package: that of the standard library, several times as quick to make a class.

A process makes more than a hundred classes when it imports the package, and half as many again when it first compiles.
The standard library compiles a text for every method of each. Here only `__init__` is compiled, because its arguments
have names; the other methods are closures over the names of the fields. The results are dataclasses like any others:
`dataclasses.fields`, `replace` and `is_dataclass`, `match` statements, `pickle` and `copy` take them. Ordering and
`InitVar` are left out.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterable
from dataclasses import MISSING, Field, FrozenInstanceError, fields
from operator import attrgetter
from reprlib import recursive_repr
from typing import Any, TypeVar, dataclass_transform, overload

T = TypeVar("T")


@overload
def dataclass(made: type[T], /) -> type[T]: ...
@overload
def dataclass(
    *,
    init: bool = ...,
    repr: bool = ...,
    eq: bool = ...,
    unsafe_hash: bool = ...,
    frozen: bool = ...,
    kw_only: bool = ...,
    slots: bool = ...,
) -> Callable[[type[T]], type[T]]: ...
@dataclass_transform(field_specifiers=(dataclasses.field,))
def dataclass(
    made: type[Any] | None = None,
    /,
    *,
    init: bool = True,
    repr: bool = True,
    eq: bool = True,
    unsafe_hash: bool = False,
    frozen: bool = False,
    kw_only: bool = False,
    slots: bool = False,
) -> Any:
    """`dataclasses.dataclass` with the options that this package uses, which mean what they mean there."""

    def make(made: type[Any]) -> type[Any]:
        # Python itself sets `__hash__` to None beside an `__eq__`.
        hashes = "__hash__" in made.__dict__ and not (made.__hash__ is None and "__eq__" in made.__dict__)
        for name in _CHANGING if frozen else ():
            if name in made.__dict__:
                raise TypeError(f"{made.__name__} is frozen and has {name}")
        if made.__doc__ is None:
            made.__doc__ = made.__name__  # else the standard library describes an `__init__` that is not there yet
        # The standard library adds what pickles a frozen class with slots, and refuses a class that is frozen if a base
        # is not, and the other way around.
        known = frozen and (slots or any(map(dataclasses.is_dataclass, made.__mro__[1:])))
        rest: dict[str, bool] = {"unsafe_hash": unsafe_hash, "kw_only": kw_only, "slots": slots}
        made = dataclasses.dataclass(init=False, repr=False, eq=False, frozen=known, **rest)(made)
        params = made.__dataclass_params__
        params.init, params.repr, params.eq, params.frozen = init, repr, eq, frozen
        own = fields(made)
        methods: dict[str, Any] = {}
        if init:
            methods["__init__"] = _constructor(made, own, frozen)
        if repr:
            methods["__repr__"] = _described(each.name for each in own if each.repr)
        if eq:
            methods["__eq__"] = _compared(each.name for each in own if each.compare)
        for name, method in methods.items():
            if name not in made.__dict__:
                setattr(made, name, _named(method, made, name))
        if eq and not (hashes or unsafe_hash):
            hashed = (each.name for each in own if (each.compare if each.hash is None else each.hash))
            made.__hash__ = _named(_hashed(hashed), made, "__hash__") if frozen else None
        if frozen:
            _freeze(made, frozenset(each.name for each in own))
        return made

    return make if made is None else make(made)


def _named(method: Any, made: type[Any], name: str) -> Any:
    method.__name__, method.__qualname__, method.__module__ = name, f"{made.__qualname__}.{name}", made.__module__
    return method


def _values(names: Iterable[str]) -> Callable[[Any], tuple[Any, ...]]:
    """A function of an object that gives the values of these attributes."""
    names = tuple(names)
    if len(names) > 1:
        return attrgetter(*names)
    if not names:
        return lambda found: ()
    only = attrgetter(*names)
    return lambda found: (only(found),)


def _described(names: Iterable[str]) -> Any:
    names = tuple(names)

    def described(self: Any) -> str:
        return f"{type(self).__qualname__}({', '.join([f'{name}={getattr(self, name)!r}' for name in names])})"

    return recursive_repr()(described)


def _compared(names: Iterable[str]) -> Any:
    values = _values(names)

    def equal(self: Any, other: Any) -> Any:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    return equal


def _hashed(names: Iterable[str]) -> Any:
    values = _values(names)
    return lambda self: hash(values(self))


def _freeze(made: type[Any], names: frozenset[str]) -> None:
    """Refuse changes of the fields; a class derived from `made` may have other attributes."""

    def assign(self: Any, name: str, value: Any) -> None:
        if type(self) is made or name in names:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        super(made, self).__setattr__(name, value)

    def delete(self: Any, name: str) -> None:
        if type(self) is made or name in names:
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        super(made, self).__delattr__(name)

    for name, method in zip(_CHANGING, (assign, delete), strict=True):
        setattr(made, name, _named(method, made, name))


_CHANGING = "__setattr__", "__delattr__"


class _Factory:
    """The default of an argument whose field has a `default_factory`."""

    def __repr__(self) -> str:
        return "<factory>"


_FACTORY = _Factory()


def _constructor(made: type[Any], own: Iterable[Field[Any]], frozen: bool) -> Any:
    """An `__init__` that sets the fields in order; it is compiled, so that Python binds the arguments."""
    slots = "__slots__" in made.__dict__
    known: dict[str, Any] = {"__set": object.__setattr__, "__factory": _FACTORY}
    positional, by_keyword, lines = ["self"], [], []
    for field in own:
        name = value = argument = field.name
        if field.default is not MISSING:
            known[f"__default_{name}"] = field.default
            argument = f"{name}=__default_{name}"
            value = name if field.init else f"__default_{name}"
        elif field.default_factory is not MISSING:
            known[f"__make_{name}"] = field.default_factory
            argument = f"{name}=__factory"
            value = f"__make_{name}()" + (f" if {name} is __factory else {name}" if field.init else "")
        if not field.init and field.default_factory is MISSING and (field.default is MISSING or not slots):
            continue  # `__post_init__` sets it, or it is an attribute of the class
        if field.init:
            (by_keyword if field.kw_only else positional).append(argument)
        lines.append(f"__set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(made, "__post_init__"):
        lines.append("self.__post_init__()")
    arguments = ", ".join([*positional, *(["*", *by_keyword] if by_keyword else [])])
    body = "\n  ".join(lines or ["pass"])
    text = f"def create({', '.join(known)}):\n def __init__({arguments}):\n  {body}\n return __init__"
    found: dict[str, Any] = {}
    module = sys.modules.get(made.__module__)
    exec(text, {} if module is None else vars(module), found)
    constructor = found["create"](**known)
    constructor.__annotations__ = {field.name: field.type for field in own if field.init} | {"return": None}
    return constructor
