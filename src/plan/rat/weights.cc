#include "plan/rat/weights.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "plan/rat/linear_program.h"
#include "plan/rat/loads.h"

namespace thalweg::plan {
namespace {

using Groups = std::vector<RatGroup>;

// Two optima closer than this are equal: the solver's own tolerance is 1e-7.
constexpr double kSame = 1e-6;
// A part below this is a rounding error.
constexpr double kNoWeight = 1e-12;

std::size_t place_of(const RatGroup& group, Rank host) {
  const auto found = std::ranges::lower_bound(group.all_hosts, host);
  return static_cast<std::size_t>(found - group.all_hosts.begin());
}

// Variable 0 is the objective; the parts follow it.
constexpr std::size_t kObjective = 0;
constexpr std::size_t kFirstPart = 1;

// Adds the constraints that make the variables parts of groups.
void add_part_rows(const Groups& groups, const RatLoads& loads, LinearProgram& program) {
  for (std::size_t g = 0; g < groups.size(); ++g) {
    std::vector<LinearProgram::Term> whole;
    whole.reserve(groups[g].all_hosts.size());
    for (std::size_t i = 0; i < groups[g].all_hosts.size(); ++i) {
      whole.push_back({kFirstPart + loads.variable(g, i), 1});
    }
    program.equal(1, whole);
    for (const std::size_t child : groups[g].children) {
      for (std::size_t i = 0; i < groups[child].all_hosts.size(); ++i) {
        const std::size_t above = place_of(groups[g], groups[child].all_hosts[i]);
        program.at_most(0, {{kFirstPart + loads.variable(g, above), 1},
                            {kFirstPart + loads.variable(child, i), -1}});
      }
    }
  }
}

std::vector<LinearProgram::Term> load_terms(const std::vector<RatLoads::Term>& row) {
  std::vector<LinearProgram::Term> terms;
  terms.reserve(row.size() + 1);
  for (const RatLoads::Term& term : row) {
    terms.push_back({kFirstPart + term.variable, term.coefficient});
  }
  return terms;
}

// The parts for which the busiest arc is busy for the shortest time.
std::vector<double> least_worst(const Groups& groups, const RatLoads& loads) {
  LinearProgram program(kFirstPart + loads.variable_count());
  add_part_rows(groups, loads, program);
  for (const auto& row : loads.rows()) {
    auto terms = load_terms(row);
    terms.push_back({kObjective, -1});
    program.at_most(0, terms);
  }
  // The uniform parts are a solution and 0 is a bound, so there is an optimum.
  auto solution = program.solve();
  CHECK(solution.has_value());
  solution->erase(solution->begin());
  return *solution;
}

// Among the parts that keep every arc at or below `worst`, those whose largest difference from
// `wanted` is smallest. Empty if rounding leaves no room between the two programs.
std::optional<std::vector<double>> nearest_within(const Groups& groups, const RatLoads& loads,
                                                  double worst, const std::vector<double>& wanted) {
  LinearProgram program(kFirstPart + loads.variable_count());
  add_part_rows(groups, loads, program);
  for (const auto& row : loads.rows()) program.at_most(worst, load_terms(row));
  for (std::size_t v = 0; v < loads.variable_count(); ++v) {
    program.at_most(wanted[v], {{kFirstPart + v, 1}, {kObjective, -1}});
    program.at_most(-wanted[v], {{kFirstPart + v, -1}, {kObjective, -1}});
  }
  auto solution = program.solve();
  if (solution) solution->erase(solution->begin());
  return solution;
}

std::vector<double> flatten(const RatParts& parts) {
  std::vector<double> values;
  for (const auto& group : parts) values.insert(values.end(), group.begin(), group.end());
  return values;
}

// The aggregator of a stretch of the tensor, which is regarded as the interval from 0 to 1.
struct Stretch {
  double begin = 0;
  double end = 0;
  Rank aggregator;
};

// Lays out which host aggregates each stretch for a group: where the parent's aggregator is one of
// its hosts, that host; elsewhere the hosts one after the other, each for as much as is left of its
// part.
std::vector<Stretch> lay_out(const RatGroup& group, const std::vector<double>& parts,
                             const std::vector<Stretch>& parent) {
  std::vector<double> left = parts;
  for (const Stretch& s : parent) {
    const std::size_t i = place_of(group, s.aggregator);
    if (i < left.size() && group.all_hosts[i] == s.aggregator) left[i] -= s.end - s.begin;
  }
  std::vector<Stretch> result;
  std::size_t next = 0;
  for (const Stretch& s : parent) {
    if (std::ranges::binary_search(group.all_hosts, s.aggregator)) {
      result.push_back(s);
      continue;
    }
    double at = s.begin;
    while (at < s.end) {
      while (next + 1 < left.size() && left[next] <= kNoWeight) ++next;
      // The last host takes the rest that rounding leaves.
      const bool last = next + 1 == left.size();
      const double end = last ? s.end : std::min(s.end, at + left[next]);
      result.push_back({.begin = at, .end = end, .aggregator = group.all_hosts[next]});
      left[next] -= end - at;
      at = end;
    }
  }
  return result;
}

// The cuts of all groups; cuts closer together than `least` are merged.
std::vector<double> merged_cuts(const std::vector<std::vector<Stretch>>& layouts, double least) {
  std::vector<double> cuts{0};
  std::vector<double> all;
  for (const auto& layout : layouts) {
    for (const Stretch& s : layout) all.push_back(s.end);
  }
  std::sort(all.begin(), all.end());
  for (const double cut : all) {
    if (cut - cuts.back() >= least && 1 - cut >= least) cuts.push_back(cut);
  }
  cuts.push_back(1);
  return cuts;
}

}  // namespace

RatParts uniform_parts(const std::vector<RatGroup>& groups) {
  RatParts parts;
  for (const RatGroup& group : groups) {
    std::vector<double> part(group.all_hosts.size(), 0);
    const double each = 1.0 / static_cast<double>(group.member_count());
    for (const Rank host : group.hosts) part[place_of(group, host)] = each;
    for (const std::size_t child : group.children) {
      for (std::size_t i = 0; i < groups[child].all_hosts.size(); ++i) {
        part[place_of(group, groups[child].all_hosts[i])] = each * parts[child][i];
      }
    }
    parts.push_back(std::move(part));
  }
  return parts;
}

Result<RatParts> best_parts(const std::vector<RatGroup>& groups, const topology::Topology& topology,
                            const topology::Routing& routing) {
  if (topology.host_count() > kMaxWeightedHosts) {
    return Error(fmt::format("weights are computed for at most {} hosts, and there are {}: use rat",
                             kMaxWeightedHosts, topology.host_count()));
  }
  RatParts parts = uniform_parts(groups);
  const RatLoads loads(groups, topology, routing);
  const std::vector<double> uniform = flatten(parts);
  const std::vector<double> optimum = least_worst(groups, loads);
  const double worst = loads.worst(optimum) * (1 + kSame);
  if (loads.worst(uniform) <= worst) return parts;
  const std::vector<double> best = nearest_within(groups, loads, worst, uniform).value_or(optimum);
  for (std::size_t g = 0; g < groups.size(); ++g) {
    for (std::size_t i = 0; i < parts[g].size(); ++i) {
      const double part = best[loads.variable(g, i)];
      parts[g][i] = part < kSame ? 0 : part;
    }
  }
  return parts;
}

std::vector<RatTree> trees_from_parts(const std::vector<RatGroup>& groups, const RatParts& parts,
                                      double least_weight) {
  // From the top down: where a group holds its parent's aggregator, it uses the same host.
  std::vector<std::vector<Stretch>> layouts(groups.size());
  const std::vector<Stretch> no_parent{{.begin = 0, .end = 1, .aggregator = {}}};
  layouts.back() = lay_out(groups.back(), parts.back(), no_parent);
  for (std::size_t g = groups.size(); g-- > 0;) {
    for (const std::size_t child : groups[g].children) {
      layouts[child] = lay_out(groups[child], parts[child], layouts[g]);
    }
  }
  const std::vector<double> cuts = merged_cuts(layouts, least_weight);
  std::vector<RatTree> trees;
  for (std::size_t c = 0; c + 1 < cuts.size(); ++c) {
    const double middle = (cuts[c] + cuts[c + 1]) / 2;
    RatTree tree;
    for (const auto& layout : layouts) {
      const auto here = std::ranges::find_if(layout, [&](const auto& s) { return middle < s.end; });
      tree.aggregators.push_back(here == layout.end() ? layout.back().aggregator
                                                      : here->aggregator);
    }
    tree.weight = cuts[c + 1] - cuts[c];
    trees.push_back(std::move(tree));
  }
  return trees;
}

}  // namespace thalweg::plan
