// Ranks that choose among candidates, in virtual time.
#include "proto/auto/auto_choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <vector>

#include "base/prng.h"

namespace thalweg::proto {
namespace {

using Times = std::vector<double>;  // [candidate]: of a call, in ms

// Ranks that make steps of calls. The calls of a step are in flight together.
class TrialWorld {
 public:
  TrialWorld(std::size_t ranks, const Times& of_calls, int calls_a_step, std::uint64_t seed)
      : times(of_calls), calls_(calls_a_step), prng_(seed) {
    for (std::size_t r = 0; r < ranks; ++r) ranks_.emplace_back(times.size());
    flying_.resize(ranks);
    reports_.resize(ranks);
  }

  // One step. Returns the candidates that ran it.
  std::vector<std::size_t> step() {
    std::vector<std::size_t> ran;
    for (int i = 0; i < calls_; ++i) ran.push_back(call());
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      // A rank may learn of the last call's end only after the next step has begun.
      const std::size_t left = prng_.chance(late) ? 1 : 0;
      while (flying_[r].size() > left) land(r);
    }
    return ran;
  }
  void steps(int count) {
    for (int i = 0; i < count; ++i) step();
  }
  // Steps until there is a decision. Returns how many.
  int steps_to_decision(int most) {
    const int before = ranks_.front().decisions();
    for (int i = 0; i < most; ++i) {
      if (ranks_.front().decisions() > before) return i;
      step();
    }
    return most;
  }

  [[nodiscard]] const AutoChoice& rank(std::size_t r) const { return ranks_[r]; }
  [[nodiscard]] double best() const { return *std::ranges::min_element(times); }
  // How much longer all calls so far took than by the best candidate, as a part of that.
  [[nodiscard]] double excess() const {
    return total_ / (best() * static_cast<double>(ranks_.front().calls())) - 1;
  }

  Times times;
  double noise = 0;  // of a time on one rank, up and down
  double late = 0;   // the chance that a rank learns of an end late
  double outliers = 0;

 private:
  struct Flying {
    std::uint64_t call;
    double ms;
  };

  std::size_t call() {
    std::vector<AutoChoice::Deal> deals;
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      if (ranks_[r].awaits_report()) ranks_[r].on_combined(combined_);
      if (ranks_[r].wants_trials()) ranks_[r].try_again();
      if (ranks_[r].reports()) reports_[r] = ranks_[r].report();
      deals.push_back(ranks_[r].deal());
      EXPECT_EQ(deals[r].call, deals[0].call);
      EXPECT_EQ(deals[r].candidate, deals[0].candidate);
    }
    combined_ = {};
    for (const AutoReport& report : reports_) {
      for (std::size_t f = 0; f < kAutoFields; ++f) {
        combined_.at(f) = std::max(combined_.at(f), report.at(f));
      }
    }
    const double true_ms = times[deals[0].candidate];
    total_ += true_ms;
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      double ms = true_ms * (1 + noise * (2 * prng_.real() - 1));
      if (prng_.chance(outliers)) ms *= 5;
      flying_[r].push_back({deals[r].call, ms});
    }
    return deals[0].candidate;
  }
  void land(std::size_t r) {
    const Flying over = flying_[r].front();
    flying_[r].pop_front();
    ranks_[r].on_time(over.call, Duration::seconds(over.ms * 1e-3));
    ranks_[r].on_over();
  }

  int calls_;
  Prng prng_;
  std::vector<AutoChoice> ranks_;
  std::vector<std::deque<Flying>> flying_;
  std::vector<AutoReport> reports_;
  AutoReport combined_ = {};
  double total_ = 0;
};

TEST(AutoChoice, deal__one_candidate_is_used_without_trials_or_reports) {
  AutoChoice choice(1);
  for (std::uint64_t i = 0; i < 500; ++i) {
    EXPECT_FALSE(choice.reports());
    EXPECT_FALSE(choice.awaits_report());
    const AutoChoice::Deal deal = choice.deal();
    EXPECT_EQ(deal.call, i);
    EXPECT_EQ(deal.candidate, 0U);
    choice.on_time(deal.call, Duration::milliseconds(1));
    choice.on_over();
  }
  EXPECT_TRUE(choice.decided());
  EXPECT_EQ(choice.trials(), 0U);
}

TEST(AutoChoice, deal__the_fastest_is_chosen) {
  for (std::size_t best = 0; best < 4; ++best) {
    Times times(4, 12);
    times[best] = 10;
    TrialWorld world(4, times, 1, 1);
    EXPECT_LT(world.steps_to_decision(100), 60);
    EXPECT_EQ(world.rank(0).chosen(), best);
    EXPECT_DOUBLE_EQ(*world.rank(0).mean_ms(best), 10);
    for (int i = 0; i < 200; ++i) EXPECT_EQ(world.step().front(), best);
  }
}

TEST(AutoChoice, deal__what_takes_twice_as_long_is_tried_twice_and_what_is_hopeless_once) {
  TrialWorld world(2, {10, 25, 1000}, 1, 1);
  std::vector<int> counts(3);
  for (int i = 0; i < 100; ++i) ++counts[world.step().front()];
  EXPECT_EQ(counts[1], 2);
  EXPECT_EQ(counts[2], 1);
  EXPECT_EQ(world.rank(0).chosen(), 0U);
  EXPECT_TRUE(world.rank(0).dropped(1));
}

TEST(AutoChoice, deal__setting_up_does_not_count) {
  TrialWorld world(2, {10, 100}, 1, 1);  // the second is slow until it is connected
  world.steps(4);
  world.times[1] = 5;
  world.steps_to_decision(100);
  EXPECT_EQ(world.rank(0).chosen(), 1U);
  EXPECT_DOUBLE_EQ(*world.rank(0).mean_ms(1), 5);
}

TEST(AutoChoice, deal__the_one_in_use_stays_if_another_is_hardly_better) {
  TrialWorld world(2, {10, 9.9}, 1, 1);
  world.steps_to_decision(100);
  EXPECT_EQ(world.rank(0).chosen(), 0U);
  TrialWorld other(2, {10, 9.5}, 1, 1);
  other.steps_to_decision(100);
  EXPECT_EQ(other.rank(0).chosen(), 1U);
}

TEST(AutoChoice, deal__calls_in_flight_together_are_tried_together) {
  TrialWorld world(3, {10, 11, 12}, 3, 1);
  world.steps(8);  // until it is known how many there are
  for (int i = 0; i < 40; ++i) {
    const std::vector<std::size_t> ran = world.step();
    EXPECT_EQ(ran, std::vector<std::size_t>(3, ran.front())) << "step " << i;
  }
  EXPECT_TRUE(world.rank(0).decided());
}

TEST(AutoChoice, deal__the_slowest_rank_counts) {
  // The second candidate is the faster one on rank 0 and by far the slower one on rank 1.
  std::vector<AutoChoice> ranks(2, AutoChoice(2));
  const Times of_rank[] = {{10, 8}, {10, 19}};
  for (int i = 0; i < 100; ++i) {
    std::vector<AutoReport> reports(2);
    for (std::size_t r = 0; r < 2; ++r) {
      if (ranks[r].reports()) reports[r] = ranks[r].report();
      const AutoChoice::Deal deal = ranks[r].deal();
      ranks[r].on_time(deal.call, Duration::seconds(of_rank[r][deal.candidate] * 1e-3));
      ranks[r].on_over();
    }
    for (std::size_t f = 0; f < kAutoFields; ++f) {
      reports[0].at(f) = std::max(reports[0].at(f), reports[1].at(f));
    }
    for (AutoChoice& rank : ranks) {
      if (rank.awaits_report() || reports[0][0] > 0) rank.on_combined(reports[0]);
    }
  }
  for (const AutoChoice& rank : ranks) {
    EXPECT_TRUE(rank.decided());
    EXPECT_EQ(rank.chosen(), 0U);
  }
}

TEST(AutoChoice, deal__trials_begin_again_when_times_drift) {
  TrialWorld world(3, {10, 12, 30}, 2, 1);
  world.noise = 0.1;
  world.steps_to_decision(100);
  ASSERT_EQ(world.rank(0).chosen(), 0U);
  world.steps(200);
  EXPECT_EQ(world.rank(0).decisions(), 1);
  world.times = {20, 12, 8};
  EXPECT_LT(world.steps_to_decision(200), 150);
  EXPECT_EQ(world.rank(0).chosen(), 2U);
  // Times that get better are a reason, too.
  world.times = {1, 12, 4};
  EXPECT_LT(world.steps_to_decision(300), 250);
  EXPECT_EQ(world.rank(0).chosen(), 0U);
}

TEST(AutoChoice, deal__a_network_that_never_rests_is_tried_ever_less) {
  TrialWorld world(2, {10, 20}, 1, 1);
  for (int i = 0; i < 10'000; ++i) {
    if (i % 60 == 0) std::swap(world.times[0], world.times[1]);
    world.step();
  }
  EXPECT_GT(world.rank(0).decisions(), 1);
  EXPECT_LT(world.rank(0).trials(), 500U);
}

// Random candidates, ranks, noise and steps.
TEST(AutoChoice, deal__property_all_ranks_choose_alike_and_well_at_a_bounded_cost) {
  double sum = 0;
  constexpr std::uint64_t kSeeds = 400;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Prng prng(seed);
    Times times;
    const double scale = std::exp2(10 * prng.real());
    for (std::uint64_t c = 0, count = 2 + prng.below(4); c < count; ++c) {
      times.push_back(scale * (1 + 1.5 * prng.real()));
    }
    const int calls = 1 + static_cast<int>(prng.below(6));
    TrialWorld world(2 + prng.below(7), times, calls, seed);
    world.noise = 0.08 * prng.real();
    world.late = prng.chance(0.5) ? 0.3 * prng.real() : 0;
    EXPECT_LT(world.steps_to_decision(150), 100);
    world.steps(200 - static_cast<int>(world.rank(0).calls()) / calls);
    const AutoChoice& first = world.rank(0);
    ASSERT_TRUE(first.decided());
    EXPECT_LE(times[first.chosen()], 1.05 * world.best());
    // What was known to be slow is within the budget. Each had a cold trial and another one.
    double unknown = 0;
    for (const double ms : times) unknown += (1 + calls) * (ms - world.best());
    const double most = AutoRules().budget * calls * world.best() + 1.2 * unknown;
    EXPECT_LE(first.extra_ms(), 1.2 * most);
    EXPECT_LE(first.trials(), times.size() * static_cast<std::size_t>(1 + 11 * calls));
    sum += world.excess();
  }
  EXPECT_LT(sum / kSeeds, 0.03);
}

TEST(AutoChoice, deal__property_single_pauses_do_not_lead_far_astray) {
  int wrong = 0;
  constexpr int kSeeds = 200;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    TrialWorld world(4, {12, 10, 14}, 1, seed);
    world.noise = 0.05;
    world.outliers = 0.01;
    world.steps(1000);
    wrong += world.rank(0).chosen() != 1 ? 1 : 0;
  }
  EXPECT_LT(wrong, kSeeds / 2);
}

}  // namespace
}  // namespace thalweg::proto
