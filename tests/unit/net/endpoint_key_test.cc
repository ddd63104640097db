// Endpoints with a job key: what they accept, and what they refuse from others.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <fstream>

#include "net/raw_peer.h"
#include "wire/control_message.h"

namespace thalweg::net {
namespace {

constexpr const char* kKey = "000102030405060708090a0b0c0d0e0f";
constexpr const char* kOtherKey = "000102030405060708090a0b0c0d0e10";
constexpr std::size_t kFloats = 350;  // floats of a packet

EndpointOptions keyed_options(const std::string& name, const std::string& key = kKey) {
  EndpointOptions options = test_options(name);
  options.job_key = key;
  return options;
}

Endpoint listening(EndpointOptions options) {
  options.listen = "127.0.0.1:0";
  return std::move(Endpoint::create(options)).value();
}

TEST(EndpointKey, send_recv__exact_and_bounded_under_loss) {
  EndpointOptions server = keyed_options("server");
  EndpointOptions client = keyed_options("client");
  NetPair pair =
      NetPair::make(server, client,
                    {.server = [](std::uint64_t sequence) { return sequence % 30 == 3; },
                     .client = [](std::uint64_t sequence) { return sequence % 40 == 7; }});
  Prng prng(5);
  const std::vector<float> up = random_floats(200'000, prng);
  const std::vector<float> down = random_floats(200'000, prng);
  std::vector<float> at_server(up.size());
  std::vector<float> at_client(down.size());
  const auto exact = pair.at_server.recv(TensorSpan::of(at_server), {.key = 1});
  const auto bounded =
      pair.at_client.recv(TensorSpan::of(at_client), {.key = 2, .loss_bound = 0.1});
  EXPECT_EQ(error_of(pair.at_client.send(TensorView::of(up), {.key = 1})), "");
  EXPECT_EQ(error_of(pair.at_server.send(TensorView::of(down), {.key = 2, .loss_bound = 0.1})), "");
  ASSERT_EQ(error_of(exact), "");
  ASSERT_EQ(error_of(bounded), "");
  EXPECT_EQ(up, at_server);
  EXPECT_GE(bounded->wait()->fraction, 0.9);
  for (const NetCounters& counters : {pair.at_client.counters(), pair.at_server.counters()}) {
    EXPECT_GT(counters.packets_received, 500U);
    EXPECT_EQ(counters.packets_forged + counters.packets_replayed + counters.packets_stale +
                  counters.packets_bad + counters.messages_forged,
              0U);
  }
  EXPECT_GT(pair.at_client.counters().packets_retransmitted, 0U);
}

struct Refused {
  std::string at_client;
  std::string at_server;
  std::uint64_t count = 0;
};

Refused connect_with(const std::string& server_key, const std::string& client_key) {
  const Endpoint server = listening(keyed_options("server", server_key));
  const Endpoint client = *Endpoint::create(keyed_options("client", client_key));
  const Result<Peer> peer = client.connect(server.address(), seconds(5));
  EXPECT_TRUE(soon([&] { return server.counters().peers_refused == 1; }));
  const Result<Peer> accepted = server.accept(milliseconds(1));
  return {peer.ok() ? "" : peer.error().message(), accepted.ok() ? "" : accepted.error().message(),
          server.counters().peers_refused};
}

TEST(EndpointKey, connect__wrong_key_is_told_on_both_ends) {
  const Refused other = connect_with(kKey, kOtherKey);
  EXPECT_TRUE(says(other.at_client, "wrong key: the job key that it holds is not ours"));
  EXPECT_TRUE(says(other.at_server, "wrong key: the job key that it holds is not ours"));
  EXPECT_EQ(other.count, 1U);
  const Refused none = connect_with(kKey, "");
  EXPECT_TRUE(says(none.at_client, "wrong key: it holds a job key, and we hold none"));
  EXPECT_TRUE(says(none.at_server, "wrong key: we hold a job key, and it holds none"));
  const Refused only = connect_with("", kKey);
  EXPECT_TRUE(says(only.at_client, "wrong key: we hold a job key, and it holds none"));
  EXPECT_TRUE(says(only.at_server, "wrong key: it holds a job key, and we hold none"));
}

// An attacker who saw a whole greeting sends it again.
TEST(EndpointKey, connect__a_replayed_greeting_is_refused) {
  const Endpoint server = listening(keyed_options("server"));
  KeyExchange keys(keyed_options("client"), KeyExchange::Role::kConnected);
  Hello hello{.job = kToken, .udp_port = 9, .payload = 1400, .name = "client"};
  keys.fill(hello);
  const auto bytes = encode_hello(hello);
  wire::SessionProof seen{};
  for (const bool replay : {false, true}) {
    const Fd fd = raw_connection(server.address());
    send_raw(fd.get(), bytes);
    std::array<std::byte, kHelloSize> answer{};
    receive_raw(fd.get(), answer);
    Hello theirs;
    ASSERT_EQ(decode_hello(answer, theirs), wire::WireError::kNone);
    if (!replay) {
      keys.on_hellos(bytes, answer, theirs.session);
      seen = keys.our_proof();
    }
    send_raw(fd.get(), seen);
    EXPECT_EQ(server.accept(replay ? milliseconds(100) : seconds(5)).ok(), !replay);
  }
  EXPECT_EQ(server.counters().peers_refused, 1U);
}

// A server without the key answers as if it had one. Its proof is wrong.
TEST(EndpointKey, connect__an_impostor_is_not_believed) {
  Fd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const SocketAddress any = *SocketAddress::resolve("127.0.0.1:0");
  ASSERT_EQ(bind(listener.get(), any.get(), any.size()), 0);
  ASSERT_EQ(listen(listener.get(), 1), 0);
  std::thread impostor([&] {
    const Fd fd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    std::array<std::byte, kHelloSize> hello{};
    receive_raw(fd.get(), hello);
    // Sends the client's own hello back, and a proof that the client itself could have made.
    send_raw(fd.get(), hello);
    send_raw(fd.get(), wire::prove_session(*wire::JobKey::from_hex(kKey), 0, hello, hello));
    wire::SessionProof proof{};
    receive_raw(fd.get(), proof);
  });
  const Endpoint client = *Endpoint::create(keyed_options("client"));
  const Result<Peer> peer =
      client.connect(SocketAddress::local_of(listener.get()).to_string(), seconds(5));
  impostor.join();
  ASSERT_FALSE(peer.ok());
  EXPECT_TRUE(says(peer.error().message(), "wrong key"));
}

// A connection with a key whose other end is the test.
struct Attack {
  Endpoint server = listening(keyed_options("server"));
  RawPeer raw{server.address(), keyed_options("raw")};
  Peer peer = server.accept(seconds(5)).value();

  // Returns a sealed packet with one value in all elements, for the first transfer that the server
  // started.
  static std::vector<std::byte> packet(PacketGuard& guard, std::uint64_t sequence,
                                       std::uint32_t segment, float value) {
    wire::DataHeader header;
    header.job = kToken;
    header.sequence = sequence;
    header.segment = segment;
    header.length = kFloats * sizeof(float);
    const std::vector<float> payload(kFloats, value);
    std::vector<std::byte> bytes(wire::data_overhead(true));
    guard.seal_data(header, std::span(bytes).first<wire::data_overhead(true)>(),
                    std::as_bytes(std::span(payload)));
    const auto tail = std::as_bytes(std::span(payload));
    bytes.insert(bytes.end(), tail.begin(), tail.end());
    return bytes;
  }
};

TEST(EndpointKey, data__forged_replayed_and_stale_are_counted_and_change_nothing) {
  Attack attack;
  RawPeer second(attack.server.address(), keyed_options("raw"));
  std::vector<float> target(3 * kFloats, -1.0F);
  const auto receiving = attack.peer.recv(TensorSpan::of(target), {});
  std::vector<std::byte> ready(wire::control_size(wire::ReadyMessage(), {.keyed = true}));
  receive_raw(attack.raw.stream(), ready);

  const auto first = Attack::packet(*attack.raw.guard(), 0, 0, 1.0F);
  attack.raw.send_data(first);
  attack.raw.send_data(first);
  // A packet of the same holder of the key, from another session.
  attack.raw.send_data(Attack::packet(*second.guard(), 1, 1, 2.0F));
  const auto good = Attack::packet(*attack.raw.guard(), 1, 1, 3.0F);
  std::vector<std::byte> forged = good;
  forged.back() ^= std::byte{1};
  attack.raw.send_data(forged);
  std::vector<std::byte> redirected = good;
  redirected[24] = std::byte{2};  // segment
  attack.raw.send_data(redirected);
  // The same packet without a tag.
  std::vector<std::byte> plain = good;
  plain[2] = plain[34] = plain[35] = std::byte{0};
  plain.erase(plain.begin() + wire::kDataHeaderSize,
              plain.begin() + wire::data_overhead(true) - wire::kChecksumSize);
  attack.raw.send_data(plain);
  attack.raw.send_data(good);

  EXPECT_TRUE(soon([&] { return attack.peer.counters().packets_received == 2; }));
  const NetCounters counters = attack.peer.counters();
  EXPECT_EQ(counters.packets_received, 2U);
  EXPECT_EQ(counters.packets_replayed, 1U);
  EXPECT_EQ(counters.packets_stale, 1U);
  EXPECT_EQ(counters.packets_forged, 2U);
  EXPECT_EQ(counters.packets_bad, 1U);
  EXPECT_EQ(counters.packets_unused, 0U);
  EXPECT_EQ(attack.server.counters().packets_forged, 2U);
  receiving->cancel();
  EXPECT_NE(error_of(receiving), "");
  for (std::size_t i = 0; i < target.size(); ++i) {
    ASSERT_EQ(target[i], i < kFloats ? 1.0F : i < 2 * kFloats ? 3.0F : -1.0F) << i;
  }
  EXPECT_TRUE(attack.peer.connected());
}

std::vector<std::byte> sealed_confirm(PacketGuard& guard, std::uint64_t sequence) {
  const wire::ControlMessage message = wire::ConfirmMessage{.transfer = 77};
  const wire::ControlEnvelope about{.job = kToken, .sequence = sequence, .keyed = true};
  std::vector<std::byte> bytes(wire::control_size(message, about));
  wire::encode_control(message, about, bytes);
  guard.seal_control(sequence, bytes);
  return bytes;
}

TEST(EndpointKey, signals__a_forged_or_repeated_one_ends_the_connection) {
  for (const bool repeat : {false, true}) {
    SCOPED_TRACE(repeat);
    Attack attack;
    std::vector<float> target(100);
    const auto receiving = attack.peer.recv(TensorSpan::of(target), {});
    const auto good = sealed_confirm(*attack.raw.guard(), 0);
    send_raw(attack.raw.stream(), good);
    EXPECT_FALSE(receiving->wait(milliseconds(20)).ok());
    EXPECT_TRUE(attack.peer.connected());
    std::vector<std::byte> bad = repeat ? good : sealed_confirm(*attack.raw.guard(), 1);
    if (!repeat) bad[wire::kControlHeaderSize - 1] ^= std::byte{1};
    send_raw(attack.raw.stream(), bad);
    EXPECT_TRUE(says(error_of(receiving), "a signal came that it did not send here"));
    EXPECT_TRUE(says(error_of(receiving), repeat ? "replayed" : "forged"));
    EXPECT_FALSE(attack.peer.connected());
    EXPECT_EQ(attack.peer.counters().messages_forged, 1U);
  }
}

TEST(EndpointKey, create__bad_key_is_named_but_not_told) {
  const Result<Endpoint> endpoint = Endpoint::create(keyed_options("x", "c0ffee"));
  ASSERT_FALSE(endpoint.ok());
  EXPECT_TRUE(says(endpoint.error().message(), "job_key: a job key is 32 hexadecimal digits"));
  EXPECT_FALSE(says(endpoint.error().message(), "c0ffee"));
}

TEST(EndpointKey, read_job_key__first_line_of_a_file) {
  const std::string path = testing::TempDir() + "thalweg-job-key";
  std::ofstream(path) << kKey << "\nmore\n";
  const Result<std::string> key = read_job_key(path);
  ASSERT_TRUE(key.ok()) << key.error().message();
  EXPECT_EQ(*key, kKey);
  std::ofstream(path) << "short";
  EXPECT_TRUE(says(read_job_key(path).error().message(), path + ": a job key is 32"));
  std::remove(path.c_str());
  EXPECT_TRUE(says(read_job_key(path).error().message(), "cannot read the job key from " + path));
}

}  // namespace
}  // namespace thalweg::net
