// A sweep: the things that vary, and every combination of their values.
#pragma once

#include <yaml-cpp/node/node.h>

#include <string>
#include <string_view>
#include <vector>

#include <thalweg/result.h>

#include "sim/scenario/settings.h"

namespace thalweg::sim {

inline constexpr std::size_t kMaxSweepPoints = 100'000;

// One thing that varies: its name, and the label and settings of each of its values.
struct Axis {
  struct Value {
    std::string label;
    Settings settings;
  };
  std::string name;
  std::vector<Value> values;
};

// `key: [a, b]` sets the key to each; `name: {label: {key: value, …}, …}` sets several at once.
Result<std::vector<Axis>> axes_from_node(const YAML::Node& node, std::string_view source);
// Parses "key=[a, b]", the form of a command-line flag.
Result<Axis> parse_axis(std::string_view text);
// Replaces the axis of that name, or adds it.
void put_axis(std::vector<Axis>& axes, Axis axis);

// One combination: the label of each axis, in their order, and all settings of these values.
struct SweepPoint {
  std::vector<std::string> labels;
  Settings settings;
};
// All combinations, the last axis varying fastest. Without axes there is one point without labels.
Result<std::vector<SweepPoint>> points_of(const std::vector<Axis>& axes);

}  // namespace thalweg::sim
