#include "net/job/debug_log.h"

#include <unistd.h>

#include <algorithm>

#include "base/printable.h"
#include "net/io/system.h"

namespace thalweg::net {
Result<DebugLevel> parse_debug_level(const std::string& text) {
  if (text == "WARN") return DebugLevel::kWarn;
  if (text == "INFO") return DebugLevel::kInfo;
  if (text == "TRACE") return DebugLevel::kTrace;
  return Error(
      fmt::format("THALWEG_DEBUG: '{}' is not allowed: WARN, INFO or TRACE", printable(text)));
}

DebugLog::DebugLog(DebugLevel level, int rank)
    : level_(level), prefix_(fmt::format("thalweg {}:{} [{}] ", host_name(), getpid(), rank)) {}

DebugLog DebugLog::quieter() const {
  DebugLog log = *this;
  log.level_ = shows(DebugLevel::kTrace) ? level_ : std::min(level_, DebugLevel::kWarn);
  return log;
}

void DebugLog::say(const char* level, const std::string& text) const {
  const std::string line = fmt::format("{}{}: {}\n", prefix_, level, text);
  // If standard error does not take it, there is nobody to tell.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace thalweg::net
