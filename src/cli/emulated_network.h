// Hosts on this machine with a network between them, for benchmarks: each is a network namespace
// with one device, or with several, each on a network of its own. Two hosts are joined by cables
// (pairs of virtual Ethernet devices), more by switches (bridges in a namespace of their own).
// Needs root.
//
// The namespaces have no names. They last as long as this object or a process that runs in them,
// so that nothing is left behind, however the program ends.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <thalweg/result.h>

#include "cli/network_namespace.h"
#include "net/fd.h"
#include "topology/topology.h"

namespace thalweg {

class EmulatedNetwork {
 public:
  static constexpr int kMaxHosts = 200;
  static constexpr int kMaxDevices = 8;
  // Of every host, to the others.
  [[nodiscard]] static std::string device(int number = 0);

  // Two hosts with a cable, or more around one switch; that so many times, once for every device of
  // a host. Requires 2 <= hosts <= kMaxHosts, 1 <= devices <= kMaxDevices.
  [[nodiscard]] static Result<EmulatedNetwork> make(int hosts, int devices = 1);
  // A bridge a switch, every link at its rate; delays and buffers are this machine's. An error if
  // some hosts have two ways to each other: bridges find no more than one.
  [[nodiscard]] static Result<EmulatedNetwork> make(const Topology& tree);

  // Of every host.
  [[nodiscard]] int devices() const { return devices_; }
  // Of a host's first device, without a port.
  [[nodiscard]] static std::string address(int host) { return address(host, 0); }
  // What another process opens to enter the host's namespace, as long as this process lives.
  [[nodiscard]] std::string path(int host) const;

  // The calling thread, and what it starts, is in the namespace of `host` from here on.
  [[nodiscard]] Status enter(int host) const;
  // Runs `body`, which returns a Result or a Status, in the namespace of `host`.
  template <class Body>
  [[nodiscard]] auto inside(int host, Body body) const -> decltype(body());

  // A link of `host`, both directions of it that go through a device of its own: its rate to
  // `gbps` (0: as fast as it goes).
  [[nodiscard]] Status shape(int host, double gbps, int device_number = 0) const;
  // What arrives at `host` is lost with this probability, every packet by itself.
  [[nodiscard]] Status lose(int host, double probability) const;
  // Of TCP sockets that are made at `host` from here on; one that the system has.
  [[nodiscard]] Status set_congestion_control(int host, const std::string& name) const;

 private:
  EmulatedNetwork() = default;
  // Namespaces of hosts, and of switches.
  [[nodiscard]] static Result<EmulatedNetwork> empty(int hosts, bool switches);
  Status add_bridge(const std::string& name) const;
  [[nodiscard]] static std::string address(int host, int device_number);
  // By a cable to a bridge.
  Status plug_in(int host, int device_number, const std::string& bridge) const;
  Status add_trunk(std::size_t link, const std::string& a, const std::string& b, double gbps) const;
  Status bring_up(int host) const;

  int devices_ = 1;
  std::vector<Fd> hosts_;
  Fd hub_;  // the namespace of all switches; not valid: two hosts with a cable
};

// True if this user may make network namespaces, and the tools for it are here; else why not.
[[nodiscard]] Result<bool> can_make_networks();

template <class Body>
auto EmulatedNetwork::inside(int host, Body body) const -> decltype(body()) {
  THALWEG_TRY(const NamespaceVisit visit,
              NamespaceVisit::begin(hosts_[static_cast<std::size_t>(host)].get()));
  return body();
}

}  // namespace thalweg
