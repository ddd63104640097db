// What the tests of the simulated network share: small topologies and a plain window transport.
#pragma once

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/core/network.h"
#include "topology/format/load.h"

namespace thalweg::sim::fixture {

inline constexpr Time kForever = Time::at(Duration::milliseconds(100'000));

// The payload of a full packet; with its header it has 1500 bytes.
inline constexpr std::uint64_t kFull = 1460;
inline constexpr std::int64_t kWire = 1500;

// A link with a delay of one microsecond.
inline topology::LinkSpec link(std::int64_t gbps) {
  return {Bandwidth::gbps(gbps), Duration::nanoseconds(1000), Bytes(0)};
}

struct WindowOptions {
  std::uint64_t window_bytes = ~std::uint64_t{0};
  std::uint32_t segment = kFull;
  std::uint32_t header = 40;
  std::uint8_t priority = 0;
  Ecn ecn = Ecn::kNotCapable;
  Duration timeout = Duration::milliseconds(1);
};

// Keeps a fixed window of bytes in flight; on a timeout goes back to the first missing byte.
class WindowSender final : public Sender {
 public:
  WindowSender(std::uint64_t bytes, const WindowOptions& options)
      : bytes_(bytes), options_(options) {}

  void start(Time now) override { deadline_ = now + options_.timeout; }
  void on_ack(Time now, const Acknowledgement& ack) override {
    counters_.marks_echoed += ack.echo ? 1 : 0;
    if (ack.next_expected <= acked_) return;
    acked_ = ack.next_expected;
    next_ = std::max(next_, acked_);
    deadline_ = now + options_.timeout;
  }
  void on_timeout(Time now) override {
    next_ = acked_;
    ++counters_.timeouts;
    deadline_ = now + options_.timeout;
  }
  bool poll_transmit(Time /*now*/, SegmentToSend& out) override {
    if (next_ == bytes_ || next_ - acked_ >= options_.window_bytes) return false;
    out.sequence = next_;
    out.payload =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(options_.segment, bytes_ - next_));
    out.rank_in_queue = static_cast<std::uint32_t>(bytes_ - acked_);
    out.priority = options_.priority;
    out.ecn = options_.ecn;
    out.retransmission = next_ < highest_;
    next_ += out.payload;
    highest_ = std::max(highest_, next_);
    ++counters_.segments;
    return true;
  }
  [[nodiscard]] std::optional<Time> next_timeout() const override { return deadline_; }
  [[nodiscard]] bool done() const override { return acked_ == bytes_; }
  [[nodiscard]] const SenderCounters& counters() const override { return counters_; }
  [[nodiscard]] double window() const override {
    return static_cast<double>(options_.window_bytes);
  }

 private:
  std::uint64_t bytes_;
  WindowOptions options_;
  std::uint64_t next_ = 0;
  std::uint64_t acked_ = 0;
  std::uint64_t highest_ = 0;
  Time deadline_;
  SenderCounters counters_;
};

class WindowTransport final : public TransportFactory {
 public:
  explicit WindowTransport(const WindowOptions& options) : options_(options) {}

  [[nodiscard]] std::unique_ptr<Sender> make_sender(std::uint64_t bytes,
                                                    std::optional<double> window) const override {
    WindowOptions options = options_;
    if (window) options.window_bytes = static_cast<std::uint64_t>(*window) + 1;
    return std::make_unique<WindowSender>(bytes, options);
  }
  [[nodiscard]] std::uint32_t header_bytes() const override { return options_.header; }
  [[nodiscard]] std::string describe() const override { return "window"; }

 private:
  WindowOptions options_;
};

inline topology::Topology topology(std::string_view shorthand) {
  Result<topology::Topology> result = topology::topology_from_shorthand(shorthand);
  if (!result.ok()) ADD_FAILURE() << result.error().message();
  return std::move(result).value();
}

// Hosts on one switch, each with its own link.
inline topology::Topology star(const std::vector<topology::LinkSpec>& links) {
  topology::TopologyBuilder builder("star");
  const topology::NodeId hub = *builder.add_switch("hub", topology::kWholeNetwork);
  for (std::size_t i = 0; i < links.size(); ++i) {
    const topology::NodeId host =
        *builder.add_host(fmt::format("host{}", i), topology::kWholeNetwork);
    EXPECT_TRUE(builder.add_link(host, hub, links[i]).ok());
  }
  return std::move(builder).build().value();
}

// Two hosts joined by a line of switches, one link after another.
inline topology::Topology line(const std::vector<topology::LinkSpec>& links) {
  topology::TopologyBuilder builder("line");
  topology::NodeId here = *builder.add_host("first", topology::kWholeNetwork);
  for (std::size_t i = 0; i < links.size(); ++i) {
    const bool last = i + 1 == links.size();
    const topology::NodeId next =
        last ? *builder.add_host("last", topology::kWholeNetwork)
             : *builder.add_switch(fmt::format("s{}", i), topology::kWholeNetwork);
    EXPECT_TRUE(builder.add_link(here, next, links[i]).ok());
    here = next;
  }
  return std::move(builder).build().value();
}

// A network and the results of its flows; expects that no checker complains.
class Bench {
 public:
  Bench(const topology::Topology& topology, const NetworkOptions& options)
      : network(topology, options) {
    network.on_flow_done([this](const FlowResult& result) { results.push_back(result); });
  }

  FlowId start(int from, int to, std::uint64_t bytes, const TransportFactory& transport) {
    return network.start_flow({Rank(from), Rank(to), bytes, &transport, false, 0});
  }
  void run_to_the_end() {
    EXPECT_TRUE(network.run(kForever));
    EXPECT_EQ(network.active_flows(), 0U);
    EXPECT_EQ(network.violations(), std::vector<std::string>{});
  }
  // The result of a flow. Requires that it has ended.
  [[nodiscard]] const FlowResult& result(FlowId id) const {
    const auto found = std::find_if(results.begin(), results.end(),
                                    [&](const FlowResult& r) { return r.id == id; });
    EXPECT_NE(found, results.end());
    return *found;
  }

  Network network;
  std::vector<FlowResult> results;
};

}  // namespace thalweg::sim::fixture
