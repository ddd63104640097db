#include "plan/rat/linear_program.h"

#include <ClpFactorization.hpp>
#include <ClpPresolve.hpp>
#include <ClpSimplex.hpp>
#include <limits>
#include <memory>

namespace thalweg::plan {
namespace {

// How much rounding may leave of a row's bound when rows and variables that do not matter are taken
// away before the program is solved.
constexpr double kTolerance = 1e-8;

// Clp's own way to do all of this, ClpSimplex::initialSolve, is not used: while it runs it takes
// over the signal SIGINT of the whole process.
void prepare(ClpSimplex& program) {
  program.setLogLevel(0);
  // Dense parts would be factored by LAPACK. Which LAPACK a process has depends on the machine and,
  // under PyTorch, on what was loaded before, and each rounds in its own way.
  program.factorization()->setDenseThreshold(0);
}

}  // namespace

void LinearProgram::at_most(double bound, const std::vector<Term>& terms) {
  add_row(-std::numeric_limits<double>::max(), bound, terms);
}

void LinearProgram::equal(double bound, const std::vector<Term>& terms) {
  add_row(bound, bound, terms);
}

void LinearProgram::add_row(double lower, double upper, const std::vector<Term>& terms) {
  lower_.push_back(lower);
  upper_.push_back(upper);
  for (const Term& term : terms) {
    columns_.push_back(static_cast<int>(term.variable));
    coefficients_.push_back(term.coefficient);
  }
  row_begin_.push_back(static_cast<int>(columns_.size()));
}

std::optional<std::vector<double>> LinearProgram::solve() const {
  ClpSimplex program;
  prepare(program);
  program.resize(0, static_cast<int>(variables_));
  program.addRows(static_cast<int>(lower_.size()), lower_.data(), upper_.data(), row_begin_.data(),
                  columns_.data(), coefficients_.data());
  program.setObjectiveCoefficient(0, 1);

  ClpPresolve presolve;
  const std::unique_ptr<ClpSimplex> smaller(presolve.presolvedModel(program, kTolerance));
  if (!smaller) return std::nullopt;
  prepare(*smaller);
  smaller->primal();
  presolve.postsolve(true);
  // Starts at the optimum that was found, and mends what rounding left of the rows taken away.
  program.primal(1);
  if (!program.isProvenOptimal()) return std::nullopt;
  const double* values = program.primalColumnSolution();
  return std::vector<double>(values, values + variables_);
}

}  // namespace thalweg::plan
