// BlueConnect (Cho, Finkler, Kung, SysML 2019): a ring allreduce taken apart by levels of the
// network. First a ring reduce-scatter within each innermost region, so that each host holds the
// region's sum of its block; then, level by level, rings across the regions in which the hosts
// with the same block reduce-scatter it further; then the all-gathers in reverse. With regions of
// w_1 hosts, w_2 regions a region above, … it has 2 Σ (w_i − 1) steps and the least traffic across
// every boundary.
//
// Regions of unequal size do not have the same blocks. So a block is an interval of the tensor, and
// where the intervals of the regions of one level do not coincide they are cut at one another's
// ends: on each interval that is left, every region has exactly one holder, and the holders make
// one ring. Each ring cuts its interval into one block a member, and so every host ends with the
// part of the level above that its region's share asks for.
//
// Ends lie on a grid of at least kLeastGrid cells, a multiple of the number of ranks: regions of
// equal size are cut exactly, into one chunk a rank, and unequal ones to within a cell, without the
// number of chunks growing beyond the grid.
#include <algorithm>
#include <ranges>

#include "base/int128.h"
#include "plan/schemes/parts.h"
#include "plan/schemes/schemes.h"

namespace thalweg {
namespace {

constexpr std::int64_t kLeastGrid = 4096;

// Cells [begin, end) and who holds the sum over its region of them.
struct Holding {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  Rank holder;
};
// Holdings of a region: in order, without gaps, the whole grid.
using Holdings = std::vector<Holding>;

// members[i] reduces cells cuts[i] … cuts[i + 1].
struct GridRing {
  std::vector<Rank> members;
  std::vector<std::int64_t> cuts;
};

class BlueConnect {
 public:
  explicit BlueConnect(const Topology& topology)
      : topology_(topology),
        cells_((kLeastGrid + topology.host_count() - 1) / topology.host_count() *
               topology.host_count()),
        final_(add_region(kWholeNetwork).holdings) {}

  Plan write(Plan header) const {
    PlanBuilder builder(std::move(header));
    const std::vector<ChunkIndex> chunks = add_chunks(builder);
    std::vector<std::vector<Ring>> levels;
    for (const std::vector<GridRing>& level : levels_) {
      std::vector<Ring>& rings = levels.emplace_back();
      for (const GridRing& ring : level) rings.push_back(with_chunks(ring, chunks));
    }
    for (const auto& level : levels) ring_reduce_scatter(builder, level);
    for (const auto& level : levels | std::views::reverse) ring_all_gather(builder, level);
    return std::move(builder).finish();
  }

 private:
  struct Reduced {
    Holdings holdings;
    std::size_t levels = 0;  // how many levels of rings it took
  };

  // Adds the rings that reduce a region, lower levels first.
  Reduced add_region(RegionId id) {
    std::vector<Holdings> units;
    std::size_t levels = 0;
    Holdings direct;
    for (const Rank rank : topology_.region(id).hosts) {
      if (topology_.region_of(rank) == id) direct.push_back({0, cells_, rank});
    }
    if (!direct.empty()) {
      std::vector<Holdings> hosts;
      hosts.reserve(direct.size());
      for (const Holding& host : direct) hosts.push_back({host});
      units.push_back(add_rings(hosts, 0));
      levels = 1;
    }
    for (const RegionId child : topology_.region(id).children) {
      if (topology_.region(child).hosts.empty()) continue;
      Reduced reduced = add_region(child);
      units.push_back(std::move(reduced.holdings));
      levels = std::max(levels, reduced.levels);
    }
    if (units.size() == 1) return {.holdings = std::move(units.front()), .levels = levels};
    return {.holdings = add_rings(units, levels), .levels = levels + 1};
  }

  // Adds the rings that reduce across `units`, each of which is reduced within.
  Holdings add_rings(const std::vector<Holdings>& units, std::size_t level) {
    if (levels_.size() <= level) levels_.resize(level + 1);
    const auto parts = static_cast<std::int64_t>(units.size());
    Holdings reduced;
    std::vector<std::size_t> at(units.size(), 0);
    for (std::int64_t begin = 0; begin < cells_;) {
      std::int64_t end = cells_;
      GridRing ring;
      for (std::size_t u = 0; u < units.size(); ++u) {
        end = std::min(end, units[u][at[u]].end);
        ring.members.push_back(units[u][at[u]].holder);
      }
      for (std::int64_t part = 0; part < parts; ++part) {
        const Share share = share_of(end - begin, parts, part);
        ring.cuts.push_back(begin + share.offset);
        if (share.length > 0) {
          reduced.push_back({ring.cuts.back(), ring.cuts.back() + share.length,
                             ring.members[static_cast<std::size_t>(part)]});
        }
      }
      ring.cuts.push_back(end);
      levels_[level].push_back(std::move(ring));
      for (std::size_t u = 0; u < units.size(); ++u) {
        if (units[u][at[u]].end == end) ++at[u];
      }
      begin = end;
    }
    return reduced;
  }

  // One chunk a final holding: every cut of every ring lies on an end of one.
  std::vector<ChunkIndex> add_chunks(PlanBuilder& builder) const {
    const auto element = [&](std::int64_t cell) {
      return static_cast<std::int64_t>(Int128{builder.plan().elements} * cell / cells_);
    };
    std::vector<ChunkIndex> chunks;
    for (const Holding& holding : final_) {
      const std::int64_t offset = element(holding.begin);
      chunks.push_back(
          builder.add_chunk({.offset = offset, .length = element(holding.end) - offset}));
    }
    return chunks;
  }

  Ring with_chunks(const GridRing& grid_ring, const std::vector<ChunkIndex>& chunks) const {
    const auto chunk_at = [&](std::int64_t cell) {
      const auto found = std::lower_bound(
          final_.begin(), final_.end(), cell,
          [](const Holding& holding, std::int64_t at) { return holding.begin < at; });
      return chunks.begin() + (found - final_.begin());
    };
    Ring ring{.members = grid_ring.members, .blocks = {}};
    for (std::size_t i = 0; i < ring.members.size(); ++i) {
      ring.blocks.emplace_back(chunk_at(grid_ring.cuts[i]), chunk_at(grid_ring.cuts[i + 1]));
    }
    return ring;
  }

  const Topology& topology_;
  const std::int64_t cells_;
  std::vector<std::vector<GridRing>> levels_;  // the innermost regions' first
  const Holdings final_;
};

Result<Plan> generate(const PlanRequest& request, const Parameters& /*parameters*/) {
  return BlueConnect(request.topology).write(plan_header(request));
}

}  // namespace

const Scheme kBlueConnect{
    .name = "blueconnect",
    .summary = "rings within each region, then across them level by level, and back",
    .collectives = {Collective::kAllreduce},
    .parameters = {},
    .generate = generate,
};

}  // namespace thalweg
