// BlueConnect (Cho, Finkler, Kung, SysML 2019): a ring allreduce that is split by levels of the
// network. First a ring reduce-scatter within each innermost region gives each host the region's
// sum of its block. Then, level by level, the hosts with the same block form rings across the
// regions and reduce-scatter it further. Then the all-gathers run in reverse. With w_1 hosts per
// innermost region, w_2 such regions per region above, … it has 2 Σ (w_i − 1) steps and the least
// traffic across every boundary.
//
// Regions of unequal size do not have the same blocks. So a block is an interval of the tensor, and
// where the intervals of the regions of one level do not coincide they are cut at one another's
// ends: on each resulting interval, every region has exactly one holder, and the holders make one
// ring. Each ring cuts its interval into one block per member, so every host ends with the part of
// the level above that its region's share requires.
//
// Ends lie on a grid of at least kLeastGrid cells, a multiple of the number of ranks: regions of
// equal size are cut exactly, into one chunk per rank, and unequal ones to within a cell, while the
// number of chunks stays within the grid.
#include <algorithm>
#include <ranges>

#include "base/int128.h"
#include "plan/schemes/parts.h"
#include "plan/schemes/schemes.h"

namespace thalweg::plan {
namespace {

constexpr std::int64_t kLeastGrid = 4096;

// Cells [begin, end), and the rank that holds its region's sum of them.
struct Holding {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  Rank holder;
};
// The holdings of a region, in order and without gaps; together they cover the grid.
using Holdings = std::vector<Holding>;

// members[i] reduces cells cuts[i] … cuts[i + 1].
struct GridRing {
  std::vector<Rank> members;
  std::vector<std::int64_t> cuts;
};

class BlueConnect {
 public:
  explicit BlueConnect(const topology::Topology& topology)
      : topology_(topology),
        cells_((kLeastGrid + topology.host_count() - 1) / topology.host_count() *
               topology.host_count()),
        final_(add_region(topology::kWholeNetwork).holdings) {}

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

  // One round a level, in which all its rings run; the largest ring says how often it repeats.
  [[nodiscard]] Outline outline(double bytes) const {
    const double cell = bytes / static_cast<double>(cells_);
    Outline outline;
    for (const Holding& holding : final_) {
      outline.chunk =
          std::max(outline.chunk, cell * static_cast<double>(holding.end - holding.begin));
    }
    // A block of the first rings has the chunks of all rings above, one after the other.
    outline.units = static_cast<double>(final_.size()) /
                    static_cast<double>(levels_.front().front().members.size());
    for (const std::vector<GridRing>& level : levels_) {
      OutlineRound rings{.repeat = 0};
      for (const GridRing& ring : level) {
        if (ring.members.size() < 2) continue;
        const double block = cell * static_cast<double>(ring.cuts.back() - ring.cuts.front()) /
                             static_cast<double>(ring.members.size());
        const OutlineRound one = ring_round(ring.members, block);
        rings.flows.insert(rings.flows.end(), one.flows.begin(), one.flows.end());
        rings.repeat = std::max(rings.repeat, one.repeat);
      }
      if (!rings.empty()) outline.rounds.push_back(std::move(rings));
    }
    outline.drift = outline.rounds.size() > 1 ? 0.3 : 0;
    outline.rounds = up_and_down(std::move(outline.rounds));
    return outline;
  }

 private:
  struct Reduced {
    Holdings holdings;
    std::size_t levels = 0;  // how many levels of rings it took
  };

  // Adds the rings that reduce a region, lower levels first.
  Reduced add_region(topology::RegionId id) {
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
    for (const topology::RegionId child : topology_.region(id).children) {
      if (topology_.region(child).hosts.empty()) continue;
      Reduced reduced = add_region(child);
      units.push_back(std::move(reduced.holdings));
      levels = std::max(levels, reduced.levels);
    }
    if (units.size() == 1) return {.holdings = std::move(units.front()), .levels = levels};
    return {.holdings = add_rings(units, levels), .levels = levels + 1};
  }

  // Adds the rings that reduce across `units`, each of which is already reduced.
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

  // Adds one chunk per final holding: every cut of every ring lies on an end of one.
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

  const topology::Topology& topology_;
  const std::int64_t cells_;
  std::vector<std::vector<GridRing>> levels_;  // starts with the innermost regions' level
  const Holdings final_;
};

Result<Plan> generate_blueconnect(const PlanRequest& request, const Parameters& /*parameters*/) {
  return BlueConnect(request.topology).write(plan_header(request));
}

Result<Outline> outline_blueconnect(const PlanRequest& request, const Parameters& /*parameters*/) {
  return BlueConnect(request.topology).outline(share_bytes(request, 1));
}

}  // namespace

const Scheme kBlueConnect{
    .name = "blueconnect",
    .summary = "rings within each region, then across them level by level, and back",
    .collectives = {Collective::kAllreduce},
    .parameters = {},
    .generate = generate_blueconnect,
    .outline = outline_blueconnect,
};

}  // namespace thalweg::plan
