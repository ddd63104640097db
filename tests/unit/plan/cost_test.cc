#include "plan/cost.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/prng.h"
#include "plan/in_network.h"
#include "plan/max_min.h"
#include "plan/pipeline.h"
#include "plan/planner.h"
#include "topology/format/load.h"

namespace thalweg::plan {
namespace {

using Use = MaxMinFair::Use;

std::vector<double> fair_rates(const std::vector<double>& capacities,
                               const std::vector<std::vector<Use>>& flows) {
  std::vector<std::span<const Use>> uses(flows.begin(), flows.end());
  std::vector<double> rates(flows.size());
  MaxMinFair(capacities).solve(uses, rates);
  return rates;
}

TEST(MaxMin, textbook__each_flow_by_its_own_bottleneck) {
  // Arc 0 with capacity 10 is shared by flows 0 and 1, arc 1 with capacity 4 by flows 1 and 2.
  const auto rates = fair_rates({10, 4}, {{{0, 1}}, {{0, 1}, {1, 1}}, {{1, 1}}});
  EXPECT_DOUBLE_EQ(rates[0], 8);
  EXPECT_DOUBLE_EQ(rates[1], 2);
  EXPECT_DOUBLE_EQ(rates[2], 2);
}

TEST(MaxMin, split_flow__loads_each_path_with_its_part) {
  const auto rates = fair_rates({1, 1}, {{{0, 0.5F}, {1, 0.5F}}});
  EXPECT_DOUBLE_EQ(rates[0], 2);
}

// The definition: no arc is over its capacity, and every flow has a full arc on which no flow has a
// higher rate.
TEST(MaxMin, random__is_max_min_fair) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Prng prng(seed);
    std::vector<double> capacities(1 + prng.below(8));
    for (double& c : capacities) c = 1 + static_cast<double>(prng.below(100));
    std::vector<std::vector<Use>> flows(1 + prng.below(20));
    for (auto& flow : flows) {
      for (std::uint32_t a = 0; a < capacities.size(); ++a) {
        if (prng.chance(0.4)) flow.push_back({a, prng.chance(0.5) ? 1.0F : 0.25F});
      }
      if (flow.empty()) flow.push_back({0, 1});
    }
    const auto rates = fair_rates(capacities, flows);
    std::vector<double> load(capacities.size(), 0);
    std::vector<double> highest(capacities.size(), 0);
    for (std::size_t f = 0; f < flows.size(); ++f) {
      for (const Use& use : flows[f]) {
        load[use.arc] += rates[f] * static_cast<double>(use.weight);
        highest[use.arc] = std::max(highest[use.arc], rates[f]);
      }
    }
    for (std::size_t a = 0; a < load.size(); ++a) EXPECT_LE(load[a], capacities[a] * (1 + 1e-6));
    for (std::size_t f = 0; f < flows.size(); ++f) {
      const bool bottlenecked = std::ranges::any_of(flows[f], [&](const Use& use) {
        return load[use.arc] >= capacities[use.arc] * (1 - 1e-6) &&
               rates[f] >= highest[use.arc] * (1 - 1e-6);
      });
      EXPECT_TRUE(bottlenecked) << "flow " << f;
    }
  }
}

double predicted_ms(const std::string& spec, const std::string& network, Bytes size,
                    int pipeline = 1) {
  const topology::Topology topology = topology::topology_from_shorthand(network).value();
  const topology::Routing routing(topology);
  const Plan plan = make_plan(spec, {.topology = topology, .elements = size.count() / 4}).value();
  return evaluate(pipelined(plan, pipeline), topology, routing, {}).value().cost.total.ms();
}

// Closed forms, with α = 10 us per message and 1 us of delay per link.
TEST(Cost, ring__two_times_w_minus_one_over_w) {
  const double bytes_ms = 2.0 * 7 / 8 * 100e6 * 8 / 10e9 * 1e3;
  const double latency_ms = 14 * (10 + 2) * 1e-3;
  EXPECT_NEAR(predicted_ms("ring", "single-switch:hosts=8,host=10G", Bytes(100'000'000)),
              bytes_ms + latency_ms, bytes_ms * 1e-3);
}

TEST(Cost, incast__one_server_takes_all) {
  // 7 workers push the whole tensor to one server, which sends it back 7 times.
  const double bytes_ms = 2.0 * 7 * 10e6 * 8 / 10e9 * 1e3;
  EXPECT_NEAR(predicted_ms("ps:servers=1", "single-switch:hosts=8,host=10G", Bytes(10'000'000)),
              bytes_ms + 2 * 12e-3, bytes_ms * 1e-3);
}

TEST(Cost, oversubscription__the_uplink_decides) {
  // Each rack's 4 hosts push half of their tensors over one 10G uplink, and as much comes back
  // down: 2·S up for the reduce, and 2·S for the broadcast.
  const double bytes_ms = 4.0 * 97e6 * 8 / 10e9 * 1e3;
  EXPECT_NEAR(predicted_ms("ps", "leaf-spine:racks=2,hosts=4,spines=1,host=10G,uplink=10G",
                           Bytes(97'000'000)),
              bytes_ms, bytes_ms * 2e-3);
}

TEST(Cost, small_message__latency_only) {
  EXPECT_NEAR(predicted_ms("butterfly", "single-switch:hosts=8,host=100G", Bytes(4)), 3 * 12e-3,
              1e-4);
}

TEST(Cost, pipelining__overlaps_the_hops_of_a_chain) {
  const std::string network = "single-switch:hosts=8,host=10G";
  const double whole = predicted_ms("k-nomial", network, Bytes(100'000'000));
  const double cut = predicted_ms("k-nomial", network, Bytes(100'000'000), 16);
  EXPECT_LT(cut, 0.7 * whole);
}

TEST(Cost, never_below_what_the_slowest_link_needs) {
  for (const Scheme* scheme : all_schemes()) {
    for (const char* network :
         {"single-switch:hosts=5,host=10G",
          "leaf-spine:racks=3,hosts=3,spines=2,host=10G,uplink=5G", "fat-tree:k=4,host=10G"}) {
      const topology::Topology topology = topology::topology_from_shorthand(network).value();
      const topology::Routing routing(topology);
      for (const Collective collective : scheme->collectives) {
        Plan plan = make_plan(scheme->name, {.collective = collective,
                                             .topology = topology,
                                             .elements = 1'000'003,
                                             .element_bytes = 4,
                                             .root = Rank(1)})
                        .value();
        const auto e = evaluate(std::move(plan), topology, routing, {}).value();
        EXPECT_GE(e.cost.total.s(), e.accounting.slowest_arc_time.s() * (1 - 1e-6))
            << scheme->name << ' ' << name_of(collective) << " on " << network;
      }
    }
  }
}

TEST(Cost, resolution__a_coarse_one_hardly_moves_the_result) {
  const topology::Topology topology =
      topology::topology_from_shorthand("leaf-spine:racks=3,hosts=5,spines=2,host=10G,uplink=7G")
          .value();
  const topology::Routing routing(topology);
  for (const char* spec : {"rat", "ring", "hierarchical", "halving-doubling"}) {
    const Plan plan = make_plan(spec, {.topology = topology, .elements = 1'000'000}).value();
    CostOptions fine;
    fine.resolution = 1e-9;
    CostOptions coarse;
    coarse.resolution = 1e-3;
    const double exact = evaluate(plan, topology, routing, fine).value().cost.total.s();
    const double rough = evaluate(plan, topology, routing, coarse).value().cost.total.s();
    EXPECT_NEAR(rough / exact, 1, 0.01) << spec;
  }
}

TEST(Cost, timeline__every_transfer_once_within_the_total) {
  const topology::Topology topology =
      topology::topology_from_shorthand("single-switch:hosts=4,host=10G").value();
  const topology::Routing routing(topology);
  Plan plan = make_plan("ring", {.topology = topology, .elements = 1000}).value();
  CostOptions options;
  options.timeline = true;
  const auto e = evaluate(std::move(plan), topology, routing, options).value();
  ASSERT_EQ(e.cost.timeline.size(), e.plan.transfers.size());
  std::vector<bool> seen(e.plan.transfers.size());
  for (const TransferSpan& span : e.cost.timeline) {
    EXPECT_FALSE(seen[span.transfer]);
    seen[span.transfer] = true;
    EXPECT_LT(span.start, span.end);
    EXPECT_LE(span.end.since_start(), e.cost.total);
  }
}

TEST(Pipelined, every_scheme__still_proved_with_the_same_steps_and_bytes) {
  const topology::Topology topology =
      topology::topology_from_shorthand("leaf-spine:racks=2,hosts=3,spines=1,host=10G,uplink=10G")
          .value();
  for (const Scheme* scheme : all_schemes()) {
    for (const Collective collective : scheme->collectives) {
      const Plan plan = make_plan(scheme->name, {.collective = collective,
                                                 .topology = topology,
                                                 .elements = 37,
                                                 .element_bytes = 4,
                                                 .root = Rank(2)})
                            .value();
      const auto before = verify(plan);
      const auto after = verify(pipelined(plan, 5));
      ASSERT_TRUE(after.ok()) << scheme->name << ": " << after.error().message();
      EXPECT_EQ(before->steps, after->steps) << scheme->name;
    }
  }
}

// The times by a switch, and by halving and doubling among the ranks.
std::pair<Duration, Duration> in_network_and_not(int hosts, std::int64_t elements) {
  const topology::Topology network =
      topology::topology_from_shorthand(fmt::format("single-switch:hosts={},host=10G", hosts))
          .value();
  const topology::Routing routing(network);
  const auto among = [&](std::int64_t count, int bytes) {
    const PlanRequest request{.topology = network, .elements = count, .element_bytes = bytes};
    return evaluate(make_plan("halving-doubling", request).value(), network, routing, {})
        .value()
        .cost.total;
  };
  const InNetworkRequest how{.elements = elements,
                             .block_elements = 256,
                             .packet_overhead = Bytes(74),
                             .agreement = among((elements + 255) / 256, 1)};
  return {in_network_time(how, network, {}), among(elements, 4)};
}

TEST(InNetwork, time__is_that_of_the_line_and_of_the_agreement) {
  const topology::Topology network =
      topology::topology_from_shorthand("single-switch:hosts=4,host=10G").value();
  const InNetworkRequest how{.elements = 2'560'000,
                             .block_elements = 256,
                             .packet_overhead = Bytes(76),
                             .agreement = Duration::milliseconds(1)};
  // 10 000 packets of 1100 bytes: 11 MB at 10 Gb/s.
  const Duration line = Duration::microseconds(8800);
  const Duration time = in_network_time(how, network, {});
  EXPECT_GT(time, how.agreement + line);
  EXPECT_LT(time, how.agreement + line + Duration::microseconds(200));
}

TEST(InNetwork, time__of_several_racks_is_that_of_their_links) {
  const topology::Topology network =
      topology::topology_from_shorthand("leaf-spine:racks=4,hosts=4,spines=1,host=10G,uplink=10G")
          .value();
  InNetworkRequest how{
      .elements = 2'560'000, .packet_overhead = Bytes(76), .levels = 2, .agreement = {}};
  // The sums of three other racks come to the rack of the servers.
  const double line_ms = 11e6 * 3 * 8 / 10e9 * 1e3;
  const double time_ms = in_network_time(how, network, {}).ms();
  EXPECT_GT(time_ms, line_ms);
  EXPECT_LT(time_ms, line_ms + 0.2);
  // With one level, the tensors of all four ranks of a rack go out.
  how.levels = 1;
  EXPECT_NEAR(in_network_time(how, network, {}).ms(), 11e6 * 4 * 8 / 10e9 * 1e3, 0.2);
}

TEST(InNetwork, time__of_unequal_racks_has_the_servers_at_the_fastest_uplinks) {
  constexpr const char* kText = R"(
defaults: {rate: 10G}
regions: [{name: rack0}, {name: rack1}, {name: rack2}]
hosts:
  - {name: a, region: rack0}
  - {name: b, region: rack0}
  - {name: c, region: rack1}
  - {name: d, region: rack1}
  - {name: e, region: rack2}
  - {name: f, region: rack2}
switches: [{name: leaf0, region: rack0}, {name: leaf1, region: rack1}, {name: leaf2, region: rack2}, {name: spine}]
links:
  - {between: [a, leaf0]}
  - {between: [b, leaf0]}
  - {between: [c, leaf1]}
  - {between: [d, leaf1]}
  - {between: [e, leaf2]}
  - {between: [f, leaf2]}
  - {between: [leaf0, spine]}
  - {between: [leaf1, spine], rate: 20G}
  - {between: [leaf2, spine]}
)";
  const topology::Topology network = topology::topology_from_yaml(kText, "test").value();
  const InNetworkRequest how{
      .elements = 2'560'000, .packet_overhead = Bytes(76), .levels = 2, .agreement = {}};
  // Two sums come in over 20 Gb/s, and one over 10.
  EXPECT_NEAR(in_network_time(how, network, {}).ms(), 11e6 * 8 / 10e9 * 1e3, 0.2);
}

TEST(InNetwork, time__pays_with_many_ranks_and_many_bytes) {
  constexpr std::int64_t kLarge = 10'000'000;
  const auto [two, two_ranks] = in_network_and_not(2, kLarge);
  EXPECT_GT(two, two_ranks);
  const auto [eight, eight_ranks] = in_network_and_not(8, kLarge);
  EXPECT_LT(eight, eight_ranks);
  const auto [small, small_ranks] = in_network_and_not(8, 64);
  EXPECT_GT(small, small_ranks);
}

}  // namespace
}  // namespace thalweg::plan
