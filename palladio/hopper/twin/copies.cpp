// Copies by the async proxy: tensor maps, boxes, bulk groups.
#include <algorithm>

#include "device.hpp"
#include "machine.hpp"
#include "numbers.hpp"

namespace twin {

// The contents of a tensor map here. The driver's own encoding is not published; axes have its order, innermost first.
struct TensorSpec {
  u64 magic;
  u8* base;
  u64 dims[5];
  u64 strides[4];
  u32 box[5];
  u32 rank;
  u32 element;  // a Number
  u32 item;
  u32 swizzle;
  u32 fill_nan;

  u32 inner_bytes() const { return box[0] * item; }
  u32 rows() const {
    u32 rows = 1;
    for (u32 axis = 1; axis < rank; ++axis) rows *= box[axis];
    return rows;
  }
  u32 bytes() const { return inner_bytes() * rows(); }
};
constexpr u64 MAGIC = 0x70616c6c6164696f;

struct Box {
  TensorSpec spec;
  i64 start[5];
};

static Box box_of(const TensorMap* map, const int* coordinates, u32 count) {
  if ((u64)map % 64) fail("the tensor map lies at an address that is not a multiple of 64");
  TensorSpec* spec = (TensorSpec*)map->words[1];
  if (map->words[0] != MAGIC || !spec) fail("the tensor map was not encoded");
  if (spec->rank != count) fail("the tensor map has %u axes, the copy gives %u coordinates", spec->rank, count);
  Box box{*spec, {}};
  for (u32 axis = 0; axis < count; ++axis) box.start[axis] = coordinates[axis];
  // Not in the text of the ISA: an H200 ends such a copy with an illegal instruction, Triton's manual forbids it.
  if (box.start[0] * spec->item % 16)
    fail("a box begins at element %d of a row, which is not at a multiple of 16 bytes", coordinates[0]);
  return box;
}

// Visits the pieces of 16 bytes of a box: where it lies in shared memory, and its elements' coordinates.
template <class Visit>
static void for_pieces(const Box& box, u32 shared, Visit visit) {
  const TensorSpec& spec = box.spec;
  u32 inner = spec.inner_bytes();
  for (u32 row = 0; row < spec.rows(); ++row) {
    bool inside = true;
    i64 offset = 0;
    u32 left = row;
    for (u32 axis = 1; axis < spec.rank; ++axis) {
      i64 at = box.start[axis] + left % spec.box[axis];
      left /= spec.box[axis];
      inside &= at >= 0 && at < (i64)spec.dims[axis];
      offset += at * (i64)spec.strides[axis - 1];
    }
    for (u32 byte = 0; byte < inner; byte += 16)
      visit(swizzled(shared + row * inner + byte, spec.swizzle), inside, offset, box.start[0] + byte / spec.item);
  }
}

template <class Visit>
static void for_elements(const Box& box, u32 shared, Visit visit) {
  const TensorSpec& spec = box.spec;
  for_pieces(box, shared, [&](u32 piece, bool inside, i64 offset, i64 column) {
    for (u32 k = 0; k < 16 / spec.item; ++k) {
      i64 at = column + k;
      bool in = inside && at >= 0 && at < (i64)spec.dims[0];
      visit(piece + k * spec.item, in ? spec.base + offset + at * (i64)spec.item : nullptr);
    }
  });
}

static void check_box(const Box& box, u32 shared) {
  if (shared % 128) fail("a box begins at shared address 0x%x, which must be a multiple of 128", shared);
  if (box.spec.bytes() > SHARED_LIMIT) fail("a box of %u bytes", box.spec.bytes());
}

// ---- Loads ---------------------------------------------------------------------------------------------------------

struct TensorLoad : AsyncOp {
  Box box;
  u32 target, barrier;
  std::vector<Block*> blocks;

  bool signals() const override { return true; }

  static void fill(const TensorSpec& spec, u8* to) {
    static const u16 f16 = 0x7fff, bf16 = 0x7fff;
    static const u32 f32 = 0x7fffffff;
    static const u64 f64 = 0x7fffffffffffffff;
    const void* nan = spec.element == F16 ? (void*)&f16 : spec.element == BF16 ? (void*)&bf16
                                                      : spec.element == F32    ? (void*)&f32
                                                                               : (void*)&f64;
    if (spec.fill_nan)
      memcpy(to, nan, spec.item);
    else
      memset(to, 0, spec.item);
  }

  void land() override {
    for (Block* to : blocks) {
      if (!to->running) fail_at(*block, thread, where, "reaches block %u of the cluster, which has ended", to->index);
      auto found = to->barriers.find(barrier);
      if (found == to->barriers.end())
        fail_at(*block, thread, where, "its mbarrier at 0x%x was taken away meanwhile", barrier);
      u8* memory = to->memory.data();
      for_elements(box, target, [&](u32 at, const u8* from) {
        if (from)
          memcpy(memory + at, from, box.spec.item);
        else
          fill(box.spec, memory + at);
      });
      mark(to->writing, target, box.spec.bytes(), -1);
      complete_bytes(found->second, barrier, box.spec.bytes(), *this);
    }
  }
};

static void start_load(const Box& box, u32 target, u32 barrier, std::vector<Block*> blocks) {
  check_box(box, target);
  auto load = std::make_shared<TensorLoad>();
  load->box = box;
  load->target = target;
  load->barrier = barrier;
  for (Block* block : blocks) {
    check_alive(*block);
    published_mbarrier(*block, barrier);
    access(*block, target, box.spec.bytes(), 128, ASYNC_WRITE);
    mark(block->writing, target, box.spec.bytes(), +1);
  }
  load->blocks = std::move(blocks);
  issue(load);
}

static void load_box(const TensorMap* map, u32 target, u32 barrier, const int* coordinates, u32 count) {
  Box box = box_of(map, coordinates, count);
  Block& block = resolve(target, true);
  if (&resolve(barrier, true) != &block) fail("target and mbarrier must lie in one block");
  start_load(box, target, barrier, {&block});
}

// PTX ISA, "cp.async.bulk.tensor", .multicast::cluster: data and signal go to the same addresses in each block.
static void multicast_box(const TensorMap* map, u32 target, u32 barrier, u32 mask, const int* coordinates, u32 count) {
  Box box = box_of(map, coordinates, count);
  Cluster& cluster = *resolve(target, false).cluster;
  resolve(barrier, false);
  if (!mask || mask >> cluster.blocks.size())
    fail("mask 0x%x does not name blocks of a cluster of %zu", mask, cluster.blocks.size());
  std::vector<Block*> blocks;
  for (u32 rank = 0; rank < cluster.blocks.size(); ++rank)
    if (mask >> rank & 1) blocks.push_back(cluster.blocks[rank].get());
  start_load(box, target, barrier, std::move(blocks));
}

// ---- Stores and reductions -----------------------------------------------------------------------------------------

template <class T>
static T combine_numbers(Combiner how, T a, T b) {
  if (how == ADD) return a + b;
  return how == MIN ? std::min(a, b) : std::max(a, b);
}

template <class T>
static void combine_integers(Combiner how, u8* to, const u8* from) {
  T a, b;
  memcpy(&a, to, sizeof(T));
  memcpy(&b, from, sizeof(T));
  T result = how == AND ? a & b : how == OR ? a | b : how == XOR ? a ^ b : combine_numbers(how, a, b);
  memcpy(to, &result, sizeof(T));
}

template <class T>
static void combine_floats(Combiner how, u8* to, const u8* from) {
  T a, b;
  memcpy(&a, to, sizeof(T));
  memcpy(&b, from, sizeof(T));
  T result = combine_numbers(how, a, b);
  memcpy(to, &result, sizeof(T));
}

static void combine_halves(const TensorSpec& spec, Combiner how, u8* to, const u8* from) {
  u16 a, b;
  memcpy(&a, to, 2);
  memcpy(&b, from, 2);
  bool f16 = spec.element == F16;
  float sum = combine_numbers(how, f16 ? decode_f16(a) : decode_bf16(a), f16 ? decode_f16(b) : decode_bf16(b));
  u16 result = f16 ? encode_f16(sum) : encode_bf16(sum);
  memcpy(to, &result, 2);
}

static void combine(const TensorSpec& spec, Combiner how, u8* to, const u8* from) {
  switch (spec.element) {
    case S32: return combine_integers<int>(how, to, from);
    case U32: return combine_integers<u32>(how, to, from);
    case S64: return combine_integers<i64>(how, to, from);
    case U64: return combine_integers<u64>(how, to, from);
    case F16:
    case BF16: return combine_halves(spec, how, to, from);
    default: return combine_floats<float>(how, to, from);
  }
}

// PTX ISA, "cp.reduce.async.bulk": the types that each operation takes. An H200 refuses s64 but for extrema.
static void check_reduction(const TensorSpec& spec, Combiner how) {
  bool integer = spec.element >= S32 && spec.element <= U64;
  bool half = spec.element == F16 || spec.element == BF16;
  bool joined = integer && spec.element != S64;
  bool fits = how == ADD               ? joined || half || spec.element == F32
              : how == MIN || how == MAX ? integer || half
                                         : joined && how <= XOR;
  if (!fits) fail("the reduction does not take elements of this type");
}

struct TensorStore : AsyncOp {
  Box box;
  u32 source;
  Combiner how;
  std::vector<u8> data;

  bool outlives_block() const override { return true; }

  void read() override {
    if (!block->running && !was_read) fail_at(*block, thread, where, "reads its source after its block has ended");
    data.clear();
    for_elements(box, source, [&](u32 at, const u8*) {
      data.insert(data.end(), block->memory.data() + at, block->memory.data() + at + box.spec.item);
    });
    mark(block->reading, source, box.spec.bytes(), -1);
  }

  void land() override {
    const u8* from = data.data();
    for_elements(box, source, [&](u32, u8* to) {
      if (to && how != STORE) combine(box.spec, how, to, from);
      if (to && how == STORE) memcpy(to, from, box.spec.item);
      from += box.spec.item;
    });
  }
};

static void store_box(const TensorMap* map, u32 source, const int* coordinates, u32 count, Combiner how) {
  auto store = std::make_shared<TensorStore>();
  store->box = box_of(map, coordinates, count);
  store->source = source;
  store->how = how;
  if (how != STORE) check_reduction(store->box.spec, how);
  Block& block = resolve(source, false);
  check_box(store->box, source);
  access(block, source, store->box.spec.bytes(), 128, ASYNC_READ);
  mark(block.reading, source, store->box.spec.bytes(), +1);
  self->bulk_open.operations.push_back(store);
  issue(store);
}

void reduce_box(const TensorMap* map, u32 source, const int* coordinates, u32 count, int how, Site site) {
  PRIMITIVE("cp.reduce.async.bulk.tensor");
  store_box(map, source, coordinates, count, (Combiner)how);
}

// ---- Bulk groups ---------------------------------------------------------------------------------------------------

static void commit_bulk() {
  self->bulk_groups.push_back(std::move(self->bulk_open));
  self->bulk_open = {};
}

// PTX ISA, "cp.async.bulk.wait_group": at most N of the latest groups stay in flight; .read waits for sources only.
void wait_bulk(u32 groups, bool only_read, Site site) {
  PRIMITIVE(only_read ? "cp.async.bulk.wait_group.read" : "cp.async.bulk.wait_group");
  size_t count = self->bulk_groups.size();
  for (size_t k = 0; k + groups < count; ++k)
    for (const AsyncOpPointer& operation : self->bulk_groups[k].operations) {
      if (only_read)
        operation->finish_reading();
      else
        operation->finish();
    }
  auto whole = [](const AsyncGroup& group) {
    for (const AsyncOpPointer& operation : group.operations)
      if (!operation->landed) return false;
    return true;
  };
  while (!self->bulk_groups.empty() && self->bulk_groups.size() > groups && whole(self->bulk_groups.front()))
    self->bulk_groups.pop_front();
}

}  // namespace twin

namespace pal {
using namespace twin;

void prefetch_map(const TensorMap* map, Site site) {
  PRIMITIVE("prefetch.tensormap");
  if ((u64)map % 64 || map->words[0] != MAGIC) fail("the tensor map was not encoded");
}

#define COORDINATES_1 int c0
#define COORDINATES_2 int c0, int c1
#define COORDINATES_3 int c0, int c1, int c2
#define COORDINATES_4 int c0, int c1, int c2, int c3
#define COORDINATES_5 int c0, int c1, int c2, int c3, int c4
#define LIST_1 c0
#define LIST_2 c0, c1
#define LIST_3 c0, c1, c2
#define LIST_4 c0, c1, c2, c3
#define LIST_5 c0, c1, c2, c3, c4
#define COPIES(rank)                                                                                               \
  void tma_load(const TensorMap* map, u32 target, u32 barrier, COORDINATES_##rank, Site site) {                    \
    PRIMITIVE("cp.async.bulk.tensor load");                                                                        \
    int list[] = {LIST_##rank};                                                                                    \
    load_box(map, target, barrier, list, rank);                                                                    \
  }                                                                                                                \
  void tma_load_multicast(const TensorMap* map, u32 target, u32 barrier, u32 blocks, COORDINATES_##rank,           \
                          Site site) {                                                                             \
    PRIMITIVE("cp.async.bulk.tensor multicast load");                                                              \
    int list[] = {LIST_##rank};                                                                                    \
    multicast_box(map, target, barrier, blocks, list, rank);                                                       \
  }                                                                                                                \
  void tma_store(const TensorMap* map, u32 source, COORDINATES_##rank, Site site) {                                \
    PRIMITIVE("cp.async.bulk.tensor store");                                                                       \
    int list[] = {LIST_##rank};                                                                                    \
    store_box(map, source, list, rank, STORE);                                                                      \
  }
COPIES(1)
COPIES(2)
COPIES(3)
COPIES(4)
COPIES(5)

void bulk_commit(Site site) {
  PRIMITIVE("cp.async.bulk.commit_group");
  commit_bulk();
}

}  // namespace pal
