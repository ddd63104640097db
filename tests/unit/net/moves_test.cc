// Streams that go on over other TCP connections: over socket pairs, with bytes that are lost.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/messages.h"
#include "base/prng.h"
#include "net/connection_end.h"
#include "net/group/streams/stream_bytes.h"
#include "net/net_pair.h"
#include "net/ranks.h"

namespace thalweg::net {
namespace {

std::vector<std::byte> numbers(std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i * 13 + i / 256);
  return bytes;
}

// A sender over a socket pair, and what its other end receives.
class StreamBytesTest : public testing::Test {
 protected:
  StreamBytesTest() {
    sender_.keep_copies();
    receiver_.keep_copies();
    reconnect();
  }
  void reconnect() {
    const std::array<int, 2> fds = stream_pair();
    near_ = Fd(fds[0]);
    far_ = Fd(fds[1]);
  }
  void send_some(std::span<const std::byte> bytes) {
    const ssize_t sent = send(near_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    ASSERT_EQ(sent, std::ssize(bytes));
    sender_.sent(bytes, near_.get());
  }
  std::vector<std::byte> receive(std::size_t most) {
    std::vector<std::byte> bytes(most);
    std::array<iovec, 1> into{iovec{bytes.data(), bytes.size()}};
    const ssize_t got = receiver_.receive(far_.get(), into);
    bytes.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    return bytes;
  }

  StreamBytes sender_;
  StreamBytes receiver_;
  Fd near_;
  Fd far_;
};

TEST_F(StreamBytesTest, resume__sends_again_what_did_not_arrive_and_nothing_twice) {
  const std::vector<std::byte> all = numbers(1000);
  send_some(std::span(all).first(700));
  EXPECT_EQ(receive(300).size(), 300U);
  send_some(std::span(all).last(300));
  sender_.pause();
  receiver_.pause();
  EXPECT_TRUE(receive(100).empty());
  // It gets nothing of what is on its way.
  far_ = Fd(stream_pair()[0]);
  const std::uint64_t received = receiver_.drain(far_.get());
  EXPECT_EQ(received, 300U);
  reconnect();
  ASSERT_TRUE(sender_.resume(received));
  ASSERT_TRUE(receiver_.resume(0));
  EXPECT_TRUE(sender_.repeats());
  EXPECT_TRUE(sender_.repeat(near_.get()));
  const std::vector<std::byte> rest = receive(1000);
  EXPECT_EQ(rest, std::vector<std::byte>(all.begin() + 300, all.end()));
}

TEST_F(StreamBytesTest, drain__bytes_are_read_first_and_counted_once) {
  const std::vector<std::byte> all = numbers(1000);
  send_some(all);
  EXPECT_EQ(receive(10).size(), 10U);
  receiver_.pause();
  EXPECT_EQ(receiver_.drain(far_.get()), 1000U);
  EXPECT_TRUE(receiver_.has_early());
  EXPECT_EQ(receiver_.drain(far_.get()), 1000U);
  EXPECT_EQ(receive(2000), std::vector<std::byte>(all.begin() + 10, all.end()));
  EXPECT_FALSE(receiver_.has_early());
  EXPECT_TRUE(sender_.resume(1000));
  EXPECT_FALSE(sender_.repeats());
}

TEST_F(StreamBytesTest, resume__counts_that_cannot_be_are_refused) {
  const std::vector<std::byte> bytes = numbers(std::size_t{64} << 10);
  for (int i = 0; i < 16; ++i) {
    send_some(bytes);
    EXPECT_EQ(receive(bytes.size()).size(), bytes.size());
  }
  const std::uint64_t all = 16 * bytes.size();
  EXPECT_FALSE(sender_.resume(all + 1));
  // Those were acknowledged, and are forgotten.
  EXPECT_FALSE(sender_.resume(0));
  EXPECT_TRUE(sender_.resume(all));
}

TEST_F(StreamBytesTest, drain__a_greeting_that_did_not_come_is_not_awaited) {
  receiver_.expect_uncounted(8);
  ASSERT_EQ(send(near_.get(), "hey", 3, 0), 3);
  EXPECT_EQ(receive(3).size(), 3U);
  receiver_.pause();
  EXPECT_EQ(receiver_.drain(far_.get()), 0U);
  EXPECT_TRUE(receiver_.resume(0));
  send_some(numbers(5));
  EXPECT_EQ(receive(100).size(), 5U);
  EXPECT_EQ(receiver_.drain(far_.get()), 5U);
}

// Without checksums, with them, and sealed.
class MovesTest : public testing::TestWithParam<wire::FrameCheck> {
 protected:
  static constexpr std::uint32_t kLanes = 2;

  MovesTest() {
    const std::array<int, 2> fds = stream_pair();
    sender_.use(GetParam());
    receiver_.use(GetParam());
    receiver_.dropped = true;  // it has no data to send
    for (ConnectionEnd* end : {&sender_, &receiver_}) end->connection.keep_copies();
    sender_.connection.attach(Fd(fds[0]));
    receiver_.connection.attach(Fd(fds[1]));
    for (std::uint32_t number = 1; number <= kLanes; ++number) {
      const std::array<int, 2> more = stream_pair();
      EXPECT_TRUE(sender_.connection.add_lane(number, Fd(more[0]), {}));
      EXPECT_TRUE(receiver_.connection.add_lane(number, Fd(more[1]), {}));
    }
  }

  // Nothing of what an end has not read of the stream arrives any more.
  void cut(ConnectionEnd& end, std::uint32_t stream) {
    const std::array<int, 2> nowhere = stream_pair();
    held_.emplace_back(nowhere[1]);
    Fd other(nowhere[0]);
    // The old socket stays open: the other end must not see an end.
    if (stream == 0) {
      held_.emplace_back(dup(end.connection.fd()));
      end.connection.attach(std::move(other));
    } else {
      const int fd = end.connection.fd_of(stream);
      held_.emplace_back(dup(fd));
      ASSERT_EQ(dup2(other.get(), fd), fd);
    }
  }
  void move(std::uint32_t stream) {
    Connection& a = sender_.connection;
    Connection& b = receiver_.connection;
    a.bytes_of(stream).pause();
    b.bytes_of(stream).pause();
    const std::uint64_t at_b = b.drain(stream);
    const std::uint64_t at_a = a.drain(stream);
    const std::array<int, 2> fds = stream_pair();
    held_.push_back(a.move(stream, Fd(fds[0]), at_b));
    held_.push_back(b.move(stream, Fd(fds[1]), at_a));
  }

  ConnectionEnd sender_{true};
  ConnectionEnd receiver_{false};
  std::vector<Fd> held_;
};

TEST_P(MovesTest, random_cuts__data_and_words_arrive_once_and_in_order) {
  const std::uint64_t seed = test_seed();
  Prng prng(seed);
  int asked = 0;
  int cuts = 0;
  while (!receiver_.op.executor->done()) {
    sender_.connection.flush(sender_);
    if (prng.below(3) == 0) {
      receiver_.connection.queue({.kind = wire::FrameKind::kAsk, .operation = 1},
                                 std::to_string(asked++));
    }
    receiver_.connection.flush(receiver_);
    for (std::uint64_t more = cuts == 0 ? 1 : prng.below(3); more > 0; --more) {
      const auto stream = static_cast<std::uint32_t>(prng.below(kLanes + 1));
      if (prng.below(4) != 0) cut(receiver_, stream);
      if (prng.below(4) == 0) cut(sender_, stream);
      move(stream);
      ++cuts;
    }
    if (prng.below(2) == 0) receiver_.read_all();
    sender_.read_all();
    ASSERT_EQ(receiver_.connection.over(), "") << "seed " << seed;
    ASSERT_EQ(sender_.connection.over(), "") << "seed " << seed;
    ASSERT_TRUE(receiver_.spoiled.empty()) << "seed " << seed;
  }
  receiver_.connection.flush(receiver_);
  sender_.read_all();
  EXPECT_TRUE(receiver_.tensor == sender_.tensor) << "seed " << seed;
  ASSERT_EQ(sender_.words.size(), static_cast<std::size_t>(asked)) << "seed " << seed;
  for (int i = 0; i < asked; ++i) {
    EXPECT_EQ(sender_.words[static_cast<std::size_t>(i)], std::to_string(i)) << "seed " << seed;
  }
  EXPECT_GT(cuts, 0);
}

TEST_P(MovesTest, stall__bytes_that_were_read_early_wait_for_it) {
  receiver_.stalls = true;
  sender_.connection.flush(sender_);
  receiver_.read_all();
  ASSERT_TRUE(receiver_.connection.stalled());
  for (std::uint32_t stream = 0; stream <= kLanes; ++stream) move(stream);
  EXPECT_FALSE(receiver_.connection.has_early());
  receiver_.stalls = false;
  receiver_.connection.resume(receiver_);
  EXPECT_TRUE(receiver_.connection.has_early());
  while (!receiver_.op.executor->done()) {
    sender_.connection.flush(sender_);
    receiver_.read_all();
    ASSERT_EQ(receiver_.connection.over(), "");
  }
  EXPECT_TRUE(receiver_.tensor == sender_.tensor);
}

TEST_P(MovesTest, move__a_count_that_cannot_be_ends_the_connection) {
  sender_.connection.flush(sender_);
  const std::array<int, 2> fds = stream_pair();
  const Fd far(fds[1]);
  sender_.connection.bytes_of(1).pause();
  held_.push_back(sender_.connection.move(1, Fd(fds[0]), std::uint64_t{1} << 40));
  EXPECT_TRUE(says(sender_.connection.over(), "which cannot be"));
}

INSTANTIATE_TEST_SUITE_P(Checks, MovesTest, kAllChecks, name_of_check);

}  // namespace
}  // namespace thalweg::net
