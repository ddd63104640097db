#include "sim/core/event_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <set>
#include <utility>
#include <vector>

#include "base/prng.h"

namespace thalweg::sim {
namespace {

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

TEST(EventQueue, pop__in_order_of_time_then_of_insertion) {
  EventQueue queue(Duration::nanoseconds(1));
  queue.push(5000, EventKind::kCall, 1, 0, 0);
  queue.push(10, EventKind::kCall, 2, 0, 0);
  queue.push(5000, EventKind::kCall, 3, 0, 0);
  queue.push(kNever / 2, EventKind::kTimer, 4, 0, 0);
  queue.push(10, EventKind::kCall, 5, 0, 0);
  std::vector<std::uint32_t> subjects;
  for (Event event; queue.pop(kNever, event);) subjects.push_back(event.subject);
  EXPECT_EQ(subjects, (std::vector<std::uint32_t>{2, 5, 1, 3, 4}));
  EXPECT_EQ(queue.now_ps(), kNever / 2);
}

// The order of arrivals and notices does not depend on when they were inserted, and no link is
// always the first.
TEST(EventQueue, pop__at_equal_times_arrivals_then_notices_then_the_rest) {
  int smaller_first = 0;
  for (std::int64_t time = 9000; time < 9100; ++time) {
    EventQueue queue(Duration::nanoseconds(1));
    EventQueue other(Duration::nanoseconds(1));
    queue.push(time, EventKind::kTimer, 1, 0, 0);
    queue.push(time, EventKind::kFlowEnded, 8, 0, 0);
    queue.push(time, EventKind::kArrival, 2, 70, 0);
    queue.push(time, EventKind::kFlowClosed, 6, 0, 0);
    queue.push(time, EventKind::kArrival, 3, 7, 0);
    other.push(time, EventKind::kArrival, 3, 7, 0);
    other.push(time, EventKind::kArrival, 2, 70, 0);
    std::vector<std::uint32_t> subjects;
    for (Event event; queue.pop(kNever, event);) subjects.push_back(event.subject);
    ASSERT_EQ(subjects.size(), 5U);
    Event first;
    ASSERT_TRUE(other.pop(kNever, first));
    EXPECT_EQ(first.subject, subjects[0]);
    smaller_first += subjects[0] == 3 ? 1 : 0;
    EXPECT_EQ(subjects[0] + subjects[1], 5U);
    EXPECT_EQ((std::vector<std::uint32_t>{subjects.begin() + 2, subjects.end()}),
              (std::vector<std::uint32_t>{6, 8, 1}));
  }
  EXPECT_GT(smaller_first, 30);
  EXPECT_LT(smaller_first, 70);
}

TEST(EventQueue, pop__fields_come_back) {
  EventQueue queue(Duration::nanoseconds(1));
  queue.push(7, EventKind::kPortFree, 123456, 654321, 0xbeef);
  Event event;
  ASSERT_TRUE(queue.pop(7, event));
  EXPECT_EQ(event.kind(), EventKind::kPortFree);
  EXPECT_EQ(event.subject, 123456U);
  EXPECT_EQ(event.arc, 654321U);
  EXPECT_EQ(event.stamp(), 0xbeef);
}

TEST(EventQueue, pop__stops_before_until_and_takes_earlier_insertions_after) {
  EventQueue queue(Duration::nanoseconds(1));
  queue.push(1'000'000, EventKind::kCall, 1, 0, 0);
  Event event;
  EXPECT_FALSE(queue.pop(500'000, event));
  queue.advance_to(500'000);
  queue.push(600'000, EventKind::kCall, 2, 0, 0);
  ASSERT_TRUE(queue.pop(kNever, event));
  EXPECT_EQ(event.subject, 2U);
  ASSERT_TRUE(queue.pop(kNever, event));
  EXPECT_EQ(event.subject, 1U);
  EXPECT_EQ(queue.size(), 0U);
}

TEST(EventQueue, push__in_the_past_is_counted_and_happens_now) {
  EventQueue queue(Duration::nanoseconds(1));
  queue.push(1000, EventKind::kCall, 1, 0, 0);
  Event event;
  ASSERT_TRUE(queue.pop(kNever, event));
  queue.push(999, EventKind::kCall, 2, 0, 0);
  EXPECT_EQ(queue.late(), 1U);
  ASSERT_TRUE(queue.pop(kNever, event));
  EXPECT_EQ(event.time_ps, 1000);
}

// Compares random mixes of near, far and simultaneous events with an ordered set.
TEST(EventQueue, random__agrees_with_a_set) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Prng prng(seed);
    EventQueue queue(Duration::picoseconds(static_cast<std::int64_t>(1 + prng.below(5000))));
    const auto reach = static_cast<int>(4 + prng.below(40));  // spans up to 2^reach ps
    std::set<std::pair<std::int64_t, std::uint32_t>> model;
    std::uint32_t pushed = 0;
    for (int step = 0; step < 4000; ++step) {
      if (prng.chance(0.55)) {
        const std::uint64_t span = std::uint64_t{1}
                                   << prng.below(static_cast<std::uint64_t>(reach));
        const std::int64_t when = queue.now_ps() + static_cast<std::int64_t>(prng.below(span));
        queue.push(when, EventKind::kTimer, pushed, 0, 0);
        model.emplace(when, pushed++);
        continue;
      }
      const std::int64_t until =
          prng.chance(0.2) ? queue.now_ps() + static_cast<std::int64_t>(prng.below(100)) : kNever;
      Event event;
      const bool due = !model.empty() && model.begin()->first <= until;
      ASSERT_EQ(queue.pop(until, event), due);
      if (!due) continue;
      ASSERT_EQ(std::make_pair(event.time_ps, event.subject), *model.begin());
      model.erase(model.begin());
    }
    std::vector<std::uint32_t> left;
    queue.for_each([&](const Event& event) { left.push_back(event.subject); });
    std::vector<std::uint32_t> expected;
    expected.reserve(model.size());
    for (const auto& [when, subject] : model) expected.push_back(subject);
    std::sort(left.begin(), left.end());
    std::sort(expected.begin(), expected.end());
    EXPECT_EQ(left, expected);
    EXPECT_EQ(queue.size(), model.size());
  }
}

}  // namespace
}  // namespace thalweg::sim
