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
//    99344  turns: 2 barriers of 4
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
    for (int step = 0; step < 2; ++step) pal::barrier_init(smem + 99344 + 8 * step, 4);
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
    u32 turns_phases = 0;
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
    }
    float weighted[1][64];
    PAL_UNROLL for (int r = 0; r < 64; ++r) weighted[r / 64][r % 64] = 0;
    pal::keep(weighted[0]);
    float acc[1][64];
    pal::wait(smem + 65552, keys_filled_phases & 1);
    keys_filled_phases ^= 0x1;
    const u64 left_2 = pal::descriptor(smem + 66560 + warpgroup * 16384, 16, 1024, 1);
    const u64 right_2 = pal::descriptor(smem, 16, 1024, 1);
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
    pal::wgmma_wait<0>();
    pal::keep(weighted[0]);
    pal::keep(acc[0]);
    pal::sync_warp();
    if (lane == 0) pal::arrive(smem + 65536);
    float part[64];
    PAL_UNROLL for (int r = 0; r < 64; ++r) part[r] = acc[0][r];
    float v_2[64];
    PAL_UNROLL for (int r = 0; r < 64; ++r) v_2[r] = ((((int)(r % 2 + r / 4 * 8 + thread % 4 * 2)) < 2048) ? part[r] : (-PAL_INFINITY));
    float folded[2];
    PAL_UNROLL for (int r = 0; r < 2; ++r) folded[r] = -PAL_INFINITY;
    PAL_UNROLL for (int r = 0; r < 64; ++r) folded[r / 2 % 2] = pal::maximum(folded[r / 2 % 2], v_2[r]);
    PAL_UNROLL for (int r = 0; r < 2; ++r) { const float other = pal::shuffle_xor(folded[r], 1); folded[r] = pal::maximum(folded[r], other); }
    PAL_UNROLL for (int r = 0; r < 2; ++r) { const float other = pal::shuffle_xor(folded[r], 2); folded[r] = pal::maximum(folded[r], other); }
    float v_3[2];
    PAL_UNROLL for (int r = 0; r < 2; ++r) v_3[r] = pal::maximum((-PAL_INFINITY), folded[r]);
    float v_4[2];
    PAL_UNROLL for (int r = 0; r < 2; ++r) v_4[r] = (-PAL_INFINITY) - v_3[r];
    float v_5[2];
    PAL_UNROLL for (int r = 0; r < 2; ++r) v_5[r] = v_4[r] * 0.12751743f;
    float v_6[2];
    PAL_UNROLL for (int r = 0; r < 2; ++r) v_6[r] = pal::approximate_exp2(v_5[r]);
    float v_7[64];
    PAL_UNROLL for (int r = 0; r < 64; ++r) v_7[r] = v_2[r] * 0.12751743f;
    float v_8[2];
    PAL_UNROLL for (int r = 0; r < 2; ++r) v_8[r] = v_3[r] * 0.12751743f;
    float spread[64];
    PAL_UNROLL for (int r = 0; r < 64; ++r) spread[r] = v_8[r / 2 % 2];
    float v_9[64];
    PAL_UNROLL for (int r = 0; r < 64; ++r) v_9[r] = v_7[r] - spread[r];
    float v_10[64];
    PAL_UNROLL for (int r = 0; r < 64; ++r) v_10[r] = pal::approximate_exp2(v_9[r]);
    float v_11[2];
    PAL_UNROLL for (int r = 0; r < 2; ++r) v_11[r] = 0.0f * v_6[r];
    float folded_2[2];
    PAL_UNROLL for (int r = 0; r < 2; ++r) folded_2[r] = 0.0f;
    PAL_UNROLL for (int r = 0; r < 64; ++r) folded_2[r / 2 % 2] = folded_2[r / 2 % 2] + v_10[r];
    PAL_UNROLL for (int r = 0; r < 2; ++r) { const float other = pal::shuffle_xor(folded_2[r], 1); folded_2[r] = folded_2[r] + other; }
    PAL_UNROLL for (int r = 0; r < 2; ++r) { const float other = pal::shuffle_xor(folded_2[r], 2); folded_2[r] = folded_2[r] + other; }
    float v_12[2];
    PAL_UNROLL for (int r = 0; r < 2; ++r) v_12[r] = v_11[r] + folded_2[r];
    float v_13[64];
    PAL_UNROLL for (int r = 0; r < 64; ++r) v_13[r] = v_10[r];
    pal::wait(smem + 99344 + warpgroup * 8, turns_phases >> warpgroup & 1);
    turns_phases ^= 1u << warpgroup;
    u32 carry_packed[32];
    PAL_UNROLL for (int r = 0; r < 32; ++r) carry_packed[r] = pal::pack_bf16(v_13[2 * r], v_13[2 * r + 1]);
    pal::keep(carry_packed);
    float carry[2];
    PAL_UNROLL for (int r = 0; r < 2; ++r) carry[r] = v_3[r];
    float carry_2[2];
    PAL_UNROLL for (int r = 0; r < 2; ++r) carry_2[r] = v_12[r];
    PAL_ROLLED
    for (int step_3 = 1; step_3 < 16; ++step_3) {
      [[maybe_unused]] float carry_3[64];
      PAL_UNROLL for (int r = 0; r < 64; ++r) carry_3[r] = pal::float_bf16((u16)(carry_packed[r / 2] >> 16 * (r % 2)));
      float acc_2[1][64];
      const u32 i_4 = (u32)step_3;
      const u32 i_5 = i_4 % 2u;
      const int i_6 = (int)i_5;
      pal::wait(smem + 65552 + i_6 * 8, keys_filled_phases >> i_6 & 1);
      keys_filled_phases ^= 1u << i_6;
      const int i_7 = step_3 - 1;
      const u32 i_8 = (u32)i_7;
      const u32 i_9 = i_8 % 2u;
      const int i_10 = (int)i_9;
      pal::wait(smem + 165904 + i_10 * 8, values_filled_phases >> i_10 & 1);
      values_filled_phases ^= 1u << i_10;
      const u64 left_3 = pal::descriptor(smem + 66560 + warpgroup * 16384, 16, 1024, 1);
      const u64 right_3 = pal::descriptor(smem + i_6 * 32768, 16, 1024, 1);
      pal::wgmma_fence();
      pal::wgmma_m64n128k16_f32_bf16_bf16<0, 0>(acc_2[0], left_3, right_3, 0);
      pal::wgmma_m64n128k16_f32_bf16_bf16<0, 0>(acc_2[0], left_3 + 2, right_3 + 2, 1);
      pal::wgmma_m64n128k16_f32_bf16_bf16<0, 0>(acc_2[0], left_3 + 4, right_3 + 4, 1);
      pal::wgmma_m64n128k16_f32_bf16_bf16<0, 0>(acc_2[0], left_3 + 6, right_3 + 6, 1);
      pal::wgmma_m64n128k16_f32_bf16_bf16<0, 0>(acc_2[0], left_3 + 512, right_3 + 1024, 1);
      pal::wgmma_m64n128k16_f32_bf16_bf16<0, 0>(acc_2[0], left_3 + 514, right_3 + 1026, 1);
      pal::wgmma_m64n128k16_f32_bf16_bf16<0, 0>(acc_2[0], left_3 + 516, right_3 + 1028, 1);
      pal::wgmma_m64n128k16_f32_bf16_bf16<0, 0>(acc_2[0], left_3 + 518, right_3 + 1030, 1);
      pal::wgmma_commit();
      const u64 right_4 = pal::descriptor(smem + 100352 + i_10 * 32768, 16384, 1024, 1);
      pal::wgmma_fence();
      pal::wgmma_m64n128k16_f32_bf16_bf16_registers<1>(weighted[0], carry_packed[0], carry_packed[1], carry_packed[2], carry_packed[3], right_4, 1);
      pal::wgmma_m64n128k16_f32_bf16_bf16_registers<1>(weighted[0], carry_packed[4], carry_packed[5], carry_packed[6], carry_packed[7], right_4 + 128, 1);
      pal::wgmma_m64n128k16_f32_bf16_bf16_registers<1>(weighted[0], carry_packed[8], carry_packed[9], carry_packed[10], carry_packed[11], right_4 + 256, 1);
      pal::wgmma_m64n128k16_f32_bf16_bf16_registers<1>(weighted[0], carry_packed[12], carry_packed[13], carry_packed[14], carry_packed[15], right_4 + 384, 1);
      pal::wgmma_m64n128k16_f32_bf16_bf16_registers<1>(weighted[0], carry_packed[16], carry_packed[17], carry_packed[18], carry_packed[19], right_4 + 512, 1);
      pal::wgmma_m64n128k16_f32_bf16_bf16_registers<1>(weighted[0], carry_packed[20], carry_packed[21], carry_packed[22], carry_packed[23], right_4 + 640, 1);
      pal::wgmma_m64n128k16_f32_bf16_bf16_registers<1>(weighted[0], carry_packed[24], carry_packed[25], carry_packed[26], carry_packed[27], right_4 + 768, 1);
      pal::wgmma_m64n128k16_f32_bf16_bf16_registers<1>(weighted[0], carry_packed[28], carry_packed[29], carry_packed[30], carry_packed[31], right_4 + 896, 1);
      pal::wgmma_commit();
      const int i_11 = 1 - warpgroup;
      pal::sync_warp();
      if (lane == 0) pal::arrive(smem + 99344 + i_11 * 8);
      pal::wgmma_wait<1>();
      pal::keep(acc_2[0]);
      float part_2[64];
      PAL_UNROLL for (int r = 0; r < 64; ++r) part_2[r] = acc_2[0][r];
      pal::sync_warp();
      if (lane == 0) pal::arrive(smem + 65536 + i_6 * 8);
      float folded_3[2];
      PAL_UNROLL for (int r = 0; r < 2; ++r) folded_3[r] = -PAL_INFINITY;
      PAL_UNROLL for (int r = 0; r < 64; ++r) folded_3[r / 2 % 2] = pal::maximum(folded_3[r / 2 % 2], part_2[r]);
      PAL_UNROLL for (int r = 0; r < 2; ++r) { const float other = pal::shuffle_xor(folded_3[r], 1); folded_3[r] = pal::maximum(folded_3[r], other); }
      PAL_UNROLL for (int r = 0; r < 2; ++r) { const float other = pal::shuffle_xor(folded_3[r], 2); folded_3[r] = pal::maximum(folded_3[r], other); }
      float v_14[2];
      PAL_UNROLL for (int r = 0; r < 2; ++r) v_14[r] = pal::maximum(carry[r], folded_3[r]);
      float v_15[2];
      PAL_UNROLL for (int r = 0; r < 2; ++r) v_15[r] = carry[r] - v_14[r];
      float v_16[2];
      PAL_UNROLL for (int r = 0; r < 2; ++r) v_16[r] = v_15[r] * 0.12751743f;
      float v_17[2];
      PAL_UNROLL for (int r = 0; r < 2; ++r) v_17[r] = pal::approximate_exp2(v_16[r]);
      float v_18[64];
      PAL_UNROLL for (int r = 0; r < 64; ++r) v_18[r] = part_2[r] * 0.12751743f;
      float v_19[2];
      PAL_UNROLL for (int r = 0; r < 2; ++r) v_19[r] = v_14[r] * 0.12751743f;
      float spread_2[64];
      PAL_UNROLL for (int r = 0; r < 64; ++r) spread_2[r] = v_19[r / 2 % 2];
      float v_20[64];
      PAL_UNROLL for (int r = 0; r < 64; ++r) v_20[r] = v_18[r] - spread_2[r];
      float v_21[64];
      PAL_UNROLL for (int r = 0; r < 64; ++r) v_21[r] = pal::approximate_exp2(v_20[r]);
      float v_22[2];
      PAL_UNROLL for (int r = 0; r < 2; ++r) v_22[r] = carry_2[r] * v_17[r];
      float folded_4[2];
      PAL_UNROLL for (int r = 0; r < 2; ++r) folded_4[r] = 0.0f;
      PAL_UNROLL for (int r = 0; r < 64; ++r) folded_4[r / 2 % 2] = folded_4[r / 2 % 2] + v_21[r];
      PAL_UNROLL for (int r = 0; r < 2; ++r) { const float other = pal::shuffle_xor(folded_4[r], 1); folded_4[r] = folded_4[r] + other; }
      PAL_UNROLL for (int r = 0; r < 2; ++r) { const float other = pal::shuffle_xor(folded_4[r], 2); folded_4[r] = folded_4[r] + other; }
      float v_23[2];
      PAL_UNROLL for (int r = 0; r < 2; ++r) v_23[r] = v_22[r] + folded_4[r];
      float v_24[64];
      PAL_UNROLL for (int r = 0; r < 64; ++r) v_24[r] = v_21[r];
      pal::wait(smem + 99344 + warpgroup * 8, turns_phases >> warpgroup & 1);
      turns_phases ^= 1u << warpgroup;
      pal::wgmma_wait<0>();
      pal::keep(weighted[0]);
      const int i_12 = step_3 - 1;
      const u32 i_13 = (u32)i_12;
      const u32 i_14 = i_13 % 2u;
      const int i_15 = (int)i_14;
      pal::sync_warp();
      if (lane == 0) pal::arrive(smem + 165888 + i_15 * 8);
      float part_3[64];
      PAL_UNROLL for (int r = 0; r < 64; ++r) part_3[r] = weighted[0][r];
      float spread_3[64];
      PAL_UNROLL for (int r = 0; r < 64; ++r) spread_3[r] = v_17[r / 2 % 2];
      float v_25[64];
      PAL_UNROLL for (int r = 0; r < 64; ++r) v_25[r] = part_3[r] * spread_3[r];
      PAL_UNROLL for (int r = 0; r < 64; ++r) weighted[r / 64][r % 64] = v_25[r];
      pal::keep(weighted[0]);
      PAL_UNROLL for (int r = 0; r < 32; ++r) carry_packed[r] = pal::pack_bf16(v_24[2 * r], v_24[2 * r + 1]);
      pal::keep(carry_packed);
      PAL_UNROLL for (int r = 0; r < 2; ++r) carry[r] = v_14[r];
      PAL_UNROLL for (int r = 0; r < 2; ++r) carry_2[r] = v_23[r];
    }
    [[maybe_unused]] float carry_4[64];
    PAL_UNROLL for (int r = 0; r < 64; ++r) carry_4[r] = pal::float_bf16((u16)(carry_packed[r / 2] >> 16 * (r % 2)));
    pal::wait(smem + 165904 + 8, values_filled_phases >> 1 & 1);
    values_filled_phases ^= 0x2;
    const u64 right_5 = pal::descriptor(smem + 100352 + 32768, 16384, 1024, 1);
    pal::wgmma_fence();
    pal::wgmma_m64n128k16_f32_bf16_bf16_registers<1>(weighted[0], carry_packed[0], carry_packed[1], carry_packed[2], carry_packed[3], right_5, 1);
    pal::wgmma_m64n128k16_f32_bf16_bf16_registers<1>(weighted[0], carry_packed[4], carry_packed[5], carry_packed[6], carry_packed[7], right_5 + 128, 1);
    pal::wgmma_m64n128k16_f32_bf16_bf16_registers<1>(weighted[0], carry_packed[8], carry_packed[9], carry_packed[10], carry_packed[11], right_5 + 256, 1);
    pal::wgmma_m64n128k16_f32_bf16_bf16_registers<1>(weighted[0], carry_packed[12], carry_packed[13], carry_packed[14], carry_packed[15], right_5 + 384, 1);
    pal::wgmma_m64n128k16_f32_bf16_bf16_registers<1>(weighted[0], carry_packed[16], carry_packed[17], carry_packed[18], carry_packed[19], right_5 + 512, 1);
    pal::wgmma_m64n128k16_f32_bf16_bf16_registers<1>(weighted[0], carry_packed[20], carry_packed[21], carry_packed[22], carry_packed[23], right_5 + 640, 1);
    pal::wgmma_m64n128k16_f32_bf16_bf16_registers<1>(weighted[0], carry_packed[24], carry_packed[25], carry_packed[26], carry_packed[27], right_5 + 768, 1);
    pal::wgmma_m64n128k16_f32_bf16_bf16_registers<1>(weighted[0], carry_packed[28], carry_packed[29], carry_packed[30], carry_packed[31], right_5 + 896, 1);
    pal::wgmma_commit();
    const int i_16 = 1 - warpgroup;
    pal::sync_warp();
    if (lane == 0) pal::arrive(smem + 99344 + i_16 * 8);
    pal::wgmma_wait<0>();
    pal::keep(weighted[0]);
    pal::sync_warp();
    if (lane == 0) pal::arrive(smem + 165888 + 8);
    float part_4[64];
    PAL_UNROLL for (int r = 0; r < 64; ++r) part_4[r] = weighted[0][r];
    float v_26[2];
    PAL_UNROLL for (int r = 0; r < 2; ++r) v_26[r] = 1.0f / carry_2[r];
    float spread_4[64];
    PAL_UNROLL for (int r = 0; r < 64; ++r) spread_4[r] = v_26[r / 2 % 2];
    float v_27[64];
    PAL_UNROLL for (int r = 0; r < 64; ++r) v_27[r] = part_4[r] * spread_4[r];
    float v_28[64];
    PAL_UNROLL for (int r = 0; r < 64; ++r) v_28[r] = v_27[r];
    pal::sync_named(1 + warpgroup, 128);
    PAL_UNROLL for (int r = 0; r < 64; r += 8) {
      const u32 at = smem + 66560 + warpgroup * 16384 + (warp * 16 + lane % 16) * 128 + (((r / 8 * 16 + lane / 16 * 8)) / 64) * 8192 + (((r / 8 * 16 + lane / 16 * 8)) % 64) * 2;
      pal::stmatrix4((at ^ (at >> 3 & 0x70)), pal::pack_bf16(v_28[r], v_28[r + 1]), pal::pack_bf16(v_28[r + 2], v_28[r + 3]), pal::pack_bf16(v_28[r + 4], v_28[r + 5]), pal::pack_bf16(v_28[r + 6], v_28[r + 7]));
    }
    pal::fence_async();
    pal::sync_named(1 + warpgroup, 128);
    if (warp == 0 && pal::elect()) {
      pal::tma_store(&out_boxes, smem + 66560 + warpgroup * 16384, 0, i_3, head);
      pal::tma_store(&out_boxes, smem + 66560 + warpgroup * 16384 + 8192, 64, i_3, head);
      pal::bulk_commit();
    }
    PAL_ROLLED
    for (int step_4 = warpgroup; step_4 < 1; ++step_4) {
      pal::wait(smem + 99344, turns_phases & 1);
      turns_phases ^= 0x1;
    }
    if (warp == 0 && pal::elect()) {
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
      for (int step_2 = 0; step_2 < 17; ++step_2) {
        const bool is = step_2 < 16;
        if (is) {
          const int i_3 = step_2 * 128;
          const u32 i_4 = (u32)step_2;
          const u32 i_5 = i_4 % 2u;
          const int i_6 = (int)i_5;
          const bool is_2 = step_2 >= 2;
          if (is_2) {
            pal::wait(smem + 65536 + i_6 * 8, keys_drained_phases >> i_6 & 1);
            keys_drained_phases ^= 1u << i_6;
          }
          if (pal::elect()) {
            pal::arrive_expect(smem + 65552 + i_6 * 8, 32768);
            pal::tma_load(&k_boxes, smem + i_6 * 32768, smem + 65552 + i_6 * 8, 0, i_3, head);
            pal::tma_load(&k_boxes, smem + i_6 * 32768 + 16384, smem + 65552 + i_6 * 8, 64, i_3, head);
          }
        }
        const bool is_3 = step_2 > 0;
        if (is_3) {
          const int i_7 = step_2 - 1;
          const int i_8 = i_7 * 128;
          const u32 i_9 = (u32)i_7;
          const u32 i_10 = i_9 % 2u;
          const int i_11 = (int)i_10;
          const bool is_4 = i_7 >= 2;
          if (is_4) {
            pal::wait(smem + 165888 + i_11 * 8, values_drained_phases >> i_11 & 1);
            values_drained_phases ^= 1u << i_11;
          }
          if (pal::elect()) {
            pal::arrive_expect(smem + 165904 + i_11 * 8, 32768);
            pal::tma_load(&v_boxes, smem + 100352 + i_11 * 32768, smem + 165904 + i_11 * 8, 0, i_8, head);
            pal::tma_load(&v_boxes, smem + 100352 + i_11 * 32768 + 16384, smem + 165904 + i_11 * 8, 64, i_8, head);
          }
        }
      }
      PAL_ROLLED
      for (int step_3 = 14; step_3 < 16; ++step_3) {
        const u32 i_12 = (u32)step_3;
        const u32 i_13 = i_12 % 2u;
        const int i_14 = (int)i_13;
        pal::wait(smem + 65536 + i_14 * 8, keys_drained_phases >> i_14 & 1);
        keys_drained_phases ^= 1u << i_14;
      }
      PAL_ROLLED
      for (int step_4 = 14; step_4 < 16; ++step_4) {
        const u32 i_15 = (u32)step_4;
        const u32 i_16 = i_15 % 2u;
        const int i_17 = (int)i_16;
        pal::wait(smem + 165888 + i_17 * 8, values_drained_phases >> i_17 & 1);
        values_drained_phases ^= 1u << i_17;
      }
    }
  }
}
