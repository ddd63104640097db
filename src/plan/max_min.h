// Max-min fair rates of flows that share arcs: no flow can get more without taking from one that
// has no more than it (Bertsekas and Gallager, progressive filling).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace thalweg::plan {

class MaxMinFair {
 public:
  // A flow loads an arc with `weight` times its rate.
  struct Use {
    std::uint32_t arc = 0;
    float weight = 0;
  };

  // Capacities in bytes per second, each above 0.
  explicit MaxMinFair(std::vector<double> capacities);

  // Sets rates[i] to the rate of the flow that uses uses[i]; every flow must use at least one arc.
  void solve(std::span<const std::span<const Use>> uses, std::span<double> rates);

 private:
  struct ArcState {
    double left = 0;          // capacity not taken by settled flows
    double weight = 0;        // sum over the flows not yet settled
    std::uint32_t begin = 0;  // its flows are members_[begin … end)
    std::uint32_t end = 0;
  };

  void settle(std::uint32_t flow, double rate, std::span<const std::span<const Use>> uses,
              std::span<double> rates);

  std::vector<double> capacities_;
  std::vector<ArcState> arcs_;
  std::vector<std::uint32_t> busy_;     // arcs with a flow
  std::vector<std::uint32_t> members_;  // flows by arc
};

}  // namespace thalweg::plan
