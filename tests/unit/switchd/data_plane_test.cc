// Which packets the data plane of a shard sends for those that arrive.
#include "switchd/data_plane.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "wire/atp_packet.h"

namespace thalweg::switchd {
namespace {

class CountingOutput final : public DataPlane::Output {
 public:
  std::span<std::byte> to_server(std::uint32_t /*job*/, std::uint64_t /*sequence*/,
                                 std::uint32_t path, std::size_t size) override {
    last_path = path;
    return room(size);
  }
  std::span<std::byte> to_workers(std::uint32_t /*job*/, const Receivers& receivers,
                                  std::uint32_t path, std::size_t size) override {
    last_path = path;
    last_worker = receivers.only;
    last_except = receivers.except;
    ends.push_back(receivers.only);
    return room(size);
  }
  [[nodiscard]] std::span<const std::byte> last() const { return bytes_; }
  int calls = 0;
  std::optional<std::size_t> last_worker;
  std::optional<std::size_t> last_except;
  std::vector<std::optional<std::size_t>> ends;  // of the packets to workers; none: all of them
  std::uint32_t last_path = 0;

 private:
  std::span<std::byte> room(std::size_t size) {
    ++calls;
    bytes_.resize(size);
    return bytes_;
  }
  std::vector<std::byte> bytes_;
};

// A gradient of job 1 that holds the contribution of one worker, as a rule the only one.
std::vector<std::byte> gradient(unsigned worker = 0, std::uint8_t fan_in = 1,
                                std::uint64_t sequence = 0) {
  wire::AtpHeader header;
  header.sequence = sequence;
  header.fan_in = fan_in;
  header.kind = wire::AtpKind::kGradient;
  header.job = 1;
  header.workers = wire::atp_bit(worker);
  header.group_count = 1;
  header.elements = 4;
  std::vector<std::byte> packet(wire::atp_packet_size(header));
  wire::encode_atp_header(header, packet);
  return packet;
}

TEST(DataPlane, on_run__a_packet_of_the_switch_itself_ends_there) {
  const auto at = [](const char* text) { return net::SocketAddress::numeric(text).value(); };
  CountingOutput output;
  DataPlane plane({.slots = 4, .slot_elements = 8}, 0, output);
  AdmittedJob job;
  job.id = 1;
  job.workers = {at("127.0.0.1:7701"), at("127.0.0.1:7702")};
  job.servers = {at("127.0.0.1:7701")};
  ASSERT_TRUE(plane.install(job).ok());
  const std::vector<std::byte> packet = gradient();
  const DataPlane::Run run{packet, packet.size(), false};
  plane.on_run(run, at("127.0.0.1:7701"), Time());
  EXPECT_EQ(output.calls, 1);
  plane.know_own(OwnAddresses(at("127.0.0.1:0"), {7700, 7701}));
  plane.on_run(run, at("127.0.0.1:7701"), Time());
  EXPECT_EQ(output.calls, 1);
  EXPECT_EQ(plane.looped(), 1U);
  plane.on_run(run, at("127.0.0.1:7702"), Time());
  EXPECT_EQ(output.calls, 2);
  EXPECT_EQ(plane.looped(), 1U);
}

TEST(DataPlane, on_run__tells_a_worker_which_packet_was_lost) {
  const auto at = [](const char* text) { return net::SocketAddress::numeric(text).value(); };
  CountingOutput output;
  DataPlane plane({.slots = 8, .slot_elements = 8, .reordering = 1}, 0, output);
  AdmittedJob job;
  job.id = 1;
  job.workers = {at("127.0.0.1:7701"), at("127.0.0.1:7702")};
  job.servers = {at("127.0.0.1:7701")};
  job.about.groups = 1;
  ASSERT_TRUE(plane.install(job).ok());
  const auto arrives = [&](const std::vector<std::byte>& packet, const char* from) {
    plane.on_run({packet, packet.size(), false}, at(from), Time());
  };
  arrives(gradient(0, 2, 0), "127.0.0.1:7701");
  EXPECT_EQ(output.calls, 0);
  arrives(gradient(1, 2, 1), "127.0.0.1:7702");
  ASSERT_EQ(output.calls, 1);
  EXPECT_EQ(output.last_worker, 1U);
  wire::AtpHeader header;
  ASSERT_EQ(wire::decode_atp_header(output.last(), header), wire::WireError::kNone);
  EXPECT_EQ(header.kind, wire::AtpKind::kMissing);
  EXPECT_EQ(header.sequence, 0U);
}

// The second level of a job of three groups: two workers here, and the switches of the others.
TEST(DataPlane, on_run__a_result_for_some_workers_goes_to_their_ends_alone) {
  const auto at = [](const char* text) { return net::SocketAddress::numeric(text).value(); };
  CountingOutput output;
  DataPlane plane({.slots = 8, .slot_elements = 8}, 0, output);
  AdmittedJob job;
  job.id = 1;
  job.workers = {at("127.0.0.1:7701"), at("127.0.0.1:7702"), at("127.0.0.1:7703"),
                 at("127.0.0.1:7704")};
  job.servers = {at("127.0.0.1:7701")};
  job.about.second_level = true;
  job.about.group_ends = {2, 1, 1};
  ASSERT_TRUE(plane.install(job).ok());
  struct Case {
    std::uint8_t group;
    std::uint32_t workers;
    std::uint32_t groups;
    std::vector<std::optional<std::size_t>> ends;
  };
  const std::vector<Case> cases{{0, 2, 0, {1}},    {0, 3, 0, {0, 1}},    {2, 5, 0, {3}},
                                {0, 1, 2, {0, 2}}, {1, 0, 5, {0, 1, 3}}, {0, 0, 7, {std::nullopt}}};
  for (const Case& each : cases) {
    wire::AtpHeader header;
    header.kind = wire::AtpKind::kParameter;
    header.job = 1;
    header.group = each.group;
    header.workers = each.workers;
    header.groups = each.groups;
    header.group_count = 3;
    header.fan_in = 3;
    header.elements = 4;
    std::vector<std::byte> packet(wire::atp_packet_size(header));
    wire::encode_atp_header(header, packet);
    output.ends.clear();
    plane.on_run({packet, packet.size(), false}, at("127.0.0.1:7701"), Time());
    EXPECT_EQ(output.ends, each.ends) << each.groups << " " << each.workers;
  }
}

// Three workers; the first two are servers and keep their own sums.
TEST(DataPlane, on_run__a_sum_does_not_go_back_to_a_server_that_keeps_its_own) {
  const auto at = [](const char* text) { return net::SocketAddress::numeric(text).value(); };
  CountingOutput output;
  DataPlane plane({.slots = 8, .slot_elements = 8, .reordering = 2}, 0, output);
  AdmittedJob job;
  job.id = 1;
  job.workers = {at("127.0.0.1:7701"), at("127.0.0.1:7702"), at("127.0.0.1:7703")};
  job.servers = {at("127.0.0.1:7701"), at("127.0.0.1:7702")};
  job.about.groups = 1;
  job.about.own_sums = true;
  ASSERT_TRUE(plane.install(job).ok());
  wire::AtpHeader header;
  header.kind = wire::AtpKind::kParameter;
  header.job = 1;
  header.sequence = 1;
  header.groups = 1;
  header.fan_in = 2;
  header.elements = 4;
  const auto arrives = [&](const wire::AtpHeader& one, const char* from) {
    std::vector<std::byte> packet(wire::atp_packet_size(one));
    wire::encode_atp_header(one, packet);
    plane.on_run({packet, packet.size(), false}, at(from), Time());
  };
  arrives(header, "127.0.0.1:7702");
  EXPECT_EQ(output.calls, 1);
  EXPECT_EQ(output.last_worker, std::nullopt);
  EXPECT_EQ(output.last_except, 1U);
  header.groups = 0;
  header.workers = 0b110;
  output.ends.clear();
  arrives(header, "127.0.0.1:7702");
  EXPECT_EQ(output.ends, (std::vector<std::optional<std::size_t>>{2}));
  // Worker 0's gradients of even sequences never come, and are not missed; those of odd ones are.
  output.ends.clear();
  for (const std::uint64_t sequence : {4U, 5U}) {
    const std::vector<std::byte> packet = gradient(2, 2, sequence);
    plane.on_run({packet, packet.size(), false}, at("127.0.0.1:7703"), Time());
  }
  for (const std::uint64_t sequence : {6U, 7U}) {
    const std::vector<std::byte> packet = gradient(0, 2, sequence);
    plane.on_run({packet, packet.size(), false}, at("127.0.0.1:7701"), Time());
    EXPECT_EQ(output.ends.size(), sequence - 6) << sequence;
  }
}

TEST(DataPlane, on_run__a_changed_header_is_counted_and_goes_nowhere) {
  const auto at = [](const char* text) { return net::SocketAddress::numeric(text).value(); };
  CountingOutput output;
  DataPlane plane({.slots = 4, .slot_elements = 8}, 0, output);
  AdmittedJob job;
  job.id = 1;
  job.workers = {at("127.0.0.1:7701")};
  job.servers = {at("127.0.0.1:7702")};
  ASSERT_TRUE(plane.install(job).ok());
  std::vector<std::byte> packet = gradient();
  packet[9] ^= std::byte{1};
  plane.on_run({packet, packet.size(), false}, at("127.0.0.1:7701"), Time());
  EXPECT_EQ(output.calls, 0);
  EXPECT_EQ(plane.corrupt(), 1U);
  EXPECT_EQ(plane.malformed(), 0U);
}

TEST(DataPlane, on_run__a_job_with_a_key_takes_no_packet_that_only_has_a_workers_address) {
  const auto at = [](const char* text) { return net::SocketAddress::numeric(text).value(); };
  CountingOutput output;
  DataPlane plane({.slots = 4, .slot_elements = 8}, 0, output);
  AdmittedJob job;
  job.id = 1;
  job.workers = {at("127.0.0.1:7701")};
  job.servers = {at("127.0.0.1:7702")};
  job.key = wire::JobKey::from_hex("0123456789abcdef0123456789abcdef").value();
  ASSERT_TRUE(plane.install(job).ok());
  const std::vector<std::byte> bare = gradient();
  plane.on_run({bare, bare.size(), false}, at("127.0.0.1:7701"), Time());
  EXPECT_EQ(plane.refused(1).keying, 1U);
  // One with a tag, but of somebody who does not hold the key.
  wire::AtpHeader header;
  ASSERT_EQ(wire::decode_atp_header(bare, header), wire::WireError::kNone);
  header.keyed = true;
  std::vector<std::byte> tagged(wire::atp_packet_size(header));
  wire::encode_atp_header(header, tagged);
  plane.on_run({tagged, tagged.size(), false}, at("127.0.0.1:7701"), Time());
  EXPECT_EQ(plane.refused(1).forged, 1U);
  EXPECT_EQ(output.calls, 0);
}

// A switch whose only worker is another switch with three ports.
TEST(DataPlane, on_run__a_switch_sends_from_its_further_ports_and_is_sent_to_by_as_many_paths) {
  const auto at = [](const char* text) { return net::SocketAddress::numeric(text).value(); };
  CountingOutput output;
  DataPlane plane({.slots = 64, .slot_elements = 8}, 0, output);
  AdmittedJob job;
  job.id = 1;
  job.workers = {at("127.0.0.1:7701")};
  job.servers = {at("127.0.0.1:7702")};
  job.sources = {{at("127.0.0.1:7701"), {at("127.0.0.1:7801"), at("127.0.0.1:7802")}}};
  ASSERT_TRUE(plane.install(job).ok());
  const auto arrives = [&](std::uint64_t sequence, const char* from, bool again = false) {
    std::vector<std::byte> packet = gradient(0, 1, sequence);
    if (again) {
      wire::AtpHeader header;
      ASSERT_EQ(wire::decode_atp_header(packet, header), wire::WireError::kNone);
      header.resend = true;
      wire::encode_atp_header(header, packet);
    }
    plane.on_run({packet, packet.size(), false}, at(from), Time());
  };
  int calls = 0;
  for (const char* from : {"127.0.0.1:7701", "127.0.0.1:7801", "127.0.0.1:7802"}) {
    arrives(0, from);
    EXPECT_EQ(output.calls, ++calls) << from;
    EXPECT_EQ(plane.received_from(at(from)).packets, 1U);
  }
  arrives(0, "127.0.0.1:7803");
  EXPECT_EQ(output.calls, calls);
  EXPECT_EQ(plane.strangers(), 1U) << "a port that the job does not name";
  EXPECT_EQ(plane.refused(1).foreign, 0U);
  // Runs of sequences take each path in turn.
  for (std::uint64_t sequence = 0; sequence < 6 * wire::kAtpPathRun; ++sequence) {
    arrives(sequence, "127.0.0.1:7801");
    EXPECT_EQ(output.last_path, sequence / wire::kAtpPathRun % 3) << sequence;
  }
  // What comes again may have met a dead path, so it takes another each time.
  arrives(0, "127.0.0.1:7801", true);
  const std::uint32_t first = output.last_path;
  arrives(0, "127.0.0.1:7801", true);
  EXPECT_NE(output.last_path, first);
  // Another job that names one of the ports keeps it when this one ends.
  AdmittedJob other = job;
  other.id = 2;
  other.workers = {at("127.0.0.1:7801")};
  other.sources.clear();
  ASSERT_TRUE(plane.install(other).ok());
  plane.remove(1);
  arrives(0, "127.0.0.1:7802");
  EXPECT_EQ(plane.strangers(), 2U);
  EXPECT_GT(plane.received_from(at("127.0.0.1:7801")).packets, 0U);
}

TEST(OwnAddresses, contains__hosts_and_ports_that_the_sockets_receive_at) {
  const auto at = [](const char* text) { return net::SocketAddress::numeric(text).value(); };
  const OwnAddresses one(at("10.9.0.1:0"), {7701, 7702});
  EXPECT_TRUE(one.contains(at("10.9.0.1:7702")));
  EXPECT_FALSE(one.contains(at("10.9.0.1:7703")));
  EXPECT_FALSE(one.contains(at("10.9.0.2:7701")));
  EXPECT_FALSE(one.contains(at("127.0.0.1:7701")));
  const OwnAddresses all(at("[::]:0"), {7701});
  EXPECT_TRUE(all.contains(at("[::1]:7701")));
  EXPECT_TRUE(all.contains(at("[::ffff:127.0.0.1]:7701")));
  EXPECT_FALSE(all.contains(at("[2001:db8::1]:7701")));
}

}  // namespace
}  // namespace thalweg::switchd
