// Peers that are missing, refused, malicious or dead.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include "base/messages.h"
#include "net/raw_peer.h"
#include "wire/data_header.h"

namespace thalweg::net {
namespace {

TEST(EndpointFaults, connect__wrong_token_is_refused_and_counted) {
  EndpointOptions options = test_options("server");
  options.listen = "127.0.0.1:0";
  const Result<Endpoint> server = Endpoint::create(options);
  ASSERT_TRUE(server.ok());
  EndpointOptions stranger = test_options("stranger");
  stranger.job_token = kToken + 1;
  const Result<Endpoint> client = Endpoint::create(stranger);
  const Result<Peer> peer = client->connect(server->address(), seconds(5));
  ASSERT_FALSE(peer.ok());
  EXPECT_TRUE(says(peer.error().message(), "token"));
  EXPECT_EQ(server->counters().peers_refused, 1U);
  EXPECT_FALSE(server->accept(milliseconds(1)).ok());
}

TEST(EndpointFaults, connect__nobody_there) {
  const Result<Endpoint> client = Endpoint::create(test_options("client"));
  std::string free_address;
  {
    EndpointOptions options = test_options("server");
    options.listen = "127.0.0.1:0";
    free_address = Endpoint::create(options)->address();
  }
  const auto start = std::chrono::steady_clock::now();
  const Result<Peer> peer = client->connect(free_address, milliseconds(100));
  ASSERT_FALSE(peer.ok());
  EXPECT_TRUE(says(peer.error().message(), "cannot connect to " + free_address));
  EXPECT_TRUE(says(peer.error().message(), "refused"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, seconds(5));
  for (const char* address : {"", "nonsense", "127.0.0.1", "127.0.0.1:99999", "1:2:3", ":80"}) {
    EXPECT_FALSE(client->connect(address, milliseconds(10)).ok()) << address;
  }
}

TEST(EndpointFaults, create__port_in_use) {
  EndpointOptions options = test_options("server");
  options.listen = "127.0.0.1:0";
  const Result<Endpoint> first = Endpoint::create(options);
  options.listen = first->address();
  const Result<Endpoint> second = Endpoint::create(options);
  ASSERT_FALSE(second.ok());
  EXPECT_TRUE(says(second.error().message(), first->address()));
  EXPECT_TRUE(says(second.error().message(), "in use"));
}

TEST(EndpointFaults, create__bad_options_name_the_field) {
  const auto error = [](auto change) {
    EndpointOptions options = test_options("x");
    change(options);
    const Result<Endpoint> endpoint = Endpoint::create(options);
    return endpoint.ok() ? "" : endpoint.error().message();
  };
  EXPECT_TRUE(says(error([](auto& o) { o.packet_payload = 4; }), "packet_payload: 4"));
  EXPECT_TRUE(says(error([](auto& o) { o.line_rate_gbps = -1; }), "line_rate_gbps: -1"));
  EXPECT_TRUE(says(error([](auto& o) { o.dscp[3] = 64; }), "dscp: 64"));
  EXPECT_TRUE(says(error([](auto& o) { o.name = std::string(64, 'x'); }), "name"));
  EXPECT_TRUE(says(error([](auto& o) { o.listen = "here"; }), "'here'"));
  EXPECT_TRUE(says(error([](auto& o) { o.peer_timeout = milliseconds(0); }), "peer_timeout"));
  EXPECT_TRUE(says(error([](auto& o) { o.grace.least = {}; }), "grace.least: 0 ns"));
  EXPECT_TRUE(says(error([](auto& o) { o.grace.initial = std::chrono::hours(2); }),
                   "grace.initial: 7200000000000 ns"));
  EXPECT_TRUE(says(error([](auto& o) { o.grace.initial = milliseconds(200); }),
                   "at most grace.most, 100000000 ns"));
}

TEST(EndpointFaults, listener__outlives_strangers) {
  EndpointOptions options = test_options("server");
  options.listen = "127.0.0.1:0";
  const Result<Endpoint> server = Endpoint::create(options);
  Prng prng(11);
  for (int i = 0; i < 20; ++i) {
    const Fd fd = raw_connection(server->address());
    std::vector<std::uint8_t> noise(prng.below(200));
    for (auto& byte : noise) byte = static_cast<std::uint8_t>(prng.next());
    [[maybe_unused]] const auto sent = send(fd.get(), noise.data(), noise.size(), MSG_NOSIGNAL);
  }
  // Sends a valid hello of another version.
  const Fd old = raw_connection(server->address());
  auto hello = encode_hello({.job = kToken, .udp_port = 9, .payload = 1400, .name = "old"});
  hello[4] = std::byte{77};
  ASSERT_EQ(send(old.get(), hello.data(), hello.size(), 0), static_cast<ssize_t>(hello.size()));
  std::array<std::byte, kHelloSize> answer{};
  ASSERT_EQ(recv(old.get(), answer.data(), answer.size(), MSG_WAITALL),
            static_cast<ssize_t>(answer.size()));
  Hello refusal;
  ASSERT_EQ(decode_hello(answer, refusal), wire::WireError::kNone);
  EXPECT_EQ(refusal.status, HelloStatus::kWrongVersion);
  EXPECT_EQ(refusal.job, 0U) << "a stranger must not learn the token";
  EXPECT_TRUE(soon([&] { return server->counters().peers_refused == 21; }))
      << server->counters().peers_refused;

  const Result<Endpoint> client = Endpoint::create(test_options("client"));
  EXPECT_TRUE(client->connect(server->address(), seconds(5)).ok());
}

// A server with a peer whose hello is valid and which then sends nonsense.
struct MadFriend {
  Endpoint server = [] {
    EndpointOptions options = test_options("server");
    options.listen = "127.0.0.1:0";
    return Endpoint::create(options).value();
  }();
  RawPeer raw{server.address(), test_options("mad")};
  Result<Peer> peer = server.accept(seconds(5));
};

// Expects that the connection ends, with a cause.
TEST(EndpointFaults, signals__nonsense_ends_the_connection) {
  const MadFriend mad;
  const auto& [server, raw, peer] = mad;
  ASSERT_TRUE(peer.ok());
  std::vector<float> target(100);
  const auto receiving = peer->recv(TensorSpan::of(target), {});
  const std::string noise(100, '\xee');
  send_raw(raw.stream(), std::as_bytes(std::span(noise)));
  EXPECT_TRUE(says(error_of(receiving), "mad ("));
  EXPECT_TRUE(says(error_of(receiving), "makes no sense"));
  EXPECT_FALSE(peer->connected());
}

// Data from the right address that is not DLCP's is counted and otherwise ignored.
TEST(EndpointFaults, data__nonsense_is_counted) {
  const MadFriend mad;
  const auto& [server, raw, peer] = mad;
  ASSERT_TRUE(peer.ok());
  Prng prng(12);
  for (int i = 0; i < 100; ++i) {
    std::vector<std::uint8_t> noise(prng.below(2000));
    for (auto& byte : noise) byte = static_cast<std::uint8_t>(prng.next());
    // Some look valid up to the token.
    if (noise.size() > wire::data_overhead(false) && i % 2 == 0) {
      wire::DataHeader header;
      header.job = i % 4 == 0 ? kToken + 1 : kToken;
      header.length = static_cast<std::uint16_t>(noise.size() - wire::data_overhead(false));
      const auto packet = std::as_writable_bytes(std::span(noise));
      wire::encode_data_header(header, packet);
      wire::put_checksum(packet.first(wire::data_overhead(false)),
                         packet.subspan(wire::data_overhead(false)));
    }
    raw.send_data(std::as_bytes(std::span(noise)));
  }
  EXPECT_TRUE(soon([&] {
    const NetCounters counters = peer->counters();
    return counters.packets_bad + counters.packets_unused >= 95 && counters.packets_unused > 10;
  }));
  EXPECT_TRUE(peer->connected());
}

// When a process is killed in the middle of a transfer, the other end notices at once.
TEST(EndpointFaults, peer__killed_in_a_transfer_fails_it) {
  int to_child[2];
  ASSERT_EQ(pipe(to_child), 0);
  // The child must be made before this process has threads.
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    char address[64] = {};
    if (read(to_child[0], address, sizeof(address)) <= 0) _exit(1);
    EndpointOptions options = test_options("victim");
    options.line_rate_gbps = 0.01;
    const Result<Endpoint> endpoint = Endpoint::create(options);
    const Result<Peer> peer = endpoint->connect(address, seconds(5));
    const std::vector<float> source(10'000'000);
    const auto sending = peer->send(TensorView::of(source), {});
    _exit(sending->wait().ok() ? 0 : 1);
  }
  EndpointOptions options = test_options("survivor");
  options.listen = "127.0.0.1:0";
  const Result<Endpoint> endpoint = Endpoint::create(options);
  ASSERT_TRUE(endpoint.ok());
  ASSERT_GT(write(to_child[1], endpoint->address().c_str(), endpoint->address().size() + 1), 0);
  const Result<Peer> peer = endpoint->accept(seconds(5));
  ASSERT_TRUE(peer.ok()) << peer.error().message();
  std::vector<float> target(10'000'000);
  const auto receiving = peer->recv(TensorSpan::of(target), {});
  EXPECT_TRUE(soon([&] { return peer->counters().packets_received > 0; }));
  const auto start = std::chrono::steady_clock::now();
  kill(child, SIGKILL);
  EXPECT_TRUE(says(error_of(receiving), "victim ("));
  EXPECT_EQ(kind_of(receiving->wait()), "peer lost");
  EXPECT_LT(std::chrono::steady_clock::now() - start, seconds(2));
  waitpid(child, nullptr, 0);
  close(to_child[0]);
  close(to_child[1]);
}

}  // namespace
}  // namespace thalweg::net
