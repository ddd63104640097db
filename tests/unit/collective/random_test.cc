// Random schedules of the collective protocol in virtual time: plans of every scheme, calls in
// flight with priorities, late ranks, streams with delays and little room; ranks that die, stop, do
// not call or call something else.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>

#include "collective/schedule.h"
#include "sanitized.h"

namespace thalweg::proto::collective_test {
namespace {

// Adds a line to the file that THALWEG_SCHEDULES names, if it does: schedules, seconds, violations.
// `make test` prints their sums.
void note_schedules(std::uint64_t schedules, double seconds, int violations) {
  const char* const path = std::getenv("THALWEG_SCHEDULES");
  if (path == nullptr) return;
  std::ofstream(path, std::ios::app)
      << fmt::format("{} {:.3f} {}\n", schedules, seconds, violations);
}

// Runs `count` schedules, a fifth of them under a sanitizer, or 400 times as many if
// THALWEG_EXPLORE=long. A failure prints the line that replays it.
void run_seeds(const ScheduleOptions& options, std::uint64_t count, std::uint64_t longer = 400) {
  const char* const given = std::getenv("THALWEG_FIRST_SEED");
  const char* const wanted = std::getenv("THALWEG_EXPLORE");
  const std::uint64_t first = given != nullptr ? std::strtoull(given, nullptr, 10) : 1;
  if (kUnderSanitizer) count = count / 5 + 1;
  if (given != nullptr) count = 1;
  if (wanted != nullptr && std::string(wanted) == "long") count *= longer;
  const auto begin = std::chrono::steady_clock::now();
  std::uint64_t schedules = 0;
  std::uint64_t actions = 0;
  std::uint64_t failed = 0;
  std::string violation;
  for (; schedules < count && violation.empty(); ++schedules) {
    const ScheduleReport report = run_schedule(options, first + schedules);
    actions += report.actions;
    failed += report.failed ? 1 : 0;
    violation = report.violation;
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  fmt::print("{} schedules, {} actions, {} with failed calls, {:.1f} s\n", schedules, actions,
             failed, took.count());
  note_schedules(schedules, took.count(), violation.empty() ? 0 : 1);
  EXPECT_EQ(violation, "") << "again by THALWEG_FIRST_SEED=" << first + schedules - 1
                           << " build/release/collective_test --gtest_filter="
                           << testing::UnitTest::GetInstance()->current_test_suite()->name() << '.'
                           << testing::UnitTest::GetInstance()->current_test_info()->name();
}

// Runs schedules with a planted bug until one shows it, within a minute.
void find_bug(const ScheduleOptions& options) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  for (std::uint64_t seed = 1; std::chrono::steady_clock::now() < end; ++seed) {
    const ScheduleReport report = run_schedule(options, seed);
    if (report.violation.empty()) continue;
    fmt::print("schedule {}: {}\n", seed, report.violation);
    return;
  }
  FAIL() << "no schedule of a minute found the bug";
}

TEST(CollectiveRandom, sums__exact_and_nothing_is_kept) { run_seeds({}, 500); }
TEST(CollectiveRandom, sums__exact_on_32_ranks) { run_seeds({.most_ranks = 32}, 10); }
TEST(CollectiveRandom, death__is_named_by_all) { run_seeds({.trouble = Trouble::kDeath}, 500); }
TEST(CollectiveRandom, death__is_named_by_all_of_32) {
  run_seeds({.trouble = Trouble::kDeath, .most_ranks = 32}, 10);
}
TEST(CollectiveRandom, freeze__is_named_by_all) { run_seeds({.trouble = Trouble::kFreeze}, 500); }
TEST(CollectiveRandom, missing_call__is_named_by_all) {
  run_seeds({.trouble = Trouble::kNoCall}, 500);
}
TEST(CollectiveRandom, other_call__is_named_by_all) {
  run_seeds({.trouble = Trouble::kDiffers}, 500);
}

// In these a rank hears of the death before it has made a call, so that no call of it fails. The
// others, which it has not connected to, learn of it from the store.
TEST(CollectiveRandom, death__heard_of_before_the_first_call) {
  for (const std::uint64_t seed : {3873U, 7634U, 7830U, 11987U, 12201U}) {
    EXPECT_EQ(run_schedule({.trouble = Trouble::kDeath}, seed).violation, "") << seed;
  }
}

// Without the rule of order, data overtakes older data and stalls the stream in front of it.
TEST(CollectiveRandom, order__its_rule_is_needed) { find_bug({.forgets_order = true}); }
// Without stalls, data of a call that this rank has not made yet is lost.
TEST(CollectiveRandom, stalls__their_rule_is_needed) { find_bug({.forgets_stalls = true}); }

}  // namespace
}  // namespace thalweg::proto::collective_test
