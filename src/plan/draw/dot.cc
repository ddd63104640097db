#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "plan/draw/draw.h"
#include "plan/draw/parts.h"

namespace thalweg::plan {
namespace {

// Escapes text for a quoted string of the DOT language.
std::string dot_escaped(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c == '\n' || c == '\r' ? ' ' : c;
  }
  return out;
}

class DotWriter {
 public:
  DotWriter(const topology::Topology& topology, const DrawColumns& columns)
      : topology_(topology), columns_(columns) {
    for (std::size_t s = 0; s < columns.spans.size(); ++s) {
      span_of_[columns.spans[s].region] = s;
    }
  }

  std::string write(std::string_view title, const std::vector<DrawTree>& trees) {
    append(
        "digraph plan {{\n  label=\"{}\";\n  labelloc=t;\n  rankdir=TB;\n"
        "  node [shape=box, style=\"rounded,filled\", fillcolor=white, fontsize=11];\n"
        "  edge [fontsize=10];\n",
        dot_escaped(title));
    for (std::size_t t = 0; t < trees.size(); ++t) write_tree(t, trees[t]);
    out_ += "}\n";
    return std::move(out_);
  }

 private:
  template <class... Args>
  void append(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<Args>(args)...);
  }

  // The innermost span over a column; columns_.spans.size() if there is none.
  [[nodiscard]] std::size_t span_over(int column) const {
    std::size_t innermost = columns_.spans.size();
    for (std::size_t s = 0; s < columns_.spans.size(); ++s) {
      const DrawSpan& span = columns_.spans[s];
      if (span.first <= column && column <= span.last) innermost = s;
    }
    return innermost;
  }
  [[nodiscard]] std::size_t span_around(std::size_t span) const {
    const topology::RegionId parent = topology_.region(columns_.spans[span].region).parent;
    const auto at = span_of_.find(parent);
    return at == span_of_.end() ? columns_.spans.size() : at->second;
  }

  [[nodiscard]] std::string name_of_span(const DrawSpan& span) const {
    const topology::Region& region = topology_.region(span.region);
    return name_within(topology_, region.name, region.parent);
  }

  void write_tree(std::size_t index, const DrawTree& tree) {
    append("  subgraph cluster_tree{} {{\n    label=\"{}\";\n    color=\"#8c959f\";\n", index,
           dot_escaped(tree.title));
    write_columns(index, tree, columns_.spans.size());
    const bool reduces = std::any_of(tree.arrows.begin(), tree.arrows.end(), [](const auto& arrow) {
      return arrow.kind == TransferKind::kReduce;
    });
    const char* copy_style = reduces ? ", style=dashed, constraint=false" : ", style=dashed";
    for (const DrawArrow& arrow : tree.arrows) {
      const std::string count = arrow.count > 1 ? fmt::format(" ×{}", arrow.count) : "";
      // Copies run against the direction of the reduction, and must not turn the layout upside
      // down.
      append("    t{0}c{1} -> t{0}c{2} [label=\"{3}{4}\", color=\"{5}\", fontcolor=\"{5}\"{6}];\n",
             index, arrow.from, arrow.to, arrow.row * tree.steps_per_row, count,
             color_of(arrow.kind), arrow.kind == TransferKind::kCopy ? copy_style : "");
    }
    out_ += "  }\n";
  }

  // Writes the columns that are directly in a span, and the spans within it as clusters.
  void write_columns(std::size_t tree_index, const DrawTree& tree, std::size_t span) {
    for (int c = 0; c < columns_.size(); ++c) {
      if (span_over(c) != span) continue;
      const DrawColumn& column = columns_.columns[static_cast<std::size_t>(c)];
      append("    t{}c{} [label=\"{}\", tooltip=\"{}\"{}];\n", tree_index, c,
             dot_escaped(columns_.summarised ? column.name : column.label),
             dot_escaped(column.name), role_style(tree, c));
    }
    for (std::size_t inner = 0; inner < columns_.spans.size(); ++inner) {
      if (span_around(inner) != span) continue;
      const DrawSpan& child = columns_.spans[inner];
      append(
          "    subgraph cluster_tree{}r{} {{\n    label=\"{}\"; style=filled; "
          "fillcolor=\"{}\"; color=\"{}\";\n",
          tree_index, child.region.value(), dot_escaped(name_of_span(child)),
          region_fill(child.height), kFaintColor);
      write_columns(tree_index, tree, inner);
      out_ += "    }\n";
    }
  }

  static std::string role_style(const DrawTree& tree, int column) {
    std::string style;
    for (const DrawRoleMark& mark : tree.roles) {
      if (mark.column != column) continue;
      if (mark.role == DrawRole::kRoot) return ", shape=doublecircle, style=filled";
      style = fmt::format(", penwidth=2, color=\"{}\"", kReduceColor);
    }
    return style;
  }

  const topology::Topology& topology_;
  const DrawColumns& columns_;
  std::map<topology::RegionId, std::size_t> span_of_;
  std::string out_;
};

}  // namespace

std::string plan_to_dot(const Plan& plan, const PlanProof& proof,
                        const topology::Topology& topology, const DrawOptions& options) {
  const DrawColumns columns = draw_columns(topology);
  const std::string title = fmt::format(
      "{}: {} of {}, {} steps; solid blue: reduce, dashed orange: "
      "copy; the number is the step",
      plan.scheme, name_of(plan.collective), to_human(plan.size()), proof.steps);
  return DotWriter(topology, columns).write(title, draw_trees(plan, proof, columns, options));
}

}  // namespace thalweg::plan
