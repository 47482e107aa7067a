"""Loads and stores by the threads of a warpgroup."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext

import numpy as np

from palladio.base.dataclass import dataclass
from palladio.hopper.emit import exchange
from palladio.hopper.emit.scalars import (
    Scalar,
    from_memory,
    literal,
    memory_type,
    narrow,
    register_type,
    rounded,
    to_memory,
)
from palladio.hopper.emit.scope import Rule, Scope
from palladio.hopper.emit.values import EXCHANGE, Array, Entry, Global, Registers, Shared
from palladio.hopper.emit.views import Limit, Part, is_box, whole
from palladio.hopper.layouts import registers
from palladio.hopper.layouts.integers import Index, added, times
from palladio.hopper.layouts.registers import Layout
from palladio.hopper.layouts.shared import swizzled_text
from palladio.hopper.rules.chains import Chain, Gather, Place, chain, in_layout, in_window, own_place
from palladio.hopper.rules.reduce import COMBINE
from palladio.hopper.rules.shape import held
from palladio.ir.core import Atom, Eqn, Var
from palladio.lower.refused import Refused
from palladio.lower.views import views
from palladio.ops.arrays import arithmetic
from palladio.types import dtypes
from palladio.types.dtypes import DType
from palladio.types.transforms import Transform
from palladio.types.types import ArrayType
from palladio.types.views import row_major

WORDS = {4: "u32", 8: "u32x2", 16: "u32x4"}
"""The C++ types of vectors, by size in bytes."""


@dataclass(frozen=True)
class Access:
    """An access to part of a buffer or of an array.

    Fields:
        where: the buffer or array.
        part: the accessed part.
        limits: the guards that may fail, of the array or of its parts on the way.
    """

    scope: Scope
    where: Shared | Global
    part: Part | Chain
    limits: tuple[Limit, ...] = ()

    @property
    def dtype(self) -> DType:
        """The dtype of an element."""
        return self.part.dtype if isinstance(self.part, Chain) else self.where.type.dtype

    def pointer(self) -> str:
        """The name of the parameter with the array's address."""
        where = self.where
        return self.scope.kernel.pointer(where.number, where.name)  # type: ignore[union-attr]

    def inside(self, index: Sequence[Index]) -> str | None:
        """True if an element is inside the array and all parts on the way, as a C expression; None if all are."""
        tests = [limit.test(index) for limit in self.limits]
        if isinstance(self.part, Chain):
            tests += self.part.tests(index)
        elif isinstance(self.where, Global) and self.where.window is not None:
            for axis, (at, extent) in enumerate(zip(self.part.place(index), self.part.shape, strict=True)):
                if not self.part.within(axis):
                    tests.append(f"(u32)({at}) < {extent}")
        return " && ".join(dict.fromkeys(tests)) or None

    def address(self, index: Sequence[Index]) -> Index:
        """The address of an element."""
        place = self.part.place(index)
        if isinstance(self.where, Shared):
            layout = self.where.layout
            return added(self.where.base, layout.offset(place))
        strides = [math.prod(self.part.shape[n + 1 :]) for n in range(len(place))]
        terms = [times(at if isinstance(at, int) else f"(i64)({at})", stride) for at, stride in zip(place, strides)]
        pointer = self.pointer()
        if self.dtype != self.where.type.dtype:
            pointer = f"({memory_type(self.dtype)}*){pointer}"
        return added(pointer, *terms)

    def load(self, address: Index) -> str:
        """The element at an address."""
        kind = memory_type(self.dtype)
        if isinstance(self.where, Shared):
            name, rank = self.block("load")
            return from_memory(f"pal::{name}<{kind}>({self._placed(address)}{rank})", self.dtype)
        name = "load_constant" if self.where.constant else "load_global"
        return from_memory(f"pal::{name}({address})", self.dtype)

    def store(self, address: Index, value: str) -> str:
        """The statement that stores an element."""
        kind = memory_type(self.dtype)
        if isinstance(self.where, Shared):
            name, rank = self.block("store")
            return f"pal::{name}<{kind}>({self._placed(address)}{rank}, {to_memory(value, self.dtype)});"
        return f"pal::store_global<{kind}>({address}, {to_memory(value, self.dtype)});"

    def block(self, action: str) -> tuple[str, str]:
        """The primitive, and its argument for the block of the cluster."""
        if not self.part.peer:
            return f"{action}_shared", ""
        return f"{action}_cluster", f", {self.scope.rank(self.part.peer)}"

    def _placed(self, address: Index) -> Index:
        swizzle = self.where.layout.swizzle  # type: ignore[union-attr]
        return swizzled_text("at", swizzle) if swizzle else address

    @property
    def needs_name(self) -> bool:
        """True if the address is used twice, for its swizzle."""
        return isinstance(self.where, Shared) and bool(self.where.layout.swizzle)


def access(
    scope: Scope,
    root: Atom,
    stack: Sequence[Transform],
    indices: Sequence[Atom],
    layout: Layout | None = None,
    gather: Gather | None = None,
) -> Access:
    """The memory that an equation accesses; `layout` is that of the elements in registers.

    Args:
        gather: gives the index for an element from an array of indices; by default, in that layout.
    """
    where = scope.entry(root)
    if not isinstance(where, (Shared, Global)):
        raise Refused("this reference is not loaded from or stored to by Hopper's threads")
    own = (where.window if isinstance(where, Global) else None) or whole(where.type.shape)
    array = ArrayType(own.sizes, where.type.dtype)
    found = views(array, stack, [atom.type.shape for atom in indices])
    inside: tuple[Limit, ...] = ()
    if is_box(array, found):
        part: Part | Chain = scope.view(where, stack, indices)
        inside = tuple(limit for view in found for limit in scope.limits(view, indices))
        if isinstance(where, Global):
            inside += scope.sizes_left(where, found, indices)
    else:
        part = chain(scope, array, stack, found, indices, gather or in_layout(scope, layout))
        if isinstance(where, Global) and where.window is not None:
            part = in_window(part, where.window, where.sizes)
    return Access(scope, where, part, inside)


def _load(scope: Scope, eqn: Eqn) -> Sequence[Entry]:
    root, *indices = eqn.inputs
    (out,) = eqn.outputs
    layout = scope.layout(out) if out.type.shape else None
    found = access(scope, root, eqn.transforms, indices, layout)
    scope.before_read(found.where.root)
    if out.type.shape:
        value: Entry = load_array(scope, found, scope.layout(out), out.hint)
    else:
        value = _load_number(scope, found, out)
    if not (isinstance(found.where, Global) and found.where.constant):
        scope.sites.read.add(found.where.root)
    return [value]


def _load_number(scope: Scope, found: Access, out: Var, masked: tuple[str, str] | None = None) -> Scalar:
    """A loaded number; `masked` are a condition and the value otherwise, as C expressions."""
    address, inside = found.address(()), found.inside(())
    if found.needs_name:
        name = scope.w.fresh("byte")
        scope.w.line(f"const u32 {name} = {address};")
        text = _named(found, name)
    else:
        text = found.load(address)
    if inside is not None:
        text = f"{inside} ? {text} : {outside(out.type.dtype)}"
    if masked is not None:
        text = f"{masked[0]} ? ({text}) : {masked[1]}"
    scope.w.flush()
    return scope.number(out, text)


def _named(found: Access, name: str) -> str:
    where = found.where
    kind = memory_type(found.dtype)
    place = swizzled_text(name, where.layout.swizzle)  # type: ignore[union-attr]
    load, rank = found.block("load")
    return from_memory(f"pal::{load}<{kind}>({place}{rank})", found.dtype)


def outside(dtype: DType) -> str:
    """The value of a read outside an array: the one of uninitialised memory."""
    return literal(dtypes.uninitialized(dtype), dtype)


def outside_words(dtype: DType, count: int, word: str) -> str:
    """The value of a vector read outside an array."""
    words = dtypes.unwritten((count,), dtype).view(np.uint32)
    return f"{word}{{{', '.join(f'{number}u' for number in words)}}}" if word != "u32" else f"{words[0]}u"


def load_array(scope: Scope, found: Access, layout: Layout, hint: str) -> Registers:
    """An array loaded into registers."""
    target = scope.declare(hint or "loaded", layout, found.dtype)
    width = vector_width(found, layout)
    if width > 1:
        _load_vectors(scope, found, target, width)
        return target
    index = [f"({layout.coordinate(axis, 'r', 'thread')})" for axis in range(len(layout.shape))]
    tests = [test for test in (layout.guard("r", "thread"), found.inside(index)) if test]
    value = found.load("at" if found.needs_name else found.address(index))
    if tests:
        value = f"{' && '.join(tests)} ? {value} : {outside(found.dtype)}"
    head = f"PAL_UNROLL for (int r = 0; r < {layout.count}; ++r)"
    if found.needs_name:
        scope.w.line(f"{head} {{ const u32 at = {found.address(index)}; {target.name}[r] = {value}; }}")
    else:
        scope.w.line(f"{head} {target.name}[r] = {value};")
    return target


def vector_width(found: Access, layout: Layout) -> int:
    """The number of elements of one vector access: contiguous and aligned, in consecutive registers.

    It divides the start and the extent of the last axis: a vector is inside the array or outside as a whole.
    """
    part, size = found.part, found.dtype.itemsize
    if part.peer or not part.axes or layout.guard("r", "t") is not None:
        return 1
    last = part.axes[-1]
    listed = () if isinstance(part, Chain) else [axis for axis, _ in part.listed]
    if last.axis != len(part.shape) - 1 or last.stride != 1 or last.axis in listed:
        return 1
    width = math.gcd(layout.vector(), part.starts[-1].factor)
    if isinstance(found.where, Shared):
        width = math.gcd(width, found.where.layout.span)
    width = math.gcd(width, part.shape[-1])
    for limit in found.limits:
        width = limit.vector(width)
    while width > 1 and width * size not in WORDS:
        width //= 2
    return width


def _load_vectors(scope: Scope, found: Access, target: Registers, width: int) -> None:
    layout, w = target.layout, scope.w
    word = WORDS[width * found.dtype.itemsize]
    index = [f"({layout.coordinate(axis, 'r', 'thread')})" for axis in range(len(layout.shape))]
    with w.block(f"PAL_UNROLL for (int r = 0; r < {layout.count}; r += {width})"):
        if isinstance(found.where, Shared):
            w.line(f"const u32 at = {found.address(index)};")
            value = f"pal::load_shared<{word}>({swizzled_text('at', found.where.layout.swizzle)})"
        else:
            name = "load_constant" if found.where.constant else "load_global"
            value = f"pal::{name}(({word} const*)({found.address(index)}))"
        if (inside := found.inside(index)) is not None:
            value = f"{inside} ? {value} : {outside_words(found.dtype, width, word)}"
        w.line(f"const {word} bits = {value};")
        for n, text in enumerate(unpacked("bits", word, found.dtype, width)):
            w.line(f"{target.name}[r + {n}] = {text};")


def words_of(name: str, word: str) -> list[str]:
    """The 32-bit words of a vector, as C expressions."""
    return [name] if word == "u32" else [f"{name}.{part}" for part in "xyzw"[: 2 if word == "u32x2" else 4]]


def unpacked(name: str, word: str, dtype: DType, width: int) -> list[str]:
    """The elements of a vector."""
    size = dtype.itemsize
    found = []
    for n in range(width):
        part = words_of(name, word)[n * size // 4]
        if size == 8:
            low, high = words_of(name, word)[2 * n : 2 * n + 2]
            bits = f"((u64){high} << 32 | {low})"
            found.append(f"pal::double_of({bits})" if dtypes.is_float(dtype) else f"({register_type(dtype)}){bits}")
        elif size == 4:
            found.append(f"pal::float_of({part})" if dtypes.is_float(dtype) else f"({register_type(dtype)}){part}")
        else:
            shift = n * size % 4 * 8
            bits = f"({memory_type(dtype)})({part}{f' >> {shift}' if shift else ''})"
            found.append(from_memory(bits, dtype) if narrow(dtype) or dtypes.is_bool(dtype) else bits)
    return found


def packed(elements: Sequence[str], dtype: DType) -> list[str]:
    """The 32-bit words of a vector of elements."""
    size = dtype.itemsize
    if size == 4:
        return [f"pal::bits_of({text})" if dtypes.is_float(dtype) else f"(u32){text}" for text in elements]
    if size == 8:
        bits = [f"pal::bits_of({text})" if dtypes.is_float(dtype) else f"(u64){text}" for text in elements]
        return [part for text in bits for part in (f"(u32){text}", f"(u32)({text} >> 32)")]
    kind = narrow(dtype)
    if kind in ("bf16", "f16"):
        return [f"pal::pack_{kind}({a}, {b})" for a, b in zip(elements[::2], elements[1::2], strict=True)]
    each = 4 // size
    kind = memory_type(dtype)
    unsigned = {1: "u8", 2: "u16"}[size]
    return [
        " | ".join(
            f"(u32)({unsigned}){to_memory(text, dtype)}{f' << {8 * size * n}' if n else ''}"
            for n, text in enumerate(elements[first : first + each])
        )
        for first in range(0, len(elements), each)
    ]


def _store(scope: Scope, eqn: Eqn) -> None:
    root, value, *indices = eqn.inputs
    if any(atom.type.shape for atom in indices):
        _one_by_one(scope, eqn, lambda old, new: new)
        return
    found = access(scope, root, eqn.transforms, indices)
    scope.before_write(found.where.root)
    store(scope, found, value, None)
    scope.sites.written.add(found.where.root)


def store(scope: Scope, found: Access, value: Atom, mask: Atom | None, by_rows: bool = False) -> None:
    """Store an array or a number, under an optional mask.

    Args:
        by_rows: True if the mask is uniform along a row, so that a vector is stored as a whole or not at all.
    """
    if not value.type.shape:
        _store_number(scope, found, value, mask)
        return
    layout = layout_for(scope, value, mask)
    x = scope.array(value, layout)
    holds = None if mask is None else scope.array(mask, layout)
    if holds is None and _by_matrix(scope, found, x, layout):
        return
    width = vector_width(found, layout) if holds is None or by_rows else 1
    if width > 1:
        _store_vectors(scope, found, x, layout, width, None if holds is None else scope.element(holds, "r", layout))
        return
    index = [f"({layout.coordinate(axis, 'r', 'thread')})" for axis in range(len(layout.shape))]
    tests = [layout.guard("r", "thread"), found.inside(index), layout.first_holder("thread")]
    if holds is not None:
        tests.append(scope.element(holds, "r", layout))
    tests = [test for test in tests if test]
    statement = found.store("at" if found.needs_name else found.address(index), scope.stored(x, "r", layout))
    if tests:
        statement = f"if ({' && '.join(tests)}) {statement}"
    head = f"PAL_UNROLL for (int r = 0; r < {layout.count}; ++r)"
    if found.needs_name:
        scope.w.line(f"{head} {{ const u32 at = {found.address(index)}; {statement} }}")
    else:
        scope.w.line(f"{head} {statement}")


def layout_for(scope: Scope, *atoms: Atom | None) -> Layout:
    """The layout in which arrays are stored: that of the first array in registers."""
    for atom in atoms:
        if atom is not None:
            found = scope.entry(atom)
            if isinstance(found, Registers):
                return found.layout
    shape = next(atom.type.shape for atom in atoms if atom is not None)
    known = next((scope.layouts.known(atom) for atom in atoms if atom is not None), None)
    return known or (registers.warp(shape) if scope.one_warp else registers.strided(shape))


def _store_number(scope: Scope, found: Access, value: Atom, mask: Atom | None) -> None:
    tests = ["thread == 0", found.inside(()), None if mask is None else scope.condition(mask)]
    test = " && ".join(each for each in tests if each)
    text = scope.text(value)
    if found.needs_name:
        with scope.w.block(f"if ({test})"):
            scope.w.line(f"const u32 at = {found.address(())};")
            scope.w.line(found.store("at", text))
    else:
        scope.w.line(f"if ({test}) {found.store(found.address(()), text)}")


def _store_vectors(scope: Scope, found: Access, x: Array, layout: Layout, width: int, holds: str | None = None) -> None:
    """Store vectors of neighbours, each only if it is inside and if `holds`, a C expression, is true."""
    w = scope.w
    word = WORDS[width * found.dtype.itemsize]
    index = [f"({layout.coordinate(axis, 'r', 'thread')})" for axis in range(len(layout.shape))]
    elements = [scope.stored(x, f"r + {n}" if n else "r", layout) for n in range(width)]
    words = packed(elements, found.dtype)
    value = words[0] if word == "u32" else f"{word}{{{', '.join(words)}}}"
    first = layout.first_holder("thread")
    head = f"PAL_UNROLL for (int r = 0; r < {layout.count}; r += {width})"
    with w.block(f"if ({first}) {head}" if first else head):
        tests = [each for each in (found.inside(index), holds) if each]
        test = f"if ({' && '.join(tests)}) " if tests else ""
        if isinstance(found.where, Shared):
            w.line(f"const u32 at = {found.address(index)};")
            place = swizzled_text("at", found.where.layout.swizzle)
            w.line(f"{test}pal::store_shared<{word}>({place}, {value});")
        else:
            w.line(f"{test}pal::store_global<{word}>(({word}*)({found.address(index)}), {value});")


def _by_matrix(scope: Scope, found: Access, x: Array, layout: Layout) -> bool:
    """Store by `stmatrix`, if the array is a fragment of 16-bit elements and the buffer allows it."""
    where, kind = found.where, narrow(found.dtype)
    if not isinstance(where, Shared) or not isinstance(x, Registers) or kind not in ("bf16", "f16") or scope.one_warp:
        return False
    shape = layout.shape
    if len(shape) != 2 or shape[0] % 64 or shape[1] % 16 or not layout.same(registers.wgmma(*shape)):
        return False
    if found.part.peer or found.limits or isinstance(found.part, Chain):
        return False
    rows, columns = found.part.axes
    last = len(where.type.shape) - 1
    if columns.axis != last or columns.stride != 1 or rows.axis is None or rows.axis == last:
        return False
    if found.part.starts[-1].factor % 8 or where.layout.span % 8 or where.type.shape[-1] % 8:
        return False
    w = scope.w
    with w.block(f"PAL_UNROLL for (int r = 0; r < {layout.count}; r += 8)"):
        per_tile = shape[1] // 2
        tile = f" + r / {per_tile} * 64" if shape[0] > 64 else ""
        column = f"r / 8 % {per_tile // 8}" if shape[0] > 64 else "r / 8"
        index = [f"(warp * 16 + lane % 16{tile})", f"({column} * 16 + lane / 16 * 8)"]
        w.line(f"const u32 at = {found.address(index)};")
        pairs = [
            f"pal::pack_{kind}({x.name}[r + {n}], {x.name}[r + {n + 1}])"
            if n
            else f"pal::pack_{kind}({x.name}[r], {x.name}[r + 1])"
            for n in range(0, 8, 2)
        ]
        w.line(f"pal::stmatrix4({swizzled_text('at', where.layout.swizzle)}, {', '.join(pairs)});")
    return True


def _load_masked(scope: Scope, eqn: Eqn) -> Sequence[Entry]:
    root, mask, other, *indices = eqn.inputs
    (out,) = eqn.outputs
    layout = scope.layout(out) if out.type.shape else None
    found = access(scope, root, eqn.transforms, indices, layout)
    scope.before_read(found.where.root)
    scope.sites.read.add(found.where.root)
    if layout is None:
        return [_load_number(scope, found, out, (scope.text(mask), scope.text(other)))]
    holds, instead = scope.array(mask, layout), scope.array(other, layout)
    target = scope.declare(out.hint or "loaded", layout, out.type.dtype)
    index = [f"({layout.coordinate(axis, 'r', 'thread')})" for axis in range(len(layout.shape))]
    value = found.load("at" if found.needs_name else found.address(index))
    if (inside := found.inside(index)) is not None:
        value = f"({inside} ? {value} : {outside(found.dtype)})"
    guard = [test for test in (layout.guard("r", "thread"), scope.element(holds, "r", layout)) if test]
    assigned = f"{target.name}[r] = {' && '.join(guard)} ? {value} : {scope.element(instead, 'r', layout)};"
    if found.needs_name:
        assigned = f"{{ const u32 at = {found.address(index)}; {assigned} }}"
    scope.w.line(f"PAL_UNROLL for (int r = 0; r < {layout.count}; ++r) {assigned}")
    return [target]


def _store_masked(scope: Scope, eqn: Eqn) -> None:
    """Threads store the elements that they hold; of several with one index, any one may remain."""
    root, value, mask, *indices = eqn.inputs
    scattered = value.type.shape and any(atom.type.shape for atom in indices)
    found = access(scope, root, eqn.transforms, indices, layout_for(scope, value, mask) if scattered else None)
    scope.before_write(found.where.root)
    store(scope, found, value, mask)
    scope.sites.written.add(found.where.root)


def _store_rows(scope: Scope, eqn: Eqn) -> None:
    found = access(scope, eqn.ref, (), ())
    scope.before_write(found.where.root)
    store(scope, found, eqn.value, eqn.mask, by_rows=True)
    scope.sites.written.add(found.where.root)


def _accumulate(scope: Scope, eqn: Eqn) -> None:
    """Each thread adds to its elements; if indices may repeat, one thread adds all elements."""
    dtype = eqn.value.type.dtype

    def add(old: str, new: str) -> str:
        return COMBINE[arithmetic.add](dtype, old, new)

    if any(atom.type.shape for atom in eqn.indices):
        _one_by_one(scope, eqn, add)
    else:
        _exchanged(scope, eqn, add)


def _swap(scope: Scope, eqn: Eqn) -> Sequence[Entry]:
    """Each thread loads the old elements and stores its own; if indices may repeat, one thread stores all of them."""
    if not any(atom.type.shape for atom in eqn.indices):
        return [_exchanged(scope, eqn, lambda old, new: new)]
    (out,) = eqn.outputs
    layout = scope.layout(out)
    found = access(scope, eqn.ref, eqn.transforms, eqn.indices, layout)
    scope.before_write(found.where.root)
    old = load_array(scope, found, layout, "old")
    scope.sites.read.add(found.where.root)
    _one_by_one(scope, eqn, lambda old, new: new)
    return [old]


def _exchanged(scope: Scope, eqn: Eqn, combine: Callable[[str, str], str]) -> Entry:
    """Load the old elements, store them combined with the value, and return the old ones."""
    root, value, *indices = eqn.inputs
    found = access(scope, root, eqn.transforms, indices)
    scope.before_write(found.where.root)
    dtype = value.type.dtype  # type: ignore[union-attr]
    if not value.type.shape:
        old: Entry = _load_number(scope, found, Var(value.type, "old"))  # type: ignore[arg-type]
        scope.sync()
        text = combine(old.text, scope.text(value))  # type: ignore[union-attr]
        new: Entry = Scalar(f"({rounded(text, dtype)})", dtype)
    else:
        layout = layout_for(scope, value)
        x = scope.array(value, layout)
        old = load_array(scope, found, layout, "old")
        if layout.first_holder("thread") is not None:
            scope.sync()
        made = scope.declare("new", layout, dtype, exact=narrow(dtype) is None)
        new = scope.fill(made, lambda r: combine(old.at(r), scope.element(x, r, layout)))  # type: ignore[union-attr]
    stand_in = Var(value.type)
    scope.env[stand_in] = new
    store(scope, found, stand_in, None)
    scope.sites.written.add(found.where.root)
    return old


def _one_by_one(scope: Scope, eqn: Eqn, combine: Callable[[str, str], str]) -> None:
    """One thread stores all elements in order: of several with one index, the last one remains, or all combine."""
    root, value, *indices = eqn.inputs
    arrays = [atom for atom in dict.fromkeys((value, *indices)) if atom.type.shape]
    parts = [held(scope, atom) for atom in arrays]
    bases = dict(zip(arrays, exchange.put_all(scope, parts), strict=True))

    def element(atom: Atom, place: Sequence[Index]) -> str:
        flat = added(*map(times, place, row_major(atom.type.shape)))
        return exchange.get(scope, bases[atom], f"({flat})", atom.type.dtype)

    def gather(atom: Atom, axes: Sequence[int], selected: Place) -> str:
        return f"({element(atom, own_place(selected(index), axes, atom.type.shape))})"

    array = root.type.array  # type: ignore[union-attr]
    shape = views(array, eqn.transforms, [atom.type.shape for atom in indices])[-1].sizes
    index = [f"(e / {step} % {extent})" for step, extent in zip(row_major(shape), shape, strict=True)]
    found = access(scope, root, eqn.transforms, indices, gather=gather)
    scope.before_write(found.where.root)
    inside = found.inside(index)
    with scope.w.block(f"if (thread == 0) for (int e = 0; e < {math.prod(shape)}; ++e)"):
        new = element(value, index) if value.type.shape else scope.text(value)
        with scope.w.block(f"if ({inside})") if inside else nullcontext():
            name = scope.w.fresh("place_of_e")
            kind = "const u32" if isinstance(found.where, Shared) else "auto* const"
            scope.w.line(f"{kind} {name} = {found.address(index)};")
            address = swizzled_text(name, found.where.layout.swizzle) if isinstance(found.where, Shared) else name
            text = combine(found.load(address), new)
            scope.w.line(found.store(address, rounded(text, found.dtype)))
    scope.sites.written.add(found.where.root)
    scope.sites.read.add(EXCHANGE)


RULES: dict[str, Rule] = {
    "accumulate": _accumulate,
    "swap": _swap,
    "load": _load,
    "store": _store,
    "load_masked": _load_masked,
    "store_masked": _store_masked,
    "store_rows": _store_rows,
}
