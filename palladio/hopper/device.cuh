// The device primitives for sm_90a. Generated kernels call these functions, the products that palladio/hopper/wgmma.py
// writes in the same way, and the functions of C's mathematics; nothing else. `palladio/hopper/primitives.py` is the
// table of them, with who may call each and where the PTX ISA describes it; a test holds the two together.
//
// Shared memory has 32-bit shared addresses everywhere, as in the instructions. A test header with the same functions
// can therefore stand in for this one on a processor.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;
struct alignas(8) u32x2 { u32 x, y; };
struct alignas(16) u32x4 { u32 x, y, z, w; };
struct alignas(64) TensorMap { u64 words[16]; };

#define PAL_DEVICE static __device__ __forceinline__
#define PAL_KERNEL extern "C" __global__
#define PAL_BOUNDS(threads) __launch_bounds__(threads, 1)
#define PAL_CLUSTER(blocks) __cluster_dims__(blocks, 1, 1)
#define PAL_MAP const __grid_constant__ TensorMap
#define PAL_UNROLL _Pragma("unroll")
#define PAL_ROLLED _Pragma("unroll 1")
#define PAL_INFINITY __int_as_float(0x7f800000)
#define PAL_NAN __int_as_float(0x7fc00000)

// The driver provides it for C's assert.
extern "C" __device__ void __assertfail(const char*, const char*, u32, const char*, unsigned long);

namespace pal {

// The reductions of tma_reduce and atomic.
enum Combiner { ADD, MIN, MAX, AND, OR, XOR, EXCHANGE };

// The position of a thread.

extern __shared__ __align__(1024) u8 shared_memory[];
PAL_DEVICE u32 shared_base() { return (u32)__cvta_generic_to_shared(shared_memory); }
PAL_DEVICE u32 thread_index() { return threadIdx.x; }
PAL_DEVICE int block_index() { return (int)blockIdx.x; }
PAL_DEVICE int cluster_index() {
  u32 r;
  asm("mov.u32 %0, %%clusterid.x;" : "=r"(r));
  return (int)r;
}
PAL_DEVICE int cluster_rank() {
  u32 r;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
  return (int)r;
}
PAL_DEVICE int uniform(int x) { return __shfl_sync(0xffffffffu, x, 0); }
PAL_DEVICE bool elect() {
  u32 p;
  asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p; }" : "=r"(p));
  return p != 0;
}

// Synchronisation of threads.

PAL_DEVICE void sync_warp() { __syncwarp(); }
PAL_DEVICE void sync_block() { __syncthreads(); }
PAL_DEVICE void sync_named(int id, int threads) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory"); }
PAL_DEVICE bool all_named(int id, int threads, bool value) {
  u32 all;
  asm volatile(
      "{ .reg .pred p, q; setp.ne.u32 q, %3, 0; bar.red.and.pred p, %1, %2, q; selp.u32 %0, 1, 0, p; }"
      : "=r"(all) : "r"(id), "r"(threads), "r"((u32)value) : "memory");
  return all != 0;
}
PAL_DEVICE void arrive_named(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
PAL_DEVICE void sync_cluster() {
  asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// Barriers in shared memory.

PAL_DEVICE void barrier_init(u32 barrier, u32 count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}
PAL_DEVICE void barrier_invalidate(u32 barrier) {
  asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}
PAL_DEVICE void fence_barrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;\n\tfence.proxy.async.shared::cta;" ::: "memory");
}
PAL_DEVICE void arrive(u32 barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
PAL_DEVICE void arrive_many(u32 barrier, u32 count) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}
PAL_DEVICE void arrive_expect(u32 barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
PAL_DEVICE void expect(u32 barrier, u32 bytes) {
  asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
PAL_DEVICE void arrive_cluster(u32 barrier, u32 rank) {
  asm volatile(
      "{ .reg .b32 r; mapa.shared::cluster.u32 r, %0, %1; mbarrier.arrive.release.cluster.shared::cluster.b64 _, [r]; }"
      ::"r"(barrier), "r"(rank) : "memory");
}
PAL_DEVICE void arrive_peer(u32 barrier, u32 rank) {
  asm volatile("{ .reg .b32 r; mapa.shared::cluster.u32 r, %0, %1; mbarrier.arrive.shared::cluster.b64 _, [r]; }"
               ::"r"(barrier), "r"(rank) : "memory");
}
PAL_DEVICE bool test(u32 barrier, u32 parity) {
  u32 done;
  asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
               : "=r"(done) : "r"(barrier), "r"(parity) : "memory");
  return done != 0;
}
PAL_DEVICE bool try_wait(u32 barrier, u32 parity) {
  u32 done;
  asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
               : "=r"(done) : "r"(barrier), "r"(parity) : "memory");
  return done != 0;
}
PAL_DEVICE bool try_wait_cluster(u32 barrier, u32 parity) {
  u32 done;
  asm volatile(
      "{ .reg .pred p; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
      : "=r"(done) : "r"(barrier), "r"(parity) : "memory");
  return done != 0;
}
PAL_DEVICE void wait(u32 barrier, u32 parity) {
  while (!try_wait(barrier, parity)) {}
}
PAL_DEVICE void wait_cluster(u32 barrier, u32 parity) {
  while (!try_wait_cluster(barrier, parity)) {}
}

// Copies of boxes between global and shared memory. Coordinates are those of the box's first element, the innermost
// axis first.

#define PAL_LOAD "cp.async.bulk.tensor."
#define PAL_ONE ".shared::cluster.global.tile.mbarrier::complete_tx::bytes "
#define PAL_MANY ".shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
#define PAL_STORE ".global.shared::cta.tile.bulk_group "
#define PAL_AT(m) "l"((u64)(m))

PAL_DEVICE void prefetch_map(const TensorMap* map) { asm volatile("prefetch.tensormap [%0];" ::PAL_AT(map) : "memory"); }

PAL_DEVICE void tma_load(const TensorMap* map, u32 target, u32 barrier, int c0) {
  asm volatile(PAL_LOAD "1d" PAL_ONE "[%0], [%1, {%3}], [%2];"
               ::"r"(target), PAL_AT(map), "r"(barrier), "r"(c0) : "memory");
}
PAL_DEVICE void tma_load(const TensorMap* map, u32 target, u32 barrier, int c0, int c1) {
  asm volatile(PAL_LOAD "2d" PAL_ONE "[%0], [%1, {%3, %4}], [%2];"
               ::"r"(target), PAL_AT(map), "r"(barrier), "r"(c0), "r"(c1) : "memory");
}
PAL_DEVICE void tma_load(const TensorMap* map, u32 target, u32 barrier, int c0, int c1, int c2) {
  asm volatile(PAL_LOAD "3d" PAL_ONE "[%0], [%1, {%3, %4, %5}], [%2];"
               ::"r"(target), PAL_AT(map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2) : "memory");
}
PAL_DEVICE void tma_load(const TensorMap* map, u32 target, u32 barrier, int c0, int c1, int c2, int c3) {
  asm volatile(PAL_LOAD "4d" PAL_ONE "[%0], [%1, {%3, %4, %5, %6}], [%2];"
               ::"r"(target), PAL_AT(map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "r"(c3) : "memory");
}
PAL_DEVICE void tma_load(const TensorMap* map, u32 target, u32 barrier, int c0, int c1, int c2, int c3, int c4) {
  asm volatile(PAL_LOAD "5d" PAL_ONE "[%0], [%1, {%3, %4, %5, %6, %7}], [%2];"
               ::"r"(target), PAL_AT(map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4) : "memory");
}

PAL_DEVICE void tma_load_multicast(const TensorMap* map, u32 target, u32 barrier, u32 blocks, int c0) {
  asm volatile(PAL_LOAD "1d" PAL_MANY "[%0], [%1, {%4}], [%2], %3;"
               ::"r"(target), PAL_AT(map), "r"(barrier), "h"((u16)blocks), "r"(c0) : "memory");
}
PAL_DEVICE void tma_load_multicast(const TensorMap* map, u32 target, u32 barrier, u32 blocks, int c0, int c1) {
  asm volatile(PAL_LOAD "2d" PAL_MANY "[%0], [%1, {%4, %5}], [%2], %3;"
               ::"r"(target), PAL_AT(map), "r"(barrier), "h"((u16)blocks), "r"(c0), "r"(c1) : "memory");
}
PAL_DEVICE void tma_load_multicast(const TensorMap* map, u32 target, u32 barrier, u32 blocks, int c0, int c1, int c2) {
  asm volatile(PAL_LOAD "3d" PAL_MANY "[%0], [%1, {%4, %5, %6}], [%2], %3;"
               ::"r"(target), PAL_AT(map), "r"(barrier), "h"((u16)blocks), "r"(c0), "r"(c1), "r"(c2) : "memory");
}
PAL_DEVICE void tma_load_multicast(const TensorMap* map, u32 target, u32 barrier, u32 blocks, int c0, int c1, int c2,
                                   int c3) {
  asm volatile(PAL_LOAD "4d" PAL_MANY "[%0], [%1, {%4, %5, %6, %7}], [%2], %3;"
               ::"r"(target), PAL_AT(map), "r"(barrier), "h"((u16)blocks), "r"(c0), "r"(c1), "r"(c2), "r"(c3) : "memory");
}

PAL_DEVICE void tma_store(const TensorMap* map, u32 source, int c0) {
  asm volatile(PAL_LOAD "1d" PAL_STORE "[%0, {%2}], [%1];" ::PAL_AT(map), "r"(source), "r"(c0) : "memory");
}
PAL_DEVICE void tma_store(const TensorMap* map, u32 source, int c0, int c1) {
  asm volatile(PAL_LOAD "2d" PAL_STORE "[%0, {%2, %3}], [%1];"
               ::PAL_AT(map), "r"(source), "r"(c0), "r"(c1) : "memory");
}
PAL_DEVICE void tma_store(const TensorMap* map, u32 source, int c0, int c1, int c2) {
  asm volatile(PAL_LOAD "3d" PAL_STORE "[%0, {%2, %3, %4}], [%1];"
               ::PAL_AT(map), "r"(source), "r"(c0), "r"(c1), "r"(c2) : "memory");
}
PAL_DEVICE void tma_store(const TensorMap* map, u32 source, int c0, int c1, int c2, int c3) {
  asm volatile(PAL_LOAD "4d" PAL_STORE "[%0, {%2, %3, %4, %5}], [%1];"
               ::PAL_AT(map), "r"(source), "r"(c0), "r"(c1), "r"(c2), "r"(c3) : "memory");
}
PAL_DEVICE void tma_store(const TensorMap* map, u32 source, int c0, int c1, int c2, int c3, int c4) {
  asm volatile(PAL_LOAD "5d" PAL_STORE "[%0, {%2, %3, %4, %5, %6}], [%1];"
               ::PAL_AT(map), "r"(source), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4) : "memory");
}

#define PAL_REDUCE_AS(kind, shape, place, ...)                                                             \
  asm volatile("cp.reduce.async.bulk.tensor." shape ".global.shared::cta." kind ".tile.bulk_group " place \
               ::__VA_ARGS__ : "memory")
#define PAL_REDUCE(shape, place, ...)                                               \
  static_assert(KIND >= ADD && KIND <= XOR, "the copy engine does not have this reduction"); \
  if constexpr (KIND == ADD) PAL_REDUCE_AS("add", shape, place, __VA_ARGS__);       \
  if constexpr (KIND == MIN) PAL_REDUCE_AS("min", shape, place, __VA_ARGS__);       \
  if constexpr (KIND == MAX) PAL_REDUCE_AS("max", shape, place, __VA_ARGS__);       \
  if constexpr (KIND == AND) PAL_REDUCE_AS("and", shape, place, __VA_ARGS__);       \
  if constexpr (KIND == OR) PAL_REDUCE_AS("or", shape, place, __VA_ARGS__);         \
  if constexpr (KIND == XOR) PAL_REDUCE_AS("xor", shape, place, __VA_ARGS__)

template <int KIND> PAL_DEVICE void tma_reduce(const TensorMap* map, u32 source, int c0) {
  PAL_REDUCE("1d", "[%0, {%2}], [%1];", PAL_AT(map), "r"(source), "r"(c0));
}
template <int KIND> PAL_DEVICE void tma_reduce(const TensorMap* map, u32 source, int c0, int c1) {
  PAL_REDUCE("2d", "[%0, {%2, %3}], [%1];", PAL_AT(map), "r"(source), "r"(c0), "r"(c1));
}
template <int KIND> PAL_DEVICE void tma_reduce(const TensorMap* map, u32 source, int c0, int c1, int c2) {
  PAL_REDUCE("3d", "[%0, {%2, %3, %4}], [%1];", PAL_AT(map), "r"(source), "r"(c0), "r"(c1), "r"(c2));
}
template <int KIND> PAL_DEVICE void tma_reduce(const TensorMap* map, u32 source, int c0, int c1, int c2, int c3) {
  PAL_REDUCE("4d", "[%0, {%2, %3, %4, %5}], [%1];", PAL_AT(map), "r"(source), "r"(c0), "r"(c1), "r"(c2), "r"(c3));
}
template <int KIND> PAL_DEVICE void tma_reduce(const TensorMap* map, u32 source, int c0, int c1, int c2, int c3, int c4) {
  PAL_REDUCE("5d", "[%0, {%2, %3, %4, %5, %6}], [%1];",
             PAL_AT(map), "r"(source), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4));
}

PAL_DEVICE void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
template <int N> PAL_DEVICE void bulk_wait_read() { asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory"); }
template <int N> PAL_DEVICE void bulk_wait() { asm volatile("cp.async.bulk.wait_group %0;" ::"n"(N) : "memory"); }
PAL_DEVICE void fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
PAL_DEVICE void fence_async_global() { asm volatile("fence.proxy.async.global;" ::: "memory"); }

// The tensor cores.

PAL_DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
PAL_DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N> PAL_DEVICE void wgmma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory"); }
PAL_DEVICE u64 descriptor(u32 address, u32 leading, u32 stride, u32 swizzle) {
  return (u64)((address & 0x3ffff) >> 4) | (u64)((leading & 0x3ffff) >> 4) << 16 | (u64)((stride & 0x3ffff) >> 4) << 32 |
         (u64)swizzle << 62;
}
template <int R> PAL_DEVICE void keep(float (&registers)[R]) {
  PAL_UNROLL
  for (int r = 0; r < R; ++r) asm volatile("" : "+f"(registers[r])::"memory");
}
template <int R> PAL_DEVICE void keep(int (&registers)[R]) {
  PAL_UNROLL
  for (int r = 0; r < R; ++r) asm volatile("" : "+r"(registers[r])::"memory");
}
template <int R> PAL_DEVICE void keep(u32 (&registers)[R]) {
  PAL_UNROLL
  for (int r = 0; r < R; ++r) asm volatile("" : "+r"(registers[r])::"memory");
}
template <int N> PAL_DEVICE void registers_increase() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N)); }
template <int N> PAL_DEVICE void registers_decrease() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N)); }

// Loads and stores. T is u8, u16, u32, u64, int, i64, float, double, u32x2 or u32x4.

template <typename T> PAL_DEVICE T load_global(const T* address) { return *address; }
template <typename T> PAL_DEVICE T load_constant(const T* address) { return __ldg(address); }
PAL_DEVICE u32x2 load_constant(const u32x2* address) {
  const uint2 bits = __ldg((const uint2*)address);
  return {bits.x, bits.y};
}
PAL_DEVICE u32x4 load_constant(const u32x4* address) {
  const uint4 bits = __ldg((const uint4*)address);
  return {bits.x, bits.y, bits.z, bits.w};
}
template <typename T> PAL_DEVICE void store_global(T* address, T value) { *address = value; }

template <typename T> PAL_DEVICE T load_shared(u32 address) {
  T value;
  if constexpr (sizeof(T) == 1) {
    u32 bits;
    asm volatile("ld.shared.u8 %0, [%1];" : "=r"(bits) : "r"(address) : "memory");
    value = (T)bits;
  } else if constexpr (sizeof(T) == 2) {
    u16 bits;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(bits) : "r"(address) : "memory");
    value = (T)bits;
  } else if constexpr (sizeof(T) == 4) {
    u32 bits;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(bits) : "r"(address) : "memory");
    value = *(T*)&bits;
  } else if constexpr (sizeof(T) == 8) {
    u64 bits;
    asm volatile("ld.shared.u64 %0, [%1];" : "=l"(bits) : "r"(address) : "memory");
    value = *(T*)&bits;
  } else {
    u32x4 bits;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(bits.x), "=r"(bits.y), "=r"(bits.z), "=r"(bits.w) : "r"(address) : "memory");
    value = *(T*)&bits;
  }
  return value;
}
template <typename T> PAL_DEVICE void store_shared(u32 address, T value) {
  if constexpr (sizeof(T) == 1) {
    asm volatile("st.shared.u8 [%0], %1;" ::"r"(address), "r"((u32)value) : "memory");
  } else if constexpr (sizeof(T) == 2) {
    asm volatile("st.shared.u16 [%0], %1;" ::"r"(address), "h"((u16)value) : "memory");
  } else if constexpr (sizeof(T) == 4) {
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(*(u32*)&value) : "memory");
  } else if constexpr (sizeof(T) == 8) {
    asm volatile("st.shared.u64 [%0], %1;" ::"r"(address), "l"(*(u64*)&value) : "memory");
  } else {
    u32x4 bits = *(u32x4*)&value;
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};"
                 ::"r"(address), "r"(bits.x), "r"(bits.y), "r"(bits.z), "r"(bits.w) : "memory");
  }
}
PAL_DEVICE void stmatrix4(u32 address, u32 a, u32 b, u32 c, u32 d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
               ::"r"(address), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}
PAL_DEVICE void stmatrix2(u32 address, u32 a, u32 b) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(address), "r"(a), "r"(b) : "memory");
}

PAL_DEVICE void stmatrix4_transposed(u32 address, u32 a, u32 b, u32 c, u32 d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};"
               ::"r"(address), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}
PAL_DEVICE void ldmatrix4(u32 address, u32& a, u32& b, u32& c, u32& d) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(address) : "memory");
}
PAL_DEVICE void ldmatrix4_transposed(u32 address, u32& a, u32& b, u32& c, u32& d) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(address) : "memory");
}

// Shared memory of another block of the cluster, at the same address there. T has 8 to 64 bits.

template <typename T> PAL_DEVICE T load_cluster(u32 address, u32 rank) {
  if constexpr (sizeof(T) == 1) {
    u32 bits;
    asm volatile("{ .reg .b32 r; mapa.shared::cluster.u32 r, %1, %2; ld.shared::cluster.u8 %0, [r]; }"
                 : "=r"(bits) : "r"(address), "r"(rank) : "memory");
    return (T)bits;
  } else if constexpr (sizeof(T) == 2) {
    u16 bits;
    asm volatile("{ .reg .b32 r; mapa.shared::cluster.u32 r, %1, %2; ld.shared::cluster.u16 %0, [r]; }"
                 : "=h"(bits) : "r"(address), "r"(rank) : "memory");
    return (T)bits;
  } else if constexpr (sizeof(T) == 4) {
    u32 bits;
    asm volatile("{ .reg .b32 r; mapa.shared::cluster.u32 r, %1, %2; ld.shared::cluster.u32 %0, [r]; }"
                 : "=r"(bits) : "r"(address), "r"(rank) : "memory");
    return *(T*)&bits;
  } else {
    u64 bits;
    asm volatile("{ .reg .b32 r; mapa.shared::cluster.u32 r, %1, %2; ld.shared::cluster.u64 %0, [r]; }"
                 : "=l"(bits) : "r"(address), "r"(rank) : "memory");
    return *(T*)&bits;
  }
}
template <typename T> PAL_DEVICE void store_cluster(u32 address, u32 rank, T value) {
  if constexpr (sizeof(T) == 1)
    asm volatile("{ .reg .b32 r; mapa.shared::cluster.u32 r, %0, %1; st.shared::cluster.u8 [r], %2; }"
                 ::"r"(address), "r"(rank), "r"((u32)value) : "memory");
  else if constexpr (sizeof(T) == 2)
    asm volatile("{ .reg .b32 r; mapa.shared::cluster.u32 r, %0, %1; st.shared::cluster.u16 [r], %2; }"
                 ::"r"(address), "r"(rank), "h"((u16)value) : "memory");
  else if constexpr (sizeof(T) == 4)
    asm volatile("{ .reg .b32 r; mapa.shared::cluster.u32 r, %0, %1; st.shared::cluster.u32 [r], %2; }"
                 ::"r"(address), "r"(rank), "r"(*(u32*)&value) : "memory");
  else
    asm volatile("{ .reg .b32 r; mapa.shared::cluster.u32 r, %0, %1; st.shared::cluster.u64 [r], %2; }"
                 ::"r"(address), "r"(rank), "l"(*(u64*)&value) : "memory");
}

// Copies of 4, 8 or 16 bytes from global to shared memory that the thread does not wait for. Only `given` bytes are
// read, the others are zero.

template <int BYTES> PAL_DEVICE void copy_async(u32 target, const void* source, int given) {
  if constexpr (BYTES == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(target), "l"(source), "r"(given) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;"
                 ::"r"(target), "l"(source), "n"(BYTES), "r"(given) : "memory");
}
PAL_DEVICE void copy_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> PAL_DEVICE void copy_async_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }
PAL_DEVICE void copy_async_hold(u32 barrier) {
  asm volatile("cp.async.mbarrier.arrive.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}
PAL_DEVICE void copy_async_arrive(u32 barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

// Values of other lanes of the warp. T has 32 or 64 bits.

template <typename T> PAL_DEVICE T shuffle(T value, int lane) { return __shfl_sync(0xffffffffu, value, lane); }
template <typename T> PAL_DEVICE T shuffle_xor(T value, int mask) { return __shfl_xor_sync(0xffffffffu, value, mask); }
template <typename T> PAL_DEVICE T shuffle_up(T value, int lanes) { return __shfl_up_sync(0xffffffffu, value, lanes); }
PAL_DEVICE bool all_lanes(bool value) { return __all_sync(0xffffffffu, value); }
PAL_DEVICE u32 ballot(bool value) { return __ballot_sync(0xffffffffu, value); }
PAL_DEVICE int warp_sum(int value) { return __reduce_add_sync(0xffffffffu, value); }
PAL_DEVICE u32 warp_sum(u32 value) { return __reduce_add_sync(0xffffffffu, value); }

// Bits of integers.

PAL_DEVICE int ones(u32 bits) { return __popc(bits); }
PAL_DEVICE int ones(u64 bits) { return __popcll(bits); }
PAL_DEVICE int leading_zeros(u32 bits) { return __clz((int)bits); }
PAL_DEVICE int leading_zeros(u64 bits) { return __clzll((i64)bits); }

// Narrow floats. Kernels compute with them as float32, rounded after each operation.

PAL_DEVICE u32 pack_bf16(float low, float high) {
  u32 r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
PAL_DEVICE u32 pack_f16(float low, float high) {
  u32 r;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
PAL_DEVICE u16 bits_bf16(float x) {
  u16 r;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(x));
  return r;
}
PAL_DEVICE u16 bits_f16(float x) {
  u16 r;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(x));
  return r;
}
PAL_DEVICE float float_bf16(u16 bits) { return __uint_as_float((u32)bits << 16); }
PAL_DEVICE float float_f16(u16 bits) {
  float r;
  asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(bits));
  return r;
}
// A float64 cut to float32, with an odd last bit if it is not exact: then rounding the result to a narrower float
// rounds once.
PAL_DEVICE float odd_float(double x) {
  const float cut = __double2float_rz(x);
  return (double)cut == x ? cut : __uint_as_float(__float_as_uint(cut) | 1);
}
PAL_DEVICE u32 bits_of(float x) { return __float_as_uint(x); }
PAL_DEVICE float float_of(u32 bits) { return __uint_as_float(bits); }
PAL_DEVICE u64 bits_of(double x) { return (u64)__double_as_longlong(x); }
PAL_DEVICE double double_of(u64 bits) { return __longlong_as_double((i64)bits); }

// The hardware saturates; these conversions give NaN, or infinity, for numbers out of range, as NumPy does. 464 and
// 61440 are half-way from the greatest number to the next.
PAL_DEVICE u8 bits_e4m3(float x) {
  u16 r;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(r) : "f"(0.0f), "f"(x));
  return fabsf(x) <= 464.0f ? (u8)r : (u8)0x7f;
}
PAL_DEVICE u8 bits_e5m2(float x) {
  u16 r;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(r) : "f"(0.0f), "f"(x));
  return fabsf(x) >= 61440.0f ? (u8)(0x7c | bits_of(x) >> 31 << 7) : (u8)r;
}
PAL_DEVICE float float_e4m3(u8 bits) {
  float r;
  asm("{ .reg .b32 p; .reg .b16 l, h; cvt.rn.f16x2.e4m3x2 p, %1; mov.b32 {l, h}, p; cvt.f32.f16 %0, l; }"
      : "=f"(r) : "h"((u16)bits));
  return r;
}
PAL_DEVICE float float_e5m2(u8 bits) {
  float r;
  asm("{ .reg .b32 p; .reg .b16 l, h; cvt.rn.f16x2.e5m2x2 p, %1; mov.b32 {l, h}, p; cvt.f32.f16 %0, l; }"
      : "=f"(r) : "h"((u16)bits));
  return r;
}

// Extrema that propagate NaN, as in NumPy.

PAL_DEVICE float maximum(float a, float b) {
  float r;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}
PAL_DEVICE float minimum(float a, float b) {
  float r;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}
PAL_DEVICE double maximum(double a, double b) { return a != a ? a : b != b ? b : a > b ? a : b; }
PAL_DEVICE double minimum(double a, double b) { return a != a ? a : b != b ? b : a < b ? a : b; }

// x to the power y, of integers, as Palladio defines it: it wraps around; to a negative power, 1 and -1 give 1 or -1, and
// all others 0.
template <typename T> PAL_DEVICE T power(T x, T y) {
  if constexpr ((T)-1 < (T)0) {  // NVRTC 13.0 warns of an unsigned number that is compared with 0
    if (y < 0) return x == 1 || (x == (T)-1 && y % 2 == 0) ? (T)1 : x == (T)-1 ? x : (T)0;
  }
  u64 product = 1, factor = (u64)x;
  for (u64 left = (u64)y; left != 0; left >>= 1, factor *= factor)
    if (left & 1) product *= factor;
  return (T)product;
}

// 1 / x of x from 1 to 2^126, within 2 ulp; 0 beyond. Without the branches of a division for other numbers.
PAL_DEVICE float inverse(float x) { return __fdividef(1.0f, x); }

// 2 to the power x, within 2 ulp, in one instruction; 0 if that is less than 2^-126.
PAL_DEVICE float approximate_exp2(float x) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}

// Atomic operations. T is int, u32, i64, u64, float or double; AND, OR and XOR take integers. atomic_compare takes
// elements of 8 and 16 bits too. They return the old value.

template <typename T> PAL_DEVICE T atomic_compare(T* address, T compare, T value) {
  if constexpr (sizeof(T) == 1) {  // the hardware compares words: one that differs in other bytes only is tried again
    u32* word = (u32*)((u64)address & ~(u64)3);
    const u32 shift = 8 * ((u32)(u64)address & 3);
    u32 old = *(volatile u32*)word, seen;
    do {
      seen = old;
      if ((u8)(seen >> shift) != (u8)compare) break;
      old = atomicCAS(word, seen, (seen & ~(0xffu << shift)) | (u32)(u8)value << shift);
    } while (old != seen);
    return (T)(u8)(seen >> shift);
  } else if constexpr (sizeof(T) == 2) {
    const u16 old = atomicCAS((u16*)address, *(u16*)&compare, *(u16*)&value);
    return *(T*)&old;
  } else if constexpr (sizeof(T) == 4) {
    const u32 old = atomicCAS((u32*)address, *(u32*)&compare, *(u32*)&value);
    return *(T*)&old;
  } else {
    const u64 old = atomicCAS((u64*)address, *(u64*)&compare, *(u64*)&value);
    return *(T*)&old;
  }
}
template <int KIND, typename T> PAL_DEVICE T atomic(T* address, T value) {
  constexpr bool real = (T)0.5 != (T)0;
  static_assert(!real || KIND <= MAX || KIND == EXCHANGE, "floats have no bits to combine");
  if constexpr (KIND == ADD && (real || sizeof(T) == 4)) {
    return atomicAdd(address, value);
  } else if constexpr (KIND == ADD) {
    return (T)atomicAdd((u64*)address, (u64)value);
  } else if constexpr ((KIND == MIN || KIND == MAX) && real) {
    T old = *(volatile T*)address, seen;
    do {
      seen = old;
      old = atomic_compare(address, seen, KIND == MIN ? minimum(seen, value) : maximum(seen, value));
    } while (sizeof(T) == 4 ? *(u32*)&old != *(u32*)&seen : *(u64*)&old != *(u64*)&seen);
    return old;
  } else if constexpr (KIND == MIN) {
    return atomicMin(address, value);
  } else if constexpr (KIND == MAX) {
    return atomicMax(address, value);
  } else if constexpr (sizeof(T) == 4) {
    u32* words = (u32*)address;
    const u32 bits = *(u32*)&value;
    const u32 old = KIND == AND   ? atomicAnd(words, bits)
                    : KIND == OR  ? atomicOr(words, bits)
                    : KIND == XOR ? atomicXor(words, bits)
                                  : atomicExch(words, bits);
    return *(T*)&old;
  } else {
    u64* words = (u64*)address;
    const u64 bits = *(u64*)&value;
    const u64 old = KIND == AND   ? atomicAnd(words, bits)
                    : KIND == OR  ? atomicOr(words, bits)
                    : KIND == XOR ? atomicXor(words, bits)
                                  : atomicExch(words, bits);
    return *(T*)&old;
  }
}
template <int KIND, typename T> PAL_DEVICE T atomic_shared(u32 address, T value) {
  return atomic<KIND>((T*)__cvta_shared_to_generic(address), value);
}
template <int KIND, typename T> PAL_DEVICE T atomic_cluster(u32 address, u32 rank, T value) {
  u64 there;
  asm("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(__cvta_shared_to_generic(address)), "r"(rank));
  return atomic<KIND>((T*)there, value);
}
template <typename T> PAL_DEVICE T atomic_compare_shared(u32 address, T compare, T value) {
  return atomic_compare((T*)__cvta_shared_to_generic(address), compare, value);
}
template <typename T> PAL_DEVICE T atomic_compare_cluster(u32 address, u32 rank, T compare, T value) {
  u64 there;
  asm("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(__cvta_shared_to_generic(address)), "r"(rank));
  return atomic_compare((T*)there, compare, value);
}

// Counters in global memory that blocks wait for.

PAL_DEVICE int load_acquire(const int* address) {
  int r;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(r) : "l"(address) : "memory");
  return r;
}
PAL_DEVICE void add_release(int* address, int value) {
  asm volatile("red.release.gpu.global.add.s32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
}

// Debugging.

template <typename... T> PAL_DEVICE void print(const char* format, T... values) { printf(format, values...); }
PAL_DEVICE void check_failed(const char* message, const char* file, int line) {
  __assertfail(message, file, (u32)line, "a kernel of Palladio", sizeof(char));
}

}  // namespace pal
