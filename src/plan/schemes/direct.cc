// Direct exchange: every rank sends to every other in one step. Each starts with the rank after its
// own and goes round, so that sends made in plan order do not all meet at the first rank.
#include "plan/schemes/parts.h"
#include "plan/schemes/schemes.h"

namespace thalweg::plan {
namespace {

// Calls visit(i, j) for all positions i ≠ j: 0 to 1, 1 to 2, …; then 0 to 2, 1 to 3, ….
template <class Visit>
void for_each_pair(std::size_t n, Visit visit) {
  for (std::size_t distance = 1; distance < n; ++distance) {
    for (std::size_t i = 0; i < n; ++i) visit(i, (i + distance) % n);
  }
}

Plan all_to_all(const PlanRequest& request, const std::vector<Rank>& order) {
  PlanBuilder builder(plan_header(request));
  const std::size_t n = order.size();
  const auto share = [&](std::size_t j) {
    return share_of(request.elements, static_cast<std::int64_t>(n), order[j].value());
  };
  std::vector<ChunkIndex> chunks;  // [source][target]
  chunks.reserve(n * n);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < n; ++j) {
      chunks.push_back(builder.add_chunk(share(j), order[i], order[j]));
    }
  }
  for_each_pair(n, [&](std::size_t i, std::size_t j) {
    builder.copy(order[i], order[j], chunks[i * n + j]);
  });
  return std::move(builder).finish();
}

// Every rank sends to the root or receives from it; the root's own share stays where it is.
Plan with_root(const PlanRequest& request, const std::vector<Rank>& order) {
  PlanBuilder builder(plan_header(request));
  const bool gather = request.collective == Collective::kGather;
  for (const Rank rank : order) {
    const Share share =
        share_of(request.elements, static_cast<std::int64_t>(order.size()), rank.value());
    const Rank source = gather ? rank : request.root;
    const Rank target = gather ? request.root : rank;
    const ChunkIndex chunk = builder.add_chunk(share, source, target);
    if (rank != request.root) builder.copy(source, target, chunk);
  }
  return std::move(builder).finish();
}

Result<Plan> generate_direct(const PlanRequest& request, const Parameters& /*parameters*/) {
  const std::vector<Rank> order = ranks_in_region_order(request.topology);
  if (request.collective == Collective::kAllToAll) return all_to_all(request, order);
  if (has_root(request.collective)) return with_root(request, order);

  PlanBuilder builder(plan_header(request));
  const std::vector<ChunkIndex> shares = add_rank_shares(builder, order);
  builder.begin_round();
  for_each_pair(order.size(), [&](std::size_t i, std::size_t j) {
    if (request.collective == Collective::kReduceScatter) {
      builder.reduce(order[i], order[j], shares[j]);
    } else {
      builder.copy(order[i], order[j], shares[i]);
    }
  });
  return std::move(builder).finish();
}

}  // namespace

const Scheme kDirect{
    .name = "direct",
    .summary = "every rank sends to every other (or the root), one step",
    .collectives = {Collective::kAllToAll, Collective::kReduceScatter, Collective::kAllGather,
                    Collective::kGather, Collective::kScatter},
    .parameters = {},
    .generate = generate_direct,
};

}  // namespace thalweg::plan
