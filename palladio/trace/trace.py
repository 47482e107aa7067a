"""Tracing: running a Python function on traced values and recording the equations it forms."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np

from palladio.array import convert
from palladio.array.on_card import Conditions
from palladio.base.dataclass import dataclass
from palladio.base.errors import PalladioError, PalladioTypeError, PalladioValueError
from palladio.base.locations import Location, capture, of_traceback
from palladio.ir.bind import EAGER, current, form
from palladio.ir.core import Atom, Eqn, Literal, Op, Program, Var
from palladio.ir.rewrite import substituted
from palladio.ops.arrays.shape import broadcast
from palladio.ops.control import scope
from palladio.types import dtypes
from palladio.types.types import ArrayType, RefType, Type

Refuse = Callable[[Type], PalladioError | None]


class Traced:
    """A value of a program being traced: a variable and the trace that it belongs to."""

    __slots__ = ("palladio_trace", "palladio_type", "palladio_var")

    def __init__(self, trace: Trace, var: Var) -> None:
        self.palladio_trace = trace
        self.palladio_var = var
        self.palladio_type: Any = var.type

    def palladio_leaked(self) -> PalladioTypeError:
        """The error for its use when its function is not being traced."""
        made = (eqn.location for eqn in self.palladio_trace.eqns if self.palladio_var in eqn.outputs)
        reference = isinstance(self.palladio_type, RefType)
        return PalladioTypeError(
            "a reference was used outside of the scope that it belongs to"
            if reference
            else "a traced value was used outside of the function that it belongs to",
            got=str(self.palladio_type),
            hint="a reference ends with its scope; return what it holds, ref[...], instead"
            if reference
            else "return it from the function, or write it to a reference",
            other=next(made, None),
            other_label="it was made here",
        )

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> NoReturn:
        raise PalladioTypeError(
            "a function of PyTorch does not compute with the values of a kernel",
            got=f"torch.{getattr(function, '__name__', function)}",
            hint="palladio.numpy, palladio.lax and palladio.nn have the functions for kernels; NumPy's work too",
        )


class Trace:
    """The interpreter that records equations. Values of an enclosing trace are captured as inputs.

    Args:
        parent: the enclosing trace.
        wrap: makes the traced value of a variable.
        refuse: for a function that must not capture everything, the error to raise, if any, for a captured type.
    """

    def __init__(self, parent: Trace | None, wrap: Callable[[Trace, Var], Any], refuse: Refuse | None = None) -> None:
        self.parent = parent
        self.wrap = wrap
        self.refuse = refuse
        self.eqns: list[Eqn] = []
        self.captured: dict[int, tuple[Any, Var]] = {}
        self.allocations: list[Var] = []
        self.generator: Any = None  # the state of the random numbers, where they are seeded in this function

    def allocate(self, type: RefType) -> Var:
        """The variable of new memory that lasts to the end of the function being traced."""
        self.allocations.append(Var(type))
        return self.allocations[-1]

    def bind(self, op: Op, inputs: Sequence[Any], params: dict[str, Any]) -> Sequence[Any]:
        """Form an equation and return the traced values of its outputs."""
        eqn = form(op, [self.atom(value) for value in inputs], params, capture(3))
        self.eqns.append(eqn)
        outputs = [self.wrap(self, var) for var in eqn.outputs]
        if op.nonnegative_if is not None and op.nonnegative_if(map(convert.is_nonnegative, inputs)):
            convert.mark_nonnegative(*outputs)
        return outputs

    def atom(self, value: Any) -> Atom:
        """The variable or literal that represents a value in this trace."""
        if isinstance(value, Traced):
            if value.palladio_trace is self:
                return value.palladio_var
            if not self.encloses(value.palladio_trace):
                raise value.palladio_leaked()
            return self.capture(value, value.palladio_type)
        kind = dtypes.of_scalar(value)
        if kind is not None:
            return _literal(value, kind[0])
        if getattr(value, "palladio_array", None) is not None:  # a reference outside of kernels
            return self.capture(value, value.palladio_type)
        if isinstance(value, np.ndarray) and dtypes.is_supported(value.dtype):
            if value.ndim == 0:
                return Literal(value, value.dtype)
            kind = ArrayType(value.shape, value.dtype)
            if value.size == 1 and self.refusal(value, kind) is not None:
                return self.spread(value)
            return self.capture(value, kind)
        raise PalladioTypeError("neither an array nor a scalar", got=f"{type(value).__name__}: {value!r:.60}")

    def encloses(self, other: Trace) -> bool:
        """True if `other` is a trace around this one."""
        trace = self.parent
        while trace is not None:
            if trace is other:
                return True
            trace = trace.parent
        return False

    def capture(self, value: Any, type: Type) -> Var:
        """The input for a captured value of an enclosing trace, or for a constant array."""
        refusal = self.refusal(value, type)
        if refusal is not None:
            raise refusal
        found = self.captured.get(id(value))
        if found is None:
            hint = value.palladio_var.hint if isinstance(value, Traced) else ""
            found = self.captured[id(value)] = (value, Var(type, hint))
        return found[1]

    def refusal(self, value: Any, type: Type) -> PalladioError | None:
        """The error of the innermost function between this trace and the value's that must not capture the type."""
        trace: Trace | None = self
        while trace is not None and trace is not getattr(value, "palladio_trace", None):
            refusal = None if trace.refuse is None else trace.refuse(type)
            if refusal is not None:
                return refusal
            trace = trace.parent
        return None

    def spread(self, value: np.ndarray) -> Var:
        """A constant array of equal elements, broadcast from the scalar."""
        params = {"shape": value.shape, "axes": ()}
        eqn = form(broadcast, [Literal(value.item(), value.dtype)], params, capture(4))
        self.eqns.append(eqn)
        return eqn.outputs[0]


def _literal(value: Any, dtype: Any) -> Literal:
    if dtype == dtypes.INT32 and not -(2**31) <= value < 2**31:
        raise PalladioValueError("a Python integer alone is an int32, which cannot hold this one", got=value)
    return Literal(value, dtype)


@dataclass(frozen=True)
class Staged:
    """A traced function: its program, the values it captured (its last inputs, in order), and whether each output is
    weak.
    """

    program: Program
    captured: tuple[Any, ...]
    weak: tuple[bool, ...]


NOT_TRACED = Conditions(chosen=((current, EAGER),))
"""The conditions in which nothing is being traced."""


def current_trace() -> Trace | None:
    """The innermost current trace, if any."""
    interpreter = current.get()
    return interpreter if isinstance(interpreter, Trace) else None


def require_trace(name: str) -> None:
    """Refuse a call outside of a kernel of a function that is meaningful only inside.

    Raises:
        PalladioValueError: if no kernel is being traced.
    """
    if current_trace() is None:
        raise PalladioValueError(f"{name} has a meaning only inside a kernel")


def is_live(value: Traced) -> bool:
    """True if the function that a traced value belongs to is being traced."""
    trace = current_trace()
    return trace is not None and (trace is value.palladio_trace or trace.encloses(value.palladio_trace))


def is_traced(value: Any) -> bool:
    """True if a value is traced: known only when the program runs."""
    return getattr(value, "palladio_type", None) is not None


@contextmanager
def tracing(trace: Trace) -> Iterator[None]:
    """Make a trace the current interpreter."""
    token = current.set(trace)
    try:
        yield
    finally:
        current.reset(token)


def located(error: PalladioError) -> PalladioError:
    """The error with the innermost user line of its traceback, unless it has a location already."""
    if error.location is None:
        error.location = of_traceback(error.__traceback__)
    return error


def stage(
    function: Callable[..., Sequence[Any]],
    types: Sequence[Type],
    wrap: Callable[[Trace, Var], Any],
    *,
    name: str,
    hints: Sequence[str] = (),
    refuse: Refuse | None = None,
    location: Location | None = None,
) -> Staged:
    """Trace a function of flat inputs to flat outputs.

    Args:
        types: the types of the inputs.
        wrap: makes the traced value of a variable.
        hints: names for the inputs.
        refuse: the error for a captured value of a type, for a function that must not capture any.
    """
    trace = Trace(current_trace(), wrap, refuse)
    named = [*hints, *[""] * (len(types) - len(hints))]
    inputs = [Var(type, hint) for type, hint in zip(types, named, strict=True)]
    with tracing(trace):
        try:
            outputs = function(*(wrap(trace, var) for var in inputs))
            atoms = [_output(trace, value) for value in outputs]
        except PalladioError as error:
            raise located(error)  # noqa: B904  the same error, now located
        except RecursionError as error:
            if trace.parent is not None:
                raise  # no stack is left to describe the error here
            raise PalladioValueError(
                f"Python's stack is full while {name} is traced",
                hint="about 50 nested when, loop and calls are fine; sys.setrecursionlimit(n) makes room for more",
                location=of_traceback(error.__traceback__),
            ) from None
    weak = tuple(_is_weak(value) for value in outputs)
    captured = list(trace.captured.values())
    eqns, results = _in_scope(trace, atoms, name) if trace.allocations else (tuple(trace.eqns), tuple(atoms))
    program = Program((*inputs, *(var for _, var in captured)), eqns, results, name, location)
    return Staged(program, tuple(value for value, _ in captured), weak)


def _in_scope(trace: Trace, outputs: Sequence[Atom], name: str) -> tuple[tuple[Eqn, ...], tuple[Atom, ...]]:
    """The equations and outputs of a trace that allocates memory, wrapped in the scope of that memory."""
    made = {*trace.allocations, *(var for eqn in trace.eqns for var in eqn.outputs)}
    used = (atom for eqn in trace.eqns for atom in eqn.inputs)
    outside = [atom for atom in dict.fromkeys((*used, *outputs)) if isinstance(atom, Var) and atom not in made]
    within = {var: Var(var.type, var.hint) for var in outside}
    body = Program(
        (*within.values(), *trace.allocations),
        tuple(substituted(eqn, within) for eqn in trace.eqns),
        tuple(within.get(atom, atom) for atom in outputs),  # type: ignore[call-overload]
        name,
    )
    allocations = tuple(var.type for var in trace.allocations)
    first = trace.eqns[0].location if trace.eqns else None
    eqn = form(scope, outside, {"body": body, "allocations": allocations}, first)
    return (eqn,), eqn.outputs


def _output(trace: Trace, value: Any) -> Atom:
    if isinstance(getattr(value, "palladio_type", None), RefType):
        raise PalladioTypeError(
            "no references are allowed to escape a scope",
            got=str(value.palladio_type),
            hint="return what it holds: ref[...]",
        )
    try:
        return trace.atom(value)
    except PalladioTypeError as error:
        error.argument = error.argument or "a result"
        raise


def _is_weak(value: Any) -> bool:
    kind = dtypes.of_scalar(value)
    return kind[1] if kind is not None else bool(getattr(value, "palladio_weak", False))
