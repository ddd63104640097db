// Controller: knows which jobs a switch serves. It admits jobs, gives them identifiers, keys and
// limits, and answers the requests of the control socket. It does no I/O of its own.
//
// Invariants:
// 1. Each identifier is given once, so a packet of a job that is over is never mistaken for another
//    job's.
// 2. A job is installed in the data plane from the answer to its creation until that to its
//    removal.
// 3. A job with a lease ends with the client's stream that created it. Any other job ends when no
//    packet of it has come for SwitchConfig::idle_seconds, so that jobs without a client do not
//    stay for ever.
// 4. Clients of one address have at most SwitchConfig::max_jobs_per_host jobs, and at most
//    SwitchConfig::requests_per_second requests of theirs are looked at.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <thalweg/result.h>

#include "base/units.h"
#include "net/atp/job_message.h"
#include "net/io/address.h"
#include "switch/aggregation/aggregate.h"
#include "switchd/config.h"
#include "switchd/control_server.h"
#include "switchd/request_rate.h"
#include "wire/authenticate.h"

namespace thalweg::switchd {

// A job as the data plane needs it.
struct AdmittedJob {
  std::uint32_t id = 0;
  std::vector<net::SocketAddress> workers;
  std::vector<net::SocketAddress> servers;
  net::JobRequest about;
  std::optional<wire::JobKey> key;
  // The further addresses from which ends that are switches send (JobRequest::sources), by their
  // address.
  struct Sources {
    net::SocketAddress end;
    std::vector<net::SocketAddress> from;
  };
  std::vector<Sources> sources = {};

  // The addresses from which this end sends: its own first.
  [[nodiscard]] std::vector<net::SocketAddress> addresses_of(const net::SocketAddress& end) const;
  // The paths by which packets go to this end.
  [[nodiscard]] std::uint32_t paths_to(const net::SocketAddress& end) const {
    return static_cast<std::uint32_t>(addresses_of(end).size());
  }
};

// The same job as the aggregation stage needs it.
[[nodiscard]] switches::AggregateJob aggregate_job(const AdmittedJob& job);

// The data plane as the controller sees it: what carries packets.
class SwitchPlane {
 public:
  using Counters = std::vector<std::pair<std::string, std::uint64_t>>;
  // A worker or server of a job, and its packets.
  struct Port {
    std::string address;
    Counters counters;
  };
  struct JobStatistics {
    Counters counters;
    std::vector<Port> ports;  // the workers, then the servers
  };

  virtual ~SwitchPlane() = default;
  // "host:port" of each shard.
  [[nodiscard]] virtual std::vector<std::string> data_addresses() const = 0;
  // Further ports from which the first shard may send to other switches.
  [[nodiscard]] virtual std::vector<std::uint16_t> source_ports() const = 0;
  // The address family of the shards' sockets: AF_INET or AF_INET6.
  [[nodiscard]] virtual int family() const = 0;
  // Whether this is the address of one of the shards, and packets to it arrive there.
  [[nodiscard]] virtual bool own(const net::SocketAddress& address) const = 0;
  // Whether this is the address of the control socket.
  [[nodiscard]] virtual bool control(const net::SocketAddress& address) const = 0;
  [[nodiscard]] virtual Status install(const AdmittedJob& job) = 0;
  virtual void remove(std::uint32_t id) = 0;
  // Requires a job that is installed.
  [[nodiscard]] virtual JobStatistics statistics(std::uint32_t id) = 0;
  // The counters that belong to no job.
  [[nodiscard]] virtual Counters counters() = 0;
};

class Controller final : public ControlServer::Requests {
 public:
  // The plane must outlive the controller.
  Controller(const SwitchConfig& config, SwitchPlane& plane)
      : config_(config), rate_(config.requests_per_second), plane_(plane) {}

  [[nodiscard]] Result<nlohmann::json> on_request(const ControlServer::Requester& from,
                                                  const nlohmann::json& request) override;
  void on_closed(std::uint64_t client) override;
  // Ends jobs that are idle. Returns when to call it again; none: not before the next request.
  std::optional<Time> on_timeout(Time now);

 private:
  struct Job {
    net::JobRequest request;
    std::uint64_t client = 0;  // the client that created it; a lease ends with it
    std::string host;          // that client's address
    // Without a lease: when to see whether packets have come, and how many had come before.
    Time looked_at_next = {};
    std::uint64_t packets = 0;
  };

  Result<nlohmann::json> create(const ControlServer::Requester& from,
                                const nlohmann::json& request);
  Result<nlohmann::json> remove(const nlohmann::json& request);
  Result<nlohmann::json> statistics(const nlohmann::json& request);
  [[nodiscard]] nlohmann::json list() const;
  // Whether there is room for a job of this host.
  [[nodiscard]] Status room_for(const std::string& host) const;
  [[nodiscard]] Status admit(const net::JobRequest& request, const std::string& host) const;
  [[nodiscard]] Duration idle_time() const { return Duration::seconds(config_.idle_seconds); }
  [[nodiscard]] Result<std::uint32_t> number_for(const net::JobRequest& request) const;
  // The next number that the switch gives by itself; none: it has given all.
  [[nodiscard]] std::optional<std::uint32_t> next_number() const;
  // The job that a request names in its field "job".
  Result<std::uint32_t> named(const nlohmann::json& request) const;

  // Whether the request carries the switch's token.
  [[nodiscard]] bool may_ask(const nlohmann::json& request) const;

  SwitchConfig config_;
  RequestRate rate_;
  SwitchPlane& plane_;
  std::map<std::uint32_t, Job> jobs_;
  // Which identifiers were given, by number.
  std::vector<bool> given_ = std::vector<bool>(std::size_t{net::kMaxJobId} + 1);
  std::uint32_t last_id_ = 0;  // the last identifier that the switch chose; it goes up
};

}  // namespace thalweg::switchd
