#include "sim/workload/plan_run.h"

#include "base/check.h"

namespace thalweg::sim {

PlanRun::PlanRun(const plan::Plan& plan, Connections& connections, std::int64_t urgency,
                 std::uint8_t priority, std::function<void(Rank)> rank_done,
                 std::span<const Rank> members, Pace pace)
    : plan_(plan),
      connections_(connections),
      urgency_(urgency),
      priority_(priority),
      rank_done_(std::move(rank_done)),
      members_(members),
      pace_(pace),
      held_(pace == Pace::kRendezvous ? static_cast<std::size_t>(plan.ranks) : 0),
      progress_(plan),
      started_(static_cast<std::size_t>(plan.ranks), 0),
      finished_(static_cast<std::size_t>(plan.ranks), 0) {
  for (Rank helper(plan.contributors); helper.value() < plan.ranks; ++helper) start(helper);
}

void PlanRun::start(Rank rank) {
  CHECK(started_[rank.index()] == 0, "rank {} starts twice", rank.value());
  started_[rank.index()] = 1;
  if (pace_ == Pace::kRendezvous) {
    for (const std::size_t transfer : held_[rank.index()]) send(transfer);
    held_[rank.index()].clear();
  }
  progress_.start(rank, [this](std::size_t transfer) { send(transfer); });
  look_at(rank);
}

void PlanRun::send(std::size_t transfer) {
  const plan::PlanTransfer& t = plan_.transfers[transfer];
  if (pace_ == Pace::kRendezvous && started_[t.target.index()] == 0) {
    held_[t.target.index()].push_back(transfer);
    return;
  }
  const auto on_arrival = [this, transfer] {
    const Rank target = plan_.transfers[transfer].target;
    progress_.arrive(transfer, [this](std::size_t ready) { send(ready); });
    look_at(target);
  };
  connections_.send(member(t.source), member(t.target), plan_.size_of(t.chunk), urgency_,
                    on_arrival,
                    {.priority = priority_, .pull = t.kind == plan::TransferKind::kCopy});
}

void PlanRun::look_at(Rank rank) {
  if (finished_[rank.index()] != 0 || started_[rank.index()] == 0) return;
  if (!progress_.done(rank)) return;
  finished_[rank.index()] = 1;
  if (rank.value() < plan_.contributors) rank_done_(rank);
}

}  // namespace thalweg::sim
