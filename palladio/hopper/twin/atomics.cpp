// Atomic operations, semaphores in global memory, memory of other blocks of the cluster, and copies by cp.async.
#include "device.hpp"
#include "machine.hpp"
#include "numbers.hpp"

#include <algorithm>
#include <type_traits>

namespace twin {

// ---- Atomics -------------------------------------------------------------------------------------------------------

// PTX ISA, "atom": one thread runs at a time here, so that reading and writing need nothing between them.
template <class T>
static T combined(Combiner how, T old, T value) {
  if (how == ADD) return old + value;
  if (how == EXCHANGE) return value;
  if constexpr (std::is_floating_point_v<T>) return how == MAX ? pal::maximum(old, value) : pal::minimum(old, value);
  if constexpr (std::is_integral_v<T>) {
    if (how == MIN || how == MAX) return (how == MAX) == (value > old) ? value : old;
    return how == AND ? old & value : how == OR ? old | value : old ^ value;
  }
}

template <class T>
static void combine_as(Combiner how, void* memory, void* value) {
  T old, given;
  memcpy(&old, memory, sizeof(T));
  memcpy(&given, value, sizeof(T));
  T result = combined(how, old, given);
  memcpy(memory, &result, sizeof(T));
  memcpy(value, &old, sizeof(T));
}

static void combine_at(Combiner how, Number type, void* memory, void* value) {
  if (how > EXCHANGE || ((type == F32 || type == F64) && how >= AND && how <= XOR))
    fail("there is no such atomic operation on this type");
  switch (type) {
    case S32: return combine_as<int>(how, memory, value);
    case U32: return combine_as<u32>(how, memory, value);
    case S64: return combine_as<i64>(how, memory, value);
    case U64: return combine_as<u64>(how, memory, value);
    case F32: return combine_as<float>(how, memory, value);
    default: return combine_as<double>(how, memory, value);
  }
}

static u32 bytes_of(Number type) {
  return type == S32 || type == U32 || type == F32 ? 4 : 8;
}

void atomic_global(Combiner how, Number type, void* address, void* value, Site site) {
  PRIMITIVE("atom.global");
  check_global(address, bytes_of(type), bytes_of(type), true);
  combine_at(how, type, address, value);
  machine.progressed = true;
}

void atomic_shared(Combiner how, Number type, u32 address, void* value, Site site) {
  PRIMITIVE("atom.shared");
  Block& block = resolve(address, false);
  combine_at(how, type, access(block, address, bytes_of(type), bytes_of(type), GENERIC_WRITE), value);
}

// A thread that tries again and again with the same outcome lets others run.
static void exchange_if_equal(void* memory, const void* compare, void* value, u32 bytes, bool global) {
  u64 old = 0;
  memcpy(&old, memory, bytes);
  bool equal = !memcmp(&old, compare, bytes);
  if (equal) memcpy(memory, value, bytes);
  memcpy(value, &old, bytes);
  if (equal)
    machine.progressed = true;
  else
    polled(memory, old, global);
}

void compare_global(void* address, const void* compare, void* value, u32 bytes, Site site) {
  PRIMITIVE("atom.global.cas");
  check_global(address, bytes, bytes, true);
  exchange_if_equal(address, compare, value, bytes, true);
}

void compare_shared(u32 address, const void* compare, void* value, u32 bytes, Site site) {
  PRIMITIVE("atom.shared.cas");
  Block& block = resolve(address, false);
  exchange_if_equal(access(block, address, bytes, bytes, GENERIC_WRITE), compare, value, bytes, false);
}

// ---- Memory of the cluster -----------------------------------------------------------------------------------------

// PTX ISA, "mapa": the same address in another block of the cluster.
static Block& block_of_rank(u32 rank) {
  Cluster& cluster = *self->block->cluster;
  if (rank >= cluster.blocks.size()) fail("block %u of a cluster of %zu blocks", rank, cluster.blocks.size());
  check_alive(*cluster.blocks[rank]);
  return *cluster.blocks[rank];
}

void load_cluster(u32 address, u32 rank, void* value, u32 bytes, Site site) {
  PRIMITIVE("ld.shared::cluster");
  resolve(address, false);
  memcpy(value, access(block_of_rank(rank), address, bytes, bytes, GENERIC_READ), bytes);
}

void store_cluster(u32 address, u32 rank, const void* value, u32 bytes, Site site) {
  PRIMITIVE("st.shared::cluster");
  resolve(address, false);
  memcpy(access(block_of_rank(rank), address, bytes, bytes, GENERIC_WRITE), value, bytes);
}

// PTX ISA, "atom": at an address of another block of the cluster, from "mapa".
void atomic_cluster(Combiner how, Number type, u32 address, u32 rank, void* value, Site site) {
  PRIMITIVE("atom.shared::cluster");
  resolve(address, false);
  u32 bytes = bytes_of(type);
  combine_at(how, type, access(block_of_rank(rank), address, bytes, bytes, GENERIC_WRITE), value);
}

void compare_cluster(u32 address, u32 rank, const void* compare, void* value, u32 bytes, Site site) {
  PRIMITIVE("atom.shared::cluster.cas");
  resolve(address, false);
  exchange_if_equal(access(block_of_rank(rank), address, bytes, bytes, GENERIC_WRITE), compare, value, bytes, false);
}

// ---- cp.async ------------------------------------------------------------------------------------------------------

// PTX ISA, "cp.async": a copy of 4, 8 or 16 bytes by the generic proxy; bytes beyond `given` are filled with zeros.
struct SmallCopy : AsyncOp {
  const u8* source;
  u32 target, bytes, given;
  u32 stored = 0;     // how its bytes are marked
  bool told = false;  // an mbarrier tells of its completion

  void land() override {
    u8* memory = block->memory.data() + target;
    memcpy(memory, source, given);
    memset(memory + given, 0, bytes - given);
    mark(block->writing, target, bytes, -1);
    stored = (thread + 1) << 20 | (block->fibers[thread].fences & 0xfffff);
    for (u32 word = target / 4; word < (target + bytes) / 4; ++word) block->stored[word] = stored;
  }
};

void copy_small(u32 target, const void* source, u32 bytes, int given, Site site) {
  PRIMITIVE("cp.async");
  if (bytes != 4 && bytes != 8 && bytes != 16) fail("copies 4, 8 or 16 bytes, not %u", bytes);
  if (given < 0 || given > (int)bytes) fail("%d bytes of %u", given, bytes);
  if ((u64)source % bytes) fail("global address 0x%llx must be a multiple of %u", (u64)source, bytes);
  if (given) check_global(source, given, 1, false);
  Block& block = resolve(target, false);
  access(block, target, bytes, bytes, GENERIC_WRITE);
  mark(block.writing, target, bytes, +1);
  auto copy = std::make_shared<SmallCopy>();
  copy->source = (const u8*)source;
  copy->target = target;
  copy->bytes = bytes;
  copy->given = given;
  self->copy_open.operations.push_back(copy);
  issue(copy);
}

// PTX ISA, "cp.async.wait_group": at most N of the most recent groups of the thread stay in flight.
void wait_small(u32 groups, Site site) {
  PRIMITIVE("cp.async.wait_group");
  while (self->copy_groups.size() > groups) {
    for (const AsyncOpPointer& copy : self->copy_groups.front().operations) copy->finish();
    self->copy_groups.pop_front();
  }
}

// PTX ISA, "cp.async.mbarrier.arrive", .noinc: one arrival once all earlier copies of the thread are complete.
struct SmallArrival : AsyncOp {
  std::vector<std::shared_ptr<SmallCopy>> before, own;  // all that it comes after; those that no other tells of
  u32 barrier;

  bool signals() const override { return true; }

  void land() override {
    for (const std::shared_ptr<SmallCopy>& copy : before) copy->finish();
    auto found = block->barriers.find(barrier);
    if (found == block->barriers.end())
      fail_at(*block, thread, where, "its mbarrier at 0x%x was taken away meanwhile", barrier);
    BroughtPointer& bringing = found->second.bringing;
    if (!bringing) bringing = std::make_shared<Brought>();
    for (const std::shared_ptr<SmallCopy>& copy : own) bringing->copies.push_back({copy->target, copy->bytes, copy->stored});
    arrive_from(*this, found->second, barrier);
  }
};

static void take_small(AsyncGroup& group, SmallArrival& arrival) {
  auto& operations = group.operations;
  auto over = [](const AsyncOpPointer& copy) { return copy->landed && static_cast<SmallCopy&>(*copy).told; };
  operations.erase(std::remove_if(operations.begin(), operations.end(), over), operations.end());
  for (const AsyncOpPointer& operation : operations) {
    auto copy = std::static_pointer_cast<SmallCopy>(operation);
    arrival.before.push_back(copy);
    if (!copy->told) arrival.own.push_back(copy);
    copy->told = true;
  }
}

static void issue_small_arrival(u32 address) {
  auto arrival = std::make_shared<SmallArrival>();
  arrival->barrier = address;
  for (AsyncGroup& group : self->copy_groups) take_small(group, *arrival);
  take_small(self->copy_open, *arrival);
  issue(arrival);
}

}  // namespace twin

namespace pal {
using namespace twin;

void copy_async_commit(Site site) {
  PRIMITIVE("cp.async.commit_group");
  self->copy_groups.push_back(std::move(self->copy_open));
  self->copy_open = {};
}

void copy_async_arrive(u32 address, Site site) {
  PRIMITIVE("cp.async.mbarrier.arrive");
  Block& block = resolve(address, false);
  mbarrier(block, address);
  issue_small_arrival(address);
}

// Without .noinc: the arrival is one more than the phase takes, so that it only keeps the phase from ending.
void copy_async_hold(u32 address, Site site) {
  PRIMITIVE("cp.async.mbarrier.arrive");
  Block& block = resolve(address, false);
  add_arrival(mbarrier(block, address), address);
  issue_small_arrival(address);
}

// PTX ISA, "ld.acquire", "red.release". Memory is consistent here; a load that sees the same value again lets other
// threads run.
int load_acquire(const int* address, Site site) {
  PRIMITIVE("ld.acquire.gpu");
  check_global(address, 4, 4, false);
  int value = *address;
  polled(address, (u32)value, true);
  return value;
}

void add_release(int* address, int value, Site site) {
  PRIMITIVE("red.release.gpu.add");
  check_global(address, 4, 4, true);
  *address += value;
  machine.progressed = true;
}

}  // namespace pal
