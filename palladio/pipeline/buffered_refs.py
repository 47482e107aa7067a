"""The slots of a TPU pipeline as an object: allocated outside of it, and shared by several runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import Enum
from typing import Any

from palladio.base import trees
from palladio.base.dataclass import dataclass
from palladio.base.errors import PalladioTypeError, PalladioValueError, at_call
from palladio.ops.grid import Squeezed
from palladio.pipeline.operands import Arrays, Passed, PipelineOperand
from palladio.pipeline.specs import BlockSpec
from palladio.trace.reference import Reference
from palladio.types import dtypes
from palladio.types.scratch import SemaphoreType
from palladio.types.types import ANY, HBM, HOST, VMEM, MemoryRef, MemorySpace

PASSED = (ANY, HBM, HOST)
"""The memory spaces of arrays that a pipeline does not copy."""


class BufferType(Enum):
    """The direction in which the pipeline copies blocks."""

    INPUT = "input"
    OUTPUT = "output"
    INPUT_OUTPUT = "input and output"

    @property
    def is_input(self) -> bool:
        """True if blocks are fetched."""
        return self is not BufferType.OUTPUT

    @property
    def is_output(self) -> bool:
        """True if blocks are stored."""
        return self is not BufferType.INPUT


@dataclass(frozen=True, eq=False)
class BufferedRef:
    """The slots of one array of an `emit_pipeline`, and the semaphores of its copies.

    It is allowed in `scratch_shapes` and in `run_scoped`, which allocate the slots and semaphores, and is passed to
    the pipeline in `allocations=`. `BufferedRef.input`, `output` and `input_output` make one from a spec; a block of
    `input_output` is fetched when it begins, and stored when it ends.

    Fields:
        spec: the cut of the array into blocks.
        buffer_type: the direction of its copies.
        buffer_count: the number of slots; 0 for an array that is not copied.
        window_ref: the slots, `dtype[slots, *block]`: a description, or a reference to them.
        semaphores: one for each slot.
        prefetched_count: blocks of the first steps that are in the slots already.
        use_lookahead: fetch the next blocks however many steps ahead they begin.
    """

    spec: BlockSpec
    buffer_type: BufferType
    buffer_count: int
    window_ref: Any
    semaphores: Any
    prefetched_count: int = 0
    use_lookahead: bool = False

    @classmethod
    def create(
        cls,
        spec: BlockSpec,
        dtype_or_type: Any,
        buffer_type: BufferType,
        buffer_count: int | tuple[int, int],
        grid_rank: int | None = None,
        use_lookahead: bool = False,
        source_memory_space: MemorySpace = ANY,
        tiling: Any = None,
        is_trivial_windowing: bool = False,
        prefetched_count: int = 0,
    ) -> BufferedRef:
        """The description of the slots for an array.

        Args:
            spec: with a block shape, unless its memory space says that the array is not copied.
            dtype_or_type: the dtype of the array, or its type.
            buffer_type: the direction of its copies.
            buffer_count: the number of slots; a pair is for fetches and for stores.
            use_lookahead: as in `pl.Buffered`.
            source_memory_space: of the array.
            prefetched_count: blocks of the first steps that are fetched already, into the window that
                `with_window_ref` gives.
            grid_rank, tiling, is_trivial_windowing: accepted; without effect.

        Raises:
            PalladioTypeError: not a `BlockSpec` or `BufferType`.
            PalladioValueError: a spec without a block shape; fewer slots than prefetched blocks.
        """
        with at_call():
            if not isinstance(spec, BlockSpec):
                raise PalladioTypeError("the slots are those of a BlockSpec", argument="spec", got=repr(spec))
            if not isinstance(buffer_type, BufferType):
                raise PalladioTypeError("a direction is a BufferType", argument="buffer_type", got=repr(buffer_type))
            space = spec.memory_space or VMEM
            if space in PASSED or space is source_memory_space:
                return cls(spec, buffer_type, 0, None, None)
            shape = _block_shape(spec)
            slots = sum(buffer_count) - 1 if isinstance(buffer_count, tuple) else buffer_count
            if slots < 1 or prefetched_count > slots:
                raise PalladioValueError(
                    "there are at least as many slots as prefetched blocks, and at least one",
                    argument="buffer_count",
                    expected=f"at least {max(prefetched_count, 1)}",
                    got=slots,
                )
            named = isinstance(dtype_or_type, type)  # the types of NumPy have a property "dtype" for their scalars
            kind = dtypes.canonical(dtype_or_type if named else getattr(dtype_or_type, "dtype", dtype_or_type))
            window = MemoryRef((slots, *shape), kind, space) if prefetched_count == 0 else None
            semaphores = SemaphoreType.DMA((slots,))
            return cls(spec, buffer_type, slots, window, semaphores, prefetched_count, use_lookahead)

    @classmethod
    def input(cls, spec: BlockSpec, dtype_or_type: Any, buffer_count: int = 2, **kwargs: Any) -> BufferedRef:
        """The slots of an input. Arguments as in `create`."""
        return cls.create(spec, dtype_or_type, BufferType.INPUT, buffer_count, **kwargs)

    @classmethod
    def output(cls, spec: BlockSpec, dtype_or_type: Any, buffer_count: int = 2, **kwargs: Any) -> BufferedRef:
        """The slots of an output. Arguments as in `create`."""
        return cls.create(spec, dtype_or_type, BufferType.OUTPUT, buffer_count, **kwargs)

    @classmethod
    def input_output(
        cls, spec: BlockSpec, dtype_or_type: Any, buffer_count: int | tuple[int, int] = (2, 1), **kwargs: Any
    ) -> BufferedRef:
        """The slots of an array that the body reads and writes. Arguments as in `create`."""
        return cls.create(spec, dtype_or_type, BufferType.INPUT_OUTPUT, buffer_count, **kwargs)

    def with_spec(self, spec: BlockSpec) -> BufferedRef:
        """The same slots for another cut of the array, into blocks of the same shape."""
        return replace(self, spec=spec)

    def with_window_ref(self, window_ref: Any) -> BufferedRef:
        """The same with other slots: a reference `dtype[slots, *block]`; of one slot, also `dtype[*block]`."""
        return replace(self, window_ref=window_ref)

    @property
    def is_buffered(self) -> bool:
        """True if the array is copied."""
        return self.buffer_count > 0

    @property
    def is_input(self) -> bool:
        """True if blocks are fetched."""
        return self.buffer_type.is_input

    @property
    def is_output(self) -> bool:
        """True if blocks are stored."""
        return self.buffer_type.is_output

    @property
    def is_input_output(self) -> bool:
        """True if blocks are fetched and stored."""
        return self.buffer_type is BufferType.INPUT_OUTPUT

    @property
    def block_shape(self) -> tuple[Any, ...] | None:
        """The block shape of the spec."""
        return self.spec.block_shape

    @property
    def compute_index(self) -> Any:
        """The index map of the spec."""
        return self.spec.index_map


def _apart(ref: BufferedRef) -> tuple[Any, Any]:
    rest = ref.spec, ref.buffer_type, ref.buffer_count, ref.prefetched_count, ref.use_lookahead
    return (ref.window_ref, ref.semaphores), rest


def _together(rest: Any, children: Any) -> BufferedRef:
    spec, kind, count, prefetched, lookahead = rest
    window, semaphores = children
    return BufferedRef(spec, kind, count, window, semaphores, prefetched, lookahead)


trees.register(BufferedRef, _apart, _together)


def _block_shape(spec: BlockSpec) -> tuple[int, ...]:
    if spec.dims is None:
        raise PalladioValueError("the slots of an array need a block shape", argument="spec", got=repr(spec))
    return tuple(dim.block_size for dim in spec.dims if not isinstance(dim, Squeezed))


# The slots of a pipeline.


def allocations_of(arrays: Arrays) -> tuple[Any, ...]:
    """The slots that a pipeline needs for its arrays, in the structure of its references."""
    inputs, found = arrays.trees[0].num_leaves, []
    for number, each in enumerate(arrays.all):
        kind = BufferType.INPUT if number < inputs else BufferType.OUTPUT
        if isinstance(each, Passed):
            spec = each.operand.spec if each.operand is not None else None
            found.append(BufferedRef(spec or BlockSpec(memory_space=ANY), kind, 0, None, None))
            continue
        window = each.described if each.prefetched == 0 else None
        semaphores = SemaphoreType.DMA((each.slots,))
        spec = each.spec or BlockSpec(each.ref.shape)
        found.append(BufferedRef(spec, kind, each.slots, window, semaphores, each.prefetched, each.lookahead))
    return (
        *trees.unflatten(arrays.trees[0], found[:inputs]),
        *trees.unflatten(arrays.trees[1], found[inputs:]),
    )


def flat_allocations(given: Any) -> list[BufferedRef]:
    """The slots in `allocations=`, one for each array.

    Raises:
        PalladioTypeError: not a `BufferedRef`, or one whose slots are not allocated.
    """
    found: list[BufferedRef] = []

    def walk(each: Any, name: str) -> None:
        if isinstance(each, BufferedRef):
            _require_allocated(each, name)
            found.append(each)
        elif isinstance(each, (tuple, list)):
            for n, part in enumerate(each):
                walk(part, f"{name}[{n}]")
        elif isinstance(each, dict):
            for key in sorted(each):
                walk(each[key], f"{name}[{key!r}]")
        else:
            raise PalladioTypeError("the slots of a pipeline are BufferedRefs", argument=name, got=repr(each))

    walk(given, "allocations")
    return found


def _require_allocated(ref: BufferedRef, name: str) -> None:
    if not ref.is_buffered:
        return
    if ref.window_ref is None:
        raise PalladioValueError(
            "the window of prefetched blocks is missing",
            argument=name,
            got=f"prefetched_count={ref.prefetched_count}",
            hint="give the reference that they were fetched into: ref.with_window_ref(window)",
            jax="Expected external window buffer to be bound for prefetched input "
            f"(prefetched_count={ref.prefetched_count}), but window_ref is None.",
        )
    if not isinstance(ref.window_ref, Reference) or not isinstance(ref.semaphores, Reference):
        raise PalladioTypeError(
            "the slots of a pipeline are allocated first",
            argument=name,
            got=repr(ref.window_ref),
            hint="pl.run_scoped(lambda allocations: pipeline(*refs, allocations=allocations), make_allocations(*refs))",
        )


def specs_of(refs: Any) -> Any:
    """The specs of slots, in their structure."""
    if isinstance(refs, BufferedRef):
        return refs.spec
    if isinstance(refs, dict):
        return {key: specs_of(each) for key, each in refs.items()}
    return tuple(specs_of(each) for each in refs)


def inputs_among(allocations: Sequence[Any]) -> int:
    """The number of entries that are inputs only. They come first.

    Raises:
        PalladioValueError: an input after an output.
    """
    kinds = [{each.is_output for each in _leaves(entry)} == {False} for entry in allocations]
    count = kinds.index(False) if False in kinds else len(kinds)
    if any(kinds[count:]):
        raise PalladioValueError(
            "the slots of inputs come before those of outputs",
            argument="allocations",
            got=", ".join("input" if each else "output" for each in kinds),
        )
    return count


def _leaves(entry: Any) -> list[BufferedRef]:
    if isinstance(entry, BufferedRef):
        return [entry]
    return [leaf for each in (entry.values() if isinstance(entry, dict) else entry) for leaf in _leaves(each)]


def bind_slots(arrays: Arrays, given: Sequence[BufferedRef]) -> dict[str, list[Any]]:
    """Give the operands of a pipeline the slots that were allocated; returns the references of those it copies.

    Raises:
        PalladioValueError: slots for other arrays or blocks.
    """
    if len(given) != len(arrays.all):
        raise PalladioValueError(
            "there is one BufferedRef for each array of the pipeline",
            argument="allocations",
            expected=len(arrays.all),
            got=len(given),
        )
    found: dict[int, tuple[Reference, Reference]] = {}
    for number, (operand, slots) in enumerate(zip(arrays.all, given, strict=True)):
        if isinstance(operand, PipelineOperand):
            found[id(operand)] = _bound(operand, slots, f"allocations[{number}]")
    operands = (*arrays.inputs, *arrays.outputs)
    return {
        "buffers": [{each.label: found[id(each)][0]} for each in operands],
        "semaphores": [found[id(each)][1] for each in operands],
    }


def _bound(operand: PipelineOperand, slots: BufferedRef, name: str) -> tuple[Reference, Reference]:
    window = slots.window_ref
    if isinstance(window, Reference) and window.shape == operand.block_shape:
        window = window.reshape((1, *window.shape))
    wanted = f"{dtypes.short_name(operand.ref.dtype)}[slots,{','.join(map(str, operand.block_shape))}]"
    if window is None or window.shape[1:] != operand.block_shape or window.dtype != operand.ref.dtype:
        raise PalladioValueError(
            "the slots have the shape and dtype of the blocks",
            argument=name,
            expected=wanted,
            got="no slots" if window is None else str(window.array),
        )
    operand.use_slots(window.shape[0], slots.prefetched_count, slots.use_lookahead)
    operand.fetched_first = slots.is_input_output
    return window, slots.semaphores


__all__ = [
    "PASSED",
    "BufferType",
    "BufferedRef",
    "allocations_of",
    "bind_slots",
    "flat_allocations",
    "inputs_among",
    "specs_of",
]
