"""Calls of concurrent programs: what `kernel` and `mpmd_map` make of meshes and bodies, and how they run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from palladio.array import convert
from palladio.array.foreign import all_to_numpy, common_library, from_numpy, to_numpy
from palladio.base import trees
from palladio.base.errors import PalladioError, PalladioTypeError, PalladioValueError, at_call
from palladio.call.mapping import check_parameters, parameter_names
from palladio.call.mesh import dynamic_sizes, mesh_shape
from palladio.call.outputs import Outputs
from palladio.driver.cache import PreparedCache
from palladio.driver.compile import load
from palladio.driver.executors import Runner, choose
from palladio.driver.fingerprint import Remembered, Unkeyable
from palladio.ir.bind import bind, form
from palladio.ir.program import Program, Var
from palladio.ops.launch import INDEX, Launch, launch
from palladio.trace.debug import checks_enabled
from palladio.trace.functions import call_user, counted, function_location, function_name
from palladio.trace.grid import GridAxes, enclosing_axes, grid_axes
from palladio.trace.hardware import limits_enabled
from palladio.trace.reference import Reference
from palladio.trace.trace import Staged, Traced, current_trace, stage
from palladio.trace.unions import unpacked
from palladio.trace.values import wrap
from palladio.types import dtypes
from palladio.types.types import ArrayType, MemorySpace, RefType, Type


@dataclass(frozen=True)
class Prepared:
    """A call that was traced: the parameters of its `launch`, what its programs captured, and what runs it."""

    launch: Launch
    programs: tuple[Program, ...]
    captured: tuple[Any, ...]
    run: Runner | None


PREPARED: PreparedCache[Prepared] = PreparedCache()


class LaunchCall:
    """A prepared way to launch programs on meshes. Calling it with arrays runs them.

    Args:
        bodies, meshes: one mesh for each body.
        scratch: pytrees of descriptions; a mapping is passed by keyword.
        aliases: from flat inputs to flat outputs.
    """

    def __init__(
        self,
        bodies: Sequence[Callable[..., None]],
        meshes: Sequence[Any],
        outputs: Outputs,
        scratch: Any,
        aliases: tuple[tuple[int, int], ...] = (),
        *,
        what: str,
        name: str | None,
        debug: bool,
        interpret: Any,
    ) -> None:
        self.bodies = tuple(bodies)
        self.meshes = tuple(meshes)
        self.outputs = outputs
        self.scratch = scratch
        self.aliases = aliases
        self.what = what
        self.debug = debug
        self.interpret = interpret
        self.__name__ = name or function_name(self.bodies[0])
        self.sizes = [size for mesh in self.meshes for size in dynamic_sizes(mesh)]
        self._remembered = Remembered()

    def __repr__(self) -> str:
        return f"{self.what}({self.__name__})"

    def __call__(self, *args: Any) -> Any:
        """Run the programs on arrays; returns the outputs, in the structure of `out_type`."""
        with at_call():
            leaves, structure = trees.flatten(args)
            if current_trace() is not None:
                return self._form(args, leaves)
            values = all_to_numpy(leaves, args, "args")
            sizes = [_checked_size(np.asarray(size)) for size in self.sizes]
            types = tuple(ArrayType(value.shape, value.dtype) for value in values)
            run = self._prepared(args, structure, types).run
            results = run([*sizes, *values]) if run else ()
            library = common_library(leaves)
            if library != "numpy":
                results = [from_numpy(result, library) for result in results]
            return self._returned(results)

    def _returned(self, results: Sequence[Any]) -> Any:
        return trees.unflatten(self.outputs.structure, results) if self.outputs.types else None

    def _form(self, args: tuple[Any, ...], leaves: Sequence[Any]) -> Any:
        """The launch as an equation of the program being traced."""
        names = trees.leaf_names(args, "args")
        values = [
            leaf if isinstance(leaf, (Traced, Reference)) else to_numpy(leaf, name)
            for leaf, name in zip(leaves, names, strict=True)
        ]
        for leaf, name in zip(values, names, strict=True):
            if isinstance(leaf, Reference) and not isinstance(leaf, Traced):
                raise PalladioTypeError(
                    "a part of a reference cannot be passed to a launch", argument=name, got=repr(leaf)
                )
        types = [leaf.palladio_type if isinstance(leaf, Traced) else convert.array_type(leaf) for leaf in values]
        made = _Builder(self, args, types, nested=True).build()
        sizes = [convert.cast(size, dtypes.INT32) for size in self.sizes]
        operands = [*sizes, *values, *made.captured]
        return self._returned(bind(launch, *operands, launch=made.launch, programs=made.programs))

    def _prepared(self, args: Any, structure: Hashable, types: tuple[ArrayType, ...]) -> Prepared:
        executor = choose(self.interpret)
        key: Hashable | None
        try:
            found = self._remembered.fingerprint(self.bodies, self.meshes, self.scratch, self.outputs.spaces)
            key = (
                found,
                self.what,
                structure,
                types,
                self.outputs.types,
                self.aliases,
                executor,
                checks_enabled(),
                limits_enabled(),
            )
        except Unkeyable:
            key = None
        if self.debug:
            key = None

        def prepare() -> Prepared:
            made = _Builder(self, args, types, nested=False).build()
            inputs = tuple(Var(type) for type in (*[INDEX] * made.launch.dynamic, *types))
            params = {"launch": made.launch, "programs": made.programs}
            eqn = form(launch, inputs, params, made.programs[0].location)
            program = Program(inputs, (eqn,), eqn.outputs, self.__name__, made.programs[0].location)
            dump = (lambda text: print(text, file=sys.stdout)) if self.debug else None
            return Prepared(made.launch, made.programs, (), load(program, executor, dump))

        return PREPARED.get(key, prepare)

    def program(self, *args: Any) -> Program:
        """The first body's program, traced for arguments of these shapes and dtypes; nothing runs."""
        with at_call():
            leaves, _ = trees.flatten(args)
            types = [convert.array_type(leaf) for leaf in leaves]
            return _Builder(self, args, types, nested=False).build().programs[0]


def _checked_size(size: Any) -> Any:
    if size < 1:
        raise PalladioValueError("the size of a mesh axis is at least 1", argument="grid", got=int(size))
    return np.int32(size)


def scratch_type(leaf: Any, position: int) -> RefType:
    """The type of one entry of `scratch_types`."""
    found = getattr(leaf, "ref_type", None)
    if not isinstance(found, RefType):
        raise PalladioTypeError(
            "scratch is described by a memory space, a shape and a dtype",
            argument=f"scratch_types[{position}]",
            expected="such as plgpu.SMEM(shape, dtype), plgpu.ACC((m, n)) or plgpu.Barrier()",
            got=repr(leaf),
        )
    return found


class _Builder:
    """Builds the parameters of one `launch`."""

    def __init__(self, call: LaunchCall, args: Sequence[Any], types: Sequence[Type], nested: bool) -> None:
        self.call = call
        self.args = args
        self.types = list(types)
        self.nested = nested
        self.space: MemorySpace = call.meshes[0].default_memory_space

    def build(self) -> Prepared:
        """The launch and its programs."""
        call = self.call
        leaves, tree = trees.flatten(call.scratch)
        scratch = tuple(scratch_type(leaf, n) for n, leaf in enumerate(leaves))
        self.check_aliases()
        shapes = tuple(map(mesh_shape, call.meshes))
        outputs = tuple(
            RefType(type.shape, type.dtype, space or self.space)
            for type, space in zip(call.outputs.types, call.outputs.spaces, strict=True)
        )
        made = Launch(shapes, call.outputs.types, outputs, scratch, call.aliases)
        staged = [self.stage(made, number, tree) for number in range(len(call.bodies))]
        programs, captured = self.with_common_captures(made, staged)
        return Prepared(made, programs, captured, None)

    def seen(self, type: Type) -> Type:
        """How a program sees an argument: arrays through references."""
        return RefType(type.shape, type.dtype, self.space) if isinstance(type, ArrayType) else type

    def check_aliases(self) -> None:
        for source, target in self.call.aliases:
            if source >= len(self.types):
                raise PalladioValueError(
                    "names an input that the call does not have",
                    argument="input_output_aliases",
                    expected=f"an input below {len(self.types)}",
                    got=source,
                )
            given, wanted = self.types[source], self.call.outputs.types[target]
            if given != wanted:
                raise PalladioValueError(
                    f"input {source} and output {target} are aliased but differ",
                    argument="input_output_aliases",
                    expected=str(wanted),
                    got=str(given),
                )

    def stage(self, made: Launch, number: int, scratch_tree: Any) -> Staged:
        """Trace one body."""
        call, body, mesh = self.call, self.call.bodies[number], made.meshes[number]
        first, rank = made.indices(number), len(mesh.axes)
        refs = [*map(self.seen, self.types), *made.output_refs, *made.scratch]
        types: list[Type] = [*[INDEX] * first, *refs]
        structure = trees.flatten((tuple(self.args), call.outputs.tree if call.outputs.types else ()))[1]
        arrays = len(self.types) + len(made.output_refs)

        def flat(*values: Any) -> Sequence[Any]:
            ids, extra, given = values[:rank], iter(values[rank:first]), values[first:]
            sizes = tuple(next(extra) if axis.size is None else axis.size for axis in mesh.axes)
            args, outs = trees.unflatten(structure, given[:arrays])
            buffers = unpacked(trees.flatten(call.scratch)[0], given[arrays:])
            scratch = trees.unflatten(scratch_tree, buffers)
            keywords = dict(scratch) if isinstance(scratch, Mapping) else {}
            positional = () if keywords else scratch if isinstance(scratch, (tuple, list)) else (scratch,)
            names = tuple(axis.name or None for axis in mesh.axes)
            outer = enclosing_axes()
            kinds = tuple(axis.kind for axis in mesh.axes)
            axes = GridAxes((*ids, *outer.ids), (*sizes, *outer.sizes), (*names, *outer.names), (*kinds, *outer.kinds))
            with grid_axes(axes):
                expected = counted(len(args) + len(outs) + len(positional), "reference")
                result = call_user(body, (*args, *outs, *positional), keywords, f"the {call.what} body", expected)
            if result is not None:
                raise PalladioTypeError(
                    f"the body {function_name(body)} of {call.what} must return None; it writes to its references",
                    got=f"returns {result!r:.60}",
                    location=function_location(body),
                )
            return ()

        self.check_parameters(body)
        location = function_location(body)
        return stage(
            flat,
            types,
            wrap,
            name=function_name(body),
            hints=[*self.index_hints(made, number), *self.ref_hints(body, made)],
            refuse=self.refuse_capture(body),
            location=location,
        )

    def check_parameters(self, body: Callable[..., Any]) -> None:
        """The body has a parameter for everything that it gets."""
        scratch = self.call.scratch
        named = list(scratch) if isinstance(scratch, Mapping) else []
        buffers = 0 if named else len(scratch) if isinstance(scratch, (tuple, list)) else 1
        outputs = len(self.call.outputs.tree) if self.call.outputs.types else 0
        check_parameters(body, [("inputs", len(self.args)), ("outputs", outputs), ("scratch buffers", buffers)], named)

    @staticmethod
    def index_hints(made: Launch, number: int) -> list[str]:
        axes = made.meshes[number].axes
        return [axis.name or f"i{n}" for n, axis in enumerate(axes)] + [
            f"n{n}" for n, axis in enumerate(axes) if axis.size is None
        ]

    def ref_hints(self, body: Callable[..., Any], made: Launch) -> list[str]:
        """The body's parameter names for references that are parameters by themselves."""
        names = parameter_names(body)
        outputs = self.call.outputs.tree if self.call.outputs.types else ()
        scratch = self.call.scratch
        positional = (
            () if isinstance(scratch, Mapping) else scratch if isinstance(scratch, (tuple, list)) else (scratch,)
        )
        hints: list[str] = []
        for position, part in enumerate((*self.args, *outputs, *positional)):
            leaves = trees.flatten(part)[0]
            name = names[position] if position < len(names) else ""
            hints += [name if len(leaves) == 1 else f"{name}_{n}" for n in range(len(leaves))]
        if isinstance(scratch, Mapping):
            for name, part in scratch.items():
                leaves = trees.flatten(part)[0]
                hints += [name if len(leaves) == 1 else f"{name}_{n}" for n in range(len(leaves))]
        return hints

    def refuse_capture(self, body: Callable[..., Any]) -> Callable[[Type], PalladioError | None]:
        def refuse(captured: Type) -> PalladioError | None:
            if self.nested and (isinstance(captured, RefType) or captured.shape == ()):
                return None
            return PalladioTypeError(
                f"the body {function_name(body)} of {self.call.what} captures an array",
                got=str(captured),
                hint="only scalars and references may be closed over; pass arrays as arguments",
            )

        return refuse

    @staticmethod
    def with_common_captures(made: Launch, staged: Sequence[Staged]) -> tuple[tuple[Program, ...], tuple[Any, ...]]:
        """The programs with one list of captures, which join the shared operands."""
        captured = {id(value): value for each in staged for value in each.captured}
        programs = []
        behind = len(made.output_refs) + len(made.scratch)
        for each in staged:
            inputs = each.program.inputs
            count = len(inputs) - len(each.captured)
            own = {id(value): var for value, var in zip(each.captured, inputs[count:], strict=True)}
            extra = tuple(own.get(key) or Var(value.palladio_type) for key, value in captured.items())
            cut = count - behind
            program = each.program
            order = (*inputs[:cut], *extra, *inputs[cut:count])
            programs.append(Program(order, program.eqns, program.outputs, program.name, program.location))
        return tuple(programs), tuple(captured.values())
