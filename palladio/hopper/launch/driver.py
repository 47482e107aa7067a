"""The CUDA driver: devices, contexts, and errors with hints."""

from __future__ import annotations

import ctypes
import functools
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import field
from typing import Any

from palladio.base.dataclass import dataclass
from palladio.base.errors import PalladioError

CAPABILITY = (9, 0)
"""The compute capability of Hopper. Machine code for sm_90a runs on this one only."""

EXTRA = "pip install 'palladio[hopper]'"
_HISTORY = 16
"""The number of recent launches that an asynchronous error lists."""

_LAUNCH = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 4)
_REPLACE_ADDRESS = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 2)
_CURRENT_CONTEXT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
_ENCODE = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_void_p,
    ctypes.c_int,
    ctypes.c_uint32,
    *[ctypes.c_void_p] * 5,
    *[ctypes.c_int] * 4,
)
_SYMBOLS = {
    "launch": ("cuLaunchKernelEx", _LAUNCH),
    "replace_address": ("cuTensorMapReplaceAddress", _REPLACE_ADDRESS),
    "current_context": ("cuCtxGetCurrent", _CURRENT_CONTEXT),
    "encode": ("cuTensorMapEncodeTiled", _ENCODE),
}
_SYMBOLS_OF = 12000
"""The oldest version of CUDA with all symbols that are used here, 12.0."""

INVALID_CONTEXT = 201
"""`CUDA_ERROR_INVALID_CONTEXT`: no context is current to this thread."""

_ADVICE = {
    2: "free arrays that are not needed any more; the caller's library may hold memory back (torch.cuda.empty_cache())",
    700: "an index is outside of its array",
    710: "a debug_check failed, which the driver names on standard error",
    715: "the card refused an instruction, such as a copy or a sum by a tensor map that it cannot make",
    716: "an address is not aligned for an access",
    719: "the hardware refused an instruction, such as a copy by a tensor map, or shared memory was left",
}
_ASYNCHRONOUS = frozenset((214, 700, 702, 710, 714, 715, 716, 717, 718, 719))
"""Errors of a running kernel, e.g. `CUDA_ERROR_ILLEGAL_ADDRESS`. They destroy the context."""


class CardError(PalladioError, RuntimeError):
    """No GPU that runs kernels for Hopper is present, or the driver failed."""


@dataclass(frozen=True)
class Device:
    """A GPU.

    Fields:
        index: its number among the devices that the process sees.
        name: its name, by the driver.
        capability: its compute capability.
        multiprocessors: the number of SMs.
        context: the handle of its primary context, which the array libraries use.
    """

    index: int
    name: str
    capability: tuple[int, int]
    multiprocessors: int
    context: int

    @property
    def architecture(self) -> str:
        """The name of the architecture for compilers, e.g. `sm_90a`."""
        return "sm_{}{}".format(*self.capability) + ("a" if self.capability == CAPABILITY else "")


@dataclass
class Driver:
    """The driver of this process.

    Fields:
        api: the module of `cuda-bindings`.
        launch, replace_address, current_context, encode: functions of the driver that take addresses, by ctypes: the
            wrappers of `cuda-bindings` allocate objects, and their tensor map is not aligned to 64 bytes.
        count: the number of devices.
        recent: the names of recently launched kernels, the newest last.
    """

    api: Any
    launch: Any
    replace_address: Any
    current_context: Any
    encode: Any
    count: int
    recent: deque[str] = field(default_factory=lambda: deque(maxlen=_HISTORY))
    devices: dict[int, Device] = field(default_factory=dict)

    def call(self, name: str, *arguments: Any) -> Any:
        """The result of a function of the driver.

        Raises:
            CardError: if it fails.
        """
        status, *results = getattr(self.api, name)(*arguments)
        if status:
            self.fail(int(status), name)
        return results[0] if len(results) == 1 else tuple(results)

    def fail(self, status: int, doing: str, kernel: str | None = None) -> None:
        """Raise the error of a status.

        Args:
            doing: the function of the driver that returned it.
            kernel: the kernel that is known to have failed; if None, one of the recent launches may have.

        Raises:
            CardError: always.
        """
        name, words = self.words(status)
        advice = _ADVICE.get(status)
        if status not in _ASYNCHRONOUS:
            about = f" for the kernel {kernel}" if kernel else ""
            raise CardError(f"the CUDA driver failed{about}: {words}", got=f"{name} from {doing}", hint=advice)
        meaning = "" if advice is None else f" ({advice})"
        after = "start a new process: CUDA has given up this one's context"
        if kernel is not None:
            raise CardError(f"the kernel {kernel} failed on the card: {words}{meaning}", got=name, hint=after)
        last = ", ".join(reversed(self.recent)) or "none of Palladio's"
        raise CardError(
            f"a kernel failed on the card: {words}{meaning}",
            got=f"{name} from {doing}; launched before, newest first: {last}",
            hint=f"PALLADIO_SYNCHRONOUS=1 names the one that failed; then {after}",
        )

    def words(self, status: int) -> tuple[str, str]:
        """The name and the description of a status."""
        found = []
        for of in (self.api.cuGetErrorName, self.api.cuGetErrorString):
            try:
                failed, text = of(self.api.CUresult(status))
            except ValueError:  # a status that these bindings do not know
                failed, text = 1, None
            found.append(f"CUDA error {status}" if failed or text is None else text.decode())
        return found[0], found[1]

    def device(self, index: int) -> Device:
        """A device of this process.

        Raises:
            CardError: there is no device with this number.
        """
        found = self.devices.get(index)
        if found is None:
            if not 0 <= index < self.count:
                raise CardError("no GPU has this number", expected=f"below {self.count}", got=index)
            handle = self.call("cuDeviceGet", index)
            name = self.call("cuDeviceGetName", 256, handle).partition(b"\0")[0].decode().strip()
            context = int(self.call("cuDevicePrimaryCtxRetain", handle))
            facts = [
                self.attribute(handle, each)
                for each in ("COMPUTE_CAPABILITY_MAJOR", "COMPUTE_CAPABILITY_MINOR", "MULTIPROCESSOR_COUNT")
            ]
            found = self.devices[index] = Device(index, name, (facts[0], facts[1]), facts[2], context)
        return found

    def attribute(self, handle: Any, name: str) -> int:
        """An attribute of a device, e.g. `MULTIPROCESSOR_COUNT`."""
        kind = getattr(self.api.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(self.call("cuDeviceGetAttribute", kind, handle))

    def hopper(self, index: int) -> Device:
        """A device on which kernels for Hopper run.

        Raises:
            CardError: there is no device with this number, or it is not a Hopper GPU.
        """
        found = self.device(index)
        if found.capability != CAPABILITY:
            raise CardError(
                "kernels for GPUs are compiled for Hopper alone",
                expected="an H100, H200 or GH200 (sm_90a)",
                got=f"{found.name} ({found.architecture})",
                hint="move the arrays to the host (tensor.cpu()), where kernels are compiled for the processor",
            )
        return found

    @contextmanager
    def current(self, device: Device) -> Iterator[None]:
        """A `with` block in which the device's context is current to this worker."""
        self.call("cuCtxPushCurrent", device.context)
        try:
            yield
        finally:
            self.call("cuCtxPopCurrent")


_LOCK = threading.Lock()


def driver() -> Driver:
    """The driver of this process.

    Raises:
        CardError: `cuda-bindings` is not installed; there is no driver, no GPU, or an older driver than CUDA 12.
    """
    with _LOCK:
        return _driver()


@functools.cache
def _driver() -> Driver:
    api = _bindings()
    try:
        (status,) = api.cuInit(0)
    except RuntimeError as error:  # the bindings find no libcuda
        raise CardError(
            "there is no NVIDIA driver",
            got=str(error).partition("\n")[0].partition(" and ")[0],
            hint="install NVIDIA's driver (nvidia-smi shows it), or run kernels without a GPU: interpret='cpu'",
        ) from None
    made = Driver(api, None, None, None, None, 0)
    if status:
        name, words = made.words(int(status))
        raise CardError(
            "the CUDA driver finds no GPU",
            got=f"{name}: {words}",
            hint="nvidia-smi lists the GPUs of this machine; CUDA_VISIBLE_DEVICES may hide them",
        )
    version = made.call("cuDriverGetVersion")
    if version < _SYMBOLS_OF:
        raise CardError(
            "the NVIDIA driver is too old",
            expected="one for CUDA 12.0 or newer (525 or newer)",
            got=f"CUDA {version // 1000}.{version % 1000 // 10}",
            hint="install a newer driver",
        )
    for name, (symbol, kind) in _SYMBOLS.items():
        address, _ = made.call("cuGetProcAddress", symbol.encode(), _SYMBOLS_OF, 0)
        setattr(made, name, kind(address))
    made.count = made.call("cuDeviceGetCount")
    return made


def _bindings() -> Any:
    try:
        from cuda.bindings import driver as api
    except ImportError:
        raise CardError(
            "kernels on a GPU are launched through cuda-bindings, which is not installed", hint=EXTRA
        ) from None
    return api


def forget() -> None:
    """Discard the cached driver, for tests that replace it."""
    _driver.cache_clear()
