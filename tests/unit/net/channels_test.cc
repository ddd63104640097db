// Operations that are divided among several engines: their results and threads, how they end, how
// they fail.
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <thalweg/communicator.h>

#include "base/messages.h"
#include "base/prng.h"
#include "net/group/channels/channels.h"
#include "net/ranks.h"

namespace thalweg::net {
namespace {

using namespace std::chrono_literals;
using SteadyClock = std::chrono::steady_clock;

CommunicatorOptions divided(int channels) {
  CommunicatorOptions options;
  options.channels = channels;
  options.channel_bytes = 4096;
  return options;
}

std::ptrdiff_t threads_of_process() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
}

bool says(const std::string& words, const std::string& part) {
  return words.find(part) != std::string::npos;
}

// Runs ranks as processes, of which one kills itself. Expects that the body returns true on the
// others.
void expect_others_content(int size, CommunicatorOptions options, int victim,
                           std::chrono::seconds limit,
                           const std::function<bool(Communicator&)>& body) {
  options.size = size;
  options.store = free_address();
  std::vector<pid_t> processes;
  for (int rank = 0; rank < size; ++rank) {
    options.rank = rank;
    processes.push_back(fork_rank(options, body));
  }
  const auto begin = SteadyClock::now();
  for (int rank = 0; rank < size; ++rank) {
    EXPECT_EQ(exit_code(processes[static_cast<std::size_t>(rank)]),
              rank == victim ? 128 + SIGKILL : 0)
        << rank;
  }
  EXPECT_LT(SteadyClock::now() - begin, limit);
}

TEST(Channels, engines__are_made_for_the_first_large_tensor) {
  std::array<std::ptrdiff_t, 3> threads{};
  run_ranks(2, divided(3), [&](Communicator& all) {
    const auto count = [&](std::size_t when) {
      ASSERT_TRUE(all.barrier({}).ok());
      if (all.rank() == 0) threads.at(when) = threads_of_process();
      ASSERT_TRUE(all.barrier({}).ok());
    };
    std::vector<float> small(100);
    std::vector<float> large(100'000);
    count(0);
    ASSERT_TRUE(all.allreduce(TensorSpan::of(small), {}).ok());
    count(1);
    ASSERT_TRUE(all.allreduce(TensorSpan::of(large), {}).ok());
    count(2);
  });
  EXPECT_EQ(threads[1], threads[0]);
  EXPECT_EQ(threads[2], threads[0] + 2 * 2);
}

TEST(Channels, number__is_what_the_first_rank_says) {
  run_ranks_by(
      3, [](int rank) { return divided(rank == 0 ? 2 : 5 + rank); },
      [](Communicator& all) {
        std::vector<std::int64_t> values(50'000, all.rank());
        ASSERT_EQ(message_of(all.allreduce(TensorSpan::of(values), {})), "no error");
        EXPECT_EQ(values, std::vector<std::int64_t>(values.size(), 3));
      });
}

TEST(Channels, number__out_of_range_is_refused) {
  EXPECT_EQ(message_of(Communicator::create(
                {.rank = 0, .size = 2, .store = free_address(), .channels = 9})),
            "THALWEG_CHANNELS: '9' is not allowed: a whole number from 1 to 8");
  EXPECT_EQ(message_of(Communicator::create(
                {.rank = 0, .size = 2, .store = free_address(), .channel_bytes = 0})),
            "channel_bytes: 0; it must be above 0");
}

TEST(Channels, usual_number__is_that_of_the_cores_of_a_rank) {
  EXPECT_EQ(usual_channels(1 << 20), 1);
  EXPECT_GE(usual_channels(1), 1);
  EXPECT_LE(usual_channels(1), 4);
}

TEST(Channels, word__is_read_as_it_was_written) {
  for (const ChannelsWord& word : {ChannelsWord{3}, ChannelsWord{}}) {
    const Result<ChannelsWord> read = ChannelsWord::parse(word.to_string());
    ASSERT_EQ(message_of(read), "no error");
    EXPECT_EQ(read->count, word.count);
  }
  for (const char* wrong : {"", "0", "9", "3 ", " 3", "-1", "x", "3,5", "Later"}) {
    EXPECT_EQ(message_of(ChannelsWord::parse(wrong)),
              fmt::format("rank 0 says '{}'; a number from 1 to 8 or 'later' is allowed", wrong));
  }
}

// Within a host the first rank decides when the communicator is created.
TEST(Channels, number_within_a_host__is_that_of_the_cores_from_the_first_large_tensor_on) {
  std::array<std::ptrdiff_t, 2> threads{};
  CommunicatorOptions options;
  options.channel_bytes = 4096;
  run_ranks(2, options, [&](Communicator& all) {
    std::vector<float> large(100'000);
    for (std::size_t when = 0; when < threads.size(); ++when) {
      ASSERT_TRUE(all.barrier({}).ok());
      if (all.rank() == 0) threads.at(when) = threads_of_process();
      ASSERT_TRUE(all.barrier({}).ok());
      ASSERT_TRUE(all.allreduce(TensorSpan::of(large), {}).ok());
    }
  });
  EXPECT_EQ(threads[1], threads[0] + 2 * (usual_channels(2) - 1));
}

// With cores to spare the first rank measures, and its decision holds from operation 16 on.
TEST(Channels, measured_number__is_the_same_on_all_ranks) {
  ASSERT_EQ(setenv("THALWEG_LOCAL_SIZE", "1", 1), 0);
  for (const std::size_t least : {std::size_t{4096}, std::size_t{1} << 18}) {
    CommunicatorOptions options;
    options.channel_bytes = least;
    run_ranks(3, options, [](Communicator& all) {
      for (int i = 0; i < 70; ++i) {
        std::vector<float> values(300'000, static_cast<float>(i));
        ASSERT_EQ(message_of(all.allreduce(TensorSpan::of(values), {})), "no error");
        ASSERT_EQ(values, std::vector<float>(values.size(), static_cast<float>(3 * i)));
      }
    });
  }
  ASSERT_EQ(unsetenv("THALWEG_LOCAL_SIZE"), 0);
}

TEST(Channels, first_rank_dies_before_its_large_call__others_do_not_wait_for_it) {
  expect_others_content(3, divided(3), 0, 10s, [](Communicator& all) {
    std::vector<float> values(50'000);
    if (!all.barrier({}).ok()) return false;
    if (all.rank() == 0) raise(SIGKILL);
    return says(message_of(all.allreduce(TensorSpan::of(values), {})), "rank 0 is lost");
  });
}

// Processes that meet without a word between their communicators.
class Meeting {
 public:
  explicit Meeting(int size) : size_(size) {
    void* const memory = mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(memory, MAP_FAILED);
    here_ = new (memory) std::atomic<int>(0);
  }
  ~Meeting() { munmap(here_, sizeof(*here_)); }
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;
  // Returns when all processes have called it, or after half a minute.
  void wait() const {
    ++*here_;
    for (int i = 0; i < 30'000 && *here_ < size_; ++i) std::this_thread::sleep_for(1ms);
  }

 private:
  int size_;
  std::atomic<int>* here_;
};

// The store died with the rank, and no stream says so, because there are none yet.
TEST(Channels, first_rank_dies_before_any_call__others_fail_at_once) {
  const Meeting meeting(3);
  expect_others_content(3, divided(3), 0, 20s, [&](Communicator& all) {
    meeting.wait();
    if (all.rank() == 0) raise(SIGKILL);
    std::this_thread::sleep_for(500ms);
    std::vector<float> values(50'000);
    return says(message_of(all.allreduce(TensorSpan::of(values), {})), "the store at");
  });
}

// The first rank, which has the store, has stopped.
TEST(Channels, store_that_does_not_answer__keeps_the_deadline) {
  const Meeting meeting(2);
  expect_others_content(2, divided(3), 0, 20s, [&](Communicator& all) {
    meeting.wait();
    if (all.rank() == 0) {
      const pid_t self = getpid();
      if (fork() == 0) {
        sleep(4);
        _exit(kill(self, SIGKILL));
      }
      raise(SIGSTOP);
    }
    std::this_thread::sleep_for(500ms);
    std::vector<float> values(50'000);
    const auto begin = SteadyClock::now();
    const std::string words =
        message_of(all.allreduce(TensorSpan::of(values), {.deadline = 2000ms}));
    return says(words, "in time") && SteadyClock::now() - begin < 2200ms;
  });
}

TEST(Channels, many_operations__in_flight_with_any_priorities) {
  const std::uint64_t seed = test_seed();
  constexpr std::size_t kOperations = 60;
  for (const bool shared_memory : {false, true}) {
    CommunicatorOptions options = divided(3);
    options.shared_memory = shared_memory;
    run_ranks(3, options, [&](Communicator& all) {
      Prng calls(seed);  // the same on all ranks
      std::vector<std::vector<std::int64_t>> values;
      std::vector<Operation> flying;
      std::atomic<std::size_t> over = 0;
      for (std::size_t i = 0; i < kOperations; ++i) {
        values.emplace_back(1 + calls.below(20'000), all.rank() + static_cast<int>(i));
      }
      for (std::size_t i = 0; i < kOperations; ++i) {
        const auto operation = all.allreduce_async(
            TensorSpan::of(values[i]),
            {.priority = static_cast<int>(calls.below(5)), .on_over = [&] { ++over; }});
        ASSERT_EQ(message_of(operation), "no error");
        flying.push_back(*operation);
      }
      for (std::size_t i = kOperations; i-- > 0;) {
        ASSERT_EQ(message_of(flying[i].wait()), "no error");
        EXPECT_TRUE(flying[i].done());
        const std::int64_t sum = 3 + static_cast<std::int64_t>(i) * 3;
        ASSERT_EQ(values[i], std::vector<std::int64_t>(values[i].size(), sum)) << i;
      }
      EXPECT_EQ(over, kOperations);
    });
  }
}

TEST(Channels, nobody_waits__operations_end_all_the_same) {
  run_ranks(3, divided(3), [](Communicator& all) {
    std::vector<std::int64_t> values(50'000, all.rank());
    const auto operation = all.allreduce_async(TensorSpan::of(values), {});
    const auto until = SteadyClock::now() + 20s;
    while (!operation->done() && SteadyClock::now() < until) std::this_thread::sleep_for(1ms);
    ASSERT_TRUE(operation->done());
    EXPECT_EQ(values.back(), 3);
    ASSERT_TRUE(all.barrier({}).ok());
  });
}

TEST(Channels, killed_rank__is_named_by_the_others_who_go_on) {
  for (const bool shared_memory : {false, true}) {
    CommunicatorOptions options = divided(3);
    options.shared_memory = shared_memory;
    expect_others_content(4, options, 1, 30s, [](Communicator& all) {
      std::vector<float> values(500'000, 1);
      for (int i = 0;; ++i) {
        if (all.rank() == 1 && i == 5) {
          std::thread([] { raise(SIGKILL); }).detach();  // amid the next
        }
        const Status status = all.allreduce(TensorSpan::of(values), {.deadline = 60s});
        if (status.ok()) continue;
        if (!says(status.error().message(), "rank 1 is lost")) return false;
        break;
      }
      const auto rest = all.shrink(2s);
      if (!rest.ok() || rest->size() != 3) return false;
      values.assign(values.size(), 1);
      return rest->allreduce(TensorSpan::of(values), {}).ok() && values.front() == 3 &&
             values.back() == 3 && rest->barrier({}).ok();
    });
  }
}

TEST(Channels, rank_that_does_not_call__is_named_at_the_deadline) {
  run_ranks(3, divided(3), [](Communicator& all) {
    std::vector<float> values(50'000);
    ASSERT_TRUE(all.allreduce(TensorSpan::of(values), {}).ok());
    if (all.rank() == 2) {
      std::this_thread::sleep_for(4s);
      return;
    }
    const auto begin = SteadyClock::now();
    const std::string words = message_of(all.allreduce(TensorSpan::of(values), {.deadline = 2s}));
    EXPECT_TRUE(says(words, "rank 2 has not called it yet")) << words;
    EXPECT_LT(SteadyClock::now() - begin, 3s);
    // All engines of the communicator are broken, with the same error.
    EXPECT_EQ(message_of(all.allreduce(TensorSpan::of(values), {})), words);
  });
}

TEST(Channels, calls_that_differ__are_named) {
  run_ranks(2, divided(3), [](Communicator& all) {
    std::vector<float> values(all.rank() == 0 ? 50'000 : 50'001);
    const std::string words = message_of(all.allreduce(TensorSpan::of(values), {}));
    EXPECT_TRUE(says(words, "rank 0 calls allreduce of 50000")) << words;
    EXPECT_TRUE(says(words, "rank 1 calls allreduce of 50001")) << words;
    ASSERT_FALSE(all.barrier({}).ok());
  });
}

TEST(Channels, large_call_against_a_small_one__both_are_named) {
  run_ranks(2, divided(3), [](Communicator& all) {
    std::vector<float> values(all.rank() == 0 ? 100 : 50'000);
    const auto begin = SteadyClock::now();
    const std::string words = message_of(all.allreduce(TensorSpan::of(values), {}));
    EXPECT_TRUE(says(words, "rank 0 calls allreduce of 100 ")) << words;
    EXPECT_TRUE(says(words, "rank 1 calls allreduce of 50000 ")) << words;
    EXPECT_LT(SteadyClock::now() - begin, 5s);
    ASSERT_FALSE(all.barrier({}).ok());
  });
}

// The first rank makes its call only after a message that the other rank sends after its own call.
TEST(Channels, call_in_flight__does_not_wait_for_the_first_rank) {
  run_ranks(2, divided(3), [](Communicator& all) {
    std::vector<std::int64_t> values(50'000, 1);
    std::vector<std::int64_t> message(1);
    if (all.rank() == 0) {
      ASSERT_TRUE(all.recv(TensorSpan::of(message), 1, 0, {.deadline = 10s}).ok());
      ASSERT_TRUE(all.allreduce(TensorSpan::of(values), {}).ok());
    } else {
      const auto operation = all.allreduce_async(TensorSpan::of(values), {});
      ASSERT_TRUE(all.send({message.data(), 1, DType::kInt64}, 0, 0, {}).ok());
      ASSERT_TRUE(operation->wait().ok());
    }
    EXPECT_EQ(values.back(), 2);
    ASSERT_TRUE(all.barrier({}).ok());
  });
}

// Nobody can connect to the channels of the dead rank, because it never made any.
TEST(Channels, rank_dies_before_its_first_large_call__is_named_at_once) {
  CommunicatorOptions options = divided(3);
  options.scheme = "ring";
  expect_others_content(4, options, 1, 10s, [](Communicator& all) {
    std::vector<float> values(50'000);
    if (!all.barrier({}).ok()) return false;
    if (all.rank() == 1) {
      std::this_thread::sleep_for(500ms);
      raise(SIGKILL);
    }
    const auto operation = all.allreduce_async(TensorSpan::of(values), {});
    return operation.ok() && says(message_of(operation->wait()), "rank 1 is lost");
  });
}

// One rank divides the operation, the other does not.
TEST(Channels, least_parts_that_differ__are_named) {
  const auto options = [](int rank) {
    CommunicatorOptions own = divided(2);
    if (rank == 1) own.channel_bytes = 1 << 20;
    return own;
  };
  run_ranks_by(2, options, [](Communicator& all) {
    std::vector<float> values(50'000);
    const std::string words = message_of(all.allreduce(TensorSpan::of(values), {}));
    EXPECT_TRUE(says(words, "part 1 of 2")) << words;
    ASSERT_FALSE(all.barrier({}).ok());
  });
}

TEST(Channels, call_after_leaving__fails_at_once) {
  for (const bool large_before : {true, false}) {
    run_ranks(2, divided(3), [&](Communicator& all) {
      std::vector<float> values(50'000);
      if (large_before) {
        ASSERT_TRUE(all.allreduce(TensorSpan::of(values), {}).ok());
      }
      ASSERT_TRUE(all.barrier({}).ok());
      const auto rest = all.shrink(1s);
      ASSERT_EQ(message_of(rest), "no error");
      const auto begin = SteadyClock::now();
      EXPECT_TRUE(says(message_of(all.allreduce(TensorSpan::of(values), {})), "left"));
      EXPECT_LT(SteadyClock::now() - begin, 1s);
      ASSERT_TRUE(rest->barrier({}).ok());
    });
  }
}

}  // namespace
}  // namespace thalweg::net
