// A stand-in for libcuda.so.1: the calls of the CUDA driver API that a launcher may use, held to their documentation.
//
// It was written from the comments of cuda.h (CUDA Driver API, "Tensor Map Object Management", "Execution Control",
// "Library Management", "Memory Management", "Stream Management") and knows nothing of what calls it. It reads real
// cubins as the driver does: architecture, kernels, sizes of parameters, launch bounds, required clusters. Device
// memory is host memory. Each call is recorded, can be made to fail, and answers a broken rule with the documented
// error and a sentence that `fake_complaint` returns. A kernel runs where `fake_on_launch` says, or not at all.
#include <cuda.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#define API extern "C" __attribute__((visibility("default")))

namespace {

struct Kernel {
  std::string name;
  std::vector<size_t> sizes;  // of the parameters
  unsigned most_threads = 1024, cluster = 0;
  int dynamic_shared = 48 * 1024;
  bool non_portable = false;
  struct Library* library;
};

struct Library {
  std::string code;
  std::map<std::string, Kernel> kernels;
};

struct Range {
  size_t bytes;
  bool freed;
};

struct Map {  // our encoding of a tensor map
  unsigned long long magic, address, dims[5], strides[4];
  unsigned box[5], type, rank;
  unsigned char swizzle, promotion, fill, interleave;
};
static_assert(sizeof(Map) <= sizeof(CUtensorMap), "an encoded map has 128 bytes");
constexpr unsigned long long MAGIC = 0x656b61662070616dull;

constexpr unsigned SHARED_OPT_IN = 232448, SHARED_RESERVED = 1024, PORTABLE_CLUSTER = 8, MOST_CLUSTER = 16;

struct State {
  int devices = 1, major = 9, minor = 0, multiprocessors = 132, version = 13000;
  bool initialised = false, recording = true;
  CUresult sticky = CUDA_SUCCESS;
  std::string fail_name;
  int fail_after = 0;
  CUresult fail_error = CUDA_SUCCESS;
  bool fail_sticky = false;
  std::vector<std::string> calls;
  std::string complaint, joined;
  std::map<CUdeviceptr, Range> memory;
  std::set<Library*> libraries;
  std::set<Kernel*> kernels;
  std::set<CUstream> streams, capturing;
} state;
std::recursive_mutex lock;
thread_local std::vector<CUcontext> contexts;

typedef int (*OnLaunch)(const char* name, const char* code, size_t bytes, unsigned grid, unsigned cluster, unsigned threads,
                        unsigned shared, void** parameters, unsigned count, const size_t* sizes, void* stream);
OnLaunch on_launch = nullptr;
// Launches that wait for one another before the driver reads anything, as launches wait for room in the queue.
struct {
  std::mutex lock;
  std::condition_variable all;
  int expected = 0, present = 0;
} meeting;
constexpr std::chrono::seconds PATIENCE{20};

bool meet() {
  std::unique_lock<std::mutex> guard(meeting.lock);
  ++meeting.present;
  meeting.all.notify_all();
  return meeting.all.wait_for(guard, PATIENCE, [] { return meeting.present >= meeting.expected; });
}

std::vector<std::function<void()>> captured;  // the launches of the graph that was captured last

CUresult refuse(CUresult error, const char* call, const std::string& rule) {
  state.complaint = std::string(call) + ": " + rule;
  return error;
}

// What every call does first: it is recorded, and may have to fail.
CUresult begin(const char* name, const std::string& details, bool needs_context = false) {
  if (state.recording) state.calls.push_back(std::string(name) + (details.empty() ? "" : " " + details));
  if (state.fail_name == name && state.fail_after-- == 0) {
    state.fail_name.clear();
    if (state.fail_sticky) state.sticky = state.fail_error;
    return state.fail_error;
  }
  if (!state.initialised) return refuse(CUDA_ERROR_NOT_INITIALIZED, name, "cuInit has not been called");
  if (state.sticky && needs_context) return state.sticky;
  if (needs_context && (contexts.empty() || !contexts.back()))
    return refuse(CUDA_ERROR_INVALID_CONTEXT, name, "no context is current to this thread");
  return CUDA_SUCCESS;
}

std::string text(const char* format, ...) {
  char room[400];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(room, sizeof room, format, arguments);
  va_end(arguments);
  return room;
}

#define BEGIN(details)                                                                \
  std::lock_guard<std::recursive_mutex> guard(lock);                                  \
  if (CUresult failed = begin(__func__, state.recording ? (details) : std::string())) \
  return failed
#define BEGIN_IN_CONTEXT(details)                                                           \
  std::lock_guard<std::recursive_mutex> guard(lock);                                        \
  if (CUresult failed = begin(__func__, state.recording ? (details) : std::string(), true)) \
  return failed
#define REQUIRE(condition, error, rule) \
  if (!(condition)) return refuse(error, __func__, rule)
#define VALUE(condition, rule) REQUIRE(condition, CUDA_ERROR_INVALID_VALUE, rule)

CUcontext context_of(int device) { return reinterpret_cast<CUcontext>(static_cast<size_t>(0x1000 + device)); }
int device_of(CUcontext context) { return static_cast<int>(reinterpret_cast<size_t>(context)) - 0x1000; }

bool known_stream(CUstream stream) {
  return !stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD || state.streams.count(stream);
}

// The whole of some bytes of device memory, which is one allocation's.
bool inside(CUdeviceptr address, size_t bytes) {
  auto found = state.memory.upper_bound(address);
  if (found == state.memory.begin()) return false;
  --found;
  return !found->second.freed && address - found->first + bytes <= found->second.bytes;
}

template <class T>
T at(const std::string& data, size_t offset) {
  T value;
  memcpy(&value, data.data() + offset, sizeof value);
  return value;
}

// The kernels of a cubin: ELF64 sections `.nv.info.NAME`, whose attributes are (format, kind, size or value, data).
void read_kernels(Library& library) {
  const std::string& code = library.code;
  size_t table = at<unsigned long long>(code, 40);
  unsigned count = at<unsigned short>(code, 60), names = at<unsigned short>(code, 62);
  auto header = [&](unsigned n) { return table + 64 * n; };
  size_t strings = at<unsigned long long>(code, header(names) + 24);
  for (unsigned n = 0; n < count; ++n) {
    std::string name = code.c_str() + strings + at<unsigned>(code, header(n));
    if (name.rfind(".nv.info.", 0) != 0) continue;
    Kernel& kernel = library.kernels[name.substr(9)];
    kernel.name = name.substr(9);
    kernel.library = &library;
    size_t place = at<unsigned long long>(code, header(n) + 24), end = place + at<unsigned long long>(code, header(n) + 32);
    while (place < end) {
      unsigned char format = code[place], kind = code[place + 1];
      unsigned size = at<unsigned short>(code, place + 2);
      size_t data = place + 4;
      place = data + (format == 4 ? size : 0);
      if (format != 4) continue;
      if (kind == 0x17) {  // a parameter
        unsigned ordinal = at<unsigned short>(code, data + 4);
        if (kernel.sizes.size() <= ordinal) kernel.sizes.resize(ordinal + 1);
        kernel.sizes[ordinal] = at<unsigned>(code, data + 8) >> 18;
      } else if (kind == 0x05) {  // the launch bounds
        kernel.most_threads = at<unsigned>(code, data);
      } else if (kind == 0x3d) {  // required blocks of a cluster
        kernel.cluster = at<unsigned>(code, data);
      }
    }
    state.kernels.insert(&kernel);
  }
}

size_t element_bytes(unsigned type) {
  static const unsigned char bytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};
  return type < sizeof bytes ? bytes[type] : 0;
}
bool is_float(unsigned type) { return type >= CU_TENSOR_MAP_DATA_TYPE_FLOAT16 && type <= CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ; }

Kernel* kernel_of(const void* handle) {
  auto found = state.kernels.find(static_cast<Kernel*>(const_cast<void*>(handle)));
  return found == state.kernels.end() ? nullptr : *found;
}

}  // namespace

// Initialisation, devices, contexts.

API CUresult cuInit(unsigned flags) {
  std::lock_guard<std::recursive_mutex> guard(lock);
  bool before = state.initialised;
  state.initialised = true;
  CUresult failed = begin(__func__, "");
  if (failed || !state.devices) {
    state.initialised = before && state.devices;
    return failed ? failed : CUDA_ERROR_NO_DEVICE;
  }
  VALUE(flags == 0, "the flags must be 0");
  return CUDA_SUCCESS;
}

API CUresult cuDriverGetVersion(int* version) {
  VALUE(version, "the pointer is null");
  *version = state.version;
  return CUDA_SUCCESS;
}

API CUresult cuDeviceGetCount(int* count) {
  BEGIN("");
  VALUE(count, "the pointer is null");
  *count = state.devices;
  return CUDA_SUCCESS;
}

API CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  BEGIN(text("%d", ordinal));
  REQUIRE(0 <= ordinal && ordinal < state.devices, CUDA_ERROR_INVALID_DEVICE, "no device has this number");
  *device = ordinal;
  return CUDA_SUCCESS;
}

API CUresult cuDeviceGetName(char* name, int length, CUdevice device) {
  BEGIN(text("%d", device));
  REQUIRE(0 <= device && device < state.devices, CUDA_ERROR_INVALID_DEVICE, "not a device");
  snprintf(name, length, "%s", state.major == 9 ? "Imitated H100" : "Imitated card");
  return CUDA_SUCCESS;
}

API CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  BEGIN(text("%d %d", attribute, device));
  REQUIRE(0 <= device && device < state.devices, CUDA_ERROR_INVALID_DEVICE, "not a device");
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = state.major; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = state.minor; break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = state.multiprocessors; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *value = SHARED_OPT_IN; break;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE: *value = 1980000; break;
    case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE: *value = 2619000; break;
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED: *value = 1; break;
    default: return refuse(CUDA_ERROR_INVALID_VALUE, __func__, "an attribute that no test expects");
  }
  return CUDA_SUCCESS;
}

API CUresult cuDeviceTotalMem(size_t* bytes, CUdevice device) {
  BEGIN(text("%d", device));
  *bytes = size_t{80} << 30;
  return CUDA_SUCCESS;
}

API CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  BEGIN(text("%d", device));
  REQUIRE(0 <= device && device < state.devices, CUDA_ERROR_INVALID_DEVICE, "not a device");
  *context = context_of(device);
  return CUDA_SUCCESS;
}

API CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  BEGIN(text("%d", device));
  return CUDA_SUCCESS;
}

API CUresult cuCtxGetCurrent(CUcontext* context) {
  BEGIN("");
  *context = contexts.empty() ? nullptr : contexts.back();
  return CUDA_SUCCESS;
}

API CUresult cuCtxSetCurrent(CUcontext context) {
  BEGIN(text("%d", context ? device_of(context) : -1));
  if (!contexts.empty()) contexts.pop_back();
  if (context) contexts.push_back(context);
  return CUDA_SUCCESS;
}

API CUresult cuCtxPushCurrent(CUcontext context) {
  BEGIN(text("%d", device_of(context)));
  VALUE(context, "the context is null");
  contexts.push_back(context);
  return CUDA_SUCCESS;
}

API CUresult cuCtxPopCurrent(CUcontext* context) {
  BEGIN("");
  REQUIRE(!contexts.empty(), CUDA_ERROR_INVALID_CONTEXT, "there is no current context");
  if (context) *context = contexts.back();
  contexts.pop_back();
  return CUDA_SUCCESS;
}

API CUresult cuCtxGetDevice(CUdevice* device) {
  BEGIN_IN_CONTEXT("");
  *device = device_of(contexts.back());
  return CUDA_SUCCESS;
}

API CUresult cuCtxSynchronize() {
  BEGIN_IN_CONTEXT("");
  REQUIRE(state.capturing.empty(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "a stream is capturing");
  return CUDA_SUCCESS;
}

// Libraries and kernels.

API CUresult cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option* options, void** values, unsigned count,
                               CUlibraryOption* library_options, void** library_values, unsigned library_count) {
  BEGIN("");
  VALUE(library && code, "the code or the place for the library is null");
  VALUE((count == 0) == (options == nullptr) && (library_count == 0) == (library_options == nullptr),
        "options go with their number");
  const char* bytes = static_cast<const char*>(code);
  REQUIRE(!memcmp(bytes, "\177ELF\2\1", 6), CUDA_ERROR_INVALID_IMAGE, "not a cubin");
  unsigned short machine;
  unsigned flags;
  memcpy(&machine, bytes + 18, 2);
  memcpy(&flags, bytes + 48, 4);
  REQUIRE(machine == 190, CUDA_ERROR_INVALID_IMAGE, "an ELF file of another machine");
  unsigned architecture = flags >> 8 & 0xff;
  REQUIRE(static_cast<int>(architecture) == 10 * state.major + state.minor, CUDA_ERROR_NO_BINARY_FOR_GPU,
          text("machine code for sm_%u", architecture));
  unsigned long long table;
  unsigned short sections;
  memcpy(&table, bytes + 40, 8);
  memcpy(&sections, bytes + 60, 2);
  auto* made = new Library;
  made->code.assign(bytes, table + 64 * sections);  // NVRTC's section headers come last, or program headers after them
  read_kernels(*made);
  state.libraries.insert(made);
  *library = reinterpret_cast<CUlibrary>(made);
  return CUDA_SUCCESS;
}

API CUresult cuLibraryUnload(CUlibrary library) {
  BEGIN("");
  auto* found = reinterpret_cast<Library*>(library);
  REQUIRE(state.libraries.count(found), CUDA_ERROR_INVALID_HANDLE, "not a library");
  for (auto& each : found->kernels) state.kernels.erase(&each.second);
  state.libraries.erase(found);
  delete found;
  return CUDA_SUCCESS;
}

API CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary library, const char* name) {
  BEGIN(name);
  auto* found = reinterpret_cast<Library*>(library);
  REQUIRE(state.libraries.count(found), CUDA_ERROR_INVALID_HANDLE, "not a library");
  auto entry = found->kernels.find(name);
  REQUIRE(entry != found->kernels.end(), CUDA_ERROR_NOT_FOUND, "the library has no kernel of this name");
  *kernel = reinterpret_cast<CUkernel>(&entry->second);
  return CUDA_SUCCESS;
}

API CUresult cuKernelGetParamInfo(CUkernel kernel, size_t index, size_t* offset, size_t* size) {
  BEGIN("");
  Kernel* found = kernel_of(kernel);
  REQUIRE(found, CUDA_ERROR_INVALID_HANDLE, "not a kernel");
  VALUE(index < found->sizes.size(), "the kernel has fewer parameters");
  *offset = 0;
  if (size) *size = found->sizes[index];
  return CUDA_SUCCESS;
}

API CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel, CUdevice device) {
  BEGIN(text("%d=%d", attribute, value));
  Kernel* found = kernel_of(kernel);
  REQUIRE(found, CUDA_ERROR_INVALID_HANDLE, "not a kernel");
  REQUIRE(0 <= device && device < state.devices, CUDA_ERROR_INVALID_DEVICE, "not a device");
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      VALUE(0 <= value && value <= static_cast<int>(SHARED_OPT_IN), "more shared memory than a block may have");
      found->dynamic_shared = value;
      break;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
      found->non_portable = value;
      break;
    default: return refuse(CUDA_ERROR_INVALID_VALUE, __func__, "an attribute that cannot be set");
  }
  return CUDA_SUCCESS;
}

API CUresult cuKernelGetAttribute(int* value, CUfunction_attribute attribute, CUkernel kernel, CUdevice device) {
  BEGIN(text("%d", attribute));
  Kernel* found = kernel_of(kernel);
  REQUIRE(found, CUDA_ERROR_INVALID_HANDLE, "not a kernel");
  REQUIRE(0 <= device && device < state.devices, CUDA_ERROR_INVALID_DEVICE, "not a device");
  VALUE(attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, "an attribute that no test expects");
  *value = static_cast<int>(found->most_threads);
  return CUDA_SUCCESS;
}

// Tensor maps.

API CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
                                    const cuuint64_t* dims, const cuuint64_t* strides, const cuuint32_t* box,
                                    const cuuint32_t* element_strides, CUtensorMapInterleave interleave,
                                    CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                    CUtensorMapFloatOOBfill fill) {
  BEGIN_IN_CONTEXT(text("type=%d rank=%u dims[0]=%llu box[0]=%u swizzle=%d", type, rank, dims ? dims[0] : 0, box ? box[0] : 0, swizzle));
  VALUE(map && reinterpret_cast<size_t>(map) % 64 == 0, "the map is not aligned to 64 bytes");
  VALUE(element_bytes(type), "not a data type");
  VALUE(1 <= rank && rank <= 5, "the rank is not between 1 and 5");
  VALUE(interleave == CU_TENSOR_MAP_INTERLEAVE_NONE, "interleaved layouts are not expected here");
  VALUE(address && reinterpret_cast<size_t>(address) % 16 == 0, "the address is not aligned to 16 bytes");
  VALUE(dims && box && element_strides && (rank == 1 || strides), "an array is null");
  Map made = {MAGIC, reinterpret_cast<size_t>(address)};
  for (unsigned n = 0; n < rank; ++n) {
    VALUE(dims[n] && dims[n] <= 1ull << 32, text("dimension %u is not between 1 and 2^32", n));
    VALUE(box[n] && box[n] <= 256, text("box size %u is not between 1 and 256", n));
    VALUE(element_strides[n] && element_strides[n] <= 8, text("element stride %u is not between 1 and 8", n));
    VALUE(n == 0 || element_strides[n] == 1, "element strides are not expected here");
    made.dims[n] = dims[n], made.box[n] = box[n];
    if (n + 1 == rank) continue;
    VALUE(strides[n] % 16 == 0 && strides[n] < 1ull << 40, text("stride %u is not a multiple of 16 below 2^40", n));
    made.strides[n] = strides[n];
  }
  size_t inner = box[0] * element_bytes(type);
  VALUE(inner % 16 == 0, "the box's inner dimension is not a multiple of 16 bytes");
  VALUE(swizzle <= CU_TENSOR_MAP_SWIZZLE_128B, "not a swizzle that is expected here");
  VALUE(!swizzle || inner <= 16u << swizzle, "the box's inner dimension is wider than the swizzle");
  VALUE(promotion <= CU_TENSOR_MAP_L2_PROMOTION_L2_256B, "not an L2 promotion");
  VALUE(fill <= CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA, "not a fill");
  VALUE(fill == CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE || is_float(type), "NaN fills floating-point elements only");
  made.type = type, made.rank = rank, made.swizzle = swizzle, made.promotion = promotion, made.fill = fill;
  memset(map, 0, sizeof *map);
  memcpy(map, &made, sizeof made);
  return CUDA_SUCCESS;
}

API CUresult cuTensorMapReplaceAddress(CUtensorMap* map, void* address) {
  BEGIN_IN_CONTEXT("");
  VALUE(map && reinterpret_cast<size_t>(map) % 64 == 0, "the map is not aligned to 64 bytes");
  Map found;
  memcpy(&found, map, sizeof found);
  VALUE(found.magic == MAGIC, "not an encoded tensor map");
  VALUE(address && reinterpret_cast<size_t>(address) % 16 == 0, "the address is not aligned to 16 bytes");
  found.address = reinterpret_cast<size_t>(address);
  memcpy(map, &found, sizeof found);
  return CUDA_SUCCESS;
}

// Memory and streams.

static CUresult allocate(const char* call, CUdeviceptr* address, size_t bytes) {
  if (!address || !bytes) return refuse(CUDA_ERROR_INVALID_VALUE, call, "no bytes, or no place for the address");
  void* made = aligned_alloc(256, (bytes + 255) / 256 * 256);
  memset(made, 0xff, (bytes + 255) / 256 * 256);
  *address = reinterpret_cast<CUdeviceptr>(made);
  state.memory[*address] = {bytes, false};
  return CUDA_SUCCESS;
}

static CUresult release(const char* call, CUdeviceptr address) {
  auto found = state.memory.find(address);
  if (found == state.memory.end() || found->second.freed)
    return refuse(CUDA_ERROR_INVALID_VALUE, call, "not the address of an allocation");
  free(reinterpret_cast<void*>(address));
  state.memory.erase(found);
  return CUDA_SUCCESS;
}

#define STREAM(stream) REQUIRE(known_stream(stream), CUDA_ERROR_INVALID_HANDLE, "not a stream")

API CUresult cuMemAlloc(CUdeviceptr* address, size_t bytes) {
  BEGIN_IN_CONTEXT(text("%zu", bytes));
  REQUIRE(state.capturing.empty(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "a stream is capturing");
  return allocate(__func__, address, bytes);
}

API CUresult cuMemFree(CUdeviceptr address) {
  BEGIN_IN_CONTEXT("");
  return release(__func__, address);
}

API CUresult cuMemAllocAsync(CUdeviceptr* address, size_t bytes, CUstream stream) {
  BEGIN_IN_CONTEXT(text("%zu", bytes));
  STREAM(stream);
  return allocate(__func__, address, bytes);
}

API CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
  BEGIN_IN_CONTEXT("");
  STREAM(stream);
  return release(__func__, address);
}

API CUresult cuMemcpyHtoDAsync(CUdeviceptr target, const void* source, size_t bytes, CUstream stream) {
  BEGIN_IN_CONTEXT(text("%zu", bytes));
  STREAM(stream);
  VALUE(inside(target, bytes), "the target is not device memory");
  memcpy(reinterpret_cast<void*>(target), source, bytes);
  return CUDA_SUCCESS;
}

API CUresult cuMemcpyDtoHAsync(void* target, CUdeviceptr source, size_t bytes, CUstream stream) {
  BEGIN_IN_CONTEXT(text("%zu", bytes));
  STREAM(stream);
  VALUE(inside(source, bytes), "the source is not device memory");
  memcpy(target, reinterpret_cast<void*>(source), bytes);
  return CUDA_SUCCESS;
}

API CUresult cuMemcpyDtoDAsync(CUdeviceptr target, CUdeviceptr source, size_t bytes, CUstream stream) {
  BEGIN_IN_CONTEXT(text("%zu", bytes));
  STREAM(stream);
  VALUE(inside(source, bytes) && inside(target, bytes), "source or target is not device memory");
  memmove(reinterpret_cast<void*>(target), reinterpret_cast<void*>(source), bytes);
  return CUDA_SUCCESS;
}

API CUresult cuMemsetD8Async(CUdeviceptr target, unsigned char value, size_t bytes, CUstream stream) {
  BEGIN_IN_CONTEXT(text("%zu", bytes));
  STREAM(stream);
  VALUE(bytes && inside(target, bytes), "the target is not device memory");
  memset(reinterpret_cast<void*>(target), value, bytes);
  return CUDA_SUCCESS;
}

API CUresult cuStreamCreate(CUstream* stream, unsigned flags) {
  BEGIN_IN_CONTEXT("");
  VALUE(flags <= CU_STREAM_NON_BLOCKING, "not the flags of a stream");
  *stream = static_cast<CUstream>(malloc(1));
  state.streams.insert(*stream);
  return CUDA_SUCCESS;
}

API CUresult cuStreamDestroy(CUstream stream) {
  BEGIN_IN_CONTEXT("");
  REQUIRE(state.streams.erase(stream), CUDA_ERROR_INVALID_HANDLE, "not a stream");
  free(stream);
  return CUDA_SUCCESS;
}

API CUresult cuStreamSynchronize(CUstream stream) {
  BEGIN_IN_CONTEXT("");
  STREAM(stream);
  REQUIRE(!state.capturing.count(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "the stream is capturing");
  return CUDA_SUCCESS;
}

API CUresult cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode mode) {
  BEGIN_IN_CONTEXT("");
  REQUIRE(stream && known_stream(stream) && stream != CU_STREAM_LEGACY, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
          "the legacy stream cannot be captured");
  state.capturing.insert(stream);
  captured.clear();
  return CUDA_SUCCESS;
}

API CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  BEGIN_IN_CONTEXT("");
  REQUIRE(state.capturing.erase(stream), CUDA_ERROR_ILLEGAL_STATE, "the stream is not capturing");
  *graph = reinterpret_cast<CUgraph>(stream);
  return CUDA_SUCCESS;
}

// Execution.

API CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** parameters, void** extra) {
  bool met = meet();
  std::lock_guard<std::recursive_mutex> guard(lock);
  REQUIRE(met, CUDA_ERROR_ILLEGAL_STATE, "other launches were expected meanwhile, and none came");
  Kernel* kernel = kernel_of(function);
  unsigned cluster = 1;
  std::string attributes;
  for (unsigned n = 0; config && n < config->numAttrs; ++n) {
    if (config->attrs[n].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) cluster = config->attrs[n].value.clusterDim.x;
    if (state.recording) attributes += text(" attribute%d", config->attrs[n].id);
  }
  std::string details;
  if (state.recording && config)
    details = text("%s grid=%u,%u,%u block=%u,%u,%u cluster=%u shared=%u stream=%p%s", kernel ? kernel->name.c_str() : "?",
                   config->gridDimX, config->gridDimY, config->gridDimZ, config->blockDimX, config->blockDimY,
                   config->blockDimZ, cluster, config->sharedMemBytes, static_cast<void*>(config->hStream), attributes.c_str());
  // "The context to launch on is taken from the stream, or the current context in case of a NULL stream."
  if (CUresult failed = begin(__func__, details, !config || !config->hStream)) return failed;
  if (state.sticky) return state.sticky;
  VALUE(config, "the configuration is null");
  REQUIRE(kernel, CUDA_ERROR_INVALID_HANDLE, "not a kernel");
  STREAM(config->hStream);
  VALUE(config->gridDimX && config->gridDimX <= 0x7fffffffu, "a grid has 1 to 2^31 - 1 blocks along x");
  VALUE(config->gridDimY && config->gridDimY <= 65535 && config->gridDimZ && config->gridDimZ <= 65535,
        "a grid has 1 to 65535 blocks along y and z");
  unsigned long long threads = 1ull * config->blockDimX * config->blockDimY * config->blockDimZ;
  VALUE(threads && threads <= 1024 && config->blockDimZ <= 64, "a block has 1 to 1024 threads");
  REQUIRE(threads <= kernel->most_threads, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "more threads than the launch bounds");
  VALUE(config->sharedMemBytes <= static_cast<unsigned>(kernel->dynamic_shared),
        "more dynamic shared memory than CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES");
  VALUE(!config->numAttrs || config->attrs, "the attributes are null");
  for (unsigned n = 0; n < config->numAttrs; ++n) {
    const CUlaunchAttribute& each = config->attrs[n];
    if (each.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION) continue;
    VALUE(each.id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, "an attribute that is not expected here");
    VALUE(each.value.clusterDim.x && each.value.clusterDim.y == 1 && each.value.clusterDim.z == 1,
          "clusters are along x here, of at least one block");
  }
  VALUE(!kernel->cluster || cluster == 1 || cluster == kernel->cluster, "not the cluster that the kernel requires");
  if (kernel->cluster) cluster = kernel->cluster;
  VALUE(config->gridDimX % cluster == 0, "the grid is not a multiple of the cluster");
  REQUIRE(cluster <= MOST_CLUSTER && (cluster <= PORTABLE_CLUSTER || kernel->non_portable), CUDA_ERROR_INVALID_CLUSTER_SIZE,
          "a cluster of more than 8 blocks is not portable");
  VALUE(!(parameters && extra), "parameters are given twice");
  VALUE(parameters || kernel->sizes.empty(), "the parameters are null");
  std::vector<std::vector<unsigned char>> copies;  // the driver reads them before it returns
  for (size_t n = 0; n < kernel->sizes.size(); ++n) {
    VALUE(parameters[n], text("parameter %zu is null", n));
    auto* bytes = static_cast<unsigned char*>(parameters[n]);
    copies.emplace_back(bytes, bytes + kernel->sizes[n]);
  }
  auto launch = [kernel, cluster, copies, config = *config]() mutable {
    std::vector<void*> pointers;
    for (auto& each : copies) pointers.push_back(each.data());
    int failed = on_launch(kernel->name.c_str(), kernel->library->code.data(), kernel->library->code.size(),
                           config.gridDimX, cluster, config.blockDimX, config.sharedMemBytes, pointers.data(),
                           static_cast<unsigned>(pointers.size()), kernel->sizes.data(), config.hStream);
    if (failed) state.sticky = static_cast<CUresult>(failed);  // asynchronous: the next call that can learn of it does
  };
  if (!on_launch) return CUDA_SUCCESS;
  if (state.capturing.count(config->hStream))
    captured.push_back(launch);
  else
    launch();
  return CUDA_SUCCESS;
}

// Events, and graphs, whose one node is the last launch that was captured.

API CUresult cuEventCreate(CUevent* event, unsigned flags) {
  BEGIN_IN_CONTEXT("");
  VALUE(flags <= 7, "not the flags of an event");
  *event = reinterpret_cast<CUevent>(new double(-1));
  return CUDA_SUCCESS;
}

API CUresult cuEventDestroy(CUevent event) {
  BEGIN_IN_CONTEXT("");
  delete reinterpret_cast<double*>(event);
  return CUDA_SUCCESS;
}

API CUresult cuEventRecord(CUevent event, CUstream stream) {
  BEGIN_IN_CONTEXT("");
  STREAM(stream);
  static double now = 0;
  *reinterpret_cast<double*>(event) = now += 0.25;
  return CUDA_SUCCESS;
}

API CUresult cuEventSynchronize(CUevent event) {
  BEGIN_IN_CONTEXT("");
  return CUDA_SUCCESS;
}

API CUresult cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
  BEGIN_IN_CONTEXT("");
  double from = *reinterpret_cast<double*>(start), to = *reinterpret_cast<double*>(end);
  REQUIRE(from >= 0 && to >= 0, CUDA_ERROR_INVALID_HANDLE, "an event that was not recorded");
  *milliseconds = static_cast<float>(to - from);
  return CUDA_SUCCESS;
}

API CUresult cuGraphInstantiateWithFlags(CUgraphExec* made, CUgraph graph, unsigned long long flags) {
  BEGIN_IN_CONTEXT("");
  VALUE(graph && !flags, "not a graph");
  *made = reinterpret_cast<CUgraphExec>(graph);
  return CUDA_SUCCESS;
}

API CUresult cuGraphLaunch(CUgraphExec graph, CUstream stream) {
  BEGIN_IN_CONTEXT("");
  STREAM(stream);
  REQUIRE(!captured.empty(), CUDA_ERROR_INVALID_HANDLE, "nothing was captured");
  for (auto& launch : captured) launch();
  return CUDA_SUCCESS;
}

API CUresult cuGraphExecDestroy(CUgraphExec graph) {
  BEGIN_IN_CONTEXT("");
  return CUDA_SUCCESS;
}

API CUresult cuGraphDestroy(CUgraph graph) {
  BEGIN_IN_CONTEXT("");
  return CUDA_SUCCESS;
}

// Errors, and the look-up of functions.

#define ERRORS(E)                                                                                                    \
  E(CUDA_SUCCESS, "no error") E(CUDA_ERROR_INVALID_VALUE, "invalid argument") E(CUDA_ERROR_OUT_OF_MEMORY, "out of memory") \
  E(CUDA_ERROR_NOT_INITIALIZED, "initialization error") E(CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected")      \
  E(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal") E(CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid")     \
  E(CUDA_ERROR_INVALID_CONTEXT, "invalid device context") E(CUDA_ERROR_NO_BINARY_FOR_GPU, "no kernel image is available for execution on the device") \
  E(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle") E(CUDA_ERROR_NOT_FOUND, "named symbol not found")                \
  E(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered")                                              \
  E(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "too many resources requested for launch")                                       \
  E(CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure") E(CUDA_ERROR_ILLEGAL_INSTRUCTION, "an illegal instruction was encountered") \
  E(CUDA_ERROR_MISALIGNED_ADDRESS, "misaligned address") E(CUDA_ERROR_ILLEGAL_STATE, "the operation cannot be performed in the present state") \
  E(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, "system has unsupported display driver / cuda driver combination")                \
  E(CUDA_ERROR_INVALID_CLUSTER_SIZE, "cluster misconfiguration")                                                         \
  E(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "operation not permitted when stream is capturing")

API CUresult cuGetErrorName(CUresult error, const char** name) {
  switch (error) {
#define E(code, words) case code: *name = #code; return CUDA_SUCCESS;
    ERRORS(E)
#undef E
    default: *name = nullptr; return CUDA_ERROR_INVALID_VALUE;
  }
}

API CUresult cuGetErrorString(CUresult error, const char** string) {
  switch (error) {
#define E(code, words) case code: *string = words; return CUDA_SUCCESS;
    ERRORS(E)
#undef E
    default: *string = nullptr; return CUDA_ERROR_INVALID_VALUE;
  }
}

API CUresult cuGetProcAddress(const char* symbol, void** function, int version, cuuint64_t flags,
                              CUdriverProcAddressQueryResult* status) {
  static const std::map<std::string, void*> functions = {
      {"cuInit", reinterpret_cast<void*>(cuInit)},
      {"cuDriverGetVersion", reinterpret_cast<void*>(cuDriverGetVersion)},
      {"cuDeviceGetCount", reinterpret_cast<void*>(cuDeviceGetCount)},
      {"cuDeviceGet", reinterpret_cast<void*>(cuDeviceGet)},
      {"cuDeviceGetName", reinterpret_cast<void*>(cuDeviceGetName)},
      {"cuDeviceGetAttribute", reinterpret_cast<void*>(cuDeviceGetAttribute)},
      {"cuDeviceTotalMem", reinterpret_cast<void*>(cuDeviceTotalMem)},
      {"cuDevicePrimaryCtxRetain", reinterpret_cast<void*>(cuDevicePrimaryCtxRetain)},
      {"cuDevicePrimaryCtxRelease", reinterpret_cast<void*>(cuDevicePrimaryCtxRelease)},
      {"cuCtxGetCurrent", reinterpret_cast<void*>(cuCtxGetCurrent)},
      {"cuCtxSetCurrent", reinterpret_cast<void*>(cuCtxSetCurrent)},
      {"cuCtxPushCurrent", reinterpret_cast<void*>(cuCtxPushCurrent)},
      {"cuCtxPopCurrent", reinterpret_cast<void*>(cuCtxPopCurrent)},
      {"cuCtxGetDevice", reinterpret_cast<void*>(cuCtxGetDevice)},
      {"cuCtxSynchronize", reinterpret_cast<void*>(cuCtxSynchronize)},
      {"cuLibraryLoadData", reinterpret_cast<void*>(cuLibraryLoadData)},
      {"cuLibraryUnload", reinterpret_cast<void*>(cuLibraryUnload)},
      {"cuLibraryGetKernel", reinterpret_cast<void*>(cuLibraryGetKernel)},
      {"cuKernelGetParamInfo", reinterpret_cast<void*>(cuKernelGetParamInfo)},
      {"cuKernelSetAttribute", reinterpret_cast<void*>(cuKernelSetAttribute)},
      {"cuKernelGetAttribute", reinterpret_cast<void*>(cuKernelGetAttribute)},
      {"cuTensorMapEncodeTiled", reinterpret_cast<void*>(cuTensorMapEncodeTiled)},
      {"cuTensorMapReplaceAddress", reinterpret_cast<void*>(cuTensorMapReplaceAddress)},
      {"cuMemAlloc", reinterpret_cast<void*>(cuMemAlloc)},
      {"cuMemFree", reinterpret_cast<void*>(cuMemFree)},
      {"cuMemAllocAsync", reinterpret_cast<void*>(cuMemAllocAsync)},
      {"cuMemFreeAsync", reinterpret_cast<void*>(cuMemFreeAsync)},
      {"cuMemcpyHtoDAsync", reinterpret_cast<void*>(cuMemcpyHtoDAsync)},
      {"cuMemcpyDtoHAsync", reinterpret_cast<void*>(cuMemcpyDtoHAsync)},
      {"cuMemcpyDtoDAsync", reinterpret_cast<void*>(cuMemcpyDtoDAsync)},
      {"cuMemsetD8Async", reinterpret_cast<void*>(cuMemsetD8Async)},
      {"cuStreamCreate", reinterpret_cast<void*>(cuStreamCreate)},
      {"cuStreamDestroy", reinterpret_cast<void*>(cuStreamDestroy)},
      {"cuStreamSynchronize", reinterpret_cast<void*>(cuStreamSynchronize)},
      {"cuStreamBeginCapture", reinterpret_cast<void*>(cuStreamBeginCapture)},
      {"cuStreamEndCapture", reinterpret_cast<void*>(cuStreamEndCapture)},
      {"cuEventCreate", reinterpret_cast<void*>(cuEventCreate)},
      {"cuEventDestroy", reinterpret_cast<void*>(cuEventDestroy)},
      {"cuEventRecord", reinterpret_cast<void*>(cuEventRecord)},
      {"cuEventSynchronize", reinterpret_cast<void*>(cuEventSynchronize)},
      {"cuEventElapsedTime", reinterpret_cast<void*>(cuEventElapsedTime)},
      {"cuGraphInstantiateWithFlags", reinterpret_cast<void*>(cuGraphInstantiateWithFlags)},
      {"cuGraphLaunch", reinterpret_cast<void*>(cuGraphLaunch)},
      {"cuGraphExecDestroy", reinterpret_cast<void*>(cuGraphExecDestroy)},
      {"cuGraphDestroy", reinterpret_cast<void*>(cuGraphDestroy)},
      {"cuLaunchKernelEx", reinterpret_cast<void*>(cuLaunchKernelEx)},
      {"cuGetErrorName", reinterpret_cast<void*>(cuGetErrorName)},
      {"cuGetErrorString", reinterpret_cast<void*>(cuGetErrorString)},
      {"cuGetProcAddress", reinterpret_cast<void*>(cuGetProcAddress)},
  };
  auto found = functions.find(symbol);
  *function = found == functions.end() ? nullptr : found->second;
  if (status) *status = *function ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

// NVRTC looks for tables of functions that are not documented, and does without them.
API CUresult cuGetExportTable(const void** table, const CUuuid* name) {
  *table = nullptr;
  return CUDA_ERROR_NOT_FOUND;
}

// Counters and switches for tests.

// The next launches return once there are this many of them.
API void fake_meet(int expected) {
  std::lock_guard<std::mutex> guard(meeting.lock);
  meeting.expected = expected, meeting.present = 0;
}
API void fake_reset(int devices, int major, int minor, int multiprocessors) {
  std::lock_guard<std::recursive_mutex> guard(lock);
  state.devices = devices, state.major = major, state.minor = minor, state.multiprocessors = multiprocessors;
  state.initialised = false, state.recording = true, state.sticky = CUDA_SUCCESS;
  state.fail_name.clear(), state.calls.clear(), state.complaint.clear(), state.capturing.clear();
  contexts.clear();
  on_launch = nullptr;
  fake_meet(0);
}
API void fake_fail(const char* call, int after, int error, int sticky) {
  state.fail_name = call, state.fail_after = after, state.fail_error = static_cast<CUresult>(error), state.fail_sticky = sticky;
}
API void fake_record(int recording) { state.recording = recording; }
API void fake_on_launch(OnLaunch function) { on_launch = function; }
API const char* fake_complaint() { return state.complaint.c_str(); }
API const char* fake_calls() {
  state.joined.clear();
  for (auto& each : state.calls) state.joined += each + "\n";
  state.calls.clear();
  return state.joined.c_str();
}
// The allocation that an address lies in: its first byte, and its size; 0 where there is none.
API size_t fake_allocation(CUdeviceptr address, CUdeviceptr* first) {
  for (auto& each : state.memory)
    if (each.first <= address && address < each.first + each.second.bytes) return *first = each.first, each.second.bytes;
  return 0;
}
// The device memory of tests' own: `adopt` says that host memory is device memory, `abandon` that it is not any more.
API void fake_adopt(CUdeviceptr address, size_t bytes) { state.memory[address] = {bytes, false}; }
API void fake_abandon(CUdeviceptr address) { state.memory.erase(address); }
