// What a client and a switch say to each other on the switch's control socket: JSON objects, one a
// line, a request and its answer in turn (docs/switch.md has the fields).
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include <thalweg/result.h>

namespace thalweg {

inline constexpr std::size_t kMaxJobWorkers = 32;  // bits of a packet's bitmap
inline constexpr std::size_t kMaxJobServers = 32;
inline constexpr std::size_t kMaxJobName = 64;
// Of the numbers that a switch gives to jobs: each once, in turn.
inline constexpr std::uint32_t kMaxJobId = 0xffff;
// A longer request ends the connection; so does a longer answer, of which statistics are the
// longest.
inline constexpr std::size_t kMaxControlLine = std::size_t{1} << 16;
inline constexpr std::size_t kMaxControlAnswer = std::size_t{4} << 20;

// A job as its owner describes it.
struct JobRequest {
  // The number that another switch of the job has given it: packets carry one. 0: any.
  std::uint32_t id = 0;
  std::string name;
  // "host:port", in the order of the packets' bitmap: where results go, and whose gradients count.
  std::vector<std::string> workers;
  // "host:port": where sums go. Sequence s belongs to server s modulo their number.
  std::vector<std::string> servers;
  // Aggregators that the job may hold at a time. 0: as many as are free.
  std::uint32_t limit = 0;
  // The most sequences that a worker has in flight.
  std::uint32_t window = 1024;
  // The groups of workers whose first switch this is, as a set of bits.
  std::uint32_t groups = 1;
  // This is (also) the servers' switch, where the sums of groups meet.
  bool second_level = false;
  // Packets carry a tag by the job's key.
  bool keyed = false;
  // The job ends with the connection that created it.
  bool lease = false;
  bool operator==(const JobRequest&) const = default;
};

// What the switch answers.
struct JobGrant {
  std::uint32_t id = 0;
  std::string key;  // 32 hexadecimal digits; empty if it is not keyed
  // "host:port" of each shard's data socket (shard_of() says whose a packet is). None: there is no
  // switch.
  std::vector<std::string> data;
  std::uint32_t elements = 1;  // that fit an aggregator
  bool operator==(const JobGrant&) const = default;
};

// What the ranks of a communicator must agree on: the grant, with the elements of a packet, and how
// many of the first ranks are servers.
struct AtpJob {
  JobGrant grant;
  std::uint32_t servers = 1;
  bool operator==(const AtpJob&) const = default;
};

// Which shard of a switch a sequence belongs to: runs of kShardRun, so that packets sent together
// mostly go to one socket. Every sender of the job uses it.
inline constexpr std::uint32_t kShardRun = 32;
constexpr std::size_t shard_of(std::uint32_t job, std::uint64_t sequence, std::size_t shards) {
  return shards <= 1 ? 0 : (job + sequence / kShardRun) % shards;
}

[[nodiscard]] nlohmann::json to_json(const JobRequest& request);
// The error names the field, the value and what is allowed. Unknown fields are refused.
[[nodiscard]] Result<JobRequest> job_request_from(const nlohmann::json& fields);
[[nodiscard]] nlohmann::json to_json(const JobGrant& grant);
[[nodiscard]] Result<JobGrant> job_grant_from(const nlohmann::json& fields);
[[nodiscard]] nlohmann::json to_json(const AtpJob& job);
[[nodiscard]] Result<AtpJob> atp_job_from(const nlohmann::json& fields);

// One object from a line; the error is for the other end.
[[nodiscard]] Result<nlohmann::json> parse_control_line(std::string_view line);

}  // namespace thalweg
