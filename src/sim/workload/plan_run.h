// Runs a plan as traffic: every transfer becomes a message once its source has what it carries.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "plan/plan.h"
#include "plan/progress.h"
#include "sim/hosts/connections.h"

namespace thalweg::sim {

// With kEager, calls and messages for different ranks touch different memory, so the ranks may be
// in different shards of the network. With kRendezvous they may not.
class PlanRun {
 public:
  // When a transfer may leave. kEager: as soon as its source has what it carries, for targets that
  // keep it until they need it. kRendezvous: not before the target has started too, for targets
  // that receive in place and hold the sender back until then, as flow control does.
  enum class Pace : std::uint8_t { kEager, kRendezvous };

  // `rank_done(rank)` is called once for every contributor, when it has all it waits for. The plan
  // must be proved and outlive this object. Lower urgency goes first on a connection; `priority` is
  // the queue of DLCP's data. Sums travel as pulls. Rank i of the plan is members[i] of the
  // connections, or i if `members` is empty; the members must outlive this object.
  PlanRun(const plan::Plan& plan, Connections& connections, std::int64_t urgency,
          std::uint8_t priority, std::function<void(Rank)> rank_done,
          std::span<const Rank> members = {}, Pace pace = Pace::kEager);

  // The rank's own contribution is ready. Called once per contributor; the constructor starts the
  // ranks that only help.
  void start(Rank rank);

 private:
  void send(std::size_t transfer);
  void look_at(Rank rank);
  [[nodiscard]] Rank member(Rank rank) const {
    return members_.empty() ? rank : members_[rank.index()];
  }

  const plan::Plan& plan_;
  Connections& connections_;
  const std::int64_t urgency_;
  const std::uint8_t priority_;
  std::function<void(Rank)> rank_done_;
  const std::span<const Rank> members_;
  const Pace pace_;
  // [rank]: transfers that wait for that rank to start.
  std::vector<std::vector<std::size_t>> held_;
  plan::PlanProgress progress_;
  std::vector<std::uint8_t> started_;   // [rank]; bytes, so that ranks do not share words
  std::vector<std::uint8_t> finished_;  // [rank]
};

}  // namespace thalweg::sim
