"""Keys of the values that a prepared call depends on, so that a kernel redefined on every call is traced once.

Two functions have equal keys if they have the same code and would read the same values: defaults, captured variables,
the globals that the code reads, and the attributes of modules and classes that it mentions. A changed constant gives a
different key, never a stale kernel. If the code reads only the shape and similar attributes of an array, these are its
key; if it reads only fields of an object, those are. Of an installed library, the plain values (numbers, strings and
small collections of them) count that are globals of the called functions, a few functions deep (`settings`).

Walking over all this costs more than a small kernel. A walk therefore records every mutable location and the objects
there; as long as each location still has the identical objects, the key of the last walk stays valid.
"""

from __future__ import annotations

import functools
import types
from collections import ChainMap
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import fields, is_dataclass
from enum import Enum
from itertools import repeat
from operator import attrgetter, is_
from typing import Any, NamedTuple
from weakref import ReferenceType

import numpy as np

from palladio.array.foreign import library_of, to_numpy
from palladio.base.errors import PalladioError
from palladio.driver.captures import Attributes, Reads, reads
from palladio.driver.packages import is_fixed, is_installed, package_of

_LARGEST_ARRAY = 1 << 16
_PLAIN = (type(None), bool, int, str, bytes, np.dtype, types.BuiltinFunctionType, np.ufunc)
_DESCRIBED = frozenset(
    ("shape", "dtype", "ndim", "size", "strides", "itemsize", "nbytes", "stride", "dim", "numel", "element_size")
)
"""Attributes of arrays and tensors that do not depend on the content."""
_STATELESS = frozenset((*_PLAIN, float, complex, tuple, list, dict, set, frozenset, np.ndarray))
_CONTAINERS = (tuple, list, set, frozenset, Mapping, np.ndarray, functools.partial)
_OWNERS = (types.ModuleType, type, type(None))
_WITHOUT_FIELDS = (*_PLAIN, *_OWNERS, *_CONTAINERS, float, complex, types.FunctionType, types.MethodType, property)
"""Values that are more than their fields; each kind has a special key."""
_CHANGING = (ContextVar, ReferenceType)
_LARGEST_SETTING = 64
"""The most items of a collection that counts as a setting of an installed library."""
_MOST_INSTALLED = 64
"""The most functions and modules of installed libraries that one walk visits: each is checked on every call."""


class Unkeyable(Exception):
    """A value that no key identifies; calls that depend on it are prepared each time.

    Attributes:
        value: a description of it.
        capture: the name by which the function named `function` reads it; None before that is known.
    """

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = _description(value)
        self.capture: str | None = None
        self.function = ""


def _description(value: Any) -> str:
    """The description of a value in a warning: `a tensor of shape (512, 512)`."""
    if _is_array(value):
        return f"{'a tensor' if library_of(value) == 'torch' else 'an array'} of shape {tuple(value.shape)}"
    return f"an object of {type(value).__name__}"


def fingerprint(value: Any) -> Hashable:
    """A hashable key of a value.

    Raises:
        Unkeyable: if it has no key.
    """
    return _walked(value)[0]


def _walked(value: Any) -> tuple[Hashable, _Keys]:
    """The key of a value, and the walk that found it."""
    known: frozenset[str] = frozenset()
    while True:
        walk = _Keys(known)
        key = walk.of(value)
        if not walk.has_class or walk.every <= known:
            return key, walk
        # The method that runs on an object is unknown: a class's key has every attribute that any code mentions.
        known |= walk.every


class Hashed:
    """A key whose hash is computed once."""

    __slots__ = ("hash", "key")

    def __init__(self, key: Hashable) -> None:
        self.key = key
        self.hash = hash(key)

    def __reduce__(self) -> tuple[Any, ...]:
        return Hashed, (self.key,)  # another process hashes otherwise

    def __hash__(self) -> int:
        return self.hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Hashed) and self.hash == other.hash and self.key == other.key)


class _Last(NamedTuple):
    """The last walk: its objects, its key, and each location that it read, as a predicate with its arguments."""

    parts: tuple[Any, ...]
    key: Hashed
    places: list[tuple[Callable[..., bool], tuple[Any, ...]]]


class Remembered:
    """A fingerprint that is requested repeatedly. Safe for use from many threads."""

    def __init__(self) -> None:
        self._last: _Last | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Remembered, ()  # remembered objects belong to this process

    def fingerprint(self, *parts: Any) -> Hashable:
        """A hashable key of the parts, without a walk if nothing has changed since the last one.

        Raises:
            Unkeyable: if they have no key.
        """
        last = self._last
        if last is not None and _same(last.parts, parts) and _unchanged(last.places):
            return last.key
        key, walk = _walked(parts)
        self._last = last = _Last(parts, Hashed(key), walk.places)
        return last.key

    def holds(self, key: Hashable, parts: Sequence[Any]) -> bool:
        """True if the last walk gave this key, the identical object, and nothing has changed since."""
        last = self._last
        return last is not None and last.key is key and _same(last.parts, parts) and _unchanged(last.places)


def _unchanged(places: Iterable[tuple[Callable[..., bool], tuple[Any, ...]]]) -> bool:
    try:
        for holds, found in places:
            if not holds(*found):
                return False
    except Exception:  # a value that can no longer be read has changed
        return False
    return True


_MISSING = object()


def _same(container: Any, items: Sequence[Any]) -> bool:
    """True if a container still has the identical items, in this order."""
    return len(container) == len(items) and all(map(is_, container, items))


def _same_mapping(mapping: Mapping[Any, Any], names: Sequence[Any], items: Sequence[Any]) -> bool:
    return _same(mapping, names) and all(map(is_, mapping.values(), items))


def _is_empty(mapping: Mapping[Any, Any]) -> bool:
    return len(mapping) == 0


def _names_hold(namespace: Mapping[str, Any], names: Sequence[str], found: Sequence[Any]) -> bool:
    """True if these names still refer to the identical objects."""
    return all(map(is_, map(namespace.get, names, repeat(_MISSING)), found))


def _attributes_are(owner: Any, names: Sequence[str], found: Sequence[Any]) -> bool:
    for name, item in zip(names, found):  # noqa: SIM110  half the time of a generator
        if getattr(owner, name, _MISSING) is not item:
            return False
    return True


def _read(read: Callable[[Any], tuple[Any, ...]], owner: Any, found: Sequence[Any]) -> bool:
    """True if several attributes are still the identical objects."""
    return all(map(is_, read(owner), found))


def _contents(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return _MISSING


def _cell_holds(cell: types.CellType, found: Any) -> bool:
    return _contents(cell) is found


def _is_array(value: Any) -> bool:
    """True if a value is an array of NumPy, PyTorch or JAX."""
    return isinstance(value, np.ndarray) or (
        hasattr(value, "shape") and hasattr(value, "dtype") and library_of(value) != "numpy"
    )


def _layout(array: Any) -> tuple[Any, ...]:
    """An array without its content: class, shape, dtype and strides."""
    strides = array.stride() if hasattr(array, "stride") else getattr(array, "strides", None)
    return type(array), tuple(array.shape), str(array.dtype), strides


def _layout_is(array: Any, layout: tuple[Any, ...]) -> bool:
    return _layout(array) == layout


def _content(array: Any) -> bytes:
    """The elements of a small array.

    Raises:
        Unkeyable: if it is large, has objects, or is not in host memory.
    """
    try:
        values = array if isinstance(array, np.ndarray) else np.asarray(to_numpy(_detached(array), ""))
    except (PalladioError, RuntimeError, TypeError, ValueError):
        raise Unkeyable(array) from None
    if values.nbytes > _LARGEST_ARRAY or values.dtype.hasobject:
        raise Unkeyable(array)
    return values.tobytes()


def _detached(array: Any) -> Any:
    return array.detach() if hasattr(array, "detach") else array


def _content_is(array: Any, layout: tuple[Any, ...], content: bytes) -> bool:
    return _layout(array) == layout and _content(array) == content


def _is_setting(value: Any, depth: int = 2) -> bool:
    """True if a value is a number, a string, a small array or a small collection of these."""
    kind = type(value)
    if kind in (list, tuple, set, frozenset, dict):
        items = [*value, *value.values()] if kind is dict else value
        return depth > 0 and len(items) <= _LARGEST_SETTING and all(_is_setting(item, depth - 1) for item in items)
    if kind is np.ndarray:
        return value.size <= _LARGEST_SETTING and not value.dtype.hasobject
    return kind in (type(None), bool, int, float, complex, str, bytes) or isinstance(
        value, (np.generic, np.dtype, Enum)
    )


def _is_part(value: Any, package: str) -> bool:
    """True for a module of a package, and for a function of it without captured variables."""
    if isinstance(value, types.FunctionType):
        return value.__closure__ is None and package_of(value.__module__) == package
    return isinstance(value, types.ModuleType) and package_of(value.__name__) == package


class _Keys:
    """One walk over a value. A repeated object, inside itself (recursion) or elsewhere, is replaced by its number.

    Fields:
        met: the number of each visited object. A module is visited once for each set of names, since only its
            attributes with those names are in the key. The objects are kept alive, so that their ids stay unique.
        names: the names that the code of the function being walked mentions.
        every: the names that any code mentioned; `known` are those of an earlier walk.
        has_class: whether a user's class was met.
        home: the package of the first function. Other installed packages are assumed not to change.
        installed: the number of visited functions and modules of installed libraries.
        places: predicates on the mutable locations that were read, true as long as they have not changed.
    """

    def __init__(self, known: frozenset[str]) -> None:
        self.met: dict[Hashable, tuple[int, Any]] = {}
        self.names: tuple[str, ...] = ()
        self.every: set[str] = set()
        self.known = tuple(sorted(known))
        self.has_class = False
        self.home: str | None = None
        self.installed = 0
        self.places: list[tuple[Callable[..., bool], tuple[Any, ...]]] = []

    def items(self, container: Any) -> tuple[Any, ...]:
        """The items of a mutable container."""
        found = tuple(container)
        self.places.append((_same, (container, found)))
        return found

    def attributes(self, owner: Any, *names: str) -> tuple[Any, ...]:
        """Attributes that may be reassigned, with `_MISSING` for absent ones."""
        found = tuple(getattr(owner, name, _MISSING) for name in names)
        if len(names) > 1 and not any(item is _MISSING for item in found):
            self.places.append((_read, (attrgetter(*names), owner, found)))
        else:
            self.places.append((_attributes_are, (owner, names, found)))
        return found

    def is_known(self, module: str | None) -> bool:
        package = package_of(module)
        return is_fixed(package) or (package != self.home and is_installed(package))

    def of(self, value: Any) -> Hashable:
        kind = type(value)
        if isinstance(value, Enum):
            return kind, value.name
        if isinstance(value, types.BuiltinFunctionType) and not isinstance(value.__self__, _OWNERS):
            return "method", value.__name__, self.of(value.__self__)
        if isinstance(value, _PLAIN):
            return self.with_state(value, (kind, value))
        if isinstance(value, (float, complex)):
            return self.with_state(value, (kind, repr(value)))  # 0.0 equals -0.0, and NaN nothing
        if (isinstance(value, type) and self.is_known(value.__module__)) or (
            isinstance(value, types.ModuleType) and is_fixed(package_of(value.__name__))
        ):
            return "known", value
        token = id(value), self.names if isinstance(value, types.ModuleType) else ()
        met = self.met.get(token)
        if met is not None:
            return "again", met[0]
        self.met[token] = len(self.met), value
        key = self.compound(value)
        return self.with_state(value, key) if isinstance(value, _CONTAINERS) else key

    def with_state(self, value: Any, key: Hashable) -> Hashable:
        """The key of a number, a string or a container with its instance dictionary."""
        if type(value) in _STATELESS or not hasattr(value, "__dict__"):
            return key
        (state,) = self.attributes(value, "__dict__")
        return key, self.of(state)

    def compound(self, value: Any) -> Hashable:
        match value:
            case types.FunctionType():
                return self.function(value)
            case Remembered():
                return "remembered"  # its content follows from values that the walk visits anyway
            case types.MethodType():
                code = getattr(value.__func__, "__code__", None)
                first = None if code is None else reads(code).first
                return "method", self.of(value.__func__), self.read(value.__self__, first)
            case functools.partial():
                return "partial", *map(self.of, self.attributes(value, "func", "args", "keywords"))
            case staticmethod() | classmethod():
                return type(value), self.of(value.__func__)
            case property():
                return "property", self.of(value.fget)
            case types.ModuleType() if self.is_known(value.__name__):
                return "module", value, self.settings(vars(value), self.names, self.names, package_of(value.__name__))
            case types.ModuleType():
                return "module", value, self.mentioned(vars(value), self.names, value.__name__)
            case type():
                (bases,) = self.attributes(value, "__mro__")
                own = [vars(base) for base in bases if not self.is_known(base.__module__)]
                self.has_class = True
                return "class", value, self.mentioned(ChainMap(*own), self.known, value.__qualname__)  # type: ignore[arg-type]
            case tuple():
                return type(value), tuple(map(self.of, value))
            case list():
                return type(value), tuple(map(self.of, self.items(value)))
            case set() | frozenset():
                return type(value), frozenset(map(self.of, self.items(value)))
            case Mapping():
                names, items = tuple(value), tuple(value.values())
                self.places.append((_same_mapping, (value, names, items)) if names else (_is_empty, (value,)))
                return type(value), tuple((self.of(key), self.of(item)) for key, item in zip(names, items))
            case slice():
                return "slice", self.of((value.start, value.stop, value.step))
            case np.generic():
                return "scalar", value.dtype, value.tobytes()
        if _is_array(value):
            found = _layout(value), _content(value)
            self.places.append((_content_is, (value, *found)))
            return "array", *found
        return self.instance(value)

    def captured(self, name: str, value: Any, read: Attributes, owner: str) -> Hashable:
        """The key of a variable of a function, module or class; the code reads only these attributes."""
        try:
            return self.read(value, read)
        except Unkeyable as error:
            if error.capture is None:
                error.capture, error.function = name, owner
            raise

    def read(self, value: Any, attributes: Attributes) -> Hashable:
        """The key of a value if only these attributes are read."""
        if attributes is None or not attributes:
            return self.of(value)
        if _is_array(value):
            if not attributes <= _DESCRIBED:
                return self.of(value)
            layout = _layout(value)
            self.places.append((_layout_is, (value, layout)))
            return "layout", layout
        if not self.has_fields(value, attributes):
            return self.of(value)
        names = tuple(sorted(attributes))
        return "fields", type(value), names, tuple(map(self.of, self.attributes(value, *names)))

    @staticmethod
    def has_fields(value: Any, names: Attributes) -> bool:
        """True if reading these attributes gives fields of an object and runs no code of its class."""
        kind = type(value)
        if isinstance(value, _WITHOUT_FIELDS) or hasattr(kind, "palladio_type"):
            return False
        plain = kind.__getattribute__ is object.__getattribute__
        fields = getattr(value, "__dict__", None)
        if names is None or not plain or type(fields) is not dict or not names <= fields.keys():
            return False
        return not any(hasattr(getattr(kind, name, None), "__get__") for name in names)

    def mentioned(
        self, namespace: Mapping[str, Any], names: tuple[str, ...], owner: str, read: Reads | None = None
    ) -> Hashable:
        """The values of a namespace that the code mentions."""
        found = tuple(namespace.get(name, _MISSING) for name in names)
        if names:
            self.places.append((_names_hold, (namespace, names, found)))
        return tuple(
            (name, self.captured(name, item, None if read is None else read.variables.get(name), owner))
            for name, item in zip(names, found)
            if item is not _MISSING
        )

    def function(self, function: types.FunctionType) -> Hashable:
        package = package_of(function.__module__)
        if self.home is None and not is_fixed(package):
            self.home = package
        inner = function.__closure__ is not None or "<locals>" in function.__qualname__
        if self.is_known(function.__module__) and not inner:
            if is_fixed(package):
                return "known", function
            read = reads(function.__code__)
            names = set(read.globals) - read.stored
            return "known", function, self.settings(function.__globals__, sorted(names), read.attributes, package)
        code, *state = self.attributes(function, "__code__", "__defaults__", "__kwdefaults__", "__dict__")
        found, owner = reads(code), function.__name__
        outside, self.names = self.names, found.attributes
        self.every.update(found.attributes)
        try:
            cells = tuple(
                self.cell(cell, name, found.variables.get(name, frozenset()), owner)
                for cell, name in zip(function.__closure__ or (), code.co_freevars)
            )
            defaults = tuple(map(self.of, state))
            return "function", code, defaults, cells, self.mentioned(function.__globals__, found.globals, owner, found)
        finally:
            self.names = outside

    def settings(
        self, namespace: Mapping[str, Any], names: Iterable[str], attributes: tuple[str, ...], package: str
    ) -> Hashable:
        """The globals of an installed library that control its functions, as far as they are plain values.

        Visits functions of the same library, and the given attributes of its modules, but not its objects and
        classes.
        """
        if self.installed == _MOST_INSTALLED:
            return ()
        self.installed += 1
        found = {name: namespace[name] for name in names if name in namespace}
        found = {name: item for name, item in found.items() if _is_setting(item) or _is_part(item, package)}
        self.places.append((_names_hold, (namespace, tuple(found), tuple(found.values()))))
        outside, self.names = self.names, attributes
        try:
            return tuple((name, self.of(item)) for name, item in found.items())
        finally:
            self.names = outside

    def cell(self, cell: types.CellType, name: str, read: Attributes, owner: str) -> Hashable:
        found = _contents(cell)
        self.places.append((_cell_holds, (cell, found)))
        return "empty" if found is _MISSING else self.captured(name, found, read, owner)

    def instance(self, value: Any) -> Hashable:
        kind = type(value)
        if hasattr(kind, "palladio_array"):
            return "reference", value  # regardless of its content
        if hasattr(kind, "palladio_type"):
            raise Unkeyable(value)
        known = self.of(kind), self.of(self.called(kind))
        if is_dataclass(value):
            _, *content = self.attributes(value, "__class__", *(item.name for item in fields(value)))
            return known, tuple(map(self.of, content))
        slots = [name for base in kind.__mro__ for name in _slots(base)]
        _, state, *items = self.attributes(value, "__class__", "__dict__", *slots)
        filled = [(name, item) for name, item in zip(slots, items) if item is not _MISSING]
        if (state is not _MISSING or filled) and not hasattr(kind, "__array__"):
            own = None if state is _MISSING else self.of(state)
            return known, own, tuple((name, self.of(item)) for name, item in filled)
        # The value of an iterator, a context variable or a weak reference may change.
        if kind.__hash__ is None or hasattr(kind, "__array__") or hasattr(kind, "__next__") or kind in _CHANGING:
            raise Unkeyable(value)
        try:
            hash(value)
        except (TypeError, ValueError):
            raise Unkeyable(value) from None
        return kind, value

    def called(self, kind: type) -> Any:
        """The function that calling an instance runs."""
        for base in kind.__mro__:
            method = vars(base).get("__call__", _MISSING)
            if not self.is_known(base.__module__):
                self.places.append((_names_hold, (vars(base), ("__call__",), (method,))))
            if method is not _MISSING:
                return method
        return None


def _slots(kind: type) -> tuple[str, ...]:
    names = vars(kind).get("__slots__", ())
    return (names,) if isinstance(names, str) else tuple(names)
