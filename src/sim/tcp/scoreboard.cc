#include "sim/tcp/scoreboard.h"

#include <algorithm>

#include "base/check.h"

namespace thalweg::sim {

void Scoreboard::sent(Time now, std::uint64_t begin, std::uint32_t payload) {
  segments_.push({.begin = begin, .sent = now, .payload = payload});
  in_flight_ += payload;
}

std::uint64_t Scoreboard::acknowledge(std::uint64_t next) {
  std::uint64_t fresh = 0;
  while (!segments_.empty() && segments_.front().begin < next) {
    const Segment& segment = segments_.front();
    CHECK(segment.end() <= next, "{} lies inside the segment from {}", next, segment.begin);
    if (segment.in_flight()) in_flight_ -= segment.payload;
    if (!segment.acknowledged) fresh += segment.payload;
    if (!segment.acknowledged && segment.lost) lost_ -= segment.payload;
    if (segment.acknowledged && first_ >= edge_) --above_edge_;
    segments_.pop();
    ++first_;
  }
  edge_ = std::max(edge_, first_);
  again_ = std::max(again_, first_);
  return fresh;
}

// Most acknowledgements repeat blocks, or make the first one longer: only what the last one did not
// say is looked at.
std::uint64_t Scoreboard::acknowledge(const SackBlocks& sack) {
  std::uint64_t fresh = 0;
  for (std::uint32_t i = 0; i < sack.count; ++i) {
    std::uint64_t begin = sack.blocks[i].begin;
    const std::uint64_t end = sack.blocks[i].end;
    while (begin < end) {
      std::uint64_t stop = end;
      std::uint64_t known_until = begin;
      for (std::uint32_t k = 0; k < known_.count; ++k) {
        const SackBlock& known = known_.blocks[k];
        if (known.begin <= begin) known_until = std::max(known_until, known.end);
        if (known.begin > begin) stop = std::min(stop, known.begin);
      }
      if (known_until > begin) {
        begin = known_until;
      } else {
        fresh += acknowledge_stretch(begin, stop);
        begin = stop;
      }
    }
  }
  known_ = sack;
  return fresh;
}

std::uint64_t Scoreboard::acknowledge_stretch(std::uint64_t begin, std::uint64_t stop) {
  std::uint64_t fresh = 0;
  for (std::uint64_t number = number_at(begin); number < end(); ++number) {
    Segment& segment = at(number);
    if (segment.begin >= stop) break;
    CHECK(segment.end() <= stop, "{} lies inside the segment from {}", stop, segment.begin);
    if (segment.acknowledged) continue;
    if (segment.in_flight()) in_flight_ -= segment.payload;
    if (segment.lost) lost_ -= segment.payload;
    segment.acknowledged = true;
    fresh += segment.payload;
    if (number >= edge_) ++above_edge_;
  }
  return fresh;
}

std::uint64_t Scoreboard::number_at(std::uint64_t byte) {
  std::uint64_t low = first_;
  std::uint64_t high = end();
  while (low < high) {
    const std::uint64_t middle = low + (high - low) / 2;
    if (at(middle).begin < byte) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

std::uint64_t Scoreboard::mark_lost() {
  std::uint64_t fresh = 0;
  if (dup_acks_ == 0) return fresh;
  while (above_edge_ > dup_acks_ || (above_edge_ == dup_acks_ && !at(edge_).acknowledged)) {
    fresh += move_edge();
  }
  return fresh;
}

std::uint64_t Scoreboard::mark_lost_before(Time then) {
  std::uint64_t fresh = 0;
  if (dup_acks_ == 0) return fresh;
  for (; !resent_.empty() && resent_.front().time < then; resent_.pop()) {
    const std::uint64_t number = resent_.front().number;
    if (number < first_ || at(number).acknowledged) continue;
    Segment& segment = at(number);
    segment.again = false;
    in_flight_ -= segment.payload;
    fresh += segment.payload;
    again_ = std::min(again_, number);
  }
  while (edge_ < end() && at(edge_).sent < then) fresh += move_edge();
  return fresh;
}

// Returns the bytes of the segment at the edge if it is lost by that.
std::uint64_t Scoreboard::move_edge() {
  Segment& segment = at(edge_++);
  if (segment.acknowledged) {
    --above_edge_;
    return 0;
  }
  segment.lost = true;
  in_flight_ -= segment.payload;
  lost_ += segment.payload;
  return segment.payload;
}

void Scoreboard::lose_all() {
  resent_.clear();
  in_flight_ = 0;
  lost_ = 0;
  for (std::uint64_t number = first_; number < end(); ++number) {
    Segment& segment = at(number);
    if (segment.acknowledged) continue;
    segment.lost = true;
    segment.again = false;
    lost_ += segment.payload;
  }
  edge_ = end();
  above_edge_ = 0;
  again_ = first_;
}

const Scoreboard::Segment* Scoreboard::next_lost() {
  for (; again_ < edge_; ++again_) {
    const Segment& segment = at(again_);
    if (segment.lost && !segment.acknowledged && !segment.again) return &segment;
  }
  return nullptr;
}

void Scoreboard::sent_again(Time now) {
  resent_.push({now, again_});
  Segment& segment = at(again_);
  segment.again = true;
  in_flight_ += segment.payload;
}

Scoreboard::Segment Scoreboard::probe(Time now) {
  std::uint64_t number = end() - 1;
  while (at(number).acknowledged) --number;
  at(number).sent = now;
  return at(number);
}

}  // namespace thalweg::sim
