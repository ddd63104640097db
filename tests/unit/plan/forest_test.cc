// What is counted tree by tree against the plan that is held, and trees that are wrong.
#include "plan/forest.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

#include "plan/predict.h"
#include "topology/format/load.h"

namespace thalweg::plan {
namespace {

void expect_equal(const EvaluatedPlan& a, const EvaluatedPlan& b) {
  EXPECT_EQ(a.proof.steps, b.proof.steps);
  EXPECT_EQ(a.proof.staging, b.proof.staging);
  EXPECT_EQ(a.extent.chunks, b.extent.chunks);
  EXPECT_EQ(a.extent.transfers, b.extent.transfers);
  ASSERT_EQ(a.extent.steps.size(), b.extent.steps.size());
  for (std::size_t s = 0; s < a.extent.steps.size(); ++s) {
    EXPECT_EQ(a.extent.steps[s].transfers, b.extent.steps[s].transfers) << s;
    EXPECT_EQ(a.extent.steps[s].reduces, b.extent.steps[s].reduces) << s;
    EXPECT_EQ(a.extent.steps[s].bytes, b.extent.steps[s].bytes) << s;
  }
  EXPECT_EQ(a.accounting.total, b.accounting.total);
  EXPECT_EQ(a.accounting.cross_region, b.accounting.cross_region);
  EXPECT_EQ(a.accounting.peak_fan_in, b.accounting.peak_fan_in);
  ASSERT_EQ(a.accounting.regions.size(), b.accounting.regions.size());
  for (std::size_t r = 0; r < a.accounting.regions.size(); ++r) {
    EXPECT_EQ(a.accounting.regions[r].in, b.accounting.regions[r].in) << r;
    EXPECT_EQ(a.accounting.regions[r].out, b.accounting.regions[r].out) << r;
  }
  for (std::size_t i = 0; i < a.accounting.arc_bytes.size(); ++i) {
    EXPECT_NEAR(a.accounting.arc_bytes[i], b.accounting.arc_bytes[i], 1) << i;
  }
  EXPECT_NEAR(a.accounting.slowest_arc_time.us(), b.accounting.slowest_arc_time.us(), 0.01);
}

TEST(Forest, rat__counted_tree_by_tree_is_the_plan) {
  for (const char* network :
       {"single-switch:hosts=7,host=10G", "leaf-spine:racks=3,hosts=4,spines=2,host=10G,uplink=5G",
        "fat-tree:k=4,host=10G"}) {
    for (const char* spec : {"rat", "rat:trees=5", "rat:regions=oversubscribed"}) {
      SCOPED_TRACE(std::string(spec) + " on " + network);
      const topology::Topology topology = topology::topology_from_shorthand(network).value();
      const topology::Routing routing(topology);
      const PlanRequest request{.topology = topology, .elements = 10'007};
      const EvaluatedPlan held =
          evaluate(make_plan(spec, request).value(), topology, routing, {}).value();
      const EvaluatedPlan counted = evaluate_by_trees(spec, request, routing, {}).value();
      EXPECT_FALSE(counted.extent.held);
      EXPECT_TRUE(counted.plan.transfers.empty());
      // evaluate() predicts from the plan, and evaluate_by_trees() from the scheme's outline.
      EXPECT_EQ(
          counted.predicted,
          Predictor(topology, routing, {}).predict(make_outline(spec, request).value()).total);
      expect_equal(counted, held);
    }
  }
}

// The roles of racks and pods do not meet in the same hosts.
TEST(Forest, rat_on_three_levels__loads_all_hosts_alike) {
  const topology::Topology topology =
      topology::topology_from_shorthand("fat-tree:k=8,host=10G").value();
  const topology::Routing routing(topology);
  const PlanRequest request{.topology = topology, .elements = 25'000'000};
  const EvaluatedPlan rat = evaluate_by_trees("rat", request, routing, {}).value();
  // Every host sends, at least, all of the tensor but its share, and as many bytes of results.
  const double least = 2 * 100e6 * 127 / 128;
  EXPECT_LE(static_cast<double>(rat.accounting.busiest_arc_bytes().count()), 1.01 * least);
}

TEST(Forest, other_schemes__are_refused) {
  const topology::Topology topology =
      topology::topology_from_shorthand("single-switch:hosts=4,host=10G").value();
  const topology::Routing routing(topology);
  const auto refused =
      evaluate_by_trees("ring", {.topology = topology, .elements = 10}, routing, {});
  EXPECT_EQ(refused.error().message(), "allreduce by scheme 'ring' is not made of trees");
}

using Levels = std::vector<std::vector<TreeEdge>>;

std::string problem_of(const Levels& levels) {
  const topology::Topology topology =
      topology::topology_from_shorthand("single-switch:hosts=4,host=10G").value();
  const topology::Routing routing(topology);
  ForestSurvey survey(topology, routing);
  const Status added = survey.add({.chunks = {}, .levels = levels}, Bytes(100));
  return added.ok() ? "" : added.error().message();
}

TEST(Forest, wrong_trees__are_refused) {
  const auto edge = [](int child, int parent) {
    return TreeEdge{.child = Rank(child), .parent = Rank(parent)};
  };
  EXPECT_EQ(problem_of({{edge(1, 0), edge(3, 2)}, {edge(2, 0)}}), "");
  EXPECT_EQ(problem_of({{edge(1, 0)}, {edge(2, 0)}}),
            "tree 0: 2 of 4 ranks send their sum; all but one must");
  EXPECT_EQ(problem_of({{edge(1, 0), edge(3, 2)}, {edge(1, 2)}}),
            "tree 0: rank 1 sends its sum a second time");
  // Rank 3 comes to rank 2 after, and in the same step as, rank 2 has sent.
  EXPECT_EQ(problem_of({{edge(1, 0), edge(2, 0)}, {edge(3, 2)}}),
            "tree 0: rank 2 sends its sum before all of it is there");
  EXPECT_EQ(problem_of({{edge(1, 0), edge(3, 2), edge(2, 0)}}),
            "tree 0: rank 2 sends its sum before all of it is there");
  EXPECT_EQ(problem_of({{edge(1, 1)}, {edge(2, 0), edge(3, 0)}}),
            "tree 0: rank 1 sends its sum to itself");
  // A ring has no top.
  EXPECT_EQ(problem_of({{edge(0, 1)}, {edge(1, 2)}, {edge(2, 3)}, {edge(3, 0)}}),
            "tree 0: rank 0 sends its sum before all of it is there");
}

}  // namespace
}  // namespace thalweg::plan
