// Signals on the stream, and their copies in datagrams.
#include "net/dlcp/control_stream.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <cstring>
#include <memory>
#include <vector>

namespace thalweg::net {
namespace {

constexpr wire::JobToken kJob = 7;

// Two ends of one stream; with a key, both hold it.
struct Ends {
  explicit Ends(bool keyed) {
    std::array<int, 2> fds{};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds.data()), 0);
    if (keyed) {
      const wire::JobKey key = *wire::JobKey::from_hex("00112233445566778899aabbccddeeff");
      guards[0] = std::make_unique<PacketGuard>(kJob, key, wire::KeyScope{0, 1, 5, 6});
      guards[1] = std::make_unique<PacketGuard>(kJob, key, wire::KeyScope{1, 0, 6, 5});
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
        receiver->receive_copy(copy, [&](const wire::ControlMessage& m) { got.push_back(m); });
    data_end = read.data_end;
    return read.good;
  }
  std::string read() {
    EXPECT_EQ(sender->flush(), "");
    return receiver->receive([&](const wire::ControlMessage& m) { got.push_back(m); });
  }

  std::array<std::unique_ptr<PacketGuard>, 2> guards;
  std::unique_ptr<ControlStream> sender;
  std::unique_ptr<ControlStream> receiver;
  std::vector<wire::ControlMessage> got;
  std::optional<ControlStream::DataEnd> data_end;  // as said by the last copy that was taken
};

TEST(ControlStream, copies__each_message_counts_once_and_in_order) {
  for (const bool keyed : {false, true}) {
    SCOPED_TRACE(keyed);
    Ends ends(keyed);
    std::vector<wire::ControlMessage> sent;
    const auto push = [&](const wire::ControlMessage& message) {
      ends.sender->push(message);
      sent.push_back(message);
    };
    push(wire::ReportMessage{.packets_sent = 1});
    EXPECT_TRUE(ends.copy().empty()) << "nobody waits for a report";
    push(wire::FinishMessage{1, 10});
    const auto first = ends.copy();
    EXPECT_TRUE(ends.copy().empty()) << "once is enough";
    EXPECT_TRUE(ends.take(first));
    EXPECT_EQ(ends.got, sent);
    EXPECT_TRUE(ends.take(first)) << "twice does no harm";
    EXPECT_TRUE(ends.receiver->behind());
    EXPECT_EQ(ends.read(), "");
    EXPECT_FALSE(ends.receiver->behind());
    EXPECT_EQ(ends.got, sent);
    // The signals of a lost copy are in the next one too.
    push(wire::FinishMessage{2, 10});
    EXPECT_FALSE(ends.copy().empty());
    push(wire::ConfirmMessage{3});
    EXPECT_TRUE(ends.copy().empty()) << "nobody waits for a confirm";
    push(wire::FinishMessage{4, 10});
    EXPECT_TRUE(ends.take(ends.copy()));
    EXPECT_EQ(ends.got, sent);
    push(wire::ConfirmMessage{5});
    EXPECT_EQ(ends.read(), "");
    EXPECT_EQ(ends.got, sent);
  }
}

TEST(ControlStream, copies__what_lacks_its_predecessors_waits_for_the_stream) {
  Ends ends(false);
  // These are more signals than a copy holds.
  for (std::uint32_t i = 0; i < 100; ++i) ends.sender->push(wire::FinishMessage{i, 1});
  const auto copy = ends.copy();
  EXPECT_LE(copy.size(), ControlStream::kMaxCopy);
  EXPECT_TRUE(ends.take(copy));
  EXPECT_TRUE(ends.got.empty());
  EXPECT_EQ(ends.read(), "");
  EXPECT_EQ(ends.got.size(), 100U);
  // This signal is too large for any copy.
  wire::ResendMessage large{.transfer = 1, .round = 1, .last = true, .ranges = {}};
  for (std::uint32_t i = 0; i < wire::kMaxRangesPerMessage; ++i) large.ranges.push_back({2 * i, 1});
  ends.sender->push(large);
  EXPECT_TRUE(ends.copy().empty());
  EXPECT_EQ(ends.read(), "");
  EXPECT_EQ(ends.got.back(), wire::ControlMessage(large));
}

TEST(ControlStream, copies__without_what_the_peer_is_known_to_have) {
  Ends ends(false);
  ends.sender->push(wire::FinishMessage{1, 10});
  const auto first = ends.copy();
  EXPECT_EQ(ends.sender->flush(), "");
  ends.sender->push(wire::FinishMessage{2, 10});
  EXPECT_EQ(ends.copy().size(), 2 * first.size()) << "the first may be lost";
  EXPECT_EQ(ends.read(), "");
  ends.sender->push(wire::FinishMessage{3, 10});
  const auto third = ends.copy();
  EXPECT_EQ(third.size(), first.size());
  EXPECT_TRUE(ends.take(third));
  EXPECT_EQ(ends.got.size(), 3U);
}

TEST(ControlStream, copies__one_that_is_read_before_its_predecessor_waits_for_the_stream) {
  Ends ends(false);
  ends.sender->push(wire::FinishMessage{1, 10});
  const std::size_t size = ends.copy().size();
  EXPECT_EQ(ends.sender->flush(), "");
  ends.sender->push(wire::FinishMessage{2, 10});
  const auto both = ends.copy();
  EXPECT_FALSE(ends.receiver->early());
  EXPECT_TRUE(ends.take({both.begin() + static_cast<std::ptrdiff_t>(size), both.end()}));
  EXPECT_TRUE(ends.got.empty());
  EXPECT_TRUE(ends.receiver->early());
  // The stream holds only the first signal.
  const auto keep = [&](const wire::ControlMessage& m) { ends.got.push_back(m); };
  EXPECT_EQ(ends.receiver->receive(keep), "");
  EXPECT_EQ(ends.got, (std::vector<wire::ControlMessage>{wire::FinishMessage{1, 10},
                                                         wire::FinishMessage{2, 10}}));
  EXPECT_FALSE(ends.receiver->early());
  EXPECT_EQ(ends.read(), "");
  EXPECT_EQ(ends.got.size(), 2U);
}

TEST(ControlStream, receive_copy__a_stop_at_its_end_left_behind_its_data) {
  for (const bool keyed : {false, true}) {
    SCOPED_TRACE(keyed);
    Ends ends(keyed);
    ends.sender->push(wire::FinishMessage{1, 10});
    EXPECT_FALSE(ends.sender->stop_queue());
    ends.sender->push(wire::StopMessage{2, 0, 77, 5, 6});
    EXPECT_EQ(ends.sender->stop_queue(), 6);
    EXPECT_TRUE(ends.sender->copy_due());
    const auto copy = ends.copy();
    EXPECT_TRUE(ends.take(copy));
    EXPECT_FALSE(ends.sender->copy_due());
    EXPECT_EQ(ends.data_end, (ControlStream::DataEnd{77, 6}));
    EXPECT_TRUE(ends.take(copy));
    EXPECT_FALSE(ends.data_end) << "no news";
    // If the stop is not the last signal of a copy, the copy may have overtaken the data.
    ends.sender->push(wire::StopMessage{2, 1, 78, 6});
    ends.sender->push(wire::FinishMessage{3, 10});
    EXPECT_TRUE(ends.take(ends.copy()));
    EXPECT_EQ(ends.got.size(), 4U);
    EXPECT_FALSE(ends.data_end);
  }
}

TEST(ControlStream, receive_copy__nonsense_and_forgeries_change_nothing) {
  for (const bool keyed : {false, true}) {
    SCOPED_TRACE(keyed);
    Ends ends(keyed);
    ends.sender->push(wire::FinishMessage{3, 1});
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
}  // namespace thalweg::net
