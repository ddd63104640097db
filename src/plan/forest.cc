#include "plan/forest.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>

namespace thalweg::plan {
namespace {

constexpr std::size_t kWordBits = 64;

// Returns the most senders that one target has. The bits of each target are a row of words.
int most_senders(const std::vector<std::uint64_t>& bits, std::size_t words) {
  int most = 0;
  for (std::size_t begin = 0; begin < bits.size(); begin += words) {
    int senders = 0;
    for (std::size_t w = begin; w < begin + words; ++w) senders += std::popcount(bits[w]);
    most = std::max(most, senders);
  }
  return most;
}

}  // namespace

ForestSurvey::ForestSurvey(const topology::Topology& topology, const topology::Routing& routing)
    : topology_(topology),
      loads_(topology, routing),
      nodes_(static_cast<std::size_t>(topology.host_count())),
      staging_(nodes_.size()) {
  extent_.held = false;
  accounting_.regions.resize(topology.regions().size());
}

// Proves the tree, and finds how deep every rank's sum is.
Status ForestSurvey::climb(const Tree& tree) {
  std::ranges::fill(nodes_, Node{});
  std::size_t edges = 0;
  for (std::size_t l = 0; l < tree.levels.size(); ++l) {
    const auto level = static_cast<int>(l);
    for (const TreeEdge& edge : tree.levels[l]) {
      if (edge.child == edge.parent) {
        return Error(fmt::format("tree {}: rank {} sends its sum to itself", extent_.chunks,
                                 edge.child.value()));
      }
      Node& child = nodes_[edge.child.index()];
      Node& parent = nodes_[edge.parent.index()];
      if (child.sent) {
        return Error(fmt::format("tree {}: rank {} sends its sum a second time", extent_.chunks,
                                 edge.child.value()));
      }
      if (child.arrived_at == level || parent.sent) {
        return Error(fmt::format("tree {}: rank {} sends its sum before all of it is there",
                                 extent_.chunks, (parent.sent ? edge.parent : edge.child).value()));
      }
      child.sent = true;
      parent.arrived_at = level;
      ++parent.arrivals;
      parent.depth = std::max(parent.depth, child.depth + 1);
      ++edges;
    }
  }
  if (edges + 1 == nodes_.size()) return ok_status();
  return Error(fmt::format("tree {}: {} of {} ranks send their sum; all but one must",
                           extent_.chunks, edges, nodes_.size()));
}

void ForestSurvey::count(Rank from, Rank to, Bytes bytes, int step, bool reduces) {
  const auto s = static_cast<std::size_t>(step);
  if (extent_.steps.size() < s) extent_.steps.resize(s);
  PlanStep& sum = extent_.steps[s - 1];
  ++sum.transfers;
  sum.reduces += reduces ? 1U : 0U;
  sum.bytes += bytes;
  accounting_.total += bytes;
  add_crossing(topology_, from, to, bytes, accounting_);
  loads_.add(from, to, static_cast<double>(bytes.count()));
}

Status ForestSurvey::add(const Tree& tree, Bytes bytes) {
  THALWEG_TRY_STATUS(climb(tree));
  const std::size_t words = (nodes_.size() + kWordBits - 1) / kWordBits;
  const auto note_sender = [&](Rank from, Rank to, int step) {
    const auto s = static_cast<std::size_t>(step);
    if (senders_.size() < s) senders_.resize(s);
    std::vector<std::uint64_t>& bits = senders_[s - 1];
    if (bits.empty()) bits.resize(words * nodes_.size());
    bits[to.index() * words + from.index() / kWordBits] |= std::uint64_t{1}
                                                           << from.index() % kWordBits;
  };
  for (std::size_t r = 0; r < nodes_.size(); ++r) {
    staging_[r] += bytes * std::max(0, nodes_[r].arrivals - 1);
  }
  for (const auto& level : tree.levels) {
    for (const TreeEdge& edge : level) {
      const int step = nodes_[edge.child.index()].depth + 1;
      note_sender(edge.child, edge.parent, step);
      count(edge.child, edge.parent, bytes, step, true);
    }
  }
  // Now a rank's depth becomes that of the result.
  for (auto level = tree.levels.rbegin(); level != tree.levels.rend(); ++level) {
    for (const TreeEdge& edge : *level) {
      const int step = nodes_[edge.parent.index()].depth + 1;
      nodes_[edge.child.index()].depth = step;
      note_sender(edge.parent, edge.child, step);
      count(edge.parent, edge.child, bytes, step, false);
    }
  }
  ++extent_.chunks;
  extent_.transfers += 2 * (nodes_.size() - 1);
  return ok_status();
}

void ForestSurvey::finish(EvaluatedPlan& result) {
  const std::size_t words = (nodes_.size() + kWordBits - 1) / kWordBits;
  for (const auto& bits : senders_) {
    if (!bits.empty()) {
      accounting_.peak_fan_in = std::max(accounting_.peak_fan_in, most_senders(bits, words));
    }
  }
  for (const topology::ArcLoad& load : loads_.take()) accounting_.arc_bytes.push_back(load.bytes);
  find_busiest(topology_, accounting_);
  result.proof.steps = static_cast<int>(extent_.steps.size());
  result.proof.staging = std::move(staging_);
  result.accounting = std::move(accounting_);
  result.extent = std::move(extent_);
}

Result<EvaluatedPlan> evaluate_by_trees(std::string_view spec, const PlanRequest& request,
                                        const topology::Routing& routing,
                                        const PlannerOptions& options) {
  EvaluatedPlan result;
  result.plan = plan_header(request);
  result.plan.scheme = spec;
  ForestSurvey survey(request.topology, routing);
  THALWEG_TRY_STATUS(for_each_tree(
      spec, request, [&](const Tree& tree, Bytes bytes) { return survey.add(tree, bytes); }));
  survey.finish(result);
  THALWEG_TRY(const Outline outline, make_outline(spec, request));
  result.predicted = Predictor(request.topology, routing, options.cost).predict(outline).total;
  return result;
}

}  // namespace thalweg::plan
