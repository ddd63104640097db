#include "sim/scenario/experiment.h"

#include <gtest/gtest.h>

#include "scenario_fixture.h"

namespace thalweg::sim {
namespace {

using fixture::loaders;

const std::string kGoodExperiment = R"(title: a figure
scenario:
  variables: {hosts: 2, scheme: ring}
  topology: single-switch:hosts=${hosts},host=10G
  transport: newreno
  jobs:
    - {size: 1MB, scheme: "${scheme}"}
sweep:
  hosts: [2, 4]
  scheme: [ring, ps]
quick:
  hosts: {2: {}}
claims:
  - {say: PS over ring, measure: jobs.0.mean_iteration_ms, of: {scheme: ps}, over: {scheme: ring}, paper: 2}
  - {say: less, measure: jobs.0.mean_iteration_ms, of: {scheme: ring, hosts: 4}, over: {scheme: ps}, as_reduction: yes, paper: 50}
  - {say: largest, measure: flow_completion_ms.p99.9, take: max, paper: 1}
plots:
  - {name: time, measure: jobs.0.mean_iteration_ms, label: ms, x: hosts, lines: scheme}
training: {base: {scheme: ring, hosts: 4}, seeds: 3}
)";

Json result_with(double iteration, double tail) {
  return {{"jobs", {{{"mean_iteration_ms", iteration}}}},
          {"flow_completion_ms", {{"p99.9", tail}}}};
}

ExperimentResult four_points(const Experiment& experiment) {
  ExperimentResult result{.axes = experiment.axes, .points = {}, .results = {}};
  result.points = points_of(experiment.axes).value();
  for (const double time : {1.0, 3.0, 2.0, 8.0}) {
    result.results.push_back(result_with(time, time * 10));
  }
  return result;
}

TEST(Experiment, good_file__read_as_written) {
  const auto experiment = experiment_from_yaml(kGoodExperiment, "e.yaml", loaders());
  ASSERT_TRUE(experiment.ok()) << experiment.error().message();
  EXPECT_EQ(experiment->axes.size(), 2U);
  ASSERT_EQ(experiment->quick.size(), 2U);
  ASSERT_EQ(experiment->quick[0].values.size(), 1U);
  // A label of `quick` sets what the full axis sets.
  EXPECT_EQ(experiment->quick[0].values[0].settings, (Settings{{"hosts", "2"}}));
  EXPECT_EQ(experiment->quick[1].values.size(), 2U);
  EXPECT_EQ(experiment->claims.size(), 3U);
  EXPECT_EQ(experiment->plots.size(), 1U);
  ASSERT_TRUE(experiment->training);
  EXPECT_EQ(experiment->training->seeds, 3);
  EXPECT_EQ(experiment->training->base.at("hosts"), "4");
}

TEST(Experiment, evaluate__ratios_reductions_and_extremes) {
  const Experiment experiment = experiment_from_yaml(kGoodExperiment, "e.yaml", loaders()).value();
  const ExperimentResult result = four_points(experiment);
  // PS / ring: 3/1 and 8/2.
  EXPECT_DOUBLE_EQ(*evaluate(experiment.claims[0], result).value(), 3.5);
  // 1 − 2/8 in per cent.
  EXPECT_DOUBLE_EQ(*evaluate(experiment.claims[1], result).value(), 75);
  EXPECT_DOUBLE_EQ(*evaluate(experiment.claims[2], result).value(), 80);
}

TEST(Experiment, evaluate__largest_reduction__is_that_of_the_smallest_quotient) {
  const Experiment experiment = experiment_from_yaml(kGoodExperiment, "e.yaml", loaders()).value();
  Claim claim = experiment.claims[1];
  claim.of = {{"scheme", {"ring"}}};
  claim.take = Claim::Take::kMax;
  // Ring / PS: 1/3 and 2/8.
  EXPECT_DOUBLE_EQ(*evaluate(claim, four_points(experiment)).value(), 75);
}

TEST(Experiment, evaluate__nothing_selected_or_no_base__no_value) {
  const Experiment experiment = experiment_from_yaml(kGoodExperiment, "e.yaml", loaders()).value();
  ExperimentResult result = four_points(experiment);
  // Without the ring there is nothing to divide PS by, and without hosts=4 nothing to reduce.
  result.points = {result.points[1]};
  result.results = {result.results[1]};
  EXPECT_FALSE(evaluate(experiment.claims[0], result).value().has_value());
  EXPECT_FALSE(evaluate(experiment.claims[1], result).value().has_value());
}

TEST(Experiment, evaluate__unfinished_point__left_out) {
  const Experiment experiment = experiment_from_yaml(kGoodExperiment, "e.yaml", loaders()).value();
  ExperimentResult result = four_points(experiment);
  result.results[3]["jobs"][0]["mean_iteration_ms"] = nullptr;
  EXPECT_DOUBLE_EQ(*evaluate(experiment.claims[0], result).value(), 3);
}

TEST(Experiment, lines__one_a_label_in_order_of_x) {
  const Experiment experiment = experiment_from_yaml(kGoodExperiment, "e.yaml", loaders()).value();
  const auto lines = lines_of(experiment.plots[0], four_points(experiment)).value();
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[1].name, "ps");
  EXPECT_EQ(lines[1].labels, (std::vector<std::string>{"2", "4"}));
  EXPECT_EQ(lines[1].values, (std::vector<double>{3, 8}));
}

TEST(Experiment, measure__wrong_path__says_what_there_is) {
  const Json result = result_with(1, 2);
  EXPECT_DOUBLE_EQ(measure_of(result, "flow_completion_ms.p99.9").value(), 2);
  EXPECT_NE(measure_of(result, "jobs.1.mean").error().message().find("0 to 0"), std::string::npos);
  EXPECT_NE(measure_of(result, "flow").error().message().find("jobs, flow_completion_ms"),
            std::string::npos);
}

struct BadExperiment {
  const char* from;
  const char* to;
  const char* word;
};

TEST(Experiment, bad_input__names_what_is_wrong) {
  const std::vector<BadExperiment> cases{
      {"title: a figure", "titel: a figure", "unknown key 'titel'"},
      {"scheme: [ring, ps]", "scheme: [ring, pss]", "pss"},
      {"of: {scheme: ps}, over", "of: {schema: ps}, over", "'schema' is not swept"},
      {"of: {scheme: ps}, over", "of: {scheme: rat}, over", "'rat' is not a value of 'scheme'"},
      {"paper: 2}", "paper: two}", "'two' is not a number"},
      {"paper: 2}", "paper: 0}", "no ratio"},
      {"take: max", "take: most", "mean, geomean, median, min, max"},
      {"as_reduction: yes,", "as_reduction: yes, take: geomean,", "quotients"},
      {"x: hosts, lines: scheme", "x: hosts", "does not say where 'scheme' goes"},
      {"name: time", "name: ../time", "becomes a file name"},
      {"name: time,", "name: time, paper: {3: 1},", "'3' is not a value of 'hosts'"},
      {"hosts: 4}, seeds", "hosts: 5}, seeds", "'5' is not a value of 'hosts'"},
      {"seeds: 3", "seeds: 0", "seeds"},
      {"seeds: 3", "sedes: 3", "unknown key 'sedes'"},
      {"hosts: {2: {}}", "hosts: {3: {}}", "'3' is not a value of 'hosts'"},
      {"of: {scheme: ring, hosts: 4}, over: {scheme: ps}", "of: {scheme: ring}", "needs 'over'"},
  };
  for (const BadExperiment& bad : cases) {
    std::string text = kGoodExperiment;
    const std::size_t at = text.find(bad.from);
    ASSERT_NE(at, std::string::npos) << bad.from;
    text.replace(at, std::string_view(bad.from).size(), bad.to);
    const auto experiment = experiment_from_yaml(text, "e.yaml", loaders());
    ASSERT_FALSE(experiment.ok()) << bad.to;
    EXPECT_NE(experiment.error().message().find(bad.word), std::string::npos)
        << experiment.error().message();
  }
}

}  // namespace
}  // namespace thalweg::sim
