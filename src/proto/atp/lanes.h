// Which of a worker's threads sends a tensor: the least loaded (section 5.4). A lane is one
// thread's AtpWorker, with sequence numbers of its own.
//
// Load is all that was ever assigned, not what is still in flight: so every worker of the job,
// starting the same tensors in the same order, picks the same lane for each.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/check.h"

namespace thalweg {

class AtpLanes {
 public:
  // Requires count > 0.
  explicit AtpLanes(std::size_t count) : load_(count) { CHECK(count > 0); }

  // The lane with the least load, the first of several, and counts the tensor to it.
  std::size_t assign(std::uint64_t elements) {
    const auto least = std::ranges::min_element(load_);
    *least += elements;
    return static_cast<std::size_t>(least - load_.begin());
  }

  [[nodiscard]] std::uint64_t load(std::size_t lane) const { return load_[lane]; }

 private:
  std::vector<std::uint64_t> load_;
};

}  // namespace thalweg
