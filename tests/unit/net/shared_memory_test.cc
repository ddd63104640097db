// Communicators whose ranks share memory: as threads, and as processes that die or cannot see each
// other.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "net/ranks.h"
#include "sanitized.h"

namespace thalweg::net {
namespace {

using namespace std::chrono_literals;

// The number of rings of communicators that this process has mapped.
int mapped_rings() {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);) {
    if (line.find("/memfd:thalweg-") != std::string::npos) ++count;
  }
  return count;
}

// Runs collectives with tensors smaller and larger than a ring, also of sizes that are no multiple
// of a word.
void check_collectives(const Communicator& all) {
  const auto n = static_cast<std::int64_t>(all.size());
  for (const std::size_t elements : {1U, 1000U, 400'001U}) {
    std::vector<std::int32_t> values(elements);
    std::iota(values.begin(), values.end(), all.rank() * 1000);
    const Status status = all.allreduce(TensorSpan::of(values), {});
    ASSERT_TRUE(status.ok()) << status.error().message();
    for (std::size_t i = 0; i < elements; ++i) {
      ASSERT_EQ(values[i], n * static_cast<std::int64_t>(i) + n * (n - 1) / 2 * 1000);
    }
  }
  const std::size_t part = 300'007;
  std::vector<std::int8_t> in(part * static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < in.size(); ++i) {
    in[i] = static_cast<std::int8_t>(i / part * 16 + static_cast<std::size_t>(all.rank()));
  }
  std::vector<std::int8_t> out(in.size());
  const auto exchanged = all.all_to_all_async(TensorView::of(in), TensorSpan::of(out), {});
  ASSERT_TRUE(exchanged.ok() && exchanged->wait().ok());
  for (std::size_t i = 0; i < out.size(); ++i) {
    ASSERT_EQ(out[i], static_cast<std::int8_t>(all.rank() * 16 + static_cast<int>(i / part)));
  }
}

TEST(SharedMemory, collectives__with_it_and_without) {
  for (const bool shared : {true, false}) {
    for (const int size : {2, 3, 5}) {
      SCOPED_TRACE(fmt::format("{} ranks, {}", size, shared ? "shared" : "not shared"));
      run_ranks(size, {.shared_memory = shared}, [&](Communicator& all) {
        for (int i = 0; i < (kUnderSanitizer ? 1 : 3); ++i) check_collectives(all);
        EXPECT_EQ(mapped_rings() > 0, shared);
      });
    }
  }
}

TEST(SharedMemory, asynchronous__many_in_flight) {
  run_ranks(3, {}, [](Communicator& all) {
    std::vector<std::vector<std::int64_t>> tensors;
    for (std::size_t i = 0; i < 40; ++i) tensors.emplace_back(1 + i * i * 97, all.rank() + 1);
    for (int round = 0; round < 3; ++round) {
      std::vector<Operation> operations;
      for (auto& tensor : tensors) {
        auto operation = all.allreduce_async(TensorSpan::of(tensor), {.op = ReduceOp::kMax});
        ASSERT_TRUE(operation.ok());
        operations.push_back(*operation);
      }
      // No thread waits, so the communicators' own threads must hear the bells.
      for (const Operation& operation : operations) {
        const auto limit = std::chrono::steady_clock::now() + 20s;
        while (!operation.done() && std::chrono::steady_clock::now() < limit) {
          std::this_thread::sleep_for(1ms);
        }
        ASSERT_TRUE(operation.done());
        ASSERT_TRUE(operation.wait().ok());
      }
      for (const auto& tensor : tensors) {
        ASSERT_EQ(tensor, std::vector<std::int64_t>(tensor.size(), 3));
      }
    }
  });
}

TEST(SharedMemory, environment__turns_it_off) {
  ASSERT_EQ(setenv("THALWEG_SHARED_MEMORY", "0", 1), 0);
  run_ranks(2, {}, [](Communicator& all) {
    check_collectives(all);
    EXPECT_EQ(mapped_rings(), 0);
  });
  ASSERT_EQ(unsetenv("THALWEG_SHARED_MEMORY"), 0);
}

std::vector<std::string> files_left() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    const std::string name = entry.path().filename();
    if (name.find("thalweg") != std::string::npos) names.push_back(name);
  }
  return names;
}

TEST(SharedMemory, killed_peer__is_named_and_leaves_nothing) {
  for (const int victim : {0, 2}) {
    SCOPED_TRACE(victim);
    CommunicatorOptions options{.size = 3, .store = free_address()};
    const std::string lost = fmt::format("rank {} is lost", victim);
    std::vector<pid_t> processes;
    for (int rank = 0; rank < 3; ++rank) {
      options.rank = rank;
      processes.push_back(fork_rank(options, [&](Communicator& all) {
        std::vector<float> values(500'000);
        if (!all.barrier({}).ok() || mapped_rings() == 0) return false;
        for (int i = 0;; ++i) {
          if (rank == victim && i == 20) raise(SIGKILL);
          const Status status = all.allreduce(TensorSpan::of(values), {.deadline = 20s});
          if (status.ok()) continue;
          return status.error().message().find(lost) != std::string::npos;
        }
      }));
    }
    const auto begin = std::chrono::steady_clock::now();
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(exit_code(processes[static_cast<std::size_t>(rank)]),
                rank == victim ? 128 + SIGKILL : 0);
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 15s);
    EXPECT_EQ(files_left(), std::vector<std::string>());
  }
}

TEST(SharedMemory, stopped_peer__sleepers_wake_when_it_goes_on) {
  CommunicatorOptions options{.rank = 1, .size = 2, .store = free_address()};
  const pid_t other = fork_rank(options, [](Communicator& all) {
    std::vector<float> values(500'000);
    for (int i = 0; i < 8; ++i) {
      if (i % 2 == 1) std::this_thread::sleep_for(30ms);
      if (!all.allreduce(TensorSpan::of(values), {.deadline = 20s}).ok()) return false;
    }
    return true;
  });
  options.rank = 0;
  Result<Communicator> all = Communicator::create(options);
  ASSERT_TRUE(all.ok()) << all.error().message();
  std::vector<float> values(500'000);
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 8; ++i) {
    if (i % 4 == 2) std::this_thread::sleep_for(30ms);
    const Status status = all->allreduce(TensorSpan::of(values), {.deadline = 20s});
    ASSERT_TRUE(status.ok()) << status.error().message();
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kUnderSanitizer ? 10s : 900ms)
      << "someone slept until a timer woke it";
  EXPECT_EQ(exit_code(other), 0);
}

// Processes of another container cannot be seen, so ranks must use the network.
TEST(SharedMemory, other_process_namespace__falls_back_to_the_network) {
  CommunicatorOptions options{.rank = 1, .size = 2, .store = free_address()};
  const pid_t other = fork();
  if (other == 0) {
    if (unshare(CLONE_NEWPID) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) _exit(77);
    _exit(exit_code(fork_rank(options, [](Communicator& all) {
      check_collectives(all);
      return !testing::Test::HasFailure();
    })));
  }
  options.rank = 0;
  options.timeout = 20s;
  {
    const Result<Communicator> all = Communicator::create(options);
    if (all.ok()) {
      check_collectives(*all);
      EXPECT_EQ(mapped_rings(), 0);
    }
  }
  const int code = exit_code(other);
  if (code == 77) GTEST_SKIP() << "this user may not make namespaces";
  EXPECT_EQ(code, 0);
}

}  // namespace
}  // namespace thalweg::net
