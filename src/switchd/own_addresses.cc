#include "switchd/own_addresses.h"

#include <algorithm>
#include <utility>

namespace thalweg::switchd {

OwnAddresses::OwnAddresses(const net::SocketAddress& bound, std::vector<std::uint16_t> ports)
    : loopback_(bound.wildcard()), ports_(std::move(ports)) {
  if (bound.wildcard()) {
    hosts_ = net::interface_addresses();
  } else {
    hosts_.push_back(bound);
  }
}

bool OwnAddresses::contains(const net::SocketAddress& address) const {
  if (std::ranges::find(ports_, address.port()) == ports_.end()) return false;
  if (loopback_ && address.loopback()) return true;
  return std::ranges::any_of(
      hosts_, [&](const net::SocketAddress& host) { return address.same_host(host); });
}

}  // namespace thalweg::switchd
