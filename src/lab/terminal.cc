#include "lab/terminal.h"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <iostream>

#include "base/printable.h"

namespace thalweg::lab {
namespace {

constexpr double kQuietSecondsOnTerminal = 0.5;
constexpr double kQuietSeconds = 2;
constexpr double kSecondsBetweenLines = 5;
constexpr double kSecondsBetweenRedraws = 0.1;
constexpr double kLeastShareForGuess = 0.01;
constexpr double kLeastSecondsForGuess = 1;
constexpr std::size_t kBarColumns = 24;
constexpr std::size_t kUsualColumns = 80;

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The value of a variable, or "" if it is not set.
std::string_view variable(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): none is set meanwhile
  return value == nullptr ? "" : value;
}

// Whether the descriptor is a terminal that obeys escape sequences.
bool obeys_escapes(int descriptor) { return isatty(descriptor) != 0 && variable("TERM") != "dumb"; }

std::size_t columns_of_terminal() {
  winsize size{};
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-vararg): that is what ioctl is
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kUsualColumns;
  return size.ws_col;
}

constexpr bool begins_character(char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }

// The longest beginning of the text that fits.
std::string_view fitting(std::string_view text, std::size_t columns) {
  std::size_t end = 0;
  for (std::size_t taken = 0; end < text.size(); ++end) {
    if (begins_character(text[end]) && taken++ == columns) break;
  }
  return text.substr(0, end);
}

// "0:07", "12:34", "1:02:03"
std::string clock_text(double seconds) {
  const auto whole = static_cast<long>(std::ceil(std::clamp(seconds, 0.0, 1e6)));
  if (whole < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

std::string percent(double share) { return fmt::format("{:.0f} %", std::floor(share * 100)); }

std::string repeated(std::string_view piece, std::size_t times) {
  std::string text;
  for (std::size_t i = 0; i < times; ++i) text += piece;
  return text;
}

}  // namespace

bool shows_colour(int descriptor) {
  return obeys_escapes(descriptor) && variable("NO_COLOR").empty();
}

std::string painted(std::string_view text, Colour colour, bool on) {
  if (!on || text.empty()) return std::string(text);
  int code = 1;
  switch (colour) {
    case Colour::kBold:
      break;
    case Colour::kDim:
      code = 2;
      break;
    case Colour::kRed:
      code = 31;
      break;
    case Colour::kCyan:
      code = 36;
      break;
  }
  return fmt::format("\033[{}m{}\033[0m", code, text);
}

std::size_t columns_of(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count_if(text, begins_character));
}

std::string bar_line(const ProgressLine& line, std::size_t columns, bool colour) {
  std::string bar;
  std::string text;
  if (line.share) {
    const auto full = static_cast<std::size_t>(*line.share * static_cast<double>(kBarColumns));
    bar = painted(repeated("━", full), Colour::kCyan, colour) +
          painted(repeated(colour ? "━" : "─", kBarColumns - full), Colour::kDim, colour);
    text = fmt::format(" {:>5}  ", percent(*line.share));
    if (line.left_s) text += clock_text(*line.left_s) + " left  ";
  } else {
    text = clock_text(line.elapsed_s) + "  ";
  }
  text += printable(line.what);
  // The last column stays empty, because some terminals begin a new line after it.
  const std::size_t taken = line.share ? kBarColumns + 1 : 1;
  return bar + std::string(fitting(text, columns > taken ? columns - taken : 0));
}

std::string plain_line(const ProgressLine& line) {
  std::string text = printable(line.what);
  if (line.share) text += ": " + percent(*line.share);
  if (line.share && line.left_s) text += fmt::format(", {} left", clock_text(*line.left_s));
  return text;
}

std::optional<double> TimeLeft::guess(double share, double elapsed_s) {
  if (share < kLeastShareForGuess || elapsed_s < kLeastSecondsForGuess) return {};
  if (share > share_ || whole_s_ == 0) {
    share_ = share;
    whole_s_ = elapsed_s / share;
  }
  if (elapsed_s > whole_s_) return {};
  return whole_s_ - elapsed_s;
}

Progress::Progress()
    : terminal_(obeys_escapes(STDERR_FILENO)),
      colour_(shows_colour(STDERR_FILENO)),
      began_(seconds_now()),
      next_(began_ + (terminal_ ? kQuietSecondsOnTerminal : kQuietSeconds)) {}

Progress::~Progress() {
  if (drawn_) std::cerr << "\r\033[K" << std::flush;
}

void Progress::show(const std::string& what) {
  const double now = seconds_now();
  if (is_due(now)) print({.what = what}, now);
}

void Progress::show(const std::string& what, double share) {
  const double now = seconds_now();
  const double done = std::clamp(share, 0.0, 1.0);
  const std::optional<double> left = left_.guess(done, now - began_);
  if (is_due(now)) print({.what = what, .share = done, .left_s = left}, now);
}

void Progress::print(ProgressLine line, double now) {
  line.elapsed_s = now - began_;
  next_ = now + (terminal_ ? kSecondsBetweenRedraws : kSecondsBetweenLines);
  if (!terminal_) {
    std::cerr << plain_line(line) << '\n';
    return;
  }
  drawn_ = true;
  std::cerr << "\r\033[K" << bar_line(line, columns_of_terminal(), colour_) << std::flush;
}

}  // namespace thalweg::lab
