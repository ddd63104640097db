// Connections with several streams: over socket pairs, and in whole communicators.
#include "net/group/streams/lanes.h"

#include <fmt/core.h>
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

namespace thalweg::net {
namespace {

using namespace std::chrono_literals;

// Without checksums, with them, and sealed.
class LanesTest : public testing::TestWithParam<wire::FrameCheck> {
 protected:
  static constexpr std::uint32_t kLanes = 2;

  LanesTest() {
    const std::array<int, 2> fds = stream_pair();
    sender_.use(GetParam());
    receiver_.use(GetParam());
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

  // Sends a header alone. Returns the payload that belongs to it on the lane.
  std::vector<std::byte> send_header(const wire::Frame& frame, std::vector<std::byte> payload) {
    std::vector<std::byte> header;
    const auto put = [&](const auto& bytes) { header.assign(bytes.begin(), bytes.end()); };
    switch (GetParam()) {
      case wire::FrameCheck::kNone:
        put(wire::encode_frame(frame));
        break;
      case wire::FrameCheck::kChecksum:
        put(wire::encode_checked_frame(frame, wire::crc32c(payload)));
        break;
      case wire::FrameCheck::kSealed: {
        wire::FrameSealer::Ticket ticket = other_sealer_.next();
        other_sealer_.seal_payload(ticket, payload, payload);
        put(other_sealer_.seal_header(std::move(ticket), frame));
        break;
      }
    }
    EXPECT_EQ(send(sender_.connection.fd(), header.data(), header.size(), 0), std::ssize(header));
    return payload;
  }

  ConnectionEnd sender_{true};
  ConnectionEnd receiver_{false};
  wire::FrameSealer other_sealer_{secret_from(0)};  // instead of the sender's
};

TEST_P(LanesTest, data__takes_all_streams_and_arrives_as_it_was) {
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

TEST_P(LanesTest, frames__in_the_order_in_which_they_began) {
  add_lanes();
  for (int i = 0; i < 3; ++i) {
    sender_.connection.queue({.kind = wire::FrameKind::kAsk, .operation = 1}, fmt::format("{}", i));
    sender_.connection.flush(sender_);
  }
  transfer();
  EXPECT_EQ(receiver_.words, (std::vector<std::string>{"0", "1", "2"}));
  EXPECT_TRUE(receiver_.tensor == sender_.tensor);
}

// The accepting side gets a lane while it sends, and after headers that already name the lane.
TEST_P(LanesTest, add_lane__in_the_midst_of_a_frame_and_late) {
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

TEST_P(LanesTest, stall__keeps_all_bytes_until_it_is_resumed) {
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

TEST_P(LanesTest, drop_data__sends_the_rest_of_all_payloads_as_they_were) {
  add_lanes();
  const std::vector<std::byte> content = sender_.tensor;
  sender_.connection.flush(sender_);
  sender_.connection.drop_data(sender_);
  sender_.dropped = true;
  std::memset(sender_.tensor.data(), 0, sender_.tensor.size());
  sender_.connection.queue({.kind = wire::FrameKind::kAbort, .rank = 3}, "why");
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

TEST_P(LanesTest, end_of_one__is_the_end_of_all) {
  add_lanes();
  const wire::Frame frame{
      .kind = wire::FrameKind::kLaneData, .operation = 1, .length = 1000, .rank = 1};
  send_header(frame, std::vector<std::byte>(1000));
  shutdown(sender_.connection.lanes()[0].fd.get(), SHUT_RDWR);
  receiver_.read_all();
  EXPECT_TRUE(says(receiver_.connection.over(), "its stream by interface"));
  EXPECT_TRUE(says(receiver_.connection.over(), "closed"));
}

TEST_P(LanesTest, proof__is_read_by_an_end_that_only_sends) {
  const std::vector<std::byte> proof(wire::kSessionProofSize, std::byte{7});
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

TEST_P(LanesTest, proof__another_ends_the_connection) {
  std::vector<std::byte> proof(wire::kSessionProofSize, std::byte{7});
  const std::array<int, 2> fds = stream_pair();
  const Fd peer(fds[1]);
  ASSERT_TRUE(sender_.connection.add_lane(1, Fd(fds[0]), proof));
  proof.back() = std::byte{8};
  ASSERT_EQ(send(peer.get(), proof.data(), proof.size(), 0), std::ssize(proof));
  sender_.read_all();
  EXPECT_EQ(sender_.connection.over(), "it does not hold the job key");
}

TEST_P(LanesTest, data__that_changed_on_a_lane_is_found_by_its_checksum) {
  add_lanes();
  const bool checked = GetParam() != wire::FrameCheck::kNone;
  const wire::Frame frame{
      .kind = wire::FrameKind::kLaneData, .operation = 1, .length = 9, .rank = 1};
  const auto send_frame = [&](bool changes) {
    const auto digits = std::as_bytes(std::span("123456789", 9));
    std::vector<std::byte> bytes = send_header(frame, {digits.begin(), digits.end()});
    if (changes) std::swap_ranges(bytes.begin(), bytes.begin() + 2, bytes.begin() + 2);
    send(sender_.connection.lanes()[0].fd.get(), bytes.data(), bytes.size(), 0);
    receiver_.read_all();
    return ConnectionEnd::kElements - receiver_.op.executor->outstanding(0);
  };
  EXPECT_EQ(send_frame(false), 9U);
  EXPECT_TRUE(receiver_.spoiled.empty());
  EXPECT_EQ(send_frame(true), checked ? 9U : 18U);
  ASSERT_EQ(receiver_.spoiled.size(), checked ? 1U : 0U);
  if (checked) {
    EXPECT_TRUE(says(receiver_.spoiled.front(), "9 bytes of data, by its stream by interface"));
  }
  EXPECT_EQ(receiver_.connection.over(), "");
}

INSTANTIATE_TEST_SUITE_P(Checks, LanesTest, kAllChecks, name_of_check);

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
  // This is long before the deadline.
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
}  // namespace thalweg::net
