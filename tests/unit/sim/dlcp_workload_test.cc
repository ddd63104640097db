// The traffic of DLCP's experiments: whole tensors on one server, scattered tensors, one layer per
// tensor, queues by layer, and the buffer that is reserved for control.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "fabric_fixture.h"
#include "plan/scheme.h"
#include "plan/verify.h"
#include "sim/tcp/transports.h"
#include "sim/workload/model.h"
#include "sim/workload/training.h"
#include "switch/queueing/admission.h"

namespace thalweg::sim::fixture {
namespace {

ModelTable small_model() {
  ModelTable model;
  model.name = "small";
  model.batch = 1;
  model.layers = {{.name = "a",
                   .parameters = 300,
                   .tensors = {200, 100},
                   .forward = Duration::milliseconds(1),
                   .backward = Duration::milliseconds(2)},
                  {.name = "b",
                   .parameters = 1'000'000,
                   .tensors = {1'000'000},
                   .forward = Duration::milliseconds(3),
                   .backward = Duration::milliseconds(4)}};
  return model;
}

TEST(ByTensor, by_tensor__layers_of_several__keep_their_times) {
  const ModelTable table = by_tensor(small_model());
  ASSERT_EQ(table.layers.size(), 3U);
  EXPECT_EQ(table.layers[0].name, "a/0");
  EXPECT_EQ(table.layers[0].forward, Duration::milliseconds(1));
  EXPECT_EQ(table.layers[0].backward, Duration());
  EXPECT_EQ(table.layers[1].parameters, 100);
  EXPECT_EQ(table.layers[1].forward, Duration());
  EXPECT_EQ(table.layers[1].backward, Duration::milliseconds(2));
  EXPECT_EQ(table.layers[2].name, "b");
  EXPECT_EQ(table.parameters(), small_model().parameters());
}

TEST(PsWhole, make_plan__small_tensor__goes_to_one_server_drawn_for_it) {
  const topology::Topology network = topology("single-switch:hosts=8");
  std::map<int, int> chosen;
  for (std::uint64_t tensor = 0; tensor < 400; ++tensor) {
    const auto plan = plan::make_plan("ps:servers=4,whole=1kB",
                                      {.topology = network, .elements = 250, .tensor = tensor});
    ASSERT_TRUE(plan.ok()) << plan.error().message();
    EXPECT_TRUE(plan::verify(*plan).ok());
    ASSERT_EQ(plan->chunks.size(), 1U);
    const Rank server = plan->transfers.front().target;
    ++chosen[server.value()];
    for (const plan::PlanTransfer& t : plan->transfers) {
      EXPECT_EQ(t.kind == plan::TransferKind::kReduce ? t.target : t.source, server);
    }
  }
  // Servers 0, 2, 4 and 6, each about as often.
  ASSERT_EQ(chosen.size(), 4U);
  for (const auto& [server, times] : chosen) {
    EXPECT_EQ(server % 2, 0);
    EXPECT_GT(times, 60);
  }
  const auto large = plan::make_plan("ps:servers=4,whole=1kB",
                                     {.topology = network, .elements = 251, .tensor = 1});
  ASSERT_TRUE(large.ok());
  EXPECT_EQ(large->chunks.size(), 4U);
}

struct Trained {
  std::vector<FlowResult> flows;
  Duration iteration;
};

Trained train(const TrainingOptions& options, const TransportFactory& transport) {
  const topology::Topology topo = topology("single-switch:hosts=8,host=10G");
  NetworkOptions network_options;
  network_options.queues.discipline = QueueOptions::Discipline::kStrictPriority;
  Network network(topo, network_options);
  Trained run;
  network.on_flow_done([&](const FlowResult& flow) { run.flows.push_back(flow); });
  Connections connections(network, {.transport = &transport, .most_at_once = 0});
  auto job = TrainingJob::make(by_tensor(small_model()), options, topo, network, connections);
  EXPECT_TRUE(job.ok()) << job.error().message();
  (*job)->start();
  EXPECT_TRUE(network.run(kForever));
  EXPECT_TRUE((*job)->done());
  EXPECT_EQ(network.violations(), std::vector<std::string>{});
  run.iteration = (*job)->results().back().duration();
  return run;
}

TEST(Scatter, train__workers_draw_servers__and_get_as_much_back) {
  const auto dctcp = std::move(make_transport("dctcp", {})).value();
  const Trained run =
      train({.scatter = {.servers = 4, .whole = Bytes(1'000)}, .iterations = 2}, *dctcp);
  std::map<std::uint64_t, std::set<int>> servers;
  for (const FlowResult& flow : run.flows) {
    if (!flow.spec.pull) servers[flow.spec.bytes].insert(flow.spec.target.value());
  }
  EXPECT_EQ(std::ranges::count_if(run.flows, [](const auto& f) { return f.spec.pull; }) * 2,
            static_cast<std::ptrdiff_t>(run.flows.size()));
  // The large tensor goes to all servers in four parts, each small one to one server.
  EXPECT_EQ(servers.at(1'000'000).size(), 4U);
  EXPECT_GT(servers.at(400).size(), 1U);
  EXPECT_GT(run.iteration, Duration::milliseconds(10));
}

TEST(Training, train__over_dlcp__puts_layers_into_queues_and_pulls_under_their_bound) {
  const auto dlcp =
      std::move(make_transport("dlcp", {{"bound", "0.1"}, {"pull_bound", "0.02"}})).value();
  const Trained run = train({.scheme = "ps:servers=4", .iterations = 1}, *dlcp);
  std::set<int> queues;
  for (const FlowResult& flow : run.flows) {
    queues.insert(flow.spec.priority);
    EXPECT_GE(flow.arrived, flow.spec.pull ? 0.98 : 0.9);
  }
  EXPECT_EQ(queues, (std::set<int>{1, 3, 5}));
}

TEST(AdmissionPolicy, reserve_for_control__leaves_room_to_queue_0_only) {
  switches::AdmissionPolicy policy;
  policy.reserve_for_control(Bytes(1'000));
  const switches::AdmissionPolicy::Occupancy occupancy{8'000, 0, 10'000};
  EXPECT_EQ(policy.decide(occupancy, 1, 1'000, true), switches::Verdict::kAccept);
  EXPECT_EQ(policy.decide(occupancy, 1, 1'001, true), switches::Verdict::kDropPortFull);
  EXPECT_EQ(policy.decide(occupancy, 0, 2'000, true), switches::Verdict::kAccept);
  EXPECT_EQ(policy.decide(occupancy, 0, 2'001, true), switches::Verdict::kDropPortFull);
}

}  // namespace
}  // namespace thalweg::sim::fixture
