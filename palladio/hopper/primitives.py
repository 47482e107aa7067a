"""The table of device primitives that generated kernels call, with their callers and sections of the PTX ISA.

`device.cuh` implements them for sm_90a. Every replacement for it has the same functions.
"""

from __future__ import annotations

from palladio.base.dataclass import dataclass

THREAD = "thread"
WARP = "warp"
WARPGROUP = "warpgroup"
BLOCK = "block"
CLUSTER = "cluster"
CALLERS = (THREAD, WARP, WARPGROUP, BLOCK, CLUSTER)


@dataclass(frozen=True)
class Primitive:
    """A function of `device.cuh`.

    Fields:
        signature: its declaration in C++; each overload has a record.
        caller: the smallest set of threads that must call it convergently: one thread, all 32 of a warp, all 128 of a
            warpgroup, all of a block or all of a cluster.
        doc: its effect.
        source: the section of the PTX ISA, or the CUDA function, that defines it.
    """

    signature: str
    caller: str
    doc: str
    source: str

    @property
    def name(self) -> str:
        """The name of the function."""
        return self.signature.partition("(")[0].split()[-1]


def _of_rank(start: str, ranks: range, caller: str, doc: str, source: str) -> tuple[Primitive, ...]:
    """The records of a copy, for boxes of each rank."""
    return tuple(
        Primitive(f"{start}, {', '.join(f'int c{n}' for n in range(rank))})", caller, doc, source) for rank in ranks
    )


_MBARRIER = "Parallel Synchronization and Communication Instructions: mbarrier"
_TENSOR = "Data Movement and Conversion Instructions: cp.async.bulk.tensor"

WHERE = (
    Primitive("u32 shared_base()", THREAD, "The address of the block's shared memory.", "shared state space"),
    Primitive("u32 thread_index()", THREAD, "The number of the thread in its block.", "%tid"),
    Primitive("int block_index()", THREAD, "The number of the block in the grid.", "%ctaid"),
    Primitive("int cluster_index()", THREAD, "The number of the cluster in the grid.", "%clusterid"),
    Primitive("int cluster_rank()", THREAD, "The number of the block in its cluster.", "%cluster_ctarank"),
    Primitive(
        "int uniform(int x)", WARP, "The value of lane 0, which the compiler then knows to be the warp's.", "shfl.sync"
    ),
    Primitive("bool elect()", WARP, "True in one lane of the warp, always the same.", "elect.sync"),
)

SYNCHRONISATION = (
    Primitive("void sync_warp()", WARP, "The warp's threads wait for each other.", "bar.warp.sync"),
    Primitive("void sync_block()", BLOCK, "The block's threads wait for each other.", "barrier.sync 0"),
    Primitive(
        "void sync_named(int id, int threads)",
        WARP,
        "Waits until a number of threads, in whole warps, have come to the barrier of this number, 0 to 15.",
        "bar.sync",
    ),
    Primitive(
        "bool all_named(int id, int threads, bool value)",
        WARP,
        "Waits like sync_named; whether the value is true in all of these threads.",
        "bar.red.and.pred",
    ),
    Primitive(
        "void arrive_named(int id, int threads)",
        WARP,
        "Counts the warp as having come to the barrier of this number without waiting.",
        "bar.arrive",
    ),
    Primitive("void sync_cluster()", CLUSTER, "The cluster's threads wait for each other.", "barrier.cluster"),
)

BARRIERS = (
    Primitive(
        "void barrier_init(u32 barrier, u32 count)",
        THREAD,
        "Makes 8 bytes a barrier of `count` arrivals.",
        _MBARRIER + ".init",
    ),
    Primitive(
        "void barrier_invalidate(u32 barrier)",
        THREAD,
        "Ends the barrier: its bytes may hold something else.",
        _MBARRIER + ".inval",
    ),
    Primitive(
        "void fence_barrier_init()",
        THREAD,
        "Makes initialised barriers visible to the cluster and to asynchronous copies.",
        "fence.mbarrier_init, fence.proxy.async",
    ),
    Primitive("void arrive(u32 barrier)", THREAD, "One arrival.", _MBARRIER + ".arrive"),
    Primitive("void arrive_many(u32 barrier, u32 count)", THREAD, "Several arrivals at once.", _MBARRIER + ".arrive"),
    Primitive(
        "void arrive_expect(u32 barrier, u32 bytes)",
        THREAD,
        "The phase expects further bytes; then one arrival.",
        _MBARRIER + ".arrive.expect_tx",
    ),
    Primitive(
        "void expect(u32 barrier, u32 bytes)", THREAD, "The phase expects further bytes.", _MBARRIER + ".expect_tx"
    ),
    Primitive(
        "void arrive_cluster(u32 barrier, u32 rank)",
        THREAD,
        "One arrival at the barrier of the same address in a block of the cluster, with release for the cluster.",
        "mapa; " + _MBARRIER + ".arrive .shared::cluster",
    ),
    Primitive(
        "void arrive_peer(u32 barrier, u32 rank)",
        THREAD,
        "As arrive_cluster, with release for the thread's own block only.",
        "mapa; " + _MBARRIER + ".arrive .shared::cluster",
    ),
    Primitive(
        "bool test(u32 barrier, u32 parity)",
        THREAD,
        "Whether the phase of this parity has completed.",
        _MBARRIER + ".test_wait",
    ),
    Primitive(
        "bool try_wait(u32 barrier, u32 parity)",
        THREAD,
        "Whether the phase of this parity has completed; may wait a while for it.",
        _MBARRIER + ".try_wait",
    ),
    Primitive(
        "bool try_wait_cluster(u32 barrier, u32 parity)",
        THREAD,
        "As try_wait, with acquire for the cluster.",
        _MBARRIER + ".try_wait",
    ),
    Primitive(
        "void wait(u32 barrier, u32 parity)",
        THREAD,
        "Waits until the phase of this parity has completed.",
        _MBARRIER + ".try_wait",
    ),
    Primitive(
        "void wait_cluster(u32 barrier, u32 parity)",
        THREAD,
        "As wait, with acquire for the cluster.",
        _MBARRIER + ".try_wait",
    ),
)

COPIES = (
    Primitive(
        "void prefetch_map(const TensorMap* map)", THREAD, "Fetches a tensor map into its cache.", "prefetch.tensormap"
    ),
    *_of_rank(
        "void tma_load(const TensorMap* map, u32 target, u32 barrier",
        range(1, 6),
        THREAD,
        "Starts to copy a box of an array to shared memory; the bytes of the whole box, also of what lies outside of "
        "the array and is filled, count at the barrier.",
        _TENSOR,
    ),
    *_of_rank(
        "void tma_load_multicast(const TensorMap* map, u32 target, u32 barrier, u32 blocks",
        range(1, 5),
        THREAD,
        "As tma_load, to the same address in every block of the cluster whose bit is set, each with its own barrier.",
        _TENSOR + " .multicast::cluster",
    ),
    *_of_rank(
        "void tma_store(const TensorMap* map, u32 source",
        range(1, 6),
        THREAD,
        "Starts to copy a box from shared memory to an array, except for what lies outside of it; joins the thread's "
        "open bulk group.",
        _TENSOR,
    ),
    *_of_rank(
        "template <int KIND> void tma_reduce(const TensorMap* map, u32 source",
        range(1, 6),
        THREAD,
        "As tma_store, but combines each element with what the array holds: ADD, MIN, MAX, AND, OR or XOR.",
        "Data Movement and Conversion Instructions: cp.reduce.async.bulk.tensor",
    ),
    Primitive("void bulk_commit()", THREAD, "Closes the thread's open bulk group.", "cp.async.bulk.commit_group"),
    Primitive(
        "template <int N> void bulk_wait_read()",
        THREAD,
        "Waits until all but the N latest bulk groups of the thread have read their sources.",
        "cp.async.bulk.wait_group.read",
    ),
    Primitive(
        "template <int N> void bulk_wait()",
        THREAD,
        "Waits until all but the N latest bulk groups of the thread are complete.",
        "cp.async.bulk.wait_group",
    ),
    Primitive(
        "void fence_async()",
        THREAD,
        "Orders the thread's ordinary accesses to shared memory before later asynchronous ones.",
        "membar/fence: fence.proxy.async",
    ),
    Primitive(
        "void fence_async_global()",
        THREAD,
        "Orders ordinary accesses to global memory, as far as the thread knows them, before later asynchronous ones.",
        "membar/fence: fence.proxy.async",
    ),
)

TENSOR_CORES = (
    Primitive(
        "void wgmma_fence()",
        WARPGROUP,
        "Orders accesses to registers before later products; needed before the first one and after changing registers.",
        "wgmma.fence",
    ),
    Primitive("void wgmma_commit()", WARPGROUP, "Closes the group of products.", "wgmma.commit_group"),
    Primitive(
        "template <int N> void wgmma_wait()",
        WARPGROUP,
        "Waits until at most N groups of products are in flight.",
        "wgmma.wait_group",
    ),
    Primitive(
        "u64 descriptor(u32 address, u32 leading, u32 stride, u32 swizzle)",
        THREAD,
        "Describes an operand in shared memory: its address and the leading and stride byte offsets, multiples of 16, "
        "and the swizzling mode, 0 none, 1 of 128, 2 of 64, 3 of 32 bytes. The base offset is 0.",
        "Asynchronous Warpgroup Level Matrix Instructions: Matrix Descriptor Format",
    ),
    *(
        Primitive(
            f"template <int R> void keep({type} (&registers)[R])",
            THREAD,
            "Does nothing; the compiler may not move accesses to these registers across it.",
            "C++: asm volatile",
        )
        for type in ("float", "int", "u32")
    ),
    Primitive(
        "template <int N> void registers_increase()",
        WARPGROUP,
        "Waits until the block has registers for N of each thread, and takes them.",
        "setmaxnreg.inc",
    ),
    Primitive(
        "template <int N> void registers_decrease()",
        WARPGROUP,
        "Gives registers back, down to N of each thread.",
        "setmaxnreg.dec",
    ),
)

MEMORY = (
    Primitive(
        "template <typename T> T load_global(const T* address)", THREAD, "A load from global memory.", "ld.global"
    ),
    Primitive(
        "template <typename T> T load_constant(const T* address)",
        THREAD,
        "A load from global memory that is not written while the kernel runs.",
        "ld.global.nc",
    ),
    Primitive("u32x2 load_constant(const u32x2* address)", THREAD, "The same of 8 bytes.", "ld.global.nc"),
    Primitive("u32x4 load_constant(const u32x4* address)", THREAD, "The same of 16 bytes.", "ld.global.nc"),
    Primitive(
        "template <typename T> void store_global(T* address, T value)", THREAD, "A store to global memory.", "st.global"
    ),
    Primitive("template <typename T> T load_shared(u32 address)", THREAD, "A load from shared memory.", "ld.shared"),
    Primitive(
        "template <typename T> void store_shared(u32 address, T value)",
        THREAD,
        "A store to shared memory.",
        "st.shared",
    ),
    Primitive(
        "void stmatrix4(u32 address, u32 a, u32 b, u32 c, u32 d)",
        WARP,
        "Stores four matrices of 8 rows of 16 bytes; lane l gives the address of row l % 8 of matrix l / 8.",
        "stmatrix.m8n8.x4.b16",
    ),
    Primitive(
        "void stmatrix2(u32 address, u32 a, u32 b)",
        WARP,
        "Stores two matrices of 8 rows of 16 bytes; lane l below 16 gives the address of row l % 8 of matrix l / 8.",
        "stmatrix.m8n8.x2.b16",
    ),
    Primitive(
        "void stmatrix4_transposed(u32 address, u32 a, u32 b, u32 c, u32 d)",
        WARP,
        "As stmatrix4; each lane holds elements of two rows of one column.",
        "stmatrix.m8n8.x4.trans.b16",
    ),
    Primitive(
        "void ldmatrix4(u32 address, u32& a, u32& b, u32& c, u32& d)",
        WARP,
        "Loads four matrices of 8 rows of 16 bytes; lane l gives the address of row l % 8 of matrix l / 8.",
        "ldmatrix.m8n8.x4.b16",
    ),
    Primitive(
        "void ldmatrix4_transposed(u32 address, u32& a, u32& b, u32& c, u32& d)",
        WARP,
        "As ldmatrix4; each lane gets elements of two rows of one column.",
        "ldmatrix.m8n8.x4.trans.b16",
    ),
    Primitive(
        "template <typename T> T load_cluster(u32 address, u32 rank)",
        THREAD,
        "A load from the same address in a block of the cluster.",
        "mapa; ld.shared::cluster",
    ),
    Primitive(
        "template <typename T> void store_cluster(u32 address, u32 rank, T value)",
        THREAD,
        "A store to the same address in a block of the cluster.",
        "mapa; st.shared::cluster",
    ),
    Primitive(
        "template <int BYTES> void copy_async(u32 target, const void* source, int given)",
        THREAD,
        "Starts to copy 4, 8 or 16 bytes to shared memory: `given` from global memory and zeros for the others.",
        "cp.async",
    ),
    Primitive("void copy_async_commit()", THREAD, "Closes the thread's open group of copies.", "cp.async.commit_group"),
    Primitive(
        "template <int N> void copy_async_wait()",
        THREAD,
        "Waits until all but the N latest groups of the thread's copies are complete.",
        "cp.async.wait_group",
    ),
    Primitive(
        "void copy_async_hold(u32 barrier)",
        THREAD,
        "Keeps the phase of the barrier from ending until all copies that the thread has started are complete.",
        "cp.async.mbarrier.arrive",
    ),
    Primitive(
        "void copy_async_arrive(u32 barrier)",
        THREAD,
        "One arrival when all copies that the thread has started are complete.",
        "cp.async.mbarrier.arrive.noinc",
    ),
    Primitive(
        "template <int KIND, typename T> T atomic(T* address, T value)",
        THREAD,
        "Combines a number in global memory with the value: ADD, MIN, MAX, AND, OR, XOR, EXCHANGE. The number before.",
        "atom.global",
    ),
    Primitive(
        "template <int KIND, typename T> T atomic_shared(u32 address, T value)",
        THREAD,
        "The same in shared memory.",
        "atom.shared",
    ),
    Primitive(
        "template <int KIND, typename T> T atomic_cluster(u32 address, u32 rank, T value)",
        THREAD,
        "The same at the same address in a block of the cluster.",
        "mapa; atom.shared::cluster",
    ),
    Primitive(
        "template <typename T> T atomic_compare(T* address, T compare, T value)",
        THREAD,
        "Stores the value if the bits there are those of `compare`. The number before.",
        "atom.global.cas",
    ),
    Primitive(
        "template <typename T> T atomic_compare_shared(u32 address, T compare, T value)",
        THREAD,
        "The same in shared memory.",
        "atom.shared.cas",
    ),
    Primitive(
        "template <typename T> T atomic_compare_cluster(u32 address, u32 rank, T compare, T value)",
        THREAD,
        "The same at the same address in a block of the cluster.",
        "mapa; atom.shared::cluster.cas",
    ),
    Primitive(
        "int load_acquire(const int* address)",
        THREAD,
        "A load that later accesses are ordered after, for all blocks.",
        "ld.acquire.gpu",
    ),
    Primitive(
        "void add_release(int* address, int value)",
        THREAD,
        "An addition that earlier accesses are ordered before, for all blocks.",
        "red.release.gpu.add",
    ),
)

WARPS = (
    Primitive("template <typename T> T shuffle(T value, int lane)", WARP, "The value of a lane.", "shfl.sync.idx"),
    Primitive(
        "template <typename T> T shuffle_xor(T value, int mask)",
        WARP,
        "The value of the lane whose number differs in these bits.",
        "shfl.sync.bfly",
    ),
    Primitive(
        "template <typename T> T shuffle_up(T value, int lanes)",
        WARP,
        "The value of the lane a number of lanes before this one; its own where there is none.",
        "shfl.sync.up",
    ),
    Primitive("bool all_lanes(bool value)", WARP, "Whether the value of every lane is true.", "vote.sync.all"),
    Primitive("u32 ballot(bool value)", WARP, "A bit for each lane whose value is true.", "vote.sync.ballot"),
    Primitive("int warp_sum(int value)", WARP, "The sum over the lanes.", "redux.sync.add"),
    Primitive("u32 warp_sum(u32 value)", WARP, "The sum over the lanes.", "redux.sync.add"),
)

NUMBERS = (
    Primitive("int ones(u32 bits)", THREAD, "The number of bits that are 1.", "popc.b32"),
    Primitive("int ones(u64 bits)", THREAD, "The number of bits that are 1.", "popc.b64"),
    Primitive("int leading_zeros(u32 bits)", THREAD, "The number of zeros above the highest 1.", "clz.b32"),
    Primitive("int leading_zeros(u64 bits)", THREAD, "The number of zeros above the highest 1.", "clz.b64"),
    Primitive("u32 pack_bf16(float low, float high)", THREAD, "Two numbers rounded to bfloat16.", "cvt.rn.bf16x2.f32"),
    Primitive("u32 pack_f16(float low, float high)", THREAD, "Two numbers rounded to float16.", "cvt.rn.f16x2.f32"),
    Primitive("u16 bits_bf16(float x)", THREAD, "The bits of a number rounded to bfloat16.", "cvt.rn.bf16.f32"),
    Primitive("u16 bits_f16(float x)", THREAD, "The bits of a number rounded to float16.", "cvt.rn.f16.f32"),
    Primitive("float float_bf16(u16 bits)", THREAD, "The bfloat16 of these bits.", "mov.b32"),
    Primitive("float float_f16(u16 bits)", THREAD, "The float16 of these bits.", "cvt.f32.f16"),
    Primitive(
        "float odd_float(double x)",
        THREAD,
        "A float64 cut to float32, with an odd last bit if it is not exact: a narrower rounding of it is right.",
        "cvt.rz.f32.f64",
    ),
    Primitive("u32 bits_of(float x)", THREAD, "The bits of a float32.", "mov.b32"),
    Primitive("float float_of(u32 bits)", THREAD, "The float32 of these bits.", "mov.b32"),
    Primitive("u64 bits_of(double x)", THREAD, "The bits of a float64.", "mov.b64"),
    Primitive("double double_of(u64 bits)", THREAD, "The float64 of these bits.", "mov.b64"),
    Primitive(
        "u8 bits_e4m3(float x)",
        THREAD,
        "The bits of a number rounded to float8_e4m3fn; NaN beyond its range.",
        "cvt.rn.satfinite.e4m3x2.f32",
    ),
    Primitive(
        "u8 bits_e5m2(float x)",
        THREAD,
        "The bits of a number rounded to float8_e5m2; infinity beyond its range.",
        "cvt.rn.satfinite.e5m2x2.f32",
    ),
    Primitive("float float_e4m3(u8 bits)", THREAD, "The float8_e4m3fn of these bits.", "cvt.rn.f16x2.e4m3x2"),
    Primitive("float float_e5m2(u8 bits)", THREAD, "The float8_e5m2 of these bits.", "cvt.rn.f16x2.e5m2x2"),
    *(
        Primitive(f"{type} {name}({type} a, {type} b)", THREAD, f"The {what}; NaN if either is.", source)
        for type, suffix in (("float", ".NaN.f32"), ("double", ".f64"))
        for name, what, source in (("maximum", "greater", "max" + suffix), ("minimum", "lesser", "min" + suffix))
    ),
    Primitive(
        "template <typename T> T power(T x, T y)",
        THREAD,
        "An integer to the power of one, wrapping around; to a negative power, 1 and -1 give 1 or -1, and others 0.",
        "mul.lo.u64",
    ),
    Primitive(
        "float inverse(float x)",
        THREAD,
        "1 / x of x from 1 to 2^126, within 2 ulp; 0 beyond.",
        "div.approx.f32, by CUDA's __fdividef",
    ),
    Primitive(
        "float approximate_exp2(float x)",
        THREAD,
        "2 to the power x, within 2 ulp; 0 if that is less than 2^-126.",
        "ex2.approx.ftz.f32",
    ),
)

DEBUGGING = (
    Primitive(
        "template <typename... T> void print(const char* format, T... values)",
        THREAD,
        "Prints values on standard output, at the latest when the host waits for the kernel.",
        "CUDA C++ Programming Guide, Formatted output: printf",
    ),
    Primitive(
        "void check_failed(const char* message, const char* file, int line)",
        THREAD,
        "Says on standard error which check failed, and ends the kernel with an error.",
        "CUDA C++ Programming Guide, Assertion: assert",
    ),
)

PRIMITIVES: tuple[Primitive, ...] = (
    *(*WHERE, *SYNCHRONISATION, *BARRIERS, *COPIES),
    *(*TENSOR_CORES, *MEMORY, *WARPS, *NUMBERS, *DEBUGGING),
)

MACROS = {
    "PAL_KERNEL": "Before the kernel: C linkage, callable from the host.",
    "PAL_BOUNDS": "(threads): of a block, one block to a multiprocessor.",
    "PAL_CLUSTER": "(blocks): of a cluster.",
    "PAL_MAP": "The type of a tensor map as a parameter, passed by value.",
    "PAL_UNROLL": "Before a loop over registers: it is unrolled, so that the registers have constant numbers.",
    "PAL_ROLLED": "Before a loop that is not to be unrolled.",
    "PAL_INFINITY": "The float32 infinity.",
    "PAL_NAN": "A float32 that is not a number.",
}
"""The macros of the header."""

MATHEMATICS = (
    *("exp", "exp2", "expm1", "log", "log2", "log1p", "sqrt", "sin", "cos", "tan", "asin", "acos", "atan", "atan2"),
    *("sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "pow", "fmod", "floor", "ceil", "rint", "round", "trunc"),
    *("fabs", "fma", "erf", "erfc", "erfinv", "cbrt", "copysign", "nextafter"),
)
"""C's functions and CUDA's `erfinv` on double, unqualified; those on float have the suffix `f`, as in C."""
