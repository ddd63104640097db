// The picture, from top to bottom: a description of the plan, the network with the load of its
// links, and the trees side by side in as many columns as fit.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "plan/draw/draw.h"
#include "plan/draw/parts.h"

namespace thalweg::plan {
namespace {

constexpr double kMargin = 24;
constexpr double kLeastWidth = 860;
constexpr double kPanelGap = 36;
constexpr double kTitleSize = 17;
constexpr double kTextSize = 12;

// Panels stand side by side as long as they fit into this width.
constexpr double kMostPanelsWidth = 1500;

std::string title_of(const Plan& plan, const topology::Topology& topology) {
  return fmt::format("{}: {} of {} among {} ranks", plan.scheme, name_of(plan.collective),
                     to_human(plan.size()), plan.ranks) +
         (topology.name().empty() ? "" : " on " + topology.name());
}

std::string facts_of(const PlanProof& proof, const Accounting& accounting) {
  return fmt::format("{} step{} · {} across regions · {} sent in all", proof.steps,
                     proof.steps == 1 ? "" : "s", to_human(accounting.cross_region),
                     to_human(accounting.total));
}

class Picture {
 public:
  Picture(const Plan& plan, const PlanProof& proof, const topology::Topology& topology,
          const Accounting& accounting, const DrawOptions& options)
      : plan_(plan),
        proof_(proof),
        topology_(topology),
        accounting_(accounting),
        columns_(draw_columns(topology)),
        network_(draw_network(topology, accounting, columns_)),
        trees_(draw_trees(plan, proof, columns_, options)) {
    make_panels(0);
  }

  std::string draw() {
    arrange();
    heading();
    network();
    if (!panels_.empty()) {
      tree_legend();
      panels();
    }
    return std::move(canvas_).finish(width_ + 2 * kMargin, y_ + kMargin, title());
  }

 private:
  [[nodiscard]] std::string title() const { return title_of(plan_, topology_); }

  void make_panels(double width) {
    panels_.clear();
    for (const DrawTree& tree : trees_) panels_.emplace_back(topology_, columns_, tree, width);
  }

  // Sets the width: that of the title or of a row of panels, and at least kLeastWidth.
  void arrange() {
    double panel_width = 0;
    for (const TreePart& panel : panels_) panel_width = std::max(panel_width, panel.size().width);
    if (!panels_.empty()) {
      const double fit = (kMostPanelsWidth + kPanelGap) / (panel_width + kPanelGap);
      per_row_ = std::clamp<std::size_t>(static_cast<std::size_t>(fit), 1, panels_.size());
      // Four panels look better as two rows of two than as three and one.
      const std::size_t rows = (panels_.size() + per_row_ - 1) / per_row_;
      per_row_ = (panels_.size() + rows - 1) / rows;
    }
    const auto per_row = static_cast<double>(per_row_);
    width_ = std::max({kLeastWidth, text_width(title(), kTitleSize, true),
                       per_row * (panel_width + kPanelGap) - kPanelGap});
    network_part_.emplace(topology_, columns_, network_, width_);
    width_ = std::max(width_, network_part_->size().width);
    panel_pitch_ = (width_ + kPanelGap) / per_row;
    make_panels(panel_pitch_ - kPanelGap);
  }

  void line_of_text(std::string_view text, const DrawTextStyle& style) {
    y_ += style.size * 1.6;
    canvas_.text({kMargin, y_}, text, style);
  }

  void heading() {
    line_of_text(title(), {.size = kTitleSize, .bold = true});
    line_of_text(facts_of(proof_, accounting_), {.size = kTextSize + 1});
    if (columns_.summarised) {
      line_of_text(fmt::format("{} hosts are too many to draw one by one: each box stands for "
                               "several, and a thick bar in a column for transfers within it.",
                               topology_.host_count()),
                   {.size = kTextSize, .color = kCopyColor});
    }
    load_legend();
  }

  // Draws the colour scale of the links with numbers, and names the slowest link.
  void load_legend() {
    constexpr double kScale = 180;
    constexpr int kPatches = 36;
    y_ += 26;
    const std::string caption = "Link busy time (bytes ÷ rate), each direction:";
    canvas_.text({kMargin, y_}, caption, {.size = kTextSize});
    const std::string none = "0";
    double x = kMargin + text_width(caption, kTextSize) + 12;
    canvas_.text({x, y_}, none, {.size = kTextSize, .anchor = DrawAnchor::kEnd});
    x += 6;
    for (int i = 0; i < kPatches; ++i) {
      const double load = (i + 0.5) / kPatches;
      const double height = load_width(load) * 2.6;
      canvas_.box({x + kScale * i / kPatches, y_ - 4 - height / 2}, kScale / kPatches + 0.5, height,
                  load_color(load), {});
    }
    x += kScale + 8;
    canvas_.text({x, y_}, to_human(accounting_.slowest_arc_time), {.size = kTextSize});
    const topology::ArcId slowest = accounting_.slowest_arc;
    if (slowest.valid()) {
      const auto bytes =
          static_cast<std::int64_t>(std::llround(accounting_.arc_bytes[slowest.index()]));
      line_of_text(fmt::format("Slowest link: {} with {} at {}", topology_.arc_name(slowest),
                               to_human(Bytes(bytes)), to_string(topology_.arc(slowest).spec.rate)),
                   {.size = kTextSize, .color = kMutedColor});
    }
    y_ += 18;
  }

  void network() {
    network_part_->draw(canvas_, {kMargin, y_});
    y_ += network_part_->size().height;
  }

  [[nodiscard]] bool has_kind(TransferKind kind) const {
    return std::any_of(trees_.begin(), trees_.end(), [kind](const DrawTree& tree) {
      return std::any_of(tree.arrows.begin(), tree.arrows.end(),
                         [kind](const DrawArrow& arrow) { return arrow.kind == kind; });
    });
  }
  [[nodiscard]] bool has_role(DrawRole role) const {
    return std::any_of(trees_.begin(), trees_.end(), [role](const DrawTree& tree) {
      return std::any_of(tree.roles.begin(), tree.roles.end(),
                         [role](const DrawRoleMark& mark) { return mark.role == role; });
    });
  }

  void tree_legend() {
    y_ += 34;
    double x = kMargin;
    const auto entry = [&](std::string_view text, auto sample, double room) {
      sample(DrawPoint{x, y_ - 4});
      canvas_.text({x + room, y_}, text, {.size = kTextSize});
      x += room + text_width(text, kTextSize) + 14;
    };
    const auto arrow_in = [&](TransferKind kind) {
      return [this, kind](DrawPoint at) {
        canvas_.arrow(at, {at.x + 30, at.y}, {.color = color_of(kind), .width = 1.8}, 8);
      };
    };
    if (has_kind(TransferKind::kReduce)) {
      entry("reduce (adds to the receiver's)", arrow_in(TransferKind::kReduce), 38);
    }
    if (has_kind(TransferKind::kCopy)) {
      entry("copy (replaces the receiver's)", arrow_in(TransferKind::kCopy), 38);
    }
    if (has_role(DrawRole::kRoot)) {
      entry("root", [this](DrawPoint at) { draw_root_mark(canvas_, {at.x + 8, at.y}, ""); }, 20);
    }
    if (has_role(DrawRole::kAggregator)) {
      entry(
          "aggregator",
          [this](DrawPoint at) { draw_aggregator_mark(canvas_, {at.x + 8, at.y}, ""); }, 20);
    }
    line_of_text(panels_note(), {.size = kTextSize, .color = kMutedColor});
    y_ += 22;
  }

  [[nodiscard]] std::string panels_note() const {
    std::string note = columns_.summarised ? "A column is a box of the network above; "
                                           : "A column is a host, named by its rank; ";
    note += "time runs down, a row a step.";
    const int per_row = trees_.front().steps_per_row;
    if (per_row > 1) note += fmt::format(" Here a row stands for {} steps.", per_row);
    return note;
  }

  void panels() {
    for (std::size_t first = 0; first < panels_.size(); first += per_row_) {
      double height = 0;
      for (std::size_t i = first; i < std::min(first + per_row_, panels_.size()); ++i) {
        const double x = kMargin + panel_pitch_ * static_cast<double>(i - first);
        panels_[i].draw(canvas_, {x, y_});
        height = std::max(height, panels_[i].size().height);
      }
      y_ += height + kPanelGap / 2;
    }
  }

  const Plan& plan_;
  const PlanProof& proof_;
  const topology::Topology& topology_;
  const Accounting& accounting_;
  DrawColumns columns_;
  DrawNetwork network_;
  std::vector<DrawTree> trees_;
  std::vector<TreePart> panels_;
  std::optional<NetworkPart> network_part_;  // set once the width is known
  std::size_t per_row_ = 1;
  double panel_pitch_ = 0;
  double width_ = 0;
  double y_ = kMargin / 2;
  DrawCanvas canvas_;
};

}  // namespace

std::string plan_to_svg(const Plan& plan, const PlanProof& proof,
                        const topology::Topology& topology, const Accounting& accounting,
                        const DrawOptions& options) {
  return Picture(plan, proof, topology, accounting, options).draw();
}

}  // namespace thalweg::plan
