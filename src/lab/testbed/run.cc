#include "lab/testbed/run.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "lab/files.h"
#include "lab/testbed/hosts.h"
#include "lab/testbed/place.h"
#include "launch/job.h"
#include "launch/supervisor.h"
#include "net/io/system.h"
#include "net/job/environment.h"
#include "net/store/store_server.h"
#include "topology/format/text.h"
#include "topology/routing.h"

namespace thalweg::lab {
namespace {

using nlohmann::json;

// What two ranks have where the network has several paths between them: DLCP's own number of paths
// where routers are between them, and so many TCP streams that they rarely all take one path.
constexpr const char* kPaths = "16";
constexpr const char* kStreams = "8";
constexpr const char* kSwitchToken = "THALWEG_SWITCH_TOKEN";
constexpr const char* kSwitchKeyFile = "THALWEG_SWITCH_KEY_FILE";

// The numbers of the hosts that `text` names, as "0-3,6", in that order; all `count` if it is
// empty.
Result<std::vector<std::size_t>> hosts_in(const std::string& text, std::size_t count) {
  std::vector<std::size_t> hosts;
  if (text.empty()) {
    for (std::size_t i = 0; i < count; ++i) hosts.push_back(i);
    return hosts;
  }
  const auto last = static_cast<std::int64_t>(count) - 1;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string part = text.substr(begin, end - begin);
    const std::size_t dash = part.find('-');
    THALWEG_TRY(const std::int64_t from,
                topology::parse_whole("--hosts", part.substr(0, dash), 0, last));
    std::int64_t to = from;
    if (dash != std::string::npos) {
      THALWEG_TRY(to, topology::parse_whole("--hosts", part.substr(dash + 1), from, last));
    }
    for (std::int64_t host = from; host <= to; ++host) {
      if (std::ranges::find(hosts, static_cast<std::size_t>(host)) != hosts.end()) {
        return Error(fmt::format("--hosts: {}: host {} is named twice", text, host));
      }
      hosts.push_back(static_cast<std::size_t>(host));
    }
    begin = end + 1;
  }
  return hosts;
}

// The number of the host that `text` names or numbers.
Result<std::size_t> host_in(const std::string& text, const json& hosts) {
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    if (text == std::to_string(i) || hosts[i]["name"] == text) return i;
  }
  return Error(fmt::format("host: '{}' is neither a host's name nor a number from 0 to {}", text,
                           hosts.size() - 1));
}

Status enter(const json& stats, std::size_t host) {
  return enter_testbed_host(stats["pid"].get<pid_t>(),
                            stats["hosts"][host]["enter"].get<std::string>());
}

// Tells Gloo, TensorPipe and NCCL which device of a host leads to the others.
void add_device(launch::Variables& variables) {
  for (const char* name : {"GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"}) {
    variables.emplace(name, kTestbedDevice);
  }
}

// The switches that aggregate, as THALWEG_SWITCH takes them.
std::string switch_list(const json& aggregators) {
  if (aggregators.size() == 1) return aggregators[0]["control"].get<std::string>();
  std::string list;
  for (const json& one : aggregators) {
    list += fmt::format("{}{}={}", list.empty() ? "" : ",", one["switch"].get<std::string>(),
                        one["control"].get<std::string>());
  }
  return list;
}

// The secret that all of them have.
std::string token_of(const json& aggregators) { return aggregators[0]["token"].get<std::string>(); }

// Whether some of these hosts have several shortest paths between them.
bool several_paths(const topology::Topology& topology, const std::vector<std::size_t>& hosts) {
  const topology::Routing routing(topology);
  const auto rank = [](std::size_t host) { return Rank(static_cast<std::int32_t>(host)); };
  return std::ranges::any_of(hosts, [&](std::size_t from) {
    return std::ranges::any_of(hosts, [&](std::size_t to) {
      return from != to && routing.paths(rank(from), rank(to), 2).size() > 1;
    });
  });
}

}  // namespace

Result<int> run_on_testbed(const TestbedRunOptions& options,
                           const std::vector<std::string>& command) {
  THALWEG_TRY(const TestbedPlace place, TestbedPlace::of(options.name));
  THALWEG_TRY(const json stats, place.ask(json{{"do", "stats"}}));
  THALWEG_TRY(const std::vector<std::size_t> hosts, hosts_in(options.hosts, stats["hosts"].size()));
  launch::HostRanks ranks{.folder = std::filesystem::current_path().string(),
                          .command = {std::filesystem::read_symlink("/proc/self/exe").string(),
                                      "testbed", "exec", "--name", options.name},
                          .prefix = !options.no_prefix,
                          .keep_going = options.keep_going,
                          // One rank a host, and all hosts share this machine's cores.
                          .bind = launch::Binding::kNone};
  THALWEG_TRY(ranks.variables, launch::given_variables(options.variables));
  THALWEG_TRY(ranks.grace, launch::positive_duration("--grace", options.grace));
  launch::SupervisorOptions supervision = launch::options_of(ranks);
  if (!options.timeout.empty()) {
    THALWEG_TRY(supervision.timeout, launch::positive_duration("--timeout", options.timeout));
  }
  // The job's store is at its first host, where all can reach it.
  THALWEG_TRY_STATUS(enter(stats, hosts.front()));
  THALWEG_TRY(launch::Supervisor supervisor, launch::Supervisor::prepare());
  const auto address = stats["hosts"][hosts.front()]["address"].get<std::string>();
  launch::RunMeeting meeting{.size = static_cast<int>(hosts.size()),
                             .token = net::random_number(),
                             .master_host = address};
  THALWEG_TRY(const std::optional<wire::JobKey> key, net::job_key_from(net::process_environment()));
  THALWEG_TRY(const net::StoreServer store,
              net::StoreServer::start(address + ":0", meeting.token, key));
  meeting.store = store.address();
  THALWEG_TRY(meeting.master_port, launch::free_port());
  ranks.variables.merge(launch::variables_of(meeting));
  add_device(ranks.variables);
  if (!stats["aggregators"].empty()) {
    ranks.variables.emplace("THALWEG_SWITCH", switch_list(stats["aggregators"]));
    // The aggregators of a testbed have no key: all of it is on this machine.
    ranks.variables.emplace(kSwitchKeyFile, "none");
    ranks.variables.emplace(kSwitchToken, token_of(stats["aggregators"]));
    ranks.variables.emplace("THALWEG_TOPOLOGY", place.topology());
  }
  // All hosts of a testbed share one IP network, so DLCP could not see that routers are between.
  // TCP has several streams only where somebody says so.
  THALWEG_TRY(const topology::Topology topology, load_topology(place.topology()));
  if (several_paths(topology, hosts)) {
    const net::EnvironmentLookup given = net::process_environment();
    if (!given("THALWEG_DLCP_PATHS")) ranks.variables.emplace("THALWEG_DLCP_PATHS", kPaths);
    if (!given("THALWEG_STREAMS")) ranks.variables.emplace("THALWEG_STREAMS", kStreams);
  }
  ranks.variables.emplace(TestbedPlace::kFolderVariable, place.parent_folder());
  std::vector<launch::SupervisedProcess> processes;
  for (const std::size_t host : hosts) {
    ranks.variables["THALWEG_HOST"] = stats["hosts"][host]["name"].get<std::string>();
    THALWEG_TRY(const std::vector<launch::SupervisedProcess> one, launch::processes_of(ranks));
    launch::SupervisedProcess process = one.front();
    process.command.insert(process.command.end(), {std::to_string(host), "--"});
    process.command.insert(process.command.end(), command.begin(), command.end());
    processes.push_back(std::move(process));
    ++ranks.first;
  }
  return supervisor.run(processes, supervision);
}

Status exec_on_testbed(const std::string& name, const std::string& host,
                       std::vector<std::string> command) {
  THALWEG_TRY(const TestbedPlace place, TestbedPlace::of(name));
  THALWEG_TRY(const json stats, place.ask(json{{"do", "stats"}}));
  THALWEG_TRY(const std::size_t number, host_in(host, stats["hosts"]));
  THALWEG_TRY_STATUS(enter(stats, number));
  // Programs that ask these switches need no more than their address. None has a key.
  if (!stats["aggregators"].empty()) {
    setenv(kSwitchToken, token_of(stats["aggregators"]).c_str(), 0);
    setenv(kSwitchKeyFile, "none", 1);
  }
  std::vector<char*> words;
  for (std::string& word : command) words.push_back(word.data());
  words.push_back(nullptr);
  execvp(words[0], words.data());
  return net::system_error(fmt::format("cannot run {}", command[0]), errno);
}

}  // namespace thalweg::lab
