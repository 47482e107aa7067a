"""Operations that rearrange elements: by reinterpreting registers where the layouts allow it, else through shared
memory."""

from __future__ import annotations

from collections.abc import Sequence

from palladio.hopper.emit import exchange
from palladio.hopper.emit.scalars import Scalar, literal, register_type
from palladio.hopper.emit.scope import Rule, Scope
from palladio.hopper.emit.values import Computed, Entry, Registers, Splat, splat_of
from palladio.hopper.layouts.infer import plain, reshaped
from palladio.hopper.layouts.integers import added, times
from palladio.hopper.layouts.registers import Layout
from palladio.ir.core import Atom, Eqn
from palladio.types.views import row_major


def _broadcast(scope: Scope, eqn: Eqn) -> Sequence[Entry]:
    (atom,), (out,) = eqn.inputs, eqn.outputs
    found = scope.entry(atom)
    shape, axes = eqn.shape, eqn.axes
    if isinstance(found, (Scalar, Splat)):
        return [splat_of(found, shape, out.type.dtype)]
    if isinstance(found, Computed):
        return [_computed_broadcast(found, shape, axes)]
    layout = scope.layout(out)
    inner, place = _inner(layout, found.shape, shape, axes)  # type: ignore[union-attr]
    x = scope.array(atom, inner)
    target = scope.declare(out.hint or "spread", layout, out.type.dtype)
    return [scope.fill(target, lambda r: scope.element(x, place, inner))]


def _inner(layout: Layout, inner: tuple[int, ...], shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[Layout, str]:
    """The layout of a broadcast's operand, from that of the result, and the operand's register for a result's."""
    new = [axis for axis in range(len(shape)) if axis not in axes]
    spread = [n for n, axis in enumerate(axes) if inner[n] != shape[axis]]
    found = layout.reduced(new)
    gone = {*new, *(axes[n] for n in spread)}
    if spread:
        found = found.reduced(spread, keep=True)
    return found, layout.projected(gone, "r")


def _computed_broadcast(x: Computed, shape: tuple[int, ...], axes: tuple[int, ...]) -> Computed:
    def at(layout: Layout, register: str, thread: str) -> str:
        inner, place = _inner(layout, x.shape, shape, axes)
        return x.at(inner, f"({place.replace('r', register)})", thread)

    return Computed(at, shape, x.dtype)


def _iota(scope: Scope, eqn: Eqn) -> Sequence[Entry]:
    shape, dtype, axis = (eqn.params[key] for key in ("shape", "dtype", "axis"))
    kind = register_type(dtype)

    def at(layout: Layout, register: str, thread: str) -> str:
        return f"({kind})({layout.coordinate(axis, register, thread)})"

    return [Computed(at, shape, dtype)]


def held(scope: Scope, atom: Atom) -> tuple[Registers | Splat, Layout]:
    """An array in registers, in its current layout, and this layout."""
    found = scope.entry(atom)
    if isinstance(found, Registers):
        return found, found.layout
    layout = scope.layouts.known(atom) or plain(atom.type, scope.one_warp)  # type: ignore[arg-type]
    return scope.materialised(atom, layout), layout


def _reshape(scope: Scope, eqn: Eqn) -> Sequence[Entry]:
    (atom,), (out,) = eqn.inputs, eqn.outputs
    found = scope.entry(atom)
    shape = out.type.shape
    if isinstance(found, (Scalar, Splat)):
        return [splat_of(found, shape, out.type.dtype)]
    if not shape:
        return [_only(scope, atom, eqn)]
    target = scope.layout(out)
    x, layout = held(scope, atom)
    moved = reshaped(layout, shape)
    if moved is not None and moved.same(target) and isinstance(x, Registers):
        return [Registers(x.name, target, x.dtype, x.exact)]
    strides = row_major(shape)
    old = layout.shape

    def origin(index: Sequence[str]) -> list[str]:
        flat = f"({added(*(times(part, stride) for part, stride in zip(index, strides, strict=True)))})"
        own = row_major(old)
        return [f"{flat} / {stride} % {extent}" for stride, extent in zip(own, old, strict=True)]

    return [exchange.moved(scope, x, layout, target, origin, out.hint or "reshaped")]


def _only(scope: Scope, atom: Atom, eqn: Eqn) -> Scalar:
    """The only element of an array, as a number."""
    x, layout = held(scope, atom)
    (out,) = eqn.outputs
    base = exchange.put(scope, x, layout)
    text = exchange.get(scope, base, 0, x.dtype)
    return scope.number(out, text)


def _transpose(scope: Scope, eqn: Eqn) -> Sequence[Entry]:
    (atom,), (out,) = eqn.inputs, eqn.outputs
    permutation = eqn.permutation
    found = scope.entry(atom)
    if isinstance(found, Splat):
        return [splat_of(found, out.type.shape, found.dtype)]
    x, layout = held(scope, atom)

    def origin(index: Sequence[str]) -> list[str]:
        return [index[permutation.index(axis)] for axis in range(len(permutation))]

    return [exchange.moved(scope, x, layout, scope.layout(out), origin, out.hint or "turned")]


def _reverse(scope: Scope, eqn: Eqn) -> Sequence[Entry]:
    (atom,), (out,) = eqn.inputs, eqn.outputs
    x, layout = held(scope, atom)

    def origin(index: Sequence[str]) -> list[str]:
        return [f"({layout.shape[n] - 1} - {part})" if n in eqn.axes else part for n, part in enumerate(index)]

    return [exchange.moved(scope, x, layout, scope.layout(out), origin, out.hint or "reversed")]


def _concatenate(scope: Scope, eqn: Eqn) -> Sequence[Entry]:
    """Write each part to shared memory, for the threads that hold its elements of the result."""
    (out,), axis = eqn.outputs, eqn.axis
    target = scope.layout(out)
    joined = scope.declare(out.hint or "joined", target, out.type.dtype)
    scope.fill(joined, lambda r: literal(0, out.type.dtype))
    index = [f"({target.coordinate(n, 'r', 'thread')})" for n in range(len(target.shape))]
    first = 0
    for atom in eqn.inputs:
        x, layout = held(scope, atom)
        base = exchange.put(scope, x, layout)
        extent = layout.shape[axis]
        place = [f"({part} - {first})" if n == axis else part for n, part in enumerate(index)]
        flat = added(*(times(part, s) for part, s in zip(place, row_major(layout.shape), strict=True)))
        tests = [f"{index[axis]} >= {first}", f"{index[axis]} < {first + extent}", target.guard("r", "thread")]
        value = exchange.get(scope, base, flat, x.dtype)
        scope.w.line(
            f"PAL_UNROLL for (int r = 0; r < {target.count}; ++r) "
            f"if ({' && '.join(test for test in tests if test)}) {joined.name}[r] = {value};"
        )
        first += extent
    return [joined]


def _pad(scope: Scope, eqn: Eqn) -> Sequence[Entry]:
    atom, value = eqn.inputs
    (out,) = eqn.outputs
    padding = eqn.padding
    target = scope.layout(out)
    x, layout = held(scope, atom)
    base = exchange.put(scope, x, layout)
    padded = scope.declare(out.hint or "padded", target, out.type.dtype)
    index = [f"({target.coordinate(n, 'r', 'thread')})" for n in range(len(target.shape))]
    place, tests = [], []
    for part, (before, _, between), extent in zip(index, padding, layout.shape, strict=True):
        own = f"({part} - {before})" if before >= 0 else f"({part} + {-before})"
        step = between + 1
        place.append(f"({own} / {step})" if step > 1 else own)
        tests += [f"{own} >= 0", f"{own} < {(extent - 1) * step + 1}"]
        if step > 1:
            tests.append(f"{own} % {step} == 0")
    if 0 in layout.shape:
        tests = ["false"]
    if guard := target.guard("r", "thread"):
        tests.append(guard)
    flat = added(*(times(part, s) for part, s in zip(place, row_major(layout.shape), strict=True)))
    found = exchange.get(scope, base, flat, x.dtype)
    return [scope.fill(padded, lambda r: f"{' && '.join(tests)} ? {found} : {scope.text(value)}")]


def in_other_pieces(scope: Scope, eqn: Eqn) -> Entry:
    """A bitcast to elements of another width: the bits of an element are contiguous in row-major order."""
    (atom,), (out,) = eqn.inputs, eqn.outputs
    x, layout = held(scope, atom)
    base = exchange.put(scope, x, layout)
    if not out.type.shape:
        return scope.number(out, exchange.get(scope, base, 0, out.type.dtype))
    target = scope.layout(out)
    index = [f"({target.coordinate(axis, 'r', 'thread')})" for axis in range(len(target.shape))]
    place = added(*(times(part, stride) for part, stride in zip(index, row_major(target.shape), strict=True)))
    value, guard = exchange.get(scope, base, place, out.type.dtype), target.guard("r", "thread")
    made = scope.declare(out.hint or "bits", target, out.type.dtype)
    return scope.fill(made, lambda r: f"{guard} ? {value} : {literal(0, out.type.dtype)}" if guard else value)


RULES: dict[str, Rule] = {
    "broadcast": _broadcast,
    "iota": _iota,
    "reshape": _reshape,
    "transpose": _transpose,
    "reverse": _reverse,
    "concatenate": _concatenate,
    "pad": _pad,
}
