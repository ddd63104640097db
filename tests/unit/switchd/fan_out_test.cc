// What one packet makes a switch send: at most one packet to each worker of its job, or one to a
// server, none of them longer than it; and nothing for somebody who is no member.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/prng.h"
#include "net/ranks.h"
#include "switchd/data_plane.h"
#include "wire/atp_packet.h"

namespace thalweg::switchd {
namespace {

constexpr std::size_t kFanOut = 3;
constexpr std::uint16_t kFanOutElements = 64;

net::SocketAddress member(std::uint64_t host) {
  return net::SocketAddress::numeric("10.9.0." + std::to_string(host) + ":6000").value();
}

// Counts what would leave: a packet to all workers is one for each.
class CopiesSent final : public DataPlane::Output {
 public:
  std::span<std::byte> to_server(std::uint32_t /*job*/, std::uint64_t /*sequence*/,
                                 std::uint32_t /*path*/, std::size_t size) override {
    return count(size, 1);
  }
  std::span<std::byte> to_workers(std::uint32_t /*job*/, const Receivers& receivers,
                                  std::uint32_t /*path*/, std::size_t size) override {
    return count(size, receivers.only ? 1 : kFanOut - (receivers.except ? 1 : 0));
  }
  std::size_t packets = 0;
  std::size_t longest = 0;

 private:
  std::span<std::byte> count(std::size_t size, std::size_t copies) {
    packets += copies;
    longest = std::max(longest, size);
    bytes_.resize(size);
    return bytes_;
  }
  std::vector<std::byte> bytes_;
};

class FanOut : public testing::Test {
 protected:
  // Job 1 has one level here, job 2 is the second level of three groups. Few slots, so that packets
  // meet.
  void SetUp() override {
    for (const std::uint32_t id : {1U, 2U}) {
      AdmittedJob job;
      job.id = id;
      for (std::size_t worker = 0; worker < kFanOut; ++worker)
        job.workers.push_back(member(10 + worker));
      job.servers = {member(20), member(21)};
      job.about.groups = id == 1 ? 1 : 3;
      job.about.second_level = id == 2;
      if (id == 2) job.about.group_ends = {1, 1, 1};
      ASSERT_TRUE(plane_.install(job).ok());
    }
  }

  // What a worker or a server could send, or somebody who makes it up.
  wire::AtpHeader random_header() {
    wire::AtpHeader h;
    constexpr wire::AtpKind kKinds[] = {wire::AtpKind::kGradient, wire::AtpKind::kGradient,
                                        wire::AtpKind::kParameter, wire::AtpKind::kMissing};
    h.kind = kKinds[prng_.below(4)];
    h.job = 1 + static_cast<std::uint32_t>(prng_.below(2));
    h.sequence = prng_.below(12);
    h.group_count = h.job == 1 ? std::uint8_t{1} : std::uint8_t{3};
    h.group = static_cast<std::uint8_t>(prng_.below(h.group_count));
    h.fan_in = static_cast<std::uint8_t>(1 + prng_.below(kFanOut));
    h.elements = h.kind == wire::AtpKind::kMissing ? std::uint16_t{0} : kFanOutElements;
    h.workers = static_cast<std::uint32_t>(prng_.below(8));
    h.groups = static_cast<std::uint32_t>(prng_.below(8));
    h.level = static_cast<std::uint8_t>(prng_.below(3));
    if (h.kind != wire::AtpKind::kGradient) h.level = 0;
    h.resend = prng_.below(6) == 0;
    h.collision = prng_.below(12) == 0;
    return h;
  }

  Prng prng_{net::test_seed()};
  CopiesSent output_;
  DataPlane plane_{{.slots = 8, .slot_elements = kFanOutElements, .reordering = 1}, 0, output_};
};

TEST_F(FanOut, on_run__one_packet_causes_one_to_each_worker_at_most) {
  std::size_t taken = 0;
  std::size_t most = 0;
  for (int i = 0; i < 60'000; ++i) {
    const wire::AtpHeader header = random_header();
    if (wire::check_atp_header(header) != wire::WireError::kNone) continue;
    std::vector<std::byte> packet(wire::atp_packet_size(header));
    wire::encode_atp_header(header, packet);
    const std::uint64_t host =
        prng_.below(2) == 0 ? 10 + prng_.below(kFanOut) : 20 + prng_.below(2);
    output_.packets = output_.longest = 0;
    plane_.on_run({packet, packet.size(), prng_.below(8) == 0}, member(host), Time());
    ASSERT_LE(output_.packets, kFanOut) << "packet " << i;
    ASSERT_LE(output_.longest, packet.size()) << "packet " << i;
    ++taken;
    most = std::max(most, output_.packets);
  }
  EXPECT_GT(taken, 5'000U);
  EXPECT_EQ(most, kFanOut);
}

TEST_F(FanOut, on_run__a_stranger_causes_nothing) {
  for (int i = 0; i < 20'000; ++i) {
    const wire::AtpHeader header = random_header();
    if (wire::check_atp_header(header) != wire::WireError::kNone) continue;
    std::vector<std::byte> packet(wire::atp_packet_size(header));
    wire::encode_atp_header(header, packet);
    plane_.on_run({packet, packet.size(), false}, member(99), Time());
  }
  EXPECT_EQ(output_.packets, 0U);
  EXPECT_GT(plane_.strangers(), 1000U);
}

}  // namespace
}  // namespace thalweg::switchd
