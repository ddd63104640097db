// Many operations at once: asynchronous ones, from several threads, and of several groups.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <thalweg/communicator.h>

#include "base/messages.h"
#include "base/prng.h"
#include "net/job/environment.h"
#include "net/ranks.h"
#include "net/store/store_server.h"

namespace thalweg::net {
namespace {

using namespace std::chrono_literals;

// The token of a job whose ranks know only the store.
wire::JobToken token_of(const std::string& store) {
  return environment_from([&](const std::string& name) -> std::optional<std::string> {
           if (name == "THALWEG_RANK") return "0";
           if (name == "THALWEG_SIZE") return "2";
           if (name == "THALWEG_STORE") return store;
           return std::nullopt;
         })
      ->token;
}

std::int64_t sum_of_ranks(int size) { return std::int64_t{size} * (size - 1) / 2; }

TEST(Flight, many_operations__with_any_priorities_waited_for_in_any_order_by_several_threads) {
  const std::uint64_t seed = test_seed();
  constexpr std::size_t kOperations = 150;  // more calls than a rank remembers
  constexpr std::size_t kWaiters = 3;
  for (const int size : {2, 3, 4}) {
    run_ranks(size, {}, [&](Communicator& all) {
      Prng calls(seed);  // the same on all ranks
      Prng own(seed + static_cast<std::uint64_t>(all.rank()) + 1);
      std::vector<std::vector<std::int64_t>> values;
      for (std::size_t i = 0; i < kOperations; ++i) {
        values.emplace_back(1 + calls.below(20'000), all.rank() + static_cast<int>(i));
      }
      std::vector<Operation> flying;
      for (std::size_t i = 0; i < kOperations; ++i) {
        auto operation = all.allreduce_async(TensorSpan::of(values[i]),
                                             {.priority = static_cast<int>(own.below(5))});
        ASSERT_EQ(message_of(operation), "no error");
        flying.push_back(*operation);
      }
      std::vector<std::size_t> order(kOperations);
      std::iota(order.begin(), order.end(), 0);
      for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[own.below(i)]);
      std::vector<std::thread> waiters;
      for (std::size_t w = 0; w < kWaiters; ++w) {
        waiters.emplace_back([&, w] {
          for (std::size_t i = w; i < kOperations; i += kWaiters) {
            const Operation& operation = flying[order[i]];
            EXPECT_EQ(message_of(operation.wait()), "no error");
            EXPECT_TRUE(operation.done());
          }
        });
      }
      for (std::thread& waiter : waiters) waiter.join();
      for (std::size_t i = 0; i < kOperations; ++i) {
        const std::int64_t sum = sum_of_ranks(size) + static_cast<std::int64_t>(i) * size;
        ASSERT_EQ(values[i], std::vector<std::int64_t>(values[i].size(), sum)) << i;
      }
    });
  }
}

TEST(Flight, nobody_waits__operations_end_all_the_same) {
  run_ranks(3, {}, [](Communicator& all) {
    std::vector<std::int64_t> values(50'000, all.rank());
    const auto operation = all.allreduce_async(TensorSpan::of(values), {});
    const auto until = std::chrono::steady_clock::now() + 20s;
    while (!operation->done() && std::chrono::steady_clock::now() < until) {
      std::this_thread::sleep_for(1ms);
    }
    ASSERT_TRUE(operation->done());
    ASSERT_TRUE(operation->wait().ok());
    EXPECT_EQ(values.back(), 3);
    ASSERT_TRUE(all.barrier({}).ok());
  });
}

TEST(Flight, groups__do_not_hear_each_other) {
  run_ranks(4, {}, [](Communicator& all) {
    auto halves = all.split(all.rank() % 2, -all.rank(), {});
    ASSERT_EQ(message_of(halves), "no error");
    const Communicator& half = **halves;
    ASSERT_EQ(half.size(), 2);
    // The keys put the higher rank first.
    EXPECT_EQ(half.rank(), all.rank() < 2 ? 1 : 0);
    std::vector<std::int64_t> in_half(30'000, all.rank());
    std::vector<std::int64_t> in_all(30'000, all.rank());
    // Ranks call the groups in different orders, because groups do not depend on each other.
    const bool first = all.rank() < 2;
    auto a = first ? half.allreduce_async(TensorSpan::of(in_half), {})
                   : all.allreduce_async(TensorSpan::of(in_all), {});
    auto b = first ? all.allreduce_async(TensorSpan::of(in_all), {})
                   : half.allreduce_async(TensorSpan::of(in_half), {});
    EXPECT_EQ(message_of(b->wait()), "no error");
    EXPECT_EQ(message_of(a->wait()), "no error");
    EXPECT_EQ(in_all.back(), 6);
    EXPECT_EQ(in_half.back(), all.rank() % 2 == 0 ? 2 : 4);
    ASSERT_TRUE(all.barrier({}).ok());
  });
}

TEST(Flight, split__leaves_out_those_without_a_colour_and_can_be_split_again) {
  run_ranks(5, {}, [](Communicator& all) {
    const bool out = all.rank() == 2;
    auto part = all.split(out ? Communicator::kNoColor : 7, 0, {});
    ASSERT_EQ(message_of(part), "no error");
    ASSERT_EQ(part->has_value(), !out);
    if (!out) {
      ASSERT_EQ((*part)->size(), 4);
      auto again = (*part)->split((*part)->rank() / 2, 0, {});
      ASSERT_EQ(message_of(again), "no error");
      std::vector<std::int64_t> values(3, all.rank());
      ASSERT_TRUE((**again).allreduce(TensorSpan::of(values), {}).ok());
      EXPECT_EQ(values.front(), all.rank() < 2 ? 1 : 7);
    }
    EXPECT_EQ(message_of(all.split(-5, 0, {})), "color: -5; 0 or more, or kNoColor, is allowed");
    ASSERT_TRUE(all.barrier({}).ok());
  });
}

TEST(Flight, blocking_and_out_of_place__give_what_the_others_do) {
  run_ranks(3, {}, [](Communicator& all) {
    const auto n = static_cast<std::size_t>(all.size());
    const std::vector<float> in(6, static_cast<float>(all.rank() + 1));
    std::vector<float> out(6);
    ASSERT_TRUE(
        all.allreduce(TensorView::of(in), TensorSpan::of(out), {.op = ReduceOp::kMean}).ok());
    EXPECT_EQ(out, std::vector<float>(6, 2));
    EXPECT_EQ(in.front(), static_cast<float>(all.rank() + 1));
    std::vector<float> shorter(5);
    EXPECT_EQ(message_of(all.allreduce(TensorView::of(in), TensorSpan::of(shorter), {})),
              "allreduce: the input has 6 elements, the output 5");
    out = in;
    ASSERT_TRUE(all.broadcast(TensorSpan::of(out), 2, {}).ok());
    EXPECT_EQ(out, std::vector<float>(6, 3));
    out = in;
    ASSERT_TRUE(all.reduce(TensorSpan::of(out), 1, {}).ok());
    EXPECT_EQ(out, all.rank() == 1 ? std::vector<float>(6, 6) : in);
    std::vector<float> large(6 * n);
    ASSERT_TRUE(all.all_gather(TensorView::of(in), TensorSpan::of(large), {}).ok());
    for (std::size_t i = 0; i < large.size(); ++i)
      ASSERT_EQ(large[i], static_cast<float>(i / 6 + 1));
    ASSERT_TRUE(all.reduce_scatter(TensorView::of(large), TensorSpan::of(out), {}).ok());
    EXPECT_EQ(out, std::vector<float>(6, static_cast<float>(3 * (all.rank() + 1))));
    // In place.
    std::vector<float> swapped{0, 1, 2};
    for (float& value : swapped) value += static_cast<float>(10 * all.rank());
    ASSERT_TRUE(all.all_to_all(TensorView::of(swapped), TensorSpan::of(swapped), {}).ok());
    const auto own = static_cast<float>(all.rank());
    EXPECT_EQ(swapped, (std::vector<float>{own, own + 10, own + 20}));
  });
}

TEST(Flight, mean__of_integers_rounds_towards_zero) {
  run_ranks(3, {}, [](Communicator& all) {
    const std::int32_t own = all.rank() + 1;
    std::vector<std::int32_t> values{-own, own, 2 * own, own == 3 ? -7 : 0, own == 3 ? 7 : 0};
    ASSERT_TRUE(all.allreduce(TensorSpan::of(values), {.op = ReduceOp::kMean}).ok());
    EXPECT_EQ(values, (std::vector<std::int32_t>{-2, 2, 4, -2, 2}));
    std::vector<std::int8_t> small{static_cast<std::int8_t>(own * 10)};
    ASSERT_TRUE(all.allreduce(TensorSpan::of(small), {.op = ReduceOp::kMean}).ok());
    EXPECT_EQ(small.front(), 20);
  });
}

TEST(Flight, shrink__agrees_on_those_who_call_it) {
  run_ranks(4, {}, [](Communicator& all) {
    ASSERT_TRUE(all.barrier({}).ok());
    if (all.rank() == 1) {
      std::this_thread::sleep_for(1500ms);
      EXPECT_EQ(message_of(all.shrink(500ms)),
                "shrink: this rank came too late; ranks 0, 2, 3 went on without it");
      return;
    }
    auto rest = all.shrink(500ms);
    ASSERT_EQ(message_of(rest), "no error");
    ASSERT_EQ(rest->size(), 3);
    EXPECT_EQ(rest->rank(), all.rank() == 0 ? 0 : all.rank() - 1);
    std::vector<std::int64_t> values(10'000, all.rank());
    ASSERT_EQ(message_of(rest->allreduce(TensorSpan::of(values), {})), "no error");
    EXPECT_EQ(values.back(), 5);
    std::this_thread::sleep_for(1500ms);  // the store is in the first rank's process
  });
}

TEST(Flight, grow__lets_in_the_newcomers_that_wait) {
  const std::string store = free_address();
  const auto sum_is = [](const Communicator& all, std::int64_t expected) {
    std::vector<std::int64_t> values(5000, all.rank() + 1);
    ASSERT_EQ(message_of(all.allreduce(TensorSpan::of(values), {})), "no error");
    EXPECT_EQ(values.back(), expected);
  };
  std::atomic<int> waiting = 0;
  std::vector<std::thread> threads;
  for (int r = 0; r < 4; ++r) {
    threads.emplace_back([&, r] {
      CommunicatorOptions options{.store = store};
      if (r < 2) {
        options.rank = r;
        options.size = 2;
        Communicator old = std::move(Communicator::create(options).value());
        sum_is(old, 3);
        auto grown = old.grow({});
        ASSERT_EQ(message_of(grown), "no error");
        EXPECT_FALSE(grown->has_value());
        ++waiting;
        // Two newcomers come, in one call of grow() or in two.
        int size = 2;
        while (size < 4) {
          grown = old.grow({});
          ASSERT_EQ(message_of(grown), "no error");
          if (!grown->has_value()) continue;
          size = (*grown)->size();
          old = std::move(**grown);
        }
        EXPECT_EQ(old.rank(), r);
        sum_is(old, 10);
        ASSERT_TRUE(old.barrier({}).ok());
      } else {
        while (waiting < 2) std::this_thread::sleep_for(1ms);
        options.join = true;
        auto created = Communicator::create(options);
        ASSERT_EQ(message_of(created), "no error");
        Communicator all = std::move(*created);
        while (all.size() < 4) {
          auto grown = all.grow({});
          ASSERT_EQ(message_of(grown), "no error");
          if (grown->has_value()) all = std::move(**grown);
        }
        sum_is(all, 10);
        ASSERT_TRUE(all.barrier({}).ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Flight, join__that_nobody_lets_in_ends_with_words) {
  const std::string store = free_address();
  const StoreServer server = std::move(StoreServer::start(store, token_of(store)).value());
  const auto created =
      Communicator::create({.store = store, .group = "club", .join = true, .timeout = 300ms});
  EXPECT_NE(message_of(created).find("nobody has let this newcomer into 'club'"), std::string::npos)
      << message_of(created);
}

}  // namespace
}  // namespace thalweg::net
