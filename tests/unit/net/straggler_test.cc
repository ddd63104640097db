// Allreduces with a straggler bound over loopback: ranks that call late, that are stopped, that
// die.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <mutex>
#include <numeric>
#include <vector>

#include "ranks.h"

namespace thalweg::net {
namespace {

constexpr int kRanks = 4;

CommunicatorOptions over_sockets() {
  CommunicatorOptions options;
  options.shared_memory = false;
  return options;
}

void pause_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

struct Training {
  int calls = 40;
  std::int64_t elements = 40'000;
  double bound = 0.2;
  int window = 40;
  DType type = DType::kFloat32;
  ReduceOp op = ReduceOp::kMean;
  int late_ms = 0;  // how long rank `call` % 4 waits before every fourth call, from the 12th on
};

// Contributions are small whole numbers, so that all sums are exact.
float value_of(int rank, int call, std::int64_t element) {
  return static_cast<float>((rank * 7 + call * 3 + element) % 16);
}

// Returns the reports of the ranks, after it has checked that all have the same results and that
// results and residuals hold everything that was contributed.
std::vector<StragglerReport> train(const Training& training) {
  std::mutex mutex;
  std::vector<std::vector<std::vector<float>>> results(kRanks);
  std::vector<std::vector<float>> residuals(kRanks);
  std::vector<StragglerReport> reports(kRanks);
  run_ranks_by(
      kRanks, [](int) { return over_sockets(); },
      [&](Communicator& all) {
        const int rank = all.rank();
        const auto elements = static_cast<std::size_t>(training.elements);
        std::vector<float> residual(elements, 0);
        std::vector<std::vector<float>> own;
        for (int call = 0; call < training.calls; ++call) {
          const bool stalls = call >= 12 && call % 4 == 0 && rank == call / 4 % kRanks;
          if (stalls) pause_ms(training.late_ms);
          std::vector<float> tensor(elements);
          for (std::size_t i = 0; i < elements; ++i) {
            tensor[i] = value_of(rank, call, static_cast<std::int64_t>(i));
          }
          CallOptions options{.op = training.op};
          options.residual = residual.data();
          options.straggler_bound = training.bound;
          options.straggler_window = training.window;
          const Status status = all.allreduce(TensorSpan::of(tensor), options);
          ASSERT_TRUE(status.ok()) << status.error().message();
          own.push_back(std::move(tensor));
        }
        const std::lock_guard lock(mutex);
        results[static_cast<std::size_t>(rank)] = std::move(own);
        residuals[static_cast<std::size_t>(rank)] = std::move(residual);
        reports[static_cast<std::size_t>(rank)] = all.straggler_report();
      });
  for (const auto& own : results) EXPECT_TRUE(own == results[0]);
  const double scale = training.op == ReduceOp::kMean ? kRanks : 1;
  for (std::size_t i = 0; i < static_cast<std::size_t>(training.elements); i += 97) {
    double given = 0;
    double kept = 0;
    for (int rank = 0; rank < kRanks; ++rank) {
      kept += residuals[static_cast<std::size_t>(rank)][i];
      for (int call = 0; call < training.calls; ++call) {
        given += value_of(rank, call, static_cast<std::int64_t>(i));
      }
    }
    for (const auto& tensor : results[0]) kept += tensor[i] * scale;
    EXPECT_EQ(given, kept) << "element " << i;
  }
  return reports;
}

TEST(Straggler, no_stalls__sums_and_residuals_are_whole) {
  for (const std::int64_t elements : {1, 3, 1000, 300'000}) {
    SCOPED_TRACE(elements);
    train({.calls = 6, .elements = elements, .op = ReduceOp::kSum});
  }
}

TEST(Straggler, late_calls__left_out_and_made_up_for) {
  const auto reports = train({.late_ms = 150});
  // 40 calls of 4 ranks, of which at most 20 % may be left out.
  for (const StragglerReport& report : reports) {
    EXPECT_EQ(report.calls, 40U);
    EXPECT_LE(report.left_out, 0.2 * 40 * kRanks);
    EXPECT_EQ(report.left_out, reports[0].left_out);
    EXPECT_EQ(report.exact_calls, reports[0].exact_calls);
  }
  EXPECT_GT(reports[0].left_out, 0.5);
  EXPECT_LT(reports[0].exact_calls, 40U);
}

TEST(Straggler, options__checked) {
  run_ranks_by(
      1, [](int) { return over_sockets(); },
      [&](Communicator& all) {
        std::vector<float> tensor(8, 1);
        std::vector<float> residual(8, 0);
        std::vector<std::int32_t> integers(8, 1);
        const auto message = [&](const CallOptions& options, TensorSpan of) {
          const Status status = all.allreduce(of, options);
          return status.ok() ? std::string() : status.error().message();
        };
        CallOptions good{.op = ReduceOp::kMean};
        good.residual = residual.data();
        good.straggler_bound = 0.05;
        EXPECT_EQ(message(good, TensorSpan::of(tensor)), "");
        const auto refused = [&](const std::function<void(CallOptions&)>& change,
                                 const char* part) {
          CallOptions options = good;
          change(options);
          const std::string text = message(options, TensorSpan::of(tensor));
          EXPECT_NE(text.find(part), std::string::npos) << text;
        };
        refused([](auto& o) { o.straggler_bound = 1; }, "straggler_bound: 1; from 0 to below 1");
        refused([](auto& o) { o.straggler_bound = -0.1; }, "straggler_bound: -0.1");
        refused([](auto& o) { o.straggler_bound = std::nan(""); }, "straggler_bound: nan");
        refused([](auto& o) { o.straggler_window = 0; }, "straggler_window: 0; from 1 to 10000");
        refused([](auto& o) { o.residual = nullptr; }, "without a residual");
        refused([](auto& o) { o.op = ReduceOp::kMax; }, "only floats by sum or mean");
        refused([](auto& o) { o.loss_bound = 0.1; }, "a call has one of them");
        refused([](auto& o) { o.transport = Transport::kDlcp; }, "needs the transport tcp");
        refused([](auto& o) { o.scheme = "ring"; }, "a way of its own");
        EXPECT_NE(message(good, TensorSpan::of(integers)).find("int32"), std::string::npos);
      });
}

TEST(Straggler, rank_leaves__others_name_it) {
  run_ranks_by(
      kRanks, [](int) { return over_sockets(); },
      [&](Communicator& all) {
        std::vector<float> tensor(10'000, 1);
        std::vector<float> residual(10'000, 0);
        CallOptions options{.op = ReduceOp::kMean};
        options.residual = residual.data();
        options.straggler_bound = 0.3;
        options.deadline = std::chrono::seconds(20);
        for (int call = 0; call < 100; ++call) {
          if (call == 10 && all.rank() == 2) return;
          const Status status = all.allreduce(TensorSpan::of(tensor), options);
          if (status.ok()) continue;
          EXPECT_GE(call, 10);
          EXPECT_NE(status.error().message().find("rank 2"), std::string::npos)
              << status.error().message();
          EXPECT_TRUE(all.broken().has_value() ||
                      !all.allreduce(TensorSpan::of(tensor), options).ok());
          return;
        }
        ADD_FAILURE() << "no call failed";
      });
}

TEST(Straggler, calls_differ__error_says_so) {
  run_ranks_by(
      kRanks, [](int) { return over_sockets(); },
      [&](Communicator& all) {
        std::vector<float> tensor(all.rank() == 1 ? 900 : 1000, 1);
        std::vector<float> residual(1000, 0);
        CallOptions options{.op = ReduceOp::kMean};
        options.residual = residual.data();
        options.straggler_bound = 0.3;
        options.deadline = std::chrono::seconds(4);
        const Status status = all.allreduce(TensorSpan::of(tensor), options);
        ASSERT_FALSE(status.ok());
        EXPECT_NE(status.error().message().find("allreduce of 900"), std::string::npos)
            << status.error().message();
      });
}

// Several calls in flight, as DDP's buckets are.
TEST(Straggler, several_in_flight__same_results) {
  std::mutex mutex;
  std::vector<std::vector<float>> last(kRanks);
  run_ranks_by(
      kRanks, [](int) { return over_sockets(); },
      [&](Communicator& all) {
        constexpr std::size_t kBuckets = 5;
        std::vector<std::vector<float>> tensors(kBuckets);
        std::vector<std::vector<float>> residuals(kBuckets, std::vector<float>(20'000, 0));
        for (int step = 0; step < 15; ++step) {
          if (step > 6 && step % 3 == 0 && all.rank() == step / 3 % kRanks) pause_ms(100);
          std::vector<Operation> flying;
          for (std::size_t b = 0; b < kBuckets; ++b) {
            tensors[b].assign(20'000, static_cast<float>(all.rank() + 1));
            CallOptions options{.op = ReduceOp::kMean};
            options.residual = residuals[b].data();
            options.straggler_bound = 0.2;
            auto started = all.allreduce_async(TensorSpan::of(tensors[b]), options);
            ASSERT_TRUE(started.ok());
            flying.push_back(std::move(*started));
          }
          for (const Operation& one : flying) ASSERT_TRUE(one.wait().ok());
        }
        const std::lock_guard lock(mutex);
        for (const auto& tensor : tensors) {
          auto& own = last[static_cast<std::size_t>(all.rank())];
          own.insert(own.end(), tensor.begin(), tensor.end());
        }
      });
  for (const auto& own : last) EXPECT_TRUE(own == last[0]);
}

}  // namespace
}  // namespace thalweg::net
