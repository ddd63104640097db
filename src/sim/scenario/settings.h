// Settings change a file from outside: one value of a sweep, or what a user sets on the command
// line.
//
// A setting's key is the name of a variable of the file, or the path of a value in it:
// `transport.rto_min`, `jobs.0.scheme`. A file declares its variables with their usual values in
// the top-level map `variables`, and uses them as ${name} inside any value.
#pragma once

#include <yaml-cpp/node/node.h>

#include <string>
#include <string_view>
#include <vector>

#include <thalweg/result.h>

namespace thalweg::sim {

struct Setting {
  std::string key;
  std::string value;  // YAML
  bool operator==(const Setting&) const = default;
};
using Settings = std::vector<Setting>;

// Parses "key=value", the form of a command-line flag.
Result<Setting> parse_setting(std::string_view text);

// Prints "a=1, b=2", for people.
std::string to_string(const Settings& settings);

// Applies the settings in order, replaces the variables by their values and removes the map
// `variables`. `source` names the file in errors.
Status apply_settings(YAML::Node& root, std::string_view source, const Settings& settings);

}  // namespace thalweg::sim
