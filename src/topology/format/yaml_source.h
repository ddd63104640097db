// A YAML document in which every error names the file and the line. The readers of our own formats
// (topologies, models) are built on it. It calls no accessor of YAML::Node that throws on the kind
// of node at hand.
#pragma once

#include <fmt/core.h>
#include <yaml-cpp/node/node.h>

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <thalweg/result.h>

namespace thalweg::topology {

class YamlSource {
 public:
  using Fields = std::map<std::string, YAML::Node, std::less<>>;
  using Keys = std::span<const std::string_view>;

  // `name` is the document's name in errors; it must outlive this object.
  explicit YamlSource(std::string_view name) : name_(name) {}

  [[nodiscard]] std::string_view name() const { return name_; }
  static int line_of(const YAML::Node& node) { return node.Mark().line + 1; }
  [[nodiscard]] Error error(int line, std::string_view message) const;
  [[nodiscard]] Error error(const YAML::Node& node, std::string_view message) const {
    return error(line_of(node), message);
  }

  // The entries of a map. Fails if a required key is missing, a key is unknown or given twice, or
  // has no value. `what` names the map: "a host".
  [[nodiscard]] Result<Fields> fields_of(const YAML::Node& node, std::string_view what,
                                         Keys required, Keys optional) const;
  [[nodiscard]] Result<std::string> text_of(const YAML::Node& node, std::string_view field) const;
  // The items of a list; no items if the node is empty.
  [[nodiscard]] Result<std::vector<YAML::Node>> list_of(const YAML::Node& node,
                                                        std::string_view field) const;
  [[nodiscard]] Result<std::int64_t> whole_of(const YAML::Node& node, std::string_view field,
                                              std::int64_t least, std::int64_t most) const;
  // The same for an optional field: if it is missing, `out` keeps its value.
  template <class T>
  [[nodiscard]] Status whole_into(const Fields& fields, std::string_view field, std::int64_t least,
                                  std::int64_t most, T& out) const {
    const auto found = fields.find(field);
    if (found == fields.end()) return ok_status();
    THALWEG_TRY(const std::int64_t value, whole_of(found->second, field, least, most));
    out = static_cast<T>(value);
    return ok_status();
  }
  [[nodiscard]] Result<double> number_of(const YAML::Node& node, std::string_view field,
                                         double least, double most) const;
  // A quantity with a unit (base/units.h).
  template <class T>
  [[nodiscard]] Result<T> quantity_of(const YAML::Node& node, std::string_view field,
                                      Result<T> (*parse)(std::string_view), T least, T most) const {
    THALWEG_TRY(const std::string text, text_of(node, field));
    const Result<T> value = parse(text);
    if (!value.ok()) return error(node, fmt::format("'{}': {}", field, value.error().message()));
    if (*value < least || *value > most) {
      return error(node, fmt::format("'{}': {} is out of range: {} to {}", field, text,
                                     to_string(least), to_string(most)));
    }
    return *value;
  }

 private:
  std::string_view name_;
};

}  // namespace thalweg::topology
