// Which jobs a switch serves: admission, identifiers, keys, limits; and what the control socket is
// told about them. No I/O of its own.
//
// 1. Identifiers are given once: a packet of a job that is over is never taken for another's.
// 2. A job is with the data plane from the answer to its creation until that to its removal.
// 3. A job with a lease ends with the connection that created it.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <thalweg/result.h>

#include "net/address.h"
#include "net/atp/job_message.h"
#include "switch/aggregate.h"
#include "switchd/config.h"
#include "switchd/control_server.h"
#include "wire/authenticate.h"

namespace thalweg {

// A job as the data plane needs it.
struct AdmittedJob {
  std::uint32_t id = 0;
  std::vector<SocketAddress> workers;
  std::vector<SocketAddress> servers;
  JobRequest about;
  std::optional<JobKey> key;
};

// The same in the words of the aggregation stage.
[[nodiscard]] AggregateJob aggregate_job(const AdmittedJob& job);

// What carries packets.
class SwitchPlane {
 public:
  using Counters = std::vector<std::pair<std::string, std::uint64_t>>;
  // One end that a job exchanges packets with.
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
  // Of their sockets: AF_INET or AF_INET6.
  [[nodiscard]] virtual int family() const = 0;
  [[nodiscard]] virtual Status install(const AdmittedJob& job) = 0;
  virtual void remove(std::uint32_t id) = 0;
  // Of a job that is installed.
  [[nodiscard]] virtual JobStatistics statistics(std::uint32_t id) = 0;
  // Of what belongs to no job.
  [[nodiscard]] virtual Counters counters() = 0;
};

class Controller final : public ControlServer::Requests {
 public:
  // The plane outlives it.
  Controller(const SwitchConfig& config, SwitchPlane& plane) : config_(config), plane_(plane) {}

  [[nodiscard]] Result<nlohmann::json> on_request(std::uint64_t client,
                                                  const nlohmann::json& request) override;
  void on_closed(std::uint64_t client) override;

 private:
  struct Job {
    JobRequest request;
    std::uint64_t client = 0;  // with a lease: whose
  };

  Result<nlohmann::json> create(std::uint64_t client, const nlohmann::json& request);
  Result<nlohmann::json> remove(const nlohmann::json& request);
  Result<nlohmann::json> statistics(const nlohmann::json& request);
  [[nodiscard]] nlohmann::json list() const;
  [[nodiscard]] Status admit(const JobRequest& request) const;
  [[nodiscard]] Result<std::uint32_t> number_for(const JobRequest& request) const;
  // The job that a request names by "job".
  Result<std::uint32_t> named(const nlohmann::json& request) const;

  SwitchConfig config_;
  SwitchPlane& plane_;
  std::map<std::uint32_t, Job> jobs_;
  // Numbers of jobs that were given, each once: strays of a job that is over must not be another's.
  std::vector<bool> given_ = std::vector<bool>(std::size_t{kMaxJobId} + 1);
  std::uint32_t last_id_ = 0;  // those before it that nobody asked for were given in turn
};

}  // namespace thalweg
