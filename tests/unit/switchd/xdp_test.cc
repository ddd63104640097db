// The data plane in the kernel decides as the one in the process does, packet by packet.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/prng.h"
#include "net/ranks.h"
#include "switchd/data_plane.h"
#include "switchd/xdp/frame.h"
#include "switchd/xdp/xdp_plane.h"

namespace thalweg::switchd {
namespace {

constexpr Duration kLong = Duration::milliseconds(3'600'000);
constexpr std::uint32_t kSlots = 16;
constexpr std::uint8_t kWorkers = 3;
constexpr std::size_t kTrafficClassAt = 15;  // in a frame

net::SocketAddress at(int host, int port) {
  return net::SocketAddress::resolve("10.9.0." + std::to_string(host) + ":" + std::to_string(port))
      .value();
}

// The sum of the words of a frame's IPv4 header, checksum included: 0xffff if the checksum is
// right.
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
                                 std::uint32_t /*path*/, std::size_t size) override {
    up.emplace(size);
    return *up;
  }
  std::span<std::byte> to_workers(std::uint32_t /*job*/, const Receivers& /*receivers*/,
                                  std::uint32_t /*path*/, std::size_t size) override {
    down.emplace(size);
    return *down;
  }
  std::optional<std::vector<std::byte>> up;
  std::optional<std::vector<std::byte>> down;
};

// Both planes with the same two jobs. The switch is the first level of one job and the second level
// of the other.
class XdpTest : public testing::Test {
 protected:
  // Returns false, and says why, if the kernel does not take the program. `lifetime`: of slots.
  bool load(Duration lifetime) {
    plane_.emplace(
        // The program in the kernel reports no missing packets.
        switches::AggregateOptions{
            .slots = kSlots, .slot_elements = 64, .lifetime = lifetime, .reordering = 0},
        std::uint16_t{0}, output_);
    auto loaded = XdpPlane::load({.slots = kSlots,
                                  .data = data_,
                                  .shards = 1,
                                  .lifetime = lifetime,
                                  .next_hop = std::array<std::uint8_t, 6>{2, 0, 0, 0, 0, 1}});
    if (!loaded.ok()) {
      fmt::print("NOTHING WAS COMPARED: the program could not be loaded: {}\n",
                 loaded.error().message());
      return false;
    }
    xdp_ = std::move(*loaded);
    for (const std::uint32_t id : {1U, 2U}) {
      AdmittedJob job;
      job.id = id;
      for (int w = 0; w < kWorkers; ++w) job.workers.push_back(at(10 + w, 6000));
      job.servers = {at(20, 6000), at(21, 6001)};
      job.about.groups = id == 1 ? 1 : 0;
      job.about.second_level = id == 2;
      job.about.window = 4;
      EXPECT_TRUE(plane_->install(job).ok());
      EXPECT_TRUE(xdp_->install(job).ok());
    }
    return true;
  }

  // Gives a packet to both planes; they must agree on what happens to it, and on every byte.
  // `marked`: a queue on its way has marked it.
  void check(std::span<const std::byte> packet, const net::SocketAddress& from, bool marked,
             const std::string& what) {
    output_.up.reset();
    output_.down.reset();
    plane_->on_run({packet, packet.size(), marked}, from, net::monotonic_now());
    std::vector<std::byte> out(2048);
    std::vector<std::byte> frame = udp_frame(from, data_, packet);
    if (marked) frame[kTrafficClassAt] = std::byte{3};
    const auto outcome = xdp_->run(frame, out);
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

  // Any gradient or parameter packet, valid or almost.
  wire::AtpHeader random_header() {
    wire::AtpHeader h;
    h.job = 1 + static_cast<std::uint32_t>(prng_.below(2));
    h.kind = prng_.below(4) == 0 ? wire::AtpKind::kParameter : wire::AtpKind::kGradient;
    h.sequence = prng_.below(10);
    // The server of odd sequences adds the gradients of one worker itself.
    const bool apart = h.sequence % 2 == 1;
    h.fan_in = prng_.below(20) == 0 ? 2 : static_cast<std::uint8_t>(kWorkers - (apart ? 1 : 0));
    h.group_count = h.job == 1 ? std::uint8_t{1} : std::uint8_t{3};
    h.group = static_cast<std::uint8_t>(prng_.below(h.group_count));
    h.elements = prng_.below(4) == 0 ? std::uint16_t{5} : std::uint16_t{64};
    h.exponent = prng_.below(20) == 0 ? std::int8_t{1} : std::int8_t{0};
    h.next_exponent = static_cast<std::int8_t>(prng_.below(9));
    h.needed_exponent = static_cast<std::int8_t>(prng_.below(256));
    h.congested = prng_.below(4) == 0;
    h.check = prng_.next();
    if (h.kind == wire::AtpKind::kParameter) {
      h.groups = wire::atp_all(h.group_count);
      return h;
    }
    h.resend = prng_.below(6) == 0;
    h.collision = prng_.below(12) == 0;
    h.saturated = prng_.below(12) == 0;
    h.level = static_cast<std::uint8_t>(prng_.below(h.job == 1 ? 2 : 3));
    if (h.level > 0 && prng_.below(2) == 0) {
      h.groups = 1 + static_cast<std::uint32_t>(prng_.below(wire::atp_all(h.group_count)));
      if (!h.resend || (h.groups & wire::atp_bit(h.group)) != 0) return h;
    }
    const unsigned places = h.fan_in + (apart ? 1U : 0U);
    h.workers = 1 + static_cast<std::uint32_t>(prng_.below(wire::atp_all(places)));
    if (h.workers == wire::atp_all(places) && apart) h.workers &= ~wire::atp_bit(1);
    return h;
  }

  std::vector<std::byte> packet_of(const wire::AtpHeader& header) {
    std::vector<std::byte> packet(wire::atp_packet_size(header));
    wire::encode_atp_header(header, packet);
    for (std::size_t i = wire::kAtpHeaderSize; i < packet.size(); i += sizeof(std::int32_t)) {
      const auto value = static_cast<std::int32_t>(prng_.next()) >> (prng_.below(50) == 0 ? 0 : 4);
      std::memcpy(&packet[i], &value, sizeof(value));
    }
    return packet;
  }

  net::SocketAddress data_ = at(1, 7800);
  LastPacket output_;
  std::optional<DataPlane> plane_;
  std::unique_ptr<XdpPlane> xdp_;
  Prng prng_{net::test_seed()};
};

TEST_F(XdpTest, random_packets__as_in_the_process) {
  if (!load(kLong)) GTEST_SKIP();
  constexpr int kPackets = 30'000;
  for (int i = 0; i < kPackets && !HasFatalFailure(); ++i) {
    const wire::AtpHeader header = random_header();
    if (wire::check_atp_header(header) != wire::WireError::kNone) continue;
    std::vector<std::byte> packet = packet_of(header);
    if (prng_.below(30) == 0) {
      packet[prng_.below(wire::kAtpHeaderSize)] ^= std::byte{1};
      // Otherwise the header check shows it.
      if (prng_.below(2) == 0) wire::put_atp_header_check(packet);
    }
    if (prng_.below(100) == 0) packet.resize(prng_.below(packet.size()));
    if (packet.empty()) continue;
    const bool up = header.kind == wire::AtpKind::kGradient;
    const int host = prng_.below(50) == 0 ? 99 : up ? 10 : 20;
    check(packet, at(host, 6000), prng_.below(8) == 0, "packet " + std::to_string(i));
  }
  // All these causes occurred, and both planes counted the same.
  using Cause = switches::AggregateAction::Cause;
  for (const std::uint32_t job : {1U, 2U}) {
    const SwitchPlane::Counters counters = xdp_->counters(job);
    for (const Cause cause : {Cause::kStored, Cause::kAdded, Cause::kCompleted, Cause::kResent,
                              Cause::kFlushed, Cause::kCollision, Cause::kDuplicate,
                              Cause::kMismatch, Cause::kNotHere, Cause::kOverlap}) {
      const std::uint64_t wanted = plane_->table().counters(job)->of(cause);
      EXPECT_EQ(counters[static_cast<std::size_t>(cause)].second, wanted)
          << switches::name_of(cause);
      EXPECT_GT(wanted, 0U) << switches::name_of(cause) << " of job " << job;
    }
  }
}

// The planes read the clock one after the other. So packets find slots that are either just used or
// long over.
TEST_F(XdpTest, expired_slots__are_taken_by_other_sequences_in_both) {
  if (!load(Duration::milliseconds(400))) GTEST_SKIP();
  wire::AtpHeader header;
  header.job = 1;
  header.kind = wire::AtpKind::kGradient;
  header.fan_in = kWorkers;
  header.group_count = 1;
  header.elements = 64;
  const auto stored = [&] {
    return plane_->table().counters(1)->of(switches::AggregateAction::Cause::kStored);
  };
  const auto send_all = [&](std::uint64_t first) {
    for (std::uint64_t i = 0; i < kSlots && !HasFatalFailure(); ++i) {
      header.sequence = first + i;
      header.workers = wire::atp_bit(static_cast<unsigned>(prng_.below(kWorkers)));
      check(packet_of(header), at(10, 6000), false, "sequence " + std::to_string(header.sequence));
    }
  };
  // A window of 4: a later sequence would take a slot of this job anyway, an earlier one not.
  send_all(kSlots);
  const std::uint64_t before = stored();
  EXPECT_GT(before, 0U);
  std::this_thread::sleep_for(std::chrono::milliseconds(1'000));
  send_all(0);
  EXPECT_EQ(stored(), before + kSlots);
  EXPECT_GT(plane_->table().counters(1)->expired, 0U);
  EXPECT_EQ(
      xdp_->counters(1)[static_cast<std::size_t>(switches::AggregateAction::Cause::kStored)].second,
      stored());
}

}  // namespace
}  // namespace thalweg::switchd
