// One stream between two ranks, over a socket pair.
#include "net/collective/connection.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "net/collective/operation.h"

namespace thalweg {
namespace {

constexpr std::int64_t kElements = 4 << 20;

// One operation that sends a tensor from rank 0 to rank 1: an end of it.
class End final : public Connection::Handler {
 public:
  End(int fd, bool sends) : tensor(kElements), connection(Rank(sends ? 1 : 0)) {
    op.plan = std::make_shared<const RankPlan>(message_plan(kElements, 1, sends));
    op.executor = std::make_unique<Executor>();
    const std::array<std::byte*, 1> memory{tensor.data()};
    op.executor->start(*op.plan, DType::kInt8, ReduceOp::kSum, memory);
    connection.attach(Fd(fd));
  }

  Connection::Op* on_data(Connection& /*connection*/, const Frame& /*frame*/) override {
    return stalls ? nullptr : &op;
  }
  void on_frame(Connection& /*connection*/, const Frame& frame, const std::string& text) override {
    last = frame;
    words = text;
  }
  void on_progress(Connection::Op& /*op*/) override {}
  bool next_data(Connection& /*connection*/, Frame& frame, Connection::Outgoing& out) override {
    const auto bytes = op.executor->ready(0);
    if (dropped || bytes.empty()) return false;
    out = {&op, 0, bytes};
    frame = {.operation = 1, .length = static_cast<std::uint32_t>(bytes.size())};
    return true;
  }

  void read_all() {
    while (connection.read(buffer_, *this)) {
    }
  }

  std::vector<std::byte> tensor;
  Connection::Op op;
  Connection connection;
  bool stalls = false;
  bool dropped = false;
  std::optional<Frame> last;
  std::string words;

 private:
  std::vector<std::byte> buffer_ = std::vector<std::byte>(1 << 16);
};

class ConnectionTest : public testing::Test {
 protected:
  ConnectionTest() {
    std::array<int, 2> fds{};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds.data()), 0);
    sender_ = std::make_unique<End>(fds[0], true);
    receiver_ = std::make_unique<End>(fds[1], false);
    for (std::size_t i = 0; i < sender_->tensor.size(); ++i) {
      sender_->tensor[i] = static_cast<std::byte>(i * 7 + i / 251);
    }
  }
  std::unique_ptr<End> sender_;
  std::unique_ptr<End> receiver_;
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
  while (!receiver_->last) {
    sender_->connection.flush(*sender_);
    receiver_->read_all();
    ASSERT_TRUE(receiver_->connection.connected());
  }
  EXPECT_TRUE(receiver_->op.executor->done());
  EXPECT_TRUE(receiver_->tensor == content);
  EXPECT_EQ(receiver_->words, "why");
  EXPECT_EQ(receiver_->last->rank, 3U);
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
  EXPECT_EQ(receiver_->words, "last words");
  EXPECT_FALSE(receiver_->connection.over().empty());
}

}  // namespace
}  // namespace thalweg
