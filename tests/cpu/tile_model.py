"""A model of the tile registers of x86-64 processors (AMX), so that kernels which use them run on any processor.

Written from Intel's Software Developer's Manual, volume 2: LDTILECFG, TILELOADD, TILESTORED, TILEZERO, TILERELEASE,
TDPBF16PS, TDPBSSD, TDPBUSD. The text of a kernel calls Python functions in place of the instructions.
"""

from __future__ import annotations

import ctypes
import re
import threading
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from palladio.cpu.runtime import host
from palladio.cpu.runtime.host import Processor

Array = np.ndarray[Any, Any]

ROWS, ROW_BYTES, TILES = 16, 64, 8

NORMAL = 2.0**-126
"""The least normal float32."""


def flushed(x: Array) -> Array:
    """Numbers of float32, subnormal ones replaced by zeros of the same sign."""
    return np.where(np.abs(x) < NORMAL, np.copysign(np.float32(0), x), x).astype(np.float32)


def rounded(exact: Array, error: Array) -> Array:
    """The float32 nearest to `exact + error`, a float64 and its rounding error; subnormal results are flushed.

    The first is rounded to odd before, so that it is not rounded twice: its last bit says that there is more.
    """
    bits = exact.view(np.int64)
    even = (error != 0) & np.isfinite(error) & (bits & 1 == 0)
    outwards = np.signbit(error) == np.signbit(exact)
    exact = np.where(even, bits + np.where(outwards, 1, -1), bits).view(np.float64)
    tiny = np.abs(exact) < NORMAL - 2.0**-151  # what is rounded to the least normal number is not flushed
    return np.where(tiny, np.copysign(0.0, exact), exact).astype(np.float32)


def added(x: Array, y: Array) -> Array:
    """The sum of two arrays of float64, rounded once to float32; flushed."""
    total = x + y
    half_way = (total.view(np.int64) & 0x1FFFFFFF) == 0x10000000
    if not (half_way | (np.abs(total) < 2 * NORMAL)).any():
        return total.astype(np.float32)  # of no sum is the second rounding another one
    part = total - x
    return rounded(total, (x - (total - part)) + (y - part))


def pairs_multiplied(total: Array, left: Array, right: Array) -> Array:
    """TDPBF16PS: sums of the first and of the second products of pairs, added to each other and then to the total.

    Args:
        total: f32[16, 16].
        left: u16[16 rows, 16 steps, 2], bfloat16.
        right: u16[16 steps, 16 columns, 2], bfloat16.
    """
    with np.errstate(all="ignore"):
        x, y = (flushed((each.astype(np.uint32) << 16).view(np.float32)) for each in (left, right))
        products = np.moveaxis(x, 1, 0)[:, :, None] * y[:, None]
        if _plain(products) and _plain(total):
            sums = np.zeros((ROWS, 16, 2), np.float32)
            for each in products:
                sums += each
            return total + (sums[..., 0] + sums[..., 1])
        return _multiplied_near_limits(total, x, y)


def _plain(numbers: Array) -> bool:
    """True if no sum of these numbers is flushed or overflows, so that float32 has the products and rounds each sum."""
    sizes = np.abs(numbers)
    return not ((sizes > 2.0**100) | (sizes < 2.0**-100) & (sizes > 0)).any()


def _multiplied_near_limits(total: Array, left: Array, right: Array) -> Array:
    sums = np.zeros((ROWS, 16, 2))
    x, y = left.astype(np.float64), right.astype(np.float64)
    for k in range(16):
        sums = added(sums, x[:, k, None] * y[None, k]).astype(np.float64)
    both = added(sums[..., 0], sums[..., 1]).astype(np.float64)
    return added(flushed(total).astype(np.float64), both)


def quads_multiplied(total: Array, left: Array, right: Array) -> Array:
    """TDPBSSD and TDPBUSD: sums of products of quads of 8-bit integers, which wrap around.

    Args:
        total: i32[16, 16].
        left: i8 or u8[16 rows, 16 steps, 4].
        right: i8[16 steps, 16 columns, 4].
    """
    products = np.einsum("mkq,knq->mn", left.astype(np.int64), right.astype(np.int64))
    return (total + products).astype(np.int32)


class TileRegisters:
    """The tile registers of all threads.

    Fields:
        faults: uses that a processor would answer with a fault, or that leave more to save than needed.
        counts: how often each instruction was executed.
    """

    def __init__(self) -> None:
        self.faults: list[str] = []
        self.counts: dict[str, int] = defaultdict(int)
        self._of_threads: dict[int, Array] = {}
        self._kept: dict[str, Any] = {}

    @property
    def in_use(self) -> bool:
        """True if a thread has configured its registers and not released them."""
        return bool(self._of_threads)

    @property
    def _mine(self) -> Array:
        """The registers of this thread, u8[8, 16, 64]."""
        found = self._of_threads.get(threading.get_ident())
        if found is None:
            self.faults.append("tile registers are used that are not configured")
            return np.zeros((TILES, ROWS, ROW_BYTES), np.uint8)
        return found

    def ldtilecfg(self, address: int) -> None:
        given = bytes((ctypes.c_ubyte * 64).from_address(address))
        widths, heights = np.frombuffer(given[16:48], np.uint16), np.frombuffer(given[48:], np.uint8)
        if given[0] != 1 or any(given[1:16]) or any(widths[TILES:]) or any(heights[TILES:]):
            self.faults.append("the configuration is not one of palette 1")
        if set(widths[:TILES]) != {ROW_BYTES} or set(heights[:TILES]) != {ROWS}:
            self.faults.append("the model has whole tiles only")
        self._of_threads[threading.get_ident()] = np.zeros((TILES, ROWS, ROW_BYTES), np.uint8)

    def tilerelease(self) -> None:
        self._of_threads.pop(threading.get_ident(), None)

    def tilezero(self, tile: int) -> None:
        self._mine[tile] = 0

    def tileloadd64(self, tile: int, address: int, stride: int) -> None:
        self._mine[tile] = _memory(address, stride)

    def tilestored64(self, tile: int, address: int, stride: int) -> None:
        _memory(address, stride)[...] = self._mine[tile]

    def tdpbf16ps(self, total: int, left: int, right: int) -> None:
        x, y = (self._mine[each].view(np.uint16).reshape(16, 16, 2) for each in (left, right))
        mine = self._mine[total].view(np.float32)
        mine[...] = pairs_multiplied(mine, x, y)

    def tdpbssd(self, total: int, left: int, right: int) -> None:
        self._multiply_quads(total, left, right, np.int8)

    def tdpbusd(self, total: int, left: int, right: int) -> None:
        self._multiply_quads(total, left, right, np.uint8)

    def _multiply_quads(self, total: int, left: int, right: int, dtype: Any) -> None:
        x, y = self._mine[left].view(dtype).reshape(16, 16, 4), self._mine[right].view(np.int8).reshape(16, 16, 4)
        mine = self._mine[total].view(np.int32)
        mine[...] = quads_multiplied(mine, x, y)

    def address(self, name: str) -> int:
        """The address of a C function that executes an instruction."""
        if name not in self._kept:
            execute: Callable[..., None] = getattr(self, name)

            def counted(*arguments: int) -> None:
                self.counts[name] += 1
                try:
                    execute(*arguments)
                except Exception as error:  # ctypes would only print it
                    self.faults.append(f"{name}: {error!r}")

            self._kept[name] = ctypes.CFUNCTYPE(None, *_ARGUMENTS[name])(counted)
        return ctypes.cast(self._kept[name], ctypes.c_void_p).value or 0

    def modelled(self, text: str) -> str:
        """The text of a module with calls of this model in place of the instructions on tile registers, and with plain
        LLVM in place of the other instructions that only processors with tile registers are sure to have."""
        for name in _ARGUMENTS:
            if f"@llvm.x86.{name}(" in text:
                text = re.sub(rf"^declare void @llvm\.x86\.{name}\(.*\n?", "", text, flags=re.MULTILINE)
                text = text.replace(f"@llvm.x86.{name}(", f"inttoptr (i64 {self.address(name)} to ptr)(")
        for name, plain in _PLAIN.items():
            if f"@llvm.x86.{name}(" in text:
                text = re.sub(rf"^declare [^@\n]*@llvm\.x86\.{name}\(.*\n?", "", text, flags=re.MULTILINE)
                text = text.replace(f"@llvm.x86.{name}(", f"@modelled.{name}(") + plain(name)
        return text


def _memory(address: int, stride: int) -> Array:
    """The rows of a tile in memory."""
    if stride < ROW_BYTES:
        raise ValueError(f"rows {stride} bytes apart overlap")
    whole = (ctypes.c_ubyte * (stride * (ROWS - 1) + ROW_BYTES)).from_address(address)
    return np.ndarray((ROWS, ROW_BYTES), np.uint8, whole, strides=(stride, 1))


_NUMBER, _POINTER, _STRIDE = ctypes.c_uint8, ctypes.c_void_p, ctypes.c_int64
_ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "ldtilecfg": (_POINTER,),
    "tilerelease": (),
    "tilezero": (_NUMBER,),
    "tileloadd64": (_NUMBER, _POINTER, _STRIDE),
    "tilestored64": (_NUMBER, _POINTER, _STRIDE),
    "tdpbf16ps": (_NUMBER, _NUMBER, _NUMBER),
    "tdpbssd": (_NUMBER, _NUMBER, _NUMBER),
    "tdpbusd": (_NUMBER, _NUMBER, _NUMBER),
}


def _plain_pairs(name: str) -> str:
    """VDPBF16PS, but for subnormal numbers, and for the rounding of the first sum."""
    lines = []
    for operand in "xy":
        lines += [f"%{operand} = bitcast <32 x bfloat> %{operand}s to {_INTS}"]
        lines += [f"%{operand}i0 = shl {_INTS} %{operand}, {_splat(16)}"]
        lines += [f"%{operand}i1 = and {_INTS} %{operand}, {_splat(-65536)}"]
        lines += [f"%{operand}{n} = bitcast {_INTS} %{operand}i{n} to {_FLOATS}" for n in range(2)]
    lines += [f"%p{n} = fmul {_FLOATS} %x{n}, %y{n}" for n in range(2)]
    lines += [f"%one = fadd {_FLOATS} %total, %p1", f"%both = fadd {_FLOATS} %one, %p0", f"ret {_FLOATS} %both"]
    return _defined(name, f"{_FLOATS} %total, <32 x bfloat> %xs, <32 x bfloat> %ys", _FLOATS, lines)


def _plain_quads(name: str) -> str:
    """VPDPBUSD."""
    lines, total = [f"%{operand} = bitcast <64 x i8> %{operand}s to {_INTS}" for operand in "xy"], "%total"
    for n in range(4):
        lines += [f"%xh{n} = lshr {_INTS} %x, {_splat(8 * n)}", f"%x{n} = and {_INTS} %xh{n}, {_splat(255)}"]
        lines += [f"%yh{n} = shl {_INTS} %y, {_splat(24 - 8 * n)}", f"%y{n} = ashr {_INTS} %yh{n}, {_splat(24)}"]
        lines += [f"%p{n} = mul {_INTS} %x{n}, %y{n}", f"%t{n} = add {_INTS} {total}, %p{n}"]
        total = f"%t{n}"
    return _defined(name, f"{_INTS} %total, <64 x i8> %xs, <64 x i8> %ys", _INTS, [*lines, f"ret {_INTS} {total}"])


def _plain_rounding(name: str) -> str:
    """VCVTNEPS2BF16, but for subnormal numbers."""
    return _defined(name, f"{_FLOATS} %x", "<16 x bfloat>", _rounded(16))


def _plain_rounding_of_two(name: str) -> str:
    """VCVTNE2PS2BF16, but for subnormal numbers. The second operand has the lower lanes."""
    mask = ", ".join(f"i32 {(lane + 16) % 32}" for lane in range(32))
    both = f"%x = shufflevector {_FLOATS} %high, {_FLOATS} %low, <32 x i32> <{mask}>"
    return _defined(name, f"{_FLOATS} %high, {_FLOATS} %low", "<32 x bfloat>", [both, *_rounded(32)])


def _rounded(width: int) -> list[str]:
    """Round `%x` to bfloat16, and return it."""
    ints, floats = f"<{width} x i32>", f"<{width} x float>"
    return [
        f"%bits = bitcast {floats} %x to {ints}",
        f"%upper = lshr {ints} %bits, {_splat(16, width)}",
        f"%last = and {ints} %upper, {_splat(1, width)}",
        f"%half = add {ints} %last, {_splat(0x7FFF, width)}",
        f"%number = add {ints} %bits, %half",
        f"%isnan = fcmp uno {floats} %x, zeroinitializer",
        f"%quiet = or {ints} %bits, {_splat(0x400000, width)}",
        f"%chosen = select <{width} x i1> %isnan, {ints} %quiet, {ints} %number",
        f"%moved = lshr {ints} %chosen, {_splat(16, width)}",
        f"%short = trunc {ints} %moved to <{width} x i16>",
        f"%found = bitcast <{width} x i16> %short to <{width} x bfloat>",
        f"ret <{width} x bfloat> %found",
    ]


def _splat(number: int, width: int = 16) -> str:
    return "<" + ", ".join([f"i32 {number}"] * width) + ">"


def _defined(name: str, parameters: str, result: str, lines: list[str]) -> str:
    body = "\n".join(f"  {line}" for line in lines)
    return f"\ndefine internal {result} @modelled.{name}({parameters}) alwaysinline {{\n{body}\n}}\n"


_INTS, _FLOATS = "<16 x i32>", "<16 x float>"
_PLAIN = {
    "avx512bf16.dpbf16ps.512": _plain_pairs,
    "avx512bf16.cvtneps2bf16.512": _plain_rounding,
    "avx512bf16.cvtne2ps2bf16.512": _plain_rounding_of_two,
    "avx512.vpdpbusd.512": _plain_quads,
}


def processor() -> Processor:
    """One with tile registers, whose text is compiled for any processor of the host's kind."""
    widest = next(name for name in ("avx512", "avx2", "portable") if name in host.available())
    plain = host.restricted(*host._native(), widest)
    return replace(
        plain, vector_bytes=64, vectors=32, multiplies_pairs=True, multiplies_quads=True, multiplies_tiles=True
    )
