"""A built-in function of Python that goes from arrays to consecutive calls of kernels.

Python and ctypes take 1 µs to run a function of machine code, and 0.5 µs to find the address of an array, which is more
than many kernels take. The function finds the addresses, writes them into the tables of the kernels, and runs these
without the GIL.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from palladio.cpu.runtime.machine_code import MachineCode
from palladio.cpu.runtime.memory import HEADER, address_of

_FASTCALL = 0x80  # METH_FASTCALL of CPython's methodobject.h
_OF_PYTHON = {
    "to_address": "PyLong_AsVoidPtr",
    "from_number": "PyLong_FromLong",
    "save": "PyEval_SaveThread",
    "restore": "PyEval_RestoreThread",
}
_WORDS = "native", "calls", "at", "first", "last", "slots", "integer", *_OF_PYTHON
"""The words of a record, after the definition of its function. Pairs follow: the number of an argument, and where to
write its address."""

_NUMBERS = frozenset(("first", "last", "slots"))


class _Definition(ctypes.Structure):
    """`PyMethodDef`."""

    _fields_ = [
        ("name", ctypes.c_void_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_void_p),
    ]


_DEFINITION = ctypes.sizeof(_Definition) // 8
_NAME = ctypes.create_string_buffer(b"run")

Entry = Callable[..., int]
"""A function of NumPy arrays, or of addresses as integers; its result is the status."""


def text() -> str:
    """The function `enter`."""
    loads = []
    for place, name in enumerate(_WORDS):
        loads.append(f"  %{name}.place = getelementptr i64, ptr %record, i64 {place}")
        loads.append(f"  %{name} = load {'i64' if name in _NUMBERS else 'ptr'}, ptr %{name}.place")
    values = {"FIELDS": "\n".join(loads), "WORDS": len(_WORDS), "DEFINITION": _DEFINITION, "HEADER": HEADER}
    values["TYPE"] = HEADER - ctypes.sizeof(ctypes.c_void_p)  # the last field of the header
    body = Path(__file__).with_suffix(".ll").read_text(encoding="utf-8")
    return re.sub(r"\b[A-Z]{4,}\b", lambda found: str(values[found[0]]), body[body.index("define") :])


def made(code: MachineCode, calls: int, at: int, first: int, last: int, slots: Sequence[tuple[int, int]]) -> Entry:
    """The function that runs some calls. It uses the code, which its caller keeps alive.

    Args:
        code: of `palladio.cpu.runtime.native`.
        calls, at: the addresses of the words of all calls, and of the number of the one at which it stops.
        first, last: the number of the first call that it runs, and the end.
        slots: for each place that needs the address of an argument, the number of the argument, and the place.
    """
    python = [ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value for name in _OF_PYTHON.values()]
    words = [code.address("kernel"), calls, at, first, last, len(slots), id(int), *python]
    record = np.array([*[0] * _DEFINITION, *words, *(word for slot in slots for word in slot)], np.uint64)
    # The function owns its record, and so its definition, which Python reads when it frees the function.
    definition = _Definition.from_buffer(record)
    definition.name, definition.function = ctypes.addressof(_NAME), code.address("enter")
    definition.flags = _FASTCALL
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]
    return make(address_of(record), record, None)  # type: ignore[no-any-return]
