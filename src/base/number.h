// Reads numbers from text.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace thalweg {

// Reads all of `text` as one number; none if it is not a number, or does not fit the type.
template <class Number>
[[nodiscard]] std::optional<Number> number_in(std::string_view text) {
  Number number{};
  const char* const all = text.data() + text.size();
  const auto [end, failure] = std::from_chars(text.data(), all, number);
  if (failure != std::errc() || end != all) return std::nullopt;
  return number;
}

}  // namespace thalweg
