// The linear program behind RAT's weights.
#include "plan/rat/linear_program.h"

#include <gtest/gtest.h>

#include <thread>

#include "base/prng.h"

// Stands in for LAPACK's factorization, which the solver's library would find elsewhere.
static int g_calls_of_lapack = 0;
extern "C" void dgetrf_() { ++g_calls_of_lapack; }

namespace thalweg::plan {
namespace {

// The least that a player can lose in a game of `moves` moves, as variable 0. What one player gains
// by a pair of moves, the other gains when they change sides, so the answer is 0 by symmetry; every
// gain is raised by `raise`, and so is the answer.
LinearProgram symmetric_game(std::size_t moves, double raise, std::uint64_t seed) {
  Prng prng(seed);
  std::vector<double> gains(moves * moves);
  for (std::size_t i = 0; i < moves; ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      gains[i * moves + j] = static_cast<double>(prng.below(2001)) / 1000 - 1;
      gains[j * moves + i] = -gains[i * moves + j];
    }
  }
  LinearProgram program(1 + moves);
  std::vector<LinearProgram::Term> whole;
  for (std::size_t j = 0; j < moves; ++j) {
    whole.push_back({.variable = 1 + j, .coefficient = 1});
    std::vector<LinearProgram::Term> loss{{.variable = 0, .coefficient = -1}};
    for (std::size_t i = 0; i < moves; ++i) {
      loss.push_back({.variable = 1 + i, .coefficient = gains[j * moves + i] + raise});
    }
    program.at_most(0, loss);
  }
  program.equal(1, whole);
  return program;
}

TEST(LinearProgram, one_choice__the_bound) {
  LinearProgram program(2);
  program.equal(3, {{1, 1}});
  program.at_most(0, {{1, 2}, {0, -1}});
  const auto values = program.solve();
  ASSERT_TRUE(values.has_value());
  EXPECT_DOUBLE_EQ(values->at(0), 6);
  EXPECT_DOUBLE_EQ(values->at(1), 3);
}

TEST(LinearProgram, rows_that_contradict__no_solution) {
  LinearProgram program(2);
  program.equal(3, {{1, 1}});
  program.at_most(2, {{1, 1}});
  EXPECT_FALSE(program.solve().has_value());
}

TEST(LinearProgram, negative_values_needed__no_solution) {
  LinearProgram program(2);
  program.at_most(-1, {{1, 1}});
  EXPECT_FALSE(program.solve().has_value());
}

TEST(LinearProgram, symmetric_games__the_known_optimum) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const double raise = 1 + static_cast<double>(seed) / 7;
    const auto values = symmetric_game(1 + seed * 2, raise, seed).solve();
    ASSERT_TRUE(values.has_value());
    EXPECT_NEAR(values->front(), raise, 1e-7);
  }
}

TEST(LinearProgram, dense_program__not_by_lapack) {
  g_calls_of_lapack = 0;
  ASSERT_TRUE(symmetric_game(200, 2, 1).solve().has_value());
  EXPECT_EQ(g_calls_of_lapack, 0);
}

TEST(LinearProgram, solve__prints_nothing) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  (void)symmetric_game(60, 2, 1).solve();
  LinearProgram impossible(2);
  impossible.at_most(-1, {{1, 1}});
  (void)impossible.solve();
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(LinearProgram, several_threads__the_same_bits_as_alone) {
  constexpr std::uint64_t kGames = 24;
  const auto solve = [](std::uint64_t seed) {
    return symmetric_game(30 + seed, 2, seed).solve().value_or(std::vector<double>{});
  };
  std::vector<std::vector<double>> alone;
  for (std::uint64_t seed = 0; seed < kGames; ++seed) alone.push_back(solve(seed));
  // Every thread solves all of them, each from another one on.
  std::vector<std::vector<std::vector<double>>> together(4);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < together.size(); ++t) {
    together[t].resize(kGames);
    threads.emplace_back([&, t] {
      for (std::uint64_t i = 0; i < kGames; ++i) {
        const std::uint64_t seed = (i + t * 5) % kGames;
        together[t][seed] = solve(seed);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& found : together) EXPECT_EQ(found, alone);
}

}  // namespace
}  // namespace thalweg::plan
