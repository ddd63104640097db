#include "plan/draw/trees.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

namespace thalweg::plan {
namespace {

// The chunks of a panel: one, or all of one source in an all-to-all, where a chunk has one target.
struct TreeChunks {
  std::string title;
  std::vector<ChunkIndex> chunks;
};

std::vector<TreeChunks> all_trees(const Plan& plan) {
  std::vector<TreeChunks> trees;
  if (plan.collective == Collective::kAllToAll) {
    for (int r = 0; r < plan.contributors; ++r) {
      trees.push_back({.title = fmt::format("From rank {}", r), .chunks = {}});
    }
    for (ChunkIndex c{0}; c.index() < plan.chunks.size(); ++c) {
      trees[plan.chunks[c.index()].source.index()].chunks.push_back(c);
    }
    return trees;
  }
  for (ChunkIndex c{0}; c.index() < plan.chunks.size(); ++c) {
    trees.push_back({.title = fmt::format("Chunk {} of {} · {}", c.value(), plan.chunks.size(),
                                          to_human(plan.size_of(c))),
                     .chunks = {c}});
  }
  return trees;
}

// The indices of each chunk's transfers, so that a panel does not search the whole plan.
using TransfersOf = std::vector<std::vector<std::size_t>>;

TransfersOf transfers_by_chunk(const Plan& plan) {
  TransfersOf by_chunk(plan.chunks.size());
  for (std::size_t i = 0; i < plan.transfers.size(); ++i) {
    by_chunk[plan.transfers[i].chunk.index()].push_back(i);
  }
  return by_chunk;
}

std::vector<TreeChunks> chosen_trees(const Plan& plan, const TransfersOf& by_chunk,
                                     const DrawOptions& options) {
  std::vector<TreeChunks> trees = all_trees(plan);
  const auto limit = static_cast<std::size_t>(std::max(options.max_panels, 0));
  std::vector<TreeChunks> chosen;
  std::set<std::vector<std::pair<Rank, Rank>>> shapes;
  for (TreeChunks& tree : trees) {
    if (chosen.size() == limit) break;
    if (!options.chunks.empty()) {
      const auto wanted = [&](ChunkIndex c) {
        return std::find(options.chunks.begin(), options.chunks.end(), c) != options.chunks.end();
      };
      if (std::any_of(tree.chunks.begin(), tree.chunks.end(), wanted)) {
        chosen.push_back(std::move(tree));
      }
      continue;
    }
    std::vector<std::pair<Rank, Rank>> shape;
    for (const ChunkIndex c : tree.chunks) {
      for (const std::size_t i : by_chunk[c.index()]) {
        shape.emplace_back(plan.transfers[i].source, plan.transfers[i].target);
      }
    }
    if (!shape.empty() && shapes.insert(std::move(shape)).second) chosen.push_back(std::move(tree));
  }
  return chosen;
}

// The roles of hosts in one chunk, if its reduction is a tree: every host passes its sum on at most
// once, and one host that receives does not. In a chain every host between the ends would be an
// aggregator, so only the root is marked there. The root of a broadcast has its value from the
// start.
std::vector<DrawRoleMark> roles_in(const Plan& plan, const std::vector<std::size_t>& transfers,
                                   const std::vector<int>& steps) {
  struct Part {
    int received = 0;
    int sent = 0;
    int last_at = 0;  // the step of the last reduction that arrived
  };
  std::map<Rank, Part> parts;
  for (const std::size_t i : transfers) {
    const PlanTransfer& t = plan.transfers[i];
    if (t.kind != TransferKind::kReduce) continue;
    ++parts[t.source].sent;
    Part& target = parts[t.target];
    ++target.received;
    target.last_at = std::max(target.last_at, steps[i]);
  }
  const bool branches = std::any_of(parts.begin(), parts.end(),
                                    [](const auto& entry) { return entry.second.received > 1; });
  std::vector<DrawRoleMark> marks;
  int roots = 0;
  for (const auto& [rank, part] : parts) {
    if (part.sent > 1) return {};
    if (part.received == 0) continue;
    const bool root = part.sent == 0;
    if (root) ++roots;
    if (!root && !branches) continue;
    marks.push_back({.role = root ? DrawRole::kRoot : DrawRole::kAggregator,
                     .rank = rank,
                     .row = part.last_at});
  }
  if (parts.empty() && plan.root.valid()) return {{.role = DrawRole::kRoot, .rank = plan.root}};
  if (roots != 1) return {};
  return marks;
}

std::string roles_text(const std::vector<DrawRoleMark>& roles) {
  constexpr std::size_t kMostNamed = 6;
  std::string text;
  std::vector<int> aggregators;
  for (const DrawRoleMark& mark : roles) {
    if (mark.role == DrawRole::kRoot) {
      text = fmt::format(" · root {}", mark.rank.value());
    } else {
      aggregators.push_back(mark.rank.value());
    }
  }
  if (aggregators.empty()) return text;
  if (aggregators.size() > kMostNamed) {
    return text + fmt::format(" · {} aggregators", aggregators.size());
  }
  return text + fmt::format(" · aggregator{} {}", aggregators.size() > 1 ? "s" : "",
                            fmt::join(aggregators, ", "));
}

}  // namespace

std::vector<DrawTree> draw_trees(const Plan& plan, const PlanProof& proof,
                                 const DrawColumns& columns, const DrawOptions& options) {
  const TransfersOf by_chunk = transfers_by_chunk(plan);
  const std::vector<int>& steps = proof.step_of;
  std::vector<DrawTree> trees;
  for (TreeChunks& chosen : chosen_trees(plan, by_chunk, options)) {
    DrawTree tree;
    tree.title = std::move(chosen.title);
    tree.chunks = std::move(chosen.chunks);
    int last_step = 0;
    for (const ChunkIndex c : tree.chunks) {
      for (const std::size_t i : by_chunk[c.index()]) last_step = std::max(last_step, steps[i]);
    }
    tree.steps_per_row = std::max(1, (last_step + kMaxDrawnSteps - 1) / kMaxDrawnSteps);
    const auto row_of = [&](int step) {
      return (step + tree.steps_per_row - 1) / tree.steps_per_row;
    };
    tree.rows = row_of(last_step);
    std::map<DrawArrow, int> arrows;
    for (const ChunkIndex c : tree.chunks) {
      for (const std::size_t i : by_chunk[c.index()]) {
        const PlanTransfer& t = plan.transfers[i];
        ++arrows[{.from = columns.column_of[t.source.index()],
                  .to = columns.column_of[t.target.index()],
                  .row = row_of(steps[i]),
                  .kind = t.kind}];
      }
    }
    for (const auto& [arrow, count] : arrows) {
      tree.arrows.push_back(arrow);
      tree.arrows.back().count = count;
    }
    if (tree.chunks.size() == 1) {
      tree.roles = roles_in(plan, by_chunk[tree.chunks.front().index()], steps);
    }
    for (DrawRoleMark& mark : tree.roles) {
      mark.column = columns.column_of[mark.rank.index()];
      mark.row = row_of(mark.row);
    }
    tree.title += roles_text(tree.roles);
    trees.push_back(std::move(tree));
  }
  return trees;
}

}  // namespace thalweg::plan
