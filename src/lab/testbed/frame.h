// Reads Ethernet frames for the testbed's network: the target, the queue and the flow of each.
//
// The link-layer address of a host contains its rank, so the network carries whatever a frame
// holds. Questions for addresses (ARP) are answered where the host is connected and never travel.
// Other broadcasts are not carried.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/units.h"
#include "sim/core/packet.h"

namespace thalweg::lab {

inline constexpr std::size_t kEthernetHeader = 14;
inline constexpr std::size_t kArpFrame = kEthernetHeader + 28;
// The most hosts of a testbed. The addresses below can name so many.
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
  sim::Ecn ecn = sim::Ecn::kNotCapable;
  // The same for all frames of a TCP or UDP flow in one direction.
  std::uint32_t flow_hash = 0;
};
// Returns nothing if the frame is for none of the `hosts` hosts, or is too short.
[[nodiscard]] std::optional<FrameFields> read_frame(std::span<const std::uint8_t> frame, int hosts);

// Sets "congestion experienced" if the frame holds an IP packet.
void mark_congested(std::span<std::uint8_t> frame);

// The answer, if the frame is a question for a host's address.
[[nodiscard]] std::optional<std::array<std::uint8_t, kArpFrame>> answer_arp(
    std::span<const std::uint8_t> frame, int hosts);

}  // namespace thalweg::lab
