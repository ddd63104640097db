#include "switchd/xdp/frame.h"

#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/udp.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace thalweg::switchd {

std::vector<std::byte> udp_frame(const net::SocketAddress& from, const net::SocketAddress& to,
                                 std::span<const std::byte> payload) {
  CHECK(from.family() == AF_INET && to.family() == AF_INET);
  const auto* source = reinterpret_cast<const sockaddr_in*>(from.get());
  const auto* target = reinterpret_cast<const sockaddr_in*>(to.get());
  ethhdr ethernet{};
  ethernet.h_proto = htons(ETH_P_IP);
  udphdr udp{};
  udp.source = source->sin_port;
  udp.dest = target->sin_port;
  udp.len = htons(static_cast<std::uint16_t>(sizeof(udp) + payload.size()));
  iphdr ip{};
  ip.version = 4;
  ip.ihl = sizeof(ip) / 4;
  ip.ttl = 64;
  ip.protocol = IPPROTO_UDP;
  ip.tot_len = htons(static_cast<std::uint16_t>(sizeof(ip) + sizeof(udp) + payload.size()));
  ip.saddr = source->sin_addr.s_addr;
  ip.daddr = target->sin_addr.s_addr;
  std::vector<std::byte> frame(kFrameOverhead + payload.size());
  std::memcpy(frame.data(), &ethernet, sizeof(ethernet));
  std::memcpy(&frame[sizeof(ethernet)], &ip, sizeof(ip));
  std::memcpy(&frame[sizeof(ethernet) + sizeof(ip)], &udp, sizeof(udp));
  std::ranges::copy(payload, frame.begin() + kFrameOverhead);
  return frame;
}

}  // namespace thalweg::switchd
