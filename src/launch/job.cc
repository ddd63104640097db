#include "launch/job.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include <thalweg/version.h>

#include "net/io/tcp.h"
#include "net/job/environment.h"

namespace thalweg::launch {

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

Result<Duration> positive_duration(const char* option, const std::string& text) {
  const Result<Duration> value = parse_duration(text);
  if (!value.ok()) return value.error().within(option);
  if (*value <= Duration()) return Error(fmt::format("{}: {} must be above 0", option, text));
  return *value;
}

Result<Variables> given_variables(const std::vector<std::string>& given) {
  Variables variables;
  for (const std::string& text : given) {
    const std::size_t equals = text.find('=');
    const std::string name = text.substr(0, equals);
    if (name.empty()) return Error(fmt::format("-x: '{}': write NAME or NAME=value", text));
    const auto here = net::process_environment()(name);
    if (equals == std::string::npos && !here) {
      return Error(fmt::format("-x: {} is not set here: write {}=value", name, name));
    }
    variables[name] = equals == std::string::npos ? *here : text.substr(equals + 1);
  }
  return variables;
}

Result<int> free_port() {
  THALWEG_TRY(const net::Fd listener, net::listen_tcp("127.0.0.1:0"));
  return static_cast<int>(net::SocketAddress::local_of(listener.get()).port());
}

Result<std::vector<SupervisedProcess>> processes_of(const HostRanks& ranks) {
  THALWEG_TRY(const std::vector<std::vector<int>> cores, cores_of_ranks(ranks.bind, ranks.count));
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
    if (!cores.empty()) process.cores = cores[static_cast<std::size_t>(local)];
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
                  {"bind", ranks.bind ? name_of(*ranks.bind) : ""},
                  {"grace_ms", static_cast<std::int64_t>(ranks.grace.ms())}};
  // Paths and arguments may not be valid UTF-8.
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
  // The versions match, so to_agent_line() wrote this, and all fields exist.
  THALWEG_TRY(const std::optional<Binding> bind, parse_binding(json["bind"].get<std::string>()));
  return HostRanks{.folder = json["folder"],
                   .command = json["command"],
                   .variables = json["variables"],
                   .first = json["first"],
                   .count = json["count"],
                   .prefix = json["prefix"],
                   .keep_going = json["keep_going"],
                   .grace = Duration::milliseconds(json["grace_ms"].get<std::int64_t>()),
                   .bind = bind};
}

}  // namespace thalweg::launch
