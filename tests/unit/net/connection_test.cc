// A connection of one stream between two ranks, over a socket pair.
#include "net/group/streams/connection.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "net/connection_end.h"

namespace thalweg::net {
namespace {

// Without checksums, with them, and sealed.
class ConnectionTest : public testing::TestWithParam<wire::FrameCheck> {
 protected:
  ConnectionTest() {
    const std::array<int, 2> fds = stream_pair();
    sender_ = std::make_unique<ConnectionEnd>(true);
    receiver_ = std::make_unique<ConnectionEnd>(false);
    sender_->use(GetParam());
    receiver_->use(GetParam());
    sender_->connection.attach(Fd(fds[0]));
    receiver_->connection.attach(Fd(fds[1]));
  }
  std::unique_ptr<ConnectionEnd> sender_;
  std::unique_ptr<ConnectionEnd> receiver_;
};

// The peer may be able to finish with the frame that is on its way, and must get it unchanged.
TEST_P(ConnectionTest, drop_data__sends_the_rest_of_a_frame_as_it_was) {
  const std::vector<std::byte> content = sender_->tensor;
  sender_->connection.flush(*sender_);
  ASSERT_TRUE(sender_->connection.blocked());
  sender_->connection.drop_data(*sender_);
  sender_->dropped = true;
  // The memory now belongs to its owner again, who changes it.
  std::memset(sender_->tensor.data(), 0, sender_->tensor.size());
  sender_->connection.queue({.kind = wire::FrameKind::kAbort, .rank = 3}, "why");
  while (receiver_->words.empty()) {
    sender_->connection.flush(*sender_);
    receiver_->read_all();
    ASSERT_TRUE(receiver_->connection.connected());
  }
  const std::size_t got = content.size() - receiver_->op.executor->outstanding(0);
  EXPECT_GT(got, 0U);
  EXPECT_EQ(got % sender_->most, 0U);  // whole frames
  EXPECT_TRUE(std::equal(content.begin(), content.begin() + static_cast<std::ptrdiff_t>(got),
                         receiver_->tensor.begin()));
  EXPECT_EQ(receiver_->words, std::vector<std::string>{"why"});
  EXPECT_EQ(receiver_->last.rank, 3U);
}

TEST_P(ConnectionTest, stall__keeps_all_bytes_until_it_is_resumed) {
  receiver_->stalls = true;
  sender_->connection.flush(*sender_);
  receiver_->read_all();
  EXPECT_TRUE(receiver_->connection.stalled());
  receiver_->stalls = false;
  receiver_->connection.resume(*receiver_);
  while (!receiver_->op.executor->done()) {
    sender_->connection.flush(*sender_);
    receiver_->read_all();
  }
  EXPECT_TRUE(receiver_->tensor == sender_->tensor);
}

// A text that comes in pieces, after data of an operation that is over, must not end up in a
// tensor.
TEST_P(ConnectionTest, read__words_in_pieces_after_data_are_not_taken_for_data) {
  while (!receiver_->op.executor->done()) {
    sender_->connection.flush(*sender_);
    receiver_->read_all();
  }
  receiver_->op.executor.reset();
  const std::string text(wire::kMaxFrameText, 'w');
  // What the sender writes goes through another socket, where it can be cut into pieces.
  const std::array<int, 2> fds = stream_pair();
  const Fd network(fds[1]);
  const int fd = dup(sender_->connection.fd());
  const Fd to_receiver(fd);
  sender_->connection.attach(Fd(fds[0]));
  sender_->connection.queue({.kind = wire::FrameKind::kAbort}, text);
  sender_->connection.flush(*sender_);
  std::vector<std::byte> bytes(2 * wire::kMaxFrameText);
  const ssize_t size = recv(network.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  ASSERT_GT(size, static_cast<ssize_t>(text.size()));
  send(fd, bytes.data(), 200, 0);
  receiver_->read_all();
  EXPECT_TRUE(receiver_->words.empty());
  send(fd, bytes.data() + 200, static_cast<std::size_t>(size) - 200, 0);
  receiver_->read_all();
  EXPECT_EQ(receiver_->words, std::vector<std::string>{text});
}

TEST_P(ConnectionTest, end__the_last_words_are_read_though_nothing_can_be_sent) {
  sender_->dropped = true;
  sender_->connection.queue({.kind = wire::FrameKind::kAbort, .rank = 1}, "last words");
  sender_->connection.flush(*sender_);
  sender_.reset();
  receiver_->dropped = true;
  receiver_->connection.queue({.kind = wire::FrameKind::kAsk, .operation = 1}, "are you there?");
  receiver_->connection.flush(*receiver_);
  EXPECT_TRUE(receiver_->connection.over().empty());
  receiver_->read_all();
  EXPECT_EQ(receiver_->words, std::vector<std::string>{"last words"});
  EXPECT_FALSE(receiver_->connection.over().empty());
}

// A rank that sends sums on waits for whole frames, if they have checksums. Within a host a frame
// is longer.
TEST_P(ConnectionTest, longest_frame__many_of_a_transfer_with_checksums) {
  ConnectionEnd elsewhere(true);  // without a socket it does not know that the peer is on this host
  elsewhere.use(GetParam());
  const Connection& connection = elsewhere.connection;
  const bool checked = GetParam() != wire::FrameCheck::kNone;
  for (const std::size_t transfer : {std::size_t{1000}, std::size_t{1} << 20, SIZE_MAX}) {
    const std::size_t most = connection.longest_frame(transfer);
    EXPECT_LE(most, wire::kMaxCheckedData);
    EXPECT_EQ(most < (std::size_t{1} << 20), checked);
    if (checked && transfer == std::size_t{1} << 20) {
      EXPECT_EQ(most, transfer / 32);
      EXPECT_EQ(sender_->connection.longest_frame(transfer), std::size_t{64} << 10);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Checks, ConnectionTest, kAllChecks, name_of_check);

// Passes bytes on between two connections, in pieces, and changes one of them.
class ChangedByte : public testing::TestWithParam<wire::FrameCheck> {
 protected:
  ChangedByte() {
    for (ConnectionEnd* end : {&sender_, &receiver_}) {
      const std::array<int, 2> fds = stream_pair();
      end->use(GetParam());
      end->connection.attach(Fd(fds[0]));
      network_.emplace_back(fds[1]);
    }
    receiver_.answers_spoiled = true;
    receiver_.dropped = true;  // it has no data to send
  }
  // Moves what has been sent, and flips a bit of byte `at` of the sender's stream.
  void pass(std::size_t at) {
    std::vector<std::byte> piece(10'000);
    for (int from = 0; from < 2; ++from) {
      const ssize_t got = recv(network_[static_cast<std::size_t>(from)].get(), piece.data(),
                               piece.size(), MSG_DONTWAIT);
      if (got <= 0) continue;
      const auto size = static_cast<std::size_t>(got);
      if (from == 0 && at >= passed_ && at < passed_ + size) piece[at - passed_] ^= std::byte{4};
      if (from == 0) passed_ += size;
      ASSERT_EQ(send(network_[static_cast<std::size_t>(1 - from)].get(), piece.data(), size, 0),
                got);
    }
  }
  // Runs until the sender has heard what happened. Returns how much the receiver's operation took.
  std::size_t spoil_at(std::size_t at) {
    while (sender_.words.empty()) {
      sender_.connection.flush(sender_);
      pass(at);
      receiver_.read_all();
      receiver_.connection.flush(receiver_);
      sender_.read_all();
      EXPECT_TRUE(receiver_.connection.connected());
    }
    return ConnectionEnd::kElements - receiver_.op.executor->outstanding(0);
  }

  // Bytes of a header.
  static std::size_t head() {
    return GetParam() == wire::FrameCheck::kSealed ? wire::kSealedFrameSize
                                                   : wire::kCheckedFrameSize;
  }

  ConnectionEnd sender_{true};
  ConnectionEnd receiver_{false};
  std::vector<Fd> network_;  // the other end of the sender's socket, and of the receiver's
  std::size_t passed_ = 0;
};

TEST_P(ChangedByte, data__of_the_frame_is_not_used_and_its_sender_learns_of_it) {
  const std::size_t frame = sender_.connection.longest_frame(SIZE_MAX);
  EXPECT_EQ(spoil_at(2 * head() + frame + 77'777), frame);
  EXPECT_EQ(receiver_.spoiled.size(), 1U);
  EXPECT_EQ(sender_.words, receiver_.spoiled);
}

TEST_P(ChangedByte, header__nothing_behind_it_is_used) {
  const std::size_t frame = sender_.connection.longest_frame(SIZE_MAX);
  EXPECT_EQ(spoil_at(2 * (head() + frame) + 12), 2 * frame);
  EXPECT_EQ(sender_.words, std::vector<std::string>{"the header of a frame"});
}

// A frame that came whole with its header takes another way through the code.
TEST_P(ChangedByte, data__short_frames) {
  sender_.most = 1000;
  EXPECT_EQ(spoil_at(3 * (head() + 1000) - 1), 2000U);
  EXPECT_EQ(receiver_.spoiled, std::vector<std::string>{"1000 bytes of data"});
}

INSTANTIATE_TEST_SUITE_P(Checks, ChangedByte,
                         testing::Values(wire::FrameCheck::kChecksum, wire::FrameCheck::kSealed),
                         name_of_check);

// Frames of one stream as somebody between the two ranks has them, who passes on others.
class MovedFrames : public testing::Test {
 protected:
  static constexpr std::size_t kData = 1000;
  static constexpr std::size_t kWhole = wire::kSealedFrameSize + kData;

  MovedFrames() {
    const std::array<int, 2> from = stream_pair();
    const std::array<int, 2> to = stream_pair();
    sender_.use(wire::FrameCheck::kSealed);
    receiver_.use(wire::FrameCheck::kSealed);
    sender_.most = kData;
    sender_.connection.attach(Fd(from[0]));
    receiver_.connection.attach(Fd(to[0]));
    const Fd heard(from[1]);
    to_receiver_ = Fd(to[1]);
    sender_.connection.flush(sender_);
    std::vector<std::byte> bytes(5 * kWhole);
    EXPECT_EQ(recv(heard.get(), bytes.data(), bytes.size(), MSG_WAITALL), std::ssize(bytes));
    for (std::size_t at = 0; at < bytes.size(); at += kWhole) {
      frames_.emplace_back(&bytes[at], &bytes[at] + kWhole);
    }
  }
  // Passes these frames on. Returns how many the receiver's operation took.
  std::size_t taken(const std::vector<std::vector<std::byte>>& frames) {
    for (const auto& frame : frames) send(to_receiver_.get(), frame.data(), frame.size(), 0);
    receiver_.read_all();
    const std::size_t got = ConnectionEnd::kElements - receiver_.op.executor->outstanding(0);
    EXPECT_TRUE(std::equal(receiver_.tensor.begin(),
                           receiver_.tensor.begin() + static_cast<std::ptrdiff_t>(got),
                           sender_.tensor.begin()));
    EXPECT_EQ(got % kData, 0U);
    return got / kData;
  }

  ConnectionEnd sender_{true};
  ConnectionEnd receiver_{false};
  Fd to_receiver_;
  std::vector<std::vector<std::byte>> frames_;
};

TEST_F(MovedFrames, data__as_it_was_sent_is_taken) {
  EXPECT_EQ(taken(frames_), 5U);
  EXPECT_TRUE(receiver_.spoiled.empty());
}

TEST_F(MovedFrames, data__a_frame_that_is_repeated) {
  EXPECT_EQ(taken({frames_[0], frames_[1], frames_[1], frames_[2]}), 2U);
  EXPECT_EQ(receiver_.spoiled, std::vector<std::string>{"the header of a frame"});
}

TEST_F(MovedFrames, data__a_frame_that_is_left_out) {
  EXPECT_EQ(taken({frames_[0], frames_[2], frames_[3]}), 1U);
  EXPECT_EQ(receiver_.spoiled, std::vector<std::string>{"the header of a frame"});
}

TEST_F(MovedFrames, data__two_frames_that_changed_places) {
  EXPECT_EQ(taken({frames_[0], frames_[1], frames_[3], frames_[2]}), 2U);
  EXPECT_EQ(receiver_.spoiled, std::vector<std::string>{"the header of a frame"});
}

TEST_F(MovedFrames, data__two_payloads_that_changed_places) {
  for (std::size_t i = wire::kSealedFrameSize; i < kWhole; ++i) {
    std::swap(frames_[1][i], frames_[2][i]);
  }
  EXPECT_EQ(taken(frames_), 1U);
  EXPECT_EQ(receiver_.spoiled, std::vector<std::string>{"1000 bytes of data"});
}

TEST_F(MovedFrames, data__a_stream_that_is_cut) {
  frames_[2].resize(kWhole - 1);
  frames_.resize(3);
  EXPECT_EQ(taken(frames_), 2U);
  to_receiver_.reset();
  receiver_.read_all();
  EXPECT_EQ(receiver_.connection.over(), "its connection closed");
  EXPECT_EQ(taken({}), 2U);
}

}  // namespace
}  // namespace thalweg::net
