#include "net/probe/probe.h"

#include <gtest/gtest.h>

#include <set>
#include <utility>

namespace thalweg::net {
namespace {

TEST(Probe, partner__every_two_meet_once_and_nobody_twice_a_round) {
  for (int ranks = 2; ranks <= 17; ++ranks) {
    SCOPED_TRACE(ranks);
    std::set<std::pair<int, int>> met;
    for (int round = 0; round < probe_rounds(ranks); ++round) {
      for (int rank = 0; rank < ranks; ++rank) {
        const int partner = probe_partner(ranks, rank, round);
        if (partner < 0) continue;
        ASSERT_LT(partner, ranks);
        ASSERT_NE(partner, rank);
        ASSERT_EQ(probe_partner(ranks, partner, round), rank);
        if (rank < partner) {
          EXPECT_TRUE(met.emplace(rank, partner).second);
        }
      }
    }
    EXPECT_EQ(met.size(), static_cast<std::size_t>(ranks * (ranks - 1) / 2));
  }
}

}  // namespace
}  // namespace thalweg::net
