// What a recorder sees of a scenario, and that it does not change the scenario's result.
#include "sim/observe/recorder.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <map>
#include <sstream>
#include <tuple>

#include "scenario_fixture.h"
#include "sim/scenario/result_json.h"

namespace thalweg::sim {
namespace {

using fixture::scenario_of;

constexpr const char* kScenario = R"(name: all of it
topology: leaf-spine:racks=2,hosts=2,spines=2,host=10G,uplink=10G
transport: {kind: newreno, rto_min: 2ms}
network: {port_buffer: 30kB}
connections: {at_once: 0}
jobs:
  - {name: first, model: tiny, scheme: ring, iterations: 3}
  - {name: second, model: tiny, scheme: ps, iterations: 2, overlap: none, start: 100us}
flows:
  - {from: rack0-host0, to: rack1-host1, size: 300kB, at: 50us}
  - {from: rack0-host0, to: rack1-host1, size: 300kB, at: 60us}
faults:
  - {at: 300us, link: [leaf0, spine0], up: no}
  - {at: 900us, link: [leaf0, spine0], up: yes}
)";

// Keeps events together with the strings that they refer to.
class Collector final : public trace::EventWriter {
 public:
  void write(const trace::Event& event) override {
    std::visit([this](const auto& typed) { take(typed); }, event);
  }
  // Spans by track: host, kind (-1: compute, else the target), row.
  using Track = std::tuple<int, int, int>;
  std::map<Track, std::vector<std::pair<Time, Time>>> tracks;
  std::vector<std::string> computed;
  std::vector<std::string> marks;
  std::map<std::string, double> last_counts;
  std::map<std::string, double> highest_counts;
  std::map<std::string, std::int64_t> bytes_by_job;
  Time last_start;

 private:
  void in_order(Time start) {
    EXPECT_GE(start, last_start);
    last_start = start;
  }
  void take(const trace::ComputeEvent& e) {
    in_order(e.start);
    tracks[{e.rank.value(), -1, e.row.value()}].emplace_back(e.start, e.end);
    computed.push_back(fmt::format("{} {}", e.job, e.what));
  }
  void take(const trace::TransferEvent& e) {
    in_order(e.start);
    tracks[{e.source.value(), e.target.value(), e.row.value()}].emplace_back(e.start, e.end);
    bytes_by_job[std::string(e.job)] += e.size.count();
  }
  void take(const trace::OperationEvent& e) {
    in_order(e.start);
    ADD_FAILURE() << "the simulator has no calls";
  }
  void take(const trace::StepEvent& /*e*/) { ADD_FAILURE() << "the simulator has no calls"; }
  void take(const trace::LossEvent& /*e*/) { ADD_FAILURE() << "the simulator has no calls"; }
  void take(const trace::CounterEvent& e) {
    in_order(e.at);
    last_counts[std::string(e.counter)] = e.value;
    double& highest = highest_counts[std::string(e.counter)];
    highest = std::max(highest, e.value);
  }
  void take(const trace::MarkEvent& e) {
    in_order(e.at);
    marks.emplace_back(e.what);
  }
  void take(const trace::DropEvent& /*e*/) {}
};

TEST(RunRecorder, run_scenario__same_result_with_and_without) {
  const Scenario scenario = scenario_of(kScenario);
  const ScenarioResult plain = run_scenario(scenario, {}).value();
  RunRecorder recorder(scenario, {.timeline = true});
  const ScenarioResult recorded = run_scenario(scenario, {}, &recorder).value();
  EXPECT_EQ(to_json(recorded, scenario).dump(), to_json(plain, scenario).dump());
  EXPECT_EQ(recorded.counters.events, plain.counters.events);
  EXPECT_EQ(recorded.end, plain.end);
  EXPECT_EQ(recorded.violations, std::vector<std::string>{});
}

TEST(RunRecorder, write__everything_once_and_no_overlap) {
  const Scenario scenario = scenario_of(kScenario);
  RunRecorder recorder(scenario, {.timeline = true});
  const ScenarioResult result = run_scenario(scenario, {}, &recorder).value();
  ASSERT_TRUE(result.finished);
  Collector seen;
  EXPECT_EQ(recorder.write(seen), 0U);

  for (auto& [track, spans] : seen.tracks) {
    std::ranges::sort(spans);
    for (std::size_t i = 1; i < spans.size(); ++i) {
      EXPECT_LE(spans[i - 1].second, spans[i].first) << "host " << std::get<0>(track);
    }
  }
  // 4 workers, 2 layers forward and backward, 3 and 2 iterations.
  EXPECT_EQ(seen.computed.size(), 4U * 4 * (3 + 2));
  EXPECT_EQ(std::ranges::count(seen.computed, "second backward front"), 4 * 2);
  EXPECT_EQ(seen.bytes_by_job["flow"], 600'000);
  std::map<std::string, std::int64_t> bytes;
  for (const FlowResult& flow : result.flows) {
    bytes[flow.spec.tag == 0 ? "flow" : result.groups[flow.spec.tag]] +=
        static_cast<std::int64_t>(flow.spec.bytes);
  }
  EXPECT_EQ(seen.bytes_by_job, bytes);
  const std::vector<std::string> marks{"first: iteration 1 begins", "leaf0–spine0 down",
                                       "leaf0–spine0 up"};
  for (const std::string& mark : marks) {
    EXPECT_EQ(std::ranges::count(seen.marks, mark), 1) << mark;
  }
  EXPECT_EQ(seen.marks.size(), 2U + 3 + 2);
}

TEST(RunRecorder, write__counters_are_those_of_the_network) {
  const Scenario scenario = scenario_of(kScenario);
  RunRecorder recorder(scenario, {.timeline = true});
  const ScenarioResult result = run_scenario(scenario, {}, &recorder).value();
  Collector seen;
  recorder.write(seen);
  double lost = 0;
  double deepest = 0;
  for (const auto& [name, value] : seen.last_counts) {
    if (name.starts_with("lost ")) lost += value;
  }
  for (const auto& [name, value] : seen.highest_counts) {
    if (!name.starts_with("queue ")) continue;
    deepest = std::max(deepest, value);
    EXPECT_FALSE(name.starts_with("queue rack")) << "hosts are not switches";
  }
  const NetworkCounters& c = result.counters;
  EXPECT_GT(c.drops_full + c.drops_fault, 0U);
  EXPECT_EQ(lost, static_cast<double>(c.drops_full + c.drops_fault));
  EXPECT_GT(deepest, 20'000);
  EXPECT_LE(deepest, 30'000);
  EXPECT_TRUE(seen.last_counts.contains("goodput rack0-host0 → rack1-host1 (Gb/s)"));
  EXPECT_TRUE(seen.last_counts.contains("goodput second (Gb/s)"));
}

TEST(RunRecorder, write__cut_at_the_limit_and_said) {
  const Scenario scenario = scenario_of(kScenario);
  RunRecorder whole(scenario, {.timeline = true});
  const ScenarioResult result = run_scenario(scenario, {}, &whole).value();
  RunRecorder cut(scenario, {.timeline = true, .limits = {.most_spans = 50, .most_counts = 10}});
  ASSERT_TRUE(run_scenario(scenario, {}, &cut).ok());
  Collector all;
  whole.write(all);
  Collector some;
  const std::size_t left_out = cut.write(some);
  std::size_t spans = some.marks.size();
  for (const auto& [track, of_track] : some.tracks) spans += of_track.size();
  EXPECT_EQ(spans, 50U + 1);
  EXPECT_EQ(some.marks.back(), fmt::format("{} events are left out", left_out));
  const std::size_t total = all.computed.size() + result.flows.size() + all.marks.size();
  EXPECT_GT(left_out, total - 50);  // and counts are left out too
}

TEST(RunRecorder, write__run_that_is_cut_off) {
  const Scenario scenario = scenario_of(std::string(kScenario) + "until: 400us\n");
  RunRecorder recorder(scenario, {.timeline = true});
  const ScenarioResult result = run_scenario(scenario, {}, &recorder).value();
  ASSERT_FALSE(result.finished);
  ASSERT_GT(result.flows_unfinished, 0U);
  Collector seen;
  recorder.write(seen);
  std::size_t flows = 0;
  for (const auto& [track, spans] : seen.tracks) {
    if (std::get<1>(track) >= 0) flows += spans.size();
    for (const auto& [start, end] : spans) EXPECT_LE(end, result.end);
  }
  EXPECT_EQ(flows, result.flows.size() + result.flows_unfinished);
  EXPECT_EQ(std::ranges::count(seen.marks, "leaf0–spine0 up"), 0);
}

TEST(RunRecorder, columns__one_for_many_pairs) {
  std::string text = R"(topology: single-switch:hosts=4,host=10G
transport: newreno
flows:
)";
  std::size_t pairs = 0;
  for (int from = 0; from < 4; ++from) {
    for (int to = 0; to < 4; ++to) {
      if (from == to) continue;
      ++pairs;
      text += fmt::format("  - {{from: host{}, to: host{}, size: 10kB}}\n", from, to);
    }
  }
  const Scenario scenario = scenario_of(text);
  RunRecorder recorder(scenario);
  ASSERT_TRUE(run_scenario(scenario, {}, &recorder).ok());
  EXPECT_EQ(recorder.columns(), std::vector<std::string>{"flows"});
  const Samples& samples = recorder.samples();
  EXPECT_EQ(samples.delivered[samples.count() - 1][0], pairs * 10'000);
}

}  // namespace
}  // namespace thalweg::sim
