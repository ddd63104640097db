// Shorthand strings: "kind:key=value,key=value". A kind is a row of a table: its keys with their
// defaults, and the function that builds it (builders.cc).
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <ranges>

#include "base/suggest.h"
#include "topology/builders.h"
#include "topology/format/load.h"
#include "topology/format/text.h"

namespace thalweg::topology {
namespace {

const TopologyKind* find_kind(std::string_view name) {
  const std::span<const TopologyKind> kinds = topology_kinds();
  const auto found = std::find_if(kinds.begin(), kinds.end(),
                                  [&](const TopologyKind& kind) { return kind.name == name; });
  return found == kinds.end() ? nullptr : &*found;
}

template <class Items>
std::string name_list(const Items& items) {
  std::vector<std::string_view> names;
  names.reserve(items.size());
  for (const auto& item : items) names.push_back(item.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string_view kind_of(std::string_view shorthand) {
  return shorthand.substr(0, shorthand.find(':'));
}

Result<std::int64_t> parse_rate(std::string_view text) {
  THALWEG_TRY(const Bandwidth rate, parse_bandwidth(text));
  if (rate <= Bandwidth() || rate > kMaxRate) {
    return Error(
        fmt::format("rate '{}' is out of range: above 0, at most {}", text, to_string(kMaxRate)));
  }
  return rate.bps();
}

Result<std::int64_t> parse_delay(std::string_view text) {
  THALWEG_TRY(const Duration delay, parse_duration(text));
  if (delay > kMaxDelay) {
    return Error(fmt::format("delay '{}' is out of range: at most {}", text, to_string(kMaxDelay)));
  }
  return delay.ps();
}

Result<std::int64_t> parse_value(KeyUnit unit, std::string_view text) {
  switch (unit) {
    case KeyUnit::kCount:
      return parse_whole("count", text, 1, kMaxNodes);
    case KeyUnit::kRate:
      return parse_rate(text);
    case KeyUnit::kDelay:
      return parse_delay(text);
    case KeyUnit::kBuffer: {
      THALWEG_TRY(const Bytes buffer, parse_bytes(text));
      if (buffer <= kMaxBuffer) return buffer.count();
      return Error(
          fmt::format("buffer '{}' is out of range: at most {}", text, to_string(kMaxBuffer)));
    }
  }
  return Error("unknown unit");
}

// Fills `given`, which has one entry per key of the kind (empty: not given), from "key=value,…".
Status split_arguments(const TopologyKind& kind, std::string_view text,
                       std::vector<std::string_view>& given) {
  while (!text.empty()) {
    const std::size_t comma = text.find(',');
    const std::string_view pair = text.substr(0, comma);
    text.remove_prefix(comma == std::string_view::npos ? text.size() : comma + 1);
    const std::size_t equals = pair.find('=');
    if (equals == std::string_view::npos || equals + 1 == pair.size()) {
      return Error(fmt::format("'{}' is not key=value; keys of {}: {}", pair, kind.name,
                               name_list(kind.keys)));
    }
    const std::string_view name = pair.substr(0, equals);
    const auto key = std::find_if(kind.keys.begin(), kind.keys.end(),
                                  [&](const TopologyKey& k) { return k.name == name; });
    if (key == kind.keys.end()) {
      return Error(
          fmt::format("unknown key '{}'; keys of {}: {}{}", name, kind.name, name_list(kind.keys),
                      did_you_mean(name, kind.keys | std::views::transform(&TopologyKey::name))));
    }
    std::string_view& slot = given[static_cast<std::size_t>(key - kind.keys.begin())];
    if (!slot.empty()) {
      return Error(fmt::format("key '{}' is given twice: '{}' and '{}'", name, slot,
                               pair.substr(equals + 1)));
    }
    slot = pair.substr(equals + 1);
  }
  return ok_status();
}

Result<TopologyArguments> parse_arguments(const TopologyKind& kind, std::string_view text) {
  std::vector<std::string_view> given(kind.keys.size());
  THALWEG_TRY_STATUS(split_arguments(kind, text, given));
  TopologyArguments arguments;
  for (std::size_t i = 0; i < kind.keys.size(); ++i) {
    const TopologyKey& key = kind.keys[i];
    if (given[i].empty() && key.default_value.starts_with('=')) {
      arguments.set(key.name, arguments.get(key.default_value.substr(1)));
      continue;
    }
    const std::string_view value = given[i].empty() ? key.default_value : given[i];
    Result<std::int64_t> parsed = parse_value(key.unit, value);
    if (!parsed.ok()) return parsed.error().within(fmt::format("key '{}'", key.name));
    arguments.set(key.name, *parsed);
  }
  return arguments;
}

}  // namespace

bool is_topology_shorthand(std::string_view text) { return find_kind(kind_of(text)) != nullptr; }

Result<Topology> topology_from_shorthand(std::string_view shorthand) {
  const std::string_view name = kind_of(shorthand);
  const TopologyKind* kind = find_kind(name);
  if (kind == nullptr) {
    return Error(
        fmt::format("unknown kind of topology '{}'; kinds: {}", name, name_list(topology_kinds())));
  }
  std::string_view text = shorthand.substr(name.size());
  if (text.starts_with(':')) text.remove_prefix(1);
  const std::string place = fmt::format("topology '{}'", shorthand);
  const Result<TopologyArguments> arguments = parse_arguments(*kind, text);
  if (!arguments.ok()) return arguments.error().within(place);
  const std::string_view title = is_good_name(shorthand) ? shorthand : name;
  Result<Topology> topology = kind->build(*arguments, std::string(title));
  if (!topology.ok()) return topology.error().within(place);
  return topology;
}

}  // namespace thalweg::topology
