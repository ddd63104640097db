// A part of a whole, as people write it.
#pragma once

#include <string_view>

#include <thalweg/result.h>

namespace thalweg {

// From 0 to below 1: "0.5%" or "0.005".
Result<double> parse_share(std::string_view text);

}  // namespace thalweg
