// Hosts on this machine with a network between them, for benchmarks. Each host is a network
// namespace with one device, or with several devices, each of which is on a separate network. Two
// hosts are joined by cables (pairs of virtual Ethernet devices), more hosts by switches (bridges
// in one more namespace). Needs root.
//
// The namespaces have no names. They last as long as this object or a process that runs in them,
// so nothing is left behind, however the program ends.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <thalweg/result.h>

#include "lab/emulation/network_namespace.h"
#include "net/io/fd.h"
#include "topology/topology.h"

namespace thalweg::lab {

class EmulatedNetwork {
 public:
  static constexpr int kMaxHosts = 200;
  static constexpr int kMaxDevices = 8;
  // The name of a host's device that leads to the other hosts. All hosts have the same names.
  [[nodiscard]] static std::string device(int number = 0);

  // Two hosts with a cable, or more around one switch; once for every device of a host. Requires
  // 2 <= hosts <= kMaxHosts and 1 <= devices <= kMaxDevices.
  [[nodiscard]] static Result<EmulatedNetwork> make(int hosts, int devices = 1);
  // One bridge per switch, and every link at its rate; delays and buffers are this machine's. It is
  // an error if two hosts have more than one path to each other, because bridges find only one.
  [[nodiscard]] static Result<EmulatedNetwork> make(const topology::Topology& tree);

  // The number of devices of every host.
  [[nodiscard]] int devices() const { return devices_; }
  // The IP address of a host's first device.
  [[nodiscard]] static std::string address(int host) { return address(host, 0); }
  // The path of the host's namespace, which other processes may open as long as this one lives.
  [[nodiscard]] std::string path(int host) const;

  // Moves the calling thread, and the processes that it starts later, into the namespace of `host`.
  [[nodiscard]] Status enter(int host) const;
  // Runs `body`, which returns a Result or a Status, in the namespace of `host`.
  template <class Body>
  [[nodiscard]] auto inside(int host, Body body) const -> decltype(body());

  // Limits the link of a host's device to `gbps` in both directions (0: no limit). Between two
  // hosts with a cable, limits only what `host` sends.
  [[nodiscard]] Status shape(int host, double gbps, int device_number = 0) const;
  // Loses every packet that arrives at `host` with this probability, independently of the others.
  [[nodiscard]] Status lose(int host, double probability) const;
  // Sets the congestion control of TCP sockets that are made at `host` from now on. The system must
  // have one of this name.
  [[nodiscard]] Status set_congestion_control(int host, const std::string& name) const;

 private:
  EmulatedNetwork() = default;
  // Makes the namespaces of the hosts, and one for the switches if `switches` is true.
  [[nodiscard]] static Result<EmulatedNetwork> empty(int hosts, bool switches);
  Status add_bridge(const std::string& name) const;
  [[nodiscard]] static std::string address(int host, int device_number);
  // Connects a host's device to a bridge by a cable.
  Status plug_in(int host, int device_number, const std::string& bridge) const;
  // Connects two bridges by a cable.
  Status add_trunk(std::size_t link, const std::string& a, const std::string& b, double gbps) const;
  // Gives the devices of the host their addresses and switches them on.
  Status bring_up(int host) const;

  int devices_ = 1;
  std::vector<net::Fd> hosts_;
  net::Fd hub_;  // the namespace of all switches; not valid if two hosts are joined by a cable
};

// True if this user may make network namespaces and the tools for it are installed; otherwise the
// error says why not.
[[nodiscard]] Result<bool> can_make_networks();

template <class Body>
auto EmulatedNetwork::inside(int host, Body body) const -> decltype(body()) {
  THALWEG_TRY(const NamespaceVisit visit,
              NamespaceVisit::begin(hosts_[static_cast<std::size_t>(host)].get()));
  return body();
}

}  // namespace thalweg::lab
