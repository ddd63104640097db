// Plans and training iterations as packets, compared with closed forms.
#include "sim/workload/training.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "plan/planner.h"
#include "sim/tcp/transports.h"
#include "topology/format/load.h"

namespace thalweg::sim {
namespace {

constexpr Time kEver = Time::at(Duration::milliseconds(3'600'000));

std::unique_ptr<TransportFactory> dctcp() {
  return make_transport("dctcp", {{"iw", "1000"}, {"rto_min", "10ms"}}).value();
}

NetworkOptions marking_network() {
  NetworkOptions options;
  options.queues.port_buffer = Bytes(4'000'000);
  options.queues.mark_above = Bytes(100'000);
  return options;
}

// How long one run of a scheme's plan takes in packets.
double packet_ms(const std::string& spec, const topology::Topology& topology, Bytes size) {
  const plan::Plan plan =
      plan::make_plan(spec, {.topology = topology, .elements = size.count() / 4}).value();
  const auto transport = dctcp();
  Network network(topology, marking_network());
  FlowEnds ends(network);
  Connections connections(network, ends, {.transport = transport.get()});
  int done = 0;
  Time last;
  const RunnablePlan runnable(plan);
  const auto run = PlanRun::make(runnable, connections, {.rank_done = [&](Rank) {
                                   ++done;
                                   last = network.now();
                                 }});
  for (Rank r(0); r.value() < topology.host_count(); ++r) run->start(r);
  EXPECT_TRUE(network.run(kEver));
  EXPECT_EQ(done, topology.host_count());
  EXPECT_EQ(network.violations(), std::vector<std::string>{});
  return last.since_start().ms();
}

TEST(PlanRun, ring__near_the_fluid_prediction) {
  const topology::Topology topology =
      topology::topology_from_shorthand("single-switch:hosts=8,host=10G").value();
  const topology::Routing routing(topology);
  const plan::PlanRequest request{.topology = topology, .elements = 2'500'000};
  const double fluid = plan::evaluate(plan::make_plan("ring", request).value(), topology, routing,
                                      {.per_message = Duration()})
                           .value()
                           .cost.total.ms();
  const double packets = packet_ms("ring", topology, Bytes(10'000'000));
  // Headers are 40 of 1500 bytes; acknowledgements share the links.
  EXPECT_GT(packets, fluid);
  EXPECT_LT(packets, fluid * 1.15);
}

TEST(PlanRun, every_scheme__completes_and_is_no_faster_than_its_busiest_link) {
  const topology::Topology topology =
      topology::topology_from_shorthand("leaf-spine:racks=2,hosts=4,spines=2,host=10G,uplink=10G")
          .value();
  const topology::Routing routing(topology);
  for (const plan::Scheme* scheme : plan::all_schemes()) {
    if (std::ranges::find(scheme->collectives, plan::Collective::kAllreduce) ==
        scheme->collectives.end()) {
      continue;
    }
    const plan::PlanRequest request{.topology = topology, .elements = 250'000};
    const auto e =
        plan::evaluate(plan::make_plan(scheme->name, request).value(), topology, routing, {})
            .value();
    EXPECT_GE(packet_ms(std::string(scheme->name), topology, Bytes(1'000'000)),
              e.accounting.slowest_arc_time.ms())
        << scheme->name;
  }
}

ModelTable model(int layers, std::int64_t parameters, Duration forward, Duration backward) {
  ModelTable table;
  table.name = "made up";
  table.batch = 32;
  for (int l = 0; l < layers; ++l) {
    table.layers.push_back({.name = "layer" + std::to_string(l),
                            .parameters = parameters,
                            .tensors = {parameters},
                            .forward = forward,
                            .backward = backward});
  }
  return table;
}

std::vector<IterationResult> train_once(const ModelTable& table, const TrainingOptions& options,
                                        const topology::Topology& topology) {
  const auto transport = dctcp();
  Network network(topology, marking_network());
  FlowEnds ends(network);
  Connections connections(network, ends, {.transport = transport.get()});
  auto job = TrainingJob::make(table, options, topology, network, connections).value();
  job->start();
  EXPECT_TRUE(network.run(kEver));
  EXPECT_TRUE(job->done());
  EXPECT_GT(job->samples_per_second(), 0);
  EXPECT_EQ(network.violations(), std::vector<std::string>{});
  return job->results();
}

TEST(Training, no_overlap__compute_then_communicate) {
  const topology::Topology topology =
      topology::topology_from_shorthand("single-switch:hosts=4,host=10G").value();
  const ModelTable table = model(4, 250'000, Duration::milliseconds(1), Duration::milliseconds(2));
  const auto results =
      train_once(table, {.scheme = "ring", .overlap = Overlap::kNone, .iterations = 2}, topology);
  ASSERT_EQ(results.size(), 2U);
  // 4 layers of 1 MB: 2·3/4·4 MB at 10 Gb/s is 4.8 ms.
  for (const IterationResult& r : results) {
    EXPECT_GT(r.duration().ms(), 12 + 4.8);
    EXPECT_LT(r.duration().ms(), 12 + 4.8 * 1.3);
  }
}

TEST(Training, overlap__each_kind_hides_more) {
  const topology::Topology topology =
      topology::topology_from_shorthand("single-switch:hosts=4,host=10G").value();
  const ModelTable table =
      model(8, 2'500'000, Duration::milliseconds(2), Duration::milliseconds(4));
  const auto total_ms = [&](Overlap overlap) {
    const auto results =
        train_once(table, {.scheme = "ring", .overlap = overlap, .iterations = 4}, topology);
    return (results.back().end - results.front().start).ms();
  };
  const double none = total_ms(Overlap::kNone);
  const double wait_free = total_ms(Overlap::kWaitFree);
  const double scheduled = total_ms(Overlap::kByteScheduler);
  EXPECT_LT(wait_free, 0.9 * none);
  EXPECT_LT(scheduled, 0.97 * wait_free);
}

// A server that is done early with an iteration must not send its newer gradients ahead of sums
// that others still wait for: otherwise hosts would take turns being the last, with all other links
// idle.
TEST(Training, bytescheduler__newer_gradients_wait_for_older_sums) {
  const topology::Topology topology =
      topology::topology_from_shorthand("single-switch:hosts=6,host=10G").value();
  ModelTable table = model(5, 0, Duration::milliseconds(1), Duration::milliseconds(2));
  std::int64_t sum = 0;
  for (std::size_t l = 0; l < table.layers.size(); ++l) {
    constexpr std::array<std::int64_t, 5> kParameters{100'000, 200'000, 400'000, 10'000'000,
                                                      2'000'000};
    table.layers[l].parameters = kParameters[l];
    table.layers[l].tensors = {kParameters[l]};
    sum += kParameters[l];
  }
  const auto results = train_once(
      table, {.scheme = "ps", .overlap = Overlap::kByteScheduler, .iterations = 6}, topology);
  const double iteration_ms = (results[5].end - results[0].end).ms() / 5;
  const double link_ms = static_cast<double>(sum) * 4 * 2 * 5 / 6 * 8 / 10e9 * 1e3;
  EXPECT_LT(iteration_ms, 1.45 * link_ms);
}

TEST(Training, straggler__everyone_waits_for_it) {
  const topology::Topology topology =
      topology::topology_from_shorthand("single-switch:hosts=4,host=10G").value();
  const ModelTable table = model(4, 25'000, Duration::milliseconds(1), Duration::milliseconds(2));
  const auto results = train_once(
      table, {.scheme = "ps", .overlap = Overlap::kWaitFree, .iterations = 1, .slowdown = {1, 3}},
      topology);
  EXPECT_GT(results[0].duration().ms(), 36);
  EXPECT_LT(results[0].duration().ms(), 37);
}

// Every iteration takes as long as its slowest group alone, even if some groups are ahead of
// others.
TEST(Training, ds_sync__groups_do_not_slow_one_another) {
  const topology::Topology topology =
      topology::topology_from_shorthand("leaf-spine:racks=2,hosts=4,spines=1,host=10G,uplink=10G")
          .value();
  const ModelTable table = model(1, 2'500'000, {}, {});
  const auto pace_ms = [&](const char* scheme) {
    constexpr int kIterations = 8;
    const auto results = train_once(table,
                                    {.scheme = scheme,
                                     .overlap = Overlap::kNone,
                                     .partition = Bytes(500'000),
                                     .iterations = kIterations},
                                    topology);
    return (results.back().end - results.front().start).ms() / kIterations;
  };
  // The racks' groups of three move 2·2/3·10 MB at 10 Gb/s; the pair that crosses is done before.
  const double group_ms = 2.0 * 2 / 3 * 10e6 * 8 / 10e9 * 1e3;
  const double ds_sync = pace_ms("ds-sync");
  EXPECT_GT(ds_sync, group_ms);
  EXPECT_LT(ds_sync, group_ms * 1.15);
  EXPECT_GT(pace_ms("ring"), 1.2 * ds_sync);
  // In one of its three iterations four workers of each rack cross the rack's link at once.
  EXPECT_GT(pace_ms("gossip"), ds_sync);
}

TEST(Training, unknown_scheme__an_error) {
  const topology::Topology topology =
      topology::topology_from_shorthand("single-switch:hosts=4,host=10G").value();
  Network network(topology, {});
  FlowEnds ends(network);
  Connections connections(network, ends, {});
  const auto job =
      TrainingJob::make(model(1, 10, {}, {}), {.scheme = "rings"}, topology, network, connections);
  ASSERT_FALSE(job.ok());
  EXPECT_NE(job.error().message().find("rings"), std::string::npos);
}

}  // namespace
}  // namespace thalweg::sim
