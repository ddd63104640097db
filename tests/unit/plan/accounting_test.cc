// Bytes, steps and regions counted from plans, including RAT's table 1 (the RAT paper).
#include "plan/accounting.h"

#include <gtest/gtest.h>

#include "plan/planner.h"
#include "topology/format/load.h"

namespace thalweg::plan {
namespace {

constexpr std::int64_t kElements = 24'250'000;  // 97 MB of float32
constexpr Bytes kSize(97'000'000);

EvaluatedPlan evaluated(const std::string& spec, const topology::Topology& topology) {
  const topology::Routing routing(topology);
  Plan plan = make_plan(spec, {.topology = topology, .elements = kElements}).value();
  return evaluate(std::move(plan), topology, routing, {}).value();
}

topology::Topology two_racks() {
  return topology::topology_from_shorthand(
             "leaf-spine:racks=2,hosts=4,spines=1,host=10G,uplink=10G")
      .value();
}

// w = 8 workers in 2 racks (l = 1 level of regions), k = 2. The values are the paper's formulas;
// docs/deviations.md says where these are wrong.
TEST(Accounting, table_1__steps) {
  const topology::Topology topology = two_racks();
  EXPECT_EQ(evaluated("ps", topology).proof.steps, 2);
  EXPECT_EQ(evaluated("ring", topology).proof.steps, 2 * (8 - 1));
  EXPECT_EQ(evaluated("butterfly", topology).proof.steps, 3);
  EXPECT_EQ(evaluated("halving-doubling", topology).proof.steps, 2 * 3);
  EXPECT_EQ(evaluated("k-nomial", topology).proof.steps, 2 * 3);
  EXPECT_EQ(evaluated("blueconnect", topology).proof.steps, 2 * ((4 - 1) + (2 - 1)));
  EXPECT_EQ(evaluated("plink", topology).proof.steps, 4);
  EXPECT_EQ(evaluated("rat", topology).proof.steps, 2 * (1 + 1));
}

TEST(Accounting, table_1__cross_region_bytes) {
  const topology::Topology topology = two_racks();
  const Bytes least = kSize * 2;  // each rack sends its sum out once and takes the result in once
  for (const char* spec : {"rat", "rat-weighted", "blueconnect", "plink", "hierarchical"}) {
    EXPECT_EQ(evaluated(spec, topology).accounting.cross_region, least) << spec;
  }
  // PS: every worker pushes to the 4 of 8 servers in the other rack, and pulls from them.
  EXPECT_EQ(evaluated("ps", topology).accounting.cross_region, kSize * 8);
  // The ring crosses twice, and each crossing carries 2(w−1)/w of the tensor: 2(w−1)/w times the
  // least in total, although the paper calls it minimal.
  EXPECT_EQ(evaluated("ring", topology).accounting.cross_region.count(),
            kSize.count() * 2 * 2 * 7 / 8);
}

TEST(Accounting, three_levels__only_rat_and_blueconnect_are_least_at_every_boundary) {
  const topology::Topology topology =
      topology::topology_from_shorthand(
          "three-tier:pods=2,racks=2,hosts=4,aggs=1,cores=1,host=10G,rack=10G,agg=10G")
          .value();
  const auto pod_in = [&](const std::string& spec) {
    const EvaluatedPlan e = evaluated(spec, topology);
    const topology::RegionId pod = topology.find_region("pod0");
    return e.accounting.regions[pod.index()].in;
  };
  EXPECT_EQ(evaluated("rat", topology).proof.steps, 2 * (2 + 1));
  EXPECT_EQ(pod_in("rat"), kSize);
  EXPECT_EQ(pod_in("blueconnect"), kSize);
  // PLink has only two levels: the racks of a pod do not combine what they push.
  EXPECT_EQ(pod_in("plink"), kSize * 2);
}

TEST(Accounting, links__conserve_bytes) {
  const topology::Topology topology = two_racks();
  for (const char* spec : {"ps", "ring", "rat", "double-tree"}) {
    const Accounting a = evaluated(spec, topology).accounting;
    double from_hosts = 0;
    double to_hosts = 0;
    double into_spine = 0;
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(topology.arc_count()); ++i) {
      const topology::Arc arc = topology.arc(topology::ArcId(i));
      const double bytes = a.arc_bytes[static_cast<std::size_t>(i)];
      if (topology.node(arc.from).kind == topology::NodeKind::kHost) from_hosts += bytes;
      if (topology.node(arc.to).kind == topology::NodeKind::kHost) to_hosts += bytes;
      if (topology.node(arc.to).name == "spine0") into_spine += bytes;
    }
    EXPECT_NEAR(from_hosts, static_cast<double>(a.total.count()), 1) << spec;
    EXPECT_NEAR(to_hosts, static_cast<double>(a.total.count()), 1) << spec;
    EXPECT_NEAR(into_spine, static_cast<double>(a.cross_region.count()), 1) << spec;
  }
}

TEST(Accounting, fan_in__senders_in_one_step) {
  const topology::Topology topology = two_racks();
  EXPECT_EQ(evaluated("ps", topology).accounting.peak_fan_in, 7);
  EXPECT_EQ(evaluated("ring", topology).accounting.peak_fan_in, 1);
  EXPECT_EQ(evaluated("rat:trees=1", topology).accounting.peak_fan_in, 3);
}

TEST(Accounting, wrong_rank_count__says_both_numbers) {
  const topology::Topology topology = two_racks();
  const topology::Topology smaller =
      topology::topology_from_shorthand("single-switch:hosts=4,host=10G").value();
  const Plan plan = make_plan("ring", {.topology = smaller, .elements = 8}).value();
  const Status status = check_fits(plan, topology);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message().find("4 ranks"), std::string::npos);
  EXPECT_NE(status.error().message().find("8 hosts"), std::string::npos);
}

}  // namespace
}  // namespace thalweg::plan
