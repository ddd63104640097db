// PlanProgress: which transfers may be sent next. It keeps the versions of a plan (plan.h) without
// any notion of time: the caller says when a rank's own tensor is ready and what has arrived, and
// learns which transfers are ready.
//
// The cost model runs plans by this, as fluid (cost.cc). What sends bytes or packets, which can be
// forwarded before their transfer is complete, runs them by exec/progress.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "plan/buckets.h"
#include "plan/plan.h"

namespace thalweg::plan {

class PlanProgress {
 public:
  // The plan must be proved (verify.h) and outlive this object.
  explicit PlanProgress(const Plan& plan);

  // The rank's own contribution is ready (or it has none). Must be called once per rank. Calls
  // `ready(transfer)` for each transfer, by its index in the plan, that may now be sent.
  template <class Ready>
  void start(Rank rank, Ready ready) {
    for (const std::uint32_t buffer : buffers_of_rank_[rank.index()]) {
      version_[buffer] = 0;
      advance(buffer, ready);
    }
  }

  // The transfer has reached its target. Must be called once per transfer, in any order.
  template <class Ready>
  void arrive(std::size_t transfer, Ready ready) {
    has_arrived_[transfer] = true;
    const std::uint32_t buffer = target_buffer_[transfer];
    if (version_[buffer] != kNotStarted) advance(buffer, ready);
  }

  // Whether everything that the rank waits for has been applied.
  [[nodiscard]] bool done(Rank rank) const { return arrivals_left_[rank.index()] == 0; }

 private:
  static constexpr std::int32_t kNotStarted = -1;

  struct Index;
  explicit PlanProgress(const Plan& plan, Index index);

  // Applies the arrivals whose turn it is, then reports the transfers that carry the current
  // version.
  template <class Ready>
  void advance(std::uint32_t buffer, Ready ready) {
    const auto arrivals = arrivals_[buffer];
    std::int32_t& version = version_[buffer];
    while (static_cast<std::size_t>(version) < arrivals.size() &&
           has_arrived_[arrivals[static_cast<std::size_t>(version)]]) {
      ++version;
      --arrivals_left_[rank_of_[buffer].index()];
    }
    const auto sends = sends_[buffer];
    std::uint32_t& next = next_send_[buffer];
    while (next < sends.size() && plan_.transfers[sends[next]].after <= version) {
      ready(static_cast<std::size_t>(sends[next++]));
    }
  }

  const Plan& plan_;
  // Buffers are the (rank, chunk) pairs that some transfer touches, numbered from 0: an all-to-all
  // of 1,024 ranks has a billion pairs and touches two million.
  std::vector<std::uint32_t> target_buffer_;  // [transfer]
  std::vector<Rank> rank_of_;                 // [buffer]
  Buckets buffers_of_rank_;
  Buckets sends_;     // [buffer]: transfers that read it, by version
  Buckets arrivals_;  // [buffer]: transfers that write it, in plan order
  std::vector<std::uint32_t> next_send_;
  std::vector<std::int32_t> version_;
  std::vector<bool> has_arrived_;            // [transfer]
  std::vector<std::int32_t> arrivals_left_;  // [rank]
};

}  // namespace thalweg::plan
