#include "device_copy.h"

#include <c10/util/Exception.h>
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace thalweg::python {
namespace {

// Copies `bytes` from `source` to `target`, whose addresses are the same modulo 16. Every block
// then writes `turn` to its own of `words`. In CUDA C++:
//
//   head = min(-target mod 16, bytes); body = (bytes - head) / 16; rest = (bytes - head) mod 16
//   t = this thread's number in the grid
//   if (t < head) target[t] = source[t];
//   for (i = t; i < body; i += threads of the grid) copy word i of 16 bytes behind the head
//   if (t < rest) copy byte t behind the words
//   __syncthreads();
//   if (threadIdx.x == 0) { __threadfence_system(); words[blockIdx.x] = turn; }
constexpr const char* kKernelName = "thalweg_copy";
constexpr const char* kKernel = R"ptx(
.version 6.0
.target sm_60
.address_size 64

.visible .entry thalweg_copy(
  .param .u64 target, .param .u64 source, .param .u64 bytes, .param .u64 words, .param .u32 turn)
{
  .reg .pred %p<6>;
  .reg .b16 %h<3>;
  .reg .b32 %r<14>;
  .reg .b64 %d<32>;

  ld.param.u64 %d1, [target];
  ld.param.u64 %d2, [source];
  ld.param.u64 %d3, [bytes];
  ld.param.u64 %d4, [words];
  ld.param.u32 %r1, [turn];
  cvta.to.global.u64 %d5, %d1;
  cvta.to.global.u64 %d6, %d2;
  cvta.to.global.u64 %d7, %d4;

  neg.s64 %d8, %d1;
  and.b64 %d8, %d8, 15;
  min.u64 %d8, %d8, %d3;            // head
  sub.s64 %d9, %d3, %d8;
  shr.u64 %d10, %d9, 4;             // body
  and.b64 %d11, %d9, 15;            // rest

  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mov.u32 %r4, %tid.x;
  mov.u32 %r5, %nctaid.x;
  mul.wide.u32 %d12, %r2, %r3;
  cvt.u64.u32 %d13, %r4;
  add.s64 %d12, %d12, %d13;         // t
  mul.wide.u32 %d14, %r5, %r3;      // threads of the grid

  setp.ge.u64 %p1, %d12, %d8;
  @%p1 bra BODY;
  add.s64 %d15, %d6, %d12;
  ld.global.u8 %h1, [%d15];
  add.s64 %d16, %d5, %d12;
  st.global.u8 [%d16], %h1;

BODY:
  add.s64 %d17, %d5, %d8;           // target behind the head
  add.s64 %d18, %d6, %d8;           // source behind the head
  mov.u64 %d19, %d12;
NEXT:
  setp.ge.u64 %p2, %d19, %d10;
  @%p2 bra REST;
  shl.b64 %d20, %d19, 4;
  add.s64 %d21, %d18, %d20;
  ld.global.v4.u32 {%r6, %r7, %r8, %r9}, [%d21];
  add.s64 %d22, %d17, %d20;
  st.global.v4.u32 [%d22], {%r6, %r7, %r8, %r9};
  add.s64 %d19, %d19, %d14;
  bra NEXT;

REST:
  setp.ge.u64 %p3, %d12, %d11;
  @%p3 bra DONE;
  shl.b64 %d23, %d10, 4;
  add.s64 %d23, %d23, %d12;
  add.s64 %d24, %d18, %d23;
  ld.global.u8 %h2, [%d24];
  add.s64 %d25, %d17, %d23;
  st.global.u8 [%d25], %h2;

DONE:
  bar.sync 0;
  setp.ne.s32 %p4, %r4, 0;
  @%p4 bra END;
  membar.sys;
  mul.wide.u32 %d26, %r2, 4;
  add.s64 %d27, %d7, %d26;
  st.volatile.global.u32 [%d27], %r1;
END:
  ret;
}
)ptx";

constexpr unsigned kMostThreads = 1024;  // of a block
constexpr unsigned kWarp = 32;
constexpr unsigned kPortableAndMapped = 1U | 2U;  // CU_MEMHOSTALLOC_PORTABLE and _DEVICEMAP
constexpr std::size_t kMostDevices = 64;
constexpr int kFirstCaptureError = 900;  // CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
constexpr int kLastCaptureError = 908;   // CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD

bool switched_off() {
  const char* value = std::getenv("THALWEG_CUDA_KERNELS");  // NOLINT(concurrency-mt-unsafe)
  const std::string_view text = value == nullptr ? "1" : value;
  TORCH_CHECK_VALUE(text == "0" || text == "1", "THALWEG_CUDA_KERNELS: '", text,
                    "'; 0 and 1 are allowed");
  return text == "0";
}

template <class Function>
bool find_function(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

}  // namespace

// The C functions of CUDA's driver, and one of PyTorch, as their headers declare them.
struct DeviceCopies::Driver {
  int (*load_module)(void** module, const void* image) = nullptr;
  int (*get_function)(void** function, void* module, const char* name) = nullptr;
  int (*launch_kernel)(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                       unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                       void* stream, void** parameters, void** extra) = nullptr;
  int (*copy_to_host)(void* host, unsigned long long device, std::size_t bytes,
                      void* stream) = nullptr;
  int (*copy_to_device)(unsigned long long device, const void* host, std::size_t bytes,
                        void* stream) = nullptr;
  int (*allocate)(void** memory, std::size_t bytes, unsigned flags) = nullptr;
  int (*capturing)(void* stream, int* status) = nullptr;
  int (*current_context)(void** context) = nullptr;
  int (*describe)(int code, const char** text) = nullptr;
  std::int32_t (*current_stream)(std::int32_t device, void** stream) = nullptr;

  bool find() {
    // Only what the process has loaded already: without PyTorch's CUDA there are no such tensors.
    void* torch = dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
    void* cuda = dlopen("libcuda.so.1", RTLD_LAZY);
    return torch != nullptr && cuda != nullptr &&
           find_function(torch, "aoti_torch_get_current_cuda_stream", current_stream) &&
           find_function(cuda, "cuModuleLoadData", load_module) &&
           find_function(cuda, "cuModuleGetFunction", get_function) &&
           find_function(cuda, "cuLaunchKernel", launch_kernel) &&
           find_function(cuda, "cuMemcpyDtoHAsync_v2", copy_to_host) &&
           find_function(cuda, "cuMemcpyHtoDAsync_v2", copy_to_device) &&
           find_function(cuda, "cuMemHostAlloc", allocate) &&
           find_function(cuda, "cuStreamIsCapturing", capturing) &&
           find_function(cuda, "cuCtxGetCurrent", current_context) &&
           find_function(cuda, "cuGetErrorString", describe);
  }
};

std::byte* CopySlot::memory_for(const void* device) const {
  return base_ + kHeader + reinterpret_cast<std::uintptr_t>(device) % kWord;
}

bool CopySlot::all_say(std::size_t words, unsigned blocks, std::uint32_t turn) const {
  auto* word = reinterpret_cast<std::uint32_t*>(base_ + words);
  for (unsigned b = 0; b < blocks; ++b) {
    if (std::atomic_ref(word[b]).load(std::memory_order_acquire) != turn) return false;
  }
  return true;
}

DeviceCopies* DeviceCopies::get() {
  static DeviceCopies* const only = make();
  return only;
}

DeviceCopies* DeviceCopies::make() {
  static Driver driver;
  if (switched_off() || !driver.find()) return nullptr;
  return new DeviceCopies(driver);  // NOLINT(cppcoreguidelines-owning-memory): it never ends
}

std::optional<void*> DeviceCopies::current_stream(c10::Device device) const {
  void* stream = nullptr;
  if (driver_.current_stream(device.index(), &stream) != 0) return std::nullopt;
  return stream;
}

bool DeviceCopies::captures(void* stream) const {
  int status = 0;
  // These errors say that the stream must not be used while another one is captured. Others, as in
  // a thread that has used no device yet, say nothing about captures.
  const int code = driver_.capturing(stream, &status);
  return status != 0 || (code >= kFirstCaptureError && code <= kLastCaptureError);
}

CopySlot* DeviceCopies::take(c10::Device device, std::size_t bytes) {
  std::size_t kind = 0;
  while (kind < kKinds.size() && bytes > kKinds.at(kind).bytes) ++kind;
  if (bytes == 0 || kind == kKinds.size()) return nullptr;
  const std::lock_guard lock(mutex_);
  if (kernel_of(device) == nullptr) return nullptr;
  Slots& slots = slots_.at(kind);
  if (!slots.free.empty() && slots.free.front()->copies_are_over()) {
    CopySlot* slot = slots.free.front();
    slots.free.erase(slots.free.begin());
    return slot;
  }
  if (slots.made == kKinds.at(kind).most) return nullptr;
  const std::size_t whole = CopySlot::kHeader + CopySlot::kWord + kKinds.at(kind).bytes;
  void* memory = nullptr;
  if (driver_.allocate(&memory, whole, kPortableAndMapped) != 0) return nullptr;
  std::memset(memory, 0, CopySlot::kHeader);
  ++slots.made;
  // NOLINTNEXTLINE(cppcoreguidelines-owning-memory): it never ends
  return new CopySlot(static_cast<std::byte*>(memory), kind);
}

void DeviceCopies::give(CopySlot* slot) {
  const std::lock_guard lock(mutex_);
  slots_.at(slot->kind_).free.push_back(slot);
}

void* DeviceCopies::kernel_of(c10::Device device) {
  const auto number = static_cast<std::size_t>(device.index());
  if (number >= kMostDevices) return nullptr;
  // A thread that has used no device yet has no context; PyTorch's own copies make one.
  void* context = nullptr;
  if (driver_.current_context(&context) != 0 || context == nullptr) return nullptr;
  if (kernels_.size() <= number) kernels_.resize(number + 1);
  Kernel& kernel = kernels_[number];
  if (kernel.known) return kernel.function;
  kernel.known = true;
  void* module = nullptr;
  if (driver_.load_module(&module, kKernel) != 0 ||
      driver_.get_function(&kernel.function, module, kKernelName) != 0) {
    TORCH_WARN_ONCE("thalweg: CUDA's driver does not take the kernel for small copies on ", device,
                    "; small tensors are copied more slowly");
    kernel.function = nullptr;
  }
  return kernel.function;
}

void DeviceCopies::to_host(CopySlot& slot, const void* device_memory, std::size_t bytes,
                           c10::Device device, void* stream) {
  std::byte* host = slot.memory_for(device_memory);
  slot.out_blocks_ = 0;  // nothing is in flight if the driver refuses
  const std::uint32_t turn = ++slot.out_turn_;
  const unsigned blocks = blocks_for(bytes);
  if (bytes > CopySlot::kKernelBytes) {
    const auto from = reinterpret_cast<std::uintptr_t>(device_memory);
    check_code(driver_.copy_to_host(host, from, bytes, stream));
    slot.out_blocks_ = blocks;  // from here on a copy is in flight
    bytes = 0;
  }
  launch(device, stream, host, device_memory, bytes, blocks, slot.base_ + CopySlot::kOutWords,
         turn);
  slot.out_blocks_ = blocks;
}

void DeviceCopies::to_device(CopySlot& slot, void* device_memory, std::size_t bytes,
                             c10::Device device, void* stream) {
  const std::byte* host = slot.memory_for(device_memory);
  slot.in_blocks_ = 0;
  const std::uint32_t turn = ++slot.in_turn_;
  const unsigned blocks = blocks_for(bytes);
  if (bytes > CopySlot::kKernelBytes) {
    const auto to = reinterpret_cast<std::uintptr_t>(device_memory);
    check_code(driver_.copy_to_device(to, host, bytes, stream));
    slot.in_blocks_ = blocks;
    bytes = 0;
  }
  launch(device, stream, device_memory, host, bytes, blocks, slot.base_ + CopySlot::kInWords, turn);
  slot.in_blocks_ = blocks;
}

unsigned DeviceCopies::blocks_for(std::size_t bytes) {
  if (bytes > CopySlot::kKernelBytes) return 1;  // it only writes its word
  constexpr std::size_t kOfBlock = CopySlot::kKernelBytes / CopySlot::kMostBlocks;
  return static_cast<unsigned>((bytes + kOfBlock - 1) / kOfBlock);
}

void DeviceCopies::launch(c10::Device device, void* stream, void* to, const void* from,
                          std::size_t bytes, unsigned blocks, std::byte* words,
                          std::uint32_t turn) {
  void* kernel = nullptr;
  {
    const std::lock_guard lock(mutex_);
    kernel = kernel_of(device);
  }
  TORCH_CHECK(kernel != nullptr, "thalweg: no kernel for small copies on ", device);
  const std::size_t of_block = (bytes / blocks + CopySlot::kWord - 1) / CopySlot::kWord;
  const auto threads = static_cast<unsigned>(
      std::clamp<std::size_t>((of_block + kWarp - 1) / kWarp * kWarp, kWarp, kMostThreads));
  auto count = static_cast<std::uint64_t>(bytes);
  std::array<void*, 5> parameters{&to, &from, &count, &words, &turn};
  check_code(driver_.launch_kernel(kernel, blocks, 1, 1, threads, 1, 1, 0, stream,
                                   parameters.data(), nullptr));
}

void DeviceCopies::check_code(int code) const {
  if (code == 0) return;
  const char* text = nullptr;
  if (driver_.describe(code, &text) != 0 || text == nullptr) text = "an unknown error";
  TORCH_CHECK(false, "thalweg: cannot copy a tensor: CUDA error ", code, ": ", text);
}

}  // namespace thalweg::python
