"""A kept call as one built-in function of tensors, which returns the result.

It reads the tensors and asks for the stream by functions of C that their library exports for this (DLPack 1.3,
`DLPackExchangeAPI`), makes the result by a function of the library, and launches as `direct` does. It compares all that
a kernel depends on with what the call was made for: type, device, dtype, sizes, strides and alignment. No gradient may
be wanted.

It returns None, and has launched nothing, if a tensor differs or anything fails. The caller then takes the longer way,
which says what is wrong.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from palladio.array.on_card import Exchange
from palladio.hopper.launch.direct import CALL_FIELDS, MOST, DirectLaunch
from palladio.types import dtypes
from palladio.types.types import Shape
from palladio.types.views import row_major

_CODES = {"bool": 6, "bfloat16": 4, "float8_e4m3fn": 10, "float8_e5m2": 12}
"""`DLDataTypeCode` of dtypes that their kind does not tell."""
_KINDS = {"i": 0, "u": 1, "f": 2}

_PARTS = frozenset(("float16", "float32", "float64"))
"""Dtypes of the parts of complex numbers: dense tensors of them may be lazily negated, as `_torch_facts` says."""

_REQUIRES_GRAD = "requires_grad"


Type = tuple[Shape, dtypes.DType]


@dataclass(frozen=True)
class ExchangedCall:
    """The function of a tuple of tensors, and the objects that own the memory that it reads."""

    call: Callable[[tuple[Any, ...]], Any]
    owned: tuple[Any, ...]


def exchanged(
    direct: DirectLaunch,
    exchange: Exchange,
    device: int,
    operands: Sequence[Type],
    result: Type,
    make: Callable[[], Any],
    numbers: Sequence[int] = (),
) -> ExchangedCall | None:
    """The call for tensors of these shapes and dtypes; None if these cannot be described.

    Args:
        direct: the launch of the kernel, whose arrays are the operands, the numbers among them, and the result.
        device: the number of the GPU.
        operands, result: their shapes and dtypes, as the caller has them.
        make: makes the result.
        numbers: the bits of the last operands, if they are passed by value.
    """
    kinds = [_kind(dtype, len(shape)) for shape, dtype in (*operands, result)]
    lazy = any(str(dtype) in _PARTS and (not shape or shape[-1] < 2) for shape, dtype in operands)
    if None in kinds or lazy or len(operands) > MOST or not math.prod(result[0]):
        return None
    axes = [(ctypes.c_int64 * (2 * len(shape)))(*shape, *row_major(shape)) for shape, _ in (*operands, result)]
    rows = [value for kind, sizes in zip(kinds, axes) for value in (kind, ctypes.addressof(sizes))]
    table = (ctypes.c_uint64 * len(rows))(*rows)
    words = (ctypes.c_uint64 * max(1, len(numbers)))(*numbers)
    place = exchange.device_type | device << 32
    values = {
        "records": direct.records,
        "operands": len(operands),
        "rows": ctypes.addressof(table),
        "result_number": len(operands) + len(numbers),
        "numbers": len(numbers),
        "words": ctypes.addressof(words),
        "device": place,
        "tensor_type": id(exchange.types[0]),
        "parameter_type": id(exchange.types[1]),
        "requires_grad": id(_REQUIRES_GRAD),
        "grad_enabled": id(exchange.grad_enabled),
        "false": id(False),
        "make": id(make),
        "read": exchange.read,
        "current_stream": exchange.stream,
    }
    memory = (ctypes.c_uint64 * len(CALL_FIELDS))(*(values[name] for name in CALL_FIELDS))
    owned = direct, exchange, axes, table, words, make, memory
    return ExchangedCall(direct.code.function(direct.code.exchanged, ctypes.addressof(memory)), owned)


def _kind(dtype: dtypes.DType, axes: int) -> int | None:
    """The number of axes and the dtype as the 64 bits that they are in `DLTensor`; None for an unknown dtype."""
    code = _CODES.get(str(dtype), _KINDS.get(dtype.kind))
    return None if code is None else axes | code << 32 | dtype.itemsize * 8 << 40 | 1 << 48
