// Progress: which parts of a rank's chunks may be applied, and which may be sent. It is the one
// rule by which plans run: over streams (stream_executor.h), in packets that may be lost
// (segment_executor.h), and in the simulator (sim/workload/plan_run.h), which moves no data. It has
// neither memory for data nor I/O.
//
// In every unit of a buffer, by itself,
//
//   arrival k may be applied     when it has come, arrival k − 1 was applied, and every send of
//                                version k has left, if sends read the buffer itself;
//   a send of version k may leave  when arrival k − 1 was applied (k = 0: at once).
//
// So sums are made in the plan's order, no send sees a later version, and a rank forwards what it
// has while the rest of the chunk arrives. An arrival is always taken: the network never has to
// wait for another transfer, so ranks cannot wait for each other in a cycle. A unit that will never
// come, because its transfer ended within its loss bound, takes its turn like one that came.
//
// Whoever runs a plan passes Actions, with
//
//   apply(arrival, run)   these units of the arrival are applied now, in the plan's order
//   ready(send, run)   these units of the send may leave from now on
//
// `Extent` is Prefix where units come and leave in order, and RunSet elsewhere (extent.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include "exec/extent.h"
#include "exec/rank_plan.h"

namespace thalweg::exec {

template <class Extent>
class Progress {
 public:
  // Begins a run. `units_of(buffer)`: of how many units the buffer consists. `in_place`: sends read
  // the buffers themselves, and leave() is called. The plan must outlive the run.
  template <class UnitsOf>
  void start(const RankPlan& plan, bool in_place, const UnitsOf& units_of);
  // Reports what may leave before anything has come. Call once, after start().
  template <class Actions>
  void begin(Actions&& actions);

  // These units of the arrival have come, or never will. Requires that they had not.
  template <class Actions>
  void come(std::uint32_t arrival, Run run, Actions&& actions);
  // These units of the send have left. Requires that they were ready and had not left.
  template <class Actions>
  void leave(std::uint32_t send, Run run, Actions&& actions);

  [[nodiscard]] std::size_t units_of(std::uint32_t buffer) const { return units_[buffer]; }
  [[nodiscard]] const Extent& here(std::uint32_t arrival) const { return here_[arrival]; }
  [[nodiscard]] const Extent& applied(std::uint32_t arrival) const { return applied_[arrival]; }
  [[nodiscard]] const Extent& left(std::uint32_t send) const { return left_[send]; }
  // Whether all of the arrival was applied; whether all of the send has left.
  [[nodiscard]] bool all_applied(std::uint32_t arrival) const {
    return applied_[arrival].count() == units_[plan_->arrivals()[arrival].buffer];
  }
  [[nodiscard]] bool all_left(std::uint32_t send) const {
    return left_[send].count() == units_[plan_->sends()[send].buffer];
  }
  // Calls each(part) for the parts of the run that could be applied if they came now.
  template <class Each>
  void where_due(std::uint32_t arrival, Run run, const Each& each) const;

 private:
  // Calls each(part) where all sends of the version, from the one at `next` on, have left.
  template <class Each>
  void where_left(const RankPlan::Buffer& buffer, std::size_t next, std::uint32_t version, Run run,
                  const Each& each) const;
  // Applies what may be applied of the arrival within the run, and of those that follow it.
  template <class Actions>
  void advance(std::uint32_t arrival, Run run, Actions& actions);

  const RankPlan* plan_ = nullptr;
  bool in_place_ = false;
  std::vector<std::size_t> units_;                  // [buffer]
  std::vector<Extent> here_;                        // [arrival]
  std::vector<Extent> applied_;                     // [arrival]
  std::vector<Extent> left_;                        // [send]
  std::vector<std::pair<std::uint32_t, Run>> due_;  // what advance() still has to look at
};

template <class Extent>
template <class UnitsOf>
void Progress<Extent>::start(const RankPlan& plan, bool in_place, const UnitsOf& units_of) {
  plan_ = &plan;
  in_place_ = in_place;
  units_.clear();
  for (std::uint32_t b = 0; b < plan.buffers().size(); ++b) units_.push_back(units_of(b));
  const auto reset = [](std::vector<Extent>& extents, std::size_t count) {
    if (extents.size() < count) extents.resize(count);
    for (std::size_t i = 0; i < count; ++i) extents[i].clear();
  };
  reset(here_, plan.arrivals().size());
  reset(applied_, plan.arrivals().size());
  reset(left_, plan.sends().size());
}

template <class Extent>
template <class Actions>
void Progress<Extent>::begin(Actions&& actions) {
  for (std::uint32_t send = 0; send < plan_->sends().size(); ++send) {
    const RankPlan::Send& s = plan_->sends()[send];
    if (s.after == 0) actions.ready(send, Run{0, units_[s.buffer]});
  }
}

template <class Extent>
template <class Actions>
void Progress<Extent>::come(std::uint32_t arrival, Run run, Actions&& actions) {
  here_[arrival].add(run);
  advance(arrival, run, actions);
}

template <class Extent>
template <class Actions>
void Progress<Extent>::leave(std::uint32_t send, Run run, Actions&& actions) {
  left_[send].add(run);
  const RankPlan::Send& s = plan_->sends()[send];
  const RankPlan::Buffer& buffer = plan_->buffers()[s.buffer];
  if (in_place_ && s.after < buffer.arrivals.size()) {
    advance(buffer.arrivals[s.after], run, actions);
  }
}

template <class Extent>
template <class Each>
void Progress<Extent>::where_left(const RankPlan::Buffer& buffer, std::size_t next,
                                  std::uint32_t version, Run run, const Each& each) const {
  for (; in_place_ && next < buffer.sends.size(); ++next) {
    const std::uint32_t send = buffer.sends[next];
    const std::uint32_t after = plan_->sends()[send].after;
    if (after > version) break;
    if (after < version) continue;
    left_[send].inside(run, [&](Run part) { where_left(buffer, next + 1, version, part, each); });
    return;
  }
  each(run);
}

template <class Extent>
template <class Each>
void Progress<Extent>::where_due(std::uint32_t arrival, Run run, const Each& each) const {
  const RankPlan::Arrival& planned = plan_->arrivals()[arrival];
  const RankPlan::Buffer& buffer = plan_->buffers()[planned.buffer];
  const auto then = [&](Run part) { where_left(buffer, 0, planned.order, part, each); };
  if (planned.order == 0) {
    then(run);
  } else {
    applied_[buffer.arrivals[planned.order - 1]].inside(run, then);
  }
}

template <class Extent>
template <class Actions>
void Progress<Extent>::advance(std::uint32_t arrival, Run run, Actions& actions) {
  // What is to be looked at next. Only where units come in any order there may be more, in due_.
  bool more = true;
  while (more) {
    more = false;
    const std::uint32_t at = arrival;
    const RankPlan::Arrival& planned = plan_->arrivals()[at];
    const RankPlan::Buffer& buffer = plan_->buffers()[planned.buffer];
    const std::uint32_t version = planned.order + 1;
    const auto apply = [&](Run part) {
      applied_[at].add(part);
      actions.apply(at, part);
      for (const std::uint32_t send : buffer.sends) {
        const std::uint32_t after = plan_->sends()[send].after;
        if (after == version) actions.ready(send, part);
        if (after > version) break;
      }
      if (version >= buffer.arrivals.size()) return;
      if (more) due_.emplace_back(arrival, run);
      more = true;
      arrival = buffer.arrivals[version];
      run = part;
    };
    const Run within = run;
    here_[at].inside(within, [&](Run part) { where_due(at, part, apply); });
    if (more || due_.empty()) continue;
    std::tie(arrival, run) = due_.back();
    due_.pop_back();
    more = true;
  }
}

}  // namespace thalweg::exec
