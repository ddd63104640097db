// The network interfaces of this host, and which of them a rank uses.
#pragma once

#include <string>
#include <vector>

#include <thalweg/result.h>

#include "net/io/address.h"

namespace thalweg::net {

// An address of an interface that is up. Link-local IPv6 addresses are left out.
struct Interface {
  std::string name;
  SocketAddress address;  // port 0
};
[[nodiscard]] Result<std::vector<Interface>> interfaces();

// The addresses that a rank sends from and listens at: one of each named interface, if possible of
// the same family as `towards_store`, the address that reaches the store; without names only that
// address. A name may also be an address of this host. All addresses differ and have port 0.
[[nodiscard]] Result<std::vector<SocketAddress>> rank_addresses(
    const std::vector<std::string>& names, const SocketAddress& towards_store);

}  // namespace thalweg::net
