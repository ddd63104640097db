// CHECK states an invariant of the program itself, and is on in every build. A failed CHECK is a
// bug: it prints the place and the condition, and aborts. Bad input never fails a CHECK; it gives
// an error in a Result, or a counted drop.
#pragma once

#include <fmt/core.h>

#include <string>

namespace thalweg {

[[noreturn]] void check_failed(const char* file, int line, const char* condition,
                               const std::string& message);

}  // namespace thalweg

// CHECK(cond) or CHECK(cond, "format", arguments…).
#define CHECK(condition, ...)                                                                 \
  do {                                                                                        \
    if (!(condition)) [[unlikely]] {                                                          \
      ::thalweg::check_failed(__FILE__, __LINE__, #condition, ::fmt::format("" __VA_ARGS__)); \
    }                                                                                         \
  } while (false)
