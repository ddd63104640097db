// Stage: the host memory through which an operation sees tensors of any layout and device.
//
// A contiguous CPU tensor is used as it is. Any other is copied: a CPU tensor at once, and a tensor
// on a device through a stream of the stage into pinned memory, so that neither the caller nor its
// stream waits. Tensors passed to out() or inout() are copied back in the end, on that stream.
#pragma once

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <optional>
#include <utility>
#include <vector>

namespace thalweg::python {

class Stage {
 public:
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
  [[nodiscard]] const std::optional<c10::Stream>& stream() const { return stream_; }
  // Makes the caller's stream wait for what copy_back() started.
  void block_current_stream() const;

 private:
  at::Tensor host_like(const at::Tensor& tensor);
  void use_stream_of(const at::Tensor& tensor);

  std::vector<at::Tensor> kept_;
  // The caller's tensor and its copy on the host
  std::vector<std::pair<at::Tensor, at::Tensor>> back_;
  std::optional<c10::Stream> stream_;
  std::optional<c10::Event> ready_;
  std::optional<c10::Event> done_;
};

}  // namespace thalweg::python
