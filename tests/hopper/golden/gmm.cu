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
    pal::registers_increase<224>();
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
      PAL_UNROLL for (int r = 0; r < 1; ++r) v_10[r] = i_10 >= scan[r];
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
      const int i_16 = i_10 - total_3[0];
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
      const bool is_2 = total[0] < 8;
      const int i_17 = 4096 - total_2[0];
      const int i_18 = (is_2 ? total_4[0] : i_17);
      const int i_19 = i_16 * 128;
      const int i_20 = total_2[0] + i_19;
      const int i_21 = i_18 - i_19;
      const int i_22 = (i_21 > 0 ? i_21 : 0);
      const int i_23 = (i_22 < 128 ? i_22 : 128);
      const int i_24 = i_15 * 256;
      const int i_25 = (is_2 ? 32 : 0);
      const bool is_3 = i_23 > 0;
      if (is_3) {
        {
          float acc[1][128];
          PAL_UNROLL for (int r = 0; r < 128; ++r) acc[r / 128][r % 128] = 0;
          PAL_ROLLED
          for (int step_3 = 0; step_3 < i_25; ++step_3) {
            const int i_26 = carry + step_3;
            const int i_27 = i_26 % 4;
            const bool is_4 = i_27 < 0;
            const int i_28 = i_27 + 4;
            const int i_29 = (is_4 ? i_28 : i_27);
            pal::wait(smem + 197664 + i_29 * 8, operands_filled_phases >> i_29 & 1);
            operands_filled_phases ^= 1u << i_29;
            const int i_30 = warpgroup * 64;
            const u64 left_2 = pal::descriptor(smem + 1024 + i_29 * 16384 + i_30 * 128, 16, 1024, 1);
            const u64 right_2 = pal::descriptor(smem + 66560 + i_29 * 32768, 8192, 1024, 1);
            pal::wgmma_fence();
            pal::wgmma_m64n256k16_f32_bf16_bf16<0, 1>(acc[0], left_2, right_2, 1);
            pal::wgmma_m64n256k16_f32_bf16_bf16<0, 1>(acc[0], left_2 + 2, right_2 + 128, 1);
            pal::wgmma_m64n256k16_f32_bf16_bf16<0, 1>(acc[0], left_2 + 4, right_2 + 256, 1);
            pal::wgmma_m64n256k16_f32_bf16_bf16<0, 1>(acc[0], left_2 + 6, right_2 + 384, 1);
            pal::wgmma_commit();
            pal::wgmma_wait<1>();
            const bool is_5 = step_3 > 0;
            if (is_5) {
              const int i_31 = carry + step_3;
              const int i_32 = i_31 - 1;
              const int i_33 = i_32 % 4;
              const bool is_6 = i_33 < 0;
              const int i_34 = i_33 + 4;
              const int i_35 = (is_6 ? i_34 : i_33);
              pal::sync_warp();
              if (lane == 0) pal::arrive(smem + 197632 + i_35 * 8);
            }
          }
          pal::wgmma_wait<0>();
          pal::keep(acc[0]);
          const bool is_7 = i_25 > 0;
          if (is_7) {
            const int i_36 = carry + i_25;
            const int i_37 = i_36 - 1;
            const int i_38 = i_37 % 4;
            const bool is_8 = i_38 < 0;
            const int i_39 = i_38 + 4;
            const int i_40 = (is_8 ? i_39 : i_38);
            pal::sync_warp();
            if (lane == 0) pal::arrive(smem + 197632 + i_40 * 8);
          }
          const int i_41 = warpgroup * 64;
          const int i_42 = i_23 - i_41;
          const int i_43 = (i_42 > 0 ? i_42 : 0);
          const int i_44 = (i_43 < 64 ? i_43 : 64);
          const int i_45 = i_20 + i_41;
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
          const bool is_9 = i_44 == 64;
          if (is_9) {
            if (warp == 0 && pal::elect()) {
              pal::tma_store(&out_boxes, smem + 198656 + warpgroup * 16384, i_24, i_45);
            }
          }
          const bool is_10 = i_44 < 64;
          if (is_10) {
            const int i_46 = i_44 % 64;
            const int i_47 = i_44 - i_46;
            const int i_48 = i_44 & 32;
            const bool is_11 = i_48 != 0;
            const int i_49 = i_45 + i_47;
            const int i_50 = i_44 % 32;
            const int i_51 = i_44 - i_50;
            const int i_52 = i_44 & 16;
            const bool is_12 = i_52 != 0;
            const int i_53 = i_45 + i_51;
            const int i_54 = i_44 % 16;
            const int i_55 = i_44 - i_54;
            const int i_56 = i_44 & 8;
            const bool is_13 = i_56 != 0;
            const int i_57 = i_45 + i_55;
            const int i_58 = i_44 % 8;
            const int i_59 = i_44 - i_58;
            const int i_60 = i_44 & 4;
            const bool is_14 = i_60 != 0;
            const int i_61 = i_45 + i_59;
            const int i_62 = i_44 % 4;
            const int i_63 = i_44 - i_62;
            const int i_64 = i_44 & 2;
            const bool is_15 = i_64 != 0;
            const int i_65 = i_45 + i_63;
            const int i_66 = i_44 % 2;
            const int i_67 = i_44 - i_66;
            const int i_68 = i_44 & 1;
            const bool is_16 = i_68 != 0;
            const int i_69 = i_45 + i_67;
            if (warp == 0 && pal::elect()) {
              if (is_11) {
                pal::tma_store(&out_boxes_32x64, smem + 198656 + warpgroup * 16384 + i_47 * 128, i_24, i_49);
              }
              if (is_12) {
                pal::tma_store(&out_boxes_16x64, smem + 198656 + warpgroup * 16384 + i_51 * 128, i_24, i_53);
              }
              if (is_13) {
                pal::tma_store(&out_boxes_8x64, smem + 198656 + warpgroup * 16384 + i_55 * 128, i_24, i_57);
              }
              if (is_14) {
                pal::tma_store(&out_boxes_4x64, smem + 198656 + warpgroup * 16384 + i_59 * 128, i_24, i_61);
              }
              if (is_15) {
                pal::tma_store(&out_boxes_2x64, smem + 198656 + warpgroup * 16384 + i_63 * 128, i_24, i_65);
              }
              if (is_16) {
                pal::tma_store(&out_boxes_1x64, smem + 198656 + warpgroup * 16384 + i_67 * 128, i_24, i_69);
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
          const int i_70 = i_24 + 64;
          if (is_9) {
            if (warp == 0 && pal::elect()) {
              pal::tma_store(&out_boxes, smem + 198656 + warpgroup * 16384 + 8192, i_70, i_45);
            }
          }
          if (is_10) {
            const int i_71 = i_44 % 64;
            const int i_72 = i_44 - i_71;
            const int i_73 = i_44 & 32;
            const bool is_17 = i_73 != 0;
            const int i_74 = i_45 + i_72;
            const int i_75 = i_44 % 32;
            const int i_76 = i_44 - i_75;
            const int i_77 = i_44 & 16;
            const bool is_18 = i_77 != 0;
            const int i_78 = i_45 + i_76;
            const int i_79 = i_44 % 16;
            const int i_80 = i_44 - i_79;
            const int i_81 = i_44 & 8;
            const bool is_19 = i_81 != 0;
            const int i_82 = i_45 + i_80;
            const int i_83 = i_44 % 8;
            const int i_84 = i_44 - i_83;
            const int i_85 = i_44 & 4;
            const bool is_20 = i_85 != 0;
            const int i_86 = i_45 + i_84;
            const int i_87 = i_44 % 4;
            const int i_88 = i_44 - i_87;
            const int i_89 = i_44 & 2;
            const bool is_21 = i_89 != 0;
            const int i_90 = i_45 + i_88;
            const int i_91 = i_44 % 2;
            const int i_92 = i_44 - i_91;
            const int i_93 = i_44 & 1;
            const bool is_22 = i_93 != 0;
            const int i_94 = i_45 + i_92;
            if (warp == 0 && pal::elect()) {
              if (is_17) {
                pal::tma_store(&out_boxes_32x64, smem + 198656 + warpgroup * 16384 + i_72 * 128 + 8192, i_70, i_74);
              }
              if (is_18) {
                pal::tma_store(&out_boxes_16x64, smem + 198656 + warpgroup * 16384 + i_76 * 128 + 8192, i_70, i_78);
              }
              if (is_19) {
                pal::tma_store(&out_boxes_8x64, smem + 198656 + warpgroup * 16384 + i_80 * 128 + 8192, i_70, i_82);
              }
              if (is_20) {
                pal::tma_store(&out_boxes_4x64, smem + 198656 + warpgroup * 16384 + i_84 * 128 + 8192, i_70, i_86);
              }
              if (is_21) {
                pal::tma_store(&out_boxes_2x64, smem + 198656 + warpgroup * 16384 + i_88 * 128 + 8192, i_70, i_90);
              }
              if (is_22) {
                pal::tma_store(&out_boxes_1x64, smem + 198656 + warpgroup * 16384 + i_92 * 128 + 8192, i_70, i_94);
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
          const int i_95 = i_24 + 128;
          if (is_9) {
            if (warp == 0 && pal::elect()) {
              pal::tma_store(&out_boxes, smem + 198656 + warpgroup * 16384, i_95, i_45);
            }
          }
          if (is_10) {
            const int i_96 = i_44 % 64;
            const int i_97 = i_44 - i_96;
            const int i_98 = i_44 & 32;
            const bool is_23 = i_98 != 0;
            const int i_99 = i_45 + i_97;
            const int i_100 = i_44 % 32;
            const int i_101 = i_44 - i_100;
            const int i_102 = i_44 & 16;
            const bool is_24 = i_102 != 0;
            const int i_103 = i_45 + i_101;
            const int i_104 = i_44 % 16;
            const int i_105 = i_44 - i_104;
            const int i_106 = i_44 & 8;
            const bool is_25 = i_106 != 0;
            const int i_107 = i_45 + i_105;
            const int i_108 = i_44 % 8;
            const int i_109 = i_44 - i_108;
            const int i_110 = i_44 & 4;
            const bool is_26 = i_110 != 0;
            const int i_111 = i_45 + i_109;
            const int i_112 = i_44 % 4;
            const int i_113 = i_44 - i_112;
            const int i_114 = i_44 & 2;
            const bool is_27 = i_114 != 0;
            const int i_115 = i_45 + i_113;
            const int i_116 = i_44 % 2;
            const int i_117 = i_44 - i_116;
            const int i_118 = i_44 & 1;
            const bool is_28 = i_118 != 0;
            const int i_119 = i_45 + i_117;
            if (warp == 0 && pal::elect()) {
              if (is_23) {
                pal::tma_store(&out_boxes_32x64, smem + 198656 + warpgroup * 16384 + i_97 * 128, i_95, i_99);
              }
              if (is_24) {
                pal::tma_store(&out_boxes_16x64, smem + 198656 + warpgroup * 16384 + i_101 * 128, i_95, i_103);
              }
              if (is_25) {
                pal::tma_store(&out_boxes_8x64, smem + 198656 + warpgroup * 16384 + i_105 * 128, i_95, i_107);
              }
              if (is_26) {
                pal::tma_store(&out_boxes_4x64, smem + 198656 + warpgroup * 16384 + i_109 * 128, i_95, i_111);
              }
              if (is_27) {
                pal::tma_store(&out_boxes_2x64, smem + 198656 + warpgroup * 16384 + i_113 * 128, i_95, i_115);
              }
              if (is_28) {
                pal::tma_store(&out_boxes_1x64, smem + 198656 + warpgroup * 16384 + i_117 * 128, i_95, i_119);
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
          const int i_120 = i_24 + 192;
          if (is_9) {
            if (warp == 0 && pal::elect()) {
              pal::tma_store(&out_boxes, smem + 198656 + warpgroup * 16384 + 8192, i_120, i_45);
            }
          }
          if (is_10) {
            const int i_121 = i_44 % 64;
            const int i_122 = i_44 - i_121;
            const int i_123 = i_44 & 32;
            const bool is_29 = i_123 != 0;
            const int i_124 = i_45 + i_122;
            const int i_125 = i_44 % 32;
            const int i_126 = i_44 - i_125;
            const int i_127 = i_44 & 16;
            const bool is_30 = i_127 != 0;
            const int i_128 = i_45 + i_126;
            const int i_129 = i_44 % 16;
            const int i_130 = i_44 - i_129;
            const int i_131 = i_44 & 8;
            const bool is_31 = i_131 != 0;
            const int i_132 = i_45 + i_130;
            const int i_133 = i_44 % 8;
            const int i_134 = i_44 - i_133;
            const int i_135 = i_44 & 4;
            const bool is_32 = i_135 != 0;
            const int i_136 = i_45 + i_134;
            const int i_137 = i_44 % 4;
            const int i_138 = i_44 - i_137;
            const int i_139 = i_44 & 2;
            const bool is_33 = i_139 != 0;
            const int i_140 = i_45 + i_138;
            const int i_141 = i_44 % 2;
            const int i_142 = i_44 - i_141;
            const int i_143 = i_44 & 1;
            const bool is_34 = i_143 != 0;
            const int i_144 = i_45 + i_142;
            if (warp == 0 && pal::elect()) {
              if (is_29) {
                pal::tma_store(&out_boxes_32x64, smem + 198656 + warpgroup * 16384 + i_122 * 128 + 8192, i_120, i_124);
              }
              if (is_30) {
                pal::tma_store(&out_boxes_16x64, smem + 198656 + warpgroup * 16384 + i_126 * 128 + 8192, i_120, i_128);
              }
              if (is_31) {
                pal::tma_store(&out_boxes_8x64, smem + 198656 + warpgroup * 16384 + i_130 * 128 + 8192, i_120, i_132);
              }
              if (is_32) {
                pal::tma_store(&out_boxes_4x64, smem + 198656 + warpgroup * 16384 + i_134 * 128 + 8192, i_120, i_136);
              }
              if (is_33) {
                pal::tma_store(&out_boxes_2x64, smem + 198656 + warpgroup * 16384 + i_138 * 128 + 8192, i_120, i_140);
              }
              if (is_34) {
                pal::tma_store(&out_boxes_1x64, smem + 198656 + warpgroup * 16384 + i_142 * 128 + 8192, i_120, i_144);
              }
            }
          }
          if (warp == 0 && pal::elect()) {
            pal::bulk_commit();
          }
        }
      }
      const int i_145 = carry + i_25;
      carry = i_145;
    }
    if (warp == 0 && pal::elect()) {
      pal::bulk_wait<0>();
    }
    pal::sync_named(1 + warpgroup, 128);
  } else {
    pal::registers_decrease<56>();
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
      PAL_UNROLL for (int r = 0; r < 1; ++r) v_10[r] = i_10 >= scan[r];
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
      const int i_16 = i_10 - total_3[0];
      const bool is_2 = total[0] < 8;
      const int i_17 = i_16 * 128;
      const int i_18 = total_2[0] + i_17;
      const int i_19 = (total[0] < 7 ? total[0] : 7);
      const int i_20 = i_15 * 256;
      const int i_21 = (is_2 ? 32 : 0);
      PAL_ROLLED
      for (int step_3 = 0; step_3 < i_21; ++step_3) {
        const int i_22 = carry + step_3;
        const int i_23 = step_3 * 64;
        const bool is_3 = i_19 < 0;
        const int i_24 = i_19 + 8;
        const int i_25 = (is_3 ? i_24 : i_19);
        const int i_26 = i_22 % 4;
        const bool is_4 = i_22 >= 4;
        if (is_4) {
          const bool is_5 = i_26 < 0;
          const int i_27 = i_26 + 4;
          const int i_28 = (is_5 ? i_27 : i_26);
          pal::wait(smem + 197632 + i_28 * 8, operands_drained_phases >> i_28 & 1);
          operands_drained_phases ^= 1u << i_28;
        }
        const bool is_6 = i_26 < 0;
        const int i_29 = i_26 + 4;
        const int i_30 = (is_6 ? i_29 : i_26);
        pal::sync_named(3, 128);
        if (warp == 0 && pal::elect()) {
          pal::arrive_expect(smem + 197664 + i_30 * 8, 16384);
          pal::tma_load(&lhs_boxes, smem + 1024 + i_30 * 16384, smem + 197664 + i_30 * 8, i_23, i_18);
          pal::arrive_expect(smem + 197664 + i_30 * 8, 32768);
          pal::tma_load(&rhs_boxes, smem + 66560 + i_30 * 32768, smem + 197664 + i_30 * 8, i_20, i_23, i_25);
          pal::tma_load(&rhs_boxes, smem + 66560 + i_30 * 32768 + 8192, smem + 197664 + i_30 * 8, i_20 + 64, i_23, i_25);
          pal::tma_load(&rhs_boxes, smem + 66560 + i_30 * 32768 + 16384, smem + 197664 + i_30 * 8, i_20 + 128, i_23, i_25);
          pal::tma_load(&rhs_boxes, smem + 66560 + i_30 * 32768 + 24576, smem + 197664 + i_30 * 8, i_20 + 192, i_23, i_25);
        }
      }
      const int i_31 = carry + i_21;
      carry = i_31;
    }
    const int i_32 = carry - 4;
    const int i_33 = (i_32 > 0 ? i_32 : 0);
    PAL_ROLLED
    for (int step_4 = i_33; step_4 < carry; ++step_4) {
      const int i_34 = step_4 % 4;
      pal::wait(smem + 197632 + i_34 * 8, operands_drained_phases >> i_34 & 1);
      operands_drained_phases ^= 1u << i_34;
    }
  }
}
