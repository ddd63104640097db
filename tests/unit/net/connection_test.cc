// One stream between two ranks, over a socket pair.
#include "net/collective/connection.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "net/connection_end.h"

namespace thalweg {
namespace {

class ConnectionTest : public testing::Test {
 protected:
  ConnectionTest() {
    const std::array<int, 2> fds = stream_pair();
    sender_ = std::make_unique<ConnectionEnd>(true);
    receiver_ = std::make_unique<ConnectionEnd>(false);
    sender_->connection.attach(Fd(fds[0]));
    receiver_->connection.attach(Fd(fds[1]));
  }
  std::unique_ptr<ConnectionEnd> sender_;
  std::unique_ptr<ConnectionEnd> receiver_;
};

// A peer may be able to finish with the frame on its way: it must not finish with anything else.
TEST_F(ConnectionTest, drop_data__sends_the_rest_of_a_frame_as_it_was) {
  const std::vector<std::byte> content = sender_->tensor;
  sender_->connection.flush(*sender_);
  ASSERT_TRUE(sender_->connection.blocked());
  sender_->connection.drop_data(*sender_);
  sender_->dropped = true;
  // The memory is its owner's again.
  std::memset(sender_->tensor.data(), 0, sender_->tensor.size());
  sender_->connection.queue({.kind = FrameKind::kAbort, .rank = 3}, "why");
  while (receiver_->words.empty()) {
    sender_->connection.flush(*sender_);
    receiver_->read_all();
    ASSERT_TRUE(receiver_->connection.connected());
  }
  EXPECT_TRUE(receiver_->op.executor->done());
  EXPECT_TRUE(receiver_->tensor == content);
  EXPECT_EQ(receiver_->words, std::vector<std::string>{"why"});
  EXPECT_EQ(receiver_->last.rank, 3U);
}

TEST_F(ConnectionTest, stall__keeps_all_bytes_until_it_is_resumed) {
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

// Words that come in pieces, behind data of an operation that is over: they belong in no tensor.
TEST_F(ConnectionTest, read__words_in_pieces_after_data_are_not_taken_for_data) {
  while (!receiver_->op.executor->done()) {
    sender_->connection.flush(*sender_);
    receiver_->read_all();
  }
  receiver_->op.executor.reset();
  const std::string text(kMaxFrameText, 'w');
  const auto header = encode_frame({.kind = FrameKind::kAbort, .length = kMaxFrameText});
  const int fd = sender_->connection.fd();
  send(fd, header.data(), header.size(), 0);
  send(fd, text.data(), 100, 0);
  receiver_->read_all();
  EXPECT_TRUE(receiver_->words.empty());
  send(fd, text.data() + 100, text.size() - 100, 0);
  receiver_->read_all();
  EXPECT_EQ(receiver_->words, std::vector<std::string>{text});
}

TEST_F(ConnectionTest, end__the_last_words_are_read_though_nothing_can_be_sent) {
  sender_->dropped = true;
  sender_->connection.queue({.kind = FrameKind::kAbort, .rank = 1}, "last words");
  sender_->connection.flush(*sender_);
  sender_.reset();
  receiver_->dropped = true;
  receiver_->connection.queue({.kind = FrameKind::kAsk, .operation = 1}, "are you there?");
  receiver_->connection.flush(*receiver_);
  EXPECT_TRUE(receiver_->connection.over().empty());
  receiver_->read_all();
  EXPECT_EQ(receiver_->words, std::vector<std::string>{"last words"});
  EXPECT_FALSE(receiver_->connection.over().empty());
}

}  // namespace
}  // namespace thalweg
