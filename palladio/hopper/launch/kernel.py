"""A kernel in the memory of a device, and its launch.

The structures that the driver reads at a launch (configuration, parameters, encoded tensor maps) are built once, and
machine code replaces the addresses that differ from the previous launch (`direct`), for as many launches at once as
workers make. Each map is encoded once.

Numbers that are passed by value are kept beside the addresses, as 64 bits each.

A kernel with a grid known only at the call is launched by ctypes, as is every kernel if machine code cannot be
compiled: the structures are built for each stream, set of addresses and numbers, and are cached, since array libraries
reuse addresses.
"""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import numpy as np

from palladio.array.on_card import CardArray
from palladio.base import knobs
from palladio.base.dataclass import dataclass
from palladio.base.errors import InternalError
from palladio.hopper.compile import Cubin, compiled
from palladio.hopper.launch.direct import BUSY, REPLACING, DirectLaunch, Record, direct_launch
from palladio.hopper.launch.driver import INVALID_CONTEXT, CardError, Device, Driver
from palladio.hopper.launch.maps import MAP_ALIGNMENT, MAP_BYTES, encode
from palladio.hopper.lowered import ArrayParameter, Lowered, MapParameter, ScalarParameter
from palladio.types.dtypes import DType

KEPT = 256
"""The number of parameter blocks that a kernel caches; the oldest is evicted."""

PORTABLE_CLUSTER = 8
"""The cluster size that every device supports (CUDA C++ Programming Guide, "Thread block clusters")."""

_UNLOADABLE = (200, 209, 218, 222)
"""`INVALID_IMAGE`, `NO_BINARY_FOR_GPU`, `INVALID_PTX`, `UNSUPPORTED_PTX_VERSION`: the driver cannot read the code."""


@dataclass(frozen=True)
class _Ready:
    """A prepared launch: the addresses of the structures for the driver, and their owners."""

    config: int
    parameters: int
    keep: tuple[Any, ...]


class LoadedKernel:
    """A kernel, loaded for a device.

    Args:
        cubin: its machine code; None to compile it.
        like: a loaded kernel with the same machine code, for arrays of other sizes.

    Raises:
        CardError: the driver cannot load it.
    """

    def __init__(
        self,
        lowered: Lowered,
        driver: Driver,
        device: Device,
        cubin: Cubin | None = None,
        like: LoadedKernel | None = None,
    ) -> None:
        self.lowered = lowered
        self.driver = driver
        self.device = device
        self.code = like.code if like is not None else (compiled(lowered) if cubin is None else cubin).code
        self._ready: dict[Any, _Ready] = {}
        self._configs: dict[tuple[int, int], Any] = {}
        self._template: ctypes.Array[Any] | None = None
        self._one_device = driver.count == 1
        self._lock = threading.Lock()
        self.number_dtypes = [each.dtype for each in lowered.parameters if isinstance(each, ScalarParameter)]
        """The dtypes of the scalar parameters, which may be wider than those of the operands."""
        self._is_direct = not lowered.dynamic
        self._direct: DirectLaunch | None = None
        if like is not None:
            self._library, self._kernel = like._library, like._kernel
        else:
            with driver.current(device):
                self._library, self._kernel = self._load()
        self._handle = int(self._kernel)

    def launch(self, stream: int, addresses: tuple[int, ...], numbers: tuple[Any, ...] = (), blocks: int = 0) -> None:
        """Run the kernel.

        Args:
            stream: the handle of a stream of the device.
            addresses: the addresses of the arrays, in the order of `Lowered.arrays`.
            numbers: the values of the scalar parameters, in their order.
            blocks: the size of a grid that is known only at the call; 0 for `Lowered.grid`.

        Raises:
            CardError: the driver refuses the launch, or an earlier kernel has failed.
        """
        direct = self._direct
        if direct is None and self._is_direct:
            direct = self._make_direct(addresses)
        if direct is None:
            self._launch_prepared(stream, addresses, numbers, blocks)
        else:
            if numbers:
                addresses += self.words(numbers)
            status = direct.launch(stream, addresses)
            if status:
                self._launch_again(status, direct, stream, addresses)
        self.driver.recent.append(self.lowered.name)
        if knobs.synchronous.get():
            self._wait(stream)

    @property
    def direct(self) -> DirectLaunch | None:
        """The launch as machine code, after the first one; None if it cannot be used."""
        return self._direct

    def words(self, numbers: tuple[Any, ...]) -> tuple[int, ...]:
        """The bits of the values of the scalar parameters."""
        found = [_parameter(each, dtype) for each, dtype in zip(numbers, self.number_dtypes)]
        return tuple([int.from_bytes(each, "little") for each in found])

    def _launch_prepared(self, stream: int, addresses: tuple[int, ...], numbers: tuple[Any, ...], blocks: int) -> None:
        """Run the kernel by ctypes."""
        # As bytes: 0.0 and -0.0 are equal numbers.
        words = tuple([_parameter(each, dtype) for each, dtype in zip(numbers, self.number_dtypes)])
        key = (stream, addresses, words, blocks)
        ready = self._ready.get(key)
        if ready is None:
            ready = self._prepare(stream, addresses, words, blocks)
            self._keep(key, ready)
        status = INVALID_CONTEXT
        if self._one_device:
            status = self.driver.launch(ready.config, self._handle, ready.parameters, None)
        if status == INVALID_CONTEXT:
            with self.driver.current(self.device):
                status = self.driver.launch(ready.config, self._handle, ready.parameters, None)
        if status:
            self.driver.fail(status, "cuLaunchKernelEx")

    def _launch_again(self, status: int, direct: DirectLaunch, stream: int, addresses: tuple[int, ...]) -> None:
        """Run the kernel after a status other than 0: with another record, or with the context, if that was missing."""
        if status in (BUSY, INVALID_CONTEXT, INVALID_CONTEXT + REPLACING):
            with self.driver.current(self.device):
                status = direct.launch(stream, addresses)
                while status == BUSY:
                    record = self._record(addresses)
                    with self._lock:
                        direct.add(record)
                    status = direct.launch(stream, addresses)
        if status:
            replacing = status >= REPLACING
            called = "cuTensorMapReplaceAddress" if replacing else "cuLaunchKernelEx"
            self.driver.fail(status - REPLACING * replacing, called)

    def _make_direct(self, addresses: tuple[int, ...]) -> DirectLaunch | None:
        """The launch as machine code, and the memory that it reads; None if it cannot be compiled or used."""
        with self._lock:
            if self._direct is not None or not self._is_direct:
                return self._direct
        with self.driver.current(self.device):
            record = self._record(addresses)
        known = self.driver.launch, self.driver.replace_address, self.driver.current_context
        functions = [ctypes.cast(each, ctypes.c_void_p).value for each in known]
        found = direct_launch(record, *functions)
        with self._lock:
            self._is_direct = found is not None
            if self._direct is None:
                self._direct = found
            return self._direct

    def _record(self, addresses: tuple[int, ...]) -> Record:
        """Memory for launches one at a time, with maps of arrays at these addresses. A context must be current."""
        parameters = self.lowered.parameters
        maps = [each for each in parameters if isinstance(each, MapParameter)]
        room, start = _aligned(MAP_BYTES * len(maps))
        self._write_maps(maps, addresses, start)
        places = iter(range(start, start + MAP_BYTES * len(maps), MAP_BYTES))
        slots, pointers, values = [], [], len(self.lowered.arrays)
        for each in parameters:
            if isinstance(each, MapParameter):
                place = next(places)
                slots.append((place, each.spec.array, addresses[each.spec.array]))
                pointers.append((place, 0))
            elif isinstance(each, ArrayParameter):
                pointers.append((None, each.array))
            else:
                pointers.append((None, values))
                values += 1
        config, context = self._new_config(0, self.lowered.grid), 0 if self._one_device else self.device.context
        return Record(config.getPtr(), self._handle, slots, pointers, values, context, (room, config))

    def number(self, value: Any, stream: int) -> Any:
        """The value of an operand on the host; an array of the device is copied, which waits for the stream."""
        if not isinstance(value, CardArray):
            return value
        found = np.empty(value.shape, value.dtype)
        with self.driver.current(self.device):
            self.driver.call("cuMemcpyDtoHAsync", found.ctypes.data, value.address, found.nbytes, stream)
            self.driver.call("cuStreamSynchronize", stream)
        return found

    def _wait(self, stream: int) -> None:
        with self.driver.current(self.device):
            (status,) = self.driver.api.cuStreamSynchronize(stream)
        if status:
            self.driver.fail(int(status), "cuStreamSynchronize", self.lowered.name)

    def _load(self) -> tuple[Any, Any]:
        driver, lowered = self.driver, self.lowered
        status, library = driver.api.cuLibraryLoadData(self.code, [], [], 0, [], [], 0)
        if int(status) in _UNLOADABLE:
            name, words = driver.words(int(status))
            version = driver.call("cuDriverGetVersion")
            raise CardError(
                f"the driver cannot load the machine code of {lowered.name}: {words}",
                got=f"{name} from a driver for CUDA {version // 1000}.{version % 1000 // 10}, {self.device.name}",
                hint="install a driver that is as new as NVRTC (pip list shows nvidia-cuda-nvrtc), or an older NVRTC",
            )
        if status:
            driver.fail(int(status), "cuLibraryLoadData", lowered.name)
        kernel = driver.call("cuLibraryGetKernel", library, lowered.name.encode())
        self._check_parameters(kernel)
        kinds = driver.api.CUfunction_attribute
        handle = driver.call("cuDeviceGet", self.device.index)
        shared = kinds.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        driver.call("cuKernelSetAttribute", shared, lowered.shared_bytes, kernel, handle)
        if lowered.cluster > PORTABLE_CLUSTER:
            larger = kinds.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
            driver.call("cuKernelSetAttribute", larger, 1, kernel, handle)
        return library, kernel

    def _check_parameters(self, kernel: Any) -> None:
        """Check the record against the machine code, which determines the bytes that the driver copies."""
        api = self.driver.api
        for number, parameter in enumerate(self.lowered.parameters):
            status, _, size = api.cuKernelGetParamInfo(kernel, number)
            if status or size != _size(parameter):
                raise InternalError(
                    f"parameter {parameter.name} of {self.lowered.name} has {size} bytes in the machine code, "
                    f"and {_size(parameter)} in the launch record"
                )

    def _keep(self, key: Any, ready: _Ready) -> None:
        with self._lock:
            while len(self._ready) >= KEPT:
                self._ready.pop(next(iter(self._ready)))
            self._ready[key] = ready

    # The structures that the driver reads.

    def _prepare(self, stream: int, addresses: tuple[int, ...], words: tuple[bytes, ...], blocks: int) -> _Ready:
        parameters = self.lowered.parameters
        maps = [each for each in parameters if isinstance(each, MapParameter)]
        room, start = _aligned(MAP_BYTES * len(maps) + 8 * len(parameters))
        with self.driver.current(self.device):
            self._write_maps(maps, addresses, start)
        pointers = (ctypes.c_void_p * max(1, len(parameters)))()
        next_map, next_word = start, start + MAP_BYTES * len(maps)
        values = iter(words)
        for n, each in enumerate(parameters):
            if isinstance(each, MapParameter):
                pointers[n], next_map = next_map, next_map + MAP_BYTES
                continue
            pointers[n] = next_word
            if isinstance(each, ArrayParameter):
                ctypes.c_uint64.from_address(next_word).value = addresses[each.array]
            else:
                raw = next(values)
                ctypes.memmove(next_word, raw, len(raw))
            next_word += 8
        config = self._config(stream, blocks or self.lowered.grid)
        return _Ready(config.getPtr(), ctypes.addressof(pointers), (room, pointers, config))

    def _write_maps(self, maps: list[MapParameter], addresses: tuple[int, ...], start: int) -> None:
        """Write the maps of arrays at these addresses: encoded the first time, then copied with other addresses."""
        with self._lock:
            template = self._template
        if template is None:
            for n, each in enumerate(maps):
                encode(self.driver, each.spec, addresses[each.spec.array], start + MAP_BYTES * n)
            with self._lock:
                self._template = (ctypes.c_char * (MAP_BYTES * len(maps))).from_buffer_copy(
                    ctypes.string_at(start, MAP_BYTES * len(maps))
                )
            return
        ctypes.memmove(start, template, MAP_BYTES * len(maps))
        for n, each in enumerate(maps):
            status = self.driver.replace_address(start + MAP_BYTES * n, addresses[each.spec.array])
            if status:
                self.driver.fail(status, "cuTensorMapReplaceAddress", self.lowered.name)

    def _config(self, stream: int, blocks: int) -> Any:
        found = self._configs.get((stream, blocks))
        return (
            found if found is not None else self._configs.setdefault((stream, blocks), self._new_config(stream, blocks))
        )

    def _new_config(self, stream: int, blocks: int) -> Any:
        api, lowered = self.driver.api, self.lowered
        config = api.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = blocks, 1, 1
        config.blockDimX, config.blockDimY, config.blockDimZ = lowered.threads, 1, 1
        config.sharedMemBytes = lowered.shared_bytes
        config.hStream = api.CUstream(stream)
        if lowered.cluster > 1:
            attribute = api.CUlaunchAttribute()
            attribute.id = api.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
            dimension = attribute.value.clusterDim
            dimension.x, dimension.y, dimension.z = lowered.cluster, 1, 1
            config.attrs, config.numAttrs = [attribute], 1
        return config


def _parameter(value: Any, dtype: DType) -> bytes:
    """A number as a parameter of a dtype."""
    own = getattr(value, "dtype", None)
    if own is None or (own is not dtype and own != dtype):  # to NumPy, None equals float64
        value = np.asarray(value).astype(dtype)
    return value.tobytes()


def _size(parameter: MapParameter | ArrayParameter | ScalarParameter) -> int:
    """The bytes of a parameter."""
    if isinstance(parameter, MapParameter):
        return MAP_BYTES
    return 8 if isinstance(parameter, ArrayParameter) else parameter.dtype.itemsize


def _aligned(size: int) -> tuple[ctypes.Array[Any], int]:
    """Memory for maps, and an aligned address in it."""
    room = ctypes.create_string_buffer(size + MAP_ALIGNMENT)
    return room, -(-ctypes.addressof(room) // MAP_ALIGNMENT) * MAP_ALIGNMENT
