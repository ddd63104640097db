#include "cli/run.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <sstream>

#include "cli/command.h"
#include "cli/run_hosts.h"
#include "cli/run_job.h"
#include "net/bootstrap/environment.h"
#include "net/bootstrap/store_server.h"
#include "net/system.h"
#include "net/tcp.h"

namespace thalweg {
namespace {

struct Arguments {
  int ranks = 0;
  std::string hosts;
  std::string ssh = "ssh -o BatchMode=yes";
  std::string remote;   // path of this program on the other hosts
  std::string address;  // of this host, for the others
  std::vector<std::string> variables;
  std::string timeout;
  std::string grace = "5s";
  bool no_prefix = false;
  bool keep_going = false;
  bool agent = false;
};

// Of programs that do not know our store; on other hosts we cannot ask for a free one.
constexpr std::uint64_t kFirstMasterPort = 20'000;
constexpr std::uint64_t kMasterPorts = 12'000;
constexpr std::size_t kLongestAgentLine = std::size_t{64} << 20;

// Those of ours that the launcher does not set: ranks on other hosts need them too.
void add_our_settings(Variables& variables) {
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (text.starts_with("THALWEG_")) {
      variables.emplace(text.substr(0, text.find('=')), text.substr(text.find('=') + 1));
    }
  }
}

Result<std::vector<RunHost>> read_hosts(const Arguments& arguments) {
  std::error_code ignored;
  const bool file = std::filesystem::exists(arguments.hosts, ignored);
  std::string text = arguments.hosts;
  if (file) {
    THALWEG_TRY(text, read_file(arguments.hosts));
  }
  const auto hosts = file ? hosts_from_file(text, arguments.hosts) : hosts_from_list(text);
  if (!hosts.ok()) return hosts.error().within("--hosts");
  return hosts_for(*hosts, arguments.ranks);
}

// The address of this host by which packets to the hosts leave it: nothing is sent.
std::string address_towards(const std::vector<RunHost>& hosts) {
  std::string found;
  for (const RunHost& host : hosts) {
    const HostPort there{host.name.substr(host.name.rfind('@') + 1), 9};
    const Result<SocketAddress> remote = SocketAddress::resolve(there.to_string());
    if (!remote.ok()) continue;
    const Fd fd(socket(remote->family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (connect(fd.get(), remote->get(), remote->size()) != 0) continue;
    const SocketAddress local = SocketAddress::local_of(fd.get());
    found = HostPort::parse(local.to_string())->host;
    if (!local.loopback()) break;
  }
  if (!found.empty()) return found;
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

Result<int> run_here(const Arguments& arguments, HostRanks ranks,
                     const std::optional<Duration>& timeout) {
  ranks.count = arguments.ranks;
  THALWEG_TRY(Supervisor supervisor, Supervisor::prepare());
  RunMeeting meeting{.size = ranks.count, .token = random_number(), .master_host = "127.0.0.1"};
  THALWEG_TRY(const std::optional<JobKey> key, job_key_from(process_environment()));
  THALWEG_TRY(const StoreServer store, StoreServer::start("127.0.0.1:0", meeting.token, key));
  meeting.store = store.address();
  THALWEG_TRY(meeting.master_port, free_port());
  ranks.variables.merge(variables_of(meeting));
  SupervisorOptions options = options_of(ranks);
  options.timeout = timeout;
  return supervisor.run(processes_of(ranks), options);
}

// A word of a command for a POSIX shell.
std::string quoted(const std::string& word) {
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

Result<int> run_on_hosts(const Arguments& arguments, HostRanks ranks,
                         const std::optional<Duration>& timeout) {
  THALWEG_TRY(const std::vector<RunHost> hosts, read_hosts(arguments));
  std::istringstream words(arguments.ssh);
  const std::vector<std::string> ssh{std::istream_iterator<std::string>(words), {}};
  if (ssh.empty()) return Error("--ssh: names no program");
  std::error_code ignored;
  const std::string program =
      arguments.remote.empty() ? std::filesystem::read_symlink("/proc/self/exe", ignored).string()
                               : arguments.remote;

  THALWEG_TRY(Supervisor supervisor, Supervisor::prepare());
  RunMeeting meeting{.size = 0, .token = random_number(), .master_host = hosts[0].name};
  for (const RunHost& host : hosts) meeting.size += host.slots;
  meeting.master_host = meeting.master_host.substr(meeting.master_host.rfind('@') + 1);
  meeting.master_port = static_cast<int>(kFirstMasterPort + meeting.token % kMasterPorts);
  THALWEG_TRY(const std::optional<JobKey> key, job_key_from(process_environment()));
  THALWEG_TRY(const StoreServer store, StoreServer::start("*:0", meeting.token, key));
  THALWEG_TRY(HostPort address, HostPort::parse(store.address()));
  address.host = arguments.address.empty() ? address_towards(hosts) : arguments.address;
  meeting.store = address.to_string();
  ranks.variables.merge(variables_of(meeting));
  add_our_settings(ranks.variables);

  std::vector<SupervisedProcess> agents;
  for (const RunHost& host : hosts) {
    ranks.count = host.slots;
    SupervisedProcess agent{.name = "host " + host.name, .command = ssh};
    agent.command.insert(agent.command.end(), {host.name, quoted(program) + " run --agent"});
    agent.input = to_agent_line(ranks);
    agents.push_back(std::move(agent));
    ranks.first += host.slots;
  }
  return supervisor.run(agents,
                        {.keep_going = ranks.keep_going, .grace = ranks.grace, .timeout = timeout});
}

// The first line of standard input.
Result<std::string> read_line() {
  std::string line;
  while (line.size() < kLongestAgentLine) {
    char c = 0;
    const ssize_t got = read(STDIN_FILENO, &c, 1);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return Error("--agent: standard input ended before the description of a job");
    if (c == '\n') return line;
    line += c;
  }
  return Error("--agent: the description of the job is too long");
}

// On another host, for the launcher at the other end of standard input and output.
Result<int> run_agent() {
  THALWEG_TRY(const std::string line, read_line());
  THALWEG_TRY(const HostRanks ranks, from_agent_line(line));
  THALWEG_TRY(Supervisor supervisor, Supervisor::prepare());
  if (chdir(ranks.folder.c_str()) != 0) {
    return system_error(fmt::format("cannot go to {}", ranks.folder), errno);
  }
  SupervisorOptions options = options_of(ranks);
  options.stop_at_end_of = STDIN_FILENO;
  return supervisor.run(processes_of(ranks), options);
}

Result<int> run(const Arguments& arguments, std::vector<std::string> command) {
  if (arguments.agent) return run_agent();
  if (command.empty()) return Error("run: no program is named: thalweg run -n N -- program …");
  const bool over_ssh = !arguments.hosts.empty();
  const int least = over_ssh ? 0 : 1;
  if (arguments.ranks < least || arguments.ranks > kMaxJobSize ||
      (!over_ssh && arguments.ranks > kMaxSlots)) {
    return Error(fmt::format("-n: {}: must be a whole number from 1 to {}{}", arguments.ranks,
                             over_ssh ? kMaxJobSize : kMaxSlots,
                             over_ssh ? "" : ", or --hosts must say where"));
  }
  HostRanks ranks{.folder = std::filesystem::current_path().string(),
                  .command = std::move(command),
                  .prefix = !arguments.no_prefix,
                  .keep_going = arguments.keep_going};
  THALWEG_TRY(ranks.variables, given_variables(arguments.variables));
  THALWEG_TRY(ranks.grace, positive_duration("--grace", arguments.grace));
  std::optional<Duration> timeout;
  if (!arguments.timeout.empty()) {
    THALWEG_TRY(timeout, positive_duration("--timeout", arguments.timeout));
  }
  return over_ssh ? run_on_hosts(arguments, std::move(ranks), timeout)
                  : run_here(arguments, std::move(ranks), timeout);
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
  auto arguments = std::make_shared<Arguments>();
  CLI::App& app = *program.add_subcommand(
      "run",
      "start the ranks of a job: thalweg run -n N -- program …; the exit code is that of the "
      "first rank that fails");
  app.prefix_command();
  app.add_option("-n,--ranks", arguments->ranks, "how many (all slots of --hosts)");
  app.add_option("--hosts", arguments->hosts,
                 "start them over ssh: h1:slots,h2 or a file of 'host slots=N' lines");
  app.add_option("--ssh", arguments->ssh, "the command that reaches a host")->capture_default_str();
  app.add_option("--remote", arguments->remote, "path of thalweg on the hosts (as here)");
  app.add_option("--address", arguments->address, "by which the hosts reach this one");
  app.add_option("-x,--env", arguments->variables, "NAME or NAME=value, for all ranks")
      ->allow_extra_args(false);
  app.add_option("--timeout", arguments->timeout, "end the job after this long, as in 600s");
  app.add_option("--grace", arguments->grace, "between asking ranks to end and killing them")
      ->capture_default_str();
  app.add_flag("--no-prefix", arguments->no_prefix, "do not put [rank] before lines of output");
  app.add_flag("--keep-going", arguments->keep_going, "a rank that fails does not end the others");
  app.add_flag("--agent", arguments->agent)->group("");
  on_run(app, [arguments, command, &app]() -> Result<int> {
    std::vector<std::string> words = app.remaining();
    if (!words.empty() && words.front().starts_with('-')) {
      return Error(fmt::format("run: '{}' is unknown (thalweg run --help)", words.front()));
    }
    // "--" after the first word is one of the program's.
    if (!words.empty() && !command.empty()) words.emplace_back("--");
    words.insert(words.end(), command.begin(), command.end());
    return run(*arguments, std::move(words));
  });
}

}  // namespace thalweg
