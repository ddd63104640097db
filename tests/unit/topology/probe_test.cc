#include "topology/probe.h"

#include <gtest/gtest.h>

#include "base/prng.h"
#include "topology/format/load.h"

namespace thalweg::topology {
namespace {

// Racks of these sizes, with round trips and rates within and across racks, all with a little
// noise.
struct Network {
  std::vector<int> racks;
  double within_us = 20;
  double across_us = 60;
  double within_gbps = 10;
  double across_gbps = 10;
  double noise = 0.1;

  [[nodiscard]] std::vector<ProbeSample> samples() const {
    std::vector<int> rack_of;
    for (std::size_t r = 0; r < racks.size(); ++r) {
      rack_of.insert(rack_of.end(), static_cast<std::size_t>(racks[r]), static_cast<int>(r));
    }
    Prng prng(7);
    const auto off = [&](double value) {
      return value * (1 + noise * static_cast<double>(prng.below(1000)) / 1000);
    };
    std::vector<ProbeSample> samples;
    const int hosts = static_cast<int>(rack_of.size());
    for (int i = 0; i < hosts; ++i) {
      for (int j = 0; j < hosts; ++j) {
        if (i == j) continue;
        const bool same =
            rack_of[static_cast<std::size_t>(i)] == rack_of[static_cast<std::size_t>(j)];
        const double gbps = off(same ? within_gbps : across_gbps);
        samples.push_back({(i + j) % hosts, i, j,
                           Duration::seconds(off(same ? within_us : across_us) * 1e-6),
                           Bandwidth::bits_per_second(static_cast<std::int64_t>(gbps * 1e9))});
      }
    }
    return samples;
  }
};

TEST(Probe, topology__racks_by_round_trips) {
  const Network network{.racks = {4, 3, 5}};
  const auto probed = topology_from_probe(12, network.samples());
  ASSERT_TRUE(probed.ok()) << probed.error().message();
  EXPECT_EQ(probed->regions, 3);
  EXPECT_EQ(probed->region_of, (std::vector<int>{0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 2, 2}));
  EXPECT_EQ(probed->by, "round trips");
  EXPECT_GT(probed->confidence, 0.5);
  EXPECT_EQ(probed->topology.host_count(), 12);
  EXPECT_EQ(probed->topology.regions().size(), 4U);
  // The topology it gives can be read back.
  EXPECT_TRUE(topology_from_yaml(topology_to_yaml(probed->topology), "probed").ok());
}

TEST(Probe, topology__racks_by_rates_where_round_trips_say_nothing) {
  const Network network{.racks = {4, 4}, .across_us = 20, .across_gbps = 2};
  const auto probed = topology_from_probe(8, network.samples());
  ASSERT_TRUE(probed.ok());
  EXPECT_EQ(probed->regions, 2);
  EXPECT_EQ(probed->by, "rates");
  const Topology& topology = probed->topology;
  // Hosts together send faster than their region's uplink carries.
  EXPECT_GT(topology.region(topology.region_of(Rank(0))).oversubscription, 1.5);
}

TEST(Probe, topology__one_region_where_all_are_alike) {
  const Network network{.racks = {6}};
  const auto probed = topology_from_probe(6, network.samples());
  ASSERT_TRUE(probed.ok());
  EXPECT_EQ(probed->regions, 1);
  EXPECT_EQ(probed->by, "");
  EXPECT_GT(probed->confidence, 0.5);
  EXPECT_EQ(topology_from_probe(1, {})->regions, 1);
}

TEST(Probe, topology__samples_that_are_missing_or_wrong) {
  std::vector<ProbeSample> samples = Network{.racks = {3}}.samples();
  samples.pop_back();
  EXPECT_EQ(topology_from_probe(3, samples).error().message(),
            "there is no sample from host 2 to host 1");
  samples.push_back({0, 2, 7, Duration::microseconds(1), Bandwidth::gbps(1)});
  EXPECT_EQ(topology_from_probe(3, samples).error().message(),
            "a sample from host 2 to host 7, of 3");
  samples.back() = {0, 2, 1, Duration(), Bandwidth::gbps(1)};
  EXPECT_NE(topology_from_probe(3, samples).error().message().find("must be above 0"),
            std::string::npos);
  EXPECT_FALSE(topology_from_probe(0, {}).ok());
}

}  // namespace
}  // namespace thalweg::topology
