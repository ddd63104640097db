// Transport::kAuto on sockets: all ranks choose alike, and every trial is exact.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <latch>
#include <string>
#include <vector>

#include <thalweg/communicator.h>

#include "base/messages.h"
#include "base/prng.h"
#include "net/group/api/auto_calls.h"
#include "net/ranks.h"

namespace thalweg::net {
namespace {

using namespace std::chrono_literals;

CommunicatorOptions by_trials(bool shared_memory = true) {
  CommunicatorOptions options;
  options.transport = Transport::kAuto;
  options.shared_memory = shared_memory;
  options.dlcp_line_rate_gbps = 1;
  return options;
}

// The elements and the sum of a call, by the number of the call.
void fill(std::vector<std::int32_t>& values, int rank, int call) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] =
        static_cast<std::int32_t>(mix_bits(i * 31 + static_cast<std::size_t>(call)) % 1000) *
        (rank + 1);
  }
}
bool is_sum(const std::vector<std::int32_t>& values, int ranks, int call) {
  const std::int32_t all = ranks * (ranks + 1) / 2;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto own =
        static_cast<std::int32_t>(mix_bits(i * 31 + static_cast<std::size_t>(call)) % 1000);
    if (values[i] != own * all) return false;
  }
  return true;
}

std::string in_words(const std::vector<AutoDecision>& decisions) {
  std::string text;
  for (const AutoDecision& one : decisions) {
    text += fmt::format("{}: {}, {}, {} calls, {} trials, {} ms\n", one.kind, one.chosen, one.why,
                        one.calls, one.trials, one.trials_ms);
  }
  return text;
}

// Times may change at any moment on a busy machine, and then there are trials again.
bool all_decided(const Communicator& all, int calls) {
  return calls > 2000 || std::ranges::all_of(all.auto_choices(), &AutoDecision::decided);
}

// Each rank's decisions in words.
class Decisions {
 public:
  void add(const Communicator& all) {
    const std::lock_guard lock(mutex_);
    words_.push_back(in_words(all.auto_choices()));
  }
  void expect_equal(std::size_t ranks) const {
    ASSERT_EQ(words_.size(), ranks);
    for (const std::string& words : words_) EXPECT_EQ(words, words_.front());
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> words_;
};

class AutoRanks : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, AutoRanks, testing::Values(2, 3, 4));

TEST_P(AutoRanks, allreduce__every_trial_is_exact_and_all_ranks_choose_alike) {
  Decisions decisions;
  run_ranks(GetParam(), by_trials(), [&](Communicator& all) {
    std::vector<std::int32_t> values(20'000);
    int call = 0;
    for (; call < 120 || !all_decided(all, call); ++call) {
      fill(values, all.rank(), call);
      ASSERT_EQ(message_of(all.allreduce(TensorSpan::of(values))), "no error");
      ASSERT_TRUE(is_sum(values, all.size(), call)) << call;
    }
    const std::vector<AutoDecision> chosen = all.auto_choices();
    ASSERT_EQ(chosen.size(), 1U);
    EXPECT_EQ(chosen[0].kind, "allreduce of int32, sum, 64KiB to 128KiB");
    EXPECT_TRUE(chosen[0].decided);
    EXPECT_EQ(chosen[0].calls, call);
    EXPECT_GT(chosen[0].trials, 3);
    EXPECT_GT(chosen[0].trials_ms, 0);
    EXPECT_NE(chosen[0].why.find(chosen[0].chosen), std::string::npos) << chosen[0].why;
    decisions.add(all);
  });
  decisions.expect_equal(static_cast<std::size_t>(GetParam()));
}

TEST_P(AutoRanks, allreduce_async__steps_of_several_sizes_are_exact_over_tcp_and_dlcp) {
  Decisions decisions;
  run_ranks(GetParam(), by_trials(false), [&](Communicator& all) {
    std::vector<std::vector<std::int32_t>> buckets;
    for (const int elements : {8000, 30000, 30000, 100, 31000}) {
      buckets.emplace_back(static_cast<std::size_t>(elements));
    }
    for (int step = 0; step < 40 || !all_decided(all, step); ++step) {
      std::vector<Operation> flying;
      for (std::size_t b = 0; b < buckets.size(); ++b) {
        fill(buckets[b], all.rank(), step * 10 + static_cast<int>(b));
        Result<Operation> started = all.allreduce_async(TensorSpan::of(buckets[b]));
        ASSERT_EQ(message_of(started), "no error");
        flying.push_back(*std::move(started));
      }
      for (std::size_t b = 0; b < buckets.size(); ++b) {
        ASSERT_EQ(message_of(flying[b].wait()), "no error");
        ASSERT_TRUE(is_sum(buckets[b], all.size(), step * 10 + static_cast<int>(b))) << step;
      }
    }
    const std::vector<AutoDecision> chosen = all.auto_choices();
    ASSERT_EQ(chosen.size(), 2U);
    EXPECT_EQ(chosen[0].kind, "allreduce of int32, sum, 16KiB to 32KiB");
    EXPECT_EQ(chosen[1].kind, "allreduce of int32, sum, 64KiB to 128KiB");
    EXPECT_TRUE(chosen[1].decided);
    EXPECT_NE(chosen[1].why.find("over dlcp"), std::string::npos) << chosen[1].why;
    decisions.add(all);
  });
  decisions.expect_equal(static_cast<std::size_t>(GetParam()));
}

TEST(CommunicatorTrials, allreduce__racks_are_a_reason_to_try_rat) {
  CommunicatorOptions options = by_trials();
  options.topology = "leaf-spine:racks=2,hosts=2,spines=1,host=10G,uplink=10G";
  run_ranks(4, options, [](Communicator& all) {
    std::vector<float> values(50'000);
    for (int call = 0; call < 60; ++call) {
      values.assign(values.size(), static_cast<float>(all.rank()));
      ASSERT_EQ(message_of(all.allreduce(TensorSpan::of(values), {.op = ReduceOp::kMean})),
                "no error");
      ASSERT_EQ(values, std::vector<float>(values.size(), 1.5F));
    }
    EXPECT_NE(all.auto_choices().at(0).why.find("rat"), std::string::npos)
        << all.auto_choices()[0].why;
  });
}

TEST(CommunicatorTrials, allreduce__a_network_that_drops_dlcp_is_not_trained_over_it) {
  const ScopedLoss loss([](std::uint64_t /*sequence*/) { return true; });
  run_ranks(2, by_trials(false), [](Communicator& all) {
    std::vector<std::int32_t> values(20'000);
    for (int call = 0; call < 60; ++call) {
      fill(values, all.rank(), call);
      ASSERT_EQ(message_of(all.allreduce(TensorSpan::of(values))), "no error");
      ASSERT_TRUE(is_sum(values, 2, call));
    }
    EXPECT_EQ(all.auto_choices().at(0).why.find("dlcp"), std::string::npos);
  });
}

TEST(CommunicatorTrials, allreduce__a_loss_bound_is_used_over_dlcp_only_and_checked) {
  run_ranks(2, by_trials(false), [](Communicator& all) {
    std::vector<float> values(30'000);
    std::vector<float> residual(30'000);
    EXPECT_NE(message_of(all.allreduce(TensorSpan::of(values), {.loss_bound = 1.5}))
                  .find("loss_bound: 1.5"),
              std::string::npos);
    EXPECT_NE(message_of(all.allreduce(TensorSpan::of(values), {.deadline = 0s})).find("deadline"),
              std::string::npos);
    std::vector<float> few(10, 1);
    ASSERT_EQ(message_of(all.allreduce(TensorSpan::of(few), {.loss_bound = 0.1})), "no error");
    EXPECT_EQ(few, std::vector<float>(10, 2));
    for (int call = 0; call < 50; ++call) {
      values.assign(values.size(), 1);
      ASSERT_EQ(message_of(all.allreduce(
                    TensorSpan::of(values),
                    {.op = ReduceOp::kMean, .loss_bound = 0.1, .residual = residual.data()})),
                "no error");
      ASSERT_EQ(values, std::vector<float>(values.size(), 1));
    }
    EXPECT_NE(all.auto_choices().at(0).kind.find("with a loss bound"), std::string::npos);
  });
}

TEST(CommunicatorTrials, allreduce__what_is_named_or_small_or_pinned_is_not_tried) {
  const auto expect_none = [](const CommunicatorOptions& options) {
    run_ranks(2, options, [](Communicator& all) {
      std::vector<float> values(30'000, 1);
      std::vector<float> few(100, 1);
      EXPECT_TRUE(all.allreduce(TensorSpan::of(few)).ok());
      EXPECT_TRUE(all.allreduce(TensorSpan::of(values), {.scheme = "ring"}).ok());
      EXPECT_TRUE(all.allreduce(TensorSpan::of(values), {.transport = Transport::kTcp}).ok());
      EXPECT_TRUE(all.allreduce(TensorSpan::of(values), {.op = ReduceOp::kMax}).ok());
      EXPECT_TRUE(all.auto_choices().empty());
      EXPECT_TRUE(all.barrier().ok());
    });
  };
  expect_none(by_trials());
  const auto expect_pinned = [](const CommunicatorOptions& options) {
    run_ranks(2, options, [](Communicator& all) {
      std::vector<float> values(30'000, 1);
      EXPECT_TRUE(all.allreduce(TensorSpan::of(values)).ok());
      EXPECT_TRUE(all.auto_choices().empty());
      EXPECT_TRUE(all.barrier().ok());
    });
  };
  CommunicatorOptions ring = by_trials();
  ring.scheme = "ring";
  expect_pinned(ring);
  setenv("THALWEG_AUTO", "0", 1);
  expect_pinned(by_trials());
  unsetenv("THALWEG_AUTO");
}

TEST(CommunicatorTrials, allreduce__ranks_with_different_options_are_told) {
  std::latch over(2);
  const auto options_of = [](int rank) {
    CommunicatorOptions options = by_trials();
    if (rank == 1) options.scheme = "ring";
    return options;
  };
  run_ranks_by(2, options_of, [&](Communicator& all) {
    std::vector<float> values(30'000, 1);
    const Status status = all.allreduce(TensorSpan::of(values), {.deadline = 20s});
    EXPECT_EQ(kind_of(status), "mismatch") << message_of(status);
    over.arrive_and_wait();
  });
}

// A rank kills itself before a call of the cold trials, before one of the timed ones, and when the
// others wait for its times.
class AutoDeath : public testing::TestWithParam<std::tuple<int, bool>> {};
INSTANTIATE_TEST_SUITE_P(Calls, AutoDeath,
                         testing::Combine(testing::Values(1, 2, 5, 7, 9, 12, 60), testing::Bool()));

TEST_P(AutoDeath, allreduce__a_rank_that_dies_in_trials_is_named) {
  constexpr int kVictim = 1;
  const int last = std::get<0>(GetParam());
  CommunicatorOptions options = by_trials(std::get<1>(GetParam()));
  options.size = 3;
  options.store = free_address();
  std::vector<pid_t> processes;
  for (int rank = 0; rank < 3; ++rank) {
    options.rank = rank;
    processes.push_back(fork_rank(options, [&, rank](Communicator& all) {
      // A rank that dies before another has connected to it is found at the deadline only.
      for (const char* scheme : {"ring", "halving-doubling", "butterfly"}) {
        std::vector<float> values(50'000);
        if (!all.allreduce(TensorSpan::of(values), {.scheme = scheme}).ok()) return false;
      }
      for (int call = 0;; ++call) {
        if (rank == kVictim && call == last) raise(SIGKILL);
        std::vector<float> values(50'000, 1);
        const Status status = all.allreduce(TensorSpan::of(values), {.deadline = 40s});
        if (status.ok() && values == std::vector<float>(50'000, 3)) continue;
        const std::string wanted = "peer lost, rank 1";
        const bool right = kind_of(status) == wanted && kind_of(all.barrier()) == wanted;
        if (!right) fmt::print(stderr, "rank {}: {}\n", rank, message_of(status));
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

TEST(AutoMeter, busy__is_the_time_in_which_any_call_was_in_flight) {
  const auto meter = std::make_shared<AutoMeter>();
  const AutoKind kind;
  const Time began = monotonic_now();
  bool called = false;
  const auto first = meter->watch(kind, true, [&] { called = true; });
  const auto second = meter->watch(kind, false, {});
  std::this_thread::sleep_for(3ms);
  first();
  EXPECT_TRUE(called);
  std::this_thread::sleep_for(2ms);
  EXPECT_GE(meter->busy().ms(), 5);
  second();
  const Duration busy = meter->busy();
  EXPECT_GE(busy.ms(), 5);
  EXPECT_LE(busy.ms(), (monotonic_now() - began).ms());
  std::this_thread::sleep_for(2ms);
  EXPECT_EQ(meter->busy(), busy);
  EXPECT_EQ(meter->take(), std::vector<AutoKind>{kind});
  EXPECT_TRUE(meter->take().empty());
}

AutoCalls& calls_in(AutoTable& table, std::int64_t bytes, std::vector<AutoCandidate> candidates,
                    int count) {
  const AutoKind kind = auto_kind_of(ReduceOp::kSum, DType::kFloat32, bytes, false);
  AutoCalls calls{.kind = kind, .candidates = std::move(candidates)};
  calls.count = count;
  calls.bytes = static_cast<double>(bytes) * count;
  table.bytes += calls.bytes;
  return table.calls.emplace(kind, std::move(calls)).first->second;
}

TEST(AutoTable, may_begin__the_most_bytes_first_one_at_a_time_and_few_bytes_never) {
  AutoTable table;
  const AutoCandidate ring{Transport::kTcp, "ring"};
  const AutoCandidate tree{Transport::kTcp, "rat"};
  AutoCalls& large = calls_in(table, 1 << 20, {tree, ring}, 10);
  AutoCalls& middle = calls_in(table, 1 << 19, {tree, ring}, 10);
  AutoCalls& small = calls_in(table, 1 << 15, {tree, ring}, 10);
  EXPECT_TRUE(table.may_begin(large));
  EXPECT_FALSE(table.may_begin(middle));
  large.choice.emplace(2);
  table.first = table.trying = &large;
  EXPECT_FALSE(table.may_begin(middle));
  EXPECT_EQ(table.untried(middle), tree);
  EXPECT_EQ(table.untried(small), tree);  // the first kind has not decided
  large.choice.emplace(1);
  large.candidates = {ring};
  table.trying = nullptr;
  EXPECT_TRUE(table.may_begin(middle));
  EXPECT_FALSE(table.may_begin(small));
  EXPECT_EQ(table.untried(middle), tree);
  EXPECT_EQ(table.untried(small), ring);
  EXPECT_TRUE(table.decision(small).decided);
  EXPECT_FALSE(table.decision(middle).decided);
}

TEST(AutoKind, to_string__names_the_sizes) {
  EXPECT_EQ(to_string(auto_kind_of(ReduceOp::kMean, DType::kFloat32, 1 << 20, false)),
            "allreduce of float32, mean, 1MiB to 2MiB");
  EXPECT_EQ(to_string(auto_kind_of(ReduceOp::kSum, DType::kInt64, (1 << 20) - 1, true)),
            "allreduce of int64, sum, 512KiB to 1MiB, with a loss bound");
}

}  // namespace
}  // namespace thalweg::net
