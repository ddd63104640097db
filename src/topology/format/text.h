// What the readers of topology files share: places in a text, and checks before any parsing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <thalweg/result.h>

namespace thalweg::topology {

// A larger file is rejected. The largest topology that we can hold fits.
inline constexpr std::size_t kMaxFileBytes = std::size_t{128} << 20;

// The offset of the first byte that is not part of a printable UTF-8 character: a malformed,
// overlong or surrogate sequence, a control character, or a character that a YAML stream may not
// hold or would swallow (byte order mark, line and paragraph separators, non-characters). Returns
// the size of the text if there is none.
std::size_t first_unprintable(std::string_view text);

// Rejects a text that is too large, or not UTF-8, or that holds control characters other than tab,
// line feed and carriage return.
Status check_text(std::string_view text, std::string_view source);

// Makes the error "FILE: line 3: message".
Error error_at(std::string_view source, int line, std::string_view message);

// The last part of a path, as a name for what was read from it; empty if that is not a good name.
std::string name_from_source(std::string_view source);

// A word between blanks, and its line, counted from 1.
struct Word {
  std::string_view text;
  int line = 0;
};
std::vector<Word> split_words(std::string_view text);

// Finds the line of an offset, counted from 1.
class LineIndex {
 public:
  explicit LineIndex(std::string_view text);
  [[nodiscard]] int line_of(std::size_t offset) const;

 private:
  std::vector<std::size_t> line_ends_;
};

// Parses a whole number in [least, most]; an error names `what` and the range.
Result<std::int64_t> parse_whole(std::string_view what, std::string_view text, std::int64_t least,
                                 std::int64_t most);

}  // namespace thalweg::topology
