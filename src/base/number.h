// Numbers in text that somebody else wrote.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace thalweg {

// The number that all of `text` is; none if it is something else, or does not fit.
template <class Number>
[[nodiscard]] std::optional<Number> number_in(std::string_view text) {
  Number number{};
  const char* const all = text.data() + text.size();
  const auto [end, failure] = std::from_chars(text.data(), all, number);
  if (failure != std::errc() || end != all) return std::nullopt;
  return number;
}

}  // namespace thalweg
