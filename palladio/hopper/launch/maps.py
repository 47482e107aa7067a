"""Tensor maps on the device: the arguments of the driver's `cuTensorMapEncodeTiled` for boxes of an array."""

from __future__ import annotations

import ctypes

from palladio.base.errors import InternalError
from palladio.hopper.launch.driver import Driver
from palladio.hopper.lowered import MapSpec
from palladio.types import dtypes

MAP_BYTES, MAP_ALIGNMENT = 128, 64

_TYPES = {
    **dict.fromkeys(("bool", "u8", "i8", "f8e4m3fn", "f8e5m2"), "UINT8"),  # copies do not interpret values
    **dict.fromkeys(("u16", "i16"), "UINT16"),
    "i32": "INT32",
    "u32": "UINT32",
    "i64": "INT64",
    "u64": "UINT64",
    "f16": "FLOAT16",
    "bf16": "BFLOAT16",
    "f32": "FLOAT32",
    "f64": "FLOAT64",
}
_SWIZZLES = {0: "NONE", 32: "32B", 64: "64B", 128: "128B"}
_PROMOTIONS = {0: "NONE", 64: "L2_64B", 128: "L2_128B", 256: "L2_256B"}
_FILLS = {"zeros": "NONE", "nan": "NAN_REQUEST_ZERO_FMA"}


def encode(driver: Driver, spec: MapSpec, address: int, place: int) -> None:
    """Write the tensor map of an array. A context must be current.

    Args:
        address: the address of the array, a multiple of 16.
        place: the address of the map's 128 bytes, a multiple of 64.

    Raises:
        InternalError: the driver refuses the map.
    """
    api = driver.api
    rank = spec.rank
    status = driver.encode(
        place,
        getattr(api.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{_TYPES[dtypes.short_name(spec.dtype)]}"),
        rank,
        address,
        (ctypes.c_uint64 * rank)(*reversed(spec.dims)),
        (ctypes.c_uint64 * rank)(*reversed(spec.strides)),
        (ctypes.c_uint32 * rank)(*reversed(spec.box)),
        (ctypes.c_uint32 * rank)(*[1] * rank),
        api.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        getattr(api.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{_SWIZZLES[spec.swizzle]}"),
        getattr(api.CUtensorMapL2promotion, f"CU_TENSOR_MAP_L2_PROMOTION_{_PROMOTIONS[spec.promotion]}"),
        getattr(api.CUtensorMapFloatOOBfill, f"CU_TENSOR_MAP_FLOAT_OOB_FILL_{_FILLS[spec.fill]}"),
    )
    if status:
        name, _ = driver.words(status)
        raise InternalError(f"the driver refuses a tensor map with {name}: {spec} at {address:#x}")
