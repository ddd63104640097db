// DeviceCopies: copies of tensors between a CUDA device and the host, without a wait in the CUDA
// driver.
//
// A kernel in the caller's stream copies the elements of a small tensor to or from pinned memory,
// which the device reaches by itself. When a block of the kernel is done, it writes the number of
// the copy to a word of that memory. The host looks at these words, so it needs neither an event
// nor a call that synchronizes. A larger tensor is copied by the driver, which is then faster, and
// the kernel only writes its word afterwards.
//
// The backend is compiled without CUDA. The driver and the current stream of PyTorch are found at
// run time by their C functions, and the kernel is text (PTX), which the driver compiles for the
// device when it is first used. Where one of these is missing, take() returns no slot, and the
// caller copies by other means. THALWEG_CUDA_KERNELS=0 in the environment has the same effect.
#pragma once

#include <c10/core/Device.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

namespace thalweg::python {

// A piece of pinned memory for one tensor. Invariant: while a kernel may use the memory,
// copies_are_over() is false, and take() does not return the slot.
class CopySlot {
 public:
  // The largest tensor that a slot holds, and the largest that a kernel copies.
  static constexpr std::size_t kMostBytes = std::size_t{4} << 20U;
  static constexpr std::size_t kKernelBytes = std::size_t{256} << 10U;

  // The memory for a tensor whose memory on the device is at `device`: both addresses are the same
  // modulo kWord, as the kernel requires.
  [[nodiscard]] std::byte* memory_for(const void* device) const;
  // Whether the last copy to the host is over. If so, its elements are in the memory.
  [[nodiscard]] bool arrived() const { return all_say(kOutWords, out_blocks_, out_turn_); }
  [[nodiscard]] bool copies_are_over() const {
    return arrived() && all_say(kInWords, in_blocks_, in_turn_);
  }

 private:
  friend class DeviceCopies;
  static constexpr std::size_t kWord = 16;     // bytes that a thread of the kernel copies
  static constexpr unsigned kMostBlocks = 16;  // of a kernel; each has a word for each direction
  static constexpr std::size_t kOutWords = 0;  // where the words of copies to the host begin
  static constexpr std::size_t kInWords = 64;  // and those of copies to the device
  static constexpr std::size_t kHeader = 128;  // bytes of the words

  CopySlot(std::byte* base, std::size_t kind) : base_(base), kind_(kind) {}
  [[nodiscard]] bool all_say(std::size_t words, unsigned blocks, std::uint32_t turn) const;

  std::byte* base_;
  std::size_t kind_;  // the index of DeviceCopies::kKinds
  unsigned out_blocks_ = 0;
  unsigned in_blocks_ = 0;
  std::uint32_t out_turn_ = 0;
  std::uint32_t in_turn_ = 0;
};

class DeviceCopies {
 public:
  // The only object; its memory stays until the process ends. Null: there is no CUDA here.
  static DeviceCopies* get();

  // The current stream of PyTorch on this device, as the driver knows it. None: it cannot be found.
  [[nodiscard]] std::optional<void*> current_stream(c10::Device device) const;
  // Whether a CUDA graph is being captured from the stream.
  [[nodiscard]] bool captures(void* stream) const;

  // Returns a slot for so many bytes, to be given back by give(). Null: copy by other means.
  // Requires that `device` is the current device of the thread.
  CopySlot* take(c10::Device device, std::size_t bytes);
  // Any thread may call it, also while copies are in flight.
  void give(CopySlot* slot);

  // Both enqueue a copy in `stream` and return. The device must be the one for which the slot was
  // taken, and the current one. They throw if the driver refuses.
  void to_host(CopySlot& slot, const void* device_memory, std::size_t bytes, c10::Device device,
               void* stream);
  void to_device(CopySlot& slot, void* device_memory, std::size_t bytes, c10::Device device,
                 void* stream);

 private:
  struct Driver;
  explicit DeviceCopies(const Driver& driver) : driver_(driver) {}
  static DeviceCopies* make();
  // The kernel for this device; null if it cannot be had.
  void* kernel_of(c10::Device device);
  static unsigned blocks_for(std::size_t bytes);
  void launch(c10::Device device, void* stream, void* to, const void* from, std::size_t bytes,
              unsigned blocks, std::byte* words, std::uint32_t turn);
  // Throws unless the code is that of success.
  void check_code(int code) const;

  // Slots for tensors of up to so many bytes, and how many there may be.
  struct Kind {
    std::size_t bytes;
    std::size_t most;
  };
  static constexpr std::array<Kind, 2> kKinds{
      {{CopySlot::kKernelBytes, 64}, {CopySlot::kMostBytes, 8}}};
  const Driver& driver_;
  std::mutex mutex_;  // guards what follows
  struct Kernel {
    bool known = false;
    void* function = nullptr;
  };
  std::vector<Kernel> kernels_;  // by the number of the device
  struct Slots {
    std::vector<CopySlot*> free;  // the first was given back first
    std::size_t made = 0;
  };
  std::array<Slots, kKinds.size()> slots_;
};

}  // namespace thalweg::python
