// The key-value store that the ranks of a job meet by: our own (store_client.h) or the caller's
// (rendezvous_store.h). Every call ends by its deadline (a time of monotonic_now()), or at most 0.1
// s later.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <thalweg/result.h>

#include "base/units.h"

namespace thalweg::net {

class Store {
 public:
  virtual ~Store() = default;
  [[nodiscard]] virtual Status set(const std::string& key, const std::string& value,
                                   Time deadline) = 0;
  // Waits until the key exists and returns its value. Returns none if the key does not exist by
  // `patience`. The store's reply must arrive by `deadline`, which is later because the path to the
  // store may be slow.
  [[nodiscard]] virtual Result<std::optional<std::string>> find(const std::string& key,
                                                                Time patience, Time deadline) = 0;
  // Waits until the key exists. It is an error if the key does not exist by the deadline.
  [[nodiscard]] virtual Result<std::string> get(const std::string& key, Time deadline) = 0;
  [[nodiscard]] virtual Status wait(const std::string& key, Time deadline) = 0;
  // Adds to a key whose value is a decimal number, and returns the sum. A missing key counts as 0.
  [[nodiscard]] virtual Result<std::int64_t> add(const std::string& key, std::int64_t delta,
                                                 Time deadline) = 0;
  // Sets the key if its value is `expected`; with none, if it does not exist. Returns false if it
  // did not set the key.
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

// Opens another connection to the store, so that its owner does not wait for the calls of others.
using OpenStore = std::function<Result<std::unique_ptr<Store>>(Time until)>;

}  // namespace thalweg::net
