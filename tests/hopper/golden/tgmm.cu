// grid 132, cluster 2, 384 threads, 231424 bytes shared
// lhs_boxes: MapSpec(array=1, dtype=dtype(bfloat16), dims=(2048, 4096), strides=(8192,), box=(128, 64), swizzle=128, fill='zeros', promotion=128)
// rhs_boxes: MapSpec(array=2, dtype=dtype(bfloat16), dims=(4096, 2048), strides=(4096,), box=(32, 64), swizzle=128, fill='zeros', promotion=128)
// out_boxes: MapSpec(array=3, dtype=dtype(bfloat16), dims=(8, 2048, 2048), strides=(8388608, 4096), box=(1, 64, 64), swizzle=128, fill='zeros', promotion=128)
#include "palladio.cuh"

// 231424 bytes of shared memory:
//        0  cleared: 1 barriers of 8
//     1024  operands_0: 4x128x64 of 2 bytes, swizzled by 128
//    66560  operands_1: 4x64x256 of 2 bytes, swizzled by 128
//   197632  operands_drained: 4 barriers of 16
//   197664  operands_filled: 4 barriers of 2
//   198656  staging: 2x2x64x64 of 2 bytes, swizzled by 128
PAL_KERNEL void PAL_BOUNDS(384) PAL_CLUSTER(2) tgmm_kernel(
    PAL_MAP lhs_boxes,
    PAL_MAP rhs_boxes,
    PAL_MAP out_boxes,
    const int* sizes) {
  const u32 smem = pal::shared_base();
  const int warpgroup = pal::uniform((int)pal::thread_index() / 128);
  const int thread = (int)pal::thread_index() % 128;
  const int warp = pal::uniform(thread / 32);
  const int lane = thread % 32;
  if (pal::thread_index() == 0) {
    pal::barrier_init(smem + 0, 8);
    for (int step = 0; step < 4; ++step) pal::barrier_init(smem + 197632 + 8 * step, 16);
    for (int step = 0; step < 4; ++step) pal::barrier_init(smem + 197664 + 8 * step, 2);
    pal::fence_barrier_init();
  }
  pal::sync_cluster();
  if (warpgroup == 0) {
    pal::registers_increase<224>();
    const int block = pal::cluster_index();
    const int peer = pal::cluster_rank();
    u32 cleared_phases = 0;
    u32 operands_filled_phases = 0;
    int loaded[1];
    PAL_UNROLL for (int r = 0; r < 1; ++r) loaded[r] = thread % 32 < 8 ? pal::load_constant(sizes + (i64)((thread % 32))) : (-2147483647 - 1);
    const bool is = block < 50;
    const int i = 7 + is;
    int carry = 0;
    PAL_ROLLED
    for (int local_tile = 0; local_tile < i; ++local_tile) {
      const int i_2 = local_tile * 66;
      const int i_3 = i_2 + block;
      const int i_4 = i_3 % 64;
      const int i_5 = i_3 / 64;
      const int i_6 = i_5 % 8;
      const int i_7 = i_4 % 64;
      const int i_8 = i_7 / 8;
      const int i_9 = i_7 % 8;
      const int i_10 = i_9 * 2;
      const int i_11 = i_10 + peer;
      int v[1];
      PAL_UNROLL for (int r = 0; r < 1; ++r) v[r] = ((((int)(thread % 32)) == i_6) ? loaded[r] : 0);
      int folded[1];
      PAL_UNROLL for (int r = 0; r < 1; ++r) folded[r] = 0;
      PAL_UNROLL for (int r = 0; r < 1; ++r) folded[0] = (int)((u32)folded[0] + (u32)(thread % 32 < 8 ? v[r] : 0));
      PAL_UNROLL for (int r = 0; r < 1; ++r) folded[r] = pal::warp_sum(folded[r]);
      int v_2[1];
      PAL_UNROLL for (int r = 0; r < 1; ++r) v_2[r] = ((((int)(thread % 32)) < i_6) ? loaded[r] : 0);
      int folded_2[1];
      PAL_UNROLL for (int r = 0; r < 1; ++r) folded_2[r] = 0;
      PAL_UNROLL for (int r = 0; r < 1; ++r) folded_2[0] = (int)((u32)folded_2[0] + (u32)(thread % 32 < 8 ? v_2[r] : 0));
      PAL_UNROLL for (int r = 0; r < 1; ++r) folded_2[r] = pal::warp_sum(folded_2[r]);
      const int i_12 = folded_2[0] % 8;
      const bool is_2 = folded[0] > 0;
      const int i_13 = (int)((u32)folded[0] + (u32)i_12);
      const int i_14 = (is_2 ? i_13 : 0);
      const int i_15 = i_11 * 128;
      const int i_16 = i_8 * 256;
      const int i_17 = (int)((u32)i_14 + (u32)63);
      const int i_18 = i_17 / 64;
      {
        float acc[1][128];
        PAL_UNROLL for (int r = 0; r < 128; ++r) acc[r / 128][r % 128] = 0;
        pal::keep(acc[0]);
        PAL_ROLLED
        for (int step_2 = 0; step_2 < i_18; ++step_2) {
          const int i_19 = (int)((u32)carry + (u32)step_2);
          const u32 i_20 = (u32)i_19;
          const u32 i_21 = i_20 % 4u;
          const int i_22 = (int)i_21;
          pal::wait(smem + 197664 + i_22 * 8, operands_filled_phases >> i_22 & 1);
          operands_filled_phases ^= 1u << i_22;
          const int i_23 = step_2 * 64;
          const int i_24 = i_12 - i_23;
          const int i_25 = (int)((u32)i_14 - (u32)i_23);
          const bool is_3 = i_24 > 0;
          const bool is_4 = i_25 < 64;
          const bool is_5 = is_3 | is_4;
          if (is_5) {
            const bool is_6 = i_24 > 0;
            const bool is_7 = i_25 < 16;
            const bool is_8 = is_6 | is_7;
            if (is_8) {
              pal::sync_named(1, 128);
              float loaded_2[16];
              PAL_UNROLL for (int r = 0; r < 16; r += 4) {
                const u32 at = smem + 1024 + i_22 * 16384 + (r / 4 * 32 + thread / 4) * 128 + (r % 4 + thread % 4 * 4) * 2;
                const u32x2 bits = pal::load_shared<u32x2>((at ^ (at >> 3 & 0x70)));
                loaded_2[r + 0] = pal::float_bf16((u16)(bits.x));
                loaded_2[r + 1] = pal::float_bf16((u16)(bits.x >> 16));
                loaded_2[r + 2] = pal::float_bf16((u16)(bits.y));
                loaded_2[r + 3] = pal::float_bf16((u16)(bits.y >> 16));
              }
              float v_3[16];
              PAL_UNROLL for (int r = 0; r < 16; ++r) v_3[r] = (((((int)(r % 4 + thread % 4 * 4)) >= i_24) & (((int)(r % 4 + thread % 4 * 4)) < i_25)) ? loaded_2[r] : 0.0f);
              pal::sync_named(1, 128);
              PAL_UNROLL for (int r = 0; r < 16; r += 4) {
                const u32 at = smem + 1024 + i_22 * 16384 + (r / 4 * 32 + thread / 4) * 128 + (r % 4 + thread % 4 * 4) * 2;
                pal::store_shared<u32x2>((at ^ (at >> 3 & 0x70)), u32x2{pal::pack_bf16(v_3[r], v_3[r + 1]), pal::pack_bf16(v_3[r + 2], v_3[r + 3])});
              }
            }
            const bool is_9 = i_25 < 32;
            if (is_9) {
              pal::sync_named(1, 128);
              float loaded_3[16];
              PAL_UNROLL for (int r = 0; r < 16; r += 4) {
                const u32 at = smem + 1024 + i_22 * 16384 + (r / 4 * 32 + thread / 4) * 128 + ((r % 4 + thread % 4 * 4) + 16) * 2;
                const u32x2 bits = pal::load_shared<u32x2>((at ^ (at >> 3 & 0x70)));
                loaded_3[r + 0] = pal::float_bf16((u16)(bits.x));
                loaded_3[r + 1] = pal::float_bf16((u16)(bits.x >> 16));
                loaded_3[r + 2] = pal::float_bf16((u16)(bits.y));
                loaded_3[r + 3] = pal::float_bf16((u16)(bits.y >> 16));
              }
              float v_4[16];
              PAL_UNROLL for (int r = 0; r < 16; ++r) v_4[r] = ((((16 + ((int)(r % 4 + thread % 4 * 4))) >= i_24) & ((16 + ((int)(r % 4 + thread % 4 * 4))) < i_25)) ? loaded_3[r] : 0.0f);
              pal::sync_named(1, 128);
              PAL_UNROLL for (int r = 0; r < 16; r += 4) {
                const u32 at = smem + 1024 + i_22 * 16384 + (r / 4 * 32 + thread / 4) * 128 + ((r % 4 + thread % 4 * 4) + 16) * 2;
                pal::store_shared<u32x2>((at ^ (at >> 3 & 0x70)), u32x2{pal::pack_bf16(v_4[r], v_4[r + 1]), pal::pack_bf16(v_4[r + 2], v_4[r + 3])});
              }
            }
            const bool is_10 = i_25 < 48;
            if (is_10) {
              pal::sync_named(1, 128);
              float loaded_4[16];
              PAL_UNROLL for (int r = 0; r < 16; r += 4) {
                const u32 at = smem + 1024 + i_22 * 16384 + (r / 4 * 32 + thread / 4) * 128 + ((r % 4 + thread % 4 * 4) + 32) * 2;
                const u32x2 bits = pal::load_shared<u32x2>((at ^ (at >> 3 & 0x70)));
                loaded_4[r + 0] = pal::float_bf16((u16)(bits.x));
                loaded_4[r + 1] = pal::float_bf16((u16)(bits.x >> 16));
                loaded_4[r + 2] = pal::float_bf16((u16)(bits.y));
                loaded_4[r + 3] = pal::float_bf16((u16)(bits.y >> 16));
              }
              float v_5[16];
              PAL_UNROLL for (int r = 0; r < 16; ++r) v_5[r] = ((((32 + ((int)(r % 4 + thread % 4 * 4))) >= i_24) & ((32 + ((int)(r % 4 + thread % 4 * 4))) < i_25)) ? loaded_4[r] : 0.0f);
              pal::sync_named(1, 128);
              PAL_UNROLL for (int r = 0; r < 16; r += 4) {
                const u32 at = smem + 1024 + i_22 * 16384 + (r / 4 * 32 + thread / 4) * 128 + ((r % 4 + thread % 4 * 4) + 32) * 2;
                pal::store_shared<u32x2>((at ^ (at >> 3 & 0x70)), u32x2{pal::pack_bf16(v_5[r], v_5[r + 1]), pal::pack_bf16(v_5[r + 2], v_5[r + 3])});
              }
            }
            const bool is_11 = i_25 < 64;
            if (is_11) {
              pal::sync_named(1, 128);
              float loaded_5[16];
              PAL_UNROLL for (int r = 0; r < 16; r += 4) {
                const u32 at = smem + 1024 + i_22 * 16384 + (r / 4 * 32 + thread / 4) * 128 + ((r % 4 + thread % 4 * 4) + 48) * 2;
                const u32x2 bits = pal::load_shared<u32x2>((at ^ (at >> 3 & 0x70)));
                loaded_5[r + 0] = pal::float_bf16((u16)(bits.x));
                loaded_5[r + 1] = pal::float_bf16((u16)(bits.x >> 16));
                loaded_5[r + 2] = pal::float_bf16((u16)(bits.y));
                loaded_5[r + 3] = pal::float_bf16((u16)(bits.y >> 16));
              }
              float v_6[16];
              PAL_UNROLL for (int r = 0; r < 16; ++r) v_6[r] = ((((48 + ((int)(r % 4 + thread % 4 * 4))) >= i_24) & ((48 + ((int)(r % 4 + thread % 4 * 4))) < i_25)) ? loaded_5[r] : 0.0f);
              pal::sync_named(1, 128);
              PAL_UNROLL for (int r = 0; r < 16; r += 4) {
                const u32 at = smem + 1024 + i_22 * 16384 + (r / 4 * 32 + thread / 4) * 128 + ((r % 4 + thread % 4 * 4) + 48) * 2;
                pal::store_shared<u32x2>((at ^ (at >> 3 & 0x70)), u32x2{pal::pack_bf16(v_6[r], v_6[r + 1]), pal::pack_bf16(v_6[r + 2], v_6[r + 3])});
              }
            }
            pal::fence_async();
            pal::sync_named(1, 128);
            pal::sync_warp();
            if (lane == 0) pal::arrive(smem + 0);
            pal::wait(smem + 0, cleared_phases & 1);
            cleared_phases ^= 0x1;
          }
          const u64 left_2 = pal::descriptor(smem + 1024 + i_22 * 16384, 16, 1024, 1);
          const u64 right_2 = pal::descriptor(smem + 66560 + i_22 * 32768, 8192, 1024, 1);
          pal::wgmma_fence();
          pal::wgmma_m64n256k16_f32_bf16_bf16<0, 1>(acc[0], left_2, right_2, 1);
          pal::wgmma_m64n256k16_f32_bf16_bf16<0, 1>(acc[0], left_2 + 2, right_2 + 128, 1);
          pal::wgmma_m64n256k16_f32_bf16_bf16<0, 1>(acc[0], left_2 + 4, right_2 + 256, 1);
          pal::wgmma_m64n256k16_f32_bf16_bf16<0, 1>(acc[0], left_2 + 6, right_2 + 384, 1);
          pal::wgmma_commit();
          pal::wgmma_wait<1>();
          const bool is_12 = step_2 > 0;
          if (is_12) {
            const int i_26 = (int)((u32)carry + (u32)step_2);
            const int i_27 = (int)((u32)i_26 - (u32)1);
            const u32 i_28 = (u32)i_27;
            const u32 i_29 = i_28 % 4u;
            const int i_30 = (int)i_29;
            pal::sync_warp();
            if (lane < 2) pal::arrive_peer(smem + 197632 + i_30 * 8, lane % 2);
          }
        }
        pal::wgmma_wait<0>();
        pal::keep(acc[0]);
        const bool is_13 = i_18 > 0;
        if (is_13) {
          const int i_31 = (int)((u32)carry + (u32)i_18);
          const int i_32 = (int)((u32)i_31 - (u32)1);
          const u32 i_33 = (u32)i_32;
          const u32 i_34 = i_33 % 4u;
          const int i_35 = (int)i_34;
          pal::sync_warp();
          if (lane < 2) pal::arrive_peer(smem + 197632 + i_35 * 8, lane % 2);
        }
        if (warp == 0 && pal::elect()) {
          pal::bulk_wait_read<0>();
        }
        pal::sync_named(1, 128);
        float part[32];
        PAL_UNROLL for (int r = 0; r < 32; ++r) part[r] = acc[0][r];
        float v_7[32];
        PAL_UNROLL for (int r = 0; r < 32; ++r) v_7[r] = part[r];
        PAL_UNROLL for (int r = 0; r < 32; r += 8) {
          const u32 at = smem + 198656 + (warp * 16 + lane % 16) * 128 + (r / 8 * 16 + lane / 16 * 8) * 2;
          pal::stmatrix4((at ^ (at >> 3 & 0x70)), pal::pack_bf16(v_7[r], v_7[r + 1]), pal::pack_bf16(v_7[r + 2], v_7[r + 3]), pal::pack_bf16(v_7[r + 4], v_7[r + 5]), pal::pack_bf16(v_7[r + 6], v_7[r + 7]));
        }
        pal::fence_async();
        pal::sync_named(1, 128);
        if (warp == 0 && pal::elect()) {
          pal::tma_store(&out_boxes, smem + 198656, i_16, i_15, i_6);
          pal::bulk_commit();
        }
        float part_2[32];
        PAL_UNROLL for (int r = 0; r < 32; ++r) part_2[r] = acc[0][r + 32];
        float v_8[32];
        PAL_UNROLL for (int r = 0; r < 32; ++r) v_8[r] = part_2[r];
        PAL_UNROLL for (int r = 0; r < 32; r += 8) {
          const u32 at = smem + 198656 + (warp * 16 + lane % 16) * 128 + (r / 8 * 16 + lane / 16 * 8) * 2 + 8192;
          pal::stmatrix4((at ^ (at >> 3 & 0x70)), pal::pack_bf16(v_8[r], v_8[r + 1]), pal::pack_bf16(v_8[r + 2], v_8[r + 3]), pal::pack_bf16(v_8[r + 4], v_8[r + 5]), pal::pack_bf16(v_8[r + 6], v_8[r + 7]));
        }
        pal::fence_async();
        pal::sync_named(1, 128);
        const int i_36 = i_16 + 64;
        if (warp == 0 && pal::elect()) {
          pal::tma_store(&out_boxes, smem + 198656 + 8192, i_36, i_15, i_6);
          pal::bulk_commit();
          pal::bulk_wait_read<1>();
        }
        pal::sync_named(1, 128);
        float part_3[32];
        PAL_UNROLL for (int r = 0; r < 32; ++r) part_3[r] = acc[0][r + 64];
        float v_9[32];
        PAL_UNROLL for (int r = 0; r < 32; ++r) v_9[r] = part_3[r];
        PAL_UNROLL for (int r = 0; r < 32; r += 8) {
          const u32 at = smem + 198656 + (warp * 16 + lane % 16) * 128 + (r / 8 * 16 + lane / 16 * 8) * 2;
          pal::stmatrix4((at ^ (at >> 3 & 0x70)), pal::pack_bf16(v_9[r], v_9[r + 1]), pal::pack_bf16(v_9[r + 2], v_9[r + 3]), pal::pack_bf16(v_9[r + 4], v_9[r + 5]), pal::pack_bf16(v_9[r + 6], v_9[r + 7]));
        }
        pal::fence_async();
        pal::sync_named(1, 128);
        const int i_37 = i_16 + 128;
        if (warp == 0 && pal::elect()) {
          pal::tma_store(&out_boxes, smem + 198656, i_37, i_15, i_6);
          pal::bulk_commit();
          pal::bulk_wait_read<1>();
        }
        pal::sync_named(1, 128);
        float part_4[32];
        PAL_UNROLL for (int r = 0; r < 32; ++r) part_4[r] = acc[0][r + 96];
        float v_10[32];
        PAL_UNROLL for (int r = 0; r < 32; ++r) v_10[r] = part_4[r];
        PAL_UNROLL for (int r = 0; r < 32; r += 8) {
          const u32 at = smem + 198656 + (warp * 16 + lane % 16) * 128 + (r / 8 * 16 + lane / 16 * 8) * 2 + 8192;
          pal::stmatrix4((at ^ (at >> 3 & 0x70)), pal::pack_bf16(v_10[r], v_10[r + 1]), pal::pack_bf16(v_10[r + 2], v_10[r + 3]), pal::pack_bf16(v_10[r + 4], v_10[r + 5]), pal::pack_bf16(v_10[r + 6], v_10[r + 7]));
        }
        pal::fence_async();
        pal::sync_named(1, 128);
        const int i_38 = i_16 + 192;
        if (warp == 0 && pal::elect()) {
          pal::tma_store(&out_boxes, smem + 198656 + 8192, i_38, i_15, i_6);
          pal::bulk_commit();
        }
      }
      const int i_39 = (int)((u32)carry + (u32)i_18);
      carry = i_39;
    }
    if (warp == 0 && pal::elect()) {
      pal::bulk_wait<0>();
    }
    pal::sync_named(1, 128);
  } else if (warpgroup == 1) {
    pal::registers_increase<224>();
    const int block = pal::cluster_index();
    const int peer = pal::cluster_rank();
    u32 cleared_phases = 0;
    u32 operands_filled_phases = 0;
    int loaded[1];
    PAL_UNROLL for (int r = 0; r < 1; ++r) loaded[r] = thread % 32 < 8 ? pal::load_constant(sizes + (i64)((thread % 32))) : (-2147483647 - 1);
    const bool is = block < 50;
    const int i = 7 + is;
    int carry = 0;
    PAL_ROLLED
    for (int local_tile = 0; local_tile < i; ++local_tile) {
      const int i_2 = local_tile * 66;
      const int i_3 = i_2 + block;
      const int i_4 = i_3 % 64;
      const int i_5 = i_3 / 64;
      const int i_6 = i_5 % 8;
      const int i_7 = i_4 % 64;
      const int i_8 = i_7 / 8;
      const int i_9 = i_7 % 8;
      const int i_10 = i_9 * 2;
      const int i_11 = i_10 + peer;
      int v[1];
      PAL_UNROLL for (int r = 0; r < 1; ++r) v[r] = ((((int)(thread % 32)) == i_6) ? loaded[r] : 0);
      int folded[1];
      PAL_UNROLL for (int r = 0; r < 1; ++r) folded[r] = 0;
      PAL_UNROLL for (int r = 0; r < 1; ++r) folded[0] = (int)((u32)folded[0] + (u32)(thread % 32 < 8 ? v[r] : 0));
      PAL_UNROLL for (int r = 0; r < 1; ++r) folded[r] = pal::warp_sum(folded[r]);
      int v_2[1];
      PAL_UNROLL for (int r = 0; r < 1; ++r) v_2[r] = ((((int)(thread % 32)) < i_6) ? loaded[r] : 0);
      int folded_2[1];
      PAL_UNROLL for (int r = 0; r < 1; ++r) folded_2[r] = 0;
      PAL_UNROLL for (int r = 0; r < 1; ++r) folded_2[0] = (int)((u32)folded_2[0] + (u32)(thread % 32 < 8 ? v_2[r] : 0));
      PAL_UNROLL for (int r = 0; r < 1; ++r) folded_2[r] = pal::warp_sum(folded_2[r]);
      const int i_12 = folded_2[0] % 8;
      const bool is_2 = folded[0] > 0;
      const int i_13 = (int)((u32)folded[0] + (u32)i_12);
      const int i_14 = (is_2 ? i_13 : 0);
      const int i_15 = i_11 * 128;
      const int i_16 = i_8 * 256;
      const int i_17 = (int)((u32)i_14 + (u32)63);
      const int i_18 = i_17 / 64;
      {
        float acc[1][128];
        PAL_UNROLL for (int r = 0; r < 128; ++r) acc[r / 128][r % 128] = 0;
        pal::keep(acc[0]);
        PAL_ROLLED
        for (int step_2 = 0; step_2 < i_18; ++step_2) {
          const int i_19 = (int)((u32)carry + (u32)step_2);
          const u32 i_20 = (u32)i_19;
          const u32 i_21 = i_20 % 4u;
          const int i_22 = (int)i_21;
          pal::wait(smem + 197664 + i_22 * 8, operands_filled_phases >> i_22 & 1);
          operands_filled_phases ^= 1u << i_22;
          const int i_23 = step_2 * 64;
          const int i_24 = i_12 - i_23;
          const int i_25 = (int)((u32)i_14 - (u32)i_23);
          const bool is_3 = i_24 > 0;
          const bool is_4 = i_25 < 64;
          const bool is_5 = is_3 | is_4;
          if (is_5) {
            const bool is_6 = i_24 > 0;
            const bool is_7 = i_25 < 16;
            const bool is_8 = is_6 | is_7;
            if (is_8) {
              pal::sync_named(2, 128);
              float loaded_2[32];
              PAL_UNROLL for (int r = 0; r < 32; r += 4) {
                const u32 at = smem + 66560 + i_22 * 32768 + (r / 4 * 2 + thread / 64) * 128 + (((r % 4 + thread % 64 * 4)) / 64) * 8192 + (((r % 4 + thread % 64 * 4)) % 64) * 2;
                const u32x2 bits = pal::load_shared<u32x2>((at ^ (at >> 3 & 0x70)));
                loaded_2[r + 0] = pal::float_bf16((u16)(bits.x));
                loaded_2[r + 1] = pal::float_bf16((u16)(bits.x >> 16));
                loaded_2[r + 2] = pal::float_bf16((u16)(bits.y));
                loaded_2[r + 3] = pal::float_bf16((u16)(bits.y >> 16));
              }
              float v_3[32];
              PAL_UNROLL for (int r = 0; r < 32; ++r) v_3[r] = (((((int)(r / 4 * 2 + thread / 64)) >= i_24) & (((int)(r / 4 * 2 + thread / 64)) < i_25)) ? loaded_2[r] : 0.0f);
              pal::sync_named(2, 128);
              PAL_UNROLL for (int r = 0; r < 32; r += 4) {
                const u32 at = smem + 66560 + i_22 * 32768 + (r / 4 * 2 + thread / 64) * 128 + (((r % 4 + thread % 64 * 4)) / 64) * 8192 + (((r % 4 + thread % 64 * 4)) % 64) * 2;
                pal::store_shared<u32x2>((at ^ (at >> 3 & 0x70)), u32x2{pal::pack_bf16(v_3[r], v_3[r + 1]), pal::pack_bf16(v_3[r + 2], v_3[r + 3])});
              }
            }
            const bool is_9 = i_25 < 32;
            if (is_9) {
              pal::sync_named(2, 128);
              float loaded_3[32];
              PAL_UNROLL for (int r = 0; r < 32; r += 4) {
                const u32 at = smem + 66560 + i_22 * 32768 + ((r / 4 * 2 + thread / 64) + 16) * 128 + (((r % 4 + thread % 64 * 4)) / 64) * 8192 + (((r % 4 + thread % 64 * 4)) % 64) * 2;
                const u32x2 bits = pal::load_shared<u32x2>((at ^ (at >> 3 & 0x70)));
                loaded_3[r + 0] = pal::float_bf16((u16)(bits.x));
                loaded_3[r + 1] = pal::float_bf16((u16)(bits.x >> 16));
                loaded_3[r + 2] = pal::float_bf16((u16)(bits.y));
                loaded_3[r + 3] = pal::float_bf16((u16)(bits.y >> 16));
              }
              float v_4[32];
              PAL_UNROLL for (int r = 0; r < 32; ++r) v_4[r] = ((((16 + ((int)(r / 4 * 2 + thread / 64))) >= i_24) & ((16 + ((int)(r / 4 * 2 + thread / 64))) < i_25)) ? loaded_3[r] : 0.0f);
              pal::sync_named(2, 128);
              PAL_UNROLL for (int r = 0; r < 32; r += 4) {
                const u32 at = smem + 66560 + i_22 * 32768 + ((r / 4 * 2 + thread / 64) + 16) * 128 + (((r % 4 + thread % 64 * 4)) / 64) * 8192 + (((r % 4 + thread % 64 * 4)) % 64) * 2;
                pal::store_shared<u32x2>((at ^ (at >> 3 & 0x70)), u32x2{pal::pack_bf16(v_4[r], v_4[r + 1]), pal::pack_bf16(v_4[r + 2], v_4[r + 3])});
              }
            }
            const bool is_10 = i_25 < 48;
            if (is_10) {
              pal::sync_named(2, 128);
              float loaded_4[32];
              PAL_UNROLL for (int r = 0; r < 32; r += 4) {
                const u32 at = smem + 66560 + i_22 * 32768 + ((r / 4 * 2 + thread / 64) + 32) * 128 + (((r % 4 + thread % 64 * 4)) / 64) * 8192 + (((r % 4 + thread % 64 * 4)) % 64) * 2;
                const u32x2 bits = pal::load_shared<u32x2>((at ^ (at >> 3 & 0x70)));
                loaded_4[r + 0] = pal::float_bf16((u16)(bits.x));
                loaded_4[r + 1] = pal::float_bf16((u16)(bits.x >> 16));
                loaded_4[r + 2] = pal::float_bf16((u16)(bits.y));
                loaded_4[r + 3] = pal::float_bf16((u16)(bits.y >> 16));
              }
              float v_5[32];
              PAL_UNROLL for (int r = 0; r < 32; ++r) v_5[r] = ((((32 + ((int)(r / 4 * 2 + thread / 64))) >= i_24) & ((32 + ((int)(r / 4 * 2 + thread / 64))) < i_25)) ? loaded_4[r] : 0.0f);
              pal::sync_named(2, 128);
              PAL_UNROLL for (int r = 0; r < 32; r += 4) {
                const u32 at = smem + 66560 + i_22 * 32768 + ((r / 4 * 2 + thread / 64) + 32) * 128 + (((r % 4 + thread % 64 * 4)) / 64) * 8192 + (((r % 4 + thread % 64 * 4)) % 64) * 2;
                pal::store_shared<u32x2>((at ^ (at >> 3 & 0x70)), u32x2{pal::pack_bf16(v_5[r], v_5[r + 1]), pal::pack_bf16(v_5[r + 2], v_5[r + 3])});
              }
            }
            const bool is_11 = i_25 < 64;
            if (is_11) {
              pal::sync_named(2, 128);
              float loaded_5[32];
              PAL_UNROLL for (int r = 0; r < 32; r += 4) {
                const u32 at = smem + 66560 + i_22 * 32768 + ((r / 4 * 2 + thread / 64) + 48) * 128 + (((r % 4 + thread % 64 * 4)) / 64) * 8192 + (((r % 4 + thread % 64 * 4)) % 64) * 2;
                const u32x2 bits = pal::load_shared<u32x2>((at ^ (at >> 3 & 0x70)));
                loaded_5[r + 0] = pal::float_bf16((u16)(bits.x));
                loaded_5[r + 1] = pal::float_bf16((u16)(bits.x >> 16));
                loaded_5[r + 2] = pal::float_bf16((u16)(bits.y));
                loaded_5[r + 3] = pal::float_bf16((u16)(bits.y >> 16));
              }
              float v_6[32];
              PAL_UNROLL for (int r = 0; r < 32; ++r) v_6[r] = ((((48 + ((int)(r / 4 * 2 + thread / 64))) >= i_24) & ((48 + ((int)(r / 4 * 2 + thread / 64))) < i_25)) ? loaded_5[r] : 0.0f);
              pal::sync_named(2, 128);
              PAL_UNROLL for (int r = 0; r < 32; r += 4) {
                const u32 at = smem + 66560 + i_22 * 32768 + ((r / 4 * 2 + thread / 64) + 48) * 128 + (((r % 4 + thread % 64 * 4)) / 64) * 8192 + (((r % 4 + thread % 64 * 4)) % 64) * 2;
                pal::store_shared<u32x2>((at ^ (at >> 3 & 0x70)), u32x2{pal::pack_bf16(v_6[r], v_6[r + 1]), pal::pack_bf16(v_6[r + 2], v_6[r + 3])});
              }
            }
            pal::fence_async();
            pal::sync_named(2, 128);
            pal::sync_warp();
            if (lane == 0) pal::arrive(smem + 0);
            pal::wait(smem + 0, cleared_phases & 1);
            cleared_phases ^= 0x1;
          }
          const u64 left_2 = pal::descriptor(smem + 1024 + i_22 * 16384 + 8192, 16, 1024, 1);
          const u64 right_2 = pal::descriptor(smem + 66560 + i_22 * 32768, 8192, 1024, 1);
          pal::wgmma_fence();
          pal::wgmma_m64n256k16_f32_bf16_bf16<0, 1>(acc[0], left_2, right_2, 1);
          pal::wgmma_m64n256k16_f32_bf16_bf16<0, 1>(acc[0], left_2 + 2, right_2 + 128, 1);
          pal::wgmma_m64n256k16_f32_bf16_bf16<0, 1>(acc[0], left_2 + 4, right_2 + 256, 1);
          pal::wgmma_m64n256k16_f32_bf16_bf16<0, 1>(acc[0], left_2 + 6, right_2 + 384, 1);
          pal::wgmma_commit();
          pal::wgmma_wait<1>();
          const bool is_12 = step_2 > 0;
          if (is_12) {
            const int i_26 = (int)((u32)carry + (u32)step_2);
            const int i_27 = (int)((u32)i_26 - (u32)1);
            const u32 i_28 = (u32)i_27;
            const u32 i_29 = i_28 % 4u;
            const int i_30 = (int)i_29;
            pal::sync_warp();
            if (lane < 2) pal::arrive_peer(smem + 197632 + i_30 * 8, lane % 2);
          }
        }
        pal::wgmma_wait<0>();
        pal::keep(acc[0]);
        const bool is_13 = i_18 > 0;
        if (is_13) {
          const int i_31 = (int)((u32)carry + (u32)i_18);
          const int i_32 = (int)((u32)i_31 - (u32)1);
          const u32 i_33 = (u32)i_32;
          const u32 i_34 = i_33 % 4u;
          const int i_35 = (int)i_34;
          pal::sync_warp();
          if (lane < 2) pal::arrive_peer(smem + 197632 + i_35 * 8, lane % 2);
        }
        const int i_36 = i_15 + 64;
        if (warp == 0 && pal::elect()) {
          pal::bulk_wait_read<0>();
        }
        pal::sync_named(2, 128);
        float part[32];
        PAL_UNROLL for (int r = 0; r < 32; ++r) part[r] = acc[0][r];
        float v_7[32];
        PAL_UNROLL for (int r = 0; r < 32; ++r) v_7[r] = part[r];
        PAL_UNROLL for (int r = 0; r < 32; r += 8) {
          const u32 at = smem + 198656 + (warp * 16 + lane % 16) * 128 + (r / 8 * 16 + lane / 16 * 8) * 2 + 16384;
          pal::stmatrix4((at ^ (at >> 3 & 0x70)), pal::pack_bf16(v_7[r], v_7[r + 1]), pal::pack_bf16(v_7[r + 2], v_7[r + 3]), pal::pack_bf16(v_7[r + 4], v_7[r + 5]), pal::pack_bf16(v_7[r + 6], v_7[r + 7]));
        }
        pal::fence_async();
        pal::sync_named(2, 128);
        if (warp == 0 && pal::elect()) {
          pal::tma_store(&out_boxes, smem + 198656 + 16384, i_16, i_36, i_6);
          pal::bulk_commit();
        }
        float part_2[32];
        PAL_UNROLL for (int r = 0; r < 32; ++r) part_2[r] = acc[0][r + 32];
        float v_8[32];
        PAL_UNROLL for (int r = 0; r < 32; ++r) v_8[r] = part_2[r];
        PAL_UNROLL for (int r = 0; r < 32; r += 8) {
          const u32 at = smem + 198656 + (warp * 16 + lane % 16) * 128 + (r / 8 * 16 + lane / 16 * 8) * 2 + 24576;
          pal::stmatrix4((at ^ (at >> 3 & 0x70)), pal::pack_bf16(v_8[r], v_8[r + 1]), pal::pack_bf16(v_8[r + 2], v_8[r + 3]), pal::pack_bf16(v_8[r + 4], v_8[r + 5]), pal::pack_bf16(v_8[r + 6], v_8[r + 7]));
        }
        pal::fence_async();
        pal::sync_named(2, 128);
        const int i_37 = i_16 + 64;
        if (warp == 0 && pal::elect()) {
          pal::tma_store(&out_boxes, smem + 198656 + 24576, i_37, i_36, i_6);
          pal::bulk_commit();
          pal::bulk_wait_read<1>();
        }
        pal::sync_named(2, 128);
        float part_3[32];
        PAL_UNROLL for (int r = 0; r < 32; ++r) part_3[r] = acc[0][r + 64];
        float v_9[32];
        PAL_UNROLL for (int r = 0; r < 32; ++r) v_9[r] = part_3[r];
        PAL_UNROLL for (int r = 0; r < 32; r += 8) {
          const u32 at = smem + 198656 + (warp * 16 + lane % 16) * 128 + (r / 8 * 16 + lane / 16 * 8) * 2 + 16384;
          pal::stmatrix4((at ^ (at >> 3 & 0x70)), pal::pack_bf16(v_9[r], v_9[r + 1]), pal::pack_bf16(v_9[r + 2], v_9[r + 3]), pal::pack_bf16(v_9[r + 4], v_9[r + 5]), pal::pack_bf16(v_9[r + 6], v_9[r + 7]));
        }
        pal::fence_async();
        pal::sync_named(2, 128);
        const int i_38 = i_16 + 128;
        if (warp == 0 && pal::elect()) {
          pal::tma_store(&out_boxes, smem + 198656 + 16384, i_38, i_36, i_6);
          pal::bulk_commit();
          pal::bulk_wait_read<1>();
        }
        pal::sync_named(2, 128);
        float part_4[32];
        PAL_UNROLL for (int r = 0; r < 32; ++r) part_4[r] = acc[0][r + 96];
        float v_10[32];
        PAL_UNROLL for (int r = 0; r < 32; ++r) v_10[r] = part_4[r];
        PAL_UNROLL for (int r = 0; r < 32; r += 8) {
          const u32 at = smem + 198656 + (warp * 16 + lane % 16) * 128 + (r / 8 * 16 + lane / 16 * 8) * 2 + 24576;
          pal::stmatrix4((at ^ (at >> 3 & 0x70)), pal::pack_bf16(v_10[r], v_10[r + 1]), pal::pack_bf16(v_10[r + 2], v_10[r + 3]), pal::pack_bf16(v_10[r + 4], v_10[r + 5]), pal::pack_bf16(v_10[r + 6], v_10[r + 7]));
        }
        pal::fence_async();
        pal::sync_named(2, 128);
        const int i_39 = i_16 + 192;
        if (warp == 0 && pal::elect()) {
          pal::tma_store(&out_boxes, smem + 198656 + 24576, i_39, i_36, i_6);
          pal::bulk_commit();
        }
      }
      const int i_40 = (int)((u32)carry + (u32)i_18);
      carry = i_40;
    }
    if (warp == 0 && pal::elect()) {
      pal::bulk_wait<0>();
    }
    pal::sync_named(2, 128);
  } else {
    pal::registers_decrease<56>();
    const int block = pal::cluster_index();
    const int peer = pal::cluster_rank();
    u32 operands_drained_phases = 0;
    int loaded[1];
    PAL_UNROLL for (int r = 0; r < 1; ++r) loaded[r] = thread % 32 < 8 ? pal::load_constant(sizes + (i64)((thread % 32))) : (-2147483647 - 1);
    const bool is = block < 50;
    const int i = 7 + is;
    int carry = 0;
    PAL_ROLLED
    for (int local_tile = 0; local_tile < i; ++local_tile) {
      const int i_2 = local_tile * 66;
      const int i_3 = i_2 + block;
      const int i_4 = i_3 % 64;
      const int i_5 = i_3 / 64;
      const int i_6 = i_5 % 8;
      const int i_7 = i_4 % 64;
      const int i_8 = i_7 / 8;
      const int i_9 = i_7 % 8;
      const int i_10 = i_9 * 2;
      const int i_11 = i_10 + peer;
      int v[1];
      PAL_UNROLL for (int r = 0; r < 1; ++r) v[r] = ((((int)(thread % 32)) == i_6) ? loaded[r] : 0);
      int folded[1];
      PAL_UNROLL for (int r = 0; r < 1; ++r) folded[r] = 0;
      PAL_UNROLL for (int r = 0; r < 1; ++r) folded[0] = (int)((u32)folded[0] + (u32)(thread % 32 < 8 ? v[r] : 0));
      PAL_UNROLL for (int r = 0; r < 1; ++r) folded[r] = pal::warp_sum(folded[r]);
      int v_2[1];
      PAL_UNROLL for (int r = 0; r < 1; ++r) v_2[r] = ((((int)(thread % 32)) < i_6) ? loaded[r] : 0);
      int folded_2[1];
      PAL_UNROLL for (int r = 0; r < 1; ++r) folded_2[r] = 0;
      PAL_UNROLL for (int r = 0; r < 1; ++r) folded_2[0] = (int)((u32)folded_2[0] + (u32)(thread % 32 < 8 ? v_2[r] : 0));
      PAL_UNROLL for (int r = 0; r < 1; ++r) folded_2[r] = pal::warp_sum(folded_2[r]);
      const int i_12 = folded_2[0] % 8;
      const bool is_2 = folded[0] > 0;
      const int i_13 = (int)((u32)folded[0] + (u32)i_12);
      const int i_14 = (is_2 ? i_13 : 0);
      const int i_15 = (int)((u32)folded_2[0] - (u32)i_12);
      const int i_16 = i_11 * 128;
      const int i_17 = i_8 * 256;
      const int i_18 = (int)((u32)i_14 + (u32)63);
      const int i_19 = i_18 / 64;
      PAL_ROLLED
      for (int step_2 = 0; step_2 < i_19; ++step_2) {
        const int i_20 = (int)((u32)carry + (u32)step_2);
        const int i_21 = step_2 * 64;
        const int i_22 = (int)((u32)i_15 + (u32)i_21);
        const u32 i_23 = (u32)i_20;
        const u32 i_24 = i_23 % 4u;
        const int i_25 = (int)i_24;
        const bool is_3 = i_20 >= 4;
        if (is_3) {
          pal::wait(smem + 197632 + i_25 * 8, operands_drained_phases >> i_25 & 1);
          operands_drained_phases ^= 1u << i_25;
        }
        pal::sync_named(3, 128);
        if (warp == 0 && pal::elect()) {
          pal::arrive_expect(smem + 197664 + i_25 * 8, 16384);
          pal::tma_load(&lhs_boxes, smem + 1024 + i_25 * 16384, smem + 197664 + i_25 * 8, i_22, i_16);
          pal::arrive_expect(smem + 197664 + i_25 * 8, 32768);
          pal::tma_load_multicast(&rhs_boxes, smem + 66560 + i_25 * 32768 + (pal::cluster_rank()) * 4096, smem + 197664 + i_25 * 8, 0x3, i_17, i_22 + (pal::cluster_rank()) * 32);
          pal::tma_load_multicast(&rhs_boxes, smem + 66560 + i_25 * 32768 + (pal::cluster_rank()) * 4096 + 8192, smem + 197664 + i_25 * 8, 0x3, i_17 + 64, i_22 + (pal::cluster_rank()) * 32);
          pal::tma_load_multicast(&rhs_boxes, smem + 66560 + i_25 * 32768 + (pal::cluster_rank()) * 4096 + 16384, smem + 197664 + i_25 * 8, 0x3, i_17 + 128, i_22 + (pal::cluster_rank()) * 32);
          pal::tma_load_multicast(&rhs_boxes, smem + 66560 + i_25 * 32768 + (pal::cluster_rank()) * 4096 + 24576, smem + 197664 + i_25 * 8, 0x3, i_17 + 192, i_22 + (pal::cluster_rank()) * 32);
        }
      }
      const int i_26 = (int)((u32)carry + (u32)i_19);
      carry = i_26;
    }
    const int i_27 = (int)((u32)carry - (u32)4);
    const int i_28 = (i_27 > 0 ? i_27 : 0);
    PAL_ROLLED
    for (int step_3 = i_28; step_3 < carry; ++step_3) {
      const u32 i_29 = (u32)step_3;
      const u32 i_30 = i_29 % 4u;
      const int i_31 = (int)i_30;
      pal::wait(smem + 197632 + i_31 * 8, operands_drained_phases >> i_31 & 1);
      operands_drained_phases ^= 1u << i_31;
    }
  }
  pal::sync_cluster();  // no block ends while others may still reach it
}
