"""`jax.vjp`, `jax.jvp`, `jax.grad`, `jax.custom_vjp` and `jax.custom_jvp`: derivatives of functions outside of kernels.

A function is traced, and its equations are traversed from the last to the first. A call of a `custom_vjp` function is
one step of the traversal, whatever equations it formed: its own rule gives the gradients of its arguments. So a kernel
is differentiated by the backward kernels that its library declares. One without them is an error.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field
from typing import Any

import numpy as np

import palladio.numpy as jnp
from palladio.base import trees
from palladio.base.dataclass import dataclass
from palladio.base.errors import PalladioNotImplementedError, PalladioTypeError, PalladioValueError, at_call
from palladio.call.jit import jit as staged
from palladio.call.vmap import over_slices as by_loop
from palladio.call.vmap import vmap as over_slices
from palladio.compat.arrays import arrays, narrow_dtype, returning_arrays
from palladio.compat.derivatives import RULES, fitted
from palladio.compat.kernels import as_function
from palladio.ir.bind import bind
from palladio.ir.core import Eqn, Var
from palladio.ops.arrays.shape import reshape
from palladio.ops.grid import grid_call
from palladio.trace.control import scan
from palladio.trace.functions import function_name
from palladio.trace.trace import Trace, Traced, current_trace, is_traced
from palladio.types import dtypes


class _NoDerivative(PalladioNotImplementedError, ValueError):
    """An operation without a derivative. It is a `ValueError` too, which JAX raises for a kernel."""


@dataclass
class _Call:
    """A call of a `custom_vjp` function: the equations `start` to `stop` of the trace, its arguments, its results."""

    start: int
    stop: int
    args: list[Any]
    results: list[Any]
    pull: Callable[[list[Any]], Sequence[Any]]


@dataclass
class _Tape:
    """The equations to differentiate: those of a trace from `start` on, and the calls with custom rules.

    Fields:
        kernels: whether a kernel without a rule has a derivative, that of the arrays it computes.
    """

    trace: Trace
    start: int
    kernels: bool = False
    calls: list[_Call] = field(default_factory=list)
    values: dict[Var, Any] = field(default_factory=dict)

    def value(self, atom: Any) -> Any:
        """The traced value of a variable, or a literal."""
        if not isinstance(atom, Var):
            return np.asarray(atom.value, atom.type.dtype)
        if atom not in self.values:
            self.values[atom] = self.trace.wrap(self.trace, atom)
        return self.values[atom]

    def variable(self, value: Any) -> Var | None:
        """The variable of a value of this trace; None for any other, which is constant."""
        own = isinstance(value, Traced) and value.palladio_trace is self.trace
        return value.palladio_var if own else None


_tape: ContextVar[_Tape | None] = ContextVar("palladio_tape", default=None)


@contextmanager
def _recording(tape: _Tape | None) -> Iterator[None]:
    token = _tape.set(tape)
    try:
        yield
    finally:
        _tape.reset(token)


class custom_vjp:
    """A function with a custom gradient rule for `vjp`, `jvp` and `grad`. Plain calls compute the function."""

    def __init__(
        self,
        fun: Callable[..., Any],
        nondiff_argnums: Sequence[int] = (),
        nondiff_argnames: Sequence[str] = (),
        **hints: Any,
    ) -> None:
        functools.update_wrapper(self, fun)
        self.fun = fun
        self.rules: tuple[Callable[..., Any], Callable[..., Any]] | None = None
        names = list(inspect.signature(fun).parameters) if nondiff_argnames else []
        self.nondiff_argnums = tuple(sorted({*nondiff_argnums, *map(names.index, nondiff_argnames)}))

    def defvjp(self, fwd: Callable[..., Any], bwd: Callable[..., Any], **hints: Any) -> None:
        """Set the function that also returns residuals, and the one that takes them and the output's gradient."""
        self.rules = (fwd, bwd)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        tape = _tape.get()
        if self.rules is None or tape is None or tape.trace is not current_trace():
            return self.fun(*args, **kwargs)
        forward, backward = self.rules
        bound = inspect.signature(self.fun).bind(*args, **kwargs)
        bound.apply_defaults()
        given = [*bound.args, *bound.kwargs.values()]
        fixed = [given[n] for n in self.nondiff_argnums]
        by = [each for n, each in enumerate(given) if n not in self.nondiff_argnums]
        start = len(tape.trace.eqns)
        with _recording(None):
            result, residuals = forward(*given)
        leaves, structure = trees.flatten(result)
        leaves = [_renamed(leaf) for leaf in leaves]

        def pull(gradients: list[Any]) -> Sequence[Any]:
            found = backward(*fixed, residuals, trees.unflatten(structure, gradients))
            return _spread(found, by, function_name(self.fun))

        tape.calls.append(_Call(start, len(tape.trace.eqns), trees.flatten(by)[0], leaves, pull))
        return trees.unflatten(structure, leaves)


class custom_jvp(custom_vjp):
    """A function with a custom forward derivative, whose gradient by the tangents gives those of the function."""

    def defjvp(self, jvp: Callable[..., Any], **hints: Any) -> Callable[..., Any]:
        """Set the function of primals and tangents that returns the result and its derivative along the tangents."""

        def backward(*given: Any) -> Any:
            *fixed, args, gradient = given
            primals = tuple(each for n, each in enumerate(args) if n not in self.nondiff_argnums)
            leaves, structure = trees.flatten(primals)
            tangents = trees.unflatten(structure, [jnp.zeros_like(leaf) for leaf in leaves])
            return _pulled(lambda *along: jvp(*fixed, primals, along)[1], tangents)[2](gradient)

        self.defvjp(lambda *args: (self.fun(*args), args), backward)
        return jvp

    def defjvps(self, *jvps: Callable[..., Any] | None) -> None:
        """Set the derivative by each argument, a function of its tangent, the result and all arguments; None for 0."""

        def jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
            result = self.fun(*primals)
            parts = [by(t, result, *primals) for by, t in zip(jvps, tangents, strict=True) if by is not None]
            leaves, structure = trees.flatten(result)
            shares = zip(*(trees.flatten(part)[0] for part in parts), strict=True) if parts else ()
            total = [sum(each) for each in shares] or [jnp.zeros_like(leaf) for leaf in leaves]
            return result, trees.unflatten(structure, total)

        self.defjvp(jvp)


stop_gradient = custom_vjp(lambda x: x)
"""`x` itself, treated as a constant by differentiation."""
stop_gradient.defvjp(lambda x: (x, None), lambda _, g: (None,))


def _spread(found: Any, args: Sequence[Any], name: str) -> list[Any]:
    """The gradient of each leaf of the arguments, from one entry for each argument; None means no gradient."""
    entries = tuple(found) if isinstance(found, (tuple, list)) else (found,)
    spread: list[Any] = []
    fits = len(entries) == len(args)
    for entry, arg in zip(entries, args):
        own, structure = trees.flatten(arg)
        if not own or entry is None:
            spread += [None] * len(own)
            continue
        leaves, form = trees.flatten(entry)
        fits = fits and form == structure
        spread += leaves
    if not fits:
        raise PalladioTypeError(
            f"the backward rule of {name} returns a gradient for each argument, in its structure, or None",
            expected=trees.shown(trees.flatten(tuple(args))[1]),
            got=trees.shown(trees.flatten(entries)[1]),
        )
    return spread


def _has_gradient(leaf: Any) -> bool:
    """True for floats and arrays of them."""
    kind = getattr(leaf, "dtype", None)
    return isinstance(leaf, float) if kind is None else dtypes.is_float(np.dtype(kind))


def _renamed(leaf: Any) -> Any:
    """The same array under a fresh variable."""
    return bind(reshape, leaf, shape=np.shape(leaf))[0] if _has_gradient(leaf) else leaf


def _add(gradients: dict[Var, Any], var: Var | None, gradient: Any) -> None:
    """Add a gradient to that of a variable."""
    if var is None or gradient is None or not dtypes.is_float(var.type.dtype):
        return
    gradient = fitted(jnp.asarray(gradient), var.type)
    gradients[var] = gradients[var] + gradient if var in gradients else gradient


def _depending(tape: _Tape, eqns: Sequence[Any], roots: Sequence[Var]) -> set[Var]:
    """The variables that depend on the roots through floats, and the references that hold such a value."""
    found = set(roots)
    for each in eqns:
        if isinstance(each, Eqn):
            inputs, outputs, written = list(each.inputs), list(each.outputs), each.written
        else:
            inputs, written = [tape.variable(arg) for arg in each.args], frozenset()
            outputs = [var for var in map(tape.variable, each.results) if var is not None]
            _require_passed(tape, each, found)
        if any(atom in found for atom in inputs):
            found.update(
                written, (out for out in outputs if dtypes.is_float(getattr(out.type, "dtype", np.dtype(bool))))
            )
    return found


def _require_passed(tape: _Tape, call: _Call, active: set[Var]) -> None:
    """Refuse a function that closes over a value that the gradient depends on: its rule has no gradient for it."""
    passed = set(map(tape.variable, call.args))
    for eqn in tape.trace.eqns[call.start : call.stop]:
        if any(atom in active and atom not in passed for atom in eqn.inputs):
            raise PalladioNotImplementedError(
                "a function under jax.vmap or jax.custom_vjp closes over a value that the gradient depends on",
                hint="pass it as an argument; in_axes=None passes it whole",
                location=eqn.location,
            )


def _steps(tape: _Tape, stop: int) -> list[Any]:
    """The equations in order, with a call in place of its equations where it has a custom rule."""
    steps: list[Any] = []
    at = tape.start
    for call in tape.calls:
        steps += [*tape.trace.eqns[at : call.start], call]
        at = call.stop
    return [*steps, *tape.trace.eqns[at:stop]]


def _step_back(tape: _Tape, step: Any, gradients: dict[Var, Any], active: set[Var]) -> None:
    """Propagate the gradients of the results of an equation or a call to its inputs."""
    outputs = step.outputs if isinstance(step, Eqn) else [tape.variable(leaf) for leaf in step.results]
    if not any(var in gradients and var in active for var in outputs):
        return
    if isinstance(step, _Call):
        given = [
            gradients.get(var) if var in gradients else jnp.zeros_like(leaf)  # type: ignore[arg-type]
            for var, leaf in zip(outputs, step.results, strict=True)
        ]
        for leaf, gradient in zip(step.args, step.pull(given), strict=True):
            _add(gradients, tape.variable(leaf), gradient)
        return
    if step.op is grid_call and tape.kernels and (function := as_function(step)) is not None:
        values = [tape.value(atom) for atom in step.inputs]
        given = [gradients[var] if var in gradients else jnp.zeros(var.type.shape, var.type.dtype) for var in outputs]
        for atom, gradient in zip(step.inputs, _pulled(function, values)[2](given), strict=True):
            _add(gradients, atom if isinstance(atom, Var) else None, gradient)
        return
    rule = RULES.get(step.op.name)
    (out,) = step.outputs[:1]
    values = [tape.value(atom) for atom in step.inputs] if rule is not None else []
    found = rule(step, values, tape.value(out), gradients[out]) if rule is not None else None
    if found is None:
        raise _NoDerivative(
            f"Palladio does not differentiate {step.op.name}",
            hint="jax.custom_vjp gives a function, and the kernels that it calls, derivatives of their own",
            jax="Linearization failed to produce known values for all output primals" if step.op is grid_call else None,
            location=step.location,
        )
    for atom, gradient in zip(step.inputs, found, strict=True):
        if atom in active:
            _add(gradients, atom, gradient)


def _pulled(
    fun: Callable[..., Any], args: Sequence[Any], has_aux: bool = False, kernels: bool = False
) -> tuple[Any, Any, Callable[[Any], Any]]:
    """The result of a function of traced values, its auxiliary result, and the function of gradients."""
    leaves, structure = trees.flatten(tuple(args))
    fresh = [_renamed(leaf) for leaf in leaves]
    trace: Any = current_trace()
    tape = _Tape(trace, len(trace.eqns), kernels)
    with _recording(tape):
        result = fun(*trees.unflatten(structure, fresh))
    result, aux = result if has_aux else (result, None)
    steps = _steps(tape, len(trace.eqns))
    outputs, form = trees.flatten(result)
    roots = [tape.variable(leaf) if _has_gradient(leaf) else None for leaf in fresh]
    active = _depending(tape, steps, [var for var in roots if var is not None])

    def pull(gradient: Any) -> tuple[Any, ...]:
        given, found = trees.flatten(gradient)
        if found != form:
            raise PalladioTypeError(
                "the gradient has the structure of the result", expected=trees.shown(form), got=trees.shown(found)
            )
        gradients: dict[Var, Any] = {}
        for leaf, each in zip(outputs, given, strict=True):
            _add(gradients, tape.variable(leaf), each)
        for step in reversed(steps):
            _step_back(tape, step, gradients, active)
        own = [_gradient_of(leaf, var, gradients) for leaf, var in zip(leaves, roots, strict=True)]
        return trees.unflatten(structure, own)  # type: ignore[no-any-return]

    return result, aux, pull


def _gradient_of(leaf: Any, var: Var | None, gradients: dict[Var, Any]) -> Any:
    """The gradient of an argument: zeros where the result does not depend on it, None for integers."""
    if var is None:
        return None
    return gradients[var] if var in gradients else jnp.zeros(var.type.shape, var.type.dtype)


float0 = np.dtype([("float0", np.void, 0)])
"""The dtype of the gradients and tangents of integers and bools, which hold no information."""


def _completed(given: Any, found: Sequence[Any]) -> Any:
    """Gradients or tangents in the structure of the tree `given`; `found` has those of its floats, in order."""
    leaves, structure = trees.flatten(given)
    of_floats = iter(found)
    every = [next(of_floats) if _has_gradient(leaf) else np.zeros(np.shape(leaf), float0) for leaf in leaves]
    return trees.unflatten(structure, every)


def _run(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function of trees; outside of a trace it is staged, and only arrays and floats are traced.

    Integers are values for it, as in JAX, where it needs them: as sizes, for a Python `if`.
    """
    if current_trace() is not None:
        return function(*args)
    leaves, structure = trees.flatten(args)
    traced = [n for n, leaf in enumerate(leaves) if isinstance(leaf, (np.ndarray, np.generic, float))]
    floats = [n for n in traced if _has_gradient(leaves[n])]
    try:
        return _run_staged(function, leaves, structure, traced)
    except PalladioTypeError:
        if floats == traced:
            raise
    return _run_staged(function, leaves, structure, floats)


def _run_staged(
    function: Callable[..., Any], leaves: Sequence[Any], structure: trees.Structure, traced: Sequence[int]
) -> Any:
    """Call the staged function. It holds no arrays but as bytes, so that the next call finds its program again."""
    held = [None if n in traced else _Held.of(leaf) for n, leaf in enumerate(leaves)]

    def whole(*values: Any) -> Any:
        every = [each.array() if isinstance(each, _Held) else each for each in held]
        for n, value in zip(traced, values, strict=True):
            every[n] = value
        return function(*trees.unflatten(structure, every))

    return returning_arrays(staged(whole))(*(leaves[n] for n in traced))


@dataclass(frozen=True)
class _Held:
    """The values of an array, which are compared when arrays would not be."""

    content: bytes
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @classmethod
    def of(cls, leaf: Any) -> Any:
        """The values of an array; anything else itself."""
        if not isinstance(leaf, (np.ndarray, np.generic)):
            return leaf
        return cls(leaf.tobytes(), leaf.shape, leaf.dtype)

    def array(self) -> Any:
        """The array again."""
        return np.frombuffer(self.content, self.dtype).reshape(self.shape)


def vmap(
    fun: Callable[..., Any], in_axes: Any = 0, out_axes: Any = 0, axis_size: int | None = None, **hints: Any
) -> Callable[..., Any]:
    """`palladio.vmap`: the function of each slice of its arguments in turn, the results stacked.

    Its gradient is that of the function, of each slice in turn.
    """
    staged = over_slices(fun, in_axes, out_axes, axis_size)
    eager = by_loop(fun, in_axes, out_axes, axis_size, _one_by_one)

    def over(*args: Any) -> Any:
        known = current_trace() is None and not any(map(is_traced, trees.flatten(args)[0]))
        return (eager if known and args else staged)(*args)

    @custom_vjp
    def mapped(*args: Any) -> Any:
        return over(*args)  # without the parameters of fun: only given arguments have an axis

    def backward(args: tuple[Any, ...], gradient: Any) -> Any:
        leaves, structure = trees.flatten(args)
        axes = in_axes if isinstance(in_axes, (tuple, list)) else (in_axes,) * len(args)
        along = trees.spread(axes, args, lambda each: each is None or isinstance(each, int)) or []

        def element(g: Any, *slices: Any) -> Any:
            def flat(*values: Any) -> Any:
                return fun(*trees.unflatten(structure, values))

            return [[each] if _has_gradient(each) else [] for each in vjp(flat, *slices)[1](g)]

        found = over_slices(element, (out_axes, *along))(gradient, *leaves)
        return trees.unflatten(structure, [_along(*each) for each in zip(found, along, leaves, strict=True)])

    mapped.defvjp(lambda *args: (over(*args), args), backward)

    @functools.wraps(fun)
    def call(*args: Any) -> Any:
        return mapped(*args)

    return returning_arrays(call)


def _one_by_one(step: Callable[..., Any], carry: Any, xs: Sequence[Any], length: int | None = None) -> tuple[Any, Any]:
    """`scan` of known arrays: each step calls the function, so that its products are those of eager calls."""
    count = len(xs[0]) if xs else length or 0
    if not count:
        return scan(step, carry, xs, length=length)  # type: ignore[no-any-return]
    rows = []
    for n in range(count):
        carry, row = step(carry, arrays([x[n] for x in xs]))
        rows.append(trees.flatten(row))
    columns = zip(*(leaves for leaves, _ in rows), strict=True)
    return carry, trees.unflatten(rows[0][1], [jnp.stack(column) for column in columns])


def _along(found: list[Any], axis: int | None, leaf: Any) -> Any:
    """The gradients of the slices, stacked along the axis that they were taken from; their sum for the whole array.

    Without a gradient, it is the array itself.
    """
    if not found:
        return leaf
    (gradient,) = found
    return jnp.sum(gradient, axis=0) if axis is None else jnp.moveaxis(gradient, 0, axis)


def _require_callable(fun: Any) -> None:
    if not callable(fun):
        raise PalladioTypeError("what is differentiated is a function", argument="fun", got=repr(fun))


def vjp(fun: Callable[..., Any], *args: Any, has_aux: bool = False) -> Any:
    """The result of a function, and the function from the output's gradient to those of its arguments.

    Outside of a staged function the gradients are computed from the arguments again.

    Args:
        fun: a function of trees of arrays. Kernels must be called inside of `custom_vjp` functions.
        args: the arguments to differentiate by; floats have a gradient, anything else is constant and has one of
            dtype `float0`.
        has_aux: `fun` returns a pair, of which the second is passed on after the other two.

    Raises:
        PalladioNotImplementedError: an operation without a derivative, a kernel among them.
    """
    with at_call():
        _require_callable(fun)
        if current_trace() is not None:
            result, aux, pull = _pulled(fun, args, has_aux)
        else:
            result, aux = _run(lambda *given: _pulled(fun, given, has_aux)[:2], *args)

            def pull(gradient: Any) -> Any:
                return _run(lambda g, *given: _pulled(fun, given, has_aux)[2](g), gradient, *args)

    def gradients(gradient: Any) -> Any:
        return _completed(args, trees.flatten(pull(gradient))[0])

    return (result, gradients, aux) if has_aux else (result, gradients)


def jvp(fun: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any], has_aux: bool = False) -> Any:
    """The result of a function, and its derivative along the tangents, in the structure of the result.

    It is computed backwards twice: the gradients of the arguments are linear in that of the output, and the derivative
    of this is the derivative along a tangent. A kernel without a grid and without a rule of its own has the derivative
    of the arrays that it computes.

    Args:
        fun: as for `vjp`.
        primals, tangents: tuples of the arguments, and of a tangent for each, in its structure.
        has_aux: `fun` returns a pair, of which the second is passed on after the other two.

    Raises:
        PalladioTypeError: tangents of another structure or shape than the arguments.
        PalladioNotImplementedError: an operation without a derivative, a kernel among them.
    """
    with at_call():
        _require_callable(fun)
        given, structure = trees.flatten(tuple(primals))
        along, form = trees.flatten(tuple(tangents))
        if form != structure or any(np.shape(x) != np.shape(t) for x, t in zip(given, along, strict=True)):
            raise PalladioTypeError(
                "a tangent has the structure and the shapes of its argument",
                argument="tangents",
                expected=f"{trees.shown(structure)} of shapes {', '.join(str(np.shape(each)) for each in given)}",
                got=f"{trees.shown(form)} of shapes {', '.join(str(np.shape(each)) for each in along)}",
            )
        for x, t in zip(given, along, strict=True):
            _require_same_kind(x, t)
        wanted = [t for x, t in zip(given, along, strict=True) if _has_gradient(x)]
        result, found, aux = _run(lambda args, along: _pushed(fun, args, along, has_aux), primals, wanted)
        tangent = _completed(result, found)
    return (result, tangent, aux) if has_aux else (result, tangent)


def _require_same_kind(primal: Any, tangent: Any) -> None:
    """Refuse a tangent whose dtype is not the argument's, or not `float0` where the argument is not a float."""
    wanted, got = (np.dtype(narrow_dtype(np.dtype(getattr(x, "dtype", type(x))))) for x in (primal, tangent))
    if not dtypes.is_supported(wanted):
        raise PalladioTypeError(
            "an argument of a dtype that Palladio does not have",
            argument="primals",
            expected=dtypes.LISTED,
            got=str(wanted),
        )
    if not _has_gradient(primal):
        wanted = float0
    if got == wanted or (type(tangent) is float and wanted != float0):
        return
    raise PalladioTypeError(
        "a tangent has the dtype of its argument, float0 where that is not a float",
        argument="tangents",
        expected="float0" if wanted == float0 else str(wanted),
        got=str(got),
        hint="np.zeros(np.shape(x), jax.dtypes.float0) is the tangent of integers",
        jax="primal and tangent arguments to jax.jvp do not match; dtypes must be equal, or in case of int/bool primal "
        "dtype the tangent dtype must be float0.",
    )


def _pushed(
    fun: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any], has_aux: bool
) -> tuple[Any, Any, Any]:
    result, aux, pull = _pulled(fun, tuple(primals), has_aux, kernels=True)
    floats = [leaf for leaf in trees.flatten(result)[0] if _has_gradient(leaf)]

    def gradients(*given: Any) -> list[Any]:
        return [each for each in trees.flatten(pull(_completed(result, given)))[0] if each is not None]

    found = _pulled(gradients, [jnp.zeros_like(leaf) for leaf in floats])[2](list(tangents))
    return result, list(found), aux


def _positions(numbers: Sequence[int], args: Sequence[Any], allow_int: bool) -> list[int]:
    """The arguments to differentiate by, counted from the first."""
    for n in numbers:
        if not -len(args) <= n < len(args):
            raise PalladioValueError(
                "the function is called with fewer arguments",
                argument="argnums",
                expected=f"below {len(args)}",
                got=n,
            )
        whole = [leaf for leaf in trees.flatten(args[n])[0] if not _has_gradient(leaf)]
        if whole and not allow_int:
            raise PalladioTypeError(
                "a gradient is by floats",
                argument=f"args[{n}]",
                got=str(getattr(whole[0], "dtype", type(whole[0]).__name__)),
                hint="allow_int=True gives float0 for what is not",
            )
    return [n % len(args) for n in numbers]


def value_and_grad(
    fun: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    allow_int: bool = False,
    **hints: Any,
) -> Callable[..., Any]:
    """A function that returns the result of `fun`, a float, and its gradient by the arguments at `argnums`.

    Args:
        has_aux: `fun` returns a pair, of which the second is passed on: the result is `((value, aux), gradient)`.
        allow_int: the gradient by integers is one of dtype `float0` instead of an error.
    """
    with at_call():
        _require_callable(fun)
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)

    def of_own(kwargs: dict[str, Any], *args: Any) -> Any:
        own = _positions(numbers, args, allow_int)

        def function(*chosen: Any) -> Any:
            every = list(args)
            for n, value in zip(own, chosen, strict=True):
                every[n] = value
            return fun(*every, **kwargs)

        value, aux, pull = _pulled(function, [args[n] for n in own], has_aux)
        if np.shape(value) or not _has_gradient(value):
            raise PalladioTypeError(
                "a gradient is that of a function whose result is one float",
                argument="fun",
                got=str(getattr(value, "palladio_type", value)),
                hint="jax.vjp takes the gradient of any result",
            )
        return ((value, aux) if has_aux else value), trees.flatten(pull(jnp.ones((), value.dtype)))[0]

    @functools.wraps(fun)
    def call(*args: Any, **kwargs: Any) -> Any:
        with at_call():
            value, found = _run(of_own, kwargs, *args)
            gradients = _completed(tuple(args[n] for n in numbers), found)
        return value, gradients[0] if isinstance(argnums, int) else gradients

    return call


def grad(
    fun: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False, **options: Any
) -> Callable[..., Any]:
    """A function that returns the gradient of `fun`, whose result is a float, by the arguments at `argnums`.

    Args:
        has_aux: `fun` returns a pair, of which the second is passed on: the result is `(gradient, aux)`.
        options: those of `value_and_grad`.
    """
    both = value_and_grad(fun, argnums, has_aux, **options)

    @functools.wraps(fun)
    def call(*args: Any, **kwargs: Any) -> Any:
        value, gradient = both(*args, **kwargs)
        return (gradient, value[1]) if has_aux else gradient

    return call
