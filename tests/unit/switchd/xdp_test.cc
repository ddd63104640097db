// The data plane in the kernel decides as the one in the process does, packet by packet.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "base/prng.h"
#include "switchd/data_plane.h"
#include "switchd/xdp/frame.h"
#include "switchd/xdp/xdp_plane.h"

namespace thalweg {
namespace {

constexpr Duration kLifetime = Duration::milliseconds(3'600'000);
constexpr std::uint32_t kSlots = 16;
constexpr std::uint8_t kWorkers = 3;

SocketAddress at(int host, int port) {
  return SocketAddress::resolve("10.9.0." + std::to_string(host) + ":" + std::to_string(port))
      .value();
}

// Of the words of a frame's IPv4 header, its checksum among them: 0xffff if that is right.
unsigned ip_sum(std::span<const std::byte> frame) {
  unsigned sum = 0;
  for (std::size_t i = 14; i < 34; i += 2) {
    sum += std::to_integer<unsigned>(frame[i]) << 8 | std::to_integer<unsigned>(frame[i + 1]);
  }
  return (sum & 0xffff) + (sum >> 16);
}

// Keeps the last packet.
class LastPacket final : public DataPlane::Output {
 public:
  std::span<std::byte> to_server(std::uint32_t /*job*/, std::uint64_t /*sequence*/,
                                 std::size_t size) override {
    up.emplace(size);
    return *up;
  }
  std::span<std::byte> to_workers(std::uint32_t /*job*/, std::optional<std::size_t> /*worker*/,
                                  std::size_t size) override {
    down.emplace(size);
    return *down;
  }
  std::optional<std::vector<std::byte>> up;
  std::optional<std::vector<std::byte>> down;
};

// Both planes with the same two jobs; the second also is its own second level.
class XdpTest : public testing::Test {
 protected:
  void SetUp() override {
    auto loaded = XdpPlane::load({.slots = kSlots,
                                  .data = data_,
                                  .shards = 1,
                                  .lifetime = kLifetime,
                                  .next_hop = std::array<std::uint8_t, 6>{2, 0, 0, 0, 0, 1}});
    if (!loaded.ok()) GTEST_SKIP() << loaded.error().message();
    xdp_ = std::move(*loaded);
    for (const std::uint32_t id : {1U, 2U}) {
      AdmittedJob job;
      job.id = id;
      for (int w = 0; w < kWorkers; ++w) job.workers.push_back(at(10 + w, 6000));
      job.servers = {at(20, 6000), at(21, 6001)};
      job.about.groups = id == 1 ? 1 : 3;
      job.about.second_level = id == 2;
      job.about.window = 4;
      ASSERT_TRUE(plane_.install(job).ok());
      ASSERT_TRUE(xdp_->install(job).ok());
    }
  }

  // Gives a packet to both; they must agree in what becomes of it, and in every byte.
  void check(std::span<const std::byte> packet, const SocketAddress& from,
             const std::string& what) {
    output_.up.reset();
    output_.down.reset();
    plane_.on_run({packet, packet.size(), false}, from, Time());
    std::vector<std::byte> out(2048);
    const auto outcome = xdp_->run(udp_frame(from, data_, packet), out);
    ASSERT_TRUE(outcome.ok()) << outcome.error().message();
    if (outcome->verdict == XdpPlane::Verdict::kToProcess) {
      ASSERT_FALSE(output_.up.has_value()) << what;
      return;
    }
    ASSERT_FALSE(output_.down.has_value()) << what;
    ASSERT_EQ(outcome->verdict == XdpPlane::Verdict::kSent, output_.up.has_value()) << what;
    if (!output_.up) return;
    const auto sent = std::span(out).first(outcome->size).subspan(kFrameOverhead);
    ASSERT_TRUE(std::ranges::equal(sent, *output_.up)) << what;
    ASSERT_EQ(ip_sum(out), 0xffff) << what;
  }

  // Any gradient, parameter, or nonsense near them.
  AtpHeader random_header() {
    AtpHeader h;
    h.job = 1 + static_cast<std::uint32_t>(prng_.below(2));
    h.kind = prng_.below(4) == 0 ? AtpKind::kParameter : AtpKind::kGradient;
    h.sequence = prng_.below(10);
    h.fan_in = prng_.below(20) == 0 ? std::uint8_t{2} : kWorkers;
    h.group_count = h.job == 1 ? std::uint8_t{1} : std::uint8_t{2};
    h.group = static_cast<std::uint8_t>(prng_.below(h.group_count));
    h.elements = prng_.below(4) == 0 ? std::uint16_t{5} : std::uint16_t{64};
    h.exponent = prng_.below(20) == 0 ? std::int8_t{1} : std::int8_t{0};
    h.next_exponent = static_cast<std::int8_t>(prng_.below(9));
    h.congested = prng_.below(4) == 0;
    if (h.kind == AtpKind::kParameter) {
      h.groups = atp_all(h.group_count);
      return h;
    }
    h.resend = prng_.below(6) == 0;
    h.collision = prng_.below(12) == 0;
    h.saturated = prng_.below(12) == 0;
    h.level = static_cast<std::uint8_t>(prng_.below(h.job == 1 ? 2 : 3));
    if (h.level > 0 && prng_.below(2) == 0) {
      h.groups = 1 + static_cast<std::uint32_t>(prng_.below(atp_all(h.group_count)));
      if (!h.resend || (h.groups & atp_bit(h.group)) != 0) return h;
    }
    h.workers = 1 + static_cast<std::uint32_t>(prng_.below(atp_all(h.fan_in)));
    return h;
  }

  std::vector<std::byte> packet_of(const AtpHeader& header) {
    std::vector<std::byte> packet(atp_packet_size(header));
    encode_atp_header(header, packet);
    for (std::size_t i = kAtpHeaderSize; i < packet.size(); i += sizeof(std::int32_t)) {
      const auto value = static_cast<std::int32_t>(prng_.next()) >> (prng_.below(50) == 0 ? 0 : 4);
      std::memcpy(&packet[i], &value, sizeof(value));
    }
    return packet;
  }

  SocketAddress data_ = at(1, 7800);
  LastPacket output_;
  DataPlane plane_{{.slots = kSlots, .slot_elements = 64, .lifetime = kLifetime}, 0, output_};
  std::unique_ptr<XdpPlane> xdp_;
  Prng prng_{42};
};

TEST_F(XdpTest, random_packets__as_in_the_process) {
  constexpr int kPackets = 30'000;
  for (int i = 0; i < kPackets && !HasFatalFailure(); ++i) {
    const AtpHeader header = random_header();
    if (check_atp_header(header) != WireError::kNone) continue;
    std::vector<std::byte> packet = packet_of(header);
    if (prng_.below(30) == 0) packet[prng_.below(kAtpHeaderSize)] ^= std::byte{1};
    if (prng_.below(100) == 0) packet.resize(prng_.below(packet.size()));
    if (packet.empty()) continue;
    const bool up = header.kind == AtpKind::kGradient;
    const int host = prng_.below(50) == 0 ? 99 : up ? 10 : 20;
    check(packet, at(host, 6000), "packet " + std::to_string(i));
  }
  // Every way through the stage was taken, and counted alike.
  using Cause = AggregateAction::Cause;
  for (const std::uint32_t job : {1U, 2U}) {
    const SwitchPlane::Counters counters = xdp_->counters(job);
    for (const Cause cause : {Cause::kStored, Cause::kAdded, Cause::kCompleted, Cause::kResent,
                              Cause::kFlushed, Cause::kCollision, Cause::kDuplicate,
                              Cause::kMismatch, Cause::kNotHere, Cause::kOverlap}) {
      const std::uint64_t wanted = plane_.table().counters(job)->of(cause);
      EXPECT_EQ(counters[static_cast<std::size_t>(cause)].second, wanted) << name_of(cause);
      EXPECT_GT(wanted, 0U) << name_of(cause) << " of job " << job;
    }
  }
}

}  // namespace
}  // namespace thalweg
