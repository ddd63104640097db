#include "cli/emulated_network.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <sstream>

#include "base/check.h"
#include "cli/child_process.h"
#include "net/system.h"

namespace thalweg {
namespace {

constexpr std::chrono::seconds kCommandLimit{10};
constexpr const char* kHub = "hub";
// Of the shaped link: at 1 Gb/s some 80 ms, so that only what is meant to be lost is lost.
constexpr const char* kQueue = "10mb";
// Longer runs of packets are cut into packets before they are shaped and lost.
constexpr const char* kBurst = "8kb";
// At the switch, where packets come as the hosts shaped them: late timers must not slow the link.
constexpr const char* kHubBurst = "60kb";
constexpr int kLossParts = 1'000'000;

// Words without quotes or blanks inside.
Status command(const std::string& line) {
  ChildRequest request;
  std::istringstream words(line);
  for (std::string word; words >> word;) request.command.push_back(word);
  request.limit = kCommandLimit;
  THALWEG_TRY(const ChildOutcome outcome, run_child(request));
  if (outcome.exit_code == 0) return ok_status();
  return Error(fmt::format("'{}' failed: {}", line, outcome.errors + outcome.output));
}

Result<Fd> current_namespace() {
  Fd fd(open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return system_error("cannot open the network namespace", errno);
  return fd;
}

std::string path_of(const Fd& fd) { return fmt::format("/proc/{}/fd/{}", getpid(), fd.get()); }

Status shape_device(const std::string& device, double gbps, const char* burst) {
  if (gbps <= 0) return command(fmt::format("tc qdisc del dev {} root", device));
  return command(fmt::format("tc qdisc replace dev {} root tbf rate {:.0f}kbit burst {} limit {}",
                             device, gbps * 1e6, burst, kQueue));
}

std::string port_of(int host) { return fmt::format("port{}", host); }

}  // namespace

Result<EmulatedNetwork::Visit> EmulatedNetwork::Visit::begin(int to) {
  THALWEG_TRY(Fd before, current_namespace());
  if (setns(to, CLONE_NEWNET) != 0) {
    return system_error("cannot enter a network namespace", errno);
  }
  return Visit(std::move(before));
}

EmulatedNetwork::Visit::~Visit() {
  if (before_.valid()) CHECK(setns(before_.get(), CLONE_NEWNET) == 0);
}

Result<EmulatedNetwork> EmulatedNetwork::make(int hosts) {
  CHECK(hosts >= 2 && hosts <= kMaxHosts);
  THALWEG_TRY(const Fd here, current_namespace());
  const auto fresh = [&]() -> Result<Fd> {
    if (unshare(CLONE_NEWNET) != 0) return system_error("cannot make a network namespace", errno);
    Result<Fd> made = current_namespace();
    CHECK(setns(here.get(), CLONE_NEWNET) == 0);
    return made;
  };
  EmulatedNetwork network;
  for (int host = 0; host < hosts; ++host) {
    THALWEG_TRY(network.hosts_.emplace_back(), fresh());
  }
  if (hosts > 2) {
    THALWEG_TRY(network.hub_, fresh());
    THALWEG_TRY(const Visit visit, Visit::begin(network.hub_.get()));
    THALWEG_TRY_STATUS(command(fmt::format("ip link add {} type bridge", kHub)));
    THALWEG_TRY_STATUS(command(fmt::format("ip link set {} up", kHub)));
  } else {
    THALWEG_TRY_STATUS(network.inside(0, [&] {
      return command(fmt::format("ip link add {} type veth peer name {} netns {}", kDevice, kDevice,
                                 network.path(1)));
    }));
  }
  for (int host = 0; host < hosts; ++host) THALWEG_TRY_STATUS(network.connect(host));
  return network;
}

Status EmulatedNetwork::connect(int host) const {
  if (hub_.valid()) {
    THALWEG_TRY(const Visit visit, Visit::begin(hub_.get()));
    THALWEG_TRY_STATUS(command(fmt::format("ip link add {} type veth peer name {} netns {}",
                                           port_of(host), kDevice, path(host))));
    THALWEG_TRY_STATUS(command(fmt::format("ip link set {} master {} up", port_of(host), kHub)));
  }
  return inside(host, [&]() -> Status {
    THALWEG_TRY_STATUS(command("ip link set lo up"));
    THALWEG_TRY_STATUS(command(fmt::format("ip addr add {}/24 dev {}", address(host), kDevice)));
    return command(fmt::format("ip link set {} up", kDevice));
  });
}

std::string EmulatedNetwork::address(int host) { return fmt::format("10.77.0.{}", host + 1); }

std::string EmulatedNetwork::path(int host) const {
  return path_of(hosts_[static_cast<std::size_t>(host)]);
}

Status EmulatedNetwork::enter(int host) const {
  if (setns(hosts_[static_cast<std::size_t>(host)].get(), CLONE_NEWNET) == 0) return ok_status();
  return system_error("cannot enter a network namespace", errno);
}

Status EmulatedNetwork::shape(int host, double gbps) const {
  if (hub_.valid()) {
    THALWEG_TRY(const Visit visit, Visit::begin(hub_.get()));
    THALWEG_TRY_STATUS(shape_device(port_of(host), gbps, kHubBurst));
  }
  return inside(host, [&] { return shape_device(kDevice, gbps, kBurst); });
}

Status EmulatedNetwork::lose(int host, double probability) const {
  return inside(host, [&]() -> Status {
    THALWEG_TRY_STATUS(command("nft flush ruleset"));
    const auto parts = static_cast<int>(probability * kLossParts + 0.5);
    if (parts == 0) return ok_status();
    THALWEG_TRY_STATUS(command("nft add table netdev loss"));
    THALWEG_TRY_STATUS(
        command(fmt::format("nft add chain netdev loss in {{ type filter hook ingress device {} "
                            "priority 0 ; }}",
                            kDevice)));
    return command(fmt::format("nft add rule netdev loss in numgen random mod {} < {} drop",
                               kLossParts, parts));
  });
}

Result<bool> can_make_networks() {
  if (geteuid() != 0) return Error("not root");
  for (const char* tool : {"ip -V", "tc -V", "nft -v"}) {
    THALWEG_TRY_STATUS(command(tool));
  }
  return true;
}

}  // namespace thalweg
