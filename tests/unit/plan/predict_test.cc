// Outlines against the plans that they stand for, and the terms of the prediction by hand.
#include "plan/predict.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "plan/planner.h"
#include "topology/format/load.h"

namespace thalweg::plan {
namespace {

topology::Topology network_of(const std::string& shorthand) {
  return topology::topology_from_shorthand(shorthand).value();
}

std::vector<double> bytes_by_arc(const Outline& outline, const topology::Topology& topology,
                                 const topology::Routing& routing) {
  topology::ArcLoads loads(topology, routing);
  std::vector<double> result(topology.arc_count());
  for (const OutlineRound& round : outline.rounds) {
    for (const OutlineFlow& flow : round.flows) loads.add(flow.from, flow.to, flow.bytes);
    for (const OutlineExchange& exchange : round.exchanges) {
      loads.add_exchange(exchange.from, exchange.to);
    }
    const auto round_loads = loads.take();
    for (std::size_t a = 0; a < result.size(); ++a) {
      result[a] += round_loads[a].bytes * round.repeat;
    }
  }
  return result;
}

TEST(Outline, every_scheme__loads_every_arc_as_its_plan_does) {
  for (const char* shorthand : {"single-switch:hosts=8,host=10G", "single-switch:hosts=6,host=10G",
                                "leaf-spine:racks=2,hosts=4,spines=2,host=10G,uplink=10G",
                                "leaf-spine:racks=4,hosts=2,spines=1,host=10G,uplink=5G"}) {
    const topology::Topology topology = network_of(shorthand);
    const topology::Routing routing(topology);
    const PlanRequest request{.topology = topology, .elements = 24 * 64 * 1000};
    for (const Scheme* scheme : all_schemes()) {
      if (scheme->outline == nullptr) continue;
      SCOPED_TRACE(fmt::format("{} on {}", scheme->name, shorthand));
      const Plan plan = make_plan(scheme->name, request).value();
      const PlanProof proof = verify(plan).value();
      const Accounting sum = account(plan, proof, topology, routing);
      const auto bytes =
          bytes_by_arc(make_outline(scheme->name, request).value(), topology, routing);
      for (std::size_t a = 0; a < bytes.size(); ++a) {
        EXPECT_NEAR(bytes[a], sum.arc_bytes[a],
                    1e-3 * static_cast<double>(sum.busiest_arc_bytes().count()))
            << a;
      }
      const auto from_plan = bytes_by_arc(outline_of(plan, proof), topology, routing);
      for (std::size_t a = 0; a < bytes.size(); ++a) {
        EXPECT_NEAR(from_plan[a], sum.arc_bytes[a], 1) << a;
      }
    }
  }
}

TEST(Prediction, ring__headers_acknowledgements_and_the_first_packet_of_each_phase) {
  const topology::Topology topology = network_of("single-switch:hosts=8,host=1G,delay=1us");
  const topology::Routing routing(topology);
  const PlanRequest request{.topology = topology, .elements = 8 * 16384};
  Predictor predictor(topology, routing, {.per_message = Duration(), .per_follow_up = Duration()});
  const Prediction ring = predictor.predict(make_outline("ring", request).value());
  // 14 chunks of 64 KiB in 45 packets. Their links carry other packets while one is stored and
  // forwarded, but for the first.
  const double line_us = 14 * (65536 + 45 * 80) * 8e-3;
  EXPECT_NEAR(ring.total.us(), line_us + 12 + 2, 1);
  EXPECT_EQ(ring.incast, Duration());
}

TEST(Prediction, ring__of_chunks_shorter_than_their_way_waits_for_them) {
  const topology::Topology topology = network_of("single-switch:hosts=8,host=1G,delay=100us");
  const topology::Routing routing(topology);
  Predictor predictor(topology, routing, {.per_message = Duration(), .per_follow_up = Duration()});
  const PlanRequest request{.topology = topology, .elements = 8 * 100};
  const Prediction ring = predictor.predict(make_outline("ring", request).value());
  // 14 chunks of 400 bytes, over two delays and one switch.
  EXPECT_NEAR(ring.total.us(), 14 * (200 + 440 * 8e-3) + 480 * 8e-3, 1);
}

TEST(Prediction, parameter_servers__wait_for_the_queue_of_a_host) {
  const topology::Topology topology = network_of("single-switch:hosts=8,host=1G,delay=1us");
  const topology::Routing routing(topology);
  const PlanRequest request{.topology = topology, .elements = 8 * 16384};
  Predictor predictor(topology, routing, {.per_message = Duration(), .per_follow_up = Duration()});
  const Prediction servers = predictor.predict(make_outline("ps", request).value());
  EXPECT_NEAR(servers.incast.us(), 64000 * 8e-3, 1);
}

TEST(Prediction, fullest_path__of_random_choices) {
  EXPECT_DOUBLE_EQ(fullest_path(5, 1), 5);
  EXPECT_DOUBLE_EQ(fullest_path(1, 4), 1);
  EXPECT_NEAR(fullest_path(2, 2), 1.5, 0.15);
  EXPECT_NEAR(fullest_path(4, 2), 2.75, 0.25);
  // Four groups of four flows: one of them has all four on one path with a chance of 1 - (7/8)^4.
  EXPECT_NEAR(fullest_path(4, 2, 8), 3.35, 0.15);
  EXPECT_NEAR(fullest_path(1e6, 4), 250'000, 1'000);
}

// The limits are generous: the choice takes 2 ms and 0.11 s on the machine of the diary.
TEST(Planner, choice__quick_for_thousands_of_hosts) {
  const auto seconds = [](const std::string& shorthand) {
    const topology::Topology topology = network_of(shorthand);
    const topology::Routing routing(topology);
    const auto start = std::chrono::steady_clock::now();
    EXPECT_TRUE(choose_scheme({.topology = topology, .elements = 4'000'000}, routing, {}).ok());
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  EXPECT_LT(seconds("leaf-spine:racks=16,hosts=16,spines=4,host=10G,uplink=40G"), 1);
  EXPECT_LT(seconds("leaf-spine:racks=128,hosts=32,spines=8,host=10G,uplink=40G"), 20);
}

}  // namespace
}  // namespace thalweg::plan
