// grid 132, cluster 1, 384 threads, 231680 bytes shared
// lhs_boxes: MapSpec(array=1, dtype=dtype(bfloat16), dims=(2048, 4096), strides=(8192,), box=(128, 64), swizzle=128, fill='zeros', promotion=128)
// rhs_boxes: MapSpec(array=2, dtype=dtype(bfloat16), dims=(4096, 2048), strides=(4096,), box=(64, 64), swizzle=128, fill='zeros', promotion=128)
// out_boxes: MapSpec(array=3, dtype=dtype('float32'), dims=(8, 2048, 2048), strides=(16777216, 8192), box=(1, 64, 32), swizzle=128, fill='zeros', promotion=128)
#include "palladio.cuh"

// 231680 bytes of shared memory:
//        0  cleared: 1 barriers of 8
//     1024  operands_0: 4x128x64 of 2 bytes, swizzled by 128
//    66560  operands_1: 4x64x256 of 2 bytes, swizzled by 128
//   197632  operands_drained: 4 barriers of 8
//   197664  operands_filled: 4 barriers of 2
//   198656  staging: 2x2x64x32 of 4 bytes, swizzled by 128
PAL_KERNEL void PAL_BOUNDS(384) tgmm_kernel(
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
    for (int n = 0; n < 4; ++n) pal::barrier_init(smem + 197632 + 8 * n, 8);
    for (int n = 0; n < 4; ++n) pal::barrier_init(smem + 197664 + 8 * n, 2);
    pal::fence_barrier_init();
  }
  pal::sync_block();
  if (warpgroup == 0) {
    pal::registers_increase<232>();
    const int block = pal::block_index();
    u32 cleared_phases = 0;
    u32 operands_filled_phases = 0;
    int loaded[1];
    PAL_UNROLL for (int r = 0; r < 1; ++r) loaded[r] = thread % 32 < 8 ? pal::load_constant(sizes + (i64)((thread % 32))) : (-2147483647 - 1);
    const bool is = block < 100;
    const int i = 7 + is;
    int carry = 0;
    PAL_ROLLED
    for (int step_2 = 0; step_2 < i; ++step_2) {
      const int i_2 = step_2 * 132;
      const int i_3 = i_2 + block;
      const int i_4 = i_3 % 128;
      const int i_5 = (i_4 > 0) - (i_4 < 0);
      const bool is_2 = i_5 != 1;
      const bool is_3 = i_4 != 0;
      const bool is_4 = is_2 & is_3;
      const int i_6 = i_4 + 128;
      const int i_7 = (is_4 ? i_6 : i_4);
      const int i_8 = i_3 / 128;
      const int i_9 = i_8 - 1;
      const int i_10 = (is_4 ? i_9 : i_8);
      const int i_11 = i_10 % 8;
      const int i_12 = (i_11 > 0) - (i_11 < 0);
      const bool is_5 = i_12 != 1;
      const bool is_6 = i_11 != 0;
      const bool is_7 = is_5 & is_6;
      const int i_13 = i_11 + 8;
      const int i_14 = (is_7 ? i_13 : i_11);
      const int i_15 = i_7 / 64;
      const int i_16 = i_7 % 64;
      const int i_17 = (i_16 > 0) - (i_16 < 0);
      const bool is_8 = i_17 != 1;
      const bool is_9 = i_16 != 0;
      const bool is_10 = is_8 & is_9;
      const int i_18 = i_15 - 1;
      const int i_19 = (is_10 ? i_18 : i_15);
      const int i_20 = i_16 + 64;
      const int i_21 = (is_10 ? i_20 : i_16);
      const int i_22 = i_19 * 8;
      const int i_23 = i_21 / 8;
      const int i_24 = i_21 % 8;
      const int i_25 = (i_24 > 0) - (i_24 < 0);
      const bool is_11 = i_25 != 1;
      const bool is_12 = i_24 != 0;
      const bool is_13 = is_11 & is_12;
      const int i_26 = i_23 - 1;
      const int i_27 = (is_13 ? i_26 : i_23);
      const int i_28 = i_24 + 8;
      const int i_29 = (is_13 ? i_28 : i_24);
      const int i_30 = i_22 + i_29;
      const int i_31 = i_19 % 2;
      const int i_32 = (i_31 > 0) - (i_31 < 0);
      const bool is_14 = i_32 != 1;
      const bool is_15 = i_31 != 0;
      const bool is_16 = is_14 & is_15;
      const int i_33 = i_31 + 2;
      const int i_34 = (is_16 ? i_33 : i_31);
      const int i_35 = 2 * i_27;
      const int i_36 = 7 - i_35;
      const int i_37 = i_34 * i_36;
      const int i_38 = i_27 + i_37;
      int v[1];
      PAL_UNROLL for (int r = 0; r < 1; ++r) v[r] = ((((int)(thread % 32)) == i_14) ? loaded[r] : 0);
      int total[1];
      PAL_UNROLL for (int r = 0; r < 1; ++r) total[r] = 0;
      PAL_UNROLL for (int r = 0; r < 1; ++r) total[0] = total[0] + (thread % 32 < 8 ? v[r] : 0);
      PAL_UNROLL for (int r = 0; r < 1; ++r) { const int other = pal::shuffle_xor(total[r], 1); total[r] = total[r] + other; }
      PAL_UNROLL for (int r = 0; r < 1; ++r) { const int other = pal::shuffle_xor(total[r], 2); total[r] = total[r] + other; }
      PAL_UNROLL for (int r = 0; r < 1; ++r) { const int other = pal::shuffle_xor(total[r], 4); total[r] = total[r] + other; }
      PAL_UNROLL for (int r = 0; r < 1; ++r) { const int other = pal::shuffle_xor(total[r], 8); total[r] = total[r] + other; }
      PAL_UNROLL for (int r = 0; r < 1; ++r) { const int other = pal::shuffle_xor(total[r], 16); total[r] = total[r] + other; }
      const int i_39 = i_30 * 128;
      const int i_40 = i_38 * 256;
      const int i_41 = total[0] + 63;
      const int i_42 = i_41 / 64;
      const int i_43 = i_41 % 64;
      const int i_44 = (i_43 > 0) - (i_43 < 0);
      const bool is_17 = i_44 != 1;
      const bool is_18 = i_43 != 0;
      const bool is_19 = is_17 & is_18;
      const int i_45 = i_42 - 1;
      const int i_46 = (is_19 ? i_45 : i_42);
      {
        float acc[1][128];
        PAL_UNROLL for (int r = 0; r < 128; ++r) acc[r / 128][r % 128] = 0;
        PAL_ROLLED
        for (int step_3 = 0; step_3 < i_46; ++step_3) {
          const int i_47 = carry + step_3;
          const int i_48 = i_47 % 4;
          const bool is_20 = i_48 < 0;
          const int i_49 = i_48 + 4;
          const int i_50 = (is_20 ? i_49 : i_48);
          pal::wait(smem + 197664 + i_50 * 8, operands_filled_phases >> i_50 & 1);
          operands_filled_phases ^= 1u << i_50;
          const int i_51 = step_3 * 64;
          const int i_52 = total[0] - i_51;
          const bool is_21 = i_52 < 64;
          if (is_21) {
            int v_2[2];
            PAL_UNROLL for (int r = 0; r < 2; ++r) v_2[r] = (int)(r * 32 + thread % 32);
            bool v_3[2];
            PAL_UNROLL for (int r = 0; r < 2; ++r) v_3[r] = v_2[r] >= i_52;
            pal::sync_named(1, 128);
            const u32 moved = smem + 231424;
            PAL_UNROLL for (int r = 0; r < 2; ++r) if (thread / 32 % 4 == 0) pal::store_shared<u8>(moved + r * 32 + thread % 32, (u8)(v_3[r]));
            pal::sync_named(1, 128);
            bool moved_2[8];
            PAL_UNROLL for (int r = 0; r < 8; ++r) moved_2[r] = pal::load_shared<u8>(moved + (0) * 64 + (r + thread % 8 * 8)) != 0;
            bool spread[64];
            PAL_UNROLL for (int r = 0; r < 64; ++r) spread[r] = moved_2[r % 8];
            PAL_UNROLL for (int r = 0; r < 64; ++r) { const u32 at = smem + 1024 + i_50 * 16384 + (r / 8 * 16 + thread / 8) * 128 + (r % 8 + thread % 8 * 8) * 2; if (spread[r]) pal::store_shared<u16>((at ^ (at >> 3 & 0x70)), pal::bits_bf16(0.0f)); }
            pal::fence_async();
            pal::sync_named(1, 128);
            pal::sync_warp();
            if (lane == 0) pal::arrive(smem + 0);
            pal::wait(smem + 0, cleared_phases & 1);
            cleared_phases ^= 0x1;
          }
          const u64 left_2 = pal::descriptor(smem + 1024 + i_50 * 16384, 16, 1024, 1);
          const u64 right_2 = pal::descriptor(smem + 66560 + i_50 * 32768, 8192, 1024, 1);
          pal::wgmma_fence();
          pal::wgmma_m64n256k16_f32_bf16_bf16<0, 1>(acc[0], left_2, right_2, 1);
          pal::wgmma_m64n256k16_f32_bf16_bf16<0, 1>(acc[0], left_2 + 2, right_2 + 128, 1);
          pal::wgmma_m64n256k16_f32_bf16_bf16<0, 1>(acc[0], left_2 + 4, right_2 + 256, 1);
          pal::wgmma_m64n256k16_f32_bf16_bf16<0, 1>(acc[0], left_2 + 6, right_2 + 384, 1);
          pal::wgmma_commit();
          pal::wgmma_wait<1>();
          const bool is_22 = step_3 > 0;
          if (is_22) {
            const int i_53 = carry + step_3;
            const int i_54 = i_53 - 1;
            const int i_55 = i_54 % 4;
            const bool is_23 = i_55 < 0;
            const int i_56 = i_55 + 4;
            const int i_57 = (is_23 ? i_56 : i_55);
            pal::sync_warp();
            if (lane == 0) pal::arrive(smem + 197632 + i_57 * 8);
          }
        }
        pal::wgmma_wait<0>();
        pal::keep(acc[0]);
        const bool is_24 = i_46 > 0;
        if (is_24) {
          const int i_58 = carry + i_46;
          const int i_59 = i_58 - 1;
          const int i_60 = i_59 % 4;
          const bool is_25 = i_60 < 0;
          const int i_61 = i_60 + 4;
          const int i_62 = (is_25 ? i_61 : i_60);
          pal::sync_warp();
          if (lane == 0) pal::arrive(smem + 197632 + i_62 * 8);
        }
        if (warp == 0 && pal::elect()) {
          pal::bulk_wait_read<0>();
        }
        pal::sync_named(1, 128);
        float part[16];
        PAL_UNROLL for (int r = 0; r < 16; ++r) part[r] = acc[0][r];
        PAL_UNROLL for (int r = 0; r < 16; r += 2) {
          const u32 at = smem + 198656 + (r / 2 % 2 * 8 + thread / 4 % 8 + thread / 32 * 16) * 128 + (r % 2 + r / 4 * 8 + thread % 4 * 2) * 4;
          pal::store_shared<u32x2>((at ^ (at >> 3 & 0x70)), u32x2{pal::bits_of(part[r]), pal::bits_of(part[r + 1])});
        }
        pal::fence_async();
        pal::sync_named(1, 128);
        if (warp == 0 && pal::elect()) {
          pal::tma_store(&out_boxes, smem + 198656, i_40, i_39, i_14);
          pal::bulk_commit();
        }
        float part_2[16];
        PAL_UNROLL for (int r = 0; r < 16; ++r) part_2[r] = acc[0][r + 16];
        PAL_UNROLL for (int r = 0; r < 16; r += 2) {
          const u32 at = smem + 198656 + (r / 2 % 2 * 8 + thread / 4 % 8 + thread / 32 * 16) * 128 + (r % 2 + r / 4 * 8 + thread % 4 * 2) * 4 + 8192;
          pal::store_shared<u32x2>((at ^ (at >> 3 & 0x70)), u32x2{pal::bits_of(part_2[r]), pal::bits_of(part_2[r + 1])});
        }
        pal::fence_async();
        pal::sync_named(1, 128);
        const int i_63 = i_40 + 32;
        if (warp == 0 && pal::elect()) {
          pal::tma_store(&out_boxes, smem + 198656 + 8192, i_63, i_39, i_14);
          pal::bulk_commit();
          pal::bulk_wait_read<1>();
        }
        pal::sync_named(1, 128);
        float part_3[16];
        PAL_UNROLL for (int r = 0; r < 16; ++r) part_3[r] = acc[0][r + 32];
        PAL_UNROLL for (int r = 0; r < 16; r += 2) {
          const u32 at = smem + 198656 + (r / 2 % 2 * 8 + thread / 4 % 8 + thread / 32 * 16) * 128 + (r % 2 + r / 4 * 8 + thread % 4 * 2) * 4;
          pal::store_shared<u32x2>((at ^ (at >> 3 & 0x70)), u32x2{pal::bits_of(part_3[r]), pal::bits_of(part_3[r + 1])});
        }
        pal::fence_async();
        pal::sync_named(1, 128);
        const int i_64 = i_40 + 64;
        if (warp == 0 && pal::elect()) {
          pal::tma_store(&out_boxes, smem + 198656, i_64, i_39, i_14);
          pal::bulk_commit();
          pal::bulk_wait_read<1>();
        }
        pal::sync_named(1, 128);
        float part_4[16];
        PAL_UNROLL for (int r = 0; r < 16; ++r) part_4[r] = acc[0][r + 48];
        PAL_UNROLL for (int r = 0; r < 16; r += 2) {
          const u32 at = smem + 198656 + (r / 2 % 2 * 8 + thread / 4 % 8 + thread / 32 * 16) * 128 + (r % 2 + r / 4 * 8 + thread % 4 * 2) * 4 + 8192;
          pal::store_shared<u32x2>((at ^ (at >> 3 & 0x70)), u32x2{pal::bits_of(part_4[r]), pal::bits_of(part_4[r + 1])});
        }
        pal::fence_async();
        pal::sync_named(1, 128);
        const int i_65 = i_40 + 96;
        if (warp == 0 && pal::elect()) {
          pal::tma_store(&out_boxes, smem + 198656 + 8192, i_65, i_39, i_14);
          pal::bulk_commit();
          pal::bulk_wait_read<1>();
        }
        pal::sync_named(1, 128);
        float part_5[16];
        PAL_UNROLL for (int r = 0; r < 16; ++r) part_5[r] = acc[0][r + 64];
        PAL_UNROLL for (int r = 0; r < 16; r += 2) {
          const u32 at = smem + 198656 + (r / 2 % 2 * 8 + thread / 4 % 8 + thread / 32 * 16) * 128 + (r % 2 + r / 4 * 8 + thread % 4 * 2) * 4;
          pal::store_shared<u32x2>((at ^ (at >> 3 & 0x70)), u32x2{pal::bits_of(part_5[r]), pal::bits_of(part_5[r + 1])});
        }
        pal::fence_async();
        pal::sync_named(1, 128);
        const int i_66 = i_40 + 128;
        if (warp == 0 && pal::elect()) {
          pal::tma_store(&out_boxes, smem + 198656, i_66, i_39, i_14);
          pal::bulk_commit();
          pal::bulk_wait_read<1>();
        }
        pal::sync_named(1, 128);
        float part_6[16];
        PAL_UNROLL for (int r = 0; r < 16; ++r) part_6[r] = acc[0][r + 80];
        PAL_UNROLL for (int r = 0; r < 16; r += 2) {
          const u32 at = smem + 198656 + (r / 2 % 2 * 8 + thread / 4 % 8 + thread / 32 * 16) * 128 + (r % 2 + r / 4 * 8 + thread % 4 * 2) * 4 + 8192;
          pal::store_shared<u32x2>((at ^ (at >> 3 & 0x70)), u32x2{pal::bits_of(part_6[r]), pal::bits_of(part_6[r + 1])});
        }
        pal::fence_async();
        pal::sync_named(1, 128);
        const int i_67 = i_40 + 160;
        if (warp == 0 && pal::elect()) {
          pal::tma_store(&out_boxes, smem + 198656 + 8192, i_67, i_39, i_14);
          pal::bulk_commit();
          pal::bulk_wait_read<1>();
        }
        pal::sync_named(1, 128);
        float part_7[16];
        PAL_UNROLL for (int r = 0; r < 16; ++r) part_7[r] = acc[0][r + 96];
        PAL_UNROLL for (int r = 0; r < 16; r += 2) {
          const u32 at = smem + 198656 + (r / 2 % 2 * 8 + thread / 4 % 8 + thread / 32 * 16) * 128 + (r % 2 + r / 4 * 8 + thread % 4 * 2) * 4;
          pal::store_shared<u32x2>((at ^ (at >> 3 & 0x70)), u32x2{pal::bits_of(part_7[r]), pal::bits_of(part_7[r + 1])});
        }
        pal::fence_async();
        pal::sync_named(1, 128);
        const int i_68 = i_40 + 192;
        if (warp == 0 && pal::elect()) {
          pal::tma_store(&out_boxes, smem + 198656, i_68, i_39, i_14);
          pal::bulk_commit();
          pal::bulk_wait_read<1>();
        }
        pal::sync_named(1, 128);
        float part_8[16];
        PAL_UNROLL for (int r = 0; r < 16; ++r) part_8[r] = acc[0][r + 112];
        PAL_UNROLL for (int r = 0; r < 16; r += 2) {
          const u32 at = smem + 198656 + (r / 2 % 2 * 8 + thread / 4 % 8 + thread / 32 * 16) * 128 + (r % 2 + r / 4 * 8 + thread % 4 * 2) * 4 + 8192;
          pal::store_shared<u32x2>((at ^ (at >> 3 & 0x70)), u32x2{pal::bits_of(part_8[r]), pal::bits_of(part_8[r + 1])});
        }
        pal::fence_async();
        pal::sync_named(1, 128);
        const int i_69 = i_40 + 224;
        if (warp == 0 && pal::elect()) {
          pal::tma_store(&out_boxes, smem + 198656 + 8192, i_69, i_39, i_14);
          pal::bulk_commit();
        }
      }
      const int i_70 = carry + i_46;
      carry = i_70;
    }
    if (warp == 0 && pal::elect()) {
      pal::bulk_wait<0>();
    }
    pal::sync_named(1, 128);
  } else if (warpgroup == 1) {
    pal::registers_increase<232>();
    const int block = pal::block_index();
    u32 cleared_phases = 0;
    u32 operands_filled_phases = 0;
    int loaded[1];
    PAL_UNROLL for (int r = 0; r < 1; ++r) loaded[r] = thread % 32 < 8 ? pal::load_constant(sizes + (i64)((thread % 32))) : (-2147483647 - 1);
    const bool is = block < 100;
    const int i = 7 + is;
    int carry = 0;
    PAL_ROLLED
    for (int step_2 = 0; step_2 < i; ++step_2) {
      const int i_2 = step_2 * 132;
      const int i_3 = i_2 + block;
      const int i_4 = i_3 % 128;
      const int i_5 = (i_4 > 0) - (i_4 < 0);
      const bool is_2 = i_5 != 1;
      const bool is_3 = i_4 != 0;
      const bool is_4 = is_2 & is_3;
      const int i_6 = i_4 + 128;
      const int i_7 = (is_4 ? i_6 : i_4);
      const int i_8 = i_3 / 128;
      const int i_9 = i_8 - 1;
      const int i_10 = (is_4 ? i_9 : i_8);
      const int i_11 = i_10 % 8;
      const int i_12 = (i_11 > 0) - (i_11 < 0);
      const bool is_5 = i_12 != 1;
      const bool is_6 = i_11 != 0;
      const bool is_7 = is_5 & is_6;
      const int i_13 = i_11 + 8;
      const int i_14 = (is_7 ? i_13 : i_11);
      const int i_15 = i_7 / 64;
      const int i_16 = i_7 % 64;
      const int i_17 = (i_16 > 0) - (i_16 < 0);
      const bool is_8 = i_17 != 1;
      const bool is_9 = i_16 != 0;
      const bool is_10 = is_8 & is_9;
      const int i_18 = i_15 - 1;
      const int i_19 = (is_10 ? i_18 : i_15);
      const int i_20 = i_16 + 64;
      const int i_21 = (is_10 ? i_20 : i_16);
      const int i_22 = i_19 * 8;
      const int i_23 = i_21 / 8;
      const int i_24 = i_21 % 8;
      const int i_25 = (i_24 > 0) - (i_24 < 0);
      const bool is_11 = i_25 != 1;
      const bool is_12 = i_24 != 0;
      const bool is_13 = is_11 & is_12;
      const int i_26 = i_23 - 1;
      const int i_27 = (is_13 ? i_26 : i_23);
      const int i_28 = i_24 + 8;
      const int i_29 = (is_13 ? i_28 : i_24);
      const int i_30 = i_22 + i_29;
      const int i_31 = i_19 % 2;
      const int i_32 = (i_31 > 0) - (i_31 < 0);
      const bool is_14 = i_32 != 1;
      const bool is_15 = i_31 != 0;
      const bool is_16 = is_14 & is_15;
      const int i_33 = i_31 + 2;
      const int i_34 = (is_16 ? i_33 : i_31);
      const int i_35 = 2 * i_27;
      const int i_36 = 7 - i_35;
      const int i_37 = i_34 * i_36;
      const int i_38 = i_27 + i_37;
      int v[1];
      PAL_UNROLL for (int r = 0; r < 1; ++r) v[r] = ((((int)(thread % 32)) == i_14) ? loaded[r] : 0);
      int total[1];
      PAL_UNROLL for (int r = 0; r < 1; ++r) total[r] = 0;
      PAL_UNROLL for (int r = 0; r < 1; ++r) total[0] = total[0] + (thread % 32 < 8 ? v[r] : 0);
      PAL_UNROLL for (int r = 0; r < 1; ++r) { const int other = pal::shuffle_xor(total[r], 1); total[r] = total[r] + other; }
      PAL_UNROLL for (int r = 0; r < 1; ++r) { const int other = pal::shuffle_xor(total[r], 2); total[r] = total[r] + other; }
      PAL_UNROLL for (int r = 0; r < 1; ++r) { const int other = pal::shuffle_xor(total[r], 4); total[r] = total[r] + other; }
      PAL_UNROLL for (int r = 0; r < 1; ++r) { const int other = pal::shuffle_xor(total[r], 8); total[r] = total[r] + other; }
      PAL_UNROLL for (int r = 0; r < 1; ++r) { const int other = pal::shuffle_xor(total[r], 16); total[r] = total[r] + other; }
      const int i_39 = i_30 * 128;
      const int i_40 = i_38 * 256;
      const int i_41 = total[0] + 63;
      const int i_42 = i_41 / 64;
      const int i_43 = i_41 % 64;
      const int i_44 = (i_43 > 0) - (i_43 < 0);
      const bool is_17 = i_44 != 1;
      const bool is_18 = i_43 != 0;
      const bool is_19 = is_17 & is_18;
      const int i_45 = i_42 - 1;
      const int i_46 = (is_19 ? i_45 : i_42);
      {
        float acc[1][128];
        PAL_UNROLL for (int r = 0; r < 128; ++r) acc[r / 128][r % 128] = 0;
        PAL_ROLLED
        for (int step_3 = 0; step_3 < i_46; ++step_3) {
          const int i_47 = carry + step_3;
          const int i_48 = i_47 % 4;
          const bool is_20 = i_48 < 0;
          const int i_49 = i_48 + 4;
          const int i_50 = (is_20 ? i_49 : i_48);
          pal::wait(smem + 197664 + i_50 * 8, operands_filled_phases >> i_50 & 1);
          operands_filled_phases ^= 1u << i_50;
          const int i_51 = step_3 * 64;
          const int i_52 = total[0] - i_51;
          const bool is_21 = i_52 < 64;
          if (is_21) {
            int v_2[2];
            PAL_UNROLL for (int r = 0; r < 2; ++r) v_2[r] = (int)(r * 32 + thread % 32);
            bool v_3[2];
            PAL_UNROLL for (int r = 0; r < 2; ++r) v_3[r] = v_2[r] >= i_52;
            pal::sync_named(2, 128);
            const u32 moved = smem + 231552;
            PAL_UNROLL for (int r = 0; r < 2; ++r) if (thread / 32 % 4 == 0) pal::store_shared<u8>(moved + r * 32 + thread % 32, (u8)(v_3[r]));
            pal::sync_named(2, 128);
            bool moved_2[16];
            PAL_UNROLL for (int r = 0; r < 16; ++r) moved_2[r] = pal::load_shared<u8>(moved + (r * 4 + thread / 32) + (0)) != 0;
            bool spread[128];
            PAL_UNROLL for (int r = 0; r < 128; ++r) spread[r] = moved_2[r / 8];
            PAL_UNROLL for (int r = 0; r < 128; ++r) { const u32 at = smem + 66560 + i_50 * 32768 + (r / 8 * 4 + thread / 32) * 128 + (((r % 8 + thread % 32 * 8)) / 64) * 8192 + (((r % 8 + thread % 32 * 8)) % 64) * 2; if (spread[r]) pal::store_shared<u16>((at ^ (at >> 3 & 0x70)), pal::bits_bf16(0.0f)); }
            pal::fence_async();
            pal::sync_named(2, 128);
            pal::sync_warp();
            if (lane == 0) pal::arrive(smem + 0);
            pal::wait(smem + 0, cleared_phases & 1);
            cleared_phases ^= 0x1;
          }
          const u64 left_2 = pal::descriptor(smem + 1024 + i_50 * 16384 + 8192, 16, 1024, 1);
          const u64 right_2 = pal::descriptor(smem + 66560 + i_50 * 32768, 8192, 1024, 1);
          pal::wgmma_fence();
          pal::wgmma_m64n256k16_f32_bf16_bf16<0, 1>(acc[0], left_2, right_2, 1);
          pal::wgmma_m64n256k16_f32_bf16_bf16<0, 1>(acc[0], left_2 + 2, right_2 + 128, 1);
          pal::wgmma_m64n256k16_f32_bf16_bf16<0, 1>(acc[0], left_2 + 4, right_2 + 256, 1);
          pal::wgmma_m64n256k16_f32_bf16_bf16<0, 1>(acc[0], left_2 + 6, right_2 + 384, 1);
          pal::wgmma_commit();
          pal::wgmma_wait<1>();
          const bool is_22 = step_3 > 0;
          if (is_22) {
            const int i_53 = carry + step_3;
            const int i_54 = i_53 - 1;
            const int i_55 = i_54 % 4;
            const bool is_23 = i_55 < 0;
            const int i_56 = i_55 + 4;
            const int i_57 = (is_23 ? i_56 : i_55);
            pal::sync_warp();
            if (lane == 0) pal::arrive(smem + 197632 + i_57 * 8);
          }
        }
        pal::wgmma_wait<0>();
        pal::keep(acc[0]);
        const bool is_24 = i_46 > 0;
        if (is_24) {
          const int i_58 = carry + i_46;
          const int i_59 = i_58 - 1;
          const int i_60 = i_59 % 4;
          const bool is_25 = i_60 < 0;
          const int i_61 = i_60 + 4;
          const int i_62 = (is_25 ? i_61 : i_60);
          pal::sync_warp();
          if (lane == 0) pal::arrive(smem + 197632 + i_62 * 8);
        }
        const int i_63 = i_39 + 64;
        if (warp == 0 && pal::elect()) {
          pal::bulk_wait_read<0>();
        }
        pal::sync_named(2, 128);
        float part[16];
        PAL_UNROLL for (int r = 0; r < 16; ++r) part[r] = acc[0][r];
        PAL_UNROLL for (int r = 0; r < 16; r += 2) {
          const u32 at = smem + 198656 + (r / 2 % 2 * 8 + thread / 4 % 8 + thread / 32 * 16) * 128 + (r % 2 + r / 4 * 8 + thread % 4 * 2) * 4 + 16384;
          pal::store_shared<u32x2>((at ^ (at >> 3 & 0x70)), u32x2{pal::bits_of(part[r]), pal::bits_of(part[r + 1])});
        }
        pal::fence_async();
        pal::sync_named(2, 128);
        if (warp == 0 && pal::elect()) {
          pal::tma_store(&out_boxes, smem + 198656 + 16384, i_40, i_63, i_14);
          pal::bulk_commit();
        }
        float part_2[16];
        PAL_UNROLL for (int r = 0; r < 16; ++r) part_2[r] = acc[0][r + 16];
        PAL_UNROLL for (int r = 0; r < 16; r += 2) {
          const u32 at = smem + 198656 + (r / 2 % 2 * 8 + thread / 4 % 8 + thread / 32 * 16) * 128 + (r % 2 + r / 4 * 8 + thread % 4 * 2) * 4 + 24576;
          pal::store_shared<u32x2>((at ^ (at >> 3 & 0x70)), u32x2{pal::bits_of(part_2[r]), pal::bits_of(part_2[r + 1])});
        }
        pal::fence_async();
        pal::sync_named(2, 128);
        const int i_64 = i_40 + 32;
        if (warp == 0 && pal::elect()) {
          pal::tma_store(&out_boxes, smem + 198656 + 24576, i_64, i_63, i_14);
          pal::bulk_commit();
          pal::bulk_wait_read<1>();
        }
        pal::sync_named(2, 128);
        float part_3[16];
        PAL_UNROLL for (int r = 0; r < 16; ++r) part_3[r] = acc[0][r + 32];
        PAL_UNROLL for (int r = 0; r < 16; r += 2) {
          const u32 at = smem + 198656 + (r / 2 % 2 * 8 + thread / 4 % 8 + thread / 32 * 16) * 128 + (r % 2 + r / 4 * 8 + thread % 4 * 2) * 4 + 16384;
          pal::store_shared<u32x2>((at ^ (at >> 3 & 0x70)), u32x2{pal::bits_of(part_3[r]), pal::bits_of(part_3[r + 1])});
        }
        pal::fence_async();
        pal::sync_named(2, 128);
        const int i_65 = i_40 + 64;
        if (warp == 0 && pal::elect()) {
          pal::tma_store(&out_boxes, smem + 198656 + 16384, i_65, i_63, i_14);
          pal::bulk_commit();
          pal::bulk_wait_read<1>();
        }
        pal::sync_named(2, 128);
        float part_4[16];
        PAL_UNROLL for (int r = 0; r < 16; ++r) part_4[r] = acc[0][r + 48];
        PAL_UNROLL for (int r = 0; r < 16; r += 2) {
          const u32 at = smem + 198656 + (r / 2 % 2 * 8 + thread / 4 % 8 + thread / 32 * 16) * 128 + (r % 2 + r / 4 * 8 + thread % 4 * 2) * 4 + 24576;
          pal::store_shared<u32x2>((at ^ (at >> 3 & 0x70)), u32x2{pal::bits_of(part_4[r]), pal::bits_of(part_4[r + 1])});
        }
        pal::fence_async();
        pal::sync_named(2, 128);
        const int i_66 = i_40 + 96;
        if (warp == 0 && pal::elect()) {
          pal::tma_store(&out_boxes, smem + 198656 + 24576, i_66, i_63, i_14);
          pal::bulk_commit();
          pal::bulk_wait_read<1>();
        }
        pal::sync_named(2, 128);
        float part_5[16];
        PAL_UNROLL for (int r = 0; r < 16; ++r) part_5[r] = acc[0][r + 64];
        PAL_UNROLL for (int r = 0; r < 16; r += 2) {
          const u32 at = smem + 198656 + (r / 2 % 2 * 8 + thread / 4 % 8 + thread / 32 * 16) * 128 + (r % 2 + r / 4 * 8 + thread % 4 * 2) * 4 + 16384;
          pal::store_shared<u32x2>((at ^ (at >> 3 & 0x70)), u32x2{pal::bits_of(part_5[r]), pal::bits_of(part_5[r + 1])});
        }
        pal::fence_async();
        pal::sync_named(2, 128);
        const int i_67 = i_40 + 128;
        if (warp == 0 && pal::elect()) {
          pal::tma_store(&out_boxes, smem + 198656 + 16384, i_67, i_63, i_14);
          pal::bulk_commit();
          pal::bulk_wait_read<1>();
        }
        pal::sync_named(2, 128);
        float part_6[16];
        PAL_UNROLL for (int r = 0; r < 16; ++r) part_6[r] = acc[0][r + 80];
        PAL_UNROLL for (int r = 0; r < 16; r += 2) {
          const u32 at = smem + 198656 + (r / 2 % 2 * 8 + thread / 4 % 8 + thread / 32 * 16) * 128 + (r % 2 + r / 4 * 8 + thread % 4 * 2) * 4 + 24576;
          pal::store_shared<u32x2>((at ^ (at >> 3 & 0x70)), u32x2{pal::bits_of(part_6[r]), pal::bits_of(part_6[r + 1])});
        }
        pal::fence_async();
        pal::sync_named(2, 128);
        const int i_68 = i_40 + 160;
        if (warp == 0 && pal::elect()) {
          pal::tma_store(&out_boxes, smem + 198656 + 24576, i_68, i_63, i_14);
          pal::bulk_commit();
          pal::bulk_wait_read<1>();
        }
        pal::sync_named(2, 128);
        float part_7[16];
        PAL_UNROLL for (int r = 0; r < 16; ++r) part_7[r] = acc[0][r + 96];
        PAL_UNROLL for (int r = 0; r < 16; r += 2) {
          const u32 at = smem + 198656 + (r / 2 % 2 * 8 + thread / 4 % 8 + thread / 32 * 16) * 128 + (r % 2 + r / 4 * 8 + thread % 4 * 2) * 4 + 16384;
          pal::store_shared<u32x2>((at ^ (at >> 3 & 0x70)), u32x2{pal::bits_of(part_7[r]), pal::bits_of(part_7[r + 1])});
        }
        pal::fence_async();
        pal::sync_named(2, 128);
        const int i_69 = i_40 + 192;
        if (warp == 0 && pal::elect()) {
          pal::tma_store(&out_boxes, smem + 198656 + 16384, i_69, i_63, i_14);
          pal::bulk_commit();
          pal::bulk_wait_read<1>();
        }
        pal::sync_named(2, 128);
        float part_8[16];
        PAL_UNROLL for (int r = 0; r < 16; ++r) part_8[r] = acc[0][r + 112];
        PAL_UNROLL for (int r = 0; r < 16; r += 2) {
          const u32 at = smem + 198656 + (r / 2 % 2 * 8 + thread / 4 % 8 + thread / 32 * 16) * 128 + (r % 2 + r / 4 * 8 + thread % 4 * 2) * 4 + 24576;
          pal::store_shared<u32x2>((at ^ (at >> 3 & 0x70)), u32x2{pal::bits_of(part_8[r]), pal::bits_of(part_8[r + 1])});
        }
        pal::fence_async();
        pal::sync_named(2, 128);
        const int i_70 = i_40 + 224;
        if (warp == 0 && pal::elect()) {
          pal::tma_store(&out_boxes, smem + 198656 + 24576, i_70, i_63, i_14);
          pal::bulk_commit();
        }
      }
      const int i_71 = carry + i_46;
      carry = i_71;
    }
    if (warp == 0 && pal::elect()) {
      pal::bulk_wait<0>();
    }
    pal::sync_named(2, 128);
  } else {
    pal::registers_decrease<40>();
    const int block = pal::block_index();
    u32 operands_drained_phases = 0;
    int loaded[1];
    PAL_UNROLL for (int r = 0; r < 1; ++r) loaded[r] = thread % 32 < 8 ? pal::load_constant(sizes + (i64)((thread % 32))) : (-2147483647 - 1);
    const bool is = block < 100;
    const int i = 7 + is;
    int carry = 0;
    PAL_ROLLED
    for (int step_2 = 0; step_2 < i; ++step_2) {
      const int i_2 = step_2 * 132;
      const int i_3 = i_2 + block;
      const int i_4 = i_3 % 128;
      const int i_5 = (i_4 > 0) - (i_4 < 0);
      const bool is_2 = i_5 != 1;
      const bool is_3 = i_4 != 0;
      const bool is_4 = is_2 & is_3;
      const int i_6 = i_4 + 128;
      const int i_7 = (is_4 ? i_6 : i_4);
      const int i_8 = i_3 / 128;
      const int i_9 = i_8 - 1;
      const int i_10 = (is_4 ? i_9 : i_8);
      const int i_11 = i_10 % 8;
      const int i_12 = (i_11 > 0) - (i_11 < 0);
      const bool is_5 = i_12 != 1;
      const bool is_6 = i_11 != 0;
      const bool is_7 = is_5 & is_6;
      const int i_13 = i_11 + 8;
      const int i_14 = (is_7 ? i_13 : i_11);
      const int i_15 = i_7 / 64;
      const int i_16 = i_7 % 64;
      const int i_17 = (i_16 > 0) - (i_16 < 0);
      const bool is_8 = i_17 != 1;
      const bool is_9 = i_16 != 0;
      const bool is_10 = is_8 & is_9;
      const int i_18 = i_15 - 1;
      const int i_19 = (is_10 ? i_18 : i_15);
      const int i_20 = i_16 + 64;
      const int i_21 = (is_10 ? i_20 : i_16);
      const int i_22 = i_19 * 8;
      const int i_23 = i_21 / 8;
      const int i_24 = i_21 % 8;
      const int i_25 = (i_24 > 0) - (i_24 < 0);
      const bool is_11 = i_25 != 1;
      const bool is_12 = i_24 != 0;
      const bool is_13 = is_11 & is_12;
      const int i_26 = i_23 - 1;
      const int i_27 = (is_13 ? i_26 : i_23);
      const int i_28 = i_24 + 8;
      const int i_29 = (is_13 ? i_28 : i_24);
      const int i_30 = i_22 + i_29;
      const int i_31 = i_19 % 2;
      const int i_32 = (i_31 > 0) - (i_31 < 0);
      const bool is_14 = i_32 != 1;
      const bool is_15 = i_31 != 0;
      const bool is_16 = is_14 & is_15;
      const int i_33 = i_31 + 2;
      const int i_34 = (is_16 ? i_33 : i_31);
      const int i_35 = 2 * i_27;
      const int i_36 = 7 - i_35;
      const int i_37 = i_34 * i_36;
      const int i_38 = i_27 + i_37;
      int v[1];
      PAL_UNROLL for (int r = 0; r < 1; ++r) v[r] = ((((int)(thread % 32)) == i_14) ? loaded[r] : 0);
      int total[1];
      PAL_UNROLL for (int r = 0; r < 1; ++r) total[r] = 0;
      PAL_UNROLL for (int r = 0; r < 1; ++r) total[0] = total[0] + (thread % 32 < 8 ? v[r] : 0);
      PAL_UNROLL for (int r = 0; r < 1; ++r) { const int other = pal::shuffle_xor(total[r], 1); total[r] = total[r] + other; }
      PAL_UNROLL for (int r = 0; r < 1; ++r) { const int other = pal::shuffle_xor(total[r], 2); total[r] = total[r] + other; }
      PAL_UNROLL for (int r = 0; r < 1; ++r) { const int other = pal::shuffle_xor(total[r], 4); total[r] = total[r] + other; }
      PAL_UNROLL for (int r = 0; r < 1; ++r) { const int other = pal::shuffle_xor(total[r], 8); total[r] = total[r] + other; }
      PAL_UNROLL for (int r = 0; r < 1; ++r) { const int other = pal::shuffle_xor(total[r], 16); total[r] = total[r] + other; }
      int v_2[1];
      PAL_UNROLL for (int r = 0; r < 1; ++r) v_2[r] = ((((int)(thread % 32)) < i_14) ? loaded[r] : 0);
      int total_2[1];
      PAL_UNROLL for (int r = 0; r < 1; ++r) total_2[r] = 0;
      PAL_UNROLL for (int r = 0; r < 1; ++r) total_2[0] = total_2[0] + (thread % 32 < 8 ? v_2[r] : 0);
      PAL_UNROLL for (int r = 0; r < 1; ++r) { const int other = pal::shuffle_xor(total_2[r], 1); total_2[r] = total_2[r] + other; }
      PAL_UNROLL for (int r = 0; r < 1; ++r) { const int other = pal::shuffle_xor(total_2[r], 2); total_2[r] = total_2[r] + other; }
      PAL_UNROLL for (int r = 0; r < 1; ++r) { const int other = pal::shuffle_xor(total_2[r], 4); total_2[r] = total_2[r] + other; }
      PAL_UNROLL for (int r = 0; r < 1; ++r) { const int other = pal::shuffle_xor(total_2[r], 8); total_2[r] = total_2[r] + other; }
      PAL_UNROLL for (int r = 0; r < 1; ++r) { const int other = pal::shuffle_xor(total_2[r], 16); total_2[r] = total_2[r] + other; }
      const int i_39 = i_30 * 128;
      const int i_40 = i_38 * 256;
      const int i_41 = total[0] + 63;
      const int i_42 = i_41 / 64;
      const int i_43 = i_41 % 64;
      const int i_44 = (i_43 > 0) - (i_43 < 0);
      const bool is_17 = i_44 != 1;
      const bool is_18 = i_43 != 0;
      const bool is_19 = is_17 & is_18;
      const int i_45 = i_42 - 1;
      const int i_46 = (is_19 ? i_45 : i_42);
      PAL_ROLLED
      for (int step_3 = 0; step_3 < i_46; ++step_3) {
        const int i_47 = carry + step_3;
        const int i_48 = step_3 * 64;
        const int i_49 = total_2[0] + i_48;
        const int i_50 = i_47 % 4;
        const bool is_20 = i_47 >= 4;
        if (is_20) {
          const bool is_21 = i_50 < 0;
          const int i_51 = i_50 + 4;
          const int i_52 = (is_21 ? i_51 : i_50);
          pal::wait(smem + 197632 + i_52 * 8, operands_drained_phases >> i_52 & 1);
          operands_drained_phases ^= 1u << i_52;
        }
        const bool is_22 = i_50 < 0;
        const int i_53 = i_50 + 4;
        const int i_54 = (is_22 ? i_53 : i_50);
        pal::sync_named(3, 128);
        if (warp == 0 && pal::elect()) {
          pal::arrive_expect(smem + 197664 + i_54 * 8, 16384);
          pal::tma_load(&lhs_boxes, smem + 1024 + i_54 * 16384, smem + 197664 + i_54 * 8, i_49, i_39);
          pal::arrive_expect(smem + 197664 + i_54 * 8, 32768);
          pal::tma_load(&rhs_boxes, smem + 66560 + i_54 * 32768, smem + 197664 + i_54 * 8, i_40, i_49);
          pal::tma_load(&rhs_boxes, smem + 66560 + i_54 * 32768 + 8192, smem + 197664 + i_54 * 8, i_40 + 64, i_49);
          pal::tma_load(&rhs_boxes, smem + 66560 + i_54 * 32768 + 16384, smem + 197664 + i_54 * 8, i_40 + 128, i_49);
          pal::tma_load(&rhs_boxes, smem + 66560 + i_54 * 32768 + 24576, smem + 197664 + i_54 * 8, i_40 + 192, i_49);
        }
      }
      const int i_55 = carry + i_46;
      carry = i_55;
    }
    const int i_56 = carry - 4;
    const int i_57 = (i_56 > 0 ? i_56 : 0);
    PAL_ROLLED
    for (int step_4 = i_57; step_4 < carry; ++step_4) {
      const int i_58 = step_4 % 4;
      const bool is_23 = i_58 < 0;
      const int i_59 = i_58 + 4;
      const int i_60 = (is_23 ? i_59 : i_58);
      pal::wait(smem + 197632 + i_60 * 8, operands_drained_phases >> i_60 & 1);
      operands_drained_phases ^= 1u << i_60;
    }
  }
}
