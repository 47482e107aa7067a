"""The description of the TPU that kernels see: no TPU is present, so the caller describes one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from palladio.base.calls import checked_call
from palladio.base.errors import PalladioTypeError, PalladioValueError, at_call


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
    """A described TPU. The caller chooses every number; results depend on one only if a kernel uses it.

    Args:
        chip_version, generation: its name, and the number in it.
        num_cores: tensor cores.
        num_lanes, num_sublanes: 32-bit elements of a vector register along its two axes.
        mxu_column_size, num_mxus, num_accumulators: the matrix units of a core.
        vmem_capacity_bytes, cmem_capacity_bytes, smem_capacity_bytes, hbm_capacity_bytes: memories of a core.
        mem_bw_bytes_per_second, bf16_ops_per_second, int8_ops_per_second, fp8_ops_per_second, int4_ops_per_second: 0
            where they are not described.
        sparse_core: its sparse cores; None for a chip without.
    """

    chip_version: str = "described"
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


_described: ContextVar[TpuInfo | None] = ContextVar("palladio_tpu", default=None)


@contextmanager
def described_tpu(info: TpuInfo) -> Iterator[TpuInfo]:
    """`get_tpu_info()` inside the block gives this description.

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
    """False: no executor of Palladio runs on a TPU."""
    return False
