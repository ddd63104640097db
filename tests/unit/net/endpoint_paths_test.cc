// Peers with several paths: UDP ports of both ends, over loopback.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "net/io/udp_socket.h"
#include "net/net_pair.h"
#include "net/raw_peer.h"
#include "wire/control_message.h"
#include "wire/data_header.h"

namespace thalweg::net {
namespace {

EndpointOptions with_paths(const std::string& name, std::uint32_t paths) {
  EndpointOptions options = test_options(name);
  options.paths = paths;
  return options;
}

// Moves tensors both ways, and expects them to arrive whole.
void exchange(const NetPair& pair, std::size_t count) {
  std::vector<std::int32_t> source(count);
  std::iota(source.begin(), source.end(), 7);
  for (std::uint64_t i = 0; i < 6; ++i) {
    SCOPED_TRACE(i);
    std::vector<std::int32_t> target(count);
    const Peer& from = i % 2 == 0 ? pair.at_client : pair.at_server;
    const Peer& to = i % 2 == 0 ? pair.at_server : pair.at_client;
    const auto receiving = to.recv(TensorSpan::of(target), {.key = i});
    EXPECT_EQ(error_of(from.send(TensorView::of(source), {.key = i})), "");
    EXPECT_EQ(error_of(receiving), "");
    EXPECT_EQ(source, target);
  }
}

TEST(EndpointPaths, send_recv__exact_over_several_paths_with_and_without_a_key) {
  for (const bool keyed : {false, true}) {
    for (const bool offload : {false, true}) {
      SCOPED_TRACE(testing::Message() << "keyed " << keyed << " offload " << offload);
      EndpointOptions server = with_paths("server", 8);
      EndpointOptions client = with_paths("client", 8);
      client.offload = offload;
      if (keyed) server.job_key = client.job_key = "00112233445566778899aabbccddeeff";
      const auto lose = [](std::uint64_t sequence) { return sequence % 100 == 7; };
      const NetPair pair = NetPair::make(server, client, {.client = lose});
      exchange(pair, 300'000);
      const NetCounters counters = pair.at_client.counters();
      EXPECT_GT(counters.packets_retransmitted, 0U);
      EXPECT_EQ(counters.packets_bad + counters.packets_forged + counters.packets_stale, 0U);
      if (!offload) continue;
      EXPECT_LT(counters.send_calls * 5, counters.packets_sent) << "packets leave in batches";
    }
  }
}

TEST(EndpointPaths, send_recv__the_smaller_number_of_both_ends_holds) {
  for (const std::uint32_t ours : {1U, 3U, 32U}) {
    SCOPED_TRACE(ours);
    exchange(NetPair::make(with_paths("server", ours), with_paths("client", 4)), 100'000);
  }
}

TEST(EndpointPaths, create__too_many_paths_are_refused) {
  const Result<Endpoint> made = Endpoint::create(with_paths("server", 33));
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().message(), "paths: 33; from 0 to 32 are allowed");
}

// A peer made by hand that announces several ports.
struct RawPaths {
  Fd stream;
  std::vector<UdpSocket> udp;
  Hello theirs;
};

RawPaths greet(const std::string& address, std::size_t paths) {
  RawPaths raw{raw_connection(address),
               *UdpSocket::bind_row(*SocketAddress::resolve("127.0.0.1:0"), paths,
                                    {.receive_buffer_bytes = 8U << 20}),
               {}};
  send_raw(raw.stream.get(), encode_hello({.job = kToken,
                                           .udp_port = raw.udp.front().port(),
                                           .paths = static_cast<std::uint8_t>(paths),
                                           .payload = 1400,
                                           .name = "raw"}));
  std::array<std::byte, kHelloSize> answer{};
  receive_raw(raw.stream.get(), answer);
  EXPECT_EQ(decode_hello(answer, raw.theirs), wire::WireError::kNone);
  return raw;
}

TEST(EndpointPaths, send__path_i_leads_from_port_i_to_port_i) {
  EndpointOptions options = with_paths("server", 4);
  options.listen = "127.0.0.1:0";
  const Endpoint server = Endpoint::create(options).value();
  RawPaths raw = greet(server.address(), 3);
  ASSERT_EQ(raw.theirs.paths, 3);
  const Result<Peer> peer = server.accept(seconds(5));
  ASSERT_TRUE(peer.ok());
  const std::vector<float> source(350 * 1000);
  ASSERT_TRUE(peer->send(TensorView::of(source), {.key = 1}).ok());
  wire::ReadyMessage ready;
  ready.key = 1;
  ready.tensor_bytes = source.size() * sizeof(float);
  ready.segment_bytes = 1400;
  ready.type = DType::kFloat32;
  const wire::ControlEnvelope envelope{.job = kToken, .sequence = 0, .checked = true};
  std::vector<std::byte> bytes(wire::control_size(ready, envelope));
  wire::encode_control(ready, envelope, bytes);
  send_raw(raw.stream.get(), bytes);
  std::array<std::size_t, 3> packets{};
  ASSERT_TRUE(soon([&] {
    for (std::size_t i = 0; i < raw.udp.size(); ++i) {
      UdpSocket::Arrival arrival;
      SocketAddress from;
      while (raw.udp[i].receive(arrival, &from) == UdpSocket::Received::kPackets) {
        EXPECT_EQ(from.port(), raw.theirs.udp_port + i);
        wire::DataHeader header;
        const auto first = arrival.bytes.first(std::min(arrival.packet_size, arrival.bytes.size()));
        if (wire::decode_data_header(first, header) != wire::WireError::kNone) continue;
        packets[i] += (arrival.bytes.size() + arrival.packet_size - 1) / arrival.packet_size;
      }
    }
    return std::accumulate(packets.begin(), packets.end(), std::size_t{0}) >= 1000;
  }));
  for (const std::size_t count : packets) EXPECT_NEAR(static_cast<double>(count), 1000.0 / 3, 100);
}

}  // namespace
}  // namespace thalweg::net
