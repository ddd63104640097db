// In which order a link sends, and how many short transfers it carries one after the other.
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "net/net_pair.h"
#include "net/raw_peer.h"
#include "proto/dlcp/record_codec.h"
#include "wire/control_message.h"

namespace thalweg {
namespace {

std::vector<std::byte> encoded(const ControlMessage& message, std::uint64_t sequence) {
  const ControlEnvelope envelope{kToken, sequence, false};
  std::vector<std::byte> bytes(control_size(message, envelope));
  encode_control(message, envelope, bytes);
  return bytes;
}

// The next datagram; empty if none comes.
std::vector<std::byte> next_datagram(int fd) {
  pollfd wanted{fd, POLLIN, 0};
  if (poll(&wanted, 1, 5000) != 1) return {};
  std::vector<std::byte> bytes(65536);
  bytes.resize(static_cast<std::size_t>(std::max<ssize_t>(0, recv(fd, bytes.data(), 65536, 0))));
  return bytes;
}

// A datagram of signals has the ready of this key.
bool has_ready(std::span<const std::byte> datagram, std::uint64_t key) {
  std::size_t size = 0;
  while (peek_control(datagram, size) == WireError::kNone && size <= datagram.size()) {
    ControlMessage message;
    ControlEnvelope about;
    if (decode_control(datagram.first(size), message, about) != WireError::kNone) return false;
    const auto* ready = std::get_if<ReadyMessage>(&message);
    if (ready != nullptr && ready->key == key) return true;
    datagram = datagram.subspan(size);
  }
  return false;
}

bool is_data(std::span<const std::byte> datagram) {
  DataHeader header;
  return decode_data_header(datagram, header) == WireError::kNone;
}

// A peer that waits for us to be ready does not also wait until our own data has left the line.
TEST(Link, turn__signals_leave_before_data) {
  const std::vector<float> source(35'000);
  std::vector<float> target(350);
  EndpointOptions options = test_options("server");
  options.listen = "127.0.0.1:0";
  const Endpoint server = Endpoint::create(options).value();
  const RawPeer raw(server.address(), test_options("raw"));
  const Result<Peer> peer = server.accept(seconds(5));
  ASSERT_TRUE(peer.ok());

  constexpr std::uint64_t kSent = 1;
  constexpr std::uint64_t kReceived = 2;
  const auto first = peer->recv(TensorSpan::of(target), {.key = 0});
  // In the endpoint's thread, so that both start in the same turn.
  first->on_done([&](const Result<TransferReport>&) {
    EXPECT_TRUE(peer->send(TensorView::of(source), {.key = kSent}).ok());
    EXPECT_TRUE(peer->recv(TensorSpan::of(target), {.key = kReceived}).ok());
  });
  ReadyMessage ready;
  ready.transfer = 5;
  ready.key = kSent;
  ready.tensor_bytes = source.size() * sizeof(float);
  ready.segment_bytes = 1400;
  ready.type = DType::kFloat32;
  send_raw(raw.stream(), encoded(ready, 0));
  ASSERT_TRUE(has_ready(next_datagram(raw.udp()), 0));
  send_raw(raw.stream(), encoded(CancelMessage{0, false, CancelReason::kCancelled, "now"}, 1));
  EXPECT_TRUE(has_ready(next_datagram(raw.udp()), kReceived));
  EXPECT_TRUE(is_data(next_datagram(raw.udp())));
}

// None waits for a later one, or for a timer. (In virtual time, to the packet:
// DlcpSendTest.poll_data__short_transfers_follow_each_other.)
TEST(Link, send__short_transfers_follow_each_other_at_the_line_rate) {
  EndpointOptions options = test_options("either");
  options.line_rate_gbps = 1;
  constexpr std::size_t kTransfers = 128;
  constexpr std::size_t kEach = 2'800;  // floats: 8 packets
  const std::vector<float> source(kTransfers * kEach, 3.0F);
  std::vector<float> target(source.size());
  NetPair pair = NetPair::make(options, options);
  std::chrono::nanoseconds best = std::chrono::hours(1);
  for (int turn = 0; turn < 5; ++turn) {
    std::vector<std::size_t> ended;  // the endpoint's thread, until all are over
    std::vector<Transfer> all;
    for (std::size_t i = 0; i < kTransfers; ++i) {
      const TensorSpan span{target.data() + i * kEach, kEach, DType::kFloat32};
      const auto receiving = pair.at_server.recv(span, {.key = i});
      ASSERT_TRUE(receiving.ok());
      receiving->on_done([&, i](const Result<TransferReport>&) { ended.push_back(i); });
      all.push_back(*receiving);
    }
    const auto start = std::chrono::steady_clock::now();
    for (std::size_t i = 0; i < kTransfers; ++i) {
      const TensorView view{source.data() + i * kEach, kEach, DType::kFloat32};
      ASSERT_TRUE(pair.at_client.send(view, {.key = i}).ok());
    }
    for (const Transfer& transfer : all) ASSERT_TRUE(transfer.wait().ok());
    best = std::min<std::chrono::nanoseconds>(best, std::chrono::steady_clock::now() - start);
    // on_done comes after wait() is over; the next call to the endpoint's thread comes after both.
    static_cast<void>(pair.at_server.counters());
    if (pair.at_client.counters().packets_retransmitted > 0) continue;
    std::vector<std::size_t> started(kTransfers);
    std::iota(started.begin(), started.end(), std::size_t{0});
    EXPECT_EQ(ended, started);
  }
  EXPECT_EQ(source, target);
  // 1024 packets of 1502 bytes take 12.3 ms; a busy machine takes longer.
  EXPECT_LT(best, milliseconds(40));
}

// Reports go on at half the rate, and a receiver that is kept busy for a while is not taken for a
// path that is congested: each spans several bursts.
TEST(Link, options__a_report_spans_several_bursts) {
  const std::string folder = testing::TempDir() + "thalweg-link-" + std::to_string(getpid());
  std::filesystem::create_directory(folder);
  for (const double gbps : {0.1, 1.0, 10.0, 100.0}) {
    SCOPED_TRACE(gbps);
    EndpointOptions client = test_options("client");
    client.line_rate_gbps = gbps;
    client.record_folder = folder;
    {
      const NetPair pair = NetPair::make(test_options("server"), client);
    }
    std::ifstream in(folder + "/client-0.dlcp", std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    const std::vector<std::byte> content = *recording_content(std::as_bytes(std::span(text)));
    DlcpOptions options;
    RecordDecoder decoder(content, {});
    describe(decoder, options);
    ASSERT_TRUE(decoder.ok());
    const Bytes packet = Bytes(1400) + options.packet_overhead;
    const Duration burst =
        options.rate.line_rate.transmission_time(packet * options.burst_segments);
    EXPECT_GE(options.rate.report_period, burst * 4);
    EXPECT_GE(options.rate.report_period, Duration::microseconds(200));
    // Each millisecond as much is added as by the defaults, but a quarter of the line at most.
    const double per_ms = options.rate.increase_step / options.rate.report_period.s() / 1000;
    EXPECT_TRUE(options.rate.increase_step == 0.25 || std::abs(per_ms - 0.25) < 1e-9) << per_ms;
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace thalweg
