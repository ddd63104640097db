// Lines on standard error that say what this rank does and why (THALWEG_DEBUG, docs/operating.md):
//   thalweg node1:4711 [0] INFO: rank 1: connected to 10.0.0.2:40022
//
// A line is one write(), so lines of several ranks do not mix. {fmt} does all that is needed
// (docs/adr/0030-python-runs-the-program.md).
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

#include <thalweg/result.h>

namespace thalweg::net {

enum class DebugLevel {
  kOff,
  kWarn,  // what failed, and what works worse than it could
  kInfo,  // and what was chosen and found: a few lines for each communicator, peer and kind of call
  kTrace,  // and every call
};

// The value of THALWEG_DEBUG: WARN, INFO or TRACE.
[[nodiscard]] Result<DebugLevel> parse_debug_level(const std::string& text);

// A value: copies say the same. Any thread may use it.
class DebugLog {
 public:
  // Says nothing.
  DebugLog() = default;
  DebugLog(DebugLevel level, int rank);

  [[nodiscard]] bool shows(DebugLevel level) const { return level <= level_; }
  template <class... Values>
  void warn(fmt::format_string<Values...> text, Values&&... values) const {
    if (shows(DebugLevel::kWarn)) {
      say("WARN", fmt::format(text, std::forward<Values>(values)...));
    }
  }
  template <class... Values>
  void info(fmt::format_string<Values...> text, Values&&... values) const {
    if (shows(DebugLevel::kInfo)) {
      say("INFO", fmt::format(text, std::forward<Values>(values)...));
    }
  }
  template <class... Values>
  void trace(fmt::format_string<Values...> text, Values&&... values) const {
    if (shows(DebugLevel::kTrace)) {
      say("TRACE", fmt::format(text, std::forward<Values>(values)...));
    }
  }
  // This log without anything but what fails: for the second and later of several equal things.
  [[nodiscard]] DebugLog quieter() const;

 private:
  void say(const char* level, const std::string& text) const;

  DebugLevel level_ = DebugLevel::kOff;
  std::string prefix_;
};

}  // namespace thalweg::net
