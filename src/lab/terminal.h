// What commands show beside their results: colour, and how far a long command has come.
//
// On a terminal, progress is one line on standard error that is overwritten: a bar, the time that
// is left, and what is being done. Elsewhere, and on a terminal that calls itself "dumb", it is a
// plain line every five seconds. The variable NO_COLOR, if it is set and not empty, turns colour
// off and leaves the rest (https://no-color.org).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace thalweg::lab {

enum class Colour : std::uint8_t { kBold, kDim, kRed, kCyan };

// Whether text on this descriptor, such as STDOUT_FILENO, may have colour: it is a terminal that
// obeys escape sequences, and NO_COLOR does not forbid it.
[[nodiscard]] bool shows_colour(int descriptor);

// The text in this colour if `on`, else the text as it is.
[[nodiscard]] std::string painted(std::string_view text, Colour colour, bool on);

// The number of columns that UTF-8 text takes, at one a character.
[[nodiscard]] std::size_t columns_of(std::string_view text);

// What one line of progress says.
struct ProgressLine {
  std::string what;
  std::optional<double> share = {};   // of the work that is done, from 0 to 1, if known
  double elapsed_s = 0;               // since the work began
  std::optional<double> left_s = {};  // that the rest will probably take, if known
};
// For a terminal of that many columns, without a line end.
[[nodiscard]] std::string bar_line(const ProgressLine& line, std::size_t columns, bool colour);
// For a file or a pipe, without a line end.
[[nodiscard]] std::string plain_line(const ProgressLine& line);

// Guesses how long the rest of the work takes: as much for every share as the shares before took.
class TimeLeft {
 public:
  // Returns nothing if too little is done for a guess, or if the last guess has run out.
  [[nodiscard]] std::optional<double> guess(double share, double elapsed_s);

 private:
  double share_ = 0;    // that is done
  double whole_s_ = 0;  // guess for all of the work, from when `share_` last grew
};

// Shows on standard error what a long command is doing. Nothing is shown in the first half second
// on a terminal, and in the first two seconds elsewhere. What was drawn on a terminal is erased by
// the destructor.
class Progress {
 public:
  Progress();
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  // These may be called as often as the caller likes; most calls print nothing. `share`: of the
  // whole work that is done, from 0 to 1.
  void show(const std::string& what);
  void show(const std::string& what, double share);

 private:
  void print(ProgressLine line, double now);
  [[nodiscard]] bool is_due(double now) const { return now >= next_; }

  bool terminal_ = false;
  bool colour_ = false;
  bool drawn_ = false;
  double began_ = 0;  // in seconds of the steady clock
  double next_ = 0;   // when to print again
  TimeLeft left_;
};

}  // namespace thalweg::lab
