// grid 128, cluster 1, 384 threads, 165920 bytes shared
// q_boxes: MapSpec(array=0, dtype=dtype(bfloat16), dims=(8, 2048, 128), strides=(524288, 256), box=(1, 64, 64), swizzle=128, fill='zeros', promotion=128)
// k_boxes: MapSpec(array=1, dtype=dtype(bfloat16), dims=(8, 2048, 128), strides=(524288, 256), box=(1, 128, 64), swizzle=128, fill='zeros', promotion=128)
// v_boxes: MapSpec(array=2, dtype=dtype(bfloat16), dims=(8, 2048, 128), strides=(524288, 256), box=(1, 128, 64), swizzle=128, fill='zeros', promotion=128)
// out_boxes: MapSpec(array=3, dtype=dtype(bfloat16), dims=(8, 2048, 128), strides=(524288, 256), box=(1, 64, 64), swizzle=128, fill='zeros', promotion=128)
#include "palladio.cuh"

// 165920 bytes of shared memory:
//        0  keys: 2x128x128 of 2 bytes, swizzled by 128
//    65536  keys_drained: 2 barriers of 8
//    65552  keys_filled: 2 barriers of 1
//    66560  queries: 2x64x128 of 2 bytes, swizzled by 128
//    99328  queries_filled: 2 barriers of 1
//    99344  turn: 1 barriers of 8
//   100352  values: 2x128x128 of 2 bytes, swizzled by 128
//   165888  values_drained: 2 barriers of 8
//   165904  values_filled: 2 barriers of 1
PAL_KERNEL void PAL_BOUNDS(384) attention_kernel(
    PAL_MAP q_boxes,
    PAL_MAP k_boxes,
    PAL_MAP v_boxes,
    PAL_MAP out_boxes) {
  const u32 smem = pal::shared_base();
  const int warpgroup = pal::uniform((int)pal::thread_index() / 128);
  const int thread = (int)pal::thread_index() % 128;
  const int warp = pal::uniform(thread / 32);
  const int lane = thread % 32;
  if (pal::thread_index() == 0) {
    for (int step = 0; step < 2; ++step) pal::barrier_init(smem + 65536 + 8 * step, 8);
    for (int step = 0; step < 2; ++step) pal::barrier_init(smem + 65552 + 8 * step, 1);
    for (int step = 0; step < 2; ++step) pal::barrier_init(smem + 99328 + 8 * step, 1);
    pal::barrier_init(smem + 99344, 8);
    for (int step = 0; step < 2; ++step) pal::barrier_init(smem + 165888 + 8 * step, 8);
    for (int step = 0; step < 2; ++step) pal::barrier_init(smem + 165904 + 8 * step, 1);
    pal::fence_barrier_init();
  }
  pal::sync_block();
  if (warpgroup < 2) {
    pal::registers_increase<232>();
    const int head = pal::block_index() / 16;
    const int block = pal::block_index() % 16;
    u32 keys_filled_phases = 0;
    u32 queries_filled_phases = 0;
    u32 turn_phases = 0;
    u32 values_filled_phases = 0;
    const int i = block * 128;
    const int i_2 = warpgroup * 64;
    const int i_3 = i + i_2;
    pal::wait(smem + 99328 + warpgroup * 8, queries_filled_phases >> warpgroup & 1);
    queries_filled_phases ^= 1u << warpgroup;
    PAL_ROLLED
    for (int step_2 = 0; step_2 < warpgroup; ++step_2) {
      pal::sync_warp();
      if (lane == 0) pal::arrive(smem + 99344);
      pal::wait(smem + 99344, turn_phases & 1);
      turn_phases ^= 0x1;
    }
    float weighted[1][64];
    PAL_UNROLL for (int r = 0; r < 64; ++r) weighted[r / 64][r % 64] = 0;
    pal::keep(weighted[0]);
    float carry[2];
    PAL_UNROLL for (int r = 0; r < 2; ++r) carry[r] = -PAL_INFINITY;
    float carry_2[2];
    PAL_UNROLL for (int r = 0; r < 2; ++r) carry_2[r] = 0.0f;
    PAL_ROLLED
    for (int step_3 = 0; step_3 < 16; ++step_3) {
      float acc[1][64];
      const u32 i_4 = (u32)step_3;
      const u32 i_5 = i_4 % 2u;
      const int i_6 = (int)i_5;
      pal::wait(smem + 65552 + i_6 * 8, keys_filled_phases >> i_6 & 1);
      keys_filled_phases ^= 1u << i_6;
      const u64 left_2 = pal::descriptor(smem + 66560 + warpgroup * 16384, 16, 1024, 1);
      const u64 right_2 = pal::descriptor(smem + i_6 * 32768, 16, 1024, 1);
      pal::wgmma_fence();
      pal::wgmma_m64n128k16_f32_bf16_bf16<0, 0>(acc[0], left_2, right_2, 0);
      pal::wgmma_m64n128k16_f32_bf16_bf16<0, 0>(acc[0], left_2 + 2, right_2 + 2, 1);
      pal::wgmma_m64n128k16_f32_bf16_bf16<0, 0>(acc[0], left_2 + 4, right_2 + 4, 1);
      pal::wgmma_m64n128k16_f32_bf16_bf16<0, 0>(acc[0], left_2 + 6, right_2 + 6, 1);
      pal::wgmma_m64n128k16_f32_bf16_bf16<0, 0>(acc[0], left_2 + 512, right_2 + 1024, 1);
      pal::wgmma_m64n128k16_f32_bf16_bf16<0, 0>(acc[0], left_2 + 514, right_2 + 1026, 1);
      pal::wgmma_m64n128k16_f32_bf16_bf16<0, 0>(acc[0], left_2 + 516, right_2 + 1028, 1);
      pal::wgmma_m64n128k16_f32_bf16_bf16<0, 0>(acc[0], left_2 + 518, right_2 + 1030, 1);
      pal::wgmma_commit();
      pal::sync_warp();
      if (lane == 0) pal::arrive(smem + 99344);
      pal::wait(smem + 99344, turn_phases & 1);
      turn_phases ^= 0x1;
      pal::wgmma_wait<0>();
      pal::keep(weighted[0]);
      pal::keep(acc[0]);
      pal::sync_warp();
      if (lane == 0) pal::arrive(smem + 65536 + i_6 * 8);
      float part[64];
      PAL_UNROLL for (int r = 0; r < 64; ++r) part[r] = acc[0][r];
      float folded[2];
      PAL_UNROLL for (int r = 0; r < 2; ++r) folded[r] = -PAL_INFINITY;
      PAL_UNROLL for (int r = 0; r < 64; ++r) folded[r / 2 % 2] = pal::maximum(folded[r / 2 % 2], part[r]);
      PAL_UNROLL for (int r = 0; r < 2; ++r) { const float other = pal::shuffle_xor(folded[r], 1); folded[r] = pal::maximum(folded[r], other); }
      PAL_UNROLL for (int r = 0; r < 2; ++r) { const float other = pal::shuffle_xor(folded[r], 2); folded[r] = pal::maximum(folded[r], other); }
      float v_2[2];
      PAL_UNROLL for (int r = 0; r < 2; ++r) v_2[r] = pal::maximum(carry[r], folded[r]);
      float v_3[2];
      PAL_UNROLL for (int r = 0; r < 2; ++r) v_3[r] = carry[r] - v_2[r];
      float v_4[2];
      PAL_UNROLL for (int r = 0; r < 2; ++r) v_4[r] = v_3[r] * 0.12751743f;
      float v_5[2];
      PAL_UNROLL for (int r = 0; r < 2; ++r) v_5[r] = pal::approximate_exp2(v_4[r]);
      float v_6[64];
      PAL_UNROLL for (int r = 0; r < 64; ++r) v_6[r] = part[r] * 0.12751743f;
      float v_7[2];
      PAL_UNROLL for (int r = 0; r < 2; ++r) v_7[r] = v_2[r] * 0.12751743f;
      float spread[64];
      PAL_UNROLL for (int r = 0; r < 64; ++r) spread[r] = v_7[r / 2 % 2];
      float v_8[64];
      PAL_UNROLL for (int r = 0; r < 64; ++r) v_8[r] = v_6[r] - spread[r];
      float v_9[64];
      PAL_UNROLL for (int r = 0; r < 64; ++r) v_9[r] = pal::approximate_exp2(v_8[r]);
      float v_10[2];
      PAL_UNROLL for (int r = 0; r < 2; ++r) v_10[r] = carry_2[r] * v_5[r];
      float folded_2[2];
      PAL_UNROLL for (int r = 0; r < 2; ++r) folded_2[r] = 0.0f;
      PAL_UNROLL for (int r = 0; r < 64; ++r) folded_2[r / 2 % 2] = folded_2[r / 2 % 2] + v_9[r];
      PAL_UNROLL for (int r = 0; r < 2; ++r) { const float other = pal::shuffle_xor(folded_2[r], 1); folded_2[r] = folded_2[r] + other; }
      PAL_UNROLL for (int r = 0; r < 2; ++r) { const float other = pal::shuffle_xor(folded_2[r], 2); folded_2[r] = folded_2[r] + other; }
      float v_11[2];
      PAL_UNROLL for (int r = 0; r < 2; ++r) v_11[r] = v_10[r] + folded_2[r];
      float part_2[64];
      PAL_UNROLL for (int r = 0; r < 64; ++r) part_2[r] = weighted[0][r];
      float spread_2[64];
      PAL_UNROLL for (int r = 0; r < 64; ++r) spread_2[r] = v_5[r / 2 % 2];
      float v_12[64];
      PAL_UNROLL for (int r = 0; r < 64; ++r) v_12[r] = part_2[r] * spread_2[r];
      PAL_UNROLL for (int r = 0; r < 64; ++r) weighted[r / 64][r % 64] = v_12[r];
      pal::keep(weighted[0]);
      float v_13[64];
      PAL_UNROLL for (int r = 0; r < 64; ++r) v_13[r] = v_9[r];
      const u32 i_7 = (u32)step_3;
      const u32 i_8 = i_7 % 2u;
      const int i_9 = (int)i_8;
      pal::wait(smem + 165904 + i_9 * 8, values_filled_phases >> i_9 & 1);
      values_filled_phases ^= 1u << i_9;
      pal::sync_warp();
      if (lane == 0) pal::arrive(smem + 99344);
      pal::wait(smem + 99344, turn_phases & 1);
      turn_phases ^= 0x1;
      u32 v_13_packed[32];
      PAL_UNROLL for (int r = 0; r < 32; ++r) v_13_packed[r] = pal::pack_bf16(v_13[2 * r], v_13[2 * r + 1]);
      pal::keep(v_13_packed);
      const u64 right_3 = pal::descriptor(smem + 100352 + i_9 * 32768, 16384, 1024, 1);
      pal::wgmma_fence();
      pal::wgmma_m64n128k16_f32_bf16_bf16_registers<1>(weighted[0], v_13_packed[0], v_13_packed[1], v_13_packed[2], v_13_packed[3], right_3, 1);
      pal::wgmma_m64n128k16_f32_bf16_bf16_registers<1>(weighted[0], v_13_packed[4], v_13_packed[5], v_13_packed[6], v_13_packed[7], right_3 + 128, 1);
      pal::wgmma_m64n128k16_f32_bf16_bf16_registers<1>(weighted[0], v_13_packed[8], v_13_packed[9], v_13_packed[10], v_13_packed[11], right_3 + 256, 1);
      pal::wgmma_m64n128k16_f32_bf16_bf16_registers<1>(weighted[0], v_13_packed[12], v_13_packed[13], v_13_packed[14], v_13_packed[15], right_3 + 384, 1);
      pal::wgmma_m64n128k16_f32_bf16_bf16_registers<1>(weighted[0], v_13_packed[16], v_13_packed[17], v_13_packed[18], v_13_packed[19], right_3 + 512, 1);
      pal::wgmma_m64n128k16_f32_bf16_bf16_registers<1>(weighted[0], v_13_packed[20], v_13_packed[21], v_13_packed[22], v_13_packed[23], right_3 + 640, 1);
      pal::wgmma_m64n128k16_f32_bf16_bf16_registers<1>(weighted[0], v_13_packed[24], v_13_packed[25], v_13_packed[26], v_13_packed[27], right_3 + 768, 1);
      pal::wgmma_m64n128k16_f32_bf16_bf16_registers<1>(weighted[0], v_13_packed[28], v_13_packed[29], v_13_packed[30], v_13_packed[31], right_3 + 896, 1);
      pal::wgmma_commit();
      pal::wgmma_wait<0>();
      pal::keep(weighted[0]);
      pal::sync_warp();
      if (lane == 0) pal::arrive(smem + 165888 + i_9 * 8);
      PAL_UNROLL for (int r = 0; r < 2; ++r) carry[r] = v_2[r];
      PAL_UNROLL for (int r = 0; r < 2; ++r) carry_2[r] = v_11[r];
    }
    pal::wgmma_wait<0>();
    pal::keep(weighted[0]);
    float part_3[64];
    PAL_UNROLL for (int r = 0; r < 64; ++r) part_3[r] = weighted[0][r];
    float v_14[2];
    PAL_UNROLL for (int r = 0; r < 2; ++r) v_14[r] = 1.0f / carry_2[r];
    float spread_3[64];
    PAL_UNROLL for (int r = 0; r < 64; ++r) spread_3[r] = v_14[r / 2 % 2];
    float v_15[64];
    PAL_UNROLL for (int r = 0; r < 64; ++r) v_15[r] = part_3[r] * spread_3[r];
    PAL_ROLLED
    for (int step_4 = warpgroup; step_4 < 1; ++step_4) {
      pal::sync_warp();
      if (lane == 0) pal::arrive(smem + 99344);
      pal::wait(smem + 99344, turn_phases & 1);
      turn_phases ^= 0x1;
    }
    float v_16[64];
    PAL_UNROLL for (int r = 0; r < 64; ++r) v_16[r] = v_15[r];
    pal::sync_named(1 + warpgroup, 128);
    PAL_UNROLL for (int r = 0; r < 64; r += 8) {
      const u32 at = smem + 66560 + warpgroup * 16384 + (warp * 16 + lane % 16) * 128 + (((r / 8 * 16 + lane / 16 * 8)) / 64) * 8192 + (((r / 8 * 16 + lane / 16 * 8)) % 64) * 2;
      pal::stmatrix4((at ^ (at >> 3 & 0x70)), pal::pack_bf16(v_16[r], v_16[r + 1]), pal::pack_bf16(v_16[r + 2], v_16[r + 3]), pal::pack_bf16(v_16[r + 4], v_16[r + 5]), pal::pack_bf16(v_16[r + 6], v_16[r + 7]));
    }
    pal::fence_async();
    pal::sync_named(1 + warpgroup, 128);
    if (warp == 0 && pal::elect()) {
      pal::tma_store(&out_boxes, smem + 66560 + warpgroup * 16384, 0, i_3, head);
      pal::tma_store(&out_boxes, smem + 66560 + warpgroup * 16384 + 8192, 64, i_3, head);
      pal::bulk_commit();
      pal::bulk_wait<0>();
    }
    pal::sync_named(1 + warpgroup, 128);
  } else {
    pal::registers_decrease<40>();
    if (warp == 0) {
      const int head = pal::block_index() / 16;
      const int block = pal::block_index() % 16;
      u32 keys_drained_phases = 0;
      u32 values_drained_phases = 0;
      const int i = block * 128;
      const int i_2 = i + 64;
      if (pal::elect()) {
        pal::arrive_expect(smem + 99328, 16384);
        pal::tma_load(&q_boxes, smem + 66560, smem + 99328, 0, i, head);
        pal::tma_load(&q_boxes, smem + 66560 + 8192, smem + 99328, 64, i, head);
        pal::arrive_expect(smem + 99328 + 8, 16384);
        pal::tma_load(&q_boxes, smem + 66560 + 16384, smem + 99328 + 8, 0, i_2, head);
        pal::tma_load(&q_boxes, smem + 66560 + 24576, smem + 99328 + 8, 64, i_2, head);
      }
      PAL_ROLLED
      for (int step_2 = 0; step_2 < 16; ++step_2) {
        const int i_3 = step_2 * 128;
        const u32 i_4 = (u32)step_2;
        const u32 i_5 = i_4 % 2u;
        const int i_6 = (int)i_5;
        const bool is = step_2 >= 2;
        if (is) {
          pal::wait(smem + 65536 + i_6 * 8, keys_drained_phases >> i_6 & 1);
          keys_drained_phases ^= 1u << i_6;
        }
        if (pal::elect()) {
          pal::arrive_expect(smem + 65552 + i_6 * 8, 32768);
          pal::tma_load(&k_boxes, smem + i_6 * 32768, smem + 65552 + i_6 * 8, 0, i_3, head);
          pal::tma_load(&k_boxes, smem + i_6 * 32768 + 16384, smem + 65552 + i_6 * 8, 64, i_3, head);
        }
        if (is) {
          pal::wait(smem + 165888 + i_6 * 8, values_drained_phases >> i_6 & 1);
          values_drained_phases ^= 1u << i_6;
        }
        if (pal::elect()) {
          pal::arrive_expect(smem + 165904 + i_6 * 8, 32768);
          pal::tma_load(&v_boxes, smem + 100352 + i_6 * 32768, smem + 165904 + i_6 * 8, 0, i_3, head);
          pal::tma_load(&v_boxes, smem + 100352 + i_6 * 32768 + 16384, smem + 165904 + i_6 * 8, 64, i_3, head);
        }
      }
      PAL_ROLLED
      for (int step_3 = 14; step_3 < 16; ++step_3) {
        const u32 i_7 = (u32)step_3;
        const u32 i_8 = i_7 % 2u;
        const int i_9 = (int)i_8;
        pal::wait(smem + 65536 + i_9 * 8, keys_drained_phases >> i_9 & 1);
        keys_drained_phases ^= 1u << i_9;
      }
      PAL_ROLLED
      for (int step_4 = 14; step_4 < 16; ++step_4) {
        const u32 i_10 = (u32)step_4;
        const u32 i_11 = i_10 % 2u;
        const int i_12 = (int)i_11;
        pal::wait(smem + 165888 + i_12 * 8, values_drained_phases >> i_12 & 1);
        values_drained_phases ^= 1u << i_12;
      }
    }
  }
}
