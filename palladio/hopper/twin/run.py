"""Execution of a kernel on the host twin."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from palladio.base.dataclass import dataclass
from palladio.base.errors import PalladioValueError
from palladio.hopper.lowered import Array, ArrayParameter, Lowered, MapParameter
from palladio.hopper.twin import build, maps
from palladio.types import dtypes
from palladio.types.device import H100_SXM

_MAP_WORDS = 16
_ALIGNMENT = 256
"""The least alignment of CUDA's allocators, in bytes."""
_GUARD = 4096
"""Unused bytes around each array, so that an access just outside it is not inside another one."""
_RESIDENT = H100_SXM.multiprocessors
"""The most blocks that are resident concurrently: as many as an H100 has multiprocessors."""


@dataclass(frozen=True)
class Schedule:
    """The completion of asynchronous operations, and the order of warps.

    Fields:
        completion: "late" (only when all threads are blocked), "early" (immediately) or "random".
        seed: the seed of random completion and of the random order of warps and lanes.
    """

    completion: str
    seed: int = 0


SCHEDULES = (Schedule("late"), Schedule("early"), Schedule("random", 1), Schedule("random", 2))
"""The schedules under which every kernel runs."""
_COMPLETIONS = ("late", "early", "random")
_ONE_AT_A_TIME = threading.Lock()
"""The runtime simulates one launch at a time."""


class TwinError(RuntimeError):
    """A kernel has undefined behaviour by the PTX ISA, or did not end.

    The message names the source line, the thread, the instruction and the rule.
    """


@dataclass(frozen=True)
class Counts:
    """Counts of one run.

    Fields:
        switches: switches from a thread to the scheduler.
        products: wgmma instructions, one for a warpgroup.
        copies: bulk copies.
        waits: waits, including those that are met immediately.
    """

    switches: int
    products: int
    copies: int
    waits: int


@dataclass(frozen=True)
class Result:
    """The outputs of a run, in order, and its counts."""

    outputs: tuple[np.ndarray, ...]
    counts: Counts


@dataclass(frozen=True)
class Memory:
    """A range of global memory that a kernel may access.

    Fields:
        base: its first address.
        bytes: its size.
        writable: True if the kernel may write to it.
    """

    base: int
    bytes: int
    writable: bool


class _Range(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("bytes", ctypes.c_uint64), ("writable", ctypes.c_uint32)]


class _Counts(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("switches", "products", "copies", "waits")]


class _Request(ctypes.Structure):
    """`Request` of `machine.hpp`."""

    _fields_ = [
        ("entry", ctypes.c_void_p),
        ("arguments", ctypes.c_void_p),
        ("arrays", ctypes.POINTER(_Range)),
        ("counts", ctypes.POINTER(_Counts)),
        ("seed", ctypes.c_uint64),
        *((name, ctypes.c_uint32) for name in ("array_count", "grid", "cluster", "threads", "shared_bytes")),
        *((name, ctypes.c_uint32) for name in ("completion", "registers", "resident")),
    ]


def run(lowered: Lowered, operands: Sequence[Any], schedule: Schedule = SCHEDULES[0]) -> Result:
    """Run a kernel on copies of its operands.

    Outputs, and workspaces that need not be zero, hold the value of uninitialised memory at first: NaN, the least
    integer, False. All bits of shared memory are set, which is NaN too.

    Args:
        lowered: the kernel.
        operands: arrays and numbers, in the order of the launch's operands.
        schedule: the completion of asynchronous operations.

    Raises:
        TwinError: the kernel broke a rule of the PTX ISA, or did not end.
        PalladioValueError: an operand's shape or dtype is not the kernel's; the driver would refuse a tensor map.
        PalladioNotImplementedError: there is no compiler for C++.
    """
    if schedule.completion not in _COMPLETIONS:
        raise PalladioValueError(
            "a schedule completes late, early or at random", argument="schedule", got=schedule.completion
        )
    arrays = _arrays(lowered, operands)
    parameters = [_parameter(each, arrays, operands) for each in lowered.parameters]
    counts = _launch(lowered, arrays, parameters, schedule, lowered.blocks(operands))
    outputs = {array.position: data for array, data in zip(lowered.arrays, arrays) if array.role == "output"}
    return Result(tuple(outputs[position] for position in sorted(outputs)), counts)


def run_all(lowered: Lowered, operands: Sequence[Any]) -> list[Result]:
    """Run a kernel under each of `SCHEDULES`; errors as those of `run`."""
    return [run(lowered, operands, schedule) for schedule in SCHEDULES]


def _arrays(lowered: Lowered, operands: Sequence[Any]) -> list[np.ndarray]:
    made: dict[tuple[str, int], np.ndarray] = {}
    source_of = {output: operand for operand, output in lowered.aliases}
    start_of = {output: operand for operand, output in lowered.copied}
    ordered = sorted(lowered.arrays, key=lambda array: array.role != "operand")  # aliases point to operands
    for array in ordered:
        if array.role == "output" and array.position in source_of:
            data = made["operand", source_of[array.position]]
        else:
            data = _empty(array)
            if array.role == "operand":
                data[...] = _operand(array, operands)
            elif array.role == "output" and array.position in start_of:
                data[...] = made["operand", start_of[array.position]]
        made[array.role, array.position] = data
    return [made[array.role, array.position] for array in lowered.arrays]


def _empty(array: Array) -> np.ndarray:
    size = int(np.prod(array.shape, dtype=np.int64)) * array.dtype.itemsize
    raw = np.full(size + 2 * _GUARD + _ALIGNMENT, 0xFF, np.uint8)
    start = _GUARD + -(raw.ctypes.data + _GUARD) % _ALIGNMENT
    data = raw[start : start + size].view(array.dtype).reshape(array.shape)
    data.fill(array.dtype.type(0) if array.zeroed else dtypes.uninitialized(array.dtype))
    return data


def _operand(array: Array, operands: Sequence[Any]) -> np.ndarray:
    given = np.asarray(operands[array.position])
    if given.shape != array.shape or given.dtype != array.dtype:
        raise PalladioValueError(
            "the kernel was compiled for another operand",
            argument=f"operands[{array.position}]",
            expected=f"{array.dtype}{list(array.shape)}",
            got=f"{given.dtype}{list(given.shape)}",
        )
    return given


def _parameter(parameter: Any, arrays: list[np.ndarray], operands: Sequence[Any]) -> Any:
    """A parameter as C data; an attribute keeps the data alive that it points to."""
    if isinstance(parameter, MapParameter):
        spec = maps.encode(parameter.spec, arrays[parameter.spec.array])
        words = (ctypes.c_uint64 * _MAP_WORDS)(maps.MAGIC, ctypes.addressof(spec))
        words.keep = spec  # type: ignore[attr-defined]
        return words
    if isinstance(parameter, ArrayParameter):
        return ctypes.c_void_p(arrays[parameter.array].ctypes.data)
    value = np.asarray(operands[parameter.operand]).astype(parameter.dtype)
    return (ctypes.c_char * value.nbytes).from_buffer_copy(value.tobytes())


def _launch(lowered: Lowered, arrays: list[np.ndarray], parameters: list[Any], schedule: Schedule, grid: int) -> Counts:
    written = {array.position for array in lowered.arrays if array.role == "output"}
    aliased = {operand for operand, output in lowered.aliases if output in written}
    ranges = [
        Memory(data.ctypes.data, data.nbytes, array.role != "operand" or array.position in aliased)
        for array, data in zip(lowered.arrays, arrays)
    ]
    return execute(lowered, grid, [ctypes.addressof(each) for each in parameters], ranges, schedule)


def execute(
    lowered: Lowered, grid: int, parameters: Sequence[int], memory: Sequence[Memory], schedule: Schedule
) -> Counts:
    """Run a kernel on parameters that are already in memory, as for a driver.

    Args:
        grid: the number of blocks.
        parameters: the address of each parameter; tensor maps there are encoded by `maps.encode`.
        memory: all ranges that the kernel may access.

    Raises:
        TwinError: the kernel broke a rule of the PTX ISA, or did not end.
        PalladioNotImplementedError: there is no compiler for C++.
    """
    library, kernel = build.runtime(), build.kernel(lowered)
    pointers = (ctypes.c_void_p * max(1, len(parameters)))(*parameters)
    ranges = (_Range * max(1, len(memory)))(*(_Range(each.base, each.bytes, each.writable) for each in memory))
    counts = _Counts()
    request = _Request(
        entry=ctypes.cast(kernel.palladio_twin_entry, ctypes.c_void_p),
        arguments=ctypes.addressof(pointers),
        arrays=ranges,
        counts=ctypes.pointer(counts),
        seed=schedule.seed,
        array_count=len(memory),
        grid=grid,
        cluster=lowered.cluster,
        threads=lowered.threads,
        shared_bytes=lowered.shared_bytes,
        completion=_COMPLETIONS.index(schedule.completion),
        registers=H100_SXM.registers_at_launch(-(-lowered.threads // H100_SXM.warpgroup_threads)),
        resident=max(1, _RESIDENT // lowered.cluster),
    )
    library.palladio_twin_launch.restype = ctypes.c_char_p
    with _ONE_AT_A_TIME:
        failure = library.palladio_twin_launch(ctypes.byref(request)).decode()
    if failure:
        raise TwinError(failure)
    return Counts(counts.switches, counts.products, counts.copies, counts.waits)
