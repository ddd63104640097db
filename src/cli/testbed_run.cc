#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/run_job.h"
#include "cli/run_supervisor.h"
#include "cli/testbed.h"
#include "cli/testbed_hosts.h"
#include "cli/testbed_place.h"
#include "net/bootstrap/environment.h"
#include "net/bootstrap/store_server.h"
#include "net/system.h"
#include "topology/text.h"

namespace thalweg {
namespace {

using nlohmann::json;

struct Arguments {
  std::string name;
  std::string hosts;
  std::vector<std::string> variables;
  std::string timeout;
  std::string grace = "5s";
  bool no_prefix = false;
  bool keep_going = false;
};

// "0-3,6", or empty for all; in the order given.
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
    THALWEG_TRY(const std::int64_t from, parse_whole("--hosts", part.substr(0, dash), 0, last));
    std::int64_t to = from;
    if (dash != std::string::npos) {
      THALWEG_TRY(to, parse_whole("--hosts", part.substr(dash + 1), from, last));
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

// By its number or its name.
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

// What libraries that look for the way out of a host are to use.
void add_device(Variables& variables) {
  for (const char* name : {"GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"}) {
    variables.emplace(name, kTestbedDevice);
  }
}

Result<int> run(const Arguments& arguments, const std::vector<std::string>& command) {
  if (command.empty()) {
    return Error("testbed run: no program is named: thalweg testbed run --hosts 0-3 -- program …");
  }
  THALWEG_TRY(const TestbedPlace place, TestbedPlace::of(arguments.name));
  THALWEG_TRY(const json stats, place.ask(json{{"do", "stats"}}));
  THALWEG_TRY(const std::vector<std::size_t> hosts,
              hosts_in(arguments.hosts, stats["hosts"].size()));
  HostRanks ranks{.folder = std::filesystem::current_path().string(),
                  .command = {std::filesystem::read_symlink("/proc/self/exe").string(), "testbed",
                              "exec", "--name", arguments.name},
                  .prefix = !arguments.no_prefix,
                  .keep_going = arguments.keep_going};
  THALWEG_TRY(ranks.variables, given_variables(arguments.variables));
  THALWEG_TRY(ranks.grace, positive_duration("--grace", arguments.grace));
  SupervisorOptions options = options_of(ranks);
  if (!arguments.timeout.empty()) {
    THALWEG_TRY(options.timeout, positive_duration("--timeout", arguments.timeout));
  }
  // The job's store is at its first host, where all can reach it.
  THALWEG_TRY_STATUS(enter(stats, hosts.front()));
  THALWEG_TRY(Supervisor supervisor, Supervisor::prepare());
  const auto address = stats["hosts"][hosts.front()]["address"].get<std::string>();
  RunMeeting meeting{
      .size = static_cast<int>(hosts.size()), .token = random_number(), .master_host = address};
  THALWEG_TRY(const std::optional<JobKey> key, job_key_from(process_environment()));
  THALWEG_TRY(const StoreServer store, StoreServer::start(address + ":0", meeting.token, key));
  meeting.store = store.address();
  THALWEG_TRY(meeting.master_port, free_port());
  ranks.variables.merge(variables_of(meeting));
  add_device(ranks.variables);
  if (!stats["aggregators"].empty()) {
    ranks.variables.emplace("THALWEG_SWITCH",
                            stats["aggregators"][0]["control"].get<std::string>());
  }
  ranks.variables.emplace(TestbedPlace::kFolderVariable, place.parent_folder());
  std::vector<SupervisedProcess> processes;
  for (const std::size_t host : hosts) {
    SupervisedProcess process = processes_of(ranks).front();
    process.command.insert(process.command.end(), {std::to_string(host), "--"});
    process.command.insert(process.command.end(), command.begin(), command.end());
    processes.push_back(std::move(process));
    ++ranks.first;
  }
  return supervisor.run(processes, options);
}

Result<int> exec(const Arguments& arguments, std::vector<std::string> command) {
  if (command.empty()) {
    return Error("testbed exec: no program is named: thalweg testbed exec 3 -- program …");
  }
  THALWEG_TRY(const TestbedPlace place, TestbedPlace::of(arguments.name));
  THALWEG_TRY(const json stats, place.ask(json{{"do", "stats"}}));
  THALWEG_TRY(const std::size_t host, host_in(arguments.hosts, stats["hosts"]));
  THALWEG_TRY_STATUS(enter(stats, host));
  std::vector<char*> words;
  for (std::string& word : command) words.push_back(word.data());
  words.push_back(nullptr);
  execvp(words[0], words.data());
  return system_error(fmt::format("cannot run {}", command[0]), errno);
}

}  // namespace

void add_testbed_run(CLI::App& testbed, const std::vector<std::string>& command) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App& started = *testbed.add_subcommand(
      "run", "start a job, a rank a host: thalweg testbed run --hosts 0-3 -- program …");
  add_testbed_name(started, arguments->name);
  started.add_option("--hosts", arguments->hosts, "as 0-3,6 (all)");
  started.add_option("-x,--env", arguments->variables, "NAME or NAME=value, for all ranks")
      ->allow_extra_args(false);
  started.add_option("--timeout", arguments->timeout, "end the job after this long, as in 600s");
  started.add_option("--grace", arguments->grace, "between asking ranks to end and killing them")
      ->capture_default_str();
  started.add_flag("--no-prefix", arguments->no_prefix, "do not put [rank] before lines of output");
  started.add_flag("--keep-going", arguments->keep_going,
                   "a rank that fails does not end the others");
  on_run(started, [arguments, command] { return run(*arguments, command); });
  CLI::App& one = *testbed.add_subcommand(
      "exec", "run a program on a host: thalweg testbed exec 3 -- iperf3 -s");
  add_testbed_name(one, arguments->name);
  one.add_option("host", arguments->hosts, "its number or name")->required();
  on_run(one, [arguments, command] { return exec(*arguments, command); });
}

}  // namespace thalweg
