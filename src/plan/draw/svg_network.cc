#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "plan/draw/parts.h"

namespace thalweg::plan {
namespace {

constexpr double kLeastTierHeight = 92;
constexpr double kMostTierHeight = 150;
constexpr double kBoxHeight = 22;
constexpr double kRegionGap = 16;     // between neighbouring regions, per level
constexpr double kRegionPadding = 7;  // between nested regions' borders
constexpr double kRegionLabel = 17;   // the line of a region's name, below its hosts
constexpr double kLeastPitch = 24;
constexpr double kMostPitch = 96;
constexpr double kMostSwitchWidth = 130;
constexpr double kNameSize = 11;

struct Rgb {
  double r = 0;
  double g = 0;
  double b = 0;
};
constexpr std::array<Rgb, 4> kLoadScale{
    {{214, 214, 222}, {178, 158, 206}, {122, 76, 170}, {58, 5, 104}}};

}  // namespace

std::string load_color(double load) {
  const double at = std::clamp(load, 0.0, 1.0) * (kLoadScale.size() - 1);
  const auto below = std::min(static_cast<std::size_t>(at), kLoadScale.size() - 2);
  const double part = at - static_cast<double>(below);
  const Rgb& a = kLoadScale.at(below);
  const Rgb& b = kLoadScale.at(below + 1);
  const auto mix = [part](double x, double y) { return static_cast<int>(x + (y - x) * part); };
  return fmt::format("#{:02x}{:02x}{:02x}", mix(a.r, b.r), mix(a.g, b.g), mix(a.b, b.b));
}

double load_width(double load) { return 1.2 + 3.3 * std::clamp(load, 0.0, 1.0); }

std::string_view region_fill(int height) {
  constexpr std::array<std::string_view, 3> kFills{"#f6f8fa", "#eef2f6", "#e6ebf1"};
  return kFills.at(static_cast<std::size_t>(std::min(height, 2)));
}

NetworkPart::NetworkPart(const topology::Topology& topology, const DrawColumns& columns,
                         const DrawNetwork& network, double width)
    : topology_(topology), columns_(columns), network_(network), boxes_(network.boxes.size()) {
  place_hosts(width);
  place_switches();
  place_regions();
  const double below = columns.span_levels() * (kRegionLabel + 2);
  size_.height = tier_y(0) + kBoxHeight / 2 + 8 + below + 4;
}

double NetworkPart::tier_y(int tier) const {
  const double top = kBoxHeight / 2 + 10 + columns_.span_levels() * kRegionPadding;
  return top + tier_height_ * (network_.tiers - 1 - tier);
}

// Places columns as far apart as the width allows, within limits, and centres them all.
void NetworkPart::place_hosts(double width) {
  const double edge = columns_.span_levels() * kRegionPadding + 4;
  const double gaps = columns_.positions(0, kRegionGap).back();
  const double room = width - 2 * edge - gaps;
  pitch_ = std::clamp(room / columns_.size(), columns_.summarised ? 62 : kLeastPitch, kMostPitch);
  const std::vector<double> x = columns_.positions(pitch_, kRegionGap);
  const double used = x.back() + pitch_ / 2 + 2 * edge;
  size_.width = std::max(used, width);
  // Steep enough that the links of a wide network do not run along its boxes.
  tier_height_ = std::clamp(size_.width / 13, kLeastTierHeight, kMostTierHeight);
  const double left = (size_.width - used) / 2 + edge;
  for (std::size_t b = 0; b < boxes_.size(); ++b) {
    const int column = network_.boxes[b].column;
    if (column < 0) continue;
    boxes_[b] = {.center = {left + x[static_cast<std::size_t>(column)], tier_y(0)},
                 .width = std::min(pitch_ - 5, columns_.summarised ? 78.0 : 40.0)};
  }
}

// Places the switches of each region over the middle of its hosts, tier by tier, then moves them
// apart where they would overlap.
void NetworkPart::place_switches() {
  for (int tier = 1; tier < network_.tiers; ++tier) {
    std::map<topology::RegionId, std::vector<std::size_t>> by_region;
    std::vector<std::size_t> all;
    for (std::size_t b = 0; b < boxes_.size(); ++b) {
      if (network_.boxes[b].tier != tier) continue;
      by_region[network_.boxes[b].region].push_back(b);
      all.push_back(b);
    }
    for (const auto& [region, members] : by_region) {
      double left = size_.width;
      double right = 0;
      for (std::size_t b = 0; b < boxes_.size(); ++b) {
        if (network_.boxes[b].column < 0) continue;
        if (!topology_.contains(region, network_.boxes[b].region)) continue;
        left = std::min(left, boxes_[b].center.x - pitch_ / 2);
        right = std::max(right, boxes_[b].center.x + pitch_ / 2);
      }
      if (right < left) std::tie(left, right) = std::pair(0.0, size_.width);
      const double share = (right - left) / static_cast<double>(members.size());
      for (std::size_t i = 0; i < members.size(); ++i) {
        const double wanted = text_width(network_.boxes[members[i]].label, kNameSize) + 14;
        boxes_[members[i]] = {
            .center = {left + share * (static_cast<double>(i) + 0.5), tier_y(tier)},
            .width = std::clamp(wanted, 26.0, std::clamp(share - 8, 26.0, kMostSwitchWidth))};
      }
    }
    spread(all);
  }
}

void NetworkPart::spread(std::vector<std::size_t>& boxes) {
  constexpr double kSpace = 6;
  std::sort(boxes.begin(), boxes.end(), [&](std::size_t a, std::size_t b) {
    return std::pair(boxes_[a].center.x, a) < std::pair(boxes_[b].center.x, b);
  });
  for (std::size_t i = 1; i < boxes.size(); ++i) {
    const PlacedBox& before = boxes_[boxes[i - 1]];
    PlacedBox& box = boxes_[boxes[i]];
    const double least = before.center.x + (before.width + box.width) / 2 + kSpace;
    box.center.x = std::max(box.center.x, least);
    size_.width = std::max(size_.width, box.center.x + box.width / 2 + kSpace);
  }
}

// A region's box holds its hosts, the switches in it and the boxes of the regions in it; its name
// stands below its hosts, where no link passes.
void NetworkPart::place_regions() {
  for (const DrawSpan& span : columns_.spans) {
    PlacedRegion placed{.left = size_.width, .right = 0, .top = tier_y(0), .bottom = 0};
    const double padding = kRegionPadding * span.height + 4;
    for (std::size_t b = 0; b < boxes_.size(); ++b) {
      if (!topology_.contains(span.region, network_.boxes[b].region)) continue;
      const bool host = network_.boxes[b].column >= 0;
      const double half = host ? pitch_ / 2 - 2 : boxes_[b].width / 2 + 2;
      placed.left = std::min(placed.left, boxes_[b].center.x - half - padding);
      placed.right = std::max(placed.right, boxes_[b].center.x + half + padding);
      placed.top = std::min(placed.top, boxes_[b].center.y);
    }
    placed.top -= kBoxHeight / 2 + 6 + kRegionPadding * span.height;
    placed.bottom = tier_y(0) + kBoxHeight / 2 + 6 + (span.height + 1) * (kRegionLabel + 2);
    regions_.push_back(placed);
  }
}

void NetworkPart::draw(DrawCanvas& canvas, DrawPoint corner) const {
  draw_regions(canvas, corner);
  draw_edges(canvas, corner);
  draw_boxes(canvas, corner);
}

void NetworkPart::draw_regions(DrawCanvas& canvas, DrawPoint corner) const {
  for (std::size_t i = 0; i < regions_.size(); ++i) {
    const PlacedRegion& placed = regions_[i];
    const DrawSpan& span = columns_.spans[i];
    const topology::Region& region = topology_.region(span.region);
    canvas.box({corner.x + placed.left, corner.y + placed.top}, placed.right - placed.left,
               placed.bottom - placed.top, region_fill(span.height),
               {.color = kFaintColor, .width = 1}, 6, region.name);
    const double middle = corner.x + (placed.left + placed.right) / 2;
    canvas.text({middle, corner.y + placed.bottom - 6},
                fitted(name_within(topology_, region.name, region.parent), kNameSize,
                       placed.right - placed.left - 8),
                {.size = kNameSize, .anchor = DrawAnchor::kMiddle, .color = kMutedColor});
  }
}

void NetworkPart::draw_edges(DrawCanvas& canvas, DrawPoint corner) const {
  for (const DrawEdge& edge : network_.edges) {
    const PlacedBox& low = boxes_[static_cast<std::size_t>(edge.a)];
    const PlacedBox& high = boxes_[static_cast<std::size_t>(edge.b)];
    const std::string& low_name = network_.boxes[static_cast<std::size_t>(edge.a)].tooltip;
    const std::string& high_name = network_.boxes[static_cast<std::size_t>(edge.b)].tooltip;
    const DrawPoint a{corner.x + low.center.x, corner.y + low.center.y};
    const DrawPoint b{corner.x + high.center.x, corner.y + high.center.y};
    // The two directions lie side by side, upwards on the left.
    const double length = std::max(std::hypot(b.x - a.x, b.y - a.y), 1.0);
    const DrawPoint aside{(b.y - a.y) / length, (a.x - b.x) / length};
    const double apart = (load_width(edge.load[0]) + load_width(edge.load[1])) / 4 + 0.5;
    for (const std::size_t side : {0U, 1U}) {
      const double shift = side == 0 ? apart : -apart;
      const DrawPoint from{a.x + aside.x * shift, a.y + aside.y * shift};
      const DrawPoint to{b.x + aside.x * shift, b.y + aside.y * shift};
      const std::string color = load_color(edge.load[side]);
      const DrawStroke stroke{.color = color, .width = load_width(edge.load[side])};
      const std::string tooltip = fmt::format(
          "{} → {}: {} at {}{}", side == 0 ? low_name : high_name, side == 0 ? high_name : low_name,
          to_human(Bytes(static_cast<std::int64_t>(std::llround(edge.bytes[side])))),
          to_string(edge.rate),
          edge.links > 1 ? fmt::format(", the busiest of {} links", edge.links) : "");
      if (low.center.y == high.center.y) {
        canvas.bow(from, to, 24 + shift * 2, stroke, tooltip);
      } else {
        canvas.line(from, to, stroke, tooltip);
      }
    }
  }
}

void NetworkPart::draw_boxes(DrawCanvas& canvas, DrawPoint corner) const {
  for (std::size_t b = 0; b < boxes_.size(); ++b) {
    const DrawBox& box = network_.boxes[b];
    const PlacedBox& placed = boxes_[b];
    const bool host = box.column >= 0;
    const DrawPoint center{corner.x + placed.center.x, corner.y + placed.center.y};
    canvas.box({center.x - placed.width / 2, center.y - kBoxHeight / 2}, placed.width, kBoxHeight,
               host ? "#ffffff" : "#32383f", {.color = kInkColor, .width = 1}, host ? 4 : 2,
               box.tooltip);
    canvas.text({center.x, center.y + 4}, fitted(box.label, kNameSize, placed.width - 2),
                {.size = kNameSize,
                 .anchor = DrawAnchor::kMiddle,
                 .color = host ? kInkColor : std::string_view("#ffffff")});
  }
}

}  // namespace thalweg::plan
