// Threads that run a simulation's shards, and the result that must not depend on them. Run under
// ThreadSanitizer, these tests also show that shards share no memory while they run.
#include "lab/sweep/thread_crew.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>

#include "sim/scenario/result_json.h"
#include "sim/scenario/scenario_run.h"
#include "topology/format/load.h"

namespace thalweg::lab {
namespace {

TEST(ThreadCrew, run__every_task_once_and_all_done_at_the_end) {
  for (const std::size_t threads : {1U, 2U, 3U, 5U}) {
    ThreadCrew crew(threads);
    for (std::size_t count = 0; count < 20; ++count) {
      std::vector<int> done(count, 0);
      crew.run(count, [&](std::size_t i) { ++done[i]; });
      EXPECT_EQ(done, std::vector<int>(count, 1)) << threads << " threads";
    }
  }
}

TEST(ThreadCrew, run__sees_what_the_round_before_did) {
  ThreadCrew crew(3);
  std::vector<std::uint64_t> numbers(3, 1);
  std::vector<std::uint64_t> before;
  for (int round = 0; round < 200; ++round) {
    before = numbers;
    crew.run(3, [&](std::size_t i) { numbers[i] = before[(i + 1) % 3] + before[i] + i; });
  }
  std::vector<std::uint64_t> expected(3, 1);
  for (int round = 0; round < 200; ++round) {
    before = expected;
    for (std::size_t i = 0; i < 3; ++i) expected[i] = before[(i + 1) % 3] + before[i] + i;
  }
  EXPECT_EQ(numbers, expected);
}

sim::Scenario scenario_of(const std::string& text) {
  const sim::ScenarioLoaders loaders{
      .topology = [](const std::string& t) { return topology::topology_from_shorthand(t); },
      .model = {}};
  Result<sim::Scenario> scenario = sim::scenario_from_yaml(text, "test", loaders);
  if (!scenario.ok()) ADD_FAILURE() << scenario.error().message();
  return std::move(scenario).value();
}

std::string result_of(const sim::Scenario& scenario, std::size_t threads) {
  ThreadCrew crew(threads);
  const auto result = sim::run_scenario(scenario, {}, nullptr, {.shards = threads, .crew = &crew});
  if (!result.ok()) return result.error().message();
  EXPECT_EQ(result->violations, std::vector<std::string>{});
  return sim::to_json(*result, scenario).dump(1);
}

TEST(ThreadCrew, simulation__any_number_of_threads_gives_the_same_result) {
  for (const char* work :
       {"scheme: ring", "scheme: rat", "scheme: \"ps:servers=2\"", "scatter: {servers: 3}"}) {
    const sim::Scenario scenario = scenario_of(
        "topology: \"leaf-spine:racks=5,hosts=2,spines=2,host=10G,uplink=10G\"\n"
        "transport: dctcp\nnetwork: {port_buffer: 60kB, mark_above: 20kB}\n"
        "connections: {at_once: 2}\n"
        "jobs:\n  - {size: 200kB, iterations: 3, " +
        std::string(work) +
        "}\n"
        "background:\n  - {pattern: random, size: 20kB, every: 40us}\n"
        "faults:\n  - {at: 100us, link: [leaf0, spine0], up: no}\n"
        "  - {at: 300us, link: [leaf0, spine0], up: yes}\n");
    const std::string one = result_of(scenario, 1);
    for (const std::size_t threads : {2U, 3U, 5U}) {
      EXPECT_EQ(result_of(scenario, threads), one) << work << ", " << threads << " threads";
    }
  }
}

}  // namespace
}  // namespace thalweg::lab
