#include "lab/testbed/hosts.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "lab/emulation/network_namespace.h"
#include "lab/testbed/capacity.h"
#include "lab/testbed/frame.h"
#include "launch/system_command.h"
#include "net/io/system.h"

namespace thalweg::lab {
namespace {

constexpr const char* kTunnels = "/dev/net/tun";
// How much a device sends at once after its timer was late, as time at its rate. The fabric's port
// spaces the packets again.
constexpr double kBurstSeconds = 1e-3;
constexpr std::size_t kLeastBurst = 10'000;
constexpr const char* kDeviceQueue = "1mb";

// Makes the namespace of a host, and moves the calling thread into it.
Result<TestbedHost> make_namespace(const TestbedPlace& place, Rank rank, bool named) {
  TestbedHost host;
  if (!named) {
    if (unshare(CLONE_NEWNET) != 0)
      return net::system_error("cannot make a network namespace", errno);
    THALWEG_TRY(host.space, current_namespace());
    return host;
  }
  host.named = fmt::format("{}-h{}", place.name(), rank.value());
  const std::string path = "/run/netns/" + host.named;
  // A namespace that is remembered is removed later, with everything that runs there. So one that
  // is not ours must not be remembered.
  if (std::filesystem::exists(path)) {
    return Error(
        fmt::format("there is a network namespace {} already: give another --name", host.named));
  }
  THALWEG_TRY_STATUS(place.remember_namespace(host.named));
  THALWEG_TRY_STATUS(launch::system_command("ip netns add " + host.named));
  host.space = net::Fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!host.space.valid() || setns(host.space.get(), CLONE_NEWNET) != 0) {
    return net::system_error("cannot enter " + path, errno);
  }
  return host;
}

// Makes the TAP device of a host in the calling thread's namespace, and returns its other end.
Result<net::Fd> make_device() {
  net::Fd fd(open(kTunnels, O_RDWR | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid()) return net::system_error(fmt::format("cannot open {}", kTunnels), errno);
  ifreq request{};
  std::strncpy(request.ifr_name, kTestbedDevice, IFNAMSIZ - 1);
  request.ifr_flags = IFF_TAP | IFF_NO_PI;
  if (ioctl(fd.get(), TUNSETIFF, &request) != 0) {
    return net::system_error("cannot make a TAP device", errno);
  }
  return fd;
}

Status bring_up(Rank rank, std::size_t mtu) {
  return launch::system_command(
      "ip -batch -", fmt::format("link set lo up\n"
                                 "link set {0} address {1} mtu {2} addrgenmode none\n"
                                 "addr add {3}/16 dev {0}\n"
                                 "link set {0} up\n",
                                 kTestbedDevice, to_string(mac_of(rank)), mtu, address_of(rank)));
}

Result<double> measure(const topology::Topology& topology, const TestbedSettings& settings,
                       int device) {
  const net::Fd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  if (bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return net::system_error("cannot bind a socket in a testbed's host", errno);
  }
  return measure_frames_per_second(topology, settings.network, settings.mtu, device, socket.get());
}

Status write_file_of_process(const char* path, const std::string& text) {
  std::ofstream file(path);
  file << text << std::flush;
  if (file) return ok_status();
  return net::system_error(fmt::format("cannot write {}", path), errno);
}

}  // namespace

Status become_able_to_make_networks() {
  if (geteuid() == 0) return ok_status();
  const auto user = geteuid();
  const auto group = getegid();
  if (unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) {
    return net::system_error("not root, and this machine allows no user namespaces", errno);
  }
  THALWEG_TRY_STATUS(write_file_of_process("/proc/self/setgroups", "deny"));
  THALWEG_TRY_STATUS(write_file_of_process("/proc/self/uid_map", fmt::format("0 {} 1", user)));
  return write_file_of_process("/proc/self/gid_map", fmt::format("0 {} 1", group));
}

Result<std::vector<TestbedHost>> make_testbed_hosts(const TestbedPlace& place,
                                                    const topology::Topology& topology,
                                                    TestbedSettings& settings) {
  THALWEG_TRY(const net::Fd here, current_namespace());
  // Names of namespaces are the same for the whole machine. A user namespace cannot make them.
  const bool named = place.is_of_root();
  const auto make = [&]() -> Result<std::vector<TestbedHost>> {
    std::vector<TestbedHost> hosts;
    for (Rank rank(0); rank.value() < topology.host_count(); ++rank) {
      THALWEG_TRY(TestbedHost host, make_namespace(place, rank, named));
      THALWEG_TRY(host.device, make_device());
      THALWEG_TRY_STATUS(bring_up(rank, settings.mtu));
      if (rank.value() == 0) {
        THALWEG_TRY(settings.frames_per_second, measure(topology, settings, host.device.get()));
      }
      Bandwidth rate;
      for (const topology::ArcId arc : topology.arcs_from(topology.host(rank))) {
        rate += topology.arc(arc).spec.rate;
      }
      THALWEG_TRY_STATUS(shape_testbed_device(rate, settings.mtu, settings.network.framing_bytes));
      hosts.push_back(std::move(host));
    }
    return hosts;
  };
  Result<std::vector<TestbedHost>> hosts = make();
  if (setns(here.get(), CLONE_NEWNET) != 0) {
    return net::system_error("cannot return to the network namespace", errno);
  }
  return hosts;
}

Status shape_testbed_device(Bandwidth rate, std::size_t mtu, std::uint32_t framing_bytes) {
  const auto burst = std::max({kLeastBurst, mtu + 2 * kEthernetHeader,
                               static_cast<std::size_t>(rate.bytes_per_second() * kBurstSeconds)});
  // The fabric counts IP packets and their framing; the device counts IP packets and Ethernet
  // headers. With this factor full packets get the link's rate, and shorter ones at most that.
  const double counted = static_cast<double>(mtu + kEthernetHeader) /
                         static_cast<double>(mtu + std::size_t{framing_bytes});
  return launch::system_command(
      fmt::format("tc qdisc replace dev {} root tbf rate {:.0f}bit burst {} limit {}",
                  kTestbedDevice, static_cast<double>(rate.bps()) * counted, burst, kDeviceQueue));
}

Status enter_testbed_host(pid_t pid, const std::string& enter) {
  const std::string user = fmt::format("/proc/{}/ns/user", pid);
  struct stat theirs{};
  struct stat ours{};
  if (stat(user.c_str(), &theirs) != 0 || stat("/proc/self/ns/user", &ours) != 0) {
    return net::system_error(fmt::format("cannot look at {}", user), errno);
  }
  const net::Fd space(open(enter.c_str(), O_RDONLY | O_CLOEXEC));
  if (!space.valid()) return net::system_error(fmt::format("cannot open {}", enter), errno);
  if (theirs.st_ino != ours.st_ino) {
    const net::Fd fd(open(user.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd.valid() || setns(fd.get(), CLONE_NEWUSER) != 0) {
      return net::system_error(fmt::format("cannot enter {}", user), errno);
    }
  }
  if (setns(space.get(), CLONE_NEWNET) != 0) {
    return net::system_error("cannot enter the host's network namespace", errno);
  }
  return ok_status();
}

}  // namespace thalweg::lab
