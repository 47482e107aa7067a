"""Keys for what a call was prepared from, so that a kernel defined anew on every call is traced once.

Two functions have one key if they have the same code and would find the same values: defaults, captured variables,
and the global names that the code mentions. A changed constant gives another key, never a stale kernel.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Hashable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

_LARGEST_ARRAY = 1 << 16
_PLAIN = (
    type(None),
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    type,
    np.dtype,
    types.ModuleType,
    types.BuiltinFunctionType,
    np.ufunc,
)


class Unkeyable(Exception):
    """A value whose content cannot be known by a key; what depends on it is prepared on every call."""


@functools.cache
def _global_names(code: types.CodeType) -> tuple[str, ...]:
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names.update(_global_names(constant))
    return tuple(sorted(names))


def fingerprint(value: Any) -> Hashable:
    """A hashable key of a value.

    Raises:
        Unkeyable: if it has none.
    """
    return _Keys().of(value)


class _Keys:
    """One walk over a value; functions that are met again while being walked (recursion) stand for themselves."""

    def __init__(self) -> None:
        self.open: dict[int, int] = {}

    def of(self, value: Any) -> Hashable:
        if isinstance(value, _PLAIN):
            return type(value), value
        if id(value) in self.open:
            return "again", self.open[id(value)]
        self.open[id(value)] = len(self.open)
        try:
            return self.compound(value)
        finally:
            del self.open[id(value)]

    def compound(self, value: Any) -> Hashable:
        match value:
            case types.FunctionType():
                return self.function(value)
            case types.MethodType():
                return "method", self.of(value.__func__), self.of(value.__self__)
            case functools.partial():
                return "partial", self.of(value.func), self.of(value.args), self.of(value.keywords)
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

    def function(self, function: types.FunctionType) -> Hashable:
        library = (function.__module__ or "").split(".")[0] in ("palladio", "numpy")
        if library and function.__closure__ is None and "<locals>" not in function.__qualname__:
            return "library", function
        code = function.__code__
        cells = tuple(self.cell(cell) for cell in function.__closure__ or ())
        names = _global_names(code)
        found = tuple((name, self.of(function.__globals__[name])) for name in names if name in function.__globals__)
        return "function", code, self.of(function.__defaults__), self.of(function.__kwdefaults__), cells, found

    def cell(self, cell: types.CellType) -> Hashable:
        try:
            return self.of(cell.cell_contents)
        except ValueError:
            return "empty"

    def instance(self, value: Any) -> Hashable:
        if is_dataclass(value):
            return type(value), tuple(self.of(getattr(value, item.name)) for item in fields(value))
        if hasattr(value, "palladio_type"):
            raise Unkeyable
        state = getattr(value, "__dict__", None)
        if state is not None and not hasattr(value, "__array__"):
            return type(value), self.of(state)
        if type(value).__hash__ is None or hasattr(value, "__array__"):
            raise Unkeyable
        try:
            hash(value)
        except TypeError:
            raise Unkeyable from None
        return type(value), value
