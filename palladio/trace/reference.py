"""References in a kernel: `ref[...]`, `ref[i, 2:4] = v`, `ref.at[i]`, and the views that `at`, `reshape`, `bitcast`
and `transpose` make.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from palladio.array import convert
from palladio.array.axes import normalize_axis
from palladio.array.functions.shape import filled_shape
from palladio.base.errors import (
    PalladioAttributeError,
    PalladioError,
    PalladioIndexError,
    PalladioTypeError,
    PalladioValueError,
)
from palladio.ir.bind import bind
from palladio.ir.core import Var
from palladio.ir.paths import renumbered
from palladio.ops.references import memory
from palladio.ops.threads import wgmma
from palladio.trace.indices import Indices, Slice, has_dynamic_size, index_transform, without_dynamic_slices
from palladio.trace.trace import Trace, Traced
from palladio.types import dtypes
from palladio.types.transforms import Bitcast, Index, Operand, Peer, Reshape, Transform, Transpose, transformed
from palladio.types.types import ACC, BARRIER, SYNCHRONISING, ArrayType, MemorySpace, RefType, Shape

_NO_ARITHMETIC = "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift lt le gt ge eq ne neg abs invert"


def _say_in_jax(error: PalladioIndexError, access: str) -> None:
    """Add the message of JAX's interpreter to that of its tracer, for an index or slice out of bounds."""
    if "outside" in error.rule:
        error.jax = f"{error.jax or ''} Out-of-bounds {access}".lstrip()


class Reference:
    """The base of a whole reference and a view of one.

    `root`, `transforms` and `operands` define its elements.
    """

    __slots__ = ()

    root: Ref
    transforms: tuple[Transform, ...]
    operands: tuple[Any, ...]

    @property
    def array(self) -> ArrayType:
        """The type of its value."""
        types = [convert.array_type(operand) for operand in self.operands]
        return transformed(self.root.palladio_type.array, self.transforms, types)

    @property
    def shape(self) -> Shape:
        """The shape of its elements."""
        return self.array.shape

    @property
    def dtype(self) -> Any:
        """The dtype of its elements."""
        return self.array.dtype

    @property
    def ndim(self) -> int:
        """Its number of axes."""
        return self.array.ndim

    @property
    def size(self) -> int:
        """The number of its elements."""
        return self.array.size

    @property
    def memory_space(self) -> MemorySpace:
        """The memory space."""
        return self.root.palladio_type.space

    def __repr__(self) -> str:
        return f"reference to {self.array} in {self.memory_space}"

    def __len__(self) -> int:
        if self.ndim == 0:
            raise PalladioTypeError("a reference to a scalar has no length", got=repr(self))
        return self.shape[0]

    # Views.

    def view(self, transform: Transform, operands: Sequence[Any] = ()) -> TransformedReference:
        """A view of this reference through one more transform, which must fit."""
        if not operands:
            transformed(self.array, [transform])
        return TransformedReference(self.root, (*self.transforms, transform), (*self.operands, *operands))

    @property
    def at(self) -> _At:
        """`ref.at[index]` is the reference to the elements of `ref[index]`."""
        return _At(self)

    def reshape(self, *shape: Any) -> TransformedReference:
        """The same elements in another shape; one size may be -1."""
        return self.view(Reshape(filled_shape(self.array, shape[0] if len(shape) == 1 else shape)))

    def bitcast(self, dtype: Any) -> TransformedReference:
        """The same bits as another dtype; a change of width changes the last but one axis."""
        return self.view(Bitcast(dtypes.canonical(dtype)))

    def transpose(self, *axes: Any) -> TransformedReference:
        """The axes in another order, reversed by default."""
        order = tuple(axes[0]) if len(axes) == 1 and isinstance(axes[0], (tuple, list)) else axes
        return self.view(
            Transpose(tuple(normalize_axis(axis, self.ndim) for axis in order) or tuple(reversed(range(self.ndim))))
        )

    @property
    def T(self) -> TransformedReference:
        """The axes reversed."""
        return self.transpose()

    def in_peer(self, blocks: Mapping[str, Any]) -> TransformedReference:
        """The same part of the buffer of another block of the cluster.

        Args:
            blocks: for some cluster axes, the block's index along them, static or traced.
        """
        entries: list[tuple[str, int | Operand]] = []
        operands = list(self.operands)
        for axis, block in blocks.items():
            if isinstance(block, int):
                entries.append((axis, block))
                continue
            entries.append((axis, Operand(len(operands))))
            operands.append(block)
        return TransformedReference(self.root, (Peer(tuple(entries)), *self.transforms), tuple(operands))

    # Access.

    def _reach(self, key: Any) -> Reference:
        transform, operands = index_transform(key, self.shape, len(self.operands))
        return (
            self
            if is_whole(transform, self.shape)
            else TransformedReference(self.root, (*self.transforms, transform), (*self.operands, *operands))
        )

    def __getitem__(self, key: Any) -> Any:
        try:
            return self._read(key)
        except PalladioIndexError as error:
            _say_in_jax(error, "read")
            raise

    def _read(self, key: Any) -> Any:
        target = self._reach(key)
        if target.memory_space in SYNCHRONISING:
            _refuse_data(target)
        if target.memory_space is ACC:
            operands = target.operands
            return bind(wgmma.accumulator_load, target.root, *operands, transforms=target.transforms, wait_n=0)[0]
        return bind(memory.load, target.root, *target.operands, transforms=target.transforms)[0]

    def __setitem__(self, key: Any, value: Any) -> None:
        try:
            self._write(key, value)
        except PalladioIndexError as error:
            _say_in_jax(error, "write")
            raise

    def _write(self, key: Any, value: Any) -> None:
        target = self._reach(key)
        if target.memory_space in SYNCHRONISING:
            _refuse_data(target)
        if target.memory_space is ACC:
            store_accumulator(target, value)
            return
        bind(memory.store, target.root, fitted(value, target), *target.operands, transforms=target.transforms)

    def get(self) -> Any:
        """The value: `ref[...]`."""
        return self[...]

    def set(self, value: Any) -> None:
        """Write the value: `ref[...] = value`."""
        self[...] = value

    def swap(self, value: Any) -> Any:
        """Write the value and return the old one."""
        return bind(memory.swap, self.root, fitted(value, self), *self.operands, transforms=self.transforms)[0]

    def add(self, value: Any) -> None:
        """Add to the elements; one that is selected several times receives every addition."""
        bind(memory.accumulate, self.root, fitted(value, self), *self.operands, transforms=self.transforms)

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        raise PalladioAttributeError(
            f"a reference has no attribute {name!r}", got=repr(self), hint="read it first: ref[...]"
        )

    __hash__ = object.__hash__  # two references are equal if they are one object, as keys and in lists

    def __iter__(self) -> NoReturn:
        self._refuse()

    def __bool__(self) -> NoReturn:  # noqa: PLE0304  it always raises
        self._refuse()

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        self._refuse()

    def __array_ufunc__(self, *args: Any, **kwargs: Any) -> NoReturn:
        self._refuse()

    def __array_function__(self, *args: Any, **kwargs: Any) -> NoReturn:
        self._refuse()

    def _refuse(self, *args: Any) -> NoReturn:
        raise PalladioTypeError("a reference is not a value", got=repr(self), hint="read it first: ref[...]")


for _name in _NO_ARITHMETIC.split():
    setattr(Reference, f"__{_name}__", Reference._refuse)
    setattr(Reference, f"__r{_name}__", Reference._refuse)


class WholeReference(Reference):
    """A reference without transforms."""

    __slots__ = ()

    @property
    def root(self) -> Any:  # type: ignore[override]
        """Itself."""
        return self

    @property
    def transforms(self) -> tuple[Transform, ...]:  # type: ignore[override]
        """None."""
        return ()

    @property
    def operands(self) -> tuple[Any, ...]:  # type: ignore[override]
        """None."""
        return ()


class Ref(Traced, WholeReference):
    """A whole reference, as a kernel receives it."""

    __slots__ = ()

    def __init__(self, trace: Trace, var: Var) -> None:
        super().__init__(trace, var)


class TransformedReference(Reference):
    """A reference seen through transforms. It can be read, written, and viewed further."""

    __slots__ = ("operands", "root", "transforms")

    def __init__(self, root: Ref, transforms: tuple[Transform, ...], operands: tuple[Any, ...]) -> None:
        self.root = root
        self.transforms = transforms
        self.operands = operands

    @property
    def palladio_type(self) -> RefType:
        """The type of an equivalent whole reference."""
        array = self.array
        return RefType(array.shape, array.dtype, self.root.palladio_type.space)


class _At:
    """The indexing half of `ref.at[index]`."""

    __slots__ = ("reference",)

    def __init__(self, reference: Reference) -> None:
        self.reference = reference

    def __getitem__(self, key: Any) -> Any:
        try:
            return self._part(key)
        except PalladioIndexError as error:
            _say_in_jax(error, "read or Out-of-bounds write")
            raise

    def _part(self, key: Any) -> Any:
        if isinstance(key, Indices):
            return _indexed(self.reference, key)
        if has_dynamic_size(key):
            rest, slices = without_dynamic_slices(key, self.reference.ndim)
            return DynamicPart(self.reference._reach(rest), slices)
        if self.reference.memory_space is BARRIER and not self.reference.ndim and _names_the_first(key):
            return self.reference
        return self.reference._reach(key)


class OnlyCopied:
    """A stand-in for a reference, only for copies. Reading or writing it is refused by `_refuse`."""

    __slots__ = ()

    def __getitem__(self, key: Any) -> NoReturn:
        self._refuse()

    def __setitem__(self, key: Any, value: Any) -> NoReturn:
        self._refuse()

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise NotImplementedError


class CopiedPart(OnlyCopied):
    """A part of a reference, only for copies.

    Fields:
        reference: the reference that it is a part of.
    """

    __slots__ = ("reference",)

    def __init__(self, reference: Reference) -> None:
        self.reference = reference

    @property
    def dtype(self) -> Any:
        """The dtype of its elements."""
        return self.reference.dtype

    @property
    def memory_space(self) -> MemorySpace:
        """The memory space."""
        return self.reference.memory_space


class DynamicPart(CopiedPart):
    """A part of a reference with dynamic size along some axes: `ref.at[pl.ds(start, size)]`, for copies.

    Fields:
        reference: the reference with these axes whole.
        slices: the slices along them, by axis.
    """

    __slots__ = ("slices",)

    def __init__(self, reference: Reference, slices: Mapping[int, Slice]) -> None:
        super().__init__(reference)
        self.slices = dict(slices)

    def __repr__(self) -> str:
        return f"part of dynamic size of a {self.reference!r}"

    @property
    def shape(self) -> tuple[Any, ...]:
        """The shape, with the values of the dynamic sizes."""
        return tuple(
            self.slices[axis].size if axis in self.slices else extent
            for axis, extent in enumerate(self.reference.shape)
        )

    def element(self, numbers: Mapping[int, Any]) -> Reference:
        """The part at one position along each axis of dynamic size, which keeps an extent of 1."""
        key: list[Any] = [slice(None)] * self.reference.ndim
        for axis, number in numbers.items():
            part = self.slices[axis]
            key[axis] = Slice(part.start + number * part.stride, 1)
        return self.reference._reach(tuple(key))

    def in_peer(self, blocks: Mapping[str, Any]) -> DynamicPart:
        """The same part in another core."""
        return DynamicPart(self.reference.in_peer(blocks), self.slices)

    def _refuse(self) -> NoReturn:
        raise PalladioTypeError(
            "a part whose size is dynamic is there for copies",
            got=repr(self),
            hint="copy it: pltpu.sync_copy(part, buffer.at[pl.ds(0, size)]); or read a static size under a mask",
        )


class FilteredPart(CopiedPart):
    """The parts of a reference at an index vector without those of an ignored index, for copies.

    Fields:
        reference: the reference that is indexed along its first axis.
        indices: i32[n].
        ignored: the number that is not an index.
    """

    __slots__ = ("ignored", "indices")

    def __init__(self, reference: Reference, indices: Any, ignored: int) -> None:
        super().__init__(reference)
        self.indices, self.ignored = indices, ignored

    def __repr__(self) -> str:
        return f"parts at indices other than {self.ignored} of a {self.reference!r}"

    @property
    def array(self) -> ArrayType:
        """The type of its value, with all indices."""
        kind = self.reference.array
        return ArrayType((*self.indices.shape, *kind.shape[1:]), kind.dtype)

    @property
    def shape(self) -> Shape:
        """The shape, with all indices."""
        return self.array.shape

    def in_peer(self, blocks: Mapping[str, Any]) -> FilteredPart:
        """The same parts in another core."""
        return FilteredPart(self.reference.in_peer(blocks), self.indices, self.ignored)

    def _refuse(self) -> NoReturn:
        raise PalladioTypeError(
            "parts at indices of which some are ignored are there for copies",
            got=repr(self),
            hint="copy them: pltpu.sync_copy(parts, buffer)",
        )


def _indexed(reference: Reference, key: Indices) -> Any:
    """`reference.at[key]`."""
    indices = key.indices[...] if isinstance(key.indices, Reference) else key.indices
    if key.ignored_value is None:
        return reference.at[indices]
    kind = convert.array_type(indices)
    if kind.ndim != 1 or not dtypes.is_integer(kind.dtype) or not reference.ndim:
        raise PalladioTypeError(
            "indices of which some are ignored are a vector of integers along the first axis",
            argument="indices",
            got=f"{kind} for a {reference!r}",
        )
    return FilteredPart(reference, indices, key.ignored_value)


def _names_the_first(key: Any) -> bool:
    """True if an index can be that of a single barrier: 0, or an unknown scalar."""
    if isinstance(key, (int, np.integer)):
        return key == 0
    return isinstance(key, Traced) and convert.array_type(key).shape == ()


def _refuse_data(target: Reference) -> NoReturn:
    raise PalladioTypeError(
        "barriers and semaphores hold no data",
        got=repr(target),
        hint="barrier_wait and barrier_arrive, semaphore_wait and semaphore_signal use them",
    )


def store_accumulator(target: Reference, value: Any) -> None:
    """acc[...] = value.

    Raises:
        PalladioTypeError: for a part of an accumulator, or a value that is not an array.
    """
    if target.transforms:
        raise PalladioTypeError(
            "an accumulator can only be stored whole", got=repr(target), hint="acc[...] = value sets all of it"
        )
    if isinstance(value, Reference):
        raise PalladioTypeError(
            "can only store arrays to an accumulator", got=repr(value), hint="read it first: ref[...]"
        )
    bind(wgmma.accumulator_store, target.root, fitted(value, target))


def reached(*references: Any) -> tuple[list[Any], tuple[tuple[Transform, ...], ...], list[Any]]:
    """Operands of an operation on several references: roots, a stack of transforms for each, all index operands."""
    roots, stacks, operands = [], [], []
    for each in references:
        if not isinstance(each, Reference):  # an array among them
            roots.append(each)
            stacks.append(())
            continue
        shift = len(operands)
        moved = (renumbered(one, lambda operand: Operand(operand.position + shift)) for one in each.transforms)  # noqa: B023
        roots.append(each.root)
        stacks.append(tuple(moved))
        operands += each.operands
    return roots, tuple(stacks), operands


def require_reference(value: Any, argument: str) -> Reference:
    """The value, which must be a reference."""
    if not isinstance(value, Reference):
        got = f"{type(value).__name__}: {value!r:.60}"
        raise PalladioTypeError("this is not a reference", argument=argument, got=got)
    return value


def is_whole(transform: Transform, shape: Shape) -> bool:
    """True if an index selects everything."""
    return isinstance(transform, Index) and all(
        not isinstance(entry, int) and hasattr(entry, "is_whole") and entry.is_whole(extent)
        for entry, extent in zip(transform.entries, shape, strict=True)
    )


def fitted(value: Any, target: Reference) -> Any:
    """A value in the shape and dtype of a reference: it may broadcast, and a weak one takes the dtype.

    Raises:
        PalladioTypeError: for a value of another dtype.
        PalladioValueError: for a shape that does not broadcast.
    """
    wanted = target.array
    if isinstance(value, Reference):
        raise PalladioTypeError(
            "a reference is not a value",
            got=repr(value),
            hint="read it first: ref[...]",
            jax="Cannot store a Ref into another Ref",
        )
    given = convert.array_type(value)
    if given.dtype != wanted.dtype:
        if not convert.is_weak(value) or (dtypes.is_float(given.dtype) and not dtypes.is_float(wanted.dtype)):
            raise PalladioTypeError(
                "the value has another dtype than the reference",
                expected=str(wanted),
                got=str(given),
                hint="convert it: value.astype(ref.dtype)",
            )
        value = convert.cast(value, wanted.dtype)
    try:
        return convert.broadcast_to(value, wanted.shape)
    except PalladioError:
        raise PalladioValueError(
            "the value does not broadcast to the shape that the reference has here",
            expected=str(wanted),
            got=str(given),
        ) from None
