"""Calls from XLA's compiled programs into Python, by XLA's foreign function interface and without a C compiler.

The handler is a Python function that `ctypes` wraps as a C function. It gets a call frame with XLA's buffers, and
calls a function of the library on NumPy views of them; the result is written to XLA's output buffer. Structures and
constants are those of XLA's header `xla/ffi/api/c_api.h`, version 0.3, with its field names.

A call names its function, and its static arguments as text, so that a program that was exported runs in another
process, which has imported this module.
"""

from __future__ import annotations

import ctypes
import functools
import json
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import ml_dtypes
import numpy as np

from palladio.base.errors import PalladioError
from palladio.base.locations import Location, caller_location

TARGET = "palladio"
"""The name of the target, by which `jax.export` knows it too."""

VERSION = (0, 1)
"""The version of the interface that the handler was written for: the oldest that has the fields below."""

_METADATA = 1
_INVALID_ARGUMENT, _INTERNAL = 3, 13

_DTYPES: dict[int, Any] = {
    1: np.bool_,
    2: np.int8,
    3: np.int16,
    4: np.int32,
    5: np.int64,
    6: np.uint8,
    7: np.uint16,
    8: np.uint32,
    9: np.uint64,
    10: np.float16,
    11: np.float32,
    12: np.float64,
    16: ml_dtypes.bfloat16,
    19: ml_dtypes.float8_e5m2,
    20: ml_dtypes.float8_e4m3fn,
}
"""XLA_FFI_DataType, for the dtypes that Palladio has."""


class _Extension(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("type", ctypes.c_int), ("next", ctypes.c_void_p)]


class _Version(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("extension_start", ctypes.c_void_p),
        ("major_version", ctypes.c_int),
        ("minor_version", ctypes.c_int),
    ]


class _Metadata(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("api_version", _Version)]


class _MetadataExtension(ctypes.Structure):
    _fields_ = [("extension_base", _Extension), ("metadata", ctypes.POINTER(_Metadata))]


class _Buffer(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("extension_start", ctypes.c_void_p),
        ("dtype", ctypes.c_int),
        ("data", ctypes.c_void_p),
        ("rank", ctypes.c_int64),
        ("dims", ctypes.POINTER(ctypes.c_int64)),
    ]


class _Span(ctypes.Structure):
    _fields_ = [("ptr", ctypes.c_void_p), ("len", ctypes.c_size_t)]


class _Buffers(ctypes.Structure):
    """XLA_FFI_Args and XLA_FFI_Rets."""

    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("extension_start", ctypes.c_void_p),
        ("size", ctypes.c_int64),
        ("types", ctypes.POINTER(ctypes.c_int)),
        ("buffers", ctypes.POINTER(ctypes.POINTER(_Buffer))),
    ]


class _Attributes(ctypes.Structure):
    """XLA_FFI_Attrs; all values are strings here."""

    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("extension_start", ctypes.c_void_p),
        ("size", ctypes.c_int64),
        ("types", ctypes.POINTER(ctypes.c_int)),
        ("names", ctypes.POINTER(ctypes.POINTER(_Span))),
        ("attrs", ctypes.POINTER(ctypes.POINTER(_Span))),
    ]


class _ErrorArguments(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("extension_start", ctypes.c_void_p),
        ("message", ctypes.c_char_p),
        ("errc", ctypes.c_int),
    ]


class _Api(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("extension_start", ctypes.c_void_p),
        ("api_version", _Version),
        ("internal_api", ctypes.c_void_p),
        ("error_create", ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(_ErrorArguments))),
    ]


class _CallFrame(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("extension_start", ctypes.POINTER(_MetadataExtension)),
        ("api", ctypes.POINTER(_Api)),
        ("ctx", ctypes.c_void_p),
        ("stage", ctypes.c_int),
        ("args", _Buffers),
        ("rets", _Buffers),
        ("attrs", _Attributes),
    ]


FUNCTIONS: dict[str, Callable[..., None]] = {}
"""The functions that a call can name: their arguments are the inputs, None for missing ones, `out` and the options."""

_places: dict[str, Location] = {}
"""The line of each call that this process has traced, by its text."""


def call(function: str, options: dict[str, Any], out: Any, inputs: Sequence[Any]) -> Any:
    """A call of a function of `FUNCTIONS` on JAX arrays, traced or not; inputs may be None.

    Args:
        options: plain values that JSON can hold.
        out: the shape and dtype of the result.
    """
    present = "".join("01"[each is not None] for each in inputs)
    text = json.dumps({**options, "present": present})
    run = jax.ffi.ffi_call(TARGET, jax.ShapeDtypeStruct(out.shape, out.dtype))  # type: ignore[no-untyped-call]
    return run(*(each for each in inputs if each is not None), function=function, options=text)


def here() -> str:
    """The line of the user's call, which an error of the call shows."""
    location = caller_location()
    if location is None:
        return ""
    _places[str(location)] = location
    return str(location)


@functools.lru_cache(4096)
def _options(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text)
    return found


def _array(buffer: _Buffer) -> np.ndarray[Any, Any]:
    """A buffer as an array, without a copy."""
    shape, dtype = tuple(buffer.dims[: buffer.rank]), np.dtype(_DTYPES[buffer.dtype])
    size = math.prod(shape) * dtype.itemsize
    if not size:
        return np.empty(shape, dtype)
    memory = (ctypes.c_char * size).from_address(buffer.data)
    return np.frombuffer(memory, dtype).reshape(shape)


def _run(frame: _CallFrame) -> None:
    names = [frame.attrs.names[n].contents for n in range(frame.attrs.size)]
    values = [frame.attrs.attrs[n].contents for n in range(frame.attrs.size)]
    given = {_text(name): _text(value) for name, value in zip(names, values, strict=True)}
    options = dict(_options(given["options"]))
    place = _places.get(options.pop("place"))
    buffers = iter([_array(frame.args.buffers[n].contents) for n in range(frame.args.size)])
    inputs = [next(buffers) if each == "1" else None for each in options.pop("present")]
    try:
        FUNCTIONS[given["function"]](*inputs, out=_array(frame.rets.buffers[0].contents), **options)
    except PalladioError as error:
        error.location = place
        raise


def _text(span: _Span) -> str:
    return ctypes.string_at(span.ptr, span.len).decode()


def _handle(pointer: Any) -> int | None:
    """The handler: an error is passed to XLA, with its text."""
    frame = pointer.contents
    if frame.extension_start and frame.extension_start.contents.extension_base.type == _METADATA:
        version = frame.extension_start.contents.metadata.contents.api_version
        version.major_version, version.minor_version = VERSION
        return None
    try:
        _run(frame)
        return None
    except BaseException as error:
        code = _INVALID_ARGUMENT if isinstance(error, PalladioError) else _INTERNAL
        text = str(error) if isinstance(error, PalladioError) else f"{type(error).__name__}: {error}"
        arguments = _ErrorArguments(ctypes.sizeof(_ErrorArguments), None, text.encode(), code)
        found: int | None = frame.api.contents.error_create(ctypes.byref(arguments))
        return found


_handler = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(_CallFrame))(_handle)  # XLA keeps its address, we keep it
jax.ffi.register_ffi_target(TARGET, jax.ffi.pycapsule(_handler), platform="cpu")  # type: ignore[no-untyped-call]
