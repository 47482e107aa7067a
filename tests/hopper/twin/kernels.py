"""Hand-written kernels for the host twin, with as little around them as can be."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from palladio.hopper.lowered import Array, ArrayParameter, Lowered, MapParameter, MapSpec, ScalarParameter
from palladio.hopper.twin.run import SCHEDULES, Schedule, TwinError, run
from palladio.hopper.wgmma import Wgmma
from palladio.types import dtypes

LATE, EARLY = SCHEDULES[:2]
C_TYPES = {
    "f32": "float",
    "f64": "double",
    "i32": "int",
    "u32": "u32",
    "i64": "i64",
    "u64": "u64",
    "bf16": "u16",
    "f16": "u16",
    "u16": "u16",
    "i16": "short",
    "u8": "u8",
    "i8": "signed char",
    "f8e4m3fn": "u8",
    "f8e5m2": "u8",
}


@dataclass(frozen=True)
class Param:
    """A parameter of a kernel, in the order of the list.

    Fields:
        shape, dtype: of an array; a number has no shape.
        role: "operand", "output", or "number".
        map: of a tensor map.
    """

    name: str
    dtype: Any = np.float32
    shape: tuple[int, ...] | None = None
    role: str = "operand"
    map: MapSpec | None = None


def array(name: str, dtype: Any, *shape: int, role: str = "operand") -> Param:
    return Param(name, dtype, shape, role)


def output(name: str, dtype: Any, *shape: int) -> Param:
    return Param(name, dtype, shape, "output")


def number(name: str, dtype: Any = np.int32) -> Param:
    return Param(name, dtype, None, "number")


def tensor_map(name: str, of: int, dtype: Any, shape: Sequence[int], box: Sequence[int], **more: Any) -> Param:
    """The map of a whole dense array, the array with this number."""
    dtype = np.dtype(dtype)
    strides = tuple(int(np.prod(shape[axis + 1 :])) * dtype.itemsize for axis in range(len(shape) - 1))
    spec = MapSpec(of, dtype, tuple(shape), more.pop("strides", strides), tuple(box), **more)
    return Param(name, map=spec)


def kernel(
    body: str,
    parameters: Sequence[Param],
    *,
    threads: int = 128,
    shared: int = 4096,
    grid: int = 1,
    cluster: int = 1,
    products: Iterable[Wgmma] = (),
    before: str = "",
) -> Lowered:
    """A kernel from its body, whose first line is line 1 of `kernel.cu`."""
    arrays: list[Array] = []
    listed: list[Any] = []
    declared: list[str] = []
    counts = {"operand": 0, "output": 0}
    for each in parameters:
        dtype = np.dtype(each.dtype)
        if each.map is not None:
            listed.append(MapParameter(each.name, each.map))
            declared.append(f"PAL_MAP {each.name}")
        elif each.role == "number":
            listed.append(ScalarParameter(each.name, counts["operand"], dtype))
            declared.append(f"{C_TYPES[dtypes.short_name(dtype)]} {each.name}")
            counts["operand"] += 1
        else:
            assert each.shape is not None
            listed.append(ArrayParameter(each.name, len(arrays)))
            const = "const " if each.role == "operand" else ""
            declared.append(f"{const}{C_TYPES[dtypes.short_name(dtype)]}* {each.name}")
            arrays.append(Array(each.role, counts[each.role], each.shape, dtype))
            counts[each.role] += 1
    text = (
        f'#include "palladio.cuh"\n{before}\n'
        f"PAL_KERNEL void PAL_BOUNDS({threads}) PAL_CLUSTER({cluster}) "
        f"k({', '.join(declared)}) {{\n"
        f'#line 1 "kernel.cu"\n{body.lstrip(chr(10))}\n}}\n'
    )
    return Lowered("k", text, tuple(products), tuple(listed), tuple(arrays), grid, cluster, threads, shared)


def outputs(lowered: Lowered, *operands: Any, schedule: Schedule = LATE) -> Any:
    """The outputs of a run; the output itself if there is one."""
    found = run(lowered, operands, schedule).outputs
    return found[0] if len(found) == 1 else found


def failure(lowered: Lowered, *operands: Any, schedule: Schedule = LATE) -> str:
    """The sentence that a kernel fails with."""
    with pytest.raises(TwinError) as caught:
        run(lowered, operands, schedule)
    return str(caught.value)


def changed(lowered: Lowered, old: str, new: str) -> Lowered:
    """The kernel with something else in its text."""
    assert old in lowered.text, f"the text has no {old!r}"
    return replace(lowered, text=lowered.text.replace(old, new))
