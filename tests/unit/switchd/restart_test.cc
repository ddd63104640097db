// Switches that are started again while a communicator uses them.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <thread>
#include <utility>

#include "switchd/leaves.h"

namespace thalweg::switchd {
namespace {

// Sums until the switch, which has its job again, completes packets.
void expect_used_again(const Communicator& all, const SwitchDaemon& daemon) {
  std::vector<std::int32_t> used{0};
  for (std::uint64_t seed = 20; used[0] == 0; ++seed) {
    expect_exact_sum(all, seed);
    ASSERT_LT(seed, 2000U) << "the switch is not used again";
    if (all.rank() == 0) {
      const nlohmann::json stats = ask_switch(daemon, "stats");
      const bool there = !stats.at("jobs").empty();
      used[0] = there && stats.at("jobs").at(0).at("counters").at("completed") > 0 ? 1 : 0;
    }
    ASSERT_TRUE(all.allreduce(TensorSpan::of(used), {}).ok());
  }
}

TEST(Restart, allreduce__goes_on_without_the_switch_and_uses_it_again) {
  for (const std::size_t leaf : {std::size_t{0}, std::size_t{1}}) {
    Leaves leaves(2);
    net::run_ranks(4, over_leaves(leaves.list(), "leaf-spine:racks=2,hosts=2,spines=1"),
                   [&](Communicator& all) {
                     expect_exact_sum(all, 8);
                     ASSERT_TRUE(all.barrier({}).ok());
                     // The other ranks are in the midst of the next sum.
                     std::thread restart;
                     if (all.rank() == 0) {
                       restart = std::thread([&] {
                         std::this_thread::sleep_for(std::chrono::milliseconds(2));
                         leaves.daemons[leaf] = restarted(std::move(leaves.daemons[leaf]));
                       });
                     }
                     expect_exact_sum(all, 9);
                     if (restart.joinable()) restart.join();
                     ASSERT_TRUE(all.barrier({}).ok());
                     expect_exact_sum(all, 10);
                     expect_used_again(all, *leaves.daemons[leaf]);
                   });
  }
}

}  // namespace
}  // namespace thalweg::switchd
