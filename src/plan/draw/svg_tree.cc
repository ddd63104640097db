#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "plan/draw/parts.h"

namespace thalweg::plan {
namespace {

constexpr double kGutter = 40;  // the step numbers on the left
constexpr double kTitle = 22;
constexpr double kBracket = 18;  // a line of region names
constexpr double kHeader = 20;   // the line of hosts
constexpr double kTreeRegionGap = 7;
constexpr double kSmall = 10;
constexpr double kMarkRadius = 5;

double pitch_for(const DrawColumns& columns) {
  if (columns.summarised) return 58;
  if (columns.size() <= 10) return 40;
  if (columns.size() <= 20) return 32;
  return columns.size() <= 40 ? 26 : 22;
}

// Rows are taller in wide panels, so that a long arrow does not look horizontal.
double row_height_for(int rows, double width) {
  const double most = std::clamp(width / 15, 44.0, 100.0);
  return std::clamp(std::max(240.0, width / 4) / std::max(rows, 1), 5.0, most);
}

}  // namespace

void draw_root_mark(DrawCanvas& canvas, DrawPoint center, std::string_view tooltip) {
  canvas.circle(center, 6, "#ffffff", {.color = kInkColor, .width = 1.6});
  canvas.circle(center, 3, kInkColor, {}, tooltip);
}

void draw_aggregator_mark(DrawCanvas& canvas, DrawPoint center, std::string_view tooltip) {
  canvas.circle(center, 4.5, "#ffffff", {.color = kReduceColor, .width = 2}, tooltip);
}

TreePart::TreePart(const topology::Topology& topology, const DrawColumns& columns,
                   const DrawTree& tree, double width)
    : topology_(topology), columns_(columns), tree_(tree) {
  const double least = pitch_for(columns);
  const double gaps = columns.positions(0, kTreeRegionGap).back();
  pitch_ = std::clamp((width - kGutter - gaps) / columns.size(), least, least * 1.5);
  x_ = columns.positions(pitch_, kTreeRegionGap);
  const double columns_width = x_.back() + pitch_ / 2;
  for (double& x : x_) x += kGutter;
  row_height_ = row_height_for(tree.rows, columns_width);
  size_.width = std::max(kGutter + columns_width, text_width(tree.title, 12, true));
  size_.height = row_y(tree.rows) + 12;
}

bool TreePart::marked(int column, int row) const {
  return std::any_of(tree_.roles.begin(), tree_.roles.end(), [=](const DrawRoleMark& mark) {
    return mark.column == column && mark.row == row;
  });
}

double TreePart::row_y(int row) const {
  return kTitle + columns_.span_levels() * kBracket + kHeader + 10 + row * row_height_;
}

void TreePart::draw(DrawCanvas& canvas, DrawPoint corner) const {
  canvas.text({corner.x, corner.y + 13}, tree_.title, {.size = 12, .bold = true});
  draw_head(canvas, corner);
  draw_rows(canvas, corner);
  draw_arrows(canvas, corner);
  draw_roles(canvas, corner);
}

// Draws the regions as bands over the whole height, with their names above, and the hosts.
void TreePart::draw_head(DrawCanvas& canvas, DrawPoint corner) const {
  const double bottom = row_y(tree_.rows) + 8;
  for (const DrawSpan& span : columns_.spans) {
    const double left = x_[static_cast<std::size_t>(span.first)] - pitch_ / 2 + 1;
    const double right = x_[static_cast<std::size_t>(span.last)] + pitch_ / 2 - 1;
    const double outside = 2.0 * span.height;
    const double top = kTitle + (columns_.span_levels() - 1 - span.height) * kBracket;
    canvas.box({corner.x + left - outside, corner.y + top}, right - left + 2 * outside,
               bottom + outside - top, region_fill(span.height),
               {.color = kFaintColor, .width = 0.8}, 4);
    const topology::Region& region = topology_.region(span.region);
    const std::string name = name_within(topology_, region.name, region.parent);
    canvas.text({corner.x + (left + right) / 2, corner.y + top + 13},
                fitted(name, kSmall, right - left - 4),
                {.size = kSmall, .anchor = DrawAnchor::kMiddle, .color = kMutedColor});
  }
  const double top = kTitle + columns_.span_levels() * kBracket;
  for (std::size_t c = 0; c < x_.size(); ++c) {
    const DrawColumn& column = columns_.columns[c];
    canvas.line({corner.x + x_[c], corner.y + top + kHeader},
                {corner.x + x_[c], corner.y + row_y(tree_.rows)}, {.color = "#b1bac4", .width = 1});
    const double width = std::min(pitch_ - 4, columns_.summarised ? 54.0 : 30.0);
    canvas.box({corner.x + x_[c] - width / 2, corner.y + top}, width, kHeader - 2, "#ffffff",
               {.color = kInkColor, .width = 0.8}, 3, column.name);
    const std::string& label = columns_.summarised ? column.name : column.label;
    canvas.text({corner.x + x_[c], corner.y + top + 13}, fitted(label, kSmall, width),
                {.size = kSmall, .anchor = DrawAnchor::kMiddle});
  }
}

// Writes the step number beside every row that has room for it.
void TreePart::draw_rows(DrawCanvas& canvas, DrawPoint corner) const {
  const int every = static_cast<int>(std::ceil(kSmall * 1.2 / row_height_));
  canvas.text({corner.x, corner.y + row_y(0) - 6}, "step", {.size = kSmall, .color = kMutedColor});
  for (int row = 1; row <= tree_.rows; ++row) {
    if (row % every != 0) continue;
    const int last = row * tree_.steps_per_row;
    canvas.text({corner.x + kGutter - 12, corner.y + (row_y(row - 1) + row_y(row)) / 2 + 4},
                std::to_string(last),
                {.size = kSmall, .anchor = DrawAnchor::kEnd, .color = kMutedColor});
  }
}

void TreePart::draw_arrows(DrawCanvas& canvas, DrawPoint corner) const {
  for (const DrawArrow& arrow : tree_.arrows) {
    const DrawColumn& from = columns_.columns[static_cast<std::size_t>(arrow.from)];
    const DrawColumn& to = columns_.columns[static_cast<std::size_t>(arrow.to)];
    const DrawPoint start{corner.x + x_[static_cast<std::size_t>(arrow.from)],
                          corner.y + row_y(arrow.row - 1)};
    DrawPoint end{corner.x + x_[static_cast<std::size_t>(arrow.to)], corner.y + row_y(arrow.row)};
    const std::string what = arrow.count > 1 ? fmt::format("{} transfers, ", arrow.count) : "";
    const std::string tooltip =
        fmt::format("step {}: {}{} {} → {}", arrow.row * tree_.steps_per_row, what,
                    arrow.kind == TransferKind::kReduce ? "reduce" : "copy", from.name, to.name);
    const double width = arrow.count > 1 ? 2.4 : 1.4;
    const DrawStroke stroke{.color = color_of(arrow.kind), .width = width};
    if (arrow.from != arrow.to && marked(arrow.to, arrow.row)) {
      const double length = std::hypot(end.x - start.x, end.y - start.y);
      end.x -= (end.x - start.x) / length * kMarkRadius;
      end.y -= (end.y - start.y) / length * kMarkRadius;
    }
    if (arrow.from == arrow.to) {
      canvas.line(start, end, {.color = stroke.color, .width = 5}, tooltip);
    } else {
      canvas.arrow(start, end, stroke, std::clamp(row_height_ * 0.6, 4.5, 8.0), tooltip);
    }
  }
}

void TreePart::draw_roles(DrawCanvas& canvas, DrawPoint corner) const {
  for (const DrawRoleMark& mark : tree_.roles) {
    const DrawPoint center{corner.x + x_[static_cast<std::size_t>(mark.column)],
                           corner.y + row_y(mark.row)};
    if (mark.role == DrawRole::kRoot) {
      draw_root_mark(canvas, center, fmt::format("root: rank {}", mark.rank.value()));
    } else {
      draw_aggregator_mark(canvas, center, fmt::format("aggregator: rank {}", mark.rank.value()));
    }
  }
}

}  // namespace thalweg::plan
