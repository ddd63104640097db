#include "sim/scenario/settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <yaml-cpp/yaml.h>

#include <charconv>
#include <map>
#include <optional>

#include "base/suggest.h"
#include "topology/format/yaml_document.h"
#include "topology/format/yaml_source.h"

namespace thalweg::sim {
namespace {

constexpr std::string_view kVariables = "variables";
// The most parts of a path, and the depth of a file below which variables are not replaced.
constexpr int kDeepest = 32;

using Variables = std::map<std::string, std::string, std::less<>>;

std::vector<std::string> split(std::string_view path) {
  std::vector<std::string> parts;
  for (;;) {
    const std::size_t dot = path.find('.');
    parts.emplace_back(path.substr(0, dot));
    if (dot == std::string_view::npos) return parts;
    path.remove_prefix(dot + 1);
  }
}

std::optional<std::size_t> index_of(const std::string& part) {
  std::size_t index = 0;
  const char* const end = part.data() + part.size();
  const auto [rest, failure] = std::from_chars(part.data(), end, index);
  if (failure != std::errc{} || rest != end) return std::nullopt;
  return index;
}

// The entry of a map with that key. A linear search will do: maps of the files we read are small.
std::optional<YAML::Node> setting_entry(const YAML::Node& map, std::string_view key) {
  for (const auto& e : map) {
    if (e.first.IsScalar() && e.first.Scalar() == key) return e.second;
  }
  return std::nullopt;
}

// Loads the setting's value so that errors about it name the line of the file where the value
// stands, or would stand: the text is put behind as many line ends.
Result<YAML::Node> setting_value(const Setting& setting, const YAML::Mark& place) {
  THALWEG_TRY(const YAML::Node plain, topology::load_yaml_document(setting.value, setting.key));
  if (place.is_null() || place.line <= 0) return plain;
  return topology::load_yaml_document(
      std::string(static_cast<std::size_t>(place.line), '\n') + setting.value, setting.key);
}

// Puts the value into the map. A new key has the line of the map.
Status set_entry(YAML::Node& map, const std::string& key, const Setting& setting) {
  if (const auto old = setting_entry(map, key)) {
    THALWEG_TRY(const YAML::Node value, setting_value(setting, old->Mark()));
    map[key] = value;
    return ok_status();
  }
  THALWEG_TRY(const YAML::Node value, setting_value(setting, map.Mark()));
  YAML::Emitter quoted;
  quoted << YAML::DoubleQuoted << key;
  THALWEG_TRY(const YAML::Node name,
              setting_value({.key = setting.key, .value = quoted.c_str()}, map.Mark()));
  map.force_insert(name, value);
  return ok_status();
}

// Every part of the path but the last must exist; the last may be a new key of a map.
Status set_path(const YAML::Node& root, const Setting& setting) {
  const std::vector<std::string> parts = split(setting.key);
  if (parts.size() > kDeepest) return Error(fmt::format("'{}' has too many parts", setting.key));
  YAML::Node at;
  at.reset(root);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const bool last = i + 1 == parts.size();
    if (at.IsSequence()) {
      const auto index = index_of(parts[i]);
      if (!index || *index >= at.size()) {
        return Error(fmt::format("'{}': '{}' is none of the {} places of the list, counted from 0",
                                 setting.key, parts[i], at.size()));
      }
      if (last) {
        THALWEG_TRY(const YAML::Node value, setting_value(setting, at[*index].Mark()));
        at[*index] = value;
        return ok_status();
      }
      at.reset(YAML::Node(at[*index]));
      continue;
    }
    if (!at.IsMap()) {
      return Error(fmt::format("'{}': there is nothing below '{}'", setting.key,
                               i == 0 ? "the file" : parts[i - 1]));
    }
    if (last) return set_entry(at, parts[i], setting);
    const auto next = setting_entry(at, parts[i]);
    if (!next) {
      std::vector<std::string> keys;
      for (const auto& e : at) {
        if (e.first.IsScalar()) keys.push_back(e.first.Scalar());
      }
      return Error(fmt::format("'{}': there is no '{}'; there are {}{}", setting.key, parts[i],
                               fmt::join(keys, ", "), did_you_mean(parts[i], keys)));
    }
    at.reset(*next);
  }
  return ok_status();
}

Result<std::string> filled_in(std::string_view text, const Variables& variables) {
  std::string result;
  for (;;) {
    const std::size_t begin = text.find("${");
    result += text.substr(0, begin);
    if (begin == std::string_view::npos) return result;
    const std::size_t end = text.find('}', begin);
    if (end == std::string_view::npos) return Error("'${' has no '}'");
    const std::string_view name = text.substr(begin + 2, end - begin - 2);
    const auto found = variables.find(name);
    if (found == variables.end()) {
      std::vector<std::string_view> names;
      for (const auto& [known, value] : variables) names.push_back(known);
      return Error(fmt::format("'{}' is not a variable; '{}' has: {}{}", name, kVariables,
                               names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", ")),
                               did_you_mean(name, names)));
    }
    result += found->second;
    text.remove_prefix(end + 1);
  }
}

Status fill_in(YAML::Node node, const Variables& variables, const topology::YamlSource& source,
               int depth) {
  if (depth > kDeepest) return ok_status();
  if (node.IsScalar() && node.Scalar().find("${") != std::string::npos) {
    const Result<std::string> text = filled_in(node.Scalar(), variables);
    if (!text.ok()) return source.error(node, text.error().message());
    node = *text;
  } else if (node.IsSequence()) {
    for (const YAML::Node& item : node) {
      THALWEG_TRY_STATUS(fill_in(item, variables, source, depth + 1));
    }
  } else if (node.IsMap()) {
    for (const auto& e : node) {
      THALWEG_TRY_STATUS(fill_in(e.second, variables, source, depth + 1));
    }
  }
  return ok_status();
}

}  // namespace

Result<Setting> parse_setting(std::string_view text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string_view::npos || equals == 0) {
    return Error(fmt::format("'{}' is not of the form key=value", text));
  }
  return Setting{.key = std::string(text.substr(0, equals)),
                 .value = std::string(text.substr(equals + 1))};
}

std::string to_string(const Settings& settings) {
  std::string text;
  for (const Setting& s : settings) {
    text += fmt::format("{}{}={}", text.empty() ? "" : ", ", s.key, s.value);
  }
  return text;
}

Status apply_settings(YAML::Node& root, std::string_view source, const Settings& settings) {
  const topology::YamlSource file(source);
  if (!root.IsMap()) return file.error(root, "the file must be a map");
  Variables variables;
  if (const auto declared = setting_entry(root, kVariables)) {
    if (!declared->IsMap()) return file.error(*declared, "'variables' must be a map");
    for (const auto& e : *declared) {
      THALWEG_TRY(const std::string name, file.text_of(e.first, kVariables));
      THALWEG_TRY(const std::string value, file.text_of(e.second, name));
      variables[name] = value;
    }
    root.remove(std::string(kVariables));
  }
  for (const Setting& setting : settings) {
    if (const auto found = variables.find(setting.key); found != variables.end()) {
      found->second = setting.value;
      continue;
    }
    THALWEG_TRY_STATUS(set_path(root, setting));
  }
  return fill_in(root, variables, file, 0);
}

}  // namespace thalweg::sim
