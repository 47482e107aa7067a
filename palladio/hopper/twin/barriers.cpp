// Barriers: of a warp, of named sets of warps, of a cluster; mbarriers; and the pool of registers.
#include "device.hpp"
#include "machine.hpp"

namespace twin {

// ---- bar.sync and bar.arrive ---------------------------------------------------------------------------------------

struct NamedArrival {
  int id;
  u32 threads;
  u64 generation;
  bool reduces, value;
};

// PTX ISA, "barrier{.cta}": the count is that of threads, in whole warps; each warp arrives with 32.
// A barrier in use by "barrier.red" is not one of "barrier.sync" or "barrier.arrive" at the same time.
static NamedArrival arrive_named(int id, u32 threads, bool reduces = false, bool value = true) {
  if (id < 0 || id >= (int)NAMED_BARRIERS) fail("a block has 16 named barriers; %d is not one of them", id);
  if (!threads || threads % LANES || threads > self->block->threads)
    fail("barrier %d is for %u threads; it takes whole warps, at most the %u threads of the block", id, threads,
         self->block->threads);
  NamedArrival mine{id, threads, 0, reduces, value};
  NamedBarrier* barrier = &self->block->named[id];
  meet(mine, [=](NamedArrival** lanes) {
    for (u32 lane = 0; lane < LANES; ++lane)
      if (lanes[lane]->id != id || lanes[lane]->threads != threads)
        fail("the lanes of a warp name different barriers: %d for %u threads and %d for %u", lanes[lane]->id,
             lanes[lane]->threads, id, threads);
    if (barrier->arrived && barrier->expected != threads)
      fail("barrier %d is for %u threads here, but others wait at it for %u", id, threads, barrier->expected);
    if (barrier->arrived && barrier->reduces != reduces)
      fail("barrier %d is used by bar.red and by bar.sync or bar.arrive at the same time", id);
    if (!barrier->arrived) barrier->all = true;
    barrier->reduces = reduces;
    for (u32 lane = 0; lane < LANES; ++lane) barrier->all = barrier->all && lanes[lane]->value;
    barrier->expected = threads;
    for (u32 lane = 0; lane < LANES; ++lane) lanes[lane]->generation = barrier->generation;
    if ((barrier->arrived += LANES) < threads) return;
    barrier->arrived = 0;
    barrier->result = barrier->all;
    ++barrier->generation;
  });
  return mine;
}

static bool sync_named(int id, u32 threads, bool reduces = false, bool value = true) {
  NamedArrival mine = arrive_named(id, threads, reduces, value);
  NamedBarrier* barrier = &self->block->named[id];
  wait_until([=] { return barrier->generation != mine.generation; },
             [=] { return format("barrier %d: %u of %u threads have come", id, barrier->arrived, threads); });
  return barrier->result;
}

// ---- Mbarriers -----------------------------------------------------------------------------------------------------

constexpr i64 MOST_ARRIVALS = (1 << 20) - 1;
constexpr i64 MOST_BYTES = (1 << 20) - 1;

Mbarrier& mbarrier(Block& block, u32 address) {
  if (address % 8) fail("the mbarrier at 0x%x must be a multiple of 8", address);
  auto found = block.barriers.find(address);
  if (found == block.barriers.end()) fail("no mbarrier has been initialised at 0x%x of block %u", address, block.index);
  return found->second;
}

Mbarrier& published_mbarrier(Block& block, u32 address) {
  Mbarrier& barrier = mbarrier(block, address);
  if (block.fibers[barrier.initialiser].init_fences == barrier.fences)
    fail("the mbarrier at 0x%x was initialised without a fence.mbarrier_init after it", address);
  return barrier;
}

// PTX ISA, "Phase of the mbarrier object": a phase ends when no arrival and no byte is pending.
static void settle(Mbarrier& barrier) {
  if (barrier.pending || barrier.bytes) return;
  ++barrier.phase;
  barrier.brought = std::move(barrier.bringing);
  barrier.bringing = nullptr;
  barrier.pending = barrier.expected;
  machine.progressed = true;
}

static std::string state_of(const Mbarrier& barrier) {
  return format("in phase %llu, %u of %u arrivals and %lld bytes are missing", barrier.phase, barrier.pending,
                barrier.expected, barrier.bytes);
}

static void expect_bytes(Mbarrier& barrier, u32 address, i64 bytes) {
  barrier.bytes += bytes;
  if (barrier.bytes > MOST_BYTES)
    fail("the mbarrier at 0x%x would expect %lld bytes; it counts at most %lld", address, barrier.bytes, MOST_BYTES);
}

static void take_arrivals(Mbarrier& barrier, u32 address, u32 count) {
  if (!count) fail("an arrival counts at least 1");
  if (count > barrier.pending)
    fail("%u arrivals at the mbarrier at 0x%x, whose phase takes %u and has room for %u", count, address,
         barrier.expected, barrier.pending);
  barrier.pending -= count;
  if (!barrier.pending && barrier.bytes < 0)
    fail("the mbarrier at 0x%x has got %lld bytes more than its phase expects", address, -barrier.bytes);
  settle(barrier);
}

void add_arrival(Mbarrier& barrier, u32 address) {
  if (++barrier.pending > MOST_ARRIVALS)
    fail("the mbarrier at 0x%x would have %u arrivals pending; it counts at most %lld", address, barrier.pending,
         MOST_ARRIVALS);
}

void arrive_from(const AsyncOp& operation, Mbarrier& barrier, u32 address) {
  if (!barrier.pending)
    fail_at(*operation.block, operation.thread, operation.where, "the mbarrier at 0x%x has no arrival pending",
            address);
  if (!--barrier.pending && barrier.bytes < 0)
    fail_at(*operation.block, operation.thread, operation.where,
            "the mbarrier at 0x%x has got %lld bytes more than its phase expects", address, -barrier.bytes);
  settle(barrier);
}

void complete_bytes(Mbarrier& barrier, u32 address, i64 bytes, const AsyncOp& operation) {
  barrier.bytes -= bytes;
  if (barrier.bytes < -MOST_BYTES || (!barrier.pending && barrier.bytes < 0))
    fail_at(*operation.block, operation.thread, operation.where,
            "brings the mbarrier at 0x%x %lld bytes more than its phase expects", address, -barrier.bytes);
  settle(barrier);
}

static void wait_parity(u32 address, u32 parity) {
  if (parity > 1) fail("the parity of a phase is 0 or 1, not %u", parity);
  Block& block = resolve(address, false);
  Mbarrier* barrier = &mbarrier(block, address);
  wait_until([=] { return (barrier->phase & 1) != parity; },
             [=] { return format("the end of a phase of parity %u of the mbarrier at 0x%x: %s", parity, address,
                                 state_of(*barrier).c_str()); });
  if (barrier->brought && !barrier->brought->fenced) self->waited_for.push_back(barrier->brought);
}

static bool test_parity(u32 address, u32 parity) {
  if (parity > 1) fail("the parity of a phase is 0 or 1, not %u", parity);
  Block& block = resolve(address, false);
  Mbarrier& barrier = mbarrier(block, address);
  bool done = (barrier.phase & 1) != parity;
  if (!done) polled(&barrier, barrier.phase, false);
  if (done && barrier.brought && !barrier.brought->fenced) self->waited_for.push_back(barrier.brought);
  return done;
}

static void arrive_at(u32 address, u32 count, i64 bytes) {
  Block& block = resolve(address, false);
  Mbarrier& barrier = mbarrier(block, address);
  expect_bytes(barrier, address, bytes);
  take_arrivals(barrier, address, count);
}

// ---- Registers -----------------------------------------------------------------------------------------------------

// PTX ISA, "setmaxnreg": warps release registers into a pool of the block and take them from it.
static void change_registers(u32 count, bool increase) {
  if (count < 24 || count > 256 || count % 8) fail("%u registers: a multiple of 8 from 24 to 256 is wanted", count);
  struct {
  } nothing;
  Block* block = self->block;
  Warp* warp = &block->warps[self->warp()];
  if (increase ? count < warp->registers : count > warp->registers)
    fail("the warp has %u registers a thread, which cannot %s to %u", warp->registers,
         increase ? "increase" : "decrease", count);
  meet(nothing, [](auto) {});
  // The first lane that finds enough registers changes the count of the whole warp.
  wait_until(
      [=] {
        i64 more = ((i64)count - warp->registers) * LANES;
        if (more > block->register_pool) return false;
        block->register_pool -= more;
        warp->registers = count;
        return true;
      },
      [=] {
        return format("%u registers a thread: the warp has %u, the block's pool %lld for all of a warp", count,
                      warp->registers, block->register_pool / LANES);
      });
}

void increase_registers(u32 count, Site site, const void* caller) {
  enter("setmaxnreg.inc", site, caller);
  change_registers(count, true);
}

void decrease_registers(u32 count, Site site, const void* caller) {
  enter("setmaxnreg.dec", site, caller);
  change_registers(count, false);
}

}  // namespace twin

namespace pal {
using namespace twin;

void sync_warp(Site site) {
  PRIMITIVE("bar.warp.sync");
  struct {
  } nothing;
  meet(nothing, [](auto) {});
}

void sync_block(Site site) {
  PRIMITIVE("bar.sync 0");
  twin::sync_named(0, self->block->threads);
}

void sync_named(int id, int threads, Site site) {
  PRIMITIVE("bar.sync");
  twin::sync_named(id, threads);
}

bool all_named(int id, int threads, bool value, Site site) {
  PRIMITIVE("bar.red.and.pred");
  return twin::sync_named(id, threads, true, value);
}

void arrive_named(int id, int threads, Site site) {
  PRIMITIVE("bar.arrive");
  twin::arrive_named(id, threads);
}

// PTX ISA, "barrier.cluster": all threads of the cluster that have not ended.
void sync_cluster(Site site) {
  PRIMITIVE("barrier.cluster");
  Cluster* cluster = self->block->cluster;
  struct Arrival {
    u64 generation;
  } mine{};
  meet(mine, [=](Arrival** lanes) {
    for (u32 lane = 0; lane < LANES; ++lane) lanes[lane]->generation = cluster->generation;
    if ((cluster->arrived += LANES) < cluster->running) return;
    cluster->arrived = 0;
    ++cluster->generation;
  });
  wait_until([=] { return cluster->generation != mine.generation; },
             [=] { return format("%u of the cluster's %u threads", cluster->arrived, cluster->running); });
}

void barrier_init(u32 address, u32 count, Site site) {
  PRIMITIVE("mbarrier.init");
  Block& block = resolve(address, false);
  if (!count || count > MOST_ARRIVALS) fail("an mbarrier expects 1 to %lld arrivals, not %u", MOST_ARRIVALS, count);
  if (block.barriers.count(address)) fail("the mbarrier at 0x%x is initialised a second time", address);
  memset(access(block, address, 8, 8, GENERIC_WRITE), 0, 8);
  block.occupied[address / 8] = 1;
  block.barriers[address] = {count, count, 0, 0, self->thread, self->init_fences};
}

// PTX ISA, "mbarrier.inval": its bytes may hold something else from now on.
void barrier_invalidate(u32 address, Site site) {
  PRIMITIVE("mbarrier.inval");
  Block& block = resolve(address, false);
  mbarrier(block, address);
  block.barriers.erase(address);
  block.occupied[address / 8] = 0;
}

void fence_barrier_init(Site site) {
  PRIMITIVE("fence.mbarrier_init");
  ++self->init_fences;
  ++self->fences;  // the function has a fence.proxy.async too
}

void arrive(u32 address, Site site) {
  PRIMITIVE("mbarrier.arrive");
  arrive_at(address, 1, 0);
}

void arrive_many(u32 address, u32 count, Site site) {
  PRIMITIVE("mbarrier.arrive");
  arrive_at(address, count, 0);
}

void arrive_expect(u32 address, u32 bytes, Site site) {
  PRIMITIVE("mbarrier.arrive.expect_tx");
  arrive_at(address, 1, bytes);
}

void expect(u32 address, u32 bytes, Site site) {
  PRIMITIVE("mbarrier.expect_tx");
  Block& block = resolve(address, false);
  expect_bytes(mbarrier(block, address), address, bytes);
}

static void arrive_remotely(u32 address, u32 rank) {
  Block& own = resolve(address, false);
  if (rank >= own.cluster->blocks.size())
    fail("block %u of a cluster of %zu blocks", rank, own.cluster->blocks.size());
  Block& block = *own.cluster->blocks[rank];
  check_alive(block);
  take_arrivals(published_mbarrier(block, address), address, 1);
}

void arrive_cluster(u32 address, u32 rank, Site site) {
  PRIMITIVE("mbarrier.arrive.shared::cluster");
  arrive_remotely(address, rank);
}

void arrive_peer(u32 address, u32 rank, Site site) {
  PRIMITIVE("mbarrier.arrive.shared::cluster");
  arrive_remotely(address, rank);
}

bool test(u32 address, u32 parity, Site site) {
  PRIMITIVE("mbarrier.test_wait");
  return test_parity(address, parity);
}

bool try_wait(u32 address, u32 parity, Site site) {
  PRIMITIVE("mbarrier.try_wait");
  return test_parity(address, parity);
}

bool try_wait_cluster(u32 address, u32 parity, Site site) {
  PRIMITIVE("mbarrier.try_wait");
  return test_parity(address, parity);
}

void wait(u32 address, u32 parity, Site site) {
  PRIMITIVE("mbarrier.try_wait");
  wait_parity(address, parity);
}

void wait_cluster(u32 address, u32 parity, Site site) {
  PRIMITIVE("mbarrier.try_wait");
  wait_parity(address, parity);
}

}  // namespace pal
