// Helpers that check options. Their errors name the field, its value and what is allowed.
#pragma once

#include <fmt/core.h>

#include <cmath>
#include <string>

#include <thalweg/result.h>

#include "base/units.h"

namespace thalweg::proto {

inline Status require(bool condition, const char* field, const std::string& value,
                      const char* allowed) {
  if (condition) return ok_status();
  return Error(fmt::format("{} = {}: must be {}", field, value, allowed));
}

inline Status require_number(bool condition, const char* field, double value, const char* allowed) {
  return require(condition && std::isfinite(value), field, fmt::format("{}", value), allowed);
}

inline Status require_positive(Duration value, const char* field) {
  return require(value > Duration(), field, to_string(value), "above 0");
}

}  // namespace thalweg::proto
