#include "net/group/api/plans.h"

#include <gtest/gtest.h>

#include <string>

namespace thalweg::net {
namespace {

std::string scheme_of(std::int64_t bytes, int ranks, bool several_hosts,
                      const std::string& topology = "") {
  const auto plans = Plans::make(ranks, 0, topology, "", several_hosts).value();
  return plans->get({.elements = bytes / 4, .scheme = {}}).value()->plan.scheme;
}

TEST(Plans, allreduce_between_hosts__a_ring_where_blocks_are_large) {
  EXPECT_EQ(scheme_of(1 << 20, 8, true), "ring");
  EXPECT_EQ(scheme_of(8 * (16 << 10), 8, true), "ring");
  EXPECT_EQ(scheme_of(8 * (16 << 10) - 4, 8, true), "halving-doubling");
  EXPECT_EQ(scheme_of(4096, 8, true), "butterfly");
}

TEST(Plans, allreduce_within_a_host__halving_doubling) {
  EXPECT_EQ(scheme_of(1 << 20, 8, false), "halving-doubling");
  EXPECT_EQ(scheme_of(4096, 8, false), "butterfly");
}

TEST(Plans, topology__the_planners_choice_is_the_same_on_every_rank) {
  const std::string network = "single-switch:hosts=8,host=100M";
  const auto first = Plans::make(8, 0, network, "", true).value();
  const auto last = Plans::make(8, 7, network, "", true).value();
  const Plans::Request request{.elements = 1'000'000, .scheme = {}};
  EXPECT_EQ(first->get(request).value()->plan, last->get(request).value()->plan);
  EXPECT_EQ(first->get(request).value()->plan.scheme, "ring");
}

}  // namespace
}  // namespace thalweg::net
