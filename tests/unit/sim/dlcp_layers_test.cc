// Layer priorities over DLCP, by times: four hosts average four buckets by a ring, over links that
// lose packets. With a queue for each layer the first layer is there much earlier, and the whole
// step is not later than with one queue. What makes that so is loss detection by queue: judged
// together, urgent packets that overtake others look like loss, or hide it.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "fabric_fixture.h"
#include "plan/scheme.h"
#include "sim/hosts/connections.h"
#include "sim/tcp/transports.h"
#include "sim/workload/plan_run.h"
#include "tensor/tags.h"

namespace thalweg::sim::fixture {
namespace {

constexpr std::size_t kBuckets = 4;
constexpr std::int64_t kElements = 262'144;  // 1 MiB of floats
constexpr int kSeeds = 8;

struct Step {
  Duration all;    // until every bucket is averaged at every host
  Duration front;  // the same of the first bucket
  std::uint64_t sent = 0;
  std::uint64_t resent = 0;
  std::uint64_t lost = 0;  // packets, acknowledgements and copies included

  Step& operator+=(const Step& other) {
    all += other.all;
    front += other.front;
    sent += other.sent;
    resent += other.resent;
    lost += other.lost;
    return *this;
  }
};

struct Case {
  bool layers = false;  // a queue for each bucket, instead of one for all
  double loss = 0;      // of every link, in both directions
  std::string scheme = "ring";
  Duration gap = {};  // between two buckets, as the backward pass makes them: the last layer first

  // What test runners print.
  friend void PrintTo(const Case& c, std::ostream* out) {
    *out << c.scheme << ", loss " << c.loss << ", gap " << to_human(c.gap);
  }
};

Step run_step(const Case& c, std::uint64_t seed) {
  const topology::Topology network = topology("single-switch:hosts=4,host=100M,delay=100us");
  NetworkOptions options;
  options.queues.discipline = QueueOptions::Discipline::kStrictPriority;
  options.framing_bytes = 38;
  options.seed = seed;
  Network simulated(network, options);
  for (std::size_t arc = 0; arc < network.arc_count(); ++arc) {
    simulated.set_loss(topology::ArcId(static_cast<std::int32_t>(arc)), c.loss);
  }
  FlowEnds ends(simulated);
  Step step;
  ends.observe([&](const FlowResult& flow) {
    step.sent += flow.counters.segments;
    step.resent += flow.counters.retransmissions;
  });
  const auto exact = std::move(make_transport("dlcp", {{"bound", "0"}})).value();
  Connections connections(simulated, ends, {.transport = exact.get(), .most_at_once = 0});
  const plan::Plan plan =
      plan::make_plan(c.scheme, {.topology = network, .elements = kElements}).value();
  const RunnablePlan runnable(plan);
  std::vector<std::unique_ptr<PlanRun>> buckets;
  for (std::size_t bucket = 0; bucket < kBuckets; ++bucket) {
    const std::uint8_t queue = c.layers ? tensor::priority_of_layer(bucket, kBuckets) : 1;
    const auto rank_done = [&, bucket](Rank /*rank*/) {
      step.all = simulated.now().since_start();
      if (bucket == 0) step.front = step.all;
    };
    buckets.push_back(
        PlanRun::make(runnable, connections, {.rank_done = rank_done, .priority = queue}));
    const auto later = static_cast<std::int64_t>(kBuckets - 1 - bucket);
    simulated.call_at(Time::at(c.gap * later), [&, bucket] {
      for (Rank rank(0); rank.value() < network.host_count(); ++rank) buckets[bucket]->start(rank);
    });
  }
  EXPECT_TRUE(simulated.run(kForever));
  EXPECT_EQ(simulated.violations(), std::vector<std::string>{});
  step.lost = simulated.counters().drops_fault;
  return step;
}

// The sum over several seeds.
Step run_steps(const Case& c) {
  Step sum;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) sum += run_step(c, seed);
  return sum;
}

class DlcpLayers : public testing::TestWithParam<Case> {};

TEST_P(DlcpLayers, step__the_first_layer_is_earlier_and_the_last_not_later) {
  Case c = GetParam();
  const Step one = run_steps(c);
  c.layers = true;
  const Step layers = run_steps(c);
  RecordProperty("one_queue_ms", std::to_string(one.all.s() * 1e3 / kSeeds));
  RecordProperty("layers_ms", std::to_string(layers.all.s() * 1e3 / kSeeds));
  RecordProperty("front_ms", std::to_string(layers.front.s() * 1e3 / kSeeds));
  EXPECT_LE(layers.all.s(), one.all.s() * 1.03);
  EXPECT_LE(layers.front.s(), one.front.s() * 0.7);
  // A packet that was resent without need was not lost: below 1 % of all.
  for (const Step& step : {one, layers}) {
    EXPECT_LE(static_cast<double>(step.resent),
              static_cast<double>(step.lost) + static_cast<double>(step.sent) * 0.01);
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, DlcpLayers,
                         testing::Values(Case{.loss = 0}, Case{.loss = 0.0025}, Case{.loss = 0.01},
                                         Case{.loss = 0.0025, .gap = Duration::milliseconds(50)},
                                         Case{.loss = 0.0025, .scheme = "ps"}));

}  // namespace
}  // namespace thalweg::sim::fixture
