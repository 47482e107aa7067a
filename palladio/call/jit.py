"""`jit`: a function of arrays, staged once per shapes and dtypes.

Its kernel calls and array functions become one program.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Callable, Hashable, Mapping, Sequence
from types import MethodType
from typing import Any

import numpy as np

from palladio.array import convert
from palladio.array.foreign import described, library_of
from palladio.array.on_card import card_of, placed
from palladio.base import trees
from palladio.base.calls import checked_call, did_you_mean, hide_internal_frames
from palladio.base.dataclass import dataclass
from palladio.base.errors import PalladioError, PalladioTypeError, PalladioValueError, at_call
from palladio.call.ahead import ONE_RESULT, Ahead
from palladio.call.staged import CALLS, owned, prepared, returned
from palladio.call.tpu.info import described as described_tpu
from palladio.driver.capture import is_watched
from palladio.driver.executors import choose, requests, staged_for
from palladio.driver.fingerprint import Remembered
from palladio.driver.loading import load
from palladio.ir.core import Program
from palladio.ir.evaluate import Runner
from palladio.trace.array_refs import ArrayRef
from palladio.trace.debug import chosen_checks
from palladio.trace.functions import function_location, function_name, positional_names, require_function
from palladio.trace.gpu.hardware import limits_enabled
from palladio.trace.gpu.rounds import carried_out_in_rounds
from palladio.trace.trace import current_trace, stage
from palladio.trace.values import wrap
from palladio.types.types import ArrayType, ShapeDtypeStruct, Type


@dataclass(frozen=True)
class _Staged:
    """A staged function: its runner, the constant arrays it captured, the structure and the types of its result."""

    run: Runner
    captured: tuple[Any, ...]
    structure: trees.Structure
    results: tuple[ArrayType, ...]


@checked_call
def jit(
    fun: Callable[..., Any] | None = None,
    *,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
    interpret: Any = None,
) -> Any:
    """Stage a function of several kernel calls and array functions as one program.

    It is traced once for each combination of argument shapes and dtypes, static arguments and captured values.
    Inside, array arguments are traced values.

    Args:
        fun: takes and returns pytrees of arrays; left out, `jit` is a decorator.
        static_argnums, static_argnames: arguments passed as they are; each value has a separate program.
        interpret: as in `pallas_call`, for the whole function. A call inside with an `interpret` of its own decides
            for the whole function too.
    """
    if fun is None:
        return functools.partial(
            jit, static_argnums=static_argnums, static_argnames=static_argnames, interpret=interpret
        )
    with at_call():
        require_function(fun, "what jit stages", "fun")
    numbers = (static_argnums,) if isinstance(static_argnums, int) else tuple(static_argnums)
    names = (static_argnames,) if isinstance(static_argnames, str) else tuple(static_argnames)
    with at_call():
        _check_names(fun, names)
    names = names or _names_at(fun, numbers)  # a static argument may be passed by keyword
    return Jitted(fun, numbers, names, interpret)


class Jitted:
    """A staged function; `jit` makes it. It has the name, the documentation and the signature of the function."""

    def __init__(
        self, function: Callable[..., Any], numbers: tuple[int, ...], names: tuple[str, ...], interpret: Any
    ) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._numbers = numbers
        self._names = names
        self._interpret = interpret
        self._remembered = Remembered()

    def __repr__(self) -> str:
        return f"jit({function_name(self._function)})"

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __reduce__(self) -> str | tuple[Any, ...]:
        """Pickle by name, if the function's name refers to this object, as after decoration."""
        found: Any = sys.modules.get(self.__module__)
        path: str = getattr(self, "__qualname__", "")
        for name in path.split("."):
            found = getattr(found, name, None)
        if found is self:
            return path
        return Jitted, (self._function, self._numbers, self._names, self._interpret)

    def ahead(
        self,
        *args: Any,
        growing: Sequence[int] | None = None,
        own_rows: Sequence[Sequence[int]] = (),
        made_of: Hashable = None,
    ) -> Ahead:
        """The function staged for arrays of these shapes and dtypes, without static arguments.

        Its calls check neither captured values nor shapes.

        Args:
            args: arrays, or a `ShapeDtypeStruct` for each.
            growing: for each of them the axis along which the array of a call may be smaller, the rows by default.
            own_rows: unsafe. The numbers of those whose rows the compiled kernel accesses only up to a number given by
                another argument, those with equally many in one sequence. The CPU then runs it on arrays
                of that number of rows without copies. A call that names `rows` has a result of as many rows, all of
                which the kernel writes and no others; the arrays of the first sequence have as many. This is not
                checked: a kernel that accesses other rows reads or overwrites other memory.
            made_of: everything that the function depends on besides its arguments and Palladio: plain values, dtypes,
                classes, and tuples and dataclasses of them. With it, the compiled function is kept on disk (on a GPU
                if it is one kernel, on the CPU if it is several kernels with small arrays between them), and another
                process takes it from there without tracing anything. The function's own source is not inspected:
                include a version of it.
        """
        with at_call():
            names = positional_names(self._function)[: len(args)]
            names += [f"args[{n}]" for n in range(len(names), len(args))]
            types = [_described(arg, name) for arg, name in zip(args, names)]
            weak = (False,) * len(types)
            executor = choose(self._interpret, args)
            axes = tuple(growing or (0,) * len(types))
            stored = None
            if made_of is not None and executor.stored is not None and not is_watched():
                stored = executor.stored((made_of, chosen_checks(), limits_enabled(), described_tpu()), types)
                found = stored.find()
                if found is not None:
                    return Ahead(found, (), types, names, found.results, ONE_RESULT, axes, own_rows)
            staged = CALLS.get(None, lambda: _stage(self._function, self._function, types, weak, executor))
            if stored is not None and staged.structure == ONE_RESULT and not staged.captured:
                stored.keep(staged.run)
            return Ahead(staged.run, staged.captured, types, names, staged.results, staged.structure, axes, own_rows)

    def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
        """The shapes and dtypes of the result for these arguments, without running the function.

        Arrays may be given as `ShapeDtypeStruct`; static arguments are given as they are.
        """
        with at_call():
            static = static_positions(self._function, self._numbers, self._names)
            fixed = {name: kwargs.pop(name) for name in self._names if name in kwargs}

            @functools.wraps(self._function)
            def function(*traced: Any, **keywords: Any) -> Any:
                rest = iter(traced)
                every = [arg if n in static else next(rest) for n, arg in enumerate(args)]
                return self._function(*every, **keywords, **fixed)

            return eval_shape(function, *(arg for n, arg in enumerate(args) if n not in static), **kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The result of the function on these arguments."""
        if current_trace() is not None or carried_out_in_rounds():
            return self._function(*args, **kwargs)
        try:
            with at_call():
                static = static_positions(self._function, self._numbers, self._names)
                return _call(self._function, args, kwargs, static, self._names, self._interpret, self._remembered)
        except PalladioError as error:
            hide_internal_frames(error)
            raise


def _described(arg: Any, name: str) -> ArrayType:
    """The type of an array in any memory, or the one that a `ShapeDtypeStruct` describes."""
    home = card_of([arg])
    if home is None:
        return described(arg, name)
    found = placed(arg, name, home[1])
    return ArrayType(found.shape, found.dtype)


def _check_names(function: Callable[..., Any], names: Sequence[Any]) -> None:
    """Refuse a static name that no argument can have."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return
    if any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        return
    for name in names:
        if name not in parameters:
            raise PalladioValueError(
                f"{function_name(function)} has no parameter of this name",
                argument="static_argnames",
                expected=", ".join(parameters),
                got=repr(name),
                hint=did_you_mean(str(name), parameters),
            )


def _names_at(function: Callable[..., Any], numbers: Sequence[int]) -> tuple[str, ...]:
    """The names of the parameters at these positions, as far as they have one."""
    names = positional_names(function)
    return tuple(names[number] for number in numbers if -len(names) <= number < len(names))


def static_positions(function: Callable[..., Any], numbers: Sequence[int], names: Sequence[str] = ()) -> frozenset[int]:
    """The positions of static arguments: negative ones are counted from the last parameter."""
    if not names and all(number >= 0 for number in numbers):
        return frozenset(numbers)
    parameters = list(inspect.signature(function).parameters)
    counted = (number % len(parameters) if parameters else number for number in numbers)
    return frozenset((*counted, *(parameters.index(name) for name in names if name in parameters)))


def _call(
    function: Callable[..., Any],
    args: Any,
    kwargs: Any,
    static: frozenset[int],
    static_names: Sequence[str],
    interpret: Any,
    remembered: Remembered,
) -> Any:
    dynamic_args = tuple(arg for n, arg in enumerate(args) if n not in static)
    dynamic_kwargs = {name: value for name, value in kwargs.items() if name not in static_names}
    fixed = {n: arg for n, arg in enumerate(args) if n in static}
    fixed_kwargs = {name: value for name, value in kwargs.items() if name in static_names}
    leaves, structure = trees.flatten((dynamic_args, dynamic_kwargs))
    refs = {n: leaf.palladio_type for n, leaf in enumerate(leaves) if isinstance(leaf, ArrayRef)}
    if refs:
        _require_distinct(leaves)
        leaves = [leaf.palladio_array if n in refs else leaf for n, leaf in enumerate(leaves)]
    weak = tuple([type(leaf) is not np.ndarray and convert.is_weak(leaf) for leaf in leaves])
    executor = choose(interpret, leaves)
    try:
        values = executor.arrays(leaves, (dynamic_args, dynamic_kwargs), "arguments")
    except PalladioError as error:
        _name_argument(error, function, [n for n in range(len(args)) if n not in static])
        raise
    types = tuple([refs.get(n) or ArrayType(value.shape, value.dtype) for n, value in enumerate(values)])

    def key() -> Hashable:
        static_parts = (*fixed, *fixed.values(), *fixed_kwargs, *fixed_kwargs.values())
        content = remembered.fingerprint(function, len(fixed), *static_parts)
        environment = executor.key, chosen_checks(), limits_enabled(), described_tpu()
        return ("jit", content, structure, types, weak, environment)

    def build() -> _Staged:
        def rebuilt(*traced: Any) -> Any:
            positional, keywords = trees.unflatten(structure, traced)
            rest = iter(positional)
            every = [fixed[n] if n in fixed else next(rest) for n in range(len(args))]
            return function(*every, **keywords, **fixed_kwargs)

        return _stage(rebuilt, function, types, weak, executor)

    staged = prepared(key, build, function)
    given = [*values, *staged.captured]
    return returned(owned(staged.run(given), given), leaves, staged.structure)


def _require_distinct(leaves: Sequence[Any]) -> None:
    """Refuse a reference that is passed twice: the program could not know that the two alias."""
    refs = [id(leaf) for leaf in leaves if isinstance(leaf, ArrayRef)]
    if len(set(refs)) < len(refs):
        raise PalladioValueError(
            "one reference is passed twice to a staged function", hint="pass it once, or let the function close over it"
        )


def _name_argument(error: PalladioError, function: Callable[..., Any], positions: Sequence[int]) -> None:
    """Name the function's argument in an error: `args[1] (y)` for `arguments[0][1]`."""
    found = re.fullmatch(r"arguments\[(?:0\]\[(\d+)\]|1\]\['(\w+)'\])(.*)", error.argument or "")
    if found is None:
        return
    number, keyword, rest = found.groups()
    if keyword is not None:
        error.argument = keyword + rest
        return
    position = positions[int(number)]
    names = positional_names(function)
    error.argument = f"args[{position}]{rest}" + (f" ({names[position]})" if position < len(names) else "")


def _stage(
    rebuilt: Callable[..., Any],
    function: Callable[..., Any],
    types: Sequence[Type],
    weak: Sequence[bool],
    executor: Any,
) -> _Staged:
    structure: list[trees.Structure] = []

    def flat(*traced: Any) -> list[Any]:
        for value, is_weak in zip(traced, weak, strict=True):
            convert.mark_weak(value, is_weak)
        with staged_for(executor):
            leaves, found = trees.flatten(rebuilt(*traced))
        structure.append(found)
        for leaf in leaves:
            if library_of(leaf) != "numpy":
                raise PalladioTypeError(
                    "a staged function returns traced values and NumPy arrays", got=type(leaf).__name__
                )
        return leaves

    with requests() as requested:
        staged = stage(flat, types, wrap, name=function_name(function), location=function_location(function))
    # A captured array is copied, since the caller may change its own; a reference is captured itself.
    captured = tuple(
        value.palladio_array if isinstance(value, ArrayRef) else np.array(value) for value in staged.captured
    )
    runner = load(staged.program, requested[0] if requested else executor)
    results = tuple(ArrayType(type.shape, type.dtype) for type in staged.program.output_types)
    return _Staged(runner, captured, structure[0], results)


def eval_shape(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The shapes and dtypes that a function of arrays would return, without running it.

    Args:
        args, kwargs: pytrees of arrays, scalars or `ShapeDtypeStruct`.

    Returns:
        A pytree of `ShapeDtypeStruct`.
    """
    with at_call():
        program, form = traced_program(function, args, kwargs)
        return trees.unflatten(form, [ShapeDtypeStruct(type.shape, type.dtype) for type in program.output_types])


def traced_program(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[Program, trees.Structure]:
    """The program of a function of arrays, and the structure of its result. Arguments are as of `eval_shape`."""
    leaves, structure = trees.flatten((args, kwargs))
    names = trees.leaf_names((args, kwargs), "arguments")
    types = [described(leaf, name) for leaf, name in zip(leaves, names, strict=True)]
    weak = [convert.is_weak(leaf) for leaf in leaves]
    found: list[trees.Structure] = []

    def flat(*traced: Any) -> list[Any]:
        for value, is_weak in zip(traced, weak, strict=True):
            convert.mark_weak(value, is_weak)
        positional, keywords = trees.unflatten(structure, traced)
        outputs, out_structure = trees.flatten(function(*positional, **keywords))
        found.append(out_structure)
        return outputs

    return stage(flat, types, wrap, name=function_name(function)).program, found[0]
