// Ethernet frames as the testbed's network sees them: for whom, in which queue, of which flow.
//
// Hosts are known by their link-layer addresses, which name their ranks, so that whatever they put
// into a frame is carried. Questions for addresses (ARP) are answered at the edge and never
// travel; nothing else that is for all hosts is carried.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/units.h"
#include "sim/packet.h"

namespace thalweg {

inline constexpr std::size_t kEthernetHeader = 14;
inline constexpr std::size_t kArpFrame = kEthernetHeader + 28;
// Of a testbed: what the addresses below can name.
inline constexpr int kMaxTestbedHosts = 1'000;

using MacAddress = std::array<std::uint8_t, 6>;

// 02:54:57:00:00:00 and up, in rank order.
[[nodiscard]] MacAddress mac_of(Rank host);
[[nodiscard]] std::string to_string(const MacAddress& address);
// 10.77.0.1 and up, in a network of 16 bits.
[[nodiscard]] std::array<std::uint8_t, 4> ip_of(Rank host);
[[nodiscard]] std::string address_of(Rank host);

struct FrameFields {
  Rank target;
  std::uint8_t dscp = 0;  // 0 where there is no IP header
  Ecn ecn = Ecn::kNotCapable;
  // The same for all frames of a TCP or UDP flow, in one direction.
  std::uint32_t flow_hash = 0;
};
// Nothing if the frame is for none of `hosts` hosts, or too short.
[[nodiscard]] std::optional<FrameFields> read_frame(std::span<const std::uint8_t> frame, int hosts);

// Sets "congestion experienced", if the frame holds an IP packet.
void mark_congested(std::span<std::uint8_t> frame);

// The answer to the question for a host's address, if the frame is one.
[[nodiscard]] std::optional<std::array<std::uint8_t, kArpFrame>> answer_arp(
    std::span<const std::uint8_t> frame, int hosts);

}  // namespace thalweg
