// What users may write for a scheme, and the errors they get when it is wrong.
#include <gtest/gtest.h>

#include "plan/scheme.h"
#include "plan/schemes_networks.h"

namespace thalweg::plan {
namespace {

class SchemeInput : public testing::Test {
 protected:
  std::string message_of(std::string_view spec, Collective collective = Collective::kAllreduce,
                         Rank root = Rank(0)) {
    const Result<Plan> plan = make_plan(
        spec,
        {.collective = collective, .topology = network_.topology, .elements = 100, .root = root});
    return plan.ok() ? "no error" : plan.error().message();
  }

  TestNetwork network_ = rack_network({4, 4});
};

TEST_F(SchemeInput, name__unknown_lists_all) {
  const std::string message = message_of("rign");
  EXPECT_NE(message.find("'rign' is not a scheme: ps, ring, butterfly"), std::string::npos)
      << message;
  EXPECT_EQ(message_of("").substr(0, 21), "'' is not a scheme: p");
  EXPECT_FALSE(find_scheme("Ring").ok());
}

TEST_F(SchemeInput, collective__unsupported_lists_what_is) {
  EXPECT_EQ(message_of("butterfly", Collective::kAllToAll),
            "scheme 'butterfly' cannot do 'all-to-all': it does allreduce");
  EXPECT_EQ(message_of("direct"),
            "scheme 'direct' cannot do 'allreduce': it does all-to-all, reduce-scatter, "
            "all-gather, gather, scatter");
}

TEST_F(SchemeInput, root__out_of_range) {
  EXPECT_EQ(message_of("ring", Collective::kReduce, Rank(8)), "root 8 is not a rank: 0 to 7 are");
  EXPECT_EQ(message_of("ring", Collective::kBroadcast, Rank()),
            "root -1 is not a rank: 0 to 7 are");
  EXPECT_EQ(message_of("ring", Collective::kAllreduce, Rank(8)), "no error");
}

TEST_F(SchemeInput, parameters__malformed) {
  EXPECT_EQ(message_of("ring:k=2"), "scheme 'ring' has no parameter 'k': it takes none");
  EXPECT_EQ(message_of("k-nomial:q=2").substr(0, 56),
            "scheme 'k-nomial' has no parameter 'q': it takes k (the ");
  EXPECT_EQ(message_of("k-nomial:k"), "scheme 'k-nomial': parameter 'k' needs a value, as in k=2");
  EXPECT_EQ(message_of("k-nomial:k="), "scheme 'k-nomial': parameter 'k' needs a value, as in k=2");
  EXPECT_EQ(message_of("k-nomial:k=2,k=3"), "scheme 'k-nomial': parameter 'k' is given twice");
  EXPECT_EQ(message_of("k-nomial:"), "scheme 'k-nomial': nothing after ':'");
  EXPECT_EQ(message_of("k-nomial:k=2,"), "scheme 'k-nomial': nothing after ','");
  EXPECT_NE(message_of("k-nomial:,k=2"), "no error");
}

TEST_F(SchemeInput, k_nomial__k_out_of_range) {
  for (const std::string k : {"1", "0", "-3", "8193", "two", "2x", "2.5", "99999999999"}) {
    EXPECT_EQ(message_of("k-nomial:k=" + k), "scheme 'k-nomial': parameter k: '" + k +
                                                 "' is not allowed: a whole number from 2 to 8192");
  }
}

TEST_F(SchemeInput, ps__bad_servers_and_placement) {
  EXPECT_EQ(message_of("ps:servers=9"),
            "scheme 'ps': parameter servers: '9' is not allowed: a whole number from 0 to 8");
  EXPECT_EQ(message_of("ps:servers=-1"),
            "scheme 'ps': parameter servers: '-1' is not allowed: a whole number from 0 to 8");
  EXPECT_EQ(message_of("ps:servers=8,placement=separate"),
            "scheme 'ps': parameter servers: '8' is not allowed: a whole number from 0 to 7");
  EXPECT_EQ(message_of("ps:placement=here"),
            "scheme 'ps': parameter placement: 'here' is not allowed: colocated or separate");
  EXPECT_EQ(
      message_of("ps:servers=2", Collective::kReduce),
      "scheme 'ps': servers, placement and whole are for allreduce: the server of a reduce is its "
      "root");
  network_ = rack_network({1});
  EXPECT_EQ(message_of("ps:placement=separate"),
            "scheme 'ps': placement=separate needs at least 2 hosts, a server and a worker: there "
            "is 1");
}

TEST_F(SchemeInput, gossip__bad_iteration) {
  EXPECT_NE(message_of("gossip:iteration=-1", Collective::kMix).find("'-1' is not allowed"),
            std::string::npos);
  EXPECT_EQ(message_of("gossip:iteration=2147483647", Collective::kMix), "no error");
}

TEST_F(SchemeInput, plan__keeps_what_the_user_wrote) {
  const auto plan = make_plan("k-nomial:k=4",
                              {.topology = network_.topology, .elements = 10, .element_bytes = 2});
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->scheme, "k-nomial:k=4");
  EXPECT_EQ(plan->element_bytes, 2);
  EXPECT_FALSE(plan->root.valid());
}

TEST_F(SchemeInput, groups__in_region_order) {
  const TestNetwork interleaved = rack_network({3, 2}, /*interleaved=*/true);
  const std::vector<std::vector<Rank>> racks{{Rank(0), Rank(2), Rank(4)}, {Rank(1), Rank(3)}};
  EXPECT_EQ(innermost_groups(interleaved.topology), racks);
  const std::vector<Rank> order{Rank(0), Rank(2), Rank(4), Rank(1), Rank(3)};
  EXPECT_EQ(ranks_in_region_order(interleaved.topology), order);
  // Hosts of a pod that are in none of its racks are a group of their own.
  const TestNetwork beside = pod_network({{1}, {1}}, 1);
  EXPECT_EQ(innermost_groups(beside.topology).size(), 3U);
}

TEST_F(SchemeInput, spread_over__even_from_the_first) {
  const std::vector<Rank> order{Rank(0), Rank(2), Rank(4), Rank(1), Rank(3)};
  EXPECT_EQ(spread_over(order, 1), (std::vector<Rank>{Rank(0)}));
  EXPECT_EQ(spread_over(order, 2), (std::vector<Rank>{Rank(0), Rank(4)}));
  EXPECT_EQ(spread_over(order, 5), order);
}

TEST_F(SchemeInput, registry__names_are_unique_and_found) {
  for (const Scheme* scheme : all_schemes()) {
    EXPECT_EQ(*find_scheme(scheme->name), scheme);
    EXPECT_FALSE(scheme->collectives.empty());
  }
}

}  // namespace
}  // namespace thalweg::plan
