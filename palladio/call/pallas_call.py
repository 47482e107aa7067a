"""`pallas_call`: a kernel over references to blocks, run for every point of a grid."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any, overload

import numpy as np

from palladio.array import convert
from palladio.array.foreign import described, refuse_numbers, to_numpy
from palladio.base import trees
from palladio.base.calls import checked_call
from palladio.base.dataclass import dataclass
from palladio.base.errors import PalladioError, PalladioTypeError, PalladioValueError, at_call
from palladio.call.ahead import ONE_RESULT
from palladio.call.cost import CostEstimate
from palladio.call.inline.on_core import launched_grid, takes_semaphores
from palladio.call.inline.semaphores import only_counts
from palladio.call.inline.written import cores_of_grid, inlined_grid, is_inlining
from palladio.call.last_call import LastCall
from palladio.call.out_arrays import checked_buffers
from palladio.call.outputs import Outputs, check_aliased_types, checked_aliases, warn_of_unwritten
from palladio.call.staged import loaded, prepared, returned
from palladio.call.tpu.info import described as described_tpu
from palladio.call.tpu.info import described_cores
from palladio.driver.executors import Executor, choose, request
from palladio.driver.fingerprint import Hashed
from palladio.ir.bind import bind
from palladio.ir.core import Program
from palladio.ir.evaluate import Runner
from palladio.ops.grid import Grid, grid_call
from palladio.pipeline.block_maps import BlockMapper, GridSizeNeeded, check_parameters, specs_for
from palladio.pipeline.params import advice_of
from palladio.pipeline.specs import LARGEST_GRID_SIZE, BlockSpec, GridSpec, ParsedGrid, no_block_spec, parse_grid
from palladio.trace.array_refs import SemaphoresNeeded
from palladio.trace.debug import chosen_checks
from palladio.trace.functions import counted, function_location, function_name, positional_names
from palladio.trace.gpu.rounds import carried_out_in_rounds
from palladio.trace.grid import GridAxes, grid_axes
from palladio.trace.trace import Traced, current_trace, stage
from palladio.trace.values import wrap
from palladio.types import dtypes
from palladio.types.effects import EffectKind
from palladio.types.scratch import SemaphoreKind
from palladio.types.types import ANY, GMEM, HBM, HOST, SCALAR, ArrayType, MemoryRef, RefType, Shape, Type

INDEX = ArrayType((), dtypes.INT32)
_ARRAY = {np.ndarray}
_PARALLEL = ("parallel", "core_parallel", "subcore_parallel")


@dataclass(frozen=True)
class Prepared:
    """A traced call: the parameters of its `grid_call`, and its runner on one executor."""

    grid: Grid
    kernel: Program
    run: Runner | None
    sized: bool = False
    """The sizes of its dynamic grid axes are prefetched too, after the caller's scalars."""

    def operands(self, sizes: Sequence[Any], values: Sequence[Any]) -> list[Any]:
        """The operands of the `grid_call`: sizes of dynamic axes, scalars, arrays."""
        if not self.sized:
            return [*sizes, *values]
        scalars = self.grid.scalars - len(sizes)
        return [*sizes, *values[:scalars], *sizes, *values[scalars:]]


@overload
def pallas_call(
    kernel: Callable[..., None],
    out_shape: Any = ...,
    *,
    grid_spec: GridSpec | None = None,
    grid: Any = (),
    in_specs: Any = no_block_spec,
    out_specs: Any = no_block_spec,
    scratch_shapes: Any = (),
    input_output_aliases: Mapping[int, int] | None = None,
    debug: bool = False,
    interpret: Any = None,
    name: str | None = None,
    compiler_params: Any = None,
    cost_estimate: CostEstimate | None = None,
    metadata: Mapping[str, Any] | None = None,
    out_type: Any = ...,
    scratch_types: Any = None,
) -> PallasCall: ...


@overload
def pallas_call(
    kernel: None = None,
    out_shape: Any = ...,
    *,
    grid_spec: GridSpec | None = None,
    grid: Any = (),
    in_specs: Any = no_block_spec,
    out_specs: Any = no_block_spec,
    scratch_shapes: Any = (),
    input_output_aliases: Mapping[int, int] | None = None,
    debug: bool = False,
    interpret: Any = None,
    name: str | None = None,
    compiler_params: Any = None,
    cost_estimate: CostEstimate | None = None,
    metadata: Mapping[str, Any] | None = None,
    out_type: Any = ...,
    scratch_types: Any = None,
) -> Callable[[Callable[..., None]], PallasCall]: ...


@checked_call
def pallas_call(
    kernel: Callable[..., None] | None = None,
    out_shape: Any = ...,
    *,
    grid_spec: GridSpec | None = None,
    grid: Any = (),
    in_specs: Any = no_block_spec,
    out_specs: Any = no_block_spec,
    scratch_shapes: Any = (),
    input_output_aliases: Mapping[int, int] | None = None,
    debug: bool = False,
    interpret: Any = None,
    name: str | None = None,
    compiler_params: Any = None,
    cost_estimate: CostEstimate | None = None,
    metadata: Mapping[str, Any] | None = None,
    out_type: Any = ...,
    scratch_types: Any = None,
) -> Any:
    """A function of arrays that runs `kernel` once for every point of a grid.

    The kernel gets references, in order: to the prefetched scalars, to a block of each input, to a block of each
    output, and to the scratch buffers. It returns nothing: it writes to its outputs. A block that reaches past the edge
    of its array reads uninitialised values there (NaN, the least integer), and writes there are dropped.

    Args:
        kernel: the kernel; left out, `pallas_call` is a decorator.
        out_shape: a pytree of `ShapeDtypeStruct` (or anything with shape and dtype), None for a kernel without outputs;
            also spelled `out_type`.
        grid: the size of each axis, or (name, size) pairs; the last axis runs fastest. An axis may be dynamic: a 0-d
            integer array.
        in_specs, out_specs: a `BlockSpec` for each input and output, in their structure. Whole arrays by default.
        scratch_shapes: buffers that persist over the grid's steps, e.g. `pltpu.VMEM((128, 128), jnp.float32)`;
            also spelled `scratch_types`. A mapping is passed by keyword.
        grid_spec: a `GridSpec` or `PrefetchScalarGridSpec` in place of the four above.
        input_output_aliases: from a flat input to the flat output that is one memory with it.
        debug: print the program after each stage.
        interpret: True for the evaluator, or the name of an executor.
        name, metadata, cost_estimate, compiler_params: information for tools and compilers; results do not
            depend on them. `compiler_params.dimension_semantics` says which grid axes are "parallel" and which
            "arbitrary".

    Returns:
        A function of the input arrays (pytrees of NumPy, PyTorch or JAX arrays) that returns arrays of their kind in
        the structure of `out_shape`. The inputs are never changed.

    Raises:
        PalladioError: for arguments that break a rule, before anything runs; each names the argument and the caller's
            line.
    """
    out_shape = out_type if out_shape is ... else out_shape
    scratch_shapes = scratch_types if scratch_types is not None else scratch_shapes
    with at_call():
        if grid_spec is not None:
            if not isinstance(grid_spec, GridSpec):
                raise PalladioTypeError(
                    "a grid_spec is a GridSpec or a PrefetchScalarGridSpec", argument="grid_spec", got=repr(grid_spec)
                )
            _refuse_beside_grid_spec(grid, in_specs, out_specs, scratch_shapes)
        spec = grid_spec or GridSpec(grid, in_specs, out_specs, scratch_shapes)
        parsed = parse_grid(spec.grid)
        if out_shape is ...:
            raise PalladioTypeError(
                "a kernel call needs the shapes of its outputs",
                argument="out_shape",
                hint="ShapeDtypeStruct(shape, dtype); None for a kernel without outputs",
            )
        outputs = Outputs(out_shape)
        choose(interpret)
        parallel, advice = _advised(compiler_params, len(parsed.sizes))
        aliases = checked_aliases(input_output_aliases or {}, len(outputs.types))

    def of(function: Callable[..., None]) -> PallasCall:
        with at_call():
            if not callable(function):
                raise PalladioTypeError("a kernel is a function of references", argument="kernel", got=repr(function))
        label = name or function_name(function)
        return PallasCall(function, outputs, spec, parsed, aliases, parallel, advice, debug, interpret, label)

    return of if kernel is None else of(kernel)


def _refuse_beside_grid_spec(grid: Any, in_specs: Any, out_specs: Any, scratch_shapes: Any) -> None:
    given = {"grid": grid not in ((), None), "in_specs": in_specs is not no_block_spec}
    given |= {"out_specs": out_specs is not no_block_spec, "scratch_shapes": bool(scratch_shapes)}
    for argument, present in given.items():
        if present:
            raise PalladioValueError("is in the grid_spec already; give one of the two", argument=argument)


def _advised(compiler_params: Any, rank: int) -> tuple[tuple[bool, ...], tuple[tuple[str, Any], ...]]:
    """The parallel axes that compiler parameters name, and their other entries."""
    advice = dict(advice_of(compiler_params, mappings=True))
    return _parallel_axes(advice.pop("dimension_semantics", None), rank), tuple(advice.items())


def _parallel_axes(semantics: Any, rank: int) -> tuple[bool, ...]:
    if semantics is None:
        return (False,) * rank
    names = list(semantics)
    unknown = [entry for entry in names if entry not in (*_PARALLEL, "arbitrary", "sequential")]
    if unknown or len(names) != rank:
        raise PalladioValueError(
            'one of "parallel" and "arbitrary" for each grid axis',
            argument="compiler_params.dimension_semantics",
            expected='"parallel" or "arbitrary"' if unknown else counted(rank, "entry"),
            got=repr(unknown[0]) if unknown else names,
        )
    return tuple(entry in _PARALLEL for entry in names)


class CapturesReference(PalladioTypeError):
    """A kernel closes over references: the call becomes a launch on one core. Never shown to users."""


def _cores(parallel: Sequence[bool]) -> int:
    """The cores of the described TPU that share the parallel axes of a grid; 0 if one executes all steps."""
    cores, first = described_cores(), sum(parallel)
    return cores if cores > 1 and first and all(parallel[:first]) else 0


class PallasCall:
    """A prepared way to call a kernel; `pallas_call` makes it. Calling it with arrays runs the kernel."""

    def __init__(
        self,
        kernel: Callable[..., None],
        outputs: Outputs,
        spec: GridSpec,
        grid: ParsedGrid,
        aliases: tuple[tuple[int, int], ...],
        parallel: tuple[bool, ...],
        advice: tuple[tuple[str, Any], ...],
        debug: bool,
        interpret: Any,
        name: str,
    ) -> None:
        self.kernel = kernel
        self.outputs = outputs
        self.spec = spec
        self.grid = grid
        self.aliases = aliases
        self.parallel = parallel
        self.advice = advice
        self.debug = debug
        self.interpret = interpret
        self.__name__ = name
        self._with_semaphores = takes_semaphores(self)
        self._remembered = LastCall()
        self._has_one_result = outputs.structure == ONE_RESULT
        sizes = tuple(size if isinstance(size, int) else None for size in grid.sizes)
        # Hashed on every call, so it is one number, followed by its parts.
        self._fixed = Hashed((sizes, grid.names, outputs.types, outputs.structure, outputs.spaces))

    def __repr__(self) -> str:
        return f"pallas_call({self.__name__})"

    @checked_call
    def __call__(self, *args: Any, out: Any = None) -> Any:
        """Run the kernel on arrays; returns the outputs.

        Args:
            args: pytrees of arrays, one for each input.
            out: arrays for the results, in the structure of `out_shape`: NumPy arrays or PyTorch tensors in row-major
                order. They are returned. None may overlap another or an input, except the input that it aliases.
        """
        with at_call():
            try:
                if self._with_semaphores:
                    args = only_counts(args)
                if carried_out_in_rounds() and (cores := cores_of_grid(self)) > 1:
                    return launched_grid(self, args, out, cores)
                if self._with_semaphores and not is_inlining():
                    return launched_grid(self, args, out)
                return self._call(args, out)
            except (CapturesReference, SemaphoresNeeded):
                return launched_grid(self, args, out)
            except PalladioError as error:
                self._name_argument(error)
                raise

    def _call(self, args: tuple[Any, ...], out: Any) -> Any:
        leaves: Sequence[Any] = args
        structure: Hashable = len(args)  # in place of the structure of a flat tuple: an integer is hashed faster
        plain = {*map(type, args)} <= _ARRAY
        if plain and out is None and not is_inlining() and current_trace() is None:
            last = self._remembered.find(self.interpret, args, self._parts())
            if last is not None:
                results = last.results(args)
                return results[0] if self._has_one_result else trees.unflatten(self.outputs.structure, results)
        if not plain:
            refuse_numbers(args, "args")
            leaves, found = trees.flatten(args)
            structure = structure if found == trees.row(len(args)) else found
        sizes = [size for size in self.grid.sizes if not isinstance(size, int)]
        if is_inlining() or (
            current_trace() is not None and any(isinstance(leaf, Traced) for leaf in (*leaves, *sizes))
        ):
            return self._form(args, leaves, structure, sizes, out)
        executor = choose(self.interpret, leaves)
        state = self._remembered.state(self.interpret, executor) if plain else None
        values = executor.arrays(leaves, args, "args")
        sizes = [self._checked_size(np.asarray(size)) for size in sizes]
        types = tuple([(value.shape, value.dtype) for value in values])
        keys: list[Hashable] = []
        made = self._prepared(args, structure, types, executor, False, keys)
        run = made.run
        if state is not None and keys and run is not None and not sizes and not made.sized:
            self._remembered.note(state, types, keys[0], run, self._has_one_result)
        if out is not None:
            buffers = checked_buffers(out, self.outputs.structure, self.outputs.types, values, self.aliases)
            if run is not None:
                run(made.operands(sizes, values), buffers)
            return out
        results = run(made.operands(sizes, values)) if run else ()
        return returned(results, leaves, self.outputs.structure)

    def _form(
        self, args: tuple[Any, ...], leaves: Sequence[Any], structure: Hashable, sizes: Sequence[Any], out: Any
    ) -> Any:
        """The call as an equation of the program being traced; in the program of a device, inlined."""
        request(self.interpret)
        if is_inlining():
            return inlined_grid(self, args)
        if out is not None:
            raise PalladioTypeError(
                "a call on traced values has no arrays to write to", argument="out", got=type(out).__name__
            )
        names = trees.leaf_names(args, "args")
        values = [
            leaf if isinstance(leaf, Traced) else to_numpy(leaf, name) for leaf, name in zip(leaves, names, strict=True)
        ]
        types = [convert.array_type(value) for value in values]
        shapes = tuple((type.shape, type.dtype) for type in types)
        made = self._prepared(args, structure, shapes, choose(self.interpret), True)
        operands = made.operands([convert.cast(size, dtypes.INT32) for size in sizes], values)
        results = bind(grid_call, *operands, grid=made.grid, kernel=made.kernel)
        return trees.unflatten(self.outputs.structure, results)

    def program(self, *args: Any) -> Program:
        """The kernel's program, traced for arguments of these shapes and dtypes; nothing runs.

        Its inputs are the grid indices and the sizes of dynamic axes, all i32[], then the kernel's references.

        Args:
            args: as in a call; a `ShapeDtypeStruct` may replace an array.
        """
        with at_call():
            leaves, _ = trees.flatten(args)
            names = trees.leaf_names(args, "args")
            return _Builder(self, args, [described(leaf, name) for leaf, name in zip(leaves, names)]).build()[1]

    def _name_argument(self, error: PalladioError) -> None:
        """Add the kernel's name for an argument to an error about it: `args[1] (y_ref)`."""
        found = re.match(r"args\[(\d+)\]", error.argument or "")
        names = positional_names(self.kernel) if found else []
        if found and int(found[1]) < len(names):
            error.argument = f"{error.argument} ({names[int(found[1])]})"

    def _checked_size(self, size: Any) -> Any:
        if size < 1:
            raise PalladioValueError("a grid size is at least 1", argument="grid", got=int(size))
        if size > LARGEST_GRID_SIZE:
            raise PalladioValueError("a grid index is an int32", argument="grid", got=int(size))
        return np.int32(size)

    def _prepared(
        self,
        args: Sequence[Any],
        structure: Hashable,
        shapes: tuple[tuple[Shape, dtypes.DType], ...],
        executor: Executor,
        traced: bool,
        keys: list[Hashable] | None = None,
    ) -> Prepared:
        """The prepared call for arguments of this structure and these shapes and dtypes.

        Args:
            keys: gets the fingerprint, if there is one.
        """

        def key() -> Hashable:
            environment = executor.key, chosen_checks(), described_tpu()
            fingerprint = self._remembered.fingerprint(*self._parts())
            if keys is not None:
                keys.append(fingerprint)
            return ("grid", (fingerprint, self._fixed), structure, shapes, environment, traced)

        def build() -> Prepared:
            types = [ArrayType(shape, dtype) for shape, dtype in shapes]
            builder = _Builder(self, args, types)
            grid, kernel = builder.build()
            made = Prepared(grid, kernel, None, bool(builder.sizes))
            outputs = grid.split(kernel.inputs).outputs
            warn_of_unwritten(self.__name__, grid.output_types, grid.aliases, [kernel], [outputs])
            if traced:
                return made
            inputs = made.operands([INDEX] * grid.dynamic, types)
            params = {"grid": grid, "kernel": kernel}
            return replace(made, run=loaded(grid_call, params, inputs, self.__name__, executor, self.debug, kernel))

        return prepared(key, build, self.kernel, keep=not self.debug, warn=current_trace() is None)

    def _parts(self) -> tuple[Any, ...]:
        """The objects that the fingerprint is of."""
        spec = self.spec
        return (
            self.kernel,
            spec.num_scalar_prefetch,
            spec.in_specs,
            spec.out_specs,
            spec.scratch_shapes,
            self.aliases,
            self.parallel,
            self.advice,
        )


def _stays(spec: Any) -> bool:
    """True of a specification that leaves an array where it is, whole, instead of blocks."""
    return isinstance(spec, BlockSpec) and spec.block_shape is None and spec.memory_space in (ANY, GMEM, HBM, HOST)


class _Builder:
    """Builds the parameters of one `grid_call` from a call's specs and the types of its arguments."""

    def __init__(self, call: PallasCall, args: Sequence[Any], types: Sequence[ArrayType]) -> None:
        self.call = call
        self.args = args
        self.types = list(types)
        self.names = positional_names(call.kernel)
        count = call.spec.num_scalar_prefetch
        if len(args) < count:
            raise PalladioValueError(
                "fewer arguments than prefetched scalars", argument="args", expected=f"at least {count}", got=len(args)
            )
        leaves, self.structure = trees.flatten(tuple(args[:count]))
        self.scalars = len(leaves)
        self.sizes = 0  # of dynamic grid axes, among the scalars

    def name(self, position: int) -> str:
        """The kernel's name for its parameter at a position, in brackets, if it has one."""
        return f" ({self.names[position]})" if position < len(self.names) else ""

    def build(self) -> tuple[Grid, Program]:
        """The grid and the kernel's program."""
        try:
            return self.built()
        except GridSizeNeeded:
            self.sizes = sum(not isinstance(size, int) for size in self.call.grid.sizes)
            return self.built()

    def built(self) -> tuple[Grid, Program]:
        """The grid and the kernel's program, with the sizes of dynamic axes among the scalars or without."""
        call, count = self.call, self.call.spec.num_scalar_prefetch
        scalars = [RefType(type.shape, type.dtype, SCALAR) for type in self.types[: self.scalars]]
        scalars += [RefType((), dtypes.INT32, SCALAR)] * self.sizes
        check_aliased_types(self.call.aliases, self.types, self.call.outputs.types)
        mapper = BlockMapper(len(call.grid.sizes), scalars, call.grid, self.structure)
        arrays = self.types[self.scalars :]
        tree = tuple(self.args[count:])
        in_specs = call.spec.in_specs
        specs = (
            [None] * len(arrays) if in_specs is no_block_spec else specs_for("in_specs", in_specs, tree, len(arrays))
        )
        inputs = self.block_maps(mapper, "in_specs", specs, arrays, tree, count)
        out_specs = call.outputs.specs(call.spec.out_specs, len(call.outputs.types))
        outputs = self.block_maps(
            mapper, "out_specs", out_specs, call.outputs.types, call.outputs.tree, count + len(tree)
        )
        self.in_place = [*[False] * self.scalars, *(block.stays for block in (*inputs, *outputs))]
        scratch, scratch_tree = trees.flatten(call.spec.scratch_shapes)
        grid = Grid(
            tuple(size if isinstance(size, int) else None for size in call.grid.sizes),
            len(scalars),
            tuple(inputs),
            tuple(outputs),
            call.outputs.types,
            tuple(self.scratch_type(leaf, n) for n, leaf in enumerate(scratch)),
            tuple((source + self.sizes * (source >= self.scalars), target) for source, target in call.aliases),
            call.parallel,
            advice=call.advice,
            cores=_cores(call.parallel),
        )
        kernel = self.kernel(grid, scalars, scratch_tree)
        self.refuse_writes_to_aliased(grid, kernel)
        return grid, kernel

    def block_maps(
        self,
        mapper: BlockMapper,
        argument: str,
        specs: Sequence[Any],
        types: Sequence[ArrayType],
        tree: Any,
        first: int,
    ) -> list[Any]:
        """The block maps of the inputs or outputs.

        `first` is the position of the first one among the kernel's parameters.
        """
        origins = []
        for position, part in enumerate(tree):
            where = f"{argument}[{position}]"
            origins += [name + self.name(first + position) for name in trees.leaf_names(part, where)]
        return [
            replace(mapper.block_map(spec, type, origin), stays=_stays(spec))
            for spec, type, origin in zip(specs, types, origins, strict=True)
        ]

    def scratch_type(self, leaf: Any, position: int) -> RefType:
        if not isinstance(leaf, (MemoryRef, SemaphoreKind)):
            raise PalladioTypeError(
                "scratch is described by a memory space, a shape and a dtype",
                argument=f"scratch_shapes[{position}]",
                expected="such as pltpu.VMEM(shape, dtype)",
                got=repr(leaf),
            )
        return leaf.ref_type

    def kernel(self, grid: Grid, scalars: Sequence[RefType], scratch_tree: Any) -> Program:
        """Trace the kernel."""
        call = self.call
        rank, dynamic = len(grid.sizes), grid.dynamic
        blocks = [block.ref for block in (*grid.inputs, *grid.outputs)]
        types: list[Type] = [*[INDEX] * (rank + dynamic), *scalars, *blocks, *grid.scratch]
        hints = [f"i{axis}" for axis in range(rank)] + [
            f"n{axis}" for axis, size in enumerate(grid.sizes) if size is None
        ]
        structure = trees.flatten((self.args, call.outputs.tree))[1]
        no_output = self.without_output()

        def flat(*values: Any) -> Sequence[Any]:
            ids, extra, given = values[:rank], iter(values[rank : rank + dynamic]), values[rank + dynamic :]
            refs: Sequence[Any] = (*given[: self.scalars], *given[self.scalars + self.sizes :])
            sizes = tuple(next(extra) if size is None else size for size in grid.sizes)
            arrays = len(refs) - len(grid.scratch)
            refs = self.with_one_memory(refs)
            args, outs = trees.unflatten(structure, refs[:arrays])
            outs = (*outs, *no_output)
            scratch = trees.unflatten(scratch_tree, refs[arrays:])
            keywords = dict(scratch) if isinstance(scratch, Mapping) else {}
            positional = () if keywords else scratch if isinstance(scratch, (tuple, list)) else (scratch,)
            with grid_axes(GridAxes(ids, sizes, call.grid.names)):
                result = call.kernel(*args, *outs, *positional, **keywords)
            if result is not None:
                place = function_location(call.kernel)
                where = f" at {place.file}:{place.line}" if place is not None else ""
                raise PalladioTypeError(
                    f"the kernel {call.__name__} must return None; it writes to its output references",
                    argument="kernel",
                    got=f"returns {result!r:.60}",
                    jax=f"The kernel function of {call.__name__}{where} should return None",
                    location=place,
                )
            return ()

        hints += self.ref_hints()
        self.check_parameters()
        location = function_location(call.kernel)
        staged = stage(
            flat, types, wrap, name=call.__name__, hints=hints, refuse=self.refuse_capture, location=location
        )
        return staged.program

    def with_one_memory(self, refs: Sequence[Any]) -> tuple[Any, ...]:
        """The references; an input that stays in main memory shares the one of the output that aliases it."""
        found = list(refs)
        for source, output in self.call.aliases:
            if self.in_place[source] and self.in_place[len(self.types) + output]:
                found[source] = refs[len(self.types) + output]
        return tuple(found)

    def refuse_writes_to_aliased(self, grid: Grid, kernel: Program) -> None:
        """Refuse a write to the block of an aliased input, which is a copy: kernels write to the output."""
        first = len(grid.sizes) + grid.dynamic
        for source, output in grid.aliases:
            given, made = kernel.inputs[first + source], kernel.inputs[first + grid.scalars + len(grid.inputs) + output]
            for eqn in kernel.eqns:
                if any(var is given and kind is not EffectKind.READ for kind, var in eqn.effects):
                    raise PalladioTypeError(
                        "the kernel writes to an input that an output aliases",
                        argument=f"input_output_aliases={{{source}: {output}}}",
                        got=f"a write to {given.hint}",
                        hint=f"write to {made.hint}: it starts with the values of the input",
                        location=eqn.location,
                    )

    def check_parameters(self) -> None:
        """Check that the kernel has a parameter for every reference that it gets."""
        call, count = self.call, self.call.spec.num_scalar_prefetch
        scratch = call.spec.scratch_shapes
        named = list(scratch) if isinstance(scratch, Mapping) else []
        buffers = 0 if named else len(scratch) if isinstance(scratch, (tuple, list)) else 1
        outputs = len(call.outputs.tree) + len(self.without_output())
        roles = [("prefetched scalars", count), ("inputs", len(self.args) - count), ("outputs", outputs)]
        check_parameters(call.kernel, [*roles, ("scratch buffers", buffers)], named)

    def without_output(self) -> tuple[None, ...]:
        """The None for `out_shape=None`, if the kernel requires one parameter more than it has inputs."""
        if not self.call.outputs.absent or self.call.spec.scratch_shapes:
            return ()
        return (None,) * (len(positional_names(self.call.kernel, defaults=False)) == len(self.args) + 1)

    def ref_hints(self) -> list[str]:
        """The kernel's parameter names, for references that are whole parameters."""
        hints = []
        for position, part in enumerate((*self.args, *self.call.outputs.tree)):
            leaves = trees.flatten(part)[0]
            name = self.names[position] if position < len(self.names) else ""
            hints += [name if len(leaves) == 1 else f"{name}_{n}" for n in range(len(leaves))]
        hints[self.scalars : self.scalars] = [f"size_{n}" for n in range(self.sizes)]
        scratch = self.call.spec.scratch_shapes
        if isinstance(scratch, Mapping):
            return [*hints, *(re.findall(r"\w+", path)[-1] for path in trees.leaf_names(scratch))]
        position = len(self.args) + len(self.call.outputs.tree)
        return [*hints, *self.names[position : position + len(trees.flatten(scratch)[0])]]

    def refuse_capture(self, captured: Type) -> PalladioTypeError:
        if isinstance(captured, RefType):
            return CapturesReference("a kernel of a grid closes over a reference")
        return PalladioTypeError(
            f"the kernel {self.call.__name__} captures an array constant",
            argument="kernel",
            got=str(captured),
            hint="pass it as an input, or make it of jnp.arange, jnp.full and their like; only scalars may be captured",
            jax=f"The kernel function {self.call.__name__} captures constants",
        )
