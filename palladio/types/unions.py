"""Shared memory that several buffers take in turns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from palladio.base import trees
from palladio.base.dataclass import dataclass
from palladio.base.errors import PalladioTypeError, PalladioValueError, at_call
from palladio.types import dtypes
from palladio.types.device import H100_SXM
from palladio.types.types import ACC, SMEM, SYNCHRONISING, MemoryRef, RefType


@dataclass(frozen=True)
class Member:
    """A buffer inside a union: its type, and the byte that it begins at."""

    type: RefType
    offset: int

    @property
    def bytes(self) -> int:
        """Its size in bytes."""
        return self.type.size * self.type.dtype.itemsize


class RefUnion:
    """Groups of buffers that share one piece of shared memory; one group is in use at a time.

    The buffers of a group lie one after another, those of different groups in the same place. A kernel unpacks it:
    `first, (second, third) = union`. Reading one group after writing another one gives the bits that were written.

    Args:
        ref_trees: each group is `plgpu.SMEM(shape, dtype)` or a pytree of them.

    Raises:
        PalladioTypeError: what is not a description of shared memory, such as a barrier or an accumulator.
        PalladioValueError: no group, or one without buffers.
    """

    def __init__(self, *ref_trees: Any) -> None:
        with at_call():
            if not ref_trees:
                raise PalladioValueError("a union has at least one group of buffers", argument="ref_trees")
            groups = [_placed(tree, f"ref_trees[{n}]") for n, tree in enumerate(ref_trees)]
        self.structure = trees.flatten(ref_trees)[1]
        self.members: tuple[Member, ...] = tuple(member for group in groups for member in group)
        self.ref_trees = ref_trees

    def __repr__(self) -> str:
        return f"RefUnion({', '.join(map(repr, self.ref_trees))})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RefUnion) and (self.structure, self.members) == (other.structure, other.members)

    def __hash__(self) -> int:
        return hash((self.structure, self.members))

    @property
    def size_bytes(self) -> int:
        """Its size in bytes: that of its largest group."""
        return max(member.offset + member.bytes for member in self.members)

    @property
    def ref_type(self) -> RefType:
        """The type of the reference to its bytes."""
        return RefType((self.size_bytes,), dtypes.SHORT_NAMES["u8"], SMEM)


def _placed(tree: Any, argument: str) -> Sequence[Member]:
    leaves = trees.flatten(tree)[0]
    if not leaves:
        raise PalladioValueError("a group of a union has at least one buffer", argument=argument)
    members = []
    offset = 0
    for leaf in leaves:
        found = _member_type(leaf, argument)
        member = Member(found, offset)
        members.append(member)
        offset = math.ceil((offset + member.bytes) / H100_SXM.shared_alignment) * H100_SXM.shared_alignment
    return members


def _member_type(leaf: Any, argument: str) -> RefType:
    found = getattr(leaf, "ref_type", None)
    if isinstance(found, RefType) and (found.space is ACC or found.space in SYNCHRONISING):
        raise PalladioTypeError(
            "only buffers can share their memory, not barriers, semaphores or accumulators",
            argument=argument,
            got=str(found),
            hint="allocate it beside the union",
        )
    if not isinstance(leaf, MemoryRef) or leaf.memory_space is not SMEM:
        raise PalladioTypeError(
            "a union holds buffers in shared memory",
            argument=argument,
            expected="such as plgpu.SMEM(shape, dtype)",
            got=repr(leaf),
        )
    if leaf.dtype == dtypes.BOOL:
        raise PalladioTypeError("the bits of bool have no other meaning", argument=argument, got=str(leaf.ref_type))
    return leaf.ref_type
