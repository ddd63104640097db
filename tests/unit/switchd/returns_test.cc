// Switches that were not there, or had no room, when a communicator began, and can take part later.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "net/ranks.h"
#include "switchd/control_relay.h"
#include "switchd/leaves.h"

namespace thalweg::switchd {
namespace {

constexpr const char* kTwoByTwo = "leaf-spine:racks=2,hosts=2,spines=1";
// A switch is to be used within about a second; this is for machines that are busy.
constexpr std::chrono::seconds kSoonUsed{20};
using Clock = std::chrono::steady_clock;

SwitchConfig config_at(const std::string& control, std::uint32_t max_jobs = 64) {
  SwitchConfig config;
  config.key = switch_secrets().key;
  config.control = control;
  config.max_jobs = max_jobs;
  return config;
}

std::unique_ptr<SwitchDaemon> start_at(const SwitchConfig& config) {
  auto daemon = SwitchDaemon::start(config);
  EXPECT_TRUE(daemon.ok()) << daemon.error().message();
  return daemon.ok() ? std::move(*daemon) : nullptr;
}

// Calls `begin` on rank 0, and then sums until `used`, asked there, says that it has what it waits
// for. Every sum is exact.
template <class Begin, class Used>
void expect_soon_used(const Communicator& all, Begin begin, Used used) {
  if (all.rank() == 0) begin();
  const auto began = Clock::now();
  std::vector<std::int32_t> over{0};
  for (std::uint64_t seed = 100; over[0] == 0; ++seed) {
    expect_exact_sum(all, seed);
    over[0] = all.rank() == 0 && (used() || Clock::now() - began > kSoonUsed) ? 1 : 0;
    ASSERT_TRUE(all.allreduce(TensorSpan::of(over), {}).ok());
  }
  if (all.rank() != 0) return;
  EXPECT_TRUE(used());
  const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - began);
  fmt::print("used after {} ms\n", took.count());
  testing::Test::RecordProperty("used_after_ms", static_cast<int>(took.count()));
}

TEST(Returns, allreduce__a_switch_that_starts_after_the_job_is_used) {
  for (const bool keyed : {false, true}) {
    SCOPED_TRACE(keyed);
    const std::optional<ScopedJobKey> key =
        keyed ? std::optional<ScopedJobKey>(std::in_place) : std::nullopt;
    const std::string control = net::free_address();
    std::unique_ptr<SwitchDaemon> daemon;
    net::run_ranks(3, over_leaves(control, ""), [&](Communicator& all) {
      EXPECT_FALSE(all.has_switch());
      expect_exact_sum(all, 1);
      expect_soon_used(
          all, [&] { daemon = start_at(config_at(control)); },
          [&] { return completed_at(*daemon) > 0; });
      EXPECT_TRUE(all.has_switch());
      for (std::uint64_t seed = 2; seed < 6; ++seed) expect_exact_sum(all, seed);
    });
  }
}

TEST(Returns, allreduce__a_full_switch_is_used_when_a_job_leaves_it) {
  const auto daemon = start_at(config_at("127.0.0.1:0", 1));
  auto other = std::make_unique<LoopbackJob>(daemon.get(), LoopbackJob::Options{.workers = 2});
  net::run_ranks(3, over_leaves(daemon->control_address(), ""), [&](Communicator& all) {
    EXPECT_FALSE(all.has_switch());
    expect_exact_sum(all, 1);
    std::uint32_t id = 0;
    expect_soon_used(
        all,
        [&] {
          id = other->id();
          ASSERT_TRUE(other->client().ask({{"op", "remove"}, {"job", id}}, soon()).ok());
        },
        [&] { return completed_at(*daemon) > 0; });
  });
}

TEST(Returns, allreduce__a_second_rack_makes_two_levels) {
  for (const std::size_t late : {std::size_t{0}, std::size_t{1}}) {
    SCOPED_TRACE(late);
    const net::ScopedLoss loss(net::lose_one_in(200));
    Leaves leaves(2);
    leaves.daemons[late].reset();
    net::run_ranks(4, over_leaves(leaves.list(), kTwoByTwo), [&](Communicator& all) {
      expect_exact_sum(all, 1);
      expect_soon_used(
          all, [&] { leaves.daemons[late] = start_at(config_at(leaves.addresses[late])); },
          [&] {
            return completed_at(*leaves.daemons[0]) > 0 && completed_at(*leaves.daemons[1]) > 0 &&
                   ask_switch(*leaves.daemons[0], "list").at("jobs").size() == 1 &&
                   ask_switch(*leaves.daemons[1], "list").at("jobs").size() == 1;
          });
      ASSERT_TRUE(all.barrier({}).ok());
      if (all.rank() == 0) {
        // The leaf with the servers is the second level, whichever was there first.
        for (const std::size_t leaf : {std::size_t{0}, std::size_t{1}}) {
          const nlohmann::json jobs = ask_switch(*leaves.daemons[leaf], "list").at("jobs");
          EXPECT_TRUE(jobs.size() == 1 && jobs[0].at("second_level") == (leaf == 0)) << jobs;
        }
      }
      ASSERT_TRUE(all.barrier({}).ok());
    });
  }
}

TEST(Returns, allreduce__many_in_flight_while_the_ranks_go_over) {
  const std::string control = net::free_address();
  std::unique_ptr<SwitchDaemon> daemon;
  net::run_ranks(3, over_leaves(control, ""), [&](Communicator& all) {
    if (all.rank() == 0) daemon = start_at(config_at(control));
    const auto began = Clock::now();
    std::vector<std::int32_t> over{0};
    for (std::int32_t turn = 0; over[0] == 0; ++turn) {
      // Tensors of all sizes, and more operations than one waits for.
      std::vector<std::vector<std::int32_t>> tensors;
      std::vector<Operation> operations;
      for (std::int32_t i = 0; i < 100; ++i) {
        tensors.emplace_back(i % 10 == 0 ? 60'000 : 100 + i, turn + i + all.rank());
        operations.push_back(all.allreduce_async(TensorSpan::of(tensors.back()), {}).value());
      }
      for (std::int32_t i = 0; i < 100; ++i) {
        const auto at = static_cast<std::size_t>(i);
        ASSERT_TRUE(operations[at].wait().ok());
        ASSERT_EQ(tensors[at], std::vector<std::int32_t>(tensors[at].size(), 3 * (turn + i) + 3));
      }
      const bool used = all.rank() == 0 && completed_at(*daemon) > 0;
      over[0] = used || Clock::now() - began > kSoonUsed ? 1 : 0;
      ASSERT_TRUE(all.allreduce(TensorSpan::of(over), {.op = ReduceOp::kMax}).ok());
    }
    if (all.rank() == 0) {
      EXPECT_GT(completed_at(*daemon), 0U);
    }
  });
}

TEST(Returns, allreduce__a_switch_that_restarts_at_another_data_address_is_used) {
  auto daemon = start_switch(4096);
  const std::string control = daemon->control_address();
  net::run_ranks(3, over_leaves(control, ""), [&](Communicator& all) {
    expect_exact_sum(all, 1);
    ASSERT_TRUE(all.barrier({}).ok());
    std::string data;
    expect_soon_used(
        all,
        [&] {
          data = daemon->data_addresses().front();
          SwitchConfig config = config_at(control);
          do {
            daemon.reset();
            daemon = start_at(config);
          } while (daemon->data_addresses().front() == data);
        },
        [&] { return completed_at(*daemon) > 0; });
  });
}

// The switch has given the job's number, so the job cannot have it back after the restart.
TEST(Returns, allreduce__a_switch_that_has_given_the_number_is_used_under_another) {
  auto daemon = start_switch(4096);
  ControlRelay* relay = nullptr;
  bool spent = false;
  const auto answer = [&](const nlohmann::json& request,
                          const ControlRelay::Ask& ask) -> std::optional<std::string> {
    // The first renewal is heard by nobody.
    const bool renews = request.at("op") == "create" && request.at("job") != 0;
    if (renews && !std::exchange(spent, true)) {
      ask(request);
      return std::nullopt;
    }
    return ControlRelay::line_of(ask(request));
  };
  ControlRelay between(daemon->control_address(), answer);
  relay = &between;
  net::run_ranks(3, over_leaves(relay->address(), ""), [&](Communicator& all) {
    expect_exact_sum(all, 1);
    ASSERT_TRUE(all.barrier({}).ok());
    expect_soon_used(
        all, [&] { daemon = restarted(std::move(daemon)); },
        [&] { return completed_at(*daemon) > 0; });
  });
  EXPECT_TRUE(spent);
}

TEST(Returns, allreduce__exact_while_a_switch_comes_and_goes) {
  Leaves leaves(2);
  leaves.daemons[1].reset();
  net::run_ranks(4, over_leaves(leaves.list(), kTwoByTwo), [&](Communicator& all) {
    for (int times = 0; times < 3; ++times) {
      expect_soon_used(
          all, [&] { leaves.daemons[1] = start_at(config_at(leaves.addresses[1])); },
          [&] { return completed_at(*leaves.daemons[1]) > 0; });
      ASSERT_TRUE(all.barrier({}).ok());
      if (all.rank() == 0) leaves.daemons[1].reset();
      expect_exact_sum(all, 3);
      ASSERT_TRUE(all.barrier({}).ok());
    }
  });
}

}  // namespace
}  // namespace thalweg::switchd
