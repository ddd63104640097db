// Rank 0's part of an AtpEngine: the jobs that it makes at the switches.
#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "net/atp/returns.h"
#include "net/atp/switch_list.h"
#include "net/auth/atp_key.h"
#include "net/group/atp/atp_engine.h"
#include "net/io/system.h"

namespace thalweg::net {
namespace {

// How long rank 0 takes at most to make a further job.
constexpr Duration kMakeTime = Duration::milliseconds(5'000);

// The address in what a rank published: "host:port" and, after a space, the rank's host in the
// topology.
std::string host_in(const std::string& member) {
  const std::size_t space = member.find(' ');
  return space == std::string::npos ? std::string() : member.substr(space + 1);
}

}  // namespace

Result<AtpJob> AtpEngine::admit(const std::vector<std::string>& members, Time until) {
  AtpLevelsOptions& levels = levels_options_;
  Result<std::vector<ListedSwitch>> switches = read_switch_list(options_.switches);
  if (!switches.ok()) return switches.error().within("the switches");
  levels.switches = std::move(*switches);
  levels.secrets = options_.switch_secrets;
  levels.topology = options_.topology;
  for (const std::string& member : members) {
    levels.members.push_back(member.substr(0, member.find(' ')));
    levels.hosts.push_back(host_in(member));
  }
  levels.servers = options_.servers;
  levels.elements = options_.elements;
  levels.window = AtpNodeOptions().window;
  const std::uint64_t salt = random_number();
  THALWEG_TRY(AtpLevels admitted, admit_at_levels(levels_of(0, salt), until));
  numbers_ = {admitted.job.grant.id};
  std::unique_ptr<AtpReturns> returns;
  // Without an engine there is nobody to go over to another job.
  if (!levels.switches.empty() && !(options_.only_with_switch && admitted.leases.empty())) {
    returns = std::make_unique<AtpReturns>(levels.switches, std::move(admitted.missing),
                                           options_.switch_secrets,
                                           [this](std::size_t held) { return make_next(held); });
  }
  leases_ = std::make_unique<AtpLeases>(std::move(admitted.leases), options_.switch_secrets,
                                        std::move(returns));
  for (const std::string& reason : admitted.without_room) {
    fmt::print(stderr, "thalweg: warning: the job {} goes on without a switch: {}\n", options_.name,
               reason);
  }
  return job_of(admitted.job, salt);
}

AtpLevelsOptions AtpEngine::levels_of(std::uint32_t number, std::uint64_t salt) const {
  AtpLevelsOptions levels = levels_options_;
  // A switch that has the job before it takes no other of the same name.
  levels.name = number == 0 ? options_.name : fmt::format("{}.{}", options_.name, number);
  if (options_.name.empty() || levels.name.size() > kMaxJobName) levels.name.clear();
  if (options_.job_key) levels.key = hex_of(atp_key(*options_.job_key, salt));
  return levels;
}

AtpJob AtpEngine::job_of(const AtpJob& admitted, std::uint64_t salt) const {
  AtpJob job = admitted;
  // The others make the key themselves: it must not lie in the store.
  job.grant.key.clear();
  if (options_.job_key) job.salt = salt;
  job.checks = options_.checks;
  return job;
}

std::optional<AtpLevels> AtpEngine::make_next(std::size_t held) {
  const Time until = monotonic_now() + kMakeTime;
  const std::uint64_t salt = random_number();
  const std::uint32_t number = told_ + 1;
  Result<std::optional<AtpLevels>> made = admit_at_more(levels_of(number, salt), held, until);
  if (!made.ok() || !*made) return std::nullopt;
  // Packets of all jobs must differ: a rank may still be in an earlier one. Switches that have none
  // of them may draw the same number again.
  const std::uint32_t drawn = (*made)->job.grant.id;
  if (std::ranges::find(numbers_, drawn) != numbers_.end()) return std::nullopt;
  const std::string job = to_json(job_of((*made)->job, salt)).dump();
  if (!options_.publish(fmt::format("job/{}", number), job, until).ok()) return std::nullopt;
  told_ = number;
  numbers_.push_back(drawn);
  fmt::print(stderr, "thalweg: the job {} goes over from {} switches to {}\n", options_.name, held,
             (*made)->leases.size());
  return std::move(*made);
}

}  // namespace thalweg::net
