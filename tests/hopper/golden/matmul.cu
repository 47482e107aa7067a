// grid 132, cluster 2, 384 threads, 230400 bytes shared
// array0_boxes: MapSpec(array=0, dtype=dtype(bfloat16), dims=(4096, 4096), strides=(8192,), box=(128, 64), swizzle=128, fill='zeros', promotion=128)
// array1_boxes: MapSpec(array=1, dtype=dtype(bfloat16), dims=(4096, 4096), strides=(8192,), box=(32, 64), swizzle=128, fill='zeros', promotion=128)
// array2_boxes: MapSpec(array=2, dtype=dtype(bfloat16), dims=(4096, 4096), strides=(8192,), box=(64, 64), swizzle=128, fill='zeros', promotion=128)
#include "palladio.cuh"

// 230400 bytes of shared memory:
//        0  operands_0: 4x128x64 of 2 bytes, swizzled by 128
//    65536  operands_1: 4x64x256 of 2 bytes, swizzled by 128
//   196608  operands_drained: 4 barriers of 16
//   196640  operands_filled: 4 barriers of 2
//   197632  staging: 2x2x64x64 of 2 bytes, swizzled by 128
PAL_KERNEL void PAL_BOUNDS(384) PAL_CLUSTER(2) matmul_kernel(
    PAL_MAP array0_boxes,
    PAL_MAP array1_boxes,
    PAL_MAP array2_boxes) {
  const u32 smem = pal::shared_base();
  const int warpgroup = pal::uniform((int)pal::thread_index() / 128);
  const int thread = (int)pal::thread_index() % 128;
  const int warp = pal::uniform(thread / 32);
  const int lane = thread % 32;
  if (pal::thread_index() == 0) {
    for (int step = 0; step < 4; ++step) pal::barrier_init(smem + 196608 + 8 * step, 16);
    for (int step = 0; step < 4; ++step) pal::barrier_init(smem + 196640 + 8 * step, 2);
    pal::fence_barrier_init();
  }
  pal::sync_cluster();
  if (warpgroup < 2) {
    pal::registers_increase<232>();
    const int block = pal::cluster_index();
    const int peer = pal::cluster_rank();
    u32 operands_filled_phases = 0;
    const int i = warpgroup * 64;
    const bool is = block < 58;
    const int i_2 = 3 + is;
    PAL_ROLLED
    for (int local_tile = 0; local_tile < i_2; ++local_tile) {
      const int i_3 = local_tile * 66;
      const int i_4 = i_3 + block;
      const int i_5 = i_4 % 256;
      const int i_6 = i_5 / 128;
      const int i_7 = i_5 % 128;
      const int i_8 = i_6 * 8;
      const int i_9 = i_7 / 8;
      const int i_10 = i_7 % 8;
      const int i_11 = i_8 + i_10;
      const int i_12 = i_6 % 2;
      const int i_13 = 2 * i_9;
      const int i_14 = 15 - i_13;
      const int i_15 = i_12 * i_14;
      const int i_16 = i_9 + i_15;
      const int i_17 = i_11 * 2;
      const int i_18 = i_17 + peer;
      const int i_19 = i_18 * 128;
      const int i_20 = i_16 * 256;
      const int i_21 = local_tile * 64;
      {
        float acc[1][128];
        PAL_UNROLL for (int r = 0; r < 128; ++r) acc[r / 128][r % 128] = 0;
        pal::keep(acc[0]);
        PAL_ROLLED
        for (int step_2 = 0; step_2 < 64; ++step_2) {
          const int i_22 = i_21 + step_2;
          const u32 i_23 = (u32)i_22;
          const u32 i_24 = i_23 % 4u;
          const int i_25 = (int)i_24;
          pal::wait(smem + 196640 + i_25 * 8, operands_filled_phases >> i_25 & 1);
          operands_filled_phases ^= 1u << i_25;
          const int i_26 = warpgroup * 64;
          const u64 left_2 = pal::descriptor(smem + i_25 * 16384 + i_26 * 128, 16, 1024, 1);
          const u64 right_2 = pal::descriptor(smem + 65536 + i_25 * 32768, 8192, 1024, 1);
          pal::wgmma_fence();
          pal::wgmma_m64n256k16_f32_bf16_bf16<0, 1>(acc[0], left_2, right_2, 1);
          pal::wgmma_m64n256k16_f32_bf16_bf16<0, 1>(acc[0], left_2 + 2, right_2 + 128, 1);
          pal::wgmma_m64n256k16_f32_bf16_bf16<0, 1>(acc[0], left_2 + 4, right_2 + 256, 1);
          pal::wgmma_m64n256k16_f32_bf16_bf16<0, 1>(acc[0], left_2 + 6, right_2 + 384, 1);
          pal::wgmma_commit();
          pal::wgmma_wait<1>();
          const bool is_2 = step_2 > 0;
          if (is_2) {
            const int i_27 = i_21 + step_2;
            const int i_28 = i_27 - 1;
            const u32 i_29 = (u32)i_28;
            const u32 i_30 = i_29 % 4u;
            const int i_31 = (int)i_30;
            pal::sync_warp();
            if (lane < 2) pal::arrive_peer(smem + 196608 + i_31 * 8, lane % 2);
          }
        }
        pal::wgmma_wait<0>();
        pal::keep(acc[0]);
        const int i_32 = i_21 + 64;
        const int i_33 = i_32 - 1;
        const u32 i_34 = (u32)i_33;
        const u32 i_35 = i_34 % 4u;
        const int i_36 = (int)i_35;
        pal::sync_warp();
        if (lane < 2) pal::arrive_peer(smem + 196608 + i_36 * 8, lane % 2);
        const int i_37 = i_19 + i;
        if (warp == 0 && pal::elect()) {
          pal::bulk_wait_read<0>();
        }
        pal::sync_named(1 + warpgroup, 128);
        float part[32];
        PAL_UNROLL for (int r = 0; r < 32; ++r) part[r] = acc[0][r];
        float v[32];
        PAL_UNROLL for (int r = 0; r < 32; ++r) v[r] = part[r];
        PAL_UNROLL for (int r = 0; r < 32; r += 8) {
          const u32 at = smem + 197632 + warpgroup * 16384 + (warp * 16 + lane % 16) * 128 + (r / 8 * 16 + lane / 16 * 8) * 2;
          pal::stmatrix4((at ^ (at >> 3 & 0x70)), pal::pack_bf16(v[r], v[r + 1]), pal::pack_bf16(v[r + 2], v[r + 3]), pal::pack_bf16(v[r + 4], v[r + 5]), pal::pack_bf16(v[r + 6], v[r + 7]));
        }
        pal::fence_async();
        pal::sync_named(1 + warpgroup, 128);
        if (warp == 0 && pal::elect()) {
          pal::tma_store(&array2_boxes, smem + 197632 + warpgroup * 16384, i_20, i_37);
          pal::bulk_commit();
        }
        float part_2[32];
        PAL_UNROLL for (int r = 0; r < 32; ++r) part_2[r] = acc[0][r + 32];
        float v_2[32];
        PAL_UNROLL for (int r = 0; r < 32; ++r) v_2[r] = part_2[r];
        PAL_UNROLL for (int r = 0; r < 32; r += 8) {
          const u32 at = smem + 197632 + warpgroup * 16384 + (warp * 16 + lane % 16) * 128 + (r / 8 * 16 + lane / 16 * 8) * 2 + 8192;
          pal::stmatrix4((at ^ (at >> 3 & 0x70)), pal::pack_bf16(v_2[r], v_2[r + 1]), pal::pack_bf16(v_2[r + 2], v_2[r + 3]), pal::pack_bf16(v_2[r + 4], v_2[r + 5]), pal::pack_bf16(v_2[r + 6], v_2[r + 7]));
        }
        pal::fence_async();
        pal::sync_named(1 + warpgroup, 128);
        const int i_38 = i_20 + 64;
        if (warp == 0 && pal::elect()) {
          pal::tma_store(&array2_boxes, smem + 197632 + warpgroup * 16384 + 8192, i_38, i_37);
          pal::bulk_commit();
          pal::bulk_wait_read<1>();
        }
        pal::sync_named(1 + warpgroup, 128);
        float part_3[32];
        PAL_UNROLL for (int r = 0; r < 32; ++r) part_3[r] = acc[0][r + 64];
        float v_3[32];
        PAL_UNROLL for (int r = 0; r < 32; ++r) v_3[r] = part_3[r];
        PAL_UNROLL for (int r = 0; r < 32; r += 8) {
          const u32 at = smem + 197632 + warpgroup * 16384 + (warp * 16 + lane % 16) * 128 + (r / 8 * 16 + lane / 16 * 8) * 2;
          pal::stmatrix4((at ^ (at >> 3 & 0x70)), pal::pack_bf16(v_3[r], v_3[r + 1]), pal::pack_bf16(v_3[r + 2], v_3[r + 3]), pal::pack_bf16(v_3[r + 4], v_3[r + 5]), pal::pack_bf16(v_3[r + 6], v_3[r + 7]));
        }
        pal::fence_async();
        pal::sync_named(1 + warpgroup, 128);
        const int i_39 = i_20 + 128;
        if (warp == 0 && pal::elect()) {
          pal::tma_store(&array2_boxes, smem + 197632 + warpgroup * 16384, i_39, i_37);
          pal::bulk_commit();
          pal::bulk_wait_read<1>();
        }
        pal::sync_named(1 + warpgroup, 128);
        float part_4[32];
        PAL_UNROLL for (int r = 0; r < 32; ++r) part_4[r] = acc[0][r + 96];
        float v_4[32];
        PAL_UNROLL for (int r = 0; r < 32; ++r) v_4[r] = part_4[r];
        PAL_UNROLL for (int r = 0; r < 32; r += 8) {
          const u32 at = smem + 197632 + warpgroup * 16384 + (warp * 16 + lane % 16) * 128 + (r / 8 * 16 + lane / 16 * 8) * 2 + 8192;
          pal::stmatrix4((at ^ (at >> 3 & 0x70)), pal::pack_bf16(v_4[r], v_4[r + 1]), pal::pack_bf16(v_4[r + 2], v_4[r + 3]), pal::pack_bf16(v_4[r + 4], v_4[r + 5]), pal::pack_bf16(v_4[r + 6], v_4[r + 7]));
        }
        pal::fence_async();
        pal::sync_named(1 + warpgroup, 128);
        const int i_40 = i_20 + 192;
        if (warp == 0 && pal::elect()) {
          pal::tma_store(&array2_boxes, smem + 197632 + warpgroup * 16384 + 8192, i_40, i_37);
          pal::bulk_commit();
        }
      }
    }
    if (warp == 0 && pal::elect()) {
      pal::bulk_wait<0>();
    }
    pal::sync_named(1 + warpgroup, 128);
  } else {
    pal::registers_decrease<40>();
    if (warp == 0) {
      const int block = pal::cluster_index();
      const int peer = pal::cluster_rank();
      u32 operands_drained_phases = 0;
      const bool is = block < 58;
      const int i = 3 + is;
      int carry = 0;
      PAL_ROLLED
      for (int local_tile = 0; local_tile < i; ++local_tile) {
        const int i_2 = local_tile * 66;
        const int i_3 = i_2 + block;
        const int i_4 = i_3 % 256;
        const int i_5 = i_4 / 128;
        const int i_6 = i_4 % 128;
        const int i_7 = i_5 * 8;
        const int i_8 = i_6 / 8;
        const int i_9 = i_6 % 8;
        const int i_10 = i_7 + i_9;
        const int i_11 = i_5 % 2;
        const int i_12 = 2 * i_8;
        const int i_13 = 15 - i_12;
        const int i_14 = i_11 * i_13;
        const int i_15 = i_8 + i_14;
        const int i_16 = i_10 * 2;
        const int i_17 = i_16 + peer;
        const int i_18 = i_17 * 128;
        const int i_19 = i_15 * 256;
        const int i_20 = local_tile * 64;
        PAL_ROLLED
        for (int step_2 = 0; step_2 < 64; ++step_2) {
          const int i_21 = i_20 + step_2;
          const int i_22 = step_2 * 64;
          const u32 i_23 = (u32)i_21;
          const u32 i_24 = i_23 % 4u;
          const int i_25 = (int)i_24;
          const bool is_2 = i_21 >= 4;
          if (is_2) {
            pal::wait(smem + 196608 + i_25 * 8, operands_drained_phases >> i_25 & 1);
            operands_drained_phases ^= 1u << i_25;
          }
          if (pal::elect()) {
            pal::arrive_expect(smem + 196640 + i_25 * 8, 16384);
            pal::tma_load(&array0_boxes, smem + i_25 * 16384, smem + 196640 + i_25 * 8, i_22, i_18);
            pal::arrive_expect(smem + 196640 + i_25 * 8, 32768);
            pal::tma_load_multicast(&array1_boxes, smem + 65536 + i_25 * 32768 + (pal::cluster_rank()) * 4096, smem + 196640 + i_25 * 8, 0x3, i_19, i_22 + (pal::cluster_rank()) * 32);
            pal::tma_load_multicast(&array1_boxes, smem + 65536 + i_25 * 32768 + (pal::cluster_rank()) * 4096 + 8192, smem + 196640 + i_25 * 8, 0x3, i_19 + 64, i_22 + (pal::cluster_rank()) * 32);
            pal::tma_load_multicast(&array1_boxes, smem + 65536 + i_25 * 32768 + (pal::cluster_rank()) * 4096 + 16384, smem + 196640 + i_25 * 8, 0x3, i_19 + 128, i_22 + (pal::cluster_rank()) * 32);
            pal::tma_load_multicast(&array1_boxes, smem + 65536 + i_25 * 32768 + (pal::cluster_rank()) * 4096 + 24576, smem + 196640 + i_25 * 8, 0x3, i_19 + 192, i_22 + (pal::cluster_rank()) * 32);
          }
        }
        const int i_26 = (int)((u32)carry + (u32)64);
        carry = i_26;
      }
      const int i_27 = (int)((u32)carry - (u32)4);
      const int i_28 = (i_27 > 0 ? i_27 : 0);
      PAL_ROLLED
      for (int step_3 = i_28; step_3 < carry; ++step_3) {
        const u32 i_29 = (u32)step_3;
        const u32 i_30 = i_29 % 4u;
        const int i_31 = (int)i_30;
        pal::wait(smem + 196608 + i_31 * 8, operands_drained_phases >> i_31 & 1);
        operands_drained_phases ^= 1u << i_31;
      }
    }
  }
  pal::sync_cluster();  // no block ends while others may still reach it
}
