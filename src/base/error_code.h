// Error codes as they travel between processes: as numbers in messages, and as names in JSON.
#pragma once

#include <cstdint>
#include <string_view>

#include <thalweg/result.h>

namespace thalweg {

// A number or name that is not known, as from a newer version, gives kInternal.
constexpr ErrorCode error_code_of(std::uint64_t number) {
  return number < kErrorCodeCount ? static_cast<ErrorCode>(number) : ErrorCode::kInternal;
}

constexpr ErrorCode error_code_named(std::string_view name) {
  for (int i = 0; i < kErrorCodeCount; ++i) {
    const auto code = static_cast<ErrorCode>(i);
    if (name == name_of(code)) return code;
  }
  return ErrorCode::kInternal;
}

}  // namespace thalweg
