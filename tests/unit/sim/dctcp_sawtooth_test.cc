// DCTCP's steady state against the model of its authors (Alizadeh et al., SIGCOMM 2010, section
// 3.3): N long flows through one port that marks above K packets and sends C packets per second; R
// is the round trip without a queue. With W* = (C·R + K)/N, the window at which marking starts,
//   alpha = sqrt(2 / W*)                       marked fraction of the packets
//   Q_max = K + N,  A = N·W*·alpha/2           top and height of the queue's sawtooth, packets
//   T = W*·alpha/2                             its period, round trips (of length R + K/C)
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <numeric>

#include "fabric_fixture.h"
#include "sim/tcp/transports.h"

namespace thalweg::sim::fixture {
namespace {

constexpr double kPacket = 1500;
constexpr double kMarkPackets = 40;

struct Sawtooth {
  double top = 0;     // mean over the teeth, packets
  double height = 0;  // mean over the teeth, packets
  double period_us = 0;
  double marked = 0;  // fraction of the packets that were echoed as marked
};

struct Model {
  explicit Model(int flows, double rate_bps, double rtt_s) {
    const double per_second = rate_bps / (8 * kPacket);
    const double window = (per_second * rtt_s + kMarkPackets) / flows;
    alpha = std::sqrt(2 / window);
    top = kMarkPackets + flows;
    height = flows * window * alpha / 2;
    period_us = window * alpha / 2 * (rtt_s + kMarkPackets / per_second) * 1e6;
  }
  double alpha = 0;
  double top = 0;
  double height = 0;
  double period_us = 0;
};

// A tooth lasts from one fall through the middle to the next.
Sawtooth measure_teeth(const std::vector<double>& queue, double sample_us) {
  const double mean =
      std::accumulate(queue.begin(), queue.end(), 0.0) / static_cast<double>(queue.size());
  Sawtooth result;
  int teeth = 0;
  bool armed = false;  // has risen above the middle since the last fall below it
  std::size_t begin = 0;
  double top = 0;
  double bottom = mean;
  for (std::size_t i = 0; i < queue.size(); ++i) {
    top = std::max(top, queue[i]);
    bottom = std::min(bottom, queue[i]);
    if (queue[i] > mean + 2) armed = true;
    if (!armed || queue[i] >= mean - 2) continue;
    armed = false;
    if (begin > 0) {
      ++teeth;
      result.top += top;
      result.height += top - bottom;
      result.period_us += static_cast<double>(i - begin) * sample_us;
    }
    begin = i;
    top = 0;
    bottom = mean;
  }
  EXPECT_GT(teeth, 10);
  result.top /= teeth;
  result.height /= teeth;
  result.period_us /= teeth;
  return result;
}

// `flows` senders on one switch send to one receiver at 10 Gb/s with a round trip of 100 us.
Sawtooth simulate(int flows) {
  const topology::LinkSpec link{Bandwidth::gbps(10), Duration::microseconds(25), Bytes()};
  const topology::LinkSpec fast{Bandwidth::gbps(100), Duration::microseconds(25), Bytes()};
  std::vector<topology::LinkSpec> links(static_cast<std::size_t>(flows), fast);
  links.push_back(link);
  const topology::Topology network = star(links);
  NetworkOptions options;
  options.queues.mark_above = Bytes(static_cast<std::int64_t>(kMarkPackets * kPacket));
  Bench bench(network, options);
  const auto transport = make_transport("dctcp", {});
  EXPECT_TRUE(transport.ok());
  constexpr std::uint64_t kBytes = 200'000'000;
  for (int f = 0; f < flows; ++f) {
    bench.start(f, flows, kBytes / static_cast<std::uint64_t>(flows), **transport);
  }
  const topology::NodeId receiver = network.host(Rank(flows));
  const topology::ArcId port(network.arcs_from(receiver)[0].value() ^ 1);

  constexpr double kSampleUs = 2;
  const Time warm = Time::at(Duration::milliseconds(40));
  const Time end = Time::at(Duration::milliseconds(140));
  std::vector<double> queue;
  for (Time at = warm; at < end; at += Duration::microseconds(2)) {
    bench.network.run(at);
    queue.push_back(static_cast<double>(bench.network.queued_bytes(port)) / kPacket);
  }
  bench.run_to_the_end();
  Sawtooth result = measure_teeth(queue, kSampleUs);
  std::uint64_t marked = 0;
  std::uint64_t sent = 0;
  for (const FlowResult& flow : bench.results) {
    marked += flow.counters.marks_echoed;
    sent += flow.counters.segments;
  }
  result.marked = static_cast<double>(marked) / static_cast<double>(sent);
  return result;
}

class DctcpSawtooth : public ::testing::TestWithParam<int> {};

TEST_P(DctcpSawtooth, steady_state__queue_and_alpha_are_the_models) {
  const Model model(GetParam(), 10e9, 100e-6);
  const Sawtooth simulated = simulate(GetParam());
  std::cout << fmt::format(
      "{} flows, model / simulated: top {:.1f} / {:.1f}, height {:.1f} / {:.1f} packets, period "
      "{:.0f} / {:.0f} us, alpha {:.3f} / {:.3f}\n",
      GetParam(), model.top, simulated.top, model.height, simulated.height, model.period_us,
      simulated.period_us, model.alpha, simulated.marked);
  EXPECT_NEAR(simulated.top, model.top, 2);
  EXPECT_NEAR(simulated.height, model.height, 0.15 * model.height);
  EXPECT_NEAR(simulated.period_us, model.period_us, 0.15 * model.period_us);
  EXPECT_NEAR(simulated.marked, model.alpha, 0.15 * model.alpha);
}

INSTANTIATE_TEST_SUITE_P(Flows, DctcpSawtooth, ::testing::Values(1, 2));

}  // namespace
}  // namespace thalweg::sim::fixture
