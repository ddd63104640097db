#include "sim/scenario/sweep.h"

#include <fmt/core.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>

#include "topology/format/yaml_document.h"
#include "topology/format/yaml_source.h"

namespace thalweg::sim {
namespace {

// A value as text, in the form that a setting takes.
std::string flow_text(const YAML::Node& node) {
  if (node.IsScalar()) return node.Scalar();
  YAML::Emitter out;
  out << YAML::Flow << node;
  return out.c_str();
}

Result<Axis::Value> labelled_value(const YAML::Node& label, const YAML::Node& settings,
                                   const topology::YamlSource& file) {
  Axis::Value value;
  THALWEG_TRY(value.label, file.text_of(label, "sweep"));
  if (!settings.IsMap()) {
    return file.error(settings, fmt::format("'{}' must be a map of what it sets", value.label));
  }
  for (const auto& e : settings) {
    THALWEG_TRY(std::string key, file.text_of(e.first, value.label));
    value.settings.push_back({.key = std::move(key), .value = flow_text(e.second)});
  }
  return value;
}

Result<Axis> axis_from(const std::string& name, const YAML::Node& node,
                       const topology::YamlSource& file) {
  Axis axis{.name = name, .values = {}};
  if (node.IsSequence()) {
    for (const YAML::Node& item : node) {
      const std::string text = flow_text(item);
      axis.values.push_back({.label = text, .settings = {{.key = name, .value = text}}});
    }
  } else if (node.IsMap()) {
    for (const auto& e : node) {
      THALWEG_TRY(Axis::Value value, labelled_value(e.first, e.second, file));
      axis.values.push_back(std::move(value));
    }
  }
  if (axis.values.empty()) {
    return file.error(node, fmt::format("'{}' must be a list of values, or a map from label to "
                                        "what it sets, and not empty",
                                        name));
  }
  for (std::size_t i = 0; i < axis.values.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (axis.values[i].label == axis.values[j].label) {
        return file.error(node, fmt::format("'{}' has '{}' twice", name, axis.values[i].label));
      }
    }
  }
  return axis;
}

}  // namespace

Result<std::vector<Axis>> axes_from_node(const YAML::Node& node, std::string_view source) {
  const topology::YamlSource file(source);
  std::vector<Axis> axes;
  if (!node.IsDefined() || node.IsNull()) return axes;
  if (!node.IsMap())
    return file.error(node, "'sweep' must be a map from what varies to its values");
  for (const auto& e : node) {
    THALWEG_TRY(const std::string name, file.text_of(e.first, "sweep"));
    const bool twice = std::ranges::any_of(axes, [&](const Axis& a) { return a.name == name; });
    if (twice) return file.error(e.first, fmt::format("'sweep' has '{}' twice", name));
    THALWEG_TRY(Axis axis, axis_from(name, e.second, file));
    axes.push_back(std::move(axis));
  }
  return axes;
}

Result<Axis> parse_axis(std::string_view text) {
  THALWEG_TRY(const Setting setting, parse_setting(text));
  const Result<YAML::Node> node = topology::load_yaml_document(setting.value, setting.key);
  if (!node.ok()) return node.error();
  if (!node->IsSequence()) {
    return Error(fmt::format("'{}' is not of the form key=[value, value]", text));
  }
  return axis_from(setting.key, *node, topology::YamlSource(setting.key));
}

void put_axis(std::vector<Axis>& axes, Axis axis) {
  const auto same = std::ranges::find(axes, axis.name, &Axis::name);
  if (same != axes.end()) {
    *same = std::move(axis);
  } else {
    axes.push_back(std::move(axis));
  }
}

Result<std::vector<SweepPoint>> points_of(const std::vector<Axis>& axes) {
  std::vector<SweepPoint> points(1);
  for (const Axis& axis : axes) {
    if (points.size() * axis.values.size() > kMaxSweepPoints) {
      return Error(fmt::format("the sweep has more than {} points", kMaxSweepPoints));
    }
    std::vector<SweepPoint> longer;
    longer.reserve(points.size() * axis.values.size());
    for (const SweepPoint& point : points) {
      for (const Axis::Value& value : axis.values) {
        SweepPoint& next = longer.emplace_back(point);
        next.labels.push_back(value.label);
        next.settings.insert(next.settings.end(), value.settings.begin(), value.settings.end());
      }
    }
    points = std::move(longer);
  }
  return points;
}

}  // namespace thalweg::sim
