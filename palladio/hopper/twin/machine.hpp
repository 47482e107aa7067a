// The machine that the host twin simulates: blocks, warps, threads as fibers, asynchronous operations, and failures.
//
// Everything follows the PTX ISA, by the section names cited at each piece. The simulated machine is one operating
// system thread: fibers switch only inside device primitives, so that no lock is needed anywhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

#include "types.hpp"

namespace twin {

constexpr u32 LANES = 32;
constexpr u32 WARPGROUP = 128;
constexpr u32 SHARED_START = 1024;  // the first KiB of a block's shared memory belongs to the system
constexpr u32 SHARED_LIMIT = 232448;  // bytes that a block of sm_90 may ask for
constexpr u32 REGISTER_FILE = 65536;
constexpr u32 NAMED_BARRIERS = 16;
constexpr u32 RANK_SHIFT = 24;  // an address of the cluster's window: (rank + 1) << 24 | address in that block

struct Block;
struct Cluster;
struct Fiber;

// ---- Failures ------------------------------------------------------------------------------------------------------

// The primitive that a thread is in, and its place in the source.
struct Where {
  const char* name = "start";
  Site site = {"", 0};
  const void* caller = nullptr;  // return address: tells two calls on one line apart
};

// Ends the launch with a sentence. The thread and the primitive that it is in are put before it.
[[noreturn]] void fail(const char* format, ...) __attribute__((format(printf, 1, 2)));
// The same for another thread and primitive, e.g. those that issued an asynchronous operation.
[[noreturn]] void fail_at(const Block& block, u32 thread, const Where& where, const char* format, ...)
    __attribute__((format(printf, 4, 5)));
std::string format(const char* format, ...) __attribute__((format(printf, 1, 2)));
std::string line_of(const Site& site);

// ---- Asynchronous operations ---------------------------------------------------------------------------------------

// An asynchronous operation between its issue and its completion. `read` takes the bytes of the source, `land` writes
// the result; a wait, or the scheduler, makes them happen.
struct AsyncOp {
  Block* block = nullptr;
  u32 thread = 0;
  Where where;
  bool was_read = false;
  bool landed = false;
  virtual ~AsyncOp() = default;
  virtual void read() {}
  virtual void land() = 0;
  virtual bool outlives_block() const { return false; }  // may it land after its block has ended?
  virtual bool signals() const { return false; }         // does an mbarrier tell of its completion?
  void finish_reading();
  void finish();
};
typedef std::shared_ptr<AsyncOp> AsyncOpPointer;

// Puts an operation in flight; completes it at once in the early schedule.
void issue(const AsyncOpPointer& operation);

// ---- Threads -------------------------------------------------------------------------------------------------------

// The condition that a suspended thread waits for. It lives on the thread's own stack.
struct Condition {
  virtual bool holds() = 0;
  virtual std::string describe() = 0;
};

// The registers of one accumulator of one thread, while products that add to it are in flight and after.
struct Accumulator {
  u32* registers = nullptr;
  u32 count = 0;
  u32 in_flight = 0;
  u64 fences = 0;  // of the thread when the last product completed
  std::vector<u32> value;
};

// Operations that a thread waits for together.
struct AsyncGroup {
  std::vector<AsyncOpPointer> operations;
};

// Bytes that cp.async brought and whose completion ended a phase of an mbarrier. Who has waited for that phase and then
// executes a fence.proxy.async orders them before the async proxy (PTX ISA, "Causality order", "Proxy-preserved").
struct Brought {
  struct Bytes {
    u32 address, bytes, stored;
  };
  std::vector<Bytes> copies;
  bool fenced = false;
};
typedef std::shared_ptr<Brought> BroughtPointer;

struct Fiber {
  void* stack_pointer = nullptr;
  u8* stack = nullptr;
  Block* block = nullptr;
  u32 thread = 0;
  bool done = false;
  Condition* waits = nullptr;
  Where where;
  u32 fences = 0;  // fence.proxy.async executed so far; a store is marked with it
  u32 init_fences = 0;  // fences that publish the initialisation of mbarriers
  // Polling: the address and the value seen last, to tell a loop that turns in place from one that goes on.
  const void* polled = nullptr;
  u64 polled_value = 0;
  bool polls = false;
  // Groups of bulk copies and of cp.async, oldest first.
  AsyncGroup bulk_open;
  std::deque<AsyncGroup> bulk_groups;
  AsyncGroup copy_open;
  std::deque<AsyncGroup> copy_groups;
  std::vector<BroughtPointer> waited_for;  // and not fenced yet
  // Products of the tensor cores: how many this thread issued and which of its groups end where.
  u64 products_issued = 0;
  u64 groups_committed = 0;
  u64 product_fences = 0;
  std::vector<std::unique_ptr<Accumulator>> accumulators;

  u32 lane() const { return thread % LANES; }
  u32 warp() const { return thread / LANES; }
};

// Lanes of one warp that meet in a collective instruction.
struct Warp {
  u32 present = 0;
  u64 generation = 0;
  Where where;
  Fiber* first = nullptr;
  void* arguments[LANES] = {};
  u32 registers = 0;
};

// ---- Barriers ------------------------------------------------------------------------------------------------------

// PTX ISA, "mbarrier": expected arrivals, pending arrivals, pending transaction bytes, phase.
struct Mbarrier {
  u32 expected = 0;
  u32 pending = 0;
  i64 bytes = 0;
  u64 phase = 0;
  u32 initialiser = 0;  // the thread that initialised it, and its fences for that at the time
  u32 fences = 0;
  BroughtPointer bringing, brought;  // in the phase now, and in the last one that ended
};

struct NamedBarrier {
  u32 expected = 0;
  u32 arrived = 0;
  u64 generation = 0;
  bool reduces = false;  // the threads that have come so far came by bar.red
  bool all = true;       // the value of each of them was true
  bool result = false;   // of the last reduction
};

// ---- Tensor core products in flight --------------------------------------------------------------------------------

struct Product;
struct Warpgroup {
  std::deque<std::shared_ptr<Product>> products;  // not executed yet, in order
  u64 first = 0;                                  // index of the first of them
  std::vector<u64> group_ends;                    // products before the end of each committed group
};

// ---- Blocks --------------------------------------------------------------------------------------------------------

struct Block {
  Cluster* cluster = nullptr;
  u32 index = 0;
  u32 rank = 0;
  u32 threads = 0;
  u32 running = 0;  // threads that have not ended
  std::vector<u8> memory;
  std::vector<u32> stored;   // for 4 bytes: (thread + 1) << 20 | fences of that thread, of the last ordinary store
  std::vector<u8> reading;   // for 4 bytes: asynchronous operations in flight that read them
  std::vector<u8> writing;   // for 4 bytes: asynchronous operations in flight that write them
  std::vector<u8> occupied;  // for 8 bytes: an mbarrier lies there
  std::unordered_map<u32, Mbarrier> barriers;
  NamedBarrier named[NAMED_BARRIERS];
  std::vector<Fiber> fibers;
  std::vector<Warp> warps;
  std::vector<Warpgroup> warpgroups;
  i64 register_pool = 0;  // registers that no warp holds

  u32 shared_end() const { return (u32)memory.size(); }
};

struct Cluster {
  std::vector<std::unique_ptr<Block>> blocks;
  u32 running = 0;
  u32 arrived = 0;  // at barrier.cluster
  u64 generation = 0;
};

// ---- The launch ----------------------------------------------------------------------------------------------------

enum Completion : u32 { LATE = 0, EARLY = 1, RANDOM = 2 };

struct Range {  // an array in global memory that the kernel may touch
  u8* base;
  u64 bytes;
  u32 writable;
};

struct Counts {
  u64 switches, products, copies, waits;
};

struct Request {
  void (*entry)(void**);
  void** arguments;
  const Range* arrays;
  Counts* counts;
  u64 seed;
  u32 array_count;
  u32 grid;
  u32 cluster;
  u32 threads;
  u32 shared_bytes;
  u32 completion;
  u32 registers;
  u32 resident;  // clusters that may live at once
};

struct Machine {
  Request request{};
  Counts counts{};
  std::deque<AsyncOpPointer> in_flight;
  std::vector<std::unique_ptr<Cluster>> clusters;
  std::mt19937_64 random;
  std::string failure;
  bool progressed = false;
  bool polls_global = false;
  u32 leader = 0;  // the lane that elect.sync picks
  void* main_stack = nullptr;
};

extern Machine machine;
extern Fiber* self;  // the running thread; null while the scheduler runs

void enter(const char* name, const Site& site, const void* caller);
void suspend(Condition& condition);
void polled(const void* address, u64 value, bool global);
void end_thread();
bool early();

// Waits until `holds()`; `describe()` tells for what, for the report of a deadlock.
template <class Holds, class Describe>
void wait_until(Holds holds, Describe describe) {
  ++machine.counts.waits;
  machine.progressed = true;
  if (holds()) return;
  struct Both : Condition {
    Holds& test;
    Describe& text;
    Both(Holds& h, Describe& d) : test(h), text(d) {}
    bool holds() override { return test(); }
    std::string describe() override { return text(); }
  } condition(holds, describe);
  suspend(condition);
}

// All lanes of the warp meet at one instruction; the last one to come runs `joint` on the arguments of all of them.
void meet_check();
template <class Arguments, class Joint>
void meet(Arguments& mine, Joint joint) {
  meet_check();
  Warp& warp = self->block->warps[self->warp()];
  u64 generation = warp.generation;
  warp.arguments[self->lane()] = &mine;
  if ((warp.present |= 1u << self->lane()) == ~0u) {
    joint(reinterpret_cast<Arguments**>(warp.arguments));
    warp.present = 0;
    ++warp.generation;
    machine.progressed = true;
    return;
  }
  Warp* meeting = &warp;
  Fiber* fiber = self;
  wait_until([=] { return meeting->generation != generation; },
             [=] {
               return format("%s, met by %d of the warp's 32 lanes", fiber->where.name,
                             __builtin_popcount(meeting->present));
             });
}

// ---- Shared memory -------------------------------------------------------------------------------------------------

enum Access { GENERIC_READ, GENERIC_WRITE, ASYNC_READ, ASYNC_WRITE };

// The block that an address names. Leaves the address inside that block in `address`.
Block& resolve(u32& address, bool cluster_window);
// Refuses an access that leaves shared memory, is misaligned, or meets an operation in flight; returns the bytes.
u8* access(Block& block, u32 address, u32 bytes, u32 alignment, Access kind);
// PTX ISA, "Swizzling modes": pieces of 16 bytes change places by the number of their line of 128 bytes, a part of
// the address. The patterns of 128, 64 and 32 bytes repeat after 8, 4 and 2 lines; 0 and 16 leave all in place.
inline u32 swizzled(u32 address, u32 bytes) {
  u32 lines = bytes < 32 ? 0 : bytes / 16 - 1;
  return address ^ ((address >> 7 & lines) << 4);
}
// Orders before the async proxy what cp.async brought and this thread has waited for at an mbarrier.
void fence_waited_for();
// Counts an asynchronous operation in flight on each word of 4 bytes, or off it.
void mark(std::vector<u8>& marks, u32 address, u32 bytes, int change);
void check_alive(const Block& block);
void check_global(const void* address, u64 bytes, u64 alignment, bool write);

// ---- Mbarriers -----------------------------------------------------------------------------------------------------

Mbarrier& mbarrier(Block& block, u32 address);
// The mbarrier for the async proxy or for another block, which see it only after a fence.
Mbarrier& published_mbarrier(Block& block, u32 address);
// The phase does not end before one more arrival.
void add_arrival(Mbarrier& barrier, u32 address);
// One arrival by an asynchronous operation.
void arrive_from(const AsyncOp& operation, Mbarrier& barrier, u32 address);
void complete_bytes(Mbarrier& barrier, u32 address, i64 bytes, const AsyncOp& operation);

// What the registers of an accumulator hold while a product writes them: a NaN, whose bits arithmetic passes on.
constexpr u32 POISON = 0x7fdeadbe;
// Refuses bits that were read from such a register.
inline void check_read(u32 bits) {
  if ((bits & 0x7fffffff) == POISON) fail("takes a register of an accumulator whose product is in flight: wait for it first");
}

// ---- Products ------------------------------------------------------------------------------------------------------

bool can_execute(const Warpgroup& warpgroup);
void execute_next(Block& block, Warpgroup& warpgroup);
void check_products_at_exit();

}  // namespace twin

// Opens every primitive: failures name it, and the line of the call.
#define PRIMITIVE(name) twin::enter(name, site, __builtin_return_address(0))
