"""The description of the TPU that kernels see: no TPU is present, so the caller describes one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from palladio.array.on_card import Conditions
from palladio.base.calls import checked_call
from palladio.base.dataclass import dataclass
from palladio.base.errors import PalladioTypeError, PalladioValueError, at_call
from palladio.types import dtypes


@checked_call
@dataclass(frozen=True, kw_only=True)
class SparseCoreInfo:
    """Sparse cores of a described TPU.

    Args:
        num_cores: of a chip.
        num_subcores: vector sub-cores of each.
        num_lanes: 32-bit elements of a vector register.
        vmem_capacity_bytes, dma_granule_size_bytes: the memory of a sub-core, and the smallest copy.
    """

    num_cores: int = 2
    num_subcores: int = 16
    num_lanes: int = 16
    vmem_capacity_bytes: int = 512 * 1024
    dma_granule_size_bytes: int = 64


@checked_call
@dataclass(frozen=True, kw_only=True)
class TpuInfo:
    """A described TPU. The caller chooses every number; results depend on one only if a kernel uses it, or shares its
    grid among the cores.

    Args:
        chip_version, generation: its name or its `ChipVersion`, and the number in it.
        num_cores: tensor cores.
        num_lanes, num_sublanes: 32-bit elements of a vector register along its two axes.
        mxu_column_size, num_mxus, num_accumulators: the matrix units of a core.
        vmem_capacity_bytes, cmem_capacity_bytes, smem_capacity_bytes, hbm_capacity_bytes: memories of a core.
        mem_bw_bytes_per_second, bf16_ops_per_second, int8_ops_per_second, fp8_ops_per_second, int4_ops_per_second: 0
            where they are not described.
        sparse_core: its sparse cores; None for a chip without.
    """

    chip_version: Any = "described"
    generation: int = 5
    num_cores: int = 1
    num_lanes: int = 128
    num_sublanes: int = 8
    mxu_column_size: int = 128
    num_mxus: int = 4
    num_accumulators: int = 0
    vmem_capacity_bytes: int = 128 * 1024 * 1024
    cmem_capacity_bytes: int = 0
    smem_capacity_bytes: int = 1024 * 1024
    hbm_capacity_bytes: int = 0
    mem_bw_bytes_per_second: int = 0
    bf16_ops_per_second: int = 0
    int8_ops_per_second: int = 0
    fp8_ops_per_second: int = 0
    int4_ops_per_second: int = 0
    sparse_core: SparseCoreInfo | None = None

    @property
    def is_lite(self) -> bool:
        """True for a known chip with one tensor core."""
        return getattr(self.chip_version, "is_lite", False)

    @property
    def is_megacore(self) -> bool:
        """True if several tensor cores are one device."""
        return self.num_cores > 1

    @property
    def is_split_chip(self) -> bool:
        """True if each of a known chip's cores is a device."""
        return self.num_cores == 1 and getattr(self.chip_version, "num_physical_tensor_cores_per_chip", 1) > 1

    def is_matmul_supported(self, lhs_dtype: Any, rhs_dtype: Any) -> bool:
        """True if the matrix units multiply elements of these dtypes, on a TPU of this generation."""
        pair = dtypes.canonical(lhs_dtype).name, dtypes.canonical(rhs_dtype).name
        return any(pair[0] in left and pair[1] in right for left, right in _MULTIPLIED.get(self.generation, ()))


_FLOATS = ("float32", "bfloat16")
_NARROW = ("float8_e5m2", "float8_e4m3b11fnuz")
_FIFTH = (
    ((*_FLOATS, *_NARROW), (*_FLOATS, *_NARROW)),
    (("uint8", "int8"), ("uint8", "int8")),
    (("uint4", "int4"), ("uint4", "int4")),
)
_SEVENTH = (
    (_FLOATS, _FLOATS),
    ((*_FLOATS, "float8_e5m2", "float8_e4m3fn"), ("float8_e5m2", "float8_e4m3fn")),
)
_MULTIPLIED: dict[int, tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]] = {
    2: ((("float32",), ("float32",)),),
    3: ((("float32",), ("float32",)),),
    4: ((_FLOATS, (*_FLOATS, "int8")),),
    5: _FIFTH,
    6: _FIFTH,
    7: _SEVENTH,
    8: _SEVENTH,
}
"""Dtypes of the operands that the matrix units of a generation take, as in JAX's `tpu_info.py`."""

_described: ContextVar[TpuInfo | None] = ContextVar("palladio_tpu", default=None)


@contextmanager
def described_tpu(info: TpuInfo) -> Iterator[TpuInfo]:
    """`get_tpu_info()` inside the block gives this description.

    If it has several cores, they share the parallel axes of grid kernels that start copies, as far as these are the
    first axes: each core has its own blocks, prefetched scalars and scratch. Which steps along them share a core, and
    in which order, is undefined: what a core keeps is for the steps along the other axes. Devices of `shard_map`
    have one core each.

    Raises:
        PalladioTypeError: not a `TpuInfo`.
    """
    with at_call():
        if not isinstance(info, TpuInfo):
            raise PalladioTypeError(
                "a TPU is described by its record", argument="info", expected="pltpu.TpuInfo(...)", got=repr(info)
            )
    token = _described.set(info)
    try:
        yield info
    finally:
        _described.reset(token)


UNDESCRIBED = Conditions(chosen=((_described, None),))
"""The conditions in which no TPU is described."""


def described() -> TpuInfo | None:
    """The described TPU, if there is one."""
    return _described.get()


def described_cores() -> int:
    """The tensor cores of the described TPU; one where none is described."""
    info = _described.get()
    return 1 if info is None else info.num_cores


def described_sparse_cores() -> tuple[int, int]:
    """The sparse cores of the described TPU and the sub-cores of each; one of 16 where none is described."""
    info = _described.get()
    if info is None or info.sparse_core is None:
        return 1, 16
    return info.sparse_core.num_cores, info.sparse_core.num_subcores


def get_tpu_info() -> TpuInfo:
    """The TPU that `described_tpu` describes.

    Raises:
        PalladioValueError: outside of such a block.
    """
    found = _described.get()
    if found is None:
        with at_call():
            raise PalladioValueError(
                "there is no TPU here, and none is described",
                hint="with pltpu.described_tpu(pltpu.TpuInfo(num_cores=2)): ...",
            )
    return found


def get_sparse_core_info() -> SparseCoreInfo:
    """The sparse cores of the TPU that `described_tpu` describes.

    Raises:
        PalladioValueError: outside of such a block, or for a TPU without them.
    """
    with at_call():
        found = get_tpu_info().sparse_core
        if found is None:
            raise PalladioValueError(
                "the TPU that is described has no sparse cores",
                hint="pltpu.TpuInfo(sparse_core=pltpu.SparseCoreInfo())",
            )
        return found


def is_tpu_device() -> bool:
    """True inside `described_tpu`: no executor of Palladio runs on a TPU."""
    return _described.get() is not None
