"""Calls of concurrent programs: `kernel` and `mpmd_map` make them from meshes and bodies."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from palladio.array import convert
from palladio.array.foreign import refuse_numbers, to_numpy
from palladio.base import trees
from palladio.base.calls import checked_call
from palladio.base.dataclass import dataclass
from palladio.base.errors import (
    PalladioError,
    PalladioNotImplementedError,
    PalladioTypeError,
    PalladioValueError,
    at_call,
)
from palladio.call.inline.semaphores import local_semaphores, with_counts, with_values
from palladio.call.inline.written import inlined_launch, is_inlining
from palladio.call.launch.mesh import dynamic_sizes, mesh_shape
from palladio.call.launch.scratch_owners import check_owners, owners, scratch_type
from palladio.call.out_arrays import checked_buffers
from palladio.call.outputs import Outputs, check_aliased_types, warn_of_unwritten
from palladio.call.staged import loaded, prepared, returned
from palladio.call.tpu.info import described as described_tpu
from palladio.driver.executors import Executor, choose, request
from palladio.driver.fingerprint import Remembered
from palladio.ir.bind import bind
from palladio.ir.core import Program, Var
from palladio.ir.evaluate import Runner
from palladio.ops.threads.launch import INDEX, Launch, MeshAxis, launch
from palladio.pipeline.block_maps import check_parameters
from palladio.trace.array_refs import ArrayRef, KeptSemaphores, Semaphores, SemaphoresNeeded
from palladio.trace.debug import chosen_checks
from palladio.trace.dma import Cores, among_cores
from palladio.trace.functions import call_user, counted, function_location, function_name, positional_names
from palladio.trace.gpu.global_semaphores import GlobalNeeded, with_globals
from palladio.trace.gpu.hardware import limits_enabled
from palladio.trace.gpu.rounds import carried_out_in_rounds, result_of_round
from palladio.trace.grid import GridAxes, enclosing_axes, grid_axes
from palladio.trace.reference import Reference, TransformedReference
from palladio.trace.trace import Staged, Traced, current_trace, stage
from palladio.trace.unions import unpacked
from palladio.trace.values import wrap
from palladio.types import dtypes
from palladio.types.attributes import Owner
from palladio.types.types import SEMAPHORE, SYNCHRONISING, ArrayType, MemorySpace, Owned, RefType, Type


@dataclass(frozen=True)
class Prepared:
    """A traced call: the parameters of its `launch`, the values that its programs captured, and its runner."""

    launch: Launch
    programs: tuple[Program, ...]
    captured: tuple[Any, ...]
    run: Runner | None


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
        self.advice: tuple[tuple[str, Any], ...] = ()
        self.gpus = 0
        self.what = what
        self.debug = debug
        self.interpret = interpret
        self.__name__ = name or function_name(self.bodies[0])
        self.sizes = [size for mesh in self.meshes for size in dynamic_sizes(mesh)]
        # Two meshes may be equal, so scratch ownership goes by position.
        self.owners = owners(trees.flatten(scratch)[0], self.meshes)
        self._remembered = Remembered()

    def __repr__(self) -> str:
        return f"{self.what}({self.__name__})"

    @checked_call
    def __call__(self, *args: Any, out: Any = None) -> Any:
        """Run the programs on arrays; returns the outputs, in the structure of `out_type`.

        Args:
            args: pytrees of arrays, one for each input.
            out: arrays for the results, as in a call of `pallas_call`. They are returned.
        """
        if carried_out_in_rounds():
            with at_call():
                self._require_own_semaphores()
            return result_of_round(self, args)
        with at_call():
            refuse_numbers(args, "args")
            leaves, structure = trees.flatten(args)
            if KeptSemaphores in map(type, leaves):
                args = with_counts(args)
                leaves, structure = trees.flatten(args)
            if current_trace() is not None:
                if out is not None:
                    raise PalladioTypeError(
                        "a call on traced values has no arrays to write to", argument="out", got=type(out).__name__
                    )
                return self._form(args, leaves)
            refs = {n: leaf for n, leaf in enumerate(leaves) if isinstance(leaf, ArrayRef)}
            _require_once(leaves, trees.leaf_names(args, "args") if refs else [""] * len(leaves))
            arrays = [leaf.palladio_array if n in refs else leaf for n, leaf in enumerate(leaves)]
            executor = choose(self.interpret, arrays)
            values = executor.arrays(arrays, args, "args")
            sizes = [_checked_size(np.asarray(size)) for size in self.sizes]
            kinds = [ArrayType(value.shape, value.dtype) for value in values]
            types = tuple(refs[n].palladio_type if n in refs else kind for n, kind in enumerate(kinds))
            made = self._prepared(args, structure, types, executor)
            captured = [ref.palladio_array for ref in made.captured]
            given = [*sizes, *values, *captured]
            if out is not None:
                buffers = checked_buffers(out, self.outputs.structure, self.outputs.types, values, self.aliases)
                if made.run:
                    made.run(given, buffers)
                return out
            results = made.run(given) if made.run else ()
            return self._returned(results, arrays)

    def _require_own_semaphores(self) -> None:
        if self.outputs.semaphores:
            raise PalladioNotImplementedError(
                "where all devices launch together, semaphores end with their launch",
                argument="out_type",
                got=f"{len(self.outputs.semaphores)} of them",
                hint="scratch_types, or pl.run_scoped in the launch",
            )

    def _returned(self, results: Sequence[Any], leaves: Sequence[Any] = ()) -> Any:
        if not self.outputs.types:
            return None
        return with_values(self.outputs, returned(results, leaves, self.outputs.structure))

    def _form(self, args: tuple[Any, ...], leaves: Sequence[Any]) -> Any:
        """The launch as an equation of the program being traced; in the program of a device, inlined."""
        request(self.interpret)
        if is_inlining():
            return inlined_launch(self, args)
        if enclosing_axes().kinds:
            self._require_within()
        names = trees.leaf_names(args, "args")
        values = [
            leaf if isinstance(leaf, (Traced, Reference)) else to_numpy(leaf, name)
            for leaf, name in zip(leaves, names, strict=True)
        ]
        views = {n: leaf for n, leaf in enumerate(values) if isinstance(leaf, TransformedReference)}
        values = [leaf.root if isinstance(leaf, TransformedReference) else leaf for leaf in values]
        _require_once(values, names)
        types = [leaf.palladio_type if isinstance(leaf, Reference) else convert.array_type(leaf) for leaf in values]
        made = _Builder(self, args, types, nested=True, views=views).build()
        self._warn_of_unwritten(made)
        of_warps = all(kind == "warp" for mesh in self.meshes for _, _, kind in mesh.axes)
        for leaf in (*values, *made.captured):
            space = leaf.palladio_type.space if isinstance(leaf, Reference) else None
            if space in SYNCHRONISING and not of_warps:
                raise PalladioNotImplementedError(
                    "a launch has semaphores and barriers of its own, none of the program around it",
                    got=repr(leaf),
                    hint="scratch_types, or pl.run_scoped in the launch",
                )
        passed = {id(leaf) for leaf in values}
        for leaf in made.captured:
            if id(leaf) in passed:
                raise PalladioValueError(
                    f"the body of {self.what} closes over a reference that is also passed to it",
                    got=repr(leaf),
                    hint="use the parameter",
                )
        sizes = [convert.cast(size, dtypes.INT32) for size in self.sizes]
        operands = [*sizes, *values, *made.captured]
        return self._returned(bind(launch, *operands, launch=made.launch, programs=made.programs))

    def _require_within(self) -> None:
        """Inside a kernel, the threads of a launch are parts of the one that launches them."""
        kinds = {kind for mesh in self.meshes for _, _, kind in mesh.axes}
        if not kinds <= {"thread", "warp"}:
            raise PalladioValueError(
                "inside a kernel only a mesh of warps can be launched",
                argument="mesh",
                got=", ".join(map(repr, self.meshes)),
            )
        if "warp" in enclosing_axes().kinds:
            kind = "mpmd_map" if self.what == "mpmd_map" else "core_map"
            raise PalladioValueError(
                "a warp has no warps of its own to launch",
                argument="mesh",
                got=", ".join(map(repr, self.meshes)),
                jax=f"Cannot {kind} over WarpMesh while already {kind}ped",
            )

    def _prepared(self, args: Any, structure: Hashable, types: tuple[Type, ...], executor: Executor) -> Prepared:
        def key() -> Hashable:
            return (
                "launch",
                self._remembered.fingerprint(self.bodies, self.meshes, self.scratch, self.outputs.spaces),
                self.what,
                structure,
                types,
                self.outputs.types,
                self.aliases,
                self.advice,
                self.gpus,
                self.owners,
                executor.key,
                chosen_checks(),
                limits_enabled(),
                described_tpu(),
            )

        def build() -> Prepared:
            made = _Builder(self, args, types, nested=False).build()
            self._warn_of_unwritten(made)
            inputs = [*[INDEX] * made.launch.dynamic, *types, *(ref.palladio_type for ref in made.captured)]
            params = {"launch": made.launch, "programs": made.programs}
            return replace(
                made, run=loaded(launch, params, inputs, self.__name__, executor, self.debug, made.programs[0])
            )

        return prepared(key, build, self.bodies[0], keep=not self.debug)

    def _warn_of_unwritten(self, made: Prepared) -> None:
        outputs = [made.launch.split(n, program.inputs).outputs for n, program in enumerate(made.programs)]
        warn_of_unwritten(self.__name__, made.launch.output_types, made.launch.aliases, made.programs, outputs)

    def program(self, *args: Any) -> Program:
        """The first body's program, traced for arguments of these shapes and dtypes; nothing runs."""
        with at_call():
            return self.programs(*args)[0]

    def programs(self, *args: Any) -> tuple[Program, ...]:
        """The programs of all bodies."""
        types = [convert.array_type(leaf) for leaf in trees.flatten(args)[0]]
        return _Builder(self, args, types, nested=False).build().programs


def _require_once(values: Sequence[Any], names: Sequence[str]) -> None:
    """Refuse a reference that is passed twice: the programs would not know that the two alias."""
    seen: dict[int, str] = {}
    for leaf, name in zip(values, names, strict=True):
        if isinstance(leaf, Reference) and seen.setdefault(id(leaf), name) != name:
            raise PalladioNotImplementedError(
                "one reference is passed twice",
                argument=name,
                got=f"the same as {seen[id(leaf)]}: {leaf!r}",
                jax="Cannot pass the same ref into a mpmd map multiple times",
            )


def _checked_size(size: Any) -> Any:
    if size < 1:
        raise PalladioValueError("the size of a mesh axis is at least 1", argument="grid", got=int(size))
    return np.int32(size)


def _require_one_core(meshes: Sequence[Any], got: Any) -> None:
    """Refuse a launch on several cores, or on a GPU, which cannot have semaphores that outlive it.

    Raises:
        PalladioNotImplementedError: for such a mesh.
    """
    for mesh in meshes:
        if len(meshes) > 1 or mesh.core_type == "gpu" or any(size != 1 for _, size, _ in mesh.axes):
            raise PalladioNotImplementedError(
                "semaphores and cores' memory that outlive a launch are those of a mesh of one core",
                argument="mesh",
                expected="such as pl.CoreMesh('core', 1)",
                got=f"{got} on {', '.join(map(repr, meshes))}",
                hint="allocate semaphores in the launch: scratch_types, or pl.run_scoped",
            )


class _Builder:
    """Builds the parameters of one `launch`."""

    def __init__(
        self,
        call: LaunchCall,
        args: Sequence[Any],
        types: Sequence[Type],
        nested: bool,
        views: Mapping[int, TransformedReference] | None = None,
    ) -> None:
        self.call = call
        self.args = args
        self.types = list(types)
        self.nested = nested
        self.views = views or {}
        self.space: MemorySpace = call.meshes[0].default_memory_space
        self.globals: list[RefType] = []
        self.kept: list[KeptSemaphores] = []

    def build(self) -> Prepared:
        """The launch and its programs."""
        while True:
            try:
                return self.built()
            except GlobalNeeded as needed:
                self.globals.append(needed.type)
            except SemaphoresNeeded as needed:
                self.kept.append(needed.semaphores)

    def built(self) -> Prepared:
        """The launch and its programs, with the global semaphores that are known so far."""
        call = self.call
        self.check_outliving()
        leaves, tree = trees.flatten(call.scratch)
        scratch = tuple(scratch_type(leaf, f"scratch_types[{n}]", call.meshes) for n, leaf in enumerate(leaves))
        check_aliased_types(self.call.aliases, self.types, self.call.outputs.types)
        shapes = tuple(map(mesh_shape, call.meshes))
        spaces = [space or self.space for space in call.outputs.arrays.spaces]
        own = (*scratch, *self.globals)
        made = Launch(
            shapes, call.outputs.types, (), (*own, *self.barriers()), call.aliases, advice=call.advice, gpus=call.gpus
        )
        self.check_parts(made.devices)
        parts = (made.part(type) for type in call.outputs.types)
        outputs = (RefType(part.shape, part.dtype, space) for part, space in zip(parts, spaces, strict=True))
        made = replace(made, output_refs=tuple(outputs))
        staged = [self.stage(made, number, tree) for number in range(len(call.bodies))]
        programs, captured = self.with_common_captures(made, staged)
        made, programs = without_unused_barriers(made, programs, len(own))
        for number, program in enumerate(programs):
            check_owners(made, number, program, [getattr(each.core_type, "name", "gpu") for each in call.meshes])
        return Prepared(made, programs, captured, None)

    def check_outliving(self) -> None:
        """Refuse semaphores, and memory of other cores, that outlive a launch on several cores."""
        spaces = [*self.call.outputs.semaphores.values(), *(each.space for each in self.kept)]
        trees.replaced(self.args, Semaphores, lambda value: spaces.append(value.space))
        if spaces:
            _require_one_core(self.call.meshes, spaces[0])
        for mesh in self.call.outputs.owners:
            _require_one_core([mesh], "an output")

    def barriers(self) -> list[RefType]:
        """For each mesh of cores, the semaphores of `get_barrier_semaphore`."""
        several = len(self.call.meshes) > 1
        meshes = enumerate(self.call.meshes)
        on_cores = [n for n, mesh in meshes if any(kind in ("device", "core") for _, _, kind in mesh.axes)]
        return [RefType((), dtypes.INT32, SEMAPHORE, (Owner(n),) if several else ()) for n in on_cores]

    def check_parts(self, devices: int) -> None:
        """Every array has a part for each device."""
        given = [type for type in self.types if isinstance(type, ArrayType)]
        named = [*((f"args[{n}]", type) for n, type in enumerate(given))]
        named += [(f"out_types[{n}]", type) for n, type in enumerate(self.call.outputs.types)]
        for argument, type in named:
            if type.shape and type.shape[0] % devices:
                raise PalladioValueError(
                    "arrays are split over the devices along their first axis",
                    argument=argument,
                    expected=f"a multiple of {devices}",
                    got=str(type),
                )

    def seen(self, made: Launch, type: Type) -> Type:
        """The type of an argument inside a program: arrays are seen through references."""
        if not isinstance(type, ArrayType):
            return type
        part = made.part(type)
        return RefType(part.shape, part.dtype, self.space)

    def stage(self, made: Launch, number: int, scratch_tree: Any) -> Staged:
        """Trace one body."""
        call, body, mesh = self.call, self.call.bodies[number], made.meshes[number]
        first, rank = made.indices(number), len(mesh.axes)
        refs = [*(self.seen(made, type) for type in self.types), *made.output_refs, *made.scratch]
        types: list[Type] = [*[INDEX] * first, *refs]
        structure = trees.flatten((tuple(self.args), call.outputs.tree if call.outputs.types else ()))[1]
        arrays = len(self.types) + len(made.output_refs)
        leaves = trees.flatten(call.scratch)[0]

        def flat(*values: Any) -> Sequence[Any]:
            ids, extra, given = values[:rank], iter(values[rank:first]), list(values[first:])
            for source, output in call.aliases:  # one memory, so one reference
                given[source] = given[len(self.types) + output]
            for source, view in self.views.items():
                given[source] = TransformedReference(given[source], view.transforms, view.operands)
            sizes = tuple(next(extra) if axis.size is None else axis.size for axis in mesh.axes)
            args, outs = trees.unflatten(structure, given[:arrays])
            described = [leaf.what if isinstance(leaf, Owned) else leaf for leaf in leaves]
            buffers = unpacked(described, given[arrays : arrays + len(leaves)])
            scratch = trees.unflatten(scratch_tree, buffers)
            keywords = dict(scratch) if isinstance(scratch, Mapping) else {}
            positional = () if keywords else scratch if isinstance(scratch, (tuple, list)) else (scratch,)
            names = tuple(axis.name or None for axis in mesh.axes)
            outer = enclosing_axes()
            kinds = tuple(axis.kind for axis in mesh.axes)
            beside = {each.name: each.size for other in made.meshes for each in other.axes if each.size is not None}
            beside = {name: size for name, size in beside.items() if name not in (*names, *outer.names)}
            axes = GridAxes(
                (*ids, *outer.ids), (*sizes, *outer.sizes), (*names, *outer.names), (*kinds, *outer.kinds), beside
            )
            more = given[arrays + len(leaves) :]
            shared, barriers = more[: len(self.globals)], more[len(self.globals) :]
            reached = among_cores(self.cores(made, number, barriers))
            allowed = with_globals(shared if len(call.bodies) == 1 and not barriers else None)
            expected = counted(len(args) + len(outs) + len(positional), "reference")
            outside = local_semaphores(
                args, outs, call.outputs.semaphores, self.kept, functools.partial(self.outlives, given)
            )
            with grid_axes(axes), reached, allowed, outside as (args, outs):
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

    def outlives(self, given: Sequence[Any], ref: Any) -> bool:
        """True if a reference is not to the value of an argument, whose changes nothing sees."""
        values = (isinstance(type, ArrayType) for type in self.types)
        return not any(value and ref is each for value, each in zip(values, given, strict=False))

    def cores(self, made: Launch, number: int, barriers: Sequence[Any]) -> Cores | None:
        """The cores that a program on a mesh of cores can access; None for one of GPU threads."""
        if not barriers:
            return None
        axes = {axis.name: axis for mesh in made.meshes for axis in mesh.axes}
        owners = {
            name: MeshAxis(name, size, kind) for mesh in self.call.outputs.owners for name, size, kind in mesh.axes
        }
        elsewhere = tuple(axis for name, axis in owners.items() if name not in axes)
        return Cores(tuple(axes.values()), barriers[number], elsewhere)

    def check_parameters(self, body: Callable[..., Any]) -> None:
        """Check that the body has a parameter for every reference that it gets."""
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
        """The body's parameter names, for references that are whole parameters."""
        names = positional_names(body)
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
            for name in trees.flatten(dict(zip(scratch, scratch, strict=True)))[0]:  # in the order of the leaves
                leaves = trees.flatten(scratch[name])[0]
                hints += [name if len(leaves) == 1 else f"{name}_{n}" for n in range(len(leaves))]
        return hints

    def refuse_capture(self, body: Callable[..., Any]) -> Callable[[Type], PalladioError | None]:
        def refuse(captured: Type) -> PalladioError | None:
            if isinstance(captured, RefType) or (self.nested and captured.shape == ()):
                return None
            return PalladioTypeError(
                f"the body {function_name(body)} of {self.call.what} captures an array",
                got=str(captured),
                hint="only scalars and references may be closed over; pass arrays as arguments",
                jax="You can only close over scalars and Refs: it captures non-Ref constants",
            )

        return refuse

    @staticmethod
    def with_common_captures(made: Launch, staged: Sequence[Staged]) -> tuple[tuple[Program, ...], tuple[Any, ...]]:
        """The programs with one list of captures, which join the shared operands."""
        captured = {id(value): value for each in staged for value in each.captured}
        programs = []
        following = len(made.output_refs) + len(made.scratch)
        for each in staged:
            inputs = each.program.inputs
            count = len(inputs) - len(each.captured)
            own = {id(value): var for value, var in zip(each.captured, inputs[count:], strict=True)}
            extra = tuple(own.get(key) or Var(value.palladio_type) for key, value in captured.items())
            cut = count - following
            program = each.program
            order = (*inputs[:cut], *extra, *inputs[cut:count])
            programs.append(Program(order, program.eqns, program.outputs, program.name, program.location))
        return tuple(programs), tuple(captured.values())


def without_unused_barriers(
    made: Launch, programs: tuple[Program, ...], scratch: int
) -> tuple[Launch, tuple[Program, ...]]:
    """The launch without the semaphores of `get_barrier_semaphore`, if no program uses one."""
    count = len(made.scratch) - scratch
    if not count or any(
        atom in program.inputs[-count:] for program in programs for eqn in program.eqns for atom in eqn.inputs
    ):
        return made, programs
    fewer = (replace(program, inputs=program.inputs[:-count]) for program in programs)
    return replace(made, scratch=made.scratch[:scratch]), tuple(fewer)
