// Congestion or failure of hosts as in RAT's figure 5: k random hosts send nothing, and after every
// interval d others are chosen.
#pragma once

#include <functional>
#include <vector>

#include "base/prng.h"
#include "sim/core/network.h"

namespace thalweg::sim {

class RandomPauses {
 public:
  // Pauses hosts while `work_left` returns true; then every host sends again.
  RandomPauses(int hosts, Duration every, Network& network, std::uint64_t seed,
               std::function<bool()> work_left);

  // Resumes the hosts that are paused now, and pauses others.
  void change();

 private:
  const std::size_t count_;
  const Duration every_;
  Network& network_;
  Prng prng_;
  std::function<bool()> work_left_;
  std::vector<Rank> hosts_;  // all hosts; the first count_ are paused
  bool paused_ = false;
};

}  // namespace thalweg::sim
