#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "base/messages.h"
#include "net/io/system.h"
#include "net/ps/stream.h"
#include "net/ps/words.h"
#include "ps/parameter_table.h"
#include "ps/server.h"
#include "ps/workers.h"
#include "wire/ps_message.h"

namespace thalweg::ps {
namespace {

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
  EXPECT_EQ(value_of(table, 0), (Values{1, 2}));  // worker 0 has pushed nothing yet
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

TEST(ParameterTable, synchronous__one_that_comes_back_is_waited_for) {
  ParameterTable table({.workers = 2, .rate = 1});
  ASSERT_TRUE(table.init("w", Values{0}).ok());
  ASSERT_TRUE(table.push(0, "w", Values{2}).ok());
  table.leave(1);
  EXPECT_FALSE(table.pull(0, "w").ok());
  table.come(1);
  EXPECT_TRUE(waits(table, 0));
  ASSERT_TRUE(table.push(1, "w", Values{4}).ok());
  EXPECT_EQ(value_of(table, 0), Values{-3});
}

TEST(ParameterTable, synchronous__a_mean_is_of_what_arrived) {
  ParameterTable table({.workers = 2, .rate = 1});
  ASSERT_TRUE(table.init("w", Values{0, 0, 0, 0}).ok());
  ASSERT_TRUE(
      table.push(0, "w", Values{2, 0, 2, 0}, std::array{ElementRange{1, 2}, ElementRange{3, 4}})
          .ok());
  ASSERT_TRUE(table.push(1, "w", Values{4, 4, 0, 0}, std::array{ElementRange{2, 4}}).ok());
  EXPECT_EQ(value_of(table, 0), (Values{-3, -4, -2, 0}));
}

TEST(ParameterTable, push_of_all__counts_from_its_beginning_or_not_at_all) {
  ParameterTable table({.workers = 2, .rate = 1});
  ASSERT_TRUE(table.init("w", Values{0}).ok());
  table.begin_push("w");
  EXPECT_TRUE(waits(table, 0));
  EXPECT_FALSE(table.may_push(1, "w", 1).ok());
  table.cancel_push("w");
  EXPECT_EQ(value_of(table, 0), Values{0});
  table.begin_push("w");
  Values sum{6};
  table.end_push("w", sum);
  EXPECT_EQ(value_of(table, 1), Values{-3});
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

TEST(ParameterTable, stale__one_that_comes_back_begins_with_the_slowest) {
  ParameterTable table({.workers = 3, .mode = PsMode::kStale, .staleness = 1});
  ASSERT_TRUE(table.init("w", Values{0}).ok());
  table.leave(1);
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(table.push(0, "w", Values{1}).ok());
    ASSERT_TRUE(table.push(2, "w", Values{1}).ok());
  }
  table.come(1);
  EXPECT_FALSE(waits(table, 0));
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(table.push(0, "w", Values{1}).ok());
    ASSERT_TRUE(table.push(2, "w", Values{1}).ok());
  }
  EXPECT_TRUE(waits(table, 0));  // now worker 1 is too far behind
  ASSERT_TRUE(table.push(1, "w", Values{1}).ok());
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

TEST(PsWords, welcome__what_was_said_and_nothing_else) {
  const net::PsWelcome said{.transport = Transport::kDlcp,
                            .port = 77,
                            .token = ~std::uint64_t{0},
                            .name = "worker 1",
                            .push_loss = 0.25,
                            .pull_loss = 0.125};
  const auto heard = net::ps_welcome_from(net::to_text(said));
  ASSERT_TRUE(heard.ok());
  EXPECT_EQ(net::to_text(*heard), net::to_text(said));
  for (const char* wrong : {"", "[]", "{}", R"({"transport":"dlcp","port":70000})"}) {
    EXPECT_FALSE(net::ps_welcome_from(wrong).ok()) << wrong;
    EXPECT_FALSE(net::atp_group_from(wrong).ok()) << wrong;
  }
}

TEST(ParameterServer, workers__train_together_over_tcp) {
  const auto server = start_server(ps_config(3));
  expect_exact_training(*server, 3, 20, 100'000);
  EXPECT_EQ(server->counters().push_bytes, 3U * 20 * 400'000);
}

TEST(ParameterServer, workers__one_leaves_and_the_other_is_told) {
  const auto server = start_server(ps_config(2));
  Values values{1};
  ParameterClient one = connect(*server, 0);
  expect_ok(one.init("w", values));
  expect_ok(one.push("w", values));
  std::thread other([&] {
    ParameterClient two = connect(*server, 1);
    Values mine{2};
    expect_ok(two.init("w", mine));
    EXPECT_EQ(mine, Values{1});
  });
  const auto steps = one.pull("w", values);
  other.join();
  ASSERT_FALSE(steps.ok());
  EXPECT_NE(steps.error().message().find("worker 1 has left"), std::string::npos)
      << steps.error().message();
  EXPECT_EQ(kind_of(steps), "peer lost, rank 1");
  EXPECT_FALSE(one.pull("other", values).ok());
  // Worker 1 comes back, and the pull that failed before succeeds.
  ParameterClient two = connect(*server, 1);
  expect_ok(two.push("w", Values{3}));
  EXPECT_TRUE(one.pull("w", values).ok());
  EXPECT_EQ(values, Values{-1});
}

TEST(ParameterServer, asynchronous_and_stale__a_worker_dies_and_comes_back) {
  for (const PsMode mode : {PsMode::kAsynchronous, PsMode::kStale}) {
    PsConfig config = ps_config(2);
    config.parameters.mode = mode;
    const auto server = start_server(config);
    Values values{0};
    ParameterClient one = connect(*server, 0);
    expect_ok(one.init("w", values));
    {
      ParameterClient two = connect(*server, 1);
      expect_ok(two.push("w", Values{1}));
    }
    // Worker 0 alone waits for no other, at most until the server notices that worker 1 has left.
    for (int i = 0; i < 5; ++i) {
      expect_ok(one.push("w", Values{1}));
      EXPECT_TRUE(one.pull("w", values).ok());
    }
    ParameterClient two = connect(*server, 1);
    expect_ok(two.push("w", Values{1}));
    EXPECT_TRUE(two.pull("w", values).ok());
    EXPECT_TRUE(one.pull("w", values).ok());
    EXPECT_EQ(values, Values{-7});
  }
}

TEST(ParameterServer, hello__the_newer_connection_is_the_worker) {
  const auto server = start_server(ps_config(2));
  Values values{0};
  ParameterClient old = connect(*server, 0);
  expect_ok(old.init("w", values));
  ParameterClient one = connect(*server, 0);
  ParameterClient two = connect(*server, 1);
  // The end of the old connection does not mean that the worker has left.
  EXPECT_FALSE(old.pull("w", values).ok());
  expect_ok(one.push("w", Values{2}));
  expect_ok(two.push("w", Values{4}));
  EXPECT_TRUE(one.pull("w", values).ok());
  EXPECT_EQ(values, Values{-3});
  EXPECT_FALSE(ParameterClient::connect({.server = server->address(), .worker = 2}).ok());
}

TEST(ParameterServer, bad_input__is_refused_and_the_connection_stays) {
  PsConfig config = ps_config(1);
  config.parameters.max_elements = 10;
  const auto server = start_server(config);
  ParameterClient client = connect(*server, 0);
  Values values(10);
  expect_ok(client.init("w", values));
  Values much(3'000'000);
  EXPECT_FALSE(client.init("much", much).ok());
  EXPECT_FALSE(client.push("w", much).ok());
  EXPECT_FALSE(client.push("", values).ok());
  // More elements than a message may have: the client refuses it without reading the memory.
  const Status larger =
      client.push("w", std::span<const float>(much.data(), std::size_t{wire::kMaxPsElements} + 1));
  ASSERT_FALSE(larger.ok());
  EXPECT_NE(larger.error().message().find("2147483649 elements"), std::string::npos);
  expect_ok(client.push("w", Values(10, 1)));
  EXPECT_TRUE(client.pull("w", values).ok());
  EXPECT_EQ(values, Values(10, -1));
  EXPECT_EQ(server->counters().refused, 2U);
}

TEST(ParameterServer, bad_input__a_second_request_before_the_answer_ends_the_connection) {
  const auto server = start_server(ps_config(2));
  ParameterClient other = connect(*server, 1);
  Values values{1};
  expect_ok(other.init("w", values));
  const Time until = net::monotonic_now() + Duration::milliseconds(30'000);
  auto stream = net::PsStream::connect(server->address(), until, net::StreamChecks::kBetweenHosts);
  ASSERT_TRUE(stream.ok());
  expect_ok(stream->send({.kind = wire::PsKind::kHello}));
  EXPECT_TRUE(stream->bytes(wire::PsKind::kWelcome, net::kMaxPsWords).ok());
  expect_ok(stream->send({.kind = wire::PsKind::kPush, .elements = 1}, "w",
                         std::as_bytes(std::span(values))));
  EXPECT_TRUE(stream->value({}).ok());
  // This pull waits for the other worker.
  expect_ok(stream->send({.kind = wire::PsKind::kPull}, "w"));
  // The server may close the connection while this is being sent.
  const Status second = stream->send({.kind = wire::PsKind::kPull}, "a name that is longer");
  EXPECT_FALSE(second.ok() && stream->value(values).ok());
  // A client that sends no hello.
  auto stranger =
      net::PsStream::connect(server->address(), until, net::StreamChecks::kBetweenHosts);
  ASSERT_TRUE(stranger.ok());
  expect_ok(stranger->send({.kind = wire::PsKind::kPull}, "w"));
  EXPECT_FALSE(stranger->value(values).ok());
  EXPECT_TRUE(other.pull("w", values).ok());
}

}  // namespace
}  // namespace thalweg::ps
