// The network of a testbed at work, in one thread: it carries frames from the hosts' devices
// through a LiveFabric to the devices of other hosts, and answers requests on a control socket.
//
// Requests are JSON objects, one per line (docs/testbed.md).
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <thalweg/result.h>

#include "lab/testbed/live_fabric.h"
#include "lab/testbed/pcap.h"
#include "lab/testbed/stalls.h"
#include "net/io/event_loop.h"
#include "net/io/fd.h"
#include "switchd/control_server.h"
#include "topology/topology.h"

namespace thalweg::lab {

// What the testbed's process holds of a host.
struct TestbedHost {
  net::Fd space;      // its network namespace
  net::Fd device;     // the other end of its network device, non-blocking
  std::string named;  // name of the namespace for `ip netns`; empty: it has none
};

// A process at a switch. It is restarted with the switch, and loses its memory then.
class Restartable {
 public:
  virtual ~Restartable() = default;
  [[nodiscard]] virtual Status restart() = 0;
};

// The ports at which the aggregator of a switch can be reached.
inline constexpr int kAggregatorControlPort = 7700;
inline constexpr int kAggregatorDataPort = 7701;

struct TestbedSettings {
  std::string name;
  std::string folder = {};  // that holds the control socket
  sim::NetworkOptions network = {};
  std::size_t mtu = 1500;
  double scale = 1;              // factor of the rates that the file states; only shown to people
  double frames_per_second = 0;  // that this machine can carry (capacity.h)
  // Switches whose aggregators are the last hosts of the topology (aggregators.h), in that order.
  std::vector<std::string> aggregate = {};
  std::string switch_token = {};  // the secret of all aggregators
};

class Switchboard final : net::EventLoop::Handler,
                          switchd::ControlServer::Requests,
                          LiveFabric::Sink {
 public:
  // `topology` must outlive the board. `listener` listens for control connections. `ends` is a
  // signalfd whose signals end run(). `aggregators` are those of settings.aggregate, in that order.
  static Result<std::unique_ptr<Switchboard>> make(
      const topology::Topology& topology, const TestbedSettings& settings,
      std::vector<TestbedHost> hosts, net::Fd listener, net::Fd ends,
      std::vector<std::unique_ptr<Restartable>> aggregators);
  ~Switchboard() override;

  // Runs until a request or a signal ends it.
  void run();

 private:
  struct Capture {
    std::uint64_t client = 0;  // whose connection asked for it; the capture ends with that
    std::vector<bool> arcs;    // whether each is captured, by number
    PcapFile file;
    std::uint64_t frames = 0;
    std::uint64_t most = 0;  // frames; 0: no limit
  };

  Switchboard(const topology::Topology& topology, const TestbedSettings& settings,
              std::vector<TestbedHost> hosts, std::unique_ptr<net::EventLoop> loop,
              net::Fd listener, net::Fd ends,
              std::vector<std::unique_ptr<Restartable>> aggregators);

  void on_ready(int fd, std::uint32_t events) override;
  void deliver(Rank host, std::span<const std::uint8_t> frame) override;
  void crossed(Time when, topology::ArcId arc, std::span<const std::uint8_t> frame) override;
  Result<nlohmann::json> on_request(const switchd::ControlServer::Requester& from,
                                    const nlohmann::json& request) override;
  void on_closed(std::uint64_t client) override;

  void read_device(Rank host);
  // The numbers of hosts and links in the user's topology. Those of the aggregators come after
  // them.
  [[nodiscard]] int host_count() const {
    return topology_.host_count() - static_cast<int>(settings_.aggregate.size());
  }
  [[nodiscard]] std::size_t link_count() const {
    return topology_.links().size() - settings_.aggregate.size();
  }
  void do_stalls();
  // Pauses the host if it stalls now or a request has paused it; otherwise lets it send.
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
  // The links that `name` means: "a-b", with the two nodes' names in either order, or "all".
  [[nodiscard]] Result<std::vector<topology::LinkId>> links_named(const std::string& name) const;
  [[nodiscard]] Result<Rank> host_named(const std::string& name) const;
  [[nodiscard]] std::string link_name(topology::LinkId link) const;

  const topology::Topology& topology_;
  TestbedSettings settings_;
  std::vector<TestbedHost> hosts_;
  std::vector<Bandwidth> rates_;  // by link, as they are now
  std::vector<Rank> host_of_fd_;  // by descriptor
  std::unique_ptr<net::EventLoop> loop_;
  net::Fd ends_;
  switchd::ControlServer server_;
  LiveFabric network_;
  std::vector<std::unique_ptr<Restartable>> aggregators_;
  std::optional<Stalls> stalls_;
  std::vector<bool> paused_;  // whether a request has paused the host, by rank
  std::vector<Capture> captures_;
  std::vector<std::uint8_t> scratch_;
  std::int64_t epoch_ns_;  // nanoseconds from 1970 to time 0
  Time now_;               // of this turn of the loop
  Time started_;
  std::uint64_t undelivered_ = 0;  // frames that a host's device did not take
};

}  // namespace thalweg::lab
