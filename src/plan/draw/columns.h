// The columns of a drawing: hosts in region order, or whole regions if there are too many hosts.
#pragma once

#include <string>
#include <vector>

#include "topology/topology.h"

namespace thalweg::plan {

struct DrawColumn {
  std::string label;          // short: a rank, or "32 hosts"
  std::string name;           // name of the host, or of the region
  std::vector<Rank> ranks;    // one rank, unless summarised
  topology::RegionId region;  // a region that holds all its hosts
};

// A region that covers the columns first … last.
struct DrawSpan {
  topology::RegionId region;
  int first = 0;
  int last = 0;
  int height = 0;  // 0: no span lies within it; else one more than the highest within it
};

struct DrawColumns {
  std::vector<DrawColumn> columns;
  std::vector<int> column_of;   // per rank
  std::vector<DrawSpan> spans;  // outer before inner
  bool summarised = false;

  [[nodiscard]] int size() const { return static_cast<int>(columns.size()); }
  // How many levels of spans are nested.
  [[nodiscard]] int span_levels() const;
  // The middle of each column, from 0, `pitch` apart, with `gap` more for every region border.
  [[nodiscard]] std::vector<double> positions(double pitch, double gap) const;
};

DrawColumns draw_columns(const topology::Topology& topology);

// Shortens a name within a region's box: in pod0, "pod0-tor1" becomes "tor1".
std::string name_within(const topology::Topology& topology, std::string_view name,
                        topology::RegionId region);

}  // namespace thalweg::plan
