#include "plan/draw/columns.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>

#include "plan/draw/draw.h"
#include "plan/scheme.h"

namespace thalweg::plan {
namespace {

// The most columns that a summary may have.
constexpr std::size_t kMaxSummaryColumns = 32;

// The region at `depth` that holds `region`, or the region itself if it is no deeper.
topology::RegionId ancestor_at(const topology::Topology& topology, topology::RegionId region,
                               int depth) {
  while (topology.region(region).depth > depth) region = topology.region(region).parent;
  return region;
}

int deepest(const topology::Topology& topology) {
  int depth = 0;
  for (const topology::Region& region : topology.regions()) depth = std::max(depth, region.depth);
  return depth;
}

std::vector<DrawColumn> column_per_host(const topology::Topology& topology,
                                        const std::vector<Rank>& order) {
  std::vector<DrawColumn> columns;
  columns.reserve(order.size());
  for (const Rank rank : order) {
    columns.push_back({.label = std::to_string(rank.value()),
                       .name = topology.node(topology.host(rank)).name,
                       .ranks = {rank},
                       .region = topology.region_of(rank)});
  }
  return columns;
}

// The hosts grouped by their region at `depth`; empty if there are too many groups or only one.
std::optional<std::vector<DrawColumn>> column_per_region(const topology::Topology& topology,
                                                         const std::vector<Rank>& order,
                                                         int depth) {
  std::vector<DrawColumn> columns;
  for (const Rank rank : order) {
    const topology::RegionId region = ancestor_at(topology, topology.region_of(rank), depth);
    if (columns.empty() || columns.back().region != region) {
      columns.push_back(
          {.label = "", .name = topology.region(region).name, .ranks = {}, .region = region});
    }
    columns.back().ranks.push_back(rank);
  }
  if (columns.size() < 2 || columns.size() > kMaxSummaryColumns) return std::nullopt;
  return columns;
}

// Groups neighbouring hosts into blocks, for a flat network without regions.
std::vector<DrawColumn> column_per_block(const std::vector<Rank>& order) {
  const std::size_t block = (order.size() + kMaxSummaryColumns - 1) / kMaxSummaryColumns;
  std::vector<DrawColumn> columns;
  for (std::size_t i = 0; i < order.size(); i += block) {
    const std::size_t end = std::min(order.size(), i + block);
    columns.push_back({.label = "",
                       .name = fmt::format("{}–{}", order[i].value(), order[end - 1].value()),
                       .ranks = {order.begin() + static_cast<std::ptrdiff_t>(i),
                                 order.begin() + static_cast<std::ptrdiff_t>(end)},
                       .region = topology::kWholeNetwork});
  }
  return columns;
}

std::vector<DrawColumn> summary(const topology::Topology& topology,
                                const std::vector<Rank>& order) {
  for (int depth = deepest(topology); depth > 0; --depth) {
    if (auto columns = column_per_region(topology, order, depth)) return *std::move(columns);
  }
  return column_per_block(order);
}

// The regions that cover whole columns; a region that is a column, or lies within one, has no span.
std::vector<DrawSpan> spans_over(const topology::Topology& topology, const DrawColumns& drawn) {
  std::vector<DrawSpan> spans;
  for (std::size_t r = 1; r < topology.regions().size(); ++r) {
    const topology::RegionId region(static_cast<std::int32_t>(r));
    DrawSpan span{.region = region, .first = drawn.size(), .last = -1};
    for (int c = 0; c < drawn.size(); ++c) {
      const DrawColumn& column = drawn.columns[static_cast<std::size_t>(c)];
      const bool itself = drawn.summarised && column.region == region;
      if (itself || !topology.contains(region, column.region)) continue;
      span.first = std::min(span.first, c);
      span.last = std::max(span.last, c);
    }
    if (span.last >= 0) spans.push_back(span);
  }
  const auto order = [&](const DrawSpan& span) {
    return std::pair(topology.region(span.region).depth, span.region);
  };
  std::sort(spans.begin(), spans.end(),
            [&](const DrawSpan& a, const DrawSpan& b) { return order(a) < order(b); });
  for (std::size_t i = spans.size(); i-- > 0;) {
    for (std::size_t j = i + 1; j < spans.size(); ++j) {
      if (topology.contains(spans[i].region, spans[j].region)) {
        spans[i].height = std::max(spans[i].height, spans[j].height + 1);
      }
    }
  }
  return spans;
}

}  // namespace

int DrawColumns::span_levels() const {
  int levels = 0;
  for (const DrawSpan& span : spans) levels = std::max(levels, span.height + 1);
  return levels;
}

std::vector<double> DrawColumns::positions(double pitch, double gap) const {
  std::vector<double> middles;
  double x = pitch / 2;
  for (int c = 0; c < size(); ++c) {
    if (c > 0) {
      int ending = 0;
      int starting = 0;
      for (const DrawSpan& span : spans) {
        if (span.last == c - 1) ++ending;
        if (span.first == c) ++starting;
      }
      x += pitch + gap * std::max(ending, starting);
    }
    middles.push_back(x);
  }
  return middles;
}

DrawColumns draw_columns(const topology::Topology& topology) {
  const std::vector<Rank> order = ranks_in_region_order(topology);
  DrawColumns drawn;
  drawn.summarised = topology.host_count() > kMaxDrawnHosts;
  drawn.columns = drawn.summarised ? summary(topology, order) : column_per_host(topology, order);
  drawn.column_of.resize(order.size());
  for (int c = 0; c < drawn.size(); ++c) {
    DrawColumn& column = drawn.columns[static_cast<std::size_t>(c)];
    if (drawn.summarised) column.label = fmt::format("{} hosts", column.ranks.size());
    for (const Rank rank : column.ranks) drawn.column_of[rank.index()] = c;
  }
  drawn.spans = spans_over(topology, drawn);
  return drawn;
}

std::string name_within(const topology::Topology& topology, std::string_view name,
                        topology::RegionId region) {
  constexpr std::string_view kSeparators = "-_./:";
  for (; region.valid(); region = topology.region(region).parent) {
    const std::string& prefix = topology.region(region).name;
    if (!prefix.empty() && name.size() > prefix.size() + 1 && name.starts_with(prefix) &&
        kSeparators.find(name[prefix.size()]) != std::string_view::npos) {
      return std::string(name.substr(prefix.size() + 1));
    }
  }
  return std::string(name);
}

}  // namespace thalweg::plan
