// Real connections, recorded and replayed without sockets.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "net/net_pair.h"
#include "proto/dlcp/record/record_codec.h"
#include "proto/dlcp/record/replay.h"

namespace thalweg::net {
namespace {

class Record : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "thalweg-record-" + std::to_string(getpid());
    std::filesystem::create_directory(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  [[nodiscard]] std::vector<std::byte> file(const std::string& name) const {
    std::ifstream in(folder_ + "/" + name, std::ios::binary);
    EXPECT_TRUE(in.good()) << name;
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    const auto bytes = std::as_bytes(std::span(text));
    return {bytes.begin(), bytes.end()};
  }

  // Several transfers in both directions under loss, one of them cancelled, recorded at both ends.
  void make_recordings() const {
    EndpointOptions server = test_options("server");
    EndpointOptions client = test_options("client");
    server.record_folder = client.record_folder = folder_;
    NetPair pair =
        NetPair::make(server, client,
                      {.server = [](std::uint64_t sequence) { return sequence % 31 == 3; },
                       .client = [](std::uint64_t sequence) { return sequence % 17 == 5; }});
    Prng prng(9);
    std::vector<std::vector<float>> targets(12, std::vector<float>(60'000));
    const std::vector<float> source = random_floats(60'000, prng);
    std::vector<Result<Transfer>> all;
    for (std::uint64_t key = 0; key < targets.size(); ++key) {
      const Peer& from = key % 2 == 0 ? pair.at_client : pair.at_server;
      const Peer& to = key % 2 == 0 ? pair.at_server : pair.at_client;
      const double bound = key % 3 == 0 ? 0 : 0.04;
      all.push_back(to.recv(TensorSpan::of(targets[key]), {.key = key, .loss_bound = bound}));
      SendOptions options{.key = key, .loss_bound = bound};
      if (key % 4 == 0) {
        options.tag_of = [](std::int64_t first, std::int64_t) {
          return PacketTag{static_cast<std::uint8_t>(first / 7000 % 3), first % 2 == 0};
        };
      }
      all.push_back(from.send(TensorView::of(source), options));
    }
    const auto cancelled = pair.at_client.recv(TensorSpan::of(targets[0]), {.key = 99});
    cancelled->cancel();
    EXPECT_NE(error_of(cancelled), "");
    for (const auto& transfer : all) EXPECT_EQ(error_of(transfer), "");
  }

  std::string folder_;
};

TEST_F(Record, replay__a_real_run_is_the_same_byte_for_byte) {
  make_recordings();
  std::uint64_t sent = 0;
  for (const char* name : {"server-0.dlcp", "client-0.dlcp"}) {
    SCOPED_TRACE(name);
    const Result<proto::ReplaySummary> summary = proto::replay_recording(file(name));
    ASSERT_TRUE(summary.ok()) << summary.error().message();
    EXPECT_FALSE(summary->difference) << summary->difference->verb;
    EXPECT_TRUE(summary->complete);
    EXPECT_EQ(summary->sends, 6U);
    EXPECT_EQ(summary->succeeded, 12U);
    EXPECT_EQ(summary->failed, std::string(name) == "client-0.dlcp" ? 1U : 0U);
    EXPECT_GT(summary->counters.segments_retransmitted, 0U);
    EXPECT_GT(summary->duration, Duration());
    EXPECT_GT(summary->messages_received, 12U);
    sent += summary->counters.segments_sent;
  }
  EXPECT_GT(sent, 12U * 172U);
}

// What its receiver granted is among the messages of a sender's recording.
TEST_F(Record, replay__a_sender_that_was_granted) {
  EndpointOptions server = test_options("server");
  server.grants = true;
  EndpointOptions client = test_options("client");
  client.record_folder = folder_;
  {
    NetPair pair = NetPair::make(server, client);
    const std::vector<float> source(200'000, 0.5F);
    std::vector<float> target(source.size());
    const auto receiving = pair.at_server.recv(TensorSpan::of(target), {});
    EXPECT_EQ(error_of(pair.at_client.send(TensorView::of(source), {})), "");
    EXPECT_EQ(error_of(receiving), "");
    EXPECT_EQ(target, source);
  }
  const Result<proto::ReplaySummary> summary = proto::replay_recording(file("client-0.dlcp"));
  ASSERT_TRUE(summary.ok()) << summary.error().message();
  EXPECT_FALSE(summary->difference) << summary->difference->verb;
  EXPECT_TRUE(summary->complete);
  EXPECT_GT(summary->counters.grants_received, 0U);
}

// The replay refuses a file in which any byte has changed.
TEST_F(Record, replay__a_damaged_file_is_refused) {
  make_recordings();
  const std::vector<std::byte> good = file("client-0.dlcp");
  Prng prng(4);
  for (int i = 0; i < 20; ++i) {
    std::vector<std::byte> bad = good;
    const std::size_t at = i < 8 ? static_cast<std::size_t>(i) : prng.below(bad.size());
    bad[at] ^= static_cast<std::byte>(1U << prng.below(8));
    EXPECT_FALSE(proto::replay_recording(bad).ok()) << "byte " << at;
  }
  EXPECT_FALSE(proto::replay_recording(std::span(good).first(good.size() - 1)).ok());
  EXPECT_FALSE(proto::replay_recording({}).ok());
}

// The same without checksums: a changed input leads to other answers, or is refused.
TEST_F(Record, replay__a_changed_input_is_a_difference_or_an_error) {
  make_recordings();
  const std::vector<std::byte> content = *proto::recording_content(file("server-0.dlcp"));
  ASSERT_FALSE(proto::replay_records(content)->difference);
  Prng prng(5);
  int different = 0;
  int refused = 0;
  constexpr int kTries = 200;
  for (int i = 0; i < kTries; ++i) {
    std::vector<std::byte> changed = content;
    changed[prng.below(changed.size())] ^= static_cast<std::byte>(1U << prng.below(8));
    const Result<proto::ReplaySummary> summary = proto::replay_records(changed);
    if (!summary.ok()) {
      ++refused;
    } else if (summary->difference) {
      ++different;
      EXPECT_NE(summary->difference->recorded, summary->difference->replayed);
    }
  }
  EXPECT_GT(different, kTries / 3);
  // The other changes make no difference, such as the sending time of a packet that came twice.
  EXPECT_GT(different + refused, kTries * 8 / 10);
}

TEST_F(Record, create__a_folder_that_is_not_there_is_named) {
  EndpointOptions options = test_options("x");
  options.record_folder = folder_ + "/nowhere";
  const Result<Endpoint> endpoint = Endpoint::create(options);
  ASSERT_FALSE(endpoint.ok());
  EXPECT_TRUE(says(endpoint.error().message(), "record_folder: cannot write to '" + folder_));
}

TEST_F(Record, replay__one_that_was_cut_off_after_a_block_is_replayed_that_far) {
  make_recordings();
  const std::vector<std::byte> content = *proto::recording_content(file("server-0.dlcp"));
  std::vector<std::byte> cut = proto::recording_start();
  // Drops the end of the file: a kind and the counters.
  const Result<proto::ReplaySummary> whole = proto::replay_records(content);
  ASSERT_TRUE(whole.ok());
  for (std::size_t size = content.size() - 1; size > content.size() - 100; --size) {
    const Result<proto::ReplaySummary> summary =
        proto::replay_records(std::span(content).first(size));
    if (!summary.ok() || summary->difference) continue;
    EXPECT_FALSE(summary->complete);
    EXPECT_EQ(summary->records + 1, whole->records);
    proto::append_block(std::span(content).first(size), cut);
    break;
  }
  const Result<proto::ReplaySummary> summary = proto::replay_recording(cut);
  ASSERT_TRUE(summary.ok());
  EXPECT_FALSE(summary->complete || summary->difference);
}

}  // namespace
}  // namespace thalweg::net
