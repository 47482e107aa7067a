"""A kept call as one built-in function of tensors, which returns the result.

It reads the tensors and asks for the stream by functions of C that their library exports for this (DLPack 1.3,
`DLPackExchangeAPI`), makes the result by the library's allocator unless the caller has given one, and launches as
`direct` does. It compares all that a kernel depends on with what the call was made for: type, device, dtype, sizes,
strides and alignment, and the state of the process. No gradient may be wanted.

Numbers that each call passes by value are read through their buffer (PEP 3118), which NumPy's have.

It returns None, and has launched nothing, if a tensor differs or anything fails. The caller then takes the longer way,
which says what is wrong.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from typing import Any

from palladio.array.on_card import Conditions, Exchange, Strided
from palladio.base.dataclass import dataclass
from palladio.hopper.launch.direct import CALL_FIELDS, MOST, DirectLaunch
from palladio.types import dtypes

_CODES = {"bool": 6, "bfloat16": 4, "float8_e4m3fn": 10, "float8_e5m2": 12}
"""`DLDataTypeCode` of dtypes that their kind does not tell."""
_KINDS = {"i": 0, "u": 1, "f": 2}

_PARTS = frozenset(("float16", "float32", "float64"))
"""Dtypes of the parts of complex numbers: dense tensors of them may be lazily negated, as `_torch_facts` says."""

_REQUIRES_GRAD = "requires_grad"
_NUMBER = 1 << 63
"""The mark of an operand that is a number. The row has its place among the numbers, its type, and its bytes."""


Type = tuple[Strided, dtypes.DType]


@dataclass(frozen=True)
class ExchangedCall:
    """The function of a tuple of operands and of the array for the result or None, and the objects that own the memory
    that it reads."""

    call: Callable[[tuple[Any, ...], Any], Any]
    owned: tuple[Any, ...]


@dataclass(frozen=True)
class Description:
    """Everything that a call was made for.

    Fields:
        device: the number of the GPU.
        operands, result: their shapes, strides and dtypes, as the caller has them.
        new: makes the result.
        words: the bits of the last operands, if all calls pass the same numbers by value.
        numbers: the operands that each call passes by value, by position, in the order of the kernel's parameters.
        conditions: the state of the process.
        noted: the function that notes a launch, and its argument.
    """

    device: int
    operands: Sequence[Type]
    result: Type
    new: Callable[[], Any]
    words: Sequence[int]
    numbers: Sequence[int]
    conditions: Conditions
    noted: tuple[Callable[[str], object], str]

    @property
    def arrays(self) -> list[Type]:
        """The operands that are arrays, and the result."""
        return [*(each for n, each in enumerate(self.operands) if n not in self.numbers), self.result]


def exchanged(direct: DirectLaunch, exchange: Exchange, described: Description) -> ExchangedCall | None:
    """The call for tensors of these shapes and dtypes; None if these cannot be described.

    Args:
        direct: the launch of the kernel, whose arrays are the operands, the numbers among them, and the result.
    """
    operands, words = described.operands, described.words
    result = described.result
    lazy = any(str(dtype) in _PARTS and math.prod(layout.shape) == 1 for layout, dtype in described.arrays)
    known = all(_kind(dtype, len(layout.shape)) is not None for layout, dtype in described.arrays)
    if not known or lazy or len(operands) > MOST or not math.prod(result[0].shape):
        return None
    axes: list[Any] = []
    rows = [_row(each, n, described.numbers, axes) for n, each in enumerate((*operands, result))]
    home, dtype, functions = _allocation(exchange, described, result[1])
    values = {
        "records": direct.records,
        "operands": len(operands),
        "result_number": len(operands) + len(words),
        "numbers": len(words),
        "given_numbers": len(described.numbers),
        "device": exchange.device_type | described.device << 32,
        "tensor_type": id(exchange.types[0]),
        "parameter_type": id(exchange.types[1]),
        "requires_grad": id(_REQUIRES_GRAD),
        "grad_enabled": id(exchange.grad_enabled),
        "false": id(False),
        "make": id(described.new),
        "read": exchange.read,
        "current_stream": exchange.stream,
        "note": id(described.noted[0]),
        "name": id(described.noted[1]),
        "absences": len(described.conditions.absent),
        "choices": len(described.conditions.chosen),
        "dtype": dtype,
        "home": home,
        **functions,
    }
    tables = {
        "rows": [value for row in rows for value in row],
        "words": words,
        "absent": [id(each) for pair in described.conditions.absent for each in pair],
        "chosen": [id(each) for pair in described.conditions.chosen for each in pair],
    }
    held = {name: (ctypes.c_uint64 * max(1, len(table)))(*table) for name, table in tables.items()}
    values |= {name: ctypes.addressof(table) for name, table in held.items()}
    memory = (ctypes.c_uint64 * len(CALL_FIELDS))(*(values[name] for name in CALL_FIELDS))
    call = direct.code.function(direct.code.exchanged, ctypes.addressof(memory))
    return ExchangedCall(call, (direct, exchange, described, axes, held, memory))


def _row(type: Type, position: int, numbers: Sequence[int], axes: list[Any]) -> tuple[int, int, int]:
    """An operand or the result as the machine code compares it; its sizes and strides are added to `axes`."""
    (shape, strides), dtype = type
    if position in numbers:
        return _NUMBER | numbers.index(position), id(dtype.type), dtype.itemsize
    axes.append((ctypes.c_int64 * (2 * len(shape)))(*shape, *strides))
    return _kind(dtype, len(shape)) or 0, ctypes.addressof(axes[-1]), math.prod(shape) * dtype.itemsize


def _allocation(exchange: Exchange, described: Description, dtype: dtypes.DType) -> tuple[int, int, dict[str, int]]:
    """PyTorch's device and dtype of the result, and its functions of C; these are 0 where `new` makes the result."""
    allocator = exchange.allocator
    number = None if allocator is None else allocator.dtypes.get(str(dtype))
    if allocator is None or number is None:
        return 0, 0, dict.fromkeys(("empty", "address_of", "delete", "wrap"), 0)
    functions = {"empty": allocator.empty, "address_of": allocator.address, "delete": allocator.delete}
    return allocator.device_type | described.device << 32, number, {**functions, "wrap": allocator.wrap}


def _kind(dtype: dtypes.DType, axes: int) -> int | None:
    """The number of axes and the dtype as the 64 bits that they are in `DLTensor`; None for an unknown dtype."""
    code = _CODES.get(str(dtype), _KINDS.get(dtype.kind))
    return None if code is None else axes | code << 32 | dtype.itemsize * 8 << 40 | 1 << 48
