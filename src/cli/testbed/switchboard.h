// The process that is a testbed's network: frames from the hosts' devices through a LiveFabric to
// the devices of others, and requests on a control socket, in one thread.
//
// Requests are JSON objects, one a line (docs/testbed.md).
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <thalweg/result.h>

#include "cli/testbed/live_fabric.h"
#include "cli/testbed/pcap.h"
#include "cli/testbed/stalls.h"
#include "net/event_loop.h"
#include "net/fd.h"
#include "switchd/control_server.h"
#include "topology/topology.h"

namespace thalweg {

// A host as the testbed's process holds it.
struct TestbedHost {
  Fd space;           // its network namespace
  Fd device;          // the other end of its network device, non-blocking
  std::string named;  // the namespace, for `ip netns`; empty: it has no name
};

// A process at a switch that loses what it knows when the switch does.
class Restartable {
 public:
  virtual ~Restartable() = default;
  [[nodiscard]] virtual Status restart() = 0;
};

// Where the aggregator of a switch can be reached.
inline constexpr int kAggregatorControlPort = 7700;
inline constexpr int kAggregatorDataPort = 7701;

struct TestbedSettings {
  std::string name;
  std::string folder = {};  // with the control socket
  NetworkOptions network = {};
  std::size_t mtu = 1500;
  double scale = 1;              // of the rates that the file states; for people
  double frames_per_second = 0;  // that this machine can carry (capacity.h)
  // Switches whose aggregators are the last hosts of the topology (aggregators.h), in that order.
  std::vector<std::string> aggregate = {};
};

class Switchboard final : EventLoop::Handler, ControlServer::Requests, LiveFabric::Sink {
 public:
  // `listener` listens for control connections; `ends` is a signalfd whose signals end run();
  // `aggregators` are those of settings.aggregate.
  static Result<std::unique_ptr<Switchboard>> make(
      const Topology& topology, const TestbedSettings& settings, std::vector<TestbedHost> hosts,
      Fd listener, Fd ends, std::vector<std::unique_ptr<Restartable>> aggregators);
  ~Switchboard() override;

  // Until a request or a signal ends it.
  void run();

 private:
  struct Capture {
    std::uint64_t client = 0;  // it ends with the connection
    std::vector<bool> arcs;    // which are captured
    PcapFile file;
    std::uint64_t frames = 0;
    std::uint64_t most = 0;  // 0: no limit
  };

  Switchboard(const Topology& topology, const TestbedSettings& settings,
              std::vector<TestbedHost> hosts, std::unique_ptr<EventLoop> loop, Fd listener, Fd ends,
              std::vector<std::unique_ptr<Restartable>> aggregators);

  void on_ready(int fd, std::uint32_t events) override;
  void deliver(Rank host, std::span<const std::uint8_t> frame) override;
  void crossed(Time when, ArcId arc, std::span<const std::uint8_t> frame) override;
  Result<nlohmann::json> on_request(std::uint64_t client, const nlohmann::json& request) override;
  void on_closed(std::uint64_t client) override;

  void read_device(Rank host);
  // Hosts and links that the user's file has; behind them are those of aggregators.
  [[nodiscard]] int host_count() const {
    return topology_.host_count() - static_cast<int>(settings_.aggregate.size());
  }
  [[nodiscard]] std::size_t link_count() const {
    return topology_.links().size() - settings_.aggregate.size();
  }
  void do_stalls();
  // A host sends nothing while it stalls or is paused by a request.
  void hold_or_release(Rank host);
  // An error if the hosts could send more than this machine can carry.
  [[nodiscard]] Status check_rates(std::span<const Bandwidth> rates) const;
  [[nodiscard]] nlohmann::json links_json();
  [[nodiscard]] nlohmann::json statistics();
  Result<nlohmann::json> set_link(const nlohmann::json& request);
  Result<nlohmann::json> start_capture(std::uint64_t client, const nlohmann::json& request);
  Result<nlohmann::json> look_at_capture(std::uint64_t client);
  Result<nlohmann::json> end_capture(std::uint64_t client);
  Result<nlohmann::json> set_stalls(const nlohmann::json& request);
  Result<nlohmann::json> restart_or_pause(const nlohmann::json& request);
  // By "a-b", of the two nodes' names in either order; "all" is every link.
  [[nodiscard]] Result<std::vector<LinkId>> links_named(const std::string& name) const;
  [[nodiscard]] Result<Rank> host_named(const std::string& name) const;
  [[nodiscard]] std::string link_name(LinkId link) const;

  const Topology& topology_;
  TestbedSettings settings_;
  std::vector<TestbedHost> hosts_;
  std::vector<Bandwidth> rates_;  // by link, as they are now
  std::vector<Rank> host_of_fd_;  // by descriptor
  std::unique_ptr<EventLoop> loop_;
  Fd ends_;
  ControlServer server_;
  LiveFabric network_;
  std::vector<std::unique_ptr<Restartable>> aggregators_;
  std::optional<Stalls> stalls_;
  std::vector<bool> paused_;  // by rank: by a request
  std::vector<Capture> captures_;
  std::vector<std::uint8_t> scratch_;
  std::int64_t epoch_ns_;  // since 1970, of time 0
  Time now_;               // of this turn
  Time started_;
  std::uint64_t undelivered_ = 0;  // that a host's device did not take
};

}  // namespace thalweg
