// RAT's trees, and weights for networks that are not symmetric.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/prng.h"
#include "plan/planner.h"
#include "plan/rat/loads.h"
#include "plan/rat/weights.h"
#include "plan/schemes_networks.h"
#include "topology/format/load.h"

namespace thalweg::plan {
namespace {

topology::Topology network(const std::string& shorthand) {
  return topology::topology_from_shorthand(shorthand).value();
}

TEST(RatTrees, two_racks_of_four__the_papers_32) {
  const topology::Topology topology =
      network("leaf-spine:racks=2,hosts=4,spines=1,host=10G,uplink=10G");
  const auto groups = rat_groups(topology, RatRegions::kAll);
  ASSERT_EQ(groups.size(), 3U);
  EXPECT_EQ(count_trees(groups), 32);
  const auto trees = all_trees(groups);
  std::set<std::vector<Rank>> different;
  std::map<Rank, int> roots;
  for (const RatTree& tree : trees) {
    different.insert(tree.aggregators);
    ++roots[tree.root()];
    EXPECT_DOUBLE_EQ(tree.weight, 1.0 / 32);
  }
  EXPECT_EQ(different.size(), 32U);
  for (int r = 0; r < 8; ++r) EXPECT_EQ(roots[Rank(r)], 4);
}

TEST(RatTrees, given_root__only_its_trees) {
  const topology::Topology topology =
      network("leaf-spine:racks=2,hosts=4,spines=1,host=10G,uplink=10G");
  const auto groups = rat_groups(topology, RatRegions::kAll);
  EXPECT_EQ(count_trees(groups, Rank(5)), 4);
  for (const RatTree& tree : all_trees(groups, Rank(5))) EXPECT_EQ(tree.root(), Rank(5));
}

TEST(RatTrees, rotated__roles_spread_evenly_on_many_shapes) {
  for (int ranks = 1; ranks <= 24; ++ranks) {
    for (const TestNetwork& net : networks_of(ranks)) {
      SCOPED_TRACE(net.name);
      const auto groups = rat_groups(net.topology, RatRegions::kAll);
      const auto trees = rotated_trees(groups, ranks);
      std::map<Rank, int> roots;
      for (const RatTree& tree : trees) ++roots[tree.root()];
      for (int r = 0; r < ranks; ++r) EXPECT_EQ(roots[Rank(r)], 1);
    }
  }
}

TEST(RatTrees, oversubscribed_only__skips_regions_with_room) {
  const topology::Topology topology =
      network("leaf-spine:racks=2,hosts=4,spines=1,host=10G,uplink=40G");
  EXPECT_EQ(rat_groups(topology, RatRegions::kAll).size(), 3U);
  EXPECT_EQ(rat_groups(topology, RatRegions::kOversubscribed).size(), 1U);
}

TEST(RatTrees, too_many_to_count__saturates) {
  const topology::Topology topology =
      network("leaf-spine:racks=32,hosts=32,spines=1,host=10G,uplink=10G");
  EXPECT_EQ(count_trees(rat_groups(topology, RatRegions::kAll)), 2147483647);
}

TEST(Rat, root_of_a_reduce__gets_everything_by_least_traffic) {
  const topology::Topology topology =
      network("leaf-spine:racks=3,hosts=3,spines=1,host=10G,uplink=10G");
  const topology::Routing routing(topology);
  Plan plan = make_plan("rat", {.collective = Collective::kReduce,
                                .topology = topology,
                                .elements = 9000,
                                .element_bytes = 4,
                                .root = Rank(4)})
                  .value();
  const auto e = evaluate(std::move(plan), topology, routing, {}).value();
  EXPECT_EQ(e.proof.steps, 2);
  EXPECT_EQ(e.accounting.cross_region, Bytes(2 * 36'000));
}

// Expects that the parts become trees: every tree is valid, and the parts add up again.
void expect_trees_match_parts(const std::vector<RatGroup>& groups, const RatParts& parts) {
  const auto trees = trees_from_parts(groups, parts, 1e-9);
  RatParts sum = parts;
  for (auto& group : sum) std::ranges::fill(group, 0);
  double whole = 0;
  for (const RatTree& tree : trees) {
    whole += tree.weight;
    for (std::size_t g = 0; g < groups.size(); ++g) {
      const auto& hosts = groups[g].all_hosts;
      const auto at = std::ranges::find(hosts, tree.aggregators[g]);
      ASSERT_NE(at, hosts.end()) << "an aggregator outside its group";
      sum[g][static_cast<std::size_t>(at - hosts.begin())] += tree.weight;
      bool is_member = std::ranges::find(groups[g].hosts, *at) != groups[g].hosts.end();
      for (const std::size_t child : groups[g].children) {
        is_member = is_member || tree.aggregators[child] == *at;
      }
      ASSERT_TRUE(is_member) << "an aggregator that does not aggregate for its child group";
    }
  }
  EXPECT_NEAR(whole, 1, 1e-9);
  for (std::size_t g = 0; g < groups.size(); ++g) {
    for (std::size_t i = 0; i < sum[g].size(); ++i) EXPECT_NEAR(sum[g][i], parts[g][i], 1e-5);
  }
}

TEST(RatWeights, symmetric_networks__exactly_uniform) {
  for (const char* shorthand :
       {"single-switch:hosts=7,host=10G", "leaf-spine:racks=2,hosts=4,spines=1,host=10G,uplink=10G",
        "leaf-spine:racks=4,hosts=8,spines=2,host=10G,uplink=40G",
        "three-tier:pods=2,racks=2,hosts=3,aggs=2,cores=2,host=10G,rack=10G,agg=10G",
        "fat-tree:k=4,host=10G"}) {
    const topology::Topology topology = network(shorthand);
    const auto groups = rat_groups(topology, RatRegions::kAll);
    const auto parts = best_parts(groups, topology, topology::Routing(topology));
    ASSERT_TRUE(parts.ok());
    EXPECT_EQ(*parts, uniform_parts(groups)) << shorthand;
    const PlanRequest request{.topology = topology, .elements = 100'000};
    Plan plain = make_plan("rat", request).value();
    plain.scheme = "rat-weighted";
    EXPECT_EQ(make_plan("rat-weighted", request).value(), plain) << shorthand;
  }
}

// Four racks of four. `slow` names the link that runs at a quarter of its rate.
topology::Topology four_racks(const std::string& slow) {
  topology::TopologyBuilder builder("four racks, slow " + slow);
  const topology::NodeId spine = builder.add_switch("spine", topology::kWholeNetwork).value();
  for (int r = 0; r < 4; ++r) {
    const std::string rack = "rack" + std::to_string(r);
    const topology::RegionId region = builder.add_region(rack, topology::kWholeNetwork).value();
    const topology::NodeId leaf = builder.add_switch(rack + "-leaf", region).value();
    const auto link = [&](topology::NodeId a, topology::NodeId b, const std::string& name,
                          std::int64_t gbps) {
      const Bandwidth rate =
          Bandwidth::bits_per_second(gbps * (name == slow ? 250'000'000 : 1'000'000'000));
      (void)builder.add_link(a, b, {rate, Duration::microseconds(1), Bytes(0)}).value();
    };
    link(leaf, spine, rack, 20);
    for (int h = 0; h < 4; ++h) {
      const std::string name = rack + "-host" + std::to_string(h);
      link(builder.add_host(name, region).value(), leaf, name, 10);
    }
  }
  return std::move(builder).build().value();
}

class RatAsymmetric : public testing::TestWithParam<const char*> {};

TEST_P(RatAsymmetric, weighted__beats_equal_shares) {
  const topology::Topology topology = four_racks(GetParam());
  const topology::Routing routing(topology);
  const auto groups = rat_groups(topology, RatRegions::kAll);
  const RatParts parts = best_parts(groups, topology, routing).value();
  EXPECT_NE(parts, uniform_parts(groups));
  expect_trees_match_parts(groups, parts);

  const PlanRequest request{.topology = topology, .elements = 25'000'000};
  const auto equal = evaluate_scheme("rat", request, routing, {}).value();
  const auto weighted = evaluate_scheme("rat-weighted", request, routing, {}).value();
  EXPECT_LT(weighted.accounting.slowest_arc_time.s(), 0.9 * equal.accounting.slowest_arc_time.s());
  EXPECT_LT(weighted.cost.total.s(), 0.95 * equal.cost.total.s());
  EXPECT_EQ(weighted.accounting.cross_region, equal.accounting.cross_region);
  EXPECT_EQ(weighted.proof.steps, equal.proof.steps);
}

INSTANTIATE_TEST_SUITE_P(OneSlowLink, RatAsymmetric, testing::Values("rack1", "rack2-host3"));

// Compares the linear program's own figure with the load that the trees put on the network.
TEST(RatWeights, predicted_load__what_accounting_counts) {
  const topology::Topology topology = four_racks("rack1");
  const topology::Routing routing(topology);
  const auto groups = rat_groups(topology, RatRegions::kAll);
  const RatLoads loads(groups, topology, routing);
  const RatParts parts = best_parts(groups, topology, routing).value();
  std::vector<double> values;
  for (const auto& group : parts) values.insert(values.end(), group.begin(), group.end());
  const double seconds = loads.worst(values) * 100e6 * 8 / 20e9;
  Plan plan = make_plan("rat-weighted", {.topology = topology, .elements = 25'000'000}).value();
  const auto e = evaluate(std::move(plan), topology, routing, {}).value();
  EXPECT_NEAR(e.accounting.slowest_arc_time.s() / seconds, 1, 0.01);
}

TEST(RatWeights, random_networks__never_worse_than_equal_shares) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Prng prng(seed);
    topology::TopologyBuilder builder("random");
    const auto rate = [&] {
      return topology::LinkSpec{Bandwidth::gbps(1 + static_cast<std::int64_t>(prng.below(40))),
                                Duration::microseconds(1), Bytes(0)};
    };
    const topology::NodeId spine = builder.add_switch("spine", topology::kWholeNetwork).value();
    const std::size_t racks = 2 + prng.below(4);
    for (std::size_t r = 0; r < racks; ++r) {
      const std::string rack = "rack" + std::to_string(r);
      const topology::RegionId region = builder.add_region(rack, topology::kWholeNetwork).value();
      const topology::NodeId leaf = builder.add_switch(rack + "-leaf", region).value();
      (void)builder.add_link(leaf, spine, rate()).value();
      for (std::size_t h = 0; h < 1 + prng.below(6); ++h) {
        const topology::NodeId host =
            builder.add_host(rack + "-" + std::to_string(h), region).value();
        (void)builder.add_link(host, leaf, rate()).value();
      }
    }
    const topology::Topology topology = std::move(builder).build().value();
    const topology::Routing routing(topology);
    const auto groups = rat_groups(topology, RatRegions::kAll);
    expect_trees_match_parts(groups, best_parts(groups, topology, routing).value());
    const auto bound = [&](const std::string& spec) {
      Plan plan = make_plan(spec, {.topology = topology, .elements = 10'000'000}).value();
      return evaluate(std::move(plan), topology, routing, {})
          .value()
          .accounting.slowest_arc_time.s();
    };
    // Trees too light to be worth a message are merged, which may cost a little.
    EXPECT_LE(bound("rat-weighted"), bound("rat") * 1.02);
  }
}

TEST(Rat, many_hosts__one_tree_each_and_proved) {
  const topology::Topology topology =
      network("leaf-spine:racks=16,hosts=16,spines=2,host=10G,uplink=40G");
  const Plan plan = make_plan("rat", {.topology = topology, .elements = 1'000'000}).value();
  EXPECT_EQ(plan.chunks.size(), 256U);
  const auto proof = verify(plan);
  ASSERT_TRUE(proof.ok()) << proof.error().message();
  EXPECT_EQ(proof->steps, 4);
}

TEST(Rat, bad_parameters__say_what_is_allowed) {
  const topology::Topology topology = network("single-switch:hosts=4,host=10G");
  const PlanRequest request{.topology = topology, .elements = 100};
  for (const char* spec : {"rat:trees=0", "rat:trees=many", "rat:regions=some", "rat:tree=1"}) {
    EXPECT_FALSE(make_plan(spec, request).ok()) << spec;
  }
}

}  // namespace
}  // namespace thalweg::plan
