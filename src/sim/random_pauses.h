// Congestion or failure of hosts as RAT's figure 5 has it: k hosts chosen by chance send nothing,
// and after every d others are chosen.
#pragma once

#include <functional>
#include <vector>

#include "base/prng.h"
#include "sim/network.h"

namespace thalweg {

class RandomPauses {
 public:
  // Goes on while `work_left`; then every host sends again.
  RandomPauses(int hosts, Duration every, Network& network, std::uint64_t seed,
               std::function<bool()> work_left);

  // Lets the hosts paused now go on, and pauses others.
  void change();

 private:
  const std::size_t count_;
  const Duration every_;
  Network& network_;
  Prng prng_;
  std::function<bool()> work_left_;
  std::vector<Rank> hosts_;  // all of them; the first count_ are paused
  bool paused_ = false;
};

}  // namespace thalweg
