// Parts of ATP on sockets: the options of its worker, the messages about jobs, and one socket for
// many ends.
#include <gtest/gtest.h>
#include <poll.h>

#include <array>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/messages.h"
#include "net/atp/job_message.h"
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

}  // namespace
}  // namespace thalweg::net
