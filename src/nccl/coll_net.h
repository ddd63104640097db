// What stands behind NCCL's tables of functions for CollNet, in C++.
#pragma once

#include <memory>
#include <mutex>
#include <span>

#include <thalweg/result.h>
#include <thalweg/types.h>

#include "nccl/coll_group.h"
#include "nccl/rendezvous.h"
#include "nccl/settings.h"

namespace thalweg::nccl {

// A listener, and the device at which it listens.
struct CollListener {
  std::unique_ptr<Listener> listener;
  std::shared_ptr<const Settings> settings;  // owns the device
  const Device* device = nullptr;
};

// One for the process. NCCL calls it from several threads, after the net plugin's init().
class CollNet {
 public:
  [[nodiscard]] static CollNet& instance();

  // Reads the environment, for every communicator of NCCL anew.
  Status init();
  // 0: there is no switch, so that NCCL uses the net plugin alone.
  [[nodiscard]] Result<int> device_count();
  [[nodiscard]] Result<std::unique_ptr<CollListener>> listen(int device);
  // Waits until all ranks have met. An error: NCCL sums by other ways. `listener` is of no use
  // afterwards.
  [[nodiscard]] Result<std::unique_ptr<CollGroup>> connect(std::span<void* const> handles, int rank,
                                                           CollListener& listener);

 private:
  std::mutex mutex_;
  std::shared_ptr<const CollSettings> settings_;  // null before init()
};

// The type that NCCL means, if its sums are supported.
[[nodiscard]] std::optional<DType> coll_type(int type, int op);

}  // namespace thalweg::nccl
