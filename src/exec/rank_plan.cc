#include "exec/rank_plan.h"

#include <algorithm>

#include "base/check.h"

namespace thalweg::exec {

RankPlan::RankPlan(const plan::Plan& plan)
    : tensor_bytes_(static_cast<std::size_t>(plan.elements * plan.element_bytes)),
      least_chunk_(tensor_bytes_) {
  for (std::size_t i = 0; i < plan.chunks.size(); ++i) {
    const ChunkIndex chunk(static_cast<std::int32_t>(i));
    least_chunk_ = std::min(least_chunk_, static_cast<std::size_t>(plan.size_of(chunk).count()));
  }
}

RankPlan::RankPlan(const plan::Plan& plan, Rank rank) : RankPlan(plan) {
  CHECK(rank.valid() && rank.value() < plan.ranks);
  BufferOfChunk known;
  std::vector<std::uint32_t> next_arrival(static_cast<std::size_t>(plan.ranks), 0);
  for (const plan::PlanTransfer& transfer : plan.transfers) {
    const std::uint32_t arrival = next_arrival[transfer.target.index()]++;
    if (transfer.source == rank) {
      add_send(transfer, arrival, buffer_of(transfer.chunk, plan, known));
    } else if (transfer.target == rank) {
      add_arrival(transfer, arrival, buffer_of(transfer.chunk, plan, known));
    }
  }
  finish();
}

std::vector<RankPlan> RankPlan::of_all(const plan::Plan& plan) {
  const auto ranks = static_cast<std::size_t>(plan.ranks);
  std::vector<RankPlan> parts(ranks, RankPlan(plan));
  std::vector<BufferOfChunk> known(ranks);
  for (const plan::PlanTransfer& transfer : plan.transfers) {
    RankPlan& source = parts[transfer.source.index()];
    RankPlan& target = parts[transfer.target.index()];
    const auto arrival = static_cast<std::uint32_t>(target.arrivals_.size());
    source.add_send(transfer, arrival,
                    source.buffer_of(transfer.chunk, plan, known[transfer.source.index()]));
    target.add_arrival(transfer, arrival,
                       target.buffer_of(transfer.chunk, plan, known[transfer.target.index()]));
  }
  for (RankPlan& part : parts) part.finish();
  return parts;
}

std::uint32_t RankPlan::buffer_of(ChunkIndex chunk, const plan::Plan& plan, BufferOfChunk& known) {
  const auto [place, is_new] =
      known.try_emplace(chunk.value(), static_cast<std::uint32_t>(buffers_.size()));
  if (is_new) {
    buffers_.push_back({chunk, static_cast<std::size_t>(plan.size_of(chunk).count()), {}, {}});
  }
  return place->second;
}

void RankPlan::add_send(const plan::PlanTransfer& transfer, std::uint32_t arrival,
                        std::uint32_t buffer) {
  buffers_[buffer].sends.push_back(static_cast<std::uint32_t>(sends_.size()));
  sends_.push_back({transfer.target, arrival, buffer, static_cast<std::uint32_t>(transfer.after),
                    transfer.kind});
  peers_.push_back(transfer.target);
}

void RankPlan::add_arrival(const plan::PlanTransfer& transfer, std::uint32_t arrival,
                           std::uint32_t buffer) {
  CHECK(arrival == arrivals_.size());
  const auto order = static_cast<std::uint32_t>(buffers_[buffer].arrivals.size());
  buffers_[buffer].arrivals.push_back(arrival);
  arrivals_.push_back({transfer.source, buffer, order, transfer.kind});
  peers_.push_back(transfer.source);
}

void RankPlan::finish() {
  for (Buffer& buffer : buffers_) {
    std::ranges::stable_sort(buffer.sends, {}, [&](std::uint32_t i) { return sends_[i].after; });
  }
  std::ranges::sort(peers_);
  const auto [first, last] = std::ranges::unique(peers_);
  peers_.erase(first, last);
}

std::size_t RankPlan::part_begin(std::size_t bytes, std::size_t index, std::size_t count) {
  if (index == count) return bytes;
  const std::size_t begin = bytes / count * index + bytes % count * index / count;
  return begin - begin % kLeastPart;
}

RankPlan RankPlan::part(std::size_t index, std::size_t count) const {
  CHECK(index < count);
  RankPlan part = *this;
  for (Buffer& buffer : part.buffers_) {
    CHECK(buffer.bytes >= kLeastPart * count);
    buffer.bytes =
        part_begin(buffer.bytes, index + 1, count) - part_begin(buffer.bytes, index, count);
  }
  return part;
}

RankPlan message_plan(std::int64_t elements, int element_bytes, bool sends) {
  plan::Plan plan;
  plan.ranks = 2;
  plan.contributors = 2;
  plan.elements = elements;
  plan.element_bytes = element_bytes;
  plan.chunks = {{.offset = 0, .length = elements, .source = Rank(0), .target = Rank(1)}};
  plan.transfers = {{Rank(0), Rank(1), ChunkIndex(0), 0, plan::TransferKind::kCopy}};
  return {plan, Rank(sends ? 0 : 1)};
}

}  // namespace thalweg::exec
