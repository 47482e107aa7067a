"""Writing LLVM IR as text: values, constants, loops and branches.

An index is a Python int if it is known, else an `i64` value; arithmetic on known indices emits no code.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field
from typing import Any

from palladio.base.dataclass import dataclass
from palladio.cpu.emit.llvm_types import FLOAT, HALF, I1, I64, PTR, LlvmType, integer, vector


@dataclass(slots=True, unsafe_hash=True)
class V:
    """An SSA value or a constant: its text and its LLVM type. `constant` is the value of a scalar constant.

    It never changes. A frozen class takes three times as long to make, and a kernel has thousands.
    """

    text: str
    type: LlvmType
    constant: float | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return f"{self.type.text} {self.text}"


Int = int | V
"""An integer: one known while the kernel is compiled, or one in a register."""


def i64(value: int) -> V:
    """A constant of 64 bits."""
    return V(str(value), I64, value)


TRUE, FALSE = V("true", I1), V("false", I1)


def float_text(value: float, type: LlvmType) -> str:
    """A float constant that LLVM reads back exactly. `float` constants are written as the double of the same value."""
    if type == FLOAT and not math.isinf(value):
        value = struct.unpack("<f", struct.pack("<f", value))[0]
    bits = struct.unpack("<Q", struct.pack("<d", value))[0]
    if type == HALF:
        return f"0xH{struct.unpack('<H', struct.pack('<e', value))[0]:04X}"
    return f"0x{bits:016X}"


class Emitter:
    """The body of one function under construction."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.declared: dict[str, str] = {}
        self.count = 0
        self.block = "entry"

    def fresh(self, stem: str = "t") -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def line(self, text: str) -> None:
        self.lines.append("  " + text)

    def value(self, type: LlvmType, text: str) -> V:
        """`%t = text`, a value of a type."""
        self.count += 1
        name = f"%t{self.count}"
        self.lines.append(f"  {name} = {text}")
        return V(name, type)

    def label(self, name: str) -> None:
        """Begin a block. The one before must have ended."""
        self.lines.append(f"{name}:")
        self.block = name

    def jump(self, target: str) -> None:
        self.line(f"br label %{target}")

    def branch(self, condition: V, true: str, false: str) -> None:
        self.line(f"br i1 {condition.text}, label %{true}, label %{false}")

    # Constants.

    def constant(self, value: Any, type: LlvmType) -> V:
        """A constant of a scalar or vector type."""
        if type.is_float:
            text = float_text(float(value), type.element)
        elif type.bits == 1:
            text = "true" if value else "false"
        else:
            text = str(int(value))
        if type.width == 1:
            return V(text, type, value)
        return V("<" + ", ".join([f"{type.element} {text}"] * type.width) + ">", type)

    def lanes(self, values: Sequence[int], element: LlvmType = I64) -> V:
        """A vector constant of integers."""
        return V("<" + ", ".join(f"{element} {v}" for v in values) + ">", vector(element, len(values)))

    def splat(self, value: V, width: int) -> V:
        """A scalar in every lane."""
        if width == 1:
            return value
        type = vector(value.type, width)
        if value.constant is not None:
            return V("<" + ", ".join([str(value)] * width) + ">", type)
        first = self.value(type, f"insertelement {type} poison, {value}, i64 0")
        return self.value(type, f"shufflevector {first}, {type} poison, <{width} x i32> zeroinitializer")

    def gathered(self, parts: Sequence[V]) -> V:
        """Scalars as the lanes of a vector."""
        if len(parts) == 1:
            return parts[0]
        type = vector(parts[0].type, len(parts))
        whole = V("poison", type)
        for lane, part in enumerate(parts):
            whole = self.value(type, f"insertelement {whole}, {part}, i64 {lane}")
        return whole

    def folded(self, value: V, combine: Callable[[V, V], V]) -> V:
        """All lanes of a vector combined into one, by halves."""
        width = value.type.width
        while width > 2:
            width //= 2
            type = vector(value.type.element, width)
            chosen = (", ".join(f"i32 {first + lane}" for lane in range(width)) for first in (0, width))
            texts = [f"shufflevector {value}, {value.type} poison, <{width} x i32> <{mask}>" for mask in chosen]
            value = combine(*[self.value(type, text) for text in texts])
        return value if width == 1 else combine(self.lane(value, 0), self.lane(value, 1))

    def folded_together(self, values: Sequence[V], combine: Callable[[V, V], V]) -> V:
        """All lanes of each vector combined into a lane of the result, in the order of `folded`.

        Args:
            values: a power of two of them, at most as many as each has lanes.
        """
        found, size = list(values), values[0].type.width
        while size > 1 or len(found) > 1:
            pairs = [found[n : n + 2] for n in range(0, len(found), 2)]
            found = [self._halves_combined(pair, size, combine) for pair in pairs]
            size //= 2
        return found[0]

    def _halves_combined(self, pair: Sequence[V], size: int, combine: Callable[[V, V], V]) -> V:
        """One or two vectors; in each group of `size` lanes the second half is combined with the first."""
        width, half = pair[0].type.width, size // 2
        if width * len(pair) == 2:
            return combine(self.lane(pair[0], 0), self.lane(pair[0], 1))
        type = vector(pair[0].type.element, width * len(pair) // 2)
        firsts = [lane for lane in range(width * len(pair)) if lane % size < half]
        parts = []
        for offset in (0, half):
            mask = ", ".join(f"i32 {lane + offset}" for lane in firsts)
            other = pair[1] if len(pair) > 1 else V("poison", pair[0].type)
            parts.append(self.value(type, f"shufflevector {pair[0]}, {other}, <{len(firsts)} x i32> <{mask}>"))
        return combine(*parts)

    def lane(self, value: V, lane: int) -> V:
        """One lane of a vector."""
        if value.type.width == 1:
            return value
        return self.value(value.type.element, f"extractelement {value}, i64 {lane}")

    # Operations.

    def binary(self, op: str, x: V, y: V) -> V:
        return self.value(x.type, f"{op} {x.type} {x.text}, {y.text}")

    def negated(self, condition: V) -> V:
        return self.binary("xor", condition, TRUE)

    def compare(self, op: str, x: V, y: V) -> V:
        return self.value(vector(I1, x.type.width), f"{op} {x.type} {x.text}, {y.text}")

    def mask(self, conditions: V) -> V:
        """The lanes of a vector of conditions as the bits of one integer."""
        type = integer(conditions.type.width)
        return self.value(type, f"bitcast {conditions} to {type}")

    def select(self, condition: V, x: V, y: V) -> V:
        return self.value(x.type, f"select {condition}, {x}, {y}")

    def branchless(self, condition: V, x: V, y: V) -> V:
        """Like `select`, for conditions that a processor cannot predict: LLVM does not make it a branch."""
        self.declared["!unpredictable"] = "!1 = !{}"
        return self.value(x.type, f"select {condition}, {x}, {y}, !unpredictable !1")

    def convert(self, op: str, x: V, element: LlvmType) -> V:
        type = vector(element, x.type.width)
        return x if type == x.type else self.value(type, f"{op} {x} to {type}")

    def intrinsic(self, name: str, result: LlvmType, *arguments: V, suffix: str | None = None, flags: str = "") -> V:
        """Call an LLVM intrinsic, overloaded on the type of its first argument unless a suffix is given."""
        full = f"llvm.{name}.{suffix or arguments[0].type.mangled}"
        self.declared[full] = f"declare {result} @{full}({', '.join(str(a.type) for a in arguments)})"
        return self.value(result, f"call {flags}{result} @{full}({', '.join(map(str, arguments))})")

    # Index arithmetic.

    def index(self, value: Int) -> V:
        return value if isinstance(value, V) else i64(value)

    def known(self, index: V) -> Int:
        """An index as a number, if it is a constant."""
        return index if index.constant is None else int(index.constant)

    # A comparison of a register with a number takes longer than the rest of these functions.

    def add(self, x: Int, y: Int) -> Int:
        if isinstance(x, int) and isinstance(y, int):
            return x + y
        if isinstance(x, int) and x == 0:
            return y
        if isinstance(y, int) and y == 0:
            return x
        return self.binary("add nsw", self.index(x), self.index(y))

    def sub(self, x: Int, y: Int) -> Int:
        if isinstance(x, int) and isinstance(y, int):
            return x - y
        if isinstance(y, int) and y == 0:
            return x
        return self.binary("sub nsw", self.index(x), self.index(y))

    def mul(self, x: Int, y: Int) -> Int:
        if isinstance(x, int) and isinstance(y, int):
            return x * y
        known, other = (x, y) if isinstance(x, int) else (y, x)
        if isinstance(known, int) and known in (0, 1):
            return other if known else 0
        return self.binary("mul nsw", self.index(x), self.index(y))

    def choose(self, condition: V, x: Int, y: Int) -> Int:
        return x if x == y else self.select(condition, self.index(x), self.index(y))

    def truth(self, conditions: Sequence[V]) -> V | None:
        """The conjunction of the conditions; None if there are none."""
        result: V | None = None
        for condition in conditions:
            result = condition if result is None else self.binary("and", result, condition)
        return result

    # Memory.

    def pointer(self, base: V, offset: Int, size: int) -> V:
        """The address `offset` elements of `size` bytes from a base."""
        distance = self.mul(offset, size)
        return base if distance == 0 else self.value(PTR, f"getelementptr i8, ptr {base.text}, {self.index(distance)}")

    def load(self, type: LlvmType, address: V, align: int) -> V:
        return self.value(type, f"load {type}, ptr {address.text}, align {align}")

    def store(self, value: V, address: V, align: int) -> None:
        self.line(f"store {value}, ptr {address.text}, align {align}")

    def stream(self, value: V, address: V, align: int) -> None:
        """Store past the caches. `finish_streams` must follow before other threads read."""
        self.declared["!stream"] = "!0 = !{i32 1}"
        self.line(f"store {value}, ptr {address.text}, align {align}, !nontemporal !0")

    def finish_streams(self) -> None:
        """Make stores past the caches visible to other threads, if there are any."""
        if "!stream" in self.declared:
            self.line("fence seq_cst")

    def prefetch(self, address: V, level: int = 2) -> None:
        """Prefetch an address into the first or second level of cache; it need not be valid."""
        self.declared["llvm.prefetch.p0"] = "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)"
        self.line(f"call void @llvm.prefetch.p0({address}, i32 0, i32 {4 - level}, i32 1)")

    # Control.

    @contextmanager
    def loop(self, start: Int, stop: Int, step: Int = 1) -> Iterator[Int]:
        """A counted loop; a known count of one is not a loop."""
        if isinstance(start, int) and isinstance(stop, int) and isinstance(step, int) and 0 < stop - start <= step:
            yield start
            return
        head, body, end = self.fresh("head"), self.fresh("body"), self.fresh("end")
        counter, following = "%" + self.fresh("i"), "%" + self.fresh("i")
        before = self.block
        self.jump(head)
        self.label(head)
        patch = len(self.lines)
        self.lines.append("")
        inside = self.compare("icmp slt", V(counter, I64), self.index(stop))
        self.branch(inside, body, end)
        self.label(body)
        yield V(counter, I64)
        self.line(f"{following} = add nsw i64 {counter}, {self.index(step).text}")
        latch = self.block
        self.jump(head)
        self.lines[patch] = f"  {counter} = phi i64 [ {self.index(start).text}, %{before} ], [ {following}, %{latch} ]"
        self.label(end)

    @contextmanager
    def repeat(self, condition: Callable[[], V]) -> Iterator[None]:
        """Run the code emitted inside as long as a condition holds, which is computed before each time."""
        again, body, done = self.fresh("again"), self.fresh("body"), self.fresh("done")
        self.jump(again)
        self.label(again)
        self.branch(condition(), body, done)
        self.label(body)
        yield
        self.jump(again)
        self.label(done)

    def either(self, condition: V, inside: Callable[[], None], outside: Callable[[], None]) -> None:
        """Run the code that `inside` emits if a condition holds, else that of `outside`."""
        true, false, after = self.fresh("inside"), self.fresh("outside"), self.fresh("after")
        self.branch(condition, true, false)
        for name, emit in ((true, inside), (false, outside)):
            self.label(name)
            emit()
            self.jump(after)
        self.label(after)

    def leave(self, text: str) -> None:
        """End the function, and begin a block for code after it, which never runs."""
        self.line(text)
        self.label(self.fresh("never"))

    @contextmanager
    def when(self, condition: V | None) -> Iterator[None]:
        """Run the code emitted inside if the condition holds; always, for None."""
        if condition is None:
            yield
            return
        inside, after = self.fresh("then"), self.fresh("after")
        self.branch(condition, inside, after)
        self.label(inside)
        yield
        self.jump(after)
        self.label(after)
