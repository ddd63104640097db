// Repeated calls: they reuse what the call before has left, and nothing else of it.
#include "net/group/api/known_call.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <latch>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "net/ranks.h"
#include "sanitized.h"

namespace thalweg::net {
namespace {

using namespace std::chrono_literals;

std::shared_ptr<StreamOperation> ended(const CallKey& key) {
  auto known = std::make_shared<KnownCall>();
  known->key = key;
  auto op = std::make_shared<StreamOperation>();
  op->known = std::move(known);
  op->memory.resize(3);
  op->last_step = [] {};
  op->at_once = true;
  op->end(ok_status());
  return op;
}

TEST(SpareOperations, take__once_and_as_new_by_the_same_call_alone) {
  SpareOperations spare;
  const CallKey key{.name = "allreduce", .elements = 256, .scheme = "ring"};
  EXPECT_EQ(spare.take(key), nullptr);
  std::shared_ptr<StreamOperation> op = ended(key);
  const StreamOperation* first = op.get();
  spare.put(std::move(op));
  std::vector<CallKey> others(6, key);
  others[0].name = "barrier";
  others[1].type = DType::kInt32;
  others[2].scheme = "butterfly";
  others[3].op = ReduceOp::kMean;
  others[4].elements = 257;
  others[5].dlcp = true;
  for (const CallKey& other : others) EXPECT_EQ(spare.take(other), nullptr);
  const std::shared_ptr<StreamOperation> again = spare.take(key);
  ASSERT_EQ(again.get(), first);
  EXPECT_TRUE(again->memory.empty() && !again->last_step && !again->result && !again->at_once);
  EXPECT_EQ(spare.take(key), nullptr);
}

TEST(SpareOperations, threads__no_operation_is_had_by_two) {
  SpareOperations spare;
  const CallKey key{.name = "allreduce", .elements = 256, .scheme = ""};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20'000; ++i) {
        std::shared_ptr<StreamOperation> op = spare.take(key);
        if (!op) op = ended(key);
        ASSERT_EQ(op.use_count(), 1);
        op->priority = op->priority + 1;  // a data race if another thread has it
        op->result = ok_status();
        spare.put(std::move(op));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Each call has other memory, and differs in all that may differ between calls of one size.
TEST(RepeatedCalls, results__of_calls_that_take_turns) {
  for (const bool shared : {true, false}) {
    run_ranks(3, {.shared_memory = shared}, [&](Communicator& all) {
      int over = 0;
      for (int i = 0; i < (kUnderSanitizer ? 100 : 400); ++i) {
        const std::int32_t own = all.rank() * 30 + i;
        std::vector<std::int32_t> sum(static_cast<std::size_t>(1 + i % 3), own);
        std::vector<std::int32_t> mean = sum;
        std::vector<std::int32_t> most = sum;
        std::vector<float> real(sum.begin(), sum.end());
        ASSERT_TRUE(all.allreduce(TensorSpan::of(sum), {.on_over = [&] { ++over; }}).ok());
        ASSERT_TRUE(all.allreduce(TensorSpan::of(mean), {.op = ReduceOp::kMean}).ok());
        ASSERT_TRUE(all.allreduce(TensorSpan::of(most), {.op = ReduceOp::kMax}).ok());
        ASSERT_TRUE(all.allreduce(TensorSpan::of(real), {.scheme = "ring"}).ok());
        ASSERT_TRUE(all.barrier({}).ok());
        ASSERT_EQ(over, i + 1);
        for (std::size_t e = 0; e < sum.size(); ++e) {
          ASSERT_EQ(sum[e], 90 + 3 * i);
          ASSERT_EQ(mean[e], 30 + i);
          ASSERT_EQ(most[e], 60 + i);
          ASSERT_EQ(real[e], static_cast<float>(90 + 3 * i));
        }
      }
    });
  }
}

// An operation that is used again does not keep the times of its last use.
TEST(RepeatedCalls, deadline__counts_from_each_call) {
  run_ranks(2, {}, [](Communicator& all) {
    std::vector<float> values(256, 1);
    for (int i = 0; i < 200; ++i) {
      ASSERT_TRUE(all.allreduce(TensorSpan::of(values), {.deadline = 400ms}).ok());
    }
    std::this_thread::sleep_for(600ms);
    if (all.rank() == 1) std::this_thread::sleep_for(100ms);
    const Status late = all.allreduce(TensorSpan::of(values), {.deadline = 400ms});
    ASSERT_TRUE(late.ok()) << late.error().message();
    if (all.rank() == 1) return std::this_thread::sleep_for(1s);
    const auto begin = std::chrono::steady_clock::now();
    const Status never = all.allreduce(TensorSpan::of(values), {.deadline = 400ms});
    EXPECT_FALSE(never.ok());
    EXPECT_GE(std::chrono::steady_clock::now() - begin, 300ms);
    EXPECT_FALSE(all.allreduce(TensorSpan::of(values), {}).ok());
  });
}

TEST(RepeatedCalls, difference__is_found_after_calls_that_were_the_same) {
  std::mutex mutex;
  std::vector<std::string> words;
  std::latch all_called(2);  // no rank leaves before all have called
  run_ranks(2, {}, [&](Communicator& all) {
    std::vector<float> values(256, 1);
    for (int i = 0; i < 200; ++i) {
      ASSERT_TRUE(all.allreduce(TensorSpan::of(values), {}).ok());
    }
    if (all.rank() == 1) values.resize(128);
    const Status status = all.allreduce(TensorSpan::of(values), {.deadline = 5s});
    {
      const std::lock_guard lock(mutex);
      words.push_back(status.ok() ? "" : status.error().message());
    }
    all_called.arrive_and_wait();
  });
  for (const std::string& said : words) {
    EXPECT_NE(said.find("allreduce of 256 float32"), std::string::npos) << said;
    EXPECT_NE(said.find("allreduce of 128 float32"), std::string::npos) << said;
  }
}

}  // namespace
}  // namespace thalweg::net
