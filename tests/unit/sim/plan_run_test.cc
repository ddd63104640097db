// Plans as packets, stored and forwarded in whole chunks or forwarded piece by piece.
#include "sim/workload/plan_run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "fabric_fixture.h"
#include "plan/scheme.h"
#include "sim/tcp/transports.h"

namespace thalweg::sim::fixture {
namespace {

constexpr const char* kRacks = "leaf-spine:racks=2,hosts=4,spines=2,host=1G,uplink=1G";
constexpr const char* kFourHosts = "single-switch:hosts=4,host=200M,delay=50us";

struct Setting {
  std::string transport = "newreno";
  KeyValues parameters = {};
  bool in_pieces = true;
  double loss = 0;  // of every link, in both directions
  std::uint64_t seed = 1;
  Pace pace = Pace::kEager;
  Duration late = {};  // when rank 1 starts, after the others
};

struct Outcome {
  Duration time;  // until the last rank was done
  std::vector<Rank> done;
  std::vector<FlowResult> messages;
  NetworkCounters counters;
};

Outcome outcome_of(const plan::Plan& plan, const topology::Topology& network, const Setting& s) {
  const auto transport = std::move(make_transport(s.transport, s.parameters)).value();
  NetworkOptions options;
  options.queues.port_buffer = Bytes(10'000'000);
  options.host_queue = Bytes(32'000);
  options.seed = s.seed;
  Network simulated(network, options);
  for (std::size_t arc = 0; arc < network.arc_count(); ++arc) {
    simulated.set_loss(topology::ArcId(static_cast<std::int32_t>(arc)), s.loss);
  }
  FlowEnds ends(simulated);
  Outcome outcome;
  ends.observe([&](const FlowResult& flow) { outcome.messages.push_back(flow); });
  Connections connections(simulated, ends,
                          {.transport = transport.get(), .in_pieces = s.in_pieces});
  const RunnablePlan runnable(plan);
  const auto rank_done = [&](Rank rank) {
    outcome.done.push_back(rank);
    outcome.time = simulated.now().since_start();
  };
  const auto run = PlanRun::make(runnable, connections, {.rank_done = rank_done, .pace = s.pace});
  for (Rank rank(0); rank.value() < plan.contributors; ++rank) {
    const Duration at = rank == Rank(1) ? s.late : Duration();
    simulated.call_at(Time::at(at), [&run, rank] { run->start(rank); });
  }
  EXPECT_TRUE(simulated.run(kForever));
  EXPECT_EQ(simulated.violations(), std::vector<std::string>{});
  EXPECT_EQ(simulated.active_flows(), 0U);
  EXPECT_EQ(outcome.messages.size(), plan.transfers.size());
  outcome.counters = simulated.counters();
  std::ranges::sort(outcome.done);
  return outcome;
}

std::vector<Rank> contributors_of(const plan::Plan& plan) {
  std::vector<Rank> ranks;
  for (Rank rank(0); rank.value() < plan.contributors; ++rank) ranks.push_back(rank);
  return ranks;
}

plan::Plan plan_of(const std::string& scheme, const topology::Topology& network, Bytes size) {
  return plan::make_plan(scheme, {.topology = network, .elements = size.count() / 4}).value();
}

std::vector<std::string> allreduce_schemes() {
  std::vector<std::string> names;
  for (const plan::Scheme* scheme : plan::all_schemes()) {
    if (std::ranges::count(scheme->collectives, plan::Collective::kAllreduce) > 0) {
      names.emplace_back(scheme->name);
    }
  }
  return names;
}

// Rank 0 sends one chunk to rank 1, which sends it on to rank 2, and so on.
plan::Plan chain_of(int ranks, std::int64_t elements) {
  plan::Plan plan;
  plan.ranks = ranks;
  plan.contributors = ranks;
  plan.elements = elements;
  plan.element_bytes = 4;
  plan.chunks = {{.offset = 0, .length = elements, .source = Rank(0), .target = Rank(ranks - 1)}};
  for (int r = 0; r + 1 < ranks; ++r) {
    plan.transfers.push_back(
        {Rank(r), Rank(r + 1), ChunkIndex(0), r == 0 ? 0 : 1, plan::TransferKind::kCopy});
  }
  return plan;
}

// The times are those of a run in which nothing is forwarded before its chunk is complete.
TEST(PlanRun, whole_chunks__golden_times) {
  const topology::Topology network = topology(kRacks);
  const std::vector<std::pair<std::string, std::int64_t>> golden = {
      {"ring", 15'420'480'000},
      {"halving-doubling", 19'068'000'000},
      {"ps", 20'303'360'000},
      {"rat", 16'755'808'000}};
  for (const auto& [scheme, ps] : golden) {
    const Outcome outcome =
        outcome_of(plan_of(scheme, network, Bytes(1'000'000)), network, {.in_pieces = false});
    EXPECT_EQ(outcome.time.ps(), ps) << scheme;
  }
}

// A chain of k hops takes k times the chunk if each hop waits for all of it, and once the chunk and
// k − 1 packets if not.
TEST(PlanRun, chain__pieces_are_forwarded_while_others_come) {
  const topology::Topology network = topology(kFourHosts);
  const plan::Plan plan = chain_of(4, 65'536);
  const double once_ms = 262'144 * 8 / 200e6 * 1e3;
  for (const std::string transport : {"newreno", "cubic", "dctcp", "dlcp"}) {
    const double chunks =
        outcome_of(plan, network, {.transport = transport, .in_pieces = false}).time.ms();
    const double pieces = outcome_of(plan, network, {.transport = transport}).time.ms();
    EXPECT_GT(chunks, 3 * once_ms) << transport;
    EXPECT_GT(pieces, once_ms) << transport;
    EXPECT_LT(pieces, 1.15 * once_ms) << transport;
  }
}

// Over DLCP pieces of several messages take turns where whole chunks follow one another. That may
// cost a little where a chunk is needed whole at last.
TEST(PlanRun, lossless__no_scheme_is_later_with_pieces) {
  constexpr double kMargin = 1.02;
  const topology::Topology network = topology(kFourHosts);
  for (const std::string transport : {"newreno", "dlcp"}) {
    const double margin = transport == "dlcp" ? kMargin : 1;
    for (const std::string& scheme : allreduce_schemes()) {
      const plan::Plan plan = plan_of(scheme, network, Bytes(262'144));
      const Outcome chunks =
          outcome_of(plan, network, {.transport = transport, .in_pieces = false});
      const Outcome pieces = outcome_of(plan, network, {.transport = transport});
      EXPECT_EQ(pieces.done, contributors_of(plan));
      EXPECT_LE(pieces.time.ms(), chunks.time.ms() * margin) << scheme << " over " << transport;
    }
  }
}

TEST(PlanRun, loss__every_scheme_ends_and_no_byte_is_missing) {
  const topology::Topology network = topology(kRacks);
  for (const std::string transport : {"cubic", "dctcp", "dlcp"}) {
    std::uint64_t lost = 0;
    for (const std::string& scheme : allreduce_schemes()) {
      for (std::uint64_t seed = 1; seed <= 3; ++seed) {
        SCOPED_TRACE(scheme + " over " + transport + ", seed " + std::to_string(seed));
        Setting setting{.transport = transport, .loss = 0.01, .seed = seed};
        if (transport == "dlcp") setting.parameters = {{"bound", "0"}};
        const plan::Plan plan = plan_of(scheme, network, Bytes(300'004));
        const Outcome outcome = outcome_of(plan, network, setting);
        EXPECT_EQ(outcome.done, contributors_of(plan));
        for (const FlowResult& message : outcome.messages) EXPECT_EQ(message.arrived, 1);
        lost += outcome.counters.drops_fault;
      }
    }
    EXPECT_GT(lost, 100U) << transport;
  }
}

TEST(PlanRun, loss_over_dlcp__every_transfer_keeps_its_bound) {
  const topology::Topology network = topology(kRacks);
  int short_of_some = 0;
  for (const std::string& scheme : allreduce_schemes()) {
    const plan::Plan plan = plan_of(scheme, network, Bytes(600'000));
    const Setting setting{.transport = "dlcp",
                          .parameters = {{"bound", "0.1"}, {"pull_bound", "0.02"}},
                          .loss = 0.02};
    const Outcome outcome = outcome_of(plan, network, setting);
    EXPECT_EQ(outcome.done, contributors_of(plan)) << scheme;
    for (const FlowResult& message : outcome.messages) {
      EXPECT_GE(message.arrived, message.spec.pull ? 0.98 : 0.9) << scheme;
      if (message.arrived < 1) ++short_of_some;
    }
  }
  EXPECT_GT(short_of_some, 10);
}

TEST(PlanRun, same_seed__same_times) {
  const topology::Topology network = topology(kRacks);
  for (const std::string transport : {"cubic", "dlcp"}) {
    const plan::Plan plan = plan_of("rat", network, Bytes(300'000));
    const Setting setting{.transport = transport, .loss = 0.01, .seed = 5};
    const Outcome first = outcome_of(plan, network, setting);
    const Outcome second = outcome_of(plan, network, setting);
    EXPECT_EQ(first.time, second.time) << transport;
    EXPECT_EQ(first.counters.events, second.counters.events) << transport;
    Setting other = setting;
    other.seed = 6;
    EXPECT_NE(outcome_of(plan, network, other).time, first.time) << transport;
  }
}

// What comes before the rank's own contribution is kept, or not sent before the rank has started.
TEST(PlanRun, rank_that_starts_late__all_are_done_after_it) {
  const topology::Topology network = topology(kRacks);
  const Duration late = Duration::milliseconds(40);
  for (const std::string transport : {"newreno", "dlcp"}) {
    for (const Pace pace : {Pace::kEager, Pace::kRendezvous}) {
      for (const std::string& scheme : allreduce_schemes()) {
        const plan::Plan plan = plan_of(scheme, network, Bytes(300'000));
        const Outcome outcome = outcome_of(
            plan, network, {.transport = transport, .loss = 0.01, .pace = pace, .late = late});
        EXPECT_EQ(outcome.done, contributors_of(plan)) << scheme;
        EXPECT_GT(outcome.time, late);
        if (pace == Pace::kEager) continue;
        for (const FlowResult& message : outcome.messages) {
          EXPECT_TRUE(message.spec.target != Rank(1) || message.start >= Time::at(late));
        }
      }
    }
  }
}

}  // namespace
}  // namespace thalweg::sim::fixture
