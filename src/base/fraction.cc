#include "base/fraction.h"

#include <fmt/core.h>

#include <charconv>

namespace thalweg {

Result<double> parse_fraction(std::string_view text) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [after, error] = std::from_chars(text.data(), end, value);
  const std::string_view rest(after, static_cast<std::size_t>(end - after));
  if (rest == "%") value /= 100;
  if (error != std::errc() || (!rest.empty() && rest != "%") || !(value >= 0 && value < 1)) {
    return Error(fmt::format("'{}': write a share from 0 to below 1, as in 0.5% or 0.005", text));
  }
  return value;
}

}  // namespace thalweg
