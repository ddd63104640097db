// The files under topologies/, each read as for a user.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "topology/format/load.h"
#include "topology/invariants.h"

namespace thalweg::topology {
namespace {

std::filesystem::path folder() {
  return std::filesystem::path(__FILE__).parent_path() / "../../../topologies";
}

Topology load(const std::string& name) {
  const std::filesystem::path path = folder() / name;
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << path;
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  Result<Topology> topology = topology_from_file_text(text, path.string());
  EXPECT_TRUE(topology.ok()) << topology.error().message();
  return std::move(topology).value();
}

double oversubscription(const Topology& t, std::string_view region) {
  return t.region(t.find_region(region)).oversubscription;
}

TEST(TopologyFiles, every_file__loads_and_round_trips) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder())) {
    SCOPED_TRACE(entry.path());
    const Topology t = load(entry.path().filename());
    EXPECT_EQ(broken_invariant(t), "");
    EXPECT_EQ(topology_from_yaml(topology_to_yaml(t), "again.yaml").value(), t);
    const Routing routing(t);
    for (std::int32_t from = 0; from < t.host_count(); ++from) {
      for (std::int32_t to = 0; to < t.host_count(); ++to) {
        EXPECT_EQ(broken_conservation(t, routing, Rank(from), Rank(to)), "");
      }
    }
    ++files;
  }
  EXPECT_GE(files, 9);
}

TEST(TopologyFiles, two_racks__oversubscribed_four_to_one) {
  const Topology t = load("two-racks.yaml");
  EXPECT_EQ(t.host_count(), 8);
  EXPECT_DOUBLE_EQ(oversubscription(t, "rack0"), 4);
  EXPECT_DOUBLE_EQ(oversubscription(t, "rack1"), 4);
}

TEST(TopologyFiles, dlcp_testbed__as_in_figure_11) {
  const Topology t = load("dlcp-testbed.yaml");
  EXPECT_EQ(t.host_count(), 10);
  EXPECT_EQ(t.nodes().size(), 14U);
  EXPECT_DOUBLE_EQ(oversubscription(t, "rack0"), 1);
  EXPECT_EQ(Routing(t).paths(Rank(0), Rank(9), 10).size(), 2U);
  for (const Link& link : t.links()) EXPECT_EQ(link.spec.buffer, Bytes(4'000'000));
}

TEST(TopologyFiles, slow_uplink__one_rack_is_worse_off) {
  const Topology t = load("slow-uplink.yaml");
  EXPECT_EQ(t.host_count(), 16);
  EXPECT_DOUBLE_EQ(oversubscription(t, "rack0"), 1);
  EXPECT_DOUBLE_EQ(oversubscription(t, "rack3"), 4);
}

TEST(TopologyFiles, slow_nic__a_quarter) {
  const Topology t = load("slow-nic.yaml");
  const auto rate_of = [&](Rank rank) {
    return t.arc(t.arcs_from(t.host(rank)).front()).spec.rate.bps();
  };
  EXPECT_EQ(rate_of(Rank(7)) * 4, rate_of(Rank(0)));
}

TEST(TopologyFiles, ending__unknown_lists_them) {
  const Result<Topology> result = topology_from_file_text("", "net.json");
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(
      result.error().message(),
      "net.json: cannot tell the format of a topology from this name: end it in .yaml or .yml "
      "(ours), .xml (NCCL), .topo (htsim), .simai or .txt (SimAI)");
}

}  // namespace
}  // namespace thalweg::topology
