#include "lab/emulation/emulated_network.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <fstream>

#include "base/check.h"
#include "base/units.h"
#include "launch/system_command.h"
#include "net/io/system.h"

namespace thalweg::lab {
namespace {

// The queue of a shaped link. It holds about 80 ms at 1 Gb/s, so that it loses no packets beside
// those that lose() drops.
constexpr const char* kQueue = "10mb";
// How much a link sends at once after it was idle: what it sends in this time at its rate, between
// the least and the most. So a timer that is late by less does not slow the link down, and a run of
// packets of this size needs one timer. One timer per packet would take two cores at 1 Gb/s both
// ways.
constexpr Duration kBucket = Duration::microseconds(256);
constexpr std::int64_t kLeastBucket = 8 << 10;
constexpr std::int64_t kMostBucket = 64 << 10;
// The same at the switch. It is large because packets arrive there as the hosts have shaped them,
// and late timers must not slow the link down.
constexpr std::int64_t kHubBucket = 60 << 10;
constexpr int kWholeRun = 65536;
constexpr int kLossParts = 1'000'000;

std::string path_of(const net::Fd& fd) { return fmt::format("/proc/{}/fd/{}", getpid(), fd.get()); }

Status shape_device(const std::string& device, double gbps, std::int64_t bucket) {
  if (gbps <= 0) return launch::system_command(fmt::format("tc qdisc del dev {} root", device));
  return launch::system_command(
      fmt::format("tc qdisc replace dev {} root tbf rate {:.0f}kbit burst {} limit {}", device,
                  gbps * 1e6, bucket, kQueue));
}

std::int64_t bucket_of(double gbps) {
  const double bytes = gbps * 1e9 / 8 * kBucket.s();
  return std::clamp(static_cast<std::int64_t>(bytes), kLeastBucket, kMostBucket);
}

// Chooses whether a run of packets leaves a host as one, or is cut into packets after it was
// shaped, so that each can be lost independently.
Status keep_runs(const std::string& device, bool keep) {
  const char* const state = keep ? "on" : "off";
  return launch::system_command(
      fmt::format("ethtool -K {} tso {} tx-udp-segmentation {}", device, state, state));
}

std::string port_of(int host, int device) { return fmt::format("port{}-{}", host, device); }

}  // namespace

Result<EmulatedNetwork> EmulatedNetwork::empty(int hosts, bool switches) {
  CHECK(hosts >= 2 && hosts <= kMaxHosts);
  THALWEG_TRY(const net::Fd here, current_namespace());
  const auto fresh = [&]() -> Result<net::Fd> {
    if (unshare(CLONE_NEWNET) != 0)
      return net::system_error("cannot make a network namespace", errno);
    Result<net::Fd> made = current_namespace();
    CHECK(setns(here.get(), CLONE_NEWNET) == 0);
    return made;
  };
  EmulatedNetwork network;
  for (int host = 0; host < hosts; ++host) {
    THALWEG_TRY(network.hosts_.emplace_back(), fresh());
  }
  if (switches) {
    THALWEG_TRY(network.hub_, fresh());
  }
  return network;
}

std::string EmulatedNetwork::device(int number) { return fmt::format("tw{}", number); }

Result<EmulatedNetwork> EmulatedNetwork::make(int hosts, int devices) {
  CHECK(devices >= 1 && devices <= kMaxDevices);
  THALWEG_TRY(EmulatedNetwork network, empty(hosts, hosts > 2));
  network.devices_ = devices;
  for (int number = 0; number < devices; ++number) {
    if (hosts > 2) {
      const std::string hub = fmt::format("hub{}", number);
      THALWEG_TRY_STATUS(network.add_bridge(hub));
      for (int host = 0; host < hosts; ++host) {
        THALWEG_TRY_STATUS(network.plug_in(host, number, hub));
      }
      continue;
    }
    THALWEG_TRY_STATUS(network.inside(0, [&] {
      return launch::system_command(fmt::format("ip link add {} type veth peer name {} netns {}",
                                                device(number), device(number), network.path(1)));
    }));
  }
  for (int host = 0; host < hosts; ++host) THALWEG_TRY_STATUS(network.bring_up(host));
  return network;
}

Result<EmulatedNetwork> EmulatedNetwork::make(const topology::Topology& tree) {
  if (tree.host_count() < 2 || tree.host_count() > kMaxHosts) {
    return Error(fmt::format("{}: {} hosts; it must have 2 to {}", tree.name(), tree.host_count(),
                             kMaxHosts));
  }
  // Every topology is connected, so one with this number of links is a tree.
  if (tree.links().size() != tree.nodes().size() - 1) {
    return Error(
        fmt::format("{}: {} links between {} hosts and switches: some have two ways to "
                    "each other, and a bridge knows one",
                    tree.name(), tree.links().size(), tree.nodes().size()));
  }
  THALWEG_TRY(EmulatedNetwork network, empty(tree.host_count(), true));
  const auto bridge_of = [](topology::NodeId node) {
    return fmt::format("bridge{}", node.value());
  };
  for (std::size_t n = 0; n < tree.nodes().size(); ++n) {
    const topology::NodeId node(static_cast<std::int32_t>(n));
    if (tree.node(node).kind == topology::NodeKind::kSwitch) {
      THALWEG_TRY_STATUS(network.add_bridge(bridge_of(node)));
    }
  }
  for (std::size_t l = 0; l < tree.links().size(); ++l) {
    const topology::Link& link = tree.links()[l];
    const double gbps = static_cast<double>(link.spec.rate.bps()) * 1e-9;
    const Rank a = tree.rank_of(link.a);
    const Rank b = tree.rank_of(link.b);
    if (!a.valid() && !b.valid()) {
      THALWEG_TRY_STATUS(network.add_trunk(l, bridge_of(link.a), bridge_of(link.b), gbps));
      continue;
    }
    if (a.valid() && b.valid()) {
      return Error(fmt::format("{}: {} and {} are joined without a switch", tree.name(),
                               tree.node(link.a).name, tree.node(link.b).name));
    }
    const int host = a.valid() ? a.value() : b.value();
    THALWEG_TRY_STATUS(network.plug_in(host, 0, bridge_of(a.valid() ? link.b : link.a)));
    THALWEG_TRY_STATUS(network.bring_up(host));
    THALWEG_TRY_STATUS(network.shape(host, gbps));
  }
  return network;
}

Status EmulatedNetwork::add_bridge(const std::string& name) const {
  THALWEG_TRY(const NamespaceVisit visit, NamespaceVisit::begin(hub_.get()));
  THALWEG_TRY_STATUS(launch::system_command(fmt::format("ip link add {} type bridge", name)));
  return launch::system_command(fmt::format("ip link set {} up", name));
}

Status EmulatedNetwork::plug_in(int host, int device_number, const std::string& bridge) const {
  THALWEG_TRY(const NamespaceVisit visit, NamespaceVisit::begin(hub_.get()));
  THALWEG_TRY_STATUS(launch::system_command(
      fmt::format("ip link add {} type veth peer name {} netns {}", port_of(host, device_number),
                  device(device_number), path(host))));
  return launch::system_command(
      fmt::format("ip link set {} master {} up", port_of(host, device_number), bridge));
}

Status EmulatedNetwork::add_trunk(std::size_t link, const std::string& a, const std::string& b,
                                  double gbps) const {
  THALWEG_TRY(const NamespaceVisit visit, NamespaceVisit::begin(hub_.get()));
  const std::string at_a = fmt::format("trunk{}a", link);
  const std::string at_b = fmt::format("trunk{}b", link);
  THALWEG_TRY_STATUS(
      launch::system_command(fmt::format("ip link add {} type veth peer name {}", at_a, at_b)));
  THALWEG_TRY_STATUS(launch::system_command(fmt::format("ip link set {} master {} up", at_a, a)));
  THALWEG_TRY_STATUS(launch::system_command(fmt::format("ip link set {} master {} up", at_b, b)));
  THALWEG_TRY_STATUS(shape_device(at_a, gbps, kHubBucket));
  return shape_device(at_b, gbps, kHubBucket);
}

Status EmulatedNetwork::bring_up(int host) const {
  return inside(host, [&]() -> Status {
    THALWEG_TRY_STATUS(launch::system_command("ip link set lo up"));
    for (int number = 0; number < devices_; ++number) {
      THALWEG_TRY_STATUS(launch::system_command(
          fmt::format("ip addr add {}/24 dev {}", address(host, number), device(number))));
      THALWEG_TRY_STATUS(launch::system_command(fmt::format("ip link set {} up", device(number))));
    }
    return ok_status();
  });
}

std::string EmulatedNetwork::address(int host, int device_number) {
  return fmt::format("10.77.{}.{}", device_number, host + 1);
}

std::string EmulatedNetwork::path(int host) const {
  return path_of(hosts_[static_cast<std::size_t>(host)]);
}

Status EmulatedNetwork::enter(int host) const {
  if (setns(hosts_[static_cast<std::size_t>(host)].get(), CLONE_NEWNET) == 0) return ok_status();
  return net::system_error("cannot enter a network namespace", errno);
}

Status EmulatedNetwork::shape(int host, double gbps, int device_number) const {
  const std::string own = device(device_number);
  if (hub_.valid()) {
    THALWEG_TRY(const NamespaceVisit visit, NamespaceVisit::begin(hub_.get()));
    THALWEG_TRY_STATUS(shape_device(port_of(host, device_number), gbps, kHubBucket));
  }
  return inside(host, [&]() -> Status {
    const std::int64_t bucket = bucket_of(gbps);
    THALWEG_TRY_STATUS(shape_device(own, gbps, bucket));
    THALWEG_TRY_STATUS(keep_runs(own, gbps <= 0));
    // The size of TCP's runs of packets: two of them fit into the bucket.
    return launch::system_command(
        fmt::format("ip link set dev {} gso_max_size {}", own, gbps <= 0 ? kWholeRun : bucket / 2));
  });
}

Status EmulatedNetwork::lose(int host, double probability) const {
  return inside(host, [&]() -> Status {
    THALWEG_TRY_STATUS(launch::system_command("nft flush ruleset"));
    const auto parts = static_cast<int>(std::lround(probability * kLossParts));
    if (parts == 0) return ok_status();
    THALWEG_TRY_STATUS(launch::system_command("nft add table netdev loss"));
    for (int number = 0; number < devices_; ++number) {
      const std::string chain = fmt::format("in{}", number);
      THALWEG_TRY_STATUS(keep_runs(device(number), false));
      THALWEG_TRY_STATUS(launch::system_command(
          fmt::format("nft add chain netdev loss {} {{ type filter hook ingress device {} "
                      "priority 0 ; }}",
                      chain, device(number))));
      THALWEG_TRY_STATUS(launch::system_command(fmt::format(
          "nft add rule netdev loss {} numgen random mod {} < {} drop", chain, kLossParts, parts)));
    }
    return ok_status();
  });
}

Status EmulatedNetwork::set_congestion_control(int host, const std::string& name) const {
  return inside(host, [&]() -> Status {
    std::ofstream setting("/proc/sys/net/ipv4/tcp_congestion_control");
    setting << name << std::flush;
    if (setting) return ok_status();
    return Error(fmt::format(
        "{}: namespaces may use those of the host's sysctl net.ipv4.tcp_allowed_congestion_control",
        name));
  });
}

Result<bool> can_make_networks() {
  if (geteuid() != 0) return Error("not root");
  for (const char* tool : {"ip -V", "tc -V", "nft -v", "ethtool --version"}) {
    THALWEG_TRY_STATUS(launch::system_command(tool));
  }
  return true;
}

}  // namespace thalweg::lab
