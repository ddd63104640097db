#include "stage.h"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace thalweg::python {
namespace {

bool usable(const at::Tensor& tensor) { return tensor.device().is_cpu() && tensor.is_contiguous(); }

void check(const at::Tensor& tensor) {
  TORCH_CHECK(tensor.layout() == c10::kStrided, "thalweg: a tensor of layout ", tensor.layout(),
              "; only strided ones are allowed here (call to_dense() first)");
  TORCH_CHECK(!tensor.is_quantized(), "thalweg: a quantized tensor (", tensor.scalar_type(),
              "); send its int_repr() instead");
}

}  // namespace

at::Tensor Stage::in(const at::Tensor& tensor) {
  check(tensor);
  kept_.push_back(tensor);
  if (usable(tensor)) return tensor;
  at::Tensor host = host_like(tensor);
  if (tensor.device().is_cpu()) {
    host.copy_(tensor);
    return host;
  }
  use_stream_of(tensor);
  const c10::StreamGuard guard(*stream_);
  host.copy_(tensor, /*non_blocking=*/true);
  ready_->record(*stream_);
  return host;
}

at::Tensor Stage::out(const at::Tensor& tensor) {
  check(tensor);
  kept_.push_back(tensor);
  if (usable(tensor)) return tensor;
  if (!tensor.device().is_cpu()) use_stream_of(tensor);
  const at::Tensor host = host_like(tensor);
  back_.emplace_back(tensor, host);
  return host;
}

at::Tensor Stage::inout(const at::Tensor& tensor) {
  const at::Tensor host = in(tensor);
  if (!host.is_same(tensor)) back_.emplace_back(tensor, host);
  return host;
}

at::Tensor Stage::scratch(std::vector<std::int64_t> sizes, const at::Tensor& like) {
  kept_.push_back(at::empty(sizes, like.options().device(at::kCPU).requires_grad(false)));
  return kept_.back();
}

at::Tensor Stage::host_like(const at::Tensor& tensor) {
  const bool pinned = !tensor.device().is_cpu();
  kept_.push_back(at::empty(
      tensor.sizes(),
      tensor.options().device(at::kCPU).requires_grad(false).pinned_memory(pinned).memory_format(
          c10::MemoryFormat::Contiguous)));
  return kept_.back();
}

void Stage::use_stream_of(const at::Tensor& tensor) {
  const c10::Device device = tensor.device();
  if (stream_) {
    TORCH_CHECK(stream_->device() == device, "thalweg: tensors of one call are on ",
                stream_->device(), " and ", device, "; all must be on one device");
    return;
  }
  const c10::impl::VirtualGuardImpl impl(device.type());
  stream_ = impl.getStreamFromGlobalPool(device);
  c10::Event before(device.type());
  before.record(impl.getStream(device));
  before.block(*stream_);
  ready_.emplace(device.type());
  done_.emplace(device.type());
}

void Stage::wait_until_ready() {
  if (ready_ && ready_->was_marked_for_recording()) ready_->synchronize();
}

void Stage::copy_back() {
  const at::NoGradGuard no_grad;
  c10::OptionalStreamGuard guard;
  if (stream_) guard.reset_stream(*stream_);
  for (const auto& [tensor, host] : back_) tensor.copy_(host, /*non_blocking=*/true);
  if (stream_) done_->record(*stream_);
  back_.clear();
}

void Stage::block_current_stream() const {
  if (!done_ || !done_->was_marked_for_recording()) return;
  const c10::impl::VirtualGuardImpl impl(stream_->device_type());
  done_->block(impl.getStream(stream_->device()));
}

}  // namespace thalweg::python
