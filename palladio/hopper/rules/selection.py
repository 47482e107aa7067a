"""Extraction and replacement of parts of arrays, through shared memory."""

from __future__ import annotations

import math
from collections.abc import Sequence

from palladio.hopper.emit import exchange
from palladio.hopper.emit.scalars import literal, memory_type, rounded, to_memory
from palladio.hopper.emit.scope import Rule, Scope
from palladio.hopper.emit.values import EXCHANGE, Entry
from palladio.hopper.emit.views import Part, is_box, whole
from palladio.hopper.layouts.integers import Index, added, times
from palladio.hopper.layouts.registers import Layout
from palladio.hopper.rules.chains import Chain, Place, Tests, chain, in_layout, own_place
from palladio.hopper.rules.memory import outside
from palladio.hopper.rules.reduce import COMBINE
from palladio.hopper.rules.shape import held
from palladio.ir.core import Atom, Eqn
from palladio.lower.refused import Refused
from palladio.lower.views import views
from palladio.ops.references.memory import JOINED_BY
from palladio.types.types import ArrayType
from palladio.types.views import View, row_major


def _extract(scope: Scope, eqn: Eqn) -> Sequence[Entry]:
    array, *indices = eqn.inputs
    (out,) = eqn.outputs
    x, layout = held(scope, array)
    stack = eqn.transforms
    target = scope.layout(out) if out.type.shape else None
    type = ArrayType(layout.shape, x.dtype)
    found = views(type, stack, [atom.type.shape for atom in indices])
    if is_box(type, found):
        part: Part | Chain = scope.through(whole(layout.shape), x.dtype, stack, indices)
        tests: Tests = _tests(scope, found, indices)
    else:
        part = chain(scope, type, stack, found, indices, in_layout(scope, target))
        tests = part.tests
    if isinstance(part, Chain) and part.dtype != x.dtype:
        raise Refused("an array seen as another dtype is not compiled for Hopper yet")

    def inside(index: Sequence[Index]) -> str | None:
        return " && ".join(dict.fromkeys(tests(index))) or None

    if target is None:
        base = exchange.put(scope, x, layout)
        strides = row_major(layout.shape)
        text = exchange.get(scope, base, added(*map(times, part.place(()), strides)), x.dtype)
        test = inside(())
        return [scope.number(out, f"{test} ? {text} : {outside(x.dtype)}" if test else text)]
    return [exchange.moved(scope, x, layout, target, part.place, out.hint or "part", inside)]


def _tests(scope: Scope, found: Sequence[View], indices: Sequence[Atom]) -> Tests:
    """The guards of a box that may fail, of the array and of parts on the way."""
    open_limits = [limit for view in found for limit in scope.limits(view, indices)]
    return lambda index: [limit.test(index) for limit in open_limits]


def _insert(scope: Scope, eqn: Eqn) -> Sequence[Entry]:
    array, value, *indices = eqn.inputs
    (out,) = eqn.outputs
    target = scope.layout(out)
    stack = eqn.transforms
    type = ArrayType(target.shape, out.type.dtype)
    found = views(type, stack, [atom.type.shape for atom in indices])
    part = scope.through(whole(target.shape), out.type.dtype, stack, indices) if is_box(type, found) else None
    if eqn.kind != "set" or part is None or _is_cut(part):
        return _one_by_one(scope, eqn, target)
    before = scope.array(array, target)
    index = [f"({target.coordinate(n, 'r', 'thread')})" for n in range(len(target.shape))]
    own, tests = _origin(part, index)
    tests += _tests(scope, found, indices)(own)
    if value.type.shape:  # type: ignore[union-attr]
        x, layout = held(scope, value)
        base = exchange.put(scope, x, layout)
        text = exchange.get(scope, base, added(*map(times, own, row_major(layout.shape))), x.dtype)
    else:
        text = scope.text(value)
    if guard := target.guard("r", "thread"):
        tests.append(guard)
    changed = scope.declare(out.hint or "changed", target, out.type.dtype)
    return [
        scope.fill(changed, lambda r: f"{' && '.join(tests) or 'true'} ? {text} : {scope.element(before, r, target)}")
    ]


def _one_by_one(scope: Scope, eqn: Eqn, target: Layout) -> Sequence[Entry]:
    """One thread updates all elements in order, in a copy of the array in shared memory."""
    array, value, *indices = eqn.inputs
    combine = None if eqn.kind == "set" else COMBINE[JOINED_BY[eqn.kind]]
    arrays = [array, *dict.fromkeys(atom for atom in (value, *indices) if atom.type.shape and atom is not array)]
    parts = [held(scope, atom) for atom in arrays]
    bases = dict(zip(arrays, exchange.put_all(scope, parts), strict=True))
    dtype = parts[0][0].dtype

    def element(atom: Atom, place: Sequence[Index]) -> str:
        flat = added(*map(times, place, row_major(atom.type.shape)))
        return exchange.get(scope, bases[atom], f"({flat})", atom.type.dtype)

    def gather(atom: Atom, axes: Sequence[int], selected: Place) -> str:
        return f"({element(atom, own_place(selected(index), axes, atom.type.shape))})"

    type = ArrayType(target.shape, dtype)
    found = views(type, eqn.transforms, [atom.type.shape for atom in indices])
    shape = found[-1].sizes if found else type.shape
    index = [f"(e / {step} % {extent})" for step, extent in zip(row_major(shape), shape, strict=True)]
    part = chain(scope, type, eqn.transforms, found, indices, gather) if found else None
    place = part.place(index) if part else index
    inside = " && ".join(part.tests(index)) if part else None
    with scope.w.block(f"if (thread == 0) for (int e = 0; e < {math.prod(shape)}; ++e)"):
        new = element(value, index) if value.type.shape else scope.text(value)
        text = new if combine is None else rounded(combine(dtype, element(array, place), new), dtype)
        at = added(bases[array], times(f"({added(*map(times, place, row_major(type.shape)))})", dtype.itemsize))
        test = f"if ({inside}) " if inside else ""
        scope.w.line(f"{test}pal::store_shared<{memory_type(dtype)}>({at}, {to_memory(text, dtype)});")
    scope.sites.written.add(EXCHANGE)
    scope.before_read(EXCHANGE)
    changed = scope.declare(eqn.outputs[0].hint or "changed", target, dtype)
    own = [f"({target.coordinate(n, 'r', 'thread')})" for n in range(len(target.shape))]
    guard = target.guard("r", "thread")
    text = element(array, own)
    return [scope.fill(changed, lambda r: f"{guard} ? {text} : {literal(0, dtype)}" if guard else text)]


def _is_cut(part: Part) -> bool:
    """True if several axes of a part are along one axis of the array."""
    axes = [along.axis for along in part.axes if along.axis is not None]
    return len(set(axes)) < len(axes)


def _origin(part: Part, index: Sequence[str]) -> tuple[list[Index], list[str]]:
    """For an element of the array: its index in the value that replaces a part, and tests that it is in the part."""
    own: list[Index] = [0] * len(part.axes)
    tests: list[str] = []
    for axis, start in enumerate(part.starts):
        offset = f"({index[axis]} - {start.at})"
        place = [n for n, along in enumerate(part.axes) if along.axis == axis]
        if not place:
            tests.append(f"{offset} == 0")
            continue
        size, stride = part.sizes[place[0]], part.axes[place[0]].stride
        tests += [f"{offset} >= 0", f"{offset} < {(size - 1) * stride + 1}"]
        if stride > 1:
            tests.append(f"{offset} % {stride} == 0")
        own[place[0]] = f"({offset} / {stride})" if stride > 1 else offset
    return own, tests


RULES: dict[str, Rule] = {"extract": _extract, "insert": _insert}
