// A sweep: what is varied, and every combination of it.
#pragma once

#include <yaml-cpp/node/node.h>

#include <string>
#include <string_view>
#include <vector>

#include <thalweg/result.h>

#include "sim/settings.h"

namespace thalweg {

inline constexpr std::size_t kMaxSweepPoints = 100'000;

// One thing that is varied: its name, and for each value what it is called and what it sets.
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
// "key=[a, b]", as a flag has it.
Result<Axis> parse_axis(std::string_view text);
// Replaces the axis of that name, or adds it.
void put_axis(std::vector<Axis>& axes, Axis axis);

// One combination: the label of each axis, in their order, and all they set.
struct SweepPoint {
  std::vector<std::string> labels;
  Settings settings;
};
// All combinations, the last axis varying fastest; one without labels if there is no axis.
Result<std::vector<SweepPoint>> points_of(const std::vector<Axis>& axes);

}  // namespace thalweg
