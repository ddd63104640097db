#include "exec/executor.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/encode.h"
#include "tensor/reduce.h"

namespace thalweg::exec {

void Executor::start(const RankPlan& plan, DType type, ReduceOp op,
                     std::span<std::byte* const> memory) {
  CHECK(memory.size() == plan.buffers().size());
  plan_ = &plan;
  type_ = type;
  op_ = op;
  element_ = size_of(type);
  memory_.assign(memory.begin(), memory.end());
  const std::size_t arrivals = plan.arrivals().size();
  if (arrivals_.size() < arrivals) arrivals_.resize(arrivals);
  for (std::size_t i = 0; i < arrivals; ++i) {
    ArrivalState& state = arrivals_[i];
    state.received = 0;
    state.applied = 0;
    state.stage.clear();
    state.stage_base = 0;
  }
  sent_.assign(plan.sends().size(), 0);
  marked_.assign(plan.sends().size(), 0);
  marked_sends_.clear();
  unfinished_ = arrivals + plan.sends().size();
  for (std::uint32_t i = 0; i < plan.sends().size(); ++i) {
    if (plan.sends()[i].after == 0) mark_ready(i);
  }
}

std::span<const std::byte> Executor::ready(std::uint32_t send) const {
  const RankPlan::Send& s = plan_->sends()[send];
  const RankPlan::Buffer& buffer = plan_->buffers()[s.buffer];
  const std::size_t limit =
      s.after == 0 ? buffer.bytes : arrivals_[buffer.arrivals[s.after - 1]].applied;
  return {memory_[s.buffer] + sent_[send], limit - sent_[send]};
}

void Executor::sent(std::uint32_t send, std::size_t bytes) {
  CHECK(bytes <= ready(send).size());
  sent_[send] += bytes;
  const RankPlan::Send& s = plan_->sends()[send];
  const RankPlan::Buffer& buffer = plan_->buffers()[s.buffer];
  if (sent_[send] == buffer.bytes) --unfinished_;
  if (s.after < buffer.arrivals.size()) apply_staged(buffer.arrivals[s.after]);
}

bool Executor::poll_ready(std::uint32_t& send) {
  if (marked_sends_.empty()) return false;
  send = marked_sends_.back();
  marked_sends_.pop_back();
  marked_[send] = 0;
  return true;
}

bool Executor::has_data_for(Rank target) const {
  for (std::uint32_t i = 0; i < plan_->sends().size(); ++i) {
    if (plan_->sends()[i].target == target && !sent_all(i)) return true;
  }
  return false;
}

bool Executor::needs(Rank rank) const {
  for (std::uint32_t slot = 0; slot < plan_->arrivals().size(); ++slot) {
    if (plan_->arrivals()[slot].source == rank && outstanding(slot) > 0) return true;
  }
  return has_data_for(rank);
}

std::optional<Rank> Executor::waits_for() const {
  for (std::uint32_t slot = 0; slot < plan_->arrivals().size(); ++slot) {
    if (outstanding(slot) > 0) return plan_->arrivals()[slot].source;
  }
  for (std::uint32_t i = 0; i < plan_->sends().size(); ++i) {
    if (!sent_all(i)) return plan_->sends()[i].target;
  }
  return std::nullopt;
}

std::size_t Executor::allowed(std::uint32_t slot) const {
  const RankPlan::Arrival& arrival = plan_->arrivals()[slot];
  const RankPlan::Buffer& buffer = plan_->buffers()[arrival.buffer];
  std::size_t limit = buffer.bytes;
  if (arrival.order > 0) limit = arrivals_[buffer.arrivals[arrival.order - 1]].applied;
  for (const std::uint32_t send : buffer.sends) {
    const std::uint32_t after = plan_->sends()[send].after;
    if (after == arrival.order) limit = std::min(limit, sent_[send]);
    if (after > arrival.order) break;
  }
  return limit;
}

std::size_t Executor::appliable(std::uint32_t slot) const {
  const ArrivalState& state = arrivals_[slot];
  std::size_t limit = std::min(state.received, allowed(slot));
  if (plan_->arrivals()[slot].kind == plan::TransferKind::kReduce) limit -= limit % element_;
  return limit - state.applied;
}

std::span<std::byte> Executor::place(std::uint32_t slot) const {
  const RankPlan::Arrival& arrival = plan_->arrivals()[slot];
  const ArrivalState& state = arrivals_[slot];
  if (arrival.kind != plan::TransferKind::kCopy || state.applied != state.received) return {};
  return {memory_[arrival.buffer] + state.received, allowed(slot) - state.received};
}

void Executor::placed(std::uint32_t slot, std::size_t bytes) {
  ArrivalState& state = arrivals_[slot];
  CHECK(bytes > 0 && bytes <= place(slot).size());
  state.received += bytes;
  state.applied += bytes;
  after_applied(slot);
}

void Executor::consume(std::uint32_t slot, std::span<const std::byte> bytes) {
  ArrivalState& state = arrivals_[slot];
  CHECK(bytes.size() <= outstanding(slot));
  const bool nothing_staged = state.applied == state.received;
  state.received += bytes.size();
  if (nothing_staged) {
    const std::size_t now = appliable(slot);
    if (now > 0) apply(slot, bytes.first(now));
    bytes = bytes.subspan(now);
    state.stage.clear();
    state.stage_base = state.applied;
  }
  if (!bytes.empty()) {
    state.stage.insert(state.stage.end(), bytes.begin(), bytes.end());
    apply_staged(slot);
  }
}

void Executor::apply_staged(std::uint32_t slot) {
  const ArrivalState& state = arrivals_[slot];
  const std::size_t now = appliable(slot);
  if (now == 0) return;
  apply(slot, std::span(state.stage).subspan(state.applied - state.stage_base, now));
}

void Executor::apply(std::uint32_t slot, std::span<const std::byte> bytes) {
  const RankPlan::Arrival& arrival = plan_->arrivals()[slot];
  ArrivalState& state = arrivals_[slot];
  std::byte* target = memory_[arrival.buffer] + state.applied;
  if (arrival.kind == plan::TransferKind::kCopy) {
    std::memcpy(target, bytes.data(), bytes.size());
  } else {
    tensor::reduce(type_, op_, target, target, bytes.data(), bytes.size() / element_);
  }
  state.applied += bytes.size();
  after_applied(slot);
}

void Executor::after_applied(std::uint32_t slot) {
  const RankPlan::Arrival& arrival = plan_->arrivals()[slot];
  const RankPlan::Buffer& buffer = plan_->buffers()[arrival.buffer];
  if (arrivals_[slot].applied == buffer.bytes) --unfinished_;
  const std::uint32_t version = arrival.order + 1;
  for (const std::uint32_t send : buffer.sends) {
    if (plan_->sends()[send].after == version) mark_ready(send);
  }
  if (version < buffer.arrivals.size()) apply_staged(buffer.arrivals[version]);
}

void Executor::mark_ready(std::uint32_t send) {
  if (marked_[send] != 0) return;
  marked_[send] = 1;
  marked_sends_.push_back(send);
}

void Executor::encode_state(std::string& out) const {
  CHECK(marked_sends_.empty());
  for (std::size_t slot = 0; slot < plan_->arrivals().size(); ++slot) {
    const ArrivalState& state = arrivals_[slot];
    encode(out, state.received);
    encode(out, state.applied);
    for (std::size_t i = state.applied; i < state.received; ++i) {
      out += static_cast<char>(state.stage[i - state.stage_base]);
    }
  }
  for (const std::size_t sent : sent_) encode(out, sent);
}

}  // namespace thalweg::exec
