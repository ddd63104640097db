// Receiver grants on real sockets: several senders to one receiver over loopback.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "net/raw_peer.h"
#include "sanitized.h"

namespace thalweg::net {
namespace {

constexpr const char* kKey = "000102030405060708090a0b0c0d0e0f";
constexpr std::size_t kSenders = 7;

EndpointOptions granting(const std::string& name, double gbps = 1) {
  EndpointOptions options = test_options(name);
  options.grants = true;
  options.line_rate_gbps = gbps;
  return options;
}

// One endpoint that listens and several that have connected to it.
struct Star {
  Star(EndpointOptions server_options, const EndpointOptions& client_options, std::size_t clients,
       const LosePacket& lose = {}) {
    server_options.listen = "127.0.0.1:0";
    server = std::make_unique<Endpoint>(std::move(Endpoint::create(server_options)).value());
    for (std::size_t i = 0; i < clients; ++i) {
      EndpointOptions options = client_options;
      options.name += std::to_string(i);
      senders.push_back(std::move(create_lossy(options, lose)).value());
      out.push_back(senders.back().connect(server->address(), seconds(5)).value());
      in.push_back(server->accept(seconds(5)).value());
    }
  }
  std::unique_ptr<Endpoint> server;
  std::vector<Endpoint> senders;
  std::vector<Peer> out;  // at the senders
  std::vector<Peer> in;   // at the server
};

struct Incast {
  std::size_t floats = 0;
  double bound = 0;
  std::size_t each = 1;  // transfers of every sender at a time
};

// All senders send at once. Expects that every element that arrived is right, and the bound kept.
void expect_incast(const Star& star, const Incast& incast) {
  const std::size_t count = star.out.size() * incast.each;
  Prng prng(17);
  std::vector<std::vector<float>> sources;
  std::vector<std::vector<float>> targets;
  std::vector<Result<Transfer>> receiving;
  std::vector<Result<Transfer>> sending;
  for (std::size_t i = 0; i < count; ++i) {
    sources.push_back(random_floats(incast.floats, prng));
    targets.emplace_back(incast.floats, -1.0F);
    receiving.push_back(star.in[i % star.in.size()].recv(TensorSpan::of(targets.back()),
                                                         {.key = i, .loss_bound = incast.bound}));
  }
  for (std::size_t i = 0; i < count; ++i) {
    sending.push_back(star.out[i % star.out.size()].send(TensorView::of(sources[i]),
                                                         {.key = i, .loss_bound = incast.bound}));
  }
  for (std::size_t i = 0; i < count; ++i) {
    SCOPED_TRACE(i);
    ASSERT_EQ(error_of(receiving[i]), "");
    ASSERT_EQ(error_of(sending[i]), "");
    const TransferReport report = *receiving[i]->wait();
    EXPECT_GE(report.fraction, 1 - incast.bound);
    std::vector<float> expected = sources[i];
    for (const ElementRange& hole : report.missing) {
      std::fill(expected.begin() + hole.begin, expected.begin() + hole.end, -1.0F);
    }
    EXPECT_EQ(targets[i], expected);
  }
}

// After the transfers the scheduler holds nothing: an endpoint checks that when it ends.
TEST(GrantsOnSockets, incast__exact) {
  const Star star(granting("server"), granting("client"), kSenders);
  expect_incast(star, {.floats = 200'000});
  const NetCounters counters = star.server->counters();
  // 572 packets of each sender, at most 8 in a grant.
  EXPECT_GE(counters.grants_sent, kSenders * 560 / 8 / 4);
  EXPECT_EQ(counters.messages_bad + counters.packets_bad, 0U);
  std::uint64_t received = 0;
  for (const Endpoint& sender : star.senders) received += sender.counters().grants_received;
  EXPECT_GT(received, 0U);
  EXPECT_LE(received, counters.grants_sent);
}

TEST(GrantsOnSockets, incast__of_large_packets_at_a_slow_and_a_fast_line) {
  for (const double gbps : {0.2, 20.0}) {
    SCOPED_TRACE(gbps);
    EndpointOptions server = granting("server", gbps);
    EndpointOptions client = granting("client", gbps);
    server.packet_payload = client.packet_payload = 8'000;
    const Star star(server, client, 3);
    expect_incast(star, {.floats = 100'000});
    EXPECT_GT(star.server->counters().grants_sent, 0U);
  }
}

TEST(GrantsOnSockets, incast__with_a_job_key_a_bound_and_losses) {
  EndpointOptions server = granting("server");
  EndpointOptions client = granting("client");
  server.job_key = kKey;
  client.job_key = kKey;
  const auto lose = [](std::uint64_t sequence) { return Prng(sequence).below(50) == 0; };
  const Star star(server, client, kSenders, lose);
  expect_incast(star, {.floats = 100'000, .bound = 0.05});
  expect_incast(star, {.floats = 100'000});
  EXPECT_GT(star.server->counters().grants_sent, 0U);
  EXPECT_EQ(star.server->counters().packets_forged, 0U);
}

TEST(GrantsOnSockets, incast__many_transfers_of_each_sender_and_empty_ones) {
  const Star star(granting("server"), granting("client"), 3);
  for (const std::size_t floats : {0U, 1U, 351U, 20'000U}) {
    SCOPED_TRACE(floats);
    expect_incast(star, {.floats = floats, .each = 30});
  }
}

// Which end has the option makes no difference to what arrives, only to who grants.
TEST(GrantsOnSockets, incast__where_one_end_gives_no_grants) {
  {
    const Star star(granting("server"), test_options("client"), 3);
    expect_incast(star, {.floats = 100'000});
    EXPECT_GT(star.server->counters().grants_sent, 0U);
  }
  const Star star(test_options("server"), granting("client"), 3);
  expect_incast(star, {.floats = 100'000});
  EXPECT_EQ(star.server->counters().grants_sent, 0U);
}

TEST(GrantsOnSockets, both_directions_at_once) {
  const Star star(granting("server"), granting("client"), 3);
  constexpr std::size_t kFloats = 100'000;
  const std::vector<float> source(kFloats, 2.5F);
  std::vector<std::vector<float>> targets(6, std::vector<float>(kFloats));
  std::vector<Transfer> all;
  for (std::size_t i = 0; i < 3; ++i) {
    all.push_back(*star.in[i].recv(TensorSpan::of(targets[i]), {.key = 1}));
    all.push_back(*star.out[i].recv(TensorSpan::of(targets[3 + i]), {.key = 2}));
    all.push_back(*star.in[i].send(TensorView::of(source), {.key = 2}));
    all.push_back(*star.out[i].send(TensorView::of(source), {.key = 1}));
  }
  for (const Transfer& transfer : all) EXPECT_EQ(error_of(transfer), "");
  for (const std::vector<float>& target : targets) EXPECT_EQ(target, source);
}

// A sender of a gradual transfer that has nothing more to offer holds no place for ever.
TEST(GrantsOnSockets, gradual__one_that_waits_does_not_stop_the_others) {
  const Star star(granting("server", 0.1), granting("client", 0.1), 2);
  constexpr std::size_t kFloats = 350'000;
  const std::vector<float> source(kFloats, 1.5F);
  std::vector<float> slow(kFloats);
  std::vector<float> fast(kFloats / 10);
  const auto receiving = star.in[0].recv(TensorSpan::of(slow), {.key = 1});
  const auto sending = star.out[0].send(TensorView::of(source), {.key = 1, .gradual = true});
  ASSERT_TRUE(sending->offer({0, kFloats / 10}).ok());
  EXPECT_TRUE(soon([&] { return star.in[0].counters().packets_received == 100; }));
  const auto other = star.in[1].recv(TensorSpan::of(fast), {.key = 2, .deadline = seconds(10)});
  const auto its = star.out[1].send(TensorView::of(std::span(source).first(fast.size())),
                                    {.key = 2, .deadline = seconds(10)});
  EXPECT_EQ(error_of(other), "");
  EXPECT_EQ(error_of(its), "");
  EXPECT_FALSE(receiving->done());
  ASSERT_TRUE(sending->offer({0, kFloats}).ok());
  EXPECT_EQ(error_of(receiving), "");
  EXPECT_EQ(error_of(sending), "");  // until then it may send of `source` again
  EXPECT_EQ(slow, source);
}

// The child must be made before this process has threads.
pid_t sender_process(const std::array<int, 2>& to_child) {
  const pid_t child = fork();
  if (child != 0) return child;
  std::array<char, 64> address{};
  if (read(to_child[0], address.data(), address.size()) <= 0) _exit(1);
  const Result<Endpoint> endpoint = Endpoint::create(granting("victim", 0.05));
  const Result<Peer> peer = endpoint->connect(address.data(), seconds(5));
  const std::vector<float> source(10'000'000);
  const auto sending = peer->send(TensorView::of(source), {});
  _exit(sending->wait().ok() ? 0 : 1);
}

// A sender that stops, as a machine that vanishes does, holds the places of what it was granted
// until others ask. When its process dies, its transfer fails, and nothing of it is kept.
TEST(GrantsOnSockets, sender__that_stops_and_dies_does_not_stop_the_others) {
  std::array<int, 2> to_child{};
  ASSERT_EQ(pipe(to_child.data()), 0);
  const pid_t child = sender_process(to_child);
  ASSERT_GE(child, 0);
  {
    const Star star(granting("server", 0.05), granting("client", 0.05), 3);
    const std::string& address = star.server->address();
    ASSERT_GT(write(to_child[1], address.c_str(), address.size() + 1), 0);
    const Result<Peer> victim = star.server->accept(seconds(5));
    ASSERT_TRUE(victim.ok()) << victim.error().message();
    std::vector<float> target(10'000'000);
    const auto receiving = victim->recv(TensorSpan::of(target), {});
    EXPECT_TRUE(soon([&] { return victim->counters().packets_received > 100; }));
    kill(child, SIGSTOP);
    const auto start = std::chrono::steady_clock::now();
    expect_incast(star, {.floats = 20'000});
    // 240 KB at 50 Mb/s are 40 ms. The system notices that the peer is gone after 10 s only.
    EXPECT_LT(std::chrono::steady_clock::now() - start, seconds(kUnderSanitizer ? 9 : 5));
    EXPECT_FALSE(receiving->done());
    kill(child, SIGKILL);
    EXPECT_TRUE(says(error_of(receiving), "victim"));
    expect_incast(star, {.floats = 20'000});
  }
  waitpid(child, nullptr, 0);
  close(to_child[0]);
  close(to_child[1]);
}

// The peer's Peer outlives the endpoint, and with it what it needs of the scheduler.
TEST(GrantsOnSockets, endpoint__that_ends_first_leaves_peers_that_refuse) {
  Star star(granting("server"), granting("client"), 1);
  const Peer peer = star.in[0];
  std::vector<float> target(350'000);
  const auto receiving = peer.recv(TensorSpan::of(target), {});
  star.server.reset();
  EXPECT_TRUE(says(error_of(receiving), "closed"));
  EXPECT_TRUE(says(error_of(peer.recv(TensorSpan::of(target), {})), "closed"));
}

TEST(GrantsOnSockets, create__options_that_cannot_be__are_refused) {
  const auto error = [](auto change) {
    EndpointOptions options = granting("x");
    change(options);
    const Result<Endpoint> endpoint = Endpoint::create(options);
    return endpoint.ok() ? "" : endpoint.error().message();
  };
  EXPECT_TRUE(says(error([](auto& o) { o.line_rate_gbps = 0; }),
                   "grants: the rate of this host's link is not known"));
  EXPECT_TRUE(says(error([](auto& o) { o.line_rate_gbps = 0, o.listen = "127.0.0.1:0"; }),
                   "(listen: '127.0.0.1:0', connect_from: ''): set line_rate_gbps"));
  EXPECT_TRUE(says(error([](auto& o) { o.record_folder = testing::TempDir(); }),
                   "set record_folder or grants, not both"));
  EXPECT_TRUE(says(error([](auto& o) { o.grants_round_trip = std::chrono::nanoseconds(1); }),
                   "grants_round_trip: 1 ns"));
  EXPECT_TRUE(says(error([](auto& o) { o.grants_round_trip = seconds(11); }),
                   "from 1 us to 10 s is allowed"));
  EXPECT_EQ(error([](auto& o) { o.grants_round_trip = milliseconds(1); }), "");
}

}  // namespace
}  // namespace thalweg::net
