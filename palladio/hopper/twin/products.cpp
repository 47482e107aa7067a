// Products of the tensor cores: descriptors, fragments, groups in flight.
#include <algorithm>

#include "device.hpp"
#include "machine.hpp"
#include "numbers.hpp"

namespace twin {

constexpr u32 ROWS = 64;

// ---- Operands in shared memory -------------------------------------------------------------------------------------

// PTX ISA, "Matrix Descriptor Format" and "Strides": start address, leading and stride byte offset, swizzling mode.
struct Descriptor {
  u32 start, leading, stride, mode_bytes;
};

static Descriptor decode(u64 bits) {
  static const u32 modes[] = {16, 128, 64, 32};
  if (bits & 0xc000c000ull || bits >> 46 & 7 || bits >> 52 & 0x3ff)
    fail("the matrix descriptor 0x%llx has bits set that must be 0", bits);
  if (bits >> 49 & 7)
    fail("the matrix descriptor 0x%llx has base offset %llu, but swizzles follow the address: it must be 0", bits,
         bits >> 49 & 7);
  return {(u32)(bits & 0x3fff) << 4, (u32)(bits >> 16 & 0x3fff) << 4, (u32)(bits >> 32 & 0x3fff) << 4,
          modes[bits >> 62]};
}

// Element addresses of an operand of `rows` by 32 bytes along k, relative to the 1024 bytes that its start lies in.
struct Pattern {
  std::vector<u32> elements;  // [row][k]
  std::vector<u32> pieces;    // of 16 bytes, each once
};

// PTX ISA, "Strides". The unit of the canonical layouts is 16 bytes, T = 16 / item elements.
//   K-major, no swizzle:  ((8, m), (T, 2)) : ((1T, SBO), (1, LBO))
//   K-major, W bytes:     ((8, m), (T, 2)) : ((W, SBO), (1, 1T)); LBO is not used
//   MN-major, no swizzle: ((T, 1, m), (8, k)) : ((1, T, SBO), (1T, LBO))
//   MN-major, W bytes:    ((T, W/16, m), (8, k)) : ((1, T, LBO), (W, SBO))
static u32 offset_of(const Descriptor& d, bool mn_major, u32 item, u32 mn, u32 k) {
  u32 w = d.mode_bytes, byte = k * item;
  if (!mn_major) {
    u32 row = mn % 8 * w + mn / 8 * d.stride;
    return w == 16 ? row + byte / 16 * d.leading + byte % 16 : row + byte;
  }
  u32 across = w / item;
  u32 column = mn % across * item, line = k % 8 * w;
  return w == 16 ? column + mn / across * d.stride + line + k / 8 * d.leading
                 : column + mn / across * d.leading + line + k / 8 * d.stride;
}

// PTX ISA, "Matrix Descriptor Format": the base offset is 0 where the pattern of the swizzle, 8 lines of its width,
// begins at a multiple of its size. Inside of the first line the start may lie anywhere.
static void check_pattern(u64 bits, const Descriptor& d) {
  u32 lines = d.mode_bytes < 32 ? 0 : d.mode_bytes / 16 - 1;
  if (d.start >> 7 & lines)
    fail("the matrix descriptor 0x%llx begins at 0x%x, in the middle of the %u bytes of its swizzle's pattern", bits,
         d.start, 8 * d.mode_bytes);
}

static const Pattern& pattern_of(u64 bits, bool mn_major, u32 item, u32 rows) {
  Descriptor d = decode(bits);
  check_pattern(bits, d);
  u32 phase = d.start % 1024;
  struct Key {
    u64 descriptor, rest;
    bool operator<(const Key& other) const {
      return descriptor != other.descriptor ? descriptor < other.descriptor : rest < other.rest;
    }
  } key{(bits & ~0x3fffull) | phase >> 4, (u64)rows << 32 | item << 1 | mn_major};
  static std::map<Key, Pattern> known;
  auto found = known.find(key);
  if (found != known.end()) return found->second;
  if (known.size() > 4096) known.clear();
  Pattern& pattern = known[key];
  for (u32 row = 0; row < rows; ++row)
    for (u32 k = 0; k < 32 / item; ++k)
      pattern.elements.push_back(swizzled(phase + offset_of(d, mn_major, item, row, k), d.mode_bytes));
  for (u32 element : pattern.elements) pattern.pieces.push_back(element / 16);
  std::sort(pattern.pieces.begin(), pattern.pieces.end());
  pattern.pieces.erase(std::unique(pattern.pieces.begin(), pattern.pieces.end()), pattern.pieces.end());
  return pattern;
}

struct Operand {
  u64 descriptor = 0;
  const Pattern* pattern = nullptr;
  u32 base = 0;  // the 1024 bytes that the operand starts in
};

// ---- A product in flight -------------------------------------------------------------------------------------------

struct Product {
  ProductKind kind;
  Where where;
  u32 seen = 0;
  u32 thread = 0;
  bool left_transposed = false, right_transposed = false;
  int accumulate = 1;
  u64 left = 0, right = 0;
  Operand a, b;
  Accumulator* accumulators[WARPGROUP] = {};
  std::vector<Left> left_registers[WARPGROUP];  // 4, or none

  u32 item() const { return kind.depth == 8 ? 4 : kind.depth == 16 ? 2 : 1; }
  u32 accumulator_registers() const { return kind.columns / (kind.result == F16 ? 4 : 2); }
};

static void check_kind(const ProductKind& kind) {
  bool integer = kind.left == S8 || kind.left == U8;
  u32 n = kind.columns;
  bool shape = n && n % 8 == 0 && n <= 256 && (!integer || n < 32 || n % 16 == 0);
  if (!shape) fail("m64n%u is not a shape of wgmma for these operands", n);
}

// A pointer into shared memory pieces: refuses what the async proxy may not read yet, and counts the reader.
static Operand take_operand(Block& block, u64 descriptor, bool mn_major, u32 item, u32 rows) {
  Operand operand;
  operand.descriptor = descriptor;
  operand.pattern = &pattern_of(descriptor, mn_major, item, rows);
  operand.base = ((u32)(descriptor & 0x3fff) << 4) / 1024 * 1024;
  for (u32 piece : operand.pattern->pieces) {
    u32 address = operand.base + piece * 16;
    access(block, address, 16, 16, ASYNC_READ);
    mark(block.reading, address, 16, +1);
  }
  return operand;
}

static void release_operand(Block& block, const Operand& operand) {
  if (!operand.pattern) return;
  for (u32 piece : operand.pattern->pieces) mark(block.reading, operand.base + piece * 16, 16, -1);
}

// ---- Accumulators --------------------------------------------------------------------------------------------------

static bool overlap(const Accumulator& known, const u32* registers, u32 count) {
  return known.registers < registers + count && registers < known.registers + known.count;
}

static Accumulator* find_accumulator(Fiber& fiber, u32* registers, u32 count) {
  for (auto& known : fiber.accumulators)
    if (known->registers == registers && known->count == count) return known.get();
  return nullptr;
}

// PTX ISA, "wgmma.fence": needed before the first product, and between an access to registers and a product with them,
// except for accumulators that only products of one shape touch.
static Accumulator* take_accumulator(Fiber& fiber, u32* registers, u32 count) {
  if (!fiber.product_fences) fail("the thread has executed no wgmma.fence before its first product");
  Accumulator* mine = find_accumulator(fiber, registers, count);
  auto& all = fiber.accumulators;
  for (auto& known : all)
    if (known.get() != mine && known->in_flight && overlap(*known, registers, count))
      fail("its accumulator overlaps that of a product of another shape in flight");
  if (!mine) {
    all.erase(std::remove_if(all.begin(), all.end(),
                             [&](auto& known) { return !known->in_flight && overlap(*known, registers, count); }),
              all.end());
    all.push_back(std::make_unique<Accumulator>());
    mine = all.back().get();
    mine->registers = registers;
    mine->count = count;
  } else if (!mine->in_flight && mine->fences == fiber.product_fences &&
             memcmp(mine->value.data(), registers, 4 * count)) {
    fail("registers of its accumulator were written after the last product without a wgmma.fence");
  }
  if (!mine->in_flight++) {
    mine->value.assign(registers, registers + count);
    std::fill(registers, registers + count, POISON);
  }
  return mine;
}

static void give_back(Fiber& fiber, Accumulator& accumulator, const Product& product) {
  if (--accumulator.in_flight) return;
  for (u32 r = 0; r < accumulator.count; ++r)
    if (accumulator.registers[r] != POISON)
      fail_at(*fiber.block, fiber.thread, product.where,
              "the thread wrote register %u of the accumulator while the product was in flight", r);
  std::copy(accumulator.value.begin(), accumulator.value.end(), accumulator.registers);
  accumulator.fences = fiber.product_fences;
}

// The tensor cores read the left operand at any moment until the product is complete.
static void check_left(Fiber& fiber, const std::vector<Left>& registers, const Product& product) {
  for (u32 r = 0; r < registers.size(); ++r)
    if (registers[r].place && *registers[r].place != registers[r].value)
      fail_at(*fiber.block, fiber.thread, product.where,
              "the thread wrote register %u of the left operand while the product was in flight", r);
}

// ---- Execution -----------------------------------------------------------------------------------------------------

static float number_of(u32 type, const u8* at) {
  u16 half;
  u32 word;
  switch (type) {
    case BF16: return memcpy(&half, at, 2), decode_bf16(half);
    case F16: return memcpy(&half, at, 2), decode_f16(half);
    case TF32: return memcpy(&word, at, 4), decode_tf32(word);
    case E4M3: return decode_e4m3(*at);
    case E5M2: return decode_e5m2(*at);
    case S8: return (signed char)*at;
    default: return *at;
  }
}

// PTX ISA, "Register Fragments for wgmma.mma_async.m64nNk8, k16, k32", matrix A: register r of a thread holds 4 bytes
// of row lane / 4 (r 0 and 2) or 8 rows below (1 and 3), at byte 4 (lane % 4) of the first 16 bytes of k (0 and 1) or
// of the second (2 and 3). Each warp has 16 rows.
static const u8* in_fragment(const Product& product, u32 row, u32 byte) {
  u32 thread = row / 16 * LANES + row % 8 * 4 + byte % 16 / 4;
  u32 r = row % 16 / 8 + byte / 16 * 2;
  return (const u8*)&product.left_registers[thread][r].value + byte % 4;
}

// The same, matrix D: two neighbouring columns lie in two registers, or in the halves of one for f16.
static u32* in_accumulator(const Product& product, u32 row, u32 column) {
  u32 thread = row / 16 * LANES + row % 8 * 4 + column % 8 / 2;
  u32 element = column / 8 * 4 + row % 16 / 8 * 2 + column % 2;
  return &product.accumulators[thread]->value[product.kind.result == F16 ? element / 2 : element];
}

static float tile_a[ROWS][32], tile_b[32][256];

static void gather(const Block& block, const Product& product) {
  u32 item = product.item(), depth = product.kind.depth;
  const u8* memory = block.memory.data();
  for (u32 row = 0; row < ROWS; ++row)
    for (u32 k = 0; k < depth; ++k) {
      const u8* at = product.a.pattern ? memory + product.a.base + product.a.pattern->elements[row * depth + k]
                                       : in_fragment(product, row, k * item);
      tile_a[row][k] = number_of(product.kind.left, at);
    }
  for (u32 column = 0; column < product.kind.columns; ++column)
    for (u32 k = 0; k < depth; ++k)
      tile_b[k][column] =
          number_of(product.kind.right, memory + product.b.base + product.b.pattern->elements[column * depth + k]);
}

static void add_row(const Product& product, u32 row, const float* sums) {
  for (u32 column = 0; column < product.kind.columns; ++column) {
    u32* to = in_accumulator(product, row, column);
    if (product.kind.result == F32) {
      *to = bits_from_float(product.accumulate ? float_from_bits(*to) + sums[column] : sums[column]);
    } else if (product.kind.result == S32) {
      *to = (product.accumulate ? *to : 0) + (u32)(int)sums[column];  // a sum of 32 products of bytes is exact
    } else {
      u32 shift = column % 2 * 16;
      float old = product.accumulate ? decode_f16((u16)(*to >> shift)) : 0;
      *to = (*to & ~(0xffffu << shift)) | (u32)encode_f16(old + sums[column]) << shift;
    }
  }
}

static void execute(Block& block, Product& product) {
  ++machine.counts.products;
  gather(block, product);
  u32 columns = product.kind.columns;
  float sums[256];
  for (u32 row = 0; row < ROWS; ++row) {
    std::fill(sums, sums + columns, 0.0f);
    for (u32 k = 0; k < product.kind.depth; ++k) {
      float left = tile_a[row][k];
      for (u32 column = 0; column < columns; ++column) sums[column] += left * tile_b[k][column];
    }
    add_row(product, row, sums);
  }
  release_operand(block, product.a);
  release_operand(block, product.b);
}

bool can_execute(const Warpgroup& warpgroup) {
  return !warpgroup.products.empty() && warpgroup.products.front()->seen == WARPGROUP;
}

void execute_next(Block& block, Warpgroup& warpgroup) {
  std::shared_ptr<Product> product = warpgroup.products.front();
  execute(block, *product);
  u32 first = product->thread / WARPGROUP * WARPGROUP;
  for (u32 k = 0; k < WARPGROUP; ++k) {
    check_left(block.fibers[first + k], product->left_registers[k], *product);
    give_back(block.fibers[first + k], *product->accumulators[k], *product);
  }
  warpgroup.products.pop_front();
  ++warpgroup.first;
  machine.progressed = true;
}

// ---- Issue ---------------------------------------------------------------------------------------------------------

static Warpgroup& own_warpgroup() {
  if ((self->thread / WARPGROUP + 1) * WARPGROUP > self->block->threads)
    fail("warp %u is not in a warpgroup of four warps", self->warp());
  return self->block->warpgroups[self->thread / WARPGROUP];
}

static Product& next_product(Warpgroup& warpgroup) {
  u64 index = self->products_issued++ - warpgroup.first;
  if (index == warpgroup.products.size()) {
    warpgroup.products.push_back(std::make_shared<Product>());
    warpgroup.products.back()->where = self->where;
    warpgroup.products.back()->thread = self->thread;
  }
  Product& product = *warpgroup.products[index];
  if (product.where.caller != self->where.caller)
    fail("the threads of a warpgroup must execute this product together, but thread %u executes the one at %s",
         product.thread, line_of(product.where.site).c_str());
  return product;
}

void wgmma(const ProductKind& kind, void* accumulator, u64 left, const Left* left_registers, u64 right, int accumulate,
           bool left_transposed, bool right_transposed, Site site, const void* caller) {
  enter("wgmma.mma_async", site, caller);
  check_kind(kind);
  Warpgroup& warpgroup = own_warpgroup();
  Product& product = next_product(warpgroup);
  if (!product.seen++) {
    product.kind = kind;
    product.left = left;
    product.right = right;
    product.left_transposed = left_transposed;
    product.right_transposed = right_transposed;
    product.accumulate = accumulate;
    if ((left_transposed || right_transposed) && product.item() != 2)
      fail("only operands of 16 bits may lie transposed in shared memory");
  }
  if (product.left != left || product.right != right || !product.accumulate != !accumulate)
    fail("the threads of a warpgroup give one product different operands: thread %u 0x%llx and 0x%llx, this one 0x%llx "
         "and 0x%llx",
         product.thread, product.left, product.right, left, right);
  u32 k = self->thread % WARPGROUP;
  product.accumulators[k] = take_accumulator(*self, (u32*)accumulator, product.accumulator_registers());
  if (left_registers) product.left_registers[k].assign(left_registers, left_registers + 4);
  if (product.seen < WARPGROUP) return;
  Block& block = *self->block;
  if (!left_registers) product.a = take_operand(block, left, left_transposed, product.item(), ROWS);
  product.b = take_operand(block, right, right_transposed, product.item(), kind.columns);
  if (early()) execute_next(block, warpgroup);
}

void wait_products(u32 groups, Site site, const void* caller) {
  enter("wgmma.wait_group", site, caller);
  Warpgroup* warpgroup = &own_warpgroup();
  if (self->groups_committed <= groups) return;
  u64 upto = warpgroup->group_ends[self->groups_committed - groups - 1];
  Block* block = self->block;
  wait_until(
      [=] {
        while (warpgroup->first < upto && can_execute(*warpgroup)) execute_next(*block, *warpgroup);
        return warpgroup->first >= upto;
      },
      [=] {
        return format("products of the warpgroup: %u of its 128 threads have executed the next one",
                      warpgroup->products.empty() ? 0 : warpgroup->products.front()->seen);
      });
}

void check_products_at_exit() {
  for (auto& known : self->accumulators)
    if (known->in_flight) fail("products of the warpgroup are still in flight");
}

}  // namespace twin

namespace pal {
using namespace twin;

void wgmma_fence(Site site) {
  PRIMITIVE("wgmma.fence");
  ++self->product_fences;
}

void wgmma_commit(Site site) {
  PRIMITIVE("wgmma.commit_group");
  Warpgroup& warpgroup = own_warpgroup();
  u64 group = self->groups_committed++;
  if (group == warpgroup.group_ends.size()) warpgroup.group_ends.push_back(self->products_issued);
  if (warpgroup.group_ends[group] != self->products_issued)
    fail("group %llu of the warpgroup ends after product %llu in one thread and after %llu in this one", group,
         warpgroup.group_ends[group], self->products_issued);
}

u64 descriptor(u32 address, u32 leading, u32 stride, u32 swizzle, Site site) {
  PRIMITIVE("matrix descriptor");
  if (address % 16 || leading % 16 || stride % 16)
    fail("address 0x%x and offsets %u and %u must be multiples of 16", address, leading, stride);
  if (swizzle > 3) fail("there are swizzling modes 0 to 3, not %u", swizzle);
  return (u64)((address & 0x3ffff) >> 4) | (u64)((leading & 0x3ffff) >> 4) << 16 |
         (u64)((stride & 0x3ffff) >> 4) << 32 | (u64)swizzle << 62;
}

}  // namespace pal
