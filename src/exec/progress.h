// Progress: which segments of a rank's part of a plan may be applied, and which may be sent. It has
// neither memory for data nor I/O; segment_executor.h moves the data.
//
// Every segment of every buffer goes its own way by the rule of plan/turns.h:
//
//   arrival k is applied  when it is here and arrival k − 1 was applied (k = 0: when it is here);
//   a send of version k   may leave when arrival k − 1 was applied (k = 0: at once).
//
// So sums are made in the plan's order, and a segment is forwarded while others of its chunk are
// missing. A segment that will never come, because its transfer ended within its bound, takes its
// turn like one that came: what is there goes on without it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "exec/rank_plan.h"
#include "plan/turns.h"

namespace thalweg::exec {

// The segments [begin, end) of a chunk.
struct SegmentRun {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  bool operator==(const SegmentRun&) const = default;
};

class Progress {
 public:
  // `segments`: of each buffer of the plan, which must outlive this object.
  Progress(const RankPlan& plan, std::span<const std::uint32_t> segments);

  [[nodiscard]] std::uint32_t segments_of(std::uint32_t buffer) const {
    return first_of_buffer_[buffer + 1] - first_of_buffer_[buffer];
  }
  [[nodiscard]] bool is_here(std::uint32_t slot, std::uint32_t segment) const {
    return come_[first_of_slot_[slot] + segment] == Come::kHere;
  }
  // Segments of the slot that neither came nor are known to be lost.
  [[nodiscard]] std::uint32_t outstanding(std::uint32_t slot) const { return outstanding_[slot]; }
  // Segments of the slot whose turn has not come.
  [[nodiscard]] std::uint32_t unapplied(std::uint32_t slot) const { return unapplied_[slot]; }
  // Everything has come or is lost, and had its turn.
  [[nodiscard]] bool done() const { return unapplied_in_all_ == 0; }

  // The rank's own contribution is ready: calls ready(send, segment) for all that may leave before
  // anything arrives. Must be called once; may be called after arrive().
  template <class Apply, class Ready>
  void start(Apply apply, Ready ready) {
    CHECK(!started_);
    started_ = true;
    for (std::uint32_t b = 0; b < plan_->buffers().size(); ++b) {
      for (std::uint32_t s = 0; s < segments_of(b); ++s) {
        make_ready(b, s, 0, ready);
        advance(b, s, apply, ready);
      }
    }
  }

  // The segment of the slot has arrived, or is `lost`. Must be called at most once for each. Calls
  // apply(slot, segment, lost) for each arrival of this segment whose turn it is, and after each of
  // them ready(send, segment) for each send of the version that it made.
  template <class Apply, class Ready>
  void arrive(std::uint32_t slot, std::uint32_t segment, bool lost, Apply apply, Ready ready) {
    Come& come = come_[first_of_slot_[slot] + segment];
    CHECK(come == Come::kNot);
    come = lost ? Come::kLost : Come::kHere;
    --outstanding_[slot];
    if (started_) advance(plan_->arrivals()[slot].buffer, segment, apply, ready);
  }

 private:
  enum class Come : std::uint8_t { kNot, kHere, kLost };

  template <class Apply, class Ready>
  void advance(std::uint32_t buffer, std::uint32_t segment, Apply apply, Ready ready) {
    const auto come = [&](std::uint32_t slot) { return come_[first_of_slot_[slot] + segment]; };
    plan::take_turns(
        plan_->buffers()[buffer].arrivals, version_[first_of_buffer_[buffer] + segment],
        [&](std::uint32_t slot) { return come(slot) != Come::kNot; },
        [&](std::uint32_t slot, std::uint32_t version) {
          --unapplied_[slot];
          --unapplied_in_all_;
          apply(slot, segment, come(slot) == Come::kLost);
          make_ready(buffer, segment, version, ready);
        });
  }

  template <class Ready>
  void make_ready(std::uint32_t buffer, std::uint32_t segment, std::uint32_t version, Ready ready) {
    for (const std::uint32_t send : plan_->buffers()[buffer].sends) {
      const std::uint32_t after = plan_->sends()[send].after;
      if (after == version) ready(send, segment);
      if (after > version) return;
    }
  }

  const RankPlan* plan_;
  bool started_ = false;
  std::vector<std::uint32_t> first_of_buffer_;  // [buffer]: where its segments begin in version_
  std::vector<std::uint32_t> version_;          // of each segment of each buffer
  std::vector<std::uint32_t> first_of_slot_;    // [slot]: where its segments begin in come_
  std::vector<Come> come_;                      // each segment of each arrival
  std::vector<std::uint32_t> outstanding_;      // [slot]
  std::vector<std::uint32_t> unapplied_;        // [slot]
  std::size_t unapplied_in_all_ = 0;
};

}  // namespace thalweg::exec
