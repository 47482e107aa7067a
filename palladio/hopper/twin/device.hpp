// The device primitives on the host twin: the same functions as ../device.cuh. Generated text is compiled against these
// declarations, without optimisation and without any other header, so that it takes a fraction of a second.
#pragma once

#include "types.hpp"

#define PAL_KERNEL extern "C"
#define PAL_BOUNDS(threads)
#define PAL_CLUSTER(blocks)
#define PAL_MAP const TensorMap
#define PAL_UNROLL
#define PAL_ROLLED
#define PAL_INFINITY __builtin_inff()
#define PAL_NAN __builtin_nanf("")
// Inlined even without optimisation: collectives are told apart by their return addresses.
#define TWIN_INLINE __attribute__((always_inline)) inline

namespace twin {

void increase_registers(u32 count, Site site, const void* caller);
void decrease_registers(u32 count, Site site, const void* caller);
void wait_bulk(u32 groups, bool only_read, Site site);
void wait_products(u32 groups, Site site, const void* caller);
void wgmma(const ProductKind& kind, void* accumulator, u64 left, const Left* left_registers, u64 right, int accumulate,
           bool left_transposed, bool right_transposed, Site site, const void* caller);
void load_shared(u32 address, void* value, u32 bytes, Site site);
void store_shared(u32 address, const void* value, u32 bytes, Site site);
void load_global(const void* address, void* value, u32 bytes, Site site);
void store_global(void* address, const void* value, u32 bytes, Site site);
void reduce_box(const TensorMap* map, u32 source, const int* coordinates, u32 count, int how, Site site);
void atomic_global(Combiner how, Number type, void* address, void* value, Site site);
void atomic_shared(Combiner how, Number type, u32 address, void* value, Site site);
void atomic_cluster(Combiner how, Number type, u32 address, u32 rank, void* value, Site site);
void compare_global(void* address, const void* compare, void* value, u32 bytes, Site site);
void compare_shared(u32 address, const void* compare, void* value, u32 bytes, Site site);
void compare_cluster(u32 address, u32 rank, const void* compare, void* value, u32 bytes, Site site);
void load_cluster(u32 address, u32 rank, void* value, u32 bytes, Site site);
void store_cluster(u32 address, u32 rank, const void* value, u32 bytes, Site site);
void copy_small(u32 target, const void* source, u32 bytes, int given, Site site);
void wait_small(u32 groups, Site site);
void shuffle(void* value, u32 bytes, int from, Site site, const void* caller, const char* name);

void printed(const char* format, ...);

template <class T> struct NumberOf;
template <> struct NumberOf<int> { enum { value = S32 }; };
template <> struct NumberOf<u32> { enum { value = U32 }; };
template <> struct NumberOf<i64> { enum { value = S64 }; };
template <> struct NumberOf<u64> { enum { value = U64 }; };
template <> struct NumberOf<float> { enum { value = F32 }; };
template <> struct NumberOf<double> { enum { value = F64 }; };

// The address of the instruction that it stands at: different at each place that a function is inlined to.
TWIN_INLINE const void* here() {
  const void* place;
  asm volatile("lea 0(%%rip), %0" : "=r"(place));
  return place;
}

}  // namespace twin

namespace pal {

// How tma_reduce and atomic combine.
using twin::ADD, twin::MIN, twin::MAX, twin::AND, twin::OR, twin::XOR, twin::EXCHANGE;

// Where a thread is.

u32 shared_base();
u32 thread_index();
int block_index();
int cluster_index();
int cluster_rank();
int uniform(int x, TWIN_SITE);
bool elect(TWIN_SITE);

// Threads that wait for each other.

void sync_warp(TWIN_SITE);
void sync_block(TWIN_SITE);
void sync_named(int id, int threads, TWIN_SITE);
bool all_named(int id, int threads, bool value, TWIN_SITE);
void arrive_named(int id, int threads, TWIN_SITE);
void sync_cluster(TWIN_SITE);

// For the programmer: what is printed, and a check that failed, which ends the launch.

template <typename... T> void print(const char* format, T... values) { twin::printed(format, values...); }
void check_failed(const char* message, const char* file, int line);

// Barriers in shared memory.

void barrier_init(u32 barrier, u32 count, TWIN_SITE);
void barrier_invalidate(u32 barrier, TWIN_SITE);
void fence_barrier_init(TWIN_SITE);
void arrive(u32 barrier, TWIN_SITE);
void arrive_many(u32 barrier, u32 count, TWIN_SITE);
void arrive_expect(u32 barrier, u32 bytes, TWIN_SITE);
void expect(u32 barrier, u32 bytes, TWIN_SITE);
void arrive_cluster(u32 barrier, u32 rank, TWIN_SITE);
void arrive_peer(u32 barrier, u32 rank, TWIN_SITE);
bool test(u32 barrier, u32 parity, TWIN_SITE);
bool try_wait(u32 barrier, u32 parity, TWIN_SITE);
bool try_wait_cluster(u32 barrier, u32 parity, TWIN_SITE);
void wait(u32 barrier, u32 parity, TWIN_SITE);
void wait_cluster(u32 barrier, u32 parity, TWIN_SITE);

// Copies of boxes between global and shared memory.

void prefetch_map(const TensorMap* map, TWIN_SITE);
void tma_load(const TensorMap* map, u32 target, u32 barrier, int c0, TWIN_SITE);
void tma_load(const TensorMap* map, u32 target, u32 barrier, int c0, int c1, TWIN_SITE);
void tma_load(const TensorMap* map, u32 target, u32 barrier, int c0, int c1, int c2, TWIN_SITE);
void tma_load(const TensorMap* map, u32 target, u32 barrier, int c0, int c1, int c2, int c3, TWIN_SITE);
void tma_load(const TensorMap* map, u32 target, u32 barrier, int c0, int c1, int c2, int c3, int c4, TWIN_SITE);
void tma_load_multicast(const TensorMap* map, u32 target, u32 barrier, u32 blocks, int c0, TWIN_SITE);
void tma_load_multicast(const TensorMap* map, u32 target, u32 barrier, u32 blocks, int c0, int c1, TWIN_SITE);
void tma_load_multicast(const TensorMap* map, u32 target, u32 barrier, u32 blocks, int c0, int c1, int c2, TWIN_SITE);
void tma_load_multicast(const TensorMap* map, u32 target, u32 barrier, u32 blocks, int c0, int c1, int c2, int c3,
                        TWIN_SITE);
void tma_store(const TensorMap* map, u32 source, int c0, TWIN_SITE);
void tma_store(const TensorMap* map, u32 source, int c0, int c1, TWIN_SITE);
void tma_store(const TensorMap* map, u32 source, int c0, int c1, int c2, TWIN_SITE);
void tma_store(const TensorMap* map, u32 source, int c0, int c1, int c2, int c3, TWIN_SITE);
void tma_store(const TensorMap* map, u32 source, int c0, int c1, int c2, int c3, int c4, TWIN_SITE);
template <int KIND> inline void tma_reduce(const TensorMap* map, u32 source, int c0, TWIN_SITE) {
  int list[] = {c0};
  twin::reduce_box(map, source, list, 1, KIND, site);
}
template <int KIND> inline void tma_reduce(const TensorMap* map, u32 source, int c0, int c1, TWIN_SITE) {
  int list[] = {c0, c1};
  twin::reduce_box(map, source, list, 2, KIND, site);
}
template <int KIND> inline void tma_reduce(const TensorMap* map, u32 source, int c0, int c1, int c2, TWIN_SITE) {
  int list[] = {c0, c1, c2};
  twin::reduce_box(map, source, list, 3, KIND, site);
}
template <int KIND>
inline void tma_reduce(const TensorMap* map, u32 source, int c0, int c1, int c2, int c3, TWIN_SITE) {
  int list[] = {c0, c1, c2, c3};
  twin::reduce_box(map, source, list, 4, KIND, site);
}
template <int KIND>
inline void tma_reduce(const TensorMap* map, u32 source, int c0, int c1, int c2, int c3, int c4, TWIN_SITE) {
  int list[] = {c0, c1, c2, c3, c4};
  twin::reduce_box(map, source, list, 5, KIND, site);
}
void bulk_commit(TWIN_SITE);
template <int N> TWIN_INLINE void bulk_wait_read(TWIN_SITE) { twin::wait_bulk(N, true, site); }
template <int N> TWIN_INLINE void bulk_wait(TWIN_SITE) { twin::wait_bulk(N, false, site); }
void fence_async(TWIN_SITE);
void fence_async_global(TWIN_SITE);

// The tensor cores.

void wgmma_fence(TWIN_SITE);
void wgmma_commit(TWIN_SITE);
template <int N> TWIN_INLINE void wgmma_wait(TWIN_SITE) { twin::wait_products(N, site, twin::here()); }
u64 descriptor(u32 address, u32 leading, u32 stride, u32 swizzle, TWIN_SITE);
// Only the compiler for the device could move accesses to these registers.
template <int R> TWIN_INLINE void keep(float (&registers)[R]) {}
template <int R> TWIN_INLINE void keep(int (&registers)[R]) {}
template <int R> TWIN_INLINE void keep(u32 (&registers)[R]) {}
template <int N> TWIN_INLINE void registers_increase(TWIN_SITE) { twin::increase_registers(N, site, twin::here()); }
template <int N> TWIN_INLINE void registers_decrease(TWIN_SITE) { twin::decrease_registers(N, site, twin::here()); }

// Loads and stores.

template <typename T> inline T load_global(const T* address, TWIN_SITE) {
  T value;
  twin::load_global(address, &value, sizeof(T), site);
  return value;
}
template <typename T> inline T load_constant(const T* address, TWIN_SITE) { return load_global(address, site); }
inline u32x2 load_constant(const u32x2* address, TWIN_SITE) { return load_global(address, site); }
inline u32x4 load_constant(const u32x4* address, TWIN_SITE) { return load_global(address, site); }
template <typename T> inline void store_global(T* address, T value, TWIN_SITE) {
  twin::store_global(address, &value, sizeof(T), site);
}
template <typename T> inline T load_shared(u32 address, TWIN_SITE) {
  T value;
  twin::load_shared(address, &value, sizeof(T), site);
  return value;
}
template <typename T> inline void store_shared(u32 address, T value, TWIN_SITE) {
  twin::store_shared(address, &value, sizeof(T), site);
}
void stmatrix4(u32 address, u32 a, u32 b, u32 c, u32 d, TWIN_SITE);
void stmatrix2(u32 address, u32 a, u32 b, TWIN_SITE);
void stmatrix4_transposed(u32 address, u32 a, u32 b, u32 c, u32 d, TWIN_SITE);
void ldmatrix4(u32 address, u32& a, u32& b, u32& c, u32& d, TWIN_SITE);
void ldmatrix4_transposed(u32 address, u32& a, u32& b, u32& c, u32& d, TWIN_SITE);
template <typename T> inline T load_cluster(u32 address, u32 rank, TWIN_SITE) {
  T value;
  twin::load_cluster(address, rank, &value, sizeof(T), site);
  return value;
}
template <typename T> inline void store_cluster(u32 address, u32 rank, T value, TWIN_SITE) {
  twin::store_cluster(address, rank, &value, sizeof(T), site);
}

// Copies of a few bytes that the thread does not wait for.

template <int BYTES> inline void copy_async(u32 target, const void* source, int given, TWIN_SITE) {
  twin::copy_small(target, source, BYTES, given, site);
}
void copy_async_commit(TWIN_SITE);
template <int N> inline void copy_async_wait(TWIN_SITE) { twin::wait_small(N, site); }
void copy_async_hold(u32 barrier, TWIN_SITE);
void copy_async_arrive(u32 barrier, TWIN_SITE);

// Atomic operations, and counters that blocks wait for.

template <int KIND, typename T> inline T atomic(T* address, T value, TWIN_SITE) {
  twin::atomic_global((twin::Combiner)KIND, (twin::Number)twin::NumberOf<T>::value, address, &value, site);
  return value;
}
template <int KIND, typename T> inline T atomic_shared(u32 address, T value, TWIN_SITE) {
  twin::atomic_shared((twin::Combiner)KIND, (twin::Number)twin::NumberOf<T>::value, address, &value, site);
  return value;
}
template <int KIND, typename T> inline T atomic_cluster(u32 address, u32 rank, T value, TWIN_SITE) {
  twin::atomic_cluster((twin::Combiner)KIND, (twin::Number)twin::NumberOf<T>::value, address, rank, &value, site);
  return value;
}
template <typename T> inline T atomic_compare(T* address, T compare, T value, TWIN_SITE) {
  twin::compare_global(address, &compare, &value, sizeof(T), site);
  return value;
}
template <typename T> inline T atomic_compare_shared(u32 address, T compare, T value, TWIN_SITE) {
  twin::compare_shared(address, &compare, &value, sizeof(T), site);
  return value;
}
template <typename T> inline T atomic_compare_cluster(u32 address, u32 rank, T compare, T value, TWIN_SITE) {
  twin::compare_cluster(address, rank, &compare, &value, sizeof(T), site);
  return value;
}
int load_acquire(const int* address, TWIN_SITE);
void add_release(int* address, int value, TWIN_SITE);

// Values of other lanes of the warp.

template <typename T> TWIN_INLINE T shuffle(T value, int lane, TWIN_SITE) {
  twin::shuffle(&value, sizeof(T), lane & 31, site, twin::here(), "shfl.sync.idx");
  return value;
}
template <typename T> TWIN_INLINE T shuffle_xor(T value, int mask, TWIN_SITE) {
  twin::shuffle(&value, sizeof(T), (int)(thread_index() % 32) ^ mask, site, twin::here(), "shfl.sync.bfly");
  return value;
}
template <typename T> TWIN_INLINE T shuffle_up(T value, int lanes, TWIN_SITE) {
  twin::shuffle(&value, sizeof(T), (int)(thread_index() % 32) - lanes, site, twin::here(), "shfl.sync.up");
  return value;
}
bool all_lanes(bool value, TWIN_SITE);
u32 ballot(bool value, TWIN_SITE);
int warp_sum(int value, TWIN_SITE);
u32 warp_sum(u32 value, TWIN_SITE);

// Numbers.

template <typename T> inline T power(T x, T y) {
  if (y < 0) {
    if (x == (T)1) return x;
    if (x == (T)-1) return y & 1 ? x : (T)1;
    return 0;
  }
  u64 result = 1, square = (u64)x;
  for (u64 bits = (u64)y; bits; bits /= 2) {
    if (bits % 2) result *= square;
    square *= square;
  }
  return (T)result;
}
int ones(u32 bits);
int ones(u64 bits);
int leading_zeros(u32 bits);
int leading_zeros(u64 bits);
u32 pack_bf16(float low, float high, TWIN_SITE);
u32 pack_f16(float low, float high, TWIN_SITE);
u16 bits_bf16(float x, TWIN_SITE);
u16 bits_f16(float x, TWIN_SITE);
float odd_float(double x);
float float_bf16(u16 bits);
float float_f16(u16 bits);
u32 bits_of(float x);
float float_of(u32 bits);
u64 bits_of(double x);
double double_of(u64 bits);
u8 bits_e4m3(float x, TWIN_SITE);
u8 bits_e5m2(float x, TWIN_SITE);
float float_e4m3(u8 bits);
float float_e5m2(u8 bits);
float maximum(float a, float b);
float minimum(float a, float b);
float inverse(float x);
float approximate_exp2(float x);
double maximum(double a, double b);
double minimum(double a, double b);

}  // namespace pal

// C's mathematics, as the device has it without a header.

#define TWIN_UNARY(name)    \
  extern "C" double name(double); \
  extern "C" float name##f(float);
#define TWIN_BINARY(name)           \
  extern "C" double name(double, double); \
  extern "C" float name##f(float, float);
TWIN_UNARY(exp) TWIN_UNARY(exp2) TWIN_UNARY(expm1) TWIN_UNARY(log) TWIN_UNARY(log2) TWIN_UNARY(log1p) TWIN_UNARY(sqrt)
TWIN_UNARY(sin) TWIN_UNARY(cos) TWIN_UNARY(tan) TWIN_UNARY(asin) TWIN_UNARY(acos) TWIN_UNARY(atan) TWIN_UNARY(sinh)
TWIN_UNARY(cosh) TWIN_UNARY(tanh) TWIN_UNARY(asinh) TWIN_UNARY(acosh) TWIN_UNARY(atanh) TWIN_UNARY(floor)
TWIN_UNARY(ceil) TWIN_UNARY(rint) TWIN_UNARY(round) TWIN_UNARY(trunc) TWIN_UNARY(fabs) TWIN_UNARY(erf)
TWIN_UNARY(erfc) TWIN_UNARY(erfinv) TWIN_UNARY(cbrt)
TWIN_BINARY(atan2) TWIN_BINARY(pow) TWIN_BINARY(fmod) TWIN_BINARY(copysign) TWIN_BINARY(nextafter)
extern "C" double fma(double, double, double);
extern "C" float fmaf(float, float, float);
#undef TWIN_UNARY
#undef TWIN_BINARY

namespace twin {

// Calls a kernel with parameters given by address, as a launch does.
template <int... N> struct Numbers {};
template <class... P, int... N> inline void call(void (*kernel)(P...), void** parameters, Numbers<N...>) {
  kernel(*(P*)parameters[N]...);
}
template <class... P> inline void call(void (*kernel)(P...), void** parameters) {
  call(kernel, parameters, Numbers<__integer_pack(sizeof...(P))...>{});
}

}  // namespace twin

#define TWIN_ENTRY(kernel) \
  extern "C" void palladio_twin_entry(void** parameters) { twin::call(kernel, parameters); }
