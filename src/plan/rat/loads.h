// The load of every arc as a linear function of RatParts: the constraint matrix of the weights.
#pragma once

#include <vector>

#include "plan/rat/weights.h"

namespace thalweg {

class RatLoads {
 public:
  RatLoads(const std::vector<RatGroup>& groups, const Topology& topology, const Routing& routing);

  [[nodiscard]] std::size_t variable_count() const { return variable_count_; }
  // The variable of the part that the group's i-th host aggregates.
  [[nodiscard]] std::size_t variable(std::size_t group, std::size_t i) const {
    return first_variable_[group] + i;
  }
  struct Term {
    std::size_t variable = 0;
    double coefficient = 0;
  };
  // One row an arc that any tree can load: how long the arc is busy, in units of the whole tensor
  // at the highest rate of the network.
  [[nodiscard]] const std::vector<std::vector<Term>>& rows() const { return rows_; }
  // The longest any arc is busy.
  [[nodiscard]] double worst(const std::vector<double>& values) const;

 private:
  // Dense while it is filled.
  struct Matrix {
    std::size_t columns = 0;
    std::vector<double> cells;
    void add(ArcId arc, std::size_t variable, double amount) {
      cells[arc.index() * columns + variable] += amount;
    }
  };

  void add_host(std::size_t group, Rank host, const Routing& routing, Matrix& matrix) const;
  void add_child(std::size_t group, std::size_t child, const Topology& topology,
                 const Routing& routing, Matrix& matrix) const;

  const std::vector<RatGroup>& groups_;
  std::vector<std::size_t> first_variable_;
  std::size_t variable_count_ = 0;
  std::vector<std::vector<Term>> rows_;
};

}  // namespace thalweg
