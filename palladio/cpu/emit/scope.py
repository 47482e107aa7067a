"""The equations of one program while they are compiled, and the value of each variable."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from palladio.base.dataclass import dataclass
from palladio.base.errors import attach
from palladio.cpu.analysis.work import BETWEEN, CLOCK, STEPS, quarter_seconds
from palladio.cpu.emit import registers
from palladio.cpu.emit.emitter import Emitter, Int, V, i64
from palladio.cpu.emit.lazy_array import (
    Allocation,
    Arena,
    LazyArray,
    StridedArray,
    fill,
    keep,
    prefetching,
    row_by_row,
    scalar_array,
    widths,
)
from palladio.cpu.emit.llvm_types import I8, I32, I64, PTR, LlvmType, vector
from palladio.cpu.runtime.callbacks import POLL, Callback
from palladio.cpu.runtime.status import Status
from palladio.ir.core import Atom, Eqn, Literal, Op, Program, Var, Work
from palladio.lower.refused import Refused
from palladio.types import dtypes


@dataclass(frozen=True)
class BlockMarks:
    """Initialisation marks of an output block: one byte for the block, or one for each row."""

    mark: V
    buffer: StridedArray
    rows: int = 1

    def ensure(self, e: Emitter) -> None:
        """Fill the parts that are not initialised with uninitialised values."""
        nothing = dtypes.uninitialized(self.buffer.dtype)
        with e.loop(0, self.rows) as row:
            mark = e.pointer(self.mark, row, 1)
            with e.when(e.compare("icmp eq", e.load(I8, mark, 1), V("0", I8))):
                fill(e, self.buffer if self.rows == 1 else self.row(e, row), nothing)
                e.store(V("1", I8), mark, 1)

    def row(self, e: Emitter, row: Int) -> StridedArray:
        """The part of the block that a mark is for."""
        base = self.buffer.address(e, (row, *[0] * (len(self.buffer.shape) - 1)))
        return StridedArray(base, self.buffer.strides[1:], self.buffer.shape[1:], self.buffer.dtype)

    def note(self, e: Emitter) -> None:
        """Mark the whole block as initialised."""
        for start, end, width in widths(self.rows):
            with e.loop(start, end, width) as row:
                e.store(e.constant(1, vector(I8, width)), e.pointer(self.mark, row, 1), 1)

    def note_row(self, e: Emitter, row: Int) -> None:
        """Mark a row as initialised."""
        e.store(V("1", I8), e.pointer(self.mark, row if self.rows > 1 else 0, 1), 1)


@dataclass(frozen=True)
class RefBinding:
    """The memory that a reference points to. `start`: marks of a block that is uninitialised before the call."""

    memory: Allocation
    buffer: StridedArray
    start: BlockMarks | None = None


Binding = LazyArray | RefBinding
Rule = Callable[..., Sequence[LazyArray]]


class ThreadState:
    """A thread's state between steps: words in its arena that are 0 when a call begins."""

    COUNT = 512

    def __init__(self, e: Emitter, arena: Arena) -> None:
        self.e = e
        self.buffer = arena.buffer(e, (self.COUNT,), dtypes.INT64)
        self.used = 0

    def take(self, count: int) -> StridedArray | None:
        """A number of the words; None if too few are left."""
        if self.used + count > self.COUNT:
            return None
        self.used += count
        base = self.e.pointer(self.buffer.base, self.used - count, dtypes.INT64.itemsize)
        return StridedArray(base, (1,), (count,), dtypes.INT64)


class Function:
    """The state that all programs of one compiled function share: its text, its arena, its rules."""

    def __init__(self, e: Emitter, arena: Arena, rules: Mapping[str, Rule], refused: Mapping[str, str]) -> None:
        self.e = e
        self.arena = arena
        self.rules = rules
        self.refused = refused
        self.slots: list[str] = []
        # Emits some equations together, from the given one on, if that pays; returns those that are left.
        self.together: Callable[[Scope, Sequence[Eqn], int], Sequence[Eqn] | None] | None = None
        self.notes: ThreadState | None = None
        # The callbacks to Python, the place of the callback function's address, and whether the status is read.
        self.callbacks: list[Callback] = []
        self.caller: V | None = None
        self.reads_status = False
        self.clock: list[V] = []
        self.eqn: Eqn | None = None
        # The allocations whose packed blocks are kept from one step to the next.
        self.packed: set[Allocation] = set()
        # For blocks that nothing writes, in the order of the kernel's arguments: this step's, and a function that emits
        # the address of that of a later step.
        self.later: dict[Allocation, tuple[StridedArray, Callable[[int], V]]] = {}
        # For blocks that nothing writes: this step's, and a function that emits the address of that of the next step,
        # which is the next to read one. Empty in a loop of the kernel.
        self.following: dict[Allocation, tuple[StridedArray, Callable[[], V]]] = {}
        # For blocks that nothing writes: the byte distance from this task's to the next one's.
        self.ahead: dict[Allocation, V] = {}
        # The index of this step along the innermost sequential grid axis, and its number of steps; (0, 1) if unknown.
        self.innermost: tuple[Int, int] = (0, 1)

    @contextmanager
    def repeated(self) -> Iterator[None]:
        """Emit code that may run several times in a step of the grid."""
        outer, self.following = self.following, {}
        yield
        self.following = outer

    def call_back(self, number: int, addresses: Sequence[V] = ()) -> None:
        """Call back into Python, with the addresses of values, and return from the kernel if it fails."""
        e = self.e
        table = self.arena.buffer(e, (1 + len(addresses),), dtypes.INT64)
        for place, word in enumerate((i64(number), *addresses)):
            e.store(word, table.address(e, (place,)), 8)
        if self.caller is None:
            raise Refused("this kernel has no table of callbacks")
        function = e.load(PTR, self.caller, 8)
        failed = e.compare("icmp ne", e.value(I32, f"call i32 {function.text}({table.base})"), V("0", I32))
        self.reads_status = True
        with e.when(failed):
            self.give_up()

    def give_up(self) -> None:
        """Return from the kernel, which has failed."""
        self.e.leave("ret i32 1")

    def require(self, condition: V | None) -> None:
        """Continue only if a condition holds. If not, the evaluator, or the machine, reports the error."""
        if condition is not None:
            self.reads_status = True
            with self.e.when(self.e.negated(condition)):
                self.e.leave(f"ret i32 {Status.DEADLOCKED}")

    def poll(self, work: int = 0) -> None:
        """In a step of a long loop: poll for interrupts now and then. `work`: the estimated elements of a step."""
        if not CLOCK or self.caller is None:
            return
        e = self.e
        if not self.clock:
            self.clock = [self.slot(I64), self.slot(I64), self.slot(I64, 2)]
            self.slots += [f"  store i64 0, ptr {slot.text}" for slot in self.clock[:2]]
        counted, last, room = self.clock
        weight = min(BETWEEN, max(BETWEEN // STEPS, work))
        count = e.binary("add", e.load(I64, counted, 8), i64(weight))
        e.store(count, counted, 8)
        some = e.compare("icmp uge", count, i64(BETWEEN))
        with e.when(some):
            e.store(i64(0), counted, 8)
            now = quarter_seconds(e, room)
            before = e.load(I64, last, 8)
            e.store(now, last, 8)
            timed = e.compare("icmp ne", before, i64(0))
            with e.when(e.binary("and", timed, e.compare("icmp ne", now, before))):
                self.call_back(POLL)

    def slot(self, type: LlvmType, count: int = 1) -> V:
        """A stack slot for one value, or for several."""
        name = "%" + self.e.fresh("slot")
        self.slots.append(f"  {name} = alloca {type if count == 1 else f'[{count} x {type}]'}")
        return V(name, PTR)

    def emit(self, scope: Scope, eqn: Eqn) -> None:
        """Emit an equation of a program."""
        with attach(eqn.location, f"compiling {eqn.op.name}"):
            try:
                scope.equation(eqn)
            except Refused as refused:
                refused.name(eqn.op.name, "the CPU")
                raise

    def run(self, program: Program, inputs: Sequence[Binding]) -> list[LazyArray]:
        """Emit a program; returns its outputs, which may still be lazy."""
        scope = Scope(self, program, inputs)
        left, first = program.eqns, 0
        while first < len(left):
            rest = self.together(scope, left, first) if self.together is not None else None
            if rest is None:
                self.emit(scope, left[first])
                first += 1
            else:
                left, first = rest, 0
        return [scope.array(atom) for atom in program.outputs]


def is_applied_by_rows(op: Op) -> bool:
    """True if an operation is applied to a matrix while it is computed, a few rows at a time."""
    return op.elementwise and op.work is Work.NONE


class Scope:
    """One program being emitted."""

    def __init__(self, function: Function, program: Program, inputs: Sequence[Binding]) -> None:
        self.function = function
        self.e = function.e
        self.arena = function.arena
        self.entries: dict[Var, Binding] = dict(zip(program.inputs, inputs, strict=True))
        self.program = program
        self.uses: Counter[Var] = Counter()
        for eqn in program.eqns:
            self.uses.update(atom for atom in eqn.inputs if isinstance(atom, Var))
        self.uses.update(atom for atom in program.outputs if isinstance(atom, Var))

    def entry(self, atom: Atom) -> Binding:
        """The value of a variable or literal."""
        if isinstance(atom, Literal):
            dtype = atom.type.dtype
            return scalar_array(self.e, registers.constant(self.e, atom.value, dtype), dtype)
        return self.entries[atom]

    def array(self, atom: Atom) -> LazyArray:
        """The lazy array of an array variable or literal."""
        found = self.entry(atom)
        if not isinstance(found, LazyArray):
            raise Refused("a reference stands where an array is needed")
        return found

    def keep(self, array: LazyArray) -> LazyArray:
        """An array, computed into a new buffer or register."""
        return keep(self.e, self.arena, array)

    def equation(self, eqn: Eqn) -> None:
        """Emit one equation."""
        name = eqn.op.name
        if name in self.function.refused:
            raise Refused(self.function.refused[name])
        self.use(eqn)
        inputs = [self.last_seen(self.entry(atom), atom) for atom in eqn.inputs]
        self.function.eqn = eqn
        lazily = self.row_by_row(eqn.op, inputs, **eqn.params)
        outputs = self.function.rules[name](self, *inputs, **eqn.params) if lazily is None else (lazily,)
        self.entries.update(zip(eqn.outputs, outputs, strict=True))

    def use(self, eqn: Eqn) -> None:
        """Count the operands of an equation as used."""
        for atom in eqn.inputs:
            if isinstance(atom, Var):
                self.uses[atom] -= 1

    def last_seen(self, entry: Binding, atom: Atom) -> Binding:
        """An input; if this is its last use, it prefetches the elements of the next task."""
        if isinstance(entry, LazyArray) and entry.ahead is not None and not self.uses[atom]:  # type: ignore[index]
            return prefetching(self.e, entry)
        return entry

    def row_by_row(self, op: Op, inputs: Sequence[Binding], **params: object) -> LazyArray | None:
        """An operation applied to a matrix while it is computed, if one of the inputs is computed by panels."""
        lazy = [n for n, entry in enumerate(inputs) if isinstance(entry, LazyArray) and entry.panels is not None]
        if not is_applied_by_rows(op) or len(lazy) != 1:
            return None
        before, after, rule = inputs[: lazy[0]], inputs[lazy[0] + 1 :], self.function.rules[op.name]

        def applied(part: Binding) -> LazyArray:
            (found,) = rule(self, *before, part, *after, **params)
            return found

        whole: LazyArray = inputs[lazy[0]]  # type: ignore[assignment]
        return row_by_row(self.e, whole.panels, applied, applied(whole))  # type: ignore[arg-type]
