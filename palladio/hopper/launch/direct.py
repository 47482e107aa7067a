"""The launch of a kernel as machine code: a built-in function of Python that takes addresses and calls the driver.

A call by ctypes takes as long as the driver itself, and so does the Python code before it. The function compares each
address with that of the previous launch, replaces the addresses of tensor maps that differ, and calls the driver.

It calls the driver without the GIL: where the queue of a stream is full, a launch waits for kernels before it, and
those may wait for a callback in Python. So several workers may be in a launch of one kernel. Each takes a record of its
own for the time of the launch, which holds everything that the driver reads; the driver has copied it when it returns.
The first free record of a chain is taken; if there is none, the function returns `BUSY`, and the caller adds one.

A second function (`exchanged`) takes tensors. It reads them by the C interface of their library, and launches in the
same way.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from palladio.array.on_card import ALIGNMENT
from palladio.base.dataclass import dataclass
from palladio.hopper.launch.driver import INVALID_CONTEXT

Launch = Callable[[int, tuple[int, ...]], int]
"""`(stream, addresses of the kernel's arrays, then its numbers as bits) -> status of the driver`."""

REPLACING = 1 << 16
"""Added to the status if `cuTensorMapReplaceAddress` is the function that failed."""
BUSY = 1 << 17
"""The status if all records are taken; nothing was launched."""

_FASTCALL = 0x80  # METH_FASTCALL of CPython's methodobject.h
_STREAM = 32
"""Byte offset of the stream in `CUlaunchConfig`: after seven 32-bit numbers, aligned to a pointer."""

_FIELDS = ("config", "kernel", "parameters", "arrays", "maps", "addresses", "slots", "context", "taken", "next")
"""The fields of a record, 64 bits each. `addresses` points to those of the previous launch; a slot is a map, the number
of its array, and its current address; `context` is that of the device, or 0; `next` points to the next record of the
chain."""
_TAKEN, _NEXT = _FIELDS.index("taken"), _FIELDS.index("next")

CALL_FIELDS = (
    *("records", "operands", "rows", "result_number", "numbers", "words", "given_numbers", "device"),
    *("tensor_type", "parameter_type", "requires_grad", "grad_enabled", "false", "make"),
    *("read", "current_stream", "note", "name"),
    *("absent", "absences", "chosen", "choices"),
    *("empty", "address_of", "delete", "wrap", "dtype", "home"),
)
"""The fields of a call that takes tensors, 64 bits each; `exchanged` fills them in."""

_POINTERS = frozenset((*_FIELDS, *CALL_FIELDS)) - {
    *("arrays", "maps", "taken", "operands", "result_number", "numbers", "given_numbers", "device"),
    *("absences", "choices", "dtype", "home"),
}

MOST = 16
"""The most operands of a call that takes tensors."""

_PYTHON = (
    *("PyLong_AsVoidPtr", "PyLong_AsUnsignedLongLong", "PyTuple_GetItem", "PyTuple_Size", "PyLong_FromLong"),
    *(
        "PyObject_GetAttr",
        "PyObject_CallNoArgs",
        "PyObject_CallOneArg",
        "PyObject_GetBuffer",
        "PyBuffer_Release",
        "PySequence_Contains",
        "PyContextVar_Get",
        "Py_IncRef",
        "Py_DecRef",
        "PyErr_Clear",
        "PyEval_SaveThread",
        "PyEval_RestoreThread",
    ),
)


class _Definition(ctypes.Structure):
    """`PyMethodDef`."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    ]


@dataclass(frozen=True)
class Code:
    """The machine code of both functions, and the engine that owns it."""

    launch: _Definition
    exchanged: _Definition
    engine: Any

    def function(self, definition: _Definition, memory: int) -> Any:
        """The built-in function of Python that works on the memory at an address."""
        make = ctypes.pythonapi.PyCFunction_NewEx
        make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]
        return make(ctypes.addressof(definition), memory, None)


def _loads(record: str, fields: Sequence[str]) -> str:
    """The text that loads the fields of a record."""
    lines = []
    for n, name in enumerate(fields):
        lines.append(f"  %{name}_field_{n} = getelementptr i64, ptr %{record}, i64 {n}")
        lines.append(f"  %{name} = load {'ptr' if name in _POINTERS else 'i64'}, ptr %{name}_field_{n}")
    return "\n".join(lines)


def _text() -> str:
    return Path(__file__).with_suffix(".ll").read_text(encoding="utf-8")


@functools.cache
def _code(launch: int, replace: int, current: int) -> Code | None:
    """The machine code for the addresses of three driver functions; None if it cannot be compiled here."""
    import llvmlite.binding as llvm

    python = {name: ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value for name in _PYTHON}
    functions = {"launch": launch, "replace": replace, "current": current, **python}
    fields = {"fields": _loads("record", _FIELDS[:_TAKEN]), "call_fields": _loads("call", CALL_FIELDS)}
    numbers = {name: _FIELDS.index(name) for name in ("arrays", "addresses", "taken", "next")}
    numbers |= {"stream": _STREAM, "replacing": REPLACING, "busy": BUSY, "invalid_context": INVALID_CONTEXT}
    numbers |= {"most": MOST, "unaligned": ALIGNMENT - 1, "none": f"inttoptr (i64 {id(None)} to ptr)"}
    try:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        module = llvm.parse_assembly(_text().format(**fields, **numbers, **functions))
        machine = llvm.Target.from_default_triple().create_target_machine(opt=2)
        engine = llvm.create_mcjit_compiler(module, machine)
        engine.finalize_object()
        addresses = [engine.get_function_address(name) for name in ("launch", "exchanged")]
    except (RuntimeError, OSError):
        return None
    return Code(*(_Definition(b"launch", address, _FASTCALL, None) for address in addresses), engine)


class Record:
    """The memory that the machine code and the driver read and write in one launch of a kernel.

    Args:
        config, kernel: the address of a `CUlaunchConfig`, and the handle of the kernel.
        maps: the address of each tensor map, the number of its array, and the array's address in the map.
        parameters: for each the address of its tensor map, or None for an array's address or a number; and which one of
            these it is, numbers after arrays.
        arrays: the number of arrays, and of numbers that are passed by value.
        context: the handle of the context that has to be current; 0 if the process has no other.
        owners: the objects that own the configuration and the maps.
    """

    def __init__(
        self,
        config: int,
        kernel: int,
        maps: Sequence[tuple[int, int, int]],
        parameters: Sequence[tuple[int | None, int]],
        arrays: int,
        context: int,
        owners: tuple[Any, ...],
    ) -> None:
        self._owners = owners
        self._addresses = (ctypes.c_uint64 * max(1, arrays))()
        start = ctypes.addressof(self._addresses)
        self._parameters = (ctypes.c_uint64 * max(1, len(parameters)))(
            *(start + 8 * number if place is None else place for place, number in parameters)
        )
        self._slots = (ctypes.c_uint64 * max(1, 3 * len(maps)))(*(value for each in maps for value in each))
        tables = ctypes.addressof(self._parameters), arrays, len(maps), start, ctypes.addressof(self._slots)
        self._record = (ctypes.c_uint64 * len(_FIELDS))(config, kernel, *tables, context, 0, 0)
        self.address = ctypes.addressof(self._record)

    def follow(self, before: Record) -> None:
        """Become the next record of the chain; called with the GIL, with which the machine code reads the chain."""
        before._record[_NEXT] = self.address


class DirectLaunch:
    """The launch function of a kernel, and the chain of records that its launches take turns at using."""

    def __init__(self, code: Code, first: Record) -> None:
        self.code = code
        self.launch: Launch = code.function(code.launch, first.address)
        self._records = [first]

    @property
    def records(self) -> int:
        """The address of the chain."""
        return self._records[0].address

    def add(self, record: Record) -> None:
        """Add a record at the end of the chain. One worker at a time may add one."""
        record.follow(self._records[-1])
        self._records.append(record)


def direct_launch(first: Record, launch: int, replace: int, current: int) -> DirectLaunch | None:
    """The launch of a kernel, given the addresses of three driver functions; None if it cannot be compiled here."""
    code = _code(launch, replace, current)
    return None if code is None else DirectLaunch(code, first)
