// The parts of the SVG picture. Each part draws itself with its upper left corner at a given point,
// and knows its size.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "plan/draw/canvas.h"
#include "plan/draw/network.h"
#include "plan/draw/trees.h"

namespace thalweg::plan {

struct DrawSize {
  double width = 0;
  double height = 0;
};

// Blue and vermillion of Okabe and Ito's palette: they differ for every kind of colour vision, and
// in lightness.
inline constexpr std::string_view kReduceColor = "#0072b2";
inline constexpr std::string_view kCopyColor = "#d55e00";
inline constexpr std::string_view kFaintColor = "#d0d7de";
inline constexpr std::string_view kMutedColor = "#57606a";
inline constexpr std::string_view kInkColor = "#24292f";

inline std::string_view color_of(TransferKind kind) {
  return kind == TransferKind::kReduce ? kReduceColor : kCopyColor;
}

// The colour of a link that is busy for the fraction `load` (0 … 1) of the busiest link's time:
// from grey over light purple to dark purple.
std::string load_color(double load);
double load_width(double load);

// The fill of a region's box that has `height` levels of regions within it.
std::string_view region_fill(int height);

// The network in tiers, at least `width` wide.
class NetworkPart {
 public:
  NetworkPart(const topology::Topology& topology, const DrawColumns& columns,
              const DrawNetwork& network, double width);
  [[nodiscard]] DrawSize size() const { return size_; }
  void draw(DrawCanvas& canvas, DrawPoint corner) const;

 private:
  struct PlacedBox {
    DrawPoint center;
    double width = 0;
  };
  struct PlacedRegion {
    double left = 0;
    double right = 0;
    double top = 0;
    double bottom = 0;
  };

  void place_hosts(double width);
  void place_switches();
  void spread(std::vector<std::size_t>& boxes);
  void place_regions();
  [[nodiscard]] double tier_y(int tier) const;
  void draw_regions(DrawCanvas& canvas, DrawPoint corner) const;
  void draw_edges(DrawCanvas& canvas, DrawPoint corner) const;
  void draw_boxes(DrawCanvas& canvas, DrawPoint corner) const;

  const topology::Topology& topology_;
  const DrawColumns& columns_;
  const DrawNetwork& network_;
  double pitch_ = 0;
  double tier_height_ = 0;
  DrawSize size_;
  std::vector<PlacedBox> boxes_;
  std::vector<PlacedRegion> regions_;  // in the order of columns_.spans
};

// One tree, with hosts as columns and steps as rows.
class TreePart {
 public:
  // The part is as narrow as it reads well, and up to half as wide again to fill `width`.
  TreePart(const topology::Topology& topology, const DrawColumns& columns, const DrawTree& tree,
           double width);
  [[nodiscard]] DrawSize size() const { return size_; }
  void draw(DrawCanvas& canvas, DrawPoint corner) const;

 private:
  [[nodiscard]] double row_y(int row) const;
  // Whether a role is marked where an arrow ends, so that the arrow must end beside the mark to
  // stay visible.
  [[nodiscard]] bool marked(int column, int row) const;
  void draw_head(DrawCanvas& canvas, DrawPoint corner) const;
  void draw_rows(DrawCanvas& canvas, DrawPoint corner) const;
  void draw_arrows(DrawCanvas& canvas, DrawPoint corner) const;
  void draw_roles(DrawCanvas& canvas, DrawPoint corner) const;

  const topology::Topology& topology_;
  const DrawColumns& columns_;
  const DrawTree& tree_;
  double pitch_ = 0;
  double row_height_ = 0;
  std::vector<double> x_;  // the middle of each column
  DrawSize size_;
};

void draw_root_mark(DrawCanvas& canvas, DrawPoint center, std::string_view tooltip);
void draw_aggregator_mark(DrawCanvas& canvas, DrawPoint center, std::string_view tooltip);

}  // namespace thalweg::plan
