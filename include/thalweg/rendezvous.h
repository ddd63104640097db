// A key-value store that all ranks of a job can reach. A caller that already has one, as PyTorch
// does, implements this interface and uses its store instead of Thalweg's.
//
// Every call returns as soon as the store has answered; none waits for another rank. Several
// threads may call it at the same time. Values are never empty.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <thalweg/result.h>

namespace thalweg {

class Rendezvous {
 public:
  virtual ~Rendezvous() = default;
  [[nodiscard]] virtual Status set(const std::string& key, const std::string& value) = 0;
  // None: the key does not exist yet.
  [[nodiscard]] virtual Result<std::optional<std::string>> get(const std::string& key) = 0;
  // Adds `delta` and returns the new value. A key that does not exist counts as 0.
  [[nodiscard]] virtual Result<std::int64_t> add(const std::string& key, std::int64_t delta) = 0;
  // Sets the key if its value is `expected`, or, without `expected`, if it does not exist. Returns
  // whether it was set.
  [[nodiscard]] virtual Result<bool> compare_and_set(const std::string& key,
                                                     const std::optional<std::string>& expected,
                                                     const std::string& value) = 0;
};

}  // namespace thalweg
