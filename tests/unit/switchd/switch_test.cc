#include <fmt/core.h>
#include <gtest/gtest.h>

#include <thread>
#include <utility>

#include "net/ranks.h"
#include "sanitized.h"
#include "switchd/loopback_job.h"

namespace thalweg::switchd {
namespace {

constexpr std::size_t kElements = 20'000;

TEST(Switch, reduce__sums_are_made_in_the_switch) {
  const auto daemon = start_switch(4096);
  LoopbackJob job(daemon.get(), {.workers = 3});
  job.expect_exact(kElements, 1);
  const std::uint64_t blocks = (kElements + 63) / 64;
  EXPECT_GE(job.counter("completed"), blocks * 9 / 10);
  // The server gets one sum per block, although three contributions were sent.
  EXPECT_LE(job.node(0).counters().server_packets, blocks * 12 / 10);
}

TEST(Switch, reduce__without_a_switch_servers_add_all) {
  LoopbackJob job(nullptr, {.workers = 3, .servers = 2});
  job.expect_exact(kElements, 2);
  EXPECT_TRUE(job.node(0).counters().switch_gone);
  EXPECT_GE(job.node(0).counters().server_packets, (kElements / 64) * 3 / 2);
}

TEST(Switch, reduce__two_jobs_share_few_aggregators) {
  const auto daemon = start_switch(16);
  LoopbackJob one(daemon.get(), {.workers = 3});
  LoopbackJob two(daemon.get(), {.workers = 2, .servers = 2, .keyed = true});
  std::thread other([&] { two.expect_exact(kElements, 3); });
  one.expect_exact(kElements, 4);
  other.join();
  EXPECT_GT(one.counter("completed") + two.counter("completed"), 0U);
  EXPECT_GT(one.counter("collision") + two.counter("collision"), 0U);
}

TEST(Switch, reduce__several_shards) {
  const auto daemon = start_switch(4096, 2);
  LoopbackJob job(daemon.get(), {.workers = 4, .servers = 3, .keyed = true});
  job.expect_exact(kElements, 5);
  EXPECT_GT(job.counter("completed"), 0U);
}

TEST(Switch, reduce__goes_on_when_the_switch_dies) {
  auto daemon = start_switch(4096);
  LoopbackJob job(daemon.get(), {.workers = 3});
  job.expect_exact(kElements, 6);
  // Under sanitizers with other tests beside it, the longer tensor came close to the deadline.
  job.expect_exact(kElements * (kUnderSanitizer ? 8 : 20), 7, [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    daemon.reset();
  });
  job.expect_exact(kElements, 8);
  for (std::size_t w = 0; w < 3; ++w) EXPECT_TRUE(job.node(w).counters().switch_gone);
}

// Servers add their own gradients themselves, and keep their own sums.
TEST(Switch, reduce__own_sums_are_exact_whoever_the_servers_are) {
  const auto daemon = start_switch(4096, 2);
  for (const auto& [workers, servers] : {std::pair{2, 1}, {2, 2}, {3, 1}, {4, 4}, {5, 3}}) {
    SCOPED_TRACE(fmt::format("{} workers, {} servers", workers, servers));
    LoopbackJob job(
        daemon.get(),
        {.workers = workers, .servers = servers, .keyed = workers == 4, .own_sums = true});
    job.expect_exact(kElements, 21);
    // With two workers each gradient passes alone.
    EXPECT_EQ(job.counter("completed") > 0, workers > 2);
    EXPECT_GT(job.counter("freed") + job.counter("unneeded"), 0U);
    for (int w = 0; w < workers; ++w) {
      EXPECT_EQ(job.node(static_cast<std::size_t>(w)).counters().refused, 0U);
    }
  }
  LoopbackJob without(nullptr, {.workers = 3, .servers = 2, .own_sums = true});
  without.expect_exact(kElements, 22);
}

TEST(Switch, reduce__own_sums_under_loss_and_with_few_aggregators) {
  const auto daemon = start_switch(16);
  const net::ScopedLoss loss(net::lose_one_in(30));
  LoopbackJob job(daemon.get(), {.workers = 4, .servers = 4, .own_sums = true});
  job.expect_exact(kElements, 23);
  EXPECT_GT(job.counter("collision"), 0U);
}

TEST(Switch, reduce__own_sums_when_the_switch_dies) {
  auto daemon = start_switch(4096);
  LoopbackJob job(daemon.get(), {.workers = 3, .servers = 3, .own_sums = true});
  job.expect_exact(kElements * (kUnderSanitizer ? 8 : 20), 24, [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    daemon.reset();
  });
  job.expect_exact(kElements, 25);
}

// A rank whose group is alone cannot be such a server.
TEST(Switch, join__own_sums_of_a_server_that_is_a_group_of_its_own_are_refused) {
  auto node = net::AtpNode::bind(net::SocketAddress::resolve("127.0.0.1:0").value());
  ASSERT_TRUE(node.ok());
  net::AtpNodeOptions options;
  options.members.assign(3, (*node)->address());
  options.groups = {1, 2};
  options.own_sums = true;
  EXPECT_EQ((*node)->join(options).error().message(),
            "own_sums: a server is no rank, or a group of its own");
}

// A counter of the only job of a switch.
std::uint64_t counter_at(const SwitchDaemon& daemon, const char* name) {
  net::SwitchClient client =
      std::move(*net::SwitchClient::connect(daemon.control_address(), switch_secrets(), soon()));
  const auto answer = client.ask({{"op", "stats"}}, soon());
  EXPECT_TRUE(answer.ok());
  return answer->at("jobs").at(0).at("counters").at(name).get<std::uint64_t>();
}

TEST(Switch, two_levels__sums_of_racks_meet_at_the_servers_switch) {
  const auto top = start_switch(4096);
  auto left = start_switch(4096);
  const auto right = start_switch(4096);
  // This job makes the next numbers of the switches differ.
  LoopbackJob other(top.get(), {.workers = 2});
  LoopbackJob job(
      top.get(),
      {.workers = 5, .servers = 2, .groups = {3, 2}, .edges = {left.get(), right.get()}});
  job.expect_exact(kElements, 10);
  EXPECT_GT(counter_at(*left, "completed"), 0U);
  EXPECT_GT(counter_at(*right, "completed"), 0U);
  EXPECT_GT(job.counter("completed"), 0U);
  job.expect_exact(kElements, 11, [&] { left.reset(); });
}

// The servers' switch does not know which ranks the servers are, so results come back to them.
TEST(Switch, two_levels__own_sums) {
  const auto top = start_switch(4096);
  const auto left = start_switch(4096);
  const auto right = start_switch(4096);
  LoopbackJob job(top.get(), {.workers = 5,
                              .servers = 3,
                              .own_sums = true,
                              .groups = {3, 2},
                              .edges = {left.get(), right.get()}});
  job.expect_exact(kElements, 12);
  EXPECT_GT(counter_at(*left, "completed"), 0U);
  EXPECT_GT(job.counter("completed"), 0U);
}

TEST(Switch, two_levels__few_aggregators) {
  const auto top = start_switch(8);
  const auto left = start_switch(8);
  const auto right = start_switch(16);
  LoopbackJob job(top.get(), {.workers = 4, .groups = {2, 2}, .edges = {left.get(), right.get()}});
  job.expect_exact(kElements, 13);
  EXPECT_GT(counter_at(*left, "collision"), 0U);
  EXPECT_GT(job.counter("flagged"), 0U);
}

TEST(Switch, job__removed_under_way_is_exact_by_the_servers) {
  const auto daemon = start_switch(4096);
  LoopbackJob job(daemon.get(), {.workers = 2});
  job.expect_exact(kElements * 10, 9, [&] {
    EXPECT_TRUE(job.client().ask({{"op", "remove"}, {"job", job.id()}}, soon()).ok());
  });
}

}  // namespace
}  // namespace thalweg::switchd
