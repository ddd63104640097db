#include "exec/segment_executor.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "tensor/reduce.h"

namespace thalweg::exec {
namespace {

// Stores a count as the bits of one element. The element's type is at least 16 bits wide.
void put_count(std::byte* element, std::uint16_t count, std::size_t size) {
  std::memset(element, 0, size);
  std::memcpy(element, &count, sizeof(count));
}

std::uint16_t get_count(const std::byte* element) {
  std::uint16_t count = 0;
  std::memcpy(&count, element, sizeof(count));
  return count;
}

// values *= factor, by doubling, which is exact where the type's sums are.
void multiply(DType type, std::byte* values, std::size_t elements, int factor) {
  const std::vector<std::byte> once(values, values + elements * size_of(type));
  int bit = 1;
  while (bit * 2 <= factor) bit *= 2;
  for (bit /= 2; bit > 0; bit /= 2) {
    tensor::reduce(type, ReduceOp::kSum, values, values, values, elements);
    if ((factor & bit) != 0) {
      tensor::reduce(type, ReduceOp::kSum, values, values, once.data(), elements);
    }
  }
}

// The sign of every floating-point type is the highest bit, in the last byte.
void negate(std::byte* values, std::size_t elements, std::size_t size) {
  for (std::size_t i = 1; i <= elements; ++i) values[i * size - 1] ^= std::byte{0x80};
}

}  // namespace

std::shared_ptr<std::byte> block_from_heap(std::size_t bytes) {
  const std::shared_ptr<std::byte[]> block = std::make_shared_for_overwrite<std::byte[]>(bytes);
  return {block, block.get()};
}

SegmentExecutor::SegmentExecutor(const RankPlan& plan, DType type, ReduceOp op, Layout layout,
                                 std::span<std::byte* const> memory, BlockSource blocks)
    : plan_(plan),
      type_(type),
      op_(op),
      element_(size_of(type)),
      layout_(layout),
      blocks_(std::move(blocks)),
      memory_(memory.begin(), memory.end()),
      incoming_(plan.arrivals().size()),
      lost_(plan.arrivals().size()),
      ended_(plan.arrivals().size()),
      over_(plan.arrivals().size()),
      sent_(plan.sends().size()),
      last_ready_(plan.sends().size()),
      unfinished_(plan.arrivals().size() + plan.sends().size()) {
  CHECK(memory.size() == plan.buffers().size() && data_elements() > 0);
  CHECK(!layout.counted || (is_floating(type) && element_ >= sizeof(std::uint16_t)));
  progress_.start(plan, false, [this](std::uint32_t b) { return count_segments(b); });
  for (std::uint32_t b = 0; b < plan.buffers().size(); ++b) {
    if (layout.counted) {
      counts_.emplace_back(segments_of(b), std::uint16_t{1});
      forgone_.emplace_back(segments_of(b), false);
    }
    versions_.emplace_back(plan.buffers()[b].arrivals.size() + 1);
    std::vector<std::uint32_t>& users = users_.emplace_back(versions_[b].size());
    for (const std::uint32_t send : plan.buffers()[b].sends) ++users[plan.sends()[send].after];
    if (users[0] == 0) continue;
    versions_[b][0] = block_for(b);
    fill(b, 0, {0, segments_of(b)});
  }
  for (std::uint32_t arrival = 0; arrival < incoming_.size(); ++arrival) {
    incoming_[arrival] = block_for(plan.arrivals()[arrival].buffer);
  }
  progress_.begin(Actions{*this});
}

// A chunk without elements is sent too, as one segment without bytes.
std::size_t SegmentExecutor::count_segments(std::uint32_t buffer) const {
  const std::int64_t count = (elements_of(buffer) + data_elements() - 1) / data_elements();
  return static_cast<std::size_t>(std::max<std::int64_t>(count, 1));
}

std::int64_t SegmentExecutor::wire_elements(std::uint32_t buffer) const {
  const std::int64_t elements = elements_of(buffer);
  const bool counts = layout_.counted && elements > 0;
  return elements + (counts ? static_cast<std::int64_t>(segments_of(buffer)) : 0);
}

SegmentExecutor::Block SegmentExecutor::block_for(std::uint32_t buffer) const {
  const std::size_t size = static_cast<std::size_t>(wire_elements(buffer)) * element_;
  return {blocks_(size), size};
}

SegmentExecutor::Piece SegmentExecutor::piece(std::uint32_t buffer, Run segments) const {
  const auto begin = static_cast<std::int64_t>(segments.begin);
  const std::int64_t first = begin * data_elements();
  const std::int64_t end = static_cast<std::int64_t>(segments.end) * data_elements();
  const std::int64_t wire = begin * layout_.segment_elements + (layout_.counted ? 1 : 0);
  return {memory_[buffer] + static_cast<std::size_t>(first) * element_,
          static_cast<std::size_t>(std::min(end, elements_of(buffer)) - first),
          static_cast<std::size_t>(wire) * element_};
}

template <class Each>
void SegmentExecutor::for_pieces(std::uint32_t buffer, Run run, const Each& each) const {
  if (elements_of(buffer) == 0) return;
  if (!layout_.counted) {
    each(piece(buffer, run), run.begin);
    return;
  }
  for (std::size_t s = run.begin; s < run.end; ++s) each(piece(buffer, {s, s + 1}), s);
}

bool SegmentExecutor::poll_ready(Ready& out) {
  if (next_ready_ == ready_.size()) {
    ready_.clear();
    next_ready_ = 0;
    return false;
  }
  out = ready_[next_ready_++];
  if (last_ready_[out.send] == next_ready_) last_ready_[out.send] = 0;
  return true;
}

void SegmentExecutor::make_ready(std::uint32_t send, Run run) {
  if (sent_[send]) return;
  std::size_t& last = last_ready_[send];
  if (last != 0 && ready_[last - 1].segments.end == run.begin) {
    ready_[last - 1].segments.end = run.end;
    return;
  }
  ready_.push_back({send, run});
  last = ready_.size();
}

void SegmentExecutor::sent(std::uint32_t send) {
  CHECK(!sent_[send]);
  const RankPlan::Send& s = plan_.sends()[send];
  sent_[send] = true;
  --unfinished_;
  if (--users_[s.buffer][s.after] == 0) versions_[s.buffer][s.after] = {};
}

void SegmentExecutor::fill(std::uint32_t buffer, std::uint32_t version, Run run) {
  std::byte* wire = versions_[buffer][version].memory.get();
  for_pieces(buffer, run, [&](const Piece& from, std::size_t segment) {
    std::byte* to = wire + from.wire;
    if (layout_.counted) put_count(to - element_, counts_[buffer][segment], element_);
    std::memcpy(to, from.values, from.elements * element_);
  });
}

void SegmentExecutor::arrived(std::uint32_t arrival, Run segments) {
  CHECK(!ended_[arrival] && segments.end <= segments_of(plan_.arrivals()[arrival].buffer));
  progress_.come(arrival, segments, Actions{*this});
}

void SegmentExecutor::ended(std::uint32_t arrival) {
  CHECK(!ended_[arrival]);
  ended_[arrival] = true;
  const std::uint32_t buffer = plan_.arrivals()[arrival].buffer;
  const bool empty = elements_of(buffer) == 0;
  const Run all{0, segments_of(buffer)};
  const std::size_t missing = all.size() - progress_.here(arrival).count();
  CHECK(layout_.counted || empty || missing == 0);
  if (layout_.counted && !empty) {
    segments_wanted_ += all.size();
    segments_lost_ += missing;
  }
  if (missing > 0) {
    progress_.here(arrival).outside(all, [&](Run run) { lost_[arrival].add(run); });
    lost_[arrival].inside(all, [&](Run run) { progress_.come(arrival, run, Actions{*this}); });
  }
  look_at(arrival);
}

void SegmentExecutor::Actions::apply(std::uint32_t arrival, Run run) const {
  self.lost_[arrival].inside(run, [&](Run part) { self.apply(arrival, part, true); });
  self.lost_[arrival].outside(run, [&](Run part) { self.apply(arrival, part, false); });
  self.look_at(arrival);
}

void SegmentExecutor::apply(std::uint32_t arrival, Run run, bool lost) {
  const RankPlan::Arrival& planned = plan_.arrivals()[arrival];
  const std::uint32_t buffer = planned.buffer;
  const bool copies = planned.kind == plan::TransferKind::kCopy;
  const std::byte* wire = incoming_[arrival].memory.get();
  for_pieces(buffer, run, [&](const Piece& to, std::size_t segment) {
    const std::byte* from = wire + to.wire;
    if (layout_.counted && copies) forgone_[buffer][segment] = lost;
    if (lost) return;
    if (layout_.counted) {
      std::uint16_t& count = counts_[buffer][segment];
      count = static_cast<std::uint16_t>(get_count(from - element_) + (copies ? 0 : count));
    }
    if (copies) {
      std::memcpy(to.values, from, to.elements * element_);
    } else {
      tensor::reduce(type_, op_, to.values, to.values, from, to.elements);
    }
  });
  const std::uint32_t version = planned.order + 1;
  if (users_[buffer][version] == 0) return;
  Block& carried = versions_[buffer][version];
  if (!carried.memory) carried = copies ? incoming_[arrival] : block_for(buffer);
  if (lost || !copies) fill(buffer, version, run);
}

void SegmentExecutor::look_at(std::uint32_t arrival) {
  if (!ended_[arrival] || over_[arrival] || !progress_.all_applied(arrival)) return;
  over_[arrival] = true;
  incoming_[arrival] = {};
  --unfinished_;
}

void SegmentExecutor::finish(bool mean, int ranks) {
  CHECK(done());
  for (std::uint32_t b = 0; b < counts_.size(); ++b) {
    for (std::uint32_t s = 0; s < counts_[b].size(); ++s) {
      const int count = counts_[b][s];
      if (!mean && count == ranks) continue;
      const Piece at = piece(b, {s, s + 1});
      tensor::finish_mean(type_, at.values, at.elements, count);
      if (!mean) multiply(type_, at.values, at.elements, ranks);
    }
  }
}

void SegmentExecutor::keep_residual(int ranks, const std::byte* tensor, std::byte* residual) const {
  CHECK(done() && layout_.counted);
  for (std::uint32_t b = 0; b < counts_.size(); ++b) {
    for (std::uint32_t s = 0; s < counts_[b].size(); ++s) {
      const Piece average = piece(b, {s, s + 1});
      std::byte* own = residual + (average.values - tensor);
      if (counts_[b][s] >= ranks || forgone_[b][s]) {
        std::memset(own, 0, average.elements * element_);
        continue;
      }
      negate(own, average.elements, element_);
      tensor::reduce(type_, ReduceOp::kSum, own, own, average.values, average.elements);
      negate(own, average.elements, element_);
    }
  }
}

double SegmentExecutor::arrived_fraction() const {
  if (segments_wanted_ == 0) return 1;
  return 1 - static_cast<double>(segments_lost_) / static_cast<double>(segments_wanted_);
}

}  // namespace thalweg::exec
