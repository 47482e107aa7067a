"""The hand-written kernels of these tests are CUDA: the same text compiles for sm_90a against the device's header."""

from __future__ import annotations

import dataclasses

import pytest

from palladio.hopper.compile import compiled
from palladio.hopper.lowered import Lowered
from tests.hopper.twin import test_atomics, test_barriers, test_copies, test_memory, test_products, test_warps
from tests.hopper.twin.matmul import matmul

KERNELS = {
    "matmul": matmul(256, 320, 256),
    "products": test_products.PRODUCT,
    "phases": test_barriers.PHASES,
    "named": test_barriers.NAMED,
    "agreed": test_barriers.AGREED,
    "ring": test_barriers.RING,
    "registers": test_barriers.REGISTERS,
    "load": test_copies.load_kernel("f4", (8, 8), (8, 8)),
    "reduction": test_copies.reduction("ADD", "f4"),
    "multicast": test_copies.MULTICAST,
    "groups": test_copies.GROUPS,
    "exchanges": test_warps.EXCHANGES,
    "numbers": test_warps.NUMBERS,
    "counted": test_warps.COUNTED,
    "bytes": test_warps.BYTES,
    "matrices": test_warps.MATRICES,
    "loads": test_warps.LOADS,
    "widths": test_memory.WIDTHS,
    "atomics": test_atomics.atomics("i4"),
    "queue": test_atomics.QUEUE,
    "swap": test_atomics.SWAP,
    "far": test_atomics.FAR,
    **{f"cluster of {name}": each for name, each in test_atomics.WIDTHS.items()},
    "powers": test_warps.POWERS,
    "odd": test_warps.ODD,
    "small": test_atomics.SMALL,
}


CONSTANTS = """#include "palladio.cuh"
PAL_KERNEL void PAL_BOUNDS(32) constants(const u32x4* a, const u32x2* b, const u16* c, const i64* d, u32x4* out) {
  const u32x4 x = pal::load_constant(a);
  const u32x2 y = pal::load_constant(b);
  out[0] = {x.x, y.y, pal::load_constant(c), (u32)pal::load_constant(d)};
}
"""


def test_constants_of_every_width_are_loaded() -> None:
    lowered = dataclasses.replace(KERNELS["widths"], name="constants", text=CONSTANTS, products=())
    assert compiled(lowered).code.startswith(b"\x7fELF")


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS.keys())
def test_the_text_compiles_for_the_device(kernel: Lowered) -> None:
    cubin = compiled(kernel)
    assert cubin.code.startswith(b"\x7fELF")
    assert "warning" not in cubin.log.lower()
