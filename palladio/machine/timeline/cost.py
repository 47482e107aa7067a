"""Durations of the steps of a kernel on a Hopper card, as data. It is a model: nothing here was measured.

The numbers are for a timeline that shows overlap and waiting. They do not model clocks under a power limit, bank
conflicts, cache misses, instruction issue or register pressure; a real card decides about speed.

Every constant carries its unit and its basis: *published* by the vendor or a paper, *derived* from such numbers by the
arithmetic in its source, or an *estimate*, a round number of the right order without a source.
"""

from __future__ import annotations

from dataclasses import field, fields
from typing import Any, Literal

from palladio.base.dataclass import dataclass
from palladio.base.errors import PalladioTypeError
from palladio.types import dtypes
from palladio.types.device import H100_SXM

Basis = Literal["published", "derived", "estimate"]

WHITEPAPER = "NVIDIA H100 Tensor Core GPU Architecture, tables of H100 SXM5"
GUIDE = "CUDA C++ Programming Guide, throughput of native arithmetic instructions, compute capability 9.0"
LUO = "Luo et al., arXiv:2402.13499, on the PCIe card at 1.755 GHz"

# The rate of tensor-core operands relative to 16-bit floats (the whitepaper's table).
TENSOR_CORE_RATES: dict[str, float] = {
    "bf16": 1.0,
    "f16": 1.0,
    "f32": 0.5,  # read as tf32
    "f8e4m3fn": 2.0,
    "f8e5m2": 2.0,
    "i8": 2.0,
    "u8": 2.0,
}


@dataclass(frozen=True, slots=True)
class Constant:
    """A number of the model for readers: `docs` and tests list them."""

    name: str
    value: float
    unit: str
    basis: Basis
    source: str


def _constant(value: float, unit: str, basis: Basis, source: str) -> Any:
    return field(default=value, metadata={"unit": unit, "basis": basis, "source": source})


@dataclass(frozen=True)
class CostModel:
    """An H100 SXM (sm_90). Times are nanoseconds, rates are per nanosecond, so that 1 byte/ns is 1 GB/s.

    Other cards have other values: `CostModel(clock_ghz=1.98, dram_bytes_per_ns=4800)`.
    """

    clock_ghz: float = _constant(1.83, "GHz", "derived", "989.4 TFLOP/s / (132 SMs × 4096 flops a cycle)")
    sms: int = _constant(H100_SXM.multiprocessors, "SMs", "published", WHITEPAPER)
    launch_ns: float = _constant(1000, "ns", "estimate", "from the start of a block to its first instruction")

    tma_issue_ns: float = _constant(20, "ns", "estimate", "one thread hands a descriptor over: some 40 cycles")
    tma_latency_ns: float = _constant(
        450, "ns", "estimate", f"a load that misses takes 479 cycles = 273 ns ({LUO}); descriptor and barrier add to it"
    )
    gmem_latency_ns: float = _constant(273, "ns", "published", f"479 cycles ({LUO})")
    sm_bytes_per_ns: float = _constant(117, "bytes/ns", "derived", "64 bytes a cycle from the L2 cache to one SM")
    l2_bytes_per_ns: float = _constant(
        7500, "bytes/ns", "estimate", "what matmuls without multicast draw: 640 TFLOP/s at 85 flops a byte"
    )
    dram_bytes_per_ns: float = _constant(3350, "bytes/ns", "published", WHITEPAPER)
    smem_bytes_per_ns: float = _constant(234, "bytes/ns", "derived", "128 bytes a cycle: 32 banks of 4 bytes")
    smem_latency_ns: float = _constant(16, "ns", "published", f"29 cycles ({LUO})")
    store_issue_ns: float = _constant(20, "ns", "estimate", "as a TMA load")
    store_read_ns: float = _constant(150, "ns", "estimate", "from the issue of a store to its first byte read")
    store_write_ns: float = _constant(450, "ns", "estimate", "from its last byte read until it is seen: as a TMA load")

    wgmma_issue_ns: float = _constant(9, "ns", "estimate", "fence, descriptors, commit: some 16 cycles")
    wgmma_latency_ns: float = _constant(18, "ns", "estimate", "what the shortest product takes: some 32 cycles")
    wgmma_flops_per_ns: float = _constant(7495, "flops/ns", "derived", "989.4 TFLOP/s / 132 SMs, dense bf16 and f16")

    arrive_ns: float = _constant(16, "ns", "derived", "an atomic in shared memory: its latency")
    wait_ns: float = _constant(16, "ns", "derived", "a try_wait that finds its phase complete: the same")
    wake_ns: float = _constant(20, "ns", "estimate", "from the last arrival until the sleeper resumes")
    cluster_arrive_ns: float = _constant(98, "ns", "derived", f"180 cycles from SM to SM ({LUO}) at 1.83 GHz")
    commit_smem_ns: float = _constant(16, "ns", "estimate", "a fence between the proxies: a shared-memory round trip")

    lanes_per_ns: float = _constant(234, "elements/ns", "published", f"128 results a cycle ({GUIDE})")
    transcendentals_per_ns: float = _constant(29, "elements/ns", "published", f"16 results a cycle ({GUIDE})")
    instruction_ns: float = _constant(2.2, "ns", "estimate", "4 cycles until a dependent instruction may issue")

    def copy_time(self, nbytes: int, *, copying_sms: int = 1, cached: bool = True) -> float:
        """Nanoseconds of a TMA load from issue to the arrival at its barrier.

        `copying_sms` SMs share the card's rate; `cached=False` is data that no other SM has fetched.
        """
        return self.tma_latency_ns + self.transfer_time(nbytes, copying_sms=copying_sms, cached=cached)

    def transfer_time(self, nbytes: int, *, copying_sms: int = 1, cached: bool = True) -> float:
        """Nanoseconds for which a transfer occupies its SM's path; the next one waits for it."""
        card = self.l2_bytes_per_ns if cached else self.dram_bytes_per_ns
        return nbytes / min(self.sm_bytes_per_ns, card / max(1, min(copying_sms, self.sms)))

    def gmem_time(self, nbytes: int, *, accessing_sms: int = 1) -> float:
        """Nanoseconds of an ordinary load, store or atomic in global memory."""
        return self.gmem_latency_ns + self.transfer_time(nbytes, copying_sms=accessing_sms)

    def smem_time(self, nbytes: int) -> float:
        """Nanoseconds of an ordinary load or store in shared memory, without bank conflicts."""
        return self.smem_latency_ns + nbytes / self.smem_bytes_per_ns

    def store_read_time(self, nbytes: int) -> float:
        """Nanoseconds from the issue of a TMA store until its source may be overwritten."""
        return self.store_read_ns + nbytes / self.smem_bytes_per_ns

    def store_time(self, nbytes: int, *, storing_sms: int = 1) -> float:
        """Nanoseconds from the issue of a TMA store until other blocks see it."""
        return self.store_read_ns + self.store_write_ns + self.transfer_time(nbytes, copying_sms=storing_sms)

    def wgmma_time(self, m: int, n: int, k: int, dtype: dtypes.DTypeLike) -> float:
        """Nanoseconds for which `[m, k] × [k, n]` occupies the tensor cores of an SM; its warpgroups take turns.

        Raises:
            PalladioTypeError: the tensor cores have no products of this operand dtype.
        """
        name = dtypes.short_name(dtypes.canonical(dtype))
        if name not in TENSOR_CORE_RATES:
            raise PalladioTypeError(
                "the tensor cores have no products of this dtype",
                argument="dtype",
                expected=", ".join(TENSOR_CORE_RATES),
                got=name,
            )
        busy = 2 * m * n * k / (self.wgmma_flops_per_ns * TENSOR_CORE_RATES[name])
        return max(busy, self.wgmma_latency_ns)

    def elementwise_time(self, elements: int, *, transcendental: bool = False) -> float:
        """Nanoseconds of one element-wise operation of a warpgroup; transcendental functions have a slower unit."""
        rate = self.transcendentals_per_ns if transcendental else self.lanes_per_ns
        return self.instruction_ns + elements / rate

    def constants(self) -> tuple[Constant, ...]:
        """All numbers of the model, with units and sources."""
        return tuple(Constant(item.name, getattr(self, item.name), **item.metadata) for item in fields(self))


H100 = CostModel()
