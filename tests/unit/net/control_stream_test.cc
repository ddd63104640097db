// Signals by stream and by copies in datagrams.
#include "net/control_stream.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <cstring>
#include <memory>
#include <vector>

namespace thalweg {
namespace {

constexpr JobToken kJob = 7;

// Two ends of one stream; with a key, both hold it.
struct Ends {
  explicit Ends(bool keyed) {
    std::array<int, 2> fds{};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds.data()), 0);
    if (keyed) {
      const JobKey key = *JobKey::from_hex("00112233445566778899aabbccddeeff");
      guards[0] = std::make_unique<PacketGuard>(kJob, key, KeyScope{0, 1, 5, 6});
      guards[1] = std::make_unique<PacketGuard>(kJob, key, KeyScope{1, 0, 6, 5});
    }
    sender = std::make_unique<ControlStream>(Fd(fds[0]), kJob, guards[0].get());
    receiver = std::make_unique<ControlStream>(Fd(fds[1]), kJob, guards[1].get());
  }

  std::vector<std::byte> copy() {
    const auto bytes = sender->take_copy();
    return {bytes.begin(), bytes.end()};
  }
  bool take(const std::vector<std::byte>& copy) {
    const ControlStream::CopyRead read =
        receiver->receive_copy(copy, [&](const ControlMessage& m) { got.push_back(m); });
    data_end = read.data_end;
    return read.good;
  }
  std::string read() {
    EXPECT_EQ(sender->flush(), "");
    return receiver->receive([&](const ControlMessage& m) { got.push_back(m); });
  }

  std::array<std::unique_ptr<PacketGuard>, 2> guards;
  std::unique_ptr<ControlStream> sender;
  std::unique_ptr<ControlStream> receiver;
  std::vector<ControlMessage> got;
  std::optional<std::uint64_t> data_end;  // of the last copy taken
};

TEST(ControlStream, copies__each_message_counts_once_and_in_order) {
  for (const bool keyed : {false, true}) {
    SCOPED_TRACE(keyed);
    Ends ends(keyed);
    std::vector<ControlMessage> sent;
    const auto push = [&](const ControlMessage& message) {
      ends.sender->push(message);
      sent.push_back(message);
    };
    push(ReportMessage{.packets_sent = 1});
    EXPECT_TRUE(ends.copy().empty()) << "nobody waits for a report";
    push(FinishMessage{1, 10});
    const auto first = ends.copy();
    EXPECT_TRUE(ends.copy().empty()) << "once is enough";
    EXPECT_TRUE(ends.take(first));
    EXPECT_EQ(ends.got, sent);
    EXPECT_TRUE(ends.take(first)) << "twice does no harm";
    EXPECT_TRUE(ends.receiver->behind());
    EXPECT_EQ(ends.read(), "");
    EXPECT_FALSE(ends.receiver->behind());
    EXPECT_EQ(ends.got, sent);
    // A copy that is lost is in the next one too.
    push(FinishMessage{2, 10});
    EXPECT_FALSE(ends.copy().empty());
    push(ConfirmMessage{3});
    EXPECT_TRUE(ends.copy().empty()) << "nobody waits for a confirm";
    push(FinishMessage{4, 10});
    EXPECT_TRUE(ends.take(ends.copy()));
    EXPECT_EQ(ends.got, sent);
    push(ConfirmMessage{5});
    EXPECT_EQ(ends.read(), "");
    EXPECT_EQ(ends.got, sent);
  }
}

TEST(ControlStream, copies__what_lacks_its_predecessors_waits_for_the_stream) {
  Ends ends(false);
  // More than a copy holds.
  for (std::uint32_t i = 0; i < 100; ++i) ends.sender->push(FinishMessage{i, 1});
  const auto copy = ends.copy();
  EXPECT_LE(copy.size(), ControlStream::kMaxCopy);
  EXPECT_TRUE(ends.take(copy));
  EXPECT_TRUE(ends.got.empty());
  EXPECT_EQ(ends.read(), "");
  EXPECT_EQ(ends.got.size(), 100U);
  // One that does not fit any copy.
  ResendMessage large{.transfer = 1, .round = 1, .last = true, .ranges = {}};
  for (std::uint32_t i = 0; i < kMaxRangesPerMessage; ++i) large.ranges.push_back({2 * i, 1});
  ends.sender->push(large);
  EXPECT_TRUE(ends.copy().empty());
  EXPECT_EQ(ends.read(), "");
  EXPECT_EQ(ends.got.back(), ControlMessage(large));
}

TEST(ControlStream, copies__without_what_the_peer_is_known_to_have) {
  Ends ends(false);
  ends.sender->push(FinishMessage{1, 10});
  const auto first = ends.copy();
  EXPECT_EQ(ends.sender->flush(), "");
  ends.sender->push(FinishMessage{2, 10});
  EXPECT_EQ(ends.copy().size(), 2 * first.size()) << "the first may be lost";
  EXPECT_EQ(ends.read(), "");
  ends.sender->push(FinishMessage{3, 10});
  const auto third = ends.copy();
  EXPECT_EQ(third.size(), first.size());
  EXPECT_TRUE(ends.take(third));
  EXPECT_EQ(ends.got.size(), 3U);
}

TEST(ControlStream, copies__one_that_is_read_before_its_predecessor_waits_for_the_stream) {
  Ends ends(false);
  ends.sender->push(FinishMessage{1, 10});
  const std::size_t size = ends.copy().size();
  EXPECT_EQ(ends.sender->flush(), "");
  ends.sender->push(FinishMessage{2, 10});
  const auto both = ends.copy();
  EXPECT_FALSE(ends.receiver->early());
  EXPECT_TRUE(ends.take({both.begin() + static_cast<std::ptrdiff_t>(size), both.end()}));
  EXPECT_TRUE(ends.got.empty());
  EXPECT_TRUE(ends.receiver->early());
  // The stream has the first only.
  const auto keep = [&](const ControlMessage& m) { ends.got.push_back(m); };
  EXPECT_EQ(ends.receiver->receive(keep), "");
  EXPECT_EQ(ends.got, (std::vector<ControlMessage>{FinishMessage{1, 10}, FinishMessage{2, 10}}));
  EXPECT_FALSE(ends.receiver->early());
  EXPECT_EQ(ends.read(), "");
  EXPECT_EQ(ends.got.size(), 2U);
}

TEST(ControlStream, receive_copy__a_stop_at_its_end_left_behind_its_data) {
  for (const bool keyed : {false, true}) {
    SCOPED_TRACE(keyed);
    Ends ends(keyed);
    ends.sender->push(FinishMessage{1, 10});
    EXPECT_FALSE(ends.sender->ends_with_stop());
    ends.sender->push(StopMessage{2, 0, 77, 5});
    EXPECT_TRUE(ends.sender->ends_with_stop());
    const auto copy = ends.copy();
    EXPECT_TRUE(ends.take(copy));
    EXPECT_EQ(ends.data_end, 77U);
    EXPECT_TRUE(ends.take(copy));
    EXPECT_FALSE(ends.data_end) << "no news";
    // In another's copy it may have overtaken its data.
    ends.sender->push(StopMessage{2, 1, 78, 6});
    ends.sender->push(FinishMessage{3, 10});
    EXPECT_TRUE(ends.take(ends.copy()));
    EXPECT_EQ(ends.got.size(), 4U);
    EXPECT_FALSE(ends.data_end);
  }
}

TEST(ControlStream, receive_copy__nonsense_and_forgeries_change_nothing) {
  for (const bool keyed : {false, true}) {
    SCOPED_TRACE(keyed);
    Ends ends(keyed);
    ends.sender->push(FinishMessage{3, 1});
    const auto good = ends.copy();
    for (const std::size_t at : {0U, 1U, 8U, 4U}) {
      auto bad = good;
      bad[at] ^= std::byte{0x40};
      EXPECT_FALSE(ends.take(bad)) << at;
    }
    EXPECT_FALSE(ends.take({good.begin(), good.end() - 1}));
    if (keyed) {
      auto forged = good;
      forged[24] ^= std::byte{1};
      EXPECT_FALSE(ends.take(forged));
    }
    EXPECT_TRUE(ends.got.empty());
    EXPECT_EQ(ends.read(), "");
    EXPECT_EQ(ends.got.size(), 1U);
  }
}

}  // namespace
}  // namespace thalweg
