#include "plan/planner.h"

#include <gtest/gtest.h>

#include <set>

#include "topology/format/load.h"

namespace thalweg::plan {
namespace {

std::string best_on(const std::string& shorthand, Bytes size) {
  const topology::Topology topology = topology::topology_from_shorthand(shorthand).value();
  const topology::Routing routing(topology);
  const PlanRequest request{.topology = topology, .elements = size.count() / 4};
  const Choice choice = best_plan(request, routing, {}).value();
  EXPECT_FALSE(choice.reason.empty());
  EXPECT_EQ(choice.ranking.front().second, choice.best.predicted);
  return choice.best.plan.scheme.substr(0, choice.best.plan.scheme.find(':'));
}

TEST(Planner, different_networks_and_sizes__different_answers) {
  const std::set<std::string> answers{
      best_on("single-switch:hosts=8,host=10G", Bytes(1024)),
      best_on("leaf-spine:racks=2,hosts=4,spines=1,host=10G,uplink=10G", Bytes(97'000'000)),
      best_on("leaf-spine:racks=4,hosts=8,spines=2,host=10G,uplink=5G", Bytes(97'000'000)),
  };
  EXPECT_GE(answers.size(), 3U);
}

TEST(Planner, compare__every_allreduce_scheme_once) {
  const topology::Topology topology =
      topology::topology_from_shorthand("single-switch:hosts=4,host=10G").value();
  const topology::Routing routing(topology);
  const auto plans = compare_schemes({.topology = topology, .elements = 1000}, routing, {}).value();
  std::set<std::string> names;
  for (const EvaluatedPlan& e : plans) names.insert(e.plan.scheme);
  EXPECT_EQ(names.size(), plans.size());
  EXPECT_TRUE(names.contains("rat"));
  EXPECT_TRUE(names.contains("ring"));
  EXPECT_FALSE(names.contains("gossip"));
}

TEST(Planner, single_host__nothing_to_do) {
  const topology::Topology topology =
      topology::topology_from_shorthand("single-switch:hosts=1,host=10G").value();
  const topology::Routing routing(topology);
  const Choice choice = best_plan({.topology = topology, .elements = 1000}, routing, {}).value();
  EXPECT_EQ(choice.best.cost.total, Duration());
  EXPECT_TRUE(choice.best.plan.transfers.empty());
}

TEST(Planner, wrong_plan__refused_with_the_proofs_words) {
  const topology::Topology topology =
      topology::topology_from_shorthand("single-switch:hosts=4,host=10G").value();
  const topology::Routing routing(topology);
  Plan plan = make_plan("ring", {.topology = topology, .elements = 1000}).value();
  plan.transfers.pop_back();
  const auto result = evaluate(std::move(plan), topology, routing, {});
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.error().message().find("ends without the contribution"), std::string::npos);
}

}  // namespace
}  // namespace thalweg::plan
