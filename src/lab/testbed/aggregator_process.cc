#include "lab/testbed/aggregator_process.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "lab/emulation/network_namespace.h"
#include "launch/spawn.h"
#include "net/io/address.h"
#include "net/io/system.h"
#include "net/io/tcp.h"
#include "wire/atp_packet.h"

namespace thalweg::lab {
namespace {

constexpr Duration kAggregatorStartLimit = Duration::milliseconds(10'000);
constexpr std::size_t kMostLastWords = 2000;

}  // namespace

Result<std::unique_ptr<AggregatorProcess>> AggregatorProcess::start(const std::string& switch_name,
                                                                    const std::string& address,
                                                                    int space,
                                                                    const TestbedPlace& place,
                                                                    const std::string& token) {
  const std::string stem = fmt::format("{}/{}-aggregator", place.folder(), switch_name);
  std::ofstream config(stem + ".yaml");
  config << fmt::format("data: \"{0}:{1}\"\ncontrol: \"{0}:{2}\"\npaths: {3}\ntoken: \"{4}\"\n",
                        address, kAggregatorDataPort, kAggregatorControlPort, wire::kAtpMostPaths,
                        token)
         << std::flush;
  if (!config) return Error(fmt::format("cannot write {}.yaml", stem));
  std::unique_ptr<AggregatorProcess> made(
      new AggregatorProcess(space, stem + ".yaml", stem + ".log"));
  THALWEG_TRY_STATUS(made->begin());
  THALWEG_TRY(const NamespaceVisit visit, NamespaceVisit::begin(space));
  THALWEG_TRY(const net::SocketAddress control,
              net::SocketAddress::resolve(fmt::format("{}:{}", address, kAggregatorControlPort)));
  const Result<net::Fd> reached =
      net::connect_tcp(control, fmt::format("the aggregator of {}", switch_name),
                       net::monotonic_now() + kAggregatorStartLimit);
  // The error holds the log, because the file is removed with the testbed.
  if (!reached.ok()) return Error(reached.error().message() + made->last_words());
  return made;
}

Status AggregatorProcess::begin() {
  const net::Fd nothing(open("/dev/null", O_RDWR | O_CLOEXEC));
  const net::Fd log(open(log_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!nothing.valid() || !log.valid()) return net::system_error("cannot write " + log_, errno);
  THALWEG_TRY(const NamespaceVisit visit, NamespaceVisit::begin(space_));
  THALWEG_TRY(pid_,
              launch::spawn({.command = {std::filesystem::read_symlink("/proc/self/exe").string(),
                                         "switch", "--config", config_, "--key-file", "none"},
                             .in = nothing.get(),
                             .out = log.get(),
                             .err = log.get()}));
  return ok_status();
}

std::string AggregatorProcess::last_words() const {
  std::ifstream log(log_);
  std::string text((std::istreambuf_iterator<char>(log)), {});
  if (text.size() > kMostLastWords) text.erase(0, text.size() - kMostLastWords);
  return text.empty() ? "; it has said nothing" : "; it has said:\n" + text;
}

void AggregatorProcess::stop() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = 0;
}

Status AggregatorProcess::restart() {
  stop();
  return begin();
}

}  // namespace thalweg::lab
