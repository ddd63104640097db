#include "stage.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <sched.h>

#include <chrono>
#include <ctime>

namespace thalweg::python {
namespace {

// A thread that waits for a kernel looks this many times, which takes some microseconds, before it
// lets other threads run between two looks.
constexpr int kLooksAlone = 64;
// After this long it sleeps between two looks: the stream has other work before the copy.
constexpr std::chrono::milliseconds kLongestPoll(1);
constexpr std::chrono::microseconds kNap(20);
// A device that has failed never runs the kernel, so the stream is asked once in this long.
constexpr std::chrono::milliseconds kBetweenQueries(10);

bool usable(const at::Tensor& tensor) { return tensor.device().is_cpu() && tensor.is_contiguous(); }

void check(const at::Tensor& tensor) {
  TORCH_CHECK(tensor.layout() == c10::kStrided, "thalweg: a tensor of layout ", tensor.layout(),
              "; only strided ones are allowed here (call to_dense() first)");
  TORCH_CHECK(!tensor.is_quantized(), "thalweg: a quantized tensor (", tensor.scalar_type(),
              "); send its int_repr() instead");
}

c10::impl::VirtualGuardImpl impl_of(const c10::Stream& stream) {
  return c10::impl::VirtualGuardImpl(stream.device_type());
}

}  // namespace

Stage::~Stage() {
  for (CopySlot* slot : slots_) DeviceCopies::get()->give(slot);
}

at::Tensor Stage::in(const at::Tensor& tensor) { return fetch(tensor).host; }

at::Tensor Stage::inout(const at::Tensor& tensor) {
  Copy copy = fetch(tensor);
  at::Tensor host = copy.host;
  if (!host.is_same(tensor)) back_.push_back(std::move(copy));
  return host;
}

Stage::Copy Stage::fetch(const at::Tensor& tensor) {
  check(tensor);
  kept_.push_back(tensor);
  if (usable(tensor)) return {tensor, tensor};
  if (tensor.device().is_cpu()) {
    Copy copy{tensor, host_like(tensor)};
    copy.host.copy_(tensor);
    return copy;
  }
  use_stream_of(tensor);
  Copy copy = host_for(tensor);
  if (copy.slot != nullptr) {
    const c10::DeviceGuard guard(tensor.device());
    DeviceCopies::get()->to_host(*copy.slot, tensor.data_ptr(), tensor.nbytes(), tensor.device(),
                                 *driver_stream_);
    return copy;
  }
  const c10::StreamGuard guard(*stream_);
  copy.host.copy_(tensor, /*non_blocking=*/true);
  if (!ready_) ready_.emplace(stream_->device_type());
  ready_->record(*stream_);
  return copy;
}

at::Tensor Stage::out(const at::Tensor& tensor) {
  check(tensor);
  kept_.push_back(tensor);
  if (usable(tensor)) return tensor;
  if (!tensor.device().is_cpu()) use_stream_of(tensor);
  return back_.emplace_back(host_for(tensor)).host;
}

at::Tensor Stage::scratch(std::vector<std::int64_t> sizes, const at::Tensor& like) {
  kept_.push_back(at::empty(sizes, like.options().device(at::kCPU).requires_grad(false)));
  return kept_.back();
}

Stage::Copy Stage::host_for(const at::Tensor& tensor) {
  CopySlot* slot = slot_for(tensor);
  if (slot == nullptr) return {tensor, host_like(tensor)};
  return {tensor,
          at::from_blob(slot->memory_for(tensor.data_ptr()), tensor.sizes(),
                        at::TensorOptions(tensor.scalar_type()).device(at::kCPU)),
          slot};
}

CopySlot* Stage::slot_for(const at::Tensor& tensor) {
  if (!callers_ || !driver_stream_ || !tensor.is_contiguous() || tensor.is_conj() ||
      tensor.is_neg()) {
    return nullptr;
  }
  const c10::DeviceGuard guard(tensor.device());
  CopySlot* slot = DeviceCopies::get()->take(tensor.device(), tensor.nbytes());
  if (slot != nullptr) slots_.push_back(slot);
  return slot;
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
  if (DeviceCopies* copies = device.is_cuda() ? DeviceCopies::get() : nullptr) {
    driver_stream_ = copies->current_stream(device);
    TORCH_CHECK(!driver_stream_ || !copies->captures(*driver_stream_), "thalweg: a tensor on ",
                device,
                " while a CUDA graph is captured: the host takes part in every call, so a graph "
                "cannot replay it; make the call outside of the capture");
  }
  const c10::impl::VirtualGuardImpl impl(device.type());
  const c10::Stream current = impl.getStream(device);
  if (callers_) {
    stream_ = current;
    return;
  }
  stream_ = impl.getStreamFromGlobalPool(device);
  c10::Event before(device.type());
  before.record(current);
  before.block(*stream_);
  done_.emplace(device.type());
}

void Stage::wait_until_ready() {
  for (const CopySlot* slot : slots_) wait_for(*slot);
  if (ready_) ready_->synchronize();
}

void Stage::wait_for(const CopySlot& slot) const {
  using Clock = std::chrono::steady_clock;
  for (int looks = 0; looks < kLooksAlone; ++looks) {
    if (slot.arrived()) return;
  }
  const Clock::time_point began = Clock::now();
  Clock::time_point query = began + kBetweenQueries;
  while (!slot.arrived()) {
    const Clock::time_point now = Clock::now();
    if (now - began < kLongestPoll) {
      sched_yield();
      continue;
    }
    if (now >= query) {
      // It throws if the device has failed.
      TORCH_CHECK(!stream_->query() || slot.arrived(), "thalweg: the device has not run a copy");
      query = now + kBetweenQueries;
    }
    const timespec nap{.tv_sec = 0, .tv_nsec = std::chrono::nanoseconds(kNap).count()};
    nanosleep(&nap, nullptr);
  }
}

void Stage::copy_back() {
  const at::NoGradGuard no_grad;
  c10::OptionalStreamGuard guard;
  if (stream_) guard.reset_stream(*stream_);
  for (const auto& [tensor, host, slot] : back_) {
    if (slot != nullptr) {
      DeviceCopies::get()->to_device(*slot, tensor.data_ptr(), tensor.nbytes(), tensor.device(),
                                     *driver_stream_);
    } else {
      tensor.copy_(host, /*non_blocking=*/true);
      // The caller may drop the tensor before the copy is over, without a wait.
      if (done_ && !tensor.device().is_cpu()) {
        impl_of(*stream_).recordDataPtrOnStream(tensor.storage().data_ptr(), *stream_);
      }
    }
  }
  if (done_) done_->record(*stream_);
  back_.clear();
}

void Stage::block_current_stream() const {
  if (!done_ || !done_->was_marked_for_recording()) return;
  done_->block(impl_of(*stream_).getStream(stream_->device()));
}

}  // namespace thalweg::python
