// OwnAddresses: the addresses at which the data sockets of a switch receive packets.
#pragma once

#include <cstdint>
#include <vector>

#include "net/io/address.h"

namespace thalweg::switchd {

class OwnAddresses {
 public:
  OwnAddresses() = default;  // none
  // `bound`: the address that the data sockets are bound to; its port means nothing. If it is
  // 0.0.0.0 or [::], they receive at all addresses that this host has now. `ports`: that of each
  // shard.
  OwnAddresses(const net::SocketAddress& bound, std::vector<std::uint16_t> ports);

  [[nodiscard]] bool contains(const net::SocketAddress& address) const;

 private:
  std::vector<net::SocketAddress> hosts_;
  bool loopback_ = false;  // all of 127.0.0.0/8 and ::1 as well
  std::vector<std::uint16_t> ports_;
};

}  // namespace thalweg::switchd
