"""Forming an equation: the single entry point through which every operation is applied.

The current interpreter, a context variable, decides what applying means: evaluate immediately (the default) or append
an equation to the program being traced. Equations and errors get their locations here.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any, Protocol

import numpy as np

from palladio.base.errors import PalladioTypeError, attach
from palladio.base.locations import Location, capture
from palladio.ir.core import Atom, Eqn, Op, Var
from palladio.ir.evaluate import drive
from palladio.types import dtypes
from palladio.types.types import ArrayType, Type


class Interpreter(Protocol):
    """An interpreter of operations, on one kind of value."""

    def bind(self, op: Op, inputs: Sequence[Any], params: dict[str, Any]) -> Sequence[Any]:
        """Apply an operation and return its outputs."""
        ...


def form(op: Op, inputs: Sequence[Atom], params: dict[str, Any], location: Location | None) -> Eqn:
    """An equation with fresh output variables, its types inferred and its effects bound to variables."""
    with attach(location, f"forming {op.name}"):
        input_types = [atom.type for atom in inputs]
        output_types = op.type(*input_types, **params)
        effects = tuple(
            (effect.kind, None if effect.position is None else inputs[effect.position])
            for effect in op.effects_of(input_types, params)
        )
    return Eqn(op, tuple(inputs), tuple(Var(type) for type in output_types), params, effects, location)  # type: ignore[arg-type]


class Eager:
    """Applies operations to NumPy values immediately."""

    def bind(self, op: Op, inputs: Sequence[Any], params: dict[str, Any]) -> Sequence[Any]:
        """Evaluate the operation by its definition."""
        location = capture(3)
        with attach(location, f"evaluating {op.name}"), np.errstate(all="ignore"):
            values = [_concrete(value, op) for value in inputs]
            op.type(*map(_type_of_input, inputs, values), **params)
            outputs = op.eval(*values, **params)
            # No NumPy scalars, which are weak where they have 64 bits.
            return [np.asarray(output) for output in (drive(outputs) if op.control else outputs)]


def _type_of_input(given: Any, value: Any) -> Type:
    """The type of an input: of a reference outside of kernels its own, else that of the value."""
    return given.palladio_type if hasattr(given, "palladio_array") else ArrayType(value.shape, value.dtype)


def _concrete(value: Any, op: Op) -> Any:
    kind = dtypes.of_scalar(value)
    if kind is not None:
        return np.asarray(value, kind[0])[()]
    if isinstance(value, (np.ndarray, np.generic)):
        return value
    if hasattr(value, "palladio_array"):
        return value.palladio_array
    if hasattr(value, "palladio_leaked"):
        raise value.palladio_leaked()
    raise PalladioTypeError(f"an input of {op.name} must be an array", got=type(value).__name__)


EAGER: Interpreter = Eager()
current: ContextVar[Interpreter] = ContextVar("palladio_interpreter", default=EAGER)


def bind(op: Op, *inputs: Any, **params: Any) -> Sequence[Any]:
    """Apply an operation under the current interpreter.

    Args:
        inputs: traced values, NumPy arrays or scalars that already have the dtypes and shapes the operation wants.

    Returns:
        The outputs, a sequence.
    """
    return current.get().bind(op, inputs, params)


def type_of(value: Any) -> Type:
    """The type of a traced value, an array or a scalar.

    Raises:
        PalladioTypeError: for anything else.
    """
    found = getattr(value, "palladio_type", None)
    if found is not None:
        return found
    kind = dtypes.of_scalar(value)
    if kind is not None:
        return ArrayType((), kind[0])
    if isinstance(value, np.ndarray) and dtypes.is_supported(value.dtype):
        return ArrayType(value.shape, value.dtype)
    if not isinstance(value, np.ndarray) and hasattr(value, "shape") and hasattr(value, "dtype"):
        raise PalladioTypeError(
            "array functions compute with traced values, NumPy arrays and numbers",
            got=f"{type(value).__module__}.{type(value).__name__} of {value.dtype} {tuple(value.shape)}",
            hint="pass it to the kernel as an input; outside of kernels, np.asarray(value) converts it",
        )
    got = f"an array of {value.dtype}" if isinstance(value, np.ndarray) else f"{type(value).__name__}: {value!r:.60}"
    raise PalladioTypeError("neither an array nor a scalar of a dtype that Palladio has", got=got)
