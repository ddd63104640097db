// A key-value store that all ranks of a job can reach, of the caller's own: in place of the store
// of Thalweg's, where a job has one already (PyTorch's processes do).
//
// Every call returns at once, or as soon as the store has answered; none waits for another rank.
// From any thread, and from several at once. Values are never empty.
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
  // None: there is no such key yet.
  [[nodiscard]] virtual Result<std::optional<std::string>> get(const std::string& key) = 0;
  // The new value. A key that does not exist counts as 0.
  [[nodiscard]] virtual Result<std::int64_t> add(const std::string& key, std::int64_t delta) = 0;
  // Sets it if it is `expected`; none: if it does not exist. False: it was something else.
  [[nodiscard]] virtual Result<bool> compare_and_set(const std::string& key,
                                                     const std::optional<std::string>& expected,
                                                     const std::string& value) = 0;
};

}  // namespace thalweg
