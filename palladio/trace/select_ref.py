"""A reference selected at run time among several: `select_ref`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from palladio.array import convert
from palladio.base.errors import PalladioTypeError, PalladioValueError
from palladio.trace.reference import OnlyCopied, Reference, require_reference
from palladio.types import dtypes
from palladio.types.types import ArrayType, MemorySpace


class SelectedRef(OnlyCopied):
    """One of several references, selected by an index at run time. Only copies take it.

    Fields:
        index: i32[].
        refs: references of one shape and dtype.
    """

    __slots__ = ("index", "refs")

    def __init__(self, index: Any, refs: Sequence[Reference]) -> None:
        self.index = index
        self.refs = tuple(refs)

    def __repr__(self) -> str:
        return f"one of {len(self.refs)} references to {self.array}"

    @property
    def array(self) -> ArrayType:
        """The type of its value."""
        return self.refs[0].array

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of each."""
        return self.array.shape

    @property
    def dtype(self) -> Any:
        """The dtype of each."""
        return self.array.dtype

    @property
    def size(self) -> int:
        """The number of elements of each."""
        return self.array.size

    @property
    def memory_space(self) -> MemorySpace:
        """The memory space of the first one."""
        return self.refs[0].memory_space

    def each(self, change: Callable[[Reference], Any]) -> SelectedRef:
        """The same choice among views of the references."""
        return SelectedRef(self.index, [change(ref) for ref in self.refs])

    def in_peer(self, blocks: Any) -> SelectedRef:
        """The same choice in another core."""
        return self.each(lambda ref: ref.in_peer(blocks))

    @property
    def at(self) -> _At:
        """`ref.at[index]` is the same choice among these parts."""
        return _At(self)

    def reshape(self, *shape: Any) -> SelectedRef:
        """The same elements in another shape."""
        return self.each(lambda ref: ref.reshape(*shape))

    def bitcast(self, dtype: Any) -> SelectedRef:
        """The same bits as another dtype."""
        return self.each(lambda ref: ref.bitcast(dtype))

    def transpose(self, *axes: Any) -> SelectedRef:
        """The axes in another order."""
        return self.each(lambda ref: ref.transpose(*axes))

    def _refuse(self) -> NoReturn:
        raise PalladioTypeError(
            "a reference that select_ref chooses is there for copies",
            got=repr(self),
            hint="read and write under lax.switch",
        )


class _At:
    __slots__ = ("selected",)

    def __init__(self, selected: SelectedRef) -> None:
        self.selected = selected

    def __getitem__(self, key: Any) -> SelectedRef:
        return self.selected.each(lambda ref: ref.at[key])


def select_ref(idx: Any, *refs: Any) -> Reference | SelectedRef:
    """The reference with a number, for `make_async_copy` etc.: `pl.select_ref(i, a_ref.at[0], b_ref)`.

    Args:
        idx: i32[], clamped into range; for a number known while tracing, the result is that reference itself.
        refs: at least two references `dtype[shape]` of one shape and dtype.

    Raises:
        PalladioTypeError: an index that is not a scalar integer, not a reference.
        PalladioValueError: fewer than two references, or of different shapes or dtypes.
    """
    if len(refs) < 2:
        raise PalladioValueError("a choice is among at least two references", argument="refs", got=len(refs))
    kind = convert.array_type(idx)
    if kind.shape != () or not dtypes.is_integer(kind.dtype):
        raise PalladioTypeError("the number of a reference is a scalar integer", argument="idx", got=str(kind))
    choices = [require_reference(ref, f"refs[{n}]") for n, ref in enumerate(refs)]
    for n, ref in enumerate(choices):
        if ref.array != choices[0].array:
            raise PalladioValueError(
                "the references to choose from have one shape and dtype",
                argument=f"refs[{n}]",
                expected=str(choices[0].array),
                got=str(ref.array),
            )
    if isinstance(idx, int):
        return choices[min(max(idx, 0), len(choices) - 1)]
    return SelectedRef(idx, choices)
