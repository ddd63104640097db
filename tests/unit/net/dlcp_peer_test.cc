// The order in which a connection sends, and how fast short transfers follow each other.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "net/net_pair.h"
#include "net/raw_peer.h"
#include "proto/dlcp/record/record_codec.h"
#include "sanitized.h"
#include "wire/control_message.h"

namespace thalweg::net {
namespace {

std::vector<std::byte> encoded(const wire::ControlMessage& message, std::uint64_t sequence) {
  const wire::ControlEnvelope envelope{.job = kToken, .sequence = sequence, .checked = true};
  std::vector<std::byte> bytes(wire::control_size(message, envelope));
  wire::encode_control(message, envelope, bytes);
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

// Whether a datagram of signals contains the ready of this key.
bool has_ready(std::span<const std::byte> datagram, std::uint64_t key) {
  std::size_t size = 0;
  while (wire::peek_control(datagram, size) == wire::WireError::kNone && size <= datagram.size()) {
    wire::ControlMessage message;
    wire::ControlEnvelope about;
    if (wire::decode_control(datagram.first(size), message, about) != wire::WireError::kNone)
      return false;
    const auto* ready = std::get_if<wire::ReadyMessage>(&message);
    if (ready != nullptr && ready->key == key) return true;
    datagram = datagram.subspan(size);
  }
  return false;
}

bool is_data(std::span<const std::byte> datagram) {
  wire::DataHeader header;
  return wire::decode_data_header(datagram, header) == wire::WireError::kNone;
}

// A peer that waits for this end's ready need not wait until this end's own data has left.
TEST(DlcpPeer, turn__signals_leave_before_data) {
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
  // Both start in the endpoint's thread, and so in the same turn.
  first->on_done([&](const Result<TransferReport>&) {
    EXPECT_TRUE(peer->send(TensorView::of(source), {.key = kSent}).ok());
    EXPECT_TRUE(peer->recv(TensorSpan::of(target), {.key = kReceived}).ok());
  });
  wire::ReadyMessage ready;
  ready.transfer = 5;
  ready.key = kSent;
  ready.tensor_bytes = source.size() * sizeof(float);
  ready.segment_bytes = 1400;
  ready.type = DType::kFloat32;
  send_raw(raw.stream(), encoded(ready, 0));
  ASSERT_TRUE(has_ready(next_datagram(raw.udp()), 0));
  send_raw(raw.stream(),
           encoded(wire::CancelMessage{0, false, wire::CancelReason::kCancelled, "now"}, 1));
  EXPECT_TRUE(has_ready(next_datagram(raw.udp()), kReceived));
  EXPECT_TRUE(is_data(next_datagram(raw.udp())));
}

// The next datagram and its DSCP. Requires IP_RECVTOS.
std::pair<std::vector<std::byte>, int> next_with_dscp(int fd) {
  pollfd wanted{fd, POLLIN, 0};
  if (poll(&wanted, 1, 5000) != 1) return {{}, -1};
  std::vector<std::byte> bytes(65536);
  std::array<std::byte, 256> control{};
  iovec piece{bytes.data(), bytes.size()};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  bytes.resize(static_cast<std::size_t>(std::max<ssize_t>(0, recvmsg(fd, &message, 0))));
  const cmsghdr* tos = CMSG_FIRSTHDR(&message);
  return {bytes, tos == nullptr ? -1 : static_cast<int>(*CMSG_DATA(tos)) >> 2};
}

// The stop that a datagram of signals ends with.
std::optional<wire::StopMessage> last_stop(std::span<const std::byte> datagram) {
  std::optional<wire::StopMessage> last;
  std::size_t size = 0;
  while (wire::peek_control(datagram, size) == wire::WireError::kNone && size <= datagram.size()) {
    wire::ControlMessage message;
    wire::ControlEnvelope about;
    if (wire::decode_control(datagram.first(size), message, about) != wire::WireError::kNone) break;
    const auto* stop = std::get_if<wire::StopMessage>(&message);
    last = stop == nullptr ? std::nullopt : std::optional(*stop);
    datagram = datagram.subspan(size);
  }
  return last;
}

TEST(DlcpPeer, send__the_copy_of_a_stop_takes_the_queue_of_its_data) {
  const std::vector<float> source(700);
  EndpointOptions options = test_options("server");
  options.listen = "127.0.0.1:0";
  const Endpoint server = Endpoint::create(options).value();
  const RawPeer raw(server.address(), test_options("raw"));
  const Result<Peer> peer = server.accept(seconds(5));
  ASSERT_TRUE(peer.ok());
  constexpr int kOn = 1;
  ASSERT_EQ(setsockopt(raw.udp(), IPPROTO_IP, IP_RECVTOS, &kOn, sizeof(kOn)), 0);
  // The less urgent one first, so that its stop cannot vouch for the other's data, nor the other
  // way round.
  constexpr std::array<std::uint8_t, 3> kQueues{6, 2, 4};
  for (std::uint64_t key = 0; key < kQueues.size(); ++key) {
    ASSERT_TRUE(
        peer->send(TensorView::of(source), {.key = key, .tag = {.priority = kQueues[key]}}).ok());
  }
  for (std::uint64_t key = 0; key < kQueues.size(); ++key) {
    wire::ReadyMessage ready;
    ready.transfer = static_cast<std::uint32_t>(key);
    ready.key = key;
    ready.tensor_bytes = source.size() * sizeof(float);
    ready.segment_bytes = 1400;
    ready.type = DType::kFloat32;
    send_raw(raw.stream(), encoded(ready, key));
  }
  std::set<std::uint8_t> stopped;
  while (stopped.size() < kQueues.size()) {
    const auto [datagram, dscp] = next_with_dscp(raw.udp());
    ASSERT_FALSE(datagram.empty()) << "no copy of a stop";
    wire::DataHeader header;
    if (wire::decode_data_header(datagram, header) == wire::WireError::kNone) {
      EXPECT_EQ(dscp, kDefaultDscp[header.tag.priority]);
    } else if (const auto stop = last_stop(datagram)) {
      EXPECT_EQ(dscp, kDefaultDscp[stop->queue]);
      stopped.insert(stop->queue);
      if (stop->queue == 4) stopped.insert(2);  // a less urgent stop may carry the one before it
    } else {
      EXPECT_EQ(dscp, kDefaultDscp[kControlPriority]);
    }
  }
}

// A switch or a card may change a packet after it has checked it. Two words of 16 bits that changed
// places pass the checksum of UDP.
TEST(DlcpPeer, receive__a_packet_that_changed_on_its_way_is_counted_and_changes_nothing) {
  EndpointOptions options = test_options("server");
  options.listen = "127.0.0.1:0";
  const Endpoint server = Endpoint::create(options).value();
  const RawPeer raw(server.address(), test_options("raw"));
  const Result<Peer> peer = server.accept(seconds(5));
  ASSERT_TRUE(peer.ok());
  std::vector<float> target(700, -1.0F);
  const auto receiving = peer->recv(TensorSpan::of(target), {});
  std::vector<std::byte> ready(wire::control_size(wire::ReadyMessage(), {.checked = true}));
  receive_raw(raw.stream(), ready);

  constexpr std::size_t kHead = wire::data_overhead(false);
  std::vector<float> values(350);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  std::vector<std::byte> good(kHead + values.size() * sizeof(float));
  std::ranges::copy(std::as_bytes(std::span(values)), good.begin() + kHead);
  wire::DataHeader header;
  header.job = kToken;
  header.length = static_cast<std::uint16_t>(good.size() - kHead);
  wire::encode_data_header(header, good);
  wire::put_checksum(std::span(good).first(kHead), std::span(good).subspan(kHead));
  std::vector<std::byte> swapped = good;
  std::swap_ranges(swapped.begin() + kHead + 6, swapped.begin() + kHead + 8,
                   swapped.begin() + kHead + 10);
  ASSERT_NE(swapped, good);
  raw.send_data(swapped);
  EXPECT_TRUE(soon([&] { return peer->counters().packets_corrupt == 1; }));
  EXPECT_EQ(peer->counters().packets_received, 0U);
  EXPECT_EQ(target, std::vector<float>(700, -1.0F));
  raw.send_data(good);
  EXPECT_TRUE(soon([&] { return peer->counters().packets_received == 1; }));
  EXPECT_EQ(peer->counters().packets_corrupt, 1U);
  receiving->cancel();
  EXPECT_NE(error_of(receiving), "");
}

TEST(DlcpPeer, stream__signals_have_the_code_point_of_the_top_queue) {
  const auto streams = [] {
    int found = 0;
    for (int fd = 0; fd < 1024; ++fd) {
      int type = 0;
      int tos = 0;
      socklen_t size = sizeof(int);
      if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) != 0 || type != SOCK_STREAM) continue;
      if (getsockopt(fd, IPPROTO_IP, IP_TOS, &tos, &size) != 0) continue;
      found += tos >> 2 == kDefaultDscp[kControlPriority] ? 1 : 0;
    }
    return found;
  };
  const int before = streams();
  const NetPair pair = NetPair::make(test_options("server"), test_options("client"));
  EXPECT_EQ(streams(), before + 2) << "one at each end";
}

TEST(EndpointOptions, grace__is_the_same_in_every_world) {
  const GraceOptions here;
  const proto::GraceOptions everywhere;
  EXPECT_EQ(Duration::nanoseconds(here.initial.count()), everywhere.initial);
  EXPECT_EQ(Duration::nanoseconds(here.least.count()), everywhere.least);
  EXPECT_EQ(Duration::nanoseconds(here.most.count()), everywhere.most);
}

// No transfer waits for a later one or for a timer. (In virtual time, exact to the packet:
// DlcpSendTest.poll_data__short_transfers_follow_each_other.)
TEST(DlcpPeer, send__short_transfers_follow_each_other_at_the_line_rate) {
  EndpointOptions options = test_options("either");
  options.line_rate_gbps = 1;
  constexpr std::size_t kTransfers = 128;
  constexpr std::size_t kEach = 2'800;  // floats: 8 packets
  const std::vector<float> source(kTransfers * kEach, 3.0F);
  std::vector<float> target(source.size());
  NetPair pair = NetPair::make(options, options);
  // 1024 packets of 1502 bytes take 12.3 ms. On a busy machine a turn may take longer, but not all.
  // Under a sanitizer the processor is slower than the line.
  constexpr auto kEnough = milliseconds(kUnderSanitizer ? 1000 : 40);
  std::chrono::nanoseconds best = std::chrono::hours(1);
  for (int turn = 0; turn < 5 || (turn < 50 && best >= kEnough); ++turn) {
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
  EXPECT_LT(best, kEnough);
}

// A report spans several bursts. So reports continue at half the rate, and a receiver that is busy
// for a while does not look like a congested path.
TEST(DlcpPeer, options__a_report_spans_several_bursts) {
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
    const std::vector<std::byte> content =
        *proto::recording_content(std::as_bytes(std::span(text)));
    proto::DlcpOptions options;
    proto::RecordDecoder decoder(content, {});
    proto::describe(decoder, options);
    ASSERT_TRUE(decoder.ok());
    const Bytes packet = Bytes(1400) + options.packet_overhead;
    const Duration burst =
        options.rate.line_rate.transmission_time(packet * options.burst_segments);
    EXPECT_GE(options.rate.report_period, burst * 4);
    EXPECT_GE(options.rate.report_period, Duration::microseconds(200));
    // The rate grows as much per millisecond as by the defaults, but by at most a quarter of the
    // line.
    const double per_ms = options.rate.increase_step / options.rate.report_period.s() / 1000;
    EXPECT_TRUE(options.rate.increase_step == 0.25 || std::abs(per_ms - 0.25) < 1e-9) << per_ms;
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace thalweg::net
