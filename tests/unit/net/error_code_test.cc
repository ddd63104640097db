// The codes and ranks of a communicator's errors: the same on every rank, over every transport.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <latch>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include <thalweg/communicator.h>

#include "base/messages.h"
#include "net/group/api/group_notices.h"
#include "net/ranks.h"
#include "net/store/store_client.h"
#include "net/store/store_server.h"

namespace thalweg::net {
namespace {

using namespace std::chrono_literals;

struct Way {
  const char* name;
  CommunicatorOptions options;
  friend void PrintTo(const Way& way, std::ostream* out) { *out << way.name; }
};

Way over_tcp() {
  CommunicatorOptions options;
  options.shared_memory = false;
  return {"tcp", options};
}

class ErrorCodes : public testing::TestWithParam<Way> {};

INSTANTIATE_TEST_SUITE_P(Ways, ErrorCodes,
                         testing::Values(over_tcp(), Way{"shared_memory", {}},
                                         Way{"dlcp", over_dlcp()}),
                         [](const auto& way) { return std::string(way.param.name); });

Status sum(const Communicator& all, std::size_t elements, std::chrono::nanoseconds deadline) {
  std::vector<float> values(elements, 1);
  return all.allreduce(TensorSpan::of(values), {.deadline = deadline});
}

TEST_P(ErrorCodes, killed_peer__all_others_get_its_rank) {
  constexpr int kVictim = 1;
  CommunicatorOptions options = GetParam().options;
  options.size = 3;
  options.store = free_address();
  std::vector<pid_t> processes;
  for (int rank = 0; rank < 3; ++rank) {
    options.rank = rank;
    processes.push_back(fork_rank(options, [&](Communicator& all) {
      for (int i = 0;; ++i) {
        if (rank == kVictim && i == 10) raise(SIGKILL);
        const Status status = sum(all, 50'000, 20s);
        if (status.ok()) continue;
        // The communicator is broken, and every later call fails in the same way.
        const std::string wanted = "peer lost, rank 1";
        const bool right = kind_of(status) == wanted && kind_of(all.barrier()) == wanted;
        if (!right) fmt::print(stderr, "rank {}: {}\n", rank, status.error().message());
        return right;
      }
    }));
  }
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(exit_code(processes[static_cast<std::size_t>(rank)]),
              rank == kVictim ? 128 + SIGKILL : 0)
        << rank;
  }
}

TEST_P(ErrorCodes, peer_that_left__is_lost) {
  run_ranks(2, GetParam().options, [](Communicator& all) {
    ASSERT_EQ(message_of(sum(all, 100, 20s)), "no error");
    if (all.rank() == 1) return;
    EXPECT_EQ(kind_of(sum(all, 100, 20s)), "peer lost, rank 1");
  });
}

TEST_P(ErrorCodes, deadline__blames_the_rank_that_does_not_call) {
  std::latch over(3);
  run_ranks(3, GetParam().options, [&](Communicator& all) {
    ASSERT_EQ(message_of(sum(all, 100, 20s)), "no error");
    if (all.rank() != 2) {
      // Long enough for a second question, because the first may come before a busy rank calls.
      const Status status = sum(all, 100, 2500ms);
      EXPECT_EQ(kind_of(status), "timeout, rank 2") << message_of(status);
    }
    over.arrive_and_wait();
  });
}

TEST_P(ErrorCodes, calls_that_differ__are_a_mismatch_of_no_single_rank) {
  std::latch over(2);
  run_ranks(2, GetParam().options, [&](Communicator& all) {
    ASSERT_EQ(message_of(sum(all, 100, 20s)), "no error");
    const Status status = sum(all, all.rank() == 0 ? 100 : 200, 20s);
    EXPECT_EQ(kind_of(status), "mismatch") << message_of(status);
    over.arrive_and_wait();
  });
}

TEST_P(ErrorCodes, own_leaving__cancels_what_is_in_flight) {
  std::latch over(2);
  run_ranks(2, GetParam().options, [&](Communicator& all) {
    ASSERT_EQ(message_of(sum(all, 100, 20s)), "no error");
    if (all.rank() == 0) {
      std::vector<float> values(100);
      std::optional<Communicator> own = std::move(all);
      const Operation late = own->allreduce_async(TensorSpan::of(values)).value();
      own.reset();
      EXPECT_EQ(kind_of(late.wait()), "cancelled") << message_of(late.wait());
    }
    over.arrive_and_wait();
  });
}

TEST(ErrorCodesOfMessages, every_kind) {
  run_ranks(2, {}, [&](Communicator& all) {
    std::vector<float> values(3000);
    const TensorSpan in = TensorSpan::of(values);
    if (all.rank() == 0) {
      EXPECT_EQ(kind_of(all.recv(in, 1, 9, {.deadline = 50ms})), "timeout, rank 1");
      EXPECT_EQ(kind_of(all.recv(in, Communicator::kAnySource, 9, {.deadline = 50ms})), "timeout");
      EXPECT_EQ(kind_of(all.recv(in, 2, 9)), "bad argument");
      EXPECT_EQ(kind_of(all.recv(TensorSpan::of(std::span(values).first(100)), 1, 1)), "mismatch");
      EXPECT_EQ(kind_of(all.recv(in, 1, 2)), "peer lost, rank 1");
    } else {
      EXPECT_EQ(kind_of(all.send(TensorView::of(values), 0, 1)), "mismatch");
    }
  });
}

TEST(ErrorCodesOfCalls, what_makes_no_sense__is_a_bad_argument) {
  EXPECT_EQ(kind_of(Communicator::create({.timeout = 0s})), "bad argument");
  EXPECT_EQ(kind_of(Communicator::create({.rank = 2, .size = 2, .store = "127.0.0.1:1"})),
            "bad argument");
  run_ranks(1, {}, [](Communicator& all) {
    std::vector<float> values(4);
    const TensorSpan tensor = TensorSpan::of(values);
    EXPECT_EQ(kind_of(all.allreduce(tensor, {.deadline = 0s})), "bad argument");
    EXPECT_EQ(kind_of(all.allreduce(tensor, {.loss_bound = 0.1})), "bad argument");
    EXPECT_EQ(kind_of(all.broadcast(tensor, 1)), "bad argument");
  });
}

TEST(ErrorCodesOfStores, every_kind) {
  const auto soon = [](int ms) { return monotonic_now() + Duration::milliseconds(ms); };
  auto server =
      std::make_unique<StoreServer>(StoreServer::start("127.0.0.1:0", 7, {}, {.keys = 1}).value());
  const std::string address = server->address();
  StoreClient client = StoreClient::connect(address, 7, soon(5000)).value();
  EXPECT_EQ(kind_of(client.get("k", soon(30))), "timeout");
  ASSERT_TRUE(client.set("one", "1", soon(5000)).ok());
  EXPECT_EQ(kind_of(client.set("two", "2", soon(5000))), "no resource");
  EXPECT_EQ(kind_of(client.set("", "", soon(5000))), "bad argument");
  EXPECT_EQ(kind_of(StoreClient::connect(address, 8, soon(5000))), "mismatch");
  EXPECT_EQ(kind_of(StoreServer::start(address, 7)), "no resource") << "the port is in use";
  server.reset();
  EXPECT_EQ(kind_of(client.get("one", soon(5000))), "peer lost");
  EXPECT_EQ(kind_of(client.get("one", soon(5000))), "peer lost");
  EXPECT_EQ(kind_of(StoreClient::connect(address, 7, soon(50))), "peer lost");
}

// Ranks without a stream to each other tell each other through the store.
TEST(GroupNotices, failure__comes_with_code_and_rank) {
  const StoreServer server = StoreServer::start("127.0.0.1:0", 7, {}).value();
  const OpenStore open = [&](Time until) -> Result<std::unique_ptr<Store>> {
    THALWEG_TRY(StoreClient client, StoreClient::connect(server.address(), 7, until));
    return std::unique_ptr<Store>(std::make_unique<StoreClient>(std::move(client)));
  };
  for (const auto& [group, why] :
       {std::pair("a", Error(ErrorCode::kTimeout, "not over within 1 s: 3 4", 2)),
        std::pair("b", Error(ErrorCode::kNoResource, ""))}) {
    GroupNotices one(open, group, 0);
    GroupNotices other(open, group, 1);
    EXPECT_FALSE(one.compare_calls(1, 42, "barrier"));
    one.announce_failure(why);
    one.announce_failure(Error("a later one does not count"));
    const std::optional<Error> heard = other.compare_calls(1, 42, "barrier");
    ASSERT_TRUE(heard);
    EXPECT_EQ(heard->code(), why.code());
    EXPECT_EQ(heard->rank(), why.rank());
    EXPECT_EQ(heard->message(), why.message());
  }
}

}  // namespace
}  // namespace thalweg::net
