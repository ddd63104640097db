// Several streams between two ranks: over socket pairs, and of whole communicators.
#include "net/collective/lanes.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <csignal>
#include <string>
#include <vector>

#include <thalweg/communicator.h>

#include "base/messages.h"
#include "net/connection_end.h"
#include "net/net_pair.h"
#include "net/ranks.h"

namespace thalweg {
namespace {

using namespace std::chrono_literals;

class LanesTest : public testing::Test {
 protected:
  static constexpr std::uint32_t kLanes = 2;

  LanesTest() {
    const std::array<int, 2> fds = stream_pair();
    sender_.connection.attach(Fd(fds[0]));
    receiver_.connection.attach(Fd(fds[1]));
  }

  void add_lane(std::uint32_t number) {
    const std::array<int, 2> fds = stream_pair();
    EXPECT_TRUE(sender_.connection.add_lane(number, Fd(fds[0]), {}));
    EXPECT_TRUE(receiver_.connection.add_lane(number, Fd(fds[1]), {}));
  }
  void add_lanes() {
    for (std::uint32_t number = kLanes; number >= 1; --number) add_lane(number);
  }
  void transfer() {
    while (!receiver_.op.executor->done()) {
      sender_.connection.flush(sender_);
      receiver_.read_all();
      ASSERT_EQ(receiver_.connection.over(), "");
    }
  }

  ConnectionEnd sender_{true};
  ConnectionEnd receiver_{false};
};

TEST_F(LanesTest, data__takes_all_streams_and_arrives_as_it_was) {
  add_lanes();
  sender_.connection.flush(sender_);
  for (const Lane& lane : receiver_.connection.lanes()) {
    int waiting = 0;
    ASSERT_EQ(ioctl(lane.fd.get(), FIONREAD, &waiting), 0);
    EXPECT_GT(waiting, 0);
  }
  transfer();
  EXPECT_TRUE(receiver_.tensor == sender_.tensor);
  EXPECT_TRUE(sender_.op.executor->done());
}

TEST_F(LanesTest, frames__in_the_order_in_which_they_began) {
  add_lanes();
  for (int i = 0; i < 3; ++i) {
    sender_.connection.queue({.kind = FrameKind::kAsk, .operation = 1}, fmt::format("{}", i));
    sender_.connection.flush(sender_);
  }
  transfer();
  EXPECT_EQ(receiver_.words, (std::vector<std::string>{"0", "1", "2"}));
  EXPECT_TRUE(receiver_.tensor == sender_.tensor);
}

// The accepting side learns of lanes while it sends, and after headers that speak of them.
TEST_F(LanesTest, add_lane__in_the_midst_of_a_frame_and_late) {
  sender_.most = 1 << 20;
  sender_.connection.flush(sender_);
  ASSERT_TRUE(sender_.connection.blocked());
  const std::array<int, 2> fds = stream_pair();
  ASSERT_TRUE(sender_.connection.add_lane(1, Fd(fds[0]), {}));
  while (!receiver_.connection.misses_lane()) {
    sender_.connection.flush(sender_);
    receiver_.read_all();
  }
  ASSERT_TRUE(receiver_.connection.add_lane(1, Fd(fds[1]), {}));
  transfer();
  EXPECT_TRUE(receiver_.tensor == sender_.tensor);
}

TEST_F(LanesTest, stall__keeps_all_bytes_until_it_is_resumed) {
  add_lanes();
  receiver_.stalls = true;
  sender_.connection.flush(sender_);
  receiver_.read_all();
  ASSERT_TRUE(receiver_.connection.stalled());
  receiver_.stalls = false;
  receiver_.connection.resume(receiver_);
  transfer();
  EXPECT_TRUE(receiver_.tensor == sender_.tensor);
}

TEST_F(LanesTest, drop_data__sends_the_rest_of_all_payloads_as_they_were) {
  add_lanes();
  const std::vector<std::byte> content = sender_.tensor;
  sender_.connection.flush(sender_);
  sender_.connection.drop_data(sender_);
  sender_.dropped = true;
  std::memset(sender_.tensor.data(), 0, sender_.tensor.size());
  sender_.connection.queue({.kind = FrameKind::kAbort, .rank = 3}, "why");
  while (receiver_.words.empty()) {
    EXPECT_FALSE(sender_.connection.delivered());
    sender_.connection.flush(sender_);
    receiver_.read_all();
    ASSERT_EQ(receiver_.connection.over(), "");
  }
  const std::size_t got = content.size() - receiver_.op.executor->outstanding(0);
  EXPECT_GT(got, kLanes * kLaneFrame);
  EXPECT_TRUE(std::equal(content.begin(), content.begin() + static_cast<std::ptrdiff_t>(got),
                         receiver_.tensor.begin()));
}

TEST_F(LanesTest, end_of_one__is_the_end_of_all) {
  add_lanes();
  const auto header =
      encode_frame({.kind = FrameKind::kLaneData, .operation = 1, .length = 1000, .rank = 1});
  ASSERT_EQ(send(sender_.connection.fd(), header.data(), header.size(), 0), kFrameSize);
  sender_.connection.lanes()[0].fd.reset();
  receiver_.read_all();
  EXPECT_TRUE(says(receiver_.connection.over(), "its stream by interface"));
  EXPECT_TRUE(says(receiver_.connection.over(), "closed"));
}

TEST_F(LanesTest, proof__is_read_by_an_end_that_only_sends) {
  const std::vector<std::byte> proof(kSessionProofSize, std::byte{7});
  const std::array<int, 2> fds = stream_pair();
  const Fd peer(fds[1]);
  ASSERT_TRUE(sender_.connection.add_lane(1, Fd(fds[0]), proof));
  ASSERT_EQ(send(peer.get(), proof.data(), proof.size(), 0), std::ssize(proof));
  sender_.read_all();
  EXPECT_EQ(sender_.connection.over(), "");
  EXPECT_TRUE(sender_.connection.lanes()[0].answer_due.empty());
  int unread = 0;
  ASSERT_EQ(ioctl(fds[0], FIONREAD, &unread), 0);
  EXPECT_EQ(unread, 0);
}

TEST_F(LanesTest, proof__another_ends_the_connection) {
  std::vector<std::byte> proof(kSessionProofSize, std::byte{7});
  const std::array<int, 2> fds = stream_pair();
  const Fd peer(fds[1]);
  ASSERT_TRUE(sender_.connection.add_lane(1, Fd(fds[0]), proof));
  proof.back() = std::byte{8};
  ASSERT_EQ(send(peer.get(), proof.data(), proof.size(), 0), std::ssize(proof));
  sender_.read_all();
  EXPECT_EQ(sender_.connection.over(), "it does not hold the job key");
}

TEST(Loans, sent__the_executor_hears_in_order) {
  ConnectionEnd end(true);
  Loans loans;
  int told = 0;
  const Loans::Said said = [&](Loans::Op&) { ++told; };
  loans.lend(0, &end.op, 0, 100);
  loans.lend(1, &end.op, 0, 50);
  loans.lend(2, &end.op, 0, 25);
  loans.sent(2, 25, said);
  loans.sent(1, 50, said);
  EXPECT_EQ(loans.of(&end.op, 0), 175U);
  EXPECT_EQ(end.op.executor->ready(0).size(), end.tensor.size());
  loans.sent(0, 60, said);
  EXPECT_EQ(loans.of(&end.op, 0), 115U);
  loans.sent(0, 40, said);
  EXPECT_EQ(loans.of(&end.op, 0), 0U);
  EXPECT_EQ(end.op.executor->ready(0).size(), end.tensor.size() - 175);
  EXPECT_EQ(told, 4);
}

TEST(SeveralWays, operations_in_flight__with_priorities_and_several_waiters) {
  const std::uint64_t seed = test_seed();
  run_ranks_by(3, several_ways(2), [&](Communicator& all) {
    Prng calls(seed);  // the same on all ranks
    constexpr std::size_t kOperations = 40;
    std::vector<std::vector<std::int64_t>> values;
    std::vector<Operation> flying;
    for (std::size_t i = 0; i < kOperations; ++i) {
      values.emplace_back(1 + calls.below(150'000), all.rank() + static_cast<int>(i));
    }
    for (std::size_t i = 0; i < kOperations; ++i) {
      const auto operation = all.allreduce_async(TensorSpan::of(values[i]),
                                                 {.priority = static_cast<int>(calls.below(5))});
      ASSERT_EQ(message_of(operation), "no error");
      flying.push_back(*operation);
    }
    for (std::size_t i = kOperations; i-- > 0;) {
      ASSERT_EQ(message_of(flying[i].wait()), "no error");
      const std::int64_t sum = 3 + static_cast<std::int64_t>(i) * 3;
      ASSERT_EQ(values[i], std::vector<std::int64_t>(values[i].size(), sum)) << i;
    }
  });
}

TEST(SeveralWays, killed_rank__is_named_by_the_others) {
  const std::string store = free_address();
  constexpr int kVictim = 1;
  std::vector<pid_t> processes;
  for (int rank = 0; rank < 3; ++rank) {
    CommunicatorOptions options = several_ways(2)(rank);
    options.rank = rank;
    options.size = 3;
    options.store = store;
    processes.push_back(fork_rank(options, [rank](Communicator& all) {
      std::vector<float> values(1'000'000);
      for (int i = 0;; ++i) {
        if (rank == kVictim && i == 5) raise(SIGKILL);
        const Status status = all.allreduce(TensorSpan::of(values), {.deadline = 60s});
        if (!status.ok()) return says(status.error().message(), "rank 1 is lost");
      }
    }));
  }
  const auto begin = std::chrono::steady_clock::now();
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(exit_code(processes[static_cast<std::size_t>(rank)]),
              rank == kVictim ? 128 + SIGKILL : 0);
  }
  // Long before the deadline.
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 30s);
}

TEST(SeveralWays, bad_interfaces__are_refused_by_name) {
  const auto message = [](std::vector<std::string> interfaces, std::optional<int> streams = {}) {
    return message_of(Communicator::create({.rank = 0,
                                            .size = 2,
                                            .store = free_address(),
                                            .interfaces = std::move(interfaces),
                                            .streams = streams}));
  };
  EXPECT_TRUE(says(message({"nic9"}), "interface 'nic9' does not exist; there are: "));
  EXPECT_TRUE(says(message({"nic9"}), "lo (127.0.0.1"));
  EXPECT_TRUE(says(message({"lo", "lo"}), "'lo' is there twice"));
  EXPECT_TRUE(says(message({"lo", "127.0.0.1"}), "interface '127.0.0.1' is named twice"));
  EXPECT_TRUE(says(message({"192.0.2.1"}), "is no address of this host; there are: "));
  EXPECT_TRUE(says(message({}, 17), "THALWEG_STREAMS: '17' is not allowed"));
}

}  // namespace
}  // namespace thalweg
