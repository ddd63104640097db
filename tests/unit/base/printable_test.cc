#include "base/printable.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/prng.h"

namespace thalweg {
namespace {

TEST(Printable, printable__what_a_terminal_would_obey_is_escaped) {
  EXPECT_EQ(printable("job 1, ring: ümläut 网 \\x41"), "job 1, ring: ümläut 网 \\x41");
  EXPECT_EQ(printable("\x1b]0;title\a"), "\\x1b]0;title\\x07");
  EXPECT_EQ(printable("a\rb\nc\td\x7f"), "a\\x0db\\x0ac\\x09d\\x7f");
  EXPECT_EQ(printable(std::string("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(printable("\xc2\x9b"), "\\xc2\\x9b");           // the control character CSI
  EXPECT_EQ(printable("\u202eabc"), "\\xe2\\x80\\xaeabc");  // writes from right to left
  EXPECT_EQ(printable("\u2028"), "\\xe2\\x80\\xa8");        // separates lines
  EXPECT_EQ(printable_lines("a\nb\r\x1b"), "a\nb\\x0d\\x1b");
}

TEST(Printable, printable__bytes_that_are_no_utf8_are_escaped) {
  EXPECT_EQ(printable("\xff"), "\\xff");
  EXPECT_EQ(printable("\xe2\x82"), "\\xe2\\x82");                    // ends too early
  EXPECT_EQ(printable("\xc0\x9b"), "\\xc0\\x9b");                    // longer than it needs to be
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");           // half of a pair
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");  // above all characters
}

// Bytes of control characters, of leads and of continuations, so that random texts hold all cases.
std::string random_text(Prng& prng) {
  static const std::vector<std::string> kParts = {"\x1b", "\n",   "\x7f", "\xc2", "\xe2", "\x80",
                                                  "\xae", "\xf0", "a",    "\\x",  "é",    "网"};
  std::string text;
  const std::uint64_t parts = prng.below(12);
  for (std::uint64_t i = 0; i < parts; ++i) {
    if (prng.below(4) == 0) {
      text += static_cast<char>(prng.below(256));
    } else {
      text += kParts[prng.below(kParts.size())];
    }
  }
  return text;
}

TEST(Printable, random_texts__no_control_character_is_left_and_twice_is_once) {
  constexpr std::uint64_t kSeed = 26;
  Prng prng(kSeed);
  for (int round = 0; round < 100'000; ++round) {
    const std::string text = random_text(prng);
    const std::string out = printable(text);
    SCOPED_TRACE(testing::Message() << "seed " << kSeed << " round " << round << ": " << out);
    for (std::size_t i = 0; i < out.size(); ++i) {
      const auto byte = static_cast<unsigned char>(out[i]);
      ASSERT_FALSE(byte < 0x20 || byte == 0x7f);
      // U+0080 to U+009f are control characters, too.
      if (byte == 0xc2 && i + 1 < out.size()) {
        ASSERT_GE(static_cast<unsigned char>(out[i + 1]), 0xa0);
      }
    }
    ASSERT_EQ(printable(out), out);
    ASSERT_EQ(printable(printable_lines(text)), out);
  }
}

}  // namespace
}  // namespace thalweg
