#include "sim/workload/background.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "base/histogram.h"
#include "sim/tcp/transports.h"
#include "sim/workload/random_pauses.h"
#include "topology/format/load.h"

namespace thalweg::sim {
namespace {

constexpr Time kLate = Time::at(Duration::milliseconds(10'000));

std::vector<Rank> ranks(int count) {
  std::vector<Rank> all;
  for (Rank r(0); r.value() < count; ++r) all.push_back(r);
  return all;
}

struct World {
  explicit World(int hosts)
      : topology(topology::topology_from_shorthand("single-switch:hosts=" + std::to_string(hosts) +
                                                   ",host=100G")
                     .value()),
        network(topology, {}),
        transport(make_transport("newreno", {}).value()) {
    network.on_flow_done([this](const FlowResult& flow) { flows.push_back(flow); });
  }
  topology::Topology topology;
  Network network;
  std::unique_ptr<TransportFactory> transport;
  std::vector<FlowResult> flows;
};

BackgroundOptions options_for(int hosts, BackgroundOptions::Pattern pattern) {
  BackgroundOptions options;
  options.pattern = pattern;
  options.sizes = FlowSizes::fixed(Bytes(1000));
  options.every = Duration::microseconds(10);
  options.sources = ranks(hosts);
  options.targets = ranks(hosts);
  options.tag = 7;
  return options;
}

TEST(FlowSizes, draws__follow_the_distribution) {
  for (const char* name : {"web-search", "data-mining"}) {
    const FlowSizes sizes = FlowSizes::by_name(name).value();
    Prng prng(3);
    double sum = 0;
    constexpr int kDraws = 400'000;
    for (int i = 0; i < kDraws; ++i) sum += static_cast<double>(sizes.draw(prng).count());
    EXPECT_NEAR(sum / kDraws / sizes.mean_bytes(), 1, 0.05) << name;
  }
}

TEST(FlowSizes, bad_points__refused) {
  EXPECT_FALSE(FlowSizes::from_points({}).ok());
  EXPECT_FALSE(FlowSizes::from_points({{Bytes(10), 0.5}}).ok());
  EXPECT_FALSE(FlowSizes::from_points({{Bytes(0), 1}}).ok());
  EXPECT_FALSE(FlowSizes::from_points({{Bytes(10), 0.6}, {Bytes(5), 1}}).ok());
  EXPECT_FALSE(FlowSizes::from_points({{Bytes(10), 0.6}, {Bytes(20), 0.5}, {Bytes(30), 1}}).ok());
  EXPECT_FALSE(FlowSizes::from_points({{Bytes(10), std::nan("")}}).ok());
  EXPECT_FALSE(FlowSizes::by_name("hadoop").ok());
}

TEST(Background, random__arrivals_at_the_asked_rate_and_never_to_oneself) {
  World world(4);
  BackgroundOptions options = options_for(4, BackgroundOptions::Pattern::kRandom);
  options.stop = Duration::milliseconds(50);
  BackgroundTraffic traffic(options, world.network, *world.transport, 5, [] { return false; });
  traffic.start();
  EXPECT_TRUE(world.network.run(kLate));
  // 5000 are expected; the tolerance is four standard deviations.
  EXPECT_NEAR(static_cast<double>(world.flows.size()), 5000, 4 * std::sqrt(5000.0));
  for (const FlowResult& flow : world.flows) {
    EXPECT_NE(flow.spec.source, flow.spec.target);
    EXPECT_EQ(flow.spec.tag, 7U);
  }
}

TEST(Background, load__loads_the_links_by_that_part) {
  World world(4);
  BackgroundOptions options = options_for(4, BackgroundOptions::Pattern::kRandom);
  options.sizes = FlowSizes::fixed(Bytes(100'000));
  options.stop = Duration::milliseconds(50);
  options.every = arrivals_for_load(options, world.topology, 0.3);
  BackgroundTraffic traffic(options, world.network, *world.transport, 5, [] { return false; });
  traffic.start();
  world.network.run(kLate);
  double bytes = 0;
  for (const FlowResult& flow : world.flows) bytes += static_cast<double>(flow.spec.bytes);
  EXPECT_NEAR(bytes / (4 * 12.5e9 * 0.050), 0.3, 0.03);
}

TEST(Background, permutation__every_source_keeps_its_target_and_no_target_has_two) {
  World world(9);
  BackgroundOptions options = options_for(9, BackgroundOptions::Pattern::kPermutation);
  options.at_most = 500;
  BackgroundTraffic traffic(options, world.network, *world.transport, 11, [] { return false; });
  traffic.start();
  world.network.run(kLate);
  EXPECT_EQ(world.flows.size(), 500U);
  std::map<int, std::set<int>> targets;
  std::map<int, std::set<int>> sources;
  for (const FlowResult& flow : world.flows) {
    targets[flow.spec.source.value()].insert(flow.spec.target.value());
    sources[flow.spec.target.value()].insert(flow.spec.source.value());
  }
  for (const auto& [source, all] : targets) EXPECT_EQ(all.size(), 1U) << source;
  for (const auto& [target, all] : sources) EXPECT_EQ(all.size(), 1U) << target;
}

TEST(Background, incast__all_sources_at_once) {
  World world(5);
  BackgroundOptions options = options_for(5, BackgroundOptions::Pattern::kIncast);
  options.targets = {Rank(2)};
  options.at_most = 3;
  BackgroundTraffic traffic(options, world.network, *world.transport, 11, [] { return false; });
  traffic.start();
  world.network.run(kLate);
  ASSERT_EQ(world.flows.size(), 12U);
  std::set<std::int64_t> starts;
  for (const FlowResult& flow : world.flows) {
    EXPECT_EQ(flow.spec.target, Rank(2));
    starts.insert(flow.start.since_start().ps());
  }
  EXPECT_EQ(starts.size(), 3U);
}

TEST(Background, endless__stops_when_the_other_work_is_done) {
  World world(3);
  bool work = true;
  BackgroundTraffic traffic(options_for(3, BackgroundOptions::Pattern::kRandom), world.network,
                            *world.transport, 1, [&] { return work; });
  traffic.start();
  world.network.call_at(Time::at(Duration::milliseconds(1)), [&] { work = false; });
  EXPECT_TRUE(world.network.run(kLate));
  EXPECT_GT(world.flows.size(), 50U);
  EXPECT_LT(world.network.now(), Time::at(Duration::milliseconds(2)));
}

TEST(RandomPauses, hosts_change__everyone_gets_on_and_all_send_at_the_end) {
  World world(6);
  bool work = true;
  RandomPauses pauses(2, Duration::microseconds(100), world.network, 9, [&] { return work; });
  pauses.change();
  for (Rank r(0); r.value() < 6; ++r) {
    world.network.start_flow({.source = r,
                              .target = Rank((r.value() + 1) % 6),
                              .bytes = 10'000'000,
                              .transport = world.transport.get()});
  }
  world.network.call_at(Time::at(Duration::milliseconds(2)), [&] { work = false; });
  EXPECT_TRUE(world.network.run(kLate));
  ASSERT_EQ(world.flows.size(), 6U);
  // Undisturbed, a flow takes 0.8 ms; its host is paused a third of the time.
  Histogram times;
  for (const FlowResult& flow : world.flows) times.add(flow.completion_time().ms());
  EXPECT_GT(times.mean(), 1.0);
}

}  // namespace
}  // namespace thalweg::sim
