#include "exec/stream_executor.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "base/encode.h"
#include "tensor/reduce.h"

namespace thalweg::exec {

void StreamExecutor::start(const RankPlan& plan, DType type, ReduceOp op,
                           std::span<std::byte* const> memory) {
  CHECK(memory.size() == plan.buffers().size());
  plan_ = &plan;
  type_ = type;
  op_ = op;
  shift_ = static_cast<unsigned>(std::countr_zero(size_of(type)));
  memory_.assign(memory.begin(), memory.end());
  const std::size_t arrivals = plan.arrivals().size();
  if (arrivals_.size() < arrivals) arrivals_.resize(arrivals);
  for (std::size_t i = 0; i < arrivals; ++i) {
    arrivals_[i].received = 0;
    arrivals_[i].stage.clear();
  }
  sent_.assign(plan.sends().size(), 0);
  marked_.assign(plan.sends().size(), 0);
  marked_sends_.clear();
  unfinished_ = arrivals + plan.sends().size();
  progress_.start(plan, true, [&](std::uint32_t b) { return plan.buffers()[b].bytes >> shift_; });
  progress_.begin(Actions{*this});
}

std::span<const std::byte> StreamExecutor::ready(std::uint32_t send) const {
  const RankPlan::Send& s = plan_->sends()[send];
  const RankPlan::Buffer& buffer = plan_->buffers()[s.buffer];
  const std::size_t limit = s.after == 0
                                ? buffer.bytes
                                : progress_.applied(buffer.arrivals[s.after - 1]).count() << shift_;
  return {memory_[s.buffer] + sent_[send], limit - sent_[send]};
}

void StreamExecutor::sent(std::uint32_t send, std::size_t bytes) {
  CHECK(bytes <= ready(send).size());
  sent_[send] += bytes;
  if (sent_all(send)) --unfinished_;
  const Run whole{progress_.left(send).count(), sent_[send] >> shift_};
  if (!whole.empty()) progress_.leave(send, whole, Actions{*this});
}

bool StreamExecutor::poll_ready(std::uint32_t& send) {
  if (marked_sends_.empty()) return false;
  send = marked_sends_.back();
  marked_sends_.pop_back();
  marked_[send] = 0;
  return true;
}

bool StreamExecutor::has_data_for(Rank target) const {
  for (std::uint32_t i = 0; i < plan_->sends().size(); ++i) {
    if (plan_->sends()[i].target == target && !sent_all(i)) return true;
  }
  return false;
}

bool StreamExecutor::needs(Rank rank) const {
  for (std::uint32_t arrival = 0; arrival < plan_->arrivals().size(); ++arrival) {
    if (plan_->arrivals()[arrival].source == rank && outstanding(arrival) > 0) return true;
  }
  return has_data_for(rank);
}

std::optional<Rank> StreamExecutor::waits_for() const {
  for (std::uint32_t arrival = 0; arrival < plan_->arrivals().size(); ++arrival) {
    if (outstanding(arrival) > 0) return plan_->arrivals()[arrival].source;
  }
  for (std::uint32_t i = 0; i < plan_->sends().size(); ++i) {
    if (!sent_all(i)) return plan_->sends()[i].target;
  }
  return std::nullopt;
}

std::span<std::byte> StreamExecutor::place(std::uint32_t arrival) const {
  const RankPlan::Arrival& planned = plan_->arrivals()[arrival];
  const Arrival& state = arrivals_[arrival];
  if (planned.kind != plan::TransferKind::kCopy || !state.stage.empty()) return {};
  std::size_t end = state.received;
  const Run rest{state.received >> shift_, progress_.units_of(planned.buffer)};
  progress_.where_due(arrival, rest, [&](Run part) { end = part.end << shift_; });
  return {memory_[planned.buffer] + state.received, end - state.received};
}

void StreamExecutor::placed(std::uint32_t arrival, std::size_t bytes) {
  CHECK(bytes > 0 && bytes <= place(arrival).size());
  arrivals_[arrival].received += bytes;
  come(arrival, {*this, arrival});
}

void StreamExecutor::consume(std::uint32_t arrival, std::span<const std::byte> bytes) {
  CHECK(bytes.size() <= outstanding(arrival));
  Arrival& state = arrivals_[arrival];
  const std::span<std::byte> into = place(arrival);
  if (!into.empty()) {
    const std::size_t size = std::min(into.size(), bytes.size());
    std::memcpy(into.data(), bytes.data(), size);
    state.received += size;
    come(arrival, {*this, arrival});
    bytes = bytes.subspan(size);
    if (bytes.empty()) return;
  }
  const std::size_t from = state.received;
  state.received += bytes.size();
  if (state.stage.empty()) {
    come(arrival, {*this, arrival, from, bytes.data()});
    state.staged = std::max(from, progress_.applied(arrival).count() << shift_);
    const auto rest = bytes.subspan(state.staged - from);
    state.stage.assign(rest.begin(), rest.end());
  } else {
    state.stage.insert(state.stage.end(), bytes.begin(), bytes.end());
    come(arrival, {*this});
    // An element that is not complete yet leaves its first bytes here.
    const std::size_t applied = progress_.applied(arrival).count() << shift_;
    if (!state.stage.empty() && (state.received - applied) >> shift_ == 0) {
      state.stage.erase(state.stage.begin(),
                        state.stage.end() - static_cast<std::ptrdiff_t>(state.received - applied));
      state.staged = applied;
    }
  }
}

void StreamExecutor::come(std::uint32_t arrival, const Actions& actions) {
  const Run whole{progress_.here(arrival).count(), arrivals_[arrival].received >> shift_};
  if (!whole.empty()) progress_.come(arrival, whole, actions);
}

void StreamExecutor::Actions::apply(std::uint32_t arrival, Run run) const {
  const RankPlan::Arrival& planned = self.plan_->arrivals()[arrival];
  Arrival& state = self.arrivals_[arrival];
  const std::size_t begin = run.begin << self.shift_;
  const bool is_taken = arrival == taken;
  const std::byte* source = nullptr;
  if (!is_taken) source = state.stage.data() + (begin - state.staged);
  if (is_taken && bytes != nullptr) source = bytes + (begin - from);
  std::byte* target = self.memory_[planned.buffer] + begin;
  if (planned.kind == plan::TransferKind::kReduce) {
    tensor::reduce(self.type_, self.op_, target, target, source, run.size());
  } else if (source != nullptr) {
    std::memcpy(target, source, run.size() << self.shift_);
  }
  if (!is_taken && run.end << self.shift_ == state.received) state.stage.clear();
  if (self.progress_.all_applied(arrival)) --self.unfinished_;
}

void StreamExecutor::mark_ready(std::uint32_t send) {
  if (marked_[send] != 0) return;
  marked_[send] = 1;
  marked_sends_.push_back(send);
}

void StreamExecutor::encode_state(std::string& out) const {
  CHECK(marked_sends_.empty());
  for (std::uint32_t arrival = 0; arrival < plan_->arrivals().size(); ++arrival) {
    const Arrival& state = arrivals_[arrival];
    encode(out, state.received);
    encode(out, progress_.applied(arrival).count());
    const std::size_t applied = progress_.applied(arrival).count() << shift_;
    const std::size_t staged = state.stage.empty() ? state.received : state.staged;
    for (std::size_t i = std::max(applied, staged); i < state.received; ++i) {
      out += static_cast<char>(state.stage[i - state.staged]);
    }
  }
  for (const std::size_t sent : sent_) encode(out, sent);
}

}  // namespace thalweg::exec
