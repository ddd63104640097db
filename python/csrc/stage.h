// Stage: the host memory through which an operation sees tensors of any layout and device.
//
// A contiguous CPU tensor is used as it is. Any other is copied: a CPU tensor at once, and a tensor
// on a device into pinned memory. Tensors passed to out() or inout() are copied back in the end.
//
// Copies from and to a device go by one of two ways. Usually they go through a stream of the
// stage, so that neither the caller nor its stream waits. If the caller waits for the operation
// anyway, they go through its own stream, which then needs no events to wait for; small contiguous
// tensors are copied by kernels (device_copy.h).
#pragma once

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <optional>
#include <vector>

#include "device_copy.h"

namespace thalweg::python {

class Stage {
 public:
  Stage() = default;
  ~Stage();
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  // From now on, copies go through the caller's stream. The thread that calls in(), out() and
  // inout() must then call copy_back() too, and must not change its current stream meanwhile.
  void use_callers_stream() { callers_ = true; }

  // Returns contiguous host memory with the tensor's elements, to be read.
  at::Tensor in(const at::Tensor& tensor);
  // Returns the same without the elements, to be written. inout() is for reading and writing.
  at::Tensor out(const at::Tensor& tensor);
  at::Tensor inout(const at::Tensor& tensor);
  // Returns memory of the operation with undefined content.
  at::Tensor scratch(std::vector<std::int64_t> sizes, const at::Tensor& like);

  // Waits until the memory of in() and inout() holds the elements. Called by the thread that starts
  // the operation.
  void wait_until_ready();
  // Copies results back to the caller's tensors. Copies to a device may still run when it returns:
  // block_current_stream() waits for them.
  void copy_back();

  // Whether it holds tensors on a device.
  [[nodiscard]] bool on_device() const { return stream_.has_value(); }
  // Whether the thread that made it may also start its operation: nothing comes from a stream of
  // the stage.
  [[nodiscard]] bool may_start_here() const { return callers_ || !on_device(); }
  [[nodiscard]] const std::optional<c10::Stream>& stream() const { return stream_; }
  // Makes the caller's stream wait for what copy_back() started.
  void block_current_stream() const;

 private:
  // A tensor of the caller and its copy on the host. If that is in a slot, kernels copy it.
  struct Copy {
    at::Tensor tensor;
    at::Tensor host;
    CopySlot* slot = nullptr;
  };
  Copy fetch(const at::Tensor& tensor);
  // Returns host memory for the tensor, in a slot if possible.
  Copy host_for(const at::Tensor& tensor);
  CopySlot* slot_for(const at::Tensor& tensor);
  at::Tensor host_like(const at::Tensor& tensor);
  void use_stream_of(const at::Tensor& tensor);
  void wait_for(const CopySlot& slot) const;

  bool callers_ = false;
  std::vector<at::Tensor> kept_;
  std::vector<Copy> back_;
  std::optional<c10::Stream> stream_;
  std::optional<void*> driver_stream_;  // the same, for kernels; none: there are none
  std::vector<CopySlot*> slots_;        // to be given back
  std::optional<c10::Event> ready_;
  std::optional<c10::Event> done_;
};

}  // namespace thalweg::python
