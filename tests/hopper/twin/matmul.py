"""A matrix product as a GPU engineer writes it by hand: a ring of stages, TMA, wgmma, stmatrix, TMA.

c[m, n] = a[m, k] @ b[k, n] in bfloat16, blocks of 128 by 128, k-blocks of 64. Warpgroups 0 and 1 have 64 rows each,
warpgroup 2 copies. Each block takes every `GRID`-th tile.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

from palladio.hopper.lowered import Lowered
from palladio.hopper.wgmma import Wgmma
from tests.hopper.twin.kernels import array, kernel, output, tensor_map

STAGES, GRID = 3, 2
BF16 = np.dtype(ml_dtypes.bfloat16)

BODY = """
  const u32 base = pal::shared_base();
  const u32 stages = base;                       // 16 KiB of a and 16 KiB of b each
  const u32 staging = base + STAGES * 32768;     // two tiles of 64 by 128, in halves of 64 columns
  const u32 ready = staging + 32768, consumed = ready + 8 * STAGES;
  const int warpgroup = pal::uniform(pal::thread_index() / 128);
  const u32 thread = pal::thread_index() % 128, warp = thread / 32, lane = thread % 32;
  if (pal::uniform(pal::thread_index() / 32) == 0 && pal::elect()) {
    for (int s = 0; s < STAGES; ++s) {
      pal::barrier_init(ready + 8 * s, 1);
      pal::barrier_init(consumed + 8 * s, 2);
    }
    pal::fence_barrier_init();
  }
  pal::sync_block();
  if (warpgroup == 2) {
    pal::registers_decrease<40>();
    if (warp == 0 && pal::elect()) {
      u32 phases = ~0u;
      int s = 0;
      for (int tile = pal::block_index(); tile < TILES; tile += GRID) {
        const int m = tile / COLUMNS * 128, n = tile % COLUMNS * 128;
        for (int k = 0; k < DEPTH; k += 64) {
          pal::wait(consumed + 8 * s, phases >> s & 1);
          phases ^= 1u << s;
          pal::arrive_expect(ready + 8 * s, 32768);
          pal::tma_load(&map_a, stages + s * 32768, ready + 8 * s, k, m);
          pal::tma_load(&map_b, stages + s * 32768 + 16384, ready + 8 * s, n, k);
          pal::tma_load(&map_b, stages + s * 32768 + 24576, ready + 8 * s, n + 64, k);
          s = s + 1 == STAGES ? 0 : s + 1;
        }
      }
    }
  } else {
    pal::registers_increase<232>();
    u32 phases = 0;
    int s = 0;
    for (int tile = pal::block_index(); tile < TILES; tile += GRID) {
      const int m = tile / COLUMNS * 128, n = tile % COLUMNS * 128;
      float acc[64];
      for (int r = 0; r < 64; ++r) acc[r] = 0.0f;
      int before = -1;
      for (int k = 0; k < DEPTH; k += 64) {
        pal::wait(ready + 8 * s, phases >> s & 1);
        phases ^= 1u << s;
        const u64 left = pal::descriptor(stages + s * 32768 + warpgroup * 8192, 16, 1024, 1);
        const u64 right = pal::descriptor(stages + s * 32768 + 16384, 8192, 1024, 1);
        pal::wgmma_fence();
        for (int step = 0; step < 4; ++step)
          pal::wgmma_m64n128k16_f32_bf16_bf16<0, 1>(acc, left + 2 * step, right + 128 * step, 1);
        pal::wgmma_commit();
        pal::wgmma_wait<1>();
        if (before >= 0) {
          pal::sync_warp();
          if (thread == 0) pal::arrive(consumed + 8 * before);
        }
        before = s;
        s = s + 1 == STAGES ? 0 : s + 1;
      }
      pal::wgmma_wait<0>();
      if (thread == 0) pal::arrive(consumed + 8 * before);
      const bool leader = warp == 0 && pal::elect();
      if (leader) pal::bulk_wait_read<0>();
      pal::sync_named(1 + warpgroup, 128);
      for (int j = 0; j < 8; ++j) {
        const u32 row = 16 * warp + lane % 16, column = 2 * j % 8 + lane / 16;
        const u32 to = staging + warpgroup * 16384 + j / 4 * 8192 + row * 128 + (column ^ row % 8) * 16;
        pal::stmatrix4(to, pal::pack_bf16(acc[8 * j], acc[8 * j + 1]), pal::pack_bf16(acc[8 * j + 2], acc[8 * j + 3]),
                       pal::pack_bf16(acc[8 * j + 4], acc[8 * j + 5]), pal::pack_bf16(acc[8 * j + 6], acc[8 * j + 7]));
      }
      pal::fence_async();
      pal::sync_named(1 + warpgroup, 128);
      if (leader) {
        pal::tma_store(&map_c, staging + warpgroup * 16384, n, m + 64 * warpgroup);
        pal::tma_store(&map_c, staging + warpgroup * 16384 + 8192, n + 64, m + 64 * warpgroup);
        pal::bulk_commit();
      }
    }
    if (warp == 0 && pal::elect()) pal::bulk_wait<0>();
  }
"""


def matmul(m: int, k: int, n: int) -> Lowered:
    tiles, columns = -(-m // 128) * -(-n // 128), -(-n // 128)
    constants = {"TILES": tiles, "COLUMNS": columns, "DEPTH": k, "STAGES": STAGES, "GRID": GRID}
    return kernel(
        BODY,
        [
            array("a", BF16, m, k),
            array("b", BF16, k, n),
            output("c", BF16, m, n),
            tensor_map("map_a", 0, BF16, (m, k), (128, 64), swizzle=128),
            tensor_map("map_b", 1, BF16, (k, n), (64, 64), swizzle=128),
            tensor_map("map_c", 2, BF16, (m, n), (64, 64), swizzle=128),
        ],
        threads=384,
        shared=STAGES * 32768 + 32768 + 16 * STAGES,
        grid=GRID,
        products=[Wgmma(128, "f32", "bf16", "bf16")],
        before="\n".join(f"constexpr int {name} = {value};" for name, value in constants.items()),
    )


def operands(m: int, k: int, n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    a, b = generator.standard_normal((m, k)), generator.standard_normal((k, n))
    return a.astype(BF16), b.astype(BF16)


def error(c: np.ndarray, a: np.ndarray, b: np.ndarray) -> float:
    """Relative error against float64, in the norm of the whole."""
    want = a.astype(np.float64) @ b.astype(np.float64)
    return float(np.linalg.norm(c.astype(np.float64) - want) / np.linalg.norm(want))
