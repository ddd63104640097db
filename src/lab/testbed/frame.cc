#include "lab/testbed/frame.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/prng.h"

namespace thalweg::lab {
namespace {

constexpr std::uint16_t kIpv4 = 0x0800;
constexpr std::uint16_t kArp = 0x0806;
constexpr std::uint16_t kIpv6 = 0x86dd;
constexpr std::size_t kTypeAt = 12;
constexpr std::size_t kIpv4Header = 20;
constexpr std::size_t kIpv6Header = 40;
constexpr std::uint8_t kTcp = 6;
constexpr std::uint8_t kUdp = 17;
constexpr std::uint8_t kCongestionBits = 3;
constexpr std::array<std::uint8_t, 4> kMacPrefix{0x02, 0x54, 0x57, 0x00};

using Frame = std::span<const std::uint8_t>;

std::uint16_t field_at(Frame frame, std::size_t at) {
  return static_cast<std::uint16_t>(frame[at] << 8 | frame[at + 1]);
}

std::uint64_t hash_bytes(std::uint64_t hash, Frame bytes) {
  for (const std::uint8_t byte : bytes) hash = (hash ^ byte) * kGoldenStep;
  return mix_bits(hash);
}

sim::Ecn ecn_of(std::uint8_t traffic_class) {
  const auto bits = static_cast<std::uint8_t>(traffic_class & kCongestionBits);
  if (bits == 0) return sim::Ecn::kNotCapable;
  return bits == kCongestionBits ? sim::Ecn::kCongested : sim::Ecn::kCapable;
}

bool has_ports(std::uint8_t protocol) { return protocol == kTcp || protocol == kUdp; }

void read_ipv4(Frame packet, FrameFields& fields) {
  if (packet.size() < kIpv4Header) return;
  fields.dscp = static_cast<std::uint8_t>(packet[1] >> 2);
  fields.ecn = ecn_of(packet[1]);
  std::uint64_t hash = hash_bytes(packet[9], packet.subspan(12, 8));
  const std::size_t header = std::size_t{packet[0] & 0xfU} * 4;
  const bool whole = (field_at(packet, 6) & 0x3fff) == 0;  // no fragment
  if (whole && has_ports(packet[9]) && packet.size() >= header + 4) {
    hash = hash_bytes(hash, packet.subspan(header, 4));
  }
  fields.flow_hash = static_cast<std::uint32_t>(hash);
}

void read_ipv6(Frame packet, FrameFields& fields) {
  if (packet.size() < kIpv6Header) return;
  const auto traffic_class = static_cast<std::uint8_t>(packet[0] << 4 | packet[1] >> 4);
  fields.dscp = static_cast<std::uint8_t>(traffic_class >> 2);
  fields.ecn = ecn_of(traffic_class);
  std::uint64_t hash = hash_bytes(packet[6], packet.subspan(8, 32));
  if (has_ports(packet[6]) && packet.size() >= kIpv6Header + 4) {
    hash = hash_bytes(hash, packet.subspan(kIpv6Header, 4));
  }
  fields.flow_hash = static_cast<std::uint32_t>(hash);
}

// RFC 1624: the checksum of a header after one 16-bit word of it changed.
std::uint16_t updated_checksum(std::uint16_t sum, std::uint16_t before, std::uint16_t after) {
  std::uint32_t total = (~sum & 0xffffU) + (~before & 0xffffU) + after;
  while (total > 0xffff) total = (total & 0xffff) + (total >> 16);
  return static_cast<std::uint16_t>(~total);
}

}  // namespace

MacAddress mac_of(Rank host) {
  return {kMacPrefix[0],
          kMacPrefix[1],
          kMacPrefix[2],
          kMacPrefix[3],
          static_cast<std::uint8_t>(host.value() >> 8),
          static_cast<std::uint8_t>(host.value())};
}

std::string to_string(const MacAddress& address) {
  return fmt::format("{:02x}", fmt::join(address, ":"));
}

std::array<std::uint8_t, 4> ip_of(Rank host) {
  const int number = host.value() + 1;
  return {10, 77, static_cast<std::uint8_t>(number >> 8), static_cast<std::uint8_t>(number)};
}

std::string address_of(Rank host) { return fmt::format("{}", fmt::join(ip_of(host), ".")); }

std::optional<FrameFields> read_frame(std::span<const std::uint8_t> frame, int hosts) {
  if (frame.size() < kEthernetHeader) return std::nullopt;
  if (!std::equal(kMacPrefix.begin(), kMacPrefix.end(), frame.begin())) return std::nullopt;
  const Rank target(field_at(frame, 4));
  if (target.value() >= hosts) return std::nullopt;
  FrameFields fields{.target = target};
  const std::uint16_t type = field_at(frame, kTypeAt);
  const Frame packet = frame.subspan(kEthernetHeader);
  if (type == kIpv4) read_ipv4(packet, fields);
  if (type == kIpv6) read_ipv6(packet, fields);
  return fields;
}

void mark_congested(std::span<std::uint8_t> frame) {
  if (frame.size() < kEthernetHeader) return;
  const std::uint16_t type = field_at(frame, kTypeAt);
  const std::span<std::uint8_t> packet = frame.subspan(kEthernetHeader);
  if (type == kIpv6 && packet.size() >= kIpv6Header) packet[1] |= kCongestionBits << 4;
  if (type != kIpv4 || packet.size() < kIpv4Header) return;
  const std::uint16_t before = field_at(packet, 0);
  packet[1] |= kCongestionBits;
  const std::uint16_t sum = updated_checksum(field_at(packet, 10), before, field_at(packet, 0));
  packet[10] = static_cast<std::uint8_t>(sum >> 8);
  packet[11] = static_cast<std::uint8_t>(sum);
}

std::optional<std::array<std::uint8_t, kArpFrame>> answer_arp(std::span<const std::uint8_t> frame,
                                                              int hosts) {
  // Offsets of RFC 826 over Ethernet and IPv4.
  constexpr std::size_t kOperation = kEthernetHeader + 6;
  constexpr std::size_t kSender = kEthernetHeader + 8;
  constexpr std::size_t kTarget = kEthernetHeader + 18;
  constexpr std::size_t kMacAndIp = 10;
  constexpr std::uint16_t kQuestion = 1;
  if (frame.size() < kArpFrame || field_at(frame, kTypeAt) != kArp) return std::nullopt;
  if (field_at(frame, kOperation) != kQuestion) return std::nullopt;
  const Frame asked = frame.subspan(kTarget + 6, 4);
  const Rank host(field_at(asked, 2) - 1);
  if (host.value() < 0 || host.value() >= hosts) return std::nullopt;
  const auto ip = ip_of(host);
  if (!std::equal(ip.begin(), ip.end(), asked.begin())) return std::nullopt;
  const MacAddress mac = mac_of(host);
  std::array<std::uint8_t, kArpFrame> answer{};
  std::copy_n(frame.begin(), kArpFrame, answer.begin());
  const auto at = [&](std::size_t offset) {
    return answer.begin() + static_cast<std::ptrdiff_t>(offset);
  };
  std::copy_n(frame.begin() + 6, mac.size(), at(0));
  std::copy(mac.begin(), mac.end(), at(6));
  answer[kOperation + 1] = kQuestion + 1;
  std::copy_n(frame.begin() + kSender, kMacAndIp, at(kTarget));
  std::copy(mac.begin(), mac.end(), at(kSender));
  std::copy(ip.begin(), ip.end(), at(kSender + mac.size()));
  return answer;
}

}  // namespace thalweg::lab
