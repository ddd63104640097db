// A linear program: variables at or above 0, rows that bound weighted sums of them, and the
// variable that is to become as small as possible.
//
// The same program has the same solution, bit for bit, in every process and on every machine of one
// architecture. Programs in several threads do not disturb each other. Nothing is printed.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

namespace thalweg::plan {

class LinearProgram {
 public:
  // Variables are counted from 0. Variable 0 is the one to be minimised.
  explicit LinearProgram(std::size_t variables) : variables_(variables) {}

  struct Term {
    std::size_t variable = 0;
    double coefficient = 0;
  };
  // Adds the row "the sum of the terms is at most `bound`". A variable occurs at most once in it.
  void at_most(double bound, const std::vector<Term>& terms);
  // Adds the row "the sum of the terms is `bound`".
  void equal(double bound, const std::vector<Term>& terms);

  // The value of every variable at the optimum; empty if no values keep every row.
  [[nodiscard]] std::optional<std::vector<double>> solve() const;

 private:
  void add_row(double lower, double upper, const std::vector<Term>& terms);

  std::size_t variables_;
  // One entry for each row.
  std::vector<double> lower_;
  std::vector<double> upper_;
  // Row r has the terms from row_begin_[r] to row_begin_[r + 1].
  std::vector<int> row_begin_{0};
  std::vector<int> columns_;
  std::vector<double> coefficients_;
};

}  // namespace thalweg::plan
