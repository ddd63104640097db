#include "topology/format/text.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>

#include "topology/topology.h"

namespace thalweg::topology {
namespace {

// The length of the UTF-8 sequence that starts with this byte; 0 if none can start with it.
std::size_t sequence_length(unsigned char first) {
  if (first < 0x80) return 1;
  if (first < 0xc2) return 0;
  if (first < 0xe0) return 2;
  if (first < 0xf0) return 3;
  return first < 0xf5 ? 4 : 0;
}

struct CodePoint {
  std::int32_t value = -1;  // -1: malformed, overlong or a surrogate
  std::size_t length = 0;
};

CodePoint code_point_at(std::string_view text, std::size_t offset) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[offset + i]); };
  const std::size_t length = sequence_length(byte(0));
  if (length == 0 || text.size() - offset < length) return {};
  std::int32_t value = length == 1 ? byte(0) : byte(0) & (0xff >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    value = (value << 6) | (byte(i) & 0x3f);
  }
  const bool overlong = (length == 3 && value < 0x800) || (length == 4 && value < 0x10000);
  const bool surrogate = value >= 0xd800 && value <= 0xdfff;
  if (overlong || surrogate || value > 0x10ffff) return {};
  return {value, length};
}

bool is_unprintable(std::int32_t value) {
  return value < 0x20 || (value >= 0x7f && value < 0xa0) || value == 0xfeff || value == 0x2028 ||
         value == 0x2029 || (value & 0xfffe) == 0xfffe;
}

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

}  // namespace

std::size_t first_unprintable(std::string_view text) {
  std::size_t offset = 0;
  while (offset < text.size()) {
    const CodePoint point = code_point_at(text, offset);
    if (is_unprintable(point.value)) break;
    offset += point.length;
  }
  return offset;
}

Status check_text(std::string_view text, std::string_view source) {
  if (text.size() > kMaxFileBytes) {
    return Error(
        fmt::format("{}: {} bytes are too many: at most {}", source, text.size(), kMaxFileBytes));
  }
  std::size_t offset = 0;
  while (true) {
    offset += first_unprintable(text.substr(offset));
    if (offset == text.size()) return ok_status();
    if (!is_blank(text[offset])) break;
    ++offset;
  }
  return error_at(source, LineIndex(text).line_of(offset),
                  fmt::format("byte 0x{:02x} is not text: UTF-8 without control characters is "
                              "expected",
                              static_cast<unsigned char>(text[offset])));
}

Error error_at(std::string_view source, int line, std::string_view message) {
  return Error(fmt::format("{}: line {}: {}", source, line, message));
}

std::string name_from_source(std::string_view source) {
  const std::size_t slash = source.rfind('/');
  if (slash != std::string_view::npos) source.remove_prefix(slash + 1);
  return is_good_name(source) ? std::string(source) : std::string();
}

std::vector<Word> split_words(std::string_view text) {
  std::vector<Word> words;
  int line = 1;
  std::size_t i = 0;
  while (i < text.size()) {
    if (is_blank(text[i])) {
      if (text[i] == '\n') ++line;
      ++i;
      continue;
    }
    const std::size_t begin = i;
    while (i < text.size() && !is_blank(text[i])) ++i;
    words.push_back({text.substr(begin, i - begin), line});
  }
  return words;
}

LineIndex::LineIndex(std::string_view text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\n') line_ends_.push_back(i);
  }
}

int LineIndex::line_of(std::size_t offset) const {
  const auto end = std::lower_bound(line_ends_.begin(), line_ends_.end(), offset);
  return static_cast<int>(end - line_ends_.begin()) + 1;
}

Result<std::int64_t> parse_whole(std::string_view what, std::string_view text, std::int64_t least,
                                 std::int64_t most) {
  std::int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || rest != end || value < least || value > most) {
    return Error(
        fmt::format("{} '{}' is not a whole number from {} to {}", what, text, least, most));
  }
  return value;
}

}  // namespace thalweg::topology
