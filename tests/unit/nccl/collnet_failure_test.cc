// What goes wrong with CollNet: no switch, aborts in every phase, dead ranks, ranks that differ.
// Nothing hangs, nothing is left, and NCCL's log says what happened.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <latch>
#include <memory>
#include <thread>

#include "nccl/fake_collnet.h"
#include "nccl/nothing_left.h"

namespace thalweg::nccl {
namespace {

using Ranks = std::vector<std::unique_ptr<CollRank>>;

Ranks make_ranks(int count) {
  Ranks ranks;
  for (int i = 0; i < count; ++i) ranks.push_back(std::make_unique<CollRank>());
  return ranks;
}

void expect_connected(Ranks& ranks) {
  for (const NcclResult result : connect_coll_ranks(ranks)) {
    ASSERT_EQ(result, NcclResult::kSuccess) << take_log();
  }
}

// One sum on all ranks, each in a thread.
void expect_sums(Ranks& ranks, std::size_t count = 5000) {
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    threads.emplace_back([&, i] {
      CollRank& rank = *ranks[i];
      fill_values(rank.send_slot(0), kNcclFloat32, count, static_cast<int>(i));
      EXPECT_EQ(finish_sum(rank.post(rank.send_slot(0), rank.receive_slot(0), count, kNcclFloat32)),
                NcclResult::kSuccess)
          << take_log();
      EXPECT_TRUE(
          holds_sums(rank.receive_slot(0), kNcclFloat32, count, static_cast<int>(ranks.size())));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

void make_memories(Ranks& ranks, std::size_t bytes = 1 << 20) {
  for (auto& rank : ranks) rank->make_memory(bytes, 2);
}

// Closes all at the same time, as ranks of a program do.
void close_together(Ranks& ranks) {
  std::vector<std::thread> threads;
  for (auto& rank : ranks) threads.emplace_back([&rank] { rank->close(); });
  for (std::thread& thread : threads) thread.join();
}

TEST(nccl_collnet_failure, no_switch_answers__connect_fails_on_all_ranks_at_once) {
  const NothingLeft nothing_left;
  const CollInitialized initialized("127.0.0.1:1");
  Ranks ranks = make_ranks(3);
  take_log();
  const auto start = std::chrono::steady_clock::now();
  for (const NcclResult result : connect_coll_ranks(ranks)) {
    EXPECT_EQ(result, NcclResult::kSystemError);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
  const std::string log = take_log();
  EXPECT_NE(log.find("no switch takes the job (THALWEG_SWITCH): 127.0.0.1:1"), std::string::npos)
      << log;
  EXPECT_NE(log.find("rank 0: CollNet: no switch"), std::string::npos) << log;
}

TEST(nccl_collnet_failure, the_first_switch_is_away__the_next_one_takes_the_job) {
  const auto daemon = start_switch();
  const CollInitialized initialized("a=127.0.0.1:1,b=" + daemon->control_address());
  run_coll_ranks(2, [&](CollRank& rank, int number) {
    rank.make_memory(4000, 1);
    fill_values(rank.send_slot(0), kNcclInt32, 1000, number);
    ASSERT_EQ(finish_sum(rank.post(rank.send_slot(0), rank.receive_slot(0), 1000, kNcclInt32)),
              NcclResult::kSuccess);
    EXPECT_TRUE(holds_sums(rank.receive_slot(0), kNcclInt32, 1000, 2));
  });
}

TEST(nccl_collnet_failure, a_rank_does_not_come__the_others_end_in_time) {
  const NothingLeft nothing_left;
  const auto daemon = start_switch();
  const auto connect_without_last = [&] {
    const CollInitialized initialized(daemon->control_address(), {{"THALWEG_NCCL_TIMEOUT", "1"}});
    Ranks ranks = make_ranks(3);
    std::vector<HandleSlot> handles;
    for (auto& rank : ranks) {
      ASSERT_EQ(rank->listen(), NcclResult::kSuccess);
      handles.push_back(rank->handle);
    }
    take_log();
    std::vector<std::thread> threads;
    for (int i = 0; i < 2; ++i) {
      threads.emplace_back([&, i, own = handles]() mutable {
        EXPECT_EQ(ranks[static_cast<std::size_t>(i)]->connect(own, i), NcclResult::kRemoteError);
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_NE(take_log().find("rank 2 did not come in time"), std::string::npos);
  };
  connect_without_last();
}

TEST(nccl_collnet_failure, abort_in_every_phase__leaves_nothing) {
  const auto daemon = start_switch();
  const NothingLeft nothing_left;
  const CollInitialized initialized(daemon->control_address());
  {
    CollRank never_used;
  }
  {
    CollRank listening;
    ASSERT_EQ(listening.listen(), NcclResult::kSuccess);
  }
  {
    Ranks connected = make_ranks(2);
    expect_connected(connected);
    EXPECT_GT(workers(), 0U);
  }
  {
    Ranks used = make_ranks(2);
    expect_connected(used);
    make_memories(used);
    expect_sums(used);
    close_together(used);
  }
  // Rank 1 never calls. The memory is given back while sums are running in it.
  for (const std::size_t first : {0U, 1U}) {
    Ranks ranks = make_ranks(2);
    expect_connected(ranks);
    make_memories(ranks);
    for (const std::size_t slot : {0U, 1U}) {
      ASSERT_NE(ranks[0]->post(ranks[0]->send_slot(slot), ranks[0]->receive_slot(slot), 200'000,
                               kNcclFloat32),
                nullptr);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    ranks[first]->close();
    ranks[1 - first]->close();
  }
  take_log();
}

TEST(nccl_collnet_failure, a_rank_aborts__the_others_are_told) {
  const auto daemon = start_switch();
  const CollInitialized initialized(daemon->control_address());
  for (const std::size_t aborts : {0U, 2U}) {
    Ranks ranks = make_ranks(3);
    expect_connected(ranks);
    make_memories(ranks);
    expect_sums(ranks);
    take_log();
    // Rank 1 does not call, so the sums of the others wait.
    std::vector<void*> requests(3);
    for (const std::size_t rank : {0U, 2U}) {
      requests[rank] = ranks[rank]->post(ranks[rank]->send_slot(0), ranks[rank]->receive_slot(0),
                                         100, kNcclInt32);
    }
    ranks[aborts]->close();
    EXPECT_NE(finish_sum(requests[2 - aborts]), NcclResult::kSuccess);
    const std::string log = take_log();
    EXPECT_TRUE(log.find(aborts == 0 ? "rank 0 of the CollNet communicator (127.0.0.1:"
                                     : "rank 2 of the CollNet communicator (127.0.0.1:") !=
                    std::string::npos ||
                log.find("rank 0 has given up the CollNet communicator") != std::string::npos)
        << log;
    // Nothing more can be called.
    NcclResult result = NcclResult::kSuccess;
    void* const request =
        ranks[2 - aborts]->post(ranks[2 - aborts]->send_slot(1), ranks[2 - aborts]->receive_slot(1),
                                100, kNcclInt32, &result);
    EXPECT_EQ(request, nullptr);
    EXPECT_NE(result, NcclResult::kSuccess);
  }
}

// A rank that is killed is in a child, made while this process has one thread.
TEST(nccl_collnet_failure, a_killed_rank__is_noticed) {
  int to_child[2];
  int to_parent[2];
  ASSERT_EQ(pipe(to_child), 0);
  ASSERT_EQ(pipe(to_parent), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  const auto exchange = [](int fd, bool writes, void* data, std::size_t size) {
    const ssize_t moved = writes ? write(fd, data, size) : read(fd, data, size);
    return moved == static_cast<ssize_t>(size);
  };
  if (child == 0) {
    std::array<char, 64> address = {};
    std::vector<HandleSlot> handles(2);
    CollRank rank;
    if (!exchange(to_child[0], false, address.data(), address.size())) _exit(1);
    const CollInitialized initialized(address.data());
    if (rank.listen() != NcclResult::kSuccess) _exit(2);
    if (!exchange(to_parent[1], true, rank.handle.data(), kNcclHandleSize)) _exit(3);
    if (!exchange(to_child[0], false, handles.data(), 2 * kNcclHandleSize)) _exit(4);
    if (rank.connect(handles, 1) != NcclResult::kSuccess) _exit(5);
    rank.make_memory(4000, 1);
    fill_values(rank.send_slot(0), kNcclFloat32, 1000, 1);
    if (finish_sum(rank.post(rank.send_slot(0), rank.receive_slot(0), 1000, kNcclFloat32)) !=
        NcclResult::kSuccess) {
      _exit(6);
    }
    pause();
    _exit(7);
  }
  {
    const auto daemon = start_switch();
    const CollInitialized initialized(daemon->control_address());
    std::array<char, 64> address = {};
    daemon->control_address().copy(address.data(), address.size() - 1);
    CollRank rank;
    std::vector<HandleSlot> handles(2);
    ASSERT_TRUE(exchange(to_child[1], true, address.data(), address.size()));
    ASSERT_EQ(rank.listen(), NcclResult::kSuccess);
    handles[0] = rank.handle;
    ASSERT_TRUE(exchange(to_parent[0], false, handles[1].data(), kNcclHandleSize));
    ASSERT_TRUE(exchange(to_child[1], true, handles.data(), 2 * kNcclHandleSize));
    ASSERT_EQ(rank.connect(handles, 0), NcclResult::kSuccess) << take_log();
    rank.make_memory(4000, 1);
    fill_values(rank.send_slot(0), kNcclFloat32, 1000, 0);
    ASSERT_EQ(finish_sum(rank.post(rank.send_slot(0), rank.receive_slot(0), 1000, kNcclFloat32)),
              NcclResult::kSuccess);
    EXPECT_TRUE(holds_sums(rank.receive_slot(0), kNcclFloat32, 1000, 2));
    void* const waits = rank.post(rank.send_slot(0), rank.receive_slot(0), 1000, kNcclFloat32);
    take_log();
    kill(child, SIGKILL);
    EXPECT_EQ(finish_sum(waits), NcclResult::kRemoteError);
    const std::string log = take_log();
    EXPECT_NE(log.find("rank 1 of the CollNet communicator (127.0.0.1:"), std::string::npos) << log;
    EXPECT_NE(log.find("is gone"), std::string::npos) << log;
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status)) << status;
  for (const int fd : {to_child[0], to_child[1], to_parent[0], to_parent[1]}) ::close(fd);
}

TEST(nccl_collnet_failure, different_calls__are_an_error_on_all_ranks) {
  const auto daemon = start_switch();
  const CollInitialized initialized(daemon->control_address());
  take_log();
  Ranks ranks = make_ranks(3);
  expect_connected(ranks);
  make_memories(ranks);
  std::vector<void*> requests;
  for (std::size_t i = 0; i < 3; ++i) {
    requests.push_back(ranks[i]->post(ranks[i]->send_slot(0), ranks[i]->receive_slot(0),
                                      i == 1 ? 5000 : 8000, kNcclFloat32));
  }
  for (void* const request : requests) EXPECT_NE(finish_sum(request), NcclResult::kSuccess);
  const std::string log = take_log();
  EXPECT_NE(log.find("the first 1 allreduces of rank 0 and rank 1 differ in size or type"),
            std::string::npos)
      << log;
}

TEST(nccl_collnet_failure, a_rank_has_closed__a_call_of_another_is_an_error) {
  const auto daemon = start_switch();
  const CollInitialized initialized(daemon->control_address());
  for (const std::size_t leaves : {0U, 1U}) {
    Ranks ranks = make_ranks(2);
    expect_connected(ranks);
    make_memories(ranks);
    expect_sums(ranks);
    ranks[leaves]->close();
    take_log();
    CollRank& other = *ranks[1 - leaves];
    NcclResult result = NcclResult::kSuccess;
    void* const request =
        other.post(other.send_slot(0), other.receive_slot(0), 100, kNcclInt32, &result);
    if (request != nullptr) result = finish_sum(request);
    EXPECT_EQ(result, NcclResult::kRemoteError);
    EXPECT_NE(take_log().find("has closed the CollNet communicator after 1 allreduces"),
              std::string::npos);
  }
}

TEST(nccl_collnet_failure, a_sum_beyond_32_bits__is_an_error_on_all_ranks) {
  const auto daemon = start_switch();
  const CollInitialized initialized(daemon->control_address());
  take_log();
  run_coll_ranks(2, [&](CollRank& rank, int) {
    rank.make_memory(400, 1);
    for (std::size_t i = 0; i < 100; ++i) {
      put_element(rank.send_slot(0) + 4 * i, kNcclInt32, 2e9);
    }
    EXPECT_NE(finish_sum(rank.post(rank.send_slot(0), rank.receive_slot(0), 100, kNcclInt32)),
              NcclResult::kSuccess);
  });
  EXPECT_NE(take_log().find("CollNet: allreduce of 100 int32"), std::string::npos);
}

TEST(nccl_collnet_failure, ranks_that_do_not_fit__are_refused) {
  const NothingLeft nothing_left;
  const auto daemon = start_switch();
  {
    const CollInitialized initialized(daemon->control_address());
    Ranks ranks = make_ranks(2);
    std::vector<HandleSlot> handles;
    for (auto& rank : ranks) {
      ASSERT_EQ(rank->listen(), NcclResult::kSuccess);
      handles.push_back(rank->handle);
    }
    take_log();
    // Rank 0 knows of two ranks, and the other says that there are three.
    std::thread first([&, own = handles]() mutable {
      EXPECT_EQ(ranks[0]->connect(own, 0), NcclResult::kInvalidUsage);
    });
    std::thread second([&, own = handles]() mutable {
      own.push_back(own[1]);
      EXPECT_EQ(ranks[1]->connect(own, 1), NcclResult::kInvalidUsage);
    });
    first.join();
    second.join();
    EXPECT_NE(take_log().find("says that it is rank 1 of 3, and rank 0 expects 2 ranks"),
              std::string::npos);
    // One rank alone, and a handle that is not ours.
    CollRank alone;
    ASSERT_EQ(alone.listen(), NcclResult::kSuccess);
    std::vector<HandleSlot> own = {alone.handle};
    EXPECT_EQ(alone.connect(own, 0), NcclResult::kInvalidUsage);
    CollRank foreign;
    ASSERT_EQ(foreign.listen(), NcclResult::kSuccess);
    std::vector<HandleSlot> others(2);
    EXPECT_EQ(foreign.connect(others, 1), NcclResult::kInvalidUsage);
    EXPECT_NE(take_log().find("set NCCL_NET_PLUGIN=thalweg on all ranks"), std::string::npos);
  }
}

}  // namespace
}  // namespace thalweg::nccl
