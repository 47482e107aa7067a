// grid 132, cluster 2, 384 threads, 231424 bytes shared
// lhs_boxes: MapSpec(array=1, dtype=dtype(bfloat16), dims=(4096, 2048), strides=(4096,), box=(64, 64), swizzle=128, fill='zeros', promotion=128)
// rhs_boxes: MapSpec(array=2, dtype=dtype(bfloat16), dims=(8, 2048, 4096), strides=(16777216, 8192), box=(1, 64, 64), swizzle=128, fill='zeros', promotion=128)
// out_boxes: MapSpec(array=3, dtype=dtype(bfloat16), dims=(4096, 4096), strides=(8192,), box=(64, 64), swizzle=128, fill='zeros', promotion=128)
// out_boxes_32x64: MapSpec(array=3, dtype=dtype(bfloat16), dims=(4096, 4096), strides=(8192,), box=(32, 64), swizzle=128, fill='zeros', promotion=128)
// out_boxes_16x64: MapSpec(array=3, dtype=dtype(bfloat16), dims=(4096, 4096), strides=(8192,), box=(16, 64), swizzle=128, fill='zeros', promotion=128)
// out_boxes_8x64: MapSpec(array=3, dtype=dtype(bfloat16), dims=(4096, 4096), strides=(8192,), box=(8, 64), swizzle=128, fill='zeros', promotion=128)
// out_boxes_4x64: MapSpec(array=3, dtype=dtype(bfloat16), dims=(4096, 4096), strides=(8192,), box=(4, 64), swizzle=128, fill='zeros', promotion=128)
// out_boxes_2x64: MapSpec(array=3, dtype=dtype(bfloat16), dims=(4096, 4096), strides=(8192,), box=(2, 64), swizzle=128, fill='zeros', promotion=128)
// out_boxes_1x64: MapSpec(array=3, dtype=dtype(bfloat16), dims=(4096, 4096), strides=(8192,), box=(1, 64), swizzle=128, fill='zeros', promotion=128)
#include "palladio.cuh"

// 231424 bytes of shared memory:
//        0  cleared: 1 barriers of 2
//     1024  operands_0: 4x128x64 of 2 bytes, swizzled by 128
//    66560  operands_1: 4x64x256 of 2 bytes, swizzled by 128
//   197632  operands_drained: 4 barriers of 16
//   197664  operands_filled: 4 barriers of 2
//   198656  staging: 2x2x64x64 of 2 bytes, swizzled by 128
PAL_KERNEL void PAL_BOUNDS(384) PAL_CLUSTER(2) gmm_kernel(
    PAL_MAP lhs_boxes,
    PAL_MAP rhs_boxes,
    PAL_MAP out_boxes,
    PAL_MAP out_boxes_32x64,
    PAL_MAP out_boxes_16x64,
    PAL_MAP out_boxes_8x64,
    PAL_MAP out_boxes_4x64,
    PAL_MAP out_boxes_2x64,
    PAL_MAP out_boxes_1x64,
    const int* sizes) {
  const u32 smem = pal::shared_base();
  const int warpgroup = pal::uniform((int)pal::thread_index() / 128);
  const int thread = (int)pal::thread_index() % 128;
  const int warp = pal::uniform(thread / 32);
  const int lane = thread % 32;
  if (pal::thread_index() == 0) {
    pal::barrier_init(smem + 0, 2);
    for (int step = 0; step < 4; ++step) pal::barrier_init(smem + 197632 + 8 * step, 16);
    for (int step = 0; step < 4; ++step) pal::barrier_init(smem + 197664 + 8 * step, 2);
    pal::fence_barrier_init();
  }
  pal::sync_cluster();
  if (warpgroup < 2) {
    pal::registers_increase<224>();
    const int block = pal::cluster_index();
    const int peer = pal::cluster_rank();
    u32 operands_filled_phases = 0;
    int loaded[1];
    PAL_UNROLL for (int r = 0; r < 1; ++r) loaded[r] = thread % 32 < 8 ? pal::load_constant(sizes + (i64)((thread % 32))) : (-2147483647 - 1);
    const int i = warpgroup * 64;
    const bool is = block < 56;
    const int i_2 = 4 + is;
    int carry = 0;
    PAL_ROLLED
    for (int local_tile = 0; local_tile < i_2; ++local_tile) {
      const int i_3 = local_tile * 66;
      const int i_4 = i_3 + block;
      const int i_5 = i_4 % 320;
      int v[1];
      PAL_UNROLL for (int r = 0; r < 1; ++r) v[r] = (int)((u32)loaded[r] + (u32)127);
      int v_2[1];
      PAL_UNROLL for (int r = 0; r < 1; ++r) v_2[r] = v[r] / 128;
      int scan[1];
      int before = 0;
      PAL_UNROLL for (int r = 0; r < 1; ++r) {
        int sum = v_2[r];
        PAL_UNROLL for (int step = 1; step < 32; step *= 2) {
          const int other = pal::shuffle_up(sum, step);
          if (lane >= step) sum = (int)((u32)other + (u32)sum);
        }
        scan[r] = (int)((u32)before + (u32)sum);
        before = pal::shuffle(scan[r], 31);
      }
      int v_3[1];
      PAL_UNROLL for (int r = 0; r < 1; ++r) v_3[r] = (int)((u32)scan[r] * (u32)8);
      bool v_4[1];
      PAL_UNROLL for (int r = 0; r < 1; ++r) v_4[r] = i_5 >= v_3[r];
      int v_5[1];
      PAL_UNROLL for (int r = 0; r < 1; ++r) v_5[r] = (int)v_4[r];
      int folded[1];
      PAL_UNROLL for (int r = 0; r < 1; ++r) folded[r] = 0;
      PAL_UNROLL for (int r = 0; r < 1; ++r) folded[0] = (int)((u32)folded[0] + (u32)(thread % 32 < 8 ? v_5[r] : 0));
      PAL_UNROLL for (int r = 0; r < 1; ++r) folded[r] = pal::warp_sum(folded[r]);
      int v_6[1];
      PAL_UNROLL for (int r = 0; r < 1; ++r) v_6[r] = (v_4[r] ? loaded[r] : 0);
      int folded_2[1];
      PAL_UNROLL for (int r = 0; r < 1; ++r) folded_2[r] = 0;
      PAL_UNROLL for (int r = 0; r < 1; ++r) folded_2[0] = (int)((u32)folded_2[0] + (u32)(thread % 32 < 8 ? v_6[r] : 0));
      PAL_UNROLL for (int r = 0; r < 1; ++r) folded_2[r] = pal::warp_sum(folded_2[r]);
      int v_7[1];
      PAL_UNROLL for (int r = 0; r < 1; ++r) v_7[r] = (v_4[r] ? v_2[r] : 0);
      int folded_3[1];
      PAL_UNROLL for (int r = 0; r < 1; ++r) folded_3[r] = 0;
      PAL_UNROLL for (int r = 0; r < 1; ++r) folded_3[0] = (int)((u32)folded_3[0] + (u32)(thread % 32 < 8 ? v_7[r] : 0));
      PAL_UNROLL for (int r = 0; r < 1; ++r) folded_3[r] = pal::warp_sum(folded_3[r]);
      const int i_6 = (int)((u32)folded_3[0] * (u32)8);
      int v_8[1];
      PAL_UNROLL for (int r = 0; r < 1; ++r) v_8[r] = ((((int)(thread % 32)) == folded[0]) ? loaded[r] : 0);
      int folded_4[1];
      PAL_UNROLL for (int r = 0; r < 1; ++r) folded_4[r] = 0;
      PAL_UNROLL for (int r = 0; r < 1; ++r) folded_4[0] = (int)((u32)folded_4[0] + (u32)(thread % 32 < 8 ? v_8[r] : 0));
      PAL_UNROLL for (int r = 0; r < 1; ++r) folded_4[r] = pal::warp_sum(folded_4[r]);
      const bool is_2 = folded[0] < 8;
      const int i_7 = (int)((u32)4096 - (u32)folded_2[0]);
      const int i_8 = (is_2 ? folded_4[0] : i_7);
      const int i_9 = (int)((u32)i_5 - (u32)i_6);
      const int i_10 = (i_8 > 0 ? i_8 : 0);
      const int i_11 = (int)((u32)i_10 + (u32)127);
      const int i_12 = i_11 / 128;
      const int i_13 = (i_12 > 1 ? i_12 : 1);
      const int i_14 = i_13 / 8;
      const int i_15 = (i_14 > 1 ? i_14 : 1);
      const int i_16 = i_15 - 1;
      const int i_17 = i_13 + i_16;
      const int i_18 = (i_15 == 0 ? (int)-1 : i_15 == -1 ? (int)(0 - (u32)i_17) : i_17 / (i_15 == 0 ? 1 : i_15));
      const int i_19 = i_18 * 8;
      const int i_20 = (i_19 == 0 ? (int)-1 : i_19 == -1 ? (int)(0 - (u32)i_9) : i_9 / (i_19 == 0 ? 1 : i_19));
      const int i_21 = (int)((u32)i_20 * (u32)i_19);
      const int i_22 = (int)((u32)i_9 - (u32)i_21);
      const int i_23 = (int)((u32)i_20 * (u32)i_18);
      const int i_24 = (int)((u32)i_13 - (u32)i_23);
      const int i_25 = (i_24 > 1 ? i_24 : 1);
      const int i_26 = (i_25 < i_18 ? i_25 : i_18);
      const int i_27 = (i_26 == 0 ? i_22 : i_26 == -1 ? 0 : i_22 % (i_26 == 0 ? 1 : i_26));
      const int i_28 = (int)((u32)i_23 + (u32)i_27);
      const int i_29 = (i_26 == 0 ? (int)-1 : i_26 == -1 ? (int)(0 - (u32)i_22) : i_22 / (i_26 == 0 ? 1 : i_26));
      const int i_30 = i_20 % 2;
      const bool is_3 = i_30 == 1;
      const int i_31 = (int)((u32)7 - (u32)i_29);
      const int i_32 = (is_3 ? i_31 : i_29);
      const int i_33 = (int)((u32)i_32 * (u32)2);
      const int i_34 = (int)((u32)i_33 + (u32)peer);
      const int i_35 = (int)((u32)i_28 * (u32)128);
      const int i_36 = (int)((u32)folded_2[0] + (u32)i_35);
      const int i_37 = (int)((u32)i_8 - (u32)i_35);
      const int i_38 = (i_37 > 0 ? i_37 : 0);
      const int i_39 = (i_38 < 128 ? i_38 : 128);
      const int i_40 = (int)((u32)i_34 * (u32)256);
      const int i_41 = (is_2 ? 32 : 0);
      const bool is_4 = i_39 > 0;
      if (is_4) {
        {
          float acc[1][128];
          PAL_UNROLL for (int r = 0; r < 128; ++r) acc[r / 128][r % 128] = 0;
          pal::keep(acc[0]);
          PAL_ROLLED
          for (int step_2 = 0; step_2 < i_41; ++step_2) {
            const int i_42 = (int)((u32)carry + (u32)step_2);
            const u32 i_43 = (u32)i_42;
            const u32 i_44 = i_43 % 4u;
            const int i_45 = (int)i_44;
            pal::wait(smem + 197664 + i_45 * 8, operands_filled_phases >> i_45 & 1);
            operands_filled_phases ^= 1u << i_45;
            const int i_46 = warpgroup * 64;
            const u64 left_2 = pal::descriptor(smem + 1024 + i_45 * 16384 + i_46 * 128, 16, 1024, 1);
            const u64 right_2 = pal::descriptor(smem + 66560 + i_45 * 32768, 8192, 1024, 1);
            pal::wgmma_fence();
            pal::wgmma_m64n256k16_f32_bf16_bf16<0, 1>(acc[0], left_2, right_2, 1);
            pal::wgmma_m64n256k16_f32_bf16_bf16<0, 1>(acc[0], left_2 + 2, right_2 + 128, 1);
            pal::wgmma_m64n256k16_f32_bf16_bf16<0, 1>(acc[0], left_2 + 4, right_2 + 256, 1);
            pal::wgmma_m64n256k16_f32_bf16_bf16<0, 1>(acc[0], left_2 + 6, right_2 + 384, 1);
            pal::wgmma_commit();
            pal::wgmma_wait<1>();
            const bool is_5 = step_2 > 0;
            if (is_5) {
              const int i_47 = (int)((u32)carry + (u32)step_2);
              const int i_48 = (int)((u32)i_47 - (u32)1);
              const u32 i_49 = (u32)i_48;
              const u32 i_50 = i_49 % 4u;
              const int i_51 = (int)i_50;
              pal::sync_warp();
              if (lane < 2) pal::arrive_peer(smem + 197632 + i_51 * 8, lane % 2);
            }
          }
          pal::wgmma_wait<0>();
          pal::keep(acc[0]);
          const bool is_6 = i_41 > 0;
          if (is_6) {
            const int i_52 = (int)((u32)carry + (u32)i_41);
            const int i_53 = (int)((u32)i_52 - (u32)1);
            const u32 i_54 = (u32)i_53;
            const u32 i_55 = i_54 % 4u;
            const int i_56 = (int)i_55;
            pal::sync_warp();
            if (lane < 2) pal::arrive_peer(smem + 197632 + i_56 * 8, lane % 2);
          }
          const int i_57 = i_39 - i;
          const int i_58 = (i_57 > 0 ? i_57 : 0);
          const int i_59 = (i_58 < 64 ? i_58 : 64);
          const int i_60 = (int)((u32)i_36 + (u32)i);
          const int i_61 = i_59 & 32;
          const bool is_7 = i_61 != 0;
          const int i_62 = i_59 & 16;
          const bool is_8 = i_62 != 0;
          const int i_63 = i_59 & 48;
          const int i_64 = i_59 & 8;
          const bool is_9 = i_64 != 0;
          const int i_65 = i_59 & 56;
          const int i_66 = i_59 & 4;
          const bool is_10 = i_66 != 0;
          const int i_67 = i_59 & 60;
          const int i_68 = i_59 & 2;
          const bool is_11 = i_68 != 0;
          const int i_69 = i_59 & 62;
          const int i_70 = i_59 & 1;
          const bool is_12 = i_70 != 0;
          if (warp == 0 && pal::elect()) {
            pal::bulk_wait_read<0>();
          }
          pal::sync_named(1 + warpgroup, 128);
          float part[32];
          PAL_UNROLL for (int r = 0; r < 32; ++r) part[r] = acc[0][r];
          float v_9[32];
          PAL_UNROLL for (int r = 0; r < 32; ++r) v_9[r] = part[r];
          PAL_UNROLL for (int r = 0; r < 32; r += 8) {
            const u32 at = smem + 198656 + warpgroup * 16384 + (warp * 16 + lane % 16) * 128 + (r / 8 * 16 + lane / 16 * 8) * 2;
            pal::stmatrix4((at ^ (at >> 3 & 0x70)), pal::pack_bf16(v_9[r], v_9[r + 1]), pal::pack_bf16(v_9[r + 2], v_9[r + 3]), pal::pack_bf16(v_9[r + 4], v_9[r + 5]), pal::pack_bf16(v_9[r + 6], v_9[r + 7]));
          }
          pal::fence_async();
          pal::sync_named(1 + warpgroup, 128);
          const bool is_13 = i_59 == 64;
          if (is_13) {
            if (warp == 0 && pal::elect()) {
              pal::tma_store(&out_boxes, smem + 198656 + warpgroup * 16384, i_40, i_60);
            }
          }
          const bool is_14 = i_59 < 64;
          if (is_14) {
            const int i_71 = (int)((u32)i_60 + (u32)i_61);
            const int i_72 = (int)((u32)i_60 + (u32)i_63);
            const int i_73 = (int)((u32)i_60 + (u32)i_65);
            const int i_74 = (int)((u32)i_60 + (u32)i_67);
            const int i_75 = (int)((u32)i_60 + (u32)i_69);
            if (warp == 0 && pal::elect()) {
              if (is_7) {
                pal::tma_store(&out_boxes_32x64, smem + 198656 + warpgroup * 16384, i_40, i_60);
              }
              if (is_8) {
                pal::tma_store(&out_boxes_16x64, smem + 198656 + warpgroup * 16384 + i_61 * 128, i_40, i_71);
              }
              if (is_9) {
                pal::tma_store(&out_boxes_8x64, smem + 198656 + warpgroup * 16384 + i_63 * 128, i_40, i_72);
              }
              if (is_10) {
                pal::tma_store(&out_boxes_4x64, smem + 198656 + warpgroup * 16384 + i_65 * 128, i_40, i_73);
              }
              if (is_11) {
                pal::tma_store(&out_boxes_2x64, smem + 198656 + warpgroup * 16384 + i_67 * 128, i_40, i_74);
              }
              if (is_12) {
                pal::tma_store(&out_boxes_1x64, smem + 198656 + warpgroup * 16384 + i_69 * 128, i_40, i_75);
              }
            }
          }
          if (warp == 0 && pal::elect()) {
            pal::bulk_commit();
          }
          float part_2[32];
          PAL_UNROLL for (int r = 0; r < 32; ++r) part_2[r] = acc[0][r + 32];
          float v_10[32];
          PAL_UNROLL for (int r = 0; r < 32; ++r) v_10[r] = part_2[r];
          PAL_UNROLL for (int r = 0; r < 32; r += 8) {
            const u32 at = smem + 198656 + warpgroup * 16384 + (warp * 16 + lane % 16) * 128 + (r / 8 * 16 + lane / 16 * 8) * 2 + 8192;
            pal::stmatrix4((at ^ (at >> 3 & 0x70)), pal::pack_bf16(v_10[r], v_10[r + 1]), pal::pack_bf16(v_10[r + 2], v_10[r + 3]), pal::pack_bf16(v_10[r + 4], v_10[r + 5]), pal::pack_bf16(v_10[r + 6], v_10[r + 7]));
          }
          pal::fence_async();
          pal::sync_named(1 + warpgroup, 128);
          const int i_76 = (int)((u32)i_40 + (u32)64);
          if (is_13) {
            if (warp == 0 && pal::elect()) {
              pal::tma_store(&out_boxes, smem + 198656 + warpgroup * 16384 + 8192, i_76, i_60);
            }
          }
          if (is_14) {
            const int i_77 = (int)((u32)i_60 + (u32)i_61);
            const int i_78 = (int)((u32)i_60 + (u32)i_63);
            const int i_79 = (int)((u32)i_60 + (u32)i_65);
            const int i_80 = (int)((u32)i_60 + (u32)i_67);
            const int i_81 = (int)((u32)i_60 + (u32)i_69);
            if (warp == 0 && pal::elect()) {
              if (is_7) {
                pal::tma_store(&out_boxes_32x64, smem + 198656 + warpgroup * 16384 + 8192, i_76, i_60);
              }
              if (is_8) {
                pal::tma_store(&out_boxes_16x64, smem + 198656 + warpgroup * 16384 + i_61 * 128 + 8192, i_76, i_77);
              }
              if (is_9) {
                pal::tma_store(&out_boxes_8x64, smem + 198656 + warpgroup * 16384 + i_63 * 128 + 8192, i_76, i_78);
              }
              if (is_10) {
                pal::tma_store(&out_boxes_4x64, smem + 198656 + warpgroup * 16384 + i_65 * 128 + 8192, i_76, i_79);
              }
              if (is_11) {
                pal::tma_store(&out_boxes_2x64, smem + 198656 + warpgroup * 16384 + i_67 * 128 + 8192, i_76, i_80);
              }
              if (is_12) {
                pal::tma_store(&out_boxes_1x64, smem + 198656 + warpgroup * 16384 + i_69 * 128 + 8192, i_76, i_81);
              }
            }
          }
          if (warp == 0 && pal::elect()) {
            pal::bulk_commit();
            pal::bulk_wait_read<1>();
          }
          pal::sync_named(1 + warpgroup, 128);
          float part_3[32];
          PAL_UNROLL for (int r = 0; r < 32; ++r) part_3[r] = acc[0][r + 64];
          float v_11[32];
          PAL_UNROLL for (int r = 0; r < 32; ++r) v_11[r] = part_3[r];
          PAL_UNROLL for (int r = 0; r < 32; r += 8) {
            const u32 at = smem + 198656 + warpgroup * 16384 + (warp * 16 + lane % 16) * 128 + (r / 8 * 16 + lane / 16 * 8) * 2;
            pal::stmatrix4((at ^ (at >> 3 & 0x70)), pal::pack_bf16(v_11[r], v_11[r + 1]), pal::pack_bf16(v_11[r + 2], v_11[r + 3]), pal::pack_bf16(v_11[r + 4], v_11[r + 5]), pal::pack_bf16(v_11[r + 6], v_11[r + 7]));
          }
          pal::fence_async();
          pal::sync_named(1 + warpgroup, 128);
          const int i_82 = (int)((u32)i_40 + (u32)128);
          if (is_13) {
            if (warp == 0 && pal::elect()) {
              pal::tma_store(&out_boxes, smem + 198656 + warpgroup * 16384, i_82, i_60);
            }
          }
          if (is_14) {
            const int i_83 = (int)((u32)i_60 + (u32)i_61);
            const int i_84 = (int)((u32)i_60 + (u32)i_63);
            const int i_85 = (int)((u32)i_60 + (u32)i_65);
            const int i_86 = (int)((u32)i_60 + (u32)i_67);
            const int i_87 = (int)((u32)i_60 + (u32)i_69);
            if (warp == 0 && pal::elect()) {
              if (is_7) {
                pal::tma_store(&out_boxes_32x64, smem + 198656 + warpgroup * 16384, i_82, i_60);
              }
              if (is_8) {
                pal::tma_store(&out_boxes_16x64, smem + 198656 + warpgroup * 16384 + i_61 * 128, i_82, i_83);
              }
              if (is_9) {
                pal::tma_store(&out_boxes_8x64, smem + 198656 + warpgroup * 16384 + i_63 * 128, i_82, i_84);
              }
              if (is_10) {
                pal::tma_store(&out_boxes_4x64, smem + 198656 + warpgroup * 16384 + i_65 * 128, i_82, i_85);
              }
              if (is_11) {
                pal::tma_store(&out_boxes_2x64, smem + 198656 + warpgroup * 16384 + i_67 * 128, i_82, i_86);
              }
              if (is_12) {
                pal::tma_store(&out_boxes_1x64, smem + 198656 + warpgroup * 16384 + i_69 * 128, i_82, i_87);
              }
            }
          }
          if (warp == 0 && pal::elect()) {
            pal::bulk_commit();
            pal::bulk_wait_read<1>();
          }
          pal::sync_named(1 + warpgroup, 128);
          float part_4[32];
          PAL_UNROLL for (int r = 0; r < 32; ++r) part_4[r] = acc[0][r + 96];
          float v_12[32];
          PAL_UNROLL for (int r = 0; r < 32; ++r) v_12[r] = part_4[r];
          PAL_UNROLL for (int r = 0; r < 32; r += 8) {
            const u32 at = smem + 198656 + warpgroup * 16384 + (warp * 16 + lane % 16) * 128 + (r / 8 * 16 + lane / 16 * 8) * 2 + 8192;
            pal::stmatrix4((at ^ (at >> 3 & 0x70)), pal::pack_bf16(v_12[r], v_12[r + 1]), pal::pack_bf16(v_12[r + 2], v_12[r + 3]), pal::pack_bf16(v_12[r + 4], v_12[r + 5]), pal::pack_bf16(v_12[r + 6], v_12[r + 7]));
          }
          pal::fence_async();
          pal::sync_named(1 + warpgroup, 128);
          const int i_88 = (int)((u32)i_40 + (u32)192);
          if (is_13) {
            if (warp == 0 && pal::elect()) {
              pal::tma_store(&out_boxes, smem + 198656 + warpgroup * 16384 + 8192, i_88, i_60);
            }
          }
          if (is_14) {
            const int i_89 = (int)((u32)i_60 + (u32)i_61);
            const int i_90 = (int)((u32)i_60 + (u32)i_63);
            const int i_91 = (int)((u32)i_60 + (u32)i_65);
            const int i_92 = (int)((u32)i_60 + (u32)i_67);
            const int i_93 = (int)((u32)i_60 + (u32)i_69);
            if (warp == 0 && pal::elect()) {
              if (is_7) {
                pal::tma_store(&out_boxes_32x64, smem + 198656 + warpgroup * 16384 + 8192, i_88, i_60);
              }
              if (is_8) {
                pal::tma_store(&out_boxes_16x64, smem + 198656 + warpgroup * 16384 + i_61 * 128 + 8192, i_88, i_89);
              }
              if (is_9) {
                pal::tma_store(&out_boxes_8x64, smem + 198656 + warpgroup * 16384 + i_63 * 128 + 8192, i_88, i_90);
              }
              if (is_10) {
                pal::tma_store(&out_boxes_4x64, smem + 198656 + warpgroup * 16384 + i_65 * 128 + 8192, i_88, i_91);
              }
              if (is_11) {
                pal::tma_store(&out_boxes_2x64, smem + 198656 + warpgroup * 16384 + i_67 * 128 + 8192, i_88, i_92);
              }
              if (is_12) {
                pal::tma_store(&out_boxes_1x64, smem + 198656 + warpgroup * 16384 + i_69 * 128 + 8192, i_88, i_93);
              }
            }
          }
          if (warp == 0 && pal::elect()) {
            pal::bulk_commit();
          }
        }
      }
      const int i_94 = (int)((u32)carry + (u32)i_41);
      carry = i_94;
    }
    if (warp == 0 && pal::elect()) {
      pal::bulk_wait<0>();
    }
    pal::sync_named(1 + warpgroup, 128);
  } else {
    pal::registers_decrease<56>();
    const int block = pal::cluster_index();
    const int peer = pal::cluster_rank();
    u32 operands_drained_phases = 0;
    int loaded[1];
    PAL_UNROLL for (int r = 0; r < 1; ++r) loaded[r] = thread % 32 < 8 ? pal::load_constant(sizes + (i64)((thread % 32))) : (-2147483647 - 1);
    const bool is = block < 56;
    const int i = 4 + is;
    int carry = 0;
    PAL_ROLLED
    for (int local_tile = 0; local_tile < i; ++local_tile) {
      const int i_2 = local_tile * 66;
      const int i_3 = i_2 + block;
      const int i_4 = i_3 % 320;
      int v[1];
      PAL_UNROLL for (int r = 0; r < 1; ++r) v[r] = (int)((u32)loaded[r] + (u32)127);
      int v_2[1];
      PAL_UNROLL for (int r = 0; r < 1; ++r) v_2[r] = v[r] / 128;
      int scan[1];
      int before = 0;
      PAL_UNROLL for (int r = 0; r < 1; ++r) {
        int sum = v_2[r];
        PAL_UNROLL for (int step = 1; step < 32; step *= 2) {
          const int other = pal::shuffle_up(sum, step);
          if (lane >= step) sum = (int)((u32)other + (u32)sum);
        }
        scan[r] = (int)((u32)before + (u32)sum);
        before = pal::shuffle(scan[r], 31);
      }
      int v_3[1];
      PAL_UNROLL for (int r = 0; r < 1; ++r) v_3[r] = (int)((u32)scan[r] * (u32)8);
      bool v_4[1];
      PAL_UNROLL for (int r = 0; r < 1; ++r) v_4[r] = i_4 >= v_3[r];
      int v_5[1];
      PAL_UNROLL for (int r = 0; r < 1; ++r) v_5[r] = (int)v_4[r];
      int folded[1];
      PAL_UNROLL for (int r = 0; r < 1; ++r) folded[r] = 0;
      PAL_UNROLL for (int r = 0; r < 1; ++r) folded[0] = (int)((u32)folded[0] + (u32)(thread % 32 < 8 ? v_5[r] : 0));
      PAL_UNROLL for (int r = 0; r < 1; ++r) folded[r] = pal::warp_sum(folded[r]);
      int v_6[1];
      PAL_UNROLL for (int r = 0; r < 1; ++r) v_6[r] = (v_4[r] ? loaded[r] : 0);
      int folded_2[1];
      PAL_UNROLL for (int r = 0; r < 1; ++r) folded_2[r] = 0;
      PAL_UNROLL for (int r = 0; r < 1; ++r) folded_2[0] = (int)((u32)folded_2[0] + (u32)(thread % 32 < 8 ? v_6[r] : 0));
      PAL_UNROLL for (int r = 0; r < 1; ++r) folded_2[r] = pal::warp_sum(folded_2[r]);
      int v_7[1];
      PAL_UNROLL for (int r = 0; r < 1; ++r) v_7[r] = (v_4[r] ? v_2[r] : 0);
      int folded_3[1];
      PAL_UNROLL for (int r = 0; r < 1; ++r) folded_3[r] = 0;
      PAL_UNROLL for (int r = 0; r < 1; ++r) folded_3[0] = (int)((u32)folded_3[0] + (u32)(thread % 32 < 8 ? v_7[r] : 0));
      PAL_UNROLL for (int r = 0; r < 1; ++r) folded_3[r] = pal::warp_sum(folded_3[r]);
      const int i_5 = (int)((u32)folded_3[0] * (u32)8);
      int v_8[1];
      PAL_UNROLL for (int r = 0; r < 1; ++r) v_8[r] = ((((int)(thread % 32)) == folded[0]) ? loaded[r] : 0);
      int folded_4[1];
      PAL_UNROLL for (int r = 0; r < 1; ++r) folded_4[r] = 0;
      PAL_UNROLL for (int r = 0; r < 1; ++r) folded_4[0] = (int)((u32)folded_4[0] + (u32)(thread % 32 < 8 ? v_8[r] : 0));
      PAL_UNROLL for (int r = 0; r < 1; ++r) folded_4[r] = pal::warp_sum(folded_4[r]);
      const bool is_2 = folded[0] < 8;
      const int i_6 = (int)((u32)4096 - (u32)folded_2[0]);
      const int i_7 = (is_2 ? folded_4[0] : i_6);
      const int i_8 = (int)((u32)i_4 - (u32)i_5);
      const int i_9 = (i_7 > 0 ? i_7 : 0);
      const int i_10 = (int)((u32)i_9 + (u32)127);
      const int i_11 = i_10 / 128;
      const int i_12 = (i_11 > 1 ? i_11 : 1);
      const int i_13 = i_12 / 8;
      const int i_14 = (i_13 > 1 ? i_13 : 1);
      const int i_15 = i_14 - 1;
      const int i_16 = i_12 + i_15;
      const int i_17 = (i_14 == 0 ? (int)-1 : i_14 == -1 ? (int)(0 - (u32)i_16) : i_16 / (i_14 == 0 ? 1 : i_14));
      const int i_18 = i_17 * 8;
      const int i_19 = (i_18 == 0 ? (int)-1 : i_18 == -1 ? (int)(0 - (u32)i_8) : i_8 / (i_18 == 0 ? 1 : i_18));
      const int i_20 = (int)((u32)i_19 * (u32)i_18);
      const int i_21 = (int)((u32)i_8 - (u32)i_20);
      const int i_22 = (int)((u32)i_19 * (u32)i_17);
      const int i_23 = (int)((u32)i_12 - (u32)i_22);
      const int i_24 = (i_23 > 1 ? i_23 : 1);
      const int i_25 = (i_24 < i_17 ? i_24 : i_17);
      const int i_26 = (i_25 == 0 ? i_21 : i_25 == -1 ? 0 : i_21 % (i_25 == 0 ? 1 : i_25));
      const int i_27 = (int)((u32)i_22 + (u32)i_26);
      const int i_28 = (i_25 == 0 ? (int)-1 : i_25 == -1 ? (int)(0 - (u32)i_21) : i_21 / (i_25 == 0 ? 1 : i_25));
      const int i_29 = i_19 % 2;
      const bool is_3 = i_29 == 1;
      const int i_30 = (int)((u32)7 - (u32)i_28);
      const int i_31 = (is_3 ? i_30 : i_28);
      const int i_32 = (int)((u32)i_31 * (u32)2);
      const int i_33 = (int)((u32)i_32 + (u32)peer);
      const int i_34 = (int)((u32)i_27 * (u32)128);
      const int i_35 = (int)((u32)folded_2[0] + (u32)i_34);
      const int i_36 = (folded[0] < 7 ? folded[0] : 7);
      const int i_37 = (int)((u32)i_33 * (u32)256);
      const int i_38 = (is_2 ? 32 : 0);
      PAL_ROLLED
      for (int step_2 = 0; step_2 < i_38; ++step_2) {
        const int i_39 = (int)((u32)carry + (u32)step_2);
        const int i_40 = step_2 * 64;
        const bool is_4 = i_36 < 0;
        const int i_41 = i_36 + 8;
        const int i_42 = (is_4 ? i_41 : i_36);
        const u32 i_43 = (u32)i_39;
        const u32 i_44 = i_43 % 4u;
        const int i_45 = (int)i_44;
        const bool is_5 = i_39 >= 4;
        if (is_5) {
          pal::wait(smem + 197632 + i_45 * 8, operands_drained_phases >> i_45 & 1);
          operands_drained_phases ^= 1u << i_45;
        }
        pal::sync_named(3, 128);
        if (warp == 0 && pal::elect()) {
          pal::arrive_expect(smem + 197664 + i_45 * 8, 16384);
          pal::tma_load_multicast(&lhs_boxes, smem + 1024 + i_45 * 16384 + (pal::cluster_rank()) * 8192, smem + 197664 + i_45 * 8, 0x3, i_40, i_35 + (pal::cluster_rank()) * 64);
          pal::arrive_expect(smem + 197664 + i_45 * 8, 32768);
          pal::tma_load(&rhs_boxes, smem + 66560 + i_45 * 32768, smem + 197664 + i_45 * 8, i_37, i_40, i_42);
          pal::tma_load(&rhs_boxes, smem + 66560 + i_45 * 32768 + 8192, smem + 197664 + i_45 * 8, i_37 + 64, i_40, i_42);
          pal::tma_load(&rhs_boxes, smem + 66560 + i_45 * 32768 + 16384, smem + 197664 + i_45 * 8, i_37 + 128, i_40, i_42);
          pal::tma_load(&rhs_boxes, smem + 66560 + i_45 * 32768 + 24576, smem + 197664 + i_45 * 8, i_37 + 192, i_40, i_42);
        }
      }
      const int i_46 = (int)((u32)carry + (u32)i_38);
      carry = i_46;
    }
    const int i_47 = (int)((u32)carry - (u32)4);
    const int i_48 = (i_47 > 0 ? i_47 : 0);
    PAL_ROLLED
    for (int step_3 = i_48; step_3 < carry; ++step_3) {
      const u32 i_49 = (u32)step_3;
      const u32 i_50 = i_49 % 4u;
      const int i_51 = (int)i_50;
      pal::wait(smem + 197632 + i_51 * 8, operands_drained_phases >> i_51 & 1);
      operands_drained_phases ^= 1u << i_51;
    }
  }
  pal::sync_cluster();  // no block ends while others may still reach it
}
