// Parts of ATP on sockets: the options of its worker, the messages about jobs, and one socket for
// many ends.
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/messages.h"
#include "net/atp/job_message.h"
#include "net/atp/member.h"
#include "net/atp/packet_train.h"
#include "net/atp/worker_driver.h"
#include "net/io/system.h"
#include "net/io/tcp.h"
#include "net/io/udp_socket.h"

namespace thalweg::net {
namespace {

wire::AtpHeader parameter(const proto::AtpTransmit& of) {
  wire::AtpHeader header = of.header;
  header.kind = wire::AtpKind::kParameter;
  header.level = 0;
  return header;
}

// Delivers the sums of all sequences but the first, in order. Returns how often the first one is
// sent again, and expects that no timeout passes.
int sent_again_without_timeouts(int servers) {
  AtpNodeOptions node;
  node.members.resize(static_cast<std::size_t>(servers));
  node.servers = servers;
  proto::AtpWorker worker(worker_options(node));
  const std::int64_t elements = std::int64_t{4096} * node.elements;
  EXPECT_TRUE(worker.start({.elements = elements}, Time()).ok());
  int again = 0;
  proto::AtpTransmit transmit;
  std::vector<proto::AtpTransmit> flight;
  do {
    flight.clear();
    while (worker.poll_transmit(Time(), transmit)) flight.push_back(transmit);
    for (const proto::AtpTransmit& each : flight) {
      again += each.header.resend && each.header.sequence == 0 ? 1 : 0;
      if (each.header.sequence > 0) (void)worker.on_parameter(parameter(each), Time());
    }
  } while (!flight.empty() && again == 0);
  EXPECT_EQ(worker.counters().timeouts, 0U);
  return again;
}

TEST(AtpWorkerOptions, out_of_sequence__a_loss_is_found_with_any_number_of_servers) {
  for (const int servers : {1, 2, 4, 8, 32}) {
    EXPECT_EQ(sent_again_without_timeouts(servers), 1) << servers << " servers";
  }
}

TEST(JobMessage, request__every_field_travels) {
  JobRequest request;
  request.id = 9;
  request.name = "one";
  request.workers = {"127.0.0.1:1", "127.0.0.1:2"};
  request.servers = {"127.0.0.1:3"};
  request.limit = 5;
  request.window = 64;
  request.groups = 0;
  request.second_level = true;
  request.own_sums = true;
  request.keyed = true;
  request.lease = true;
  request.sources["127.0.0.1:2"] = {7, 9};
  const Result<JobRequest> again = job_request_from(to_json(request));
  ASSERT_TRUE(again.ok()) << again.error().message();
  EXPECT_TRUE(*again == request);
}

TEST(JobMessage, grant__elements_of_0_are_refused) {
  AtpJob job;
  job.grant = {.id = 3, .key = {}, .data = {"127.0.0.1:1"}, .elements = 64};
  job.servers = 2;
  job.own_sums = true;
  nlohmann::json fields = to_json(job);
  ASSERT_TRUE(atp_job_from(fields).ok());
  EXPECT_TRUE(*atp_job_from(fields) == job);
  fields["elements"] = 0U;
  EXPECT_EQ(message_of(atp_job_from(fields)),
            "elements: 0; a whole number from 1 to 2048 is allowed");
  fields["elements"] = 64U;
  fields["servers"] = 33U;
  EXPECT_EQ(message_of(atp_job_from(fields)),
            "servers: 33; a whole number from 1 to 32 is allowed");
}

UdpSocket socket_here() {
  return std::move(UdpSocket::bind(SocketAddress::resolve("127.0.0.1:0").value(), {}).value());
}

TEST(UdpSocket, send_run__an_end_that_cannot_be_reached_costs_others_nothing) {
  UdpSocket from = socket_here();
  UdpSocket to = socket_here();
  const SocketAddress good = SocketAddress::local_of(to.fd());
  SocketAddress bad = good;
  bad.set_port(0);
  const std::array<std::byte, 200> bytes{};
  // Sends two packets of 100 bytes, and returns in how many calls they were received.
  const auto calls = [&] {
    EXPECT_EQ(from.send_run(bytes, 100, 0, &good), UdpSocket::Sent::kAll);
    int count = 0;
    UdpSocket::Arrival arrival;
    for (std::size_t got = 0; got < bytes.size(); ++count) {
      if (!wait_for_socket(to.fd(), POLLIN, monotonic_now() + Duration::milliseconds(5000))) break;
      if (to.receive(arrival) == UdpSocket::Received::kPackets) got += arrival.bytes.size();
    }
    return count;
  };
  const int before = calls();
  EXPECT_EQ(from.send_run(bytes, 100, 0, &bad), UdpSocket::Sent::kAll);
  EXPECT_EQ(calls(), before);
}

// Three packets, of which the middle one is not for the second end.
TEST(PacketTrain, add__a_packet_that_is_not_for_one_end) {
  UdpSocket from = socket_here();
  UdpSocket first = socket_here();
  UdpSocket second = socket_here();
  PacketTrain train(from,
                    {SocketAddress::local_of(first.fd()), SocketAddress::local_of(second.fd())});
  for (int i = 0; i < 3; ++i) {
    const std::size_t size = i == 2 ? 40 : 100;
    const std::span<std::byte> room =
        train.add(size, 0, i == 1 ? std::optional<std::size_t>(1) : std::nullopt);
    std::ranges::fill(room, static_cast<std::byte>('a' + i));
  }
  train.flush();
  // What arrives at a socket, each packet by its letter and size.
  const auto arrived = [](UdpSocket& to, std::size_t bytes) {
    std::string text;
    UdpSocket::Arrival arrival;
    for (std::size_t got = 0; got < bytes;) {
      if (!wait_for_socket(to.fd(), POLLIN, monotonic_now() + Duration::milliseconds(5000))) break;
      if (to.receive(arrival) != UdpSocket::Received::kPackets) continue;
      for (std::size_t at = 0; at < arrival.bytes.size(); at += arrival.packet_size) {
        const std::size_t size = std::min(arrival.packet_size, arrival.bytes.size() - at);
        text += static_cast<char>(arrival.bytes[at]) + std::to_string(size);
        got += size;
      }
    }
    return text;
  };
  EXPECT_EQ(arrived(first, 240), "a100b100c40");
  EXPECT_EQ(arrived(second, 140), "a100c40");
  EXPECT_EQ(train.counters().packets, 3U);
  EXPECT_EQ(train.counters().lost, 0U);
}

// A server that is alone in its group has nobody to sum with in the switch.
TEST(AtpSeats, own_sums_possible__every_server_has_another_rank_in_its_group) {
  const std::array<std::uint8_t, 3> groups{2, 3, 1};
  EXPECT_TRUE(own_sums_possible(groups, 5));
  EXPECT_FALSE(own_sums_possible(groups, 6));
  AtpNodeOptions node;
  node.members.resize(6);
  node.groups.assign(groups.begin(), groups.end());
  node.servers = 4;
  EXPECT_TRUE(atp_seats(node).empty());
  node.own_sums = true;
  const auto seats = atp_seats(node);
  ASSERT_EQ(seats.size(), 4U);
  EXPECT_EQ(seats[1], (proto::AtpSeat{0, 1}));
  EXPECT_EQ(seats[3], (proto::AtpSeat{1, 1}));
}

}  // namespace
}  // namespace thalweg::net
