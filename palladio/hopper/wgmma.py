"""Products of the tensor cores: a C++ function for each wgmma instruction that a kernel uses.

The text of a `wgmma` names each register of its accumulator; their number depends on the columns, which a template
cannot express. So the functions are generated here, for the instructions that a kernel uses, and compiled with it.

A function is called as

    pal::wgmma_m64n256k16_f32_bf16_bf16<left, right>(acc, a, b, accumulate)
    pal::wgmma_m64n256k16_f32_bf16_bf16_registers<right>(acc, a0, a1, a2, a3, b, accumulate)

by the 128 threads of a warpgroup. `acc` is an array of registers, `a` and `b` are descriptors of operands in shared
memory, `a0` to `a3` the left operand in registers, 32 bits of elements in each; `accumulate` is 0 if the product
overwrites `acc`. `left` and `right`, which exist only for 16-bit elements, are 1 for a transposed operand: `a` with m
as its innermost axis, `b` with n (PTX ISA, "wgmma.mma_async": imm-trans-a, imm-trans-b).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

ROWS = 64
DEPTH_BYTES = 32
"""Rows of the left operand, and bytes of each row along the contracted axis, in one instruction."""

OPERANDS = {"bf16": 2, "f16": 2, "tf32": 4, "e4m3": 1, "e5m2": 1, "s8": 1, "u8": 1}
"""The operand types by their PTX names, and the bytes of an element."""

MOST_COLUMNS = 256
COLUMNS = tuple(range(8, MOST_COLUMNS + 1, 8))
INTEGER_COLUMNS = (8, 16, 24, *range(32, MOST_COLUMNS + 1, 16))
"""The columns of the right operand; 8-bit integers have fewer sizes (PTX ISA, "Shape" of wgmma.mma_async)."""


class Wgmma(NamedTuple):
    """One wgmma instruction.

    Fields:
        columns: n of its shape m64 n k.
        result: the type of the accumulator: f32, f16 or s32.
        left, right: the types of the operands.
        registers: True if the left operand is in registers.
    """

    columns: int
    result: str
    left: str
    right: str
    registers: bool = False

    @property
    def depth(self) -> int:
        """k of its shape: 32 bytes of each row."""
        return DEPTH_BYTES // OPERANDS[self.left]

    @property
    def accumulators(self) -> int:
        """Registers of the accumulator in each thread; f16 is packed in pairs."""
        return self.columns // (4 if self.result == "f16" else 2)

    @property
    def transposes(self) -> bool:
        """True if operands in shared memory may be transposed: those with 16-bit elements."""
        return OPERANDS[self.left] == 2

    @property
    def name(self) -> str:
        """The name of its function."""
        kind = f"{self.result}_{self.left}_{self.right}"
        return f"wgmma_m{ROWS}n{self.columns}k{self.depth}_{kind}{'_registers' if self.registers else ''}"

    @property
    def element(self) -> str:
        """The C++ type of a register of the accumulator."""
        return {"f32": "float", "s32": "int", "f16": "u32"}[self.result]


def device_text(products: Iterable[Wgmma]) -> str:
    """The functions of these instructions for sm_90a, as a header that follows `device.cuh`."""
    functions = [_function(product) for product in sorted(set(products))]
    return "\n".join(["#pragma once", "namespace pal {", *functions, "}  // namespace pal", ""])


def _function(product: Wgmma) -> str:
    registers = product.accumulators
    operands = registers + (4 if product.registers else 1)  # the number of the right operand
    results = ", ".join(f"%{n}" for n in range(registers))
    left = "{" + ", ".join(f"%{registers + n}" for n in range(4)) + "}" if product.registers else f"%{registers}"
    flags = _flags(product)
    more = [f"%{operands + 2 + n}" for n in range(len(flags))]
    modifiers = ", ".join(["p", *([] if product.result == "s32" else ["1", "1"]), *more])
    shape = f"m{ROWS}n{product.columns}k{product.depth}"
    text = (
        f"{{ .reg .pred p; setp.ne.b32 p, %{operands + 1}, 0; "
        f"wgmma.mma_async.sync.aligned.{shape}.{product.result}.{product.left}.{product.right} "
        f"{{{results}}}, {left}, %{operands}, {modifiers}; }}"
    )
    constraint = "f" if product.result == "f32" else "r"
    outputs = ", ".join(f'"+{constraint}"(acc[{n}])' for n in range(registers))
    lefts = [f'"r"(a{n})' for n in range(4)] if product.registers else ['"l"(a)']
    inputs = ", ".join([*lefts, '"l"(b)', '"r"(accumulate)', *(f'"n"({flag})' for flag in flags)])
    arguments = "u32 a0, u32 a1, u32 a2, u32 a3" if product.registers else "u64 a"
    template = f"template <{', '.join(f'int {flag}' for flag in flags)}> " if flags else ""
    return (
        f"{template}PAL_DEVICE void {product.name}({product.element} (&acc)[{registers}], {arguments}, u64 b, "
        f'int accumulate) {{\n  asm volatile("{text}"\n    : {outputs}\n    : {inputs});\n}}'
    )


def _flags(product: Wgmma) -> list[str]:
    if not product.transposes:
        return []
    return ["right"] if product.registers else ["left", "right"]
