#include "trace/format.h"

#include <fmt/core.h>

#include <cmath>
#include <cstdint>
#include <iterator>

#include "base/check.h"

namespace thalweg::trace {
namespace {

// The length of the UTF-8 sequence at the start of `text`; 0 if there is none.
std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  const std::size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0U) != 0x80) return 0;
  }
  // The second byte shows overlong forms, surrogates and code points above U+10FFFF.
  const unsigned char second = byte(1);
  if (lead == 0xE0 && second < 0xA0) return 0;
  if (lead == 0xED && second > 0x9F) return 0;
  if (lead == 0xF0 && second < 0x90) return 0;
  if (lead == 0xF4 && second > 0x8F) return 0;
  return length;
}

void append_escaped(std::string& out, char c) {
  switch (c) {
    case '"':
      out += "\\\"";
      return;
    case '\\':
      out += "\\\\";
      return;
    case '\n':
      out += "\\n";
      return;
    case '\t':
      out += "\\t";
      return;
    case '\r':
      out += "\\r";
      return;
    default:
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<unsigned>(c));
  }
}

bool must_escape(char c) { return c == '"' || c == '\\' || static_cast<unsigned char>(c) < 0x20; }

}  // namespace

void append_value(std::string& out, Duration duration) {
  constexpr std::uint64_t kPicosecondsPerMicrosecond = 1'000'000;
  const std::int64_t ps = duration.ps();
  if (ps < 0) out += '-';
  // Negated as unsigned: the least int64 has no positive counterpart.
  const std::uint64_t magnitude =
      ps < 0 ? -static_cast<std::uint64_t>(ps) : static_cast<std::uint64_t>(ps);
  fmt::format_to(std::back_inserter(out), "{}.{:06}", magnitude / kPicosecondsPerMicrosecond,
                 magnitude % kPicosecondsPerMicrosecond);
}

void append_value(std::string& out, Bytes size) {
  fmt::format_to(std::back_inserter(out), "{}", size.count());
}

void append_value(std::string& out, double number) {
  CHECK(std::isfinite(number), "{} in a trace", number);
  fmt::format_to(std::back_inserter(out), "{}", number);
}

void append_value(std::string& out, std::string_view text) {
  out += '"';
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    if (length == 0) {
      out += "\\ufffd";
    } else if (must_escape(text.front())) {
      append_escaped(out, text.front());
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  out += '"';
}

void append_id(std::string& out, std::int32_t id) {
  CHECK(id >= 0);
  fmt::format_to(std::back_inserter(out), "{}", id);
}

}  // namespace thalweg::trace
