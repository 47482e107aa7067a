"""Control flow on traced values: `when`, `cond`, `switch`, `loop`, `fori_loop`, `while_loop`, `scan`,
`run_scoped`, `run_state`.

Bodies may close over values and references of the functions around them; captured values become operands.
"""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from palladio.array import convert
from palladio.base import trees
from palladio.base.errors import PalladioTypeError, PalladioValueError
from palladio.ir.bind import bind, type_of
from palladio.ir.core import Program, Var
from palladio.ops import control as ops
from palladio.ops.references import memory
from palladio.ops.threads.launch import collective_scope
from palladio.trace.functions import call_user, counted, positional_names, require_function
from palladio.trace.grid import require_shared_axes
from palladio.trace.reference import Reference
from palladio.trace.trace import Staged, stage
from palladio.trace.unions import unpacked
from palladio.trace.values import wrap
from palladio.types import dtypes
from palladio.types.scratch import ACC
from palladio.types.transforms import Index, Operand, SliceEntry
from palladio.types.types import ACC as ACC_SPACE
from palladio.types.types import ArrayType, MemoryRef, RefType, Shape, ShapeDtypeStruct, Type

Kind = tuple[ArrayType, bool]
INDEX = ArrayType((), dtypes.INT32)


class Body:
    """A user's function of pytrees, to be staged as a sub-program of flat inputs and outputs.

    After staging, `structure` is the structure of its result.
    """

    def __init__(self, function: Callable[..., Any], what: str) -> None:
        require_function(function, f"what {what} runs")
        self.function = function
        self.what = what
        self.structure: trees.Structure | None = None

    def called(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """The result of the function."""
        expected = counted(len(args), "argument")
        if kwargs:
            expected += f", and by keyword {', '.join(kwargs)}"
        return call_user(self.function, args, kwargs, f"the function that {self.what} runs", expected)

    def stage(
        self,
        types: Sequence[Type],
        weak: Sequence[bool],
        arguments: Callable[..., Any],
        kinds: Sequence[Kind] | None = None,
        hints: Sequence[str] = (),
    ) -> Staged:
        """Stage it.

        Args:
            hints: names for the inputs.
            weak: whether each input is weak.
            arguments: builds the positional and keyword arguments from the flat traced inputs.
            kinds: if given, the types to convert the outputs to.
        """

        def flat(*values: Any) -> Sequence[Any]:
            for value, is_weak in zip(values, weak, strict=False):
                convert.mark_weak(value, is_weak)
            args, kwargs = arguments(*values)
            leaves, self.structure = trees.flatten(self.called(args, kwargs))
            if kinds is None or len(kinds) != len(leaves):
                return leaves
            return [_converted(leaf, kind) for leaf, kind in zip(leaves, kinds, strict=True)]

        return stage(flat, types, wrap, name=getattr(self.function, "__name__", self.what), hints=hints)


def _converted(leaf: Any, kind: Kind) -> Any:
    given, dtype = convert.array_type(leaf).dtype, kind[0].dtype
    # A weak float is not converted to an integer dtype: the caller decides whether to lose the fraction.
    if given != dtype and convert.is_weak(leaf) and dtypes.promote((dtype, kind[1]), (given, True))[0] == dtype:
        leaf = convert.mark_weak(convert.cast(leaf, dtype), kind[1])
    return leaf


def _marked(values: Sequence[Any], weak: Sequence[bool]) -> list[Any]:
    return [convert.mark_weak(value, is_weak) for value, is_weak in zip(values, weak, strict=True)]


def _kind(value: Any) -> Kind:
    return convert.array_type(value), convert.is_weak(value)


def _output_kinds(staged: Staged) -> list[Kind]:
    return list(zip(staged.program.output_types, staged.weak, strict=True))  # type: ignore[arg-type]


def _strengthened(old: Kind, new: Kind) -> Kind:
    """The kind of a carry that starts as `old` and is returned as `new`: a weak one yields, as in JAX."""
    if old[1] and old[0].dtype != new[0].dtype:
        return ArrayType(old[0].shape, dtypes.promote((old[0].dtype, True), (new[0].dtype, new[1]))[0]), False
    return old


def _require_carry(what: str, structure: trees.Structure, body: Body, kinds: Sequence[Kind], staged: Staged) -> None:
    if body.structure != structure:
        raise PalladioTypeError(
            f"the body of {what} must return a carry of the structure that it takes",
            expected=trees.shown(structure),
            got=trees.shown(body.structure),
            jax="body result should have same structure as carry",
        )
    given = [kind[0] for kind in _output_kinds(staged)]
    wanted = [kind[0] for kind in kinds]
    if given != wanted:
        raise PalladioTypeError(
            f"the body of {what} must return the types of its carry",
            expected=", ".join(map(str, wanted)),
            got=", ".join(map(str, given)),
            hint="convert the result, or start from a carry of that dtype",
        )


def _stage_carried(
    what: str,
    function: Callable[..., Any],
    carry: Any,
    leading: Sequence[Kind],
    call: Callable[..., Any],
    hints: Sequence[str] = (),
) -> tuple[Staged, list[Any], trees.Structure, list[bool]]:
    """Stage a loop body, giving weak carries the dtype that the body returns.

    Args:
        leading: the types of the body's inputs before the carry, and whether they are weak.
        hints: names for its first inputs.

    Returns:
        The staged body, the converted leaves of the initial carry, its structure, and which leaves start weak.
    """
    leaves, structure = trees.flatten(carry)
    kinds = [_kind(leaf) for leaf in leaves]
    body = Body(function, what)
    count = len(leading)
    while True:
        types = [kind[0] for kind in (*leading, *kinds)]
        weak = [kind[1] for kind in (*leading, *kinds)]
        staged = body.stage(
            types, weak, lambda *v: (call(v[:count], trees.unflatten(structure, v[count:])), {}), kinds, hints
        )
        outputs = _output_kinds(staged)
        stronger = (
            kinds if len(outputs) != len(kinds) else [_strengthened(k, o) for k, o in zip(kinds, outputs, strict=True)]
        )
        if stronger == kinds:
            break
        kinds = stronger
    _require_carry(what, structure, body, kinds, staged)
    cast = [convert.cast(leaf, kind[0].dtype) for leaf, kind in zip(leaves, kinds, strict=True)]
    return staged, cast, structure, [kind[1] for kind in kinds]


# References among values.


class _Passed:
    """A tree of values and references: the values are inputs of a sub-program, the references are those around it."""

    def __init__(self, tree: Any) -> None:
        self.leaves, self.structure = trees.flatten(tree)
        self.references = {n: leaf for n, leaf in enumerate(self.leaves) if isinstance(leaf, Reference)}

    @property
    def values(self) -> list[Any]:
        """The leaves that are not references."""
        return [leaf for n, leaf in enumerate(self.leaves) if n not in self.references]

    def whole(self, values: Sequence[Any]) -> Any:
        """The tree with other values."""
        rest = iter(values)
        every = [self.references[n] if n in self.references else next(rest) for n in range(len(self.leaves))]
        return trees.unflatten(self.structure, every)

    def taking(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function of such a tree, its last argument, as one of the list of its values."""

        @functools.wraps(function)
        def call(*given: Any) -> Any:
            return function(*given[:-1], self.whole(given[-1]))

        return call

    def carrying(self, body: Callable[..., Any]) -> Callable[..., Any]:
        """The body of a loop over such a tree as one over the list of its values; it returns the same references."""
        taking = self.taking(body)

        @functools.wraps(body)
        def call(*given: Any) -> Any:
            result = taking(*given)
            returned = _Passed(result)
            same = returned.structure == self.structure and returned.references == self.references
            return returned.values if same else result

        return call


# Branches.


def when(condition: Any) -> Callable[[Callable[[], None]], None]:
    """Run the decorated function, which takes and returns nothing, where the condition holds.

    Args:
        condition: a Python bool, decided while tracing, or a traced scalar.
    """

    def decorate(function: Callable[[], None]) -> None:
        if isinstance(condition, (bool, np.bool_)):
            if condition:
                function()
            return

        def nothing() -> None:
            return None

        def without_result() -> None:
            result = call_user(function, (), {}, "the function under when", "no arguments")
            if result is not None:
                raise PalladioTypeError(
                    "the function under when must return nothing; it writes to references", got=repr(result)
                )

        _branch("when", _truth("when", condition), (nothing, without_result), ())

    return decorate


def cond(pred: Any, true_fun: Callable[..., Any], false_fun: Callable[..., Any], *operands: Any) -> Any:
    """`true_fun(*operands)` where `pred` holds, else `false_fun(*operands)`.

    Args:
        pred: a scalar bool or number (true unless zero).
        operands: pytrees of arrays and references, passed to the branch that runs.

    Raises:
        PalladioTypeError: if the branches return different structures or types.
    """
    return _branch("cond", _truth("cond", pred), (false_fun, true_fun), operands)


def _truth(what: str, pred: Any) -> Any:
    """1 where a scalar is true, else 0: the number of the branch to run."""
    kind = convert.array_type(pred)
    if kind.shape != ():
        raise PalladioTypeError(f"the predicate of {what} is a scalar", got=str(kind))
    truth = pred if kind.dtype == dtypes.BOOL else _nonzero(pred)
    return convert.cast(_strong(truth), dtypes.INT32)


def _nonzero(value: Any) -> Any:
    from_zero = convert.cast(0, convert.array_type(value).dtype)
    return value != from_zero


def _strong(value: Any) -> Any:
    return np.bool_(value) if isinstance(value, bool) else value


def switch(index: Any, branches: Sequence[Callable[..., Any]], *operands: Any) -> Any:
    """`branches[index](*operands)`, the index clamped into range.

    Raises:
        PalladioTypeError: an index that is not a scalar integer; branches that return different structures or types.
        PalladioValueError: no branches.
    """
    if not branches:
        raise PalladioValueError("switch needs at least one branch", argument="branches")
    kind = convert.array_type(index)
    if kind.shape != () or not dtypes.is_integer(kind.dtype):
        raise PalladioTypeError("the index of switch is a scalar integer", got=str(kind))
    return _branch("switch", convert.cast(index, dtypes.INT32), branches, operands)


def _branch(what: str, index: Any, functions: Sequence[Callable[..., Any]], operands: Sequence[Any]) -> Any:
    passed = _Passed(tuple(operands))
    leaves = passed.values
    kinds = [_kind(leaf) for leaf in leaves]
    types, weak = [kind[0] for kind in kinds], [kind[1] for kind in kinds]
    bodies = [Body(function, what) for function in functions]

    def arguments(*values: Any) -> Any:
        return passed.whole(values), {}

    staged = [body.stage(types, weak, arguments) for body in bodies]
    for body in bodies[1:]:
        if body.structure != bodies[0].structure:
            raise PalladioTypeError(
                f"the branches of {what} must return one structure",
                got=_by_branch(what, [trees.shown(each.structure) for each in bodies]),
            )
    wanted = [_join(what, column) for column in zip(*map(_output_kinds, staged), strict=True)]
    if any(_output_kinds(each) != wanted for each in staged):
        staged = [body.stage(types, weak, arguments, wanted) for body in bodies]
    programs, captured = _with_common_captures(staged, len(leaves))
    inputs = [convert.cast(leaf, type.dtype) for leaf, type in zip(leaves, types, strict=True)]
    results = bind(ops.cond, index, *inputs, *captured, branches=tuple(programs))
    marked = [convert.mark_weak(value, kind[1]) for value, kind in zip(results, wanted, strict=True)]
    assert_structure = bodies[0].structure
    return None if assert_structure is None else trees.unflatten(assert_structure, marked)


def _by_branch(what: str, returned: Sequence[str]) -> str:
    """The text for the results of each branch; `cond` has its parameter names, true first."""
    if what == "cond":
        return f"{returned[1]} from true_fun, {returned[0]} from false_fun"
    return ", ".join(f"{each} from branch {number}" for number, each in enumerate(returned))


def _join(what: str, kinds: Sequence[Kind]) -> Kind:
    """The common kind of the branches' outputs at one position; weak ones yield."""
    shapes = {kind[0].shape for kind in kinds}
    strong = {kind[0].dtype for kind in kinds if not kind[1]}
    if len(shapes) > 1 or len(strong) > 1:
        raise PalladioTypeError(
            f"the branches of {what} must return the same types",
            got=_by_branch(what, [str(kind[0]) for kind in kinds]),
        )
    dtype, weak = dtypes.promote(*((kind[0].dtype, kind[1]) for kind in kinds))
    return ArrayType(shapes.pop(), dtype), weak


def _with_common_captures(staged: Sequence[Staged], explicit: int) -> tuple[list[Program], list[Any]]:
    """The programs with the same inputs: the explicit ones, then all values that any of them captures."""
    captured = {id(value): value for each in staged for value in each.captured}
    programs = []
    for each in staged:
        own = {id(value): var for value, var in zip(each.captured, each.program.inputs[explicit:], strict=True)}
        extra = tuple(own.get(key) or Var(type_of(value)) for key, value in captured.items())
        program = each.program
        programs.append(Program((*program.inputs[:explicit], *extra), program.eqns, program.outputs, program.name))
    return programs, list(captured.values())


# Loops.


def _index_name(body: Callable[..., Any]) -> list[str]:
    """The user's name for the index of a loop, unless it marks an unused value."""
    return [name for name in positional_names(body)[:1] if not name.startswith("_")]


def fori_loop(lower: Any, upper: Any, body_fun: Callable[[Any, Any], Any], init_val: Any, *, unroll: Any = None) -> Any:
    """`for i in range(lower, upper): val = body_fun(i, val)`, from `init_val`; returns the last value.

    Args:
        lower, upper: scalar integers, static or traced; `i` has their dtype, int32 for Python integers.
        init_val: a pytree of arrays; the body returns one of the same structure, shapes and dtypes. References in it
            stay the same.
        unroll: advice to compilers: a number of iterations, or True for all.
    """
    passed = _Passed(init_val)
    if not passed.references:
        return _counted("fori_loop", lower, upper, 1, body_fun, init_val, unroll)
    body = passed.carrying(body_fun)
    return passed.whole(_counted("fori_loop", lower, upper, 1, body, passed.values, unroll))


def _counted(what: str, lower: Any, upper: Any, step: int, body: Any, carry: Any, unroll: Any) -> Any:
    dtype, _ = convert.result_type(lower, upper)
    if not dtypes.is_integer(dtype) or convert.array_type(lower).shape or convert.array_type(upper).shape:
        got = f"{convert.array_type(lower)} and {convert.array_type(upper)}"
        raise PalladioTypeError(f"the bounds of {what} are scalar integers", got=got)
    # A Python integer as the lower bound makes a weak index, as in JAX.
    index = ArrayType((), dtype), convert.is_weak(lower)
    upward = convert.is_nonnegative(lower)

    def arguments(leading: Any, value: Any) -> tuple[Any, Any]:
        if upward:
            convert.mark_nonnegative(leading[0])
        return leading[0], value

    staged, leaves, structure, _ = _stage_carried(what, body, carry, [index], arguments, _index_name(body))
    # A sub-program takes its constants first; staging puts captured values last.
    count, inputs = len(leaves), staged.program.inputs
    program = staged.program
    ordered = Program(
        (inputs[0], *inputs[1 + count :], *inputs[1 : 1 + count]), program.eqns, program.outputs, program.name
    )
    factor = 0 if unroll is True else 1 if unroll in (None, False) else unroll
    if not isinstance(factor, int) or factor < 0:
        raise PalladioValueError("a number of iterations, or True for all", argument="unroll", got=repr(unroll))
    results = bind(
        ops.loop,
        convert.cast(lower, dtype),
        convert.cast(upper, dtype),
        *staged.captured,
        *leaves,
        body=ordered,
        constants=len(staged.captured),
        step=step,
        unroll=factor,
    )
    return trees.unflatten(structure, _marked(results, staged.weak))


def loop(
    lower: Any, upper: Any, *, init_carry: Any = None, step: Any = 1, unroll: Any = None
) -> Callable[[Callable[..., Any]], Any]:
    """A decorator that runs its function for i from `lower` to below `upper` in steps of `step`.

    Without `init_carry` the function is called as `f(i)` and returns nothing; with it, as `f(i, carry)`, it returns
    the next carry, and the decorated name becomes the last one.
    """
    try:
        stride = operator.index(step)
    except TypeError:
        raise PalladioTypeError("the step of a loop is a static integer", argument="step", got=repr(step)) from None
    if stride < 1:
        raise PalladioValueError("the step of a loop is at least 1", argument="step", got=stride)

    def decorate(function: Callable[..., Any]) -> Any:
        if init_carry is not None:
            return _counted("loop", lower, upper, stride, function, init_carry, unroll)

        @functools.wraps(function)
        def without_carry(i: Any, _: Any) -> Any:
            result = call_user(function, (i,), {}, "the loop body", "1 argument: the index")
            if result is not None:
                raise PalladioTypeError(
                    "a loop body without carry returns nothing",
                    got=repr(result),
                    hint="pass init_carry=, or return nothing",
                )
            return None

        _counted("loop", lower, upper, stride, without_carry, None, unroll)
        return None

    return decorate


def while_loop(cond_fun: Callable[[Any], Any], body_fun: Callable[[Any], Any], init_val: Any) -> Any:
    """`while cond_fun(val): val = body_fun(val)`, from `init_val`; returns the last value.

    Args:
        cond_fun: returns a scalar bool.
        body_fun: returns a pytree of the structure, shapes and dtypes of `init_val`. References in it stay the same.
    """
    passed = _Passed(init_val)
    if passed.references:
        test, body = passed.taking(cond_fun), passed.carrying(body_fun)
        return passed.whole(while_loop(test, body, passed.values))
    staged, leaves, structure, weak = _stage_carried("while_loop", body_fun, init_val, [], lambda _, value: (value,))
    types = [convert.array_type(leaf) for leaf in leaves]
    test = Body(cond_fun, "while_loop").stage(types, weak, lambda *values: ((trees.unflatten(structure, values),), {}))
    (body, condition), captured = _with_common_captures([staged, test], len(leaves))
    count = len(leaves)

    def constants_first(program: Program) -> Program:
        inputs = (*program.inputs[count:], *program.inputs[:count])
        return Program(inputs, program.eqns, program.outputs, program.name)

    results = bind(
        ops.repeat,
        *captured,
        *leaves,
        condition=constants_first(condition),
        body=constants_first(body),
        constants=len(captured),
    )
    return trees.unflatten(structure, _marked(results, staged.weak))


def scan(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
) -> tuple[Any, Any]:
    """`carry, y = f(carry, x)` for each x along the first axis of `xs`; returns the last carry and the ys, stacked.

    Args:
        f: takes and returns pytrees; the carry keeps its structure, shapes and dtypes.
        xs: a pytree of arrays `dtype[length, ...]`; None, for an `f` that gets None, needs `length`.
        reverse: iterate from the last x to the first; each y has the position of its x.
        unroll: advice to compilers: a number of iterations, or True for all.

    Raises:
        PalladioTypeError: an x without axes; a result that is not a pair, or whose carry differs from `init`.
        PalladioValueError: no length, or two.
    """
    elements, structure = trees.flatten(xs)
    count = _scan_length(elements, length)
    kinds: list[Kind] = []
    forms: list[trees.Structure] = []

    def step(carry: Any, at: Any) -> tuple[Any, Any]:
        result = f(carry, trees.unflatten(structure, [_element(x, at) for x in elements]))
        if not isinstance(result, (tuple, list)) or len(result) != 2:
            raise PalladioTypeError("the body of scan returns a pair, (carry, y)", got=repr(result))
        return result[0], result[1]

    def probe(i: Any, carry: Any) -> Any:
        carry, y = step(carry, i)
        leaves, form = trees.flatten(y)
        kinds[:], forms[:] = map(_kind, leaves), [form]
        return carry

    # Staged once to learn the stacked outputs, and the final dtypes of weak carries.
    _stage_carried("scan", probe, init, [(INDEX, True)], lambda leading, carry: (leading[0], carry))
    stacks = [convert.broadcast_to(np.zeros((), kind.dtype), (count, *kind.shape)) for kind, _ in kinds]
    weak = [is_weak for _, is_weak in kinds]

    def body(i: Any, state: Any) -> Any:
        at = (count - 1) - i if reverse else i
        carry, y = step(state[0], at)
        return carry, [_with_element(stack, new, at) for stack, new in zip(state[1], trees.flatten(y)[0], strict=True)]

    carry, ys = _counted("scan", 0, count, 1, body, (init, stacks), unroll)
    marked = [convert.mark_weak(y, is_weak) for y, is_weak in zip(ys, weak, strict=True)]
    return carry, trees.unflatten(forms[0], marked)


def _scan_length(elements: Sequence[Any], length: int | None) -> int:
    shapes = [convert.array_type(x).shape for x in elements]
    if () in shapes:
        raise PalladioTypeError("scan goes along the first axis of its xs", argument="xs", got="a scalar")
    lengths = {shape[0] for shape in shapes} | ({operator.index(length)} if length is not None else set())
    if len(lengths) != 1:
        raise PalladioValueError(
            "scan needs one length: that of the first axes of xs, or `length`", got=sorted(lengths) or "none"
        )
    return lengths.pop()


def _first_axis(shape: Shape) -> tuple[Index]:
    """The path to the element of the first axis that the index operand names."""
    return (Index((Operand(0), *(SliceEntry(0, extent) for extent in shape[1:]))),)


def _element(x: Any, i: Any) -> Any:
    found = bind(memory.extract, x, i, transforms=_first_axis(convert.array_type(x).shape))[0]
    return convert.mark_weak(found, convert.is_weak(x))


def _with_element(stack: Any, new: Any, i: Any) -> Any:
    kind = convert.array_type(stack)
    path = _first_axis(kind.shape)
    return bind(memory.insert, stack, convert.cast(new, kind.dtype), i, transforms=path, kind="set")[0]


# Scopes.


def _ref_type(description: Any) -> RefType:
    if isinstance(description, ShapeDtypeStruct):
        return RefType(description.shape, description.dtype)
    found = getattr(description, "ref_type", None)
    if isinstance(found, RefType):
        return found
    raise PalladioTypeError(
        "a scope allocates memory references", expected="such as pltpu.VMEM(shape, dtype)", got=repr(description)
    )


def run_scoped(f: Callable[..., Any], *types: Any, collective_axes: Any = (), **kw_types: Any) -> Any:
    """Allocate buffers, call `f(*refs, **refs)` and return its result; the buffers end with the call.

    Args:
        types: pytrees of memory references to allocate, uninitialised.
        collective_axes: the name of the thread axis over which an allocation is shared: the threads of a block meet,
            and get references to the same buffers. Accumulators stay each thread's own.

    Raises:
        PalladioTypeError: if a reference escapes in the result.
        PalladioValueError: collective axes that are not among the kernel's threads.
    """
    require_shared_axes((collective_axes,) if isinstance(collective_axes, str) else collective_axes, "collective_axes")
    return in_scope(f, *types, shared=bool(collective_axes), **kw_types)


def in_scope(f: Callable[..., Any], *types: Any, shared: bool, **kw_types: Any) -> Any:
    """`run_scoped` with memory that is shared by all threads of a block, or private."""
    leaves, structure = trees.flatten((types, kw_types))
    allocations = tuple(_ref_type(leaf) for leaf in leaves)
    own = [n for n, ref in enumerate(allocations) if ref.space is ACC_SPACE]
    if shared and own:
        return _in_partly_shared_scope(f, leaves, structure, own)
    body = Body(f, "run_scoped")
    staged = body.stage(
        allocations,
        [False] * len(leaves),
        lambda *refs: trees.unflatten(structure, unpacked(leaves, refs)),
        hints=_allocation_names(f, types, kw_types),
    )
    program = staged.program
    count = len(leaves)
    ordered = Program((*program.inputs[count:], *program.inputs[:count]), program.eqns, program.outputs, program.name)
    op = collective_scope if shared else ops.scope
    results = bind(op, *staged.captured, body=ordered, allocations=allocations)
    marked = [convert.mark_weak(value, weak) for value, weak in zip(results, staged.weak, strict=True)]
    return None if body.structure is None else trees.unflatten(body.structure, marked)


def _allocation_names(f: Callable[..., Any], types: Sequence[Any], kw_types: Mapping[str, Any]) -> list[str]:
    """The names of the allocations in reports: keys, else the function's parameters."""
    parameters = positional_names(f)
    found = []
    for position, part in enumerate(types):
        own = parameters[position] if position < len(parameters) else ""
        found += [_last_name(path) or own for path in trees.leaf_names(part, "")]
    for path in trees.leaf_names(dict(kw_types), ""):
        found.append(_last_name(path))
    return found


def _last_name(path: str) -> str:
    """The last key of a path through a pytree that is a name."""
    names = re.findall(r"[A-Za-z_]\w*", path)
    return names[-1] if names else ""


def _in_partly_shared_scope(
    f: Callable[..., Any], leaves: Sequence[Any], structure: trees.Structure, own: Sequence[int]
) -> Any:
    """`run_scoped` of memory that threads share and, inside it, of accumulators, which are private to each."""
    shared = [n for n in range(len(leaves)) if n not in own]

    @functools.wraps(f)
    def outer(*common: Any) -> Any:
        @functools.wraps(f)
        def inner(*private: Any) -> Any:
            refs = dict(zip((*shared, *own), (*common, *private), strict=True))
            args, kwargs = trees.unflatten(structure, [refs[n] for n in range(len(leaves))])
            return f(*args, **kwargs)

        return in_scope(inner, *(leaves[n] for n in own), shared=False)

    return in_scope(outer, *(leaves[n] for n in shared), shared=True)


def with_scoped(*types: Any, collective_axes: Any = (), **kw_types: Any) -> Callable[[Callable[..., Any]], Any]:
    """The decorator form of `run_scoped`: each call of the decorated function allocates anew, and passes its own
    arguments, also by keyword, before the references.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def scoped(*args: Any, **kwargs: Any) -> Any:
            body = functools.partial(function, *args, **kwargs)
            return run_scoped(body, *types, collective_axes=collective_axes, **kw_types)

        return scoped

    return decorate


def _state_type(leaf: Any) -> Any:
    """The allocation of `run_state` for one value."""
    if isinstance(leaf, ACC):
        return leaf if leaf.value is None else ACC(leaf.shape, leaf.dtype)
    array = convert.array_type(leaf)
    return MemoryRef(array.shape, array.dtype)


def run_state(f: Callable[[Any], None]) -> Callable[[Any], Any]:
    """A function of values from a function of references.

    `run_state(f)(values)` gives `f` references that hold the values (a pytree) and returns their final values.
    """

    def run(values: Any) -> Any:
        leaves, structure = trees.flatten(values)
        types = tuple(map(_state_type, leaves))

        def body(*refs: Any) -> Any:
            for ref, leaf in zip(refs, leaves, strict=True):
                if not isinstance(leaf, ACC):
                    ref[...] = convert.cast(leaf, ref.dtype)
                elif leaf.value is not None:
                    ref[...] = leaf.value
            result = call_user(f, (trees.unflatten(structure, refs),), {}, "the function under run_state", "1 argument")
            if result is not None:
                raise PalladioTypeError(
                    "the function under run_state must return nothing; it writes to its references", got=repr(result)
                )
            return trees.unflatten(structure, [ref[...] for ref in refs])

        return run_scoped(body, *types)

    return run
