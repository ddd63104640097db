// The errors that ranks get when their calls differ, and when one of them does not call at all.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <chrono>
#include <functional>
#include <future>
#include <latch>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <thalweg/communicator.h>

#include "net/ranks.h"

namespace thalweg::net {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// The error of each rank's call; "" if it succeeds.
using Words = std::vector<std::string>;
using FailingCall = std::function<Status(Communicator&)>;

struct Outcome {
  Words words;
  std::chrono::nanoseconds longest{0};
};

Outcome outcome_of(int size, const FailingCall& call) {
  Outcome outcome;
  outcome.words.resize(static_cast<std::size_t>(size));
  std::mutex mutex;
  std::latch all_called(size);  // no rank leaves before all have called
  run_ranks(size, {}, [&](Communicator& all) {
    const auto begin = Clock::now();
    const Status status = call(all);
    {
      const std::lock_guard lock(mutex);
      outcome.longest = std::max<std::chrono::nanoseconds>(outcome.longest, Clock::now() - begin);
      outcome.words[static_cast<std::size_t>(all.rank())] =
          status.ok() ? "" : status.error().message();
    }
    all_called.arrive_and_wait();
  });
  return outcome;
}

Status wait_for(const Result<Operation>& operation) {
  return operation.ok() ? operation->wait() : Status(operation.error());
}

void expect_says(const std::string& words, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    EXPECT_NE(words.find(part), std::string::npos) << "'" << part << "' is not in: " << words;
  }
}

constexpr auto kSoon = 4s;  // far below the deadline of 60 s

struct Difference {
  const char* name;
  int size;
  FailingCall call;
  std::vector<std::string> said;  // must be in every rank's error

  friend void PrintTo(const Difference& d, std::ostream* out) { *out << d.name; }
};

class Differences : public testing::TestWithParam<Difference> {};

TEST_P(Differences, call__is_reported_on_every_rank_with_both_calls_and_ranks) {
  const Difference& difference = GetParam();
  const Outcome outcome = outcome_of(difference.size, difference.call);
  EXPECT_LT(outcome.longest, kSoon);
  for (const std::string& words : outcome.words) {
    expect_says(words, {"the ranks do not call the same", "operation"});
    expect_says(words, difference.said);
  }
}

template <class T>
Status sum(Communicator& all, std::size_t elements, const CallOptions& options = {}) {
  std::vector<T> values(elements, T{1});
  return all.allreduce(TensorSpan::of(values), options);
}

INSTANTIATE_TEST_SUITE_P(
    Communicator, Differences,
    testing::Values(
        Difference{
            "size",
            2,
            [](Communicator& all) { return sum<float>(all, all.rank() == 1 ? 100 : 200); },
            {"rank 0 calls allreduce of 200 float32", "rank 1 calls allreduce of 100 float32"}},
        Difference{"type",
                   3,
                   [](Communicator& all) {
                     return all.rank() == 2 ? sum<std::int32_t>(all, 9) : sum<float>(all, 9);
                   },
                   {"rank 2 calls allreduce of 9 int32", "calls allreduce of 9 float32"}},
        Difference{"operation",
                   2,
                   [](Communicator& all) {
                     return sum<float>(all, 9,
                                       {.op = all.rank() == 0 ? ReduceOp::kMax : ReduceOp::kMean});
                   },
                   {"rank 0 calls allreduce of 9 float32, max",
                    "rank 1 calls allreduce of 9 float32, mean"}},
        Difference{"order",
                   2,
                   [](Communicator& all) {
                     std::vector<float> values(10'000);
                     const auto out = TensorSpan::of(values);
                     if (all.rank() == 0) {
                       const Status first = all.barrier({});
                       return first.ok() ? all.allreduce(out, {}) : first;
                     }
                     const Status first = all.allreduce(out, {});
                     return first.ok() ? all.barrier({}) : first;
                   },
                   {"rank 0 calls barrier", "rank 1 calls allreduce of 10000 float32"}},
        Difference{"nothing_to_send",
                   2,
                   [](Communicator& all) {
                     const Status first = sum<float>(all, all.rank() == 0 ? 7 : 0);
                     return first.ok() ? sum<float>(all, 7) : first;
                   },
                   {"rank 0 calls allreduce of 7 float32", "rank 1 calls allreduce of 0 float32"}},
        Difference{"scheme",
                   4,
                   [](Communicator& all) {
                     return sum<float>(all, 1000,
                                       {.scheme = all.rank() == 3 ? "ring" : "butterfly"});
                   },
                   {"by ring", "by butterfly"}},
        // No rank is connected to the one it waits for.
        Difference{"roots_of_which_each_waits_for_the_next",
                   3,
                   [](Communicator& all) {
                     std::vector<float> values(10);
                     return wait_for(all.broadcast_async(TensorSpan::of(values),
                                                         (all.rank() + 1) % all.size(), {}));
                   },
                   {"broadcast of 10 float32, root "}}),
    [](const auto& each) { return each.param.name; });

// Over streams of one engine and of two, and in both kinds of operations.
TEST(Communicator, timeout__is_said_as_it_was_given) {
  CommunicatorOptions two;
  two.channels = 2;
  two.channel_bytes = 1000;
  for (const CommunicatorOptions& each : {CommunicatorOptions(), two}) {
    run_ranks(2, each, [](Communicator& all) {
      ASSERT_TRUE(sum<float>(all, 100'000).ok());
      if (all.rank() == 1) {
        std::this_thread::sleep_for(1500ms);
        return;
      }
      const CallOptions options{.deadline = 700ms, .patience = 100ms};
      const Status late = sum<float>(all, 100'000, options);
      ASSERT_FALSE(late.ok());
      expect_says(late.error().message(), {"not over within 700 ms: rank 1"});
    });
  }
  run_ranks(2, {}, [](Communicator& all) {
    std::vector<float> values(8);
    if (all.rank() == 0) {
      const Status late =
          all.recv(TensorSpan::of(values), 1, 3, {.deadline = 300ms, .patience = 50ms}).error();
      expect_says(late.error().message(), {"within 300 ms"});
    }
    expect_says(sum<float>(all, 8, {.patience = -1ns}).error().message(),
                {"patience: -1 ns; 0 or"});
  });
}

TEST(Communicator, broadcast__two_roots_that_send_are_found_out_by_the_next_call) {
  const Outcome outcome = outcome_of(2, [](Communicator& all) {
    std::vector<float> values(10);
    const Status first = wait_for(all.broadcast_async(TensorSpan::of(values), all.rank(), {}));
    return first.ok() ? all.barrier({}) : first;
  });
  EXPECT_LT(outcome.longest, kSoon);
  for (const std::string& words : outcome.words) {
    expect_says(words, {"rank 0 calls broadcast of 10 float32, root 0",
                        "rank 1 calls broadcast of 10 float32, root 1"});
  }
}

TEST(Communicator, deadline__names_the_rank_that_never_calls) {
  const CallOptions options{.deadline = 1500ms};
  for (const int lazy : {0, 1, 2}) {
    SCOPED_TRACE(lazy);
    const Outcome outcome = outcome_of(3, [&](Communicator& all) {
      // After this barrier ranks are connected, so the lazy one can answer that it has not called.
      if (const Status met = all.barrier({}); !met.ok()) return met;
      if (all.rank() != lazy) return sum<float>(all, 1000, options);
      std::this_thread::sleep_for(2s);
      // The data that the others had sent before they gave up may be enough for this rank.
      const Status late = sum<float>(all, 1000, options);
      return late.ok() ? all.barrier({}) : late;
    });
    EXPECT_LT(outcome.longest, 3500ms);
    for (int r = 0; r < 3; ++r) {
      expect_says(outcome.words[static_cast<std::size_t>(r)],
                  {fmt::format("rank {} has not called it yet", lazy), "barrier"});
    }
  }
}

TEST(Communicator, deadline__names_the_rank_that_never_connected) {
  const Outcome outcome = outcome_of(2, [](Communicator& all) {
    if (all.rank() == 1) {
      std::this_thread::sleep_for(1s);
      return ok_status();
    }
    return sum<float>(all, 10, {.deadline = 500ms});
  });
  expect_says(outcome.words[0], {"rank 1 never connected"});
}

// Nobody waits for the operation, the engine's thread was idle before it, and the other rank has
// stopped and so says nothing that would wake it. That thread must find the deadline all the same.
TEST(Communicator, deadline__holds_after_a_pause_though_nobody_waits) {
  for (const Transport transport : {Transport::kTcp, Transport::kDlcp}) {
    for (const bool shared : {false, true}) {
      SCOPED_TRACE(fmt::format("{}, shared memory {}", name_of(transport), shared));
      CommunicatorOptions options;
      options.shared_memory = shared;
      options.size = 2;
      options.store = free_address();
      options.rank = 1;
      const pid_t other = fork_rank(options, [transport](Communicator& all) {
        const bool good = sum<float>(all, 100, {.transport = transport}).ok();
        raise(SIGSTOP);
        return good;
      });
      options.rank = 0;
      Result<Communicator> all = Communicator::create(options);
      ASSERT_TRUE(all.ok()) << all.error().message();
      ASSERT_TRUE(sum<float>(*all, 100, {.transport = transport}).ok());
      ASSERT_EQ(waitpid(other, nullptr, WUNTRACED), other);
      std::this_thread::sleep_for(200ms);
      std::vector<float> values(100);
      const auto over = std::make_shared<std::promise<void>>();
      const Result<Operation> late = all->allreduce_async(
          TensorSpan::of(values),
          {.deadline = 500ms, .transport = transport, .on_over = [over] { over->set_value(); }});
      EXPECT_TRUE(late.ok());
      EXPECT_EQ(over->get_future().wait_for(2s), std::future_status::ready);
      kill(other, SIGKILL);
      EXPECT_EQ(exit_code(other), 128 + SIGKILL);
      if (late.ok()) expect_says(late->wait().error().message(), {"rank 1"});
    }
  }
}

TEST(Communicator, leaving__what_was_sent_before_is_received) {
  for (int turn = 0; turn < 5; ++turn) {
    run_ranks(2, {}, [&](Communicator& all) {
      std::vector<std::int32_t> values(1000, all.rank());
      // The ranks are connected, and then the root leaves before the other begins.
      ASSERT_TRUE(all.allreduce(TensorSpan::of(values), {}).ok());
      if (all.rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(30));
      values.assign(values.size(), all.rank());
      const Status status = all.broadcast(TensorSpan::of(values), 1, {});
      EXPECT_TRUE(status.ok()) << status.error().message();
      EXPECT_EQ(values.front(), 1);
    });
  }
}

TEST(Communicator, leaving__fails_the_others_and_names_the_rank) {
  run_ranks(3, {}, [](Communicator& all) {
    const Status met = all.barrier({});
    ASSERT_TRUE(met.ok()) << met.error().message();
    if (all.rank() == 1) return;
    const Status status = sum<float>(all, 10);
    ASSERT_FALSE(status.ok());
    expect_says(status.error().message(), {"rank 1", "left"});
  });
}

TEST(Communicator, calls__refuse_what_makes_no_sense) {
  run_ranks(1, {}, [](Communicator& all) {
    std::vector<float> values(4);
    const TensorSpan tensor = TensorSpan::of(values);
    expect_says(all.allreduce({nullptr, 4, DType::kInt8}).error().message(), {"without memory"});
    expect_says(all.allreduce({values.data(), -1, DType::kInt8}).error().message(), {"-1"});
    expect_says(
        all.allreduce({values.data(), 1, DType::kFloat8E5m2}, {.transport = Transport::kAtp})
            .error()
            .message(),
        {"allreduce of float8_e5m2 by sum over atp", "float16 and bfloat16 by sum or mean"});
    expect_says(all.allreduce(tensor, {.deadline = 0s}).error().message(), {"deadline"});
    expect_says(all.broadcast_async(tensor, 1, {}).error().message(), {"root: 1"});
  });
}

}  // namespace
}  // namespace thalweg::net
