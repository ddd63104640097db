#include "sim/settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <yaml-cpp/yaml.h>

#include <charconv>
#include <map>
#include <optional>

#include "topology/yaml_document.h"
#include "topology/yaml_source.h"

namespace thalweg {
namespace {

constexpr std::string_view kVariables = "variables";
constexpr int kDeepest =
    32;  // path parts, and levels of a file below which nothing is put in place

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

// The entry of a map whose key is that text; a map of the files we read has few.
std::optional<YAML::Node> entry(const YAML::Node& map, std::string_view key) {
  for (const auto& e : map) {
    if (e.first.IsScalar() && e.first.Scalar() == key) return e.second;
  }
  return std::nullopt;
}

// Every part of the path but the last must be there; a key of a map may be new.
Status set_path(const YAML::Node& root, const Setting& setting, const YAML::Node& value) {
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
    if (last) {
      at[parts[i]] = value;
      return ok_status();
    }
    const auto next = entry(at, parts[i]);
    if (!next) {
      std::vector<std::string> keys;
      for (const auto& e : at) {
        if (e.first.IsScalar()) keys.push_back(e.first.Scalar());
      }
      return Error(fmt::format("'{}': there is no '{}'; there are {}", setting.key, parts[i],
                               fmt::join(keys, ", ")));
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
      return Error(fmt::format("'{}' is not a variable; '{}' has: {}", name, kVariables,
                               names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "))));
    }
    result += found->second;
    text.remove_prefix(end + 1);
  }
}

Status fill_in(YAML::Node node, const Variables& variables, const YamlSource& source, int depth) {
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
  const YamlSource file(source);
  if (!root.IsMap()) return file.error(root, "the file must be a map");
  Variables variables;
  if (const auto declared = entry(root, kVariables)) {
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
    const Result<YAML::Node> value = load_yaml_document(setting.value, setting.key);
    if (!value.ok()) return value.error();
    THALWEG_TRY_STATUS(set_path(root, setting, *value));
  }
  return fill_in(root, variables, file, 0);
}

}  // namespace thalweg
