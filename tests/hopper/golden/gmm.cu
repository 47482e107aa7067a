// grid 132, cluster 1, 384 threads, 231424 bytes shared
// lhs_boxes: MapSpec(array=1, dtype=dtype(bfloat16), dims=(4096, 2048), strides=(4096,), box=(128, 64), swizzle=128, fill='zeros', promotion=128)
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
//   197632  operands_drained: 4 barriers of 8
//   197664  operands_filled: 4 barriers of 2
//   198656  staging: 2x2x64x64 of 2 bytes, swizzled by 128
PAL_KERNEL void PAL_BOUNDS(384) gmm_kernel(
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
    for (int n = 0; n < 4; ++n) pal::barrier_init(smem + 197632 + 8 * n, 8);
    for (int n = 0; n < 4; ++n) pal::barrier_init(smem + 197664 + 8 * n, 2);
    pal::fence_barrier_init();
  }
  pal::sync_block();
  if (warpgroup < 2) {
    pal::registers_increase<232>();
    const int block = pal::block_index();
    u32 operands_filled_phases = 0;
    int loaded[1];
    PAL_UNROLL for (int r = 0; r < 1; ++r) loaded[r] = thread % 32 < 8 ? pal::load_constant(sizes + (i64)((thread % 32))) : (-2147483647 - 1);
    const bool is = block < 112;
    const int i = 4 + is;
    int carry = 0;
    PAL_ROLLED
    for (int step_2 = 0; step_2 < i; ++step_2) {
      const int i_2 = step_2 * 132;
      const int i_3 = i_2 + block;
      const int i_4 = i_3 % 640;
      const int i_5 = (i_4 > 0) - (i_4 < 0);
      const bool is_2 = i_5 != 1;
      const bool is_3 = i_4 != 0;
      const bool is_4 = is_2 & is_3;
      const int i_6 = i_4 + 640;
      const int i_7 = (is_4 ? i_6 : i_4);
      const int i_8 = i_7 / 128;
      const int i_9 = i_7 % 128;
      const int i_10 = (i_9 > 0) - (i_9 < 0);
      const bool is_5 = i_10 != 1;
      const bool is_6 = i_9 != 0;
      const bool is_7 = is_5 & is_6;
      const int i_11 = i_8 - 1;
      const int i_12 = (is_7 ? i_11 : i_8);
      const int i_13 = i_9 + 128;
      const int i_14 = (is_7 ? i_13 : i_9);
      const int i_15 = i_12 * 8;
      const int i_16 = i_14 / 8;
      const int i_17 = i_14 % 8;
      const int i_18 = (i_17 > 0) - (i_17 < 0);
      const bool is_8 = i_18 != 1;
      const bool is_9 = i_17 != 0;
      const bool is_10 = is_8 & is_9;
      const int i_19 = i_16 - 1;
      const int i_20 = (is_10 ? i_19 : i_16);
      const int i_21 = i_17 + 8;
      const int i_22 = (is_10 ? i_21 : i_17);
      const int i_23 = i_15 + i_22;
      const int i_24 = i_12 % 2;
      const int i_25 = (i_24 > 0) - (i_24 < 0);
      const bool is_11 = i_25 != 1;
      const bool is_12 = i_24 != 0;
      const bool is_13 = is_11 & is_12;
      const int i_26 = i_24 + 2;
      const int i_27 = (is_13 ? i_26 : i_24);
      const int i_28 = 2 * i_20;
      const int i_29 = 15 - i_28;
      const int i_30 = i_27 * i_29;
      const int i_31 = i_20 + i_30;
      int v[1];
      PAL_UNROLL for (int r = 0; r < 1; ++r) v[r] = loaded[r] + 127;
      int v_2[1];
      PAL_UNROLL for (int r = 0; r < 1; ++r) v_2[r] = v[r] / 128;
      int v_3[1];
      PAL_UNROLL for (int r = 0; r < 1; ++r) v_3[r] = v[r] % 128;
      int v_4[1];
      PAL_UNROLL for (int r = 0; r < 1; ++r) v_4[r] = (v_3[r] > 0) - (v_3[r] < 0);
      bool v_5[1];
      PAL_UNROLL for (int r = 0; r < 1; ++r) v_5[r] = v_4[r] != 1;
      bool v_6[1];
      PAL_UNROLL for (int r = 0; r < 1; ++r) v_6[r] = v_3[r] != 0;
      bool v_7[1];
      PAL_UNROLL for (int r = 0; r < 1; ++r) v_7[r] = v_5[r] & v_6[r];
      int v_8[1];
      PAL_UNROLL for (int r = 0; r < 1; ++r) v_8[r] = v_2[r] - 1;
      int v_9[1];
      PAL_UNROLL for (int r = 0; r < 1; ++r) v_9[r] = (v_7[r] ? v_8[r] : v_2[r]);
      int scan[1];
      int before = 0;
      PAL_UNROLL for (int r = 0; r < 1; ++r) {
        int sum = v_9[r];
        PAL_UNROLL for (int step = 1; step < 32; step *= 2) {
          const int other = pal::shuffle_up(sum, step);
          if (lane >= step) sum = other + sum;
        }
        scan[r] = before + sum;
        before = pal::shuffle(scan[r], 31);
      }
      bool v_10[1];
      PAL_UNROLL for (int r = 0; r < 1; ++r) v_10[r] = i_23 >= scan[r];
      int v_11[1];
      PAL_UNROLL for (int r = 0; r < 1; ++r) v_11[r] = (int)v_10[r];
      int total[1];
      PAL_UNROLL for (int r = 0; r < 1; ++r) total[r] = 0;
      PAL_UNROLL for (int r = 0; r < 1; ++r) total[0] = total[0] + (thread % 32 < 8 ? v_11[r] : 0);
      PAL_UNROLL for (int r = 0; r < 1; ++r) { const int other = pal::shuffle_xor(total[r], 1); total[r] = total[r] + other; }
      PAL_UNROLL for (int r = 0; r < 1; ++r) { const int other = pal::shuffle_xor(total[r], 2); total[r] = total[r] + other; }
      PAL_UNROLL for (int r = 0; r < 1; ++r) { const int other = pal::shuffle_xor(total[r], 4); total[r] = total[r] + other; }
      PAL_UNROLL for (int r = 0; r < 1; ++r) { const int other = pal::shuffle_xor(total[r], 8); total[r] = total[r] + other; }
      PAL_UNROLL for (int r = 0; r < 1; ++r) { const int other = pal::shuffle_xor(total[r], 16); total[r] = total[r] + other; }
      int v_12[1];
      PAL_UNROLL for (int r = 0; r < 1; ++r) v_12[r] = (v_10[r] ? loaded[r] : 0);
      int total_2[1];
      PAL_UNROLL for (int r = 0; r < 1; ++r) total_2[r] = 0;
      PAL_UNROLL for (int r = 0; r < 1; ++r) total_2[0] = total_2[0] + (thread % 32 < 8 ? v_12[r] : 0);
      PAL_UNROLL for (int r = 0; r < 1; ++r) { const int other = pal::shuffle_xor(total_2[r], 1); total_2[r] = total_2[r] + other; }
      PAL_UNROLL for (int r = 0; r < 1; ++r) { const int other = pal::shuffle_xor(total_2[r], 2); total_2[r] = total_2[r] + other; }
      PAL_UNROLL for (int r = 0; r < 1; ++r) { const int other = pal::shuffle_xor(total_2[r], 4); total_2[r] = total_2[r] + other; }
      PAL_UNROLL for (int r = 0; r < 1; ++r) { const int other = pal::shuffle_xor(total_2[r], 8); total_2[r] = total_2[r] + other; }
      PAL_UNROLL for (int r = 0; r < 1; ++r) { const int other = pal::shuffle_xor(total_2[r], 16); total_2[r] = total_2[r] + other; }
      int v_13[1];
      PAL_UNROLL for (int r = 0; r < 1; ++r) v_13[r] = (v_10[r] ? v_9[r] : 0);
      int total_3[1];
      PAL_UNROLL for (int r = 0; r < 1; ++r) total_3[r] = 0;
      PAL_UNROLL for (int r = 0; r < 1; ++r) total_3[0] = total_3[0] + (thread % 32 < 8 ? v_13[r] : 0);
      PAL_UNROLL for (int r = 0; r < 1; ++r) { const int other = pal::shuffle_xor(total_3[r], 1); total_3[r] = total_3[r] + other; }
      PAL_UNROLL for (int r = 0; r < 1; ++r) { const int other = pal::shuffle_xor(total_3[r], 2); total_3[r] = total_3[r] + other; }
      PAL_UNROLL for (int r = 0; r < 1; ++r) { const int other = pal::shuffle_xor(total_3[r], 4); total_3[r] = total_3[r] + other; }
      PAL_UNROLL for (int r = 0; r < 1; ++r) { const int other = pal::shuffle_xor(total_3[r], 8); total_3[r] = total_3[r] + other; }
      PAL_UNROLL for (int r = 0; r < 1; ++r) { const int other = pal::shuffle_xor(total_3[r], 16); total_3[r] = total_3[r] + other; }
      const int i_32 = i_23 - total_3[0];
      int v_14[1];
      PAL_UNROLL for (int r = 0; r < 1; ++r) v_14[r] = ((((int)(thread % 32)) == total[0]) ? loaded[r] : 0);
      int total_4[1];
      PAL_UNROLL for (int r = 0; r < 1; ++r) total_4[r] = 0;
      PAL_UNROLL for (int r = 0; r < 1; ++r) total_4[0] = total_4[0] + (thread % 32 < 8 ? v_14[r] : 0);
      PAL_UNROLL for (int r = 0; r < 1; ++r) { const int other = pal::shuffle_xor(total_4[r], 1); total_4[r] = total_4[r] + other; }
      PAL_UNROLL for (int r = 0; r < 1; ++r) { const int other = pal::shuffle_xor(total_4[r], 2); total_4[r] = total_4[r] + other; }
      PAL_UNROLL for (int r = 0; r < 1; ++r) { const int other = pal::shuffle_xor(total_4[r], 4); total_4[r] = total_4[r] + other; }
      PAL_UNROLL for (int r = 0; r < 1; ++r) { const int other = pal::shuffle_xor(total_4[r], 8); total_4[r] = total_4[r] + other; }
      PAL_UNROLL for (int r = 0; r < 1; ++r) { const int other = pal::shuffle_xor(total_4[r], 16); total_4[r] = total_4[r] + other; }
      const bool is_14 = total[0] < 8;
      const int i_33 = 4096 - total_2[0];
      const int i_34 = (is_14 ? total_4[0] : i_33);
      const int i_35 = i_32 * 128;
      const int i_36 = total_2[0] + i_35;
      const int i_37 = i_34 - i_35;
      const int i_38 = (i_37 > 0 ? i_37 : 0);
      const int i_39 = (i_38 < 128 ? i_38 : 128);
      const int i_40 = i_31 * 256;
      const int i_41 = (is_14 ? 32 : 0);
      const bool is_15 = i_39 > 0;
      if (is_15) {
        {
          float acc[1][128];
          PAL_UNROLL for (int r = 0; r < 128; ++r) acc[r / 128][r % 128] = 0;
          PAL_ROLLED
          for (int step_3 = 0; step_3 < i_41; ++step_3) {
            const int i_42 = carry + step_3;
            const int i_43 = i_42 % 4;
            const bool is_16 = i_43 < 0;
            const int i_44 = i_43 + 4;
            const int i_45 = (is_16 ? i_44 : i_43);
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
            const bool is_17 = step_3 > 0;
            if (is_17) {
              const int i_47 = carry + step_3;
              const int i_48 = i_47 - 1;
              const int i_49 = i_48 % 4;
              const bool is_18 = i_49 < 0;
              const int i_50 = i_49 + 4;
              const int i_51 = (is_18 ? i_50 : i_49);
              pal::sync_warp();
              if (lane == 0) pal::arrive(smem + 197632 + i_51 * 8);
            }
          }
          pal::wgmma_wait<0>();
          pal::keep(acc[0]);
          const bool is_19 = i_41 > 0;
          if (is_19) {
            const int i_52 = carry + i_41;
            const int i_53 = i_52 - 1;
            const int i_54 = i_53 % 4;
            const bool is_20 = i_54 < 0;
            const int i_55 = i_54 + 4;
            const int i_56 = (is_20 ? i_55 : i_54);
            pal::sync_warp();
            if (lane == 0) pal::arrive(smem + 197632 + i_56 * 8);
          }
          const int i_57 = warpgroup * 64;
          const int i_58 = i_39 - i_57;
          const int i_59 = (i_58 > 0 ? i_58 : 0);
          const int i_60 = (i_59 < 64 ? i_59 : 64);
          const int i_61 = i_36 + i_57;
          if (warp == 0 && pal::elect()) {
            pal::bulk_wait_read<0>();
          }
          pal::sync_named(1 + warpgroup, 128);
          float part[32];
          PAL_UNROLL for (int r = 0; r < 32; ++r) part[r] = acc[0][r];
          float v_15[32];
          PAL_UNROLL for (int r = 0; r < 32; ++r) v_15[r] = part[r];
          PAL_UNROLL for (int r = 0; r < 32; r += 8) {
            const u32 at = smem + 198656 + warpgroup * 16384 + (warp * 16 + lane % 16) * 128 + (r / 8 * 16 + lane / 16 * 8) * 2;
            pal::stmatrix4((at ^ (at >> 3 & 0x70)), pal::pack_bf16(v_15[r], v_15[r + 1]), pal::pack_bf16(v_15[r + 2], v_15[r + 3]), pal::pack_bf16(v_15[r + 4], v_15[r + 5]), pal::pack_bf16(v_15[r + 6], v_15[r + 7]));
          }
          pal::fence_async();
          pal::sync_named(1 + warpgroup, 128);
          const bool is_21 = i_60 == 64;
          if (is_21) {
            if (warp == 0 && pal::elect()) {
              pal::tma_store(&out_boxes, smem + 198656 + warpgroup * 16384, i_40, i_61);
            }
          }
          const bool is_22 = i_60 < 64;
          if (is_22) {
            const int i_62 = i_60 % 64;
            const int i_63 = (i_62 > 0) - (i_62 < 0);
            const bool is_23 = i_63 != 1;
            const bool is_24 = i_62 != 0;
            const bool is_25 = is_23 & is_24;
            const int i_64 = i_62 + 64;
            const int i_65 = (is_25 ? i_64 : i_62);
            const int i_66 = i_60 - i_65;
            const int i_67 = i_60 & 32;
            const bool is_26 = i_67 != 0;
            const int i_68 = i_61 + i_66;
            const int i_69 = i_60 % 32;
            const int i_70 = (i_69 > 0) - (i_69 < 0);
            const bool is_27 = i_70 != 1;
            const bool is_28 = i_69 != 0;
            const bool is_29 = is_27 & is_28;
            const int i_71 = i_69 + 32;
            const int i_72 = (is_29 ? i_71 : i_69);
            const int i_73 = i_60 - i_72;
            const int i_74 = i_60 & 16;
            const bool is_30 = i_74 != 0;
            const int i_75 = i_61 + i_73;
            const int i_76 = i_60 % 16;
            const int i_77 = (i_76 > 0) - (i_76 < 0);
            const bool is_31 = i_77 != 1;
            const bool is_32 = i_76 != 0;
            const bool is_33 = is_31 & is_32;
            const int i_78 = i_76 + 16;
            const int i_79 = (is_33 ? i_78 : i_76);
            const int i_80 = i_60 - i_79;
            const int i_81 = i_60 & 8;
            const bool is_34 = i_81 != 0;
            const int i_82 = i_61 + i_80;
            const int i_83 = i_60 % 8;
            const int i_84 = (i_83 > 0) - (i_83 < 0);
            const bool is_35 = i_84 != 1;
            const bool is_36 = i_83 != 0;
            const bool is_37 = is_35 & is_36;
            const int i_85 = i_83 + 8;
            const int i_86 = (is_37 ? i_85 : i_83);
            const int i_87 = i_60 - i_86;
            const int i_88 = i_60 & 4;
            const bool is_38 = i_88 != 0;
            const int i_89 = i_61 + i_87;
            const int i_90 = i_60 % 4;
            const int i_91 = (i_90 > 0) - (i_90 < 0);
            const bool is_39 = i_91 != 1;
            const bool is_40 = i_90 != 0;
            const bool is_41 = is_39 & is_40;
            const int i_92 = i_90 + 4;
            const int i_93 = (is_41 ? i_92 : i_90);
            const int i_94 = i_60 - i_93;
            const int i_95 = i_60 & 2;
            const bool is_42 = i_95 != 0;
            const int i_96 = i_61 + i_94;
            const int i_97 = i_60 % 2;
            const int i_98 = (i_97 > 0) - (i_97 < 0);
            const bool is_43 = i_98 != 1;
            const bool is_44 = i_97 != 0;
            const bool is_45 = is_43 & is_44;
            const int i_99 = i_97 + 2;
            const int i_100 = (is_45 ? i_99 : i_97);
            const int i_101 = i_60 - i_100;
            const int i_102 = i_60 & 1;
            const bool is_46 = i_102 != 0;
            const int i_103 = i_61 + i_101;
            if (warp == 0 && pal::elect()) {
              if (is_26) {
                pal::tma_store(&out_boxes_32x64, smem + 198656 + warpgroup * 16384 + i_66 * 128, i_40, i_68);
              }
              if (is_30) {
                pal::tma_store(&out_boxes_16x64, smem + 198656 + warpgroup * 16384 + i_73 * 128, i_40, i_75);
              }
              if (is_34) {
                pal::tma_store(&out_boxes_8x64, smem + 198656 + warpgroup * 16384 + i_80 * 128, i_40, i_82);
              }
              if (is_38) {
                pal::tma_store(&out_boxes_4x64, smem + 198656 + warpgroup * 16384 + i_87 * 128, i_40, i_89);
              }
              if (is_42) {
                pal::tma_store(&out_boxes_2x64, smem + 198656 + warpgroup * 16384 + i_94 * 128, i_40, i_96);
              }
              if (is_46) {
                pal::tma_store(&out_boxes_1x64, smem + 198656 + warpgroup * 16384 + i_101 * 128, i_40, i_103);
              }
            }
          }
          if (warp == 0 && pal::elect()) {
            pal::bulk_commit();
          }
          float part_2[32];
          PAL_UNROLL for (int r = 0; r < 32; ++r) part_2[r] = acc[0][r + 32];
          float v_16[32];
          PAL_UNROLL for (int r = 0; r < 32; ++r) v_16[r] = part_2[r];
          PAL_UNROLL for (int r = 0; r < 32; r += 8) {
            const u32 at = smem + 198656 + warpgroup * 16384 + (warp * 16 + lane % 16) * 128 + (r / 8 * 16 + lane / 16 * 8) * 2 + 8192;
            pal::stmatrix4((at ^ (at >> 3 & 0x70)), pal::pack_bf16(v_16[r], v_16[r + 1]), pal::pack_bf16(v_16[r + 2], v_16[r + 3]), pal::pack_bf16(v_16[r + 4], v_16[r + 5]), pal::pack_bf16(v_16[r + 6], v_16[r + 7]));
          }
          pal::fence_async();
          pal::sync_named(1 + warpgroup, 128);
          const int i_104 = i_40 + 64;
          if (is_21) {
            if (warp == 0 && pal::elect()) {
              pal::tma_store(&out_boxes, smem + 198656 + warpgroup * 16384 + 8192, i_104, i_61);
            }
          }
          if (is_22) {
            const int i_105 = i_60 % 64;
            const int i_106 = (i_105 > 0) - (i_105 < 0);
            const bool is_47 = i_106 != 1;
            const bool is_48 = i_105 != 0;
            const bool is_49 = is_47 & is_48;
            const int i_107 = i_105 + 64;
            const int i_108 = (is_49 ? i_107 : i_105);
            const int i_109 = i_60 - i_108;
            const int i_110 = i_60 & 32;
            const bool is_50 = i_110 != 0;
            const int i_111 = i_61 + i_109;
            const int i_112 = i_60 % 32;
            const int i_113 = (i_112 > 0) - (i_112 < 0);
            const bool is_51 = i_113 != 1;
            const bool is_52 = i_112 != 0;
            const bool is_53 = is_51 & is_52;
            const int i_114 = i_112 + 32;
            const int i_115 = (is_53 ? i_114 : i_112);
            const int i_116 = i_60 - i_115;
            const int i_117 = i_60 & 16;
            const bool is_54 = i_117 != 0;
            const int i_118 = i_61 + i_116;
            const int i_119 = i_60 % 16;
            const int i_120 = (i_119 > 0) - (i_119 < 0);
            const bool is_55 = i_120 != 1;
            const bool is_56 = i_119 != 0;
            const bool is_57 = is_55 & is_56;
            const int i_121 = i_119 + 16;
            const int i_122 = (is_57 ? i_121 : i_119);
            const int i_123 = i_60 - i_122;
            const int i_124 = i_60 & 8;
            const bool is_58 = i_124 != 0;
            const int i_125 = i_61 + i_123;
            const int i_126 = i_60 % 8;
            const int i_127 = (i_126 > 0) - (i_126 < 0);
            const bool is_59 = i_127 != 1;
            const bool is_60 = i_126 != 0;
            const bool is_61 = is_59 & is_60;
            const int i_128 = i_126 + 8;
            const int i_129 = (is_61 ? i_128 : i_126);
            const int i_130 = i_60 - i_129;
            const int i_131 = i_60 & 4;
            const bool is_62 = i_131 != 0;
            const int i_132 = i_61 + i_130;
            const int i_133 = i_60 % 4;
            const int i_134 = (i_133 > 0) - (i_133 < 0);
            const bool is_63 = i_134 != 1;
            const bool is_64 = i_133 != 0;
            const bool is_65 = is_63 & is_64;
            const int i_135 = i_133 + 4;
            const int i_136 = (is_65 ? i_135 : i_133);
            const int i_137 = i_60 - i_136;
            const int i_138 = i_60 & 2;
            const bool is_66 = i_138 != 0;
            const int i_139 = i_61 + i_137;
            const int i_140 = i_60 % 2;
            const int i_141 = (i_140 > 0) - (i_140 < 0);
            const bool is_67 = i_141 != 1;
            const bool is_68 = i_140 != 0;
            const bool is_69 = is_67 & is_68;
            const int i_142 = i_140 + 2;
            const int i_143 = (is_69 ? i_142 : i_140);
            const int i_144 = i_60 - i_143;
            const int i_145 = i_60 & 1;
            const bool is_70 = i_145 != 0;
            const int i_146 = i_61 + i_144;
            if (warp == 0 && pal::elect()) {
              if (is_50) {
                pal::tma_store(&out_boxes_32x64, smem + 198656 + warpgroup * 16384 + i_109 * 128 + 8192, i_104, i_111);
              }
              if (is_54) {
                pal::tma_store(&out_boxes_16x64, smem + 198656 + warpgroup * 16384 + i_116 * 128 + 8192, i_104, i_118);
              }
              if (is_58) {
                pal::tma_store(&out_boxes_8x64, smem + 198656 + warpgroup * 16384 + i_123 * 128 + 8192, i_104, i_125);
              }
              if (is_62) {
                pal::tma_store(&out_boxes_4x64, smem + 198656 + warpgroup * 16384 + i_130 * 128 + 8192, i_104, i_132);
              }
              if (is_66) {
                pal::tma_store(&out_boxes_2x64, smem + 198656 + warpgroup * 16384 + i_137 * 128 + 8192, i_104, i_139);
              }
              if (is_70) {
                pal::tma_store(&out_boxes_1x64, smem + 198656 + warpgroup * 16384 + i_144 * 128 + 8192, i_104, i_146);
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
          float v_17[32];
          PAL_UNROLL for (int r = 0; r < 32; ++r) v_17[r] = part_3[r];
          PAL_UNROLL for (int r = 0; r < 32; r += 8) {
            const u32 at = smem + 198656 + warpgroup * 16384 + (warp * 16 + lane % 16) * 128 + (r / 8 * 16 + lane / 16 * 8) * 2;
            pal::stmatrix4((at ^ (at >> 3 & 0x70)), pal::pack_bf16(v_17[r], v_17[r + 1]), pal::pack_bf16(v_17[r + 2], v_17[r + 3]), pal::pack_bf16(v_17[r + 4], v_17[r + 5]), pal::pack_bf16(v_17[r + 6], v_17[r + 7]));
          }
          pal::fence_async();
          pal::sync_named(1 + warpgroup, 128);
          const int i_147 = i_40 + 128;
          if (is_21) {
            if (warp == 0 && pal::elect()) {
              pal::tma_store(&out_boxes, smem + 198656 + warpgroup * 16384, i_147, i_61);
            }
          }
          if (is_22) {
            const int i_148 = i_60 % 64;
            const int i_149 = (i_148 > 0) - (i_148 < 0);
            const bool is_71 = i_149 != 1;
            const bool is_72 = i_148 != 0;
            const bool is_73 = is_71 & is_72;
            const int i_150 = i_148 + 64;
            const int i_151 = (is_73 ? i_150 : i_148);
            const int i_152 = i_60 - i_151;
            const int i_153 = i_60 & 32;
            const bool is_74 = i_153 != 0;
            const int i_154 = i_61 + i_152;
            const int i_155 = i_60 % 32;
            const int i_156 = (i_155 > 0) - (i_155 < 0);
            const bool is_75 = i_156 != 1;
            const bool is_76 = i_155 != 0;
            const bool is_77 = is_75 & is_76;
            const int i_157 = i_155 + 32;
            const int i_158 = (is_77 ? i_157 : i_155);
            const int i_159 = i_60 - i_158;
            const int i_160 = i_60 & 16;
            const bool is_78 = i_160 != 0;
            const int i_161 = i_61 + i_159;
            const int i_162 = i_60 % 16;
            const int i_163 = (i_162 > 0) - (i_162 < 0);
            const bool is_79 = i_163 != 1;
            const bool is_80 = i_162 != 0;
            const bool is_81 = is_79 & is_80;
            const int i_164 = i_162 + 16;
            const int i_165 = (is_81 ? i_164 : i_162);
            const int i_166 = i_60 - i_165;
            const int i_167 = i_60 & 8;
            const bool is_82 = i_167 != 0;
            const int i_168 = i_61 + i_166;
            const int i_169 = i_60 % 8;
            const int i_170 = (i_169 > 0) - (i_169 < 0);
            const bool is_83 = i_170 != 1;
            const bool is_84 = i_169 != 0;
            const bool is_85 = is_83 & is_84;
            const int i_171 = i_169 + 8;
            const int i_172 = (is_85 ? i_171 : i_169);
            const int i_173 = i_60 - i_172;
            const int i_174 = i_60 & 4;
            const bool is_86 = i_174 != 0;
            const int i_175 = i_61 + i_173;
            const int i_176 = i_60 % 4;
            const int i_177 = (i_176 > 0) - (i_176 < 0);
            const bool is_87 = i_177 != 1;
            const bool is_88 = i_176 != 0;
            const bool is_89 = is_87 & is_88;
            const int i_178 = i_176 + 4;
            const int i_179 = (is_89 ? i_178 : i_176);
            const int i_180 = i_60 - i_179;
            const int i_181 = i_60 & 2;
            const bool is_90 = i_181 != 0;
            const int i_182 = i_61 + i_180;
            const int i_183 = i_60 % 2;
            const int i_184 = (i_183 > 0) - (i_183 < 0);
            const bool is_91 = i_184 != 1;
            const bool is_92 = i_183 != 0;
            const bool is_93 = is_91 & is_92;
            const int i_185 = i_183 + 2;
            const int i_186 = (is_93 ? i_185 : i_183);
            const int i_187 = i_60 - i_186;
            const int i_188 = i_60 & 1;
            const bool is_94 = i_188 != 0;
            const int i_189 = i_61 + i_187;
            if (warp == 0 && pal::elect()) {
              if (is_74) {
                pal::tma_store(&out_boxes_32x64, smem + 198656 + warpgroup * 16384 + i_152 * 128, i_147, i_154);
              }
              if (is_78) {
                pal::tma_store(&out_boxes_16x64, smem + 198656 + warpgroup * 16384 + i_159 * 128, i_147, i_161);
              }
              if (is_82) {
                pal::tma_store(&out_boxes_8x64, smem + 198656 + warpgroup * 16384 + i_166 * 128, i_147, i_168);
              }
              if (is_86) {
                pal::tma_store(&out_boxes_4x64, smem + 198656 + warpgroup * 16384 + i_173 * 128, i_147, i_175);
              }
              if (is_90) {
                pal::tma_store(&out_boxes_2x64, smem + 198656 + warpgroup * 16384 + i_180 * 128, i_147, i_182);
              }
              if (is_94) {
                pal::tma_store(&out_boxes_1x64, smem + 198656 + warpgroup * 16384 + i_187 * 128, i_147, i_189);
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
          float v_18[32];
          PAL_UNROLL for (int r = 0; r < 32; ++r) v_18[r] = part_4[r];
          PAL_UNROLL for (int r = 0; r < 32; r += 8) {
            const u32 at = smem + 198656 + warpgroup * 16384 + (warp * 16 + lane % 16) * 128 + (r / 8 * 16 + lane / 16 * 8) * 2 + 8192;
            pal::stmatrix4((at ^ (at >> 3 & 0x70)), pal::pack_bf16(v_18[r], v_18[r + 1]), pal::pack_bf16(v_18[r + 2], v_18[r + 3]), pal::pack_bf16(v_18[r + 4], v_18[r + 5]), pal::pack_bf16(v_18[r + 6], v_18[r + 7]));
          }
          pal::fence_async();
          pal::sync_named(1 + warpgroup, 128);
          const int i_190 = i_40 + 192;
          if (is_21) {
            if (warp == 0 && pal::elect()) {
              pal::tma_store(&out_boxes, smem + 198656 + warpgroup * 16384 + 8192, i_190, i_61);
            }
          }
          if (is_22) {
            const int i_191 = i_60 % 64;
            const int i_192 = (i_191 > 0) - (i_191 < 0);
            const bool is_95 = i_192 != 1;
            const bool is_96 = i_191 != 0;
            const bool is_97 = is_95 & is_96;
            const int i_193 = i_191 + 64;
            const int i_194 = (is_97 ? i_193 : i_191);
            const int i_195 = i_60 - i_194;
            const int i_196 = i_60 & 32;
            const bool is_98 = i_196 != 0;
            const int i_197 = i_61 + i_195;
            const int i_198 = i_60 % 32;
            const int i_199 = (i_198 > 0) - (i_198 < 0);
            const bool is_99 = i_199 != 1;
            const bool is_100 = i_198 != 0;
            const bool is_101 = is_99 & is_100;
            const int i_200 = i_198 + 32;
            const int i_201 = (is_101 ? i_200 : i_198);
            const int i_202 = i_60 - i_201;
            const int i_203 = i_60 & 16;
            const bool is_102 = i_203 != 0;
            const int i_204 = i_61 + i_202;
            const int i_205 = i_60 % 16;
            const int i_206 = (i_205 > 0) - (i_205 < 0);
            const bool is_103 = i_206 != 1;
            const bool is_104 = i_205 != 0;
            const bool is_105 = is_103 & is_104;
            const int i_207 = i_205 + 16;
            const int i_208 = (is_105 ? i_207 : i_205);
            const int i_209 = i_60 - i_208;
            const int i_210 = i_60 & 8;
            const bool is_106 = i_210 != 0;
            const int i_211 = i_61 + i_209;
            const int i_212 = i_60 % 8;
            const int i_213 = (i_212 > 0) - (i_212 < 0);
            const bool is_107 = i_213 != 1;
            const bool is_108 = i_212 != 0;
            const bool is_109 = is_107 & is_108;
            const int i_214 = i_212 + 8;
            const int i_215 = (is_109 ? i_214 : i_212);
            const int i_216 = i_60 - i_215;
            const int i_217 = i_60 & 4;
            const bool is_110 = i_217 != 0;
            const int i_218 = i_61 + i_216;
            const int i_219 = i_60 % 4;
            const int i_220 = (i_219 > 0) - (i_219 < 0);
            const bool is_111 = i_220 != 1;
            const bool is_112 = i_219 != 0;
            const bool is_113 = is_111 & is_112;
            const int i_221 = i_219 + 4;
            const int i_222 = (is_113 ? i_221 : i_219);
            const int i_223 = i_60 - i_222;
            const int i_224 = i_60 & 2;
            const bool is_114 = i_224 != 0;
            const int i_225 = i_61 + i_223;
            const int i_226 = i_60 % 2;
            const int i_227 = (i_226 > 0) - (i_226 < 0);
            const bool is_115 = i_227 != 1;
            const bool is_116 = i_226 != 0;
            const bool is_117 = is_115 & is_116;
            const int i_228 = i_226 + 2;
            const int i_229 = (is_117 ? i_228 : i_226);
            const int i_230 = i_60 - i_229;
            const int i_231 = i_60 & 1;
            const bool is_118 = i_231 != 0;
            const int i_232 = i_61 + i_230;
            if (warp == 0 && pal::elect()) {
              if (is_98) {
                pal::tma_store(&out_boxes_32x64, smem + 198656 + warpgroup * 16384 + i_195 * 128 + 8192, i_190, i_197);
              }
              if (is_102) {
                pal::tma_store(&out_boxes_16x64, smem + 198656 + warpgroup * 16384 + i_202 * 128 + 8192, i_190, i_204);
              }
              if (is_106) {
                pal::tma_store(&out_boxes_8x64, smem + 198656 + warpgroup * 16384 + i_209 * 128 + 8192, i_190, i_211);
              }
              if (is_110) {
                pal::tma_store(&out_boxes_4x64, smem + 198656 + warpgroup * 16384 + i_216 * 128 + 8192, i_190, i_218);
              }
              if (is_114) {
                pal::tma_store(&out_boxes_2x64, smem + 198656 + warpgroup * 16384 + i_223 * 128 + 8192, i_190, i_225);
              }
              if (is_118) {
                pal::tma_store(&out_boxes_1x64, smem + 198656 + warpgroup * 16384 + i_230 * 128 + 8192, i_190, i_232);
              }
            }
          }
          if (warp == 0 && pal::elect()) {
            pal::bulk_commit();
          }
        }
      }
      const int i_233 = carry + i_41;
      carry = i_233;
    }
    if (warp == 0 && pal::elect()) {
      pal::bulk_wait<0>();
    }
    pal::sync_named(1 + warpgroup, 128);
  } else {
    pal::registers_decrease<40>();
    const int block = pal::block_index();
    u32 operands_drained_phases = 0;
    int loaded[1];
    PAL_UNROLL for (int r = 0; r < 1; ++r) loaded[r] = thread % 32 < 8 ? pal::load_constant(sizes + (i64)((thread % 32))) : (-2147483647 - 1);
    const bool is = block < 112;
    const int i = 4 + is;
    int carry = 0;
    PAL_ROLLED
    for (int step_2 = 0; step_2 < i; ++step_2) {
      const int i_2 = step_2 * 132;
      const int i_3 = i_2 + block;
      const int i_4 = i_3 % 640;
      const int i_5 = (i_4 > 0) - (i_4 < 0);
      const bool is_2 = i_5 != 1;
      const bool is_3 = i_4 != 0;
      const bool is_4 = is_2 & is_3;
      const int i_6 = i_4 + 640;
      const int i_7 = (is_4 ? i_6 : i_4);
      const int i_8 = i_7 / 128;
      const int i_9 = i_7 % 128;
      const int i_10 = (i_9 > 0) - (i_9 < 0);
      const bool is_5 = i_10 != 1;
      const bool is_6 = i_9 != 0;
      const bool is_7 = is_5 & is_6;
      const int i_11 = i_8 - 1;
      const int i_12 = (is_7 ? i_11 : i_8);
      const int i_13 = i_9 + 128;
      const int i_14 = (is_7 ? i_13 : i_9);
      const int i_15 = i_12 * 8;
      const int i_16 = i_14 / 8;
      const int i_17 = i_14 % 8;
      const int i_18 = (i_17 > 0) - (i_17 < 0);
      const bool is_8 = i_18 != 1;
      const bool is_9 = i_17 != 0;
      const bool is_10 = is_8 & is_9;
      const int i_19 = i_16 - 1;
      const int i_20 = (is_10 ? i_19 : i_16);
      const int i_21 = i_17 + 8;
      const int i_22 = (is_10 ? i_21 : i_17);
      const int i_23 = i_15 + i_22;
      const int i_24 = i_12 % 2;
      const int i_25 = (i_24 > 0) - (i_24 < 0);
      const bool is_11 = i_25 != 1;
      const bool is_12 = i_24 != 0;
      const bool is_13 = is_11 & is_12;
      const int i_26 = i_24 + 2;
      const int i_27 = (is_13 ? i_26 : i_24);
      const int i_28 = 2 * i_20;
      const int i_29 = 15 - i_28;
      const int i_30 = i_27 * i_29;
      const int i_31 = i_20 + i_30;
      int v[1];
      PAL_UNROLL for (int r = 0; r < 1; ++r) v[r] = loaded[r] + 127;
      int v_2[1];
      PAL_UNROLL for (int r = 0; r < 1; ++r) v_2[r] = v[r] / 128;
      int v_3[1];
      PAL_UNROLL for (int r = 0; r < 1; ++r) v_3[r] = v[r] % 128;
      int v_4[1];
      PAL_UNROLL for (int r = 0; r < 1; ++r) v_4[r] = (v_3[r] > 0) - (v_3[r] < 0);
      bool v_5[1];
      PAL_UNROLL for (int r = 0; r < 1; ++r) v_5[r] = v_4[r] != 1;
      bool v_6[1];
      PAL_UNROLL for (int r = 0; r < 1; ++r) v_6[r] = v_3[r] != 0;
      bool v_7[1];
      PAL_UNROLL for (int r = 0; r < 1; ++r) v_7[r] = v_5[r] & v_6[r];
      int v_8[1];
      PAL_UNROLL for (int r = 0; r < 1; ++r) v_8[r] = v_2[r] - 1;
      int v_9[1];
      PAL_UNROLL for (int r = 0; r < 1; ++r) v_9[r] = (v_7[r] ? v_8[r] : v_2[r]);
      int scan[1];
      int before = 0;
      PAL_UNROLL for (int r = 0; r < 1; ++r) {
        int sum = v_9[r];
        PAL_UNROLL for (int step = 1; step < 32; step *= 2) {
          const int other = pal::shuffle_up(sum, step);
          if (lane >= step) sum = other + sum;
        }
        scan[r] = before + sum;
        before = pal::shuffle(scan[r], 31);
      }
      bool v_10[1];
      PAL_UNROLL for (int r = 0; r < 1; ++r) v_10[r] = i_23 >= scan[r];
      int v_11[1];
      PAL_UNROLL for (int r = 0; r < 1; ++r) v_11[r] = (int)v_10[r];
      int total[1];
      PAL_UNROLL for (int r = 0; r < 1; ++r) total[r] = 0;
      PAL_UNROLL for (int r = 0; r < 1; ++r) total[0] = total[0] + (thread % 32 < 8 ? v_11[r] : 0);
      PAL_UNROLL for (int r = 0; r < 1; ++r) { const int other = pal::shuffle_xor(total[r], 1); total[r] = total[r] + other; }
      PAL_UNROLL for (int r = 0; r < 1; ++r) { const int other = pal::shuffle_xor(total[r], 2); total[r] = total[r] + other; }
      PAL_UNROLL for (int r = 0; r < 1; ++r) { const int other = pal::shuffle_xor(total[r], 4); total[r] = total[r] + other; }
      PAL_UNROLL for (int r = 0; r < 1; ++r) { const int other = pal::shuffle_xor(total[r], 8); total[r] = total[r] + other; }
      PAL_UNROLL for (int r = 0; r < 1; ++r) { const int other = pal::shuffle_xor(total[r], 16); total[r] = total[r] + other; }
      int v_12[1];
      PAL_UNROLL for (int r = 0; r < 1; ++r) v_12[r] = (v_10[r] ? loaded[r] : 0);
      int total_2[1];
      PAL_UNROLL for (int r = 0; r < 1; ++r) total_2[r] = 0;
      PAL_UNROLL for (int r = 0; r < 1; ++r) total_2[0] = total_2[0] + (thread % 32 < 8 ? v_12[r] : 0);
      PAL_UNROLL for (int r = 0; r < 1; ++r) { const int other = pal::shuffle_xor(total_2[r], 1); total_2[r] = total_2[r] + other; }
      PAL_UNROLL for (int r = 0; r < 1; ++r) { const int other = pal::shuffle_xor(total_2[r], 2); total_2[r] = total_2[r] + other; }
      PAL_UNROLL for (int r = 0; r < 1; ++r) { const int other = pal::shuffle_xor(total_2[r], 4); total_2[r] = total_2[r] + other; }
      PAL_UNROLL for (int r = 0; r < 1; ++r) { const int other = pal::shuffle_xor(total_2[r], 8); total_2[r] = total_2[r] + other; }
      PAL_UNROLL for (int r = 0; r < 1; ++r) { const int other = pal::shuffle_xor(total_2[r], 16); total_2[r] = total_2[r] + other; }
      int v_13[1];
      PAL_UNROLL for (int r = 0; r < 1; ++r) v_13[r] = (v_10[r] ? v_9[r] : 0);
      int total_3[1];
      PAL_UNROLL for (int r = 0; r < 1; ++r) total_3[r] = 0;
      PAL_UNROLL for (int r = 0; r < 1; ++r) total_3[0] = total_3[0] + (thread % 32 < 8 ? v_13[r] : 0);
      PAL_UNROLL for (int r = 0; r < 1; ++r) { const int other = pal::shuffle_xor(total_3[r], 1); total_3[r] = total_3[r] + other; }
      PAL_UNROLL for (int r = 0; r < 1; ++r) { const int other = pal::shuffle_xor(total_3[r], 2); total_3[r] = total_3[r] + other; }
      PAL_UNROLL for (int r = 0; r < 1; ++r) { const int other = pal::shuffle_xor(total_3[r], 4); total_3[r] = total_3[r] + other; }
      PAL_UNROLL for (int r = 0; r < 1; ++r) { const int other = pal::shuffle_xor(total_3[r], 8); total_3[r] = total_3[r] + other; }
      PAL_UNROLL for (int r = 0; r < 1; ++r) { const int other = pal::shuffle_xor(total_3[r], 16); total_3[r] = total_3[r] + other; }
      const int i_32 = i_23 - total_3[0];
      const bool is_14 = total[0] < 8;
      const int i_33 = i_32 * 128;
      const int i_34 = total_2[0] + i_33;
      const int i_35 = (total[0] < 7 ? total[0] : 7);
      const int i_36 = i_31 * 256;
      const int i_37 = (is_14 ? 32 : 0);
      PAL_ROLLED
      for (int step_3 = 0; step_3 < i_37; ++step_3) {
        const int i_38 = carry + step_3;
        const int i_39 = step_3 * 64;
        const bool is_15 = i_35 < 0;
        const int i_40 = i_35 + 8;
        const int i_41 = (is_15 ? i_40 : i_35);
        const int i_42 = i_38 % 4;
        const bool is_16 = i_38 >= 4;
        if (is_16) {
          const bool is_17 = i_42 < 0;
          const int i_43 = i_42 + 4;
          const int i_44 = (is_17 ? i_43 : i_42);
          pal::wait(smem + 197632 + i_44 * 8, operands_drained_phases >> i_44 & 1);
          operands_drained_phases ^= 1u << i_44;
        }
        const bool is_18 = i_42 < 0;
        const int i_45 = i_42 + 4;
        const int i_46 = (is_18 ? i_45 : i_42);
        pal::sync_named(3, 128);
        if (warp == 0 && pal::elect()) {
          pal::arrive_expect(smem + 197664 + i_46 * 8, 16384);
          pal::tma_load(&lhs_boxes, smem + 1024 + i_46 * 16384, smem + 197664 + i_46 * 8, i_39, i_34);
          pal::arrive_expect(smem + 197664 + i_46 * 8, 32768);
          pal::tma_load(&rhs_boxes, smem + 66560 + i_46 * 32768, smem + 197664 + i_46 * 8, i_36, i_39, i_41);
          pal::tma_load(&rhs_boxes, smem + 66560 + i_46 * 32768 + 8192, smem + 197664 + i_46 * 8, i_36 + 64, i_39, i_41);
          pal::tma_load(&rhs_boxes, smem + 66560 + i_46 * 32768 + 16384, smem + 197664 + i_46 * 8, i_36 + 128, i_39, i_41);
          pal::tma_load(&rhs_boxes, smem + 66560 + i_46 * 32768 + 24576, smem + 197664 + i_46 * 8, i_36 + 192, i_39, i_41);
        }
      }
      const int i_47 = carry + i_37;
      carry = i_47;
    }
    const int i_48 = carry - 4;
    const int i_49 = (i_48 > 0 ? i_48 : 0);
    PAL_ROLLED
    for (int step_4 = i_49; step_4 < carry; ++step_4) {
      const int i_50 = step_4 % 4;
      const bool is_19 = i_50 < 0;
      const int i_51 = i_50 + 4;
      const int i_52 = (is_19 ? i_51 : i_50);
      pal::wait(smem + 197632 + i_52 * 8, operands_drained_phases >> i_52 & 1);
      operands_drained_phases ^= 1u << i_52;
    }
  }
}
