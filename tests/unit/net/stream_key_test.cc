// Streams of a job with a key.
#include "net/auth/stream_key.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "net/group/streams/connection.h"
#include "net/net_pair.h"
#include "net/ranks.h"

namespace thalweg::net {
namespace {

wire::JobKey key_of(char digit) { return wire::JobKey::from_hex(std::string(32, digit)).value(); }

TEST(StreamKey, admit__who_holds_the_key_and_knows_the_challenge) {
  StreamKey here(key_of('a'), 1, 77);
  const auto opens = [&](const StreamKey& other, std::uint64_t challenge) {
    const StreamKey::Opening opening = other.open(challenge, 5);
    const std::optional<StreamKey::Admission> admission = here.admit(opening.bytes);
    EXPECT_TRUE(!admission || admission->answer == opening.answer);
    return admission.has_value();
  };
  EXPECT_TRUE(opens(StreamKey(key_of('a'), 1, 0), 77));
  EXPECT_FALSE(opens(StreamKey(key_of('b'), 1, 0), 77));
  EXPECT_FALSE(opens(StreamKey(key_of('a'), 2, 0), 77));
  EXPECT_FALSE(opens(StreamKey(key_of('a'), 1, 0), 78));
  // An answer that is sent back to its sender proves nothing.
  StreamKey::Opening opening = here.open(77, 5);
  std::ranges::copy(opening.answer, opening.bytes.begin() + sizeof(std::uint64_t));
  EXPECT_FALSE(here.admit(opening.bytes));
}

TEST(StreamKey, admit__no_opening_twice) {
  StreamKey here(key_of('a'), 1, 77);
  const StreamKey there(key_of('a'), 1, 0);
  const StreamKey::Opening recorded = there.open(77, 5);
  EXPECT_TRUE(here.admit(recorded.bytes));
  EXPECT_FALSE(here.admit(recorded.bytes));
  EXPECT_TRUE(here.admit(there.open(77, 6).bytes));
}

// The opening says whether the stream is sealed, and nobody but a holder of the key can say it.
TEST(StreamKey, admit__a_sealed_stream_has_secrets_that_both_ends_know) {
  for (const bool acceptor_seals : {false, true}) {
    StreamKey here(key_of('a'), 1, 77, acceptor_seals);
    const StreamKey there(key_of('a'), 1, 0, true);
    const StreamKey::Opening opening = there.open(77, 5);
    const std::optional<StreamKey::Admission> admission = here.admit(opening.bytes);
    ASSERT_TRUE(admission && admission->secrets && opening.secrets);
    EXPECT_EQ(admission->answer, opening.answer);
    EXPECT_EQ(admission->secrets->in, opening.secrets->out);
    EXPECT_EQ(admission->secrets->out, opening.secrets->in);
    EXPECT_NE(opening.secrets->in, opening.secrets->out);
    // Neither is ever sent.
    for (const auto& secret : {opening.secrets->in, opening.secrets->out}) {
      EXPECT_NE(secret, opening.answer);
      EXPECT_FALSE(std::ranges::equal(secret, std::span(opening.bytes).subspan<8>()));
    }
    // Each stream, communicator and challenge has its own.
    EXPECT_NE(there.open(77, 6).secrets->out, opening.secrets->out);
    EXPECT_NE(there.open(78, 5).secrets->out, opening.secrets->out);
    EXPECT_NE(StreamKey(key_of('a'), 2, 0, true).open(77, 5).secrets->out, opening.secrets->out);
    EXPECT_NE(StreamKey(key_of('b'), 1, 0, true).open(77, 5).secrets->out, opening.secrets->out);
    const StreamKey plain(key_of('a'), 1, 0, false);
    EXPECT_FALSE(plain.open(77, 8).secrets);
    const auto unsealed = here.admit(plain.open(77, 8).bytes);
    ASSERT_TRUE(unsealed);
    EXPECT_FALSE(unsealed->secrets);
  }
}

TEST(StreamKey, address__with_its_challenge) {
  const StreamKey key(key_of('a'), 1, 0xfedc'ba98'7654'3210);
  const auto parsed = StreamAddress::parse(key.address("10.0.0.1:7000"));
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->host_ports.front(), "10.0.0.1:7000");
  EXPECT_EQ(parsed->challenge, 0xfedc'ba98'7654'3210);
  EXPECT_EQ(StreamAddress::parse("10.0.0.1:7000")->challenge, std::nullopt);
  EXPECT_FALSE(StreamAddress::parse("10.0.0.1:7000 x").ok());
  const Time until = monotonic_now() + Duration::milliseconds(5000);
  EXPECT_TRUE(says(connect_stream("10.0.0.1:7000", &key, until).error().message(), "no job key"));
  EXPECT_TRUE(says(connect_stream("10.0.0.1:7000 1", nullptr, until).error().message(),
                   "THALWEG_KEY_FILE"));
}

// Feeds a connection the peer's first bytes, one at a time, and returns why it ended.
std::string over_after(const wire::SessionProof& said, const wire::SessionProof& expected) {
  struct Nobody final : Connection::Handler {
    Streamed* on_data(Connection&, const wire::Frame&) override { return nullptr; }
    void on_frame(Connection&, const wire::Frame&, const std::string&) override {}
    void on_progress(Streamed&) override {}
    void on_spoiled(Connection&) override {}
    bool next_data(Connection&, wire::Frame&, Connection::Outgoing&) override { return false; }
  } nobody;
  std::array<int, 2> fds{};
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds.data()), 0);
  const Fd peer(fds[1]);
  Connection connection(Rank(0));
  connection.expect(expected);
  connection.attach(Fd(fds[0]));
  std::vector<std::byte> buffer(1 << 16);
  for (const std::byte byte : said) {
    if (!connection.over().empty()) break;
    EXPECT_EQ(send(peer.get(), &byte, 1, MSG_NOSIGNAL), 1);
    EXPECT_TRUE(connection.read(buffer, nobody));
  }
  return connection.over();
}

TEST(StreamKey, connection__breaks_off_unless_the_peer_proves_it_first) {
  const StreamKey::Opening opening = StreamKey(key_of('a'), 1, 0).open(77, 5);
  EXPECT_EQ(over_after(opening.answer, opening.answer), "");
  wire::SessionProof wrong = opening.answer;
  wrong.back() ^= std::byte{1};
  EXPECT_EQ(over_after(wrong, opening.answer), "it does not hold the job key");
}

// Ranks of one process share its environment, so all have the key.
TEST(StreamKey, communicator__collectives_and_messages_with_a_key) {
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() / fmt::format("thalweg-key-{}", random_number());
  std::ofstream(file) << std::string(32, 'c') << "\n";
  setenv("THALWEG_KEY_FILE", file.c_str(), 1);
  const OptionsOfRank by_one_stream = [](int) {
    return CommunicatorOptions{.shared_memory = false};
  };
  const OptionsOfRank by_memory = [](int) { return CommunicatorOptions(); };
  for (const OptionsOfRank& options : {by_one_stream, by_memory, several_ways(2)}) {
    run_ranks_by(4, options, [](Communicator& all) {
      std::vector<std::int32_t> values(200'000, all.rank() + 1);
      for (int i = 0; i < 3; ++i) {
        const Status status = all.allreduce(TensorSpan::of(values), {.op = ReduceOp::kMax});
        ASSERT_TRUE(status.ok()) << status.error().message();
        EXPECT_EQ(values, std::vector<std::int32_t>(200'000, 4));
      }
      std::vector<std::int32_t> letter(100, all.rank());
      const int next = (all.rank() + 1) % 4;
      const int last = (all.rank() + 3) % 4;
      const auto sent = all.send_async(TensorView::of(letter), next, 1, {});
      ASSERT_TRUE(sent.ok()) << sent.error().message();
      std::vector<std::int32_t> got(100);
      const Result<int> received = all.recv(TensorSpan::of(got), last, 1, {});
      ASSERT_TRUE(received.ok()) << received.error().message();
      EXPECT_EQ(got, std::vector<std::int32_t>(100, last));
      const Status status = sent->wait();
      EXPECT_TRUE(status.ok()) << status.error().message();
    });
  }
  unsetenv("THALWEG_KEY_FILE");
  std::filesystem::remove(file);
}

}  // namespace
}  // namespace thalweg::net
