#include "sim/workload/plan_run.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "exec/progress.h"

namespace thalweg::sim {
namespace {

constexpr int kIndexBits = 32;

// `Extent`: Prefix where pieces arrive in order, or are whole chunks; else RunSet.
template <class Extent>
class PlanRunBy final : public PlanRun, private FlowWatcher {
 public:
  PlanRunBy(const RunnablePlan& plan, Connections& connections, PlanRunOptions options)
      : plan_(plan),
        connections_(connections),
        options_(std::move(options)),
        number_(connections.next_order()),
        ranks_(plan.ranks.size()) {
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      const exec::RankPlan& of_rank = plan_.ranks[r];
      RankRun& rank = ranks_[r];
      rank.progress.start(of_rank, false, [&](std::uint32_t b) { return units_of(of_rank, b); });
      rank.ended.assign(of_rank.arrivals().size(), false);
      rank.arrivals_left = of_rank.arrivals().size();
      if (connections_.in_pieces()) rank.flows.assign(of_rank.sends().size(), FlowId());
    }
    for (auto r = static_cast<std::size_t>(plan.contributors); r < ranks_.size(); ++r) {
      start(Rank(static_cast<std::int32_t>(r)));
    }
  }

  void start(Rank rank) override;

 private:
  struct Ready {
    std::uint32_t send = 0;
    exec::Run units;
  };
  // Units of an arrival that arrived before the rank started; none if the arrival's transfer ended
  // then.
  struct Early {
    std::uint32_t arrival = 0;
    exec::Run units;
  };
  struct RankRun {
    exec::Progress<Extent> progress;
    std::vector<bool> ended;    // [arrival]: its transfer is over
    std::vector<FlowId> flows;  // [send]: its message, if it has begun; only with pieces
    std::size_t arrivals_left = 0;
    bool started = false;
    bool finished = false;
    bool sending = false;      // send_ready() runs
    std::vector<Ready> ready;  // what may leave and was not sent
    std::vector<Early> early;
    std::vector<std::pair<Rank, Ready>> held;  // sends to this rank that wait for its start
  };
  // What progress.h calls. What becomes ready is sent afterwards, since sending may end a transfer.
  struct Actions {
    PlanRunBy& self;
    std::size_t rank;
    void apply(std::uint32_t arrival, exec::Run /*units*/) const { self.look_at(rank, arrival); }
    void ready(std::uint32_t send, exec::Run units) const {
      self.ranks_[rank].ready.push_back({send, units});
    }
  };

  [[nodiscard]] std::size_t units_of(const exec::RankPlan& plan, std::uint32_t buffer) const {
    const Bytes size(static_cast<std::int64_t>(plan.buffers()[buffer].bytes));
    return connections_.in_pieces() ? connections_.pieces_of(size) : 1;
  }
  [[nodiscard]] Rank member(Rank rank) const {
    return options_.members.empty() ? rank : options_.members[rank.index()];
  }

  void on_arrived(std::uint64_t cookie, exec::Run pieces) override {
    come(cookie >> kIndexBits, static_cast<std::uint32_t>(cookie), pieces);
  }
  void come(std::size_t rank, std::uint32_t arrival, exec::Run units);
  // The transfer is over: what has not come never will.
  void end(std::uint64_t cookie);
  void take(std::size_t rank, const Early& early);
  void look_at(std::size_t rank, std::uint32_t arrival);
  void look_at(std::size_t rank);
  void send_ready(std::size_t rank);
  void send(Rank rank, const Ready& ready);

  const RunnablePlan& plan_;
  Connections& connections_;
  const PlanRunOptions options_;
  const std::uint64_t number_;  // among all runs of the connections
  std::vector<RankRun> ranks_;
};

// What may leave at a rank's start leaves chunk by chunk.
template <class Extent>
void PlanRunBy<Extent>::start(Rank rank) {
  RankRun& run = ranks_[rank.index()];
  CHECK(!run.started, "rank {} starts twice", rank.value());
  run.started = true;
  for (const auto& [source, ready] : std::exchange(run.held, {})) send(source, ready);
  run.progress.begin(Actions{*this, rank.index()});
  for (const Early& early : std::exchange(run.early, {})) take(rank.index(), early);
  const exec::RankPlan& plan = plan_.ranks[rank.index()];
  std::ranges::stable_sort(run.ready, {}, [&](const Ready& ready) {
    const exec::RankPlan::Send& s = plan.sends()[ready.send];
    return std::tuple(plan.buffers()[s.buffer].chunk, s.after, ready.send);
  });
  send_ready(rank.index());
  look_at(rank.index());
}

template <class Extent>
void PlanRunBy<Extent>::come(std::size_t rank, std::uint32_t arrival, exec::Run units) {
  take(rank, {arrival, units});
  send_ready(rank);
  look_at(rank);
}

template <class Extent>
void PlanRunBy<Extent>::end(std::uint64_t cookie) {
  come(cookie >> kIndexBits, static_cast<std::uint32_t>(cookie), {});
}

template <class Extent>
void PlanRunBy<Extent>::take(std::size_t rank, const Early& early) {
  RankRun& run = ranks_[rank];
  if (!run.started) {
    run.early.push_back(early);
    return;
  }
  if (!early.units.empty()) {
    run.progress.come(early.arrival, early.units, Actions{*this, rank});
    return;
  }
  run.ended[early.arrival] = true;
  const Extent here = run.progress.here(early.arrival);
  const std::size_t units =
      run.progress.units_of(plan_.ranks[rank].arrivals()[early.arrival].buffer);
  if (here.count() == units) {
    look_at(rank, early.arrival);
    return;
  }
  here.outside({0, units}, [&](exec::Run missing) {
    run.progress.come(early.arrival, missing, Actions{*this, rank});
  });
}

template <class Extent>
void PlanRunBy<Extent>::look_at(std::size_t rank, std::uint32_t arrival) {
  RankRun& run = ranks_[rank];
  if (run.ended[arrival] && run.progress.all_applied(arrival)) --run.arrivals_left;
}

template <class Extent>
void PlanRunBy<Extent>::look_at(std::size_t rank) {
  RankRun& run = ranks_[rank];
  if (run.finished || !run.started || run.arrivals_left > 0) return;
  run.finished = true;
  const Rank who(static_cast<std::int32_t>(rank));
  if (who.value() < plan_.contributors) options_.rank_done(who);
}

template <class Extent>
void PlanRunBy<Extent>::send_ready(std::size_t rank) {
  RankRun& run = ranks_[rank];
  if (run.sending) return;
  run.sending = true;
  for (std::size_t i = 0; i < run.ready.size(); ++i) {
    const Ready ready = run.ready[i];
    send(Rank(static_cast<std::int32_t>(rank)), ready);
  }
  run.ready.clear();
  run.sending = false;
}

template <class Extent>
void PlanRunBy<Extent>::send(Rank rank, const Ready& ready) {
  const exec::RankPlan& plan = plan_.ranks[rank.index()];
  const exec::RankPlan::Send& s = plan.sends()[ready.send];
  RankRun& target = ranks_[s.target.index()];
  if (options_.pace == Pace::kRendezvous && !target.started) {
    target.held.emplace_back(rank, ready);
    return;
  }
  // Small enough for std::function to keep it without allocating.
  const std::uint64_t cookie = s.target.index() << kIndexBits | s.arrival;
  const auto at_end = [this, cookie] { end(cookie); };
  const Bytes size(static_cast<std::int64_t>(plan.buffers()[s.buffer].bytes));
  const MessageClass kind{.priority = options_.priority,
                          .pull = s.kind == plan::TransferKind::kCopy};
  if (!connections_.in_pieces()) {
    connections_.send(member(rank), member(s.target), size, options_.urgency, at_end, kind);
    return;
  }
  FlowId& flow = ranks_[rank.index()].flows[ready.send];
  if (!flow.valid()) {
    flow = connections_.begin(member(rank), member(s.target), size,
                              {.watcher = this,
                               .cookie = cookie,
                               .urgency = options_.urgency,
                               .order = number_ << kIndexBits | ready.send},
                              at_end, kind);
  }
  connections_.offer(flow, ready.units);
}

}  // namespace

std::unique_ptr<PlanRun> PlanRun::make(const RunnablePlan& plan, Connections& connections,
                                       PlanRunOptions options) {
  if (connections.in_pieces() && connections.loses_order()) {
    return std::make_unique<PlanRunBy<exec::RunSet>>(plan, connections, std::move(options));
  }
  return std::make_unique<PlanRunBy<exec::Prefix>>(plan, connections, std::move(options));
}

}  // namespace thalweg::sim
