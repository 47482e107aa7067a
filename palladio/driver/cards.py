"""The GPU of this machine, as the CUDA driver describes it."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

from palladio.types.device import H100_SXM

LIBRARY = "libcuda.so.1"
_MULTIPROCESSORS, _MAJOR = 16, 75
"""Attributes of a device (CUDA driver API, `CUdevice_attribute`): multiprocessors, major compute capability."""

_HOPPER = 9


@cache
def multiprocessors() -> int:
    """The number of multiprocessors of this machine's first GPU if it is a Hopper card, else that of an H100 SXM.

    Persistent kernels have this number of blocks by default. No context is created.
    """
    try:
        driver = ctypes.CDLL(LIBRARY)
    except OSError:
        return H100_SXM.multiprocessors
    return queried_multiprocessors(driver) or H100_SXM.multiprocessors


def queried_multiprocessors(driver: Any) -> int | None:
    """The number of multiprocessors of device 0 according to the driver; None without a Hopper card."""
    device = ctypes.c_int()
    if driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(device), 0):
        return None
    found = []
    for attribute in (_MAJOR, _MULTIPROCESSORS):
        value = ctypes.c_int()
        if driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, device):
            return None
        found.append(value.value)
    major, count = found
    return count if major == _HOPPER else None
