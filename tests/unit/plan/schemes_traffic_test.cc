// What the schemes promise beyond correctness: volume, balance, locality, order of sends.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "plan/scheme.h"
#include "plan/schemes_networks.h"
#include "plan/verify.h"

namespace thalweg::plan {
namespace {

Plan planned(const std::string& spec, const PlanRequest& request) {
  Result<Plan> plan = make_plan(spec, request);
  EXPECT_TRUE(plan.ok()) << plan.error().message();
  return plan.ok() ? *plan : Plan{};
}

std::vector<std::int64_t> elements_sent(const Plan& plan) {
  std::vector<std::int64_t> sent(static_cast<std::size_t>(plan.ranks));
  for (const PlanTransfer& t : plan.transfers) {
    sent[t.source.index()] += plan.chunks[t.chunk.index()].length;
  }
  return sent;
}

// Elements that cross the boundary of a region of depth `depth` or less, each counted once.
std::int64_t elements_across(const Plan& plan, const topology::Topology& topology, int depth) {
  const auto region_at_depth = [&](Rank rank) {
    topology::RegionId id = topology.region_of(rank);
    while (topology.region(id).depth > depth) id = topology.region(id).parent;
    return id;
  };
  std::int64_t across = 0;
  for (const PlanTransfer& t : plan.transfers) {
    if (region_at_depth(t.source) == region_at_depth(t.target)) continue;
    across += plan.chunks[t.chunk.index()].length;
  }
  return across;
}

TEST(SchemeTraffic, volume__least_for_each_rank) {
  for (const std::int64_t w : {2, 3, 5, 8, 12, 16, 17}) {
    const TestNetwork network = rack_network({static_cast<int>(w)});
    const std::int64_t elements = w * 120;
    for (const std::string spec : {"ring", "halving-doubling", "blueconnect", "ps"}) {
      SCOPED_TRACE(fmt::format("{} with {} ranks", spec, w));
      const Plan plan = planned(spec, {.topology = network.topology, .elements = elements});
      for (const std::int64_t sent : elements_sent(plan)) {
        EXPECT_EQ(sent, 2 * (w - 1) * elements / w);
      }
    }
  }
}

TEST(SchemeTraffic, blueconnect__least_across_every_boundary) {
  constexpr std::int64_t kTensorElements = 96'000;
  for (const auto& sizes : std::vector<std::vector<int>>{{4, 4}, {4, 4, 4}, {5, 3}, {1, 7, 2, 3}}) {
    const TestNetwork network = rack_network(sizes, /*interleaved=*/true);
    SCOPED_TRACE(network.name);
    const auto racks = static_cast<std::int64_t>(sizes.size());
    for (const std::string spec : {"blueconnect", "hierarchical", "plink"}) {
      const Plan plan = planned(spec, {.topology = network.topology, .elements = kTensorElements});
      EXPECT_EQ(elements_across(plan, network.topology, 1), 2 * (racks - 1) * kTensorElements)
          << spec;
    }
  }
  const TestNetwork nested = pod_network({{2, 3}, {4, 1}, {2, 2, 2}});
  const Plan blue =
      planned("blueconnect", {.topology = nested.topology, .elements = kTensorElements});
  EXPECT_EQ(elements_across(blue, nested.topology, 1), 4 * kTensorElements);
  EXPECT_EQ(elements_across(blue, nested.topology, 2), 12 * kTensorElements);
  // Two levels of aggregation are not enough for three (RAT paper, §2.3).
  const Plan plink = planned("plink", {.topology = nested.topology, .elements = kTensorElements});
  EXPECT_GT(elements_across(plink, nested.topology, 1), 4 * kTensorElements);
  EXPECT_EQ(elements_across(plink, nested.topology, 2), 12 * kTensorElements);
}

TEST(SchemeTraffic, blueconnect__equal_regions_need_one_chunk_a_rank) {
  for (const TestNetwork& network :
       {rack_network({4, 4}), rack_network({5, 5, 5}), pod_network({{3, 3}, {3, 3}, {3, 3}})}) {
    const Plan plan = planned("blueconnect", {.topology = network.topology, .elements = 1'000'000});
    EXPECT_EQ(plan.chunks.size(), static_cast<std::size_t>(plan.ranks)) << network.name;
  }
}

// In its region of n hosts, each host moves 1/n of the tensor across, whatever the other regions
// are.
TEST(SchemeTraffic, blueconnect__uneven_regions_share_the_boundary_evenly) {
  const TestNetwork network = rack_network({5, 3});
  constexpr std::int64_t kTensorElements = 61'440;
  const Plan plan =
      planned("blueconnect", {.topology = network.topology, .elements = kTensorElements});
  std::vector<std::int64_t> across(8);
  for (const PlanTransfer& t : plan.transfers) {
    if (network.topology.region_of(t.source) == network.topology.region_of(t.target)) continue;
    across[t.source.index()] += plan.chunks[t.chunk.index()].length;
  }
  for (std::size_t rank = 0; rank < 8; ++rank) {
    const double ideal = static_cast<double>(kTensorElements) / (rank < 5 ? 5 : 3);
    EXPECT_NEAR(static_cast<double>(across[rank]), ideal, ideal * 0.01) << rank;
  }
}

TEST(SchemeTraffic, ring__enters_each_region_once) {
  const TestNetwork network = pod_network({{3, 2}, {4, 1}, {2, 2}}, 2);
  for (const Collective collective :
       {Collective::kAllreduce, Collective::kBroadcast, Collective::kReduce}) {
    for (const Rank root : {Rank(0), Rank(6), Rank(9)}) {
      const Plan plan = planned(
          "ring",
          {.collective = collective, .topology = network.topology, .elements = 1000, .root = root});
      std::set<std::pair<Rank, Rank>> edges;
      for (const PlanTransfer& t : plan.transfers) edges.emplace(t.source, t.target);
      for (const topology::RegionId id :
           {network.topology.find_region("region0"), network.topology.find_region("region1"),
            network.topology.find_region("region5")}) {
        const auto inside = [&](Rank rank) {
          return network.topology.contains(id, network.topology.region_of(rank));
        };
        const auto entering = std::count_if(edges.begin(), edges.end(), [&](const auto& edge) {
          return !inside(edge.first) && inside(edge.second);
        });
        EXPECT_LE(entering, 1) << name_of(collective) << " " << network.topology.region(id).name;
      }
    }
  }
}

TEST(SchemeTraffic, double_tree__inner_node_of_at_most_one_tree) {
  for (int w = 2; w <= 65; ++w) {
    const TestNetwork network = rack_network({w});
    for (const Collective collective :
         {Collective::kAllreduce, Collective::kReduce, Collective::kBroadcast}) {
      const Plan plan =
          planned("double-tree",
                  {.collective = collective, .topology = network.topology, .elements = 1000});
      ASSERT_EQ(plan.chunks.size(), 2U);
      const auto half_or_more = [](const Chunk& c) { return c.length == 500; };
      EXPECT_TRUE(std::all_of(plan.chunks.begin(), plan.chunks.end(), half_or_more));
      std::map<Rank, std::set<ChunkIndex>> inner;
      std::map<std::pair<Rank, ChunkIndex>, std::set<Rank>> children;
      for (const PlanTransfer& t : plan.transfers) {
        const Rank parent = t.kind == TransferKind::kReduce ? t.target : t.source;
        const Rank child = t.kind == TransferKind::kReduce ? t.source : t.target;
        inner[parent].insert(t.chunk);
        children[{parent, t.chunk}].insert(child);
      }
      for (const auto& [rank, trees] : inner) {
        if (rank == plan.root) continue;
        EXPECT_EQ(trees.size(), 1U) << rank.value() << " of " << w;
      }
      for (const auto& [parent, ranks] : children) {
        EXPECT_LE(ranks.size(), parent.first == plan.root ? 1U : 2U);
      }
    }
  }
}

TEST(SchemeTraffic, halving_doubling__nearest_partner_first) {
  const TestNetwork network = rack_network({8});
  const Plan plan = planned("halving-doubling", {.topology = network.topology, .elements = 800});
  // 3 steps of 8 ranks; 4, 2 and 1 blocks each.
  ASSERT_EQ(plan.transfers.size(), 2U * 8 * 7);
  const auto distance = [](const PlanTransfer& t) { return t.source.value() ^ t.target.value(); };
  for (std::size_t i = 0; i < 32; ++i) EXPECT_EQ(distance(plan.transfers[i]), 1);
  for (std::size_t i = 32; i < 48; ++i) EXPECT_EQ(distance(plan.transfers[i]), 2);
  for (std::size_t i = 48; i < 56; ++i) EXPECT_EQ(distance(plan.transfers[i]), 4);
}

TEST(SchemeTraffic, halving_doubling__a_step_moves_one_stretch_of_the_tensor) {
  const TestNetwork network = rack_network({16});
  const Plan plan = planned("halving-doubling", {.topology = network.topology, .elements = 1600});
  for (std::size_t i = 1; i < plan.transfers.size(); ++i) {
    const PlanTransfer& before = plan.transfers[i - 1];
    const PlanTransfer& t = plan.transfers[i];
    if (t.source != before.source || t.target != before.target || t.kind != before.kind) continue;
    const Chunk& chunk = plan.chunks[before.chunk.index()];
    EXPECT_EQ(plan.chunks[t.chunk.index()].offset, chunk.offset + chunk.length);
  }
}

// Plan::transfers is an order of execution: what a transfer carries exists before it.
TEST(SchemeTraffic, order__can_be_executed_one_by_one) {
  for (const TestNetwork& network : networks_of(13)) {
    for (const Scheme* scheme : all_schemes()) {
      for (const Collective collective : scheme->collectives) {
        const Plan plan =
            planned(std::string(scheme->name),
                    {.collective = collective, .topology = network.topology, .elements = 1300});
        std::map<std::pair<Rank, ChunkIndex>, std::int32_t> versions;
        for (const PlanTransfer& t : plan.transfers) {
          EXPECT_GE((versions[{t.source, t.chunk}]), t.after) << scheme->name;
          ++versions[{t.target, t.chunk}];
        }
      }
    }
  }
}

// In plan order, the n-th sends of all ranks go to n different ranks.
TEST(SchemeTraffic, order__first_sends_meet_nowhere) {
  const TestNetwork network = rack_network({9});
  for (const auto& [spec, collective] :
       std::vector<std::pair<std::string, Collective>>{{"direct", Collective::kAllToAll},
                                                       {"direct", Collective::kReduceScatter},
                                                       {"direct", Collective::kAllGather},
                                                       {"ps", Collective::kAllreduce}}) {
    const Plan plan =
        planned(spec, {.collective = collective, .topology = network.topology, .elements = 900});
    std::vector<std::size_t> sends(9);
    std::map<std::size_t, std::set<Rank>> targets;
    for (const PlanTransfer& t : plan.transfers) {
      const std::size_t turn = sends[t.source.index()]++;
      EXPECT_TRUE(targets[turn].insert(t.target).second) << spec;
    }
  }
}

TEST(SchemeTraffic, ps__separate_servers_contribute_nothing) {
  const TestNetwork network = rack_network({4, 4});
  const Plan plan =
      planned("ps:servers=2,placement=separate", {.topology = network.topology, .elements = 1000});
  EXPECT_EQ(plan.contributors, 6);
  EXPECT_EQ(plan.chunks.size(), 2U);
  EXPECT_EQ(plan.transfers.size(), 2U * 6 * 2);
}

TEST(SchemeTraffic, ps__colocated_servers_spread_over_racks) {
  const TestNetwork network = rack_network({4, 4}, /*interleaved=*/true);
  const Plan plan = planned("ps:servers=2", {.topology = network.topology, .elements = 1000});
  std::set<topology::RegionId> regions;
  for (const PlanTransfer& t : plan.transfers) {
    if (t.kind == TransferKind::kReduce) regions.insert(network.topology.region_of(t.target));
  }
  EXPECT_EQ(regions.size(), 2U);
}

TEST(SchemeTraffic, gossip__all_iterations_reach_everyone) {
  for (const int w : {2, 4, 8, 16, 32}) {
    const TestNetwork network = rack_network({w});
    std::vector<std::set<Rank>> known(static_cast<std::size_t>(w));
    for (int r = 0; r < w; ++r) known[static_cast<std::size_t>(r)].insert(Rank(r));
    for (int t = 0; (1 << t) < w; ++t) {
      const Plan plan =
          planned(fmt::format("gossip:iteration={}", t),
                  {.collective = Collective::kMix, .topology = network.topology, .elements = 10});
      const auto before = known;
      for (std::size_t r = 0; r < known.size(); ++r) {
        for (const Rank from : plan.mixes[r]) {
          known[r].insert(before[from.index()].begin(), before[from.index()].end());
        }
      }
    }
    for (const auto& ranks : known) EXPECT_EQ(ranks.size(), known.size()) << w;
  }
}

}  // namespace
}  // namespace thalweg::plan
