#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "cli/command.h"
#include "cli/commands.h"
#include "launch/run.h"
#include "net/io/small_file.h"
#include "net/job/environment.h"

namespace thalweg::cli {
namespace {

struct RunArguments {
  int ranks = 0;
  std::string hosts;
  std::string ssh = "ssh -o BatchMode=yes";
  std::string remote;   // path of this program on the other hosts
  std::string address;  // of this host, for the others
  std::vector<std::string> variables;
  std::string timeout;
  std::string grace = "5s";
  std::string bind;
  bool no_prefix = false;
  bool keep_going = false;
  bool agent = false;
};

// The hosts that --hosts lists, or that are in the file that it names, with slots for all ranks.
Result<std::vector<launch::RunHost>> read_hosts(const RunArguments& arguments) {
  std::error_code ignored;
  const bool file = std::filesystem::exists(arguments.hosts, ignored);
  std::string text = arguments.hosts;
  if (file) {
    THALWEG_TRY(text,
                net::read_small_file(arguments.hosts, "the list of hosts", net::kMaxListFile));
  }
  const auto hosts =
      file ? launch::hosts_from_file(text, arguments.hosts) : launch::hosts_from_list(text);
  if (!hosts.ok()) return hosts.error().within("--hosts");
  return launch::hosts_for(*hosts, arguments.ranks);
}

Result<int> run_run(const RunArguments& arguments, std::vector<std::string> command) {
  if (arguments.agent) return launch::run_agent();
  if (command.empty()) return Error("run: no program is named: thalweg run -n N -- program …");
  const bool over_ssh = !arguments.hosts.empty();
  const int least = over_ssh ? 0 : 1;
  if (arguments.ranks < least || arguments.ranks > net::kMaxJobSize ||
      (!over_ssh && arguments.ranks > launch::kMaxSlots)) {
    return Error(fmt::format("-n: {}: must be a whole number from 1 to {}{}", arguments.ranks,
                             over_ssh ? net::kMaxJobSize : launch::kMaxSlots,
                             over_ssh ? "" : ", or --hosts must say where"));
  }
  launch::HostRanks ranks{.folder = std::filesystem::current_path().string(),
                          .command = std::move(command),
                          .count = arguments.ranks,
                          .prefix = !arguments.no_prefix,
                          .keep_going = arguments.keep_going};
  THALWEG_TRY(ranks.variables, launch::given_variables(arguments.variables));
  THALWEG_TRY(ranks.grace, launch::positive_duration("--grace", arguments.grace));
  THALWEG_TRY(ranks.bind, launch::parse_binding(arguments.bind));
  std::optional<Duration> timeout;
  if (!arguments.timeout.empty()) {
    THALWEG_TRY(timeout, launch::positive_duration("--timeout", arguments.timeout));
  }
  if (!over_ssh) return launch::run_here(std::move(ranks), timeout);
  launch::RemoteHosts remote{
      .hosts = {}, .ssh = arguments.ssh, .program = arguments.remote, .address = arguments.address};
  THALWEG_TRY(remote.hosts, read_hosts(arguments));
  return launch::run_on_hosts(remote, std::move(ranks), timeout);
}

}  // namespace

std::vector<std::string> take_rank_command(int& argc, char** argv) {
  const auto word = [&](int i) { return i < argc ? std::string_view(argv[i]) : ""; };
  const bool in_testbed = word(1) == "testbed" && (word(2) == "run" || word(2) == "exec");
  if (word(1) != "run" && !in_testbed) return {};
  const auto dashes = std::find(argv + 2, argv + argc, std::string_view("--"));
  if (dashes == argv + argc) return {};
  std::vector<std::string> command(dashes + 1, argv + argc);
  argc = static_cast<int>(dashes - argv);
  return command;
}

void add_run(CLI::App& program, const std::vector<std::string>& command) {
  auto arguments = std::make_shared<RunArguments>();
  CLI::App& app = *program.add_subcommand(
      "run",
      "start the ranks of a job: thalweg run -n N -- program …; the exit code is that of the "
      "first rank that fails");
  app.prefix_command();
  app.add_option("-n,--ranks", arguments->ranks, "how many (all slots of --hosts)");
  app.add_option("--hosts", arguments->hosts,
                 "start them over ssh: h1:slots,h2 or a file of 'host slots=N' lines")
      ->group("Over ssh");
  app.add_option("--ssh", arguments->ssh, "the command that reaches a host")
      ->capture_default_str()
      ->group("Over ssh");
  app.add_option("--remote", arguments->remote, "path of thalweg on the hosts (as here)")
      ->group("Over ssh");
  app.add_option("--address", arguments->address, "by which the hosts reach this one")
      ->group("Over ssh");
  app.add_option("-x,--env", arguments->variables, "NAME or NAME=value, for all ranks")
      ->allow_extra_args(false);
  app.add_option("--timeout", arguments->timeout, "end the job after this long, as in 600s");
  app.add_option("--grace", arguments->grace, "between asking ranks to end and killing them")
      ->capture_default_str();
  app.add_option("--bind", arguments->bind,
                 "core: each rank has an equal share of its host's cores to itself; none: any core "
                 "(core, where there is one for each rank)");
  app.add_flag("--no-prefix", arguments->no_prefix, "do not put [rank] before lines of output");
  app.add_flag("--keep-going", arguments->keep_going, "a rank that fails does not end the others");
  app.add_flag("--agent", arguments->agent)->group("");
  add_examples(app, {"thalweg run -n 4 -- python3 train.py",
                     "thalweg run --hosts node1:8,node2:8 --timeout 3600s -- python3 train.py"});
  on_run(app, [arguments, command, &app]() -> Result<int> {
    std::vector<std::string> words = app.remaining();
    if (!words.empty() && words.front().starts_with('-')) {
      return Error(fmt::format("run: '{}' is unknown{} (thalweg run --help)", words.front(),
                               suggest_option(app, words.front())));
    }
    // A "--" after the first word belongs to the program that is run.
    if (!words.empty() && !command.empty()) words.emplace_back("--");
    words.insert(words.end(), command.begin(), command.end());
    return run_run(*arguments, std::move(words));
  });
}

}  // namespace thalweg::cli
