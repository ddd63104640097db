// Exponents that ranks find on the way, on sockets: no agreement precedes the data.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cmath>
#include <condition_variable>
#include <latch>
#include <limits>
#include <map>
#include <mutex>
#include <vector>

#include "net/group/atp/atp_engine.h"
#include "net/group/operation/stream_operation.h"
#include "net/ranks.h"
#include "switchd/loopback_job.h"

namespace thalweg::switchd {
namespace {

using Floats = std::vector<std::vector<float>>;

// Reduces floats on all ranks of a job of nodes, which have no streams between them.
void reduce(LoopbackJob& job, Floats& tensors) {
  std::vector<std::future<Status>> ends;
  for (std::size_t w = 0; w < tensors.size(); ++w) {
    auto promise = std::make_shared<std::promise<Status>>();
    ends.push_back(promise->get_future());
    job.node(w).reduce({.type = DType::kFloat32,
                        .data = reinterpret_cast<std::byte*>(tensors[w].data()),
                        .elements = static_cast<std::int64_t>(tensors[w].size()),
                        .deadline = Duration::milliseconds(60'000),
                        .done = [promise](Status status) { promise->set_value(status); }});
  }
  LoopbackJob::expect_all_well(ends);
}

// Random magnitudes up to `scale`; those of one rank are a hundred times smaller.
Floats random(std::size_t ranks, std::size_t elements, double scale, std::uint64_t seed) {
  Prng prng(seed);
  Floats tensors(ranks, std::vector<float>(elements));
  for (std::size_t w = 0; w < ranks; ++w) {
    for (float& value : tensors[w]) {
      const double unit = static_cast<double>(static_cast<std::int32_t>(prng.next())) * 0x1p-31;
      value = static_cast<float>(unit * scale * (w == 1 ? 0.01 : 1));
    }
  }
  return tensors;
}

// The sums are the same on all ranks, and right.
void expect_sums(const Floats& before, const Floats& after, double scale) {
  const double bound = scale * 0x1p-20 * static_cast<double>(before.size());
  for (std::size_t w = 1; w < after.size(); ++w) ASSERT_EQ(after[w], after[0]);
  for (std::size_t i = 0; i < before[0].size(); ++i) {
    double sum = 0;
    for (const auto& tensor : before) sum += double{tensor[i]};
    ASSERT_NEAR(double{after[0][i]}, sum, bound) << i;
  }
}

TEST(AtpExponents, floats__calls_of_a_kind_are_repeated_only_where_they_change) {
  const auto daemon = start_switch(4096);
  LoopbackJob job(daemon.get(), {.workers = 3, .servers = 2});
  constexpr std::size_t kElements = 64 * 100 - 5;
  const auto repeated = [&] { return job.node(0).counters().worker.repeated; };
  const auto run = [&](double scale, std::uint64_t seed) {
    Floats tensors = random(3, kElements, scale, seed);
    const Floats before = tensors;
    reduce(job, tensors);
    expect_sums(before, tensors, scale);
  };
  run(1e-5, 1);
  EXPECT_EQ(repeated(), 100U);  // nothing was known
  for (std::uint64_t seed = 2; seed < 6; ++seed) run(1e-5, seed);
  EXPECT_EQ(repeated(), 100U);
  run(1e3, 6);
  EXPECT_EQ(repeated(), 200U);
  run(1e3, 7);
  EXPECT_EQ(repeated(), 200U);
  run(1e-5, 8);
  EXPECT_EQ(repeated(), 300U);
  for (std::size_t w = 0; w < 3; ++w) {
    EXPECT_EQ(job.node(w).counters().worker.repeated, 300U);
    EXPECT_EQ(job.node(w).counters().worker.mismatch, 0U);
  }
}

TEST(AtpExponents, floats__what_is_not_finite_makes_its_block_nan_on_all_ranks) {
  LoopbackJob job(nullptr, {.workers = 2});
  Floats tensors(2, std::vector<float>(200, 1.5F));
  tensors[1][70] = std::numeric_limits<float>::infinity();
  reduce(job, tensors);
  for (const auto& tensor : tensors) {
    for (std::size_t i = 0; i < tensor.size(); ++i) {
      EXPECT_EQ(std::isnan(tensor[i]), i >= 64 && i < 128) << i;
      if (i < 64 || i >= 128) {
        EXPECT_EQ(tensor[i], 3.0F);
      }
    }
  }
  // Zeros need no repetition, whatever was predicted.
  const std::uint64_t repeated = job.node(0).counters().worker.repeated;
  tensors.assign(2, std::vector<float>(200, 0.0F));
  reduce(job, tensors);
  EXPECT_EQ(tensors[0], std::vector<float>(200, 0.0F));
  EXPECT_EQ(job.node(0).counters().worker.repeated, repeated);
}

TEST(AtpExponents, floats__a_tensor_of_several_windows_repeats_at_most_the_first) {
  const auto daemon = start_switch(4096);
  LoopbackJob job(daemon.get(), {.workers = 2, .elements = 16});
  // 3000 blocks of 16 elements; the window has 1024. The magnitude grows from block to block.
  Floats tensors(2, std::vector<float>(16 * 3000));
  for (auto& tensor : tensors) {
    for (std::size_t i = 0; i < tensor.size(); ++i) {
      tensor[i] = std::exp2(static_cast<float>(i / 16 % 90) - 40);
    }
  }
  const Floats before = tensors;
  reduce(job, tensors);
  for (const auto& tensor : tensors) {
    for (std::size_t i = 0; i < tensor.size(); ++i) ASSERT_EQ(tensor[i], 2 * before[0][i]) << i;
  }
  const std::uint64_t repeated = job.node(0).counters().worker.repeated;
  EXPECT_GT(repeated, 0U);
  EXPECT_LE(repeated, 1024U);
}

// Values that the ranks of one process publish to each other.
class Board {
 public:
  Status publish(const std::string& key, const std::string& value) {
    const std::lock_guard lock(mutex_);
    values_[key] = value;
    changed_.notify_all();
    return ok_status();
  }
  Result<std::string> find(const std::string& key, Time until) {
    std::unique_lock lock(mutex_);
    const auto left = std::chrono::nanoseconds((until - net::monotonic_now()).ps() / 1000);
    if (!changed_.wait_for(lock, left, [&] { return values_.contains(key); })) {
      return Error("nobody has published " + key);
    }
    return values_[key];
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

// A comparison that ends when the test lets it. Its engine asks for its end after the sum.
class HeldComparison final : public OperationHost {
 public:
  Status wait(Operation::State& /*op*/) override {
    asked.count_down();
    released.wait();
    return ok_status();
  }
  bool over(const Operation::State& /*op*/) override { return false; }
  std::latch asked{2};
  std::latch released{1};
};

TEST(AtpEngine, start__the_sum_is_there_before_anything_was_compared) {
  Board board;
  std::vector<std::shared_ptr<net::AtpEngine>> engines(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      net::AtpEngineOptions options;
      options.rank = rank;
      options.size = 2;
      options.local = net::SocketAddress::resolve("127.0.0.1:0").value();
      options.publish = [&](const std::string& key, const std::string& value, Time) {
        return board.publish(key, value);
      };
      options.find = [&](const std::string& key, Time until) { return board.find(key, until); };
      options.broken = [] { return std::optional<Error>(); };
      auto made = net::AtpEngine::make(options, soon());
      ASSERT_TRUE(made.ok()) << made.error().message();
      engines[static_cast<std::size_t>(rank)] = std::move(*made);
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_TRUE(engines[0] && engines[1]);
  Floats tensors(2, std::vector<float>(10'000, 1e-3F));
  const auto held = std::make_shared<HeldComparison>();
  std::vector<std::shared_ptr<net::AtpOperation>> operations;
  int compared = 0;
  for (std::size_t w = 0; w < 2; ++w) {
    auto& op = operations.emplace_back(std::make_shared<net::AtpOperation>());
    op->tensor = reinterpret_cast<std::byte*>(tensors[w].data());
    op->elements = static_cast<std::int64_t>(tensors[w].size());
    op->limit = Duration::milliseconds(60'000);
    auto comparison = std::make_shared<net::StreamOperation>();
    comparison->host = held;
    comparison->scratch.resize(sizeof(std::int32_t));
    engines[w]->start(op, comparison, [&] { ++compared; });
  }
  EXPECT_EQ(compared, 2);
  held->asked.wait();
  for (const auto& tensor : tensors) EXPECT_EQ(tensor, std::vector<float>(10'000, 2e-3F));
  for (std::size_t w = 0; w < 2; ++w) EXPECT_FALSE(engines[w]->over(*operations[w]));
  held->released.count_down();
  for (std::size_t w = 0; w < 2; ++w) EXPECT_TRUE(engines[w]->wait(*operations[w]).ok());
}

// Rank 1 makes its second call only when rank 0 has been told the end of the first one, though rank
// 0 has made its second call long before.
TEST(CommunicatorAtp, allreduce__an_operation_ends_while_the_next_one_waits_for_a_rank) {
  const auto daemon = start_switch(256);
  CommunicatorOptions options;
  options.transport = Transport::kAtp;
  options.atp_switch = daemon->control_address();
  std::latch first_is_over(1);
  net::run_ranks(2, options, [&](Communicator& all) {
    std::vector<float> one(5000, 1.0F);
    std::vector<float> two(5000, 2.0F);
    const CallOptions call{.deadline = std::chrono::seconds(60)};
    const Operation first = all.allreduce_async(TensorSpan::of(one), call).value();
    if (all.rank() == 1) {
      ASSERT_TRUE(first.wait().ok());
      first_is_over.wait();
    }
    const Operation second = all.allreduce_async(TensorSpan::of(two), call).value();
    if (all.rank() == 0) {
      const Status status = first.wait();
      first_is_over.count_down();
      ASSERT_TRUE(status.ok()) << status.error().message();
    }
    ASSERT_TRUE(second.wait().ok());
    EXPECT_EQ(one, std::vector<float>(5000, 2.0F));
    EXPECT_EQ(two, std::vector<float>(5000, 4.0F));
  });
}

}  // namespace
}  // namespace thalweg::switchd
