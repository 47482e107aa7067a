"""Products on the tensor cores, on the CPU: computed synchronously by the usual product loops, into the accumulator."""

from __future__ import annotations

from collections.abc import Sequence

from palladio.cpu.access.memory import Access
from palladio.cpu.emit.lazy_array import Allocation, LazyArray, array_in
from palladio.cpu.emit.scope import RefBinding, Rule, Scope
from palladio.cpu.launches.barriers import reached
from palladio.cpu.launches.copies import loaded
from palladio.cpu.launches.coroutines import SharedRef
from palladio.ops.references.memory import Transforms

Stacks = tuple[Transforms, ...]


def _operand(
    scope: Scope, operand: SharedRef | LazyArray, stack: Transforms, indices: Sequence[LazyArray]
) -> LazyArray:
    if isinstance(operand, LazyArray):
        return operand
    return loaded(scope, *reached(scope, operand, stack, indices), indices)


def _wgmma(
    scope: Scope, acc: RefBinding, a: SharedRef | LazyArray, b: SharedRef, *indices: LazyArray, transforms: Stacks
) -> Sequence[LazyArray]:
    part = Access(scope, acc.buffer, transforms[0], indices).in_memory.buffer
    left, right = (_operand(scope, each, stack, indices) for each, stack in zip((a, b), transforms[1:], strict=True))
    rules = scope.function.rules
    before = array_in(scope.e, part, Allocation("accumulator"))
    (total,) = rules["dot_accumulate"](scope, before, left, right, contracting=((1,), (0,)), batch=((), ()))
    if total.fill is not None:
        total.fill(part)
    else:
        rules["store"](scope, RefBinding(acc.memory, part), scope.keep(total), transforms=())
    return ()


def _wgmma_wait(scope: Scope, *, n: int) -> Sequence[LazyArray]:
    return ()


def _accumulator_load(
    scope: Scope, acc: RefBinding, *, transforms: Transforms, wait_n: int | None
) -> Sequence[LazyArray]:
    return scope.function.rules["load"](scope, acc, transforms=transforms)


def _accumulator_store(scope: Scope, acc: RefBinding, value: LazyArray) -> Sequence[LazyArray]:
    return scope.function.rules["store"](scope, acc, value, transforms=())


def _set_max_registers(scope: Scope, *, count: int, action: str) -> Sequence[LazyArray]:
    return ()


def _layout_cast(scope: Scope, x: LazyArray, *, layout: object) -> Sequence[LazyArray]:
    return (x,)


RULES: dict[str, Rule] = {
    "wgmma": _wgmma,
    "wgmma_wait": _wgmma_wait,
    "accumulator_load": _accumulator_load,
    "accumulator_store": _accumulator_store,
    "set_max_registers": _set_max_registers,
    "layout_cast": _layout_cast,
}
