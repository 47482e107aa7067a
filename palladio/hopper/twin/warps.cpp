// Collectives of a warp: shuffles, votes, sums, election, matrices of 8 rows; and the places of threads.
#include "device.hpp"
#include "machine.hpp"
#include "numbers.hpp"

namespace twin {

struct Exchange {
  u64 value;
  u32 lane;
};

// PTX ISA, "shfl.sync": the value of lane `from`, this lane's own where that is outside of the warp.
void shuffle(void* value, u32 bytes, int from, Site site, const void* caller, const char* name) {
  enter(name, site, caller);
  Exchange mine{0, from < 0 || from >= (int)LANES ? self->lane() : (u32)from};
  memcpy(&mine.value, value, bytes);
  meet(mine, [](Exchange** lanes) {
    u64 values[LANES];
    for (u32 lane = 0; lane < LANES; ++lane) values[lane] = lanes[lane]->value;
    for (u32 lane = 0; lane < LANES; ++lane) lanes[lane]->value = values[lanes[lane]->lane];
  });
  memcpy(value, &mine.value, bytes);
}

// PTX ISA, "stmatrix", "Fragment layout": lane l holds columns 2 (l % 4) and the next of row l / 4 of each matrix.
// Transposed, it holds rows 2 (l % 4) and the next of column l / 4.
static u32 holder(u32 row, u32 column, bool transposed) {
  return transposed ? 4 * column + row / 2 : 4 * row + column / 2;
}

struct Rows {
  u32 address;
  const u32* values;
};

static void store_matrices(u32 address, const u32* values, u32 count, bool transposed) {
  Rows mine{address, values};
  meet(mine, [=](Rows** lanes) {
    Fiber* last = self;
    u32 first = last->thread - last->lane();
    for (u32 matrix = 0; matrix < count; ++matrix)
      for (u32 row = 0; row < 8; ++row) {
        u32 to = lanes[8 * matrix + row]->address;
        Block& block = resolve(to, false);
        // The row counts as stored by the lane that gave its address: that lane has to execute the fence.
        self = &block.fibers[first + 8 * matrix + row];
        u8* memory = access(block, to, 16, 16, GENERIC_WRITE);
        for (u32 column = 0; column < 8; ++column) {
          const u8* from = (const u8*)&lanes[holder(row, column, transposed)]->values[matrix];
          memcpy(memory + 2 * column, from + 2 * ((transposed ? row : column) % 2), 2);
        }
        self = last;
      }
  });
}

// PTX ISA, "ldmatrix": the same the other way.
struct ReadRows {
  u32 address;
  u32* values;
};

static void load_matrices(u32 address, u32* values, u32 count, bool transposed) {
  ReadRows mine{address, values};
  meet(mine, [=](ReadRows** lanes) {
    for (u32 matrix = 0; matrix < count; ++matrix)
      for (u32 row = 0; row < 8; ++row) {
        u32 from = lanes[8 * matrix + row]->address;
        Block& block = resolve(from, false);
        const u8* memory = access(block, from, 16, 16, GENERIC_READ);
        for (u32 column = 0; column < 8; ++column) {
          u8* to = (u8*)&lanes[holder(row, column, transposed)]->values[matrix];
          memcpy(to + 2 * ((transposed ? row : column) % 2), memory + 2 * column, 2);
        }
      }
  });
}

}  // namespace twin

namespace pal {
using namespace twin;

u32 thread_index() { return self->thread; }
int block_index() { return (int)self->block->index; }
int cluster_index() { return (int)(self->block->index / machine.request.cluster); }
int cluster_rank() { return (int)self->block->rank; }

int uniform(int x, Site site) {
  twin::shuffle(&x, 4, 0, site, __builtin_return_address(0), "shfl.sync.idx");
  return x;
}

// PTX ISA, "elect.sync": one lane, always the same for a mask. Which one it is differs between schedules.
bool elect(Site site) {
  PRIMITIVE("elect.sync");
  struct {
  } nothing;
  meet(nothing, [](auto) {});
  return self->lane() == machine.leader;
}

bool all_lanes(bool value, Site site) {
  PRIMITIVE("vote.sync.all");
  u32 mine = value;
  meet(mine, [](u32** lanes) {
    u32 all = 1;
    for (u32 lane = 0; lane < LANES; ++lane) all &= *lanes[lane];
    for (u32 lane = 0; lane < LANES; ++lane) *lanes[lane] = all;
  });
  return mine;
}

u32 ballot(bool value, Site site) {
  PRIMITIVE("vote.sync.ballot");
  u32 mine = value;
  meet(mine, [](u32** lanes) {
    u32 bits = 0;
    for (u32 lane = 0; lane < LANES; ++lane) bits |= *lanes[lane] << lane;
    for (u32 lane = 0; lane < LANES; ++lane) *lanes[lane] = bits;
  });
  return mine;
}

static u32 sum_of_lanes(u32 value) {
  meet(value, [](u32** lanes) {
    u32 sum = 0;
    for (u32 lane = 0; lane < LANES; ++lane) sum += *lanes[lane];
    for (u32 lane = 0; lane < LANES; ++lane) *lanes[lane] = sum;
  });
  return value;
}

u32 warp_sum(u32 value, Site site) {
  PRIMITIVE("redux.sync.add");
  return sum_of_lanes(value);
}

int warp_sum(int value, Site site) {
  PRIMITIVE("redux.sync.add");
  return (int)sum_of_lanes((u32)value);
}

void stmatrix4(u32 address, u32 a, u32 b, u32 c, u32 d, Site site) {
  PRIMITIVE("stmatrix.x4");
  u32 values[] = {a, b, c, d};
  store_matrices(address, values, 4, false);
}

void stmatrix4_transposed(u32 address, u32 a, u32 b, u32 c, u32 d, Site site) {
  PRIMITIVE("stmatrix.x4.trans");
  u32 values[] = {a, b, c, d};
  store_matrices(address, values, 4, true);
}

void stmatrix2(u32 address, u32 a, u32 b, Site site) {
  PRIMITIVE("stmatrix.x2");
  u32 values[] = {a, b};
  store_matrices(address, values, 2, false);
}

static void load_four(u32 address, u32& a, u32& b, u32& c, u32& d, bool transposed) {
  u32 values[4];
  load_matrices(address, values, 4, transposed);
  a = values[0], b = values[1], c = values[2], d = values[3];
}

void ldmatrix4(u32 address, u32& a, u32& b, u32& c, u32& d, Site site) {
  PRIMITIVE("ldmatrix.x4");
  load_four(address, a, b, c, d, false);
}

void ldmatrix4_transposed(u32 address, u32& a, u32& b, u32& c, u32& d, Site site) {
  PRIMITIVE("ldmatrix.x4.trans");
  load_four(address, a, b, c, d, true);
}

// ---- Conversions ---------------------------------------------------------------------------------------------------

static float taken(float x) {
  check_read(bits_from_float(x));
  return x;
}

u32 pack_bf16(float low, float high, Site site) {
  PRIMITIVE("cvt.rn.bf16x2");
  return encode_bf16(taken(low)) | (u32)encode_bf16(taken(high)) << 16;
}
u32 pack_f16(float low, float high, Site site) {
  PRIMITIVE("cvt.rn.f16x2");
  return encode_f16(taken(low)) | (u32)encode_f16(taken(high)) << 16;
}
u16 bits_bf16(float x, Site site) {
  PRIMITIVE("cvt.rn.bf16");
  return encode_bf16(taken(x));
}
u16 bits_f16(float x, Site site) {
  PRIMITIVE("cvt.rn.f16");
  return encode_f16(taken(x));
}
u8 bits_e4m3(float x, Site site) {
  PRIMITIVE("cvt.rn.e4m3");
  return encode_e4m3(taken(x));
}
u8 bits_e5m2(float x, Site site) {
  PRIMITIVE("cvt.rn.e5m2");
  return encode_e5m2(taken(x));
}
float float_bf16(u16 bits) { return decode_bf16(bits); }
float float_f16(u16 bits) { return decode_f16(bits); }
// Rounding towards zero; the last bit then stands for what was cut off.
float odd_float(double x) {
  float cut = (float)x;
  if (x != x || (double)cut == x) return cut;
  if (std::fabs((double)cut) > std::fabs(x)) cut = std::nextafter(cut, 0.0f);
  return float_from_bits(bits_from_float(cut) | 1);
}
u32 bits_of(float x) { return bits_from_float(x); }
float float_of(u32 bits) { return float_from_bits(bits); }
u64 bits_of(double x) {
  u64 bits;
  memcpy(&bits, &x, 8);
  return bits;
}
double double_of(u64 bits) {
  double x;
  memcpy(&x, &bits, 8);
  return x;
}
float float_e4m3(u8 bits) { return decode_e4m3(bits); }
float float_e5m2(u8 bits) { return decode_e5m2(bits); }

// PTX ISA, "max", .NaN: the result is NaN if either operand is. +0.0 is greater than -0.0.
template <class T>
static T greater(T a, T b) {
  if (a != a || b != b) return (T)NAN;
  if (a == b) return std::signbit(a) ? b : a;
  return a > b ? a : b;
}

float maximum(float a, float b) { return greater(a, b); }
float minimum(float a, float b) { return -greater(-a, -b); }
double maximum(double a, double b) { return greater(a, b); }
float inverse(float x) { return x > 0x1p126f ? 0 : 1 / x; }
float approximate_exp2(float x) { return x < -126 ? 0 : exp2f(x); }
double minimum(double a, double b) { return -greater(-a, -b); }

}  // namespace pal
