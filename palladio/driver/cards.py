"""The GPU of this machine, as the CUDA driver describes it."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

from palladio.types.device import H100_SXM

LIBRARY = "libcuda.so.1"
_MULTIPROCESSORS, _MAJOR = 16, 75
"""Attributes of a device (CUDA driver API, `CUdevice_attribute`): multiprocessors, major compute capability."""
_NAME_BYTES = 256

_HOPPER = 9


@cache
def multiprocessors() -> int:
    """The number of multiprocessors of this machine's first GPU if it is a Hopper card, else that of an H100 SXM.

    Persistent kernels have this number of blocks by default. No context is created.
    """
    driver = _driver()
    return (None if driver is None else queried_multiprocessors(driver)) or H100_SXM.multiprocessors


@cache
def card_name() -> str | None:
    """The name of this machine's first GPU if it is a Hopper card, e.g. `NVIDIA H200`; else None."""
    driver = _driver()
    return None if driver is None else queried_name(driver)


def _driver() -> Any:
    """The CUDA driver's library; None without one."""
    try:
        return ctypes.CDLL(LIBRARY)
    except OSError:
        return None


def queried_multiprocessors(driver: Any) -> int | None:
    """The number of multiprocessors of device 0 according to the driver; None without a Hopper card."""
    device = _hopper(driver)
    return None if device is None else _attribute(driver, _MULTIPROCESSORS, device)


def queried_name(driver: Any) -> str | None:
    """The name of device 0 according to the driver; None without a Hopper card."""
    device, name = _hopper(driver), ctypes.create_string_buffer(_NAME_BYTES)
    if device is None or driver.cuDeviceGetName(name, _NAME_BYTES, device):
        return None
    return name.value.decode().strip()


def _hopper(driver: Any) -> ctypes.c_int | None:
    """Device 0; None if it is not a Hopper card."""
    device = ctypes.c_int()
    if driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(device), 0):
        return None
    return device if _attribute(driver, _MAJOR, device) == _HOPPER else None


def _attribute(driver: Any, attribute: int, device: ctypes.c_int) -> int | None:
    value = ctypes.c_int()
    return None if driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, device) else value.value
