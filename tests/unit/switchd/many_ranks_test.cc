// Communicators with more ranks than one group of a job holds.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <thread>
#include <utility>

#include "switchd/leaves.h"

namespace thalweg::switchd {
namespace {

constexpr int kManyRanks = 64;
constexpr std::size_t kManyElements = 6000;
constexpr std::size_t kManyPackets = (kManyElements + 63) / 64;

CommunicatorOptions with_many(const std::string& switches, const std::string& topology = "") {
  CommunicatorOptions options = over_leaves(switches, topology);
  options.atp_elements = 64;
  // Two cores run all ranks.
  options.timeout = std::chrono::seconds(120);
  return options;
}

TEST(ManyRanks, allreduce__at_one_switch_exact_under_loss) {
  const Leaves leaves(1);
  const net::ScopedLoss loss(net::lose_one_in(100));
  net::run_ranks(kManyRanks, with_many(leaves.addresses[0]), [&](Communicator& all) {
    for (std::uint64_t seed = 1; seed < 3; ++seed) expect_exact_sum(all, seed, kManyElements);
    ASSERT_TRUE(all.barrier({}).ok());
    if (all.rank() != 0) return;
    // Two groups of 32 at the first level, and their sums at the second.
    EXPECT_GT(counter_of(*leaves.daemons[0], "completed"), kManyPackets);
    EXPECT_EQ(ask_switch(*leaves.daemons[0], "list").at("jobs")[0].at("workers").size(), 64U);
  });
}

TEST(ManyRanks, allreduce__in_two_racks_with_loss_and_a_restarted_switch) {
  Leaves leaves(2);
  const net::ScopedLoss loss(net::lose_one_in(200));
  net::run_ranks(
      kManyRanks,
      with_many(leaves.list(), "leaf-spine:racks=2,hosts=32,spines=1,host=1G,uplink=10G"),
      [&](Communicator& all) {
        expect_exact_sum(all, 3, kManyElements);
        ASSERT_TRUE(all.barrier({}).ok());
        if (all.rank() == 0) {
          for (const auto& daemon : leaves.daemons) {
            EXPECT_GT(counter_of(*daemon, "completed"), kManyPackets / 2);
          }
        }
        std::thread restart;
        if (all.rank() == 0) {
          restart =
              std::thread([&] { leaves.daemons[1] = restarted(std::move(leaves.daemons[1])); });
        }
        expect_exact_sum(all, 4, kManyElements);
        if (restart.joinable()) restart.join();
        ASSERT_TRUE(all.barrier({}).ok());
        expect_exact_sum(all, 5, kManyElements);
      });
}

// Eight hosts with a switch of their own for eight ranks each, around one switch.
TEST(ManyRanks, allreduce__ranks_of_a_host_count_once) {
  const Leaves leaves(9);
  std::string list = "switch0=" + leaves.addresses[8];
  for (std::size_t i = 0; i < 8; ++i) list += fmt::format(",host{}={}", i, leaves.addresses[i]);
  setenv("THALWEG_TOPOLOGY", "single-switch:hosts=8,host=10G", 1);
  const net::ScopedLoss loss(net::lose_one_in(200));
  net::run_ranks(kManyRanks, with_many(list), [&](Communicator& all) {
    expect_exact_sum(all, 7, kManyElements);
    ASSERT_TRUE(all.barrier({}).ok());
    if (all.rank() != 0) return;
    for (const auto& daemon : leaves.daemons) {
      EXPECT_GT(counter_of(*daemon, "completed"), kManyPackets / 2);
    }
    EXPECT_EQ(ask_switch(*leaves.daemons[8], "list").at("jobs")[0].at("workers").size(), 8U);
  });
  unsetenv("THALWEG_TOPOLOGY");
}

TEST(ManyRanks, allreduce__without_a_switch) {
  net::run_ranks(40, with_many(net::free_address()), [&](Communicator& all) {
    EXPECT_FALSE(all.has_switch());
    expect_exact_sum(all, 6, kManyElements);
  });
}

}  // namespace
}  // namespace thalweg::switchd
