// The jobs that share a switch, as `thalweg job` asks for them over its control socket.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include <thalweg/result.h>

#include "net/atp/switch_client.h"

namespace thalweg::lab {

// Where a switch is, and how to talk to it.
struct SwitchControl {
  std::string address;         // host:port of its control socket
  net::SwitchSecrets secrets;  // its token and key
  double timeout_s = 5;        // how long to wait for its answer
};

// These functions throw nlohmann::json::exception if what answers is no switch.

// Lets a job in. Names of hosts are looked up first: a switch takes numbers only.
[[nodiscard]] Result<net::JobGrant> create_switch_job(const SwitchControl& control,
                                                      net::JobRequest request);
[[nodiscard]] std::string job_grant_text(const net::JobGrant& grant);

// The jobs of the switch, as it answers, and as a table.
[[nodiscard]] Result<nlohmann::json> list_switch_jobs(const SwitchControl& control);
[[nodiscard]] std::string switch_jobs_text(const nlohmann::json& answer);

// Ends a job.
[[nodiscard]] Status remove_switch_job(const SwitchControl& control, std::uint32_t job);

// What the switch did, by job and port, as it answers, and as a table. `job`: only this one; 0:
// all.
[[nodiscard]] Result<nlohmann::json> switch_job_stats(const SwitchControl& control,
                                                      std::uint32_t job);
[[nodiscard]] std::string switch_stats_text(const nlohmann::json& answer);

}  // namespace thalweg::lab
