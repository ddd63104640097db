// The parameter server over DLCP and over ATP.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <nlohmann/json.hpp>
#include <optional>

#include "net/atp/switch_client.h"
#include "ps/workers.h"
#include "switchd/loopback_job.h"

namespace thalweg::ps {
namespace {

constexpr std::size_t kElements = 30'000;

bool every_tenth(std::uint64_t sequence) { return sequence % 10 == 3; }

TEST(ParameterServer, dlcp__exact_under_loss_with_bound_0) {
  const auto server = start_server(ps_config(3, Transport::kDlcp), every_tenth);
  expect_exact_training(*server, 3, 4, kElements, every_tenth);
  EXPECT_EQ(server->counters().lost_elements, 0U);
}

TEST(ParameterServer, dlcp__the_bounds_of_push_and_pull_are_kept) {
  PsConfig config = ps_config(1, Transport::kDlcp);
  config.push_loss = 0.2;
  config.pull_loss = 0.1;
  const auto server =
      start_server(config, [](std::uint64_t sequence) { return sequence % 20 == 3; });
  ParameterClient client = connect(*server, 0, every_tenth);
  // The bound is a fraction of packets, and the last packet may be shorter.
  const auto most = [](double bound) { return static_cast<std::size_t>(kElements * bound) + 500; };
  Values values(kElements);
  expect_ok(client.init("w", values));
  std::size_t missing = 0;
  for (int step = 1; step <= 5; ++step) {
    expect_ok(client.push("w", Values(kElements, 1)));
    const std::uint64_t lost = server->counters().lost_elements - missing;
    EXPECT_LE(lost, most(config.push_loss));
    missing += lost;
    Values pulled(kElements, 7);
    ASSERT_TRUE(client.pull("w", pulled).ok());
    const auto kept = static_cast<std::size_t>(std::ranges::count(pulled, 7));
    EXPECT_LE(kept, most(config.pull_loss));
    // The value includes every step, except for elements that were lost.
    EXPECT_TRUE(std::ranges::all_of(
        pulled, [&](float v) { return v == 7 || (v <= 0 && v >= static_cast<float>(-step)); }));
  }
  EXPECT_GT(server->counters().lost_elements, 0U);
}

TEST(ParameterServer, dlcp__a_mean_is_of_what_arrived) {
  PsConfig config = ps_config(2, Transport::kDlcp);
  config.push_loss = 0.2;
  const auto server = start_server(config);
  std::vector<Values> results(2, Values(kElements));
  together(2, [&](std::uint32_t w) {
    ParameterClient client = connect(*server, w, w == 0 ? net::LosePacket(every_tenth) : nullptr);
    expect_ok(client.init("w", results[w]));
    expect_ok(client.push("w", Values(kElements, 1)));
    EXPECT_TRUE(client.pull("w", results[w]).ok());
  });
  // If one gradient lacks an element, the mean is the other's; if both lack it, it does not change.
  EXPECT_EQ(results[0], results[1]);
  const auto untouched = static_cast<std::uint64_t>(std::ranges::count(results[0], 0));
  EXPECT_GT(server->counters().lost_elements, 0U);
  EXPECT_LE(2 * untouched, server->counters().lost_elements);
  EXPECT_EQ(std::ranges::count(results[0], -1) + static_cast<std::ptrdiff_t>(untouched),
            static_cast<std::ptrdiff_t>(kElements));
}

TEST(ParameterServer, dlcp__a_worker_dies_and_comes_back) {
  const auto server = start_server(ps_config(2, Transport::kDlcp));
  Values values(kElements);
  ParameterClient one = connect(*server, 0);
  expect_ok(one.init("w", values));
  expect_ok(one.push("w", gradient_of(0, 0, kElements)));
  {
    ParameterClient two = connect(*server, 1);
  }
  EXPECT_FALSE(one.pull("w", values).ok());
  EXPECT_FALSE(one.push("w", Values(3)).ok());
  ParameterClient two = connect(*server, 1);
  expect_ok(two.push("w", gradient_of(1, 0, kElements)));
  EXPECT_TRUE(one.pull("w", values).ok());
  EXPECT_EQ(values, value_after(1, 2, kElements));
}

// The number of completed aggregations at the switch, over all jobs.
std::uint64_t completed_at(switchd::SwitchDaemon& daemon) {
  auto client = net::SwitchClient::connect(daemon.control_address(), {}, switchd::soon());
  EXPECT_TRUE(client.ok());
  const auto answer = client->ask({{"op", "stats"}}, switchd::soon());
  EXPECT_TRUE(answer.ok());
  std::uint64_t sum = 0;
  for (const auto& job : answer->at("jobs")) {
    sum += job.at("counters").at("completed").get<std::uint64_t>();
  }
  return sum;
}

TEST(ParameterServer, atp__exact_and_summed_in_the_switch) {
  const auto daemon = switchd::start_switch(4096, 2);
  PsConfig config = ps_config(3, Transport::kAtp);
  config.switch_address = daemon->control_address();
  const auto server = start_server(config);
  std::vector<ParameterClient> clients;
  std::vector<Values> results(3, Values(kElements));
  for (std::uint32_t w = 0; w < 3; ++w) clients.push_back(connect(*server, w));
  together(3, [&](std::uint32_t w) {
    expect_ok(clients[w].init("w", results[w]));
    train(clients[w], w, 0, 5, results[w]);
  });
  for (const Values& result : results) EXPECT_EQ(result, value_after(5, 3, kElements));
  EXPECT_GT(completed_at(*daemon), 0U);
  EXPECT_EQ(server->counters().pushes, 5U);
}

TEST(ParameterServer, atp__without_a_switch_the_server_adds) {
  const auto server = start_server(ps_config(2, Transport::kAtp));
  expect_exact_training(*server, 2, 3, kElements);
  EXPECT_GE(server->counters().push_bytes, 2U * 3 * kElements * 4);
}

TEST(ParameterServer, atp__the_switch_dies_and_workers_go_on) {
  auto daemon = switchd::start_switch(4096);
  PsConfig config = ps_config(2, Transport::kAtp);
  config.switch_address = daemon->control_address();
  const auto server = start_server(config);
  std::vector<ParameterClient> clients;
  std::vector<Values> results(2, Values(kElements));
  for (std::uint32_t w = 0; w < 2; ++w) {
    clients.push_back(connect(*server, w));
    expect_ok(clients[w].init("w", results[w]));
  }
  together(2, [&](std::uint32_t w) { train(clients[w], w, 0, 2, results[w]); });
  daemon.reset();
  together(2, [&](std::uint32_t w) { train(clients[w], w, 2, 5, results[w]); });
  EXPECT_EQ(results[0], value_after(5, 2, kElements));
  EXPECT_EQ(results[1], results[0]);
}

TEST(ParameterServer, atp__a_worker_dies_and_comes_back) {
  const auto daemon = switchd::start_switch(4096);
  PsConfig config = ps_config(2, Transport::kAtp);
  config.switch_address = daemon->control_address();
  const auto server = start_server(config);
  std::vector<Values> results(2, Values(kElements));
  ParameterClient one = connect(*server, 0);
  std::optional<ParameterClient> two = connect(*server, 1);
  expect_ok(one.init("w", results[0]));
  together(2, [&](std::uint32_t w) { train(w == 0 ? one : *two, w, 0, 2, results[w]); });
  two.reset();
  // The push fails whether the group's end is noticed before the push or while it waits.
  const Status pushed = one.push("w", gradient_of(0, 2, kElements));
  ASSERT_FALSE(pushed.ok());
  EXPECT_NE(pushed.error().message().find("worker 1 has left"), std::string::npos)
      << pushed.error().message();
  two = connect(*server, 1);
  together(2, [&](std::uint32_t w) { train(w == 0 ? one : *two, w, 2, 4, results[w]); });
  EXPECT_EQ(results[0], value_after(4, 2, kElements));
  EXPECT_EQ(results[1], results[0]);
}

TEST(ParameterServer, atp__other_tensors_in_another_order_are_refused) {
  const auto server = start_server(ps_config(2, Transport::kAtp));
  std::atomic<int> refused = 0;
  together(2, [&](std::uint32_t w) {
    ParameterClient client = connect(*server, w);
    Values values(10);
    expect_ok(client.init("a", values));
    expect_ok(client.init("b", values));
    const std::string first = w == 0 ? "a" : "b";
    if (const Status pushed = client.push(first, values); !pushed.ok()) {
      ++refused;
      EXPECT_NE(pushed.error().message().find("same order"), std::string::npos)
          << pushed.error().message();
      expect_ok(client.push(first == "a" ? "b" : "a", values));
    }
  });
  EXPECT_EQ(refused, 1);
}

TEST(PsConfig, validate__what_does_not_go_together) {
  PsConfig config = ps_config(2, Transport::kAtp);
  config.parameters.mode = PsMode::kAsynchronous;
  EXPECT_FALSE(ParameterServer::start(config).ok());
  config = ps_config(33, Transport::kAtp);
  EXPECT_FALSE(config.validate().ok());
  config = ps_config(2, Transport::kDlcp);
  config.pull_loss = 0.1;
  EXPECT_FALSE(config.validate().ok());
  config.push_loss = 0.1;
  EXPECT_TRUE(config.validate().ok());
  config.transport = Transport::kTcp;
  EXPECT_FALSE(config.validate().ok());
}

}  // namespace
}  // namespace thalweg::ps
