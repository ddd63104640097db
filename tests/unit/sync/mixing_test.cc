#include "sync/mixing.h"

#include <gtest/gtest.h>

#include <Eigen/Dense>
#include <cstdlib>
#include <ctime>

#include "sync/random_world.h"

namespace thalweg::sync {
namespace {

using worlds::racks_of;

Eigen::MatrixXd matrix_of(const Grouping& groups, int workers) {
  Eigen::MatrixXd matrix = Eigen::MatrixXd::Zero(workers, workers);
  for (const Group& group : groups) {
    for (const Rank a : group) {
      for (const Rank b : group)
        matrix(a.value(), b.value()) = 1.0 / static_cast<double>(group.size());
    }
  }
  return matrix;
}

// Multiplies out the whole product and computes all its eigenvalues.
TEST(Mixing, mixing_of__is_that_of_the_dense_product) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    Prng random(seed);
    const WorkerTree tree = *WorkerTree::from_rack_sizes(worlds::random_racks(random));
    const Schedule schedule =
        *adjust_groups(tree, worlds::random_bottlenecks(tree, random), random.next());
    const int n = schedule.workers;
    Eigen::MatrixXd product = Eigen::MatrixXd::Identity(n, n);
    for (const Grouping& groups : schedule.period) product = matrix_of(groups, n) * product;
    EXPECT_LT((product.rowwise().sum().array() - 1).abs().maxCoeff(), 1e-9) << seed;
    EXPECT_LT((product.colwise().sum().array() - 1).abs().maxCoeff(), 1e-9) << seed;
    EXPECT_GE(product.minCoeff(), 0) << seed;
    product.array() -= 1.0 / n;
    const Mixing mixing = mixing_of(schedule);
    // Rounding may move a defective eigenvalue near 0 by the root of the rounding error.
    EXPECT_NEAR(mixing.rho, product.eigenvalues().cwiseAbs().maxCoeff(), 2e-3) << "seed " << seed;
    EXPECT_LT(mixing.rho, 1) << seed;
    EXPECT_GT(mixing.iterations_to_consensus, 0) << seed;
  }
}

TEST(Mixing, mixing_of__counts_iterations_from_the_product) {
  const Schedule schedule = init_groups(racks_of({4, 4}), 1);
  const Mixing mixing = mixing_of(schedule);
  Eigen::MatrixXd product = Eigen::MatrixXd::Identity(8, 8);
  const Eigen::MatrixXd all = Eigen::MatrixXd::Constant(8, 8, 1.0 / 8);
  const double start = (product - all).norm();
  int iterations = 0;
  while ((product - all).norm() > kConsensus * start) {
    product = matrix_of(schedule.at(iterations++), 8) * product;
  }
  EXPECT_EQ(mixing.iterations_to_consensus, iterations);
  EXPECT_EQ(mixing.period, 4);
}

TEST(Mixing, mixing_of__all_in_one_group_agree_at_once) {
  const Mixing mixing = mixing_of(init_groups(racks_of({5}), 1));
  EXPECT_EQ(mixing.rho, mixing_of_all().rho);
  EXPECT_EQ(mixing.iterations_to_consensus, mixing_of_all().iterations_to_consensus);
}

TEST(Mixing, mixing_of_gossip__powers_of_two_agree_in_one_period) {
  const Mixing eight = mixing_of_gossip(8);
  EXPECT_EQ(eight.period, 3);
  EXPECT_EQ(eight.rho, 0);
  EXPECT_EQ(eight.iterations_to_consensus, 3);
  const Mixing six = mixing_of_gossip(6);
  EXPECT_GT(six.rho, 0);
  EXPECT_GT(six.iterations_to_consensus, 3);
}

// The goal: 1,024 workers in 64 racks with the spectrum in under 2 s.
TEST(Mixing, mixing_of__large_worlds_are_quick) {
  const std::clock_t start = std::clock();  // of the processor: others may use it, too
  const WorkerTree tree = *WorkerTree::from_rack_sizes(std::vector<int>(64, 16));
  const Mixing mixing = mixing_of(init_groups(tree, 1));
  const double seconds =
      static_cast<double>(std::clock() - start) / static_cast<double>(CLOCKS_PER_SEC);
  EXPECT_GT(mixing.rho, 0);
  EXPECT_LT(mixing.rho, 1);
#ifdef NDEBUG
  const bool emulated = std::getenv("THALWEG_EMULATED") != nullptr;  // tools/arm64
  if (!emulated) {
    EXPECT_LT(seconds, 2);
  }
#endif
  RecordProperty("seconds", std::to_string(seconds));
}

}  // namespace
}  // namespace thalweg::sync
