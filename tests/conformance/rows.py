"""What a row of the suite is, how its inputs are drawn, and how its results are judged.

A row makes a *case* from a random generator and a dtype: a kernel, its inputs, and what its outputs must be. The
expectation is computed here, on NumPy, from the inputs taken to float64 (or exact Python integers): nothing of
Palladio's own evaluation is in it.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np

import palladio as pl
from palladio.types import dtypes

Array = Any

FLOATS = tuple(dtype for dtype in dtypes.ALL if dtypes.is_float(dtype))
INTEGERS = tuple(dtype for dtype in dtypes.ALL if dtypes.is_integer(dtype))
SIGNED = tuple(dtype for dtype in INTEGERS if dtypes.is_signed(dtype))
NUMBERS = (*INTEGERS, *FLOATS)
BITS = (dtypes.BOOL, *INTEGERS)
ALL = dtypes.ALL

TOLERANCES: dict[str, float] = {
    "float64": 1e-13,
    "float32": 1e-6,
    "float16": 1e-3,
    "bfloat16": 8e-3,
    "float8_e4m3fn": 6e-2,
    "float8_e5m2": 1.2e-1,
}
"""dtype -> largest norm of the errors, divided by the norm of the expectation. Integers and bool are exact."""


@dataclass(frozen=True)
class Case:
    """One kernel call and its expectation.

    Fields:
        kernel: of references to the inputs, then the outputs, then the scratch buffers.
        inputs: arrays of their final dtypes.
        expected: float64, integer or bool arrays, or arrays of Python integers.
        outputs: the dtype of each output; its shape is that of its expectation.
        options: more arguments for `pallas_call`.
        slack: how many tolerances an output may be off.
    """

    kernel: Callable[..., None]
    inputs: Sequence[Array]
    expected: Sequence[Array]
    outputs: Sequence[np.dtype]
    options: dict[str, Any] = field(default_factory=dict)
    slack: float = 1

    def call(self, executor: str) -> Any:
        """The kernel call, with its outputs in a tuple."""
        shapes = [
            pl.ShapeDtypeStruct(np.shape(part), dtype) for part, dtype in zip(self.expected, self.outputs, strict=True)
        ]
        return pl.pallas_call(self.kernel, tuple(shapes), interpret=executor, **self.options)


@dataclass(frozen=True)
class Row:
    """A feature and the dtypes for which it is owed."""

    family: str
    name: str
    dtypes: tuple[np.dtype, ...]
    make: Callable[[np.random.Generator, np.dtype], Case]

    @property
    def title(self) -> str:
        """How coverage and refusals call it."""
        return f"{self.family}.{self.name}"

    def case(self, dtype: np.dtype) -> Case:
        """The case for a dtype, always of the same inputs."""
        seed = zlib.crc32(f"{self.title}-{dtype}".encode())
        return self.make(np.random.default_rng(seed), dtype)


def merged(cases: Sequence[Case]) -> Case:
    """One kernel that does what each of these does, one after the other: compiled once. They have no options."""
    parts = [(case.kernel, len(case.inputs), len(case.expected)) for case in cases]
    before = sum(given for _, given, _ in parts)

    def kernel(*refs: Any) -> None:
        inputs, outputs = iter(refs[:before]), iter(refs[before:])
        for part, given, made in parts:
            part(*islice(inputs, given), *islice(outputs, made))

    return Case(
        kernel,
        [array for case in cases for array in case.inputs],
        [array for case in cases for array in case.expected],
        [dtype for case in cases for dtype in case.outputs],
    )


def row(family: str, dtypes_: Sequence[np.dtype], name: str = "") -> Callable[[Any], Row]:
    """A decorator: the function `(rng, dtype) -> Case` as a row, named like it."""

    def decorate(make: Callable[[np.random.Generator, np.dtype], Case]) -> Row:
        return Row(family, name or make.__name__, tuple(dtypes_), make)

    return decorate


def rows_of(module: dict[str, Any]) -> list[Row]:
    """Every row that a module defines, alone or in a list."""
    found: list[Row] = []
    for value in module.values():
        parts = value if isinstance(value, list) else [value]
        found += [part for part in parts if isinstance(part, Row)]
    return found


def draw(
    rng: np.random.Generator, dtype: np.dtype, shape: tuple[int, ...] = (5, 8), low: float = -3, high: float = 3
) -> Array:
    """Random values of a dtype: floats of [low, high], integers of that range as far as the dtype has it, bools."""
    if dtypes.is_bool(dtype):
        return rng.integers(0, 2, shape).astype(dtype)
    if dtypes.is_integer(dtype):
        least = max(int(np.ceil(low)), int(np.iinfo(dtype).min))
        return rng.integers(least, int(np.floor(high)), shape, endpoint=True).astype(dtype)
    return rng.uniform(low, high, shape).astype(dtype)


def bits(rng: np.random.Generator, dtype: np.dtype, shape: tuple[int, ...] = (5, 8)) -> Array:
    """Random integers of the whole range of a dtype; bools for bool."""
    if dtypes.is_bool(dtype):
        return rng.integers(0, 2, shape).astype(dtype)
    return np.frombuffer(rng.bytes(int(np.prod(shape)) * dtype.itemsize), dtype).reshape(shape)


def wide(array: Array) -> Array:
    """The values as float64, as Python integers, or as bool: exact, and of a width at which nothing wraps around."""
    dtype = np.asarray(array).dtype
    if dtypes.is_bool(dtype):
        return np.array(array)
    return np.asarray(array).astype(object if dtypes.is_integer(dtype) else np.float64)


def wrapped(values: Array, dtype: np.dtype) -> Array:
    """Python integers brought into the range of a dtype, as two's complement does."""
    if not dtypes.is_integer(dtype):
        return values
    limits = np.iinfo(dtype)
    span = int(limits.max) - int(limits.min) + 1
    return np.frompyfunc(lambda value: (int(value) - int(limits.min)) % span + int(limits.min), 1, 1)(values)


def fault(got: Array, expected: Array, dtype: np.dtype, slack: float = 1) -> str:
    """What is wrong with an output; empty if nothing is."""
    got, expected = np.asarray(got), np.asarray(expected)
    if (got.shape, got.dtype) != (expected.shape, dtype):
        return f"{got.dtype}{list(got.shape)}, expected {dtype}{list(expected.shape)}"
    if not dtypes.is_float(dtype):
        same = np.asarray(got.astype(object) == expected.astype(object)).astype(bool)
        return "" if same.all() else f"{(~same).sum()} of {same.size} elements differ:\n{got}\nexpected\n{expected}"
    found, wanted = got.astype(np.float64), expected.astype(np.float64)
    finite = np.isfinite(wanted)
    special = (found == wanted) | (np.isnan(found) & np.isnan(wanted))
    if not (special | finite).all() or not np.isfinite(found[finite]).all():
        return f"NaN or infinity at other places:\n{found}\nexpected\n{wanted}"
    error, size = np.linalg.norm(found[finite] - wanted[finite]), np.linalg.norm(wanted[finite])
    if error > slack * TOLERANCES[str(dtype)] * size:
        return f"relative error {error / size if size else np.inf:.2e}, allowed {slack * TOLERANCES[str(dtype)]:.0e}"
    return ""
