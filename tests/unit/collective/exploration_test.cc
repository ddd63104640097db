// Exhaustive exploration of small worlds of the collective protocol (explore.h).
// THALWEG_EXPLORE=long adds the larger ones (`make explore`).
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include "collective/explore.h"

namespace thalweg::proto::collective_test {
namespace {

struct Case {
  const char* name;
  Exploration exploration;
  bool long_only = false;
};

std::vector<Case> cases() {
  // Rank 1 makes its second call when its first is over, so data of the second stalls its streams.
  const std::vector<std::size_t> one_waits = {2, 1, 2};
  const std::vector<std::size_t> in_turn = {1, 1, 1};
  return {
      {"2 ranks, ring, 2 calls at once", {.scheme = "ring", .ranks = 2, .elements = 2}},
      {"3 ranks, k-nomial, 1 call", {.scheme = "k-nomial", .priorities = {0}}},
      {"3 ranks, ring, 1 call", {.scheme = "ring", .priorities = {0}}},
      {"3 ranks, k-nomial, 2 calls, rank 1 waits", {.scheme = "k-nomial", .in_flight = one_waits}},
      {"3 ranks, k-nomial, 2 calls in turn", {.scheme = "k-nomial", .in_flight = in_turn}, true},
      {"3 ranks, k-nomial, 2 calls at once", {.scheme = "k-nomial"}, true},
      {"3 ranks, ring, 2 calls in turn", {.scheme = "ring", .in_flight = in_turn}, true},
      {"3 ranks, ring, 2 calls, rank 1 waits", {.scheme = "ring", .in_flight = one_waits}, true},
      {"3 ranks, ring, 2 calls at once", {.scheme = "ring"}, true},
      {"3 ranks, ring of 3 chunks, 1 call",
       {.scheme = "ring", .elements = 3, .priorities = {0}},
       true},
      {"3 ranks, ring of 3 chunks, 2 calls, rank 1 waits",
       {.scheme = "ring", .elements = 3, .in_flight = one_waits},
       true},
  };
}

bool is_long() {
  const char* const wanted = std::getenv("THALWEG_EXPLORE");
  return wanted != nullptr && std::string(wanted) == "long";
}

TEST(CollectiveExploration, explore__every_state_is_safe_and_ends) {
  for (const Case& each : cases()) {
    if (each.long_only && !is_long()) continue;
    const auto begin = std::chrono::steady_clock::now();
    const ExplorationReport report = explore(each.exploration);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    fmt::print(
        "{:<48} {:>9} states {:>9} transitions {:>7} ends {:>7} failed {:>7} timers "
        "{:>6.1f} s\n",
        each.name, report.states, report.transitions, report.ends, report.failed, report.timers,
        took.count());
    std::fflush(stdout);
    EXPECT_EQ(report.violation, "") << each.name;
    EXPECT_TRUE(report.complete) << each.name;
    EXPECT_GT(report.ends, report.failed) << each.name;
    EXPECT_GT(report.failed, 0U) << each.name;
    EXPECT_GT(report.timers, 0U) << each.name;
  }
}

TEST(CollectiveExploration, explore__finds_that_order_is_needed) {
  const ExplorationReport report = explore({.scheme = "ring",
                                            .elements = 3,
                                            .in_flight = {2, 1, 2},
                                            .death = false,
                                            .forgets_order = true});
  EXPECT_NE(report.violation, "");
  fmt::print("{} states: {}\n", report.states, report.violation);
}

TEST(CollectiveExploration, explore__finds_that_stalls_are_needed) {
  const ExplorationReport report =
      explore({.scheme = "k-nomial", .death = false, .forgets_stalls = true});
  EXPECT_NE(report.violation, "");
  fmt::print("{} states: {}\n", report.states, report.violation);
}

}  // namespace
}  // namespace thalweg::proto::collective_test
