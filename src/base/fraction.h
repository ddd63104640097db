// Parses fractions as people write them.
#pragma once

#include <string_view>

#include <thalweg/result.h>

namespace thalweg {

// Reads a fraction from 0 to below 1, such as "0.5%" or "0.005".
Result<double> parse_fraction(std::string_view text);

}  // namespace thalweg
