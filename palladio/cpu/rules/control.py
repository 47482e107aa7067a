"""Control flow on the CPU: blocks and branches; carried arrays live in buffers, carried scalars in stack slots."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from palladio.cpu.access.views import as_index
from palladio.cpu.analysis.work import LONG, STEPS, work_estimate
from palladio.cpu.emit import registers
from palladio.cpu.emit.emitter import V
from palladio.cpu.emit.lazy_array import Allocation, LazyArray, StridedArray, array_in, fill, scalar_array, write
from palladio.cpu.emit.llvm_types import I64
from palladio.cpu.emit.scope import Binding, RefBinding, Rule, Scope
from palladio.ir.core import Program
from palladio.types.types import ArrayType, RefType


class Home:
    """The storage of a value that crosses basic blocks."""

    def __init__(self, scope: Scope, type: ArrayType) -> None:
        self.scope = scope
        self.type = type
        self.memory = Allocation("carried")
        self.slot: V | None = None
        self.buffer: StridedArray | None = None
        if type.shape:
            self.buffer = scope.arena.buffer(scope.e, type.shape, type.dtype)
        else:
            self.slot = scope.function.slot(registers.register(type.dtype))

    def put(self, array: LazyArray) -> None:
        """Write an array here."""
        if self.buffer is not None:
            write(self.scope.e, array, self.buffer)
        else:
            self.scope.e.line(f"store {array.at((), 1)}, ptr {self.slot.text}")  # type: ignore[union-attr]

    def array(self) -> LazyArray:
        """The value stored here."""
        e = self.scope.e
        if self.buffer is not None:
            return array_in(e, self.buffer, self.memory)
        register = registers.register(self.type.dtype)
        return scalar_array(e, e.value(register, f"load {register}, ptr {self.slot.text}"), self.type.dtype)  # type: ignore[union-attr]


def put_all(scope: Scope, homes: Sequence[Home], arrays: Sequence[LazyArray]) -> None:
    """Write the next carries. One that reads another's home, or its own in another order, is computed first."""
    memories = [home.memory for home in homes]
    ready = []
    for home, array in zip(homes, arrays, strict=True):
        crossed = any(m in array.reads and (m is not home.memory or not array.reads[m]) for m in memories)
        ready.append(scope.keep(array) if crossed else array)
    for home, array in zip(homes, ready, strict=True):
        if array.buffer is None or array.buffer != home.buffer:
            home.put(array)


def _cond(scope: Scope, index: LazyArray, *operands: Binding, branches: tuple[Program, ...]) -> Sequence[LazyArray]:
    e = scope.e
    chosen = index.at((), 1)
    homes = [Home(scope, type) for type in branches[0].output_types]  # type: ignore[arg-type]
    end = e.fresh("joined")
    last = len(branches) - 1
    for number, branch in enumerate(branches):
        following = ""
        if number < last:
            # Below 0 counts as 0.
            here = e.compare("icmp sle", chosen, e.constant(number, chosen.type))
            inside, following = e.fresh("branch"), e.fresh("other")
            e.branch(here, inside, following)
            e.label(inside)
        outputs = scope.function.run(branch, operands)
        for home, array in zip(homes, outputs, strict=True):
            home.put(array)
        e.jump(end)
        if following:
            e.label(following)
    e.label(end)
    return [home.array() for home in homes]


def _loop(
    scope: Scope,
    lower: LazyArray,
    upper: LazyArray,
    *operands: Binding,
    body: Program,
    constants: int,
    step: int,
    unroll: int,
) -> Sequence[LazyArray]:
    e = scope.e
    fixed = operands[:constants]
    homes = carried(scope, operands[constants:])
    register = registers.register(lower.dtype)
    bounds = [e.known(as_index(scope, bound)) for bound in (lower, upper)]
    work, steps = work_estimate(body), None
    if isinstance(bounds[0], int) and isinstance(bounds[1], int):
        steps = (bounds[1] - bounds[0]) // step
    with scope.function.repeated(), e.loop(*bounds, step) as counter:
        number = e.index(counter)
        if steps is None or steps > STEPS or steps * work > LONG:
            scope.function.poll(work)
        index = number if register == I64 else e.convert("trunc", number, register)
        inputs = [scalar_array(e, index, lower.dtype), *fixed, *(home.array() for home in homes)]
        put_all(scope, homes, scope.function.run(body, inputs))
    return [home.array() for home in homes]


def carried(scope: Scope, initial: Sequence[Binding]) -> list[Home]:
    """Homes for the carries of a loop, with their initial values."""
    homes = []
    for entry in initial:
        array = entry if isinstance(entry, LazyArray) else None
        home = Home(scope, array.type)  # type: ignore[union-attr]
        home.put(array)  # type: ignore[arg-type]
        homes.append(home)
    return homes


def repeat(
    scope: Scope,
    *operands: Binding,
    condition: Program,
    body: Program,
    constants: int,
    end_step: Callable[[], None] = lambda: None,
) -> Sequence[LazyArray]:
    """A while loop.

    Args:
        end_step: emits code that ends each step.
    """
    fixed = operands[:constants]
    homes = carried(scope, operands[constants:])

    def run(program: Program) -> Sequence[Any]:
        return scope.function.run(program, [*fixed, *(home.array() for home in homes)])

    with scope.function.repeated(), scope.e.repeat(lambda: run(condition)[0].at((), 1)):
        scope.function.poll(work_estimate(body))
        put_all(scope, homes, run(body))
        end_step()
    return [home.array() for home in homes]


def allocated(scope_arena: Scope, ref: RefType) -> RefBinding:
    """A new buffer of uninitialised elements."""
    e = scope_arena.e
    buffer = scope_arena.arena.buffer(e, ref.shape, ref.dtype)
    fill(e, buffer, ref.initial)
    return RefBinding(Allocation("allocated", exclusive=True), buffer)


def _scope(scope: Scope, *operands: Binding, body: Program, allocations: tuple[RefType, ...]) -> Sequence[LazyArray]:
    places = [allocated(scope, ref) for ref in allocations]
    return scope.function.run(body, [*operands, *places])


RULES: dict[str, Rule] = {"cond": _cond, "loop": _loop, "repeat": repeat, "scope": _scope}
