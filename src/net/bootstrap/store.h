// What the ranks of a job need of a store: ours (store_client.h) or the caller's
// (rendezvous_store.h). Every call ends by its deadline (of monotonic_now()), or at most 0.1 s
// later.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <thalweg/result.h>

#include "base/units.h"

namespace thalweg {

class Store {
 public:
  virtual ~Store() = default;
  [[nodiscard]] virtual Status set(const std::string& key, const std::string& value,
                                   Time deadline) = 0;
  // Waits until the key exists; none: it did not until `patience`. The store must have said so by
  // the deadline, which a slow way to it may need.
  [[nodiscard]] virtual Result<std::optional<std::string>> find(const std::string& key,
                                                                Time patience, Time deadline) = 0;
  // Waits until the key exists; that it does not by the deadline is an error.
  [[nodiscard]] virtual Result<std::string> get(const std::string& key, Time deadline) = 0;
  [[nodiscard]] virtual Status wait(const std::string& key, Time deadline) = 0;
  // The new value. A key that does not exist counts as 0; its value is a decimal number.
  [[nodiscard]] virtual Result<std::int64_t> add(const std::string& key, std::int64_t delta,
                                                 Time deadline) = 0;
  // Sets it if it is `expected`; none: if it does not exist. False: it was something else.
  [[nodiscard]] virtual Result<bool> compare_and_set(const std::string& key,
                                                     const std::optional<std::string>& expected,
                                                     const std::string& value, Time deadline) = 0;

 protected:
  Store() = default;
  Store(const Store&) = default;
  Store(Store&&) = default;
  Store& operator=(const Store&) = default;
  Store& operator=(Store&&) = default;
};

// A store of one's own, so that nobody waits for another's key.
using OpenStore = std::function<Result<std::unique_ptr<Store>>(Time until)>;

}  // namespace thalweg
