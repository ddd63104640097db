// Appends values to a string that stands for a state, for searches that compare states. If values
// are appended in a fixed order, equal strings mean equal values.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/units.h"

namespace thalweg {

// Numbers that are usually small take one byte.
inline void encode(std::string& out, std::integral auto value) {
  const auto bits = static_cast<std::uint64_t>(value);
  if (bits < 0xff) {
    out += static_cast<char>(bits);
    return;
  }
  out += static_cast<char>(0xff);
  for (int shift = 0; shift < 64; shift += 8) out += static_cast<char>(bits >> shift);
}
inline void encode(std::string& out, std::string_view text) {
  encode(out, text.size());
  out += text;
}
inline void encode(std::string& out, std::optional<Rank> rank) {
  encode(out, rank ? rank->value() + 1 : 0);
}
inline void encode(std::string& out, Time time) { encode(out, time.since_start().ps()); }

}  // namespace thalweg
