// How flows end: the notices between their two ends, and the report.
#include <fmt/core.h>

#include <utility>

#include "base/check.h"
#include "sim/hosts/host.h"

namespace thalweg::sim {

void Hosts::end_incoming(IncomingFlow& flow) {
  flow.ended = true;
  const std::int64_t when = events_.now_ps() + flow.notice_ps;
  const std::size_t there = shard_of(flow.spec.source);
  if (there != shard_) {
    post_.send(there, EndedLetter{when, flow.id, events_.now()});
  } else {
    const std::size_t index = index_of(flow.id);
    flows_[index]->end = events_.now();
    events_.push(when, EventKind::kFlowEnded, static_cast<std::uint32_t>(index), 0, 0);
  }
  if (flow.arrived) std::exchange(flow.arrived, nullptr)();
}

void Hosts::on_ended(const Event& event) {
  const std::size_t index = event.subject;
  Flow* const flow = flows_[index].get();
  if (flow == nullptr) return report_other(index);
  flow->reported = true;
  --active_;
  if (!flow->closed) keep_window(*flow);
  const FlowShape shape{flow->spec.bytes, flow->largest, flow->smallest, flow->uniform,
                        flow->header_bytes + framing_bytes_};
  FlowResult result;
  result.id = FlowId(static_cast<std::int32_t>(index << flow_shift_ | shard_));
  result.number = flow->number;
  result.spec = flow->spec;
  result.start = flow->start;
  result.end = flow->end;
  result.counters = flow->sender->counters();
  const std::function<void()> finished = std::exchange(flow->finished, nullptr);
  if (flow->closed) flows_[index].reset();
  report(result, shape);
  if (finished) finished();
}

void Hosts::close(std::size_t index, Flow& flow) {
  keep_window(flow);
  if (flow.timer_ps != kNoTimer) ++void_timers_;
  flow.closed = true;
  const std::size_t there = shard_of(flow.spec.target);
  const ClosedLetter letter{events_.now_ps() + flow.notice_ps, flow.incoming};
  if (there == shard_) {
    expect_closed(shard_, letter);
  } else {
    post_.send(there, letter);
  }
  if (flow.reported) flows_[index].reset();
}

// Nothing happens because a receiver is forgotten, so a simulation does not go on for that.
void Hosts::expect_closed(std::size_t source_shard, const ClosedLetter& letter) {
  ++void_timers_;
  events_.push(letter.time_ps, EventKind::kFlowClosed, letter.incoming,
               static_cast<std::uint32_t>(source_shard), 0);
}

void Hosts::on_closed(const Event& event) {
  --void_timers_;
  incoming_[event.arc][event.subject].reset();
}

void Hosts::end_other(FlowResult& result, const FlowShape& shape, bool at_once) {
  const std::size_t index = result.id.index();
  OtherFlow& other = others_.at(index);
  other.result = result;
  other.shape = shape;
  const std::function<void()> arrived = std::exchange(other.hooks.arrived, nullptr);
  if (at_once) {
    report_other(index);
  } else {
    const Duration notice = oracle_.propagation_time(result.spec.target, result.spec.source);
    events_.push(events_.now_ps() + notice.ps(), EventKind::kFlowEnded,
                 static_cast<std::uint32_t>(index), 0, 0);
  }
  if (arrived) arrived();
}

void Hosts::report_other(std::size_t index) {
  const auto found = others_.find(index);
  CHECK(found != others_.end());
  OtherFlow other = std::move(found->second);
  others_.erase(found);
  --active_;
  other.result.number = other.number;
  report(other.result, other.shape);
  if (other.hooks.finished) other.hooks.finished();
}

}  // namespace thalweg::sim
