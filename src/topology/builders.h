// The regular networks that a shorthand can name, as a table.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "topology/topology.h"

namespace thalweg::topology {

enum class KeyUnit : std::uint8_t { kCount, kRate, kDelay, kBuffer };

struct TopologyKey {
  std::string_view name;
  KeyUnit unit;
  std::string_view default_value;  // "=host": the value of the key `host`, which comes before it
  std::string_view meaning;
};

// The keys of one shorthand, each with a value in range: a count, bits per second, picoseconds or
// bytes.
class TopologyArguments {
 public:
  void set(std::string_view key, std::int64_t value) { values_.emplace_back(key, value); }
  // Requires a key of this kind of topology.
  [[nodiscard]] std::int64_t get(std::string_view key) const;
  // A link with the rate of `rate_key` and the common delay and buffer.
  [[nodiscard]] LinkSpec link(std::string_view rate_key) const;

 private:
  std::vector<std::pair<std::string_view, std::int64_t>> values_;
};

struct TopologyKind {
  std::string_view name;
  std::string_view summary;
  std::vector<TopologyKey> keys;
  Result<Topology> (*build)(const TopologyArguments& arguments, std::string name);
};

std::span<const TopologyKind> topology_kinds();

}  // namespace thalweg::topology
