// Stage: the host memory by which one operation sees tensors of any layout and device.
//
// A contiguous CPU tensor is used as it is. Any other is copied: a CPU tensor at once, one on a
// device by a stream of its own into pinned memory, so that neither the caller nor its stream
// waits. What was made by out() or inout() is copied back in the end, on that stream.
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
  // Contiguous host memory with the tensor's elements, to be read.
  at::Tensor in(const at::Tensor& tensor);
  // The same without them, to be written.
  at::Tensor out(const at::Tensor& tensor);
  at::Tensor inout(const at::Tensor& tensor);
  // Memory of the operation's own, as it comes.
  at::Tensor scratch(std::vector<std::int64_t> sizes, const at::Tensor& like);

  // What in() and inout() promise holds after it returns. For the thread that starts the operation.
  void wait_until_ready();
  // Copies of device tensors are on their way when it returns: see done().
  void copy_back();

  // It holds tensors of a device.
  [[nodiscard]] bool on_device() const { return stream_.has_value(); }
  [[nodiscard]] const std::optional<c10::Stream>& stream() const { return stream_; }
  // Makes the caller's stream wait for what copy_back() started.
  void block_current_stream() const;

 private:
  at::Tensor host_like(const at::Tensor& tensor);
  void use_stream_of(const at::Tensor& tensor);

  std::vector<at::Tensor> kept_;
  std::vector<std::pair<at::Tensor, at::Tensor>> back_;  // the caller's, and the host's
  std::optional<c10::Stream> stream_;
  std::optional<c10::Event> ready_;
  std::optional<c10::Event> done_;
};

}  // namespace thalweg::python
