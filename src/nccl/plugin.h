// What stands behind NCCL's tables of functions, in C++: the settings, attempts to connect, and the
// objects whose pointers NCCL holds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <utility>

#include <thalweg/result.h>

#include "nccl/abi.h"
#include "nccl/connection.h"
#include "nccl/rendezvous.h"
#include "nccl/settings.h"

namespace thalweg::nccl {

// The handle that NCCL brought from another rank. An error says what is wrong there.
[[nodiscard]] Result<Handle> handle_of_other(std::span<const std::byte, kNcclHandleSize> bytes);

// One for the process. NCCL calls it from several threads.
class Plugin {
 public:
  [[nodiscard]] static Plugin& instance();

  // Reads the environment, for every communicator of NCCL anew.
  Status init();
  // Forgets attempts to connect that nobody will ask for.
  void finalize();
  [[nodiscard]] Result<int> device_count();
  // A device, and the settings that own it.
  [[nodiscard]] Result<std::pair<std::shared_ptr<const Settings>, const Device*>> device(
      int number);
  // The strings live until the next init().
  [[nodiscard]] Result<PropertiesV11> properties(int device);

  [[nodiscard]] Result<std::unique_ptr<Listener>> listen(int device);
  // Null: not yet; `handle` keeps the number of the attempt between calls.
  [[nodiscard]] Result<std::unique_ptr<SendConnection>> connect(
      int device, std::span<std::byte, kNcclHandleSize> handle);
  // Null: not yet.
  [[nodiscard]] Result<std::unique_ptr<ReceiveConnection>> accept(Listener& listener);

 private:
  [[nodiscard]] Result<std::shared_ptr<const Settings>> settings();
  // Takes the attempt out of the table; null if there is none of this number.
  std::unique_ptr<Dial> take_attempt(std::uint64_t number);

  std::mutex mutex_;
  std::shared_ptr<const Settings> settings_;  // null before init()
  std::map<std::uint64_t, std::unique_ptr<Dial>> attempts_;
  std::uint64_t last_attempt_ = 0;
};

}  // namespace thalweg::nccl
