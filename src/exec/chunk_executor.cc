#include "exec/chunk_executor.h"

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

ChunkExecutor::ChunkExecutor(const RankPlan& plan, DType type, ReduceOp op,
                             std::int64_t segment_elements, std::span<std::byte* const> memory,
                             BlockSource blocks)
    : plan_(plan),
      type_(type),
      op_(op),
      element_(size_of(type)),
      segment_elements_(segment_elements),
      blocks_(std::move(blocks)),
      memory_(memory.begin(), memory.end()),
      version_(plan.buffers().size(), 0),
      next_send_(plan.buffers().size(), 0),
      incoming_(plan.arrivals().size()),
      outgoing_(plan.sends().size()),
      unfinished_(plan.arrivals().size() + plan.sends().size()) {
  CHECK(memory.size() == plan.buffers().size());
  CHECK(segment_elements == 0 ||
        (segment_elements >= 2 && is_floating(type) && element_ >= sizeof(std::uint16_t)));
  if (segment_elements_ > 0) {
    for (std::uint32_t b = 0; b < plan.buffers().size(); ++b) {
      counts_.emplace_back(static_cast<std::size_t>(segments_of(b)), std::uint16_t{1});
      forgone_.emplace_back(static_cast<std::size_t>(segments_of(b)), false);
    }
  }
  for (std::uint32_t slot = 0; slot < incoming_.size(); ++slot) {
    incoming_[slot].wire = block_for(plan.arrivals()[slot].buffer);
  }
  for (std::uint32_t b = 0; b < plan.buffers().size(); ++b) make_ready(b);
}

ChunkExecutor::Block ChunkExecutor::block_for(std::uint32_t buffer) const {
  const std::int64_t counts = segment_elements_ == 0 ? 0 : segments_of(buffer);
  const std::size_t size =
      plan_.buffers()[buffer].bytes + static_cast<std::size_t>(counts) * element_;
  return {blocks_(size), size};
}

bool ChunkExecutor::poll_ready(std::uint32_t& send) {
  if (ready_.empty()) return false;
  send = ready_.front();
  ready_.erase(ready_.begin());
  return true;
}

void ChunkExecutor::sent(std::uint32_t send) {
  outgoing_[send] = {};
  --unfinished_;
}

void ChunkExecutor::make_ready(std::uint32_t buffer) {
  const auto& sends = plan_.buffers()[buffer].sends;
  std::uint32_t& next = next_send_[buffer];
  while (next < sends.size() && plan_.sends()[sends[next]].after <= version_[buffer]) {
    fill(sends[next]);
    ready_.push_back(sends[next++]);
  }
}

void ChunkExecutor::fill(std::uint32_t send) {
  const std::uint32_t buffer = plan_.sends()[send].buffer;
  const std::byte* from = memory_[buffer];
  const Block& wire = outgoing_[send] = block_for(buffer);
  std::byte* to = wire.memory.get();
  if (segment_elements_ == 0) {
    std::memcpy(to, from, wire.size);
    return;
  }
  std::size_t left = plan_.buffers()[buffer].bytes;
  for (const std::uint16_t count : counts_[buffer]) {
    const std::size_t bytes = std::min(left, static_cast<std::size_t>(data_elements()) * element_);
    put_count(to, count, element_);
    std::memcpy(to + element_, from, bytes);
    to += element_ + bytes;
    from += bytes;
    left -= bytes;
  }
  CHECK(left == 0);
}

void ChunkExecutor::arrived(std::uint32_t slot, std::span<const Lost> lost) {
  Incoming& in = incoming_[slot];
  CHECK(!in.here && (lost.empty() || segment_elements_ > 0));
  in.here = true;
  in.lost.assign(lost.begin(), lost.end());
  const std::uint32_t buffer = plan_.arrivals()[slot].buffer;
  const auto& arrivals = plan_.buffers()[buffer].arrivals;
  while (version_[buffer] < arrivals.size() && incoming_[arrivals[version_[buffer]]].here) {
    apply(arrivals[version_[buffer]]);
    ++version_[buffer];
    --unfinished_;
    make_ready(buffer);
  }
}

void ChunkExecutor::apply(std::uint32_t slot) {
  const RankPlan::Arrival& arrival = plan_.arrivals()[slot];
  Incoming& in = incoming_[slot];
  if (segment_elements_ == 0) {
    std::byte* target = memory_[arrival.buffer];
    if (arrival.kind == plan::TransferKind::kCopy) {
      std::memcpy(target, in.wire.memory.get(), in.wire.size);
    } else {
      tensor::reduce(type_, op_, target, target, in.wire.memory.get(), in.wire.size / element_);
    }
  } else {
    std::int64_t next = 0;
    for (const Lost& lost : in.lost) {
      const std::int64_t begin = lost.begin / segment_elements_;
      const std::int64_t end = (lost.end + segment_elements_ - 1) / segment_elements_;
      apply_segments(slot, next, begin);
      segments_lost_ += end - begin;
      if (arrival.kind == plan::TransferKind::kCopy) {
        for (std::int64_t s = begin; s < end; ++s) {
          forgone_[arrival.buffer][static_cast<std::size_t>(s)] = true;
        }
      }
      next = end;
    }
    apply_segments(slot, next, segments_of(arrival.buffer));
    segments_wanted_ += segments_of(arrival.buffer);
  }
  in.wire = {};
}

void ChunkExecutor::apply_segments(std::uint32_t slot, std::int64_t begin, std::int64_t end) {
  const RankPlan::Arrival& arrival = plan_.arrivals()[slot];
  const std::byte* wire = incoming_[slot].wire.memory.get();
  for (std::int64_t s = begin; s < end; ++s) {
    const std::byte* from = wire + static_cast<std::size_t>(s * segment_elements_) * element_;
    const std::int64_t first = s * data_elements();
    const auto elements =
        static_cast<std::size_t>(std::min(data_elements(), elements_of(arrival.buffer) - first));
    std::byte* target = memory_[arrival.buffer] + static_cast<std::size_t>(first) * element_;
    std::uint16_t& count = counts_[arrival.buffer][static_cast<std::size_t>(s)];
    if (arrival.kind == plan::TransferKind::kCopy) {
      count = get_count(from);
      forgone_[arrival.buffer][static_cast<std::size_t>(s)] = false;
      std::memcpy(target, from + element_, elements * element_);
    } else {
      count = static_cast<std::uint16_t>(count + get_count(from));
      tensor::reduce(type_, op_, target, target, from + element_, elements);
    }
  }
}

void ChunkExecutor::finish(bool mean, int ranks) {
  CHECK(done());
  if (segment_elements_ == 0) return;
  for (std::uint32_t b = 0; b < counts_.size(); ++b) {
    for (std::size_t s = 0; s < counts_[b].size(); ++s) {
      const int count = counts_[b][s];
      const std::int64_t first = static_cast<std::int64_t>(s) * data_elements();
      const auto elements =
          static_cast<std::size_t>(std::min(data_elements(), elements_of(b) - first));
      std::byte* values = memory_[b] + static_cast<std::size_t>(first) * element_;
      if (!mean && count == ranks) continue;
      tensor::finish_mean(type_, values, elements, count);
      if (!mean) multiply(type_, values, elements, ranks);
    }
  }
}

void ChunkExecutor::keep_residual(int ranks, const std::byte* tensor, std::byte* residual) const {
  CHECK(done() && segment_elements_ > 0);
  for (std::uint32_t b = 0; b < counts_.size(); ++b) {
    for (std::size_t s = 0; s < counts_[b].size(); ++s) {
      const std::int64_t first = static_cast<std::int64_t>(s) * data_elements();
      const auto elements =
          static_cast<std::size_t>(std::min(data_elements(), elements_of(b) - first));
      const std::byte* average = memory_[b] + static_cast<std::size_t>(first) * element_;
      std::byte* own = residual + (average - tensor);
      if (counts_[b][s] >= ranks || forgone_[b][s]) {
        std::memset(own, 0, elements * element_);
        continue;
      }
      negate(own, elements, element_);
      tensor::reduce(type_, ReduceOp::kSum, own, own, average, elements);
      negate(own, elements, element_);
    }
  }
}

double ChunkExecutor::arrived_fraction() const {
  if (segments_wanted_ == 0) return 1;
  return 1 - static_cast<double>(segments_lost_) / static_cast<double>(segments_wanted_);
}

}  // namespace thalweg::exec
