"""The generations of TPUs: cores, memories and rates of each, as `get_tpu_info_for_chip` gives them.

The numbers are those of JAX's `tpu_info.py`. No result depends on one unless a kernel uses it.
"""

from __future__ import annotations

from enum import Enum

from palladio.base.dataclass import dataclass
from palladio.base.errors import PalladioTypeError, PalladioValueError, at_call
from palladio.call.tpu.info import SparseCoreInfo, TpuInfo


class ChipVersion(Enum):
    """A version of the TPU chip."""

    TPU_V2 = "v2"
    TPU_V3 = "v3"
    TPU_V4I = "v4i"
    TPU_V4 = "v4"
    TPU_V5E = "v5e"
    TPU_V5P = "v5p"
    TPU_V6E = "v6e"
    TPU_7 = "7"
    TPU_7X = "7x"
    TPU_8I = "8i"

    def __str__(self) -> str:
        return self.value

    @property
    def device_kind(self) -> str:
        """The `device_kind` of such a device in JAX."""
        known = {"v4i": "v4 lite", "v5e": "v5 lite", "v6e": "v6 lite", "v5p": "v5"}
        return f"TPU {known.get(self.value, self.value)}" if self.value.startswith("v") else f"TPU{self.value}"

    @property
    def num_physical_tensor_cores_per_chip(self) -> int:
        """One or two."""
        return 1 if self.is_lite else 2

    @property
    def supports_megacore(self) -> bool:
        """True if both cores of a chip can be one device."""
        return self in (ChipVersion.TPU_V4, ChipVersion.TPU_V5P)

    @property
    def is_lite(self) -> bool:
        """True for a chip with one tensor core."""
        return self in (ChipVersion.TPU_V4I, ChipVersion.TPU_V5E, ChipVersion.TPU_V6E)


@dataclass(frozen=True)
class _Chip:
    """A chip: memories of a core in KiB, of the chip in bytes; rates of the chip, per second."""

    mxus: int
    vmem: int
    hbm: float
    bandwidth: float
    bf16: float
    int8: float = 0
    fp8: float = 0
    int4: float = 0
    smem: int = 1024
    cmem: float = 0
    accumulators: int = 0
    sparse_core: SparseCoreInfo | None = None


def _sparse(cores: int, subcores: int, lanes: int, vmem: int, granule: int) -> SparseCoreInfo:
    return SparseCoreInfo(
        num_cores=cores,
        num_subcores=subcores,
        num_lanes=lanes,
        vmem_capacity_bytes=vmem * 1024,
        dma_granule_size_bytes=granule,
    )


_IRONWOOD = _Chip(
    2, 65536, 206e9, 7.40e12, 2.31e15, fp8=4.60e15, accumulators=128, sparse_core=_sparse(2, 16, 16, 512, 32)
)
_CHIPS = {
    ChipVersion.TPU_V2: _Chip(1, 16384, 16e9, 7.16e11, 4.6e13, smem=16),
    ChipVersion.TPU_V3: _Chip(2, 16384, 34.4e9, 8.25e11, 1.40e14, smem=16),
    ChipVersion.TPU_V4I: _Chip(4, 16384, 8.59e9, 6.14e11, 1.37e14, cmem=134e6),
    ChipVersion.TPU_V4: _Chip(4, 16384, 34.4e9, 1.23e12, 2.75e14, cmem=134e6),
    ChipVersion.TPU_V5E: _Chip(4, 131072, 17.2e9, 8.20e11, 1.97e14, int8=3.94e14, int4=7.88e14),
    ChipVersion.TPU_V5P: _Chip(
        4, 65536, 103e9, 2.46e12, 4.59e14, int8=9.18e14, int4=1.84e15, sparse_core=_sparse(4, 16, 8, 512, 32)
    ),
    ChipVersion.TPU_V6E: _Chip(
        2, 131072, 34.4e9, 1.64e12, 9.20e14, 1.84e15, 9.20e14, 3.68e15, sparse_core=_sparse(2, 16, 8, 256, 32)
    ),
    ChipVersion.TPU_7: _IRONWOOD,
    ChipVersion.TPU_7X: _IRONWOOD,
    ChipVersion.TPU_8I: _Chip(
        2, 196608, 309e9, 8.60e12, 1.101e15, fp8=8.808e15, accumulators=256, sparse_core=_sparse(1, 4, 16, 512, 64)
    ),
}


def get_tpu_info_for_chip(chip_version: ChipVersion, num_tensor_cores_per_logical_device: int) -> TpuInfo:
    """The description of a chip, for `described_tpu`.

    Args:
        num_tensor_cores_per_logical_device: 1, or 2 of a chip whose two cores can be one device.

    Raises:
        PalladioTypeError: not a `ChipVersion`.
        PalladioValueError: another number of cores.
    """
    cores = num_tensor_cores_per_logical_device
    with at_call():
        if not isinstance(chip_version, ChipVersion):
            raise PalladioTypeError(
                "a chip is one of the enumeration",
                argument="chip_version",
                expected="pltpu.ChipVersion.TPU_V5P",
                got=repr(chip_version),
            )
        if cores not in ((1, 2) if chip_version.supports_megacore else (1,)):
            raise PalladioValueError(
                "a device has one core of its chip, or both where the chip can join them",
                argument="num_tensor_cores_per_logical_device",
                expected="1 or 2" if chip_version.supports_megacore else "1",
                got=repr(cores),
                jax="Lite chips and dual-core chips that do not support Megacore",
            )
    chip, share = _CHIPS[chip_version], chip_version.num_physical_tensor_cores_per_chip
    generation = int(chip_version.value.lstrip("v")[0])
    return TpuInfo(
        chip_version=chip_version,
        generation=generation,
        num_cores=cores,
        mxu_column_size=128 if generation < 6 else 256,
        num_mxus=chip.mxus,
        num_accumulators=chip.accumulators,
        vmem_capacity_bytes=chip.vmem * 1024,
        cmem_capacity_bytes=int(chip.cmem // share),
        smem_capacity_bytes=chip.smem * 1024,
        hbm_capacity_bytes=int(chip.hbm // share),
        mem_bw_bytes_per_second=int(chip.bandwidth // share),
        bf16_ops_per_second=int(chip.bf16 // share),
        int8_ops_per_second=int(chip.int8 // share),
        fp8_ops_per_second=int(chip.fp8 // share),
        int4_ops_per_second=int(chip.int4 // share),
        sparse_core=chip.sparse_core,
    )
