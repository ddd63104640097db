#include "base/printable.h"

#include <array>
#include <cstddef>
#include <cstdint>

namespace thalweg {
namespace {

struct Character {
  std::uint32_t code = 0;
  std::size_t bytes = 0;  // 0: no UTF-8
};

// The first character of the text, which must not be empty.
Character first_of(std::string_view text) {
  const auto byte = [&](std::size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
  };
  const std::uint32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  std::size_t bytes = 0;
  std::uint32_t least = 0;  // the smallest code that needs so many bytes
  std::uint32_t code = 0;
  if ((lead & 0xe0U) == 0xc0) {
    bytes = 2, least = 0x80, code = lead & 0x1fU;
  } else if ((lead & 0xf0U) == 0xe0) {
    bytes = 3, least = 0x800, code = lead & 0x0fU;
  } else if ((lead & 0xf8U) == 0xf0) {
    bytes = 4, least = 0x10000, code = lead & 0x07U;
  } else {
    return {};
  }
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0U) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3fU);
  }
  const bool surrogate = code >= 0xd800 && code <= 0xdfff;
  if (code < least || code > 0x10ffff || surrogate) return {};
  return {code, bytes};
}

// Whether a terminal prints the character where it stands, and does nothing else.
bool harmless(std::uint32_t code) {
  struct Range {
    std::uint32_t first;
    std::uint32_t last;
  };
  constexpr std::array kObeyed{
      Range{0x00, 0x1f},      Range{0x7f, 0x9f},      // control characters
      Range{0x061c, 0x061c},  Range{0x200e, 0x200f},  // marks of the direction of writing
      Range{0x2028, 0x202e},                          // separators of lines, more such marks
      Range{0x2066, 0x2069},  Range{0xfeff, 0xfeff},  // more such marks, the mark of byte order
      Range{0xfff9, 0xfffb},                          // marks of annotations
      Range{0xe0000, 0xe007f}                         // invisible tags
  };
  for (const Range& range : kObeyed) {
    if (code >= range.first && code <= range.last) return false;
  }
  return true;
}

std::string escaped(std::string_view text, bool keeps_lines) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Character next = first_of(text);
    const std::size_t bytes = next.bytes == 0 ? 1 : next.bytes;
    const bool stays =
        next.bytes > 0 && (harmless(next.code) || (keeps_lines && next.code == '\n'));
    for (const char c : text.substr(0, bytes)) {
      if (stays) {
        out += c;
        continue;
      }
      const auto value = static_cast<unsigned char>(c);
      out += "\\x";
      out += kDigits[value >> 4U];
      out += kDigits[value & 0xfU];
    }
    text.remove_prefix(bytes);
  }
  return out;
}

}  // namespace

std::string printable(std::string_view text) { return escaped(text, false); }
std::string printable_lines(std::string_view text) { return escaped(text, true); }

}  // namespace thalweg
