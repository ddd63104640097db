// Which workers are connected by the groups joined so far (union-find).
#pragma once

#include <numeric>
#include <span>
#include <vector>

#include "base/units.h"

namespace thalweg::sync {

class Connected {
 public:
  explicit Connected(int workers)
      : parent_(static_cast<std::size_t>(workers)), parts_(static_cast<std::size_t>(workers)) {
    std::iota(parent_.begin(), parent_.end(), std::size_t{0});
  }

  void join(std::span<const Rank> group) {
    for (const Rank worker : group) {
      const std::size_t a = root_of(group.front().index());
      const std::size_t b = root_of(worker.index());
      if (a == b) continue;
      parent_[b] = a;
      --parts_;
    }
  }
  [[nodiscard]] bool is_one() const { return parts_ == 1; }
  [[nodiscard]] bool together(Rank a, Rank b) { return root_of(a.index()) == root_of(b.index()); }

 private:
  std::size_t root_of(std::size_t worker) {
    while (parent_[worker] != worker) {
      parent_[worker] = parent_[parent_[worker]];
      worker = parent_[worker];
    }
    return worker;
  }

  std::vector<std::size_t> parent_;
  std::size_t parts_;
};

}  // namespace thalweg::sync
