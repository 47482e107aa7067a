"""`jax.Array` outside of kernels: a NumPy array with JAX's methods, promotion and immutability.

JAX uses 32 bits by default: its functions convert 64-bit NumPy arrays to 32 bits. So do these, until
`jax.config.update("jax_enable_x64", True)`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np

from palladio.array import FUNCTIONS
from palladio.array.functions.indexing import At, Update
from palladio.base.errors import PalladioTypeError
from palladio.compat import tree
from palladio.compat.products import with_products
from palladio.compat.shards import Shard, shards
from palladio.trace.trace import Traced, is_traced
from palladio.types import dtypes

_NARROW = {"float64": np.float32, "int64": np.int32, "uint64": np.uint32}
_METHODS = (
    *("all", "any", "argmax", "argmin", "argsort", "clip", "cumprod", "cumsum", "dot", "max", "mean", "min", "prod"),
    *("ptp", "repeat", "round", "searchsorted", "sort", "std", "sum", "take", "trace", "var"),
)
_IN_PLACE = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor", "lshift", "rshift")


class _Wide:
    """The setting `jax_enable_x64`."""

    on = False


@contextmanager
def enable_x64(new_val: bool = True) -> Iterator[None]:
    """64-bit dtypes within a block of code."""
    before, _Wide.on = _Wide.on, bool(new_val)
    try:
        yield
    finally:
        _Wide.on = before


def set_wide(on: bool) -> None:
    """64-bit dtypes from here on."""
    _Wide.on = bool(on)


def is_wide() -> bool:
    """True if 64-bit dtypes are on."""
    return _Wide.on


class _Kind(type):
    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, Traced) or type.__instancecheck__(cls, value)


class Array(np.ndarray, metaclass=_Kind):
    """The result of a function of JAX outside of kernels. Traced values are instances too."""

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        if any(is_traced(each) for each in inputs):
            return NotImplemented  # the traced value forms an equation
        inputs = tuple(plain(each) for each in inputs)
        function = FUNCTIONS.get(ufunc.__name__) if method == "__call__" and not options else None
        if function is None:
            return arrays(getattr(ufunc, method)(*inputs, **tree.map(plain, options)))
        return arrays(with_products(function, inputs, {}))

    def __getitem__(self, key: Any) -> Any:
        try:
            return super().__getitem__(key)
        except IndexError:
            return super().__getitem__(_moved_inside(key, self.shape))

    def __iter__(self) -> Iterator[Any]:
        if not self.ndim:
            raise PalladioTypeError("an array without axes has no elements to go through", got=str(self.dtype))
        return (self[n] for n in range(len(self)))

    def __array_function__(self, function: Any, kinds: Any, args: Any, kwargs: Any) -> Any:
        """NumPy functions take it as a NumPy array, and return one."""
        args, kwargs = tree.map(plain, (args, kwargs))
        return function(*args, **kwargs)

    def __setitem__(self, key: Any, value: Any) -> NoReturn:
        raise PalladioTypeError("an array of JAX cannot be changed in place", hint="x = x.at[index].set(value)")

    def astype(self, dtype: Any, *args: Any, **kwargs: Any) -> Any:
        """The values in another dtype."""
        kind = narrow_dtype(dtype)
        if args or kwargs or not dtypes.is_supported(np.dtype(kind)):
            return arrays(plain(self).astype(kind, *args, **kwargs))
        return returning_arrays(FUNCTIONS["asarray"])(self, np.dtype(kind))

    @property
    def at(self) -> Any:
        """`x.at[index].set(value)` and its kin: a new array."""
        return _HostAt(plain(self))

    def block_until_ready(self) -> Any:
        """The array itself: nothing is in flight."""
        return self

    @property
    def addressable_shards(self) -> list[Shard]:
        """The part on each device, of a result of `shard_map`; any other array lies whole on one."""
        placed = getattr(self, "palladio_shards", None)
        return [Shard(0, (slice(None),) * self.ndim, 0, self)] if placed is None else shards(self, *placed)

    @property
    def mT(self) -> Any:
        """The array with its last two axes exchanged."""
        return self.swapaxes(-1, -2)


class _HostAt(At):
    def __getitem__(self, key: Any) -> Any:
        positions = _positions(key)
        for _, each, extent in _indices(positions, self.array.shape):
            if np.ndim(each) == 0 and not -extent <= each < extent:
                return _Outside(self.array, _moved_inside(positions, self.array.shape))
        return _HostUpdate(self.array, positions)


def _indices(key: Any, shape: tuple[int, ...]) -> Iterator[tuple[int, Any, int]]:
    """The integers and integer arrays of an index: position in the index, value, and extent of the axis of each."""
    entries = key if isinstance(key, tuple) else (key,)
    taken = sum(each is not None and each is not ... for each in entries)
    axis = 0
    for n, each in enumerate(entries):
        kind = getattr(each, "dtype", None)
        known = dtypes.is_integer(kind) if kind is not None else isinstance(each, int) and not isinstance(each, bool)
        if known and not is_traced(each) and axis < len(shape):
            yield n, each, shape[axis]
        axis += len(shape) - taken if each is ... else each is not None


def _moved_inside(key: Any, shape: tuple[int, ...]) -> Any:
    """An index clamped to the array: integers outside become the nearest inside."""
    entries = list(key) if isinstance(key, tuple) else [key]
    for n, each, extent in _indices(key, shape):
        wide = np.asarray(each, np.int64)  # a narrow dtype need not have the extent
        entries[n] = np.clip(np.where(wide < 0, wide + extent, wide), 0, extent - 1)
    return tuple(entries) if isinstance(key, tuple) else entries[0]


def _positions(key: Any) -> Any:
    """An index with each mask replaced by the positions of its true elements, which are known here."""
    found: list[Any] = []
    for each in key if isinstance(key, tuple) else (key,):
        mask = isinstance(each, (np.ndarray, list)) and np.asarray(each).dtype == bool
        found += np.nonzero(np.asarray(each)) if mask else [each]
    return tuple(found) if isinstance(key, tuple) or len(found) > 1 else found[0]


class _HostUpdate(Update):
    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        return returning_arrays(found) if callable(found) and not name.startswith("_") else found


class _Outside(_HostUpdate):
    """`x.at[index]` for elements outside of the array: updates change nothing."""

    def _combined(self, kind: str, values: Any, mode: str | None, array: Any = None) -> Any:
        if mode == "clip":
            return super()._combined(kind, values, mode, array)
        return self.array if array is None else array

    def get(self, *, mode: str | None = None, fill_value: Any = None, **hints: Any) -> Any:
        """The nearest elements; with `mode` "fill" or "drop" the fill value for each."""
        nearest = super().get(mode=mode)
        if mode not in ("fill", "drop"):
            return nearest
        filler = Update(np.zeros(1, self.array.dtype), np.array([1])).get(mode=mode, fill_value=fill_value)
        return np.full_like(nearest, filler[0])


def plain(value: Any) -> Any:
    """The NumPy array of an array of JAX; anything else as it is."""
    return np.asarray(value) if type(value) is Array else value


def narrow_dtype(dtype: Any) -> Any:
    """A dtype with 32 bits instead of 64, if 64-bit dtypes are off."""
    if _Wide.on or dtype is None:
        return dtype
    try:
        return _NARROW.get(np.dtype(dtype).name, dtype)
    except TypeError:
        return dtype


def taken(leaf: Any) -> Any:
    """An argument as a function of JAX takes it."""
    if isinstance(leaf, np.ndarray):
        leaf = plain(leaf)
        return leaf if _Wide.on or leaf.dtype.name not in _NARROW else leaf.astype(_NARROW[leaf.dtype.name])
    if isinstance(leaf, (np.dtype, type)):
        return narrow_dtype(leaf)
    return leaf


def arrays(result: Any) -> Any:
    """A tree of results with arrays of JAX instead of NumPy's."""
    return tree.map(_array, result)


def _array(leaf: Any) -> Any:
    if isinstance(leaf, (np.ndarray, np.generic)) and dtypes.is_supported(leaf.dtype):
        return np.asarray(leaf).view(Array)
    return leaf


def returning_arrays(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of arrays that takes and returns arrays as JAX does."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = tree.map(taken, (args, kwargs))
        return arrays(with_products(function, args, kwargs))

    return call


def _method(name: str) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return returning_arrays(FUNCTIONS[name])(self, *args, **kwargs)

    method.__name__, method.__doc__ = name, f"`jnp.{name}` of this array."
    return method


for _name in _METHODS:
    setattr(Array, _name, _method(_name))
for _name in _IN_PLACE:
    # `x += 1` gives the name x a new array; others that hold the old one keep it.
    setattr(Array, f"__i{_name}__", getattr(np.ndarray, f"__{_name}__"))
