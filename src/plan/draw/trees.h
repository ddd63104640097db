// The contents of a drawing's panels: the transfers of a chunk as arrows between columns and steps,
// and the roles that hosts have in it.
#pragma once

#include <string>
#include <vector>

#include "plan/draw/columns.h"
#include "plan/draw/draw.h"
#include "plan/plan.h"

namespace thalweg::plan {

// With more steps than this, a row of a panel stands for several steps.
inline constexpr int kMaxDrawnSteps = 130;

// The transfers from one column to another in one row: one transfer, unless summarised.
struct DrawArrow {
  int from = 0;
  int to = 0;
  int row = 0;  // the arrow starts at row − 1 and ends at row
  TransferKind kind = TransferKind::kReduce;
  int count = 1;
  auto operator<=>(const DrawArrow&) const = default;
};

enum class DrawRole : std::uint8_t {
  kAggregator,  // adds what it receives to its own value and passes the sum on
  kRoot,        // where the reduction ends
};

struct DrawRoleMark {
  DrawRole role = DrawRole::kAggregator;
  Rank rank;
  int column = 0;
  int row = 0;  // where its sum is complete
};

struct DrawTree {
  std::string title;
  std::vector<ChunkIndex> chunks;
  int rows = 0;
  int steps_per_row = 1;
  std::vector<DrawArrow> arrows;
  std::vector<DrawRoleMark> roles;  // empty unless the reduction is a tree
};

std::vector<DrawTree> draw_trees(const Plan& plan, const PlanProof& proof,
                                 const DrawColumns& columns, const DrawOptions& options);

}  // namespace thalweg::plan
