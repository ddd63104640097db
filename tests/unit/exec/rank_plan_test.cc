#include "exec/rank_plan.h"

#include <gtest/gtest.h>

#include "exec/serial.h"

namespace thalweg::exec {
namespace {

TEST(RankPlan, part_begin__parts_tile_a_buffer_and_end_between_elements) {
  for (const std::size_t bytes : {256UL, 257UL, 1000UL, 4099UL, (1UL << 40) + 3}) {
    for (std::size_t count = 1; count <= 4; ++count) {
      EXPECT_EQ(RankPlan::part_begin(bytes, 0, count), 0U);
      EXPECT_EQ(RankPlan::part_begin(bytes, count, count), bytes);
      for (std::size_t i = 0; i < count; ++i) {
        const std::size_t begin = RankPlan::part_begin(bytes, i, count);
        EXPECT_EQ(begin % RankPlan::kLeastPart, 0U);
        EXPECT_GE(RankPlan::part_begin(bytes, i + 1, count), begin + RankPlan::kLeastPart)
            << bytes << ", " << i << " of " << count;
      }
    }
  }
}

TEST(RankPlan, part__has_the_same_transfers_of_fewer_bytes) {
  const plan::Plan plan = plan_of("halving-doubling", plan::Collective::kAllreduce, 4, 1003, 4);
  const RankPlan whole(plan, Rank(2));
  EXPECT_EQ(whole.tensor_bytes(), 4012U);
  EXPECT_EQ(whole.least_chunk(), 1000U);
  std::vector<std::size_t> bytes(whole.buffers().size());
  for (std::size_t i = 0; i < 3; ++i) {
    const RankPlan part = whole.part(i, 3);
    EXPECT_EQ(part.peers(), whole.peers());
    ASSERT_EQ(part.sends().size(), whole.sends().size());
    ASSERT_EQ(part.arrivals().size(), whole.arrivals().size());
    for (std::size_t b = 0; b < bytes.size(); ++b) bytes[b] += part.buffers()[b].bytes;
  }
  for (std::size_t b = 0; b < bytes.size(); ++b) EXPECT_EQ(bytes[b], whole.buffers()[b].bytes);
}

TEST(RankPlan, of_all__equals_the_parts_made_one_by_one) {
  for (const char* scheme : {"ring", "halving-doubling", "ps", "rat"}) {
    const plan::Plan plan = plan_of(scheme, plan::Collective::kAllreduce, 6, 1003, 4);
    const std::vector<RankPlan> all = RankPlan::of_all(plan);
    ASSERT_EQ(all.size(), 6U);
    for (Rank rank(0); rank.value() < 6; ++rank) {
      EXPECT_EQ(all[rank.index()], RankPlan(plan, rank)) << scheme << ", rank " << rank.value();
    }
  }
}

}  // namespace
}  // namespace thalweg::exec
