// The network interfaces of this host, and which of them a rank uses.
#pragma once

#include <string>
#include <vector>

#include <thalweg/result.h>

#include "net/address.h"

namespace thalweg {

// An address of an interface that is up. Link-local IPv6 addresses are left out.
struct Interface {
  std::string name;
  SocketAddress address;  // port 0
};
[[nodiscard]] Result<std::vector<Interface>> interfaces();

// Where a rank sends from and listens at: an address of each named interface, of the family by
// which it reaches the store if there is one; or without names the address that reaches the store.
// A name may also be an address of this host. No two are the same. Ports are 0.
[[nodiscard]] Result<std::vector<SocketAddress>> rank_addresses(
    const std::vector<std::string>& names, const SocketAddress& towards_store);

}  // namespace thalweg
