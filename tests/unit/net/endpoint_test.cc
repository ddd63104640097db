#include <thalweg/endpoint.h>

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <numeric>

#include "base/messages.h"
#include "net/net_pair.h"

namespace thalweg::net {
namespace {

TEST(Endpoint, send_recv__exact_tensors_arrive_whole) {
  NetPair pair = NetPair::make();
  Prng prng(1);
  for (const std::size_t count : {0U, 1U, 350U, 351U, 100'000U, 2'000'000U}) {
    SCOPED_TRACE(count);
    const std::vector<float> source = random_floats(count, prng);
    std::vector<float> target(count);
    const auto receiving = pair.at_server.recv(TensorSpan::of(target), {.key = count});
    const auto sending = pair.at_client.send(TensorView::of(source), {.key = count});
    ASSERT_EQ(error_of(sending), "");
    ASSERT_EQ(error_of(receiving), "");
    EXPECT_EQ(source, target);
    const TransferReport report = *receiving->wait();
    EXPECT_EQ(report.fraction, 1.0);
    EXPECT_TRUE(report.missing.empty());
    EXPECT_EQ(report.bytes, static_cast<std::int64_t>(count * sizeof(float)));
    EXPECT_EQ(report.packets, static_cast<std::int64_t>((count + 349) / 350));
  }
}

TEST(Endpoint, send_recv__ipv6_and_without_offload) {
  EndpointOptions server = test_options("server");
  server.listen = "[::1]:0";
  EndpointOptions client = test_options("client");
  client.offload = false;
  const auto lose = [](std::uint64_t sequence) { return sequence % 50 == 7; };
  NetPair pair = NetPair::make(server, client, {.client = lose});
  std::vector<std::int32_t> source(300'000);
  std::iota(source.begin(), source.end(), 0);
  std::vector<std::int32_t> target(source.size());
  const auto receiving = pair.at_server.recv(TensorSpan::of(target), {});
  EXPECT_EQ(error_of(pair.at_client.send(TensorView::of(source), {})), "");
  EXPECT_EQ(error_of(receiving), "");
  EXPECT_EQ(source, target);
  const NetCounters counters = pair.at_client.counters();
  EXPECT_GT(counters.packets_retransmitted, 0U);
}

TEST(Endpoint, send_recv__offload_sends_many_packets_a_call) {
  NetPair pair = NetPair::make();
  const std::vector<float> source(1'000'000, 1.5F);
  std::vector<float> target(source.size());
  // Alternating tags must not reduce the number of packets per call.
  const auto tag_of = [](std::int64_t first, std::int64_t) {
    return PacketTag{static_cast<std::uint8_t>(first / 350 % 2), true};
  };
  const auto receiving = pair.at_server.recv(TensorSpan::of(target), {});
  EXPECT_EQ(error_of(pair.at_client.send(TensorView::of(source), {.tag_of = tag_of})), "");
  EXPECT_EQ(error_of(receiving), "");
  const NetCounters counters = pair.at_client.counters();
  EXPECT_LT(counters.send_calls * 10, counters.packets_sent);
}

TEST(Endpoint, send_recv__many_in_both_directions_at_once) {
  NetPair pair = NetPair::make();
  constexpr std::size_t kTransfers = 40;
  Prng prng(3);
  std::vector<std::vector<float>> sources;
  std::vector<std::vector<float>> targets;
  std::vector<Result<Transfer>> transfers;
  for (std::size_t i = 0; i < kTransfers; ++i) {
    sources.push_back(random_floats(1 + prng.below(50'000), prng));
    targets.emplace_back(sources.back().size());
  }
  for (std::size_t i = 0; i < kTransfers; ++i) {
    const Peer& to = i % 2 == 0 ? pair.at_client : pair.at_server;
    const Peer& from = i % 2 == 0 ? pair.at_server : pair.at_client;
    // Half of the senders start before their receivers.
    if (i % 4 < 2) transfers.push_back(to.send(TensorView::of(sources[i]), {.key = i}));
    transfers.push_back(from.recv(TensorSpan::of(targets[i]), {.key = i}));
    if (i % 4 >= 2) transfers.push_back(to.send(TensorView::of(sources[i]), {.key = i}));
  }
  for (const auto& transfer : transfers) EXPECT_EQ(error_of(transfer), "");
  EXPECT_EQ(sources, targets);
}

TEST(Endpoint, recv__reports_what_is_missing_and_leaves_it_untouched) {
  // Packets 10 and 11 of 100, 2 of which may be lost.
  const auto lose = [](std::uint64_t sequence) { return sequence == 10 || sequence == 11; };
  NetPair pair = NetPair::make(test_options("server"), test_options("client"), {.client = lose});
  const std::vector<float> source(35'000, 2.0F);
  std::vector<float> target(source.size(), -1.0F);
  const auto receiving = pair.at_server.recv(TensorSpan::of(target), {.loss_bound = 0.02});
  EXPECT_EQ(error_of(pair.at_client.send(TensorView::of(source), {.loss_bound = 0.02})), "");
  const Result<TransferReport> report = receiving->wait();
  ASSERT_TRUE(report.ok()) << report.error().message();
  EXPECT_DOUBLE_EQ(report->fraction, 0.98);
  EXPECT_EQ(report->missing, (std::vector<ElementRange>{{3500, 4200}}));
  for (std::size_t i = 0; i < target.size(); ++i) {
    ASSERT_EQ(target[i], i >= 3500 && i < 4200 ? -1.0F : 2.0F) << i;
  }
}

TEST(Endpoint, send__bad_arguments_are_errors_before_anything_is_sent) {
  NetPair pair = NetPair::make();
  const std::vector<std::int32_t> integers(10);
  const std::vector<float> floats(10);
  const Peer& peer = pair.at_client;
  EXPECT_TRUE(says(error_of(peer.send(TensorView::of(integers), {.loss_bound = 0.1})),
                   "a loss bound of 0.1 on elements of type int32"));
  for (const double bound : {1.0, -0.1, 2.0}) {
    EXPECT_NE(error_of(peer.send(TensorView::of(floats), {.loss_bound = bound})), "");
  }
  EXPECT_TRUE(says(error_of(peer.send(TensorView::of(floats), {.tag = {.priority = 8}})),
                   "a priority of 8"));
  EXPECT_TRUE(
      says(error_of(peer.send(TensorView::of(floats), {.deadline = seconds(0)})), "deadline"));
  EXPECT_NE(error_of(peer.send({nullptr, 5, DType::kFloat32}, {})), "");
  EXPECT_NE(error_of(peer.send({floats.data(), -5, DType::kFloat32}, {})), "");
  EXPECT_EQ(peer.counters().packets_sent, 0U);
}

TEST(Endpoint, send_recv__mismatches_fail_on_both_ends_with_both_values) {
  NetPair pair = NetPair::make();
  const std::vector<float> source(100);
  std::vector<float> shorter(90);
  std::vector<std::int32_t> other(100);
  auto receiving = pair.at_server.recv(TensorSpan::of(shorter), {.key = 1});
  auto sending = pair.at_client.send(TensorView::of(source), {.key = 1});
  for (const auto& error : {error_of(sending), error_of(receiving)}) {
    EXPECT_TRUE(says(error, "tensor bytes 400 at the sender, 360 at the receiver"));
  }
  receiving = pair.at_server.recv(TensorSpan::of(other), {.key = 2});
  sending = pair.at_client.send(TensorView::of(source), {.key = 2});
  for (const auto& error : {error_of(sending), error_of(receiving)}) {
    EXPECT_TRUE(says(error, "element type float32 at the sender, int32 at the receiver"));
  }
  EXPECT_EQ(kind_of(sending->wait()), "mismatch");
  EXPECT_EQ(kind_of(receiving->wait()), "mismatch");
  EXPECT_TRUE(says(error_of(receiving), "client"));
  EXPECT_TRUE(says(error_of(sending), "server"));
}

TEST(Endpoint, transfer__ends_at_its_deadline) {
  NetPair pair = NetPair::make();
  std::vector<float> target(1000);
  const auto start = std::chrono::steady_clock::now();
  const auto receiving =
      pair.at_server.recv(TensorSpan::of(target), {.deadline = milliseconds(50)});
  EXPECT_TRUE(says(error_of(receiving), "within the receiver's deadline of 50ms"));
  EXPECT_EQ(kind_of(receiving->wait()), "timeout");
  const auto took = std::chrono::steady_clock::now() - start;
  EXPECT_GE(took, milliseconds(50));
  EXPECT_LT(took, seconds(5));
}

TEST(Endpoint, transfer__wait_with_a_limit_leaves_it_running) {
  NetPair pair = NetPair::make();
  std::vector<float> target(10);
  const auto receiving = pair.at_server.recv(TensorSpan::of(target), {});
  const Result<TransferReport> early = receiving->wait(milliseconds(10));
  ASSERT_FALSE(early.ok());
  EXPECT_TRUE(says(early.error().message(), "it goes on"));
  EXPECT_FALSE(receiving->done());
  const std::vector<float> source(10, 3.0F);
  EXPECT_EQ(error_of(pair.at_client.send(TensorView::of(source), {})), "");
  EXPECT_EQ(error_of(receiving), "");
  EXPECT_TRUE(receiving->done());
  EXPECT_EQ(target, source);
}

TEST(Endpoint, transfer__cancel_ends_both_ends) {
  NetPair pair = NetPair::make();
  std::vector<float> target(1000);
  const std::vector<float> source(1000);
  const auto receiving = pair.at_server.recv(TensorSpan::of(target), {.key = 1});
  receiving->cancel();
  EXPECT_TRUE(says(error_of(receiving), "cancelled: by the caller"));
  receiving->cancel();  // does nothing, because the transfer is over

  // The other end waits for this transfer, and is told that it was cancelled.
  NetPair dark = NetPair::make(test_options("server"), test_options("client"),
                               {.client = [](std::uint64_t) { return true; }});
  const auto stuck = dark.at_server.recv(TensorSpan::of(target), {.key = 1});
  const auto sending = dark.at_client.send(TensorView::of(source), {.key = 1});
  EXPECT_FALSE(sending->wait(milliseconds(50)).ok());
  sending->cancel();
  EXPECT_TRUE(says(error_of(sending), "cancelled"));
  EXPECT_TRUE(says(error_of(stuck), "cancelled"));
  EXPECT_EQ(kind_of(sending->wait()), "cancelled");
  EXPECT_EQ(kind_of(stuck->wait()), "cancelled");
}

TEST(Endpoint, transfer__callback_comes_once_early_or_late) {
  NetPair pair = NetPair::make();
  std::vector<float> target(1000);
  const std::vector<float> source(1000, 1.0F);
  std::atomic<int> called = 0;
  const auto receiving = pair.at_server.recv(TensorSpan::of(target), {});
  receiving->on_done([&](const Result<TransferReport>& report) { called += report.ok() ? 1 : 10; });
  EXPECT_EQ(error_of(pair.at_client.send(TensorView::of(source), {})), "");
  for (int i = 0; i < 5000 && called == 0; ++i) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_EQ(called, 1);
  receiving->on_done([&](const Result<TransferReport>& report) { called += report.ok() ? 1 : 10; });
  EXPECT_EQ(called, 2);
}

TEST(Endpoint, close__fails_what_is_in_flight_on_both_ends) {
  std::vector<float> target(1000);
  auto pair = std::make_unique<NetPair>(NetPair::make());
  const Peer client = pair->at_client;
  const Peer server = pair->at_server;
  const auto waiting = client.recv(TensorSpan::of(target), {.key = 1});
  const auto sending = server.send(TensorView::of(target), {.key = 2});
  EXPECT_FALSE(sending->wait(milliseconds(20)).ok());
  {
    const Endpoint gone = std::move(pair->server);
  }
  EXPECT_TRUE(says(error_of(sending), "the endpoint was closed"));
  EXPECT_EQ(kind_of(sending->wait()), "cancelled");
  EXPECT_TRUE(says(error_of(waiting), "server ("));
  for (int i = 0; i < 5000 && client.connected(); ++i) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_FALSE(client.connected());
  EXPECT_TRUE(says(error_of(client.recv(TensorSpan::of(target), {.key = 3})), "closed"));
  EXPECT_TRUE(says(error_of(server.recv(TensorSpan::of(target), {.key = 3})), "closed"));
  pair.reset();
  EXPECT_TRUE(says(error_of(client.recv(TensorSpan::of(target), {.key = 4})), "closed"));
  EXPECT_EQ(client.counters().packets_sent, 0U);
}

TEST(Endpoint, close__of_one_peer_leaves_the_endpoint) {
  NetPair pair = NetPair::make();
  std::vector<float> target(1000);
  const auto waiting = pair.at_client.recv(TensorSpan::of(target), {.key = 1});
  pair.at_server.close();
  EXPECT_NE(error_of(waiting), "");
  const Result<Peer> again = pair.client.connect(pair.server.address(), seconds(5));
  ASSERT_TRUE(again.ok());
  EXPECT_TRUE(pair.server.accept(seconds(5)).ok());
}

TEST(Endpoint, packet_payload__fits_the_path) {
  EndpointOptions client = test_options("client");
  client.packet_payload = 0;
  EndpointOptions server = test_options("server");
  server.packet_payload = 0;
  const NetPair jumbo = NetPair::make(server, client);
  EXPECT_EQ(jumbo.at_client.packet_payload(), 8928U) << "loopback takes more than a jumbo frame";
  server.packet_payload = 500;
  const NetPair small = NetPair::make(server, client);
  EXPECT_EQ(small.at_client.packet_payload(), 500U) << "the smaller of both ends";
  EXPECT_EQ(small.at_server.packet_payload(), 500U);
}

}  // namespace
}  // namespace thalweg::net
