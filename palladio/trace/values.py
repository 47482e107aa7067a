"""Traced arrays: they behave like NumPy arrays, and NumPy's functions work on them."""

from __future__ import annotations

import dis
import functools
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, NoReturn

import numpy as np

from palladio.array import FUNCTIONS, NAMESPACE
from palladio.array.convert import array_type
from palladio.array.foreign import library_of
from palladio.array.functions import bits, indexing
from palladio.base.calls import checked_call
from palladio.base.errors import PalladioAttributeError, PalladioNotImplementedError, PalladioTypeError
from palladio.ir.core import Var
from palladio.trace.reference import Ref
from palladio.trace.trace import Trace, Traced, is_live
from palladio.types.types import RefType, Shape


def wrap(trace: Trace, var: Var) -> Any:
    """The traced value of a variable: a reference or an array."""
    return Ref(trace, var) if isinstance(var.type, RefType) else Value(trace, var)


def _refuse(value: Value, what: str, hint: str) -> NoReturn:
    if not is_live(value):
        raise value.palladio_leaked()
    raise PalladioTypeError(f"a traced value has no {what} while the kernel is being traced", got=str(value), hint=hint)


class Value(Traced):
    """A traced array `dtype[shape]`.

    Operators, methods and NumPy functions form equations. `palladio_weak` means that the dtype yields in promotion,
    `palladio_nonnegative` that no element is negative.
    """

    __slots__ = ("palladio_nonnegative", "palladio_weak")
    __array_priority__ = 1000
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, trace: Trace, var: Var) -> None:
        super().__init__(trace, var)
        self.palladio_weak = False
        self.palladio_nonnegative = False

    @property
    def shape(self) -> Shape:
        """The shape."""
        return self.palladio_type.shape

    @property
    def dtype(self) -> Any:
        """The dtype."""
        return self.palladio_type.dtype

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self.palladio_type.ndim

    @property
    def size(self) -> int:
        """The number of elements."""
        return self.palladio_type.size

    @property
    def itemsize(self) -> int:
        """The bytes of an element."""
        return int(self.palladio_type.dtype.itemsize)

    @property
    def nbytes(self) -> int:
        """The bytes of all elements."""
        return self.size * self.itemsize

    @property
    def T(self) -> Any:
        """The array with its axes reversed."""
        return FUNCTIONS["transpose"](self)

    @property
    def mT(self) -> Any:
        """The array with its last two axes exchanged."""
        return FUNCTIONS["swapaxes"](self, -1, -2)

    @property
    def at(self) -> Any:
        """`x.at[i].set(v)`, `.add(v)`, …: a new array with elements replaced or combined."""
        return indexing.At(self)

    def __repr__(self) -> str:
        return f"traced {self.palladio_type}"

    def astype(self, dtype: Any) -> Any:
        """The values in another dtype."""
        return FUNCTIONS["astype"](self, dtype)

    def view(self, dtype: Any) -> Any:
        """The same bits as another dtype; the last axis grows or shrinks with the width."""
        return bits.view(self, dtype)

    def reshape(self, *shape: Any) -> Any:
        """The same elements in another shape."""
        return FUNCTIONS["reshape"](self, shape[0] if len(shape) == 1 else shape)

    def transpose(self, *axes: Any) -> Any:
        """The array with its axes in another order, reversed by default."""
        order = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes
        return FUNCTIONS["transpose"](self, order or None)

    def flatten(self) -> Any:
        """The elements as a vector."""
        return FUNCTIONS["ravel"](self)

    def __getitem__(self, key: Any) -> Any:
        return indexing.getitem(self, key)

    def __setitem__(self, key: Any, value: Any) -> NoReturn:
        raise PalladioTypeError(
            "a value cannot be changed in place",
            got=str(self),
            hint="use x.at[index].set(value), or write to a reference",
        )

    def __len__(self) -> int:
        if self.ndim == 0:
            raise PalladioTypeError("a scalar has no length", got=str(self))
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        return (self[index] for index in range(len(self)))

    def __bool__(self) -> NoReturn:  # noqa: PLE0304  it always raises
        _refuse(
            self,
            "truth value",
            "use palladio.when, lax.cond or np.where instead of if, and & | ~ instead of and or not",
        )

    def __int__(self) -> NoReturn:
        _refuse(
            self,
            "Python integer",
            "sizes and Python loops need static integers; use lax.fori_loop or palladio.ds(start, size)",
        )

    __index__ = __int__

    def __float__(self) -> NoReturn:
        _refuse(self, "Python float", "keep computing with the traced value")

    def __complex__(self) -> NoReturn:
        _refuse(self, "Python complex number", "keep computing with the traced value")

    def __format__(self, spec: str) -> str:
        if spec:
            _refuse(self, "formatted text", "use palladio.debug_print")
        return repr(self)

    def __round__(self, decimals: int = 0) -> Any:
        return FUNCTIONS["round"](self, decimals)

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        after, others = "read its elements after the kernel has run", "functions are in palladio.numpy and palladio.nn"
        hint = after if name in _CONCRETE else others
        raise PalladioAttributeError(f"a traced value has no attribute {name!r}", got=str(self), hint=hint)

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse(
            self,
            "NumPy array",
            "use NumPy's functions directly on the value; jnp.take(table, i) looks it up in a table",
        )

    def __array_namespace__(self, api_version: str | None = None) -> Any:
        return NAMESPACE

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        # `t += traced` on a NumPy array gives the name `t` a new value, as for the arrays of JAX.
        out = options.get("out", ())
        if len(out) == 1 and out[0] is inputs[0] and _is_operator(sys._getframe(1)):
            del options["out"]
        name = (
            ufunc.__name__
            if method == "__call__"
            else _REDUCTIONS.get((ufunc.__name__, method), f"{ufunc.__name__}.{method}")
        )
        return _function(name)(*inputs, **options)

    def __array_function__(self, function: Callable[..., Any], types: Any, args: Any, kwargs: Any) -> Any:
        home = function.__module__.removeprefix("numpy").removeprefix(".")
        known = function.__name__ in FUNCTIONS or not home
        return _function(function.__name__ if known else f"{home}.{function.__name__}")(*args, **kwargs)


_BINARY_OP = dis.opmap["BINARY_OP"]
_FIRST_IN_PLACE = 13
"""The arguments of CPython's instruction from which on it is an in-place operator (`NB_INPLACE_ADD`, opcode.h)."""


def _is_operator(frame: FrameType) -> bool:
    """True if a frame is executing an in-place operator, not a call like `np.add(x, y, out=x)`."""
    code, at = frame.f_code.co_code, frame.f_lasti
    return code[at] == _BINARY_OP and code[at + 1] >= _FIRST_IN_PLACE


_CONCRETE = ("data", "item", "tolist", "tobytes", "tofile", "numpy")
_REDUCTIONS = {
    ("add", "reduce"): "sum",
    ("multiply", "reduce"): "prod",
    ("maximum", "reduce"): "max",
    ("minimum", "reduce"): "min",
    ("logical_and", "reduce"): "all",
    ("logical_or", "reduce"): "any",
    ("add", "accumulate"): "cumsum",
    ("multiply", "accumulate"): "cumprod",
    ("add", "outer"): "add.outer",
}


@functools.cache
def _function(name: str) -> Callable[..., Any]:
    function = FUNCTIONS.get(name)
    if function is None:
        raise PalladioNotImplementedError(
            f"np.{name} has no meaning on a traced value", hint="palladio.numpy lists the functions that have"
        )
    return checked_call(function)


def _binary(name: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    def forward(self: Value, other: Any) -> Any:
        return FUNCTIONS[name](self, other) if _is_operand(other, name) else NotImplemented

    def backward(self: Value, other: Any) -> Any:
        return FUNCTIONS[name](other, self) if _is_operand(other, name) else NotImplemented

    return forward, backward


def _is_operand(other: Any, name: str) -> bool:
    """True if traced values compute with `other`; else the operators of `other` may handle traced values.

    Raises:
        PalladioTypeError: for a value without such operators.
    """
    if isinstance(other, (Traced, np.ndarray, np.generic, int, float, bool)):
        return True
    wrong = (complex, list, tuple) if name in ("equal", "not_equal") else (complex, list, tuple, str, dict, type(None))
    if isinstance(other, wrong):
        raise PalladioTypeError(
            "traced values compute with arrays and real numbers",
            argument=name,
            got=f"{type(other).__name__}: {other!r:.60}",
        )
    if library_of(other) != "numpy":
        array_type(other)  # refuses it
    return False


_OPERATORS = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "truediv": "true_divide",
    "floordiv": "floor_divide",
    "mod": "remainder",
    "divmod": "divmod",
    "pow": "power",
    "matmul": "matmul",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
    "lshift": "left_shift",
    "rshift": "right_shift",
}
_COMPARISONS = {
    "eq": "equal",
    "ne": "not_equal",
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
}
_METHODS = (
    "all",
    "any",
    "argmax",
    "argmin",
    "argsort",
    "clip",
    "copy",
    "cumprod",
    "cumsum",
    "diagonal",
    "dot",
    "max",
    "mean",
    "min",
    "prod",
    "ptp",
    "ravel",
    "repeat",
    "round",
    "searchsorted",
    "sort",
    "squeeze",
    "std",
    "sum",
    "swapaxes",
    "take",
    "trace",
    "var",
)
_UNARY = {"neg": "negative", "pos": "positive", "abs": "abs", "invert": "invert"}


def _method(name: str) -> Callable[..., Any]:
    def method(self: Value, *args: Any, **kwargs: Any) -> Any:
        return _function(name)(self, *args, **kwargs)

    method.__name__ = name
    method.__doc__ = f"`palladio.numpy.{name}` of this array."
    return method


for _name, _target in _OPERATORS.items():
    _forward, _backward = _binary(_target)
    setattr(Value, f"__{_name}__", _forward)
    setattr(Value, f"__r{_name}__", _backward)
for _name, _target in _COMPARISONS.items():
    setattr(Value, f"__{_name}__", _binary(_target)[0])
for _name, _target in _UNARY.items():
    setattr(Value, f"__{_name}__", _method(_target))
for _name in _METHODS:
    setattr(Value, _name, _method(_name))
