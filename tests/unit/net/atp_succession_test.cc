// At which operation ranks go over to the next job (net/group/atp/atp_succession.h).
#include "net/group/atp/atp_succession.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/prng.h"
#include "net/ranks.h"

namespace thalweg::net {
namespace {

TEST(AtpSuccession, next__large_operations_wait_for_the_one_before_the_last) {
  AtpSuccession succession(100);
  EXPECT_EQ(succession.next(), std::nullopt);
  for (std::uint64_t i = 0; i < 4; ++i) EXPECT_EQ(succession.call(100), i);
  EXPECT_EQ(succession.next(), 0U);
  EXPECT_EQ(succession.next(), 0U);
  EXPECT_EQ(succession.next(), std::nullopt);
  succession.over(1, 1, true);
  EXPECT_EQ(succession.next(), std::nullopt);
  succession.over(0, 0, true);
  EXPECT_EQ(succession.next(), 0U);
  EXPECT_TRUE(succession.settled());
  EXPECT_EQ(succession.next(), 1U);
  EXPECT_FALSE(succession.settled());
  succession.over(2, 1, true);
  succession.over(3, 1, true);
  EXPECT_FALSE(succession.settled());
  EXPECT_EQ(succession.call(1), 4U);
  EXPECT_EQ(succession.next(), 1U);
  succession.over(4, 1, true);
  EXPECT_TRUE(succession.settled());
}

TEST(AtpSuccession, next__small_operations_wait_for_the_64th_before_them) {
  AtpSuccession succession(1'000'000);
  for (std::uint64_t i = 0; i <= AtpSuccession::kMostUnseen; ++i) succession.call(1);
  for (std::uint64_t i = 0; i < AtpSuccession::kMostUnseen; ++i) EXPECT_EQ(succession.next(), 0U);
  EXPECT_EQ(succession.next(), std::nullopt);
  succession.over(0, 3, true);
  EXPECT_EQ(succession.next(), 3U);
}

TEST(AtpSuccession, over__failed_operations_tell_nothing_and_settle_nothing) {
  AtpSuccession succession(10);
  for (int i = 0; i < 8; ++i) succession.call(10);
  EXPECT_EQ(succession.next(), 0U);
  EXPECT_EQ(succession.next(), 0U);
  succession.over(0, 1, true);
  EXPECT_EQ(succession.next(), 1U);
  succession.over(1, std::nullopt, false);
  EXPECT_EQ(succession.next(), 1U);
  for (std::uint64_t i = 2; i < 4; ++i) succession.over(i, 1, false);
  EXPECT_FALSE(succession.settled());
  EXPECT_EQ(succession.next(), 1U);
  succession.over(4, 1, true);
  EXPECT_TRUE(succession.settled());
}

// Ranks that call and end operations as their machines and the network please.
class Ranks {
 public:
  Ranks(std::uint64_t seed, int ranks) : prng_(seed), ranks_(static_cast<std::size_t>(ranks)) {
    for (int i = 0; i < kOperations; ++i) {
      sizes_.push_back(static_cast<std::int64_t>(1 + prng_.next() % (i % 50 < 25 ? 300 : 20)));
    }
    told_.resize(kOperations);
    jobs_.resize(kOperations);
  }
  void run() {
    while (std::ranges::any_of(ranks_, [](const One& one) { return one.ended < kOperations; })) {
      step(prng_.next() % ranks_.size());
      if (testing::Test::HasFatalFailure()) return;
    }
  }
  [[nodiscard]] std::uint32_t last_job() const { return jobs_.back().value_or(0); }

 private:
  static constexpr int kOperations = 300;
  struct One {
    AtpSuccession succession{1000};
    std::size_t called = 0;
    std::size_t given = 0;
    std::size_t ended = 0;
    std::size_t first_open = 0;  // all before it are over
    std::vector<bool> over = std::vector<bool>(kOperations);
  };

  void step(std::size_t rank) {
    One& one = ranks_[rank];
    if (one.called < kOperations && prng_.next() % 2 == 0) {
      if (rank == 0) {
        if (prng_.next() % 20 == 0 && one.succession.settled() && offered_ == reached_) ++offered_;
        told_[one.called] = offered_;
      }
      one.succession.call(sizes_[one.called++]);
    }
    while (const std::optional<std::uint32_t> job = one.succession.next()) {
      std::optional<std::uint32_t>& agreed = jobs_[one.given];
      ASSERT_EQ(agreed.value_or(*job), *job) << "rank " << rank << ", operation " << one.given;
      agreed = job;
      if (rank == 0) reached_ = *job;
      ++one.given;
    }
    // Ends one of the operations that all ranks have begun.
    const std::size_t begun = std::ranges::min(ranks_, {}, &One::given).given;
    while (one.first_open < begun && one.over[one.first_open]) ++one.first_open;
    if (one.first_open == begun) return;
    const std::size_t at = one.first_open + prng_.next() % (begun - one.first_open);
    if (one.over[at]) return;
    one.over[at] = true;
    ++one.ended;
    const bool settled = one.succession.settled();
    one.succession.over(at, told_[at], true);
    if (!settled && one.succession.settled()) expect_all_ended(*jobs_[one.given - 1]);
  }
  // No rank is in an operation of an earlier job.
  void expect_all_ended(std::uint32_t job) {
    for (const One& one : ranks_) {
      for (std::size_t i = 0; i < jobs_.size() && jobs_[i]; ++i) {
        if (*jobs_[i] < job) {
          ASSERT_TRUE(one.over[i]) << "operation " << i << " of the job " << *jobs_[i];
        }
      }
    }
  }

  Prng prng_;
  std::vector<One> ranks_;
  std::vector<std::int64_t> sizes_;
  std::vector<std::uint32_t> told_;
  std::vector<std::optional<std::uint32_t>> jobs_;
  std::uint32_t offered_ = 0;
  std::uint32_t reached_ = 0;
};

TEST(AtpSuccession, next__all_ranks_change_at_the_same_operation) {
  const std::uint64_t seed = test_seed();
  std::uint32_t changes = 0;
  for (std::uint64_t i = 0; i < 60 && !HasFatalFailure(); ++i) {
    Ranks ranks(seed + i, 1 + static_cast<int>(i % 5));
    ranks.run();
    changes += ranks.last_job();
  }
  EXPECT_GT(changes, 60U);
}

}  // namespace
}  // namespace thalweg::net
