#include "plan/rat/loads.h"

#include <algorithm>
#include <cmath>

namespace thalweg::plan {
namespace {

// Coefficients below this are rounding errors of shares that cancel. They mislead a solver that
// scales by them.
constexpr double kNoLoad = 1e-9;

}  // namespace

RatLoads::RatLoads(const std::vector<RatGroup>& groups, const topology::Topology& topology,
                   const topology::Routing& routing)
    : groups_(groups) {
  for (const RatGroup& group : groups) {
    first_variable_.push_back(variable_count_);
    variable_count_ += group.all_hosts.size();
  }
  Matrix matrix{.columns = variable_count_, .cells = {}};
  matrix.cells.resize(topology.arc_count() * variable_count_);
  for (std::size_t g = 0; g < groups.size(); ++g) {
    for (const Rank host : groups[g].hosts) add_host(g, host, routing, matrix);
    for (const std::size_t child : groups[g].children) {
      add_child(g, child, topology, routing, matrix);
    }
  }

  Bandwidth highest;
  for (const topology::Link& link : topology.links()) highest = std::max(highest, link.spec.rate);
  for (std::size_t a = 0; a < topology.arc_count(); ++a) {
    const Bandwidth rate = topology.arc(topology::ArcId(static_cast<std::int32_t>(a))).spec.rate;
    const double slowness = static_cast<double>(highest.bps()) / static_cast<double>(rate.bps());
    std::vector<Term> row;
    for (std::size_t v = 0; v < variable_count_; ++v) {
      const double load = matrix.cells[a * variable_count_ + v];
      if (std::abs(load) > kNoLoad) row.push_back({.variable = v, .coefficient = load * slowness});
    }
    if (!row.empty()) rows_.push_back(std::move(row));
  }
}

// Adds the load of a host that sends to the group's aggregator and gets the result back.
void RatLoads::add_host(std::size_t group, Rank host, const topology::Routing& routing,
                        Matrix& matrix) const {
  const auto& aggregators = groups_[group].all_hosts;
  for (std::size_t i = 0; i < aggregators.size(); ++i) {
    const std::size_t part = variable(group, i);
    for (const topology::ArcShare& s : routing.shares(host, aggregators[i])) {
      matrix.add(s.arc, part, s.fraction);
    }
    for (const topology::ArcShare& s : routing.shares(aggregators[i], host)) {
      matrix.add(s.arc, part, s.fraction);
    }
  }
}

// Adds the load of a child's aggregator, which does the same unless it is the group's aggregator
// too. The links of a host carry what it aggregates for the child but not for the group; the links
// in between carry what the group's aggregator gets from the child, whichever host sends it.
void RatLoads::add_child(std::size_t group, std::size_t child, const topology::Topology& topology,
                         const topology::Routing& routing, Matrix& matrix) const {
  const auto& inside = groups_[child].all_hosts;
  const auto& all = groups_[group].all_hosts;
  std::vector<std::size_t> outside;  // indices into `all`
  std::vector<std::size_t> place_in_all;
  for (std::size_t i = 0; i < all.size(); ++i) {
    (std::ranges::binary_search(inside, all[i]) ? place_in_all : outside).push_back(i);
  }
  const double per_inside = 1.0 / static_cast<double>(inside.size());
  const double per_outside = 1.0 / static_cast<double>(outside.size());
  for (std::size_t i = 0; i < inside.size(); ++i) {
    const topology::NodeId node = topology.host(inside[i]);
    for (const std::size_t o : outside) {
      const auto add = [&](const topology::ArcShare& s, topology::NodeId host_end) {
        if (host_end == node) {
          matrix.add(s.arc, variable(child, i), s.fraction * per_outside);
          matrix.add(s.arc, variable(group, place_in_all[i]), -s.fraction * per_outside);
        } else {
          matrix.add(s.arc, variable(group, o), s.fraction * per_inside);
        }
      };
      for (const topology::ArcShare& s : routing.shares(inside[i], all[o])) {
        add(s, topology.arc(s.arc).from);
      }
      for (const topology::ArcShare& s : routing.shares(all[o], inside[i]))
        add(s, topology.arc(s.arc).to);
    }
  }
}

double RatLoads::worst(const std::vector<double>& values) const {
  double worst = 0;
  for (const auto& row : rows_) {
    double load = 0;
    for (const Term& term : row) load += term.coefficient * values[term.variable];
    worst = std::max(worst, load);
  }
  return worst;
}

}  // namespace thalweg::plan
