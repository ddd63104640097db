#include "plan/max_min.h"

#include <algorithm>
#include <queue>
#include <utility>

#include "base/check.h"

namespace thalweg::plan {
namespace {

// Weights are sums of floats; what is left below this fraction of the whole is rounding.
constexpr double kRounding = 1e-9;

}  // namespace

MaxMinFair::MaxMinFair(std::vector<double> capacities)
    : capacities_(std::move(capacities)), arcs_(capacities_.size()) {}

void MaxMinFair::solve(std::span<const std::span<const Use>> uses, std::span<double> rates) {
  for (const std::uint32_t a : busy_) arcs_[a] = {};
  busy_.clear();
  std::size_t entries = 0;
  for (const auto& flow : uses) {
    for (const Use& use : flow) {
      ArcState& arc = arcs_[use.arc];
      if (arc.end == 0) busy_.push_back(use.arc);
      arc.weight += static_cast<double>(use.weight);
      ++arc.end;  // the number of flows, for now
    }
    entries += flow.size();
  }
  members_.resize(entries);
  std::uint32_t begin = 0;
  for (const std::uint32_t a : busy_) {
    ArcState& arc = arcs_[a];
    const std::uint32_t count = arc.end;
    arc.left = capacities_[a];
    arc.begin = arc.end = begin;
    begin += count;
  }
  for (std::uint32_t f = 0; f < uses.size(); ++f) {
    for (const Use& use : uses[f]) members_[arcs_[use.arc].end++] = f;
  }

  // The arc that fills up first, at the lowest common rate, settles its flows. That makes other
  // arcs fill up later, never earlier, so an outdated entry can simply go back with its new level.
  using Entry = std::pair<double, std::uint32_t>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> levels;
  for (const std::uint32_t a : busy_) levels.emplace(arcs_[a].left / arcs_[a].weight, a);
  std::fill(rates.begin(), rates.end(), -1.0);
  std::size_t unsettled = uses.size();
  while (unsettled > 0) {
    CHECK(!levels.empty(), "a flow uses no arc");
    const auto [level, a] = levels.top();
    levels.pop();
    const ArcState& arc = arcs_[a];
    if (arc.weight <= kRounding) continue;
    const double now = arc.left / arc.weight;
    if (now > level * (1 + kRounding)) {
      levels.emplace(now, a);
      continue;
    }
    for (std::uint32_t m = arc.begin; m < arc.end; ++m) {
      if (rates[members_[m]] >= 0) continue;
      settle(members_[m], now, uses, rates);
      --unsettled;
    }
  }
}

void MaxMinFair::settle(std::uint32_t flow, double rate, std::span<const std::span<const Use>> uses,
                        std::span<double> rates) {
  rates[flow] = rate;
  for (const Use& use : uses[flow]) {
    ArcState& arc = arcs_[use.arc];
    const auto weight = static_cast<double>(use.weight);
    arc.left = std::max(0.0, arc.left - rate * weight);
    arc.weight -= weight;
  }
}

}  // namespace thalweg::plan
