"""Keys for what a call was prepared from, so that a kernel defined anew on every call is traced once.

Two functions have one key if they have the same code and would find the same values: defaults, captured variables, the
global names that the code mentions, and of modules and classes the attributes that it mentions. A changed constant
gives another key, never a stale kernel.
"""

from __future__ import annotations

import functools
import sys
import types
from collections import ChainMap
from collections.abc import Hashable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

import numpy as np

_LARGEST_ARRAY = 1 << 16
_PLAIN = (type(None), bool, int, str, bytes, np.dtype, types.BuiltinFunctionType, np.ufunc)
_KNOWN = frozenset(("palladio", "numpy", "ml_dtypes", "scipy", "jax", "jaxlib", "torch", *sys.stdlib_module_names))
"""Packages whose functions and attributes stay as they are while a program runs."""
_INSTALLED = ("site-packages", "dist-packages")


class Unkeyable(Exception):
    """A value whose content cannot be known by a key; what depends on it is prepared on every call."""


@functools.cache
def _global_names(code: types.CodeType) -> tuple[str, ...]:
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names.update(_global_names(constant))
    return tuple(sorted(names))


def _package(module: str | None) -> str:
    return (module or "").partition(".")[0]


@functools.cache
def _is_installed(package: str) -> bool:
    return any(part in (getattr(sys.modules.get(package), "__file__", None) or "") for part in _INSTALLED)


def fingerprint(value: Any) -> Hashable:
    """A hashable key of a value.

    Raises:
        Unkeyable: if it has none.
    """
    known: frozenset[str] = frozenset()
    while True:
        walk = _Keys(known)
        key = walk.of(value)
        if not walk.has_class or walk.every <= known:
            return key
        # Which method runs on which object is not known: of a class, all that any code mentions is in the key.
        known |= walk.every


class _Keys:
    """One walk over a value. What is met again, inside itself (recursion) or elsewhere, is named by its number.

    Fields:
        met: number of each object that was met. Modules are met once for each set of names, since of them only the
            attributes with those names are in the key. The objects are held, so that no other takes their id.
        names: the names that the code of the function being walked mentions.
        every: the names that any code mentioned; `known` are those of an earlier walk.
        has_class: whether a user's class was met.
        home: the package of the first function. Of other packages that were installed nothing is expected to change.
    """

    def __init__(self, known: frozenset[str]) -> None:
        self.met: dict[Hashable, tuple[int, Any]] = {}
        self.names: tuple[str, ...] = ()
        self.every: set[str] = set()
        self.known = tuple(sorted(known))
        self.has_class = False
        self.home: str | None = None

    def is_known(self, module: str | None) -> bool:
        package = _package(module)
        return package in _KNOWN or (package != self.home and _is_installed(package))

    def of(self, value: Any) -> Hashable:
        kind = type(value)
        if isinstance(value, Enum):
            return kind, value.name
        if isinstance(value, _PLAIN):
            return kind, value
        if isinstance(value, (float, complex)):
            return kind, repr(value)  # 0.0 equals -0.0, and NaN nothing
        if isinstance(value, (type, types.ModuleType)) and self.is_known(
            value.__module__ if isinstance(value, type) else value.__name__
        ):
            return "known", value
        token = id(value), self.names if isinstance(value, types.ModuleType) else ()
        met = self.met.get(token)
        if met is not None:
            return "again", met[0]
        self.met[token] = len(self.met), value
        return self.compound(value)

    def compound(self, value: Any) -> Hashable:
        match value:
            case types.FunctionType():
                return self.function(value)
            case types.MethodType():
                return "method", self.of(value.__func__), self.of(value.__self__)
            case functools.partial():
                return "partial", self.of(value.func), self.of(value.args), self.of(value.keywords)
            case staticmethod() | classmethod():
                return type(value), self.of(value.__func__)
            case types.ModuleType():
                return "module", value, self.mentioned(vars(value), self.names)
            case type():
                own = [vars(base) for base in reversed(value.__mro__) if not self.is_known(base.__module__)]
                self.has_class = True
                return "class", value, self.mentioned(ChainMap(*reversed(own)), self.known)  # type: ignore[arg-type]
            case tuple() | list():
                return type(value), tuple(map(self.of, value))
            case set() | frozenset():
                return type(value), frozenset(map(self.of, value))
            case Mapping():
                return type(value), tuple((self.of(key), self.of(item)) for key, item in value.items())
            case slice():
                return "slice", self.of((value.start, value.stop, value.step))
            case np.generic():
                return "scalar", value.dtype, value.tobytes()
            case np.ndarray():
                if value.nbytes > _LARGEST_ARRAY or value.dtype.hasobject:
                    raise Unkeyable
                return "array", value.shape, value.dtype, value.tobytes()
        return self.instance(value)

    def mentioned(self, namespace: Mapping[str, Any], names: tuple[str, ...]) -> Hashable:
        """The values of a namespace that the code mentions."""
        return tuple((name, self.of(namespace[name])) for name in names if name in namespace)

    def function(self, function: types.FunctionType) -> Hashable:
        if self.home is None and _package(function.__module__) not in _KNOWN:
            self.home = _package(function.__module__)
        inner = function.__closure__ is not None or "<locals>" in function.__qualname__
        if self.is_known(function.__module__) and not inner:
            return "known", function
        code = function.__code__
        outside, self.names = self.names, _global_names(code)
        self.every.update(self.names)
        try:
            cells = tuple(self.cell(cell) for cell in function.__closure__ or ())
            defaults = self.of(function.__defaults__), self.of(function.__kwdefaults__), self.of(function.__dict__)
            return "function", code, defaults, cells, self.mentioned(function.__globals__, self.names)
        finally:
            self.names = outside

    def cell(self, cell: types.CellType) -> Hashable:
        try:
            return self.of(cell.cell_contents)
        except ValueError:
            return "empty"

    def instance(self, value: Any) -> Hashable:
        kind = type(value)
        if hasattr(kind, "palladio_type"):
            raise Unkeyable
        known = self.of(kind), self.of(_called(kind))
        if is_dataclass(value):
            return known, tuple(self.of(getattr(value, item.name)) for item in fields(value))
        state = getattr(value, "__dict__", None)
        slots = [name for base in kind.__mro__ for name in _slots(base) if hasattr(value, name)]
        if (state is not None or slots) and not hasattr(kind, "__array__"):
            return known, self.of(state), tuple((name, self.of(getattr(value, name))) for name in slots)
        if kind.__hash__ is None or hasattr(kind, "__array__"):
            raise Unkeyable
        try:
            hash(value)
        except TypeError:
            raise Unkeyable from None
        return kind, value


def _called(kind: type) -> Any:
    """What calling an instance runs."""
    return next((vars(base)["__call__"] for base in kind.__mro__ if "__call__" in vars(base)), None)


def _slots(kind: type) -> tuple[str, ...]:
    names = vars(kind).get("__slots__", ())
    return (names,) if isinstance(names, str) else tuple(names)
