// Butterfly (recursive doubling): in step k the ranks at distance 2^k swap all they have and add
// it. Nearest partners come first, in region order. It takes log2 w steps, with the whole tensor in
// each.
//
// If w is not a power of two, w − p ranks fold in, where p is the largest power of two below w:
// rank 2i + 1 gives its tensor to rank 2i before the first step and gets the result after the last,
// for i < w − p.
//
// Both sides of a swap add the same two values, so all ranks end bit-identical.
#include <bit>

#include "plan/schemes/parts.h"
#include "plan/schemes/schemes.h"

namespace thalweg::plan {
namespace {

Result<Plan> generate_butterfly(const PlanRequest& request, const Parameters& /*parameters*/) {
  PlanBuilder builder(plan_header(request));
  const ChunkIndex tensor = add_parts(builder, 1).front();
  const std::vector<Rank> order = ranks_in_region_order(request.topology);
  const std::size_t active_count = std::bit_floor(order.size());
  const std::size_t folded_count = order.size() - active_count;

  std::vector<Rank> active;
  builder.begin_round();
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (i < 2 * folded_count && i % 2 == 1) {
      builder.reduce(order[i], order[i - 1], tensor);
    } else {
      active.push_back(order[i]);
    }
  }
  for (std::size_t distance = 1; distance < active_count; distance *= 2) {
    builder.begin_round();
    for (std::size_t i = 0; i < active_count; ++i) {
      builder.reduce(active[i], active[i ^ distance], tensor);
    }
  }
  builder.begin_round();
  for (std::size_t i = 0; i < folded_count; ++i) {
    builder.copy(order[2 * i], order[2 * i + 1], tensor);
  }
  return std::move(builder).finish();
}

Result<Outline> outline_butterfly(const PlanRequest& request, const Parameters& /*parameters*/) {
  const std::vector<Rank> order = ranks_in_region_order(request.topology);
  const std::size_t active_count = std::bit_floor(order.size());
  const std::size_t folded_count = order.size() - active_count;
  Outline outline{.chunk = share_bytes(request, 1), .drift = folded_count > 0 ? 0.5 : 0};
  OutlineRound fold;
  std::vector<Rank> active;
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (i < 2 * folded_count && i % 2 == 1) {
      fold.flows.push_back({.from = order[i], .to = order[i - 1], .bytes = outline.chunk});
    } else {
      active.push_back(order[i]);
    }
  }
  if (folded_count > 0) outline.rounds.push_back(fold);
  for (std::size_t distance = 1; distance < active_count; distance *= 2) {
    OutlineRound& round = outline.rounds.emplace_back();
    for (std::size_t i = 0; i < active_count; ++i) {
      round.flows.push_back(
          {.from = active[i], .to = active[i ^ distance], .bytes = outline.chunk});
    }
  }
  if (folded_count > 0) outline.rounds.push_back(reversed({fold}).front());
  return outline;
}

}  // namespace

const Scheme kButterfly{
    .name = "butterfly",
    .summary = "recursive doubling: ranks at distance 1, 2, 4, … swap the whole tensor",
    .collectives = {Collective::kAllreduce},
    .parameters = {},
    .generate = generate_butterfly,
    .outline = outline_butterfly,
};

}  // namespace thalweg::plan
