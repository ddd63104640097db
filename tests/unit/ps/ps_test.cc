#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <thread>
#include <vector>

#include <thalweg/parameter_client.h>

#include "ps/parameter_table.h"
#include "ps/server.h"
#include "wire/ps_message.h"

namespace thalweg {
namespace {

using Values = std::vector<float>;

Values value_of(ParameterTable& table, std::uint32_t worker) {
  const auto view = table.pull(worker, "w");
  EXPECT_TRUE(view.ok() && view->has_value());
  return {(*view)->values.begin(), (*view)->values.end()};
}

bool waits(ParameterTable& table, std::uint32_t worker) {
  const auto view = table.pull(worker, "w");
  return view.ok() && !view->has_value();
}

TEST(ParameterTable, synchronous__a_step_with_the_mean_when_all_have_pushed) {
  ParameterTable table({.workers = 2, .rate = 0.5F});
  ASSERT_TRUE(table.init("w", Values{1, 2}).ok());
  ASSERT_TRUE(table.push(1, "w", Values{2, 0}).ok());
  EXPECT_TRUE(waits(table, 1));
  EXPECT_EQ(value_of(table, 0), (Values{1, 2}));  // has pushed nothing itself
  EXPECT_FALSE(table.push(1, "w", Values{2, 0}).ok());
  ASSERT_TRUE(table.push(0, "w", Values{4, 4}).ok());
  EXPECT_EQ(value_of(table, 1), (Values{-0.5F, 1}));
}

TEST(ParameterTable, synchronous__waiting_for_one_that_left_is_an_error) {
  ParameterTable table({.workers = 2});
  ASSERT_TRUE(table.init("w", Values{1}).ok());
  ASSERT_TRUE(table.push(0, "w", Values{1}).ok());
  table.leave(1);
  const auto view = table.pull(0, "w");
  ASSERT_FALSE(view.ok());
  EXPECT_NE(view.error().message().find("worker 1"), std::string::npos);
}

TEST(ParameterTable, asynchronous__a_step_with_every_push) {
  ParameterTable table({.workers = 2, .mode = PsMode::kAsynchronous, .rate = 1});
  ASSERT_TRUE(table.init("w", Values{0}).ok());
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(table.push(0, "w", Values{1}).ok());
  EXPECT_EQ(value_of(table, 1), Values{-3});
}

TEST(ParameterTable, stale__a_worker_is_not_further_ahead_than_allowed) {
  ParameterTable table({.workers = 2, .mode = PsMode::kStale, .staleness = 2});
  ASSERT_TRUE(table.init("w", Values{0}).ok());
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(table.push(0, "w", Values{1}).ok());
  EXPECT_FALSE(waits(table, 0));
  ASSERT_TRUE(table.push(0, "w", Values{1}).ok());
  EXPECT_TRUE(waits(table, 0));
  EXPECT_FALSE(waits(table, 1));
  ASSERT_TRUE(table.push(1, "w", Values{1}).ok());
  EXPECT_FALSE(waits(table, 0));
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(table.push(0, "w", Values{1}).ok());
  EXPECT_TRUE(waits(table, 0));
  table.leave(1);
  EXPECT_FALSE(waits(table, 0));
}

TEST(ParameterTable, optimizers__as_in_double_precision) {
  constexpr int kSteps = 50;
  const auto gradient = [](int t) { return std::sin(0.3 * t) + 0.5; };
  for (const PsOptimizer optimizer :
       {PsOptimizer::kSgd, PsOptimizer::kMomentum, PsOptimizer::kAdam}) {
    ParameterTable table({.optimizer = optimizer, .rate = 0.1F});
    ASSERT_TRUE(table.init("w", Values{1}).ok());
    double w = 1;
    double m = 0;
    double v = 0;
    for (int t = 1; t <= kSteps; ++t) {
      const double g = gradient(t);
      ASSERT_TRUE(table.push(0, "w", Values{static_cast<float>(g)}).ok());
      if (optimizer == PsOptimizer::kSgd) w -= 0.1 * g;
      if (optimizer == PsOptimizer::kMomentum) w -= 0.1 * (m = 0.9 * m + g);
      if (optimizer == PsOptimizer::kAdam) {
        m = 0.9 * m + 0.1 * g;
        v = 0.999 * v + 0.001 * g * g;
        w -= 0.1 * (m / (1 - std::pow(0.9, t))) / (std::sqrt(v / (1 - std::pow(0.999, t))) + 1e-8);
      }
    }
    EXPECT_NEAR(double{value_of(table, 0)[0]}, w, 2e-3);
  }
}

TEST(ParameterTable, bad_input) {
  ParameterTable table({.workers = 1, .max_elements = 4});
  EXPECT_FALSE(table.init("empty", Values{}).ok());
  ASSERT_TRUE(table.init("w", Values{1, 2, 3}).ok());
  EXPECT_FALSE(table.init("w", Values{1}).ok());
  EXPECT_FALSE(table.init("more", Values{1, 2}).ok());
  EXPECT_FALSE(table.push(0, "w", Values{1}).ok());
  EXPECT_FALSE(table.push(1, "w", Values{1, 2, 3}).ok());
  EXPECT_FALSE(table.pull(0, "other").ok());
}

TEST(PsMessage, decode__what_was_encoded_and_nothing_else) {
  std::array<std::byte, kPsHeaderSize> bytes;
  const PsHeader header{PsKind::kPush, 3, 5, 77, 0};
  encode_ps_header(header, bytes);
  PsHeader read;
  ASSERT_EQ(decode_ps_header(bytes, read), WireError::kNone);
  EXPECT_EQ(read, header);
  for (const std::size_t wrong : {0U, 1U, 2U, 9U, 12U, 23U}) {
    auto broken = bytes;
    broken[wrong] ^= std::byte{0xf0};
    EXPECT_NE(decode_ps_header(broken, read), WireError::kNone) << wrong;
  }
}

TEST(ParameterServer, workers__train_together_over_tcp) {
  constexpr std::uint32_t kWorkers = 3;
  constexpr int kSteps = 20;
  PsConfig config;
  config.listen = "127.0.0.1:0";
  config.parameters.workers = kWorkers;
  config.parameters.rate = 0.5F;
  const auto server = ParameterServer::start(config);
  ASSERT_TRUE(server.ok());
  std::vector<Values> results(kWorkers, Values(100'000, 8));
  std::vector<std::thread> threads;
  for (std::uint32_t w = 0; w < kWorkers; ++w) {
    threads.emplace_back([&, w] {
      auto client = ParameterClient::connect({.server = (*server)->address(), .worker = w});
      ASSERT_TRUE(client.ok()) << client.error().message();
      Values& values = results[w];
      ASSERT_TRUE(client->init("w", values).ok());
      for (int step = 1; step <= kSteps; ++step) {
        // Towards w, so that the mean goes to 1.
        Values gradient(values.size());
        for (std::size_t i = 0; i < values.size(); ++i) {
          gradient[i] = values[i] - static_cast<float>(w);
        }
        ASSERT_TRUE(client->push("w", gradient).ok());
        const auto steps = client->pull("w", values);
        ASSERT_TRUE(steps.ok()) << steps.error().message();
        EXPECT_EQ(*steps, static_cast<std::uint64_t>(step));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
  EXPECT_NEAR(results[0][0], 1, 1e-4);
}

TEST(ParameterServer, workers__one_leaves_and_the_other_is_told) {
  PsConfig config;
  config.listen = "127.0.0.1:0";
  config.parameters.workers = 2;
  const auto server = ParameterServer::start(config);
  ASSERT_TRUE(server.ok());
  Values values{1};
  auto one = ParameterClient::connect({.server = (*server)->address(), .worker = 0});
  ASSERT_TRUE(one->init("w", values).ok());
  ASSERT_TRUE(one->push("w", values).ok());
  std::thread other([&] {
    auto two = ParameterClient::connect({.server = (*server)->address(), .worker = 1});
    Values mine{2};
    ASSERT_TRUE(two->init("w", mine).ok());
    EXPECT_EQ(mine, Values{1});
  });
  const auto steps = one->pull("w", values);
  other.join();
  ASSERT_FALSE(steps.ok());
  EXPECT_NE(steps.error().message().find("worker 1 has left"), std::string::npos)
      << steps.error().message();
  EXPECT_FALSE(one->pull("other", values).ok());
}

}  // namespace
}  // namespace thalweg
