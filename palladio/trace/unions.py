"""The members of a `RefUnion` in a kernel, as views of the bytes that they share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from palladio.base import trees
from palladio.base.errors import PalladioTypeError
from palladio.trace.reference import Reference
from palladio.types.unions import Member, RefUnion


def unpacked(descriptions: Sequence[Any], references: Sequence[Any]) -> list[Any]:
    """The references for a kernel: one to the bytes of a union becomes its members."""
    return [
        Members(description, reference) if isinstance(description, RefUnion) else reference
        for description, reference in zip(descriptions, references, strict=True)
    ]


class Members:
    """The groups of a union, to be unpacked: `first, (second, third) = union`. It cannot be read or written itself."""

    def __init__(self, union: RefUnion, reference: Reference) -> None:
        self._groups = trees.unflatten(union.structure, [_view(reference, member) for member in union.members])

    def __iter__(self) -> Iterator[Any]:
        return iter(self._groups)

    def __len__(self) -> int:
        return len(self._groups)

    def __getitem__(self, group: Any) -> Any:
        if not isinstance(group, int) or not -len(self) <= group < len(self):
            self._refuse(group)
        return self._groups[group]

    def __setitem__(self, key: Any, value: Any) -> NoReturn:
        self._refuse(key, jax="a union can't be assigned to")

    def _refuse(self, key: Any, jax: str | None = None) -> NoReturn:
        raise PalladioTypeError(
            "a union is not a reference, its groups are",
            expected=f"a group: 0 to {len(self) - 1}",
            got="[...]" if key is ... else f"[{key!r}]",
            hint="unpack it: first, second = union",
            jax=jax,
        )


def _view(reference: Reference, member: Member) -> Reference:
    part = reference.at[member.offset : member.offset + member.bytes]
    if part.dtype != member.type.dtype:
        part = part.bitcast(member.type.dtype)
    return part if part.shape == member.type.shape else part.reshape(member.type.shape)
