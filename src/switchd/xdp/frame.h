// Builds a UDP packet in an Ethernet frame, as XdpPlane::run() takes it.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "net/io/address.h"

namespace thalweg::switchd {

inline constexpr std::size_t kFrameOverhead = 14 + 20 + 8;  // Ethernet, IPv4, UDP

// Requires IPv4 addresses.
[[nodiscard]] std::vector<std::byte> udp_frame(const net::SocketAddress& from,
                                               const net::SocketAddress& to,
                                               std::span<const std::byte> payload);

}  // namespace thalweg::switchd
