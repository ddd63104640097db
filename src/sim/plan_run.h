// A plan as traffic: every transfer becomes a message once its version is there.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "plan/plan.h"
#include "plan/progress.h"
#include "sim/connections.h"

namespace thalweg {

class PlanRun {
 public:
  // When a transfer may leave: as soon as there is what it carries, for targets that keep it until
  // they need it; or not before the target has started too, for targets that receive in place and
  // hold the sender back until then, as flow control does.
  enum class Pace : std::uint8_t { kEager, kRendezvous };

  // `rank_done(rank)` is called once for every rank, when it has all it waits for. The plan must be
  // proved and outlive this. Lower urgency goes first on a connection; `priority` is the queue
  // of DLCP's data. Sums travel as pulls. Rank i of the plan is members[i] of the connections, or
  // i where there are none; the members must outlive this.
  PlanRun(const Plan& plan, Connections& connections, std::int64_t urgency, std::uint8_t priority,
          std::function<void(Rank)> rank_done, std::span<const Rank> members = {},
          Pace pace = Pace::kEager);

  // The rank's own contribution is there. Once a rank; ranks that only help are started here.
  void start(Rank rank);

 private:
  void send(std::size_t transfer);
  void look_at(Rank rank);
  [[nodiscard]] Rank member(Rank rank) const {
    return members_.empty() ? rank : members_[rank.index()];
  }

  const Plan& plan_;
  Connections& connections_;
  const std::int64_t urgency_;
  const std::uint8_t priority_;
  std::function<void(Rank)> rank_done_;
  const std::span<const Rank> members_;
  const Pace pace_;
  std::vector<std::vector<std::size_t>> held_;  // [rank]: transfers that wait for it to start
  PlanProgress progress_;
  std::vector<bool> started_;   // [rank]
  std::vector<bool> finished_;  // [rank]
};

}  // namespace thalweg
