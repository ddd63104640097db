// The shape of a World: its jobs, and where their groups and servers are.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/units.h"
#include "proto/atp/exponents.h"
#include "proto/atp/options.h"
#include "switch/aggregation/aggregate.h"

namespace thalweg::proto::atp_test {

inline constexpr int kNowhere = -1;

struct JobShape {
  std::uint32_t id = 1;
  std::vector<std::uint8_t> groups = {2};  // workers of each
  // The switch of each group's first level, or kNowhere. With kNowhere the group's workers start at
  // the second level if the group has one worker, and otherwise are never aggregated.
  std::vector<int> first_level = {0};
  int second_level = kNowhere;
  std::uint32_t servers = 1;
  // AtpWorkerOptions::seats. What a worker gives to its own server, and what it gets from it, are
  // packets between the two here, so that everything may happen to them.
  std::vector<std::optional<AtpSeat>> seats = {};
  std::uint32_t window = 1;
  std::uint32_t elements = 1;  // of a packet
  Duration deadline = Duration::milliseconds(1'000'000'000);
  Duration server_deadline = Duration::milliseconds(1'000'000'000);
  AtpCongestionOptions congestion = {};
  AtpRecoveryOptions recovery = {};
  // Workers send a copy of every packet directly to the server, as while they look whether a switch
  // is back (proto/atp/paths.h).
  bool direct_copies = false;
  // If set: the exponent that a worker's block of a sequence needs, and the workers choose
  // exponents.
  std::int8_t (*need)(std::uint64_t worker, std::uint64_t sequence) = nullptr;
  AtpPredictionOptions prediction = {};
  AtpScaling scaling = {.headroom = 1, .slack = 2};  // the kind is the number of elements
  // To test that the checks find it: worker 1 predicts this many bits more than the others.
  std::int8_t odd_headroom = 0;

  [[nodiscard]] std::uint32_t workers() const {
    std::uint32_t count = 0;
    for (const std::uint8_t size : groups) count += size;
    return count;
  }
};

// The options of a job's server, and of worker i of group g.
inline AtpServerOptions server_of(const JobShape& job, std::uint32_t index) {
  AtpServerOptions options;
  options.job = job.id;
  options.groups = job.groups;
  options.servers = job.servers;
  options.index = index;
  if (!job.seats.empty()) options.seat = job.seats[index];
  options.elements = job.elements;
  options.window = job.window;
  options.deadline = job.server_deadline;
  options.repetitions = job.need != nullptr;
  return options;
}
inline AtpWorkerOptions worker_of(const JobShape& job, std::size_t g, std::uint8_t i) {
  AtpWorkerOptions options;
  options.job = job.id;
  options.group = static_cast<std::uint8_t>(g);
  options.index = i;
  options.fan_in = job.groups[g];
  options.group_count = static_cast<std::uint8_t>(job.groups.size());
  const bool second = job.second_level != kNowhere && job.groups[g] == 1;
  options.level = job.first_level[g] != kNowhere ? wire::kAtpFirstLevel
                  : second                       ? wire::kAtpSecondLevel
                                                 : wire::kAtpServerLevel;
  options.servers = job.servers;
  options.seats = job.seats;
  options.elements = job.elements;
  options.window = job.window;
  options.congestion = job.congestion;
  options.recovery = job.recovery;
  options.prediction = job.prediction;
  return options;
}

// The server that a gradient's sender is, if it adds its own gradients itself.
inline std::optional<switches::AggregateTable::OwnServer> own_server(
    const JobShape& job, const wire::AtpHeader& gradient) {
  for (std::uint32_t s = 0; s < job.seats.size(); ++s) {
    const std::optional<AtpSeat>& seat = job.seats[s];
    if (!seat || seat->group != gradient.group) continue;
    if (wire::atp_bit(seat->index) == gradient.workers) return {{s, job.servers}};
  }
  return std::nullopt;
}

struct Shape {
  std::vector<JobShape> jobs;
  std::size_t switches = 1;
  switches::AggregateOptions table;
};

struct Node {
  enum class Kind : std::uint8_t { kSwitch, kServer, kWorker };
  Kind kind = Kind::kSwitch;
  std::size_t job = 0;  // index in Shape::jobs; 0 for a switch
  std::size_t index = 0;
  auto operator<=>(const Node&) const = default;
};

}  // namespace thalweg::proto::atp_test
