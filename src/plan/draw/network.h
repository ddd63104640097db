// The network as a drawing shows it: boxes in tiers, joined by edges that carry a load.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "plan/accounting.h"
#include "plan/draw/columns.h"

namespace thalweg::plan {

// A host, a switch or, in a summary, several of them.
struct DrawBox {
  std::string label;
  std::string tooltip;
  int tier = 0;     // hops from the nearest host; hosts are tier 0
  int column = -1;  // hosts only
  topology::RegionId region;
  int nodes = 0;
};

// The links between two boxes.
struct DrawEdge {
  int a = 0;  // index of a box; the lower tier, or the smaller index
  int b = 0;
  int links = 0;
  // Per direction, a → b and back: the most bytes that one link carries, and how long that takes at
  // its rate, as a fraction of the time of the slowest arc of all.
  std::array<double, 2> bytes{};
  std::array<double, 2> load{};
  Bandwidth rate;  // rate of the slowest link
};

struct DrawNetwork {
  std::vector<DrawBox> boxes;
  std::vector<DrawEdge> edges;
  int tiers = 1;
};

DrawNetwork draw_network(const topology::Topology& topology, const Accounting& accounting,
                         const DrawColumns& columns);

}  // namespace thalweg::plan
