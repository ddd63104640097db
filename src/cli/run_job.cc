#include "cli/run_job.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include <thalweg/version.h>

namespace thalweg {

using Json = nlohmann::json;

Variables variables_of(const RunMeeting& meeting) {
  const std::string size = std::to_string(meeting.size);
  return {{"THALWEG_SIZE", size},
          {"THALWEG_STORE", meeting.store},
          {"THALWEG_STORE_BY", "launcher"},
          {"THALWEG_TOKEN", fmt::format("{:016x}", meeting.token)},
          {"WORLD_SIZE", size},
          {"MASTER_ADDR", meeting.master_host},
          {"MASTER_PORT", std::to_string(meeting.master_port)}};
}

std::vector<SupervisedProcess> processes_of(const HostRanks& ranks) {
  std::vector<SupervisedProcess> processes;
  for (int local = 0; local < ranks.count; ++local) {
    const std::string rank = std::to_string(ranks.first + local);
    Variables variables = ranks.variables;
    for (const char* name : {"THALWEG_RANK", "RANK"}) variables[name] = rank;
    for (const char* name : {"THALWEG_LOCAL_RANK", "LOCAL_RANK"}) {
      variables[name] = std::to_string(local);
    }
    for (const char* name : {"THALWEG_LOCAL_SIZE", "LOCAL_WORLD_SIZE"}) {
      variables[name] = std::to_string(ranks.count);
    }
    SupervisedProcess process{.name = "rank " + rank, .command = ranks.command};
    if (ranks.prefix) process.prefix = fmt::format("[{}] ", rank);
    for (const auto& [name, value] : variables) {
      process.environment.push_back(fmt::format("{}={}", name, value));
    }
    processes.push_back(std::move(process));
  }
  return processes;
}

SupervisorOptions options_of(const HostRanks& ranks) {
  return {.keep_going = ranks.keep_going, .raw_output = !ranks.prefix, .grace = ranks.grace};
}

std::string to_agent_line(const HostRanks& ranks) {
  const Json json{{"version", kVersion},
                  {"folder", ranks.folder},
                  {"command", ranks.command},
                  {"variables", ranks.variables},
                  {"first", ranks.first},
                  {"count", ranks.count},
                  {"prefix", ranks.prefix},
                  {"keep_going", ranks.keep_going},
                  {"grace_ms", static_cast<std::int64_t>(ranks.grace.ms())}};
  // Paths and arguments may be in no encoding at all.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<HostRanks> from_agent_line(std::string_view line) {
  const Json json = Json::parse(line, nullptr, false);
  if (json.is_discarded() || !json.is_object()) {
    return Error("--agent: what came on standard input is not the description of a job");
  }
  const std::string version = json.value("version", Json()).dump();
  if (version != Json(kVersion).dump()) {
    return Error(fmt::format("--agent: this is thalweg {}, but the launcher's version is {}",
                             kVersion, version));
  }
  // Of our own version, so it was written above.
  return HostRanks{.folder = json["folder"],
                   .command = json["command"],
                   .variables = json["variables"],
                   .first = json["first"],
                   .count = json["count"],
                   .prefix = json["prefix"],
                   .keep_going = json["keep_going"],
                   .grace = Duration::milliseconds(json["grace_ms"].get<std::int64_t>())};
}

}  // namespace thalweg
