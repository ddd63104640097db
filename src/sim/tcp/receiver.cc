#include <algorithm>

#include "base/check.h"
#include "sim/hosts/transport.h"

namespace thalweg::sim {

// Data that arrives in order only moves expected_. Data that arrives early joins the stretches it
// touches, so there is one stretch per hole. The search starts at the last stretch, where most
// early packets land.
std::uint64_t Receiver::on_data(std::uint64_t sequence, std::uint32_t payload) {
  std::uint64_t begin = sequence;
  std::uint64_t end = sequence + payload;
  CHECK(end <= flow_bytes_, "bytes {} to {} of a flow of {}", begin, end, flow_bytes_);
  if (begin < expected_) {
    const std::uint64_t known = std::min(end, expected_);
    duplicate_bytes_ += known - begin;
    begin = known;
  }
  if (begin == end) return expected_;

  // [first, last): the stretches that overlap or touch [begin, end).
  auto last = early_.end();
  while (last != early_.begin() && std::prev(last)->begin > end) --last;
  auto first = last;
  std::uint64_t overlap = 0;
  const std::uint64_t fresh_begin = begin;
  const std::uint64_t fresh_end = end;
  while (first != early_.begin() && std::prev(first)->end >= fresh_begin) {
    --first;
    const std::uint64_t shared_begin = std::max(first->begin, fresh_begin);
    const std::uint64_t shared_end = std::min(first->end, fresh_end);
    if (shared_end > shared_begin) overlap += shared_end - shared_begin;
    begin = std::min(begin, first->begin);
    end = std::max(end, first->end);
  }
  duplicate_bytes_ += overlap;

  if (begin == expected_) {
    expected_ = end;
    early_.erase(first, last);
  } else if (first == last) {
    early_.insert(first, Stretch{begin, end});
  } else {
    *first = Stretch{begin, end};
    early_.erase(first + 1, last);
  }
  return expected_;
}

// A stretch grows only by data that arrives at it, and is then reported again: so each block is a
// whole stretch until its stretch joins another or the data in order.
const SackBlocks& Receiver::sack(std::uint64_t sequence, std::uint32_t payload) {
  if (early_.empty()) {
    reported_.count = 0;
    return reported_;
  }
  SackBlocks report;
  SackBlock newest;
  if (sequence + payload > expected_) {
    const auto behind =
        std::upper_bound(early_.begin(), early_.end(), sequence,
                         [](std::uint64_t byte, const Stretch& s) { return byte < s.begin; });
    newest = {std::prev(behind)->begin, std::prev(behind)->end};
    report.blocks[report.count++] = newest;
  }
  for (std::uint32_t i = 0; i < reported_.count && report.count < SackBlocks::kMost; ++i) {
    const SackBlock& block = reported_.blocks[i];
    const bool joined = newest.begin <= block.begin && block.end <= newest.end;
    if (block.begin > expected_ && !joined) report.blocks[report.count++] = block;
  }
  reported_ = report;
  return reported_;
}

}  // namespace thalweg::sim
