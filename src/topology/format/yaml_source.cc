#include "topology/format/yaml_source.h"

#include <fmt/ranges.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <charconv>

#include "base/suggest.h"
#include "topology/format/text.h"

namespace thalweg::topology {

Error YamlSource::error(int line, std::string_view message) const {
  return error_at(name_, line, message);
}

Result<YamlSource::Fields> YamlSource::fields_of(const YAML::Node& node, std::string_view what,
                                                 Keys required, Keys optional) const {
  std::vector<std::string_view> allowed(required.begin(), required.end());
  allowed.insert(allowed.end(), optional.begin(), optional.end());
  if (!node.IsMap()) {
    return error(node,
                 fmt::format("{} must be a map with the keys {}", what, fmt::join(allowed, ", ")));
  }
  Fields fields;
  for (const auto& entry : node) {
    const YAML::Node& key = entry.first;
    const std::string text = key.IsScalar() ? key.Scalar() : "(not a word)";
    if (!key.IsScalar() || std::find(allowed.begin(), allowed.end(), text) == allowed.end()) {
      return error(key, fmt::format("unknown key '{}' in {}; keys: {}{}", text, what,
                                    fmt::join(allowed, ", "), did_you_mean(text, allowed)));
    }
    if (entry.second.IsNull()) {
      return error(key, fmt::format("key '{}' in {} has no value", text, what));
    }
    const auto [place, fresh] = fields.emplace(text, entry.second);
    if (!fresh) {
      return error(key, fmt::format("key '{}' is given twice in {}; first at line {}", text, what,
                                    line_of(place->second)));
    }
  }
  for (const std::string_view key : required) {
    if (!fields.contains(key)) return error(node, fmt::format("{} has no '{}'", what, key));
  }
  return fields;
}

Result<std::string> YamlSource::text_of(const YAML::Node& node, std::string_view field) const {
  if (node.IsScalar()) return node.Scalar();
  return error(node, fmt::format("'{}' must be a single value, not {}", field,
                                 node.IsNull()  ? "empty"
                                 : node.IsMap() ? "a map"
                                                : "a list"));
}

Result<std::vector<YAML::Node>> YamlSource::list_of(const YAML::Node& node,
                                                    std::string_view field) const {
  std::vector<YAML::Node> items;
  if (node.IsNull()) return items;
  if (!node.IsSequence()) return error(node, fmt::format("'{}' must be a list", field));
  for (const YAML::Node& item : node) items.push_back(item);
  return items;
}

Result<std::int64_t> YamlSource::whole_of(const YAML::Node& node, std::string_view field,
                                          std::int64_t least, std::int64_t most) const {
  THALWEG_TRY(const std::string text, text_of(node, field));
  const Result<std::int64_t> value = parse_whole(fmt::format("'{}':", field), text, least, most);
  if (!value.ok()) return error(node, value.error().message());
  return *value;
}

Result<double> YamlSource::number_of(const YAML::Node& node, std::string_view field, double least,
                                     double most) const {
  THALWEG_TRY(const std::string text, text_of(node, field));
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, failure] = std::from_chars(text.data(), end, value, std::chars_format::fixed);
  // Written so that a NaN fails too.
  if (failure == std::errc{} && rest == end && value >= least && value <= most) return value;
  return error(node,
               fmt::format("'{}': '{}' is not a number from {} to {}", field, text, least, most));
}

}  // namespace thalweg::topology
