#include "net/atp/levels.h"

#include <fmt/core.h>

#include <algorithm>
#include <future>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <utility>

#include "net/atp/member.h"
#include "net/atp/placement.h"
#include "net/io/system.h"
#include "wire/atp_packet.h"

namespace thalweg::net {
namespace {

using nlohmann::json;

// A switch that does not answer within this time counts as absent. Long enough for a busy machine,
// since only a switch that is silent costs it.
constexpr Duration kAnswerTime = Duration::milliseconds(5'000);
// The same while a job runs without it: it has just answered, and there is another chance.
constexpr Duration kLaterAnswerTime = Duration::milliseconds(1'000);
// How many numbers a job over several switches tries, until all of them take one.
constexpr int kNumberTries = 16;

// A switch of the list that answers.
struct Present {
  std::unique_ptr<SwitchClient> client;
  // What the switch said of itself; asked only if the job may have several groups. Such a job uses
  // the first shard of each switch, so that all senders choose the same.
  std::string data;
  std::vector<std::uint16_t> sources;  // further ports from which that shard may send
  std::string refusal;                 // why it takes no requests now, if so
};

Time answer_time(Time until) { return std::min(until, monotonic_now() + kAnswerTime); }

// The client is null if the switch does not answer.
Result<Present> find_switch(const ListedSwitch& at, const SwitchSecrets& secrets, bool asks,
                            Time by) {
  Result<SwitchClient> client = SwitchClient::connect(at.address, secrets, by);
  // It is there, but one of us has another key or none.
  if (!client.ok() && client.error().code() == ErrorCode::kMismatch) {
    return client.error().within(at.text());
  }
  if (!client.ok()) return Present{};
  Present present;
  present.client = std::make_unique<SwitchClient>(std::move(*client));
  if (!asks) return present;
  const Result<json> about = present.client->ask({{"op", "list"}}, by);
  if (!about.ok() && !present.client->answered()) return Present{};
  if (!about.ok() && about.error().code() == ErrorCode::kNoResource) {
    present.client.reset();
    present.refusal = about.error().within(at.text()).message();
    return present;
  }
  if (!about.ok()) return about.error().within(at.text());
  const Result<JobGrant> said =
      job_grant_from({{"data", about->value("data", json())},
                      {"sources", about->value("sources", json::array())}});
  if (!said.ok()) return said.error().within(at.text());
  if (said->data.empty()) return Error(at.text() + ": the switch has no data address");
  present.data = said->data.front();
  present.sources = said->sources;
  return present;
}

Result<std::vector<Present>> find_switches(const AtpLevelsOptions& options, Time by) {
  const bool asks =
      options.switches.size() > 1 || options.members.size() > wire::kAtpMostWorkersPerGroup;
  std::vector<std::future<Result<Present>>> asked;
  for (const ListedSwitch& at : options.switches) {
    asked.push_back(std::async(std::launch::async, [&options, &at, asks, by] {
      return find_switch(at, options.secrets, asks, by);
    }));
  }
  std::vector<Present> found;
  for (std::future<Result<Present>>& one : asked) {
    THALWEG_TRY(Present present, one.get());
    found.push_back(std::move(present));
  }
  return found;
}

// One attempt to create the job at all switches of its placement.
class Attempt {
 public:
  // All arguments outlive this.
  Attempt(const AtpLevelsOptions& options, const AtpPlacement& placement,
          std::vector<Present>& switches, std::vector<std::string>& without_room)
      : options_(options), placement_(placement), switches_(switches), without_room_(without_room) {
    for (const int rank : placement.order) {
      members_.push_back(options.members[static_cast<std::size_t>(rank)]);
    }
    servers_ = placement.most_servers;
    if (options.servers != 0) servers_ = std::min(servers_, options.servers);
    sites_.push_back(placement.top);
    for (const std::size_t at : placement.switches) {
      if (std::ranges::find(sites_, at) == sites_.end()) sites_.push_back(at);
    }
    if (!placement.several_paths) return;
    further_paths_ = switches[placement.top].sources.size();
    for (const std::size_t at : sites_) {
      further_paths_ = std::min(further_paths_, switches[at].sources.size());
    }
  }

  // False: a switch did not answer or has no room, and is no longer present; or one has given the
  // job's number before. The job is then at none of them, as after an error.
  Result<bool> create(Time until) {
    const std::uint32_t number =
        placement_.two_levels() ? 1 + static_cast<std::uint32_t>(random_number() % kMaxJobId) : 0;
    for (const std::size_t at : sites_) {
      SwitchClient& client = *switches_[at].client;
      Result<JobGrant> grant = client.create(request_at(at, number), answer_time(until));
      if (grant.ok()) {
        grants_.push_back(std::move(*grant));
        continue;
      }
      const bool answered = client.answered();
      const Error refusal = grant.error().within(options_.switches[at].text());
      undo(number, until);
      const bool full = answered && refusal.code() == ErrorCode::kNoResource;
      if (full) without_room_.push_back(refusal.message());
      const bool taken = number != 0 && refusal.message().find(kNumberTaken) != std::string::npos;
      // What else the switch may have created ends with its connection.
      if (!taken) switches_[at].client.reset();
      if (!answered || full || taken) return false;
      return refusal;
    }
    return true;
  }

  // The switches that the job would be at.
  [[nodiscard]] std::size_t sites() const { return sites_.size(); }

  // Requires that create() returned true.
  AtpLevels take() {
    AtpLevels levels;
    levels.job.grant = grants_.front();
    levels.job.servers = static_cast<std::uint32_t>(servers_);
    levels.job.own_sums = own_sums();
    for (std::size_t i = 0; i < sites_.size(); ++i) {
      levels.leases.push_back({.address = options_.switches[sites_[i]].address,
                               .request = request_at(sites_[i], grants_[i].id),
                               .grant = grants_[i],
                               .client = std::move(switches_[sites_[i]].client)});
    }
    for (const JobGrant& grant : grants_) {
      levels.job.grant.elements = std::min(levels.job.grant.elements, grant.elements);
    }
    levels.job.grant.elements = std::min(levels.job.grant.elements, options_.elements);
    if (!std::ranges::is_sorted(placement_.order)) {
      levels.job.order.assign(placement_.order.begin(), placement_.order.end());
    }
    if (!placement_.two_levels()) return levels;
    levels.job.order.assign(placement_.order.begin(), placement_.order.end());
    levels.job.grant.data = {switches_[placement_.top].data};
    levels.job.groups.assign(placement_.groups.begin(), placement_.groups.end());
    for (const std::size_t at : placement_.switches) {
      levels.job.switches.push_back(switches_[at].data);
    }
    levels.job.paths = 1 + static_cast<std::uint32_t>(further_paths_);
    return levels;
  }

 private:
  [[nodiscard]] bool own_sums() const { return own_sums_possible(placement_.groups, servers_); }

  // The switches of the racks have the servers' switch as their server, and it has them as workers.
  [[nodiscard]] JobRequest request_at(std::size_t at, std::uint32_t number) const {
    JobRequest request;
    request.id = number;
    request.name = options_.name;
    request.window = options_.window;
    request.lease = true;
    request.keyed = !options_.key.empty();
    request.key = options_.key;
    const bool top = at == placement_.top;
    request.servers = {switches_[placement_.top].data};
    if (top) {
      request.servers.assign(members_.begin(), members_.begin() + servers_);
    } else {
      add_sources(request, placement_.top);
    }
    request.own_sums = top && own_sums();
    request.second_level = top && placement_.two_levels();
    request.groups = 0;
    bool shared = false;  // several groups have one switch
    auto member = members_.begin();
    for (std::size_t g = 0; g < placement_.groups.size(); ++g) {
      const auto end = member + placement_.groups[g];
      std::uint32_t ends = 0;
      if (placement_.switches[g] == at) {
        request.workers.insert(request.workers.end(), member, end);
        request.groups |= wire::atp_bit(static_cast<unsigned>(g));
        ends = placement_.groups[g];
      } else if (top) {
        const std::string& other = switches_[placement_.switches[g]].data;
        const bool named = std::ranges::find(request.workers, other) != request.workers.end();
        if (!named) {
          request.workers.push_back(other);
          add_sources(request, placement_.switches[g]);
        }
        ends = 1;
        shared |= named;
      }
      if (placement_.two_levels()) request.group_ends.push_back(ends);
      member = end;
    }
    if (shared) request.group_ends.clear();
    return request;
  }

  // The other switch sends from further ports.
  void add_sources(JobRequest& request, std::size_t at) const {
    if (further_paths_ == 0) return;
    const std::vector<std::uint16_t>& all = switches_[at].sources;
    request.sources[switches_[at].data].assign(
        all.begin(), all.begin() + static_cast<std::ptrdiff_t>(further_paths_));
  }

  // Removes the job where it was created. A switch that does not answer ends it with the
  // connection.
  void undo(std::uint32_t number, Time until) {
    for (std::size_t i = 0; i < grants_.size(); ++i) {
      std::unique_ptr<SwitchClient>& client = switches_[sites_[i]].client;
      const json request{{"op", "remove"}, {"job", number}};
      if (!client->ask(request, answer_time(until)).ok()) client.reset();
    }
    grants_.clear();
  }

  const AtpLevelsOptions& options_;
  const AtpPlacement& placement_;
  std::vector<Present>& switches_;
  std::vector<std::string>& without_room_;
  std::vector<std::string> members_;  // in the order of the job
  std::vector<std::size_t> sites_;    // the switches of the job, the servers' first
  std::vector<JobGrant> grants_;      // of the first sites
  int servers_ = 1;
  std::size_t further_paths_ = 0;  // beside the first, between switches
};

// The job without a switch. Its number is random, so that stray packets of other jobs do not match.
AtpLevels on_servers_alone(const AtpLevelsOptions& options) {
  constexpr std::uint32_t kMostId = 0x7fff'ffff;
  AtpLevels levels;
  levels.job.grant.id = static_cast<std::uint32_t>(random_number() & kMostId);
  levels.job.grant.elements = options.elements;
  levels.job.servers = static_cast<std::uint32_t>(options.servers);
  const std::size_t ranks = options.members.size();
  if (options.servers == 0) {
    levels.job.servers = static_cast<std::uint32_t>(std::min(ranks, kMaxJobServers));
  }
  const std::vector<std::uint8_t> groups = equal_atp_groups(ranks);
  levels.job.own_sums = own_sums_possible(groups, static_cast<int>(levels.job.servers));
  if (ranks <= wire::kAtpMostWorkersPerGroup) return levels;
  for (const std::uint8_t group : groups) levels.job.groups.push_back(group);
  levels.job.order.resize(ranks);
  std::iota(levels.job.order.begin(), levels.job.order.end(), 0U);
  return levels;
}

// At least at so many switches; 0: on the servers alone, too. None: there are fewer.
Result<std::optional<AtpLevels>> admit(const AtpLevelsOptions& options, std::size_t least,
                                       Duration answer, Time until) {
  if (options.members.size() > kMaxJobWorkers) {
    return Error(fmt::format(
        "ranks of a job over atp: {}; from 1 to {} are allowed, in {} groups of up to {}",
        options.members.size(), kMaxJobWorkers, wire::kAtpMostGroups,
        wire::kAtpMostWorkersPerGroup));
  }
  std::optional<AtpNetwork> network;
  std::vector<topology::NodeId> nodes;
  const bool named = !options.switches.empty() && !options.switches.front().name.empty();
  if (named && !options.topology.empty()) {
    THALWEG_TRY(network, atp_network(options.topology, options.hosts));
    THALWEG_TRY(nodes, nodes_of(options.switches, network->topology));
  }
  const Time by = std::min(until, monotonic_now() + answer);
  THALWEG_TRY(std::vector<Present> switches, find_switches(options, by));
  const auto ranks = static_cast<int>(options.members.size());
  const int tries = kNumberTries + static_cast<int>(switches.size());
  std::vector<std::string> without_room;
  for (const Present& one : switches) {
    if (!one.refusal.empty()) without_room.push_back(one.refusal);
  }
  std::vector<bool> present;
  const auto told = [&](AtpLevels levels) {
    levels.without_room = without_room;
    for (std::size_t at = 0; at < present.size(); ++at) {
      if (!present[at]) levels.missing.push_back(options.switches[at]);
    }
    return std::optional(std::move(levels));
  };
  for (int i = 0; i < tries; ++i) {
    present.clear();
    for (const Present& one : switches) present.push_back(one.client != nullptr);
    if (std::ranges::find(present, true) == present.end()) {
      return least == 0 ? told(on_servers_alone(options)) : std::nullopt;
    }
    THALWEG_TRY(const AtpPlacement placement,
                place_atp_job(network ? &*network : nullptr, ranks, nodes, present));
    Attempt attempt(options, placement, switches, without_room);
    if (attempt.sites() < least) return std::optional<AtpLevels>();
    THALWEG_TRY(const bool created, attempt.create(until));
    if (created) return told(attempt.take());
  }
  return Error(fmt::format("the switches took none of {} numbers for the job", tries));
}

}  // namespace

Result<AtpLevels> admit_at_levels(const AtpLevelsOptions& options, Time until) {
  THALWEG_TRY(std::optional<AtpLevels> levels, admit(options, 0, kAnswerTime, until));
  return std::move(*levels);
}

Result<std::optional<AtpLevels>> admit_at_more(const AtpLevelsOptions& options, std::size_t held,
                                               Time until) {
  return admit(options, held + 1, kLaterAnswerTime, until);
}

}  // namespace thalweg::net
