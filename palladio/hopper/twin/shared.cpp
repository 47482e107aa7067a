// Shared memory: addresses, the generic and the async proxy, ordinary loads and stores; and checked global memory.
#include "device.hpp"
#include "machine.hpp"

namespace twin {

// PTX ISA, "State Spaces", .shared: an address of the block's own window is one of the cluster's window too.
Block& resolve(u32& address, bool cluster_window) {
  Block& own = *self->block;
  u32 rank = address >> RANK_SHIFT;
  if (!rank) return own;
  if (!cluster_window) fail("address 0x%x is one of the cluster's, but the instruction takes .shared::cta", address);
  if (rank > own.cluster->blocks.size()) fail("address 0x%x names no block of the cluster", address);
  address &= (1u << RANK_SHIFT) - 1;
  Block& block = *own.cluster->blocks[rank - 1];
  check_alive(block);
  return block;
}

void check_alive(const Block& block) {
  if (!block.running) fail("block %u of the cluster has ended, its shared memory is gone", block.index);
}

static void refuse_bounds(const Block& block, u32 address, u32 bytes) {
  fail("bytes 0x%x to 0x%x reach outside of shared memory, which is 0x%x to 0x%x", address, address + bytes,
       SHARED_START, block.shared_end());
}

// Whether a thread stored to a word and has executed no fence.proxy.async since.
static const Fiber* unfenced(const Block& block, u32 word) {
  u32 stored = block.stored[word];
  if (!stored) return nullptr;
  const Fiber& fiber = block.fibers[(stored >> 20) - 1];
  return (fiber.fences & 0xfffff) == (stored & 0xfffff) ? &fiber : nullptr;
}

static void check_proxy(const Block& block, u32 address, u32 bytes, const char* does) {
  for (u32 word = address / 4; word <= (address + bytes - 1) / 4; ++word)
    if (const Fiber* fiber = unfenced(block, word))
      fail("the async proxy %s bytes at 0x%x that thread %u stored without a fence.proxy.async after it", does,
           word * 4, fiber->thread);
}

static void check_flight(const Block& block, u32 address, u32 bytes, bool writes) {
  for (u32 word = address / 4; word <= (address + bytes - 1) / 4; ++word) {
    if (block.writing[word])
      fail("%s bytes at 0x%x that an asynchronous operation in flight still writes: wait for it first",
           writes ? "writes" : "reads", word * 4);
    if (writes && block.reading[word])
      fail("writes bytes at 0x%x that an asynchronous operation in flight still reads: wait for it first", word * 4);
  }
}

static void check_occupied(const Block& block, u32 address, u32 bytes) {
  for (u32 k = address / 8; k <= (address + bytes - 1) / 8; ++k)
    if (block.occupied[k]) fail("bytes at 0x%x belong to an mbarrier", k * 8);
}

// The fence of one thread counts for all: who waits for a product waits in all warps that take part in it.
void fence_waited_for() {
  for (const BroughtPointer& brought : self->waited_for) {
    if (brought->fenced) continue;
    brought->fenced = true;
    for (const Brought::Bytes& copy : brought->copies)
      for (u32 word = copy.address / 4; word < (copy.address + copy.bytes) / 4; ++word)
        if (self->block->stored[word] == copy.stored) self->block->stored[word] = 0;
  }
  self->waited_for.clear();
}

u8* access(Block& block, u32 address, u32 bytes, u32 alignment, Access kind) {
  if (address < SHARED_START || address > block.shared_end() || bytes > block.shared_end() - address)
    refuse_bounds(block, address, bytes);
  if (address % alignment) fail("address 0x%x must be a multiple of %u", address, alignment);
  check_flight(block, address, bytes, kind == GENERIC_WRITE || kind == ASYNC_WRITE);
  check_occupied(block, address, bytes);
  if (kind == ASYNC_READ) check_proxy(block, address, bytes, "reads");
  if (kind == ASYNC_WRITE) check_proxy(block, address, bytes, "overwrites");
  if (kind == GENERIC_WRITE) {
    // A store into another block is not followed further: what orders it is the barrier of the cluster.
    u32 marked = &block == self->block ? (self->thread + 1) << 20 | (self->fences & 0xfffff) : 0;
    for (u32 word = address / 4; word <= (address + bytes - 1) / 4; ++word) block.stored[word] = marked;
  }
  return block.memory.data() + address;
}

void mark(std::vector<u8>& marks, u32 address, u32 bytes, int change) {
  for (u32 word = address / 4; word <= (address + bytes - 1) / 4; ++word) marks[word] += change;
}

static void check_words(const void* value, u32 bytes) {
  for (u32 at = 0; at + 4 <= bytes; at += 4) {
    u32 word;
    memcpy(&word, (const u8*)value + at, 4);
    check_read(word);
  }
}

void load_shared(u32 address, void* value, u32 bytes, Site site) {
  PRIMITIVE("ld.shared");
  Block& block = resolve(address, false);
  memcpy(value, access(block, address, bytes, bytes, GENERIC_READ), bytes);
}

void store_shared(u32 address, const void* value, u32 bytes, Site site) {
  PRIMITIVE("st.shared");
  check_words(value, bytes);
  Block& block = resolve(address, false);
  memcpy(access(block, address, bytes, bytes, GENERIC_WRITE), value, bytes);
}

// Names the array that the address is nearest to.
[[noreturn]] static void refuse_global(u64 at, u64 bytes) {
  i64 least = 65536, offset = 0;
  u32 nearest = 0;
  for (u32 k = 0; k < machine.request.array_count; ++k) {
    const Range& range = machine.request.arrays[k];
    i64 from = (i64)(at - (u64)range.base);
    i64 outside = from < 0 ? -from : from - (i64)range.bytes;
    if (outside >= least) continue;
    least = outside, offset = from, nearest = k;
  }
  if (least == 65536) fail("global address 0x%llx lies in none of the kernel's arrays", at);
  fail("%llu bytes at byte %lld of array %u, which has %llu bytes", bytes, offset, nearest,
       machine.request.arrays[nearest].bytes);
}

void check_global(const void* address, u64 bytes, u64 alignment, bool write) {
  u64 at = (u64)address;
  if (at % alignment) fail("global address 0x%llx must be a multiple of %llu", at, alignment);
  for (u32 k = 0; k < machine.request.array_count; ++k) {
    const Range& range = machine.request.arrays[k];
    u64 base = (u64)range.base;
    if (at < base || at + bytes > base + range.bytes) continue;
    if (write && !range.writable) fail("writes to array %u, which the kernel may only read", k);
    return;
  }
  refuse_global(at, bytes);
}

void load_global(const void* address, void* value, u32 bytes, Site site) {
  PRIMITIVE("ld.global");
  check_global(address, bytes, bytes, false);
  memcpy(value, address, bytes);
}

void store_global(void* address, const void* value, u32 bytes, Site site) {
  PRIMITIVE("st.global");
  check_words(value, bytes);
  check_global(address, bytes, bytes, true);
  memcpy(address, value, bytes);
}

}  // namespace twin

namespace pal {

u32 shared_base() { return twin::SHARED_START; }

// PTX ISA, "Async proxy": orders ordinary accesses before it with those of the async proxy after it.
void fence_async(twin::Site site) {
  PRIMITIVE("fence.proxy.async");
  twin::fence_waited_for();
  ++twin::self->fences;
  ++twin::self->init_fences;
}

// Global memory is not followed by proxy: the fence only counts as one that ran.
void fence_async_global(twin::Site site) { PRIMITIVE("fence.proxy.async.global"); }

}  // namespace pal
