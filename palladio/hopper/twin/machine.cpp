// Fibers, the scheduler, launches, and the text of failures.
#include "machine.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>

namespace twin {

Machine machine;
Fiber* self = nullptr;
static bool on_fiber = false;

// ---- Failures ------------------------------------------------------------------------------------------------------

static std::string formatted(const char* text, va_list arguments) {
  char buffer[1000];
  vsnprintf(buffer, sizeof buffer, text, arguments);
  return buffer;
}

std::string format(const char* text, ...) {
  va_list arguments;
  va_start(arguments, text);
  std::string result = formatted(text, arguments);
  va_end(arguments);
  return result;
}

std::string line_of(const Site& site) {
  const char* slash = strrchr(site.file, '/');
  return format("%s:%d", slash ? slash + 1 : site.file, site.line);
}

static std::string prefix(const Block& block, u32 thread, const Where& where) {
  return format("%s: block %u, warp %u, lane %u, %s: ", line_of(where.site).c_str(), block.index, thread / LANES,
                thread % LANES, where.name);
}

struct Failure {};

extern "C" void palladio_twin_switch(void** from, void* to);

// A fiber never goes on after a failure: its stack is left as it is.
[[noreturn]] static void end_launch(std::string text) {
  if (machine.failure.empty()) machine.failure = std::move(text);
  if (!on_fiber) throw Failure{};
  void* lost;
  palladio_twin_switch(&lost, machine.main_stack);
  __builtin_unreachable();
}

void fail(const char* text, ...) {
  va_list arguments;
  va_start(arguments, text);
  std::string reason = formatted(text, arguments);
  va_end(arguments);
  end_launch(self ? prefix(*self->block, self->thread, self->where) + reason : reason);
}

void fail_at(const Block& block, u32 thread, const Where& where, const char* text, ...) {
  va_list arguments;
  va_start(arguments, text);
  std::string reason = formatted(text, arguments);
  va_end(arguments);
  end_launch(prefix(block, thread, where) + reason);
}

// ---- Fibers --------------------------------------------------------------------------------------------------------

#if !defined(__x86_64__)
#error "the host twin switches fibers in x86-64 assembly"
#endif
asm(R"(
.text
.globl palladio_twin_switch
.type palladio_twin_switch, @function
palladio_twin_switch:
  push %rbp
  push %rbx
  push %r12
  push %r13
  push %r14
  push %r15
  mov %rsp, (%rdi)
  mov %rsi, %rsp
  pop %r15
  pop %r14
  pop %r13
  pop %r12
  pop %rbx
  pop %rbp
  ret
.size palladio_twin_switch, .-palladio_twin_switch
)");

constexpr size_t STACK = 1 << 18;
constexpr u32 MOST_LINES = 12;  // of the report of a deadlock
constexpr u32 MOST_TOGETHER = 3;  // clusters that live at once in a random schedule, unless one waits for others
static std::vector<u8*> spare_stacks;

static u8* take_stack() {
  if (spare_stacks.empty()) {
    void* memory = mmap(nullptr, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) fail("the stacks of %zu bytes for each thread do not fit in memory", STACK);
    mprotect(memory, 4096, PROT_NONE);  // an overflow ends the process at once instead of corrupting a neighbour
    return (u8*)memory;
  }
  u8* stack = spare_stacks.back();
  spare_stacks.pop_back();
  return stack;
}

static void run_thread() {
  machine.request.entry(machine.request.arguments);
  end_thread();
  void* lost;
  palladio_twin_switch(&lost, machine.main_stack);
}

static void prepare(Fiber& fiber) {
  fiber.stack = take_stack();
  u64* top = (u64*)(fiber.stack + STACK);
  *--top = 0;  // where a return address would be: the ABI wants the stack aligned to 16 bytes before a call
  *--top = (u64)&run_thread;
  top -= 6;
  memset(top, 0, 6 * sizeof(u64));
  fiber.stack_pointer = top;
}

static void to_scheduler() {
  ++machine.counts.switches;
  Fiber* fiber = self;
  palladio_twin_switch(&fiber->stack_pointer, machine.main_stack);
}

void suspend(Condition& condition) {
  self->waits = &condition;
  to_scheduler();
}

void polled(const void* address, u64 value, bool global) {
  machine.polls_global |= global;
  bool same = self->polled == address && self->polled_value == value;
  self->polled = address;
  self->polled_value = value;
  if (!same) {
    machine.progressed = true;
    return;
  }
  self->polls = true;
  to_scheduler();
}

void enter(const char* name, const Site& site, const void* caller) {
  self->where = {name, site, caller};
}

bool early() { return machine.request.completion == EARLY; }

void meet_check() {
  Warp& warp = self->block->warps[self->warp()];
  if (!warp.present) {
    warp.where = self->where;
    warp.first = self;
    return;
  }
  if (warp.where.caller == self->where.caller) return;
  fail("the lanes of a warp must execute this instruction together, but lane %u is at %s (%s)", warp.first->lane(),
       warp.where.name, line_of(warp.where.site).c_str());
}

static void release_cluster_barrier(Cluster& cluster) {
  if (!cluster.arrived || cluster.arrived < cluster.running) return;
  cluster.arrived = 0;
  ++cluster.generation;
}

void end_thread() {
  self->where.name = "the end of the kernel";
  check_products_at_exit();
  if (self->block->warps[self->warp()].present)
    fail("the thread ends while lane %u of its warp waits at %s (%s)",
         self->block->warps[self->warp()].first->lane(), self->block->warps[self->warp()].where.name,
         line_of(self->block->warps[self->warp()].where.site).c_str());
  self->done = true;
  machine.progressed = true;
  --self->block->running;
  --self->block->cluster->running;
  release_cluster_barrier(*self->block->cluster);
}

// ---- Asynchronous operations ---------------------------------------------------------------------------------------

void AsyncOp::finish_reading() {
  if (was_read) return;
  was_read = true;
  read();
}

void AsyncOp::finish() {
  if (landed) return;
  finish_reading();
  landed = true;
  land();
  machine.progressed = true;
}

void issue(const AsyncOpPointer& operation) {
  operation->block = self->block;
  operation->thread = self->thread;
  operation->where = self->where;
  ++machine.counts.copies;
  if (early())
    operation->finish();
  else
    machine.in_flight.push_back(operation);
}

static void forget_landed() {
  auto& flight = machine.in_flight;
  auto landed = [](const AsyncOpPointer& operation) { return operation->landed; };
  flight.erase(std::remove_if(flight.begin(), flight.end(), landed), flight.end());
}

// Completes one operation: any one in a random schedule, else the oldest of those that signal an mbarrier, so that
// stores stay in flight as long as they can.
static bool land_one() {
  forget_landed();
  auto& flight = machine.in_flight;
  if (flight.empty()) return false;
  auto signals = [](const AsyncOpPointer& operation) { return operation->signals(); };
  auto signalling = std::find_if(flight.begin(), flight.end(), signals);
  size_t which = machine.request.completion == RANDOM ? machine.random() % flight.size()
                 : signalling == flight.end()         ? 0
                                                      : signalling - flight.begin();
  AsyncOpPointer operation = flight[which];
  // In a random schedule a store may have read its source long before its result can be seen.
  if (machine.request.completion == RANDOM && !operation->was_read && machine.random() % 2) {
    operation->finish_reading();
    machine.progressed = true;
    return true;
  }
  flight.erase(flight.begin() + which);
  operation->finish();
  return true;
}

// ---- Blocks and clusters -------------------------------------------------------------------------------------------

static void start_block(Block& block, Cluster& cluster, u32 index, u32 rank) {
  const Request& request = machine.request;
  block.cluster = &cluster;
  block.index = index;
  block.rank = rank;
  block.threads = block.running = request.threads;
  // Uninitialised memory is NaN in every float format, and -1 in the integers.
  block.memory.assign(SHARED_START + request.shared_bytes, 0xff);
  block.stored.assign(block.memory.size() / 4 + 1, 0);
  block.reading.assign(block.memory.size() / 4 + 1, 0);
  block.writing.assign(block.memory.size() / 4 + 1, 0);
  block.occupied.assign(block.memory.size() / 8 + 1, 0);
  block.fibers = std::vector<Fiber>(request.threads);
  block.warps.resize((request.threads + LANES - 1) / LANES);
  block.warpgroups.resize((request.threads + WARPGROUP - 1) / WARPGROUP);
  for (Warp& warp : block.warps) warp.registers = request.registers;
  for (u32 thread = 0; thread < request.threads; ++thread) {
    Fiber& fiber = block.fibers[thread];
    fiber.block = &block;
    fiber.thread = thread;
    prepare(fiber);
  }
}

static u32 clusters_of_grid() { return machine.request.grid / machine.request.cluster; }

static void start_cluster(u32 index) {
  auto cluster = std::make_unique<Cluster>();
  for (u32 rank = 0; rank < machine.request.cluster; ++rank) {
    cluster->blocks.push_back(std::make_unique<Block>());
    start_block(*cluster->blocks.back(), *cluster, index * machine.request.cluster + rank, rank);
    cluster->running += machine.request.threads;
  }
  machine.clusters.push_back(std::move(cluster));
}

static void free_stacks(Cluster& cluster) {
  for (auto& block : cluster.blocks)
    for (Fiber& fiber : block->fibers) spare_stacks.push_back(fiber.stack);
}

static void check_end_of_block(const Block& block) {
  for (const AsyncOpPointer& operation : machine.in_flight) {
    if (operation->landed || operation->block != &block) continue;
    if (operation->outlives_block() && operation->was_read) continue;
    fail_at(*operation->block, operation->thread, operation->where,
            "still in flight when its block ends; the thread that issued it has to wait for it");
  }
}

// Ends clusters whose threads have all ended. Their stores may still be on their way to global memory.
static void retire_clusters() {
  for (size_t k = 0; k < machine.clusters.size();) {
    Cluster& cluster = *machine.clusters[k];
    if (cluster.running) {
      ++k;
      continue;
    }
    for (auto& block : cluster.blocks) check_end_of_block(*block);
    for (const AsyncOpPointer& operation : machine.in_flight)
      if (operation->block->cluster == &cluster) operation->finish();
    forget_landed();
    free_stacks(cluster);
    machine.clusters.erase(machine.clusters.begin() + k);
  }
}

// ---- The scheduler -------------------------------------------------------------------------------------------------

static void resume(Fiber& fiber) {
  self = &fiber;
  on_fiber = true;
  palladio_twin_switch(&machine.main_stack, fiber.stack_pointer);
  on_fiber = false;
  self = nullptr;
  if (!machine.failure.empty()) throw Failure{};
}

static bool runnable(Fiber& fiber) {
  if (fiber.done) return false;
  if (!fiber.waits) return true;
  self = &fiber;
  bool holds = fiber.waits->holds();
  self = nullptr;
  if (holds) fiber.waits = nullptr;
  return holds;
}

// Runs the lanes of a warp until none of them can go on, or once around.
static void run_warp(Block& block, u32 warp, bool greedily) {
  u32 first = warp * LANES, count = std::min(LANES, block.threads - first);
  u32 turn = machine.request.completion == RANDOM ? machine.random() % count : 0;
  for (bool went = true; went;) {
    went = false;
    for (u32 k = 0; k < count; ++k) {
      Fiber& fiber = block.fibers[first + (k + turn) % count];
      if (!runnable(fiber)) continue;
      resume(fiber);
      if (fiber.polls) {
        fiber.polls = false;
        continue;
      }
      went = machine.progressed = true;
    }
    if (!greedily) return;
  }
}

static void random_completions() {
  if (machine.random() % 4 == 0) land_one();
  for (auto& cluster : machine.clusters)
    for (auto& block : cluster->blocks)
      for (Warpgroup& warpgroup : block->warpgroups)
        if (can_execute(warpgroup) && machine.random() % 4 == 0) execute_next(*block, warpgroup);
}

static void sweep() {
  std::vector<std::pair<Block*, u32>> order;
  for (auto& cluster : machine.clusters)
    for (auto& block : cluster->blocks)
      for (u32 warp = 0; warp < block->warps.size(); ++warp) order.push_back({block.get(), warp});
  bool random = machine.request.completion == RANDOM;
  if (random) std::shuffle(order.begin(), order.end(), machine.random);
  for (auto [block, warp] : order) {
    run_warp(*block, warp, !random || machine.random() % 2);
    if (random) random_completions();
  }
}

// "warps 0-3, 5": the warps of a set of bits.
static std::string warps_of(u32 bits) {
  std::string text;
  for (u32 warp = 0; warp < 32; ++warp) {
    if (!(bits >> warp & 1)) continue;
    u32 last = warp;
    while (last < 31 && bits >> (last + 1) & 1) ++last;
    text += (text.empty() ? "" : ", ") + (last == warp ? format("%u", warp) : format("%u-%u", warp, last));
    warp = last;
  }
  return text;
}

struct Waiting {
  u32 warps = 0, threads = 0;
};

static std::string waits_for(Fiber& fiber) {
  self = &fiber;
  std::string what = fiber.waits ? fiber.waits->describe() : "a value in memory that stays the same";
  self = nullptr;
  return what;
}

[[noreturn]] static void report_deadlock() {
  std::map<std::string, Waiting> all;
  for (auto& cluster : machine.clusters)
    for (auto& block : cluster->blocks)
      for (Fiber& fiber : block->fibers) {
        if (fiber.done) continue;
        Waiting& waiting = all[format("block %u at %s, %s, for %s", block->index, line_of(fiber.where.site).c_str(),
                                      fiber.where.name, waits_for(fiber).c_str())];
        waiting.warps |= 1u << fiber.warp();
        ++waiting.threads;
      }
  std::string text = "deadlock: no thread can go on, and nothing is in flight";
  u32 shown = 0;
  for (auto& [what, waiting] : all) {
    if (++shown > MOST_LINES) {
      text += format("\n  and at %zu more places", all.size() - MOST_LINES);
      break;
    }
    text += format("\n  %u threads of warps %s of %s", waiting.threads, warps_of(waiting.warps).c_str(), what.c_str());
  }
  end_launch(text);
}

// Clusters begin in order, one after another; in a random schedule in any order, some of them together.
static std::vector<u32> order_of_clusters() {
  std::vector<u32> order(clusters_of_grid());
  for (u32 k = 0; k < order.size(); ++k) order[k] = k;
  if (machine.request.completion == RANDOM) std::shuffle(order.begin(), order.end(), machine.random);
  return order;
}

static void run_launch() {
  const std::vector<u32> order = order_of_clusters();
  const u32 together = machine.request.completion == RANDOM ? MOST_TOGETHER : 1;
  u32 next = 0, total = (u32)order.size(), idle = 0;
  while (next < total || !machine.clusters.empty()) {
    while (next < total && machine.clusters.size() < together) start_cluster(order[next++]);
    machine.progressed = machine.polls_global = false;
    sweep();
    retire_clusters();
    if (machine.progressed) {
      idle = 0;
      continue;
    }
    if (land_one()) continue;
    // A thread that polls global memory may be waiting for a block that has not begun.
    if (machine.polls_global && next < total && machine.clusters.size() < machine.request.resident) {
      start_cluster(order[next++]);
      continue;
    }
    if (++idle > 2) report_deadlock();
  }
  while (land_one()) {
  }
}

static void check_request(const Request& request) {
  if (!request.threads || request.threads > 1024 || request.threads % LANES)
    fail("a block has whole warps, at most 1024 threads, not %u", request.threads);
  if (!request.cluster || request.cluster > 8) fail("a cluster has 1 to 8 blocks, not %u", request.cluster);
  if (request.grid % request.cluster) fail("%u blocks cannot be put in clusters of %u", request.grid, request.cluster);
  if (request.shared_bytes > SHARED_LIMIT)
    fail("%u bytes of shared memory are more than the %u that a block may have", request.shared_bytes, SHARED_LIMIT);
}

extern "C" __attribute__((visibility("default"))) const char* palladio_twin_launch(const Request* request) {
  machine.request = *request;
  machine.counts = {};
  machine.in_flight.clear();
  machine.random.seed(request->seed);
  machine.failure.clear();
  self = nullptr;
  on_fiber = false;
  static const u32 leaders[] = {0, 31};
  machine.leader = request->completion == RANDOM ? machine.random() % LANES : leaders[request->completion];
  try {
    check_request(*request);
    run_launch();
  } catch (const Failure&) {
  }
  self = nullptr;
  machine.in_flight.clear();
  for (auto& cluster : machine.clusters) free_stacks(*cluster);
  machine.clusters.clear();
  if (request->counts) *request->counts = machine.counts;
  return machine.failure.c_str();
}

}  // namespace twin
