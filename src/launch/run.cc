#include "launch/run.h"

#include <fmt/core.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <sstream>
#include <system_error>
#include <utility>

#include "net/io/address.h"
#include "net/io/fd.h"
#include "net/io/system.h"
#include "net/job/environment.h"
#include "net/store/store_server.h"

namespace thalweg::launch {
namespace {

// Ports for the rendezvous of programs that do not know our store. On other hosts we cannot ask for
// a free port, so one of these is drawn.
constexpr std::uint64_t kFirstMasterPort = 20'000;
constexpr std::uint64_t kMasterPorts = 12'000;
constexpr std::size_t kLongestAgentLine = std::size_t{64} << 20;

// Adds the variables THALWEG_* of this process that the launcher does not set: ranks on other hosts
// need them too.
void add_our_settings(Variables& variables) {
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (text.starts_with("THALWEG_")) {
      variables.emplace(text.substr(0, text.find('=')), text.substr(text.find('=') + 1));
    }
  }
}

// The address of this host from which packets to the hosts leave, or else its name. A loopback
// address is taken only if there is no other. Nothing is sent.
std::string address_towards(const std::vector<RunHost>& hosts) {
  std::string found;
  for (const RunHost& host : hosts) {
    const net::HostPort there{host.name.substr(host.name.rfind('@') + 1), 9};
    const Result<net::SocketAddress> remote = net::SocketAddress::resolve(there.to_string());
    if (!remote.ok()) continue;
    const net::Fd fd(socket(remote->family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (connect(fd.get(), remote->get(), remote->size()) != 0) continue;
    const net::SocketAddress local = net::SocketAddress::local_of(fd.get());
    found = net::HostPort::parse(local.to_string())->host;
    if (!local.loopback()) break;
  }
  if (!found.empty()) return found;
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

// The word as a POSIX shell takes it.
std::string quoted(const std::string& word) {
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

// The first line of standard input. What follows it is not read.
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

}  // namespace

Result<int> run_here(HostRanks ranks, const std::optional<Duration>& timeout) {
  THALWEG_TRY(Supervisor supervisor, Supervisor::prepare());
  RunMeeting meeting{
      .size = ranks.count, .token = net::random_number(), .master_host = "127.0.0.1"};
  THALWEG_TRY(const std::optional<wire::JobKey> key, net::job_key_from(net::process_environment()));
  THALWEG_TRY(const net::StoreServer store,
              net::StoreServer::start("127.0.0.1:0", meeting.token, key));
  meeting.store = store.address();
  THALWEG_TRY(meeting.master_port, free_port());
  ranks.variables.merge(variables_of(meeting));
  SupervisorOptions options = options_of(ranks);
  options.timeout = timeout;
  THALWEG_TRY(const std::vector<SupervisedProcess> processes, processes_of(ranks));
  return supervisor.run(processes, options);
}

Result<int> run_on_hosts(const RemoteHosts& remote, HostRanks ranks,
                         const std::optional<Duration>& timeout) {
  const std::vector<RunHost>& hosts = remote.hosts;
  std::istringstream words(remote.ssh);
  const std::vector<std::string> ssh{std::istream_iterator<std::string>(words), {}};
  if (ssh.empty()) return Error("--ssh: names no program");
  std::error_code ignored;
  const std::string program =
      remote.program.empty() ? std::filesystem::read_symlink("/proc/self/exe", ignored).string()
                             : remote.program;

  THALWEG_TRY(Supervisor supervisor, Supervisor::prepare());
  RunMeeting meeting{.size = 0, .token = net::random_number(), .master_host = hosts[0].name};
  for (const RunHost& host : hosts) meeting.size += host.slots;
  meeting.master_host = meeting.master_host.substr(meeting.master_host.rfind('@') + 1);
  meeting.master_port = static_cast<int>(kFirstMasterPort + meeting.token % kMasterPorts);
  THALWEG_TRY(const std::optional<wire::JobKey> key, net::job_key_from(net::process_environment()));
  THALWEG_TRY(const net::StoreServer store, net::StoreServer::start("*:0", meeting.token, key));
  THALWEG_TRY(net::HostPort address, net::HostPort::parse(store.address()));
  address.host = remote.address.empty() ? address_towards(hosts) : remote.address;
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

Result<int> run_agent() {
  THALWEG_TRY(const std::string line, read_line());
  THALWEG_TRY(const HostRanks ranks, from_agent_line(line));
  THALWEG_TRY(Supervisor supervisor, Supervisor::prepare());
  if (chdir(ranks.folder.c_str()) != 0) {
    return net::system_error(fmt::format("cannot go to {}", ranks.folder), errno);
  }
  SupervisorOptions options = options_of(ranks);
  options.stop_at_end_of = STDIN_FILENO;
  THALWEG_TRY(const std::vector<SupervisedProcess> processes, processes_of(ranks));
  return supervisor.run(processes, options);
}

}  // namespace thalweg::launch
