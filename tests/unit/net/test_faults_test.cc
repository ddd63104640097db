// Loss that tests inject: whom a scope reaches.
#include <gtest/gtest.h>

#include <cstdint>
#include <thread>

#include "net/dlcp/test_faults.h"

namespace thalweg::net {
namespace {

bool all(std::uint64_t /*sequence*/) { return true; }
bool first(std::uint64_t sequence) { return sequence == 0; }

TEST(TestFaults, installed_loss__is_the_innermost_scope) {
  EXPECT_FALSE(installed_loss());
  {
    const ScopedLoss outer(first);
    EXPECT_FALSE(installed_loss()(1));
    {
      const ScopedLoss inner(all);
      EXPECT_TRUE(installed_loss()(1));
      const ScopedLoss none(nullptr);
      EXPECT_FALSE(installed_loss());
    }
    EXPECT_TRUE(installed_loss()(0));
    EXPECT_FALSE(installed_loss()(1));
  }
  EXPECT_FALSE(installed_loss());
}

TEST(TestFaults, installed_loss__does_not_reach_other_threads) {
  const ScopedLoss here(all);
  std::thread([] {
    EXPECT_FALSE(installed_loss());
    const ScopedLoss there(first);
    EXPECT_FALSE(installed_loss()(1));
  }).join();
  EXPECT_TRUE(installed_loss()(1));
}

}  // namespace
}  // namespace thalweg::net
