#include "sim/workload/random_pauses.h"

#include <span>
#include <utility>

namespace thalweg::sim {

RandomPauses::RandomPauses(int hosts, Duration every, Network& network, std::uint64_t seed,
                           std::function<bool()> work_left)
    : count_(static_cast<std::size_t>(hosts)),
      every_(every),
      network_(network),
      prng_(seed),
      work_left_(std::move(work_left)) {
  for (Rank rank(0); rank.value() < network.topology().host_count(); ++rank) {
    hosts_.push_back(rank);
  }
}

void RandomPauses::change() {
  if (paused_) {
    for (std::size_t i = 0; i < count_; ++i) network_.set_host_paused(hosts_[i], false);
    paused_ = false;
  }
  if (count_ == 0 || !work_left_()) return;
  prng_.shuffle(std::span(hosts_));
  for (std::size_t i = 0; i < count_; ++i) network_.set_host_paused(hosts_[i], true);
  paused_ = true;
  network_.call_at(network_.now() + every_, [this] { change(); });
}

}  // namespace thalweg::sim
