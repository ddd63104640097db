// What the environment says about the plugin (docs/nccl.md).
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <thalweg/result.h>

#include "base/units.h"
#include "net/atp/switch_list.h"
#include "net/io/address.h"
#include "net/job/environment.h"
#include "net/job/interfaces.h"
#include "wire/authenticate.h"

namespace thalweg::nccl {

// A network interface, which NCCL calls a device.
struct Device {
  std::string name;
  net::SocketAddress address;  // port 0
  std::string pci_path;        // of its card; empty: it has none
  int speed_mbps = 0;
};

struct Settings {
  int streams = 1;  // of a connection
  int threads = 1;  // of this process; 0: NCCL's own thread moves all bytes
  // Messages up to this size are sent by NCCL's own thread.
  std::size_t inline_bytes = 0;
  // The least bytes of a piece of a longer message.
  std::size_t piece_bytes = 0;
  // How long a connection may take, and how long accept() waits for one.
  Duration timeout;
  Duration spin;  // how long a thread of ours looks for work before it sleeps
  std::optional<wire::JobKey> key;
  std::vector<Device> devices;  // at least one
};

// What CollNet needs beside these.
struct CollSettings {
  std::vector<net::ListedSwitch> switches;  // rank 0 takes the first that admits the job
};

// Errors name the variable, its value and what is allowed.
[[nodiscard]] Result<CollSettings> coll_settings_from(const net::EnvironmentLookup& lookup);
[[nodiscard]] Result<Settings> settings_from(const net::EnvironmentLookup& lookup);

// Which of the interfaces NCCL_SOCKET_IFNAME means: `rule` is a list of beginnings of names; with
// `=` in front of whole names, with `^` of what to leave out. Without a rule: all but loopback and
// docker's, or if there are no others, those. One address of each interface, IPv4 if it has one and
// `family` (AF_INET, AF_INET6 or 0) allows it.
[[nodiscard]] std::vector<net::Interface> interfaces_by_rule(const std::vector<net::Interface>& all,
                                                             const std::string& rule, int family);

}  // namespace thalweg::nccl
