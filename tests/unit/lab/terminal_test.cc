#include "lab/terminal.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>

namespace thalweg::lab {
namespace {

TEST(BarLine, shows_share_time_and_what) {
  const ProgressLine half{.what = "4 of 8 points", .share = 0.5, .left_s = 75};
  EXPECT_EQ(bar_line(half, 80, false), "━━━━━━━━━━━━────────────  50 %  1:15 left  4 of 8 points");
  EXPECT_EQ(bar_line({.what = "starting", .elapsed_s = 3725}, 80, false), "1:02:05  starting");
}

TEST(BarLine, fits_into_the_terminal) {
  const ProgressLine line{.what = "grüße über viele Punkte", .share = 1.0, .left_s = 0};
  const std::string whole = bar_line(line, 200, false);
  for (const std::size_t columns :
       {std::size_t{26}, std::size_t{40}, std::size_t{50}, std::size_t{55}}) {
    const std::string cut = bar_line(line, columns, false);
    EXPECT_EQ(columns_of(cut), columns - 1) << cut;
    EXPECT_TRUE(whole.starts_with(cut)) << cut;
  }
}

TEST(BarLine, colour_adds_escapes_and_nothing_else) {
  const ProgressLine line{.what = "x", .share = 0.25};
  const std::string coloured = bar_line(line, 80, true);
  EXPECT_TRUE(coloured.starts_with("\033[36m━━━━━━\033[0m\033[2m━")) << coloured;
  EXPECT_EQ(bar_line(line, 80, false).find('\033'), std::string::npos);
}

TEST(BarLine, what_it_is_given_cannot_move_the_cursor) {
  const std::string line = bar_line({.what = "a\033[2Jb\nc", .share = 0.5}, 80, false);
  EXPECT_EQ(line.find('\033'), std::string::npos);
  EXPECT_EQ(line.find('\n'), std::string::npos);
}

TEST(PlainLine, has_no_bar) {
  EXPECT_EQ(plain_line({.what = "x"}), "x");
  EXPECT_EQ(plain_line({.what = "x", .share = 0.999, .left_s = 7}), "x: 99 %, 0:07 left");
  EXPECT_EQ(plain_line({.what = "x", .share = 0.0}), "x: 0 %");
}

TEST(TimeLeft, grows_with_what_is_left_and_runs_out) {
  TimeLeft left;
  EXPECT_EQ(left.guess(0, 100), std::nullopt);
  EXPECT_EQ(left.guess(0.5, 0.5), std::nullopt);
  EXPECT_DOUBLE_EQ(left.guess(0.25, 10).value(), 30);
  EXPECT_DOUBLE_EQ(left.guess(0.25, 20).value(), 20);  // nothing new: the guess counts down
  EXPECT_EQ(left.guess(0.25, 41), std::nullopt);
  EXPECT_DOUBLE_EQ(left.guess(0.5, 42).value(), 42);
}

TEST(Painted, only_where_it_is_wanted) {
  EXPECT_EQ(painted("no", Colour::kRed, false), "no");
  EXPECT_EQ(painted("yes", Colour::kRed, true), "\033[31myes\033[0m");
  EXPECT_EQ(painted("", Colour::kBold, true), "");
}

}  // namespace
}  // namespace thalweg::lab
