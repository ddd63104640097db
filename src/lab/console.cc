#include "lab/console.h"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <ctime>
#include <iostream>

#include "base/printable.h"
#include "lab/terminal.h"

namespace thalweg::lab {

Status print_now(std::string_view text) {
  if (std::cout << text << std::flush) return ok_status();
  return Error("cannot write to standard output");
}

std::string format_table(const std::vector<std::vector<std::string>>& cells) {
  std::vector<std::vector<std::string>> rows = cells;
  for (auto& row : rows) {
    for (std::string& cell : row) cell = printable(cell);
  }
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t c = 0; c < row.size(); ++c)
      widths[c] = std::max(widths[c], columns_of(row[c]));
  }
  const bool colour = shows_colour(STDOUT_FILENO);
  std::string text;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    std::string line;
    for (std::size_t c = 0; c < rows[r].size(); ++c) {
      const std::string& cell = rows[r][c];
      const std::string padding(widths[c] - columns_of(cell), ' ');
      if (c > 0) line += "  ";
      line += c == 0 ? cell + padding : padding + cell;
    }
    while (line.ends_with(' ')) line.pop_back();
    text += painted(line, Colour::kBold, colour && r == 0) + '\n';
  }
  return text;
}

double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace thalweg::lab
