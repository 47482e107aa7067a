"""The stand-in for the CUDA driver, `libcuda.cpp`, as tests use it.

It is loaded under the driver's name before `cuda-bindings` looks for that, so the whole path is the real one down to
the binary interface: NVIDIA's bindings, their structures, our parameter blocks. A launch runs on the host twin, with
the parameters that the driver was given: maps as they were encoded, addresses as they stand in the block.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import importlib.util
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from palladio.hopper.launch import driver as launcher
from palladio.hopper.launch.kernel import LoadedKernel
from palladio.hopper.lowered import Lowered, MapParameter
from palladio.hopper.twin import maps
from palladio.hopper.twin.run import SCHEDULES, Memory, TwinError, execute

SOURCE = Path(__file__).with_name("libcuda.cpp")
_REAL = ("/usr/lib/x86_64-linux-gnu/libcuda.so.1", "/usr/lib64/libcuda.so.1", "/usr/lib/libcuda.so.1")
_ON_LAUNCH = ctypes.CFUNCTYPE(
    ctypes.c_int,
    *(ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t),
    *[ctypes.c_uint] * 4,
    *(ctypes.POINTER(ctypes.c_void_p), ctypes.c_uint, ctypes.POINTER(ctypes.c_size_t), ctypes.c_void_p),
)
_MAP_MAGIC = 0x656B61662070616D
# `CUtensorMapDataType`, in order, by the twin's names.
_ELEMENTS = ("u8", "u16", "u32", "i32", "u64", "i64", "f16", "f32", "f64", "bf16")
_BYTES = (1, 2, 4, 4, 8, 8, 2, 4, 8, 2)

ILLEGAL_ADDRESS = 700
OUT_OF_MEMORY = 2


class _Map(ctypes.Structure):
    """`Map` of `libcuda.cpp`."""

    _fields_ = [
        *((name, ctypes.c_uint64) for name in ("magic", "address")),
        ("dims", ctypes.c_uint64 * 5),
        ("strides", ctypes.c_uint64 * 4),
        ("box", ctypes.c_uint32 * 5),
        *((name, ctypes.c_uint32) for name in ("type", "rank")),
        *((name, ctypes.c_uint8) for name in ("swizzle", "promotion", "fill", "interleave")),
    ]


@functools.cache
def _library() -> ctypes.CDLL:
    """The stand-in, compiled once and kept beside the twin's libraries."""
    headers = Path(*importlib.util.find_spec("triton").submodule_search_locations) / "backends/nvidia/include"
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"palladio-driver-{os.getuid()}-{digest}"
    folder.mkdir(mode=0o700, exist_ok=True)
    made = folder / "libcuda.so.1"
    if not made.exists():
        unfinished = folder / f"{os.getpid()}.so"
        flags = ["-std=c++17", "-O1", "-shared", "-fPIC", "-fvisibility=hidden", "-w", "-Wl,-soname,libcuda.so.1"]
        subprocess.run(["g++", *flags, "-I", str(headers), str(SOURCE), "-o", str(unfinished)], check=True)
        unfinished.replace(made)
    library = ctypes.CDLL(str(made))
    library.fake_calls.restype = library.fake_complaint.restype = ctypes.c_char_p
    library.fake_allocation.restype = ctypes.c_size_t
    library.fake_allocation.argtypes = [ctypes.c_uint64, ctypes.POINTER(ctypes.c_uint64)]
    library.fake_adopt.argtypes = [ctypes.c_uint64, ctypes.c_size_t]
    library.fake_abandon.argtypes = [ctypes.c_uint64]
    return library


class FakeDriver:
    """A driver without a card."""

    def __init__(self) -> None:
        self.library = _library()
        self.kernels: list[LoadedKernel] = []
        self.failures: list[str] = []
        self._callback = _ON_LAUNCH(self._on_launch)
        self._held: dict[int, Any] = {}

    def begin(self, devices: int = 1, capability: tuple[int, int] = (9, 0), multiprocessors: int = 132) -> None:
        """A new driver, of a process that has not used it."""
        self.failures.clear()
        self.library.fake_reset(devices, *capability, multiprocessors)
        launcher.forget()

    def run_on_twin(self) -> None:
        """Launches run on the host twin from now on."""
        self.library.fake_on_launch(self._callback)

    def fail(self, call: str, error: int = OUT_OF_MEMORY, after: int = 0, sticky: bool = False) -> None:
        """A coming call of a function fails: the first, or one after others."""
        self._failing = call.encode()
        self.library.fake_fail(self._failing, after, error, sticky)

    def meet(self, launches: int) -> None:
        """The next launches return once there are this many of them; one that waits in vain fails."""
        self.library.fake_meet(launches)

    def calls(self) -> list[str]:
        """The calls since the last query."""
        return self.library.fake_calls().decode().splitlines()

    def complaint(self) -> str:
        """The rule of the documentation that was broken last."""
        return str(self.library.fake_complaint().decode())

    def on_card(self, array: np.ndarray) -> np.ndarray:
        """A copy of an array in memory that the driver takes for its own, 256 bytes aligned."""
        room = np.empty(array.nbytes + 256, np.uint8)
        start = -room.ctypes.data % 256
        held = room[start : start + array.nbytes]
        held[:] = np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8)
        self.library.fake_adopt(held.ctypes.data, max(1, array.nbytes))
        self._held[held.ctypes.data] = room
        return held.view(array.dtype).reshape(array.shape)

    def adopt(self, tensor: Any) -> None:
        """Take the memory of a tensor of the host for the driver's own, until the end."""
        memory = tensor.untyped_storage()
        self.library.fake_adopt(memory.data_ptr(), max(1, memory.nbytes()))
        self._held[memory.data_ptr()] = memory

    def has(self, address: int) -> bool:
        """True if there is memory of the driver at an address."""
        return bool(self.library.fake_allocation(address, ctypes.byref(ctypes.c_uint64())))

    def end(self) -> None:
        """Leave a driver that finds no card, as a machine without one has."""
        for address in self._held:
            self.library.fake_abandon(address)
        self._held.clear()
        self.library.fake_reset(0, 9, 0, 132)
        launcher.forget()

    # A launch.

    def _on_launch(
        self, name: bytes, code: int, size: int, grid: int, cluster: int, threads: int, shared: int, *given: Any
    ) -> int:
        parameters, count, sizes, _ = given
        try:
            start = ctypes.string_at(code, size)
            loaded = [each.lowered for each in self.kernels if each.code.startswith(start)]
            launched = name.decode(), cluster, threads, shared
            kinds = [(each.name, each.cluster, each.threads, each.shared_bytes) for each in loaded]
            assert launched in kinds, f"launched as {launched}, and loaded as {kinds}"
            lowered = loaded[kinds.index(launched)]
            self._run(lowered, grid, [ctypes.string_at(parameters[n], sizes[n]) for n in range(count)])
        except (TwinError, AssertionError) as error:
            self.failures.append(f"{type(error).__name__}: {error}")
            return ILLEGAL_ADDRESS
        return 0

    def _run(self, lowered: Lowered, grid: int, parameters: list[bytes]) -> None:
        kept, addresses = [], set()
        for parameter, data in zip(lowered.parameters, parameters, strict=True):
            if isinstance(parameter, MapParameter):
                encoded = _Map.from_buffer_copy(data)
                assert encoded.magic == _MAP_MAGIC, f"{parameter.name} is not an encoded tensor map"
                addresses.add(encoded.address)
                spec = _twin_map(encoded)
                kept += [spec, (ctypes.c_uint64 * 16)(maps.MAGIC, ctypes.addressof(spec))]
            else:
                kept.append(ctypes.create_string_buffer(data, max(8, len(data))))
                if len(data) == 8:
                    addresses.add(int.from_bytes(data, "little"))
        pointers = [ctypes.addressof(each) for each in kept if not isinstance(each, maps.TensorSpec)]
        execute(lowered, grid, pointers, list(self._memory(addresses)), SCHEDULES[2])

    def _memory(self, addresses: set[int]) -> Iterator[Memory]:
        found = set()
        for address in addresses:
            first = ctypes.c_uint64()
            size = self.library.fake_allocation(address, ctypes.byref(first))
            if size:
                found.add((first.value, size))
        return (Memory(base, size, True) for base, size in sorted(found))


def _twin_map(encoded: _Map) -> maps.TensorSpec:
    spec = maps.TensorSpec(maps.MAGIC, encoded.address)
    spec.dims[:], spec.strides[:], spec.box[:] = encoded.dims[:], encoded.strides[:], encoded.box[:]
    spec.rank, spec.item = encoded.rank, _BYTES[encoded.type]
    spec.element = maps._ELEMENTS.index(_ELEMENTS[encoded.type])
    spec.swizzle = (0, 32, 64, 128)[encoded.swizzle]
    spec.fill_nan = encoded.fill == 1
    return spec


@functools.cache
def fake() -> FakeDriver:
    """The stand-in of this process. Where a machine has the driver, that one would be hidden by it."""
    if any(map(os.path.exists, _REAL)):
        pytest.skip("this machine has an NVIDIA driver: make test-gpu tests the launcher on it")
    return FakeDriver()
