"""The operands of a pipeline: an array in global memory, its blocks, and the slots that hold some of them at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from palladio.array import convert
from palladio.array.functions.creation import arange
from palladio.base import trees
from palladio.base.dataclass import dataclass
from palladio.base.errors import PalladioTypeError, PalladioValueError
from palladio.ir.bind import bind
from palladio.ops.arrays import arithmetic
from palladio.ops.grid import BlockDim, Blocked, BoundedSlice, Element, Indirect, Squeezed
from palladio.pipeline.block_maps import specs_for
from palladio.pipeline.schedule import BlockWalk, GridSteps, Turn, is_known
from palladio.pipeline.specs import BlockSpec, Buffered, no_block_spec
from palladio.trace.functions import counted
from palladio.trace.gpu.copies import OOBFillMode
from palladio.trace.indices import Slice
from palladio.trace.reference import Reference
from palladio.types.types import MemoryRef, MemorySpace


class PipelineOperand:
    """One input or output of a pipeline.

    Args:
        name: its name in errors, e.g. `in_specs[0]`.
        ref: the array.
        spec: None for the whole array.
        slots: how many blocks it holds at a time, unless its spec says otherwise.
        space: where the slots are, unless its spec says otherwise.

    Fields:
        turn: when its block changes.
        slots, declared: its number of slots, and the number it would have with enough steps.
        delay: how many steps after its last use a slot may be written again; None for the pipeline's default.
        axes: cluster axes along which the blocks share its copies.
        prefetched: the number of first steps whose blocks are in the slots before the pipeline begins.
        fetched_first: whether a block of an output is fetched when it begins.
    """

    def __init__(
        self, name: str, ref: Reference, spec: BlockSpec | None, steps: GridSteps, slots: int, space: MemorySpace
    ) -> None:
        shape = ref.shape
        dims = spec.dims if spec is not None and spec.dims is not None else tuple(map(Blocked, shape))
        if len(dims) != len(shape):
            raise PalladioValueError(
                "the block shape has another rank than the array",
                argument=name,
                expected=f"{counted(len(shape), 'entry')} for {ref.array}",
                got=f"{counted(len(dims), 'entry')}: {spec.block_shape if spec else shape}",
            )
        self.name = name
        self.ref = ref
        self.spec = spec
        self.dims: tuple[BlockDim, ...] = dims
        self.walk = BlockWalk(steps, spec.index_map if spec else None, dims, name)
        self.space = (spec.memory_space if spec else None) or space
        self.delay: int | None = getattr(spec, "delay_release", None)
        self.axes: tuple[str, ...] = getattr(spec, "collective_axes", ())
        self.fill: OOBFillMode | None = getattr(spec, "oob_fill_mode", None)
        self.turn = self.walk.turn
        mode = spec.pipeline_mode if spec else None
        self.lookahead = isinstance(mode, Buffered) and mode.use_lookahead and self.turn is Turn.BY_INDEX
        self.declared = mode.buffer_count if isinstance(mode, Buffered) else slots
        self.slots = 1 if self.turn is Turn.NEVER else min(self.declared, steps.known or self.declared)
        self.prefetched = mode.prefetched_count if isinstance(mode, Buffered) else 0
        self.fetched_first = False

    def fetch_in_each_call(self) -> None:
        """Fetch blocks anew in every call of a chained pipeline: a slot may still be in use by the previous call."""
        self.turn = Turn.BY_INDEX if self.turn is Turn.NEVER else self.turn
        self.slots = self.declared

    def use_slots(self, slots: int, prefetched: int, lookahead: bool) -> None:
        """Use slots that the caller has allocated, some of which hold blocks already."""
        self.declared = slots
        self.slots = 1 if self.turn is Turn.NEVER else slots
        self.prefetched = prefetched
        self.lookahead = self.lookahead or (lookahead and self.turn is Turn.BY_INDEX)

    @property
    def block_shape(self) -> tuple[int, ...]:
        """The shape of a block, squeezed axes left out."""
        return tuple(dim.block_size for dim in self.dims if not isinstance(dim, Squeezed))

    @property
    def tracked(self) -> bool:
        """True if the number of blocks before a step is known only at run time."""
        return self.turn is Turn.BY_INDEX

    @property
    def label(self) -> str:
        """The name of its slots in reports and timelines."""
        return f"{self.ref.root.palladio_var.hint or 'array'}_blocks"

    @property
    def described(self) -> MemoryRef:
        """The slots, `dtype[slots, *block]`."""
        shape = (self.slots, *self.block_shape)
        return MemoryRef(shape, self.ref.dtype, self.space, getattr(self.spec, "transforms", ()))

    def slot(self, step: Any, number: Any) -> Any:
        """The slot of a block.

        Args:
            step: a step that uses it, counted since its slots were last all empty.
            number: the number of blocks before it since then, of a tracked operand.
        """
        if self.slots == 1:
            return 0
        return (number if self.tracked else step) % self.slots

    def window(self, step: Any) -> Reference:
        """The block of a step in the array. Elements outside are filled when read and dropped when written."""
        values = iter(self.walk.block(step))
        cut: list[Any] = []
        gathered: list[tuple[int, Any]] = []
        for dim, extent in zip(self.dims, self.ref.shape, strict=True):
            first = next(values)
            match dim:
                case Blocked(size):
                    cut.append(_slice(first * size, size, extent))
                case Element(size, (before, _)):
                    cut.append(_slice(first - before, size, extent))
                case BoundedSlice(size):
                    gathered.append((self._axis(cut), _bounded(first, next(values), size, extent)))
                    cut.append(slice(None))
                case Indirect():
                    gathered.append((self._axis(cut), first))
                    cut.append(slice(None))
                case Squeezed():
                    cut.append(first)
        found: Reference = self.ref.at[tuple(cut)]
        for axis, elements in gathered:
            found = found.at[(*(slice(None) for _ in range(axis)), elements)]
        return found

    @staticmethod
    def _axis(cut: Sequence[Any]) -> int:
        """The next axis to cut."""
        return sum(isinstance(each, (slice, Slice)) for each in cut)


def _slice(start: Any, size: int, extent: int) -> Slice:
    """A slice that may reach outside its axis, which one with a static start may not."""
    if is_known(start) and not 0 <= start <= extent - size:
        start = bind(arithmetic.add, np.int32(start), np.int32(0))[0]
    return Slice(start, size)


def _bounded(start: Any, size: Any, most: int, extent: int) -> Any:
    """The elements from `start` on, `size` of them, then `extent`, which is outside the axis."""
    steps = arange(most)
    return np.where(steps < size, start + steps, np.int32(extent))


@dataclass
class Passed:
    """An array that is not copied.

    Fields:
        ref: the array.
        operand: its blocks, if its spec has a block shape.
    """

    ref: Reference
    operand: PipelineOperand | None


class Arrays:
    """The operands of a pipeline, and the references to them that its body gets.

    Fields:
        inputs, outputs: the operands that the pipeline copies.
    """

    def __init__(
        self,
        steps: GridSteps,
        in_specs: Any,
        out_specs: Any,
        refs: Sequence[Any],
        slots: int,
        space: MemorySpace,
        passed: Sequence[MemorySpace],
    ) -> None:
        ins, outs = _sequence("in_specs", in_specs), _sequence("out_specs", out_specs)
        if len(refs) != len(ins) + len(outs):
            raise PalladioValueError(
                "a pipeline is called with one reference for each spec",
                expected=f"{counted(len(ins), 'input')} and {counted(len(outs), 'output')}",
                got=counted(len(refs), "argument"),
            )
        self.trees: list[trees.Structure] = []
        self.all: list[PipelineOperand | Passed] = []
        self.inputs: list[PipelineOperand] = []
        self.outputs: list[PipelineOperand] = []
        parts = (("in_specs", ins, refs[: len(ins)], self.inputs), ("out_specs", outs, refs[len(ins) :], self.outputs))
        for argument, specs, given, kept in parts:
            leaves, structure = trees.flatten(tuple(given))
            self.trees.append(structure)
            names = trees.leaf_names(tuple(given), argument)
            found = specs_for(argument, specs, given, len(leaves))
            for name, ref, spec in zip(names, leaves, found, strict=True):
                if not isinstance(ref, Reference):
                    raise PalladioTypeError(
                        "a pipeline works on references", argument=name, got=f"{type(ref).__name__}: {ref!r:.60}"
                    )
                if spec is not None and spec.memory_space in passed:
                    blocks = None if spec.dims is None else PipelineOperand(name, ref, spec, steps, 1, space)
                    self.all.append(Passed(ref, blocks))
                    continue
                operand = PipelineOperand(name, ref, spec, steps, slots, space)
                kept.append(operand)
                self.all.append(operand)

    def arguments(self, blocks: Sequence[Any], step: Any = None) -> list[Any]:
        """The references that the body gets.

        Args:
            blocks: the slots of the operands, in order.
            step: the step whose blocks of the uncopied arrays it gets; None for whole arrays.
        """
        rest = iter(blocks)
        leaves = [
            next(rest)
            if isinstance(each, PipelineOperand)
            else each.ref
            if each.operand is None or step is None
            else each.operand.window(step)
            for each in self.all
        ]
        inputs = self.trees[0].num_leaves
        return [
            *trees.unflatten(self.trees[0], leaves[:inputs]),
            *trees.unflatten(self.trees[1], leaves[inputs:]),
        ]


def _sequence(argument: str, specs: Any) -> tuple[Any, ...]:
    if isinstance(specs, BlockSpec) or specs is no_block_spec:
        return (specs,)
    if not isinstance(specs, (tuple, list)):
        raise PalladioTypeError("specs are a tuple with one entry per array", argument=argument, got=repr(specs))
    return tuple(specs)


class Carry:
    """A pytree passed from step to step: its arrays as a loop's carry, its references unchanged."""

    def __init__(self, tree: Any) -> None:
        self.leaves, self.structure = trees.flatten(tree)
        self.fixed = [isinstance(leaf, Reference) for leaf in self.leaves]

    @property
    def arrays(self) -> list[Any]:
        """The values that a loop carries."""
        return [leaf for leaf, fixed in zip(self.leaves, self.fixed, strict=True) if not fixed]

    def tree(self, arrays: Sequence[Any]) -> Any:
        """The pytree with these arrays."""
        rest = iter(arrays)
        leaves = [leaf if fixed else next(rest) for leaf, fixed in zip(self.leaves, self.fixed, strict=True)]
        return trees.unflatten(self.structure, leaves)

    def returned(self, result: Any, carried: Sequence[Any], what: str) -> list[Any]:
        """The arrays of the body's result for `carried`: a pytree of the same structure, with the same references."""
        leaves, structure = trees.flatten(result)
        if structure != self.structure:
            raise PalladioTypeError(
                f"the body of {what} must return a carry of the structure that it takes",
                expected=trees.shown(self.structure),
                got=trees.shown(structure),
            )
        for new, old, fixed in zip(leaves, self.leaves, self.fixed, strict=True):
            if fixed and new is not old:
                raise PalladioTypeError(
                    "a reference in the carry goes round as it is", expected=repr(old), got=repr(new)
                )
        arrays = [leaf for leaf, fixed in zip(leaves, self.fixed, strict=True) if not fixed]
        for new, old in zip(arrays, carried, strict=True):
            given, wanted = convert.array_type(new), convert.array_type(old)
            weak = convert.is_weak(new) or convert.is_weak(old)
            if given.shape != wanted.shape or (given.dtype != wanted.dtype and not weak):
                raise PalladioTypeError(
                    f"the body of {what} must return the types of its carry", expected=str(wanted), got=str(given)
                )
        return arrays
