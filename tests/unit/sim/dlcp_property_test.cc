// Random traffic and random faults over DLCP: every flow ends within its bound, every checker is
// quiet, no end keeps state, and the same seed gives the same result.
#include <gtest/gtest.h>

#include <cstdlib>
#include <sstream>

#include "base/prng.h"
#include "fabric_fixture.h"
#include "sanitized.h"
#include "sim/tcp/transports.h"

namespace thalweg::sim::fixture {
namespace {

constexpr int kHosts = 8;
constexpr double kBound = 0.1;

class FaultyRun {
 public:
  explicit FaultyRun(std::uint64_t seed)
      : prng_(seed),
        topology_(topology("leaf-spine:racks=2,hosts=4,spines=2,host=10G,uplink=20G,delay=5us")),
        lossy_(
            std::move(make_transport("dlcp", {{"bound", "0.1"}, {"pull_bound", "0.02"}})).value()),
        exact_(std::move(make_transport("dlcp", {{"bound", "0"}, {"in_advance", "off"}})).value()),
        granted_exactly_(seed % 4 < 2),
        granted_(std::move(make_transport("dlcp", {{"bound", granted_exactly_ ? "0" : "0.1"},
                                                   {"pull_bound", granted_exactly_ ? "0" : "0.02"},
                                                   {"grants", "on"},
                                                   {"order", seed % 2 == 0 ? "urgent" : "oldest"},
                                                   {"round_trip", "40us"}}))
                     .value()),
        tcp_(std::move(make_transport("newreno", {{"rto_min", "1ms"}})).value()),
        bench_(topology_, options(seed)) {
    for (int i = 0; i < 40; ++i) add_flow();
    for (int i = 0; i < 12; ++i) add_fault();
  }

  // Runs to the end and returns the full result as text.
  std::string run() {
    bench_.run_to_the_end();
    std::ostringstream out;
    for (const FlowResult& r : bench_.results) {
      const bool tcp = r.spec.transport == tcp_.get();
      const bool exact = r.spec.transport == exact_.get() ||
                         (granted_exactly_ && r.spec.transport == granted_.get());
      const double bound = tcp || exact ? 0 : r.spec.pull ? 0.02 : kBound;
      EXPECT_GE(r.arrived, 1 - bound) << "flow " << r.id.value();
      out << r.id.value() << ' ' << r.end.since_start().ps() << ' ' << r.arrived << ' '
          << r.counters.segments << ' ' << r.counters.retransmissions << '\n';
    }
    EXPECT_EQ(bench_.results.size(), 40U);
    return out.str();
  }

 private:
  static NetworkOptions options(std::uint64_t seed) {
    Prng prng(seed + 1'000'000);
    NetworkOptions options;
    options.queues.discipline = prng.below(4) == 0 ? QueueOptions::Discipline::kFifo
                                                   : QueueOptions::Discipline::kStrictPriority;
    options.queues.port_buffer = Bytes(20'000 + static_cast<std::int64_t>(prng.below(300'000)));
    if (prng.below(2) == 0) options.queues.selective_threshold = Bytes(30'000);
    options.balancing = static_cast<LoadBalancing>(prng.below(3));
    options.framing_bytes = prng.below(2) == 0 ? 0 : 24;
    options.host_queue = prng.below(2) == 0 ? Bytes(0) : Bytes(6'000);
    options.seed = seed;
    return options;
  }
  Time moment() {
    return Time::at(Duration::microseconds(static_cast<std::int64_t>(prng_.below(20'000))));
  }

  void add_flow() {
    const auto from = static_cast<int>(prng_.below(kHosts));
    const int to = (from + 1 + static_cast<int>(prng_.below(kHosts - 1))) % kHosts;
    const std::uint64_t choice = prng_.below(8);
    FlowSpec spec;
    spec.source = Rank(from);
    spec.target = Rank(to);
    spec.bytes = 1 + prng_.below(choice < 4 ? 20'000 : 2'000'000);
    spec.transport = choice == 0                  ? tcp_.get()
                     : choice <= 2                ? exact_.get()
                     : choice == 3 || choice == 4 ? granted_.get()
                                                  : lossy_.get();
    spec.priority = static_cast<std::uint8_t>(1 + prng_.below(7));
    spec.pull = prng_.below(3) == 0;
    bench_.network.call_at(moment(), [this, spec] { bench_.network.start_flow(spec); });
  }

  // Every fault ends, so that every flow can finish.
  void add_fault() {
    const Time begin = moment();
    const Time end = begin + Duration::microseconds(static_cast<std::int64_t>(prng_.below(8'000)));
    const topology::LinkId link(static_cast<std::int32_t>(prng_.below(topology_.links().size())));
    const topology::ArcId arc(static_cast<std::int32_t>(prng_.below(topology_.arc_count())));
    Network& network = bench_.network;
    switch (prng_.below(6)) {
      case 0:
        network.call_at(begin, [&network, arc] { network.set_loss(arc, 0.2); });
        network.call_at(end, [&network, arc] { network.set_loss(arc, 0); });
        break;
      case 1:
        network.call_at(begin, [&network, arc] { network.set_bursty_loss(arc, 100, 30); });
        network.call_at(end, [&network, arc] { network.set_loss(arc, 0.001); });
        break;
      case 2:
        network.call_at(begin, [&network, link] { network.set_link_up(link, false); });
        network.call_at(end, [&network, link] { network.set_link_up(link, true); });
        break;
      case 3: {
        const Rank host(static_cast<std::int32_t>(prng_.below(kHosts)));
        network.call_at(begin, [&network, host] { network.set_host_paused(host, true); });
        network.call_at(end, [&network, host] { network.set_host_paused(host, false); });
        break;
      }
      case 4:
        network.call_at(begin, [&network, link] { network.set_rate_factor(link, 0.1); });
        network.call_at(end, [&network, link] { network.set_rate_factor(link, 1); });
        break;
      default:
        network.call_at(begin,
                        [this] { bench_.network.restart_switch(topology_.find_node("spine0")); });
    }
  }

  Prng prng_;
  topology::Topology topology_;
  std::unique_ptr<TransportFactory> lossy_;
  std::unique_ptr<TransportFactory> exact_;
  bool granted_exactly_;
  std::unique_ptr<TransportFactory> granted_;
  std::unique_ptr<TransportFactory> tcp_;
  Bench bench_;
};

TEST(DlcpSimProperty, run__random_faults__keeps_every_bound_and_no_state) {
  const char* const more = std::getenv("THALWEG_SCHEDULES");
  const std::uint64_t usual = kUnderSanitizer ? 40 : 150;
  const std::uint64_t runs = more != nullptr ? std::strtoull(more, nullptr, 10) : usual;
  const char* const first = std::getenv("THALWEG_FIRST_SEED");
  const std::uint64_t base = first != nullptr ? std::strtoull(first, nullptr, 10) : 1;
  for (std::uint64_t seed = base; seed < base + runs; ++seed) {
    SCOPED_TRACE("replay: THALWEG_SCHEDULES=1 THALWEG_FIRST_SEED=" + std::to_string(seed));
    FaultyRun(seed).run();
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(DlcpSimProperty, run__same_seed__gives_the_same_result) {
  for (std::uint64_t seed = 500; seed < 510; ++seed) {
    SCOPED_TRACE(seed);
    const std::string once = FaultyRun(seed).run();
    EXPECT_EQ(once, FaultyRun(seed).run());
    EXPECT_NE(once, FaultyRun(seed + 1000).run());
  }
}

}  // namespace
}  // namespace thalweg::sim::fixture
