#include "switch/queueing/egress.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/prng.h"

namespace thalweg::switches {
namespace {

QueueEntry entry(std::uint32_t handle, std::uint32_t flow, std::uint32_t rank,
                 std::uint8_t queue = 0, std::uint32_t size = 100) {
  return {handle, size, flow, rank, queue};
}

std::vector<std::uint32_t> drain(EgressQueues& queues) {
  std::vector<std::uint32_t> handles;
  while (!queues.empty()) handles.push_back(queues.pop().handle);
  return handles;
}

TEST(Ring, push_pop__keeps_order_while_growing_around_the_end) {
  Ring<int> ring;
  int pushed = 0;
  int popped = 0;
  for (int round = 0; round < 50; ++round) {
    for (int i = 0; i < round; ++i) ring.push(pushed++);
    for (int i = 0; i < round / 2; ++i) {
      EXPECT_EQ(ring.front(), popped++);
      ring.pop();
    }
    EXPECT_EQ(ring.size(), static_cast<std::uint32_t>(pushed - popped));
  }
  for (std::uint32_t i = 0; i < ring.size(); ++i)
    EXPECT_EQ(ring.at(i), popped + static_cast<int>(i));
}

TEST(EgressQueues, fifo__ignores_queue_and_rank) {
  EgressQueues queues(Discipline::kFifo);
  queues.push(entry(1, 1, 9, 7));
  queues.push(entry(2, 2, 1, 0));
  EXPECT_EQ(queues.queue_bytes(3), 200U);
  EXPECT_EQ(drain(queues), (std::vector<std::uint32_t>{1, 2}));
  EXPECT_EQ(queues.bytes(), 0U);
}

TEST(EgressQueues, strict_priority__lowest_queue_first_then_order) {
  EgressQueues queues(Discipline::kStrictPriority);
  queues.push(entry(1, 1, 0, 5));
  queues.push(entry(2, 1, 0, 2));
  queues.push(entry(3, 1, 0, 5));
  queues.push(entry(4, 1, 0, 0));
  queues.push(entry(5, 1, 0, 2));
  EXPECT_EQ(queues.queue_bytes(5), 200U);
  EXPECT_EQ(queues.queue_bytes(1), 0U);
  EXPECT_EQ(drain(queues), (std::vector<std::uint32_t>{4, 2, 5, 1, 3}));
}

TEST(EgressQueues, pfabric__earliest_packet_of_the_best_flow) {
  EgressQueues queues(Discipline::kPFabric);
  queues.push(entry(1, 10, 500));
  queues.push(entry(2, 20, 300));
  queues.push(entry(3, 10, 100));  // flow 10 owns the best rank; its packet 1 arrived first
  EXPECT_EQ(drain(queues), (std::vector<std::uint32_t>{1, 3, 2}));
}

TEST(EgressQueues, make_room__drops_the_worst_the_newest_among_equals) {
  EgressQueues queues(Discipline::kPFabric);
  queues.push(entry(1, 10, 500));
  queues.push(entry(2, 20, 900));
  queues.push(entry(3, 30, 900));
  QueueEntry victim;
  ASSERT_TRUE(queues.make_room(entry(4, 40, 800), victim));
  EXPECT_EQ(victim.handle, 3U);
  ASSERT_TRUE(queues.make_room(entry(4, 40, 800), victim));
  EXPECT_EQ(victim.handle, 2U);
  EXPECT_FALSE(queues.make_room(entry(4, 40, 500), victim)) << "the arrival is the newest equal";
  EXPECT_EQ(queues.bytes(), 100U);
}

TEST(EgressQueues, make_room__other_disciplines_never) {
  EgressQueues queues(Discipline::kStrictPriority);
  queues.push(entry(1, 10, 500, 7));
  QueueEntry victim;
  EXPECT_FALSE(queues.make_room(entry(2, 20, 1, 0), victim));
}

// A plain implementation of pFabric's rules: a list in order of arrival, and linear searches.
class PlainPFabric {
 public:
  void push(const QueueEntry& e) { waiting_.push_back(e); }
  [[nodiscard]] bool empty() const { return waiting_.empty(); }
  QueueEntry pop() {
    const auto best =
        std::min_element(waiting_.begin(), waiting_.end(),
                         [](const QueueEntry& a, const QueueEntry& b) { return a.rank < b.rank; });
    const auto first = std::find_if(waiting_.begin(), waiting_.end(),
                                    [&](const QueueEntry& e) { return e.flow == best->flow; });
    const QueueEntry result = *first;
    waiting_.erase(first);
    return result;
  }
  bool evict_worse_than(std::uint32_t rank, QueueEntry& victim) {
    auto worst = waiting_.end();
    for (auto i = waiting_.begin(); i != waiting_.end(); ++i) {
      if (worst == waiting_.end() || i->rank >= worst->rank) worst = i;
    }
    if (worst == waiting_.end() || worst->rank <= rank) return false;
    victim = *worst;
    waiting_.erase(worst);
    return true;
  }

 private:
  std::vector<QueueEntry> waiting_;
};

TEST(PFabricQueue, random__agrees_with_plain_rules) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Prng prng(seed);
    PFabricQueue queue;
    PlainPFabric plain;
    const std::uint64_t flows = 1 + prng.below(6);
    const std::uint64_t ranks = 1 + prng.below(30);
    for (std::uint32_t step = 0; step < 500; ++step) {
      const std::uint64_t action = prng.below(5);
      const auto rank = static_cast<std::uint32_t>(prng.below(ranks));
      if (action < 3) {
        const QueueEntry e = entry(step, static_cast<std::uint32_t>(prng.below(flows)), rank);
        queue.push(e);
        plain.push(e);
      } else if (action == 3 && !plain.empty()) {
        ASSERT_EQ(queue.pop().handle, plain.pop().handle);
      } else {
        QueueEntry a;
        QueueEntry b;
        ASSERT_EQ(queue.evict_worse_than(rank, a), plain.evict_worse_than(rank, b));
        ASSERT_EQ(a.handle, b.handle);
      }
      ASSERT_EQ(queue.empty(), plain.empty());
    }
  }
}

}  // namespace
}  // namespace thalweg::switches
