"""Parts of arrays: taken out and replaced, through shared memory."""

from __future__ import annotations

from collections.abc import Sequence

from palladio.hopper.emit.scope import Rule, Scope
from palladio.hopper.emit.values import Entry
from palladio.hopper.emit.views import Part, is_box, whole
from palladio.hopper.layouts.shared import added, times
from palladio.hopper.rules import exchange
from palladio.hopper.rules.chains import Chain, chain
from palladio.hopper.rules.shape import held
from palladio.ir.core import Eqn
from palladio.lower.refused import Refused
from palladio.lower.views import views
from palladio.types.types import ArrayType
from palladio.types.views import row_major


def _inside(part: Part | Chain, place: Sequence[str]) -> str | None:
    """True if an element that is selected lies inside of the array."""
    if part.inside():
        return None
    return " && ".join(f"(u32)({at}) < {extent}" for at, extent in zip(place, part.shape, strict=True))


def _extract(scope: Scope, eqn: Eqn) -> Sequence[Entry]:
    array, *indices = eqn.inputs
    (out,) = eqn.outputs
    x, layout = held(scope, array)
    stack = eqn.params["transforms"]
    target = scope.layout(out) if out.type.shape else None
    type = ArrayType(layout.shape, x.dtype)
    found = views(type, stack, [atom.type.shape for atom in indices])
    if is_box(type, found):
        part: Part | Chain = scope.through(whole(layout.shape), x.dtype, stack, indices)
    else:
        part = chain(scope, type, stack, found, indices, target)
    if isinstance(part, Chain) and part.dtype != x.dtype:
        raise Refused("an array seen as another dtype is not compiled for Hopper yet")
    if target is None:
        base = exchange.put(scope, x, layout)
        strides = row_major(layout.shape)
        return [scope.number(out, exchange.get(scope, base, added(*map(times, part.place(()), strides)), x.dtype))]
    hint = out.hint or "part"
    return [exchange.moved(scope, x, layout, target, part.place, hint, lambda index: _inside(part, part.place(index)))]


def _insert(scope: Scope, eqn: Eqn) -> Sequence[Entry]:
    array, value, *indices = eqn.inputs
    (out,) = eqn.outputs
    if eqn.params["kind"] != "set":
        raise Refused("a part of an array combined with a value is not compiled for Hopper yet")
    target = scope.layout(out)
    before = scope.array(array, target)
    stack = eqn.params["transforms"]
    type = ArrayType(target.shape, out.type.dtype)
    if not is_box(type, views(type, stack, [atom.type.shape for atom in indices])):
        raise Refused("a part of an array behind several transforms is not replaced on Hopper yet")
    index = [f"({target.coordinate(n, 'r', 'thread')})" for n in range(len(target.shape))]
    own, tests = _origin(scope.through(whole(target.shape), out.type.dtype, stack, indices), index)
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


def _origin(part: Part, index: Sequence[str]) -> tuple[list[str], list[str]]:
    """For an element of the array: its index in the value that replaces a part, and whether it is in that part."""
    own, tests = ["0"] * len(part.axes), []
    for axis, start in enumerate(part.starts):
        offset = f"({index[axis]} - {start.text})"
        place = [n for n, along in enumerate(part.axes) if along.axis == axis]
        if not place:
            tests.append(f"{offset} == 0")
            continue
        if len(place) > 1:
            raise Refused("a part of an array in which an axis is cut is not replaced on Hopper yet")
        size, stride = part.sizes[place[0]], part.axes[place[0]].stride
        tests += [f"{offset} >= 0", f"{offset} < {(size - 1) * stride + 1}"]
        if stride > 1:
            tests.append(f"{offset} % {stride} == 0")
        own[place[0]] = f"({offset} / {stride})" if stride > 1 else offset
    return own, tests


RULES: dict[str, Rule] = {"extract": _extract, "insert": _insert}
