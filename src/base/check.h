// CHECK: an invariant of the program itself, on in every build. A failed one is a bug: it prints
// where and what, and aborts. Bad input is never a CHECK; it is a Result or a counted drop.
#pragma once

#include <fmt/format.h>

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
