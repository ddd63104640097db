// The load of every arc as a linear function of RatParts: the constraint matrix for the weights.
#pragma once

#include <vector>

#include "plan/rat/weights.h"

namespace thalweg::plan {

class RatLoads {
 public:
  RatLoads(const std::vector<RatGroup>& groups, const topology::Topology& topology,
           const topology::Routing& routing);

  [[nodiscard]] std::size_t variable_count() const { return variable_count_; }
  // The variable for the part that the group's i-th host aggregates.
  [[nodiscard]] std::size_t variable(std::size_t group, std::size_t i) const {
    return first_variable_[group] + i;
  }
  struct Term {
    std::size_t variable = 0;
    double coefficient = 0;
  };
  // One row per arc that any tree can load: how long the arc is busy, in units of the time of the
  // whole tensor at the network's highest rate.
  [[nodiscard]] const std::vector<std::vector<Term>>& rows() const { return rows_; }
  // The longest time that any arc is busy.
  [[nodiscard]] double worst(const std::vector<double>& values) const;

 private:
  // The rows in dense form, while they are filled.
  struct Matrix {
    std::size_t columns = 0;
    std::vector<double> cells;
    void add(topology::ArcId arc, std::size_t variable, double amount) {
      cells[arc.index() * columns + variable] += amount;
    }
  };

  void add_host(std::size_t group, Rank host, const topology::Routing& routing,
                Matrix& matrix) const;
  void add_child(std::size_t group, std::size_t child, const topology::Topology& topology,
                 const topology::Routing& routing, Matrix& matrix) const;

  const std::vector<RatGroup>& groups_;
  std::vector<std::size_t> first_variable_;
  std::size_t variable_count_ = 0;
  std::vector<std::vector<Term>> rows_;
};

}  // namespace thalweg::plan
