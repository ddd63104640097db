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
      progress_(plan, count_segments()),
      incoming_(plan.arrivals().size()),
      ended_(plan.arrivals().size()),
      over_(plan.arrivals().size()),
      sent_(plan.sends().size()),
      last_ready_(plan.sends().size()),
      unfinished_(plan.arrivals().size() + plan.sends().size()) {
  CHECK(memory.size() == plan.buffers().size());
  CHECK(!layout.counted || (is_floating(type) && element_ >= sizeof(std::uint16_t)));
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
    for (std::uint32_t s = 0; s < segments_of(b); ++s) fill(b, 0, s);
  }
  for (std::uint32_t slot = 0; slot < incoming_.size(); ++slot) {
    incoming_[slot] = block_for(plan.arrivals()[slot].buffer);
  }
  progress_.start([](std::uint32_t, std::uint32_t, bool) {},
                  [this](std::uint32_t send, std::uint32_t s) { make_ready(send, s); });
}

std::vector<std::uint32_t> SegmentExecutor::count_segments() const {
  CHECK(data_elements() > 0);
  std::vector<std::uint32_t> counts;
  for (std::uint32_t b = 0; b < plan_.buffers().size(); ++b) {
    // A chunk without elements is sent too, as one segment without bytes.
    const std::int64_t count = (elements_of(b) + data_elements() - 1) / data_elements();
    counts.push_back(static_cast<std::uint32_t>(std::max<std::int64_t>(count, 1)));
  }
  return counts;
}

std::int64_t SegmentExecutor::wire_elements(std::uint32_t buffer) const {
  const std::int64_t elements = elements_of(buffer);
  return elements + (layout_.counted && elements > 0 ? std::int64_t{segments_of(buffer)} : 0);
}

SegmentExecutor::Block SegmentExecutor::block_for(std::uint32_t buffer) const {
  const std::size_t size = static_cast<std::size_t>(wire_elements(buffer)) * element_;
  return {blocks_(size), size};
}

SegmentExecutor::Piece SegmentExecutor::piece(std::uint32_t buffer, std::uint32_t segment) const {
  const std::int64_t first = segment * data_elements();
  const std::int64_t count = std::min(data_elements(), elements_of(buffer) - first);
  const std::int64_t wire = segment * layout_.segment_elements + (layout_.counted ? 1 : 0);
  return {memory_[buffer] + static_cast<std::size_t>(first) * element_,
          static_cast<std::size_t>(count), static_cast<std::size_t>(wire) * element_};
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

void SegmentExecutor::make_ready(std::uint32_t send, std::uint32_t segment) {
  if (sent_[send]) return;
  if (std::size_t& last = last_ready_[send];
      last == 0 || ready_[last - 1].segments.end != segment) {
    ready_.push_back({send, {segment, segment}});
    last = ready_.size();
  }
  ready_[last_ready_[send] - 1].segments.end = segment + 1;
}

void SegmentExecutor::sent(std::uint32_t send) {
  CHECK(!sent_[send]);
  const RankPlan::Send& s = plan_.sends()[send];
  sent_[send] = true;
  --unfinished_;
  if (--users_[s.buffer][s.after] == 0) versions_[s.buffer][s.after] = {};
}

void SegmentExecutor::fill(std::uint32_t buffer, std::uint32_t version, std::uint32_t segment) {
  const Piece from = piece(buffer, segment);
  if (from.elements == 0) return;
  std::byte* to = versions_[buffer][version].memory.get() + from.wire;
  if (layout_.counted) put_count(to - element_, counts_[buffer][segment], element_);
  std::memcpy(to, from.values, from.elements * element_);
}

void SegmentExecutor::arrived(std::uint32_t slot, SegmentRun segments) {
  CHECK(!ended_[slot] && segments.end <= segments_of(plan_.arrivals()[slot].buffer));
  for (std::uint32_t s = segments.begin; s < segments.end; ++s) take(slot, s, false);
}

void SegmentExecutor::ended(std::uint32_t slot) {
  CHECK(!ended_[slot]);
  ended_[slot] = true;
  const std::uint32_t buffer = plan_.arrivals()[slot].buffer;
  const std::uint32_t segments = segments_of(buffer);
  if (elements_of(buffer) == 0) {
    take(slot, 0, false);
  } else if (layout_.counted) {
    segments_wanted_ += segments;
    segments_lost_ += progress_.outstanding(slot);
  }
  CHECK(layout_.counted || progress_.outstanding(slot) == 0);
  for (std::uint32_t s = 0; s < segments && progress_.outstanding(slot) > 0; ++s) {
    if (!progress_.is_here(slot, s)) take(slot, s, true);
  }
  look_at(slot);
}

void SegmentExecutor::take(std::uint32_t slot, std::uint32_t segment, bool lost) {
  progress_.arrive(
      slot, segment, lost,
      [this](std::uint32_t of, std::uint32_t s, bool is_lost) { apply(of, s, is_lost); },
      [this](std::uint32_t send, std::uint32_t s) { make_ready(send, s); });
}

void SegmentExecutor::apply(std::uint32_t slot, std::uint32_t segment, bool lost) {
  const RankPlan::Arrival& arrival = plan_.arrivals()[slot];
  const std::uint32_t buffer = arrival.buffer;
  const bool copies = arrival.kind == plan::TransferKind::kCopy;
  const Piece to = piece(buffer, segment);
  const std::byte* from = incoming_[slot].memory.get() + to.wire;
  if (layout_.counted) {
    if (copies) forgone_[buffer][segment] = lost;
    if (!lost && to.elements > 0) {
      std::uint16_t& count = counts_[buffer][segment];
      count = static_cast<std::uint16_t>(get_count(from - element_) + (copies ? 0 : count));
    }
  }
  if (!lost && copies) std::memcpy(to.values, from, to.elements * element_);
  if (!lost && !copies) {
    tensor::reduce(type_, op_, to.values, to.values, from, to.elements);
  }
  const std::uint32_t version = arrival.order + 1;
  if (users_[buffer][version] > 0) {
    Block& carried = versions_[buffer][version];
    if (!carried.memory) carried = copies ? incoming_[slot] : block_for(buffer);
    if (lost || !copies) fill(buffer, version, segment);
  }
  look_at(slot);
}

void SegmentExecutor::look_at(std::uint32_t slot) {
  if (!ended_[slot] || over_[slot] || progress_.unapplied(slot) > 0) return;
  over_[slot] = true;
  incoming_[slot] = {};
  --unfinished_;
}

void SegmentExecutor::finish(bool mean, int ranks) {
  CHECK(done());
  for (std::uint32_t b = 0; b < counts_.size(); ++b) {
    for (std::uint32_t s = 0; s < counts_[b].size(); ++s) {
      const int count = counts_[b][s];
      if (!mean && count == ranks) continue;
      const Piece at = piece(b, s);
      tensor::finish_mean(type_, at.values, at.elements, count);
      if (!mean) multiply(type_, at.values, at.elements, ranks);
    }
  }
}

void SegmentExecutor::keep_residual(int ranks, const std::byte* tensor, std::byte* residual) const {
  CHECK(done() && layout_.counted);
  for (std::uint32_t b = 0; b < counts_.size(); ++b) {
    for (std::uint32_t s = 0; s < counts_[b].size(); ++s) {
      const Piece average = piece(b, s);
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
