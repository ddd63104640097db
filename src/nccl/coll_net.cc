#include "nccl/coll_net.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "nccl/coll_abi.h"
#include "nccl/log.h"
#include "nccl/plugin.h"
#include "nccl/signals_blocked.h"
#include "net/job/environment.h"

namespace thalweg::nccl {

CollNet& CollNet::instance() {
  // Never destroyed: a process may end while NCCL still calls.
  static auto& network = *new CollNet;
  return network;
}

Status CollNet::init() {
  THALWEG_TRY(CollSettings read, coll_settings_from(net::process_environment()));
  if (read.switches.empty()) {
    log_info("CollNet: THALWEG_SWITCH is not set, so NCCL sums without a switch");
  } else {
    std::string names;
    for (const net::ListedSwitch& one : read.switches) names += fmt::format(" {}", one.text());
    log_info(fmt::format("CollNet: switches:{}", names));
  }
  const std::lock_guard lock(mutex_);
  settings_ = std::make_shared<const CollSettings>(std::move(read));
  return ok_status();
}

Result<int> CollNet::device_count() {
  {
    const std::lock_guard lock(mutex_);
    if (settings_ == nullptr) return Error(ErrorCode::kInternal, "NCCL did not call init() first");
    if (settings_->switches.empty()) return 0;
  }
  return Plugin::instance().device_count();
}

Result<std::unique_ptr<CollListener>> CollNet::listen(int device) {
  auto made = std::make_unique<CollListener>();
  THALWEG_TRY(auto found, Plugin::instance().device(device));
  made->settings = std::move(found.first);
  made->device = found.second;
  THALWEG_TRY(made->listener, Listener::start(*made->device, *made->settings));
  return made;
}

Result<std::unique_ptr<CollGroup>> CollNet::connect(std::span<void* const> handles, int rank,
                                                    CollListener& listener) {
  std::shared_ptr<const CollSettings> settings;
  {
    const std::lock_guard lock(mutex_);
    settings = settings_;
  }
  // NCCL forgets the listener of an attempt that fails, so its socket is closed here.
  const std::unique_ptr<Listener> own = std::move(listener.listener);
  THALWEG_TRY(const Handle rank0,
              handle_of_other(std::span<const std::byte, kNcclHandleSize>(
                  static_cast<const std::byte*>(handles.front()), kNcclHandleSize)));
  const SignalsBlocked blocked;
  THALWEG_TRY(CollParts parts, meet({.rank = rank,
                                     .ranks = static_cast<int>(handles.size()),
                                     .settings = listener.settings.get(),
                                     .switches = settings.get(),
                                     .device = listener.device,
                                     .listener = own.get(),
                                     .rank0 = rank0}));
  const std::string about = parts.about;
  THALWEG_TRY(auto group, CollGroup::start(std::move(parts)));
  log_info(fmt::format("CollNet: {}", about));
  return group;
}

std::optional<DType> coll_type(int type, int op) {
  if (op != kNcclSum) return std::nullopt;
  switch (type) {
    case kNcclInt32:
      return DType::kInt32;
    case kNcclFloat16:
      return DType::kFloat16;
    case kNcclFloat32:
      return DType::kFloat32;
    case kNcclBfloat16:
      return DType::kBFloat16;
    default:
      return std::nullopt;
  }
}

}  // namespace thalweg::nccl
