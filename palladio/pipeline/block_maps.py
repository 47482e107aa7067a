"""Block maps from specifications and array types.

Each spec is checked against its array, and its index map is traced.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from palladio.array import convert
from palladio.base import trees
from palladio.base.errors import PalladioError, PalladioTypeError, PalladioValueError
from palladio.ir.core import Literal, Program, Var
from palladio.ops.grid import Blocked, BlockMap, BoundedSlice, Indirect, Squeezed
from palladio.pipeline.specs import BlockSpec, ParsedGrid, no_block_spec
from palladio.trace.functions import (
    call_user,
    counted,
    function_location,
    function_name,
    positional_names,
    shown_signature,
)
from palladio.trace.grid import GridAxes, enclosing_axes, grid_axes
from palladio.trace.indices import Slice
from palladio.trace.reference import Reference
from palladio.trace.trace import stage
from palladio.trace.values import wrap
from palladio.types import dtypes
from palladio.types.types import ANY, SYNCHRONISING, ArrayType, MemorySpace, RefType, Type

INDEX = ArrayType((), dtypes.INT32)


def check_parameters(kernel: Callable[..., Any], roles: Sequence[tuple[str, int]], keywords: Sequence[str]) -> None:
    """Check that a kernel takes one positional parameter for each reference.

    Args:
        roles: the roles of the references, in order, and the number of each: `("inputs", 2)`.
        keywords: the names of scratch buffers that are passed by keyword.

    Raises:
        PalladioTypeError: if it takes fewer or more.
    """
    try:
        signature = inspect.signature(kernel)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*[None] * sum(count for _, count in roles), **dict.fromkeys(keywords))
    except TypeError:
        given, positional = sum(count for _, count in roles), positional_names(kernel)
        references = ", ".join(counted(count, role.removesuffix("s")) for role, count in roles if count)
        by_keyword = f", and by keyword {', '.join(keywords)}" if keywords else ""
        raise PalladioTypeError(
            "the kernel takes other parameters than the call has references",
            argument="kernel",
            expected=f"{counted(given, 'reference')} ({references}){by_keyword}",
            got=f"{function_name(kernel)}{shown_signature(signature)}",
            jax=f"takes {counted(len(positional), 'positional argument')} but {given} were given",
            location=function_location(kernel),
        ) from None


def specs_for(argument: str, specs: Any, tree: Sequence[Any], count: int, *, semaphores: bool = False) -> list[Any]:
    """One spec per leaf of a sequence of arguments.

    Args:
        semaphores: whether they may be of semaphores.

    Raises:
        PalladioTypeError: specs that are not a tuple or list; one of barriers or semaphores.
        PalladioValueError: another number or structure of specs than of arrays.
    """
    if not isinstance(specs, (tuple, list)):
        raise PalladioTypeError("specs are a tuple with one entry per array", argument=argument, got=repr(specs))
    if len(specs) != len(tree):
        other = "inputs" if argument == "in_specs" else "out_shape"
        raise PalladioValueError(
            "one spec per array is needed",
            argument=argument,
            expected=counted(len(tree), "spec"),
            got=counted(len(specs), "spec"),
            jax=f"Pytree for `{argument}` and `{other}` do not match. There are 1 mismatches, including: `{argument}` "
            f"is a tuple of length {len(specs)} but `{other}` is a tuple of length {len(tree)}",
        )
    leaves = []
    for position, (spec, part) in enumerate(zip(specs, tree, strict=True)):
        flat, structure = trees.flatten(spec)
        parts, wanted = trees.flatten(part)
        names = trees.leaf_names(spec, f"{argument}[{position}]")
        for leaf, name in zip(flat or [spec], names or [f"{argument}[{position}]"], strict=True):
            if not isinstance(leaf, BlockSpec) and leaf is not no_block_spec and not (leaf is spec and not parts):
                raise PalladioTypeError(
                    "a spec is a BlockSpec", argument=name, got=repr(leaf), hint="BlockSpec() takes the whole array"
                )
            if isinstance(leaf, BlockSpec) and not semaphores:
                _require_array_space(leaf.memory_space, name)
        if len(flat) == 1 and flat[0] is spec:
            flat = [spec] * len(parts)
        elif structure != wanted:
            raise PalladioValueError(
                "the structure of the specs is not that of the arrays",
                argument=f"{argument}[{position}]",
                expected=trees.shown(wanted),
                got=trees.shown(structure),
            )
        leaves += [None if leaf is no_block_spec else leaf for leaf in flat]
    if len(leaves) != count:
        raise PalladioValueError("one spec per array is needed", argument=argument, expected=count, got=len(leaves))
    return leaves


def _require_array_space(space: Any, argument: str) -> None:
    """Refuse a memory space of barriers or semaphores for an input or output of a pipeline.

    Raises:
        PalladioTypeError: for such a space.
    """
    if isinstance(space, MemorySpace) and space in SYNCHRONISING:
        raise PalladioTypeError(
            "the blocks of a pipeline hold data, not barriers or semaphores",
            argument=argument,
            got=f"memory space {space.name}",
            hint="its body closes over semaphores",
        )


def _as_in_jax(origin: str) -> str:
    """JAX's name for the argument of a spec: `args[0]['one']` for `in_specs[0]['one'] (x_ref)`."""
    return origin.partition(" (")[0].replace("in_specs", "args", 1).replace("out_specs", "outputs", 1)


def _type_in_jax(type: ArrayType) -> str:
    return f"{type.dtype}[{','.join(map(str, type.shape))}]"


class GridSizeNeeded(Exception):
    """An index map uses the size of a dynamic grid axis, which is not among its scalars."""


class BlockMapper:
    """Makes block maps for one call: all index maps have the same grid and the same scalars.

    Args:
        scalars: the references that index maps get, after the grid indices. Those beyond the structure are the sizes
            of the dynamic grid axes.
        grid: the grid that `num_programs` refers to inside an index map.
        structure: that of the scalars as index maps get them; flat by default.
    """

    def __init__(
        self,
        grid_rank: int,
        scalars: Sequence[RefType],
        grid: ParsedGrid | None = None,
        structure: trees.Structure | None = None,
    ) -> None:
        self.grid_rank = grid_rank
        self.scalars = list(scalars)
        self.grid = grid
        self.structure = structure

    def block_map(self, spec: BlockSpec | None, array: ArrayType, origin: str) -> BlockMap:
        """The block map of a spec for an array.

        Args:
            origin: the name of the spec in errors: `in_specs[1] (x_ref)`.

        Raises:
            PalladioValueError: block shape of another rank than the array; index map with the wrong number of results.
            PalladioTypeError: index map with results that are not integers, or that captures an array.
        """
        space = (spec.memory_space if spec else None) or ANY
        if spec is None or (spec.dims is None and spec.index_map is None):
            whole = tuple(Blocked(extent) for extent in array.shape)
            return BlockMap(whole, RefType(array.shape, array.dtype, space), self.zeros(len(whole)))
        dims = tuple(Blocked(extent) for extent in array.shape) if spec.dims is None else spec.dims
        if len(dims) != array.ndim:
            raise PalladioValueError(
                "the block shape has another rank than the array",
                argument=origin,
                expected=f"{counted(array.ndim, 'entry')} for an array {array}",
                got=f"{counted(len(dims), 'entry')}: {spec.block_shape}",
                jax=f"Block shape for {_as_in_jax(origin)} (= {spec.block_shape}) must have the same number of "
                f"dimensions as the array shape {array.shape}",
            )
        shape = tuple(dim.block_size for dim in dims if not isinstance(dim, Squeezed))
        index_map = (
            self.zeros(self.results(dims)) if spec.index_map is None else self.traced(spec.index_map, dims, origin)
        )
        return BlockMap(dims, RefType(shape, array.dtype, space), index_map)

    @staticmethod
    def results(dims: Sequence[Any]) -> int:
        """The number of outputs of an index map's program."""
        return sum(2 if isinstance(dim, BoundedSlice) else 1 for dim in dims)

    def inputs(self) -> list[Any]:
        return [*[INDEX] * self.grid_rank, *self.scalars]

    def zeros(self, count: int) -> Program:
        """The index map that is zero everywhere."""
        inputs = tuple(Var(type) for type in self.inputs())
        return Program(inputs, (), tuple(Literal(0, dtypes.INT32) for _ in range(count)), "zeros")

    def traced(self, index_map: Callable[..., Any], dims: Sequence[Any], origin: str) -> Program:
        """The program of a user's index map, its results checked."""
        location = function_location(index_map)
        called_with = counted(self.grid_rank, "grid index")
        if self.scalars:
            count = len(self.scalars) if self.structure is None else self.structure.num_children
            called_with += f" and {counted(count, 'reference')} to prefetched scalars" if count else ""

        def flat(*values: Any) -> list[Any]:
            ids, scalars = values[: self.grid_rank], values[self.grid_rank :]
            convert.mark_nonnegative(*ids)
            with grid_axes(self.axes(ids, scalars)):
                result = call_user(index_map, (*ids, *self.given(scalars)), {}, "the index map", called_with, origin)
            try:
                return self.checked(result, dims, origin)
            except PalladioError as error:
                error.location = error.location or location
                if error.jax:
                    place = f" at {location.file}:{location.line}" if location else ""
                    named = f"{function_name(index_map)}{place} for {_as_in_jax(origin)}"
                    error.jax = f"Index map function {named} {error.jax}"
                raise

        def refuse(captured: Type) -> PalladioTypeError:
            return PalladioTypeError(
                "an index map must not capture arrays",
                argument=origin,
                got=f"captures {captured}",
                hint="pass integer arrays through PrefetchScalarGridSpec",
            )

        name = function_name(index_map).strip("<>") or "index_map"
        staged = stage(flat, self.inputs(), wrap, name=name, refuse=refuse, location=location)
        if any(effect.kind.value != "read" for effect in staged.program.effects):
            raise PalladioValueError(
                "an index map may read its scalars, not write them", argument=origin, location=location
            )
        return staged.program

    def given(self, scalars: Sequence[Any]) -> Sequence[Any]:
        """The scalars as index maps get them."""
        if self.structure is None:
            return scalars
        return trees.unflatten(self.structure, scalars[: self.structure.num_leaves])  # type: ignore[no-any-return]

    def axes(self, ids: Sequence[Any], scalars: Sequence[Any]) -> GridAxes:
        """The grid as an index map sees it."""
        if self.grid is None:
            return enclosing_axes()
        sizes = iter(scalars[self.structure.num_leaves :] if self.structure is not None else ())

        def needed() -> Any:
            raise GridSizeNeeded

        def size(known: Any) -> Any:
            if isinstance(known, int):
                return known
            ref = next(sizes, None)
            return needed if ref is None else ref.get

        return GridAxes(tuple(ids), tuple(map(size, self.grid.sizes)), self.grid.names)

    def checked(self, result: Any, dims: Sequence[Any], origin: str) -> list[Any]:
        """The flat results of an index map."""
        results = list(result) if isinstance(result, (tuple, list)) else [result]
        if len(results) != len(dims):
            raise PalladioValueError(
                "the index map gives another number of indices than the block shape has entries",
                argument=origin,
                expected=counted(len(dims), "index"),
                got=counted(len(results), "index"),
                jax=f"must return {len(dims)} values to match the block shape. "
                f"Currently returning {len(results)} values.",
            )
        flat: list[Any] = []
        for axis, (value, dim) in enumerate(zip(results, dims, strict=True)):
            if isinstance(dim, BoundedSlice):
                if not isinstance(value, Slice):
                    raise PalladioTypeError(
                        f"index {axis} belongs to a BoundedSlice",
                        argument=origin,
                        expected="ds(start, size)",
                        got=repr(value),
                        jax="Must return a pl.ds from the index_map for a BoundedSlice dimension.",
                    )
                flat += [self.integer(value.start, (), axis, origin), self.integer(value.size, (), axis, origin)]
            else:
                if isinstance(dim, Indirect) and isinstance(value, Reference):
                    value = value[...]
                flat.append(self.integer(value, (dim.block_size,) if isinstance(dim, Indirect) else (), axis, origin))
        return flat

    @staticmethod
    def integer(value: Any, shape: tuple[int, ...], axis: int, origin: str) -> Any:
        try:
            found = convert.array_type(value)
        except PalladioTypeError:
            found = None
        if found is None or not dtypes.is_integer(found.dtype) or found.shape != shape:
            wanted = "an integer scalar" if shape == () else f"an integer array of shape {shape}"
            got = str(found) if found else f"{type(value).__name__}: {value!r:.40}"
            raise PalladioTypeError(
                f"index {axis} of the index map is of the wrong kind",
                argument=origin,
                expected=wanted,
                got=got,
                jax=f"must return integer scalars. Output[{axis}] has type {_type_in_jax(found)}" if found else None,
            )
        return value
