#include "sim/workload/chakra_model.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "sim/scenario_fixture.h"

namespace thalweg::sim {
namespace {

using trace::ChakraNode;
using trace::ChakraNodeType;
using trace::ChakraTrace;
using Ids = std::vector<std::uint64_t>;

ChakraNode computing(std::uint64_t id, std::uint64_t us, Ids after, bool on_host = false) {
  ChakraNode node;
  node.id = id;
  node.type = ChakraNodeType::kCompute;
  node.duration_us = us;
  node.data_dependencies = std::move(after);
  node.attributes.push_back({"is_cpu_op", on_host});
  return node;
}

ChakraNode collective(std::uint64_t id, std::int64_t type, std::int64_t bytes, Ids after) {
  ChakraNode node;
  node.id = id;
  node.type = ChakraNodeType::kCollective;
  node.control_dependencies = std::move(after);
  node.attributes = {{"comm_type", type}, {"comm_size", bytes}};
  return node;
}

Result<ModelTable> read(std::vector<ChakraNode> nodes) {
  ChakraTrace trace;
  trace.nodes = std::move(nodes);
  return model_from_chakra(to_chakra(trace), "t.et");
}

std::string error_of(std::vector<ChakraNode> nodes) {
  const Result<ModelTable> table = read(std::move(nodes));
  return table.ok() ? "" : table.error().message();
}

ModelTable three_layers() {
  ModelTable table = fixture::tiny_model();
  table.layers.push_back({.name = "last",
                          .parameters = 77,
                          .tensors = {77},
                          .forward = Duration::picoseconds(1'234'567),
                          .backward = Duration::picoseconds(7'654'321)});
  return table;
}

TEST(ChakraModel, chakra_of__layer_by_layer_is_read_as_it_was) {
  const ModelTable table = three_layers();
  const auto again = model_from_chakra(to_chakra(chakra_of(table, ChakraWait::kOwnLayer)), "t.et");
  ASSERT_TRUE(again.ok()) << again.error().message();
  EXPECT_TRUE(again->as_sent);
  EXPECT_EQ(again->name, "tiny");
  EXPECT_EQ(again->batch, 4);
  ASSERT_EQ(again->layers.size(), table.layers.size());
  for (std::size_t l = 0; l < table.layers.size(); ++l) {
    EXPECT_EQ(again->layers[l].parameters, table.layers[l].parameters) << l;
    EXPECT_EQ(again->layers[l].forward, table.layers[l].forward) << l;
    EXPECT_EQ(again->layers[l].backward, table.layers[l].backward) << l;
  }
}

TEST(ChakraModel, chakra_of__a_step_that_waits_for_all_keeps_its_times) {
  const ModelTable table = three_layers();
  const auto again = model_from_chakra(to_chakra(chakra_of(table, ChakraWait::kAllLayers)), "t.et");
  ASSERT_TRUE(again.ok()) << again.error().message();
  EXPECT_EQ(again->size(), table.size());
  EXPECT_EQ(again->forward_time(), table.forward_time());
  EXPECT_EQ(again->backward_time(), table.backward_time());
  // All of it waits for the bucket that is ready first.
  EXPECT_EQ(again->layers.back().forward, table.forward_time());
}

TEST(ChakraModel, chakra_of__times_are_rounded_without_drift) {
  ModelTable table = three_layers();
  for (ModelLayer& layer : table.layers) layer.backward = Duration::nanoseconds(1'400);
  const ChakraTrace trace = chakra_of(table, ChakraWait::kAllLayers);
  std::uint64_t backward = 0;
  for (const ChakraNode& node : trace.nodes) {
    if (node.name.starts_with("backward")) backward += node.duration_us;
  }
  EXPECT_EQ(backward, 4U);  // 4.2 us
}

// The device runs one node at a time, the host beside it, and an allreduce is ready when both are.
TEST(ChakraModel, model_from_chakra__processors_and_dependencies) {
  const auto table = read({computing(1, 10, {}), computing(2, 20, {}),  // one after the other
                           computing(3, 25, {}, true), collective(4, 0, 400, {1}),  // at 10 us
                           collective(5, 0, 401, {3}),                              // at 25 us
                           collective(6, 0, 8, {2, 3, 5}),                          // at 30 us
                           computing(7, 5, {4}), computing(8, 6, {6, 7}), computing(9, 7, {6}),
                           computing(10, 100, {2}), collective(11, 9, 0, {10})});
  ASSERT_TRUE(table.ok()) << table.error().message();
  ASSERT_EQ(table->layers.size(), 3U);
  const auto expect_layer = [&](std::size_t l, std::int64_t elements, std::int64_t backward_us,
                                std::int64_t forward_us) {
    EXPECT_EQ(table->layers[l].parameters, elements) << l;
    EXPECT_EQ(table->layers[l].backward, Duration::microseconds(backward_us)) << l;
    EXPECT_EQ(table->layers[l].forward, Duration::microseconds(forward_us)) << l;
  };
  expect_layer(2, 100, 10, 5 + 6);  // nodes 7 and 8 wait for the first bucket
  expect_layer(1, 101, 15, 7);  // rounded up to whole elements; node 9 waits for 6, and that for 5
  expect_layer(0, 2, 5, 100);   // node 10 waits for no bucket
}

// Two buckets a step, of which the second is ready 20 us after the first. The computing after a
// step waits for both. `before` and `types` are of the steps, one by one.
std::vector<ChakraNode> some_steps(const std::vector<std::uint64_t>& before,
                                   const std::vector<std::int64_t>& types) {
  std::vector<ChakraNode> nodes;
  std::uint64_t id = 1;
  for (std::size_t s = 0; s < before.size(); ++s, id += 4) {
    nodes.push_back(computing(id, before[s], s == 0 ? Ids{} : Ids{id - 3, id - 2, id - 1}));
    nodes.push_back(collective(id + 1, types[s], 400, {id}));
    nodes.push_back(computing(id + 2, 20, {id}));
    nodes.push_back(collective(id + 3, 0, 80, {id + 2}));
  }
  nodes.push_back(computing(id, 1'000, {id - 3, id - 1}));  // belongs to no step
  return nodes;
}

TEST(ChakraModel, model_from_chakra__the_usual_one_of_several_steps) {
  constexpr std::int64_t kBroadcast = 5;
  const auto table = read(some_steps({70, 30, 50, 40, 900}, {kBroadcast, 0, 0, 0, 0}));
  ASSERT_TRUE(table.ok()) << table.error().message();
  EXPECT_EQ(table->device, "a Chakra trace, 4 of 5 steps");
  ASSERT_EQ(table->layers.size(), 2U);
  EXPECT_EQ(table->layers[1].parameters, 100);
  EXPECT_EQ(table->layers[1].backward, Duration::microseconds(50));  // 30, 40, 50 and 900
  EXPECT_EQ(table->layers[0].parameters, 20);
  EXPECT_EQ(table->layers[0].backward, Duration::microseconds(20));
  EXPECT_EQ(table->forward_time(), Duration());
}

TEST(ChakraModel, model_from_chakra__no_usual_step_or_one_that_cannot_run) {
  constexpr std::int64_t kBroadcast = 5;
  EXPECT_EQ(error_of(some_steps({1, 1, 1, 1}, {kBroadcast, 0, 0, kBroadcast})),
            "t.et: the trace has 4 steps, and no more than half of them communicate alike, so "
            "there is no usual step to run");
  EXPECT_EQ(error_of(some_steps({1, 1, 1}, {0, kBroadcast, kBroadcast})),
            "t.et: node 6: comm_type: BROADCAST; a step has ALL_REDUCE and BARRIER only");
}

TEST(ChakraModel, model_from_chakra__small_broadcasts_take_no_time) {
  constexpr std::int64_t kBroadcast = 5;
  const auto nodes = [&](std::int64_t bytes) {
    return std::vector{collective(1, kBroadcast, bytes, {}), computing(2, 7, {1}),
                       collective(3, 0, 6'400, {2})};
  };
  const auto table = read(nodes(100));
  ASSERT_TRUE(table.ok()) << table.error().message();
  ASSERT_EQ(table->layers.size(), 1U);
  EXPECT_EQ(table->layers[0].backward, Duration::microseconds(7));
  EXPECT_NE(error_of(nodes(101)), "");
}

TEST(ChakraModel, model_from_chakra__runs_in_the_simulator) {
  const ModelTable table = fixture::tiny_model();
  const std::string content = to_chakra(chakra_of(table, ChakraWait::kOwnLayer));
  const ScenarioLoaders loaders{
      .topology = fixture::loaders().topology, .model = [&](const std::string& name) {
        return name == "t.et" ? model_from_chakra(content, name) : Result<ModelTable>(table);
      }};
  std::vector<Duration> times;
  for (const char* model : {"table", "t.et"}) {
    const std::string text = fmt::format(
        "topology: single-switch:hosts=3,host=10G\n"
        "transport: {{kind: dctcp}}\n"
        "jobs: [{{model: {}, scheme: ring, iterations: 3}}]\n",
        model);
    const auto scenario = scenario_from_yaml(text, "test", loaders);
    ASSERT_TRUE(scenario.ok()) << scenario.error().message();
    const ScenarioResult result = fixture::result_of(*scenario);
    times.push_back(result.jobs.front().iterations.back().end - Time());
  }
  EXPECT_EQ(times[0], times[1]);
}

TEST(ChakraModel, model_from_chakra__errors_name_node_and_field) {
  const ChakraNode sum = collective(1, 0, 4, {});
  EXPECT_EQ(error_of({}),
            "t.et: there is no COMM_COLL_NODE with the comm_type ALL_REDUCE, so no step to run");
  EXPECT_EQ(error_of({sum, sum}), "t.et: node 1: id: several nodes have it");
  EXPECT_EQ(error_of({collective(1, 0, 4, {8})}), "t.et: node 1: ctrl_deps: there is no node 8");
  EXPECT_EQ(error_of({sum, computing(2, 1, {3}), computing(3, 1, {2})}),
            "t.et: node 2: it depends on itself, through others");
  EXPECT_EQ(error_of({collective(5, 2, 4, {})}),
            "t.et: node 5: comm_type: ALL_GATHER; a step has ALL_REDUCE and BARRIER only");
  EXPECT_EQ(error_of({collective(5, 12, 4, {})}),
            "t.et: node 5: comm_type: 12; from 0 to 9 are allowed");
  EXPECT_EQ(error_of({collective(5, 0, 0, {})}),
            "t.et: node 5: comm_size: 0; from 1 to 4000000000000 bytes are allowed");
  EXPECT_EQ(error_of({collective(5, 0, -4, {})}),
            "t.et: node 5: comm_size: it must be a whole number from 0 on");
  ChakraNode bare = sum;
  bare.attributes.clear();
  EXPECT_EQ(error_of({bare}), "t.et: node 1: a COMM_COLL_NODE needs the attribute comm_type");
  ChakraNode of_two = collective(2, 0, 4, {});
  of_two.attributes.push_back({"pg_name", std::string("two")});
  EXPECT_EQ(error_of({sum, of_two}),
            "t.et: node 2: pg_name: an allreduce of group 'two', and others are of group '': one "
            "group is allowed");
  ChakraNode message = computing(4, 1, {});
  message.type = ChakraNodeType::kSend;
  EXPECT_EQ(error_of({message}),
            "t.et: node 4: type: COMM_SEND_NODE; a step has METADATA_NODE, MEM_LOAD_NODE, "
            "MEM_STORE_NODE, COMP_NODE and COMM_COLL_NODE only");
  EXPECT_EQ(error_of({computing(1, 86'400'000'001, {})}),
            "t.et: node 1: duration_micros: 86400000001; at most a day, 86400000000, is allowed");
  EXPECT_EQ(error_of({computing(1, 86'400'000'000, {}), computing(2, 1, {})}),
            "t.et: node 2: duration_micros: all nodes up to this one compute for more than a day");
  EXPECT_EQ(error_of({sum, computing(2, 1, {1}), collective(3, 0, 8, {2})}),
            "t.et: the trace has 2 steps, and no more than half of them communicate alike, so "
            "there is no usual step to run");
}

}  // namespace
}  // namespace thalweg::sim
