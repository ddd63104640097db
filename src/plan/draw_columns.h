// The columns of a drawing: hosts in region order, or whole regions where the hosts are too many.
#pragma once

#include <string>
#include <vector>

#include "topology/topology.h"

namespace thalweg {

struct DrawColumn {
  std::string label;        // short: a rank, or "32 hosts"
  std::string name;         // of the host, or of the region
  std::vector<Rank> ranks;  // one, unless summarised
  RegionId region;          // that all of its hosts lie in
};

// A region over the columns first … last.
struct DrawSpan {
  RegionId region;
  int first = 0;
  int last = 0;
  int height = 0;  // 0: no span lies within it; else one above the highest that does
};

struct DrawColumns {
  std::vector<DrawColumn> columns;
  std::vector<int> column_of;   // per rank
  std::vector<DrawSpan> spans;  // outer before inner
  bool summarised = false;

  [[nodiscard]] int size() const { return static_cast<int>(columns.size()); }
  // Levels of nested spans.
  [[nodiscard]] int span_levels() const;
  // The middle of each column, from 0, `pitch` apart, with `gap` more for every region border.
  [[nodiscard]] std::vector<double> positions(double pitch, double gap) const;
};

DrawColumns draw_columns(const Topology& topology);

// "pod0-tor1" in a region of pod0 is "tor1": within the region's box the prefix says nothing.
std::string name_within(const Topology& topology, std::string_view name, RegionId region);

}  // namespace thalweg
