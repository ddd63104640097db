// A UDP packet in an Ethernet frame, as XdpPlane::run() takes it.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "net/address.h"

namespace thalweg {

inline constexpr std::size_t kFrameOverhead = 14 + 20 + 8;  // Ethernet, IPv4, UDP

// Between IPv4 addresses.
[[nodiscard]] std::vector<std::byte> udp_frame(const SocketAddress& from, const SocketAddress& to,
                                               std::span<const std::byte> payload);

}  // namespace thalweg
