#include "sync/mixing.h"

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <complex>
#include <numbers>

#include "plan/gossip_graph.h"

namespace thalweg::sync {
namespace {

// An eigenvalue below this is 0 but for rounding.
constexpr double kNothing = 1e-9;

// Rows are workers. An iteration replaces every worker's row by its group's mean.
void average(Eigen::MatrixXd& models, const Grouping& groups) {
  Eigen::RowVectorXd mean(models.cols());
  for (const Group& group : groups) {
    if (group.size() == 1) continue;
    mean.setZero();
    for (const Rank worker : group) mean += models.row(worker.value());
    mean /= static_cast<double>(group.size());
    for (const Rank worker : group) models.row(worker.value()) = mean;
  }
}

// Column g: 1/√size for the workers of group g. Orthonormal columns; W = Q Qᵀ.
Eigen::MatrixXd basis_of(const Grouping& groups, int workers) {
  Eigen::MatrixXd basis = Eigen::MatrixXd::Zero(workers, static_cast<Eigen::Index>(groups.size()));
  for (std::size_t g = 0; g < groups.size(); ++g) {
    for (const Rank worker : groups[g]) {
      basis(worker.value(), static_cast<Eigen::Index>(g)) =
          1 / std::sqrt(static_cast<double>(groups[g].size()));
    }
  }
  return basis;
}

// The product W_{k+B-1} … W_{k+1} W_k has the same eigenvalues for every k. With W_k = Q Qᵀ, its
// nonzero eigenvalues are those of Qᵀ W_{k+B-1} … W_{k+1} Q, a matrix with one row per group of
// iteration k. 1,024 workers in 64 racks leave 65 rows.
double second_eigenvalue(const Schedule& schedule) {
  const auto fewest = std::ranges::min_element(schedule.period, {}, &Grouping::size);
  const auto k = static_cast<std::int64_t>(fewest - schedule.period.begin());
  const Eigen::MatrixXd basis = basis_of(*fewest, schedule.workers);
  Eigen::MatrixXd product = basis;
  for (std::size_t i = 1; i < schedule.period.size(); ++i) {
    average(product, schedule.at(k + static_cast<std::int64_t>(i)));
  }
  Eigen::MatrixXd reduced = basis.transpose() * product;
  // Removes what all workers share, whose eigenvalue is 1.
  const Eigen::VectorXd shared =
      basis.colwise().sum().transpose() / std::sqrt(static_cast<double>(schedule.workers));
  reduced -= shared * shared.transpose();
  const double rho = reduced.eigenvalues().cwiseAbs().maxCoeff();
  return rho < kNothing ? 0 : rho;
}

// How much of a random disagreement is left: the root mean square of the product of all iterations
// so far, without what all workers share, divided by that of the identity.
int iterations_to_consensus(const Schedule& schedule) {
  const double limit = kConsensus * std::sqrt(schedule.workers - 1.0);
  // Iteration 0 makes rows and columns of the identity equal within groups: one column per group
  // will do.
  Eigen::MatrixXd product = basis_of(schedule.at(0), schedule.workers);
  for (int t = 1; t <= kMaxConsensusIterations; ++t) {
    // ‖P − J‖² = ‖P‖² − 1, since P is doubly stochastic; ‖P‖ = ‖P Q‖ for P that ends in Q Qᵀ.
    if (std::sqrt(std::max(0.0, product.squaredNorm() - 1)) <= limit) return t;
    average(product, schedule.at(t));
  }
  return 0;
}

}  // namespace

double Mixing::rho_per_iteration() const { return std::pow(rho, 1.0 / period); }

Mixing mixing_of(const Schedule& schedule) {
  return {.period = static_cast<int>(schedule.period.size()),
          .rho = second_eigenvalue(schedule),
          .iterations_to_consensus = iterations_to_consensus(schedule)};
}

int gossip_period(int workers) { return std::max(1, plan::gossip_distances(workers)); }

// Every iteration's matrix is circulant, (I + S^d)/2, so all have the Fourier vectors as
// eigenvectors: frequency j shrinks by |1 + ω^(jd)|/2 = |cos(π j d / w)|.
Mixing mixing_of_gossip(int workers) {
  Mixing mixing;
  mixing.period = gossip_period(workers);
  std::vector<double> left(static_cast<std::size_t>(workers), 1);
  left[0] = 0;  // what all workers share
  const double limit = kConsensus * std::sqrt(workers - 1.0);
  mixing.iterations_to_consensus = 0;
  for (int t = 0; t < kMaxConsensusIterations; ++t) {
    const double distance = 1 << (t % mixing.period);
    double square = 0;
    for (std::size_t j = 1; j < left.size(); ++j) {
      left[j] *= std::abs(std::cos(std::numbers::pi * static_cast<double>(j) * distance / workers));
      square += left[j] * left[j];
    }
    if (t + 1 == mixing.period) {
      mixing.rho = std::ranges::max(left);
      if (mixing.rho < kNothing) mixing.rho = 0;
    }
    if (mixing.iterations_to_consensus == 0 && std::sqrt(square) <= limit) {
      mixing.iterations_to_consensus = t + 1;
    }
    if (t + 1 >= mixing.period && mixing.iterations_to_consensus > 0) break;
  }
  return mixing;
}

}  // namespace thalweg::sync
