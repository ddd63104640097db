// The messages on a switch's control socket: JSON objects, one per line; each request is answered
// in turn (docs/switch.md lists the fields).
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <thalweg/result.h>

#include "wire/atp_packet.h"

namespace thalweg::net {

// Two levels of 32, the bits of a packet's bitmaps.
inline constexpr std::size_t kMaxJobWorkers = wire::kAtpMostGroups * wire::kAtpMostWorkersPerGroup;
inline constexpr std::size_t kMaxJobServers = 32;
inline constexpr std::size_t kMaxJobName = 64;
// The largest number that a switch gives to a job. It gives numbers in turn, each once.
inline constexpr std::uint32_t kMaxJobId = 0xffff;
// The words of a refusal because the switch has given the number that a job asks for. The job may
// then ask for another.
inline constexpr std::string_view kNumberTaken = "that number was given before";

// A job, as its owner describes it to a switch.
struct JobRequest {
  // The number that another switch has given to this job, since its packets carry only one number.
  // 0: the switch chooses.
  std::uint32_t id = 0;
  std::string name;
  // "host:port" of each worker, in the order of the packets' bitmaps. Results go to these
  // addresses, and only gradients from them count.
  std::vector<std::string> workers;
  // "host:port" of each server that sums go to. Sequence s belongs to server s modulo the number of
  // servers.
  std::vector<std::string> servers;
  // Ends that are switches and send from further ports than the one above, so that the network
  // spreads their packets over its routes: these ports, by the "host:port" of the end. As many for
  // each. The switch sends to these ends from as many ports, too.
  std::map<std::string, std::vector<std::uint16_t>> sources = {};
  // The most aggregators that the job may hold at a time. 0: as many as are free.
  std::uint32_t limit = 0;
  // The most sequences that a worker has in flight.
  std::uint32_t window = 1024;
  // The groups of workers whose first-level switch this is, as a set of bits.
  std::uint32_t groups = 1;
  // How many of the workers are of each group of the job, in their order: 1 for a group whose
  // first-level switch is another, since that switch is its worker here, or 0 where its packets do
  // not come by here. Results for single workers then go to these alone. Empty: it is not known, or
  // there is one group.
  std::vector<std::uint32_t> group_ends = {};
  // Whether this is (also) the servers' switch, where the sums of the groups meet.
  bool second_level = false;
  // Servers that are workers add their own gradients themselves and keep their own sums
  // (AtpNodeOptions::own_sums): a result does not go back to its sender.
  bool own_sums = false;
  // Whether packets carry a tag made with the job's key.
  bool keyed = false;
  // That key, 32 hexadecimal digits. Empty: the switch makes one if the job is keyed.
  std::string key = {};
  // Whether the job ends with the connection that created it.
  bool lease = false;
  bool operator==(const JobRequest&) const = default;
};

// The switch's answer to a JobRequest.
struct JobGrant {
  std::uint32_t id = 0;
  std::string key;  // 32 hexadecimal digits; empty if the job is not keyed
  // "host:port" of each shard's data socket; shard_of() says which shard a packet goes to. Empty:
  // there is no switch.
  std::vector<std::string> data;
  std::uint32_t elements = 1;  // elements that fit an aggregator
  // Further ports from which the first shard may send to other switches. Told by "list" only.
  std::vector<std::uint16_t> sources = {};
  bool operator==(const JobGrant&) const = default;
};

// What the ranks of a communicator must agree on.
struct AtpJob {
  JobGrant grant;             // `elements`: those of a packet; `data`: of the servers' switch
  std::uint32_t servers = 1;  // ranks 0 to servers - 1 of the job are the servers
  // The communicator's rank of each rank of the job. Empty: they are the same.
  std::vector<std::uint32_t> order = {};
  // Several groups: the number of ranks in each, and the data address of each group's switch, which
  // may be the same for all; no addresses if there is no switch. Empty: one group.
  std::vector<std::uint32_t> groups = {};
  std::vector<std::string> switches = {};
  // Two levels: the paths over which the switches spread packets to each other.
  std::uint32_t paths = 1;
  // With a job key: the number from which all ranks make the job's key (net/auth/atp_key.h). The
  // key itself, which is a secret, is not in `grant` then.
  std::optional<std::uint64_t> salt = {};
  bool checks = true;     // AtpNodeOptions::checks
  bool own_sums = false;  // AtpNodeOptions::own_sums
  bool operator==(const AtpJob&) const = default;
};

// The shard of a switch that a sequence belongs to. Runs of kShardRun sequences share a shard, so
// that packets sent together mostly go to one socket. Every sender of the job uses this function.
inline constexpr std::uint32_t kShardRun = 32;
constexpr std::size_t shard_of(std::uint32_t job, std::uint64_t sequence, std::size_t shards) {
  return shards <= 1 ? 0 : (job + sequence / kShardRun) % shards;
}

[[nodiscard]] nlohmann::json to_json(const JobRequest& request);
// Unknown fields are refused. Errors name the field, its value and what is allowed.
[[nodiscard]] Result<JobRequest> job_request_from(const nlohmann::json& fields);
[[nodiscard]] nlohmann::json to_json(const JobGrant& grant);
[[nodiscard]] Result<JobGrant> job_grant_from(const nlohmann::json& fields);
[[nodiscard]] nlohmann::json to_json(const AtpJob& job);
[[nodiscard]] Result<AtpJob> atp_job_from(const nlohmann::json& fields);

}  // namespace thalweg::net
